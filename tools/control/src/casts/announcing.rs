//! How casts are handed to the source, to those nodes that have room: a node takes part in a
//! bounded number at once.
//!
//! Neighbours: `netstack::broadcast` (the bound), `asking` and `coming` (nodes join).
//!
//! Invariants: a file's cast goes to a node only where that node has room, and some room stays for
//! the programs and tables of jobs, which do not wait, since they do; a node without room holds up
//! no other node; what waits for room is looked at whenever some may have become free.

use std::collections::BTreeSet;

use netstack::broadcast::{CastError, CastSpec, MEMBER_CASTS, Purpose};
use netstack::ids::{CastId, JobId, NodeId};
use netstack::time::Instant;

use super::Casts;
use super::cast::{Cast, Fate, What};

/// Casts that a node has a part in at once, as far as files are concerned: fewer than it takes.
const CASTS_ON_NODE_MAX: usize = MEMBER_CASTS - 4;

/// Nodes outside of a cast that hold the content and are asked to serve it: each takes work off the
/// control node, and a few are enough for that.
const HELPERS_MAX: usize = 32;

/// Of the holders outside a cast those that serve it: not always the same ones, each once.
pub(super) fn helpers(holders: &[u32], cast: u64) -> Vec<u32> {
    let first = (cast as usize * HELPERS_MAX) % holders.len().max(1);
    let in_turn = holders.iter().cycle().skip(first);
    let in_turn = in_turn.take(HELPERS_MAX.min(holders.len()));
    in_turn.copied().collect()
}

impl Casts {
    /// Nodes of a cast that have no room for it.
    pub(super) fn full(&self, cast: &Cast) -> BTreeSet<u32> {
        let members = cast.nodes.keys().chain(&cast.helpers).copied();
        members.filter(|node| !self.has_room(*node, cast)).collect()
    }

    /// Whether a node can take part in a cast beside the others at the source.
    fn has_room(&self, node: u32, cast: &Cast) -> bool {
        let others = self.under_way.values();
        let others = others.filter(|other| other.id != cast.id && other.takes_part(node));
        !cast.what.is_file() || others.count() < CASTS_ON_NODE_MAX
    }

    /// A node gets a cast that is at the source, as soon as it has room.
    pub(super) fn join_source(&mut self, now: Instant, id: u64, node: u32) {
        let Some(cast) = self.under_way.get(&id) else {
            return;
        };
        let has_room = self.has_room(node, cast);
        let Some(cast) = self.under_way.get_mut(&id) else {
            return;
        };
        if !has_room {
            cast.held_up.insert(node);
        } else if let (Some(wire), Some(up)) = (cast.wire, self.up.get(&node)) {
            cast.held_up.remove(&node);
            self.source
                .join(now, wire, NodeId(node), (up.peer, up.boot));
        }
    }

    /// Hands a cast to the source, if any node lacks it and is there.
    pub(super) fn announce(&mut self, now: Instant, id: u64) -> Result<(), CastError> {
        let Some(cast) = self.under_way.get(&id) else {
            return Ok(());
        };
        if cast.wire.is_some() || cast.unread {
            return Ok(());
        }
        let full = self.full(cast);
        let coming = cast.those(|fate| *fate == Fate::Coming);
        if coming.iter().all(|node| full.contains(node)) {
            return Ok(());
        }
        let Some(cast) = self.under_way.get_mut(&id) else {
            return Ok(());
        };
        cast.held_up = coming.into_iter().collect();
        cast.held_up.retain(|node| full.contains(node));
        let member = |node: &u32, holds| {
            let up = self.up.get(node).filter(|_| !full.contains(node))?;
            Some((NodeId(*node), up.peer, holds))
        };
        let mut members = Vec::with_capacity(cast.nodes.len() + cast.helpers.len());
        for (node, fate) in &cast.nodes {
            match fate {
                Fate::Coming => members.extend(member(node, false)),
                Fate::Held | Fate::Done => members.extend(member(node, true)),
                Fate::Absent | Fate::Failed(_) => {}
            }
        }
        members.extend(cast.helpers.iter().filter_map(|node| member(node, true)));
        let wire = CastId(self.next_wire);
        self.next_wire += 1;
        self.shelf
            .put(wire, cast.described.clone(), cast.content.clone());
        let spec = CastSpec {
            id: wire,
            object: cast.described.object.clone(),
            purpose: match &cast.what {
                What::File { name, .. } => Purpose::File { name: name.clone() },
                What::Program { .. } => Purpose::Program,
                What::Table { job } => Purpose::Table { job: JobId(*job) },
                What::Read { job } => Purpose::Read { job: JobId(*job) },
            },
            job: cast.what.job().map(JobId),
            members,
            scheme: cast.scheme.protocol(),
            rate: cast.rate,
        };
        let begun = self.source.cast(now, spec);
        match begun {
            Ok(()) => cast.wire = Some(wire),
            Err(_) => self.shelf.remove(wire),
        }
        begun
    }

    /// Hands a cast to the source that could not be before; what the source does not take is over.
    pub(super) fn announce_late(&mut self, now: Instant, id: u64) {
        if let Err(error) = self.announce(now, id)
            && let Some(cast) = self.under_way.get_mut(&id)
        {
            for fate in cast.nodes.values_mut() {
                if matches!(fate, Fate::Coming | Fate::Absent) {
                    *fate = Fate::Failed(error.to_string());
                }
            }
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

impl Cast {
    /// Whether a node has a part in it at the source.
    fn takes_part(&self, node: u32) -> bool {
        let member = match self.nodes.get(&node) {
            Some(Fate::Coming | Fate::Done | Fate::Held) => !self.held_up.contains(&node),
            Some(Fate::Absent | Fate::Failed(_)) | None => false,
        };
        let serves = || self.helpers.contains(&node) || self.unwanted.contains(&node);
        self.wire.is_some() && (member || serves())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn helpers_are_bounded_and_each_is_one_once() {
        for count in [0, 1, 2, 31, 32, 33, 100] {
            let holders: Vec<u32> = (10..10 + count).collect();
            for cast in 0..5 {
                let chosen = helpers(&holders, cast);
                let each: BTreeSet<u32> = chosen.iter().copied().collect();
                assert_eq!(each.len(), chosen.len(), "{count} holders, cast {cast}");
                assert_eq!(chosen.len(), HELPERS_MAX.min(holders.len()));
            }
        }
        let holders: Vec<u32> = (0..100).collect();
        assert_ne!(helpers(&holders, 1), helpers(&holders, 2));
    }
}
