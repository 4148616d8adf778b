//! What the nodes answer to commands, and what that makes of their ranks.
//!
//! Invariant: a rank goes forward only: an answer that was overtaken by a later one, or by a call,
//! changes nothing.

use crate::control::Event;
use crate::control::outbox::Outbox;
use crate::ids::{JobId, NodeId, Rank};
use crate::job::control::{Jobs, LOADING_POLL, Phase, place_mut};
use crate::job::{RankLoss, RefusalCode, StartMode};
use crate::rng::Rng;
use crate::time::Instant;
use crate::wire::job::{JobAck, JobStatus};

impl Jobs {
    /// A node says how a job stands.
    pub(crate) fn acknowledge(
        &mut self,
        now: Instant,
        node: NodeId,
        ack: &JobAck<'_>,
        rng: &mut Rng,
        out: &mut Outbox,
    ) {
        let job = ack.job;
        let ended = matches!(
            ack.status,
            JobStatus::Unknown | JobStatus::Finished | JobStatus::Refused
        );
        let Some(rank) = place_mut(&mut self.jobs, node, job) else {
            if ended {
                self.forget_orphan(node, job);
            } else {
                self.adopt_orphan(now, node, job);
            }
            return;
        };
        if ack.cancel_signal != 0 {
            rank.cancelled = ack.cancel_signal;
        }
        self.signals_taken(now, node, job, ack.signals);
        let Some(rank) = place_mut(&mut self.jobs, node, job) else {
            return;
        };
        if rank.has_exited() {
            // An answer that was overtaken by the last call of the last rank.
            return;
        }
        let (place, phase) = (rank.first, rank.phase);
        match (phase, ack.status) {
            // What it says of a launch that the earlier run sent is an answer, too.
            (Phase::Claiming, JobStatus::Refused) => {
                self.refused(node, job, place, ack.code, ack.text, out);
            }
            (Phase::Claiming, _) if ended => self.not_claimed(now, node, job, ack.status, out),
            (Phase::Retaining, JobStatus::Retained) => {
                self.advance(now, node, job, Phase::Launching);
                out.event(Event::Retained {
                    job,
                    node,
                    rank: place,
                    pages: ack.pages,
                });
            }
            (Phase::Launching, JobStatus::Loading) => {
                let next = now + rng.jitter(LOADING_POLL);
                self.arm(next, node, job);
            }
            (Phase::Launching, JobStatus::Ready | JobStatus::Started) => {
                self.loaded(now, node, job, place, out);
            }
            (Phase::Launching, JobStatus::Refused) => {
                self.refused(node, job, place, ack.code, ack.text, out);
            }
            (Phase::Retaining | Phase::Launching, JobStatus::Unknown | JobStatus::Finished) => {
                self.never_launched(node, job, ack.status, place, out);
            }
            (Phase::Ready, JobStatus::Started) => self.started(node, job, out),
            (Phase::Ready | Phase::Running, _) if ended => {
                self.lost(node, job, RankLoss::Forgotten, out);
            }
            _ => {}
        }
    }

    /// A rank has taken a step; its next command is due.
    pub(super) fn advance(&mut self, now: Instant, node: NodeId, job: JobId, phase: Phase) {
        let state = self.jobs.get_mut(&job).expect("the caller found the job");
        state.update(node, |rank| {
            rank.phase = phase;
            rank.retry.tries = 0;
        });
        self.arm(now, node, job);
    }

    /// The program is loaded, and runs if it was to start at once.
    pub(super) fn loaded(
        &mut self,
        now: Instant,
        node: NodeId,
        job: JobId,
        rank: Rank,
        out: &mut Outbox,
    ) {
        // A cancel may still be on its way to it.
        self.advance(now, node, job, Phase::Ready);
        let state = &self.jobs[&job];
        if state.spec.start == StartMode::AtOnce {
            self.started(node, job, out);
            return;
        }
        out.event(Event::LaunchReady {
            job,
            node,
            rank,
            waiting: state.loading,
        });
    }

    /// A node that got the cancel first, or has had a job of this number, will not launch it.
    fn never_launched(
        &mut self,
        node: NodeId,
        job: JobId,
        status: JobStatus,
        rank: Rank,
        out: &mut Outbox,
    ) {
        if self.jobs[&job].cancel.is_some() {
            let (code, text) = (RefusalCode::Cancelled, "cancelled before it was loaded");
            self.refused(node, job, rank, code, text, out);
        } else if status == JobStatus::Finished {
            self.lost(node, job, RankLoss::Forgotten, out);
        }
    }

    fn refused(
        &mut self,
        node: NodeId,
        job: JobId,
        rank: Rank,
        code: RefusalCode,
        text: &str,
        out: &mut Outbox,
    ) {
        out.event(Event::LaunchRefused {
            job,
            node,
            rank,
            code,
            text: text.into(),
        });
        self.gone(node, job, out);
    }

    pub(super) fn started(&mut self, node: NodeId, job: JobId, out: &mut Outbox) {
        let state = self.jobs.get_mut(&job).expect("the caller found the job");
        let rank = state.update(node, |rank| {
            rank.phase = Phase::Running;
            rank.first
        });
        out.event(Event::Started { job, node, rank });
    }
}
