//! The clocks of simulated machines.
//!
//! Invariant: a clock never goes back.

use netstack::time::Instant;

/// A machine's clock: it began at another time than the others', runs a little faster, and may jump
/// ahead.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    /// What it shows at time 0, jumps included, in microseconds.
    pub offset_us: u64,
    /// Parts per million that it is fast.
    pub drift_ppm: u32,
}

impl Clock {
    /// What it shows at a time in nanoseconds.
    pub fn at(self, now: u64) -> Instant {
        let ahead = u128::from(now) * u128::from(self.drift_ppm) / 1_000_000;
        Instant::from_micros(self.offset_us + (now + ahead as u64) / 1000)
    }

    /// The first time, in nanoseconds, at which it shows this; 0 if that was before the run.
    pub fn when(self, shown: Instant) -> u64 {
        let since = shown.as_micros().saturating_sub(self.offset_us);
        let fast = u128::from(since) * 1_000_000_000;
        let slow = fast.div_ceil(1_000_000 + u128::from(self.drift_ppm));
        slow.min(u64::MAX.into()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_shows_what_it_was_asked_to_wait_for() {
        let clock = Clock {
            offset_us: 77_000_000,
            drift_ppm: 40,
        };
        for now in [0, 999, 1_000, 123_456_789, 900_000_000_000] {
            let shown = clock.at(now);
            assert!(clock.when(shown) <= now, "{now}");
            let next = shown + netstack::time::Micros(1);
            assert_eq!(clock.at(clock.when(next)), next);
        }
        assert_eq!(clock.when(Instant::ZERO), 0);
    }
}
