//! The receiving end of messages: what is posted meets what comes, or what waits.
//!
//! A short message that nobody waits for is kept with its bytes as long as there is room for them,
//! here or in the arena that the program has given. Then only what it is is kept, and it is pulled
//! like a long one when its receive is posted: so messages that are not received yet do not hold up
//! those behind them, as long as there is room for what they are.
//!
//! A probe looks at what waits. One that *claims* keeps the message that it finds for the one
//! receive that names the probe; taken back, the message waits in its old place again.
//!
//! Neighbours: [`super::tagged`] has the sending end; `posted` finds receives and probes,
//! `transfers` has what is being pulled; [`super::own`] copies what a rank sends to itself.
//!
//! Invariant: messages of a pair are matched in the order of their numbers, and receives in the
//! order in which they were posted; the bytes of messages that wait are bounded.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::arena::{Arena, Piece};
use super::credit::Waits;
use super::endpoint::Losses;
use super::inbound::Inbound;
use super::io::Io;
use super::message::{
    BlockId, Data, Item, Loss, NUMBER_MASK, Offer, is_before, next, packet_bytes, packets,
};
use super::own::{OwnCopies, Purpose};
use super::posted::Posted;
pub(super) use super::posted::Receiving;
use super::tagged::{Sending, WINDOW, zeroed};
use super::transfers::{Transfer, Transfers};
use super::{BufferId, Error, Event, Gone, Memory, OpId, PACKET, PostError, SHORT};
use crate::ids::Rank;
use crate::time::Instant;

mod probes;
mod room;

/// Most messages that wait to be received, of all ranks.
const MAX_UNEXPECTED: usize = 4096;
/// Where the bytes of a message that waits are.
#[derive(Debug)]
enum Content {
    /// Here.
    Here(Box<[u8]>),
    /// In the message's piece of the arena.
    Kept,
    /// At its sender, which is asked for them.
    There,
    /// In this rank's own memory, which has sent it.
    Own(OpId, BufferId),
    /// Nowhere: it was taken back, but its number is still to come.
    Withdrawn,
}

/// A message that waits.
#[derive(Debug)]
struct Message {
    offer: Offer,
    content: Content,
    /// Its place among those of all senders.
    arrival: u64,
    /// The probe that keeps it for a receive.
    claim: Option<OpId>,
    /// What it takes of the arena; none where it has this rank's own room.
    piece: Option<Piece>,
}

impl Message {
    fn kept_bytes(&self) -> usize {
        match &self.content {
            Content::Here(bytes) => bytes.len(),
            _ => 0,
        }
    }

    /// What a probe hears of it.
    fn found(&self, sender: Rank, probe: &Receiving) -> Event {
        Event::Done {
            op: probe.op,
            bytes: self.offer.bytes,
            peer: sender,
            tag: self.offer.tag,
        }
    }

    fn is_there(&self, number: u32) -> bool {
        self.offer.number == number && matches!(self.content, Content::There)
    }
}

/// What is known of one sender.
#[derive(Debug, Default)]
struct From {
    /// Messages before this number are known.
    next: u32,
    /// Later ones, which must wait for those between.
    early: BTreeMap<u32, Message>,
    unexpected: VecDeque<Message>,
    /// There was no room for its next message, which nobody waits for: those behind it cannot be
    /// looked at.
    is_held: bool,
    /// The program has ended, and these are known and were not received.
    unread: Vec<u32>,
}

impl From {
    /// What is kept when the program has ended, which was receiving some: its sender learns of each
    /// message whether it was received.
    fn ended(&self, receiving: Vec<u32>) -> Self {
        let there = self.unexpected.iter();
        let there = there.filter(|message| matches!(message.content, Content::There));
        let unread = there.map(|message| message.offer.number);
        From {
            next: self.next,
            unread: unread.chain(receiving).collect(),
            ..From::default()
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Incoming {
    from: BTreeMap<Rank, From>,
    posted: Posted,
    probes: Posted,
    /// Probes that keep a message for a receive, and whose message it is.
    claims: BTreeMap<OpId, Rank>,
    transfers: Transfers,
    pub own: OwnCopies,
    arena: Arena,
    kept: usize,
    kept_most: usize,
    waiting: usize,
    /// Of those that wait, messages in this rank's own memory, whose sends are not done.
    own_waiting: usize,
    arrivals: u64,
    /// Ranks of the job.
    size: u32,
}

impl Incoming {
    /// With so many bytes for messages that wait, of a job of so many ranks.
    pub(super) fn new(bytes: usize, size: u32) -> Self {
        Incoming {
            from: BTreeMap::new(),
            posted: Posted::default(),
            probes: Posted::default(),
            claims: BTreeMap::new(),
            transfers: Transfers::default(),
            own: OwnCopies::default(),
            arena: Arena::default(),
            kept: 0,
            kept_most: bytes,
            waiting: 0,
            own_waiting: 0,
            arrivals: 0,
            size,
        }
    }

    pub(super) fn kept_bytes(&self) -> usize {
        self.kept
    }

    pub(super) fn inbound_blocks(&self) -> usize {
        self.transfers.len()
    }

    /// The message that a receive would take now: its sender and its place among those of its
    /// sender.
    fn first_for(&self, receiving: &Receiving) -> Option<(Rank, usize)> {
        let senders = match receiving.from {
            Some(from) => self.from.range(from..=from),
            None => self.from.range(..),
        };
        let firsts = senders.filter_map(|(&sender, from)| {
            let mut waiting = from.unexpected.iter().enumerate();
            let (at, message) = waiting.find(|(_, message)| {
                message.claim.is_none() && receiving.takes(sender, &message.offer)
            })?;
            Some((message.arrival, sender, at))
        });
        firsts.min().map(|(_, sender, at)| (sender, at))
    }

    /// A posted receive cannot be matched before some of the messages that wait are received: they
    /// fill the room for them, and one that nobody waits for is in front of whatever its sender has
    /// for it.
    pub(super) fn is_stuck(&self, op: OpId) -> bool {
        let receiving = self.posted.get(op);
        let sender = receiving.and_then(|receiving| self.from.get(&receiving.from?));
        self.is_full() && sender.is_some_and(|from| from.is_held)
    }

    /// There is no room for another message that waits.
    pub(super) fn is_full(&self) -> bool {
        self.waiting >= MAX_UNEXPECTED && self.arena.is_full()
    }

    /// A receive could be served from what is here, whoever is lost.
    pub(super) fn has(&self, receiving: &Receiving) -> bool {
        self.first_for(receiving).is_some()
    }

    /// Posts a receive.
    pub(super) fn post(
        &mut self,
        receiving: Receiving,
        memory: &mut dyn Memory,
        io: &mut Io<'_>,
        events: &mut VecDeque<Event>,
    ) {
        let found = self.first_for(&receiving).and_then(|(sender, at)| {
            let message = self.from.get_mut(&sender)?.unexpected.remove(at)?;
            Some((sender, message))
        });
        match found {
            None => self.posted.push(receiving),
            Some((sender, message)) => {
                self.taken(&message);
                self.deliver(sender, receiving, message, memory, io, events);
            }
        }
    }

    /// Takes the receive that a message is for, if it is posted.
    fn take_posted(&mut self, sender: Rank, offer: &Offer) -> Option<Receiving> {
        self.posted.take(sender, offer)
    }

    /// A message of this rank to itself.
    ///
    /// # Errors
    /// As [`super::tagged::Messages::send`].
    pub(super) fn send_to_self(
        &mut self,
        sending: Sending,
        memory: &mut dyn Memory,
        io: &mut Io<'_>,
        events: &mut VecDeque<Event>,
    ) -> Result<(), PostError> {
        let me = sending.to;
        let offer = Offer {
            number: 0,
            context: sending.context,
            tag: sending.tag,
            bytes: sending.bytes,
        };
        let mut message = Message {
            offer,
            content: Content::Withdrawn,
            arrival: 0,
            claim: None,
            piece: None,
        };
        if let Some(op) = sending.op {
            message.content = Content::Own(op, sending.buffer);
            if let Some(receiving) = self.take_posted(me, &offer) {
                self.deliver(me, receiving, message, memory, io, events);
                return Ok(());
            }
        }
        let bytes = sending.bytes as usize;
        let is_short = sending.bytes <= SHORT as u64 && !sending.is_synchronous;
        let has_room = self.kept + bytes <= self.kept_most && self.waiting < MAX_UNEXPECTED;
        let is_received = || sending.op.is_none() && self.posted.takes(me, &offer);
        let is_copied = is_short && (has_room || is_received());
        // Without memory for a copy it is copied when it is received.
        let Some(mut payload) = is_copied.then(|| zeroed(bytes)).flatten() else {
            sending.op.ok_or(PostError::NoRoom)?;
            self.keep(me, message, events);
            return Ok(());
        };
        if bytes > 0 && memory.read(sending.buffer, 0, &mut payload).is_err() {
            let op = sending.op.ok_or(PostError::Gone)?;
            let error = Error::Gone;
            events.push_back(Event::Failed { op, error });
            return Ok(());
        }
        message.content = Content::Here(payload);
        events.extend(sending.op.map(|op| Event::Done {
            op,
            bytes: sending.bytes,
            peer: me,
            tag: sending.tag,
        }));
        let receiving = match sending.op {
            Some(_) => None,
            None => self.take_posted(me, &offer),
        };
        match receiving {
            Some(receiving) => self.deliver(me, receiving, message, memory, io, events),
            None => self.keep(me, message, events),
        }
        Ok(())
    }

    /// Keeps a message that nobody waits for, as the last one of its sender.
    fn keep(&mut self, sender: Rank, mut message: Message, events: &mut VecDeque<Event>) {
        self.arrivals += 1;
        message.arrival = self.arrivals;
        self.insert(sender, message, events);
    }

    /// Keeps a message in its place, where probes find it.
    fn insert(&mut self, sender: Rank, mut message: Message, events: &mut VecDeque<Event>) {
        while message.claim.is_none()
            && let Some(probe) = self.probes.take(sender, &message.offer)
        {
            events.push_back(message.found(sender, &probe));
            if probe.claims {
                message.claim = Some(probe.op);
                self.claims.insert(probe.op, sender);
            }
        }
        self.count(&message);
        let from = self.from.entry(sender).or_default();
        let at = from
            .unexpected
            .partition_point(|other| other.arrival < message.arrival);
        from.unexpected.insert(at, message);
    }

    /// A message is offered, perhaps with its bytes.
    pub(super) fn offered(
        &mut self,
        sender: Rank,
        offer: Offer,
        payload: Option<Box<[u8]>>,
        memory: &mut dyn Memory,
        io: &mut Io<'_>,
        events: &mut VecDeque<Event>,
    ) {
        let from = self.from.entry(sender).or_default();
        let expected = from.next;
        if is_before(offer.number, expected) || from.early.contains_key(&offer.number) {
            let mut waiting = from.unexpected.iter().chain(from.early.values());
            let is_pending = self.transfers.has((sender, offer.number))
                || waiting.any(|message| message.is_there(offer.number));
            return answer(sender, offer.number, !is_pending, io);
        }
        let is_next = offer.number == expected;
        let mut message = Message {
            offer,
            content: payload.map_or(Content::There, Content::Here),
            arrival: 0,
            claim: None,
            piece: None,
        };
        let posted = match is_next {
            true => self.take_posted(sender, &offer),
            false => None,
        };
        if let Some(receiving) = posted {
            self.pass(sender);
            let is_here = matches!(message.content, Content::Here(_));
            answer(sender, offer.number, is_here, io);
            self.deliver(sender, receiving, message, memory, io, events);
            return self.catch_up(sender, memory, io, events);
        }
        // Those before it must still have room, so one that is early has half of it.
        let share = if is_next { 1 } else { 2 };
        let is_far = is_far(offer.number, expected);
        if is_far || !self.make_room(&mut message, share, memory) {
            if let Some(from) = self.from.get_mut(&sender) {
                from.is_held |= is_next;
            }
            return;
        }
        let is_here = matches!(message.content, Content::Here(_) | Content::Kept);
        answer(sender, offer.number, is_here, io);
        if is_next {
            self.pass(sender);
            self.keep(sender, message, events);
            self.catch_up(sender, memory, io, events);
        } else {
            self.keep_early(sender, message);
        }
    }

    /// The message that is expected next of a sender is known now.
    fn pass(&mut self, sender: Rank) {
        let from = self.from.entry(sender).or_default();
        from.next = next(from.next);
        from.is_held = false;
    }

    fn keep_early(&mut self, sender: Rank, message: Message) {
        self.count(&message);
        let from = self.from.entry(sender).or_default();
        from.early.insert(message.offer.number, message);
    }

    /// Matches those that waited for a message between.
    fn catch_up(
        &mut self,
        sender: Rank,
        memory: &mut dyn Memory,
        io: &mut Io<'_>,
        events: &mut VecDeque<Event>,
    ) {
        while let Some(from) = self.from.get_mut(&sender) {
            let Some(message) = from.early.remove(&from.next) else {
                return;
            };
            from.next = next(from.next);
            self.taken(&message);
            if matches!(message.content, Content::Withdrawn) {
                self.give_back(message.piece);
                continue;
            }
            match self.take_posted(sender, &message.offer) {
                None => self.keep(sender, message, events),
                Some(receiving) => self.deliver(sender, receiving, message, memory, io, events),
            }
        }
    }

    /// A message meets its receive.
    fn deliver(
        &mut self,
        sender: Rank,
        receiving: Receiving,
        message: Message,
        memory: &mut dyn Memory,
        io: &mut Io<'_>,
        events: &mut VecDeque<Event>,
    ) {
        let offer = message.offer;
        self.give_back(message.piece);
        let done = |op| Event::Done {
            op,
            bytes: offer.bytes,
            peer: sender,
            tag: offer.tag,
        };
        let failed = |error| Event::Failed {
            op: receiving.op,
            error,
        };
        if offer.bytes > receiving.capacity {
            match message.content {
                Content::Own(op, _) => events.push_back(done(op)),
                _ => answer(sender, offer.number, true, io),
            }
            return events.push_back(failed(Error::Truncated {
                sent: offer.bytes,
                from: sender,
                tag: offer.tag,
            }));
        }
        match message.content {
            Content::Here(payload) => {
                let written = match payload.is_empty() {
                    true => Ok(()),
                    false => memory.write(receiving.buffer, 0, &payload),
                };
                events.push_back(match written {
                    Ok(()) => done(receiving.op),
                    Err(Gone) => failed(Error::Gone),
                });
            }
            Content::Kept => {
                let mut bytes = [0; SHORT];
                let bytes = &mut bytes[..offer.bytes as usize];
                let copied = message.piece.ok_or(Gone).and_then(|piece| {
                    memory.read(piece.buffer, piece.offset, bytes)?;
                    memory.write(receiving.buffer, 0, bytes)
                });
                events.push_back(match (copied, offer.bytes) {
                    (Ok(()), _) | (_, 0) => done(receiving.op),
                    (Err(Gone), _) => failed(Error::Gone),
                });
            }
            Content::Own(send, source) => self.own.add(
                Purpose::Message {
                    send,
                    receive: receiving.op,
                    tag: offer.tag,
                },
                (source, 0),
                (receiving.buffer, 0),
                offer.bytes,
            ),
            Content::There | Content::Withdrawn if offer.bytes == 0 => {
                answer(sender, offer.number, true, io);
                events.push_back(done(receiving.op));
            }
            Content::There | Content::Withdrawn => {
                let transfer = Transfer {
                    receiving,
                    tag: offer.tag,
                    bytes: offer.bytes,
                    inbound: Inbound::new(packets(offer.bytes), 0, io.now),
                };
                self.transfers.insert((sender, offer.number), transfer);
            }
        }
    }

    /// Packets of a message have come.
    #[allow(
        clippy::too_many_arguments,
        reason = "a datagram, where it goes, and what it acts on"
    )]
    pub(super) fn received(
        &mut self,
        sender: Rank,
        number: u32,
        data: &Data,
        bytes: Option<&[u8]>,
        memory: &mut dyn Memory,
        io: &mut Io<'_>,
        events: &mut VecDeque<Event>,
    ) {
        let Some(transfer) = self.transfers.get_mut((sender, number)) else {
            io.counters.duplicates += u64::from(data.packets.count_ones());
            return;
        };
        let last = data.first + 63 - data.packets.leading_zeros();
        if last >= packets(transfer.bytes)
            || usize::from(data.tail) != packet_bytes(transfer.bytes, last)
        {
            io.counters.bad += 1;
            return;
        }
        let before = transfer.inbound.outstanding();
        let receiving = transfer.receiving;
        io.credit
            .came(io.now, sender, data.first, data.packets.count_ones());
        let mut left = data.packets;
        let mut written = Ok(());
        while left != 0 {
            let packet = data.first + left.trailing_zeros();
            left &= left - 1;
            if !transfer.inbound.take(io.now, packet) {
                io.counters.duplicates += 1;
                continue;
            }
            io.counters.packets_received += 1;
            if let Some(bytes) = bytes {
                let offset = u64::from(packet) * PACKET as u64;
                written = written.and(memory.write(receiving.buffer, offset, bytes));
            }
        }
        io.credit.change(before, transfer.inbound.outstanding());
        let event = match written {
            Err(Gone) => Event::Failed {
                op: receiving.op,
                error: Error::Gone,
            },
            Ok(()) if transfer.inbound.is_complete() => Event::Done {
                op: receiving.op,
                bytes: transfer.bytes,
                peer: sender,
                tag: transfer.tag,
            },
            Ok(()) => return,
        };
        self.transfers.remove((sender, number), io);
        answer(sender, number, true, io);
        events.push_back(event);
    }

    /// The sender has sent all that it was asked for.
    pub(super) fn served(&mut self, sender: Rank, number: u32, serial: u16, io: &mut Io<'_>) {
        if let Some(transfer) = self.transfers.get_mut((sender, number)) {
            let before = transfer.inbound.outstanding();
            transfer.inbound.served(io.now, serial);
            io.credit.change(before, transfer.inbound.outstanding());
        }
    }

    /// The sender says that a message does not come. `gone`: its memory is not there, which is told
    /// again to whoever asks for it; else it was taken back, and is as if it had never been sent.
    pub(super) fn refused(
        &mut self,
        sender: Rank,
        (number, gone): (u32, bool),
        memory: &mut dyn Memory,
        io: &mut Io<'_>,
        events: &mut VecDeque<Event>,
    ) {
        if let Some(transfer) = self.transfers.remove((sender, number), io) {
            events.push_back(Event::Failed {
                op: transfer.receiving.op,
                error: Error::Withdrawn(sender),
            });
            return answer(sender, number, true, io);
        }
        if gone {
            return;
        }
        let from = self.from.entry(sender).or_default();
        if is_before(number, from.next) {
            self.discard(sender, |message| message.is_there(number));
        } else if number == from.next {
            self.pass(sender);
            self.catch_up(sender, memory, io, events);
        } else if let Some(message) = from.early.get_mut(&number) {
            if message.is_there(number) {
                message.content = Content::Withdrawn;
            }
        } else if is_far(number, from.next) || self.waiting >= MAX_UNEXPECTED / 2 {
            return;
        } else {
            let offer = Offer {
                number,
                context: 0,
                tag: 0,
                bytes: 0,
            };
            let message = Message {
                offer,
                content: Content::Withdrawn,
                arrival: 0,
                claim: None,
                piece: None,
            };
            self.keep_early(sender, message);
        }
        answer(sender, number, true, io);
    }

    /// Asks for packets, as far as the credit goes.
    pub(super) fn pull(&mut self, io: &mut Io<'_>) {
        self.transfers.pull(io);
    }

    /// Senders of messages that are waited for: where a receive takes one of any rank, all ranks
    /// of which messages may still come.
    pub(super) fn waits_for<'a>(&'a self, lost: &'a Losses) -> impl Iterator<Item = Rank> + 'a {
        let any = self.posted.has_any() || self.probes.has_any();
        let posted = self.posted.senders().chain(self.probes.senders());
        let all = 0..if any { self.size } else { 0 };
        posted
            .flatten()
            .chain(self.transfers.senders())
            .chain(all.map(Rank).filter(|rank| !lost.is_silent(*rank)))
    }

    /// A rank is lost: what was to come from it fails, and where `fails_any` receives from any
    /// rank, which might wait for it. Short messages that are here can still be received. Returns
    /// whether a receive from any rank failed.
    pub(super) fn lose(
        &mut self,
        rank: Rank,
        fails_any: bool,
        io: &mut Io<'_>,
        events: &mut VecDeque<Event>,
    ) -> bool {
        let any = fails_any && (self.posted.has_any() || self.probes.has_any());
        let mut lost = self.posted.take_of(rank, fails_any);
        lost.extend(self.probes.take_of(rank, fails_any));
        for number in self.transfers.numbers(rank) {
            let transfer = self.transfers.remove((rank, number), io);
            lost.extend(transfer.map(|transfer| transfer.receiving.op));
        }
        let error = Error::RankLost(rank);
        events.extend(lost.into_iter().map(|op| Event::Failed { op, error }));
        // Those that came too early stay: a rank that ended well still repeats what was lost before
        // them.
        self.discard(rank, |message| matches!(message.content, Content::There));
        any
    }

    /// An operation is not wanted any more; of a claim the message is nobody's any more.
    pub(super) fn cancel(
        &mut self,
        op: OpId,
        memory: &mut dyn Memory,
        io: &mut Io<'_>,
        events: &mut VecDeque<Event>,
    ) {
        if self.posted.remove(op) || self.probes.remove(op) {
            return;
        }
        if self.claims.contains_key(&op) {
            return self.put_back(op, memory, io, events);
        }
        if let Some((sender, number)) = self.transfers.of_op(op) {
            self.transfers.remove((sender, number), io);
            // Its sender is not kept waiting.
            return answer(sender, number, true, io);
        }
        self.own.cancel(op, io.me, events);
        let is_of =
            |message: &Message| matches!(message.content, Content::Own(own, _) if own == op);
        self.discard(io.me, is_of);
    }

    /// Operations that are posted and not done.
    pub(super) fn operations(&self) -> usize {
        let posted = self.posted.len() + self.probes.len() + self.transfers.len();
        posted + self.own.operations() + self.own_waiting
    }

    /// The program has ended: everything is forgotten but which messages were received, and those
    /// whose messages wait are told.
    pub(super) fn leave(&mut self, loss: Loss, io: &mut Io<'_>) {
        for (&sender, from) in &mut self.from {
            let receiving = self.transfers.numbers(sender);
            for number in &receiving {
                self.transfers.remove((sender, *number), io);
            }
            let mut waiting = from.unexpected.iter().chain(from.early.values());
            let pending = waiting.any(|message| matches!(message.content, Content::There));
            if sender != io.me && (pending || !receiving.is_empty()) {
                io.outbox.push(sender, Item::Lost(loss));
            }
            *from = From::ended(from, receiving);
        }
        (self.posted, self.probes) = (Posted::default(), Posted::default());
        self.claims.clear();
        self.arena = Arena::default();
        self.own = OwnCopies::default();
        (self.kept, self.waiting, self.own_waiting) = (0, 0, 0);
    }

    /// The program has ended, and a message is offered again: answers that it was received, if it
    /// was.
    pub(super) fn answer_received(&self, sender: Rank, number: u32, io: &mut Io<'_>) -> bool {
        let from = self.from.get(&sender);
        let is_received =
            from.is_some_and(|from| is_before(number, from.next) && !from.unread.contains(&number));
        if is_received {
            answer(sender, number, true, io);
        }
        is_received
    }

    /// When something is due.
    pub(super) fn deadline(&self, waits: Waits) -> Instant {
        self.transfers.deadline(waits)
    }

    /// Does what is due.
    pub(super) fn tick(&mut self, io: &mut Io<'_>) {
        self.transfers.tick(io);
    }
}

/// So far ahead of the next one that its sender has not offered it yet.
fn is_far(number: u32, expected: u32) -> bool {
    !is_before(number, expected.wrapping_add(2 * WINDOW) & NUMBER_MASK)
}

/// Tells a sender that its message is here, or known.
fn answer(to: Rank, number: u32, is_here: bool, io: &mut Io<'_>) {
    let block = BlockId::Message(number);
    let item = if is_here {
        Item::Got {
            block,
            signature: 0,
        }
    } else {
        Item::Known { number }
    };
    io.outbox.push(to, item);
}
