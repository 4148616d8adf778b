//! Jobs that are tied to certain nodes, and jobs that run again.

use super::*;

fn tied(number: JobNumber, nodes: &[u32], walltime: Time) -> Job {
    Job {
        tie: Tie::Named(nodes.to_vec()),
        ..Job::new(number, nodes.len() as u32, Some(walltime), 0)
    }
}

fn plain(number: JobNumber, count: u32, walltime: Time) -> Job {
    Job::new(number, count, Some(walltime), 0)
}

fn given(starts: &[Start]) -> Vec<(JobNumber, Vec<u32>)> {
    let one = |start: &Start| (start.job.number, start.given.nodes.clone());
    starts.iter().map(one).collect()
}

#[test]
fn a_named_job_gets_its_nodes_and_keeps_the_free_ones() {
    for policy in [Policy::Easy, Policy::EasyInOrder, Policy::Conservative] {
        let (mut queue, mut machine) = (queue_of(policy), machine("4x2", 1));
        queue.submit(tied(1, &[5, 2], 10)).unwrap();
        queue.submit(tied(2, &[2, 3], 10)).unwrap();
        queue.submit(plain(3, 4, 1_000)).unwrap();
        queue.submit(plain(4, 1, 1)).unwrap();
        let starts = queue.pass(0, &mut machine, EXACT, &COLD);
        assert_eq!(
            given(&starts)[..2],
            [(1, vec![2, 5]), (3, vec![0, 4, 6, 7])],
            "{policy}: 3 leaves n3 to job 2"
        );
        assert_eq!(queue.reason(2), Some(Reason::Nodes), "{policy}");
        assert_eq!((starts[0].kept.len(), &starts[1].kept[..]), (0, &[3][..]));
        assert!(machine.is_free(3), "kept for the pass only");
        machine.release(1);
        queue.ended(1, true);
        let starts = queue.pass(1, &mut machine, EXACT, &COLD);
        assert_eq!(given(&starts), [(2, vec![2, 3])], "{policy}");
    }
}

#[test]
fn a_named_job_holds_up_those_behind_it_where_nothing_goes_first() {
    for policy in [Policy::Fcfs, window(4)] {
        let (mut queue, mut machine) = (queue_of(policy), machine("4x2", 1));
        queue.submit(plain(1, 3, 10)).unwrap();
        queue.submit(tied(2, &[0, 7], 10)).unwrap();
        queue.submit(plain(3, 1, 10)).unwrap();
        let starts = queue.pass(0, &mut machine, EXACT, &COLD);
        assert_eq!(given(&starts), [(1, vec![0, 1, 2])], "{policy}");
        machine.release(1);
        queue.ended(1, true);
        let starts = queue.pass(1, &mut machine, EXACT, &COLD);
        assert_eq!(numbers(&starts), [2, 3], "{policy}");
    }
}

#[test]
fn nodes_out_of_service_hold_up_nobody() {
    let (mut queue, mut machine) = (queue_of(Policy::Fcfs), machine("4x2", 1));
    machine.set_in_service(4, false);
    queue.submit(tied(1, &[4], 10)).unwrap();
    queue.submit(tied(2, &[99], 10)).unwrap();
    queue.submit(plain(3, 1, 10)).unwrap();
    assert_eq!(numbers(&queue.pass(0, &mut machine, EXACT, &COLD)), [3]);
    assert_eq!(queue.reason(1), Some(Reason::NodesOut));
    assert_eq!(queue.reason(2), Some(Reason::NodesOut));
    machine.set_in_service(4, true);
    assert_eq!(numbers(&queue.pass(1, &mut machine, EXACT, &COLD)), [1]);
    let twice = Job {
        count: 2,
        ..tied(4, &[1, 1], 1)
    };
    assert_eq!(queue.submit(twice), Err(SubmitError::Tie));
}

#[test]
fn a_warm_job_gets_the_warm_nodes_with_the_fewest_hops() {
    let (mut queue, mut machine) = (queue_of(Policy::Easy), machine("4x2", 1));
    let warm = |job: &Job| match job.number {
        1 | 2 => Held::new(BTreeSet::from([0, 5, 6])),
        _ => Held::default(),
    };
    let job = |number, count| Job {
        tie: Tie::Warm,
        ..plain(number, count, 10)
    };
    queue.submit(job(1, 2)).unwrap();
    queue.submit(job(2, 2)).unwrap();
    queue.submit(job(3, 1)).unwrap();
    queue.submit(plain(4, 6, 10)).unwrap();
    queue.submit(plain(5, 5, 10)).unwrap();
    let starts = queue.pass(0, &mut machine, EXACT, &warm);
    assert_eq!(
        given(&starts),
        [(1, vec![5, 6]), (5, vec![1, 2, 3, 4, 7])],
        "n0 is kept for job 2"
    );
    assert_eq!(queue.reason(2), Some(Reason::Nodes));
    assert_eq!(queue.reason(3), Some(Reason::TooLarge), "nobody holds it");
    machine.release(1);
    queue.ended(1, true);
    assert_eq!(
        given(&queue.pass(1, &mut machine, EXACT, &warm)),
        [(2, vec![5, 6])]
    );
}

fn among(number: JobNumber, count: u32, with: &[u32], without: &[u32]) -> Job {
    Job {
        tie: Tie::Among {
            with: with.to_vec(),
            without: without.iter().copied().collect(),
        },
        ..plain(number, count, 10)
    }
}

#[test]
fn a_job_has_the_nodes_that_it_must_have_and_none_that_it_must_not() {
    for policy in [Policy::Easy, Policy::Conservative, Policy::Fcfs, window(4)] {
        let (mut queue, mut machine) = (queue_of(policy), machine("4x2", 1));
        queue.submit(among(1, 3, &[5], &[4, 0])).unwrap();
        queue.submit(among(2, 2, &[], &[2, 3])).unwrap();
        let starts = queue.pass(0, &mut machine, EXACT, &COLD);
        assert_eq!(
            given(&starts),
            [(1, vec![5, 6, 7]), (2, vec![0, 1])],
            "{policy}: the fewest hops to n5 without n4"
        );
        queue.submit(among(3, 3, &[], &[2])).unwrap();
        assert!(queue.pass(1, &mut machine, EXACT, &COLD).is_empty());
        assert_eq!(queue.reason(3), Some(Reason::Nodes), "{policy}");
    }
}

#[test]
fn a_job_waits_for_a_node_that_it_must_have_and_keeps_the_others() {
    for policy in [Policy::Easy, Policy::EasyInOrder, Policy::Conservative] {
        let (mut queue, mut machine) = (queue_of(policy), machine("4x2", 1));
        queue.submit(tied(1, &[3], 10)).unwrap();
        queue.submit(among(2, 2, &[3], &[7])).unwrap();
        queue.submit(plain(3, 2, 1)).unwrap();
        queue.submit(plain(4, 1, 1)).unwrap();
        let starts = queue.pass(0, &mut machine, EXACT, &COLD);
        assert_eq!(numbers(&starts)[0], 1, "{policy}");
        for start in &starts[1..] {
            assert_eq!(start.given.nodes, [7], "{policy}: all others are kept");
        }
        assert_eq!(queue.reason(2), Some(Reason::Nodes), "{policy}");
        machine.release(1);
        queue.ended(1, true);
        let starts = queue.pass(10, &mut machine, EXACT, &COLD);
        assert_eq!(given(&starts)[0], (2, vec![0, 3]), "{policy}: one leaf");
    }
}

#[test]
fn nodes_that_are_not_in_service_are_told_of_a_job_that_must_have_them() {
    let (mut queue, mut machine) = (queue_of(Policy::Easy), machine("4x2", 1));
    machine.set_in_service(4, false);
    queue.submit(among(1, 2, &[4], &[])).unwrap();
    queue.submit(among(2, 7, &[], &[0])).unwrap();
    queue.submit(among(3, 6, &[], &[0, 4])).unwrap();
    assert_eq!(numbers(&queue.pass(0, &mut machine, EXACT, &COLD)), [3]);
    assert_eq!(queue.reason(1), Some(Reason::NodesOut));
    assert_eq!(queue.reason(2), Some(Reason::TooLarge));
    for wrong in [
        among(4, 1, &[1, 2], &[]),
        among(4, 3, &[1, 1], &[]),
        among(4, 3, &[1, 2], &[2]),
    ] {
        assert_eq!(queue.submit(wrong), Err(SubmitError::Tie));
    }
}

/// Small jobs come without end and would take the nodes of a tied job one by one.
#[test]
fn a_tied_job_waits_for_jobs_that_ran_before_it_only() {
    for policy in [Policy::Easy, Policy::EasyInOrder, Policy::Conservative] {
        let (mut queue, mut machine) = (queue_of(policy), machine("4x2", 1));
        let mut ends: BTreeMap<JobNumber, Time> = BTreeMap::new();
        let all: Vec<u32> = (0..8).collect();
        let mut number = 10;
        for now in 0..40 {
            let over = ends.iter().filter(|(_, end)| **end <= now);
            for job in over.map(|(job, _)| *job).collect::<Vec<_>>() {
                ends.remove(&job);
                machine.release(job);
                queue.ended(job, true);
            }
            if now == 5 {
                queue.submit(tied(1, &all, 5)).unwrap();
            }
            for _ in 0..3 {
                number += 1;
                queue.submit(plain(number, 1, 7 + number % 3)).unwrap();
            }
            for start in queue.pass(now, &mut machine, EXACT, &COLD) {
                let job = start.job;
                if job.number == 1 {
                    assert!(now <= 5 + 9, "{policy}: began at {now}");
                }
                ends.insert(job.number, now + job.walltime.unwrap());
            }
        }
        assert_eq!(queue.reason(1), None, "{policy}: it ran");
    }
}

#[test]
fn a_job_that_runs_again_keeps_its_place_and_those_that_wait_for_it() {
    let (mut queue, mut machine) = (queue_of(Policy::Fcfs), machine("4x2", 1));
    queue.submit(plain(1, 8, 10)).unwrap();
    queue.submit(plain(2, 8, 10)).unwrap();
    let after = Dependency {
        job: 1,
        must_succeed: true,
    };
    let last = Job {
        after: vec![after],
        ..plain(3, 1, 10)
    };
    queue.submit(last).unwrap();
    assert_eq!(numbers(&queue.pass(0, &mut machine, EXACT, &COLD)), [1]);
    machine.release(1);
    assert!(queue.withdraw(1) && !queue.withdraw(1));
    queue.submit(plain(1, 8, 10)).unwrap();
    assert_eq!(numbers(&queue.pass(5, &mut machine, EXACT, &COLD)), [1]);
    assert_eq!(queue.reason(3), Some(Reason::Dependency));
    assert_eq!(queue.after(3), [after]);
    machine.release(1);
    queue.ended(1, false);
    assert_eq!(queue.hopeless(), [3]);
}

#[test]
fn reservations_are_told() {
    for (policy, second) in [(Policy::Easy, None), (Policy::Conservative, Some(150))] {
        let (mut queue, mut machine) = (queue_of(policy), machine("4x2", 1));
        submit(&mut queue, &[(6, 100), (4, 50), (8, 50)]);
        assert_eq!(numbers(&queue.pass(0, &mut machine, EXACT, &COLD)), [1]);
        assert_eq!(queue.reserved(2), Some(100));
        assert_eq!(queue.reserved(3), second, "{policy}");
    }
}

#[test]
fn conservative_keeps_the_holders_for_a_job_that_wants_warm_nodes() {
    // Nodes 0 and 1 hold the program; node 0 is busy, so that job 1 waits for it with node 1 kept,
    // though enough other nodes are free.
    let mut machine = Machine::new(Topology::new(&[4]).unwrap(), 1).unwrap();
    let mut queue = Queue::new(Policy::Conservative, Limits::default());
    queue.adopt(&Job::new(9, 1, Some(100), 0), 0);
    machine.take(9, &[0]);
    let held = Held::new(BTreeSet::from([0, 1]));
    let warm = |_: &Job| held.clone();
    let mut warm_only = Job::new(1, 2, Some(10), 0);
    warm_only.tie = Tie::Warm;
    queue.submit(warm_only).unwrap();
    queue.submit(Job::new(2, 2, Some(1_000), 0)).unwrap();
    queue.submit(Job::new(3, 1, Some(10), 0)).unwrap();
    let starts = queue.pass(0, &mut machine, EXACT, &warm);
    assert_eq!(numbers(&starts), [2], "others have the nodes that are left");
    assert_eq!(starts[0].given.nodes, [2, 3]);
    machine.release(9);
    queue.ended(9, true);
    let starts = queue.pass(1, &mut machine, EXACT, &warm);
    assert_eq!(
        (numbers(&starts), &starts[0].given.nodes[..]),
        (vec![1], &[0, 1][..])
    );
}

#[test]
fn a_pass_looks_at_holders_once_however_many_jobs_want_them() {
    let nodes = 4_096;
    let mut machine = Machine::new(Topology::new(&[nodes]).unwrap(), 1).unwrap();
    let mut queue = Queue::new(Policy::Easy, Limits::default());
    queue.adopt(&Job::new(1, 1, None, 0), 0);
    machine.take(1, &[0]);
    let held = Held::new((0..nodes).collect());
    for number in 2..10_002 {
        let mut job = Job::new(number, nodes, Some(10), 0);
        job.tie = Tie::Warm;
        queue.submit(job).unwrap();
    }
    let begin = std::time::Instant::now();
    assert!(
        queue
            .pass(0, &mut machine, EXACT, &|_| held.clone())
            .is_empty()
    );
    // Looked at for each job it is 80 million look-ups, seconds in a debug build.
    assert!(begin.elapsed().as_millis() < 1_500, "{:?}", begin.elapsed());
    assert_eq!(queue.reason(5_000), Some(Reason::Nodes));
}
