//! What lies in the state directory: who may read it, how much of it there may be, and a disk that
//! is full.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::Ordering;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::lab::{Lab, finish, parts};

/// Every file and folder below `path` but those that the lab itself has made, with their rights.
fn rights(path: &Path, found: &mut Vec<(String, bool, u32)>) {
    for entry in std::fs::read_dir(path).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        if name == "config.toml" || name == "log" || name.starts_with("program-") {
            continue;
        }
        let data = entry.metadata().unwrap();
        let mode = data.permissions().mode() & 0o777;
        found.push((name, data.is_dir(), mode));
        if data.is_dir() {
            rights(&entry.path(), found);
        }
    }
}

#[test]
fn state_is_its_owners_alone_whatever_the_umask() {
    for umask in ["umask 0", "umask 077", "umask 777"] {
        let mut lab = Lab::started_by(&format!("{umask}; exec"), "");
        lab.add_nodes(0..1);
        assert_eq!(parts(&lab.run(&[], "out x\n")).1, "x\n");
        let program = lab.program("program-batch", "out y\n");
        let submitted = lab.hearth(&["submit", "--no-precheck", &program]);
        assert!(submitted.status.success());
        lab.eventually("it has written", |lab| lab.path("output/2.out").exists());
        lab.eventually("the day has a file", |lab| {
            std::fs::read_dir(lab.path("monitor")).is_ok_and(|mut files| files.next().is_some())
        });
        let mut found = Vec::new();
        rights(&lab.path(""), &mut found);
        let names: Vec<&str> = found.iter().map(|(name, ..)| name.as_str()).collect();
        for name in [
            "hearth.db",
            "hearth.db-wal",
            "secret",
            "token",
            "events.jsonl",
        ] {
            assert!(names.contains(&name), "{names:?}");
        }
        for (name, is_folder, mode) in found {
            let wanted = if is_folder { 0o700 } else { 0o600 };
            assert_eq!(mode, wanted, "{name} after `{umask}`");
        }
    }
}

/// A state directory of an earlier version, which others could read.
#[test]
fn rights_of_others_are_taken_at_the_next_start() {
    let mut lab = Lab::control();
    lab.stop_control(false);
    let set = |name: &str, mode| {
        let rights = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(lab.path(name), rights).unwrap();
    };
    for name in ["hearth.db", "events.jsonl"] {
        set(name, 0o644);
    }
    for name in ["monitor", "output", "programs", "run"] {
        set(name, 0o755);
    }
    lab.start_control();
    let mut found = Vec::new();
    rights(&lab.path(""), &mut found);
    assert!(
        found.iter().all(|(.., mode)| mode & 0o077 == 0),
        "{found:?}"
    );
}

/// Takes all that is left of the lab's disk, until the store cannot be written any more.
fn fill(lab: &Lab) {
    let mut filler = std::fs::File::create(lab.path("filler")).unwrap();
    for piece in [65_536, 4_096, 1] {
        while filler.write_all(&vec![1; piece]).is_ok() {}
    }
    let mut drained = false;
    lab.eventually("the store cannot be written", |lab| {
        // Something to write, until what SQLite had in reserve is used up.
        drained = !drained;
        let what = if drained { "drain" } else { "resume" };
        drop(lab.hearth(&["node", what, "n1"]));
        while filler.write_all(&[1]).is_ok() {}
        !lab.get("/v1/status")["store"].is_null()
    });
}

/// A program that writes more than one page of a file, and all that it writes.
fn long_job(lab: &Lab) -> (String, String) {
    let line = "x".repeat(900);
    let script = format!("out {line}\n").repeat(10);
    let program = lab.program("program-batch", &format!("out begun\npause\n{script}"));
    let written = format!("{line}\n").repeat(10);
    (program, format!("begun\n{written}"))
}

fn let_go_on(lab: &Lab) {
    for node in &lab.nodes {
        node.watch.go.store(true, Ordering::Relaxed);
    }
}

/// The end of a job is told when it is written down, and not before: a control node that is killed
/// in between asks the nodes for it once more. What programs write is kept as well, however full
/// the disk is.
#[test]
fn on_a_full_disk_no_end_of_a_job_and_no_output_is_lost_by_a_kill() {
    let mut lab = Lab::on_small_disk(6 << 20, "");
    lab.add_nodes(0..3);
    let mut client = lab.run_command(&[], "out begun\npause\nexit 3\n");
    let mut client = client.spawn().unwrap();
    lab.eventually("the first runs", |lab| lab.last_job()["state"] == "running");
    let (program, written) = long_job(&lab);
    assert!(
        lab.hearth(&["submit", "--no-precheck", &program])
            .status
            .success()
    );
    lab.eventually("both run", |lab| {
        let jobs = lab.json(&["jobs"]);
        let jobs = jobs.as_array().unwrap();
        jobs.len() == 2 && jobs.iter().all(|job| job["state"] == "running")
    });
    lab.eventually("it has written", |lab| lab.path("output/2.out").exists());
    fill(&lab);
    let_go_on(&lab);
    lab.eventually("one has ended, which is not written down", |lab| {
        lab.json(&["jobs", "--all"])[0]["unwritten"] == true
    });
    lab.eventually("the other's output waits", |lab| {
        lab.has_event("output-waits", "No space left")
    });
    assert!(
        client.try_wait().unwrap().is_none(),
        "its client is not told"
    );
    lab.stop_control(true);
    std::fs::remove_file(lab.path("filler")).unwrap();
    lab.start_control();
    let (code, out, err) = parts(&finish(client));
    assert_eq!((code, out.as_str()), (3, "begun\n"), "{err}");
    assert!(
        err.contains("you are told how when that is written"),
        "{err}"
    );
    let (code, out, _) = parts(&lab.hearth(&["output", "2", "--follow"]));
    assert_eq!(code, 0);
    assert_eq!(out, written);
    let jobs = lab.json(&["jobs", "--all"]);
    assert_eq!(jobs[0]["state"], "failed", "{jobs}");
    assert_eq!(jobs[1]["state"], "completed", "{jobs}");
    assert_eq!(jobs[1]["output"]["dropped_bytes"], 0, "{jobs}");
    assert!(jobs[0]["unwritten"].is_null(), "{jobs}");
}

/// Without a kill: what waited goes on as soon as there is room.
#[test]
fn a_full_disk_that_is_emptied_costs_nothing() {
    let mut lab = Lab::on_small_disk(6 << 20, "");
    lab.add_nodes(0..2);
    let (program, written) = long_job(&lab);
    assert!(
        lab.hearth(&["submit", "--no-precheck", &program])
            .status
            .success()
    );
    lab.eventually("it has written", |lab| lab.path("output/1.out").exists());
    fill(&lab);
    let_go_on(&lab);
    lab.eventually("its output waits", |lab| {
        lab.has_event("output-waits", "No space left")
    });
    std::fs::remove_file(lab.path("filler")).unwrap();
    let (code, out, _) = parts(&lab.hearth(&["output", "1", "--follow"]));
    assert_eq!((code, out), (0, written));
    assert!(lab.has_event("store-works", "nothing was lost"));
    assert_eq!(lab.last_job()["output"]["dropped_bytes"], 0);
}

/// Nodes are heard again within seconds after a restart of control: a cast waits for that.
#[test]
fn a_cast_right_after_a_restart_waits_for_awaited_nodes() {
    let mut lab = Lab::with_nodes(2);
    let file = lab.program("program-data", "some bytes");
    let deaf = |lab: &Lab, deaf| {
        for node in &lab.nodes {
            node.watch.deaf.store(deaf, Ordering::Relaxed);
        }
    };
    lab.stop_control(true);
    deaf(&lab, true);
    lab.start_control();
    assert_eq!(lab.json(&["nodes"])[0]["state"], "awaited");
    let cast = lab.command(&["cast", &file, "--json"]).spawn().unwrap();
    lab.eventually("it has come to the cast", |lab| {
        lab.path("programs").read_dir().unwrap().count() > 0
    });
    assert_eq!(lab.json(&["nodes"])[0]["state"], "awaited");
    deaf(&lab, false);
    let (code, out, err) = parts(&finish(cast));
    assert_eq!(code, 0, "{out}{err}");
    let said: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(said["nodes"], "n[0-1]", "{said}");
}

/// Files of jobs that wait are open, where the system lets control raise its limit; those that
/// nobody uses are not, where it does not.
#[test]
fn control_starts_again_with_more_small_files_than_the_usual_limit_of_open_ones() {
    for (limit, with_jobs) in [("ulimit -Sn 1024", true), ("ulimit -n 1024", false)] {
        let mut lab = Lab::started_by(&format!("{limit}; exec"), "");
        let files = (0..1_500).map(|number| lab.put(&format!("file {number}")));
        let files: Vec<String> = files.collect();
        let program = lab.put("cat\n");
        // A job has 64 at most.
        let shares: Vec<&[String]> = files.chunks(64).filter(|_| with_jobs).collect();
        for share in &shares {
            let file = |object: &String| json!({ "name": &object[..8], "object": object });
            let job = json!({
                "name": "many-files", "program": program, "args": [STANDARD.encode("cat")],
                "ranks": 1, "batch": true, "hold": true, "wait": true, "no_precheck": true,
                "with": share.iter().map(file).collect::<Vec<_>>(),
            });
            let (status, answer) = lab.post("/v1/jobs", &job);
            assert_eq!(status, 200, "{answer}");
        }
        lab.stop_control(true);
        lab.start_control();
        lab.add_nodes(0..1);
        let (code, out, err) = parts(&lab.run(&[], "out x\n"));
        assert_eq!((code, &*out), (0, "x\n"), "after `{limit}`: {err}");
        let queue = lab.json(&["queue"]);
        assert_eq!(queue.as_array().unwrap().len(), shares.len());
        lab.stop_control(false);
    }
}
