//! The nodes as the job runner sees them: what it tells them, what they ask, what they hold.
//!
//! Key types: [`Fabric`] (implemented over `netstack::control::Endpoint` in `control`, and by a
//! recording fake in the runner's tests), [`Call`] and [`Reply`] (one I/O call of a rank).
//!
//! Invariant: every [`Call`] gets exactly one [`Reply`]; calls of one rank reach the runner in
//! the order in which the program made them.

use std::sync::Arc;

use netstack::ids::{CallId, JobId, NodeId, Rank};
use netstack::job::AdoptedRank;

use super::allocator::WarmNodes;
use super::retention::Plan;
use crate::api::types::{IoPart, LoadReport, RankEnd, RankReport};
use crate::casts::for_jobs::{Brought, JobFile, ProgramCast};
use crate::io_service::Mounts;

/// What a job's nodes are told when it is launched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// The job.
    pub job: JobId,
    /// When it was handed in, in microseconds since 1970.
    pub submitted_us: u64,
    /// Its nodes in the order of ranks, each with how many of them it has.
    pub nodes: Vec<(NodeId, u16)>,
    /// Program id.
    pub program: [u8; 32],
    /// Size of the program's file, in bytes.
    pub program_bytes: u64,
    /// Launch block of each node.
    pub launch_blocks: Vec<Arc<[u8]>>,
    /// Time limit in microseconds; 0: none.
    pub time_limit_us: u64,
    /// Cores of each rank; 0: all of its node, shared out.
    pub cores: u16,
    /// Most bytes of a core file of each rank; 0: none.
    pub core_bytes: u64,
    /// What it sees of the control node's directories.
    pub mounts: Option<Mounts>,
    /// The I/O services that its nodes call.
    pub io: Vec<IoPart>,
    /// Reuse of retained pages, and when the ranks begin.
    pub plan: Plan,
}

/// How nodes are to end a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndBy {
    /// The signal that ends it; with a grace the one that its programs get first.
    pub signal: i32,
    /// How long the programs may go on after that, in microseconds; 0: they end at once.
    pub grace_us: u64,
}

impl EndBy {
    /// At once, with a signal.
    pub fn at_once(signal: i32) -> Self {
        EndBy {
            signal,
            grace_us: 0,
        }
    }
}

/// How the runner reaches nodes. Calls do not block; what cannot be delivered shows as a lost
/// node.
pub trait Fabric {
    /// Nodes that hold a program, as far as control knows: the look into the node status table.
    fn warm_nodes(&self, program: &[u8; 32]) -> WarmNodes;
    /// Which I/O service each of these nodes calls, in their order; `known` are the numbers of all
    /// nodes, ascending.
    ///
    /// # Errors
    /// There is none now; for people.
    fn file_services(&self, known: &[u32], nodes: &[(NodeId, u16)]) -> Result<Vec<IoPart>, String>;
    /// Tells the nodes of a job to prepare.
    ///
    /// # Errors
    /// Why no node was told anything, for people.
    fn launch(&mut self, launch: Launch) -> Result<(), String>;
    /// Has the files of a job cast to those of its nodes that lack them; when they are coming,
    /// [`super::Runner::files_here`] or [`super::Runner::files_failed`] follows.
    ///
    /// # Errors
    /// Why they cannot come, for people.
    fn bring(&mut self, job: JobId, nodes: &[u32], files: &[JobFile]) -> Result<Brought, String>;
    /// A job does not wait for its files any more.
    fn give_up(&mut self, job: JobId);
    /// Has a job's program cast, beside the launch that follows; [`super::Runner::loaded`] tells
    /// how it goes.
    ///
    /// # Errors
    /// Why it cannot be cast, for people.
    fn cast_program(&mut self, of: &ProgramCast<'_>) -> Result<LoadReport, String>;
    /// Goes on with a job that an earlier run of control launched, `begun` if all its ranks were
    /// told to start; `ranks` says of each how it stands. [`super::Runner::claimed`] or
    /// [`super::Runner::rank_lost`] follows for each that is open, when its node is heard.
    ///
    /// # Errors
    /// Why it cannot be gone on with, for people.
    fn adopt(&mut self, launch: Launch, begun: bool, ranks: &[AdoptedRank]) -> Result<(), String>;
    /// A node with an adopted rank is not waited for any longer; false, and nothing happens, when
    /// it has been heard.
    fn abandon(&mut self, node: NodeId, job: JobId) -> bool;
    /// Tells all nodes of a job to begin.
    fn start(&mut self, job: JobId);
    /// Tells all nodes of a job to end it.
    fn cancel(&mut self, job: JobId, by: EndBy);
    /// Has all ranks of a job get a signal, 1 to 64.
    fn signal(&mut self, job: JobId, signal: i32);
    /// Answers an I/O call.
    fn reply(&mut self, node: NodeId, by: (JobId, Rank), call: CallId, reply: Reply);
    /// Answers a call with which a rank ends, once that is written down: until then its node keeps
    /// the rank's end, and tells it again to a control node that was started again.
    fn reply_last(&mut self, node: NodeId, by: (JobId, Rank), call: CallId, reply: Reply);
}

/// An I/O call of a rank.
#[derive(Debug, Clone, PartialEq)]
pub enum Call {
    /// write(2) to a standard stream.
    Write {
        /// 1 or 2; others are answered EBADF.
        fd: u32,
        /// The bytes.
        data: Vec<u8>,
    },
    /// read(2) from standard input.
    Read {
        /// 0; others are answered EBADF.
        fd: u32,
        /// Most bytes wanted.
        size: usize,
    },
    /// A part of the fault report.
    Report {
        /// Place of the part in the report, in bytes.
        offset: usize,
        /// The part.
        data: Vec<u8>,
    },
    /// The rank ended; its last call.
    Exit(Box<Exit>),
    /// A call of a later protocol; answered ENOSYS.
    Unknown,
}

/// How a rank ended and what it counted; fields of [`RankReport`] that control knows itself are
/// not filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct Exit {
    /// How it ended.
    pub end: RankEnd,
    /// Its counters.
    pub report: RankReport,
}

/// The answer to a [`Call`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// Done; so many bytes were written, or 0.
    Done(usize),
    /// The bytes read; none at the end of input.
    Data(Vec<u8>),
    /// It failed with this errno.
    Error(i32),
}
