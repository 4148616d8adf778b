//! `cargo xtask fuzz`: coverage-guided fuzzing of what takes bytes from the network.
//!
//! The targets are those of `netstack/fuzz`. libFuzzer does the work, built by its crate; the
//! compiler's own coverage pass makes it see which code an input reaches, so that a stable compiler
//! is enough.
//!
//! Inputs that reached something new are kept: in `target/fuzz` for the next run, and with `--keep`
//! in `netstack/fuzz/corpus`, a line of hexadecimal digits each, for everybody's.
//!
//! Neighbours: `test` runs every target for some seconds.
//!
//! Invariant: what a target found is a file, and the command that runs it again is told.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};

use crate::limited::{self, Show};
use crate::test::checks::Checks;
use crate::workspace::{Workspace, describe};

/// The targets of `netstack/fuzz`.
pub const TARGETS: [&str; 6] = [
    "node",
    "control",
    "personality",
    "cast",
    "exchange",
    "files",
];
/// Flags of the compiler with which code counts where it has been: those that cargo-fuzz gives.
const COVERAGE: [&str; 5] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];
/// Named, so that build scripts are compiled without these flags.
const HOST_TARGET: &str = "x86_64-unknown-linux-gnu";
/// libFuzzer itself is compiled, too.
const COMPILE_LIMIT: Duration = Duration::from_secs(900);
/// Longest input: some datagrams of full length.
const INPUT_MOST: u32 = 8 * 1_472;
/// An input that takes longer, in seconds, counts as one that hangs. The slowest take milliseconds.
const HANG_S: u32 = 20;
/// Memory of a target, in MiB; an input that takes more counts as a find.
const MEMORY_MIB: u32 = 1_024;
/// Places of the code that each target reaches at least, where they are counted.
const REACHED_LEAST: u64 = 50;
/// Longest input that is kept for everybody: the corpus stays small enough to be read.
const KEPT_MOST: u64 = 1_024;
/// How many inputs of a target are kept for everybody.
const KEPT_COUNT: usize = 200;

/// Options of `cargo xtask fuzz`.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Which targets [default: all]
    #[arg(value_parser = TARGETS)]
    targets: Vec<String>,
    /// How long, each
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    seconds: u32,
    /// Keep what reached something new in netstack/fuzz/corpus
    #[arg(long)]
    keep: bool,
    /// Run one target with this input alone
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
}

/// Runs the targets that the options name.
pub fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    compile(workspace)?;
    if let Some(input) = &options.replay {
        let [target] = &options.targets[..] else {
            bail!("an input is one target's: name it, as in `cargo xtask fuzz node --replay FILE`");
        };
        let status = Command::new(program(workspace, target))
            .arg(input)
            .status()
            .with_context(|| format!("starting {target}"))?;
        return Ok(match status.success() {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        });
    }
    let named = |target: &&str| {
        options.targets.is_empty() || options.targets.iter().any(|name| name == target)
    };
    let mut found_nothing = true;
    for target in TARGETS.into_iter().filter(named) {
        found_nothing &= attack(workspace, target, options.seconds)?;
        if options.keep {
            keep(workspace, target)?;
        }
    }
    Ok(match found_nothing {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Runs these targets for so many seconds each.
pub fn check(workspace: &Workspace, targets: &[&str], seconds: u32) -> Result<Checks> {
    let mut checks = Checks::default();
    for target in targets {
        match attack(workspace, target, seconds)? {
            true => checks.pass(),
            false => checks.fail(format!("{target}: see what it said above")),
        }
    }
    Ok(checks)
}

/// Compiles the targets.
pub fn compile(workspace: &Workspace) -> Result<()> {
    let mut command = workspace.cargo();
    command.args(["build", "--quiet", "--release", "--target", HOST_TARGET]);
    command.args(["--manifest-path", "netstack/fuzz/Cargo.toml"]);
    command.arg("--target-dir").arg(workspace.target());
    command.env("CARGO_ENCODED_RUSTFLAGS", COVERAGE.join("\x1f"));
    let name = describe(&command);
    limited::run(&mut command, COMPILE_LIMIT, Show::All("fuzz"))?.expect_success(&name)?;
    Ok(())
}

/// Runs a target; whether nothing was found.
fn attack(workspace: &Workspace, target: &str, seconds: u32) -> Result<bool> {
    let corpus = corpus(workspace, target);
    fs::create_dir_all(&corpus).with_context(|| format!("making {}", corpus.display()))?;
    spread(&kept(workspace, target), &corpus)?;
    let finds = corpus.with_file_name("found-");
    let mut command = Command::new(program(workspace, target));
    command.current_dir(workspace.root());
    command.arg(format!("-max_total_time={seconds}"));
    command.arg(format!("-max_len={INPUT_MOST}"));
    command.arg(format!("-timeout={HANG_S}"));
    command.arg(format!("-rss_limit_mb={MEMORY_MIB}"));
    command.arg(format!("-artifact_prefix={}", finds.display()));
    command.args(["-print_final_stats=1", "-verbosity=1"]);
    command.arg(&corpus);
    let limit = Duration::from_secs(u64::from(seconds) * 2 + 120);
    let finished = limited::run(&mut command, limit, Show::Nothing)?;
    let count = figure(&finished.lines, "stat::number_of_executed_units:");
    let is_good = finished.status.success();
    // One that ran nothing has found nothing, and shown nothing.
    ensure!(
        !is_good || count.is_some_and(|count| count > 0),
        "{target} ran no input:\n{}",
        finished.lines.join("\n")
    );
    let word = if is_good { "ok     " } else { "FAILED " };
    let count = count.unwrap_or(0);
    let reached = figure_in(&finished.lines, "cov: ").unwrap_or(0);
    ensure!(
        !is_good || reached >= REACHED_LEAST,
        "{target} counts no places of the code: is it compiled without coverage?"
    );
    let text = format!("{word} {target}: {count} inputs, {reached} places of the code reached");
    limited::say("fuzz", &text);
    if !is_good {
        for line in finished.lines.iter().filter(|line| is_of_a_find(line)) {
            limited::say("fuzz", line);
        }
        let input = finished.lines.iter().find_map(|line| {
            let (_, path) = line.split_once("Test unit written to ")?;
            Some(path.trim())
        });
        let input = input.unwrap_or("FILE");
        let again = format!("again: cargo xtask fuzz {target} --replay {input}");
        limited::say("fuzz", &again);
    }
    Ok(is_good)
}

fn is_of_a_find(line: &str) -> bool {
    let words = [
        "panicked at",
        "ERROR: libFuzzer",
        "Test unit written to",
        "SUMMARY",
    ];
    words.iter().any(|word| line.contains(word))
}

/// The number behind a word at the begin of a line.
fn figure(lines: &[String], word: &str) -> Option<u64> {
    let text = lines
        .iter()
        .find_map(|line| line.trim().strip_prefix(word))?;
    text.trim().parse().ok()
}

/// The number behind a word anywhere in the last line that has it.
fn figure_in(lines: &[String], word: &str) -> Option<u64> {
    let (_, rest) = lines.iter().rev().find_map(|line| line.split_once(word))?;
    rest.split_whitespace().next()?.parse().ok()
}

fn program(workspace: &Workspace, target: &str) -> PathBuf {
    workspace
        .target()
        .join(HOST_TARGET)
        .join("release")
        .join(target)
}

/// Where a target's inputs are while it runs.
fn corpus(workspace: &Workspace, target: &str) -> PathBuf {
    workspace.target().join("fuzz").join(target).join("corpus")
}

/// Where a target's inputs are kept for everybody.
fn kept(workspace: &Workspace, target: &str) -> PathBuf {
    workspace
        .root()
        .join(format!("netstack/fuzz/corpus/{target}.hex"))
}

/// Makes a file of every line.
fn spread(kept: &Path, corpus: &Path) -> Result<()> {
    let Ok(text) = fs::read_to_string(kept) else {
        // A target without a corpus begins with nothing.
        return Ok(());
    };
    for (number, line) in text.lines().enumerate() {
        let bytes = HEXLOWER_PERMISSIVE
            .decode(line.trim().as_bytes())
            .with_context(|| {
                let line = number + 1;
                format!(
                    "{}:{line}: write two hexadecimal digits for each byte",
                    kept.display()
                )
            })?;
        let file = corpus.join(format!("kept-{number}"));
        fs::write(&file, bytes).with_context(|| format!("writing {}", file.display()))?;
    }
    Ok(())
}

/// Puts inputs of a target into the corpus that is kept: some of the fewest that together reach
/// what all of them do.
fn keep(workspace: &Workspace, target: &str) -> Result<()> {
    let corpus = corpus(workspace, target);
    let least = corpus.with_file_name("least");
    if least.exists() {
        fs::remove_dir_all(&least).with_context(|| format!("emptying {}", least.display()))?;
    }
    fs::create_dir_all(&least).with_context(|| format!("making {}", least.display()))?;
    let mut command = Command::new(program(workspace, target));
    command.arg("-merge=1").arg(&least).arg(&corpus);
    let name = describe(&command);
    limited::run(&mut command, COMPILE_LIMIT, Show::Nothing)?.expect_success(&name)?;
    let mut inputs = BTreeSet::new();
    for entry in fs::read_dir(&least).with_context(|| format!("listing {}", least.display()))? {
        let entry = entry?;
        if entry.metadata()?.len() <= KEPT_MOST {
            let bytes = fs::read(entry.path())?;
            inputs.insert((bytes.len(), bytes));
        }
    }
    let lines = inputs
        .iter()
        .take(KEPT_COUNT)
        .map(|(_, bytes)| HEXLOWER.encode(bytes) + "\n");
    let kept = kept(workspace, target);
    fs::create_dir_all(kept.parent().context("a file is in a folder")?)?;
    fs::write(&kept, lines.collect::<String>())
        .with_context(|| format!("writing {}", kept.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_kept_as_lines_and_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let (file, corpus) = (
            directory.path().join("node.hex"),
            directory.path().join("c"),
        );
        fs::create_dir(&corpus).unwrap();
        fs::write(&file, format!("{}\n\n", HEXLOWER.encode(&[0, 0xab, 7]))).unwrap();
        spread(&file, &corpus).unwrap();
        assert_eq!(fs::read(corpus.join("kept-0")).unwrap(), [0, 0xab, 7]);
        assert!(fs::read(corpus.join("kept-1")).unwrap().is_empty());
        for wrong in ["0", "zz", "+1", "0x"] {
            fs::write(&file, wrong).unwrap();
            let error = spread(&file, &corpus).unwrap_err().to_string();
            assert!(error.contains("node.hex:1"), "{error}");
        }
    }

    #[test]
    fn figures_are_read_from_what_libfuzzer_prints() {
        let lines = [
            "#2\tINITED cov: 88 ft: 89 corp: 1/1b exec/s: 0 rss: 45Mb",
            "#9\tNEW    cov: 93 ft: 95 corp: 3/5b lim: 4 exec/s: 0",
            "stat::number_of_executed_units: 129",
        ]
        .map(str::to_owned);
        assert_eq!(figure(&lines, "stat::number_of_executed_units:"), Some(129));
        assert_eq!(figure_in(&lines, "cov: "), Some(93));
        assert_eq!(figure(&lines[..1], "stat::number_of_executed_units:"), None);
    }
}
