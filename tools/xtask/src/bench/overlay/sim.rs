//! The simulator at scale: cases `sim-16384/...`.
//!
//! Neighbours: `netstack-sim` runs them; `cargo xtask sim overlay` is the same by hand. Key table:
//! [`CASES`].
//!
//! Invariant: every figure comes from a run whose checker held the books against what its nodes
//! submitted.

use std::process::Stdio;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::super::{Goal, Report, Row};
use super::row;
use crate::workspace::Workspace;

/// Beyond its slowest child, or the wait for it, a level takes at most this.
const LEVEL_MOST_US: f64 = 5_000.0;
/// From the death of a process until its children have another parent: three seconds to notice, one
/// to move.
const MOVED_MOST_US: f64 = 4_000_000.0;
/// Until the tree is down.
const DOWN_MOST_MS: f64 = 2_000.0;

/// Name and arguments after `cargo xtask sim overlay --nodes 16384`.
const CASES: [(&str, &[&str]); 3] = [
    ("sim-16384/quiet", &[]),
    ("sim-16384/loss1", &["--loss=1"]),
    ("sim-16384/cp-loss", &["--fault=kill-cp:20@6500ms"]),
];

/// Every case that was asked for.
pub fn run(workspace: &Workspace, report: &mut Report) -> Result<()> {
    for (case, arguments) in CASES {
        if !report.wants(case) {
            continue;
        }
        report.progress(&format!("{case}: simulating"));
        match simulate(workspace, arguments) {
            Ok(figures) => show(report, case, &figures)?,
            Err(error) => {
                report.row(Row::refused(case, "measured", "", format!("{error:#}")));
            }
        }
    }
    Ok(())
}

fn simulate(workspace: &Workspace, arguments: &[&str]) -> Result<Value> {
    let mut command = crate::sim::command(workspace);
    command
        .args(["overlay", "--json", "--quiet", "--nodes", "16384"])
        .args(arguments)
        .stderr(Stdio::inherit());
    let output = command.output().context("starting the simulator")?;
    if !output.status.success() {
        bail!("the simulator found an error");
    }
    serde_json::from_slice(&output.stdout).context("the simulator printed no figures")
}

fn show(report: &mut Report, case: &str, figures: &Value) -> Result<()> {
    let number = |value: &Value, name: &str| {
        value[name]
            .as_f64()
            .with_context(|| format!("the simulator gave no {name}"))
    };
    let mut give = |metric: &str, value: f64, unit: &'static str, goal: Option<Goal>| {
        report.row(row(case, metric, value, unit, goal));
    };
    let levels = figures["levels"].as_array().context("no levels")?;
    let levels: Vec<&Value> = levels.iter().chain([&figures["front_end"]]).collect();
    // On a network without faults no level waits for its time-out.
    let quiet = case.ends_with("/quiet");
    for (height, pair) in (1..).zip(levels.windows(2)) {
        let below = number(pair[0], "p99_us")?;
        let own = number(pair[1], "p99_us")? - below;
        let goal = quiet.then_some(Goal::AtMost(LEVEL_MOST_US));
        give(&format!("level_{height}_p99_us"), own, "us", goal);
    }
    let front = &figures["front_end"];
    give("handed_over_p50_us", number(front, "p50_us")?, "us", None);
    give("handed_over_p99_us", number(front, "p99_us")?, "us", None);
    if let Some(ms) = figures["build_ms"].as_f64() {
        give("build_ms", ms, "ms", None);
    }
    let each = "messages a node and second";
    let messages = number(figures, "messages_per_node_second")?;
    give("messages", messages, each, None);
    let bytes = number(figures, "bytes_per_node_second")?;
    give("wire", bytes, "bytes a node and second", None);
    let (sent, stored) = (number(figures, "sent")?, number(figures, "stored")?);
    let covered = (stored + number(figures, "filtered")?) / sent;
    give("covered", covered, "share", None);
    let moved = &figures["reattach"];
    if number(moved, "count")? > 0.0 {
        let goal = Goal::AtMost(MOVED_MOST_US);
        give(
            "reattached_most_us",
            number(moved, "most_us")?,
            "us",
            Some(goal),
        );
        let without = number(figures, "orphans_left")?;
        give(
            "without_parent",
            without,
            "processes",
            Some(Goal::AtMost(0.0)),
        );
    }
    let down = number(figures, "down_ms")?;
    give("down_ms", down, "ms", Some(Goal::AtMost(DOWN_MOST_MS)));
    let left = number(figures, "left_over")?;
    give("left_over", left, "nodes", Some(Goal::AtMost(0.0)));
    Ok(())
}
