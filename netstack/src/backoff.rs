//! How long to wait before an attempt is repeated: doubling up to a limit, spread at random so
//! that many nodes do not repeat at the same moment.
//!
//! Source: the randomised exponential back-off of Ethernet (Metcalfe, Boggs 1976), with a bound.

use crate::rng::Rng;
use crate::time::Micros;

/// A doubling wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    first: Micros,
    slowest: Micros,
}

impl Backoff {
    /// Waits around `first` after the first attempt, then doubles up to `slowest`.
    pub(crate) const fn new(first: Micros, slowest: Micros) -> Self {
        Backoff { first, slowest }
    }

    /// The middle of the wait after `repeats` earlier waits.
    fn middle(self, repeats: u32) -> Micros {
        let doubled = self.first.saturating_mul(1 << repeats.min(32));
        doubled.min(self.slowest)
    }

    /// Half to one and a half times the doubled wait.
    pub(crate) fn wait(self, repeats: u32, rng: &mut Rng) -> Micros {
        rng.jitter(self.middle(repeats))
    }

    /// The same, but never shorter than the first: where `first` is the time an answer takes, so
    /// that a shorter wait would repeat every attempt.
    pub(crate) fn wait_for_answer(self, repeats: u32, rng: &mut Rng) -> Micros {
        self.wait(repeats, rng).max(self.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_up_to_its_limit_and_spreads() {
        let backoff = Backoff::new(Micros(100), Micros(1_000));
        let mut rng = Rng::new(1);
        for (repeats, middle) in [(0, 100), (1, 200), (3, 800), (4, 1_000), (u32::MAX, 1_000)] {
            let waits: std::vec::Vec<u64> = (0..200)
                .map(|_| backoff.wait(repeats, &mut rng).0)
                .collect();
            let (least, most) = (waits.iter().min(), waits.iter().max());
            let (least, most) = (*least.expect("200 waits"), *most.expect("200 waits"));
            assert!(
                (middle / 2..middle * 6 / 10).contains(&least),
                "{repeats}: {least}"
            );
            assert!(
                (middle * 14 / 10..=middle * 3 / 2).contains(&most),
                "{repeats}: {most}"
            );
            let answered = backoff.wait_for_answer(repeats, &mut rng);
            assert!(answered >= Micros(100));
        }
    }
}
