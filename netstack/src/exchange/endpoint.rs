//! One rank of one job: posts operations, takes datagrams, gives datagrams and events.
//!
//! The drain loop is that of [`crate::node::Endpoint`]. Who has the job's connection table sends
//! the datagrams: here a peer is its rank. An endpoint answers its peers whatever its program does,
//! so it is fed with datagrams from the launch of the job on, before the program has posted
//! anything.
//!
//! Control goes before data: an answer that waits behind a window of data costs its receiver the
//! same time again.
//!
//! Invariant: nothing is written to memory but through an operation that is posted and not done.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::alltoall::Exchange;
use super::barrier::Barrier;
use super::credit::{Credit, PACED_BELOW};
use super::envelope::{Envelopes, Seal};
use super::grants::{Grants, Train};
use super::group::{Members, Together};
use super::incoming::Receiving;
use super::io::Io;
use super::liveness::{COMPUTES, INTERVAL, Liveness, Verdict};
use super::message::{BlockId, Body, Item, Loss, NUMBER_MASK, Packet};
use super::numbers::Numbers;
use super::outbox::Outbox;
use super::own::Purpose;
use super::published::steps::EarlyReports;
use super::rounds::{Order, ranks_of_a_leaf};
use super::tagged::{Messages, Sending};
use super::{
    Among, BufferId, Config, Counters, DEFAULT_EAGER, Error, Event, Footprint, MAX_OPS, MAX_RANKS,
    MAX_TOGETHER, Memory, Op, OpId, PostError, Side, wire,
};
use crate::ids::Rank;
use crate::rng::Rng;
use crate::time::{Instant, Micros};

/// Ranks that are ready for exchanges that this one has not begun, beside two of each rank: one for
/// each exchange that may be posted.
const MAX_EARLY: usize = MAX_TOGETHER;
/// Tokens of barriers that this rank has not reached, by context, number and rank: one for each
/// barrier that may be posted.
const MAX_EARLY_TOKENS: usize = MAX_TOGETHER;
/// A barrier that is not done so long after a rank was lost needs that rank. Where a token was lost
/// its sender may be done with the barrier, and answers who asks for it when it looks at its
/// network: once a second while its program computes. That is twice in this time.
const BARRIER_WITHIN: Micros = Micros::from_millis(2_500);
/// Looks at who is there after which an exchange has others watched: a rank that computes has
/// looked once by then.
const WATCH_TURN: u32 = (COMPUTES.0 / INTERVAL.0) as u32;
/// Bytes of most control datagrams, for the pace: the envelope, an item, and some.
const CONTROL: usize = 48;

/// See the module.
#[derive(Debug)]
pub struct Endpoint {
    config: Config,
    envelopes: Envelopes,
    order: Order,
    /// Bytes a second that the network carries, all ranks together; 0: not known.
    core: u64,
    next_op: u32,
    exchanges: Vec<Exchange>,
    barriers: Vec<Barrier>,
    messages: Messages,
    numbers: Numbers,
    /// Ranks that are ready for an exchange that this one has not begun: the bytes of their blocks,
    /// and what they take part in, 0 where a packet of the block was all that came.
    early: BTreeMap<(u16, u32, Rank), (u64, u32)>,
    /// Published scheme, at the master: ranks that are ready for an exchange that it has not begun.
    early_reports: EarlyReports,
    /// What came of a barrier before this rank reached it, by its number and who says it.
    early_tokens: BTreeMap<(u16, u32, Rank), EarlyToken>,
    lost: Losses,
    /// The rank whose loss the program was told of last: if it ends, it ends because of it.
    cause: Option<Rank>,
    left: bool,
    /// It has, and well.
    is_well: bool,
    outbox: Outbox,
    grants: Grants,
    credit: Credit,
    liveness: Liveness,
    looks: u32,
    counters: Counters,
    events: VecDeque<Event>,
    rng: Rng,
    next_tick: Instant,
    /// Something changed that may allow a pull.
    eager: bool,
}

/// Gives the parts of an endpoint that operations act on, while others of its fields are in use.
macro_rules! io {
    ($self:ident, $now:expr) => {
        &mut Io {
            now: $now,
            me: $self.config.me,
            outbox: &mut $self.outbox,
            grants: &mut $self.grants,
            credit: &mut $self.credit,
            counters: &mut $self.counters,
            rng: &mut $self.rng,
        }
    };
}

mod checks;
mod endings;
mod losses;
mod receiving;
mod sending;
mod together;

pub(super) use endings::reason;
pub(super) use losses::Losses;
use together::EarlyToken;

impl Endpoint {
    /// A rank that has done nothing yet. Invariant: the rank is below the size, and the size at
    /// most [`MAX_RANKS`].
    pub fn new(config: Config, _now: Instant) -> Self {
        assert!(
            config.me.0 < config.size && config.size <= MAX_RANKS,
            "no such rank"
        );
        let eager = match config.eager_bytes {
            0 => DEFAULT_EAGER,
            bytes => bytes,
        };
        let key = config.key.exchange_key(config.job, config.epoch);
        let seal = Seal::new(&key, config.job);
        Endpoint {
            envelopes: Envelopes::new(seal, config.me, config.size),
            order: Order::new(config.size, config.leaf),
            core: 0,
            next_op: 0,
            exchanges: Vec::new(),
            barriers: Vec::new(),
            messages: Messages::new(eager as usize, config.size),
            numbers: Numbers::default(),
            early: BTreeMap::new(),
            early_reports: EarlyReports::default(),
            early_tokens: BTreeMap::new(),
            lost: Losses::default(),
            cause: None,
            left: false,
            is_well: false,
            outbox: Outbox::default(),
            grants: Grants::default(),
            credit: Credit::new(config.rate, config.port_buffer),
            liveness: Liveness::new(),
            looks: 0,
            counters: Counters::default(),
            events: VecDeque::new(),
            rng: Rng::new(config.seed ^ u64::from(config.me.0) << 32),
            next_tick: Instant::FAR_FUTURE,
            eager: false,
            config,
        }
    }

    /// Begins an operation. Short operations may be done at once; the event tells.
    ///
    /// # Errors
    /// Why it was not taken; nothing has changed then, but that one which needs a lost rank counts
    /// as posted and failed.
    pub fn post(
        &mut self,
        now: Instant,
        op: Op,
        memory: &mut dyn Memory,
    ) -> Result<OpId, PostError> {
        if let Err(error) = self.check(&op) {
            if let PostError::Lost(rank) = error {
                self.cause = Some(rank);
                self.note_refused(&op, rank);
            }
            return Err(error);
        }
        let id = OpId(self.next_op);
        self.next_op = self.next_op.wrapping_add(1);
        match op {
            Op::Send {
                to,
                context,
                tag,
                buffer,
                bytes,
                is_synchronous,
            } => {
                let sending = Sending {
                    op: Some(id),
                    to,
                    context: context as u16,
                    tag,
                    buffer,
                    bytes,
                    is_synchronous,
                };
                self.send(now, sending, memory)?;
            }
            Op::Receive {
                from,
                context,
                tag,
                buffer,
                capacity,
            } => {
                let receiving = Receiving {
                    op: id,
                    from,
                    context: context as u16,
                    tag,
                    buffer,
                    capacity,
                    claims: false,
                };
                let (messages, io) = (&mut self.messages, io!(self, now));
                messages
                    .incoming
                    .post(receiving, memory, io, &mut messages.events);
            }
            Op::Probe {
                from,
                context,
                tag,
                claims,
                waits,
            } => {
                let probe = Receiving {
                    op: id,
                    from,
                    context: context as u16,
                    tag,
                    buffer: BufferId(0),
                    capacity: 0,
                    claims,
                };
                let messages = &mut self.messages;
                if !messages.incoming.probe(probe, waits, &mut messages.events) {
                    return Err(PostError::NoMessage);
                }
            }
            Op::ReceiveClaimed {
                claim,
                buffer,
                capacity,
            } => {
                let receiving = Receiving {
                    op: id,
                    from: None,
                    context: 0,
                    tag: None,
                    buffer,
                    capacity,
                    claims: false,
                };
                let (messages, io) = (&mut self.messages, io!(self, now));
                let events = &mut messages.events;
                messages
                    .incoming
                    .receive_claimed(claim, receiving, memory, io, events);
            }
            Op::AllToAll {
                among,
                send,
                receive,
            } => self.begin_exchange(now, id, &among, (send, receive)),
            Op::Barrier { among } => self.begin_barrier(now, id, &among),
        }
        self.liveness.start(now);
        self.copy_own(memory);
        self.settle(now);
        Ok(id)
    }

    /// An operation was not taken because a rank is lost. Others that wait for this one in it are
    /// to hear of that.
    fn note_refused(&mut self, op: &Op, lost: Rank) {
        match *op {
            Op::Receive { from: None, .. } | Op::Probe { from: None, .. } => self.lost.tell(lost),
            Op::AllToAll { ref among, .. } => self.skip_exchange(among, Error::RankLost(lost)),
            Op::Barrier { ref among } => {
                let signature = self.members(among).signature(Together::Barrier);
                let (id, _) = self.begin_number(among, signature);
                self.numbers.spoil(id.0, id.1);
                self.numbers.note_fault(id, Error::RankLost(lost), None);
            }
            Op::Send { .. } | Op::Receive { .. } | Op::Probe { .. } | Op::ReceiveClaimed { .. } => {
            }
        }
    }

    /// The ranks of an operation that was checked.
    fn members(&self, among: &Among) -> Members {
        let members = among.group.seen_by(self.config.me, self.config.size);
        members.expect("a group that was checked")
    }

    /// The order of the rounds of a group: leaf after leaf where its ranks are placed so.
    fn order_of(&self, members: &Members) -> Order {
        if members.is_all() {
            return self.order;
        }
        let leaf = self.order.leaf().map_or(0, |leaf| {
            let switches = (0..members.size()).map(|place| members.rank(place).0 / leaf);
            ranks_of_a_leaf(&switches.collect::<Vec<u32>>())
        });
        Order::new(members.size(), leaf)
    }

    fn begin_exchange(
        &mut self,
        now: Instant,
        op: OpId,
        among: &Among,
        (send, receive): (Side, Side),
    ) {
        let members = self.members(among);
        let (id, early) = self.begin_number(among, members.signature(Together::Exchange));
        let (me, ready) = (members.me(), early.ready);
        let (from, to) = (send.layout.part(me), receive.layout.part(me));
        let places = ((send.buffer, from.offset), (receive.buffer, to.offset));
        let how = (self.order_of(&members), self.config.scheme, self.core);
        let io = io!(self, now);
        let reports = early.reports;
        let mut exchange = Exchange::new(op, id, (send, receive), members, how, reports, io);
        exchange.received_bytes = from.bytes;
        if from.bytes > 0 {
            exchange.copies_own = true;
            let own = &mut self.messages.incoming.own;
            own.add(Purpose::Block(op), places.0, places.1, from.bytes);
        }
        // Fewer find room at the port beside all that may come, and wait there for no longer than
        // their senders do for an answer.
        if ready.len() > io.credit.total() as usize / 2 {
            io.credit.assume_unasked(now);
        }
        for (rank, bytes) in ready {
            if exchange.has(rank) {
                exchange.ready(rank, bytes, 0, io);
            }
        }
        self.exchanges.push(exchange);
        for (rank, theirs) in early.others {
            self.found_other(rank, id, theirs);
        }
    }

    fn begin_barrier(&mut self, now: Instant, op: OpId, among: &Among) {
        let members = self.members(among);
        let (id, early) = self.begin_number(among, members.signature(Together::Barrier));
        let mut barrier = Barrier::new(op, id, members, early.stages, io!(self, now));
        if let Some(rank) = early.broken {
            barrier.fail(Error::Other(rank));
        }
        self.barriers.push(barrier);
        for (rank, theirs) in early.others {
            self.found_other(rank, id, theirs);
        }
    }

    /// Copies a piece of what this rank sends to itself.
    fn copy_own(&mut self, memory: &mut dyn Memory) {
        let (messages, me) = (&mut self.messages, self.config.me);
        let own = &mut messages.incoming.own;
        let Some((op, result)) = own.step(me, memory, &mut messages.events) else {
            return;
        };
        let mut exchanges = self.exchanges.iter_mut();
        if let Some(exchange) = exchanges.find(|exchange| exchange.op == op) {
            exchange.copies_own = false;
            if result.is_err() {
                exchange.fail(Error::Gone);
            }
        }
    }

    /// Ends an operation without an event: its memory is not touched again. Peers that wait for it
    /// hear that it does not come; of a message that nobody has begun to receive they never hear.
    /// The message of a claim is nobody's again.
    pub fn cancel(&mut self, now: Instant, op: OpId, memory: &mut dyn Memory) {
        self.messages.cancel(op, memory, io!(self, now));
        if let Some(at) = self.exchanges.iter().position(|exchange| exchange.op == op) {
            // Who needs this rank in it hears that, whoever is lost.
            let id = (self.exchanges[at].context, self.exchanges[at].number);
            let error = Error::Withdrawn(self.config.me);
            self.numbers.note_fault(id, error, None);
            self.remove_exchange(at, true);
        }
        if let Some(at) = self.barriers.iter().position(|barrier| barrier.op == op) {
            let barrier = self.remove_barrier(at, true);
            let error = Error::Withdrawn(self.config.me);
            self.numbers.note_fault(barrier.id(), error, None);
        }
        self.settle(now);
    }

    fn remove_exchange(&mut self, at: usize, spoiled: bool) {
        let exchange = self.exchanges.remove(at);
        exchange.release(&mut self.credit);
        let (context, number) = (exchange.context, exchange.number);
        self.grants
            .retain(|_, block| block != BlockId::Exchange(context, number));
        let (messages, me) = (&mut self.messages, self.config.me);
        let own = &mut messages.incoming.own;
        own.cancel(exchange.op, me, &mut messages.events);
        if spoiled {
            self.numbers.spoil(context, number);
        }
    }

    fn remove_barrier(&mut self, at: usize, spoiled: bool) -> Barrier {
        let barrier = self.barriers.remove(at);
        if spoiled {
            self.numbers.spoil(barrier.context, barrier.number);
        }
        barrier
    }

    /// Somebody says how many bytes a second the rank's link carries, framing included; 0: not
    /// known. That is believed of links that are slow enough to be paced; others are measured, as
    /// if nothing were known.
    pub fn set_rate(&mut self, now: Instant, rate: u64) {
        self.credit
            .set_rate(now, if rate < PACED_BELOW { rate } else { 0 });
        self.settle(now);
    }

    /// How many ranks share each leaf switch, see [`Config::leaf`]: for exchanges that begin from
    /// now on. An exchange is right whatever order each rank has. Whether they begin in another
    /// order than before.
    pub fn set_leaf(&mut self, leaf: u32) -> bool {
        let before = core::mem::replace(&mut self.order, Order::new(self.config.size, leaf));
        before != self.order
    }

    /// How many ranks share each leaf switch, where exchanges that begin now go in the order that
    /// suits these.
    pub fn leaf(&self) -> Option<u32> {
        self.order.leaf()
    }

    /// How many bytes a second the network carries between the ranks, all together; 0: as much as
    /// all links. It bounds what [`super::Active::Computed`] comes to.
    pub fn set_core(&mut self, core: u64) {
        self.core = core;
    }

    /// Something under way waits for this rank.
    pub fn waits_for(&self, rank: Rank) -> bool {
        let mut barriers = self.barriers.iter();
        self.exchanges.iter().any(|exchange| exchange.awaits(rank))
            || barriers.any(|barrier| barrier.waits_for() == rank)
            || self
                .messages
                .waits_for(&self.lost)
                .any(|other| other == rank)
    }

    /// Nothing waits to be sent, and every message is acknowledged. Whoever missed an answer may
    /// still ask for it.
    pub fn is_drained(&self) -> bool {
        !self.sends() && self.messages.unacknowledged() == 0
    }

    /// Something waits to be sent or copied.
    fn sends(&self) -> bool {
        self.outbox.len() > 0
            || self.grants.len() > 0
            || self.messages.has_short()
            || self.messages.incoming.own.is_pending()
    }

    /// Operations that are posted and not done.
    fn operations(&self) -> usize {
        self.exchanges.len() + self.barriers.len() + self.messages.operations()
    }

    /// Something is under way, so that datagrams are expected.
    pub fn is_active(&self) -> bool {
        self.operations() > 0 || self.messages.unacknowledged() > 0 || self.outbox.len() > 0
    }

    /// Takes the results of operations, and notes when something is due next.
    fn settle(&mut self, now: Instant) {
        self.eager = true;
        self.fail_without_lost(now);
        let mut at = 0;
        while at < self.exchanges.len() {
            let Some(result) = self.exchanges[at].result() else {
                at += 1;
                continue;
            };
            let exchange = &self.exchanges[at];
            let op = exchange.op;
            if let Err(error) = result {
                let id = (exchange.context, exchange.number);
                let equal_bytes = exchange.equal_bytes();
                self.numbers.note_fault(id, error, equal_bytes);
            }
            self.remove_exchange(at, result.is_err());
            self.finish(op, result);
        }
        at = 0;
        while at < self.barriers.len() {
            let Some(result) = self.barriers[at].result() else {
                at += 1;
                continue;
            };
            let barrier = self.remove_barrier(at, result.is_err());
            if let Err(error) = result {
                self.numbers.note_fault(barrier.id(), error, None);
                self.pass_on(&barrier, error);
            }
            self.finish(barrier.op, result);
        }
        self.events.append(&mut self.messages.events);
        let exchanges = self
            .exchanges
            .iter()
            .map(|exchange| exchange.deadline(&self.credit));
        let barriers = self.barriers.iter().map(Barrier::deadline);
        let soonest = exchanges
            .chain(barriers)
            .min()
            .unwrap_or(Instant::FAR_FUTURE);
        let messages = self.messages.deadline(self.credit.waits());
        self.next_tick = soonest.min(messages).min(self.liveness.deadline());
    }

    fn finish(&mut self, op: OpId, result: Result<u64, Error>) {
        self.events.push_back(match result {
            Ok(bytes) => Event::Done {
                op,
                bytes,
                peer: self.config.me,
                tag: 0,
            },
            Err(error) => Event::Failed { op, error },
        });
    }

    fn tick(&mut self, now: Instant) {
        if now < self.next_tick {
            return;
        }
        let io = io!(self, now);
        self.exchanges
            .iter_mut()
            .for_each(|exchange| exchange.tick(io));
        for barrier in &mut self.barriers {
            let ended = self.lost.earliest_ended(|rank| barrier.has(rank));
            barrier.tick(ended, io);
        }
        self.messages.tick(io);
        if self.liveness.deadline() <= now {
            self.check_liveness(now);
        }
        self.settle(now);
    }

    fn check_liveness(&mut self, now: Instant) {
        let me = self.config.me;
        let turn = self.looks / WATCH_TURN;
        self.looks = self.looks.wrapping_add(1);
        let exchanges = self.exchanges.iter();
        let exchanges = exchanges.flat_map(|exchange| exchange.waits_for(turn));
        let barriers = self.barriers.iter().map(Barrier::waits_for);
        let all = exchanges
            .chain(barriers)
            .chain(self.messages.waits_for(&self.lost));
        let all = all.filter(|rank| *rank != me);
        let all: Vec<Rank> = all.collect();
        let asked = self.liveness.asked();
        let done: Vec<Rank> = asked.filter(|rank| !self.waits_for(*rank)).collect();
        self.liveness.forget(&done);
        let verdicts = self.liveness.tick(now, all.into_iter(), &mut self.rng);
        for verdict in verdicts {
            match verdict {
                Verdict::Ask(rank, question) => self.outbox.push(rank, Item::Ping { question }),
                Verdict::Lost(rank) => self.lose(now, Loss::of(rank), rank),
            }
        }
    }

    /// Asks for packets, if something changed since.
    fn pull(&mut self, now: Instant) {
        if !core::mem::take(&mut self.eager) {
            return;
        }
        let io = io!(self, now);
        self.messages.incoming.pull(io);
        self.exchanges
            .iter_mut()
            .for_each(|exchange| exchange.pull(io));
    }

    /// Control and short messages.
    fn next_first(&mut self, now: Instant, memory: &mut dyn Memory) -> Option<(Rank, Body)> {
        self.tick(now);
        if self.messages.incoming.own.is_pending() {
            self.copy_own(memory);
            self.settle(now);
        }
        self.pull(now);
        if let Some((to, items)) = self.outbox.pop() {
            self.counters.control_sent += 1;
            self.credit.sent(now, 1, CONTROL);
            return Some((to, Body::Control(items)));
        }
        let short = self.messages.next_short(memory, io!(self, now));
        self.events.append(&mut self.messages.events);
        short
    }

    fn next_train(&mut self, now: Instant, most: u32) -> Option<Train> {
        if !self.credit.may_send(now) {
            return None;
        }
        let train = self.grants.next(most)?;
        let count = train.data.packets.count_ones();
        let bytes = train.data.bytes() + count as usize * wire::DATA_OVERHEAD;
        self.credit.sent(now, count, bytes);
        self.counters.packets_sent += u64::from(train.data.packets.count_ones());
        let block = train.data.block;
        if let Some(serial) = train.tell {
            self.outbox.push(train.to, Item::Served { block, serial });
        }
        if train.ended
            && let BlockId::Exchange(context, number) = block
            && let Some(exchange) = find(&mut self.exchanges, (context, number))
        {
            exchange.sent_all(train.to, io!(self, now));
        }
        Some(train)
    }

    /// The next packet, data as up to `most` packets of a block without their bytes: for
    /// simulations.
    pub fn poll_packet(
        &mut self,
        now: Instant,
        most: u32,
        memory: &mut dyn Memory,
    ) -> Option<(Rank, Packet)> {
        let from = self.config.me;
        if let Some((to, body)) = self.next_first(now, memory) {
            return Some((to, Packet { from, body }));
        }
        let Train { to, data, .. } = self.next_train(now, most)?;
        let body = Body::Data(data);
        Some((to, Packet { from, body }))
    }

    /// Writes the next datagram to the front of `out`, which has [`crate::MAX_DATAGRAM`] bytes:
    /// whom it is for, and its length.
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        out: &mut [u8],
        memory: &mut dyn Memory,
    ) -> Option<(Rank, usize)> {
        loop {
            if let Some((to, body)) = self.next_first(now, memory) {
                let packet = Packet {
                    from: self.config.me,
                    body,
                };
                match wire::emit(&mut self.envelopes, to, &packet, out) {
                    Some(length) => return Some((to, length)),
                    // Somebody has named a rank that there is not.
                    None => continue,
                }
            }
            let Train { to, data, .. } = self.next_train(now, 1)?;
            let fill = |room: &mut [u8]| match data.block {
                BlockId::Message(number) => self
                    .messages
                    .fill(to, number, data.first, room, memory)
                    .is_ok(),
                BlockId::Exchange(context, number) => find(&mut self.exchanges, (context, number))
                    .is_some_and(|exchange| exchange.fill(to, data.first, room, memory).is_ok()),
            };
            if let Some(length) = wire::emit_data(&mut self.envelopes, to, &data, out, fill) {
                return Some((to, length));
            }
            self.unreadable(now, to, data.block);
        }
    }

    /// The memory of a block that is to be sent is not there.
    fn unreadable(&mut self, now: Instant, to: Rank, block: BlockId) {
        let io = io!(self, now);
        match block {
            BlockId::Message(number) => self.messages.gone(to, number, io),
            BlockId::Exchange(context, number) => {
                if let Some(exchange) = find(&mut self.exchanges, (context, number)) {
                    exchange.memory_gone(to, io);
                }
            }
        }
        self.settle(now);
    }

    /// When to poll again; None: nothing is under way.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let at = match (self.sends(), self.outbox.len(), self.messages.has_short()) {
            (false, ..) => self.next_tick,
            // Packets that wait for their time.
            (true, 0, false) if !self.messages.incoming.own.is_pending() => {
                self.credit.sends_at().min(self.next_tick)
            }
            (true, ..) => Instant::ZERO,
        };
        (at != Instant::FAR_FUTURE).then_some(at)
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        if let Event::Failed {
            error: Error::RankLost(rank),
            ..
        } = event
        {
            self.cause = Some(rank);
        }
        Some(event)
    }

    /// What it counted.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// What it keeps.
    pub fn footprint(&self) -> Footprint {
        let blocks = self
            .exchanges
            .iter()
            .map(Exchange::inbound_blocks)
            .sum::<usize>();
        Footprint {
            ops: self.operations(),
            inbound: blocks + self.messages.inbound_blocks(),
            under_way: self.credit.used(),
            grants: self.grants.len(),
            queued: self.outbox.len(),
            eager_bytes: self.messages.kept_bytes(),
        }
    }
}

fn find(exchanges: &mut [Exchange], (context, number): (u16, u32)) -> Option<&mut Exchange> {
    exchanges
        .iter_mut()
        .find(|exchange| (exchange.context, exchange.number) == (context, number))
}

const _: () = assert!(NUMBER_MASK as u64 > MAX_OPS as u64);
