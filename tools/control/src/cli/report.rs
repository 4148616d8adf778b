//! What the ranks of a job did and what its launch cost: the line and the tables of `hearth run
//! --report`, the tables of `hearth jobs ID`, and the short one of `hearth job ID`.
//!
//! Neighbours: `api::types` (where the numbers come from), `table`.

use super::table;
use crate::api::types::{
    CastCounts, FaultCounts, JobInfo, LaunchTotals, LoadReport, RankEnd, RankReport,
    RetainedCounts, WireCounts,
};
use crate::jobs::record;
use crate::output;

/// Both tables as text: what each rank did; what its launch cost, and the sums.
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
        "CAST",
        "SPURIOUS",
        "SCRUBBED",
        "UNKNOWN_CALLS",
    ]);
    for rank in &job.ranks {
        rows.add_row(row(rank));
    }
    let did = table::text(&rows);
    let mut text = did;
    if let Some(totals) = LaunchTotals::of(&job.ranks) {
        text = format!("{text}\n{}", launch_text(job, &totals));
    }
    if let Some(load) = &job.load {
        text = format!("{text}\n{}\n", load_line(load));
    }
    text
}

/// What became of each rank, in a table for terminals of 80 columns.
pub fn brief(job: &JobInfo) -> String {
    let mut rows = table::new(&[
        "RANK", "NODE", "END", "USER_MS", "WALL_MS", "CALLS", "LAUNCH",
    ]);
    for rank in &job.ranks {
        let mut row = row(rank);
        row.truncate(6);
        let launch = if rank.warm { "warm" } else { "cold" };
        row.push(table::or_dash(rank.ran().then_some(launch)));
        rows.add_row(row);
    }
    let counts = format!("`hearth jobs {}` has all that its ranks counted.", job.id);
    format!("{}{counts}\n", table::text(&rows))
}

/// How the program reached the nodes.
fn load_line(load: &LoadReport) -> String {
    let because = match &load.reason[..] {
        "" => String::new(),
        reason => format!(" ({reason})"),
    };
    if load.cast.is_none() {
        let nodes = match load.cold {
            0 => "all nodes held it".to_string(),
            cold => format!("{} did not hold it", output::count(cold, "node")),
        };
        return format!("load: {}{because}, {nodes}", load.mode);
    }
    format!(
        "load: {}{because}: {} of {} had the whole program after {:.2} s (sent once over one link: {:.2} s); of {} the control node sent {} ({} bytes), nodes sent one another {} bytes; {} held it before",
        load.mode,
        load.done,
        output::count(load.cold, "node"),
        load.ms / 1e3,
        load.limit_ms / 1e3,
        output::count(load.blocks, "block"),
        load.blocks_sent,
        load.bytes_sent,
        load.bytes_from_nodes,
        output::count(load.holders, "node")
    )
}

/// The table of launches, with the sums in its last line.
fn launch_text(job: &JobInfo, totals: &LaunchTotals) -> String {
    let mut rows = table::new(&[
        "RANK",
        "NODE",
        "LAUNCH",
        "RETAINED",
        "KEPT",
        "DISCARDED",
        "DAMAGED",
        "SCRUBBED",
        "CODE",
        "READONLY",
        "DATA",
        "ZERO",
        "STACK",
        "HELD",
        "COPIED",
        "WIRE_BYTES",
        "MESSAGES",
        "FROM_CAST",
        "AWAITED",
        "FIRST_MS",
        "EXIT_MS",
        "NODE_MS",
    ]);
    for rank in job.ranks.iter().filter(|rank| rank.ran()) {
        let launch = if rank.warm { "warm" } else { "cold" };
        let node_ms = rank.node_first_us as f64 / 1e3;
        rows.add_row(launch_row(
            [&rank.rank.to_string(), &rank.node, launch],
            (&rank.retained, rank.frames_scrubbed),
            &rank.faults,
            (&rank.wire, &rank.cast),
            [rank.first_ms, rank.exit_ms, Some(node_ms)],
        ));
    }
    let warm = format!("{}/{} warm", totals.warm, totals.ranks);
    rows.add_row(launch_row(
        ["all", "-", &warm],
        (&totals.retained, totals.frames_scrubbed),
        &totals.faults,
        (&totals.wire, &totals.cast),
        [totals.first_ms, totals.exit_ms, None],
    ));
    table::text(&rows)
}

fn launch_row(
    who: [&str; 3],
    (retained, scrubbed): (&RetainedCounts, u64),
    faults: &FaultCounts,
    (wire, cast): (&WireCounts, &CastCounts),
    times_ms: [Option<f64>; 3],
) -> Vec<String> {
    let numbers = [
        retained.reused,
        retained.kept,
        retained.discarded,
        retained.damaged,
        scrubbed,
        faults.code,
        faults.readonly,
        faults.data,
        faults.zero,
        faults.stack,
        faults.held,
        faults.copied,
        wire.bytes,
        wire.messages,
        cast.pages,
        cast.awaited,
    ];
    let mut row: Vec<String> = who.iter().map(|word| (*word).to_string()).collect();
    row.extend(numbers.iter().map(u64::to_string));
    let shown = |ms: Option<f64>| table::or_dash(ms.map(|ms| format!("{ms:.2}")));
    row.extend(times_ms.map(shown));
    row
}

/// The sums of all ranks on one line.
pub fn line(job: &JobInfo) -> String {
    let sum = |count: fn(&RankReport) -> u64| job.ranks.iter().map(count).sum::<u64>();
    let wall_ms = job
        .ranks
        .iter()
        .map(|rank| rank.wall_ms)
        .fold(0.0, f64::max);
    format!(
        "job {}: {}, {} of them warm, {:.2} s; page faults: {} on the program's file, {} on pages of zeros; pages: {} kept from earlier launches, {} fetched, {} read ahead ({} of these used); interrupts: {} heartbeat, {} time limit, {} monitoring, {} network, {} spurious",
        job.id,
        output::count(job.ranks_total, "rank"),
        sum(|rank| u64::from(rank.warm)),
        wall_ms / 1e3,
        sum(|rank| rank.faults.file),
        sum(|rank| rank.faults.anonymous),
        sum(|rank| rank.retained.reused),
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
        .map(|call| format!("{}x{}", call.count, call.name()))
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
        interrupts.cast,
        interrupts.spurious,
        rank.frames_scrubbed,
    ];
    // A node tells all of it when its rank has ended.
    let told = rank.end.is_some_and(|end| end != RankEnd::NodeLost);
    let shown = |text: String| table::or_dash(told.then_some(text));
    let mut row = vec![
        rank.rank.to_string(),
        rank.node.clone(),
        rank.end.map_or_else(|| "-".to_string(), record::short_end),
        shown(format!("{:.1}", rank.user_ms)),
        shown(format!("{:.1}", rank.wall_ms)),
    ];
    row.extend(numbers.iter().map(|number| shown(number.to_string())));
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
    use crate::api::types::{JobState, UnknownCall};

    fn job() -> JobInfo {
        let mut job = crate::cli::run::tests::job(JobState::Completed, Some(0));
        for number in 0..3 {
            let mut rank = RankReport::new(number, number);
            rank.end = Some(RankEnd::Exited(0));
            rank.wall_ms = f64::from(number) * 1000.0;
            rank.faults.file = 10;
            rank.faults.code = 7;
            rank.interrupts.heartbeat = 2;
            rank.warm = number > 0;
            rank.retained.reused = 100;
            rank.wire.bytes = 5_000;
            rank.first_ms = Some(1.25 + f64::from(number));
            rank.exit_ms = Some(9.5);
            job.ranks.push(rank);
        }
        job
    }

    #[test]
    fn the_short_table_fits_a_terminal() {
        let brief = brief(&job());
        let widest = brief.lines().map(str::len).max();
        assert!(widest <= Some(80), "{brief}");
        assert!(brief.lines().nth(2).unwrap().ends_with("warm"), "{brief}");
    }

    #[test]
    fn the_line_sums_the_ranks() {
        let line = line(&job());
        assert!(
            line.contains("2 of them warm, 2.00 s; page faults: 30 on the program's file, 0 on"),
            "{line}"
        );
        assert!(line.contains("300 kept from earlier launches"), "{line}");
        assert!(
            line.contains("interrupts: 6 heartbeat, 0 time limit"),
            "{line}"
        );
    }

    #[test]
    fn unknown_calls_are_named() {
        let mut job = job();
        let call = |number, count| UnknownCall { number, count };
        job.ranks[0].unknown_calls = vec![call(56, 1), call(435, 2), call(9999, 3)];
        let text = text(&job);
        let row = text.lines().nth(1).unwrap();
        assert!(
            row.trim_end().ends_with(" 1xclone,2xclone3,3x9999"),
            "{text}"
        );
    }

    #[test]
    fn what_a_rank_that_runs_has_done_is_not_known() {
        let mut job = job();
        (job.ranks[0].end, job.ranks[1].end) = (None, Some(RankEnd::NodeLost));
        let text = text(&job);
        let words = |line: usize| -> Vec<&str> {
            text.lines().nth(line).unwrap().split_whitespace().collect()
        };
        assert_eq!(words(1)[3..], ["-"; 16], "{text}");
        assert_eq!(words(2)[3..], ["-"; 16], "{text}");
        assert_eq!(words(3)[3..6], ["0.0", "2000.0", "0"], "{text}");
    }

    #[test]
    fn launches_are_shown_by_rank_and_in_sum() {
        let mut job = job();
        let text = text(&job);
        let launches: Vec<&str> = text.lines().skip(5).collect();
        assert_eq!(launches.len(), 5, "{text}");
        assert!(
            launches[1].contains("cold") && launches[2].contains("warm"),
            "{text}"
        );
        let sum = launches[4];
        assert!(sum.starts_with("all") && sum.contains("2/3 warm"), "{text}");
        assert!(sum.contains("15000") && sum.contains("3.25"), "{text}");
        // Numbers stand below their headings.
        let at = launches[0].find("WIRE_BYTES").unwrap();
        assert_eq!(
            launches[4][at..].split_whitespace().next(),
            Some("15000"),
            "{text}"
        );
        // A job that never ran has no launches.
        for rank in &mut job.ranks {
            (rank.end, rank.exit_ms) = (Some(RankEnd::NotStarted), None);
        }
        assert_eq!(super::text(&job).lines().count(), 4);
    }
}
