//! What the runner makes of nodes that hold a job's program.

use netstack::retention::{Keep, Reuse as Told};

use super::*;
use crate::api::types::Reuse;
use crate::config::{self, RetentionMode};

impl Lab {
    fn with_warm(count: u32, warm: &[u32]) -> Self {
        let mut lab = Lab::with_nodes(count);
        lab.nodes.warm.held = warm.iter().copied().collect();
        lab
    }

    /// Hands in a job that may, must or must not use what nodes hold.
    fn submit_reusing(&mut self, ranks: u32, reuse: Reuse) -> (u64, SinkReader) {
        let mut submission = self.submission(ranks, None);
        submission.wishes.reuse = reuse;
        submission.want.warm_only = reuse == Reuse::Require;
        self.submit(submission)
    }

    fn launched_on(&self) -> Vec<NodeId> {
        let nodes = self.launched().nodes.iter();
        nodes.map(|(node, _)| *node).collect()
    }

    fn launched(&self) -> &Launch {
        self.nodes.launched.last().expect("something was launched")
    }

    fn retaining(self, mode: RetentionMode) -> Self {
        let retention = config::Retention {
            mode,
            ..config::defaults().retention
        };
        let mut lab = self;
        lab.runner.retention = retention;
        lab
    }
}

fn nodes(numbers: &[u32]) -> Vec<NodeId> {
    numbers.iter().map(|number| NodeId(*number)).collect()
}

#[test]
fn warm_nodes_come_first_among_equals() {
    let mut lab = Lab::with_warm(4, &[2, 3]);
    let (_, _reader) = lab.submit_reusing(2, Reuse::Allow);
    assert_eq!(lab.launched_on(), nodes(&[2, 3]));
    assert_eq!(lab.launched().plan.policy.reuse, Told::Allow);
    assert_eq!(lab.launched().plan.start, StartMode::AtOnce);
    let (_, _reader) = lab.submit_reusing(2, Reuse::Allow);
    assert_eq!(lab.launched_on(), nodes(&[0, 1]));
    assert_eq!(lab.launched().plan.start, StartMode::OnCommand);
}

#[test]
fn jobs_may_mix_warm_and_cold_nodes_and_then_start_together() {
    let mut lab = Lab::with_warm(3, &[2]);
    let (id, _reader) = lab.submit_reusing(2, Reuse::Allow);
    assert_eq!(lab.launched_on(), nodes(&[0, 2]));
    assert_eq!(lab.launched().plan.start, StartMode::OnCommand);
    lab.runner.ready(0, &mut lab.nodes, JobId(id), NodeId(2));
    assert!(lab.nodes.started.is_empty(), "the cold one is waited for");
    lab.runner.ready(0, &mut lab.nodes, JobId(id), NodeId(0));
    assert_eq!(lab.nodes.started, [id]);
}

#[test]
fn a_cold_job_does_not_look_for_warm_nodes() {
    let mut lab = Lab::with_warm(2, &[1]);
    let (_, _reader) = lab.submit_reusing(1, Reuse::Forbid);
    assert_eq!(lab.launched_on(), nodes(&[0]));
    assert_eq!(lab.launched().plan.policy.reuse, Told::Forbid);
}

#[test]
fn a_warm_only_job_fails_when_too_few_nodes_are_warm_and_waits_for_busy_ones() {
    let mut lab = Lab::with_warm(3, &[1]);
    let (id, mut reader) = lab.submit_reusing(2, Reuse::Require);
    let end = lab.drain(&mut reader).1.unwrap();
    assert_eq!(
        (end.id, end.state, end.exit_status),
        (id, JobState::Failed, None)
    );
    assert!(
        end.reason.contains("1 node holds the program warm (n1)"),
        "{}",
        end.reason
    );
    assert!(lab.nodes.launched.is_empty());
    let (first, _first) = lab.submit_reusing(1, Reuse::Require);
    assert_eq!(lab.launched_on(), nodes(&[1]));
    lab.all_ready(first);
    let (second, mut reader) = lab.submit_reusing(1, Reuse::Require);
    assert_eq!(
        lab.runner.get(second).unwrap().reason,
        "1 warm node needed, 0 free"
    );
    // While it waited, n1 let go of the program.
    lab.nodes.warm.held.clear();
    lab.exit(1, first, RankEnd::Exited(0));
    assert_eq!(lab.drain(&mut reader).1.unwrap().state, JobState::Failed);
}

#[test]
fn ranks_of_a_warm_job_begin_each_by_itself() {
    let mut lab = Lab::with_warm(2, &[0, 1]);
    let mut submission = lab.submission(2, None);
    submission.time_limit_s = Some(5);
    let (id, mut reader) = lab.submit(submission);
    lab.now_us = 700;
    lab.runner.started(lab.now_us, JobId(id), NodeId(1));
    assert_eq!(lab.state(id), JobState::Running);
    assert!(
        lab.nodes.started.is_empty(),
        "nobody waits for a start command"
    );
    // The other one does not come up: the limit for launching still counts.
    lab.write(1, id, b"early\n");
    let launch_limit = config::defaults().jobs.launch_limit_s;
    lab.pass_s(launch_limit);
    assert_eq!(lab.state(id), JobState::Ending);
    assert_eq!(
        lab.runner.get(id).unwrap().reason,
        format!("n0 not ready after {launch_limit} s")
    );
    lab.exit(0, id, RankEnd::Signal(9));
    lab.exit(1, id, RankEnd::Signal(9));
    let (output, end) = lab.drain(&mut reader);
    assert_eq!((output.len(), end.unwrap().state), (1, JobState::Failed));
}

#[test]
fn a_rank_that_ends_before_another_has_begun_counts() {
    let mut lab = Lab::with_warm(2, &[0, 1]);
    let (id, mut reader) = lab.submit_reusing(2, Reuse::Allow);
    lab.runner.started(0, JobId(id), NodeId(0));
    lab.exit(0, id, RankEnd::Exited(0));
    assert_eq!(lab.state(id), JobState::Running);
    lab.runner.started(0, JobId(id), NodeId(1));
    lab.exit(1, id, RankEnd::Exited(4));
    let end = lab.drain(&mut reader).1.unwrap();
    assert_eq!((end.state, end.exit_status), (JobState::Failed, Some(4)));
}

#[test]
fn a_job_that_could_not_begin_everywhere_says_so_whatever_its_first_rank_did() {
    let mut lab = Lab::with_warm(2, &[0, 1]);
    let (id, mut reader) = lab.submit_reusing(2, Reuse::Require);
    lab.runner.started(0, JobId(id), NodeId(0));
    lab.exit(0, id, RankEnd::Exited(0));
    let refusal = (Blame::Job, "it does not hold the program");
    lab.runner
        .refused(0, &mut lab.nodes, JobId(id), NodeId(1), refusal);
    let end = lab.drain(&mut reader).1.unwrap();
    assert_eq!((end.state, end.exit_status), (JobState::Failed, None));
    assert_eq!(end.reason, "n1: it does not hold the program");
}

#[test]
fn a_warm_only_job_waits_for_nodes_that_are_away_but_not_for_ever() {
    let mut lab = Lab::with_warm(2, &[]);
    lab.nodes.warm.away = [5].into();
    lab.runner.know_node(5);
    let (id, mut reader) = lab.submit_reusing(1, Reuse::Require);
    assert_eq!(lab.state(id), JobState::Pending);
    lab.pass_s(9);
    assert_eq!(lab.state(id), JobState::Pending);
    lab.pass_s(1);
    let end = lab.drain(&mut reader).1.unwrap();
    assert_eq!(end.state, JobState::Failed);
    assert!(
        end.reason.contains("n5 did and is not in service"),
        "{}",
        end.reason
    );
    // Who is ready to wait does; and the node may come back in time.
    for wait in [true, false] {
        let mut submission = lab.submission(1, None);
        submission.wishes.reuse = Reuse::Require;
        (submission.want.warm_only, submission.wait) = (true, wait);
        let (id, _reader) = lab.submit(submission);
        lab.pass_s(if wait { 1_000 } else { 5 });
        assert_eq!(lab.state(id), JobState::Pending);
        lab.nodes.warm.held = std::mem::take(&mut lab.nodes.warm.away);
        lab.runner.node_up(lab.now_us, &mut lab.nodes, 5, false);
        assert_eq!(lab.launched_on(), nodes(&[5]));
        lab.all_ready(id);
        lab.exit(5, id, RankEnd::Exited(0));
        lab.nodes.warm.away = std::mem::take(&mut lab.nodes.warm.held);
        lab.runner.node_down(lab.now_us, &mut lab.nodes, 5, "gone");
    }
}

#[test]
fn times_count_from_the_dispatch_on_controls_clock() {
    let mut lab = Lab::with_warm(1, &[0]);
    lab.now_us = 10_000;
    let (id, mut reader) = lab.submit_reusing(1, Reuse::Allow);
    lab.now_us = 10_250;
    lab.runner.started(lab.now_us, JobId(id), NodeId(0));
    // A repeated acknowledgement changes nothing.
    lab.runner.started(11_000, JobId(id), NodeId(0));
    lab.now_us = 13_500;
    let mut report = RankReport::new(0, 0);
    (report.warm, report.retained.reused, report.wire.bytes) = (true, 12, 34);
    let exit = Exit {
        end: RankEnd::Exited(0),
        report,
    };
    lab.call(0, id, Call::Exit(Box::new(exit)));
    let end = lab.drain(&mut reader).1.unwrap();
    assert_eq!(
        (end.ranks[0].first_ms, end.ranks[0].exit_ms),
        (Some(0.25), Some(3.5))
    );
    let totals = end.totals.unwrap();
    assert_eq!(
        (totals.ranks, totals.warm, totals.retained.reused),
        (1, 1, 12)
    );
    assert_eq!((totals.wire.bytes, totals.exit_ms), (34, Some(3.5)));
}

#[test]
fn retain_messages_go_to_the_warm_nodes_in_published_mode() {
    let mut lab = Lab::with_warm(3, &[1]).retaining(RetentionMode::Published);
    let (id, _reader) = lab.submit_reusing(2, Reuse::Allow);
    let plan = &lab.launched().plan;
    assert_eq!(lab.launched_on(), nodes(&[0, 1]));
    assert_eq!(plan.retain, nodes(&[1]).into_iter().collect());
    assert_eq!(plan.policy.keep, Keep::Published);
    lab.runner.retained(JobId(id), NodeId(1), 12);
    assert!(
        !lab.runner
            .take_events()
            .iter()
            .any(|event| event.kind == "retain-missed")
    );
    // The table was wrong: the node is loaded like the others.
    lab.runner.retained(JobId(id), NodeId(1), 0);
    let missed = lab.runner.take_events();
    assert!(
        missed
            .iter()
            .any(|event| event.kind == "retain-missed" && event.job == Some(id))
    );
    // A late answer for a job that is over says nothing.
    lab.runner.retained(JobId(77), NodeId(1), 0);
    assert!(lab.runner.take_events().is_empty());
}

#[test]
fn without_retention_nothing_is_kept_and_warm_only_is_refused() {
    let mut lab = Lab::with_warm(2, &[1]).retaining(RetentionMode::Off);
    let (_, _reader) = lab.submit_reusing(1, Reuse::Allow);
    assert_eq!(lab.launched_on(), nodes(&[0]));
    assert_eq!(lab.launched().plan.policy.keep, Keep::Nothing);
    let mut submission = lab.submission(1, None);
    submission.wishes.reuse = Reuse::Require;
    submission.want.warm_only = true;
    assert_eq!(lab.hand_in(0, submission), Err(SubmitError::NothingKept));
}

#[test]
fn damaged_pages_are_an_event_that_names_the_node() {
    let mut lab = Lab::with_warm(1, &[0]);
    let (id, _reader) = lab.submit_reusing(1, Reuse::Allow);
    lab.all_ready(id);
    let mut report = RankReport::new(0, 0);
    report.retained.damaged = 2;
    let exit = Exit {
        end: RankEnd::Exited(0),
        report,
    };
    lab.call(0, id, Call::Exit(Box::new(exit)));
    let events = lab.runner.take_events();
    let damaged = events.iter().find(|event| event.kind == "pages-damaged");
    let damaged = damaged.expect("there is such an event");
    assert_eq!(
        (damaged.node.as_deref(), damaged.job),
        (Some("n0"), Some(id))
    );
    assert!(
        damaged.text.contains("2 retained pages"),
        "{}",
        damaged.text
    );
}
