//! Waiting, pages of the program file, and copies between kernel and program.
//!
//! Invariant: every wait ends at the latest with a cancel or the program's time limit, and looks
//! for both at least every [`WAIT_STEP`]; a call that works in a loop as long as its arguments say
//! looks for both in between ([`Process::look_up`]).

use kernel_core::fault::{Access, Cause};
use kernel_core::program::{Fetch, Outcome, UserSlice};
use netstack::page::Object;
use netstack::time::{Instant, Micros};

use super::Process;
use super::ending::{Ending, Stop};
use crate::agent::services::NodeServices;
use crate::process::hardware::Hardware;
use crate::time;

/// Longest single wait.
const WAIT_STEP: Micros = Micros::from_secs(1);

impl Process {
    /// Waits once, at most until `deadline`; it may be early. Fails when the program must end.
    pub(super) fn wait(
        &mut self,
        services: &mut dyn NodeServices,
        deadline: Instant,
    ) -> Result<(), Ending> {
        let step = time::now() + WAIT_STEP;
        let limit = self.clock.limit.unwrap_or(Instant::FAR_FUTURE);
        services.wait(deadline.min(step).min(limit));
        // Sleeping uses the one timer there is.
        self.clock.armed = false;
        self.streams.collect(services);
        self.look_for_end(services)
    }

    /// Waits until `deadline`, [`Instant::FAR_FUTURE`] meaning until the program is ended.
    pub(super) fn sleep(
        &mut self,
        services: &mut dyn NodeServices,
        deadline: Instant,
    ) -> Result<(), Ending> {
        while time::now() < deadline {
            self.wait(services, deadline)?;
        }
        Ok(())
    }

    /// Whether control wants the program ended, or its time is over.
    pub(super) fn look_for_end(&self, services: &dyn NodeServices) -> Result<(), Ending> {
        if let Some(signal) = services.cancelled() {
            return Err(Ending::killed(Cause::Cancelled(signal)));
        }
        match self.clock.limit {
            Some(limit) if time::now() >= limit => Err(Ending::killed(Cause::TimeLimit)),
            _ => Ok(()),
        }
    }

    /// For calls that work long without waiting, between two pieces of work: does what the
    /// heartbeat interrupt would have done, which cannot come in ring 0, and fails when the
    /// program must end.
    pub(super) fn look_up(&mut self, services: &mut dyn NodeServices) -> Result<(), Ending> {
        if services.now() >= services.tick() {
            services.poll();
            self.streams.collect(services);
        }
        self.look_for_end(services)
    }

    /// Handles a fault of the program, or of the kernel on its behalf.
    pub(super) fn fault(
        &mut self,
        services: &mut dyn NodeServices,
        address: u64,
        access: Access,
    ) -> Result<(), Ending> {
        let outcome = self.memory().resolve(&mut Hardware::new(), address, access);
        let cause = match outcome {
            Outcome::Done | Outcome::Presented => return Ok(()),
            // Each fetch is waited for, so none is under way.
            Outcome::InFlight(_) => Cause::PageUnavailable,
            Outcome::Kill(cause) => cause,
            Outcome::Fetch(fetch) => match self.page_in(services, &fetch) {
                Ok(()) => return Ok(()),
                Err(Stop::Cause(cause)) => cause,
                Err(Stop::Ending(ending)) => return Err(ending),
                Err(Stop::Errno(errno)) => unreachable!("paging gave {errno:?}"),
            },
        };
        Err(Ending::Killed {
            cause,
            access: Some((address, access)),
        })
    }

    /// Fetches pages of the program file and puts them into place.
    pub(super) fn page_in(
        &mut self,
        services: &mut dyn NodeServices,
        fetch: &Fetch,
    ) -> Result<(), Stop> {
        let length = fetch.length as u32;
        let bytes = self.read_object(
            services,
            Object::Program,
            fetch.offset,
            length,
            fetch.demand,
        )?;
        self.account.bytes_loaded += bytes.len() as u64;
        self.memory()
            .install(&mut Hardware::new(), fetch, &bytes)
            .map_err(Stop::Cause)
    }

    /// Reads a range of one of the job's objects from control.
    fn read_object(
        &mut self,
        services: &mut dyn NodeServices,
        object: Object,
        offset: u64,
        length: u32,
        demand: bool,
    ) -> Result<alloc::vec::Vec<u8>, Stop> {
        let request = loop {
            match services.request_pages(object, offset, length, demand) {
                Ok(request) => break request,
                Err(_full) => self.wait(services, Instant::FAR_FUTURE)?,
            }
        };
        loop {
            while let Some(done) = services.take_pages() {
                if done.request == request {
                    return done.result.map_err(|error| {
                        warn!("process", "page at {offset:#x} of the program: {error:?}");
                        Stop::Cause(Cause::PageUnavailable)
                    });
                }
            }
            self.wait(services, Instant::FAR_FUTURE)?;
        }
    }

    /// Copies from the program, bringing in pages as its own access would.
    pub(super) fn read_user(
        &mut self,
        services: &mut dyn NodeServices,
        from: UserSlice,
        out: &mut [u8],
    ) -> Result<(), Stop> {
        let mut done = 0;
        loop {
            let memory = self.memory();
            match memory.copy_from(&mut Hardware::new(), from, out, done) {
                Ok(()) => return Ok(()),
                Err(missing) => {
                    self.fault_for_kernel(services, missing.address, Access::Read)?;
                    done = missing.done;
                }
            }
        }
    }

    /// Copies to the program, bringing in pages as its own access would.
    pub(super) fn write_user(
        &mut self,
        services: &mut dyn NodeServices,
        to: UserSlice,
        bytes: &[u8],
    ) -> Result<(), Stop> {
        let mut done = 0;
        loop {
            let memory = self.memory();
            match memory.copy_to(&mut Hardware::new(), to, bytes, done) {
                Ok(()) => return Ok(()),
                Err(missing) => {
                    self.fault_for_kernel(services, missing.address, Access::Write)?;
                    done = missing.done;
                }
            }
        }
    }

    /// A fault of the kernel on the program's behalf: a bad address is EFAULT, everything else
    /// is as if the program had touched the page.
    fn fault_for_kernel(
        &mut self,
        services: &mut dyn NodeServices,
        address: u64,
        access: Access,
    ) -> Result<(), Stop> {
        match self.fault(services, address, access) {
            Err(Ending::Killed { cause, .. }) if cause.is_bad_address() => {
                Err(Stop::Errno(hearth_abi::errno::Errno::EFAULT))
            }
            other => other.map_err(Stop::Ending),
        }
    }

    /// Copies a small array from the program.
    pub(super) fn read_array<const N: usize>(
        &mut self,
        services: &mut dyn NodeServices,
        address: u64,
    ) -> Result<[u8; N], Stop> {
        let mut bytes = [0; N];
        self.read_user(services, UserSlice::new(address, N as u64)?, &mut bytes)?;
        Ok(bytes)
    }

    /// Copies bytes to an address of the program.
    pub(super) fn write_bytes(
        &mut self,
        services: &mut dyn NodeServices,
        address: u64,
        bytes: &[u8],
    ) -> Result<(), Stop> {
        let to = UserSlice::new(address, bytes.len() as u64)?;
        self.write_user(services, to, bytes)
    }
}
