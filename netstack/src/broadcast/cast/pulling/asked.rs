//! A block that a member has asked for.
//!
//! Key types: [`Asked`], [`State`]. Neighbour: [`super`] keeps one for each block that is under
//! way.
//!
//! Invariant: `missing` names the fragments that are not in `bytes`.

use alloc::vec::Vec;

use crate::broadcast::message::{MemberIndex, WantedBlock};
use crate::time::{Instant, Micros};

/// How far a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The peer's address is not known yet.
    Unsent,
    Sent,
    Flowing,
    /// The peer keeps the request.
    Waiting {
        queued: bool,
    },
    /// The peer does not know the cast (yet).
    Unknown,
    /// All here, but not the list that it is checked against.
    Unchecked,
}

impl State {
    pub(super) const QUEUED: State = State::Waiting { queued: true };

    fn fills_window(self) -> bool {
        matches!(self, State::Sent | State::Flowing)
    }
}

/// A request for a block.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) from: MemberIndex,
    pub(super) state: State,
    pub(super) attempt: u8,
    pub(super) repeats: u8,
    /// It is expected when so many blocks have arrived: those that were asked for before.
    pub(super) expected: u32,
    pub(super) at: Instant,
    pub(super) deadline: Instant,
    pub(super) missing: u64,
    pub(super) bytes: Vec<u8>,
    /// Who sent what is here; None: nobody yet.
    pub(super) sender: Option<MemberIndex>,
    /// More than one did: nobody can be blamed.
    pub(super) mixed: bool,
    /// Nobody was asked for it: it came by itself.
    pub(super) unasked: bool,
    /// It was wrong once, and anybody may have sent that: only what is sealed counts.
    pub(super) doubted: bool,
    /// The first sign of life, which counts when the block is right.
    pub(super) sign: Option<Sign>,
    /// The peer has said that it keeps the request.
    pub(super) told: bool,
    /// A program waits for it.
    pub(super) urgent: bool,
}

/// What the first fragment that came says of the way, if whoever was asked has sent it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sign {
    /// How long after the request it came.
    pub(super) waited: Micros,
    /// How much of that the request waited at the sender; none if that cannot be told from it.
    pub(super) held: Option<Micros>,
}

impl Asked {
    /// A request to `from` at this time for all of a block of so many fragments.
    pub(super) fn new(from: MemberIndex, state: State, fragments: u64, now: Instant) -> Self {
        Asked {
            from,
            state,
            attempt: 0,
            repeats: 0,
            expected: 0,
            at: now,
            deadline: now,
            missing: fragments,
            bytes: Vec::new(),
            sender: None,
            mixed: false,
            unasked: false,
            doubted: false,
            sign: None,
            told: false,
            urgent: false,
        }
    }

    /// It is one of those that the window counts.
    pub(super) fn fills_window(&self) -> bool {
        !self.unasked && self.state.fills_window()
    }

    /// Fragments that were asked for and are not here.
    pub(super) fn under_way(&self) -> u32 {
        match self.unasked {
            true => 0,
            false => self.missing.count_ones(),
        }
    }

    /// Nothing was heard of it since it was asked for.
    pub(super) fn is_unanswered(&self) -> bool {
        let open = matches!(self.state, State::Sent | State::Waiting { queued: false });
        open && !self.told
    }

    /// How it is named in a request.
    pub(super) fn wanted(&self, block: u32) -> WantedBlock {
        WantedBlock {
            block,
            fragments: self.missing,
            urgent: self.urgent,
            sealed: self.doubted,
        }
    }

    /// The request, or the answer, is more likely lost than its peer gone.
    pub(super) fn may_repeat(&self) -> bool {
        self.repeats < if self.sender.is_some() { 4 } else { 1 }
    }
}
