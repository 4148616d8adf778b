//! The worker's end of the socket to its service: one connection after another, since services come
//! and go while the job runs.
//!
//! Invariant: a reply goes to the service that there is when it is sent.

use std::os::unix::net::UnixDatagram;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The connection that there is, for all threads.
#[derive(Debug, Default)]
pub struct Link {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Counts the connections.
    count: u64,
    socket: Option<Arc<UnixDatagram>>,
    /// The job is over.
    is_over: bool,
}

impl Link {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls come by this socket from now on.
    pub fn connect(&self, socket: Arc<UnixDatagram>) {
        let mut state = self.state();
        state.count += 1;
        state.socket = Some(socket);
        drop(state);
        self.changed.notify_all();
    }

    /// The job is over: nobody calls any more.
    pub fn end(&self) {
        let mut state = self.state();
        state.is_over = true;
        if let Some(socket) = &state.socket {
            // Who waits for a call by it waits no longer.
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Whether the job is over.
    pub fn is_over(&self) -> bool {
        self.state().is_over
    }

    /// The first connection behind the one with this number, waited for; `None` when the job is
    /// over.
    pub fn after(&self, count: u64) -> Option<(u64, Arc<UnixDatagram>)> {
        let mut state = self.state();
        loop {
            match &state.socket {
                _ if state.is_over => return None,
                Some(socket) if state.count > count => {
                    return Some((state.count, Arc::clone(socket)));
                }
                _ => {}
            }
            let woken = self.changed.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Sends a packet to the service that there is. One that is gone does not get it: the next one
    /// asks again.
    pub fn send(&self, packet: &[u8]) {
        let socket = self.state().socket.clone();
        if let Some(socket) = socket {
            let _ = socket.send(packet);
        }
    }
}
