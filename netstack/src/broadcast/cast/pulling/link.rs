//! How fast a member's link brings blocks: whether it is slow, and by how much every wait is longer
//! for it.
//!
//! Nobody tells a member what its link carries. It goes by the bytes that came and the time between
//! blocks. A slow link is always busy, because more is asked for than it carries: blocks come
//! evenly. Who waits for others gets blocks now and then, and two soon after one another among
//! them; it must not wait longer still for that.
//!
//! Neighbours: [`super`] has the window and the requests, [`super::waiting`] the waits, `cast::way`
//! the distance.
//!
//! Invariant: time counts by the bytes that it brought. What lacked of a block and came alone, or a
//! short block, is soon here on any link: a slow one would be taken for a fast one, and what is
//! then asked for overflows its port and is missing again.

use super::{Share, WINDOW};
use crate::broadcast::pace::Pace;
use crate::time::{Instant, Micros};
use crate::transport::rtt::LONGEST;

/// Blocks come slowly when so many, a window, take longer than at a sixth of the rate.
const MEASURE_OVER: u32 = WINDOW;
const SLOW_FACTOR: u64 = 6;
/// Blocks come evenly if between two of them there never was less than this part of the mean time.
const EVEN: u64 = 2;
/// What does not follow what was before it on the link comes later by more than so many parts of
/// the time that it takes.
const IDLE_GAP: (u64, u64) = (5, 4);
/// Waits grow with the slowness of the link from so many times up to so many.
const SLOWDOWN: u64 = 3;
const MAX_SLOWDOWN: u64 = 32;

/// See the module.
#[derive(Debug)]
pub(super) struct Link {
    /// Bytes of a full block.
    full: u64,
    /// Blocks come slower than a link carries them: this member, or everything, is slow. So it is
    /// until it is measured.
    pub narrow: bool,
    /// How many times slower than a link carries them blocks come: waits are that much longer.
    pub slowdown: u64,
    /// The least time between two blocks ever: what the link takes for one. Zero before the second.
    pub block: Micros,
    /// What a block takes, as measured last; the longest before that.
    took: Micros,
    /// Blocks whose last fragment has come, whether or not they could be checked then.
    whole: u32,
    /// When the last of them came, and the bytes of data since.
    last_came: Instant,
    came: u64,
    /// Where the measurement began: blocks and time; since then: bytes, and the least time for a
    /// block.
    since: (u32, Instant),
    bytes: u64,
    least: Micros,
}

impl Link {
    /// For blocks of so many bytes.
    pub fn new(full: u64) -> Self {
        Link {
            full,
            narrow: true,
            slowdown: 1,
            block: Micros::ZERO,
            took: LONGEST,
            whole: 0,
            last_came: Instant::ZERO,
            came: 0,
            since: (0, Instant::ZERO),
            bytes: 0,
            least: LONGEST,
        }
    }

    /// Too few blocks came to know anything.
    pub fn is_new(&self) -> bool {
        self.whole < MEASURE_OVER
    }

    /// Bytes of data came, whether anybody wanted them or not.
    pub fn brought(&mut self, bytes: usize) {
        self.came += bytes as u64;
    }

    /// Data came, this part of a block, so long after any data before it. Whether that is so long
    /// that nothing was in front of it on the link.
    pub fn was_idle(&self, gap: Micros, pace: Pace, part: Share) -> bool {
        let took = pace.blocks(1).max(self.block).0 * u64::from(part.fragments);
        gap.0 * u64::from(part.of) * IDLE_GAP.1 > took * IDLE_GAP.0
    }

    /// The last fragment of a block came; several casts (`crowd`) share the link. Blocks that wait
    /// here for a list came before it, not all at once with it. `last`: blocks come when those who
    /// are late have them, whatever the link carries.
    pub fn count_whole(&mut self, now: Instant, pace: Pace, crowd: u32, last: bool) {
        self.whole += 1;
        let came = core::mem::take(&mut self.came);
        if self.whole == 1 {
            self.since = (1, now);
        } else {
            let gap = self.for_a_block(now.saturating_since(self.last_came), came);
            self.bytes += came;
            self.least = self.least.min(gap);
            self.block = match self.whole {
                2 => gap,
                _ => self.block.min(gap),
            };
        }
        self.last_came = now;
        let (whole, at) = self.since;
        if self.whole - whole >= MEASURE_OVER && !last {
            let mean = self.for_a_block(now.saturating_since(at), self.bytes);
            let took = mean.min(self.least);
            self.took = match mean > took.saturating_mul(EVEN) {
                // It is as fast as that at least. Of the first blocks nothing more is known.
                true => self.took.min(took),
                false => took,
            };
            let normal = pace.blocks(crowd.into());
            self.narrow = self.took > normal.saturating_mul(SLOW_FACTOR);
            let times = (self.took.0 / normal.0).min(MAX_SLOWDOWN);
            self.slowdown = if times < SLOWDOWN { 1 } else { times };
            self.since = (self.whole, now);
            self.bytes = 0;
            self.least = LONGEST;
        }
    }

    /// What a full block would have taken where so many bytes took this time.
    fn for_a_block(&self, time: Micros, bytes: u64) -> Micros {
        Micros(time.0.saturating_mul(self.full) / bytes.max(1))
    }
}
