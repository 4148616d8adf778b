//! Real kernels in QEMU: cases `qemu-16/...` and `page/bundle`, measured by the end-to-end
//! scenarios.
//!
//! Neighbour: `tests/src/e2e` prints lines `figure CASE METRIC VALUE UNIT`. Key table: [`GOALS`].
//!
//! Invariant: a figure comes from a scenario that passed; one that failed refuses its cases.

use std::process::Stdio;

use anyhow::{Context, Result};

use super::super::{Goal, Report, Row, ready};
use super::row;
use crate::workspace::Workspace;

/// Ticks that the case of the page looks at: two minutes.
const TICKS: &str = "120";

/// A scenario, and the case that it measures.
const SCENARIOS: [(&str, &str); 4] = [
    ("page-bundle", "page/bundle"),
    ("page-latency", "qemu-16/1hz"),
    ("overlay-cp-loss", "qemu-16/cp-loss"),
    ("overlay-teardown", "qemu-16/teardown"),
];

/// What figures shall be.
const GOALS: [(&str, &str, Goal); 6] = [
    ("page/bundle", "bytes", Goal::AtMost(150_000.0)),
    (
        "qemu-16/1hz",
        "sample_to_browser_p99_ms",
        Goal::AtMost(1_000.0),
    ),
    ("qemu-16/1hz", "level_p99_ms", Goal::AtMost(5.0)),
    ("qemu-16/cp-loss", "detect_ms", Goal::AtMost(3_000.0)),
    ("qemu-16/cp-loss", "reattach_ms", Goal::AtMost(1_000.0)),
    ("qemu-16/teardown", "left_over", Goal::AtMost(0.0)),
];

/// Units that scenarios print.
const UNITS: [&str; 5] = ["ms", "nodes", "bytes", "pictures", "ticks of a process"];

/// Every case that was asked for. One run of the scenarios measures all of those on one kind of
/// cluster.
pub fn run(workspace: &Workspace, report: &mut Report) -> Result<()> {
    for kind in ["page/", "qemu-16/"] {
        let of_kind = SCENARIOS.iter().filter(|(_, case)| case.starts_with(kind));
        let wanted: Vec<_> = of_kind.filter(|(_, case)| report.wants(case)).collect();
        if !wanted.is_empty() {
            ready(workspace, report)?;
            measure(workspace, report, &wanted)?;
        }
    }
    Ok(())
}

fn measure(workspace: &Workspace, report: &mut Report, wanted: &[&(&str, &str)]) -> Result<()> {
    let scenarios: Vec<&str> = wanted.iter().map(|(scenario, _)| *scenario).collect();
    report.progress(&format!("end to end: {}", scenarios.join(" ")));
    let mut command = workspace.cargo();
    command.args([
        "run",
        "--quiet",
        "--release",
        "-p",
        "hearth-tests",
        "--bin",
        "e2e",
        "--",
    ]);
    command.args(&scenarios).env("HEARTH_TICKS", TICKS);
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .context("starting the end-to-end scenarios")?;
    let said = String::from_utf8_lossy(&output.stdout);
    for (scenario, case) in wanted {
        let passed = said
            .lines()
            .any(|line| line.trim_start().starts_with("ok ") && line.contains(scenario));
        if !passed {
            let reason = format!("the scenario {scenario} failed:\n{said}");
            report.row(Row::refused(case, "measured", "", reason));
            continue;
        }
        for (found, metric, value, unit) in said.lines().filter_map(figure) {
            if found == *case {
                let goal = GOALS
                    .iter()
                    .find(|goal| (goal.0, goal.1) == (found, metric));
                report.row(row(case, metric, value, unit, goal.map(|goal| goal.2)));
            }
        }
    }
    Ok(())
}

/// `figure CASE METRIC VALUE UNIT`.
fn figure(line: &str) -> Option<(&str, &str, f64, &'static str)> {
    let rest = line.strip_prefix("figure ")?;
    let mut words = rest.splitn(4, ' ');
    let (case, metric) = (words.next()?, words.next()?);
    let value = words.next()?.parse().ok()?;
    let unit = words.next()?;
    let unit = UNITS.into_iter().find(|known| *known == unit)?;
    Some((case, metric, value, unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_and_every_goal_has_a_scenario() {
        let line = "figure qemu-16/1hz level_p99_ms 4.250 ms";
        assert_eq!(
            figure(line),
            Some(("qemu-16/1hz", "level_p99_ms", 4.25, "ms"))
        );
        assert_eq!(figure("  ok      page-latency 1.0 s"), None);
        assert_eq!(figure("figure a b c ms"), None);
        for (case, ..) in GOALS {
            assert!(
                SCENARIOS.iter().any(|(_, measured)| *measured == case),
                "{case}"
            );
        }
    }
}
