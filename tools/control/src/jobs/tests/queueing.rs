//! Which job starts when: priorities, holds, dependencies, limits of users, drained nodes; batch
//! jobs.

use super::*;
use crate::api::types::{AfterCondition, AfterJob, JobInfo, Why};
use crate::jobs::{Due, NodeError};

fn after(job: u64, condition: AfterCondition) -> Vec<AfterJob> {
    vec![AfterJob { job, condition }]
}

impl Lab {
    /// Hands in a batch job of one rank with another time limit and priority.
    fn queue(&mut self, ranks: u32, time_limit_s: u64, priority: i32) -> u64 {
        let mut submission = self.batch(ranks);
        submission.time_limit_s = Some(time_limit_s);
        submission.terms.priority = priority;
        self.submit_batch(submission)
    }

    /// The present attempt of a job runs to its end on all its nodes.
    fn finish(&mut self, id: u64, status: i32) {
        self.all_ready(id);
        for node in self.nodes_of(id) {
            self.exit(node.0, id, RankEnd::Exited(status));
        }
        self.write_down();
    }

    fn why(&self, id: u64) -> (Option<Why>, String) {
        let info = self.runner.get(id).unwrap();
        (info.why, info.reason)
    }
}

#[test]
fn a_batch_job_starts_without_a_client_and_its_output_is_kept() {
    let mut lab = Lab::with_nodes(2);
    let mut submission = lab.batch(2);
    submission.terms.input = Some(lab::put(&lab.store, b"input of a file"));
    let id = lab.submit_batch(submission);
    lab.all_ready(id);
    assert_eq!(lab.state(id), JobState::Running);
    let taken = lab
        .runner
        .attach(&operator(), 0, &mut lab.nodes, id)
        .map(drop);
    assert_eq!(taken, Err(JobError::Batch(id)));
    assert_eq!(
        lab.runner.stdin(&operator(), id).map(drop),
        Err(JobError::Batch(id))
    );
    lab.write(1, id, b"hello\n");
    assert_eq!(lab.kept(id), ["hello\n"], "before the call is answered");
    let mut read = |node: u32| {
        lab.call(node, id, Call::Read { fd: 0, size: 8 });
        lab.nodes.replies.pop_back().unwrap().2
    };
    assert_eq!(read(0), Reply::Data(b"input of".to_vec()));
    assert_eq!(read(0), Reply::Data(b" a file".to_vec()));
    assert_eq!(read(0), Reply::Data(Vec::new()));
    assert_eq!(read(1), Reply::Data(Vec::new()), "rank 0 alone has input");
    lab.finish(id, 0);
    let info = lab.runner.get(id).unwrap();
    assert_eq!(info.state, JobState::Completed);
    assert_eq!(
        info.output.map(|output| output.bytes),
        Some(6),
        "as many as were written"
    );
    let placement = info.placement.unwrap();
    assert_eq!((placement.hops, &*placement.free), (1, "n[0-1]"));
    assert!(
        placement.certificate.starts_with("optimal"),
        "{placement:?}"
    );
}

#[test]
fn short_jobs_go_before_one_that_waits_if_they_do_not_delay_it() {
    let mut lab = Lab::with_nodes(4);
    let first = lab.queue(3, 100, 0);
    let second = lab.queue(4, 100, 0);
    let long = lab.queue(1, 200, 0);
    let short = lab.queue(1, 50, 0);
    assert_eq!(lab.state(first), JobState::Starting);
    assert_eq!(lab.state(short), JobState::Starting, "backfilled");
    assert_eq!(
        lab.why(second),
        (Some(Why::Resources), "4 nodes needed, 0 free".to_string())
    );
    assert_eq!(lab.why(long).0, Some(Why::Priority));
    let info = lab.runner.get(second).unwrap();
    let wait_us = info.expected_start_unix_us.unwrap() - info.submitted_unix_us;
    assert!((99_000_000..110_000_000).contains(&wait_us), "{wait_us}");
    assert_eq!(lab.runner.queue_order(), [second, long]);
    lab.finish(short, 0);
    lab.finish(first, 0);
    assert_eq!(lab.state(second), JobState::Starting);
    assert_eq!(lab.state(long), JobState::Pending);
}

#[test]
fn higher_priorities_go_first_and_held_jobs_do_not() {
    let mut lab = Lab::with_nodes(1);
    let running = lab.queue(1, 0, 0);
    let [low, high] = [lab.queue(1, 0, 0), lab.queue(1, 0, 5)];
    let mut held = lab.batch(1);
    (held.terms.hold, held.terms.priority) = (true, 9);
    let held = lab.submit_batch(held);
    assert_eq!(lab.runner.queue_order(), [held, high, low]);
    assert_eq!(lab.why(held).0, Some(Why::JobHeldUser));
    assert!(lab.why(held).1.contains(&format!("hearth release {held}")));
    lab.runner.hold(&operator(), high).unwrap();
    lab.finish(running, 0);
    assert_eq!(lab.state(low), JobState::Starting);
    lab.runner.release(&operator(), high).unwrap();
    assert_eq!(
        lab.runner.release(&operator(), high),
        Err(JobError::NotHeld(high))
    );
    lab.runner.set_priority(&operator(), held, -1).unwrap();
    lab.runner.release(&operator(), held).unwrap();
    lab.finish(low, 0);
    assert_eq!(lab.state(high), JobState::Starting);
    let state = JobState::Starting;
    assert_eq!(
        lab.runner.hold(&operator(), high),
        Err(JobError::NotPending { id: high, state })
    );
    assert_eq!(lab.runner.hold(&operator(), 77), Err(JobError::Unknown(77)));
    lab.finish(high, 0);
    assert_eq!(lab.state(held), JobState::Starting);
}

#[test]
fn jobs_wait_for_others_to_end_or_to_end_well() {
    let mut lab = Lab::with_nodes(4);
    let first = lab.queue(1, 0, 0);
    let mut waiting = [AfterCondition::Any, AfterCondition::Ok].map(|condition| {
        let mut submission = lab.batch(1);
        submission.terms.after = after(first, condition);
        lab.submit_batch(submission)
    });
    let mut chained = lab.batch(1);
    chained.terms.after = after(waiting[1], AfterCondition::Ok);
    let chained = lab.submit_batch(chained);
    assert_eq!(lab.why(waiting[0]).0, Some(Why::Dependency));
    assert!(lab.why(waiting[0]).1.contains(&format!("job {first}")));
    lab.finish(first, 3);
    assert_eq!(lab.state(waiting[0]), JobState::Starting);
    let info = lab.runner.get(waiting[1]).unwrap();
    assert_eq!(info.state, JobState::Cancelled);
    assert!(info.reason.contains(&format!("job {first} ended (failed)")));
    assert_eq!(lab.state(chained), JobState::Cancelled, "and so on");
    waiting.reverse();
    // Jobs that have ended already.
    let mut submit = |job, condition| {
        let mut submission = lab.batch(1);
        submission.terms.after = after(job, condition);
        lab.hand_in(0, submission)
    };
    assert_eq!(
        submit(first, AfterCondition::Ok),
        Err(SubmitError::FailedDependency {
            job: first,
            state: "failed"
        })
    );
    assert!(submit(first, AfterCondition::Any).is_ok());
    assert_eq!(
        submit(99, AfterCondition::Any),
        Err(SubmitError::UnknownDependency(99))
    );
    let mut known = lab.batch(1);
    known.terms.after = after(50, AfterCondition::Ok);
    known.terms.known_ends = [(50, JobState::Completed)].into();
    assert!(lab.hand_in(0, known).is_ok(), "the store knows it");
}

#[test]
fn just_after_a_start_nodes_that_are_not_heard_are_awaited() {
    let mut lab = Lab::with_nodes(0);
    (0..3).for_each(|node| lab.runner.know_node(node));
    lab.runner.adopt(lab.now_us, &mut lab.nodes);
    lab.join(1);
    let job = lab.queue(2, 0, 0);
    let (why, text) = lab.why(job);
    assert_eq!(why, Some(Why::ReqNodeNotAvail));
    assert!(text.contains("waits to hear from 2 nodes"), "{text}");
    assert!(!text.contains("node reset"), "{text}");
    assert!(lab.runner.awaits(1) && !lab.runner.awaits(0) && !lab.runner.awaits(7));
    // As long as a node may take to come back to its job.
    let limit_s = lab.config.jobs.return_limit_s;
    let next_us = lab.runner.next_deadline_us().unwrap();
    assert!(next_us <= limit_s * 1_000_000, "{next_us}");
    lab.pass_s(limit_s);
    assert!(!lab.runner.awaits(1));
    let (why, text) = lab.why(job);
    assert_eq!(why, Some(Why::PartitionNodeLimit));
    let wanted = "2 nodes needed, 1 in service; n[1-2] have not joined";
    assert!(text.starts_with(wanted), "{text}");
    lab.join(2);
    lab.write_down();
    assert_eq!(lab.state(job), JobState::Starting);
}

#[test]
fn a_job_that_nodes_were_taken_from_says_how_they_come_back() {
    let mut lab = Lab::with_nodes(4);
    for node in [2, 3] {
        lab.runner
            .node_left(0, &mut lab.nodes, node, "was asked to leave");
    }
    let waiting = lab.queue(3, 0, 0);
    let (why, text) = lab.why(waiting);
    assert_eq!(why, Some(Why::PartitionNodeLimit));
    let wanted =
        "3 nodes needed, 2 in service; n[2-3] left in good order, `hearth node reset n[2-3]`";
    assert!(text.starts_with(wanted), "{text}");
    lab.runner.node_up(0, &mut lab.nodes, 3, true);
    lab.write_down();
    assert_eq!(lab.state(waiting), JobState::Starting);
}

#[test]
fn users_have_limits() {
    let mut lab = Lab::with(6, |config| {
        config.queue.user_jobs_max = 2;
        config.queue.user_nodes_max = 3;
        config.queue.user_queued_max = 2;
    });
    let mut of = |user: &str, ranks| {
        let mut submission = lab.batch(ranks);
        submission.terms.user = user.to_string();
        let id = lab.hand_in(0, submission);
        lab.write_down();
        id
    };
    let ann = [1, 1, 1].map(|ranks| of("ann", ranks).unwrap());
    let bob = [2, 2].map(|ranks| of("bob", ranks).unwrap());
    assert_eq!(
        of("ann", 4),
        Err(SubmitError::UserNodes { wanted: 4, most: 3 })
    );
    of("ann", 1).unwrap();
    let full = of("ann", 1).unwrap_err();
    assert!(
        full.to_string().contains("ann has 2 jobs waiting"),
        "{full}"
    );
    assert!(matches!(of("a b", 1), Err(SubmitError::BadUser(_))));
    assert_eq!(lab.why(ann[2]).0, Some(Why::UserJobs));
    assert_eq!(lab.why(bob[1]).0, Some(Why::UserNodes));
    assert_eq!(lab.state(bob[0]), JobState::Starting);
    lab.finish(ann[0], 0);
    assert_eq!(lab.state(ann[2]), JobState::Starting);
}

#[test]
fn a_time_limit_is_at_most_a_century() {
    let mut lab = Lab::with_nodes(1);
    let mut with_limit = |seconds| {
        let mut submission = lab.batch(1);
        submission.time_limit_s = Some(seconds);
        lab.hand_in(0, submission)
    };
    assert_eq!(with_limit(u64::MAX), Err(SubmitError::TimeLimit));
    with_limit(36_525 * 86_400).unwrap();
}

#[test]
fn a_drained_node_gets_no_job_and_the_one_it_has_goes_on() {
    let mut lab = Lab::with_nodes(2);
    let first = lab.queue(1, 0, 0);
    lab.runner.drain(&operator(), &[0], " bad fan ").unwrap();
    lab.write_down();
    assert_eq!(lab.state(first), JobState::Starting, "it goes on");
    let drained = lab.runner.drained(0).unwrap();
    assert_eq!((&*drained.reason, &*drained.by), ("bad fan", "hearth"));
    lab.finish(first, 0);
    let second = lab.queue(1, 0, 0);
    assert_eq!(lab.launch_of(second).nodes, [(NodeId(1), 1)]);
    let third = lab.queue(2, 0, 0);
    let (why, text) = lab.why(third);
    assert_eq!(why, Some(Why::PartitionNodeLimit));
    assert_eq!(
        text,
        "2 nodes needed, 1 in service; n0 is drained (bad fan), `hearth resume n0` gives it jobs again"
    );
    let mut named = lab.batch(1);
    named.want.nodes = Some(vec![0]);
    let named = lab.submit_batch(named);
    let (why, text) = lab.why(named);
    assert_eq!(why, Some(Why::ReqNodeNotAvail));
    assert!(text.contains("n0 is drained (bad fan)"), "{text}");
    lab.finish(second, 0);
    lab.runner.resume(&operator(), &[0]).unwrap();
    lab.write_down();
    assert_eq!(lab.state(third), JobState::Starting);
    let unknown = lab.runner.drain(&operator(), &[0, 9], "x");
    assert_eq!(unknown, Err(NodeError::Unknown("n9".to_string())));
    assert_eq!(
        lab.runner.drain(&operator(), &[0], " "),
        Err(NodeError::Reason)
    );
    assert_eq!(
        lab.runner.drain(&operator(), &[], "x"),
        Err(NodeError::NoNodes)
    );
    assert_eq!(
        lab.runner.resume(&operator(), &[0, 1]),
        Err(NodeError::NotDrained("n[0-1]".to_string()))
    );
}

#[test]
fn a_node_on_which_jobs_fail_again_and_again_is_drained() {
    let mut lab = Lab::with(2, |config| config.queue.drain_after_failures = 2);
    for failures in 1..=2 {
        let mut submission = lab.batch(1);
        submission.want.nodes = Some(vec![1]);
        let id = lab.submit_batch(submission);
        lab.all_ready(id);
        lab.runner.node_down(0, &mut lab.nodes, 1, "n1 was lost");
        lab.write_down();
        assert_eq!(lab.state(id), JobState::NodeLost);
        assert_eq!(lab.runner.drained(1).is_some(), failures == 2);
        lab.runner.node_up(0, &mut lab.nodes, 1, true);
    }
    let drained = lab.runner.drained(1).unwrap();
    assert!(drained.reason.contains("2 jobs in a row"), "{drained:?}");
    assert_eq!(drained.by, "hearth");
    let next = lab.queue(2, 0, 0);
    assert_eq!(lab.state(next), JobState::Pending);
    lab.runner.resume(&operator(), &[1]).unwrap();
    lab.write_down();
    assert_eq!(lab.state(next), JobState::Starting);
    // One that ends by itself there, however badly, clears the node.
    lab.finish(next, 1);
    let lost = lab.queue(2, 0, 0);
    lab.runner.node_down(0, &mut lab.nodes, 1, "n1 was lost");
    assert_eq!(lab.runner.drained(1), None, "one failure in a row");
    lab.exit(0, lost, RankEnd::Signal(15));
}

#[test]
fn nodes_come_from_the_tree() {
    let mut lab = Lab::with(8, |config| config.serve.tree = "4x2".to_string());
    let filler = lab.queue(3, 0, 0);
    let second = lab.queue(3, 0, 0);
    let nodes = |id| {
        lab.launch_of(id)
            .nodes
            .iter()
            .map(|(node, _)| node.0)
            .collect()
    };
    let (first, other): (Vec<u32>, Vec<u32>) = (nodes(filler), nodes(second));
    let leaf = |list: &[u32]| list.iter().map(|node| node / 4).collect::<Vec<_>>();
    assert_eq!(leaf(&first), [0, 0, 0]);
    assert_eq!(leaf(&other), [1, 1, 1], "not across both leaf switches");
    let placement = lab.runner.get(second).unwrap().placement.unwrap();
    assert_eq!((placement.hops, &*placement.free), (3, "n[3-7]"));
    let before = lab.runner.get(filler).unwrap().placement.unwrap();
    assert!(before.decision < placement.decision);
    // Two are free, one on each leaf switch.
    let apart = lab.queue(2, 0, 0);
    let placement = lab.runner.get(apart).unwrap().placement.unwrap();
    assert_eq!((placement.hops, &*placement.free), (3, "n[3,7]"));
    lab.runner.node_up(0, &mut lab.nodes, 8, true);
    let events = lab.runner.take_events();
    assert!(
        events
            .iter()
            .any(|event| event.kind == "node-without-place")
    );
    assert_eq!(
        lab.hand_in(0, lab.batch(9)),
        Err(SubmitError::NoPlaces {
            wanted: 9,
            places: 8
        })
    );
}

#[test]
fn empty_places_of_a_sites_tree_are_no_nodes() {
    // Two nodes on the first leaf switch, four on the second: n2 is there and in no tree.
    let site = |config: &mut crate::config::Config| {
        config.serve.tree = "4x2 without 2,3".to_string();
    };
    let mut lab = Lab::with(3, site);
    let events = lab.runner.take_events();
    let text = "n2 gets no jobs: the tree of the network has 6 places, and none is n2's";
    assert!(
        events.iter().any(|event| event.text.contains(text)),
        "{events:?}"
    );
    for node in 4..8 {
        lab.runner.know_node(node);
        lab.runner.node_up(0, &mut lab.nodes, node, true);
    }
    let job = lab.queue(3, 0, 0);
    let nodes: Vec<u32> = lab
        .launch_of(job)
        .nodes
        .iter()
        .map(|(node, _)| node.0)
        .collect();
    assert!(nodes.iter().all(|node| *node >= 4), "{nodes:?}");
    let rest = lab.queue(3, 0, 0);
    let mut nodes: Vec<u32> = lab.nodes_of(rest).iter().map(|node| node.0).collect();
    nodes.sort_unstable();
    assert_eq!((nodes[0], nodes[1], nodes.len()), (0, 1, 3), "{nodes:?}");
    let wanted = lab.hand_in(0, lab.batch(7));
    assert_eq!(
        wanted,
        Err(SubmitError::NoPlaces {
            wanted: 7,
            places: 6
        })
    );
}

#[test]
fn published_passes_run_when_a_job_arrives_or_ends() {
    let published = |config: &mut crate::config::Config| {
        config.queue.passes = crate::config::queue::Passes::Published;
    };
    let mut lab = Lab::with(1, published);
    let first = lab.queue(1, 0, 0);
    lab.finish(first, 0);
    lab.runner.know_node(1);
    let both = lab.queue(2, 0, 0);
    assert_eq!(lab.state(both), JobState::Pending);
    lab.runner.node_up(0, &mut lab.nodes, 1, true);
    lab.write_down();
    assert_eq!(lab.state(both), JobState::Pending, "nodes are no reason");
    let short = lab.queue(1, 0, 0);
    assert_eq!(lab.state(both), JobState::Starting, "a job has arrived");
    assert_eq!(lab.state(short), JobState::Pending);
}

/// Work that a step costs does not grow with the jobs that wait without a deadline.
#[test]
fn ten_thousand_jobs_wait_and_a_pass_is_fast() {
    let mut lab = Lab::with(256, |config| {
        config.serve.tree = "16x16".to_string();
        config.queue.user_jobs_max = 5_000;
    });
    let blocker = lab.queue(250, 1_000, 0);
    for number in 0..10_000_u32 {
        let mut submission = lab.batch(7 + number % 200);
        submission.time_limit_s = Some(u64::from(2_000 + number % 60));
        submission.terms.priority = (number % 10).cast_signed();
        lab.hand_in(0, submission).unwrap();
    }
    assert_eq!(
        lab.hand_in(0, lab.batch(1)),
        Err(SubmitError::QueueFull(10_000))
    );
    assert_eq!(lab.runner.next_deadline_us(), Some(200_000), "together");
    let begun = std::time::Instant::now();
    lab.runner.settle(200_000, &mut lab.nodes);
    let first = begun.elapsed();
    lab.runner.pass_due = Due::Now;
    let begun = std::time::Instant::now();
    lab.runner.settle(250_000, &mut lab.nodes);
    let pass = begun.elapsed();
    let begun = std::time::Instant::now();
    let shown: Vec<JobInfo> = lab.runner.jobs().cloned().collect();
    let listing = begun.elapsed();
    println!("10,000 jobs: first pass {first:?}, a pass {pass:?}, listing {listing:?}");
    assert_eq!((shown.len(), lab.runner.jobs.len()), (10_001, 10_001));
    assert_eq!(
        lab.runner.next_deadline_us(),
        lab.runner.deadlines.of(blocker)
    );
    // One job has the reservation, the others wait behind it: 10,000 reasons, one of them dear.
    let of = |why| lab.runner.jobs().filter(|job| job.why == Some(why)).count();
    assert_eq!((of(Why::Resources), of(Why::Priority)), (1, 9_999));
}
