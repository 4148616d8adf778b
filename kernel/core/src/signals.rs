//! Signals as far as a program without handlers sees them: it can set dispositions and a mask,
//! read them back, and send itself a signal, which ends it or is ignored.
//!
//! Neighbours: `kernel::process` keeps one [`Signals`] a program and ends it with what
//! [`Signals::sent`] says.
//!
//! Invariant: no handler ever runs. A program that is sent a signal it has a handler for is ended
//! by that signal, as if it had none; faults end it in any case.

use alloc::vec::Vec;

use hearth_abi::linux::Signal;

/// Signals are numbered from 1 to this.
const SIGNAL_MAX: u64 = 64;
/// Bytes of the kernel's `struct sigaction`: handler, flags, restorer, mask.
pub const ACTION_BYTES: usize = 32;
const HANDLER_IGNORE: u64 = 1;
const KILL: u64 = 9;
const STOP: u64 = 19;
/// SIGCHLD, SIGCONT, SIGURG and SIGWINCH do nothing unless there is a handler.
const IGNORED_BY_DEFAULT: [u64; 4] = [17, 18, 23, 28];

/// Signals are numbered from 1 to 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSuchSignal;

/// Dispositions and mask.
#[derive(Clone, Debug)]
pub struct Signals {
    /// By number less one; none before the program sets the first, as most programs never do.
    actions: Vec<[u8; ACTION_BYTES]>,
    mask: u64,
}

impl Signals {
    /// All dispositions are the default, nothing is blocked.
    pub const fn new() -> Self {
        Self {
            actions: Vec::new(),
            mask: 0,
        }
    }

    /// The action of a signal; `None` when there is no such signal.
    pub fn action(&self, signal: u64) -> Option<[u8; ACTION_BYTES]> {
        let index = signal.checked_sub(1).filter(|&index| index < SIGNAL_MAX)?;
        let set = self.actions.get(index as usize).copied();
        Some(set.unwrap_or([0; ACTION_BYTES]))
    }

    /// Sets the action of a signal; `false` when it has none that can be set.
    pub fn set_action(&mut self, signal: u64, action: [u8; ACTION_BYTES]) -> bool {
        if !(1..=SIGNAL_MAX).contains(&signal) || signal == KILL || signal == STOP {
            return false;
        }
        self.actions.resize(SIGNAL_MAX as usize, [0; ACTION_BYTES]);
        self.actions[signal as usize - 1] = action;
        true
    }

    /// Blocked signals: bit n - 1 is signal n.
    pub fn mask(&self) -> u64 {
        self.mask
    }

    /// Sets the mask; SIGKILL and SIGSTOP cannot be blocked.
    pub fn set_mask(&mut self, mask: u64) {
        self.mask = mask & !(1 << (KILL - 1) | 1 << (STOP - 1));
    }

    /// What sending the program this signal does: a signal to end it with, or nothing.
    pub fn sent(&self, signal: u64) -> Result<Option<Signal>, NoSuchSignal> {
        if signal == 0 {
            return Ok(None);
        }
        let action = self.action(signal).ok_or(NoSuchSignal)?;
        let mut handler = [0; 8];
        handler.copy_from_slice(&action[..8]);
        let ignored = match u64::from_le_bytes(handler) {
            0 => IGNORED_BY_DEFAULT.contains(&signal),
            handler => handler == HANDLER_IGNORE,
        };
        if ignored {
            return Ok(None);
        }
        Ok(Some(
            Signal::from_number(signal as u8).unwrap_or(Signal::Kill),
        ))
    }
}

impl Default for Signals {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handler(address: u64) -> [u8; ACTION_BYTES] {
        let mut action = [0; ACTION_BYTES];
        action[..8].copy_from_slice(&address.to_le_bytes());
        action[31] = 7;
        action
    }

    #[test]
    fn dispositions_are_read_back_as_set() {
        let mut signals = Signals::new();
        assert_eq!(signals.action(15), Some([0; ACTION_BYTES]));
        assert!(signals.set_action(15, handler(0x40_1000)));
        assert_eq!(signals.action(15), Some(handler(0x40_1000)));
        assert_eq!(signals.action(14), Some([0; ACTION_BYTES]));
        for signal in [0, 9, 19, 65, u64::MAX] {
            assert!(!signals.set_action(signal, handler(1)), "{signal}");
        }
        assert_eq!(signals.action(0), None);
        assert_eq!(signals.action(64), Some([0; ACTION_BYTES]));
        assert_eq!(signals.action(65), None);
        signals.set_mask(u64::MAX);
        assert_eq!(signals.mask(), !(1 << 8 | 1 << 18));
    }

    #[test]
    fn a_signal_ends_the_program_unless_it_is_ignored() {
        let mut signals = Signals::new();
        assert_eq!(signals.sent(0), Ok(None));
        assert_eq!(signals.sent(6), Ok(Some(Signal::Abrt)));
        assert_eq!(signals.sent(65), Err(NoSuchSignal));
        assert_eq!(signals.sent(17), Ok(None), "SIGCHLD does nothing");
        signals.set_action(15, handler(HANDLER_IGNORE));
        assert_eq!(signals.sent(15), Ok(None));
        // A handler cannot run: the signal ends the program, also one that does nothing else.
        signals.set_action(17, handler(0x40_1000));
        assert_eq!(signals.sent(17), Ok(Some(Signal::Kill)));
        assert_eq!(signals.sent(9), Ok(Some(Signal::Kill)));
    }
}
