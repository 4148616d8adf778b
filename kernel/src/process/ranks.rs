//! The ranks of a job on this node: each a process with cores of its own, from their first
//! instruction to the end of the last.
//!
//! The boot core has the card and the node's deadlines, for all of them: its timer is armed for the
//! next of all ranks' deadlines only ([`Alarm`]), and it stays until the last rank has ended. A
//! rank that ends leaves its cores one by one; the first of them takes what it had apart and
//! reports its end, while the others run on.
//!
//! | item | what it is |
//! |---|---|
//! | [`run`] | runs ranks on all their cores |
//! | [`Shared`] | what a core needs the lock for: ranks, alarm, node |
//! | [`sleep`], [`release`] | giving the lock away, with nothing to do and before ring 3 |
//! | [`Undertaker`] | the node as the core has it that ends a rank |
//!
//! Neighbours: [`super::run_loop`] runs the threads of a rank on one core; `arch::cores` kicks.
//!
//! Invariant: the lock is held in the kernel, and neither in ring 3 nor in a halt; no core uses a
//! rank's page table when the rank's memory is given back.

mod undertaker;

use alloc::boxed::Box;
use alloc::vec::Vec;

use kernel_core::threads::{Core, CoreSet};
use netstack::ids::LocalRank;
use netstack::time::Instant;

use super::ending::scrub_while_waiting;
use super::pager::WAIT_STEP;
use super::run_loop::{SLICE, run_thread};
use super::{Ended, Process};
use crate::arch::cores::{self, BigLock, Guard};
use crate::arch::interrupts::Class;
use crate::process::services::{NodeServices, Ranks};
use crate::time::Moment;
use crate::{arch, mm, time};
use undertaker::Undertaker;

/// What a core that works for a rank needs the lock for.
pub(super) struct Shared<'a> {
    /// By local rank.
    slots: Vec<Slot>,
    alarm: Alarm,
    /// Cores that must look at what has changed.
    called: CoreSet,
    node: &'a mut dyn Ranks,
}

/// One rank.
struct Slot {
    /// `None` while it is taken apart, and when it has been.
    process: Option<Box<Process>>,
    /// The core that takes it apart.
    last: Core,
    /// Cores that have not left it.
    at_work: CoreSet,
    /// That core sleeps for news of the node, until then at most.
    waits: Option<Instant>,
    is_over: bool,
}

/// The boot core's timer and ear, in ring 3 or asleep.
struct Alarm {
    /// Whether the timer is armed for the next of all deadlines, but for those of ranks which have
    /// others since ([`super::Clock::armed`]).
    armed: bool,
    /// The deadline that it is armed for.
    due: Instant,
    /// That is the end of the turn of a thread, or comes before it. Where threads wake each other
    /// in turn it stays so while one of them is alone: at most a tick too many, instead of a timer
    /// set at each wake-up.
    sliced: bool,
    /// Whether the card may interrupt the program.
    listening: bool,
    asleep: bool,
    /// A thread of another core has asked for something since the boot core went to sleep.
    asked: bool,
}

pub(super) type Lock<'a> = BigLock<Shared<'a>>;
pub(super) type Held<'l, 'a> = Guard<'l, Shared<'a>>;

/// Runs ranks on their cores until the last has ended; `ended` is called for each at its end.
pub(super) fn run(processes: Vec<Process>, node: &mut dyn Ranks, ended: &Ended<'_>) {
    let slots = processes.into_iter().map(|mut process| {
        process.begin();
        let at_work = process.threads.cores();
        let last = at_work.iter().next().expect("a process has a core");
        Slot {
            process: Some(Box::new(process)),
            last,
            at_work,
            waits: None,
            is_over: false,
        }
    });
    let slots: Vec<Slot> = slots.collect();
    let place: Vec<CoreSet> = slots.iter().map(|slot| slot.at_work).collect();
    let lock = BigLock::new(Shared {
        slots,
        alarm: Alarm {
            armed: false,
            due: Instant::ZERO,
            sliced: false,
            listening: false,
            asleep: false,
            asked: false,
        },
        called: CoreSet::NONE,
        node,
    });
    let work = |core: Core| {
        let mut ranks = (0..).map(LocalRank).zip(&place);
        if let Some((rank, _)) = ranks.find(|(_, cores)| cores.contains(core)) {
            work(core, rank, &lock, ended);
        }
    };
    cores::scope(&work, || work(Core::BOOT));
}

/// What one core does for its rank, until that ends; the boot core until all have.
fn work(core: Core, rank: LocalRank, lock: &Lock<'_>, ended: &Ended<'_>) {
    let mut shared = lock.lock();
    mm::activate(shared.process(rank).memory().table());
    arch::reset_program_registers();
    if shared.slots[rank.index()].last == core {
        shared.process(rank).account.first = Moment::now();
    }
    while shared.process(rank).ending.is_none() {
        shared = match shared.process(rank).next_thread(core) {
            Some(thread) => run_thread(core, rank, lock, shared, thread),
            None => sleep(core, rank, lock, shared, Instant::FAR_FUTURE),
        };
    }
    // What the program left in the registers is no business of the next.
    arch::reset_program_registers();
    arch::timer::disarm();
    mm::activate_kernel_table();
    shared.leave(core, rank);
    if shared.slots[rank.index()].last == core {
        shared = end(core, rank, lock, shared, ended);
    }
    while core == Core::BOOT && shared.slots.iter().any(|slot| !slot.is_over) {
        shared = sleep(core, rank, lock, shared, Instant::FAR_FUTURE);
    }
    release(core, shared);
}

/// Takes a rank apart when all its cores have left it, and reports its end.
fn end<'l, 'a>(
    core: Core,
    rank: LocalRank,
    lock: &'l Lock<'a>,
    mut shared: Held<'l, 'a>,
    ended: &Ended<'_>,
) -> Held<'l, 'a> {
    while !shared.slots[rank.index()].at_work.is_empty() {
        shared = sleep(core, rank, lock, shared, Instant::FAR_FUTURE);
    }
    if core == Core::BOOT {
        shared.stop_listening(rank);
    }
    let slot = &mut shared.slots[rank.index()];
    let process = slot.process.take().expect("a rank ends once");
    let mut undertaker = Undertaker::new(core, rank, lock, shared);
    let exit = process.finish(&mut undertaker);
    ended(rank, &mut undertaker, exit);
    let mut shared = undertaker.into_held();
    shared.slots[rank.index()].is_over = true;
    shared.called = shared.called.or(CoreSet::only(Core::BOOT));
    shared
}

/// Gives the lock away, and kicks those cores that must see what has changed.
pub(super) fn release(core: Core, mut shared: Held<'_, '_>) {
    if core != Core::BOOT && shared.wants_boot_core() {
        shared.called = shared.called.or(CoreSet::only(Core::BOOT));
        shared.alarm.asked = false;
    }
    let kicks = match cores::count() {
        1 => CoreSet::NONE,
        _ => shared.kicks(core),
    };
    drop(shared);
    kicks.iter().for_each(cores::kick);
}

/// Sleeps until a thread of this core may run, or something else is to be done; until `until` at
/// most.
pub(super) fn sleep<'l, 'a>(
    core: Core,
    rank: LocalRank,
    lock: &'l Lock<'a>,
    mut shared: Held<'l, 'a>,
    until: Instant,
) -> Held<'l, 'a> {
    if core != Core::BOOT {
        shared.set_asleep(core, rank, true);
        release(core, shared);
        cores::sleep();
        let mut shared = lock.lock();
        shared.set_asleep(core, rank, false);
        return shared;
    }
    scrub_while_waiting();
    shared
        .processes()
        .for_each(|(_, process)| process.publish());
    let until = shared.next_due().min(until).min(time::now() + WAIT_STEP);
    if let Some(until) = shared.node.rank(rank).begin_sleep(until) {
        shared.set_asleep(core, rank, true);
        // The timer is the sleeper's.
        shared.set_armed(until);
        release(core, shared);
        time::sleep_until(until);
        shared = lock.lock();
        shared.set_asleep(core, rank, false);
        shared.node.rank(rank).end_sleep();
    } else {
        // Others have the lock in between, however much the network brings.
        release(core, shared);
        shared = lock.lock();
    }
    shared.alarm.armed = false;
    shared.settle();
    shared
}

impl Shared<'_> {
    /// A rank that has not ended.
    pub(super) fn process(&mut self, rank: LocalRank) -> &mut Process {
        let process = self.slots[rank.index()].process.as_mut();
        process.expect("a core works for a rank that has not ended")
    }

    /// A rank that has not ended, and the node as it may use it.
    pub(super) fn parts(&mut self, rank: LocalRank) -> (&mut Process, &mut dyn NodeServices) {
        let process = self.slots[rank.index()].process.as_mut();
        let process = process.expect("a core works for a rank that has not ended");
        (process, self.node.rank(rank))
    }

    /// All ranks that have not ended.
    fn processes(&mut self) -> impl Iterator<Item = (LocalRank, &mut Box<Process>)> {
        let slots = (0..).map(LocalRank).zip(&mut self.slots);
        slots.filter_map(|(rank, slot)| Some((rank, slot.process.as_mut()?)))
    }

    /// Whether this rank alone may have to look at what the network brings, and one thread of it.
    pub(super) fn is_alone(&self, rank: LocalRank) -> bool {
        let process = self.slots[rank.index()].process.as_ref();
        self.slots.len() == 1 && process.is_none_or(|process| process.threads.len() == 1)
    }

    /// Has all ranks take in what has come for them.
    pub(super) fn settle(&mut self) {
        let Self {
            slots,
            node,
            called,
            ..
        } = self;
        for (rank, slot) in (0..).map(LocalRank).zip(slots) {
            if let Some(process) = &mut slot.process {
                process.settle(node.rank(rank));
            }
            if slot.waits.is_some() {
                *called = called.or(CoreSet::only(slot.last));
            }
        }
    }

    /// A call that has looked at the network did so for the sake of a thread of one rank: the
    /// others take in what has come for them.
    pub(super) fn settle_polled(&mut self, present: LocalRank) {
        if self.is_alone(present) {
            // Whoever looked has taken it in.
            self.node.rank(present).take_polled();
            return;
        }
        let Self {
            slots,
            node,
            called,
            ..
        } = self;
        for (rank, slot) in (0..).map(LocalRank).zip(slots) {
            if !node.rank(rank).take_polled() {
                continue;
            }
            if let Some(process) = &mut slot.process {
                process.publish();
                process.settle(node.rank(rank));
            }
            if slot.waits.is_some() {
                *called = called.or(CoreSet::only(slot.last));
            }
        }
    }

    /// A core has left its rank.
    fn leave(&mut self, core: Core, rank: LocalRank) {
        let slot = &mut self.slots[rank.index()];
        slot.at_work = slot.at_work.without(CoreSet::only(core));
        // The others are called as long as there are any.
        self.called = self.called.or(CoreSet::only(slot.last));
    }

    fn set_asleep(&mut self, core: Core, rank: LocalRank, is_asleep: bool) {
        if core == Core::BOOT {
            self.alarm.asleep = is_asleep;
        }
        if let Some(process) = &mut self.slots[rank.index()].process {
            process.cores.set_asleep(core, is_asleep);
        }
    }

    /// The cores to be kicked now, when core `this` gives the lock away.
    fn kicks(&mut self, this: Core) -> CoreSet {
        let mut kicks = core::mem::take(&mut self.called);
        for slot in &mut self.slots {
            let Some(process) = &mut slot.process else {
                continue;
            };
            if process.ending.is_some() {
                kicks = kicks.or(slot.at_work);
            }
            let wanted = process.threads.wanted();
            kicks = kicks.or(process.cores.kicks(this, wanted));
        }
        kicks.without(CoreSet::only(this))
    }

    /// The boot core's timer is armed for this deadline, which no rank has an earlier one than.
    fn set_armed(&mut self, due: Instant) {
        (self.alarm.armed, self.alarm.due) = (true, due);
        self.processes()
            .for_each(|(_, process)| process.clock.armed = true);
    }

    fn is_armed(&mut self) -> bool {
        self.alarm.armed && self.processes().all(|(_, process)| process.clock.armed)
    }

    /// When a rank must be looked after next, if nothing comes before.
    fn next_due(&mut self) -> Instant {
        let due = |slot: &Slot| {
            let process = slot.process.as_ref().map(|process| process.next_due());
            let process = process.unwrap_or(Instant::FAR_FUTURE);
            slot.waits.map_or(process, |until| until.min(process))
        };
        let slots = self.slots.iter().map(due);
        slots.fold(Instant::FAR_FUTURE, Instant::min)
    }

    /// Whether anybody waits for what the network brings.
    fn wait_for_news(&self) -> bool {
        self.slots.iter().any(|slot| {
            let process = slot.process.as_ref();
            slot.waits.is_some() || process.is_some_and(|process| process.threads.wait_for_news())
        })
    }

    /// Whether the boot core, which keeps the deadlines and has the card, must look again: a
    /// deadline is earlier than it knows, or a thread waits for what the network brings.
    fn wants_boot_core(&mut self) -> bool {
        let is_deaf = !self.alarm.asleep && !self.alarm.listening && self.wait_for_news();
        // What was asked for has a time-out, before which it must not sleep on.
        let was_asked = self.alarm.asleep && self.alarm.asked;
        was_asked || is_deaf || !self.is_armed() || self.next_due() < self.alarm.due
    }

    /// Something was asked for that has to be sent first, while the boot core sleeps or computes.
    pub(super) fn send_due(&mut self, core: Core, rank: LocalRank) {
        self.node.rank(rank).send_due();
        self.alarm.asked = core != Core::BOOT;
        if self.slots.len() > 1 {
            // It may have been for another rank of this node.
            self.settle_polled(rank);
        }
    }

    /// Arms the timer for the earliest of the node's and the ranks' deadlines, for the time that
    /// `rank` is in ring 3 on the boot core.
    fn arm(&mut self, rank: LocalRank, is_shared: bool) {
        let own = self.processes().map(|(_, process)| process.own_deadline());
        let own = own.min_by_key(|(deadline, _)| *deadline);
        let services = self.node.rank(rank);
        let tick = services.tick();
        let (mut deadline, mut class) = match own {
            Some((own, class)) if own < tick => (own, class),
            _ => (tick, Class::Heartbeat),
        };
        if let Some(due) = services.monitor_deadline().filter(|due| *due < deadline) {
            (deadline, class) = (due, Class::Monitor);
        }
        if let Some(due) = services.peers_deadline().filter(|due| *due < deadline) {
            (deadline, class) = (due, Class::Cast);
        }
        let sleeper = self.next_due();
        if sleeper < deadline {
            (deadline, class) = (sleeper, Class::TimeLimit);
        }
        let slice = time::now() + SLICE;
        self.alarm.sliced = is_shared;
        if is_shared && slice < deadline {
            (deadline, class) = (slice, Class::TimeLimit);
        }
        time::arm(deadline, class);
        self.set_armed(deadline);
    }

    /// Sets the timer for the time that a thread is in ring 3.
    pub(super) fn before_ring_3(&mut self, core: Core, rank: LocalRank) {
        let process = self.process(rank);
        let is_shared = process.threads.len() > 1 && process.threads.runnable(core) > 1;
        let was_shared = process.cores.set_shared(core, is_shared);
        process.cores.enter(core);
        if core == Core::BOOT {
            if is_shared && !self.alarm.sliced || !self.is_armed() {
                self.arm(rank, is_shared);
            }
        } else if is_shared {
            time::arm(time::now() + SLICE, Class::TimeLimit);
        } else if was_shared {
            arch::timer::disarm();
        }
    }

    /// Whether a thread may run on as it is: nobody has looked at the network since its rank took
    /// in what came, and on the boot core nothing is under way for which the card must be able to
    /// interrupt it, or has been until now.
    pub(super) fn is_quiet(&self, core: Core, rank: LocalRank) -> bool {
        let others_wait = || !self.is_alone(rank) && self.wait_for_news();
        self.node.is_quiet() && (core != Core::BOOT || !self.alarm.listening && !others_wait())
    }

    /// On the boot core: while a broadcast goes on in which this node has a part, a rank has
    /// operations with others under way, or somebody else than the thread that runs next waits for
    /// what the network brings, the card may interrupt that thread, and what waits is taken in
    /// first (ADR 4). Otherwise all is quiet.
    pub(super) fn listen_to_network(&mut self, core: Core, rank: LocalRank) {
        if core != Core::BOOT {
            return;
        }
        let others_wait = !self.is_alone(rank) && self.wait_for_news();
        if self.node.rank(rank).peers_deadline().is_none() && !others_wait {
            self.stop_listening(rank);
            return;
        }
        self.alarm.listening = true;
        // What it brings may change every deadline.
        self.alarm.armed = false;
        let services = self.node.rank(rank);
        if services.listen(true) {
            services.poll();
            // No interrupt comes for a frame that is there already; a flood does not keep the
            // program from running, it is looked at again at the next deadline or frame.
            if services.listen(true) {
                services.poll();
            }
            self.settle();
        }
    }

    fn stop_listening(&mut self, rank: LocalRank) {
        if core::mem::take(&mut self.alarm.listening) {
            self.node.rank(rank).listen(false);
            // What the card sent last is not for the program any more.
            arch::idle::absorb();
            self.alarm.armed = false;
        }
    }
}
