//! The node and the monitoring overlay: joining it, and lending it what it reads. Also a look at
//! what hardware found wrong.
//!
//! Invariant: the overlay's turn comes after everything that a job waits for.

use core::net::SocketAddrV4;

use netstack::broadcast::Peer;
use netstack::ids::BootEpoch;
use netstack::time::Instant;
use netstack::wire::key::Key;

use super::{Node, TICK};
use crate::agent::overlay::Identity;
use crate::monitor::collector::Sources;
use crate::{arch, time};

impl Node {
    /// Looks for hardware errors and does what the overlay has due: after everything that a job
    /// waits for.
    pub(super) fn monitor(&mut self) {
        let now = time::now();
        arch::machine_check::poll_if_due(now);
        if !self.overlay.is_due(now) {
            return;
        }
        let was_at_work = self.overlay.is_at_work();
        let (card, stack) = self.stack.counters();
        let overlay = self.overlay.figures();
        let mut sources = Sources {
            endpoint: self.endpoint.as_ref(),
            casts: self.casts.vitals(),
            asked_again: (self.casts.asked_again(), self.seats.asked_again()),
            warm: &self.warm,
            card,
            stack,
            job: self.overlay.job(),
            overlay,
        };
        let (stack, buffer) = (&mut self.stack, &mut self.buffer);
        self.overlay.transmit(now, stack, buffer, &mut sources);
        // That nothing is left is said at once: nobody has to wait for the next heartbeat to know.
        if was_at_work
            && !self.overlay.is_at_work()
            && let Some(endpoint) = &mut self.endpoint
        {
            endpoint.hasten_heartbeat(now, TICK);
        }
    }

    /// Takes part in the monitoring overlay from now on.
    pub(super) fn join_overlay(&mut self, key: Key, now: Instant) {
        let (Some(address), Some(control)) = (self.stack.address(), self.stack.control()) else {
            return;
        };
        let identity = Identity {
            node: self.node,
            boot: BootEpoch(self.identity.boot_epoch),
            me: Peer {
                addr: SocketAddrV4::new(address.address(), netstack::NODE_PORT),
                mac: self.stack.mac(),
            },
            control,
            key,
        };
        self.overlay.join(&identity, now);
    }
}
