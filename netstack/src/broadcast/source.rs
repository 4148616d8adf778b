//! The control node's facade: announces casts, deals blocks, hears who is done.
//!
//! Invariant: the object is read block by block as it is sent, never as a whole.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::net::SocketAddrV4;

use super::bitmap::Bitmap;
use super::cast::{Cast, CastEvent, Consent};
use super::event::{CastCounters, EndReason, Footprint, MemberFailure, Progress, SourceEvent};
use super::message::{INLINE_ROSTER, MemberIndex, Packet, Setup};
use super::shape::{Shape, ShapeKind};
use super::station::Station;
use super::{MAX_MEMBERS, MAX_NAME, Object, Peer, Purpose, Scheme, Store, published, wire};
use crate::ids::{BootEpoch, CastId, JobId, NodeId};
use crate::time::{Instant, Micros};
use crate::wire::key::Key;

/// How often progress is told at most: what changes faster nobody sees as a change (Nielsen,
/// Usability Engineering, 1993, section 5.5: 0.1 s).
pub(super) const PROGRESS_EVERY: Micros = Micros::from_millis(100);

/// Bounds of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Casts at a time.
    pub casts: usize,
    /// Events that wait for the user.
    pub events: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            casts: 64,
            events: 1 << 18,
        }
    }
}

/// What a source needs to know of itself.
#[derive(Clone, Debug)]
pub struct SourceConfig {
    /// Where it is reached.
    pub me: Peer,
    /// The key of this run.
    pub key: Key,
    /// Most bytes per second it sends, framing included.
    pub rate: u64,
    /// Seed of its random choices.
    pub seed: u64,
    /// Bounds.
    pub limits: Limits,
}

/// A cast to make.
#[derive(Clone, Debug)]
pub struct CastSpec {
    /// Its number, above those of all earlier casts.
    pub id: CastId,
    /// What is cast.
    pub object: Object,
    /// What it is for.
    pub purpose: Purpose,
    /// The job that waits for it.
    pub job: Option<JobId>,
    /// The members, and whether they are known to hold it.
    pub members: Vec<(NodeId, Peer, bool)>,
    /// How it spreads.
    pub scheme: Scheme,
    /// Most bytes per second that each station sends of this cast, framing included: the rate of
    /// the members' links, or less; 0: the source's.
    pub rate: u64,
}

/// Why a cast cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CastError {
    /// A cast has this number already.
    Known,
    /// As many casts as [`Limits::casts`] are under way: wait for one to finish, or cancel one.
    TooManyCasts,
    /// More members than [`super::MAX_MEMBERS`]: cast to them in parts.
    TooManyMembers,
    /// No member.
    NoMembers,
    /// The object's parts do not fit together, or it needs larger blocks.
    BadObject,
    /// The name of the file is empty, too long or has a `/`.
    BadName,
    /// The scheme cannot be used with so many members: a larger first layer than there are, or a
    /// published plan of which each node would have to keep too much.
    BadScheme,
}

impl fmt::Display for CastError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CastError::Known => "a cast with this number is under way",
            CastError::TooManyCasts => {
                "too many casts are under way: wait for one to finish, or cancel one"
            }
            CastError::TooManyMembers => "too many members: cast to them in parts",
            CastError::NoMembers => "a cast needs at least one member",
            CastError::BadObject => "the object's blocks do not fit its length",
            CastError::BadName => "a name has 1 to 128 bytes and no slash",
            CastError::BadScheme => "the scheme cannot be used with so many members: take the default one, fewer rounds or a smaller first layer",
        })
    }
}

impl core::error::Error for CastError {}

/// What is known of the members of a cast.
#[derive(Debug)]
struct Run {
    id: CastId,
    /// By their number.
    nodes: Vec<NodeId>,
    peers: Vec<Peer>,
    /// Members that came late or again, and the boot that lacked the object then.
    joined: BTreeMap<u32, BootEpoch>,
    done: Bitmap,
    lost: Bitmap,
    shape: Option<Shape>,
    told: Progress,
    tell_at: Instant,
    cancelled: bool,
    ending: bool,
}

impl Run {
    fn index_of(&self, node: NodeId) -> Option<MemberIndex> {
        let at = self.nodes.iter().position(|known| *known == node)?;
        Some(MemberIndex(at as u32))
    }

    fn node(&self, member: MemberIndex) -> Option<NodeId> {
        self.nodes.get(member.0 as usize).copied()
    }

    fn is_settled(&self) -> bool {
        self.done.count() + self.lost.count() == self.done.length()
    }
}

/// The control node's side of all casts.
#[derive(Debug)]
pub struct Source {
    config: SourceConfig,
    station: Station,
    runs: Vec<Run>,
    events: VecDeque<SourceEvent>,
}

impl Source {
    /// A source of no cast.
    pub fn new(config: SourceConfig, now: Instant) -> Self {
        Source {
            station: Station::new(config.me, config.key, Some(config.rate), config.seed, now),
            config,
            runs: Vec::new(),
            events: VecDeque::new(),
        }
    }

    /// It is this time in microseconds: what this source numbers goes by it, and not by its own
    /// clock. For a source whose key outlives it.
    pub fn set_time(&mut self, now: Instant, time: u64) {
        self.station.envelopes().set_time(now, time);
    }

    /// Begins a cast. A member that is known to hold the object is a further dealer.
    pub fn cast(&mut self, now: Instant, spec: CastSpec) -> Result<(), CastError> {
        if self.runs.iter().any(|run| run.id == spec.id) {
            return Err(CastError::Known);
        }
        if self.runs.len() >= self.config.limits.casts {
            return Err(CastError::TooManyCasts);
        }
        check(&spec)?;
        let mut members = spec.members;
        // Those that hold it come last; the order is kept otherwise.
        members.sort_by_key(|(_, _, holds)| *holds);
        let holders = members.iter().filter(|(_, _, holds)| *holds).count() as u32;
        let count = members.len() as u32;
        let cold = count - holders;
        let blocks = spec.object.blocks();
        let (scheme, shape) = resolve(spec.scheme, cold, blocks);
        let peers: Vec<Peer> = members.iter().map(|(_, peer, _)| *peer).collect();
        let rate = if spec.rate == 0 {
            self.config.rate
        } else {
            spec.rate
        };
        let mut setup = Setup {
            object: spec.object,
            purpose: spec.purpose,
            job: spec.job,
            scheme,
            members: count,
            holders,
            rate,
            start: now.as_micros(),
            control: self.config.me,
            roster_id: self.roster_id(&peers),
            roster: Vec::new(),
        };
        if peers.len() <= INLINE_ROSTER {
            setup.roster = peers.clone();
            if !wire::announce_fits(&setup) {
                setup.roster = Vec::new();
            }
        }
        let setup = Arc::new(setup);
        let mut cast = Cast::new(spec.id, setup, MemberIndex::SOURCE, now, 0, rate);
        cast.consent = Consent::Given;
        cast.roster.fill(&peers);
        self.station.add(cast);
        self.runs.push(Run {
            id: spec.id,
            nodes: members.iter().map(|(node, _, _)| *node).collect(),
            peers,
            joined: BTreeMap::new(),
            done: Bitmap::new(count),
            lost: Bitmap::new(count),
            shape,
            told: Progress::default(),
            tell_at: now + PROGRESS_EVERY,
            cancelled: false,
            ending: false,
        });
        Ok(())
    }

    /// The number of a membership: nobody without the key can make two of the same number.
    fn roster_id(&self, peers: &[Peer]) -> u64 {
        let mut id = [0; 16];
        for peer in peers {
            let port = peer.addr.port().to_le_bytes();
            id = (self.config.key).mac(&[&id, &peer.addr.ip().octets(), &port, &peer.mac]);
        }
        u64::from_le_bytes(id[..8].try_into().expect("a tag has 16 bytes"))
    }

    /// The number of a cast's membership and its pages, for [`super::Member::learn_roster`].
    pub fn roster(&self, cast: CastId) -> Option<(u64, Vec<Arc<[Peer]>>)> {
        let cast = self.station.cast(cast)?;
        let pages: Option<Vec<_>> = cast.roster.pages().iter().cloned().collect();
        Some((cast.setup.roster_id, pages?))
    }

    /// A node came late or has restarted: it gets the rest. Its address may have changed. A node
    /// that is no member becomes one. From now on only this boot can say that it has the object:
    /// others still tell what an earlier one had. False: the cast is about to end, or has no room;
    /// no event of this node follows, and it needs another cast when this one has finished.
    pub fn join(
        &mut self,
        now: Instant,
        cast: CastId,
        node: NodeId,
        (peer, boot): (Peer, BootEpoch),
    ) -> bool {
        let Some(run) = self.runs.iter_mut().find(|run| run.id == cast) else {
            return false;
        };
        if run.ending {
            return false;
        }
        let member = match run.index_of(node) {
            Some(member) => member,
            None if run.nodes.len() < MAX_MEMBERS as usize => {
                run.nodes.push(node);
                run.peers.push(peer);
                run.done.grow();
                run.lost.grow();
                MemberIndex(run.nodes.len() as u32 - 1)
            }
            None => return false,
        };
        run.done.remove(member.0);
        run.lost.remove(member.0);
        run.joined.insert(member.0, boot);
        if let Some(known) = run.peers.get_mut(member.0 as usize) {
            *known = peer;
        }
        let store = &mut super::member::NoStore;
        self.station
            .with(now, cast, store, |cast, _| cast.join(member, peer));
        true
    }

    /// A node is gone: no cast waits for it.
    pub fn lost(&mut self, now: Instant, node: NodeId) {
        for at in 0..self.runs.len() {
            let run = &self.runs[at];
            if let Some(member) = run.index_of(node) {
                let id = run.id;
                self.member_failed(at, member, MemberFailure::Lost);
                let store = &mut super::member::NoStore;
                self.station
                    .with(now, id, store, |cast, _| cast.lost(member));
            }
        }
        self.settle(now);
    }

    /// Ends a cast everywhere; `Finished` follows when the members know or do not answer.
    pub fn cancel(&mut self, now: Instant, cast: CastId) {
        let Some(at) = self.runs.iter().position(|run| run.id == cast) else {
            return;
        };
        if self.runs[at].ending {
            return;
        }
        self.runs[at].cancelled = true;
        for member in 0..self.runs[at].nodes.len() as u32 {
            self.member_failed(at, MemberIndex(member), MemberFailure::Cancelled);
        }
        self.settle(now);
    }

    /// Takes a datagram of kinds 64 to 79. Bad input is counted.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        from: SocketAddrV4,
        datagram: &[u8],
        store: &mut dyn Store,
    ) {
        if let Some((packet, fragment)) = self.station.parse(now, from, datagram)
            && fragment.is_none()
        {
            self.handle_message(now, from, packet, store);
        }
    }

    /// Takes a message; see [`super::Member::handle_message`].
    pub fn handle_message(
        &mut self,
        now: Instant,
        from: SocketAddrV4,
        packet: Packet,
        store: &mut dyn Store,
    ) {
        if self.station.cast(packet.cast).is_none() {
            self.station.stray(from, &packet, MemberIndex::SOURCE);
            return;
        }
        self.station.deliver(now, from, packet, None, store);
        self.take_events(now);
    }

    /// The next datagram to send, see [`super::Member::poll_transmit`].
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        out: &mut [u8],
        store: &mut dyn Store,
    ) -> Option<(Peer, usize)> {
        let datagram = self.station.poll_transmit(now, out, store);
        self.take_events(now);
        datagram
    }

    /// The next message to send (instead of [`Source::poll_transmit`], not beside it).
    pub fn poll_message(&mut self, now: Instant, store: &mut dyn Store) -> Option<(Peer, Packet)> {
        let message = self.station.poll_message(now, store);
        self.take_events(now);
        message
    }

    /// When to call `poll_transmit` again without other cause; a time that has passed means at
    /// once. None: nothing is under way.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if !self.events.is_empty() {
            return Some(Instant::ZERO);
        }
        let progress = self.runs.iter().map(|run| run.tell_at).min();
        match (self.station.poll_timeout(), progress) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<SourceEvent> {
        self.events.pop_front()
    }

    fn push(&mut self, event: SourceEvent) {
        if self.events.len() < self.config.limits.events {
            self.events.push_back(event);
        } else {
            self.station.counters.overloaded += 1;
        }
    }

    fn take_events(&mut self, now: Instant) {
        let mut news = false;
        while let Some((cast, event)) = self.station.poll_event() {
            let Some(at) = self.runs.iter().position(|run| run.id == cast) else {
                continue;
            };
            news = true;
            match event {
                CastEvent::Done(range, from, boot) => {
                    // A cast takes no others from a report than its members.
                    for member in range.first..=range.last {
                        let joined = self.runs[at].joined.get(&member);
                        if joined.is_none_or(|lately| from.0 == member && boot == *lately) {
                            self.member_done(at, member);
                        }
                    }
                }
                CastEvent::MemberFailed(member, reason) => {
                    self.member_failed(at, member, MemberFailure::Reported(reason));
                }
                CastEvent::Corrupt(sender, count) => {
                    let node = self.runs[at].node(sender);
                    self.push(SourceEvent::CorruptSender { cast, node, count });
                }
                _ => {}
            }
        }
        if news || self.runs.iter().any(|run| run.ending) {
            self.settle(now);
        }
        self.tell_progress(now);
    }

    fn member_done(&mut self, at: usize, member: u32) {
        let run = &mut self.runs[at];
        if run.done.insert(member) {
            run.lost.remove(member);
            let cast = run.id;
            if let Some(node) = self.runs[at].node(MemberIndex(member)) {
                self.push(SourceEvent::MemberDone { cast, node });
            }
        }
    }

    fn member_failed(&mut self, at: usize, member: MemberIndex, reason: MemberFailure) {
        let run = &mut self.runs[at];
        if !run.done.contains(member.0) && run.lost.insert(member.0) {
            let cast = run.id;
            if let Some(node) = self.runs[at].node(member) {
                self.push(SourceEvent::MemberFailed { cast, node, reason });
            }
        }
    }

    /// Ends casts whose members are all accounted for, and takes leave of those that have ended.
    fn settle(&mut self, now: Instant) {
        let mut at = 0;
        while at < self.runs.len() {
            let run = &mut self.runs[at];
            let (id, cancelled) = (run.id, run.cancelled);
            if !run.ending && (run.is_settled() || cancelled) {
                run.ending = true;
                let reason = if cancelled {
                    EndReason::Cancelled
                } else {
                    EndReason::Finished
                };
                let store = &mut super::member::NoStore;
                self.station
                    .with(now, id, store, |cast, io| cast.finish(reason, io));
                self.push_progress(at);
            }
            if self.runs[at].ending && self.station.cast(id).is_none() {
                self.push_progress(at);
                self.runs.remove(at);
                let cast = id;
                self.push(SourceEvent::Finished { cast, cancelled });
                continue;
            }
            at += 1;
        }
    }

    fn tell_progress(&mut self, now: Instant) {
        for at in 0..self.runs.len() {
            if self.runs[at].tell_at <= now {
                self.runs[at].tell_at = now + PROGRESS_EVERY;
                self.push_progress(at);
            }
        }
    }

    fn push_progress(&mut self, at: usize) {
        let cast = self.runs[at].id;
        if let Some(progress) = self.progress(cast)
            && progress != self.runs[at].told
        {
            self.runs[at].told = progress;
            self.push(SourceEvent::Progress { cast, progress });
        }
    }

    /// How far a cast is.
    pub fn progress(&self, cast: CastId) -> Option<Progress> {
        let run = self.runs.iter().find(|run| run.id == cast)?;
        let known = self.station.cast(cast).map(Cast::progress);
        let known = known.unwrap_or(run.told);
        Some(Progress {
            members: run.nodes.len() as u32,
            done: run.done.count(),
            lost: run.lost.count(),
            held: 0,
            ..known
        })
    }

    /// The shape of a cast in the default scheme; None with other schemes.
    pub fn shape(&self, cast: CastId) -> Option<Shape> {
        self.runs.iter().find(|run| run.id == cast)?.shape
    }

    /// Figures since the start.
    pub fn counters(&self) -> &CastCounters {
        &self.station.counters
    }

    /// What is kept at present.
    pub fn footprint(&self) -> Footprint {
        self.station.footprint()
    }
}

fn check(spec: &CastSpec) -> Result<(), CastError> {
    if spec.members.is_empty() {
        return Err(CastError::NoMembers);
    }
    if spec.members.len() > MAX_MEMBERS as usize {
        return Err(CastError::TooManyMembers);
    }
    if spec.object.check_size().is_err()
        || spec.object.tops.len() != spec.object.top_count() as usize
    {
        return Err(CastError::BadObject);
    }
    if let Purpose::File { name } = &spec.purpose
        && (name.is_empty() || name.len() > MAX_NAME || name.contains('/'))
    {
        return Err(CastError::BadName);
    }
    let holders = spec.members.iter().filter(|(_, _, holds)| *holds);
    let cold = (spec.members.len() - holders.count()) as u32;
    match spec.scheme {
        _ if !published::is_bounded(&spec.scheme, cold, &spec.object) => Err(CastError::BadScheme),
        Scheme::Grid { n1 } if n1 as usize > spec.members.len() => Err(CastError::BadScheme),
        _ => Ok(()),
    }
}

/// The scheme that is announced, and the shape of the default ones.
fn resolve(scheme: Scheme, cold: u32, blocks: u32) -> (Scheme, Option<Shape>) {
    let shape = match scheme {
        Scheme::Auto => Shape::choose(cold, blocks),
        Scheme::Grid { n1 } => Shape::grid(cold, n1),
        Scheme::Mesh => Shape {
            kind: ShapeKind::Mesh,
            n1: cold,
        },
        Scheme::DoubleTree => Shape {
            kind: ShapeKind::DoubleTree,
            n1: 2,
        },
        other => return (other, None),
    };
    let scheme = match shape.kind {
        ShapeKind::Mesh => Scheme::Mesh,
        ShapeKind::Grid => Scheme::Grid { n1: shape.n1 },
        ShapeKind::DoubleTree => Scheme::DoubleTree,
    };
    (scheme, Some(shape))
}
