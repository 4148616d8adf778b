//! Jobs of an earlier run of the control node, which go on.
//!
//! ```text
//!  adopt()  heard            Claimed: loading, ready, started
//! -> Awaited ----> Claiming -----------------------------------> Launching, Ready, Running
//!      |               | Unknown, and nothing can have run: Launching
//!      v               v Unknown, Finished, Refused
//!     Gone           Gone
//! ```
//!
//! A claim is repeated until it is answered. What the rank asks for meanwhile is not handed on: its
//! calls have no place before it is known which of them the earlier run has answered.
//!
//! Invariant: a rank that may have run is never launched again.

use alloc::collections::{BTreeMap, BTreeSet};

use crate::control::Event;
use crate::control::outbox::Outbox;
use crate::ids::{BootEpoch, JobId, NodeId, Rank};
use crate::io::server::Channel;
use crate::job::control::{Job, Jobs, Phase, RankState, rank_mut};
use crate::job::{AdoptedRank, JobSpec, LaunchError, RankLoss};
use crate::time::Instant;
use crate::wire::job::{ClaimAck, JobStatus};

impl Jobs {
    /// Goes on with a job of an earlier run: see [`crate::control::Endpoint::adopt`].
    pub(crate) fn adopt(
        &mut self,
        spec: JobSpec,
        begun: bool,
        adopted: &[AdoptedRank],
        node_limit: usize,
    ) -> Result<(), LaunchError> {
        if spec.job == JobId::NONE || self.jobs.contains_key(&spec.job) {
            return Err(LaunchError::BadJobId);
        }
        let is_all = adopted.len() == spec.ranks.len();
        if spec.ranks.is_empty() || spec.ranks.len() > node_limit || !is_all {
            return Err(LaunchError::BadSize);
        }
        if self.jobs.len() >= self.limit {
            return Err(LaunchError::TooManyJobs);
        }
        let mut named = BTreeSet::new();
        let mut ranks = BTreeMap::new();
        for (number, (place, adopted)) in spec.ranks.iter().zip(adopted).enumerate() {
            if !named.insert(place.node) {
                return Err(LaunchError::NodeTwice(place.node));
            }
            let launch_on = match *adopted {
                AdoptedRank::Ended => continue,
                AdoptedRank::Open { launch_on } => launch_on,
            };
            // Its node need not be up.
            self.check_place(place, |_| true)?;
            let rank = RankState {
                phase: Phase::Awaited,
                launch_on,
                ..RankState::new(Rank(number as u32), place)
            };
            ranks.insert(place.node, rank);
        }
        if ranks.is_empty() {
            return Err(LaunchError::BadSize);
        }
        let job = spec.job;
        for node in ranks.keys() {
            self.by_node.insert(*node, job);
        }
        let state = Job {
            spec,
            loading: ranks.len() as u32,
            ranks,
            // To some of them the START may not have got.
            start: begun,
            cancel: None,
        };
        self.jobs.insert(job, state);
        Ok(())
    }

    /// A node is heard: its job is claimed if it was awaited. `boot`: the boot that is heard.
    pub(crate) fn heard(&mut self, now: Instant, node: NodeId, boot: BootEpoch) {
        let Some(job) = self.job_of(node) else {
            return;
        };
        let rank = rank_mut(&mut self.jobs, node, job);
        if let Some(rank) = rank.filter(|rank| rank.phase == Phase::Awaited) {
            rank.phase = Phase::Claiming;
            rank.launch_on = rank.launch_on.filter(|known| *known == boot);
            self.arm(now, node, job);
        }
    }

    /// A node that was awaited does not come back in time. The rank is gone; nothing is told of it.
    /// False, and nothing happens, when the node has been heard.
    pub(crate) fn abandon(&mut self, node: NodeId, job: JobId, out: &mut Outbox) -> bool {
        let rank = rank_mut(&mut self.jobs, node, job);
        let is_awaited = rank.is_some_and(|rank| rank.phase == Phase::Awaited);
        if is_awaited {
            self.gone(node, job, out);
        }
        is_awaited
    }

    /// A node has a job that was claimed.
    pub(crate) fn claimed(&mut self, now: Instant, node: NodeId, ack: &ClaimAck, out: &mut Outbox) {
        let job = ack.job;
        let Some(rank) = rank_mut(&mut self.jobs, node, job) else {
            self.adopt_orphan(now, node, job);
            return;
        };
        if rank.phase != Phase::Claiming {
            return;
        }
        rank.channel = Channel::resumed(ack.first_call, ack.done);
        rank.cancelled = ack.cancel_signal;
        rank.signals_taken = ack.signals;
        let place = rank.rank;
        out.event(Event::Claimed {
            job,
            node,
            rank: place,
            input_bytes: ack.input_bytes,
        });
        match ack.status {
            JobStatus::Ready => self.loaded(now, node, job, place, out),
            JobStatus::Started => {
                self.advance(now, node, job, Phase::Ready);
                self.started(node, job, out);
            }
            _ => self.advance(now, node, job, Phase::Launching),
        }
    }

    /// A node does not have a job that was claimed.
    pub(super) fn not_claimed(
        &mut self,
        now: Instant,
        node: NodeId,
        job: JobId,
        status: JobStatus,
        out: &mut Outbox,
    ) {
        let state = &self.jobs[&job];
        let (rank, is_cancelled) = (&state.ranks[&node], state.cancel.is_some());
        let may_launch = status == JobStatus::Unknown && rank.launch_on.is_some();
        if may_launch && !is_cancelled {
            return self.advance(now, node, job, Phase::Launching);
        }
        let reason = match status {
            JobStatus::Finished => RankLoss::GivenUp,
            _ => RankLoss::Forgotten,
        };
        let rank = rank.rank;
        out.event(Event::RankLost {
            job,
            node,
            rank,
            reason,
        });
        self.gone(node, job, out);
    }
}
