//! Requests that may be lost, or come too late: named again, repeated, given to somebody else; and
//! the end, when nothing waits long.
//!
//! Neighbour: [`super`] keeps the table of what was asked for.
//!
//! Invariant: what may be on its way is not asked for again before its turn has passed.

use super::{Asked, LAST_SHARE, LATE_SHARE, MAYBE_COMING, State};
use crate::broadcast::cast::{Cast, Io};
use crate::broadcast::message::{MemberIndex, Wants};
use crate::broadcast::plan::Trouble;
use crate::broadcast::suspects::Suspicion;
use crate::time::Instant;

impl Cast {
    /// When all that lacks is asked for, and most is here, nothing waits long any more.
    pub(super) fn last_ones(&mut self, io: &Io<'_>) {
        let lacking = self.have.length() - self.have.count();
        self.pull.last =
            lacking as usize == self.pull.asked_for() && lacking * LAST_SHARE <= self.pull.arrived;
        if !self.pull.last {
            return;
        }
        let queued_until = io.now + self.wait_timeout();
        for at in 0..self.pull.entries.len() {
            let entry = &self.pull.entries[at];
            let soon = match entry.state {
                State::Waiting { queued: true } => queued_until,
                State::Waiting { queued: false } | State::Sent => {
                    io.now + self.parked_timeout(entry.attempt)
                }
                _ => continue,
            };
            if entry.deadline > soon {
                self.pull.set_deadline(at, soon);
            }
        }
    }

    /// Names blocks again that this peer was asked for before and has said nothing about, unless
    /// they may be on their way: a request that was lost costs no time then.
    pub(super) fn remind(&mut self, to: MemberIndex, wants: &mut Wants, now: Instant) {
        // The source sends as fast as it is asked: its blocks may be on their way at any time, and
        // what it sends in vain is lacking everywhere.
        if to.is_source() {
            return;
        }
        let arrived = self.pull.arrived;
        let farther = self.pull.farther;
        for (block, entry) in self.pull.blocks.iter().zip(&self.pull.entries) {
            let open = entry.is_unanswered() && entry.from == to && entry.at < now;
            if !open || entry.expected.abs_diff(arrived) <= MAYBE_COMING + farther {
                continue;
            }
            let want = entry.wanted(*block);
            if !wants.iter().any(|other| other.block == *block) && !wants.push(want) {
                return;
            }
        }
    }

    /// A block came from this peer, which serves in the order of the blocks: what it was asked for
    /// no later than for this one and comes before it was lost on the way there, or is not there
    /// yet. It is asked for again.
    pub(super) fn overtaken(
        &mut self,
        from: MemberIndex,
        block: u32,
        asked: Instant,
        io: &mut Io<'_>,
    ) {
        for at in 0..self.pull.entries.len() {
            let entry = &mut self.pull.entries[at];
            let before = self.pull.blocks[at] < block && entry.at <= asked;
            if entry.from == from && before && entry.is_unanswered() && entry.repeats == 0 {
                entry.repeats = 1;
                io.counters.repeated += 1;
                self.ask_again(at, io);
            }
        }
    }

    /// Sends a request again with all that were in the same message.
    pub(super) fn ask_again(&mut self, first: usize, io: &mut Io<'_>) {
        let Asked { from, at, .. } = self.pull.entries[first];
        let mut wants = Wants::default();
        wants.push(self.pull.entries[first].wanted(self.pull.blocks[first]));
        for other in 0..self.pull.entries.len() {
            let entry = &mut self.pull.entries[other];
            let credit = entry.state == State::Waiting { queued: false };
            if other == first || entry.from != from || entry.at != at || !credit {
                continue;
            }
            let want = entry.wanted(self.pull.blocks[other]);
            if wants.push(want) {
                entry.at = io.now;
            }
        }
        let kept = self.blocks(super::super::serving::KEPT_WAITING + 8);
        let timeout = self.pull.timeout() + kept + self.way.beyond();
        self.pull.entries[first].at = io.now;
        self.pull.set_deadline(first, io.now + timeout);
        self.flush(Some((from, wants)), io);
    }

    /// Looks for requests whose turn must have passed.
    pub(super) fn look_for_late(&mut self, io: &mut Io<'_>) {
        // Where all links are full everything is a little late: a share of what has arrived.
        let arrived = self.pull.arrived;
        let late_after = self.planner.late_after() + arrived / LATE_SHARE + self.way.skew();
        let mut at = 0;
        while at < self.pull.entries.len() {
            let entry = &self.pull.entries[at];
            if arrived > entry.expected + late_after
                && let State::Waiting { queued } = entry.state
            {
                let from = entry.from;
                if queued {
                    self.suspect(from, Suspicion::Late, io);
                }
                if self.trouble(at, Trouble::Late, io) {
                    continue;
                }
            }
            at += 1;
        }
    }
}
