//! Small clusters with random casts and faults: everything at once, drawn from a seed.
//!
//! Neighbour: `tests/broadcast.rs` runs hundreds of them.
//!
//! Invariant: a seed means the same run until this file changes.

use netstack::broadcast::published::Policy;
use netstack::broadcast::{PublishedOptions, Scheme};
use netstack::rng::Rng;

use super::fabric::Noise;
use super::setup::{CastPlan, Fault, Payload, Setup};
use super::summary::limit_ns;

/// Most nodes of a cluster.
const NODES_MOST: u64 = 40;
/// Bytes that all nodes of a run get together, about: hashing them is most of the work.
const BYTES_MOST: u64 = 12_000_000;

/// The command that runs a seed again.
pub fn replay(seed: u64) -> String {
    format!("cargo xtask sim broadcast --swarm --seed {seed}")
}

/// The run of a seed.
pub fn setup(seed: u64) -> Setup {
    let mut rng = Rng::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x0073_7761_726d);
    let nodes = 1 + rng.below(NODES_MOST) as u32;
    let mut setup = Setup::one_cast(seed, nodes, 1, Scheme::Auto);
    setup.payload = Payload::Real;
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
    let limit = (setup.casts.iter())
        .map(|plan| limit_ns(plan.bytes, setup.wiring.rate) as u64)
        .sum::<u64>()
        .max(100_000);
    if rng.below(5) == 0 {
        let count = 1 + rng.below(1 + u64::from(nodes) / 8);
        setup.slow = nodes_of(&mut rng, nodes, count);
    }
    faults(&mut rng, &mut setup, limit);
    setup.deadline_ns = 1_000 * limit + 900_000_000_000;
    setup
}

fn noise(rng: &mut Rng, latency_ns: u64) -> Noise {
    let mut some = |most: u64| match rng.below(3) {
        0 => rng.below(most) as u32,
        _ => 0,
    };
    Noise {
        loss_ppm: some(100_000),
        duplicate_ppm: some(50_000),
        reorder_ppm: some(100_000),
        reorder_ns: 20 * latency_ns,
        jitter_ns: u64::from(some(2)) * latency_ns,
    }
}

fn cast(rng: &mut Rng, nodes: u32, casts: u64) -> CastPlan {
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
        3 => Scheme::Tree { n1: 0 },
        4 => Scheme::Direct,
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
                setup.faults.push((back, Fault::Restart(node)));
            }
            2 => {
                let node = some(rng);
                setup.faults.push((at, Fault::Restart(node)));
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
