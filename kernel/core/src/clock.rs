//! How fast the time-stamp counter runs: from what the CPU says, or from counts between two
//! readings of a timer whose frequency is known.
//!
//! Key type: [`Elapsed`], what one measurement gave. Neighbours: `kernel::arch::clock` asks the CPU
//! and reads timers.
//!
//! Invariant: a value that firmware or a processor does not have is `None`, never a frequency of 0.

/// Slowest and fastest counters that are believed.
const HZ_LEAST: u64 = 100_000_000;
const HZ_MOST: u64 = 20_000_000_000;
/// The period of the high-precision event timer is given in femtoseconds, at most 100 ns.
const FEMTOSECONDS: u64 = 1_000_000_000_000_000;
const HPET_PERIOD_MOST: u32 = 100_000_000;

/// Frequency by CPUID 0x15: the crystal's, in Hz, times numerator by denominator (Intel SDM
/// volume 3B, 19.7.3). Many servers do not say the crystal's.
pub fn by_crystal(denominator: u32, numerator: u32, crystal_hz: u32) -> Option<u64> {
    let scaled = u64::from(crystal_hz) * u64::from(numerator);
    believed(scaled.checked_div(u64::from(denominator))?)
}

/// Frequency by CPUID 0x16: the processor's base frequency in MHz, which its counter has. It is
/// the value of the data sheet, so the true one may differ by some parts in a thousand.
pub fn by_base(register: u32) -> Option<u64> {
    believed(u64::from(register & 0xffff) * 1_000_000)
}

/// Frequency that a hypervisor states in kHz (CPUID 0x40000010).
pub fn by_hypervisor(khz: u32) -> Option<u64> {
    believed(u64::from(khz) * 1_000)
}

/// Frequency of a high-precision event timer of so many femtoseconds a tick.
pub fn hpet_hz(period: u32) -> Option<u64> {
    (1..=HPET_PERIOD_MOST)
        .contains(&period)
        .then(|| FEMTOSECONDS / u64::from(period))
}

fn believed(hz: u64) -> Option<u64> {
    (HZ_LEAST..=HZ_MOST).contains(&hz).then_some(hz)
}

/// Ticks between two readings of a timer that counts up in `bits` bits, at most 32.
pub fn ticks_between(first: u32, last: u32, bits: u32) -> u32 {
    last.wrapping_sub(first) & (u32::MAX >> (32 - bits))
}

/// Counts of the time-stamp counter beside ticks of a timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Elapsed {
    /// Counts of the time-stamp counter.
    pub counts: u64,
    /// Ticks of the timer, above zero.
    pub ticks: u32,
}

impl Elapsed {
    /// Frequency of the counter beside a timer of `timer_hz`.
    pub fn counter_hz(self, timer_hz: u64) -> Option<u64> {
        let counts = u128::from(self.counts) * u128::from(timer_hz);
        let hz = counts.checked_div(u128::from(self.ticks))?;
        believed(u64::try_from(hz).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_processor_does_not_say_is_no_frequency() {
        // A Skylake client: 24 MHz times 216 by 2. A server of the time leaves the crystal out.
        assert_eq!(by_crystal(2, 216, 24_000_000), Some(2_592_000_000));
        assert_eq!(by_crystal(2, 168, 0), None);
        assert_eq!(by_crystal(0, 168, 25_000_000), None);
        assert_eq!(by_crystal(1, u32::MAX, u32::MAX), None);
        assert_eq!(by_base(2_100), Some(2_100_000_000));
        // The upper half is reserved.
        assert_eq!(by_base(0xffff_0000), None);
        assert_eq!(by_hypervisor(0), None);
        assert_eq!(by_hypervisor(2_999_998), Some(2_999_998_000));
    }

    #[test]
    fn timers_wrap_at_their_width() {
        assert_eq!(ticks_between(0xff_fff0, 0x10, 24), 0x20);
        assert_eq!(ticks_between(u32::MAX, 0, 32), 1);
        assert_eq!(ticks_between(0xfff0, 0xffff, 16), 15);
    }

    #[test]
    fn a_counter_is_measured_beside_a_timer() {
        let ms_by_pm_timer = Elapsed {
            counts: 2_400_000,
            ticks: 3_580,
        };
        let hz = ms_by_pm_timer.counter_hz(3_579_545).unwrap();
        assert!(hz.abs_diff(2_400_000_000) < 1_000_000, "{hz}");
        let nothing = Elapsed {
            counts: 5,
            ticks: 0,
        };
        assert_eq!(nothing.counter_hz(3_579_545), None);
        assert_eq!(hpet_hz(69_841_279), Some(14_318_179));
        assert_eq!(hpet_hz(10_000_000), Some(100_000_000));
        assert!(hpet_hz(0).is_none() && hpet_hz(u32::MAX).is_none());
    }
}
