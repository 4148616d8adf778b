//! What a step tells nodes that they act upon for good, until what it decided is written down.
//!
//! A node that was told to launch or start a job may run it; a control node that is killed then and
//! does not find that in its store would have it run once more. So these two leave only when the
//! store has them, and are taken back when it cannot be written.
//!
//! A node whose last call of a rank is answered forgets how the rank ended. So that answer leaves
//! only when the store has the end, however long that takes: no job starts meanwhile, so the node
//! is not missed.
//!
//! Key type: [`Outgoing`]. Neighbours: `control_events` puts them here in place of the endpoint,
//! [`crate::control::Core::settle`] lets them go.
//!
//! Invariant: a job that is cancelled before its launch has left is never launched.

use netstack::ids::{CallId, JobId, NodeId, Rank};
use netstack::io::IoReply;

use crate::jobs::fabric::Launch;

/// An answer to a rank's last call.
#[derive(Debug)]
pub struct LastReply {
    /// Where the rank ran.
    pub node: NodeId,
    /// The rank, and its job.
    pub by: (JobId, Rank),
    /// The call.
    pub call: CallId,
    /// The answer.
    pub reply: IoReply,
}

/// What waits to be let go.
#[derive(Debug, Default)]
pub struct Outgoing {
    /// Launches, in the order in which they were decided.
    pub launches: Vec<Launch>,
    /// Jobs whose ranks are to start.
    pub starts: Vec<JobId>,
    /// Jobs that were cancelled while their launch was here: no node has heard of them.
    pub withdrawn: Vec<JobId>,
    /// Answers to last calls: at most a window of them for each node.
    pub last_replies: Vec<LastReply>,
}

impl Outgoing {
    /// Whether no launch and no start waits.
    pub fn is_empty(&self) -> bool {
        self.launches.is_empty() && self.starts.is_empty() && self.withdrawn.is_empty()
    }

    /// A job is to end; whether nodes may have heard of it.
    pub fn cancel(&mut self, job: JobId) -> bool {
        self.starts.retain(|start| *start != job);
        let before = self.launches.len();
        self.launches.retain(|launch| launch.job != job);
        if self.launches.len() < before {
            self.withdrawn.push(job);
        }
        !self.withdrawn.contains(&job)
    }
}
