//! What the ranks of a job did: the table of `hearth run --report` and `hearth jobs ID`, and the line
//! after every job on a terminal.

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

/// The sums of all ranks on one line, for the end of every job on a terminal.
pub fn line(job: &JobInfo) -> String {
    let sum = |count: fn(&RankReport) -> u64| job.ranks.iter().map(count).sum::<u64>();
    let wall_ms = job
        .ranks
        .iter()
        .map(|rank| rank.wall_ms)
        .fold(0.0, f64::max);
    format!(
        "job {}: {} ranks, {:.2} s; faults {} file, {} zero; pages {} asked, {} ahead, {} of them used; interrupts {} heartbeat, {} time limit, {} monitor, {} nic, {} spurious",
        job.id,
        job.ranks_total,
        wall_ms / 1e3,
        sum(|rank| rank.faults.file),
        sum(|rank| rank.faults.anonymous),
        sum(|rank| rank.pages.asked),
        sum(|rank| rank.pages.read_ahead),
        sum(|rank| rank.pages.used),
        sum(|rank| rank.interrupts.heartbeat),
        sum(|rank| rank.interrupts.time_limit),
        sum(|rank| rank.interrupts.monitor),
        sum(|rank| rank.interrupts.nic),
        sum(|rank| rank.interrupts.spurious),
    )
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_sums_the_ranks() {
        let mut job = crate::cli::run::tests::job(crate::api::types::JobState::Completed, Some(0));
        for number in 0..3 {
            let mut rank = RankReport::new(number, number);
            rank.wall_ms = f64::from(number) * 1000.0;
            rank.faults.file = 10;
            rank.interrupts.heartbeat = 2;
            job.ranks.push(rank);
        }
        let line = line(&job);
        assert!(line.contains("2.00 s; faults 30 file, 0 zero"), "{line}");
        assert!(
            line.contains("interrupts 6 heartbeat, 0 time limit"),
            "{line}"
        );
        assert_eq!(text(&job).lines().count(), 4);
    }
}
