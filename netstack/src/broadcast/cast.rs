//! One cast at one station: what it is, what is here, and the parts that pull, serve and spread.
//!
//! The source is a station that holds everything and pulls nothing; the rest is the same code.
//!
//! Invariant: parts speak to one another only through this type's methods; each keeps its own
//! tables and bounds.

#[cfg(test)]
mod alone;
pub(super) mod pulling;
pub(super) mod serving;
pub(super) mod spreading;
mod way;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::net::SocketAddrV4;

use super::bitmap::Bitmap;
use super::event::{CastCounters, EndReason, FailReason, Progress};
use super::message::{
    Answer, Blocks, MemberIndex, Message, PAGE_PEERS, Packet, Range, Setup, Standing,
};
use super::outbox::{Outbox, Repeated};
use super::pace::Pace;
use super::plan::{Planner, View};
use super::roster::{self, Roster};
use super::suspects::{MAX_SUSPECTS, Suspects};
use super::{MAX_MEMBERS, Part, Peer, Store, shape};
use crate::ids::{BootEpoch, CastId};
use crate::join::Timing;
use crate::rng::Rng;
use crate::time::{Instant, Micros};
use crate::transport::pacer::Pacer;
use pulling::{MAX_ASKED, Pull};
use serving::{MAX_WAITS, Serve};
use spreading::Spread;
use way::Way;

/// Messages that wait to be sent; more are dropped, for all are repeated. As many as a station can
/// owe in one moment: a request for each block, an answer to each that waits, and a page to each.
const MAX_OUTBOX: usize = 8192;
const _: () = assert!(MAX_OUTBOX > MAX_ASKED + MAX_WAITS + roster::MAX_WAITING);
/// Blocks of time until an unanswered request for a page of the roster is repeated.
const ROSTER_AGAIN: u64 = 100;
/// How often a parent is asked for a page before another member is, and how often before the source
/// is. Where one datagram in a hundred is lost, request or answer, two are in vain once in 2,500
/// times.
const PARENT_TRIES: u32 = 2;
const SOURCE_AFTER: u32 = 4;
/// Draws of another member that may have a page: where half of all are late or silent, all of them
/// miss once in 256 times.
const PAGE_DRAWS: u32 = 8;
/// Pages that a member learns beside those that its place needs, once somebody it asked is late or
/// silent: those who are on them stand in, other ones for each. As many as can be suspected.
const SPARE_PAGES: u32 = MAX_SUSPECTS as u32 / PAGE_PEERS;
/// With nothing heard from anybody for so long a member gives a cast up: five times what it takes
/// to notice that a control node is gone, which may have been started again by then.
const GIVE_UP: Micros = Timing::DEFAULT.lost_after.saturating_mul(5);
/// The same, in block times, for links so slow that a block takes long; and in waits for one peer.
const GIVE_UP_BLOCKS: u64 = 500;
const GIVE_UP_WAITS: u64 = 16;

/// What a cast tells its facade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CastEvent {
    Stored(u32),
    Complete,
    Ended(EndReason),
    Failed(FailReason),
    /// At the source.
    /// Members have it all, as this one says in this boot.
    Done(Range, MemberIndex, BootEpoch),
    MemberFailed(MemberIndex, FailReason),
    Corrupt(MemberIndex, u32),
}

/// What every call into a cast is given.
pub(crate) struct Io<'a> {
    pub now: Instant,
    pub mac: [u8; 6],
    pub outbox: &'a mut Outbox,
    pub store: &'a mut dyn Store,
    /// When data of any cast that was not here yet came last: all of it comes over one link.
    pub last_data: &'a mut Instant,
    pub rng: &'a mut Rng,
    pub counters: &'a mut CastCounters,
    pub events: &'a mut VecDeque<(CastId, CastEvent)>,
}

/// Whoever waits for it takes this station for dead if it does not come. So it goes before whatever
/// waits here to be sent.
///
/// Source: RFC 4222, section 2, recommendation 1.
fn is_sign_of_life(message: &Message) -> bool {
    matches!(
        message,
        Message::AnnounceAck { .. } | Message::ReportAck { .. } | Message::EndAck { .. }
    )
}

/// Whether the user has answered the announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Consent {
    Asked,
    /// Wants all of it, or has it.
    Given,
    /// Serves what it has.
    Serving,
    /// Refused or failed.
    Out,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Cast {
    pub id: CastId,
    pub setup: Arc<Setup>,
    pub me: MemberIndex,
    /// This station's boot, as the control node knows it.
    pub(crate) boot: BootEpoch,
    pub consent: Consent,
    pub have: Bitmap,
    pub pace: Pace,
    /// Holds what this station sends of this cast to the cast's rate; the station's own holds all
    /// casts to that of the link.
    pub pacer: Pacer,
    way: Way,
    /// The source's clock minus this station's.
    clock_ahead: i64,
    heard: Instant,
    /// When a block came last.
    progressed: Instant,
    pub roster: Roster,
    /// Pages asked for so far only to know more members.
    spare_pages: u32,
    suspects: Suspects,
    planner: Box<dyn Planner>,
    pub pull: Pull,
    pub serve: Serve,
    pub spread: Spread,
    pub blocks_sent: u64,
    pub bytes_sent: u64,
}

impl Cast {
    pub(crate) fn new(
        id: CastId,
        setup: Arc<Setup>,
        me: MemberIndex,
        now: Instant,
        buffers: u32,
        rate: u64,
    ) -> Self {
        let blocks = setup.object.blocks();
        let pace = Pace::new(rate, 1 << setup.object.block_log2);
        let mut roster = Roster::new(setup.members, setup.control, me);
        roster.fill(&setup.roster);
        let have = if me.is_source() {
            Bitmap::full(blocks)
        } else {
            Bitmap::new(blocks)
        };
        // Elsewhere the plan is made when the user takes part.
        let planner = match me.is_source() {
            true => shape::published_planner(&setup, me),
            false => None,
        };
        let planner = planner.unwrap_or_else(|| shape::planner(&setup, me));
        let mut pull = Pull::new(blocks, setup.object.block_bytes() as u64, buffers, pace);
        pull.bound(planner.most_asked());
        Cast {
            id,
            me,
            boot: BootEpoch(0),
            consent: Consent::Asked,
            have,
            pace,
            pacer: Pacer::new(rate, now),
            way: Way::new(),
            clock_ahead: 0,
            heard: now,
            progressed: now,
            roster,
            spare_pages: 0,
            suspects: Suspects::default(),
            planner,
            pull,
            serve: Serve::default(),
            spread: Spread::new(me, setup.members),
            blocks_sent: 0,
            bytes_sent: 0,
            setup,
        }
    }

    /// Casts share this station's link as if so many had the rate of this one.
    pub(crate) fn share(&mut self, crowd: u32) {
        self.way.set_crowd(crowd);
        self.pull.stretch(self.way.blocks(), crowd);
    }

    /// Sends a message if the receiver's address is known.
    pub(super) fn send(&mut self, to: MemberIndex, message: Message, io: &mut Io<'_>) -> bool {
        let Some(peer) = self.roster.get(to) else {
            return false;
        };
        if io.outbox.len() >= MAX_OUTBOX {
            io.counters.overloaded += 1;
            return true;
        }
        let packet = Packet {
            cast: self.id,
            from: self.me,
            mac: io.mac,
            message,
        };
        match is_sign_of_life(&packet.message) {
            true => io.outbox.push_front((peer, packet)),
            false => io.outbox.push_back((peer, packet)),
        }
        true
    }

    pub(super) fn event(&self, event: CastEvent, io: &mut Io<'_>) {
        io.events.push_back((self.id, event));
    }

    pub(super) fn clock(&self, now: Instant) -> u64 {
        now.as_micros().saturating_add_signed(self.clock_ahead)
    }

    /// Runs the planner with a view of this cast.
    pub(super) fn plan<R>(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        act: impl FnOnce(&mut dyn Planner, &mut View<'_>) -> R,
    ) -> R {
        let mut view = View {
            now,
            clock: now.as_micros().saturating_add_signed(self.clock_ahead),
            me: self.me,
            have: &self.have,
            asked: &self.pull.asked,
            silent: self.suspects.silent(),
            gone: self.suspects.gone(),
            pages: self.roster.pages(),
            farther: self.way.blocks(),
            rng,
        };
        act(self.planner.as_mut(), &mut view)
    }

    /// Everything is here, or nothing more is wanted.
    pub(crate) fn is_satisfied(&self) -> bool {
        match self.consent {
            Consent::Asked => false,
            Consent::Given => self.have.is_full(),
            Consent::Serving | Consent::Out => true,
        }
    }

    /// Takes a message from a member of this cast. DATA goes to [`Cast::receive`].
    pub(crate) fn message(&mut self, from: SocketAddrV4, packet: Packet, io: &mut Io<'_>) {
        let mut sender = packet.from;
        if packet.message == Message::Unknown {
            // It does not know its number either.
            let Some(member) = self.who_is_at(from, sender) else {
                return;
            };
            sender = member;
        }
        // Those that joined late have numbers beyond the announced ones.
        if !sender.is_source() && sender.0 >= MAX_MEMBERS {
            io.counters.bad += 1;
            return;
        }
        let peer = Peer {
            addr: from,
            mac: packet.mac,
        };
        if !self.roster.is_from(sender, peer) {
            io.counters.bad += 1;
            // It has booted again with another address, if this is no datagram that somebody has
            // sent again.
            if !self.me.is_source()
                && let Some(page) = self.roster.read_anew(sender, io.now)
            {
                let pages = Blocks::one(page);
                self.send(MemberIndex::SOURCE, Message::RosterRead { pages }, io);
            }
            return;
        }
        if packet.message != Message::Unknown {
            self.heard = io.now;
            self.spread.heard(sender);
        }
        match packet.message {
            Message::Announce {
                number,
                clock,
                leaf,
                ..
            } => self.announced(sender, number, clock, leaf, io),
            Message::AnnounceAck { number, .. } if self.roster.proves(sender, number) => {
                self.proved(sender, io);
            }
            Message::AnnounceAck { number, standing } => {
                self.child_answered(sender, number, standing, io);
            }
            Message::Probe { number } => {
                let standing = match self.spread.parent == Some(sender) {
                    true => Standing::Child,
                    false => Standing::Elsewhere,
                };
                if standing == Standing::Child {
                    self.spread.probed();
                }
                self.send(sender, Message::AnnounceAck { number, standing }, io);
            }
            Message::Unknown => self.unknown(sender, io),
            Message::RosterRead { pages } => {
                self.challenge(sender, io);
                self.roster_read(sender, &pages, io);
            }
            Message::RosterPage { page, peers } => {
                if self.spread.parent == Some(sender) {
                    self.roster.parent_answered();
                }
                if sender.is_source() {
                    self.roster.put_anew(page, &peers);
                }
                self.roster_page(page, peers, io);
            }
            Message::Request(wants) => {
                self.challenge(sender, io);
                self.requested(sender, &wants, io);
            }
            Message::Answer { answer, blocks } => self.answered(sender, answer, &blocks, io),
            Message::Cancel(blocks) => self.serve.cancel(sender, &blocks),
            Message::Report(report) => self.reported(sender, &report, io),
            Message::ReportAck { number } => self.report_acked(sender, number, io),
            Message::End { number, reason } => self.end(sender, number, reason, io),
            Message::EndAck { number } => self.end_acked(sender, number, io),
            Message::Data { .. } => io.counters.bad += 1,
        }
    }

    fn announced(
        &mut self,
        parent: MemberIndex,
        number: u32,
        clock: u64,
        leaf: bool,
        io: &mut Io<'_>,
    ) {
        if self.me.is_source() {
            io.counters.bad += 1;
            return;
        }
        // Whom the source itself tends it wants to hear from: a former parent does not know that
        // this is another boot.
        if self.spread.parent == Some(MemberIndex::SOURCE) && !parent.is_source() {
            let standing = Standing::Elsewhere;
            self.send(parent, Message::AnnounceAck { number, standing }, io);
            return;
        }
        let ahead = i128::from(clock) - i128::from(io.now.as_micros());
        let ahead = ahead.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        // Every announcement was under way for a time, and one that somebody says again later for
        // longer.
        self.clock_ahead = match self.spread.parent {
            None => ahead,
            Some(_) => self.clock_ahead.max(ahead),
        };
        self.spread.announced_by(parent, leaf);
        let standing = Standing::Child;
        self.send(parent, Message::AnnounceAck { number, standing }, io);
        if self.setup.roster.is_empty() {
            self.need_page(self.me.0 / PAGE_PEERS, io);
        }
    }

    /// Asks for a page of the roster unless it is here or under way.
    pub(super) fn need_page(&mut self, page: u32, io: &mut Io<'_>) {
        let wait = self.pace.blocks(ROSTER_AGAIN);
        if let Some(times) = self.roster.need(page, io.now, wait) {
            let whom = self.page_holder(times, io.rng);
            let pages = Blocks::one(page);
            self.send(whom, Message::RosterRead { pages }, io);
        }
    }

    /// Whom to ask for a page that was asked for so often in vain. The parent may be dead or slow;
    /// the source has every page, but must not be everybody's choice: with slow members in the
    /// upper tree thousands would ask it.
    fn page_holder(&self, times: u32, rng: &mut Rng) -> MemberIndex {
        if times >= SOURCE_AFTER {
            return MemberIndex::SOURCE;
        }
        let answers = times < PARENT_TRIES && self.roster.missed() < PARENT_TRIES;
        let parent = self.spread.parent.filter(|_| answers);
        let somebody = || {
            let answers = |member: &MemberIndex| {
                *member != self.me && self.suspects.silent().binary_search(member).is_err()
            };
            let pages = self.roster.pages();
            let mut drawn = (0..PAGE_DRAWS).filter_map(|_| roster::any_known(pages, rng));
            drawn.find(answers)
        };
        parent.or_else(somebody).unwrap_or(MemberIndex::SOURCE)
    }

    /// Somebody is late or silent: learns a page of members that can stand in, up to some.
    pub(super) fn learn_others(&mut self, io: &mut Io<'_>) {
        let pages = self.roster.pages().len() as u32;
        if self.spare_pages >= SPARE_PAGES.min(pages) {
            return;
        }
        self.spare_pages += 1;
        let page = io.rng.below(pages.into()) as u32;
        self.need_page(page, io);
    }

    /// Sends a member that has not proved its address what it is to answer from there: less than it
    /// has sent.
    fn challenge(&mut self, member: MemberIndex, io: &mut Io<'_>) {
        if let Some(number) = self.roster.challenge(member, io.rng) {
            self.send(member, Message::Probe { number }, io);
        }
    }

    /// A member has proved its address: it gets what it has asked for.
    fn proved(&mut self, member: MemberIndex, io: &mut Io<'_>) {
        while let Some(page) = self.roster.next_owed(member) {
            self.roster_read(member, &Blocks::one(page), io);
        }
        self.serve_proven(|asker| asker == member);
    }

    fn roster_read(&mut self, from: MemberIndex, pages: &Blocks, io: &mut Io<'_>) {
        for page in pages.as_slice().iter().copied() {
            match self.roster.page(page).cloned() {
                Some(_) if !self.roster.is_proven(from) => self.roster.wait(page, from),
                // Whoever asks again while the page waits to be sent gets it once.
                Some(_) if self.is_queued(from, Repeated::Page(page), io) => {}
                Some(peers) => {
                    self.send(from, Message::RosterPage { page, peers }, io);
                }
                None if !self.me.is_source() => {
                    self.roster.wait(page, from);
                    self.need_page(page, io);
                }
                None => io.counters.bad += 1,
            }
        }
    }

    /// Such a message waits to be sent to this member.
    fn is_queued(&self, to: MemberIndex, such: Repeated, io: &Io<'_>) -> bool {
        let peer = self.roster.get(to);
        peer.is_some_and(|peer| io.outbox.holds(self.id, peer.addr, such))
    }

    fn roster_page(&mut self, page: u32, peers: Arc<[Peer]>, io: &mut Io<'_>) {
        if !self.roster.put(page, peers.clone()) {
            io.counters.bad += 1;
            return;
        }
        while let Some(member) = self.roster.next_waiting(page) {
            let peers = peers.clone();
            self.send(member, Message::RosterPage { page, peers }, io);
        }
        self.serve_proven(|asker| asker.0 / PAGE_PEERS == page);
        self.send_unsent(io);
        self.spread.wake();
    }

    /// The user takes part.
    pub(crate) fn accept(
        &mut self,
        consent: Consent,
        have: &mut dyn FnMut(Part) -> bool,
        io: &mut Io<'_>,
    ) {
        if self.consent != Consent::Asked {
            return;
        }
        for block in 0..self.have.length() {
            if have(self.setup.object.part(block)) {
                self.have.insert(block);
            }
        }
        self.consent = consent;
        self.progressed = io.now;
        if let Some(planner) = shape::published_planner(&self.setup, self.me) {
            self.planner = planner;
            self.pull.bound(self.planner.most_asked());
            self.judge_parked(io);
        }
        if consent == Consent::Given {
            self.pull.wake();
        }
        self.serve_what_is_here(io);
        self.check_complete(io);
    }

    /// The user takes no part, or cannot go on.
    pub(crate) fn fail(&mut self, reason: FailReason, io: &mut Io<'_>) {
        if self.consent == Consent::Out {
            return;
        }
        self.consent = Consent::Out;
        self.pull.clear();
        self.serve.clear();
        self.spread.failed(self.me, reason);
        self.event(CastEvent::Failed(reason), io);
    }

    pub(super) fn check_complete(&mut self, io: &mut Io<'_>) {
        if self.is_satisfied() && self.consent != Consent::Out && !self.spread.mine_done {
            self.pull.clear();
            self.spread.complete(self.me);
            self.event(CastEvent::Complete, io);
        }
    }

    /// This member takes part and lacks blocks.
    pub(crate) fn lacks(&self) -> bool {
        !self.me.is_source() && self.consent == Consent::Given && !self.have.is_full()
    }

    /// Acts on deadlines that have passed.
    pub(crate) fn tick(&mut self, io: &mut Io<'_>) {
        self.suspects.tick(io.now);
        self.pull_tick(io);
        self.serve_tick(io);
        self.spread_tick(io);
        if let Some(page) = self.roster.overdue(io.now) {
            self.need_page(page, io);
        }
        let patience = self.patience();
        let silence = self.silence();
        if self.lacks() && io.now >= self.progressed + patience {
            // Others live, but no block comes.
            self.fail(FailReason::TimedOut, io);
        }
        if !self.me.is_source() && io.now >= self.heard + silence {
            self.abandon(io);
        }
    }

    fn abandon(&mut self, io: &mut Io<'_>) {
        if !self.is_satisfied() {
            self.fail(FailReason::TimedOut, io);
        } else {
            self.event(CastEvent::Ended(EndReason::Abandoned), io);
        }
        self.spread.over = true;
    }

    /// The next time at which [`Cast::tick`] has something to do.
    pub(crate) fn deadline(&self) -> Instant {
        let own = self.pull.deadline().min(self.serving_deadline());
        let own = own.min(self.spread.deadline()).min(self.roster.deadline());
        if self.me.is_source() {
            return own;
        }
        let own = own.min(self.heard + self.silence());
        if self.lacks() {
            return own.min(self.progressed + self.patience());
        }
        own
    }

    /// How long nothing may be heard from anybody before this member gives the cast up.
    fn silence(&self) -> Micros {
        GIVE_UP.max(self.pace.blocks(GIVE_UP_BLOCKS))
    }

    /// How long no block may come while others are heard: waits for as many peers as a scheme
    /// tries, and for the source.
    fn patience(&self) -> Micros {
        let waits = self.longest_timeout().saturating_mul(GIVE_UP_WAITS);
        self.silence().max(waits)
    }

    /// The part of its patience that a member has for one peer.
    pub(super) fn patience_for_one(&self) -> Micros {
        Micros(self.patience().0 / GIVE_UP_WAITS)
    }

    /// No block came for half of the patience. Waits double, so a scheme's attempts may take
    /// longer than that; the other half is the source's.
    pub(super) fn is_running_out(&self, now: Instant) -> bool {
        now >= self.progressed + Micros(self.patience().0 / 2)
    }

    pub(crate) fn progress(&self) -> Progress {
        Progress {
            members: 1,
            done: u32::from(self.is_satisfied() && self.consent != Consent::Out),
            lost: u32::from(self.consent == Consent::Out),
            blocks: self.have.length(),
            held: self.have.count(),
            blocks_sent: self.blocks_sent,
            bytes_sent: self.bytes_sent,
        }
    }

    /// An answer about one block.
    pub(super) fn answer(
        &mut self,
        to: MemberIndex,
        answer: Answer,
        blocks: Blocks,
        io: &mut Io<'_>,
    ) {
        if self.roster.is_proven(to) {
            self.send(to, Message::Answer { answer, blocks }, io);
        }
    }
}

#[cfg(test)]
mod tests;
