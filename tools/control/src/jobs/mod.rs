//! The job runner: queue, launch, streams, end. A state machine without sockets or clock, driven by
//! the task in `control`; only what batch jobs write goes straight to files.
//!
//! | module | purpose |
//! |---|---|
//! | `submit` | taking jobs in; their clients |
//! | `queueing` | scheduling passes, hold, release, priorities, why a job waits |
//! | `nodes`, `drain`, `absent` | which nodes there are for jobs, and why others are not |
//! | `loading`, `lifecycle`, `calls` | files and program to the nodes, states, I/O |
//! | `again` | jobs that lost a node or the control node: queued again, ended, or going on |
//! | `continued` | jobs that go on over a restart of the control node |
//! | `spec` | what is written down to launch a job after a restart |
//! | [`streams`], [`kept`] | output and input, with a client and without |
//!
//! Key types: [`Runner`]; [`fabric::Fabric`] (the nodes), [`record::Job`]. Neighbours:
//! `hearth_alloc::queue` decides which job starts and where; `control` feeds this what nodes and
//! clients do; `api` shows its jobs.
//!
//! A job waits until a client has attached to its output (a batch job has none), gets nodes, is
//! launched on them, starts when all are ready (or each rank when it is, see [`retention`];
//! `loading` has its files and program cast before and beside that), and ends when all ranks have
//! ended or their nodes are lost; or it is queued again then. While a client reads slower than the
//! program writes, calls stay unanswered and so the program waits.
//!
//! Invariants: a node has at most one job; a job's nodes become free rank by rank, each when its
//! rank has ended and never before; every job that was accepted ends or can be cancelled, since
//! every state between waiting and running has a deadline, and so has ending; a client hears of its
//! job's end after that is written down ([`Runner::take_records`], [`Runner::tell_ended`]).

mod absent;
pub mod again;
pub mod allocator;
pub mod attempt;
mod calls;
pub mod command_line;
pub mod continued;
mod deadlines;
mod drain;
mod errors;
pub mod fabric;
pub mod kept;
mod launch_block;
pub mod lifecycle;
mod loading;
mod nodes;
mod queueing;
pub mod record;
pub mod retention;
mod spec;
pub mod streams;
mod submit;
#[cfg(test)]
mod tests;
pub mod unread;
pub(crate) mod users;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use hearth_alloc::machine::UnitError;
use hearth_alloc::placement::Placing;
use hearth_alloc::queue::Queue;
use hearth_alloc::topology::Topology;
use netstack::ids::{JobId, NodeId};

use crate::api::types::{Drained, Frame, JobInfo};
use crate::config;
use crate::events::{Event, Severity};
use crate::principal::{Identity, Principal};
use crate::programs::Program;
use deadlines::Deadlines;
pub use errors::{JobError, SubmitError};
use fabric::Fabric;
use kept::Outputs;
pub use launch_block::OWN_VARIABLES;
pub use nodes::NodeError;
use nodes::Nodes;
use record::{Job, RankRecord, Record};
use streams::{Sink, Wakeups};
pub use submit::TIME_LIMIT_MOST_S;
use users::Users;

/// Jobs that have nodes: as many as the protocol endpoint takes.
pub const JOBS_MAX: usize = 4_096;

/// Ranks of jobs that have ended and are remembered here, some 100 MB: eight jobs of the largest
/// cluster. The store has the others.
const HISTORY_RANKS_MAX: usize = 131_072;

/// What is kept of a job's troubles: the first ones tell most.
const TROUBLES_MAX: usize = 4;

/// Waiting jobs from which on passes keep apart: one over 10,000 jobs takes tens of milliseconds.
const LONG_QUEUE: usize = 1_000;

/// How far apart they are then when jobs arrive, in microseconds.
const ARRIVALS_PERIOD_US: u64 = 200_000;

/// And when jobs end.
const ENDS_PERIOD_US: u64 = 50_000;

/// Whether a pass is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// Nothing has changed.
    No,
    /// A job has arrived.
    Soon,
    /// Nodes are free, or jobs may start that were not to.
    Now,
}

/// A job that has ended, and whose client has not been told.
#[derive(Debug)]
struct Ended {
    sink: Sink,
    info: JobInfo,
    /// It could not be written down at first.
    held_back: bool,
}

/// What a runner is made of.
#[derive(Debug)]
pub struct Setup {
    /// Limits of jobs.
    pub jobs: config::Jobs,
    /// When jobs start, and where.
    pub queue: config::Queue,
    /// Programs that stay on nodes.
    pub retention: config::Retention,
    /// How programs reach nodes.
    pub broadcast: config::Broadcast,
    /// The network's tree; none: one switch.
    pub topology: Option<Topology>,
    /// The nodes that the tree has; none: one at every place.
    pub places: Option<BTreeSet<u32>>,
    /// Output of batch jobs.
    pub outputs: Outputs,
    /// Number of the next job.
    pub next_job: u64,
    /// Number of the cluster, as clients are told it.
    pub instance: String,
}

/// The queue and all jobs.
pub struct Runner {
    limits: config::Jobs,
    queueing: config::Queue,
    retention: config::Retention,
    broadcast: config::Broadcast,
    queue: Queue,
    placing: Placing,
    nodes: Nodes,
    /// Whether something happened after which a job may start.
    pass_due: Due,
    /// Passes so far.
    passes: u64,
    /// When the last pass ran, in microseconds of the control clock.
    last_pass_us: u64,
    /// The control node is about to end: no job starts any more.
    stopping: bool,
    /// Why no job starts at present: what control does cannot be written down.
    held_up: Option<String>,
    /// Jobs that would start or be launched but for that.
    start_due: BTreeSet<u64>,
    wakeups: Arc<Wakeups>,
    outputs: Outputs,
    jobs: BTreeMap<u64, Job>,
    deadlines: Deadlines,
    users: Users,
    /// Bytes of arguments and environments of all jobs.
    spec_bytes: usize,
    history: VecDeque<JobInfo>,
    /// Ranks of these.
    history_ranks: usize,
    next_job: u64,
    instance: String,
    /// When nodes were given out last, in microseconds since 1970.
    last_decision: u64,
    events: Vec<Event>,
    /// To be written down.
    records: Vec<Record>,
    /// Ends of ranks whose jobs go on, to be written down as well.
    rank_ends: Vec<RankRecord>,
    /// Jobs of an earlier run of control are being taken in.
    restoring: bool,
    /// Jobs of an earlier run of control that its nodes are to be asked for.
    adopted: Vec<(u64, continued::Ranks)>,
    drains: BTreeMap<u32, Option<Drained>>,
    /// Jobs that have ended, whose clients are told once that is written down.
    ended: Vec<Ended>,
    /// Jobs whose output cannot be kept at present, and when that is tried again, in microseconds
    /// of the control clock.
    stalled: BTreeSet<u64>,
    stalled_until_us: Option<u64>,
    /// Until then nodes that were not heard by this run of control are likely to be, in
    /// microseconds of its clock.
    awaiting_until_us: Option<u64>,
}

impl Runner {
    /// A runner without jobs.
    ///
    /// # Errors
    /// [`UnitError`]: `queue.unit` does not fit the tree.
    pub fn new(setup: Setup) -> Result<Self, UnitError> {
        let limits = setup.queue.limits();
        Ok(Runner {
            queue: Queue::new(setup.queue.policy(), limits),
            placing: setup.queue.placing(),
            nodes: Nodes::new(setup.topology, setup.places, setup.queue.unit)?,
            limits: setup.jobs,
            queueing: setup.queue,
            retention: setup.retention,
            broadcast: setup.broadcast,
            pass_due: Due::No,
            passes: 0,
            last_pass_us: 0,
            stopping: false,
            held_up: None,
            start_due: BTreeSet::new(),
            wakeups: Arc::default(),
            outputs: setup.outputs,
            jobs: BTreeMap::new(),
            deadlines: Deadlines::default(),
            users: Users::default(),
            spec_bytes: 0,
            history: VecDeque::new(),
            history_ranks: 0,
            next_job: setup.next_job,
            instance: setup.instance,
            last_decision: 0,
            events: Vec::new(),
            records: Vec::new(),
            rank_ends: Vec::new(),
            restoring: false,
            adopted: Vec::new(),
            drains: BTreeMap::new(),
            ended: Vec::new(),
            stalled: BTreeSet::new(),
            stalled_until_us: None,
            awaiting_until_us: None,
        })
    }

    /// Jobs of earlier runs of control that have ended, the oldest first.
    pub fn remember(&mut self, jobs: Vec<JobInfo>) {
        for info in jobs {
            self.note_decision(&info);
            self.keep(info);
        }
    }

    /// The end of a step: gives out the nodes that became free in it, once, however many ranks have
    /// ended.
    pub fn settle(&mut self, now_us: u64, fabric: &mut dyn Fabric) {
        self.start_those_due(now_us, fabric);
        if self
            .awaiting_until_us
            .is_some_and(|until_us| until_us <= now_us)
        {
            // Who waits for nodes that were not heard is told so.
            self.awaiting_until_us = None;
            self.nodes_changed();
        }
        // A job whose launch fails at once makes another pass due; it does so a few times at most.
        while self.pass_at_us().is_some_and(|at_us| at_us <= now_us) {
            self.pass_due = Due::No;
            self.last_pass_us = now_us;
            self.passes += 1;
            self.pass(now_us, fabric);
        }
    }

    /// When a pass is due.
    fn pass_at_us(&self) -> Option<u64> {
        match self.pass_due {
            _ if self.stopping || self.held_up.is_some() => None,
            Due::No => None,
            _ if self.queue.queued_count() <= LONG_QUEUE => Some(0),
            Due::Soon => Some(self.last_pass_us.saturating_add(ARRIVALS_PERIOD_US)),
            Due::Now => Some(self.last_pass_us.saturating_add(ENDS_PERIOD_US)),
        }
    }

    /// Scheduling passes so far.
    pub fn passes(&self) -> u64 {
        self.passes
    }

    /// Through which streams wake the runner; see [`Runner::streams_changed`].
    pub fn wakeups(&self) -> Arc<Wakeups> {
        self.wakeups.clone()
    }

    /// Events since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// What is to be written down since the last call. Whoever takes it writes it, and then calls
    /// [`Runner::tell_ended`].
    pub fn take_records(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.records)
    }

    /// Ends of ranks whose jobs go on, since the last call, to be written down with the records.
    pub fn take_rank_ends(&mut self) -> Vec<RankRecord> {
        std::mem::take(&mut self.rank_ends)
    }

    /// Nodes that were drained or put back since the last call, to be written down as well.
    pub fn take_drains(&mut self) -> BTreeMap<u32, Option<Drained>> {
        std::mem::take(&mut self.drains)
    }

    /// Tells the clients of jobs that have ended: their ends are written down now.
    pub fn tell_ended(&mut self) {
        for Ended {
            sink,
            info,
            held_back,
        } in std::mem::take(&mut self.ended)
        {
            if held_back {
                self.mark_unwritten(info.id, false);
            }
            let job = Box::new(info);
            sink.close(Frame::End { job });
        }
    }

    /// Ends of jobs cannot be written down, for this reason: their clients are told so, and of the
    /// ends later.
    pub fn hold_back_ended(&mut self, why: &str) {
        let mut news = Vec::new();
        for ended in &mut self.ended {
            if std::mem::replace(&mut ended.held_back, true) {
                continue;
            }
            let id = ended.info.id;
            news.push(id);
            // In a file it would stay when it is true no more.
            if ended.sink.sum().is_none() {
                let text = format!(
                    "job {id} has ended, and you are told how when that is written down: {why}"
                );
                ended.sink.frame(Frame::Notice { text });
            }
        }
        for id in news {
            self.mark_unwritten(id, true);
        }
    }

    /// Who asks for a job that has ended is told whether that is written down.
    fn mark_unwritten(&mut self, id: u64, unwritten: bool) {
        let known = self.history.iter_mut().rev();
        for info in known.filter(|info| info.id == id) {
            info.unwritten = unwritten;
        }
    }

    /// Jobs that are not over, by number.
    pub fn jobs(&self) -> impl Iterator<Item = &JobInfo> {
        self.jobs.values().map(|job| &job.info)
    }

    /// Jobs that are not over, and with `all` the remembered ones, oldest first.
    pub fn list(&self, all: bool) -> Vec<JobInfo> {
        let history = self.history.iter().filter(|_| all);
        let mut list: Vec<JobInfo> = history
            .chain(self.jobs.values().map(|job| &job.info))
            .cloned()
            .collect();
        list.sort_by_key(|info| info.id);
        list
    }

    /// Jobs with numbers below `before`, the highest first: those that are not over, and with `all`
    /// the remembered ones.
    pub fn below(&mut self, before: u64, all: bool) -> impl Iterator<Item = &mut JobInfo> {
        let open = self.jobs.range_mut(..before).rev();
        let mut open = open.map(|(_, job)| &mut job.info).peekable();
        // They end in another order than that of their numbers.
        let ended = self.history.iter_mut();
        let ended = ended.filter(|job| all && job.id < before);
        let mut ended: Vec<&mut JobInfo> = ended.collect();
        ended.sort_unstable_by_key(|job| std::cmp::Reverse(job.id));
        let mut ended = ended.into_iter().peekable();
        std::iter::from_fn(move || match (open.peek(), ended.peek()) {
            (Some(one), Some(other)) if one.id < other.id => ended.next(),
            (Some(_), _) => open.next(),
            (None, _) => ended.next(),
        })
    }

    /// One job.
    ///
    /// # Errors
    /// [`JobError::Unknown`].
    pub fn get(&self, id: u64) -> Result<JobInfo, JobError> {
        let history = || self.history.iter().find(|info| info.id == id);
        let found = self.jobs.get(&id).map(|job| &job.info).or_else(history);
        found.cloned().ok_or(JobError::Unknown(id))
    }

    /// Seconds for which a client that has lost the control node may find its job again.
    pub fn look_for_s(&self) -> u64 {
        let limits = &self.limits;
        limits.without_control_s.max(limits.return_limit_s)
    }

    /// Whether a job is not over.
    pub fn is_open(&self, id: u64) -> bool {
        self.jobs.contains_key(&id)
    }

    /// The program of a job and the launch blocks of its nodes, to serve pages from.
    pub fn objects(&self, job: JobId) -> Option<(&Program, &[Arc<[u8]>])> {
        let job = self.jobs.get(&self.present(job)?)?;
        Some((&job.program, &job.launch_blocks))
    }

    /// Which of the nodes of a job this is, in the order of ranks.
    pub fn place_on(&self, job: JobId, node: NodeId) -> Option<usize> {
        let job = self.jobs.get(&self.present(job)?)?;
        job.nodes().iter().position(|(other, _)| *other == node)
    }

    /// The number of the job that nodes know so, if that is its present attempt.
    pub fn present(&self, job: JobId) -> Option<u64> {
        let id = attempt::number(job);
        (self.jobs.get(&id)?.on_nodes() == job).then_some(id)
    }

    /// Something of a job has failed that does not end it; its client is told at its end. Of one
    /// that is over it is written down.
    pub fn tell_trouble(&mut self, id: u64, why: &str) {
        let note = |info: &mut JobInfo| {
            let troubles = &mut info.troubles;
            if troubles.len() < TROUBLES_MAX && !troubles.iter().any(|told| told == why) {
                troubles.push(why.to_string());
            }
        };
        if let Some(job) = self.jobs.get_mut(&id) {
            note(&mut job.info);
        } else if let Some(info) = self.history.iter_mut().find(|info| info.id == id) {
            note(info);
            let record = Record::of_ended(info.clone());
            self.records.push(record);
        }
    }

    /// The numbers by which the site knows the user of a job that nodes have so; none where it does
    /// not know them.
    pub fn identity(&self, job: JobId) -> Option<&Identity> {
        self.jobs.get(&self.present(job)?)?.identity.as_ref()
    }

    /// Nodes that have a job with this program, or with any.
    pub fn nodes_with(&self, program: Option<&[u8; 32]>) -> BTreeSet<u32> {
        let with = |job: &&Job| program.is_none_or(|program| job.program.hash() == *program);
        let ranks = self.jobs.values().filter(with).flat_map(|job| &job.ranks);
        ranks
            .filter(|rank| rank.end.is_none())
            .map(|rank| rank.node.0)
            .collect()
    }

    /// The name that a program had in the last job with it, as far as jobs are remembered here.
    pub fn program_name(&self, program: &[u8; 32]) -> Option<&str> {
        let id = crate::secrets::encode_hex(program);
        let jobs = self.jobs.values().rev().map(|job| &job.info);
        let mut known = jobs.chain(self.history.iter().rev());
        let found = known.find(|info| info.program == id)?;
        Some(found.program_name())
    }

    /// The job of a node, if it has one.
    pub fn job_of(&self, node: u32) -> Option<u64> {
        self.nodes.job_of(node)
    }

    /// Whether `job` is what a node should have, as far as control knows.
    pub fn has(&self, node: u32, job: JobId) -> bool {
        self.nodes.has(node, job, self.present(job).is_some())
    }

    /// Whether there is such a node.
    pub fn knows(&self, node: u32) -> bool {
        self.nodes.knows(node)
    }

    /// Whether a node has not been heard since this run of control began, which was a moment ago.
    pub fn awaits(&self, node: u32) -> bool {
        self.awaiting_until_us.is_some() && self.nodes.is_unheard(node)
    }

    /// Why those of these nodes that are out of service are, and what brings them back; empty where
    /// all are in service.
    pub fn why_absent(&self, nodes: impl Iterator<Item = u32>) -> String {
        absent::told(&self.nodes, nodes, self.awaiting_until_us.is_some())
    }

    /// Makes a node known that has not joined.
    pub fn know_node(&mut self, node: u32) {
        self.nodes.know(node);
    }

    /// When [`Runner::tick`] must be called next, in microseconds of the control clock.
    pub fn next_deadline_us(&self) -> Option<u64> {
        let dues = [
            self.deadlines.next_us(),
            self.pass_at_us(),
            self.awaiting_until_us,
            self.stalled_until_us,
        ];
        dues.into_iter().flatten().min()
    }

    fn job_mut(&mut self, id: u64) -> Result<&mut Job, JobError> {
        if !self.jobs.contains_key(&id) {
            return Err(if (1..self.next_job).contains(&id) {
                JobError::Ended(id)
            } else {
                JobError::Unknown(id)
            });
        }
        Ok(self.jobs.get_mut(&id).expect("looked up above"))
    }

    /// The same, of somebody who may change it.
    fn own_mut(&mut self, by: &Principal, id: u64) -> Result<&mut Job, JobError> {
        let job = self.job_mut(id)?;
        by.access(id, &job.info.user)?;
        Ok(job)
    }

    /// Remembers a job that has ended, as one of the newest.
    fn keep(&mut self, info: JobInfo) {
        self.history_ranks += info.ranks.len();
        self.history.push_back(info);
        let is_over = |runner: &Self| {
            runner.history.len() > runner.limits.history_max.max(1)
                || runner.history_ranks > HISTORY_RANKS_MAX
        };
        while self.history.len() > 1 && is_over(self) {
            let gone = self.history.pop_front();
            self.history_ranks -= gone.map_or(0, |gone| gone.ranks.len());
        }
    }

    fn event(&mut self, severity: Severity, kind: &str, job: u64, text: String) {
        self.events.push(Event::new(severity, kind, text).job(job));
    }
}
