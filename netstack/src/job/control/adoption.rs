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
use crate::ids::{BootEpoch, JobId, LocalRank, NodeId};
use crate::io::server::Channel;
use crate::job::control::{Job, Jobs, Phase, Place, is_possible, place_mut};
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
        let is_all = adopted.len() as u32 == spec.size();
        if !is_possible(&spec, node_limit) || !is_all {
            return Err(LaunchError::BadSize);
        }
        if self.jobs.len() >= self.limit {
            return Err(LaunchError::TooManyJobs);
        }
        let mut named = BTreeSet::new();
        let mut places = BTreeMap::new();
        for (first, of) in spec.firsts() {
            if !named.insert(of.node) {
                return Err(LaunchError::NodeTwice(of.node));
            }
            let begin = first.0 as usize;
            let adopted = &adopted[begin..begin + usize::from(of.ranks)];
            if adopted.iter().all(|rank| *rank == AdoptedRank::Ended) {
                continue;
            }
            // Its node need not be up.
            self.check_place(of, |_| true)?;
            let mut place = Place {
                phase: Phase::Awaited,
                launch_on: launch_on(adopted),
                ..Place::new(first, of)
            };
            for (rank, adopted) in place.ranks.iter_mut().zip(adopted) {
                rank.exit_seen = *adopted == AdoptedRank::Ended;
            }
            places.insert(of.node, place);
        }
        if places.is_empty() {
            return Err(LaunchError::BadSize);
        }
        let job = spec.job;
        for node in places.keys() {
            self.by_node.insert(*node, job);
        }
        let state = Job {
            spec,
            loading: places.len() as u32,
            places,
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
        let rank = place_mut(&mut self.jobs, node, job);
        if let Some(rank) = rank.filter(|rank| rank.phase == Phase::Awaited) {
            rank.phase = Phase::Claiming;
            rank.launch_on = rank.launch_on.filter(|known| *known == boot);
            self.arm(now, node, job);
        }
    }

    /// A node that was awaited does not come back in time. The rank is gone; nothing is told of it.
    /// False, and nothing happens, when the node has been heard.
    pub(crate) fn abandon(&mut self, node: NodeId, job: JobId, out: &mut Outbox) -> bool {
        let rank = place_mut(&mut self.jobs, node, job);
        let is_awaited = rank.is_some_and(|rank| rank.phase == Phase::Awaited);
        if is_awaited {
            self.gone(node, job, out);
        }
        is_awaited
    }

    /// A node has a job that was claimed.
    pub(crate) fn claimed(&mut self, now: Instant, node: NodeId, ack: &ClaimAck, out: &mut Outbox) {
        let job = ack.job;
        let Some(place) = place_mut(&mut self.jobs, node, job) else {
            self.adopt_orphan(now, node, job);
            return;
        };
        if place.phase != Phase::Claiming || place.ranks.len() != ack.calls.len() {
            return;
        }
        place.cancelled = ack.cancel_signal;
        place.signals_taken = ack.signals;
        let first = place.first;
        out.event(Event::Claimed {
            job,
            node,
            rank: first,
            input_bytes: ack.calls[0].input_bytes,
        });
        let ranks = (0..).map(LocalRank).zip(&mut place.ranks);
        for ((local, rank), calls) in ranks.zip(&ack.calls) {
            rank.channel = Channel::resumed(calls);
            rank.is_over = calls.is_over;
            // An end that was answered was written down before that.
            if calls.is_over && !core::mem::replace(&mut rank.exit_seen, true) {
                out.event(Event::RankLost {
                    job,
                    node,
                    rank: first.plus(local),
                    reason: RankLoss::Forgotten,
                });
            }
        }
        if place.is_over() {
            self.gone(node, job, out);
            return;
        }
        match ack.status {
            JobStatus::Ready => self.loaded(now, node, job, first, out),
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
        let (place, is_cancelled) = (&state.places[&node], state.cancel.is_some());
        let may_launch = status == JobStatus::Unknown && place.launch_on.is_some();
        if may_launch && !is_cancelled {
            return self.advance(now, node, job, Phase::Launching);
        }
        let reason = match status {
            JobStatus::Finished => RankLoss::GivenUp,
            _ => RankLoss::Forgotten,
        };
        self.lost(node, job, reason, out);
    }
}

/// The boot on which the ranks of a place may be launched: none of them has run.
fn launch_on(adopted: &[AdoptedRank]) -> Option<BootEpoch> {
    let boot = |rank: &AdoptedRank| match *rank {
        AdoptedRank::Ended => None,
        AdoptedRank::Open { launch_on } => launch_on,
    };
    let first = adopted.first().and_then(boot);
    first.filter(|_| adopted.iter().all(|rank| boot(rank) == first))
}
