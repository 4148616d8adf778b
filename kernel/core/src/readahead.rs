//! How many pages of the program file to ask for at a fault.
//!
//! Faults that run in sequence double the window up to [`WINDOW_MAX`]; a fault out of sequence
//! asks for its own page only. Text, constants and data are touched in turn, so a few streams are
//! followed at once. (The scheme is that of sequential read-ahead in Unix kernels since 4.3BSD.)
//!
//! Neighbours: `kernel::process` asks control for the pages and maps them; the page table's
//! accessed bits tell at the end how many pages read ahead were used.
//!
//! Invariant: a plan holds the page that faulted, and never more than [`WINDOW_MAX`] pages.

use crate::addr::PAGE_SIZE;

/// Pages in one request at most: what one PAGE_READ may carry (32 KiB).
pub const WINDOW_MAX: u64 = 8;
/// Streams followed at once: text, read-only data, data, and one to spare.
const STREAMS: usize = 4;

/// Counts for the job's report, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Asked for because the program touched them.
    pub asked: u64,
    /// Asked for ahead of that.
    pub ahead: u64,
    /// Of the pages read ahead, those the program then touched.
    pub used: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// Start of the last window.
    start: u64,
    /// Page after the last window; a fault here continues the stream.
    next: u64,
    window: u64,
    /// When it was last continued.
    used_at: u64,
}

/// The read-ahead state of one program.
#[derive(Clone, Debug, Default)]
pub struct ReadAhead {
    streams: [Stream; STREAMS],
    faults: u64,
}

impl ReadAhead {
    /// Pages to ask for, the one at address `page` first: 1 to `limit` (how many lie in a row
    /// from there in the segment and are not in memory).
    pub fn plan(&mut self, page: u64, limit: u64) -> u64 {
        assert!(limit > 0, "the faulting page itself is missing");
        self.faults += 1;
        let continued = self
            .streams
            .iter()
            .position(|s| s.window > 0 && page > s.start && page <= s.next + PAGE_SIZE);
        let (index, window) = match continued {
            Some(index) => (index, (self.streams[index].window * 2).min(WINDOW_MAX)),
            None => (self.oldest(), 1),
        };
        let pages = window.min(limit);
        self.streams[index] = Stream {
            start: page,
            next: page + pages * PAGE_SIZE,
            window,
            used_at: self.faults,
        };
        pages
    }

    fn oldest(&self) -> usize {
        let by_age = |&index: &usize| self.streams[index].used_at;
        (0..STREAMS).min_by_key(by_age).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BASE: u64 = 0x40_0000;

    #[test]
    fn a_sequence_doubles_and_a_jump_starts_again() {
        let mut ahead = ReadAhead::default();
        let mut page = BASE;
        let mut windows = std::vec::Vec::new();
        for _ in 0..6 {
            let pages = ahead.plan(page, 100);
            windows.push(pages);
            page += pages * PAGE_SIZE;
        }
        assert_eq!(windows, [1, 2, 4, 8, 8, 8]);
        assert_eq!(ahead.plan(0x90_0000, 100), 1);
        // The first stream is still known.
        assert_eq!(ahead.plan(page, 100), 8);
        assert_eq!(ahead.plan(page + 8 * PAGE_SIZE, 3), 3);
    }

    #[test]
    fn two_sequences_in_turn_are_both_seen() {
        let mut ahead = ReadAhead::default();
        let (mut text, mut data) = (BASE, 0x60_0000);
        let mut faults = 0;
        while text < BASE + 64 * PAGE_SIZE {
            text += ahead.plan(text, 100) * PAGE_SIZE;
            data += ahead.plan(data, 100) * PAGE_SIZE;
            faults += 2;
        }
        assert!(faults <= 24, "{faults} faults for 2 x 64 pages");
    }

    #[test]
    fn going_backwards_reads_nothing_ahead() {
        let mut ahead = ReadAhead::default();
        for page in (0..32).rev() {
            assert_eq!(ahead.plan(BASE + page * PAGE_SIZE, 100), 1);
        }
    }

    proptest! {
        #[test]
        fn plans_stay_within_bounds(faults in proptest::collection::vec((0u64..64, 1u64..20), 1..200)) {
            let mut ahead = ReadAhead::default();
            for (page, limit) in faults {
                let pages = ahead.plan(BASE + page * PAGE_SIZE, limit);
                prop_assert!(pages >= 1 && pages <= limit && pages <= WINDOW_MAX);
            }
        }
    }
}
