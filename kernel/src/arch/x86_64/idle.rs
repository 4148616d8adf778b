//! Sleeping and [`absorb`]: the only places where interrupts are on in ring 0.
//!
//! Invariant: the kernel sleeps in HLT until an interrupt or the deadline, never in a loop; the
//! time it sleeps is counted.

use core::sync::atomic::{AtomicU64, Ordering};

use kernel_core::interrupts::Class;
use netstack::time::Micros;
use x86_64::instructions::interrupts;

use super::{timer, tsc};

/// Counts of the time-stamp counter spent in HLT.
static IDLE_COUNTS: AtomicU64 = AtomicU64::new(0);
/// The time-stamp counter when HLT returned last.
static WOKEN: AtomicU64 = AtomicU64::new(0);

/// Sleeps until an interrupt comes, for so long at most. It may return early: the caller looks at
/// what it waits for and at the clock. `time::sleep_until` takes a deadline.
///
/// A device that interrupts between the caller's last look and this call is not missed: the
/// interrupt stays pending until STI, whose one-instruction shadow reaches into HLT.
pub fn sleep(most: Micros) {
    timer::arm(most, Class::Heartbeat);
    let asleep = tsc();
    interrupts::enable_and_hlt();
    interrupts::disable();
    let woken = tsc();
    WOKEN.store(woken, Ordering::Relaxed);
    IDLE_COUNTS.fetch_add(woken.wrapping_sub(asleep), Ordering::Relaxed);
    timer::disarm();
    // The deadline may have passed since the CPU woke for another reason.
    absorb();
}

/// Takes interrupts that came after the last sleep ended. To be called by who has just silenced a
/// device, as [`sleep`] does with the timer, so that what it sent last is not left over for the
/// next program.
pub fn absorb() {
    interrupts::enable();
    // STI holds interrupts off for one more instruction.
    x86_64::instructions::nop();
    interrupts::disable();
}

/// Counts of the time-stamp counter that this core, the boot core, has spent asleep since start.
pub fn counts() -> u64 {
    IDLE_COUNTS.load(Ordering::Relaxed)
}

/// The time-stamp counter when the CPU woke last, 0 when it has not slept yet.
pub fn woken() -> u64 {
    WOKEN.load(Ordering::Relaxed)
}
