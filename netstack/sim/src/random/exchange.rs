//! Small jobs with random exchanges and faults: everything at once, drawn from a seed.
//!
//! Neighbour: [`super::Family`].
//!
//! Invariant: a seed means the same run until this file changes.

use netstack::exchange::{Active, PACKET, Scheme};
use netstack::rng::Rng;

use crate::baselines::exchange;
use crate::exchange::plan::{Exchange, Sizes};
use crate::net::fabric::Noise;
use crate::setup::{Fault, Setup};

/// Most ranks of a job.
const RANKS_MOST: u64 = 24;
/// Bytes that a rank sends in an exchange, about: comparing them is most of the work.
const BYTES_MOST: u64 = 400_000;

/// The run of a seed.
pub fn setup(seed: u64) -> Setup {
    let mut rng = Rng::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x0065_7863_6861);
    let ranks = 2 + rng.below(RANKS_MOST - 1) as u32;
    let scheme = match rng.below(12) {
        0 => Scheme::Published {
            active: match rng.below(u64::from(ranks) + 1) as u32 {
                0 => Active::Computed,
                active => Active::Given(active),
            },
        },
        1 => exchange::AT_ONCE,
        2 => exchange::AT_ONCE_RANDOM,
        3 => exchange::BLIND,
        4 => match rng.below(3) {
            0 => exchange::RANDOM_DELAY,
            1 => exchange::PRIORITY,
            _ => exchange::VOLUME,
        },
        _ => Scheme::Default,
    };
    let bytes = match rng.below(4) {
        0 => rng.below(6_000),
        1 => (PACKET as u64) << rng.below(6),
        _ => rng.below(2 * BYTES_MOST / u64::from(ranks)),
    };
    let mut setup = Setup::one_exchange(seed, ranks, bytes, scheme);
    let mut plan = Exchange::new(bytes, scheme);
    if rng.below(3) == 0 {
        plan.sizes = Sizes::Random(bytes);
    }
    setup.real = true;
    plan.times = 1 + rng.below(8) as u32 / 5;
    setup.wiring.rate = [5, 100, 1_000, 10_000][rng.below(4) as usize] * 1_000_000;
    setup.wiring.latency_ns = 1_000 + rng.below(500_000);
    setup.wiring.queue_bytes = 32_000 + rng.below(256_000);
    if rng.below(4) == 0 {
        setup.wiring.tree = vec![1 + rng.below(8) as u32, 8];
        setup.wiring.taper = vec![1 + rng.below(4) as u32];
        plan.knows_leaves = rng.below(2) == 0;
    }
    let mut some = |most: u64| match rng.below(3) {
        0 => rng.below(most) as u32,
        _ => 0,
    };
    setup.noise = Noise {
        loss_ppm: some(60_000),
        duplicate_ppm: some(50_000),
        reorder_ppm: some(50_000),
        reorder_ns: 20 * setup.wiring.latency_ns,
        jitter_ns: 0,
    };
    setup.pauses = rng.below(4) == 0;
    let limit = (plan.limit_ns(&setup) as u64).max(1_000_000);
    if rng.below(4) == 0 {
        let first = rng.below(ranks.into()) as u32;
        plan.late = (first..ranks).take(1 + rng.below(3) as usize).collect();
        plan.late_ns = rng.below(3 * limit);
    }
    if rng.below(6) == 0 {
        let dead = rng.below(ranks.into()) as u32;
        setup.faults = vec![(rng.below(2 * limit), Fault::Die(dead))];
        // A rank whose first exchange failed begins no second one, and one that needed nobody lost
        // would wait for it.
        plan.times = 1;
    }
    if matches!(scheme, Scheme::Published { .. }) && rng.below(3) == 0 {
        // Ranks that have nothing to do, and still wait for the master.
        plan.sizes = Sizes::Equal(0);
    }
    if ranks > 3 && rng.below(4) == 0 {
        plan.groups = 2 + rng.below(u64::from(ranks) / 2) as u32;
    }
    setup.exchange = Some(plan);
    setup.deadline_ns = 1_000 * limit + 900_000_000_000;
    setup
}
