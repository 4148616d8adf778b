//! Messages that begin: those of operations, and those that are forgotten.
//!
//! Neighbours: `tagged` and `incoming` take them.
//!
//! Invariant: of a message that was taken there is a copy, or an operation that is told of its end.

use super::super::io::Io;
use super::super::tagged::Sending;
use super::super::{BufferId, Memory, Op, PostError, SHORT};
use super::Endpoint;
use crate::ids::Rank;
use crate::time::Instant;

impl Endpoint {
    /// Sends a message of up to [`SHORT`] bytes of which nothing is told: there is a copy
    /// when this returns. Else it is as any other.
    ///
    /// # Errors
    /// Why it was not taken; nothing has changed then. [`PostError::NoRoom`]: there is no room for
    /// a copy until others have been received.
    pub fn send_forgotten(
        &mut self,
        now: Instant,
        (to, context, tag): (Rank, u32, u32),
        (buffer, bytes): (BufferId, u64),
        memory: &mut dyn Memory,
    ) -> Result<(), PostError> {
        let is_synchronous = false;
        self.check(&Op::Send {
            to,
            context,
            tag,
            buffer,
            bytes,
            is_synchronous,
        })
        .inspect_err(|error| {
            if let PostError::Lost(rank) = error {
                self.cause = Some(*rank);
            }
        })?;
        if bytes > SHORT as u64 {
            return Err(PostError::TooLong);
        }
        let sending = Sending {
            op: None,
            to,
            context: context as u16,
            tag,
            buffer,
            bytes,
            is_synchronous,
        };
        self.send(now, sending, memory)?;
        self.liveness.start(now);
        self.settle(now);
        Ok(())
    }

    pub(super) fn send(
        &mut self,
        now: Instant,
        sending: Sending,
        memory: &mut dyn Memory,
    ) -> Result<(), PostError> {
        let (messages, io) = (&mut self.messages, io!(self, now));
        if sending.to == self.config.me {
            let events = &mut messages.events;
            return messages.incoming.send_to_self(sending, memory, io, events);
        }
        messages.send(sending, memory, io)
    }
}
