//! The calls about signals: actions, masks, sending, waiting, the alternate stack, the timer.

use hearth_abi::errno::Errno;
use hearth_abi::sysno;
use kernel_core::program::UserSlice;
use kernel_core::signals::{
    ACTION_BYTES, Action, AltStack, INFO_BYTES, Info, STACK_BYTES, SendError, Timer, code,
};
use kernel_core::threads::Tid;
use netstack::time::{Instant, Micros};

use super::time::MICROS_PER_SECOND;
use super::{Args, PID};
use crate::process::current::Current;
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
const TIMER_BYTES: usize = 32;

impl Current<'_> {
    pub(super) fn rt_sigaction(&mut self, args: Args) -> Result<u64, Stop> {
        let [signal, new, old, set_bytes, ..] = args;
        check_set(set_bytes)?;
        let before = self.process.signals.action(signal).ok_or(Errno::EINVAL)?;
        if new != 0 {
            let action: [u8; ACTION_BYTES] = self.read_array(new)?;
            self.make_writable_unless_null(old, ACTION_BYTES)?;
            let action = Action::from_bytes(&action);
            if !self.process.set_action(self.thread, signal, action) {
                return Err(Errno::EINVAL.into());
            }
        }
        if old != 0 {
            self.write_bytes(old, &before.to_bytes())?;
        }
        Ok(0)
    }

    pub(super) fn rt_sigprocmask(&mut self, args: Args) -> Result<u64, Stop> {
        let [how, new, old, set_bytes, ..] = args;
        check_set(set_bytes)?;
        let before = self.thread.signals.mask();
        if new != 0 {
            let set = self.read_set(new)?;
            self.make_writable_unless_null(old, SET_BYTES as usize)?;
            let mask = match how {
                BLOCK => before | set,
                UNBLOCK => before & !set,
                SET_MASK => set,
                _ => return Err(Errno::EINVAL.into()),
            };
            let signals = &mut self.process.signals;
            signals.set_mask(&mut self.thread.signals, mask);
            self.process.offer_signals();
        }
        if old != 0 {
            self.write_bytes(old, &before.to_le_bytes())?;
        }
        Ok(0)
    }

    pub(super) fn rt_sigpending(&mut self, args: Args) -> Result<u64, Stop> {
        let [address, set_bytes, ..] = args;
        check_set(set_bytes)?;
        let blocked = self.process.signals.blocked(&self.thread.signals);
        self.write_bytes(address, &blocked.to_le_bytes())?;
        Ok(0)
    }

    /// Waits for a signal that is not blocked.
    pub(super) fn pause(&mut self) -> Result<u64, Stop> {
        self.sleep(Instant::FAR_FUTURE)?;
        Ok(0)
    }

    pub(super) fn rt_sigsuspend(&mut self, args: Args) -> Result<u64, Stop> {
        let [set, set_bytes, ..] = args;
        self.take_mask(set, set_bytes)?;
        self.pause()
    }

    pub(super) fn rt_sigtimedwait(&mut self, args: Args) -> Result<u64, Stop> {
        let [set, to, timeout, set_bytes, ..] = args;
        check_set(set_bytes)?;
        let set = self.read_set(set)?;
        let span = match timeout {
            0 => None,
            address => Some(self.read_span(address)?),
        };
        let deadline = self.thread.deadline(|| deadline_in(span));
        self.make_writable_unless_null(to, INFO_BYTES)?;
        let taken = self.process.signals.take_of(&mut self.thread.signals, set);
        if let Some((signal, info)) = taken {
            if to != 0 {
                self.write_bytes(to, &info.to_bytes(signal))?;
            }
            return Ok(signal.into());
        }
        if !self.is_signal_due() && time::now() < deadline {
            return Err(Stop::wake_at(deadline));
        }
        self.thread.signals.stop_awaiting();
        Err(match self.is_signal_due() {
            true => Errno::EINTR.into(),
            false => Errno::EAGAIN.into(),
        })
    }

    pub(super) fn sigaltstack(&mut self, args: Args) -> Result<u64, Stop> {
        let [new, old, ..] = args;
        let before = self.thread.signals.stack;
        let pointer = self.thread.context.rsp;
        if new != 0 {
            let bytes: [u8; STACK_BYTES] = self.read_array(new)?;
            if before.holds(pointer) {
                return Err(Errno::EPERM.into());
            }
            self.make_writable_unless_null(old, STACK_BYTES)?;
            self.thread.signals.stack = AltStack::from_bytes(&bytes)?;
        }
        if old != 0 {
            self.write_bytes(old, &before.to_bytes(pointer))?;
        }
        Ok(0)
    }

    /// A signal to a process or its group; 0 and -1 mean all that may be signalled.
    pub(super) fn kill(&mut self, target: u64, signal: u64) -> Result<u64, Stop> {
        let target = target as i32;
        if ![0, -1, PID as i32, -(PID as i32)].contains(&target) {
            return Err(Errno::ESRCH.into());
        }
        self.send_to_process(signal, Info::sent(code::USER, PID))
    }

    /// A signal to a thread.
    pub(super) fn tkill(&mut self, target: u64, signal: u64) -> Result<u64, Stop> {
        if target as i32 <= 0 {
            return Err(Errno::EINVAL.into());
        }
        self.send_to_thread(target, signal, Info::sent(code::TKILL, PID))
    }

    /// rt_sigqueueinfo: a signal to the process with all that its receiver hears.
    pub(super) fn queue_signal(&mut self, args: Args) -> Result<u64, Stop> {
        let [target, signal, info, ..] = args;
        let info: [u8; INFO_BYTES] = self.read_array(info)?;
        match target as i32 == PID as i32 {
            true => self.send_to_process(signal, Info::from_bytes(&info)),
            false => Err(Errno::ESRCH.into()),
        }
    }

    /// rt_tgsigqueueinfo: the same to a thread.
    pub(super) fn queue_thread_signal(
        &mut self,
        [target, signal, info]: [u64; 3],
    ) -> Result<u64, Stop> {
        let info: [u8; INFO_BYTES] = self.read_array(info)?;
        self.send_to_thread(target, signal, Info::from_bytes(&info))
    }

    fn send_to_process(&mut self, signal: u64, info: Info) -> Result<u64, Stop> {
        answer(self.process.send_signal_by(Some(self.thread), signal, info))
    }

    fn send_to_thread(&mut self, target: u64, signal: u64, info: Info) -> Result<u64, Stop> {
        let tid = Tid::new(u64::from(target as u32)).ok_or(Errno::ESRCH)?;
        if tid == self.thread.tid {
            let signals = &self.process.signals;
            return answer(signals.send_to(&mut self.thread.signals, signal, info));
        }
        let sent = self.process.send_signal_to(tid, signal, info);
        answer(sent.ok_or(Errno::ESRCH)?)
    }

    /// The answer is the seconds that were left of an alarm before, rounded up.
    pub(super) fn alarm(&mut self, seconds: u64) -> Result<u64, Stop> {
        let seconds = u64::from(seconds as u32);
        let (left, _) = self.start_timer(seconds * MICROS_PER_SECOND, 0);
        Ok(left.div_ceil(MICROS_PER_SECOND))
    }

    pub(super) fn setitimer(&mut self, args: Args) -> Result<u64, Stop> {
        let [timer, new, old, ..] = args;
        match timer {
            REAL_TIME => {}
            VIRTUAL | PROFILE => return Err(self.unknown(sysno::SETITIMER)),
            _ => return Err(Errno::EINVAL.into()),
        }
        let (mut interval, mut value) = (Micros::ZERO, Micros::ZERO);
        if new != 0 {
            interval = self.read_timeval(new.wrapping_add(INTERVAL_AT))?;
            value = self.read_timeval(new.wrapping_add(VALUE_AT))?;
            self.check_micros(new.wrapping_add(INTERVAL_AT))?;
            self.check_micros(new.wrapping_add(VALUE_AT))?;
        }
        self.make_writable_unless_null(old, TIMER_BYTES)?;
        let before = self.start_timer(value.as_micros(), interval.as_micros());
        self.write_timer(old, before)
    }

    pub(super) fn getitimer(&mut self, args: Args) -> Result<u64, Stop> {
        let [timer, address, ..] = args;
        match timer {
            REAL_TIME => {
                let now = self
                    .process
                    .signals
                    .timers
                    .alarm
                    .rest(time::now().as_micros());
                self.write_timer(address, now)
            }
            VIRTUAL | PROFILE => self.write_timer(address, (0, 0)),
            _ => Err(Errno::EINVAL.into()),
        }
    }

    /// Starts the timer anew; what was left of the one before, and its interval.
    fn start_timer(&mut self, first_us: u64, interval_us: u64) -> (u64, u64) {
        let now = time::now().as_micros();
        let before = self.process.signals.timers.alarm.rest(now);
        self.process.signals.timers.alarm = Timer::start(now, first_us, interval_us);
        // It may come before what the processor's timer is set to.
        self.process.clock.armed = false;
        before
    }

    fn write_timer(&mut self, address: u64, (value, interval): (u64, u64)) -> Result<u64, Stop> {
        if address != 0 {
            for (at, micros) in [(INTERVAL_AT, interval), (VALUE_AT, value)] {
                let (seconds, rest) = (micros / MICROS_PER_SECOND, micros % MICROS_PER_SECOND);
                self.write_pair(address.wrapping_add(at), seconds, rest)?;
            }
        }
        Ok(0)
    }

    /// The mask for the time of a call, where it has one.
    pub(super) fn take_mask(&mut self, address: u64, set_bytes: u64) -> Result<(), Stop> {
        check_set(set_bytes)?;
        let mask = self.read_set(address)?;
        let signals = &mut self.process.signals;
        signals.set_mask_for_call(&mut self.thread.signals, mask);
        self.process.offer_signals();
        Ok(())
    }

    /// Brings in what the call is going to write when it has already done something.
    fn make_writable_unless_null(&mut self, address: u64, bytes: usize) -> Result<(), Stop> {
        match address {
            0 => Ok(()),
            address => self.make_writable(UserSlice::new(address, bytes as u64)?),
        }
    }

    fn read_set(&mut self, address: u64) -> Result<u64, Stop> {
        Ok(u64::from_le_bytes(self.read_array(address)?))
    }
}

/// When a time-out is over that begins now; none lasts for ever.
pub(super) fn deadline_in(span: Option<Micros>) -> Instant {
    span.map_or(Instant::FAR_FUTURE, |span| time::now() + span)
}

fn answer(sent: Result<(), SendError>) -> Result<u64, Stop> {
    match sent {
        Ok(()) => Ok(0),
        Err(SendError::NoSuchSignal) => Err(Errno::EINVAL.into()),
        Err(SendError::Full) => Err(Errno::EAGAIN.into()),
    }
}

/// Signal sets have one size.
fn check_set(bytes: u64) -> Result<(), Errno> {
    match bytes {
        SET_BYTES => Ok(()),
        _ => Err(Errno::EINVAL),
    }
}
