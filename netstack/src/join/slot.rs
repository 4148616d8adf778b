//! One entry of the registry: a boot of a node and its session.

use core::net::SocketAddrV4;

use super::path::Path;
use crate::control::{NodeState, NodeStatus};
use crate::ids::{BootEpoch, NodeId};
use crate::time::Instant;
use crate::transport::liveness::Presence;
use crate::vitals::Vitals;
use crate::wire::datagram::{Header, Kind};
use crate::wire::join::Hello;
use crate::wire::key::{Direction, Key};
use crate::wire::window::ReplayWindow;

/// Boots that may want one place at a time: the one that a node has just begun, and recorded ones
/// that somebody says again.
pub(super) const NEWCOMERS: usize = 4;

/// A boot of a node and its session.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(super) hello: Hello,
    pub(super) hello_seq: u64,
    pub(super) path: Path,
    pub(super) epoch: BootEpoch,
    pub(super) state: NodeState,
    pub(super) since: Instant,
    pub(super) presence: Presence,
    pub(super) session: u64,
    pub(super) node_key: Key,
    pub(super) transmit: Key,
    pub(super) receive: Key,
    pub(super) window: ReplayWindow,
    pub(super) next_seq: u64,
    pub(super) vitals: Vitals,
    /// Sequence number of the heartbeat they came with.
    pub(super) vitals_seq: u64,
    /// Number of the last HOLDINGS that was taken.
    pub(super) report: u64,
    /// Number of the last NODE_LOG that was taken.
    pub(super) log: u64,
    pub(super) was_up: bool,
    pub(super) panicked: bool,
    /// The silence timer's entry.
    pub(super) watched: Option<Instant>,
    /// Another boot that wants this place, and since when.
    pub(super) candidate: Option<(BootEpoch, Instant)>,
}

/// An authentic HELLO and what is known around it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) node: NodeId,
    pub(super) epoch: BootEpoch,
    pub(super) seq: u64,
    pub(super) from: SocketAddrV4,
    pub(super) hello: Hello,
    pub(super) node_key: Key,
}

impl Slot {
    pub(super) fn new(now: Instant, arrival: &Arrival, session: u64) -> Self {
        let key = arrival.node_key;
        Slot {
            hello: arrival.hello,
            hello_seq: arrival.seq,
            path: Path::new(now, arrival.from),
            epoch: arrival.epoch,
            state: NodeState::Joining,
            since: now,
            presence: Presence::new(now),
            session,
            node_key: key,
            transmit: key.session_key(Direction::ToNode, session),
            receive: key.session_key(Direction::ToControl, session),
            window: ReplayWindow::default(),
            next_seq: 1,
            vitals: Vitals::default(),
            vitals_seq: 0,
            report: 0,
            log: 0,
            was_up: false,
            panicked: false,
            watched: None,
            candidate: None,
        }
    }

    /// Its boot has said HELLO again; an older one that comes late or again says nothing.
    pub(super) fn said_hello(&mut self, now: Instant, arrival: &Arrival) {
        if arrival.seq > self.hello_seq {
            self.hello_seq = arrival.seq;
            self.hello = arrival.hello;
            // Nobody was heard there yet. Else the address stays until another has proved itself.
            if self.state == NodeState::Joining && !self.was_up {
                self.path = Path::new(now, arrival.from);
            }
            self.presence.heard(now);
        }
    }

    pub(super) fn enter(&mut self, state: NodeState, now: Instant) {
        self.state = state;
        self.since = now;
    }

    pub(super) fn next_header(&mut self, node: NodeId, kind: Kind) -> Header {
        let seq = self.next_seq;
        self.next_seq += 1;
        Header {
            kind,
            node,
            epoch: self.epoch,
            seq,
        }
    }

    pub(super) fn status(&self, node: NodeId) -> NodeStatus {
        NodeStatus {
            node,
            mac: self.hello.mac,
            addr: self.path.addr(),
            epoch: self.epoch,
            state: self.state,
            since: self.since,
            last_heard: self.presence.heard_at(),
            version: self.hello.version,
            build_id: self.hello.build_id,
            memory_bytes: self.hello.memory_bytes,
            cores: self.hello.cores,
            timings: self.hello.timings,
            vitals: self.vitals,
            job: None,
        }
    }
}
