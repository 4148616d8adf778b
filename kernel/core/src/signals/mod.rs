//! The signals of a program: what it wants done about them, which it blocks, which wait for it.
//!
//! | item | what it is |
//! |---|---|
//! | [`Signals`] | actions, mask, waiting signals; which of them is delivered next |
//! | [`Action`], [`Info`], [`AltStack`] | `struct sigaction`, `siginfo_t`, `stack_t` |
//! | [`frame`] | what lies on the stack of a handler, and what is believed of it afterwards |
//! | [`fault`] | the signal that a fault is |
//! | [`Timer`] | the timer of alarm and setitimer |
//!
//! Neighbours: `kernel::process::signals` enters handlers and comes back from them,
//! `process::calls` has the system calls.
//!
//! Invariant: [`Signals::is_due`] is true exactly while a signal waits that is neither blocked nor
//! ignored; at most [`WAITING_MAX`] signals wait.

mod action;
pub mod fault;
pub mod frame;
mod info;
mod stack;
mod timer;

use alloc::vec::Vec;

pub use action::{ACTION_BYTES, Action, flag};
use hearth_abi::linux::Signal;
pub use info::{INFO_BYTES, Info, code};
pub use stack::{AltStack, STACK_BYTES};
pub use timer::Timer;

/// Signals are numbered from 1 to this.
const SIGNAL_MAX: u64 = 64;
/// First of the signals of which several may wait, each with a value.
const REAL_TIME_MIN: u64 = 32;
/// Signals that may wait.
pub const WAITING_MAX: usize = 128;
/// Signals that may wait when another real-time one comes: the others always find room.
const REAL_TIME_ROOM: usize = WAITING_MAX - (REAL_TIME_MIN as usize - 1);

const fn bit(signal: Signal) -> u64 {
    1 << (signal.number() - 1)
}

/// What cannot be caught, blocked or ignored.
const ABSOLUTE: u64 = bit(Signal::Kill) | bit(Signal::Stop);
/// What does nothing unless there is a handler.
const IGNORED_BY_DEFAULT: u64 =
    bit(Signal::Chld) | bit(Signal::Cont) | bit(Signal::Urg) | bit(Signal::Winch);
/// What faults raise goes first.
const OF_FAULTS: u64 = bit(Signal::Segv)
    | bit(Signal::Bus)
    | bit(Signal::Ill)
    | bit(Signal::Trap)
    | bit(Signal::Fpe)
    | bit(Signal::Sys);

/// Why a signal is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// Signals are numbered from 1 to 64.
    NoSuchSignal,
    /// A real-time signal finds no room.
    Full,
}

/// A signal on its way into its handler, or to the end of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Its number.
    pub signal: u8,
    /// Where it comes from.
    pub info: Info,
    /// What is to be done.
    pub action: Action,
}

/// The signals of one program with one thread.
#[derive(Clone, Debug)]
pub struct Signals {
    /// By number less one; none before the program sets the first, as most programs never do.
    actions: Vec<Action>,
    mask: u64,
    /// The mask to go back to, while a call has one of its own (sigsuspend, pselect).
    kept_mask: Option<u64>,
    /// Signals that are ignored, by action or by default.
    ignored: u64,
    /// In the order in which they came.
    waiting: Vec<(u8, Info)>,
    /// Waiting and not blocked.
    due: u64,
    /// Where handlers run that want it.
    pub stack: AltStack,
    /// The timer that sends SIGALRM.
    pub timer: Timer,
}

impl Signals {
    /// All actions are the default, nothing is blocked, nothing waits.
    pub const fn new() -> Self {
        Self {
            actions: Vec::new(),
            mask: 0,
            kept_mask: None,
            ignored: IGNORED_BY_DEFAULT,
            waiting: Vec::new(),
            due: 0,
            stack: AltStack::NONE,
            timer: Timer::STOPPED,
        }
    }

    /// The action of a signal; `None` when there is no such signal.
    pub fn action(&self, signal: u64) -> Option<Action> {
        let index = signal.checked_sub(1).filter(|&index| index < SIGNAL_MAX)?;
        let set = self.actions.get(index as usize).copied();
        Some(set.unwrap_or_default())
    }

    /// Sets the action of a signal; `false` when it has none that can be set. A signal that waits
    /// and is ignored from now on is gone.
    pub fn set_action(&mut self, signal: u64, action: Action) -> bool {
        if !(1..=SIGNAL_MAX).contains(&signal) || ABSOLUTE >> (signal - 1) & 1 == 1 {
            return false;
        }
        let bit = 1 << (signal - 1);
        let is_ignored = match action {
            _ if action.is_default() => IGNORED_BY_DEFAULT & bit != 0,
            _ => action.is_ignore(),
        };
        self.ignored = self.ignored & !bit | if is_ignored { bit } else { 0 };
        if is_ignored {
            self.waiting
                .retain(|(other, _)| u64::from(*other) != signal);
        }
        self.actions.resize(SIGNAL_MAX as usize, Action::default());
        self.actions[signal as usize - 1] = action;
        self.refresh();
        true
    }

    /// Blocked signals: bit n - 1 is signal n.
    pub fn mask(&self) -> u64 {
        self.mask
    }

    /// Sets the mask; SIGKILL and SIGSTOP cannot be blocked.
    pub fn set_mask(&mut self, mask: u64) {
        self.mask = mask & !ABSOLUTE;
        self.refresh();
    }

    /// Sets the mask for the time of a call. The handler that ends the call returns to the one
    /// before; so does [`Self::restore_mask`].
    pub fn set_mask_for_call(&mut self, mask: u64) {
        self.kept_mask = Some(self.mask);
        self.set_mask(mask);
    }

    /// Goes back to the mask before a call, unless a handler will.
    pub fn restore_mask(&mut self) {
        if self.due == 0
            && let Some(mask) = self.kept_mask.take()
        {
            self.set_mask(mask);
        }
    }

    /// Sends a signal; number 0 only asks whether it could be done.
    pub fn send(&mut self, signal: u64, info: Info) -> Result<(), SendError> {
        if signal == 0 {
            return Ok(());
        }
        if signal > SIGNAL_MAX {
            return Err(SendError::NoSuchSignal);
        }
        let number = signal as u8;
        let waits = self.waiting.iter().any(|(other, _)| *other == number);
        if waits && signal < REAL_TIME_MIN {
            return Ok(());
        }
        if signal >= REAL_TIME_MIN && self.waiting.len() >= REAL_TIME_ROOM {
            return Err(SendError::Full);
        }
        self.waiting.push((number, info));
        self.refresh();
        Ok(())
    }

    /// Whether a signal is to be delivered now.
    #[inline]
    pub const fn is_due(&self) -> bool {
        self.due != 0
    }

    /// Whether a signal that waits ends the program when it is delivered, which nothing holds back.
    pub fn ends_by(&self, signal: u8) -> bool {
        let place = signal.checked_sub(1).map(u32::from);
        let bit = place
            .and_then(|place| 1_u64.checked_shl(place))
            .unwrap_or(0);
        let action = self.action(signal.into());
        self.due & bit != 0 && action.is_some_and(|action| action.is_default())
    }

    /// Whether a call that is interrupted by the signal that is delivered next begins again.
    pub fn restarts(&self) -> bool {
        let action = self.next().and_then(|signal| self.action(signal.into()));
        action.is_some_and(|action| action.is_handler() && action.has(flag::RESTART))
    }

    /// Signals that wait because they are blocked.
    pub fn blocked(&self) -> u64 {
        self.all_waiting() & self.mask
    }

    /// Takes the signal to deliver now.
    pub fn take(&mut self) -> Option<Delivery> {
        let signal = self.next()?;
        let info = self.remove(signal);
        let action = self.action(signal.into())?;
        Some(Delivery {
            signal,
            info,
            action,
        })
    }

    /// Takes a signal of a set that waits, blocked or not (sigtimedwait).
    pub fn take_of(&mut self, set: u64) -> Option<(u8, Info)> {
        let signal = lowest(self.all_waiting() & set)?;
        Some((signal, self.remove(signal)))
    }

    /// The handler of a signal that a fault raises; `None` where it ends the program: without one,
    /// or when it is blocked.
    pub fn handler_of_fault(&self, signal: Signal) -> Option<Action> {
        let action = self.action(signal.number().into())?;
        (action.is_handler() && self.mask & bit(signal) == 0).then_some(action)
    }

    /// The mask to which the next handler returns.
    pub fn mask_behind(&self) -> u64 {
        self.kept_mask.unwrap_or(self.mask)
    }

    /// The handler of a signal runs from now on.
    pub fn enter(&mut self, signal: u8, action: &Action) {
        let own = match action.has(flag::NODEFER) {
            true => 0,
            false => 1 << (signal - 1),
        };
        if action.has(flag::RESETHAND) {
            let once = Action {
                handler: Action::default().handler,
                ..*action
            };
            self.set_action(signal.into(), once);
        }
        self.kept_mask = None;
        self.stack = self.stack.in_handler();
        self.set_mask(self.mask | action.mask | own);
    }

    fn next(&self) -> Option<u8> {
        match self.due & OF_FAULTS {
            0 => lowest(self.due),
            of_faults => lowest(of_faults),
        }
    }

    fn all_waiting(&self) -> u64 {
        let bits = self.waiting.iter().map(|(signal, _)| 1 << (signal - 1));
        bits.fold(0, |all, bit: u64| all | bit)
    }

    /// Removes the first of the signals of this number, which waits.
    fn remove(&mut self, signal: u8) -> Info {
        let index = self.waiting.iter().position(|(other, _)| *other == signal);
        let (_, info) = self.waiting.remove(index.expect("a signal that waits"));
        self.refresh();
        info
    }

    /// After any change: what is ignored and not blocked is gone, the rest may be due.
    fn refresh(&mut self) {
        if self.waiting.is_empty() {
            self.due = 0;
            return;
        }
        let gone = self.ignored & !self.mask;
        self.waiting
            .retain(|(signal, _)| gone >> (signal - 1) & 1 == 0);
        self.due = self.all_waiting() & !self.mask;
    }
}

impl Default for Signals {
    fn default() -> Self {
        Self::new()
    }
}

/// The lowest signal of a set.
const fn lowest(set: u64) -> Option<u8> {
    match set {
        0 => None,
        _ => Some(set.trailing_zeros() as u8 + 1),
    }
}

#[cfg(test)]
mod tests;
