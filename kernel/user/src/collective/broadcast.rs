//! One rank's data to all.
//!
//! Small data goes along a binomial tree, ceil(log2 p) steps. Of large data the root deals a share to each rank, and then
//! all ranks exchange their shares (van de Geijn's scatter and all-gather), both by the grouped exchange.

use super::all_to_all::Blocks;
use super::{LARGE_BYTES, share};
use crate::{Data, Error, Result, World};

/// Tag of a broadcast's messages.
const TAG: u32 = 1;

impl World {
    /// Every rank's `data`, of the same length, becomes that of rank `root`.
    ///
    /// # Errors
    /// [`Error::Invalid`] when there is no such rank; [`Error::Mismatch`] or [`Error::TooLong`] when lengths differ;
    /// [`Error::Lost`].
    pub fn broadcast<T: Data>(self, root: u32, data: &mut [T]) -> Result<()> {
        if root >= self.size() {
            return Err(Error::Invalid);
        }
        if self.size() == 1 {
            return Ok(());
        }
        match size_of_val(data) < LARGE_BYTES {
            true => self.broadcast_along_tree(root, data),
            false => {
                self.deal_shares(root, data)?;
                self.spread_shares(data)
            }
        }
    }

    fn broadcast_along_tree<T: Data>(self, root: u32, data: &mut [T]) -> Result<()> {
        let size = self.size();
        // Numbered from the root on.
        let me = (self.rank() + size - root) % size;
        let name = |number: u32| (number + root) % size;
        // The lowest bit of my number says whom I hear it from; the root hears it from nobody.
        let parent_bit = match me {
            0 => size.next_power_of_two(),
            _ => 1 << me.trailing_zeros(),
        };
        if me != 0 {
            let parent = name(me - parent_bit);
            let received = self.collective_scope(|scope| {
                let request = scope.receive(parent, TAG, &mut *data)?;
                scope.wait(request)
            })?;
            if received.count != data.len() {
                return Err(Error::Mismatch(parent));
            }
        }
        let data = &*data;
        self.collective_scope(|scope| {
            let mut bit = parent_bit >> 1;
            while bit > 0 {
                if me + bit < size {
                    scope.send(name(me + bit), TAG, data).map(drop)?;
                }
                bit >>= 1;
            }
            Ok(())
        })
    }

    /// Each rank gets its share of the root's data, where it belongs.
    fn deal_shares<T: Data>(self, root: u32, data: &mut [T]) -> Result<()> {
        let (me, size, count) = (self.rank(), self.size(), data.len());
        let to = Blocks::new::<T>(size, |rank| match me == root && rank != root {
            true => share(count, rank, size),
            false => 0..0,
        })?;
        let from = Blocks::new::<T>(size, |rank| match rank == root && me != root {
            true => share(count, me, size),
            false => 0..0,
        })?;
        let data: *mut u8 = data.as_mut_ptr().cast();
        // SAFETY: shares lie inside the slice; the root only sends, the others only receive.
        unsafe { self.move_blocks(data, &to, data, &from) }
    }
}
