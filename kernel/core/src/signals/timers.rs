//! The timers of a program: that of alarm and setitimer, and those of timer_create.
//!
//! Source: POSIX, `timer_create` and `timer_getoverrun`: a timer has one signal that waits at most;
//! what expires meanwhile is counted as its overrun.
//!
//! Invariant: there are at most [`TIMERS_MAX`] beside that of alarm; a number is not given anew
//! while its timer is there.

use alloc::vec::Vec;

use super::info::{Info, code};
use super::timer::Timer;
use crate::threads::Tid;

/// Timers of a program that timer_create has made.
pub const TIMERS_MAX: usize = 64;
/// Highest overrun that is told (`DELAYTIMER_MAX`).
const OVERRUN_MAX: u64 = i32::MAX as u64;

/// What an expiry does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notify {
    /// Nothing: the program asks.
    Nothing,
    /// A signal to the process, or to one of its threads.
    Signal {
        /// Its number, 1 to 64.
        signal: u8,
        /// The thread that gets it.
        thread: Option<Tid>,
    },
}

/// A timer of timer_create.
#[derive(Clone, Copy, Debug)]
pub struct Posix {
    /// When it expires.
    pub timer: Timer,
    /// Absolute times are of the real-time clock.
    pub is_real_time: bool,
    notify: Notify,
    value: u64,
    overrun: u64,
}

impl Posix {
    /// How often it has expired beside the expiry that its last signal told.
    pub fn overrun(&self) -> u64 {
        self.overrun.min(OVERRUN_MAX)
    }
}

/// An expiry that is to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// The timer.
    pub id: u32,
    /// The signal.
    pub signal: u8,
    /// The thread that gets it; none: the process.
    pub thread: Option<Tid>,
    /// What is told with it.
    pub info: Info,
    /// Expiries that it stands for beyond the first.
    pub missed: u64,
}

/// The timers of a program.
#[derive(Clone, Debug, Default)]
pub struct Timers {
    /// That of alarm and setitimer.
    pub alarm: Timer,
    posix: Vec<Option<Posix>>,
}

impl Timers {
    /// No timer runs.
    pub const fn new() -> Self {
        Self {
            alarm: Timer::STOPPED,
            posix: Vec::new(),
        }
    }

    /// A new timer, which does not run; its number. `None`: there are as many as there may be.
    /// Without a value its signal tells the number.
    pub fn create(
        &mut self,
        notify: Notify,
        value: Option<u64>,
        is_real_time: bool,
    ) -> Option<u32> {
        let free = self.posix.iter().position(Option::is_none);
        let index = free.unwrap_or(self.posix.len());
        if index >= TIMERS_MAX || self.posix.try_reserve(1).is_err() {
            return None;
        }
        if index == self.posix.len() {
            self.posix.push(None);
        }
        let id = index as u32;
        self.posix[index] = Some(Posix {
            timer: Timer::STOPPED,
            is_real_time,
            notify,
            value: value.unwrap_or(id.into()),
            overrun: 0,
        });
        Some(id)
    }

    /// The timer with a number.
    pub fn get_mut(&mut self, id: u64) -> Option<&mut Posix> {
        self.posix.get_mut(id as u32 as usize)?.as_mut()
    }

    /// Takes a timer away; whether it was there.
    pub fn delete(&mut self, id: u64) -> bool {
        let place = self.posix.get_mut(id as u32 as usize);
        place.is_some_and(|place| place.take().is_some())
    }

    /// When the first of them expires.
    pub fn due_us(&self) -> Option<u64> {
        let posix = self.posix.iter().flatten();
        let posix = posix.filter_map(|posix| posix.timer.due_us());
        posix.chain(self.alarm.due_us()).min()
    }

    /// The next timer of timer_create that has expired by now.
    pub fn expired(&mut self, now_us: u64) -> Option<Expiry> {
        for (index, place) in self.posix.iter_mut().enumerate() {
            let Some(posix) = place else { continue };
            let Some(missed) = posix.timer.expired(now_us) else {
                continue;
            };
            let id = index as u32;
            if let Notify::Signal { signal, thread } = posix.notify {
                posix.overrun = missed;
                return Some(Expiry {
                    id,
                    signal,
                    thread,
                    info: Info::timer(id, posix.overrun(), posix.value),
                    missed,
                });
            }
        }
        None
    }

    /// The signal of the last expiry waits already, and stands for `more` expiries, too.
    pub fn overran(&mut self, id: u32, before: u64, more: u64) {
        if let Some(posix) = self.get_mut(id.into()) {
            posix.overrun = before.saturating_add(more);
        }
    }
}

impl Info {
    /// Of a timer's expiry.
    pub const fn timer(id: u32, overrun: u64, value: u64) -> Self {
        Self {
            error: 0,
            code: code::TIMER,
            first: id as u64 | overrun << 32,
            second: value,
        }
    }

    /// The overrun, where this tells of the timer with a number.
    pub const fn overrun_of(&self, id: u32) -> Option<u64> {
        match self.code == code::TIMER && self.first as u32 == id {
            true => Some(self.first >> 32),
            false => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGNAL: Notify = Notify::Signal {
        signal: 10,
        thread: None,
    };

    #[test]
    fn timers_are_made_expire_and_go() {
        let mut timers = Timers::new();
        let first = timers.create(SIGNAL, Some(77), false).unwrap();
        let second = timers.create(Notify::Nothing, None, true).unwrap();
        assert_eq!((first, second, timers.due_us()), (0, 1, None));
        timers.get_mut(0).unwrap().timer = Timer::start(0, 10_000, 10_000);
        timers.get_mut(1).unwrap().timer = Timer::start(0, 5_000, 0);
        assert_eq!(timers.due_us(), Some(5_000));
        // The one that tells nothing is passed over, and does not stand in the way.
        assert_eq!(timers.expired(5_000), None);
        assert_eq!(timers.due_us(), Some(10_000));
        let expiry = timers.expired(35_000).unwrap();
        assert_eq!((expiry.id, expiry.missed), (0, 2));
        assert_eq!(expiry.info.overrun_of(0), Some(2));
        assert_eq!(expiry.info.overrun_of(1), None);
        assert_eq!(expiry.info.second, 77);
        assert_eq!(timers.get_mut(0).unwrap().overrun(), 2);
        timers.overran(0, 2, 3);
        assert_eq!(timers.get_mut(0).unwrap().overrun(), 5);
        assert!(timers.delete(0) && !timers.delete(0) && timers.get_mut(0).is_none());
        assert_eq!(timers.create(SIGNAL, None, false), Some(0));
    }

    #[test]
    fn there_is_a_last_one() {
        let mut timers = Timers::new();
        for _ in 0..TIMERS_MAX {
            assert!(timers.create(SIGNAL, None, false).is_some());
        }
        assert_eq!(timers.create(SIGNAL, None, false), None);
    }
}
