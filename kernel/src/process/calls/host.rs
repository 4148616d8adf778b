//! What a program hears of the machine that it runs on, and of the limits that it runs under.

use hearth_abi::errno::Errno;
use hearth_abi::linux::utsname;
use hearth_abi::resources::{self, Host, Limits, RLIMIT_BYTES};
use kernel_core::addr::PAGE_SIZE;
use kernel_core::files::DESCRIPTORS_MAX;
use kernel_core::loader::layout;
use kernel_core::signals::WAITING_MAX;

use super::{Args, PID};
use crate::agent::services::NodeServices;
use crate::process::Process;
use crate::process::ending::Stop;
use crate::{mm, time};

/// Bytes of a processor mask.
const MASK_BYTES: u64 = 8;

impl Process {
    /// The host is the node, by its name.
    pub(super) fn uname(
        &mut self,
        services: &mut dyn NodeServices,
        address: u64,
    ) -> Result<u64, Stop> {
        let host = utsname::of(services.name(), env!("CARGO_PKG_VERSION"));
        self.write_bytes(services, address, &host)?;
        Ok(0)
    }

    pub(super) fn sysinfo(
        &mut self,
        services: &mut dyn NodeServices,
        address: u64,
    ) -> Result<u64, Stop> {
        let frames = mm::frames().usage();
        let host = Host {
            uptime_s: time::now().as_micros() / super::time::MICROS_PER_SECOND,
            memory_bytes: frames.total * PAGE_SIZE,
            free_bytes: frames.available() * PAGE_SIZE,
        };
        self.write_bytes(services, address, &host.sysinfo())?;
        Ok(0)
    }

    /// prlimit64 of the program itself; getrlimit and setrlimit are the same with one of the two
    /// addresses.
    pub(super) fn prlimit64(
        &mut self,
        services: &mut dyn NodeServices,
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
        let limit = limits.of(resource).ok_or(Errno::EINVAL)?;
        let now = resources::rlimit(limit);
        if new != 0 {
            let wanted: [u8; RLIMIT_BYTES] = self.read_array(services, new)?;
            // No limit can be set, but to what it is.
            if wanted != now {
                return Err(Errno::EPERM.into());
            }
        }
        if old != 0 {
            self.write_bytes(services, old, &now)?;
        }
        Ok(0)
    }

    /// Bytes of memory that the program can get: the job's limit, or the node's memory.
    fn memory_bytes(&self) -> u64 {
        let all = mm::frames().usage().total * PAGE_SIZE;
        match self.spec.memory_limit {
            0 => all,
            limit => limit.min(all),
        }
    }

    /// One processor.
    pub(super) fn getcpu(
        &mut self,
        services: &mut dyn NodeServices,
        args: Args,
    ) -> Result<u64, Stop> {
        let [processor, node, ..] = args;
        for address in [processor, node] {
            if address != 0 {
                self.write_bytes(services, address, &0u32.to_le_bytes())?;
            }
        }
        Ok(0)
    }

    pub(super) fn sched_getaffinity(
        &mut self,
        services: &mut dyn NodeServices,
        args: Args,
    ) -> Result<u64, Stop> {
        let [target, length, address, ..] = args;
        if target != 0 && target != PID {
            return Err(Errno::ESRCH.into());
        }
        if length < MASK_BYTES {
            return Err(Errno::EINVAL.into());
        }
        self.write_bytes(services, address, &1u64.to_le_bytes())?;
        Ok(MASK_BYTES)
    }

    /// A set that has the one processor is as good as any.
    pub(super) fn sched_setaffinity(
        &mut self,
        services: &mut dyn NodeServices,
        args: Args,
    ) -> Result<u64, Stop> {
        let [target, length, address, ..] = args;
        if target != 0 && target != PID {
            return Err(Errno::ESRCH.into());
        }
        if length == 0 {
            return Err(Errno::EINVAL.into());
        }
        let [first]: [u8; 1] = self.read_array(services, address)?;
        match first & 1 {
            0 => Err(Errno::EINVAL.into()),
            _ => Ok(0),
        }
    }
}
