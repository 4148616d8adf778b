//! Tests of the tables and texts of `queue`, `job` and `history`.

use super::*;
use crate::api::types::{AfterCondition, AfterJob, KeptOutput, Placement, Why};

fn info() -> JobInfo {
    JobInfo {
        id: 42,
        name: "solve".into(),
        user: "eva".into(),
        state: JobState::Completed,
        ranks_total: 3,
        nodes: "n[0-1,4]".into(),
        submitted_unix_us: 1_795_219_200_000_000,
        started_unix_us: Some(1_795_219_210_000_000),
        ended_unix_us: Some(1_795_219_333_000_000),
        exit_status: Some(0),
        ..JobInfo::default()
    }
}

#[test]
fn a_refusal_is_an_error_with_the_status_of_the_command() {
    let refusal = |code: &str| {
        RequestError::Refused(crate::api::types::ErrorBody {
            code: code.to_string(),
            error: "no such job".to_string(),
        })
    };
    for (code, status, asked, wanted) in [
        ("no-such-job", exit::CONTROL, 1, "no-such-job"),
        ("bad-request", exit::CONTROL, 1, "refused for 1 of 1 job;"),
        ("no-such-job", exit::PARTLY, 3, "refused for 1 of 3 jobs;"),
    ] {
        let error = refused(status, asked, vec![refusal(code)]);
        assert_eq!(exit::of_error(&error), status);
        let text = exit::json_of(&error);
        assert!(text.contains(wanted), "{text}");
    }
}

#[test]
fn a_job_that_waits_says_why_in_words() {
    let mut job = QueuedJob::from(&info());
    (job.state, job.nodes) = (JobState::Pending, String::new());
    let now_us = 1_795_219_200_000_000;
    for (why, reason, start_us, wanted) in [
        (
            Why::PartitionNodeLimit,
            "4 nodes needed, 2 in service; n3 left\u{1b}",
            None,
            "(PartitionNodeLimit: 4 nodes needed, 2 in service; n3 left\u{fffd})",
        ),
        (
            Why::Resources,
            "3 nodes needed, 1 free",
            Some(now_us + 51_500_000),
            "(Resources: 3 nodes needed, 1 free; starts within 0:52)",
        ),
        (Why::Priority, "", None, "(Priority)"),
    ] {
        (job.why, job.reason) = (Some(why), reason.to_string());
        job.expected_start_unix_us = start_us;
        let text = queue_text(&[job.clone()], now_us);
        assert!(text.trim_end().ends_with(wanted), "{text}");
    }
}

#[test]
fn the_queue_has_slurms_columns_and_fits() {
    let running = QueuedJob {
        state: JobState::Running,
        ..QueuedJob::from(&info())
    };
    let waiting = QueuedJob {
        id: 9_999_999,
        name: "a-name-that-is-longer-than-its-column".into(),
        state: JobState::Pending,
        why: Some(Why::UserJobs),
        nodes: String::new(),
        started_unix_us: None,
        nodes_total: 16_512,
        ..running.clone()
    };
    let text = queue_text(&[waiting, running], 1_795_219_210_000_000 + 3_723_000_000);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0].split_whitespace().collect::<Vec<_>>(),
        [
            "JOBID",
            "NAME",
            "USER",
            "ST",
            "TIME",
            "NODES",
            "NODELIST(REASON)"
        ]
    );
    assert!(lines[1].contains(" PD ") && lines[1].ends_with("16512  (QOSMaxJobsPerUserLimit)"));
    assert!(
        lines[2].contains(" R ") && lines[2].contains("1:02:03"),
        "{text}"
    );
    assert!(lines[2].ends_with("    3  n[0-1,4]"), "{text}");
    assert!(
        lines.iter().all(|line| line.chars().count() <= 100),
        "{text}"
    );
}

#[test]
fn a_job_is_shown_as_keys_and_values() {
    let job = JobInfo {
        state: JobState::Pending,
        why: Some(Why::Dependency),
        reason: "waits for job 41".into(),
        command: "./solver 'a b'".into(),
        directory: "/home/eva".into(),
        after: vec![AfterJob {
            job: 41,
            condition: AfterCondition::Ok,
        }],
        placement: Some(Placement {
            hops: 7,
            certificate: "optimal: x".into(),
            free: "n[0-7]".into(),
            decision: 1,
        }),
        output: Some(KeptOutput {
            bytes: 5,
            dropped_bytes: 0,
        }),
        ..info()
    };
    let text = job_text(&job, 0);
    for part in [
        "JobId=42 JobName=solve\n",
        "UserId=eva Priority=0\n",
        "JobState=PENDING Reason=Dependency Detail=waits for job 41\n",
        "RunTime=2:03 TimeLimit=UNLIMITED\n",
        "SubmitTime=2026-11-21T00:00:00Z",
        "NumNodes=3 NumTasks=3 CPUs/Task=all NodeList=n[0-1,4]\n",
        "Dependency=after-ok:41\n",
        "Command=./solver 'a b'\n",
        "WorkDir=/home/eva\n",
        "Hops=7 Certificate=optimal: x\n",
        "OutputBytes=5 OutputBytesLost=0\n",
    ] {
        assert!(text.contains(part), "{part:?} in\n{text}");
    }
}

#[test]
fn history_lines_up() {
    let failed = JobInfo {
        id: 7,
        state: JobState::TimeLimit,
        exit_status: Some(124),
        nodes: String::new(),
        ..info()
    };
    let text = history_text(&[failed, info()], 0);
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[1].contains("TIME-LIMIT   124  2026-11-21T00:00:00     2:03  -"),
        "{text}"
    );
    assert!(
        lines[2].contains("COMPLETED      0  2026-11-21T00:00:00     2:03  n[0-1,4]"),
        "{text}"
    );
}

#[test]
fn queries_are_written_for_a_path() {
    let which = Which {
        me: false,
        user: Some("eva,i da&x=1".into()),
        name: None,
        state: Some("PD".into()),
    };
    assert_eq!(
        path("/v1/queue", &which.query()),
        "/v1/queue?user=eva,i%20da%26x%3D1&state=PD"
    );
    assert_eq!(path("/v1/queue", &[]), "/v1/queue");
}

#[test]
fn times_are_dates_or_spans_before_now() {
    assert_eq!(time("2026-11-21"), Ok(1_795_219_200_000_000));
    let hour_ago = time("1h").unwrap();
    let now = clock::unix_us();
    assert!((now - 3_600_000_000).abs_diff(hour_ago) < 5_000_000);
    for wrong in ["", "h", "1w", "-1h", "99999999999999d", "tomorrow"] {
        assert!(time(wrong).is_err(), "{wrong}");
    }
}
