//! The numbers of exchanges and barriers of each context, which of them did not come to a good end
//! here, and why.
//!
//! Who asks about one that failed or was cancelled must not be told that it is over: it would take
//! for done what never will be.
//!
//! Neighbour: [`super::endpoint`] counts and asks.
//!
//! Invariant: a few words for each context, however many of its operations fail, and no more
//! contexts of a kind than [`MAX_CONTEXTS_USED`].

use alloc::collections::{BTreeMap, VecDeque};

use super::endpoint::reason;
use super::message::{NUMBER_MASK, is_before, next};
use super::{Error, MAX_CONTEXTS_USED};

/// Numbers of which it is known one by one whether they failed.
const KNOWN: u32 = 64;
/// Exchanges, and as many barriers, that failed of which it is known why.
const FAULTS: usize = 16;
/// So many numbers later nobody asks any more, and numbers would begin to mean others.
const FORGOTTEN: u32 = NUMBER_MASK / 4;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Line {
    Exchanges,
    Barriers,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    /// Number of the next one.
    next: u32,
    /// The last that failed, if the lowest bit is set; bit `i`: the one `i` before it failed.
    last: u32,
    failed: u64,
    /// Some before those failed.
    earlier: bool,
}

/// Why an exchange or a barrier failed, and the bytes that this rank had for each other in it,
/// where they were equal.
type Fault = (Error, Option<u64>);

/// An exchange or a barrier that failed.
#[derive(Clone, Copy, Debug)]
struct Failed {
    /// Its context and number.
    id: (u16, u32),
    fault: Fault,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    counts: BTreeMap<(u16, Line), Count>,
    /// The last that failed and of which it is known why, the last first.
    faults: BTreeMap<Line, VecDeque<Failed>>,
}

impl Numbers {
    /// An operation has failed because of a rank's part in it; of other reasons there is nothing to
    /// say.
    pub(super) fn note_fault(
        &mut self,
        line: Line,
        id: (u16, u32),
        error: Error,
        equal_bytes: Option<u64>,
    ) {
        if reason(error).is_some() {
            let faults = self.faults.entry(line).or_default();
            faults.truncate(FAULTS - 1);
            let fault = (error, equal_bytes);
            faults.push_front(Failed { id, fault });
        }
    }

    /// Why an operation failed, if it was because of a rank's part.
    pub(super) fn fault(&self, line: Line, id: (u16, u32)) -> Option<Fault> {
        let mut faults = self.faults.get(&line)?.iter();
        faults
            .find(|failed| failed.id == id)
            .map(|failed| failed.fault)
    }

    /// Whether an operation may begin in this context.
    pub(super) fn has_room(&self, context: u16, line: Line) -> bool {
        let used = |of: &(u16, Line)| of.1 == line;
        self.counts.contains_key(&(context, line))
            || self.counts.keys().filter(|of| used(of)).count() < MAX_CONTEXTS_USED
    }

    /// An operation may have this number: it is not before those that have begun, or is 0.
    pub(super) fn may_be(&self, context: u16, line: Line, number: u32) -> bool {
        number == 0 || number <= NUMBER_MASK && self.is_ahead(context, line, number)
    }

    /// The number of an operation that begins, in a context that there is room for: the next one,
    /// or `least` where that is ahead of it. Those between were of groups that this rank was not
    /// in.
    pub(super) fn begin(&mut self, context: u16, line: Line, least: u32) -> u32 {
        let count = self.counts.entry((context, line)).or_default();
        let number = match is_before(count.next, least) {
            true => least,
            false => count.next,
        };
        count.next = next(number);
        if since(number, count.last) > FORGOTTEN {
            *count = Count {
                next: count.next,
                ..Count::default()
            };
        }
        number
    }

    /// This rank has not begun the operation of this number.
    pub(super) fn is_ahead(&self, context: u16, line: Line, number: u32) -> bool {
        let begun = self
            .counts
            .get(&(context, line))
            .map_or(0, |count| count.next);
        !is_before(number, begun)
    }

    /// An operation that began has failed or was cancelled.
    pub(super) fn spoil(&mut self, context: u16, line: Line, number: u32) {
        let count = self.counts.entry((context, line)).or_default();
        if count.failed == 0 {
            count.last = number;
        }
        if is_before(count.last, number) {
            let by = since(number, count.last);
            let stays = count.failed.checked_shl(by).unwrap_or(0);
            count.earlier |= stays.count_ones() < count.failed.count_ones();
            (count.failed, count.last) = (stays, number);
        }
        match since(count.last, number) {
            back @ 0..KNOWN => count.failed |= 1 << back,
            _ => count.earlier = true,
        }
    }

    /// It failed or was cancelled here; of one that is long over also when that is not known any
    /// more.
    pub(super) fn is_spoiled(&self, context: u16, line: Line, number: u32) -> bool {
        let Some(count) = self.counts.get(&(context, line)) else {
            return false;
        };
        if count.failed == 0 || is_before(count.last, number) {
            return false;
        }
        match since(count.last, number) {
            back @ 0..KNOWN => count.failed >> back & 1 == 1,
            _ => count.earlier,
        }
    }
}

/// How many numbers `b` is before `a`.
fn since(a: u32, b: u32) -> u32 {
    a.wrapping_sub(b) & NUMBER_MASK
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Rank;
    use alloc::collections::BTreeSet;
    use proptest::prelude::*;

    const LINE: Line = Line::Barriers;

    proptest! {
        #[test]
        fn what_failed_is_known(failures in prop::collection::vec((0u32..400, any::<bool>()), 0..300)) {
            let mut numbers = Numbers::default();
            let mut failed = BTreeSet::new();
            for _ in 0..400 {
                numbers.begin(3, LINE, 0);
            }
            for (number, again) in failures {
                numbers.spoil(3, LINE, number);
                if again {
                    numbers.spoil(3, LINE, number);
                }
                failed.insert(number);
            }
            let known = failed.last().map_or(0, |last| last.saturating_sub(KNOWN - 1));
            for number in 0..400 {
                let is_spoiled = numbers.is_spoiled(3, LINE, number);
                if number >= known {
                    prop_assert_eq!(is_spoiled, failed.contains(&number), "{}", number);
                } else {
                    // Rather one too many than one that is said to be over and is not.
                    prop_assert!(is_spoiled || !failed.contains(&number), "{}", number);
                }
            }
            prop_assert!(!numbers.is_spoiled(3, Line::Exchanges, 0) && !numbers.is_spoiled(4, LINE, 0));
        }
    }

    #[test]
    fn the_last_faults_are_known_and_why() {
        let mut numbers = Numbers::default();
        let lost = |number| Error::RankLost(Rank(number));
        // Nobody's part: there is nothing to say.
        numbers.note_fault(LINE, (1, 0), Error::Gone, None);
        assert_eq!(numbers.fault(LINE, (1, 0)), None);
        for number in 0..FAULTS as u32 + 3 {
            numbers.note_fault(LINE, (1, number), lost(number), Some(5));
        }
        for number in 0..FAULTS as u32 + 3 {
            let known = (number >= 3).then_some((lost(number), Some(5)));
            assert_eq!(numbers.fault(LINE, (1, number)), known);
        }
        assert_eq!(numbers.fault(Line::Exchanges, (1, 5)), None);
        assert_eq!(numbers.fault(LINE, (2, 5)), None);
    }

    #[test]
    fn a_number_may_be_ahead_of_the_next_and_not_before_it() {
        let mut numbers = Numbers::default();
        assert_eq!([0, 0].map(|least| numbers.begin(1, LINE, least)), [0, 1]);
        assert!(numbers.may_be(1, LINE, 9) && !numbers.may_be(1, LINE, 1));
        assert!(!numbers.may_be(1, LINE, NUMBER_MASK + 3) && numbers.may_be(1, LINE, 0));
        assert_eq!(
            [9, 0, 4].map(|least| numbers.begin(1, LINE, least)),
            [9, 10, 11]
        );
        assert!(!numbers.is_ahead(1, LINE, 5) && !numbers.is_spoiled(1, LINE, 5));
    }

    #[test]
    fn numbers_that_come_round_again_are_new() {
        let mut numbers = Numbers::default();
        numbers.spoil(
            0,
            LINE,
            numbers.counts.get(&(0, LINE)).map_or(0, |count| count.next),
        );
        assert!(numbers.is_spoiled(0, LINE, 0));
        numbers.counts.get_mut(&(0, LINE)).unwrap().next = FORGOTTEN + 1;
        numbers.begin(0, LINE, 0);
        assert!(!numbers.is_spoiled(0, LINE, 0));
        assert!(numbers.is_ahead(0, LINE, FORGOTTEN + 2));
        assert!(!numbers.is_ahead(0, LINE, FORGOTTEN + 1));
    }
}
