//! Jobs and events as rows of the store, and back.
//!
//! Key functions: [`job_row`], [`job_info`], [`event_row`], [`event`], [`program_use`]. Neighbours:
//! `ledger` writes rows, `history` reads them.
//!
//! Invariant: a row that was written by an earlier version of this program can be shown: what its
//! record does not say has a default, and a record that cannot be read leaves the columns.

use hearth_store::{EventRow, JobRow, ProgramUse};

use crate::api::types::{JobInfo, JobState, RankEnd, RankReport};
use crate::events::{Event, Severity};
use crate::secrets;

/// Reports of ranks that are kept of one job, under a kilobyte each: a job of the whole cluster
/// must not hold up the control node while it is written, nor fill the disk with what nobody reads.
const REPORTS_MAX: usize = 1_024;

/// A job as a row.
pub fn job_row(info: &JobInfo) -> JobRow {
    let record = if info.ranks.len() > REPORTS_MAX {
        let mut ranks: Vec<&RankReport> = info.ranks.iter().collect();
        // Those that did not exit with 0 first, then the lowest.
        ranks.sort_by_key(|rank| (rank.end == Some(RankEnd::Exited(0)), rank.rank));
        ranks.truncate(REPORTS_MAX);
        ranks.sort_by_key(|rank| rank.rank);
        let fewer = JobInfo {
            ranks: ranks.into_iter().cloned().collect(),
            ..info.clone()
        };
        serde_json::to_string(&fewer)
    } else {
        serde_json::to_string(info)
    };
    JobRow {
        id: info.id,
        name: info.name.clone(),
        program: secrets::decode_hex(&info.program).unwrap_or_default(),
        state: info.state.word().to_string(),
        reason: info.reason.clone(),
        ranks: info.ranks_total,
        nodes: info.nodes.clone(),
        submitted_unix_us: info.submitted_unix_us,
        started_unix_us: info.started_unix_us,
        ended_unix_us: info.ended_unix_us,
        exit_status: info.exit_status,
        record: record.expect("plain data"),
    }
}

/// A row as a job.
pub fn job_info(row: JobRow) -> JobInfo {
    if let Ok(info) = serde_json::from_str(&row.record) {
        return info;
    }
    JobInfo {
        id: row.id,
        name: row.name,
        program: secrets::encode_hex(&row.program),
        state: word(&row.state).unwrap_or(JobState::Failed),
        reason: row.reason,
        ranks_total: row.ranks,
        nodes: row.nodes,
        submitted_unix_us: row.submitted_unix_us,
        started_unix_us: row.started_unix_us,
        ended_unix_us: row.ended_unix_us,
        exit_status: row.exit_status,
        ..JobInfo::default()
    }
}

/// What a job that has ended did with its program: a launch for each rank that ran, and a warm one
/// for each of these that found it there.
pub fn program_use(info: &JobInfo, bytes: u64) -> ProgramUse {
    let ran = |end: Option<RankEnd>| matches!(end, Some(RankEnd::Exited(_) | RankEnd::Signal(_)));
    let launches = info.ranks.iter().filter(|rank| ran(rank.end));
    let warm_launches = launches.clone().filter(|rank| rank.warm);
    ProgramUse {
        hash: secrets::decode_hex(&info.program).unwrap_or_default(),
        name: info.program_name().to_string(),
        bytes,
        at_unix_us: info.ended_unix_us.unwrap_or(info.submitted_unix_us),
        warm_launches: warm_launches.count() as u64,
        launches: launches.count() as u64,
    }
}

/// An event as a row.
pub fn event_row(event: &Event) -> EventRow {
    let severity = match event.severity {
        Severity::Info => "info",
        Severity::Warning => "warning",
        Severity::Error => "error",
    };
    EventRow {
        seq: event.seq,
        time_unix_us: event.time_unix_us,
        severity: severity.to_string(),
        kind: event.kind.clone(),
        node: event.node.clone(),
        job: event.job,
        mac: event.mac.clone(),
        text: event.text.clone(),
    }
}

/// A row as an event.
pub fn event(row: EventRow) -> Event {
    Event {
        seq: row.seq,
        time_unix_us: row.time_unix_us,
        severity: word(&row.severity).unwrap_or(Severity::Warning),
        kind: row.kind,
        node: row.node,
        job: row.job,
        mac: row.mac,
        text: row.text,
    }
}

/// A value by the word that stands for it in JSON.
fn word<T: serde::de::DeserializeOwned>(word: &str) -> Option<T> {
    serde_json::from_value(serde_json::Value::String(word.to_string())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::types::Reuse;

    fn info() -> JobInfo {
        let rank = |rank, end| RankReport {
            end: Some(end),
            user_ms: 1.5,
            fault: Some("SIGSEGV at 0x0".to_string()),
            warm: rank > 0,
            ..RankReport::new(rank, rank + 3)
        };
        JobInfo {
            id: 12,
            name: "hello".to_string(),
            program: "ab".repeat(32),
            state: JobState::TimeLimit,
            reason: "time limit of 5 s reached".to_string(),
            program_file: "hello-c".to_string(),
            command: "./hello-c 'a b'".to_string(),
            directory: "/home/eva".to_string(),
            ranks_total: 3,
            nodes: "n[3-5]".to_string(),
            submitted_unix_us: 1,
            started_unix_us: Some(2),
            ended_unix_us: Some(3),
            time_limit_s: Some(5),
            exit_status: Some(143),
            reuse: Reuse::Require,
            ranks: vec![
                rank(0, RankEnd::Signal(15)),
                rank(1, RankEnd::NodeLost),
                rank(2, RankEnd::Exited(0)),
            ],
            ..JobInfo::default()
        }
    }

    #[test]
    fn jobs_come_back_as_they_were() {
        assert_eq!(job_info(job_row(&info())), info());
    }

    #[test]
    fn of_a_large_job_the_reports_that_say_something_are_kept() {
        let mut large = info();
        large.ranks = (0..5_000)
            .map(|rank| RankReport {
                end: Some(RankEnd::Exited(i32::from(rank == 4_321))),
                ..RankReport::new(rank, rank)
            })
            .collect();
        let kept = job_info(job_row(&large)).ranks;
        assert_eq!(kept.len(), REPORTS_MAX);
        assert_eq!(
            (kept[0].rank, kept[1022].rank, kept[1023].rank),
            (0, 1022, 4_321)
        );
    }

    #[test]
    fn a_record_that_cannot_be_read_leaves_the_columns() {
        let mut row = job_row(&info());
        row.record = "{\"id\": \"of another time\"}".to_string();
        let columns = JobInfo {
            program_file: String::new(),
            command: String::new(),
            directory: String::new(),
            time_limit_s: None,
            reuse: Reuse::default(),
            ranks: Vec::new(),
            ..info()
        };
        assert_eq!(job_info(row), columns);
    }

    #[test]
    fn a_row_of_an_earlier_version_has_no_command_line() {
        let mut row = job_row(&info());
        let mut record: serde_json::Value = serde_json::from_str(&row.record).unwrap();
        for key in ["program_file", "command", "directory"] {
            assert!(
                record.as_object_mut().unwrap().remove(key).is_some(),
                "{key}"
            );
        }
        row.record = record.to_string();
        let job = job_info(row);
        assert_eq!((&*job.command, &*job.directory), ("", ""));
        assert_eq!(job.program_name(), "hello");
        assert_eq!(job.ranks, info().ranks);
    }

    #[test]
    fn ranks_that_ran_are_launches() {
        let used = program_use(&info(), 30_000);
        assert_eq!((used.launches, used.warm_launches), (2, 1));
        assert_eq!((used.bytes, used.at_unix_us), (30_000, 3));
        // The program's own name, whatever the job is called.
        assert_eq!(used.name, "hello-c");
    }

    #[test]
    fn events_come_back_as_they_were() {
        for severity in [Severity::Info, Severity::Warning, Severity::Error] {
            let mut one = Event::new(severity, "job-ended", "text\nmore")
                .node(3)
                .job(7);
            one.seq = 9;
            assert_eq!(event(event_row(&one)), one);
        }
    }
}
