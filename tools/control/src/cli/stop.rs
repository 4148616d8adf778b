//! `hearth stop`: ends the control node alone.
//!
//! Neighbours: `api::stopping` carries it out; `cluster::down` takes a QEMU cluster down with its jobs.

use std::time::{Duration, Instant};

use clap::Args;

use super::Global;
use crate::api::types::{StopReply, StopRequest};
use crate::output;

/// A control node that was told to end has written everything down by then.
const ENDS_WITHIN: Duration = Duration::from_secs(30);
/// How often it is looked whether it has ended.
const PERIOD: Duration = Duration::from_millis(100);

/// Options of `hearth stop`.
#[derive(Debug, Args)]
pub struct Options {
    /// Start no job any more, and end when those that run have ended; interrupting this command does not change that.
    #[arg(long)]
    drain: bool,
}

/// Ends the control node and waits until it has.
pub fn stop(global: &Global, options: &Options) -> anyhow::Result<()> {
    let client = global.client()?;
    let request = StopRequest {
        drain: options.drain,
    };
    let quiet = global.json;
    let first = super::block_on(async move {
        let first: StopReply = client.post("/v1/stop", &request).await?;
        if !quiet {
            output::say_line(told(&first, request.drain));
        }
        let began = Instant::now();
        let mut left = first.running.len();
        loop {
            tokio::time::sleep(PERIOD).await;
            let Ok(now) = client.post::<StopReply>("/v1/stop", &request).await else {
                return Ok(first);
            };
            if now.running.len() != left && request.drain && !quiet {
                left = now.running.len();
                output::say_line(format_args!("{} left", output::count(left, "job")));
            }
            anyhow::ensure!(
                request.drain || began.elapsed() < ENDS_WITHIN,
                "the control node has not ended within {} s; its log says what it does",
                ENDS_WITHIN.as_secs()
            );
        }
    })?;
    match global.json {
        true => super::print_json(&first),
        false => Ok(()),
    }
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
