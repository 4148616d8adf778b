//! Real kernels in QEMU behind limited links: cases `qemu-NODES/RATE/SIZE/SCHEME`.
//!
//! Key type: [`Kind`]. `hearth cast` brings a file into the memory of all nodes, each time another
//! one; the control node's clock says when the last node had it, counters of the interfaces say
//! what moved. Neighbours: `super::super::cluster`.
//!
//! Invariant: a figure is given only when the limits were where they belong: both ends of every
//! link, each with a queue no longer than a switch's.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::super::cluster::{Cluster, Counters};
use super::super::links::{self, Processors, limit_s};
use super::super::{Goal, Report, Row, median, ready};
use super::{RATIO_MOST, payload};
use crate::workspace::Workspace;

/// The interface of the control node, and its name in cases' links.
const SERVICE: &str = "service";
/// Casts of the default scheme, of which medians are taken; the others are there to be seen beside
/// it.
const RUNS: usize = 3;
/// A link may carry so much more than its limit: the token bucket at the start.
const LINK_MOST: f64 = 1.02;

/// What the nodes are, and how much they get.
#[derive(Debug, Clone, Copy)]
struct Kind {
    nodes: usize,
    /// As `hearth up --rate` has it.
    rate: &'static str,
    bits_per_second: u64,
    size: &'static str,
    bytes: u64,
    memory: &'static str,
}

const KINDS: [Kind; 2] = [
    Kind {
        nodes: 16,
        rate: "5mbit",
        bits_per_second: 5_000_000,
        size: "4MB",
        bytes: 4_000_000,
        memory: "64M",
    },
    Kind {
        nodes: 4,
        rate: "20mbit",
        bits_per_second: 20_000_000,
        size: "16MB",
        bytes: 16_000_000,
        memory: "96M",
    },
];

/// Schemes as cases name them, and as `hearth cast --scheme` does; ours first.
const SCHEMES: [(&str, &str); 3] = [
    ("default", "auto"),
    ("published-chunk-first", "published-chunk-first"),
    ("published-node-first", "published-node-first"),
];

/// One cast.
#[derive(Debug, Clone, Copy)]
struct Cast {
    seconds: f64,
    /// Bytes on the control node's link, as charged.
    control_bytes: f64,
    /// The most that one node's link carried to it.
    node_bytes: f64,
    /// Share of the processors' time that nobody used.
    idle: f64,
}

impl Kind {
    /// The rate that fills these links: a cast counts 38 bytes of Ethernet a full datagram of 1,394
    /// (preamble, header, checksum, gap) and 28 of IPv4 and UDP, the limiter 14 and 28.
    fn paced(&self) -> u64 {
        self.bits_per_second * (1_394 + 28 + 38) / (1_394 + 28 + 14)
    }

    fn case(&self, scheme: &str) -> String {
        format!("qemu-{}/{}/{}/{scheme}", self.nodes, self.rate, self.size)
    }
}

/// Every case that was asked for.
pub fn run(workspace: &Workspace, report: &mut Report) -> Result<()> {
    for kind in &KINDS {
        let schemes: Vec<(&str, &str)> = SCHEMES
            .into_iter()
            .filter(|(scheme, _)| report.wants(&kind.case(scheme)))
            .collect();
        if !schemes.is_empty() {
            ready(workspace, report)?;
            measure(workspace, report, kind, &schemes)?;
        }
    }
    Ok(())
}

fn measure(
    workspace: &Workspace,
    report: &mut Report,
    kind: &Kind,
    schemes: &[(&str, &str)],
) -> Result<()> {
    report.progress(&format!("{} nodes, {}: power on", kind.nodes, kind.rate));
    let cluster = Cluster::up(
        workspace,
        "bench-broadcast",
        kind.nodes,
        &["--direct", "--memory", kind.memory, "--rate", kind.rate],
    )?;
    links::check(&cluster, kind.nodes, kind.bits_per_second)?;
    let folder = tempfile::tempdir().context("making a folder for files")?;
    let mut serial = 0;
    for (scheme, option) in schemes {
        let case = kind.case(scheme);
        let runs = if *scheme == SCHEMES[0].0 { RUNS } else { 1 };
        let mut casts = Vec::new();
        let mut failure = None;
        while casts.len() < runs && failure.is_none() {
            report.progress(&case);
            serial += 1;
            match cast(&cluster, kind, option, folder.path(), serial) {
                Ok(cast) => casts.push(cast),
                Err(error) => failure = Some(format!("{error:#}")),
            }
        }
        match failure {
            Some(reason) => report.row(Row::refused(&case, "ratio", "ratio", reason)),
            None => rows(report, kind, scheme, &casts),
        }
    }
    cluster.down()
}

/// Casts a file that no node has, and has it dropped.
fn cast(cluster: &Cluster, kind: &Kind, scheme: &str, folder: &Path, serial: u64) -> Result<Cast> {
    let name = format!("bench-{serial}");
    let path = folder.join(&name);
    let mut bytes = payload(kind.bytes);
    // Another object each time.
    bytes[..8].copy_from_slice(&serial.to_le_bytes());
    fs::write(&path, bytes)?;
    let path = path.to_string_lossy().into_owned();
    let (before, processors) = (cluster.counters()?, Processors::now()?);
    let rate = format!("{}kbit", kind.paced() / 1_000);
    let done = cluster.json(&["cast", &path, "--scheme", scheme, "--rate", &rate])?;
    let (after, idle) = (cluster.counters()?, processors.idle_since()?);
    cluster.run(&["casts", "drop", &name])?;
    fs::remove_file(&path)?;
    let figure = |field: &str| {
        done[field]
            .as_f64()
            .with_context(|| format!("hearth cast --json says no {field}: {done}"))
    };
    ensure!(
        figure("done")? == kind.nodes as f64,
        "not every node got it: {done}"
    );
    let moved = |interface: &str| -> Result<(f64, f64)> {
        let of = |counters: &std::collections::BTreeMap<String, Counters>| {
            counters.get(interface).copied()
        };
        let (from, to) = of(&before)
            .zip(of(&after))
            .with_context(|| format!("{interface} is gone"))?;
        let received = to.received.bytes - from.received.bytes;
        Ok((received as f64, (to.sent.bytes - from.sent.bytes) as f64))
    };
    let mut node_bytes: f64 = 0.0;
    for node in 0..kind.nodes {
        node_bytes = node_bytes.max(moved(&format!("n{node}"))?.1);
    }
    Ok(Cast {
        seconds: figure("ms")? / 1e3,
        control_bytes: moved(SERVICE)?.1,
        node_bytes,
        idle,
    })
}

fn rows(report: &mut Report, kind: &Kind, scheme: &str, casts: &[Cast]) {
    let case = kind.case(scheme);
    let limit = limit_s(kind.bytes, kind.bits_per_second);
    let limit_bytes = limit * kind.bits_per_second as f64 / 8.0;
    let middle = |of: fn(&Cast) -> f64| median(casts.iter().map(of));
    let (seconds, idle) = (middle(|cast| cast.seconds), middle(|cast| cast.idle));
    let ratio = seconds / limit;
    let context = |metric, value, unit| Row::context(&case, metric, value, unit);
    let most = (scheme == SCHEMES[0].0).then_some(RATIO_MOST);
    let busy = links::busy(idle, ratio);
    report.row(Row::time(&case, "ratio", ratio, "ratio", most, busy));
    report.row(context("seconds", seconds, "s"));
    let copies = middle(|cast| cast.control_bytes) / limit_bytes;
    report.row(context("control_copies", copies, "copies"));
    let received = middle(|cast| cast.node_bytes) / limit_bytes;
    report.row(context("node_received_most", received, "copies"));
    let load = casts
        .iter()
        .map(|cast| cast.control_bytes.max(cast.node_bytes) / cast.seconds)
        .fold(0.0, f64::max)
        * 8.0
        / kind.bits_per_second as f64;
    report.row(Row::goal(
        &case,
        "link_rate_most",
        load,
        "of the limit",
        Goal::AtMost(LINK_MOST),
    ));
    report.row(context("processors_idle", idle, "share"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_those_of_the_tables() {
        assert_eq!(KINDS[0].case(SCHEMES[0].0), "qemu-16/5mbit/4MB/default");
        assert_eq!(
            KINDS[1].case(SCHEMES[2].0),
            "qemu-4/20mbit/16MB/published-node-first"
        );
        assert_eq!(KINDS[1].paced(), 20_334_261);
    }
}
