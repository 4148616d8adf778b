//! What the ranks of a job did and what their launch cost.
//!
//! Key types: [`RankReport`], [`LaunchTotals`]. Neighbours: `control_events` (fills reports in from
//! what nodes send), `cli::report` (prints them).
//!
//! Invariant: as for all of `api::types`; reports are kept for years, so every field that is added
//! has a default.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::RankEnd;

/// Whether a job runs on pages that its nodes held from an earlier launch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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

/// Pages of the program's file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PageCounts {
    /// Asked for because a fault needed them.
    pub asked: u64,
    /// Asked for ahead of need.
    pub read_ahead: u64,
    /// Of those read ahead, the ones used.
    pub used: u64,
}

/// Page faults by class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
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

/// What came from a cast of the program instead of by demand.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct CastCounts {
    /// Pages of the program's file taken from it.
    pub pages: u64,
    /// Faults that it served.
    pub faults: u64,
    /// Of these, the ones that waited for their block.
    pub awaited: u64,
}

/// What a rank has sent to ranks of its job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct SentCounts {
    /// Messages.
    pub messages: u64,
    /// Bytes of messages.
    pub bytes: u64,
    /// All-to-all exchanges that it took part in; their bytes are in neither of the others.
    pub exchanges: u64,
}

/// Interrupts by class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InterruptCounts {
    /// Heartbeat deadlines.
    pub heartbeat: u64,
    /// The time limit.
    pub time_limit: u64,
    /// The user's own monitoring.
    pub monitor: u64,
    /// Network adapter.
    pub nic: u64,
    /// Network adapter and timer, for a cast that the node takes part in.
    #[serde(default)]
    pub cast: u64,
    /// Nobody asked for them.
    pub spurious: u64,
}

/// A system call that nodes do not carry out, and how often it was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnknownCall {
    /// Linux x86-64 number.
    pub number: u32,
    /// Calls.
    pub count: u32,
}

impl UnknownCall {
    /// Its name, or its number where it has none.
    pub fn name(self) -> String {
        let name = hearth_abi::sysno::name(self.number.into());
        name.map_or_else(|| self.number.to_string(), str::to_string)
    }
}

/// What one rank did, as `run --report` shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
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
    /// System calls that its node does not carry out.
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
    /// What came from a cast of the program.
    #[serde(default)]
    pub cast: CastCounts,
    /// Messages and exchanges.
    #[serde(default)]
    pub sent: SentCounts,
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
    /// Its node was free again at this place in the order of decisions (`placement.decision`):
    /// those above it could give the node out, those below could not.
    #[serde(default)]
    pub freed: Option<u64>,
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
            cast: CastCounts::default(),
            sent: SentCounts::default(),
            table_pages: 0,
            large_pages: 0,
            first_ms: None,
            exit_ms: None,
            freed: None,
            node_launch_us: 0,
            node_first_us: 0,
            first_counts: 0,
            exit_counts: 0,
            fault: None,
        }
    }

    /// Whether its program has run: it ended by itself or by a signal.
    pub fn ran(&self) -> bool {
        // The milliseconds of a launch are not known of a job that has outlived the control node.
        let has_run = self.exit_ms.is_some() || self.wall_ms > 0.0;
        matches!(self.end, Some(RankEnd::Exited(_) | RankEnd::Signal(_))) && has_run
    }
}

/// What the launch of a job cost, over the ranks that ran.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
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
    /// What came from a cast of the program.
    pub cast: CastCounts,
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
            cast: CastCounts {
                pages: sum(|rank| rank.cast.pages),
                faults: sum(|rank| rank.cast.faults),
                awaited: sum(|rank| rank.cast.awaited),
            },
            loaded_bytes: sum(|rank| rank.loaded_bytes),
            first_ms: last(|rank| rank.first_ms),
            exit_ms: last(|rank| rank.exit_ms),
        };
        (totals.ranks > 0).then_some(totals)
    }
}
