//! The node's facade: back end, communication processes and auxiliary service processes of one
//! node.
//!
//! The drain loop is that of [`crate::node::Endpoint`]; all datagrams are of kinds 96 to 111.
//! Processes of one node talk to each other by the same messages, which then stay inside.
//!
//! Invariant: without a tree there is no role, no timer and nothing queued.

mod ending;
mod status;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::SocketAddrV4;

use super::back_end::{AUXILIARY_KINDS, BackEnd};
use super::cp::Cp;
use super::hub::{Hub, Room};
use super::message::{
    Build, BuildEntry, Candidate, Hello, Message, Packet, Process, TreeEpoch, TreeState,
};
use super::metric::{Counters, MetricId, OverlayMetric};
use super::outbox::Outbox;
use super::room::{MAX_SUBTREE, OUTBOX_BYTES};
use super::uplink::{Io, Told, Uplink};
use super::{BEAT_EVERY, INVITE_EVERY, MAX_CPS, wire};
use crate::broadcast::Peer;
use crate::ids::{BootEpoch, JobId, NodeId};
use crate::rng::Rng;
use crate::time::{Instant, Micros};
use crate::transport::retry::Backoff;
use crate::wire::Error;
use crate::wire::envelope::Envelopes;
use crate::wire::key::Key;

pub use status::{Footprint, ProcessStatus};

/// Time over which nodes spread their first HELLO: one interval of what they say later.
const HELLO_SPREAD: Micros = BEAT_EVERY;
/// HELLO is repeated so soon at first, and so slowly in the end.
const HELLO: Backoff = Backoff::new(Micros::from_millis(250), Micros::from_secs(8));
/// How long a node that was heard waits to be invited before it says HELLO again: a front end
/// invites every five seconds.
const INVITED_WITHIN: Micros = Micros(INVITE_EVERY.0 + BEAT_EVERY.0);
/// Trees that a front end can have made since it was heard: one a minute for two years.
const TREES_AHEAD: u64 = 1 << 20;
/// Events that wait; the oldest is dropped for the next.
const MAX_EVENTS: usize = 64;
/// Messages between processes of this node in one turn: each is the answer to another one.
const LOCAL_MOST: usize = 4_096;

/// Where values come from.
pub trait Collector {
    /// The present value of a metric; None: the node does not have it.
    fn read(&mut self, metric: MetricId) -> Option<i64>;
    /// An auxiliary service process of this kind is wanted, or not any more. Its metrics are the
    /// 256 from [`MetricId::FIRST_AUXILIARY`] + 256 * `kind` on.
    fn trigger(&mut self, kind: u8, on: bool) {
        let _ = (kind, on);
    }
}

/// What a node needs to know of itself.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Its number.
    pub node: NodeId,
    /// Its boot.
    pub boot: BootEpoch,
    /// Where it is reached.
    pub me: Peer,
    /// Where the front end is reached.
    pub front_end: Peer,
    /// The key of this run of the control node.
    pub key: Key,
    /// What it says of itself.
    pub hello: Hello,
    /// Seed of its random choices; different on every node.
    pub seed: u64,
}

/// Something that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeEvent {
    /// A process has this parent now.
    Attached {
        /// Its slot.
        slot: u8,
        /// The parent.
        parent: Process,
    },
    /// This node hosts a communication process now.
    RoleTaken {
        /// Its slot.
        slot: u8,
        /// Its height.
        height: u8,
    },
    /// A role has ended.
    RoleEnded {
        /// Its slot.
        slot: u8,
    },
}

/// A communication process whose list is coming in.
#[derive(Clone, Debug)]
struct Assembly {
    from: Process,
    next: u16,
    parts: u16,
    entries: Vec<BuildEntry>,
}

#[derive(Clone, Copy, Debug)]
enum Greeting {
    /// Nothing to say.
    Off,
    Saying {
        tries: u32,
        at: Instant,
    },
    /// Heard: wait for an invitation until then.
    Heard {
        until: Instant,
    },
}

/// The node's side of the overlay.
#[derive(Debug)]
pub struct Node {
    config: NodeConfig,
    envelopes: Envelopes,
    tree: TreeEpoch,
    /// The tree that was taken down last.
    down: TreeEpoch,
    greeting: Greeting,
    back_end: Option<BackEnd>,
    cps: BTreeMap<u8, Cp>,
    assemblies: BTreeMap<u8, Assembly>,
    outbox: Outbox,
    events: VecDeque<NodeEvent>,
    counters: Counters<{ OverlayMetric::COUNT }>,
    rng: Rng,
    job: (Option<JobId>, bool),
    /// Samples that the back end submitted and gave up in trees that are over.
    submitted: u64,
    dropped: u64,
    /// How far the back end has sampled in them ([`BackEnd::sampled_to`]).
    sampled_to: u64,
    /// Communication processes that have ended, by slot.
    ended: BTreeMap<u8, ending::Ended>,
    /// The number of the back end's next link.
    next_link: u32,
    /// What roles that ended could not tell any more.
    words: ending::Words,
    /// Auxiliary service processes that run though nobody wants them: roles ended when the
    /// collector was not at hand.
    unsettled: u32,
    /// The newest tree that the front end itself has told of.
    heard_tree: TreeEpoch,
}

macro_rules! io {
    ($node:ident, $now:expr) => {
        Io {
            now: $now,
            me: $node.config.me,
            boot: $node.config.boot,
            tree: $node.tree,
            outbox: &mut $node.outbox,
            rng: &mut $node.rng,
            counters: &mut $node.counters,
        }
    };
}
use io;

impl Node {
    /// A node that will say HELLO within a second.
    pub fn new(config: NodeConfig, now: Instant) -> Self {
        let mut rng = Rng::new(config.seed);
        let at = now + Micros(rng.below(HELLO_SPREAD.0));
        Node {
            envelopes: Envelopes::new(&config.key.overlay_key(), config.me.addr, now),
            config,
            tree: TreeEpoch::default(),
            down: TreeEpoch::default(),
            greeting: Greeting::Saying { tries: 0, at },
            back_end: None,
            cps: BTreeMap::new(),
            assemblies: BTreeMap::new(),
            outbox: Outbox::new(OUTBOX_BYTES),
            events: VecDeque::new(),
            counters: Counters::new(),
            rng,
            job: (None, false),
            submitted: 0,
            dropped: 0,
            sampled_to: 0,
            ended: BTreeMap::new(),
            next_link: 1,
            words: ending::Words::default(),
            unsettled: 0,
            heard_tree: TreeEpoch::default(),
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
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        out: &mut [u8],
        collector: &mut dyn Collector,
    ) -> Option<(Peer, usize)> {
        if self.outbox.is_empty() {
            self.tick(now, collector);
        }
        for _ in 0..LOCAL_MOST {
            let (peer, packet) = self.outbox.pop_front()?;
            if peer.addr != self.config.me.addr {
                let length = wire::emit(&mut self.envelopes, now, peer.addr, &packet, out);
                self.count(OverlayMetric::Sent, 1);
                self.count(OverlayMetric::SentBytes, length as u64);
                return Some((peer, length));
            }
            self.handle(now, peer, packet);
            if self.outbox.is_empty() {
                self.tick(now, collector);
            }
        }
        self.count(OverlayMetric::Stalled, 1);
        None
    }

    /// When to call `poll_transmit` again without other cause; a time that has passed means at
    /// once. None: nothing is under way. A node whose program computes may call later: at the
    /// period that was asked for.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if !self.outbox.is_empty() || self.unsettled != 0 {
            return Some(Instant::ZERO);
        }
        let mut at = match self.greeting {
            Greeting::Off => Instant::FAR_FUTURE,
            Greeting::Saying { at, .. } => at,
            Greeting::Heard { until } => until,
        };
        if let Some(back_end) = &self.back_end {
            at = at.min(back_end.deadline());
            if let Some(taken) = back_end.taken_at {
                at = at.min(taken + super::LINGER);
            }
        }
        for cp in self.cps.values() {
            at = cp.hub.deadline(at.min(cp.uplink.deadline()));
        }
        at = at.min(self.words_at());
        (at != Instant::FAR_FUTURE).then_some(at)
    }

    /// For a node whose program computes: the first tick not before `after` among the streams with
    /// a period of `least` or more. The node samples then, and need not be woken for anything else.
    pub fn slow_tick(&self, after: Instant, least: Micros) -> Option<Instant> {
        let back_end = self.back_end.as_ref()?;
        back_end.next_tick(after, least.0..u64::MAX)
    }

    /// The same for streams with a shorter period: somebody asked for it. Also when a communication
    /// process of this node must pass a tick on.
    pub fn fast_tick(&self, after: Instant, below: Micros) -> Option<Instant> {
        let back_end = self.back_end.as_ref();
        let own = back_end.and_then(|back_end| back_end.next_tick(after, 0..below.0));
        let open = self
            .cps
            .values()
            .map(|cp| cp.hub.tick_deadline(Instant::FAR_FUTURE));
        let open = open.min().filter(|at| *at != Instant::FAR_FUTURE);
        [own, open].into_iter().flatten().min()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<NodeEvent> {
        self.events.pop_front()
    }

    fn tell(&mut self, event: NodeEvent) {
        if self.events.len() >= MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// The node has this job, or none. With `quiet` it sends nothing until the job ends, and then
    /// once.
    pub fn set_job(
        &mut self,
        now: Instant,
        job: Option<JobId>,
        quiet: bool,
        collector: &mut dyn Collector,
    ) {
        self.job = (job, quiet);
        self.config.hello.job = job;
        if let Some(back_end) = &mut self.back_end {
            let mut io = io!(self, now);
            back_end.set_job(&mut io, job, quiet, collector);
            let standing = back_end.standing();
            // The parent is to know that silence begins, and hears the last word.
            back_end.uplink.tick(&mut io, standing);
        }
        self.spread_words(now);
    }

    /// It can host so many communication processes now; one for which there is no room any more is
    /// refused.
    pub fn offer(&mut self, cps: u8) {
        self.config.hello.cps = cps.min(MAX_CPS);
    }

    /// It is this time at the control node, in microseconds: the base of what this node numbers.
    pub fn set_time(&mut self, now: Instant, time: u64) {
        self.envelopes.set_time(now, time);
    }

    /// The node began to take part at this time of the control node, which vouches for it. What
    /// was said before to this address is not opened.
    pub fn begin_at(&mut self, now: Instant, time: u64) {
        self.envelopes.begin_at(now, time);
    }

    /// The control node has a new key: every role ends, and the node says HELLO anew.
    pub fn set_key(&mut self, now: Instant, key: Key, collector: &mut dyn Collector) {
        self.config.key = key;
        self.envelopes = Envelopes::new(&key.overlay_key(), self.config.me.addr, now);
        self.outbox.clear();
        self.end_roles(now, Some(collector));
        self.tree = TreeEpoch::default();
        self.down = TreeEpoch::default();
        // Another run of the control node may have another time.
        self.sampled_to = 0;
        self.greet(now);
    }

    /// The node has joined the control node again. Without a role it says HELLO again: it may be
    /// away from a tree by now.
    pub fn rejoin(&mut self, now: Instant) {
        let idle = self.back_end.is_none() && self.cps.is_empty();
        if idle && matches!(self.greeting, Greeting::Off) {
            self.greet(now);
        }
    }

    fn greet(&mut self, now: Instant) {
        let at = now + Micros(self.rng.below(HELLO_SPREAD.0));
        self.greeting = Greeting::Saying { tries: 0, at };
    }

    fn process(&self, slot: u8) -> Process {
        Process {
            node: self.config.node,
            slot,
        }
    }

    fn tick(&mut self, now: Instant, collector: &mut dyn Collector) {
        for kind in (0..AUXILIARY_KINDS as u8).filter(|kind| self.unsettled & 1 << kind != 0) {
            collector.trigger(kind, false);
        }
        self.unsettled = 0;
        self.say_hello(now);
        if let Some(back_end) = &mut self.back_end {
            let mut io = io!(self, now);
            back_end.sample(&mut io, collector, false);
            let standing = back_end.standing();
            back_end.uplink.tick(&mut io, standing);
        }
        for cp in self.cps.values_mut() {
            let mut io = io!(self, now);
            let clock = cp.uplink.clock.clone();
            cp.hub.tick(&mut io, &clock);
            cp.pass_up(&mut io);
        }
        self.end_what_is_over(now, collector);
        self.tell_words(now);
        let stranded = self
            .back_end
            .as_ref()
            .is_some_and(|back_end| back_end.uplink.is_stranded())
            || self.cps.values().any(|cp| cp.uplink.is_stranded());
        if stranded && matches!(self.greeting, Greeting::Off) {
            self.greet(now);
        }
    }

    fn say_hello(&mut self, now: Instant) {
        if let Greeting::Heard { until } = self.greeting
            && until <= now
        {
            let waits = self
                .back_end
                .as_ref()
                .is_none_or(|back_end| !back_end.uplink.is_up());
            match waits {
                true => self.greeting = Greeting::Saying { tries: 0, at: now },
                false => self.greeting = Greeting::Off,
            }
        }
        let Greeting::Saying { tries, at } = self.greeting else {
            return;
        };
        if at > now {
            return;
        }
        let at = now + HELLO.wait_for_answer(tries, &mut self.rng);
        self.greeting = Greeting::Saying {
            tries: tries.saturating_add(1),
            at,
        };
        let (from, to) = (self.process(0), (Process::FRONT_END, self.config.front_end));
        let hello = Message::Hello(self.config.hello);
        io!(self, now).send(from, to, hello);
    }

    /// Moves to a later tree. What belongs to an earlier one ends.
    fn move_to(&mut self, now: Instant, tree: TreeEpoch) {
        if tree > self.tree {
            self.end_roles(now, None);
            self.tree = tree;
        }
    }

    fn handle(&mut self, now: Instant, peer: Peer, packet: Packet) {
        let from = (packet.from, packet.boot, peer);
        match packet.message {
            Message::HelloAck { state, candidates } => {
                let front_end = packet.from == Process::FRONT_END;
                if !front_end || peer.addr != self.config.front_end.addr {
                    return self.count(OverlayMetric::Misdirected, 1);
                }
                self.heard_tree = self.heard_tree.max(packet.tree);
                self.hello_ack(now, packet.tree, state, &candidates)
            }
            Message::Build(build) => {
                // A tree that the front end cannot have made since it was heard is nobody's.
                if packet.tree.0 > self.heard_tree.0.saturating_add(TREES_AHEAD) {
                    self.count(OverlayMetric::Misdirected, 1);
                } else if packet.tree >= self.tree && packet.tree > self.down {
                    self.move_to(now, packet.tree);
                    self.build(now, from, packet.to_slot, build);
                }
            }
            message if packet.tree != self.tree => {
                self.misdirected(now, from, packet.to_slot, packet.tree, message)
            }
            message => self.deliver(now, from, packet.to_slot, message),
        }
    }

    /// A message for another tree. A child of an earlier one hears that its link is none; a later
    /// tree means that this node missed something, and says HELLO.
    fn misdirected(
        &mut self,
        now: Instant,
        (process, _, peer): (Process, BootEpoch, Peer),
        slot: u8,
        tree: TreeEpoch,
        message: Message,
    ) {
        self.count(OverlayMetric::Misdirected, 1);
        let link = match message {
            Message::Report { standing, .. } => Some(standing.link),
            Message::Attach(attach) => Some(attach.link),
            _ => None,
        };
        if tree > self.tree && tree > self.down {
            if matches!(self.greeting, Greeting::Off) {
                self.greet(now);
            }
        } else if let Some(link) = link {
            let from = self.process(slot);
            io!(self, now).send(from, (process, peer), Message::Detach { link });
        }
    }

    fn hello_ack(
        &mut self,
        now: Instant,
        tree: TreeEpoch,
        state: TreeState,
        candidates: &[Candidate],
    ) {
        if tree < self.tree {
            return;
        }
        match state {
            TreeState::Down => {
                self.end_roles(now, None);
                self.outbox.clear();
                self.tree = tree;
                self.down = tree;
                self.greeting = Greeting::Off;
            }
            // A dedicated node is known now; it is told what it hosts, if anything.
            TreeState::Waiting | TreeState::Up if self.dedicated_at_ease() => {
                self.move_to(now, tree);
                self.greeting = Greeting::Off;
            }
            TreeState::Waiting => {
                let until = now + self.rng.jitter(INVITED_WITHIN).max(INVITED_WITHIN);
                self.greeting = Greeting::Heard { until };
            }
            TreeState::Up => {
                self.move_to(now, tree);
                let until = now + INVITED_WITHIN;
                self.greeting = Greeting::Heard { until };
                if self.back_end.is_none() && self.config.hello.back_end && tree > self.down {
                    self.begin_back_end(now);
                }
                let uplinks = self
                    .back_end
                    .iter_mut()
                    .map(|back_end| &mut back_end.uplink);
                let uplinks = uplinks.chain(self.cps.values_mut().map(|cp| &mut cp.uplink));
                for uplink in uplinks.filter(|uplink| !uplink.is_up()) {
                    uplink.offer(candidates);
                }
            }
        }
    }

    /// It has no back end, and no process that looks for a parent.
    fn dedicated_at_ease(&self) -> bool {
        !self.config.hello.back_end && self.cps.values().all(|cp| cp.uplink.is_up())
    }

    fn begin_back_end(&mut self, now: Instant) {
        let me = self.process(0);
        let uplink = Uplink::new(me, 0, self.next_link, now);
        let mut back_end = BackEnd::new(self.config.node, uplink, self.config.hello.auxiliary);
        // One boot has one count, whatever trees come and go.
        back_end.submitted = core::mem::take(&mut self.submitted);
        back_end.uplink.dropped = core::mem::take(&mut self.dropped);
        back_end.sampled_to = self.sampled_to;
        let (job, quiet) = self.job;
        back_end.adopt_job(job, quiet);
        self.back_end = Some(back_end);
    }

    /// A part of a list, or the invitation of the back end.
    fn build(&mut self, now: Instant, from: (Process, BootEpoch, Peer), slot: u8, build: Build) {
        let (process, _, peer) = from;
        let known = slot == 0 && self.back_end.is_some() || self.cps.contains_key(&slot);
        let may = match slot {
            0 => self.config.hello.back_end && build.height == 0,
            // What it hosts already, it has room for.
            slot => (known || slot <= self.config.hello.cps.min(MAX_CPS)) && build.height > 0,
        };
        let me = self.process(slot);
        let mut next = build.parts;
        if may && !known {
            let parts = build.parts;
            let fresh = || Assembly {
                from: process,
                next: 0,
                parts,
                entries: Vec::new(),
            };
            let assembly = self.assemblies.entry(slot).or_insert_with(fresh);
            if assembly.from != process || assembly.parts != parts {
                *assembly = fresh();
            }
            if build.part == assembly.next
                && assembly.entries.len() + build.entries.len() <= MAX_SUBTREE
            {
                assembly.next += 1;
                assembly.entries.extend_from_slice(&build.entries);
            }
            next = assembly.next;
            if next == parts
                && let Some(assembly) = self.assemblies.remove(&slot)
            {
                self.begin(now, slot, &build, assembly.entries);
            }
        } else if may {
            // It exists: it may still be looking for a parent.
            let mut io = io!(self, now);
            match slot {
                0 => self
                    .back_end
                    .iter_mut()
                    .for_each(|be| be.uplink.attach_to(&mut io, build.parent)),
                _ => self
                    .cps
                    .get_mut(&slot)
                    .into_iter()
                    .for_each(|cp| cp.uplink.attach_to(&mut io, build.parent)),
            }
        }
        let refused = !may;
        io!(self, now).send(me, (process, peer), Message::BuildAck { next, refused });
    }

    /// A role begins.
    fn begin(&mut self, now: Instant, slot: u8, build: &Build, entries: Vec<BuildEntry>) {
        // A node whose back end was not invited goes on asking, whatever else it hosts.
        if slot == 0 || !self.config.hello.back_end {
            self.greeting = Greeting::Off;
        }
        if slot == 0 {
            self.begin_back_end(now);
            let mut io = io!(self, now);
            if let Some(back_end) = &mut self.back_end {
                back_end.uplink.attach_to(&mut io, build.parent);
            }
            return;
        }
        let me = self.process(slot);
        let mut io = io!(self, now);
        let mut hub = Hub::new(me, build.height, Room::OF_CP, &mut io);
        // One boot has one count, and numbers its links on, whatever trees come and go.
        let ended = self.ended.remove(&slot).unwrap_or_default();
        hub.dropped = ended.dropped;
        hub.kin = alloc::vec![build.parent];
        let mut uplink = Uplink::new(me, build.height, ended.next_link, now);
        uplink.attach_to(&mut io, build.parent);
        let below = entries;
        self.cps.insert(slot, Cp { hub, uplink, below });
        self.tell(NodeEvent::RoleTaken {
            slot,
            height: build.height,
        });
    }

    fn deliver(
        &mut self,
        now: Instant,
        from: (Process, BootEpoch, Peer),
        slot: u8,
        message: Message,
    ) {
        if matches!(message, Message::TakeDown) {
            self.tell_words_by(slot, from.0);
        }
        if slot == 0 {
            return self.deliver_back_end(now, from, message);
        }
        let me = self.process(slot);
        let Some(cp) = self.cps.get_mut(&slot) else {
            return self.no_such_process(now, me, from, message);
        };
        let mut io = io!(self, now);
        if let Some(parent) = cp.deliver(&mut io, from, message) {
            self.words.spread(now, &mut self.rng);
            self.tell(NodeEvent::Attached { slot, parent });
        }
    }

    fn deliver_back_end(
        &mut self,
        now: Instant,
        from: (Process, BootEpoch, Peer),
        message: Message,
    ) {
        let me = self.process(0);
        let Some(back_end) = &mut self.back_end else {
            return self.no_such_process(now, me, from, message);
        };
        let (process, _, peer) = from;
        let mut io = io!(self, now);
        match message {
            Message::AttachAck(ack) => {
                if let Told::Attached = back_end.uplink.attach_ack(&mut io, process, ack) {
                    self.greeting = Greeting::Off;
                    self.words.spread(now, &mut self.rng);
                    self.tell(NodeEvent::Attached {
                        slot: 0,
                        parent: process,
                    });
                }
            }
            Message::Beat(beat) => {
                back_end.uplink.beat(&mut io, process, beat);
            }
            Message::Detach { link } => back_end.uplink.detached(&mut io, process, link),
            Message::CensusAck { number } if back_end.uplink.is_linked(process) => {
                back_end.uplink.census_ack(number)
            }
            Message::Stream { id, version, spec } if back_end.uplink.is_linked(process) => {
                if back_end.set_stream(id, version, spec) && version > 0 {
                    io.send(me, (process, peer), Message::StreamAck { id, version });
                }
            }
            Message::TakeDown if back_end.uplink.is_linked(process) => {
                back_end.clear_streams();
                back_end.taken_at = Some(now);
                // What waits goes first, so that the last figures are the last. Words that are
                // under way: it is asked again.
                let standing = back_end.standing();
                back_end.uplink.tick(&mut io, standing);
                if back_end.uplink.is_drained()
                    && let Some(standing) = back_end.uplink.last_standing(now, standing)
                {
                    io.send(me, (process, peer), Message::Taken { standing });
                }
            }
            _ => self.count(OverlayMetric::Misdirected, 1),
        }
    }

    /// Somebody takes this node for more than it is.
    fn no_such_process(
        &mut self,
        now: Instant,
        me: Process,
        (process, _, peer): (Process, BootEpoch, Peer),
        message: Message,
    ) {
        self.count(OverlayMetric::Misdirected, 1);
        let link = match message {
            Message::Report { standing, .. } => standing.link,
            Message::Attach(attach) => attach.link,
            _ => return,
        };
        io!(self, now).send(me, (process, peer), Message::Detach { link });
    }
}
