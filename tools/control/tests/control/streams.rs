//! Arguments, environment, output, standard input.

use std::io::{Read, Write};
use std::process::Stdio;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::lab::{Lab, finish, parts};

#[test]
fn arguments_and_environment_arrive_unchanged() {
    let lab = Lab::with_nodes(1);
    let program = lab.program("args", "args\n");
    let args = [
        "run",
        "--no-precheck",
        "--env",
        "COLOUR=deep red",
        "--env",
        "EMPTY=",
        &program,
    ];
    let rest = ["--", "one", "two words", "", "--nodes", "ünï"];
    let output = lab.hearth(&[&args[..], &rest[..]].concat());
    let (code, out, err) = parts(&output);
    assert_eq!(code, 0, "{err}");
    assert!(
        out.contains("arg [one]\narg [two words]\narg []\narg [--nodes]\narg [ünï]\n"),
        "{out}"
    );
    let env: Vec<&str> = out.lines().filter(|line| line.starts_with("env")).collect();
    assert_eq!(env[..2], ["env [COLOUR=deep red]", "env [EMPTY=]"]);
    assert_eq!(
        env[2..4],
        ["env [OMP_NUM_THREADS=1]", "env [HEARTH_RANK=0]"]
    );
    assert_eq!(env[4], "env [HEARTH_SIZE=1]");
    assert_eq!(env.len(), 7, "{out}");
}

#[test]
fn every_rank_prints_whole_lines_with_its_label() {
    let lab = Lab::with_nodes(4);
    let output = lab.run(&["-n", "4", "--label"], "lines 300\nerr done\n");
    let (code, out, err) = parts(&output);
    assert_eq!(code, 0, "{err}");
    for rank in 0..4 {
        let label = format!("{rank}: ");
        let lines: Vec<&str> = out
            .lines()
            .filter_map(|line| line.strip_prefix(&label))
            .collect();
        let wanted: Vec<String> = (1..=300).rev().map(|line| format!("line {line}")).collect();
        assert_eq!(lines, wanted, "rank {rank}");
        assert_eq!(
            err.lines()
                .filter(|line| *line == format!("{rank}: done"))
                .count(),
            1,
            "{err}"
        );
    }
    assert_eq!(out.lines().count(), 1200);
}

#[test]
fn standard_input_comes_back_byte_for_byte() {
    let lab = Lab::with_nodes(2);
    let mut command = lab.run_command(&["-n", "2"], "rank 0 cat\nrank 1 cat\n");
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    // More than all buffers on the way together, every byte value, no line ends at the end.
    let input: Vec<u8> = (0..700_000u32)
        .map(|i| u8::try_from(i * 7 % 251).unwrap())
        .collect();
    let mut stdin = child.stdin.take().unwrap();
    let sent = input.clone();
    let writer = std::thread::spawn(move || stdin.write_all(&sent).unwrap());
    let output = finish(child);
    writer.join().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(
        output.stdout == input,
        "{} bytes came back",
        output.stdout.len()
    );
}

#[test]
fn a_slow_reader_holds_the_program_back_and_loses_nothing() {
    const LINES: usize = 120_000;
    let lab = Lab::with_nodes(1);
    let mut child = lab
        .run_command(&[], &format!("lines {LINES}\n"))
        .spawn()
        .unwrap();
    let written = || lab.nodes[0].watch.written.load(Ordering::Relaxed);
    lab.eventually("the program writes", |_| written() > 0);
    // It must come to a halt: nothing more is written for a whole second.
    let mut before = 0;
    lab.eventually("the program is held back", |_| {
        std::thread::sleep(Duration::from_secs(1));
        let now = written();
        let halted = now == before;
        before = now;
        halted
    });
    let all: usize = (1..=LINES).map(|line| format!("line {line}\n").len()).sum();
    assert!(
        (before as usize) < all,
        "{before} of {all} bytes are somewhere"
    );
    assert_eq!(lab.last_job()["state"], "running");
    let mut text = String::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    assert_eq!(finish(child).status.code(), Some(0));
    let right = text
        .lines()
        .zip((1..=LINES).rev())
        .all(|(line, n)| line == format!("line {n}"));
    assert!(
        right && text.lines().count() == LINES,
        "{} lines",
        text.lines().count()
    );
}

#[test]
fn a_reader_that_leaves_ends_the_job() {
    let lab = Lab::with_nodes(1);
    let mut child = lab.run_command(&[], "lines 1000000\n").spawn().unwrap();
    let mut first = [0; 6];
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut first).unwrap();
    drop(stdout);
    assert_eq!(finish(child).status.code(), Some(141));
    lab.eventually("the node is idle", |lab| lab.idle_nodes() == 1);
    assert_eq!(lab.last_job()["state"], "cancelled");
}

#[test]
fn frames_are_printed_as_json_when_asked() {
    let lab = Lab::with_nodes(1);
    let output = lab.hearth(&[
        "run",
        "--no-precheck",
        "--json",
        &lab.program("p", "out hello\nexit 3\n"),
    ]);
    let (code, out, err) = parts(&output);
    assert_eq!((code, &*err), (3, ""));
    let frames: Vec<serde_json::Value> = out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let written = frames
        .iter()
        .find(|frame| frame["frame"] == "output")
        .unwrap();
    assert_eq!(written["data"], "aGVsbG8K");
    assert_eq!(frames.last().unwrap()["frame"], "end");
    assert_eq!(frames.last().unwrap()["job"]["exit_status"], 3);
}

#[test]
fn closed_streams_end_the_command_without_a_panic() {
    let lab = Lab::with_nodes(1);
    let script = "lines 100000\nerr x\nsignal 11\n";
    let mut child = lab.run_command(&["--report"], script).spawn().unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    assert_eq!(finish(child).status.code(), Some(141));
    // Only standard error is closed: the job goes on, our own words are lost.
    let mut child = lab
        .run_command(&["--report"], "out fine\nsignal 6\n")
        .spawn()
        .unwrap();
    drop(child.stderr.take());
    let output = finish(child);
    assert_eq!(
        (output.status.code(), &*output.stdout),
        (Some(134), &b"fine\n"[..])
    );
}
