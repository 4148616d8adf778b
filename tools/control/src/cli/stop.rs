//! `hearth stop`: ends the control node alone.
//!
//! Neighbours: `api::stopping` carries it out; `cluster` starts the control node of a QEMU cluster
//! again, and takes such a cluster down with its jobs.
//!
//! Invariant: the process that was asked is the one that is watched. Another may be started at the
//! same socket meanwhile, and is left alone.

use std::time::{Duration, Instant};

use clap::Args;
use hearth_qemu::ProcessId;

use super::{Global, cluster};
use crate::api::types::{JobState, QueuedJob, StopReply, StopRequest};
use crate::client::Client;
use crate::output;

/// A control node that was told to end has written everything down by then.
const ENDS_WITHIN: Duration = Duration::from_secs(30);
/// How often it is asked meanwhile which jobs it waits for.
const PERIOD: Duration = Duration::from_millis(100);
/// It answers that within this time, or next time.
const ANSWERS_WITHIN: Duration = Duration::from_secs(1);

/// Options of `hearth stop`.
#[derive(Debug, Args)]
pub struct Options {
    /// Start no job any more, and end when those that run have ended; interrupting this command
    /// does not change that.
    #[arg(long)]
    drain: bool,
}

/// Ends the control node and waits until it has.
pub fn stop(global: &Global, options: &Options) -> anyhow::Result<()> {
    let (client, state) = global.reach()?;
    let drain = options.drain;
    let request = StopRequest { drain };
    let reply: StopReply = super::block_on(async { Ok(client.post("/v1/stop", &request).await?) })?;
    if !global.json {
        output::say_line(told(&reply, drain));
    }
    let Some(state) = state else {
        // Its process is on another machine.
        return match global.json {
            true => super::print_json(&reply),
            false => super::print_text("the control node was asked to end\n"),
        };
    };
    if let Some(process) = ProcessId::of(reply.pid) {
        wait_for_end(&client, process, &reply, drain, global.json)?;
    }
    // One that ends in good order takes its socket away.
    anyhow::ensure!(
        !state.socket().exists(),
        "the control node ended, but crashed over it or was started again at once: its log says which"
    );
    if global.json {
        return super::print_json(&reply);
    }
    output::say_line(format_args!(
        "the control node has ended; {} starts it again",
        cluster::starts_control(&state)
    ));
    Ok(())
}

/// Waits until the process has ended: with `drain` for as long as it has jobs and says so.
fn wait_for_end(
    client: &Client,
    process: ProcessId,
    reply: &StopReply,
    drain: bool,
    quiet: bool,
) -> anyhow::Result<()> {
    let mut left = reply.running.len();
    let mut deadline = Instant::now() + ENDS_WITHIN;
    while !process.wait_for_end(PERIOD) {
        if drain
            && left > 0
            && let Some(now) = super::block_on(running(client))?
        {
            deadline = Instant::now() + ENDS_WITHIN;
            if now != left && !quiet {
                output::say_line(format_args!("{} left", output::count(now, "job")));
            }
            left = now;
        }
        anyhow::ensure!(
            Instant::now() < deadline,
            "the control node (process {}) has not ended within {} s; its log says what it does",
            process.pid,
            ENDS_WITHIN.as_secs()
        );
    }
    Ok(())
}

/// How many jobs have nodes; nothing where that is not answered, as while the control node ends.
async fn running(client: &Client) -> anyhow::Result<Option<usize>> {
    let queue = client.get::<Vec<QueuedJob>>("/v1/queue");
    let Ok(Ok(jobs)) = tokio::time::timeout(ANSWERS_WITHIN, queue).await else {
        return Ok(None);
    };
    let running = jobs.iter().filter(|job| job.state != JobState::Pending);
    Ok(Some(running.count()))
}

/// What becomes of the jobs.
fn told(reply: &StopReply, drain: bool) -> String {
    let list = |jobs: &[u64]| {
        let names: Vec<String> = jobs.iter().map(u64::to_string).collect();
        names.join(", ")
    };
    let running = match (reply.running.len(), drain) {
        (0, _) => "no job runs".to_string(),
        (_, true) => format!("waiting for the jobs that run: {}", list(&reply.running)),
        (_, false) => format!(
            "jobs that go on without the control node: {}",
            list(&reply.running)
        ),
    };
    match reply.waiting.len() {
        0 => running,
        _ => format!(
            "{running}; jobs that wait for its next start: {}",
            list(&reply.waiting)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_becomes_of_jobs_is_told() {
        let reply = StopReply {
            pid: 1,
            running: vec![3, 5],
            waiting: vec![7],
        };
        assert_eq!(
            told(&reply, false),
            "jobs that go on without the control node: 3, 5; jobs that wait for its next start: 7"
        );
        assert_eq!(
            told(&reply, true),
            "waiting for the jobs that run: 3, 5; jobs that wait for its next start: 7"
        );
        assert_eq!(told(&StopReply::default(), true), "no job runs");
    }
}
