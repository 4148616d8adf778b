//! A thread of a program: its registers, its signals, and how far a call that waits has come.
//!
//! Neighbours: `kernel_core::threads` says which thread of a core runs next, [`super::run_loop`]
//! runs it, [`super::calls`] works for it.
//!
//! Invariant: a thread that does not run has all that it is in here; nothing of it is on a
//! kernel stack.

use alloc::boxed::Box;

use hearth_abi::sysno;
use kernel_core::files::{ChannelId, Held, Shipped};
use kernel_core::signals::{self, Delivery, Info};
use kernel_core::threads::{Core, Tid, Wait};
use netstack::time::Instant;

use super::calls::{Copied, MOVING_MAX, PID, Transfer};
use super::ending::Crashed;
use crate::arch::fpu::{self, FpuState};
use crate::arch::user::{Trap, UserContext};
use crate::monitor;

/// What a thread waits for, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pause {
    /// What wakes it beside its signals.
    pub(super) on: Wait,
    /// When it looks again in any case.
    pub(super) until: Instant,
}

/// Where a thread goes on that was stopped inside the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Again {
    /// With the trap that it came by, from the start.
    Trap(Trap),
    /// With a signal that it enters a handler for.
    Deliver,
}

/// How far a call has come that had to wait: what its next dispatch must know of the first.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Progress {
    /// When its time-out is over.
    pub(super) until: Option<Instant>,
    /// Bytes or entries that are done.
    pub(super) done: u64,
    /// Since when nothing has moved (hearth_wait).
    pub(super) stuck_since: Option<Instant>,
    /// It has looked once (hearth_wait), or is in a queue (futex).
    pub(super) begun: bool,
    /// The pipe or event counter that it waits for.
    pub(super) channel: Option<ChannelId>,
    /// The call whose reply it waits for, and the read or write that is under way, where an I/O
    /// service carries them out.
    pub(super) shipped: Option<u64>,
    pub(super) transfer: Option<Transfer>,
    /// What it closes: the descriptor is gone already.
    pub(super) closing: Option<Shipped>,
    /// The mapping that it fills from a file (mmap).
    pub(super) copied: Option<Copied>,
    /// The description that it began with, whatever becomes of the descriptor (mmap, and write of
    /// a file in the node's memory).
    pub(super) held: Option<Held>,
    /// Descriptions whose positions it moves.
    pub(super) moving: [Option<Held>; MOVING_MAX],
    /// The changes of a file when it began to be synchronised (fsync).
    pub(super) changes: Option<u64>,
}

/// One thread.
pub(super) struct Thread {
    pub(super) tid: Tid,
    pub(super) context: UserContext,
    /// The core that it ran on last.
    pub(super) last_core: Core,
    /// Its floating-point registers while they are not in the processor.
    state: FpuState,
    pub(super) signals: signals::Thread,
    /// A signal that is taken and whose handler it has not entered.
    pub(super) delivering: Option<Delivery>,
    pub(super) again: Option<Again>,
    pub(super) progress: Option<Progress>,
    /// Others of its core have their turn before it runs on.
    pub(super) yields: bool,
    /// What it touches first was zeroed for it.
    pub(super) zeroed: bool,
    /// Where a zero is written and a waiter woken when it ends; 0: nowhere.
    pub(super) clear_tid: u64,
    /// Its list of robust mutexes; 0: none.
    pub(super) robust_list: u64,
    /// System calls that the process's account does not have yet.
    pub(super) calls: u64,
    /// Time-stamp counts in ring 3, and in calls that it answers itself.
    pub(super) user_counts: u64,
    /// Those that the process's account has already.
    pub(super) told_counts: u64,
    /// The most that another thread was told of: its clock does not go back behind that.
    pub(super) shown_counts: u64,
}

impl Thread {
    /// The first thread of a program.
    pub(super) fn first(tid: Tid, context: UserContext) -> Box<Self> {
        Box::new(Self {
            tid,
            context,
            last_core: Core::BOOT,
            state: FpuState::INITIAL,
            signals: signals::Thread::new(0),
            delivering: None,
            again: None,
            progress: None,
            yields: false,
            zeroed: false,
            clear_tid: 0,
            robust_list: 0,
            calls: 0,
            user_counts: 0,
            told_counts: 0,
            shown_counts: 0,
        })
    }

    /// A thread that goes on where this one is, which runs: with its registers, the floating-point
    /// ones too, and its signal mask.
    pub(super) fn split(&self) -> Box<Self> {
        let mut thread = Self::first(self.tid, self.context.clone());
        thread.state = FpuState::of_registers();
        thread.signals = signals::Thread::new(self.signals.mask());
        thread
    }

    /// What is kept of it when it ends its program; `sent` came with the signal that did.
    pub(super) fn crashed(&self, sent: Info) -> Crashed {
        Crashed {
            tid: self.tid,
            registers: self.context.registers(),
            sent,
        }
    }

    /// What its clock of processor time shows, in counts of the time-stamp counter.
    pub(super) fn counts(&self) -> u64 {
        (self.told_counts + self.user_counts).max(self.shown_counts)
    }

    /// The floating-point registers as they were kept last.
    pub(super) const fn state(&self) -> &FpuState {
        &self.state
    }

    /// The same, to be changed: it counts from [`Self::load_state`] on.
    pub(super) const fn state_mut(&mut self) -> &mut FpuState {
        &mut self.state
    }

    /// Keeps the floating-point registers: another thread may use the processor's.
    pub(super) fn save_state(&mut self) {
        fpu::save(&mut self.state);
    }

    /// Puts the floating-point registers into the processor.
    pub(super) fn load_state(&self) {
        fpu::restore(&self.state);
    }

    /// Carries out a call that needs nothing but the thread, as programs make most often; whether
    /// it was one.
    pub(super) fn answers_itself(&mut self) -> bool {
        let number = self.context.rax;
        let answer = match number {
            sysno::GETPID => PID,
            sysno::GETTID => self.tid.number().into(),
            _ => return false,
        };
        self.calls += 1;
        monitor::count_call(number);
        self.context.rax = answer;
        true
    }

    /// What the next dispatch of the call must know of this one.
    pub(super) fn progress(&mut self) -> &mut Progress {
        self.progress.get_or_insert_default()
    }

    /// When the time-out of the call that is dispatched is over: `first` says it at the first
    /// dispatch.
    pub(super) fn deadline(&mut self, first: impl FnOnce() -> Instant) -> Instant {
        *self.progress().until.get_or_insert_with(first)
    }
}
