//! One all-to-all exchange at one rank.
//!
//! As sender it tells a few ranks at a time, in the order of the rounds, that it is ready for them, and serves what
//! they pull. As receiver it pulls from at most two ready senders, the earliest round first, as far as the credit
//! goes. Small blocks go unasked. A rank that does not pull when it is told gives up its place to others and is told again
//! later; a rank that nobody is ready for asks around: so late starters hold nobody up and are not forgotten.
//!
//! Everything is known by the number of its round: the round in which this rank sends to a peer, and the round in which it
//! receives from one.
//!
//! Neighbours: [`super::endpoint`] drives it; [`super::order`] has the rounds, [`super::inbound`] and [`super::grants`]
//! the blocks, `pushing` what is sent unasked.
//!
//! Invariant: a block is written once, and the exchange is done when every block has come and every receiver has said that
//! it has its own.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::credit::Credit;
use super::grants::{Grants, Key};
use super::inbound::Inbound;
use super::message::{BlockId, Data, Item, packet_bytes, packets};
use super::order::Order;
use super::outbox::Outbox;
use super::{Counters, Error, Gone, Memory, OpId, PACKET, Scheme, Side};
use crate::broadcast::bitmap::Bitmap;
use crate::ids::Rank;
use crate::rng::Rng;
use crate::time::{Instant, Micros};

/// Receivers that are told at a time that this rank is ready.
const AHEAD: usize = 4;
/// Senders that are pulled from at a time.
const SENDERS: usize = 2;
/// A receiver that was told so often in vain gives up its place.
const TELL_AGAIN: u8 = 2;
/// Senders that should be ready and are not, that are known one by one.
const MAX_OVERDUE: usize = 64;
/// Ranks that are told again, or asked, at a time.
const REMINDED: usize = 4;
/// Blocks of so many packets, or fewer, go unasked.
const SMALL_PACKETS: u32 = 4;
/// Priority of blocks of exchanges: messages go before them.
const FIRST_PRIORITY: u32 = 1;
/// Most that the wait between two reminders doubles.
const MAX_DOUBLINGS: u32 = 5;

/// What an operation acts on.
pub(super) struct Io<'a> {
    pub now: Instant,
    pub me: Rank,
    pub outbox: &'a mut Outbox,
    pub grants: &'a mut Grants,
    pub credit: &'a mut Credit,
    pub counters: &'a mut Counters,
    pub rng: &'a mut Rng,
}

/// A receiver that was told, or whose block is on its way.
#[derive(Clone, Copy, Debug)]
struct Slot {
    /// When it is told again.
    due: Instant,
    /// How often it was told again since it last pulled.
    reminded: u8,
    /// Packets of its block.
    packets: u32,
    /// Bytes that go unasked.
    pushed: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Exchange {
    pub op: OpId,
    pub context: u16,
    pub number: u32,
    me: Rank,
    order: Order,
    scheme: Scheme,
    send: Side,
    receive: Side,
    pub received_bytes: u64,
    failure: Option<Error>,

    /// Rounds whose block is here.
    got: Bitmap,
    /// Rounds whose sender is ready and whose block has not begun.
    waiting: BTreeSet<u32>,
    inbound: BTreeMap<u32, Inbound>,
    /// When those that are not ready are asked, how long to wait after that, and whom.
    ask_at: Instant,
    ask_doublings: u32,
    ask_next: u32,
    /// Senders of earlier rounds than the last block that came, which are not ready: when they are asked next, and how often they
    /// were asked.
    overdue: BTreeMap<u32, (Instant, u32)>,

    /// Rounds whose receiver has its block.
    sent: Bitmap,
    /// Rounds in the order in which they are served, where it is not that of their numbers.
    sequence: Option<Vec<u32>>,
    /// Place in the sequence of the next receiver to be told.
    next: u32,
    slots: BTreeMap<u32, Slot>,
    pushed_bytes: u64,
    /// Packets of the blocks whose receivers were told.
    told_packets: u32,
    /// Told, and silent.
    parked: BTreeSet<u32>,
    remind_at: Instant,
    remind_doublings: u32,
    remind_next: u32,
    slots_due: Instant,
}

impl Exchange {
    /// An exchange that begins now. `early`: ranks that are ready already.
    pub(super) fn new(
        op: OpId,
        (context, number): (u16, u32),
        (send, receive): (Side, Side),
        order: Order,
        scheme: Scheme,
        io: &mut Io<'_>,
    ) -> Self {
        let rounds = order.rounds();
        let sequence = match scheme {
            Scheme::AtOnce => Some((0..rounds).map(|to| order.round(io.me, Rank(to))).collect()),
            Scheme::AtOnceRandom => Some(shuffled(rounds, io.rng)),
            _ => None,
        };
        let mut exchange = Exchange {
            op,
            context,
            number,
            me: io.me,
            order,
            scheme,
            send,
            receive,
            received_bytes: 0,
            failure: None,
            got: Bitmap::new(rounds),
            waiting: BTreeSet::new(),
            inbound: BTreeMap::new(),
            ask_at: Instant::FAR_FUTURE,
            ask_doublings: 0,
            ask_next: 0,
            overdue: BTreeMap::new(),
            sent: Bitmap::new(rounds),
            sequence,
            next: 0,
            slots: BTreeMap::new(),
            pushed_bytes: 0,
            told_packets: 0,
            parked: BTreeSet::new(),
            remind_at: Instant::FAR_FUTURE,
            remind_doublings: 0,
            remind_next: 0,
            slots_due: Instant::FAR_FUTURE,
        };
        for round in 0..rounds {
            if exchange.sends(round) == 0 {
                exchange.sent.insert(round);
            }
            if exchange.receives(round) == 0 {
                exchange.got.insert(round);
            }
        }
        exchange.ask_at = io.now + exchange.patience(io.credit);
        exchange.advance(io);
        exchange
    }

    /// Bytes that this rank sends in a round; none to itself.
    fn sends(&self, round: u32) -> u64 {
        match self.order.target(self.me, round) {
            to if to == self.me => 0,
            to => self.send.layout.part(to).bytes,
        }
    }

    /// Bytes that this rank receives in a round; none from itself.
    fn receives(&self, round: u32) -> u64 {
        match self.order.source(self.me, round) {
            from if from == self.me => 0,
            from => self.receive.layout.part(from).bytes,
        }
    }

    fn block(&self) -> BlockId {
        BlockId::Exchange(self.context, self.number)
    }

    fn key(&self, round: u32) -> Key {
        let place = match self.scheme {
            Scheme::AtOnce | Scheme::AtOnceRandom => 0,
            _ => round,
        };
        (
            FIRST_PRIORITY + place,
            self.order.target(self.me, round),
            self.block(),
        )
    }

    /// How long a receiver that was told may take until it pulls: the rounds before it.
    fn patience(&self, credit: &Credit) -> Micros {
        let longest = packets(self.sends(1 % self.order.rounds())).max(SMALL_PACKETS);
        credit.takes(u64::from(longest) * (AHEAD as u64 + 2)) + credit.wait()
    }

    /// How long the answer to a block takes that goes unasked: it waits behind what else goes unasked.
    fn blind_patience(&self, credit: &Credit) -> Micros {
        let before = credit.blind_bytes() / PACKET as u64;
        credit.takes(before + AHEAD as u64) + credit.round_trip().saturating_mul(2)
    }

    /// Everything has come and gone, or the exchange failed.
    pub(super) fn result(&self) -> Option<Result<u64, Error>> {
        match self.failure {
            Some(error) => Some(Err(error)),
            None if self.got.is_full() && self.sent.is_full() => Some(Ok(self.received_bytes)),
            None => None,
        }
    }

    /// The exchange cannot be done.
    pub(super) fn fail(&mut self, error: Error) {
        self.failure.get_or_insert(error);
    }

    /// Gives back the credit of what was under way.
    pub(super) fn release(&self, credit: &mut Credit) {
        let outstanding = self.inbound.values().map(Inbound::outstanding).sum();
        credit.change(outstanding, 0);
    }

    /// Ranks that this one waits for: the next few in each direction.
    pub(super) fn waits_for(&self) -> impl Iterator<Item = Rank> {
        let missing = |set: &Bitmap| {
            let mut at = 0;
            let mut rounds = Vec::with_capacity(REMINDED);
            while let Some(round) = set.next_missing(at).filter(|_| rounds.len() < REMINDED) {
                rounds.push(round);
                at = round + 1;
            }
            rounds
        };
        let (sources, targets) = (missing(&self.got), missing(&self.sent));
        let sources = sources
            .into_iter()
            .map(|round| self.order.source(self.me, round));
        let targets = targets
            .into_iter()
            .map(|round| self.order.target(self.me, round));
        let all: Vec<Rank> = sources.chain(targets).collect();
        all.into_iter()
    }

    pub(super) fn inbound_blocks(&self) -> usize {
        self.inbound.len()
    }

    // ---- sending ----

    /// Tells further receivers that this rank is ready, as far as that may be.
    fn advance(&mut self, io: &mut Io<'_>) {
        while self.next < self.order.rounds() {
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

    fn is_unasked(&self, bytes: u64) -> bool {
        packets(bytes) <= SMALL_PACKETS || self.scheme.is_blind()
    }

    fn begin(&mut self, round: u32, bytes: u64, unasked: bool, io: &mut Io<'_>) {
        let mut pushed = 0;
        if unasked {
            pushed = bytes;
            io.grants.push(self.key(round), bytes, 0..packets(bytes));
        } else {
            let opening = match self.slots.is_empty() && self.sent_nothing() {
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

    fn sent_nothing(&self) -> bool {
        self.next <= 1
    }

    fn put_slot(&mut self, round: u32, due: Instant, pushed: u64) {
        let slot = Slot {
            due,
            reminded: 0,
            packets: packets(self.sends(round)),
            pushed,
        };
        self.told_packets += slot.packets;
        self.pushed_bytes += pushed;
        self.slots.insert(round, slot);
        self.slots_due = self.slots_due.min(due);
    }

    fn tell(&self, round: u32, pushed: u8, io: &mut Io<'_>) {
        let to = self.order.target(self.me, round);
        let ready = Item::Ready {
            context: self.context,
            number: self.number,
            bytes: self.send.layout.part(to).bytes,
            pushed,
        };
        io.outbox.push(to, ready);
    }

    fn drop_slot(&mut self, round: u32) {
        if let Some(slot) = self.slots.remove(&round) {
            self.pushed_bytes -= slot.pushed;
            self.told_packets -= slot.packets;
        }
    }

    /// A receiver asks for packets.
    pub(super) fn pulled(
        &mut self,
        from: Rank,
        serial: u16,
        first: u32,
        asked: u64,
        io: &mut Io<'_>,
    ) {
        let round = self.order.round(self.me, from);
        let bytes = self.sends(round);
        if bytes == 0 {
            return self.refuse(from, false, io);
        }
        io.grants.pull(self.key(round), bytes, serial, first, asked);
        self.parked.remove(&round);
        let due = io.now + self.patience(io.credit);
        match self.slots.get_mut(&round) {
            Some(slot) => (slot.due, slot.reminded) = (due, 0),
            None if !self.sent.contains(round) => self.put_slot(round, due, 0),
            None => {}
        }
    }

    /// All that a receiver asked for is sent, the end of its block with it.
    pub(super) fn sent_all(&mut self, to: Rank, io: &mut Io<'_>) {
        let round = self.order.round(self.me, to);
        if let Some(slot) = self.slots.get_mut(&round) {
            slot.due = io.now + io.credit.wait();
            self.slots_due = self.slots_due.min(slot.due);
        }
    }

    /// A receiver has its block.
    pub(super) fn acknowledged(&mut self, from: Rank, io: &mut Io<'_>) {
        let round = self.order.round(self.me, from);
        if from == self.me || !self.sent.insert(round) {
            return;
        }
        self.drop_slot(round);
        self.parked.remove(&round);
        self.remind_doublings = 0;
        io.grants.remove(self.key(round));
        self.advance(io);
    }

    /// A rank asks whether this one is ready for it.
    pub(super) fn asked_ready(&mut self, from: Rank, io: &mut Io<'_>) {
        let round = self.order.round(self.me, from);
        if self.sends(round) == 0 {
            return self.refuse(from, false, io);
        }
        self.tell(round, 0, io);
        if !self.slots.contains_key(&round) && !self.sent.contains(round) {
            self.parked.remove(&round);
            self.put_slot(round, io.now + self.patience(io.credit), 0);
        }
    }

    /// The other side says that the block cannot be.
    pub(super) fn refused(&mut self, from: Rank) {
        self.fail(Error::SizeMismatch { rank: from });
    }

    fn refuse(&self, to: Rank, gone: bool, io: &mut Io<'_>) {
        let block = self.block();
        io.outbox.push(to, Item::Refuse { block, gone });
    }

    /// Bytes of a packet that is to be sent.
    pub(super) fn fill(
        &self,
        to: Rank,
        number: u32,
        out: &mut [u8],
        memory: &mut dyn Memory,
    ) -> Result<(), Gone> {
        let part = self.send.layout.part(to);
        let offset = part.offset + u64::from(number) * PACKET as u64;
        memory.read(self.send.buffer, offset, out)
    }

    /// The program's memory of a block that is sent is gone.
    pub(super) fn memory_gone(&mut self, to: Rank, io: &mut Io<'_>) {
        self.refuse(to, true, io);
        self.fail(Error::Gone);
    }

    // ---- receiving ----

    /// A sender is ready.
    pub(super) fn ready(&mut self, from: Rank, bytes: u64, pushed: u8, io: &mut Io<'_>) {
        let round = self.order.round(from, self.me);
        if bytes != self.receives(round) {
            self.refuse(from, false, io);
            return self.fail(Error::SizeMismatch { rank: from });
        }
        if self.got.contains(round) {
            let block = self.block();
            return io.outbox.push(from, Item::Got { block });
        }
        if self.inbound.contains_key(&round) {
            return;
        }
        self.ask_doublings = 0;
        self.overdue.remove(&round);
        if pushed == 0 {
            self.waiting.insert(round);
        } else {
            let inbound = Inbound::new(packets(bytes), pushed.into(), io.now);
            io.credit.change(0, inbound.outstanding());
            self.inbound.insert(round, inbound);
        }
    }

    /// Packets have come: from the network one with its bytes, in a simulation several without.
    pub(super) fn received(
        &mut self,
        from: Rank,
        data: &Data,
        bytes: Option<&[u8]>,
        memory: &mut dyn Memory,
        io: &mut Io<'_>,
    ) {
        let round = self.order.round(from, self.me);
        let part = self.receive.layout.part(from);
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
            return;
        }
        self.waiting.remove(&round);
        self.overdue.remove(&round);
        let count = packets(expected);
        let inbound =
            (self.inbound.entry(round)).or_insert_with(|| Inbound::new(count, count, io.now));
        let before = inbound.outstanding();
        io.credit.came(io.now, from, data.first);
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
            self.ask_doublings = 0;
            self.ask_at = io.now + self.patience(io.credit);
            let block = self.block();
            io.outbox.push(from, Item::Got { block });
            self.look_back(round, io);
        }
    }

    /// A block has come: senders of earlier rounds should be ready. What they said may be lost.
    fn look_back(&mut self, round: u32, io: &mut Io<'_>) {
        let mut at = 0;
        for _ in 0..REMINDED + self.inbound.len() + self.waiting.len() + self.overdue.len() {
            let Some(missing) = self.got.next_missing(at).filter(|missing| *missing < round) else {
                return;
            };
            at = missing + 1;
            let is_known = self.inbound.contains_key(&missing)
                || self.waiting.contains(&missing)
                || self.overdue.contains_key(&missing);
            if !is_known && self.overdue.len() < MAX_OVERDUE {
                self.overdue.insert(missing, (io.now + io.credit.wait(), 0));
                self.ask(missing, io);
            }
        }
    }

    fn ask(&self, round: u32, io: &mut Io<'_>) {
        let item = Item::WhoIsReady {
            context: self.context,
            number: self.number,
        };
        io.outbox.push(self.order.source(self.me, round), item);
    }

    /// A sender has sent all that it was asked for.
    pub(super) fn served(&mut self, from: Rank, serial: u16, io: &mut Io<'_>) {
        if let Some(inbound) = self.inbound.get_mut(&self.order.round(from, self.me)) {
            let before = inbound.outstanding();
            inbound.served(serial);
            io.credit.change(before, inbound.outstanding());
        }
    }

    /// Asks for packets, as far as the credit goes: lost ones, then those of the earliest rounds. A block that has its whole
    /// window and wants more holds back those after it, unless its sender is slow; so two senders share the link
    /// only when the end of a block meets the beginning of the next.
    pub(super) fn pull(&mut self, io: &mut Io<'_>) {
        let slow = io.credit.slow();
        let mut active = self
            .inbound
            .values()
            .filter(|inbound| inbound.outstanding() > 0)
            .count();
        let rounds: Vec<u32> = self.inbound.keys().copied().collect();
        let mut holds = false;
        for round in rounds {
            if io.credit.left() == 0 {
                return;
            }
            let inbound = &self.inbound[&round];
            let is_active = inbound.outstanding() > 0;
            let may_begin = !holds && Self::has_room(active, inbound.wants(io.now), io);
            if is_active || inbound.has_lost(io.now) || (may_begin && inbound.wants(io.now) > 0) {
                active += usize::from(self.pull_from(round, io) && !is_active);
            }
            holds |= self.inbound[&round].holds_until(io.now, slow).is_some();
        }
        while !holds && io.credit.left() >= io.credit.chunk() {
            let Some(&round) = self.waiting.first() else {
                return;
            };
            let count = packets(self.receives(round));
            if !Self::has_room(active, count, io) {
                return;
            }
            self.waiting.remove(&round);
            let inbound = Inbound::new(count, 0, io.now);
            self.inbound.insert(round, inbound);
            active += usize::from(self.pull_from(round, io));
            holds = self.inbound[&round].holds_until(io.now, slow).is_some();
        }
    }

    /// Another sender may begin: there are few, or their blocks are short.
    fn has_room(active: usize, packets: u32, io: &Io<'_>) -> bool {
        active < SENDERS || io.credit.used() + packets <= io.credit.each()
    }

    /// Pulls from one sender; false when that is not worth a datagram yet.
    fn pull_from(&mut self, round: u32, io: &mut Io<'_>) -> bool {
        let block = self.block();
        let Some(inbound) = self.inbound.get_mut(&round) else {
            return false;
        };
        let before = inbound.outstanding();
        let wants = inbound.wants(io.now);
        let most = wants
            .min(io.credit.each().saturating_sub(before))
            .min(io.credit.left());
        let is_worth = most >= io.credit.chunk() || most == wants || inbound.has_lost(io.now);
        if most == 0 || !is_worth {
            return false;
        }
        let Some(((serial, first, packets), again)) = inbound.ask(io.now, most.max(1)) else {
            return false;
        };
        io.counters.asked_again += u64::from(again);
        let from = self.order.source(self.me, round);
        io.credit.asked(io.now, from, first);
        io.credit.change(before, inbound.outstanding());
        let pull = Item::Pull {
            block,
            serial,
            first,
            packets,
        };
        io.outbox.push(from, pull);
        true
    }

    // ---- time ----

    /// When something is due.
    pub(super) fn deadline(&self, now: Instant, credit: &Credit) -> Instant {
        let wait = credit.wait();
        let inbound = self
            .inbound
            .values()
            .filter_map(|inbound| inbound.deadline(wait))
            .min();
        let mut at = inbound.unwrap_or(Instant::FAR_FUTURE).min(self.slots_due);
        if let Some(overdue) = self.overdue.values().map(|(at, _)| *at).min() {
            at = at.min(overdue);
        }
        if !self.waiting.is_empty() {
            let slow = credit.slow();
            let holds = self.inbound.values();
            let until = holds
                .filter_map(|inbound| inbound.holds_until(now, slow))
                .min();
            at = at.min(until.unwrap_or(Instant::FAR_FUTURE));
        }
        if !self.parked.is_empty() {
            at = at.min(self.remind_at);
        }
        if !self.got.is_full() && self.waiting.is_empty() && self.inbound.is_empty() {
            at = at.min(self.ask_at);
        }
        at
    }

    /// Does what is due.
    pub(super) fn tick(&mut self, io: &mut Io<'_>) {
        let wait = io.credit.wait();
        for inbound in self.inbound.values_mut() {
            if inbound.deadline(wait).is_some_and(|at| at <= io.now) {
                let before = inbound.outstanding();
                inbound.time_out(io.now, wait);
                io.credit.change(before, inbound.outstanding());
            }
        }
        if self.slots_due <= io.now {
            self.check_slots(io);
        }
        if self.remind_at <= io.now && !self.parked.is_empty() {
            self.remind(io);
        }
        let due = self.overdue.iter().filter(|(_, (at, _))| *at <= io.now);
        let due: Vec<u32> = due.map(|(round, _)| *round).collect();
        for round in due {
            self.ask(round, io);
            if let Some((at, asked)) = self.overdue.get_mut(&round) {
                *asked = (*asked + 1).min(MAX_DOUBLINGS);
                *at = io.now + wait.saturating_mul(1 << *asked);
            }
        }
        let starves = self.waiting.is_empty() && self.inbound.is_empty();
        if self.ask_at <= io.now && starves && !self.got.is_full() {
            self.ask_around(io);
        }
    }

    /// Receivers that do not answer are told again, and then give up their place.
    fn check_slots(&mut self, io: &mut Io<'_>) {
        let wait = io.credit.wait();
        let is_due = |slot: &&Slot| slot.due <= io.now;
        let due: Vec<u32> = (self.slots.iter().filter(|(_, slot)| is_due(slot)))
            .map(|(round, _)| *round)
            .collect();
        for round in due {
            let Some(slot) = self.slots.get_mut(&round) else {
                continue;
            };
            if slot.reminded >= TELL_AGAIN {
                self.drop_slot(round);
                if self.parked.is_empty() {
                    self.remind_at = io.now + wait;
                }
                self.parked.insert(round);
                continue;
            }
            slot.reminded += 1;
            slot.due = io.now + wait;
            if slot.pushed > 0 && slot.packets == 1 {
                // The block itself is as short as the question whether it came.
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

    /// Tells some of those again that gave up their place.
    fn remind(&mut self, io: &mut Io<'_>) {
        let from_here = self.parked.range(self.remind_next..);
        let rounds: Vec<u32> = (from_here.chain(self.parked.range(..self.remind_next)))
            .take(REMINDED)
            .copied()
            .collect();
        for &round in &rounds {
            self.tell(round, 0, io);
            self.remind_next = round + 1;
        }
        let wait = self
            .patience(io.credit)
            .saturating_mul(1 << self.remind_doublings);
        self.remind_doublings = (self.remind_doublings + 1).min(MAX_DOUBLINGS);
        self.remind_at = io.now + io.rng.jitter(wait);
    }

    /// Asks some senders that have not said that they are ready.
    fn ask_around(&mut self, io: &mut Io<'_>) {
        for _ in 0..REMINDED {
            let next = self
                .got
                .next_missing(self.ask_next)
                .or_else(|| self.got.next_missing(0));
            let Some(round) = next else {
                break;
            };
            self.ask(round, io);
            self.ask_next = round + 1;
        }
        let wait = self
            .patience(io.credit)
            .saturating_mul(1 << self.ask_doublings);
        self.ask_doublings = (self.ask_doublings + 1).min(MAX_DOUBLINGS);
        self.ask_at = io.now + io.rng.jitter(wait);
    }
}

/// The numbers below `count` in a random order (Fisher and Yates).
fn shuffled(count: u32, rng: &mut Rng) -> Vec<u32> {
    let mut all: Vec<u32> = (0..count).collect();
    for place in (1..all.len()).rev() {
        all.swap(place, rng.below(place as u64 + 1) as usize);
    }
    all
}
