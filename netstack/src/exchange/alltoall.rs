//! One all-to-all exchange at one rank.
//!
//! As sender it tells a few ranks at a time, in the order of the rounds, that it is ready for them,
//! and serves what they pull. As receiver it pulls from a few ready senders, the earliest round
//! first, as far as the credit goes. Small blocks go unasked. A rank that does not pull when it is
//! told gives up its place to others and is told again later; a rank that nobody is ready for asks
//! around: so late starters hold nobody up and are not forgotten.
//!
//! Everything is known by the number of its round: the round in which this rank sends to a peer,
//! and the round in which it receives from one. `numbering` has those of the published method,
//! which are no rounds.
//!
//! Neighbours: [`super::endpoint`] drives it; [`super::rounds`] has their order, [`super::inbound`]
//! and [`super::grants`] the blocks. `sending` has the one side, `receiving` the other.
//!
//! Invariant: a block is written once, and the exchange is done when every block has come and every
//! receiver has said that it has its own.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::credit::Credit;
use super::grants::Key;
use super::group::{Members, Together};
use super::inbound::Inbound;
use super::io::Io;
use super::liveness::MAX_WATCHED;
use super::message::{BlockId, Item, packets};
use super::published::active::Network;
use super::published::steps::{MASTER, Steps};
use super::rounds::Order;
use super::{Active, Error, Layout, OpId, PACKET, Scheme, Side};
use crate::broadcast::bitmap::Bitmap;
use crate::ids::Rank;
use crate::time::{Instant, Micros};
use crate::transport::retry::Backoff;

/// Receivers that are told at a time that this rank is ready.
const AHEAD: usize = 8;
/// Whoever asks before its turn has come is told at once as long as no more is told to all than so
/// many windows of one sender: twice what a rank tells by itself.
const TOLD_AHEAD: u32 = 4;
/// Senders that are pulled from at a time.
const SENDERS: usize = 6;
/// A receiver that was told so often in vain gives up its place: where one datagram in a hundred is
/// lost, two of these, or their answers, are once in 2,500 times.
const TELL_AGAIN: u8 = 2;
/// The same where the whole block was sent.
const TELL_AGAIN_SENT: u8 = 6;
/// Senders that should be ready and are not, that are known one by one: as many as are watched.
pub(super) const MAX_OVERDUE: usize = MAX_WATCHED;
/// Senders of the next rounds that are asked when a block begins, where they have not said that
/// they are ready: the one after this, and the one after that where the first one is late.
const ASKED_AHEAD: usize = 2;
/// Senders of the last rounds, those that are told at the same time, say when they have sent all,
/// even where nothing was lost yet: no later block hides the wait for the end of theirs.
const ENDS_TOLD: u32 = AHEAD as u32;
/// Senders that hear twice that their block has come: of the same rounds.
const LAST: usize = AHEAD;
/// Ranks that are told again, or asked, at a time: half as many as are told, since most of them are
/// late.
const REMINDED: usize = AHEAD / 2;
/// Ranks of each direction that are watched at a time, whether they are there: two exchanges at
/// once leave room for no others.
const WATCHED: u32 = MAX_WATCHED as u32 / 4;
/// Blocks of so many packets, or fewer, go unasked: to be asked for costs three control datagrams
/// (ready, pull, got), which are hardly fewer.
const SMALL_PACKETS: u32 = 4;
/// Priority of blocks of exchanges: messages go before them.
const FIRST_PRIORITY: u32 = 1;

mod numbering;
mod receiving;
mod sending;

use numbering::Numbering;
use sending::Slot;

/// See the module.
#[derive(Debug)]
pub(super) struct Exchange {
    pub op: OpId,
    pub context: u16,
    pub number: u32,
    members: Members,
    pub signature: u32,
    numbering: Numbering,
    /// Packets of the longest block that this rank sends.
    longest: u32,
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
    asked: u32,
    ask_next: u32,
    /// Senders of earlier rounds than the last block that came, which are not ready: when they are
    /// asked next, and how often they were asked.
    overdue: BTreeMap<u32, (Instant, u32)>,

    /// Of the rounds before this, those whose block is missing are known: [`Exchange::look_back`].
    looked: u32,

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
    /// Those of them that have said that they know, and ask when their turn comes.
    noted: BTreeSet<u32>,
    remind_at: Instant,
    reminded: u32,
    remind_next: u32,
    slots_due: Instant,
    /// The published method.
    steps: Option<Steps>,
}

impl Exchange {
    /// An exchange that begins now. `reports`: what this rank has heard as the master already, in
    /// order. `core`: bytes a second that the network carries between the ranks, 0 where that is
    /// not known.
    pub(super) fn new(
        op: OpId,
        (context, number): (u16, u32),
        (send, receive): (Side, Side),
        members: Members,
        (order, scheme, core): (Order, Scheme, u64),
        reports: Vec<(Rank, u32)>,
        io: &mut Io<'_>,
    ) -> Self {
        let numbering = match scheme {
            Scheme::Published { .. } => Numbering::Distance(members.size()),
            Scheme::Default | Scheme::Compared(_) => Numbering::Rounds(order),
        };
        let rounds = numbering.rounds();
        let sequence = match scheme {
            Scheme::Compared(baseline) => baseline.sequence(&order, members.me(), io.rng),
            Scheme::Default | Scheme::Published { .. } => None,
        };
        let mut exchange = Exchange {
            op,
            context,
            number,
            signature: members.signature(Together::Exchange),
            members,
            numbering,
            longest: 0,
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
            asked: 0,
            ask_next: 0,
            overdue: BTreeMap::new(),
            looked: 0,
            sent: Bitmap::new(rounds),
            sequence,
            next: 0,
            slots: BTreeMap::new(),
            pushed_bytes: 0,
            told_packets: 0,
            parked: BTreeSet::new(),
            noted: BTreeSet::new(),
            remind_at: Instant::FAR_FUTURE,
            reminded: 0,
            remind_next: 0,
            slots_due: Instant::FAR_FUTURE,
            steps: None,
        };
        for round in 0..rounds {
            let bytes = exchange.sends(round);
            exchange.longest = exchange.longest.max(packets(bytes));
            if bytes == 0 {
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
                Active::Computed if exchange.members.me() == MASTER.0 => {
                    exchange.network(core, io.credit).active()
                }
                Active::Computed => 0,
            };
            let members = exchange.members.clone();
            exchange.steps = Some(Steps::new(id, (members, length), has_blocks, reports, io));
        }
        exchange.advance(io);
        exchange
    }

    /// Bytes that this rank sends in a round; none to itself.
    fn sends(&self, round: u32) -> u64 {
        match self.numbering.target(self.members.me(), round) {
            to if to == self.members.me() => 0,
            to => self.send.layout.part(to).bytes,
        }
    }

    /// Bytes that this rank receives in a round; none from itself.
    fn receives(&self, round: u32) -> u64 {
        match self.numbering.source(self.members.me(), round) {
            from if from == self.members.me() => 0,
            from => self.receive.layout.part(from).bytes,
        }
    }

    /// Whom this rank sends to in a round.
    fn target(&self, round: u32) -> Rank {
        let place = self.numbering.target(self.members.me(), round);
        self.members.rank(place)
    }

    /// Whom it receives from in a round.
    fn source(&self, round: u32) -> Rank {
        let place = self.numbering.source(self.members.me(), round);
        self.members.rank(place)
    }

    /// The round in which this rank sends to another that takes part.
    fn round_to(&self, to: Rank) -> u32 {
        self.numbering.number(self.members.me(), self.place(to).0)
    }

    /// The round in which this rank receives from another that takes part.
    fn round_from(&self, from: Rank) -> u32 {
        self.numbering.number(self.place(from).0, self.members.me())
    }

    /// The place of a rank that takes part, as the published method calls it.
    fn place(&self, rank: Rank) -> Rank {
        Rank(self.members.place(rank).expect("a rank that takes part"))
    }

    /// A rank takes part in it. Nothing of others is for it.
    pub(super) fn has(&self, rank: Rank) -> bool {
        self.members.has(rank)
    }

    /// A rank is the master of the published method in it.
    pub(super) fn is_master(&self, rank: Rank) -> bool {
        self.members.rank(MASTER.0) == rank
    }

    /// What the published method's L is computed from: this rank's blocks stand for all.
    fn network(&self, core: u64, credit: &Credit) -> Network {
        let ranks = self.numbering.rounds();
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
        let place = match self.sequence {
            Some(_) => 0,
            None => round,
        };
        (FIRST_PRIORITY + place, self.target(round), self.block())
    }

    /// How long a receiver that was told may take until it pulls: the rounds before it.
    fn patience(&self, credit: &Credit) -> Micros {
        let longest = self.longest.max(SMALL_PACKETS);
        credit.takes(u64::from(longest) * (AHEAD as u64 + 2)) + credit.wait()
    }

    /// How long the answer to a block takes that goes unasked: it waits behind what else goes
    /// unasked.
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

    /// Something goes to this rank, or comes from it.
    pub(super) fn has_part(&self, rank: Rank) -> bool {
        let (to, from) = (&self.send.layout, &self.receive.layout);
        let place = self.members.place(rank);
        place.is_some_and(|place| to.part(place).bytes > 0 || from.part(place).bytes > 0)
    }

    /// Something is still to come from this rank, or to be taken by it.
    pub(super) fn needs(&self, rank: Rank) -> bool {
        let steps = self.steps.as_ref();
        if !self.has(rank) {
            return false;
        }
        !self.sent.contains(self.round_to(rank))
            || !self.got.contains(self.round_from(rank))
            || steps.is_some_and(|steps| steps.needs(self.place(rank)))
    }

    /// This rank waits for that one, to exchange with it or to hear from it.
    pub(super) fn awaits(&self, rank: Rank) -> bool {
        let place = self.members.place(rank).map(Rank);
        let steps = self.steps.as_ref().zip(place);
        self.needs(rank) || steps.is_some_and(|(steps, place)| steps.awaits(place))
    }

    /// Ranks that this one waits for: some in each direction, others in each turn.
    pub(super) fn waits_for(&self, turn: u32) -> impl Iterator<Item = Rank> {
        let rounds = self.numbering.rounds();
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
        let sources = sources.map(|round| self.source(round));
        let steps = self.steps.as_ref();
        let steps = steps.map(|steps| steps.waits_for(start, WATCHED as usize));
        let steps = steps.into_iter().flatten();
        sources
            .chain(targets.map(|round| self.target(round)))
            .chain(steps.map(|place| self.members.rank(place.0)))
    }

    pub(super) fn inbound_blocks(&self) -> usize {
        self.inbound.len()
    }

    /// The other side says that the block cannot be.
    pub(super) fn refused(&mut self, from: Rank, gone: bool) {
        self.fail(match gone {
            true => Error::Withdrawn(from),
            false => Error::SizeMismatch { rank: from },
        });
    }

    /// The exchange has failed at another rank, which says why, and how many bytes it had for each
    /// other where these are equal.
    pub(super) fn failed_there(&mut self, from: Rank, error: Error, bytes: Option<u64>) {
        let round = self.round_from(from);
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
                    let from = self
                        .members
                        .rank(self.numbering.source(self.members.me(), *round));
                    io.say_pull(from, block, pull);
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
            if self.asks_for(round) {
                continue;
            }
            self.ask(round, io);
            if let Some((at, asked)) = self.overdue.get_mut(&round) {
                *asked = asked.saturating_add(1);
                *at = io.now + Backoff::new(wait, waits.longest).after(*asked);
            }
        }
        let starves = self.waiting.is_empty() && self.inbound.is_empty();
        if self.ask_at <= io.now && starves && !self.got.is_full() {
            self.ask_around(io);
        }
    }

    /// A rank is lost, whether this exchange needs it or not: the others may fail because of it, so
    /// who is waited for is asked soon, however long it has been silent.
    pub(super) fn hurry(&mut self, lost: Rank, io: &mut Io<'_>) {
        let is_master = self.is_master(lost);
        if let Some(steps) = &mut self.steps {
            steps.lost(is_master, io);
        }
        (self.asked, self.reminded) = (0, 0);
        self.noted.clear();
        let soon = io.now + io.credit.wait();
        self.ask_at = self.ask_at.min(soon);
        self.remind_at = self.remind_at.min(soon);
        // Short blocks that are pulled already have no time here.
        let due = |(at, _): &&mut (Instant, u32)| *at < Instant::FAR_FUTURE;
        for (at, asked) in self.overdue.values_mut().filter(due) {
            (*at, *asked) = ((*at).min(soon), 0);
        }
    }

    /// A short block that should have come was probably lost: it is pulled, as soon as there is
    /// room for it.
    fn asks_for(&mut self, round: u32) -> bool {
        let is_here = self.inbound.contains_key(&round) || self.waiting.contains(&round);
        if is_here || !self.is_short(self.receives(round)) {
            return false;
        }
        self.waiting.insert(round);
        if let Some((at, _)) = self.overdue.get_mut(&round) {
            *at = Instant::FAR_FUTURE;
        }
        true
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
        let backoff = Backoff::new(io.credit.answer(), io.credit.waits().longest);
        self.ask_at = io.now + backoff.wait(self.asked, io.rng);
        self.asked = self.asked.saturating_add(1);
    }
}
