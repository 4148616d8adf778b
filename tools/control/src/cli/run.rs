//! `hearth run`: hands a job in, passes its streams, ends with its exit status.
//!
//! Neighbours: `run_session` (streams of a job that was accepted), `report` (the table at the
//! end), `api::jobs` on the other side.
//!
//! Invariant: standard output carries the program's output and nothing of ours (with `--json`:
//! frames and nothing else).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;

use super::{Global, run_session};
use crate::api::types::{
    EXIT_NODE_LOST, EXIT_TIME_LIMIT, JobAccepted, JobInfo, JobRequest, JobState, RankEnd, Reuse,
    WithFile,
};
use crate::client::{Client, RequestError};
use crate::config::{Load, Verify};
use crate::{output, programs, secrets};

/// The command line makes no sense; clap's own status for that.
const EXIT_USAGE: u8 = 2;
/// The program cannot be run.
const EXIT_BAD_PROGRAM: u8 = 126;
/// There is no such program.
const EXIT_NO_PROGRAM: u8 = 127;
/// Cancelled before any rank said how it ended (128 + SIGINT).
const EXIT_CANCELLED: u8 = 130;

/// Options of `hearth run`.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit status: the highest of the ranks, where a rank ended by signal n counts as 128+n. And:
  123  a node was lost under the job
  124  the time limit was reached
  125  control could not do it: no control node, no such nodes, too few warm nodes, queue full, ...
  126  the program cannot be run: not a static x86-64 Linux program, ...
  127  there is no such program file
  130  cancelled before it ran
Ctrl-C ends the job; a second Ctrl-C leaves at once.")]
pub struct Options {
    /// Number of ranks, one a node [default: as many as --nodes names, else 1].
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    ranks: Option<u32>,
    /// Run on these nodes and no others, rank 0 on the first: n0,n[3-5].
    #[arg(long, value_name = "LIST")]
    nodes: Option<String>,
    /// Begin every line of output with its rank.
    #[arg(long)]
    label: bool,
    /// Give the job an environment variable; it gets no others than these and HEARTH_*.
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable())]
    env: Vec<OsString>,
    /// End the job after so many seconds; 0: never [config: jobs.time_limit_s].
    #[arg(long, value_name = "SECONDS")]
    time_limit: Option<u64>,
    /// Show at the end what each rank did and what its launch cost, on standard error; as JSON in
    /// FILE as well.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    report: Option<OsString>,
    /// Do not pass standard input to rank 0.
    #[arg(long)]
    no_input: bool,
    /// Wait for nodes that have not joined yet instead of refusing the job.
    #[arg(long)]
    wait: bool,
    /// Do not use pages that nodes hold from an earlier launch; what they hold of the program goes.
    #[arg(long, conflicts_with = "warm_only")]
    cold: bool,
    /// Run only on nodes that hold the program from an earlier launch; fail if there are too few.
    #[arg(long)]
    warm_only: bool,
    /// Put the program's code into 2 MiB pages if it has enough, or not [config:
    /// retention.large_text].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    large_text: Option<bool>,
    /// When to check pages that stayed on a node [config: retention.verify].
    #[arg(long, value_name = "WHEN")]
    verify: Option<Verify>,
    /// How the program reaches nodes that do not hold it: broadcast, the job starts when all of it is
    /// there; demand, page by page; auto, as suits [config: broadcast.load].
    #[arg(long, value_name = "HOW")]
    load: Option<Load>,
    /// A file that the program finds as /with/NAME: a path, or the name of a file that was cast before;
    /// can be repeated. What is not on the job's nodes is cast to them first.
    #[arg(long, value_name = "FILE")]
    with: Vec<PathBuf>,
    /// Leave checking the program to the nodes (for tests of the nodes).
    #[arg(long, hide = true)]
    no_precheck: bool,
    /// The program and its arguments; everything after PROGRAM is the program's.
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    command: Vec<OsString>,
}

/// Takes `NAME=VALUE`, in whatever encoding.
fn variable() -> impl clap::builder::TypedValueParser<Value = OsString> {
    use clap::builder::TypedValueParser;
    clap::builder::OsStringValueParser::new().try_map(|text| {
        match text.as_bytes().iter().position(|&byte| byte == b'=') {
            Some(1..) => Ok(text),
            _ => Err("write NAME=VALUE"),
        }
    })
}

impl Options {
    /// The program and its arguments, without a `--` between them.
    pub(super) fn command(&self) -> Vec<OsString> {
        let mut command = self.command.clone();
        if command.get(1).is_some_and(|word| word == "--") {
            command.remove(1);
        }
        command
    }
}

/// Runs the job; the exit status is the job's.
pub fn main(global: &Global, options: Options) -> anyhow::Result<ExitCode> {
    let command = options.command();
    if command[0].as_bytes().starts_with(b"-") {
        let word = command[0].to_string_lossy();
        output::say_line(format_args!(
            "there is no option {word}; `hearth run --help` lists the options (a program whose name begins with '-' is run as ./{word})"
        ));
        return Ok(ExitCode::from(EXIT_USAGE));
    }
    let program = Path::new(&command[0]);
    let hash = match hash_program(program) {
        Ok(hash) => hash,
        Err((code, text)) => {
            output::say_line(text);
            return Ok(ExitCode::from(code));
        }
    };
    let config = global.load_config()?;
    let client = global.client()?;
    let (with, paths) = with_files(&options.with)?;
    let mut request = request(&options, &command, hash);
    request.with = with;
    let settings = run_session::Settings {
        label: options.label || config.run.label,
        json: global.json,
        ranks: request.ranks,
        stdin: request.stdin,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let result = runtime.block_on(async {
        let id = hand_in(&client, &request, (program, &paths)).await?;
        run_session::follow(&client, id, settings).await
    });
    // Reading standard input cannot be interrupted; the end of the process ends it.
    runtime.shutdown_background();
    match result {
        Ok(run_session::Outcome::Ended(job)) => finish(global, &options, &job),
        Ok(run_session::Outcome::Left(code)) => Ok(ExitCode::from(code)),
        Err(error) => match error
            .downcast_ref::<RequestError>()
            .and_then(RequestError::code)
        {
            Some("bad-program") => {
                output::say_line(&error);
                Ok(ExitCode::from(EXIT_BAD_PROGRAM))
            }
            _ => Err(error),
        },
    }
}

fn request(options: &Options, command: &[OsString], hash: programs::Hash) -> JobRequest {
    let encode = |word: &OsString| STANDARD.encode(word.as_bytes());
    let name = Path::new(&command[0]).file_name().unwrap_or_default();
    // Without -n the control node counts the nodes named.
    let ranks = options
        .ranks
        .unwrap_or(if options.nodes.is_some() { 0 } else { 1 });
    JobRequest {
        name: name.to_string_lossy().into_owned(),
        program: secrets::encode_hex(&hash),
        args: command.iter().map(encode).collect(),
        env: options.env.iter().map(encode).collect(),
        ranks,
        nodes: options.nodes.clone(),
        time_limit_s: options.time_limit,
        stdin: !options.no_input,
        no_precheck: options.no_precheck,
        wait: options.wait,
        reuse: match (options.cold, options.warm_only) {
            (true, _) => Reuse::Forbid,
            (_, true) => Reuse::Require,
            _ => Reuse::Allow,
        },
        large_text: options.large_text,
        verify: options.verify,
        load: options.load,
        with: Vec::new(),
    }
}

/// Files by the id of their content.
type Paths = BTreeMap<String, PathBuf>;

/// The files of `--with`. A word that is the path of a file is that; another is the name of a file that
/// was cast.
fn with_files(words: &[PathBuf]) -> anyhow::Result<(Vec<WithFile>, Paths)> {
    let mut paths = Paths::new();
    let mut files: Vec<WithFile> = Vec::with_capacity(words.len());
    for word in words {
        let is_path = word.components().count() > 1 || word.is_file();
        let file = if is_path {
            let object = secrets::encode_hex(&super::casts::hash_file(word)?);
            let name = super::hosted::file_name(word)?;
            paths.insert(object.clone(), word.clone());
            let object = Some(object);
            WithFile { name, object }
        } else {
            let name = word
                .to_str()
                .context("names of files that were cast are UTF-8")?;
            WithFile {
                name: name.to_string(),
                object: None,
            }
        };
        crate::hosted::check_name(&file.name)?;
        if files.iter().any(|known| known.name == file.name) {
            bail!(
                "two files of --with are called {:?}; rename one, or cast it under another name with `hearth cast --name`",
                file.name
            );
        }
        files.push(file);
    }
    Ok((files, paths))
}

pub(super) fn hash_program(program: &Path) -> Result<programs::Hash, (u8, String)> {
    let path = program.display();
    let metadata = std::fs::metadata(program).map_err(|error| {
        let hint = match (error.kind(), program.components().count()) {
            (std::io::ErrorKind::NotFound, 1) => "; give its path, the search path is not used",
            _ => "",
        };
        (EXIT_NO_PROGRAM, format!("cannot run {path}: {error}{hint}"))
    })?;
    if !metadata.is_file() {
        return Err((
            EXIT_BAD_PROGRAM,
            format!("cannot run {path}: it is not a file"),
        ));
    }
    programs::hash_of_file(program)
        .map_err(|error| (EXIT_BAD_PROGRAM, format!("cannot read {path}: {error}")))
}

/// Hands the job in; sends the program and its files first if control does not have them.
async fn hand_in(
    client: &Client,
    request: &JobRequest,
    (program, with): (&Path, &Paths),
) -> anyhow::Result<u64> {
    let accepted: Result<JobAccepted, RequestError> = client.post("/v1/jobs", request).await;
    match accepted {
        Err(error) if error.code() == Some("unknown-program") => {}
        accepted => return Ok(accepted?.id),
    }
    let files = with
        .iter()
        .map(|(object, path)| (&object[..], path.as_path()));
    for (object, path) in files.chain([(&request.program[..], program)]) {
        let known: Result<serde_json::Value, RequestError> =
            client.get(&format!("/v1/programs/{object}")).await;
        match known {
            Err(error) if error.code() == Some("unknown-program") => {
                super::casts::upload(client, object, path).await?;
            }
            known => drop(known?),
        }
    }
    let accepted: JobAccepted = client.post("/v1/jobs", request).await?;
    Ok(accepted.id)
}

/// Says how the job ended and gives its exit status.
fn finish(global: &Global, options: &Options, job: &JobInfo) -> anyhow::Result<ExitCode> {
    if job.state != JobState::Completed {
        let ended_alone = job.state == JobState::Failed && job.exit_status.is_some();
        // Like a shell, keep quiet about a program's own exit status.
        let quiet = ended_alone && job.exit_status.is_some_and(|status| status < 125);
        if !quiet {
            output::say_line(format_args!(
                "job {} {}: {}",
                job.id,
                job.state.word(),
                job.reason
            ));
        }
    }
    if job.state == JobState::NodeLost
        && let Ok(state) = global.find()
        && !super::cluster::power_on_unix_ms(&state).is_empty()
    {
        let lost = job
            .ranks
            .iter()
            .filter(|rank| rank.end == Some(RankEnd::NodeLost));
        let mut numbers: Vec<u32> = lost
            .filter_map(|rank| rank.node.strip_prefix('n')?.parse().ok())
            .collect();
        numbers.sort_unstable();
        let list = crate::hostlist::format(&numbers);
        output::say_line(format_args!(
            "`hearth node reset {list}` boots it again if it does not by itself"
        ));
    }
    let ran = job.started_unix_us.is_some();
    if ran && options.report.is_none() && !global.json && std::io::stderr().is_terminal() {
        output::say_line(super::report::line(job));
    }
    if let Some(path) = &options.report {
        output::say(&super::report::text(job));
        // Without FILE the value is empty (a PathBuf's parser would refuse that).
        if !path.is_empty() {
            let json = serde_json::to_vec_pretty(job)?;
            std::fs::write(path, json)
                .with_context(|| format!("cannot write the report to {}", path.display()))?;
        }
    }
    Ok(ExitCode::from(exit_status(job)))
}

fn exit_status(job: &JobInfo) -> u8 {
    let own = job.exit_status.and_then(|status| u8::try_from(status).ok());
    match job.state {
        JobState::TimeLimit => EXIT_TIME_LIMIT,
        JobState::NodeLost => EXIT_NODE_LOST,
        JobState::Cancelled => own.filter(|status| *status > 0).unwrap_or(EXIT_CANCELLED),
        JobState::Failed if job.bad_program => EXIT_BAD_PROGRAM,
        JobState::Failed => own
            .filter(|status| *status > 0)
            .unwrap_or(super::EXIT_CONTROL),
        _ => own.unwrap_or(0),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A job without ranks.
    pub fn job(state: JobState, exit_status: Option<i32>) -> JobInfo {
        JobInfo {
            id: 1,
            name: "p".into(),
            state,
            ranks_total: 1,
            exit_status,
            ..JobInfo::default()
        }
    }

    #[test]
    fn the_exit_status_is_the_jobs_or_ours() {
        assert_eq!(exit_status(&job(JobState::Completed, Some(0))), 0);
        assert_eq!(exit_status(&job(JobState::Failed, Some(42))), 42);
        assert_eq!(exit_status(&job(JobState::Failed, Some(139))), 139);
        assert_eq!(exit_status(&job(JobState::Failed, None)), 125);
        let refused = JobInfo {
            bad_program: true,
            ..job(JobState::Failed, None)
        };
        assert_eq!(exit_status(&refused), 126);
        assert_eq!(exit_status(&job(JobState::TimeLimit, Some(143))), 124);
        assert_eq!(exit_status(&job(JobState::NodeLost, Some(143))), 123);
        assert_eq!(exit_status(&job(JobState::Cancelled, Some(130))), 130);
        assert_eq!(exit_status(&job(JobState::Cancelled, None)), 130);
        assert_eq!(exit_status(&job(JobState::Cancelled, Some(0))), 130);
    }

    #[test]
    fn a_missing_program_is_named() {
        let (code, text) = hash_program(Path::new("/no/such/program")).unwrap_err();
        assert_eq!(code, 127);
        assert!(text.contains("/no/such/program"), "{text}");
        assert_eq!(hash_program(Path::new("/")).unwrap_err().0, 126);
    }
}
