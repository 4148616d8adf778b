//! Values as they are shown: in base units, counters as rates a second.
//!
//! Invariant: a rate is over the time between two heartbeats that the node itself counted, so that a
//! heartbeat that comes late is no jump.

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
    values: Vec<Option<i64>>,
    shown: Vec<Option<f64>>,
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
        let before = self
            .before
            .get(&node.node)
            .filter(|before| before.boot == node.boot);
        let clock = |values: &[Option<i64>]| self.clock.and_then(|place| *values.get(place)?);
        // Seconds between the two heartbeats; the clock counts microseconds.
        let apart_s = before
            .and_then(|before| Some((clock(&node.values)? - clock(&before.values)?) as f64 / 1e6));
        let shown = |(place, metric): (usize, &Metric)| {
            let value = *node.values.get(place)?;
            if metric.kind == Kind::Gauge {
                return value.map(|value| csv::scaled(value as f64, metric.scale));
            }
            let before = before?;
            match apart_s? {
                // The same heartbeat as in the picture before.
                0.0 => before.shown[place],
                apart_s => {
                    let grown = value?.checked_sub(before.values[place]?)?;
                    (grown >= 0).then(|| csv::scaled(grown as f64, metric.scale) / apart_s)
                }
            }
        };
        let shown: Vec<Option<f64>> = self.metrics.iter().enumerate().map(shown).collect();
        self.before.insert(
            node.node,
            Before {
                boot: node.boot,
                values: node.values.clone(),
                shown: shown.clone(),
            },
        );
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
}
