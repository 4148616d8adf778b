//! What users of Slurm write: its options, job scripts, arrays, files for output, nodes that must
//! and must not be among a job's.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::lab::{Lab, finish, parts, signal};

/// Submits a program for fake nodes; gives the jobs' numbers.
fn submit(lab: &Lab, options: &[&str], script: &str) -> Vec<String> {
    let program = lab.program("program", script);
    let mut args = vec!["submit", "--no-precheck", "--parsable"];
    args.extend(options);
    args.push(&program);
    let (code, out, err) = parts(&lab.hearth(&args));
    assert_eq!((code, &*err), (0, ""), "{args:?}");
    out.lines().map(str::to_string).collect()
}

/// A submission that is refused: its status and words.
fn refused(lab: &Lab, options: &[&str]) -> (i32, String) {
    let program = lab.program("program", "exit 0\n");
    let mut args = vec!["submit", "--no-precheck"];
    args.extend(options);
    args.push(&program);
    let (code, out, err) = parts(&lab.hearth(&args));
    assert_eq!(out, "");
    (code, err)
}

fn job(lab: &Lab, id: &str) -> Value {
    lab.json(&["job", id])
}

fn reaches(lab: &Lab, id: &str, state: &str) {
    let what = format!("job {id} is {state}");
    lab.eventually(&what, |lab| job(lab, id)["state"] == state);
}

fn read(lab: &Lab, name: &str) -> String {
    std::fs::read_to_string(lab.path(name)).unwrap_or_default()
}

#[test]
fn run_writes_files_instead_of_the_terminal() {
    let lab = Lab::with_nodes(2);
    let at = |name: &str| lab.path(name).display().to_string();
    let script = "out hello\nerr oh\nrank 1 exit 3\n";
    let (code, out, err) = parts(&lab.run(&["-n", "2", "-o", &at("o-%j")], script));
    assert_eq!((code, &*out), (3, ""));
    assert!(!err.contains("oh"), "{err}");
    let id = lab.last_job()["id"].to_string();
    let mut lines: Vec<String> = read(&lab, &format!("o-{id}"))
        .lines()
        .map(str::to_string)
        .collect();
    lines.sort_unstable();
    assert_eq!(lines, ["hello", "hello", "oh", "oh"]);
    // A file a rank, and standard error apart.
    let dir = lab.path("").display().to_string();
    let options = ["-n", "2", "-D", &dir, "-o", "r.%n", "-e", "e"];
    let (code, out, _) = parts(&lab.run(&options, script));
    assert_eq!((code, &*out), (3, ""));
    assert_eq!(
        (read(&lab, "r.0"), read(&lab, "r.1")),
        ("hello\n".into(), "hello\n".into())
    );
    assert_eq!(read(&lab, "e"), "oh\noh\n");
    // What cannot be written is told before the job is handed in.
    let jobs = lab.json(&["jobs"]).as_array().unwrap().len();
    let (code, _, err) = parts(&lab.run(&["-o", &at("none/o")], script));
    assert_eq!(code, 125);
    assert!(err.contains("none/o") && err.contains("--output"), "{err}");
    assert_eq!(lab.json(&["jobs"]).as_array().unwrap().len(), jobs);
    // What shows only while it is written ends the job, which has a word for it.
    let (code, _, err) = parts(&lab.run(&["-o", "/dev/full"], "out hello\npause\n"));
    assert_eq!(code, 125, "{err}");
    assert!(err.contains("/dev/full: No space left"), "{err}");
    lab.eventually("the job is ended", |lab| {
        lab.last_job()["state"] == "cancelled"
    });
    let job = lab.last_job();
    assert_eq!(job["reason"], "its output cannot be written");
    let (code, _, err) = parts(&lab.run(&["-o", "%N"], script));
    assert!(code == 2 && err.contains("%j (job)"), "{err}");
}

#[test]
fn submit_has_the_control_node_write_files() {
    let mut lab = Lab::with_nodes(2);
    let dir = lab.path("").display().to_string();
    let options = ["-n", "2", "-D", &dir, "-o", "out.%j", "-e", "err.%n"];
    let script = "out begun\nerr oh\npause\nout more\n";
    let id = submit(&lab, &options, script).remove(0);
    let name = format!("out.{id}");
    lab.eventually("it is written while the job runs", |lab| {
        read(lab, &name) == "begun\nbegun\n" && read(lab, "err.1") == "oh\n"
    });
    lab.stop_control(true);
    lab.start_control();
    for node in &lab.nodes {
        node.watch
            .go
            .store(true, std::sync::atomic::Ordering::Relaxed);
    }
    reaches(&lab, &id, "completed");
    lab.eventually("all of it is there, once", |lab| {
        let text = read(lab, &name);
        text.matches("begun\n").count() == 2 && text.matches("more\n").count() == 2
    });
    assert_eq!(read(&lab, "err.0"), "oh\n");
    // As for run, an unwritable folder is refused.
    let (code, err) = refused(&lab, &["-D", &dir, "-o", "none/o"]);
    assert!(code == 125 && err.contains("none/o"), "{err}");
    let (code, err) = refused(&lab, &["-o", "x.%a"]);
    assert!(code == 2 && err.contains("--array"), "{err}");
}

/// Over TCP the control node does not know who asks: it would write where the asker may not.
#[test]
fn files_are_written_for_the_owner_alone() {
    let lab = Lab::with_nodes(1);
    let id = submit(&lab, &[], "exit 0\n").remove(0);
    let token = read(&lab, "token");
    let path = lab.path("stolen");
    let body = json!({
        "name": "x", "program": job(&lab, &id)["program"], "args": ["eA=="], "ranks": 1,
        "batch": true, "no_precheck": true, "output": path,
    });
    let (status, _) = lab.post("/v1/jobs", &body);
    assert_eq!(status, 200);
    lab.eventually("its file is there", |_| path.exists());
    std::fs::remove_file(&path).unwrap();
    let mut stream = TcpStream::connect(lab.http.as_ref().unwrap()).unwrap();
    let body = body.to_string();
    write!(
        stream,
        "POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        token.trim(),
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    assert!(answer.contains("for that user alone"), "{answer}");
    assert!(!path.exists());
}

#[test]
fn a_job_has_the_nodes_that_it_must_have_and_none_that_it_must_not() {
    let lab = Lab::with_nodes(4);
    let options = ["-n", "2", "-w", "n3", "-x", "n[0,2]"];
    let id = submit(&lab, &options, "exit 0\n").remove(0);
    reaches(&lab, &id, "completed");
    assert_eq!(job(&lab, &id)["nodes"], "n[1,3]");
    let id = submit(&lab, &["-w", "n[1-2]"], "exit 0\n").remove(0);
    reaches(&lab, &id, "completed");
    assert_eq!(job(&lab, &id)["nodes"], "n[1-2]");
    // It waits for the one that it must have, and says so.
    let runs = submit(&lab, &["--nodes", "n3"], "wait\n").remove(0);
    reaches(&lab, &runs, "running");
    let waits = submit(&lab, &["-N", "2", "-w", "n3"], "exit 0\n").remove(0);
    lab.eventually("it waits", |lab| job(lab, &waits)["reason"] == "n3 busy");
    assert_eq!(job(&lab, &waits)["why"], "Resources");
    assert_eq!(lab.hearth(&["cancel", &runs]).status.code(), Some(0));
    reaches(&lab, &waits, "completed");
    for (options, status, words) in [
        (
            &["-x", "n[0-3]"][..],
            125,
            "1 node wanted, but -x (--exclude) leaves none of the 4 nodes",
        ),
        (&["-x", "n[0-2]", "-n", "2"], 125, "leaves 1 of the 4 nodes"),
        (&["-w", "n9"], 125, "unknown nodes: n9"),
        (&["-w", "n[0-1]", "-n", "1"], 2, "larger -n"),
        (&["-w", "n1", "-x", "n1"], 2, "both lists"),
        (&["-w", "n1", "--nodes", "n1"], 2, "leave -w"),
        (&["-w", "n1", "--warm-only"], 2, "--warm-only"),
        (&["-w", "nosuch"], 2, "nosuch"),
        (&["--nodes", "2-4"], 2, "n before"),
    ] {
        let (code, err) = refused(&lab, options);
        assert!(err.contains(words), "{options:?}: {err}");
        assert_eq!(code, status, "{options:?}: {err}");
    }
}

#[test]
fn an_array_is_a_job_a_task_and_so_many_run_at_a_time() {
    let mut lab = Lab::with_nodes(4);
    let ids = submit(&lab, &["-a", "1-5%2"], "wait\n");
    assert_eq!(ids.len(), 5);
    let running = |lab: &Lab| {
        let queue = lab.json(&["queue", "--state", "R"]);
        queue.as_array().unwrap().len()
    };
    lab.eventually("two run", |lab| running(lab) == 2);
    lab.eventually("the others wait for them", |lab| {
        job(lab, &ids[2])["why"] == "JobArrayTaskLimit"
    });
    let other = submit(&lab, &[], "exit 0\n").remove(0);
    reaches(&lab, &other, "completed");
    // The bound holds over a restart of the control node.
    lab.stop_control(true);
    lab.start_control();
    lab.eventually("they go on", |lab| running(lab) == 2);
    assert_eq!(lab.hearth(&["cancel", &ids[0]]).status.code(), Some(0));
    reaches(&lab, &ids[2], "running");
    lab.eventually("two run again", |lab| running(lab) == 2);
    assert_eq!(job(&lab, &ids[3])["state"], "pending");
    assert_eq!(lab.hearth(&["cancel", "--me"]).status.code(), Some(0));
}

#[test]
fn an_array_that_is_interrupted_names_the_jobs_that_are_there() {
    let lab = Lab::with_nodes(1);
    let program = lab.program("p", "out x\n");
    let args = ["submit", "--no-precheck", "--hold", "-a", "1-1001"];
    let mut submit = lab.command(&args);
    let submit = submit.arg(&program).spawn().unwrap();
    let count = |lab: &Lab| lab.json(&["queue"]).as_array().unwrap().len();
    lab.eventually("some are there", |lab| count(lab) > 1);
    signal(&submit, "INT");
    let (code, out, err) = parts(&finish(submit));
    assert_eq!((code, &*out), (130, ""), "{err}");
    let taken = format!("jobs 1-{} of the array submitted", count(&lab));
    assert!(err.contains(&taken), "{taken}: {err}");
}

#[test]
fn a_task_of_an_array_knows_its_number() {
    let lab = Lab::with_nodes(2);
    let dir = lab.path("").display().to_string();
    let ids = submit(&lab, &["-a", "3,7", "-D", &dir, "-o", "%A_%a"], "args\n");
    for (id, task) in ids.iter().zip([3, 7]) {
        reaches(&lab, id, "completed");
        let name = format!("{}_{task}", ids[0]);
        let wanted = format!("env [HEARTH_ARRAY_TASK_ID={task}]\n");
        lab.eventually("its file is there", |lab| {
            read(lab, &name).contains(&wanted)
        });
        let first = format!("env [HEARTH_ARRAY_JOB_ID={}]\n", ids[0]);
        assert!(read(&lab, &name).contains(&first), "{}", read(&lab, &name));
        assert_eq!(job(&lab, id)["array"]["task"], task);
    }
    let program = lab.program("program", "exit 0\n");
    let (code, out, _) = parts(&lab.hearth(&["submit", "--no-precheck", "-a", "1-3", &program]));
    assert!(code == 0 && out.starts_with("Submitted jobs "), "{out}");
}

#[test]
fn a_job_script_for_slurm_is_taken_or_stops_with_its_line() {
    let lab = Lab::with_nodes(2);
    std::fs::create_dir(lab.path("work")).unwrap();
    std::fs::write(lab.path("work/app"), "out done\n").unwrap();
    let dir = lab.path("work").display().to_string();
    let script = format!(
        "#!/bin/bash\n#SBATCH --job-name=solve --nodes=2\n#SBATCH -t 5 -D {dir}\n\
         #SBATCH -o slurm-%j.out --exclusive\n#HEARTH --no-precheck\n./app\n"
    );
    let path = lab.program("job.sh", &script);
    let (code, out, err) = parts(&lab.hearth(&["submit", "--parsable", &path]));
    assert_eq!((code, &*err), (0, ""));
    let id = out.trim();
    reaches(&lab, id, "completed");
    let job = job(&lab, id);
    assert_eq!(
        (&job["name"], &job["ranks_total"]),
        (&json!("solve"), &json!(2))
    );
    assert_eq!(job["time_limit_s"], 300);
    let file = format!("work/slurm-{id}.out");
    lab.eventually("its output is there", |lab| {
        read(lab, &file) == "done\ndone\n"
    });
    let path = lab.program("job.sh", &script.replace("--exclusive", "-p debug"));
    let (code, out, err) = parts(&lab.hearth(&["submit", &path]));
    assert_eq!((code, &*out), (2, ""));
    assert!(
        err.contains("job.sh: line 4: ") && err.contains("partitions"),
        "{err}"
    );
}

#[test]
fn words_of_slurm_are_answered_with_ours() {
    let lab = Lab::control();
    for (line, words) in [
        (&["squeue"][..], "hearth queue"),
        (&["status"], "hearth nodes"),
        (&["kill", "3"], "hearth cancel JOB"),
        (&["rm", "3"], "hearth cancel JOB"),
        (&["info"], "hearth job JOB"),
        (&["show", "job", "3"], "hearth job JOB"),
        (&["scontrol", "show", "job", "1"], "hearth job JOB"),
        (&["run", "-p", "debug", "./app"], "no partitions"),
        (&["run", "-a", "1-3", "./app"], "hearth submit"),
        (&["submit", "--wrap", "a | b"], "no shell"),
        (&["submit", "--mem=4G", "./app"], "leave it out"),
    ] {
        let (code, _, err) = parts(&lab.hearth(line));
        assert_eq!(code, 2, "{line:?}: {err}");
        assert!(err.contains(words), "{line:?}: {err}");
    }
    let (code, _, err) = parts(&lab.hearth(&["squeue", "--json"]));
    let error: Value = serde_json::from_str(err.lines().last().unwrap()).unwrap();
    assert_eq!(code, 2);
    assert!(
        error["error"].as_str().unwrap().contains("hearth queue"),
        "{error}"
    );
}
