//! Demand paging over the network: a node reads ranges of a job's objects from the control node.
//!
//! The serving side keeps no state: every PAGE_READ names the fragments it wants and is answered
//! with these. The client keeps a bitmap per request and asks again for what is missing, under the
//! window of [`crate::transport::pull`].

pub(crate) mod client;
pub(crate) mod server;

use alloc::vec::Vec;

use crate::ids::{JobId, NodeId, Rank, RequestId};
use crate::wire::datagram::MAX_PAYLOAD;
use crate::wire::page::PageData;

/// Bytes in a page.
pub const PAGE_SIZE: u32 = 4096;
/// Bytes of an object in one datagram: a third of a page, so that three carry a page and 24 the
/// largest request, and 93 in 100 bytes on the wire are the program's.
pub const FRAGMENT: usize = (PAGE_SIZE as usize).div_ceil(3);
/// Most bytes one request may ask for: eight pages. With [`FRAGMENT`] it is 24 fragments, which
/// fit a 32-bit bitmap.
pub const MAX_REQUEST: u32 = 8 * PAGE_SIZE;
/// Requests a node may have outstanding: enough to read ahead while one fault waits, few enough
/// that the answers (8 * 24 datagrams) fit a receive ring of 256.
pub const MAX_REQUESTS: usize = 8;
/// Bytes that Ethernet (14), IPv4 (20) and UDP (8) put before a datagram.
pub(crate) const FRAMING: usize = 14 + 20 + 8;
/// Fragments of the largest request.
pub const MAX_FRAGMENTS: usize = (MAX_REQUEST as usize).div_ceil(FRAGMENT);

const _: () = assert!(MAX_FRAGMENTS <= 32, "the fragment bitmap has 32 bits");
const _: () = assert!(FRAGMENT + PageData::FIXED_LEN <= MAX_PAYLOAD);

/// A thing of a job that can be read page by page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Object {
    /// The ELF file.
    Program,
    /// The launch block of the asking node's rank, see [`crate::job::launch_block`].
    LaunchBlock,
    /// The page hashes of the ELF file: for each 4 KiB of it, in order, the BLAKE3 chaining value
    /// of that subtree, 32 bytes. Merged they give the [`crate::ids::ProgramId`], so a node can
    /// tell that they are right.
    PageHashes,
}

impl Object {
    pub(crate) fn to_wire(self) -> u8 {
        match self {
            Object::Program => 1,
            Object::LaunchBlock => 2,
            Object::PageHashes => 3,
        }
    }

    pub(crate) fn from_wire(raw: u8) -> Option<Self> {
        Some(match raw {
            1 => Object::Program,
            2 => Object::LaunchBlock,
            3 => Object::PageHashes,
            _ => return None,
        })
    }
}

/// What reading a job's program has cost on the network, repeats and duplicates included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageTraffic {
    /// PAGE_READ datagrams sent.
    pub requests: u64,
    /// PAGE_DATA datagrams received.
    pub fragments: u64,
    /// Bytes of the program in these.
    pub bytes: u64,
    /// Bytes of both kinds on the wire: with the headers of Hearth, UDP, IPv4 and Ethernet, and
    /// without Ethernet's preamble and checksum, as the counters of a host's interface have them.
    pub wire_bytes: u64,
}

/// A range a node wants to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRequest {
    /// The job whose object it is.
    pub job: JobId,
    /// Which object.
    pub object: Object,
    /// First byte wanted.
    pub offset: u64,
    /// Bytes wanted, 1 to [`MAX_REQUEST`].
    pub length: u32,
    /// A program waits for it (as opposed to reading ahead): sent before all others.
    pub demand: bool,
}

/// Why a page could not be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageError {
    /// No answer within the limit of attempts.
    TimedOut,
    /// The control node has no such object for this job.
    NoSuchObject,
    /// The control node could not read the object.
    Unreadable,
    /// The job is not known at the control node (any more).
    UnknownJob,
}

/// A page request as the control node sees it; answer with
/// [`crate::control::Endpoint::page_data`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageWanted {
    /// Who asks.
    pub node: NodeId,
    /// Its rank in the job.
    pub rank: Rank,
    /// The job.
    pub job: JobId,
    /// Which object.
    pub object: Object,
    /// First byte wanted.
    pub offset: u64,
    /// Bytes wanted.
    pub length: u32,
    /// The node's number for this request.
    pub request: RequestId,
    /// Which fragments of [`FRAGMENT`] bytes are wanted: bit i is the one at `offset + i *
    /// FRAGMENT`.
    pub fragments: u32,
}

/// The answer to a [`PageWanted`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageReply {
    /// The request answered, as it was received.
    pub wanted: PageWanted,
    /// The bytes from `wanted.offset`: all of `wanted.length`, or as far as the object goes
    /// (none at all beyond its end), or why there are none.
    pub bytes: Result<Vec<u8>, PageError>,
}

/// Fragments of an answer of `length` bytes.
pub(crate) const fn fragment_count(length: u32) -> u32 {
    length.div_ceil(FRAGMENT as u32)
}

/// The bitmap of all fragments of an answer of `length` bytes, 1 to [`MAX_REQUEST`].
pub(crate) const fn fragment_mask(length: u32) -> u32 {
    u32::MAX >> (32 - fragment_count(length))
}
