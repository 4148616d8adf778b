//! The control node's side of DROP: what each node is still to drop, one command under way at a
//! time. (What it does with HOLDINGS is one comparison, in [`crate::join::registry`].)
//!
//! Invariant: ids rise, so a node can tell a repeated command from a new one; a command is
//! repeated until its node answers or is gone.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::control::outbox::{Outbox, Outgoing};
use crate::control::{DropRefused, Event};
use crate::ids::{NodeId, ProgramId};
use crate::rng::Rng;
use crate::time::Instant;
use crate::transport::retry::Backoff;
use crate::wire::job::{Command, DropAck};

/// Repetition of a DROP; at its slowest as often as a computing node looks.
const DROP: Backoff = Backoff::OF_SESSION;
/// Commands that may wait for one node: as many as it can have programs.
const PER_NODE: usize = crate::retention::HOLDINGS_MAX;

#[derive(Debug)]
struct Waiting {
    id: u64,
    program: Option<ProgramId>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    tries: u32,
    due: Option<Instant>,
}

/// The DROPs of a cluster.
#[derive(Debug, Default)]
pub(crate) struct Drops {
    last_id: u64,
    nodes: BTreeMap<NodeId, Queue>,
    timers: BTreeSet<(Instant, NodeId)>,
}

impl Drops {
    pub(crate) fn ask(
        &mut self,
        now: Instant,
        node: NodeId,
        program: Option<ProgramId>,
    ) -> Result<u64, DropRefused> {
        let queue = self.nodes.entry(node).or_default();
        if queue.waiting.len() >= PER_NODE {
            return Err(DropRefused::TooMany);
        }
        self.last_id += 1;
        let id = self.last_id;
        queue.waiting.push_back(Waiting { id, program });
        if queue.due.is_none() {
            arm(&mut self.timers, queue, now, node);
        }
        Ok(id)
    }

    /// The command a node is waiting for.
    pub(crate) fn wanted(&self, node: NodeId) -> Option<Command<'static>> {
        let Waiting { id, program } = *self.nodes.get(&node)?.waiting.front()?;
        Some(Command::Drop { id, program })
    }

    /// A node says what it has dropped.
    pub(crate) fn acknowledge(
        &mut self,
        now: Instant,
        node: NodeId,
        ack: DropAck,
        out: &mut Outbox,
    ) {
        let Some(queue) = self.nodes.get_mut(&node) else {
            out.counters.stale += 1;
            return;
        };
        if queue.waiting.front().is_none_or(|first| first.id != ack.id) {
            out.counters.stale += 1;
            return;
        }
        queue.waiting.pop_front();
        queue.tries = 0;
        let DropAck { id, pages, in_use } = ack;
        out.event(Event::ProgramDropped {
            node,
            id,
            pages,
            in_use,
        });
        if queue.waiting.is_empty() {
            self.node_gone(node);
        } else {
            arm(&mut self.timers, queue, now, node);
        }
    }

    /// Nothing more is asked of the node.
    pub(crate) fn node_gone(&mut self, node: NodeId) {
        if let Some(due) = self.nodes.remove(&node).and_then(|queue| queue.due) {
            self.timers.remove(&(due, node));
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|(due, _)| *due)
    }

    /// Sends the commands that are due.
    pub(crate) fn handle_timeouts(&mut self, now: Instant, rng: &mut Rng, out: &mut Outbox) {
        while let Some((due, node)) = self.timers.first().copied()
            && due <= now
        {
            let queue = self
                .nodes
                .get_mut(&node)
                .expect("only known nodes have timers");
            out.counters.retransmitted += u64::from(queue.tries > 0);
            let next = now + DROP.wait(queue.tries, rng);
            queue.tries = queue.tries.saturating_add(1);
            arm(&mut self.timers, queue, next, node);
            out.send(Outgoing::Drop { node });
        }
    }
}

/// Sets a node's timer in place of the one that was set before.
fn arm(timers: &mut BTreeSet<(Instant, NodeId)>, queue: &mut Queue, at: Instant, node: NodeId) {
    if let Some(due) = queue.due.replace(at) {
        timers.remove(&(due, node));
    }
    timers.insert((at, node));
}
