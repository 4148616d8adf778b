//! Messages between two ranks, matched by context and tag.
//!
//! A message of up to [`SHORT`] bytes goes with the datagram that offers it. A longer one is
//! offered, and pulled by its receiver once a receive is posted for it. Messages of a pair have
//! numbers and are matched in their order, so that none overtakes another with the same tag. What
//! nobody has posted a receive for yet waits: offers as such, short messages with their bytes as
//! far as these have room; else they are pulled, too.
//!
//! What is offered and not known is said again as [`crate::transport::retry`] has it, for each
//! receiver: round trip, window and probes. A message that its receiver knows waits for its
//! receive; it is offered again now and then, because the word that it was received may be lost.
//!
//! A message that was taken back, or whose memory is gone, keeps its number: the receiver waits for
//! it before it looks at later ones. So it stays here until the receiver has said that it knows.
//!
//! Neighbours: [`super::endpoint`] drives it; `incoming` has the receiving end.
//!
//! Invariant: at most [`WINDOW`] messages a pair are offered and not known; the bytes kept here
//! never exceed what the endpoint was given for them, once for what is sent and once for what is
//! received.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use super::credit::Waits;
use super::endpoint::Losses;
use super::incoming::Incoming;
use super::io::Io;
use super::message::{BlockId, Body, Data, Item, Loss, NUMBER_MASK, Offer, Pull};
use super::{BufferId, Error, Event, Gone, Memory, OpId, PACKET, PostError, SHORT};
use crate::ids::Rank;
use crate::time::{Instant, Micros};
use crate::transport::retry::Unanswered;
use crate::transport::rtt::RttEstimator;

/// So many bytes of the heap, if it has them.
pub(super) fn zeroed(bytes: usize) -> Option<Box<[u8]>> {
    let mut room = Vec::new();
    room.try_reserve_exact(bytes).ok()?;
    room.resize(bytes, 0);
    Some(room.into_boxed_slice())
}

/// Messages of a pair that are offered and not known to their receiver. It keeps numbers of twice
/// as many behind the first that it misses, see `is_far`.
pub(super) const WINDOW: u32 = 32;
/// Longest wait until a message is offered again: a fifth of the second after which a node that
/// computes looks at its network, so that it is waited for no longer than a fifth more.
const LONGEST_WAIT: Micros = Micros::from_millis(200);
/// A message that its receiver knows is offered again after [`LONGEST_WAIT`], or after so long for
/// each message to that receiver: they take at most 10,000 offers a second however many they are,
/// which are 625 datagrams of 16, one part in a hundred of what 1 Gbit/s carries.
const KNOWN_EACH: Micros = Micros(100);

/// Messages that were taken back and whose receivers have not said that they know: who takes back
/// more must wait.
pub(super) const MAX_WITHDRAWN: usize = 1024;

/// What a message that waits for its receiver costs beside its bytes, so that empty ones are
/// bounded too.
const MESSAGE_COST: usize = super::arena::MESSAGE as usize;

/// What a copy of so many bytes counts for.
const fn charge(bytes: usize) -> usize {
    bytes + MESSAGE_COST
}

/// What a message that is to be sent has become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It is to be received.
    Whole,
    /// Its memory is not there: whoever receives it is told.
    Gone,
    /// It was taken back: its receiver passes it over.
    Withdrawn,
}

/// A message on its way to its receiver.
#[derive(Debug)]
struct Outgoing {
    offer: Offer,
    /// The operation that is still to be told; None: it is done, or was cancelled.
    op: Option<OpId>,
    /// A copy of its bytes.
    copy: Option<Box<[u8]>>,
    buffer: BufferId,
    state: State,
    is_synchronous: bool,
    known: bool,
    /// When it is offered again because it is known.
    due: Instant,
}

/// What there is for one receiver. Messages have places from 0 on, of which their numbers are the
/// low bits.
#[derive(Debug)]
struct Out {
    /// Place of the next one.
    next: u64,
    messages: BTreeMap<u64, Outgoing>,
    /// Those from this place on were not offered.
    unoffered: u64,
    /// Those that are offered and not known.
    unknown: Unanswered,
    /// When the first of these is offered again, if nothing is heard of them.
    due: Instant,
}

impl Out {
    /// To somebody of whom an answer takes so long at most.
    fn new(wait: Micros) -> Self {
        let rtt = RttEstimator::of_peer(wait);
        Out {
            next: 0,
            messages: BTreeMap::new(),
            unoffered: 0,
            unknown: Unanswered::new(rtt, WINDOW, LONGEST_WAIT),
            due: Instant::FAR_FUTURE,
        }
    }

    /// How long one that is known waits until it is offered again.
    fn known_wait(&self) -> Micros {
        let all = KNOWN_EACH.saturating_mul(self.messages.len() as u64);
        LONGEST_WAIT.max(all)
    }

    /// The place of the last message with a number, if it is still there.
    fn place(&self, number: u32) -> Option<u64> {
        let back = u64::from((self.next as u32).wrapping_sub(number) & NUMBER_MASK);
        let place = self.next.checked_sub(back)?;
        self.messages.contains_key(&place).then_some(place)
    }
}

/// When messages are offered again: the receiver of each, and the place of one that is known; none:
/// the first that is not.
#[derive(Debug, Default)]
struct Dues(BTreeSet<(Instant, Rank, Option<u64>)>);

impl Dues {
    /// What was due at `before` is due at `due`.
    fn set(&mut self, (to, place): (Rank, Option<u64>), before: &mut Instant, due: Instant) {
        self.0.remove(&(*before, to, place));
        *before = due;
        if due != Instant::FAR_FUTURE {
            self.0.insert((due, to, place));
        }
    }

    /// Something was said to a receiver, or heard of it.
    fn set_unknown(&mut self, to: Rank, out: &mut Out) {
        let due = out.unknown.poll_timeout().unwrap_or(Instant::FAR_FUTURE);
        self.set((to, None), &mut out.due, due);
    }

    fn forget(&mut self, to: Rank, place: u64, message: &Outgoing) {
        self.0.remove(&(message.due, to, Some(place)));
    }

    fn first(&self) -> Instant {
        self.0.first().map_or(Instant::FAR_FUTURE, |(due, ..)| *due)
    }

    /// The first, if it is due.
    fn pop(&mut self, now: Instant) -> Option<(Rank, Option<u64>)> {
        let &(due, to, place) = self.0.first().filter(|(due, ..)| *due <= now)?;
        self.0.remove(&(due, to, place));
        Some((to, place))
    }
}

/// A send that begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sending {
    /// None: nobody is told how it ends, so that it needs a copy.
    pub op: Option<OpId>,
    pub to: Rank,
    pub context: u16,
    pub tag: u32,
    pub buffer: BufferId,
    pub bytes: u64,
    /// It is done when its receiver has it.
    pub is_synchronous: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Messages {
    out: BTreeMap<Rank, Out>,
    /// Sends that are not done: the receiver, and the place of the message.
    ops: BTreeMap<OpId, (Rank, u64)>,
    pub incoming: Incoming,
    /// Short messages to be sent, by receiver and number.
    ready: VecDeque<(Rank, u32)>,
    copied: usize,
    copies_most: usize,
    withdrawn: usize,
    dues: Dues,
    pub events: VecDeque<Event>,
}

impl Messages {
    /// With so many bytes for what is sent, and as many for what is received; a job of so many
    /// ranks.
    pub(super) fn new(bytes: usize, size: u32) -> Self {
        Messages {
            out: BTreeMap::new(),
            ops: BTreeMap::new(),
            incoming: Incoming::new(bytes, size),
            ready: VecDeque::new(),
            copied: 0,
            copies_most: bytes,
            withdrawn: 0,
            dues: Dues::default(),
            events: VecDeque::new(),
        }
    }

    /// Bytes of messages that are kept.
    pub(super) fn kept_bytes(&self) -> usize {
        self.copied + self.incoming.kept_bytes()
    }

    /// Messages of this rank whose receiver has not said that it has them.
    pub(super) fn unacknowledged(&self) -> usize {
        self.out.values().map(|out| out.messages.len()).sum()
    }

    /// Messages that were taken back, as far as their receivers have not said that they know.
    pub(super) fn withdrawn(&self) -> usize {
        self.withdrawn
    }

    /// A rank has something of this one still to receive.
    pub(super) fn has_for(&self, rank: Rank) -> bool {
        let out = self.out.get(&rank);
        out.is_some_and(|out| !out.messages.is_empty())
    }

    /// Blocks that are being received.
    pub(super) fn inbound_blocks(&self) -> usize {
        self.incoming.inbound_blocks()
    }

    /// Takes a message to another rank.
    ///
    /// # Errors
    /// Of one of which nobody is told: there is no room for a copy, or its memory is not there.
    pub(super) fn send(
        &mut self,
        sending: Sending,
        memory: &mut dyn Memory,
        io: &mut Io<'_>,
    ) -> Result<(), PostError> {
        let copy = match (self.copy(&sending, memory), sending.op) {
            (Ok(None), None) => return Err(PostError::NoRoom),
            (Err(Gone), None) => return Err(PostError::Gone),
            (Err(Gone), Some(op)) => {
                self.failed(op, Error::Gone);
                return Ok(());
            }
            (Ok(copy), _) => copy,
        };
        let waits = sending.op.filter(|_| copy.is_none());
        let done = sending.op.filter(|_| copy.is_some());
        let wait = io.credit.wait();
        let out = (self.out.entry(sending.to)).or_insert_with(|| Out::new(wait));
        let offer = Offer {
            number: out.next as u32 & NUMBER_MASK,
            context: sending.context,
            tag: sending.tag,
            bytes: sending.bytes,
        };
        let place = out.next;
        out.next += 1;
        let message = Outgoing {
            offer,
            op: waits,
            copy,
            buffer: sending.buffer,
            state: State::Whole,
            is_synchronous: sending.is_synchronous,
            known: false,
            due: Instant::FAR_FUTURE,
        };
        out.messages.insert(place, message);
        if let Some(op) = waits {
            self.ops.insert(op, (sending.to, place));
        }
        if let Some(op) = done {
            self.done(op, sending.bytes, sending.to, sending.tag);
        }
        self.offer_more(sending.to, io);
        Ok(())
    }

    /// The bytes of a short message, if there is room for a copy.
    fn copy(
        &mut self,
        sending: &Sending,
        memory: &mut dyn Memory,
    ) -> Result<Option<Box<[u8]>>, Gone> {
        let bytes = sending.bytes as usize;
        let is_copied = sending.bytes <= SHORT as u64 && !sending.is_synchronous;
        if !is_copied || self.copied + charge(bytes) > self.copies_most {
            return Ok(None);
        }
        // Without memory for it the message is pulled like a long one.
        let Some(mut copy) = zeroed(bytes) else {
            return Ok(None);
        };
        if bytes > 0 {
            memory.read(sending.buffer, 0, &mut copy)?;
        }
        self.copied += charge(bytes);
        Ok(Some(copy))
    }

    fn done(&mut self, op: OpId, bytes: u64, peer: Rank, tag: u32) {
        self.events.push_back(Event::Done {
            op,
            bytes,
            peer,
            tag,
        });
    }

    fn failed(&mut self, op: OpId, error: Error) {
        self.events.push_back(Event::Failed { op, error });
    }

    /// Offers messages to a rank, as far as the window goes: those that were lost first.
    fn offer_more(&mut self, to: Rank, io: &mut Io<'_>) {
        let Some(out) = self.out.get_mut(&to) else {
            return;
        };
        while let Some(place) = out.unknown.say_again(io.now) {
            if let Some(message) = out.messages.get(&place) {
                offer(&mut self.ready, to, message, io);
            }
        }
        while out.unknown.has_room()
            && let Some((&place, message)) = out.messages.range(out.unoffered..).next()
        {
            out.unoffered = place + 1;
            out.unknown.say(io.now, place);
            offer(&mut self.ready, to, message, io);
        }
        self.dues.set_unknown(to, out);
    }

    /// The next short message to send: its receiver and the datagram.
    pub(super) fn next_short(
        &mut self,
        memory: &mut dyn Memory,
        io: &mut Io<'_>,
    ) -> Option<(Rank, Body)> {
        while let Some((to, number)) = self.ready.pop_front() {
            let message = outgoing(&mut self.out, to, number);
            // Who knows of it meanwhile asks for its bytes.
            let waits = |message: &&mut Outgoing| message.state == State::Whole && !message.known;
            let Some(message) = message.filter(waits) else {
                continue;
            };
            let offer = message.offer;
            let payload = match &message.copy {
                Some(copy) => {
                    let Some(mut payload) = zeroed(copy.len()) else {
                        return self.later(to, number);
                    };
                    payload.copy_from_slice(copy);
                    payload
                }
                None => {
                    let Some(mut payload) = zeroed(offer.bytes as usize) else {
                        return self.later(to, number);
                    };
                    if !payload.is_empty() && memory.read(message.buffer, 0, &mut payload).is_err()
                    {
                        self.gone(to, number, io);
                        continue;
                    }
                    payload
                }
            };
            return Some((to, Body::Short { offer, payload }));
        }
        None
    }

    /// There is no memory to send a short message now: it stays the next.
    fn later(&mut self, to: Rank, number: u32) -> Option<(Rank, Body)> {
        self.ready.push_front((to, number));
        None
    }

    /// Something short waits to be sent.
    pub(super) fn has_short(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The memory of a message that is to be sent is gone: its operation fails, and so will its
    /// receive.
    pub(super) fn gone(&mut self, to: Rank, number: u32, io: &mut Io<'_>) {
        let Some(message) = outgoing(&mut self.out, to, number) else {
            return;
        };
        message.state = State::Gone;
        let op = message.op.take();
        let block = BlockId::Message(number);
        io.grants.remove((0, to, block));
        // Who asks for it is told so; who does not know of it hears that there is one.
        io.outbox.push(to, Item::Refuse { block, gone: true });
        io.outbox.push(to, Item::Offer(message.offer));
        if let Some(op) = op {
            self.ops.remove(&op);
            self.failed(op, Error::Gone);
        }
    }

    /// A receiver asks for packets of a message.
    pub(super) fn pulled(&mut self, from: Rank, number: u32, pull: Pull, io: &mut Io<'_>) {
        let block = BlockId::Message(number);
        let message = outgoing(&mut self.out, from, number);
        let state = message
            .as_ref()
            .map_or(State::Gone, |message| message.state);
        let Some(message) = message.filter(|message| message.state == State::Whole) else {
            let gone = state == State::Gone;
            return io.outbox.push(from, Item::Refuse { block, gone });
        };
        let bytes = message.offer.bytes;
        self.set_known(from, number, io);
        if let Some(serial) = io.grants.pull((0, from, block), bytes, pull) {
            io.outbox.push(from, Item::Served { block, serial });
        }
        self.offer_more(from, io);
    }

    /// A receiver knows of a message.
    pub(super) fn known(&mut self, from: Rank, number: u32, io: &mut Io<'_>) {
        self.set_known(from, number, io);
        self.offer_more(from, io);
    }

    fn set_known(&mut self, from: Rank, number: u32, io: &mut Io<'_>) {
        let Some(place) = self.answered(from, number, io.now) else {
            return;
        };
        let Some(out) = self.out.get_mut(&from) else {
            return;
        };
        let wait = out.known_wait();
        if let Some(message) = out.messages.get_mut(&place) {
            message.known = true;
            let due = io.now + wait;
            self.dues.set((from, Some(place)), &mut message.due, due);
        }
    }

    /// A receiver has heard of a message. Gives its place.
    fn answered(&mut self, from: Rank, number: u32, now: Instant) -> Option<u64> {
        let out = self.out.get_mut(&from)?;
        let place = out.place(number)?;
        out.unknown.answered(now, place);
        Some(place)
    }

    /// A receiver has all of a message.
    pub(super) fn acknowledged(&mut self, from: Rank, number: u32, io: &mut Io<'_>) {
        let Some(place) = self.answered(from, number, io.now) else {
            return;
        };
        let messages = self.out.get_mut(&from).map(|out| &mut out.messages);
        if let Some(message) = messages.and_then(|messages| messages.remove(&place)) {
            io.grants.remove((0, from, BlockId::Message(number)));
            if let Some(op) = self.forget(from, place, &message) {
                self.done(op, message.offer.bytes, from, message.offer.tag);
            }
        }
        self.offer_more(from, io);
    }

    /// A message is not on its way any more. Gives the operation that is to be told.
    fn forget(&mut self, to: Rank, place: u64, message: &Outgoing) -> Option<OpId> {
        self.copied -= message.copy.as_ref().map_or(0, |copy| charge(copy.len()));
        self.withdrawn -= usize::from(message.state == State::Withdrawn);
        self.dues.forget(to, place, message);
        if let Some(op) = message.op {
            self.ops.remove(&op);
        }
        message.op
    }

    /// Bytes of a packet that is to be sent.
    pub(super) fn fill(
        &mut self,
        to: Rank,
        number: u32,
        packet: u32,
        out: &mut [u8],
        memory: &mut dyn Memory,
    ) -> Result<(), Gone> {
        let message = outgoing(&mut self.out, to, number).ok_or(Gone)?;
        let offset = u64::from(packet) * PACKET as u64;
        match &message.copy {
            Some(copy) => {
                let start = offset as usize;
                out.copy_from_slice(copy.get(start..start + out.len()).ok_or(Gone)?);
                Ok(())
            }
            None => memory.read(message.buffer, offset, out),
        }
    }

    /// Packets of a message have come.
    pub(super) fn received(
        &mut self,
        from: Rank,
        number: u32,
        data: &Data,
        bytes: Option<&[u8]>,
        memory: &mut dyn Memory,
        io: &mut Io<'_>,
    ) {
        self.incoming
            .received(from, number, data, bytes, memory, io, &mut self.events);
    }

    /// Everybody that something is waited for from.
    pub(super) fn waits_for<'a>(&'a self, lost: &'a Losses) -> impl Iterator<Item = Rank> + 'a {
        let receivers = self.out.iter().filter(|(_, out)| !out.messages.is_empty());
        receivers
            .map(|(rank, _)| *rank)
            .chain(self.incoming.waits_for(lost))
    }

    /// A rank is lost: what needs it fails, also receives from any rank where `fails_any`. Returns
    /// whether one did.
    pub(super) fn lose(&mut self, rank: Rank, fails_any: bool, io: &mut Io<'_>) -> bool {
        if let Some(mut out) = self.out.remove(&rank) {
            out.unknown.clear();
            self.dues.set_unknown(rank, &mut out);
            for (place, message) in out.messages {
                if let Some(op) = self.forget(rank, place, &message) {
                    self.failed(op, Error::RankLost(rank));
                }
            }
        }
        io.grants
            .retain(|to, block| to != rank || !matches!(block, BlockId::Message(_)));
        self.incoming.lose(rank, fails_any, io, &mut self.events)
    }

    /// An operation is not wanted any more: its memory is not touched again.
    pub(super) fn cancel(&mut self, op: OpId, memory: &mut dyn Memory, io: &mut Io<'_>) {
        match self.ops.remove(&op) {
            Some((to, place)) => self.withdraw(to, place, io),
            None => self.incoming.cancel(op, memory, io, &mut self.events),
        }
    }

    /// A message is not to be received any more.
    fn withdraw(&mut self, to: Rank, place: u64, io: &mut Io<'_>) {
        let Some(out) = self.out.get_mut(&to) else {
            return;
        };
        let Some(message) = out.messages.get_mut(&place) else {
            return;
        };
        self.withdrawn += 1;
        (message.op, message.state) = (None, State::Withdrawn);
        let block = BlockId::Message(message.offer.number);
        io.grants.remove((0, to, block));
        // The turn of one that was not offered comes.
        if place < out.unoffered {
            self.dues.forget(to, place, message);
            (message.known, message.due) = (false, Instant::FAR_FUTURE);
            io.outbox.push(to, Item::Refuse { block, gone: false });
            out.unknown.say(io.now, place);
            self.dues.set_unknown(to, out);
        }
    }

    /// Operations that are posted and not done.
    pub(super) fn operations(&self) -> usize {
        self.ops.len() + self.incoming.operations()
    }

    /// The program has ended: what waits in its memory is not to be received any more; copies still
    /// go.
    pub(super) fn leave(&mut self, loss: Loss, io: &mut Io<'_>) {
        let mut fresh = Vec::new();
        for (&to, out) in &mut self.out {
            let copies = out.messages.values().any(|message| message.copy.is_some());
            if !copies && !out.messages.is_empty() {
                for (place, message) in core::mem::take(&mut out.messages) {
                    self.withdrawn -= usize::from(message.state == State::Withdrawn);
                    self.dues.forget(to, place, &message);
                }
                out.unknown.clear();
                self.dues.set_unknown(to, out);
                io.grants
                    .retain(|at, block| at != to || !matches!(block, BlockId::Message(_)));
                io.outbox.push(to, Item::Lost(loss));
            }
            // Copies that come behind them are still received.
            let is_fresh = |l: &Outgoing| l.copy.is_none() && l.state != State::Withdrawn;
            let messages = out.messages.iter().filter(|(_, message)| is_fresh(message));
            fresh.extend(messages.map(|(place, _)| (to, *place)));
        }
        self.ops.clear();
        for (to, place) in fresh {
            self.withdraw(to, place, io);
        }
        self.incoming.leave(loss, io);
    }

    /// When something is due.
    pub(super) fn deadline(&self, waits: Waits) -> Instant {
        self.dues.first().min(self.incoming.deadline(waits))
    }

    /// Does what is due.
    pub(super) fn tick(&mut self, io: &mut Io<'_>) {
        self.incoming.tick(io);
        while let Some((to, place)) = self.dues.pop(io.now) {
            let Some(out) = self.out.get_mut(&to) else {
                continue;
            };
            let is_unknown = place.is_none();
            let place = place.or_else(|| out.unknown.poll(io.now));
            let wait = out.known_wait();
            if let Some(place) = place
                && let Some(message) = out.messages.get_mut(&place)
            {
                if message.known {
                    self.dues
                        .set((to, Some(place)), &mut message.due, io.now + wait);
                }
                offer(&mut self.ready, to, message, io);
            }
            if is_unknown {
                self.offer_more(to, io);
            }
        }
    }
}

/// A message on its way.
fn outgoing(out: &mut BTreeMap<Rank, Out>, to: Rank, number: u32) -> Option<&mut Outgoing> {
    let out = out.get_mut(&to)?;
    let place = out.place(number)?;
    out.messages.get_mut(&place)
}

/// Sends an offer: with its bytes when these are few and the receiver does not know of it.
fn offer(ready: &mut VecDeque<(Rank, u32)>, to: Rank, message: &Outgoing, io: &mut Io<'_>) {
    let number = message.offer.number;
    let block = BlockId::Message(number);
    match message.state {
        State::Withdrawn => io.outbox.push(to, Item::Refuse { block, gone: false }),
        // Who has the bytes of a synchronous one would say so before it is matched.
        State::Whole
            if message.offer.bytes <= SHORT as u64 && !message.known && !message.is_synchronous =>
        {
            ready.push_back((to, number));
        }
        State::Whole | State::Gone => io.outbox.push(to, Item::Offer(message.offer)),
    }
}
