//! Holds what is sent to a rate: that of a link, of a cast, or of what waits at a port.
//!
//! Key type: [`Pacer`]. Neighbours: `broadcast::station` paces its link and each cast, and
//! `exchange::credit` what it asks for on slow links.
//!
//! Invariant: no rate is lost to rounding: credit is kept in bytes times microseconds.

use crate::time::{Instant, Micros};

/// What Ethernet (preamble 8, header 14, checksum 4, gap 12), IPv4 (20) and UDP (8) add to a
/// datagram.
pub const FRAMING: usize = 8 + 14 + 4 + 12 + 20 + 8;
/// Smallest frame on the wire, preamble and gap included.
const SMALLEST: usize = 84;
/// What a station may catch up with after its loop was late: two ticks of a kernel that has 250 of
/// them a second (CONFIG_HZ of Debian).
const CATCH_UP: Micros = Micros::from_millis(8);
/// Bounds of that, in bytes: four full frames on slow links; at most about a quarter of what a port
/// of a switch holds.
const BURST: (u64, u64) = (4 * 1538, 64 << 10);

/// A token bucket.
#[derive(Clone, Debug)]
pub(crate) struct Pacer {
    rate: u64,
    /// Bytes * 1e6 that may be sent; negative after a train.
    credit: i64,
    at: Instant,
}

impl Pacer {
    pub(crate) fn new(rate: u64, now: Instant) -> Self {
        let mut pacer = Pacer {
            rate: rate.max(1),
            credit: 0,
            at: now,
        };
        pacer.credit = pacer.burst();
        pacer
    }

    pub(crate) fn rate(&self) -> u64 {
        self.rate
    }

    pub(crate) fn set_rate(&mut self, rate: u64) {
        self.rate = rate.max(1);
        self.credit = self.credit.min(self.burst());
    }

    fn burst(&self) -> i64 {
        let (least, most) = BURST;
        let bytes = u128::from(self.rate) * u128::from(CATCH_UP.0) / 1_000_000;
        (bytes.clamp(least.into(), most.into()) * 1_000_000) as i64
    }

    fn credit_at(&self, now: Instant) -> i64 {
        let elapsed = now.saturating_since(self.at).0;
        let earned = u128::from(elapsed) * u128::from(self.rate);
        let earned = earned.min(i64::MAX as u128 / 2) as i64;
        self.credit.saturating_add(earned).min(self.burst())
    }

    /// Something may be sent.
    pub(crate) fn is_ready(&self, now: Instant) -> bool {
        self.credit_at(now) > 0
    }

    /// When something may be sent next.
    pub(crate) fn ready_at(&self) -> Instant {
        if self.credit > 0 {
            return self.at;
        }
        let lacking = (1 - self.credit) as u64;
        self.at + Micros(lacking.div_ceil(self.rate))
    }

    /// Bytes on the wire were sent.
    pub(crate) fn charge(&mut self, now: Instant, bytes: usize) {
        self.credit = self.credit_at(now) - (bytes as i64) * 1_000_000;
        self.at = self.at.max(now);
    }
}

/// Bytes on the wire of a datagram with this much UDP payload.
pub(crate) const fn on_wire(datagram: usize) -> usize {
    let bytes = datagram + FRAMING;
    if bytes < SMALLEST { SMALLEST } else { bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_gigabits_are_reached_with_a_clock_of_microseconds() {
        let mut now = Instant::from_micros(5);
        let mut pacer = Pacer::new(1_250_000_000, now);
        let mut sent = 0u64;
        while now < Instant::from_micros(100_005) {
            while pacer.is_ready(now) {
                pacer.charge(now, 8_796);
                sent += 8_796;
            }
            now = pacer.ready_at().max(now + Micros(1));
        }
        let due = 125_000_000;
        assert!((due..due + 100_000).contains(&sent), "{sent}");
    }

    #[test]
    fn a_late_loop_catches_up_a_little() {
        let mut pacer = Pacer::new(6_250_000, Instant::ZERO);
        let now = Instant::from_micros(1_000_000);
        let mut datagrams = 0;
        while pacer.is_ready(now) {
            pacer.charge(now, 1_500);
            datagrams += 1;
        }
        assert_eq!(datagrams, 34);
    }
}
