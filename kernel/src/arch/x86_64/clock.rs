//! How fast the time-stamp counter and the APIC timer run.
//!
//! The CPU or the hypervisor says it (CPUID 0x15, hypervisor leaf 0x40000010), else both are
//! measured against the first of HPET, ACPI timer and 8254 that counts. Where none does, the
//! frequency of the data sheet counts (CPUID 0x16): it may be wrong by some parts in a thousand,
//! and a measurement by less than one. A measurement tolerates stalls of the (virtual) CPU: each
//! reading is bracketed by two readings of the counter, the narrowest of several brackets is taken,
//! and what lies between the first and the last reading does not matter.
//!
//! Neighbours: [`super::reference`] has the timers, `kernel_core::clock` what is computed,
//! `kernel::platform` what firmware says.
//!
//! Invariant: every wait here is bounded by counts of the time-stamp counter, whatever their speed,
//! because there is no clock yet.

use kernel_core::acpi::Machine;
use kernel_core::clock::{self, Elapsed};
use raw_cpuid::cpuid;
use spin::Once;

use super::reference::Reference;
use super::{apic, tsc};

/// Length of a measurement: 3 ms where nothing stalls. A bracket of 1 us at both ends is an error
/// of 0.07 %.
const RUN_MICROS: u64 = 3_000;
/// Length of a measurement of the APIC timer against a known counter.
const SHORT_RUN_MICROS: u64 = 500;
/// Brackets tried for each reading.
const BRACKETS: u32 = 5;
/// Runs tried until one is good enough; then the best one counts.
const RUNS: u32 = 4;
/// Runs tried until one was not cut off by a stall, during which the 8254 runs out (55 ms): a host
/// with many virtual CPUs for each of its own stalls each of them as long, many times a second.
/// With every few such runs the next ones become shorter, down to a quarter, to fit between two
/// stalls.
const RUNS_STALLED: u32 = 400;
/// Stalled runs after which runs become shorter.
const STALLED_BEFORE_SHORTER: u32 = 4;
/// Runs in which a timer did not move at all before it is taken for dead.
const RUNS_DEAD: u32 = 2;
/// A run whose brackets are wider than this part of it is repeated.
const GOOD_ENOUGH: u64 = 500;
/// Counts of the time-stamp counter before a run is given up: 80 ms at 6 GHz, half a
/// second at 1 GHz, in any case many times a run.
const PATIENCE_COUNTS: u64 = 500_000_000;

struct Rates {
    /// Counts of the time-stamp counter per second.
    tsc_hz: u64,
    /// APIC timer ticks per microsecond, times 2^32.
    ticks_scale: u64,
}

static RATES: Once<Rates> = Once::new();
static SOURCE: Once<&'static str> = Once::new();

/// One bracketed reading of a timer and the APIC's.
#[derive(Clone, Copy)]
struct Reading {
    reference: u32,
    /// Counter when `reference` was read.
    reference_tsc: u64,
    ticks_left: u32,
    /// Counter when `ticks_left` was read.
    ticks_tsc: u64,
    /// Width of both brackets, in counts.
    slack: u64,
}

/// What one run gave.
struct Run {
    tsc_hz: u64,
    ticks: u64,
    ticks_counts: u64,
    slack: u64,
    length: u64,
}

/// Measures. Panics when there is nothing to measure against: without a clock a node can keep no
/// deadline.
pub fn init(machine: &Machine) {
    apic::start_timer_masked();
    let said = |(hz, source)| {
        let (ticks, counts) = measure_ticks(hz);
        (hz, ticks, counts, source)
    };
    let measured = |(run, source): (Run, _)| {
        debug!(
            "clock",
            "measurement {} counts long, uncertain by {}", run.length, run.slack
        );
        (run.tsc_hz, run.ticks, run.ticks_counts, source)
    };
    let found = said_exactly().map(said);
    let found = found.or_else(|| measure_all(machine).map(measured));
    let found = found.or_else(|| said_by_data_sheet().map(said));
    let (tsc_hz, ticks, counts, source) = found.unwrap_or_else(|| {
        panic!(
            "no clock: the CPU does not say its frequency (CPUID 0x15, 0x16), and none of HPET, \
             ACPI timer and 8254 counts; switch one of them on in the firmware's set-up"
        )
    });
    apic::stop_timer();
    let ticks_hz = u128::from(ticks) * u128::from(tsc_hz) / u128::from(counts);
    let rates = Rates {
        tsc_hz,
        ticks_scale: ((ticks_hz << 32) / 1_000_000) as u64,
    };
    RATES.call_once(|| rates);
    SOURCE.call_once(|| source);
    info!(
        "clock",
        "time-stamp counter {} kHz, APIC timer {} kHz, by {}",
        tsc_hz / 1_000,
        ticks_hz / 1_000,
        self::source()
    );
}

/// Counts of the time-stamp counter per second.
pub fn tsc_hz() -> u64 {
    rates().tsc_hz
}

/// What the rates are known by.
pub fn source() -> &'static str {
    SOURCE.get().expect("clock::init has not run")
}

/// Ticks of the APIC timer in so many microseconds, as many as its counter holds at most.
pub(super) fn timer_ticks(micros: u64) -> u32 {
    let ticks = (u128::from(micros) * u128::from(rates().ticks_scale)) >> 32;
    u32::try_from(ticks).unwrap_or(u32::MAX)
}

fn rates() -> &'static Rates {
    RATES.get().expect("clock::init has not run")
}

/// Frequency of the counter as the CPU (crystal and ratio) or the hypervisor states it.
fn said_exactly() -> Option<(u64, &'static str)> {
    let crystal = || {
        let leaf = (cpuid!(0).eax >= 0x15).then(|| cpuid!(0x15, 0))?;
        clock::by_crystal(leaf.eax, leaf.ebx, leaf.ecx)
    };
    let hypervisor = || {
        let is_there = cpuid!(1).ecx >> 31 & 1 == 1 && cpuid!(0x4000_0000).eax >= 0x4000_0010;
        clock::by_hypervisor(is_there.then(|| cpuid!(0x4000_0010).eax)?)
    };
    crystal()
        .map(|hz| (hz, "CPUID 0x15"))
        .or_else(|| hypervisor().map(|hz| (hz, "hypervisor")))
}

/// Frequency that the counter nominally has.
fn said_by_data_sheet() -> Option<(u64, &'static str)> {
    let leaf = (cpuid!(0).eax >= 0x16).then(|| cpuid!(0x16, 0))?;
    clock::by_base(leaf.eax).map(|hz| (hz, "CPUID 0x16"))
}

/// APIC timer ticks in some counts of a counter that runs at `hz`: (ticks, counts).
fn measure_ticks(hz: u64) -> (u64, u64) {
    let first = bracket(|| (0, apic::timer_ticks_left()));
    let until = first.ticks_tsc + hz * SHORT_RUN_MICROS / 1_000_000;
    while tsc() < until {
        core::hint::spin_loop();
    }
    let last = bracket(|| (0, apic::timer_ticks_left()));
    let ticks = first.ticks_left - last.ticks_left;
    (u64::from(ticks), last.ticks_tsc - first.ticks_tsc)
}

/// Why a run gave nothing.
enum Failure {
    /// The CPU stood still for so long that the timer ran out.
    Stalled,
    /// The timer does not count.
    Dead,
}

/// The timers of a machine, the best one first.
fn timers(machine: &Machine) -> impl Iterator<Item = Reference> {
    let hpet = machine.hpet.and_then(Reference::hpet);
    let pm_timer = machine.pm_timer.map(Reference::pm_timer);
    hpet.into_iter().chain(pm_timer).chain([Reference::Pit])
}

/// Frequencies of the counter by each timer that counts.
#[cfg(feature = "ktest")]
pub fn by_each_timer(machine: &Machine) -> alloc::vec::Vec<(&'static str, u64)> {
    apic::start_timer_masked();
    let measured = timers(machine).filter_map(|timer| {
        let run = measure(&timer)?;
        Some((timer.name(), run.tsc_hz))
    });
    let measured = measured.collect();
    apic::stop_timer();
    measured
}

/// Measures against the first timer that counts.
fn measure_all(machine: &Machine) -> Option<(Run, &'static str)> {
    for reference in timers(machine) {
        match measure(&reference) {
            Some(run) => return Some((run, reference.name())),
            None => warn!("clock", "the {} does not count", reference.name()),
        }
    }
    None
}

/// Measures against one timer; `None` when it does not count.
fn measure(reference: &Reference) -> Option<Run> {
    let mut best: Option<Run> = None;
    let (mut runs, mut stalled, mut dead) = (0, 0, 0);
    while runs < RUNS && stalled < RUNS_STALLED && dead < RUNS_DEAD {
        let shorter = (stalled / STALLED_BEFORE_SHORTER).min(2);
        let run = match measure_once(reference, RUN_MICROS >> shorter) {
            Ok(run) => run,
            Err(Failure::Stalled) => {
                stalled += 1;
                continue;
            }
            Err(Failure::Dead) => {
                dead += 1;
                continue;
            }
        };
        runs += 1;
        let good = run.slack * GOOD_ENOUGH <= run.length;
        // slack / length below that of the best so far.
        if best
            .as_ref()
            .is_none_or(|b| run.slack * b.length < b.slack * run.length)
        {
            best = Some(run);
        }
        if good {
            break;
        }
    }
    reference.stop();
    assert!(
        best.is_some() || dead > 0,
        "the {} could not be read {stalled} times in a row without a stall of 50 ms: give this \
         machine more of its processor",
        reference.name()
    );
    best
}

/// One run of so many microseconds.
fn measure_once(reference: &Reference, micros: u64) -> Result<Run, Failure> {
    let wanted = reference.hz() * micros / 1_000_000;
    let since = |first: u32, last| clock::ticks_between(first, last, reference.bits());
    reference.start();
    let first = read_all(reference);
    loop {
        let ticks = since(first.reference, reference.read());
        if u64::from(ticks) >= wanted {
            break;
        }
        if tsc().wrapping_sub(first.reference_tsc) > PATIENCE_COUNTS {
            return Err(match ticks {
                0 => Failure::Dead,
                _ => Failure::Stalled,
            });
        }
    }
    let last = read_all(reference);
    if reference.ran_out() {
        return Err(Failure::Stalled);
    }
    let length = last.reference_tsc - first.reference_tsc;
    let elapsed = Elapsed {
        counts: length,
        ticks: since(first.reference, last.reference),
    };
    Ok(Run {
        tsc_hz: elapsed.counter_hz(reference.hz()).ok_or(Failure::Stalled)?,
        ticks: u64::from(first.ticks_left - last.ticks_left),
        ticks_counts: last.ticks_tsc - first.ticks_tsc,
        slack: first.slack + last.slack,
        length,
    })
}

fn read_all(reference: &Reference) -> Reading {
    bracket(|| (reference.read(), apic::timer_ticks_left()))
}

/// The narrowest of some bracketed readings.
fn bracket(read: impl Fn() -> (u32, u32)) -> Reading {
    let one = || {
        let before = tsc();
        let (reference, ticks_left) = read();
        let after = tsc();
        Reading {
            reference,
            ticks_left,
            reference_tsc: before,
            ticks_tsc: after,
            slack: after - before,
        }
    };
    let mut best = one();
    for _ in 1..BRACKETS {
        let next = one();
        if next.slack < best.slack {
            best = next;
        }
    }
    best
}
