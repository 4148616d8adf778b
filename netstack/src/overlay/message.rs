//! Typed messages between the processes of an overlay. [`super::wire`] turns them into datagrams.
//!
//! Invariant: every list here has a bound that fits a frame.

use alloc::vec::Vec;
use core::fmt;

use super::placement::Factors;
use super::stream::{StreamId, StreamSpec};
use crate::broadcast::Peer;
use crate::ids::{BootEpoch, JobId, NodeId};

/// Entries of a tree in one BUILD.
pub const BUILD_ENTRIES: usize = 64;
/// Processes to attach to that one message names.
pub const MAX_CANDIDATES: usize = 8;
/// Entries of a census in one message.
pub const CENSUS_ENTRIES: usize = 18;

/// A process of the overlay: a back end (slot 0) or a communication process (slots from 1) of a
/// node, or the front end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Process {
    /// Its node.
    pub node: NodeId,
    /// Its number on the node.
    pub slot: u8,
}

impl Process {
    /// The front end.
    pub const FRONT_END: Process = Process {
        node: NodeId(u32::MAX),
        slot: 0,
    };

    /// The back end of a node.
    pub const fn back_end(node: NodeId) -> Process {
        Process { node, slot: 0 }
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Process::FRONT_END => f.write_str("fe"),
            Process { node, slot: 0 } => write!(f, "{node}"),
            Process { node, slot } => write!(f, "{node}:{slot}"),
        }
    }
}

/// One tree that a front end has made. Later ones have higher numbers, over restarts of the front
/// end, too. Zero: none yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TreeEpoch(pub u64);

/// Where a process can attach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Who.
    pub process: Process,
    /// Where its node is reached.
    pub peer: Peer,
    /// Its height in the tree: only what is lower may attach to it.
    pub height: u8,
    /// Children it can still take.
    pub room: u16,
}

/// A line of a subtree, in pre-order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuildEntry {
    /// 1 for a child of the process that gets the list, 2 for a child of the last entry with 1, and
    /// so on.
    pub depth: u8,
    /// Height of the process.
    pub height: u8,
    /// The process.
    pub process: Process,
    /// Where its node is reached.
    pub peer: Peer,
}

/// The part of a subtree's list that one BUILD carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Build {
    /// Whom to attach to.
    pub parent: Candidate,
    /// Height of the process that is built.
    pub height: u8,
    /// Number of this part.
    pub part: u16,
    /// Number of parts, at least 1.
    pub parts: u16,
    /// The descendants, at most [`BUILD_ENTRIES`].
    pub entries: Vec<BuildEntry>,
}

/// How the front end stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TreeState {
    /// No tree yet: wait for BUILD.
    Waiting,
    /// There is a tree: attach to one of the candidates.
    Up,
    /// The tree was taken down: be silent.
    Down,
}

/// What a node tells the front end of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// It has a back end (else it is dedicated to communication processes).
    pub back_end: bool,
    /// Communication processes it can host.
    pub cps: u8,
    /// Auxiliary service processes that its configuration triggers, a bit for each kind.
    pub auxiliary: u32,
    /// Its job.
    pub job: Option<JobId>,
    /// What it is judged by.
    pub factors: Factors,
}

/// A child asks to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attach {
    /// Number of the link, rising with each attempt of this process in this boot.
    pub link: u32,
    /// Height of the child.
    pub height: u8,
    /// Children it can take.
    pub room: u16,
    /// It sends nothing until its job ends.
    pub quiet: bool,
    /// It had another parent in this tree before.
    pub moved: bool,
    /// Its clock, in microseconds; comes back.
    pub time: u64,
}

/// What becomes of an ATTACH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachAnswer {
    /// Taken.
    Taken,
    /// There are as many children as there may be.
    Full,
    /// Not from below: the child is not lower than this process.
    NotBelow,
    /// This process has no parent itself.
    Loose,
    /// There is no such process here.
    Gone,
}

/// The answer to an ATTACH.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachAck {
    /// Number of the link.
    pub link: u32,
    /// What became of it.
    pub answer: AttachAnswer,
    /// The child's place among the children, from 0.
    pub index: u16,
    /// Where the turns of the parent's children begin, in 65,536ths of a round.
    pub shift: u16,
    /// The `time` of the ATTACH.
    pub echo: u64,
    /// The overlay's clock, in microseconds.
    pub overlay: u64,
    /// Round trips over which the sender knows it, together, in microseconds; 0: it is the front
    /// end.
    pub trip_us: u32,
    /// Where to attach when this process is lost, at most [`MAX_CANDIDATES`].
    pub kin: Vec<Candidate>,
}

/// What every REPORT says of its sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Number of the link.
    pub link: u32,
    /// The sender's clock, in microseconds.
    pub time: u64,
    /// Wants a BEAT.
    pub answer: bool,
    /// Sends nothing until its job ends.
    pub quiet: bool,
    /// Children it can still take.
    pub room: u16,
    /// Back ends attached below, itself included, but for those that send nothing until their job
    /// ends.
    pub back_ends: u32,
    /// Those that send nothing.
    pub quiet_below: u32,
    /// Communication processes attached below, itself included.
    pub cps: u32,
    /// Samples handed up on this link, those of this message included.
    pub handed: u64,
    /// Samples made by this process in this boot.
    pub submitted: u64,
    /// Samples given up by this process in this boot: no parent, no room, no such stream.
    pub dropped: u64,
    /// Time from a tick's begin until this process passed it on, the last one, in microseconds.
    pub lag_us: u32,
}

/// The answer to a REPORT that wants one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beat {
    /// Number of the link.
    pub link: u32,
    /// The `time` of the REPORT.
    pub echo: u64,
    /// The overlay's clock, in microseconds.
    pub overlay: u64,
    /// Round trips over which the sender knows it, together, in microseconds; 0: it is the front
    /// end.
    pub trip_us: u32,
    /// Samples received on the link.
    pub received: u64,
    /// News of whom to attach to when this process is lost; empty: no news.
    pub kin: Vec<Candidate>,
    /// Other children of this process, for the child's own children; empty: no news.
    pub siblings: Vec<Candidate>,
}

/// What entries of a census are told apart by: the child, its boot, the link, and who speaks
/// ([`CensusEntry::own`]).
pub type CensusKey = (Process, BootEpoch, u32, bool);

/// What a parent knows of a child, for the front end; or a child's own word about a link that is
/// over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CensusEntry {
    /// The child.
    pub process: Process,
    /// Its boot.
    pub boot: BootEpoch,
    /// The other end of the link.
    pub parent: Process,
    /// Number of the link between them.
    pub link: u32,
    /// The parent says that the link is over: what it received is final.
    pub gone: bool,
    /// The link ended with the tree: what the parent received is final.
    pub last: bool,
    /// The child itself says so: what it handed up on the link is final. For the books only;
    /// `received` and what stands for the tree say nothing.
    pub own: bool,
    /// Kept by a node after the parent's role ended, perhaps with an earlier tree: for the books
    /// only.
    pub earlier: bool,
    /// The child sends nothing until its job ends.
    pub quiet: bool,
    /// There is no child: its node has no room for such a process. The rest says nothing.
    pub refused: bool,
    /// Height of the child.
    pub height: u8,
    /// Back ends below it.
    pub back_ends: u32,
    /// As in [`Standing`].
    pub submitted: u64,
    /// As in [`Standing`].
    pub dropped: u64,
    /// As in [`Standing`].
    pub handed: u64,
    /// Samples that arrived.
    pub received: u64,
    /// As in [`Standing`].
    pub lag_us: u32,
}

impl CensusEntry {
    /// See [`CensusKey`].
    pub fn key(&self) -> CensusKey {
        (self.process, self.boot, self.link, self.own)
    }
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Node to front end: I am here.
    Hello(Hello),
    /// Front end to node: how the tree stands, and where to attach.
    HelloAck {
        /// The state.
        state: TreeState,
        /// Where to attach, at most [`MAX_CANDIDATES`].
        candidates: Vec<Candidate>,
    },
    /// Parent (or front end) to a process to be: attach to this parent, and build what is below
    /// you.
    Build(Build),
    /// Answer: the part that is wanted next; as many as there are: all have arrived.
    BuildAck {
        /// Number of the part.
        next: u16,
        /// There is no room for such a process here.
        refused: bool,
    },
    /// Child to parent.
    Attach(Attach),
    /// Parent to child.
    AttachAck(AttachAck),
    /// Child to parent: values, and how it stands.
    Report {
        /// How it stands.
        standing: Standing,
        /// Sections one after the other, see [`super::section`].
        sections: Vec<u8>,
    },
    /// Parent to child.
    Beat(Beat),
    /// Parent to child: this stream is open, or closed (no specification).
    Stream {
        /// Its number.
        id: StreamId,
        /// Rising with each change of any stream. 0: not known here; forget it until it is told
        /// anew.
        version: u32,
        /// What it is.
        spec: Option<StreamSpec>,
    },
    /// Child to parent: heard.
    StreamAck {
        /// Its number.
        id: StreamId,
        /// The version.
        version: u32,
    },
    /// To who takes this process for its parent: it is not, or not any more.
    Detach {
        /// Number of the link.
        link: u32,
    },
    /// Parent to child: the tree is taken down.
    TakeDown,
    /// Child to parent: everything below me is down, and this is all I have sent.
    Taken {
        /// The last standing.
        standing: Standing,
    },
    /// Child to parent, on to the front end: what is known of processes.
    Census {
        /// Number of the message on its link.
        number: u32,
        /// At most [`CENSUS_ENTRIES`].
        entries: Vec<CensusEntry>,
    },
    /// Parent to child: noted.
    CensusAck {
        /// Number of the message.
        number: u32,
    },
}

/// A message with its envelope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The sender.
    pub from: Process,
    /// The boot of its node.
    pub boot: BootEpoch,
    /// The Ethernet address of its node, zero where the receiver's system resolves addresses.
    pub mac: [u8; 6],
    /// The process on the receiving node that it is for.
    pub to_slot: u8,
    /// The tree it belongs to.
    pub tree: TreeEpoch,
    /// The message.
    pub message: Message,
}
