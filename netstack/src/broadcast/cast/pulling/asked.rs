//! A block that a member has asked for.
//!
//! Key types: [`Asked`], [`State`]. Neighbour: [`super`] keeps one for each block that is under
//! way.
//!
//! Invariant: `missing` names the fragments that are not in `bytes`.

use alloc::vec::Vec;

use crate::broadcast::message::{MemberIndex, WantedBlock};
use crate::time::Instant;

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

    pub(super) fn fills_window(self) -> bool {
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
    /// The peer has said that it keeps the request.
    pub(super) told: bool,
    /// A program waits for it.
    pub(super) urgent: bool,
}

impl Asked {
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
        }
    }

    /// The request, or the answer, is more likely lost than its peer gone.
    pub(super) fn may_repeat(&self) -> bool {
        self.repeats < if self.sender.is_some() { 4 } else { 1 }
    }
}
