//! The table of `hearth run --report`: what each rank did.

use super::table;
use crate::api::types::{JobInfo, RankReport};
use crate::jobs::record;

/// The table as text.
pub fn text(job: &JobInfo) -> String {
    let mut rows = table::new(&[
        "RANK",
        "NODE",
        "END",
        "USER_MS",
        "WALL_MS",
        "CALLS",
        "FILE_FAULTS",
        "ANON_FAULTS",
        "ASKED",
        "AHEAD",
        "USED",
        "HEARTBEAT",
        "TIMELIMIT",
        "MONITOR",
        "NIC",
        "SPURIOUS",
        "SCRUBBED",
        "UNKNOWN_CALLS",
    ]);
    for rank in &job.ranks {
        rows.add_row(row(rank));
    }
    table::text(&rows)
}

fn row(rank: &RankReport) -> Vec<String> {
    let interrupts = &rank.interrupts;
    let unknown: Vec<String> = rank
        .unknown_calls
        .iter()
        .map(|call| format!("{}x{}", call.number, call.count))
        .collect();
    let numbers = [
        rank.calls,
        rank.faults.file,
        rank.faults.anonymous,
        rank.pages.asked,
        rank.pages.read_ahead,
        rank.pages.used,
        interrupts.heartbeat,
        interrupts.time_limit,
        interrupts.monitor,
        interrupts.nic,
        interrupts.spurious,
        rank.frames_scrubbed,
    ];
    let mut row = vec![
        rank.rank.to_string(),
        rank.node.clone(),
        rank.end.map_or_else(|| "-".to_string(), record::short_end),
        format!("{:.1}", rank.user_ms),
        format!("{:.1}", rank.wall_ms),
    ];
    row.extend(numbers.iter().map(u64::to_string));
    row.push(if unknown.is_empty() {
        "-".to_string()
    } else {
        unknown.join(",")
    });
    row
}
