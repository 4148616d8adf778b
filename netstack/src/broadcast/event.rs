//! What the facades tell their users, and figures about casts.

use crate::ids::{CastId, JobId, NodeId};

use super::{Object, Purpose};

/// What happened on a member; drained with [`super::Member::poll_event`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberEvent {
    /// A cast begins: answer with [`super::Member::accept`] or [`super::Member::refuse`].
    Announced {
        /// The cast.
        cast: CastId,
        /// What is cast.
        object: Object,
        /// What it is for.
        purpose: Purpose,
        /// The job that waits for it.
        job: Option<JobId>,
        /// Rate of every link in bytes a second, framing included, as the source has been told.
        rate: u64,
        /// Memory that the plan of the scheme takes once the cast is accepted, in bytes; none
        /// before.
        plan_bytes: u64,
    },
    /// A data block was given to the store.
    Stored {
        /// The cast.
        cast: CastId,
        /// Number of the data block.
        block: u32,
    },
    /// Everything is here. The member goes on serving until `Ended`.
    Complete {
        /// The cast.
        cast: CastId,
    },
    /// The cast is over for everybody: forget what was kept for it, unless it was complete.
    Ended {
        /// The cast.
        cast: CastId,
        /// Why.
        reason: EndReason,
    },
    /// The object will not be complete here; `Ended` does not follow.
    Failed {
        /// The cast.
        cast: CastId,
        /// Why.
        reason: FailReason,
    },
}

/// Why a cast is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// All members that live have everything.
    Finished,
    /// The source cancelled it.
    Cancelled,
    /// Nothing was heard of it for too long. Found out by each member; never said to another one.
    Abandoned,
}

/// Why a member does not get the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailReason {
    /// The store had no room.
    NoRoom,
    /// The member did not want it.
    Refused,
    /// Nothing came for too long from anybody.
    TimedOut,
    /// The member does not answer.
    Dead,
    /// The announcement does not fit together or asks for more than the limits allow.
    Invalid,
}

/// Why a member answers an announcement with no.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefuseReason {
    /// There is no memory for it.
    NoRoom,
    /// It is not wanted here.
    Unwanted,
}

/// What happened at the source; drained with [`super::Source::poll_event`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceEvent {
    /// How a cast stands; at most every 100 ms, and once before `Finished`.
    Progress {
        /// The cast.
        cast: CastId,
        /// How far it is.
        progress: Progress,
    },
    /// A member has everything.
    MemberDone {
        /// The cast.
        cast: CastId,
        /// The member.
        node: NodeId,
    },
    /// A member will not finish.
    MemberFailed {
        /// The cast.
        cast: CastId,
        /// The member.
        node: NodeId,
        /// Why.
        reason: MemberFailure,
    },
    /// A member sent blocks whose hash was wrong.
    CorruptSender {
        /// The cast.
        cast: CastId,
        /// The sender; None: the source itself.
        node: Option<NodeId>,
        /// How many blocks since the last such event.
        count: u32,
    },
    /// Every member is done or has failed; nothing more follows for this cast.
    Finished {
        /// The cast.
        cast: CastId,
        /// It was cancelled.
        cancelled: bool,
    },
}

/// Why a member is not among those that are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberFailure {
    /// It said so, or its neighbours did.
    Reported(FailReason),
    /// [`super::Source::lost`] was called for it.
    Lost,
    /// The cast was cancelled before it was done.
    Cancelled,
}

/// How far a cast is. At a member: `members` is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Number of members.
    pub members: u32,
    /// Members that have everything.
    pub done: u32,
    /// Members that will not.
    pub lost: u32,
    /// Blocks of the object, list blocks included.
    pub blocks: u32,
    /// At a member: blocks that are here.
    pub held: u32,
    /// Blocks sent by this station, repeats included (counted when their first fragment leaves).
    pub blocks_sent: u64,
    /// Payload bytes of DATA sent by this station, repeats included.
    pub bytes_sent: u64,
}

/// Counts since the station was made, over all casts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CastCounters {
    /// Requests sent, in messages.
    pub requests: u64,
    /// Blocks asked for again, wholly or in part.
    pub repeated: u64,
    /// Answers PARKED, BUSY, NOT_HERE received, in blocks.
    pub parked: u64,
    /// See `parked`.
    pub busy: u64,
    /// See `parked`.
    pub not_here: u64,
    /// Requests moved to another peer.
    pub moved: u64,
    /// Fragments of DATA received.
    pub fragments: u64,
    /// Of these, fragments that were here already.
    pub duplicates: u64,
    /// Fragments for which there was no buffer.
    pub no_buffer: u64,
    /// Blocks whose hash was wrong.
    pub corrupt: u64,
    /// Blocks stored.
    pub stored: u64,
    /// Trains of DATA sent.
    pub trains: u64,
    /// Payload bytes of DATA sent.
    pub data_bytes: u64,
    /// Messages and datagrams that made no sense here.
    pub bad: u64,
    /// Messages given up because a table was full.
    pub overloaded: u64,
}

/// What a station keeps at present: all zero (but `casts` while peers may still ask) when nothing
/// is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Casts known.
    pub casts: usize,
    /// Blocks asked for.
    pub requests: usize,
    /// Requests of others that wait.
    pub parked: usize,
    /// Reassembly buffers in use.
    pub buffers: usize,
    /// Messages and trains waiting to be sent.
    pub queued: usize,
}
