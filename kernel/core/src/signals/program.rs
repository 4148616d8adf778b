//! What all threads of a process have in common: actions, the signals that wait for any of them,
//! the timer. And how a signal finds its thread.

use alloc::vec::Vec;

use super::action::{Action, flag};
use super::info::Info;
use super::queue::{self, Queue, SendError};
use super::set::{self, ABSOLUTE, IGNORED_BY_DEFAULT, SIGNAL_MAX};
use super::thread::Thread;
use super::timers::{Expiry, Timers};
use hearth_abi::linux::Signal;

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

/// The signals of a process. Each `thread` that is given to it is one of the process.
#[derive(Clone, Debug)]
pub struct Program {
    /// By number less one; none before the program sets the first, as most programs never do.
    actions: Vec<Action>,
    /// Signals that are ignored, by action or by default.
    ignored: u64,
    pub(super) waiting: Queue,
    /// What sends signals when its time is over.
    pub timers: Timers,
}

impl Program {
    /// All actions are the default, nothing waits.
    pub const fn new() -> Self {
        Self {
            actions: Vec::new(),
            ignored: IGNORED_BY_DEFAULT,
            waiting: Queue::new(),
            timers: Timers::new(),
        }
    }

    /// The action of a signal; `None` when there is no such signal.
    pub fn action(&self, signal: u64) -> Option<Action> {
        let index = signal.checked_sub(1).filter(|&index| index < SIGNAL_MAX)?;
        let set = self.actions.get(index as usize).copied();
        Some(set.unwrap_or_default())
    }

    /// Sets the action of a signal; `false` when it has none that can be set. A signal that waits,
    /// for the process or one of `threads`, all that it has, and is ignored from now on is gone.
    pub fn set_action<'a>(
        &mut self,
        signal: u64,
        action: Action,
        threads: impl IntoIterator<Item = &'a mut Thread>,
    ) -> bool {
        if !(1..=SIGNAL_MAX).contains(&signal) || ABSOLUTE >> (signal - 1) & 1 == 1 {
            return false;
        }
        self.put_action(signal, action);
        let gone = self.ignored & 1 << (signal - 1);
        self.waiting.discard(gone);
        for thread in threads {
            thread.waiting.discard(gone);
        }
        true
    }

    /// Sets the mask of a thread; SIGKILL and SIGSTOP cannot be blocked. Of the signals that wait
    /// for the process ([`Self::waiting`]) those that it blocks now may be for another thread.
    pub fn set_mask(&mut self, thread: &mut Thread, mask: u64) {
        thread.mask = mask & !ABSOLUTE;
        // What is blocked waits even if it is ignored; then it is gone.
        let gone = self.ignored & !thread.mask;
        thread.waiting.discard(gone);
        self.waiting.discard(gone);
    }

    /// Sets the mask of a thread for the time of a call; again and again where the call begins
    /// again. The handler that ends the call returns to the mask before it; so does
    /// [`Self::restore_mask`].
    pub fn set_mask_for_call(&mut self, thread: &mut Thread, mask: u64) {
        thread.kept_mask.get_or_insert(thread.mask);
        self.set_mask(thread, mask);
    }

    /// Goes back to the mask before a call, unless a handler will.
    pub fn restore_mask(&mut self, thread: &mut Thread) {
        if thread.kept_mask.is_some()
            && !self.is_due(thread)
            && let Some(mask) = thread.kept_mask.take()
        {
            self.set_mask(thread, mask);
        }
    }

    /// Sends a signal to the process (kill, timers), for any thread that does not block it;
    /// `threads` are all that it has. Number 0 only asks whether it could be done.
    ///
    /// A thread for which [`Self::would_take`] is true then is to be woken. Where all threads run
    /// nobody knows here whether one blocks a signal that is ignored: it waits until one comes
    /// ([`Self::drop_ignored`]).
    pub fn send<'a>(
        &mut self,
        signal: u64,
        info: Info,
        threads: impl IntoIterator<Item = &'a Thread>,
    ) -> Result<(), SendError> {
        let Some(set) = queue::set_of(signal)? else {
            return Ok(());
        };
        let is_blocked = |thread: &Thread| thread.mask & set != 0;
        if self.ignored & set != 0 && !threads.into_iter().all(is_blocked) {
            return Ok(());
        }
        self.waiting.push(set, info)
    }

    /// Whether the signal of a timer's last expiry still waits for the process: then it stands for
    /// this one, too.
    pub fn stands_for(&mut self, expiry: &Expiry) -> bool {
        let more = expiry.missed.saturating_add(1);
        let before = self.waiting.add_overrun(expiry.signal, expiry.id, more);
        if let Some(before) = before {
            self.timers.overran(expiry.id, before, more);
        }
        before.is_some()
    }

    /// Drops what waits for the process and is ignored, for the sake of a thread that does not
    /// block it: each that comes into the kernel.
    #[inline]
    pub fn drop_ignored(&mut self, thread: &Thread) {
        let gone = self.ignored & !thread.mask;
        if self.waiting.set() & gone != 0 {
            self.waiting.discard(gone);
        }
    }

    /// Sends a signal to a thread (tkill, tgkill). Number 0 only asks whether it could be done.
    pub fn send_to(&self, thread: &mut Thread, signal: u64, info: Info) -> Result<(), SendError> {
        let Some(set) = queue::set_of(signal)? else {
            return Ok(());
        };
        if self.ignored & !thread.mask & set != 0 {
            return Ok(());
        }
        thread.waiting.push(set, info)
    }

    /// Whether a thread would take a signal that is sent to the process: it does not block it, or
    /// waits for it just now.
    pub fn would_take(&self, thread: &Thread, signal: u64) -> bool {
        let takes = !thread.mask & !self.ignored | thread.awaited;
        matches!(queue::set_of(signal), Ok(Some(set)) if takes & set != 0)
    }

    /// Whether a signal ends the program when a thread takes it.
    pub fn ends_by(&self, signal: u64) -> bool {
        let action = self.action(signal);
        let is_ignored = matches!(queue::set_of(signal), Ok(Some(set)) if self.ignored & set != 0);
        !is_ignored && action.is_some_and(|action| action.is_default())
    }

    /// Whether a signal is to be delivered to a thread now.
    #[inline]
    pub const fn is_due(&self, thread: &Thread) -> bool {
        (self.waiting.set() | thread.waiting.set()) & self.deliverable(thread) != 0
    }

    /// Whether a call that is interrupted by the signal that is delivered next begins again.
    pub fn restarts(&self, thread: &Thread) -> bool {
        let among = self.deliverable(thread);
        let own = set::first(thread.waiting.set() & among);
        let next = own.or(set::first(self.waiting.set() & among));
        let action = next.and_then(|signal| self.action(signal.into()));
        action.is_some_and(|action| action.is_handler() && action.has(flag::RESTART))
    }

    /// Signals that wait for the process.
    pub const fn waiting(&self) -> u64 {
        self.waiting.set()
    }

    /// Signals that wait because a thread blocks them, for it or for the process (sigpending).
    pub const fn blocked(&self, thread: &Thread) -> u64 {
        (self.waiting.set() | thread.waiting.set()) & thread.mask
    }

    /// Takes the signal to deliver to a thread now: its own first, then the process's; of either
    /// what faults raise first, then the lowest number. Where there is none the mask of a call
    /// ends, too, if there is one.
    pub fn next_for(&mut self, thread: &mut Thread) -> Option<Delivery> {
        loop {
            if let Some((signal, info)) = self.take(thread, self.deliverable(thread)) {
                let action = self.action(signal.into())?;
                return Some(Delivery {
                    signal,
                    info,
                    action,
                });
            }
            // Another thread was faster. What waited behind the call's mask may be due now.
            let mask = thread.kept_mask.take()?;
            self.set_mask(thread, mask);
        }
    }

    /// Takes a signal of a set that waits, blocked or not (sigtimedwait). Where there is none the
    /// thread is one that waits for them, until it finds one here, [`Thread::stop_awaiting`] or
    /// [`Self::enter`].
    pub fn take_of(&mut self, thread: &mut Thread, set: u64) -> Option<(u8, Info)> {
        let set = set & !ABSOLUTE;
        let taken = self.take(thread, set);
        thread.awaited = if taken.is_some() { 0 } else { set };
        taken
    }

    /// The handler of a signal that a fault of a thread raises; `None` where it ends the program:
    /// without one, or when it is blocked.
    pub fn handler_of_fault(&self, thread: &Thread, signal: Signal) -> Option<Action> {
        let action = self.action(signal.number().into())?;
        (action.is_handler() && thread.mask & set::bit(signal) == 0).then_some(action)
    }

    /// The handler of a signal runs in a thread from now on.
    pub fn enter(&mut self, thread: &mut Thread, signal: u8, action: &Action) {
        let own = match action.has(flag::NODEFER) {
            true => 0,
            false => 1 << (signal - 1),
        };
        if action.has(flag::RESETHAND) {
            let once = Action {
                handler: Action::default().handler,
                ..*action
            };
            self.put_action(signal.into(), once);
        }
        thread.kept_mask = None;
        thread.awaited = 0;
        thread.stack = thread.stack.in_handler();
        self.set_mask(thread, thread.mask | action.mask | own);
    }

    /// What is delivered to a thread when it waits.
    const fn deliverable(&self, thread: &Thread) -> u64 {
        !thread.mask & !self.ignored
    }

    fn take(&mut self, thread: &mut Thread, among: u64) -> Option<(u8, Info)> {
        let own = thread.waiting.take(among);
        own.or_else(|| self.waiting.take(among))
    }

    fn put_action(&mut self, signal: u64, action: Action) {
        let bit = 1 << (signal - 1);
        let is_ignored = match action {
            _ if action.is_default() => IGNORED_BY_DEFAULT & bit != 0,
            _ => action.is_ignore(),
        };
        self.ignored = self.ignored & !bit | if is_ignored { bit } else { 0 };
        self.actions.resize(SIGNAL_MAX as usize, Action::default());
        self.actions[signal as usize - 1] = action;
    }
}

impl Default for Program {
    fn default() -> Self {
        Self::new()
    }
}
