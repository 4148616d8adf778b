//! What the cores do for a process: which sleep, which share their time, which must look again.
//!
//! Neighbours: [`super::run_loop`] tells what each core does; `arch::cores` kicks.
//!
//! Invariant: a core that must see a change is in the set of [`Cores::kicks`] before the lock is
//! open again.

use alloc::vec;
use alloc::vec::Vec;

use kernel_core::threads::{Core, CoreSet, Tid};

use crate::arch;

/// The cores of a process.
pub(super) struct Cores {
    /// Those that sleep for want of a thread.
    asleep: CoreSet,
    /// Those whose timer ends the turn of their thread for the sake of another.
    shared: CoreSet,
    /// Those that must look at what has changed.
    called: CoreSet,
    /// What each has done, and does now.
    seats: Vec<Seat>,
    /// Changes of a core from a thread to another.
    switches: u64,
}

#[derive(Clone, Copy, Default)]
struct Seat {
    /// Whose floating-point registers it has.
    registers_of: Option<Tid>,
    /// Since when it has been in ring 3, and asleep.
    entered: Option<u64>,
    slept: Option<u64>,
    /// Counts of the time-stamp counter that it was there before.
    user: u64,
    idle: u64,
    /// Signals that wait for the thread that runs there.
    signals: usize,
    /// What the clock of that thread showed when it came, what [`Self::user`] was then, and the
    /// most that the clock has shown since.
    before: u64,
    user_before: u64,
    shown: u64,
}

impl Cores {
    /// So many cores, none of which has done anything.
    pub(super) fn new(count: usize) -> Self {
        Self {
            asleep: CoreSet::NONE,
            shared: CoreSet::NONE,
            called: CoreSet::NONE,
            seats: vec![Seat::default(); count],
            switches: 0,
        }
    }

    /// A core goes to sleep, or is awake again.
    pub(super) fn set_asleep(&mut self, core: Core, is_asleep: bool) {
        self.asleep = with(self.asleep, core, is_asleep);
        let (seat, now) = (&mut self.seats[core.number()], arch::tsc());
        match is_asleep {
            true => seat.slept = Some(now),
            false => seat.idle += since(seat.slept.take(), now),
        }
        // A core that sleeps is woken by kicks alone.
        self.shared = self.shared.without(CoreSet::only(core));
    }

    /// Whether the timer of a core ends turns, as it should from now on; what it did before.
    pub(super) fn set_shared(&mut self, core: Core, is_shared: bool) -> bool {
        let before = self.shared.contains(core);
        self.shared = with(self.shared, core, is_shared);
        before
    }

    /// Has cores look at what has changed.
    pub(super) fn call(&mut self, cores: CoreSet) {
        self.called = self.called.or(cores);
    }

    /// The cores to be kicked now, when core `this` gives the lock away: those that were called,
    /// and those of `wanted`, which have a thread that could run, unless they will see it by
    /// themselves.
    pub(super) fn kicks(&mut self, this: Core, wanted: CoreSet) -> CoreSet {
        let called = core::mem::take(&mut self.called);
        let blind = wanted.without(self.shared);
        self.shared = self.shared.or(wanted.without(self.asleep));
        called.or(blind).without(CoreSet::only(this))
    }

    /// Whose floating-point registers a core has.
    pub(super) fn registers_of(&self, core: Core) -> Option<Tid> {
        self.seats[core.number()].registers_of
    }

    /// A core has the floating-point registers of a thread, or nobody's.
    pub(super) fn set_registers_of(&mut self, core: Core, tid: Option<Tid>) {
        self.seats[core.number()].registers_of = tid;
        self.switches += u64::from(tid.is_some());
    }

    /// How many signals wait for the thread that runs on a core.
    pub(super) fn set_signals(&mut self, core: Core, waiting: usize) {
        self.seats[core.number()].signals = waiting;
    }

    /// See [`Self::set_signals`].
    pub(super) fn signals(&self, core: Core) -> usize {
        self.seats[core.number()].signals
    }

    /// A core enters ring 3 now.
    pub(super) fn enter(&mut self, core: Core) {
        self.seats[core.number()].entered = Some(arch::tsc());
    }

    /// A core left ring 3 at that count of the time-stamp counter; how many it has been there.
    pub(super) fn leave(&mut self, core: Core, now: u64) -> u64 {
        let seat = &mut self.seats[core.number()];
        let counts = since(seat.entered.take(), now);
        seat.user += counts;
        counts
    }

    /// Counts that a core has been in ring 3, and asleep.
    pub(super) fn times(&self, core: Core, now: u64) -> (u64, u64) {
        let seat = &self.seats[core.number()];
        let (user, idle) = (since(seat.entered, now), since(seat.slept, now));
        (seat.user + user, seat.idle + idle)
    }

    /// A thread whose clock shows so many counts runs on a core from now on.
    pub(super) fn set_counts(&mut self, core: Core, counts: u64) {
        let seat = &mut self.seats[core.number()];
        (seat.before, seat.user_before, seat.shown) = (counts, seat.user, 0);
    }

    /// What the clock of the thread that runs on a core shows to another.
    pub(super) fn show(&mut self, core: Core, now: u64) -> u64 {
        let (user, _) = self.times(core, now);
        let seat = &mut self.seats[core.number()];
        let counts = seat.before + user.saturating_sub(seat.user_before);
        seat.shown = seat.shown.max(counts);
        seat.shown
    }

    /// The most that the clock of the thread that runs on a core has shown; 0 where nobody asked.
    pub(super) fn shown(&self, core: Core) -> u64 {
        self.seats[core.number()].shown
    }

    /// How often a core has changed from a thread to another.
    pub(super) fn switches(&self) -> u64 {
        self.switches
    }

    /// Counts that threads have been in ring 3 for which no account has yet.
    pub(super) fn running_counts(&self, now: u64) -> u64 {
        let entered = self.seats.iter().filter_map(|seat| seat.entered);
        entered.map(|at| now.saturating_sub(at)).sum()
    }
}

/// Counts since then, if it has begun.
fn since(begun: Option<u64>, now: u64) -> u64 {
    begun.map_or(0, |begun| now.saturating_sub(begun))
}

fn with(set: CoreSet, core: Core, is_in: bool) -> CoreSet {
    match is_in {
        true => set.or(CoreSet::only(core)),
        false => set.without(CoreSet::only(core)),
    }
}
