//! Plans stay within bounds, sequences are followed, and a link of any speed is kept busy.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeSet, VecDeque};
use std::vec::Vec;

const BASE: u64 = 0x40_0000;
/// Held pages that one touch presents, as `program::AROUND_PAGES`.
const AROUND: u64 = 16;

#[test]
fn a_sequence_doubles_and_a_jump_starts_again() {
    let mut ahead = ReadAhead::default();
    let mut page = BASE;
    let mut windows = Vec::new();
    for _ in 0..7 {
        let pages = ahead.plan(page, 100);
        windows.push(pages);
        page += pages * PAGE_SIZE;
    }
    // The fifth ends where requests ahead of the program begin.
    assert_eq!(windows, [1, 2, 4, 8, 1, 8, 8]);
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
        assert_eq!(ahead.wanted(), None);
    }
}

#[test]
fn nothing_is_wanted_ahead_before_a_whole_window_ran_in_sequence() {
    let mut ahead = ReadAhead::default();
    let mut page = BASE;
    for expected in [1, 2, 4, 8] {
        assert_eq!(ahead.plan(page, 100), expected);
        assert_eq!(ahead.wanted(), None, "after a window of {expected}");
        page += expected * PAGE_SIZE;
    }
    assert_eq!(ahead.plan(page, 100), 1);
    let next = page + PAGE_SIZE;
    assert_eq!(ahead.wanted(), Some(next..next + 8 * PAGE_SIZE));
}

#[test]
fn leaping_through_what_was_read_ahead_asks_for_less() {
    let mut ahead = ReadAhead::default();
    let mut page = BASE;
    for _ in 0..5 {
        page += ahead.plan(page, 100) * PAGE_SIZE;
    }
    ahead.advance(page + 40 * PAGE_SIZE);
    ahead.touched(page + 30 * PAGE_SIZE);
    assert_eq!(ahead.wanted(), None);
}

#[test]
fn requests_under_way_are_bounded_and_known_by_every_page() {
    let mut ahead = ReadAhead::default();
    for index in 0..AHEAD_IN_FLIGHT_MAX as u64 {
        assert!(ahead.has_room());
        ahead.asked(BASE + index * 8 * PAGE_SIZE, 8);
    }
    assert!(!ahead.has_room());
    assert_eq!(
        ahead.in_flight(BASE + 9 * PAGE_SIZE),
        Some(BASE + 8 * PAGE_SIZE)
    );
    assert_eq!(ahead.in_flight(BASE + 48 * PAGE_SIZE), None);
    ahead.arrived(BASE + 8 * PAGE_SIZE);
    assert_eq!(ahead.in_flight(BASE + 9 * PAGE_SIZE), None);
    assert!(ahead.has_room());
}

/// A program, a file of `file_pages` pages and a link on which every page takes one unit of time
/// and an answer comes `delay` units after its request at the earliest.
struct Model {
    ahead: ReadAhead,
    file_pages: u64,
    delay: u64,
    now: u64,
    /// When the link has sent everything it was given.
    link_free: u64,
    /// When a request is answered, its first page, its pages; in the order sent.
    under_way: VecDeque<(u64, u64, u64)>,
    here: BTreeSet<u64>,
    held: BTreeSet<u64>,
    fetched: u64,
    faults: u64,
}

impl Model {
    fn new(file_pages: u64, delay: u64) -> Self {
        Self {
            ahead: ReadAhead::default(),
            file_pages,
            delay,
            now: 0,
            link_free: 0,
            under_way: VecDeque::new(),
            here: BTreeSet::new(),
            held: BTreeSet::new(),
            fetched: 0,
            faults: 0,
        }
    }

    fn known(&self, page: u64) -> bool {
        let at = BASE + page * PAGE_SIZE;
        self.here.contains(&page) || self.held.contains(&page) || self.ahead.in_flight(at).is_some()
    }

    fn run(&self, from: u64, limit: u64) -> u64 {
        let missing = |&index: &u64| from + index < self.file_pages && !self.known(from + index);
        (1..limit).take_while(missing).count() as u64 + 1
    }

    fn send(&mut self, page: u64, pages: u64) {
        self.ahead.asked(BASE + page * PAGE_SIZE, pages);
        let done = self.link_free.max(self.now + self.delay) + pages;
        self.link_free = done;
        self.under_way.push_back((done, page, pages));
        assert!(self.under_way.len() <= IN_FLIGHT_MAX);
        self.fetched += pages;
    }

    fn arrive(&mut self, until_page: Option<u64>) {
        while let Some(&(done, page, pages)) = self.under_way.front() {
            let waited = until_page.is_some_and(|want| !self.held.contains(&want));
            if done > self.now && !waited {
                return;
            }
            self.now = self.now.max(done);
            self.under_way.pop_front();
            self.ahead.arrived(BASE + page * PAGE_SIZE);
            self.held.extend(page..page + pages);
        }
    }

    fn ask_ahead(&mut self) {
        while let Some(range) = self.ahead.wanted() {
            let (from, to) = (
                (range.start - BASE) / PAGE_SIZE,
                (range.end - BASE) / PAGE_SIZE,
            );
            let found = (from..to.min(self.file_pages)).find(|&page| !self.known(page));
            let Some(start) = found else {
                self.ahead.advance(range.end);
                continue;
            };
            let pages = self.run(start, WINDOW_MAX.min(to - start));
            self.send(start, pages);
            self.ahead.advance(BASE + (start + pages) * PAGE_SIZE);
        }
    }

    fn touch(&mut self, page: u64) {
        self.arrive(None);
        if self.here.contains(&page) {
            return;
        }
        self.faults += 1;
        let at = BASE + page * PAGE_SIZE;
        if self.held.contains(&page) || self.ahead.in_flight(at).is_some() {
            self.ahead.touched(at);
            self.ask_ahead();
            self.arrive(Some(page));
            let window = page / AROUND * AROUND;
            for near in window..window + AROUND {
                if self.held.remove(&near) {
                    self.here.insert(near);
                }
            }
        } else {
            let limit = self.run(page, WINDOW_MAX);
            let pages = self.ahead.plan(at, limit);
            self.send(page, pages);
            self.ask_ahead();
            self.arrive(Some(page));
            for near in page..page + pages {
                self.held.remove(&near);
                self.here.insert(near);
            }
        }
        assert!(self.here.contains(&page));
    }
}

/// The control node may take as long as half the depth without the link falling idle for long.
#[test]
fn a_sequence_is_limited_by_the_link() {
    for delay in [0, 1, 4, 8, 16, 24] {
        let mut model = Model::new(4096, delay);
        for page in 0..4096 {
            model.touch(page);
        }
        assert_eq!(model.fetched, 4096);
        let start = 6 * (delay + 8);
        let limit = 4096 * 102 / 100 + start;
        assert!(
            model.now <= limit,
            "delay {delay}: {} units for 4096 pages",
            model.now
        );
        assert!(model.faults <= 4096 / 8 + 16, "{} faults", model.faults);
    }
}

#[test]
fn scattered_touches_fetch_little_more_than_they_touch() {
    // Every 20th page, then runs of four pages: 5 % and 20 % of the file.
    let mut model = Model::new(4096, 4);
    for page in (0..4096).step_by(20) {
        model.touch(page);
    }
    assert_eq!(model.fetched, 4096_u64.div_ceil(20));
    let mut model = Model::new(4096, 4);
    let mut touched = 0;
    for start in (0..4096).step_by(20) {
        for page in start..(start + 4).min(4096) {
            model.touch(page);
            touched += 1;
        }
    }
    assert!(
        model.fetched * 2 <= touched * 4,
        "{} for {touched}",
        model.fetched
    );
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

    /// Whatever is touched, and however late answers come: every page arrives, and none twice.
    #[test]
    fn any_order_of_touches_is_served_once(
        runs in proptest::collection::vec((0u64..512, 1u64..40), 1..40),
        delay in 0u64..40,
    ) {
        let mut model = Model::new(512, delay);
        let mut touched = BTreeSet::new();
        for (start, length) in runs {
            for page in start..(start + length).min(512) {
                model.touch(page);
                touched.insert(page);
            }
        }
        model.arrive(Some(u64::MAX));
        prop_assert_eq!(model.fetched as usize, model.here.len() + model.held.len());
        prop_assert!(touched.is_subset(&model.here));
        let most = model.faults * (WINDOW_MAX + DEPTH_MAX);
        prop_assert!(model.fetched <= most, "{} for {} faults", model.fetched, model.faults);
    }
}
