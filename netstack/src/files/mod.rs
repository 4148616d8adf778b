//! Calls on files, shipped to an I/O service: the node asks, the service carries out.
//!
//! The protocol is that of one *channel* for each rank of a job. The node numbers its calls from
//! 1; several may be under way, and the service may carry them out in any order. A call has input
//! bytes (a path, what is to be written) and output bytes (what was read). What fits travels in
//! the call and in the reply; the rest is pulled by its receiver in fragments
//! ([`crate::transport::pull`]). Bulk data therefore has one congestion control, for reads as for
//! writes. The first fragments, of all calls of a channel at most [`EARLY`], come without being
//! asked for: a small file is read, or written, in one round trip.
//!
//! | item | what it is |
//! |---|---|
//! | [`Call`], [`Op`] | what is asked for |
//! | [`Metadata`], [`FileSystem`], [`Entry`], [`CastObject`] | what comes back, as bytes |
//! | [`wire`] | the four messages |
//! | [`client::Client`] | the node's side |
//! | [`server::Server`] | the service's side |
//!
//! Each call is carried out exactly once: the service keeps a reply until the node says that it has
//! it (`done` in every call), and a call that is older than that is passed over. A service that was
//! started again knows no call of the run before it: the node is told so, and its calls under way
//! fail with EIO. One that no run can have carried out ends as [`NOT_CARRIED_OUT`]. A call that
//! names no run is refused, since every service would take it.
//!
//! Source: function shipping of I/O in Blue Gene's CNK and its I/O daemon (Moreira et al.,
//! *Designing a highly-scalable operating system: the Blue Gene/L story*, 2006).
//!
//! Invariant: neither side allocates for more than [`WINDOW`] calls of [`MAX_TRANSFER`] bytes a
//! channel.

pub mod client;
mod metadata;
pub mod server;
pub mod wire;

use alloc::vec::Vec;

pub use metadata::{Entry, FileSystem, METADATA_LEN, Metadata};

use crate::ids::{JobId, Rank};
use crate::wire::datagram::MAX_PAYLOAD;

/// Calls of one channel that may be under way.
pub const WINDOW: u64 = 64;
/// Bytes of a fragment: what fits a datagram.
pub const FRAGMENT: usize = MAX_PAYLOAD - wire::DATA_LEN;
/// Most input, and most output, of a call in bytes. It is a power of two that 64 fragments hold.
pub const MAX_TRANSFER: usize = 64 * 1024;
/// Bytes of a write that are appended to a file at once: a longer one is several appends.
pub const RECORD_MAX: u64 = 1024 * 1024;
/// Fragments of a channel that may be on their way without having been asked for, each way: the
/// initial window of RFC 6928.
pub const EARLY: u32 = 10;
/// The directory that the program was started in, as a handle; handles of open files are others.
pub const WORKING: u32 = 0;
/// Result that the node's side gives to a call which another run of the service was to carry out
/// than the one that runs, and which none has: it can be made again, with handles of this run. No
/// error of Linux has this number.
pub const NOT_CARRIED_OUT: i64 = -512;
/// In `words[1]` of [`Op::Read`]: the answer may be [`IS_CAST`].
pub const TAKES_CAST: u64 = 1;
/// Result of [`Op::Read`]: the file is in the node's memory, or on its way there by a broadcast.
/// Output: the object ([`CastObject`]); none: there is going to be one, ask again. No error of
/// Linux has this number.
pub const IS_CAST: i64 = -513;
/// Bytes that the output of [`Op::Open`] has behind the metadata.
pub const BOOT_LEN: usize = 8;

const _: () = assert!(MAX_TRANSFER.div_ceil(FRAGMENT) <= u64::BITS as usize);

/// One rank's calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId {
    /// The job.
    pub job: JobId,
    /// The rank.
    pub rank: Rank,
}

/// What a call does. `handles`, `words`, `input` and `output` are those of [`Call`]; flags, modes
/// and errors have the numbers of Linux x86-64. A path is relative to the directory `handles[0]`
/// unless it begins with `/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Op {
    /// words: flags, mode; input: path. Result: a handle; output: [`Metadata`], then a number that
    /// is another after each boot of the service's machine ([`BOOT_LEN`] bytes).
    Open = 1,
    /// Gives `handles[0]` back; no other call may be under way that uses it. [`WORKING`]: the rank
    /// has ended, and all that it has open is closed.
    Close = 2,
    /// words: offset, [`TAKES_CAST`] or 0. Output: the bytes, fewer than `room` only at the end.
    Read = 3,
    /// words: offset; input: the bytes. Of a handle that appends, output: the position behind the
    /// last byte (u64).
    ///
    /// A piece of a longer write has three words more: the number of the call with the first piece
    /// (0: it is this one), where in the write it begins, bytes of the whole write. The service
    /// may be given the pieces in any order and carries them out in theirs, an append of up to
    /// [`RECORD_MAX`] bytes at once. Result: 0, or the error that has ended the write; output:
    /// bytes of the write that are in the file by now (u64), then of a handle that appends the
    /// position behind them (u64). A write that is cut short ends with a piece of no bytes, whose
    /// begin is the length.
    Write = 4,
    /// words: position, 0 at first. Output: [`Entry`]s, as many as `room` takes; none: the end.
    ReadDirectory = 5,
    /// words: flags of fstatat; input: path, or none for `handles[0]` itself. Output: [`Metadata`].
    Stat = 6,
    /// input: path, or none for `handles[0]`. Output: [`FileSystem`].
    StatFileSystem = 7,
    /// words: mode, flags of faccessat; input: path.
    Access = 8,
    /// words: mode; input: path.
    MakeDirectory = 9,
    /// words: flags of unlinkat; input: path.
    Remove = 10,
    /// words: flags of renameat2; input: two paths with a zero byte between; the second is
    /// relative to `handles[1]`.
    Rename = 11,
    /// words: flags of linkat; input: as [`Op::Rename`].
    Link = 12,
    /// input: what the link says, a zero byte, the path.
    SymbolicLink = 13,
    /// input: path. Output: what the link says.
    ReadLink = 14,
    /// words: mode, flags of fchmodat; input: path, or none for `handles[0]`.
    ChangeMode = 15,
    /// words: user, group, flags of fchownat; input: path, or none for `handles[0]`.
    ChangeOwner = 16,
    /// words: seconds of the last access, of the last change, nanoseconds of both (that of the
    /// access in the lower half; UTIME_NOW and UTIME_OMIT count), flags of utimensat; input: path,
    /// or none for `handles[0]`.
    SetTimes = 17,
    /// words: length; input: path, or none for `handles[0]`.
    SetLength = 18,
    /// words: mode, offset, length of fallocate.
    Allocate = 19,
    /// words: 1 for fdatasync, 0 for fsync.
    Sync = 20,
    /// words: offset, whence: SEEK_DATA or SEEK_HOLE. Result: the position.
    Seek = 21,
    /// words: what ([`Lock`]), first byte, length (0: to the end), [`LOCK_TESTS`] and
    /// [`LOCK_FROM_END`]. Output of a test: kind, first byte, length (u64 each) of a lock in the
    /// way, or none.
    Lock = 22,
    /// words: offset in `handles[0]`, offset in `handles[1]`, length. Result: bytes copied.
    Copy = 23,
    /// Output: the absolute path of `handles[0]`.
    Path = 24,
    /// words: O_APPEND and O_NONBLOCK, as F_SETFL takes them.
    SetFlags = 25,
}

impl Op {
    /// All operations.
    pub const ALL: [Op; 25] = [
        Op::Open,
        Op::Close,
        Op::Read,
        Op::Write,
        Op::ReadDirectory,
        Op::Stat,
        Op::StatFileSystem,
        Op::Access,
        Op::MakeDirectory,
        Op::Remove,
        Op::Rename,
        Op::Link,
        Op::SymbolicLink,
        Op::ReadLink,
        Op::ChangeMode,
        Op::ChangeOwner,
        Op::SetTimes,
        Op::SetLength,
        Op::Allocate,
        Op::Sync,
        Op::Seek,
        Op::Lock,
        Op::Copy,
        Op::Path,
        Op::SetFlags,
    ];

    /// The operation with this number.
    pub fn from_wire(raw: u8) -> Option<Self> {
        let index = usize::from(raw).checked_sub(1)?;
        Self::ALL.get(index).copied()
    }
}

/// In `words[3]` of [`Op::Lock`]: nothing is locked, what is in the way is told.
pub const LOCK_TESTS: u64 = 1;
/// In `words[3]` of [`Op::Lock`]: the first byte is counted from the end of the file, and it and
/// the length are signed.
pub const LOCK_FROM_END: u64 = 2;

/// What [`Op::Lock`] does, as `words[0]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Lock {
    /// A range that others may read.
    Read = 0,
    /// A range that nobody else has.
    Write = 1,
    /// The range is free.
    Free = 2,
    /// flock: the whole file, shared.
    WholeRead = 3,
    /// flock: the whole file.
    WholeWrite = 4,
    /// flock: the whole file is free.
    WholeFree = 5,
}

impl Lock {
    /// The meaning of `words[0]`.
    pub fn from_word(word: u64) -> Option<Self> {
        Some(match word {
            0 => Self::Read,
            1 => Self::Write,
            2 => Self::Free,
            3 => Self::WholeRead,
            4 => Self::WholeWrite,
            5 => Self::WholeFree,
            _ => return None,
        })
    }
}

/// A call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// What to do.
    pub op: Op,
    /// Handles of open files; those that the operation does not name are 0.
    pub handles: [u32; 2],
    /// Numbers; those that the operation does not name are 0.
    pub words: [u64; 4],
    /// Bytes, at most [`MAX_TRANSFER`].
    pub input: Vec<u8>,
    /// Most bytes of output, at most [`MAX_TRANSFER`].
    pub room: u32,
}

impl Call {
    /// A call without numbers, input and output.
    pub fn new(op: Op, handle: u32) -> Self {
        Self {
            op,
            handles: [handle, 0],
            words: [0; 4],
            input: Vec::new(),
            room: 0,
        }
    }

    /// With these numbers first.
    #[must_use]
    pub fn with_words<const N: usize>(mut self, words: [u64; N]) -> Self {
        self.words[..N].copy_from_slice(&words);
        self
    }

    /// With this input.
    #[must_use]
    pub fn with_input(mut self, input: Vec<u8>) -> Self {
        self.input = input;
        self
    }

    /// With room for so many bytes of output.
    #[must_use]
    pub fn with_room(mut self, room: usize) -> Self {
        self.room = room.min(MAX_TRANSFER) as u32;
        self
    }
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// What the operation gives, or a negated error number.
    pub result: i64,
    /// Bytes, at most the call's `room`.
    pub output: Vec<u8>,
}

impl Reply {
    /// A result without output.
    pub fn plain(result: i64) -> Self {
        Self {
            result,
            output: Vec::new(),
        }
    }
}

/// A file as a broadcast brings it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CastObject {
    /// BLAKE3 hash of what it holds.
    pub id: [u8; 32],
    /// Its length in bytes.
    pub bytes: u64,
}

impl CastObject {
    /// Bytes of one.
    pub const LEN: usize = 40;

    /// The output of a read.
    pub fn to_bytes(&self) -> Vec<u8> {
        [&self.id[..], &self.bytes.to_le_bytes()].concat()
    }

    /// From the output of a read; `None` where it is none.
    pub fn parse(output: &[u8]) -> Option<Self> {
        let (id, bytes) = output.split_first_chunk()?;
        let bytes = u64::from_le_bytes(bytes.try_into().ok()?);
        Some(Self { id: *id, bytes })
    }
}

/// How the input or output of a call travels: the first bytes in the call or reply itself, the
/// others in fragments.
#[derive(Clone, Copy, Debug)]
struct Layout {
    bytes: usize,
    inline: usize,
}

impl Layout {
    fn input(bytes: usize) -> Self {
        Self {
            bytes,
            inline: wire::INLINE_INPUT,
        }
    }

    fn output(bytes: usize) -> Self {
        Self {
            bytes,
            inline: wire::INLINE_OUTPUT,
        }
    }

    /// How many fragments there are.
    fn count(self) -> u32 {
        self.bytes.saturating_sub(self.inline).div_ceil(FRAGMENT) as u32
    }

    /// All fragments, as a mask.
    fn all(self) -> u64 {
        first_fragments(self.count())
    }

    /// The bytes of a fragment.
    fn range(self, fragment: u8) -> core::ops::Range<usize> {
        let start = self.inline + usize::from(fragment) * FRAGMENT;
        start.min(self.bytes)..(start + FRAGMENT).min(self.bytes)
    }

    /// A buffer of which the first bytes are here. `None` without memory for it.
    fn buffer(self, first: &[u8]) -> Option<Vec<u8>> {
        let mut buffer = Vec::new();
        buffer.try_reserve_exact(self.bytes).ok()?;
        buffer.extend_from_slice(&first[..first.len().min(self.bytes)]);
        buffer.resize(self.bytes, 0);
        Some(buffer)
    }

    /// Puts a fragment in its place and takes it off the mask of those that are missing. False
    /// when it was there already, or is none of this buffer.
    fn put(self, buffer: &mut [u8], missing: &mut u64, fragment: u8, bytes: &[u8]) -> bool {
        let range = self.range(fragment);
        let bit = 1_u64.checked_shl(fragment.into()).unwrap_or(0);
        if *missing & bit == 0 || range.len() != bytes.len() {
            return false;
        }
        *missing &= !bit;
        buffer[range].copy_from_slice(bytes);
        true
    }
}

/// The first so many fragments, as a mask.
fn first_fragments(count: u32) -> u64 {
    match count {
        0 => 0,
        count => u64::MAX >> (u64::BITS - count),
    }
}

#[cfg(test)]
mod tests;
