//! Frames that are zeroed before they are given out, while nobody holds the allocator.
//!
//! Zeroing takes the most time of a first touch. Cores that touch memory at the same time do it
//! side by side: each takes the frames aside that are given out next, zeroes them, and puts them
//! back.
//!
//! Invariant: what is aside counts as the kernel's; what is put back is zero-filled.

use super::{FrameAllocator, Owner, State};
use crate::addr::{PAGE_SIZE, PhysAddr};

impl FrameAllocator {
    /// Whether one frame, or `count` in a row at a multiple of their size, can be given out next
    /// without being zeroed, or cannot be given out at all.
    pub fn is_next_zeroed(&self, count: u64) -> bool {
        self.next_unzeroed(count).is_none()
    }

    /// Takes these frames aside, to be zeroed; `None` where there is nothing to zero. The caller
    /// gives them back by [`Self::give_zeroed`].
    pub fn take_unzeroed(&mut self, count: u64) -> Option<PhysAddr> {
        let start = self.next_unzeroed(count)?;
        for index in start..start + count as usize {
            match self.state_at(index) {
                State::Dirty => {
                    self.counters.scrubbed += 1;
                    self.counters.reused += 1;
                }
                State::Free => self.counters.reused += 1,
                _ => {}
            }
            self.set(index, State::Kernel, Owner::KERNEL);
            self.counters.allocated += 1;
        }
        Some(self.address(start))
    }

    /// Takes frames back that the caller has zeroed.
    pub fn give_zeroed(&mut self, first: PhysAddr, count: u64) {
        let start = self.index(first);
        for index in start..start + count as usize {
            assert_eq!(self.state_at(index), State::Kernel, "zeroed by nobody");
            self.set(index, State::Free, Owner::KERNEL);
            self.counters.freed += 1;
            self.counters.scrubbed += 1;
        }
    }

    fn next_unzeroed(&self, count: u64) -> Option<usize> {
        let start = match count {
            1 => self.next_available()?,
            _ => self.next_row(count as usize, count * PAGE_SIZE)?,
        };
        let mut all = start..start + count as usize;
        all.any(|index| self.state_at(index) != State::Free)
            .then_some(start)
    }
}
