//! The numbers of exchanges and barriers of each context, what they were, which of them did not
//! come to a good end here, and why.
//!
//! Who asks about one that failed or was cancelled must not be told that it is over: it would take
//! for done what never will be. So must not who asks about one that was something else here.
//!
//! Neighbour: [`super::endpoint`] counts and asks.
//!
//! Invariant: a few words for each context, however many of its operations fail, and no more
//! contexts than [`MAX_CONTEXTS_USED`].

use alloc::collections::{BTreeMap, VecDeque};

use super::endpoint::reason;
use super::message::{NUMBER_MASK, is_before, next};
use super::{Error, MAX_CONTEXTS_USED};

/// Numbers of which it is known one by one whether they failed: bits of a word.
const KNOWN: u32 = u64::BITS;
/// Exchanges and barriers that failed of which it is known why.
const FAULTS: usize = 16;
/// So many numbers later nobody asks any more, and numbers would begin to mean others.
const FORGOTTEN: u32 = NUMBER_MASK / 4;
/// Numbers of which it is known what they were. Who is asked about one has begun it and goes on
/// when all that need it have taken it: one or two more.
const SIGNED: u32 = 8;

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    /// Number of the next one.
    next: u32,
    /// The last that failed, if the lowest bit is set; bit `i`: the one `i` before it failed.
    last: u32,
    failed: u64,
    /// Some before those failed.
    earlier: bool,
    /// What the last ones were, by their numbers; 0: this rank was not in it, or there was none.
    signatures: [u32; SIGNED as usize],
    /// Numbers from the first to before the second that were passed over last.
    passed: (u32, u32),
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
    counts: BTreeMap<u16, Count>,
    /// The last that failed and of which it is known why, the last first.
    faults: VecDeque<Failed>,
}

impl Numbers {
    /// An operation has failed because of a rank's part in it; of other reasons there is nothing to
    /// say.
    pub(super) fn note_fault(&mut self, id: (u16, u32), error: Error, equal_bytes: Option<u64>) {
        if reason(error).is_some() {
            self.faults.truncate(FAULTS - 1);
            let fault = (error, equal_bytes);
            self.faults.push_front(Failed { id, fault });
        }
    }

    /// Why an operation failed, if it was because of a rank's part.
    pub(super) fn fault(&self, id: (u16, u32)) -> Option<Fault> {
        let mut faults = self.faults.iter();
        faults
            .find(|failed| failed.id == id)
            .map(|failed| failed.fault)
    }

    /// Whether an operation may begin in this context.
    pub(super) fn has_room(&self, context: u16) -> bool {
        self.counts.contains_key(&context) || self.counts.len() < MAX_CONTEXTS_USED
    }

    /// An operation may have this number: it is not before those that have begun, or is 0.
    pub(super) fn may_be(&self, context: u16, number: u32) -> bool {
        number == 0 || number <= NUMBER_MASK && self.is_ahead(context, number)
    }

    /// The number of an operation that begins, in a context that there is room for: the next one,
    /// or `least` where that is ahead of it. Those between were of groups that this rank was not
    /// in. `signature` says what it is ([`super::group::Members::signature`]).
    pub(super) fn begin(&mut self, context: u16, least: u32, signature: u32) -> u32 {
        let count = self.counts.entry(context).or_default();
        let number = match is_before(count.next, least) {
            true => least,
            false => count.next,
        };
        if number != count.next {
            count.passed = (count.next, number);
        }
        for passed in 0..since(number, count.next).min(SIGNED) {
            count.signatures[((count.next + passed) % SIGNED) as usize] = 0;
        }
        count.signatures[(number % SIGNED) as usize] = signature;
        count.next = next(number);
        if since(number, count.last) > FORGOTTEN {
            (count.last, count.failed, count.earlier) = (0, 0, false);
        }
        number
    }

    /// This rank has not begun the operation of this number.
    pub(super) fn is_ahead(&self, context: u16, number: u32) -> bool {
        let begun = self.counts.get(&context).map_or(0, |count| count.next);
        !is_before(number, begun)
    }

    /// What the operation of this number is, or was, here: 0 where this rank took no part in one.
    /// None: it has not begun, or that is not known any more.
    pub(super) fn signature(&self, context: u16, number: u32) -> Option<u32> {
        let count = self.counts.get(&context)?;
        let (first, end) = count.passed;
        if !is_before(number, count.next) {
            return None;
        }
        match since(count.next, number) {
            1..=SIGNED => Some(count.signatures[(number % SIGNED) as usize]),
            _ if !is_before(number, first) && is_before(number, end) => Some(0),
            _ => None,
        }
    }

    /// An operation that began has failed or was cancelled.
    pub(super) fn spoil(&mut self, context: u16, number: u32) {
        let count = self.counts.entry(context).or_default();
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
    pub(super) fn is_spoiled(&self, context: u16, number: u32) -> bool {
        let Some(count) = self.counts.get(&context) else {
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

    proptest! {
        #[test]
        fn what_failed_is_known(failures in prop::collection::vec((0u32..400, any::<bool>()), 0..300)) {
            let mut numbers = Numbers::default();
            let mut failed = BTreeSet::new();
            for _ in 0..400 {
                numbers.begin(3, 0, 1);
            }
            for (number, again) in failures {
                numbers.spoil(3, number);
                if again {
                    numbers.spoil(3, number);
                }
                failed.insert(number);
            }
            let known = failed.last().map_or(0, |last| last.saturating_sub(KNOWN - 1));
            for number in 0..400 {
                let is_spoiled = numbers.is_spoiled(3, number);
                if number >= known {
                    prop_assert_eq!(is_spoiled, failed.contains(&number), "{}", number);
                } else {
                    // Rather one too many than one that is said to be over and is not.
                    prop_assert!(is_spoiled || !failed.contains(&number), "{}", number);
                }
            }
            prop_assert!(!numbers.is_spoiled(4, 0));
        }
    }

    #[test]
    fn the_last_faults_are_known_and_why() {
        let mut numbers = Numbers::default();
        let lost = |number| Error::RankLost(Rank(number));
        // Nobody's part: there is nothing to say.
        numbers.note_fault((1, 0), Error::Gone, None);
        assert_eq!(numbers.fault((1, 0)), None);
        for number in 0..FAULTS as u32 + 3 {
            numbers.note_fault((1, number), lost(number), Some(5));
        }
        for number in 0..FAULTS as u32 + 3 {
            let known = (number >= 3).then_some((lost(number), Some(5)));
            assert_eq!(numbers.fault((1, number)), known);
        }
        assert_eq!(numbers.fault((2, 5)), None);
    }

    #[test]
    fn a_number_may_be_ahead_of_the_next_and_not_before_it() {
        let mut numbers = Numbers::default();
        assert_eq!([0, 0].map(|least| numbers.begin(1, least, 7)), [0, 1]);
        assert!(numbers.may_be(1, 9) && !numbers.may_be(1, 1));
        assert!(!numbers.may_be(1, NUMBER_MASK + 3) && numbers.may_be(1, 0));
        assert_eq!(
            [9, 0, 4].map(|least| numbers.begin(1, least, 7)),
            [9, 10, 11]
        );
        assert!(!numbers.is_ahead(1, 5) && !numbers.is_spoiled(1, 5));
    }

    #[test]
    fn numbers_that_come_round_again_are_new() {
        let mut numbers = Numbers::default();
        numbers.spoil(0, 0);
        assert!(numbers.is_spoiled(0, 0));
        numbers.counts.get_mut(&0).unwrap().next = FORGOTTEN + 1;
        numbers.begin(0, 0, 1);
        assert!(!numbers.is_spoiled(0, 0));
        assert!(numbers.is_ahead(0, FORGOTTEN + 2));
        assert!(!numbers.is_ahead(0, FORGOTTEN + 1));
    }

    #[test]
    fn it_is_known_what_the_last_ones_were_and_that_there_was_none_where_numbers_were_passed_over()
    {
        let mut numbers = Numbers::default();
        assert_eq!(numbers.signature(1, 0), None);
        for signature in 10..12 {
            numbers.begin(1, 0, signature);
        }
        assert_eq!(numbers.begin(1, 100, 12), 100);
        let known = [0, 1, 2, 91, 92, 99, 100, 101].map(|number| numbers.signature(1, number));
        let none = Some(0);
        assert_eq!(known, [None, None, none, none, none, none, Some(12), None]);
        for signature in 13..13 + SIGNED {
            numbers.begin(1, 0, signature);
        }
        let known = [99, 100, 101, 108].map(|number| numbers.signature(1, number));
        assert_eq!(known, [none, None, Some(13), Some(20)]);
    }
}
