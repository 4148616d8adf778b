//! The loop around ring 3, on each core.
//!
//! A thread runs until it traps; a system call or a fault is handled and it runs on, or it waits
//! and another thread of its core has the core. The boot core has the card and the node's
//! deadlines: its timer is armed for the next of them only, and stays armed over calls and faults.
//! The other cores get no interrupt, but where threads share one, and kicks from cores that have
//! changed what they must see.
//!
//! Invariant: the lock is held in the kernel, and neither in ring 3 nor in a halt; between two
//! timer interrupts nothing here looks at clock or network unless the program asks for something
//! that waits.

use alloc::boxed::Box;

use kernel_core::fault::{Access, Cause};
use kernel_core::paging::entry::Protection;
use kernel_core::program::{Faults, Memory};
use kernel_core::signals::frame::Fault;
use kernel_core::threads::{Core, CoreSet, Wait};
use netstack::time::{Instant, Micros};

use super::Process;
use super::current::Current;
use super::ending::{Ending, Stop, scrub_while_waiting};
use super::pager::WAIT_STEP;
use super::thread::{Again, Pause, Thread};
use crate::agent::services::NodeServices;
use crate::arch::cores::{self, BigLock, Guard};
use crate::arch::interrupts::Class;
use crate::arch::trap::PAGE_FAULT;
use crate::arch::user::{self, Trap};
use crate::{arch, mm, monitor, time};

/// A turn of a thread that shares its core with others.
pub(super) const SLICE: Micros = Micros::from_millis(10);

/// What becomes of a thread after a trap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    /// It runs on.
    Run,
    /// Others of its core have their turn first.
    Yield,
    /// It waits.
    Wait(Pause),
    /// It has ended.
    Gone,
}

/// What a core that works for a process needs the lock for.
struct Shared<'a> {
    process: &'a mut Process,
    services: &'a mut dyn NodeServices,
}

type Lock<'a> = BigLock<Shared<'a>>;
type Held<'l, 'a> = Guard<'l, Shared<'a>>;

impl Process {
    /// Runs the program on its cores until it ends.
    pub(super) fn turns(&mut self, services: &mut dyn NodeServices) -> Ending {
        let own = self.threads.cores();
        let lock = BigLock::new(Shared {
            process: self,
            services,
        });
        let work = |core: Core| {
            if own.contains(core) {
                work(core, &lock);
            }
        };
        cores::scope(&work, || work(Core::BOOT));
        let ending = lock.lock().process.ending;
        ending.expect("the cores work until the program ends")
    }
}

/// What one core does until the program ends.
fn work(core: Core, lock: &Lock<'_>) {
    let mut shared = lock.lock();
    if core != Core::BOOT {
        mm::activate(shared.process.memory().table());
        arch::reset_program_registers();
    }
    while shared.process.ending.is_none() {
        shared = match shared.process.next_thread(core) {
            Some(thread) => run_thread(core, lock, shared, thread),
            None => sleep(core, lock, shared),
        };
    }
    let all = shared.process.threads.cores();
    shared.process.cores.call(all);
    release(core, shared);
    if core != Core::BOOT {
        // What the program left in the registers is no business of the next.
        arch::reset_program_registers();
        arch::timer::disarm();
        mm::activate_kernel_table();
    }
}

/// Gives the lock away, and kicks those cores that must see what has changed.
fn release(core: Core, mut shared: Held<'_, '_>) {
    let process = &mut *shared.process;
    if core != Core::BOOT && process.wants_boot_core() {
        process.cores.call(CoreSet::only(Core::BOOT));
        process.clock.asked = false;
    }
    let kicks = match cores::count() {
        1 => CoreSet::NONE,
        _ => process.cores.kicks(core, process.threads.wanted()),
    };
    drop(shared);
    kicks.iter().for_each(cores::kick);
}

/// Sleeps until a thread of this core may run, or something else is to be done.
fn sleep<'l, 'a>(core: Core, lock: &'l Lock<'a>, mut shared: Held<'l, 'a>) -> Held<'l, 'a> {
    if core != Core::BOOT {
        shared.process.cores.set_asleep(core, true);
        release(core, shared);
        cores::sleep();
        let mut shared = lock.lock();
        shared.process.cores.set_asleep(core, false);
        return shared;
    }
    let Shared { process, services } = &mut *shared;
    scrub_while_waiting();
    process.publish();
    let until = process.next_due().min(time::now() + WAIT_STEP);
    if let Some(until) = services.begin_sleep(until) {
        process.cores.set_asleep(core, true);
        // The timer is the sleeper's.
        (process.clock.armed, process.clock.due) = (true, until);
        release(core, shared);
        arch::idle::wait(until);
        shared = lock.lock();
        shared.process.cores.set_asleep(core, false);
        shared.services.end_sleep();
    } else {
        // Others have the lock in between, however much the network brings.
        release(core, shared);
        shared = lock.lock();
    }
    let Shared { process, services } = &mut *shared;
    process.clock.armed = false;
    process.settle(*services);
    shared
}

/// Runs a thread until it waits, ends or gives way, or the program ends.
fn run_thread<'l, 'a>(
    core: Core,
    lock: &'l Lock<'a>,
    mut shared: Held<'l, 'a>,
    mut thread: Box<Thread>,
) -> Held<'l, 'a> {
    // Signals may have come for it since it ran last.
    let again = thread.again.take().unwrap_or(Again::Deliver);
    let mut flow = shared.current(core, &mut thread).resume(again);
    while flow == Flow::Run && shared.process.ending.is_none() {
        // A call that has looked at the network did so for its own sake alone.
        if shared.process.threads.len() > 1 && shared.services.take_polled() {
            let Shared { process, services } = &mut *shared;
            process.settle(*services);
        }
        shared.listen_to_network(core);
        // What that has brought may end the program, or be a signal.
        if shared.process.ending.is_some() {
            break;
        }
        if shared.process.signals.is_due(&thread.signals) {
            flow = shared.current(core, &mut thread).resume(Again::Deliver);
            continue;
        }
        shared.before_ring_3(core);
        release(core, shared);
        let trap = run_in_ring_3(core, &mut thread);
        shared = lock.lock();
        let process = &mut *shared.process;
        process.cores.set_entered(core, None);
        process.take_posted(&mut thread);
        flow = shared.current(core, &mut thread).handle(trap);
    }
    shared.process.put_back(core, thread, flow);
    // What it waits for may have to be asked for first, while the boot core sleeps or computes.
    let waits_for_news = matches!(flow, Flow::Wait(Pause { on: Wait::News, .. }));
    if waits_for_news && shared.process.threads.len() > 1 {
        shared.services.send_due();
        shared.process.clock.asked = core != Core::BOOT;
    }
    shared
}

/// Has a thread run until something comes that needs the lock.
fn run_in_ring_3(core: Core, thread: &mut Thread) -> Trap {
    cores::enter_user(core);
    let trap = loop {
        let entered = arch::tsc();
        let trap = user::run(&mut thread.context);
        thread.user_counts += arch::tsc().wrapping_sub(entered);
        if trap != Trap::Syscall || !thread.answers_itself() {
            break trap;
        }
    };
    cores::left_user(core);
    trap
}

impl Shared<'_> {
    /// On the boot core: has the card interrupt a thread in ring 3, or not, as [`Process::attend`]
    /// says.
    fn listen_to_network(&mut self, core: Core) {
        if core == Core::BOOT {
            self.process.attend(self.services);
        }
    }

    /// Sets the timer for the time that a thread is in ring 3.
    fn before_ring_3(&mut self, core: Core) {
        let process = &mut *self.process;
        let is_shared = process.threads.len() > 1 && process.threads.runnable(core) > 1;
        let was_shared = process.cores.set_shared(core, is_shared);
        if core == Core::BOOT {
            if !process.clock.armed || is_shared || was_shared {
                process.arm(self.services, is_shared);
            }
        } else if is_shared {
            arch::timer::arm(time::now() + SLICE, Class::TimeLimit);
        } else if was_shared {
            arch::timer::disarm();
        }
        process.cores.set_entered(core, Some(arch::tsc()));
    }

    fn current<'a>(&'a mut self, core: Core, thread: &'a mut Thread) -> Current<'a> {
        Current {
            core,
            process: self.process,
            thread,
            services: self.services,
        }
    }
}

impl Process {
    /// The thread of a core that runs next, taken out of the table; `None` when all wait.
    fn next_thread(&mut self, core: Core) -> Option<Box<Thread>> {
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
    fn put_back(&mut self, core: Core, mut thread: Box<Thread>, flow: Flow) {
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
            Flow::Run | Flow::Yield | Flow::Gone => {
                self.threads.ready(tid);
            }
        }
    }

    /// Arms the timer for the earliest of the node's and the program's deadlines.
    pub(super) fn arm(&mut self, services: &dyn NodeServices, is_shared: bool) {
        let tick = services.tick();
        let (mut deadline, mut class) = match self.own_deadline() {
            (own, class) if own < tick => (own, class),
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
        if is_shared && slice < deadline {
            (deadline, class) = (slice, Class::TimeLimit);
        }
        arch::timer::arm(deadline, class);
        (self.clock.armed, self.clock.due) = (true, deadline);
    }

    /// While a broadcast goes on in which this node has a part, the program has operations with
    /// other ranks under way, or another thread waits for what the network brings, the card may
    /// interrupt the program, and what waits is taken in first (ADR 4). Otherwise all is quiet.
    fn attend(&mut self, services: &mut dyn NodeServices) {
        let others_wait = self.threads.len() > 1 && self.threads.wait_for_news();
        if services.peers_deadline().is_none() && !others_wait {
            if core::mem::take(&mut self.clock.listening) {
                services.listen(false);
                // What the card sent last is not for the program any more.
                arch::idle::absorb();
                self.clock.armed = false;
            }
            return;
        }
        self.clock.listening = true;
        // What it brings may change every deadline.
        self.clock.armed = false;
        if services.listen(true) {
            services.poll();
            // No interrupt comes for a frame that is there already; a flood does not keep the
            // program from running, it is looked at again at the next deadline or frame.
            if services.listen(true) {
                services.poll();
            }
            self.settle(services);
        }
    }

    /// Whether the boot core, which keeps the deadlines and has the card, must look again: a
    /// deadline is earlier than it knows, or a thread waits for what the network brings.
    fn wants_boot_core(&self) -> bool {
        let is_late = || !self.clock.armed || self.next_due() < self.clock.due;
        let is_awake = !self.cores.is_asleep(Core::BOOT);
        let is_deaf = || is_awake && !self.clock.listening && self.threads.wait_for_news();
        // What was asked for has a time-out, before which it must not sleep on.
        let was_asked = !is_awake && self.clock.asked;
        was_asked || is_late() || is_deaf()
    }

    /// Tells what the program has cost so far.
    pub(super) fn publish(&self) {
        monitor::publish(self.cost());
    }

    /// What the program has cost so far.
    pub(super) fn cost(&self) -> monitor::Program {
        let memory = self.memory.as_ref();
        monitor::Program {
            user_counts: self.account.user_counts + self.cores.running_counts(arch::tsc()),
            system_calls: self.account.system_calls,
            faults: memory.map_or(Faults::NONE, Memory::faults),
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
            Stop::Gone => return Flow::Gone,
            Stop::Ending(ending) => {
                if self.process.ending.is_none() {
                    let registers = self.thread.context.registers();
                    self.process.crashed = Some((self.thread.tid, registers));
                }
                self.process.end(ending);
            }
            Stop::Errno(_) | Stop::Restart => unreachable!("a call has answered it"),
        }
        Flow::Run
    }

    fn page_fault(&mut self, address: u64, code: u64, again: bool) -> Result<(), Stop> {
        let access = Access::from_error_code(code);
        // It may have come while the thread waited.
        if again && self.process.is_there(address, access) {
            return Ok(());
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
