//! Why a job, or a request about one, was refused.
//!
//! Key types: [`SubmitError`], [`JobError`]. Neighbours: `submit` and `queueing` refuse, `api`
//! passes the texts on.
//!
//! Invariant: a text says what to do next.

use crate::api::types::JobState;
use crate::output::count;
use crate::principal::Denied;

/// A number in a sentence.
fn none_or(number: usize) -> String {
    match number {
        0 => "none".to_string(),
        number => number.to_string(),
    }
}

/// Why a job was not accepted.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SubmitError {
    /// Whoever hands it in may not.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// The queue is at its bound.
    #[error("the queue is full ({}); try again when some have ended", count(*.0, "job"))]
    QueueFull(usize),
    /// What jobs that wait are given is at its bound.
    #[error(
        "the arguments and environments of jobs that wait take {0} bytes; try again when some have started"
    )]
    QueueBytes(usize),
    /// The user has as many jobs waiting as allowed.
    #[error(
        "{user} has {} waiting, which is the limit (queue.user_queued_max); try again when some have started",
        count(*most, "job")
    )]
    UserQueue {
        /// The user.
        user: String,
        /// The limit.
        most: usize,
    },
    /// The control node is about to end.
    #[error("the control node is being stopped; try again when it is back")]
    Stopping,
    /// What control does cannot be written down.
    #[error(
        "the job was not taken, since the control node cannot write it down: {0}; mend that (`hearth events` says when it works again), then submit it again"
    )]
    NotStored(String),
    /// A name that is too long or has control characters.
    #[error("the name of a job has 1 to {max} bytes and no control characters; give one with --name", max = super::submit::NAME_MAX)]
    BadName,
    /// A time limit of more than a century.
    #[error("a time limit is at most {most} s; 0 is none", most = super::submit::TIME_LIMIT_MOST_S)]
    TimeLimit,
    /// No user, or an odd one.
    #[error("{0:?} is not the name of a user; use 1 to 32 letters, digits, and - _ . @")]
    BadUser(String),
    /// More nodes than the user may have.
    #[error(
        "{} wanted, but a user may have {most} at a time (queue.user_nodes_max); use a smaller -n",
        count(*wanted, "node")
    )]
    UserNodes {
        /// Ranks asked for.
        wanted: usize,
        /// The limit.
        most: usize,
    },
    /// A dependency on a job that there never was, or that is forgotten.
    #[error("there is no job {0} to wait for; `hearth history` lists the jobs that have ended")]
    UnknownDependency(u64),
    /// A job that had to end well did not.
    #[error(
        "job {job} has ended ({state}), and this one is to run only if it ends well; use --after {job}, or run job {job} again"
    )]
    FailedDependency {
        /// The job.
        job: u64,
        /// How it ended.
        state: &'static str,
    },
    /// Too many dependencies.
    #[error(
        "a job waits for at most {} others",
        hearth_alloc::queue::DEPENDENCIES_MAX
    )]
    Dependencies,
    /// The exchange cannot be as the job's environment says.
    #[error("{0}")]
    Exchange(netstack::exchange::SettingError),
    /// A node named twice.
    #[error("a node is named twice; one rank a node, so name each once")]
    NodeTwice,
    /// All nodes named, or warm ones wanted, and some that it must or must not have.
    #[error(
        "-w and -x stand for themselves; leave out either these or --nodes LIST and --warm-only"
    )]
    TwoLists,
    /// More nodes that it must have than it has.
    #[error(
        "{} on {} that it must have: one rank a node; use a larger -n, or name fewer with -w",
        count(*ranks, "rank"),
        count(*nodes, "node")
    )]
    MustHaveMore {
        /// Ranks asked for.
        ranks: usize,
        /// Nodes that it must have.
        nodes: usize,
    },
    /// A node that it must and must not have.
    #[error("{0} is in both lists, of -w and of -x; leave it out of one")]
    InBothLists(String),
    /// Queueing a job again whose client sends its input.
    #[error(
        "a job cannot be queued again when its client sends standard input; leave --requeue or give it no input"
    )]
    RequeueWithInput,
    /// More ranks than there are nodes.
    #[error(
        "{} wanted, but the cluster has {known}; use a smaller -n, -N for several ranks a node, or --wait to wait for nodes that have not joined yet",
        count(*wanted, "node")
    )]
    TooMany {
        /// Ranks asked for.
        wanted: usize,
        /// Nodes known.
        known: usize,
    },
    /// More ranks than there are nodes besides those that it must not have.
    #[error(
        "{} wanted, but -x (--exclude) leaves {} of the {} of the cluster; name fewer in it, or use a smaller -n",
        count(*wanted, "node"), none_or(known.saturating_sub(*excluded)), count(*known, "node")
    )]
    TooManyExcluded {
        /// Ranks asked for.
        wanted: usize,
        /// Nodes known.
        known: usize,
        /// Those of them that it must not have.
        excluded: usize,
    },
    /// More ranks than the tree has places.
    #[error("{} wanted, but the tree has places for {places}; use a smaller -n, or -N for several ranks a node", count(*wanted, "node"))]
    NoPlaces {
        /// Ranks asked for.
        wanted: usize,
        /// Places.
        places: usize,
    },
    /// Nodes that do not exist.
    #[error(
        "unknown nodes: {0}; `hearth nodes` lists the nodes, --wait waits for ones that have not joined yet"
    )]
    UnknownNodes(String),
    /// More nodes than ranks.
    #[error(
        "{} for {}: each node has one rank at least, use a smaller -N",
        count(*nodes, "node"),
        count(*ranks, "rank")
    )]
    EmptyNodes {
        /// Ranks asked for.
        ranks: usize,
        /// Nodes asked for.
        nodes: usize,
    },
    /// More ranks a node than there may be.
    #[error(
        "{} on {}: a node has {} ranks at most, use a larger -N",
        count(*ranks, "rank"),
        count(*nodes, "node"),
        netstack::RANKS_PER_NODE_MAX
    )]
    CrowdedNodes {
        /// Ranks asked for.
        ranks: usize,
        /// Nodes asked for.
        nodes: usize,
    },
    /// `-n`, `-N` and `--nodes` contradict each other.
    #[error(
        "{} wanted, {} named: name as many nodes as there are ranks, or as -N says",
        count(*ranks, "node"),
        count(*nodes, "node")
    )]
    Mismatch {
        /// Nodes asked for.
        ranks: usize,
        /// Nodes named.
        nodes: usize,
    },
    /// Too few nodes with so many cores.
    #[error(
        "{wanted} cores of a node: {} so many, and the job wants {}; the largest, {largest}, has {most}: use a smaller -c, or a larger -N for fewer ranks a node; `hearth up --cpus` gives QEMU nodes more",
        match have { 0 => "no node has".to_string(), 1 => "1 node has".to_string(), have => format!("{have} nodes have") },
        crate::output::count(*nodes as usize, "such node")
    )]
    Cores {
        /// Cores wanted of each node.
        wanted: u16,
        /// Nodes wanted.
        nodes: u32,
        /// Nodes that have them.
        have: usize,
        /// The node with the most, of those that it could have.
        largest: String,
        /// Its cores.
        most: u16,
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
    /// It is not theirs.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// Never heard of it.
    #[error("there is no job {0}; `hearth jobs --all` lists the jobs")]
    Unknown(u64),
    /// It is over.
    #[error("job {0} has ended already")]
    Ended(u64),
    /// Somebody else reads or writes that stream.
    #[error("another client has that stream of job {0}")]
    Taken(u64),
    /// It has no client.
    #[error("job {0} is a batch job: `hearth output {0}` shows what it writes")]
    Batch(u64),
    /// It has nodes already.
    #[error("job {id} is {}, not waiting; `hearth cancel {id}` ends it", state.word())]
    NotPending {
        /// The job.
        id: u64,
        /// What it does.
        state: JobState,
    },
    /// Its programs have not begun, so they can get no signal.
    #[error("job {id} is {}, and only a job that runs can get a signal; `hearth job {id}` says how it stands", state.word())]
    NotRunning {
        /// The job.
        id: u64,
        /// What it does.
        state: JobState,
    },
    /// Nobody holds it.
    #[error("job {0} is not held; `hearth job {0}` says what it waits for")]
    NotHeld(u64),
}
