//! Real kernels in QEMU: exchanges behind limited links, cases `qemu-NODES/RATE/SIZE/SCHEME`, and
//! the latency of small operations, cases `qemu-16/latency`.
//!
//! Key type: [`Kind`]. The program `ranks-time` measures with the nodes' clocks, and compares every
//! byte. Neighbours: `super::super::{cluster, links}`.
//!
//! Invariant: a figure is given only when the limits were where they belong, and the processors had
//! something left over.

use anyhow::{Context, Result, ensure};

use super::super::cluster::Cluster;
use super::super::links::{self, Processors};
use super::super::{Report, Row, median, ready};
use super::limit_s;
use crate::workspace::Workspace;

/// What an exchange shall need at most.
const RATIO_MOST: f64 = 1.15;
/// Exchanges in one job, of which the median is taken.
const REPEATS: &str = "9";
/// Exchanges in a job before it: the program's pages come in, and the emulator translates what an
/// exchange of this size runs, which takes it longer than the exchange. Otherwise the scheme that
/// is first in a cluster pays for all.
const WARM_UP: &str = "3";
/// Nodes of the measurement of small operations.
const LATENCY_NODES: usize = 16;

/// What the nodes are, and how much each sends to each.
#[derive(Debug, Clone, Copy)]
struct Kind {
    nodes: usize,
    /// As `hearth up --rate` has it.
    rate: &'static str,
    bits_per_second: u64,
    size: &'static str,
    bytes: u64,
}

const KINDS: [Kind; 4] = [
    Kind {
        nodes: 16,
        rate: "5mbit",
        bits_per_second: 5_000_000,
        size: "64KB",
        bytes: 64_000,
    },
    Kind {
        nodes: 16,
        rate: "20mbit",
        bits_per_second: 20_000_000,
        size: "64KB",
        bytes: 64_000,
    },
    Kind {
        nodes: 8,
        rate: "5mbit",
        bits_per_second: 5_000_000,
        size: "64KB",
        bytes: 64_000,
    },
    Kind {
        nodes: 8,
        rate: "20mbit",
        bits_per_second: 20_000_000,
        size: "256KB",
        bytes: 256_000,
    },
];

/// Schemes as cases and `HEARTH_EXCHANGE` name them; ours first.
const SCHEMES: [&str; 3] = ["default", "published", "published-L=4"];

/// Operations whose latency is measured, as the metric names them, and what `ranks-time` is told:
/// in the last one ranks that wait do not halt their processors.
const SMALL: [(&str, &[&str]); 3] = [
    ("send_receive_8_bytes", &["latency", "0", "9"]),
    ("barrier", &["barrier", "0", "9"]),
    ("send_receive_8_bytes_spin", &["latency", "0", "9", "spin"]),
];

impl Kind {
    fn case(&self, scheme: &str) -> String {
        format!("qemu-{}/{}/{}/{scheme}", self.nodes, self.rate, self.size)
    }
}

/// Every case that was asked for.
pub fn run(workspace: &Workspace, report: &mut Report) -> Result<()> {
    for kind in &KINDS {
        let wants = |scheme: &&str| report.wants(&kind.case(scheme));
        let schemes: Vec<&str> = SCHEMES.into_iter().filter(wants).collect();
        if !schemes.is_empty() {
            ready(workspace, report)?;
            measure(workspace, report, kind, &schemes)?;
        }
    }
    let case = format!("qemu-{LATENCY_NODES}/latency");
    if report.wants(&case) {
        ready(workspace, report)?;
        latency(workspace, report, &case)?;
    }
    Ok(())
}

fn measure(
    workspace: &Workspace,
    report: &mut Report,
    kind: &Kind,
    schemes: &[&str],
) -> Result<()> {
    report.progress(&format!("{} nodes, {}: power on", kind.nodes, kind.rate));
    let options = ["--direct", "--memory", "64M", "--rate", kind.rate];
    let cluster = Cluster::up(workspace, "bench-exchange", kind.nodes, &options)?;
    links::check(&cluster, kind.nodes, kind.bits_per_second)?;
    for scheme in schemes {
        let case = kind.case(scheme);
        report.progress(&case);
        let setting = format!("scheme={scheme}");
        let bytes = kind.bytes.to_string();
        let arguments = ["exchange", &bytes, REPEATS];
        let first = ["exchange", &bytes, WARM_UP];
        let outcome = seconds(workspace, &cluster, kind.nodes, &setting, &first).and_then(|_| {
            let processors = Processors::now()?;
            let all = seconds(workspace, &cluster, kind.nodes, &setting, &arguments)?;
            Ok((all, processors.idle_since()?))
        });
        match outcome {
            Err(error) => {
                report.row(Row::refused(&case, "ratio", "ratio", format!("{error:#}")));
            }
            Ok((all, idle)) => rows(report, kind, scheme, &all, idle),
        }
    }
    cluster.down()
}

/// Runs `ranks-time`; the seconds that it prints.
fn seconds(
    workspace: &Workspace,
    cluster: &Cluster,
    nodes: usize,
    setting: &str,
    arguments: &[&str],
) -> Result<Vec<f64>> {
    let program = workspace.programs().join("ranks-time");
    let (nodes, program) = (nodes.to_string(), program.to_string_lossy().into_owned());
    let setting = format!("HEARTH_EXCHANGE={setting}");
    let mut command = vec!["run", "-n", &nodes, "--env", &setting, &program];
    command.extend(arguments);
    let said = cluster.run(&command)?;
    let line = said.lines().find_map(|line| line.split_once(" seconds "));
    let (_, figures) = line.with_context(|| format!("ranks-time says {said:?}"))?;
    let all: Result<Vec<f64>, _> = figures.split_whitespace().map(str::parse).collect();
    let all = all.with_context(|| format!("ranks-time says {said:?}"))?;
    ensure!(!all.is_empty(), "ranks-time gave no figure");
    Ok(all)
}

fn rows(report: &mut Report, kind: &Kind, scheme: &str, all: &[f64], idle: f64) {
    let case = kind.case(scheme);
    let limit = limit_s(kind.nodes, kind.bytes, kind.bits_per_second);
    let middle = median(all.iter().copied());
    let ratio = middle / limit;
    let goal = (scheme == SCHEMES[0]).then_some(RATIO_MOST);
    let busy = links::busy(idle, ratio);
    report.row(Row::time(&case, "ratio", ratio, "ratio", goal, busy));
    let context = |metric, value, unit| Row::context(&case, metric, value, unit);
    let most = all.iter().copied().fold(0.0, f64::max);
    report.row(context("ratio_most", most / limit, "ratio"));
    report.row(context("seconds", middle, "s"));
    report.row(context("processors_idle", idle, "share"));
}

/// Small operations on links without limits, in round trips of an ICMP echo between control and a
/// node.
fn latency(workspace: &Workspace, report: &mut Report, case: &str) -> Result<()> {
    report.progress(&format!("{LATENCY_NODES} nodes: power on"));
    let options = ["--direct", "--memory", "48M"];
    let cluster = Cluster::up(workspace, "bench-exchange", LATENCY_NODES, &options)?;
    for (metric, arguments) in SMALL {
        report.progress(&format!("{case}: {metric}"));
        let all = seconds(workspace, &cluster, LATENCY_NODES, "", arguments)?;
        let ping_s = cluster.round_trip_ms()? / 1e3;
        let middle = median(all.into_iter());
        report.row(Row::context(case, metric, middle / ping_s, "round trips"));
        report.row(Row::context(
            case,
            &format!("{metric}_ms"),
            middle * 1e3,
            "ms",
        ));
        report.row(Row::context(case, "round_trip_ms", ping_s * 1e3, "ms"));
    }
    cluster.down()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_those_of_the_tables() {
        assert_eq!(KINDS[0].case(SCHEMES[0]), "qemu-16/5mbit/64KB/default");
        assert_eq!(KINDS[3].case(SCHEMES[1]), "qemu-8/20mbit/256KB/published");
    }
}
