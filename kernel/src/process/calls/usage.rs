//! What a program has used: getrusage, times, and the clock of its processor time.

use hearth_abi::errno::Errno;
use hearth_abi::resources::{self, Usage};
use kernel_core::addr::PAGE_SIZE;
use kernel_core::threads::{State, Tid};

use super::Args;
use crate::arch;
use crate::process::current::Current;
use crate::process::ending::Stop;
use crate::time::{self, Moment};

/// Of whom getrusage asks.
const SELF: i32 = 0;
const CHILDREN: i32 = -1;
const THREAD: i32 = 1;

impl Current<'_> {
    /// What the program has used so far. The kernel's time on its node is its own: nobody else is
    /// there for whom the kernel works.
    pub(super) fn usage(&self) -> Usage {
        let user = self.process.account.user_counts + self.thread.user_counts;
        let awake = Moment::now().awake_since(self.process.account.first);
        let (faults, peak) = match &self.process.memory {
            Some(memory) => (memory.faults(), memory.pages_peak()),
            None => Default::default(),
        };
        Usage {
            user_us: time::of_counts(user).as_micros(),
            system_us: time::of_counts(awake.saturating_sub(user)).as_micros(),
            peak_kib: peak * PAGE_SIZE / 1024,
            faults_minor: faults.zero + faults.stack + faults.held + faults.copy,
            faults_major: faults.code + faults.readonly + faults.data,
        }
    }

    /// Processor time of the thread that calls, in microseconds: what it spent in ring 3.
    pub(super) fn thread_us(&mut self) -> u64 {
        let shown = self.process.cores.shown(self.core);
        time::of_counts(self.thread.counts().max(shown)).as_micros()
    }

    /// The same of any thread, which may be in ring 3 now.
    pub(super) fn us_of_thread(&mut self, number: u32) -> Result<u64, Errno> {
        let tid = Tid::new(number.into()).ok_or(Errno::EINVAL)?;
        if tid == self.thread.tid {
            return Ok(self.thread_us());
        }
        let process = &mut *self.process;
        let counts = match (process.threads.get(tid), process.threads.state(tid)) {
            (Some(Some(thread)), _) => thread.counts(),
            (Some(None), Some(State::Running(core))) => process.cores.show(core, arch::tsc()),
            _ => return Err(Errno::EINVAL),
        };
        Ok(time::of_counts(counts).as_micros())
    }

    pub(super) fn getrusage(&mut self, args: Args) -> Result<u64, Stop> {
        let [who, address, ..] = args;
        let usage = match who as i32 {
            SELF => self.usage(),
            THREAD => Usage {
                user_us: self.thread_us(),
                system_us: 0,
                ..self.usage()
            },
            CHILDREN => Usage::default(),
            _ => return Err(Errno::EINVAL.into()),
        };
        self.write_bytes(address, &usage.rusage())?;
        Ok(0)
    }

    /// The answer is the time since the node's boot.
    pub(super) fn times(&mut self, address: u64) -> Result<u64, Stop> {
        if address != 0 {
            let usage = self.usage();
            self.write_bytes(address, &usage.tms())?;
        }
        Ok(resources::ticks(time::now().as_micros()))
    }
}
