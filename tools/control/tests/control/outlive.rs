//! Jobs that outlive nodes and the control node: in every state, with the words of the command line.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};

use crate::fake_node::FakeNode;
use crate::lab::{Lab, parts};

/// Submits a program for fake nodes; gives the job's number.
fn submit(lab: &Lab, options: &[&str], script: &str) -> String {
    let program = lab.program("program", script);
    let mut args = vec!["submit", "--no-precheck", "--parsable"];
    args.extend(options);
    args.push(&program);
    let (code, out, err) = parts(&lab.hearth(&args));
    assert_eq!((code, &*err), (0, ""));
    out.trim().to_string()
}

fn job(lab: &Lab, id: &str) -> Value {
    lab.json(&["job", id])
}

fn reaches(lab: &Lab, id: &str, state: &str) {
    lab.eventually(&format!("job {id} is {state}"), |lab| {
        job(lab, id)["state"] == state
    });
}

#[test]
fn jobs_survive_a_killed_control_node_in_every_state() {
    let mut lab = Lab::with_nodes(3);
    let once = submit(&lab, &[], "out once\nwait\n");
    let again = submit(&lab, &["--requeue"], "out again\nwait\n");
    let ending = submit(&lab, &["--requeue"], "wait\n");
    for id in [&once, &again, &ending] {
        reaches(&lab, id, "running");
    }
    for (id, text) in [(&once, "once\n"), (&again, "again\n")] {
        lab.eventually("it has written", |lab| {
            parts(&lab.hearth(&["output", id])).1 == text
        });
    }
    // Nodes that hear nothing keep their jobs ending.
    for node in &lab.nodes {
        node.watch.deaf.store(true, Ordering::Relaxed);
    }
    let first = submit(&lab, &["--priority", "1"], "exit 0\n");
    let urgent = submit(&lab, &["--priority", "9"], "exit 0\n");
    let held = submit(&lab, &["--hold"], "exit 0\n");
    let after = submit(&lab, &["--after-ok", &first], "exit 0\n");
    let order = |lab: &Lab| -> Vec<String> {
        let queue = lab.json(&["queue", "--state", "PD"]);
        let jobs = queue.as_array().unwrap().iter();
        jobs.map(|job| job["id"].to_string()).collect()
    };
    let before = order(&lab);
    assert_eq!(before.len(), 4);
    lab.hearth(&["cancel", &ending]);
    reaches(&lab, &ending, "ending");
    for node in &mut lab.nodes {
        node.stop();
    }
    lab.nodes.clear();
    lab.stop_control(true);
    lab.start_control();

    let report = job(&lab, &once);
    assert_eq!(report["state"], "failed");
    let reason = report["reason"].as_str().unwrap();
    assert!(
        reason.contains("the control node ended") && reason.contains("--requeue"),
        "{reason}"
    );
    let report = job(&lab, &again);
    assert_eq!(
        (&report["state"], &report["restarts"]),
        (&json!("pending"), &json!(1))
    );
    assert_eq!(job(&lab, &ending)["state"], "cancelled");
    let mut waiting = before.clone();
    waiting.push(again.clone());
    let mut now = order(&lab);
    now.sort();
    waiting.sort();
    assert_eq!(now, waiting, "no job is lost");

    // A boot later, one node takes them one by one: by priority, then in the order of arrival.
    lab.nodes
        .push(FakeNode::start(lab.identity(0, 2), lab.address));
    for id in [&urgent, &first] {
        reaches(&lab, id, "completed");
    }
    reaches(&lab, &again, "running");
    lab.eventually("it has written once more", |lab| {
        parts(&lab.hearth(&["output", &again])).1 == "again\nagain\n"
    });
    assert_eq!(parts(&lab.hearth(&["output", &once])).1, "once\n");
    assert_eq!(job(&lab, &held)["state"], "pending");
    lab.hearth(&["cancel", &again]);
    reaches(&lab, &after, "completed");
    lab.hearth(&["release", &held]);
    reaches(&lab, &held, "completed");
    let start = |id: &str| job(&lab, id)["placement"]["decision"].as_u64().unwrap();
    assert!(start(&urgent) < start(&first) && start(&first) < start(&again));
}

#[test]
fn an_orderly_stop_keeps_the_queue() {
    let mut lab = Lab::with_nodes(1);
    let once = submit(&lab, &[], "wait\n");
    reaches(&lab, &once, "running");
    let waits = submit(&lab, &[], "out then\n");
    lab.stop_control(false);
    lab.start_control();
    assert_eq!(job(&lab, &once)["state"], "cancelled");
    reaches(&lab, &waits, "completed");
    assert_eq!(parts(&lab.hearth(&["output", &waits])).1, "then\n");
}

#[test]
fn a_job_that_loses_its_node_runs_again_on_another() {
    let config = "[queue]\ndrain_after_failures = 1\n";
    let mut lab = Lab::configured(config);
    lab.add_nodes(0..2);
    let id = submit(&lab, &["--requeue", "--nodes", "n1"], "out x\nwait\n");
    let lost = submit(&lab, &["--nodes", "n0"], "wait\n");
    for id in [&id, &lost] {
        reaches(&lab, id, "running");
    }
    lab.nodes[1].stop();
    lab.eventually("it waits for its node", |lab| {
        let job = job(lab, &id);
        job["state"] == "pending" && job["why"] == "ReqNodeNotAvail"
    });
    lab.nodes[1] = FakeNode::start(lab.identity(1, 2), lab.address);
    // The node is drained, as one failure is enough here.
    lab.eventually("the node is back", |lab| {
        let reason = job(lab, &id)["reason"].as_str().unwrap().to_string();
        reason.contains("drained: a job failed on it")
    });
    assert!(lab.has_event("node-drained", "n1 gets no jobs"));
    lab.hearth(&["resume", "n1"]);
    reaches(&lab, &id, "running");
    assert_eq!(job(&lab, &id)["restarts"], 1);
    lab.nodes[0].stop();
    reaches(&lab, &lost, "node-lost");
    assert_eq!(job(&lab, &lost)["exit_status"], 123);
}

#[test]
fn a_job_over_its_time_is_ended() {
    let lab = Lab::with_nodes(1);
    let id = submit(&lab, &["-t", "1"], "wait\n");
    let next = submit(&lab, &[], "exit 0\n");
    reaches(&lab, &id, "time-limit");
    let report = job(&lab, &id);
    let ran = |name: &str| Duration::from_micros(report[name].as_u64().unwrap());
    let ran = ran("ended_unix_us") - ran("started_unix_us");
    assert!(ran >= Duration::from_millis(900), "{ran:?}");
    assert_eq!(report["exit_status"], 124);
    reaches(&lab, &next, "completed");
}

#[test]
fn drained_nodes_stay_drained_over_a_restart() {
    let mut lab = Lab::with_nodes(2);
    lab.hearth(&["drain", "n0", "--reason", "bad fan"]);
    lab.stop_control(true);
    lab.start_control();
    let id = submit(&lab, &[], "exit 0\n");
    reaches(&lab, &id, "completed");
    assert_eq!(job(&lab, &id)["nodes"], "n1");
    lab.hearth(&["resume", "n0"]);
    lab.stop_control(true);
    lab.start_control();
    let both = submit(&lab, &["-n", "2"], "exit 0\n");
    reaches(&lab, &both, "completed");
}
