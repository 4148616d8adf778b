//! How a program ends: its status, the report, what stays of it and giving back the rest.
//!
//! Invariant: whatever ended the program, only pages that are provably those of its file stay; all
//! its other frames are scrubbed before the exit is reported, so that no report of a job's end can
//! be followed by a node that still holds the job's data. What is left on the kernel's heap is
//! cleared as it is freed, and buffers of the network when the control node has the report
//! (`agent::node`). Short messages that their receivers do not have yet stay on the heap until they
//! have them (`exchange`).

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use hearth_abi::errno::Errno;
use kernel_core::crash::{CrashReport, Registers};
use kernel_core::fault::{Access, Cause};
use kernel_core::program::{BadAddress, Faults, Machine, Memory};
use kernel_core::retention::{Policy, ROOM_FRAMES, Retained, RetireCounts};
use kernel_core::signals::{Info, Timers};
use kernel_core::threads::{Tid, Wait};
use netstack::ids::LocalRank;
use netstack::io::{ExitReport, ExitStatus};
use netstack::retention::Verify;
use netstack::time::Instant;

use super::thread::Pause;
use super::{Exit, Process, verify};
use crate::mm::Hardware;
use crate::process::polling::Polling;
use crate::process::services::{NodeServices, Running};
use crate::time::Moment;
use crate::{arch, time};
use crate::{mm, monitor};

/// Frames scrubbed between two looks at the network: about a millisecond's worth.
const SCRUB_STEP: u64 = 1024;
/// Frames scrubbed at each wait of a program: far shorter than a round trip.
const SCRUB_WAITING: u64 = 32;

/// Why a program does not run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// It called exit.
    Exited(u8),
    /// It was ended.
    Killed {
        /// Why.
        cause: Cause,
        /// The access, when memory was the reason.
        access: Option<(u64, Access)>,
    },
}

/// The thread that ended its program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Crashed {
    /// Which one.
    pub tid: Tid,
    /// Its registers.
    pub registers: Registers,
    /// What came with the signal, where one that was sent has ended it.
    pub sent: Info,
}

/// Why a system call does not return a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// It returns an error.
    Errno(Errno),
    /// A signal interrupted it before it had done anything: it begins again, if the handler wants
    /// that.
    Restart,
    /// The thread has to wait; what it wanted begins anew then.
    Wait(Pause),
    /// So many frames are to be zeroed, without the lock, before the thread gets them.
    Zero(u64),
    /// The thread ends.
    Gone,
    /// The program ends.
    Ending(Ending),
}

impl Ending {
    /// Ended for a reason that has no address.
    pub(super) const fn killed(cause: Cause) -> Self {
        Self::Killed {
            cause,
            access: None,
        }
    }
}

impl Stop {
    /// The thread waits for something that the node brings.
    pub(super) const fn news() -> Self {
        Self::news_until(Instant::FAR_FUTURE)
    }

    /// The thread waits for something that the node brings, at most until `until`.
    pub(super) const fn news_until(until: Instant) -> Self {
        Self::Wait(Pause {
            on: Wait::News,
            until,
        })
    }

    /// The thread sleeps until `until` or until another thread or a signal wakes it.
    pub(super) const fn wake_at(until: Instant) -> Self {
        Self::Wait(Pause {
            on: Wait::Wake,
            until,
        })
    }

    /// The same, with `ending` where a call would have returned an error.
    pub(super) fn or_end(self, ending: Ending) -> Self {
        match self {
            Self::Errno(_) | Self::Restart => Self::Ending(ending),
            other => other,
        }
    }
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

impl From<Ending> for Stop {
    fn from(ending: Ending) -> Self {
        Self::Ending(ending)
    }
}

impl From<BadAddress> for Stop {
    fn from(_: BadAddress) -> Self {
        Self::Errno(Errno::EFAULT)
    }
}

/// What became of a program's memory.
struct GivenBack {
    counts: RetireCounts,
    scrubbed: u64,
    /// Pages that a sample found damaged.
    damaged: u64,
}

/// Scrubs what was given back; calls `between` now and then.
pub fn scrub(mut between: impl FnMut()) {
    while scrub_some() {
        between();
    }
}

/// Scrubs a millisecond's worth of frames; returns whether there may be more.
pub fn scrub_some() -> bool {
    scrub_up_to(SCRUB_STEP)
}

/// Scrubs a few frames, if any are dirty, in the time that a program waits for the network: what a
/// dropped program left is then clean before this one ends.
pub(super) fn scrub_while_waiting() {
    if mm::frames().usage().dirty > 0 {
        scrub_up_to(SCRUB_WAITING);
    }
}

fn scrub_up_to(most: u64) -> bool {
    let mut machine = Hardware::new();
    machine.with(|mem, frames| frames.scrub(mem, most)) == most
}

/// Gives back all that a program had, to the last page. For one that is dropped without a word.
pub(super) fn drop_memory(memory: Memory) {
    mm::activate_kernel_table();
    let mut machine = Hardware::new();
    let policy = Policy {
        keep: false,
        ..Policy::default()
    };
    if let (Some(retained), _) = memory.retire(&mut machine, &policy) {
        retained.discard(&mut machine);
    }
    scrub(|| ());
}

impl Process {
    /// Ends the program: every thread leaves it. The first reason counts.
    pub(super) fn end(&mut self, ending: Ending) {
        self.ending.get_or_insert(ending);
    }

    /// A program may end before its job's connection table is here. What it has sent goes out then.
    fn send_the_last(&self, services: &mut dyn NodeServices) {
        let mut has_waited = false;
        while let Some(until) = services.exchange().waits_for_table(time::now()) {
            if services.cancelled().is_some() {
                return;
            }
            services.wait(until);
            has_waited = true;
        }
        if has_waited {
            // The datagrams themselves, so that the ranks' addresses are known afterwards.
            services.poll();
        }
    }

    /// Takes the program's memory from it: what is provably the file's stays with the warm programs
    /// as the launch's policy says, everything else is given back and scrubbed.
    fn retire(&mut self, services: &mut dyn NodeServices) -> GivenBack {
        monitor::end_program(self.local, self.cost());
        self.send_the_last(services);
        let memory = self.memory.take().expect("memory of a program that ends");
        let is_well = self.ending == Some(Ending::Exited(0));
        services.exchange().close(time::now(), is_well);
        services.set_running(None);
        services.forget_pages();
        self.in_flight.clear();
        let mut machine = Hardware::new();
        let program = *memory.program_id();
        let before = {
            let frames = mm::frames();
            frames.counters().scrubbed + frames.usage().dirty
        };
        // What the first rank leaves is kept for the next launch, of the others nothing.
        self.policy.keep &= !services.dropped() && self.local == LocalRank::FIRST;
        let (retained, counts) = memory.retire(&mut Polling::new(services), &self.policy);
        services.set_running(retained.as_ref().map(Running::kept));
        // Nothing maps its files any more.
        self.leave_temporary(services);
        self.files.release();
        services.objects().sweep(&mut machine);
        // Before anything waits for the network.
        scrub(|| services.poll());
        let scrubbed = mm::frames().counters().scrubbed - before;
        let (mut retained, damaged) = self.sample(services, retained, &counts);
        services.set_running(None);
        // Control may have asked for it while the sample waited.
        if services.dropped()
            && let Some(unwanted) = retained.take()
        {
            unwanted.discard(&mut machine);
        }
        if self.local == LocalRank::FIRST {
            let warm = services.warm();
            warm.restore(&mut machine, &program, retained);
        }
        // The heap may have to grow before anybody faults again.
        services.keep_room(ROOM_FRAMES);
        super::check_frames(services, 1);
        GivenBack {
            counts,
            scrubbed,
            damaged,
        }
    }

    /// Looks at a few pages that an earlier run left, if the launch wants that. Returns what is
    /// held and how many pages were damaged.
    fn sample(
        &self,
        services: &mut dyn NodeServices,
        retained: Option<Retained>,
        counts: &RetireCounts,
    ) -> (Option<Retained>, u64) {
        let wanted = self.spec.retention.verify == Verify::Sample && counts.reused > 0;
        match retained {
            Some(held) if wanted => verify::sample(held, &self.spec, services),
            other => (other, 0),
        }
    }

    /// Ends a program that was loaded and will not run.
    pub(super) fn abandon(mut self, services: &mut dyn NodeServices, signal: u8) -> ExitReport {
        self.account.interrupts = arch::interrupts::counts();
        self.report(services, ExitStatus::Signal(signal), Moment::now())
    }

    /// Gives everything back and makes the report.
    pub(super) fn finish(mut self: Box<Self>, services: &mut dyn NodeServices) -> Exit {
        let ended = Moment::now();
        let ending = self.ending.expect("a program that has ended");
        self.signals.timers = Timers::new();
        self.flush_at_end(services);
        self.dump_core(services, ending);
        let wall = time::now().saturating_since(self.clock.started);
        let text = self.text(ending, services.objects().file_bytes());
        let mut report = self.report(services, status(ending), ended);
        report.wall_us = wall.as_micros();
        log(&self, &report);
        Exit { report, text }
    }

    /// Retires the memory and says what the program has cost.
    fn report(
        &mut self,
        services: &mut dyn NodeServices,
        status: ExitStatus,
        ended: Moment,
    ) -> ExitReport {
        let mut report = ExitReport::new(status);
        let memory = self.memory();
        report.warm = memory.pages_reused() > 0;
        report.frames_peak = memory.pages_peak();
        report.pages_large = memory.pages_large();
        report_faults(&mut report, &memory.faults());
        let back = self.retire(services);
        report_retirement(&mut report, &back);
        self.report_costs(&mut report, ended);
        let traffic = services.page_traffic();
        report.program_requests = traffic.requests;
        report.program_fragments = traffic.fragments;
        report.program_wire_bytes = traffic.wire_bytes;
        report
    }

    /// Times and counts of the run.
    fn report_costs(&mut self, report: &mut ExitReport, ended: Moment) {
        let account = &mut self.account;
        let interrupts = arch::interrupts::counts().since(&account.interrupts);
        report.user_us = time::of_counts(account.user_counts).as_micros();
        report.system_calls = account.system_calls;
        report.bytes_loaded = account.bytes_loaded;
        report.faults_from_cast = account.faults_from_cast;
        report.faults_awaited = account.faults_awaited;
        report.messages_sent = account.messages_sent;
        report.message_bytes = account.message_bytes;
        report.exchanges = account.exchanges;
        report.pages_damaged += account.pages_damaged;
        report.pages_discarded += account.pages_discarded;
        report.interrupts_user = monitor::interrupt_counts(&interrupts.user);
        report.interrupts_idle = monitor::interrupt_counts(&interrupts.idle);
        report.unknown_calls = core::mem::take(&mut account.unknown);
        report.launch_us = account.ready.since(account.arrived).as_micros();
        report.first_us = account.first.since(account.arrived).as_micros();
        report.first_counts = account.first.awake_since(account.arrived);
        report.exit_counts = ended.awake_since(account.arrived);
    }

    /// What the user should read about it, `None` when the program ended by itself or on request.
    fn text(&mut self, ending: Ending, file_bytes: u64) -> Option<String> {
        let Ending::Killed { cause, access } = ending else {
            return None;
        };
        if matches!(cause, Cause::Cancelled(_)) {
            return None;
        }
        let registers = self
            .crashed
            .map_or_else(Default::default, |thread| thread.registers);
        let space = self.memory().space();
        let report = CrashReport {
            cause,
            access,
            registers,
            space,
            file_bytes,
        };
        Some(report.text())
    }
}

fn status(ending: Ending) -> ExitStatus {
    match ending {
        Ending::Exited(code) => ExitStatus::Exited(code),
        // Not the program's fault.
        Ending::Killed {
            cause: Cause::PageUnavailable,
            ..
        } => ExitStatus::Failed,
        Ending::Killed { cause, .. } => ExitStatus::Signal(cause.signal_number()),
    }
}

fn report_faults(report: &mut ExitReport, faults: &Faults) {
    report.faults_code = faults.code;
    report.faults_readonly = faults.readonly;
    report.faults_data = faults.data;
    report.faults_zero = faults.zero;
    report.faults_stack = faults.stack;
    report.faults_held = faults.held;
    report.faults_copy = faults.copy;
}

fn report_retirement(report: &mut ExitReport, back: &GivenBack) {
    let counts = &back.counts;
    report.pages_asked = counts.readahead.asked;
    report.pages_read_ahead = counts.readahead.ahead;
    report.pages_from_cast = counts.readahead.cast;
    report.pages_read_ahead_used = counts.readahead.used;
    report.pages_reused = counts.reused;
    report.pages_kept = counts.kept - back.damaged;
    report.pages_discarded = counts.discarded + back.damaged;
    report.pages_damaged = back.damaged;
    report.table_pages = counts.tables;
    report.frames_scrubbed = back.scrubbed;
}

fn log(process: &Process, report: &ExitReport) {
    debug!(
        "process",
        "job {}: {} calls, faults {}+{}, pages {}+{} ({} used), {} reused, {} kept, {} frames scrubbed, \
         user {} us of {} us, first instruction after {} us, {} counts awake",
        process.spec.job,
        report.system_calls,
        report.faults_code + report.faults_readonly + report.faults_data,
        report.faults_zero + report.faults_stack,
        report.pages_asked,
        report.pages_read_ahead,
        report.pages_read_ahead_used,
        report.pages_reused,
        report.pages_kept,
        report.frames_scrubbed,
        report.user_us,
        report.wall_us,
        report.first_us,
        report.first_counts,
    );
    let unknown: Vec<_> = report.unknown_calls.iter().collect();
    if !unknown.is_empty() {
        debug!(
            "process",
            "system calls the node does not have: {unknown:?}"
        );
    }
}
