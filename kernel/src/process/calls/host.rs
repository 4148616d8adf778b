//! What a program hears of the machine that it runs on, and of the limits that it runs under.

use hearth_abi::errno::Errno;
use hearth_abi::linux::utsname;
use hearth_abi::resources::{self, Host, Limits, RLIMIT_BYTES};
use kernel_core::addr::PAGE_SIZE;
use kernel_core::files::DESCRIPTORS_MAX;
use kernel_core::loader::layout;
use kernel_core::program::UserSlice;
use kernel_core::signals::WAITING_MAX;
use kernel_core::threads::{CoreSet, Tid};

use super::{Args, PID};
use crate::process::current::Current;
use crate::process::ending::Stop;
use crate::{mm, time};

/// Bytes of a processor mask: as many as there can be cores.
const MASK_BYTES: u64 = 8;

impl Current<'_> {
    /// The host is the node, by its name.
    pub(super) fn uname(&mut self, address: u64) -> Result<u64, Stop> {
        let host = utsname::of(self.services.name(), env!("CARGO_PKG_VERSION"));
        self.write_bytes(address, &host)?;
        Ok(0)
    }

    pub(super) fn sysinfo(&mut self, address: u64) -> Result<u64, Stop> {
        let frames = mm::frames().usage();
        let host = Host {
            uptime_s: time::now().as_micros() / super::time::MICROS_PER_SECOND,
            memory_bytes: frames.total * PAGE_SIZE,
            free_bytes: frames.available() * PAGE_SIZE,
        };
        self.write_bytes(address, &host.sysinfo())?;
        Ok(0)
    }

    /// prlimit64 of the program itself; getrlimit and setrlimit are the same with one of the two
    /// addresses.
    pub(super) fn prlimit64(
        &mut self,
        [target, resource, new, old]: [u64; 4],
    ) -> Result<u64, Stop> {
        if ![0, PID].contains(&target) {
            return Err(Errno::ESRCH.into());
        }
        let limits = Limits {
            stack_bytes: layout::STACK_BYTES,
            memory_bytes: self.memory_bytes(),
            descriptors: DESCRIPTORS_MAX as u64,
            signals: WAITING_MAX as u64,
        };
        let before = self.process.lowered.of(resource, &limits);
        let before = before.ok_or(Errno::EINVAL)?;
        let wanted = match new {
            0 => None,
            address => {
                let bytes: [u8; RLIMIT_BYTES] = self.read_array(address)?;
                let (soft, hard) = bytes.split_at(RLIMIT_BYTES / 2);
                let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
                Some([word(soft), word(hard)])
            }
        };
        if old != 0 {
            self.make_writable(UserSlice::new(old, RLIMIT_BYTES as u64)?)?;
        }
        if let Some(wanted) = wanted {
            self.process.lowered.set(resource, wanted, &limits)?;
            self.keep_limit(resource, wanted[0]);
        }
        if old != 0 {
            self.write_bytes(old, &resources::rlimit(before))?;
        }
        Ok(0)
    }

    /// Has a limit kept that the program has set.
    fn keep_limit(&mut self, resource: u64, limit: u64) {
        let process = &mut *self.process;
        match resource {
            resources::DESCRIPTORS => process.files.descriptors.set_limit(limit as usize),
            resources::DATA => process
                .memory()
                .limit_mappings(|limits| limits.data = limit),
            resources::ADDRESS_SPACE => {
                process.memory().limit_mappings(|limits| limits.all = limit)
            }
            _ => {}
        }
    }

    /// Bytes of memory that the program can get: the job's limit, or the node's memory.
    fn memory_bytes(&self) -> u64 {
        let all = mm::frames().usage().total * PAGE_SIZE;
        match self.process.spec.memory_limit {
            0 => all,
            limit => limit.min(all),
        }
    }

    /// The core that the thread is on; all memory is one node.
    pub(super) fn getcpu(&mut self, args: Args) -> Result<u64, Stop> {
        let [processor, node, ..] = args;
        let core = self.core.number() as u32;
        for (address, number) in [(processor, core), (node, 0)] {
            if address != 0 {
                self.write_bytes(address, &number.to_le_bytes())?;
            }
        }
        Ok(0)
    }

    /// The thread of which a call about processors speaks; 0 is the caller.
    fn target(&self, number: u64) -> Result<Tid, Errno> {
        match number as u32 {
            0 => Ok(self.thread.tid),
            number => {
                let tid = Tid::new(number.into()).ok_or(Errno::ESRCH)?;
                self.process.threads.state(tid).ok_or(Errno::ESRCH)?;
                Ok(tid)
            }
        }
    }

    pub(super) fn sched_getaffinity(&mut self, args: Args) -> Result<u64, Stop> {
        let [target, length, address, ..] = args;
        let tid = self.target(target)?;
        if length < MASK_BYTES {
            return Err(Errno::EINVAL.into());
        }
        let cores = self.process.threads.affinity(tid).ok_or(Errno::ESRCH)?;
        self.write_bytes(address, &cores.bits().to_le_bytes())?;
        Ok(MASK_BYTES)
    }

    /// A thread that runs where it may not any more goes to another core at its next turn.
    pub(super) fn sched_setaffinity(&mut self, args: Args) -> Result<u64, Stop> {
        let [target, length, address, ..] = args;
        let tid = self.target(target)?;
        let mut mask = [0; MASK_BYTES as usize];
        let length = length.min(MASK_BYTES);
        self.read_user(
            UserSlice::new(address, length)?,
            &mut mask[..length as usize],
        )?;
        let cores = CoreSet::from_bits(u64::from_le_bytes(mask));
        let threads = &mut self.process.threads;
        let before = threads.place(tid);
        threads
            .set_affinity(tid, cores)
            .map_err(|_none| Errno::EINVAL)?;
        if threads.place(tid) != before {
            match tid == self.thread.tid {
                true => self.thread.yields = true,
                false => self.process.cores.call(threads.running()),
            }
        }
        Ok(0)
    }
}
