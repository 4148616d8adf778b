//! Jobs that lose a node, and the control node that is killed under jobs in every state.

use std::path::Path;

use super::*;
use crate::api::types::{AfterCondition, AfterJob, JobInfo};
use crate::jobs::attempt;
use crate::jobs::record::Cause;
use crate::programs::ProgramStore;
use netstack::ids::BootEpoch;
use netstack::job::AdoptedRank;

impl Lab {
    fn requeueable(&mut self, ranks: u32) -> u64 {
        let mut submission = self.batch(ranks);
        submission.terms.requeue = true;
        self.submit_batch(submission)
    }

    fn info(&self, id: u64) -> JobInfo {
        self.runner.get(id).unwrap()
    }

    fn node_down(&mut self, node: u32) {
        let text = format!("n{node} was lost (nothing heard for 6.0 s)");
        self.runner
            .node_down(self.now_us, &mut self.nodes, node, &text);
        self.write_down();
    }
}

#[test]
fn a_job_that_loses_a_node_is_queued_again_if_it_wants() {
    let mut lab = Lab::with_nodes(2);
    let id = lab.requeueable(2);
    lab.all_ready(id);
    lab.write(0, id, b"first\n");
    let mut waiting = lab.batch(1);
    waiting.terms.after = vec![AfterJob {
        job: id,
        condition: AfterCondition::Ok,
    }];
    let waiting = lab.submit_batch(waiting);
    lab.node_down(1);
    assert_eq!(lab.state(id), JobState::Ending, "n0 has not ended it yet");
    lab.exit(0, id, RankEnd::Signal(15));
    lab.write_down();
    let info = lab.info(id);
    assert_eq!((info.state, info.restarts), (JobState::Pending, 1));
    assert!(
        info.reason
            .starts_with("2 nodes needed, 1 in service; n1 is lost"),
        "{}",
        info.reason
    );
    assert_eq!(lab.over, [JobId(id)], "its casts end");
    lab.runner.node_up(0, &mut lab.nodes, 1, true);
    let second = lab.launch_of(id).job;
    assert_eq!(second, attempt::on_nodes(id, 1), "another job to the nodes");
    // What is left of the first attempt changes nothing.
    lab.runner.ready(0, &mut lab.nodes, JobId(id), NodeId(0));
    lab.runner.rank_lost(
        0,
        &mut lab.nodes,
        JobId(id),
        NodeId(0),
        Cause::NodeLost("late".to_string()),
    );
    lab.call_of(
        0,
        JobId(id),
        Call::Write {
            fd: 1,
            data: b"late".to_vec(),
        },
    );
    assert_eq!(lab.runner.job_of(0), Some(id));
    lab.all_ready(id);
    lab.write(1, id, b"second\n");
    for node in [0, 1] {
        lab.exit(node, id, RankEnd::Exited(0));
    }
    lab.write_down();
    assert_eq!(lab.state(id), JobState::Completed);
    let kept = lab.kept(id);
    assert!(
        kept[1].starts_with("queued again (restart 1): n1 was lost"),
        "{kept:?}"
    );
    assert_eq!(
        (&*kept[0], &*kept[2], kept.len()),
        ("first\n", "second\n", 3)
    );
    assert_eq!(lab.state(waiting), JobState::Starting, "it waited on");
}

#[test]
fn a_job_is_queued_again_a_few_times_only() {
    let mut lab = Lab::with(1, |config| {
        config.queue.requeue_max = 2;
        config.queue.drain_after_failures = 0;
    });
    let id = lab.requeueable(1);
    for restarts in 1..=3 {
        lab.all_ready(id);
        lab.runner.node_left(0, &mut lab.nodes, 0, "n0 left");
        lab.runner.node_up(0, &mut lab.nodes, 0, true);
        lab.write_down();
        let info = lab.info(id);
        if restarts <= 2 {
            assert_eq!((info.state, info.restarts), (JobState::Starting, restarts));
        } else {
            assert_eq!((info.state, info.restarts), (JobState::NodeLost, 2));
            assert!(info.reason.contains("n0 left"), "{}", info.reason);
        }
    }
}

/// Nodes that panic, and say so or not.
#[test]
fn a_job_under_which_nodes_crash_is_queued_again_once() {
    for words_arrive in [true, false] {
        let mut lab = Lab::with(4, |config| {
            config.queue.requeue_max = 100;
            config.queue.drain_after_failures = 0;
        });
        let id = lab.requeueable(1);
        let mut tried = Vec::new();
        for crashes in 1..=2 {
            lab.all_ready(id);
            let node = lab.nodes_of(id)[0].0;
            tried.push(node);
            if words_arrive {
                lab.runner.node_panicked(0, &mut lab.nodes, node);
            }
            lab.node_down(node);
            lab.write_down();
            let info = lab.info(id);
            if crashes == 1 {
                assert_eq!((info.state, info.restarts), (JobState::Starting, 1));
                continue;
            }
            assert_eq!((info.state, info.restarts), (JobState::Failed, 1));
            let before = format!("as was n{} under it before", tried[0]);
            for words in [&*before, "once at most"] {
                assert!(info.reason.contains(words), "{}", info.reason);
            }
            assert_eq!(info.reason.contains("kernel panicked"), words_arrive);
        }
        assert_ne!(tried[0], tried[1], "it went to the same node again");
    }
}

#[test]
fn a_node_that_only_fell_silent_does_not_count_as_crashed() {
    let mut lab = Lab::with_nodes(3);
    let id = lab.requeueable(1);
    for restarts in 1..=2 {
        lab.all_ready(id);
        let node = lab.nodes_of(id)[0].0;
        lab.node_down(node);
        assert_eq!(lab.info(id).crashes.len(), 1);
        // It is heard again, in the same boot.
        lab.runner.node_up(0, &mut lab.nodes, node, false);
        lab.write_down();
        let info = lab.info(id);
        assert_eq!((info.state, info.restarts), (JobState::Starting, restarts));
        assert_eq!(info.crashes, []);
    }
}

#[test]
fn a_crash_is_not_forgotten_when_the_next_boot_falls_silent_for_a_moment() {
    let mut lab = Lab::with_nodes(3);
    let id = lab.requeueable(1);
    lab.all_ready(id);
    let node = lab.nodes_of(id)[0].0;
    lab.node_down(node);
    lab.runner.node_up(0, &mut lab.nodes, node, true);
    lab.node_down(node);
    lab.runner.node_up(0, &mut lab.nodes, node, false);
    lab.write_down();
    let crashes = lab.info(id).crashes;
    assert!(crashes.len() == 1 && crashes[0].rebooted, "{crashes:?}");
}

#[test]
fn a_job_waits_for_others_than_the_node_that_crashed_under_it() {
    let mut lab = Lab::with_nodes(2);
    let id = lab.requeueable(1);
    lab.all_ready(id);
    let first = lab.nodes_of(id)[0].0;
    let other = lab.submit_batch(lab.batch(1));
    lab.all_ready(other);
    lab.node_down(first);
    lab.runner.node_up(0, &mut lab.nodes, first, true);
    lab.write_down();
    assert_eq!(lab.state(id), JobState::Pending, "the other node is busy");
    let reason = lab.info(id).reason;
    let words = format!("crashed under it (n{first})");
    assert!(reason.contains(&words), "{reason}");
    // Also after a restart of the control node.
    lab.restart(2);
    lab.claim(other);
    assert_eq!(lab.state(id), JobState::Pending);
    lab.exit(1 - first, other, RankEnd::Exited(0));
    lab.write_down();
    assert_eq!(lab.launch_of(id).nodes, [(NodeId(1 - first), 1)]);
}

#[test]
fn a_job_goes_where_a_node_crashed_under_it_if_there_is_no_other() {
    let mut lab = Lab::with_nodes(2);
    let id = lab.requeueable(1);
    lab.all_ready(id);
    let first = lab.nodes_of(id)[0].0;
    lab.runner
        .drain(&operator(), &[1 - first], "spare")
        .unwrap();
    lab.node_down(first);
    assert_eq!(lab.state(id), JobState::Pending);
    lab.runner.node_up(0, &mut lab.nodes, first, true);
    lab.write_down();
    assert_eq!(lab.launch_of(id).nodes, [(NodeId(first), 1)]);
    assert_eq!(lab.state(id), JobState::Starting);
}

#[test]
fn a_node_whose_kernel_panics_three_times_gets_no_jobs() {
    const MINUTE_US: u64 = 60_000_000;
    let mut lab = Lab::with_nodes(2);
    let panic_at = |lab: &mut Lab, minute: u64| {
        lab.runner
            .node_panicked(minute * MINUTE_US, &mut lab.nodes, 1);
        lab.runner.drained(1).map(|drained| drained.reason.clone())
    };
    // Two within ten minutes, again and again, are none too many.
    for minute in [0, 4, 11, 15, 22] {
        assert_eq!(panic_at(&mut lab, minute), None, "minute {minute}");
    }
    let reason = panic_at(&mut lab, 24).expect("it is drained");
    assert!(reason.contains("panicked 3 times"), "{reason}");
    // Who resumes it gives it a new start.
    lab.runner.resume(&operator(), &[1]).unwrap();
    assert_eq!(panic_at(&mut lab, 25), None);
}

#[test]
fn a_batch_job_of_which_nothing_has_run_goes_to_other_nodes() {
    let mut lab = Lab::with_nodes(3);
    lab.runner.drain(&operator(), &[2], "spare").unwrap();
    let id = lab.submit_batch(lab.batch(2));
    let job = lab.launch_of(id).job;
    lab.runner.ready(0, &mut lab.nodes, job, NodeId(0));
    let refusal = (Blame::Node, "its memory is busy");
    lab.runner.resume(&operator(), &[2]).unwrap();
    lab.runner
        .refused(0, &mut lab.nodes, job, NodeId(1), refusal);
    lab.exit(0, id, RankEnd::Signal(15));
    lab.write_down();
    let info = lab.info(id);
    assert_eq!((info.state, info.restarts), (JobState::Starting, 1));
    // A program that nobody can run is not tried again.
    let job = lab.launch_of(id).job;
    let nodes = lab.nodes_of(id);
    let refusal = (Blame::Program, "not an ELF file");
    lab.runner
        .refused(0, &mut lab.nodes, job, nodes[0], refusal);
    lab.exit(nodes[1].0, id, RankEnd::Signal(15));
    lab.write_down();
    assert_eq!(lab.state(id), JobState::Failed);
}

#[test]
fn a_node_that_does_not_end_the_first_attempt_gets_no_second() {
    let mut lab = Lab::with_nodes(2);
    let id = lab.requeueable(2);
    lab.all_ready(id);
    lab.node_down(1);
    lab.pass_s(10);
    lab.pass_s(10);
    lab.write_down();
    assert_eq!(lab.info(id).restarts, 1, "n0 is given up");
    lab.runner.node_up(0, &mut lab.nodes, 1, true);
    assert_eq!(lab.state(id), JobState::Pending);
    assert_eq!(lab.runner.job_of(0), Some(id), "n0 still has it");
    let exit = lab.nodes.launched[0].job;
    let report = Exit {
        end: RankEnd::Signal(9),
        report: RankReport::new(0, 0),
    };
    lab.call_of(0, exit, Call::Exit(Box::new(report)));
    assert_eq!(lab.state(id), JobState::Starting);
}

/// A start takes no longer for large files; what is wrong with them shows later, and the job says
/// it.
#[test]
fn a_restart_reads_no_file_and_starts_no_job_before_its_files_are_read() {
    let damage: fn(&Path) = |path| std::fs::write(path, b"damaged").unwrap();
    // A folder can be opened and not read, as a file on a disk that fails.
    let replace: fn(&Path) = |path| {
        std::fs::remove_file(path).unwrap();
        std::fs::create_dir(path).unwrap();
    };
    for (harm, reason) in [
        (None, ""),
        (Some(damage), "its program was damaged in"),
        (Some(replace), "its program cannot be read from"),
    ] {
        let mut lab = Lab::with_nodes(1);
        lab.runner.drain(&operator(), &[0], "spare").unwrap();
        let id = lab.submit_batch(lab.batch(1));
        let name = crate::secrets::encode_hex(&lab.program.hash());
        let path = lab.dir.path().join("programs").join(name);
        lab.store = ProgramStore::open(&lab.dir.path().join("programs"), 1000, 1000).unwrap();
        if let Some(harm) = harm {
            harm(&path);
        }
        lab.restart_unread(1);
        lab.join(1);
        lab.write_down();
        let info = lab.info(id);
        assert_eq!(info.state, JobState::Pending);
        assert!(info.reason.contains("read first"), "{}", info.reason);
        lab.read_files();
        let info = lab.info(id);
        let wanted = match harm {
            None => JobState::Starting,
            Some(_) => JobState::Failed,
        };
        assert_eq!(info.state, wanted);
        assert!(info.reason.contains(reason), "{}", info.reason);
    }
}

#[test]
fn waiting_jobs_wait_on_after_a_restart() {
    let mut lab = Lab::with_nodes(1);
    let running = lab.requeueable(1);
    lab.all_ready(running);
    let mut submit = |priority, hold, after: Option<u64>| {
        let mut submission = lab.batch(1);
        submission
            .args
            .push(format!("priority {priority}").into_bytes());
        submission.terms.priority = priority;
        submission.terms.hold = hold;
        let condition = AfterCondition::Ok;
        submission.terms.after = after
            .map(|job| AfterJob { job, condition })
            .into_iter()
            .collect();
        lab.submit_batch(submission)
    };
    let low = submit(1, false, None);
    let high = submit(2, false, None);
    let held = submit(9, true, None);
    let last = submit(3, false, Some(low));
    lab.runner.set_priority(&operator(), low, 5).unwrap();
    let order = lab.runner.queue_order();
    lab.restart(1);
    let info = lab.info(running);
    assert_eq!((info.state, info.restarts), (JobState::Running, 0));
    assert_eq!(lab.runner.queue_order(), order, "no job is lost");
    lab.claim(running);
    lab.exit(0, running, RankEnd::Exited(0));
    lab.write_down();
    assert_eq!(lab.state(low), JobState::Starting, "the highest, not held");
    assert!(lab.info(held).held && lab.info(last).after.len() == 1);
    assert_eq!(lab.info(low).user, "ann");
    assert_eq!(lab.info(high).priority, 2);
    lab.restart(1);
    // The dependency is known again; a new job is numbered on.
    assert_eq!(lab.info(last).after[0].job, low);
    assert!(lab.submit_batch(lab.batch(1)) > last);
}

#[test]
fn a_dependency_that_ends_before_the_restart_counts() {
    for (status, expected) in [(0, JobState::Starting), (1, JobState::Cancelled)] {
        let mut lab = Lab::with_nodes(2);
        let first = lab.submit_batch(lab.batch(1));
        let mut second = lab.batch(1);
        second.terms.after = vec![AfterJob {
            job: first,
            condition: AfterCondition::Ok,
        }];
        let second = lab.submit_batch(second);
        lab.all_ready(first);
        let before = lab.written[&second].clone();
        lab.exit(0, first, RankEnd::Exited(status));
        lab.write_down();
        // As if control had been killed before it had started or ended the second one.
        lab.written.insert(second, before);
        lab.restart(2);
        assert_eq!(lab.state(second), expected);
    }
}

#[test]
fn a_dependency_that_the_restart_ends_counts() {
    let mut lab = Lab::with_nodes(2);
    let first = lab.submit_batch(lab.batch(1));
    lab.all_ready(first);
    let [any, ok] = [AfterCondition::Any, AfterCondition::Ok].map(|condition| {
        let mut submission = lab.batch(1);
        submission.terms.after = vec![AfterJob {
            job: first,
            condition,
        }];
        lab.submit_batch(submission)
    });
    lab.restart(2);
    assert_eq!(lab.state(any), JobState::Pending, "the first goes on");
    lab.forget(first, 0);
    assert_eq!(lab.state(first), JobState::NodeLost);
    assert_eq!(lab.state(any), JobState::Starting);
    let info = lab.info(ok);
    assert_eq!(info.state, JobState::Cancelled);
    assert!(
        info.reason
            .contains(&format!("job {first} ended (node-lost)"))
    );
}

#[test]
fn jobs_with_nodes_go_on_or_are_queued_again() {
    for requeue in [false, true] {
        let mut lab = Lab::with_nodes(4);
        let submission = |lab: &Lab| {
            let mut submission = lab.batch(2);
            submission.terms.requeue = requeue;
            submission
        };
        let running = lab.submit_batch(submission(&lab));
        lab.all_ready(running);
        // Its ranks start together, so none has run.
        let starting = lab.submit_batch(submission(&lab));
        assert_eq!(lab.state(starting), JobState::Starting);
        lab.restart(4);
        let info = lab.info(starting);
        assert_eq!((info.state, info.restarts), (JobState::Starting, 1));
        assert_eq!(lab.launch_of(starting).job, attempt::on_nodes(starting, 1));
        let info = lab.info(running);
        let stands = (info.state, info.restarts, info.continued);
        assert_eq!(stands, (JobState::Running, 0, 1));
        let (_, begun, ranks) = &lab.nodes.adopted[0];
        let open = AdoptedRank::Open { launch_on: None };
        assert_eq!((*begun, &ranks[..]), (true, &[open, open][..]));
        // One of its nodes has booted meanwhile.
        let node = lab.nodes.adopted[0].0.nodes[1].0.0;
        lab.forget(running, node);
        let other = lab.nodes.adopted[0].0.nodes[0].0.0;
        lab.exit(other, running, RankEnd::Signal(15));
        lab.write_down();
        let info = lab.info(running);
        match requeue {
            true => assert_eq!((info.state, info.restarts), (JobState::Starting, 1)),
            false => assert_eq!(info.state, JobState::NodeLost),
        }
    }
}

#[test]
fn a_starting_job_whose_ranks_begin_by_themselves_goes_on_or_begins() {
    let mut lab = Lab::with_nodes(1);
    let id = lab.submit_batch(lab.batch(1));
    assert!(lab.info(id).at_once);
    lab.restart(1);
    assert_eq!(lab.state(id), JobState::Starting);
    let launch_on = Some(BootEpoch(1));
    let (_, begun, ranks) = &lab.nodes.adopted[0];
    assert_eq!((*begun, ranks[0]), (false, AdoptedRank::Open { launch_on }));
    lab.runner.started(lab.now_us, JobId(id), NodeId(0));
    assert_eq!(lab.state(id), JobState::Running);
    lab.exit(0, id, RankEnd::Exited(0));
    lab.write_down();
    assert_eq!(lab.state(id), JobState::Completed);
}

#[test]
fn an_ending_job_has_ended_as_it_was_going_to() {
    let mut lab = Lab::with_nodes(3);
    let mut timed = lab.batch(1);
    timed.time_limit_s = Some(2);
    timed.terms.requeue = true;
    let timed = lab.submit_batch(timed);
    let cancelled = lab.requeueable(1);
    let lost = lab.requeueable(1);
    for id in [timed, cancelled, lost] {
        lab.all_ready(id);
    }
    lab.runner
        .cancel(
            &operator(),
            0,
            &mut lab.nodes,
            cancelled,
            (15, None),
            "enough",
        )
        .unwrap();
    lab.pass_s(4);
    for id in [timed, cancelled] {
        assert_eq!(lab.state(id), JobState::Ending);
    }
    assert_eq!(lab.info(timed).ends_as, Some(JobState::TimeLimit));
    lab.restart(3);
    assert_eq!(lab.state(timed), JobState::TimeLimit);
    assert_eq!(lab.state(cancelled), JobState::Cancelled);
    assert!(lab.info(cancelled).reason.starts_with("enough"));
    assert_eq!(lab.state(lost), JobState::Running, "it goes on");
}

#[test]
fn a_job_with_a_client_waits_for_it_after_a_restart() {
    let mut lab = Lab::with_nodes(1);
    let (running, _reader) = lab.running(1);
    let want = lab.submission(1, None);
    let (waiting, _waiting) = lab.submit(want);
    let mut typing = lab.submission(1, None);
    typing.stdin = true;
    let (typing, _typing) = lab.submit(typing);
    lab.restart(1);
    lab.claim(running);
    lab.write(0, running, b"after");
    assert!(lab.nodes.replies.is_empty(), "nobody reads it yet");
    let mut reader = lab
        .runner
        .attach(&operator(), 0, &mut lab.nodes, running)
        .unwrap();
    let Some(Item::Output { data, .. }) = reader.try_next() else {
        panic!()
    };
    assert_eq!((data, lab.nodes.replies.len()), (b"after".to_vec(), 1));
    lab.exit(0, running, RankEnd::Exited(3));
    lab.write_down();
    assert_eq!(lab.info(running).exit_status, Some(3));
    assert_eq!(lab.state(waiting), JobState::Pending);
    let reader = lab
        .runner
        .attach(&operator(), 0, &mut lab.nodes, waiting)
        .unwrap();
    assert_eq!(lab.state(waiting), JobState::Starting);
    drop(reader);
    let mut reader = lab
        .runner
        .attach(&operator(), 0, &mut lab.nodes, typing)
        .unwrap();
    let input = std::iter::from_fn(|| reader.try_next())
        .find(|item| matches!(item, Item::Frame(Frame::Input { from: 0 })));
    assert!(input.is_some(), "it is told to send its input anew");
    let mut lab = Lab::with_nodes(0);
    lab.runner.know_node(0);
    let submission = lab.submission(1, None);
    let (alone, _reader) = lab.submit(submission);
    lab.restart(0);
    lab.pass_s(61);
    assert_eq!(lab.state(alone), JobState::Cancelled);
}

#[test]
fn a_job_whose_program_is_gone_ends_with_that_reason() {
    let mut lab = Lab::with_nodes(0);
    lab.runner.know_node(0);
    let id = lab.submit_batch(lab.batch(1));
    let (mut info, spec) = lab.written.remove(&id).unwrap();
    info.program = "00".repeat(32);
    lab.written.insert(id, (info, spec));
    lab.restart(0);
    let info = lab.info(id);
    assert_eq!(info.state, JobState::Failed);
    assert!(
        info.reason.contains("its program is not in"),
        "{}",
        info.reason
    );
    assert!(info.reason.contains("submit it again"), "{}", info.reason);
}

#[test]
fn an_orderly_stop_ends_no_job_and_starts_none() {
    let mut lab = Lab::with_nodes(2);
    let running = lab.submit_batch(lab.batch(1));
    let want = lab.submission(1, None);
    let (client, _reader) = lab.submit(want);
    for id in [running, client] {
        lab.all_ready(id);
    }
    let waiting = lab.submit_batch(lab.batch(1));
    lab.runner.stop_starting();
    assert_eq!(lab.runner.active(), (vec![running, client], vec![waiting]));
    assert_eq!(lab.hand_in(0, lab.batch(1)), Err(SubmitError::Stopping));
    // One that ends meanwhile makes room for none.
    let node = lab.nodes_of(client)[0].0;
    lab.exit(node, client, RankEnd::Exited(0));
    lab.write_down();
    assert_eq!(lab.state(client), JobState::Completed);
    assert_eq!(lab.runner.active(), (vec![running], vec![waiting]));
    lab.restart(2);
    assert_eq!(lab.state(running), JobState::Running, "it went on");
    assert_eq!(lab.state(waiting), JobState::Starting);
}
