//! Memory that the program gives for messages that wait: for their bytes, and so that more of them
//! may wait than this rank has room for by itself.
//!
//! Neighbour: [`super::incoming`] takes a piece for a message and gives it back.
//!
//! Invariant: pieces do not overlap, and lie in what was given; there are no more free pieces than
//! pieces in use and buffers together.

use alloc::collections::BTreeMap;

use super::BufferId;

/// What a message takes beside its bytes, so that those without any are bounded too; pieces are
/// multiples of it.
pub(super) const MESSAGE: u64 = 64;

/// A part of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub buffer: BufferId,
    pub offset: u64,
    bytes: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Arena {
    /// Bytes that are free, by buffer and offset. Neighbours are one.
    free: BTreeMap<(BufferId, u64), u64>,
    /// Where the last piece began: what is before it is looked at last.
    last: Option<(BufferId, u64)>,
    /// Pieces in use, and most of them: what each message is takes memory elsewhere.
    used: usize,
    most: usize,
}

impl Arena {
    /// The program gives a buffer of so many bytes, which lies in none that it gave before. At most
    /// so many messages have a piece from now on.
    pub(super) fn add(&mut self, buffer: BufferId, bytes: u64, most: usize) {
        let bytes = bytes / MESSAGE * MESSAGE;
        self.most = most;
        if bytes > 0 {
            self.free.insert((buffer, 0), bytes);
        }
    }

    /// Room for one message of so many bytes.
    pub(super) fn take(&mut self, bytes: usize) -> Option<Piece> {
        if self.used >= self.most {
            return None;
        }
        let bytes = (bytes as u64 + MESSAGE).next_multiple_of(MESSAGE);
        let start = self.last.unwrap_or((BufferId(0), 0));
        let fits = |(_, free): &(&(BufferId, u64), &u64)| **free >= bytes;
        let behind = self.free.range(start..).find(fits);
        let found = behind.or_else(|| self.free.range(..start).find(fits));
        let ((buffer, offset), free) = found.map(|(place, free)| (*place, *free))?;
        self.free.remove(&(buffer, offset));
        if free > bytes {
            self.free.insert((buffer, offset + bytes), free - bytes);
        }
        self.last = Some((buffer, offset));
        self.used += 1;
        Some(Piece {
            buffer,
            offset,
            bytes,
        })
    }

    /// A message waits no more.
    pub(super) fn give_back(&mut self, piece: Piece) {
        let Piece {
            buffer,
            mut offset,
            mut bytes,
        } = piece;
        self.used -= 1;
        let before = self.free.range((buffer, 0)..(buffer, offset)).next_back();
        if let Some((&(_, start), &free)) = before
            && start + free == offset
        {
            self.free.remove(&(buffer, start));
            (offset, bytes) = (start, bytes + free);
        }
        if let Some(free) = self.free.remove(&(buffer, offset + bytes)) {
            bytes += free;
        }
        self.free.insert((buffer, offset), bytes);
    }

    /// There is no room for a message, however short.
    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty() || self.used >= self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_do_not_overlap_and_come_together_again(
            steps in prop::collection::vec((any::<bool>(), 0usize..1_400, 0usize..64), 1..200),
        ) {
            const BYTES: u64 = 20_000 / MESSAGE * MESSAGE;
            let mut arena = Arena::default();
            for buffer in [3, 5] {
                arena.add(BufferId(buffer), 20_000, 1_000);
            }
            let mut taken: Vec<(Piece, usize)> = Vec::new();
            for (takes, bytes, which) in steps {
                if !takes && !taken.is_empty() {
                    let at = which % taken.len();
                    arena.give_back(taken.swap_remove(at).0);
                } else if let Some(piece) = arena.take(bytes) {
                    taken.push((piece, bytes));
                }
                let free = arena.free.iter().map(|(place, bytes)| (*place, *bytes));
                let used = taken.iter().map(|(piece, _)| ((piece.buffer, piece.offset), piece.bytes));
                let mut all: Vec<((BufferId, u64), u64)> = free.chain(used).collect();
                all.sort_unstable();
                prop_assert_eq!(all.iter().map(|(_, bytes)| bytes).sum::<u64>(), 2 * BYTES);
                for pair in all.windows(2) {
                    let [((buffer, offset), bytes), (next, _)] = pair else { unreachable!() };
                    prop_assert!(*buffer < next.0 || offset + bytes == next.1);
                }
                for (piece, bytes) in &taken {
                    prop_assert!(piece.bytes >= *bytes as u64 && piece.offset + piece.bytes <= BYTES);
                }
                prop_assert!(arena.free.len() <= taken.len() + 2);
                prop_assert_eq!(arena.is_full(), taken.iter().map(|(p, _)| p.bytes).sum::<u64>() == 2 * BYTES);
            }
            for (piece, _) in taken {
                arena.give_back(piece);
            }
            arena.most = 2;
            let pieces = [0; 3].map(|bytes| arena.take(bytes));
            prop_assert!(pieces[1].is_some() && pieces[2].is_none() && arena.is_full());
            pieces.into_iter().flatten().for_each(|piece| arena.give_back(piece));
            let whole = [3, 5].map(|buffer| ((BufferId(buffer), 0), BYTES));
            prop_assert!(arena.free.into_iter().eq(whole));
        }
    }
}
