//! A control node with 10,000 waiting jobs: how long a pass and `hearth queue` take; case `queue/10000`.
//!
//! Neighbours: a test of `hearth-control` with 32 nodes that only speak the protocol measures; `alloc` measures the decisions of the queue alone.
//!
//! Invariant: times on the clock, since that is what a user waits for; they are refused where the machine is
//! busy and they miss their goal.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{LOAD_MOST, Report, Row, quiet};
use crate::workspace::Workspace;

/// The only case.
const CASE: &str = "queue/10000";
/// Longest pass, and longest `hearth queue`, in milliseconds.
const PASS_GOAL_MS: f64 = 50.0;
const COMMAND_GOAL_MS: f64 = 200.0;

/// Measures the case, if it is wanted.
pub fn run(workspace: &Workspace, report: &mut Report) -> Result<()> {
    if !report.wants(CASE) {
        return Ok(());
    }
    report.progress("building the tests of hearth-control");
    let test = [
        "test",
        "--quiet",
        "-p",
        "hearth-control",
        "--test",
        "control",
    ];
    let built = workspace.cargo().args(test).arg("--no-run").status();
    ensure!(
        built.context("starting cargo")?.success(),
        "the tests of hearth-control do not build"
    );
    let load = quiet(report);
    report.progress("a control node, 32 nodes and 10,000 jobs");
    let mut child = workspace
        .cargo()
        .args(test)
        .args(["--", "--ignored", "--exact", "--nocapture"])
        .arg("queue::ten_thousand_jobs_are_listed")
        .stdout(Stdio::piped())
        .spawn()
        .context("starting the test")?;
    let output = child.stdout.take().context("its output is a pipe")?;
    for line in BufReader::new(output).lines() {
        let line = line.context("reading the figures")?;
        if let Some(row) = row(&line, load) {
            report.row(row);
        }
    }
    let status = child.wait().context("waiting for the test")?;
    ensure!(status.success(), "the test failed: {status}");
    Ok(())
}

fn row(line: &str, load: f64) -> Option<Row> {
    let object: Value = serde_json::from_str(line).ok()?;
    let unit = match object["unit"].as_str()? {
        "ms" => "ms",
        "jobs" => "jobs",
        _ => return None,
    };
    let (metric, value) = (object["metric"].as_str()?, object["value"].as_f64()?);
    let most = match metric {
        "pass_worst_ms" | "pass_longest_ms" => PASS_GOAL_MS,
        "queue_command_median_ms" | "queue_command_worst_ms" => COMMAND_GOAL_MS,
        _ => return Some(Row::context(CASE, metric, value, unit)),
    };
    let busy = (load > LOAD_MOST).then(|| format!("load average {load}: {value:.0} {unit}"));
    Some(Row::time(CASE, metric, value, unit, Some(most), busy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_that_is_missed_on_a_busy_machine_is_refused() {
        let line = r#"{"metric":"pass_worst_ms","unit":"ms","value":51.0}"#;
        assert!(row(line, 9.0).unwrap().value.is_err());
        assert_eq!(row(line, 1.0).unwrap().ok(), Some(false));
        let line = r#"{"metric":"pass_worst_ms","unit":"ms","value":49.0}"#;
        assert_eq!(row(line, 9.0).unwrap().ok(), Some(true));
        assert!(row("running 1 test", 1.0).is_none());
    }
}
