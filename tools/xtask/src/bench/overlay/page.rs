//! The page in a browser on an hour of 1,024 nodes: case `page/1024x32`.
//!
//! Neighbour: the test `hour` of `hearth-control` stores the hour, opens the page and looks at it.
//!
//! Invariant: times on the clock from the begin of the page to what a user sees; they are refused where the machine is
//! busy and they miss their goal.

use anyhow::Result;

use super::super::{LOAD_MOST, Report, Row, control_test};
use crate::workspace::Workspace;

/// The case, and the test that measures it.
const CASE: &str = "page/1024x32";
const TEST: (&str, &str) = (
    "hour::an_hour_of_a_thousand_nodes_opens_on_the_page",
    "an hour of 1,024 nodes, and a browser",
);
/// Longest median until the page shows all nodes and the first line, and until the line of the hour is there.
const GOAL_MS: f64 = 1_000.0;

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
    match &metric[..] {
        "open_ms" | "hour_ms" => {
            let busy =
                (load > LOAD_MOST).then(|| format!("load average {load}: {value:.0} {unit}"));
            Some(Row::time(CASE, &metric, value, "ms", Some(GOAL_MS), busy))
        }
        "stored_s" => Some(Row::context(CASE, &metric, value, "s")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_page_misses_its_goal() {
        let open = |ms: f64| ("open_ms".to_string(), ms, "ms".to_string());
        assert_eq!(row(open(1_001.0), 1.0).unwrap().ok(), Some(false));
        assert_eq!(row(open(999.0), 9.0).unwrap().ok(), Some(true));
        let other = ("n".to_string(), 1.0, "ms".to_string());
        assert!(row(other, 1.0).is_none());
    }
}
