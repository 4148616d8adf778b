//! `cargo xtask test`: everything that must hold.
//!
//! Key type: [`Part`]. Neighbours: [`schedule`] decides what runs when, [`report`] tells what came
//! of it; [`kernel`] runs the kernel's own tests in QEMU, [`mutants`] changes of the code; [`full`]
//! divides what takes hours; the other parts are commands of cargo and of this program.
//!
//! Invariant: the very last line is `N passed, N failed`, and the exit status says the same. What
//! could not run counts as failed.

pub mod checks;
mod full;
pub mod kernel;
mod mutants;
mod report;
mod schedule;

use std::num::NonZero;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;

use crate::compile;
use crate::conformance;
use crate::limited::{self, Show};
use crate::package;
use crate::structure;
use crate::workspace::{BARE_METAL_TARGET, KERNEL_PROFILE, Workspace, describe, output_of};
use checks::Checks;
use full::{Full, Shard};
use report::Report;
use schedule::{Kind, Task};

/// Formatting takes seconds, and the lints of the fuzz targets a minute.
const CARGO_LIMIT: Duration = Duration::from_secs(900);
/// Host tests run in minutes; a test that waits for something that never comes ends here.
const HOST_TEST_LIMIT: Duration = Duration::from_secs(1_200);
/// The simulator's check.
const SIMULATION_LIMIT: Duration = Duration::from_secs(900);
/// Each fuzz target is run for so long: a minute for all.
const FUZZ_SECONDS: u32 = 12;
/// Boots of many emulated machines, under whatever load.
const QEMU_TEST_LIMIT: Duration = Duration::from_secs(1_800);
/// Parts at a time, of which one that compiles counts twice: one that compiles and one that runs at
/// least, and no more than the tests of one part bear beside them. Tests of clusters wait half of
/// their time, so one more runs than there are processors.
const LANES_LEAST: usize = 3;
const LANES_MOST: usize = 4;

/// Test programs with tests that need QEMU, a network namespace, a browser, other installed
/// programs or built images; such tests are marked `#[ignore]`, so that a plain `cargo test` works
/// with nothing installed.
const QEMU_TESTS: [&str; 6] = ["boards", "boot", "cluster", "control", "netns", "qemu"];

/// Options of `cargo xtask test`.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Run only these parts, with what was built last unless `images` and `build` are among them
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// Run those kernel tests that take seeds, with these (FROM..TO), instead of all: `--only
    /// kernel --seeds 20..200`
    #[arg(long, value_parser = kernel::parse_seeds, value_name = "FROM..TO")]
    seeds: Option<std::ops::Range<u64>>,
    /// Run what takes hours, piece by piece; what passed at this commit is not run again
    #[arg(long, conflicts_with = "seeds")]
    full: bool,
    /// Run a share of the pieces: `--full --shard 1/3`
    #[arg(long, requires = "full", value_name = "NUMBER/OF")]
    shard: Option<Shard>,
    /// Show the last result, and run nothing
    #[arg(long, requires = "full")]
    status: bool,
}

/// In the names of those of these tests that take long or download something: `--full` runs them.
const ON_REQUEST: &str = "on_request";

/// A part of the tests. Where there is a choice, the first is begun first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Formatting
    Fmt,
    /// Rules about the source tree
    Structure,
    /// Building MPI: MPICH with the netmod of Hearth
    MpiLibrary,
    /// Building the operator's binary and the programs
    Build,
    /// Building the boot images
    Images,
    /// Lints of hosted and bare-metal crates
    Clippy,
    /// The whole path as its user sees it
    EndToEnd,
    /// The kernel's own tests in QEMU
    Kernel,
    /// Programs of a POSIX test suite and tests of file systems on nodes: a sample
    Conformance,
    /// Programs with MPI on nodes, and a sample of MPICH's test suite; with `--full` all of it
    Mpi,
    /// What takes bytes from the network, fuzzed for a minute
    Fuzz,
    /// Unit and property tests on the host
    Host,
    /// Boot images and clusters in QEMU
    Qemu,
    /// The protocols in the simulator
    Simulation,
    /// Commands in the documentation exist
    Commands,
    /// The package on an empty Debian system; not run unless asked for, as those below
    Package,
    /// Random scenarios in the simulator for a quarter of an hour
    Soak,
    /// Changes of the code that tests must notice
    Mutants,
    /// Changes of the kernel that tests on several cores must notice
    KernelMutants,
}

/// The parts that are run by `--full` and when asked for.
const LONG_PARTS: [Part; 4] = [
    Part::Package,
    Part::Soak,
    Part::Mutants,
    Part::KernelMutants,
];

/// A task is what a part compiles, or what it runs.
type Name = (Part, Kind);

/// Runs the tests; the last line on standard output is the count.
pub fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    if options.status {
        let totals = full::tell(workspace)?;
        println!("{} passed, {} failed", totals.passed, totals.failed);
        return Ok(ExitCode::SUCCESS);
    }
    let workspace = &workspace.checked();
    let shard = options.shard.unwrap_or(Shard::WHOLE);
    let full = options.full.then(|| Full::begin(workspace, shard));
    let full = full.transpose()?;
    crate::setup::run(workspace, &crate::setup::Options::default())
        .context("setting the machine up")?;
    if options.full {
        crate::setup::for_whole_test().context("setting the machine up for the whole test")?;
    }
    let parts = Part::value_variants().iter().copied();
    let is_wanted = |part: &Part| match &options.only[..] {
        [] => full.is_some() || !LONG_PARTS.contains(part),
        only => only.contains(part),
    };
    let parts = parts.filter(is_wanted);
    let tasks = match &full {
        None => parts
            .flat_map(|part| part.tasks(workspace, options))
            .collect(),
        Some(full) => full.tasks(parts, options)?,
    };
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    let lanes = (processors + 1).clamp(LANES_LEAST, LANES_MOST);
    let report = Report::begin();
    let done = schedule::run(tasks, lanes, &|(part, _), kind, done| {
        report.tell(
            part.title(),
            kind,
            done.map(|done| (&done.outcome, done.time)),
        );
    });
    let totals = report.end(&done, |(part, _)| part.title());
    if let Some(full) = &full {
        full.end()?;
    }
    println!("{} passed, {} failed", totals.passed, totals.failed);
    Ok(match totals.failed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

impl Part {
    fn title(self) -> &'static str {
        match self {
            Self::Fmt => "formatting",
            Self::Clippy => "lints",
            Self::Structure => "structure",
            Self::Host => "unit and property tests",
            Self::Simulation => "simulation",
            Self::Fuzz => "fuzzing",
            Self::Images => "boot images",
            Self::Build => "hearth and programs",
            Self::Commands => "commands in the documentation",
            Self::Qemu => "images and clusters in QEMU",
            Self::Kernel => "kernel tests in QEMU",
            Self::EndToEnd => "end to end",
            Self::Conformance => "conformance",
            Self::MpiLibrary => "building MPI",
            Self::Mpi => "MPI",
            Self::Package => "the package on an empty system",
            Self::Soak => "simulation, for long",
            Self::Mutants => "mutants",
            Self::KernelMutants => "mutants of the kernel",
        }
    }

    /// What stands before lines of this part.
    fn label(self) -> &'static str {
        match self {
            Self::Fmt => "fmt",
            Self::Structure => "structure",
            Self::Images | Self::Build => "build",
            Self::Clippy => "lints",
            Self::Host => "host",
            Self::Simulation => "sim",
            Self::Fuzz => "fuzz",
            Self::Commands => "commands",
            Self::Qemu => "qemu",
            Self::Kernel => "kernel",
            Self::EndToEnd => "e2e",
            Self::Conformance => "conform",
            Self::MpiLibrary | Self::Mpi => "mpi",
            Self::Package => "package",
            Self::Soak => "soak",
            Self::Mutants => "mutants",
            Self::KernelMutants => "kernel mutants",
        }
    }

    /// What must have passed before it can run.
    fn needs(self) -> Vec<Name> {
        let parts = match self {
            Self::Kernel | Self::EndToEnd | Self::Conformance | Self::Mpi => {
                vec![Self::Images, Self::Build]
            }
            Self::Qemu => vec![Self::Images, Self::Build, Self::Host],
            Self::Host | Self::Fuzz | Self::Package => vec![self],
            Self::Commands | Self::Simulation | Self::Soak | Self::KernelMutants => {
                vec![Self::Build]
            }
            Self::Fmt
            | Self::Structure
            | Self::Images
            | Self::Clippy
            | Self::Build
            | Self::MpiLibrary
            | Self::Mutants => vec![],
        };
        let compiled = |part| (part, Kind::Compiles);
        let mut needs: Vec<_> = parts.into_iter().map(compiled).collect();
        if self == Self::Mpi {
            needs.push((Self::MpiLibrary, Kind::Runs));
        }
        needs
    }

    fn tasks<'a>(self, workspace: &'a Workspace, options: &'a Options) -> Vec<Task<'a, Name>> {
        let task = |kind, needs, body| Task {
            name: (self, kind),
            kind,
            needs,
            body,
        };
        type Body<'a> = Box<dyn FnOnce() -> Result<Option<Checks>> + Send + 'a>;
        let compiles = |body: fn(&Workspace) -> Result<()>| {
            let body: Body = Box::new(move || body(workspace).map(|()| None));
            task(Kind::Compiles, Vec::new(), body)
        };
        let runs = |body: Body<'a>| vec![task(Kind::Runs, self.needs(), body)];
        match self {
            Self::Fmt => runs(Box::new(|| {
                let mut command = workspace.cargo();
                command.args(["fmt", "--all", "--", "--check"]);
                cargo(&mut command, Self::Fmt).map(|()| None)
            })),
            Self::Structure => runs(Box::new(|| structure::check(workspace).map(Some))),
            Self::Images => vec![compiles(|workspace| build(workspace, Self::Images))],
            Self::Clippy => vec![compiles(lint)],
            Self::Build => vec![compiles(|workspace| build(workspace, Self::Build))],
            Self::Host => {
                let mut tasks = runs(Box::new(|| host(workspace).map(Some)));
                tasks.push(compiles(compile_host_tests));
                tasks
            }
            Self::Qemu => runs(Box::new(|| qemu(workspace, &[], &[ON_REQUEST]).map(Some))),
            Self::Simulation => runs(Box::new(|| simulation(workspace).map(Some))),
            Self::Fuzz => {
                let targets = &crate::fuzz::TARGETS;
                let check = || crate::fuzz::check(workspace, targets, FUZZ_SECONDS).map(Some);
                let mut tasks = runs(Box::new(check));
                tasks.push(compiles(crate::fuzz::compile));
                tasks
            }
            Self::Commands => runs(Box::new(|| {
                let rules = structure::commands::check(workspace)?;
                Ok(Some(structure::tell(&rules)))
            })),
            Self::Kernel => runs(Box::new(|| {
                kernel::run(workspace, options.seeds.as_ref()).map(Some)
            })),
            Self::EndToEnd => runs(Box::new(|| end_to_end(workspace, &[]).map(Some))),
            Self::Conformance => runs(Box::new(|| conformance::check_sample(workspace).map(Some))),
            // Its compiler is not cargo's, so it has no need to wait for cargo.
            Self::MpiLibrary => runs(Box::new(|| {
                crate::build::mpi::build(workspace).map(|()| None)
            })),
            Self::Mpi => runs(Box::new(|| {
                conformance::check_mpi(workspace, commit_number(workspace)).map(Some)
            })),
            Self::Package => {
                let test = || package::container::test(&workspace.shipped()).map(|()| None);
                let mut tasks = runs(Box::new(test));
                tasks.push(compiles(|workspace| {
                    crate::build::once(&workspace.shipped())
                }));
                tasks
            }
            Self::Soak => runs(Box::new(|| {
                full::soak(workspace, commit_number(workspace)).map(Some)
            })),
            Self::Mutants => runs(Box::new(|| mutants::run(workspace, 0, 1).map(Some))),
            Self::KernelMutants => runs(Box::new(|| mutants::kernel::run(workspace).map(Some))),
        }
    }
}

/// Runs cargo for its exit status.
fn cargo(command: &mut Command, part: Part) -> Result<()> {
    let name = describe(command);
    limited::run(command, CARGO_LIMIT, Show::All(part.label()))?.expect_success(&name)?;
    Ok(())
}

fn lint(workspace: &Workspace) -> Result<()> {
    let clippy = |arguments: &[&str]| {
        let arguments = [&["clippy"], arguments, &["--", "-D", "warnings"]].concat();
        compile::run(workspace, &arguments)
    };
    clippy(&["--all-targets"])?;
    // The functions of hearth.h.
    clippy(&["-p", "hearth", "--features", "c"])?;
    let bare_metal = ["--target", BARE_METAL_TARGET, "--profile", KERNEL_PROFILE];
    let kernel = [
        "-p",
        "kernel",
        "-p",
        "bootstub",
        "--features",
        "kernel/ktest",
    ];
    clippy(&[&kernel[..], &bare_metal[..]].concat())?;
    lint_fuzz_targets(workspace)
}

/// The fuzz targets are a workspace of their own, which nothing else compiles.
fn lint_fuzz_targets(workspace: &Workspace) -> Result<()> {
    let mut command = workspace.cargo();
    command.args(["clippy", "--quiet"]);
    command.args(["--manifest-path", "netstack/fuzz/Cargo.toml"]);
    command.arg("--target-dir").arg(workspace.target());
    command.args(["--", "-D", "warnings"]);
    // Nothing is linked: libFuzzer itself, which is C++, need not be compiled.
    let library = workspace.target().join("libfuzzer.a");
    command.env("CUSTOM_LIBFUZZER_PATH", library);
    cargo(&mut command, Part::Clippy)
}

fn compile_host_tests(workspace: &Workspace) -> Result<()> {
    compile::run(workspace, &["test", "--no-run"])
}

fn host(workspace: &Workspace) -> Result<Checks> {
    let mut command = workspace.cargo();
    command.args(["test", "--quiet", "--no-fail-fast"]);
    run_tests(&mut command, Part::Host, HOST_TEST_LIMIT)
}

/// Runs those tests of the programs above that have one of these words in their names, or all, but
/// for those with one of the others.
fn qemu(workspace: &Workspace, only: &[&str], skip: &[&str]) -> Result<Checks> {
    let mut command = workspace.cargo();
    command.args(["test", "--quiet", "--no-fail-fast"]);
    for name in QEMU_TESTS {
        command.args(["--test", name]);
    }
    // One after the other: each brings up machines of its own.
    command.args(["--", "--ignored", "--test-threads=1"]);
    for word in skip {
        command.args(["--skip", word]);
    }
    command.args(only);
    command.env("HEARTH_OUTPUTS", workspace.outputs());
    run_tests(&mut command, Part::Qemu, QEMU_TEST_LIMIT)
}

/// Runs a `cargo test` and adds up what its test programs report.
fn run_tests(command: &mut Command, part: Part, limit: Duration) -> Result<Checks> {
    let name = describe(command);
    let show = Show::Except(part.label(), checks::is_idle_talk);
    let finished = limited::run(command, limit, show)?;
    let checks = checks::of_test_programs(&finished.lines);
    // Compilation errors and crashes are in no count.
    ensure!(
        finished.status.success() || checks.failed > 0,
        "`{name}` failed ({})",
        finished.status
    );
    ensure!(checks.passed + checks.failed > 0, "`{name}` ran no test");
    Ok(checks)
}

/// The simulator's check, with seeds that rotate with the commit.
fn simulation(workspace: &Workspace) -> Result<Checks> {
    let mut command = crate::sim::command(workspace);
    command.args(["check", "--rotate", &commit_number(workspace).to_string()]);
    run_counted(&mut command, Part::Simulation, SIMULATION_LIMIT)
}

/// A number that each commit has another of; 0 where there is no git.
fn commit_number(workspace: &Workspace) -> u64 {
    let mut git = Command::new("git");
    git.current_dir(workspace.root());
    let commit = output_of(git.args(["rev-parse", "--short=12", "HEAD"]));
    number_of(&commit.unwrap_or_default())
}

fn number_of(commit: &str) -> u64 {
    u64::from_str_radix(commit.get(..12).unwrap_or("0"), 16).unwrap_or(0)
}

fn end_to_end(workspace: &Workspace, words: &[&str]) -> Result<Checks> {
    let mut command = Command::new(workspace.hosted("e2e"));
    command.current_dir(workspace.root()).args(words);
    command.env("HEARTH_OUTPUTS", workspace.outputs());
    run_counted(&mut command, Part::EndToEnd, QEMU_TEST_LIMIT)
}

/// Runs a program whose last line is `N passed, N failed`.
fn run_counted(command: &mut Command, part: Part, limit: Duration) -> Result<Checks> {
    let name = describe(command);
    let finished = limited::run(command, limit, Show::All(part.label()))?;
    let checks = checks::of_last_line(&finished.lines)
        .with_context(|| format!("`{name}` ({}) did not end with a count", finished.status))?;
    ensure!(
        finished.status.success() == (checks.failed == 0),
        "`{name}` counted {} failures but ended with {}",
        checks.failed,
        finished.status
    );
    ensure!(checks.passed + checks.failed > 0, "`{name}` ran nothing");
    Ok(checks)
}

fn build(workspace: &Workspace, part: Part) -> Result<()> {
    let options = match part {
        Part::Images => crate::build::Options::images(),
        _ => crate::build::Options::hearth_and_programs(),
    };
    let code = crate::build::run(workspace, &options)?;
    ensure!(code == ExitCode::SUCCESS, "see above");
    Ok(())
}
