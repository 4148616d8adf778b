//! What member and source have in common: casts, the queue of messages, the pacers, and the cutting
//! of trains into datagrams.
//!
//! Messages go before data, a bounded number in a row: whatever others ask, this station asks for
//! what it lacks, and sends data. Casts take turns with data, train by train. Each cast keeps to
//! its own rate, all of them together to that of the link: a cast whose rate is used up is passed
//! over, so that another may have what it leaves. A train that has begun is ended, at the link's
//! rate.
//!
//! Invariant: everything that leaves is charged to the link's pacer and to that of its cast; no
//! cast changes the rate of another.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddrV4;

use super::cast::pulling::WINDOW;
use super::cast::serving::Train;
use super::cast::{Cast, CastEvent, Io};
use super::event::{CastCounters, EndReason, Footprint};
use super::member::MAX_CASTS;
use super::message::{Answer, Blocks, MemberIndex, Message, Packet, Standing};
use super::outbox::Outbox;
use super::{MAX_BLOCK_LOG2, Peer, Store, wire};
use crate::ids::CastId;
use crate::rng::Rng;
use crate::time::{Instant, Micros};
use crate::transport::pacer::{self, Pacer};
use crate::transport::retry::FIRST;
use crate::wire::envelope::Envelopes;
use crate::wire::key::Key;

/// Casts that ended and are remembered, so that late messages of them are understood: twice as many
/// as there are at a time.
const MAX_ENDED: usize = 2 * MAX_CASTS;
/// Casts that were turned away and are remembered, so that others who ask for their blocks are told
/// that these are not here.
const MAX_TURNED_AWAY: usize = MAX_ENDED;
/// Answers to strangers that wait to be sent.
const MAX_STRAY: usize = 256;
/// Casts wait for each other's credit: after a window of block times without data, and this time at
/// least, one that has it gives some up. What a tree's upper levels hold back at 20 Mbit/s is not
/// taken for stuck.
const STUCK_BLOCKS: u64 = WINDOW as u64;
const STUCK: Micros = FIRST;
/// Fragments that may be asked for beyond a station's credit
/// ([`MemberConfig::credit`](super::MemberConfig::credit)), so that a cast can begin beside others
/// that have asked for all of it: a block of the largest size.
pub const SPARE_CREDIT: u32 = (1_u32 << MAX_BLOCK_LOG2).div_ceil(super::FRAGMENT as u32);
/// Most messages in a row while data waits or something could be asked for: so many short ones take
/// about as long on a link as a block of the usual size.
const MESSAGES_IN_A_ROW: u32 = 64;
/// Rate before the first cast where none is given, 1 Gbit/s: nothing is sent then but answers.
const BEFORE_CASTS: u64 = 125_000_000;

/// See the module.
#[derive(Debug)]
pub(crate) struct Station {
    me: Peer,
    envelopes: Envelopes,
    /// Of all casts together.
    link: Pacer,
    /// Nobody says how fast the link is: it carries what the fastest cast was announced with.
    as_announced: bool,
    casts: Vec<Cast>,
    /// With the number that this station had in it.
    ended: VecDeque<(CastId, EndReason, MemberIndex)>,
    /// Casts for which there was no room, with the number that this station has in them.
    turned_away: VecDeque<(CastId, MemberIndex)>,
    outbox: Outbox,
    /// Messages that were sent in a row.
    in_a_row: u32,
    events: VecDeque<(CastId, CastEvent)>,
    /// The train that is being cut into datagrams.
    train: Option<(CastId, Peer, Train)>,
    /// The cast whose turn it is.
    turn: usize,
    /// Fragments that may be asked for at a time, by all casts together, and [`SPARE_CREDIT`] more:
    /// see [`Station::share_credit`].
    credit: u32,
    /// The cast that asks first: the one after the last that asked.
    asking: usize,
    /// Since when a cast has waited for credit that others have.
    starving: Option<Instant>,
    /// See [`Io`].
    last_data: Instant,
    pub counters: CastCounters,
    rng: Rng,
    next_tick: Instant,
}

impl Station {
    /// `rate` is that of the link; None: as fast as the fastest of the casts under way.
    pub(crate) fn new(me: Peer, key: Key, rate: Option<u64>, seed: u64, now: Instant) -> Self {
        Station {
            me,
            envelopes: Envelopes::new(&key.casts_key(), me.addr, now),
            link: Pacer::new(rate.unwrap_or(BEFORE_CASTS), now),
            as_announced: rate.is_none(),
            casts: Vec::new(),
            ended: VecDeque::new(),
            turned_away: VecDeque::new(),
            outbox: Outbox::default(),
            in_a_row: 0,
            events: VecDeque::new(),
            train: None,
            turn: 0,
            credit: u32::MAX,
            asking: 0,
            starving: None,
            last_data: Instant::ZERO,
            counters: CastCounters::default(),
            rng: Rng::new(seed),
            next_tick: Instant::FAR_FUTURE,
        }
    }

    /// So many fragments may be on their way to this station at a time.
    pub(crate) fn set_credit(&mut self, fragments: u32) {
        if self.credit != fragments {
            self.credit = fragments;
            self.share_credit();
        }
    }

    pub(crate) fn casts(&self) -> &[Cast] {
        &self.casts
    }

    pub(crate) fn cast(&self, id: CastId) -> Option<&Cast> {
        self.casts.iter().find(|cast| cast.id == id)
    }

    pub(crate) fn add(&mut self, cast: Cast) {
        self.ended.retain(|(id, ..)| *id != cast.id);
        self.turned_away.retain(|(id, _)| *id != cast.id);
        self.casts.push(cast);
        self.next_tick = Instant::ZERO;
        self.share_link();
    }

    /// Casts have come or gone. After the last one the rate of the link stays, for what is still to
    /// be answered. Each is told with how many others it shares the link; one of a lower rate
    /// counts as much less.
    fn share_link(&mut self) {
        let rates: Vec<u64> = self.casts.iter().map(|cast| cast.pacer.rate()).collect();
        if let Some(most) = rates.iter().copied().max().filter(|_| self.as_announced) {
            self.link.set_rate(most);
        }
        let link = self.link.rate().max(1);
        for cast in &mut self.casts {
            let own = cast.pacer.rate();
            let each = rates.iter().map(|rate| own.min(*rate));
            let all = each.fold(link / 2, u64::saturating_add);
            cast.share((all / link).clamp(1, rates.len() as u64) as u32);
        }
        self.share_credit();
    }

    pub(crate) fn has_ended(&self, id: CastId) -> bool {
        // What was abandoned may be announced again: its member was out of reach.
        let mut ended = self.ended.iter();
        ended.any(|(ended, reason, _)| *ended == id && *reason != EndReason::Abandoned)
    }

    /// A new run of the control node: nothing of the one before stays.
    pub(crate) fn set_key(&mut self, now: Instant, key: Key) {
        self.envelopes = Envelopes::new(&key.casts_key(), self.me.addr, now);
        self.casts.clear();
        self.ended.clear();
        self.turned_away.clear();
        self.outbox.clear();
        self.events.clear();
        self.train = None;
        self.starving = None;
        self.next_tick = Instant::FAR_FUTURE;
    }

    /// Acts on one cast.
    pub(crate) fn with<R>(
        &mut self,
        now: Instant,
        id: CastId,
        store: &mut dyn Store,
        act: impl FnOnce(&mut Cast, &mut Io<'_>) -> R,
    ) -> Option<R> {
        let cast = self.casts.iter_mut().find(|cast| cast.id == id)?;
        let mut io = Io {
            now,
            mac: self.me.mac,
            outbox: &mut self.outbox,
            store,
            last_data: &mut self.last_data,
            rng: &mut self.rng,
            counters: &mut self.counters,
            events: &mut self.events,
        };
        let result = act(cast, &mut io);
        self.next_tick = self.next_tick.min(cast.deadline());
        self.share_credit();
        Some(result)
    }

    /// What this station numbers and has opened.
    pub(crate) fn envelopes(&mut self) -> &mut Envelopes {
        &mut self.envelopes
    }

    /// Reads a datagram; bad ones are counted.
    pub(crate) fn parse<'a>(
        &mut self,
        now: Instant,
        from: SocketAddrV4,
        datagram: &'a [u8],
    ) -> Option<(Packet, Option<&'a [u8]>)> {
        let parsed = wire::parse(&mut self.envelopes, now, from, datagram).ok();
        self.counters.bad += u64::from(parsed.is_none());
        parsed
    }

    /// Gives a message to its cast. False if there is no such cast.
    pub(crate) fn deliver(
        &mut self,
        now: Instant,
        from: SocketAddrV4,
        packet: Packet,
        fragment: Option<&[u8]>,
        store: &mut dyn Store,
    ) -> bool {
        let sender = packet.from;
        let found = self.with(now, packet.cast, store, |cast, io| {
            if let Message::Data {
                block,
                fragments,
                held,
                sealed,
            } = packet.message
            {
                // Nothing vouches for who sent DATA, if it is not sealed; at least it came from
                // that member's address.
                if cast.is_at(sender, from) {
                    let train = Train {
                        to: sender,
                        block,
                        fragments,
                        held,
                        sealed,
                    };
                    cast.receive(train, fragment, io);
                } else {
                    io.counters.bad += 1;
                }
            } else {
                cast.message(from, packet, io);
            }
        });
        found.is_some()
    }

    /// A message of a cast that is not known here, or not any more. `me` is said to be the sender
    /// where no better number is known.
    pub(crate) fn stray(&mut self, from: SocketAddrV4, packet: &Packet, me: MemberIndex) {
        let mut ended = self.ended.iter();
        let ended =
            ended.find(|(id, reason, _)| *id == packet.cast && *reason != EndReason::Abandoned);
        let mut turned_away = self.turned_away.iter();
        let turned_away = turned_away.find(|(id, _)| *id == packet.cast);
        let numbers = ended.map(|(.., me)| me).or(turned_away.map(|(_, me)| me));
        let me = numbers.copied().unwrap_or(me);
        let message = match (&packet.message, ended) {
            (Message::Request(wants), None) if turned_away.is_some() => {
                let mut blocks = Blocks::default();
                wants.iter().for_each(|want| {
                    blocks.push(want.block);
                });
                let answer = Answer::NotHere;
                Message::Answer { answer, blocks }
            }
            (Message::End { number, .. }, _) => Message::EndAck { number: *number },
            // Nobody waits for what is told of a cast that is over. Of one that this station has
            // forgotten, by a restart, the source is to hear.
            (Message::Report(report), ended) if ended.is_some() || me.is_source() => {
                Message::ReportAck {
                    number: report.number,
                }
            }
            // Its END was lost, or is on its way.
            (
                Message::Probe { .. } | Message::Request(_) | Message::Announce { .. },
                Some((_, reason, _)),
            ) => Message::End {
                number: 0,
                reason: *reason,
            },
            (
                Message::Probe { .. }
                | Message::Request(_)
                | Message::AnnounceAck { .. }
                | Message::Report(_),
                _,
            ) => Message::Unknown,
            _ => return,
        };
        self.answer_stranger(from, packet, me, message);
    }

    /// A cast is announced for which there is no room.
    pub(crate) fn turn_away(&mut self, from: SocketAddrV4, packet: &Packet, me: MemberIndex) {
        let Message::Announce { number, .. } = packet.message else {
            return;
        };
        self.turned_away.retain(|(id, _)| *id != packet.cast);
        if self.turned_away.len() >= MAX_TURNED_AWAY {
            self.turned_away.pop_front();
        }
        self.turned_away.push_back((packet.cast, me));
        let standing = Standing::NoRoom;
        let refusal = Message::AnnounceAck { number, standing };
        self.answer_stranger(from, packet, me, refusal);
    }

    /// Answers a message of a cast in which this station has no part.
    fn answer_stranger(
        &mut self,
        from: SocketAddrV4,
        packet: &Packet,
        me: MemberIndex,
        message: Message,
    ) {
        if self.outbox.len() >= MAX_STRAY {
            return;
        }
        let peer = Peer {
            addr: from,
            mac: packet.mac,
        };
        let answer = Packet {
            cast: packet.cast,
            from: me,
            mac: self.me.mac,
            message,
        };
        self.outbox.push_back((peer, answer));
    }

    fn tick(&mut self, now: Instant, store: &mut dyn Store) {
        if self.next_tick > now {
            return;
        }
        let mut at = 0;
        while at < self.casts.len() {
            let id = self.casts[at].id;
            if self.casts[at].deadline() <= now {
                self.with(now, id, store, |cast, io| cast.tick(io));
            }
            if self.casts[at].spread.is_over() {
                let reason = self.casts[at].spread.ending();
                self.remove(at, reason.unwrap_or(EndReason::Abandoned));
            } else {
                at += 1;
            }
        }
        let deadlines = self.casts.iter().map(Cast::deadline);
        self.next_tick = deadlines.min().unwrap_or(Instant::FAR_FUTURE);
    }

    fn remove(&mut self, at: usize, reason: EndReason) {
        let cast = self.casts.remove(at);
        // What waits to be sent of it keeps no addresses any more.
        self.outbox.retain(|packet| {
            let message = &packet.message;
            let keeps = matches!(
                message,
                Message::RosterPage { .. } | Message::Announce { .. }
            );
            !keeps || packet.cast != cast.id
        });
        if self.ended.len() >= MAX_ENDED {
            self.ended.pop_front();
        }
        self.ended.push_back((cast.id, reason, cast.me));
        if self.train.as_ref().is_some_and(|(id, ..)| *id == cast.id) {
            self.train = None;
        }
        self.turn = 0;
        self.asking = match at < self.asking {
            true => self.asking - 1,
            false => self.asking % self.casts.len().max(1),
        };
        self.share_link();
    }

    /// Forgets a cast at once.
    pub(crate) fn forget(&mut self, id: CastId) {
        if let Some(at) = self.casts.iter().position(|cast| cast.id == id) {
            self.remove(at, EndReason::Abandoned);
        }
    }

    /// Casts take turns: whoever has asked is asked last the next time.
    fn make_requests(&mut self, now: Instant, store: &mut dyn Store) {
        if self.stuck_at() <= now {
            self.starving = None;
            self.take_back_credit(now, store);
        }
        let (count, first) = (self.casts.len(), self.asking);
        for at in (0..count).map(|step| (first + step) % count) {
            if self.casts[at].is_eager() {
                let id = self.casts[at].id;
                let asked = self.with(now, id, store, |cast, io| cast.make_requests(io));
                if asked == Some(true) {
                    self.asking = (at + 1) % count;
                }
            }
        }
        self.starving = match self.casts.iter().any(Cast::is_starving) {
            true => self.starving.or(Some(now)),
            false => None,
        };
    }

    /// When what is under way has not come for so long, with a cast waiting for its room, that it
    /// may not come at all.
    fn stuck_at(&self) -> Instant {
        let Some(since) = self.starving else {
            return Instant::FAR_FUTURE;
        };
        let lacking = self.casts.iter().filter(|cast| cast.lacks());
        let times = lacking.map(|cast| cast.pace.blocks(STUCK_BLOCKS));
        let wait = times.max().unwrap_or(STUCK).max(STUCK);
        since.max(self.last_data) + wait
    }

    /// The cast whose turn it is, of those that have a request to give up, gives it up and is asked
    /// last.
    fn take_back_credit(&mut self, now: Instant, store: &mut dyn Store) {
        let (count, first) = (self.casts.len(), self.asking);
        for at in (0..count).map(|step| (first + step) % count) {
            let id = self.casts[at].id;
            if self.with(now, id, store, |cast, io| cast.give_way(io)) == Some(true) {
                self.asking = (at + 1) % count;
                return;
            }
        }
    }

    /// A cast may ask for its share of what may be on its way, as far as the others leave it; for
    /// one block in any case, so that it waits for no other, as long as there is room within the
    /// credit and [`SPARE_CREDIT`]. Beyond that casts take turns, block by block: what the next one
    /// needs is kept from the others, whose blocks may be smaller. Done anew whenever something has
    /// changed: [`Station::poll_timeout`] goes by it.
    fn share_credit(&mut self) {
        if self.credit == u32::MAX {
            return;
        }
        let sharing = self.casts.iter().filter(|cast| cast.lacks());
        let (number, all) = sharing.fold((0, 0), |(number, all), cast| {
            (number + 1, all + cast.pull.under_way())
        });
        let share = self.credit / number.max(1);
        let left = self.credit.saturating_sub(all);
        let mut room = (self.credit.saturating_add(SPARE_CREDIT)).saturating_sub(all);
        let (count, first) = (self.casts.len(), self.asking);
        for at in (0..count).map(|step| (first + step) % count) {
            let cast = &mut self.casts[at];
            let most = match cast.pull.under_way() {
                0 => share.min(left).max(cast.pull.block_fragments().min(room)),
                own => own + share.saturating_sub(own).min(left),
            };
            cast.pull.set_most_under_way(most);
            if cast.begins_anew() {
                room = room.saturating_sub(cast.pull.block_fragments());
            }
        }
    }

    /// The next train, of the cast whose turn it is and whose rate allows it.
    fn next_train(&mut self, now: Instant, store: &mut dyn Store) -> Option<(CastId, Peer, Train)> {
        for _ in 0..self.casts.len() {
            self.turn = (self.turn + 1) % self.casts.len();
            let cast = &self.casts[self.turn];
            if !cast.pacer.is_ready(now) || cast.serve.ready() == 0 {
                continue;
            }
            let id = cast.id;
            let found = self.with(now, id, store, |cast, io| {
                while let Some(train) = cast.next_train(io) {
                    if let Some(peer) = cast.roster.get(train.to) {
                        cast.blocks_sent += 1;
                        io.counters.trains += 1;
                        return Some((id, peer, train));
                    }
                }
                None
            });
            if let Some(train) = found.flatten() {
                return Some(train);
            }
        }
        None
    }

    /// The next message, data as whole trains.
    pub(crate) fn poll_message(
        &mut self,
        now: Instant,
        store: &mut dyn Store,
    ) -> Option<(Peer, Packet)> {
        self.tick(now, store);
        if !self.link.is_ready(now) {
            return None;
        }
        if let Some(message) = self.poll_in_a_row(now, store) {
            return Some(message);
        }
        let Some((id, peer, train)) = self.next_train(now, store) else {
            return self.poll_answers(now, store);
        };
        let cast = self.casts.iter_mut().find(|cast| cast.id == id)?;
        let message = Message::Data {
            block: train.block,
            fragments: train.fragments,
            held: train.held,
            sealed: train.sealed,
        };
        let mut bytes = 0;
        let mut wire = 0;
        let mut left = train.fragments;
        while left != 0 {
            let fragment = left.trailing_zeros();
            let length = cast.setup.object.fragment_length(train.block, fragment);
            bytes += length;
            wire += pacer::on_wire(length + wire::data_overhead(train.sealed));
            left &= left - 1;
        }
        self.link.charge(now, wire);
        cast.pacer.charge(now, wire);
        cast.bytes_sent += bytes as u64;
        self.counters.data_bytes += bytes as u64;
        let packet = Packet {
            cast: id,
            from: cast.me,
            mac: [0; 6],
            message,
        };
        Some((peer, packet))
    }

    /// The next message where [`Station::next_train`] has found nothing: it may have put answers
    /// NOT_HERE into the outbox.
    fn poll_answers(&mut self, now: Instant, store: &mut dyn Store) -> Option<(Peer, Packet)> {
        match self.outbox.is_empty() {
            true => None,
            false => self.poll_outbox(now, store),
        }
    }

    /// The next message, unless it is the turn of what is to be asked for, and of data.
    fn poll_in_a_row(&mut self, now: Instant, store: &mut dyn Store) -> Option<(Peer, Packet)> {
        if self.in_a_row >= MESSAGES_IN_A_ROW {
            self.in_a_row = 0;
            self.make_requests(now, store);
            return None;
        }
        let message = self.poll_outbox(now, store);
        self.in_a_row = match message {
            Some(_) => self.in_a_row + 1,
            None => 0,
        };
        message
    }

    fn poll_outbox(&mut self, now: Instant, store: &mut dyn Store) -> Option<(Peer, Packet)> {
        if self.outbox.is_empty() {
            self.make_requests(now, store);
        }
        let (peer, packet) = self.outbox.pop_front()?;
        let bytes = pacer::on_wire(packet.message.wire_bytes());
        self.link.charge(now, bytes);
        if let Some(cast) = self.casts.iter_mut().find(|cast| cast.id == packet.cast) {
            cast.pacer.charge(now, bytes);
        }
        Some((peer, packet))
    }

    /// The next datagram.
    pub(crate) fn poll_transmit(
        &mut self,
        now: Instant,
        out: &mut [u8],
        store: &mut dyn Store,
    ) -> Option<(Peer, usize)> {
        self.tick(now, store);
        if !self.link.is_ready(now) {
            return None;
        }
        if let Some((peer, packet)) = self.poll_in_a_row(now, store) {
            return Some((peer, self.emit(now, peer, &packet, out)));
        }
        loop {
            let (id, peer, mut train) = match self.train.take() {
                Some(train) => train,
                None => match self.next_train(now, store) {
                    Some(train) => train,
                    None => {
                        let (peer, packet) = self.poll_answers(now, store)?;
                        return Some((peer, self.emit(now, peer, &packet, out)));
                    }
                },
            };
            let Some(cast) = self.casts.iter_mut().find(|cast| cast.id == id) else {
                continue;
            };
            let fragment = train.fragments.trailing_zeros();
            let object = &cast.setup.object;
            let (part, length) = (
                object.part(train.block),
                object.fragment_length(train.block, fragment),
            );
            let start = fragment as usize * super::FRAGMENT;
            let fill = |bytes: &mut [u8]| store.read(id, part, start, bytes);
            let piece = wire::Piece {
                block: train.block,
                fragment: fragment as u8,
                held: train.held,
            };
            let emitted = match train.sealed {
                true => {
                    let seal = (&mut self.envelopes, now, peer.addr);
                    let from = (cast.me, self.me.mac);
                    wire::emit_sealed_data(seal, id, from, piece, length, out, fill)
                }
                false => wire::emit_data(id, cast.me, piece, length, out, fill),
            };
            let Some(written) = emitted else {
                self.with(now, id, store, |cast, io| cast.not_held(train, io));
                if let Some((peer, packet)) = self.poll_outbox(now, store) {
                    return Some((peer, self.emit(now, peer, &packet, out)));
                }
                continue;
            };
            cast.bytes_sent += length as u64;
            self.counters.data_bytes += length as u64;
            self.link.charge(now, pacer::on_wire(written));
            cast.pacer.charge(now, pacer::on_wire(written));
            train.fragments &= train.fragments - 1;
            if train.fragments != 0 {
                self.train = Some((id, peer, train));
            }
            return Some((peer, written));
        }
    }

    fn emit(&mut self, now: Instant, to: Peer, packet: &Packet, out: &mut [u8]) -> usize {
        wire::emit(&mut self.envelopes, now, to.addr, packet, out)
    }

    /// When to poll again.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let link = self.link.ready_at();
        let sends = !self.outbox.is_empty()
            || self.train.is_some()
            || self.casts.iter().any(Cast::is_eager);
        let at = self.next_tick.min(match sends {
            true => link,
            false => self.next_train_at().min(self.stuck_at()).max(link),
        });
        (at != Instant::FAR_FUTURE).then_some(at)
    }

    /// When the rate of a cast allows its next train.
    fn next_train_at(&self) -> Instant {
        let serving = self.casts.iter().filter(|cast| cast.serve.ready() > 0);
        let trains = serving.map(|cast| cast.pacer.ready_at());
        trains.min().unwrap_or(Instant::FAR_FUTURE)
    }

    pub(crate) fn poll_event(&mut self) -> Option<(CastId, CastEvent)> {
        self.events.pop_front()
    }

    /// Pages of addresses that wait to be sent.
    #[cfg(test)]
    pub(crate) fn queued_pages(&self) -> impl Iterator<Item = &alloc::sync::Arc<[Peer]>> {
        let queued = self.outbox.iter();
        queued.filter_map(|(_, packet)| match &packet.message {
            Message::RosterPage { peers, .. } => Some(peers),
            _ => None,
        })
    }

    pub(crate) fn footprint(&self) -> Footprint {
        let mut footprint = Footprint {
            casts: self.casts.len(),
            queued: self.outbox.len() + usize::from(self.train.is_some()),
            ..Footprint::default()
        };
        for cast in &self.casts {
            footprint.requests += cast.pull.len();
            footprint.buffers += cast.pull.buffers();
            footprint.parked += cast.serve.parked() + cast.serve.ready();
        }
        footprint
    }
}

#[cfg(test)]
mod tests;
