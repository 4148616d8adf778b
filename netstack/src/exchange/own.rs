//! What a rank sends to itself: copied in pieces, so that no call takes long however much it is.
//!
//! Neighbours: [`super::incoming`] adds messages, [`super::endpoint`] the own block of an exchange,
//! and has it copied.
//!
//! Invariant: an operation that has ended, in whatever way, is in no copy.

use alloc::collections::VecDeque;

use super::{BufferId, Error, Event, Gone, Memory, OpId, PACKET};
use crate::ids::Rank;

/// Bytes that are copied at a time: less than a program notices.
const PIECE: u64 = 64 << 10;

/// Where something is: a buffer, and an offset in it.
type Place = (BufferId, u64);

/// What is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The own block of an exchange.
    Block(OpId),
    /// A message.
    Message { send: OpId, receive: OpId, tag: u32 },
}

#[derive(Clone, Copy, Debug)]
struct Copying {
    purpose: Purpose,
    source: Place,
    target: Place,
    bytes: u64,
    done: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct OwnCopies(VecDeque<Copying>);

impl OwnCopies {
    /// Adds something to copy.
    pub(super) fn add(&mut self, purpose: Purpose, source: Place, target: Place, bytes: u64) {
        self.0.push_back(Copying {
            purpose,
            source,
            target,
            bytes,
            done: 0,
        });
    }

    /// There is something to copy.
    pub(super) fn is_pending(&self) -> bool {
        !self.0.is_empty()
    }

    /// Operations that wait for it, but for exchanges.
    pub(super) fn operations(&self) -> usize {
        let messages = |copy: &&Copying| matches!(copy.purpose, Purpose::Message { .. });
        2 * self.0.iter().filter(messages).count()
    }

    /// Copies a piece. What has come to its end is told: messages by events, a block by what is
    /// returned: its operation, and whether its memory was there.
    pub(super) fn step(
        &mut self,
        me: Rank,
        memory: &mut dyn Memory,
        events: &mut VecDeque<Event>,
    ) -> Option<(OpId, Result<(), Gone>)> {
        let mut left = PIECE;
        while left > 0 {
            let copy = self.0.front_mut()?;
            let result = copy.piece(&mut left, memory);
            let Copying {
                purpose,
                bytes,
                done,
                ..
            } = *copy;
            if result.is_ok() && done < bytes {
                return None;
            }
            self.0.pop_front();
            match purpose {
                Purpose::Block(op) => return Some((op, result)),
                Purpose::Message { send, receive, tag } => {
                    let peer = me;
                    events.extend([send, receive].map(|op| match result {
                        Ok(()) => Event::Done {
                            op,
                            bytes,
                            peer,
                            tag,
                        },
                        Err(Gone) => Event::Failed {
                            op,
                            error: Error::Gone,
                        },
                    }));
                }
            }
        }
        None
    }

    /// An operation is not wanted any more, or has failed; who waits for the other end of a message
    /// is told.
    pub(super) fn cancel(&mut self, op: OpId, me: Rank, events: &mut VecDeque<Event>) {
        self.0.retain(|copy| match copy.purpose {
            Purpose::Block(block) => block != op,
            Purpose::Message { send, receive, .. } if send == op => {
                let error = Error::Withdrawn(me);
                events.push_back(Event::Failed { op: receive, error });
                false
            }
            Purpose::Message { send, receive, tag } if receive == op => {
                events.push_back(Event::Done {
                    op: send,
                    bytes: copy.bytes,
                    peer: me,
                    tag,
                });
                false
            }
            Purpose::Message { .. } => true,
        });
    }
}

impl Copying {
    /// Copies at most `left` bytes, which become less.
    fn piece(&mut self, left: &mut u64, memory: &mut dyn Memory) -> Result<(), Gone> {
        let mut packet = [0; PACKET];
        while self.done < self.bytes && *left > 0 {
            let count = (self.bytes - self.done).min(PACKET as u64).min(*left);
            let packet = &mut packet[..count as usize];
            let at = |place: Place| (place.0, place.1.saturating_add(self.done));
            let (source, target) = (at(self.source), at(self.target));
            memory.read(source.0, source.1, packet)?;
            memory.write(target.0, target.1, packet)?;
            self.done += count;
            *left -= count;
        }
        // Nothing is free: many empty ones have an end, too.
        *left = left.saturating_sub(1);
        Ok(())
    }
}
