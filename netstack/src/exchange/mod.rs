//! How the ranks of a job talk: all-to-all exchange at the rate of the links, messages matched by
//! tag, barriers.
//!
//! Every transfer is a *block*, cut into packets of [`PACKET`] bytes, that its receiver pulls: it
//! names the packets that it takes next, from a few senders at a time, never more than a window in
//! all. So no port of a switch is overrun, whoever is ready exchanges with whoever is ready, and a
//! lost packet is asked for again without a round having to wait. Small blocks are sent unasked, in
//! the order of the rounds.
//!
//! - [`Endpoint`]: one rank of one job; takes operations, datagrams and the time, gives datagrams
//!   and events.
//! - [`published`]: the method as published: schedule, steps, how many are active.
//! - [`rounds`]: ours, the default: the order in which ranks serve one another.
//! - `scheme`: which of them an exchange has, and the one hook for those that they are compared
//!   with. `alltoall` is the engine of both.
//! - [`message`], [`wire`], [`envelope`]: what ranks say to one another, as values and as bytes.
//! - `alltoall`, `tagged`, `barrier`: the operations, which act on `io`. `inbound`, `grants`: both
//!   ends of a block. `incoming`, `posted`, `transfers`: messages that are received; `arena`:
//!   memory for those that wait.
//! - [`Group`]: who takes part in an exchange or a barrier.
//! - `own`: what a rank sends to itself. `numbers`: which operations have begun, and which failed.
//! - `settings`: what a launch says. `credit`: how much may be under way. `liveness`: who is gone.
//!
//! Invariant: payload is never kept here, but for short messages that wait to be received or
//! acknowledged, whose bytes are bounded; every table has a bound; an operation ends for every
//! living rank, with an error that names the rank that is lost.

use alloc::vec::Vec;
use core::fmt;

use crate::ids::{JobId, Rank};
use crate::wire::key::Key;

mod alltoall;
mod arena;
mod barrier;
mod credit;
mod endpoint;
pub mod envelope;
mod grants;
mod group;
mod inbound;
mod incoming;
mod io;
mod liveness;
pub mod message;
mod numbers;
mod outbox;
mod own;
mod posted;
pub mod published;
pub mod rounds;
mod scheme;
mod settings;
mod tagged;
#[cfg(test)]
mod tests;
mod transfers;
pub mod wire;

pub use endpoint::Endpoint;
pub use group::{Group, GroupError, Listed};
pub use message::{Body, Packet};
pub use scheme::{Active, Baseline, Conflict, Scheme, SchemeError};
pub use settings::{SettingError, Settings, Wrong};
pub use wire::is_exchange;

/// Bytes of a full packet of a block: a multiple of 8, so that no element of an array is cut.
pub const PACKET: usize = 1440;
/// Most bytes of a message that rides in the datagram that announces it. It is copied when it is
/// posted.
pub const SHORT: usize = 1384;
/// Most ranks of a job.
pub const MAX_RANKS: u32 = 1 << 17;
/// Most operations that are posted and not done.
pub const MAX_OPS: usize = 1 << 16;
/// Of these, most exchanges and barriers: they are looked at with each datagram.
pub const MAX_TOGETHER: usize = 256;
/// Most bytes of a block: its packets have numbers of 24 bits.
pub const MAX_BLOCK: u64 = ((1 << 24) - 1) * PACKET as u64;
/// Contexts are numbers below this.
pub const MAX_CONTEXTS: u32 = 1 << 16;
/// Most contexts that a rank has exchanges and barriers in during its job: what it knows of each
/// stays, since another rank may ask for it at any time. As many communicators as MPICH has.
pub const MAX_CONTEXTS_USED: usize = 2048;

/// A piece of a program's memory, by a number that the caller chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BufferId(pub u64);

/// An operation, from [`Endpoint::post`] to its event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OpId(pub u32);

/// The program's memory is not there any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

/// The memory of the program whose rank this is.
pub trait Memory {
    /// Copies `out.len()` bytes out of a buffer.
    ///
    /// # Errors
    /// [`Gone`]: the operation that uses the buffer fails.
    fn read(&mut self, buffer: BufferId, offset: u64, out: &mut [u8]) -> Result<(), Gone>;

    /// Copies bytes into a buffer.
    ///
    /// # Errors
    /// [`Gone`]: the operation that uses the buffer fails.
    fn write(&mut self, buffer: BufferId, offset: u64, bytes: &[u8]) -> Result<(), Gone>;
}

/// What an endpoint needs to know of itself.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The job.
    pub job: JobId,
    /// Number of its list of members; both ends must have the same.
    pub epoch: u16,
    /// This rank.
    pub me: Rank,
    /// Number of ranks, 1 to [`MAX_RANKS`].
    pub size: u32,
    /// The key of the job, which its launch brought.
    pub key: Key,
    /// Bytes a second that the rank's link carries, framing included; 0: not known.
    pub rate: u64,
    /// Bytes that the port of a switch holds; 0: [`DEFAULT_PORT_BUFFER`].
    pub port_buffer: u32,
    /// Ranks on each leaf switch, where they are placed leaf after leaf; 0: not known.
    pub leaf: u32,
    /// How all-to-all exchanges are done. All ranks must have the same.
    pub scheme: Scheme,
    /// Most bytes of short messages kept that nobody has received yet; 0: [`DEFAULT_EAGER`].
    pub eager_bytes: u32,
    /// Seed of what is drawn at random.
    pub seed: u64,
}

/// What the port of a switch holds unless told otherwise.
pub const DEFAULT_PORT_BUFFER: u32 = 256_000;
/// Bytes of unexpected short messages kept unless told otherwise.
pub const DEFAULT_EAGER: u32 = 64 << 10;

/// What can be posted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// A message to one rank. Done when its bytes may be overwritten: at once up to [`SHORT`]
    /// bytes, else when the receiver has all of it.
    Send {
        /// The receiver; may be this rank.
        to: Rank,
        /// Below [`MAX_CONTEXTS`].
        context: u32,
        /// Matches the receiver's.
        tag: u32,
        /// Where its bytes are.
        buffer: BufferId,
        /// How many, at most [`MAX_BLOCK`].
        bytes: u64,
        /// Done only when a receive has taken it, however short it is.
        is_synchronous: bool,
    },
    /// A message, the first not yet received with this context and tag from this rank.
    Receive {
        /// The sender; may be this rank. None: any, the first that came.
        from: Option<Rank>,
        /// Below [`MAX_CONTEXTS`].
        context: u32,
        /// Matches the sender's; None: any.
        tag: Option<u32>,
        /// Where its bytes go.
        buffer: BufferId,
        /// Most bytes it may have.
        capacity: u64,
    },
    /// Looks for a message that a receive would take: done, with what is known of it, when one is
    /// here that no receive was posted for.
    Probe {
        /// The sender; None: any.
        from: Option<Rank>,
        /// Below [`MAX_CONTEXTS`].
        context: u32,
        /// Matches the sender's; None: any.
        tag: Option<u32>,
        /// The message is kept for [`Op::ReceiveClaimed`]; [`Endpoint::cancel`] lets it go.
        claims: bool,
        /// Waits for one; else it is refused where none is here.
        waits: bool,
    },
    /// The message that a probe keeps.
    ReceiveClaimed {
        /// The probe, which is done.
        claim: OpId,
        /// Where its bytes go.
        buffer: BufferId,
        /// Most bytes it may have.
        capacity: u64,
    },
    /// A block from every rank of a group to every rank of it. All of them post it.
    AllToAll {
        /// Who takes part.
        among: Among,
        /// What goes to whom.
        send: Side,
        /// What comes from whom: each as long as its sender says.
        receive: Side,
    },
    /// Done when all ranks of a group have posted it.
    Barrier {
        /// Who takes part.
        among: Among,
    },
}

/// Who takes part in an exchange or a barrier, and which one of theirs it is.
///
/// The exchanges and barriers of a context are numbered together, from 0 on; the ranks of a group
/// take part in the same order. Groups may share a context as long as no rank is in two of them. A
/// context that a rank has used in another group goes on at a number that all ranks of the new one
/// have agreed upon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Among {
    /// Below [`MAX_CONTEXTS`].
    pub context: u32,
    /// The ranks; this one is among them.
    pub group: Group,
    /// It has this number, where the next of this rank has a smaller one; 0: the next. Less than
    /// half of all numbers ahead.
    pub number: u32,
}

impl Among {
    /// The next of all ranks of the job in a context.
    pub fn all(context: u32) -> Self {
        Among {
            context,
            ..Among::default()
        }
    }
}

/// One direction of an all-to-all exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    /// Where the blocks are.
    pub buffer: BufferId,
    /// Where in it each rank's is.
    pub layout: Layout,
}

/// Where the blocks of the ranks are in a buffer: by their places in the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layout {
    /// One after the other, each of so many bytes.
    Equal {
        /// Bytes of a block.
        bytes: u64,
    },
    /// As listed, one part for each rank of the group.
    Parts(Vec<Part>),
}

/// A block in a buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Its first byte.
    pub offset: u64,
    /// Its bytes; 0: there is no block.
    pub bytes: u64,
}

impl Layout {
    /// The block of the rank at a place.
    pub fn part(&self, place: u32) -> Part {
        match self {
            Layout::Equal { bytes } => Part {
                offset: u64::from(place).saturating_mul(*bytes),
                bytes: *bytes,
            },
            Layout::Parts(parts) => parts.get(place as usize).copied().unwrap_or_default(),
        }
    }
}

/// What became of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It is done.
    Done {
        /// Which.
        op: OpId,
        /// Bytes received; of a send the bytes sent.
        bytes: u64,
        /// The other rank of a message; else this rank.
        peer: Rank,
        /// Tag of a message, else 0.
        tag: u32,
    },
    /// It failed. Its buffers are not touched any more.
    Failed {
        /// Which.
        op: OpId,
        /// Why.
        error: Error,
    },
}

/// Why an operation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// This rank is gone: its node does not answer, or its program has ended.
    RankLost(Rank),
    /// The message has more bytes than the receive has room for.
    Truncated {
        /// Bytes of the message.
        sent: u64,
        /// Whose it is.
        from: Rank,
        /// Its tag.
        tag: u32,
    },
    /// The block that this rank sends is not as long as the receiver expects it.
    SizeMismatch {
        /// The other rank.
        rank: Rank,
    },
    /// This rank has taken back its part, or the memory of its part was not there.
    Withdrawn(Rank),
    /// This rank takes part in something else at that number of the context: another group, or an
    /// exchange where others have a barrier.
    Other(Rank),
    /// The program's memory was not there.
    Gone,
}

/// Why an operation was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostError {
    /// [`MAX_OPS`] operations are under way, [`MAX_TOGETHER`] exchanges and barriers, or too many
    /// messages were taken back at once: wait for one.
    Full,
    /// There is no such rank.
    BadRank,
    /// There is no such context.
    BadContext,
    /// This rank is not of the group, or a rank of it is none of the job.
    BadGroup,
    /// The number is before those that this rank has begun, or too far ahead.
    BadNumber,
    /// This rank has used [`MAX_CONTEXTS_USED`] contexts for exchanges and barriers already: use
    /// one of these.
    TooManyContexts,
    /// A block is longer than [`MAX_BLOCK`], or a message that is forgotten than [`SHORT`].
    TooLong,
    /// A layout does not list every rank of the group, or the own block has two lengths.
    BadLayout,
    /// This rank is lost, and the operation needs it.
    Lost(Rank),
    /// A probe that does not wait found none.
    NoMessage,
    /// No probe of this number keeps a message.
    NoClaim,
    /// There is no room for a copy of a message that is forgotten.
    NoRoom,
    /// The memory of a message that is forgotten is not mapped.
    Gone,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::RankLost(rank) => write!(f, "rank {rank} is lost"),
            Error::Truncated { sent, from, .. } => write!(
                f,
                "the message of rank {from} has {sent} bytes, more than the receive has room for"
            ),
            Error::SizeMismatch { rank } => write!(
                f,
                "the block between this rank and rank {rank} has two lengths"
            ),
            Error::Withdrawn(rank) => write!(f, "rank {rank} has taken back its part"),
            Error::Other(rank) => write!(
                f,
                "rank {rank} names another group, or calls something else at this point"
            ),
            Error::Gone => f.write_str("the memory of the operation is not mapped"),
        }
    }
}

/// What an endpoint counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Data packets sent.
    pub packets_sent: u64,
    /// Data packets received that were wanted.
    pub packets_received: u64,
    /// Data packets received that were there already, or of nobody's block.
    pub duplicates: u64,
    /// Packets asked for again.
    pub asked_again: u64,
    /// Control datagrams sent.
    pub control_sent: u64,
    /// Datagrams that were not understood.
    pub bad: u64,
    /// Datagrams that came again, or too late to tell.
    pub replayed: u64,
}

/// What an endpoint keeps: for checks that it keeps nothing when all is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Operations.
    pub ops: usize,
    /// Blocks that are being received.
    pub inbound: usize,
    /// Packets that were asked for and are under way.
    pub under_way: u32,
    /// Blocks of which packets wait to be sent.
    pub grants: usize,
    /// Control items that wait to be sent.
    pub queued: usize,
    /// Bytes of short messages.
    pub eager_bytes: usize,
}
