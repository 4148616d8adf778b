//! The runner against nodes that only record what they are told.

mod again;
mod continued;
mod lab;
mod loading;
mod owners;
mod queueing;
mod ranks;
mod warm;

use netstack::ids::{JobId, NodeId};
use netstack::job::StartMode;

use super::fabric::{Call, Exit, Launch, Reply};
use super::lifecycle::Blame;
use super::record::Submission;
use super::streams::{Item, SinkReader};
use super::{JobError, SubmitError};
use crate::api::types::{Frame, JobState, RankEnd, RankReport};
use crate::events::{Event, Severity};
use lab::{Lab, drain, operator};

#[test]
fn a_job_is_launched_started_and_ends_with_the_highest_status() {
    let mut lab = Lab::with_nodes(3);
    let submission = lab.submission(3, None);
    let (id, mut reader) = lab.submit(submission);
    assert_eq!(lab.state(id), JobState::Starting);
    assert_eq!(
        lab.nodes.launched[0].nodes,
        [(NodeId(0), 1), (NodeId(1), 1), (NodeId(2), 1)]
    );
    lab.runner.ready(0, &mut lab.nodes, JobId(id), NodeId(0));
    lab.runner.ready(0, &mut lab.nodes, JobId(id), NodeId(2));
    assert!(lab.nodes.started.is_empty());
    lab.runner.ready(0, &mut lab.nodes, JobId(id), NodeId(1));
    assert_eq!(
        (lab.nodes.started.clone(), lab.state(id)),
        (vec![id], JobState::Running)
    );
    lab.write(1, id, b"hello\n");
    lab.exit(0, id, RankEnd::Exited(0));
    lab.exit(1, id, RankEnd::Exited(3));
    assert_eq!(lab.state(id), JobState::Running);
    lab.exit(2, id, RankEnd::Signal(11));
    let (output, end) = lab.drain(&mut reader);
    assert_eq!(output, [(1, b"hello\n".to_vec())]);
    let end = end.unwrap();
    assert_eq!((end.state, end.exit_status), (JobState::Failed, Some(139)));
    assert_eq!(end.reason, "rank 2 on n2 was ended by SIGSEGV (signal 11)");
    assert_eq!(end.ranks[1].rank, 1);
    assert_eq!(end.ranks[1].node, "n1");
    assert_eq!(end.ranks[1].output_bytes, 6);
    assert_eq!(lab.runner.get(id).unwrap().state, JobState::Failed);
}

#[test]
fn a_core_file_is_taken_up_to_what_the_job_asked_for() {
    let mut lab = Lab::with_nodes(1);
    let mut submission = lab.submission(1, None);
    submission.wishes.core_bytes = 5;
    let (id, mut reader) = lab.submit(submission);
    lab.runner.ready(0, &mut lab.nodes, JobId(id), NodeId(0));
    let core = |data: &[u8]| Call::Write {
        fd: netstack::io::CORE_FILE,
        data: data.to_vec(),
    };
    for (data, reply) in [
        (&b"abcd"[..], Reply::Done(4)),
        (b"ef", Reply::Error(27)),
        (b"g", Reply::Done(1)),
    ] {
        let call = lab.call(0, id, core(data));
        let answer = lab.nodes.replies.pop_back().unwrap();
        assert_eq!(answer, (0, call, reply), "{data:?}");
    }
    lab.exit(0, id, RankEnd::Signal(11));
    let (output, end) = lab.drain(&mut reader);
    let joined: Vec<u8> = output.iter().flat_map(|(_, data)| data.clone()).collect();
    assert_eq!(joined, b"abcdg");
    assert_eq!(end.unwrap().ranks[0].output_bytes, 0, "it is no output");
}

#[test]
fn the_queue_is_first_come_first_served() {
    let mut lab = Lab::with_nodes(2);
    let (first, _first) = lab.running(1);
    let want_two = lab.submission(2, None);
    let (second, _second) = lab.submit(want_two);
    let want_one = lab.submission(1, None);
    let (third, _third) = lab.submit(want_one);
    // n1 is free, but the second job has waited longer.
    assert_eq!(
        lab.runner.get(second).unwrap().reason,
        "2 nodes needed, 1 free"
    );
    assert_eq!(
        lab.runner.get(third).unwrap().reason,
        "jobs before it in the queue go first"
    );
    lab.exit(0, first, RankEnd::Exited(0));
    assert_eq!(lab.state(second), JobState::Starting);
    lab.all_ready(second);
    lab.exit(1, second, RankEnd::Exited(0));
    assert_eq!(
        lab.state(third),
        JobState::Starting,
        "n1 is free as soon as its rank ended"
    );
}

#[test]
fn a_job_that_waits_for_absent_nodes_lets_others_pass() {
    let mut lab = Lab::with_nodes(2);
    lab.runner.know_node(5);
    let absent = lab.submission(1, Some(vec![5]));
    let (waiting, _waiting) = lab.submit(absent);
    let reason = lab.runner.get(waiting).unwrap().reason;
    assert!(
        reason.starts_with("n5 not in service: n5 has not joined"),
        "{reason}"
    );
    let (other, _other) = lab.running(2);
    assert_eq!(lab.state(other), JobState::Running);
    lab.runner.node_up(0, &mut lab.nodes, 5, true);
    assert_eq!(lab.state(waiting), JobState::Starting);
}

#[test]
fn impossible_jobs_are_refused_at_once() {
    let mut lab = Lab::with_nodes(2);
    let mut refuse = |ranks, nodes| {
        let submission = lab.submission(ranks, nodes);
        lab.hand_in(0, submission).unwrap_err()
    };
    assert_eq!(
        refuse(3, None),
        SubmitError::TooMany {
            wanted: 3,
            known: 2
        }
    );
    assert_eq!(
        refuse(1, Some(vec![7])),
        SubmitError::UnknownNodes("n7".into())
    );
    assert_eq!(
        refuse(2, Some(vec![0])),
        SubmitError::Mismatch { ranks: 2, nodes: 1 }
    );
    assert_eq!(refuse(0, None), SubmitError::NoRanks);
    // The last of several counts, as in the launch block.
    let mut odd = lab.submission(2, None);
    odd.env = ["leaf=1", "leaf=3"]
        .map(|value| format!("HEARTH_EXCHANGE={value}").into_bytes())
        .into();
    let error = lab.hand_in(0, odd).unwrap_err().to_string();
    assert!(error.starts_with("HEARTH_EXCHANGE has leaf=3"), "{error}");
    let mut patient = lab.submission(3, None);
    patient.wait = true;
    assert!(lab.hand_in(0, patient).is_ok());
    let mut large = lab.submission(1, None);
    large.args.push(vec![b'x'; 70_000]);
    assert!(matches!(
        lab.hand_in(0, large),
        Err(SubmitError::TooLarge { .. })
    ));
    let mut odd = lab.submission(1, None);
    odd.env.push(b"NOVALUE".to_vec());
    assert!(matches!(
        lab.hand_in(0, odd),
        Err(SubmitError::NotAVariable(_))
    ));
}

#[test]
fn the_queue_is_bounded() {
    let limits = crate::config::Jobs {
        queue_max: 2,
        ..crate::config::defaults().jobs
    };
    let mut lab = Lab::with_limits(1, limits);
    for _ in 0..2 {
        let submission = lab.submission(1, None);
        lab.hand_in(0, submission).unwrap();
    }
    let submission = lab.submission(1, None);
    assert_eq!(lab.hand_in(0, submission), Err(SubmitError::QueueFull(2)));
}

#[test]
fn writes_wait_for_the_reader_and_stay_in_order() {
    let limits = crate::config::Jobs {
        output_buffer_bytes: 70,
        ..crate::config::defaults().jobs
    };
    let mut lab = Lab::with_limits(1, limits);
    let (id, mut reader) = lab.running(1);
    let first = lab.write(0, id, b"01234567");
    lab.write(0, id, b"89abcdef");
    lab.write(0, id, b"last");
    lab.exit(0, id, RankEnd::Exited(0));
    assert_eq!(lab.nodes.replies, [(0, first, Reply::Done(8))]);
    assert_eq!(
        lab.state(id),
        JobState::Running,
        "unread output holds the job"
    );
    let mut read = Vec::new();
    for _ in 0..10 {
        let (output, end) = lab.drain(&mut reader);
        read.extend(output.into_iter().flat_map(|(_, data)| data));
        lab.runner.streams_changed(0, &mut lab.nodes);
        if end.is_some() {
            break;
        }
    }
    assert_eq!(read, b"0123456789abcdeflast");
    assert_eq!(lab.state(id), JobState::Completed);
    assert_eq!(lab.nodes.replies.len(), 4);
}

#[tokio::test]
async fn input_goes_to_rank_zero() {
    let mut lab = Lab::with_nodes(2);
    let mut submission = lab.submission(2, None);
    submission.stdin = true;
    let (id, _reader) = lab.submit(submission);
    lab.all_ready(id);
    let read = || Call::Read { fd: 0, size: 3 };
    lab.call(1, id, read());
    assert_eq!(
        lab.nodes.replies.pop_back().unwrap().2,
        Reply::Data(Vec::new())
    );
    lab.call(0, id, read());
    assert!(
        lab.nodes.replies.pop_back().is_none(),
        "nothing has been typed yet"
    );
    let mut writer = lab.runner.stdin(&operator(), id).unwrap();
    assert_eq!(
        lab.runner.stdin(&operator(), id).unwrap_err(),
        JobError::Taken(id)
    );
    assert!(writer.write(bytes::Bytes::from_static(b"hello")).await);
    lab.runner.streams_changed(0, &mut lab.nodes);
    assert_eq!(
        lab.nodes.replies.pop_back().unwrap().2,
        Reply::Data(b"hel".to_vec())
    );
    drop(writer);
    for expected in [&b"lo"[..], b""] {
        lab.call(0, id, read());
        assert_eq!(
            lab.nodes.replies.pop_back().unwrap().2,
            Reply::Data(expected.to_vec())
        );
    }
}

#[test]
fn a_program_that_ends_while_it_waits_for_input_ends() {
    let mut lab = Lab::with_nodes(1);
    let mut submission = lab.submission(1, None);
    submission.stdin = true;
    let (id, _reader) = lab.submit(submission);
    lab.all_ready(id);
    lab.call(0, id, Call::Read { fd: 0, size: 100 });
    lab.exit(0, id, RankEnd::Signal(15));
    assert_eq!(lab.state(id), JobState::Failed);
}

#[test]
fn unknown_descriptors_and_calls_are_errors_of_the_program() {
    let mut lab = Lab::with_nodes(1);
    let (id, _reader) = lab.running(1);
    lab.call(
        0,
        id,
        Call::Write {
            fd: 5,
            data: b"x".to_vec(),
        },
    );
    lab.call(0, id, Call::Read { fd: 1, size: 1 });
    lab.call(0, id, Call::Unknown);
    let replies: Vec<Reply> = lab
        .nodes
        .replies
        .drain(..)
        .map(|(_, _, reply)| reply)
        .collect();
    assert_eq!(
        replies,
        [Reply::Error(9), Reply::Error(9), Reply::Error(38)]
    );
}

#[test]
fn a_cancelled_job_ends_when_its_ranks_have() {
    let mut lab = Lab::with_nodes(2);
    let (id, mut reader) = lab.running(2);
    lab.runner
        .cancel(
            &operator(),
            0,
            &mut lab.nodes,
            id,
            (2, None),
            "interrupted by its user",
        )
        .unwrap();
    assert_eq!(lab.nodes.cancelled, [(id, 2)]);
    assert_eq!(lab.nodes.grace_s, 5);
    assert_eq!(lab.state(id), JobState::Ending);
    lab.exit(0, id, RankEnd::Signal(2));
    assert_eq!(lab.runner.job_of(0), None);
    assert_eq!(lab.runner.job_of(1), Some(id));
    lab.exit(1, id, RankEnd::Signal(2));
    let end = lab.drain(&mut reader).1.unwrap();
    assert_eq!(
        (end.state, end.exit_status),
        (JobState::Cancelled, Some(130))
    );
    assert_eq!(end.reason, "interrupted by its user");
    // Somebody wanted it: nobody has to look at it.
    assert_eq!(lab.severity_of_end(id), Severity::Info);
    let again = lab
        .runner
        .cancel(&operator(), 0, &mut lab.nodes, id, (2, None), "");
    assert_eq!(again, Err(JobError::Ended(id)));
    assert_eq!(
        lab.runner
            .cancel(&operator(), 0, &mut lab.nodes, 77, (2, None), ""),
        Err(JobError::Unknown(77))
    );
}

#[test]
fn a_waiting_job_is_cancelled_at_once() {
    let mut lab = Lab::with_nodes(1);
    let (first, _first) = lab.running(1);
    let submission = lab.submission(1, None);
    let (second, mut reader) = lab.submit(submission);
    lab.runner
        .cancel(&operator(), 0, &mut lab.nodes, second, (15, None), "enough")
        .unwrap();
    assert_eq!(lab.drain(&mut reader).1.unwrap().state, JobState::Cancelled);
    assert_eq!(lab.state(first), JobState::Running);
}

#[test]
fn a_client_that_goes_away_ends_its_job() {
    let mut lab = Lab::with_nodes(1);
    let (id, reader) = lab.running(1);
    drop(reader);
    lab.runner.streams_changed(0, &mut lab.nodes);
    assert_eq!(lab.nodes.cancelled, [(id, 9)]);
    // What the program still writes is taken, so that it can end.
    lab.write(0, id, b"into the void");
    lab.exit(0, id, RankEnd::Signal(9));
    assert_eq!(lab.state(id), JobState::Cancelled);
    assert_eq!(lab.severity_of_end(id), Severity::Warning);
    assert_eq!(lab.runner.job_of(0), None);
}

#[test]
fn a_job_nobody_reads_is_not_kept() {
    let mut lab = Lab::with_nodes(1);
    let submission = lab.submission(1, None);
    let id = lab.hand_in(0, submission).unwrap();
    assert!(
        lab.nodes.launched.is_empty(),
        "not launched before its client reads"
    );
    lab.pass_s(31);
    assert_eq!(lab.state(id), JobState::Cancelled);
}

#[test]
fn the_time_limit_ends_a_job() {
    let mut lab = Lab::with_nodes(1);
    let mut submission = lab.submission(1, None);
    submission.time_limit_s = Some(2);
    let (id, mut reader) = lab.submit(submission);
    // Where control is not there, the nodes end it when its grace would be over.
    assert_eq!(lab.nodes.launched[0].time_limit_us, 9_000_000);
    lab.all_ready(id);
    assert_eq!(lab.runner.next_deadline_us(), Some(2_000_000));
    lab.pass_s(2);
    assert_eq!(lab.nodes.cancelled, [(id, 15)]);
    assert_eq!(lab.nodes.grace_s, 5);
    lab.exit(0, id, RankEnd::Signal(15));
    let end = lab.drain(&mut reader).1.unwrap();
    assert_eq!(
        (end.state, &*end.reason),
        (JobState::TimeLimit, "time limit of 2 s reached")
    );
}

#[test]
fn without_a_grace_the_nodes_end_a_job_at_its_limit() {
    let mut lab = Lab::with(1, |config| config.jobs.grace_s = 0);
    let mut submission = lab.submission(1, None);
    submission.time_limit_s = Some(2);
    let (id, _reader) = lab.submit(submission);
    assert_eq!(lab.nodes.launched[0].time_limit_us, 2_000_000);
    lab.all_ready(id);
    lab.pass_s(2);
    assert!(lab.nodes.cancelled.is_empty(), "the nodes come first");
    lab.pass_s(2);
    assert_eq!(lab.nodes.cancelled, [(id, 15)]);
    assert_eq!(lab.nodes.grace_s, 0);
}

#[test]
fn a_signal_reaches_a_job_that_runs() {
    let mut lab = Lab::with_nodes(2);
    let (id, _reader) = lab.running(2);
    assert_eq!(
        lab.runner.signal(&operator(), &mut lab.nodes, id, 10),
        Ok(())
    );
    let submission = lab.submission(1, None);
    let (waiting, _waiting) = lab.submit(submission);
    let refused = lab
        .runner
        .signal(&operator(), &mut lab.nodes, waiting, 10)
        .unwrap_err();
    let text = format!("job {waiting} is pending, and only a job that runs can get a signal");
    assert!(refused.to_string().starts_with(&text), "{refused}");
    // It may say something to a job that takes its time to end.
    lab.runner
        .cancel(&operator(), 0, &mut lab.nodes, id, (15, Some(60)), "enough")
        .unwrap();
    assert_eq!(
        lab.runner.signal(&operator(), &mut lab.nodes, id, 12),
        Ok(())
    );
    assert_eq!(lab.nodes.signals, [(id, 10), (id, 12)]);
    lab.exit(0, id, RankEnd::Exited(0));
    lab.exit(1, id, RankEnd::Exited(0));
    let ended = lab.runner.signal(&operator(), &mut lab.nodes, id, 10);
    assert_eq!(ended, Err(JobError::Ended(id)));
    let unknown = lab.runner.signal(&operator(), &mut lab.nodes, 77, 10);
    assert_eq!(unknown, Err(JobError::Unknown(77)));
}

#[test]
fn a_job_is_given_up_after_its_grace_and_sooner_when_somebody_wants_it_at_once() {
    let mut lab = Lab::with_nodes(1);
    let (id, _reader) = lab.running(1);
    lab.runner
        .cancel(&operator(), 0, &mut lab.nodes, id, (15, Some(60)), "enough")
        .unwrap();
    assert_eq!(lab.nodes.grace_s, 60);
    assert_eq!(lab.runner.next_deadline_us(), Some(70_000_000));
    lab.pass_s(30);
    lab.runner
        .cancel(
            &operator(),
            lab.now_us,
            &mut lab.nodes,
            id,
            (9, None),
            "now",
        )
        .unwrap();
    assert_eq!(lab.nodes.cancelled, [(id, 15), (id, 9)]);
    assert_eq!(lab.nodes.grace_s, 0);
    assert_eq!(lab.runner.next_deadline_us(), Some(40_000_000));
    // Who asks again and again does not put it off.
    lab.pass_s(5);
    lab.runner
        .cancel(
            &operator(),
            lab.now_us,
            &mut lab.nodes,
            id,
            (9, None),
            "now",
        )
        .unwrap();
    assert_eq!(lab.runner.next_deadline_us(), Some(40_000_000));
}

#[test]
fn a_node_that_sees_the_time_limit_first_is_believed() {
    let mut lab = Lab::with_nodes(2);
    let mut submission = lab.submission(2, None);
    submission.time_limit_s = Some(2);
    let (id, mut reader) = lab.submit(submission);
    lab.all_ready(id);
    lab.now_us = 1_950_000;
    lab.exit(0, id, RankEnd::Signal(15));
    lab.exit(1, id, RankEnd::Signal(15));
    assert_eq!(lab.drain(&mut reader).1.unwrap().state, JobState::TimeLimit);
}

#[test]
fn a_lost_node_ends_its_job_with_its_name() {
    let mut lab = Lab::with_nodes(2);
    let (id, mut reader) = lab.running(2);
    lab.runner.node_down(
        0,
        &mut lab.nodes,
        1,
        "n1 was lost (nothing heard for 6.0 s)",
    );
    assert_eq!(lab.nodes.cancelled, [(id, 15)]);
    lab.exit(0, id, RankEnd::Signal(15));
    let end = lab.drain(&mut reader).1.unwrap();
    assert_eq!(end.state, JobState::NodeLost);
    assert!(end.reason.starts_with("n1 was lost"), "{}", end.reason);
    assert_eq!(end.ranks[1].end, Some(RankEnd::NodeLost));
    assert_eq!(lab.runner.job_of(1), None);
}

#[test]
fn a_node_that_boots_again_under_a_job_loses_it() {
    let mut lab = Lab::with_nodes(1);
    let (id, mut reader) = lab.running(1);
    lab.runner.node_up(0, &mut lab.nodes, 0, true);
    assert_eq!(lab.drain(&mut reader).1.unwrap().state, JobState::NodeLost);
    assert_eq!(lab.state(id), JobState::NodeLost);
    let (next, _reader) = lab.running(1);
    assert_eq!(
        lab.state(next),
        JobState::Running,
        "the node is in service again"
    );
}

#[test]
fn a_node_heard_again_keeps_its_job() {
    let mut lab = Lab::with_nodes(1);
    let (id, _reader) = lab.running(1);
    lab.runner.node_up(0, &mut lab.nodes, 0, false);
    assert_eq!(lab.state(id), JobState::Running);
}

#[test]
fn a_refused_launch_fails_the_job_with_the_nodes_words() {
    let mut lab = Lab::with_nodes(2);
    let submission = lab.submission(2, None);
    let (id, mut reader) = lab.submit(submission);
    lab.runner.ready(0, &mut lab.nodes, JobId(id), NodeId(0));
    let words = (Blame::Program, "not an ELF file");
    lab.runner
        .refused(0, &mut lab.nodes, JobId(id), NodeId(1), words);
    assert_eq!(lab.nodes.cancelled, [(id, 15)]);
    assert_eq!(lab.runner.job_of(1), None, "the node that refused is free");
    lab.exit(0, id, RankEnd::Signal(15));
    let end = lab.drain(&mut reader).1.unwrap();
    assert_eq!(
        (end.state, &*end.reason),
        (JobState::Failed, "n1: not an ELF file")
    );
    assert_eq!((end.exit_status, end.bad_program), (None, true));
}

#[test]
fn a_launch_that_cannot_be_sent_fails_the_job_and_frees_the_nodes() {
    let mut lab = Lab::with_nodes(1);
    lab.nodes.refuse_launch = true;
    let submission = lab.submission(1, None);
    let (_, mut reader) = lab.submit(submission);
    assert_eq!(lab.drain(&mut reader).1.unwrap().state, JobState::Failed);
    lab.nodes.refuse_launch = false;
    let (next, _reader) = lab.running(1);
    assert_eq!(lab.state(next), JobState::Running);
}

#[test]
fn a_node_that_does_not_end_its_job_stays_out_until_it_does() {
    let mut lab = Lab::with_nodes(1);
    let (id, mut reader) = lab.running(1);
    lab.runner
        .cancel(&operator(), 0, &mut lab.nodes, id, (15, Some(0)), "enough")
        .unwrap();
    lab.pass_s(10);
    assert_eq!(lab.nodes.cancelled, [(id, 15), (id, 9)]);
    assert_eq!(lab.state(id), JobState::Ending);
    lab.pass_s(10);
    assert_eq!(lab.drain(&mut reader).1.unwrap().state, JobState::Cancelled);
    let submission = lab.submission(1, None);
    let (next, _next) = lab.submit(submission);
    assert_eq!(lab.state(next), JobState::Pending);
    lab.exit(0, id, RankEnd::Signal(9));
    assert_eq!(lab.state(next), JobState::Starting);
}

#[test]
fn a_node_that_refuses_after_its_job_was_given_up_is_free_again() {
    let mut lab = Lab::with_nodes(1);
    let submission = lab.submission(1, None);
    let (id, mut reader) = lab.submit(submission);
    lab.pass_s(60);
    lab.pass_s(10);
    lab.pass_s(10);
    let end = lab.drain(&mut reader).1.unwrap();
    assert_eq!((end.state, end.bad_program), (JobState::Failed, false));
    assert_eq!(lab.runner.job_of(0), Some(id), "silent nodes stay taken");
    lab.runner.refused(
        0,
        &mut lab.nodes,
        JobId(id),
        NodeId(0),
        (Blame::Job, "cancelled"),
    );
    assert_eq!(lab.runner.job_of(0), None);
    let (next, _reader) = lab.running(1);
    assert_eq!(lab.state(next), JobState::Running);
}

#[test]
fn the_end_of_a_ranks_time_is_no_fault_of_its_program() {
    let mut lab = Lab::with_nodes(1);
    let (id, mut reader) = lab.running(1);
    let data = b"SIGXCPU: time limit reached, rip 0x401000\n  rax 0000000000000000\n".to_vec();
    lab.call(0, id, Call::Report { offset: 0, data });
    lab.exit(0, id, RankEnd::Signal(24));
    while let Some(item) = reader.try_next() {
        assert!(
            !matches!(item, Item::Frame(Frame::Fault { .. })),
            "{item:?}"
        );
    }
    let kept = lab.runner.get(id).unwrap().ranks[0].fault.clone();
    let kept = kept.unwrap();
    assert_eq!(kept, "SIGXCPU: time limit reached, rip 0x401000");
    let events = lab.runner.take_events();
    assert!(
        events.iter().all(|event| event.kind != "program-fault"),
        "{events:?}"
    );
}

#[test]
fn a_launch_has_a_limit() {
    let mut lab = Lab::with_nodes(2);
    let submission = lab.submission(2, None);
    let (id, _reader) = lab.submit(submission);
    lab.runner.ready(0, &mut lab.nodes, JobId(id), NodeId(0));
    lab.pass_s(60);
    let info = lab.runner.get(id).unwrap();
    assert_eq!(
        (info.state, &*info.reason),
        (JobState::Ending, "n1 not ready after 60 s")
    );
}

#[test]
fn a_fault_report_reaches_client_record_and_events() {
    let mut lab = Lab::with_nodes(1);
    let (id, mut reader) = lab.running(1);
    let part = |offset: usize, text: &str| Call::Report {
        offset,
        data: text.as_bytes().to_vec(),
    };
    lab.call(0, id, part(0, "SIGSEGV at 0x0\n"));
    lab.call(0, id, part(15, "rip 0x401000\n"));
    lab.exit(0, id, RankEnd::Signal(11));
    let mut faults = Vec::new();
    while let Some(item) = reader.try_next() {
        if let Item::Frame(Frame::Fault { rank, node, text }) = item {
            faults.push((rank, node, text));
        }
    }
    let report = "SIGSEGV at 0x0\nrip 0x401000";
    let text = format!("rank 0 on n0 was ended by SIGSEGV (signal 11)\n{report}");
    assert_eq!(faults, [(0, "n0".to_string(), text)]);
    assert_eq!(
        lab.runner.get(id).unwrap().ranks[0].fault.as_deref(),
        Some(report)
    );
    // Everybody reads events: registers are not in them.
    let events = lab.runner.take_events();
    let of_fault = |event: &&Event| event.kind == "program-fault";
    let text = events.iter().find(of_fault).map(|event| &*event.text);
    let cause = format!("job {id}: rank 0 on n0 was ended by SIGSEGV (signal 11): SIGSEGV at 0x0");
    assert_eq!(text, Some(&*cause));
}

#[test]
fn a_client_hears_of_the_end_after_it_is_written_down() {
    let mut lab = Lab::with_nodes(2);
    let (id, mut reader) = lab.running(2);
    lab.exit(0, id, RankEnd::Exited(0));
    let told = |lab: &mut Lab| {
        let records = lab.runner.take_records().into_iter();
        let states = records.map(|record| (record.info.id, record.info.state, record.nodes));
        states.collect::<Vec<_>>()
    };
    let began = [
        (id, JobState::Pending, vec![]),
        (id, JobState::Starting, vec![0, 1]),
        (id, JobState::Running, vec![0, 1]),
    ];
    assert_eq!(told(&mut lab), began);
    lab.runner.tell_ended();
    lab.exit(1, id, RankEnd::Exited(3));
    assert_eq!(drain(&mut reader).1, None, "not yet");
    assert_eq!(told(&mut lab), [(id, JobState::Failed, vec![0, 1])]);
    assert_eq!(drain(&mut reader).1, None, "written, not told");
    lab.runner.tell_ended();
    assert_eq!(drain(&mut reader).1, lab.runner.get(id).ok());
}

#[test]
fn numbers_and_history_go_on_after_a_restart() {
    let mut lab = Lab::with_nodes(1);
    let (id, _reader) = lab.running(1);
    lab.exit(0, id, RankEnd::Exited(0));
    let past = lab.runner.list(true);
    lab = Lab::with_nodes(1);
    lab.runner.next_job = 7;
    lab.runner.remember(past);
    let (next, _reader) = lab.running(1);
    assert_eq!(next, 7);
    let known: Vec<u64> = lab.runner.list(true).iter().map(|job| job.id).collect();
    assert_eq!(known, [id, next]);
    let gone = lab
        .runner
        .cancel(&operator(), 0, &mut lab.nodes, 6, (15, None), "");
    assert_eq!(gone, Err(JobError::Ended(6)));
    let never = lab
        .runner
        .cancel(&operator(), 0, &mut lab.nodes, 8, (15, None), "");
    assert_eq!(never, Err(JobError::Unknown(8)));
}

#[test]
fn the_history_is_bounded() {
    let limits = crate::config::Jobs {
        history_max: 2,
        ..crate::config::defaults().jobs
    };
    let mut lab = Lab::with_limits(1, limits);
    for _ in 0..3 {
        let (id, _reader) = lab.running(1);
        lab.exit(0, id, RankEnd::Exited(0));
    }
    let kept: Vec<u64> = lab.runner.list(true).iter().map(|job| job.id).collect();
    assert_eq!(kept, [2, 3]);
    assert_eq!(lab.runner.get(1), Err(JobError::Unknown(1)));
    assert!(lab.runner.list(false).is_empty());
}
