//! What peers say instead of sending a block.
//!
//! Neighbour: [`super`] keeps the table of what was asked for.
//!
//! Invariant: an answer counts only from the peer that was asked.

use super::{MAX_UNKNOWN_BACKOFF, State, UNKNOWN_AGAIN};
use crate::broadcast::cast::{Cast, Io};
use crate::broadcast::message::{Answer, Blocks, MemberIndex};
use crate::broadcast::plan::Trouble;

impl Cast {
    /// PARKED, QUEUED, BUSY or NOT_HERE.
    pub(in crate::broadcast::cast) fn answered(
        &mut self,
        from: MemberIndex,
        answer: Answer,
        blocks: &Blocks,
        io: &mut Io<'_>,
    ) {
        for block in blocks.as_slice() {
            let found = self.pull.find_asked(*block);
            let Some(at) = found.filter(|at| self.pull.entries[*at].from == from) else {
                continue;
            };
            let entry = &self.pull.entries[at];
            if entry.state == State::Sent && entry.attempt == 0 {
                self.pull.sample(io.now.saturating_since(entry.at));
            }
            match answer {
                Answer::Parked | Answer::Queued => {
                    io.counters.parked += 1;
                    self.pull.entries[at].told = true;
                    if matches!(self.pull.entries[at].state, State::Sent) {
                        let queued = answer == Answer::Queued;
                        let timeout = if queued {
                            self.wait_timeout()
                        } else {
                            self.parked_timeout(self.pull.entries[at].attempt)
                        };
                        self.pull.set_state(at, State::Waiting { queued });
                        self.pull.set_deadline(at, io.now + timeout);
                    }
                }
                Answer::Busy => {
                    io.counters.busy += 1;
                    self.trouble(at, Trouble::Busy, io);
                }
                Answer::NotHere => {
                    io.counters.not_here += 1;
                    self.trouble(at, Trouble::NotHere, io);
                }
            }
        }
    }

    /// A peer does not know the cast: its announcement is still under way, or it has restarted.
    pub(in crate::broadcast::cast) fn not_known_at(&mut self, from: MemberIndex, io: &mut Io<'_>) {
        let longest = self.patience_for_one();
        for at in 0..self.pull.entries.len() {
            let entry = &mut self.pull.entries[at];
            let settled = matches!(
                entry.state,
                State::Flowing | State::Unchecked | State::Unknown
            );
            if entry.from == from && !settled {
                entry.repeats = entry.repeats.saturating_add(1);
                let backoff = 1 << u32::from(entry.attempt).min(MAX_UNKNOWN_BACKOFF);
                let again = self.blocks(UNKNOWN_AGAIN).saturating_mul(backoff);
                self.pull.set_state(at, State::Unknown);
                self.pull.set_deadline(at, io.now + again.min(longest));
            }
        }
    }
}
