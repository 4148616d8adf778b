//! Waiting, pages of the program file, and copies between kernel and program.
//!
//! Requests for pages are answered out of step with the faults that caused them: each is kept as a
//! [`Flight`] until its answer has been put into place.
//!
//! Invariant: every wait ends at the latest with a cancel or the program's time limit, and looks
//! for both at least every [`WAIT_STEP`]; a call that works in a loop as long as its arguments say
//! looks for both in between ([`Process::look_up`]).

use hearth_abi::errno::Errno;
use kernel_core::addr::VirtAddr;
use kernel_core::fault::{Access, Cause};
use kernel_core::program::{Fetch, Outcome, UserSlice};
use kernel_core::readahead;
use netstack::ids::RequestId;
use netstack::page::{self, Object};
use netstack::time::{Instant, Micros};

use super::Process;
use super::ending::{Ending, Stop, scrub_while_waiting};
use crate::agent::services::NodeServices;
use crate::process::hardware::{Hardware, is_poll_due};
use crate::time;

/// Longest single wait.
const WAIT_STEP: Micros = Micros::from_secs(1);

// Flights are as many as both sides' tables take.
const _: () = assert!(readahead::IN_FLIGHT_MAX == page::MAX_REQUESTS);
const _: () = assert!(readahead::WINDOW_MAX * 4096 == page::MAX_REQUEST as u64);

/// A request for pages of the program that is under way.
pub(super) struct Flight {
    request: RequestId,
    fetch: Fetch,
}

impl Process {
    /// Waits once, at most until `deadline`; it may be early. Fails when the program must end.
    pub(super) fn wait(
        &mut self,
        services: &mut dyn NodeServices,
        deadline: Instant,
    ) -> Result<(), Ending> {
        scrub_while_waiting();
        let step = time::now() + WAIT_STEP;
        let limit = self.clock.limit.unwrap_or(Instant::FAR_FUTURE);
        self.publish();
        services.wait(deadline.min(step).min(limit).min(self.timer_deadline()));
        // Sleeping uses the one timer there is.
        self.clock.armed = false;
        self.ring();
        self.streams.collect(services);
        self.take_signals(services)?;
        self.look_for_end(services)
    }

    /// Waits until `deadline`, [`Instant::FAR_FUTURE`] meaning until the program is ended. EINTR
    /// when a signal is due before.
    pub(super) fn sleep(
        &mut self,
        services: &mut dyn NodeServices,
        deadline: Instant,
    ) -> Result<(), Stop> {
        loop {
            if self.signals.is_due() {
                return Err(Errno::EINTR.into());
            }
            if time::now() >= deadline {
                return Ok(());
            }
            self.wait(services, deadline)?;
        }
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
    /// heartbeat and what peers need would have interrupted it for, which cannot come in ring 0,
    /// and fails when the program must end.
    pub(super) fn look_up(&mut self, services: &mut dyn NodeServices) -> Result<(), Ending> {
        if is_poll_due(services) {
            self.publish();
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
        // Memory that a running program wants goes before programs that are only kept.
        services.keep_room();
        // Each turn but the last waits for a request that was under way already.
        let stop = loop {
            let outcome = self.memory().resolve(&mut Hardware::new(), address, access);
            let result = match outcome {
                Outcome::Done => return Ok(()),
                Outcome::Presented => {
                    self.read_ahead(services);
                    return Ok(());
                }
                Outcome::Fetch(fetch) => match self.page_in(services, &fetch) {
                    Ok(()) => return Ok(()),
                    Err(stop) => Err(stop),
                },
                Outcome::InFlight(first) => {
                    self.read_ahead(services);
                    self.await_arrival(services, first)
                }
                Outcome::Kill(cause) => Err(Stop::Cause(cause)),
            };
            if let Err(stop) = result {
                break stop;
            }
        };
        match stop {
            Stop::Ending(ending) => Err(ending),
            Stop::Cause(cause) => Err(Ending::Killed {
                cause,
                access: Some((address, access)),
            }),
            Stop::Errno(_) | Stop::Restart => unreachable!("fetching a page answers no call"),
        }
    }

    /// Fetches pages of the program file that the program waits for, and puts them into place. What
    /// a broadcast brings is not asked for.
    fn page_in(&mut self, services: &mut dyn NodeServices, fetch: &Fetch) -> Result<(), Stop> {
        if self.page_from_cast(services, fetch)? {
            return Ok(());
        }
        self.ask(services, fetch)?;
        self.ask_ahead(services);
        self.await_arrival(services, fetch.page)
    }

    /// Asks for pages of the program file.
    pub(super) fn ask(
        &mut self,
        services: &mut dyn NodeServices,
        fetch: &Fetch,
    ) -> Result<(), Stop> {
        let length = fetch.length as u32;
        loop {
            match services.request_pages(Object::Program, fetch.offset, length, fetch.demand) {
                Ok(request) => {
                    self.flights.push(Flight {
                        request,
                        fetch: *fetch,
                    });
                    return Ok(());
                }
                Err(_full) => {
                    self.collect_pages(services)?;
                    self.wait(services, Instant::FAR_FUTURE)?;
                }
            }
        }
    }

    /// Waits until at most `most` requests for pages of the program are under way.
    pub(super) fn await_flights(
        &mut self,
        services: &mut dyn NodeServices,
        most: usize,
    ) -> Result<(), Stop> {
        loop {
            self.collect_pages(services)?;
            if self.flights.len() <= most {
                return Ok(());
            }
            self.wait(services, Instant::FAR_FUTURE)?;
        }
    }

    /// Waits for the request whose first page is `first`.
    fn await_arrival(
        &mut self,
        services: &mut dyn NodeServices,
        first: VirtAddr,
    ) -> Result<(), Stop> {
        loop {
            self.collect_pages(services)?;
            if !self.flights.iter().any(|flight| flight.fetch.page == first) {
                return Ok(());
            }
            self.wait(services, Instant::FAR_FUTURE)?;
        }
    }

    /// Asks for what a program that runs in sequence will need next, after putting into place what
    /// has arrived. Nobody waits: what fails here is asked for again when it is touched.
    fn read_ahead(&mut self, services: &mut dyn NodeServices) {
        if !self.flights.is_empty() {
            services.poll();
            // No page that is waited for is under way here, so that nothing can fail.
            let _ = self.collect_pages(services);
        }
        if self.ask_ahead(services) {
            services.poll();
        }
    }

    /// Asks for all that is wanted ahead; returns whether it was anything.
    fn ask_ahead(&mut self, services: &mut dyn NodeServices) -> bool {
        let mut asked = false;
        while let Some(fetch) = self.memory().plan_ahead(&mut Hardware::new()) {
            if self.hold_from_cast(services, &fetch) {
                continue;
            }
            let length = fetch.length as u32;
            match services.request_pages(Object::Program, fetch.offset, length, false) {
                Ok(request) => self.flights.push(Flight { request, fetch }),
                Err(_full) => {
                    self.memory().abandon(&fetch);
                    break;
                }
            }
            asked = true;
        }
        asked
    }

    /// Puts pages that have arrived into place. Fails when one that is waited for cannot be had.
    fn collect_pages(&mut self, services: &mut dyn NodeServices) -> Result<(), Stop> {
        while let Some(done) = services.take_pages() {
            let mut flights = self.flights.iter();
            let Some(index) = flights.position(|flight| flight.request == done.request) else {
                continue;
            };
            let fetch = self.flights.swap_remove(index).fetch;
            let installed = match done.result {
                Ok(bytes) => {
                    self.account.bytes_loaded += bytes.len() as u64;
                    self.memory().install(&mut Hardware::new(), &fetch, &bytes)
                }
                Err(error) => {
                    let offset = fetch.offset;
                    warn!("process", "page at {offset:#x} of the program: {error:?}");
                    self.memory().abandon(&fetch);
                    Err(Cause::PageUnavailable)
                }
            };
            if fetch.demand {
                installed.map_err(Stop::Cause)?;
            }
        }
        Ok(())
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
    pub(super) fn fault_for_kernel(
        &mut self,
        services: &mut dyn NodeServices,
        address: u64,
        access: Access,
    ) -> Result<(), Stop> {
        match self.fault(services, address, access) {
            Err(Ending::Killed { cause, .. }) if cause.is_bad_address() => {
                Err(Errno::EFAULT.into())
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
