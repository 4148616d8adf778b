//! What all ranks take part in: all-to-all, broadcast, gather, scatter, reductions.
//!
//! | module | purpose |
//! |---|---|
//! | `all_to_all` | blocks from every rank to every other; gather and scatter are those where one rank receives or sends |
//! | `group` | all-to-all and barrier of some ranks |
//! | `broadcast` | one rank's data to all |
//! | `reduce` | values of all ranks combined into one |
//! | `messages` | the messages of those two |
//!
//! All ranks call the same functions in the same order. Small data goes along trees or between
//! pairs, because the number of steps counts; large data goes by two all-to-all exchanges of the
//! p-th part each, which costs each link twice the data whatever the number of ranks. Which of the
//! two it is each rank decides by its own length: so the lengths go along the same tree first where
//! data is large, and ranks that differ find out instead of waiting for each other.
//!
//! Invariant: operations of these functions have a context of their own, so that no message of the
//! program's is taken for one of theirs.

mod all_to_all;
mod broadcast;
mod group;
mod messages;
mod reduce;
#[cfg(test)]
mod tests;

use core::ops::Range;

pub use group::Group;

use crate::scope::{self, Scope};
use crate::{Result, World};

/// Messages of collective operations.
pub(crate) const COLLECTIVE: u32 = 1 << 15;
/// Data of so many bytes goes by all-to-all exchanges of its parts rather than whole along a tree.
const LARGE_BYTES: usize = 32 * 1024;

/// The part of `count` values that belongs to one rank when they are shared out evenly.
fn share(count: usize, rank: u32, size: u32) -> Range<usize> {
    let at = |rank: u32| (count as u128 * u128::from(rank) / u128::from(size)) as usize;
    at(rank)..at(rank + 1)
}

impl World {
    /// [`World::scope`] for the messages of collective operations.
    fn collective_scope<'env, R>(
        self,
        body: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> Result<R>,
    ) -> Result<R> {
        scope::scope(self, COLLECTIVE, body)
    }
}
