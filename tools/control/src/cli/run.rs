//! `hearth run`: hands a job in, passes its streams, ends with its exit status.
//!
//! Neighbours: `run_session` (streams of a job that was accepted), `report` (the table at the
//! end), `api::jobs` on the other side.
//!
//! Invariant: standard output carries the program's output and nothing of ours (with `--json`:
//! frames and nothing else).

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;

use super::job_options::{Files, JobOptions, hand_in, hash_program};
use super::{Global, exit, run_session, screen};
use crate::api::types::{JobInfo, JobState, RankEnd};
use crate::jobs::record;
use crate::output;
use crate::output_files::Names;

/// Options of `hearth run`.
#[derive(Debug, Args)]
#[command(after_help = exit::of_a_job() + "Ctrl-C ends the job; a second Ctrl-C leaves at once.")]
pub struct Options {
    #[command(flatten)]
    job: JobOptions,
    /// Begin every line of output with its rank.
    #[arg(short = 'l', long)]
    label: bool,
    /// Show at the end what each rank did and what its launch cost, on standard error; as JSON in
    /// FILE as well.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    report: Option<OsString>,
    /// Do not pass standard input to rank 0.
    #[arg(long)]
    no_input: bool,
    /// The program and its arguments; everything after PROGRAM is the program's.
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    command: Vec<OsString>,
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
        if let Some(instead) = of_submit(&word) {
            return Err(exit::Failed::usage(format!("{word}: {instead}")).into());
        }
        return Err(exit::Failed::usage(format!(
            "there is no option {word}; `hearth run --help` lists the options (a program whose name begins with '-' is run as ./{word})"
        ))
        .into());
    }
    let program = options.job.path(Path::new(&command[0]));
    if let Some(refused) = script_refused(&program) {
        return Err(refused.into());
    }
    let hash = hash_program(&program)?;
    let config = global.load_config()?;
    let client = global.client()?;
    let mut files = Files::new();
    let mut request = options.job.request(&command, hash, &mut files)?;
    request.stdin = !options.no_input;
    let wanted = options.job.output_files(false, "core.%n")?;
    if let Some(text) = options.job.unseen() {
        output::say_line(&text);
    }
    if global.json && !wanted.is_nothing() {
        return Err(exit::Failed::usage(
            "--json prints what the job writes in frames; leave -o, -e and --core out, or --json",
        )
        .into());
    }
    let names = Names {
        name: request.name.clone(),
        user: crate::user::name(),
        ..Names::default()
    };
    let mut settings = screen::Settings {
        label: options.label || config.run.label,
        json: global.json,
        ranks: request.ranks,
        stdin: request.stdin,
        wanted,
        names,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let result = runtime.block_on(async {
        let mut signals = run_session::Signals::new()?;
        let job = tokio::select! {
            job = hand_in(&client, &request, &files) => job?,
            // What was not accepted yet is not run, and what was is ended when nobody asks for its
            // output.
            number = signals.next() => {
                return Ok(run_session::Outcome::Left(exit::by_signal(number)));
            }
        };
        settings.names.job = job.id;
        run_session::follow(&client, &job, settings, signals).await
    });
    // Reading standard input cannot be interrupted; the end of the process ends it.
    runtime.shutdown_background();
    match result? {
        run_session::Outcome::Ended(job) => finish(global, &options, &job),
        run_session::Outcome::Left(code) => Ok(ExitCode::from(code)),
    }
}

/// What to say of a script where a program is expected, if this is one.
fn script_refused(program: &Path) -> Option<exit::Failed> {
    super::submit::is_script(program).then(|| {
        let path = program.display();
        let text = format!(
            "cannot run {path}: it is a script, and nodes have no shell; `hearth submit {path}` takes a job script, with its #SBATCH lines"
        );
        exit::Failed::new(exit::BAD_PROGRAM, text)
    })
}

/// What to write instead of an option that only jobs have that nobody waits for.
fn of_submit(word: &str) -> Option<&'static str> {
    let long = word.split('=').next().unwrap_or(word);
    let is = |short: &str, name: &str| {
        long == name || (word.starts_with(short) && !word.starts_with("--"))
    };
    if is("-i", "--input") {
        return Some("rank 0 reads the standard input of `hearth run`: write `< FILE`");
    }
    let of_jobs = is("-a", "--array") || is("-H", "--hold") || long == "--requeue";
    of_jobs.then_some("only a job that nobody waits for can have it: use `hearth submit`")
}

/// Says how the job ended and gives its exit status.
fn finish(global: &Global, options: &Options, job: &JobInfo) -> anyhow::Result<ExitCode> {
    let status = tell_end(global, job)?;
    if let Some(path) = &options.report {
        output::say_line(super::report::line(job));
        output::say(&super::report::text(job));
        // Without FILE the value is empty (a PathBuf's parser would refuse that).
        if !path.is_empty() {
            let json = serde_json::to_vec_pretty(job)?;
            std::fs::write(path, json)
                .with_context(|| format!("cannot write the report to {}", path.display()))?;
        }
    }
    Ok(status)
}

/// Says how a job ended that did not complete, with the rank that decided it, and gives its exit
/// status.
pub(super) fn tell_end(global: &Global, job: &JobInfo) -> anyhow::Result<ExitCode> {
    // With --json the last frame has all of it.
    if global.json {
        return Ok(ExitCode::from(exit_status(job)));
    }
    if job.state != JobState::Completed {
        output::say_line(format_args!("job {} {}", job.id, job.how_ended()));
    } else if let Some(refused) = record::refused_calls(&job.ranks) {
        output::say_line(format_args!(
            "job {} completed, and was refused: {refused}",
            job.id
        ));
    }
    for trouble in &job.troubles {
        let trouble = output::plain(trouble).replace('\n', " ");
        output::say_line(format_args!("job {}: {trouble}", job.id));
    }
    // One that booted again by itself is there, or on its way.
    if job.state == JobState::NodeLost
        && !job.reason.contains("booted again")
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
    Ok(ExitCode::from(exit_status(job)))
}

fn exit_status(job: &JobInfo) -> u8 {
    let own = job.exit_status.and_then(|status| u8::try_from(status).ok());
    match job.state {
        JobState::TimeLimit => exit::TIME_UP,
        JobState::NodeLost => exit::NODE_LOST,
        JobState::Cancelled => own.filter(|status| *status > 0).unwrap_or(exit::CANCELLED),
        JobState::Failed if job.bad_program => exit::BAD_PROGRAM,
        JobState::Failed => own.filter(|status| *status > 0).unwrap_or(exit::CONTROL),
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
    fn options_of_submit_are_told() {
        for word in ["-a1-3", "-a", "--array=1-3", "-H", "--requeue"] {
            assert!(of_submit(word).unwrap().contains("hearth submit"), "{word}");
        }
        assert!(of_submit("--input=x").unwrap().contains("< FILE"));
        for word in ["--attach", "--holder", "-z"] {
            assert_eq!(of_submit(word), None, "{word}");
        }
    }

    #[test]
    fn a_script_is_for_submit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("job.sh");
        std::fs::write(&path, "#!/bin/bash\n#SBATCH -n 2\n./app\n").unwrap();
        let refused = script_refused(&path).unwrap();
        assert_eq!(refused.status, 126);
        let wanted = format!("`hearth submit {}`", path.display());
        assert!(refused.text.contains(&wanted), "{refused}");
        std::fs::write(&path, "\x7fELF#").unwrap();
        assert!(script_refused(&path).is_none());
        assert!(script_refused(&folder.path().join("none")).is_none());
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
}
