//! Named runs. Each is a function of a seed and a number of nodes.

use netstack::ids::{JobId, NodeId};
use netstack::retention::{Keep, Retention, Reuse};
use netstack::rng::Rng;
use netstack::time::Micros;

use crate::jobs::plan::Jobs;
use crate::jobs::program::{Plan, Step, Weight};
use crate::net::attacker::Attack;
use crate::net::fabric::Noise;
use crate::setup::{Fault, Setup};
use crate::summary::Summary;
use crate::world::World;

/// A named run.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// What it is called on the command line.
    pub name: &'static str,
    /// What it shows.
    pub about: &'static str,
    /// Nodes unless told otherwise.
    pub nodes: usize,
    build: fn(u64, usize) -> Setup,
}

/// All scenarios.
pub const ALL: [Scenario; 10] = [
    Scenario {
        name: "join",
        about: "all nodes join through 10 % loss, reordering and duplication; control restarts",
        nodes: 1024,
        build: join,
    },
    Scenario {
        name: "jobs",
        about: "jobs with output through loss",
        nodes: 8,
        build: jobs,
    },
    Scenario {
        name: "slow",
        about: "slow readers hold programs back",
        nodes: 4,
        build: slow,
    },
    Scenario {
        name: "pages",
        about: "large programs read page by page",
        nodes: 4,
        build: pages,
    },
    Scenario {
        name: "cancel",
        about: "jobs are cancelled at any time",
        nodes: 4,
        build: cancel,
    },
    Scenario {
        name: "crash",
        about: "nodes crash and boot again",
        nodes: 6,
        build: crash,
    },
    Scenario {
        name: "cut",
        about: "links are cut and mended",
        nodes: 6,
        build: cut,
    },
    Scenario {
        name: "restart",
        about: "control restarts under jobs",
        nodes: 6,
        build: restart,
    },
    Scenario {
        name: "warm",
        about: "programs launched again where they are held, under a limit, with drops and restarts",
        nodes: 8,
        build: warm,
    },
    Scenario {
        name: "relaunch",
        about: "one program on all nodes, again and again, through loss and a restart of control",
        nodes: 1024,
        build: relaunch,
    },
];

impl Scenario {
    /// The scenario of this name.
    pub fn find(name: &str) -> Option<Scenario> {
        ALL.into_iter().find(|scenario| scenario.name == name)
    }

    /// What the run is made of.
    pub fn setup(&self, seed: u64, nodes: usize) -> Setup {
        (self.build)(seed, nodes)
    }

    /// Runs it; the error is a text for people, with the command that replays the run.
    pub fn run(&self, seed: u64, nodes: usize, attack: Attack) -> Result<Summary, String> {
        let mut setup = self.setup(seed, nodes);
        setup.attack = attack;
        World::new(setup)?.run().map_err(|failure| {
            let (name, attack) = (self.name, attack.to_options());
            let replay = format!("cargo xtask sim {name} --seed {seed} --nodes {nodes}{attack}");
            format!("{failure}\nreplay: {replay}")
        })
    }
}

pub(crate) fn at_ms(millis: u64) -> u64 {
    millis * 1_000_000
}

/// A quiet gigabit network of nodes that faults switch on, which join control.
pub fn quiet(seed: u64, nodes: usize) -> Setup {
    let mut setup = Setup::quiet(seed, nodes as u32);
    setup.wiring.rate = 1_000_000_000;
    setup.wiring.latency_ns = 50_000;
    setup.wiring.queue_bytes = 1 << 20;
    setup.control_factor = 10;
    setup.noise.jitter_ns = 5_000;
    setup.real = true;
    setup.boot_within_ns = None;
    setup.jobs = Some(Jobs::default());
    setup
}

/// A cluster whose network loses, reorders and duplicates so many datagrams each, and whose nodes
/// boot within `spread` of each other.
pub(crate) fn cluster(seed: u64, nodes: usize, loss_percent: u32, spread: Micros) -> (Setup, Rng) {
    let mut rng = Rng::new(seed ^ 0x7363_656e_6172_696f);
    let mut setup = quiet(seed, nodes);
    setup.wiring.latency_ns = 200_000;
    setup.noise = Noise {
        loss_ppm: loss_percent * 10_000,
        duplicate_ppm: loss_percent * 10_000,
        reorder_ppm: loss_percent * 10_000,
        reorder_ns: 20_000_000,
        jitter_ns: 300_000,
    };
    let boot = |node| (rng.below(spread.0 + 1) * 1000, Fault::Boot(node));
    setup.faults = (0..nodes as u32).map(boot).collect();
    (setup, rng)
}

/// What jobs of a setup are.
pub(crate) fn jobs_of(setup: &mut Setup) -> &mut Jobs {
    setup.jobs.get_or_insert_default()
}

pub(crate) fn ids(nodes: impl IntoIterator<Item = usize>) -> Vec<NodeId> {
    nodes
        .into_iter()
        .map(|index| NodeId(index as u32))
        .collect()
}

pub(crate) const LIGHT: Weight = Weight {
    steps: 12,
    write: 20_000,
    file: 300_000,
    compute: Micros::from_millis(3_000),
};

/// Jobs over random sets of nodes, a few per node.
pub(crate) fn random_plans(rng: &mut Rng, nodes: usize, count: u64, weight: Weight) -> Vec<Plan> {
    let plan = |number| {
        let size = 1 + rng.below(nodes as u64) as usize;
        let first = rng.below(nodes as u64) as usize;
        let places = ids((0..size).map(|index| (first + index) % nodes));
        let mut plan = Plan::random(JobId(number), places, weight, rng);
        plan.launch_at = Micros(rng.below(8_000_000));
        plan
    };
    (1..=count).map(plan).collect()
}

fn join(seed: u64, nodes: usize) -> Setup {
    // All nodes are switched on at once, a hundredth of a second apart at most.
    let (mut setup, _) = cluster(seed, nodes, 10, Micros::from_millis(10));
    setup.faults.push((at_ms(12_000), Fault::CrashControl));
    setup.faults.push((at_ms(14_000), Fault::RestartControl));
    setup.deadline_ns = at_ms(30_000);
    setup
}

fn jobs(seed: u64, nodes: usize) -> Setup {
    let (mut setup, mut rng) = cluster(seed, nodes, 10, Micros::from_millis(500));
    jobs_of(&mut setup).plans = random_plans(&mut rng, nodes, 6, LIGHT);
    setup
}

fn slow(seed: u64, nodes: usize) -> Setup {
    let (mut setup, mut rng) = cluster(seed, nodes, 5, Micros::from_millis(500));
    jobs_of(&mut setup).plans = random_plans(&mut rng, nodes, 3, LIGHT);
    for plan in &mut jobs_of(&mut setup).plans {
        plan.steps.push(Step::Write(150_000));
        plan.reader_rate = 20_000;
    }
    setup
}

fn pages(seed: u64, nodes: usize) -> Setup {
    let (mut setup, mut rng) = cluster(seed, nodes, 5, Micros::from_millis(500));
    setup.wiring.rate = 50_000_000;
    setup.control_factor = 2;
    setup.wiring.queue_bytes = 64 << 10;
    let weight = Weight {
        steps: 60,
        write: 100,
        file: 4 << 20,
        compute: Micros(1000),
    };
    jobs_of(&mut setup).plans = random_plans(&mut rng, nodes, 3, weight);
    for plan in &mut jobs_of(&mut setup).plans {
        plan.load = (0..64).map(|index| (index * 32_768, 32_768)).collect();
    }
    setup
}

fn cancel(seed: u64, nodes: usize) -> Setup {
    let (mut setup, mut rng) = cluster(seed, nodes, 10, Micros::from_millis(500));
    jobs_of(&mut setup).plans = random_plans(&mut rng, nodes, 10, LIGHT);
    for plan in &mut jobs_of(&mut setup).plans {
        plan.cancel_after = Some(Micros(rng.below(3_000_000)));
    }
    setup
}

/// What befalls a node.
type NodeFault = fn(u32) -> Fault;

/// A node is off or cut off for a while, `count` times.
pub(crate) fn outages(
    rng: &mut Rng,
    setup: &mut Setup,
    count: u64,
    (down, up): (NodeFault, NodeFault),
) {
    let mut free_from = vec![1_000; setup.nodes as usize];
    for _ in 0..count {
        let node = rng.below(setup.nodes.into()) as u32;
        let begin = free_from[node as usize] + rng.below(10_000);
        let end = begin + 20 + rng.below(12_000);
        free_from[node as usize] = end + 20;
        setup.faults.push((at_ms(begin), down(node)));
        setup.faults.push((at_ms(end), up(node)));
    }
}

/// Cut off.
pub(crate) fn cut_off(node: u32) -> Fault {
    Fault::Part(node, 1)
}

fn crash(seed: u64, nodes: usize) -> Setup {
    let (mut setup, mut rng) = cluster(seed, nodes, 5, Micros::from_millis(500));
    jobs_of(&mut setup).plans = random_plans(&mut rng, nodes, 8, LIGHT);
    outages(&mut rng, &mut setup, 6, (Fault::Die, Fault::Boot));
    setup
}

fn cut(seed: u64, nodes: usize) -> Setup {
    let (mut setup, mut rng) = cluster(seed, nodes, 5, Micros::from_millis(500));
    jobs_of(&mut setup).plans = random_plans(&mut rng, nodes, 8, LIGHT);
    outages(&mut rng, &mut setup, 6, (cut_off, Fault::Mend));
    setup
}

fn restart(seed: u64, nodes: usize) -> Setup {
    let (mut setup, mut rng) = cluster(seed, nodes, 5, Micros::from_millis(500));
    jobs_of(&mut setup).plans = random_plans(&mut rng, nodes, 8, LIGHT);
    for round in 0..2 {
        let begin = 2_000 + round * 12_000 + rng.below(4_000);
        setup.faults.push((at_ms(begin), Fault::CrashControl));
        setup
            .faults
            .push((at_ms(begin + 1 + rng.below(8_000)), Fault::RestartControl));
    }
    setup
}

/// A policy drawn at random: mostly what is the default, sometimes every other.
fn random_retention(rng: &mut Rng) -> Retention {
    Retention {
        reuse: match rng.below(8) {
            0 => Reuse::Forbid,
            1 => Reuse::Require,
            _ => Reuse::Allow,
        },
        keep: match rng.below(8) {
            0 => Keep::Nothing,
            1 | 2 => Keep::Published,
            _ => Keep::Warm,
        },
        limit_pages: match rng.below(4) {
            0 => 1 + rng.below(60) as u32,
            _ => 0,
        },
        ..Retention::default()
    }
}

/// Makes the plans jobs of fewer programs, with policies of all kinds.
pub(crate) fn share_programs(rng: &mut Rng, plans: &mut [Plan], programs: usize) {
    for index in 0..plans.len() {
        if index >= programs {
            let plan = &plans[index];
            let (job, nodes, launch_at) = (plan.job, plan.nodes.clone(), plan.launch_at);
            let program = &plans[rng.below(programs as u64) as usize];
            plans[index] = program.again(job, nodes);
            plans[index].launch_at = launch_at;
        }
        let plan = &mut plans[index];
        plan.retention = random_retention(rng);
        plan.published = plan.retention.keep == Keep::Published && rng.below(4) > 0;
        plan.hurried = rng.below(2) == 0;
    }
}

/// The control node has nodes drop programs, `count` times.
pub(crate) fn drops(rng: &mut Rng, setup: &mut Setup, count: u64, programs: u64) {
    for _ in 0..count {
        let index = rng.below(setup.nodes.into()) as u32;
        let at = at_ms(1_000 + rng.below(25_000));
        let number = rng.below(programs + 1);
        setup.faults.push((at, Fault::Drop(index, number)));
    }
}

fn warm(seed: u64, nodes: usize) -> Setup {
    let (mut setup, mut rng) = cluster(seed, nodes, 10, Micros::from_millis(500));
    // About two of the programs fit.
    jobs_of(&mut setup).warm_pages = 60;
    let weight = Weight {
        file: 150_000,
        compute: Micros::from_millis(200),
        ..LIGHT
    };
    jobs_of(&mut setup).plans = random_plans(&mut rng, nodes, 24, weight);
    share_programs(&mut rng, &mut jobs_of(&mut setup).plans, 4);
    for plan in &mut jobs_of(&mut setup).plans {
        plan.launch_at = Micros(rng.below(20_000_000));
    }
    drops(&mut rng, &mut setup, 10, 4);
    outages(&mut rng, &mut setup, 2, (Fault::Die, Fault::Boot));
    let begin = 8_000 + rng.below(8_000);
    setup.faults.push((at_ms(begin), Fault::CrashControl));
    setup
        .faults
        .push((at_ms(begin + 1 + rng.below(4_000)), Fault::RestartControl));
    setup
}

fn relaunch(seed: u64, nodes: usize) -> Setup {
    let (mut setup, mut rng) = cluster(seed, nodes, 10, Micros::from_millis(500));
    let mut plan = Plan::random(JobId(1), ids(0..nodes), LIGHT, &mut rng);
    plan.load = vec![(0, 4096)];
    plan.steps = vec![
        Step::Fault(8192, 16_384),
        Step::Compute(Micros::from_millis(20)),
        Step::Write(300),
    ];
    plan.file_bytes = 24_000;
    plan.stdin_bytes = 0;
    plan.retention = Retention::default();
    plan.hurried = true;
    // Cold; warm after a restart of control; warm by the published method.
    for (job, launch_at) in [(1, 8_000), (2, 30_000), (3, 40_000)] {
        let mut plan = plan.again(JobId(job), plan.nodes.clone());
        plan.launch_at = Micros::from_millis(launch_at);
        if job == 3 {
            plan.published = true;
            plan.retention.keep = Keep::Published;
        }
        jobs_of(&mut setup).plans.push(plan);
    }
    setup.faults.push((at_ms(22_000), Fault::CrashControl));
    setup.faults.push((at_ms(24_000), Fault::RestartControl));
    setup
}
