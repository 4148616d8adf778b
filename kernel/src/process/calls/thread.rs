//! What belongs to a thread: segment bases and futex. There is one thread.

use hearth_abi::errno::Errno;
use hearth_abi::linux::{arch_prctl, clone, futex};
use hearth_abi::sysno;
use kernel_core::addr::USER_END;
use netstack::time::Instant;

use super::Args;
use super::time::{MONOTONIC, REALTIME};
use crate::agent::services::NodeServices;
use crate::process::Process;
use crate::process::ending::Stop;
use crate::time;

/// Flag of a futex wait: the absolute time is real time.
const FUTEX_REALTIME: u64 = 256;

/// The call that a clone stands for: C libraries make threads, fork and vfork of it.
pub(super) const fn cloning(flags: u64) -> u64 {
    match flags {
        _ if flags & clone::THREAD != 0 => sysno::CLONE,
        _ if flags & clone::VFORK != 0 => sysno::VFORK,
        _ => sysno::FORK,
    }
}

impl Process {
    pub(super) fn arch_prctl(
        &mut self,
        services: &mut dyn NodeServices,
        args: Args,
    ) -> Result<u64, Stop> {
        let [function, address, ..] = args;
        match function {
            arch_prctl::SET_FS | arch_prctl::SET_GS if address >= USER_END => {
                Err(Errno::EPERM.into())
            }
            arch_prctl::SET_FS => {
                self.context.fs_base = address;
                Ok(0)
            }
            arch_prctl::SET_GS => {
                self.context.gs_base = address;
                Ok(0)
            }
            arch_prctl::GET_FS => {
                let base = self.context.fs_base;
                self.write_bytes(services, address, &base.to_le_bytes())?;
                Ok(0)
            }
            arch_prctl::GET_GS => {
                let base = self.context.gs_base;
                self.write_bytes(services, address, &base.to_le_bytes())?;
                Ok(0)
            }
            _ => Err(Errno::EINVAL.into()),
        }
    }

    /// With one thread there is nobody to wake, and nobody who could: a wait ends by its time-out
    /// or with the program.
    pub(super) fn futex(
        &mut self,
        services: &mut dyn NodeServices,
        args: Args,
    ) -> Result<u64, Stop> {
        let [word, command, value, timeout, ..] = args;
        let absolute = match command & futex::COMMAND {
            futex::WAKE | futex::WAKE_BITSET => return Ok(0),
            futex::WAIT => false,
            futex::WAIT_BITSET => true,
            _ => return Err(self.unknown(sysno::FUTEX)),
        };
        let found = u32::from_le_bytes(self.read_array(services, word)?);
        if found != value as u32 {
            return Err(Errno::EAGAIN.into());
        }
        let deadline = match timeout {
            0 => Instant::FAR_FUTURE,
            address => match (self.read_span(services, address)?, absolute) {
                (span, false) => time::now() + span,
                (point, true) if command & FUTEX_REALTIME != 0 => self.deadline_at(REALTIME, point),
                (point, true) => self.deadline_at(MONOTONIC, point),
            },
        };
        self.flush(services)?;
        match self.sleep(services, deadline) {
            Ok(()) => Err(Errno::ETIMEDOUT.into()),
            // With a time-out it would begin anew.
            Err(Stop::Errno(Errno::EINTR)) if timeout == 0 => Err(Stop::Restart),
            Err(stop) => Err(stop),
        }
    }
}
