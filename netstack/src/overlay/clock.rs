//! The time that all processes share: the front end's, estimated hop by hop.
//!
//! A REPORT carries its sender's clock, the BEAT brings it back with the parent's estimate of the
//! overlay's time; half the round trip lies between. A parent says with it over which round trips
//! it knows the time itself. Of the last [`KEPT`] answers that counts which has the shortest way to
//! the front end: the own round trip and the parent's. So a fast answer of a parent that did not
//! know better yet does not outlive the parent's error. Instants of two machines are never
//! compared, only differences within one.
//!
//! A process asks every [`CLOCK_EVERY`](super::CLOCK_EVERY) until it has [`KEPT`] answers: what it
//! measured while all its siblings attached is worth little.
//!
//! Source: the clock filter of NTP with its root delay (Mills, RFC 5905 sections 10 and 11.1),
//! without its statistics.

use crate::time::Instant;

/// Answers that are remembered: with one a second, some seconds of drift.
const KEPT: usize = 8;

/// What an answer says.
#[derive(Clone, Copy, Debug)]
struct Answer {
    /// Round trips between here and the front end, together, in microseconds: the error is at most
    /// half of it.
    trip_us: u64,
    /// What to add to the own clock, wrapping.
    offset: u64,
}

/// An estimate of the overlay's time.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    answers: [Option<Answer>; KEPT],
    next: usize,
    /// The best of them.
    best: Option<Answer>,
}

impl Clock {
    /// The front end's own: it is the overlay's time.
    pub fn front_end() -> Clock {
        let own = Answer {
            trip_us: 0,
            offset: 0,
        };
        Clock {
            best: Some(own),
            ..Clock::default()
        }
    }

    /// Learns from an answer that arrived now to a question sent at `echo`, both by the own clock:
    /// the overlay's time, and the round trips over which the parent knows it.
    pub fn learn(&mut self, now: Instant, echo: u64, (overlay, trip_us): (u64, u32)) {
        let Some(round_trip) = now.as_micros().checked_sub(echo) else {
            return;
        };
        let offset = overlay
            .wrapping_add(round_trip / 2)
            .wrapping_sub(now.as_micros());
        self.answers[self.next] = Some(Answer {
            trip_us: round_trip.saturating_add(trip_us.into()),
            offset,
        });
        self.next = (self.next + 1) % KEPT;
        let answers = self.answers.iter().flatten();
        self.best = answers.min_by_key(|answer| answer.trip_us).copied();
    }

    /// There were as many answers as are remembered.
    pub fn is_settled(&self) -> bool {
        self.answers.iter().all(Option::is_some)
    }

    /// Round trips over which the overlay's time is known, together, in microseconds.
    pub fn trip_us(&self) -> u32 {
        let trip_us = self.best.map_or(0, |best| best.trip_us);
        trip_us.min(u32::MAX.into()) as u32
    }

    /// The overlay's time in microseconds; None: nothing is known of it.
    pub fn overlay(&self, now: Instant) -> Option<u64> {
        self.best
            .map(|best| now.as_micros().wrapping_add(best.offset))
    }

    /// The first own instant at which the overlay's time is `overlay` microseconds.
    pub fn local(&self, overlay: u64) -> Option<Instant> {
        self.best.map(|best| {
            let local = overlay.wrapping_sub(best.offset);
            // A time before the own clock began.
            let local = if local > u64::MAX / 2 { 0 } else { local };
            Instant::from_micros(local)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_answer_counts() {
        let mut clock = Clock::default();
        let at = Instant::from_micros;
        assert_eq!(clock.overlay(at(5)), None);
        // The parent's clock is 1,000,000 ahead; the way there took 900, the way back 100.
        clock.learn(at(2_000), 1_000, (1_001_900, 0));
        assert_eq!(clock.overlay(at(2_000)), Some(1_002_400));
        clock.learn(at(3_020), 3_000, (1_003_010, 0));
        assert_eq!(clock.overlay(at(4_000)), Some(1_004_000));
        assert_eq!(clock.local(1_004_000), Some(at(4_000)));
        for _ in 0..KEPT {
            clock.learn(at(10_000 + 100), 10_000, (1_010_080, 0));
        }
        assert_eq!(
            clock.overlay(at(0)),
            Some(1_000_030),
            "older answers are forgotten"
        );
        // An answer to the future is none.
        clock.learn(at(0), 1, (0, 0));
        assert_eq!(clock.overlay(at(0)), Some(1_000_030));
    }

    #[test]
    fn a_parent_that_knows_better_now_is_believed() {
        let mut clock = Clock::default();
        let at = Instant::from_micros;
        assert!(!clock.is_settled());
        // The parent was 9 ms off, and said over which round trip it knew the time: the answer
        // itself was fast.
        clock.learn(at(1_000), 900, (510_000, 20_000));
        assert_eq!(clock.trip_us(), 20_100);
        assert_eq!(clock.overlay(at(1_000)), Some(510_050));
        // It knows better now; the answer was slower.
        clock.learn(at(101_000), 100_600, (600_800, 400));
        assert_eq!(clock.trip_us(), 800);
        assert_eq!(clock.overlay(at(101_000)), Some(601_000));
        // An answer over the longest way there is changes nothing.
        clock.learn(at(102_000), 0, (1, u32::MAX));
        assert_eq!(clock.overlay(at(101_000)), Some(601_000));
        for _ in 3..KEPT {
            assert!(!clock.is_settled());
            clock.learn(at(103_000), 102_000, (602_500, 400));
        }
        assert!(clock.is_settled());
    }

    #[test]
    fn a_clock_may_be_behind_or_ahead() {
        let mut clock = Clock::default();
        clock.learn(Instant::from_micros(5_000_000), 5_000_000, (10, 0));
        assert_eq!(clock.overlay(Instant::from_micros(5_000_005)), Some(15));
        assert_eq!(clock.local(15), Some(Instant::from_micros(5_000_005)));
        let mut ahead = Clock::default();
        ahead.learn(Instant::from_micros(10), 10, (1_000, 0));
        assert_eq!(ahead.local(5), Some(Instant::ZERO));
    }
}
