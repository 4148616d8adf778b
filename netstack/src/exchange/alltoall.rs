//! One all-to-all exchange at one rank.
//!
//! As sender it tells a few ranks at a time, in the order of the rounds, that it is ready for them, and serves what
//! they pull. As receiver it pulls from at most four ready senders, the earliest round first, as far as the credit
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

use super::active::Network;
use super::credit::Credit;
use super::grants::{Grants, Key};
use super::inbound::Inbound;
use super::message::{BlockId, Item, Pull, packets};
use super::order::Order;
use super::outbox::Outbox;
use super::steps::{MASTER, Steps};
use super::{Active, Counters, Error, Gone, Layout, Memory, OpId, PACKET, Scheme, Side};
use crate::broadcast::bitmap::Bitmap;
use crate::ids::Rank;
use crate::rng::Rng;
use crate::time::{Instant, Micros};

/// Receivers that are told at a time that this rank is ready.
const AHEAD: usize = 8;
/// Senders that are pulled from at a time.
const SENDERS: usize = 6;
/// A receiver that was told so often in vain gives up its place.
const TELL_AGAIN: u8 = 2;
/// The same where the whole block was sent.
const TELL_AGAIN_SENT: u8 = 6;
/// Senders that should be ready and are not, that are known one by one.
pub(super) const MAX_OVERDUE: usize = 64;
/// Senders of the next rounds that are asked when a block begins, where they have not said that they are ready.
const ASKED_AHEAD: usize = 2;
/// Senders that hear twice that their block has come.
const LAST: usize = 8;
/// Ranks that are told again, or asked, at a time.
const REMINDED: usize = 4;
/// Ranks of each direction that are watched at a time, whether they are there.
const WATCHED: u32 = 16;
/// Blocks of so many packets, or fewer, go unasked.
const SMALL_PACKETS: u32 = 4;
/// Priority of blocks of exchanges: messages go before them.
const FIRST_PRIORITY: u32 = 1;
/// Most that the wait between two reminders doubles.
const MAX_DOUBLINGS: u32 = 5;

mod receiving;

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

impl Io<'_> {
    /// Asks a sender for packets. Where packets are lost, a pull that no later one would show to be lost is said twice.
    fn say_pull(&mut self, from: Rank, block: BlockId, pull: Pull) {
        let item = Item::Pull { block, pull };
        self.outbox.push(from, item);
        if pull.tell && self.counters.asked_again > 0 {
            self.outbox.push(from, item);
        }
    }
}

/// A receiver that was told, or whose block is on its way.
#[derive(Clone, Copy, Debug)]
struct Slot {
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
    /// Number of the last pull.
    serial: u16,
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
    /// The own block is not copied yet.
    pub copies_own: bool,
    failure: Option<Error>,

    /// Rounds whose block is here.
    got: Bitmap,
    /// Rounds whose sender is ready and whose block has not begun.
    waiting: BTreeSet<u32>,
    inbound: BTreeMap<u32, Inbound>,
    /// The last rounds whose block came, and how many did.
    last: [u32; LAST],
    next_last: usize,
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
    /// The published method.
    steps: Option<Steps>,
}

impl Exchange {
    /// An exchange that begins now. `reports`: what this rank has heard as the master already, in order. `core`:
    /// bytes a second that the network carries between the ranks, 0 where that is not known.
    pub(super) fn new(
        op: OpId,
        (context, number): (u16, u32),
        (send, receive): (Side, Side),
        (order, scheme, core): (Order, Scheme, u64),
        reports: Vec<(Rank, u32)>,
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
            copies_own: false,
            failure: None,
            got: Bitmap::new(rounds),
            waiting: BTreeSet::new(),
            inbound: BTreeMap::new(),
            last: [0; LAST],
            next_last: 0,
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
            steps: None,
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
        if let Scheme::Published { active } = scheme {
            let has_blocks = !exchange.sent.is_full();
            let id = (context, number);
            let length = match active {
                Active::All => 0,
                Active::Given(length) => length,
                // The master alone needs to know.
                Active::Computed if io.me == MASTER => exchange.network(core, io.credit).active(),
                Active::Computed => 0,
            };
            exchange.steps = Some(Steps::new(id, (rounds, length), has_blocks, reports, io));
        }
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

    /// What the published method's L is computed from: this rank's blocks stand for all.
    fn network(&self, core: u64, credit: &Credit) -> Network {
        let ranks = self.order.rounds();
        let blocks = 2 * u64::from(ranks - 1);
        let bytes: u64 = (0..ranks)
            .map(|round| self.sends(round) + self.receives(round))
            .sum();
        Network {
            ranks,
            block: bytes.checked_div(blocks).unwrap_or(0),
            rate: credit.rate(),
            round_trip: credit.round_trip(),
            core,
            port: credit.port(),
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
            // The master goes on until all are done, the others until it knows that they are.
            None if self.steps.as_ref().is_some_and(|steps| !steps.is_over()) => None,
            None if self.copies_own => None,
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

    /// Bytes for each rank, where they are equal.
    pub(super) fn equal_bytes(&self) -> Option<u64> {
        match self.send.layout {
            Layout::Equal { bytes } => Some(bytes),
            Layout::Parts(_) => None,
        }
    }

    /// Something is still to come from this rank, or to be taken by it.
    pub(super) fn needs(&self, rank: Rank) -> bool {
        let to = self.order.round(self.me, rank);
        let from = self.order.round(rank, self.me);
        let steps = self.steps.as_ref();
        !self.sent.contains(to)
            || !self.got.contains(from)
            || steps.is_some_and(|steps| steps.needs(rank))
    }

    /// Ranks that this one waits for: some in each direction, others in each turn.
    pub(super) fn waits_for(&self, turn: u32) -> impl Iterator<Item = Rank> {
        let rounds = self.order.rounds();
        let start = turn.wrapping_mul(WATCHED) % rounds;
        let missing = move |set: &Bitmap| {
            let mut found = Vec::new();
            let mut at = start;
            while found.len() < WATCHED as usize {
                let next = set.next_missing(at).or_else(|| set.next_missing(0));
                let Some(round) = next.filter(|round| !found.contains(round)) else {
                    break;
                };
                found.push(round);
                at = round + 1;
            }
            found
        };
        let sources = missing(&self.got).into_iter();
        let targets = missing(&self.sent).into_iter();
        let sources = sources.map(|round| self.order.source(self.me, round));
        let steps = self.steps.as_ref();
        let steps = steps.map(|steps| steps.waits_for(start, WATCHED as usize));
        sources
            .chain(targets.map(|round| self.order.target(self.me, round)))
            .chain(steps.into_iter().flatten())
    }

    pub(super) fn inbound_blocks(&self) -> usize {
        self.inbound.len()
    }

    /// Tells further receivers that this rank is ready, as far as that may be.
    fn advance(&mut self, io: &mut Io<'_>) {
        if self.steps.is_some() {
            return self.advance_steps(io);
        }
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
    fn advance_steps(&mut self, io: &mut Io<'_>) {
        while let Some(steps) = &mut self.steps {
            if self.sent.is_full() {
                return steps.all_served(io);
            }
            let Some(to) = steps.target() else {
                return;
            };
            let round = self.order.round(self.me, to);
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

    /// The master hears of a rank.
    pub(super) fn hear_as_master(&mut self, from: Rank, step: u32, io: &mut Io<'_>) {
        if let Some(steps) = &mut self.steps {
            steps.master_hears(from, step, io);
            self.advance_steps(io);
        }
    }

    /// The master names a target (step, place, targets in all, rank).
    pub(super) fn told_by_master(&mut self, told: (u32, u16, u16, Rank), io: &mut Io<'_>) {
        let (rounds, (.., count, to)) = (self.order.rounds(), told);
        let is_possible = to.0 < rounds && to != self.me && u32::from(count) <= rounds;
        if let Some(steps) = self.steps.as_mut().filter(|_| is_possible) {
            steps.told(told, io);
            self.advance_steps(io);
        }
    }

    /// The receiver serves somebody else: this rank asks again after a random time, which grows.
    pub(super) fn busy(&mut self, from: Rank, io: &mut Io<'_>) {
        let round = self.order.round(self.me, from);
        if let Some(slot) = self.slots.get_mut(&round) {
            let block = io.credit.takes(slot.packets.into());
            slot.conflicts = (slot.conflicts + 1).min(MAX_DOUBLINGS);
            slot.due = io.now + io.rng.jitter(block.saturating_mul(1 << slot.conflicts));
            self.slots_due = self.slots_due.min(slot.due);
        }
    }

    fn is_unasked(&self, bytes: u64) -> bool {
        !self.scheme.is_exclusive() && (packets(bytes) <= SMALL_PACKETS || self.scheme.is_blind())
    }

    fn begin(&mut self, round: u32, bytes: u64, unasked: bool, io: &mut Io<'_>) {
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

    fn sent_nothing(&self) -> bool {
        self.next <= 1
    }

    fn put_slot(&mut self, round: u32, due: Instant, pushed: u64) {
        let slot = Slot {
            due,
            reminded: 0,
            conflicts: 0,
            packets: packets(self.sends(round)),
            pushed,
            sent: false,
            serial: 0,
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
    pub(super) fn pulled(&mut self, from: Rank, pull: Pull, io: &mut Io<'_>) {
        let round = self.order.round(self.me, from);
        let bytes = self.sends(round);
        if bytes == 0 {
            return self.refuse(from, false, io);
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
        self.parked.remove(&round);
        if !self.slots.contains_key(&round) && !self.sent.contains(round) {
            self.put_slot(round, due, 0);
        }
        if let Some(slot) = self.slots.get_mut(&round) {
            (slot.due, slot.reminded, slot.sent) = (due, 0, false);
            slot.serial = pull.serial;
        }
    }

    /// All that a receiver asked for is sent, the end of its block with it.
    pub(super) fn sent_all(&mut self, to: Rank, io: &mut Io<'_>) {
        let round = self.order.round(self.me, to);
        if let Some(slot) = self.slots.get_mut(&round) {
            slot.due = io.now + io.credit.answer();
            slot.sent = true;
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
        // The other schemes say themselves whose turn it is.
        if self.scheme != Scheme::Default && !self.slots.contains_key(&round) {
            return;
        }
        self.tell(round, 0, io);
        if !self.slots.contains_key(&round) && !self.sent.contains(round) {
            self.parked.remove(&round);
            self.put_slot(round, io.now + self.patience(io.credit), 0);
        }
    }

    /// The other side says that the block cannot be.
    pub(super) fn refused(&mut self, from: Rank, gone: bool) {
        self.fail(match gone {
            true => Error::Withdrawn(from),
            false => Error::SizeMismatch { rank: from },
        });
    }

    /// The exchange has failed at another rank, which says why, and how many bytes it had for each other where these are equal.
    pub(super) fn failed_there(&mut self, from: Rank, error: Error, bytes: Option<u64>) {
        let round = self.order.round(from, self.me);
        let is_other =
            |bytes| bytes != self.receives(round) && (bytes > 0 || !self.got.contains(round));
        self.fail(match bytes.is_some_and(is_other) {
            true => Error::SizeMismatch { rank: from },
            false => error,
        });
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

    /// When something is due.
    pub(super) fn deadline(&self, credit: &Credit) -> Instant {
        let waits = credit.waits();
        let inbound = self
            .inbound
            .values()
            .filter_map(|inbound| inbound.deadline(waits))
            .min();
        let mut at = inbound.unwrap_or(Instant::FAR_FUTURE).min(self.slots_due);
        if let Some(overdue) = self.overdue.values().map(|(at, _)| *at).min() {
            at = at.min(overdue);
        }
        if !self.parked.is_empty() {
            at = at.min(self.remind_at);
        }
        if let Some(steps) = &self.steps {
            at = at.min(steps.deadline());
        }
        if !self.got.is_full() && self.waiting.is_empty() && self.inbound.is_empty() {
            at = at.min(self.ask_at);
        }
        at
    }

    /// Does what is due.
    pub(super) fn tick(&mut self, io: &mut Io<'_>) {
        let wait = io.credit.wait();
        let waits = io.credit.waits();
        let block = self.block();
        for (round, inbound) in &mut self.inbound {
            if inbound.deadline(waits).is_some_and(|at| at <= io.now) {
                let before = inbound.outstanding();
                if let Some(pull) = inbound.time_out(io.now, waits) {
                    io.say_pull(self.order.source(self.me, *round), block, pull);
                }
                io.credit.change(before, inbound.outstanding());
            }
        }
        if self.slots_due <= io.now {
            self.check_slots(io);
        }
        if let Some(steps) = &mut self.steps {
            steps.tick(io);
            self.advance_steps(io);
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
            let again = match slot.sent {
                true => TELL_AGAIN_SENT,
                false => TELL_AGAIN,
            };
            if slot.reminded >= again && !self.scheme.is_exclusive() {
                self.drop_slot(round);
                if self.parked.is_empty() {
                    self.remind_at = io.now + wait;
                }
                self.parked.insert(round);
                continue;
            }
            if self.scheme.is_blind() && io.grants.has(self.key(round)) {
                // Its turn has not come yet.
                self.slots.get_mut(&round).expect("it is there").due = io.now + wait;
                continue;
            }
            let slot = self.slots.get_mut(&round).expect("it is there");
            slot.due = io.now
                + match slot.sent {
                    true => io.credit.answer().saturating_mul(1 << slot.reminded.min(8)),
                    false => wait,
                };
            slot.reminded = slot.reminded.saturating_add(1);
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

    /// A rank is lost, whether this exchange needs it or not: the others may fail because of it, so who is waited for is asked soon,
    /// however long it has been silent.
    pub(super) fn hurry(&mut self, lost: Rank, io: &mut Io<'_>) {
        if let Some(steps) = &mut self.steps {
            steps.lost(lost, io);
        }
        (self.ask_doublings, self.remind_doublings) = (0, 0);
        let soon = io.now + io.credit.wait();
        self.ask_at = self.ask_at.min(soon);
        self.remind_at = self.remind_at.min(soon);
        for (at, asked) in self.overdue.values_mut() {
            (*at, *asked) = ((*at).min(soon), 0);
        }
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
        let wait = io.credit.answer().saturating_mul(1 << self.ask_doublings);
        self.ask_doublings = (self.ask_doublings + 1).min(MAX_DOUBLINGS + 4);
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
