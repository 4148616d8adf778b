//! The time that all processes share: the front end's, estimated hop by hop.
//!
//! A REPORT carries its sender's clock, the BEAT brings it back with the parent's estimate of the
//! overlay's time; half the round trip lies between. Of the last [`KEPT`] answers the fastest counts.
//! Instants of two machines are never compared, only differences within one.
//!
//! Source: the clock filter of NTP (Mills, RFC 5905 section 10), without its statistics.

use crate::time::Instant;

/// Answers that are remembered: with one a second, some seconds of drift.
const KEPT: usize = 8;

/// An estimate of the overlay's time.
#[derive(Clone, Debug, Default)]
pub struct Clock {
    /// Round trip in microseconds and what to add to the own clock, wrapping.
    answers: [Option<(u64, u64)>; KEPT],
    next: usize,
    /// The best of them.
    best: Option<(u64, u64)>,
}

impl Clock {
    /// The front end's own: it is the overlay's time.
    pub fn front_end() -> Clock {
        Clock {
            best: Some((0, 0)),
            ..Clock::default()
        }
    }

    /// Learns from an answer that arrived now to a question sent at `echo`, both by the own clock.
    pub fn learn(&mut self, now: Instant, echo: u64, overlay: u64) {
        let Some(round_trip) = now.as_micros().checked_sub(echo) else {
            return;
        };
        let offset = overlay
            .wrapping_add(round_trip / 2)
            .wrapping_sub(now.as_micros());
        self.answers[self.next] = Some((round_trip, offset));
        self.next = (self.next + 1) % KEPT;
        let fastest = self.answers.iter().flatten().min_by_key(|(trip, _)| *trip);
        self.best = fastest.copied();
    }

    /// The overlay's time in microseconds; None: nothing is known of it.
    pub fn overlay(&self, now: Instant) -> Option<u64> {
        self.best
            .map(|(_, offset)| now.as_micros().wrapping_add(offset))
    }

    /// The first own instant at which the overlay's time is `overlay` microseconds.
    pub fn local(&self, overlay: u64) -> Option<Instant> {
        self.best.map(|(_, offset)| {
            let local = overlay.wrapping_sub(offset);
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
        clock.learn(at(2_000), 1_000, 1_001_900);
        assert_eq!(clock.overlay(at(2_000)), Some(1_002_400));
        clock.learn(at(3_020), 3_000, 1_003_010);
        assert_eq!(clock.overlay(at(4_000)), Some(1_004_000));
        assert_eq!(clock.local(1_004_000), Some(at(4_000)));
        for _ in 0..KEPT {
            clock.learn(at(10_000 + 100), 10_000, 1_010_080);
        }
        assert_eq!(
            clock.overlay(at(0)),
            Some(1_000_030),
            "older answers are forgotten"
        );
        // An answer to the future is none.
        clock.learn(at(0), 1, 0);
        assert_eq!(clock.overlay(at(0)), Some(1_000_030));
    }

    #[test]
    fn a_clock_may_be_behind_or_ahead() {
        let mut clock = Clock::default();
        clock.learn(Instant::from_micros(5_000_000), 5_000_000, 10);
        assert_eq!(clock.overlay(Instant::from_micros(5_000_005)), Some(15));
        assert_eq!(clock.local(15), Some(Instant::from_micros(5_000_005)));
        let mut ahead = Clock::default();
        ahead.learn(Instant::from_micros(10), 10, 1_000);
        assert_eq!(ahead.local(5), Some(Instant::ZERO));
    }
}
