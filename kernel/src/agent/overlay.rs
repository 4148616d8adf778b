//! This node's part in the monitoring overlay (ADR 26, ADR 30).
//!
//! Key type: [`Overlay`], the protocol's roles for this node with what they need of it: the card,
//! the clock, the counters. It stands beside [`super::cast::Casts`] and
//! [`super::exchange::Exchange`], as independent of the protocol with the control node as these.
//!
//! Neighbours: `agent::node` moves datagrams and asks for deadlines, `netstack::overlay` decides,
//! [`crate::monitor`] has the values.
//!
//! Invariant: a program that computes is interrupted for a tick of a stream and for nothing else of
//! the overlay, and for ticks a second or more apart not at all: these come with the heartbeat's
//! interrupt.

use core::net::SocketAddrV4;

use netstack::broadcast::Peer;
use netstack::ids::{BootEpoch, JobId, NodeId, Rank};
use netstack::overlay::fixed::Fixed;
use netstack::overlay::message::Hello;
use netstack::overlay::{self, Collector, MAX_CPS, NodeConfig, OverlayMetric};
use netstack::time::{Instant, Micros};
use netstack::wire::key::Key;

use crate::monitor::collector::{AUXILIARY, Figures, Sources};
use crate::{arch, mm, net};

/// Free heap for each communication process that the node offers to host.
const HEAP_FOR_CP: u64 = 1024 * 1024;
/// The unit of memory that hosts are judged by.
const GIB: u64 = 1 << 30;

/// What the node must know to take part.
pub struct Identity {
    /// Its number.
    pub node: NodeId,
    /// Its boot.
    pub boot: BootEpoch,
    /// Where it is reached.
    pub me: Peer,
    /// Where the control node is reached.
    pub control: SocketAddrV4,
    /// The key that all nodes share.
    pub key: Key,
}

/// The job as the overlay was told of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Job {
    /// Its number, and the node's rank in it.
    pub id: Option<(JobId, Rank)>,
    /// It wants silence until its end.
    pub quiet: bool,
}

/// The overlay on this node.
#[derive(Default)]
pub struct Overlay {
    node: Option<overlay::Node>,
    /// What was moved and dropped in earlier runs of the control node: no count goes back while the
    /// node is up.
    earlier: Figures,
    key: Option<Key>,
    /// The control node, whose hardware address the stack knows.
    control: Option<SocketAddrV4>,
    /// The job that it has, and the one that the roles know of.
    job: Job,
    told: Job,
    /// The job whose program has set the counters that are kept.
    counted: Option<JobId>,
    /// The card's transmit ring had no room.
    ring_full: bool,
}

impl Overlay {
    /// The node has joined a run of the control node. Roles of an earlier run are over; a program
    /// that goes on keeps what it has set.
    pub fn join(&mut self, identity: &Identity, now: Instant) {
        let same = self.key == Some(identity.key) && self.control == Some(identity.control);
        if let Some(node) = self.node.as_mut().filter(|_| same) {
            return node.rejoin(now);
        }
        self.end_roles();
        let config = NodeConfig {
            node: identity.node,
            boot: identity.boot,
            me: identity.me,
            front_end: Peer {
                addr: identity.control,
                mac: [0; 6],
            },
            key: identity.key,
            hello: hello(),
            seed: identity.boot.0 ^ u64::from(identity.node.0),
        };
        self.node = Some(overlay::Node::new(config, now));
        (self.key, self.control) = (Some(identity.key), Some(identity.control));
        self.told = Job::default();
        count_for(&mut self.counted, self.job.id);
    }

    /// The node has joined at this time of the control node, in microseconds.
    pub fn begin_at(&mut self, now: Instant, time: u64) {
        if let Some(node) = &mut self.node {
            node.begin_at(now, time);
        }
    }

    /// It is this time at the control node.
    pub fn set_time(&mut self, now: Instant, time: u64) {
        if let Some(node) = &mut self.node {
            node.set_time(now, time);
        }
    }

    /// The node takes no part any more: nothing of it stays.
    pub fn leave(&mut self) {
        self.end_roles();
        self.counted = None;
        crate::monitor::clear_counters();
    }

    fn end_roles(&mut self) {
        self.earlier = Figures {
            footprint: overlay::Footprint::default(),
            ..self.figures()
        };
        self.node = None;
        crate::monitor::profile::switch(false);
    }

    /// The node has this job now, or none. What is told of it goes with the next turn.
    pub fn set_job(&mut self, id: Option<(JobId, Rank)>) {
        self.job = Job { id, quiet: false };
        // Before the program runs, which may set some at once; unless those of the one before are
        // still to be told.
        if self.told.id.is_none() {
            count_for(&mut self.counted, id);
        }
    }

    /// The job wants silence until its end.
    pub fn set_quiet(&mut self) {
        self.job.quiet = self.job.id.is_some();
    }

    /// The job.
    pub fn job(&self) -> Option<(JobId, Rank)> {
        self.job.id
    }

    /// What it has moved and dropped, and what it keeps.
    pub fn figures(&self) -> Figures {
        let Some(node) = &self.node else {
            return self.earlier;
        };
        let of = |metric: OverlayMetric| node.counters().get(metric as usize);
        Figures {
            received: self.earlier.received + of(OverlayMetric::Received),
            sent: self.earlier.sent + of(OverlayMetric::Sent),
            sent_bytes: self.earlier.sent_bytes + of(OverlayMetric::SentBytes),
            dropped: self.earlier.dropped + node.given_up(),
            footprint: node.footprint(),
        }
    }

    /// What is kept of roles, links, messages, values and timers; 0 when the tree is down.
    pub fn kept(&self) -> u32 {
        let kept = self.figures().footprint;
        let counts = kept.roles + kept.entries + kept.queued + kept.streams;
        counts as u32 + kept.auxiliary + u32::from(kept.timer)
    }

    /// Whether a datagram is for this part of the node.
    pub fn takes(datagram: &[u8]) -> bool {
        overlay::wire::is_overlay(datagram)
    }

    /// Takes a datagram of another process.
    pub fn handle_datagram(&mut self, now: Instant, from: SocketAddrV4, datagram: &[u8]) {
        if let Some(node) = &mut self.node {
            // A role that comes is weighed against the heap of now, not of the time of HELLO.
            if node.status().next().is_none() {
                node.offer(room_for_cps());
            }
            node.handle_datagram(now, from, datagram);
        }
    }

    /// Something is due, or the roles are to hear of a job.
    pub fn is_due(&self, now: Instant) -> bool {
        let Some(node) = &self.node else {
            return false;
        };
        let due = node.poll_timeout().is_some_and(|at| at <= now);
        due || self.ring_full || self.told != self.job
    }

    /// A role or a timer is here.
    pub fn is_at_work(&self) -> bool {
        self.node
            .as_ref()
            .is_some_and(|node| node.poll_timeout().is_some())
    }

    /// Acts on what is due and sends while the card's ring has room.
    pub fn transmit(
        &mut self,
        now: Instant,
        stack: &mut net::Stack,
        buffer: &mut [u8],
        sources: &mut Sources<'_>,
    ) {
        let Some(node) = &mut self.node else {
            return;
        };
        if self.told != self.job {
            // The last values are those of the job that was told, though it is over.
            let present = core::mem::replace(&mut sources.job, self.told.id);
            self.told = self.job;
            let id = self.job.id.map(|(id, _)| id);
            node.set_job(now, id, self.job.quiet, sources as &mut dyn Collector);
            sources.job = present;
            // What the program before has set was told just now, and is not the next one's.
            count_for(&mut self.counted, self.job.id);
        }
        self.ring_full = false;
        if node.poll_timeout().is_none_or(|at| at > now) {
            return;
        }
        loop {
            if !stack.can_send_peer() {
                self.ring_full = true;
                break;
            }
            let Some((to, length)) = node.poll_transmit(now, buffer, sources) else {
                break;
            };
            // The control node says nothing of its hardware address.
            let mac = match Some(to.addr) == self.control {
                true => stack.control_mac().unwrap_or(to.mac),
                false => to.mac,
            };
            stack.send_peer(to.addr, mac, &buffer[..length]);
        }
        // What happened shows in the counters and at the front end.
        while node.poll_event().is_some() {}
    }

    /// When something is due without a datagram arriving.
    pub fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let due = self.node.as_ref()?.poll_timeout();
        // News of the job goes at once.
        let due = if self.told == self.job { due? } else { now };
        Some(match self.ring_full {
            true => due.max(now + net::TRANSMIT_RETRY),
            false => due,
        })
    }

    /// While a program computes: the first tick from `after` on that may come with the heartbeat.
    pub fn slow_tick(&self, after: Instant, least: Micros) -> Option<Instant> {
        self.node.as_ref()?.slow_tick(after, least)
    }

    /// While a program computes: when it must be interrupted for a tick of a stream with a shorter
    /// period.
    pub fn fast_tick(&self, after: Instant, below: Micros) -> Option<Instant> {
        self.node.as_ref()?.fast_tick(after, below)
    }
}

/// The counters are those of this job from now on, or of none.
fn count_for(counted: &mut Option<JobId>, job: Option<(JobId, Rank)>) {
    let job = job.map(|(job, _)| job);
    if *counted != job {
        *counted = job;
        crate::monitor::clear_counters();
    }
}

/// How many communication processes the kernel's heap has room for.
fn room_for_cps() -> u8 {
    (mm::heap_room_bytes() / 2 / HEAP_FOR_CP).min(MAX_CPS.into()) as u8
}

/// What the node says of itself when it joins: its cores, its free memory, no load. Its card does
/// not say how fast its link is: 0. Control judges by the heartbeats, which are newer, and by the
/// links' rate of its configuration.
fn hello() -> Hello {
    let memory = mm::stats().free_bytes as i64;
    let gigabytes = Fixed((i128::from(memory) * i128::from(Fixed::ONE.0) / i128::from(GIB)) as i64);
    Hello {
        back_end: true,
        cps: room_for_cps(),
        auxiliary: AUXILIARY,
        job: None,
        factors: [
            Fixed::whole(arch::cores::count() as i64),
            gigabytes,
            Fixed::ZERO,
            Fixed::ZERO,
        ],
    }
}
