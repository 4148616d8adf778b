//! One job: what was asked for, where it runs, how each rank fares.
//!
//! Key types: [`Submission`], [`Job`], [`Cause`], [`Record`]. Neighbours: `jobs::lifecycle` moves
//! it through its states, `jobs::calls` serves its ranks.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use netstack::ids::{CallId, JobId, NodeId};

use super::allocator::Want;
use super::attempt;
use super::fabric::Call;
use super::retention::Wishes;
use super::streams::{Sink, Source};
use crate::api::types::{
    AfterJob, ArrayTask, Crash, EXIT_NODE_LOST, EXIT_TIME_LIMIT, JobInfo, JobState, RankEnd,
    RankReport,
};
use crate::casts::for_jobs::JobFile;
use crate::clock;
use crate::config::Load;
use crate::hostlist;
use crate::io_service::Mounts;
use crate::output_files::Wanted;
use crate::principal::Identity;
use crate::programs::Program;
use crate::signal;

/// A job as a client hands it in; the program has been checked.
#[derive(Debug)]
pub struct Submission {
    /// Name for tables.
    pub name: String,
    /// The program.
    pub program: Program,
    /// Arguments, the first being the program's name.
    pub args: Vec<Vec<u8>>,
    /// Environment as `K=V`.
    pub env: Vec<Vec<u8>>,
    /// Nodes wanted.
    pub want: Want,
    /// Reuse of retained pages.
    pub wishes: Wishes,
    /// How the program reaches nodes that do not hold it; none: as configured.
    pub load: Option<Load>,
    /// Files that it finds under `/with`.
    pub files: Vec<JobFile>,
    /// Wait for nodes that are not known yet.
    pub wait: bool,
    /// Time limit in seconds; `None`: the default, 0: none.
    pub time_limit_s: Option<u64>,
    /// Whether standard input will come.
    pub stdin: bool,
    /// How it stands in the queue, and what becomes of it without a client.
    pub terms: Terms,
}

/// How a job stands in the queue, and what becomes of it without a client.
#[derive(Debug, Clone, Default)]
pub struct Terms {
    /// Who submits it, as the control node knows them.
    pub user: String,
    /// Their numbers, where the site has some.
    pub identity: Option<Identity>,
    /// Where.
    pub directory: String,
    /// No client waits for it: it starts without one, and its output is kept.
    pub batch: bool,
    /// It is held from the beginning.
    pub hold: bool,
    /// Higher goes first.
    pub priority: i32,
    /// Jobs that must have ended before it starts.
    pub after: Vec<AfterJob>,
    /// How those of `after` have ended that [`super::Runner::get`] does not know any more.
    pub known_ends: BTreeMap<u64, JobState>,
    /// Queue it again when a node is lost under it or the control node ends.
    pub requeue: bool,
    /// Standard input of rank 0 of a batch job: a file in the program store.
    pub input: Option<Program>,
    /// Files that the output of a batch job goes to.
    pub output_files: Wanted,
    /// The array that a batch job is of.
    pub array: Option<ArrayTask>,
    /// What it sees of the control node's directories.
    pub mounts: Option<Mounts>,
}

/// What is written down of a job: when it is accepted, when it begins to run, when it has ended.
#[derive(Debug, Clone)]
pub struct Record {
    /// What clients see of it.
    pub info: JobInfo,
    /// Size of its program's file, in bytes; none where this run of control has not used it.
    pub program_bytes: Option<u64>,
    /// The node of each rank.
    pub nodes: Vec<u32>,
    /// The job as its nodes know it.
    pub on_nodes: JobId,
    /// That attempt is over.
    pub attempt_over: bool,
    /// What it was asked to be; only when it is accepted.
    pub spec: Option<String>,
}

impl Record {
    /// Of a job that is over.
    pub fn of_ended(info: JobInfo) -> Self {
        Self {
            program_bytes: None,
            nodes: Vec::new(),
            on_nodes: super::attempt::on_nodes(info.id, info.restarts),
            attempt_over: true,
            spec: None,
            info,
        }
    }
}

/// Why a job is being ended before its ranks end by themselves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// Somebody wanted it to.
    Cancelled(String),
    /// Nobody is there for it any more, or what it waits for cannot come.
    Abandoned(String),
    /// Its time is up.
    TimeLimit,
    /// A node was lost, and what the job did is not the reason.
    NodeLost(String),
    /// A node was lost without leave: it panicked, as it has said, or it fell silent or booted
    /// again, as it also does when what it says of a panic is lost.
    NodeCrashed {
        /// In words.
        reason: String,
        /// It has said that it panicked.
        panicked: bool,
    },
    /// A node could not launch it, and the program is not to blame.
    NodeFailed(String),
    /// A node says that the program cannot be run.
    BadProgram(String),
    /// It could not be launched for another reason.
    NotLaunched(String),
}

/// Attempts of a job that may end with the crash of a node before it is not queued again: what it
/// does may be the reason, and then it would go over all nodes.
const CRASHED_ATTEMPTS_MAX: usize = 1;
/// A crash for which no panic is known counts for so long: machines also fall silent by themselves,
/// though seldom twice under one job.
const CRASH_COUNTS_US: u64 = 600_000_000;
/// Most crashes that are written down for one job.
const CRASHES_MAX: usize = 64;
/// Refused calls that the line about a job that went well names.
const REFUSALS_TOLD: usize = 3;

/// The end of one rank, to be written down where its job goes on.
#[derive(Debug, Clone)]
pub struct RankRecord {
    /// The job.
    pub job: u64,
    /// Its attempt.
    pub attempt: u32,
    /// The rank's report.
    pub report: RankReport,
}

/// One rank of a job that has nodes.
#[derive(Debug)]
pub struct Rank {
    /// Where it runs.
    pub node: NodeId,
    /// Its node is ready to start, or has started.
    pub ready: bool,
    /// An earlier run of control launched it, and its node has not said yet that it has it.
    pub awaited: bool,
    /// When its node said that the program runs, in microseconds of the control clock.
    pub started_us: Option<u64>,
    /// When its last call arrived, on the same clock.
    pub exited_us: Option<u64>,
    /// How it ended.
    pub end: Option<RankEnd>,
    /// Calls not answered yet, oldest first; the protocol's window bounds them.
    pub calls: VecDeque<(CallId, Call)>,
    /// The fault report as far as it came.
    pub fault: Vec<u8>,
    /// Bytes of its core file that have come.
    pub core_bytes: u64,
}

/// A job that is not over.
#[derive(Debug)]
pub struct Job {
    /// What clients see of it.
    pub info: JobInfo,
    /// Nodes wanted.
    pub want: Want,
    /// Reuse of retained pages.
    pub wishes: Wishes,
    /// It waits for nodes that are not in service, for as long as it takes.
    pub wait: bool,
    /// The program; holding it keeps it in the store.
    pub program: Program,
    /// Arguments.
    pub args: Vec<Vec<u8>>,
    /// Environment.
    pub env: Vec<Vec<u8>>,
    /// The numbers of its user, as whom files are read and written for it; none where the site does
    /// not know any.
    pub identity: Option<Identity>,
    /// How the program reaches nodes that do not hold it.
    pub load: Load,
    /// Files that it finds under `/with`.
    pub files: Vec<JobFile>,
    /// What it sees of the control node's directories.
    pub mounts: Option<Mounts>,
    /// It has nodes and waits for its files to be there.
    pub bringing: bool,
    /// It starts when its program is on all its nodes.
    pub awaits_program: bool,
    /// Ranks; empty before allocation.
    pub ranks: Vec<Rank>,
    /// Which ranks are on which node.
    pub places: BTreeMap<NodeId, Range<usize>>,
    /// Ranks whose nodes are not ready to start.
    pub loading: usize,
    /// Ranks that have not ended.
    pub alive: usize,
    /// Launch block of each node, in the order of ranks; empty before allocation.
    pub launch_blocks: Vec<Arc<[u8]>>,
    /// Its ranks begin as soon as they can, each by itself.
    pub at_once: bool,
    /// When its launch was handed to the endpoint, in microseconds of the control clock.
    pub launched_us: Option<u64>,
    /// Output.
    pub sink: Sink,
    /// Standard input.
    pub source: Source,
    /// The file with it, for a batch job.
    pub input: Option<Program>,
    /// Files that its output goes to, for a batch job.
    pub output_files: Wanted,
    /// An earlier run of control launched the present attempt.
    pub adopted: bool,
    /// It is known how much standard input that attempt has read.
    pub input_known: bool,
    /// After a restart of control: from where on its client is to send standard input, until it has
    /// been told.
    pub input_from: Option<u64>,
    /// After a restart of control: the last call of ranks whose output its client has.
    pub received: BTreeMap<u32, u64>,
    /// It is of an earlier run of control, and nobody has read its files since (`unread`).
    pub unread: bool,
    /// Whether a client has taken the reading end of the output, or none will.
    pub attached: bool,
    /// Whether a client has taken the writing end of the input.
    pub stdin_taken: bool,
    /// Why it is being ended.
    pub cause: Option<Cause>,
    /// When its first rank began to run, on the same clock.
    pub started_us: Option<u64>,
    /// How long it had run when this run of control began, in microseconds.
    pub ran_before_us: u64,
    /// Output of a cancelled job that nobody reads is not waited for any more.
    pub discard_output: bool,
}

impl Job {
    /// The job as its nodes know it.
    pub fn on_nodes(&self) -> JobId {
        attempt::on_nodes(self.info.id, self.info.restarts)
    }

    /// Whether the queue may give it nodes: nobody holds it, its client is there and its files are
    /// read.
    pub fn may_start(&self) -> bool {
        self.attached && !self.info.held && !self.unread
    }

    /// Whether some rank may have run.
    pub fn may_have_run(&self) -> bool {
        let by_itself = self.at_once && self.launched_us.is_some();
        self.started_us.is_some() || by_itself || self.adopted
    }

    /// Whether it runs again instead of ending, if it may once more: a node or the control node was
    /// the end of it, and it wants that or has not begun.
    pub fn goes_again(&self) -> bool {
        let is_theirs = match self.cause {
            Some(Cause::NodeLost(_) | Cause::NodeFailed(_)) => true,
            Some(Cause::NodeCrashed { .. }) => !self.crashes_too_often(),
            _ => false,
        };
        is_theirs && (self.info.requeue || (self.info.batch && !self.may_have_run()))
    }

    /// Notes that a node has crashed under the present attempt.
    pub fn note_crash(&mut self, node: NodeId, at_unix_us: u64, panicked: bool) {
        if self.info.crashes.len() < CRASHES_MAX {
            self.info.crashes.push(Crash {
                node: node.0,
                restart: self.info.restarts,
                at_unix_us,
                panicked,
                rebooted: false,
            });
        }
    }

    /// A node that fell silent is heard again in the same boot, so it has not crashed. Says whether
    /// that is news.
    pub fn note_heard_again(&mut self, node: u32) -> bool {
        let before = self.info.crashes.len();
        let crashes = &mut self.info.crashes;
        crashes.retain(|crash| crash.node != node || crash.panicked || crash.rebooted);
        crashes.len() < before
    }

    /// A node is heard in another boot, so it has crashed if it fell silent. Says whether that is
    /// news.
    pub fn note_booted(&mut self, node: u32) -> bool {
        let crashes = self.info.crashes.iter_mut();
        let news = crashes.filter(|crash| crash.node == node && !crash.rebooted);
        news.map(|crash| crash.rebooted = true).count() > 0
    }

    /// Whether nodes have crashed under as many attempts, with the present one, that it is not
    /// tried again.
    fn crashes_too_often(&self) -> bool {
        let crashes = &self.info.crashes;
        let newest = crashes.iter().map(|crash| crash.at_unix_us).max();
        let since = newest.unwrap_or(0).saturating_sub(CRASH_COUNTS_US);
        let counted = crashes
            .iter()
            .filter(|crash| crash.panicked || crash.at_unix_us >= since);
        let attempts: BTreeSet<u32> = counted.map(|crash| crash.restart).collect();
        attempts.len() > CRASHED_ATTEMPTS_MAX
    }

    /// That it waits for other nodes than those, behind what it waits for; empty where it takes
    /// any.
    pub fn avoids(&self) -> String {
        let avoided: Vec<u32> = self.avoided().into_iter().collect();
        match avoided.is_empty() || self.want.names_nodes() {
            true => String::new(),
            false => format!(
                "; it does not go where a node crashed under it ({}) while there are others",
                hostlist::format(&avoided)
            ),
        }
    }

    /// Nodes on which it is not started while there are others.
    pub fn avoided(&self) -> BTreeSet<u32> {
        let crashes = self.info.crashes.iter();
        crashes.map(|crash| crash.node).collect()
    }

    /// Takes everything away that the attempt which is over has brought.
    pub fn begin_again(&mut self) {
        self.info.state = JobState::Pending;
        self.info.nodes = String::new();
        self.info.started_unix_us = None;
        self.info.at_once = false;
        self.info.ends_as = None;
        self.info.load = None;
        self.info.placement = None;
        self.info.ranks = Vec::new();
        self.info.restarts += 1;
        self.ranks = Vec::new();
        self.places = BTreeMap::new();
        (self.loading, self.alive) = (0, 0);
        self.launch_blocks = Vec::new();
        (self.bringing, self.awaits_program, self.at_once) = (false, false, false);
        (self.launched_us, self.started_us) = (None, None);
        self.ran_before_us = 0;
        self.info.runs_again = false;
        (self.adopted, self.input_known, self.input_from) = (false, false, None);
        self.received = BTreeMap::new();
        self.cause = None;
        self.discard_output = false;
    }

    /// Gives the job its nodes, that of each rank.
    pub fn place(&mut self, nodes: &[u32]) {
        let rank = |node: &u32| Rank {
            node: NodeId(*node),
            ready: false,
            awaited: false,
            started_us: None,
            exited_us: None,
            end: None,
            calls: VecDeque::new(),
            fault: Vec::new(),
            core_bytes: 0,
        };
        self.ranks = nodes.iter().map(rank).collect();
        self.places = BTreeMap::new();
        for (rank, node) in nodes.iter().enumerate() {
            let place = self.places.entry(NodeId(*node)).or_insert(rank..rank);
            place.end = rank + 1;
        }
        self.loading = nodes.len();
        self.alive = nodes.len();
        self.info.ranks = (0..)
            .zip(nodes)
            .map(|(rank, node)| RankReport::new(rank, *node))
            .collect();
    }

    /// What is to be written down of it now; the reports of its ranks once it has ended.
    pub fn record(&mut self) -> Record {
        let mut info = self.info.without_ranks();
        if info.state.is_final() {
            info.ranks.clone_from(&self.info.ranks);
        }
        Record {
            attempt_over: info.state.is_final(),
            info,
            program_bytes: Some(self.program.bytes()),
            nodes: self.ranks.iter().map(|rank| rank.node.0).collect(),
            on_nodes: self.on_nodes(),
            spec: None,
        }
    }

    /// Whether the node of some rank has not come back since control was started again.
    pub fn is_awaited(&self) -> bool {
        self.ranks
            .iter()
            .any(|rank| rank.awaited && rank.end.is_none())
    }

    /// How long it has run, in microseconds.
    pub fn ran_us(&self, now_us: u64) -> Option<u64> {
        let started_us = self.started_us?;
        Some(self.ran_before_us + now_us.saturating_sub(started_us))
    }

    /// The ranks on `node`; none where it is not one of the job's.
    pub fn ranks_on(&self, node: NodeId) -> Range<usize> {
        self.places.get(&node).cloned().unwrap_or_default()
    }

    /// Its nodes in the order of ranks, each with how many it has.
    pub fn nodes(&self) -> Vec<(NodeId, u16)> {
        let mut nodes: Vec<(NodeId, u16)> = Vec::new();
        for rank in &self.ranks {
            match nodes.last_mut() {
                Some((node, ranks)) if *node == rank.node => *ranks += 1,
                _ => nodes.push((rank.node, 1)),
            }
        }
        nodes
    }

    /// The numbers of its nodes, in the order of ranks.
    pub fn node_numbers(&self) -> Vec<u32> {
        self.nodes().iter().map(|(node, _)| node.0).collect()
    }

    /// Notes that a rank's node is ready to start.
    pub fn set_ready(&mut self, rank: usize) {
        if !std::mem::replace(&mut self.ranks[rank].ready, true) {
            self.loading -= 1;
        }
    }

    /// Milliseconds from the hand-over of the launch to `at_us`.
    pub fn since_launch_ms(&self, at_us: u64) -> Option<f64> {
        let launched = self.launched_us?;
        Some(at_us.saturating_sub(launched) as f64 / 1e3)
    }

    /// Notes how a rank ended; says whether that is news.
    pub fn set_end(&mut self, rank: usize, end: RankEnd) -> bool {
        if self.ranks[rank].end.is_some() {
            return false;
        }
        self.ranks[rank].end = Some(end);
        self.info.ranks[rank].end = Some(end);
        self.alive -= 1;
        true
    }

    /// Whether the job has no rank that could still end.
    pub fn is_over(&self) -> bool {
        self.alive == 0
    }

    /// State, reason and exit status of the job now that it ends.
    pub fn verdict(&self) -> (JobState, String, Option<i32>) {
        let statuses = self.ranks.iter().filter_map(|rank| rank.end?.status());
        // Ranks that were ended before the job began have no status of their own; and a job that
        // did not begin on all its nodes has none, whatever some of its ranks have done.
        let exit_status = match self.cause {
            Some(Cause::BadProgram(_) | Cause::NotLaunched(_) | Cause::NodeFailed(_)) => None,
            Some(Cause::TimeLimit) => Some(EXIT_TIME_LIMIT.into()),
            Some(Cause::NodeCrashed { .. }) if self.crashes_too_often() => None,
            Some(Cause::NodeLost(_) | Cause::NodeCrashed { .. }) => Some(EXIT_NODE_LOST.into()),
            _ => self.started_us.and(statuses.max()),
        };
        let (state, reason) = match &self.cause {
            Some(Cause::Cancelled(reason) | Cause::Abandoned(reason)) => {
                (JobState::Cancelled, reason.clone())
            }
            Some(Cause::TimeLimit) => {
                let limit = self.info.time_limit_s.unwrap_or(0);
                let limit = clock::in_words(limit);
                (
                    JobState::TimeLimit,
                    format!("time limit of {limit} reached"),
                )
            }
            Some(Cause::NodeCrashed { reason, .. }) if self.crashes_too_often() => {
                let before = self.info.crashes.iter();
                let before = before.filter(|crash| crash.restart < self.info.restarts);
                let before: BTreeSet<u32> = before.map(|crash| crash.node).collect();
                let before: Vec<u32> = before.into_iter().collect();
                let reason = format!(
                    "{reason}, as was {} under it before; a job is queued again once at most for that, since what it does may be the reason",
                    hostlist::format(&before)
                );
                (JobState::Failed, reason)
            }
            Some(Cause::NodeLost(reason) | Cause::NodeCrashed { reason, .. }) => {
                (JobState::NodeLost, reason.clone())
            }
            Some(
                Cause::BadProgram(reason) | Cause::NotLaunched(reason) | Cause::NodeFailed(reason),
            ) => (JobState::Failed, reason.clone()),
            None => self.own_end(),
        };
        (state, reason, exit_status)
    }

    /// How the job ended by itself.
    fn own_end(&self) -> (JobState, String) {
        let worst = self.ranks.iter().enumerate().max_by_key(|(index, rank)| {
            let status = rank.end.and_then(RankEnd::status).unwrap_or(256);
            (status, std::cmp::Reverse(*index))
        });
        match worst {
            Some((index, rank)) if rank.end != Some(RankEnd::Exited(0)) => {
                let end = rank
                    .end
                    .map_or_else(|| "did not end".to_string(), describe_end);
                let report = self.info.ranks.get(index);
                let missing = report.and_then(missing_call);
                let missing = missing.map_or_else(String::new, |missing| format!("; {missing}"));
                (
                    JobState::Failed,
                    format!("rank {index} on {} {end}{missing}", rank.node),
                )
            }
            _ => (JobState::Completed, String::new()),
        }
    }
}

/// `fork: a node runs one process: ...`: what a rank asked of its node in vain, where that may be
/// why it failed. Calls with words of their own go first, then the last one.
fn missing_call(report: &RankReport) -> Option<String> {
    let calls = report.unknown_calls.iter().enumerate();
    let missing = calls.filter_map(|(index, call)| {
        let why = hearth_abi::missing::why(call.number.into())?;
        Some((why != hearth_abi::missing::OTHER, index, call, why))
    });
    let (.., call, why) = missing.max_by_key(|(has_words, index, ..)| (*has_words, *index))?;
    Some(format!("{}: {why}", call.name()))
}

/// The same of all ranks of a job, once for each lack that has words of its own: what a program
/// that exited with 0 may have ignored. In one line, which names the first [`REFUSALS_TOLD`].
pub fn refused_calls(ranks: &[RankReport]) -> Option<String> {
    let mut lacks: Vec<&'static str> = Vec::new();
    let mut told = Vec::new();
    for call in ranks.iter().flat_map(|rank| &rank.unknown_calls) {
        let Some(why) = hearth_abi::missing::why(call.number.into()) else {
            continue;
        };
        if why != hearth_abi::missing::OTHER && !lacks.contains(&why) {
            lacks.push(why);
            told.push(format!("{} ({why})", call.name()));
        }
    }
    let more = told.len().saturating_sub(REFUSALS_TOLD);
    told.truncate(REFUSALS_TOLD);
    if more > 0 {
        told.push(format!("{more} more: see `hearth run --report`"));
    }
    (!told.is_empty()).then(|| told.join(", "))
}

/// The first line of a fault's report: what happened and where. Registers and regions follow.
pub fn first_line(fault: &str) -> &str {
    fault.lines().next().unwrap_or_default()
}

/// `was ended by SIGSEGV (signal 11)`.
pub fn describe_end(end: RankEnd) -> String {
    match end {
        RankEnd::Exited(status) => format!("exited with status {status}"),
        RankEnd::Signal(number) => format!("was ended by {}", signal::text(number)),
        RankEnd::Failed => "could not go on".to_string(),
        RankEnd::NodeLost => "was lost with its node".to_string(),
        RankEnd::NotStarted => "did not start".to_string(),
    }
}

/// `0`, `SIGSEGV`, `node-lost`: for a column.
pub fn short_end(end: RankEnd) -> String {
    match end {
        RankEnd::Exited(status) => status.to_string(),
        RankEnd::Signal(number) => {
            signal::name(number).map_or_else(|| format!("signal-{number}"), str::to_string)
        }
        RankEnd::Failed => "failed".to_string(),
        RankEnd::NodeLost => "node-lost".to_string(),
        RankEnd::NotStarted => "not-started".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::types::UnknownCall;

    #[test]
    fn a_failed_rank_names_what_its_node_lacks() {
        let missing = |numbers: &[u32]| {
            let call = |number: &u32| UnknownCall {
                number: *number,
                count: 1,
            };
            missing_call(&RankReport {
                unknown_calls: numbers.iter().map(call).collect(),
                ..RankReport::new(0, 0)
            })
        };
        // As C libraries begin and make threads: rseq, clone3.
        assert_eq!(missing(&[334, 435]), None);
        let fork = "fork: a node runs one process: a program cannot start another".to_string();
        // Then a call without words of its own.
        assert_eq!(missing(&[334, 435, 57, 291]), Some(fork));
        let other = missing(&[334, 291]).unwrap();
        assert!(other.starts_with("epoll_create1: "), "{other}");
        assert!(missing(&[41]).unwrap().contains("sockets"));
    }

    #[test]
    fn a_job_that_went_well_names_each_lack_once() {
        let rank = |number: u32, calls: &[u32]| {
            let call = |number: &u32| UnknownCall {
                number: *number,
                count: 9,
            };
            RankReport {
                unknown_calls: calls.iter().map(call).collect(),
                ..RankReport::new(number, number)
            }
        };
        // What every C program calls, and a call without words of its own, is nothing to tell.
        assert_eq!(refused_calls(&[rank(0, &[334, 435, 291])]), None);
        let refused = refused_calls(&[rank(0, &[257, 2]), rank(1, &[257, 435, 57])]).unwrap();
        assert!(
            refused.starts_with("openat (the job has no service for its files"),
            "{refused}"
        );
        assert!(
            refused.ends_with("fork (a node runs one process: a program cannot start another)"),
            "{refused}"
        );
        assert_eq!(refused.matches("its files").count(), 1);
        let many = refused_calls(&[rank(0, &[257, 57, 59, 41, 61])]).unwrap();
        assert!(
            many.ends_with("2 more: see `hearth run --report`"),
            "{many}"
        );
    }
}
