//! What travels as JSON between control and its clients: nodes, jobs, reports, output frames.
//!
//! Key types: [`NodeInfo`], [`JobInfo`], [`JobRequest`], [`RankReport`],
//! [`LaunchTotals`], [`ProgramInfo`], [`Frame`]. Neighbours:
//! `api` (serves them), `jobs` (makes them), `cli` (prints them), the web page later.
//!
//! Invariant: names of fields and values are an interface: they are added to, never changed.

use serde::{Deserialize, Serialize};

use crate::config::Verify;

/// State of a node, in the words of `hearth nodes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeState {
    /// In service, without a job.
    Idle,
    /// Has a job, or is ending one.
    Busy,
    /// Known, but has not joined since control started.
    Absent,
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
            NodeState::Lost => "lost",
            NodeState::Left => "left",
        }
    }
}

/// One node, as `GET /v1/nodes` lists it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
    /// Address of its control traffic.
    pub address: Option<String>,
    /// Version of the image it booted.
    pub image_version: Option<String>,
    /// Build id of its kernel, in hexadecimal.
    pub build_id: Option<String>,
    /// Bytes of memory.
    pub memory_bytes: Option<u64>,
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
    /// Programs it holds for their next launch.
    #[serde(default)]
    pub warm: Vec<WarmProgram>,
}

/// A program that a node holds for its next launch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WarmProgram {
    /// Program id, in hexadecimal.
    pub program: String,
    /// Its name at its last launch, if that is known.
    pub name: Option<String>,
    /// Pages of 4 KiB held, the pristine ones included.
    pub pages: u32,
    /// Of these, pristine contents of data pages.
    pub pristine: u32,
    /// Microseconds since 1970 since when.
    pub since_unix_us: u64,
}

/// One program, as `GET /v1/programs` lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramInfo {
    /// Program id: BLAKE3 hash of the file, in hexadecimal.
    pub program: String,
    /// Its name at its last launch.
    pub name: String,
    /// All names it was launched under, the last one first.
    pub names: Vec<String>,
    /// Size of its file, in bytes.
    pub bytes: u64,
    /// Nodes in service that hold it, as a hostlist.
    pub nodes: String,
    /// How many these are.
    pub nodes_total: usize,
    /// Pages of 4 KiB that they hold, together.
    pub pages: u64,
    /// Launches on nodes, one for each rank that ran.
    pub launches: u64,
    /// Of these, the ones on a node that held it.
    pub hits: u64,
    /// Microseconds since 1970 of its last launch; nothing before the first.
    pub last_used_unix_us: Option<u64>,
}

/// What `POST /v1/drop` takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DropRequest {
    /// A program's name, id, or beginning of its id; absent: all programs.
    #[serde(default)]
    pub program: Option<String>,
    /// Hostlist; absent: all nodes that hold it.
    #[serde(default)]
    pub nodes: Option<String>,
}

/// What became of a drop on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DropOutcome {
    /// It holds it no longer.
    Dropped,
    /// It did not hold it.
    NotHeld,
    /// It runs it just now and will let go of it at the end.
    Running,
    /// It is not in service, and what it held is void with its boot.
    NotUp,
    /// It did not answer in time; it goes on being asked.
    NoAnswer,
}

impl DropOutcome {
    /// The word for tables.
    pub fn word(self) -> &'static str {
        match self {
            DropOutcome::Dropped => "dropped",
            DropOutcome::NotHeld => "not-held",
            DropOutcome::Running => "running",
            DropOutcome::NotUp => "not-up",
            DropOutcome::NoAnswer => "no-answer",
        }
    }
}

/// One node's line of [`DropAnswer`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DroppedOn {
    /// The node.
    pub node: String,
    /// What became of it.
    pub outcome: DropOutcome,
    /// Pages of 4 KiB that were given up.
    pub pages: u32,
}

/// What `POST /v1/drop` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropAnswer {
    /// Program id, in hexadecimal; nothing when all were meant.
    pub program: Option<String>,
    /// Its name, if that is known.
    pub name: Option<String>,
    /// The nodes asked, by number.
    pub nodes: Vec<DroppedOn>,
}

/// State of a job, in the words of `hearth jobs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobState {
    /// Waits for nodes.
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobInfo {
    /// Its number.
    pub id: u64,
    /// Name of the program's file.
    pub name: String,
    /// Program id: BLAKE3 hash of the file, in hexadecimal.
    pub program: String,
    /// What it does.
    pub state: JobState,
    /// Why: what it waits for, or why it ended as it did. Empty when there is nothing to say.
    pub reason: String,
    /// Number of ranks.
    pub ranks_total: u32,
    /// Its nodes as a hostlist, in rank order; empty before allocation.
    pub nodes: String,
    /// Microseconds since 1970 at which it was submitted.
    pub submitted_unix_us: u64,
    /// ... at which it began to run.
    pub started_unix_us: Option<u64>,
    /// ... at which it ended.
    pub ended_unix_us: Option<u64>,
    /// Time limit in seconds, if it has one.
    pub time_limit_s: Option<u64>,
    /// Highest exit status of its ranks (128 + n for signal n), once it ended and any rank ran.
    pub exit_status: Option<i32>,
    /// Whether it failed because a node says that the program cannot be run.
    #[serde(default)]
    pub bad_program: bool,
    /// Whether it may, must not or must run on pages that its nodes held.
    #[serde(default)]
    pub reuse: Reuse,
    /// Sums over its ranks, once it ended and any rank ran.
    #[serde(default)]
    pub totals: Option<LaunchTotals>,
    /// How each rank ended; as far as known.
    pub ranks: Vec<RankReport>,
}

/// Whether a job runs on pages that its nodes held from an earlier launch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reuse {
    /// Where nodes hold them.
    #[default]
    Allow,
    /// Never (`hearth run --cold`): what a node holds of the program goes first.
    Forbid,
    /// Always (`hearth run --warm-only`): only on nodes that hold them.
    Require,
}

/// How a rank ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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

/// Pages of the program's file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageCounts {
    /// Asked for because a fault needed them.
    pub asked: u64,
    /// Asked for ahead of need.
    pub read_ahead: u64,
    /// Of those read ahead, the ones used.
    pub used: u64,
}

/// Page faults by class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FaultCounts {
    /// On pages of the program's file: `code`, `readonly` and `data` together.
    pub file: u64,
    /// On anonymous memory: `zero` and `stack` together.
    pub anonymous: u64,
    /// On pages of executable segments.
    pub code: u64,
    /// On pages of segments that are only read.
    pub readonly: u64,
    /// On pages of writable segments with contents from the file.
    pub data: u64,
    /// On memory that begins as zeros: bss, heap, mmap.
    pub zero: u64,
    /// On the stack.
    pub stack: u64,
    /// Of the file faults, those served from memory, without a transfer.
    pub held: u64,
    /// First writes to a data page whose pristine contents were held: copied.
    pub copied: u64,
}

/// Pages that stay on the node between launches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RetainedCounts {
    /// Held from before when the program was launched.
    pub reused: u64,
    /// Kept when it ended.
    pub kept: u64,
    /// Given up: another program's, or this one's after a change.
    pub discarded: u64,
    /// Given up because their contents were not the file's any more.
    pub damaged: u64,
}

/// What crossed the network for the program's file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WireCounts {
    /// Requests sent by the node, repeats included.
    pub requests: u64,
    /// Datagrams with file contents that arrived, repeats included.
    pub fragments: u64,
    /// Both together.
    pub messages: u64,
    /// Bytes of all these, headers down to Ethernet included.
    pub bytes: u64,
}

/// Interrupts by class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterruptCounts {
    /// Heartbeat deadlines.
    pub heartbeat: u64,
    /// The time limit.
    pub time_limit: u64,
    /// The user's own monitoring.
    pub monitor: u64,
    /// Network adapter.
    pub nic: u64,
    /// Nobody asked for them.
    pub spurious: u64,
}

/// A system call the kernel does not have, and how often it was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnknownCall {
    /// Linux x86-64 number.
    pub number: u32,
    /// Calls.
    pub count: u32,
}

/// What one rank did, as `run --report` shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RankReport {
    /// The rank.
    pub rank: u32,
    /// Its node.
    pub node: String,
    /// How it ended; nothing while it runs.
    pub end: Option<RankEnd>,
    /// Milliseconds it ran in user mode.
    pub user_ms: f64,
    /// Milliseconds from start to end as the node saw them.
    pub wall_ms: f64,
    /// Page faults by class.
    pub faults: FaultCounts,
    /// Pages by origin.
    pub pages: PageCounts,
    /// Interrupts taken while the program ran, by class.
    pub interrupts: InterruptCounts,
    /// Interrupts taken in the kernel on the program's behalf (waiting for pages and I/O).
    pub interrupts_kernel: InterruptCounts,
    /// System calls answered ENOSYS.
    pub unknown_calls: Vec<UnknownCall>,
    /// System calls of any kind.
    pub calls: u64,
    /// Bytes of the program's file received.
    pub loaded_bytes: u64,
    /// Most memory frames it had at once.
    pub frames_peak: u64,
    /// Memory frames scrubbed after it.
    pub frames_scrubbed: u64,
    /// Bytes it wrote to standard output and standard error.
    pub output_bytes: u64,
    /// Its node held the program when it was launched.
    #[serde(default)]
    pub warm: bool,
    /// Pages that stay between launches.
    #[serde(default)]
    pub retained: RetainedCounts,
    /// What crossed the network for the program.
    #[serde(default)]
    pub wire: WireCounts,
    /// Pages used as page tables at its end.
    #[serde(default)]
    pub table_pages: u64,
    /// Pages of 2 MiB that hold its text.
    #[serde(default)]
    pub large_pages: u64,
    /// Milliseconds from the dispatch of the job to this rank's first instruction, on control's
    /// clock: from the hand-over of the launch to the node's word that the program runs.
    #[serde(default)]
    pub first_ms: Option<f64>,
    /// ... to the arrival of its exit.
    #[serde(default)]
    pub exit_ms: Option<f64>,
    /// Microseconds from the arrival of the launch to being ready, on the node's clock.
    #[serde(default)]
    pub node_launch_us: u64,
    /// ... to the first instruction.
    #[serde(default)]
    pub node_first_us: u64,
    /// The same in counts of the node's time-stamp counter.
    #[serde(default)]
    pub first_counts: u64,
    /// ... to the exit.
    #[serde(default)]
    pub exit_counts: u64,
    /// The fault report, if it was ended by a fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

impl RankReport {
    /// A rank of which nothing is known yet.
    pub fn new(rank: u32, node: u32) -> Self {
        RankReport {
            rank,
            node: crate::hostlist::name(node),
            end: None,
            user_ms: 0.0,
            wall_ms: 0.0,
            faults: FaultCounts::default(),
            pages: PageCounts::default(),
            interrupts: InterruptCounts::default(),
            interrupts_kernel: InterruptCounts::default(),
            unknown_calls: Vec::new(),
            calls: 0,
            loaded_bytes: 0,
            frames_peak: 0,
            frames_scrubbed: 0,
            output_bytes: 0,
            warm: false,
            retained: RetainedCounts::default(),
            wire: WireCounts::default(),
            table_pages: 0,
            large_pages: 0,
            first_ms: None,
            exit_ms: None,
            node_launch_us: 0,
            node_first_us: 0,
            first_counts: 0,
            exit_counts: 0,
            fault: None,
        }
    }

    /// Whether its program has run: it ended by itself or by a signal.
    pub fn ran(&self) -> bool {
        matches!(self.end, Some(RankEnd::Exited(_) | RankEnd::Signal(_))) && self.exit_ms.is_some()
    }
}

/// What the launch of a job cost, over the ranks that ran.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LaunchTotals {
    /// Ranks that ran.
    pub ranks: u64,
    /// Of these, the ones on a node that held the program.
    pub warm: u64,
    /// Pages that stay between launches.
    pub retained: RetainedCounts,
    /// Memory frames scrubbed.
    pub frames_scrubbed: u64,
    /// Page faults by class.
    pub faults: FaultCounts,
    /// What crossed the network for the program.
    pub wire: WireCounts,
    /// Bytes of the program's file received.
    pub loaded_bytes: u64,
    /// Milliseconds from the dispatch to the first instruction of the last rank to begin.
    pub first_ms: Option<f64>,
    /// Milliseconds from the dispatch to the exit of the last rank to end.
    pub exit_ms: Option<f64>,
}

impl LaunchTotals {
    /// The sums over those of `ranks` that ran; nothing when none did.
    pub fn of(ranks: &[RankReport]) -> Option<Self> {
        let ran = || ranks.iter().filter(|rank| rank.ran());
        let sum = |count: fn(&RankReport) -> u64| ran().map(count).sum::<u64>();
        let last = |at: fn(&RankReport) -> Option<f64>| ran().filter_map(at).reduce(f64::max);
        let totals = LaunchTotals {
            ranks: ran().count() as u64,
            warm: sum(|rank| u64::from(rank.warm)),
            retained: RetainedCounts {
                reused: sum(|rank| rank.retained.reused),
                kept: sum(|rank| rank.retained.kept),
                discarded: sum(|rank| rank.retained.discarded),
                damaged: sum(|rank| rank.retained.damaged),
            },
            frames_scrubbed: sum(|rank| rank.frames_scrubbed),
            faults: FaultCounts {
                file: sum(|rank| rank.faults.file),
                anonymous: sum(|rank| rank.faults.anonymous),
                code: sum(|rank| rank.faults.code),
                readonly: sum(|rank| rank.faults.readonly),
                data: sum(|rank| rank.faults.data),
                zero: sum(|rank| rank.faults.zero),
                stack: sum(|rank| rank.faults.stack),
                held: sum(|rank| rank.faults.held),
                copied: sum(|rank| rank.faults.copied),
            },
            wire: WireCounts {
                requests: sum(|rank| rank.wire.requests),
                fragments: sum(|rank| rank.wire.fragments),
                messages: sum(|rank| rank.wire.messages),
                bytes: sum(|rank| rank.wire.bytes),
            },
            loaded_bytes: sum(|rank| rank.loaded_bytes),
            first_ms: last(|rank| rank.first_ms),
            exit_ms: last(|rank| rank.exit_ms),
        };
        (totals.ranks > 0).then_some(totals)
    }
}

/// What `POST /v1/jobs` takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
    /// Number of ranks; 0 or absent: as many as `nodes` names.
    #[serde(default)]
    pub ranks: u32,
    /// Hostlist; absent: any free nodes.
    #[serde(default)]
    pub nodes: Option<String>,
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
    /// Text in 2 MiB pages where it is large enough; absent: as configured.
    #[serde(default)]
    pub large_text: Option<bool>,
    /// Checking of held pages; absent: as configured.
    #[serde(default)]
    pub verify: Option<Verify>,
}

/// What `POST /v1/jobs` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobAccepted {
    /// The job's number.
    pub id: u64,
}

/// Why the API did not do what was asked; the body of every error answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// A stable word: `unknown-program`, `bad-program`, `no-such-job`, `queue-full`, ...
    pub code: String,
    /// For people; says what to do next.
    pub error: String,
}

/// One line of `GET /v1/jobs/{id}/output`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
    /// Nothing happened for a while; the connection is alive.
    Ping {},
    /// The job ended; the last line.
    End {
        /// Everything known about it.
        job: Box<JobInfo>,
    },
}

/// What `GET /v1/status` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Version of control.
    pub version: String,
    /// Process id.
    pub pid: u32,
    /// Address of the control protocol.
    pub control: String,
    /// Address of the HTTP API on TCP, if it listens there.
    pub http: Option<String>,
    /// Interface of the boot service, if it runs.
    pub interface: Option<String>,
    /// Whether the boot service leaves addresses to another DHCP server.
    pub proxy_dhcp: bool,
    /// Microseconds since 1970 at which control started.
    pub started_unix_us: u64,
    /// Datagrams that were refused, by reason, as far as any were.
    pub counters: std::collections::BTreeMap<String, u64>,
}

/// What `POST /v1/jobs/{id}/cancel` takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CancelRequest {
    /// Signal number; absent: 15 (SIGTERM).
    #[serde(default)]
    pub signal: Option<i32>,
    /// Who or what wanted it, for the job's record.
    #[serde(default)]
    pub reason: Option<String>,
}

/// One step of a boot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
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
