//! `hearth output`: what a job that nobody waits for has written.
//!
//! Neighbours: `run_session` (prints frames), `api::jobs` on the other side.
//!
//! Invariant: standard output carries the program's output and nothing of ours (with `--json`: frames).

use std::process::ExitCode;

use anyhow::bail;
use clap::Args;

use super::{Global, exit, run, run_session};
use crate::api::types::JobInfo;

/// Options of `hearth output`.
#[derive(Debug, Args)]
#[command(after_help = exit::of_a_job() + "With --follow; else 0.")]
pub struct Options {
    /// The job.
    #[arg(value_name = "JOB")]
    job: u64,
    /// Wait until the job has ended, print what it writes meanwhile, and end with its exit status.
    #[arg(long, short = 'f')]
    follow: bool,
    /// Begin every line of output with its rank.
    #[arg(long)]
    label: bool,
}

/// Prints the output.
pub fn main(global: &Global, options: &Options) -> anyhow::Result<ExitCode> {
    let client = global.client()?;
    let id = options.job;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let ended = runtime.block_on(async {
        let job: JobInfo = client.get(&format!("/v1/jobs/{id}")).await?;
        if !job.batch {
            bail!(
                "job {id} was not queued with `hearth submit`: its output went to whoever ran it"
            );
        }
        let settings = run_session::Settings {
            label: options.label,
            json: global.json,
            ranks: job.ranks_total,
            stdin: false,
        };
        run_session::show(&client, id, options.follow, settings).await
    })?;
    match ended {
        Some(job) if options.follow => run::finish_quietly(global, &job),
        _ => Ok(ExitCode::SUCCESS),
    }
}
