//! Jobs that go on over a restart of the control node.

use super::*;
use crate::api::types::JobInfo;
use crate::jobs::attempt;
use netstack::ids::CallId;
use netstack::job::AdoptedRank;

impl Lab {
    fn of(&self, id: u64) -> JobInfo {
        self.runner.get(id).unwrap()
    }

    /// A rank writes, as its call of that number.
    fn write_as(&mut self, node: u32, id: u64, number: u64, text: &str) {
        let data = text.as_bytes().to_vec();
        let job = attempt::on_nodes(id, self.of(id).restarts);
        let call = (CallId(number), Call::Write { fd: 1, data });
        let by = (job, self.first_on(node, job));
        self.runner
            .call(self.now_us, &mut self.nodes, NodeId(node), by, call);
    }
}

#[test]
fn output_goes_on_without_a_gap_and_nothing_is_written_twice() {
    let mut lab = Lab::with_nodes(1);
    let id = lab.submit_batch(lab.batch(1));
    lab.all_ready(id);
    lab.write_as(0, id, 1, "one ");
    lab.write_as(0, id, 2, "two ");
    lab.restart(1);
    lab.claim(id);
    // The answer to the second died with control.
    lab.nodes.replies.clear();
    lab.write_as(0, id, 2, "two ");
    lab.write_as(0, id, 3, "three");
    assert_eq!(lab.nodes.replies.len(), 2, "both are answered");
    lab.exit(0, id, RankEnd::Exited(5));
    lab.write_down();
    assert_eq!(lab.kept(id).concat(), "one two three");
    let info = lab.of(id);
    let end = (info.state, info.exit_status, info.restarts, info.continued);
    assert_eq!(end, (JobState::Failed, Some(5), 0, 1));
}

#[test]
fn ranks_that_had_ended_are_not_asked_for_and_count() {
    let mut lab = Lab::with_nodes(3);
    let id = lab.submit_batch(lab.batch(3));
    lab.all_ready(id);
    lab.exit(1, id, RankEnd::Exited(7));
    let waiting = lab.submit_batch(lab.batch(2));
    for _ in 0..2 {
        lab.restart(3);
        let open = AdoptedRank::Open { launch_on: None };
        let ranks = &lab.nodes.adopted[0].2;
        assert_eq!(ranks[..], [open, AdoptedRank::Ended, open]);
        assert_eq!(
            (lab.runner.job_of(0), lab.runner.job_of(1)),
            (Some(id), None)
        );
    }
    lab.claim(id);
    assert_eq!(lab.state(waiting), JobState::Pending, "one node is free");
    for node in [0, 2] {
        lab.exit(node, id, RankEnd::Exited(0));
    }
    lab.write_down();
    assert_eq!(lab.of(id).exit_status, Some(7));
    assert_eq!(lab.of(id).ranks[1].end, Some(RankEnd::Exited(7)));
    assert_eq!(lab.state(waiting), JobState::Starting);
}

#[test]
fn nodes_that_do_not_come_back_are_lost_after_a_while() {
    let mut lab = Lab::with_nodes(2);
    let id = lab.submit_batch(lab.batch(2));
    lab.all_ready(id);
    lab.restart(2);
    let job = JobId(id);
    lab.runner
        .claimed(lab.now_us, &mut lab.nodes, job, NodeId(0), 0);
    lab.pass_s(59);
    assert_eq!(lab.state(id), JobState::Running);
    lab.pass_s(2);
    assert_eq!(lab.nodes.abandoned, [(1, id)]);
    assert_eq!(lab.state(id), JobState::Ending);
    lab.exit(0, id, RankEnd::Signal(15));
    lab.write_down();
    let info = lab.of(id);
    assert_eq!(info.state, JobState::NodeLost);
    assert!(
        info.reason.contains("n1 did not come back within 60 s"),
        "{}",
        info.reason
    );
}

#[test]
fn time_limits_count_from_the_first_run_on() {
    let mut lab = Lab::with_nodes(1);
    let mut submission = lab.batch(1);
    submission.time_limit_s = Some(1_000);
    let id = lab.submit_batch(submission);
    lab.all_ready(id);
    lab.write_down();
    // It has run for 990 seconds when control is started again.
    let (info, _) = lab.written.get_mut(&id).unwrap();
    *info.started_unix_us.as_mut().unwrap() -= 990_000_000;
    lab.restart(1);
    lab.claim(id);
    lab.pass_s(9);
    assert_eq!(lab.state(id), JobState::Running);
    lab.pass_s(4);
    assert_eq!(lab.of(id).ends_as, Some(JobState::TimeLimit));
}

#[test]
fn a_cancel_reaches_a_job_whose_nodes_are_not_back() {
    let mut lab = Lab::with_nodes(1);
    let id = lab.submit_batch(lab.batch(1));
    lab.all_ready(id);
    lab.restart(1);
    lab.runner
        .cancel(
            &operator(),
            lab.now_us,
            &mut lab.nodes,
            id,
            (15, None),
            "enough",
        )
        .unwrap();
    assert_eq!(lab.nodes.cancelled, [(id, 15)]);
    lab.claim(id);
    lab.exit(0, id, RankEnd::Signal(15));
    lab.write_down();
    assert_eq!(lab.state(id), JobState::Cancelled);
}

#[test]
fn a_fault_report_is_told_again_until_its_rank_has_ended() {
    let mut lab = Lab::with_nodes(1);
    let id = lab.submit_batch(lab.batch(1));
    lab.all_ready(id);
    let report = |lab: &mut Lab| {
        let data = b"SIGSEGV at 0x10".to_vec();
        lab.call_of(0, JobId(id), Call::Report { offset: 0, data });
    };
    report(&mut lab);
    assert!(lab.nodes.replies.is_empty(), "it waits for the exit");
    lab.restart(1);
    lab.claim(id);
    report(&mut lab);
    lab.exit(0, id, RankEnd::Signal(11));
    lab.write_down();
    let fault = lab.of(id).ranks[0].fault.clone();
    assert_eq!(fault.as_deref(), Some("SIGSEGV at 0x10"));
}

#[test]
fn a_client_that_comes_back_gets_nothing_twice() {
    let mut lab = Lab::with_nodes(1);
    let (id, mut reader) = lab.running(1);
    lab.write_as(0, id, 1, "one ");
    lab.write_as(0, id, 2, "two ");
    let mut items = std::iter::from_fn(|| reader.try_next());
    let Some(Item::Output { data, call, .. }) =
        items.find(|item| matches!(item, Item::Output { .. }))
    else {
        panic!("it has written")
    };
    assert_eq!((&data[..], call), (&b"one two "[..], 2));
    lab.restart(1);
    lab.claim(id);
    // The answer to its second call died with control, so it makes that once more.
    lab.write_as(0, id, 2, "two ");
    lab.write_as(0, id, 3, "three");
    let received = [(0, 2)].into();
    let mut reader = lab
        .runner
        .attach_behind(&operator(), lab.now_us, &mut lab.nodes, id, received)
        .unwrap();
    let items = std::iter::from_fn(|| reader.try_next());
    let output = items.filter_map(|item| match item {
        Item::Output { data, .. } => Some(String::from_utf8(data).unwrap()),
        Item::Frame(_) => None,
    });
    assert_eq!(output.collect::<Vec<_>>(), ["three"]);
}

#[test]
fn nodes_of_ranks_that_had_ended_belong_to_whoever_has_them_now() {
    // Jobs are taken in by number: both orders.
    for first_is_large in [true, false] {
        let mut lab = Lab::with_nodes(2);
        let mut hold = |ranks| {
            let mut submission = lab.batch(ranks);
            submission.terms.hold = true;
            lab.submit_batch(submission)
        };
        let (large, small) = match first_is_large {
            true => (hold(2), hold(1)),
            false => {
                let small = hold(1);
                (hold(2), small)
            }
        };
        lab.runner.release(&operator(), large).unwrap();
        lab.write_down();
        lab.all_ready(large);
        lab.exit(1, large, RankEnd::Exited(0));
        lab.runner.release(&operator(), small).unwrap();
        lab.write_down();
        lab.all_ready(small);
        lab.restart(2);
        for (id, node) in [(large, 0), (small, 1)] {
            assert_eq!(lab.state(id), JobState::Running, "{first_is_large}");
            assert_eq!(lab.runner.job_of(node), Some(id));
        }
    }
}

#[test]
fn a_job_that_may_have_run_does_not_run_twice_without_being_asked_to() {
    let mut lab = Lab::with_nodes(1);
    let id = lab.submit_batch(lab.batch(1));
    assert_eq!(lab.state(id), JobState::Starting);
    lab.restart(1);
    lab.pass_s(61);
    assert_eq!(lab.state(id), JobState::NodeLost);
    // Nor is its launch repeated in a later run: the boot may be another by then.
    let mut lab = Lab::with_nodes(1);
    let id = lab.submit_batch(lab.batch(1));
    for launch_on in [Some(netstack::ids::BootEpoch(1)), None] {
        lab.restart(1);
        assert_eq!(lab.nodes.adopted[0].2, [AdoptedRank::Open { launch_on }]);
        assert_eq!(lab.state(id), JobState::Starting);
    }
}

#[test]
fn a_node_that_was_heard_in_time_may_take_a_while_to_answer() {
    let mut lab = Lab::with_nodes(1);
    let id = lab.submit_batch(lab.batch(1));
    lab.all_ready(id);
    lab.restart(1);
    lab.nodes.heard = vec![0];
    lab.pass_s(61);
    assert_eq!(lab.state(id), JobState::Running);
    assert_eq!(lab.runner.job_of(0), Some(id), "nobody else gets it");
    lab.claim(id);
    lab.exit(0, id, RankEnd::Exited(0));
    lab.write_down();
    assert_eq!(lab.state(id), JobState::Completed);
}

#[test]
fn a_job_that_was_ending_to_run_again_runs_again() {
    let mut lab = Lab::with_nodes(2);
    let mut submission = lab.batch(2);
    submission.terms.requeue = true;
    let id = lab.submit_batch(submission);
    lab.all_ready(id);
    lab.runner.node_down(
        0,
        &mut lab.nodes,
        1,
        "n1 was lost (nothing heard for 6.0 s)",
    );
    assert_eq!(lab.state(id), JobState::Ending);
    lab.restart(2);
    assert!(lab.nodes.adopted.is_empty());
    let info = lab.of(id);
    let stands = (info.state, info.restarts, info.runs_again);
    assert_eq!(stands, (JobState::Starting, 1, false));
}

#[test]
fn a_rank_that_begins_only_after_the_restart_gets_its_input_from_the_beginning() {
    let mut lab = Lab::with_nodes(1);
    let mut submission = lab.submission(1, None);
    submission.stdin = true;
    let (id, _reader) = lab.submit(submission);
    assert_eq!(lab.state(id), JobState::Starting);
    lab.restart(1);
    let mut reader = lab
        .runner
        .attach(&operator(), 0, &mut lab.nodes, id)
        .unwrap();
    lab.runner.started(lab.now_us, JobId(id), NodeId(0));
    let mut items = std::iter::from_fn(|| reader.try_next());
    let told = |item: Item| matches!(item, Item::Frame(Frame::Input { from: 0 }));
    assert!(items.any(told), "its client is told to send it");
}

#[test]
fn nothing_starts_while_the_store_cannot_be_written() {
    let mut lab = Lab::with_nodes(2);
    let id = lab.submit_batch(lab.batch(2));
    lab.runner.hold_up(Some("the disk is full"));
    let job = lab.launch_of(id).job;
    for node in [0, 1] {
        lab.runner.ready(0, &mut lab.nodes, job, NodeId(node));
    }
    let waiting = lab.submit_batch(lab.batch(1));
    lab.pass_s(100);
    assert_eq!(
        (lab.state(id), lab.nodes.started.len()),
        (JobState::Starting, 0)
    );
    assert_eq!(lab.state(waiting), JobState::Pending);
    lab.runner.hold_up(None);
    lab.runner.settle(lab.now_us, &mut lab.nodes);
    assert_eq!(
        (lab.state(id), &lab.nodes.started[..]),
        (JobState::Running, &[id][..])
    );
}

#[test]
fn a_launch_that_could_not_be_written_down_is_taken_back() {
    let mut lab = Lab::with_nodes(2);
    let id = lab.submit_batch(lab.batch(2));
    let job = lab.launch_of(id).job;
    lab.runner.hold_up(Some("the disk is full"));
    lab.runner.take_back(job);
    lab.write_down();
    let info = lab.runner.get(id).unwrap();
    assert_eq!((info.state, info.restarts), (JobState::Pending, 0));
    assert!(
        info.reason.contains("cannot write its store"),
        "{}",
        info.reason
    );
    assert_eq!((lab.runner.job_of(0), lab.runner.job_of(1)), (None, None));
    assert_eq!(lab.written[&id].0.state, JobState::Pending);
    lab.nodes.launched.clear();
    lab.runner.hold_up(None);
    lab.write_down();
    assert_eq!(lab.launch_of(id).job, job, "no node has heard that number");
    let nodes = &mut lab.nodes;
    lab.runner
        .cancel(&operator(), 0, nodes, id, (15, None), "enough")
        .unwrap();
    assert_eq!(lab.state(id), JobState::Ending);
    lab.runner.not_sent(0, &mut lab.nodes, job, None);
    assert_eq!(lab.state(id), JobState::Cancelled);
    assert_eq!(lab.runner.job_of(0), None);
}
