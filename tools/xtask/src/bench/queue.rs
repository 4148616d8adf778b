//! A control node with 10,000 waiting jobs: how long a pass and `hearth queue` take; case
//! `queue/10000`.
//!
//! Neighbours: a test of `hearth-control` with 32 nodes that only speak the protocol measures;
//! `alloc` measures the decisions of the queue alone.

use super::control_test::Case;

/// Longest pass, and longest `hearth queue`, in milliseconds.
const PASS_GOAL_MS: f64 = 50.0;
const COMMAND_GOAL_MS: f64 = 200.0;

/// The only case.
pub const CASE: Case = Case {
    name: "queue/10000",
    test: "queue::ten_thousand_jobs_are_listed",
    what: "a control node, 32 nodes and 10,000 jobs",
    goals_ms: &[
        ("pass_worst_ms", PASS_GOAL_MS),
        ("pass_longest_ms", PASS_GOAL_MS),
        ("queue_command_median_ms", COMMAND_GOAL_MS),
        ("queue_command_worst_ms", COMMAND_GOAL_MS),
    ],
};
