//! The Linux node: fetches a program's file into tmpfs and runs it, cold and warm.
//!
//! Key type: [`Launched`]. Neighbours: `tests/programs/musl-linux-launch.c` measures on the node;
//! `super::super::linux` makes the system.
//!
//! Invariant: all nodes of a case begin at once, when a file appears on the server that they all
//! ask.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::super::cluster::Cluster;
use super::super::linux::{LEASE_SCRIPT, Linux};
use super::super::{Report, Row};
use super::{Program, RATE, RATE_BYTES_PER_MS, figure};
use crate::workspace::Workspace;

const CLUSTER: &str = "bench-launch-linux";
/// The program that measures.
const LAUNCHER: &str = "musl-linux-launch";
/// What it prints at the beginning of its line.
const MARKER: &str = "LINUX-LAUNCHED";
/// Warm runs of which the median is taken.
const RUNS: usize = 9;
/// Memory of a node: the system, and 16 MiB of text in three places (file, copy with the probe, the
/// launcher).
const MEMORY_MIB: u32 = 256;

/// One program's launches on Linux: the slowest of the nodes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Launched {
    /// From the request to the file's last byte, in milliseconds.
    pub fetch_ms: f64,
    /// From before vfork to the first instruction of a file that never ran.
    pub cold_first_ms: f64,
    /// From the request to the end of the first run.
    pub cold_exit_ms: f64,
    /// From before vfork to the first instruction, warm.
    pub first_ms: f64,
    /// From before vfork to the end, warm.
    pub exit_ms: f64,
    /// The same in ticks of the time-stamp counter.
    pub first_ticks: f64,
    /// The same in ticks of the time-stamp counter.
    pub exit_ticks: f64,
    /// Minor page faults of a warm run.
    pub minor_faults: f64,
    /// Bytes that all nodes fetched together.
    pub bytes: f64,
}

impl Launched {
    fn parse(line: &str) -> Result<Self> {
        let value = |key| figure(line, key);
        ensure!(
            value("bad")? == 0.0,
            "a program failed on the Linux node: {line:?}"
        );
        Ok(Self {
            fetch_ms: value("fetch_us")? / 1000.0,
            cold_first_ms: value("cold_first_us")? / 1000.0,
            cold_exit_ms: value("cold_exit_us")? / 1000.0,
            first_ms: value("first_us")? / 1000.0,
            exit_ms: value("exit_us")? / 1000.0,
            first_ticks: value("first_ticks")?,
            exit_ticks: value("exit_ticks")?,
            minor_faults: value("minor_faults")?,
            bytes: value("bytes")?,
        })
    }

    /// The slowest of both in everything; bytes are added.
    fn and(self, other: Self) -> Self {
        Self {
            fetch_ms: self.fetch_ms.max(other.fetch_ms),
            cold_first_ms: self.cold_first_ms.max(other.cold_first_ms),
            cold_exit_ms: self.cold_exit_ms.max(other.cold_exit_ms),
            first_ms: self.first_ms.max(other.first_ms),
            exit_ms: self.exit_ms.max(other.exit_ms),
            first_ticks: self.first_ticks.max(other.first_ticks),
            exit_ticks: self.exit_ticks.max(other.exit_ticks),
            minor_faults: self.minor_faults.max(other.minor_faults),
            bytes: self.bytes + other.bytes,
        }
    }
}

/// Warm launches on a machine alone whose clock counts instructions.
pub fn counted(
    workspace: &Workspace,
    linux: &Linux,
    programs: &[Program],
) -> Result<BTreeMap<&'static str, Launched>> {
    let mut script = String::from("$bb mkdir -p /tmp\n$bb mount -t tmpfs tmpfs /tmp\n");
    for program in programs {
        let file = program.file;
        script.push_str(&format!(
            "[ -e /tmp/{file} ] || {{ $bb cp /bin/{file} /tmp/{file}; $bb rm /bin/{file}; }}\n{}\n",
            command(program, "-", 0)
        ));
    }
    script.push_str("$bb poweroff -f\n");
    let mut files: Vec<PathBuf> = vec![workspace.programs().join(LAUNCHER)];
    for program in programs {
        let path = workspace.programs().join(program.file);
        if !files.contains(&path) {
            files.push(path);
        }
    }
    let files: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let initrd = linux.initramfs("launch-counted", &script, &files)?;
    let text = linux.counted(&initrd, MEMORY_MIB)?;
    programs
        .iter()
        .map(|program| {
            let line = text
                .lines()
                .find(|line| line.contains(&marker(program)))
                .with_context(|| format!("{} did not run on Linux: {text}", program.name))?;
            Ok((program.name, Launched::parse(line)?))
        })
        .collect()
}

/// Cold and warm launches on `count` nodes behind links of [`RATE`].
pub fn timed(
    workspace: &Workspace,
    report: &Report,
    linux: &Linux,
    count: usize,
    programs: &[Program],
) -> Result<BTreeMap<&'static str, Launched>> {
    let mut script = String::from(LEASE_SCRIPT);
    script.push_str(
        "$bb mkdir -p /tmp\n$bb mount -t tmpfs tmpfs /tmp\nserver=$($bb cat /etc/server)\necho LINUX-READY\n",
    );
    for (phase, program) in programs.iter().enumerate() {
        script.push_str(&command(program, "$server", phase));
        script.push('\n');
    }
    script.push_str("while :; do $bb sleep 3600; done\n");
    let launcher = workspace.programs().join(LAUNCHER);
    let initrd = linux.initramfs("launch-timed", &script, &[&launcher])?;
    let folder = tempfile::tempdir().context("making a folder for the file server")?;
    for program in programs {
        let from = workspace.programs().join(program.file);
        fs::copy(&from, folder.path().join(program.file))
            .with_context(|| format!("copying {}; `cargo xtask build` makes it", from.display()))?;
    }

    report.progress(&format!("linux, {count} nodes: power on"));
    let cluster = Cluster::up(
        workspace,
        CLUSTER,
        count,
        &[
            "--memory",
            &format!("{MEMORY_MIB}M"),
            "--rate",
            RATE,
            "--no-wait",
            "--boot-kernel",
            &linux.kernel.to_string_lossy(),
            "--boot-initrd",
            &initrd.to_string_lossy(),
            "--boot-append",
            "console=ttyS0 quiet no_timer_check",
        ],
    )?;
    let _server = cluster.serve_files(folder.path())?;
    cluster.poll(count, "LINUX-READY", |_, _| Some(()))?;
    let mut all = BTreeMap::new();
    for (phase, program) in programs.iter().enumerate() {
        report.progress(&format!("linux, {count} nodes: {}", program.name));
        fs::write(folder.path().join(format!("go-{phase}")), "")?;
        let lines = cluster.poll(count, &marker(program), |line, _| Some(line.to_owned()))?;
        let mut slowest = Launched::default();
        for line in lines {
            slowest = slowest.and(Launched::parse(&line)?);
        }
        all.insert(program.name, slowest);
    }
    cluster.down()?;
    Ok(all)
}

/// The line of a node's script that launches a program.
fn command(program: &Program, server: &str, phase: usize) -> String {
    format!(
        "/bin/{LAUNCHER} {} {RUNS} {server} {phase} {} {}",
        program.name,
        program.file,
        program.arguments.join(" ")
    )
}

/// What a node's line for a program contains.
fn marker(program: &Program) -> String {
    format!("{MARKER} label={} ", program.name)
}

/// The figures of the machine that counts instructions.
pub fn counted_rows(report: &mut Report, all: &BTreeMap<&'static str, Launched>) {
    for (name, launched) in all {
        let case = format!("linux/{name}/1/warm");
        let rows = [
            ("launch_instructions", launched.first_ticks),
            ("exit_instructions", launched.exit_ticks),
        ];
        for (metric, value) in rows {
            report.row(Row::context(&case, metric, value, "instructions"));
        }
    }
}

/// The figures of the machines behind limited links.
pub fn timed_rows(report: &mut Report, count: usize, all: &BTreeMap<&'static str, Launched>) {
    for (name, launched) in all {
        let (cold, warm) = (
            format!("linux/{name}/{count}/cold"),
            format!("linux/{name}/{count}/warm"),
        );
        let wire_ms = launched.bytes / RATE_BYTES_PER_MS;
        let rows = [
            (&cold, "program_bytes", launched.bytes, "bytes"),
            (
                &cold,
                "launch_ms",
                launched.fetch_ms + launched.cold_first_ms,
                "ms",
            ),
            (&cold, "exit_ms", launched.cold_exit_ms, "ms"),
            (
                &cold,
                "wire_ratio",
                launched.cold_exit_ms / wire_ms,
                "ratio",
            ),
            (&warm, "program_bytes", 0.0, "bytes"),
            (&warm, "minor_faults", launched.minor_faults, "faults"),
            (&warm, "launch_ms", launched.first_ms, "ms"),
            (&warm, "exit_ms", launched.exit_ms, "ms"),
        ];
        for (case, metric, value, unit) in rows {
            report.row(Row::context(case, metric, value, unit));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "LINUX-LAUNCHED label=x fetch_us=2000 cold_first_us=600 cold_exit_us=3500 first_us=400.5 exit_us=900.0 \
                        first_ticks=120000 exit_ticks=340000 minor_faults=31 bytes=29000 bad=0";

    #[test]
    fn a_node_s_line_is_read() {
        let launched = Launched::parse(LINE).unwrap();
        assert_eq!(launched.fetch_ms, 2.0);
        assert_eq!(launched.first_ticks, 120_000.0);
        assert!(Launched::parse(&LINE.replace("bad=0", "bad=2")).is_err());
    }

    #[test]
    fn nodes_together_are_as_slow_as_the_slowest_and_fetch_the_sum() {
        let one = Launched::parse(LINE).unwrap();
        let other = Launched {
            fetch_ms: 5.0,
            ..one
        };
        let both = one.and(other);
        assert_eq!(both.fetch_ms, 5.0);
        assert_eq!(both.exit_ms, one.exit_ms);
        assert_eq!(both.bytes, 58_000.0);
    }
}
