//! What a station has to say and has not sent yet.
//!
//! What is repeated until it is answered is not queued twice: the queue says by an index whether
//! such a message waits in it, however many others do.
//!
//! Key types: [`Outbox`], [`Repeated`]. Neighbours: `cast` fills it, `station` empties it.
//!
//! Invariant: `waiting` counts the messages in `queue` that [`Repeated::of`] knows.

use alloc::collections::{BTreeMap, VecDeque};
use core::net::SocketAddrV4;

use super::Peer;
use super::message::{Message, Packet};
use crate::ids::CastId;

/// What is said again as long as it is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Repeated {
    /// A page of the roster.
    Page(u32),
    /// An announcement or a probe.
    Question,
    Report,
}

impl Repeated {
    fn of(message: &Message) -> Option<Self> {
        Some(match message {
            Message::RosterPage { page, .. } => Repeated::Page(*page),
            Message::Announce { .. } | Message::Probe { .. } => Repeated::Question,
            Message::Report(_) => Repeated::Report,
            _ => return None,
        })
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    queue: VecDeque<(Peer, Packet)>,
    waiting: BTreeMap<(CastId, SocketAddrV4, Repeated), u32>,
}

impl Outbox {
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Such a message of this cast waits for this address.
    pub(crate) fn holds(&self, cast: CastId, to: SocketAddrV4, such: Repeated) -> bool {
        self.waiting.contains_key(&(cast, to, such))
    }

    fn count(&mut self, peer: Peer, packet: &Packet) {
        if let Some(such) = Repeated::of(&packet.message) {
            *self
                .waiting
                .entry((packet.cast, peer.addr, such))
                .or_default() += 1;
        }
    }

    pub(crate) fn push_back(&mut self, (peer, packet): (Peer, Packet)) {
        self.count(peer, &packet);
        self.queue.push_back((peer, packet));
    }

    pub(crate) fn push_front(&mut self, (peer, packet): (Peer, Packet)) {
        self.count(peer, &packet);
        self.queue.push_front((peer, packet));
    }

    pub(crate) fn pop_front(&mut self) -> Option<(Peer, Packet)> {
        let (peer, packet) = self.queue.pop_front()?;
        if let Some(such) = Repeated::of(&packet.message) {
            let key = (packet.cast, peer.addr, such);
            let left = self.waiting.get_mut(&key).map_or(0, |count| {
                *count -= 1;
                *count
            });
            if left == 0 {
                self.waiting.remove(&key);
            }
        }
        Some((peer, packet))
    }

    /// Those stay for which this is true.
    pub(crate) fn retain(&mut self, stays: impl Fn(&Packet) -> bool) {
        let queue = core::mem::take(&mut self.queue);
        self.waiting.clear();
        for entry in queue.into_iter().filter(|(_, packet)| stays(packet)) {
            self.push_back(entry);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.queue.clear();
        self.waiting.clear();
    }

    /// All, in their order.
    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(Peer, Packet)> {
        self.queue.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broadcast::message::MemberIndex;
    use crate::broadcast::tests::peer;

    fn probe(cast: u64) -> Packet {
        Packet {
            cast: CastId(cast),
            from: MemberIndex(0),
            mac: [0; 6],
            message: Message::Probe { number: 1 },
        }
    }

    #[test]
    fn it_knows_what_waits_in_it() {
        let mut outbox = Outbox::default();
        let holds = |outbox: &Outbox, cast, to: u32| {
            outbox.holds(CastId(cast), peer(to).addr, Repeated::Question)
        };
        outbox.push_back((peer(1), probe(1)));
        outbox.push_front((peer(1), probe(1)));
        outbox.push_back((peer(2), probe(2)));
        assert!(holds(&outbox, 1, 1) && holds(&outbox, 2, 2));
        assert!(!holds(&outbox, 2, 1) && !holds(&outbox, 1, 2));
        assert!(!outbox.holds(CastId(1), peer(1).addr, Repeated::Page(0)));
        outbox.pop_front();
        assert!(holds(&outbox, 1, 1), "it was there twice");
        outbox.retain(|packet| packet.cast == CastId(2));
        assert!(!holds(&outbox, 1, 1) && holds(&outbox, 2, 2));
        assert!(outbox.pop_front().is_some() && outbox.is_empty());
        assert!(!holds(&outbox, 2, 2) && outbox.waiting.is_empty());
    }
}
