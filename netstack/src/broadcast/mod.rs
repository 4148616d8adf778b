//! Chunked broadcast: one object from the control node to many nodes, in little more than the
//! time that one link needs for it.
//!
//! One engine serves every scheme: *pull with parked requests*. A member asks for blocks; a
//! request for what is not there yet waits at its holder, which is credit for a push. A
//! [`plan::Planner`] decides whom a member asks for which block, and when:
//!
//! - [`published`]: the method as published, and its page;
//! - [`grid`]: ours for large casts; [`double_tree`]: ours for little data;
//! - `shape`: which of them a cast has.
//!
//! The engine:
//!
//! - [`Member`] and [`Source`] are the facades for a node and for the control node, beside
//!   [`crate::node::Endpoint`] and [`crate::control::Endpoint`]: they share the socket, nothing
//!   else.
//! - `station`: what both are made of: casts, the outbox, the pacers.
//! - [`message`]: typed messages; a train of DATA datagrams is one message.
//! - `cast`: one cast at one station: `pulling` and `serving` of blocks, `spreading` of what
//!   members are told, `way` for how far they are; `roster` has their addresses.
//!
//! Invariant: no payload leaves a member before its hash was checked; every table here has a
//! bound and every wait a limit, so that a cast ends for every living member.

use alloc::string::String;
use core::net::SocketAddrV4;

pub use crate::ids::CastId;
pub use crate::page::FRAGMENT;

use crate::ids::JobId;

pub mod bitmap;
mod cast;
pub mod double_tree;
pub mod event;
pub mod grid;
pub mod hashes;
pub mod member;
pub mod message;
mod outbox;
mod pace;
pub mod plan;
pub mod published;
mod roster;
mod shape;
pub mod source;
mod station;
mod suspects;
pub mod table;
#[cfg(test)]
mod tests;
pub mod wire;

pub use event::{
    CastCounters, EndReason, FailReason, Footprint, MemberEvent, MemberFailure, Progress,
    RefuseReason, SourceEvent,
};
pub use hashes::{
    HASH_BYTES, Hash, Hasher, LIST_ENTRIES, Lists, MAX_BLOCK_LOG2, MAX_TOPS, MIN_BLOCK_LOG2,
    Object, ObjectError,
};
pub use member::{MEMBER_BYTES, Member, MemberConfig, Want};
pub use message::{MemberIndex, Message, Packet};
pub use published::PublishedOptions;
pub use shape::{Shape, ShapeKind};
pub use source::{CastError, CastSpec, Limits, Source, SourceConfig};
pub use station::SPARE_CREDIT;

/// Bytes of a full list block.
pub const LIST_BYTES: usize = LIST_ENTRIES as usize * HASH_BYTES;
/// Most members of a cast: the size of the largest partition that is planned for, with room.
pub const MAX_MEMBERS: u32 = 1 << 17;
/// Longest name of a file, in bytes.
pub const MAX_NAME: usize = 128;
/// Casts that a node has a part in at once: a program, its table and a few files. More are refused.
pub const MEMBER_CASTS: usize = 16;

const _: () = assert!((1usize << MAX_BLOCK_LOG2).div_ceil(FRAGMENT) <= 64);
const _: () = assert!(LIST_BYTES <= 1 << MAX_BLOCK_LOG2);

/// Where a station is reached: frames are made without ARP. The MAC address is zero where the
/// sender's own system resolves addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Peer {
    /// IPv4 address and UDP port.
    pub addr: SocketAddrV4,
    /// Ethernet address.
    pub mac: [u8; 6],
}

/// What an object is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A program image: the object's id is its [`crate::ids::ProgramId`].
    Program,
    /// A file that programs open by name.
    File {
        /// At most [`MAX_NAME`] bytes, without `/`.
        name: String,
    },
    /// The connection table of a job.
    Table {
        /// The job.
        job: JobId,
    },
    /// A file of an I/O service that nodes of a job read.
    Read {
        /// The job.
        job: JobId,
    },
}

/// How an object's blocks are numbered and cut into fragments.
impl Object {
    /// Number of all blocks: list blocks come first, then data blocks.
    pub fn blocks(&self) -> u32 {
        self.list_blocks() + self.data_blocks()
    }

    /// What block number `block` is.
    pub fn part(&self, block: u32) -> Part {
        let lists = self.list_blocks();
        if block < lists {
            Part::List(block)
        } else {
            Part::Data(block - lists)
        }
    }

    /// The number of a part among all blocks.
    pub fn block_of(&self, part: Part) -> u32 {
        match part {
            Part::List(n) => n,
            Part::Data(n) => self.list_blocks() + n,
        }
    }

    /// Bytes of block number `block`; 0 beyond the end.
    pub fn length(&self, block: u32) -> usize {
        match self.part(block) {
            Part::List(n) => self.list_bytes(n),
            Part::Data(n) => {
                let start = u64::from(n) << self.block_log2;
                let left = self.bytes.saturating_sub(start);
                left.min(1 << self.block_log2) as usize
            }
        }
    }

    /// Bitmap of all fragments of block number `block`.
    pub fn fragments(&self, block: u32) -> u64 {
        match self.length(block).div_ceil(FRAGMENT) {
            0 => 0,
            count => u64::MAX >> (64 - count),
        }
    }

    /// Bytes of these fragments of block number `block`, which it must have.
    pub fn bytes_of(&self, block: u32, fragments: u64) -> usize {
        let last = self.fragments(block).count_ones().saturating_sub(1);
        let short = match fragments >> last & 1 {
            0 => 0,
            _ => FRAGMENT - self.fragment_length(block, last),
        };
        fragments.count_ones() as usize * FRAGMENT - short
    }

    /// Bytes of fragment `fragment` of block number `block`.
    pub fn fragment_length(&self, block: u32, fragment: u32) -> usize {
        let start = fragment as usize * FRAGMENT;
        self.length(block).saturating_sub(start).min(FRAGMENT)
    }
}

/// A block by what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Chaining values of data blocks `256 * n` and following.
    List(u32),
    /// Data block `n`.
    Data(u32),
}

/// How a cast spreads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// By the number of nodes and blocks, see [`Shape::choose`].
    Auto,
    /// A first layer of `n1` members, each the head of a row; columns exchange rows in rotation.
    Grid {
        /// Members of the first layer; 0: as many as fit the number of members best.
        n1: u32,
    },
    /// Every member is a row of its own.
    Mesh,
    /// Two binary trees, one for even and one for odd blocks.
    DoubleTree,
    /// The published scheme, with what it leaves open.
    Published(PublishedOptions),
}

/// Storage of the caller, given with every call: the engine keeps no payload but that of blocks
/// under way.
pub trait Store: Hasher {
    /// Reads bytes of a held block from `at`, all of `out`. False: it is not held after all (the
    /// engine then forgets that it was).
    fn read(&mut self, cast: CastId, part: Part, at: usize, out: &mut [u8]) -> bool;
    /// Keeps a block whose hash was checked. `bytes` is empty where the payload is virtual (see
    /// [`Member::handle_message`]).
    fn write(&mut self, cast: CastId, part: Part, bytes: &[u8]) -> Result<(), NoRoom>;
    /// For so many members there is room beside those of the casts under way, [`MEMBER_BYTES`]
    /// each; asked when a cast is announced. [`MemberConfig::members`] bounds them as well.
    fn members_room(&mut self) -> u32 {
        u32::MAX
    }
}

/// The store cannot take the block: the cast fails on this member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;
