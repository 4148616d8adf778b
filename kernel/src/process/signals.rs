//! Signals as far as a program without handlers sees them: it can set dispositions and a mask,
//! read them back, and send itself a signal, which ends it or is ignored.
//!
//! Invariant: no handler ever runs. A program that is sent a signal it has a handler for is ended
//! by that signal, as if it had none; faults end it in any case.

use hearth_abi::linux::Signal;

/// Signals are numbered from 1 to this.
const SIGNAL_MAX: u64 = 64;
/// Bytes of the kernel's `struct sigaction`: handler, flags, restorer, mask.
pub(super) const ACTION_BYTES: usize = 32;
const HANDLER_IGNORE: u64 = 1;
const KILL: u64 = 9;
const STOP: u64 = 19;
/// SIGCHLD, SIGCONT, SIGURG and SIGWINCH do nothing unless there is a handler.
const IGNORED_BY_DEFAULT: [u64; 4] = [17, 18, 23, 28];

/// Dispositions and mask.
pub(super) struct Signals {
    actions: [[u8; ACTION_BYTES]; SIGNAL_MAX as usize],
    /// Blocked signals: bit n - 1 is signal n.
    pub(super) mask: u64,
}

impl Signals {
    pub(super) fn new() -> Self {
        Self {
            actions: [[0; ACTION_BYTES]; SIGNAL_MAX as usize],
            mask: 0,
        }
    }

    /// The action of a signal; `None` when there is no such signal.
    pub(super) fn action(&self, signal: u64) -> Option<[u8; ACTION_BYTES]> {
        let index = signal.checked_sub(1)?;
        self.actions.get(index as usize).copied()
    }

    /// Sets the action of a signal; `false` when it has none that can be set.
    pub(super) fn set_action(&mut self, signal: u64, action: [u8; ACTION_BYTES]) -> bool {
        if !(1..=SIGNAL_MAX).contains(&signal) || signal == KILL || signal == STOP {
            return false;
        }
        self.actions[signal as usize - 1] = action;
        true
    }

    /// Sets the mask; SIGKILL and SIGSTOP cannot be blocked.
    pub(super) fn set_mask(&mut self, mask: u64) {
        self.mask = mask & !(1 << (KILL - 1) | 1 << (STOP - 1));
    }

    /// What sending the program this signal does: `Err` when there is no such signal, a signal
    /// to end it with, or nothing.
    pub(super) fn sent(&self, signal: u64) -> Result<Option<Signal>, ()> {
        if signal == 0 {
            return Ok(None);
        }
        let action = self.action(signal).ok_or(())?;
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
