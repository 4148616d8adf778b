//! Waiting, pages of the program file, and copies between kernel and program.
//!
//! Pages come out of step with the faults that wanted them: each fetch is kept as a [`InFlight`]
//! until its pages are in place. A fault or a call that needs one fails with [`Stop::Wait`] and is
//! begun anew when it has come.
//!
//! Invariant: every wait ends at the latest with a cancel or the program's time limit, and looks
//! for both at least every [`WAIT_STEP`]; a call that works in a loop as long as its arguments say
//! looks for both in between ([`Process::poll_and_check`]).

use hearth_abi::errno::Errno;
use kernel_core::addr::VirtAddr;
use kernel_core::fault::{Access, Cause};
use kernel_core::program::{Fetch, Outcome, UserSlice};
use kernel_core::readahead;
use kernel_core::retention::ROOM_FRAMES;
use netstack::ids::RequestId;
use netstack::page::{self, Object};
use netstack::time::{Instant, Micros};

use super::Process;
use super::ending::{Ending, Stop};
use super::image::Step;
use crate::mm::Hardware;
use crate::process::polling::is_poll_due;
use crate::process::services::NodeServices;
use crate::time;

/// Longest single wait.
pub(super) const WAIT_STEP: Micros = Micros::from_secs(1);

// Flights are as many as both sides' tables take.
const _: () = assert!(readahead::IN_FLIGHT_MAX == page::MAX_REQUESTS);
const _: () = assert!(readahead::WINDOW_MAX * 4096 == page::MAX_REQUEST as u64);

/// Pages of the program's file that are on their way.
pub(super) struct InFlight {
    fetch: Fetch,
    source: Source,
}

/// Where the pages of a flight come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// A broadcast that brings them until then.
    Cast { until: Instant },
    /// The control node, once it can be asked.
    Unasked,
    /// The control node, which was asked.
    Asked(RequestId),
}

impl Process {
    /// Takes in what has come for the process, keeps its deadlines, and has every thread look again
    /// that waits for anything of it. To be called after each look at the network.
    pub(super) fn settle(&mut self, services: &mut dyn NodeServices) {
        services.take_polled();
        self.ring();
        self.take_signals(services);
        self.streams.collect(services);
        self.collect_pages(services);
        self.chase(services);
        self.push_output(services);
        self.offer_input();
        self.threads.wake_news();
        self.threads.expire(time::now().as_micros());
        if let Err(ending) = self.check_cancelled(services) {
            self.end(ending);
        }
    }

    /// When the process must be looked after next, if nothing comes before.
    pub(super) fn next_due(&self) -> Instant {
        let thread = self.threads.earliest();
        let thread = thread.map_or(Instant::FAR_FUTURE, Instant::from_micros);
        let until = |flight: &InFlight| match flight.source {
            Source::Cast { until } => Some(until),
            Source::Unasked | Source::Asked(_) => None,
        };
        let requests = self.in_flight.iter().filter_map(until);
        requests.fold(thread.min(self.own_deadline().0), Instant::min)
    }

    /// Whether control wants the program ended, or its time is over.
    pub(super) fn check_cancelled(&self, services: &dyn NodeServices) -> Result<(), Ending> {
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
    pub(super) fn poll_and_check(&mut self, services: &mut dyn NodeServices) -> Result<(), Ending> {
        if is_poll_due(services) {
            self.publish();
            services.poll();
            self.settle(services);
        }
        self.check_cancelled(services)
    }

    /// Handles a fault of the program, or of the kernel on its behalf. Fails with the program's
    /// end, or while pages are on their way.
    pub(super) fn fault(
        &mut self,
        services: &mut dyn NodeServices,
        address: u64,
        access: Access,
    ) -> Result<(), Stop> {
        // Memory that a running program wants goes before programs that are only kept.
        services.keep_room(ROOM_FRAMES);
        // Ends: a fetch that is over leaves a page, or the end of the program.
        loop {
            if let Some(ending) = self.ending {
                return Err(ending.into());
            }
            match self.memory().resolve(&mut Hardware::new(), address, access) {
                Outcome::Done => return Ok(()),
                Outcome::Presented => {
                    self.read_ahead(services);
                    return Ok(());
                }
                Outcome::Fetch(fetch) => self.page_in(services, fetch)?,
                Outcome::InFlight(first) => {
                    self.read_ahead(services);
                    self.await_arrival(first)?;
                }
                Outcome::Full => {
                    services.poll();
                    self.collect_pages(services);
                    return Err(Stop::news());
                }
                Outcome::Kill(cause) => {
                    let access = Some((address, access));
                    return Err(Ending::Killed { cause, access }.into());
                }
            }
        }
    }

    /// Whether the program may make this access now.
    pub(super) fn is_there(&mut self, address: u64, access: Access) -> bool {
        UserSlice::new(address, 1).is_ok_and(|byte| {
            let lacks = self.memory().lacks(&mut Hardware::new(), byte, access);
            lacks.is_none()
        })
    }

    /// Fetches pages of the program file that the program waits for, and puts them into place. What
    /// a broadcast brings is not asked for.
    fn page_in(&mut self, services: &mut dyn NodeServices, fetch: Fetch) -> Result<(), Stop> {
        let first = fetch.page;
        if services.page_beside(first).is_some() {
            return self.copy_from_beside(services, &fetch);
        }
        if services.is_asked_beside(fetch.offset) {
            // It begins anew when that has come.
            self.memory().abandon(&fetch);
            return Err(Stop::news());
        }
        if self.begin_from_cast(services, &fetch) {
            return Ok(());
        }
        self.chase(services);
        self.ask_ahead(services);
        self.await_arrival(first)
    }

    /// Asks for pages of the program file: at once, or as soon as there is room for a request.
    pub(super) fn ask(&mut self, services: &mut dyn NodeServices, fetch: Fetch) {
        self.fly(fetch, None);
        self.chase(services);
    }

    /// Notes that pages are on their way, with a broadcast until then or else from control.
    pub(super) fn fly(&mut self, fetch: Fetch, cast_until: Option<Instant>) {
        let source = cast_until.map_or(Source::Unasked, |until| Source::Cast { until });
        self.in_flight.push(InFlight { fetch, source });
    }

    /// Brings each flight a step further that nobody has been asked for.
    pub(super) fn chase(&mut self, services: &mut dyn NodeServices) {
        let mut index = 0;
        while let Some(flight) = self.in_flight.get(index) {
            let InFlight { fetch, source } = *flight;
            if let Source::Cast { until } = source {
                match self.step_of_cast(services, &fetch, until) {
                    Step::Comes => {}
                    Step::InPlace => {
                        self.in_flight.swap_remove(index);
                        self.threads.wake_news();
                        continue;
                    }
                    Step::Fails => self.in_flight[index].source = Source::Unasked,
                }
            }
            if self.in_flight[index].source == Source::Unasked {
                let length = fetch.length as u32;
                let asked =
                    services.request_pages(Object::Program, fetch.offset, length, fetch.demand);
                if let Ok(request) = asked {
                    self.in_flight[index].source = Source::Asked(request);
                }
            }
            index += 1;
        }
    }

    /// Waits until at most `most` flights are on their way.
    pub(super) fn await_requests(
        &mut self,
        services: &mut dyn NodeServices,
        most: usize,
    ) -> Result<(), Stop> {
        self.collect_pages(services);
        match self.in_flight.len() <= most {
            true => Ok(()),
            false => Err(Stop::news()),
        }
    }

    /// Waits for the flight whose first page is `first`.
    fn await_arrival(&self, first: VirtAddr) -> Result<(), Stop> {
        match self
            .in_flight
            .iter()
            .any(|flight| flight.fetch.page == first)
        {
            true => Err(Stop::news()),
            false => Ok(()),
        }
    }

    /// Asks for what a program that runs in sequence will need next, after putting into place what
    /// has arrived. Nobody waits: what fails here is asked for again when it is touched.
    fn read_ahead(&mut self, services: &mut dyn NodeServices) {
        if !self.in_flight.is_empty() {
            services.poll();
            self.collect_pages(services);
        }
        if self.ask_ahead(services) {
            services.poll();
            self.collect_pages(services);
        }
    }

    /// Asks for all that is wanted ahead; returns whether it was anything.
    fn ask_ahead(&mut self, services: &mut dyn NodeServices) -> bool {
        let mut asked = false;
        while let Some(fetch) = self.memory().plan_ahead(&mut Hardware::new()) {
            if self.hold_from_beside(services, &fetch) || self.hold_from_cast(services, &fetch) {
                continue;
            }
            let length = fetch.length as u32;
            match services.request_pages(Object::Program, fetch.offset, length, false) {
                Ok(request) => self.in_flight.push(InFlight {
                    fetch,
                    source: Source::Asked(request),
                }),
                Err(_full) => {
                    self.memory().abandon(&fetch);
                    break;
                }
            }
            asked = true;
        }
        asked
    }

    /// Puts pages that have arrived into place, and has the threads look that wait for any: another
    /// one has called this, and nobody else may tell them. One that is waited for and cannot be had
    /// ends the program.
    fn collect_pages(&mut self, services: &mut dyn NodeServices) {
        while let Some(done) = services.take_pages() {
            self.threads.wake_news();
            let source = Source::Asked(done.request);
            let Some(index) = self.in_flight.iter().position(|f| f.source == source) else {
                continue;
            };
            let fetch = self.in_flight.swap_remove(index).fetch;
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
            if let Err(cause) = installed
                && fetch.demand
            {
                self.fail(&fetch, cause);
            }
        }
    }

    /// Ends the program: a page that it waits for cannot be had.
    pub(super) fn fail(&mut self, fetch: &Fetch, cause: Cause) {
        let access = match fetch.write {
            true => Access::Write,
            false => Access::Read,
        };
        self.end(Ending::Killed {
            cause,
            access: Some((fetch.page.as_u64(), access)),
        });
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
            Err(Stop::Ending(Ending::Killed { cause, .. })) if cause.is_bad_address() => {
                Err(Errno::EFAULT.into())
            }
            other => other,
        }
    }
}
