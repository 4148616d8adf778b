//! A job's way through its states once it has nodes: start, early and regular end, and what lost
//! nodes mean for it.
//!
//! Invariant: `finish` is the only way out; after it nodes whose ranks never reported stay out of
//! service until they do, join again or are lost.

use netstack::ids::{JobId, NodeId};

use super::fabric::{EndBy, Fabric};
use super::nodes::sorted;
use super::record::{Cause, Job};
use super::submit::bytes_of;
use super::{Due, Ended, Runner, calls};
use crate::api::types::{Frame, JobState, LaunchTotals, RankEnd};
use crate::clock;
use crate::events::{Event, Severity};
use crate::hostlist;

/// Nodes end a job at its time limit by themselves, control and they so far apart, in microseconds,
/// that a rank's end does not depend on who is faster: where programs get a grace control comes
/// first, and else the nodes.
const TIME_LIMIT_PATIENCE_US: u64 = 2_000_000;

/// How much earlier than control's clock a node's may see the time limit, in microseconds.
const TIME_LIMIT_SLACK_US: u64 = 100_000;

/// Signal a job gets when its time is up or another of its nodes is lost (SIGTERM).
const SIGNAL_TERM: i32 = 15;

/// Signal that no program survives (SIGKILL).
pub(super) const SIGNAL_KILL: i32 = 9;

/// What is to blame for a launch that a node refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// The program cannot be run.
    Program,
    /// What the job asks for is not there, as a file or warm pages.
    Job,
    /// The node.
    Node,
}

impl Runner {
    /// A node is out of service, and its job has lost it.
    pub(super) fn lose_node(
        &mut self,
        now_us: u64,
        fabric: &mut dyn Fabric,
        node: u32,
        cause: Cause,
    ) {
        let present = self.nodes.job_of(node).and_then(|id| self.jobs.get(&id));
        let job = present
            .map(Job::on_nodes)
            .filter(|job| self.has(node, *job));
        if let Some(job) = job {
            self.free_node(node, job);
        }
        self.nodes.set_up(node, false);
        if let Some(job) = job {
            self.lose_rank(now_us, fabric, job, NodeId(node), cause);
        }
    }

    pub(super) fn lose_rank(
        &mut self,
        now_us: u64,
        fabric: &mut dyn Fabric,
        job: JobId,
        node: NodeId,
        cause: Cause,
    ) {
        let Some(id) = self.present(job) else {
            return;
        };
        let job = self.jobs.get_mut(&id).expect("it is present");
        let mut is_news = false;
        for rank in job.ranks_on(node) {
            if job.set_end(rank, RankEnd::NodeLost) {
                job.ranks[rank].calls.clear();
                is_news = true;
            }
        }
        if is_news {
            if let Cause::NodeCrashed { panicked, .. } = &cause {
                job.note_crash(node, clock::unix_us(), *panicked);
            }
            if let Cause::NodeLost(reason) | Cause::NodeCrashed { reason, .. } = &cause {
                self.node_failed(node.0, reason);
            }
            self.end_early(now_us, fabric, id, SIGNAL_TERM, cause);
            self.finish_if_ended(id);
        }
    }

    /// A rank is gone without a report, though its node may still be there.
    pub fn rank_lost(
        &mut self,
        now_us: u64,
        fabric: &mut dyn Fabric,
        job: JobId,
        node: NodeId,
        cause: Cause,
    ) {
        self.free_node(node.0, job);
        self.lose_rank(now_us, fabric, job, node, cause);
        self.settle(now_us, fabric);
    }

    /// A node of a job is ready to start it.
    pub fn ready(&mut self, now_us: u64, fabric: &mut dyn Fabric, job: JobId, node: NodeId) {
        let Some(id) = self.present(job) else {
            return;
        };
        let job = self.jobs.get_mut(&id).expect("it is present");
        // Where ranks begin at once, the word that matters is that they have.
        if job.at_once {
            return;
        }
        job.ranks_on(node).for_each(|rank| job.set_ready(rank));
        if job.info.state == JobState::Starting && job.loading == 0 && !job.awaits_program {
            self.start_all(now_us, fabric, id);
        }
    }

    /// All ranks of a job are ready: they start, unless that cannot be written down.
    pub(super) fn start_all(&mut self, now_us: u64, fabric: &mut dyn Fabric, id: u64) {
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        if self.held_up.is_some() {
            self.deadlines.set(id, None);
            self.start_due.insert(id);
            return;
        }
        fabric.start(job.on_nodes());
        self.begin(now_us, id);
    }

    /// That a job begins could not be written down, so its nodes were not told: it starts when it
    /// can be.
    pub fn start_later(&mut self, job: JobId) {
        let Some(id) = self.present(job) else {
            return;
        };
        let job = self.jobs.get_mut(&id).expect("it is present");
        if job.info.state != JobState::Running {
            return;
        }
        (job.started_us, job.info.started_unix_us) = (None, None);
        let text = "starts when the control node can write its store again";
        set_state(job, JobState::Starting, text);
        let record = job.record();
        self.records.push(record);
        self.deadlines.set(id, None);
        self.start_due.insert(id);
    }

    /// Goes on with jobs that have waited for the store to be written again.
    pub(super) fn start_those_due(&mut self, now_us: u64, fabric: &mut dyn Fabric) {
        if self.held_up.is_some() {
            return;
        }
        for id in std::mem::take(&mut self.start_due) {
            let Some(job) = self.jobs.get_mut(&id) else {
                continue;
            };
            if std::mem::take(&mut job.bringing) {
                self.launch_here(now_us, fabric, id);
            } else if job.info.state == JobState::Starting && job.loading == 0 && !job.at_once {
                self.start_all(now_us, fabric, id);
            }
        }
    }

    /// A node of a job says that its ranks run.
    pub fn started(&mut self, now_us: u64, job: JobId, node: NodeId) {
        let Some(id) = self.present(job) else {
            return;
        };
        let job = self.jobs.get_mut(&id).expect("it is present");
        let ranks = job.ranks_on(node);
        for rank in ranks.clone() {
            job.set_ready(rank);
            if job.ranks[rank].started_us.is_none() {
                job.ranks[rank].started_us = Some(now_us);
                job.info.ranks[rank].first_ms = job.since_launch_ms(now_us);
            }
        }
        if job.at_once && job.info.state == JobState::Starting {
            self.begin(now_us, id);
        }
        for rank in ranks {
            self.rank_returned(now_us, id, rank);
        }
        if !self.jobs.get(&id).is_some_and(Job::is_awaited) {
            self.limit_time(id);
        }
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

    /// SIGTERM with a grace, in seconds, or the one that is configured.
    pub(super) fn term(&self, grace_s: Option<u64>) -> EndBy {
        EndBy {
            signal: SIGNAL_TERM,
            grace_us: grace_s.unwrap_or(self.limits.grace_s) * 1_000_000,
        }
    }

    /// The time limit that the nodes of a job are told, in microseconds; 0 for none. Where programs
    /// get a grace control ends them, and the nodes only if it is not there.
    pub(super) fn limit_on_nodes(&self, job: &Job) -> u64 {
        let Some(limit_s) = job.info.time_limit_s else {
            return 0;
        };
        let later_us = match self.limits.grace_s {
            0 => 0,
            grace_s => grace_s * 1_000_000 + TIME_LIMIT_PATIENCE_US,
        };
        limit_s.saturating_mul(1_000_000).saturating_add(later_us)
    }

    /// Once every rank runs, the limit for launching gives way to the job's own.
    pub(super) fn limit_time(&mut self, id: u64) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let Some(started_us) = job.started_us else {
            return;
        };
        if job.info.state != JobState::Running || job.loading > 0 || !job.attached {
            return;
        }
        let limit_us = job
            .info
            .time_limit_s
            .map(|limit| limit.saturating_mul(1_000_000));
        let patience_us = match self.limits.grace_s {
            0 => TIME_LIMIT_PATIENCE_US,
            _ => 0,
        };
        let deadline_us = limit_us.map(|limit| {
            started_us
                .saturating_add(limit.saturating_sub(job.ran_before_us))
                .saturating_add(patience_us)
        });
        self.deadlines.set(id, deadline_us);
    }

    /// A node has answered the retain message for a job (published mode): it keeps `pages` pages
    /// of its program, or none because it does not hold it.
    pub fn retained(&mut self, job: JobId, node: NodeId, pages: u32) {
        let Some(id) = self.present(job).filter(|_| pages == 0) else {
            return;
        };
        let job = &self.jobs[&id];
        let text = format!(
            "{node} was to keep {} for job {id} and does not hold it any more",
            job.info.program_name()
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
        job: JobId,
        node: NodeId,
        (blame, text): (Blame, &str),
    ) {
        // Also when the job is over here: the node says that it has nothing of it.
        self.free_node(node.0, job);
        if let Some(id) = self.present(job)
            && !self.jobs[&id].ranks_on(node).is_empty()
        {
            let job = self.jobs.get_mut(&id).expect("it is present");
            for rank in job.ranks_on(node) {
                job.set_end(rank, RankEnd::NotStarted);
            }
            let text = format!("{node}: {text}");
            // A refusal after the request to end it says nothing about the node.
            let is_news = job.cause.is_none();
            let cause = match blame {
                Blame::Program => Cause::BadProgram(text),
                Blame::Job => Cause::NotLaunched(text),
                Blame::Node => {
                    if is_news {
                        self.node_failed(node.0, &text);
                    }
                    Cause::NodeFailed(text)
                }
            };
            self.end_early(now_us, fabric, id, SIGNAL_TERM, cause);
        }
        self.settle(now_us, fabric);
    }

    /// Acts on deadlines that have passed.
    pub fn tick(&mut self, now_us: u64, fabric: &mut dyn Fabric) {
        self.try_stalled(now_us, fabric);
        for id in self.deadlines.take_due(now_us) {
            let Some(job) = self.jobs.get_mut(&id) else {
                continue;
            };
            match job.info.state {
                JobState::Starting | JobState::Running if job.is_awaited() => {
                    self.lose_awaited(now_us, fabric, id);
                }
                JobState::Starting | JobState::Running if !job.attached => {
                    let text = "its client did not come back".to_string();
                    self.end_early(now_us, fabric, id, 15, Cause::Abandoned(text));
                }
                JobState::Pending if job.attached => {
                    let reason = &job.info.reason;
                    let text = format!("{reason}; run it once without --warm-only, or with --wait");
                    self.end_early(now_us, fabric, id, SIGNAL_TERM, Cause::NotLaunched(text));
                }
                JobState::Pending => {
                    let cause = Cause::Abandoned("no client read its output".to_string());
                    self.end_early(now_us, fabric, id, SIGNAL_TERM, cause);
                }
                // Its files come within limits of their own, and with them no deadline is set.
                JobState::Starting if job.bringing => {
                    job.bringing = false;
                    let reason = &job.info.reason;
                    let text = format!("{reason} (none within {} s)", self.limits.launch_limit_s);
                    self.not_launched(now_us, fabric, id, Cause::NotLaunched(text));
                }
                state
                    if job.loading > 0
                        && !matches!(state, JobState::Pending | JobState::Ending) =>
                {
                    let mut late: Vec<u32> = job
                        .ranks
                        .iter()
                        .filter(|rank| !rank.ready && rank.end.is_none())
                        .map(|rank| rank.node.0)
                        .collect();
                    late.dedup();
                    let limit = self.limits.launch_limit_s;
                    let list = hostlist::format(&sorted(late.clone()));
                    let text = format!("{list} not ready after {limit} s");
                    for node in late {
                        self.node_failed(node, &text);
                    }
                    let cause = Cause::NodeFailed(text);
                    self.end_early(now_us, fabric, id, 9, cause);
                }
                JobState::Running => {
                    let by = self.term(None);
                    self.end_by(now_us, fabric, id, by, Cause::TimeLimit);
                }
                JobState::Starting if job.awaits_program => {
                    self.start_without_waiting(now_us, fabric, id);
                }
                _ => self.give_up(now_us, fabric, id),
            }
        }
        self.settle(now_us, fabric);
    }

    /// Ends a job before its time without a grace, or presses harder when it is ending already.
    pub(super) fn end_early(
        &mut self,
        now_us: u64,
        fabric: &mut dyn Fabric,
        id: u64,
        signal: i32,
        cause: Cause,
    ) {
        self.end_by(now_us, fabric, id, EndBy::at_once(signal), cause);
    }

    /// As [`Self::end_early`], with the grace that its programs are given.
    pub(super) fn end_by(
        &mut self,
        now_us: u64,
        fabric: &mut dyn Fabric,
        id: u64,
        by: EndBy,
        cause: Cause,
    ) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        // Who cancels a job that would run again means that it shall not.
        let is_final = matches!(cause, Cause::Cancelled(_) | Cause::Abandoned(_));
        let overrules = is_final && job.goes_again();
        let first = job.cause.is_none();
        if first || overrules {
            job.cause = Some(cause);
        }
        let on_nodes = job.on_nodes();
        if std::mem::take(&mut job.bringing) {
            fabric.give_up(on_nodes);
            self.release_nodes(id);
        }
        let job = self.jobs.get_mut(&id).expect("looked up above");
        if job.is_over() {
            return self.finish(id);
        }
        let presses = by.signal == SIGNAL_KILL;
        let has_let_go = job.discard_output;
        if first || presses {
            fabric.cancel(on_nodes, by);
        }
        if first || overrules {
            self.set_ending(now_us, id, by.grace_us);
        } else if presses && !has_let_go {
            self.end_within(now_us, id, by.grace_us);
        }
    }

    /// A job was told to end, or has begun to by itself.
    fn set_ending(&mut self, now_us: u64, id: u64, grace_us: u64) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let (state, reason, _) = job.verdict();
        job.info.ends_as = Some(state);
        set_state(job, JobState::Ending, &reason);
        job.info.runs_again = job.goes_again();
        let record = job.record();
        self.records.push(record);
        self.deadlines.set(id, None);
        self.end_within(now_us, id, grace_us);
    }

    /// The nodes of a job have so long to end it; one that has less already is given no more.
    fn end_within(&mut self, now_us: u64, id: u64, grace_us: u64) {
        let nodes_us = self.limits.cancel_grace_s * 1_000_000;
        let until_us = now_us.saturating_add(grace_us).saturating_add(nodes_us);
        let before_us = self.deadlines.of(id).unwrap_or(u64::MAX);
        self.deadlines.set(id, Some(until_us.min(before_us)));
    }

    /// The nodes of a job did not end it in time. First its unread output is let go, since that
    /// may be what they wait for; then the job ends without them.
    fn give_up(&mut self, now_us: u64, fabric: &mut dyn Fabric, id: u64) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        if !job.discard_output {
            job.discard_output = true;
            let grace_us = self.limits.cancel_grace_s * 1_000_000;
            self.deadlines.set(id, Some(now_us + grace_us));
            fabric.cancel(job.on_nodes(), EndBy::at_once(SIGNAL_KILL));
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
        silent.dedup();
        let on_nodes = job.on_nodes();
        for node in &silent {
            self.nodes.stick(*node, on_nodes);
            self.node_failed(*node, &format!("job {id} did not end there in time"));
        }
        let silent = hostlist::format(&sorted(silent));
        let text = format!(
            "job {id}: {silent} did not end it in time and stay out of service until they do or boot again"
        );
        if let Some(job) = self.jobs.get(&id) {
            job.sink.frame(Frame::Notice { text: text.clone() });
        }
        self.event(Severity::Error, "job-stuck", id, text);
        self.finish(id);
    }

    /// A rank ended by a signal just as its time was up: the node saw the limit first.
    pub(super) fn note_time_limit(&mut self, now_us: u64, id: u64, end: RankEnd) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let (Some(ran_us), Some(limit_s)) = (job.ran_us(now_us), job.info.time_limit_s) else {
            return;
        };
        let ran_us = ran_us + TIME_LIMIT_SLACK_US;
        if job.cause.is_none()
            && calls::by_signal(end)
            && ran_us >= limit_s.saturating_mul(1_000_000)
        {
            job.cause = Some(Cause::TimeLimit);
            self.set_ending(now_us, id, 0);
        }
    }

    pub(super) fn finish_if_ended(&mut self, id: u64) {
        let has_ended = |job: &Job| !job.ranks.is_empty() && job.is_over();
        if self.jobs.get(&id).is_some_and(has_ended) {
            self.finish(id);
        }
    }

    fn finish(&mut self, id: u64) {
        self.pass_due = Due::Now;
        if self.run_again(id) {
            return;
        }
        let Some(mut job) = self.jobs.remove(&id) else {
            return;
        };
        self.deadlines.set(id, None);
        self.users.leave(&job.info.user);
        self.spec_bytes -= bytes_of(&job.args, &job.env, &job.want);
        let (state, reason, exit_status) = job.verdict();
        job.info.state = state;
        job.info.reason = reason;
        (
            job.info.why,
            job.info.expected_start_unix_us,
            job.info.ends_as,
        ) = (None, None, None);
        job.info.output = job.sink.sum();
        if self.queue.cancel(id).is_none() {
            self.queue.ended(id, state == JobState::Completed);
        }
        job.info.bad_program = matches!(job.cause, Some(Cause::BadProgram(_)));
        job.info.exit_status = exit_status;
        job.info.ended_unix_us = Some(clock::unix_us());
        job.info.totals = LaunchTotals::of(&job.info.ranks);
        self.records.push(job.record());
        // What somebody wanted is nothing to look at, and the job's reason says that it was.
        let was_wanted = matches!(job.cause, Some(Cause::Cancelled(_)));
        let severity = if state == JobState::Completed || was_wanted {
            Severity::Info
        } else {
            Severity::Warning
        };
        let text = format!("job {id} ({}) {}", job.info.name, job.info.how_ended());
        self.event(severity, "job-ended", id, text);
        if let Some(lost) = job.info.output.filter(|output| output.dropped_bytes > 0) {
            let text = format!(
                "of the output of job {id} {} bytes are lost; see jobs.output_max_bytes and jobs.output_total_bytes, and whether the disk was full",
                lost.dropped_bytes
            );
            self.event(Severity::Warning, "output-dropped", id, text);
        }
        self.ended.push(Ended {
            sink: job.sink,
            info: job.info.clone(),
            held_back: false,
        });
        self.keep(job.info);
    }

    /// A node does not have a job any more, as it says.
    pub(super) fn free_node(&mut self, node: u32, job: JobId) {
        let present = self.present(job).is_some();
        self.nodes.free(node, job, present);
        self.pass_due = Due::Now;
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
