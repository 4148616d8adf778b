//! Function-shipped I/O: a program's calls are carried out at the control node, exactly once and
//! in the order in which they were made.
//!
//! The node numbers the calls of each rank from 1. At most [`WINDOW`] are under way; the control
//! side hands them on in order and remembers the replies of the last window. A call is PENDING
//! until the control node's user replies: not replying to a write is how a slow reader holds a
//! program back.

pub(crate) mod client;
pub mod exit;
pub(crate) mod server;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

pub use exit::{ExitReport, ExitStatus};

use crate::MAX_DATA;

/// Calls of one rank that may be under way: with [`MAX_DATA`] it is 10 KB per round trip, and a
/// control node needs to keep no more than this for each rank.
pub const WINDOW: u32 = 8;
/// Bytes of call data a rank may have queued at its node, under way or waiting for the window.
pub const MAX_QUEUED_BYTES: usize = 64 * 1024;
/// Calls a rank may have queued at its node.
pub const MAX_QUEUED_CALLS: usize = 256;
/// Most bytes of data in one call or reply.
pub const MAX_CALL_DATA: usize = MAX_DATA;
/// The errno of an answer that cannot be right (Linux's EIO).
pub(crate) const EIO: i64 = 5;
/// The descriptor that a core file is written to: no program has it, the node itself writes.
pub const CORE_FILE: u32 = 3;
/// As an `offset`: the stream's own position.
pub const OFFSET_CURRENT: u64 = u64::MAX;

/// A call that a node ships to the control node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IoOp {
    /// Write `data` (at most [`MAX_CALL_DATA`] bytes) to a descriptor.
    Write {
        /// File descriptor as the program knows it.
        fd: u32,
        /// Position in the file, or [`OFFSET_CURRENT`].
        offset: u64,
        /// The bytes.
        data: Vec<u8>,
    },
    /// Read up to `size` bytes (at most [`MAX_CALL_DATA`]) from a descriptor. The reply's result
    /// is the number of bytes, 0 at the end of the file.
    Read {
        /// File descriptor as the program knows it.
        fd: u32,
        /// Position in the file, or [`OFFSET_CURRENT`].
        offset: u64,
        /// Most bytes wanted.
        size: u32,
    },
    /// A piece of the report on how the program failed (UTF-8 text), before `Exit`.
    Report {
        /// Where the piece belongs in the whole text.
        offset: u32,
        /// The piece, at most [`MAX_CALL_DATA`] bytes.
        data: Vec<u8>,
    },
    /// The program has ended; always a rank's last call, so it arrives after all output.
    Exit(Box<ExitReport>),
}

/// The answer to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IoReply {
    /// Bytes written or read, or a negated errno.
    pub result: i64,
    /// The bytes read, at most [`MAX_CALL_DATA`].
    pub data: Vec<u8>,
}

/// Why a call was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubmitError {
    /// The rank's queue is full ([`MAX_QUEUED_BYTES`], [`MAX_QUEUED_CALLS`]): wait for an
    /// `IoDone` and submit again.
    Full,
    /// The node has no such job, or it has been ended by the control node.
    UnknownJob,
    /// More data or a larger size than [`MAX_CALL_DATA`]: split the call.
    TooLarge,
    /// `Exit` was submitted before; nothing may follow it.
    AfterExit,
}

/// Text cut to `limit` bytes at a character boundary.
pub(crate) fn clip(text: &str, limit: usize) -> String {
    let mut end = text.len().min(limit);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    String::from(&text[..end])
}
