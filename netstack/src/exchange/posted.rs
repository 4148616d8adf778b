//! Receives and probes that wait for a message, found by what they take.
//!
//! A message is looked for by its context, sender and tag, once for each of "this" and "any": four
//! look-ups, however many wait.
//!
//! Neighbour: [`super::incoming`] has one for receives and one for probes.
//!
//! Invariant: of those that take a message the one that was posted first is found.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::message::Offer;
use super::{BufferId, OpId};
use crate::ids::Rank;

/// A posted receive, or a probe.
#[derive(Clone, Copy, Debug)]
pub(super) struct Receiving {
    pub op: OpId,
    /// None: from any rank.
    pub from: Option<Rank>,
    pub context: u16,
    /// None: with any tag.
    pub tag: Option<u32>,
    pub buffer: BufferId,
    pub capacity: u64,
    /// Of a probe: it keeps the message for a receive of its own.
    pub claims: bool,
}

impl Receiving {
    pub(super) fn takes(&self, sender: Rank, offer: &Offer) -> bool {
        self.from.is_none_or(|from| from == sender)
            && self.context == offer.context
            && self.tag.is_none_or(|tag| tag == offer.tag)
    }

    fn key(&self) -> Key {
        (self.from, self.context, self.tag)
    }
}

/// What one takes: sender, context, tag.
type Key = (Option<Rank>, u16, Option<u32>);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Posted {
    /// Each with its place in the order of all.
    queues: BTreeMap<Key, VecDeque<(u64, Receiving)>>,
    places: BTreeMap<OpId, (Key, u64)>,
    next: u64,
}

impl Posted {
    /// Adds one, as the last.
    pub(super) fn push(&mut self, receiving: Receiving) {
        let key = receiving.key();
        let place = self.next;
        self.next += 1;
        let queue = self.queues.entry(key).or_default();
        queue.push_back((place, receiving));
        self.places.insert(receiving.op, (key, place));
    }

    /// What the first takes that a message is for.
    fn first(&self, sender: Rank, offer: &Offer) -> Option<Key> {
        let keys = [Some(sender), None]
            .into_iter()
            .flat_map(|from| [Some(offer.tag), None].map(|tag| (from, offer.context, tag)));
        let firsts = keys.filter_map(|key| Some((self.queues.get(&key)?.front()?.0, key)));
        firsts.min().map(|(_, key)| key)
    }

    /// One of them takes a message.
    pub(super) fn takes(&self, sender: Rank, offer: &Offer) -> bool {
        self.first(sender, offer).is_some()
    }

    /// Takes the first that a message is for.
    pub(super) fn take(&mut self, sender: Rank, offer: &Offer) -> Option<Receiving> {
        let key = self.first(sender, offer)?;
        let (_, receiving) = self.queues.get_mut(&key)?.pop_front()?;
        self.forget(receiving.op, key);
        Some(receiving)
    }

    /// One of them.
    pub(super) fn get(&self, op: OpId) -> Option<&Receiving> {
        let (key, place) = self.places.get(&op)?;
        let queue = self.queues.get(key)?;
        let at = queue
            .binary_search_by_key(place, |(place, _)| *place)
            .ok()?;
        Some(&queue[at].1)
    }

    /// Takes one away; whether it was there.
    pub(super) fn remove(&mut self, op: OpId) -> bool {
        let Some(&(key, place)) = self.places.get(&op) else {
            return false;
        };
        if let Some(queue) = self.queues.get_mut(&key)
            && let Ok(at) = queue.binary_search_by_key(&place, |(place, _)| *place)
        {
            queue.remove(at);
        }
        self.forget(op, key);
        true
    }

    fn forget(&mut self, op: OpId, key: Key) {
        self.places.remove(&op);
        if self.queues.get(&key).is_some_and(VecDeque::is_empty) {
            self.queues.remove(&key);
        }
    }

    /// Takes away those that take messages of this rank alone, and where `any` those that take any
    /// rank's, in the order in which they were posted.
    pub(super) fn take_of(&mut self, rank: Rank, any: bool) -> Vec<OpId> {
        let of = |from: &Option<Rank>| from.map_or(any, |from| from == rank);
        let taken = self.queues.extract_if(.., |(from, ..), _| of(from));
        let mut taken: Vec<(u64, Receiving)> = taken.flat_map(|(_, queue)| queue).collect();
        taken.sort_unstable_by_key(|(place, _)| *place);
        for (_, receiving) in &taken {
            self.places.remove(&receiving.op);
        }
        taken.into_iter().map(|(_, of)| of.op).collect()
    }

    /// Whose messages they take, in the order of ranks; None: any rank's. Some stand there often.
    pub(super) fn senders(&self) -> impl Iterator<Item = Option<Rank>> {
        self.queues.keys().map(|(from, ..)| *from)
    }

    /// One of them takes any rank's.
    pub(super) fn has_any(&self) -> bool {
        self.queues
            .keys()
            .next()
            .is_some_and(|(from, ..)| from.is_none())
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_first_that_takes_a_message_is_found(
            posted in prop::collection::vec((0u32..4, 0u16..2, 0u32..4), 0..40),
            steps in prop::collection::vec((0u32..3, 0u16..2, 0u32..3, 0u32..50, 0u8..8), 0..60),
        ) {
            let some = |number: u32| Some(number).filter(|number| *number < 3);
            let mut all = Posted::default();
            let mut list: Vec<Receiving> = Vec::new();
            for (op, (from, context, tag)) in (0..).zip(posted) {
                let receiving = Receiving {
                    op: OpId(op),
                    from: some(from).map(Rank),
                    context,
                    tag: some(tag),
                    buffer: BufferId(0),
                    capacity: 0,
                    claims: false,
                };
                all.push(receiving);
                list.push(receiving);
            }
            for (sender, context, tag, op, what) in steps {
                let (sender, op) = (Rank(sender), OpId(op));
                let offer = Offer { number: 0, context, tag, bytes: 0 };
                match what {
                    0 => {
                        let at = list.iter().position(|of| of.op == op);
                        prop_assert_eq!(all.get(op).is_some(), at.is_some());
                        prop_assert_eq!(all.remove(op), at.is_some());
                        at.map(|at| list.remove(at));
                    }
                    1 => {
                        let any = tag == 0;
                        let of = |of: &Receiving| of.from.map_or(any, |from| from == sender);
                        let gone: Vec<OpId> = list.iter().filter(|r| of(r)).map(|r| r.op).collect();
                        list.retain(|receiving| !of(receiving));
                        prop_assert_eq!(all.take_of(sender, any), gone);
                    }
                    _ => {
                        let at = list.iter().position(|of| of.takes(sender, &offer));
                        let found = at.map(|at| list.remove(at).op);
                        prop_assert_eq!(all.take(sender, &offer).map(|of| of.op), found);
                    }
                }
                prop_assert_eq!(all.len(), list.len());
                prop_assert_eq!(all.has_any(), list.iter().any(|of| of.from.is_none()));
            }
        }
    }
}
