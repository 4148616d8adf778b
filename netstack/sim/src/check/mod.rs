//! What every change of the protocols has to pass: random scenarios, and the goals of the methods.
//!
//! Key types: [`goals::Goal`], [`Score`]. Neighbours: [`crate::random::Family`] has the random
//! scenarios, `bin/hearth-sim.rs` prints
//! what comes of them.
//!
//! Invariants: a run that fails is told with the command that replays it, and keeps no other run
//! from being made. Runs share nothing, so they are made on all processors in any order.

pub mod goals;

use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::random::{FIRST_ROTATING, Family};

/// Seeds of every family that each check runs.
pub const FIXED_SEEDS: u64 = 250;
/// Seeds of every family that another check does not run.
pub const ROTATING_SEEDS: u64 = 200;
const ROTATING_MASK: u64 = (1 << 48) - 1;
/// A soak ends early when so many runs have failed: more tell no more.
const SOAK_FAILURES_MOST: u64 = 20;
/// How often a soak says how far it is.
const SOAK_SAYS: Duration = Duration::from_secs(60);

/// Passed and failed runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Score {
    /// Runs in which everything held.
    pub passed: u64,
    /// Runs in which something did not.
    pub failed: u64,
}

impl Score {
    /// Counts a run.
    pub fn count(&mut self, has_passed: bool) {
        match has_passed {
            true => self.passed += 1,
            false => self.failed += 1,
        }
    }

    /// Adds another's runs.
    pub fn add(&mut self, other: Score) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

/// Makes something of every item, on all processors; the results are in the items' order.
pub fn on_all_processors<T: Sync, R: Send>(items: &[T], make: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    let next = AtomicUsize::new(0);
    let made = Mutex::new(Vec::with_capacity(items.len()));
    std::thread::scope(|scope| {
        for _ in 0..threads.min(items.len()) {
            scope.spawn(|| {
                while let Some((at, item)) = claim(items, &next) {
                    let result = make(item);
                    made.lock()
                        .expect("no thread has panicked")
                        .push((at, result));
                }
            });
        }
    });
    let mut made = made.into_inner().expect("no thread has panicked");
    made.sort_by_key(|(at, _)| *at);
    made.into_iter().map(|(_, result)| result).collect()
}

fn claim<'a, T>(items: &'a [T], next: &AtomicUsize) -> Option<(usize, &'a T)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    items.get(at).map(|item| (at, item))
}

/// Where the seeds begin that rotate with `number`, such as that of a commit.
#[must_use]
pub fn rotating_from(number: u64) -> u64 {
    FIRST_ROTATING + (number & ROTATING_MASK)
}

/// The seeds of a family in a check: the fixed ones, those that found a defect once, and the
/// rotating.
#[must_use]
pub fn seeds(family: Family, rotating_from: u64) -> Vec<u64> {
    let rotating = rotating_from..rotating_from + ROTATING_SEEDS;
    let fixed = 1..=FIXED_SEEDS;
    let is_other = |seed: &u64| !fixed.contains(seed) && !rotating.contains(seed);
    let found = family.found().iter().copied().filter(is_other);
    fixed.clone().chain(found).chain(rotating.clone()).collect()
}

/// Runs these seeds of a family on all processors; what failed is printed.
pub fn run(family: Family, seeds: &[u64]) -> Score {
    let mut score = Score::default();
    for outcome in on_all_processors(seeds, |seed| family.run(*seed)) {
        score.count(outcome.is_ok());
        if let Err(what) = outcome {
            println!("FAILED  {what}");
        }
    }
    score
}

/// Runs seed after seed of all families until the time is over; what failed is printed at once.
pub fn soak(first: u64, time: Duration) -> Score {
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
    let (begin, next) = (Instant::now(), AtomicUsize::new(0));
    let (state, is_over) = (
        Mutex::new((Score::default(), Instant::now())),
        AtomicBool::new(false),
    );
    let families = Family::ALL.len();
    let work = || {
        while begin.elapsed() < time && !is_over.load(Ordering::Relaxed) {
            let turn = next.fetch_add(1, Ordering::Relaxed);
            let seed = first.wrapping_add((turn / families) as u64);
            let outcome = Family::ALL[turn % families].run(seed);
            let mut state = state.lock().expect("no thread has panicked");
            let (score, said) = &mut *state;
            score.count(outcome.is_ok());
            if let Err(what) = outcome {
                println!("FAILED  {what}");
                is_over.store(score.failed >= SOAK_FAILURES_MOST, Ordering::Relaxed);
            }
            if said.elapsed() >= SOAK_SAYS {
                *said = Instant::now();
                let minutes = begin.elapsed().as_secs() / 60;
                let (passed, failed) = (score.passed, score.failed);
                println!("after {minutes} min: {passed} passed, {failed} failed; at seed {seed}");
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let (score, _) = state.into_inner().expect("no thread has panicked");
    score
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_their_items() {
        let items: Vec<u64> = (0..100).collect();
        let squares = on_all_processors(&items, |item| item * item);
        assert!(
            squares
                .iter()
                .enumerate()
                .all(|(at, square)| *square == (at * at) as u64)
        );
        assert!(on_all_processors(&[] as &[u64], |item| *item).is_empty());
    }

    #[test]
    fn no_seed_is_run_twice_and_rotating_ones_are_others_for_another_commit() {
        for family in Family::ALL {
            let here = seeds(family, rotating_from(7));
            let mut sorted = here.clone();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len(), here.len(), "{family:?}");
            let rotating = |number| {
                let from = rotating_from(number);
                from..from + ROTATING_SEEDS
            };
            assert!(rotating(7).all(|seed| here.contains(&seed)));
            assert!(family.found().iter().all(|seed| here.contains(seed)));
            assert!(!rotating(7 + ROTATING_SEEDS).any(|seed| here.contains(&seed)));
        }
        assert!(rotating_from(u64::MAX) < 1 << 49);
    }

    #[test]
    fn a_soak_ends_in_time() {
        let begin = Instant::now();
        let score = soak(1, Duration::from_millis(100));
        assert!(score.passed > 0 && score.failed == 0, "{score:?}");
        assert!(begin.elapsed() < Duration::from_secs(60));
    }
}
