//! The hosted endpoint beside other programs that exchange blocks between all pairs: cases
//! `peers-RANKS/RATE/SIZE/PROGRAM` and `...+loss1` (one of a hundred packets is lost).
//!
//! Key type: [`Tool`]. Each program compares every byte, takes the time of each exchange from a
//! barrier to the end of its own part, and says so; the slowest rank counts. Connections are made,
//! and windows opened, before. Neighbours: `super::super::namespaces` makes the links,
//! `super::super::mpich` starts MPICH.
//!
//! Invariant: a program that received another byte gives no figure.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::super::links::{self, Processors};
use super::super::namespaces::{Network, address};
use super::super::{Goal, Report, Row, median, mpich, ready};
use super::limit_s;
use crate::setup;
use crate::workspace::Workspace;

/// What our endpoint shall need at most, without and with loss.
const RATIO_MOST: f64 = 1.05;
const LOSSY_RATIO_MOST: f64 = 1.08;
/// How far it may be behind scheduled TCP: what two runs of one program differ by.
const SAME: f64 = 1.01;
/// Exchanges of a run, of which the median is taken, after one that is not counted.
const REPEATS: usize = 5;
/// Packets of which one is lost.
const LOSS: u32 = 100;
/// A run that takes longer has failed.
const RUN_LIMIT: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(20);

/// Ranks, links, blocks.
#[derive(Debug, Clone, Copy)]
struct Kind {
    ranks: usize,
    rate: &'static str,
    bits_per_second: u64,
    size: &'static str,
    bytes: u64,
    /// What waits in front of a link.
    queue_bytes: u64,
}

const KINDS: [Kind; 2] = [
    Kind {
        ranks: 16,
        rate: "5mbit",
        bits_per_second: 5_000_000,
        size: "64KB",
        bytes: 64_000,
        queue_bytes: 32_000,
    },
    Kind {
        ranks: 8,
        rate: "20mbit",
        bits_per_second: 20_000_000,
        size: "256KB",
        bytes: 256_000,
        queue_bytes: 256_000,
    },
];

/// A program with its settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tool {
    /// `hearth exchange`.
    Hearth,
    /// Connections between all pairs, p - 1 scheduled steps.
    TcpPairwise,
    /// The same connections, everything at once.
    TcpAtOnce,
    /// MPI_Alltoall as it chooses.
    Mpich,
    /// MPI_Alltoall, told to go pairwise.
    MpichPairwise,
}

impl Tool {
    const ALL: [Self; 5] = [
        Self::Hearth,
        Self::TcpPairwise,
        Self::TcpAtOnce,
        Self::Mpich,
        Self::MpichPairwise,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Hearth => "hearth",
            Self::TcpPairwise => "tcp-pairwise",
            Self::TcpAtOnce => "tcp-at-once",
            Self::Mpich => "mpich",
            Self::MpichPairwise => "mpich-pairwise",
        }
    }
}

impl Kind {
    fn case(&self, tool: Tool, is_lossy: bool) -> String {
        let loss = if is_lossy { "+loss1" } else { "" };
        let name = tool.name();
        format!(
            "peers-{}/{}/{}/{name}{loss}",
            self.ranks, self.rate, self.size
        )
    }
}

/// Processes of one run; ended with it.
struct Running(Vec<Child>);

impl Drop for Running {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It may have ended by itself.
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// Every case that was asked for.
pub fn run(workspace: &Workspace, report: &mut Report) -> Result<()> {
    for kind in &KINDS {
        for is_lossy in [false, true] {
            let wanted = |tool: &Tool| report.wants(&kind.case(*tool, is_lossy));
            let tools: Vec<Tool> = Tool::ALL.into_iter().filter(wanted).collect();
            if tools.is_empty() {
                continue;
            }
            setup::for_benchmarks()?;
            ready(workspace, report)?;
            measure(workspace, report, kind, is_lossy, &tools)?;
        }
    }
    Ok(())
}

fn measure(
    workspace: &Workspace,
    report: &mut Report,
    kind: &Kind,
    is_lossy: bool,
    tools: &[Tool],
) -> Result<()> {
    let rate = kind.bits_per_second;
    let network = Network::make(kind.ranks - 1, kind.queue_bytes, |_| Some(rate))?;
    // Large segments overrun the queues in front of slow links: TCP then waits for its timer at the
    // end of each block.
    network.take_segments_apart()?;
    if is_lossy {
        network.lose_one_of(LOSS)?;
    }
    let scratch = tempfile::tempdir().context("making a folder for programs")?;
    let mut ratios = Vec::new();
    for &tool in tools {
        let case = kind.case(tool, is_lossy);
        report.progress(&case);
        let processors = Processors::now()?;
        let all = match seconds(workspace, &network, kind, tool, scratch.path()) {
            Ok(all) => all,
            Err(error) => {
                report.row(Row::refused(&case, "ratio", "ratio", format!("{error:#}")));
                continue;
            }
        };
        let idle = processors.idle_since()?;
        let limit = limit_s(kind.ranks, kind.bytes, rate);
        let middle = median(all.iter().copied());
        let ratio = middle / limit;
        let (most, busy) = match tool {
            Tool::Hearth if is_lossy => (Some(LOSSY_RATIO_MOST), links::busy(idle, ratio)),
            Tool::Hearth => (Some(RATIO_MOST), links::busy(idle, ratio)),
            // MPICH polls: that its processors are busy says nothing.
            _ => (None, None),
        };
        report.row(Row::time(&case, "ratio", ratio, "ratio", most, busy));
        let context = |metric, value, unit| Row::context(&case, metric, value, unit);
        let most = all.iter().copied().fold(0.0, f64::max);
        report.row(context("ratio_most", most / limit, "ratio"));
        report.row(context("seconds", middle, "s"));
        report.row(context("processors_idle", idle, "share"));
        ratios.push((tool, ratio));
    }
    compare(report, kind, is_lossy, &ratios);
    Ok(())
}

/// Ours beside each of the others.
fn compare(report: &mut Report, kind: &Kind, is_lossy: bool, ratios: &[(Tool, f64)]) {
    let Some(&(Tool::Hearth, ours)) = ratios.first() else {
        return;
    };
    let case = kind.case(Tool::Hearth, is_lossy);
    for &(tool, theirs) in &ratios[1..] {
        let most = if tool == Tool::TcpPairwise { SAME } else { 1.0 };
        let metric = format!("of_{}", tool.name().replace('-', "_"));
        let goal = Goal::AtMost(most);
        report.row(Row::goal(&case, &metric, ours / theirs, "ratio", goal));
    }
}

/// Runs a program on all nodes; the slowest rank's seconds of each exchange.
fn seconds(
    workspace: &Workspace,
    network: &Network,
    kind: &Kind,
    tool: Tool,
    scratch: &Path,
) -> Result<Vec<f64>> {
    let logs = scratch.join(tool.name());
    fs::create_dir_all(&logs)?;
    let mut running = Running(Vec::new());
    let mut spawn = |name: &str, command: &mut Command| -> Result<()> {
        let log = fs::File::create(logs.join(name))?;
        let errors = log.try_clone()?;
        command.env("HOME", scratch).env("TMPDIR", scratch);
        let child = command.stdin(Stdio::null()).stdout(log).stderr(errors);
        let started = "starting nsenter; `cargo xtask setup` installs it (util-linux)";
        running.0.push(child.spawn().context(started)?);
        Ok(())
    };
    match tool {
        Tool::Hearth => {
            for rank in network.nodes() {
                let mut command = hearth(workspace, network, kind, scratch, rank)?;
                spawn(&rank.to_string(), &mut command)?;
            }
        }
        Tool::TcpPairwise | Tool::TcpAtOnce => {
            let source = include_str!("tcp-exchange.c");
            let program = mpich::compile(scratch, "gcc", "tcp-exchange", source)?;
            let mode = if tool == Tool::TcpPairwise {
                "pairwise"
            } else {
                "at-once"
            };
            for rank in network.nodes() {
                let mut command = network.on(rank);
                command.arg(&program).args([mode, &rank.to_string()]);
                command.args([kind.bytes, REPEATS as u64].map(|figure| figure.to_string()));
                command.args(network.nodes().map(|node| address(node).to_string()));
                spawn(&rank.to_string(), &mut command)?;
            }
        }
        Tool::Mpich | Tool::MpichPairwise => {
            let source = include_str!("mpi-exchange.c");
            let program = mpich::compile(scratch, "mpicc.mpich", "mpi-exchange", source)?;
            let settings: &[&str] = match tool {
                Tool::Mpich => &[],
                _ => &["MPIR_CVAR_ALLTOALL_INTRA_ALGORITHM=pairwise"],
            };
            let mut command = mpich::command(network, scratch, settings)?;
            command.arg(program);
            command.args([kind.bytes.to_string(), REPEATS.to_string()]);
            spawn("all", &mut command)?;
        }
    }
    await_end(&mut running)?;
    collect(&logs, kind.ranks)
}

fn hearth(
    workspace: &Workspace,
    network: &Network,
    kind: &Kind,
    scratch: &Path,
    rank: usize,
) -> Result<Command> {
    let key = scratch.join("key");
    if !key.exists() {
        fs::write(&key, "0123456789abcdef0123456789abcdef\n")?;
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(&key, mode)?;
    }
    let all: Vec<String> = network
        .nodes()
        .map(|node| address(node).to_string())
        .collect();
    let mut command = network.on(rank);
    command.arg(workspace.hearth()).args(["exchange", "--json"]);
    command.args(["--ranks", &all.join(","), "--rank", &rank.to_string()]);
    command.arg("--key-file").arg(&key);
    // One more, which is not counted.
    let repeats = REPEATS + 1;
    command.args(["--bytes", &kind.bytes.to_string()]);
    command.args(["--repeats", &repeats.to_string()]);
    command.args(["--rate", &format!("{}kbit", kind.bits_per_second / 1_000)]);
    command.args(["--port-buffer", &kind.queue_bytes.to_string()]);
    Ok(command)
}

/// Waits until all have ended; how is seen in what they said.
fn await_end(running: &mut Running) -> Result<()> {
    let end = Instant::now() + RUN_LIMIT;
    for child in &mut running.0 {
        while child.try_wait()?.is_none() {
            ensure!(
                Instant::now() < end,
                "it had not ended after {} s",
                RUN_LIMIT.as_secs()
            );
            std::thread::sleep(POLL);
        }
    }
    Ok(())
}

/// The slowest rank's seconds of each exchange, from what all said.
fn collect(logs: &Path, ranks: usize) -> Result<Vec<f64>> {
    let mut all: Vec<Vec<f64>> = Vec::new();
    let mut said = String::new();
    for entry in fs::read_dir(logs)? {
        let text = fs::read_to_string(entry?.path())?;
        all.extend(figures(&text));
        said.push_str(&text);
    }
    if all.len() != ranks || all.iter().any(|rank| rank.len() != REPEATS) {
        let tail: Vec<&str> = said.lines().rev().take(4).collect();
        bail!(
            "{} of {ranks} ranks gave {REPEATS} figures; said last: {}",
            all.len(),
            tail.join(" | ")
        );
    }
    let slowest = |round: usize| all.iter().map(|rank| rank[round]).fold(0.0, f64::max);
    Ok((0..REPEATS).map(slowest).collect())
}

/// The figures of each rank in a text: lines `rank R seconds S1 S2 ...`, or one JSON object of
/// `hearth exchange`.
fn figures(text: &str) -> Vec<Vec<f64>> {
    if let Ok(value) = serde_json::from_str::<serde_json::Value>(text) {
        let counted = |value: &serde_json::Value| -> Option<Vec<f64>> {
            let seconds = value["seconds"].as_array()?.iter().skip(1);
            (value["failure"].is_null()).then(|| seconds.filter_map(|s| s.as_f64()).collect())
        };
        return counted(&value).into_iter().collect();
    }
    text.lines()
        .filter_map(|line| line.strip_prefix("rank ")?.split_once(" seconds "))
        .filter_map(|(_, figures)| figures.split_whitespace().map(|s| s.parse().ok()).collect())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_in_what_programs_say() {
        let lines = "noise\nrank 0 seconds 1.5 2\nrank 11 seconds 0.25 3\n";
        assert_eq!(figures(lines), [[1.5, 2.0], [0.25, 3.0]]);
        let object = "{\n \"rank\": 3, \"seconds\": [9.0, 1.0, 2.0], \"failure\": null }";
        assert_eq!(figures(object), [[1.0, 2.0]]);
        let failed = object.replace("null", "\"rank 1 is lost\"");
        assert!(figures(&failed).is_empty());
    }

    #[test]
    fn cases_are_those_of_the_tables() {
        let case = KINDS[0].case(Tool::TcpPairwise, true);
        assert_eq!(case, "peers-16/5mbit/64KB/tcp-pairwise+loss1");
    }
}
