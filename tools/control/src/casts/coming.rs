//! Nodes that come and go while casts are under way.
//!
//! Neighbours: `control_events` (says who came and who went).
//!
//! Invariant: what a node forgot is not counted as held; a cast that waits for a node hears of it.

use std::collections::BTreeSet;

use netstack::broadcast::Peer;
use netstack::ids::{BootEpoch, NodeId};
use netstack::time::Instant;

use super::cast::Fate;
use super::order::Outcome;
use super::{Casts, Up};
use crate::events::{Event, Severity};
use crate::hostlist;
use crate::programs::Hash;

/// So long a cast of a file waits for a node whose new boot has been heard. It has its address by
/// then: what is left is the confirmation of its session, which takes a few milliseconds, and its
/// repetitions where datagrams are lost.
const RETURN_PATIENCE_US: u64 = 10_000_000;

/// How a node went out of service, as far as casts care.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Departure {
    /// What it held is gone.
    pub forgets: bool,
    /// A new boot of it is joining.
    pub returns: bool,
    /// It was asked to leave, and said that it does.
    pub in_order: bool,
}

impl Casts {
    /// A node is in service.
    pub fn node_joined(
        &mut self,
        now: Instant,
        node: u32,
        epoch: u64,
        peer: Peer,
        memory_bytes: u64,
    ) {
        let boot = BootEpoch(epoch);
        let up = Up {
            peer,
            boot,
            memory_bytes,
        };
        self.up.insert(node, up);
        self.left.remove(&node);
        self.files.joined(node, epoch);
        let ids: Vec<u64> = self.under_way.keys().copied().collect();
        for id in ids {
            let Some(cast) = self.under_way.get_mut(&id) else {
                continue;
            };
            let object = cast.described.object.id;
            let holds = cast.what.is_file() && self.files.holds(node, &object);
            let Some(fate) = cast.nodes.get_mut(&node) else {
                continue;
            };
            cast.returning.remove(&node);
            if holds {
                if matches!(fate, Fate::Absent | Fate::Failed(_)) {
                    *fate = Fate::Held;
                }
            } else {
                // Late, or booted in the middle: it gets the rest.
                *fate = Fate::Coming;
                if cast.wire.is_some() {
                    self.join_source(now, id, node);
                }
            }
            let Some(cast) = self.under_way.get_mut(&id) else {
                continue;
            };
            let waits = cast.holds_until_us.is_some();
            let complete = !cast.nodes.values().any(|fate| *fate == Fate::Absent);
            if complete || !waits {
                cast.holds_until_us = None;
                self.announce_late(now, id);
            }
            self.end_if_settled(now, id);
        }
        for object in self.files.nameless_on(node) {
            if !self.is_wanted(&object) {
                self.outcomes.push(Outcome::Drop(node, object));
            }
        }
        self.changed();
    }

    /// What casts under way give to this node, or found with it.
    pub fn wanted_on(&self, node: u32) -> BTreeSet<Hash> {
        let casts = self.under_way.values();
        let to_it = casts.filter(|cast| cast.cancelled.is_none() && cast.nodes.contains_key(&node));
        to_it.map(|cast| cast.described.object.id).collect()
    }

    /// All of these nodes were told to let go of a file, or will be when they are heard again. If
    /// nobody else has it, its names are free: an absent node keeps none taken.
    pub fn let_go_by(&mut self, object: &Hash, nodes: &[u32]) {
        let away = self.files.away(object);
        let others = !away.iter().all(|node| nodes.contains(node));
        if others || !self.files.holders(object).is_empty() || self.is_wanted(object) {
            return;
        }
        self.files.unname(object);
        self.changed();
    }

    /// A node is out of service. A cast of a file waits for one that booted again in the middle: it
    /// gets the rest, also when all others have theirs already.
    pub fn node_gone(&mut self, now: Instant, node: u32, departure: Departure) {
        self.up.remove(&node);
        match departure.in_order {
            true => self.left.insert(node),
            false => self.left.remove(&node),
        };
        let went = if departure.in_order {
            "left"
        } else {
            "was lost"
        };
        self.files.gone(node, departure.forgets);
        for cast in self.under_way.values_mut() {
            let is_file = cast.what.is_file();
            let Some(fate) = cast.nodes.get_mut(&node) else {
                continue;
            };
            let waits = departure.returns || cast.patient || cast.holds_until_us.is_some();
            match fate {
                Fate::Coming if cast.wire.is_none() || cast.held_up.remove(&node) => {
                    *fate = match waits {
                        true => Fate::Absent,
                        false => Fate::Failed(format!("{went} before it was sent")),
                    }
                }
                Fate::Coming => {}
                // It had the file, and has it no longer.
                Fate::Done | Fate::Held if is_file && departure.forgets => {
                    *fate = match waits {
                        true => Fate::Absent,
                        false => Fate::Failed(format!("{went}, and what it held is gone")),
                    }
                }
                _ => continue,
            }
            if is_file && departure.returns {
                let until = now.as_micros() + RETURN_PATIENCE_US;
                cast.returning.insert(node, until);
            }
        }
        self.source.lost(now, NodeId(node));
        let ids: Vec<u64> = self.under_way.keys().copied().collect();
        ids.into_iter().for_each(|id| self.end_if_settled(now, id));
        self.announce_next(now);
        self.changed();
    }

    /// Casts do not wait longer for nodes that were to come back.
    pub(super) fn give_up_returning(&mut self, now: Instant) {
        let now_us = now.as_micros();
        let casts = self.under_way.values();
        let due = casts.filter(|cast| cast.returning.values().any(|until| *until <= now_us));
        let due: Vec<u64> = due.map(|cast| cast.id).collect();
        for id in due {
            let Some(cast) = self.under_way.get_mut(&id) else {
                continue;
            };
            let (patient, nodes) = (cast.patient, &mut cast.nodes);
            let (name, events) = (cast.what.name(), &mut self.events);
            cast.returning.retain(|node, until| {
                let waits = *until > now_us;
                if let Some(fate @ Fate::Absent) = nodes.get_mut(node)
                    && !waits
                    && !patient
                {
                    let why = "booted again and did not come back";
                    *fate = Fate::Failed(why.to_string());
                    let text = format!("cast {id}: {} {why} ({name})", hostlist::name(*node));
                    let event = Event::new(Severity::Warning, "cast-node-failed", text);
                    events.push(event.node(*node));
                }
                waits
            });
            self.end_if_settled(now, id);
            self.changed();
        }
    }

    /// A node has let go of a file.
    pub fn dropped(&mut self, node: u32, object: Hash) {
        self.files.let_go(node, object);
        self.tidy();
        self.changed();
    }
}
