//! Where messages that wait find room: this rank's own, and the arena of the program.
//!
//! Neighbours: [`super`] has the messages, `arena` the pieces.
//!
//! Invariant: what a message takes is given back when it waits no more.

use alloc::collections::VecDeque;

use super::{Content, Incoming, MAX_UNEXPECTED, Message, Piece};
use crate::exchange::{BufferId, Memory};
use crate::ids::Rank;

impl Incoming {
    /// The program gives memory for messages that wait.
    pub(in crate::exchange) fn add_room(&mut self, buffer: BufferId, bytes: u64, most: usize) {
        self.arena.add(buffer, bytes, most);
    }

    /// A message waits, and takes room.
    pub(super) fn count(&mut self, message: &Message) {
        self.waiting += usize::from(message.piece.is_none());
        self.kept += message.kept_bytes();
        self.own_waiting += usize::from(matches!(message.content, Content::Own(..)));
    }

    /// A message waits no more; its piece of the arena is still its own.
    pub(super) fn taken(&mut self, message: &Message) {
        self.waiting -= usize::from(message.piece.is_none());
        self.kept -= message.kept_bytes();
        self.own_waiting -= usize::from(matches!(message.content, Content::Own(..)));
    }

    /// Messages of a sender are as if they had never come, or are not to be had any more.
    pub(super) fn discard(&mut self, sender: Rank, is_gone: impl Fn(&Message) -> bool) {
        let Some(from) = self.from.get_mut(&sender) else {
            return;
        };
        let waiting = core::mem::take(&mut from.unexpected);
        let (gone, stay) = waiting.into_iter().partition(is_gone);
        from.unexpected = stay;
        let gone: VecDeque<Message> = gone;
        for message in gone {
            self.taken(&message);
            self.give_back(message.piece);
        }
    }

    pub(super) fn give_back(&mut self, piece: Option<Piece>) {
        if let Some(piece) = piece {
            self.arena.give_back(piece);
        }
    }

    /// Finds room for a message that waits: this rank's own, of which one that comes early may have
    /// a part, else the arena's. Bytes that find none stay where they are. False: it has no room.
    pub(super) fn make_room(
        &mut self,
        message: &mut Message,
        share: usize,
        memory: &mut dyn Memory,
    ) -> bool {
        let has_place = self.waiting < MAX_UNEXPECTED / share;
        let has_bytes = self.kept + message.kept_bytes() <= self.kept_most / share;
        if has_place && has_bytes {
            return true;
        }
        if let Content::Here(bytes) = &message.content
            && let Some(piece) = self.arena.take(bytes.len())
        {
            let is_empty = bytes.is_empty();
            if is_empty || memory.write(piece.buffer, piece.offset, bytes).is_ok() {
                (message.content, message.piece) = (Content::Kept, Some(piece));
                return true;
            }
            // The program has taken it back.
            self.arena.give_back(piece);
        }
        message.content = Content::There;
        if !has_place {
            message.piece = self.arena.take(0);
        }
        has_place || message.piece.is_some()
    }
}
