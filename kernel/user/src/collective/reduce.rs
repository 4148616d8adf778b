//! Values of all ranks combined into one.
//!
//! Few values go by recursive doubling, ceil(log2 p) steps, whether one rank wants the result or
//! all: so every rank hears of a rank that is lost or has another number of values. Of many values
//! their number goes that way; then each rank combines a share: an all-to-all exchange brings it
//! the others' values of it, and the results are gathered (Rabenseifner's reduce-scatter and
//! gather, with the grouped exchange in place of halving).
//!
//! Invariant: which values are combined in which order depends on the number of ranks and of values
//! only, and all ranks of an all-reduce get the same bits.

use alloc::vec::Vec;

use super::all_to_all::Blocks;
use super::messages::{Kind, Messages, bytes_of, bytes_of_mut};
use super::{LARGE_BYTES, share};
use crate::data::combine_into;
use crate::{Combine, Data, Error, Number, Result, World};

/// A copy of values, as a temporary buffer.
fn copy<T: Number>(values: &[T]) -> Result<Vec<T>> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(values.len())
        .map_err(|_| Error::NoMemory)?;
    copy.extend_from_slice(values);
    Ok(copy)
}

impl World {
    /// Combines the values of all ranks, place by place, into `values` of rank `root`; the others'
    /// are unchanged.
    ///
    /// # Errors
    /// [`Error::Invalid`] when there is no such rank; [`Error::Mismatch`], in all ranks, when
    /// lengths differ; [`Error::Lost`], [`Error::NoMemory`].
    pub fn reduce<T: Number>(self, how: Combine, root: u32, values: &mut [T]) -> Result<()> {
        if root >= self.size() {
            return Err(Error::Invalid);
        }
        if self.size() == 1 {
            return Ok(());
        }
        if size_of_val(values) < LARGE_BYTES {
            if self.rank() == root {
                return self.reduce_few(how, values);
            }
            return self.reduce_few(how, &mut copy(values)?);
        }
        self.agree_on_length(size_of_val(values))?;
        let (me, size, count) = (self.rank(), self.size(), values.len());
        let mut mine = match self.reduce_share(how, values) {
            Ok(mine) => mine,
            Err(error) => {
                self.sit_out(1, error);
                return Err(error);
            }
        };
        let to = Blocks::new::<T>(size, |rank| match rank == root && me != root {
            true => 0..share(count, me, size).len(),
            false => 0..0,
        });
        let from = Blocks::new::<T>(size, |rank| match me == root && rank != root {
            true => share(count, rank, size),
            false => 0..0,
        });
        if me == root {
            values[share(count, me, size)].copy_from_slice(&mine);
        }
        let (send, receive) = (mine.as_mut_ptr().cast(), values.as_mut_ptr().cast());
        // SAFETY: a share is what `mine` has, and all shares lie inside `values`.
        unsafe { self.move_parts(send, to, receive, from) }
    }

    /// Combines the values of all ranks, place by place, into `values` of every rank.
    ///
    /// # Errors
    /// [`Error::Mismatch`], in all ranks, when lengths differ; [`Error::Lost`],
    /// [`Error::NoMemory`].
    pub fn all_reduce<T: Number>(self, how: Combine, values: &mut [T]) -> Result<()> {
        if self.size() == 1 {
            return Ok(());
        }
        if size_of_val(values) < LARGE_BYTES {
            return self.reduce_few(how, values);
        }
        self.agree_on_length(size_of_val(values))?;
        let mine = match self.reduce_share(how, values) {
            Ok(mine) => mine,
            Err(error) => {
                self.sit_out(1, error);
                return Err(error);
            }
        };
        let own = share(values.len(), self.rank(), self.size());
        values[own].copy_from_slice(&mine);
        self.spread_shares(values)
    }

    fn reduce_few<T: Number>(self, how: Combine, values: &mut [T]) -> Result<()> {
        let (mut part, me) = (copy(values)?, self.rank());
        self.double(false, values, &mut part, |other, values, part| {
            // Both sides combine in the same order, so that both get the same bits.
            if other < me {
                for (value, lower) in values.iter_mut().zip(part) {
                    *value = T::combine(how, *lower, *value);
                }
            } else {
                combine_into(how, values, part);
            }
            Ok(())
        })
    }

    /// All ranks have values of so many bytes, which go by exchanges.
    fn agree_on_length(self, bytes: usize) -> Result<()> {
        let own = bytes as u64;
        self.double(
            true,
            &mut [own.to_le()],
            &mut [0],
            |other, _, length| match length == [own.to_le()] {
                true => Ok(()),
                false => Err(Error::Mismatch(other)),
            },
        )
    }

    /// Recursive doubling among the largest power of two of the ranks; each rank beyond gives its
    /// values to one of them first and gets the result at the end. `merge` takes the values of a
    /// rank into this one's.
    ///
    /// Where one rank has another length every rank fails: each pair compares, and a rank that has
    /// failed says so to those of its later steps. Where one is lost every rank fails that needs
    /// what it has not given yet. Of a length two exchanges follow, which a rank that has failed
    /// sits out.
    fn double<T: Data>(
        self,
        is_length: bool,
        values: &mut [T],
        part: &mut [T],
        mut merge: impl FnMut(u32, &mut [T], &[T]) -> Result<()>,
    ) -> Result<()> {
        let (me, size, bytes) = (self.rank(), self.size(), size_of_val(values));
        let core = 1 << size.ilog2();
        let mut messages = Messages::new(self, Kind::Reduce);
        if me >= core {
            let (low, into) = (me - core, bytes_of_mut(values));
            let told = messages.send(&[low], is_length, into);
            let result = told.and_then(|()| messages.expect(low, is_length, bytes, into));
            return result.inspect_err(|why| {
                if is_length {
                    messages.sit_out(*why);
                }
            });
        }
        let beyond = (me + core < size).then_some(me + core);
        let mut first = 1;
        let mut result = Ok(());
        if let Some(beyond) = beyond {
            result = (messages.expect(beyond, is_length, bytes, bytes_of_mut(part)))
                .and_then(|()| merge(beyond, values, part));
        }
        while result.is_ok() && first < core {
            let other = me ^ first;
            result = (messages.swap(other, is_length, bytes_of(values), bytes_of_mut(part)))
                .and_then(|()| merge(other, values, part));
            if result.is_ok() {
                first <<= 1;
            }
        }
        match result {
            Ok(()) => result = messages.send(beyond.as_slice(), is_length, bytes_of(values)),
            Err(why) => {
                // Also the one of this step: it may not have this rank's message.
                let steps = (0..u32::BITS).map(|bit| 1 << bit);
                let pairs = steps.filter(|bit| (first..core).contains(bit));
                messages.give_up(why, pairs.map(|bit| me ^ bit).chain(beyond));
            }
        }
        result.inspect_err(|why| {
            if is_length {
                messages.sit_out(*why);
            }
        })
    }

    /// The combined values of this rank's share.
    fn reduce_share<T: Number>(self, how: Combine, values: &[T]) -> Result<Vec<T>> {
        let (me, size, count) = (self.rank(), self.size(), values.len());
        let own = share(count, me, size);
        let mut parts = Vec::new();
        if parts.try_reserve_exact(own.len() * size as usize).is_err() {
            self.sit_out(1, Error::NoMemory);
            return Err(Error::NoMemory);
        }
        for _ in 0..size {
            parts.extend_from_slice(&values[own.clone()]);
        }
        let other = |rank: u32| rank != me;
        let to = Blocks::new::<T>(size, |rank| match other(rank) {
            true => share(count, rank, size),
            false => 0..0,
        });
        let from = Blocks::new::<T>(size, |rank| match other(rank) {
            true => rank as usize * own.len()..(rank as usize + 1) * own.len(),
            false => 0..0,
        });
        let (send, receive) = (values.as_ptr().cast(), parts.as_mut_ptr().cast());
        // SAFETY: shares lie inside `values`, and `parts` has room for one of each rank.
        unsafe { self.move_parts(send, to, receive, from)? };
        let (first, rest) = parts.split_at_mut(own.len());
        if !own.is_empty() {
            for part in rest.chunks(own.len()) {
                combine_into(how, first, part);
            }
        }
        parts.truncate(own.len());
        Ok(parts)
    }
}
