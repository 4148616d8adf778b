//! Jobs: launching, starting and cancelling a program on nodes.
//!
//! The control node repeats a command until the node's answer says that it is done; the node
//! carries each out once per job id. Rules that both users of the crate keep:
//!
//! - Every `Launch` event is answered by `launch_result` once.
//! - Each rank of a job whose `launch_result` was `Ok` ends with exactly one `Exit` call, also when
//!   it is cancelled before its start (status `Signal`).
//! - A `Cancel` before `launch_result` is answered by `launch_result(Err(Cancelled))`.
//! - A `Cancel` with `orphan` ends the job at once; nothing is submitted for it any more.
//! - A `Cancel` with a grace of a program that runs delivers its signal to the program, which may
//!   end by itself until the grace is over; then it is ended by SIGKILL. Without one, and before
//!   the start, it ends at once with that signal as its status.
//! - A `Signal` is delivered to the program, which may end by it.
//!
//! - A launch with [`StartMode::AtOnce`] gets no `Start`: the program starts when it is loaded, and
//!   `launch_result(Ok)` says that it does.
//! - A `Retain` event is answered by `retain_result` once.
//!
//! A node has one job at a time, with one rank of it or several. Commands are for all of these:
//! they are loaded, started, cancelled and signalled together, and end each for itself. A `Launch`
//! or `Retain` event that follows a job whose `Exit` was submitted by all its ranks is preceded by
//! those calls' `IoDone`, one that follows any other job by its orphan `Cancel`.

pub(crate) mod control;
pub mod launch_block;
pub(crate) mod node;

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::SocketAddrV4;

use crate::ids::{BootEpoch, JobId, NodeId, ProgramId, Rank};
use crate::retention::Retention;

/// Longest text of a refusal in bytes.
pub const REFUSAL_TEXT_MAX: usize = 512;

/// What a node needs to know to load a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchSpec {
    /// The job.
    pub job: JobId,
    /// The first rank of this node.
    pub rank: Rank,
    /// How many ranks it has, from that one on: 1 to [`crate::RANKS_PER_NODE_MAX`].
    pub ranks: u16,
    /// Ranks in the job.
    pub size: u32,
    /// Hash of the program file.
    pub program: ProgramId,
    /// Size of the program file in bytes.
    pub program_bytes: u64,
    /// Size of this node's launch block in bytes.
    pub launch_block_bytes: u32,
    /// Time limit in microseconds from the start, 0 for none.
    pub time_limit_us: u64,
    /// Period of the user's own monitoring in microseconds, 0 for none.
    pub monitor_period_us: u64,
    /// Memory limit of each rank in bytes, 0 for what the node has.
    pub memory_limit: u64,
    /// What is done with pages of the program before and after.
    pub retention: Retention,
    /// What the program waits for once it is loaded.
    pub start: StartMode,
    /// Cores of each rank: at most so many for one that has its node to itself, so many for each of
    /// several; 0 for all that the node has, shared out.
    pub cores: u16,
    /// Most bytes of a core file of each rank that crashes, 0 for none.
    pub core_bytes: u64,
    /// What carries out its calls on files; none: it has no files but those that its launch names.
    pub files: Option<FileService>,
}

/// What carries out the calls of a job on files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileService {
    /// Where it is.
    pub address: SocketAddrV4,
    /// The user who reads and writes there, and the user's first group: who the program is, too.
    pub user: [u32; 2],
}

/// What a program that is loaded waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartMode {
    /// For START, which the control node sends when all ranks are ready.
    OnCommand,
    /// For nothing. Saves a round trip where no rank will be long in loading: where all nodes hold
    /// the program, or the job has one rank.
    AtOnce,
}

/// A job as the control node's user describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSpec {
    /// The job; must not have been used before in this run of the control node, nor be 0.
    pub job: JobId,
    /// When it was handed in, in microseconds since 1970: with its number it makes the job's key. A
    /// control node whose state was restored gives numbers once more, but at another time.
    pub submitted_us: u64,
    /// Where the ranks go: the first node has the first of them, and so on.
    pub places: Vec<PlaceSpec>,
    /// Hash of the program file.
    pub program: ProgramId,
    /// Size of the program file in bytes.
    pub program_bytes: u64,
    /// Time limit in microseconds from the start, 0 for none.
    pub time_limit_us: u64,
    /// Period of the user's own monitoring in microseconds, 0 for none.
    pub monitor_period_us: u64,
    /// Memory limit of each rank in bytes, 0 for what the node has.
    pub memory_limit: u64,
    /// What is done with pages of the program before and after.
    pub retention: Retention,
    /// What the program waits for once it is loaded.
    pub start: StartMode,
    /// Cores of each rank: at most so many for one that has its node to itself, so many for each of
    /// several; 0 for all that the node has, shared out.
    pub cores: u16,
    /// Most bytes of a core file of each rank that crashes, 0 for none.
    pub core_bytes: u64,
}

impl JobSpec {
    /// Ranks of the job.
    pub fn size(&self) -> u32 {
        self.places.iter().map(|place| u32::from(place.ranks)).sum()
    }

    /// Its places, each with the first of its ranks.
    pub fn firsts(&self) -> impl Iterator<Item = (Rank, &PlaceSpec)> {
        let mut next = Rank(0);
        self.places.iter().map(move |place| {
            let first = next;
            next.0 += u32::from(place.ranks);
            (first, place)
        })
    }
}

/// The ranks of a job on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceSpec {
    /// The node.
    pub node: NodeId,
    /// How many ranks it has: 1 to [`crate::RANKS_PER_NODE_MAX`].
    pub ranks: u16,
    /// Their launch block, which names the first of them, at most [`launch_block::MAX`] bytes.
    /// Travels in the LAUNCH where it fits ([`crate::wire::job::INLINE_BLOCK_MAX`]); else the node
    /// asks for it with [`crate::page::Object::LaunchBlock`].
    pub launch_block: Arc<[u8]>,
    /// Send RETAIN first and LAUNCH when it is acknowledged (the published flow).
    pub retain: bool,
    /// What carries out their calls on files; none: they have no files but those that the launch
    /// names.
    pub files: Option<FileService>,
}

/// How a rank stands of a job that an earlier run of the control node launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdoptedRank {
    /// It has ended, and its end is known.
    Ended,
    /// It has not, as far as is known.
    Open {
        /// The boot of its node that was up when the earlier run ended, where it is possible that
        /// it was never told of the job: if it says so, the job is launched there. None: that is
        /// not possible, or not wanted.
        launch_on: Option<BootEpoch>,
    },
}

/// Why a job was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchError {
    /// A job with this number exists, or the number is 0.
    BadJobId,
    /// No ranks, more than a node may have, or more nodes than the control node's limit.
    BadSize,
    /// A node is named twice.
    NodeTwice(NodeId),
    /// The node is not up.
    NodeNotUp(NodeId),
    /// The node has a job that has not ended.
    NodeBusy(NodeId),
    /// As many jobs as the control node's limit exist already.
    TooManyJobs,
    /// A launch block is larger than [`launch_block::MAX`].
    LaunchBlockTooLarge,
}

/// Why a node refused a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u16)]
pub enum RefusalCode {
    /// Anything that has no code of its own; the text says what.
    Other = 0,
    /// The node has another job.
    Busy = 1,
    /// The file is not an ELF file.
    NotElf = 2,
    /// The file is for another machine or class.
    WrongMachine = 3,
    /// The file is dynamically linked.
    Dynamic = 4,
    /// The file ends before its headers or segments do.
    Truncated = 5,
    /// The file's segments contradict themselves or ask for what is not allowed.
    BadSegments = 6,
    /// Not enough memory.
    NoMemory = 7,
    /// The program or launch block could not be read from the control node.
    Unreadable = 8,
    /// Cancelled before it was loaded.
    Cancelled = 9,
    /// The launch block does not parse or disagrees with the launch.
    BadLaunchBlock = 10,
    /// The launch was to use what the node holds of the program
    /// ([`crate::retention::Reuse::Require`]), and it holds nothing.
    NotWarm = 11,
    /// A file that the launch names is not in the node's memory.
    NoFile = 12,
}

impl RefusalCode {
    pub(crate) fn from_wire(raw: u16) -> Self {
        match raw {
            1 => RefusalCode::Busy,
            2 => RefusalCode::NotElf,
            3 => RefusalCode::WrongMachine,
            4 => RefusalCode::Dynamic,
            5 => RefusalCode::Truncated,
            6 => RefusalCode::BadSegments,
            7 => RefusalCode::NoMemory,
            8 => RefusalCode::Unreadable,
            9 => RefusalCode::Cancelled,
            10 => RefusalCode::BadLaunchBlock,
            11 => RefusalCode::NotWarm,
            12 => RefusalCode::NoFile,
            _ => RefusalCode::Other,
        }
    }
}

/// A node's refusal to launch a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchRefusal {
    /// Class of the reason.
    pub code: RefusalCode,
    /// What is wrong and what to do, for the user; cut to [`REFUSAL_TEXT_MAX`] bytes.
    pub text: String,
}

/// Why a rank was lost without an exit report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankLoss {
    /// Its node fell silent.
    NodeSilent,
    /// Its node booted again.
    NodeRebooted,
    /// Its node left.
    NodeLeft,
    /// Its node panicked.
    NodePanicked,
    /// Control has switched its node off, or reset it.
    NodeSwitched,
    /// Its node does not know the job (any more).
    Forgotten,
    /// Its node had no control node that knew the job for so long that it ended it.
    GivenUp,
}
