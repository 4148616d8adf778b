//! Long work on a program's memory, in which the node goes on looking at the network.
//!
//! Key type: [`Polling`]. Neighbours: `mm::Hardware` has the work itself, [`super::services`] the
//! network.
//!
//! Invariant: nothing here waits.

use kernel_core::addr::VirtAddr;
use kernel_core::frames::FrameAllocator;
use kernel_core::program::Machine;

use super::services::NodeServices;
use crate::mm::{DirectMap, Hardware};

/// This machine, for work that may be long: between two steps the node looks at the network when it
/// must.
pub(super) struct Polling<'a> {
    hardware: Hardware,
    services: &'a mut dyn NodeServices,
}

impl<'a> Polling<'a> {
    pub(super) fn new(services: &'a mut dyn NodeServices) -> Self {
        Self {
            hardware: Hardware::new(),
            services,
        }
    }
}

impl Machine for Polling<'_> {
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
