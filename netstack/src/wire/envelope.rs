//! What several stations say to one another under a key that they share: each datagram has a number
//! that never comes again, and is opened once, by the one that it was sealed for.
//!
//! - [`Pair`]: the numbers of one station and one peer, both ways. Exchanges have theirs by rank
//!   ([`crate::exchange::envelope`]).
//! - [`Envelopes`]: of a station that knows its peers by their addresses, as those of casts and of
//!   the overlay do. The head is that of [`super::datagram`], the tag that of [`super::tag`]: it
//!   covers the number and both addresses.
//!
//! A number is the control node's time in microseconds where it begins, and then one more for each
//! datagram. It catches up with the time once in [`STEP`]. So a station that was started again goes
//! on above all numbers that it has used, and takes nothing that was said before it was started:
//! nothing has to be kept over a restart. The decision:
//! `docs/adr/0047-peers-number-by-the-time.md`.
//!
//! Neighbours: [`super::window`] knows what was opened; `broadcast::station` and `overlay` seal and
//! open.
//!
//! Invariant: no number is used twice for a pair under a key; what opens was sealed for this
//! station and has not been opened before. Only what is authentic changes anything.

use alloc::collections::BTreeMap;
use core::net::SocketAddrV4;

use super::Error;
use super::datagram::{self, HEADER_LEN, Header};
use super::field::Writer;
use super::key::Key;
use super::tag::{self, TagKey};
use super::window::ReplayWindow;
use crate::MAX_DATAGRAM;
use crate::time::{Instant, Micros};

/// Bytes around the payload.
pub const OVERHEAD: usize = HEADER_LEN + tag::LEN;
/// Longest payload.
pub const MAX_PAYLOAD: usize = MAX_DATAGRAM - OVERHEAD;
/// How far numbers may stay behind the time, as a power of two of microseconds: about a second.
/// Between two steps numbers are dense, so a window sees reordering and not time.
const STEP_LOG2: u32 = 20;
/// See the module.
pub const STEP: Micros = Micros(1 << STEP_LOG2);
/// Peers whose numbers are kept: some 64 bytes each. A node of a cast of 16,512 speaks with a few
/// hundred.
const MOST_PEERS: usize = 4096;

/// The numbers of a station and one peer.
#[derive(Clone, Debug, Default)]
pub struct Pair {
    /// Of the last datagram that was sealed for the peer.
    sent: u64,
    /// Of those of the peer that were opened.
    taken: ReplayWindow,
}

impl Pair {
    /// Which has used no number above `sent`, and opens none up to `taken`.
    fn beyond(sent: u64, taken: u64) -> Self {
        Pair {
            sent,
            taken: ReplayWindow::beyond(taken),
        }
    }

    /// The number of the next datagram, at least this one.
    pub fn next(&mut self, least: u64) -> u64 {
        // 2^64 microseconds, or datagrams, take longer than any key lives.
        self.sent = (self.sent + 1).max(least);
        self.sent
    }

    /// The whole number of a datagram of the peer that has this low half.
    pub fn nearest(&self, low: u32) -> u64 {
        self.taken.nearest(low)
    }

    /// Takes note that an authentic datagram was opened; false when it was before.
    pub fn accept(&mut self, number: u64) -> bool {
        self.taken.accept(number)
    }

    #[cfg(test)]
    pub(crate) fn set_sent(&mut self, number: u64) {
        self.sent = number;
    }
}

/// A pair, and when it spoke last.
#[derive(Debug)]
struct Known {
    pair: Pair,
    used: Instant,
}

/// See the module.
#[derive(Debug)]
pub struct Envelopes {
    key: TagKey,
    me: SocketAddrV4,
    /// It was this time at the control node, at this time here.
    time: (u64, Instant),
    peers: BTreeMap<SocketAddrV4, Known>,
    most: usize,
    /// Pairs that are not known have used no number above this one.
    sent: u64,
    /// Nothing up to this one is opened of a peer that is not known.
    floor: u64,
}

impl Envelopes {
    /// Of a station at this address that has sealed and opened nothing under this key, which nobody
    /// uses for anything else. Its own clock is the control node's until [`Envelopes::set_time`].
    pub fn new(key: &Key, me: SocketAddrV4, now: Instant) -> Self {
        Envelopes {
            key: TagKey::new(key),
            me,
            time: (now.as_micros(), now),
            peers: BTreeMap::new(),
            most: MOST_PEERS,
            sent: 0,
            floor: 0,
        }
    }

    /// Begins at this time of the control node, which vouches for it: nothing is opened that is
    /// much older.
    pub fn begin_at(&mut self, now: Instant, time: u64) {
        self.set_time(now, time);
        self.floor = step(time).saturating_sub(1);
    }

    /// It is this time at the control node.
    pub fn set_time(&mut self, now: Instant, time: u64) {
        self.time = (time, now);
    }

    fn time(&self, now: Instant) -> u64 {
        let (time, at) = self.time;
        time.saturating_add(now.saturating_since(at).0)
    }

    /// Writes the next datagram for a peer to the front of `out`, which has [`MAX_DATAGRAM`] bytes;
    /// gives its length. `header` may leave its number out. The payload must fit [`MAX_PAYLOAD`].
    pub fn seal(
        &mut self,
        now: Instant,
        to: SocketAddrV4,
        header: Header,
        out: &mut [u8],
        payload: impl FnOnce(&mut Writer<'_>),
    ) -> usize {
        let time = self.time(now);
        let number = self.known(now, to).pair.next(step(time));
        let header = Header {
            seq: number,
            ..header
        };
        let nonce = [word(to), word(self.me)];
        datagram::emit_tagged(header, out, payload, |sealed| {
            self.key.tag(sealed, number, nonce)
        })
    }

    /// Header and payload of a datagram that a peer has sealed for this station, and that was not
    /// opened before.
    ///
    /// # Errors
    /// [`Error::Replayed`] where it was, or may have been; else it is none.
    pub fn open<'a>(
        &mut self,
        now: Instant,
        from: SocketAddrV4,
        bytes: &'a [u8],
    ) -> Result<(Header, &'a [u8]), Error> {
        let (header, sealed, tag) = datagram::split_tagged::<{ tag::LEN }>(bytes)?;
        let nonce = [word(self.me), word(from)];
        if !self.key.verify(sealed, header.seq, nonce, tag) {
            return Err(Error::BadTag);
        }
        match self.known(now, from).pair.accept(header.seq) {
            true => Ok((header, &sealed[HEADER_LEN..])),
            false => Err(Error::Replayed),
        }
    }

    /// Peers whose numbers are kept.
    pub fn peers(&self) -> usize {
        self.peers.len()
    }

    /// The pair with a peer, which speaks now. Where too many are known those that have been silent
    /// longest are forgotten, half of them at once. What is above their numbers is new of anybody.
    fn known(&mut self, now: Instant, peer: SocketAddrV4) -> &mut Known {
        if self.peers.len() >= self.most && !self.peers.contains_key(&peer) {
            self.forget(now);
        }
        let time = self.time(now);
        let (sent, floor) = (self.sent.max(time), self.floor);
        let known = self.peers.entry(peer).or_insert_with(|| Known {
            pair: Pair::beyond(sent, floor),
            used: now,
        });
        known.used = now;
        known
    }

    fn forget(&mut self, now: Instant) {
        let mut used: alloc::vec::Vec<Instant> =
            self.peers.values().map(|known| known.used).collect();
        let middle = used.len() / 2;
        let (_, &mut middle, _) = used.select_nth_unstable(middle);
        // A number of somebody else's time keeps nobody out.
        let most = self.time(now);
        let (mut sent, mut floor) = (self.sent, self.floor);
        self.peers.retain(|_, known| {
            let stays = known.used > middle;
            if !stays {
                sent = sent.max(known.pair.sent);
                floor = floor.max(known.pair.taken.newest().min(most));
            }
            stays
        });
        (self.sent, self.floor) = (sent, floor);
    }
}

/// The last step of the time.
fn step(time: u64) -> u64 {
    time >> STEP_LOG2 << STEP_LOG2
}

/// An address as a number.
fn word(addr: SocketAddrV4) -> u64 {
    u64::from(addr.ip().to_bits()) << 16 | u64::from(addr.port())
}

#[cfg(test)]
mod tests;
