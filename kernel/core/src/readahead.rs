//! How many pages of the program file to ask for, and which before anybody waits for them.
//!
//! Faults that run in sequence double what is asked for: up to [`WINDOW_MAX`] pages in the request
//! the program waits for, then further requests behind it, up to [`DEPTH_MAX`] pages ahead of the
//! page touched last, so that the link to the control node never falls idle. A fault out of
//! sequence asks for its own page only. Text, constants and data are touched in turn, so a few
//! streams are followed at once. (The scheme is that of sequential read-ahead in Unix kernels since
//! 4.3BSD, with the look-ahead of Linux's `readahead.c`: the first touch of a page that was read
//! ahead asks for more.) Requests ahead begin and end at multiples of a window, so that one touch
//! presents a whole one.
//!
//! Neighbours: [`crate::program`] turns plans into fetches and tells what was touched;
//! `kernel::process` asks control for the pages; the page table's accessed bits tell at the end how
//! many pages read ahead were used.
//!
//! Invariant: a plan for a fault holds the page that faulted, and never more than [`WINDOW_MAX`]
//! pages; no page is asked for twice at a time; nothing is asked for more than [`DEPTH_MAX`] pages
//! ahead of the program.

use core::ops::Range;

use crate::addr::PAGE_SIZE;

/// Pages in one request at most: what one PAGE_READ may carry (32 KiB).
pub const WINDOW_MAX: u64 = 8;
/// Pages asked for ahead of the one touched last, at most: 192 KiB are 31 ms of a link of 50
/// Mbit/s, longer than a busy control node takes to answer, and all of them fit a card's ring.
pub const DEPTH_MAX: u64 = 48;
/// Requests that may be under way, `netstack::page::MAX_REQUESTS`.
pub const IN_FLIGHT_MAX: usize = 8;
/// Of these, requests nobody waits for; the others are kept for a fault elsewhere.
pub const AHEAD_IN_FLIGHT_MAX: usize = 6;
/// A step within a stream that still counts as running in sequence: as many pages as one touch
/// presents ([`crate::program::AROUND_PAGES`]), after which the next touch is seen.
const STEP_MAX: u64 = 16;
/// Streams followed at once: text, read-only data, data, and one to spare.
const STREAMS: usize = 4;

const _: () = assert!(AHEAD_IN_FLIGHT_MAX as u64 * WINDOW_MAX >= DEPTH_MAX);
const _: () = assert!(AHEAD_IN_FLIGHT_MAX < IN_FLIGHT_MAX);

/// Counts for the job's report, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Asked for because the program touched them.
    pub asked: u64,
    /// Asked for ahead of that.
    pub ahead: u64,
    /// Of the pages read ahead, those the program then touched.
    pub used: u64,
    /// Taken from what a broadcast had brought, instead of being asked for.
    pub cast: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    /// The page touched last.
    touched: u64,
    /// Page after the last one asked for; a fault here continues the stream.
    next: u64,
    /// Pages to have asked for beyond `touched`; zero for a stream that is not in use.
    depth: u64,
    /// When it was last continued.
    used_at: u64,
}

/// Pages asked for that have not arrived.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u64,
    end: u64,
}

/// The read-ahead state of one program.
#[derive(Clone, Debug, Default)]
pub struct ReadAhead {
    streams: [Stream; STREAMS],
    /// Counts touches, the clock of the streams.
    touches: u64,
    in_flight: [Option<Span>; IN_FLIGHT_MAX],
}

impl ReadAhead {
    /// Pages to ask for at a fault, the one at address `page` first: 1 to `limit` (how many lie in
    /// a row from there in the segment and are neither in memory nor under way).
    pub fn plan(&mut self, page: u64, limit: u64) -> u64 {
        assert!(limit > 0, "the faulting page itself is missing");
        self.touches += 1;
        let continues = |s: &Stream| page > s.touched && page <= s.next + PAGE_SIZE;
        let (index, depth) = match self.position(continues) {
            Some(index) => (index, (self.streams[index].depth * 2).min(DEPTH_MAX)),
            None => (self.oldest(), 1),
        };
        let mut pages = depth.min(WINDOW_MAX).min(limit);
        if depth > WINDOW_MAX {
            // What follows is under way at the same time, so the program loses nothing by it.
            pages = pages.min(WINDOW_MAX - page / PAGE_SIZE % WINDOW_MAX);
        }
        self.streams[index] = Stream {
            touched: page,
            next: page + pages * PAGE_SIZE,
            depth,
            used_at: self.touches,
        };
        pages
    }

    /// The program has come to a page that was asked for ahead of it.
    pub fn touched(&mut self, page: u64) {
        let found = self.position(|s| page > s.touched && page < s.next);
        let Some(index) = found else { return };
        self.touches += 1;
        let stream = &mut self.streams[index];
        stream.depth = match page - stream.touched <= STEP_MAX * PAGE_SIZE {
            true => (stream.depth * 2).min(DEPTH_MAX),
            false => stream.depth.div_ceil(2),
        };
        stream.touched = page;
        stream.used_at = self.touches;
    }

    /// The addresses from which the stream touched last wants pages, `None` when it has asked for
    /// enough. At least [`WINDOW_MAX`] pages, so that requests are few and large.
    pub fn wanted(&self) -> Option<Range<u64>> {
        let stream = self.streams.iter().max_by_key(|s| s.used_at)?;
        let end = stream.touched + stream.depth * PAGE_SIZE;
        let end = end - end % (WINDOW_MAX * PAGE_SIZE);
        let enough = stream.depth <= WINDOW_MAX || end < stream.next + WINDOW_MAX * PAGE_SIZE;
        let room = self.has_room();
        (room && !enough).then_some(stream.next..end)
    }

    /// What [`Self::wanted`] gave has been asked for, or is not worth it, up to `end`.
    pub fn advance(&mut self, end: u64) {
        if let Some(stream) = self.streams.iter_mut().max_by_key(|s| s.used_at) {
            stream.next = stream.next.max(end);
        }
    }

    /// Notes that `pages` pages from `page` on are asked for. Panics when [`IN_FLIGHT_MAX`]
    /// requests are under way.
    pub fn asked(&mut self, page: u64, pages: u64) {
        let free = self.in_flight.iter_mut().find(|span| span.is_none());
        *free.expect("more page requests than a node may have") = Some(Span {
            start: page,
            end: page + pages * PAGE_SIZE,
        });
    }

    /// The request that began at `page` is over.
    pub fn arrived(&mut self, page: u64) {
        for span in &mut self.in_flight {
            if span.is_some_and(|span| span.start == page) {
                *span = None;
            }
        }
    }

    /// Whether a page is under way: the first page of its request.
    pub fn in_flight(&self, page: u64) -> Option<u64> {
        let spans = || self.in_flight.iter().flatten();
        let holds = |span: &&Span| (span.start..span.end).contains(&page);
        spans().find(holds).map(|span| span.start)
    }

    /// Whether another request may be made that nobody waits for.
    pub fn has_room(&self) -> bool {
        self.in_flight.iter().flatten().count() < AHEAD_IN_FLIGHT_MAX
    }

    /// Whether as many requests are under way as may be.
    pub fn is_full(&self) -> bool {
        self.in_flight.iter().all(Option::is_some)
    }

    fn position(&self, matches: impl Fn(&Stream) -> bool) -> Option<usize> {
        let used = |s: &Stream| s.depth > 0 && matches(s);
        self.streams.iter().position(used)
    }

    fn oldest(&self) -> usize {
        let by_age = |&index: &usize| self.streams[index].used_at;
        (0..STREAMS).min_by_key(by_age).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
