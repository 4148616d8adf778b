//! Typed messages between the stations of a cast. [`super::wire`] turns them into datagrams.
//!
//! Invariant: messages of the hot path (requests, answers, trains of data) own no heap.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use crate::ids::{BootEpoch, CastId, JobId};
use crate::time::Micros;

use super::event::{EndReason, FailReason};
use super::{Object, Peer, Purpose, Scheme};

/// Blocks that one message can name: what a member asks one peer for at a time.
pub const MAX_LISTED: usize = 4;
/// Peers in one page of the roster: 768 bytes, which fit a datagram.
pub const PAGE_PEERS: u32 = 64;
/// Most members whose roster rides in the announcement (where the object's tops leave room).
pub const INLINE_ROSTER: usize = 100;
/// Ranges of members in one report.
pub const MAX_RANGES: usize = 100;
/// The longest that DATA says its request was held: about 17 s.
pub const MAX_HELD: Micros = Micros((1 << 24) - 1);
/// Single members (failed, or corrupt senders) in one report.
pub const MAX_NAMED: usize = 32;

/// Number of a member in the order of the cast's list, or the source.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberIndex(pub u32);

impl MemberIndex {
    /// The control node, which is not a member.
    pub const SOURCE: MemberIndex = MemberIndex(u32::MAX);

    /// This is the control node.
    pub fn is_source(self) -> bool {
        self == Self::SOURCE
    }
}

impl fmt::Debug for MemberIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_source() {
            f.write_str("source")
        } else {
            write!(f, "#{}", self.0)
        }
    }
}

/// A message with its envelope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The cast it belongs to.
    pub cast: CastId,
    /// Who sends it.
    pub from: MemberIndex,
    /// Ethernet address of the sender, so that it can be answered without a roster. Zero in DATA,
    /// which has no room for it and needs no answer.
    pub mac: [u8; 6],
    /// The message.
    pub message: Message,
}

/// What stations say to one another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Take part in this cast, and tell those below you in the spanning tree.
    Announce {
        /// Number of the receiver among the members.
        index: MemberIndex,
        /// Echoed by the acknowledgement. Its sender's clock, so that the echo says how long it
        /// took: in microseconds, the low bits.
        number: u32,
        /// The source's clock when this was sent, as far as the sender knows it, in microseconds.
        clock: u64,
        /// The receiver announces the cast to nobody: whoever was below it has another parent.
        leaf: bool,
        /// What every member is told.
        setup: Arc<Setup>,
    },
    /// Answer to an announcement or a probe.
    AnnounceAck {
        /// Of the announcement or the probe.
        number: u32,
        /// What the sender is to the receiver.
        standing: Standing,
    },
    /// Parent to child that has not finished: still there? Answered by [`Message::AnnounceAck`],
    /// or by [`Message::Unknown`] when the member has restarted.
    Probe {
        /// Echoed by the answer; a clock as that of an announcement.
        number: u32,
    },
    /// The sender does not know this cast.
    Unknown,
    /// Pages of the roster, please.
    RosterRead {
        /// Which pages.
        pages: Blocks,
    },
    /// A page of the roster.
    RosterPage {
        /// Which page.
        page: u32,
        /// Its peers, [`PAGE_PEERS`] but for the last page.
        peers: Arc<[Peer]>,
    },
    /// Blocks, please; they may wait at the receiver until it has them.
    Request(Wants),
    /// Why requested blocks do not come yet, or not at all.
    Answer {
        /// What is the matter.
        answer: Answer,
        /// The blocks it is about.
        blocks: Blocks,
    },
    /// Requested blocks are not wanted from here any more.
    Cancel(Blocks),
    /// A train of DATA datagrams: fragments of one block, in ascending order.
    Data {
        /// Number of the block.
        block: u32,
        /// Bit i: fragment i is in the train.
        fragments: u64,
        /// How long the request waited at the sender: what its asker waited beyond that is the way
        /// there and back. [`MAX_HELD`] stands for that long or longer.
        held: Micros,
        /// It was asked for so, and the datagrams say who has sent them.
        sealed: bool,
    },
    /// How those at or below the sender in the spanning tree stand.
    Report(Arc<Report>),
    /// Answer to a report.
    ReportAck {
        /// Of the report.
        number: u32,
    },
    /// The cast is over; tell those below you.
    End {
        /// Echoed by the acknowledgement.
        number: u32,
        /// Why.
        reason: EndReason,
    },
    /// Answer to [`Message::End`].
    EndAck {
        /// Of the end.
        number: u32,
    },
}

/// What every member is told about a cast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// What is cast.
    pub object: Object,
    /// What it is for.
    pub purpose: Purpose,
    /// The job that waits for it.
    pub job: Option<JobId>,
    /// How it spreads; never [`Scheme::Auto`].
    pub scheme: Scheme,
    /// Number of members.
    pub members: u32,
    /// How many of them, the last ones in the list, held the object (or much of it) from the start.
    pub holders: u32,
    /// Rate of every link in bytes per second, framing included.
    pub rate: u64,
    /// When the cast begins, in microseconds of the source's clock.
    pub start: u64,
    /// The source.
    pub control: Peer,
    /// Number of this membership, for members that know its roster from an earlier cast.
    pub roster_id: u64,
    /// All members, or nothing: then its pages are read from whoever announced.
    pub roster: Vec<Peer>,
}

/// What whoever answers an announcement or a probe is to its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Its child in the spanning tree.
    Child,
    /// By now somebody else's child.
    Elsewhere,
    /// Nobody's: it has no room for what a member keeps of the others. It takes no part, keeps
    /// nothing of the cast and announces it to nobody.
    NoRoom,
}

/// Why requested blocks do not come at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Not here yet: the request is kept.
    Parked,
    /// Here, but others are served first: the request is kept.
    Queued,
    /// Too many are waiting here; the request is not kept.
    Busy,
    /// Not here and not expected; the request is not kept.
    NotHere,
}

/// Up to [`MAX_LISTED`] block numbers.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Blocks {
    length: u8,
    items: [u32; MAX_LISTED],
}

impl Blocks {
    /// One block.
    pub fn one(block: u32) -> Self {
        let mut blocks = Self::default();
        blocks.push(block);
        blocks
    }

    /// Appends a block; false when full.
    pub fn push(&mut self, block: u32) -> bool {
        let Some(slot) = self.items.get_mut(usize::from(self.length)) else {
            return false;
        };
        *slot = block;
        self.length += 1;
        true
    }

    /// The blocks.
    pub fn as_slice(&self) -> &[u32] {
        &self.items[..usize::from(self.length)]
    }
}

impl fmt::Debug for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().fmt(f)
    }
}

/// A block and the fragments of it that are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WantedBlock {
    /// Number of the block.
    pub block: u32,
    /// Bit i: fragment i is wanted. Never 0.
    pub fragments: u64,
    /// A program waits for it: it goes before all others.
    pub urgent: bool,
    /// What came of it before was wrong: it is to come in datagrams that are sealed.
    pub sealed: bool,
}

/// Up to [`MAX_LISTED`] wanted blocks.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Wants {
    length: u8,
    blocks: [u32; MAX_LISTED],
    fragments: [u64; MAX_LISTED],
    urgent: [bool; MAX_LISTED],
    sealed: [bool; MAX_LISTED],
}

impl Wants {
    /// Appends a block; false when full.
    pub fn push(&mut self, wanted: WantedBlock) -> bool {
        let at = usize::from(self.length);
        if at == MAX_LISTED {
            return false;
        }
        self.blocks[at] = wanted.block;
        self.fragments[at] = wanted.fragments;
        self.urgent[at] = wanted.urgent;
        self.sealed[at] = wanted.sealed;
        self.length += 1;
        true
    }

    /// Nothing is wanted.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// No further block has room.
    pub fn is_full(&self) -> bool {
        usize::from(self.length) == MAX_LISTED
    }

    /// The wanted blocks in the order they were added.
    pub fn iter(&self) -> impl Iterator<Item = WantedBlock> + '_ {
        (0..usize::from(self.length)).map(|at| WantedBlock {
            block: self.blocks[at],
            fragments: self.fragments[at],
            urgent: self.urgent[at],
            sealed: self.sealed[at],
        })
    }
}

impl fmt::Debug for Wants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// Members `first..=last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Range {
    /// First member.
    pub first: u32,
    /// Last member.
    pub last: u32,
}

/// How the members at or below the sender stand; what was acknowledged before is not repeated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Echoed by the acknowledgement.
    pub number: u32,
    /// The sender's boot: what an earlier one had finished this one may lack.
    pub boot: BootEpoch,
    /// The sender and all below it have finished, but for those reported as failed, now or before.
    pub all: bool,
    /// Members that have finished since the last report, at most [`MAX_RANGES`] ranges.
    pub done: Vec<Range>,
    /// Members that will not finish, at most [`MAX_NAMED`].
    pub failed: Vec<(MemberIndex, FailReason)>,
    /// Senders of corrupt blocks and how many blocks since the last report, at most [`MAX_NAMED`].
    pub corrupt: Vec<(MemberIndex, u32)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_wanted_blocks_is_full_when_it_takes_no_more() {
        let mut wants = Wants::default();
        for block in 0..MAX_LISTED as u32 {
            assert!(!wants.is_full());
            assert!(wants.push(WantedBlock {
                block,
                fragments: 1,
                ..WantedBlock::default()
            }));
        }
        assert!(wants.is_full());
        assert!(!wants.push(WantedBlock::default()));
        assert_eq!(wants.iter().count(), MAX_LISTED);
    }
}
