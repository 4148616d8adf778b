//! The spanning tree: announcements and ends go down, reports come up.
//!
//! The tree is a heap of four children a node, the source at its root: member `m` is node `m + 1`.
//! Everything is acknowledged and repeated. A child that does not answer is given up: its children
//! are adopted, which goes on recursively; it is reported as failed. A member that has more than
//! one parent in its life reports all it knows to the last one that announced.
//!
//! Who adopted a member may die with what it was told, and those between them leave the member to
//! it. So a member with a new parent takes back the children that others had adopted, a member that
//! was adopted goes on to say that it is done, and one whose parent has forgotten the cast goes on
//! to the source.
//!
//! A child lives as long as anything comes from it, whatever that is: the answer of one that is
//! slow may be long on its way. An attempt counts when the one before has left: what waits here to
//! be sent says nothing about anybody else.
//!
//! Source: RFC 4222, section 2, recommendations 1 and 2 (hellos and acknowledgements go first, and
//! any packet of a neighbour shows that it lives).
//!
//! Invariant: the source hears from at most its own children and those it adopted; every wait for
//! one that says nothing ends after a bounded number of attempts. What a station keeps of others is
//! bounded by the numbers that there are, whatever they say.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::SocketAddrV4;

use super::serving::KEPT_WAITING;
use super::{Cast, CastEvent, Io};
use crate::broadcast::bitmap::Bitmap;
use crate::broadcast::event::{EndReason, FailReason};
use crate::broadcast::message::{
    MAX_NAMED, MAX_RANGES, MemberIndex, Message, PAGE_PEERS, Range, Report, Standing,
};
use crate::broadcast::outbox::Repeated;
use crate::broadcast::{MAX_MEMBERS, Peer};
use crate::time::{Instant, Micros};
use ranges::RangeSet;
use tree::{Child, Stage, children_of, parent_of};

mod ranges;
mod tree;

/// Unanswered attempts after which a child's children are adopted, and after which it is given up.
const ADOPT_AFTER: u32 = 3;
/// The former as long as no child has answered: they may all be far away.
const ADOPT_UNHEARD_AFTER: u32 = 4;
const GIVE_UP_AFTER: u32 = 20;
/// Block times until something unanswered is repeated; doubled with each attempt up to the longest.
/// Those below a child that is dead from the start hear of the cast after seven of these.
const AGAIN: u64 = KEPT_WAITING;
/// Bounds of the first repeat, and the longest wait between two. With the attempts above a child
/// has from 2.8 seconds to answer, where the first wait is 250 us, to 4.1, where it is 10 ms.
const AGAIN_BOUNDS: (Micros, Micros) = (Micros(250), Micros::from_millis(10));
/// Doublings of the wait: from the shortest to the longest.
const MAX_DOUBLINGS: u32 = (SLOWEST.0 / AGAIN_BOUNDS.0.0).next_power_of_two().ilog2();
const SLOWEST: Micros = Micros::from_millis(250);
/// A child from which nothing was heard for so long is probed.
const PROBE_AFTER: Micros = Micros::from_millis(250);
/// What is not yet everything is reported at most so often.
const REPORT_EVERY: Micros = Micros::from_millis(50);
/// A member that was adopted and has told everything says so again this long after the last answer.
const ADOPTED_EVERY: Micros = Micros::from_secs(1);
/// Senders of corrupt blocks that wait to be reported: those of the report that is under way, and
/// of the next.
const MAX_CORRUPT: usize = 2 * MAX_NAMED;

/// See the module.
#[derive(Debug)]
pub(crate) struct Spread {
    members: u32,
    /// Numbers below this are those of members; at the source it rises with those that join late.
    known: u32,
    me: MemberIndex,
    pub(super) parent: Option<MemberIndex>,
    leaf: bool,
    children: Vec<Child>,
    /// The children were listed.
    listed: bool,
    pub(super) mine_done: bool,
    /// Known here, for a new parent.
    done: RangeSet,
    failed: Vec<(MemberIndex, FailReason)>,
    /// Those in `failed`; empty until there is one.
    named: Bitmap,
    /// To be reported, and how many of `failed` need not be.
    fresh: RangeSet,
    failed_told: usize,
    corrupt: Vec<(MemberIndex, u32)>,
    all_told: bool,
    under_way: Option<Arc<Report>>,
    number: u32,
    attempts: u32,
    report_at: Instant,
    ending: Option<EndReason>,
    /// Nothing is left to do: the cast can be forgotten.
    pub(super) over: bool,
    next: Instant,
}

/// The number of an announcement or a probe: when it was sent, in microseconds, and of that the low
/// bits, which come round after more than an hour.
fn stamp(now: Instant) -> u32 {
    now.as_micros() as u32
}

impl Spread {
    pub(super) fn new(me: MemberIndex, members: u32) -> Self {
        Spread {
            members,
            known: members,
            me,
            parent: None,
            leaf: false,
            children: Vec::new(),
            listed: false,
            mine_done: me.is_source(),
            done: RangeSet::default(),
            failed: Vec::new(),
            named: Bitmap::default(),
            fresh: RangeSet::default(),
            failed_told: 0,
            corrupt: Vec::new(),
            all_told: false,
            under_way: None,
            number: 0,
            attempts: 0,
            report_at: Instant::ZERO,
            ending: None,
            over: false,
            next: if me.is_source() {
                Instant::ZERO
            } else {
                Instant::FAR_FUTURE
            },
        }
    }

    /// A cast that is over at this station.
    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    pub(crate) fn ending(&self) -> Option<EndReason> {
        self.ending
    }

    pub(super) fn wake(&mut self) {
        self.next = Instant::ZERO;
    }

    pub(super) fn deadline(&self) -> Instant {
        self.next
    }

    pub(super) fn announced_by(&mut self, parent: MemberIndex, leaf: bool) {
        let former = self.parent.replace(parent);
        if former.is_some_and(|former| former != parent) {
            // The former one may be dead, and have adopted some of the children.
            let children = self.children.iter_mut();
            children
                .filter(|child| child.stage == Stage::Elsewhere)
                .for_each(Child::announce);
        }
        // Whatever was told before was told to another parent, or to one that forgot it.
        self.tell_again();
        self.under_way = None;
        self.leaf = leaf && !self.listed;
        self.wake();
    }

    /// Everything known is reported anew.
    fn tell_again(&mut self) {
        self.fresh = self.done.clone();
        self.failed_told = 0;
        self.all_told = false;
    }

    /// The parent does not know the cast any more: the source takes everything itself.
    fn forgotten_by(&mut self, parent: MemberIndex) {
        if self.parent == Some(parent) && !parent.is_source() {
            self.announced_by(MemberIndex::SOURCE, false);
        }
    }

    /// The parent is one that has adopted this member, and not the source.
    fn is_adopted(&self) -> bool {
        let adopts = |parent: &MemberIndex| !parent.is_source() && *parent != parent_of(self.me);
        self.parent.as_ref().is_some_and(adopts)
    }

    /// The parent asks: it does not know that all here are done.
    pub(super) fn probed(&mut self) {
        if self.all_told && self.under_way.is_none() {
            self.tell_again();
            self.wake();
        }
    }

    pub(super) fn complete(&mut self, me: MemberIndex) {
        self.mine_done = true;
        self.note_done(Range {
            first: me.0,
            last: me.0,
        });
        self.wake();
    }

    pub(super) fn failed(&mut self, member: MemberIndex, reason: FailReason) {
        if member == self.me {
            self.mine_done = true;
        }
        if self.named.length() == 0 {
            // A member that joined late has a number beyond those that it knows of.
            let own = if self.me.is_source() {
                0
            } else {
                self.me.0 + 1
            };
            self.named = Bitmap::new(self.known.max(own));
        }
        if self.named.insert(member.0) {
            self.failed.push((member, reason));
        }
        self.wake();
    }

    pub(super) fn corrupt(&mut self, sender: MemberIndex) {
        let room = self.corrupt.len() < MAX_CORRUPT;
        match self.corrupt.iter_mut().find(|(known, _)| *known == sender) {
            Some((_, count)) => *count = count.saturating_add(1),
            None if room => self.corrupt.push((sender, 1)),
            None => {}
        }
        self.wake();
    }

    fn note_done(&mut self, range: Range) {
        self.done.insert(range);
        self.fresh.insert(range);
    }

    fn child(&mut self, member: MemberIndex) -> Option<&mut Child> {
        self.children
            .iter_mut()
            .find(|child| child.member == member)
    }

    /// A member has said something of this cast.
    pub(super) fn heard(&mut self, member: MemberIndex) {
        if let Some(child) = self.child(member) {
            child.unheard = 0;
        }
    }

    /// The member is a child of this station and was not given up.
    fn tends(&self, member: MemberIndex) -> bool {
        let mut children = self.children.iter();
        children.any(|child| child.member == member && !child.stage.is_left())
    }

    fn add(&mut self, member: MemberIndex, leaf: bool) {
        if member == self.me {
            return;
        }
        match self.child(member) {
            Some(child) => {
                child.leaf = leaf;
                child.announce();
            }
            None => self.children.push(Child::new(member, leaf)),
        }
        self.all_told = false;
        self.wake();
    }

    fn adopt(&mut self, child: usize) {
        let Child {
            member,
            leaf,
            adopted,
            ..
        } = self.children[child];
        if leaf || adopted {
            return;
        }
        self.children[child].adopted = true;
        for grandchild in children_of(member, self.members) {
            if self.child(grandchild).is_none() {
                self.add(grandchild, false);
            }
        }
    }

    /// All below this station are done or given up.
    pub(crate) fn children_done(&self) -> bool {
        let mut children = self.children.iter();
        self.listed && children.all(|child| child.stage.is_over())
    }

    fn is_all(&self) -> bool {
        self.mine_done && self.children_done()
    }
}

impl Cast {
    fn again(&self, attempts: u32) -> Micros {
        let (least, most) = AGAIN_BOUNDS;
        let first = self.shared(AGAIN).clamp(least, most) + self.way.beyond();
        first
            .saturating_mul(1 << attempts.min(MAX_DOUBLINGS))
            .min(SLOWEST)
    }

    pub(super) fn spread_tick(&mut self, io: &mut Io<'_>) {
        if self.spread.next > io.now {
            return;
        }
        self.spread.next = Instant::FAR_FUTURE;
        if !self.spread.listed && (self.me.is_source() || self.spread.parent.is_some()) {
            self.spread.listed = true;
            if !self.spread.leaf {
                for child in children_of(self.me, self.setup.members) {
                    self.spread.add(child, false);
                }
            }
            self.spread.next = Instant::FAR_FUTURE;
        }
        if self.spread.ending.is_some() {
            self.pass_end(io);
        } else {
            self.tend_children(io);
            self.report(io);
        }
    }

    fn not_before(&mut self, at: Instant) {
        self.spread.next = self.spread.next.min(at);
    }

    /// Announces to those who have not answered, probes those who are quiet and not done.
    fn tend_children(&mut self, io: &mut Io<'_>) {
        let mut children = self.spread.children.iter();
        let heard = children.any(|child| child.stage != Stage::Announcing);
        let adopt_after = match heard || !self.way.may_be_long() {
            true => ADOPT_AFTER,
            false => ADOPT_UNHEARD_AFTER,
        };
        let mut at = 0;
        while at < self.spread.children.len() {
            let child = &self.spread.children[at];
            let (member, stage, attempts) = (child.member, child.stage, child.attempts);
            if stage.is_over() {
                at += 1;
                continue;
            }
            let reachable = child.unsent && self.roster.get(member).is_some();
            if child.deadline > io.now && !reachable {
                let deadline = child.deadline;
                self.not_before(deadline);
                at += 1;
                continue;
            }
            if attempts >= adopt_after {
                self.spread.adopt(at);
            }
            if self.spread.children[at].unheard >= GIVE_UP_AFTER {
                self.child_failed(at, FailReason::Dead, io);
                continue;
            }
            let leaf = self.spread.children[at].leaf;
            // The source knows every address there is: one that it lacks does not come.
            let last = self.me.is_source();
            let waits = attempts > 0 && self.is_queued(member, Repeated::Question, io);
            let sent = match stage {
                _ if waits => true,
                Stage::Announcing => self.announce(member, leaf, io),
                _ => {
                    let number = stamp(io.now);
                    self.send(member, Message::Probe { number }, io)
                }
            };
            if !sent {
                self.need_page(member.0 / PAGE_PEERS, io);
            }
            let wait = self.again(attempts);
            let child = &mut self.spread.children[at];
            let attempt = u32::from(!waits && (sent || last));
            child.attempts += attempt;
            child.unheard += attempt;
            child.unsent = !sent;
            child.deadline = io.now + wait;
            self.not_before(io.now + wait);
            at += 1;
        }
    }

    /// A child takes no part and announces the cast to nobody, or does not answer: those below it
    /// are announced to from here.
    fn child_failed(&mut self, at: usize, reason: FailReason, io: &mut Io<'_>) {
        self.spread.adopt(at);
        let child = &mut self.spread.children[at];
        child.stage = Stage::Gone;
        let member = child.member;
        if self.me.is_source() {
            self.event(CastEvent::MemberFailed(member, reason), io);
        } else {
            self.spread.failed(member, reason);
        }
    }

    fn announce(&mut self, member: MemberIndex, leaf: bool, io: &mut Io<'_>) -> bool {
        let message = Message::Announce {
            index: member,
            number: stamp(io.now),
            clock: self.clock(io.now),
            leaf,
            setup: self.setup.clone(),
        };
        self.send(member, message, io)
    }

    /// A child acknowledged an announcement or a probe.
    pub(super) fn child_answered(
        &mut self,
        from: MemberIndex,
        number: u32,
        standing: Standing,
        io: &mut Io<'_>,
    ) {
        let Some(at) = (self.spread.children.iter()).position(|child| child.member == from) else {
            return;
        };
        if self.me.is_source() {
            // Of what was repeated the number says which was answered: those that were lost are no
            // distance.
            let waited = Micros(stamp(io.now).wrapping_sub(number).into());
            self.way.sample_at_most(waited, self.pace);
        }
        let child = &mut self.spread.children[at];
        let stage = child.stage;
        // Of an announcement that was repeated: the other one was taken.
        if standing == Standing::NoRoom && stage != Stage::Announcing {
            return;
        }
        child.attempts = 0;
        child.deadline = io.now + PROBE_AFTER;
        match standing {
            Standing::NoRoom => self.child_failed(at, FailReason::NoRoom, io),
            Standing::Elsewhere => {
                child.stage = Stage::Elsewhere;
                self.spread.wake();
            }
            Standing::Child if stage == Stage::Announcing => child.stage = Stage::Running,
            Standing::Child if stage.is_left() => {
                // It was given up too early.
                child.stage = Stage::Running;
                self.spread.all_told = false;
            }
            Standing::Child => {}
        }
        let deadline = io.now + PROBE_AFTER;
        self.not_before(deadline);
    }

    /// The member with this address, of those to whom it matters that it does not know the cast:
    /// the parent, children, and who was asked for blocks. `guess` is tried first.
    pub(super) fn who_is_at(&self, addr: SocketAddrV4, guess: MemberIndex) -> Option<MemberIndex> {
        let is_there = |member: &MemberIndex| {
            let peer = self.roster.get(*member);
            peer.is_some_and(|peer| peer.addr == addr)
        };
        let children = self.spread.children.iter().map(|child| child.member);
        let parent = self.spread.parent.into_iter();
        let mut known = [guess].into_iter().chain(parent).chain(children);
        known.find(is_there).or_else(|| self.asked_at(is_there))
    }

    /// A member does not know the cast: it has restarted, or the cast is over there.
    pub(super) fn unknown(&mut self, from: MemberIndex, io: &mut Io<'_>) {
        // What it asked for stays: this may have been overtaken by its requests.
        self.not_known_at(from, io);
        self.spread.forgotten_by(from);
        let Some(at) = (self.spread.children.iter()).position(|child| child.member == from) else {
            return;
        };
        if self.spread.ending.is_some() {
            self.spread.children[at].ended = true;
            self.spread.wake();
            return;
        }
        if self.spread.children[at].stage == Stage::Announcing {
            return;
        }
        self.spread.adopt(at);
        self.spread.add(from, true);
    }

    /// The source: a member came late or again, at this address.
    pub(crate) fn join(&mut self, member: MemberIndex, peer: Peer) {
        self.roster.join(member, peer);
        self.serve.cancel_all(member);
        self.spread.known = self.spread.known.max(member.0.saturating_add(1));
        // It may have died before it announced to those below it: it does so again.
        self.spread.add(member, false);
    }

    /// The source: its user says that a member is gone.
    pub(crate) fn lost(&mut self, member: MemberIndex) {
        self.serve.cancel_all(member);
        let position = (self.spread.children.iter()).position(|child| child.member == member);
        if let Some(at) = position {
            self.spread.adopt(at);
            self.spread.children[at].stage = Stage::Gone;
        }
        self.spread.wake();
    }

    /// Tells the parent what it does not know.
    fn report(&mut self, io: &mut Io<'_>) {
        let Some(parent) = self.spread.parent else {
            return;
        };
        if let Some(report) = self.spread.under_way.clone() {
            let is_due = self.spread.report_at <= io.now;
            if is_due && self.is_queued(parent, Repeated::Report, io) {
                self.spread.report_at = io.now + self.again(self.spread.attempts);
            } else if is_due {
                if self.spread.attempts >= GIVE_UP_AFTER {
                    // The parent is silent: the source takes everything itself.
                    self.spread.attempts = 0;
                    self.spread.announced_by(MemberIndex::SOURCE, false);
                    return;
                }
                self.spread.attempts += 1;
                let wait = self.again(self.spread.attempts);
                self.spread.report_at = io.now + wait;
                self.send(parent, Message::Report(report), io);
            }
            let at = self.spread.report_at;
            self.not_before(at);
            return;
        }
        let spread = &mut self.spread;
        let all = spread.is_all();
        let news = !spread.fresh.is_empty()
            || spread.failed_told < spread.failed.len()
            || !spread.corrupt.is_empty()
            || (all && !spread.all_told);
        if !news {
            if !all || !spread.is_adopted() {
                return;
            }
            let again = spread.report_at + ADOPTED_EVERY;
            if again > io.now {
                self.not_before(again);
                return;
            }
        }
        if !all && spread.report_at > io.now {
            let at = spread.report_at;
            self.not_before(at);
            return;
        }
        spread.number = spread.number.wrapping_add(1);
        let untold = &spread.failed[spread.failed_told..];
        let failed = untold[..untold.len().min(MAX_NAMED)].to_vec();
        spread.failed_told += failed.len();
        let told = spread.failed_told == spread.failed.len();
        let corrupt = spread.corrupt.len().min(MAX_NAMED);
        let report = Report {
            number: spread.number,
            boot: self.boot,
            done: spread.fresh.take(MAX_RANGES),
            failed,
            corrupt: spread.corrupt.drain(..corrupt).collect(),
            all: all && spread.fresh.is_empty() && told,
        };
        spread.all_told = report.all;
        let report = Arc::new(report);
        spread.under_way = Some(report.clone());
        spread.attempts = 0;
        let wait = self.again(0);
        self.spread.report_at = io.now + wait;
        self.send(parent, Message::Report(report), io);
        self.not_before(io.now + wait);
    }

    /// REPORT from a child.
    pub(super) fn reported(&mut self, from: MemberIndex, report: &Report, io: &mut Io<'_>) {
        let number = report.number;
        if let Some(reason) = self.spread.ending {
            self.send(from, Message::ReportAck { number }, io);
            self.send_end(from, reason, io);
            return;
        }
        let known = self.spread.known;
        if self.spread.child(from).is_none() {
            if !self.me.is_source() || from.0 >= known {
                // Without an answer it goes on to the source, unless somebody announces to it
                // before.
                return;
            }
            // Its parent is gone.
            self.spread.add(from, true);
        }
        self.send(from, Message::ReportAck { number }, io);
        let Some(child) = self.spread.child(from) else {
            return;
        };
        // This may have been on its way when a new announcement went out, which asks for a new
        // report.
        if child.stage != Stage::Announcing {
            child.attempts = 0;
            child.deadline = io.now + PROBE_AFTER;
            child.stage = if report.all {
                Stage::Done
            } else {
                Stage::Running
            };
        }
        for range in &report.done {
            if range.first > range.last || range.last >= known {
                io.counters.bad += 1;
                continue;
            }
            if self.me.is_source() {
                self.event(CastEvent::Done(*range, from, report.boot), io);
            } else {
                self.spread.note_done(*range);
            }
        }
        for (member, reason) in &report.failed {
            if member.0 >= known {
                io.counters.bad += 1;
                continue;
            }
            if self.me.is_source() {
                // A former parent may still think so of one that has joined again.
                if *reason == FailReason::Dead && self.spread.tends(*member) {
                    continue;
                }
                self.event(CastEvent::MemberFailed(*member, *reason), io);
            } else {
                self.spread.failed(*member, *reason);
            }
        }
        // Elsewhere nobody knows how many have joined late.
        let most = if self.me.is_source() {
            known
        } else {
            MAX_MEMBERS
        };
        for (sender, count) in &report.corrupt {
            if !sender.is_source() && sender.0 >= most {
                io.counters.bad += 1;
                continue;
            }
            if self.me.is_source() {
                self.event(CastEvent::Corrupt(*sender, *count), io);
            } else {
                for _ in 0..(*count).min(1000) {
                    self.spread.corrupt(*sender);
                }
            }
        }
        self.spread.wake();
    }

    pub(super) fn report_acked(&mut self, from: MemberIndex, number: u32, io: &mut Io<'_>) {
        let report = self.spread.under_way.as_ref();
        if self.spread.parent == Some(from) && report.is_some_and(|r| r.number == number) {
            self.spread.under_way = None;
            self.spread.report_at = io.now + REPORT_EVERY;
            self.spread.wake();
        }
    }

    /// The source ends the cast, or END came from the parent.
    pub(crate) fn finish(&mut self, reason: EndReason, io: &mut Io<'_>) {
        if self.spread.ending.is_some() {
            return;
        }
        self.spread.ending = Some(reason);
        self.pull.clear();
        self.serve.clear();
        for child in &mut self.spread.children {
            child.attempts = 0;
            child.deadline = Instant::ZERO;
        }
        if !self.me.is_source() {
            self.event(CastEvent::Ended(reason), io);
        }
        self.consent = super::Consent::Out;
        self.spread.wake();
    }

    fn send_end(&mut self, to: MemberIndex, reason: EndReason, io: &mut Io<'_>) {
        let number = self.spread.number;
        self.send(to, Message::End { number, reason }, io);
    }

    pub(super) fn end(
        &mut self,
        from: MemberIndex,
        number: u32,
        reason: EndReason,
        io: &mut Io<'_>,
    ) {
        self.send(from, Message::EndAck { number }, io);
        if self.me.is_source() {
            io.counters.bad += 1;
            return;
        }
        self.finish(reason, io);
    }

    pub(super) fn end_acked(&mut self, from: MemberIndex, _number: u32, _io: &mut Io<'_>) {
        if let Some(child) = self.spread.child(from) {
            child.ended = true;
            self.spread.wake();
        }
    }

    /// Tells the children that the cast is over, a few times.
    fn pass_end(&mut self, io: &mut Io<'_>) {
        let Some(reason) = self.spread.ending else {
            return;
        };
        let mut waits = false;
        let mut next = 0;
        while next < self.spread.children.len() {
            let at = next;
            next += 1;
            let child = &self.spread.children[at];
            let given_up = child.attempts >= ADOPT_AFTER + 2;
            if child.ended || given_up || (child.stage.is_left() && child.attempts > 0) {
                continue;
            }
            waits = true;
            let (member, attempts, deadline) = (child.member, child.attempts, child.deadline);
            if deadline > io.now {
                self.not_before(deadline);
                continue;
            }
            if attempts == ADOPT_AFTER {
                // It may be dead: those below it must hear of the end, too.
                self.spread.adopt(at);
            }
            self.send_end(member, reason, io);
            let wait = self.again(attempts + 1);
            let child = &mut self.spread.children[at];
            child.attempts += 1;
            child.deadline = io.now + wait;
            self.not_before(io.now + wait);
        }
        self.spread.over = !waits;
    }
}

#[cfg(test)]
mod tests;
