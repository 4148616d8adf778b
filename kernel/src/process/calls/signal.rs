//! The calls about signals: actions, masks, sending, waiting, the alternate stack, the timer.

use hearth_abi::errno::Errno;
use hearth_abi::sysno;
use kernel_core::signals::{
    ACTION_BYTES, Action, AltStack, INFO_BYTES, Info, STACK_BYTES, SendError, Timer, code,
};
use netstack::time::{Instant, Micros};

use super::time::MICROS_PER_SECOND;
use super::{Args, PID};
use crate::agent::services::NodeServices;
use crate::process::Process;
use crate::process::ending::Stop;
use crate::time;

/// Bytes of a signal set.
const SET_BYTES: u64 = 8;
/// rt_sigprocmask: block, unblock, set.
const BLOCK: u64 = 0;
const UNBLOCK: u64 = 1;
const SET_MASK: u64 = 2;
/// Timers of setitimer: of real time, and two of processor time.
const REAL_TIME: u64 = 0;
const VIRTUAL: u64 = 1;
const PROFILE: u64 = 2;
/// Where the interval and the time to the next expiry stand in `struct itimerval`.
const INTERVAL_AT: u64 = 0;
const VALUE_AT: u64 = 16;

impl Process {
    pub(super) fn rt_sigaction(
        &mut self,
        services: &mut dyn NodeServices,
        args: Args,
    ) -> Result<u64, Stop> {
        let [signal, new, old, set_bytes, ..] = args;
        check_set(set_bytes)?;
        let before = self.signals.action(signal).ok_or(Errno::EINVAL)?;
        if new != 0 {
            let action: [u8; ACTION_BYTES] = self.read_array(services, new)?;
            if !self.signals.set_action(signal, Action::from_bytes(&action)) {
                return Err(Errno::EINVAL.into());
            }
        }
        if old != 0 {
            self.write_bytes(services, old, &before.to_bytes())?;
        }
        Ok(0)
    }

    pub(super) fn rt_sigprocmask(
        &mut self,
        services: &mut dyn NodeServices,
        args: Args,
    ) -> Result<u64, Stop> {
        let [how, new, old, set_bytes, ..] = args;
        check_set(set_bytes)?;
        let before = self.signals.mask();
        if new != 0 {
            let set = self.read_set(services, new)?;
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

    pub(super) fn rt_sigpending(
        &mut self,
        services: &mut dyn NodeServices,
        args: Args,
    ) -> Result<u64, Stop> {
        let [address, set_bytes, ..] = args;
        check_set(set_bytes)?;
        let blocked = self.signals.blocked();
        self.write_bytes(services, address, &blocked.to_le_bytes())?;
        Ok(0)
    }

    /// Waits for a signal that is not blocked.
    pub(super) fn pause(&mut self, services: &mut dyn NodeServices) -> Result<u64, Stop> {
        self.flush(services)?;
        self.sleep(services, Instant::FAR_FUTURE)?;
        Ok(0)
    }

    pub(super) fn rt_sigsuspend(
        &mut self,
        services: &mut dyn NodeServices,
        args: Args,
    ) -> Result<u64, Stop> {
        let [set, set_bytes, ..] = args;
        self.take_mask(services, set, set_bytes)?;
        self.pause(services)
    }

    pub(super) fn rt_sigtimedwait(
        &mut self,
        services: &mut dyn NodeServices,
        args: Args,
    ) -> Result<u64, Stop> {
        let [set, to, timeout, set_bytes, ..] = args;
        check_set(set_bytes)?;
        let set = self.read_set(services, set)?;
        let deadline = match timeout {
            0 => Instant::FAR_FUTURE,
            address => time::now() + self.read_span(services, address)?,
        };
        self.flush(services)?;
        loop {
            if let Some((signal, info)) = self.signals.take_of(set) {
                if to != 0 {
                    self.write_bytes(services, to, &info.to_bytes(signal))?;
                }
                return Ok(signal.into());
            }
            if self.signals.is_due() {
                return Err(Errno::EINTR.into());
            }
            if time::now() >= deadline {
                return Err(Errno::EAGAIN.into());
            }
            self.wait(services, deadline)?;
        }
    }

    pub(super) fn sigaltstack(
        &mut self,
        services: &mut dyn NodeServices,
        args: Args,
    ) -> Result<u64, Stop> {
        let [new, old, ..] = args;
        let before = self.signals.stack;
        let pointer = self.context.rsp;
        if new != 0 {
            let bytes: [u8; STACK_BYTES] = self.read_array(services, new)?;
            if before.holds(pointer) {
                return Err(Errno::EPERM.into());
            }
            self.signals.stack = AltStack::from_bytes(&bytes)?;
        }
        if old != 0 {
            self.write_bytes(services, old, &before.to_bytes(pointer))?;
        }
        Ok(0)
    }

    /// A signal to a process or its group; 0 and -1 mean all that may be signalled.
    pub(super) fn kill(&mut self, target: u64, signal: u64) -> Result<u64, Stop> {
        match target as i32 {
            0 | -1 => self.send_signal(PID, signal, Info::sent(code::USER, PID)),
            target => self.send_signal(target as u64, signal, Info::sent(code::USER, PID)),
        }
    }

    /// A signal to a thread.
    pub(super) fn tkill(&mut self, target: u64, signal: u64) -> Result<u64, Stop> {
        self.send_signal(target, signal, Info::sent(code::TKILL, PID))
    }

    /// rt_sigqueueinfo: a signal with all that its receiver hears.
    pub(super) fn queue_signal(
        &mut self,
        services: &mut dyn NodeServices,
        [target, signal, info]: [u64; 3],
    ) -> Result<u64, Stop> {
        let info: [u8; INFO_BYTES] = self.read_array(services, info)?;
        self.send_signal(target, signal, Info::from_bytes(&info))
    }

    /// There is only the program itself.
    fn send_signal(&mut self, target: u64, signal: u64, info: Info) -> Result<u64, Stop> {
        if target as i32 != PID as i32 {
            return Err(Errno::ESRCH.into());
        }
        match self.signals.send(signal, info) {
            Ok(()) => Ok(0),
            Err(SendError::NoSuchSignal) => Err(Errno::EINVAL.into()),
            Err(SendError::Full) => Err(Errno::EAGAIN.into()),
        }
    }

    /// The answer is the seconds that were left of an alarm before, rounded up.
    pub(super) fn alarm(&mut self, seconds: u64) -> Result<u64, Stop> {
        let seconds = u64::from(seconds as u32);
        let (left, _) = self.start_timer(seconds * MICROS_PER_SECOND, 0);
        Ok(left.div_ceil(MICROS_PER_SECOND))
    }

    pub(super) fn setitimer(
        &mut self,
        services: &mut dyn NodeServices,
        args: Args,
    ) -> Result<u64, Stop> {
        let [timer, new, old, ..] = args;
        match timer {
            REAL_TIME => {}
            VIRTUAL | PROFILE => return Err(self.unknown(sysno::SETITIMER)),
            _ => return Err(Errno::EINVAL.into()),
        }
        let (mut interval, mut value) = (Micros::ZERO, Micros::ZERO);
        if new != 0 {
            interval = self.read_timeval(services, new.wrapping_add(INTERVAL_AT))?;
            value = self.read_timeval(services, new.wrapping_add(VALUE_AT))?;
            self.check_micros(services, new.wrapping_add(INTERVAL_AT))?;
            self.check_micros(services, new.wrapping_add(VALUE_AT))?;
        }
        let before = self.start_timer(value.as_micros(), interval.as_micros());
        self.write_timer(services, old, before)
    }

    pub(super) fn getitimer(
        &mut self,
        services: &mut dyn NodeServices,
        args: Args,
    ) -> Result<u64, Stop> {
        let [timer, address, ..] = args;
        match timer {
            REAL_TIME => {
                let now = self.signals.timer.rest(time::now().as_micros());
                self.write_timer(services, address, now)
            }
            VIRTUAL | PROFILE => self.write_timer(services, address, (0, 0)),
            _ => Err(Errno::EINVAL.into()),
        }
    }

    /// Starts the timer anew; what was left of the one before, and its interval.
    fn start_timer(&mut self, first_us: u64, interval_us: u64) -> (u64, u64) {
        let now = time::now().as_micros();
        let before = self.signals.timer.rest(now);
        self.signals.timer = Timer::start(now, first_us, interval_us);
        // It may come before what the processor's timer is set to.
        self.clock.armed = false;
        before
    }

    fn write_timer(
        &mut self,
        services: &mut dyn NodeServices,
        address: u64,
        (value, interval): (u64, u64),
    ) -> Result<u64, Stop> {
        if address != 0 {
            for (at, micros) in [(INTERVAL_AT, interval), (VALUE_AT, value)] {
                let (seconds, rest) = (micros / MICROS_PER_SECOND, micros % MICROS_PER_SECOND);
                self.write_pair(services, address.wrapping_add(at), seconds, rest)?;
            }
        }
        Ok(0)
    }

    /// The mask for the time of a call, where it has one.
    pub(super) fn take_mask(
        &mut self,
        services: &mut dyn NodeServices,
        address: u64,
        set_bytes: u64,
    ) -> Result<(), Stop> {
        check_set(set_bytes)?;
        let mask = self.read_set(services, address)?;
        self.signals.set_mask_for_call(mask);
        Ok(())
    }

    fn read_set(&mut self, services: &mut dyn NodeServices, address: u64) -> Result<u64, Stop> {
        Ok(u64::from_le_bytes(self.read_array(services, address)?))
    }
}

/// Signal sets have one size.
fn check_set(bytes: u64) -> Result<(), Errno> {
    match bytes {
        SET_BYTES => Ok(()),
        _ => Err(Errno::EINVAL),
    }
}
