//! Frames that nobody maps any more and that a core may still use: they are given back once all
//! cores have forgotten them.
//!
//! Whoever takes a translation away removes its entry, notes the frame here, has all cores forget
//! the entry, and gives back what was noted: [`FrameAllocator::free_deferred`].
//!
//! Invariant: a frame that was noted belongs to its owner until it is given back.

use super::{Frame, FrameAllocator, State};
use crate::addr::{LARGE_PAGE_SIZE, PAGE_SIZE, PhysAddr};
use crate::paging::TableSource;
use crate::phys::PhysMem;

/// Pages of one table of the last level, and the tables on the way to it.
const FRAMES_MAX: usize = (LARGE_PAGE_SIZE / PAGE_SIZE) as usize + 3;

/// The frames, in the order in which they were noted.
pub(super) struct List {
    frames: [PhysAddr; FRAMES_MAX],
    count: usize,
}

impl List {
    pub(super) const EMPTY: Self = Self {
        frames: [PhysAddr::new(0); FRAMES_MAX],
        count: 0,
    };
}

/// What was given back, in frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Freed {
    /// Of programs.
    pub pages: u64,
    /// Of programs that were launched on them.
    pub borrowed: u64,
    /// Of the kernel: tables.
    pub tables: u64,
}

impl FrameAllocator {
    /// Notes a frame that is to be given back. Panics where more are noted than one step takes
    /// away: those of a table of the last level, and the tables that become empty.
    pub fn defer_free(&mut self, frame: Frame) {
        let List { frames, count } = &mut self.deferred;
        frames[*count] = frame.into_entry();
        *count += 1;
    }

    /// Gives back all that was noted: no core uses it any more.
    pub fn free_deferred(&mut self) -> Freed {
        let mut freed = Freed::default();
        for index in 0..core::mem::take(&mut self.deferred.count) {
            let frame = self.deferred.frames[index];
            if self.state(frame).0 == State::Kernel {
                freed.tables += 1;
            } else if self.take(frame) {
                freed.borrowed += 1;
            } else {
                freed.pages += 1;
            }
            self.free(Frame::from_entry(frame));
        }
        freed
    }
}

/// The allocator as a source of tables for one that cores may use: what becomes empty is noted.
pub struct Deferring<'a>(pub &'a mut FrameAllocator);

impl<M: PhysMem> TableSource<M> for Deferring<'_> {
    fn alloc_table(&mut self, mem: &mut M) -> Option<PhysAddr> {
        self.0.alloc_table(mem)
    }

    fn free_table(&mut self, table: PhysAddr) {
        self.0.defer_free(Frame::from_entry(table));
    }
}
