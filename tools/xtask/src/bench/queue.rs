//! A control node with 10,000 waiting jobs: how long a pass and `hearth queue` take; case `queue/10000`.
//!
//! Neighbours: a test of `hearth-control` with 32 nodes that only speak the protocol measures; `alloc` measures the decisions of the queue alone.
//!
//! Invariant: times on the clock, since that is what a user waits for; they are refused where the machine is
//! busy and they miss their goal.

use anyhow::Result;

use super::{LOAD_MOST, Report, Row, control_test};
use crate::workspace::Workspace;

/// The only case, and the test that measures it.
const CASE: &str = "queue/10000";
const TEST: (&str, &str) = (
    "queue::ten_thousand_jobs_are_listed",
    "a control node, 32 nodes and 10,000 jobs",
);
/// Longest pass, and longest `hearth queue`, in milliseconds.
const PASS_GOAL_MS: f64 = 50.0;
const COMMAND_GOAL_MS: f64 = 200.0;

/// Measures the case, if it is wanted.
pub fn run(workspace: &Workspace, report: &mut Report) -> Result<()> {
    if !report.wants(CASE) {
        return Ok(());
    }
    let (figures, load) = control_test::figures(workspace, report, TEST)?;
    for figure in figures {
        if let Some(row) = row(figure, load) {
            report.row(row);
        }
    }
    Ok(())
}

fn row((metric, value, unit): control_test::Figure, load: f64) -> Option<Row> {
    let unit = match &unit[..] {
        "ms" => "ms",
        "jobs" => "jobs",
        _ => return None,
    };
    let most = match &metric[..] {
        "pass_worst_ms" | "pass_longest_ms" => PASS_GOAL_MS,
        "queue_command_median_ms" | "queue_command_worst_ms" => COMMAND_GOAL_MS,
        _ => return Some(Row::context(CASE, &metric, value, unit)),
    };
    let busy = (load > LOAD_MOST).then(|| format!("load average {load}: {value:.0} {unit}"));
    Some(Row::time(CASE, &metric, value, unit, Some(most), busy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_that_is_missed_on_a_busy_machine_is_refused() {
        let worst = |ms: f64| ("pass_worst_ms".to_string(), ms, "ms".to_string());
        assert!(row(worst(51.0), 9.0).unwrap().value.is_err());
        assert_eq!(row(worst(51.0), 1.0).unwrap().ok(), Some(false));
        assert_eq!(row(worst(49.0), 9.0).unwrap().ok(), Some(true));
        let other = ("n".to_string(), 1.0, "parsecs".to_string());
        assert!(row(other, 1.0).is_none());
    }
}
