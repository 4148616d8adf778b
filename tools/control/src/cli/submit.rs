//! `hearth submit`: queues a job that nobody waits for.
//!
//! Neighbours: `job_options` (what a job is to be), `script` (job scripts), `api::jobs` on the other
//! side.
//!
//! Invariant: standard output carries the job's number and nothing else that a script would trip over.

use std::ffi::OsString;
use std::io::{IsTerminal, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, Parser};

use super::exit::Failed;
use super::job_options::{Files, JobOptions, QueueOptions, hand_in, hash_program};
use super::script::{self, SCRIPT_MAX_BYTES};
use super::{Global, block_on, exit, print_json, print_text};
use crate::output;

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
Options of the command line go before those of the script. Paths are those of the folder in which
the command runs. The control node keeps the output: `hearth output JOB` prints it.
Exit status: 0 queued; 2, 125, 126, 127 as for `hearth run`.")]
pub struct Options {
    #[command(flatten)]
    job: JobOptions,
    #[command(flatten)]
    queue: QueueOptions,
    /// Print the job's number alone, for scripts.
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

/// What a `#HEARTH` line may say.
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
    let hash = hash_program(Path::new(&asked.command[0]))?;
    let mut files = Files::new();
    let mut request = asked.job.request(&asked.command, hash, &mut files)?;
    asked.queue.complete(&mut request, &mut files)?;
    let client = global.client()?;
    let id = block_on(async { hand_in(&client, &request, &files).await })?.id;
    if global.json {
        print_json(&serde_json::json!({ "id": id }))?;
    } else if options.parsable {
        print_text(&format!("{id}\n"))?;
    } else {
        print_text(&format!("Submitted job {id}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
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
    let path = Path::new(first);
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
    if head.starts_with(ELF_MAGIC) || !head.starts_with(b"#") {
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
    // Line by line, to name the line, and then together, so that contradictions are found.
    for (line, words) in &script.options {
        if let Err(error) = ScriptOptions::try_parse_from(words) {
            let error = reason(&error);
            return Err(Failed::usage(format!("{name}: line {line}: {error}")));
        }
    }
    if let Some(warning) = not_read(name, &script.for_slurm) {
        output::say_line(warning);
    }
    let words: Vec<&OsString> = script.options.iter().flat_map(|(_, words)| words).collect();
    let options = ScriptOptions::try_parse_from(words).map_err(|error| {
        Failed::usage(format!(
            "{name}: the #HEARTH lines together: {}",
            reason(&error)
        ))
    })?;
    let mut job = job.over(options.job);
    job.add_variables(script.variables);
    Ok(Asked {
        job,
        queue: queue.over(options.queue),
        command: script.command,
    })
}

/// What to say of lines that are Slurm's.
fn not_read(name: &str, lines: &[usize]) -> Option<String> {
    let numbers: Vec<String> = lines.iter().map(usize::to_string).collect();
    let which = match numbers.len() {
        0 => return None,
        1 => "line",
        _ => "lines",
    };
    Some(format!(
        "{name}: {which} {}: #SBATCH options are not read; write them as #HEARTH lines, with the options of `hearth submit --help`",
        numbers.join(", ")
    ))
}

/// The first line of what clap says, without its prefix.
fn reason(error: &clap::Error) -> String {
    let text = error.to_string();
    let first = text.lines().next().unwrap_or_default();
    first.trim_start_matches("error: ").to_string()
}

/// The first bytes of a file.
fn head(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::new();
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

    #[test]
    fn lines_of_slurm_are_named() {
        assert_eq!(not_read("job.sh", &[]), None);
        let text = not_read("job.sh", &[2, 4]).unwrap();
        assert!(text.starts_with("job.sh: lines 2, 4: #SBATCH"), "{text}");
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
        let text = refusal("#HEARTH -N 2\n./app");
        assert!(text.contains("line 1") && text.contains("-n"), "{text}");
    }
}
