//! Jobs that nobody waits for: submitting, looking, holding, cancelling, draining, with the words
//! that the command line has for it.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;
use std::time::Instant;

use serde_json::Value;

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

fn state(lab: &Lab, id: &str) -> String {
    lab.json(&["job", id])["state"]
        .as_str()
        .unwrap()
        .to_string()
}

#[test]
fn the_last_of_a_jobs_output_can_be_had_alone() {
    let lab = Lab::with_nodes(1);
    let id = submit(&lab, &[], "out first\nout second\nexit 0\n");
    lab.hearth(&["output", "--follow", &id]);
    let path = format!("/v1/jobs/{id}/output?follow=false&last_bytes=8");
    let (head, body) = lab.fetch(&path);
    assert!(head.contains(" 200 "), "{head}");
    let frames: Vec<Value> = body
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let kinds: Vec<&str> = frames
        .iter()
        .map(|frame| frame["frame"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["notice", "output", "end"], "{body}");
    assert_eq!(frames[0]["text"], "6 bytes before this are left out");
    // "second\n" in base64.
    assert_eq!(frames[1]["data"], "c2Vjb25kCg==");
}

#[test]
fn a_job_runs_without_its_client_and_keeps_its_output() {
    let lab = Lab::with_nodes(2);
    let id = submit(
        &lab,
        &["-n", "2", "--name", "solve", "-t", "1:00"],
        "out hello\nrank 1 exit 3\n",
    );
    let (code, out, err) = parts(&lab.hearth(&["output", "--follow", &id]));
    assert_eq!((code, &*out), (3, "hello\nhello\n"));
    assert!(
        err.contains("failed: rank 1 on n1 exited with status 3"),
        "{err}"
    );
    // And again, as often as wanted.
    let (code, out, _) = parts(&lab.hearth(&["output", "--label", &id]));
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    assert_eq!((code, lines), (0, vec!["0: hello", "1: hello"]));
    let job = lab.json(&["job", &id]);
    assert_eq!(
        (job["state"].as_str(), job["name"].as_str()),
        (Some("failed"), Some("solve"))
    );
    assert_eq!(job["time_limit_s"], 60);
    assert_eq!(job["placement"]["hops"], 1);
    let placed = format!("job {id} placed on n[0-1], one leaf switch (optimal)");
    assert!(lab.has_event("job-placed", &placed));
    let (_, text, _) = parts(&lab.hearth(&["job", &id]));
    assert!(
        text.starts_with(&format!("JobId={id} JobName=solve\n")),
        "{text}"
    );
    assert!(
        text.contains("JobState=FAILED") && text.contains("ExitCode=3"),
        "{text}"
    );
    // What ran, and where from; the program keeps its name.
    let directory = std::env::current_dir().unwrap();
    assert_eq!(job["directory"].as_str(), directory.to_str());
    let program = job["command"].as_str().unwrap();
    assert!(text.contains(&format!("Command={program}\n")), "{text}");
    assert!(
        text.contains(&format!("WorkDir={}\n", directory.display())),
        "{text}"
    );
    let file = program.rsplit('/').next().unwrap();
    assert_eq!(job["program_file"], file);
    let programs = lab.json(&["programs"]);
    assert_eq!(programs[0]["name"], file, "{programs}");
    let (code, _, err) = parts(&lab.hearth(&["job", "999"]));
    assert_eq!(code, 125);
    assert!(err.contains("no job 999"), "{err}");
}

#[test]
fn the_queue_shows_who_waits_for_what() {
    let lab = Lab::with_nodes(2);
    let runs = submit(&lab, &["-n", "2"], "wait\n");
    lab.eventually("it runs", |lab| state(lab, &runs) == "running");
    let waits = submit(&lab, &["-n", "1", "--name", "second"], "exit 0\n");
    let held = submit(&lab, &["--hold"], "exit 0\n");
    let after = submit(&lab, &["--after-ok", &waits], "exit 0\n");
    let (_, text, _) = parts(&lab.hearth(&["queue"]));
    let line = |id: &str| {
        let of = |line: &&str| line.split_whitespace().next() == Some(id);
        text.lines()
            .find(of)
            .unwrap_or_else(|| panic!("{id} in {text}"))
            .to_string()
    };
    assert!(
        line(&runs).contains(" R ") && line(&runs).ends_with("n[0-1]"),
        "{text}"
    );
    assert!(
        line(&waits).contains(" PD ") && line(&waits).contains(" needed, 0 free"),
        "{text}"
    );
    for (id, why) in [
        (&waits, "(Resources: ".to_string()),
        (
            &held,
            format!("(JobHeldUser: held; `hearth release {held}` lets it start)"),
        ),
        (
            &after,
            format!("(Dependency: waits for the end of job {waits})"),
        ),
    ] {
        assert!(line(id).contains(&why), "{why} in\n{text}");
    }
    let pending = lab.json(&["queue", "--state", "PD"]);
    assert_eq!(pending.as_array().unwrap().len(), 3);
    let second = lab.json(&["queue", "--name", "second"]);
    assert_eq!(second[0]["id"].to_string(), waits);
    assert_eq!(
        lab.json(&["queue", "--user", "nobody-of-that-name"]),
        serde_json::json!([])
    );
    let (code, _, err) = parts(&lab.hearth(&["queue", "--state", "walking"]));
    assert_eq!(code, 2, "a value that makes no sense");
    assert!(err.contains("walking") && err.contains("pending"), "{err}");
    assert_eq!(lab.hearth(&["release", &held]).status.code(), Some(0));
    assert_eq!(lab.hearth(&["cancel", &runs]).status.code(), Some(0));
    for id in [&waits, &held, &after] {
        lab.eventually("all others ran", |lab| state(lab, id) == "completed");
    }
    assert_eq!(lab.json(&["queue"]), serde_json::json!([]));
    let mine = lab.json(&["history", "--me"]);
    assert_eq!(mine.as_array().unwrap().len(), 4, "{mine}");
    // A job that is over cannot be held, and the others are done all the same.
    let (code, _, err) = parts(&lab.hearth(&["hold", &waits, "998"]));
    assert_eq!(code, 125);
    assert!(err.contains(&waits) && err.contains("998"), "{err}");
    let last = submit(&lab, &["--hold"], "exit 0\n");
    let (code, out, _) = parts(&lab.hearth(&["release", "998", &last, "--json"]));
    assert_eq!(code, 1);
    let done: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        done["jobs"],
        serde_json::json!([last.parse::<u64>().unwrap()])
    );
    assert_eq!(done["refused"][0]["code"], "no-such-job", "{done}");
    lab.eventually("it ran", |lab| state(lab, &last) == "completed");
}

#[test]
fn jobs_are_held_prioritised_and_cancelled_by_name() {
    let lab = Lab::with_nodes(1);
    let runs = submit(&lab, &[], "wait\n");
    let first = submit(&lab, &["--name", "a"], "exit 0\n");
    let second = submit(&lab, &["--name", "b"], "exit 0\n");
    let order = |lab: &Lab| -> Vec<String> {
        let list = lab.json(&["queue", "--state", "pending"]);
        list.as_array()
            .unwrap()
            .iter()
            .map(|job| job["id"].to_string())
            .collect()
    };
    lab.eventually("the first has its node", |lab| {
        order(lab) == [first.clone(), second.clone()]
    });
    assert_eq!(
        lab.hearth(&["priority", "5", &second]).status.code(),
        Some(0)
    );
    assert_eq!(order(&lab), [second.clone(), first.clone()]);
    assert_eq!(lab.hearth(&["hold", &first]).status.code(), Some(0));
    assert_eq!(lab.json(&["job", &first])["held"], true);
    assert_eq!(
        lab.hearth(&["cancel", "--name", "a,b"]).status.code(),
        Some(0)
    );
    for id in [&first, &second] {
        assert_eq!(state(&lab, id), "cancelled");
    }
    assert_eq!(state(&lab, &runs), "running");
    let (code, _, err) = parts(&lab.hearth(&["cancel"]));
    assert_eq!(code, 2, "{err}");
    assert_eq!(
        lab.hearth(&["cancel", "--state", "R"]).status.code(),
        Some(0)
    );
    lab.eventually("it ended", |lab| state(lab, &runs) == "cancelled");
}

#[test]
fn a_script_is_submitted_from_a_file_and_from_standard_input() {
    let lab = Lab::with_nodes(2);
    let program = lab.program("app", "out from a script\nexit 0\n");
    let text = format!(
        "#!/usr/bin/env -S hearth submit\n#HEARTH -n 2 --no-precheck\n#HEARTH -J scripted\n{program} x 'y z'\n"
    );
    let script = lab.program("job.sh", &text);
    let (code, out, err) = parts(&lab.hearth(&["submit", "-n", "1", &script]));
    assert_eq!((code, &*err), (0, ""));
    let id = out.trim().rsplit(' ').next().unwrap();
    assert_eq!(out, format!("Submitted job {id}\n"));
    let job = lab.json(&["job", id]);
    assert_eq!(
        (job["ranks_total"].as_u64(), job["name"].as_str()),
        (Some(1), Some("scripted"))
    );
    let (code, out, _) = parts(&lab.hearth(&["output", "-f", id]));
    assert_eq!((code, &*out), (0, "from a script\n"));
    let mut child = lab
        .command(&["submit", "--json"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let (code, out, err) = parts(&finish(child));
    assert_eq!((code, &*err), (0, ""));
    let answer: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert!(answer["id"].is_u64(), "{out}");
    // What cannot be is refused with its line, as a command line that was not understood.
    let wrong = lab.program("wrong.sh", "#HEARTH -n 2\n./a | ./b\n");
    let (code, _, err) = parts(&lab.hearth(&["submit", &wrong]));
    assert_eq!(code, 2);
    assert!(
        err.contains("wrong.sh: line 2") && err.contains("shell"),
        "{err}"
    );
    let (code, _, err) = parts(&lab.hearth(&["submit", "/no/such/program"]));
    assert_eq!(code, 127);
    assert!(err.contains("/no/such/program"), "{err}");
    let real = lab.program("no-program", "hello\n");
    let (code, _, err) = parts(&lab.hearth(&["submit", &real]));
    assert_eq!(code, 126, "{err}");
}

#[test]
fn rank_0_reads_its_input_from_a_file() {
    let lab = Lab::with_nodes(1);
    let input = lab.program("input", "some input\n");
    let id = submit(&lab, &["--input", &input], "cat\nexit 0\n");
    let (code, out, _) = parts(&lab.hearth(&["output", "-f", &id]));
    assert_eq!((code, &*out), (0, "some input\n"));
}

#[test]
fn drained_nodes_get_no_jobs_and_the_tree_shows_it() {
    let lab = Lab::with_nodes(2);
    let (code, _, err) = parts(&lab.hearth(&["drain", "n1"]));
    assert_eq!(code, 2);
    assert!(err.contains("--reason"), "{err}");
    assert_eq!(
        lab.hearth(&["drain", "n1", "--reason", "fan"])
            .status
            .code(),
        Some(0)
    );
    let nodes = lab.json(&["nodes"]);
    assert_eq!(nodes[1]["drained"]["reason"], "fan");
    let (_, table, _) = parts(&lab.hearth(&["nodes"]));
    assert!(table.contains("drained"), "{table}");
    let (_, tree, _) = parts(&lab.hearth(&["nodes", "--tree"]));
    assert!(tree.contains("1 drained n1, 1 idle n0"), "{tree}");
    let id = submit(&lab, &["-n", "2"], "exit 0\n");
    let job = lab.json(&["job", &id]);
    assert_eq!(job["state"], "pending", "{job}");
    let (code, _, err) = parts(&lab.hearth(&["resume", "n0"]));
    assert_eq!(code, 125);
    assert!(err.contains("n0"), "{err}");
    let resumed = lab.json(&["resume", "n1"]);
    assert_eq!(resumed, serde_json::json!({ "nodes": "n1" }));
    lab.eventually("it ran", |lab| state(lab, &id) == "completed");
    let (code, _, err) = parts(&lab.hearth(&["drain", "n7", "--reason", "fan"]));
    assert_eq!(code, 125);
    assert!(err.contains("n7"), "{err}");
}

#[test]
fn the_tree_and_its_links_come_from_the_configuration() {
    let mut lab = Lab::configured("[serve]\ntree = \"2x2\"\nuplinks = [1]\n");
    lab.add_nodes(0..3);
    let (_, tree, _) = parts(&lab.hearth(&["nodes", "--tree"]));
    assert!(
        tree.ends_with("from the leaf switches up: 1 for 2\n"),
        "{tree}"
    );
    let tree = lab.json(&["nodes", "--tree"]);
    assert_eq!(tree["children"][1]["uplinks"], 1, "{tree}");
    assert_eq!(lab.get("/v1/status")["uplinks"], serde_json::json!([1]));
}

#[test]
fn a_sites_own_tree_is_read_and_its_empty_places_are_no_nodes() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("topology.conf");
    let path = file.to_str().unwrap();
    let tree = "SwitchName=a Nodes=n0\nSwitchName=b Nodes=n[2-3]\nSwitchName=c Switches=a,b\n";
    std::fs::write(&file, tree).unwrap();
    let mut lab = Lab::configured(&format!("[serve]\ntree = \"{path}\"\n"));
    lab.add_nodes(0..4);
    assert_eq!(lab.get("/v1/status")["tree"], serde_json::json!([2, 2]));
    assert!(lab.has_event("node-without-place", "n1 gets no jobs"));
    let pair = submit(&lab, &["-n", "2"], "exit 0\n");
    lab.eventually("it ran", |lab| state(lab, &pair) == "completed");
    let job = lab.json(&["job", &pair]);
    assert_eq!(job["placement"]["hops"], 1, "{job}");
    let plan = |more: &[&str]| {
        let line = [&["plan", "--tree", path, "-n", "3"], more].concat();
        parts(&lab.hearth(&line))
    };
    let (code, out, err) = plan(&[]);
    assert_eq!((code, out.contains("n[0,2-3]")), (0, true), "{out}{err}");
    let (code, _, err) = plan(&["--free", "n[0-3]"]);
    assert_eq!(
        (code, err.contains("n1 is on no switch")),
        (125, true),
        "{err}"
    );
    // A wrong word is named with its line.
    std::fs::write(&file, tree.replace("a,b", "a,bb")).unwrap();
    let (code, _, err) = plan(&[]);
    assert_eq!(
        (code, err.contains("line 3: `bb` is no switch")),
        (125, true),
        "{err}"
    );
}

#[test]
fn history_is_filtered_by_state_and_time() {
    let lab = Lab::with_nodes(1);
    let good = submit(&lab, &["--name", "good"], "exit 0\n");
    let bad = submit(&lab, &["--name", "bad"], "exit 9\n");
    lab.eventually("both are over", |lab| {
        state(lab, &bad) == "failed" && state(lab, &good) == "completed"
    });
    let ids = |args: &[&str]| -> Vec<String> {
        let mut all = vec!["history"];
        all.extend(args);
        let list = lab.json(&all);
        list.as_array()
            .unwrap()
            .iter()
            .map(|job| job["id"].to_string())
            .collect()
    };
    assert_eq!(ids(&[]), [good.clone(), bad.clone()]);
    assert_eq!(ids(&["--state", "F"]), std::slice::from_ref(&bad));
    assert_eq!(
        ids(&["--name", "good", "--since", "1h"]),
        std::slice::from_ref(&good)
    );
    assert_eq!(ids(&["--limit", "1"]), std::slice::from_ref(&bad));
    assert!(ids(&["--until", "2000-01-01"]).is_empty());
    assert!(ids(&["--since", "2999-01-01"]).is_empty());
    let (_, table, _) = parts(&lab.hearth(&["history"]));
    assert!(
        table.contains("COMPLETED") && table.contains("FAILED"),
        "{table}"
    );
    assert!(table.lines().all(|line| line.len() <= 110), "{table}");
    assert_eq!(
        lab.hearth(&["history", "--since", "soon"]).status.code(),
        Some(2)
    );
}

/// Jobs that wait at most by default (`jobs.queue_max`).
const MANY: usize = 10_000;

/// Hands in jobs of 3 to 26 nodes over one connection, as a script would.
fn submit_many(lab: &Lab, program: &str, count: usize) {
    let mut stream = std::os::unix::net::UnixStream::connect(lab.socket()).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap());
    for number in 0..count {
        let body = serde_json::json!({
            "name": "one-of-many", "program": program, "args": ["LmFwcA=="], "ranks": 3 + number % 24,
            "batch": true, "no_precheck": true, "time_limit_s": 600 + number % 60,
            "priority": number % 10,
        });
        let body = body.to_string();
        let length = body.len();
        let head = "POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json";
        write!(stream, "{head}\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
        let mut length = 0;
        loop {
            let mut line = String::new();
            answers.read_line(&mut line).unwrap();
            let line = line.trim().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            assert!(
                !line.starts_with("http/") || line.contains(" 200 "),
                "{line}"
            );
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.parse().unwrap();
            }
        }
        answers.read_exact(&mut vec![0; length]).unwrap();
    }
}

/// What `cargo xtask bench queue` runs: figures of a control node with a full queue, one JSON
/// object a line.
#[test]
#[ignore = "takes a minute; prints figures"]
fn ten_thousand_jobs_are_listed() {
    let mut lab = Lab::configured("[serve]\ntree = \"8x4\"\n");
    lab.add_nodes(0..32);
    let runs = submit(&lab, &["-n", "30", "-t", "1h"], "wait\n");
    lab.eventually("it runs", |lab| state(lab, &runs) == "running");
    let program = lab.json(&["job", &runs])["program"]
        .as_str()
        .unwrap()
        .to_string();
    let figure = |metric: &str, unit: &str, value: f64| {
        println!(
            "{}",
            serde_json::json!({ "metric": metric, "unit": unit, "value": value })
        );
    };
    let began = Instant::now();
    submit_many(&lab, &program, MANY);
    figure(
        "submit_each_ms",
        "ms",
        began.elapsed().as_secs_f64() * 1e3 / MANY as f64,
    );
    let mut listed = Vec::new();
    for _ in 0..9 {
        let began = Instant::now();
        let (code, text, _) = parts(&lab.hearth(&["queue"]));
        listed.push(began.elapsed().as_secs_f64() * 1e3);
        assert_eq!((code, text.lines().count()), (0, 1 + MANY + 1));
    }
    listed.sort_by(f64::total_cmp);
    figure("queue_command_median_ms", "ms", listed[4]);
    figure("queue_command_worst_ms", "ms", listed[8]);
    let all = lab.json(&["jobs", "--limit", "20000"]);
    assert_eq!(
        all.as_array().unwrap().len(),
        1 + MANY,
        "answers have a page each"
    );
    // Passes as when jobs end, and between them nothing.
    let counter = |lab: &Lab, name: &str| lab.get("/v1/status")["counters"][name].as_u64().unwrap();
    let mut passes = Vec::new();
    let some = (runs.parse::<u64>().unwrap() + 7).to_string();
    for _ in 0..10 {
        for command in ["hold", "release"] {
            let before = counter(&lab, "passes");
            assert_eq!(lab.hearth(&[command, &some]).status.code(), Some(0));
            lab.eventually("a pass has run", |lab| counter(lab, "passes") > before);
            passes.push(counter(&lab, "pass_last_us") as f64 / 1e3);
        }
    }
    passes.sort_by(f64::total_cmp);
    figure("pass_median_ms", "ms", passes[10]);
    figure("pass_worst_ms", "ms", passes[19]);
    figure(
        "pass_longest_ms",
        "ms",
        counter(&lab, "pass_longest_us") as f64 / 1e3,
    );
    figure("queued_jobs", "jobs", MANY as f64);
    assert_eq!(lab.get("/v1/status")["store"], serde_json::Value::Null);
}
