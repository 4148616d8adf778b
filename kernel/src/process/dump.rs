//! The core file of a program that crashed, where its job wants one.
//!
//! It goes to control through the streams, behind all output and before the exit report: so a
//! client that does not read holds it back, and nothing of it comes twice.
//!
//! Neighbours: `kernel_core::core_dump` lays it out. Invariant: it is written while the program's
//! memory is whole and none of its threads runs; it ends with the job's limit, when nobody takes it
//! any more, or [`GRACE`] after a cancel.

use alloc::vec::Vec;

use kernel_core::addr::{PAGE_SIZE, VirtAddr};
use kernel_core::core_dump::{self, Program, Thread as Stopped};
use kernel_core::fault::Cause;
use kernel_core::signals::{Info, fault};
use netstack::io::CORE_FILE;
use netstack::time::{Instant, Micros};

use super::Process;
use super::calls::PID;
use super::ending::Ending;
use super::thread::Thread;
use crate::arch::fpu;
use crate::mm::Hardware;
use crate::process::polling::is_poll_due;
use crate::process::services::NodeServices;
use crate::time;

/// How long a core file may still be written when its job is cancelled: another rank's crash
/// cancels it, too.
const GRACE: Micros = Micros::from_secs(10);

/// Nobody takes the core file any more.
struct Unwanted;

impl Process {
    /// Writes the core file of a program that ended so, if it is to leave one.
    pub(super) fn dump_core(&mut self, services: &mut dyn NodeServices, ending: Ending) {
        let Ending::Killed { cause, access } = ending else {
            return;
        };
        let address = access.map_or(0, |(address, _)| address);
        let limit = self.spec.core_bytes;
        if limit == 0 || !cause.leaves_core() {
            return;
        }
        let plan = self.core_plan(cause, address, limit);
        let Some((plan, left_out)) = plan else {
            warn!(
                "process",
                "a core file of {limit} bytes has no room for its head"
            );
            return;
        };
        if left_out > 0 {
            warn!(
                "process",
                "{left_out} bytes of memory find no room in the core file"
            );
        }
        let mut end = None;
        let _ = self.write_core(services, &plan, &mut end);
        self.flush_at_end(services);
    }

    fn write_core(
        &mut self,
        services: &mut dyn NodeServices,
        plan: &core_dump::Plan,
        end: &mut Option<Instant>,
    ) -> Result<(), Unwanted> {
        self.put_core(services, &plan.head, end)?;
        for run in &plan.runs {
            let mut page = [0; PAGE_SIZE as usize];
            for start in (run.start..run.end).step_by(page.len()) {
                let at = VirtAddr::new(start);
                self.memory().core_page(&mut Hardware::new(), at, &mut page);
                self.put_core(services, &page, end)?;
            }
        }
        Ok(())
    }

    /// Writes a piece; waits until control has taken enough of what was written before. `end` is
    /// when it is over once the job is cancelled.
    fn put_core(
        &mut self,
        services: &mut dyn NodeServices,
        mut bytes: &[u8],
        end: &mut Option<Instant>,
    ) -> Result<(), Unwanted> {
        while !bytes.is_empty() {
            if services.cancelled().is_some() {
                let end = *end.get_or_insert_with(|| time::now() + GRACE);
                if time::now() >= end {
                    return Err(Unwanted);
                }
            }
            // Control has refused some of it.
            if self.take_write_error(1).is_err() {
                return Err(Unwanted);
            }
            match self.output(services, CORE_FILE, bytes) {
                Ok(taken) => bytes = &bytes[taken..],
                Err(_full) => {
                    services.wait(end.unwrap_or(Instant::FAR_FUTURE));
                    self.streams.collect(services);
                }
            }
            if is_poll_due(services) {
                services.poll();
                self.streams.collect(services);
            }
        }
        Ok(())
    }

    /// The file of a program that `cause` has ended, at `address` where it was an access, and bytes
    /// of memory that it leaves out.
    fn core_plan(
        &mut self,
        cause: Cause,
        address: u64,
        limit: u64,
    ) -> Option<(core_dump::Plan, u64)> {
        let (runs, uncounted) = self.memory().core_runs(&mut Hardware::new());
        let format = fpu::format();
        let crashed = self.crashed.map(|thread| thread.tid);
        let slots = self.threads.iter();
        let mut threads: Vec<&Thread> = slots.filter_map(|(_, slot)| slot.as_deref()).collect();
        threads.sort_by_key(|thread| (Some(thread.tid) != crashed, thread.tid.number()));
        let info = match cause {
            Cause::Raised(_) | Cause::Sent(_) => self.crashed.map(|thread| thread.sent),
            _ => threads.first().and_then(|thread| {
                let rip = thread.context.registers().rip;
                let signal = fault::signal_of(cause, address, rip, thread.state().bytes());
                signal.map(|(_, info)| info)
            }),
        };
        let threads: Vec<Stopped<'_>> = threads
            .iter()
            .map(|thread| Stopped {
                tid: thread.tid.number(),
                registers: thread.context.registers(),
                bases: (thread.context.fs_base, thread.context.gs_base),
                state: &thread.state().bytes()[..format.bytes],
            })
            .collect();
        let program = Program {
            pid: PID as u32,
            signal: cause.signal_number(),
            info: info.unwrap_or(Info::KERNEL),
            name: &self.name,
            image: self.memory.as_ref()?.image(),
            threads: &threads,
            components: format.components,
        };
        let plan = core_dump::plan(&program, runs, limit)?;
        let left_out = plan.left_out + uncounted;
        Some((plan, left_out))
    }
}
