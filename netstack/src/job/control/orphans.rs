//! Orphans: jobs that a node reports and should not have. It is told to drop them until it says
//! that it has.
//!
//! Invariant: a node has at most [`PER_NODE`] of them here; it has one job at a time and reports it
//! again and again.

use crate::ids::{JobId, NodeId};
use crate::job::control::{Jobs, Retry, disarm};
use crate::time::Instant;

/// Orphans remembered per node.
const PER_NODE: usize = 4;

impl Jobs {
    /// A node reports that it has a job.
    pub(crate) fn reported(&mut self, now: Instant, node: NodeId, job: JobId) {
        if self.job_of(node) != Some(job) {
            self.adopt_orphan(now, node, job);
        }
    }

    /// A job that its node should not have: it is told to drop it.
    pub(super) fn adopt_orphan(&mut self, now: Instant, node: NodeId, job: JobId) {
        let known = self
            .orphans
            .range((node, JobId(0))..=(node, JobId(u64::MAX)))
            .count();
        let has_it = self.orphans.contains_key(&(node, job));
        if self.is_closed(node, job) || has_it || known >= PER_NODE {
            return;
        }
        self.orphans.insert((node, job), Retry::default());
        self.arm(now, node, job);
    }

    pub(super) fn first_orphan(&self, node: NodeId) -> Option<(NodeId, JobId)> {
        let mut all = self
            .orphans
            .range((node, JobId(0))..=(node, JobId(u64::MAX)));
        all.next().map(|(key, _)| *key)
    }

    pub(super) fn forget_orphan(&mut self, node: NodeId, job: JobId) {
        if let Some(mut retry) = self.orphans.remove(&(node, job)) {
            disarm(&mut self.timers, &mut retry, node, job);
        }
    }
}
