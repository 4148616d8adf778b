//! The front end: collects nodes, makes the tree, opens streams, receives, keeps the books, takes
//! down.
//!
//! The control node drives it as it drives [`crate::control::Endpoint`]. Values come out as
//! [`FrontEndEvent::Tick`], merged of what its children sent, each with the number of back ends it
//! covers.
//!
//! Invariant: what a front end knows of the tree comes from the census and may be late; it never
//! takes a process down because of it.

mod candidates;
mod tree;

pub use tree::NodeView;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::fmt;
use core::net::SocketAddrV4;

use super::books::{Books, Keeper};
use super::clock::Clock;
use super::filter::Acc;
use super::hub::{Hub, Room, Values};
use super::message::{
    BuildEntry, Candidate, Hello, Message, Packet, Process, TreeEpoch, TreeState,
};
use super::metric::Counters;
use super::metric::OverlayMetric;
use super::outbox::Outbox;
use super::placement::{Host, HostFactors, Layout, Plan, PlanError};
use super::section::Row;
use super::stream::{HOLD, MAX_STREAMS, Scope, StreamError, StreamId, StreamSpec, Sync};
use super::uplink::Io;
use super::{CENSUS_EVERY, INVITE_EVERY, MAX_CPS, MAX_FRONT_END_CHILDREN, MAX_HEIGHT, wire};
use crate::broadcast::Peer;
use crate::ids::{BootEpoch, JobId, NodeId};
use crate::rng::Rng;
use crate::time::{Instant, Micros};
use crate::wire::Error;
use crate::wire::envelope::Envelopes;
use crate::wire::key::Key;

/// Most nodes.
pub const MAX_NODES: usize = 1 << 17;
/// How long after its begin a tree is looked at for nodes without a parent, and how often then: by
/// then all have been in a census, which has had a fifth of its period to come up the tree.
const INVITE_AFTER: Micros = Micros(CENSUS_EVERY.0 + CENSUS_EVERY.0 / 5);
/// Nodes that are told in one turn: with 16,384 of them all are in 64 turns.
const INVITED_AT_ONCE: usize = 256;
/// Bytes of messages that wait to be sent: the lists of the largest tree, to be sent at once.
const OUTBOX_BYTES: usize = 64 * 1024 * 1024;
/// Events that wait. Beyond it ticks are dropped and counted.
const MAX_EVENTS: usize = 65_536;

/// What a front end needs to know of itself.
#[derive(Clone, Debug)]
pub struct FrontEndConfig {
    /// Where it is reached.
    pub me: Peer,
    /// The key of this run of the control node.
    pub key: Key,
    /// Trees get numbers above this: the run of the control node, times 2^32 or the like, so that
    /// they rise over restarts.
    pub tree_base: TreeEpoch,
    /// Seed of its random choices.
    pub seed: u64,
}

/// Values of one tick.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TickValue {
    /// The stream.
    pub stream: StreamId,
    /// The tick: it began at so many periods of the overlay's time.
    pub tick: u64,
    /// Back ends covered.
    pub covers: u32,
    /// Back ends that are attached and could have been: those whose job wants silence are not among
    /// them.
    pub attached: u32,
    /// Nothing more of the tick is expected; values that come late are told nevertheless.
    pub ends: bool,
    /// When it was handed over, by the front end's clock, which is the overlay's.
    pub at: Instant,
    /// A reduced value for each metric of the stream, or rows.
    pub values: TickBody,
}

/// See [`TickValue`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TickBody {
    /// One for each metric.
    Reduced(Vec<Acc>),
    /// Concat: with the node's own time stamps. The tick's begin in overlay time less a row's is
    /// the estimated offset of that node's clock, less its stagger.
    Rows(Vec<Row>),
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FrontEndEvent {
    /// A node said hello: for the first time in this boot, or since it was gone.
    Hello {
        /// The node.
        node: NodeId,
        /// Its boot.
        boot: BootEpoch,
    },
    /// All back ends of the plan are attached.
    TreeUp {
        /// Since the tree was begun.
        after: Micros,
        /// Back ends.
        back_ends: u32,
    },
    /// Values for the store.
    Tick(TickValue),
    /// A parent lost this process.
    Lost {
        /// The process.
        process: Process,
    },
    /// A node has no room for this process of the plan. It counts as hosting fewer from now on;
    /// what would be below the process finds other parents, or a place in the next tree.
    Refused {
        /// The process.
        process: Process,
    },
    /// A stream ended with its job, or was closed.
    Closed {
        /// The stream.
        stream: StreamId,
    },
    /// The tree is down.
    TreeDown,
}

/// How the overlay stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrontEndStatus {
    /// Nodes that said hello.
    pub nodes: u32,
    /// Back ends of the plan.
    pub planned: u32,
    /// Communication processes of the plan.
    pub cps_planned: u32,
    /// Back ends attached.
    pub back_ends: u32,
    /// Of these, those whose job wants silence.
    pub quiet: u32,
    /// Communication processes attached.
    pub cps: u32,
    /// Back ends of the plan whose leaf is on their own node.
    pub local: u32,
    /// Height of the tree.
    pub height: u8,
    /// Own children.
    pub children: u32,
    /// Streams that are open.
    pub streams: u32,
    /// Links, ticks, messages and events that are kept.
    pub kept: u32,
}

/// What a node may be in a tree that is built now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Nothing: it is gone, until it says hello again or [`FrontEnd::welcome_back`].
    None,
    /// It has its back end, and hosts nothing else if others can: a program computes there.
    BackEnd,
    /// Whatever it offered.
    Any,
}

/// Why a tree cannot be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildError {
    /// There is no such tree.
    Plan(PlanError),
    /// A tree stands: take it down first.
    Standing,
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::Plan(error) => error.fmt(f),
            BuildError::Standing => f.write_str("a tree stands: take it down first"),
        }
    }
}

impl core::error::Error for BuildError {}

#[derive(Clone, Copy, Debug)]
struct Registered {
    peer: Peer,
    boot: BootEpoch,
    hello: Hello,
}

/// The tree as planned.
#[derive(Debug)]
struct Standing {
    plan: Plan,
    nodes: Vec<NodeId>,
    /// Index of the node's back end among the processes.
    back_end_of: BTreeMap<NodeId, u32>,
    begun: Instant,
    told_up: bool,
    /// When nodes that nobody has attached are told again where they can, and the last one that
    /// was.
    invite_at: Instant,
    invited: NodeId,
}

/// The front end.
#[derive(Debug)]
pub struct FrontEnd {
    config: FrontEndConfig,
    envelopes: Envelopes,
    tree: TreeEpoch,
    state: TreeState,
    nodes: BTreeMap<NodeId, Registered>,
    /// Nodes that were gone when the tree was made, and are not known to have a parent in it since.
    away: BTreeMap<NodeId, Registered>,
    standing: Option<Standing>,
    hub: Hub,
    clock: Clock,
    streams: BTreeMap<StreamId, StreamSpec>,
    next_stream: u16,
    version: u32,
    views: BTreeMap<Process, NodeView>,
    keeper: Keeper,
    /// Samples of ticks that found no room among the events.
    dropped: u64,
    outbox: Outbox,
    events: VecDeque<FrontEndEvent>,
    counters: Counters<{ OverlayMetric::COUNT }>,
    rng: Rng,
}

macro_rules! io {
    ($front:ident, $now:expr) => {
        Io {
            now: $now,
            me: $front.config.me,
            boot: BootEpoch($front.config.tree_base.0),
            tree: $front.tree,
            outbox: &mut $front.outbox,
            rng: &mut $front.rng,
            counters: &mut $front.counters,
        }
    };
}
use io;

fn no_hub(io: &mut Io<'_>, height: u8) -> Hub {
    Hub::new(Process::FRONT_END, height, Room::OF_FRONT_END, io)
}

impl FrontEnd {
    /// A front end that collects nodes.
    pub fn new(config: FrontEndConfig, now: Instant) -> Self {
        let mut rng = Rng::new(config.seed);
        let (mut outbox, mut counters) = (Outbox::new(OUTBOX_BYTES), Counters::new());
        let mut io = Io {
            now,
            me: config.me,
            boot: BootEpoch(config.tree_base.0),
            tree: config.tree_base,
            outbox: &mut outbox,
            rng: &mut rng,
            counters: &mut counters,
        };
        FrontEnd {
            hub: no_hub(&mut io, MAX_HEIGHT),
            tree: config.tree_base,
            envelopes: Envelopes::new(&config.key.overlay_key(), config.me.addr, now),
            config,
            state: TreeState::Waiting,
            nodes: BTreeMap::new(),
            away: BTreeMap::new(),
            standing: None,
            clock: Clock::front_end(),
            streams: BTreeMap::new(),
            next_stream: 1,
            version: 1,
            views: BTreeMap::new(),
            keeper: Keeper::default(),
            dropped: 0,
            outbox,
            events: VecDeque::new(),
            counters,
            rng,
        }
    }

    /// Takes a datagram of kinds 96 to 111. Bad input is counted.
    pub fn handle_datagram(&mut self, now: Instant, from: SocketAddrV4, datagram: &[u8]) {
        self.count(OverlayMetric::Received, 1);
        match wire::parse(&mut self.envelopes, now, from, datagram) {
            Ok(packet) => {
                let peer = Peer {
                    addr: from,
                    mac: packet.mac,
                };
                self.handle(now, peer, packet);
            }
            Err(Error::Replayed) => self.count(OverlayMetric::Repeated, 1),
            Err(_) => self.count(OverlayMetric::Bad, 1),
        }
    }

    fn count(&mut self, metric: OverlayMetric, more: u64) {
        self.counters.add(metric as usize, more);
    }

    /// The next datagram to send: to whom and its length, written to the front of `out`, which must
    /// have [`crate::MAX_DATAGRAM`] bytes. Also acts on deadlines that have passed.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut [u8]) -> Option<(Peer, usize)> {
        if self.outbox.is_empty() {
            self.tick(now);
        }
        let (peer, packet) = self.outbox.pop_front()?;
        let length = wire::emit(&mut self.envelopes, now, peer.addr, &packet, out);
        self.count(OverlayMetric::Sent, 1);
        self.count(OverlayMetric::SentBytes, length as u64);
        Some((peer, length))
    }

    /// When to call `poll_transmit` again without other cause.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if !self.outbox.is_empty() {
            return Some(Instant::ZERO);
        }
        let mut at = self.hub.deadline(Instant::FAR_FUTURE);
        if let Some(standing) = self.standing.as_ref().filter(|_| self.lacks_back_ends()) {
            at = at.min(standing.invite_at);
        }
        (at != Instant::FAR_FUTURE).then_some(at)
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<FrontEndEvent> {
        self.events.pop_front()
    }

    fn tell(&mut self, event: FrontEndEvent) {
        if self.events.len() < MAX_EVENTS {
            self.events.push_back(event);
            return;
        }
        self.count(OverlayMetric::Overflowed, 1);
        if let FrontEndEvent::Tick(value) = event {
            self.dropped += u64::from(value.covers);
        }
    }

    /// Makes the tree of all nodes that said hello, and begins to build it.
    ///
    /// # Errors
    /// There is no such tree, or one stands already.
    pub fn build(&mut self, now: Instant, layout: &Layout) -> Result<&Plan, BuildError> {
        self.build_among(now, layout, &mut |_| Part::Any)
    }

    /// The same with a say in what each node may be.
    ///
    /// # Errors
    /// As [`Self::build`].
    pub fn build_among(
        &mut self,
        now: Instant,
        layout: &Layout,
        part: &mut dyn FnMut(NodeId) -> Part,
    ) -> Result<&Plan, BuildError> {
        if self.standing.is_some() {
            return Err(BuildError::Standing);
        }
        let back = self
            .away
            .extract_if(.., |node, _| part(*node) != Part::None);
        for (node, known) in back {
            self.nodes.entry(node).or_insert(known);
        }
        let gone = self
            .nodes
            .extract_if(.., |node, _| part(*node) == Part::None);
        self.away.extend(gone);
        let most = MAX_NODES.saturating_sub(self.nodes.len());
        while self.away.len() > most {
            self.away.pop_first();
        }
        let hosts: Vec<Host> = self
            .nodes
            .iter()
            .map(|(node, registered)| Host {
                reluctant: part(*node) != Part::Any,
                ..host(*node, &registered.hello)
            })
            .collect();
        let plan = Plan::make(&hosts, layout).map_err(BuildError::Plan)?;
        self.tree = TreeEpoch(self.tree.0 + 1);
        self.state = TreeState::Up;
        self.views.clear();
        let nodes: Vec<NodeId> = self.nodes.keys().copied().collect();
        let lists = self.lists(&plan, &nodes);
        let mut io = io!(self, now);
        let mut hub = no_hub(&mut io, plan.height);
        hub.dropped = self.hub.dropped;
        let me = Candidate {
            process: Process::FRONT_END,
            peer: io.me,
            height: plan.height,
            room: MAX_FRONT_END_CHILDREN as u16,
        };
        hub.kin = alloc::vec![me];
        hub.build(&mut io, me, lists);
        self.hub = hub;
        for (id, spec) in &self.streams {
            self.version += 1;
            self.hub
                .set_stream(now, *id, self.version, Some(spec.clone()));
        }
        let back_ends = plan
            .processes
            .iter()
            .enumerate()
            .filter(|(_, process)| process.slot == 0);
        let back_end_of = back_ends
            .map(|(index, process)| (nodes[process.host as usize], index as u32))
            .collect();
        let standing = self.standing.insert(Standing {
            plan,
            nodes,
            back_end_of,
            begun: now,
            told_up: false,
            invite_at: now + INVITE_AFTER,
            invited: NodeId(0),
        });
        Ok(&standing.plan)
    }

    /// All processes in pre-order.
    fn lists(&self, plan: &Plan, nodes: &[NodeId]) -> Vec<BuildEntry> {
        let mut children: BTreeMap<Option<u32>, Vec<u32>> = BTreeMap::new();
        for (index, process) in plan.processes.iter().enumerate() {
            children
                .entry(process.parent)
                .or_default()
                .push(index as u32);
        }
        let mut list = Vec::with_capacity(plan.processes.len());
        let mut stack: Vec<(u32, u8)> = Vec::new();
        let mut push = |stack: &mut Vec<(u32, u8)>, parent, depth| {
            let below = children.remove(&parent).unwrap_or_default();
            stack.extend(below.into_iter().rev().map(|child| (child, depth)));
        };
        push(&mut stack, None, 1);
        while let Some((index, depth)) = stack.pop() {
            let process = plan.processes[index as usize];
            let node = nodes[process.host as usize];
            list.push(BuildEntry {
                depth,
                height: process.height,
                process: Process {
                    node,
                    slot: process.slot,
                },
                peer: self.nodes[&node].peer,
            });
            push(&mut stack, Some(index), depth + 1);
        }
        list
    }

    /// Opens a stream. It flows as soon as its nodes have heard of it.
    ///
    /// # Errors
    /// The specification is out of bounds, or as many are open as may be.
    pub fn open(&mut self, now: Instant, spec: StreamSpec) -> Result<StreamId, StreamError> {
        while self.streams.contains_key(&StreamId(self.next_stream)) {
            self.next_stream = self.next_stream.wrapping_add(1).max(1);
        }
        let id = StreamId(self.next_stream);
        self.open_as(now, id, spec)?;
        self.next_stream = self.next_stream.wrapping_add(1).max(1);
        Ok(id)
    }

    /// Opens a stream again that had this number in an earlier run of the front end, or another if
    /// that is taken by now.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn reopen(
        &mut self,
        now: Instant,
        id: StreamId,
        spec: StreamSpec,
    ) -> Result<StreamId, StreamError> {
        if id.0 == 0 || self.streams.contains_key(&id) {
            return self.open(now, spec);
        }
        self.open_as(now, id, spec)?;
        // Numbers rise.
        self.next_stream = self.next_stream.max(id.0.wrapping_add(1)).max(1);
        Ok(id)
    }

    fn open_as(&mut self, now: Instant, id: StreamId, spec: StreamSpec) -> Result<(), StreamError> {
        spec.check()?;
        if self.streams.len() >= MAX_STREAMS {
            return Err(StreamError::Full);
        }
        self.version += 1;
        if !self
            .hub
            .set_stream(now, id, self.version, Some(spec.clone()))
        {
            return Err(StreamError::Full);
        }
        self.streams.insert(id, spec);
        Ok(())
    }

    /// Closes a stream. What is open of it is handed over.
    pub fn close(&mut self, now: Instant, stream: StreamId) {
        if self.streams.remove(&stream).is_some() {
            self.version += 1;
            self.hub.set_stream(now, stream, self.version, None);
            self.take_flushed(now);
            self.tell(FrontEndEvent::Closed { stream });
        }
    }

    /// A job has ended on its nodes, and [`Self::job_ended`] will follow: what processes hold of
    /// its streams, since they wait for ranks that have ended, they are to pass on now. Told like
    /// any news of a stream, it overtakes nothing.
    pub fn job_ending(&mut self, now: Instant, job: JobId) {
        let waits = |spec: &StreamSpec| spec.sync == Sync::WaitAll || spec.hold > HOLD;
        for (id, spec) in &self.streams {
            if spec.scope == Scope::Job(job) && waits(spec) {
                let spec = StreamSpec {
                    sync: Sync::None,
                    ..spec.clone()
                };
                self.version += 1;
                self.hub.set_stream(now, *id, self.version, Some(spec));
            }
        }
    }

    /// A job has ended, and its streams with it.
    pub fn job_ended(&mut self, now: Instant, job: JobId) {
        let of_job = |spec: &StreamSpec| spec.scope == Scope::Job(job);
        let ended: Vec<StreamId> = (self.streams.iter())
            .filter(|(_, spec)| of_job(spec))
            .map(|(id, _)| *id)
            .collect();
        for stream in ended {
            self.close(now, stream);
        }
    }

    /// Streams that are open.
    pub fn streams(&self) -> &BTreeMap<StreamId, StreamSpec> {
        &self.streams
    }

    /// Tells nodes to be silent until there is a tree.
    pub fn stay_down(&mut self) {
        if self.standing.is_none() {
            self.state = TreeState::Down;
        }
    }

    /// Takes the tree down; [`FrontEndEvent::TreeDown`] says when it is.
    pub fn take_down(&mut self, now: Instant) {
        if self.standing.is_some() {
            self.state = TreeState::Down;
            let mut io = io!(self, now);
            self.hub.take_down(&mut io);
        }
    }

    /// The books at present.
    pub fn books(&self) -> Books {
        let mut keeper = self.keeper.clone();
        let mut hub = self.hub.clone();
        hub.entries.clear();
        hub.take_census();
        hub.entries.iter().for_each(|entry| keeper.note(entry));
        keeper.books(self.hub.dropped + self.dropped)
    }

    /// What a node's back end says it submitted in this boot, as far as heard.
    pub fn submitted(&self, node: NodeId, boot: BootEpoch) -> u64 {
        self.keeper.submitted(Process::back_end(node), boot)
    }

    /// Nodes that said hello.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.nodes.keys().copied()
    }

    /// A tree stands, or is being taken down.
    pub fn is_standing(&self) -> bool {
        self.standing.is_some()
    }

    /// How the overlay stands.
    pub fn status(&self) -> FrontEndStatus {
        let below = self.hub.below();
        let plan = self.standing.as_ref().map(|standing| &standing.plan);
        FrontEndStatus {
            nodes: self.nodes.len() as u32,
            planned: plan.map_or(0, |plan| plan.processes.len() as u32 - plan.cps),
            cps_planned: plan.map_or(0, |plan| plan.cps),
            local: plan.map_or(0, |plan| plan.local),
            height: plan.map_or(0, |plan| plan.height),
            // A child that stood still and is back may still count those that have gone elsewhere.
            back_ends: below.attached().min(self.nodes.len() as u32),
            quiet: below.quiet,
            cps: below.cps,
            children: self.hub.children() as u32,
            streams: self.streams.len() as u32,
            kept: (self.hub.kept() + self.outbox.len()) as u32,
        }
    }

    /// Figures since the start, in the order of [`OverlayMetric`].
    pub fn counters(&self) -> &Counters<{ OverlayMetric::COUNT }> {
        &self.counters
    }

    fn tick(&mut self, now: Instant) {
        let mut io = io!(self, now);
        let clock = self.clock.clone();
        self.hub.tick(&mut io, &clock);
        self.take_flushed(now);
        while let Some(entry) = self.hub.entries.pop_front() {
            self.note(now, &entry);
        }
        self.invite_missing(now);
        let back_ends = self.hub.below().attached();
        if let Some(standing) = &mut self.standing {
            let planned = standing.plan.processes.len() as u32 - standing.plan.cps;
            if !standing.told_up && back_ends >= planned {
                standing.told_up = true;
                let after = now.saturating_since(standing.begun);
                self.tell(FrontEndEvent::TreeUp { after, back_ends });
            }
        }
        let down = self
            .hub
            .leaving
            .as_ref()
            .is_some_and(|leaving| leaving.below_down);
        if down && self.standing.take().is_some() {
            let (height, dropped) = (self.hub.height(), self.hub.dropped);
            let mut io = io!(self, now);
            self.hub = no_hub(&mut io, height);
            self.hub.dropped = dropped;
            self.views.clear();
            self.tell(FrontEndEvent::TreeDown);
        }
    }

    fn take_flushed(&mut self, now: Instant) {
        // As in [`Self::status`]: a child that stood still and is back may still count those that
        // have gone elsewhere.
        let attached = self.hub.below().back_ends.min(self.nodes.len() as u32);
        while let Some(flushed) = self.hub.next_flushed() {
            let (values, count) = match flushed.values {
                Values::Reduced(accs) => (TickBody::Reduced(accs), u32::from(flushed.covers > 0)),
                Values::Rows(rows) => {
                    let count = rows.len() as u32;
                    (TickBody::Rows(rows), count)
                }
            };
            if self.events.len() < MAX_EVENTS {
                self.keeper.arrived(count.into(), flushed.covers.into());
            }
            self.tell(FrontEndEvent::Tick(TickValue {
                stream: flushed.stream,
                tick: flushed.tick,
                covers: flushed.covers,
                attached,
                ends: flushed.ends,
                at: now,
                values,
            }));
        }
    }

    fn handle(&mut self, now: Instant, peer: Peer, packet: Packet) {
        let (process, boot) = (packet.from, packet.boot);
        let from = (process, boot, peer);
        if let Message::Hello(hello) = packet.message {
            return self.hello(now, from, hello);
        }
        if packet.tree != self.tree {
            self.count(OverlayMetric::Misdirected, 1);
            let link = match packet.message {
                Message::Report { standing, .. } => standing.link,
                Message::Attach(attach) => attach.link,
                _ => return,
            };
            let detach = Message::Detach { link };
            return io!(self, now).send(Process::FRONT_END, (process, peer), detach);
        }
        let clock = self.clock.clone();
        let open = self.state == TreeState::Up;
        let mut io = io!(self, now);
        match packet.message {
            Message::Attach(attach) => self.hub.attach(&mut io, from, attach, &clock, open),
            Message::Report { standing, sections } => {
                self.hub
                    .report(&mut io, from, (standing, &sections), &clock);
            }
            Message::BuildAck { next, refused } => {
                self.hub.build_ack(&mut io, process, next, refused)
            }
            Message::StreamAck { id, version } => {
                self.hub.stream_ack(&mut io, process, id, version)
            }
            Message::Taken { standing } => self.hub.taken(process, boot, standing),
            Message::Census { number, entries } => {
                if self.hub.has_child(process) {
                    io.send(
                        Process::FRONT_END,
                        (process, peer),
                        Message::CensusAck { number },
                    );
                    entries.iter().for_each(|entry| self.note(now, entry));
                }
            }
            _ => self.count(OverlayMetric::Misdirected, 1),
        }
    }

    fn hello(
        &mut self,
        now: Instant,
        (process, boot, peer): (Process, BootEpoch, Peer),
        hello: Hello,
    ) {
        let node = process.node;
        // Nobody has the front end's own number.
        if node == Process::FRONT_END.node {
            return self.count(OverlayMetric::Misdirected, 1);
        }
        let known = self.nodes.get(&node);
        if known.is_none() && self.nodes.len() >= MAX_NODES {
            return self.count(OverlayMetric::Overflowed, 1);
        }
        let fresh = known.is_none_or(|known| known.boot != boot);
        self.away.remove(&node);
        self.nodes.insert(node, Registered { peer, boot, hello });
        if fresh {
            self.tell(FrontEndEvent::Hello { node, boot });
        }
        let candidates = match self.state {
            TreeState::Up => {
                self.restore(now, node);
                self.candidates(node)
            }
            _ => Vec::new(),
        };
        let state = self.state;
        let ack = Message::HelloAck { state, candidates };
        io!(self, now).send(Process::FRONT_END, (process, peer), ack);
    }
}

fn host(node: NodeId, hello: &Hello) -> Host {
    Host {
        node,
        factors: HostFactors {
            raw: hello.factors,
            up: hello.cps > 0,
            cap: hello.cps.min(MAX_CPS).into(),
            back_ends: hello.back_end.into(),
        },
        reluctant: false,
    }
}
