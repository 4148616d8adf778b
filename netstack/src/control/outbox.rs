//! Where the parts of the control node's endpoint put what they have to tell: events for the
//! user, datagrams for nodes, and for each other which nodes are gone.

use alloc::collections::VecDeque;
use alloc::string::String;
use core::net::SocketAddrV4;

use crate::control::Event;
use crate::counters::Counters;
use crate::ids::{BootEpoch, CallId, JobId, NodeId, Rank};
use crate::job::RankLoss;
use crate::join::Refusal;
use crate::time::Instant;
use crate::wire::key::Key;

/// Events waiting for the user; with more, datagrams are dropped and the nodes repeat them. A
/// full window of calls of 8,192 ranks fits.
const MAX_EVENTS: usize = 65_536;
/// Small datagrams waiting to be sent; with more, they are dropped and asked for again.
const MAX_READY: usize = 65_536;

/// A small datagram to be sent. What can be looked up when it is sent is not stored here.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// RESYNC, unsealed.
    Resync {
        addr: SocketAddrV4,
        node: NodeId,
        epoch: BootEpoch,
        seq: u64,
    },
    /// REFUSE, sealed if there is a key.
    Refuse {
        addr: SocketAddrV4,
        node: NodeId,
        epoch: BootEpoch,
        hello_seq: u64,
        reason: Refusal,
        text: String,
        key: Option<Key>,
    },
    /// WELCOME; `addr` is where the HELLO came from.
    Welcome {
        addr: SocketAddrV4,
        node: NodeId,
        epoch: BootEpoch,
        hello_seq: u64,
    },
    /// HEARTBEAT_ACK.
    Ack { node: NodeId, seq: u64 },
    /// HEARTBEAT_ACK that asks for a heartbeat at once.
    Probe { node: NodeId },
    /// The same to an address that has not proved to be the node's, which is to say this number.
    Challenge {
        node: NodeId,
        addr: SocketAddrV4,
        challenge: u64,
    },
    /// The answer to LEAVE.
    LeaveAck { node: NodeId, seq: u64 },
    /// ASK_LEAVE.
    AskLeave { node: NodeId },
    /// The command that a rank is waiting for, or the cancel of an orphan.
    Command { node: NodeId, job: JobId },
    /// The DROP that a node is to carry out next.
    Drop { node: NodeId },
    /// HOLDINGS_ACK.
    HoldingsAck {
        node: NodeId,
        session: u64,
        number: u64,
    },
    /// NODE_LOG_ACK.
    LogAck {
        node: NodeId,
        session: u64,
        number: u64,
    },
    /// How a call stands.
    IoReply {
        node: NodeId,
        job: JobId,
        rank: Rank,
        call: CallId,
    },
}

/// What the parts have to tell.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    events: VecDeque<Event>,
    ready: VecDeque<Outgoing>,
    /// Nodes whose jobs are gone.
    pub(crate) lost: VecDeque<(NodeId, RankLoss)>,
    pub(crate) counters: Counters,
}

impl Outbox {
    pub(crate) fn event(&mut self, event: Event) {
        self.events.push_back(event);
    }

    pub(crate) fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub(crate) fn events_are_full(&self) -> bool {
        self.events.len() >= MAX_EVENTS
    }

    pub(crate) fn send(&mut self, datagram: Outgoing) {
        if self.ready.len() >= MAX_READY {
            self.counters.overloaded += 1;
        } else {
            self.ready.push_back(datagram);
        }
    }

    pub(crate) fn next_ready(&mut self) -> Option<Outgoing> {
        self.ready.pop_front()
    }

    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }
}

/// A budget for what is sent to senders nobody vouches for.
#[derive(Debug)]
pub(crate) struct HintBudget {
    per_second: u64,
    /// Millionths of a hint.
    tokens: u64,
    refilled: Instant,
}

impl HintBudget {
    pub(crate) fn new(per_second: u32) -> Self {
        let per_second = u64::from(per_second);
        HintBudget {
            per_second,
            tokens: per_second * 1_000_000,
            refilled: Instant::ZERO,
        }
    }

    /// Takes one from the budget, which holds at most one second's worth.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let elapsed = now
            .saturating_since(self.refilled)
            .as_micros()
            .min(1_000_000);
        self.refilled = now.max(self.refilled);
        let full = self.per_second * 1_000_000;
        self.tokens = (self.tokens + elapsed * self.per_second).min(full);
        if self.tokens < 1_000_000 {
            return false;
        }
        self.tokens -= 1_000_000;
        true
    }
}
