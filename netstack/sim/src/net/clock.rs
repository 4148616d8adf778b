//! The clocks of simulated machines.
//!
//! Engines read clocks that count from a machine's start (CLOCK_MONOTONIC, TSC), and so do these:
//! one that jumps back, compared with the others', stands still for as long, as that of a virtual
//! machine that was suspended does.
//!
//! Invariant: a clock never shows less than it did.

use netstack::time::Instant;

/// A machine's clock: it began at another time than the others', runs a little faster, and may jump
/// ahead, or back.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    /// What it shows at time 0, jumps included, in microseconds.
    pub offset_us: i64,
    /// The least that it shows: what it did when it jumped back.
    pub least: Instant,
    /// Parts per million that it is fast.
    pub drift_ppm: u32,
}

impl Clock {
    /// What it shows at a time in nanoseconds.
    pub fn at(self, now: u64) -> Instant {
        let ahead = u128::from(now) * u128::from(self.drift_ppm) / 1_000_000;
        let since = (now + ahead as u64) / 1000;
        let shown = since.saturating_add_signed(self.offset_us);
        Instant::from_micros(shown).max(self.least)
    }

    /// At this time, in nanoseconds, it jumps ahead by so many microseconds; if there are less than
    /// none, back.
    pub fn jump(&mut self, now: u64, by_us: i64) {
        self.least = self.at(now);
        self.offset_us += by_us;
    }

    /// The first time, in nanoseconds, at which it shows this; 0 if that was before the run, or
    /// before it last jumped.
    pub fn when(self, shown: Instant) -> u64 {
        if shown <= self.least {
            return 0;
        }
        let since = shown.as_micros().saturating_add_signed(-self.offset_us);
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
            ..Clock::default()
        };
        for now in [0, 999, 1_000, 123_456_789, 900_000_000_000] {
            let shown = clock.at(now);
            assert!(clock.when(shown) <= now, "{now}");
            let next = shown + netstack::time::Micros(1);
            assert_eq!(clock.at(clock.when(next)), next);
        }
        assert_eq!(clock.when(Instant::ZERO), 0);
    }

    #[test]
    fn a_clock_that_jumps_back_stands_still_for_as_long() {
        let mut clock = Clock {
            offset_us: 1_000,
            ..Clock::default()
        };
        clock.jump(5_000_000, -2_000);
        let shown = Instant::from_micros(6_000);
        for now in [5_000_000, 6_000_000, 7_000_000] {
            assert_eq!(clock.at(now), shown, "{now}");
        }
        let next = shown + netstack::time::Micros(1);
        assert_eq!((clock.at(7_001_000), clock.when(next)), (next, 7_001_000));
        assert_eq!(clock.when(shown), 0);
        clock.jump(7_001_000, 3_000);
        assert_eq!(clock.at(7_001_000).as_micros(), 9_001);
    }
}
