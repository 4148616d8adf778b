//! What a thread has of its own: its mask, the signals that wait for it alone, where its handlers
//! run.

use super::queue::Queue;
use super::stack::AltStack;

/// The signals of one thread. What concerns its process as well is done by
/// [`Program`](super::Program).
#[derive(Clone, Debug)]
pub struct Thread {
    /// Signals that are blocked.
    pub(super) mask: u64,
    /// The mask to go back to, while a call has one of its own (sigsuspend, pselect).
    pub(super) kept_mask: Option<u64>,
    /// Signals that it takes without a handler, while it waits for them (sigtimedwait).
    pub(super) awaited: u64,
    pub(super) waiting: Queue,
    /// Where handlers run that want it.
    pub stack: AltStack,
}

impl Thread {
    /// A new thread, with the mask of the one that made it: nothing waits for it.
    pub const fn new(mask: u64) -> Self {
        Self {
            mask,
            kept_mask: None,
            awaited: 0,
            waiting: Queue::new(),
            stack: AltStack::NONE,
        }
    }

    /// Blocked signals: bit n - 1 is signal n.
    pub const fn mask(&self) -> u64 {
        self.mask
    }

    /// The mask to which the next handler returns.
    pub fn mask_behind(&self) -> u64 {
        self.kept_mask.unwrap_or(self.mask)
    }

    /// How many signals wait for it alone.
    pub const fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// It does not wait for a signal any more: the end of each sigtimedwait, whatever it answers.
    pub const fn stop_awaiting(&mut self) {
        self.awaited = 0;
    }
}
