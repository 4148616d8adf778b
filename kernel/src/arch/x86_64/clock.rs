//! How fast the time-stamp counter and the APIC timer run.
//!
//! The CPU or the hypervisor says it (CPUID 0x15, hypervisor leaf 0x40000010), else both are
//! measured against channel 2 of the 8254 timer. A measurement tolerates stalls of the (virtual)
//! CPU: each reading is bracketed by two readings of the counter, the narrowest of several
//! brackets is taken, and what lies between the first and the last reading does not matter.
//!
//! Invariant: every wait here is bounded by counts of the time-stamp counter, whatever their speed,
//! because there is no clock yet.

use raw_cpuid::cpuid;
use spin::Once;
use x86_64::instructions::port::Port;

use super::{apic, tsc};

const PIT_HZ: u64 = 1_193_182;
const PIT_CHANNEL_2: u16 = 0x42;
const PIT_COMMAND: u16 = 0x43;
const CONTROL_B: u16 = 0x61;
const GATE_2: u8 = 1 << 0;
const SPEAKER: u8 = 1 << 1;
const OUT_2: u8 = 1 << 5;

/// Length of a measurement: 3 ms where nothing stalls. A bracket of 1 us at both ends is an error of 0.07 %.
const RUN_PIT_TICKS: u16 = (PIT_HZ * 3 / 1_000) as u16;
/// Length of a measurement of the APIC timer against a known counter.
const SHORT_RUN_MICROS: u64 = 500;
/// Brackets tried for each reading.
const BRACKETS: u32 = 5;
/// Runs tried until one is good enough; then the best one counts.
const RUNS: u32 = 4;
/// Runs tried until one was not cut off by a stall, during which the 8254 runs out (55 ms): a host
/// with many virtual CPUs for each of its own stalls each of them as long, many times a second. With
/// every few such runs the next ones become shorter, down to a quarter, to fit between two stalls.
const RUNS_STALLED: u32 = 400;
/// Stalled runs after which runs become shorter.
const STALLED_BEFORE_SHORTER: u32 = 4;
/// Runs in which the 8254 did not move at all before it is taken for dead.
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

/// One bracketed reading of all three.
#[derive(Clone, Copy)]
struct Reading {
    pit: u16,
    /// Counter when `pit` was latched.
    pit_tsc: u64,
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
pub fn init() {
    apic::start_timer_masked();
    let (tsc_hz, ticks, counts, source) = match said_by_cpu() {
        Some((hz, source)) => {
            let (ticks, counts) = measure_ticks(hz);
            (hz, ticks, counts, source)
        }
        None => {
            let run = measure_all();
            debug!(
                "clock",
                "measurement {} counts long, uncertain by {}", run.length, run.slack
            );
            (run.tsc_hz, run.ticks, run.ticks_counts, "8254 timer")
        }
    };
    apic::stop_timer();
    let ticks_hz = u128::from(ticks) * u128::from(tsc_hz) / u128::from(counts);
    let rates = Rates {
        tsc_hz,
        ticks_scale: ((ticks_hz << 32) / 1_000_000) as u64,
    };
    debug!(
        "clock",
        "time-stamp counter {} kHz, APIC timer {} kHz, by {source}",
        tsc_hz / 1_000,
        ticks_hz / 1_000
    );
    RATES.call_once(|| rates);
}

/// Counts of the time-stamp counter per second.
pub fn tsc_hz() -> u64 {
    rates().tsc_hz
}

/// Ticks of the APIC timer in so many microseconds, as many as its counter holds at most.
pub(super) fn timer_ticks(micros: u64) -> u32 {
    let ticks = (u128::from(micros) * u128::from(rates().ticks_scale)) >> 32;
    u32::try_from(ticks).unwrap_or(u32::MAX)
}

fn rates() -> &'static Rates {
    RATES.get().expect("clock::init has not run")
}

/// Frequency of the counter as the CPU (crystal and ratio) or the hypervisor (kHz) states it.
fn said_by_cpu() -> Option<(u64, &'static str)> {
    if cpuid!(0).eax >= 0x15 {
        let ratio = cpuid!(0x15, 0);
        if ratio.eax != 0 && ratio.ebx != 0 && ratio.ecx != 0 {
            let hz = u64::from(ratio.ecx) * u64::from(ratio.ebx) / u64::from(ratio.eax);
            return Some((hz, "CPUID 0x15"));
        }
    }
    let in_hypervisor = cpuid!(1).ecx >> 31 & 1 == 1;
    if in_hypervisor && cpuid!(0x4000_0000).eax >= 0x4000_0010 {
        let khz = cpuid!(0x4000_0010).eax;
        if khz != 0 {
            return Some((u64::from(khz) * 1_000, "hypervisor"));
        }
    }
    None
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

fn measure_all() -> Run {
    let mut best: Option<Run> = None;
    let (mut runs, mut stalled, mut dead) = (0, 0, 0);
    while runs < RUNS && stalled < RUNS_STALLED && dead < RUNS_DEAD {
        let shorter = (stalled / STALLED_BEFORE_SHORTER).min(2);
        let run = match measure_once(RUN_PIT_TICKS >> shorter) {
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
    match best {
        Some(run) => run,
        None if dead > 0 => panic!(
            "the 8254 timer does not count and the CPU does not say its frequency: \
             enable the legacy timer in the firmware"
        ),
        None => panic!(
            "the 8254 timer could not be read {stalled} times in a row without a stall of 50 ms: \
             give this machine more of its processor"
        ),
    }
}

/// One run of `ticks` of the 8254.
fn measure_once(ticks: u16) -> Result<Run, Failure> {
    start_pit();
    let first = read_all();
    loop {
        let now = latch_pit();
        if first.pit.wrapping_sub(now) >= ticks {
            break;
        }
        if tsc().wrapping_sub(first.pit_tsc) > PATIENCE_COUNTS {
            return Err(match now == first.pit {
                true => Failure::Dead,
                false => Failure::Stalled,
            });
        }
    }
    let last = read_all();
    // SAFETY: reading the port changes nothing.
    let control: u8 = unsafe { Port::new(CONTROL_B).read() };
    if control & OUT_2 != 0 {
        return Err(Failure::Stalled);
    }
    let pit = u64::from(first.pit - last.pit);
    let length = last.pit_tsc - first.pit_tsc;
    Ok(Run {
        tsc_hz: length * PIT_HZ / pit,
        ticks: u64::from(first.ticks_left - last.ticks_left),
        ticks_counts: last.ticks_tsc - first.ticks_tsc,
        slack: first.slack + last.slack,
        length,
    })
}

fn read_all() -> Reading {
    bracket(|| (latch_pit(), apic::timer_ticks_left()))
}

/// The narrowest of some bracketed readings.
fn bracket(read: impl Fn() -> (u16, u32)) -> Reading {
    let one = || {
        let before = tsc();
        let (pit, ticks_left) = read();
        let after = tsc();
        Reading {
            pit,
            ticks_left,
            pit_tsc: before,
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

/// Starts channel 2 in mode 0, counting down from 65,535, its output not on the speaker.
fn start_pit() {
    // SAFETY: channel 2 of the 8254 and the speaker gate are used by nobody else.
    unsafe {
        let mut control = Port::<u8>::new(CONTROL_B);
        let old = control.read();
        control.write(old & !(GATE_2 | SPEAKER));
        Port::<u8>::new(PIT_COMMAND).write(0b1011_0000);
        let mut channel = Port::<u8>::new(PIT_CHANNEL_2);
        channel.write(0xff);
        channel.write(0xff);
        control.write(old & !SPEAKER | GATE_2);
    }
}

fn latch_pit() -> u16 {
    // SAFETY: as in `start_pit`; the latch command freezes the two bytes read next.
    unsafe {
        Port::<u8>::new(PIT_COMMAND).write(0b1000_0000);
        let mut channel = Port::<u8>::new(PIT_CHANNEL_2);
        let low = channel.read();
        let high = channel.read();
        u16::from_le_bytes([low, high])
    }
}
