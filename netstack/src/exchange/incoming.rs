//! The receiving end of messages: posted receives, messages that nobody has posted one for, and those that are being
//! pulled.
//!
//! Neighbour: [`super::letters`] has the sending end.
//!
//! Invariant: messages of a pair are matched in the order of their numbers; the bytes of those that wait are bounded.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};

use super::alltoall::Io;
use super::credit::Waits;
use super::inbound::Inbound;
use super::letters::{Sending, WINDOW};
use super::message::{BlockId, Data, Item, Offer, is_before, next, packet_bytes, packets};
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
    pub from: Rank,
    pub context: u16,
    pub tag: u32,
    pub buffer: BufferId,
    pub capacity: u64,
}

/// A message that waits.
#[derive(Debug)]
struct Letter {
    offer: Offer,
    payload: Option<Box<[u8]>>,
    /// This rank's own send, whose bytes are still in its memory.
    own: Option<(OpId, BufferId)>,
}

/// A message that is being pulled.
#[derive(Debug)]
struct Transfer {
    receiving: Receiving,
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
    posted: VecDeque<Receiving>,
    transfers: BTreeMap<u32, Transfer>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Incoming {
    from: BTreeMap<Rank, From>,
    kept: usize,
    kept_most: usize,
    waiting: usize,
}

impl Incoming {
    /// With so many bytes for messages that wait.
    pub(super) fn new(bytes: usize) -> Self {
        Incoming {
            from: BTreeMap::new(),
            kept: 0,
            kept_most: bytes,
            waiting: 0,
        }
    }

    pub(super) fn kept_bytes(&self) -> usize {
        self.kept
    }

    pub(super) fn inbound_blocks(&self) -> usize {
        self.from.values().map(|from| from.transfers.len()).sum()
    }

    /// Posts a receive.
    pub(super) fn post(
        &mut self,
        receiving: Receiving,
        memory: &mut dyn Memory,
        io: &mut Io<'_>,
        events: &mut VecDeque<Event>,
    ) {
        let from = self.from.entry(receiving.from).or_default();
        let mut waiting = from.unexpected.iter();
        let at = waiting.position(|letter| matches(&receiving, &letter.offer));
        match at.and_then(|at| from.unexpected.remove(at)) {
            None => from.posted.push_back(receiving),
            Some(letter) => {
                self.waiting -= 1;
                self.kept -= letter.payload.as_ref().map_or(0, |payload| payload.len());
                self.deliver(receiving, letter, memory, io, events);
            }
        }
    }

    /// A message of this rank to itself. False: it is to be kept with a copy of its bytes, but has no room.
    pub(super) fn send_to_self(
        &mut self,
        sending: Sending,
        memory: &mut dyn Memory,
        io: &mut Io<'_>,
        events: &mut VecDeque<Event>,
    ) {
        let from = self.from.entry(sending.to).or_default();
        let offer = Offer {
            number: 0,
            context: sending.context,
            tag: sending.tag,
            bytes: sending.bytes,
        };
        let letter = Letter {
            offer,
            payload: None,
            own: Some((sending.op, sending.buffer)),
        };
        let mut posted = from.posted.iter();
        let at = posted.position(|receiving| matches(receiving, &offer));
        if let Some(receiving) = at.and_then(|at| from.posted.remove(at)) {
            return self.deliver(receiving, letter, memory, io, events);
        }
        let bytes = sending.bytes as usize;
        let is_kept = sending.bytes <= SHORT as u64
            && self.kept + bytes <= self.kept_most
            && self.waiting < MAX_UNEXPECTED;
        let mut letter = letter;
        if is_kept {
            let mut payload = alloc::vec![0; bytes].into_boxed_slice();
            if bytes > 0 && memory.read(sending.buffer, 0, &mut payload).is_err() {
                return events.push_back(Event::Failed {
                    op: sending.op,
                    error: Error::Gone,
                });
            }
            letter.payload = Some(payload);
            letter.own = None;
            self.kept += bytes;
            events.push_back(Event::Done {
                op: sending.op,
                bytes: sending.bytes,
                peer: sending.to,
                tag: sending.tag,
            });
        }
        from.unexpected.push_back(letter);
        self.waiting += 1;
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
        if is_before(offer.number, from.next) || from.early.contains_key(&offer.number) {
            let is_pending = from.transfers.contains_key(&offer.number)
                || waits_without_bytes(from.unexpected.iter(), offer.number)
                || waits_without_bytes(from.early.values(), offer.number);
            return answer(sender, offer.number, !is_pending, io);
        }
        let bytes = payload.as_ref().map_or(0, |payload| payload.len());
        let has_bytes = payload.is_some();
        let letter = Letter {
            offer,
            payload,
            own: None,
        };
        if offer.number != from.next {
            // Those before it must still have room, so it has half of it.
            let is_far = !is_before(
                offer.number,
                from.next.wrapping_add(2 * WINDOW) & super::message::NUMBER_MASK,
            );
            if is_far
                || self.kept + bytes > self.kept_most / 2
                || self.waiting >= MAX_UNEXPECTED / 2
            {
                return;
            }
            self.kept += bytes;
            self.waiting += 1;
            from.early.insert(offer.number, letter);
            return answer(sender, offer.number, has_bytes, io);
        }
        let mut posted = from.posted.iter();
        if let Some(at) = posted.position(|receiving| matches(receiving, &offer)) {
            from.next = next(from.next);
            if let Some(receiving) = from.posted.remove(at) {
                answer(sender, offer.number, has_bytes, io);
                self.deliver(receiving, letter, memory, io, events);
            }
        } else {
            if self.kept + bytes > self.kept_most || self.waiting >= MAX_UNEXPECTED {
                return;
            }
            self.kept += bytes;
            self.waiting += 1;
            from.next = next(from.next);
            from.unexpected.push_back(letter);
            answer(sender, offer.number, has_bytes, io);
        }
        self.catch_up(sender, memory, io, events);
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
            let mut posted = from.posted.iter();
            let at = posted.position(|receiving| matches(receiving, &letter.offer));
            match at.and_then(|at| from.posted.remove(at)) {
                None => from.unexpected.push_back(letter),
                Some(receiving) => {
                    self.waiting -= 1;
                    self.kept -= letter.payload.as_ref().map_or(0, |payload| payload.len());
                    self.deliver(receiving, letter, memory, io, events);
                }
            }
        }
    }

    /// A message meets its receive.
    fn deliver(
        &mut self,
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
            peer: receiving.from,
            tag: offer.tag,
        };
        let failed = |error| Event::Failed {
            op: receiving.op,
            error,
        };
        if let Some((op, _)) = letter.own {
            events.push_back(done(op));
        }
        if offer.bytes > receiving.capacity {
            if letter.own.is_none() {
                answer(receiving.from, offer.number, true, io);
            }
            return events.push_back(failed(Error::Truncated { sent: offer.bytes }));
        }
        let written = match (&letter.payload, letter.own) {
            (Some(payload), _) if payload.is_empty() => Ok(()),
            (Some(payload), _) => memory.write(receiving.buffer, 0, payload),
            (None, Some((_, source))) => {
                copy(memory, (source, 0), (receiving.buffer, 0), offer.bytes)
            }
            (None, None) => {
                let transfer = Transfer {
                    receiving,
                    bytes: offer.bytes,
                    inbound: Inbound::new(packets(offer.bytes), 0, io.now),
                };
                let from = self.from.entry(receiving.from).or_default();
                from.transfers.insert(offer.number, transfer);
                return;
            }
        };
        events.push_back(match written {
            Ok(()) => done(receiving.op),
            Err(Gone) => failed(Error::Gone),
        });
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
                tag: receiving.tag,
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

    /// The sender says that a message does not come: its receive fails, or it is forgotten.
    pub(super) fn refused(
        &mut self,
        sender: Rank,
        number: u32,
        io: &mut Io<'_>,
        events: &mut VecDeque<Event>,
    ) {
        let Some(from) = self.from.get_mut(&sender) else {
            return;
        };
        if let Some(transfer) = from.transfers.remove(&number) {
            io.credit.change(transfer.inbound.outstanding(), 0);
            events.push_back(Event::Failed {
                op: transfer.receiving.op,
                error: Error::RankLost(sender),
            });
        }
        let before = from.unexpected.len();
        from.unexpected
            .retain(|letter| letter.offer.number != number || letter.payload.is_some());
        self.waiting -= before - from.unexpected.len();
    }

    /// Asks for packets, as far as the credit goes.
    pub(super) fn pull(&mut self, io: &mut Io<'_>) {
        let transfers = self.from.values().flat_map(|from| from.transfers.values());
        let mut active = transfers
            .filter(|transfer| transfer.inbound.outstanding() > 0)
            .count();
        for (sender, from) in &mut self.from {
            for (number, transfer) in &mut from.transfers {
                let inbound = &mut transfer.inbound;
                let before = inbound.outstanding();
                if before == 0 && active >= SENDERS {
                    continue;
                }
                let wants = inbound.wants();
                let most = wants
                    .min(io.credit.each().saturating_sub(before))
                    .min(io.credit.left());
                let is_worth = most >= io.credit.chunk() || most == wants || inbound.has_lost();
                if most == 0 || !is_worth {
                    continue;
                }
                let Some((pull, again)) = inbound.ask(io.now, most) else {
                    continue;
                };
                active += usize::from(before == 0);
                io.counters.asked_again += u64::from(again);
                io.credit.asked(io.now, *sender, pull.first);
                io.credit.change(before, inbound.outstanding());
                let block = BlockId::Message(*number);
                io.outbox.push(*sender, Item::Pull { block, pull });
            }
        }
    }

    /// Senders of messages that are waited for.
    pub(super) fn waits_for(&self) -> impl Iterator<Item = Rank> {
        let waits = |from: &&From| !from.posted.is_empty() || !from.transfers.is_empty();
        let all = self.from.iter();
        all.filter(move |(_, from)| waits(from))
            .map(|(rank, _)| *rank)
    }

    /// A rank is lost: what was to come from it fails. Short messages that are here can still be received.
    pub(super) fn lose(&mut self, rank: Rank, io: &mut Io<'_>, events: &mut VecDeque<Event>) {
        let Some(from) = self.from.get_mut(&rank) else {
            return;
        };
        let transfers = core::mem::take(&mut from.transfers).into_values();
        let outstanding = |transfer: &Transfer| transfer.inbound.outstanding();
        let ops: alloc::vec::Vec<OpId> = transfers
            .inspect(|transfer| io.credit.change(outstanding(transfer), 0))
            .map(|transfer| transfer.receiving.op)
            .chain(from.posted.drain(..).map(|receiving| receiving.op))
            .collect();
        let before = from.unexpected.len();
        from.unexpected
            .retain(|letter| letter.payload.is_some() || letter.own.is_some());
        self.waiting -= before - from.unexpected.len();
        events.extend(ops.into_iter().map(|op| Event::Failed {
            op,
            error: Error::RankLost(rank),
        }));
    }

    /// A receive could be served from what is here, whoever is lost.
    pub(super) fn has(&self, from: Rank, context: u16, tag: u32) -> bool {
        let mut waiting = self
            .from
            .get(&from)
            .into_iter()
            .flat_map(|from| from.unexpected.iter());
        waiting.any(|letter| letter.offer.context == context && letter.offer.tag == tag)
    }

    /// An operation is not wanted any more.
    pub(super) fn cancel(&mut self, op: OpId, io: &mut Io<'_>) {
        for (sender, from) in &mut self.from {
            from.posted.retain(|receiving| receiving.op != op);
            let before = from.unexpected.len();
            from.unexpected
                .retain(|letter| letter.own.is_none_or(|(own, _)| own != op));
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
            let own = from
                .unexpected
                .iter()
                .filter(|letter| letter.own.is_some())
                .count();
            own + from.posted.len() + from.transfers.len()
        };
        self.from.values().map(of).sum()
    }

    /// The program has ended: everything is forgotten, and those whose messages wait are told.
    pub(super) fn leave(&mut self, io: &mut Io<'_>) {
        for (sender, from) in core::mem::take(&mut self.from) {
            let outstanding: u32 = from
                .transfers
                .values()
                .map(|transfer| transfer.inbound.outstanding())
                .sum();
            io.credit.change(outstanding, 0);
            let pending = from
                .unexpected
                .iter()
                .any(|letter| letter.payload.is_none());
            if sender != io.me && (pending || !from.transfers.is_empty()) {
                io.outbox.push(sender, Item::Lost(io.me));
            }
        }
        (self.kept, self.waiting) = (0, 0);
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

fn matches(receiving: &Receiving, offer: &Offer) -> bool {
    receiving.context == offer.context && receiving.tag == offer.tag
}

fn waits_without_bytes<'a>(mut letters: impl Iterator<Item = &'a Letter>, number: u32) -> bool {
    letters.any(|letter| letter.offer.number == number && letter.payload.is_none())
}

/// Tells a sender that its message is here, or known.
fn answer(to: Rank, number: u32, is_here: bool, io: &mut Io<'_>) {
    let block = BlockId::Message(number);
    let item = if is_here {
        Item::Got { block }
    } else {
        Item::Known { number }
    };
    io.outbox.push(to, item);
}

/// Copies between two places of the program's memory.
pub(super) fn copy(
    memory: &mut dyn Memory,
    (source, from): (BufferId, u64),
    (target, to): (BufferId, u64),
    bytes: u64,
) -> Result<(), Gone> {
    let mut piece = [0; PACKET];
    let mut done = 0;
    while done < bytes {
        let count = (bytes - done).min(PACKET as u64);
        let piece = &mut piece[..count as usize];
        memory.read(source, from + done, piece)?;
        memory.write(target, to + done, piece)?;
        done += count;
    }
    Ok(())
}
