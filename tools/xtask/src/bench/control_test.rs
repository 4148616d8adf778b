//! Figures that a test of `hearth-control` prints, one JSON object a line: a whole control node, with nodes that only speak
//! the protocol or with a browser before it.
//!
//! Neighbours: `queue` and `overlay::page` name the test and its goals.
//!
//! Invariant: the test is built before the machine is asked to be quiet, and figures of one that failed are none.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{Report, quiet};
use crate::workspace::Workspace;

/// What was printed: metric, value, unit.
pub type Figure = (String, f64, String);

/// Builds and runs the test `name`; gives its figures, and the load of the machine before.
///
/// # Errors
/// It does not build, does not start, or fails.
pub fn figures(
    workspace: &Workspace,
    report: &mut Report,
    (name, what): (&str, &str),
) -> Result<(Vec<Figure>, f64)> {
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
    report.progress(what);
    let output = workspace
        .cargo()
        .args(test)
        .args(["--", "--ignored", "--exact", "--nocapture", name])
        .env("HEARTH_FIGURES", "1")
        .stderr(Stdio::inherit())
        .output()
        .context("starting the test")?;
    ensure!(
        output.status.success(),
        "the test {name} failed: {}",
        output.status
    );
    let said = String::from_utf8_lossy(&output.stdout);
    Ok((said.lines().filter_map(figure).collect(), load))
}

fn figure(line: &str) -> Option<Figure> {
    let object: Value = serde_json::from_str(line).ok()?;
    let word = |key: &str| object[key].as_str().map(str::to_string);
    Some((word("metric")?, object["value"].as_f64()?, word("unit")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_told_from_other_lines() {
        let line = r#"{"metric":"open_ms","unit":"ms","value":51.5}"#;
        let expected = ("open_ms".to_string(), 51.5, "ms".to_string());
        assert_eq!(figure(line), Some(expected));
        assert_eq!(figure("running 1 test"), None);
        assert_eq!(figure("{}"), None);
    }
}
