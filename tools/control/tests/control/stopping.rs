//! The control node is stopped by request: it alone, and the one that was asked.

use std::io::{BufRead, BufReader};
use std::sync::atomic::Ordering;

use crate::lab::{Lab, finish, parts};

#[test]
fn a_control_node_that_was_stopped_says_what_becomes_of_jobs_and_how_it_starts_again() {
    let mut lab = Lab::with_nodes(1);
    let program = lab.program("program", "out begun\npause\nout ended\n");
    let (code, _, err) = parts(&lab.hearth(&["submit", "--no-precheck", &program]));
    assert_eq!(code, 0, "{err}");
    lab.eventually("it runs", |lab| lab.last_job()["state"] == "running");
    let (code, _, err) = parts(&lab.hearth(&["stop"]));
    assert_eq!(code, 0, "{err}");
    for words in [
        "jobs that go on without the control node: 1",
        "`hearth serve` starts it again",
    ] {
        assert!(err.contains(words), "{err}");
    }
    assert!(!lab.socket().exists());
    lab.stop_control(false);
    lab.start_control();
    lab.nodes[0].watch.go.store(true, Ordering::Relaxed);
    lab.eventually("it went on", |lab| lab.last_job()["state"] == "completed");
    let (code, out, err) = parts(&lab.hearth(&["stop", "--json"]));
    assert_eq!((code, &*err), (0, ""));
    let reply: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(reply["running"], serde_json::json!([]));
}

#[test]
fn a_control_node_that_drains_starts_no_job_and_ends_after_those_that_run() {
    let mut lab = Lab::with_nodes(2);
    let program = lab.program("program", "pause\n");
    let submit = |lab: &Lab| {
        let (code, _, err) = parts(&lab.hearth(&["submit", "--no-precheck", &program]));
        assert_eq!(code, 0, "{err}");
    };
    submit(&lab);
    lab.eventually("it runs", |lab| lab.last_job()["state"] == "running");
    let (code, _, err) = parts(&lab.hearth(&["submit", "--no-precheck", "--hold", &program]));
    assert_eq!(code, 0, "{err}");
    let mut stop = lab.command(&["stop", "--drain"]).spawn().unwrap();
    let mut lines = BufReader::new(stop.stderr.take().unwrap()).lines();
    let said = lines.next().unwrap().unwrap();
    assert!(said.contains("waiting for the jobs that run: 1"), "{said}");
    assert!(said.contains("wait for its next start: 2"), "{said}");
    let (code, _, err) = parts(&lab.hearth(&["release", "2"]));
    assert_eq!(code, 0, "{err}");
    assert_eq!(lab.json(&["job", "2"])["state"], "pending", "none starts");
    assert!(stop.try_wait().unwrap().is_none());
    for node in &lab.nodes {
        node.watch.go.store(true, Ordering::Relaxed);
    }
    let code = finish(stop).status.code();
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    assert_eq!(code, Some(0), "{rest:?}");
    lab.stop_control(false);
    lab.start_control();
    for job in ["1", "2"] {
        lab.eventually("both have ended", |lab| {
            lab.json(&["job", job])["state"] == "completed"
        });
    }
}

/// The control node crashes while it is waited for, and another is started at the same socket: that
/// one has not been asked to end.
#[test]
fn a_control_node_that_was_not_asked_is_not_stopped() {
    let mut lab = Lab::with_nodes(1);
    let program = lab.program("program", "pause\n");
    let (code, _, err) = parts(&lab.hearth(&["submit", "--no-precheck", &program]));
    assert_eq!(code, 0, "{err}");
    lab.eventually("it runs", |lab| lab.last_job()["state"] == "running");
    let mut stop = lab.command(&["stop", "--drain"]).spawn().unwrap();
    let mut lines = BufReader::new(stop.stderr.take().unwrap()).lines();
    let said = lines.next().unwrap().unwrap();
    assert!(said.contains("waiting for the jobs that run: 1"), "{said}");
    lab.stop_control(true);
    lab.start_control();
    let code = finish(stop).status.code();
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    assert_eq!(code, Some(125), "{rest:?}");
    assert!(
        rest.iter().any(|line| line.contains("crashed over it")),
        "{rest:?}"
    );
    // Nothing is drained: jobs are taken and start.
    lab.nodes[0].watch.go.store(true, Ordering::Relaxed);
    assert_eq!(parts(&lab.run(&[], "out on\n")).1, "on\n");
}
