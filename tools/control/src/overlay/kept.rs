//! Values of streams on their way to the files: of each tick what its stream reduced it to.
//!
//! Key types: [`StreamTick`], [`Waiting`]. Neighbours: [`super::Overlay`] puts them here,
//! `monitor::sample` takes them with its picture, `monitor::keeping` writes them.
//!
//! Invariant: bounded by [`WAITING_MAX`]; what finds no room is counted, and nobody waits.

use std::collections::VecDeque;
use std::sync::Arc;

use hearth_monitor::{Kind, Metric};
use netstack::overlay::{Acc, Filter, Reduced, StreamSpec};

use super::catalogue::described;
use super::recent::TickSoFar;

/// Ticks that may wait for the next picture: eight streams of 10 ms for five seconds.
const WAITING_MAX: usize = 4_096;

/// One tick of a stream.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamTick {
    /// Name of the stream.
    pub stream: Arc<str>,
    /// What its values are.
    pub columns: Arc<[Metric]>,
    /// When it began, in microseconds of control's clock.
    pub begin_us: u64,
    /// Nodes that it covers.
    pub covers: u32,
    /// Nodes that were attached.
    pub nodes: u32,
    /// In the order of the columns.
    pub values: Vec<Option<i64>>,
}

/// What is stored of a stream: columns for its metrics. None: its values are of nodes, or of no
/// fixed number, and not stored.
pub fn columns(spec: &StreamSpec) -> Option<Arc<[Metric]>> {
    let mut columns = Vec::new();
    for metric in &spec.metrics {
        let described = described(*metric)?;
        let (worth, name, unit) = (described.worth(), described.name.clone(), described.unit);
        let column = |name: String, unit: &str, scale: f64| Metric {
            name,
            unit: unit.to_string(),
            help: described.help.clone(),
            kind: match described.counter
                && !matches!(spec.filter, Filter::Avg | Filter::Histogram(_))
            {
                true => Kind::Counter,
                false => Kind::Gauge,
            },
            scale,
        };
        match &spec.filter {
            Filter::Concat | Filter::Classes => return None,
            Filter::Sum | Filter::Min | Filter::Max => columns.push(column(name, unit, worth)),
            Filter::Avg => columns.push(column(name, unit, worth / 1e6)),
            Filter::Histogram(bounds) => {
                let shown = |bound: &i64| described.in_base_units(*bound as f64);
                let up_to = |bound| format!("{name}_up_to_{}", shown(bound));
                let below = bounds.iter().map(up_to);
                let above = bounds.last();
                let above = above.map(|bound| format!("{name}_above_{}", shown(bound)));
                columns.extend(below.chain(above).map(|name| column(name, "", 1.0)));
            }
        }
    }
    Some(columns.into())
}

/// The values of a tick, in the order of [`columns`]. What a number of 64 bits does not hold is
/// stored as the nearest that it does.
pub fn values(spec: &StreamSpec, accs: &[Acc]) -> Vec<Option<i64>> {
    let whole = |sum: i128| sum.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
    let mut values = Vec::new();
    for acc in accs {
        match (&spec.filter, &acc.reduced) {
            (Filter::Histogram(bounds), Some(Reduced::Buckets(buckets))) => {
                let counts = (0..=bounds.len()).map(|place| buckets.get(place).copied());
                values.extend(counts.map(|count| count.map(i64::from)));
            }
            (Filter::Histogram(bounds), _) => {
                values.extend(bounds.iter().map(|_| None).chain([None]))
            }
            (Filter::Avg, _) => values.push(acc.mean_millionths().map(whole)),
            (_, Some(Reduced::Total(sum))) => values.push(Some(whole(*sum))),
            (_, Some(Reduced::Least(value) | Reduced::Most(value))) => values.push(Some(*value)),
            _ => values.push(None),
        }
    }
    values
}

/// What is known of a tick of a stream, whose name and columns are `kept`.
pub(super) fn tick_of(
    kept: &(Arc<str>, Arc<[Metric]>),
    spec: &StreamSpec,
    tick: &TickSoFar,
) -> StreamTick {
    StreamTick {
        stream: kept.0.clone(),
        columns: kept.1.clone(),
        begin_us: tick.tick.saturating_mul(spec.period.0),
        covers: tick.covers,
        nodes: tick.attached.max(tick.covers),
        values: values(spec, &tick.values),
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    ticks: VecDeque<StreamTick>,
    lost: u64,
}

impl Waiting {
    /// Puts a tick here, in place of what was known of it.
    pub fn put(&mut self, tick: StreamTick) {
        let same = |known: &&mut StreamTick| {
            known.begin_us == tick.begin_us && known.stream == tick.stream
        };
        if let Some(known) = self.ticks.iter_mut().rev().find(same) {
            *known = tick;
        } else if self.ticks.len() < WAITING_MAX {
            self.ticks.push_back(tick);
        } else {
            self.lost += 1;
        }
    }

    /// Counts a part of a tick that came too late for it.
    pub fn lose(&mut self) {
        self.lost += 1;
    }

    /// All, and how many found no room since the last call.
    pub fn take(&mut self) -> (Vec<StreamTick>, u64) {
        let ticks = std::mem::take(&mut self.ticks);
        (ticks.into(), std::mem::take(&mut self.lost))
    }
}

#[cfg(test)]
mod tests {
    use netstack::ids::NodeId;
    use netstack::overlay::{MetricId, NodeMetric};
    use netstack::time::Micros;

    use super::*;

    fn reduced(filter: Filter, given: &[i64]) -> (Vec<String>, Vec<Option<i64>>) {
        let metrics = vec![
            NodeMetric::MemoryUsed.id(),
            MetricId(MetricId::FIRST_PROGRAM),
        ];
        let spec = StreamSpec::new(metrics, filter, Micros::from_secs(1));
        let mut acc = Acc::default();
        for (node, value) in (0..).zip(given) {
            assert!(acc.merge(Acc::of(&spec.filter, NodeId(node), *value)));
        }
        let columns = columns(&spec).expect("it is stored");
        let values = values(&spec, &[acc, Acc::default()]);
        assert_eq!(columns.len(), values.len());
        (
            columns.iter().map(|column| column.name.clone()).collect(),
            values,
        )
    }

    #[test]
    fn each_filter_has_its_columns() {
        let names = ["hearth_node_memory_used_bytes", "hearth_program_counter_0"];
        for (filter, value) in [
            (Filter::Sum, 9),
            (Filter::Min, 1),
            (Filter::Max, 5),
            (Filter::Avg, 3_000_000),
        ] {
            let (columns, values) = reduced(filter, &[3, 1, 5]);
            assert_eq!(columns, names);
            assert_eq!(values, [Some(value), None]);
        }
        // Bounds are in the unit of the name, as they were given: of time in seconds.
        let of_time = Filter::Histogram(vec![500_000, 100_000_000]);
        let uptime = vec![NodeMetric::Uptime.id()];
        let spec = StreamSpec::new(uptime, of_time, Micros::from_secs(1));
        let names: Vec<String> = columns(&spec)
            .unwrap()
            .iter()
            .map(|it| it.name.clone())
            .collect();
        assert_eq!(
            names,
            [
                "hearth_node_uptime_seconds_up_to_0.5",
                "hearth_node_uptime_seconds_up_to_100",
                "hearth_node_uptime_seconds_above_100"
            ]
        );
        let (columns, values) = reduced(Filter::Histogram(vec![2, 4]), &[3, 1, 5, 4]);
        assert_eq!(values, [Some(1), Some(2), Some(1), None, None, None]);
        assert_eq!(columns[1], "hearth_node_memory_used_bytes_up_to_4");
        assert_eq!(columns[2], "hearth_node_memory_used_bytes_above_4");
        let (_, values) = reduced(Filter::Sum, &[i64::MAX, i64::MAX]);
        assert_eq!(values[0], Some(i64::MAX));
        let spec = |filter| StreamSpec::new(vec![MetricId(1)], filter, Micros::from_secs(1));
        assert!(columns_of(spec(Filter::Concat)) && columns_of(spec(Filter::Classes)));
    }

    fn columns_of(spec: StreamSpec) -> bool {
        columns(&spec).is_none()
    }

    #[test]
    fn what_waits_is_the_last_word_of_a_tick_and_bounded() {
        let mut waiting = Waiting::default();
        let tick = |begin_us: u64, covers| StreamTick {
            stream: "sums".into(),
            columns: Arc::new([]),
            begin_us,
            covers,
            nodes: 4,
            values: Vec::new(),
        };
        for begin_us in 0..5_000 {
            waiting.put(tick(begin_us, 3));
        }
        waiting.put(tick(7, 4));
        let (ticks, lost) = waiting.take();
        assert_eq!(
            (ticks.len(), lost),
            (WAITING_MAX, 5_000 - WAITING_MAX as u64)
        );
        assert_eq!(ticks[7].covers, 4);
        assert_eq!(waiting.take(), (Vec::new(), 0));
    }
}
