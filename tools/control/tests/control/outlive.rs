//! Jobs that outlive nodes and the control node: in every state, with the words of the command
//! line.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};

use crate::fake_node::FakeNode;
use crate::lab::{Lab, finish, parts};

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

/// The control node is killed and started again; its nodes find it.
fn restart(lab: &mut Lab) {
    lab.stop_control(true);
    lab.start_control();
}

fn output_is(lab: &Lab, id: &str, text: &str) {
    lab.eventually(&format!("job {id} has written {text:?}"), |lab| {
        parts(&lab.hearth(&["output", id])).1 == text
    });
}

fn go(lab: &Lab) {
    for node in &lab.nodes {
        node.watch.go.store(true, Ordering::Relaxed);
    }
}

#[test]
fn jobs_survive_a_killed_control_node_in_every_state() {
    let mut lab = Lab::with_nodes(3);
    let once = submit(&lab, &[], "out once\npause\nout more\nexit 3\n");
    let again = submit(&lab, &["--requeue"], "out again\npause\nout more\n");
    let ending = submit(&lab, &["--requeue", "--nodes", "n2"], "wait\n");
    for id in [&once, &again, &ending] {
        reaches(&lab, id, "running");
    }
    output_is(&lab, &once, "once\n");
    output_is(&lab, &again, "again\n");
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
    // A node that hears nothing keeps its job ending.
    lab.nodes[2].watch.deaf.store(true, Ordering::Relaxed);
    lab.hearth(&["cancel", &ending]);
    reaches(&lab, &ending, "ending");
    restart(&mut lab);

    assert_eq!(order(&lab), before, "no job is lost");
    assert_eq!(job(&lab, &ending)["state"], "cancelled");
    for id in [&once, &again] {
        lab.eventually("it goes on", |lab| {
            lab.has_event("job-continued", &format!("job {id} "))
        });
        assert_eq!(job(&lab, id)["state"], "running");
    }
    restart(&mut lab);
    go(&lab);
    for (id, state, text) in [
        (&once, "failed", "once\nmore\n"),
        (&again, "completed", "again\nmore\n"),
    ] {
        reaches(&lab, id, state);
        assert_eq!(parts(&lab.hearth(&["output", id])).1, text);
        let report = job(&lab, id);
        assert_eq!(
            (&report["restarts"], &report["continued"]),
            (&json!(0), &json!(2))
        );
    }
    assert_eq!(job(&lab, &once)["exit_status"], 3);
    for id in [&urgent, &first, &after] {
        reaches(&lab, id, "completed");
    }
    // The node of the one that was ending has dropped it.
    lab.nodes[2].watch.deaf.store(false, Ordering::Relaxed);
    lab.eventually("all nodes are free", |lab| lab.idle_nodes() == 3);
    assert_eq!(job(&lab, &held)["state"], "pending");
    lab.hearth(&["release", &held]);
    reaches(&lab, &held, "completed");
    let start = |id: &str| job(&lab, id)["placement"]["decision"].as_u64().unwrap();
    assert!(start(&urgent) < start(&first));
}

#[test]
fn a_job_of_several_ranks_goes_on_with_those_that_are_left() {
    let mut lab = Lab::with_nodes(3);
    let script = "rank 0 exit 4\nrank 1 out one\npause\nrank 2 out two\n";
    let id = submit(&lab, &["-n", "3"], script);
    lab.eventually("a rank has ended", |lab| {
        job(lab, &id)["ranks"][0]["end"] == json!({ "exited": 4 })
    });
    output_is(&lab, &id, "one\n");
    for _ in 0..2 {
        restart(&mut lab);
        lab.eventually("its node is free", |lab| lab.idle_nodes() == 1);
    }
    // The free node is given to others, the two that have the job are not.
    let other = submit(&lab, &[], "exit 0\n");
    reaches(&lab, &other, "completed");
    assert_eq!(job(&lab, &other)["nodes"], "n0");
    go(&lab);
    reaches(&lab, &id, "failed");
    let report = job(&lab, &id);
    assert_eq!(report["exit_status"], 4);
    assert_eq!(report["ranks"][2]["end"], json!({ "exited": 0 }));
    assert_eq!(parts(&lab.hearth(&["output", &id])).1, "one\ntwo\n");
}

#[test]
fn streams_that_somebody_opened_go_on_with_their_jobs() {
    let mut lab = Lab::with_nodes(2);
    let goes_on = submit(&lab, &["--nodes", "n0"], "pause\nexit 0\n");
    let ends = submit(&lab, &["--nodes", "n1"], "wait\n");
    for id in [&goes_on, &ends] {
        reaches(&lab, id, "running");
    }
    let open = |lab: &Lab, options: &[&str]| {
        let metrics = [
            "overlay",
            "open",
            "--metrics",
            "hearth_node_memory_used_bytes",
        ];
        let (code, out, err) = parts(&lab.hearth(&[&metrics[..], options].concat()));
        assert_eq!(code, 0, "{err}");
        let number = out.split_whitespace().find_map(|word| word.parse().ok());
        number.unwrap_or_else(|| panic!("no number in {out:?}"))
    };
    let all: u64 = open(&lab, &["--sync", "all", "--filter", "max"]);
    let closed = open(&lab, &[]);
    let of_job = open(&lab, &["--job", &goes_on]);
    let of_ended = open(&lab, &["--job", &ends]);
    let asked = |lab: &Lab| {
        let view = lab.get("/v1/overlay");
        let streams = view["streams"].as_array().unwrap().iter();
        let asked = streams.filter(|stream| stream["stream"].as_u64() >= Some(all));
        let asked =
            asked.map(|stream| (stream["stream"].as_u64().unwrap(), stream["name"].clone()));
        asked.collect::<Vec<_>>()
    };
    let (code, _, err) = parts(&lab.hearth(&["overlay", "close", &closed.to_string()]));
    assert_eq!(code, 0, "{err}");
    let mut before = asked(&lab);
    assert_eq!(before.len(), 3);
    lab.stop_control(true);
    lab.nodes[1].stop();
    lab.nodes[1] = FakeNode::start(lab.identity(1, 2), lab.address);
    lab.start_control();
    // The job of a node that has booted meanwhile is lost as soon as that is known.
    reaches(&lab, &ends, "node-lost");
    lab.eventually("its stream ends with it", |lab| asked(lab).len() == 2);
    before.retain(|(number, _)| *number != of_ended);
    assert_eq!(asked(&lab), before);
    assert!(lab.has_event("overlay-streams-again", &of_job.to_string()));
    go(&lab);
    reaches(&lab, &goes_on, "completed");
    lab.eventually("the other's too", |lab| asked(lab) == before[..1]);
    restart(&mut lab);
    assert_eq!(asked(&lab), before[..1]);
}

#[test]
fn what_happens_to_a_node_while_control_is_away_counts() {
    let mut lab = Lab::configured("[jobs]\nreturn_limit_s = 3\n");
    lab.add_nodes(0..4);
    let script = "pause\nout done\n";
    let [goes_on, booted, again, silent] = [
        &["--nodes", "n0"][..],
        &["--nodes", "n1"],
        &["--requeue", "--nodes", "n2"],
        &["--nodes", "n3"],
    ]
    .map(|options| submit(&lab, options, script));
    for id in [&goes_on, &booted, &again, &silent] {
        reaches(&lab, id, "running");
    }
    lab.stop_control(true);
    for node in [1, 2] {
        lab.nodes[node].stop();
        lab.nodes[node] = FakeNode::start(lab.identity(node as u32, 2), lab.address);
    }
    lab.nodes[3].stop();
    lab.start_control();
    go(&lab);
    reaches(&lab, &goes_on, "completed");
    reaches(&lab, &booted, "node-lost");
    reaches(&lab, &again, "completed");
    assert_eq!(job(&lab, &again)["restarts"], 1);
    reaches(&lab, &silent, "node-lost");
    let reason = job(&lab, &silent)["reason"].to_string();
    assert!(
        reason.contains("n3 did not come back within 3 s"),
        "{reason}"
    );
}

#[test]
fn a_node_does_not_keep_a_job_for_longer_than_it_is_told() {
    let mut lab = Lab::configured("[jobs]\nwithout_control_s = 2\n");
    lab.add_nodes(0..1);
    let id = submit(&lab, &[], "wait\n");
    reaches(&lab, &id, "running");
    lab.stop_control(true);
    std::thread::sleep(Duration::from_secs(9));
    lab.start_control();
    reaches(&lab, &id, "node-lost");
    let reason = job(&lab, &id)["reason"].to_string();
    assert!(reason.contains("jobs.without_control_s"), "{reason}");
    lab.eventually("the node is free", |lab| lab.idle_nodes() == 1);
}

#[test]
fn a_waiting_client_comes_back_for_its_job() {
    let mut lab = Lab::with_nodes(1);
    let mut child = lab.run_command(&[], "out first\ncat\nexit 5\n");
    let mut child = child.stdin(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || lines.next().unwrap().unwrap();
    assert_eq!(next(), "first");
    for round in 0..3 {
        writeln!(input, "line {round}").unwrap();
        assert_eq!(next(), format!("line {round}"));
        restart(&mut lab);
    }
    writeln!(input, "last").unwrap();
    drop(input);
    assert_eq!(next(), "last");
    let (code, _, err) = parts(&finish(child));
    assert_eq!(code, 5, "{err}");
    assert_eq!(
        err.matches("keeps running on its nodes").count(),
        3,
        "{err}"
    );
    let report = lab.last_job();
    assert_eq!(
        (&report["continued"], &report["restarts"]),
        (&json!(3), &json!(0))
    );
}

#[test]
fn a_client_that_does_not_come_back_is_not_waited_for_for_ever() {
    let mut lab = Lab::configured("[jobs]\nreturn_limit_s = 2\n");
    lab.add_nodes(0..1);
    let mut child = lab.run_command(&[], "wait\n").spawn().unwrap();
    lab.eventually("the job runs", |lab| lab.last_job()["state"] == "running");
    lab.stop_control(true);
    child.kill().unwrap();
    child.wait().unwrap();
    lab.start_control();
    lab.eventually("it is ended", |lab| lab.last_job()["state"] == "cancelled");
    let reason = lab.last_job()["reason"].to_string();
    assert!(reason.contains("did not come back"), "{reason}");
}

#[test]
fn a_client_looks_for_the_control_node_as_long_as_nodes_keep_jobs() {
    let mut lab = Lab::configured("[jobs]\nwithout_control_s = 4\nreturn_limit_s = 2\n");
    lab.add_nodes(0..1);
    let child = lab.run_command(&[], "wait\n").spawn().unwrap();
    lab.eventually("the job runs", |lab| lab.last_job()["state"] == "running");
    lab.stop_control(true);
    let (code, _, err) = parts(&finish(child));
    assert_eq!(code, 125, "{err}");
    assert!(err.contains("trying for 4 s"), "{err}");
}

#[test]
fn an_orderly_stop_keeps_jobs_that_run_and_jobs_that_wait() {
    let mut lab = Lab::with_nodes(1);
    let runs = submit(&lab, &[], "wait\n");
    reaches(&lab, &runs, "running");
    let waits = submit(&lab, &[], "out then\n");
    lab.stop_control(false);
    lab.start_control();
    reaches(&lab, &runs, "running");
    assert_eq!(job(&lab, &runs)["continued"], 1);
    assert_eq!(job(&lab, &waits)["state"], "pending");
    assert_eq!(lab.hearth(&["cancel", &runs]).status.code(), Some(0));
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
        reason.contains("n1 is drained (a job failed on it")
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
    let id = submit(&lab, &["-t", "1s"], "wait\n");
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
