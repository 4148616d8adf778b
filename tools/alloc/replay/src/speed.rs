//! The CPU time of decisions on large machines.
//!
//! A machine is made 50 or 90 % busy, by jobs of many sizes that come and go or node by node, and
//! asked for jobs of 1 to 32,768 nodes. A question is asked three times and the shortest time
//! counts: the answer takes the same steps each time, and whatever else the machine does can only
//! add to it.
//!
//! Key types: [`Case`], [`Row`]; [`run`]. Neighbour: `cargo xtask bench alloc` prints what this
//! finds.
//!
//! Invariant: CPU time of this thread, not time on the clock.

use std::collections::BTreeSet;
use std::time::Duration;

use hearth_alloc::machine::Machine;
use hearth_alloc::placement::Placing;
use hearth_alloc::placement::exact::{self, Candidate, Certificate, Point, Preference, Question};
use hearth_alloc::queue::{Held, Job, Limits, Policy, Queue, Tie};
use hearth_alloc::topology::Topology;

/// How often a question is asked.
const REPEATS: usize = 3;
/// Job sizes, in nodes.
const SIZES: [u32; 23] = [
    1, 2, 5, 8, 15, 16, 17, 33, 64, 100, 128, 250, 400, 512, 777, 1_024, 1_300, 1_600, 4_096,
    8_192, 12_000, 24_000, 32_768,
];
/// What warm nodes count against hops: hardly anything, about as much, and more than most hops.
const LAMBDAS_MILLI: [u32; 4] = [60, 200, 500, 2_000];
/// The largest job of the goal for machines of 16,384 nodes.
const SMALL_JOB_MAX: u32 = 1_600;
/// Goals, in milliseconds.
const SMALL_GOAL_MS: f64 = 10.0;
const LARGE_GOAL_MS: f64 = 100.0;
const LARGE_WARM_GOAL_MS: f64 = 150.0;
/// A pass over 10,000 queued jobs.
const PASS_GOAL_MS: f64 = 50.0;
const QUEUED: u64 = 10_000;
/// Of jobs as they are, of jobs that name their nodes, and of many small ones that do.
const JOBS: [(&str, Jobs); 3] = [
    (
        "",
        Jobs {
            name_nodes: false,
            magnitudes: 12,
        },
    ),
    (
        "+named",
        Jobs {
            name_nodes: true,
            magnitudes: 12,
        },
    ),
    (
        "+named-one",
        Jobs {
            name_nodes: true,
            magnitudes: 1,
        },
    ),
];

/// CPU time of this thread so far.
pub fn cpu_time() -> Duration {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID);
    time.expect("a thread may ask for its own time").into()
}

/// One figure.
#[derive(Debug, Clone)]
pub struct Row {
    /// Which case.
    pub case: String,
    /// What was measured.
    pub metric: &'static str,
    /// The figure.
    pub value: f64,
    /// Its unit.
    pub unit: &'static str,
    /// What it should be at most.
    pub goal: Option<f64>,
}

/// Jobs that are queued.
#[derive(Clone, Copy)]
struct Jobs {
    name_nodes: bool,
    /// Sizes are one node and less than so many powers of two.
    magnitudes: u32,
}

/// A machine to ask.
struct Case {
    tree: &'static str,
    unit: u32,
    busy: u32,
    /// By jobs that came and went, not node by node.
    by_jobs: bool,
}

impl Case {
    fn name(&self) -> String {
        let kind = if self.by_jobs { "jobs" } else { "scattered" };
        let unit = if self.unit > 1 {
            format!("u{}", self.unit)
        } else {
            String::new()
        };
        format!("{}{unit}/{}/{kind}", self.tree, self.busy)
    }
}

const TREES: [(&str, u32); 5] = [
    ("16x32x32", 1),
    ("4x4x4x4x4x4x4", 1),
    ("32x32x32x32", 8),
    ("8x8x8x8x8x8x4", 8),
    ("16x256x256", 8),
];

/// Measures the cases that are wanted.
pub fn run(wants: &dyn Fn(&str) -> bool, row: &mut dyn FnMut(Row)) {
    for (tree, unit) in TREES {
        for busy in [50, 90] {
            for by_jobs in [false, true] {
                let case = Case {
                    tree,
                    unit,
                    busy,
                    by_jobs,
                };
                if wants(&case.name()) {
                    measure(&case, row);
                }
            }
        }
    }
    for policy in hearth_alloc::queue::POLICY_NAMES {
        for (tied, jobs) in JOBS {
            let case = format!("queue/{policy}{tied}");
            if wants(&case) {
                measure_pass(&case, policy.parse().expect("a policy"), jobs, row);
            }
        }
    }
}

fn measure(case: &Case, row: &mut dyn FnMut(Row)) {
    let tree: Topology = case.tree.parse().expect("a tree");
    let tree = tree.in_units(case.unit);
    let free = free(&tree, case);
    let is_large = case.unit > 1;
    let mut cold = Worst::default();
    let mut warm = Worst::default();
    let mut weighted = Worst::default();
    let mut warm_first = Worst::default();
    let mut any_size = Worst::default();
    for size in SIZES {
        let count = size.div_ceil(case.unit) as usize;
        if count > free.len() {
            continue;
        }
        let ask = |preference| time(&tree, &free, count, preference, case.unit);
        let plain = ask(Preference::None);
        any_size.add(plain.0, size);
        if is_large || size <= SMALL_JOB_MAX {
            cold.add(plain.0, size);
            warm.add(ask(Preference::HopsFirst).0, size);
            for milli in LAMBDAS_MILLI {
                weighted.add(ask(Preference::Weighted { milli }).0, size);
            }
            warm_first.add(ask(Preference::WarmFirst).0, size);
        }
    }
    let (goal, warm_goal) = if is_large {
        (LARGE_GOAL_MS, LARGE_WARM_GOAL_MS)
    } else {
        (SMALL_GOAL_MS, SMALL_GOAL_MS)
    };
    let mut figure = |metric, worst: &Worst, goal| {
        row(Row {
            case: case.name(),
            metric,
            value: worst.ms,
            unit: "ms",
            goal,
        });
    };
    figure("worst_cpu_ms", &cold, Some(goal));
    figure("worst_cpu_warm_ms", &warm, Some(warm_goal));
    figure(
        "worst_cpu_warm_weighted_ms",
        &weighted,
        is_large.then_some(warm_goal),
    );
    figure(
        "worst_cpu_warm_first_ms",
        &warm_first,
        is_large.then_some(warm_goal),
    );
    figure("worst_cpu_any_size_ms", &any_size, None);
    row(Row {
        case: case.name(),
        metric: "slowest_size",
        value: f64::from(cold.size),
        unit: "nodes",
        goal: None,
    });
}

#[derive(Default)]
struct Worst {
    ms: f64,
    size: u32,
}

impl Worst {
    fn add(&mut self, ms: f64, size: u32) {
        if ms > self.ms {
            *self = Worst { ms, size };
        }
    }
}

/// The CPU time of one decision, in milliseconds, and how it was certified.
fn time(
    topology: &Topology,
    free: &[Point],
    count: usize,
    preference: Preference,
    unit: u32,
) -> (f64, Certificate) {
    let question = Question {
        topology,
        free,
        count,
        preference,
        unit,
    };
    let times = (0..REPEATS).map(|_| {
        let before = cpu_time();
        let choice = exact::choose(&question).expect("there are enough");
        let time = cpu_time().saturating_sub(before);
        (time.as_secs_f64() * 1e3, choice.certificate)
    });
    times
        .min_by(|a, b| a.0.total_cmp(&b.0))
        .expect("asked more than once")
}

/// Free points of a machine that is in use, some of them warm.
fn free(tree: &Topology, case: &Case) -> Vec<Point> {
    let places = tree.nodes() as u32;
    let mut numbers = Numbers(u64::from(places) + u64::from(case.busy));
    let mut is_free = vec![true; places as usize];
    let mut left = places * case.busy / 100;
    while left > 0 {
        let first = numbers.below(places);
        // Jobs of all magnitudes.
        let run = if case.by_jobs {
            1 + numbers.magnitude(9)
        } else {
            1
        };
        for place in first..(first + run.min(left)).min(places) {
            left -= u32::from(std::mem::take(&mut is_free[place as usize]));
        }
    }
    // A quarter of the machine ran the program, in pieces of 64.
    let mut is_warm = false;
    let mut points = Vec::new();
    for number in 0..places {
        if number % 64 == 0 {
            is_warm = numbers.below(4) == 0;
        }
        if is_free[number as usize] {
            let weight = if is_warm {
                case.unit - numbers.below(2)
            } else {
                0
            };
            points.push(Point { number, weight });
        }
    }
    points
}

/// One pass over many queued jobs on a full machine, in which few can start. Jobs that name their
/// nodes have them in a row, from anywhere on.
fn measure_pass(case: &str, policy: Policy, jobs: Jobs, row: &mut dyn FnMut(Row)) {
    let tree: Topology = "16x32x32".parse().expect("a tree");
    let nodes = tree.nodes() as u32;
    let mut numbers = Numbers(5);
    let mut queue = Queue::new(policy, Limits::default());
    let mut machine = Machine::new(tree, 1).expect("units of one node");
    let placing = Placing::Exact(Preference::HopsFirst);
    let cold = |_: &Job| Held::default();
    for number in 0..QUEUED + 200 {
        let count = 1 + numbers.magnitude(jobs.magnitudes);
        let walltime = 60 * (1 + u64::from(numbers.below(1_440)));
        let mut job = Job::new(number, count, Some(walltime), number);
        if jobs.name_nodes {
            let first = numbers.below(nodes - count);
            job.tie = Tie::Named((first..first + count).collect());
        }
        queue.submit(job).expect("within the limits");
        if number < 200 {
            queue.pass(number, &mut machine, placing, &cold);
        }
    }
    let now = QUEUED + 200;
    let first = cpu_time();
    let started = queue.pass(now, &mut machine, placing, &cold).len();
    let first = cpu_time().saturating_sub(first);
    // Then as when a job ends.
    let mut worst = Duration::ZERO;
    for round in 0..20 {
        let ends = machine.jobs().nth(round * 7 % 20).map(|(job, _)| job);
        if let Some(job) = ends {
            machine.release(job);
            queue.ended(job, true);
        }
        let before = cpu_time();
        queue.pass(now + round as u64, &mut machine, placing, &cold);
        worst = worst.max(cpu_time().saturating_sub(before));
    }
    let mut figure = |metric, value, unit, goal| {
        row(Row {
            case: case.to_owned(),
            metric,
            value,
            unit,
            goal,
        });
    };
    figure("queued_jobs", queue.queued_count() as f64, "jobs", None);
    figure("first_pass_cpu_ms", first.as_secs_f64() * 1e3, "ms", None);
    figure("first_pass_started", started as f64, "jobs", None);
    figure(
        "worst_pass_cpu_ms",
        worst.as_secs_f64() * 1e3,
        "ms",
        Some(PASS_GOAL_MS),
    );
}

/// Half of 32,768 nodes wanted: what the control node is asked with thousands of nodes free.
pub fn whole_placement(free: usize, count: usize) -> Duration {
    let tree: Topology = "16x32x64".parse().expect("a tree");
    let mut numbers = Numbers(11);
    let mut nodes = BTreeSet::new();
    while nodes.len() < free {
        nodes.insert(numbers.below(32_768));
    }
    let candidate = |node: u32| Candidate {
        node,
        warm: node.is_multiple_of(5),
    };
    let free: Vec<Candidate> = nodes.into_iter().map(candidate).collect();
    let before = cpu_time();
    let placement = exact::place(&tree, &free, count);
    assert!(placement.is_some());
    cpu_time().saturating_sub(before)
}

/// Numbers that depend on the seed only (splitmix64).
struct Numbers(u64);

impl Numbers {
    /// Any of so many powers of two, and a number below it.
    fn magnitude(&mut self, powers: u32) -> u32 {
        let power = self.below(powers);
        self.below(1 << power)
    }

    fn below(&mut self, limit: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ mixed >> 31) % u64::from(limit)) as u32
    }
}
