//! The replay window: which sequence numbers of one direction of a session have been seen.
//!
//! Source: the sliding window of IPsec, RFC 4303 section 3.4.3, with 64 places.

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
