//! The other cores: how they start, how work gets to all of them, and what they must forget.
//!
//! | item | what it is |
//! |---|---|
//! | [`start_one`], [`serve`] | starts a core, bounded in time; what it does then |
//! | [`scope`] | runs a function on all cores, and ends with the last of them |
//! | [`BigLock`] | the lock under which a core does the kernel's work |
//! | [`kick`] | has a core come out of ring 3 or of its sleep |
//! | [`enter_user`], [`left_user`], [`shoot_down`] | translations that no core may use any more |
//!
//! Neighbours: `smp` starts those that firmware lists; `process::turn` runs programs on all cores;
//! `kernel_core::threads` numbers them.
//!
//! Invariant: a core that waits for another does so for a bounded time, and the end of that is a
//! panic which names the core. What a core does in ring 0 needs the big lock, but for its own
//! registers, its own part of the arrays of `arch`, atomics, and the counting of interrupts.

mod lock;
mod trampoline;

use core::hint::spin_loop;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use kernel_core::phys::PhysMem;
use kernel_core::threads::{CORES_MAX, Core, CoreSet};
pub use lock::{BigLock, Guard};
use spin::Mutex;
pub use trampoline::Trampoline;
use x86_64::instructions::interrupts;

use super::apic::{self, Message};
use super::interrupts::KICK_VECTOR;
use super::{clock, cpu, fpu, gdt, machine_check, tlb, trap, tsc, user};

/// How long a core may take from its start message to its first sign.
const ARRIVES_WITHIN_US: u64 = 1_000_000;
/// Between the reset of a core and its start (Intel SDM volume 3A, 10.4.4.1).
const RESET_US: u64 = 10_000;
/// Between the first start message and the second.
const SECOND_START_US: u64 = 300;
/// How long a core may take to leave ring 3 once it was kicked, or to end its work: far longer than
/// a loaded host takes a virtual core away for.
const LEAVES_WITHIN_US: u64 = 30_000_000;

/// What a core says of itself.
struct Slot {
    apic_id: AtomicU32,
    /// It has arrived, and the time-stamp counter when it did.
    arrived: AtomicBool,
    counter: AtomicU64,
    /// It may use translations of the program.
    in_user: AtomicBool,
    /// The generation of translations that it has seen.
    seen: AtomicU64,
    /// The work that it has done, by number.
    done: AtomicU64,
    sleep: Mutex<Sleep>,
}

/// How long a core has slept, in counts of the time-stamp counter.
struct Sleep {
    /// Sleeps that are over.
    counts: u64,
    /// When the present one began.
    since: Option<u64>,
}

static SLOTS: [Slot; CORES_MAX] = [const {
    Slot {
        apic_id: AtomicU32::new(0),
        arrived: AtomicBool::new(false),
        counter: AtomicU64::new(0),
        in_user: AtomicBool::new(false),
        seen: AtomicU64::new(0),
        done: AtomicU64::new(0),
        sleep: Mutex::new(Sleep {
            counts: 0,
            since: None,
        }),
    }
}; CORES_MAX];

/// Cores that work.
static COUNT: AtomicUsize = AtomicUsize::new(1);
/// Rises whenever a translation of the program is taken away.
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// A function for all cores.
type Work<'a> = dyn Fn(Core) + Sync + 'a;

/// What all other cores do now, and its number; 0 is none.
struct Job {
    number: u64,
    work: Option<&'static Work<'static>>,
}

static JOB: Mutex<Job> = Mutex::new(Job {
    number: 0,
    work: None,
});
/// The number in [`JOB`], for those that wait for the next.
static JOB_NUMBER: AtomicU64 = AtomicU64::new(0);

/// How many cores there are, the boot core among them.
pub fn count() -> usize {
    COUNT.load(Ordering::Relaxed)
}

/// All of them.
pub fn all() -> CoreSet {
    CoreSet::first(count())
}

/// How the start of a core ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Started {
    /// It works.
    Works,
    /// It has given no sign of itself. It may come late, and halts then: the page and its tables
    /// stay, its number and its stack are free.
    Silent,
    /// It has come, and cannot be used: its number and its stack stay with it.
    Unusable,
}

/// Starts the next core, whose APIC has this id, on a stack with this end; `arrive` is called there
/// with its number, and ends in [`serve`].
pub fn start_one<M: PhysMem>(
    trampoline: &mut Trampoline<M>,
    id: u32,
    stack: u64,
    arrive: extern "C" fn(usize) -> !,
) -> Started {
    let core = count();
    let slot = &SLOTS[core];
    SLOTS[0].apic_id.store(apic::this_id(), Ordering::Relaxed);
    slot.apic_id.store(id, Ordering::Relaxed);
    trampoline.aim(id, stack, arrive, core);
    let before = tsc();
    apic::send_to(id, Message::Init);
    pause(RESET_US);
    apic::send_to(id, Message::Start(trampoline.number()));
    let is_here = || slot.arrived.load(Ordering::Acquire);
    if !wait_until(SECOND_START_US, is_here) {
        apic::send_to(id, Message::Start(trampoline.number()));
    }
    if !wait_until(ARRIVES_WITHIN_US, is_here) {
        if trampoline.withdraw() {
            warn!(
                "cpu",
                "the core with APIC id {id} does not answer: left out"
            );
            return Started::Silent;
        }
        // It is on its way.
        if !wait_until(LEAVES_WITHIN_US, is_here) {
            warn!(
                "cpu",
                "the core with APIC id {id} does not get through its start: left out, and those \
                 behind it"
            );
            return Started::Unusable;
        }
    }
    let (counter, now) = (slot.counter.load(Ordering::Relaxed), tsc());
    if !(before..=now).contains(&counter) {
        warn!(
            "cpu",
            "the time-stamp counter of the core with APIC id {id} is not the boot core's: left out, \
             and those behind it"
        );
        return Started::Unusable;
    }
    COUNT.store(core + 1, Ordering::Relaxed);
    Started::Works
}

/// What a core does for good once it has the kernel's page tables: the work of [`scope`], and
/// `after` it each time. `counter` is its time-stamp counter from when it arrived.
pub fn serve(core: usize, counter: u64, after: fn()) -> ! {
    gdt::load(core);
    trap::load();
    cpu::init();
    fpu::switch_on();
    user::init();
    apic::init_other();
    machine_check::init();
    let slot = &SLOTS[core];
    slot.counter.store(counter, Ordering::Relaxed);
    slot.done
        .store(JOB_NUMBER.load(Ordering::Acquire), Ordering::Relaxed);
    slot.arrived.store(true, Ordering::Release);
    let this = Core::new(core).expect("a core of this machine");
    loop {
        let number = JOB_NUMBER.load(Ordering::Acquire);
        if number == slot.done.load(Ordering::Relaxed) {
            sleep();
            continue;
        }
        let work = JOB.lock().work;
        if let Some(work) = work {
            work(this);
            after();
        }
        slot.done.store(number, Ordering::Release);
    }
}

/// Has all cores do `work`, this one `main`, and returns when all have done theirs. What makes the
/// others end is in `main`'s hands, and must come before it returns.
pub fn scope<R>(work: &Work<'_>, main: impl FnOnce() -> R) -> R {
    if count() == 1 {
        return main();
    }
    // SAFETY: the other cores use it only until they have said that it is done, which is waited
    // for below; a panic in `main` stops all cores.
    let work = unsafe { core::mem::transmute::<&Work<'_>, &'static Work<'static>>(work) };
    let number = {
        let mut job = JOB.lock();
        job.number += 1;
        job.work = Some(work);
        job.number
    };
    JOB_NUMBER.store(number, Ordering::Release);
    let others = || all().iter().skip(1);
    others().for_each(kick);
    let result = main();
    for core in others() {
        let is_done = || SLOTS[core.number()].done.load(Ordering::Acquire) == number;
        kick(core);
        assert!(
            wait_until(LEAVES_WITHIN_US, is_done),
            "core {} does not leave the program",
            core.number()
        );
    }
    JOB.lock().work = None;
    result
}

/// Sleeps until an interrupt comes. One that came since interrupts were switched off is not missed.
/// For cores other than the boot core, which sleeps by `arch::idle`.
pub fn sleep() {
    let sleep = &SLOTS[gdt::this()].sleep;
    sleep.lock().since = Some(tsc());
    interrupts::enable_and_hlt();
    interrupts::disable();
    let mut sleep = sleep.lock();
    sleep.counts = sleep.counts_at(tsc());
    sleep.since = None;
}

/// How long a core other than the boot core has slept since it started, in counts of the time-stamp
/// counter.
pub fn slept_counts(core: Core) -> u64 {
    let sleep = SLOTS[core.number()].sleep.lock();
    sleep.counts_at(tsc())
}

impl Sleep {
    fn counts_at(&self, now: u64) -> u64 {
        let present = self.since.map_or(0, |since| now.saturating_sub(since));
        self.counts + present
    }
}

/// Has a core come into the kernel, out of ring 3 or of its sleep.
pub fn kick(core: Core) {
    let id = SLOTS[core.number()].apic_id.load(Ordering::Relaxed);
    apic::send_to(id, Message::Interrupt(KICK_VECTOR));
}

/// This core, which is `core`, enters ring 3. It forgets what it remembers of the program if
/// translations were taken away since it was there last.
#[inline]
pub fn enter_user(core: Core) {
    if count() == 1 {
        return;
    }
    let slot = &SLOTS[core.number()];
    slot.in_user.store(true, Ordering::SeqCst);
    let generation = GENERATION.load(Ordering::SeqCst);
    if slot.seen.load(Ordering::Relaxed) != generation {
        tlb::flush_all();
        slot.seen.store(generation, Ordering::Relaxed);
    }
}

/// This core, which is `core`, has left ring 3.
#[inline]
pub fn left_user(core: Core) {
    SLOTS[core.number()].in_user.store(false, Ordering::Release);
}

/// Has the other cores forget the translations of the program: those that are in ring 3 leave it
/// before this returns, and none enters it again with what it remembers. The caller has changed the
/// entries, and has this core forget them itself.
pub fn shoot_down() {
    if count() == 1 {
        return;
    }
    let before = GENERATION.fetch_add(1, Ordering::SeqCst);
    let this = gdt::this();
    let seen = &SLOTS[this].seen;
    if seen.load(Ordering::Relaxed) == before {
        seen.store(before + 1, Ordering::Relaxed);
    }
    let in_user = |core: &Core| SLOTS[core.number()].in_user.load(Ordering::SeqCst);
    let others = || all().iter().filter(|core| core.number() != this);
    // Kicked first and waited for then: they leave at the same time.
    for core in others().filter(in_user) {
        kick(core);
    }
    for core in others() {
        assert!(
            wait_until(LEAVES_WITHIN_US, || !in_user(&core)),
            "core {} does not forget the program's translations",
            core.number()
        );
    }
}

/// Stops all other cores where they are, for good: for the panic handler.
pub fn stop_others() {
    trap::stop_at_nmi();
    let this = gdt::this();
    for core in all().iter().filter(|core| core.number() != this) {
        let id = SLOTS[core.number()].apic_id.load(Ordering::Relaxed);
        apic::send_to(id, Message::Nmi);
    }
}

fn pause(micros: u64) {
    wait_until(micros, || false);
}

/// Looks until something holds, so many microseconds at most; whether it does.
fn wait_until(micros: u64, holds: impl Fn() -> bool) -> bool {
    let end = tsc() + clock::tsc_hz() / 1_000_000 * micros;
    loop {
        if holds() {
            return true;
        }
        if tsc() >= end {
            return holds();
        }
        spin_loop();
    }
}
