//! The receiving side of an exchange: whose blocks are pulled when, and what has come.
//!
//! Neighbour: [`super`] has the sending side.
//!
//! Invariant: nothing is asked for beyond the credit of the endpoint.

use super::super::credit::Credit;
use super::super::inbound::Inbound;
use super::super::io::Io;
use super::super::message::{Data, Item, packet_bytes, packets};
use super::super::scheme::Conflict;
use super::super::{Error, Gone, Memory, PACKET, Scheme};
use super::{ASKED_AHEAD, ENDS_TOLD, Exchange, LAST, MAX_OVERDUE, SENDERS, SMALL_PACKETS};
use crate::ids::Rank;

impl Exchange {
    /// A sender is ready.
    pub(in crate::exchange) fn ready(
        &mut self,
        from: Rank,
        bytes: u64,
        pushed: u8,
        io: &mut Io<'_>,
    ) {
        let round = self.round_from(from);
        if bytes == 0 && self.got.contains(round) {
            // An answer that is late: nothing is missing.
            return;
        }
        if bytes != self.receives(round) {
            self.refuse(from, false, io);
            return self.fail(Error::SizeMismatch { rank: from });
        }
        if self.got.contains(round) {
            return self.say_got(from, io);
        }
        if let Some(inbound) = self.inbound.get_mut(&round) {
            // Its sender waits, and knows of nothing that it owes. If something was asked for a
            // while ago, the pull was lost.
            if self.scheme == Scheme::Default && packets(bytes) <= SMALL_PACKETS {
                // Of a short block all was sent before it said so.
                let before = inbound.outstanding();
                inbound.sent_before(io.now, io.credit.round_trip());
                io.credit.change(before, inbound.outstanding());
                return;
            }
            if let Some(pull) = inbound.prompted(io.now, io.credit.round_trip()) {
                io.say_pull(from, self.block(), pull);
            }
            return;
        }
        self.asked = 0;
        self.overdue.remove(&round);
        if self.scheme == Scheme::Default && self.waiting.contains(&round) {
            // It was told before. Others come first, and it need not be told again.
            let (context, number) = (self.context, self.number);
            return io.outbox.push(from, Item::Noted { context, number });
        }
        let serves_another = !self.inbound.is_empty() || !self.waiting.is_empty();
        let is_refused = matches!(self.scheme.conflict(), Some(Conflict::Retry));
        if is_refused && serves_another && !self.waiting.contains(&round) {
            let (context, number) = (self.context, self.number);
            return io.outbox.push(from, Item::Busy { context, number });
        }
        if pushed == 0 {
            self.waiting.insert(round);
        } else {
            let inbound = Inbound::new(packets(bytes), pushed.into(), io.now);
            io.credit.change(0, inbound.outstanding());
            self.inbound.insert(round, inbound);
        }
    }

    /// Packets have come: from the network one with its bytes, in a simulation several without.
    pub(in crate::exchange) fn received(
        &mut self,
        from: Rank,
        data: &Data,
        bytes: Option<&[u8]>,
        memory: &mut dyn Memory,
        io: &mut Io<'_>,
    ) {
        let round = self.round_from(from);
        let part = self.receive.layout.part(self.place(from).0);
        let expected = self.receives(round);
        let last = data.first + 63 - data.packets.leading_zeros();
        let fits = last < packets(expected)
            && usize::from(data.tail) == packet_bytes(expected, last)
            && data.is_last == (last + 1 == packets(expected));
        if !fits {
            self.refuse(from, false, io);
            return self.fail(Error::SizeMismatch { rank: from });
        }
        if self.got.contains(round) {
            io.counters.duplicates += u64::from(data.packets.count_ones());
            if data.is_last {
                // Its sender sends it again because it has not heard that it came.
                self.say_got(from, io);
            }
            return;
        }
        self.waiting.remove(&round);
        self.overdue.remove(&round);
        let unasked = match self.is_unasked(expected) {
            true => packets(expected),
            // What its sender said before these first packets, that it is ready, was lost, or came
            // before this rank had begun. No beginning is longer than a pull may be.
            false => io.credit.opening().max(last + 1).min(64),
        };
        let inbound = self.inbound.entry(round).or_insert_with(|| {
            let inbound = Inbound::new(packets(expected), unasked, io.now);
            io.credit.change(0, inbound.outstanding());
            inbound
        });
        let before = inbound.outstanding();
        if before == 0 {
            io.credit.came_unasked(io.now, data.packets.count_ones());
        }
        io.credit
            .came(io.now, from, data.first, data.packets.count_ones());
        let mut left = data.packets;
        while left != 0 {
            let number = data.first + left.trailing_zeros();
            left &= left - 1;
            if !inbound.take(io.now, number) {
                io.counters.duplicates += 1;
                continue;
            }
            io.counters.packets_received += 1;
            let offset = part.offset + u64::from(number) * PACKET as u64;
            // Without bytes, in a simulation, the memory still hears what would be written where.
            let written = memory.write(self.receive.buffer, offset, bytes.unwrap_or_default());
            if written == Err(Gone) {
                self.failure.get_or_insert(Error::Gone);
            }
        }
        io.credit.change(before, inbound.outstanding());
        if inbound.is_complete() {
            self.inbound.remove(&round);
            self.got.insert(round);
            self.received_bytes += expected;
            self.asked = 0;
            self.ask_at = io.now + io.credit.round_trip();
            self.say_got(from, io);
            self.last[self.next_last % LAST] = round;
            self.next_last += 1;
            self.look_back(round, io);
            if self.got.is_full() && io.credit.is_lossy() {
                self.say_again(io);
            }
        }
    }

    /// The last blocks have come over a network that loses datagrams. Their senders wait for
    /// nothing but to hear so, and would ask only after a while.
    fn say_again(&self, io: &mut Io<'_>) {
        for place in 1..=LAST.min(self.next_last) {
            let round = self.last[(self.next_last - place) % LAST];
            let from = self.source(round);
            self.say_got(from, io);
        }
    }

    /// The block of a sender is here.
    fn say_got(&self, from: Rank, io: &mut Io<'_>) {
        let (block, signature) = (self.block(), self.signature);
        io.outbox.push(from, Item::Got { block, signature });
    }

    /// A block begins where datagrams are lost: senders of the next rounds should have said that
    /// they are ready, as they do some rounds ahead. If that was lost they would wait in vain when
    /// their turn comes.
    fn look_ahead(&self, round: u32, io: &mut Io<'_>) {
        if self.scheme != Scheme::Default || !io.credit.is_lossy() {
            return;
        }
        for next in (round + 1..self.numbering.rounds()).take(ASKED_AHEAD) {
            let is_here = self.got.contains(next) || self.is_known(next);
            if !is_here && !self.is_unasked(self.receives(next)) {
                self.ask(next, io);
            }
        }
    }

    /// The sender of this round is ready, or was asked whether it is.
    fn is_known(&self, round: u32) -> bool {
        self.inbound.contains_key(&round)
            || self.waiting.contains(&round)
            || self.overdue.contains_key(&round)
    }

    /// A block has come: senders of earlier rounds should be ready. What they said may be lost.
    /// Blocks that go unasked are on their way, from senders that are a little behind: to be asked
    /// would hold these up further, so that all others overtake them.
    fn look_back(&mut self, round: u32, io: &mut Io<'_>) {
        if self.scheme != Scheme::Default {
            return;
        }
        while self.overdue.len() < MAX_OVERDUE {
            let next = self.got.next_missing(self.looked);
            let Some(missing) = next.filter(|missing| *missing < round) else {
                // What is missing before this is known.
                self.looked = self.looked.max(round);
                return;
            };
            self.looked = missing + 1;
            if self.is_known(missing) {
                continue;
            }
            let is_unasked = self.is_unasked(self.receives(missing));
            let wait = match is_unasked {
                true => io.credit.missing(),
                false => io.credit.wait(),
            };
            self.overdue.insert(missing, (io.now + wait, 0));
            if !is_unasked {
                self.ask(missing, io);
            }
        }
    }

    pub(in crate::exchange) fn ask(&self, round: u32, io: &mut Io<'_>) {
        let item = Item::WhoIsReady {
            context: self.context,
            number: self.number,
            signature: self.signature,
        };
        io.outbox.push(self.source(round), item);
    }

    /// A sender has sent all that it was asked for.
    pub(in crate::exchange) fn served(&mut self, from: Rank, serial: u16, io: &mut Io<'_>) {
        io.credit.served(io.now, from, self.block(), serial);
        if let Some(inbound) = self.inbound.get_mut(&self.round_from(from)) {
            let before = inbound.outstanding();
            inbound.served(io.now, serial);
            io.credit.change(before, inbound.outstanding());
        }
    }

    /// Asks for packets, as far as the credit goes, the earliest rounds first. Senders of the next
    /// rounds are asked ahead, so that one that has nothing else to do need not wait to be asked;
    /// they serve their earlier rounds before this rank. What is asked of a later round takes
    /// nothing from an earlier one that becomes ready after it: else ranks that begin a little out
    /// of step wait for senders that serve somebody else first.
    pub(in crate::exchange) fn pull(&mut self, io: &mut Io<'_>) {
        let mut active = self
            .inbound
            .values()
            .filter(|inbound| inbound.outstanding() > 0)
            .count();
        let worth = io.credit.worth();
        let mut left = io.credit.total();
        let mut at = 0;
        while left > 0
            && io.credit.room() > 0
            && let Some(round) = self.next_source(at)
        {
            at = round + 1;
            let begins = !self.inbound.contains_key(&round);
            if begins {
                let count = packets(self.receives(round));
                let room = left.min(io.credit.room());
                let is_short = self.is_short(self.receives(round));
                let is_full = match is_short {
                    // A short block is under way then, whose arrival or silence looks here again.
                    // Whatever else is under way may go on for long.
                    true => {
                        let used = self.short_outstanding();
                        used > 0 && used + count > io.credit.beside_unasked(io.now)
                    }
                    false => room < worth.min(count) || !Self::has_room(active, count, io),
                };
                if is_full {
                    return;
                }
                self.waiting.remove(&round);
                let inbound = match is_short {
                    true => Inbound::missing(count, io.now),
                    false => Inbound::new(count, 0, io.now),
                };
                self.inbound.insert(round, inbound);
            }
            let was_active = self.inbound[&round].outstanding() > 0;
            active += usize::from(self.pull_from(round, (left, worth), io) && !was_active);
            if begins {
                self.look_ahead(round, io);
                self.look_back(round, io);
            }
            let inbound = &self.inbound[&round];
            left = left.saturating_sub(inbound.outstanding());
            // Two senders share the link only when the end of a block meets the beginning of the
            // next, or while one is silent.
            if inbound.outstanding() > 0 && inbound.wants() > 0 {
                return;
            }
        }
    }

    /// Packets of short blocks that were asked for and are under way.
    fn short_outstanding(&self) -> u32 {
        let inbound = self.inbound.iter();
        let short = inbound.filter(|(round, _)| self.is_short(self.receives(**round)));
        short.map(|(_, inbound)| inbound.outstanding()).sum()
    }

    /// The next sender, from this round on, whose block has begun or may begin.
    fn next_source(&self, at: u32) -> Option<u32> {
        let begun = self.inbound.range(at..).next().map(|(round, _)| *round);
        let ready = match self.scheme.conflict() {
            // One excludes the others.
            Some(_) if !self.inbound.is_empty() => None,
            Some(Conflict::Heaviest(weight)) => {
                let weight = |round| weight(self.source(round), self.receives(round));
                self.waiting.iter().max_by_key(|round| weight(**round))
            }
            _ => self.waiting.range(at..).next(),
        };
        begun.into_iter().chain(ready.copied()).min()
    }

    /// Another sender may begin: there are few, or their blocks are short.
    fn has_room(active: usize, packets: u32, io: &Io<'_>) -> bool {
        active < SENDERS || io.credit.used() + packets <= io.credit.each()
    }

    /// Most packets under way from the sender of this round. Where that of an earlier one is silent
    /// it may only be busy, and come back soon: what others were asked for in its place holds it up
    /// then, so that is little on links that are not paced.
    fn most_of(&self, round: u32, credit: &Credit) -> u32 {
        let mut earlier = self.inbound.range(..round);
        match earlier.any(|(_, inbound)| inbound.lends()) {
            true => credit.lent(),
            false => credit.each(),
        }
    }

    /// Pulls from one sender; false when that is not worth a datagram yet.
    fn pull_from(&mut self, round: u32, (left, worth): (u32, u32), io: &mut Io<'_>) -> bool {
        let block = self.block();
        let each = self.most_of(round, io.credit);
        let is_short = self.is_short(self.receives(round));
        let is_near_end = round + ENDS_TOLD >= self.numbering.rounds();
        let is_other = self.scheme != Scheme::Default;
        let end_told = io.credit.is_lossy() || is_short || is_near_end || is_other;
        let from = self.source(round);
        let Some(inbound) = self.inbound.get_mut(&round) else {
            return false;
        };
        let before = inbound.outstanding();
        let wants = inbound.wants();
        let most = wants
            .min(each.saturating_sub(before))
            .min(left.saturating_sub(before))
            .min(io.credit.room());
        let is_worth = most >= worth.min(each) || most == wants || inbound.has_lost();
        if most == 0 || !is_worth {
            return false;
        }
        let Some((pull, again)) = inbound.ask(io.now, most, end_told) else {
            return false;
        };
        io.count_again(again);
        // The others are what they are called: whoever sends everything at once does so whatever is
        // lost.
        if again > 0 && self.scheme == Scheme::Default {
            io.credit.repaired(again);
        }

        match is_short {
            true => io.credit.asked_for_missing(io.now, from, block, &pull),
            false => io.credit.asked(io.now, from, pull.first),
        }
        io.credit.change(before, inbound.outstanding());
        match self.is_unasked(self.receives(round)) {
            true => io.say_pull(from, block, pull),
            false => io.say_pull_of_long(from, block, pull),
        }
        true
    }
}
