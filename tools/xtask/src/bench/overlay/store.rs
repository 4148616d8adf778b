//! The files that the control node keeps: cases `store/...`.
//!
//! Neighbours: `monitor-bench` of `hearth-monitor` measures the store, in CPU time of its own
//! process.
//!
//! Invariant: the hour that is stored is the same in every run; only the times differ.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::super::{Goal, Report, Row};
use crate::workspace::Workspace;

/// The case that the program measures.
const STORE: &str = "store/1024x32";

/// Measures all cases that are wanted.
pub fn run(workspace: &Workspace, report: &mut Report) -> Result<()> {
    if !report.wants(STORE) {
        return Ok(());
    }
    report.progress("building the optimized program");
    let mut command = workspace.cargo();
    command.args(["run", "--quiet", "--release", "-p", "hearth-monitor"]);
    command.args(["--bin", "monitor-bench"]);
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .context("starting monitor-bench")?;
    let output = child.stdout.take().context("its output is a pipe")?;
    report.progress(STORE);
    for line in BufReader::new(output).lines() {
        let line = line.context("reading the figures of monitor-bench")?;
        let row = row(&line).with_context(|| format!("monitor-bench printed {line:?}"))?;
        report.row(row);
    }
    let status = child.wait().context("waiting for monitor-bench")?;
    ensure!(status.success(), "monitor-bench failed: {status}");
    Ok(())
}

fn row(line: &str) -> Option<Row> {
    let object: Value = serde_json::from_str(line).ok()?;
    let unit = match object["unit"].as_str()? {
        "values a second of CPU" => "values a second of CPU",
        "ms of CPU" => "ms of CPU",
        "bytes" => "bytes",
        "ms" => "ms",
        "s" => "s",
        _ => return None,
    };
    let (case, metric) = (object["case"].as_str()?, object["metric"].as_str()?);
    let value = object["value"].as_f64()?;
    let goal = match object["goal"].as_str() {
        None => return Some(Row::context(case, metric, value, unit)),
        Some(goal) => match goal.split_once(' ')? {
            ("<=", most) => Goal::AtMost(most.parse().ok()?),
            (">=", least) => Goal::AtLeast(least.parse().ok()?),
            _ => return None,
        },
    };
    Some(Row::goal(case, metric, value, unit, goal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read() {
        let line = r#"{"case":"a","metric":"m","value":2,"unit":"bytes","goal":"<= 6"}"#;
        assert!(matches!(row(line).unwrap().goal, Some(Goal::AtMost(6.0))));
        let line = r#"{"case":"a","metric":"m","value":2,"unit":"s","goal":null}"#;
        assert!(row(line).unwrap().goal.is_none());
        assert!(row("no JSON").is_none());
    }
}
