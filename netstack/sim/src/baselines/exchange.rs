//! All-to-all exchanges without rounds that take turns.
//!
//! - [`AT_ONCE`], [`AT_ONCE_RANDOM`], [`BLIND`]: each rank sends its blocks unasked, in one order
//!   or another, without waiting for anything.
//! - [`RANDOM_DELAY`], [`PRIORITY`], [`VOLUME`]: one sender and one receiver at a time; the methods
//!   that the publication of the grouped exchange compares itself with.
//! - `barrier` is a name for the published method with all ranks active: the rounds with a wait for
//!   all after each.
//!
//! Key type: [`Scheme`]. Neighbour: [`netstack::exchange::Baseline`] says what a scheme may change.
//!
//! Invariant: two schemes of one name are one.

use netstack::exchange::rounds::Order;
use netstack::exchange::{Active, Baseline, Conflict, Scheme};
use netstack::rng::Rng;

/// Everything at once: each rank sends its blocks in the order of the ranks' numbers.
pub const AT_ONCE: Scheme = Scheme::Compared(&AtOnce);
/// Everything at once, in an order drawn at random by each rank.
pub const AT_ONCE_RANDOM: Scheme = Scheme::Compared(&AtOnceRandom);
/// Blocks unasked in the order of the rounds, without waiting for anything.
pub const BLIND: Scheme = Scheme::Compared(&Blind);
/// Each rank sends to one at a time and receives from one at a time; who comes to a receiver that
/// is busy tries again after a random time, which grows with every conflict.
pub const RANDOM_DELAY: Scheme = Scheme::Compared(&RandomDelay);
/// As that, but who comes waits: of those the one with the greatest weight goes first, which is its
/// rank.
pub const PRIORITY: Scheme = Scheme::Compared(&Priority);
/// As that, but the one with the longest block goes first.
pub const VOLUME: Scheme = Scheme::Compared(&Volume);

/// All names, for a command line.
pub const NAMES: [&str; 7] = [
    "at-once",
    "at-once-random",
    "blind",
    "barrier",
    "random-delay",
    "priority",
    "volume",
];

/// The scheme with this name, one of [`NAMES`]; None: there is none.
pub fn parse(name: &str) -> Option<Scheme> {
    if name == "barrier" {
        return Some(Scheme::Published {
            active: Active::All,
        });
    }
    let all: [&'static dyn Baseline; 6] = [
        &AtOnce,
        &AtOnceRandom,
        &Blind,
        &RandomDelay,
        &Priority,
        &Volume,
    ];
    let found = all.into_iter().find(|baseline| baseline.name() == name);
    found.map(Scheme::Compared)
}

#[derive(Debug)]
struct AtOnce;

impl Baseline for AtOnce {
    fn name(&self) -> &'static str {
        "at-once"
    }

    fn sequence(&self, order: &Order, me: u32, _: &mut Rng) -> Option<Vec<u32>> {
        let rounds = (0..order.rounds()).map(|to| order.round(me, to));
        Some(rounds.collect())
    }
}

#[derive(Debug)]
struct AtOnceRandom;

impl Baseline for AtOnceRandom {
    fn name(&self) -> &'static str {
        "at-once-random"
    }

    /// By Fisher and Yates.
    fn sequence(&self, order: &Order, _: u32, rng: &mut Rng) -> Option<Vec<u32>> {
        let mut all: Vec<u32> = (0..order.rounds()).collect();
        for place in (1..all.len()).rev() {
            all.swap(place, rng.below(place as u64 + 1) as usize);
        }
        Some(all)
    }
}

#[derive(Debug)]
struct Blind;

impl Baseline for Blind {
    fn name(&self) -> &'static str {
        "blind"
    }
}

#[derive(Debug)]
struct RandomDelay;

impl Baseline for RandomDelay {
    fn name(&self) -> &'static str {
        "random-delay"
    }

    fn conflict(&self) -> Option<Conflict> {
        Some(Conflict::Retry)
    }
}

#[derive(Debug)]
struct Priority;

impl Baseline for Priority {
    fn name(&self) -> &'static str {
        "priority"
    }

    fn conflict(&self) -> Option<Conflict> {
        Some(Conflict::Heaviest(|from, _| from.0.into()))
    }
}

#[derive(Debug)]
struct Volume;

impl Baseline for Volume {
    fn name(&self) -> &'static str {
        "volume"
    }

    fn conflict(&self) -> Option<Conflict> {
        Some(Conflict::Heaviest(|_, bytes| bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_a_scheme_and_none_of_a_launch() {
        for name in NAMES {
            assert!(parse(name).is_some(), "{name}");
            assert!(Scheme::parse(name).is_err(), "{name}");
        }
        assert_eq!(parse("volume"), Some(VOLUME));
        assert_ne!(parse("volume"), Some(PRIORITY));
        assert_eq!(parse("default"), None);
    }

    #[test]
    fn every_order_has_each_round_once() {
        let (order, mut rng) = (Order::new(12, 4), Rng::new(7));
        for baseline in [&AtOnce as &dyn Baseline, &AtOnceRandom] {
            let mut rounds = baseline.sequence(&order, 5, &mut rng).unwrap();
            rounds.sort_unstable();
            assert!(rounds.into_iter().eq(0..12), "{baseline:?}");
        }
    }
}
