//! Where processes without a parent can attach, and what a node that comes back hosts again.
//!
//! Invariant: the front end itself is the last of all candidates, so that everybody finds a parent.

use alloc::vec::Vec;

use super::{FrontEnd, INVITE_EVERY, INVITED_AT_ONCE, io};
use crate::ids::{BootEpoch, NodeId};
use crate::overlay::message::{BuildEntry, Candidate, MAX_CANDIDATES, Message, Process, TreeState};
use crate::overlay::uplink::Io;
use crate::time::Instant;

/// Draws for candidates, each of which may hit one that is gone: three for each that a message
/// names.
const DRAWS: u32 = 3 * MAX_CANDIDATES as u32;

impl FrontEnd {
    /// A node that comes back gets the communication processes again that the plan has for it.
    pub(super) fn restore(&mut self, now: Instant, node: NodeId) {
        let Some(standing) = &self.standing else {
            return;
        };
        let own = standing.plan.processes[..standing.plan.cps as usize].iter();
        let own: Vec<_> = own
            .filter(|process| standing.nodes[process.host as usize] == node)
            .copied()
            .collect();
        let height = standing.plan.height;
        for planned in own {
            let parent = planned.parent.map(|parent| self.candidate(parent));
            let parent = parent
                .flatten()
                .unwrap_or_else(|| self.own_candidate(height));
            let child = BuildEntry {
                depth: 1,
                height: planned.height,
                process: Process {
                    node,
                    slot: planned.slot,
                },
                peer: self.nodes[&node].peer,
            };
            if !self.hub.has_child(child.process) {
                self.hub
                    .invite(&mut io!(self, now), parent, child, Vec::new());
            }
        }
    }

    /// Nodes that were gone when the tree was made, and are not known to have a parent in it since.
    pub fn away(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.away.keys().copied()
    }

    /// A node that was gone when the tree was made is there again, and may not know that there is
    /// another: it has heard the last word of the one before at most. It is told where to attach;
    /// to be called again for as long as it is [`Self::away`].
    pub fn welcome_back(&mut self, now: Instant, node: NodeId) {
        let Some(known) = self.away.get(&node).copied() else {
            return;
        };
        if !known.hello.back_end || self.is_attached(node) {
            self.away.remove(&node);
        }
        self.nodes.entry(node).or_insert(known);
        if self.state == TreeState::Up && !self.is_attached(node) {
            self.invite_node(now, node);
        }
    }

    /// The back end of a node has a parent, as far as is known.
    fn is_attached(&self, node: NodeId) -> bool {
        let process = Process::back_end(node);
        let known = self.views.get(&process);
        self.hub.has_child(process) || known.is_some_and(|view| !view.gone)
    }

    /// Back ends have no parent, as far as is known. Nodes that came after the plan was made have
    /// some that are attached, too, in place of none of its own.
    pub(super) fn lacks_back_ends(&self) -> bool {
        let attached = self.hub.below().attached();
        (self.standing.as_ref()).is_some_and(|standing| {
            let since = self.nodes.len().saturating_sub(standing.nodes.len());
            let expected = standing.back_end_of.len() + since;
            (attached as usize) < expected && self.hub.leaving.is_none()
        })
    }

    /// Tells nodes that have no parent where they can attach. A node whose parent was given up
    /// while the tree was built, or that was away then, waits for that: it had no reason to say
    /// HELLO.
    pub(super) fn invite_missing(&mut self, now: Instant) {
        let lacks = self.lacks_back_ends();
        let Some(standing) = self.standing.as_mut().filter(|_| lacks) else {
            return;
        };
        if standing.invite_at > now {
            return;
        }
        standing.invite_at = now + INVITE_EVERY;
        let invited = standing.invited;
        let with_back_end = self.nodes.iter().filter(|(_, known)| known.hello.back_end);
        let nodes = with_back_end.map(|(node, _)| *node);
        let mut missing: Vec<NodeId> = nodes.filter(|node| !self.is_attached(*node)).collect();
        // In turns: those that are gone for good keep nobody else out.
        let before = missing.partition_point(|node| *node <= invited);
        missing.rotate_left(before);
        missing.truncate(INVITED_AT_ONCE);
        if let Some(standing) = &mut self.standing {
            standing.invited = missing.last().copied().unwrap_or(NodeId(0));
        }
        for node in missing {
            self.invite_node(now, node);
        }
    }

    /// Tells a node where its processes can attach.
    fn invite_node(&mut self, now: Instant, node: NodeId) {
        let Some(peer) = self.nodes.get(&node).map(|known| known.peer) else {
            return;
        };
        let candidates = self.candidates(node);
        let state = self.state;
        let ack = Message::HelloAck { state, candidates };
        io!(self, now).send(Process::FRONT_END, (Process::back_end(node), peer), ack);
    }

    fn own_candidate(&self, height: u8) -> Candidate {
        Candidate {
            process: Process::FRONT_END,
            peer: self.config.me,
            height,
            room: self.hub.room(),
        }
    }

    /// A process of the plan as a candidate, unless it is known to be gone.
    fn candidate(&self, index: u32) -> Option<Candidate> {
        let standing = self.standing.as_ref()?;
        let planned = standing.plan.processes[index as usize];
        let node = standing.nodes[planned.host as usize];
        let process = Process {
            node,
            slot: planned.slot,
        };
        let gone = self.views.get(&process).is_some_and(|view| view.gone);
        (!gone).then(|| Candidate {
            process,
            peer: self.nodes[&node].peer,
            height: planned.height,
            room: 1,
        })
    }

    /// Where the processes of a node can attach: where the plan has its back end, some others, and
    /// here.
    pub(super) fn candidates(&mut self, node: NodeId) -> Vec<Candidate> {
        let Some(standing) = &self.standing else {
            return Vec::new();
        };
        let (cps, height) = (standing.plan.cps, standing.plan.height);
        let planned = standing
            .back_end_of
            .get(&node)
            .and_then(|index| standing.plan.processes[*index as usize].parent);
        let mut chosen: Vec<Candidate> = planned
            .and_then(|parent| self.candidate(parent))
            .into_iter()
            .collect();
        for _ in 0..DRAWS {
            if chosen.len() >= MAX_CANDIDATES - 1 || cps == 0 {
                break;
            }
            let index = self.rng.below(cps.into()) as u32;
            if let Some(candidate) = self.candidate(index)
                && chosen
                    .iter()
                    .all(|other| other.process != candidate.process)
            {
                chosen.push(candidate);
            }
        }
        chosen.push(self.own_candidate(height));
        chosen
    }
}
