//! Values as they are shown: in base units, counters as rates a second.
//!
//! Invariant: a rate is over the time between two of a metric's values that the node itself
//! counted, so that what comes late is no jump, and a metric that is missing in some pictures goes
//! on where it was.

use std::collections::BTreeMap;

use hearth_monitor::{Kind, Metric, csv};

use super::Shown;
use super::picture::{NodeNow, Picture};

/// Pictures over which the loss is a share: a minute.
const LOSS_PICTURES: usize = 60;

/// What the next picture's rates need.
#[derive(Debug)]
pub struct Rates {
    metrics: Vec<Metric>,
    /// Place of the node's own clock among its values.
    clock: Option<usize>,
    before: BTreeMap<u32, Before>,
    traffic: std::collections::VecDeque<(u64, u64)>,
}

#[derive(Debug)]
struct Before {
    boot: u64,
    /// By metric.
    last: Vec<Last>,
}

/// A counter's last value.
#[derive(Debug, Clone, Copy, Default)]
struct Last {
    /// The node's clock then, in microseconds, and the value.
    read: Option<(i64, i64)>,
    /// The rate that was shown with it.
    rate: Option<f64>,
}

impl Rates {
    /// For `metrics`.
    pub fn new(metrics: &[Metric]) -> Self {
        Rates {
            clock: metrics
                .iter()
                .position(|metric| metric.name == "hearth_node_uptime_seconds"),
            metrics: metrics.to_vec(),
            before: BTreeMap::new(),
            traffic: std::collections::VecDeque::new(),
        }
    }

    /// What is shown of `picture`.
    pub fn show(&mut self, picture: Picture) -> Shown {
        let values = picture.nodes.iter().map(|node| self.node(node)).collect();
        let nodes = &picture.nodes;
        let known = |number: &u32| nodes.binary_search_by_key(number, |node| node.node).is_ok();
        self.before.retain(|number, _| known(number));
        if self.traffic.len() > LOSS_PICTURES {
            self.traffic.pop_front();
        }
        self.traffic.push_back((picture.sent, picture.repeated));
        let (sent, repeated) = self.traffic[0];
        let sent = picture.sent.saturating_sub(sent);
        let repeated = picture.repeated.saturating_sub(repeated);
        Shown {
            picture,
            values,
            loss: repeated as f64 / sent.max(1) as f64,
        }
    }

    fn node(&mut self, node: &NodeNow) -> Vec<Option<f64>> {
        if node.values.is_empty() {
            self.before.remove(&node.node);
            return vec![None; self.metrics.len()];
        }
        let before = self.before.remove(&node.node);
        let mut before = before
            .filter(|before| before.boot == node.boot)
            .unwrap_or_else(|| Before {
                boot: node.boot,
                last: vec![Last::default(); self.metrics.len()],
            });
        let clock = self.clock.and_then(|place| *node.values.get(place)?);
        let metrics = self.metrics.iter().zip(&mut before.last).enumerate();
        let shown = metrics.map(|(place, (metric, last))| {
            let value = (*node.values.get(place)?)?;
            if metric.kind == Kind::Gauge {
                return Some(csv::scaled(value as f64, metric.scale));
            }
            let clock = clock?;
            last.rate = match last.read {
                // The same values as in the picture before.
                Some((then, _)) if then == clock => last.rate,
                Some((then, was)) if then < clock && was <= value => {
                    let apart_s = (clock - then) as f64 / 1e6;
                    Some(csv::scaled((value - was) as f64, metric.scale) / apart_s)
                }
                _ => None,
            };
            last.read = Some((clock, value));
            last.rate
        });
        let shown = shown.collect();
        self.before.insert(node.node, before);
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::picture::Health;

    fn picture(boot: u64, uptime_us: i64, idle_us: i64) -> Picture {
        let values = vec![Some(7), Some(uptime_us), Some(idle_us)];
        let node = NodeNow {
            node: 3,
            health: Health::Idle,
            job: None,
            boot,
            mac: String::new(),
            address: None,
            drained: None,
            values,
            repeated: false,
            counters: Vec::new(),
        };
        Picture {
            nodes: vec![node],
            ..Picture::default()
        }
    }

    #[test]
    fn counters_are_rates_by_the_node_s_own_clock() {
        let metrics = [
            Metric::gauge("used_bytes", "bytes", 1.0, "."),
            Metric::gauge("hearth_node_uptime_seconds", "seconds", 1e-6, "."),
            Metric::counter("idle_seconds_total", "seconds", 1e-6, "."),
        ];
        let mut rates = Rates::new(&metrics);
        let mut idle = |boot, uptime, idle| rates.show(picture(boot, uptime, idle)).values[0][2];
        assert_eq!(idle(1, 1_000_000, 0), None, "nothing to compare with");
        // Two seconds on the node's clock, one of them halted, however late the heartbeat came.
        assert_eq!(idle(1, 3_000_000, 1_000_000), Some(0.5));
        assert_eq!(
            idle(1, 3_000_000, 1_000_000),
            Some(0.5),
            "the same heartbeat again"
        );
        assert_eq!(idle(2, 500_000, 100_000), None, "another boot");
        assert_eq!(idle(2, 1_500_000, 1_100_000), Some(1.0));
        let silent = NodeNow {
            values: Vec::new(),
            health: Health::Lost,
            ..picture(2, 0, 0).nodes.remove(0)
        };
        let gone = Picture {
            nodes: vec![silent],
            ..Picture::default()
        };
        assert_eq!(rates.show(gone).values[0], [None; 3]);
    }

    #[test]
    fn a_counter_that_some_pictures_lack_goes_on_where_it_was() {
        let metrics = [
            Metric::gauge("used_bytes", "bytes", 1.0, "."),
            Metric::gauge("hearth_node_uptime_seconds", "seconds", 1e-6, "."),
            Metric::counter("calls_total", "", 1.0, "."),
        ];
        let mut rates = Rates::new(&metrics);
        let mut calls = |uptime, calls| {
            let mut picture = picture(1, uptime, 0);
            picture.nodes[0].values[2] = calls;
            rates.show(picture).values[0][2]
        };
        assert_eq!(calls(1_000_000, Some(10)), None);
        for second in 2..11 {
            assert_eq!(calls(second * 1_000_000, None), None);
        }
        assert_eq!(calls(11_000_000, Some(30)), Some(2.0));
        assert_eq!(calls(11_000_000, Some(30)), Some(2.0));
        assert_eq!(calls(12_000_000, Some(29)), None, "it went back");
        assert_eq!(calls(13_000_000, Some(30)), Some(1.0));
    }
}
