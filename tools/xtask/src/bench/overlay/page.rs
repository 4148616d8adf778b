//! The page in a browser on an hour of 1,024 nodes: case `page/1024x32`.
//!
//! Neighbour: the test `hour` of `hearth-control` stores the hour, opens the page and looks at it.

use super::super::control_test::Case;

/// Longest median until the page shows all nodes and the first line, and until the line of the hour
/// is there.
const GOAL_MS: f64 = 1_000.0;

/// The only case: times from the begin of the page to what a user sees.
pub const CASE: Case = Case {
    name: "page/1024x32",
    test: "hour::an_hour_of_a_thousand_nodes_opens_on_the_page",
    what: "an hour of 1,024 nodes, and a browser",
    goals_ms: &[("open_ms", GOAL_MS), ("hour_ms", GOAL_MS)],
};
