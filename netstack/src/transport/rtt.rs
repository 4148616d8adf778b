//! Round-trip estimate and the time-out derived from it.
//!
//! Source: RFC 6298 (Jacobson's estimator), with a finer granularity and bounds for a cluster's
//! network; RFC 9002 for when something that was overtaken is lost. Who samples keeps to Karn's
//! rule: what was asked for twice is no sample.

use crate::time::Micros;

/// Round trip to the control node before the first sample: a tenth of what RFC 9002 assumes
/// (section 6.2.2: kInitialRtt, 333 ms) of paths around the earth.
pub(crate) const INITIAL: Micros = Micros(33_300);
/// Longest round trip that counts, and longest time-out without back-off: twice what a peer that
/// computes may take to look ([`super::retry::LOOKS`]).
pub(crate) const LONGEST: Micros = Micros::from_secs(2);
/// A busy control node answers so much later than it could, like an endpoint that delays its
/// acknowledgements (RFC 9000, section 18.2: the default of max_ack_delay).
const ANSWER_DELAY: Micros = Micros::from_millis(25);
/// What was overtaken may be late by an eighth of a round trip, and by a granule of the timer
/// (RFC 9002, section 6.1.2: kTimeThreshold, kGranularity).
const LATE_PART: u64 = 8;
/// See [`LATE_PART`].
pub(crate) const GRANULARITY: Micros = Micros::from_millis(1);

/// Smoothed round trip and its variation.
#[derive(Clone, Debug)]
pub(crate) struct RttEstimator {
    smoothed: u64,
    variation: u64,
    latest: u64,
    shortest: u64,
    /// Nothing was sampled.
    is_assumed: bool,
    answer_delay: Micros,
    granularity: Micros,
}

impl RttEstimator {
    /// Of a control node, or of a service.
    pub(crate) fn of_control() -> Self {
        Self::new(INITIAL, ANSWER_DELAY, GRANULARITY)
    }

    /// Of a peer that answers at once, or is busy for long; `assumed` is what is known of the path
    /// (RFC 9002, section 6.2.2).
    pub(crate) fn of_peer(assumed: Micros) -> Self {
        Self::new(assumed, Micros::ZERO, GRANULARITY)
    }

    fn new(assumed: Micros, answer_delay: Micros, granularity: Micros) -> Self {
        Self {
            smoothed: assumed.0,
            variation: assumed.0 / 2,
            latest: assumed.0,
            shortest: assumed.0,
            is_assumed: true,
            answer_delay,
            granularity,
        }
    }

    pub(crate) fn sample(&mut self, rtt: Micros) {
        let rtt = rtt.min(LONGEST).0;
        self.latest = rtt;
        self.shortest = match self.is_assumed {
            true => rtt,
            false => self.shortest.min(rtt),
        };
        if core::mem::take(&mut self.is_assumed) {
            (self.smoothed, self.variation) = (rtt, rtt / 2);
        } else {
            self.variation = (3 * self.variation + self.smoothed.abs_diff(rtt)) / 4;
            self.smoothed = (7 * self.smoothed + rtt) / 8;
        }
    }

    /// What was overtaken is lost so long after it was asked for (RFC 9002, section 6.1.2).
    pub(crate) fn loss_delay(&self) -> Micros {
        Micros(self.smoothed.max(self.latest) + self.late_by().0)
    }

    /// The shortest that was sampled (RFC 9002, section 5.2: min_rtt): no answer comes sooner.
    pub(crate) fn shortest(&self) -> Micros {
        Micros(self.shortest)
    }

    /// What comes together comes within this time.
    pub(crate) fn late_by(&self) -> Micros {
        let longest = self.smoothed.max(self.latest);
        Micros((longest / LATE_PART).max(self.granularity.0))
    }

    /// How long to wait for an answer (RFC 9002, section 6.2.1).
    pub(crate) fn timeout(&self) -> Micros {
        let margin = (4 * self.variation).max(self.granularity.0) + self.answer_delay.0;
        Micros((self.smoothed + margin).min(LONGEST.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_the_network_within_its_bounds() {
        let mut rtt = RttEstimator::of_control();
        assert!((100..130).contains(&(rtt.timeout().0 / 1_000)));
        for _ in 0..50 {
            rtt.sample(Micros(200));
        }
        assert_eq!(rtt.timeout(), Micros(ANSWER_DELAY.0 + GRANULARITY.0 + 200));
        for _ in 0..50 {
            rtt.sample(Micros::from_millis(40));
        }
        assert!(rtt.timeout() > Micros::from_millis(40));
        for _ in 0..50 {
            rtt.sample(Micros::from_secs(100));
        }
        assert!(rtt.timeout() <= LONGEST);
    }

    #[test]
    fn a_peer_has_no_delay_and_begins_with_what_is_known() {
        let mut rtt = RttEstimator::of_peer(Micros(500));
        assert_eq!(rtt.timeout(), Micros(1_500));
        for _ in 0..50 {
            rtt.sample(Micros(100));
        }
        assert_eq!(rtt.timeout(), Micros(100 + GRANULARITY.0));
    }
}
