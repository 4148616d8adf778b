//! Signals that wait, for a process or for a thread.
//!
//! Invariant: at most [`WAITING_MAX`] wait in a queue; one of each number below 32.

use alloc::vec::Vec;

use super::info::Info;
use super::set::{self, REAL_TIME_MIN, SIGNAL_MAX};

/// Signals that may wait for the process, and for each of its threads.
pub const WAITING_MAX: usize = 128;
/// Signals that may wait when another real-time one comes: the others always find room.
pub const REAL_TIME_ROOM: usize = WAITING_MAX - (REAL_TIME_MIN as usize - 1);

/// Why a signal is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// Signals are numbered from 1 to 64.
    NoSuchSignal,
    /// A real-time signal finds no room.
    Full,
}

/// The set of the signal with a number; `None` for number 0, with which is only asked whether a
/// signal could be sent.
pub fn set_of(signal: u64) -> Result<Option<u64>, SendError> {
    match signal {
        0 => Ok(None),
        1..=SIGNAL_MAX => Ok(Some(1 << (signal - 1))),
        _ => Err(SendError::NoSuchSignal),
    }
}

/// Signals in the order in which they came.
#[derive(Clone, Debug)]
pub struct Queue {
    waiting: Vec<(u8, Info)>,
    set: u64,
}

impl Queue {
    /// Nothing waits.
    pub const fn new() -> Self {
        Self {
            waiting: Vec::new(),
            set: 0,
        }
    }

    /// The signals that wait.
    #[inline]
    pub const fn set(&self) -> u64 {
        self.set
    }

    /// How many wait.
    pub const fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Adds the signal of this set, which is of one.
    pub fn push(&mut self, set: u64, info: Info) -> Result<(), SendError> {
        let number = set.trailing_zeros() as u8 + 1;
        let is_real_time = u64::from(number) >= REAL_TIME_MIN;
        if !is_real_time && self.set & set != 0 {
            return Ok(());
        }
        if is_real_time && self.len() >= REAL_TIME_ROOM {
            return Err(SendError::Full);
        }
        self.waiting.push((number, info));
        self.set |= set;
        Ok(())
    }

    /// Adds to the overrun of the signal of a timer that waits; what it was before. `None`: none
    /// waits.
    pub fn add_overrun(&mut self, signal: u8, id: u32, more: u64) -> Option<u64> {
        let is_its =
            |(number, info): &&mut (u8, Info)| *number == signal && info.overrun_of(id).is_some();
        let (_, info) = self.waiting.iter_mut().find(is_its)?;
        let before = info.overrun_of(id)?;
        let overrun = before.saturating_add(more).min(i32::MAX as u64);
        *info = Info::timer(id, overrun, info.second);
        Some(before)
    }

    /// Takes the signal that goes first of those in a set.
    pub fn take(&mut self, among: u64) -> Option<(u8, Info)> {
        let signal = set::first(self.set & among)?;
        let index = self.waiting.iter().position(|(other, _)| *other == signal);
        let taken = self.waiting.remove(index.expect("a signal that waits"));
        self.refresh();
        Some(taken)
    }

    /// Removes all signals of a set.
    pub fn discard(&mut self, gone: u64) {
        if self.set & gone != 0 {
            self.waiting
                .retain(|(signal, _)| gone >> (signal - 1) & 1 == 0);
            self.refresh();
        }
    }

    fn refresh(&mut self) {
        let bits = self.waiting.iter().map(|(signal, _)| 1 << (signal - 1));
        self.set = bits.fold(0, |all, bit: u64| all | bit);
    }
}
