//! `cargo xtask test`: everything that must hold, from cheap to dear.
//!
//! Key type: [`Part`]. Neighbours: [`kernel`] runs the kernel's own tests in QEMU; the other parts
//! are commands of cargo and of this program.
//!
//! Invariant: the very last line is `N passed, N failed`, and the exit status says the same. What
//! could not run counts as failed.

mod counts;
pub mod kernel;

use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;

use crate::compile;
use crate::limited::{self, Show};
use crate::package;
use crate::steps::{Checks, Steps};
use crate::structure;
use crate::workspace::{BARE_METAL_TARGET, KERNEL_PROFILE, Workspace, describe};

/// Compiling the workspace from nothing takes minutes on two processors.
const COMPILE_LIMIT: Duration = Duration::from_secs(1_500);
/// Host tests run in seconds; a test that waits for something that never comes ends here.
const HOST_TEST_LIMIT: Duration = Duration::from_secs(1_200);
/// The quick part of the simulation.
const SIMULATION_LIMIT: Duration = Duration::from_secs(900);
/// Boots of many emulated machines, under whatever load.
const QEMU_TEST_LIMIT: Duration = Duration::from_secs(1_800);

/// Crates with tests that need QEMU, a network namespace, a browser or built images; such tests are marked
/// `#[ignore]`, so that a plain `cargo test` works with nothing installed.
const QEMU_TEST_CRATES: [&str; 4] = ["bootimage", "hearth-boot", "hearth-qemu", "hearth-control"];

/// Options of `cargo xtask test`.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Run only these parts
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// Run those kernel tests that take seeds, with these (FROM..TO), instead of all: `--only kernel --seeds 20..200`
    #[arg(long, value_parser = kernel::parse_seeds, value_name = "FROM..TO")]
    seeds: Option<std::ops::Range<u64>>,
}

/// A part of the tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Formatting
    Fmt,
    /// Lints of hosted and bare-metal crates
    Clippy,
    /// Rules about the source tree
    Structure,
    /// Unit and property tests on the host
    Host,
    /// Damaged program files and the loader, with the counts
    Loader,
    /// The protocols in the simulator
    Simulation,
    /// Building everything
    Build,
    /// Commands in the documentation exist
    Commands,
    /// Boot images and clusters in QEMU
    Qemu,
    /// The kernel's own tests in QEMU
    Kernel,
    /// The whole path as its user sees it
    EndToEnd,
    /// The package on an empty Debian system; not run unless asked for
    Package,
}

/// Runs the tests; the last line on standard output is the count.
pub fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    let mut steps = Steps::new();
    let is_set_up = steps.run("set-up", || {
        crate::setup::run(workspace, &crate::setup::Options::default())
    });
    let mut is_built = true;
    for &part in Part::value_variants() {
        let by_default = options.only.is_empty() && part != Part::Package;
        if !by_default && !options.only.contains(&part) {
            continue;
        }
        let title = part.title();
        if part.needs_build() && !is_built {
            steps.blocked(title, "the build failed");
        } else if part.needs_set_up() && !is_set_up {
            steps.blocked(title, "the set-up failed");
        } else {
            let passed = steps.run_counting(title, || part.run(workspace, options));
            if part == Part::Build {
                is_built = passed;
            }
        }
    }
    steps.print_summary();
    let totals = steps.totals();
    println!("{} passed, {} failed", totals.passed, totals.failed);
    let is_good = totals.failed == 0 && steps.all_passed();
    Ok(if is_good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

impl Part {
    fn title(self) -> &'static str {
        match self {
            Self::Fmt => "formatting",
            Self::Clippy => "lints",
            Self::Structure => "structure",
            Self::Host => "unit and property tests",
            Self::Loader => "damaged program files",
            Self::Simulation => "simulation",
            Self::Build => "build",
            Self::Commands => "commands in the documentation",
            Self::Qemu => "boot images and clusters in QEMU",
            Self::Kernel => "kernel tests in QEMU",
            Self::EndToEnd => "end to end",
            Self::Package => "the package on an empty system",
        }
    }

    /// Whether it uses what [`Part::Build`] leaves.
    fn needs_build(self) -> bool {
        matches!(
            self,
            Self::Commands | Self::Qemu | Self::Kernel | Self::EndToEnd | Self::Package
        )
    }

    fn needs_set_up(self) -> bool {
        matches!(self, Self::Build) || self.needs_build()
    }

    fn run(self, workspace: &Workspace, options: &Options) -> Result<Option<Checks>> {
        match self {
            Self::Fmt => cargo(workspace, &["fmt", "--all", "--", "--check"]).map(|()| None),
            Self::Clippy => lint(workspace).map(|()| None),
            Self::Structure => structure::check(workspace).map(Some),
            Self::Host => host(workspace).map(Some),
            Self::Loader => damaged_programs(workspace).map(|()| None),
            Self::Simulation => simulation(workspace).map(Some),
            Self::Build => build(workspace).map(|()| None),
            Self::Commands => Ok(Some(structure::tell(&structure::commands::check(
                workspace,
            )?))),
            Self::Qemu => qemu(workspace).map(Some),
            Self::Kernel => kernel::run(workspace, options.seeds.as_ref()).map(Some),
            Self::EndToEnd => end_to_end(workspace).map(Some),
            Self::Package => package::container::test(workspace).map(|()| None),
        }
    }
}

/// Runs cargo for its exit status.
fn cargo(workspace: &Workspace, arguments: &[&str]) -> Result<()> {
    let mut command = workspace.cargo();
    command.args(arguments);
    let name = describe(&command);
    limited::run(&mut command, COMPILE_LIMIT, Show::All)?.expect_success(&name)?;
    Ok(())
}

fn lint(workspace: &Workspace) -> Result<()> {
    compile::run(
        workspace,
        &["clippy", "--all-targets", "--", "-D", "warnings"],
    )?;
    // The functions of hearth.h.
    let library = ["clippy", "-p", "hearth", "--features", "c"];
    compile::run(
        workspace,
        &[&library[..], &["--", "-D", "warnings"]].concat(),
    )?;
    let bare_metal = ["--target", BARE_METAL_TARGET, "--profile", KERNEL_PROFILE];
    let mut arguments = vec!["clippy", "-p", "kernel", "-p", "bootstub"];
    arguments.extend(["--features", "kernel/ktest"]);
    arguments.extend(bare_metal);
    arguments.extend(["--", "-D", "warnings"]);
    compile::run(workspace, &arguments)?;
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
    let name = describe(&command);
    limited::run(&mut command, COMPILE_LIMIT, Show::All)?.expect_success(&name)?;
    Ok(())
}

fn host(workspace: &Workspace) -> Result<Checks> {
    // Apart, so that a slow machine does not spend the time of the tests on it.
    compile::run(workspace, &["test", "--no-run"])?;
    let mut command = workspace.cargo();
    command.args(["test", "--quiet", "--no-fail-fast"]);
    run_tests(&mut command, HOST_TEST_LIMIT)
}

fn qemu(workspace: &Workspace) -> Result<Checks> {
    let packages = QEMU_TEST_CRATES.map(|name| ["-p", name]).concat();
    compile::run(workspace, &[&["test", "--no-run"], &packages[..]].concat())?;
    let mut command = workspace.cargo();
    command
        .args(["test", "--quiet", "--no-fail-fast"])
        .args(packages);
    // One after the other: each brings up machines of its own.
    command.args(["--", "--ignored", "--test-threads=1"]);
    command.env("HEARTH_OUTPUTS", workspace.outputs());
    run_tests(&mut command, QEMU_TEST_LIMIT)
}

/// Runs a `cargo test` and adds up what its test programs report.
fn run_tests(command: &mut Command, limit: Duration) -> Result<Checks> {
    let name = describe(command);
    let finished = limited::run(command, limit, Show::Except(counts::is_idle_talk))?;
    let checks = counts::of_test_programs(&finished.lines);
    // Compilation errors and crashes are in no count.
    ensure!(
        finished.status.success() || checks.failed > 0,
        "`{name}` failed ({})",
        finished.status
    );
    ensure!(checks.passed + checks.failed > 0, "`{name}` ran no test");
    Ok(checks)
}

/// The loader's test with damaged files once more, for the counts that it prints: how many files,
/// how many with altered headers, how many of each error.
fn damaged_programs(workspace: &Workspace) -> Result<()> {
    let mut command = workspace.cargo();
    command.args([
        "test",
        "--quiet",
        "-p",
        "kernel-core",
        "--lib",
        "loader::fuzz",
    ]);
    command.args(["--", "--nocapture"]);
    let name = describe(&command);
    let finished = limited::run(
        &mut command,
        HOST_TEST_LIMIT,
        Show::Except(counts::is_idle_talk),
    )?
    .expect_success(&name)?;
    let has_counts = finished
        .lines
        .iter()
        .any(|line| line.contains("headers altered in"));
    ensure!(has_counts, "`{name}` printed no counts");
    Ok(())
}

/// The simulator's own quick check.
fn simulation(workspace: &Workspace) -> Result<Checks> {
    compile::run(workspace, &["build", "--release", "-p", "netstack-sim"])?;
    let mut command = crate::sim::command(workspace);
    command.arg("check");
    run_counted(&mut command, SIMULATION_LIMIT)
}

fn end_to_end(workspace: &Workspace) -> Result<Checks> {
    compile::run(workspace, &["build", "--release", "-p", "hearth-tests"])?;
    let mut command = workspace.cargo();
    command.args([
        "run",
        "--quiet",
        "--release",
        "-p",
        "hearth-tests",
        "--bin",
        "e2e",
    ]);
    run_counted(&mut command, QEMU_TEST_LIMIT)
}

/// Runs a program whose last line is `N passed, N failed`.
fn run_counted(command: &mut Command, limit: Duration) -> Result<Checks> {
    let name = describe(command);
    let finished = limited::run(command, limit, Show::All)?;
    let checks = counts::of_last_line(&finished.lines)
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

fn build(workspace: &Workspace) -> Result<()> {
    let code = crate::build::run(workspace, &crate::build::Options::with_tests())?;
    ensure!(code == ExitCode::SUCCESS, "see above");
    Ok(())
}
