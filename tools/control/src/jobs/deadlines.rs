//! When the present state of a job must be over. Times are microseconds of the control clock.
//!
//! Key type: [`Deadlines`]. Thousands of jobs wait without a deadline, so those that have one are
//! kept apart, in order.
//!
//! Invariant: a job has one deadline at most.

use std::collections::{BTreeMap, BTreeSet};

/// Deadlines of jobs.
#[derive(Debug, Default)]
pub struct Deadlines {
    of: BTreeMap<u64, u64>,
    order: BTreeSet<(u64, u64)>,
}

impl Deadlines {
    /// Gives a job another deadline, or none.
    pub fn set(&mut self, job: u64, at_us: Option<u64>) {
        if let Some(before) = self.of.remove(&job) {
            self.order.remove(&(before, job));
        }
        if let Some(at_us) = at_us {
            self.of.insert(job, at_us);
            self.order.insert((at_us, job));
        }
    }

    /// The deadline of a job.
    pub fn of(&self, job: u64) -> Option<u64> {
        self.of.get(&job).copied()
    }

    /// The next one.
    pub fn next_us(&self) -> Option<u64> {
        self.order.first().map(|(at_us, _)| *at_us)
    }

    /// Takes those that have passed; by number of the job.
    pub fn take_due(&mut self, now_us: u64) -> BTreeSet<u64> {
        let mut due = BTreeSet::new();
        while let Some(&(at_us, job)) = self.order.first()
            && at_us <= now_us
        {
            self.set(job, None);
            due.insert(job);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_one_comes_first_and_each_once() {
        let mut deadlines = Deadlines::default();
        deadlines.set(1, Some(30));
        deadlines.set(2, Some(10));
        deadlines.set(3, Some(20));
        deadlines.set(1, Some(5));
        deadlines.set(3, None);
        assert_eq!((deadlines.next_us(), deadlines.of(1)), (Some(5), Some(5)));
        assert_eq!(deadlines.take_due(10), BTreeSet::from([1, 2]));
        assert_eq!((deadlines.next_us(), deadlines.of(2)), (None, None));
    }
}
