//! Launches and starts that a step has decided, until what it decided is written down.
//!
//! A node that was told to launch or start a job may run it; a control node that is killed then and does not
//! find that in its store would have it run once more. So these two leave only when the store has them, and
//! are taken back when it cannot be written.
//!
//! Key type: [`Outgoing`]. Neighbours: `control_events` puts them here in place of the endpoint,
//! [`crate::control::Core::settle`] lets them go.
//!
//! Invariant: a job that is cancelled before its launch has left is never launched.

use netstack::ids::JobId;

use crate::jobs::fabric::Launch;

/// What waits to be let go.
#[derive(Debug, Default)]
pub struct Outgoing {
    /// Launches, in the order in which they were decided.
    pub launches: Vec<Launch>,
    /// Jobs whose ranks are to start.
    pub starts: Vec<JobId>,
    /// Jobs that were cancelled while their launch was here: no node has heard of them.
    pub withdrawn: Vec<JobId>,
}

impl Outgoing {
    /// Whether nothing waits.
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
