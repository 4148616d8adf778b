//! A timer, in microseconds of the node's clock.
//!
//! Invariant: after [`Timer::expired`] the next expiry lies [`LEAST_US`] ahead of the time given,
//! so that a program goes on between two of them.

/// Shortest time between an expiry that was seen and the next.
pub const LEAST_US: u64 = 1_000;

/// A timer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timer {
    /// When it expires next, if it runs.
    due_us: Option<u64>,
    /// Between two expiries; 0: it expires once.
    interval_us: u64,
}

impl Timer {
    /// A timer that does not run.
    pub const STOPPED: Self = Self {
        due_us: None,
        interval_us: 0,
    };

    /// A timer that expires after `first_us`, and every `interval_us` from then on; none where
    /// `first_us` is 0.
    pub fn start(now_us: u64, first_us: u64, interval_us: u64) -> Self {
        Self {
            due_us: (first_us != 0).then(|| now_us.saturating_add(first_us)),
            interval_us,
        }
    }

    /// When it expires next.
    pub const fn due_us(&self) -> Option<u64> {
        self.due_us
    }

    /// Microseconds until it expires, at least 1, or 0 where it does not run; and its interval.
    pub fn rest(&self, now_us: u64) -> (u64, u64) {
        let rest = self.due_us.map(|due| due.saturating_sub(now_us).max(1));
        (rest.unwrap_or(0), self.interval_us)
    }

    /// Whether it has expired by now, and how often more than once since it was asked last. It is
    /// then set to expire again, if it has an interval.
    pub fn expired(&mut self, now_us: u64) -> Option<u64> {
        let due = self.due_us.filter(|due| *due <= now_us)?;
        let missed = (now_us - due).checked_div(self.interval_us);
        self.due_us = missed.map(|missed| {
            let ahead = (missed + 1).saturating_mul(self.interval_us);
            due.saturating_add(ahead)
                .max(now_us.saturating_add(LEAST_US))
        });
        Some(missed.unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_expires_once_or_again_and_again() {
        let mut once = Timer::start(100, 50, 0);
        assert_eq!((once.due_us(), once.rest(120)), (Some(150), (30, 0)));
        assert_eq!(once.expired(149), None);
        assert_eq!(once.expired(150), Some(0));
        assert_eq!(once.expired(1000), None);
        assert_eq!(once.rest(1000), (0, 0));

        let mut again = Timer::start(0, 10_000, 7_000);
        assert_eq!(again.expired(10_000), Some(0));
        assert_eq!(again.due_us(), Some(17_000));
        // Expiries that were missed are one, and told.
        assert_eq!(again.expired(40_000), Some(3));
        assert_eq!(again.due_us(), Some(45_000));
        // The program goes on in between.
        let mut fast = Timer::start(0, 1, 1);
        assert_eq!(fast.expired(5), Some(4));
        assert_eq!(fast.due_us(), Some(5 + LEAST_US));
        assert_eq!(Timer::start(5, 0, 9).expired(u64::MAX), None);
    }

    #[test]
    fn no_number_is_too_large() {
        let mut timer = Timer::start(u64::MAX - 1, u64::MAX, u64::MAX);
        assert_eq!(timer.rest(u64::MAX), (1, u64::MAX));
        assert_eq!(timer.expired(u64::MAX), Some(0));
        assert!(timer.due_us().is_some());
    }
}
