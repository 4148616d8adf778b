//! The replay window: which numbers of one sender under one key have been seen.
//!
//! Source: the sliding window of IPsec, RFC 4303 section 3.4.3, with 64 places. Where only the low
//! half of a number is sent the rest is found as in RFC 9000, appendix A.3.

/// Numbers behind the newest that are still told apart: reordering beyond 64 datagrams counts as
/// loss.
pub const WINDOW: u64 = 64;

/// A sliding window over sequence numbers, which start at 1.
#[derive(Clone, Debug, Default)]
pub struct ReplayWindow {
    newest: u64,
    /// Bit i: `newest - i` was seen.
    seen: u64,
}

impl ReplayWindow {
    /// A window that takes no number up to this one.
    pub fn beyond(newest: u64) -> Self {
        ReplayWindow {
            newest,
            seen: u64::MAX,
        }
    }

    /// The highest number that was taken.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    /// Takes note of `seq`; false when it was seen before or is too old to tell.
    ///
    /// Invariant: called only for authenticated numbers, or anybody could move the window.
    pub fn accept(&mut self, seq: u64) -> bool {
        if seq == 0 {
            return false;
        }
        if seq > self.newest {
            let ahead = seq - self.newest;
            self.seen = if ahead < WINDOW {
                self.seen << ahead
            } else {
                0
            };
            self.seen |= 1;
            self.newest = seq;
            return true;
        }
        let behind = self.newest - seq;
        if behind >= WINDOW || self.seen & (1 << behind) != 0 {
            return false;
        }
        self.seen |= 1 << behind;
        true
    }

    /// Of all numbers with this low half the nearest to the one after the newest. It is the one
    /// that was sent, unless 2^31 in a row did not arrive.
    pub fn nearest(&self, low: u32) -> u64 {
        const HALF: u64 = 1 << 31;
        let expected = self.newest.saturating_add(1);
        let same = expected & !u64::from(u32::MAX) | u64::from(low);
        if same.saturating_add(HALF) <= expected {
            same.saturating_add(2 * HALF)
        } else if same > expected.saturating_add(HALF) && same >= 2 * HALF {
            same - 2 * HALF
        } else {
            same
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn repeats_and_old_numbers_are_refused() {
        let mut window = ReplayWindow::default();
        assert!(!window.accept(0));
        assert!(window.accept(1));
        assert!(!window.accept(1));
        assert!(window.accept(65));
        assert!(window.accept(2), "63 behind the newest is inside");
        assert!(!window.accept(1), "64 behind is outside");
        assert!(window.accept(u64::MAX));
        assert!(!window.accept(65));
        assert!(window.accept(u64::MAX - 63));
    }

    proptest! {
        #[test]
        fn a_number_that_is_near_is_known_by_its_low_half(newest: u64, ahead in 0u64..1 << 31, is_ahead: bool) {
            let mut window = ReplayWindow::default();
            window.accept(newest);
            let number = match is_ahead {
                true => newest.checked_add(ahead),
                false => newest.checked_sub(ahead),
            };
            if let Some(number) = number {
                prop_assert_eq!(window.nearest(number as u32), number);
            }
        }

        #[test]
        fn agrees_with_a_set(numbers in proptest::collection::vec(1u64..300, 0..400)) {
            let mut window = ReplayWindow::default();
            let mut seen = BTreeSet::new();
            let mut newest = 0;
            for seq in numbers {
                let expected = !seen.contains(&seq) && seq + WINDOW > newest;
                prop_assert_eq!(window.accept(seq), expected);
                if expected {
                    seen.insert(seq);
                    newest = newest.max(seq);
                }
            }
        }
    }
}
