//! What the control node's endpoint tells its user.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddrV4;

use crate::ids::{BootEpoch, CallId, JobId, NodeId, ProgramId, Rank};
use crate::io::IoOp;
use crate::job::{RankLoss, RefusalCode};
use crate::join::Refusal;
use crate::page::PageWanted;
use crate::retention::Holding;
use crate::time::Instant;
use crate::vitals::{BootTimings, Vitals};

/// Where a node stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// It sent HELLO and was welcomed, but has not confirmed yet.
    Joining,
    /// It joined and is heard.
    Up,
    /// Nothing was heard for [`crate::join::Timing::lost_after`], or it panicked.
    Lost,
    /// It left in good order.
    Left,
}

/// The registry's view of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStatus {
    /// Its number.
    pub node: NodeId,
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Where it was last heard from.
    pub addr: SocketAddrV4,
    /// Its boot.
    pub epoch: BootEpoch,
    /// Where it stands.
    pub state: NodeState,
    /// Since when.
    pub since: Instant,
    /// When it was last heard.
    pub last_heard: Instant,
    /// Version of its image.
    pub version: [u8; 16],
    /// Build id of its kernel.
    pub build_id: [u8; 20],
    /// Its memory in bytes.
    pub memory_bytes: u64,
    /// Cores that it has for programs.
    pub cores: u16,
    /// Milestones of its boot.
    pub timings: BootTimings,
    /// Its last heartbeat.
    pub vitals: Vitals,
    /// The job this endpoint has launched on it.
    pub job: Option<JobId>,
}

/// Why a node counts as lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostReason {
    /// Nothing was heard for [`crate::join::Timing::lost_after`].
    Silent,
    /// A new boot of the same machine has joined.
    Rebooted,
    /// Its kernel panicked.
    Panicked,
    /// Control has switched its machine off, or reset it.
    Switched,
}

/// What happened; drained with [`crate::control::Endpoint::poll_event`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A node has joined (HELLO, WELCOME and its confirmation all arrived), or a lost one is
    /// heard again.
    NodeJoined {
        /// The registry's view, with the vitals of the confirming heartbeat.
        status: Box<NodeStatus>,
        /// The same boot was up before in this run of the control node.
        rejoined: bool,
    },
    /// A node is lost; its ranks' `RankLost` events follow.
    NodeLost {
        /// Which.
        node: NodeId,
        /// Its boot.
        epoch: BootEpoch,
        /// Why.
        reason: LostReason,
        /// When it was last heard.
        last_heard: Instant,
    },
    /// A node has left in good order.
    NodeLeft {
        /// Which.
        node: NodeId,
        /// Its boot.
        epoch: BootEpoch,
    },
    /// A node that was asked to leave does not.
    NodeStays {
        /// Which.
        node: NodeId,
        /// The job for which it stays; none: it did not answer in time.
        job: Option<JobId>,
    },
    /// The hardware of a node has corrected errors of its own.
    HardwareErrors {
        /// Which.
        node: NodeId,
        /// How many since it said so last.
        count: u32,
    },
    /// Somebody was refused. Repeats within ten seconds give no further event.
    Rejected {
        /// The MAC address it states, if it got that far.
        mac: Option<[u8; 6]>,
        /// The node number it states.
        node: NodeId,
        /// Where it came from.
        from: SocketAddrV4,
        /// Class of the reason.
        reason: Refusal,
        /// The reason in words, with what to do.
        text: String,
    },
    /// Two machines with one MAC address are up; the first stays.
    TwoNodesOneMac {
        /// The address.
        mac: [u8; 6],
        /// The first's node number.
        node: NodeId,
        /// The boot that stays.
        first: BootEpoch,
        /// The boot that is refused.
        second: BootEpoch,
        /// Where the second came from.
        from: SocketAddrV4,
    },
    /// A personality was asked for again after its key had been used (see
    /// [`crate::control::Endpoint::issue_key`]).
    KeyReused {
        /// The MAC address.
        mac: [u8; 6],
        /// The boot.
        epoch: BootEpoch,
    },
    /// A node's kernel panicked; `NodeLost` follows.
    NodePanic {
        /// Which.
        node: NodeId,
        /// What it said.
        text: String,
    },
    /// A node holds other programs than it did. Acknowledged with the next
    /// [`crate::control::Endpoint::poll_transmit`]: what must not be forgotten has to be stored
    /// before. Each report comes once, in the order in which the node made them.
    Holdings {
        /// Which.
        node: NodeId,
        /// Its boot: another one holds nothing of this.
        boot_epoch: BootEpoch,
        /// What was reported of this node before is void. Comes first in every session; until it
        /// comes, the node holds what it held when it was last heard, if it has not booted again.
        reset: bool,
        /// What the node holds now of these programs.
        held: Vec<Holding>,
        /// Programs of which it holds nothing any more.
        dropped: Vec<ProgramId>,
    },
    /// Lines of a node's log. Each comes once in a session, in order; the last ones of a session
    /// may come again in the next.
    LogLines {
        /// Which.
        node: NodeId,
        /// Its boot.
        boot_epoch: BootEpoch,
        /// Lines right before these that were lost.
        missed: u32,
        /// Whole lines, each with its line feed: what the node says, not to be trusted by a
        /// terminal.
        text: String,
    },
    /// A node has carried out a [`crate::control::Endpoint::drop_program`]. A `Holdings` event says
    /// what it holds then, before or after this.
    ProgramDropped {
        /// Which.
        node: NodeId,
        /// Number of the command.
        id: u64,
        /// Pages of 4 KiB that were given back.
        pages: u32,
        /// The program runs, and what it leaves will not be held.
        in_use: bool,
    },
    /// A node has dropped every other program, and holds so much of a job's; its LAUNCH is next.
    Retained {
        /// The job.
        job: JobId,
        /// The node.
        node: NodeId,
        /// The first of its ranks.
        rank: Rank,
        /// Pages of 4 KiB held of the program; 0: it is cold.
        pages: u32,
    },
    /// The node of adopted ranks has them still ([`crate::control::Endpoint::adopt`]). `Started` or
    /// `LaunchReady` follows, at once or when it is loaded, then the calls that no run has
    /// answered.
    Claimed {
        /// The job.
        job: JobId,
        /// The node.
        node: NodeId,
        /// The first of its ranks.
        rank: Rank,
        /// Bytes that the first of them has read from its standard input.
        input_bytes: u64,
    },
    /// The ranks of a node are loaded and ready to start.
    LaunchReady {
        /// The job.
        job: JobId,
        /// The node.
        node: NodeId,
        /// The first of its ranks.
        rank: Rank,
        /// Nodes of the job that are still loading; 0: call [`crate::control::Endpoint::start`].
        waiting: u32,
    },
    /// A node refused to launch; its ranks are gone.
    LaunchRefused {
        /// The job.
        job: JobId,
        /// The node.
        node: NodeId,
        /// The first of its ranks.
        rank: Rank,
        /// Class of the reason.
        code: RefusalCode,
        /// The reason in words.
        text: String,
    },
    /// A node has the order to start, or has started by itself
    /// ([`crate::job::StartMode::AtOnce`]). Once, before the first call of any of its ranks.
    Started {
        /// The job.
        job: JobId,
        /// The node.
        node: NodeId,
        /// The first of its ranks.
        rank: Rank,
    },
    /// A rank is gone without an exit report.
    RankLost {
        /// The job.
        job: JobId,
        /// The node.
        node: NodeId,
        /// The rank.
        rank: Rank,
        /// Why.
        reason: RankLoss,
    },
    /// All ranks of a job have exited, been refused or been lost; the endpoint has forgotten it.
    JobClosed {
        /// The job.
        job: JobId,
    },
    /// A node wants pages: answer with [`crate::control::Endpoint::page_data`].
    PageWanted(PageWanted),
    /// A rank's next call, each exactly once and in order: answer with
    /// [`crate::control::Endpoint::io_reply`].
    IoCall {
        /// The node.
        node: NodeId,
        /// The job.
        job: JobId,
        /// The rank.
        rank: Rank,
        /// The call.
        call: CallId,
        /// What to do.
        op: IoOp,
    },
}
