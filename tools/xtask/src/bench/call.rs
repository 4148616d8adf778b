//! `bench call`: what a system call, page faults, threads and signals cost, in instructions.
//!
//! QEMU counts instructions (`-icount shift=0`: one tick of the time-stamp counter an instruction);
//! the same static program, `tests/programs/calls.c`, runs on Hearth and on Linux and measures
//! itself.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::linux::Linux;
use super::{Goal, Report, Row};
use crate::build;
use crate::workspace::Workspace;

const METRICS: [&str; 6] = [
    "null_call",
    "anonymous_fault",
    "file_fault",
    "thread",
    "ping_pong",
    "signal",
];
const CLUSTER: &str = "bench-call";

/// Both cases; Linux comes first because its figures are the goals.
pub fn run(workspace: &Workspace, report: &mut Report) -> Result<()> {
    build::once(workspace)?;
    report.progress("Linux under -icount");
    let linux = on_linux(workspace)?;
    for metric in METRICS {
        report.row(Row::context("linux", metric, linux[metric], "instructions"));
    }
    if report.wants("hearth") {
        report.progress("Hearth under -icount");
        let hearth = on_hearth(workspace)?;
        for metric in METRICS {
            // Fewer than Linux in the same run.
            report.row(Row::goal(
                "hearth",
                metric,
                hearth[metric],
                "instructions",
                Goal::AtMost(linux[metric] - 1.0),
            ));
        }
    }
    Ok(())
}

fn on_linux(workspace: &Workspace) -> Result<BTreeMap<String, f64>> {
    let linux = Linux::prepare(workspace.target())?;
    let program = workspace.programs().join("calls");
    // Twice: the first run brings the program's pages into the page cache.
    let initrd = linux.initramfs(
        "call",
        "/bin/calls > /dev/null\n/bin/calls\n$bb poweroff -f\n",
        &[&program],
    )?;
    parse(&linux.counted(&initrd, 128)?)
}

fn on_hearth(workspace: &Workspace) -> Result<BTreeMap<String, f64>> {
    let hearth = workspace.hearth();
    let run = |args: &[&str]| -> Result<String> {
        let output = Command::new("timeout")
            .arg("300")
            .arg(&hearth)
            .args(["--cluster", CLUSTER])
            .args(args)
            .output()?;
        if !output.status.success() {
            bail!(
                "hearth {}: {}",
                args.join(" "),
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let up = [
        "up", "--nodes", "1", "--direct", "--accel", "tcg", "--icount",
    ];
    run(&up)?;
    let program = workspace.programs().join("calls");
    let output = run(&["run", "-n", "1", &program.to_string_lossy()]);
    run(&["down"])?;
    parse(&output?)
}

fn parse(text: &str) -> Result<BTreeMap<String, f64>> {
    let line = text
        .lines()
        .find_map(|line| line.find("null_call=").map(|at| &line[at..]))
        .with_context(|| format!("the program printed no figures: {text}"))?;
    let figures: BTreeMap<String, f64> = line
        .split_whitespace()
        .filter_map(|word| word.split_once('='))
        .filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)))
        .collect();
    if METRICS.iter().any(|metric| !figures.contains_key(*metric)) {
        bail!("a figure is missing in {line:?}");
    }
    Ok(figures)
}
