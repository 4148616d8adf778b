//! What an object is known by, how it is cut into parts, and what can be said of it.
//!
//! Invariant: a [`Shape`] that is sound fits the index; a part's place lies inside its object.

use core::fmt;

use super::OBJECTS_MAX;
use crate::addr::PAGE_SIZE;
use crate::pagehash::{HASH_BYTES, Hash};

/// Data blocks whose hashes one list block holds.
pub const LIST_ENTRIES: u64 = 256;
/// Bytes of a whole list block.
const LIST_BYTES: u64 = LIST_ENTRIES * HASH_BYTES as u64;
/// Most list blocks of an object: with blocks of 64 KiB that are 512 MiB.
pub const LISTS_MAX: u64 = 32;
/// Blocks are 4 KiB to 64 KiB.
pub const BLOCK_LOG2: core::ops::RangeInclusive<u8> = 12..=16;

// The largest object and its lists fit the index.
const _: () = assert!(
    ((LISTS_MAX * LIST_ENTRIES) << *BLOCK_LOG2.end()) / PAGE_SIZE
        + LISTS_MAX * LIST_BYTES / PAGE_SIZE
        <= super::index::PAGES_MAX
);

/// An object by the BLAKE3 hash of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectId(pub Hash);

/// A unit in which an object arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The hashes of 256 data blocks in a row.
    List(u32),
    /// A block of the object's bytes.
    Data(u32),
}

/// What an object is kept for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Pages of a program, until memory is short.
    Image,
    /// A file for jobs, until it is dropped.
    File,
}

/// An object that is going to arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Its identity.
    pub id: ObjectId,
    /// Its length in bytes.
    pub bytes: u64,
    /// Bytes of a block as a power of two, in [`BLOCK_LOG2`].
    pub block_log2: u8,
    /// What it is kept for.
    pub kept: Kept,
    /// Pages of data that will be written, for which there must be room; all by default.
    pub missing_pages: u64,
}

impl Spec {
    /// An object of which every block is going to be written.
    pub const fn new(id: ObjectId, bytes: u64, block_log2: u8, kept: Kept) -> Self {
        Self {
            id,
            bytes,
            block_log2,
            kept,
            missing_pages: bytes.div_ceil(PAGE_SIZE),
        }
    }

    pub(super) const fn shape(&self) -> Shape {
        Shape {
            bytes: self.bytes,
            block_log2: self.block_log2,
        }
    }
}

/// No memory for an object. In bytes, frames of its index included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom {
    /// What it needs.
    pub needed_bytes: u64,
    /// What is to be had.
    pub available_bytes: u64,
}

/// Why an object is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It does not fit.
    NoRoom(NoRoom),
    /// There are [`OBJECTS_MAX`] objects.
    TooMany,
    /// Its block size is none, or it has more than [`LISTS_MAX`] lists of blocks.
    BadShape,
    /// It is here, all or in part.
    Exists,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRoom(room) => write!(
                f,
                "it needs {} KiB and {} KiB are to be had",
                room.needed_bytes / 1024,
                room.available_bytes / 1024
            ),
            Self::TooMany => write!(f, "there are {OBJECTS_MAX} objects"),
            Self::BadShape => f.write_str("its blocks do not fit a node's store"),
            Self::Exists => f.write_str("it is here and in use"),
        }
    }
}

/// Why a part is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteError {
    /// There is no frame for it.
    NoRoom(NoRoom),
    /// There is no such object, or it has no such part of this length.
    NoSuchPart,
}

/// What is known of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// Its length in bytes.
    pub bytes: u64,
    /// Bytes of a block as a power of two.
    pub block_log2: u8,
    /// What it is kept for.
    pub kept: Kept,
    /// Data blocks that have arrived.
    pub blocks: u64,
    /// Whether that is all of them.
    pub complete: bool,
    /// Whether every page is here too: none was taken or is kept elsewhere.
    pub whole: bool,
    /// Whether something holds it.
    pub in_use: bool,
}

/// Length and block size, and what follows from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) bytes: u64,
    pub(super) block_log2: u8,
}

impl Shape {
    pub(super) const fn blocks(&self) -> u64 {
        self.bytes.div_ceil(1 << self.block_log2)
    }

    pub(super) const fn lists(&self) -> u64 {
        self.blocks().div_ceil(LIST_ENTRIES)
    }

    pub(super) const fn data_pages(&self) -> u64 {
        self.bytes.div_ceil(PAGE_SIZE)
    }

    pub(super) const fn list_pages(&self) -> u64 {
        (self.blocks() * HASH_BYTES as u64).div_ceil(PAGE_SIZE)
    }

    pub(super) const fn pages(&self) -> u64 {
        self.data_pages() + self.list_pages()
    }

    pub(super) fn is_sound(&self) -> bool {
        // Before anything is multiplied.
        let limit = LISTS_MAX * LIST_ENTRIES;
        BLOCK_LOG2.contains(&self.block_log2) && self.blocks() <= limit
    }

    /// Number of the part's mark, its first page and its length in bytes.
    pub(super) fn place(&self, part: Part) -> Option<(usize, u64, usize)> {
        let (mark, page, start, whole, total) = match part {
            Part::List(n) => {
                let (n, total) = (u64::from(n), self.blocks() * HASH_BYTES as u64);
                let first = self.data_pages() + n * (LIST_BYTES / PAGE_SIZE);
                (n, first, n * LIST_BYTES, LIST_BYTES, total)
            }
            Part::Data(n) => {
                let n = u64::from(n);
                let (start, block) = (n << self.block_log2, 1 << self.block_log2);
                (
                    self.lists() + n,
                    start / PAGE_SIZE,
                    start,
                    block,
                    self.bytes,
                )
            }
        };
        let length = total
            .checked_sub(start)
            .filter(|&rest| rest > 0)?
            .min(whole);
        Some((mark as usize, page, length as usize))
    }
}
