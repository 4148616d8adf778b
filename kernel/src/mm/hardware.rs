//! The real machine under `kernel_core::program`: physical map, frame allocator, TLB.
//!
//! Neighbours: `process` passes [`Hardware`] to every operation on a program's memory.
//!
//! Invariant: the frame allocator is locked only inside [`Machine::with`], where nothing allocates
//! from the heap; a changed translation is forgotten by all cores before the call returns.

use kernel_core::addr::{PAGE_SIZE, VirtAddr};
use kernel_core::frames::FrameAllocator;
use kernel_core::program::Machine;

use super::DirectMap;
use crate::arch::cores;

/// Above this many pages everything is flushed: reloading CR3 is then cheaper.
const FLUSH_SINGLY_MAX: u64 = 32;

/// This machine.
#[derive(Clone, Copy, Debug)]
pub struct Hardware(DirectMap);

impl Hardware {
    /// The one machine there is.
    pub const fn new() -> Self {
        Self(DirectMap)
    }

    /// Its memory.
    pub const fn memory(&self) -> &DirectMap {
        &self.0
    }
}

impl Machine for Hardware {
    type Mem = DirectMap;

    fn mem(&mut self) -> &mut DirectMap {
        &mut self.0
    }

    fn with<R>(&mut self, act: impl FnOnce(&mut DirectMap, &mut FrameAllocator) -> R) -> R {
        act(&mut self.0, &mut super::frames())
    }

    /// Page by page or all at once; either drops the paging-structure caches as a whole, so that
    /// tables given back in the range are forgotten however few of its pages were mapped.
    fn invalidate(&mut self, first: VirtAddr, last: VirtAddr) {
        let from = first.page_start().as_u64();
        let pages = last.as_u64().saturating_sub(from) / PAGE_SIZE + 1;
        match pages > FLUSH_SINGLY_MAX {
            true => super::invalidate_user(),
            false => (0..pages).for_each(|index| {
                super::invalidate(VirtAddr::new(from + index * PAGE_SIZE));
            }),
        }
        cores::shoot_down();
    }
}
