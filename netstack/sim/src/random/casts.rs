//! Small clusters with random casts and faults: everything at once, drawn from a seed.
//!
//! Neighbour: [`super::Family`].
//!
//! Invariant: a seed means the same run until this file changes.

use netstack::broadcast::published::estimate::Presence;
use netstack::broadcast::published::header::{Deal, Sizes};
use netstack::broadcast::published::{Choice, Policy};
use netstack::broadcast::{PublishedOptions, Scheme};
use netstack::rng::Rng;

use super::noise;
use crate::baselines;
use crate::casts::plan::CastPlan;
use crate::setup::{Fault, Setup};
use crate::summary::limit_ns;

/// Most nodes of a cluster.
const NODES_MOST: u64 = 40;
/// How many times slower than the link a cast is at most.
const SLOWER_MOST: u64 = 20;
/// Bytes that all nodes of a run get together, about: hashing them is most of the work.
const BYTES_MOST: u64 = 12_000_000;
/// Most casts at once and longest one-way latency of a cluster whose nodes are far apart.
const FAR_CASTS: u64 = 8;
const FAR_NS: u64 = 2_000_000;

/// The same clusters and faults, most casts by the published scheme with any of its options; casts
/// of different rates.
pub fn wide(seed: u64) -> Setup {
    let mut setup = plain(seed);
    let mut rng = Rng::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x7769_6465);
    let quiet = setup.faults.is_empty();
    for plan in &mut setup.casts {
        if rng.below(4) != 0 {
            plan.scheme = Scheme::Published(published(&mut rng, quiet));
        }
        if rng.below(3) == 0 {
            plan.rate = Some(setup.wiring.rate / (1 + rng.below(SLOWER_MOST)));
        }
    }
    setup.deadline_ns = deadline(limit(&setup));
    setup
}

/// The same clusters and faults, farther apart: up to 2 ms one way, and up to 8 casts at once.
pub fn far(seed: u64) -> Setup {
    let mut setup = plain(seed);
    let mut rng = Rng::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x0066_6172);
    let near = setup.wiring.latency_ns;
    let latency = 1_000 + rng.below(FAR_NS);
    setup.wiring.latency_ns = latency;
    setup.noise.reorder_ns = setup.noise.reorder_ns / near * latency;
    setup.noise.jitter_ns = setup.noise.jitter_ns / near * latency;
    let casts = 2 + rng.below(FAR_CASTS - 1);
    while (setup.casts.len() as u64) < casts {
        let cast = cast(&mut rng, setup.nodes, casts);
        setup.casts.push(cast);
    }
    setup.deadline_ns = deadline(limit(&setup));
    setup
}

/// The published scheme with anything that it leaves open. Without faults also without the
/// fallback: a dead node may keep such a cast from ending.
fn published(rng: &mut Rng, quiet: bool) -> PublishedOptions {
    let some = |rng: &mut Rng, most: u64| 1 + rng.below(most);
    PublishedOptions {
        fan_out: match rng.below(3) {
            0 => 0,
            _ => some(rng, 16) as u32,
        },
        layers: match rng.below(3) {
            0 => 3 + rng.below(3) as u8,
            _ => 2,
        },
        sizes: match rng.below(4) {
            0 => None,
            1 => {
                let runs = some(rng, 4);
                let run = |rng: &mut Rng| (some(rng, 6) as u16, some(rng, 9) as u16);
                Some(Sizes::Given((0..runs).map(|_| run(rng)).collect()))
            }
            // Fewer than nodes in the first layer, or more.
            _ => Some(Sizes::Equal(some(rng, 40) as u32)),
        },
        deal: match rng.below(4) {
            0 => {
                let chunks = some(rng, 4);
                Deal::Chosen((0..chunks).map(|_| rng.below(8) as u16).collect())
            }
            1 => Deal::Rounds(some(rng, 5) as u32),
            _ => Deal::Cyclic,
        },
        policy: [Policy::ChunkFirst, Policy::NodeFirst][rng.below(2) as usize],
        choice: [Choice::Random, Choice::Middle, Choice::Highest][rng.below(3) as usize],
        presence: [Presence::Served, Presence::Served, Presence::Always][rng.below(3) as usize],
        fallback: !quiet || rng.below(2) == 0,
    }
}

/// All schemes, the published one with its defaults; casts have the link's rate.
pub fn plain(seed: u64) -> Setup {
    let mut rng = Rng::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x0073_7761_726d);
    let nodes = 1 + rng.below(NODES_MOST) as u32;
    let mut setup = Setup::one_cast(seed, nodes, 1, Scheme::Auto);
    setup.real = true;
    setup.clocks = rng.below(2) == 0;
    setup.wiring.rate = [5, 100, 1_000, 10_000][rng.below(4) as usize] * 1_000_000;
    setup.wiring.latency_ns = 1_000 + rng.below(500_000);
    setup.wiring.queue_bytes = 32_000 + rng.below(256_000);
    if rng.below(4) == 0 {
        setup.wiring.tree = vec![1 + rng.below(8) as u32, 8];
        setup.wiring.taper = vec![1 + rng.below(4) as u32];
    }
    setup.noise = noise(&mut rng, setup.wiring.latency_ns);
    if rng.below(4) == 0 {
        setup.buffers = 2 + rng.below(16) as u32;
    }
    let casts = 1 + rng.below(8) / 6 + rng.below(8) / 7;
    setup.casts = (0..casts).map(|_| cast(&mut rng, nodes, casts)).collect();
    let limit = limit(&setup);
    if rng.below(5) == 0 {
        let count = 1 + rng.below(1 + u64::from(nodes) / 8);
        setup.slow = nodes_of(&mut rng, nodes, count);
    }
    faults(&mut rng, &mut setup, limit);
    setup.deadline_ns = deadline(limit);
    setup
}

/// What all casts together take at their rates at least, in nanoseconds.
fn limit(setup: &Setup) -> u64 {
    let limit = |plan: &CastPlan| {
        let rate = plan.rate.unwrap_or(setup.wiring.rate);
        limit_ns(plan.bytes, rate) as u64
    };
    setup.casts.iter().map(limit).sum::<u64>().max(100_000)
}

/// When everything must be over.
fn deadline(limit: u64) -> u64 {
    1_000 * limit + 900_000_000_000
}

/// A cast among so many nodes.
pub(super) fn cast(rng: &mut Rng, nodes: u32, casts: u64) -> CastPlan {
    let most = BYTES_MOST / u64::from(nodes) / casts;
    let bytes = match rng.below(4) {
        0 => 1 + rng.below(20_000),
        1 => 4096 << rng.below(6),
        _ => 1 + rng.below(most),
    };
    let members: Vec<u32> = match rng.below(3) {
        0 => {
            let count = 1 + rng.below(nodes.into());
            nodes_of(rng, nodes, count)
        }
        _ => (0..nodes).collect(),
    };
    let scheme = match rng.below(10) {
        8 => Scheme::Published(PublishedOptions::default()),
        9 => Scheme::Published(PublishedOptions {
            policy: Policy::NodeFirst,
            ..PublishedOptions::default()
        }),
        0 => Scheme::Grid {
            n1: rng.below(members.len() as u64 + 1) as u32,
        },
        1 => Scheme::Mesh,
        2 => Scheme::DoubleTree,
        3 => baselines::broadcast::tree(0),
        4 => baselines::broadcast::direct(),
        _ => Scheme::Auto,
    };
    let warm = match rng.below(4) {
        0 => (members.iter().copied())
            .filter(|_| rng.below(3) == 0)
            .collect(),
        _ => Vec::new(),
    };
    CastPlan {
        at_ns: rng.below(2) * rng.below(2_000_000),
        bytes: bytes.min(1 << 20),
        block_log2: Some(12 + rng.below(5) as u8),
        scheme,
        rate: None,
        table: None,
        members,
        warm,
        cancel_ns: None,
    }
}

fn faults(rng: &mut Rng, setup: &mut Setup, limit: u64) {
    let nodes = setup.nodes;
    let times = 2 * limit;
    let some = |rng: &mut Rng| rng.below(nodes.into()) as u32;
    for _ in 0..rng.below(4) {
        let at = rng.below(times);
        match rng.below(7) {
            0 => {
                let node = some(rng);
                setup.faults.push((at, Fault::Die(node)));
            }
            1 => {
                let node = some(rng);
                setup.faults.push((at, Fault::Die(node)));
                let back = at + rng.below(times);
                setup.faults.push((back, Fault::Boot(node)));
            }
            2 => {
                let node = some(rng);
                setup.faults.push((at, Fault::Boot(node)));
            }
            3 => {
                let node = some(rng);
                setup.faults.push((at, Fault::Part(node, 1)));
                let back = at + rng.below(times);
                setup.faults.push((back, Fault::Part(node, 0)));
            }
            4 => {
                let cast = rng.below(setup.casts.len() as u64) as usize;
                let node = some(rng);
                setup.faults.push((at, Fault::Join { cast, node }));
            }
            5 => {
                let cast = rng.below(setup.casts.len() as u64) as usize;
                setup.casts[cast].cancel_ns = Some(at);
            }
            _ => {
                let node = some(rng);
                setup.faults.push((at, Fault::Corrupt(node)));
            }
        }
    }
    if rng.below(8) == 0 {
        let at = rng.below(times);
        setup.faults.push((at, Fault::CrashControl));
        let back = at + 1 + rng.below(times);
        setup.faults.push((back, Fault::RestartControl));
    }
}

/// Some nodes, each once, in ascending order.
fn nodes_of(rng: &mut Rng, nodes: u32, count: u64) -> Vec<u32> {
    let mut chosen: Vec<u32> = (0..count).map(|_| rng.below(nodes.into()) as u32).collect();
    chosen.sort_unstable();
    chosen.dedup();
    chosen
}
