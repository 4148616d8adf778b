//! The congestion window: how many fragments may be under way.
//!
//! Source: RFC 5681, slow start and congestion avoidance, with the initial window of RFC 6928.
//! A loss halves the window once for all that was under way when it was noticed (RFC 9002, section
//! 7.3.2); that is taken back if nothing was lost (RFC 4015, section 3.2). A time-out starts over
//! from the smallest.

/// The window before anything was heard (RFC 6928).
pub(crate) const INITIAL: u32 = 10;
/// Never less (RFC 5681, section 3.1: the loss window is one; two keep a delayed answer from
/// stopping everything).
pub(crate) const LEAST: u32 = 2;

/// Additive increase, multiplicative decrease.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    size: u32,
    threshold: u32,
    most: u32,
    /// Arrivals since the last increase in congestion avoidance.
    arrived: u32,
    /// Size and threshold before the last loss.
    before: (u32, u32),
}

impl Window {
    /// A window of at most `most` fragments.
    pub(crate) fn new(most: u32) -> Self {
        Self::begin(INITIAL, most)
    }

    /// The same, of `first` fragments at first, where it is known that the path carries them.
    pub(crate) fn begin(first: u32, most: u32) -> Self {
        Self {
            size: first.min(most),
            threshold: most,
            most,
            arrived: 0,
            before: (0, 0),
        }
    }

    /// From now on it is at most `most` fragments.
    pub(crate) fn set_most(&mut self, most: u32) {
        self.most = most.max(LEAST);
        self.size = self.size.min(self.most);
    }

    /// Fragments that may ever be under way.
    pub(crate) fn most(&self) -> u32 {
        self.most
    }

    /// Fragments that may be under way.
    pub(crate) fn size(&self) -> u32 {
        self.size
    }

    /// A fragment has arrived.
    pub(crate) fn arrived(&mut self) {
        if self.size < self.threshold {
            self.size = (self.size + 1).min(self.most);
            return;
        }
        self.arrived += 1;
        if self.arrived >= self.size {
            self.arrived = 0;
            self.size = (self.size + 1).min(self.most);
        }
    }

    /// One was lost while `in_flight` were under way, which may be more than the window where it
    /// shrank meanwhile. To be called once in a round trip.
    pub(crate) fn lost(&mut self, in_flight: u32) {
        self.before = (self.size, self.threshold);
        self.threshold = (in_flight.min(self.size) / 2).max(LEAST);
        self.size = self.threshold.min(self.size);
        self.arrived = 0;
    }

    /// The last loss was none.
    pub(crate) fn not_lost(&mut self) {
        let (size, threshold) = core::mem::take(&mut self.before);
        self.size = self.size.max(size).min(self.most);
        self.threshold = self.threshold.max(threshold);
    }

    /// Nothing arrived for the length of a time-out.
    pub(crate) fn timed_out(&mut self, in_flight: u32) {
        self.threshold = (in_flight / 2).max(LEAST);
        self.size = LEAST;
        self.arrived = 0;
        self.before = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_under_way_beyond_the_window_makes_it_no_larger() {
        let mut window = Window::new(256);
        window.lost(100);
        assert_eq!(window.size(), INITIAL / 2);
        window.lost(100);
        assert_eq!(window.size(), LEAST);
    }

    #[test]
    fn doubles_in_a_round_trip_until_a_loss_and_grows_by_one_after_it() {
        let mut window = Window::new(256);
        for _ in 0..window.size() {
            window.arrived();
        }
        assert_eq!(window.size(), 2 * INITIAL);
        window.lost(20);
        assert_eq!(window.size(), 10);
        window.not_lost();
        assert_eq!(window.size(), 2 * INITIAL);
        window.lost(20);
        for _ in 0..10 {
            window.arrived();
        }
        assert_eq!(window.size(), 11);
        window.timed_out(11);
        assert_eq!(window.size(), LEAST);
        for _ in 0..10_000 {
            window.arrived();
        }
        assert!(window.size() > 50 && window.size() <= 256);
    }
}
