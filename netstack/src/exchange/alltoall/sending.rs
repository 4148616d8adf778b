//! The sending side of an exchange: who is told that this rank is ready, what goes unasked, and who
//! is told again.
//!
//! Neighbour: [`super`] has what both sides share, `receiving` the other side.
//!
//! Invariant: a block is told of, or sent unasked, as long as its receiver has not said that it has
//! it.

use alloc::vec::Vec;

use super::super::io::Io;
use super::super::message::{Item, Pull, packets};
use super::super::{Error, Gone, Memory, PACKET, Scheme};
use super::{AHEAD, Exchange, REMINDED, SMALL_PACKETS, TELL_AGAIN, TELL_AGAIN_SENT, TOLD_AHEAD};
use crate::ids::Rank;
use crate::time::Instant;
use crate::transport::retry::Backoff;

/// A receiver that was told, or whose block is on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// When it is told again.
    due: Instant,
    /// How often it was told again since it last pulled.
    reminded: u8,
    /// How often its receiver was busy.
    conflicts: u32,
    /// Packets of its block.
    packets: u32,
    /// Bytes that go unasked.
    pushed: u64,
    /// All that its receiver asked for was sent, the end of the block with it.
    sent: bool,
    /// When that was.
    sent_at: Instant,
    /// Number of the last pull.
    serial: u16,
}

impl Exchange {
    /// Tells further receivers that this rank is ready, as far as that may be.
    pub(super) fn advance(&mut self, io: &mut Io<'_>) {
        if self.steps.is_some() {
            return self.advance_steps(io);
        }
        while self.next < self.numbering.rounds() {
            let round = match &self.sequence {
                Some(sequence) => sequence[self.next as usize],
                None => self.next,
            };
            let bytes = self.sends(round);
            if !self.sent.contains(round)
                && !self.parked.contains(&round)
                && !self.slots.contains_key(&round)
            {
                let unasked = self.is_unasked(bytes);
                let is_room = match self.scheme {
                    scheme if scheme.is_exclusive() => self.slots.is_empty(),
                    _ if !unasked => {
                        let told = self.told_packets + packets(bytes);
                        self.slots.len() < AHEAD || told <= 2 * io.credit.each()
                    }
                    Scheme::Default => {
                        self.pushed_bytes + bytes <= io.credit.blind_bytes()
                            || self.pushed_bytes == 0
                    }
                    _ => true,
                };
                if !is_room {
                    return;
                }
                self.begin(round, bytes, unasked, io);
            }
            self.next += 1;
        }
    }

    /// Sends to the next target that the master has named.
    pub(super) fn advance_steps(&mut self, io: &mut Io<'_>) {
        while let Some(steps) = &mut self.steps {
            if self.sent.is_full() {
                return steps.all_served(io);
            }
            let Some(to) = steps.target() else {
                return;
            };
            let round = self.numbering.number(self.members.me(), to.0);
            if self.sent.contains(round) {
                steps.target_served(io);
                continue;
            }
            if !self.slots.contains_key(&round) && !self.parked.contains(&round) {
                self.begin(round, self.sends(round), true, io);
            }
            return;
        }
    }

    /// The master hears of a rank that takes part.
    pub(in crate::exchange) fn hear_as_master(&mut self, from: Rank, step: u32, io: &mut Io<'_>) {
        let place = self.place(from);
        if let Some(steps) = &mut self.steps {
            steps.master_hears(place, step, io);
            self.advance_steps(io);
        }
    }

    /// The master names a target (step, place in the step, targets in all, place of the rank).
    pub(in crate::exchange) fn told_by_master(
        &mut self,
        told: (u32, u16, u16, Rank),
        io: &mut Io<'_>,
    ) {
        let (rounds, (.., count, to)) = (self.numbering.rounds(), told);
        let me = self.members.me();
        let is_possible = to.0 < rounds && to.0 != me && u32::from(count) <= rounds;
        if let Some(steps) = self.steps.as_mut().filter(|_| is_possible) {
            steps.told(told, io);
            self.advance_steps(io);
        }
    }

    /// The receiver serves somebody else: this rank asks again after a random time, which grows.
    pub(in crate::exchange) fn busy(&mut self, from: Rank, io: &mut Io<'_>) {
        let round = self.round_to(from);
        if let Some(slot) = self.slots.get_mut(&round) {
            let block = io.credit.takes(slot.packets.into());
            slot.conflicts = slot.conflicts.saturating_add(1);
            let backoff = Backoff::new(block, io.credit.waits().longest.max(block));
            slot.due = io.now + backoff.wait(slot.conflicts, io.rng);
            self.slots_due = self.slots_due.min(slot.due);
        }
    }

    /// The receiver knows that this rank is ready, and has not begun or has others before it; it
    /// asks. Its place is for others until then.
    pub(in crate::exchange) fn noted(&mut self, from: Rank, io: &mut Io<'_>) {
        let round = self.round_to(from);
        if self.scheme == Scheme::Default && self.parked.contains(&round) {
            self.noted.insert(round);
            return;
        }
        let is_asked = |slot: &Slot| slot.serial != 0;
        if self.scheme != Scheme::Default || self.slots.get(&round).is_none_or(is_asked) {
            return;
        }
        io.grants.remove(self.key(round));
        self.park(round, true, io);
        self.advance(io);
    }

    /// A receiver gives up its place, and is told again later; much later if it asks by itself
    /// (`noted`).
    fn park(&mut self, round: u32, noted: bool, io: &mut Io<'_>) {
        self.drop_slot(round);
        if self.parked.is_empty() || (!noted && self.parked.len() == self.noted.len()) {
            self.remind_at = io.now
                + match noted {
                    true => io.credit.waits().longest,
                    false => io.credit.wait(),
                };
        }
        self.parked.insert(round);
        if noted {
            self.noted.insert(round);
        }
    }

    /// A receiver has its place again, or needs none any more.
    fn unpark(&mut self, round: u32) {
        self.parked.remove(&round);
        self.noted.remove(&round);
    }

    /// A short block that goes, or has gone, unasked, and is asked for only where it was lost.
    pub(super) fn is_short(&self, bytes: u64) -> bool {
        self.scheme == Scheme::Default && self.is_unasked(bytes)
    }

    pub(super) fn is_unasked(&self, bytes: u64) -> bool {
        !self.scheme.is_exclusive() && (packets(bytes) <= SMALL_PACKETS || self.scheme.is_blind())
    }

    pub(super) fn begin(&mut self, round: u32, bytes: u64, unasked: bool, io: &mut Io<'_>) {
        let mut pushed = 0;
        if unasked {
            pushed = bytes;
            io.grants.push(self.key(round), bytes, 0..packets(bytes));
        } else {
            let is_first = self.slots.is_empty() && self.sent_nothing();
            let opening = match is_first && !self.scheme.is_exclusive() {
                true => io.credit.opening(),
                false => 0,
            };
            self.tell(round, opening as u8, io);
            if opening > 0 {
                io.grants.push(self.key(round), bytes, 0..opening);
            }
        }
        let due = match unasked {
            true => io.now + self.blind_patience(io.credit),
            false => io.now + self.patience(io.credit),
        };
        self.put_slot(round, due, pushed);
    }

    pub(super) fn sent_nothing(&self) -> bool {
        self.next <= 1
    }

    pub(super) fn put_slot(&mut self, round: u32, due: Instant, pushed: u64) {
        let slot = Slot {
            due,
            reminded: 0,
            conflicts: 0,
            packets: packets(self.sends(round)),
            pushed,
            sent: false,
            sent_at: Instant::ZERO,
            serial: 0,
        };
        self.told_packets += slot.packets;
        self.pushed_bytes += pushed;
        self.slots.insert(round, slot);
        self.slots_due = self.slots_due.min(due);
    }

    pub(super) fn tell(&self, round: u32, pushed: u8, io: &mut Io<'_>) {
        let to = self.target(round);
        let ready = Item::Ready {
            context: self.context,
            number: self.number,
            bytes: self.sends(round),
            pushed,
            signature: self.signature,
        };
        io.outbox.push(to, ready);
    }

    pub(super) fn drop_slot(&mut self, round: u32) {
        if let Some(slot) = self.slots.remove(&round) {
            self.pushed_bytes -= slot.pushed;
            self.told_packets -= slot.packets;
        }
    }

    /// A receiver asks for packets.
    pub(in crate::exchange) fn pulled(&mut self, from: Rank, pull: Pull, io: &mut Io<'_>) {
        let round = self.round_to(from);
        let bytes = self.sends(round);
        if bytes == 0 {
            return self.refuse(from, false, io);
        }
        if self.is_short(bytes) && !self.is_missed(round, io) {
            // It comes unasked.
            if let Some(slot) = self.slots.get_mut(&round) {
                slot.serial = pull.serial;
            }
            return;
        }
        let heard = self.slots.get(&round).map_or(0, |slot| slot.serial);
        if heard != 0 && heard.wrapping_sub(pull.serial) < 1 << 15 {
            // The second copy of one on which much depends.
            return;
        }
        let mut due = io.now + self.patience(io.credit);
        if let Some(serial) = io.grants.pull(self.key(round), bytes, pull) {
            let block = self.block();
            io.outbox.push(from, Item::Served { block, serial });
            due = io.now + io.credit.answer();
        }
        self.unpark(round);
        if !self.slots.contains_key(&round) && !self.sent.contains(round) {
            self.put_slot(round, due, 0);
        }
        if let Some(slot) = self.slots.get_mut(&round) {
            (slot.due, slot.reminded, slot.sent) = (due, 0, false);
            slot.serial = pull.serial;
        }
    }

    /// A receiver that asks for a short block misses it: it has left this rank, and not just now,
    /// so that it meets the pull.
    fn is_missed(&self, round: u32, io: &Io<'_>) -> bool {
        let slot = self.slots.get(&round);
        let slot = slot.filter(|slot| slot.sent && slot.serial == 0);
        let meets = slot.is_some_and(|slot| io.now < slot.sent_at + io.credit.round_trip());
        self.has_sent(round, io) && !meets
    }

    /// A short block has left this rank.
    fn has_sent(&self, round: u32, io: &Io<'_>) -> bool {
        let is_begun = self.slots.contains_key(&round)
            || self.parked.contains(&round)
            || self.sent.contains(round);
        is_begun && !io.grants.has(self.key(round))
    }

    /// All that a receiver asked for is sent, the end of its block with it.
    pub(in crate::exchange) fn sent_all(&mut self, to: Rank, io: &mut Io<'_>) {
        let round = self.round_to(to);
        let answer = match self.is_short(self.sends(round)) {
            true => io.credit.short_answer(),
            false => io.credit.answer(),
        };
        if let Some(slot) = self.slots.get_mut(&round) {
            slot.due = io.now + answer;
            (slot.sent, slot.sent_at) = (true, io.now);
            self.slots_due = self.slots_due.min(slot.due);
        }
    }

    /// A receiver has its block.
    pub(in crate::exchange) fn acknowledged(&mut self, from: Rank, io: &mut Io<'_>) {
        let round = self.round_to(from);
        if from == io.me || !self.sent.insert(round) {
            return;
        }
        self.drop_slot(round);
        self.unpark(round);
        self.reminded = 0;
        io.grants.remove(self.key(round));
        self.advance(io);
    }

    /// A rank asks whether this one is ready for it.
    pub(in crate::exchange) fn asked_ready(&mut self, from: Rank, io: &mut Io<'_>) {
        let round = self.round_to(from);
        if self.sends(round) == 0 {
            return self.refuse(from, false, io);
        }
        if self.is_short(self.sends(round)) && !self.has_sent(round, io) {
            // It comes, and tells it.
            return;
        }
        // The other schemes say themselves whose turn it is. By the default one a rank that began
        // late is asked by all at once, and tells them when their turns come: their credit would
        // wait here, and they would ask again and again.
        let told = self.told_packets + packets(self.sends(round));
        let is_later = match self.scheme {
            Scheme::Default => round >= self.next && told > TOLD_AHEAD * io.credit.each(),
            _ => true,
        };
        // Whoever is parked has had its turn.
        if is_later && !self.slots.contains_key(&round) && !self.parked.contains(&round) {
            return;
        }
        self.tell(round, 0, io);
        if !self.slots.contains_key(&round) && !self.sent.contains(round) {
            self.unpark(round);
            self.put_slot(round, io.now + self.patience(io.credit), 0);
        }
    }

    /// Bytes of a packet that is to be sent.
    pub(in crate::exchange) fn fill(
        &self,
        to: Rank,
        number: u32,
        out: &mut [u8],
        memory: &mut dyn Memory,
    ) -> Result<(), Gone> {
        let part = self.send.layout.part(self.place(to).0);
        let offset = part.offset + u64::from(number) * PACKET as u64;
        memory.read(self.send.buffer, offset, out)
    }

    /// The program's memory of a block that is sent is gone.
    pub(in crate::exchange) fn memory_gone(&mut self, to: Rank, io: &mut Io<'_>) {
        self.refuse(to, true, io);
        self.fail(Error::Gone);
    }

    /// Receivers that do not answer are told again, and then give up their place.
    pub(super) fn check_slots(&mut self, io: &mut Io<'_>) {
        let wait = io.credit.wait();
        let is_due = |slot: &&Slot| slot.due <= io.now;
        let due: Vec<u32> = (self.slots.iter().filter(|(_, slot)| is_due(slot)))
            .map(|(round, _)| *round)
            .collect();
        for round in due {
            let Some(slot) = self.slots.get_mut(&round) else {
                continue;
            };
            let again = match slot.sent {
                true => TELL_AGAIN_SENT,
                false => TELL_AGAIN,
            };
            if slot.reminded >= again && !self.scheme.is_exclusive() {
                self.park(round, false, io);
                continue;
            }
            let is_short = self.is_short(self.sends(round));
            if (self.scheme.is_blind() || is_short) && io.grants.has(self.key(round)) {
                // Its turn has not come yet.
                self.slots.get_mut(&round).expect("it is there").due = io.now + wait;
                continue;
            }
            let slot = self.slots.get_mut(&round).expect("it is there");
            slot.due = io.now
                + match slot.sent {
                    true => {
                        let first = match is_short {
                            true => io.credit.short_answer(),
                            false => io.credit.answer(),
                        };
                        let longest = io.credit.waits().longest;
                        Backoff::new(first, longest).after(slot.reminded.into())
                    }
                    false => wait,
                };
            slot.reminded = slot.reminded.saturating_add(1);
            if slot.pushed > 0 && slot.packets == 1 && !is_short {
                // The block itself is about as short as the question whether it came.
                let bytes = slot.pushed;
                io.grants.push(self.key(round), bytes, 0..1);
            } else {
                self.tell(round, 0, io);
            }
        }
        let soonest = self.slots.values().map(|slot| slot.due).min();
        self.slots_due = soonest.unwrap_or(Instant::FAR_FUTURE);
        self.advance(io);
    }

    /// Tells some of those again that gave up their place; those that ask by themselves after all
    /// others, and seldom.
    pub(super) fn remind(&mut self, io: &mut Io<'_>) {
        let noted = self.parked.len() == self.noted.len();
        let is_meant = |round: &&u32| noted || !self.noted.contains(round);
        let from_here = self.parked.range(self.remind_next..);
        let rounds: Vec<u32> = (from_here.chain(self.parked.range(..self.remind_next)))
            .filter(is_meant)
            .take(REMINDED)
            .copied()
            .collect();
        for &round in &rounds {
            // What is on its way tells its receiver by itself.
            if !io.grants.has(self.key(round)) {
                self.tell(round, 0, io);
            }
            self.remind_next = round + 1;
        }
        if noted {
            self.remind_at = io.now + io.credit.waits().longest;
            return;
        }
        let patience = self.patience(io.credit);
        let backoff = Backoff::new(patience, io.credit.waits().longest.max(patience));
        self.remind_at = io.now + backoff.wait(self.reminded, io.rng);
        self.reminded = self.reminded.saturating_add(1);
    }
}
