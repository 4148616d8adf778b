//! `hearth queue`, `cancel`, `signal`, `hold`, `release`, `priority`, `job`, `history`: jobs in the
//! queue and of the past, with the columns of Slurm's tools.
//!
//! Neighbours: `api::queue` and `api::past` on the other side.
//!
//! Invariant: what is asked about several jobs is tried for each of them, and each refusal is told.

use std::process::ExitCode;

use clap::Args;

use super::{Global, block_on, exit, path, print_json, print_text, table};
use crate::api::types::{
    CancelRequest, Done, JobInfo, JobState, PriorityRequest, QueuedJob, SignalRequest,
};
use crate::client::{Client, RequestError};
use crate::config::GRACE_MOST_S;
use crate::{clock, output, signal};

/// The signal that no program survives.
const SIGNAL_KILL: i32 = 9;

/// Which jobs of the queue.
#[derive(Debug, Default, Clone, Args)]
pub struct Which {
    /// Only jobs of these users, separated by commas.
    #[arg(short = 'u', long, value_name = "USERS")]
    user: Option<String>,
    /// Only jobs of the user who asks.
    #[arg(long, conflicts_with = "user")]
    me: bool,
    /// Only jobs with these names, separated by commas.
    #[arg(long, value_name = "NAMES")]
    name: Option<String>,
    /// Only jobs in these states, separated by commas: pending or PD, running or R, ...
    #[arg(short = 's', long, value_name = "STATES")]
    state: Option<String>,
}

impl Which {
    fn is_any(&self) -> bool {
        self.user.is_none() && !self.me && self.name.is_none() && self.state.is_none()
    }

    /// As the query of a request.
    fn query(&self) -> Vec<(&'static str, String)> {
        let all = [
            ("mine", self.me.then(|| "true".to_string())),
            ("user", self.user.clone()),
            ("name", self.name.clone()),
            ("state", self.state.clone()),
        ];
        let given = all
            .into_iter()
            .filter_map(|(key, value)| Some((key, value?)));
        given.collect()
    }
}

/// Options of `hearth queue`.
#[derive(Debug, Args)]
#[command(after_help = "\
ST: PD pending, CF starting, R running, CG ending. Pending jobs stand before the others, in the
order of the queue. NODELIST(REASON) is the job's nodes, or why it has none: a word of Slurm's, a
sentence, and where it is known how soon it starts at the latest:
  Resources               too few nodes are free
  Priority                others go first
  Dependency              it waits for the end of other jobs
  JobHeldUser             it is held; `hearth release` lets it start
  BeginTime               the command that runs it does not read its output yet
  ReqNodeNotAvail         nodes that it names are not in service, or drained, and what brings them back
  PartitionNodeLimit      it wants more nodes than are in service; which are not, and what brings them back
  QOSMaxJobsPerUserLimit, QOSMaxNodePerUserLimit   its user has as much as is allowed
  JobArrayTaskLimit       as many jobs of its array run as may at a time
`hearth job JOB` says more.")]
pub struct QueueOptions {
    #[command(flatten)]
    which: Which,
}

/// Options of `hearth cancel`.
#[derive(Debug, Args)]
pub struct CancelOptions {
    /// Jobs to end.
    #[arg(value_name = "JOB", required_unless_present_any = ["user", "me", "name", "state"], conflicts_with_all = ["user", "me", "name", "state"], value_parser = job_number)]
    jobs: Vec<u64>,
    #[command(flatten)]
    which: Which,
    /// Signal that their programs get first, by name or number [default: TERM].
    #[arg(long, value_name = "SIGNAL", value_parser = signal::parse)]
    signal: Option<i32>,
    /// How long the programs may go on after that; then they get SIGKILL: 10s, 2m, 0s [config:
    /// jobs.grace_s].
    #[arg(long, value_name = "TIME", value_parser = grace)]
    grace: Option<u64>,
    /// End them at once, with SIGKILL.
    #[arg(long, conflicts_with_all = ["grace", "signal"])]
    now: bool,
}

/// Options of `hearth signal`.
#[derive(Debug, Args)]
#[command(after_help = "\
Every rank of the job gets the signal. A program without a handler for it does what Linux does by
default: most signals end it, and so the job. `hearth cancel` ends a job for good.")]
pub struct SignalOptions {
    /// The job.
    #[arg(value_name = "JOB", value_parser = job_number)]
    job: u64,
    /// The signal, by name or number: USR1, SIGUSR1, 10.
    #[arg(value_name = "SIGNAL", value_parser = signal::parse)]
    signal: i32,
}

/// Jobs by number, for `hearth hold` and `release`.
#[derive(Debug, Args)]
pub struct JobsOptions {
    /// The jobs.
    #[arg(required = true, value_name = "JOB", value_parser = job_number)]
    jobs: Vec<u64>,
}

/// Options of `hearth priority`.
#[derive(Debug, Args)]
pub struct PriorityOptions {
    /// The new priority; jobs with a higher one go first.
    #[arg(value_name = "NUMBER", allow_negative_numbers = true, value_parser = priority_number)]
    priority: i32,
    /// The jobs.
    #[arg(required = true, value_name = "JOB", value_parser = job_number)]
    jobs: Vec<u64>,
}

/// Options of `hearth job`.
#[derive(Debug, Args)]
pub struct ShowOptions {
    /// The job.
    #[arg(value_name = "JOB", value_parser = job_number)]
    job: u64,
}

/// Options of `hearth history`.
#[derive(Debug, Args)]
#[command(after_help = "\
Times are written as 2026-11-21, 2026-11-21T08:30 (UTC), or as so long ago: 90m, 12h, 7d.")]
pub struct HistoryOptions {
    #[command(flatten)]
    which: Which,
    /// Only jobs that were not over before this time.
    #[arg(short = 'S', long, value_name = "TIME", value_parser = time)]
    since: Option<u64>,
    /// Only jobs that were submitted before this time.
    #[arg(short = 'E', long, value_name = "TIME", value_parser = time)]
    until: Option<u64>,
    /// List at most so many, the newest.
    #[arg(long, default_value_t = 100, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
}

/// A job's number.
pub(super) fn job_number(text: &str) -> Result<u64, &'static str> {
    const WRONG: &str = "write a job's number, as in 12; `hearth queue` lists the jobs that wait or run, `hearth history` those that are over";
    text.parse().map_err(|_| WRONG)
}

fn priority_number(text: &str) -> Result<i32, &'static str> {
    let wrong = "write a whole number, as in 10 or -5, and then the jobs; higher ones go first";
    text.parse().map_err(|_| wrong)
}

/// A point in time, in microseconds since 1970.
pub(super) fn time(text: &str) -> Result<u64, String> {
    let wrong = || "write 2026-11-21, 2026-11-21T08:30, or so long ago: 90m, 12h, 7d".to_string();
    if let Some(at) = clock::parse_utc(text) {
        return Ok(at);
    }
    let units = [("s", 1), ("m", 60), ("h", 3600), ("d", 86_400)];
    let ago = units.into_iter().find_map(|(unit, seconds)| {
        let count: u64 = text.strip_suffix(unit)?.parse().ok()?;
        count.checked_mul(seconds)?.checked_mul(1_000_000)
    });
    ago.map(|ago| clock::unix_us().saturating_sub(ago))
        .ok_or_else(wrong)
}

/// Prints the jobs that are not over.
pub fn queue(global: &Global, options: &QueueOptions) -> anyhow::Result<()> {
    let client = global.client()?;
    let path = path("/v1/queue", &options.which.query());
    let jobs: Vec<QueuedJob> = block_on(async move { Ok(client.get(&path).await?) })?;
    if global.json {
        return print_json(&jobs);
    }
    print_text(&queue_text(&jobs, clock::unix_us()))
}

fn queue_text(jobs: &[QueuedJob], now_us: u64) -> String {
    let mut rows = table::Rows::new(&[
        ("JOBID", table::Side::Right),
        ("NAME", table::Side::Left),
        ("USER", table::Side::Left),
        ("ST", table::Side::Left),
        ("TIME", table::Side::Right),
        ("NODES", table::Side::Right),
        ("NODELIST(REASON)", table::Side::Left),
    ]);
    for job in jobs {
        let ran_us = job
            .started_unix_us
            .map_or(0, |started| now_us.saturating_sub(started));
        let place = match job.nodes.is_empty() {
            false => job.nodes.clone(),
            true => format!("({})", why_waiting(job, now_us)),
        };
        rows.add([
            job.id.to_string(),
            table::short_name(&job.name),
            table::short_name(&job.user),
            job.state.short().to_string(),
            clock::span(ran_us / 1_000_000),
            job.nodes_total.to_string(),
            place,
        ]);
    }
    rows.text()
}

/// Why a job has no nodes: Slurm's word and a sentence, and when it starts at the latest where that
/// is known.
fn why_waiting(job: &QueuedJob, now_us: u64) -> String {
    let mut text = job.why.map_or("None", |why| why.word()).to_string();
    if !job.reason.is_empty() {
        let reason = output::plain(&job.reason).replace('\n', " ");
        text = format!("{text}: {reason}");
    }
    if let Some(start) = job.expected_start_unix_us {
        let within = clock::span(start.saturating_sub(now_us).div_ceil(1_000_000));
        text = format!("{text}; starts within {within}");
    }
    text
}

/// What became of a change of some jobs.
#[derive(Debug, Default, serde::Serialize)]
struct Changed {
    /// Those it was done to.
    jobs: Vec<u64>,
    /// Those it was not.
    refused: Vec<NotChanged>,
}

/// A job that was not changed, and why.
#[derive(Debug, serde::Serialize)]
struct NotChanged {
    job: u64,
    /// A stable word.
    code: String,
    error: String,
}

/// Asks control for something about each job; tells every refusal, with `--json` in what it prints
/// and in short as its error.
fn for_each(
    global: &Global,
    jobs: &[u64],
    what: impl AsyncFn(&Client, u64) -> Result<Done, RequestError>,
) -> anyhow::Result<ExitCode> {
    let client = global.client()?;
    let mut changed = Changed::default();
    let mut refusals = Vec::new();
    block_on(async {
        for job in jobs {
            match what(&client, *job).await {
                Ok(_) => changed.jobs.push(*job),
                Err(error) if error.is_gone() => return Err(error.into()),
                Err(error) => {
                    if !global.json {
                        output::say_line(&error);
                    }
                    changed.refused.push(NotChanged {
                        job: *job,
                        code: error.code().unwrap_or_default().to_string(),
                        error: error.to_string(),
                    });
                    refusals.push(error);
                }
            }
        }
        Ok(())
    })?;
    if global.json {
        print_json(&changed)?;
    }
    let status = match refusals.len() {
        0 => return Ok(ExitCode::SUCCESS),
        all if all == jobs.len() => exit::CONTROL,
        _ => exit::PARTLY,
    };
    match global.json {
        true => Err(refused(status, jobs.len(), refusals)),
        false => Ok(ExitCode::from(status)),
    }
}

/// The error of a command that was refused for some of so many jobs: the refusal itself, which has
/// a code, where it says all.
fn refused(status: u8, asked: usize, mut refusals: Vec<RequestError>) -> anyhow::Error {
    let count = refusals.len();
    if let (1, Some(only)) = (asked, refusals.pop()) {
        let only = anyhow::Error::from(only);
        if exit::of_error(&only) == status {
            return only;
        }
    }
    let asked = output::count(asked, "job");
    let text = format!("refused for {count} of {asked}; `refused` in the output says why");
    exit::Failed::new(status, text).into()
}

/// Seconds of a grace: `10s`, `2m`, `1h`.
fn grace(text: &str) -> Result<u64, String> {
    let suffixes = [("s", 1), ("m", 60), ("h", 3600)];
    let read = |(suffix, seconds): &(&str, u64)| {
        let count: u64 = text.strip_suffix(suffix)?.parse().ok()?;
        count.checked_mul(*seconds)
    };
    let found = suffixes.iter().find_map(read);
    found
        .filter(|seconds| *seconds <= GRACE_MOST_S)
        .ok_or_else(|| "write 10s, 2m or 1h, at most 24h; 0s is none".to_string())
}

/// Sends a signal to a job.
pub fn signal(global: &Global, options: &SignalOptions) -> anyhow::Result<ExitCode> {
    let request = SignalRequest {
        signal: options.signal,
    };
    for_each(global, &[options.job], async |client, job| {
        let path = format!("/v1/jobs/{job}/signal");
        client.post(&path, &request).await
    })
}

/// Ends jobs.
pub fn cancel(global: &Global, options: &CancelOptions) -> anyhow::Result<ExitCode> {
    let (signal, grace_s) = match options.now {
        true => (Some(SIGNAL_KILL), Some(0)),
        false => (options.signal, options.grace),
    };
    let request = CancelRequest {
        signal,
        grace_s,
        reason: Some("cancelled with `hearth cancel`".to_string()),
    };
    let mut jobs = options.jobs.clone();
    if !options.which.is_any() {
        let client = global.client()?;
        let path = path("/v1/queue", &options.which.query());
        let listed: Vec<QueuedJob> = block_on(async move { Ok(client.get(&path).await?) })?;
        // Waiting ones go first, so that none of them starts because another was ended.
        let (waiting, others): (Vec<_>, Vec<_>) = listed
            .iter()
            .partition(|job| job.state == JobState::Pending);
        jobs = waiting.iter().chain(&others).map(|job| job.id).collect();
        if jobs.is_empty() {
            output::say_line("no job in the queue is meant; `hearth queue` lists them");
        }
    }
    for_each(global, &jobs, async |client, job| {
        let done = client
            .post(&format!("/v1/jobs/{job}/cancel"), &request)
            .await;
        match done {
            // It ended between the question and this.
            Err(error) if error.code() == Some("job-ended") && !options.which.is_any() => {
                Ok(Done {})
            }
            done => done,
        }
    })
}

/// Holds jobs back.
pub fn hold(global: &Global, options: &JobsOptions) -> anyhow::Result<ExitCode> {
    for_each(global, &options.jobs, async |client, job| {
        client.post(&format!("/v1/jobs/{job}/hold"), &()).await
    })
}

/// Lets held jobs start.
pub fn release(global: &Global, options: &JobsOptions) -> anyhow::Result<ExitCode> {
    for_each(global, &options.jobs, async |client, job| {
        client.post(&format!("/v1/jobs/{job}/release"), &()).await
    })
}

/// Gives jobs another priority.
pub fn priority(global: &Global, options: &PriorityOptions) -> anyhow::Result<ExitCode> {
    let priority = options.priority;
    for_each(global, &options.jobs, async |client, job| {
        let path = format!("/v1/jobs/{job}/priority");
        client.post(&path, &PriorityRequest { priority }).await
    })
}

/// Prints everything about one job.
pub fn job(global: &Global, options: &ShowOptions) -> anyhow::Result<()> {
    let client = global.client()?;
    let path = format!("/v1/jobs/{}", options.job);
    let job: JobInfo = block_on(async move { Ok(client.get(&path).await?) })?;
    if global.json {
        return print_json(&job);
    }
    print_text(&job_text(&job, clock::unix_us()))?;
    if !job.ranks.is_empty() {
        print_text(&format!("\n{}", super::report::brief(&job)))?;
    }
    super::lists::print_faults(&job)
}

/// `Key=Value` lines, as of `scontrol show job`.
fn job_text(job: &JobInfo, now_us: u64) -> String {
    let or_none = |text: &str| match text.is_empty() {
        true => "(none)".to_string(),
        false => crate::output::plain(text).replace('\n', " "),
    };
    let date = |at: Option<u64>| at.map_or_else(|| "Unknown".to_string(), clock::rfc3339);
    let flag = |on: bool| u8::from(on).to_string();
    let cores = job
        .cores
        .map_or_else(|| "all".to_string(), |cores| cores.to_string());
    let end = job.ended_unix_us.unwrap_or(now_us);
    let ran = job
        .started_unix_us
        .map_or(0, |started| end.saturating_sub(started));
    let after: Vec<String> = job
        .after
        .iter()
        .map(|after| match after.condition {
            crate::api::types::AfterCondition::Any => format!("after:{}", after.job),
            crate::api::types::AfterCondition::Ok => format!("after-ok:{}", after.job),
        })
        .collect();
    let mut lines: Vec<Vec<(&str, String)>> = vec![
        vec![
            ("JobId", job.id.to_string()),
            ("JobName", table::name(&job.name)),
        ],
        vec![
            ("UserId", or_none(&job.user)),
            ("Priority", job.priority.to_string()),
        ],
        vec![
            ("JobState", job.state.word().to_uppercase()),
            (
                "Reason",
                job.why.map_or("None", |why| why.word()).to_string(),
            ),
            ("Detail", or_none(&job.reason)),
        ],
        vec![
            ("Requeue", flag(job.requeue)),
            ("Restarts", job.restarts.to_string()),
            ("BatchFlag", flag(job.batch)),
            ("ExitCode", table::or_dash(job.exit_status)),
        ],
        vec![
            ("RunTime", clock::span(ran / 1_000_000)),
            (
                "TimeLimit",
                job.time_limit_s
                    .map_or_else(|| "UNLIMITED".to_string(), clock::span),
            ),
        ],
        vec![
            ("SubmitTime", clock::rfc3339(job.submitted_unix_us)),
            (
                "StartTime",
                date(job.started_unix_us.or(job.expected_start_unix_us)),
            ),
            ("EndTime", date(job.ended_unix_us)),
        ],
        vec![
            ("NumNodes", job.node_count().to_string()),
            ("NumTasks", job.ranks_total.to_string()),
            ("CPUs/Task", cores),
            ("NodeList", or_none(&job.nodes)),
        ],
        vec![("Dependency", or_none(&after.join(",")))],
        vec![("Command", or_none(&job.command))],
        vec![("WorkDir", or_none(&job.directory))],
        vec![
            ("Program", job.program.clone()),
            ("With", or_none(&job.with.join(","))),
        ],
    ];
    if !job.io.is_empty() {
        let parts = job.io.iter();
        let parts: Vec<String> = parts
            .map(|part| format!("{}*{}", part.service, part.nodes))
            .collect();
        lines.push(vec![("IoServices", parts.join(","))]);
    }
    for trouble in &job.troubles {
        lines.push(vec![("Trouble", or_none(trouble))]);
    }
    if let Some(array) = job.array {
        lines.push(vec![
            ("ArrayJobId", array.first.to_string()),
            ("ArrayTaskId", array.task.to_string()),
        ]);
    }
    if let Some(placement) = &job.placement {
        lines.push(vec![
            ("Hops", placement.hops.to_string()),
            ("Certificate", or_none(&placement.certificate)),
        ]);
    }
    if job.unwritten {
        let text = "its end is not written down yet, see `hearth events`";
        lines.push(vec![("Unwritten", text.to_string())]);
    }
    if let Some(kept) = &job.output {
        lines.push(vec![
            ("OutputBytes", kept.bytes.to_string()),
            ("OutputBytesLost", kept.dropped_bytes.to_string()),
        ]);
    }
    let mut text = String::new();
    for (index, line) in lines.iter().enumerate() {
        let words: Vec<String> = line
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        let indent = if index == 0 { "" } else { "   " };
        text.push_str(&format!("{indent}{}\n", words.join(" ")));
    }
    text
}

/// Prints jobs of the past and the present, the newest last.
pub fn history(global: &Global, options: &HistoryOptions) -> anyhow::Result<()> {
    let times = options.since.zip(options.until);
    if times.is_some_and(|(since, until)| until < since) {
        let text = "--until is before --since: nothing is between them; exchange them";
        return Err(exit::Usage(text.to_string()).into());
    }
    let client = global.client()?;
    let mut query = options.which.query();
    query.extend([("all", "true".to_string()), ("brief", "true".to_string())]);
    query.extend(options.since.map(|at| ("since_unix_us", at.to_string())));
    query.extend(options.until.map(|at| ("until_unix_us", at.to_string())));
    let path = path("/v1/jobs", &query);
    let jobs = super::lists::newest_jobs(&client, &path, options.limit, None);
    let jobs = block_on(async move { Ok(jobs.await?) })?;
    if global.json {
        return print_json(&jobs);
    }
    print_text(&history_text(&jobs, clock::unix_us()))
}

fn history_text(jobs: &[JobInfo], now_us: u64) -> String {
    let mut rows = table::Rows::new(&[
        ("JOBID", table::Side::Right),
        ("NAME", table::Side::Left),
        ("USER", table::Side::Left),
        ("NODES", table::Side::Right),
        ("STATE", table::Side::Left),
        ("EXIT", table::Side::Right),
        ("SUBMIT", table::Side::Left),
        ("ELAPSED", table::Side::Right),
        ("NODELIST", table::Side::Left),
    ]);
    for job in jobs {
        let ended = job.ended_unix_us.unwrap_or(now_us);
        let ran_us = job
            .started_unix_us
            .map_or(0, |started| ended.saturating_sub(started));
        rows.add([
            job.id.to_string(),
            table::short_name(&job.name),
            table::short_name(&job.user),
            job.node_count().to_string(),
            job.state.word().to_uppercase(),
            table::or_dash(job.exit_status),
            // To the second, without the zone: all times are UTC.
            clock::rfc3339(job.submitted_unix_us)
                .trim_end_matches('Z')
                .to_string(),
            clock::span(ran_us / 1_000_000),
            if job.nodes.is_empty() {
                "-".to_string()
            } else {
                job.nodes.clone()
            },
        ]);
    }
    rows.text()
}

#[cfg(test)]
#[path = "queue/tests.rs"]
mod tests;
