//! Pages of a program that stay on the node for its next launch.
//!
//! - [`published`]: the method as published: on a message all tables go but one, and of that all
//!   that may have been written. A function over page tables.
//! - [`shipped`]: as Hearth does it: when a program ends, for many programs, with pages of writable
//!   segments too.
//! - `classify`: which entries stay and what becomes of frames, for both.
//!
//! Neighbours: `program::Memory`; [`crate::frames`] counts.
//!
//! Invariant: a frame in [`State::Retained`](crate::frames::State::Retained) holds what the
//! program's file holds and is mapped writable nowhere.

mod classify;
pub mod published;
pub mod shipped;

pub(crate) use classify::{Keep, Range, classify, frames_of};
pub use published::{Classified, Variant, retain};
pub use shipped::{
    Change, Holding, KeptPage, Policy, ROOM_FRAMES, Resident, Retained, RetireCounts, WARM_MAX,
    WarmTable,
};

/// A program by the BLAKE3 hash of its file; never by a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProgramId(pub crate::pagehash::Hash);

#[cfg(test)]
mod tests;
