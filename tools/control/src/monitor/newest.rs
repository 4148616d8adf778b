//! Which of a node's values are shown: those that came through the overlay, or those of its
//! heartbeat.
//!
//! Key type: [`Newest`]. Neighbours: [`super::metrics`] makes both, [`super::sample`] asks. A row
//! has more values than a heartbeat; a heartbeat comes when no row does. Either may be older than
//! what was shown already: a row that was held on its way, the last heartbeat of a node that is
//! silent for seconds.
//!
//! Invariant: in one boot of a node its clock does not go back, so no count does: a monitoring
//! system would take that for a restart, and add the whole count once more.

use std::collections::{BTreeMap, BTreeSet};

use netstack::overlay::NodeMetric;

/// Values of [`NodeMetric`], in its order.
type Values = Vec<Option<i64>>;

/// What was shown of each node last.
#[derive(Debug, Default)]
pub struct Newest {
    /// By node: its boot, and the values.
    shown: BTreeMap<u32, (u64, Values)>,
    /// Nodes of which the values that were asked for last are those that had been shown before.
    old: BTreeSet<u32>,
}

impl Newest {
    /// The values to be shown of `node`, whose boot is `boot`. `row`: what came through the overlay
    /// in this boot, while that is fresh.
    pub fn of(&mut self, node: u32, boot: u64, row: Option<Values>, heartbeat: Values) -> Values {
        let uptime = |values: &Values| values.get(NodeMetric::Uptime as usize).copied().flatten();
        let shown = self.shown.remove(&node).filter(|(of, _)| *of == boot);
        self.old.remove(&node);
        let values = match shown {
            None => row.unwrap_or(heartbeat),
            Some((_, shown)) => {
                let floor = uptime(&shown);
                let row = row.filter(|row| uptime(row) >= floor);
                // The same instant: what was shown has at least as much.
                let heartbeat = Some(heartbeat).filter(|values| uptime(values) > floor);
                let newest = row.or(heartbeat).unwrap_or(shown);
                if uptime(&newest) == floor {
                    self.old.insert(node);
                }
                newest
            }
        };
        self.shown.insert(node, (boot, values.clone()));
        values
    }

    /// Values of `node` that came after the picture they belong to; whether no picture has them.
    /// What is shown next is not older.
    pub fn late(&mut self, node: u32, boot: u64, values: &Values) -> bool {
        let uptime = |values: &Values| values.get(NodeMetric::Uptime as usize).copied().flatten();
        let Some((_, shown)) = self.shown.get_mut(&node).filter(|(of, _)| *of == boot) else {
            return false;
        };
        let (came, floor) = (uptime(values), uptime(shown));
        if came > floor {
            shown.clone_from(values);
        }
        came != floor
    }

    /// The values that were given of a node last were read after those before.
    pub fn is_new(&self, node: u32) -> bool {
        !self.old.contains(&node)
    }

    /// Forgets all nodes that are not `known`.
    pub fn retain(&mut self, known: impl Fn(u32) -> bool) {
        self.old.retain(|node| known(*node));
        self.shown.retain(|node, _| known(*node));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row has system calls, a heartbeat has none.
    fn values(uptime: i64, calls: Option<i64>) -> Values {
        let mut values = vec![None; NodeMetric::COUNT];
        values[NodeMetric::Uptime as usize] = Some(uptime);
        values[NodeMetric::SystemCalls as usize] = calls;
        values
    }

    #[test]
    fn nothing_goes_back_within_a_boot() {
        let mut newest = Newest::default();
        let row = |uptime| Some(values(uptime, Some(uptime)));
        let beat = |uptime| values(uptime, None);
        assert_eq!(newest.of(3, 1, None, beat(5)), beat(5));
        assert_eq!(newest.of(3, 1, row(10), beat(96)), row(10).unwrap());
        assert!(newest.is_new(3));
        // No row any more, and the heartbeat is older.
        assert_eq!(newest.of(3, 1, None, beat(9)), row(10).unwrap());
        assert!(!newest.is_new(3));
        // The same row once more.
        assert_eq!(newest.of(3, 1, row(10), beat(9)), row(10).unwrap());
        assert!(!newest.is_new(3));
        assert_eq!(newest.of(3, 1, None, beat(12)), beat(12));
        assert!(newest.is_new(3));
        // A row that was held on its way.
        assert_eq!(newest.of(3, 1, row(11), beat(12)), beat(12));
        assert_eq!(newest.of(3, 1, row(13), beat(12)), row(13).unwrap());
        // Another boot begins anew; another node is another one.
        assert_eq!(newest.of(3, 2, None, beat(1)), beat(1));
        assert_eq!(newest.of(4, 1, row(2), beat(1)), row(2).unwrap());
        // What came late is not new in the picture after it; what was shown meanwhile stays.
        assert!(newest.late(4, 1, &row(3).unwrap()) && !newest.late(4, 1, &row(3).unwrap()));
        assert_eq!(newest.of(4, 1, row(3), beat(1)), row(3).unwrap());
        assert!(!newest.is_new(4));
        assert_eq!(newest.of(4, 1, row(5), beat(1)), row(5).unwrap());
        assert!(newest.late(4, 1, &row(4).unwrap()) && newest.is_new(4));
        assert_eq!(newest.of(4, 1, row(5), beat(1)), row(5).unwrap());
        assert!(!newest.late(4, 2, &row(9).unwrap()), "another boot");
        newest.retain(|node| node == 4);
        assert_eq!(newest.of(3, 2, None, beat(0)), beat(0));
    }
}
