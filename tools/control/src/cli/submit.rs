//! `hearth submit`: queues a job that nobody waits for.
//!
//! Neighbours: `job_options` (what a job is to be), `script` (job scripts), `api::jobs` on the
//! other side.
//!
//! Invariant: standard output carries the job's number and nothing else that a script would trip
//! over.

use std::ffi::OsString;
use std::io::{IsTerminal, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, Parser};
use futures_util::FutureExt;

use super::array::Array;
use super::exit::Failed;
use super::job_options::{Files, JobOptions, QueueOptions, hand_in, hash_program};
use super::run_session::Signals;
use super::script::{self, SCRIPT_MAX_BYTES};
use super::{Global, block_on, exit, print_json, print_text, slurm};
use crate::api::types::{ArrayTask, JobRequest};
use crate::client::Client;

/// What a script begins with.
const SCRIPT_MAGIC: &[u8] = b"#";
/// What a program's file begins with.
const ELF_MAGIC: &[u8] = b"\x7fELF";

/// Options of `hearth submit`.
#[derive(Debug, Args)]
#[command(after_help = "\
A job script is a text; nodes have no shell, so it is read and not run:
  #!/usr/bin/env -S hearth submit
  #HEARTH -n 4 --time-limit 10:00
  #HEARTH --name solve
  SIZE=100 ./solver --iterations 50
#SBATCH lines are read in the same way; an option of Slurm that has no equivalent stops the submission.
Options of the command line go before those of #HEARTH lines, and these before those of #SBATCH lines.
Paths are those of the folder in which the command runs, or of --chdir. The control node keeps the output: `hearth output JOB` prints it.
Exit status: 0 queued; 2, 125, 126, 127 as for `hearth run`.")]
pub struct Options {
    #[command(flatten)]
    job: JobOptions,
    #[command(flatten)]
    queue: QueueOptions,
    /// Print the job's number alone, for scripts; of an array the number of each job on a line.
    #[arg(long)]
    parsable: bool,
    /// The program and its arguments, or a job script [default: a job script from standard input].
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    command: Vec<OsString>,
}

/// What a line of options may say.
#[derive(Debug, Parser)]
#[command(
    name = "#HEARTH",
    no_binary_name = true,
    disable_help_flag = true,
    disable_version_flag = true
)]
struct ScriptOptions {
    #[command(flatten)]
    job: JobOptions,
    #[command(flatten)]
    queue: QueueOptions,
}

/// A job as it was asked for, on the command line or in a script.
struct Asked {
    job: JobOptions,
    queue: QueueOptions,
    command: Vec<OsString>,
}

/// Queues the job.
pub fn main(global: &Global, options: Options) -> anyhow::Result<ExitCode> {
    let asked = asked(options.job, options.queue, options.command)?;
    let hash = hash_program(&asked.job.path(Path::new(&asked.command[0])))?;
    let mut files = Files::new();
    let mut request = asked.job.request(&asked.command, hash, &mut files)?;
    asked.queue.complete(&asked.job, &mut request, &mut files)?;
    let in_array = asked.queue.array.is_some();
    let wanted = asked.job.output_files(in_array, "core.%j.%n")?;
    if let Some(text) = asked.job.unseen() {
        crate::output::say_line(&text);
    }
    request.output = wanted.output.map(|pattern| pattern.to_string());
    request.error = wanted.error.map(|pattern| pattern.to_string());
    request.core = wanted.core.map(|pattern| pattern.to_string());
    let client = global.client()?;
    let ids = block_on(async {
        match &asked.queue.array {
            None => Ok(vec![hand_in(&client, &request, &files).await?.id]),
            Some(array) => hand_in_array(&client, &mut request, &files, array).await,
        }
    })?;
    if global.json {
        match ids[..] {
            [id] if asked.queue.array.is_none() => print_json(&serde_json::json!({ "id": id }))?,
            _ => print_json(&serde_json::json!({ "ids": ids }))?,
        }
    } else if options.parsable {
        let lines: String = ids.iter().map(|id| format!("{id}\n")).collect();
        print_text(&lines)?;
    } else {
        print_text(&format!("Submitted {}\n", named(&ids)))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Hands in a job for each task of an array, one after the other; where one is refused, or the user
/// interrupts, says which were taken.
async fn hand_in_array(
    client: &Client,
    request: &mut JobRequest,
    files: &Files,
    array: &Array,
) -> anyhow::Result<Vec<u64>> {
    let mut signals = Signals::new()?;
    let mut ids: Vec<u64> = Vec::with_capacity(array.tasks.len());
    for &task in &array.tasks {
        if let Some(number) = signals.next().now_or_never() {
            let text = match ids.is_empty() {
                true => "interrupted before any job of the array was submitted".to_string(),
                false => format!(
                    "interrupted: {} of the array submitted, the other {} not; {}",
                    named(&ids),
                    array.tasks.len() - ids.len(),
                    "`hearth cancel` ends those that are"
                ),
            };
            return Err(Failed::new(exit::by_signal(number), text).into());
        }
        request.array = Some(ArrayTask {
            first: ids.first().copied().unwrap_or(0),
            task,
            at_once: array.at_once,
        });
        match hand_in(client, request, files).await {
            Ok(accepted) => ids.push(accepted.id),
            Err(error) if ids.is_empty() => return Err(error),
            Err(error) => {
                let rest = array.tasks.len() - ids.len();
                return Err(error.context(format!(
                    "{} of the array submitted, {rest} not (task {task} is the first of these)",
                    named(&ids)
                )));
            }
        }
    }
    Ok(ids)
}

/// `job 12`, `jobs 12-15,17`.
fn named(ids: &[u64]) -> String {
    let runs = ids.chunk_by(|a, b| a + 1 == *b).map(|run| match run {
        [first, .., last] => format!("{first}-{last}"),
        _ => run[0].to_string(),
    });
    let word = if ids.len() == 1 { "job" } else { "jobs" };
    format!("{word} {}", runs.collect::<Vec<_>>().join(","))
}

/// Finds out what is to run: a program, or what a script says.
fn asked(
    job: JobOptions,
    queue: QueueOptions,
    mut command: Vec<OsString>,
) -> Result<Asked, Failed> {
    if command.get(1).is_some_and(|word| word == "--") {
        command.remove(1);
    }
    let Some(first) = command.first() else {
        let (name, text) = (String::from("standard input"), read_input()?);
        return of_script(job, queue, &name, &text);
    };
    if first.as_bytes().starts_with(b"-") {
        let word = first.to_string_lossy();
        return Err(Failed::usage(format!(
            "there is no option {word}; `hearth submit --help` lists the options"
        )));
    }
    // A job script is looked for here, a program where --chdir says.
    let here = Path::new(first);
    let is_script = is_script(here);
    let path = &match is_script {
        true => here.to_path_buf(),
        false => job.path(here),
    };
    if path.is_dir() {
        return Err(Failed {
            status: exit::BAD_PROGRAM,
            text: format!("cannot run {}: it is not a file", path.display()),
        });
    }
    let head = head(path).map_err(|error| Failed {
        status: exit::NO_PROGRAM,
        text: format!("cannot submit {}: {error}", path.display()),
    })?;
    // What is neither goes on as a program, so that control says what is wrong with it.
    if head.starts_with(ELF_MAGIC) || !head.starts_with(SCRIPT_MAGIC) {
        return Ok(Asked {
            job,
            queue,
            command,
        });
    }
    if command.len() > 1 {
        return Err(Failed::usage(format!(
            "{} is a job script, which takes no arguments; write them on its program's line",
            path.display()
        )));
    }
    let name = path.display().to_string();
    let file = std::fs::File::open(path).map_err(|error| Failed {
        status: exit::NO_PROGRAM,
        text: format!("cannot read {name}: {error}"),
    })?;
    let text = read_script(file).map_err(|error| Failed::usage(format!("{name}: {error:#}")))?;
    of_script(job, queue, &name, &text)
}

/// What a script says, under what the command line says.
fn of_script(
    job: JobOptions,
    queue: QueueOptions,
    name: &str,
    text: &str,
) -> Result<Asked, Failed> {
    let script = script::parse(text);
    let script = script.map_err(|error| Failed::usage(format!("{name}: {error}")))?;
    let name_of_program = script.command[0].to_string_lossy();
    if let Some(text) = slurm::starter(&name_of_program) {
        return Err(Failed::usage(format!("{name}: {text}")));
    }
    for (line, words) in &script.for_slurm {
        if let Some(text) = slurm::waiting(words) {
            return Err(Failed::usage(format!("{name}: line {line}: {text}")));
        }
    }
    let theirs = of_lines(name, "#SBATCH", &script.for_slurm)?;
    let ours = of_lines(name, "#HEARTH", &script.options)?;
    let mut job = job.over(ours.job.over(theirs.job));
    job.add_variables(script.variables);
    Ok(Asked {
        job,
        queue: queue.over(ours.queue.over(theirs.queue)),
        command: script.command,
    })
}

/// What lines of options say: line by line, to name the line of a mistake, and then together, so
/// that contradictions are found.
fn of_lines(
    name: &str,
    mark: &str,
    lines: &[(usize, Vec<OsString>)],
) -> Result<ScriptOptions, Failed> {
    for (line, words) in lines {
        if let Err(error) = ScriptOptions::try_parse_from(words) {
            let error = reason(&error);
            return Err(Failed::usage(format!(
                "{name}: line {line}: {error}; `hearth submit --help` lists the options"
            )));
        }
    }
    let words: Vec<&OsString> = lines.iter().flat_map(|(_, words)| words).collect();
    ScriptOptions::try_parse_from(words).map_err(|error| {
        let error = reason(&error);
        Failed::usage(format!("{name}: the {mark} lines together: {error}"))
    })
}

/// The first line of what clap says, without its prefix.
fn reason(error: &clap::Error) -> String {
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    first.trim_start_matches("error: ").to_string()
}

/// The first bytes of a file.
/// The file begins as job scripts do, and those of a shell.
pub(super) fn is_script(path: &Path) -> bool {
    head(path).is_ok_and(|head| head.starts_with(b"#!"))
}

fn head(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::new();
    // Opening a pipe waits for who writes to it.
    if !std::fs::metadata(path)?.is_file() {
        return Err(std::io::Error::other("it is not a file"));
    }
    let file = std::fs::File::open(path)?;
    file.take(ELF_MAGIC.len() as u64).read_to_end(&mut head)?;
    Ok(head)
}

fn read_input() -> Result<String, Failed> {
    let input = std::io::stdin();
    if input.is_terminal() {
        return Err(Failed::usage(
            "nothing to submit; name a program or a job script, or pass a script on standard input",
        ));
    }
    read_script(input.lock()).map_err(|error| Failed::usage(format!("standard input: {error:#}")))
}

fn read_script(from: impl Read) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    let mut limited = from.take(SCRIPT_MAX_BYTES + 1);
    limited
        .read_to_end(&mut bytes)
        .context("reading the script")?;
    if bytes.len() as u64 > SCRIPT_MAX_BYTES {
        bail!("a job script has at most {SCRIPT_MAX_BYTES} bytes; is this one?");
    }
    String::from_utf8(bytes).context("a job script is a text in UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::types::AfterCondition;

    fn script(text: &str) -> Result<Asked, String> {
        let (job, queue) = (JobOptions::default(), QueueOptions::default());
        of_script(job, queue, "job.sh", text).map_err(|not| not.text)
    }

    fn refusal(text: &str) -> String {
        script(text).err().unwrap()
    }

    #[test]
    fn a_script_gives_options_and_a_program() {
        let asked = script("#HEARTH -n 2 --hold\n#HEARTH -t 1:30\nA=1 ./app x")
            .ok()
            .unwrap();
        assert_eq!(asked.command, ["./app", "x"]);
        let request = asked
            .job
            .request(&asked.command, [0; 32], &mut Files::new())
            .unwrap();
        assert_eq!((request.ranks, request.time_limit_s), (2, Some(90)));
        assert_eq!(request.env.len(), 1);
    }

    fn request(text: &str) -> JobRequest {
        let asked = script(text).ok().unwrap();
        let mut files = Files::new();
        let mut request = asked
            .job
            .request(&asked.command, [0; 32], &mut files)
            .unwrap();
        asked
            .queue
            .complete(&asked.job, &mut request, &mut files)
            .unwrap();
        request
    }

    #[test]
    fn options_of_slurm_have_their_meaning() {
        let input = tempfile::NamedTempFile::new().unwrap();
        let (folder, file) = (
            input.path().parent().unwrap(),
            input.path().file_name().unwrap(),
        );
        let text = format!(
            "#!/bin/sh\n#SBATCH --job-name=solve\n#SBATCH --nodes=4 --ntasks 4\n#SBATCH --time=10\n\
             #SBATCH --exclude=n[0-1] -w n3\n#SBATCH -d afterany:1:2,afterok:3\n#SBATCH -H --requeue\n\
             #SBATCH --chdir={} --input={}\n#SBATCH --export=A=1,B=2 --nice=7\n\
             #SBATCH --exclusive --ntasks-per-node=1 -c 1\n./app",
            folder.display(),
            file.display()
        );
        let request = request(&text);
        assert_eq!((request.ranks, request.nodes), (4, None));
        assert_eq!(request.name, "solve");
        assert_eq!(request.time_limit_s, Some(600));
        assert_eq!(request.nodelist.as_deref(), Some("n3"));
        assert_eq!(request.exclude.as_deref(), Some("n[0-1]"));
        let after: Vec<u64> = request.after.iter().map(|after| after.job).collect();
        assert_eq!(after, [1, 2, 3]);
        assert_eq!(request.after[2].condition, AfterCondition::Ok);
        assert!(request.hold && request.requeue && request.input.is_some());
        assert_eq!((request.env.len(), request.priority), (2, -7));
    }

    #[test]
    fn an_option_of_slurm_without_an_equivalent_stops_the_submission() {
        for (line, words) in [
            ("-p debug", "no partitions"),
            ("--mem=4G", "all their memory"),
            ("--ntasks-per-node=4", "evenly"),
            ("--export=ALL", "named"),
            ("--nodes=2-4", "node"),
            ("--wait", "--follow"),
            ("-W", "--follow"),
            ("-d singleton", "afterany"),
            ("--no-such-option=3", "--no-such-option"),
            ("-o %N.out", "%j"),
        ] {
            let text = refusal(&format!("#!/bin/sh\n#SBATCH -n 2\n#SBATCH {line}\n./app"));
            assert!(text.starts_with("job.sh: line 3: "), "{line}: {text}");
            assert!(text.contains(words), "{line}: {text}");
        }
        let text = refusal("#SBATCH -n 4\nsrun ./app");
        assert!(text.contains("srun is not needed"), "{text}");
    }

    #[test]
    fn lines_of_ours_go_before_those_of_slurm_and_the_command_line_before_both() {
        let text = "#SBATCH -n 8 -t 60 -J a\n./app";
        let ours = request(&text.replace("./app", "#HEARTH -n 2 --name b\n./app"));
        assert_eq!(
            (ours.ranks, &*ours.name, ours.time_limit_s),
            (2, "b", Some(3600))
        );
        let line = ScriptOptions::try_parse_from(["--nodes", "n[0-2]"]).unwrap();
        let asked = of_script(line.job, line.queue, "job.sh", text)
            .ok()
            .unwrap();
        let mut files = Files::new();
        let both = asked.job.request(&asked.command, [0; 32], &mut files);
        let both = both.unwrap();
        assert_eq!((both.ranks, both.nodes.as_deref()), (0, Some("n[0-2]")));
    }

    #[test]
    fn jobs_are_named_in_runs() {
        assert_eq!(named(&[7]), "job 7");
        assert_eq!(named(&[7, 8, 9, 11, 13, 14]), "jobs 7-9,11,13-14");
    }

    #[test]
    fn ranks_are_one_a_node_unless_there_are_numbers_of_both() {
        assert_eq!(request("#HEARTH -N 3\n./app").ranks, 3);
        assert_eq!(request("#HEARTH --nodes 3\n./app").ranks, 3);
        assert_eq!(request("#HEARTH -w n[0-3]\n./app").ranks, 0);
        let both = request("#SBATCH -N 4 -n 16\n./app");
        assert_eq!((both.ranks, both.node_count), (16, 4));
        assert_eq!(request("#HEARTH -n 3\n./app").node_count, 0);
        let both = request("#SBATCH -N 4\n#HEARTH --nodes 3\n./app");
        assert_eq!(
            (both.ranks, both.node_count),
            (3, 0),
            "lines of ours go before"
        );
        let asked = script("#HEARTH --nodes n3 -x n0\n./app").ok().unwrap();
        let error = asked
            .job
            .request(&asked.command, [0; 32], &mut Files::new())
            .unwrap_err();
        assert!(error.to_string().contains("-x"), "{error}");
    }

    #[test]
    fn a_script_with_a_mistake_names_the_line() {
        let text = refusal("#HEARTH -n 2\n#HEARTH --hodl\n./app");
        assert!(
            text.contains("job.sh: line 2") && text.contains("--hodl"),
            "{text}"
        );
        let text = refusal("#HEARTH -n 0\n./app");
        assert!(text.contains("line 1"), "{text}");
        let text = refusal("#HEARTH --cold\n#HEARTH --warm-only\n./app");
        assert!(
            text.contains("together") && text.contains("--warm-only"),
            "{text}"
        );
        let text = refusal("#HEARTH ./app\n./app");
        assert!(text.contains("line 1"), "{text}");
    }
}
