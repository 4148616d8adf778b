//! What a scheme is: whom a member asks for which block, and what it serves to whom.
//!
//! The engine does the rest: window, time-outs, repeats, queues, pacing, hashes.
//!
//! Neighbours: [`super::published`], [`super::grid`] and [`super::double_tree`] are planners;
//! `shape` says which of them a cast has.
//!
//! Invariant: a planner never names the member itself, and its last resort is the source.

use alloc::sync::Arc;

use super::bitmap::Bitmap;
use super::message::{MemberIndex, PAGE_PEERS};
use super::{Peer, roster};
use crate::rng::Rng;
use crate::time::Instant;

/// What a planner may look at.
#[derive(Debug)]
pub struct View<'a> {
    /// The present.
    pub now: Instant,
    /// The source's clock, in microseconds, as well as this member knows it.
    pub clock: u64,
    /// The member that asks.
    pub me: MemberIndex,
    /// Blocks that are here.
    pub have: &'a Bitmap,
    /// Blocks that are asked for.
    pub asked: &'a Bitmap,
    /// Members that do not answer, or too late, at present; in ascending order.
    pub silent: &'a [MemberIndex],
    /// Those of them that do not answer at all, or gave wrong data; in ascending order.
    pub gone: &'a [MemberIndex],
    /// Pages of the roster as far as they are known: who is on one of the others must be asked for
    /// first.
    pub(super) pages: &'a [Option<Arc<[Peer]>>],
    /// So many blocks more than usual may be on their way to this member: the others are that far
    /// away.
    pub farther: u32,
    /// For random choices.
    pub rng: &'a mut Rng,
}

impl View<'_> {
    /// The block is neither here nor asked for.
    pub fn lacks(&self, block: u32) -> bool {
        !self.have.contains(block) && !self.asked.contains(block)
    }

    /// The member does not answer, or too late, at present.
    pub fn is_silent(&self, member: MemberIndex) -> bool {
        !self.silent.is_empty() && self.silent.binary_search(&member).is_ok()
    }

    /// The member's address is known.
    pub fn is_known(&self, member: MemberIndex) -> bool {
        let page = self.pages.get((member.0 / PAGE_PEERS) as usize);
        page.is_some_and(Option::is_some)
    }

    /// A random member whose address is known.
    pub fn any_known(&mut self) -> Option<MemberIndex> {
        roster::any_known(self.pages, self.rng)
    }

    /// The member does not answer at all at present, or gave wrong data.
    pub fn is_gone(&self, member: MemberIndex) -> bool {
        !self.gone.is_empty() && self.gone.binary_search(&member).is_ok()
    }
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Ask for this block.
    Ask {
        /// Block number (list blocks first). Neither here nor asked for.
        block: u32,
        /// Whom.
        from: MemberIndex,
        /// Its turn normally comes so many block times later than that of a request made now: a
        /// credit, for which no sign of life is expected before.
        early: u32,
    },
    /// Nothing before this time, unless something arrives.
    Wait(Instant),
    /// Nothing before something arrives.
    Idle,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// No answer in time.
    Silent,
    /// The peer knows of the request, but others' blocks came long before.
    Late,
    /// Too many wait there.
    Busy,
    /// It is not there.
    NotHere,
    /// What it sent was wrong.
    Corrupt,
}

/// Whether a member serves a block to somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Now if it is here, else as soon as it is.
    WhenHere,
    /// Only if it is here now (NOT_HERE otherwise).
    IfHere,
    /// Not now, although it may be here: NOT_HERE.
    Refuse,
}

/// A scheme at one member of one cast.
pub trait Planner: core::fmt::Debug + Send {
    /// The next request to make. Called as long as the window has room.
    fn next(&mut self, view: &mut View<'_>) -> Next;

    /// A request for `block` at `from` came to nothing for the `attempt`th time (from 1): whom to
    /// ask instead; None: forget about it, [`Planner::next`] will name it again.
    fn instead(
        &mut self,
        view: &mut View<'_>,
        block: u32,
        from: MemberIndex,
        trouble: Trouble,
        attempt: u32,
    ) -> Option<MemberIndex>;

    /// A block arrived, was checked and stored. `late`: so many blocks came before it that were
    /// asked for after it; None if it was asked for more than once.
    fn arrived(
        &mut self,
        _view: &mut View<'_>,
        _block: u32,
        _from: MemberIndex,
        _late: Option<u32>,
    ) {
    }

    /// `asker` asks for a block that is not here yet. True: it does so because whoever usually
    /// serves the block is late or silent and this member stands in; it must be fetched at once.
    fn stands_in(&mut self, _view: &mut View<'_>, _asker: MemberIndex, _block: u32) -> bool {
        false
    }

    /// Whether `asker` is served this block. At the source: `view.me` is the source.
    fn service(&mut self, _view: &mut View<'_>, _asker: MemberIndex, _block: u32) -> Service {
        Service::WhenHere
    }

    /// Of all that wait here, the request with the smallest number is served first.
    fn order(&self, block: u32, asker: MemberIndex) -> u64 {
        u64::from(block) << 32 | u64::from(asker.0)
    }

    /// How long a request may normally wait at `from` before its turn comes, in block times.
    fn patience(&self, _block: u32, _from: MemberIndex) -> u32 {
        0
    }

    /// How long requests normally wait here before their turn comes, in block times: no answer is
    /// sent before.
    fn kept_waiting(&self) -> u32 {
        0
    }

    /// Blocks that are asked for at a time at most.
    fn most_asked(&self) -> u32 {
        u32::MAX
    }

    /// A request is late when so many blocks have arrived since those that were asked for before
    /// it.
    fn late_after(&self) -> u32 {
        256
    }
}
