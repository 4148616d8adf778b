//! How long a request may wait, for a sign of life, at a peer that has the block, and at one that
//! does not.
//!
//! Neighbour: [`super`] keeps the table of what was asked for.
//!
//! Invariant: every wait follows the rate that blocks come with here, and has a limit.

use super::{LONGEST, MAX_BACKOFF, WINDOW};
use crate::broadcast::cast::Cast;
use crate::broadcast::message::MemberIndex;
use crate::broadcast::published;
use crate::time::{Instant, Micros};

/// What a sign of life may be later than is normal, in block times: a window of them.
const MARGIN: u64 = WINDOW as u64;
/// The same at the end, when all peers have little to do.
const LAST_MARGIN: u64 = 2 * MARGIN;
/// Factor that waits grow by at the end at most, three doublings.
const MAX_LAST_BACKOFF: u64 = 8;
/// How long a request may wait at the end at a peer that does not have the block, beside the way
/// there and back.
const LAST_PARKED: u64 = MARGIN;

impl Cast {
    /// How long a request may go without a sign of life.
    pub(super) fn sign_timeout(&self, block: u32, from: MemberIndex, attempt: u32) -> Micros {
        let backoff = 1 << attempt.min(MAX_BACKOFF);
        if self.pull.last && self.pull.soonest < u64::MAX {
            let wait = self
                .blocks(LAST_MARGIN)
                .saturating_mul(backoff.min(MAX_LAST_BACKOFF));
            return Micros(2 * self.pull.soonest) + wait;
        }
        let patience = u64::from(self.planner.patience(block, from));
        let normal = super::super::serving::KEPT_WAITING + patience + patience / 4;
        let sign = self.blocks(normal) + self.way.beyond();
        let time = self.pull.timeout().max(sign) + self.blocks(MARGIN);
        let most = self.wait_timeout().saturating_mul(2).max(LONGEST).max(time);
        time.saturating_mul(backoff).min(most)
    }

    /// How long a request may wait at a peer that lives.
    pub(super) fn wait_timeout(&self) -> Micros {
        if !self.pull.last {
            return self.longest_timeout();
        }
        let late = u64::from(self.planner.late_after());
        self.timeout_over(late + 16)
    }

    /// The same before the end.
    pub(in crate::broadcast::cast) fn longest_timeout(&self) -> Micros {
        self.timeout_over(self.longest_wait())
    }

    fn timeout_over(&self, blocks: u64) -> Micros {
        self.pull.timeout() + self.blocks(blocks) + self.way.beyond().saturating_mul(2)
    }

    /// The number of the attempt after this one. When time runs out all are used up: what is left
    /// is the source.
    pub(super) fn next_attempt(&self, at: usize, now: Instant) -> u8 {
        match self.is_running_out(now) {
            true => u8::MAX,
            false => self.pull.entries[at].attempt.saturating_add(1),
        }
    }

    /// How long a request may wait at a peer that does not have the block. At the end longer with
    /// each attempt, or all would ask the source soon.
    pub(super) fn parked_timeout(&self, attempt: u8) -> Micros {
        if self.pull.last && self.pull.soonest < u64::MAX {
            let backoff = 1 << u32::from(attempt).min(MAX_BACKOFF);
            let wait = self
                .blocks(LAST_PARKED)
                .saturating_mul(backoff.min(MAX_LAST_BACKOFF));
            return Micros(2 * self.pull.soonest) + wait;
        }
        self.wait_timeout()
    }

    /// The longest that a request waits at one peer, in block times: no longer than the whole cast
    /// takes.
    fn longest_wait(&self) -> u64 {
        let late = u64::from(self.planner.late_after());
        let whole = match published::is_whole(&self.setup.scheme) {
            true => u64::MAX,
            false => 4 * u64::from(self.have.length()) + 2 * u64::from(self.setup.members),
        };
        (2 * late + 64).min(whole.saturating_add(MARGIN))
    }

    /// The time of so many blocks as they come here, between those of other casts.
    pub(in crate::broadcast::cast) fn blocks(&self, count: u64) -> Micros {
        self.shared(count.saturating_mul(self.pull.link.slowdown))
    }
}
