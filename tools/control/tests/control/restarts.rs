//! What is kept over restarts, and what happens when it cannot be.

use std::io::{BufRead, BufReader};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::lab::{Lab, finish, parts};

/// Numbers of a list of jobs.
fn ids(jobs: &Value) -> Vec<u64> {
    let jobs = jobs.as_array().unwrap().iter();
    jobs.map(|job| job["id"].as_u64().unwrap()).collect()
}

fn store(lab: &Lab) -> rusqlite::Connection {
    rusqlite::Connection::open(lab.path("hearth.db")).unwrap()
}

#[test]
fn jobs_events_and_programs_are_known_after_a_restart() {
    // So little in memory that the rest must come from the store.
    let mut lab = Lab::configured("[jobs]\nhistory_max = 1\n[events]\nring_max = 4\n");
    lab.add_nodes(0..2);
    for status in 0..3 {
        let (code, _, err) = parts(&lab.run(&["-n", "2"], &format!("exit {status}\n")));
        assert_eq!(code, status, "{err}");
    }
    let before = lab.json(&["jobs"]);
    assert_eq!(ids(&before), [1, 2, 3]);
    for crash in [false, true] {
        lab.stop_control(crash);
        lab.start_control();
        let after = lab.json(&["jobs", "--all"]);
        assert_eq!(after, before);
        assert_eq!(after[1]["ranks"][1]["end"], json!({ "exited": 1 }));
    }
    lab.eventually("the nodes are back", |lab| lab.idle_nodes() == 2);
    let (code, table, _) = parts(&lab.hearth(&["jobs", "1"]));
    assert_eq!(code, 0);
    assert!(
        table.contains("completed") && table.contains("HEARTBEAT"),
        "{table}"
    );
    assert_eq!(ids(&lab.json(&["jobs", "--limit", "2"])), [2, 3]);
    assert_eq!(
        ids(&lab.json(&["jobs", "--limit", "1", "--before", "3"])),
        [2]
    );
    let (code, _, err) = parts(&lab.hearth(&["jobs", "77"]));
    assert_eq!(code, 125);
    assert!(err.contains("no job 77"), "{err}");
    let programs = lab.json(&["programs"]);
    assert_eq!(programs.as_array().unwrap().len(), 3, "{programs}");
    assert_eq!(parts(&lab.run(&[], "out next\n")).1, "next\n");
    assert_eq!(lab.last_job()["id"], 4);

    let newest = lab.json(&["events"]);
    assert_eq!(newest.as_array().unwrap().len(), 4);
    let all = lab.json(&["events", "--all"]);
    let seqs: Vec<u64> = all
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["seq"].as_u64().unwrap())
        .collect();
    assert!(seqs.len() > 10, "{seqs:?}");
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
    let kinds = |kind: &str| {
        let events = all.as_array().unwrap().iter();
        events.filter(|event| event["kind"] == kind).count()
    };
    assert_eq!((kinds("control-started"), kinds("control-stopped")), (3, 1));
    let some = lab.json(&["events", "--after", "2"]);
    assert_eq!(some[0]["seq"], 3, "a reader that was away misses nothing");
}

#[test]
fn who_follows_events_does_so_over_a_restart() {
    let mut lab = Lab::control();
    let mut child = lab
        .command(&["events", "--follow", "--json"])
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (sender, received) = mpsc::channel();
    std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|l| sender.send(l)));
    let started = || {
        let line = std::iter::from_fn(|| received.recv_timeout(Duration::from_secs(60)).ok())
            .find(|line| line.contains("control-started"));
        line.expect("the start is told")
    };
    let first = started();
    lab.stop_control(true);
    lab.start_control();
    assert_ne!(started(), first);
    // Nobody starts it again here, and the follower says so once and ends.
    lab.stop_control(false);
    let (code, _, err) = parts(&finish(child));
    assert_eq!(code, 125);
    assert_eq!(err.lines().count(), 1, "{err}");
    assert!(err.contains("has ended and is not back"), "{err}");
}

#[test]
fn numbers_in_files_of_an_earlier_version_go_on() {
    let mut lab = Lab::control();
    lab.stop_control(false);
    for name in ["hearth.db", "hearth.db-wal", "hearth.db-shm"] {
        drop(std::fs::remove_file(lab.path(name)));
    }
    let nodes = json!([{ "mac": "52:54:00:07:00:05", "node": 5 }]);
    std::fs::write(lab.path("nodes.json"), nodes.to_string()).unwrap();
    std::fs::write(lab.path("next-job"), "41\n").unwrap();
    lab.start_control();
    assert!(lab.has_event("store-imported", "1 node"));
    // It was there before, and nobody knows yet whether it is.
    assert_eq!(lab.json(&["nodes"])[0]["state"], "awaited");
    lab.eventually("the picture says the same", |lab| {
        let top = lab.json(&["top"]);
        top["nodes"][0]["health"] == "awaited" && top["healths"]["awaited"] == 1
    });
    let (code, out, err) = parts(&lab.hearth(&["top", "--once"]));
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(
        out.contains("1 awaited") && !out.contains("absent"),
        "{out}"
    );
    let identity = lab.identity(5, 1);
    lab.nodes
        .push(crate::fake_node::FakeNode::start(identity, lab.address));
    lab.eventually("it joins", |lab| lab.idle_nodes() == 1);
    assert_eq!(parts(&lab.run(&[], "out on\n")).1, "on\n");
    assert_eq!(lab.last_job()["id"], 41);
}

#[test]
fn a_damaged_store_is_set_aside_and_control_serves() {
    let mut lab = Lab::with_nodes(1);
    lab.run(&[], "out x\n");
    lab.stop_control(false);
    // Without its log, which has the newest pages, sound ones.
    drop(std::fs::remove_file(lab.path("hearth.db-wal")));
    std::fs::write(lab.path("hearth.db"), b"not a database".repeat(1000)).unwrap();
    lab.start_control();
    assert!(lab.has_event("store-damaged", "hearth.db.damaged"));
    assert_eq!(lab.json(&["jobs"]), json!([]));
    lab.eventually("the node is back", |lab| lab.idle_nodes() == 1);
    let (code, out, err) = parts(&lab.run(&[], "out again\n"));
    assert_eq!((code, out.as_str()), (0, "again\n"), "{err}");
}

#[test]
fn a_store_of_a_newer_version_is_not_touched() {
    let mut lab = Lab::control();
    lab.stop_control(false);
    store(&lab).pragma_update(None, "user_version", 99).unwrap();
    let args = [
        "serve",
        "--no-boot",
        "--address",
        "127.0.0.1/8",
        "--http",
        "none",
    ];
    let (code, _, err) = parts(&lab.hearth(&args));
    assert_ne!(code, 0);
    assert!(
        err.contains("newer hearth") && err.contains("schema 99"),
        "{err}"
    );
    let version: u32 = store(&lab)
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .unwrap();
    assert_eq!(version, 99);
}

/// The step in which the store fails first: what it decided has not left the control node, so that
/// after a kill nothing runs for a second time.
#[test]
fn a_start_that_cannot_be_written_down_is_not_sent() {
    let mut lab = Lab::with_nodes(2);
    let deaf = |lab: &Lab, deaf| {
        let watch = &lab.nodes[1].watch;
        watch.deaf.store(deaf, std::sync::atomic::Ordering::Relaxed);
    };
    deaf(&lab, true);
    let running = lab.run_command(&["-n", "2"], "out begun\n").spawn();
    let running = running.unwrap();
    lab.eventually("it is launched", |lab| {
        lab.last_job()["state"] == "starting"
    });
    let locked = store(&lab);
    locked.execute_batch("BEGIN IMMEDIATE").unwrap();
    deaf(&lab, false);
    let waits = |lab: &Lab| {
        let job = lab.last_job();
        let reason = job["reason"].as_str().unwrap_or_default();
        job["state"] == "starting" && reason.contains("write its store")
    };
    lab.eventually("all ranks are ready and wait", waits);
    assert!(lab.has_event("store-failed", "end the other program"));
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    assert!(waits(&lab), "none was told to start");
    // What the store knows is that it was about to start: it begins again, once.
    lab.stop_control(true);
    locked.execute_batch("COMMIT").unwrap();
    lab.start_control();
    let (code, out, err) = parts(&finish(running));
    assert_eq!((code, &*out), (0, "begun\nbegun\n"), "{err}");
    assert_eq!(lab.last_job()["restarts"], 1);
}

/// As a full disk, but for the words: nothing can be written while another process holds the lock.
#[test]
fn no_job_starts_while_the_store_cannot_be_written_and_those_that_run_go_on() {
    let mut lab = Lab::with_nodes(2);
    let mut running = lab.run_command(&[], "out begun\npause\nout ended\n");
    let mut running = running.spawn().unwrap();
    lab.eventually("it runs", |lab| lab.last_job()["state"] == "running");
    let locked = store(&lab);
    locked.execute_batch("BEGIN IMMEDIATE").unwrap();
    // One with a client waits for as long as its client does.
    let waiting = lab.run_command(&[], "out waited\n").spawn().unwrap();
    lab.eventually("it is told why it waits", |lab| {
        let job = lab.last_job();
        let reason = job["reason"].as_str().unwrap_or_default().to_string();
        job["state"] == "pending" && reason.contains("cannot write its store")
    });
    assert!(lab.has_event("store-failed", "end the other program"));
    // One without is not taken: nobody could rely on that.
    let program = lab.program("batch", "exit 0\n");
    let (code, _, err) = parts(&lab.hearth(&["submit", "--no-precheck", &program]));
    assert_eq!(code, 125, "{err}");
    assert!(
        err.contains("cannot write it down") && err.contains("submit it again"),
        "{err}"
    );
    for node in &lab.nodes {
        node.watch
            .go
            .store(true, std::sync::atomic::Ordering::Relaxed);
    }
    lab.eventually("it has ended, which is not written down", |lab| {
        lab.json(&["jobs", "--all"])[0]["unwritten"] == true
    });
    assert!(running.try_wait().unwrap().is_none(), "nor told");
    assert_eq!(lab.idle_nodes(), 2, "no node was lost over it");
    let status = lab.get("/v1/status");
    let trouble = status["store"].as_str().unwrap();
    assert!(trouble.contains("kept in memory"), "{trouble}");
    assert!(status["counters"]["changes_unwritten"].as_u64().unwrap() > 0);
    locked.execute_batch("COMMIT").unwrap();
    assert_eq!(parts(&finish(running)).1, "begun\nended\n");
    assert_eq!(parts(&finish(waiting)).1, "waited\n");
    assert!(lab.has_event("store-works", "nothing was lost"));
    let before = lab.json(&["jobs", "--all"]);
    lab.stop_control(true);
    lab.start_control();
    assert_eq!(lab.json(&["jobs", "--all"]), before);
    assert!(lab.get("/v1/status")["store"].is_null());
}
