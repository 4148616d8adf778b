//! The thread that the kernel works for now, with its process and the node: what calls and faults
//! get their hands on.
//!
//! Neighbours: [`super::run_loop`] makes one for each trap, [`super::calls`] and [`super::signals`]
//! are its methods, [`super::pager`] and [`super::streams`] do the work on the process.
//!
//! Invariant: whatever has to wait is an `Err` of [`Stop::Wait`] and is begun anew later, so
//! nothing here outlives the trap.

use kernel_core::fault::Access;
use kernel_core::program::UserSlice;
use kernel_core::threads::Core;
use netstack::time::Instant;

use super::Process;
use super::ending::{Ending, Stop};
use super::thread::Thread;
use crate::mm::Hardware;
use crate::process::services::NodeServices;
use crate::time;

/// A thread, its process and its node.
pub(super) struct Current<'a> {
    /// The core that this happens on.
    pub(super) core: Core,
    pub(super) process: &'a mut Process,
    pub(super) thread: &'a mut Thread,
    pub(super) services: &'a mut dyn NodeServices,
}

impl Current<'_> {
    /// Copies from the program, bringing in pages as its own access would.
    pub(super) fn read_user(&mut self, from: UserSlice, out: &mut [u8]) -> Result<(), Stop> {
        self.process.read_user(self.services, from, out)
    }

    /// Copies to the program, bringing in pages as its own access would.
    pub(super) fn write_user(&mut self, to: UserSlice, bytes: &[u8]) -> Result<(), Stop> {
        self.process.write_user(self.services, to, bytes)
    }

    /// Copies a small array from the program.
    pub(super) fn read_array<const N: usize>(&mut self, address: u64) -> Result<[u8; N], Stop> {
        let mut bytes = [0; N];
        self.read_user(UserSlice::new(address, N as u64)?, &mut bytes)?;
        Ok(bytes)
    }

    /// Copies bytes to an address of the program.
    pub(super) fn write_bytes(&mut self, address: u64, bytes: &[u8]) -> Result<(), Stop> {
        let to = UserSlice::new(address, bytes.len() as u64)?;
        self.write_user(to, bytes)
    }

    /// Brings the pages of a range in that a call is going to write when it can no longer wait or
    /// fail.
    pub(super) fn make_writable(&mut self, range: UserSlice) -> Result<(), Stop> {
        loop {
            let lacks = self
                .process
                .memory()
                .lacks(&mut Hardware::new(), range, Access::Write);
            let Some(missing) = lacks else { return Ok(()) };
            self.fault_for_kernel(missing, Access::Write)?;
        }
    }

    /// A fault of the kernel on the program's behalf: a bad address is EFAULT.
    pub(super) fn fault_for_kernel(&mut self, address: u64, access: Access) -> Result<(), Stop> {
        self.process
            .fault_for_kernel(self.services, address, access)
    }

    /// Looks at the network, and takes in what that brought.
    pub(super) fn poll(&mut self) {
        self.services.poll();
        self.process.settle(self.services);
    }

    /// For calls that work long without waiting, between two pieces of work.
    pub(super) fn poll_and_check(&mut self) -> Result<(), Ending> {
        self.process.poll_and_check(self.services)
    }

    /// Whether a signal waits that the thread would take now.
    pub(super) fn is_signal_due(&self) -> bool {
        self.process.signals.is_due(&self.thread.signals)
    }

    /// Sleeps until `deadline`, [`Instant::FAR_FUTURE`] meaning until the program is ended. EINTR
    /// when a signal is due before.
    pub(super) fn sleep(&mut self, deadline: Instant) -> Result<(), Stop> {
        if self.is_signal_due() {
            return Err(hearth_abi::errno::Errno::EINTR.into());
        }
        match time::now() >= deadline {
            true => Ok(()),
            false => Err(Stop::wake_at(deadline)),
        }
    }
}
