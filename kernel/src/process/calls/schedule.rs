//! How threads are scheduled, as programs ask for it, and memory that is to stay: sched_*, mlock,
//! and the groups of a process that is alone.
//!
//! Every thread has the policy of all (SCHED_OTHER): a core of its own, or turns. Nothing is ever
//! paged out, so memory that is locked is memory that has been brought in.

use hearth_abi::errno::Errno;
use kernel_core::addr::{PAGE_SIZE, page_down, page_up};
use kernel_core::fault::Access;
use kernel_core::program::UserSlice;
use kernel_core::threads::Tid;

use super::{Args, PID};
use crate::mm::Hardware;
use crate::process::current::Current;
use crate::process::ending::Stop;
use crate::process::run_loop::SLICE;

/// Policies: the usual one, two of real time, two for work that can wait.
const OTHER: u64 = 0;
const FIFO: u64 = 1;
const ROUND_ROBIN: u64 = 2;
const BATCH: u64 = 3;
const IDLE: u64 = 5;
/// Beside a policy: children do not inherit it.
const RESET_ON_FORK: u64 = 0x4000_0000;
/// Priorities of real time.
const PRIORITIES: core::ops::RangeInclusive<i32> = 1..=99;
/// Flags of mlockall and mlock2.
const LOCK_ALL_FLAGS: u64 = 7;
const LOCK_ON_FAULT: u64 = 1;
/// Flags of msync: asynchronous, invalidate, synchronous.
const SYNC_FLAGS: u64 = 7;
const SYNC_BOTH: u64 = 5;

impl Current<'_> {
    /// The least and the greatest priority of a policy.
    fn priorities(policy: u64) -> Result<(i32, i32), Errno> {
        match policy {
            OTHER | BATCH | IDLE => Ok((0, 0)),
            FIFO | ROUND_ROBIN => Ok((*PRIORITIES.start(), *PRIORITIES.end())),
            _ => Err(Errno::EINVAL),
        }
    }

    pub(super) fn sched_priority_least(&mut self, policy: u64) -> Result<u64, Stop> {
        Ok(Self::priorities(policy)?.0 as u64)
    }

    pub(super) fn sched_priority_greatest(&mut self, policy: u64) -> Result<u64, Stop> {
        Ok(Self::priorities(policy)?.1 as u64)
    }

    /// Whether there is such a thread; 0 is the one that asks.
    fn check_thread(&self, number: u64) -> Result<(), Errno> {
        let number = number as i32;
        let found = match number {
            ..0 => return Err(Errno::EINVAL),
            0 => return Ok(()),
            number => Tid::new(number as u64),
        };
        let place = found.and_then(|tid| self.process.threads.place(tid));
        // The number of the process stays when its first thread has ended.
        match place.is_some() || number as u64 == PID {
            true => Ok(()),
            false => Err(Errno::ESRCH),
        }
    }

    pub(super) fn sched_getscheduler(&mut self, number: u64) -> Result<u64, Stop> {
        self.check_thread(number)?;
        Ok(OTHER)
    }

    pub(super) fn sched_getparam(&mut self, args: Args) -> Result<u64, Stop> {
        let [number, address, ..] = args;
        if address == 0 {
            return Err(Errno::EINVAL.into());
        }
        self.check_thread(number)?;
        self.write_bytes(address, &0i32.to_le_bytes())?;
        Ok(0)
    }

    pub(super) fn sched_setparam(&mut self, args: Args) -> Result<u64, Stop> {
        let [number, address, ..] = args;
        self.set_schedule(number, OTHER, address)
    }

    /// Policies of real time are EPERM: nothing here could serve them.
    pub(super) fn sched_setscheduler(&mut self, args: Args) -> Result<u64, Stop> {
        let [number, policy, address, ..] = args;
        self.set_schedule(number, policy & !RESET_ON_FORK, address)
    }

    fn set_schedule(&mut self, number: u64, policy: u64, address: u64) -> Result<u64, Stop> {
        if address == 0 {
            return Err(Errno::EINVAL.into());
        }
        self.check_thread(number)?;
        let (least, greatest) = Self::priorities(policy)?;
        let priority = i32::from_le_bytes(self.read_array(address)?);
        match (least..=greatest).contains(&priority) {
            false => Err(Errno::EINVAL.into()),
            true if greatest > 0 => Err(Errno::EPERM.into()),
            true => Ok(0),
        }
    }

    /// The turn of a thread that shares its core.
    pub(super) fn sched_rr_get_interval(&mut self, args: Args) -> Result<u64, Stop> {
        let [number, address, ..] = args;
        self.check_thread(number)?;
        let nanoseconds = SLICE.as_micros() * 1_000;
        let mut time = [0; 16];
        time[8..].copy_from_slice(&nanoseconds.to_le_bytes());
        self.write_bytes(address, &time)?;
        Ok(0)
    }

    /// getpgid, getsid: a process is its own group and session.
    pub(super) fn group(&mut self, number: u64) -> Result<u64, Stop> {
        match [0, PID].contains(&number) {
            true => Ok(PID),
            false => Err(Errno::ESRCH.into()),
        }
    }

    /// Brings the pages of a range in; ENOMEM where nothing is mapped or may be read.
    pub(super) fn mlock(&mut self, args: Args, flags: u64) -> Result<u64, Stop> {
        if flags & !LOCK_ON_FAULT != 0 {
            return Err(Errno::EINVAL.into());
        }
        let range = self.whole_pages(args)?;
        if flags & LOCK_ON_FAULT != 0 {
            return Ok(0);
        }
        let mut rest = range;
        loop {
            let memory = self.process.memory();
            let Some(missing) = memory.lacks(&mut Hardware::new(), rest, Access::Read) else {
                return Ok(0);
            };
            match self.fault_for_kernel(missing, Access::Read) {
                Err(Stop::Errno(_)) => return Err(Errno::ENOMEM.into()),
                other => other?,
            }
            rest = rest.after(missing - rest.start());
            self.poll_and_check()?;
        }
    }

    /// munlock: what is mapped may be given back as ever.
    pub(super) fn munlock(&mut self, args: Args) -> Result<u64, Stop> {
        self.whole_pages(args)?;
        Ok(0)
    }

    pub(super) fn mlockall(&mut self, flags: u64) -> Result<u64, Stop> {
        // On fault alone says nothing of which pages.
        match flags == 0 || flags & !LOCK_ALL_FLAGS != 0 || flags == 4 {
            true => Err(Errno::EINVAL.into()),
            false => Ok(0),
        }
    }

    /// Nothing that is mapped has a file that could be written.
    pub(super) fn msync(&mut self, args: Args) -> Result<u64, Stop> {
        let [address, _, flags, ..] = args;
        let is_both = flags & SYNC_BOTH == SYNC_BOTH;
        if !address.is_multiple_of(PAGE_SIZE) || flags & !SYNC_FLAGS != 0 || is_both {
            return Err(Errno::EINVAL.into());
        }
        self.whole_pages(args)?;
        Ok(0)
    }

    /// The pages that a range lies in; ENOMEM where any of them is not mapped.
    fn whole_pages(&mut self, args: Args) -> Result<UserSlice, Stop> {
        let [address, length, ..] = args;
        let start = page_down(address);
        let end = address.checked_add(length).and_then(page_up);
        let end = end.ok_or(Errno::EINVAL)?;
        let range = UserSlice::new(start, end - start).map_err(|_| Errno::ENOMEM)?;
        let space = self.process.memory().space();
        match space.is_mapped(start, end) {
            true => Ok(range),
            false => Err(Errno::ENOMEM.into()),
        }
    }
}
