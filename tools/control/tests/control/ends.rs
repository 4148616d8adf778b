//! Every way a job ends, and what the user is told.

use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use crate::lab::{Lab, finish, parts, signal};

#[test]
fn the_exit_status_is_the_highest() {
    let lab = Lab::with_nodes(3);
    let output = lab.run(&["-n", "3"], "rank 0 exit 1\nrank 1 exit 42\n");
    let (code, out, err) = parts(&output);
    assert_eq!((code, &*out), (42, ""));
    // The fake nodes say of every program that it called fork.
    let id = lab.last_job()["id"].to_string();
    let why = "rank 1 on n1 exited with status 42; fork: a node runs one process: a program cannot start another";
    assert_eq!(err, format!("hearth: job {id} failed: {why}\n"));
    assert!(lab.has_event("job-ended", why));
    let output = lab.run(&["-n", "1"], "signal 6\n");
    let (code, _, err) = parts(&output);
    assert_eq!(code, 134);
    assert!(err.contains("SIGABRT"), "{err}");
    assert_eq!(lab.idle_nodes(), 3);
}

#[test]
fn a_fault_is_reported_at_the_terminal_and_in_the_events() {
    let lab = Lab::with_nodes(2);
    let script = "out before\nrank 1 fault SIGSEGV: no page at 0x10, rip 0x401000\nexit 0\n";
    let (code, out, err) = parts(&lab.run(&["-n", "2"], script));
    assert_eq!((code, &*out), (139, "before\nbefore\n"));
    assert!(
        err.contains("rank 1 on n1 was ended by SIGSEGV") && err.contains("rip 0x401000"),
        "{err}"
    );
    assert!(lab.has_event("program-fault", "rip 0x401000"));
    let id = lab.last_job()["id"].to_string();
    let (_, table, _) = parts(&lab.hearth(&["jobs", &id]));
    assert!(
        table.contains("HEARTBEAT") && table.contains("SIGSEGV"),
        "{table}"
    );
    assert!(table.contains("rip 0x401000"), "{table}");
    assert_eq!(lab.idle_nodes(), 2);
}

#[test]
fn a_job_that_a_node_refuses_says_why() {
    let lab = Lab::with_nodes(2);
    let (code, out, err) = parts(&lab.run(&["-n", "2"], "rank 1 refuse not an ELF file\nwait\n"));
    assert_eq!((code, &*out), (126, ""));
    assert!(err.contains("n1: not an ELF file"), "{err}");
    lab.eventually("both nodes are idle", |lab| lab.idle_nodes() == 2);
}

#[test]
fn files_that_are_no_programs_are_stopped_at_control() {
    let lab = Lab::with_nodes(1);
    let run = |path: &str| parts(&lab.hearth(&["run", path]));
    let (code, _, err) = run(&lab.program("script", "#!/bin/sh\necho hello\n"));
    assert_eq!(code, 126);
    assert!(err.contains("`hearth submit "), "{err}");
    let (code, _, err) = run(&lab.program("text", &"hello ".repeat(100)));
    assert_eq!(code, 126);
    assert!(err.to_lowercase().contains("not an elf"), "{err}");
    // This test itself is dynamically linked.
    let (code, _, err) = run(std::env::current_exe().unwrap().to_str().unwrap());
    assert_eq!(code, 126);
    assert!(err.contains("-static"), "{err}");
    let (code, _, err) = run("/no/such/program");
    assert_eq!(code, 127);
    assert!(err.contains("/no/such/program"), "{err}");
    assert_eq!(
        lab.json(&["jobs"]),
        serde_json::json!([]),
        "no node was bothered"
    );
}

#[test]
fn the_time_limit_has_a_status_of_its_own() {
    let lab = Lab::with_nodes(1);
    let (code, _, err) = parts(&lab.run(&["--time-limit", "1s"], "wait\n"));
    assert_eq!(code, 124);
    assert!(err.contains(" ended: time limit of 1 s reached"), "{err}");
    assert_eq!(lab.last_job()["state"], "time-limit");
    assert_eq!(lab.idle_nodes(), 1);
}

#[test]
fn a_job_is_cancelled_by_number() {
    let lab = Lab::with_nodes(1);
    let limit = ["--time-limit", "20s"];
    let mut child = lab
        .run_command(&limit, "out started\nwait\n")
        .spawn()
        .unwrap();
    // When its line is here the program runs; should it not come, the limit ends the wait.
    let mut line = String::new();
    let out = child.stdout.as_mut().expect("piped");
    BufReader::new(out).read_line(&mut line).unwrap();
    assert_eq!(line, "started\n");
    let id = lab.last_job()["id"].to_string();
    assert_eq!(parts(&lab.hearth(&["cancel", &id])).0, 0);
    let (code, out, err) = parts(&finish(child));
    assert_eq!((code, &*out), (143, ""));
    assert!(err.contains("cancelled"), "{err}");
    let (code, _, err) = parts(&lab.hearth(&["cancel", &id]));
    assert_eq!(code, 125);
    assert!(err.contains("ended already"), "{err}");
    let (code, _, err) = parts(&lab.hearth(&["cancel", "999999"]));
    assert_eq!(code, 125);
    assert!(err.contains("999999"), "{err}");
}

#[test]
fn an_interrupt_ends_the_job() {
    let lab = Lab::with_nodes(2);
    let child = lab.run_command(&["-n", "2"], "wait\n").spawn().unwrap();
    lab.eventually("the job runs", |lab| lab.last_job()["state"] == "running");
    signal(&child, "INT");
    let (code, _, err) = parts(&finish(child));
    assert_eq!(code, 130);
    assert!(err.contains("interrupted"), "{err}");
    assert_eq!(lab.last_job()["state"], "cancelled");
    assert_eq!(lab.idle_nodes(), 2);
}

#[test]
fn a_second_interrupt_leaves_at_once() {
    let mut lab = Lab::with_nodes(1);
    let child = lab.run_command(&[], "wait\n").spawn().unwrap();
    lab.eventually("the job runs", |lab| lab.last_job()["state"] == "running");
    // A node that is gone cannot end its rank, so the first interrupt alone waits.
    lab.nodes[0].stop();
    signal(&child, "INT");
    std::thread::sleep(Duration::from_millis(300));
    signal(&child, "INT");
    let began = Instant::now();
    let (code, _, err) = parts(&finish(child));
    assert_eq!(code, 130);
    assert!(err.contains("leaving"), "{err}");
    assert!(began.elapsed() < Duration::from_secs(3));
}

#[test]
fn a_client_that_dies_ends_its_job() {
    let lab = Lab::with_nodes(1);
    let mut child = lab.run_command(&[], "wait\n").spawn().unwrap();
    lab.eventually("the job runs", |lab| lab.last_job()["state"] == "running");
    child.kill().unwrap();
    child.wait().unwrap();
    lab.eventually("the node is idle again", |lab| lab.idle_nodes() == 1);
    let job = lab.last_job();
    assert_eq!(job["state"], "cancelled");
    assert!(job["reason"].as_str().unwrap().contains("client"), "{job}");
}

#[test]
fn a_lost_node_ends_its_job_and_is_named() {
    let mut lab = Lab::with_nodes(2);
    let child = lab.run_command(&["-n", "2"], "wait\n").spawn().unwrap();
    lab.eventually("the job runs", |lab| lab.last_job()["state"] == "running");
    lab.nodes[1].stop();
    let (code, _, err) = parts(&finish(child));
    assert_eq!(code, 123);
    assert!(err.contains("n1 was lost"), "{err}");
    assert!(lab.has_event("node-lost", "n1"));
    lab.eventually("the other node is idle", |lab| lab.idle_nodes() == 1);
    assert_eq!(lab.json(&["nodes", "n1"])[0]["state"], "lost");
}

#[test]
fn the_report_is_a_table_and_json() {
    let lab = Lab::with_nodes(2);
    let file = lab.path("report.json");
    let flag = format!("--report={}", file.display());
    let (code, out, err) = parts(&lab.run(&["-n", "2", &flag], "out hello\n"));
    assert_eq!((code, &*out), (0, "hello\nhello\n"));
    assert!(err.contains("RANK") && err.contains("1xfork"), "{err}");
    assert!(err.contains("interrupts: 4 heartbeat"), "{err}");
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    for rank in 0..2 {
        let entry = &report["ranks"][rank];
        assert_eq!(entry["rank"], rank);
        assert_eq!(entry["node"], format!("n{rank}"));
        assert_eq!(entry["pages"]["asked"], 3);
        assert_eq!(entry["interrupts"]["heartbeat"], 2);
        assert_eq!(entry["output_bytes"], 6);
        assert_eq!(entry["end"]["exited"], 0);
    }
}

#[test]
fn output_that_cannot_be_written_is_an_error_with_words() {
    let lab = Lab::with_nodes(1);
    for words in [&["nodes"][..], &["nodes", "--json"], &["--help"]] {
        let full = std::fs::File::options().write(true).open("/dev/full");
        let mut command = lab.command(words);
        command.stdout(full.unwrap());
        let (code, _, err) = parts(&finish(command.spawn().unwrap()));
        assert_eq!(code, 125, "{words:?}: {err}");
        assert!(
            err.contains("cannot write to standard output: No space left"),
            "{words:?}: {err}"
        );
    }
}

#[test]
fn wrong_command_lines_are_explained() {
    let lab = Lab::with_nodes(1);
    let program = lab.program("p", "out x\n");
    for (args, word) in [
        (vec!["run", "--frobnicate"], "no option --frobnicate"),
        (vec!["run", "--env", "NOVALUE", &program], "NAME=VALUE"),
        (
            vec!["run", "--env", "HEARTH_RANK=9", &program],
            "HEARTH_RANK",
        ),
        (vec!["run", "--core=1KiB", &program], "16KiB"),
        (vec!["run", "-n", "99999999999", &program], "smaller"),
        (vec!["priority", "x", "3"], "higher ones go first"),
        (vec!["token", "revoke", "x"], "hearth token list"),
        (vec!["up", "--nodes", "0"], "not in 1.."),
    ] {
        let (code, _, err) = parts(&lab.hearth(&args));
        assert_eq!(code, 2, "{err}");
        assert!(err.contains(word), "{err}");
    }
    let (code, _, err) = parts(&lab.run(&["--nodes", "n0,n0"], "out x\n"));
    assert_eq!(code, 2);
    assert!(err.contains("n0 is named twice"), "{err}");
}

#[test]
fn with_json_a_failure_is_an_object_in_the_last_line() {
    let lab = Lab::with_nodes(1);
    let program = lab.program("p", "out x\n");
    for (args, status, code, words) in [
        (&["nodes", "n7", "--json"][..], 125, "failed", "no node n7"),
        (
            &["run", "--json", &program],
            126,
            "bad-program",
            "not an ELF",
        ),
        (
            &["run", "--json", "/no/such/program"],
            127,
            "no-such-program",
            "cannot run",
        ),
        (
            &["submit", "--json", "/no/such/program"],
            127,
            "no-such-program",
            "cannot submit",
        ),
        (
            &["node", "leave", "n7", "--json"],
            125,
            "failed",
            "no node n7",
        ),
        (
            &["casts", "cancel", "99", "--json"],
            125,
            "no-such-cast",
            "no cast 99",
        ),
        (
            &["queue", "--frobnicate", "--json"],
            2,
            "usage",
            "--frobnicate",
        ),
    ] {
        let (exit, _, err) = parts(&lab.hearth(args));
        let last = err.lines().last().unwrap_or_default();
        let said: serde_json::Value = serde_json::from_str(last).expect(&err);
        assert_eq!((exit, &said["status"]), (status, &status.into()), "{err}");
        assert_eq!(said["code"], code, "{err}");
        assert!(said["error"].as_str().unwrap().contains(words), "{err}");
    }
}

#[test]
fn a_job_that_waits_for_a_lost_node_says_so() {
    let mut lab = Lab::with_nodes(2);
    lab.nodes[1].stop();
    lab.eventually("n1 is lost", |lab| {
        lab.json(&["nodes", "n1"])[0]["state"] == "lost"
    });
    let child = lab.run_command(&["-n", "2"], "out x\n").spawn().unwrap();
    lab.eventually("the job waits", |lab| lab.last_job()["state"] == "pending");
    lab.hearth(&["cancel", &lab.last_job()["id"].to_string()]);
    let (code, _, err) = parts(&finish(child));
    assert_eq!(code, 130);
    assert!(
        err.contains("waiting: 2 nodes needed, 1 in service; n1 is lost")
            && err.contains("`hearth node reset n1`"),
        "{err}"
    );
}
