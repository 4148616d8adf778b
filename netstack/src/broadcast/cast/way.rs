//! How far away the others are, and with how many casts the link is shared: what windows and waits
//! are stretched by.
//!
//! DATA says how long its request waited at the sender. What the asker waited beyond that is the
//! way there and back, if nothing was in front of it on the asker's own link. The source, which
//! asks for nothing, goes by the answers to its announcements and probes. A way of up to
//! [`COVERED`] block times changes nothing, whatever is measured: the usual window covers it. To a
//! longer one belongs a window longer by twice what is beyond that, from twice [`COVERED`] on by
//! all of the way, beside the usual one: requests wait at their peers, too.
//!
//! Neighbours: `pulling` and `serving` have the windows and waits, `crate::broadcast::station` says
//! who shares the link.
//!
//! Invariant: a way is never taken for longer than [`SPREAD`] times the shortest that was measured,
//! so that queues, slow members and lost answers do not pass for distance; all windows stay within
//! the buffers.

use super::super::pace::Pace;
use super::pulling::MAX_ASKED;
use crate::time::Micros;

/// Block times of the way there and back that the usual window covers.
pub(super) const COVERED: u64 = 10;
/// Nearer members count against farther ones: ways differ by no more than this factor.
const SPREAD: u64 = 3;
/// Parts of a measurement's difference from the mean that the mean follows it by, up and down: the
/// farther members count for more.
const UP: u64 = 2;
const DOWN: u64 = 32;
/// Longest way that windows are stretched for, there and back, in block times: there are no more
/// buffers than that.
const FARTHEST: u64 = MAX_ASKED as u64;
/// Longest way in time: what takes longer is no network of a machine.
const LONGEST_WAY: Micros = Micros::from_millis(100);

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    /// Shortest that was measured, and their mean, in microseconds; the least is the largest number
    /// before the first.
    least: u64,
    mean: u64,
    /// So many blocks more than usual may be on their way, and the time that they take.
    blocks: u32,
    beyond: Micros,
    /// Casts that share the link as if each had the rate of this one.
    crowd: u32,
}

impl Way {
    pub(super) fn new() -> Self {
        Way {
            least: u64::MAX,
            mean: 0,
            beyond: Micros::ZERO,
            blocks: 0,
            crowd: 1,
        }
    }

    /// The way there and back was measured, the time that the block takes on the link included.
    pub(super) fn sample(&mut self, time: Micros) {
        let time = time.min(LONGEST_WAY).0;
        self.mean = match self.least {
            u64::MAX => time,
            _ if time > self.mean => self.mean + (time - self.mean) / UP,
            _ => self.mean - (self.mean - time) / DOWN,
        };
        self.least = self.least.min(time);
    }

    /// What follows from the samples, where a block comes so long after another at the soonest:
    /// that is no distance, and the fewer blocks are on the way.
    pub(super) fn settle(&mut self, link: Micros, pace: Pace) {
        if self.least < u64::MAX {
            let least = self.least.saturating_sub(link.0);
            let mean = self.mean.saturating_sub(link.0);
            let block = pace.blocks(1).max(Micros(link.0 / u64::from(self.crowd)));
            self.stretch(mean.min(SPREAD * least), block);
        }
    }

    /// What took so long may have waited for anything: only the shortest of these counts.
    pub(super) fn sample_at_most(&mut self, time: Micros, pace: Pace) {
        self.least = self.least.min(time.min(LONGEST_WAY).0);
        self.stretch(self.least, pace.blocks(1));
    }

    fn stretch(&mut self, way: u64, block: Micros) {
        let way = (way / block.0.max(1)).min(FARTHEST);
        // Requests also wait at their peers, for as long as ever; from twice what is covered all of
        // the way is added.
        let blocks = way.min(2 * way.saturating_sub(COVERED));
        self.blocks = blocks as u32;
        self.beyond = block.saturating_mul(blocks);
    }

    /// The time of so many blocks: waits are that much longer.
    pub(super) fn beyond(&self) -> Micros {
        self.beyond
    }

    /// So many blocks more than usual may be on their way.
    pub(super) fn blocks(&self) -> u32 {
        self.blocks
    }

    /// So many blocks apart others may be that are as fast: announcements reach them one way after
    /// the other.
    pub(super) fn skew(&self) -> u32 {
        2 * self.blocks
    }

    /// Nobody is known to be near.
    pub(super) fn may_be_long(&self) -> bool {
        self.least == u64::MAX || self.blocks > 0
    }

    /// Casts that share the link as if each had the rate of this one: a block takes so many times
    /// as long.
    pub(super) fn crowd(&self) -> u32 {
        self.crowd
    }

    pub(super) fn set_crowd(&mut self, crowd: u32) {
        self.crowd = crowd.max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks of 8 KiB at 10 Gbit/s take 7 us.
    fn pace() -> Pace {
        Pace::new(1_250_000_000, 8192)
    }

    #[test]
    fn a_short_way_changes_nothing() {
        let mut way = Way::new();
        for time in [18, 25, 17, 400, 600, 900, 300, 500] {
            way.sample(Micros(time));
            way.settle(Micros(7), pace());
            assert_eq!((way.beyond(), way.blocks()), (Micros::ZERO, 0), "{time}");
        }
    }

    #[test]
    fn a_slow_link_is_not_a_long_way() {
        let mut way = Way::new();
        for time in [85, 90, 400, 2_000, 2_000, 2_000] {
            way.sample(Micros(time));
            way.settle(Micros(70), pace());
            assert_eq!(way.blocks(), 0, "{time}");
        }
    }

    #[test]
    fn a_long_way_is_covered_at_once_and_has_a_bound() {
        let mut way = Way::new();
        way.sample(Micros(2_007));
        way.settle(Micros(7), pace());
        assert!((280..=290).contains(&way.blocks()), "{}", way.blocks());
        for _ in 0..100 {
            way.sample(Micros::from_secs(5));
            way.settle(Micros(7), pace());
        }
        assert_eq!(u64::from(way.blocks()), SPREAD * 2_000 / 7);
        let mut way = Way::new();
        way.sample(Micros::from_secs(5));
        way.settle(Micros(7), pace());
        assert!(u64::from(way.blocks()) <= FARTHEST, "{}", way.blocks());
    }
}
