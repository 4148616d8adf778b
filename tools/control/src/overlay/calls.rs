//! System calls of all nodes together, by name: counters that do not go back.
//!
//! Key type: [`Calls`]. Neighbours: [`super::Overlay`] opens the stream of every node's counts and
//! gives it the rows, `monitor::sample` takes the sums for `/metrics`.
//!
//! A sum that the tree makes is of the nodes that have sent it: of fewer while a job is quiet or
//! after a loss, and of less after a node has booted again. So here every node's own counts are
//! kept, as it told them last, and what they grow by is added: what a silent node counts meanwhile
//! is added when it speaks again, and what one had counted that is gone or has booted again stays.
//!
//! Invariant: no sum goes back, and no count of a node that lives is left out or added twice.

use std::collections::BTreeMap;

use netstack::ids::{BootEpoch, NodeId};
use netstack::overlay::{MetricId, Row};

/// Nodes whose counts are kept: as many as a front end knows.
const NODES_MAX: usize = 1 << 17;
/// Ticks from the first row on after which sums are shown though not every node has told its
/// counts.
const PATIENCE_TICKS: u64 = 3;

/// What a node told last.
#[derive(Debug, Clone)]
struct Told {
    boot: BootEpoch,
    /// The boot before: a hello of it that comes late is not a third one.
    before: Option<BootEpoch>,
    /// The tick; rows of it and of earlier ones say nothing new.
    tick: u64,
    /// It has told anything in this boot.
    heard: bool,
    /// Sums were shown without it: its first word is what it counts on from, and no growth.
    is_late: bool,
    /// In the order of the metrics.
    counts: Vec<i64>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Calls {
    metrics: Vec<MetricId>,
    nodes: BTreeMap<NodeId, Told>,
    sums: Vec<i128>,
    /// Tick of the first row.
    first: Option<u64>,
    /// Every node has been heard, or was waited for long enough.
    shown: bool,
}

impl Calls {
    /// Of these metrics.
    pub fn new(metrics: Vec<MetricId>) -> Self {
        Calls {
            sums: vec![0; metrics.len()],
            metrics,
            ..Calls::default()
        }
    }

    /// A node has said hello in a tick of the stream. What is still on its way of an earlier boot
    /// counts no more.
    pub fn hello(&mut self, node: NodeId, boot: BootEpoch, tick: u64) {
        let known = self.nodes.get(&node);
        let room = known.is_some() || self.nodes.len() < NODES_MAX;
        let is_new = known.is_none_or(|known| known.boot != boot && known.before != Some(boot));
        if room && is_new {
            let told = Told {
                boot,
                before: known.map(|known| known.boot),
                tick,
                heard: false,
                // After a restart of control a node that was cut off comes with all that it counted
                // before.
                is_late: self.shown && known.is_none(),
                counts: vec![0; self.metrics.len()],
            };
            self.nodes.insert(node, told);
        }
    }

    /// Takes rows of a tick.
    pub fn take(&mut self, tick: u64, rows: &[Row]) {
        for row in rows {
            self.take_row(tick, row);
        }
        let first = *self.first.get_or_insert(tick);
        if self.shown {
            return;
        }
        self.shown = tick >= first + PATIENCE_TICKS || self.nodes.values().all(|told| told.heard);
        if self.shown {
            self.nodes
                .values_mut()
                .for_each(|told| told.is_late = !told.heard);
        }
    }

    fn take_row(&mut self, tick: u64, row: &Row) {
        let Some(told) = self
            .nodes
            .get_mut(&row.node)
            .filter(|told| tick > told.tick)
        else {
            return;
        };
        if row.values.len() != told.counts.len() {
            return;
        }
        told.tick = tick;
        let is_base = told.is_late && !told.heard;
        told.heard = true;
        let counts = told.counts.iter_mut().zip(&mut self.sums);
        for ((count, sum), now) in counts.zip(&row.values) {
            // Within a boot none goes back; one that says so is not believed.
            if let Some(now) = now.filter(|now| now > count) {
                if !is_base {
                    *sum += i128::from(now) - i128::from(*count);
                }
                *count = now;
            }
        }
    }

    /// The sums, once all nodes are in them: a counter that began with a part of them would look as
    /// if it had been reset.
    pub fn sums(&self) -> impl Iterator<Item = (MetricId, i128)> + '_ {
        let sums = self.metrics.iter().copied().zip(self.sums.iter().copied());
        sums.filter(|_| self.shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(node: u32, count: i64) -> Row {
        Row {
            node: NodeId(node),
            node_time_us: 1,
            values: vec![Some(count), None],
        }
    }

    fn sum(calls: &Calls) -> Option<i128> {
        calls.sums().next().map(|(_, sum)| sum)
    }

    /// Six nodes that have counted a hundred each.
    fn six() -> Calls {
        let mut calls = Calls::new(vec![MetricId(0x2000), MetricId(0x2001)]);
        for node in 0..6 {
            calls.hello(NodeId(node), BootEpoch(1), 9);
        }
        let rows: Vec<Row> = (0..6).map(|node| row(node, 100)).collect();
        calls.take(10, &rows[..4]);
        assert_eq!(sum(&calls), None, "a part of the nodes");
        calls.take(10, &rows[4..]);
        assert_eq!(sum(&calls), Some(600));
        calls
    }

    #[test]
    fn silence_delays_counts_and_a_loss_takes_none_away() {
        let mut calls = six();
        // Three are quiet; then one of these and another one are gone for good.
        let some: Vec<Row> = (0..3).map(|node| row(node, 110)).collect();
        calls.take(11, &some);
        assert_eq!(sum(&calls), Some(630));
        let most: Vec<Row> = (1..5).map(|node| row(node, 150)).collect();
        calls.take(12, &most);
        // n0 had 110 when it was heard last, n5 100.
        assert_eq!(sum(&calls), Some(4 * 150 + 110 + 100));
    }

    #[test]
    fn a_node_that_boots_again_counts_on() {
        let mut calls = six();
        calls.hello(NodeId(2), BootEpoch(1), 11);
        assert_eq!(sum(&calls), Some(600), "the same boot");
        calls.hello(NodeId(2), BootEpoch(2), 14);
        // A process that stood still passes on what it had of the boot before.
        calls.take(12, &[row(2, 130)]);
        assert_eq!(sum(&calls), Some(600));
        calls.take(15, &[row(2, 7)]);
        assert_eq!(sum(&calls), Some(607));
        // It has passed what it had counted before, too.
        calls.take(16, &[row(2, 170)]);
        assert_eq!(sum(&calls), Some(770));
    }

    #[test]
    fn a_late_hello_of_the_boot_before_changes_nothing() {
        let mut calls = six();
        calls.hello(NodeId(2), BootEpoch(2), 14);
        calls.take(15, &[row(2, 40)]);
        assert_eq!(sum(&calls), Some(640));
        // Boots have random numbers; the datagram of the first one was held on its way.
        calls.hello(NodeId(2), BootEpoch(1), 15);
        calls.hello(NodeId(2), BootEpoch(2), 16);
        calls.take(17, &[row(2, 50)]);
        assert_eq!(sum(&calls), Some(650));
    }

    #[test]
    fn rows_that_come_late_or_twice_change_nothing() {
        let mut calls = six();
        calls.take(12, &[row(1, 140)]);
        for (tick, count) in [(11, 120), (12, 140), (12, 150), (13, 90)] {
            calls.take(tick, &[row(1, count)]);
            assert_eq!(sum(&calls), Some(640));
        }
        calls.take(14, &[row(77, 1_000)]);
        assert_eq!(sum(&calls), Some(640), "nobody has said hello as that");
        let short = Row {
            values: vec![Some(1 << 40)],
            ..row(1, 0)
        };
        calls.take(15, &[short]);
        assert_eq!(sum(&calls), Some(640));
    }

    /// Its job is quiet when control is started.
    #[test]
    fn one_that_stays_silent_is_not_waited_for_for_ever_and_then_counts_on() {
        let mut calls = Calls::new(vec![MetricId(0x2000), MetricId(0x2001)]);
        (0..2).for_each(|node| calls.hello(NodeId(node), BootEpoch(1), 9));
        for tick in 10..13 {
            calls.take(tick, &[row(0, 5)]);
            assert_eq!(sum(&calls), None);
        }
        // One that said hello in the tick of the first row has told nothing by that.
        calls.hello(NodeId(2), BootEpoch(1), 12);
        calls.take(13, &[row(0, 5)]);
        assert_eq!(sum(&calls), Some(5));
        // What it had counted before it was heard would look as if it had been counted at once.
        calls.take(14, &[row(1, 1_000)]);
        assert_eq!(sum(&calls), Some(5));
        calls.take(15, &[row(1, 1_003)]);
        assert_eq!(sum(&calls), Some(8));
        // Its next boot begins with nothing.
        calls.hello(NodeId(1), BootEpoch(2), 16);
        calls.take(17, &[row(1, 2)]);
        assert_eq!(sum(&calls), Some(10));
    }
}
