//! The real machine under `kernel_core::program`: physical map, frame allocator, TLB.
//!
//! Neighbours: [`super::pager`] and the calls pass [`Hardware`] to every operation on a program's
//! memory; `mm` owns what is behind it.
//!
//! Invariant: the frame allocator is locked only inside [`Machine::with`], where nothing allocates
//! from the heap; a changed translation is forgotten by all cores before the call returns.

use kernel_core::addr::{PAGE_SIZE, VirtAddr};
use kernel_core::frames::FrameAllocator;
use kernel_core::program::Machine;

use crate::agent::services::NodeServices;
use crate::arch::cores;
use crate::mm::{self, DirectMap};

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
}

impl Machine for Hardware {
    type Mem = DirectMap;

    fn mem(&mut self) -> &mut DirectMap {
        &mut self.0
    }

    fn with<R>(&mut self, act: impl FnOnce(&mut DirectMap, &mut FrameAllocator) -> R) -> R {
        act(&mut self.0, &mut mm::frames())
    }

    /// Page by page or all at once; either drops the paging-structure caches as a whole, so that
    /// tables given back in the range are forgotten however few of its pages were mapped.
    fn invalidate(&mut self, first: VirtAddr, last: VirtAddr) {
        let from = first.page_start().as_u64();
        let pages = last.as_u64().saturating_sub(from) / PAGE_SIZE + 1;
        match pages > FLUSH_SINGLY_MAX {
            true => mm::invalidate_user(),
            false => (0..pages).for_each(|index| {
                mm::invalidate(VirtAddr::new(from + index * PAGE_SIZE));
            }),
        }
        cores::shoot_down();
    }
}

/// This machine, for work that may be long: between two steps the node looks at the network when it
/// must.
pub(super) struct Attended<'a> {
    hardware: Hardware,
    services: &'a mut dyn NodeServices,
}

impl<'a> Attended<'a> {
    pub(super) fn new(services: &'a mut dyn NodeServices) -> Self {
        Self {
            hardware: Hardware::new(),
            services,
        }
    }
}

impl Machine for Attended<'_> {
    type Mem = DirectMap;

    fn mem(&mut self) -> &mut DirectMap {
        self.hardware.mem()
    }

    fn with<R>(&mut self, act: impl FnOnce(&mut DirectMap, &mut FrameAllocator) -> R) -> R {
        self.hardware.with(act)
    }

    fn invalidate(&mut self, first: VirtAddr, last: VirtAddr) {
        self.hardware.invalidate(first, last);
    }

    /// What is under way cannot be cut short, so that nobody asks here whether the program must
    /// end.
    fn pause(&mut self) {
        if is_poll_due(self.services) {
            self.services.poll();
        }
    }
}

/// Whether it is time for what the heartbeat and what peers need would have interrupted a computing
/// program for.
pub(super) fn is_poll_due(services: &dyn NodeServices) -> bool {
    let now = services.now();
    let peers = services.peers_deadline();
    now >= services.tick() || peers.is_some_and(|due| now >= due)
}
