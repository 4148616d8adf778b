//! The receiving end of messages: posted receives, messages that nobody has posted one for, and
//! those that are being pulled.
//!
//! A short message that nobody waits for is kept with its bytes as long as there is room for them.
//! Then only what it is is kept, and it is pulled like a long one when its receive is posted: so
//! messages that are not received yet never hold up those behind them.
//!
//! Neighbours: [`super::letters`] has the sending end; [`super::own`] copies what a rank sends to
//! itself.
//!
//! Invariant: messages of a pair are matched in the order of their numbers, and receives in the
//! order in which they were posted; the bytes of messages that wait are bounded.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::credit::Waits;
use super::endpoint::Losses;
use super::inbound::Inbound;
use super::io::Io;
use super::letters::{Sending, WINDOW, zeroed};
use super::message::{
    BlockId, Data, Item, Loss, NUMBER_MASK, Offer, is_before, next, packet_bytes, packets,
};
use super::own::{OwnCopies, Purpose};
use super::{BufferId, Error, Event, Gone, Memory, OpId, PACKET, SHORT};
use crate::ids::Rank;
use crate::time::Instant;

/// Most messages that wait to be received, of all ranks.
const MAX_UNEXPECTED: usize = 4096;
/// Senders of messages that are pulled from at a time.
const SENDERS: usize = 2;

/// A posted receive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Receiving {
    pub op: OpId,
    /// None: from any rank.
    pub from: Option<Rank>,
    pub context: u16,
    /// None: with any tag.
    pub tag: Option<u32>,
    pub buffer: BufferId,
    pub capacity: u64,
}

impl Receiving {
    fn takes(&self, sender: Rank, offer: &Offer) -> bool {
        self.from.is_none_or(|from| from == sender)
            && self.context == offer.context
            && self.tag.is_none_or(|tag| tag == offer.tag)
    }
}

/// Where the bytes of a message that waits are.
#[derive(Debug)]
enum Content {
    /// Here.
    Here(Box<[u8]>),
    /// At its sender, which is asked for them.
    There,
    /// In this rank's own memory, which has sent it.
    Own(OpId, BufferId),
    /// Nowhere: it was taken back, but its number is still to come.
    Withdrawn,
}

/// A message that waits.
#[derive(Debug)]
struct Letter {
    offer: Offer,
    content: Content,
    /// Its place among those of all senders.
    arrival: u64,
}

impl Letter {
    fn kept_bytes(&self) -> usize {
        match &self.content {
            Content::Here(bytes) => bytes.len(),
            _ => 0,
        }
    }

    fn is_there(&self, number: u32) -> bool {
        self.offer.number == number && matches!(self.content, Content::There)
    }
}

/// A message that is being pulled.
#[derive(Debug)]
struct Transfer {
    receiving: Receiving,
    tag: u32,
    bytes: u64,
    inbound: Inbound,
}

/// What is known of one sender.
#[derive(Debug, Default)]
struct From {
    /// Messages before this number are known.
    next: u32,
    /// Later ones, which must wait for those between.
    early: BTreeMap<u32, Letter>,
    unexpected: VecDeque<Letter>,
    transfers: BTreeMap<u32, Transfer>,
    /// There was no room for its next message, which nobody waits for: those behind it cannot be
    /// looked at.
    is_held: bool,
    /// The program has ended, and these are known and were not received.
    unread: Vec<u32>,
}

impl From {
    /// What is kept when the program has ended: its sender learns of each message whether it was
    /// received.
    fn ended(&self) -> Self {
        let there = self.unexpected.iter();
        let there = there.filter(|letter| matches!(letter.content, Content::There));
        let unread = there.map(|letter| letter.offer.number);
        From {
            next: self.next,
            unread: unread.chain(self.transfers.keys().copied()).collect(),
            ..From::default()
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Incoming {
    from: BTreeMap<Rank, From>,
    /// In the order in which they were posted.
    posted: VecDeque<Receiving>,
    pub own: OwnCopies,
    kept: usize,
    kept_most: usize,
    waiting: usize,
    arrivals: u64,
    /// Ranks of the job.
    size: u32,
}

impl Incoming {
    /// With so many bytes for messages that wait, of a job of so many ranks.
    pub(super) fn new(bytes: usize, size: u32) -> Self {
        Incoming {
            from: BTreeMap::new(),
            posted: VecDeque::new(),
            own: OwnCopies::default(),
            kept: 0,
            kept_most: bytes,
            waiting: 0,
            arrivals: 0,
            size,
        }
    }

    pub(super) fn kept_bytes(&self) -> usize {
        self.kept
    }

    pub(super) fn inbound_blocks(&self) -> usize {
        self.from.values().map(|from| from.transfers.len()).sum()
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
            let (at, letter) =
                waiting.find(|(_, letter)| receiving.takes(sender, &letter.offer))?;
            Some((letter.arrival, sender, at))
        });
        firsts.min().map(|(_, sender, at)| (sender, at))
    }

    /// A posted receive cannot be matched before some of the messages that wait are received: they
    /// fill the room for them, and one that nobody waits for is in front of whatever its sender has
    /// for it.
    pub(super) fn is_stuck(&self, op: OpId) -> bool {
        let mut posted = self.posted.iter();
        let sender = posted.find(|receiving| receiving.op == op);
        let sender = sender.and_then(|receiving| self.from.get(&receiving.from?));
        self.is_full() && sender.is_some_and(|from| from.is_held)
    }

    /// There is no room for another message that waits.
    pub(super) fn is_full(&self) -> bool {
        self.waiting >= MAX_UNEXPECTED
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
            let letter = self.from.get_mut(&sender)?.unexpected.remove(at)?;
            Some((sender, letter))
        });
        match found {
            None => self.posted.push_back(receiving),
            Some((sender, letter)) => {
                self.waiting -= 1;
                self.kept -= letter.kept_bytes();
                self.deliver(sender, receiving, letter, memory, io, events);
            }
        }
    }

    /// Takes the receive that a message is for, if it is posted.
    fn take_posted(&mut self, sender: Rank, offer: &Offer) -> Option<Receiving> {
        let mut posted = self.posted.iter();
        let at = posted.position(|receiving| receiving.takes(sender, offer))?;
        self.posted.remove(at)
    }

    /// A message of this rank to itself.
    pub(super) fn send_to_self(
        &mut self,
        sending: Sending,
        memory: &mut dyn Memory,
        io: &mut Io<'_>,
        events: &mut VecDeque<Event>,
    ) {
        let offer = Offer {
            number: 0,
            context: sending.context,
            tag: sending.tag,
            bytes: sending.bytes,
        };
        let mut letter = Letter {
            offer,
            content: Content::Own(sending.op, sending.buffer),
            arrival: 0,
        };
        if let Some(receiving) = self.take_posted(sending.to, &offer) {
            return self.deliver(sending.to, receiving, letter, memory, io, events);
        }
        let bytes = sending.bytes as usize;
        let is_kept = sending.bytes <= SHORT as u64
            && self.kept + bytes <= self.kept_most
            && self.waiting < MAX_UNEXPECTED
            && !sending.is_synchronous;
        // Without memory for a copy it is copied when it is received.
        if is_kept && let Some(mut payload) = zeroed(bytes) {
            if bytes > 0 && memory.read(sending.buffer, 0, &mut payload).is_err() {
                return events.push_back(Event::Failed {
                    op: sending.op,
                    error: Error::Gone,
                });
            }
            letter.content = Content::Here(payload);
            events.push_back(Event::Done {
                op: sending.op,
                bytes: sending.bytes,
                peer: sending.to,
                tag: sending.tag,
            });
        }
        self.keep(sending.to, letter);
    }

    /// Keeps a message that nobody waits for, as the last one of its sender.
    fn keep(&mut self, sender: Rank, mut letter: Letter) {
        self.kept += letter.kept_bytes();
        self.waiting += 1;
        self.arrivals += 1;
        letter.arrival = self.arrivals;
        let from = self.from.entry(sender).or_default();
        from.unexpected.push_back(letter);
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
            let is_pending = from.transfers.contains_key(&offer.number)
                || waiting.any(|letter| letter.is_there(offer.number));
            return answer(sender, offer.number, !is_pending, io);
        }
        let is_next = offer.number == expected;
        let mut letter = Letter {
            offer,
            content: payload.map_or(Content::There, Content::Here),
            arrival: 0,
        };
        let posted = match is_next {
            true => self.take_posted(sender, &offer),
            false => None,
        };
        if let Some(receiving) = posted {
            self.pass(sender);
            let is_here = matches!(letter.content, Content::Here(_));
            answer(sender, offer.number, is_here, io);
            self.deliver(sender, receiving, letter, memory, io, events);
            return self.catch_up(sender, memory, io, events);
        }
        // Those before it must still have room, so one that is early has half of it.
        let share = if is_next { 1 } else { 2 };
        if is_far(offer.number, expected) || self.waiting >= MAX_UNEXPECTED / share {
            if let Some(from) = self.from.get_mut(&sender) {
                from.is_held |= is_next;
            }
            return;
        }
        if self.kept + letter.kept_bytes() > self.kept_most / share {
            letter.content = Content::There;
        }
        let is_here = matches!(letter.content, Content::Here(_));
        answer(sender, offer.number, is_here, io);
        if is_next {
            self.pass(sender);
            self.keep(sender, letter);
            self.catch_up(sender, memory, io, events);
        } else {
            self.keep_early(sender, letter);
        }
    }

    /// The message that is expected next of a sender is known now.
    fn pass(&mut self, sender: Rank) {
        let from = self.from.entry(sender).or_default();
        from.next = next(from.next);
        from.is_held = false;
    }

    fn keep_early(&mut self, sender: Rank, letter: Letter) {
        self.kept += letter.kept_bytes();
        self.waiting += 1;
        let from = self.from.entry(sender).or_default();
        from.early.insert(letter.offer.number, letter);
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
            let Some(letter) = from.early.remove(&from.next) else {
                return;
            };
            from.next = next(from.next);
            self.waiting -= 1;
            self.kept -= letter.kept_bytes();
            if matches!(letter.content, Content::Withdrawn) {
                continue;
            }
            match self.take_posted(sender, &letter.offer) {
                None => self.keep(sender, letter),
                Some(receiving) => self.deliver(sender, receiving, letter, memory, io, events),
            }
        }
    }

    /// A message meets its receive.
    fn deliver(
        &mut self,
        sender: Rank,
        receiving: Receiving,
        letter: Letter,
        memory: &mut dyn Memory,
        io: &mut Io<'_>,
        events: &mut VecDeque<Event>,
    ) {
        let offer = letter.offer;
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
            match letter.content {
                Content::Own(op, _) => events.push_back(done(op)),
                _ => answer(sender, offer.number, true, io),
            }
            return events.push_back(failed(Error::Truncated {
                sent: offer.bytes,
                from: sender,
                tag: offer.tag,
            }));
        }
        match letter.content {
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
                let from = self.from.entry(sender).or_default();
                from.transfers.insert(offer.number, transfer);
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
        let Some(from) = self.from.get_mut(&sender) else {
            io.counters.duplicates += u64::from(data.packets.count_ones());
            return;
        };
        let Some(transfer) = from.transfers.get_mut(&number) else {
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
        io.credit.change(transfer.inbound.outstanding(), 0);
        from.transfers.remove(&number);
        answer(sender, number, true, io);
        events.push_back(event);
    }

    /// The sender has sent all that it was asked for.
    pub(super) fn served(&mut self, sender: Rank, number: u32, serial: u16, io: &mut Io<'_>) {
        let from = self.from.get_mut(&sender);
        if let Some(transfer) = from.and_then(|from| from.transfers.get_mut(&number)) {
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
        let from = self.from.entry(sender).or_default();
        if let Some(transfer) = from.transfers.remove(&number) {
            io.credit.change(transfer.inbound.outstanding(), 0);
            events.push_back(Event::Failed {
                op: transfer.receiving.op,
                error: Error::Withdrawn(sender),
            });
            return answer(sender, number, true, io);
        }
        if gone {
            return;
        }
        if is_before(number, from.next) {
            let before = from.unexpected.len();
            from.unexpected.retain(|letter| !letter.is_there(number));
            self.waiting -= before - from.unexpected.len();
        } else if number == from.next {
            self.pass(sender);
            self.catch_up(sender, memory, io, events);
        } else if let Some(letter) = from.early.get_mut(&number) {
            if letter.is_there(number) {
                letter.content = Content::Withdrawn;
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
            let letter = Letter {
                offer,
                content: Content::Withdrawn,
                arrival: 0,
            };
            self.keep_early(sender, letter);
        }
        answer(sender, number, true, io);
    }

    /// Asks for packets, as far as the credit goes. What exchanges have asked for of later rounds
    /// takes nothing from messages.
    pub(super) fn pull(&mut self, io: &mut Io<'_>) {
        let transfers = self.from.values().flat_map(|from| from.transfers.values());
        let outstanding = transfers.map(|transfer| transfer.inbound.outstanding());
        let (mut active, mut used) = (0, 0);
        for packets in outstanding.filter(|packets| *packets > 0) {
            active += 1;
            used += packets;
        }
        for (sender, from) in &mut self.from {
            for (number, transfer) in &mut from.transfers {
                let inbound = &mut transfer.inbound;
                let before = inbound.outstanding();
                if before == 0 && active >= SENDERS {
                    continue;
                }
                let wants = inbound.wants();
                let each = io.credit.each();
                let most = wants
                    .min(each.saturating_sub(before))
                    .min(io.credit.total().saturating_sub(used))
                    .min(io.credit.room());
                let worth = io.credit.worth().min(each);
                let is_worth = most >= worth || most == wants || inbound.has_lost();
                if most == 0 || !is_worth {
                    continue;
                }
                let Some((pull, again)) = inbound.ask(io.now, most, true) else {
                    continue;
                };
                active += usize::from(before == 0);
                io.count_again(again);
                io.credit.asked(io.now, *sender, pull.first);
                io.credit.change(before, inbound.outstanding());
                used += inbound.outstanding() - before;
                let block = BlockId::Message(*number);
                io.outbox.push(*sender, Item::Pull { block, pull });
            }
        }
    }

    /// Senders of messages that are waited for: where a receive takes one of any rank, all ranks
    /// of which messages may still come.
    pub(super) fn waits_for<'a>(&'a self, lost: &'a Losses) -> impl Iterator<Item = Rank> + 'a {
        let any = self.posted.iter().any(|receiving| receiving.from.is_none());
        let posted = self.posted.iter().filter_map(|receiving| receiving.from);
        let pulled = self.from.iter();
        let pulled = pulled.filter(|(_, from)| !from.transfers.is_empty());
        let all = 0..if any { self.size } else { 0 };
        posted
            .chain(pulled.map(|(rank, _)| *rank))
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
        let any = fails_any && self.posted.iter().any(|receiving| receiving.from.is_none());
        let error = Error::RankLost(rank);
        self.posted.retain(|receiving| {
            let stays = receiving.from.map_or(!fails_any, |from| from != rank);
            if !stays {
                let op = receiving.op;
                events.push_back(Event::Failed { op, error });
            }
            stays
        });
        let Some(from) = self.from.get_mut(&rank) else {
            return any;
        };
        for transfer in core::mem::take(&mut from.transfers).into_values() {
            io.credit.change(transfer.inbound.outstanding(), 0);
            let op = transfer.receiving.op;
            events.push_back(Event::Failed { op, error });
        }
        let before = from.unexpected.len();
        from.unexpected
            .retain(|letter| !matches!(letter.content, Content::There));
        // Those that came too early stay: a rank that ended well still repeats what was lost before
        // them.
        self.waiting -= before - from.unexpected.len();
        any
    }

    /// An operation is not wanted any more.
    pub(super) fn cancel(&mut self, op: OpId, io: &mut Io<'_>, events: &mut VecDeque<Event>) {
        self.posted.retain(|receiving| receiving.op != op);
        self.own.cancel(op, io.me, events);
        for (sender, from) in &mut self.from {
            let before = from.unexpected.len();
            from.unexpected
                .retain(|letter| !matches!(letter.content, Content::Own(own, _) if own == op));
            self.waiting -= before - from.unexpected.len();
            let mut transfers = from.transfers.iter();
            let number = transfers
                .find(|(_, transfer)| transfer.receiving.op == op)
                .map(|(number, _)| *number);
            if let Some(transfer) = number.and_then(|number| from.transfers.remove(&number)) {
                io.credit.change(transfer.inbound.outstanding(), 0);
                // Its sender is not kept waiting.
                answer(*sender, number.unwrap_or_default(), true, io);
            }
        }
    }

    /// Operations that are posted and not done.
    pub(super) fn operations(&self) -> usize {
        let of = |from: &From| {
            let own = from.unexpected.iter();
            let own = own.filter(|letter| matches!(letter.content, Content::Own(..)));
            own.count() + from.transfers.len()
        };
        self.posted.len() + self.own.operations() + self.from.values().map(of).sum::<usize>()
    }

    /// The program has ended: everything is forgotten but which messages were received, and those
    /// whose messages wait are told.
    pub(super) fn leave(&mut self, loss: Loss, io: &mut Io<'_>) {
        for (sender, from) in &mut self.from {
            let (sender, from) = (*sender, core::mem::replace(from, From::ended(from)));
            let transfers = from.transfers.values();
            let outstanding = transfers.map(|transfer| transfer.inbound.outstanding());
            io.credit.change(outstanding.sum(), 0);
            let mut waiting = from.unexpected.iter().chain(from.early.values());
            let pending = waiting.any(|letter| matches!(letter.content, Content::There));
            if sender != io.me && (pending || !from.transfers.is_empty()) {
                io.outbox.push(sender, Item::Lost(loss));
            }
        }
        self.posted.clear();
        self.own = OwnCopies::default();
        (self.kept, self.waiting) = (0, 0);
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
        let transfers = self.from.values().flat_map(|from| from.transfers.values());
        let deadlines = transfers.filter_map(|transfer| transfer.inbound.deadline(waits));
        deadlines.min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// Does what is due.
    pub(super) fn tick(&mut self, io: &mut Io<'_>) {
        let waits = io.credit.waits();
        for (sender, from) in &mut self.from {
            for (number, transfer) in &mut from.transfers {
                let inbound = &mut transfer.inbound;
                if inbound.deadline(waits).is_some_and(|at| at <= io.now) {
                    let before = inbound.outstanding();
                    if let Some(pull) = inbound.time_out(io.now, waits) {
                        let block = BlockId::Message(*number);
                        io.outbox.push(*sender, Item::Pull { block, pull });
                    }
                    io.credit.change(before, inbound.outstanding());
                }
            }
        }
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
