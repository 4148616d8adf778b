//! The CPU time of placement decisions and scheduling passes: cases `TREE/BUSY/KIND` and
//! `queue/POLICY`, with `+named` and `+named-one` where jobs name their nodes.
//!
//! Neighbours: `hearth-replay` measures, in CPU time of its own thread, so that a busy machine
//! does not count.
//!
//! Invariant: what is asked is the same in every run; only the times differ.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{Goal, Report, Row};
use crate::replay;
use crate::workspace::Workspace;

/// Measures all cases that are wanted.
pub fn run(workspace: &Workspace, report: &mut Report) -> Result<()> {
    report.progress("building the optimized program");
    let mut command = replay::command(workspace, "speed");
    if let Some(only) = &report.options.only {
        command.args(["--only", only]);
    }
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .context("starting hearth-replay")?;
    let output = child.stdout.take().context("its output is a pipe")?;
    let mut case = String::new();
    for line in BufReader::new(output).lines() {
        let line = line.context("reading the figures of hearth-replay")?;
        let row = row(&line).with_context(|| format!("hearth-replay printed {line:?}"))?;
        if row.case != case {
            report.progress(&row.case);
            case.clone_from(&row.case);
        }
        report.row(row);
    }
    let status = child.wait().context("waiting for hearth-replay")?;
    ensure!(status.success(), "hearth-replay failed: {status}");
    Ok(())
}

fn row(line: &str) -> Option<Row> {
    let object: Value = serde_json::from_str(line).ok()?;
    let unit = match object["unit"].as_str()? {
        "ms" => "ms of CPU",
        "nodes" => "nodes",
        "jobs" => "jobs",
        _ => return None,
    };
    let (case, metric) = (object["case"].as_str()?, object["metric"].as_str()?);
    let value = object["value"].as_f64()?;
    Some(match object["goal"].as_f64() {
        Some(goal) => Row::goal(case, metric, value, unit, Goal::AtMost(goal)),
        None => Row::context(case, metric, value, unit),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read() {
        let line = r#"{"case":"a/50","metric":"m","value":1.5,"unit":"ms","goal":10.0}"#;
        let row = row(line).unwrap();
        assert_eq!((row.case.as_str(), row.unit), ("a/50", "ms of CPU"));
        assert!(matches!(row.goal, Some(Goal::AtMost(10.0))));
        assert!(super::row("no JSON").is_none());
    }
}
