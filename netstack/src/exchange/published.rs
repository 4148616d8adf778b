//! The published schedule: which rank sends to whom in which step.
//!
//! The ranks wait in a *passive queue*, those that finished their local part first at its head. The first L of it
//! become the *active queue*. In a round each active rank gets a *target queue*, and the target queues rotate over the active
//! ranks: in step `f` of a round active rank `i` sends to the ranks of queue `i + f`, one after the other. Then the active ranks go
//! to the tail of the passive queue and the next L are active, until each was active once.
//!
//! Where L does not divide the number of ranks, target queues differ in length by one, and the last round has only those
//! active that have not been yet.
//!
//! Source: the method of grouped exchange, steps a to g; its loop for target queues, which runs over the end, ends with the
//! queue here. Neighbour: [`super::steps`] carries it out.
//!
//! Invariant: in a step no rank receives from two; after the last, every ordered pair has met once.

use alloc::vec::Vec;

use crate::ids::Rank;

/// What the ranks do in a step: each sender and those it sends to, in order.
pub type Step = Vec<(Rank, Vec<Rank>)>;

/// The schedule, step by step.
#[derive(Clone, Debug)]
pub struct Schedule {
    passive: Vec<Rank>,
    active: Vec<Rank>,
    queues: Vec<Vec<Rank>>,
    /// L.
    length: usize,
    /// The rotation, f.
    offset: usize,
    /// Ranks that have not been active.
    left: usize,
}

impl Schedule {
    /// All ranks in the order in which they finished their local part, and L, which is at least 1 and at most their number
    /// (0: all of them; nothing but a fabric that carries fewer streams than that speaks for less).
    pub fn new(finished: Vec<Rank>, length: u32) -> Self {
        let length = match length as usize {
            0 => finished.len(),
            length => length.min(finished.len()),
        };
        let mut schedule = Schedule {
            left: finished.len(),
            passive: finished,
            active: Vec::new(),
            queues: Vec::new(),
            length,
            offset: 0,
        };
        schedule.begin_round();
        schedule
    }

    /// Step f, then d.
    fn begin_round(&mut self) {
        let next = self.length.min(self.left);
        self.left -= next;
        let mut passive = core::mem::take(&mut self.passive);
        passive.append(&mut self.active);
        self.passive = passive.split_off(next);
        self.active = passive;
        self.queues = target_queues(&self.active, &self.passive);
        self.offset = 0;
    }

    /// The next step; None when every rank was active.
    pub fn next_step(&mut self) -> Option<Step> {
        if self.offset == self.active.len() {
            if self.left == 0 {
                return None;
            }
            self.begin_round();
        }
        let count = self.active.len();
        let targets = |(place, sender): (usize, &Rank)| {
            let queue = self.queues[(place + self.offset) % count].iter();
            let others = queue.filter(|to| *to != sender).copied().collect();
            (*sender, others)
        };
        let step = self.active.iter().enumerate().map(targets).collect();
        self.offset += 1;
        Some(step)
    }
}

/// The target queues of a round: the passive ranks dealt out by striding, then an active rank each, so that active ranks receive
/// too. Both queues together have all ranks, and at least one is active.
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

    #[test]
    fn the_published_example() {
        let queues = target_queues(&ranks(&[1, 2]), &ranks(&[3, 4, 5, 6]));
        assert_eq!(queues, [ranks(&[3, 5, 2]), ranks(&[4, 6, 1])]);
        let mut schedule = Schedule::new(ranks(&[1, 2, 3, 4, 5, 6]), 2);
        let (mut pairs, mut steps) = (BTreeSet::new(), 0);
        while let Some(step) = schedule.next_step() {
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
        let mut schedule = Schedule::new(ranks(&[0, 1, 2, 3]), 0);
        assert_eq!(schedule.next_step().unwrap()[0], (Rank(0), ranks(&[1])));
        assert_eq!(schedule.next_step().unwrap()[0], (Rank(0), ranks(&[2])));
    }

    proptest! {
        #[test]
        fn complete_and_balanced(count in 1u32..60, length in 0u32..70, seed: u64) {
            let mut order: Vec<u32> = (0..count).collect();
            let mut rng = crate::rng::Rng::new(seed);
            for place in (1..order.len()).rev() {
                order.swap(place, rng.below(place as u64 + 1) as usize);
            }
            let mut schedule = Schedule::new(ranks(&order), length);
            let mut met = vec![0; (count * count) as usize];
            while let Some(step) = schedule.next_step() {
                prop_assert!(length == 0 || step.len() <= length as usize);
                let mut receivers = BTreeSet::new();
                for (from, targets) in step {
                    for to in targets {
                        prop_assert!(from != to);
                        prop_assert!(receivers.insert(to), "{to} has two senders");
                        met[(from.0 * count + to.0) as usize] += 1;
                    }
                }
            }
            for from in 0..count {
                for to in 0..count {
                    prop_assert_eq!(met[(from * count + to) as usize], u32::from(from != to));
                }
            }
        }
    }
}
