mod ties;

use super::*;
use crate::placement::exact::Preference;
use crate::topology::Topology;

const COLD: fn(&Job) -> Held = |_| Held::default();
const EXACT: Placing = Placing::Exact(Preference::None);

fn machine(tree: &str, unit: u32) -> Machine {
    Machine::new(tree.parse().unwrap(), unit).unwrap()
}

fn queue(policy: Policy) -> Queue {
    Queue::new(policy, Limits::default())
}

fn window(window: usize) -> Policy {
    Policy::Published { window }
}

/// Jobs `(count, walltime)`, numbered from 1, all submitted at 0.
fn submit(queue: &mut Queue, jobs: &[(u32, Time)]) {
    for (index, &(count, walltime)) in jobs.iter().enumerate() {
        let job = Job::new(index as u64 + 1, count, Some(walltime), 0);
        queue.submit(job).unwrap();
    }
}

fn numbers(starts: &[Start]) -> Vec<JobNumber> {
    starts.iter().map(|start| start.job.number).collect()
}

#[test]
fn first_come_first_served_waits_behind_the_first_that_does_not_fit() {
    let (mut queue, mut machine) = (queue(Policy::Fcfs), machine("4x4", 1));
    submit(&mut queue, &[(10, 5), (10, 5), (1, 5)]);
    assert_eq!(numbers(&queue.pass(0, &mut machine, EXACT, &COLD)), [1]);
    assert_eq!(queue.reason(2), Some(Reason::Nodes));
    assert_eq!(queue.reason(3), Some(Reason::Priority));
    machine.release(1);
    queue.ended(1, true);
    assert_eq!(numbers(&queue.pass(5, &mut machine, EXACT, &COLD)), [2, 3]);
}

#[test]
fn easy_starts_what_does_not_delay_the_first() {
    let (mut queue, mut machine) = (queue(Policy::EasyInOrder), machine("4x4", 1));
    // 6 are free until 100; job 2 needs 12 of the 16 that will be free then.
    submit(
        &mut queue,
        &[
            (10, 100),
            (12, 50),
            (3, 101),
            (3, 100),
            (1, 101),
            (1, 101),
            (1, 9),
        ],
    );
    let starts = queue.pass(0, &mut machine, EXACT, &COLD);
    // 3 takes three of the four extra nodes, 4 ends in time, 5 takes the last extra node.
    assert_eq!(numbers(&starts), [1, 3, 4]);
    let (mut queue, mut machine) = (queue_of(Policy::EasyInOrder), self::machine("4x4", 1));
    submit(
        &mut queue,
        &[(10, 100), (14, 50), (3, 101), (2, 101), (1, 101), (1, 9)],
    );
    let starts = queue.pass(0, &mut machine, EXACT, &COLD);
    // Two extra nodes: not 3, but 4; nothing left over for 5; 6 ends in time.
    assert_eq!(numbers(&starts), [1, 4, 6]);
    assert_eq!(queue.counters().backfilled, 2);
}

#[test]
fn easy_tries_the_shortest_first() {
    let (mut queue, mut machine) = (queue_of(Policy::Easy), machine("4x4", 1));
    // Four nodes are left until 100; job 5 is the shortest that fits, then 3.
    submit(
        &mut queue,
        &[(12, 100), (16, 50), (2, 90), (2, 95), (2, 20), (5, 1)],
    );
    assert_eq!(
        numbers(&queue.pass(0, &mut machine, EXACT, &COLD)),
        [1, 5, 3]
    );
}

fn queue_of(policy: Policy) -> Queue {
    queue(policy)
}

#[test]
fn shadow_times_are_counted_in_units() {
    let (mut queue, mut machine) = (queue(Policy::EasyInOrder), machine("4x4", 4));
    // Two nodes of one unit until 10, the other two until 100; 8 and 4 until 50.
    submit(
        &mut queue,
        &[(2, 10), (2, 100), (8, 50), (8, 60), (4, 99), (4, 50)],
    );
    let starts = queue.pass(0, &mut machine, EXACT, &COLD);
    // Job 4 needs two units. In nodes, two would be free at 10 and eight at 50; in units, two are
    // free at 50 with the one that is free now: three, so that one is extra.
    assert_eq!(numbers(&starts), [1, 2, 3, 5]);
    assert_eq!(queue.reservation(0, &mut machine, EXACT), Some((4, 50)));
}

#[test]
fn of_an_array_so_many_jobs_run_at_a_time() {
    for policy in [Policy::Easy, Policy::Conservative, Policy::Fcfs, window(4)] {
        let (mut queue, mut machine) = (queue_of(policy), machine("4x2", 1));
        for number in 1..=5 {
            let array = Array {
                first: 1,
                at_once: 2,
            };
            let job = Job {
                array: Some(array),
                ..Job::new(number, 1, Some(10), 0)
            };
            queue.submit(job).unwrap();
        }
        queue.submit(Job::new(9, 1, Some(10), 0)).unwrap();
        let starts = queue.pass(0, &mut machine, EXACT, &COLD);
        assert_eq!(numbers(&starts), [1, 2, 9], "{policy}: others go on");
        assert_eq!(queue.reason(3), Some(Reason::ArrayJobs), "{policy}");
        machine.release(2);
        queue.ended(2, false);
        let starts = queue.pass(1, &mut machine, EXACT, &COLD);
        assert_eq!(numbers(&starts), [3], "{policy}");
        machine.release(1);
        machine.release(3);
        queue.ended(1, true);
        queue.withdraw(3);
        let starts = queue.pass(2, &mut machine, EXACT, &COLD);
        assert_eq!(numbers(&starts), [4, 5], "{policy}");
    }
}

#[test]
fn without_time_limits_nothing_goes_first() {
    for policy in [Policy::Easy, Policy::Conservative] {
        let (mut queue, mut machine) = (queue(policy), machine("4x4", 1));
        for (number, count) in [(1, 10), (2, 10), (3, 1)] {
            queue.submit(Job::new(number, count, None, 0)).unwrap();
        }
        assert_eq!(numbers(&queue.pass(0, &mut machine, EXACT, &COLD)), [1]);
    }
}

#[test]
fn conservative_delays_nobody() {
    // Job 2 starts at 100; job 3 at 150, when it has ended; EASY would let job 4 delay job 3.
    let jobs = [(10, 100), (12, 50), (16, 10), (4, 151), (4, 100)];
    let start = |policy| {
        let (mut queue, mut machine) = (queue(policy), machine("4x4", 1));
        submit(&mut queue, &jobs);
        numbers(&queue.pass(0, &mut machine, EXACT, &COLD))
    };
    assert_eq!(start(Policy::EasyInOrder), [1, 4]);
    assert_eq!(start(Policy::Conservative), [1, 5]);
}

#[test]
fn the_published_window_shrinks_and_takes_the_largest_first() {
    let (mut queue, mut machine) = (queue(window(4)), machine("4x4", 4));
    submit(&mut queue, &[(4, 9), (8, 9), (4, 9), (4, 9), (4, 9)]);
    // 4 + 8 + 4 + 4 nodes do not fit into 16: the first three do.
    let starts = queue.pass(0, &mut machine, Placing::Published, &COLD);
    assert_eq!(numbers(&starts), [2, 1, 3]);
    assert_eq!(queue.reason(4), Some(Reason::Nodes));
}

#[test]
fn the_window_test_counts_units_too() {
    // 5 + 5 + 5 = 15 nodes of 16, but two units each.
    let (mut queue, mut machine) = (queue(window(4)), machine("4x4", 4));
    submit(&mut queue, &[(5, 9), (5, 9), (5, 9)]);
    let starts = queue.pass(0, &mut machine, Placing::Published, &COLD);
    assert_eq!(numbers(&starts), [1, 2]);
    assert_eq!(queue.counters().windows_short_of_units, 1);
}

#[test]
fn a_published_pass_repeats_until_nothing_more_starts() {
    let (mut queue, mut machine) = (queue(window(2)), machine("4x4", 4));
    submit(&mut queue, &[(4, 9); 5]);
    let starts = queue.pass(0, &mut machine, Placing::Published, &COLD);
    assert_eq!(numbers(&starts), [1, 2, 3, 4]);
    // A small job fills a busy unit although no unit is free.
    let (mut queue, mut machine) = (queue_of(window(4)), self::machine("4x4", 4));
    submit(&mut queue, &[(3, 9), (12, 9), (2, 9), (1, 9)]);
    assert_eq!(
        numbers(&queue.pass(0, &mut machine, Placing::Published, &COLD)),
        [2, 1]
    );
    queue.cancel(3);
    assert_eq!(
        numbers(&queue.pass(0, &mut machine, Placing::Published, &COLD)),
        [4]
    );
}

#[test]
fn priorities_holds_dependencies_and_limits() {
    let limits = Limits {
        running_of_user: Some(1),
        nodes_of_user: Some(6),
        ..Limits::default()
    };
    let mut queue = Queue::new(Policy::Easy, limits);
    let mut machine = machine("4x4", 1);
    let after = |job, must_succeed| vec![Dependency { job, must_succeed }];
    let job = |number, user| Job {
        user,
        ..Job::new(number, 2, Some(10), 0)
    };
    queue.submit(job(1, 1)).unwrap();
    queue
        .submit(Job {
            priority: 5,
            ..job(2, 1)
        })
        .unwrap();
    queue
        .submit(Job {
            is_held: true,
            ..job(3, 2)
        })
        .unwrap();
    queue
        .submit(Job {
            after: after(2, true),
            ..job(4, 3)
        })
        .unwrap();
    queue
        .submit(Job {
            after: after(2, false),
            ..job(5, 4)
        })
        .unwrap();
    queue
        .submit(Job {
            after: after(77, true),
            ..job(6, 5)
        })
        .unwrap();
    queue
        .submit(Job {
            count: 7,
            ..job(7, 6)
        })
        .unwrap();
    queue
        .submit(Job {
            count: 17,
            ..job(8, 7)
        })
        .unwrap();
    let starts = queue.pass(0, &mut machine, EXACT, &COLD);
    assert_eq!(numbers(&starts), [2, 6], "77 is not known: it has ended");
    let reasons = [1, 3, 4, 7, 8].map(|number| queue.reason(number).unwrap());
    use Reason::{Dependency as After, Held, TooLarge, UserJobs, UserNodes};
    assert_eq!(reasons, [UserJobs, Held, After, UserNodes, TooLarge]);
    assert!(queue.release(3) && !queue.hold(2));
    machine.release(2);
    queue.ended(2, false);
    assert_eq!(
        numbers(&queue.pass(1, &mut machine, EXACT, &COLD)),
        [1, 3, 5]
    );
    assert_eq!(queue.reason(4), Some(Reason::DependencyFailed));
    assert_eq!(
        (queue.next_time_out(), queue.over_time(9)),
        (Some(10), vec![])
    );
    assert_eq!(queue.over_time(11), [1, 3, 5, 6]);
}

#[test]
fn what_cannot_be_queued_is_refused() {
    let limits = Limits {
        queued: 2,
        ..Limits::default()
    };
    let mut queue = Queue::new(Policy::Easy, limits);
    let job = |number, count| Job::new(number, count, None, 0);
    assert_eq!(queue.submit(job(1, 0)), Err(SubmitError::NoNodes));
    queue.submit(job(1, 1)).unwrap();
    assert_eq!(queue.submit(job(1, 1)), Err(SubmitError::Known(1)));
    let itself = Dependency {
        job: 2,
        must_succeed: false,
    };
    let waits = Job {
        after: vec![itself],
        ..job(2, 1)
    };
    assert_eq!(queue.submit(waits), Err(SubmitError::Dependencies));
    queue.submit(job(3, 1)).unwrap();
    assert_eq!(queue.submit(job(4, 1)), Err(SubmitError::Full(2)));
    assert_eq!(queue.cancel(3).map(|job| job.number), Some(3));
    queue.adopt(&job(9, 1), 5);
    assert_eq!((queue.running_count(), queue.queued_count()), (1, 1));
}

/// A machine in virtual time. Jobs take some of their walltime.
struct World {
    queue: Queue,
    machine: Machine,
    placing: Placing,
    now: Time,
    /// Ends of running jobs.
    ends: BTreeSet<(Time, JobNumber)>,
    started: BTreeMap<JobNumber, Time>,
}

impl World {
    fn new(queue: Queue, machine: Machine, placing: Placing) -> Self {
        World {
            queue,
            machine,
            placing,
            now: 0,
            ends: BTreeSet::new(),
            started: BTreeMap::new(),
        }
    }

    fn pass(&mut self) {
        for Start { job, given, .. } in
            self.queue
                .pass(self.now, &mut self.machine, self.placing, &COLD)
        {
            assert_eq!(given.nodes.len(), job.count as usize);
            let walltime = job.walltime.unwrap();
            let runs = 1 + (walltime - 1) * (1 + job.number % 4) / 4;
            self.ends.insert((self.now + runs, job.number));
            assert_eq!(self.started.insert(job.number, self.now), None);
        }
    }

    fn end_next(&mut self) {
        let (end, number) = self.ends.pop_first().unwrap();
        self.now = self.now.max(end);
        self.machine.release(number);
        self.queue.ended(number, true);
    }

    fn next_end(&self) -> Option<Time> {
        Some(self.ends.first()?.0)
    }
}

fn below(state: &mut u64, limit: u64) -> u64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1);
    (*state >> 33) % limit
}

#[test]
fn every_job_starts_once_and_reservations_are_kept() {
    let policies = [
        window(4),
        Policy::Fcfs,
        Policy::Easy,
        Policy::Conservative,
        Policy::EasyInOrder,
    ];
    for (round, policy) in policies.into_iter().cycle().take(150).enumerate() {
        let unit = [1, 2, 4][round / 5 % 3];
        let placing = if round % 4 == 0 {
            Placing::Published
        } else {
            EXACT
        };
        let mut world = World::new(queue(policy), machine("4x3x2", unit), placing);
        let mut random = round as u64;
        // The reservations of the first jobs, and when they were made.
        let mut promised: BTreeMap<JobNumber, Time> = BTreeMap::new();
        let mut number = 0;
        while number < 200 || world.queue.queued_count() > 0 || !world.ends.is_empty() {
            let is_arrival = number < 200 && below(&mut random, 3) > 0;
            if is_arrival {
                number += 1;
                let next = world.next_end().unwrap_or(world.now + 5);
                world.now += below(&mut random, next.saturating_sub(world.now).max(1));
                let count = 1 + below(&mut random, [4, 24][number as usize % 2]) as u32;
                let walltime = 1 + below(&mut random, 60);
                let job = Job::new(number, count, Some(walltime), world.now);
                world.queue.submit(job).unwrap();
            } else if world.ends.is_empty() {
                continue;
            } else {
                world.end_next();
            }
            // What ends at one time ends before anything starts.
            while world.next_end().is_some_and(|end| end <= world.now) {
                world.end_next();
            }
            world.pass();
            if matches!(policy, Policy::Easy | Policy::EasyInOrder) {
                let World {
                    queue,
                    machine,
                    now,
                    ..
                } = &mut world;
                if let Some((first, time)) = queue.reservation(*now, machine, placing) {
                    let before = promised.entry(first).or_insert(time);
                    assert!(time <= *before, "round {round}: job {first} is delayed");
                }
            }
        }
        assert_eq!(world.started.len(), 200, "round {round}");
        for (job, time) in promised {
            assert!(world.started[&job] <= time, "round {round}: job {job}");
        }
        if policy == Policy::Fcfs {
            let order: Vec<Time> = world.started.values().copied().collect();
            assert!(order.is_sorted());
        }
        assert_eq!(world.machine.free_units(), 24 / unit as usize);
    }
}

#[test]
fn time_held_is_not_waited() {
    let (mut queue, mut machine) = (queue(Policy::Easy), machine("1", 1));
    let limits = Limits::default();
    let late = limits.overdue_after + 10;
    let held = Job {
        is_held: true,
        ..Job::new(1, 1, Some(10), 0)
    };
    queue.submit(held).unwrap();
    queue.pass(0, &mut machine, EXACT, &COLD);
    let first = Job {
        priority: 1_000,
        ..Job::new(2, 1, Some(10), late)
    };
    queue.submit(first).unwrap();
    queue.release(1);
    assert_eq!(numbers(&queue.pass(late, &mut machine, EXACT, &COLD)), [2]);
    // Held again for a while, it waits for as long as the others from then on.
    queue.hold(1);
    queue.pass(late + 5, &mut machine, EXACT, &COLD);
    queue.release(1);
    queue.pass(late + 8, &mut machine, EXACT, &COLD);
    let next = Job {
        priority: 1_000,
        ..Job::new(3, 1, Some(10), late + 9)
    };
    queue.submit(next).unwrap();
    let overdue = late + 3 + limits.overdue_after;
    assert_eq!(queue.order(overdue), [3, 1]);
    assert_eq!(queue.order(overdue + 1), [1, 3]);
}

/// The whole machine is wanted by a job of low priority, while small ones of high priority keep
/// coming: enough to fill the machine at any time.
#[test]
fn no_job_starves() {
    let walltime = 10;
    let limits = Limits {
        overdue_after: 50,
        ..Limits::default()
    };
    let policies = [
        window(4),
        Policy::Fcfs,
        Policy::Easy,
        Policy::EasyInOrder,
        Policy::Conservative,
    ];
    for policy in policies {
        let mut world = World::new(Queue::new(policy, limits), machine("4x4", 4), EXACT);
        let mut number = 0;
        while !world.started.contains_key(&30) {
            for _ in 0..3 {
                number += 1;
                let is_large = number == 30;
                let job = Job {
                    priority: if is_large { 0 } else { 9 },
                    ..Job::new(
                        number,
                        if is_large { 16 } else { 4 },
                        Some(walltime),
                        world.now,
                    )
                };
                world.queue.submit(job).unwrap();
            }
            world.pass();
            world.now += 1;
            while world.next_end().is_some_and(|end| end <= world.now) {
                world.end_next();
            }
            // Submitted at 9; overdue at 60; then behind what is overdue before it.
            assert!(world.now < 150, "{policy}: job 30 waits since 9");
        }
    }
}

#[test]
fn names_are_read_and_written() {
    for name in POLICY_NAMES {
        assert_eq!(name.parse::<Policy>().unwrap().to_string(), name);
    }
    assert!(
        "fifo"
            .parse::<Policy>()
            .unwrap_err()
            .contains("conservative")
    );
}

#[test]
fn a_window_is_no_larger_than_its_user_may_have() {
    for (limits, started) in [
        (
            Limits {
                running_of_user: Some(2),
                ..Limits::default()
            },
            vec![1, 2, 5],
        ),
        (
            Limits {
                nodes_of_user: Some(3),
                ..Limits::default()
            },
            vec![1, 3, 5],
        ),
    ] {
        let mut machine = Machine::new(Topology::new(&[16]).unwrap(), 1).unwrap();
        let mut queue = Queue::new(Policy::Published { window: 4 }, limits);
        for (number, count) in [(1, 2), (2, 2), (3, 1), (4, 1)] {
            queue.submit(Job::new(number, count, None, 0)).unwrap();
        }
        let other = Job {
            user: 7,
            ..Job::new(5, 1, None, 0)
        };
        queue.submit(other).unwrap();
        let mut got = numbers(&queue.pass(0, &mut machine, EXACT, &COLD));
        got.sort_unstable();
        assert_eq!(got, started);
    }
}

#[test]
fn long_chains_of_dependencies_are_settled_quickly() {
    let mut queue = Queue::new(Policy::Easy, Limits::default());
    let jobs = 50_000;
    for number in 1..=jobs {
        let mut job = Job::new(number, 1, None, 0);
        job.after = (number > 1)
            .then(|| Dependency {
                job: number - 1,
                must_succeed: true,
            })
            .into_iter()
            .collect();
        queue.submit(job).unwrap();
    }
    let begin = std::time::Instant::now();
    queue.cancel(1);
    let mut ended = 1;
    while let [number] = queue.hopeless()[..] {
        queue.cancel(number);
        ended += 1;
    }
    assert_eq!((ended, queue.queued_count()), (jobs, 0));
    assert!(queue.dependents.is_empty());
    // Each by a look at all it would be 1.25 billion looks.
    assert!(begin.elapsed().as_secs() < 3, "{:?}", begin.elapsed());
}
