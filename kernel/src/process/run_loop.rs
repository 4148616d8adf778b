//! The loop around ring 3, on each core.
//!
//! A thread runs until it traps; a system call or a fault is handled and it runs on, or it waits
//! and another thread of its core has the core. The boot core's timer stays armed over calls and
//! faults. The other cores get no interrupt, but where threads share one, and kicks from cores that
//! have changed what they must see.
//!
//! Neighbours: [`super::ranks`] has what a core works for, and what it does between threads.
//!
//! Invariant: between two timer interrupts nothing here looks at clock or network unless the
//! program asks for something that waits.

use alloc::boxed::Box;

use kernel_core::fault::{Access, Cause};
use kernel_core::paging::entry::Protection;
use kernel_core::program::{Faults, Memory};
use kernel_core::signals::Info;
use kernel_core::signals::frame::Fault;
use kernel_core::threads::{Core, Wait};
use netstack::ids::LocalRank;
use netstack::time::{Instant, Micros};

use super::current::Current;
use super::ending::{Ending, Stop};
use super::ranks::{Held, Lock, Shared};
use super::thread::{Again, Pause, Thread};
use super::{Process, ranks};
use crate::arch::cores;
use crate::arch::interrupts::Class;
use crate::arch::trap::PAGE_FAULT;
use crate::arch::user::{self, Trap};
use crate::mm::{Aside, Hardware};
use crate::{arch, monitor, time};

/// A turn of a thread that shares its core with others.
pub(super) const SLICE: Micros = Micros::from_millis(10);

/// What becomes of a thread after a trap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    /// It runs on.
    Run,
    /// Others of its core have their turn first.
    Yield,
    /// It touches memory first, of which so many frames are to be zeroed before.
    Zero(u64),
    /// It waits.
    Wait(Pause),
    /// It has ended.
    Gone,
}

/// Runs a thread until it waits, ends or gives way, or the program ends.
pub(super) fn run_thread<'l, 'a>(
    core: Core,
    rank: LocalRank,
    lock: &'l Lock<'a>,
    mut shared: Held<'l, 'a>,
    mut thread: Box<Thread>,
) -> Held<'l, 'a> {
    // Signals may have come for it since it ran last.
    let again = thread.again.take().unwrap_or(Again::Deliver);
    let mut flow = current(&mut shared, core, rank, &mut thread).resume(again);
    while matches!(flow, Flow::Run | Flow::Zero(_)) && shared.process(rank).ending.is_none() {
        if let Flow::Zero(frames) = flow {
            let aside = Aside::take(frames);
            ranks::release(core, shared);
            aside.iter().for_each(Aside::zero);
            shared = lock.lock();
            if let Some(aside) = aside {
                aside.give_back();
            }
            shared.process(rank).take_posted(&mut thread);
            let again = thread.again.take().expect("where it was stopped");
            flow = current(&mut shared, core, rank, &mut thread).resume(again);
            continue;
        }
        if !shared.is_quiet(core, rank) {
            shared.settle_polled(rank);
            shared.listen_to_network(core, rank);
            let process = shared.process(rank);
            // What that has brought may end the program, or be a signal.
            if process.ending.is_some() {
                break;
            }
            if process.signals.is_due(&thread.signals) {
                flow = current(&mut shared, core, rank, &mut thread).resume(Again::Deliver);
                continue;
            }
        }
        shared.before_ring_3(core, rank);
        ranks::release(core, shared);
        let trap = run_in_ring_3(core, &mut thread);
        let left = arch::tsc();
        shared = lock.lock();
        let process = shared.process(rank);
        thread.user_counts += process.cores.leave(core, left);
        process.take_posted(&mut thread);
        flow = current(&mut shared, core, rank, &mut thread).handle(trap);
    }
    let is_alone = shared.is_alone(rank);
    shared.process(rank).restore(core, thread, flow);
    // What it waits for may have to be asked for first, while the boot core sleeps or computes.
    let waits_for_news = matches!(flow, Flow::Wait(Pause { on: Wait::News, .. }));
    if waits_for_news && !is_alone {
        shared.send_due(core, rank);
    }
    shared
}

/// Has a thread run until something comes that needs the lock.
fn run_in_ring_3(core: Core, thread: &mut Thread) -> Trap {
    cores::enter_user(core);
    let trap = loop {
        let trap = user::run(&mut thread.context);
        if trap != Trap::Syscall || !thread.answers_itself() {
            break trap;
        }
    };
    cores::left_user(core);
    trap
}

/// A thread with its process and its node.
fn current<'a>(
    shared: &'a mut Shared<'_>,
    core: Core,
    rank: LocalRank,
    thread: &'a mut Thread,
) -> Current<'a> {
    let (process, services) = shared.parts(rank);
    Current {
        core,
        process,
        thread,
        services,
    }
}

impl Process {
    /// The thread of a core that runs next, taken out of the table; `None` when all wait.
    pub(super) fn next_thread(&mut self, core: Core) -> Option<Box<Thread>> {
        let tid = self.threads.next(core)?;
        let slot = self.threads.get_mut(tid).expect("a thread that is ready");
        let mut thread = slot.take().expect("a thread that does not run");
        if self.cores.registers_of(core) != Some(tid) || thread.last_core != core {
            thread.load_state();
            self.cores.set_registers_of(core, Some(tid));
        }
        thread.last_core = core;
        self.cores.set_counts(core, thread.counts());
        Some(thread)
    }

    /// Takes a thread back that does not run any more.
    fn restore(&mut self, core: Core, mut thread: Box<Thread>, flow: Flow) {
        let tid = thread.tid;
        thread.shown_counts = thread.shown_counts.max(self.cores.shown(core));
        self.account.take(&mut thread);
        if flow == Flow::Gone {
            self.cores.set_registers_of(core, None);
            self.posted.forget(tid);
            self.futexes.cancel(tid);
            self.threads.remove(tid);
            self.offer_signals();
            return;
        }
        thread.save_state();
        let slot = self.threads.get_mut(tid).expect("the thread's own place");
        *slot = Some(thread);
        match flow {
            // The call has looked for signals where one ends its wait.
            Flow::Wait(Pause { on, until }) => {
                let until = (until != Instant::FAR_FUTURE).then(|| until.as_micros());
                self.threads.wait(tid, on, until);
            }
            Flow::Run | Flow::Zero(_) | Flow::Yield | Flow::Gone => {
                self.threads.ready(tid);
            }
        }
    }

    /// Tells what the program has cost so far.
    pub(super) fn publish(&self) {
        monitor::publish(self.local, self.cost());
    }

    /// What the program has cost so far.
    pub(super) fn cost(&self) -> monitor::Program {
        let memory = self.memory.as_ref();
        monitor::Program {
            user_counts: self.account.user_counts + self.cores.running_counts(arch::tsc()),
            system_calls: self.account.system_calls,
            faults: memory.map_or(Faults::NONE, Memory::faults),
            threads: self.threads.iter().count() as u64,
        }
    }

    /// Where the program's text begins and ends: all its executable segments.
    fn text_range(&self) -> (u64, u64) {
        let segments = self.memory.as_ref().map(|memory| &memory.image().segments);
        let text = segments.into_iter().flatten();
        let text = text.filter(|segment| segment.protection == Protection::ReadExecute);
        let (mut start, mut end) = (u64::MAX, 0);
        for segment in text {
            start = start.min(segment.start);
            end = end.max(segment.file_end);
        }
        if end > start { (start, end) } else { (0, 1) }
    }

    /// Moves the monitoring deadline to the next multiple of its period that lies ahead.
    fn next_monitor(&mut self) {
        let period = self.spec.monitor_period_us;
        let elapsed = time::now().saturating_since(self.clock.started).as_micros();
        if let Some(periods) = elapsed.checked_div(period) {
            let next = netstack::time::Micros((periods + 1) * period);
            self.clock.monitor = Some(self.clock.started + next);
        }
    }
}

impl Current<'_> {
    /// Has a thread go on that was stopped inside the kernel.
    fn resume(&mut self, again: Again) -> Flow {
        match again {
            Again::Trap(trap) => self.handle_trap(trap, true),
            Again::Deliver => self.before_it_runs(),
        }
    }

    /// Handles what a thread has come into the kernel by.
    fn handle(&mut self, trap: Trap) -> Flow {
        self.handle_trap(trap, false)
    }

    fn handle_trap(&mut self, trap: Trap, again: bool) -> Flow {
        let result = match trap {
            Trap::Syscall => self.system_call(again),
            Trap::PageFault { address, code } => self.page_fault(address, code.0, again),
            Trap::Interrupt { class } => self.interrupt(class),
            Trap::Exception { vector, code } => {
                let fault = Fault {
                    vector: vector.into(),
                    code,
                    address: 0,
                };
                self.catch(Ending::killed(Cause::Exception { vector }), fault)
            }
        };
        match result {
            Ok(()) => self.before_it_runs(),
            Err(stop) => self.stopped(stop, Again::Trap(trap)),
        }
    }

    /// What a thread does before it runs on: it enters the handlers of signals.
    fn before_it_runs(&mut self) -> Flow {
        match self.deliver() {
            Ok(()) if core::mem::take(&mut self.thread.yields) => Flow::Yield,
            Ok(()) => Flow::Run,
            Err(stop) => self.stopped(stop, Again::Deliver),
        }
    }

    fn stopped(&mut self, stop: Stop, again: Again) -> Flow {
        match stop {
            Stop::Wait(pause) => {
                self.thread.again = Some(again);
                return Flow::Wait(pause);
            }
            Stop::Zero(frames) => {
                self.thread.again = Some(again);
                return Flow::Zero(frames);
            }
            Stop::Gone => return Flow::Gone,
            Stop::Ending(ending) => {
                if self.process.ending.is_none() {
                    let delivered = self.thread.delivering.map(|delivery| delivery.info);
                    let sent = delivered.unwrap_or(Info::KERNEL);
                    self.process.crashed = Some(self.thread.crashed(sent));
                }
                self.process.end(ending);
            }
            Stop::Errno(_) | Stop::Restart => unreachable!("a call has answered it"),
        }
        Flow::Run
    }

    fn page_fault(&mut self, address: u64, code: u64, again: bool) -> Result<(), Stop> {
        let access = Access::from_error_code(code);
        let is_zeroed = core::mem::take(&mut self.thread.zeroed);
        // It may have come while the thread waited, for the lock or for the page.
        if (again || cores::count() > 1) && self.process.is_there(address, access) {
            return Ok(());
        }
        // Other cores have the lock meanwhile. They may take what was zeroed: then it is zeroed
        // under it.
        if cores::count() > 1 && !is_zeroed {
            let memory = self.process.memory();
            let frames = memory.unzeroed(&mut Hardware::new(), address, access);
            if frames > 0 {
                self.thread.zeroed = true;
                return Err(Stop::Zero(frames));
            }
        }
        match self.process.fault(self.services, address, access) {
            Err(Stop::Ending(ending)) => {
                let fault = Fault {
                    vector: PAGE_FAULT.into(),
                    code,
                    address,
                };
                self.catch(ending, fault)
            }
            other => other,
        }
    }

    fn interrupt(&mut self, class: Class) -> Result<(), Stop> {
        // Who shares the core goes behind the others; who belongs to another core goes there.
        let threads = &self.process.threads;
        let is_elsewhere = threads.place(self.thread.tid) != Some(self.core);
        self.thread.yields = is_elsewhere || threads.runnable(self.core) > 1;
        if self.core != Core::BOOT {
            return Ok(());
        }
        match class {
            Class::Nic | Class::Spurious => return Ok(()),
            Class::Monitor => self.process.next_monitor(),
            Class::Heartbeat | Class::TimeLimit | Class::Cast | Class::Kick => {}
        }
        // The timer has fired and is silent now, or is for another deadline.
        self.process.clock.armed = false;
        if class == Class::Kick {
            return Ok(());
        }
        self.process.account.take(self.thread);
        self.process.publish();
        // Interrupts for other ranks' sake come when the program has traffic: they would make that
        // look like more of its time.
        if matches!(class, Class::Monitor | Class::Heartbeat) {
            monitor::profile::sample(self.thread.context.rip, || self.process.text_range());
        }
        self.poll();
        self.thread.yields |= self.process.threads.runnable(self.core) > 1;
        Ok(())
    }
}
