//! Blocks from every rank to every other: the kernel's grouped exchange.
//!
//! Invariant: the blocks that an exchange is given lie inside the slices it borrows.

use alloc::vec::Vec;
use core::ops::Range;

use hearth_abi::exchange::{Kind, Operation, SIT_OUT};

use super::COLLECTIVE;
use crate::scope::{self, carry_out};
use crate::{Data, Error, Result, World, call};

/// Where the blocks for or from each rank are, in bytes from the start of a buffer.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    counts: Vec<u64>,
    offsets: Vec<u64>,
}

impl Blocks {
    /// A block for each rank, in values of `T`.
    pub(super) fn new<T>(size: u32, block: impl Fn(u32) -> Range<usize>) -> Result<Self> {
        let mut blocks = Self::default();
        for list in [&mut blocks.counts, &mut blocks.offsets] {
            list.try_reserve_exact(size as usize)
                .map_err(|_| Error::NoMemory)?;
        }
        for rank in 0..size {
            let block = block(rank);
            blocks.offsets.push((block.start * size_of::<T>()) as u64);
            blocks.counts.push((block.len() * size_of::<T>()) as u64);
        }
        Ok(blocks)
    }
}

/// Blocks of these lengths, one behind the other, must fill at most `length` values.
fn in_a_row(counts: &[usize], length: usize, size: u32) -> Result<Vec<Range<usize>>> {
    if counts.len() != size as usize {
        return Err(Error::Invalid);
    }
    let mut ranges = Vec::new();
    ranges
        .try_reserve_exact(counts.len())
        .map_err(|_| Error::NoMemory)?;
    let mut at = 0_usize;
    for &count in counts {
        let end = at.checked_add(count).filter(|&end| end <= length);
        let end = end.ok_or(Error::Invalid)?;
        ranges.push(at..end);
        at = end;
    }
    Ok(ranges)
}

impl World {
    /// Each rank sends the i-th of `size` equal blocks of `send` to rank i, which gets it as the
    /// block of `receive` that belongs to the sender: the transposition of a matrix of blocks.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless both slices have the same length, a multiple of the number of
    /// ranks; [`Error::Mismatch`] when another rank's blocks have another length; [`Error::Lost`].
    pub fn all_to_all<T: Data>(self, send: &[T], receive: &mut [T]) -> Result<()> {
        let size = self.size() as usize;
        if send.len() != receive.len() || !send.len().is_multiple_of(size) {
            return Err(Error::Invalid);
        }
        let block_bytes = (size_of_val(send) / size) as u64;
        let operation = Operation {
            kind: Kind::AllToAll as u16,
            context: COLLECTIVE,
            send: send.as_ptr() as u64,
            send_bytes: block_bytes,
            receive: receive.as_mut_ptr() as u64,
            receive_bytes: block_bytes,
            ..Operation::default()
        };
        // SAFETY: `size` blocks are the two slices, which are borrowed while this runs.
        unsafe { carry_out(self, &operation).map(drop) }
    }

    /// As [`World::all_to_all`] with blocks of any length: `send_counts[i]` values for rank i,
    /// `receive_counts[i]` values from rank i, one block behind the other.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless there is a count for each rank and the blocks fit the slices;
    /// [`Error::Mismatch`] when a rank sends another number of values than is expected of it;
    /// [`Error::Lost`].
    pub fn all_to_all_v<T: Data>(
        self,
        send: &[T],
        send_counts: &[usize],
        receive: &mut [T],
        receive_counts: &[usize],
    ) -> Result<()> {
        let size = self.size();
        let to = in_a_row(send_counts, send.len(), size)?;
        let from = in_a_row(receive_counts, receive.len(), size)?;
        let to = Blocks::new::<T>(size, |rank| to[rank as usize].clone())?;
        let from = Blocks::new::<T>(size, |rank| from[rank as usize].clone())?;
        let (send, receive) = (send.as_ptr().cast(), receive.as_mut_ptr().cast());
        // SAFETY: the blocks lie inside the two slices, which are borrowed while this runs.
        unsafe { self.move_blocks(send, &to, receive, &from) }
    }

    /// Collects blocks of the same length, in the order of the ranks, in `receive` of rank `root`;
    /// the others need no room and may give an empty slice.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless `receive` of the root has room for all, or there is no such rank;
    /// [`Error::Mismatch`]; [`Error::Lost`].
    pub fn gather<T: Data>(self, root: u32, send: &[T], receive: &mut [T]) -> Result<()> {
        let (me, size, length) = (self.rank(), self.size(), send.len());
        let needed = match me == root {
            true => length.checked_mul(size as usize).ok_or(Error::Invalid)?,
            false => 0,
        };
        if root >= size || receive.len() < needed {
            return Err(Error::Invalid);
        }
        let to = Blocks::new::<T>(size, |rank| match rank == root {
            true => 0..length,
            false => 0..0,
        })?;
        let from = Blocks::new::<T>(size, |rank| match me == root {
            true => rank as usize * length..(rank as usize + 1) * length,
            false => 0..0,
        })?;
        let (send, receive) = (send.as_ptr().cast(), receive.as_mut_ptr().cast());
        // SAFETY: the blocks lie inside the two slices, which are borrowed while this runs.
        unsafe { self.move_blocks(send, &to, receive, &from) }
    }

    /// Shares out equal blocks of `send` of rank `root`, in the order of the ranks; the others'
    /// `send` may be empty.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless `send` of the root has a block as long as `receive` for each rank,
    /// or there is no such rank; [`Error::Mismatch`]; [`Error::Lost`].
    pub fn scatter<T: Data>(self, root: u32, send: &[T], receive: &mut [T]) -> Result<()> {
        let (me, size, length) = (self.rank(), self.size(), receive.len());
        let needed = match me == root {
            true => length.checked_mul(size as usize).ok_or(Error::Invalid)?,
            false => 0,
        };
        if root >= size || send.len() < needed {
            return Err(Error::Invalid);
        }
        let to = Blocks::new::<T>(size, |rank| match me == root {
            true => rank as usize * length..(rank as usize + 1) * length,
            false => 0..0,
        })?;
        let from = Blocks::new::<T>(size, |rank| match rank == root {
            true => 0..length,
            false => 0..0,
        })?;
        let (send, receive) = (send.as_ptr().cast(), receive.as_mut_ptr().cast());
        // SAFETY: the blocks lie inside the two slices, which are borrowed while this runs.
        unsafe { self.move_blocks(send, &to, receive, &from) }
    }

    /// Collects blocks of the same length, in the order of the ranks, in `receive` of every rank.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless `receive` has room for all; [`Error::Mismatch`]; [`Error::Lost`].
    pub fn all_gather<T: Data>(self, send: &[T], receive: &mut [T]) -> Result<()> {
        let (size, length) = (self.size(), send.len());
        let needed = length.checked_mul(size as usize);
        if needed.is_none_or(|needed| receive.len() < needed) {
            return Err(Error::Invalid);
        }
        let to = Blocks::new::<T>(size, |_| 0..length)?;
        let from = Blocks::new::<T>(size, |rank| {
            rank as usize * length..(rank as usize + 1) * length
        })?;
        let (send, receive) = (send.as_ptr().cast(), receive.as_mut_ptr().cast());
        // SAFETY: the blocks lie inside the two slices, which are borrowed while this runs.
        unsafe { self.move_blocks(send, &to, receive, &from) }
    }

    /// Each rank has its share of `data`; afterwards every rank has all of it.
    pub(super) fn spread_shares<T: Data>(self, data: &mut [T]) -> Result<()> {
        let (me, size, count) = (self.rank(), self.size(), data.len());
        let other = |rank: u32, block: Range<usize>| match rank == me {
            true => 0..0,
            false => block,
        };
        let to = Blocks::new::<T>(size, |rank| other(rank, super::share(count, me, size)));
        let from = Blocks::new::<T>(size, |rank| other(rank, super::share(count, rank, size)));
        let data: *mut u8 = data.as_mut_ptr().cast();
        // SAFETY: shares lie inside the slice; the one that is sent is none of those that are
        // received.
        unsafe { self.move_parts(data, to, data, from) }
    }

    /// An exchange that is part of an operation. It counts even where it cannot be posted, and the
    /// others, who wait for this rank, hear why.
    ///
    /// # Safety
    /// That of [`World::move_blocks`].
    pub(super) unsafe fn move_parts(
        self,
        send: *const u8,
        to: Result<Blocks>,
        receive: *mut u8,
        from: Result<Blocks>,
    ) -> Result<()> {
        let lists = to.and_then(|to| Ok((to, from?)));
        let posted = lists.as_ref().map_err(|error| *error);
        let posted = posted.and_then(|(to, from)| {
            // SAFETY: the lists have an entry for each rank; the rest is the caller's promise, and
            // the request is finished or cancelled below.
            unsafe { call::post(&operation(send, to, receive, from)) }
        });
        let request = match posted {
            Ok(request) => request,
            Err(error) => {
                self.sit_out(1, error);
                return Err(error);
            }
        };
        let status = scope::finished(self, request)?;
        match status.error {
            0 => Ok(()),
            _ => Err(Error::of_status(&status)),
        }
    }

    /// Takes no part in the next so many exchanges, which count all the same: ranks that need this
    /// one in them hear why.
    pub(super) fn sit_out(self, exchanges: u32, why: Error) {
        let (why, rank) = why.reason(self.rank());
        let absence = Operation {
            kind: Kind::AllToAll as u16,
            flags: SIT_OUT,
            rank,
            context: COLLECTIVE,
            tag: why as u32,
            ..Operation::default()
        };
        for _ in 0..exchanges {
            // It needs no room, and is refused only where the job's ranks cannot reach each other
            // at all. SAFETY: no memory is involved.
            let _ = unsafe { call::post(&absence) };
        }
    }

    /// The kernel's exchange of blocks.
    ///
    /// # Safety
    /// Blocks for ranks must be readable from `send` on, blocks from ranks writable from `receive`
    /// on and not overlap anything else that is used meanwhile.
    unsafe fn move_blocks(
        self,
        send: *const u8,
        to: &Blocks,
        receive: *mut u8,
        from: &Blocks,
    ) -> Result<()> {
        let operation = operation(send, to, receive, from);
        // SAFETY: the lists have an entry for each rank; the rest is the caller's promise.
        unsafe { carry_out(self, &operation).map(drop) }
    }
}

fn operation(send: *const u8, to: &Blocks, receive: *mut u8, from: &Blocks) -> Operation {
    Operation {
        kind: Kind::AllToAll as u16,
        context: COLLECTIVE,
        send: send as u64,
        receive: receive as u64,
        send_counts: to.counts.as_ptr() as u64,
        send_offsets: to.offsets.as_ptr() as u64,
        receive_counts: from.counts.as_ptr() as u64,
        receive_offsets: from.offsets.as_ptr() as u64,
        ..Operation::default()
    }
}
