//! Files that come before a launch, and programs that are cast beside it.

use super::*;
use crate::api::types::LoadReport;
use crate::casts::for_jobs::{Brought, JobFile};
use crate::config::Load;
use crate::io_service::Mounts;

fn with_file(lab: &Lab, ranks: u32) -> Submission {
    let mut submission = lab.submission(ranks, None);
    submission.files.push(JobFile {
        name: "data".to_string(),
        object: [7; 32],
        bytes: 9,
        content: None,
    });
    submission
}

fn broadcast(lab: &mut Lab, ranks: u32) -> (u64, SinkReader) {
    let mut submission = lab.submission(ranks, None);
    submission.load = Some(Load::Broadcast);
    lab.submit(submission)
}

fn loaded(lab: &mut Lab, id: u64, done: usize, over: bool) {
    let report = LoadReport {
        cold: 2,
        done,
        ..LoadReport::default()
    };
    lab.runner
        .loaded(lab.now_us, &mut lab.nodes, JobId(id), report, over);
}

#[test]
fn a_job_is_launched_when_its_files_are_there() {
    let mut lab = Lab::with_nodes(2);
    lab.nodes.bring = Ok(Brought::Coming);
    let submission = with_file(&lab, 2);
    let (id, _reader) = lab.submit(submission);
    assert_eq!(lab.nodes.brought, [(id, vec![0, 1], 1)]);
    assert!(lab.nodes.launched.is_empty());
    let info = lab.runner.get(id).unwrap();
    assert_eq!(
        (info.state, &info.reason[..]),
        (JobState::Starting, "waits for data to be cast")
    );
    // The cast has limits of its own.
    lab.pass_s(10_000);
    assert_eq!(lab.state(id), JobState::Starting);
    lab.runner.files_here(lab.now_us, &mut lab.nodes, JobId(id));
    assert_eq!(lab.nodes.launched.len(), 1);
    lab.all_ready(id);
    assert_eq!(lab.state(id), JobState::Running);
}

#[test]
fn a_job_waits_for_an_io_service_and_no_longer_than_a_launch_may_take() {
    let mut lab = Lab::with_nodes(2);
    lab.nodes.io = Err("waits for an I/O service".to_string());
    let with_files = |lab: &Lab| {
        let mut submission = lab.submission(2, None);
        submission.terms.mounts = Some(Mounts {
            identity: 1,
            user: None,
            exports: Vec::new(),
            working: "/".into(),
        });
        submission
    };
    let submission = with_files(&lab);
    let (late, mut reader) = lab.submit(submission);
    let info = lab.runner.get(late).unwrap();
    assert_eq!(
        (info.state, &info.reason[..]),
        (JobState::Starting, "waits for an I/O service")
    );
    let limit_s = lab.config.jobs.launch_limit_s;
    lab.pass_s(limit_s - 1);
    assert_eq!(lab.state(late), JobState::Starting);
    lab.pass_s(2);
    let end = lab.drain(&mut reader).1.unwrap();
    assert_eq!(end.state, JobState::Failed);
    assert!(end.reason.starts_with("waits for an I/O service (none"));
    assert_eq!(lab.runner.job_of(0), None);
    let submission = with_files(&lab);
    let (id, _reader) = lab.submit(submission);
    assert!(lab.nodes.launched.is_empty());
    lab.nodes.io = Ok("10.0.0.9:7118".to_string());
    lab.write_down();
    assert_eq!(lab.nodes.launched.len(), 1);
    lab.all_ready(id);
    assert_eq!(lab.state(id), JobState::Running);
    // Another run of the control node tells the job's nodes the same.
    lab.nodes.io = Ok("10.0.0.8:7118".to_string());
    lab.restart(2);
    let told = &lab.nodes.adopted[0].0.io;
    assert_eq!(told[0].service, "10.0.0.9:7118");
}

#[test]
fn a_trouble_that_is_told_after_the_end_is_kept_with_the_job() {
    let mut lab = Lab::with_nodes(1);
    let (id, mut reader) = lab.running(1);
    lab.runner.tell_trouble(id, "while it runs");
    lab.exit(0, id, RankEnd::Exited(0));
    let end = lab.drain(&mut reader).1.unwrap();
    assert_eq!(end.troubles, ["while it runs"]);
    lab.write_down();
    for _ in 0..2 {
        lab.runner.tell_trouble(id, "late");
    }
    lab.runner.tell_trouble(id + 100, "of no job");
    lab.write_down();
    let told = lab.runner.get(id).unwrap().troubles;
    assert_eq!(told, ["while it runs", "late"]);
    lab.restart(1);
    let told = lab.runner.get(id).unwrap().troubles;
    assert_eq!(told, ["while it runs", "late"]);
}

#[test]
fn a_job_without_its_files_ends_and_its_nodes_are_free() {
    let mut lab = Lab::with_nodes(1);
    lab.nodes.bring = Ok(Brought::Coming);
    for cancelled in [false, true] {
        let submission = with_file(&lab, 1);
        let (id, mut reader) = lab.submit(submission);
        if cancelled {
            lab.runner
                .cancel(
                    &operator(),
                    lab.now_us,
                    &mut lab.nodes,
                    id,
                    (2, None),
                    "enough",
                )
                .unwrap();
            assert_eq!(lab.nodes.given_up, [id]);
        } else {
            lab.runner.files_failed(
                lab.now_us,
                &mut lab.nodes,
                JobId(id),
                "data: n0 has no room",
            );
        }
        let end = lab.drain(&mut reader).1.unwrap();
        let wanted = match cancelled {
            true => (JobState::Cancelled, "enough"),
            false => (JobState::Failed, "data: n0 has no room"),
        };
        assert_eq!((end.state, &end.reason[..]), wanted);
        assert_eq!(lab.runner.job_of(0), None);
    }
    assert!(
        lab.nodes.launched.is_empty() && lab.nodes.cancelled.iter().all(|(_, signal)| *signal == 2)
    );
    lab.nodes.bring = Err("data is not on n0".to_string());
    let submission = with_file(&lab, 1);
    let (_, mut reader) = lab.submit(submission);
    let end = lab.drain(&mut reader).1.unwrap();
    assert_eq!(
        (end.state, &end.reason[..]),
        (JobState::Failed, "data is not on n0")
    );
}

#[test]
fn a_broadcast_job_starts_when_its_program_is_everywhere() {
    let mut lab = Lab::with_nodes(2);
    let (id, _reader) = broadcast(&mut lab, 2);
    assert_eq!(lab.nodes.cast, [(id, vec![0, 1], vec![])]);
    for node in [NodeId(0), NodeId(1)] {
        lab.runner
            .ready(lab.now_us, &mut lab.nodes, JobId(id), node);
    }
    assert!(lab.nodes.started.is_empty(), "the program is on its way");
    // As long as it comes nearer, it is waited for.
    lab.pass_s(50);
    loaded(&mut lab, id, 1, false);
    lab.pass_s(50);
    let load = lab.runner.get(id).unwrap().load.unwrap();
    assert_eq!((load.done, lab.state(id)), (1, JobState::Starting));
    loaded(&mut lab, id, 2, true);
    assert_eq!(
        (lab.nodes.started.clone(), lab.state(id)),
        (vec![id], JobState::Running)
    );
}

#[test]
fn what_does_not_come_by_the_cast_is_loaded_by_demand() {
    // Some nodes do not get it.
    let mut lab = Lab::with_nodes(2);
    let (id, mut reader) = broadcast(&mut lab, 2);
    loaded(&mut lab, id, 1, true);
    lab.all_ready(id);
    assert_eq!(lab.state(id), JobState::Running);
    let mut said = String::new();
    while let Some(item) = reader.try_next() {
        if let Item::Frame(Frame::Notice { text }) = item {
            said = text;
        }
    }
    assert!(
        said.contains("1 of 2 nodes") && said.contains("demand"),
        "{said}"
    );
    // It stands still.
    let mut lab = Lab::with_nodes(2);
    let (id, _reader) = broadcast(&mut lab, 2);
    for node in [NodeId(0), NodeId(1)] {
        lab.runner
            .ready(lab.now_us, &mut lab.nodes, JobId(id), node);
    }
    lab.pass_s(100);
    assert_eq!(lab.state(id), JobState::Running);
    // It cannot be cast at all.
    let mut lab = Lab::with_nodes(2);
    lab.nodes.cast_answer = Err("64 casts are under way".to_string());
    let (id, _reader) = broadcast(&mut lab, 2);
    lab.all_ready(id);
    let info = lab.runner.get(id).unwrap();
    let load = info.load.unwrap();
    assert_eq!((info.state, &load.mode[..]), (JobState::Running, "demand"));
    assert!(load.reason.contains("64 casts"), "{}", load.reason);
}

#[test]
fn a_program_that_nodes_hold_and_must_not_use_is_not_cast() {
    let mut lab = Lab::with_nodes(2);
    lab.nodes.warm.held = [0].into();
    let mut submission = lab.submission(2, None);
    submission.load = Some(Load::Broadcast);
    submission.wishes.reuse = crate::api::types::Reuse::Forbid;
    let (id, _reader) = lab.submit(submission);
    assert!(lab.nodes.cast.is_empty());
    let load = lab.runner.get(id).unwrap().load.unwrap();
    assert!(load.reason.contains("hearth drop"), "{}", load.reason);
    lab.all_ready(id);
    assert_eq!(lab.state(id), JobState::Running);
}
