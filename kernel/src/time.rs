//! The kernel's clock: microseconds since the boot image was entered, from the time-stamp counter.
//!
//! Neighbours: `arch::clock` calibrates the counter; everything that has a deadline uses [`now`].
//!
//! Invariant: [`now`] never goes back. Before [`init`] it is [`Instant::ZERO`].

pub use netstack::time::{Instant, Micros};

use kernel_core::interrupts::Class;
use spin::Once;

use crate::arch::{self, cores};

/// Microseconds = (counter - origin) * scale / 2^32.
struct Clock {
    origin: u64,
    scale: u64,
    /// Microseconds since 1970 at time zero; `None` when the machine has no date.
    unix_origin: Option<u64>,
}

static CLOCK: Once<Clock> = Once::new();

/// Calibrates the clock. `entry_tsc` is the counter when the image was entered: time zero.
pub fn init(entry_tsc: u64) {
    let hz = arch::clock::tsc_hz();
    let scale = ((1_000_000u128 << 32) / u128::from(hz)) as u64;
    let date = arch::rtc::unix_seconds();
    let now = arch::tsc();
    let origin = entry_tsc.min(now);
    let since = scaled(now - origin, scale);
    CLOCK.call_once(|| Clock {
        origin,
        scale,
        unix_origin: date.map(|seconds| seconds * 1_000_000 - since),
    });
}

/// Microseconds since the image was entered.
pub fn now() -> Instant {
    at_tsc(arch::tsc())
}

/// Microseconds since 1970 by the machine's clock at boot, good to a second; since boot on a
/// machine without a date.
pub fn unix_micros() -> u64 {
    let origin = CLOCK.get().and_then(|clock| clock.unix_origin).unwrap_or(0);
    origin + now().as_micros()
}

/// Now, as the times of a file have it: seconds since 1970, and nanoseconds.
pub fn of_files() -> (i64, u32) {
    let micros = unix_micros();
    let nanoseconds = micros % 1_000_000 * 1_000;
    ((micros / 1_000_000) as i64, nanoseconds as u32)
}

/// The instant at which the time-stamp counter was `tsc`.
pub fn at_tsc(tsc: u64) -> Instant {
    let Some(clock) = CLOCK.get() else {
        return Instant::ZERO;
    };
    Instant::from_micros(scaled(tsc.saturating_sub(clock.origin), clock.scale))
}

/// A number of counts as a duration.
pub fn of_counts(counts: u64) -> Micros {
    CLOCK
        .get()
        .map_or(Micros::ZERO, |clock| Micros(scaled(counts, clock.scale)))
}

/// Asks for one interrupt of `class` at `deadline`, in place of the one armed before; one in the
/// past comes at once.
pub fn arm(deadline: Instant, class: Class) {
    arch::timer::arm(deadline.saturating_since(now()), class);
}

/// Sleeps until an interrupt comes, at most until `deadline`; returns at once when that has passed.
/// It may return early: the caller looks at what it waits for and at the clock.
pub fn sleep_until(deadline: Instant) {
    let now = now();
    if now < deadline {
        arch::idle::sleep(deadline.saturating_since(now));
    }
}

/// Time that this core, the boot core, has spent asleep since start.
pub fn slept() -> Micros {
    of_counts(arch::idle::counts())
}

/// Time that a core has spent asleep since start: the mean of all cores.
pub fn mean_slept() -> Micros {
    let others = cores::all().iter().skip(1).map(cores::slept_counts);
    let sum = arch::idle::counts() + others.sum::<u64>();
    of_counts(sum / cores::count() as u64)
}

/// A moment by the time-stamp counter, with what the CPU had slept by then. The counts it was awake
/// between two moments are the instructions it executed where the counter counts instructions
/// (QEMU's `-icount`), however long it waited for others in between.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    counts: u64,
    asleep: u64,
}

impl Moment {
    /// This one.
    pub fn now() -> Self {
        Self {
            counts: arch::tsc(),
            asleep: arch::idle::counts(),
        }
    }

    /// When HLT returned last, unless that was before `earlier`.
    pub fn woken_since(earlier: Self) -> Self {
        Self {
            counts: arch::idle::woken().max(earlier.counts),
            asleep: arch::idle::counts(),
        }
    }

    /// Time since an earlier moment.
    pub fn since(self, earlier: Self) -> Micros {
        of_counts(self.counts.saturating_sub(earlier.counts))
    }

    /// Counts since an earlier moment during which the CPU was awake.
    pub fn awake_since(self, earlier: Self) -> u64 {
        let asleep = self.asleep - earlier.asleep;
        (self.counts.saturating_sub(earlier.counts)).saturating_sub(asleep)
    }
}

fn scaled(counts: u64, scale: u64) -> u64 {
    ((u128::from(counts) * u128::from(scale)) >> 32) as u64
}
