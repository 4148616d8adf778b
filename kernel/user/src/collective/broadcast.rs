//! One rank's data to all.
//!
//! Small data goes along a binomial tree, ceil(log2 p) steps. Of large data its length goes that
//! way; then the root deals a share to each rank, and all ranks exchange their shares (van de
//! Geijn's scatter and all-gather), both by the grouped exchange.

use super::all_to_all::Blocks;
use super::messages::{Heard, Kind, Messages, bytes_of, bytes_of_mut};
use super::{LARGE_BYTES, share};
use crate::{Data, Error, Result, World};

/// Most children that a rank has in the tree.
const CHILDREN: usize = u32::BITS as usize;

/// Whom a rank hears of in the tree, and whom it sends to.
struct Place {
    parent: Option<u32>,
    children: [u32; CHILDREN],
    count: usize,
}

impl Place {
    fn new(world: World, root: u32) -> Self {
        let size = world.size();
        // Numbered from the root on.
        let me = (world.rank() + size - root) % size;
        let name = |number: u32| ((u64::from(number) + u64::from(root)) % u64::from(size)) as u32;
        // The lowest bit of my number says whom I hear it from; the root hears it from nobody.
        let parent_bit = match me {
            0 => size.next_power_of_two(),
            _ => 1 << me.trailing_zeros(),
        };
        let mut place = Place {
            parent: (me != 0).then(|| name(me - parent_bit)),
            children: [0; CHILDREN],
            count: 0,
        };
        let mut bit = parent_bit >> 1;
        while bit > 0 {
            if me + bit < size {
                place.children[place.count] = name(me + bit);
                place.count += 1;
            }
            bit >>= 1;
        }
        place
    }

    fn children(&self) -> &[u32] {
        &self.children[..self.count]
    }
}

impl World {
    /// Every rank's `data`, of the same length, becomes that of rank `root`.
    ///
    /// # Errors
    /// [`Error::Invalid`] when there is no such rank; [`Error::Mismatch`] when lengths differ: of
    /// data below 32 KiB in ranks whose length is not the root's and those that hear of it from
    /// them, of more in all; [`Error::Lost`].
    pub fn broadcast<T: Data>(self, root: u32, data: &mut [T]) -> Result<()> {
        if root >= self.size() {
            return Err(Error::Invalid);
        }
        if self.size() == 1 {
            return Ok(());
        }
        let bytes = size_of_val(data);
        let place = Place::new(self, root);
        let mut messages = Messages::new(self, Kind::Broadcast);
        let heard = match place.parent {
            None if bytes < LARGE_BYTES => Ok(None),
            None => Ok(Some(bytes as u64)),
            Some(parent) => hear(&mut messages, parent, bytes_of_mut(data)),
        };
        let length = match heard {
            Ok(length) => length,
            Err(why) => {
                messages.give_up(why, place.children().iter().copied());
                if bytes >= LARGE_BYTES {
                    messages.sit_out(why);
                }
                return Err(why);
            }
        };
        let Some(length) = length else {
            return messages.send(place.children(), false, bytes_of(data));
        };
        // The root's: who has another one is told by this rank, not by those who wait for it.
        let told = messages.send(place.children(), true, &length.to_le_bytes());
        if let Err(why) = told {
            messages.sit_out(why);
            return Err(why);
        }
        if length != bytes as u64 {
            self.sit_out(2, Error::Mismatch(self.rank()));
            return Err(Error::Mismatch(root));
        }
        if let Err(why) = self.deal_shares(root, data) {
            self.sit_out(1, why);
            return Err(why);
        }
        self.spread_shares(data)
    }

    /// Each rank gets its share of the root's data, where it belongs.
    fn deal_shares<T: Data>(self, root: u32, data: &mut [T]) -> Result<()> {
        let (me, size, count) = (self.rank(), self.size(), data.len());
        let to = Blocks::new::<T>(size, |rank| match me == root && rank != root {
            true => share(count, rank, size),
            false => 0..0,
        });
        let from = Blocks::new::<T>(size, |rank| match rank == root && me != root {
            true => share(count, me, size),
            false => 0..0,
        });
        let data: *mut u8 = data.as_mut_ptr().cast();
        // SAFETY: shares lie inside the slice; the root only sends, the others only receive.
        unsafe { self.move_parts(data, to, data, from) }
    }
}

/// Takes small data from the parent, or hears how long large data is.
fn hear(messages: &mut Messages, parent: u32, data: &mut [u8]) -> Result<Option<u64>> {
    let is_large = data.len() >= LARGE_BYTES;
    let room = if is_large { &mut [] } else { &mut *data };
    match messages.receive(parent, room)? {
        Heard::Length(length) => Ok(Some(length)),
        Heard::Values(bytes) if bytes == data.len() as u64 && !is_large => Ok(None),
        Heard::Values(_) => Err(Error::Mismatch(parent)),
    }
}
