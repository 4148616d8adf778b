//! A job's way through its states: allocation, launch, start, early and regular end, and what
//! joining and lost nodes mean for it.
//!
//! Invariant: `finish` is the only way out; after it nodes whose ranks never reported stay taken
//! until they do, join again or are lost.

use netstack::ids::NodeId;

use super::allocator::{Wait, WarmNodes};
use super::fabric::Fabric;
use super::record::{Cause, Job};
use super::{Runner, calls, job_id, launch_block, retention};
use crate::api::types::{Frame, JobState, LaunchTotals, RankEnd};
use crate::clock;
use crate::events::{Event, Severity};
use crate::hostlist;

/// Nodes end a job at its time limit by themselves; control steps in so much later, in
/// microseconds, so that a rank's end does not depend on who is faster.
const TIME_LIMIT_PATIENCE_US: u64 = 2_000_000;

/// How much earlier than control's clock a node's may see the time limit, in microseconds.
const TIME_LIMIT_SLACK_US: u64 = 100_000;

/// How long a job that wants warm nodes waits for some that are not in service, in microseconds:
/// after a restart of control they are back within seconds.
const WARM_PATIENCE_US: u64 = 10_000_000;

/// Signal a job gets when its time is up or another of its nodes is lost (SIGTERM).
const SIGNAL_TERM: i32 = 15;

impl Runner {
    /// A node joined. `fresh` says that it has booted since it was last heard of.
    pub fn node_up(&mut self, now_us: u64, fabric: &mut dyn Fabric, node: u32, fresh: bool) {
        let used = self.nodes.entry(node).or_default();
        used.up = true;
        if fresh && used.job.is_some() {
            let reason = format!("{} booted again", hostlist::name(node));
            self.lose_node(now_us, fabric, node, reason);
            self.nodes.entry(node).or_default().up = true;
        }
        self.schedule(now_us, fabric);
    }

    /// A node is not heard of any more, or left.
    pub fn node_down(&mut self, now_us: u64, fabric: &mut dyn Fabric, node: u32, reason: &str) {
        self.lose_node(now_us, fabric, node, reason.to_string());
        self.schedule(now_us, fabric);
    }

    fn lose_node(&mut self, now_us: u64, fabric: &mut dyn Fabric, node: u32, reason: String) {
        let used = self.nodes.entry(node).or_default();
        used.up = false;
        let Some(id) = used.job.take() else { return };
        self.lose_rank(now_us, fabric, id, NodeId(node), &reason);
    }

    fn lose_rank(
        &mut self,
        now_us: u64,
        fabric: &mut dyn Fabric,
        id: u64,
        node: NodeId,
        reason: &str,
    ) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let Some(rank) = job.rank_on(node) else {
            return;
        };
        if job.set_end(rank, RankEnd::NodeLost) {
            job.ranks[rank].calls.clear();
            self.end_early(
                now_us,
                fabric,
                id,
                SIGNAL_TERM,
                Cause::NodeLost(reason.to_string()),
            );
            self.finish_if_ended(id);
        }
    }

    /// A rank is gone without a report, though its node may still be there.
    pub fn rank_lost(
        &mut self,
        now_us: u64,
        fabric: &mut dyn Fabric,
        id: u64,
        node: NodeId,
        reason: &str,
    ) {
        self.free_node(node.0, id);
        self.lose_rank(now_us, fabric, id, node, reason);
        self.schedule(now_us, fabric);
    }

    /// A node of a job is ready to start it.
    pub fn ready(&mut self, now_us: u64, fabric: &mut dyn Fabric, id: u64, node: NodeId) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let Some(rank) = job.rank_on(node) else {
            return;
        };
        // Where ranks begin at once, the word that matters is that they have.
        if job.at_once {
            return;
        }
        job.set_ready(rank);
        if job.info.state == JobState::Starting && job.loading == 0 && !job.awaits_program {
            fabric.start(job_id(id));
            self.begin(now_us, id);
        }
    }

    /// A node of a job says that its rank runs.
    pub fn started(&mut self, now_us: u64, id: u64, node: NodeId) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let Some(rank) = job.rank_on(node) else {
            return;
        };
        job.set_ready(rank);
        if job.ranks[rank].started_us.is_none() {
            job.ranks[rank].started_us = Some(now_us);
            job.info.ranks[rank].first_ms = job.since_launch_ms(now_us);
        }
        if job.at_once && job.info.state == JobState::Starting {
            self.begin(now_us, id);
        }
        self.limit_time(id);
    }

    /// The program runs, on the first of its nodes at least.
    pub(super) fn begin(&mut self, now_us: u64, id: u64) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        job.started_us = Some(now_us);
        job.info.started_unix_us = Some(clock::unix_us());
        set_state(job, JobState::Running, "");
        self.records.push(job.record());
        let text = format!("job {id} ({}) runs on {}", job.info.name, job.info.nodes);
        self.event(Severity::Info, "job-started", id, text);
        self.limit_time(id);
    }

    /// Once every rank runs, the limit for launching gives way to the job's own.
    fn limit_time(&mut self, id: u64) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let Some(started_us) = job.started_us else {
            return;
        };
        if job.info.state != JobState::Running || job.loading > 0 {
            return;
        }
        let limit_us = job
            .info
            .time_limit_s
            .map(|limit| limit.saturating_mul(1_000_000));
        job.deadline_us = limit_us.map(|limit| {
            started_us
                .saturating_add(limit)
                .saturating_add(TIME_LIMIT_PATIENCE_US)
        });
    }

    /// A node has answered the retain message for a job (published mode): it keeps `pages` pages
    /// of its program, or none because it does not hold it.
    pub fn retained(&mut self, id: u64, node: NodeId, pages: u32) {
        let Some(job) = self.jobs.get(&id).filter(|_| pages == 0) else {
            return;
        };
        let text = format!(
            "{node} was to keep {} for job {id} and does not hold it any more",
            job.info.name
        );
        self.events.push(
            Event::new(Severity::Info, "retain-missed", text)
                .job(id)
                .node(node.0),
        );
    }

    /// A node cannot start a job; `bad_program` says that the program is the reason.
    pub fn refused(
        &mut self,
        now_us: u64,
        fabric: &mut dyn Fabric,
        id: u64,
        node: NodeId,
        (bad_program, text): (bool, &str),
    ) {
        // Also when the job is over here: the node says that it has nothing of it.
        self.free_node(node.0, id);
        if let Some(job) = self.jobs.get_mut(&id)
            && let Some(rank) = job.rank_on(node)
        {
            job.set_end(rank, RankEnd::NotStarted);
            let text = format!("{node}: {text}");
            let cause = if bad_program {
                Cause::BadProgram(text)
            } else {
                Cause::NotLaunched(text)
            };
            self.end_early(now_us, fabric, id, SIGNAL_TERM, cause);
        }
        self.schedule(now_us, fabric);
    }

    /// Acts on deadlines that have passed.
    pub fn tick(&mut self, now_us: u64, fabric: &mut dyn Fabric) {
        let due = |job: &Job| job.deadline_us.is_some_and(|deadline| deadline <= now_us);
        let due: Vec<u64> = self
            .jobs
            .iter()
            .filter(|(_, job)| due(job))
            .map(|(id, _)| *id)
            .collect();
        for id in due {
            let job = self.jobs.get_mut(&id).expect("listed above");
            job.deadline_us = None;
            match job.info.state {
                JobState::Pending if job.attached => {
                    let reason = &job.info.reason;
                    let text = format!("{reason}; run it once without --warm-only, or with --wait");
                    self.end_early(now_us, fabric, id, SIGNAL_TERM, Cause::NotLaunched(text));
                }
                JobState::Pending => {
                    let cause = Cause::Cancelled("no client read its output".to_string());
                    self.end_early(now_us, fabric, id, SIGNAL_TERM, cause);
                }
                state
                    if job.loading > 0
                        && !matches!(state, JobState::Pending | JobState::Ending) =>
                {
                    let late: Vec<u32> = job
                        .ranks
                        .iter()
                        .filter(|rank| !rank.ready && rank.end.is_none())
                        .map(|rank| rank.node.0)
                        .collect();
                    let limit = self.limits.launch_limit_s;
                    let late = hostlist::format(&sorted(late));
                    let cause = Cause::NotLaunched(format!("{late} not ready after {limit} s"));
                    self.end_early(now_us, fabric, id, 9, cause);
                }
                JobState::Running => {
                    self.end_early(now_us, fabric, id, SIGNAL_TERM, Cause::TimeLimit);
                }
                JobState::Starting if job.awaits_program => {
                    self.start_without_waiting(now_us, fabric, id);
                }
                _ => self.give_up(now_us, fabric, id),
            }
        }
        self.schedule(now_us, fabric);
    }

    /// Ends a job before its time, or presses harder when it is ending already.
    pub(super) fn end_early(
        &mut self,
        now_us: u64,
        fabric: &mut dyn Fabric,
        id: u64,
        signal: i32,
        cause: Cause,
    ) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let first = job.cause.is_none();
        if first {
            job.cause = Some(cause);
        }
        if std::mem::take(&mut job.bringing) {
            fabric.give_up(id);
            self.release(id);
        }
        let job = self.jobs.get_mut(&id).expect("looked up above");
        if job.is_over() {
            return self.finish(id);
        }
        if first || signal == 9 {
            fabric.cancel(job_id(id), signal);
        }
        if first {
            let (_, reason, _) = job.verdict();
            job.deadline_us = Some(now_us + self.limits.cancel_grace_s * 1_000_000);
            set_state(job, JobState::Ending, &reason);
        }
    }

    /// The nodes of a job did not end it in time. First its unread output is let go, since that
    /// may be what they wait for; then the job ends without them.
    fn give_up(&mut self, now_us: u64, fabric: &mut dyn Fabric, id: u64) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        if !job.discard_output {
            job.discard_output = true;
            job.deadline_us = Some(now_us + self.limits.cancel_grace_s * 1_000_000);
            fabric.cancel(job_id(id), 9);
            for rank in 0..job.ranks.len() {
                self.serve_rank(now_us, fabric, id, rank);
            }
            return;
        }
        let mut silent = Vec::new();
        for rank in 0..job.ranks.len() {
            if job.set_end(rank, RankEnd::Failed) {
                silent.push(job.ranks[rank].node.0);
            }
        }
        let silent = hostlist::format(&sorted(silent));
        let text = format!(
            "job {id}: {silent} did not end it in time and stay out of service until they do or boot again"
        );
        job.sink.frame(Frame::Notice { text: text.clone() });
        self.event(Severity::Error, "job-stuck", id, text);
        self.finish(id);
    }

    /// A rank ended by a signal just as its time was up: the node saw the limit first.
    pub(super) fn note_time_limit(&mut self, now_us: u64, id: u64, end: RankEnd) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let (Some(started), Some(limit_s)) = (job.started_us, job.info.time_limit_s) else {
            return;
        };
        let ran_us = now_us.saturating_sub(started) + TIME_LIMIT_SLACK_US;
        if job.cause.is_none()
            && calls::by_signal(end)
            && ran_us >= limit_s.saturating_mul(1_000_000)
        {
            job.cause = Some(Cause::TimeLimit);
            job.deadline_us = Some(now_us + self.limits.cancel_grace_s * 1_000_000);
            set_state(job, JobState::Ending, "time limit reached");
        }
    }

    pub(super) fn finish_if_ended(&mut self, id: u64) {
        if self.jobs.get(&id).is_some_and(Job::is_over) {
            self.finish(id);
        }
    }

    fn finish(&mut self, id: u64) {
        let Some(mut job) = self.jobs.remove(&id) else {
            return;
        };
        let (state, reason, exit_status) = job.verdict();
        job.info.state = state;
        job.info.reason = reason;
        job.info.bad_program = matches!(job.cause, Some(Cause::BadProgram(_)));
        job.info.exit_status = exit_status;
        job.info.ended_unix_us = Some(clock::unix_us());
        job.info.totals = LaunchTotals::of(&job.info.ranks);
        self.records.push(job.record());
        let severity = if state == JobState::Completed {
            Severity::Info
        } else {
            Severity::Warning
        };
        let mut text = format!("job {id} ({}): {}", job.info.name, state.word());
        if !job.info.reason.is_empty() {
            text = format!("{text}: {}", job.info.reason);
        }
        self.event(severity, "job-ended", id, text);
        self.ended.push((job.sink, job.info.clone()));
        self.keep(job.info);
    }

    /// Makes a node free again if `id` is its job.
    pub(super) fn free_node(&mut self, node: u32, id: u64) {
        if let Some(used) = self.nodes.get_mut(&node)
            && used.job == Some(id)
        {
            used.job = None;
        }
    }

    /// Gives nodes to waiting jobs, first come, first served; a job that waits for nodes that are
    /// not in service lets others pass.
    pub(super) fn schedule(&mut self, now_us: u64, fabric: &mut dyn Fabric) {
        self.schedule_due = false;
        let waiting = |job: &Job| job.info.state == JobState::Pending && job.attached;
        let queue: Vec<u64> = self
            .jobs
            .iter()
            .filter(|(_, job)| waiting(job))
            .map(|(id, _)| *id)
            .collect();
        if queue.is_empty() {
            return;
        }
        let mut candidates = self.candidates();
        let mut held = false;
        for id in queue {
            let job = self.jobs.get_mut(&id).expect("listed above");
            if held {
                set_state(job, JobState::Pending, "waits for jobs before it");
                continue;
            }
            let warm = if retention::looks_for_warm(&self.retention, &job.wishes) {
                fabric.warm_nodes(&job.program.hash())
            } else {
                WarmNodes::default()
            };
            match self.allocator.allocate(&job.want, &candidates, &warm) {
                Ok(nodes) => {
                    for node in &nodes {
                        let before = candidates.insert(*node, super::Candidate::Busy);
                        assert_eq!(before, Some(super::Candidate::Free), "allocated twice");
                    }
                    self.launch(now_us, fabric, id, &nodes);
                }
                Err(Wait::Cold(reason)) => {
                    let cause = Cause::NotLaunched(reason);
                    self.end_early(now_us, fabric, id, SIGNAL_TERM, cause);
                }
                Err(wait) => {
                    set_state(job, JobState::Pending, wait.reason());
                    held = matches!(wait, Wait::Busy(_));
                    job.deadline_us = match wait {
                        // Their programs may be gone for good: not for ever without being asked.
                        Wait::Absent(_) if job.want.warm_only && !job.wait => {
                            job.deadline_us.or(Some(now_us + WARM_PATIENCE_US))
                        }
                        _ => None,
                    };
                }
            }
        }
    }

    fn launch(&mut self, now_us: u64, fabric: &mut dyn Fabric, id: u64, nodes: &[u32]) {
        let job = self.jobs.get_mut(&id).expect("the caller has it");
        assert_eq!(
            nodes.len(),
            job.want.ranks as usize,
            "as many nodes as ranks"
        );
        for node in nodes {
            self.nodes
                .get_mut(node)
                .expect("allocated from known nodes")
                .job = Some(id);
        }
        job.place(nodes);
        job.info.nodes = rank_order(nodes);
        job.launch_blocks = (0..job.want.ranks)
            .zip(nodes)
            .map(|(rank, node)| {
                let place = launch_block::Place {
                    job: id,
                    rank,
                    size: job.want.ranks,
                    node: *node,
                };
                let block = launch_block::emit(place, &job.args, &job.env, &job.files);
                block.expect("checked at submission").into()
            })
            .collect();
        self.bring(now_us, fabric, id);
    }
}

/// Enters a state and tells the client, unless nothing changed.
pub(super) fn set_state(job: &mut Job, state: JobState, reason: &str) {
    if job.info.state == state && job.info.reason == reason {
        return;
    }
    job.info.state = state;
    job.info.reason = reason.to_string();
    let (reason, nodes) = (reason.to_string(), job.info.nodes.clone());
    job.sink.frame(Frame::State {
        state,
        reason,
        nodes,
    });
}

/// Nodes in rank order: a hostlist when that is their order, else name by name.
fn rank_order(nodes: &[u32]) -> String {
    if nodes.windows(2).all(|pair| pair[0] < pair[1]) {
        hostlist::format(nodes)
    } else {
        nodes
            .iter()
            .map(|node| hostlist::name(*node))
            .collect::<Vec<_>>()
            .join(",")
    }
}

fn sorted(mut nodes: Vec<u32>) -> Vec<u32> {
    nodes.sort_unstable();
    nodes
}
