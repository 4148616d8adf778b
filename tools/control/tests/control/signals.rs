//! Signals to jobs, the grace of a job that is to end, and cores.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::identity::Identity;
use crate::lab::{Lab, finish, parts};

/// Submits a program for fake nodes and waits until it runs; gives the job's number.
fn running(lab: &Lab, options: &[&str], script: &str) -> String {
    let id = submit(lab, options, script);
    reaches(lab, &id, "running");
    id
}

fn submit(lab: &Lab, options: &[&str], script: &str) -> String {
    let program = lab.program("program", script);
    let mut args = vec!["submit", "--no-precheck", "--parsable"];
    args.extend(options);
    args.push(&program);
    let (code, out, err) = parts(&lab.hearth(&args));
    assert_eq!((code, &*err), (0, ""), "{args:?}");
    out.trim().to_string()
}

fn job(lab: &Lab, id: &str) -> Value {
    lab.json(&["job", id])
}

fn reaches(lab: &Lab, id: &str, state: &str) {
    let what = format!("job {id} is {state}");
    lab.eventually(&what, |lab| job(lab, id)["state"] == state);
}

fn output(lab: &Lab, id: &str) -> String {
    parts(&lab.hearth(&["output", id])).1
}

#[test]
fn a_signal_reaches_every_rank_by_name_and_number() {
    let lab = Lab::with_nodes(2);
    let id = running(&lab, &["-n", "2"], "on 10 out usr1\non 12 exit 0\nwait\n");
    for signal in ["USR1", "sigusr1", "10"] {
        let (code, out, err) = parts(&lab.hearth(&["signal", &id, signal]));
        assert_eq!((code, &*out, &*err), (0, "", ""), "{signal}");
    }
    lab.eventually("all have come", |lab| {
        output(lab, &id).matches("usr1").count() == 6
    });
    for node in &lab.nodes {
        let told = node.watch.take_told();
        let signals = told.iter().filter(|what| what.starts_with("signal"));
        assert_eq!(signals.count(), 3, "each once: {told:?}");
    }
    assert!(lab.has_event("job-signal", "SIGUSR1 (signal 10)"));
    assert_eq!(parts(&lab.hearth(&["signal", &id, "USR2"])).0, 0);
    reaches(&lab, &id, "completed");
    let (code, _, err) = parts(&lab.hearth(&["signal", &id, "USR1"]));
    assert_eq!(code, 125);
    assert!(err.contains("ended already"), "{err}");
}

#[test]
fn a_signal_without_a_handler_ends_the_job() {
    let lab = Lab::with_nodes(1);
    let id = running(&lab, &[], "wait\n");
    lab.hearth(&["signal", &id, "USR1"]);
    reaches(&lab, &id, "failed");
    let reason = job(&lab, &id)["reason"].to_string();
    assert!(reason.contains("SIGUSR1 (signal 10)"), "{reason}");
}

#[test]
fn what_cannot_be_signalled_is_refused_with_words() {
    let lab = Lab::with_nodes(1);
    running(&lab, &[], "wait\n");
    let waits = submit(&lab, &[], "exit 0\n");
    for (args, status, words) in [
        (["signal", &waits, "USR3"], 2, "a name as USR1 or SIGTERM"),
        (["signal", &waits, "65"], 2, "a number from 1 to 64"),
        (["signal", &waits, "USR1"], 125, "is pending"),
        (["signal", "999", "USR1"], 125, "there is no job 999"),
        (["signal", "x", "USR1"], 2, "`hearth history`"),
    ] {
        let (code, _, err) = parts(&lab.hearth(&args));
        assert_eq!(code, status, "{err}");
        assert!(err.contains(words), "{err}");
    }
    let path = format!("/v1/jobs/{waits}/signal");
    let (status, answer) = lab.post(&path, &json!({"signal": 65}));
    assert_eq!((status, &answer["code"]), (400, &json!("bad-request")));
    let (status, answer) = lab.post(&path, &json!({"signal": 10}));
    assert_eq!((status, &answer["code"]), (409, &json!("job-not-running")));
}

#[test]
fn a_cancelled_job_may_save_what_it_has() {
    let lab = Lab::with_nodes(1);
    let id = running(&lab, &[], "on 15 out saved\non 12 exit 3\nwait\n");
    assert_eq!(parts(&lab.hearth(&["cancel", "--grace", "1h", &id])).0, 0);
    lab.eventually("its handler ran", |lab| output(lab, &id) == "saved\n");
    assert_eq!(job(&lab, &id)["state"], "ending");
    // It ends by itself, with its own status, and is cancelled all the same.
    lab.hearth(&["signal", &id, "USR2"]);
    reaches(&lab, &id, "cancelled");
    let ended = job(&lab, &id);
    assert_eq!(ended["exit_status"], 3);
    assert!(ended["reason"].to_string().contains("cancelled"), "{ended}");
}

#[test]
fn a_job_that_does_not_end_is_killed_after_its_grace() {
    let lab = Lab::with_nodes(1);
    let id = running(&lab, &[], "on 15 nothing\nwait\n");
    let began = Instant::now();
    lab.hearth(&["cancel", "--grace", "1s", &id]);
    reaches(&lab, &id, "cancelled");
    assert!(began.elapsed() >= Duration::from_millis(900));
    assert_eq!(job(&lab, &id)["exit_status"], 137);
    // Who has no time does not wait for it.
    let id = running(&lab, &[], "on 15 nothing\nwait\n");
    lab.hearth(&["cancel", "--grace", "1h", &id]);
    reaches(&lab, &id, "ending");
    lab.hearth(&["cancel", "--now", &id]);
    reaches(&lab, &id, "cancelled");
    let (code, _, err) = parts(&lab.hearth(&["cancel", "--grace", "5", &id]));
    assert_eq!(code, 2);
    assert!(err.contains("write 10s, 2m or 1h"), "{err}");
}

#[test]
fn the_grace_of_the_configuration_holds_for_cancels_and_time_limits() {
    let mut lab = Lab::configured("[jobs]\ngrace_s = 1\n");
    lab.add_nodes(0..1);
    let script = "on 15 out asked\nwait\n";
    let id = running(&lab, &[], script);
    lab.hearth(&["cancel", &id]);
    reaches(&lab, &id, "cancelled");
    assert_eq!(job(&lab, &id)["exit_status"], 137);
    let id = running(&lab, &["-t", "1s"], script);
    reaches(&lab, &id, "time-limit");
    let ended = job(&lab, &id);
    assert_eq!(ended["exit_status"], 124);
    assert_eq!(ended["ranks"][0]["end"]["signal"], 9, "{ended}");
    assert_eq!(output(&lab, &id), "asked\n");
    let (code, _, err) = parts(&lab.run(&["-t", "1s"], "wait\n"));
    assert_eq!(code, 124);
    assert!(
        !err.contains("SIGTERM"),
        "no more than that it ended: {err}"
    );
}

#[test]
fn a_rank_gets_the_cores_it_asks_for_and_openmp_hears_of_them() {
    let mut lab = Lab::control();
    let identities = [(0, 2), (1, 8), (2, 4)].map(|(node, cores)| Identity {
        cores,
        ..lab.identity(node, 1)
    });
    lab.add(&identities);
    let nodes = lab.json(&["nodes"]);
    let cores = [0, 1, 2].map(|node| nodes[node]["cores"].as_u64().unwrap());
    assert_eq!(cores, [2, 8, 4]);
    let (_, table, _) = parts(&lab.hearth(&["nodes"]));
    assert!(table.lines().next().unwrap().contains("CORES"), "{table}");
    let threads = |options: &[&str]| {
        let (code, out, err) = parts(&lab.run(options, "rank 0 args\nrank 0 cores\n"));
        assert_eq!(code, 0, "{err}");
        let of = |begin: &str| {
            let line = out.lines().find_map(|line| line.strip_prefix(begin));
            line.unwrap().trim_end_matches(']').to_string()
        };
        (of("env [OMP_NUM_THREADS="), of("cores "))
    };
    let pair = |threads: &str, cores: &str| (threads.to_string(), cores.to_string());
    assert_eq!(threads(&["-n", "3"]), pair("2", "0"));
    assert_eq!(threads(&["-n", "2", "-c", "4"]), pair("4", "4"));
    assert_eq!(lab.last_job()["nodes"], "n[1-2]");
    assert_eq!(lab.last_job()["cores"], 4);
    assert_eq!(threads(&["--cpus-per-task=3", "-x", "n1"]), pair("3", "3"));
    assert_eq!(lab.last_job()["nodes"], "n2");
    let program = lab.program("p", "exit 0\n");
    let text = format!("#!/bin/sh\n#SBATCH -n 1 --cpus-per-task=8\n{program}\n");
    let script = lab.program("job.sh", &text);
    let args = ["submit", "--no-precheck", "--parsable", &script];
    let (code, out, err) = parts(&lab.hearth(&args));
    assert_eq!(code, 0, "{err}");
    let id = out.trim();
    reaches(&lab, id, "completed");
    assert_eq!(job(&lab, id)["nodes"], "n1");
    let (_, text, _) = parts(&lab.hearth(&["job", id]));
    assert!(text.contains("CPUs/Task=8"), "{text}");
    let given = ["-n", "3", "--env", "OMP_NUM_THREADS=7"];
    assert_eq!(threads(&given), pair("7", "0"));
    for (options, words) in [
        (
            &["-c", "9"][..],
            "no node has so many, and the job wants 1 such node; the largest, n1, has 8",
        ),
        (
            &["-n", "2", "-c", "5"],
            "1 node has so many, and the job wants 2 such nodes; the largest, n1, has 8",
        ),
        (&["--nodes", "n0,n2", "-c", "4"], "the largest, n2, has 4"),
        (&["-w", "n0", "-c", "3"], "3 cores of a node: "),
    ] {
        let (code, _, err) = parts(&lab.run(options, "exit 0\n"));
        assert_ne!(code, 0);
        assert!(err.contains(words), "{options:?}: {err}");
    }
    let (code, _, err) = parts(&lab.run(&["-c", "0"], "exit 0\n"));
    assert_eq!(code, 2, "{err}");
    // One that wants cores waits for nodes that have them.
    let blocker = lab.run_command(&["--nodes", "n1"], "pause\n").spawn();
    let blocker = blocker.unwrap();
    lab.eventually("n1 is busy", |lab| lab.idle_nodes() == 2);
    let waits = submit(&lab, &["-c", "8"], "exit 0\n");
    lab.eventually("it says for what it waits", |lab| {
        let reason = job(lab, &waits)["reason"].to_string();
        reason.contains("8 cores at least")
    });
    lab.nodes[1]
        .watch
        .go
        .store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(parts(&finish(blocker)).0, 0);
    reaches(&lab, &waits, "completed");
    assert_eq!(job(&lab, &waits)["nodes"], "n1");
}
