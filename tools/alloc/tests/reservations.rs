//! What goes before a job that waits does not delay what is reserved for it: with jobs that are
//! tied to nodes, nodes out of service and units of several nodes.

use std::collections::{BTreeMap, BTreeSet};

use hearth_alloc::machine::Machine;
use hearth_alloc::placement::Placing;
use hearth_alloc::placement::exact::Preference;
use hearth_alloc::queue::{Held, Job, JobNumber, Limits, Policy, Queue, Reason, Tie, Time};
use proptest::prelude::*;

const EXACT: Placing = Placing::Exact(Preference::HopsFirst);
const BACKFILL: [Policy; 3] = [Policy::Easy, Policy::EasyInOrder, Policy::Conservative];

/// A cluster in virtual time.
#[derive(Clone)]
struct World {
    queue: Queue,
    machine: Machine,
    /// Holders of two programs; a job with an odd number runs the second.
    held: [Held; 2],
    now: Time,
    /// When running jobs end.
    ends: BTreeMap<JobNumber, Time>,
    started: BTreeMap<JobNumber, Time>,
}

impl World {
    fn new(policy: Policy, tree: &str, unit: u32) -> Self {
        World {
            queue: Queue::new(policy, Limits::default()),
            machine: Machine::new(tree.parse().unwrap(), unit).unwrap(),
            held: Default::default(),
            now: 0,
            ends: BTreeMap::new(),
            started: BTreeMap::new(),
        }
    }

    /// A pass; what started, in order. Each job runs for so much of its time.
    fn pass(&mut self, run: &dyn Fn(&Job) -> Time) -> Vec<JobNumber> {
        let held = self.held.clone();
        let warm = |job: &Job| held[job.number as usize % 2].clone();
        let starts = self.queue.pass(self.now, &mut self.machine, EXACT, &warm);
        for start in &starts {
            let number = start.job.number;
            self.ends.insert(number, self.now + run(&start.job));
            assert_eq!(self.started.insert(number, self.now), None);
        }
        starts.iter().map(|start| start.job.number).collect()
    }

    /// Goes on to a time; what ends by then ends.
    fn go_to(&mut self, time: Time) {
        self.now = time;
        let is_over = |end: &Time| *end <= time;
        let over: Vec<_> = self.ends.iter().filter(|(_, end)| is_over(end)).collect();
        for number in over.into_iter().map(|(job, _)| *job).collect::<Vec<_>>() {
            self.ends.remove(&number);
            self.machine.release(number);
            self.queue.ended(number, true);
        }
    }

    /// All that runs takes all its time, and nothing arrives.
    fn run_out(mut self) -> BTreeMap<JobNumber, Time> {
        self.pass(&whole);
        while let Some(next) = self.ends.values().min().copied() {
            self.go_to(next);
            self.pass(&whole);
        }
        self.started
    }

    /// Reserved starts by job.
    fn reserved(&self) -> BTreeMap<JobNumber, Time> {
        let views = self.queue.waiting();
        views
            .filter_map(|view| Some((view.number, view.reserved?)))
            .collect()
    }

    fn submit(&mut self, number: JobNumber, count: u32, walltime: Time) {
        let job = Job::new(number, count, Some(walltime), self.now);
        self.queue.submit(job).unwrap();
    }

    fn submit_named(&mut self, number: JobNumber, nodes: &[u32], walltime: Option<Time>) {
        let job = Job {
            tie: Tie::Named(nodes.to_vec()),
            ..Job::new(number, nodes.len() as u32, walltime, self.now)
        };
        self.queue.submit(job).unwrap();
    }
}

fn whole(job: &Job) -> Time {
    job.walltime.unwrap()
}

#[derive(Debug, Clone)]
enum Wants {
    Any,
    Named(usize),
    Warm,
    /// All but one node; with or without another that it must have.
    Among(usize),
}

/// What is submitted.
#[derive(Debug, Clone)]
struct Arrival {
    after: Time,
    count: u32,
    walltime: Time,
    /// Quarters of its time that it takes.
    quarters: Time,
    wants: Wants,
}

#[derive(Debug, Clone)]
struct Case {
    tree: &'static str,
    unit: u32,
    out: Vec<u32>,
    holders: [Vec<u32>; 2],
    arrivals: Vec<Arrival>,
}

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let wants = prop_oneof![
        3 => Just(Wants::Any),
        2 => (0..1_000_usize).prop_map(Wants::Named),
        1 => Just(Wants::Warm),
        1 => (0..1_000_usize).prop_map(Wants::Among),
    ];
    let count = prop_oneof![1..3_u32, 1..9_u32];
    let one = (0..6_u64, count, 1..60_u64, 1..6_u64, wants);
    let one = one.prop_map(|(after, count, walltime, quarters, wants)| Arrival {
        after,
        count,
        walltime,
        quarters: quarters.min(4),
        wants,
    });
    prop::collection::vec(one, 5..24)
}

fn cases() -> impl Strategy<Value = Case> {
    let machines = prop_oneof![
        Just(("8", 1)),
        Just(("4x2", 1)),
        Just(("4x2", 2)),
        Just(("2x2x2", 2)),
        Just(("4x4", 4)),
        Just(("6x2", 3)),
    ];
    let out = prop::collection::vec(0..8_u32, 0..2);
    let holders = || prop::collection::vec(0..8_u32, 0..6);
    let parts = (machines, out, holders(), holders(), arrivals());
    parts.prop_map(|((tree, unit), out, first, second, arrivals)| Case {
        tree,
        unit,
        out,
        holders: [first, second],
        arrivals,
    })
}

impl Case {
    fn world(&self, policy: Policy) -> World {
        let mut world = World::new(policy, self.tree, self.unit);
        for &node in &self.out {
            world.machine.set_in_service(node, false);
        }
        let set = |nodes: &Vec<u32>| Held::new(nodes.iter().copied().collect());
        world.held = [set(&self.holders[0]), set(&self.holders[1])];
        world
    }

    /// Job `index + 1`.
    fn job(&self, index: usize, world: &World) -> Job {
        let arrival = &self.arrivals[index];
        let number = index as JobNumber + 1;
        let mut job = Job::new(number, arrival.count, Some(arrival.walltime), world.now);
        match arrival.wants {
            Wants::Any => {}
            Wants::Named(seed) => {
                let all = world.machine.nodes();
                let step = [1, 3, 5, 7][seed % 4];
                let node = |place: usize| ((seed + place * step) % all) as u32;
                let nodes: BTreeSet<u32> = (0..arrival.count as usize).map(node).collect();
                job.count = nodes.len() as u32;
                job.tie = Tie::Named(nodes.into_iter().collect());
            }
            Wants::Warm => job.tie = Tie::Warm,
            Wants::Among(seed) => {
                let all = world.machine.nodes();
                let with = (seed % 2 == 0).then_some((seed / 2 % all) as u32);
                let without = ((seed / 2 + 1 + seed % 3) % all) as u32;
                job.tie = Tie::Among {
                    with: with.into_iter().collect(),
                    without: BTreeSet::from([without]),
                };
            }
        }
        job
    }

    /// Whether all wait for nodes whose times are known exactly.
    fn is_exact(&self, waiting: JobNumber) -> bool {
        let is_open = |arrival: &Arrival| matches!(arrival.wants, Wants::Warm | Wants::Among(_));
        self.arrivals[waiting as usize - 1].count >= self.unit && !self.arrivals.iter().any(is_open)
    }

    /// Runs the case; `look` sees the world before and after each pass, and what the pass started.
    fn run(&self, policy: Policy, is_early: bool, look: &mut Look) -> Result<World, TestCaseError> {
        let quarters = |job: &Job| match is_early {
            true => self.arrivals[job.number as usize - 1].quarters,
            false => 4,
        };
        let run = |job: &Job| (job.walltime.unwrap() * quarters(job) / 4).max(1);
        let mut world = self.world(policy);
        let mut arrived = 0;
        let mut next_arrival = 0;
        loop {
            let arrival = (arrived < self.arrivals.len()).then_some(next_arrival);
            let end = world.ends.values().min().copied();
            let Some(next) = arrival.into_iter().chain(end).min() else {
                return Ok(world);
            };
            world.go_to(next);
            if arrival == Some(next) {
                let job = self.job(arrived, &world);
                world.queue.submit(job).unwrap();
                arrived += 1;
                let after = self.arrivals.get(arrived).map_or(0, |next| next.after);
                next_arrival = world.now + after;
            }
            let before = world.clone();
            let started = world.pass(&run);
            look(&before, &world, &started)?;
        }
    }
}

/// Sees the world before and after a pass, and what it started.
type Look<'a> = dyn FnMut(&World, &World, &[JobNumber]) -> Result<(), TestCaseError> + 'a;

/// The world before a pass without the jobs that went before others in it.
fn without(before: &World, started: &[JobNumber], first: JobNumber) -> Option<World> {
    let mut without = before.clone();
    let behind = started.iter().filter(|number| **number > first);
    let cancelled = behind.map(|number| without.queue.cancel(*number)).count();
    (cancelled > 0).then_some(without)
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(1_500)
    })]

    /// What was ever reserved for a first job holds, whatever goes before it and whatever ends
    /// early.
    #[test]
    fn easy_keeps_every_reservation(case in cases(), in_order: bool, is_early: bool) {
        let policy = if in_order { Policy::EasyInOrder } else { Policy::Easy };
        let mut promised: BTreeMap<JobNumber, Time> = BTreeMap::new();
        let world = case.run(policy, is_early, &mut |_, after, _| {
            for (job, time) in after.reserved() {
                let before = *promised.entry(job).or_insert(time);
                prop_assert!(time <= before, "{policy}: job {job} at {time}, not {before}");
                promised.insert(job, time);
            }
            Ok(())
        })?;
        for (job, time) in promised {
            let started = world.started.get(&job);
            prop_assert!(started.is_some_and(|at| *at <= time), "{policy}: job {job} by {time}: {started:?}");
        }
    }

    /// The first job starts no later with what went before it than without, if everything takes all
    /// its time.
    #[test]
    fn easy_delays_the_first_job_by_nothing(case in cases(), in_order: bool) {
        let policy = if in_order { Policy::EasyInOrder } else { Policy::Easy };
        case.run(policy, false, &mut |before, after, started| {
            let reserved = after.reserved();
            let Some((&first, &time)) = reserved.first_key_value() else {
                return Ok(());
            };
            let Some(without) = without(before, started, first) else {
                return Ok(());
            };
            let with = after.clone().run_out()[&first];
            let without = without.run_out()[&first];
            prop_assert!(with <= time && without <= time, "{policy}: job {first}: {with}, {without}, {time}");
            if case.is_exact(first) {
                prop_assert_eq!((with, without), (time, time), "job {}", first);
            }
            Ok(())
        })?;
    }

    /// No job's reservation is later once what went before it runs than it was without that. A plan
    /// counts each job that is not tied as whole units: one that found a part of one leaves more
    /// than was planned, so here all have whole units. Nor does the next plan put any later, where
    /// no job names its nodes.
    #[test]
    fn conservative_delays_nobody(mut case in cases(), is_early: bool) {
        for arrival in &mut case.arrivals {
            if matches!(arrival.wants, Wants::Any) {
                arrival.count = arrival.count.next_multiple_of(case.unit);
            }
        }
        let is_named = |arrival: &Arrival| matches!(arrival.wants, Wants::Named(_));
        let names_nodes = case.arrivals.iter().any(is_named);
        case.run(Policy::Conservative, is_early, &mut |before, after, started| {
            let mut with = after.clone();
            with.pass(&whole);
            let with = with.reserved();
            for (&first, &time) in &after.reserved() {
                let is_kept = with.get(&first).is_none_or(|at| *at <= time);
                prop_assert!(is_kept || names_nodes, "job {first}: {time}, {with:?}");
                if let Some(mut without) = without(before, started, first) {
                    without.pass(&whole);
                    let without = without.reserved()[&first];
                    prop_assert!(time <= without, "job {first}: {time}, not {without}");
                }
            }
            Ok(())
        })?;
    }
}

/// Job 3 has n1 and n2 from 100 to 5100 and keeps n0 until then. Job 4 has n3 and one more at 5100,
/// or earlier than that n2 and n3 if 3 does not want it: what takes n3 for longer would delay it.
#[test]
fn a_tied_job_before_the_first_has_its_nodes_until_its_time_is_over() {
    for policy in BACKFILL {
        let mut world = World::new(policy, "4", 1);
        world.submit_named(1, &[1], Some(100));
        world.submit_named(2, &[2], Some(100));
        assert_eq!(world.pass(&whole), [1, 2]);
        world.go_to(1);
        world.submit_named(3, &[0, 1], Some(5_000));
        world.submit(4, 2, 50);
        assert_eq!(world.pass(&whole), []);
        assert_eq!(world.reserved()[&4], 100, "{policy}: n2 and n3");
        world.go_to(2);
        world.submit(5, 1, 10_000);
        world.submit(6, 1, 98);
        assert_eq!(
            world.pass(&whole),
            [6],
            "{policy}: 5 would take n3 for longer"
        );
        let started = world.run_out();
        assert_eq!((started[&3], started[&4]), (100, 100), "{policy}");
    }
}

/// A job that needs nodes which a tied job keeps has a reservation, and short jobs go before it.
#[test]
fn a_first_job_that_needs_kept_nodes_has_a_reservation() {
    for policy in BACKFILL {
        let mut world = World::new(policy, "4", 1);
        world.submit_named(1, &[1], Some(3_600));
        assert_eq!(world.pass(&whole), [1]);
        world.go_to(1);
        world.submit_named(3, &[0, 1], Some(60));
        world.submit(4, 4, 50);
        world.submit(5, 1, 10);
        assert_eq!(world.pass(&whole), [5], "{policy}");
        assert_eq!(world.reserved()[&4], 3_660, "{policy}");
        let started = world.run_out();
        assert_eq!((started[&3], started[&4]), (3_600, 3_660), "{policy}");
    }
    // A tied job without a limit has its nodes for ever, as far as is known.
    for policy in BACKFILL {
        let mut world = World::new(policy, "4", 1);
        world.submit_named(1, &[1], Some(3_600));
        world.submit_named(3, &[0, 1], None);
        world.submit(4, 4, 50);
        world.submit(5, 1, 10);
        assert_eq!(world.pass(&whole), [1], "{policy}");
        assert_eq!(world.reserved(), BTreeMap::new(), "{policy}");
    }
}

/// Of the holders of a program a job takes some: in units of one node the others are counted on
/// from when it starts.
#[test]
fn holders_that_a_job_leaves_come_free_when_it_starts() {
    for policy in [Policy::Easy, Policy::EasyInOrder] {
        let mut world = World::new(policy, "8", 1);
        world.held[1] = Held::new(BTreeSet::from([0, 1, 2, 3]));
        world.submit_named(2, &[0, 1, 2], Some(100));
        world.pass(&whole);
        let warm = Job {
            tie: Tie::Warm,
            ..Job::new(3, 2, Some(1_000), 0)
        };
        world.queue.submit(warm).unwrap();
        world.submit(4, 6, 10);
        assert_eq!(world.pass(&whole), []);
        // n4 to n7, and two of n0 to n3.
        assert_eq!(world.reserved()[&4], 100, "{policy}");
        world.submit(6, 1, 101);
        assert_eq!(world.pass(&whole), [], "{policy}: none is left over");
        let started = world.run_out();
        assert_eq!((started[&3], started[&4]), (100, 100), "{policy}");
    }
}

/// One node of each of two units is two units.
#[test]
fn a_named_job_is_charged_every_unit_that_it_breaks() {
    for policy in BACKFILL {
        let mut world = World::new(policy, "2x2", 2);
        world.submit_named(1, &[0, 2], Some(20));
        assert_eq!(world.pass(&whole), [1]);
        world.submit(2, 2, 50);
        world.submit_named(3, &[1, 3], Some(600));
        assert_eq!(world.pass(&whole), [], "{policy}");
        world.queue.cancel(3);
        world.submit_named(4, &[1, 3], Some(20));
        assert_eq!(world.pass(&whole), [4], "{policy}: it ends in time");
        assert_eq!(world.run_out()[&2], 20, "{policy}");
        // Five of six units are wanted at 20: one is left over, and two are broken.
        let mut world = World::new(policy, "2x6", 2);
        world.submit_named(1, &[0, 2, 4], Some(20));
        assert_eq!(world.pass(&whole), [1]);
        world.submit(2, 10, 50);
        world.submit_named(3, &[6, 8], Some(600));
        assert_eq!(world.pass(&whole), [], "{policy}");
        world.queue.cancel(3);
        world.submit_named(4, &[6, 7], Some(600));
        assert_eq!(world.pass(&whole), [4], "{policy}");
        assert_eq!(world.run_out()[&2], 20, "{policy}");
    }
}

#[test]
fn a_node_that_leaves_service_with_its_job_is_not_counted_on() {
    for policy in BACKFILL {
        let mut world = World::new(policy, "4", 1);
        world.submit_named(1, &[0, 1], Some(10));
        world.submit_named(2, &[2], Some(100));
        assert_eq!(world.pass(&whole), [1, 2]);
        world.machine.set_in_service(0, false);
        world.submit(3, 3, 10);
        world.submit(4, 1, 95);
        assert_eq!(world.pass(&whole), [4], "{policy}: 3 has until 100");
        assert_eq!(world.reserved()[&3], 100, "{policy}");
        assert_eq!(world.run_out()[&3], 100, "{policy}");
    }
}

/// A node of every unit is out of service: small jobs run on the others.
#[test]
fn small_jobs_run_where_no_unit_is_whole() {
    let policies = [Policy::Published { window: 4 }, Policy::Fcfs];
    for policy in policies.into_iter().chain(BACKFILL) {
        let mut world = World::new(policy, "4x2", 4);
        world.machine.set_in_service(0, false);
        world.machine.set_in_service(5, false);
        world.submit(1, 1, 10);
        world.submit(2, 4, 10);
        world.submit(3, 3, 10);
        world.submit(4, 3, 10);
        world.submit(5, 2, 12);
        world.submit(6, 2, 9);
        let started = world.pass(&whole);
        assert_eq!(started[..2], [1, 3], "{policy}");
        assert_eq!(world.queue.reason(2), Some(Reason::TooLarge), "{policy}");
        if BACKFILL.contains(&policy) {
            assert_eq!(world.reserved()[&4], 10, "{policy}");
            assert_eq!(started[2..], [6], "{policy}: 5 would delay job 4");
        }
        assert_eq!(world.run_out()[&4], 10, "{policy}");
    }
}

/// Thousands of jobs that name nodes wait before the first one that does not.
#[test]
fn many_tied_jobs_take_a_bounded_time() {
    for policy in BACKFILL {
        let mut world = World::new(policy, "16x32x8", 1);
        world.submit_named(1, &[0], Some(10));
        world.pass(&whole);
        for number in 2..10_002 {
            let nodes: Vec<u32> = (0..64)
                .map(|place| place * (1 + number as u32 % 60))
                .collect();
            world.submit_named(number, &nodes, Some(10));
        }
        world.submit(20_000, 4_096, 10);
        let begin = worked();
        assert_eq!(world.pass(&whole), []);
        let took = worked() - begin;
        assert!(took < std::time::Duration::from_secs(1), "{took:?}");
        // Behind the bound nodes are counted on no more.
        assert_eq!(world.queue.reserved(20_000), None);
    }
}

/// How long a processor has worked for this thread: others may want it, too.
fn worked() -> std::time::Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let nanoseconds = text.split_whitespace().next().unwrap().parse();
    std::time::Duration::from_nanos(nanoseconds.unwrap())
}

/// As many that may have all nodes but one, which stays free.
#[test]
fn many_jobs_with_nodes_that_they_must_not_have_take_a_bounded_time() {
    for policy in BACKFILL {
        let mut world = World::new(policy, "16x32x8", 1);
        world.submit_named(1, &[0], Some(10));
        world.pass(&whole);
        for number in 2..10_002 {
            let with = if number % 2 == 0 { vec![0] } else { vec![] };
            let tie = Tie::Among {
                with,
                without: BTreeSet::from([5]),
            };
            let count = if number == 2 { 4_095 } else { 1 };
            let job = Job {
                tie,
                ..Job::new(number, count, Some(10), world.now)
            };
            world.queue.submit(job).unwrap();
        }
        world.submit(20_000, 4_096, 10);
        let begin = worked();
        assert_eq!(world.pass(&whole), []);
        let took = worked() - begin;
        assert!(took < std::time::Duration::from_secs(1), "{took:?}");
        assert_eq!(world.queue.reserved(20_000), None);
    }
}
