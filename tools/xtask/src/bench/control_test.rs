//! Cases that a test of `hearth-control` measures, printing one JSON object a line: a whole control
//! node, with nodes that only speak the protocol or with a browser before it.
//!
//! Key type: [`Case`]. Neighbours: `queue` and `overlay::page` have one each.
//!
//! Invariants: the test is built before the machine is asked to be quiet, and figures of one that
//! failed are none. Times with a goal are on the clock, since that is what a user waits for; they
//! are refused where the machine is busy and they miss it.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{LOAD_MOST, Report, Row, quiet};
use crate::workspace::Workspace;

/// A case, and the test that measures it.
pub struct Case {
    /// Its name.
    pub name: &'static str,
    /// The test.
    pub test: &'static str,
    /// What it looks at, for whoever waits.
    pub what: &'static str,
    /// Metrics with the longest time that each shall take, in milliseconds. The others are context.
    pub goals_ms: &'static [(&'static str, f64)],
}

/// What a test printed: metric, value, unit.
type Figure = (String, f64, String);

/// Units that tests print.
const UNITS: [&str; 3] = ["ms", "s", "jobs"];

impl Case {
    /// Measures the case, if it is wanted.
    ///
    /// # Errors
    /// The test does not build, does not start, or fails.
    pub fn run(&self, workspace: &Workspace, report: &mut Report) -> Result<()> {
        if !report.wants(self.name) {
            return Ok(());
        }
        let (figures, load) = self.figures(workspace, report)?;
        let rows = figures.into_iter().filter_map(|of| self.row(of, load));
        rows.for_each(|row| report.row(row));
        Ok(())
    }

    /// Builds and runs the test; gives its figures, and the load of the machine before.
    fn figures(&self, workspace: &Workspace, report: &mut Report) -> Result<(Vec<Figure>, f64)> {
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
        report.progress(self.what);
        let output = workspace
            .cargo()
            .args(test)
            .args(["--", "--ignored", "--exact", "--nocapture", self.test])
            .env("HEARTH_FIGURES", "1")
            .stderr(Stdio::inherit())
            .output()
            .context("starting the test")?;
        ensure!(
            output.status.success(),
            "the test {} failed: {}",
            self.test,
            output.status
        );
        let said = String::from_utf8_lossy(&output.stdout);
        Ok((said.lines().filter_map(figure).collect(), load))
    }

    fn row(&self, (metric, value, unit): Figure, load: f64) -> Option<Row> {
        let unit = UNITS.into_iter().find(|known| *known == unit)?;
        let goal = self.goals_ms.iter().find(|goal| goal.0 == metric);
        let Some((_, most)) = goal else {
            return Some(Row::context(self.name, &metric, value, unit));
        };
        let busy = (load > LOAD_MOST).then(|| format!("load average {load}: {value:.0} {unit}"));
        Some(Row::time(
            self.name,
            &metric,
            value,
            unit,
            Some(*most),
            busy,
        ))
    }
}

fn figure(line: &str) -> Option<Figure> {
    let object: Value = serde_json::from_str(line).ok()?;
    let word = |key: &str| object[key].as_str().map(str::to_string);
    Some((word("metric")?, object["value"].as_f64()?, word("unit")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CASE: Case = Case {
        name: "page/1",
        test: "",
        what: "",
        goals_ms: &[("open_ms", 50.0)],
    };

    #[test]
    fn a_goal_that_is_missed_on_a_busy_machine_is_refused() {
        let open = |ms: f64, load| {
            let figure = ("open_ms".to_string(), ms, "ms".to_string());
            CASE.row(figure, load).unwrap()
        };
        assert!(open(51.0, 9.0).value.is_err());
        assert_eq!(open(51.0, 1.0).ok(), Some(false));
        assert_eq!(open(49.0, 9.0).ok(), Some(true));
        let other = |metric: &str, unit: &str| {
            let figure = (metric.to_string(), 1.0, unit.to_string());
            CASE.row(figure, 1.0)
        };
        assert!(other("stored_s", "s").unwrap().goal.is_none());
        assert!(other("stored_s", "parsecs").is_none());
    }

    #[test]
    fn figures_are_told_from_other_lines() {
        let line = r#"{"metric":"open_ms","unit":"ms","value":51.5}"#;
        let expected = ("open_ms".to_string(), 51.5, "ms".to_string());
        assert_eq!(figure(line), Some(expected));
        assert_eq!(figure("running 1 test"), None);
        assert_eq!(figure("{}"), None);
    }
}
