//! Messages of a node that wait to be sent.
//!
//! Invariant: bounded in bytes: what finds no room is not taken. Everything that matters is
//! repeated.

use alloc::collections::VecDeque;

use super::message::Packet;
use super::room;
use crate::broadcast::Peer;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Outbox {
    messages: VecDeque<(Peer, Packet)>,
    bytes: usize,
    most: usize,
}

impl Outbox {
    /// With room for so many bytes.
    pub fn new(most: usize) -> Self {
        Outbox {
            messages: VecDeque::new(),
            bytes: 0,
            most,
        }
    }

    /// Takes a message; false: there is no room.
    pub fn push(&mut self, to: Peer, packet: Packet) -> bool {
        let bytes = room::message_bytes(&packet.message);
        if self.bytes + bytes > self.most {
            return false;
        }
        self.bytes += bytes;
        self.messages.push_back((to, packet));
        true
    }

    /// The oldest message.
    pub fn pop_front(&mut self) -> Option<(Peer, Packet)> {
        let (to, packet) = self.messages.pop_front()?;
        self.bytes -= room::message_bytes(&packet.message);
        Some((to, packet))
    }

    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Bytes that wait.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn clear(&mut self) {
        (self.messages, self.bytes) = (VecDeque::new(), 0);
    }
}
