//! What travels as JSON between control and its clients: nodes, jobs, reports, output frames.
//!
//! Key types: [`NodeInfo`], [`JobInfo`], [`JobRequest`], [`RankReport`],
//! [`LaunchTotals`], [`ProgramInfo`], [`Frame`]. Neighbours:
//! `api` (serves them), `jobs` (makes them), `cli` (prints them), the web page later.
//!
//! Invariant: names of fields and values are an interface: they are added to, never changed.

mod casts;
mod held;
mod io;
mod launch;
mod node_log;
mod power;
mod queue;
mod queued;
mod tokens;
mod waiting;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use casts::{
    CastAccepted, CastCancelRequest, CastCancelled, CastFailure, CastInfo, CastKind, CastRequest,
    CastState, CastsInfo, FileDropRequest, FileInfo, LoadReport, NodeCasts, WithFile,
};
pub use held::{DropAnswer, DropOutcome, DropRequest, DroppedOn, ProgramInfo, WarmProgram};
pub use io::{IoPart, IoServiceInfo, IoState};
pub use launch::{
    CastCounts, FaultCounts, InterruptCounts, LaunchTotals, PageCounts, RankReport, RetainedCounts,
    Reuse, SentCounts, UnknownCall, WireCounts,
};
pub use node_log::{NamedQuery, NodeLogPart, NodeLogQuery};
pub use power::{POWERED_MAX, PowerRequest, Powered};
pub use queue::{AfterCondition, AfterJob, ArrayTask, Drained, KeptOutput, Placement, Why};
pub use queued::{DrainRequest, PriorityRequest, QueuedJob, ResumeRequest};
pub use tokens::{TokenInfo, TokenMade, TokenRequest};
pub use waiting::{ApproveRequest, Approved, WaitingMachine};

use crate::config::{Load, Verify};

/// Exit status of a job that lost a node.
pub const EXIT_NODE_LOST: u8 = 123;
/// Exit status of a job whose time was up.
pub const EXIT_TIME_LIMIT: u8 = 124;

/// State of a node, in the words of `hearth nodes`.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum NodeState {
    /// In service, without a job.
    Idle,
    /// Has a job, or is ending one.
    Busy,
    /// Known, but has not joined since control started.
    #[default]
    Absent,
    /// The same while control has just started: what was in service before is heard again within
    /// seconds.
    Awaited,
    /// Joined, and is not heard of any more.
    Lost,
    /// Took its leave.
    Left,
}

impl NodeState {
    /// The word for tables.
    pub fn word(self) -> &'static str {
        match self {
            NodeState::Idle => "idle",
            NodeState::Busy => "busy",
            NodeState::Absent => "absent",
            NodeState::Awaited => "awaited",
            NodeState::Lost => "lost",
            NodeState::Left => "left",
        }
    }
}

/// One node, as `GET /v1/nodes` lists it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeInfo {
    /// `n3`.
    pub name: String,
    /// Its number.
    pub node: u32,
    /// What it does.
    pub state: NodeState,
    /// Microseconds since 1970 at which the state was entered, if it ever joined.
    pub since_unix_us: Option<u64>,
    /// The job it has.
    pub job: Option<u64>,
    /// MAC address.
    pub mac: String,
    /// Host name that the site's list has.
    #[serde(default)]
    pub host: Option<String>,
    /// Address of its control traffic.
    pub address: Option<String>,
    /// Version of the image it booted.
    pub image_version: Option<String>,
    /// Build id of its kernel, in hexadecimal.
    pub build_id: Option<String>,
    /// Bytes of memory.
    pub memory_bytes: Option<u64>,
    /// Cores for programs.
    #[serde(default)]
    pub cores: Option<u16>,
    /// Bytes of memory free, as of the last heartbeat.
    pub memory_free_bytes: Option<u64>,
    /// Bytes of memory in use, as of the last heartbeat.
    pub memory_used_bytes: Option<u64>,
    /// Milliseconds since 1970 at which the machine was switched on, where that is known.
    pub power_on_unix_ms: Option<u64>,
    /// Milliseconds since 1970 at which its present boot joined.
    pub joined_unix_ms: Option<u64>,
    /// Milliseconds from the kernel's entry to its welcome.
    pub kernel_ms: Option<f64>,
    /// Milliseconds of these that were not spent halted.
    pub busy_ms: Option<f64>,
    /// Milliseconds from the boot stub's first instruction to the kernel's entry.
    pub stub_ms: Option<f64>,
    /// Boots that joined since control started.
    pub boots: u64,
    /// Random number of the present boot.
    pub boot_epoch: Option<String>,
    /// Microseconds since the kernel's entry, as of the last heartbeat.
    pub uptime_us: Option<u64>,
    /// Microseconds of these spent halted.
    pub idle_us: Option<u64>,
    /// It does not scrub memory between programs (`hearth.scrub=off`): for tests, never in service.
    #[serde(default)]
    pub unscrubbed: bool,
    /// Why it gets no more jobs, where somebody wants that.
    #[serde(default)]
    pub drained: Option<Drained>,
    /// What casts have moved through it.
    #[serde(default)]
    pub casts: NodeCasts,
    /// Programs it holds for their next launch.
    #[serde(default)]
    pub warm: Vec<WarmProgram>,
}

impl NodeInfo {
    /// The state for tables: `drained` for a node that gets no more jobs, `draining` while it has
    /// one.
    pub fn word(&self) -> &'static str {
        match (self.state, &self.drained) {
            (NodeState::Idle, Some(_)) => "drained",
            (NodeState::Busy, Some(_)) => "draining",
            (state, _) => state.word(),
        }
    }
}

/// State of a job, in the words of `hearth jobs`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum JobState {
    /// Waits for nodes.
    #[default]
    Pending,
    /// Its nodes prepare.
    Starting,
    /// Runs.
    Running,
    /// Was told to end.
    Ending,
    /// Every rank exited with status 0.
    Completed,
    /// Some rank exited otherwise, or the job could not start.
    Failed,
    /// Was cancelled.
    Cancelled,
    /// Ran into its time limit.
    TimeLimit,
    /// A node was lost under it.
    NodeLost,
}

impl JobState {
    /// Every state, in the order in which a job may go through them.
    pub const ALL: [JobState; 9] = [
        JobState::Pending,
        JobState::Starting,
        JobState::Running,
        JobState::Ending,
        JobState::Completed,
        JobState::Failed,
        JobState::Cancelled,
        JobState::TimeLimit,
        JobState::NodeLost,
    ];

    /// Slurm's short form, for the column ST.
    pub fn short(self) -> &'static str {
        match self {
            JobState::Pending => "PD",
            JobState::Starting => "CF",
            JobState::Running => "R",
            JobState::Ending => "CG",
            JobState::Completed => "CD",
            JobState::Failed => "F",
            JobState::Cancelled => "CA",
            JobState::TimeLimit => "TO",
            JobState::NodeLost => "NF",
        }
    }

    /// Whether nothing more will happen to the job.
    pub fn is_final(self) -> bool {
        !matches!(
            self,
            JobState::Pending | JobState::Starting | JobState::Running | JobState::Ending
        )
    }

    /// The word for tables.
    pub fn word(self) -> &'static str {
        match self {
            JobState::Pending => "pending",
            JobState::Starting => "starting",
            JobState::Running => "running",
            JobState::Ending => "ending",
            JobState::Completed => "completed",
            JobState::Failed => "failed",
            JobState::Cancelled => "cancelled",
            JobState::TimeLimit => "time-limit",
            JobState::NodeLost => "node-lost",
        }
    }
}

/// One job, as `GET /v1/jobs` lists it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobInfo {
    /// Its number.
    pub id: u64,
    /// Its name: what it was given, else that of the program's file.
    pub name: String,
    /// Program id: BLAKE3 hash of the file, in hexadecimal.
    pub program: String,
    /// What it does.
    pub state: JobState,
    /// Why: what it waits for, or why it ended as it did. Empty when there is nothing to say.
    pub reason: String,
    /// Name of the program's file; empty where an earlier version of the control node took the job.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub program_file: String,
    /// The program with its arguments as a shell would take them, at most 1,024 bytes; empty as
    /// before.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub command: String,
    /// The directory in which it was submitted, where that is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub directory: String,
    /// Number of ranks.
    pub ranks_total: u32,
    /// Number of nodes for them; 0 in what earlier versions wrote: one each.
    #[serde(default)]
    pub nodes_total: u32,
    /// Cores that each rank may use; absent: all that its node has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<u16>,
    /// Its nodes as a hostlist, in rank order; empty before allocation.
    pub nodes: String,
    /// Number of the cluster that took it, as in [`Status`].
    #[serde(default)]
    pub instance: String,
    /// Microseconds since 1970 at which it was submitted.
    pub submitted_unix_us: u64,
    /// ... at which it began to run.
    pub started_unix_us: Option<u64>,
    /// ... at which it ended.
    pub ended_unix_us: Option<u64>,
    /// Time limit in seconds, if it has one.
    pub time_limit_s: Option<u64>,
    /// Highest exit status of its ranks (128 + n for signal n), once it ended and any rank ran;
    /// [`EXIT_TIME_LIMIT`] or [`EXIT_NODE_LOST`] when that was the end of it.
    pub exit_status: Option<i32>,
    /// It has ended, and that is not written down yet: a control node that is killed now asks its
    /// nodes for it once more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unwritten: bool,
    /// Whether it failed because a node says that the program cannot be run.
    #[serde(default)]
    pub bad_program: bool,
    /// Whether it may, must not or must run on pages that its nodes held.
    #[serde(default)]
    pub reuse: Reuse,
    /// How its program reached the nodes that did not hold it, once it has nodes.
    #[serde(default)]
    pub load: Option<LoadReport>,
    /// Names of the files that it finds under `/with`.
    #[serde(default)]
    pub with: Vec<String>,
    /// Who submitted it.
    #[serde(default)]
    pub user: String,
    /// Higher goes first.
    #[serde(default)]
    pub priority: i32,
    /// It does not start until it is released.
    #[serde(default)]
    pub held: bool,
    /// No client waits for it: its output is kept by the control node.
    #[serde(default)]
    pub batch: bool,
    /// It is queued again when a node is lost under it.
    #[serde(default)]
    pub requeue: bool,
    /// How often it was queued again.
    #[serde(default)]
    pub restarts: u32,
    /// Nodes that crashed under it; it is not started there again while there are others.
    #[serde(default)]
    pub crashes: Vec<Crash>,
    /// How often it went on running over a restart of the control node.
    #[serde(default)]
    pub continued: u32,
    /// It is ending and will be queued again then.
    #[serde(default)]
    pub runs_again: bool,
    /// Jobs that it still waits for.
    #[serde(default)]
    pub after: Vec<AfterJob>,
    /// The job array that it is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<ArrayTask>,
    /// Why it has no nodes, in one word; `reason` says more. Only while it is pending.
    #[serde(default)]
    pub why: Option<Why>,
    /// When it starts at the latest, in microseconds since 1970, where the queue has reserved that.
    #[serde(default)]
    pub expected_start_unix_us: Option<u64>,
    /// Each of its ranks begins by itself, so one may have run before it counts as running.
    #[serde(default)]
    pub at_once: bool,
    /// How it will have ended; only while it is ending.
    #[serde(default)]
    pub ends_as: Option<JobState>,
    /// How it got its nodes, once it has some.
    #[serde(default)]
    pub placement: Option<Placement>,
    /// The I/O services that its nodes call, in the order of ranks; once it has nodes and files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub io: Vec<IoPart>,
    /// What failed beside its program: calls on its files, files with its output. Each is an event,
    /// too; the first few of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub troubles: Vec<String>,
    /// Its output as far as the control node keeps it.
    #[serde(default)]
    pub output: Option<KeptOutput>,
    /// Sums over its ranks, once it ended and any rank ran.
    #[serde(default)]
    pub totals: Option<LaunchTotals>,
    /// How each rank ended; as far as known.
    pub ranks: Vec<RankReport>,
}

impl JobInfo {
    /// Number of its nodes.
    pub fn node_count(&self) -> u32 {
        match self.nodes_total {
            0 => self.ranks_total,
            nodes => nodes,
        }
    }

    /// A copy without what its ranks did, which may be most of it and is not copied meanwhile.
    pub fn without_ranks(&mut self) -> Self {
        let ranks = std::mem::take(&mut self.ranks);
        let copy = self.clone();
        self.ranks = ranks;
        copy
    }

    /// Name of the program's file, or of the job where that is not known.
    pub fn program_name(&self) -> &str {
        match &self.program_file[..] {
            "" => &self.name,
            name => name,
        }
    }

    /// `completed`, `failed: rank 0 on n0 exited with status 3`, `ended: time limit of 3 s
    /// reached`.
    pub fn how_ended(&self) -> String {
        let word = match self.state {
            // The reason says which of the two it was.
            JobState::TimeLimit | JobState::NodeLost if !self.reason.is_empty() => "ended",
            state => state.word(),
        };
        match &self.reason[..] {
            "" => word.to_string(),
            reason => format!("{word}: {reason}"),
        }
    }
}

/// A node that went out of service under a job without leave: perhaps because of what the job did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Crash {
    /// The node.
    pub node: u32,
    /// Which attempt of the job it had, counted as `restarts`.
    pub restart: u32,
    /// When, in microseconds since 1970.
    pub at_unix_us: u64,
    /// Its kernel has said that it panicked. Else nothing was heard of it, or only its next boot.
    pub panicked: bool,
    /// It has been heard in another boot since.
    #[serde(default)]
    pub rebooted: bool,
}

/// How a rank ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RankEnd {
    /// By exit(2) with this status.
    Exited(i32),
    /// By this signal.
    Signal(i32),
    /// Because its node could not go on with it, or did not end it in time.
    Failed,
    /// Its node was lost.
    NodeLost,
    /// It never started.
    NotStarted,
}

impl RankEnd {
    /// The status a shell would show: the exit status, 128 + n for signal n, 125 for a failure.
    pub fn status(self) -> Option<i32> {
        match self {
            RankEnd::Exited(status) => Some(status & 0xff),
            RankEnd::Signal(signal) => Some(128 + (signal & 0x7f)),
            RankEnd::Failed => Some(125),
            RankEnd::NodeLost | RankEnd::NotStarted => None,
        }
    }
}

/// What `POST /v1/jobs` takes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobRequest {
    /// Name for tables; usually the program's file name.
    pub name: String,
    /// Program id, in hexadecimal; the program must have been PUT before.
    pub program: String,
    /// Arguments including the program's own name, base64 (they need not be UTF-8).
    pub args: Vec<String>,
    /// Environment as `K=V`, base64.
    #[serde(default)]
    pub env: Vec<String>,
    /// Number of ranks; 0 or absent: as many as nodes.
    #[serde(default)]
    pub ranks: u32,
    /// Number of nodes for them, the first of which has the first ranks; 0 or absent: a node for
    /// each rank, or as many as `nodes` or `nodelist` names where `ranks` says nothing either.
    #[serde(default)]
    pub node_count: u32,
    /// Hostlist; absent: any free nodes.
    #[serde(default)]
    pub nodes: Option<String>,
    /// Hostlist of nodes that must be among its nodes. Without `nodes`.
    #[serde(default)]
    pub nodelist: Option<String>,
    /// Hostlist of nodes that must not be among its nodes. Without `nodes`.
    #[serde(default)]
    pub exclude: Option<String>,
    /// Cores that each rank may use; its nodes have as many for each of their ranks at least.
    /// Absent: any nodes, all their cores, shared out.
    #[serde(default)]
    pub cores: Option<u16>,
    /// Time limit in seconds; absent: the configured default; 0: none.
    #[serde(default)]
    pub time_limit_s: Option<u64>,
    /// Whether the client will send standard input for rank 0.
    #[serde(default)]
    pub stdin: bool,
    /// Leave checking the program to the nodes (for tests of the nodes).
    #[serde(default)]
    pub no_precheck: bool,
    /// Wait for nodes that control does not know yet, instead of refusing.
    #[serde(default)]
    pub wait: bool,
    /// Whether it may, must not or must run on pages that nodes hold.
    #[serde(default)]
    pub reuse: Reuse,
    /// Checking of held pages; absent: as configured.
    #[serde(default)]
    pub verify: Option<Verify>,
    /// How the program reaches nodes that do not hold it; absent: as configured.
    #[serde(default)]
    pub load: Option<Load>,
    /// Files that the program finds under `/with`.
    #[serde(default)]
    pub with: Vec<WithFile>,
    /// Who submits it, who has to be whoever asks; absent: just that.
    #[serde(default)]
    pub user: String,
    /// Nobody waits for it: it starts by itself, its output is kept, and it outlives its client.
    #[serde(default)]
    pub batch: bool,
    /// It does not start until it is released.
    #[serde(default)]
    pub hold: bool,
    /// Higher goes first.
    #[serde(default)]
    pub priority: i32,
    /// Jobs that must have ended before it starts.
    #[serde(default)]
    pub after: Vec<AfterJob>,
    /// Queue it again when a node is lost under it.
    #[serde(default)]
    pub requeue: bool,
    /// Standard input of rank 0 of a batch job: BLAKE3 hash of a file that was PUT as a program is.
    #[serde(default)]
    pub input: Option<String>,
    /// The directory in which it is submitted, for people.
    #[serde(default)]
    pub directory: String,
    /// File that standard output of a batch job goes to, and standard error without `error`: a path
    /// from the root, with `%j` and its like. Over the unix socket, for the user whose control node
    /// this is.
    #[serde(default)]
    pub output: Option<String>,
    /// The same for standard error.
    #[serde(default)]
    pub error: Option<String>,
    /// Most bytes of a core file of each rank that crashes, which comes as its output to descriptor
    /// 3; absent: none.
    #[serde(default)]
    pub core_bytes: Option<u64>,
    /// File that it goes to for a batch job, as for `output`; with `%n`.
    #[serde(default)]
    pub core: Option<String>,
    /// The array that a batch job is of: each of its jobs is handed in.
    #[serde(default)]
    pub array: Option<ArrayTask>,
    /// What it sees of the control node's directories; absent: nothing.
    #[serde(default)]
    pub files: Option<FilesRequest>,
}

/// What a job is to see of the control node's directories, of those that it exports.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FilesRequest {
    /// The directory that it begins in, from the root.
    pub working: String,
    /// The home directory of who submits it.
    #[serde(default)]
    pub home: String,
    /// Directories under other paths: `HOST:NODE` or `HOST:NODE:ro`.
    #[serde(default)]
    pub mounts: Vec<String>,
}

/// An answer that says no more than that it was done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Done {}

/// What has been received or is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Size {
    /// In bytes.
    pub bytes: u64,
}

/// What `POST /v1/jobs` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobAccepted {
    /// The job's number.
    pub id: u64,
    /// Seconds for which a client that has lost the control node is to look for it: nodes keep a
    /// job without one for as long, and one that was started again waits for clients
    /// (`jobs.without_control_s`, `jobs.return_limit_s`).
    pub look_for_s: u64,
}

/// Why the API did not do what was asked; the body of every error answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// A stable word: `unknown-program`, `bad-program`, `no-such-job`, `queue-full`, ...
    pub code: String,
    /// For people; says what to do next.
    pub error: String,
}

/// One line of `GET /v1/jobs/{id}/output`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "frame", rename_all = "kebab-case")]
pub enum Frame {
    /// The job entered a state.
    State {
        /// Which.
        state: JobState,
        /// What it waits for.
        reason: String,
        /// Its nodes, once it has them.
        nodes: String,
    },
    /// A rank wrote.
    Output {
        /// The rank.
        rank: u32,
        /// 1: standard output; 2: standard error.
        fd: u32,
        /// The bytes, base64.
        data: String,
        /// The last call of the rank that is in it: a client that comes back after a restart of the
        /// control node names it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<u64>,
    },
    /// A rank was ended by a fault.
    Fault {
        /// The rank.
        rank: u32,
        /// Its node.
        node: String,
        /// Lines for people.
        text: String,
    },
    /// Something the user should know.
    Notice {
        /// A line for people.
        text: String,
    },
    /// The job goes on after a restart of the control node, which wants standard input from here
    /// on.
    Input {
        /// Bytes from its beginning.
        from: u64,
    },
    /// Nothing happened for a while; the connection is alive.
    Ping {},
    /// The job ended; the last line.
    End {
        /// Everything known about it.
        job: Box<JobInfo>,
    },
}

/// What `GET /v1/status` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Status {
    /// Version of control.
    pub version: String,
    /// Number of the cluster, in hexadecimal: random, and the same for as long as its store lives.
    /// A cluster of the same name that is made later has another.
    #[serde(default)]
    pub instance: String,
    /// Process id.
    pub pid: u32,
    /// Address of the control protocol.
    pub control: String,
    /// Address of the HTTP API on TCP, if it listens there.
    pub http: Option<String>,
    /// Address at which it listens with TLS, if it does.
    #[serde(default)]
    pub listen: Option<String>,
    /// By what clients know it there: SHA-256 of its certificate, in hexadecimal.
    #[serde(default)]
    pub fingerprint: Option<String>,
    /// Interface of the boot service, if it runs.
    pub interface: Option<String>,
    /// Whether the boot service leaves addresses to another DHCP server.
    pub proxy_dhcp: bool,
    /// Widths of the tree that jobs are placed in, from the leaves up; empty: one switch.
    #[serde(default)]
    pub tree: Vec<u32>,
    /// Links upwards of one switch of each level of it below the root, from the leaves up.
    #[serde(default)]
    pub uplinks: Vec<u32>,
    /// Microseconds since 1970 at which control started.
    pub started_unix_us: u64,
    /// Why what happens is not written down at present, and what to do about it.
    #[serde(default)]
    pub store: Option<String>,
    /// Datagrams that were refused, by reason, as far as any were; what waits to be written.
    pub counters: std::collections::BTreeMap<String, u64>,
}

/// What `POST /v1/stop` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StopRequest {
    /// Start no job any more, and end when none has nodes.
    #[serde(default)]
    pub drain: bool,
}

/// What `POST /v1/stop` answers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub struct StopReply {
    /// The process that ends.
    pub pid: u32,
    /// Jobs that have nodes.
    pub running: Vec<u64>,
    /// Jobs that wait for nodes.
    pub waiting: Vec<u64>,
}

/// What `POST /v1/jobs/{id}/cancel` takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelRequest {
    /// Signal number; absent: 15 (SIGTERM).
    #[serde(default)]
    pub signal: Option<i32>,
    /// Seconds that its programs may go on after that signal, then they get SIGKILL; 0: the signal
    /// ends them at once; absent: as configured.
    #[serde(default)]
    pub grace_s: Option<u64>,
    /// Who or what wanted it, for the job's record.
    #[serde(default)]
    pub reason: Option<String>,
}

/// What `POST /v1/jobs/{id}/signal` takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SignalRequest {
    /// Signal number, 1 to 64.
    pub signal: i32,
}

/// One step of a boot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BootStage {
    /// `dhcp`, `nbp`, `script`, `kernel`, `personality`, `joined`.
    pub stage: String,
    /// Milliseconds since 1970.
    pub unix_ms: u64,
    /// Milliseconds since the first packet of this boot.
    pub after_ms: f64,
    /// More, for people.
    pub detail: String,
}

/// The latest boot of one machine, as `GET /v1/timeline` lists it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BootTimeline {
    /// MAC address.
    pub mac: String,
    /// Name of the node, if it is known.
    pub node: Option<String>,
    /// Address it was given.
    pub address: Option<String>,
    /// What asked first.
    pub firmware: Option<String>,
    /// Boots seen of this machine.
    pub boots: u32,
    /// Milliseconds since 1970 of its first packet.
    pub began_unix_ms: u64,
    /// Steps reached, in order.
    pub stages: Vec<BootStage>,
    /// The last thing that went wrong.
    pub trouble: Option<String>,
}
