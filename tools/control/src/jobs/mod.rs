//! The job runner: queue, allocation, launch, streams, end. A state machine without sockets or
//! clock, driven by the task in `control`.
//!
//! Key types: [`Runner`]; [`fabric::Fabric`] (the nodes), [`allocator::Allocator`] (placement),
//! [`streams`] (output and input of jobs), [`record::Job`]. Neighbours: `control` feeds it what
//! nodes and clients do; `api` shows its jobs.
//!
//! A job waits until a client has attached to its output, gets nodes, is launched on them, starts
//! when all are ready (or each rank when it is, see [`retention`]; `loading` has its files and program
//! cast before and beside that), and ends when all ranks have
//! ended or their nodes are lost. While a client
//! reads slower than the program writes, calls stay unanswered and so the program waits.
//!
//! Invariants: a node has at most one job; a job's nodes become free rank by rank, each when its
//! rank has ended and never before; every job that was accepted ends, since every state before
//! `running` has a deadline, running ends with its client, and ending has a deadline; a client
//! hears of its job's end after that is written down ([`Runner::take_records`],
//! [`Runner::tell_ended`]).

pub mod allocator;
mod calls;
pub mod fabric;
mod launch_block;
mod lifecycle;
mod loading;
pub mod record;
pub mod retention;
pub mod streams;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use netstack::ids::{JobId, NodeId};

use crate::api::types::{Frame, JobInfo, JobState};
use crate::clock;
use crate::config;
use crate::events::{Event, Severity};
use crate::hostlist;
use crate::programs::Program;
use allocator::{Allocator, Candidate};
use fabric::Fabric;
use record::{Cause, Job, Record, Submission};
use streams::{Sink, SinkReader, Source, SourceWriter, Wakeups};

/// Seconds a client has to read a job's output after submitting it.
const ATTACH_LIMIT_S: u64 = 30;

/// Jobs that are not over: as many as the protocol endpoint takes. Each has two connections and
/// buffers of up to half a megabyte.
pub const JOBS_MAX: usize = 4_096;

/// What the runner knows of a node.
#[derive(Debug, Clone, Copy, Default)]
struct NodeUse {
    up: bool,
    job: Option<u64>,
}

/// Why a job was not accepted.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SubmitError {
    /// The queue is at its bound.
    #[error("the queue is full ({0} jobs); try again when some have ended")]
    QueueFull(usize),
    /// More ranks than there are nodes.
    #[error(
        "{wanted} nodes wanted, but the cluster has {known}; use a smaller -n, or --wait to wait for nodes that have not joined yet"
    )]
    TooMany {
        /// Ranks asked for.
        wanted: usize,
        /// Nodes known.
        known: usize,
    },
    /// Nodes that do not exist.
    #[error(
        "unknown nodes: {0}; `hearth nodes` lists the nodes, --wait waits for ones that have not joined yet"
    )]
    UnknownNodes(String),
    /// `-n` and `--nodes` contradict each other.
    #[error("{ranks} ranks on {nodes} nodes: one rank a node, so name as many nodes as ranks")]
    Mismatch {
        /// Ranks asked for.
        ranks: usize,
        /// Nodes named.
        nodes: usize,
    },
    /// Zero ranks.
    #[error("a job needs at least one rank; use -n 1 or more")]
    NoRanks,
    /// Arguments and environment exceed the launch block.
    #[error(
        "arguments and environment are too large: {bytes} bytes in {strings} strings, at most {} bytes in {} strings each; pass large data in a file or on standard input",
        netstack::job::launch_block::MAX,
        netstack::job::launch_block::MAX_STRINGS
    )]
    TooLarge {
        /// Size wanted.
        bytes: usize,
        /// Strings wanted.
        strings: usize,
    },
    /// A zero byte in an argument or variable.
    #[error("arguments and environment cannot contain zero bytes")]
    ZeroByte,
    /// A variable that is not `K=V`.
    #[error("{0:?} is not a variable; write --env NAME=VALUE")]
    NotAVariable(String),
    /// Files that cannot be under `/with`.
    #[error(
        "at most {} files can be given with --with, each with a name of its own",
        netstack::job::launch_block::FILES_MAX
    )]
    BadFiles,
    /// Only warm nodes wanted, but nothing is ever kept.
    #[error(
        "no node keeps programs, so --warm-only cannot succeed: retention.mode is \"off\" in the control node's configuration"
    )]
    NothingKept,
}

/// Why a client's request about a job was refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum JobError {
    /// Never heard of it.
    #[error("there is no job {0}; `hearth jobs --all` lists the jobs")]
    Unknown(u64),
    /// It is over.
    #[error("job {0} has ended already")]
    Ended(u64),
    /// Somebody else reads or writes that stream.
    #[error("another client has that stream of job {0}")]
    Taken(u64),
}

/// The queue and all jobs.
pub struct Runner {
    limits: config::Jobs,
    retention: config::Retention,
    broadcast: config::Broadcast,
    allocator: Box<dyn Allocator>,
    /// Ranks have ended since nodes were given out last.
    schedule_due: bool,
    wakeups: Arc<Wakeups>,
    jobs: BTreeMap<u64, Job>,
    history: VecDeque<JobInfo>,
    nodes: BTreeMap<u32, NodeUse>,
    next_job: u64,
    events: Vec<Event>,
    /// To be written down.
    records: Vec<Record>,
    /// Jobs that have ended, whose clients are told once that is written down.
    ended: Vec<(Sink, JobInfo)>,
}

impl Runner {
    /// A runner without jobs, which numbers them from `next_job` on.
    pub fn new(limits: config::Jobs, allocator: Box<dyn Allocator>, next_job: u64) -> Self {
        Runner {
            limits,
            retention: config::defaults().retention,
            broadcast: config::defaults().broadcast,
            allocator,
            schedule_due: false,
            wakeups: Arc::default(),
            jobs: BTreeMap::new(),
            history: VecDeque::new(),
            nodes: BTreeMap::new(),
            next_job,
            events: Vec::new(),
            records: Vec::new(),
            ended: Vec::new(),
        }
    }

    /// Jobs of earlier runs of control, the oldest first.
    pub fn remember(&mut self, jobs: Vec<JobInfo>) {
        for info in jobs {
            self.keep(info);
        }
    }

    /// With another policy of keeping programs than the default.
    #[must_use]
    pub fn retaining(mut self, retention: config::Retention) -> Self {
        self.retention = retention;
        self
    }

    /// With another way of loading programs than the default.
    #[must_use]
    pub fn loading(mut self, broadcast: config::Broadcast) -> Self {
        self.broadcast = broadcast;
        self
    }

    /// Gives out the nodes that became free in this step: once, however many ranks have ended.
    pub fn settle(&mut self, now_us: u64, fabric: &mut dyn Fabric) {
        if self.schedule_due {
            self.schedule(now_us, fabric);
        }
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

    /// Tells the clients of jobs that have ended: their ends are written down now.
    pub fn tell_ended(&mut self) {
        for (sink, info) in self.ended.drain(..) {
            let job = Box::new(info);
            sink.close(Frame::End { job });
        }
    }

    /// Accepts a job.
    ///
    /// # Errors
    /// [`SubmitError`].
    pub fn submit(&mut self, now_us: u64, submission: Submission) -> Result<u64, SubmitError> {
        let waiting = self
            .jobs
            .values()
            .filter(|job| job.info.state == JobState::Pending)
            .count();
        if waiting >= self.limits.queue_max || self.jobs.len() >= JOBS_MAX {
            return Err(SubmitError::QueueFull(waiting));
        }
        self.check_want(&submission)?;
        let id = self.next_job;
        self.next_job += 1;
        let time_limit_s = submission.time_limit_s.unwrap_or(self.limits.time_limit_s);
        let info = JobInfo {
            id,
            name: submission.name,
            program: crate::secrets::encode_hex(&submission.program.hash()),
            state: JobState::Pending,
            reason: "waits for its client".to_string(),
            ranks_total: submission.want.ranks,
            nodes: String::new(),
            submitted_unix_us: clock::unix_us(),
            time_limit_s: (time_limit_s > 0).then_some(time_limit_s),
            reuse: submission.wishes.reuse,
            with: submission
                .files
                .iter()
                .map(|file| file.name.clone())
                .collect(),
            ..JobInfo::default()
        };
        let mut job = Job {
            info,
            want: submission.want,
            wishes: submission.wishes,
            wait: submission.wait,
            program: submission.program,
            args: submission.args,
            env: submission.env,
            load: submission.load.unwrap_or(self.broadcast.load),
            files: submission.files,
            bringing: false,
            awaits_program: false,
            ranks: Vec::new(),
            places: BTreeMap::new(),
            loading: 0,
            alive: 0,
            launch_blocks: Vec::new(),
            at_once: false,
            launched_us: None,
            sink: Sink::new(id, self.limits.output_buffer_bytes, self.wakeups.clone()),
            source: Source::new(id, submission.stdin, self.wakeups.clone()),
            attached: false,
            stdin_taken: !submission.stdin,
            cause: None,
            deadline_us: Some(now_us + ATTACH_LIMIT_S * 1_000_000),
            started_us: None,
            discard_output: false,
        };
        self.records.push(job.record());
        self.jobs.insert(id, job);
        Ok(id)
    }

    fn check_want(&self, submission: &Submission) -> Result<(), SubmitError> {
        let want = &submission.want;
        if want.ranks == 0 {
            return Err(SubmitError::NoRanks);
        }
        let known = self.nodes.len();
        if let Some(named) = &want.nodes {
            if named.len() != want.ranks as usize {
                return Err(SubmitError::Mismatch {
                    ranks: want.ranks as usize,
                    nodes: named.len(),
                });
            }
            let mut unknown: Vec<u32> = named
                .iter()
                .copied()
                .filter(|node| !self.nodes.contains_key(node))
                .collect();
            unknown.sort_unstable();
            if !unknown.is_empty() && !submission.wait {
                return Err(SubmitError::UnknownNodes(hostlist::format(&unknown)));
            }
        } else if want.ranks as usize > known && !submission.wait {
            return Err(SubmitError::TooMany {
                wanted: want.ranks as usize,
                known,
            });
        }
        if want.warm_only && self.retention.mode == config::RetentionMode::Off {
            return Err(SubmitError::NothingKept);
        }
        launch_block::check(submission)
    }

    /// Gives out the reading end of a job's output; the job may get nodes from now on.
    ///
    /// # Errors
    /// [`JobError`].
    pub fn attach(
        &mut self,
        now_us: u64,
        fabric: &mut dyn Fabric,
        id: u64,
    ) -> Result<SinkReader, JobError> {
        let job = self.job_mut(id)?;
        if job.attached {
            return Err(JobError::Taken(id));
        }
        job.attached = true;
        job.deadline_us = None;
        let reader = job.sink.reader();
        self.schedule(now_us, fabric);
        Ok(reader)
    }

    /// Gives out the writing end of a job's standard input.
    ///
    /// # Errors
    /// [`JobError`].
    pub fn stdin(&mut self, id: u64) -> Result<SourceWriter, JobError> {
        let job = self.job_mut(id)?;
        if job.stdin_taken {
            return Err(JobError::Taken(id));
        }
        job.stdin_taken = true;
        Ok(job.source.writer())
    }

    /// Ends a job with `signal`, for `reason`.
    ///
    /// # Errors
    /// [`JobError`].
    pub fn cancel(
        &mut self,
        now_us: u64,
        fabric: &mut dyn Fabric,
        id: u64,
        signal: i32,
        reason: &str,
    ) -> Result<(), JobError> {
        self.job_mut(id)?;
        self.end_early(
            now_us,
            fabric,
            id,
            signal,
            Cause::Cancelled(reason.to_string()),
        );
        self.schedule(now_us, fabric);
        Ok(())
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

    /// One job.
    ///
    /// # Errors
    /// [`JobError::Unknown`].
    pub fn get(&self, id: u64) -> Result<JobInfo, JobError> {
        let history = || self.history.iter().find(|info| info.id == id);
        let found = self.jobs.get(&id).map(|job| &job.info).or_else(history);
        found.cloned().ok_or(JobError::Unknown(id))
    }

    /// The program of a job and its launch blocks, to serve pages from.
    pub fn objects(&self, id: u64) -> Option<(&Program, &[Arc<[u8]>])> {
        let job = self.jobs.get(&id)?;
        Some((&job.program, &job.launch_blocks))
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
        Some(&found.name)
    }

    /// The rank of `job` on `node`.
    pub fn rank_of(&self, job: u64, node: NodeId) -> Option<usize> {
        self.jobs.get(&job)?.rank_on(node)
    }

    /// The job of a node, if it has one.
    pub fn job_of(&self, node: u32) -> Option<u64> {
        self.nodes.get(&node)?.job
    }

    /// Whether there is such a node.
    pub fn knows(&self, node: u32) -> bool {
        self.nodes.contains_key(&node)
    }

    /// Makes a node known that has not joined.
    pub fn know_node(&mut self, node: u32) {
        self.nodes.entry(node).or_default();
    }

    /// When [`Runner::tick`] must be called next, in microseconds of the control clock.
    pub fn next_deadline_us(&self) -> Option<u64> {
        self.jobs.values().filter_map(|job| job.deadline_us).min()
    }

    fn candidates(&self) -> BTreeMap<u32, Candidate> {
        let state = |used: &NodeUse| match (used.up, used.job) {
            (false, _) => Candidate::Absent,
            (true, None) => Candidate::Free,
            (true, Some(_)) => Candidate::Busy,
        };
        self.nodes
            .iter()
            .map(|(node, used)| (*node, state(used)))
            .collect()
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

    /// Remembers a job that has ended, as one of the newest.
    fn keep(&mut self, info: JobInfo) {
        if self.history.len() >= self.limits.history_max.max(1) {
            self.history.pop_front();
        }
        self.history.push_back(info);
    }

    fn event(&mut self, severity: Severity, kind: &str, job: u64, text: String) {
        self.events.push(Event::new(severity, kind, text).job(job));
    }
}

fn job_id(id: u64) -> JobId {
    JobId(id)
}
