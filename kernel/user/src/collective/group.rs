//! Exchanges and barriers between some ranks of a job.
//!
//! Neighbour: the kernel's `process::calls::exchange` carries them out.
//!
//! Invariant: contexts of groups are below those of the library's own functions.

use hearth_abi::exchange::{Kind, Operation};

use super::COLLECTIVE;
use crate::scope::carry_out;
use crate::{Data, Error, Result, World};

/// Some ranks of a job that exchange data among themselves.
///
/// All of them name the same ranks in the same order, and call the same functions in the same
/// order. Groups may share a context as long as no rank is in two of them; rows of a grid have one,
/// its columns another.
#[derive(Clone, Copy, Debug)]
pub struct Group<'a> {
    world: World,
    ranks: &'a [u32],
    context: u32,
    number: u32,
}

impl World {
    /// The group of these ranks, of which this is one, in a context from 1 to 32,767.
    ///
    /// # Errors
    /// [`Error::Invalid`] where this rank is not in it, or there is no such context.
    pub fn group(self, ranks: &[u32], context: u32) -> Result<Group<'_>> {
        let is_context = (1..COLLECTIVE).contains(&context);
        if !is_context || !ranks.contains(&self.rank()) {
            return Err(Error::Invalid);
        }
        Ok(Group {
            world: self,
            ranks,
            context,
            number: 0,
        })
    }
}

impl Group<'_> {
    /// The same group, whose next exchange or barrier has this number: for a context that some of
    /// its ranks have used in another group, where they have agreed upon a number that none of them
    /// has reached.
    #[must_use]
    pub fn at(self, number: u32) -> Self {
        Self { number, ..self }
    }

    /// Returns when all ranks of the group have called it.
    ///
    /// # Errors
    /// [`Error::Lost`]; [`Error::Invalid`] where a rank stands twice in the group, or there is no
    /// such rank.
    pub fn barrier(self) -> Result<()> {
        let operation = Operation {
            kind: Kind::Barrier as u16,
            ..self.operation()
        };
        // SAFETY: no memory is involved but the list, which is borrowed.
        unsafe { carry_out(self.world, &operation).map(drop) }
    }

    /// Each rank sends the i-th of as many equal blocks as the group has ranks to the i-th of
    /// these, which gets it as the block of `receive` that belongs to the sender.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless both slices have the same length, a multiple of the number of
    /// ranks; [`Error::Mismatch`] when another rank's blocks have another length; [`Error::Lost`].
    pub fn all_to_all<T: Data>(self, send: &[T], receive: &mut [T]) -> Result<()> {
        let size = self.ranks.len();
        if send.len() != receive.len() || !send.len().is_multiple_of(size) {
            return Err(Error::Invalid);
        }
        let block_bytes = (size_of_val(send) / size) as u64;
        let operation = Operation {
            kind: Kind::AllToAll as u16,
            send: send.as_ptr() as u64,
            send_bytes: block_bytes,
            receive: receive.as_mut_ptr() as u64,
            receive_bytes: block_bytes,
            ..self.operation()
        };
        // SAFETY: a block for each rank of the group are the two slices, which are borrowed.
        unsafe { carry_out(self.world, &operation).map(drop) }
    }

    /// How many ranks it has.
    pub fn size(self) -> usize {
        self.ranks.len()
    }

    /// The job that it is of.
    pub fn world(self) -> World {
        self.world
    }

    /// What its operations have in common.
    pub(crate) fn operation(self) -> Operation {
        Operation {
            context: self.context,
            number: self.number,
            group_size: self.ranks.len() as u32,
            group: self.ranks.as_ptr() as u64,
            ..Operation::default()
        }
    }
}
