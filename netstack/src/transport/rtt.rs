//! Round-trip estimate and the time-out derived from it.
//!
//! Source: RFC 6298 (Jacobson's estimator), with a finer granularity and bounds for a cluster's
//! network; RFC 9002 for when something that was overtaken is lost. Who samples keeps to Karn's
//! rule: what was asked for twice is no sample.

use crate::time::Micros;

/// Time-out before the first sample.
const INITIAL: Micros = Micros::from_millis(100);
/// Longest time-out without back-off.
const LONGEST: Micros = Micros::from_secs(2);
/// Least margin over the smoothed round trip, and so the shortest time-out: what a queue shared
/// with other nodes grows by between two samples; and a busy control node answers late, not never.
/// Lost fragments in the middle of a request are noticed long before.
const MARGIN: Micros = Micros::from_millis(20);
/// What was overtaken may be late by an eighth of a round trip, and by a granule of the timer
/// (RFC 9002, section 6.1.2: kTimeThreshold, kGranularity).
const LATE_PART: u64 = 8;
/// See [`LATE_PART`].
const GRANULARITY: Micros = Micros::from_millis(1);

/// Smoothed round trip and its variation.
#[derive(Clone, Debug, Default)]
pub(crate) struct RttEstimator {
    smoothed: Option<u64>,
    variation: u64,
    latest: u64,
}

impl RttEstimator {
    pub(crate) fn sample(&mut self, rtt: Micros) {
        let rtt = rtt.min(LONGEST).0;
        self.latest = rtt;
        match self.smoothed {
            None => {
                self.smoothed = Some(rtt);
                self.variation = rtt / 2;
            }
            Some(smoothed) => {
                self.variation = (3 * self.variation + smoothed.abs_diff(rtt)) / 4;
                self.smoothed = Some((7 * smoothed + rtt) / 8);
            }
        }
    }

    /// What was overtaken is lost so long after it was asked for (RFC 9002, section 6.1.2).
    pub(crate) fn loss_delay(&self) -> Micros {
        let longest = self.smoothed.unwrap_or(INITIAL.0).max(self.latest);
        Micros(longest + (longest / LATE_PART).max(GRANULARITY.0))
    }

    /// How long to wait for an answer.
    pub(crate) fn timeout(&self) -> Micros {
        match self.smoothed {
            None => INITIAL,
            Some(smoothed) => {
                let margin = (4 * self.variation).max(MARGIN.0);
                Micros((smoothed + margin).min(LONGEST.0))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_the_network_within_its_bounds() {
        let mut rtt = RttEstimator::default();
        assert_eq!(rtt.timeout(), INITIAL);
        for _ in 0..50 {
            rtt.sample(Micros(200));
        }
        assert_eq!(rtt.timeout(), Micros(MARGIN.0 + 200));
        for _ in 0..50 {
            rtt.sample(Micros::from_millis(40));
        }
        assert!(rtt.timeout() > Micros::from_millis(40));
        for _ in 0..50 {
            rtt.sample(Micros::from_secs(100));
        }
        assert!(rtt.timeout() <= LONGEST);
    }
}
