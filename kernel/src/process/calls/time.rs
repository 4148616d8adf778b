//! Clocks and sleeping. All clocks are local: a program that reads them often costs no message.

use hearth_abi::errno::Errno;
use netstack::time::{Instant, Micros};

use super::{Args, PID};
use crate::process::current::Current;
use crate::process::ending::Stop;
use crate::time;

/// Clocks of clock_gettime.
pub(super) const REALTIME: u64 = 0;
pub(super) const MONOTONIC: u64 = 1;
const PROCESS_CPU: u64 = 2;
const THREAD_CPU: u64 = 3;
const MONOTONIC_RAW: u64 = 4;
const REALTIME_COARSE: u64 = 5;
const MONOTONIC_COARSE: u64 = 6;
const BOOT_TIME: u64 = 7;
/// Kind of clock in the numbers of processor-time clocks that name a process or a thread (below).
const CLOCK_KIND: u32 = 3;
const SCHEDULED: u32 = 2;
/// In such a number: it names a thread.
const OF_THREAD: u32 = 4;
/// Nanoseconds between two values of a clock: all count microseconds.
const RESOLUTION_NANOS: u64 = 1000;
/// clock_nanosleep: the time is absolute.
const ABSOLUTE: u64 = 1;
const NANOS_PER_SECOND: u64 = 1_000_000_000;
pub(super) const MICROS_PER_SECOND: u64 = 1_000_000;

impl Current<'_> {
    /// A clock in microseconds.
    fn clock(&mut self, clock: u64) -> Result<u64, Errno> {
        match clock {
            REALTIME | REALTIME_COARSE => Ok(time::unix_micros()),
            MONOTONIC | MONOTONIC_RAW | MONOTONIC_COARSE | BOOT_TIME => Ok(time::now().as_micros()),
            PROCESS_CPU => Ok(self.usage().cpu_us()),
            THREAD_CPU => Ok(self.thread_us()),
            _ => match cpu_clock(clock) {
                Some(CpuClock::Program) => Ok(self.usage().cpu_us()),
                Some(CpuClock::Thread(0)) => Ok(self.thread_us()),
                Some(CpuClock::Thread(tid)) => self.us_of_thread(tid),
                None => Err(Errno::EINVAL),
            },
        }
    }

    pub(super) fn clock_getres(&mut self, args: Args) -> Result<u64, Stop> {
        let [clock, address, ..] = args;
        self.clock(clock)?;
        match address {
            0 => Ok(0),
            _ => self.write_pair(address, 0, RESOLUTION_NANOS),
        }
    }

    pub(super) fn clock_gettime(&mut self, args: Args) -> Result<u64, Stop> {
        let [clock, address, ..] = args;
        let micros = self.clock(clock)?;
        let nanos = micros % MICROS_PER_SECOND * 1000;
        self.write_pair(address, micros / MICROS_PER_SECOND, nanos)
    }

    pub(super) fn gettimeofday(&mut self, args: Args) -> Result<u64, Stop> {
        let [time, zone, ..] = args;
        let micros = self.clock(REALTIME)?;
        if time != 0 {
            let (seconds, rest) = (micros / MICROS_PER_SECOND, micros % MICROS_PER_SECOND);
            self.write_pair(time, seconds, rest)?;
        }
        if zone != 0 {
            self.write_bytes(zone, &[0; 8])?;
        }
        Ok(0)
    }

    pub(super) fn time(&mut self, address: u64) -> Result<u64, Stop> {
        let seconds = self.clock(REALTIME)? / MICROS_PER_SECOND;
        if address != 0 {
            self.write_bytes(address, &seconds.to_le_bytes())?;
        }
        Ok(seconds)
    }

    pub(super) fn nanosleep(&mut self, args: Args) -> Result<u64, Stop> {
        let span = self.read_span(args[0])?;
        let deadline = self.thread.deadline(|| time::now() + span);
        self.sleep_or_tell(deadline, args[1])
    }

    /// Sleeps; writes what is left of the time to `address`, where one is given, when a signal
    /// comes.
    fn sleep_or_tell(&mut self, deadline: Instant, address: u64) -> Result<u64, Stop> {
        let slept = self.sleep(deadline);
        if slept == Err(Stop::Errno(Errno::EINTR)) && address != 0 {
            let left = deadline.saturating_since(time::now()).as_micros();
            let nanos = left % MICROS_PER_SECOND * 1000;
            self.write_pair(address, left / MICROS_PER_SECOND, nanos)?;
        }
        slept.map(|()| 0)
    }

    pub(super) fn clock_nanosleep(&mut self, args: Args) -> Result<u64, Stop> {
        let [clock, flags, address, rest, ..] = args;
        if !matches!(clock, REALTIME | MONOTONIC | BOOT_TIME) {
            return Err(Errno::EINVAL.into());
        }
        let span = self.read_span(address)?;
        let now_or_at = match flags & ABSOLUTE {
            0 => time::now() + span,
            _ => self.deadline_at(clock, span),
        };
        let deadline = self.thread.deadline(|| now_or_at);
        match flags & ABSOLUTE {
            0 => self.sleep_or_tell(deadline, rest),
            _ => self.sleep_or_tell(deadline, 0),
        }
    }

    /// The deadline that a point in time on a clock means, fixed now.
    pub(super) fn deadline_at(&mut self, clock: u64, point: Micros) -> Instant {
        let now = self.clock(clock).unwrap_or(0);
        time::now() + Micros(point.as_micros().saturating_sub(now))
    }

    /// A `struct timespec` as a duration, rounded up to microseconds.
    pub(super) fn read_span(&mut self, address: u64) -> Result<Micros, Stop> {
        let bytes: [u8; 16] = self.read_array(address)?;
        let (seconds, nanos) = bytes.split_at(8);
        let seconds = i64::from_le_bytes(seconds.try_into().expect("eight bytes"));
        let nanos = u64::from_le_bytes(nanos.try_into().expect("eight bytes"));
        let seconds = u64::try_from(seconds).map_err(|_| Errno::EINVAL)?;
        if nanos >= NANOS_PER_SECOND {
            return Err(Errno::EINVAL.into());
        }
        let micros = seconds.saturating_mul(MICROS_PER_SECOND);
        Ok(Micros(micros.saturating_add(nanos.div_ceil(1000))))
    }

    /// EINVAL where the microseconds of a `struct timeval` are a second or more.
    pub(super) fn check_micros(&mut self, address: u64) -> Result<(), Stop> {
        let micros = self.read_array(address.wrapping_add(8))?;
        match u64::from_le_bytes(micros) < MICROS_PER_SECOND {
            true => Ok(()),
            false => Err(Errno::EINVAL.into()),
        }
    }

    /// A `struct timeval` as a duration; its microseconds may be more than a second, as in select.
    pub(super) fn read_timeval(&mut self, address: u64) -> Result<Micros, Stop> {
        let bytes: [u8; 16] = self.read_array(address)?;
        let (seconds, micros) = bytes.split_at(8);
        let number = |bytes: &[u8]| {
            let number = i64::from_le_bytes(bytes.try_into().expect("eight bytes"));
            u64::try_from(number).map_err(|_| Errno::EINVAL)
        };
        let (seconds, micros) = (number(seconds)?, number(micros)?);
        Ok(Micros(
            seconds
                .saturating_mul(MICROS_PER_SECOND)
                .saturating_add(micros),
        ))
    }

    pub(super) fn write_pair(
        &mut self,
        address: u64,
        first: u64,
        second: u64,
    ) -> Result<u64, Stop> {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&first.to_le_bytes());
        bytes[8..].copy_from_slice(&second.to_le_bytes());
        self.write_bytes(address, &bytes)?;
        Ok(0)
    }
}

/// A clock of processor time that is named by a number.
enum CpuClock {
    Program,
    /// Of the thread with this number; 0 is the one that asks.
    Thread(u32),
}

/// Whose processor time a clock is, as clock_getcpuclockid and pthread_getcpuclockid make it: the
/// complement of the number, with the kind below.
fn cpu_clock(clock: u64) -> Option<CpuClock> {
    let clock = clock as i32;
    let target = u32::try_from(!(clock >> 3)).ok()?;
    if clock as u32 & CLOCK_KIND != SCHEDULED {
        return None;
    }
    match clock as u32 & OF_THREAD != 0 {
        true => Some(CpuClock::Thread(target)),
        false => [0, PID as u32]
            .contains(&target)
            .then_some(CpuClock::Program),
    }
}
