//! The control node's user: launches the planned jobs, serves pages and calls, reads output at a
//! limited rate, and checks everything it is told.
//!
//! Safety, checked with every event:
//! - a job's output is exactly what its rank wrote, in order, and complete when `Exit` arrives;
//! - every rank ends exactly once, by exit, refusal or loss; a job closes after its last rank;
//! - at most a window of calls of a rank waits for replies;
//! - nodes join, are lost and leave in an order that makes sense, and only nodes that exist.

use std::collections::{BTreeMap, BTreeSet};

use netstack::control::{Endpoint, Event};
use netstack::ids::{BootEpoch, CallId, JobId, NodeId, Rank};
use netstack::io::{ExitReport, ExitStatus, IoOp, IoReply, WINDOW};
use netstack::job::{JobSpec, LaunchError, RankSpec, StartMode};
use netstack::page::{Object, PageError, PageReply, PageWanted};
use netstack::retention::Retention;
use netstack::rng::Rng;
use netstack::time::{Instant, Micros};

use crate::agent::Checked;
use crate::program::{self, Plan, Step, Stream};

/// How long after a failed launch the next attempt comes.
const LAUNCH_RETRY: Micros = Micros::from_millis(500);
/// Longest time the store takes to find a page.
const PAGE_DELAY: Micros = Micros::from_millis(2);

/// How a rank ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// By its exit report.
    Exit(ExitStatus),
    /// Its node did not load it.
    Refused,
    /// Without a word.
    Lost,
}

/// Where a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not launched yet.
    Waiting,
    /// Launched.
    Running,
    /// All ranks have ended.
    Closed,
    /// The control node was restarted meanwhile.
    Aborted,
}

/// A job and what is known about it.
#[derive(Debug)]
struct Record {
    state: State,
    next_attempt: Instant,
    cancel_at: Option<Instant>,
    cancelled: bool,
    outcomes: BTreeMap<Rank, Outcome>,
    ranks: BTreeMap<Rank, RankRecord>,
}

#[derive(Debug, Default)]
struct RankRecord {
    last_call: u64,
    output: u64,
    stdin: u64,
    unanswered: u32,
    reader_free_at: Instant,
    exit_seen: bool,
    ready: bool,
    started: bool,
}

/// Something the operator will do later.
#[derive(Debug)]
enum Task {
    Page(PageReply),
    Reply(NodeId, JobId, Rank, CallId, IoReply),
}

/// The control node's user.
#[derive(Debug)]
pub struct Operator {
    /// The control node's end of the protocol.
    pub endpoint: Endpoint,
    /// All jobs of the run.
    pub plans: BTreeMap<JobId, Plan>,
    records: BTreeMap<JobId, Record>,
    tasks: BTreeMap<(Instant, u64), Task>,
    next_task: u64,
    up: BTreeMap<NodeId, BootEpoch>,
    rng: Rng,
    /// Nodes that joined, counted by event.
    pub joins: u64,
    /// Nodes that were lost, counted by event.
    pub losses: u64,
    /// Bytes of output that arrived.
    pub output_bytes: u64,
}

fn check(holds: bool, what: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(what()) }
}

impl Operator {
    /// A control node with these plans.
    pub fn new(endpoint: Endpoint, plans: Vec<Plan>, seed: u64) -> Self {
        let record = |plan: &Plan| Record {
            state: State::Waiting,
            next_attempt: Instant::ZERO + plan.launch_at,
            cancel_at: None,
            cancelled: false,
            outcomes: BTreeMap::new(),
            ranks: BTreeMap::new(),
        };
        Operator {
            endpoint,
            records: plans.iter().map(|plan| (plan.job, record(plan))).collect(),
            plans: plans.into_iter().map(|plan| (plan.job, plan)).collect(),
            tasks: BTreeMap::new(),
            next_task: 0,
            up: BTreeMap::new(),
            rng: Rng::new(seed),
            joins: 0,
            losses: 0,
            output_bytes: 0,
        }
    }

    /// The control node was killed and starts afresh: what it had in memory is gone.
    pub fn restart(&mut self, endpoint: Endpoint) {
        self.endpoint = endpoint;
        self.tasks.clear();
        self.up.clear();
        for record in self.records.values_mut() {
            if record.state == State::Running {
                record.state = State::Aborted;
            }
        }
    }

    /// Where a job stands.
    pub fn state(&self, job: JobId) -> State {
        self.records[&job].state
    }

    /// All jobs have closed or were aborted.
    pub fn is_done(&self) -> bool {
        let done = |record: &Record| matches!(record.state, State::Closed | State::Aborted);
        self.records.values().all(done)
    }

    /// How a job's ranks ended.
    pub fn outcomes(&self, job: JobId) -> &BTreeMap<Rank, Outcome> {
        &self.records[&job].outcomes
    }

    /// Nodes that are up as far as the events said.
    pub fn up(&self) -> &BTreeMap<NodeId, BootEpoch> {
        &self.up
    }

    /// When the operator wants to do something without other cause.
    pub fn next_wake(&self) -> Option<Instant> {
        let task = self.tasks.first_key_value().map(|((at, _), _)| *at);
        let records = self.records.values();
        let launch = records.filter_map(|record| match record.state {
            State::Waiting => Some(record.next_attempt),
            State::Running => record.cancel_at,
            State::Closed | State::Aborted => None,
        });
        [task, launch.min(), self.endpoint.poll_timeout()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Does what is due; `existed` says whether a boot of a node has ever been.
    pub fn run(&mut self, now: Instant, existed: impl Fn(NodeId, BootEpoch) -> bool) -> Checked {
        while let Some(entry) = self.tasks.first_entry()
            && entry.key().0 <= now
        {
            match entry.remove() {
                Task::Page(reply) => self.endpoint.page_data(now, reply),
                Task::Reply(node, job, rank, call, reply) => {
                    let record = self
                        .records
                        .get_mut(&job)
                        .expect("only known jobs have tasks");
                    let state = record.ranks.entry(rank).or_default();
                    state.unanswered -= 1;
                    self.endpoint.io_reply(now, node, job, call, reply);
                }
            }
        }
        self.launch_and_cancel(now);
        while let Some(event) = self.endpoint.poll_event() {
            self.handle(now, event, &existed)?;
        }
        Ok(())
    }

    fn launch_and_cancel(&mut self, now: Instant) {
        for (job, record) in &mut self.records {
            match record.state {
                State::Waiting if record.next_attempt <= now => {
                    let plan = &self.plans[job];
                    match self.endpoint.launch(now, spec(plan)) {
                        Ok(()) => {
                            record.state = State::Running;
                            record.cancel_at = plan.cancel_after.map(|after| now + after);
                        }
                        Err(LaunchError::NodeNotUp(_) | LaunchError::NodeBusy(_)) => {
                            record.next_attempt = now + self.rng.jitter(LAUNCH_RETRY);
                        }
                        Err(error) => panic!("job {job} cannot be launched: {error:?}"),
                    }
                }
                State::Running if record.cancel_at.is_some_and(|at| at <= now) => {
                    record.cancel_at = None;
                    record.cancelled = true;
                    self.endpoint.cancel(now, *job, 15);
                }
                _ => {}
            }
        }
    }

    fn handle(
        &mut self,
        now: Instant,
        event: Event,
        existed: &impl Fn(NodeId, BootEpoch) -> bool,
    ) -> Checked {
        match event {
            Event::NodeJoined { status, .. } => {
                let (node, epoch) = (status.node, status.epoch);
                check(existed(node, epoch), || {
                    format!("{node} joined with a boot it never had")
                })?;
                let before = self.up.insert(node, epoch);
                self.joins += 1;
                check(before.is_none(), || {
                    format!("{node} joined while it was up")
                })
            }
            Event::NodeLost { node, epoch, .. } => {
                self.losses += 1;
                check(self.up.remove(&node) == Some(epoch), || {
                    format!("{node} was lost twice")
                })
            }
            Event::NodeLeft { node, epoch } => check(self.up.remove(&node) == Some(epoch), || {
                format!("{node} left unseen")
            }),
            Event::NodeStays { node, .. } => check(self.up.contains_key(&node), || {
                format!("{node} stays, which is not up")
            }),
            Event::LaunchReady {
                job, rank, waiting, ..
            } => {
                let state = self.rank(job, rank)?;
                let again = std::mem::replace(&mut state.ready, true);
                check(!again, || {
                    format!("rank {rank} of job {job} was ready twice")
                })?;
                if waiting == 0 {
                    self.endpoint.start(now, job);
                }
                Ok(())
            }
            Event::Started { job, rank, .. } => {
                let state = self.rank(job, rank)?;
                let (ready, again) = (state.ready, std::mem::replace(&mut state.started, true));
                check(ready && !again, || {
                    format!("rank {rank} of job {job} started wrongly")
                })
            }
            Event::LaunchRefused {
                job,
                rank,
                code,
                text,
                ..
            } => {
                let expected = self.plans[&job].refused || self.records[&job].cancelled;
                let found = matches!(code, netstack::job::RefusalCode::Unreadable) || expected;
                check(found, || format!("job {job} was refused: {code:?} {text}"))?;
                self.ended(now, job, rank, Outcome::Refused)
            }
            Event::RankLost { job, rank, .. } => self.ended(now, job, rank, Outcome::Lost),
            Event::JobClosed { job } => {
                let record = self.records.get_mut(&job).expect("only planned jobs exist");
                check(record.state == State::Running, || {
                    format!("job {job} closed twice")
                })?;
                record.state = State::Closed;
                let ranks = self.plans[&job].nodes.len();
                // The exits that were answered are among the outcomes already.
                check(record.outcomes.len() == ranks, || {
                    format!("job {job} closed too early")
                })
            }
            Event::PageWanted(wanted) => self.page_wanted(now, wanted),
            Event::Retained { .. } | Event::Holdings { .. } | Event::ProgramDropped { .. } => {
                Ok(())
            }
            Event::IoCall {
                node,
                job,
                rank,
                call,
                op,
            } => self.io_call(now, node, job, rank, call, op),
            Event::Rejected {
                node, reason, text, ..
            } => Err(format!("{node} was rejected ({reason:?}): {text}")),
            Event::TwoNodesOneMac { node, .. } => Err(format!("{node} was taken for two")),
            Event::KeyReused { .. } => Err("a key was refused".into()),
            Event::NodePanic { node, .. } => Err(format!("{node} panicked")),
        }
    }

    fn rank(&mut self, job: JobId, rank: Rank) -> Result<&mut RankRecord, String> {
        let record = self.records.get_mut(&job).expect("only planned jobs exist");
        check(record.state == State::Running, || {
            format!("job {job} is not running")
        })?;
        check(!record.outcomes.contains_key(&rank), || {
            format!("rank {rank} of job {job} goes on after its end")
        })?;
        Ok(record.ranks.entry(rank).or_default())
    }

    fn ended(&mut self, now: Instant, job: JobId, rank: Rank, outcome: Outcome) -> Checked {
        self.rank(job, rank)?;
        let record = self.records.get_mut(&job).expect("it was found above");
        record.outcomes.insert(rank, outcome);
        if !record.cancelled && !matches!(outcome, Outcome::Exit(_)) {
            // A job that lost a rank has no future.
            record.cancelled = true;
            self.endpoint.cancel(now, job, 9);
        }
        Ok(())
    }

    fn page_wanted(&mut self, now: Instant, wanted: PageWanted) -> Checked {
        let plan = self
            .plans
            .get(&wanted.job)
            .ok_or("a page of an unknown job is wanted")?;
        let bytes = match wanted.object {
            Object::Program => {
                let left = plan.file_bytes.saturating_sub(wanted.offset);
                let length = left.min(wanted.length.into()) as usize;
                Ok(program::bytes_at(
                    Stream::File(wanted.job),
                    wanted.offset,
                    length,
                ))
            }
            Object::PageHashes => Err(PageError::NoSuchObject),
            Object::LaunchBlock => {
                let block = plan.launch_block(wanted.rank);
                let start = block.len().min(wanted.offset as usize);
                let end = block.len().min(start + wanted.length as usize);
                block
                    .get(start..end)
                    .map(<[u8]>::to_vec)
                    .ok_or(PageError::Unreadable)
            }
        };
        let delay = Micros(self.rng.below(PAGE_DELAY.0));
        self.later(now + delay, Task::Page(PageReply { wanted, bytes }));
        Ok(())
    }

    fn later(&mut self, at: Instant, task: Task) {
        self.next_task += 1;
        self.tasks.insert((at, self.next_task), task);
    }

    fn io_call(
        &mut self,
        now: Instant,
        node: NodeId,
        job: JobId,
        rank: Rank,
        call: CallId,
        op: IoOp,
    ) -> Checked {
        let plan = self
            .plans
            .get(&job)
            .ok_or("a call of an unknown job")?
            .clone();
        check(plan.nodes[rank.0 as usize] == node, || {
            format!("{node} is not rank {rank}")
        })?;
        let state = self.rank(job, rank)?;
        check(call.0 == state.last_call + 1, || {
            format!(
                "rank {rank} of job {job}: call {} after {}",
                call.0, state.last_call
            )
        })?;
        check(!state.exit_seen, || {
            format!("rank {rank} of job {job} calls after its exit")
        })?;
        state.last_call = call.0;
        state.unanswered += 1;
        check(state.unanswered <= WINDOW, || {
            format!("job {job}: the window is not kept")
        })?;
        let (at, reply) = self.carry_out(now, &plan, rank, op)?;
        self.later(at, Task::Reply(node, job, rank, call, reply));
        Ok(())
    }

    /// Carries out a call: its reply, and when the rank's reader is ready to give it.
    fn carry_out(
        &mut self,
        now: Instant,
        plan: &Plan,
        rank: Rank,
        op: IoOp,
    ) -> Result<(Instant, IoReply), String> {
        let job = plan.job;
        let state = self.rank(job, rank)?;
        match op {
            IoOp::Write { data, .. } => {
                let position = state.output;
                check(
                    program::is_at(Stream::Output(job, rank), position, &data),
                    || format!("rank {rank} of job {job}: wrong output at {position}"),
                )?;
                let length = data.len() as u64;
                state.output += length;
                let taken = (length * 1_000_000)
                    .checked_div(plan.reader_rate)
                    .unwrap_or(0);
                state.reader_free_at = state.reader_free_at.max(now) + Micros(taken);
                let at = state.reader_free_at;
                self.output_bytes += length;
                Ok((at, reply(length, Vec::new())))
            }
            IoOp::Read { size, .. } => {
                let left = plan.stdin_bytes - state.stdin;
                let length = left.min(size.into()).min(700);
                let data = program::bytes_at(Stream::Input(job), state.stdin, length as usize);
                state.stdin += length;
                let at = now + Micros(self.rng.below(5_000));
                Ok((at, reply(length, data)))
            }
            IoOp::Report { .. } => Err(format!("job {job} reports a fault")),
            IoOp::Exit(report) => {
                state.exit_seen = true;
                let at = state.reader_free_at.max(now);
                self.check_exit(plan, rank, &report)?;
                self.ended(now, job, rank, Outcome::Exit(report.status))?;
                Ok((at, reply(0, Vec::new())))
            }
        }
    }

    /// Nothing is missing when a program has ended.
    fn check_exit(&self, plan: &Plan, rank: Rank, report: &ExitReport) -> Checked {
        let (job, state) = (plan.job, &self.records[&plan.job].ranks[&rank]);
        check(state.output == report.user_us, || {
            let (arrived, written) = (state.output, report.user_us);
            format!("rank {rank} of job {job} wrote {written} bytes, {arrived} arrived")
        })?;
        match report.status {
            ExitStatus::Exited(code) => {
                let read = plan.steps.iter().any(|step| matches!(step, Step::ReadAll));
                let stdin = if read && rank == Rank(0) {
                    plan.stdin_bytes
                } else {
                    0
                };
                let complete = state.output == plan.output_bytes()
                    && report.wall_us == stdin
                    && code == plan.code;
                check(complete, || {
                    format!("rank {rank} of job {job} ended before its end")
                })
            }
            ExitStatus::Signal(_) => check(self.records[&job].cancelled, || {
                format!("job {job} was ended by a signal nobody sent")
            }),
            // A page that did not come within the limit: the network was cut for that long.
            ExitStatus::Failed => Ok(()),
        }
    }

    /// Ranks that ended otherwise than by themselves.
    pub fn failures(&self, job: JobId) -> BTreeSet<Rank> {
        let outcomes = self.records[&job].outcomes.iter();
        outcomes
            .filter(|(_, outcome)| !matches!(outcome, Outcome::Exit(ExitStatus::Exited(_))))
            .map(|(rank, _)| *rank)
            .collect()
    }
}

fn reply(length: u64, data: Vec<u8>) -> IoReply {
    let result = length as i64;
    IoReply { result, data }
}

fn spec(plan: &Plan) -> JobSpec {
    let place = |(rank, node): (usize, &NodeId)| RankSpec {
        node: *node,
        launch_block: plan.launch_block(Rank(rank as u32)).into(),
        retain: false,
    };
    JobSpec {
        job: plan.job,
        ranks: plan.nodes.iter().enumerate().map(place).collect(),
        program: plan.program(),
        program_bytes: plan.file_bytes,
        time_limit_us: 0,
        monitor_period_us: 0,
        memory_limit: 0,
        retention: Retention::NOTHING,
        start: StartMode::OnCommand,
    }
}
