//! How a program ends: its status, the report, and giving back what it had.
//!
//! Invariant: a program's frames are scrubbed before the exit is reported, so that no report of a
//! job's end can be followed by a node that still holds the job's data.

use alloc::string::String;
use alloc::vec::Vec;

use hearth_abi::errno::Errno;
use kernel_core::crash::{CrashReport, Registers};
use kernel_core::fault::{Access, Cause};
use kernel_core::program::{BadAddress, Machine, Memory};
use kernel_core::readahead;
use kernel_core::retention::Policy;
use netstack::io::{ExitReport, ExitStatus};

use super::{Exit, Process};
use crate::agent::services::NodeServices;
use crate::agent::vitals;
use crate::arch::user::UserContext;
use crate::mm;
use crate::process::hardware::Hardware;
use crate::{arch, time};

/// Frames scrubbed between two looks at the network: about a millisecond's worth.
const SCRUB_STEP: u64 = 1024;

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

/// Why a system call does not return a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// It returns an error.
    Errno(Errno),
    /// A page could not be had.
    Cause(Cause),
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

/// What giving back a program's memory came to.
pub(super) struct GivenBack {
    pub(super) counts: readahead::Counts,
    pub(super) scrubbed: u64,
}

/// Frees and scrubs all of a program's frames; calls `between` now and then.
pub(super) fn give_back(memory: Memory, mut between: impl FnMut()) -> GivenBack {
    mm::activate_kernel_table();
    let mut machine = Hardware::new();
    let before = mm::frames().counters().scrubbed;
    let (retained, counts) = memory.retire(&mut machine, &Policy::nothing());
    debug_assert!(retained.is_none());
    while machine.with(|mem, frames| frames.scrub(mem, SCRUB_STEP)) == SCRUB_STEP {
        between();
    }
    let frames = mm::frames();
    debug_assert_eq!(frames.check(), Ok(()));
    GivenBack {
        counts: counts.readahead,
        scrubbed: frames.counters().scrubbed - before,
    }
}

impl Process {
    /// Gives everything back and makes the report.
    pub(super) fn finish(mut self, services: &mut dyn NodeServices, ending: Ending) -> Exit {
        arch::timer::disarm();
        self.clock.armed = false;
        self.flush_at_end(services);
        let ended = time::now();
        let text = self.text(ending);
        let memory = self.memory.take().expect("memory of a program that ends");
        let (faults, peak) = (memory.faults(), memory.pages_peak());
        let back = give_back(memory, || services.poll());
        // What the program left in the registers is no business of the next.
        arch::reset_program_registers();
        let interrupts = arch::interrupts::counts().since(&self.account.interrupts);
        let mut report = ExitReport::new(status(ending));
        report.user_us = time::of_counts(self.account.user_counts).as_micros();
        report.wall_us = ended.saturating_since(self.clock.started).as_micros();
        report.system_calls = self.account.system_calls;
        report.faults_code = faults.code;
        report.faults_readonly = faults.readonly;
        report.faults_data = faults.data;
        report.faults_zero = faults.zero;
        report.faults_stack = faults.stack;
        report.faults_held = faults.held;
        report.faults_copy = faults.copy;
        report.pages_asked = back.counts.asked;
        report.pages_read_ahead = back.counts.ahead;
        report.pages_read_ahead_used = back.counts.used;
        report.bytes_loaded = self.account.bytes_loaded;
        report.frames_peak = peak;
        report.frames_scrubbed = back.scrubbed;
        report.interrupts_user = vitals::interrupt_counts(&interrupts.user);
        report.interrupts_idle = vitals::interrupt_counts(&interrupts.idle);
        report.unknown_calls = core::mem::take(&mut self.account.unknown);
        log(&self, &report);
        Exit { report, text }
    }

    /// What the user should read about it, `None` when the program ended by itself or on request.
    fn text(&mut self, ending: Ending) -> Option<String> {
        let Ending::Killed { cause, access } = ending else {
            return None;
        };
        if matches!(cause, Cause::Cancelled(_)) {
            return None;
        }
        let registers = registers(&self.context);
        let space = self.memory().space();
        let report = CrashReport {
            cause,
            access,
            registers,
            space,
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

fn registers(context: &UserContext) -> Registers {
    Registers {
        rax: context.rax,
        rbx: context.rbx,
        rcx: context.rcx,
        rdx: context.rdx,
        rsi: context.rsi,
        rdi: context.rdi,
        rbp: context.rbp,
        rsp: context.rsp,
        r8: context.r8,
        r9: context.r9,
        r10: context.r10,
        r11: context.r11,
        r12: context.r12,
        r13: context.r13,
        r14: context.r14,
        r15: context.r15,
        rip: context.rip,
        rflags: context.rflags,
    }
}

fn log(process: &Process, report: &ExitReport) {
    debug!(
        "process",
        "job {}: {} calls, faults {}+{}, pages {}+{} ({} used), {} frames scrubbed, user {} us of {} us",
        process.spec.job,
        report.system_calls,
        report.faults_code + report.faults_readonly + report.faults_data,
        report.faults_zero + report.faults_stack,
        report.pages_asked,
        report.pages_read_ahead,
        report.pages_read_ahead_used,
        report.frames_scrubbed,
        report.user_us,
        report.wall_us,
    );
    let unknown: Vec<_> = report.unknown_calls.iter().collect();
    if !unknown.is_empty() {
        debug!(
            "process",
            "system calls the node does not have: {unknown:?}"
        );
    }
}
