//! `hearth down`: takes a cluster of QEMU nodes down, with its jobs.
//!
//! Neighbours: `cluster` says which cluster is meant; `stop` ends the control node alone.
//!
//! Invariant: jobs end because somebody was told which and meant it, or said `--yes` or `--json`,
//! or is no person.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use clap::Args;

use super::{Global, cluster, print_json};
use crate::api::types::{CancelRequest, JobState, QueuedJob};
use crate::client::Client;
use crate::output::count_of;

/// Jobs that `hearth down` names.
const JOBS_SHOWN: usize = 10;
/// How long it waits for jobs that it has ended: a node that does not answer does not keep a
/// cluster up.
const JOBS_END_WITHIN: Duration = Duration::from_secs(5);
/// What their programs get of that, in seconds.
const GRACE_S: u64 = 2;

/// Options of `hearth down`.
#[derive(Debug, Args)]
pub struct DownOptions {
    /// Keep the serial logs and the logs of QEMU and control.
    #[arg(long)]
    keep_logs: bool,
    /// End jobs without asking.
    #[arg(long, short)]
    yes: bool,
}

/// Takes a cluster down.
pub fn down(global: &Global, options: &DownOptions) -> anyhow::Result<()> {
    global.here()?;
    let paths = cluster::chosen(global)?;
    let client = Client::new(paths.control_socket());
    let jobs = super::block_on(async { Ok(client.get::<Vec<QueuedJob>>("/v1/queue").await?) });
    may_end(&jobs, options.yes || global.json, global.json)?;
    // Those that are not known end with the cluster all the same.
    let jobs = jobs.unwrap_or_default();
    super::block_on(end_jobs(&client, &jobs))?;
    let report = hearth_qemu::down(&paths, options.keep_logs)?;
    if global.json {
        let killed = report.killed;
        let mut ended: Vec<u64> = jobs.iter().map(|job| job.id).collect();
        ended.sort_unstable();
        return print_json(
            &serde_json::json!({ "orderly": report.orderly, "killed": killed, "ended_jobs": ended }),
        );
    }
    if !report.orderly {
        crate::output::say_line(format_args!(
            "what a crash had left was removed ({})",
            count_of(report.killed, "process", "processes")
        ));
    }
    Ok(())
}

/// Says which jobs end with the cluster, and asks on a terminal whether that is meant.
fn may_end(
    jobs: &anyhow::Result<Vec<QueuedJob>>,
    is_meant: bool,
    quiet: bool,
) -> anyhow::Result<()> {
    let text = match jobs {
        Ok(jobs) if jobs.is_empty() => return Ok(()),
        Ok(jobs) => ending(jobs),
        Err(error) => format!("which jobs end with the cluster is not known: {error:#}"),
    };
    if is_meant || !std::io::stdin().is_terminal() {
        if !quiet {
            crate::output::say_line(&text);
        }
        return Ok(());
    }
    crate::output::say(&format!("{text}. Take it down? [y/N] "));
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    let is_yes = matches!(answer.trim(), "y" | "Y" | "yes");
    anyhow::ensure!(is_yes, "nothing was done; `hearth down --yes` does not ask");
    Ok(())
}

/// `2 jobs end with the cluster: 3 (p, running), 4 (q, pending)`.
fn ending(jobs: &[QueuedJob]) -> String {
    let shown: Vec<String> = jobs
        .iter()
        .take(JOBS_SHOWN)
        .map(|job| format!("{} ({}, {})", job.id, job.name, job.state.word()))
        .collect();
    let more = match jobs.len().saturating_sub(JOBS_SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let many = match jobs.len() {
        1 => "1 job ends".to_string(),
        many => format!("{many} jobs end"),
    };
    format!("{many} with the cluster: {}{more}", shown.join(", "))
}

/// Ends jobs and waits a while, so that their clients hear of it.
async fn end_jobs(client: &Client, jobs: &[QueuedJob]) -> anyhow::Result<()> {
    let request = CancelRequest {
        signal: None,
        grace_s: Some(GRACE_S),
        reason: Some("the cluster is taken down".to_string()),
    };
    // Waiting ones go first, so that none of them starts because another was ended.
    let (waiting, others): (Vec<_>, Vec<_>) =
        jobs.iter().partition(|job| job.state == JobState::Pending);
    for job in waiting.into_iter().chain(others) {
        let path = format!("/v1/jobs/{}/cancel", job.id);
        // One that has ended meanwhile is as good.
        drop(client.post::<serde_json::Value>(&path, &request).await);
    }
    let until = Instant::now() + JOBS_END_WITHIN;
    while Instant::now() < until {
        match client.get::<Vec<QueuedJob>>("/v1/queue").await {
            Ok(left) if !left.is_empty() => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            _ => break,
        }
    }
    Ok(())
}
