//! rt_sigaction, rt_sigprocmask, kill and its kin.

use hearth_abi::errno::Errno;
use kernel_core::fault::Cause;
use kernel_core::signals::{ACTION_BYTES, NoSuchSignal};

use super::{Args, PID};
use crate::agent::services::NodeServices;
use crate::process::Process;
use crate::process::ending::{Ending, Stop};

/// Bytes of a signal set.
const SET_BYTES: u64 = 8;
/// rt_sigprocmask: block, unblock, set.
const BLOCK: u64 = 0;
const UNBLOCK: u64 = 1;
const SET_MASK: u64 = 2;

impl Process {
    pub(super) fn rt_sigaction(
        &mut self,
        services: &mut dyn NodeServices,
        args: Args,
    ) -> Result<u64, Stop> {
        let [signal, new, old, set_bytes, ..] = args;
        if set_bytes != SET_BYTES {
            return Err(Errno::EINVAL.into());
        }
        let before = self.signals.action(signal).ok_or(Errno::EINVAL)?;
        if new != 0 {
            let action: [u8; ACTION_BYTES] = self.read_array(services, new)?;
            if !self.signals.set_action(signal, action) {
                return Err(Errno::EINVAL.into());
            }
        }
        if old != 0 {
            self.write_bytes(services, old, &before)?;
        }
        Ok(0)
    }

    pub(super) fn rt_sigprocmask(
        &mut self,
        services: &mut dyn NodeServices,
        args: Args,
    ) -> Result<u64, Stop> {
        let [how, new, old, set_bytes, ..] = args;
        if set_bytes != SET_BYTES {
            return Err(Errno::EINVAL.into());
        }
        let before = self.signals.mask();
        if new != 0 {
            let set = u64::from_le_bytes(self.read_array(services, new)?);
            self.signals.set_mask(match how {
                BLOCK => before | set,
                UNBLOCK => before & !set,
                SET_MASK => set,
                _ => return Err(Errno::EINVAL.into()),
            });
        }
        if old != 0 {
            self.write_bytes(services, old, &before.to_le_bytes())?;
        }
        Ok(0)
    }

    /// A signal to process or thread `target`: there is only the program itself.
    pub(super) fn kill(
        &mut self,
        services: &mut dyn NodeServices,
        target: u64,
        signal: u64,
    ) -> Result<u64, Stop> {
        // 0 and -1 mean all that may be signalled.
        if ![PID as i32, 0, -1].contains(&(target as i32)) {
            return Err(Errno::ESRCH.into());
        }
        match self.signals.sent(signal) {
            Err(NoSuchSignal) => Err(Errno::EINVAL.into()),
            Ok(None) => Ok(0),
            Ok(Some(signal)) => {
                self.flush(services)?;
                Err(Ending::killed(Cause::Raised(signal)).into())
            }
        }
    }
}
