//! The published schedule: which rank sends to whom in which step.
//!
//! The ranks wait in a *passive queue*, those that finished their local part first at its head. The
//! first L of it become the *active queue*. In a round each active rank gets a *target queue*, and
//! the target queues rotate over the active ranks: in step `f` of a round active rank `i` sends to
//! the ranks of queue `i + f`, one after the other. Then the active ranks go to the tail of the
//! passive queue and the next L are active, until each was active once.
//!
//! Ranks finish while others are active already. The passive queue keeps the order in which they
//! did; those that have not finished stand behind them, in the order of their numbers, for they can
//! be sent to. Nobody becomes active before it has finished: a round begins when L of the ranks
//! that were not active yet have, or all that are left.
//!
//! Where L does not divide the number of ranks, target queues differ in length by one, and the last
//! round has only those active that have not been yet. No target queue is longer than
//! [`MAX_TARGETS`]: where ranks are so many that one would be, more are active than was asked for.
//!
//! Source: the method of grouped exchange, steps a to g; its loop for target queues, which runs
//! over the end, ends with the queue here. Neighbours: [`super::steps`] carries it out,
//! [`super::active`] computes an L.
//!
//! Invariant: in a step no rank receives from two; after the last, every ordered pair has met once;
//! ranks are active in the order in which they finished.

use alloc::vec::Vec;

use crate::ids::Rank;

/// Most targets of a queue: their places have numbers of 16 bits on the wire.
pub const MAX_TARGETS: u32 = u16::MAX as u32;

/// What the ranks do in a step: each sender and those it sends to, in order.
pub type Step = Vec<(Rank, Vec<Rank>)>;

/// What comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// This step.
    Step(Step),
    /// The next round waits for ranks that have not finished their local part.
    Wait,
    /// Every rank was active.
    Over,
}

/// The schedule, step by step.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// Ranks that have finished their local part and were not active, in the order in which they
    /// did: head of the passive queue.
    finished: Vec<Rank>,
    /// By rank: it has finished.
    is_finished: Vec<bool>,
    /// Ranks that were active, in order: tail of the passive queue.
    former: Vec<Rank>,
    active: Vec<Rank>,
    queues: Vec<Vec<Rank>>,
    /// L.
    length: usize,
    /// The rotation, f.
    offset: usize,
}

impl Schedule {
    /// `size` ranks that have not finished their local part, and L, which is at least 1 and at most
    /// their number (0: all of them; nothing but a fabric that carries fewer streams than that
    /// speaks for less).
    pub fn new(size: u32, length: u32) -> Self {
        let size = size as usize;
        Schedule {
            finished: Vec::new(),
            is_finished: alloc::vec![false; size],
            former: Vec::new(),
            active: Vec::new(),
            queues: Vec::new(),
            length: raised(size as u32, length) as usize,
            offset: 0,
        }
    }

    /// A rank, below the number of ranks, has finished its local part. False: that was known.
    pub fn finish(&mut self, rank: Rank) -> bool {
        let was_finished = core::mem::replace(&mut self.is_finished[rank.0 as usize], true);
        if !was_finished {
            self.finished.push(rank);
        }
        !was_finished
    }

    /// Ranks that have not finished their local part.
    pub fn unfinished(&self) -> impl Iterator<Item = Rank> {
        let numbers = (0..).map(Rank).zip(&self.is_finished);
        numbers
            .filter(|(_, is_finished)| !**is_finished)
            .map(|(rank, _)| rank)
    }

    /// Step f, then d; false when too few have finished.
    fn begin_round(&mut self) -> bool {
        let were_active = self.former.len() + self.active.len();
        let next = self.length.min(self.is_finished.len() - were_active);
        if self.finished.len() < next {
            return false;
        }
        self.former.append(&mut self.active);
        self.active = self.finished.drain(..next).collect();
        let passive: Vec<Rank> = (self.finished.iter().copied())
            .chain(self.unfinished())
            .chain(self.former.iter().copied())
            .collect();
        self.queues = target_queues(&self.active, &passive);
        self.offset = 0;
        true
    }

    /// The next step.
    pub fn next_step(&mut self) -> Next {
        if self.offset == self.active.len() {
            if self.former.len() + self.active.len() == self.is_finished.len() {
                return Next::Over;
            }
            if !self.begin_round() {
                return Next::Wait;
            }
        }
        let count = self.active.len();
        let targets = |(place, sender): (usize, &Rank)| {
            let queue = self.queues[(place + self.offset) % count].iter();
            let others = queue.filter(|to| *to != sender).copied().collect();
            (*sender, others)
        };
        let step = self.active.iter().enumerate().map(targets).collect();
        self.offset += 1;
        Next::Step(step)
    }
}

/// The L that is used: what was asked for, or so many more that in no round, the last one with what
/// is left over neither, a target queue is too long.
fn raised(size: u32, length: u32) -> u32 {
    let fits = |active: u32| size.div_ceil(active) <= MAX_TARGETS;
    let first = match length {
        0 => size,
        length => length.min(size),
    };
    let mut more = first..size;
    let leaves_few = |length| !size.is_multiple_of(length) && !fits(size % length);
    let found = more.find(|&length| fits(length) && !leaves_few(length));
    found.unwrap_or(size)
}

/// The target queues of a round: the passive ranks dealt out by striding, then an active rank each,
/// so that active ranks receive too. Both queues together have all ranks, and at least one is
/// active.
pub fn target_queues(active: &[Rank], passive: &[Rank]) -> Vec<Vec<Rank>> {
    let count = active.len();
    let queue = |place: usize| {
        let dealt = passive.iter().skip(place).step_by(count).copied();
        dealt.chain([active[(place + 1) % count]]).collect()
    };
    (0..count).map(queue).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec;
    use proptest::prelude::*;

    fn ranks(numbers: &[u32]) -> Vec<Rank> {
        numbers.iter().copied().map(Rank).collect()
    }

    /// A schedule of ranks that have all finished, in this order.
    fn finished(order: &[u32], length: u32) -> Schedule {
        let mut schedule = Schedule::new(order.len() as u32, length);
        for rank in ranks(order) {
            assert!(schedule.finish(rank) && !schedule.finish(rank));
        }
        schedule
    }

    fn senders(step: &Step) -> Vec<u32> {
        step.iter().map(|(sender, _)| sender.0).collect()
    }

    #[test]
    fn the_published_example() {
        let queues = target_queues(&ranks(&[1, 2]), &ranks(&[3, 4, 5, 6]));
        assert_eq!(queues, [ranks(&[3, 5, 2]), ranks(&[4, 6, 1])]);
        let mut schedule = finished(&[0, 1, 2, 3, 4, 5], 2);
        let (mut pairs, mut steps) = (BTreeSet::new(), 0);
        while let Next::Step(step) = schedule.next_step() {
            steps += 1;
            for (from, targets) in step {
                assert!(targets.iter().all(|to| pairs.insert((from, *to))));
            }
        }
        // Three rounds of two rotations.
        assert_eq!((pairs.len(), steps), (30, 6));
    }

    #[test]
    fn the_whole_cluster_active_is_a_rotation() {
        let mut schedule = finished(&[0, 1, 2, 3], 0);
        for to in 1..3 {
            let Next::Step(step) = schedule.next_step() else {
                panic!("it is over")
            };
            assert_eq!(step[0], (Rank(0), ranks(&[to])));
        }
    }

    #[test]
    fn who_finishes_while_others_are_active_keeps_its_place() {
        let mut schedule = Schedule::new(6, 2);
        assert_eq!(schedule.next_step(), Next::Wait);
        let mut active = Vec::new();
        for rank in ranks(&[0, 1, 5, 4, 3, 2]) {
            schedule.finish(rank);
            if let Next::Step(step) = schedule.next_step() {
                active.push(senders(&step));
            }
        }
        while let Next::Step(step) = schedule.next_step() {
            active.push(senders(&step));
        }
        active.dedup();
        assert_eq!(active, [[0, 1], [5, 4], [3, 2]]);
    }

    #[test]
    fn the_passive_queue_has_the_finished_first_and_the_active_last() {
        let mut schedule = Schedule::new(6, 2);
        for rank in ranks(&[3, 1, 5]) {
            schedule.finish(rank);
        }
        let Next::Step(first) = schedule.next_step() else {
            panic!("two have finished")
        };
        // Passive: 5, which has finished, then 0, 2, 4.
        let expected = [(Rank(3), ranks(&[5, 2, 1])), (Rank(1), ranks(&[0, 4, 3]))];
        assert_eq!(first, expected);
        schedule.next_step();
        // One alone begins no round of two.
        assert_eq!(schedule.next_step(), Next::Wait);
        schedule.finish(Rank(4));
        let Next::Step(second) = schedule.next_step() else {
            panic!("two have finished")
        };
        let expected = [(Rank(5), ranks(&[0, 3, 4])), (Rank(4), ranks(&[2, 1, 5]))];
        assert_eq!(second, expected);
    }

    #[test]
    fn target_queues_are_never_longer_than_their_places_have_numbers() {
        for (size, length, used) in [
            (65_535, 1, 1),
            (65_536, 1, 2),
            (70_000, 1, 2),
            // With two a round of one would be left over, with three one of one.
            (70_003, 1, 4),
            (70_001, 1, 3),
            (131_072, 1, 4),
            (131_072, 64, 64),
            (131_072, 0, 131_072),
            (6, 4, 4),
            (1, 1, 1),
            (0, 0, 0),
        ] {
            assert_eq!(raised(size, length), used, "{size} {length}");
        }
        for size in (65_530..=131_072).step_by(7) {
            for length in 1..10 {
                let used = raised(size, length);
                let last = match size % used {
                    0 => used,
                    left => left,
                };
                let longest = size.div_ceil(used).max(size.div_ceil(last));
                assert!(longest <= MAX_TARGETS, "{size} {length}: {longest}");
            }
        }
        let mut order: Vec<u32> = (0..70_000).collect();
        order.reverse();
        let Next::Step(step) = finished(&order, 1).next_step() else {
            panic!("all have finished")
        };
        assert_eq!(step.len(), 2);
        assert_eq!(step.iter().map(|(_, to)| to.len()).max(), Some(35_000));
    }

    proptest! {
        #[test]
        fn complete_and_balanced(count in 1u32..60, length in 0u32..70, seed: u64) {
            let mut order: Vec<u32> = (0..count).collect();
            let mut rng = crate::rng::Rng::new(seed);
            for place in (1..order.len()).rev() {
                order.swap(place, rng.below(place as u64 + 1) as usize);
            }
            // Ranks finish at any time, before the first step and between others.
            let mut schedule = Schedule::new(count, length);
            let mut met = vec![0; (count * count) as usize];
            let (mut next, mut active) = (0, Vec::new());
            loop {
                while next < order.len() && rng.below(3) > 0 {
                    prop_assert!(schedule.finish(Rank(order[next])));
                    next += 1;
                }
                let step = match schedule.next_step() {
                    Next::Step(step) => step,
                    Next::Over => break,
                    Next::Wait => {
                        prop_assert!(next < order.len(), "it waits for nobody");
                        continue;
                    }
                };
                prop_assert!(length == 0 || step.len() <= length as usize);
                if !active.ends_with(&senders(&step)) {
                    active.extend(senders(&step));
                }
                let mut receivers = BTreeSet::new();
                for (from, targets) in step {
                    for to in targets {
                        prop_assert!(from != to);
                        prop_assert!(receivers.insert(to), "{to} has two senders");
                        met[(from.0 * count + to.0) as usize] += 1;
                    }
                }
            }
            prop_assert_eq!(active, order);
            for from in 0..count {
                for to in 0..count {
                    prop_assert_eq!(met[(from * count + to) as usize], u32::from(from != to));
                }
            }
        }
    }
}
