//! The order in which a station serves what waits: its own branch first, in turn, then others as
//! they came.

use alloc::collections::VecDeque;

use crate::broadcast::message::MemberIndex;

/// Askers whose place is remembered. They ask for one chunk at a time, so more than this would mean
/// a wait of as many chunks; the oldest is forgotten first, and served first.
const MAX_ASKERS: usize = 128;

/// Who asked when.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Asker, chunk, and the number of the request, rising.
    askers: VecDeque<(MemberIndex, u32, u32)>,
    next: u32,
}

impl Queue {
    /// An asker asks for a block of a chunk; its first block gives the chunk its place.
    pub(super) fn asked(&mut self, asker: MemberIndex, chunk: u32) {
        if self.number(asker, chunk).is_some() {
            return;
        }
        if self.askers.len() == MAX_ASKERS {
            self.askers.pop_front();
        }
        self.askers.push_back((asker, chunk, self.next));
        self.next = self.next.wrapping_add(1);
    }

    fn number(&self, asker: MemberIndex, chunk: u32) -> Option<u32> {
        let mut recent = self.askers.iter().rev();
        let found = recent.find(|(other, of, _)| *other == asker && *of == chunk);
        found.map(|(_, _, number)| *number)
    }

    /// The order of a block of a chunk for an asker from elsewhere.
    pub(super) fn foreign(&self, asker: MemberIndex, chunk: u32, block: u32) -> u64 {
        let number = self.number(asker, chunk).unwrap_or(0);
        1 << 63 | u64::from(number & (u32::MAX >> 1)) << 32 | u64::from(block)
    }
}

/// The order of a block for the `child`th of those served in turn, in turn `turn`.
pub(super) fn in_turn(turn: u32, child: u32, children: u32, block: u32) -> u64 {
    let place = u64::from(turn) * (u64::from(children) + 1) + u64::from(child);
    place.min(u64::from(u32::MAX >> 1)) << 32 | u64::from(block)
}
