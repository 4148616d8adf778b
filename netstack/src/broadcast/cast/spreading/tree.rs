//! The tree in which a cast is announced: a heap, and what a station keeps of each child.
//!
//! Invariant: every member has one parent in the heap; node n is member n - 1, and the source node
//! 0.

use crate::broadcast::message::MemberIndex;
use crate::time::Instant;

/// Children of a node of the tree. A level takes as many messages, one after the other, so that
/// the way to the last of n members takes f / ln f times ln n of them: that is least for 2, 3 and
/// 4, and of these 4 has the fewest levels.
const FAN_OUT: u64 = 4;

/// What is known of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The announcement is not acknowledged yet.
    Announcing,
    /// It takes part.
    Running,
    /// It and all below it are done or given up.
    Done,
    /// Somebody else's child now, who has adopted it.
    Elsewhere,
    /// Given up.
    Gone,
}

impl Stage {
    /// Nothing is waited for.
    pub(super) fn is_over(self) -> bool {
        matches!(self, Stage::Done | Stage::Elsewhere | Stage::Gone)
    }

    /// Others see to it, or nobody does.
    pub(super) fn is_left(self) -> bool {
        matches!(self, Stage::Elsewhere | Stage::Gone)
    }
}

/// A child of a station: one below it in the heap, or one that it has adopted.
#[derive(Debug)]
pub(super) struct Child {
    pub(super) member: MemberIndex,
    pub(super) stage: Stage,
    /// Announces nobody itself.
    pub(super) leaf: bool,
    pub(super) adopted: bool,
    /// The end is acknowledged.
    pub(super) ended: bool,
    /// Its address was not known when something was to be sent.
    pub(super) unsent: bool,
    pub(super) attempts: u32,
    /// Those since anything was heard from it.
    pub(super) unheard: u32,
    pub(super) deadline: Instant,
}

impl Child {
    /// One that the cast is announced to.
    pub(super) fn new(member: MemberIndex, leaf: bool) -> Self {
        Child {
            member,
            stage: Stage::Announcing,
            leaf,
            adopted: false,
            ended: false,
            unsent: false,
            attempts: 0,
            unheard: 0,
            deadline: Instant::ZERO,
        }
    }

    /// The cast is announced to it anew.
    pub(super) fn announce(&mut self) {
        self.stage = Stage::Announcing;
        self.attempts = 0;
        self.unheard = 0;
        self.deadline = Instant::ZERO;
    }
}

/// The children of a node of the heap.
pub(super) fn children_of(member: MemberIndex, members: u32) -> impl Iterator<Item = MemberIndex> {
    let node = if member.is_source() {
        0
    } else {
        u64::from(member.0) + 1
    };
    let first = node * FAN_OUT;
    // Node n is member n - 1.
    (first..first + FAN_OUT)
        .filter(move |member| *member < u64::from(members))
        .map(|member| MemberIndex(member as u32))
}

/// The parent of a member in the heap.
pub(super) fn parent_of(member: MemberIndex) -> MemberIndex {
    // Node n is member n - 1, and the source node 0.
    match u64::from(member.0) / FAN_OUT {
        0 => MemberIndex::SOURCE,
        node => MemberIndex(node as u32 - 1),
    }
}
