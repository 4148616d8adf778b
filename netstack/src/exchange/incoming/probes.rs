//! Probes, and the messages that they keep for a receive.
//!
//! Neighbour: [`super`] has the messages that wait.
//!
//! Invariant: a message that a probe keeps is found by nothing else, and still counts as one that
//! waits.

use alloc::collections::VecDeque;

use super::{Incoming, Message, Receiving};
use crate::exchange::io::Io;
use crate::exchange::{Error, Event, Memory, OpId};
use crate::ids::Rank;

impl Incoming {
    /// Posts a probe, or looks at once what it finds: where that is nothing it is false.
    pub(in crate::exchange) fn probe(
        &mut self,
        probe: Receiving,
        waits: bool,
        events: &mut VecDeque<Event>,
    ) -> bool {
        let Some((sender, at)) = self.first_for(&probe) else {
            if waits {
                self.probes.push(probe);
            }
            return waits;
        };
        if let Some(from) = self.from.get_mut(&sender) {
            let message = &mut from.unexpected[at];
            events.push_back(message.found(sender, &probe));
            if probe.claims {
                message.claim = Some(probe.op);
                self.claims.insert(probe.op, sender);
            }
        }
        true
    }

    /// Whose message a probe keeps, and whether it can still be received.
    pub(in crate::exchange) fn claimed(&self, claim: OpId) -> Option<(Rank, bool)> {
        let sender = self.claims.get(&claim)?;
        let from = self.from.get(sender)?;
        let mut messages = from.unexpected.iter();
        Some((
            *sender,
            messages.any(|message| message.claim == Some(claim)),
        ))
    }

    /// Takes what a probe keeps out of those that wait.
    fn unclaim(&mut self, claim: OpId) -> Option<(Rank, Option<Message>)> {
        let sender = self.claims.remove(&claim)?;
        let from = self.from.get_mut(&sender)?;
        let mut messages = from.unexpected.iter();
        let at = messages.position(|message| message.claim == Some(claim));
        let message = at.and_then(|at| from.unexpected.remove(at));
        if let Some(message) = &message {
            self.taken(message);
        }
        Some((sender, message))
    }

    /// Receives what a probe keeps.
    pub(in crate::exchange) fn receive_claimed(
        &mut self,
        claim: OpId,
        mut receiving: Receiving,
        memory: &mut dyn Memory,
        io: &mut Io<'_>,
        events: &mut VecDeque<Event>,
    ) {
        let op = receiving.op;
        match self.unclaim(claim) {
            Some((sender, Some(message))) => {
                receiving.from = Some(sender);
                self.deliver(sender, receiving, message, memory, io, events);
            }
            // Its sender has taken it back.
            Some((sender, None)) => events.push_back(Event::Failed {
                op,
                error: Error::Withdrawn(sender),
            }),
            None => {}
        }
    }

    /// Nobody receives what a probe keeps: it waits again, or meets what was posted meanwhile.
    pub(super) fn put_back(
        &mut self,
        claim: OpId,
        memory: &mut dyn Memory,
        io: &mut Io<'_>,
        events: &mut VecDeque<Event>,
    ) {
        let Some((sender, Some(mut message))) = self.unclaim(claim) else {
            return;
        };
        message.claim = None;
        match self.take_posted(sender, &message.offer) {
            Some(receiving) => self.deliver(sender, receiving, message, memory, io, events),
            None => self.insert(sender, message, events),
        }
    }
}
