//! Room of nodes for casts: a node takes part in a bounded number at once.
//!
//! Neighbours: `netstack::broadcast` (the bound), `asking` and `coming` (nodes join).
//!
//! Invariants: a file's cast goes to a node only where that node has room, and some room stays for the programs and tables of
//! jobs, which do not wait, since they do; a node without room holds up no other node; what waits for room is looked at
//! whenever some may have become free.

use std::collections::{BTreeMap, BTreeSet};

use netstack::broadcast::MEMBER_CASTS;
use netstack::ids::NodeId;
use netstack::time::Instant;

use super::Casts;
use super::cast::{Cast, Fate};

/// Casts that a node has a part in at once, as far as files are concerned: fewer than it takes.
const CASTS_ON_NODE_MAX: usize = MEMBER_CASTS - 4;

impl Casts {
    /// Nodes of a cast that have no room for it.
    pub(super) fn full(&self, cast: &Cast) -> BTreeSet<u32> {
        let others = || {
            let others = self.under_way.values();
            others.filter(|other| other.wire.is_some() && other.id != cast.id)
        };
        if !cast.what.is_file() || others().count() < CASTS_ON_NODE_MAX {
            return BTreeSet::new();
        }
        let mut parts: BTreeMap<u32, usize> = BTreeMap::new();
        for other in others() {
            let members = other.nodes.keys().chain(&other.helpers);
            for node in members.chain(&other.unwanted) {
                *parts.entry(*node).or_default() += 1;
            }
        }
        let full = parts
            .into_iter()
            .filter(|(_, parts)| *parts >= CASTS_ON_NODE_MAX);
        full.map(|(node, _)| node).collect()
    }

    /// A node gets a cast that is at the source, as soon as it has room.
    pub(super) fn join_source(&mut self, now: Instant, id: u64, node: u32) {
        let Some(cast) = self.under_way.get(&id) else {
            return;
        };
        let full = self.full(cast).contains(&node);
        let Some(cast) = self.under_way.get_mut(&id) else {
            return;
        };
        if full {
            cast.held_up.insert(node);
        } else if let (Some(wire), Some(up)) = (cast.wire, self.up.get(&node)) {
            cast.held_up.remove(&node);
            self.source.join(now, wire, NodeId(node), up.peer);
        }
    }

    /// Room may have become free: casts that waited for it are announced, nodes that waited join.
    pub(super) fn announce_next(&mut self, now: Instant) {
        let waits = |cast: &&Cast| {
            cast.wire.is_none() && cast.cancelled.is_none() && cast.holds_until_us.is_none()
        };
        let waiting = self.under_way.values().filter(waits);
        let waiting = waiting.filter(|cast| cast.nodes.values().any(|fate| *fate == Fate::Coming));
        let waiting: Vec<u64> = waiting.map(|cast| cast.id).collect();
        for id in waiting {
            self.announce_late(now, id);
            self.end_if_settled(now, id);
        }
        let held_up = self.under_way.values();
        let held_up = held_up.filter(|cast| cast.cancelled.is_none());
        let held_up = held_up.flat_map(|cast| cast.held_up.iter().map(|node| (cast.id, *node)));
        let held_up: Vec<(u64, u32)> = held_up.collect();
        for (id, node) in held_up {
            self.join_source(now, id, node);
        }
    }
}
