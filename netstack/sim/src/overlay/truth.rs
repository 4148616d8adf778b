//! What really happened in a run, to hold the front end's books against.
//!
//! Invariant: nothing here is asked of the front end.

use std::collections::{BTreeMap, BTreeSet};

use netstack::ids::{BootEpoch, NodeId};
use netstack::overlay::{Filter, Reduced, StreamId, StreamSpec, TickBody, TickValue};

/// See the module.
#[derive(Default)]
pub struct Truth {
    /// Samples that nodes that are off submitted, by node and boot.
    pub dead: BTreeMap<(u32, BootEpoch), u64>,
    /// Rows that arrived, each of which may do so once.
    rows: BTreeSet<(StreamId, u64, NodeId)>,
    /// Back ends covered by each tick.
    pub covered: BTreeMap<(StreamId, u64), u64>,
    /// Restarts: a node may submit a tick once in each boot.
    pub restarts: u64,
}

impl Truth {
    /// Values arrive.
    ///
    /// # Errors
    /// They cannot be right.
    pub fn take(
        &mut self,
        value: &TickValue,
        spec: Option<&StreamSpec>,
        back_ends: core::ops::Range<u32>,
    ) -> Result<(), String> {
        let nodes = back_ends.len() as u32;
        let at = format!("stream {} tick {}", value.stream.0, value.tick);
        let covered = self.covered.entry((value.stream, value.tick)).or_default();
        *covered += u64::from(value.covers);
        if *covered > u64::from(nodes) + self.restarts {
            return Err(format!("{at} covers {covered} back ends of {nodes}"));
        }
        match &value.values {
            TickBody::Rows(rows) => {
                if rows.len() as u32 != value.covers {
                    return Err(format!(
                        "{at} has {} rows and covers {}",
                        rows.len(),
                        value.covers
                    ));
                }
                for row in rows {
                    if !back_ends.contains(&row.node.0) {
                        return Err(format!(
                            "{at} has a row of {}, which is not there",
                            row.node
                        ));
                    }
                    let fresh = self.rows.insert((value.stream, value.tick, row.node));
                    if !fresh && self.restarts == 0 {
                        return Err(format!("{at} has the row of {} twice", row.node));
                    }
                    if row
                        .values
                        .get(1)
                        .is_some_and(|number| *number != Some(i64::from(row.node.0)))
                    {
                        return Err(format!("{at} has other values for {}", row.node));
                    }
                }
            }
            TickBody::Reduced(accs) => {
                if accs.first().is_some_and(|acc| acc.count != value.covers) && accs.len() < 30 {
                    return Err(format!(
                        "{at} covers {} and has {}",
                        value.covers, accs[0].count
                    ));
                }
                let ones = match spec.map(|spec| &spec.filter) {
                    Some(Filter::Sum | Filter::Avg) => i128::from(value.covers),
                    _ => return Ok(()),
                };
                if accs.first().and_then(|acc| acc.reduced.clone()) != Some(Reduced::Total(ones))
                    && accs.len() < 30
                {
                    return Err(format!("{at} sums {} ones to {:?}", value.covers, accs[0]));
                }
                // Each node once: the sum of their numbers is known.
                let all: i128 = back_ends.map(i128::from).sum();
                let numbers = accs.get(1).and_then(|acc| acc.reduced.clone());
                if value.covers == nodes
                    && numbers.is_some_and(|numbers| numbers != Reduced::Total(all))
                {
                    return Err(format!("{at} covers all nodes, but not each once"));
                }
            }
        }
        Ok(())
    }
}
