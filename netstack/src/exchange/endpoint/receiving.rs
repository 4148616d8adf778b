//! What an endpoint does with a datagram: finds the operation that it is for, or answers for one
//! that has not begun or is over.
//!
//! Neighbour: [`super`] has the operations.
//!
//! Invariant: a datagram of an operation that this rank has not begun leaves at most a bounded
//! note.

use alloc::boxed::Box;

use super::super::group::Together;
use super::super::io::Io;
use super::super::message::{ALL_STEPS, BlockId, Body, Data, Item, Loss, Offer, Packet};
use super::super::published::steps;
use super::super::{Memory, PACKET, Scheme, wire};
use super::{Endpoint, MAX_EARLY, find};
use crate::ids::Rank;
use crate::time::Instant;
use crate::wire::Error;

impl Endpoint {
    /// Takes a datagram: whose it is. None: it is not one of this job for this rank, came before,
    /// or makes no sense; that is counted.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        datagram: &[u8],
        memory: &mut dyn Memory,
    ) -> Option<Rank> {
        match wire::parse(&mut self.envelopes, datagram) {
            Ok((packet, bytes)) => {
                let from = packet.from;
                self.handle_packet(now, packet, bytes, memory);
                return Some(from);
            }
            Err(Error::Replayed) => self.counters.replayed += 1,
            Err(_) => self.counters.bad += 1,
        }
        None
    }

    /// Takes what a datagram holds; in a simulation several packets of data at once, without their
    /// bytes. Then the memory is told by empty writes where they would go.
    pub fn handle_packet(
        &mut self,
        now: Instant,
        packet: Packet,
        bytes: Option<&[u8]>,
        memory: &mut dyn Memory,
    ) {
        let from = packet.from;
        if from.0 >= self.config.size || from == self.config.me {
            self.counters.bad += 1;
            return;
        }
        self.liveness.heard(from, now);
        match packet.body {
            Body::Data(data) => self.data(now, from, &data, bytes, memory),
            Body::Control(items) => {
                for item in items {
                    self.item(now, from, item, memory);
                }
            }
            Body::Short { offer, payload } => self.offered(now, from, offer, Some(payload), memory),
        }
        self.settle(now);
    }

    fn offered(
        &mut self,
        now: Instant,
        from: Rank,
        offer: Offer,
        payload: Option<Box<[u8]>>,
        memory: &mut dyn Memory,
    ) {
        let (messages, io) = (&mut self.messages, io!(self, now));
        if self.left {
            if !messages.incoming.answer_received(from, offer.number, io) {
                self.tell_left(from);
            }
            return;
        }
        messages
            .incoming
            .offered(from, offer, payload, memory, io, &mut messages.events);
    }

    fn data(
        &mut self,
        now: Instant,
        from: Rank,
        data: &Data,
        bytes: Option<&[u8]>,
        memory: &mut dyn Memory,
    ) {
        let io = io!(self, now);
        match data.block {
            BlockId::Message(number) => self
                .messages
                .received(from, number, data, bytes, memory, io),
            BlockId::Exchange(context, number) => {
                let id = (context, number);
                if let Some(exchange) = find(&mut self.exchanges, id) {
                    if !exchange.has(from) {
                        io.counters.bad += 1;
                        return;
                    }
                    exchange.received(from, data, bytes, memory, io);
                    return;
                }
                self.counters.duplicates += u64::from(data.packets.count_ones());
                if data.is_last {
                    // Its sender is ready, that much is known; the block is asked for when this
                    // rank is.
                    let last = data.first + 63 - data.packets.leading_zeros();
                    let bytes = u64::from(last) * PACKET as u64 + u64::from(data.tail);
                    self.note_ready(from, id, bytes, 0);
                    if !self.is_ahead(context, number)
                        && !(self.numbers).is_spoiled(context, number)
                    {
                        self.say_over(from, id);
                    }
                }
            }
        }
    }

    /// The block of a rank has come in an exchange that is over here, and it has not heard so; or
    /// this rank took no part in that exchange.
    fn say_over(&mut self, to: Rank, id: (u16, u32)) {
        let signature = self.numbers.signature(id.0, id.1);
        if signature == Some(0) {
            self.found_other(to, id, Together::Exchange);
            return self.fail_behind(to, id.0, |_| true);
        }
        let got = Item::Got {
            block: BlockId::Exchange(id.0, id.1),
            signature: signature.unwrap_or(0),
        };
        self.outbox.push(to, got);
    }

    /// A rank is ready for an exchange that this one may not have begun.
    fn note_ready(
        &mut self,
        from: Rank,
        (context, number): (u16, u32),
        bytes: u64,
        signature: u32,
    ) {
        // A rank is at most one exchange ahead where all blocks have bytes; else this is bounded
        // here.
        let is_room = self.early.len() < 2 * self.config.size as usize + MAX_EARLY;
        if is_room && self.is_ahead(context, number) {
            let early = self.early.entry((context, number, from)).or_default();
            // A packet after it says less.
            *early = (bytes, if signature == 0 { early.1 } else { signature });
            if self.config.scheme == Scheme::Default && !self.left {
                self.outbox.push(from, Item::Noted { context, number });
            }
        }
    }

    /// A rank reports to this one as the master of an exchange that it has not begun. Who is done
    /// with it needs an answer.
    fn note_report(&mut self, from: Rank, id: (u16, u32), step: u32, signature: u32) {
        let most = 2 * self.config.size as usize + MAX_EARLY;
        let is_kept = matches!(self.config.scheme, Scheme::Published { .. })
            && self.early_reports.keep(id, from, (step, signature), most);
        if is_kept && step == ALL_STEPS {
            self.outbox.push(from, steps::answer(id, step, signature));
        }
    }

    /// The exchange of this number is one that this rank has not begun.
    fn is_ahead(&self, context: u16, number: u32) -> bool {
        self.numbers.is_ahead(context, number)
    }

    fn item(&mut self, now: Instant, from: Rank, item: Item, memory: &mut dyn Memory) {
        if self.is_of_other(from, &item) {
            return;
        }
        match item {
            Item::Ping { question } => return self.asked_presence(from, question),
            Item::Pong { question } => return self.liveness.answered(from, question, now),
            Item::Lost(loss) => return self.told_lost_rank(now, from, loss),
            Item::Offer(offer) => return self.offered(now, from, offer, None, memory),
            _ => {}
        }
        let io = io!(self, now);
        match item {
            Item::Known { number } => self.messages.known(from, number, io),
            Item::Pull {
                block: BlockId::Message(number),
                pull,
            } => self.messages.pulled(from, number, pull, io),
            Item::Got {
                block: BlockId::Message(number),
                ..
            } => self.messages.acknowledged(from, number, io),
            Item::Served {
                block: BlockId::Message(number),
                serial,
            } => self.messages.incoming.served(from, number, serial, io),
            Item::Refuse {
                block: BlockId::Message(number),
                gone,
            } => {
                let messages = &mut self.messages;
                let events = &mut messages.events;
                messages
                    .incoming
                    .refused(from, (number, gone), memory, io, events);
            }
            Item::Arrived {
                context,
                number,
                stage,
                signature,
            } => self.token(now, from, (context, number), stage, signature),
            Item::Ask {
                context,
                number,
                stage,
                signature,
            } => self.asked_token(now, from, (context, number), stage, signature),
            Item::Broken {
                context,
                number,
                rank,
                why,
            } => self.told_broken(from, (context, number), (rank, why)),
            other => self.exchange_item(now, from, other),
        }
    }

    fn exchange_item(&mut self, now: Instant, from: Rank, item: Item) {
        let id = match item {
            Item::Fault {
                context,
                number,
                rank,
                why,
                bytes,
            } => return self.told_fault(from, (context, number), (rank, why), bytes),
            Item::Ready {
                context, number, ..
            }
            | Item::WhoIsReady {
                context, number, ..
            }
            | Item::Busy { context, number }
            | Item::Noted { context, number }
            | Item::ToMaster {
                context, number, ..
            }
            | Item::FromMaster {
                context, number, ..
            } => (context, number),
            Item::Pull { block, .. }
            | Item::Got { block, .. }
            | Item::Served { block, .. }
            | Item::Refuse { block, .. } => match block {
                BlockId::Exchange(context, number) => (context, number),
                BlockId::Message(_) => return,
            },
            _ => return,
        };
        let io = io!(self, now);
        let Some(exchange) = find(&mut self.exchanges, id) else {
            return self.stray_item(from, id, item);
        };
        if !exchange.has(from) {
            io.counters.bad += 1;
            return;
        }
        match item {
            Item::Ready { bytes, pushed, .. } => exchange.ready(from, bytes, pushed, io),
            Item::WhoIsReady { .. } => exchange.asked_ready(from, io),
            Item::Pull { pull, .. } => exchange.pulled(from, pull, io),
            Item::Got { .. } => exchange.acknowledged(from, io),
            Item::Served { serial, .. } => exchange.served(from, serial, io),
            // Where that rank knows the reason it has said so before.
            Item::Refuse { gone, .. } => exchange.refused(from, gone),
            Item::Busy { .. } => exchange.busy(from, io),
            Item::Noted { .. } => exchange.noted(from, io),
            Item::ToMaster { step, .. } => exchange.hear_as_master(from, step, io),
            Item::FromMaster {
                step,
                place,
                count,
                to,
                ..
            } if exchange.is_master(from) => exchange.told_by_master((step, place, count, to), io),
            _ => {}
        }
    }

    /// Of an exchange that this rank has not begun, or that is over here.
    fn stray_item(&mut self, from: Rank, (context, number): (u16, u32), item: Item) {
        if self.left && self.is_ahead(context, number) {
            return self.tell_ended_exchange(from, (context, number));
        }
        if self.is_ahead(context, number) {
            match item {
                Item::Ready {
                    bytes, signature, ..
                } => self.note_ready(from, (context, number), bytes, signature),
                Item::ToMaster {
                    step, signature, ..
                } => self.note_report(from, (context, number), step, signature),
                _ => {}
            }
            return;
        }
        let is_spoiled = (self.numbers).is_spoiled(context, number);
        match item {
            Item::Ready { .. } if !is_spoiled => self.say_over(from, (context, number)),
            // This rank is done only when the master knows; the datagram is an old one, or says so
            // again.
            Item::FromMaster { .. } if !is_spoiled => {}
            // The other has not heard that the master knows.
            Item::ToMaster {
                step, signature, ..
            } if !is_spoiled && step == ALL_STEPS => {
                self.outbox
                    .push(from, steps::answer((context, number), step, signature));
            }
            // It is over here: whatever this rank had for that one it has got.
            Item::WhoIsReady { signature, .. } if !is_spoiled => self.outbox.push(
                from,
                Item::Ready {
                    context,
                    number,
                    bytes: 0,
                    pushed: 0,
                    signature,
                },
            ),
            Item::Ready { .. }
            | Item::WhoIsReady { .. }
            | Item::Pull { .. }
            | Item::ToMaster { .. }
            | Item::FromMaster { .. }
                if is_spoiled =>
            {
                self.tell_spoiled(from, (context, number));
            }
            _ => {}
        }
    }

    fn token(&mut self, now: Instant, from: Rank, id: (u16, u32), stage: u8, signature: u32) {
        let io = io!(self, now);
        let mut barriers = self.barriers.iter_mut();
        if let Some(barrier) = barriers.find(|barrier| barrier.id() == id) {
            return barrier.arrived(stage, io);
        }
        if let Some(early) = self.early_token(from, id) {
            early.stages |= 1 << stage;
            early.signature = signature;
        }
    }

    fn asked_token(
        &mut self,
        now: Instant,
        from: Rank,
        (context, number): (u16, u32),
        stage: u8,
        signature: u32,
    ) {
        let io = io!(self, now);
        let mut barriers = self.barriers.iter();
        if let Some(barrier) =
            barriers.find(|barrier| (barrier.context, barrier.number) == (context, number))
        {
            return barrier.asked(from, stage, io);
        }
        let is_spoiled = (self.numbers).is_spoiled(context, number);
        let is_over = !self.numbers.is_ahead(context, number);
        if is_over && !is_spoiled {
            // This rank was in all of its stages.
            let token = Item::Arrived {
                context,
                number,
                stage,
                signature,
            };
            return self.outbox.push(from, token);
        }
        if is_spoiled || self.left {
            self.tell_broken(from, (context, number));
        }
    }

    /// A rank says that one is lost.
    fn told_lost_rank(&mut self, now: Instant, from: Rank, loss: Loss) {
        // Whose program ended because of another names that one; how sure that one's loss is it
        // does not say here.
        if let Some(cause) = loss.cause {
            let cause = Loss {
                has_ended: true,
                ..Loss::of(cause)
            };
            self.lose(now, cause, self.config.me);
        }
        self.lose(now, loss, from);
    }

    /// A rank asks whether this one is there. One whose program has ended is, and says so.
    fn asked_presence(&mut self, from: Rank, question: u32) {
        if self.left {
            self.tell_left(from);
        }
        if let Some(loss) = self.lost.earliest() {
            self.outbox.push(from, Item::Lost(loss));
        }
        self.outbox.push(from, Item::Pong { question });
    }
}
