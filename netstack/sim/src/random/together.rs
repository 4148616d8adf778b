//! Sessions, jobs whose ranks exchange and send messages, casts and the overlay on one small
//! cluster, with every fault that there is, drawn from a seed. From some time on nothing goes wrong
//! any more; then everything has to come to its end, and nothing may be left of it.
//!
//! Neighbour: [`super::Family`].
//!
//! Invariant: a seed means the same run until this file changes.

use netstack::overlay::Filter;
use netstack::rng::Rng;
use netstack::time::Micros;

use super::{casts, noise, overlay};
use crate::jobs::plan::Jobs;
use crate::jobs::program::{Plan, Step, Weight};
use crate::net::fabric::Way;
use crate::overlay::plan::Monitoring;
use crate::scenario::{quiet, random_plans, share_programs};
use crate::setup::{Fault, Setup};

/// Most nodes of a cluster.
const NODES_MOST: u64 = 9;
/// Until when things go wrong, in milliseconds.
const TROUBLED_MS: u64 = 25_000;
/// How long everything may take to be well again after that: what is kept for a run of control that
/// is gone, 60 seconds, and twice the 30 seconds for which nodes with a rank are waited for.
const HEALED_WITHIN_MS: u64 = 300_000;
/// Bytes that a rank exchanges with each other one at most.
const BLOCK_MOST: u64 = 60_000;
/// Programs are small: there is much else.
const WEIGHT: Weight = Weight {
    steps: 8,
    write: 8_000,
    file: 120_000,
    compute: Micros::from_millis(1_500),
};

/// The run of a seed.
pub fn setup(seed: u64) -> Setup {
    let mut rng = Rng::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x746f_6765_7468_6572);
    let nodes = 2 + rng.below(NODES_MOST - 1) as u32;
    let mut setup = quiet(seed, nodes as usize);
    setup.wiring.rate = [20, 100, 1_000][rng.below(3) as usize] * 1_000_000;
    setup.control_factor = 1 + rng.below(10) as u32;
    setup.wiring.latency_ns = 10_000 + rng.below(1_000_000);
    setup.wiring.queue_bytes = 64_000 + rng.below(256_000);
    setup.noise = noise(&mut rng, setup.wiring.latency_ns);
    setup.clocks = rng.below(2) == 0;
    setup.pauses = rng.below(4) == 0;
    setup.boot_within_ns = Some(1 + rng.below(2_000_000_000));
    setup.jobs = Some(jobs(&mut rng, nodes));
    cast(&mut rng, &mut setup);
    let mut monitoring = Monitoring::one_stream(2, Filter::Sum);
    monitoring.layout.fan_out = 2 + rng.below(4) as u32;
    monitoring.streams = (0..1 + rng.below(2))
        .map(|_| overlay::stream(&mut rng, nodes))
        .collect();
    setup.overlay = Some(monitoring);
    for _ in 0..rng.below(9) {
        fault(&mut rng, &mut setup);
    }
    setup.faults.push((TROUBLED_MS * 1_000_000, Fault::Heal));
    setup.faults.sort_by_key(|&(at, _)| at);
    setup.deadline_ns = (TROUBLED_MS + HEALED_WITHIN_MS) * 1_000_000;
    setup
}

fn jobs(rng: &mut Rng, nodes: u32) -> Jobs {
    let count = 1 + rng.below(4);
    let mut plans = random_plans(rng, nodes as usize, count, WEIGHT);
    if rng.below(3) == 0 {
        share_programs(rng, &mut plans, 2);
    }
    for plan in &mut plans {
        talk(rng, plan);
        plan.launch_at = Micros(rng.below(15_000_000));
        plan.refused = rng.below(20) == 0;
        if rng.below(8) == 0 {
            plan.cancel_after = Some(Micros(rng.below(8_000_000)));
        }
    }
    Jobs {
        warm_pages: 20 + rng.below(200) as u32,
        plans,
        ..Jobs::default()
    }
}

/// The ranks of a program exchange, and send messages around.
fn talk(rng: &mut Rng, plan: &mut Plan) {
    for _ in 0..rng.below(4) {
        let at = rng.below(plan.steps.len() as u64 + 1) as usize;
        let bytes = match rng.below(3) {
            0 => rng.below(2_000),
            _ => rng.below(BLOCK_MOST),
        };
        let step = match rng.below(2) {
            0 => Step::Exchange(bytes),
            _ => Step::Message(bytes),
        };
        plan.steps.insert(at, step);
    }
}

fn cast(rng: &mut Rng, setup: &mut Setup) {
    let count = 1 + rng.below(3);
    for _ in 0..count {
        let mut plan = casts::cast(rng, setup.nodes, count);
        plan.at_ns = 1_000_000_000 + rng.below(15_000_000_000);
        plan.bytes = plan.bytes.min(400_000);
        // What a node holds it has by the casts of this run.
        plan.warm.clear();
        if rng.below(8) == 0 {
            plan.cancel_ns = Some(plan.at_ns + rng.below(4_000_000_000));
        }
        setup.casts.push(plan);
    }
    if rng.below(4) == 0 {
        setup.buffers = 2 + rng.below(16) as u32;
    }
    if rng.below(4) == 0 {
        setup.full = vec![rng.below(setup.nodes.into()) as u32];
    }
}

fn fault(rng: &mut Rng, setup: &mut Setup) {
    let node = rng.below(setup.nodes.into()) as u32;
    let at = rng.below(TROUBLED_MS * 1_000_000);
    // Most are over soon, some last until all is healed.
    let length = match rng.below(3) {
        0 => rng.below(1_000_000_000),
        _ => rng.below(15_000_000_000),
    };
    let host = rng.below(u64::from(setup.nodes) + 1) as u32;
    let (begin, end) = match rng.below(18) {
        0 => (Fault::Die(node), Some(Fault::Boot(node))),
        1 => (Fault::Boot(node), None),
        2 => (Fault::Leave(node), Some(Fault::Boot(node))),
        3 => (Fault::AskLeave(node), Some(Fault::Boot(node))),
        4 => (Fault::Drop(node, rng.below(4)), None),
        5 => (Fault::Part(node, 1), Some(Fault::Mend(node))),
        6 => (Fault::Mute(node, Way::Out), Some(Fault::Mend(node))),
        7 => (Fault::Mute(node, Way::In), Some(Fault::Mend(node))),
        8 | 9 => (Fault::CrashControl, Some(Fault::RestartControl)),
        10 => {
            let other = noise(rng, setup.wiring.latency_ns);
            (Fault::Noise(other), Some(Fault::Noise(setup.noise)))
        }
        11 => (Fault::Stop(node), Some(Fault::Continue(node))),
        12 => (Fault::Compute(node), Some(Fault::Idle(node))),
        13 => {
            // Half of them back, by no more than what a machine may be silent for and lives.
            let by = rng.below(12_000_000) as i64;
            let by = if by % 2 == 0 { by } else { -by / 6 };
            (Fault::Jump(host, by), None)
        }
        14 => (Fault::Corrupt(node), None),
        15 => {
            let cast = rng.below(setup.casts.len() as u64) as usize;
            (Fault::Join { cast, node }, None)
        }
        // Nobody is left without a process above it while one node has room.
        16 => (Fault::Tight(node.max(1)), Some(Fault::Replan)),
        _ => (Fault::KillCp(rng.below(3) as u32), None),
    };
    setup.faults.push((at, begin));
    if let Some(end) = end {
        let back = (at + length).min(TROUBLED_MS * 1_000_000 - 1);
        setup.faults.push((back, end));
    }
}
