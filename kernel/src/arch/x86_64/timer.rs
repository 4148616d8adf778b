//! The one-shot timer: one deadline at a time, no periodic tick.
//!
//! Neighbours: `process` arms it with the class of the earliest deadline before a program runs;
//! [`super::idle`] arms it for the time it sleeps.
//!
//! Each core has one.
//!
//! Invariant: nothing is armed unless somebody asked; after it fired it is silent.

use kernel_core::interrupts::Class;
use kernel_core::threads::CORES_MAX;
use netstack::time::Micros;
use spin::{Mutex, MutexGuard};

use super::{apic, clock, gdt};

/// Class of the deadline that is armed, by core. Nobody looks at another core's.
static ARMED: [Mutex<Option<Class>>; CORES_MAX] = [const { Mutex::new(None) }; CORES_MAX];

fn armed() -> MutexGuard<'static, Option<Class>> {
    ARMED[gdt::this()].lock()
}

/// Asks for one interrupt of `class` after so long, in place of the one armed before. A time longer
/// than the counter reaches (tens of seconds) is cut to that, and whoever gets the interrupt looks
/// at the clock and arms again. `time::arm` takes deadlines.
pub fn arm(after: Micros, class: Class) {
    *armed() = Some(class);
    apic::start_timer(clock::timer_ticks(after.as_micros()));
}

/// Takes the armed deadline back.
pub fn disarm() {
    *armed() = None;
    apic::stop_timer();
}

/// The timer interrupt came: its class, [`Class::Spurious`] when the deadline had been taken back.
pub(super) fn fired() -> Class {
    armed().take().unwrap_or(Class::Spurious)
}
