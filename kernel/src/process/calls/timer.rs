//! Timers of POSIX: timer_create and its kin.
//!
//! Neighbours: `kernel_core::signals::Timers` has them, [`super::signal`] the calls of the timer of
//! alarm.

use hearth_abi::errno::Errno;
use hearth_abi::linux::Signal;
use kernel_core::program::UserSlice;
use kernel_core::signals::{Notify, Posix, Timer};
use kernel_core::threads::Tid;

use super::Args;
use super::time::{MICROS_PER_SECOND, MONOTONIC, REALTIME};
use crate::process::current::Current;
use crate::process::ending::Stop;
use crate::time;

/// Monotonic clock that counts while the machine sleeps: here the same.
const BOOT_TIME: u64 = 7;
/// `struct sigevent`: its bytes, and where its fields are.
const EVENT_BYTES: usize = 64;
const SIGNAL_AT: usize = 8;
const NOTIFY_AT: usize = 12;
const THREAD_AT: usize = 16;
/// What an expiry does, as a sigevent says it.
const NOTIFY_SIGNAL: u32 = 0;
const NOTIFY_NOTHING: u32 = 1;
const NOTIFY_THREAD: u32 = 4;
/// Bytes of `timer_t` as the kernel has it, and of `struct itimerspec`.
const ID_BYTES: u64 = 4;
const SPEC_BYTES: u64 = 32;
/// Where the interval and the time to the next expiry stand in it.
const INTERVAL_AT: u64 = 0;
const VALUE_AT: u64 = 16;
/// timer_settime: the time is absolute.
const ABSOLUTE: u64 = 1;
const SIGNAL_MAX: u32 = 64;

impl Current<'_> {
    pub(super) fn timer_create(&mut self, args: Args) -> Result<u64, Stop> {
        let [clock, event, to, ..] = args;
        let is_real_time = match clock {
            REALTIME => true,
            MONOTONIC | BOOT_TIME => false,
            _ => return Err(Errno::EINVAL.into()),
        };
        let (notify, value) = match event {
            0 => {
                let signal = Signal::Alrm.number();
                (
                    Notify::Signal {
                        signal,
                        thread: None,
                    },
                    None,
                )
            }
            address => {
                let event: [u8; EVENT_BYTES] = self.read_array(address)?;
                let (value, _) = event.split_first_chunk().expect("64 bytes");
                (self.notify_of(&event)?, Some(u64::from_le_bytes(*value)))
            }
        };
        let to = UserSlice::new(to, ID_BYTES)?;
        self.make_writable(to)?;
        let timers = &mut self.process.signals.timers;
        let id = timers
            .create(notify, value, is_real_time)
            .ok_or(Errno::EAGAIN)?;
        self.write_user(to, &id.to_le_bytes())?;
        Ok(0)
    }

    fn notify_of(&self, event: &[u8; EVENT_BYTES]) -> Result<Notify, Errno> {
        let half = |at: usize| u32::from_le_bytes(event[at..at + 4].try_into().expect("4 bytes"));
        let signal = match half(SIGNAL_AT) {
            signal @ 1..=SIGNAL_MAX => Ok(signal as u8),
            _ => Err(Errno::EINVAL),
        };
        Ok(match half(NOTIFY_AT) {
            NOTIFY_SIGNAL => Notify::Signal {
                signal: signal?,
                thread: None,
            },
            NOTIFY_NOTHING => Notify::Nothing,
            NOTIFY_THREAD => {
                let tid = Tid::new(half(THREAD_AT).into()).ok_or(Errno::EINVAL)?;
                let is_there = tid == self.thread.tid || self.process.threads.get(tid).is_some();
                Notify::Signal {
                    signal: signal?,
                    thread: Some(is_there.then_some(tid).ok_or(Errno::EINVAL)?),
                }
            }
            _ => return Err(Errno::EINVAL),
        })
    }

    pub(super) fn timer_settime(&mut self, args: Args) -> Result<u64, Stop> {
        let [id, flags, new, old, ..] = args;
        let is_real_time = self.timer(id)?.is_real_time;
        if new == 0 {
            return Err(Errno::EINVAL.into());
        }
        let interval = self.read_span(new.wrapping_add(INTERVAL_AT))?.as_micros();
        let value = self.read_span(new.wrapping_add(VALUE_AT))?;
        if old != 0 {
            self.make_writable(UserSlice::new(old, SPEC_BYTES)?)?;
        }
        let now = time::now();
        let first = match (value.as_micros(), flags & ABSOLUTE) {
            (0, _) => 0,
            (value, 0) => value,
            // What is over expires at once.
            _ => {
                let clock = if is_real_time { REALTIME } else { MONOTONIC };
                let at = self.deadline_at(clock, value);
                at.saturating_since(now).as_micros().max(1)
            }
        };
        let timer = self.timer(id)?;
        let before = timer.timer.rest(now.as_micros());
        timer.timer = Timer::start(now.as_micros(), first, interval);
        // It may come before what the processor's timer is set to.
        self.process.clock.armed = false;
        self.write_spec(old, before)
    }

    pub(super) fn timer_gettime(&mut self, args: Args) -> Result<u64, Stop> {
        let [id, to, ..] = args;
        let rest = self.timer(id)?.timer.rest(time::now().as_micros());
        match to {
            0 => Err(Errno::EFAULT.into()),
            to => self.write_spec(to, rest),
        }
    }

    pub(super) fn timer_getoverrun(&mut self, id: u64) -> Result<u64, Stop> {
        Ok(self.timer(id)?.overrun())
    }

    pub(super) fn timer_delete(&mut self, id: u64) -> Result<u64, Stop> {
        match self.process.signals.timers.delete(id) {
            true => Ok(0),
            false => Err(Errno::EINVAL.into()),
        }
    }

    fn timer(&mut self, id: u64) -> Result<&mut Posix, Errno> {
        self.process.signals.timers.get_mut(id).ok_or(Errno::EINVAL)
    }

    fn write_spec(&mut self, address: u64, (value, interval): (u64, u64)) -> Result<u64, Stop> {
        if address != 0 {
            for (at, micros) in [(INTERVAL_AT, interval), (VALUE_AT, value)] {
                let nanos = micros % MICROS_PER_SECOND * 1000;
                self.write_pair(address.wrapping_add(at), micros / MICROS_PER_SECOND, nanos)?;
            }
        }
        Ok(0)
    }
}
