//! Small clusters with random streams and faults: everything at once, drawn from a seed
//! ([`setup`]); and such whose tree is made anew again and again while streams open and close and
//! programs compute ([`moving`]).
//!
//! Neighbour: [`super::Family`].
//!
//! Invariant: a seed means the same run until this file changes.

use netstack::ids::NodeId;
use netstack::overlay::placement::{FuzzyConfig, Policy};
use netstack::overlay::{Filter, MetricId, Scope, StreamSpec, Sync};
use netstack::rng::Rng;
use netstack::time::Micros;

use super::noise;
use crate::overlay::plan::{BUILD_NS, Monitoring};
use crate::setup::{Fault, Setup};

/// Most nodes of a cluster.
const NODES_MOST: u64 = 40;

/// A run in which the tree is made anew again and again. In two of three nobody dies: its books are
/// settled to the last sample.
pub fn moving(seed: u64) -> Setup {
    let mut rng = Rng::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x6d6f_7669_6e67_2121);
    let nodes = 4 + rng.below(24) as u32;
    let mut setup = Setup::one_stream(seed, nodes, 2, Filter::Sum);
    let mut plan = Monitoring::one_stream(2, Filter::Sum);
    plan.settle = true;
    setup.clocks = rng.below(2) == 0;
    plan.layout.fan_out = 2 + rng.below(5) as u32;
    setup.wiring.latency_ns = 1_000 + rng.below(1_000_000);
    setup.noise.loss_ppm = [0, 10_000, 100_000][rng.below(3) as usize];
    plan.flow_ns = 25_000_000_000;
    let moment = |rng: &mut Rng| 1_000_000_000 + rng.below(22_000_000_000);
    plan.streams = vec![waiting(&mut rng, nodes)];
    for _ in 0..1 + rng.below(4) {
        let (from, stream) = (moment(&mut rng), waiting(&mut rng, nodes));
        plan.opens.push((from, stream));
        if rng.below(4) > 0 {
            let until = from + rng.below(6_000_000_000);
            plan.closes.push((until, plan.opens.len()));
        }
    }
    for _ in 0..1 + rng.below(4) {
        setup.faults.push((moment(&mut rng), Fault::Replan));
    }
    for _ in 0..rng.below(1 + u64::from(nodes) / 2) {
        let node = rng.below(nodes.into()) as u32;
        let (from, length) = (moment(&mut rng), rng.below(9_000_000_000));
        setup.faults.push((from, Fault::Compute(node)));
        setup.faults.push((from + length, Fault::Idle(node)));
    }
    // Nobody is left without a process above it while one node has room.
    for _ in 0..rng.below(3) {
        let node = 1 + rng.below(u64::from(nodes) - 1) as u32;
        setup.faults.push((moment(&mut rng), Fault::Tight(node)));
    }
    match rng.below(6) {
        0 | 1 => {
            let number = rng.below(6) as u32;
            setup.faults.push((moment(&mut rng), Fault::KillCp(number)));
        }
        2 => {
            let node = rng.below(nodes.into()) as u32;
            let (from, length) = (moment(&mut rng), rng.below(8_000_000_000));
            setup.faults.push((from, Fault::Stop(node)));
            setup.faults.push((from + length, Fault::Continue(node)));
        }
        _ => {}
    }
    begin(&mut setup, plan);
    setup
}

/// Faults are counted from when the tree is made.
fn begin(setup: &mut Setup, plan: Monitoring) {
    setup.faults.sort_by_key(|&(at, _)| at);
    setup.faults.iter_mut().for_each(|(at, _)| *at += BUILD_NS);
    setup.overlay = Some(plan);
}

/// A stream that holds values for long.
fn waiting(rng: &mut Rng, nodes: u32) -> StreamSpec {
    let mut spec = stream(rng, nodes);
    spec.sync = [Sync::WaitAll, Sync::WaitAll, Sync::TimeOut][rng.below(3) as usize];
    spec.hold = Micros(spec.period.0 / 2 + rng.below(spec.period.0 / 2)).max(Micros(1));
    spec
}

/// The run of a seed.
pub fn setup(seed: u64) -> Setup {
    let mut rng = Rng::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x6f76_6572_6c61_7973);
    let nodes = 2 + rng.below(NODES_MOST) as u32;
    let mut setup = Setup::one_stream(seed, nodes, 2, Filter::Sum);
    let mut plan = Monitoring::one_stream(2, Filter::Sum);
    setup.clocks = rng.below(2) == 0;
    plan.dedicated = match rng.below(4) {
        0 => rng.below(1 + u64::from(nodes) / 4) as u32,
        _ => 0,
    };
    plan.layout.fan_out = 2 + rng.below(8) as u32;
    if rng.below(3) == 0 {
        plan.layout.policy = Policy::Comprehensive(FuzzyConfig::default());
    }
    setup.wiring.latency_ns = 1_000 + rng.below(2_000_000);
    setup.noise = noise(&mut rng, setup.wiring.latency_ns);
    plan.streams = (0..1 + rng.below(4))
        .map(|_| stream(&mut rng, nodes))
        .collect();
    for stream in 0..plan.streams.len() {
        if rng.below(6) == 0 {
            plan.closes
                .push((2_000_000_000 + rng.below(8_000_000_000), stream));
        }
    }
    plan.flow_ns = 12_000_000_000;
    faults(&mut rng, &mut setup);
    begin(&mut setup, plan);
    setup
}

/// A stream among so many nodes.
pub(super) fn stream(rng: &mut Rng, nodes: u32) -> StreamSpec {
    let filter = match rng.below(7) {
        0 => Filter::Min,
        1 => Filter::Max,
        2 => Filter::Avg,
        3 => Filter::Classes,
        4 => Filter::Histogram(vec![0, 1, 10, 1000]),
        5 => Filter::Concat,
        _ => Filter::Sum,
    };
    let metrics = (1..=2 + rng.below(10) as u16).map(MetricId).collect();
    let period = Micros::from_millis([100, 250, 1_000, 3_000][rng.below(4) as usize]);
    let mut spec = StreamSpec::new(metrics, filter, period);
    spec.sync = [Sync::TimeOut, Sync::TimeOut, Sync::WaitAll, Sync::None][rng.below(4) as usize];
    spec.hold = Micros(5_000 + rng.below(period.0 / 2));
    if rng.below(4) == 0 {
        let first = rng.below(nodes.into()) as u32;
        let last = first + rng.below(u64::from(nodes - first)) as u32;
        spec.scope = Scope::Nodes(vec![(NodeId(first), NodeId(last))]);
    }
    spec
}

fn faults(rng: &mut Rng, setup: &mut Setup) {
    let nodes = setup.nodes;
    let some = |rng: &mut Rng| rng.below(nodes.into()) as u32;
    for _ in 0..rng.below(5) {
        let at = rng.below(10_000_000_000);
        let later = at + rng.below(8_000_000_000);
        match rng.below(5) {
            0 => {
                let node = some(rng);
                setup.faults.push((at, Fault::Die(node)));
            }
            1 => setup.faults.push((at, Fault::KillCp(rng.below(6) as u32))),
            2 => {
                let node = some(rng);
                setup.faults.push((at, Fault::Boot(node)));
            }
            3 => {
                let node = some(rng);
                setup.faults.push((at, Fault::Stop(node)));
                setup.faults.push((later, Fault::Continue(node)));
            }
            _ => {
                let node = some(rng);
                setup.faults.push((at, Fault::Part(node, 1)));
                setup.faults.push((later, Fault::Part(node, 0)));
            }
        }
    }
}
