//! Tells the control node that this node has panicked.
//!
//! Key type: [`Route`], addresses and keys kept ready while the node is well, because a panic may
//! come while the stack and the endpoint are half changed. Neighbours: `netstack::node` makes the
//! datagram, `drivers::last_resort` sends the frame, `panic` calls [`speak`].
//!
//! Invariant: nothing here allocates or takes a lock that a panicking kernel may hold for good.

use core::sync::atomic::{AtomicBool, Ordering};

use netstack::MAX_DATAGRAM;
use netstack::node::PanicReporter;
use spin::Mutex;

use crate::drivers;
use crate::drivers::nic::FRAME_MAX;
use crate::net::frame::UdpFrame;

/// Times the message is sent; nobody is left to wait for an answer.
const ATTEMPTS: u32 = 3;

/// How to reach the control node without the stack.
#[derive(Debug, Clone, Copy)]
pub struct Route {
    /// Makes the authenticated datagram.
    pub reporter: PanicReporter,
    /// From this node to the control node.
    pub frame: UdpFrame,
}

static ROUTE: Mutex<Option<Route>> = Mutex::new(None);
static SPOKEN: AtomicBool = AtomicBool::new(false);

/// Keeps `route` for a panic to come; `None` when the control node cannot be reached now.
pub fn prepare(route: Option<Route>) {
    *ROUTE.lock() = route;
}

/// Sends `text` to the control node, once in the life of the kernel. Best effort.
pub fn speak(text: &str) {
    if SPOKEN.swap(true, Ordering::Relaxed) {
        return;
    }
    let Some(route) = ROUTE.try_lock().and_then(|route| *route) else {
        return;
    };
    for attempt in 0..ATTEMPTS {
        let mut datagram = [0; MAX_DATAGRAM];
        let len = route.reporter.datagram(attempt, text, &mut datagram);
        let mut frame = [0; FRAME_MAX];
        let len = route.frame.emit(&datagram[..len], &mut frame);
        drivers::last_resort::send(&frame[..len]);
    }
}
