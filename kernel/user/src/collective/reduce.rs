//! Values of all ranks combined into one.
//!
//! Few values go up a binomial tree (to one rank) or by recursive doubling (to all): ceil(log2 p) steps. Of many
//! values each rank combines a share: an all-to-all exchange brings it the others' values of it, and the results are
//! gathered (Rabenseifner's reduce-scatter and gather, with the grouped exchange in place of halving).
//!
//! Invariant: which values are combined in which order depends on the number of ranks and of values only, and all ranks of
//! an all-reduce get the same bits.

use alloc::vec::Vec;

use super::all_to_all::Blocks;
use super::{LARGE_BYTES, share};
use crate::data::combine_into;
use crate::{Combine, Error, Number, Result, World};

/// Tags of a reduction's messages.
const UP: u32 = 2;
const FOLD: u32 = 3;
const DOUBLE: u32 = 4;
const UNFOLD: u32 = 5;

/// A copy of values, as a temporary buffer.
fn copy<T: Number>(values: &[T]) -> Result<Vec<T>> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(values.len())
        .map_err(|_| Error::NoMemory)?;
    copy.extend_from_slice(values);
    Ok(copy)
}

impl World {
    /// Combines the values of all ranks, place by place, into `values` of rank `root`; the others' are unchanged.
    ///
    /// # Errors
    /// [`Error::Invalid`] when there is no such rank; [`Error::Mismatch`] or [`Error::TooLong`] when lengths differ;
    /// [`Error::Lost`], [`Error::NoMemory`].
    pub fn reduce<T: Number>(self, how: Combine, root: u32, values: &mut [T]) -> Result<()> {
        if root >= self.size() {
            return Err(Error::Invalid);
        }
        if self.size() == 1 {
            return Ok(());
        }
        if size_of_val(values) < LARGE_BYTES {
            return self.reduce_up_tree(how, root, values);
        }
        let (me, size, count) = (self.rank(), self.size(), values.len());
        let mut mine = self.reduce_share(how, values)?;
        let to = Blocks::new::<T>(size, |rank| match rank == root && me != root {
            true => 0..share(count, me, size).len(),
            false => 0..0,
        })?;
        let from = Blocks::new::<T>(size, |rank| match me == root && rank != root {
            true => share(count, rank, size),
            false => 0..0,
        })?;
        if me == root {
            values[share(count, me, size)].copy_from_slice(&mine);
        }
        let (send, receive) = (mine.as_mut_ptr().cast(), values.as_mut_ptr().cast());
        // SAFETY: a share is what `mine` has, and all shares lie inside `values`.
        unsafe { self.move_blocks(send, &to, receive, &from) }
    }

    /// Combines the values of all ranks, place by place, into `values` of every rank.
    ///
    /// # Errors
    /// [`Error::Mismatch`] or [`Error::TooLong`] when lengths differ; [`Error::Lost`], [`Error::NoMemory`].
    pub fn all_reduce<T: Number>(self, how: Combine, values: &mut [T]) -> Result<()> {
        if self.size() == 1 {
            return Ok(());
        }
        if size_of_val(values) < LARGE_BYTES {
            return self.reduce_by_doubling(how, values);
        }
        let mine = self.reduce_share(how, values)?;
        let own = share(values.len(), self.rank(), self.size());
        values[own].copy_from_slice(&mine);
        self.spread_shares(values)
    }

    fn reduce_up_tree<T: Number>(self, how: Combine, root: u32, values: &mut [T]) -> Result<()> {
        let size = self.size();
        let me = (self.rank() + size - root) % size;
        let name = |number: u32| (number + root) % size;
        let mut sum = copy(values)?;
        let mut part = copy(values)?;
        let mut bit = 1;
        while bit < size {
            if me & bit != 0 {
                let up = &sum[..];
                return self.collective_scope(|scope| scope.send(name(me - bit), UP, up).map(drop));
            }
            if me + bit < size {
                self.receive_values(name(me + bit), UP, &mut part)?;
                combine_into(how, &mut sum, &part);
            }
            bit <<= 1;
        }
        values.copy_from_slice(&sum);
        Ok(())
    }

    /// Recursive doubling among the largest power of two of the ranks; each rank beyond gives its values to one of
    /// them first and gets the result at the end.
    fn reduce_by_doubling<T: Number>(self, how: Combine, values: &mut [T]) -> Result<()> {
        let (me, size) = (self.rank(), self.size());
        let core = 1 << size.ilog2();
        if me >= core {
            let up = &*values;
            self.collective_scope(|scope| scope.send(me - core, FOLD, up).map(drop))?;
            return self.receive_values(me - core, UNFOLD, values);
        }
        let mut part = copy(values)?;
        let beyond = (me + core < size).then_some(me + core);
        if let Some(beyond) = beyond {
            self.receive_values(beyond, FOLD, &mut part)?;
            combine_into(how, values, &part);
        }
        let mut bit = 1;
        while bit < core {
            let other = me ^ bit;
            let (own, into) = (&*values, &mut part[..]);
            let received = self.collective_scope(|scope| {
                let request = scope.receive(other, DOUBLE, into)?;
                scope.send(other, DOUBLE, own).map(drop)?;
                scope.wait(request)
            })?;
            if received.count != values.len() {
                return Err(Error::Mismatch(other));
            }
            // Both sides combine in the same order, so that both get the same bits.
            if other < me {
                for (value, lower) in values.iter_mut().zip(&part) {
                    *value = T::combine(how, *lower, *value);
                }
            } else {
                combine_into(how, values, &part);
            }
            bit <<= 1;
        }
        if let Some(beyond) = beyond {
            let down = &*values;
            self.collective_scope(|scope| scope.send(beyond, UNFOLD, down).map(drop))?;
        }
        Ok(())
    }

    /// The combined values of this rank's share.
    fn reduce_share<T: Number>(self, how: Combine, values: &[T]) -> Result<Vec<T>> {
        let (me, size, count) = (self.rank(), self.size(), values.len());
        let own = share(count, me, size);
        let mut parts = Vec::new();
        parts
            .try_reserve_exact(own.len() * size as usize)
            .map_err(|_| Error::NoMemory)?;
        for _ in 0..size {
            parts.extend_from_slice(&values[own.clone()]);
        }
        let other = |rank: u32| rank != me;
        let to = Blocks::new::<T>(size, |rank| match other(rank) {
            true => share(count, rank, size),
            false => 0..0,
        })?;
        let from = Blocks::new::<T>(size, |rank| match other(rank) {
            true => rank as usize * own.len()..(rank as usize + 1) * own.len(),
            false => 0..0,
        })?;
        let (send, receive) = (values.as_ptr().cast(), parts.as_mut_ptr().cast());
        // SAFETY: shares lie inside `values`, and `parts` has room for one of each rank.
        unsafe { self.move_blocks(send, &to, receive, &from)? };
        let (first, rest) = parts.split_at_mut(own.len());
        if !own.is_empty() {
            for part in rest.chunks(own.len()) {
                combine_into(how, first, part);
            }
        }
        parts.truncate(own.len());
        Ok(parts)
    }

    /// Receives exactly as many values.
    fn receive_values<T: Number>(self, from: u32, tag: u32, into: &mut [T]) -> Result<()> {
        let length = into.len();
        let received = self.collective_scope(|scope| {
            let request = scope.receive(from, tag, into)?;
            scope.wait(request)
        })?;
        match received.count == length {
            true => Ok(()),
            false => Err(Error::Mismatch(from)),
        }
    }
}
