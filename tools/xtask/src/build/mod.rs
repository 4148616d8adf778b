//! `cargo xtask build`: what a user needs, in `target/hearth/`.
//!
//! Purpose: `hearth` (the operator's binary), `hearth.efi` (the boot image), `symbols/` (its
//! kernel, for crash reports), `lib/` and `include/` (what programs link) and `programs/` (the
//! example programs of `tests/programs` and `kernel/user`). Neighbours: [`programs`], [`library`];
//! [`crate::compile`] has cargo do all compiling of Rust. Steps are independent as far as their
//! inputs allow, so that each fails with a message of its own.
//!
//! Invariant: an output is put in its place complete or not at all.

mod library;
pub mod mpi;
pub mod programs;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};

use crate::compile;
use crate::setup;
use crate::steps::Steps;
use crate::workspace::{BARE_METAL_TARGET, KERNEL_PROFILE, Mode, Workspace, run as run_command};

/// How `hearth` is linked. With its C library in it, it runs on any Linux of this processor.
/// Stripped it has 22 MB, with the names of its functions 27, with line tables too 129. A panic
/// says its message, file and line without them; a backtrace has names in any other build.
const HEARTH_LINK: [&str; 4] = ["-C", "target-feature=+crt-static", "-C", "strip=symbols"];

/// Options of `cargo xtask build`.
#[derive(Debug, Default, clap::Args)]
pub struct Options {
    /// Build only these parts
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// Build MPI too: MPICH with the netmod of Hearth, about ten minutes on two processors
    #[arg(long)]
    mpi: bool,
    /// Do not look whether the machine is set up
    #[arg(long)]
    no_setup: bool,
}

impl Options {
    /// What a user needs, on a machine that is set up already.
    pub fn without_setup() -> Self {
        Self {
            no_setup: true,
            ..Self::default()
        }
    }

    /// The image of the kernel's tests.
    pub fn kernel_tests() -> Self {
        Self {
            only: vec![Part::TestImage],
            ..Self::without_setup()
        }
    }

    /// All images: of the kernel, and of the kernel with its tests.
    pub fn images() -> Self {
        Self {
            only: vec![Part::Image, Part::TestImage],
            ..Self::without_setup()
        }
    }

    /// All other outputs.
    pub fn hearth_and_programs() -> Self {
        Self {
            only: vec![Part::Hearth, Part::Programs],
            ..Self::without_setup()
        }
    }
}

/// A part of the outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// The boot image, from the kernel and the boot stub
    Image,
    /// The boot image whose kernel has its tests in it; not built unless asked for
    TestImage,
    /// The operator's binary
    Hearth,
    /// The library for programs, and the example programs
    Programs,
}

/// Builds everything asked for; fails when a step failed, after having tried the others.
pub fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    if !options.no_setup {
        setup::run(workspace, &setup::Options::default())?;
    }
    let mut steps = Steps::new();
    // `--mpi` alone builds nothing else.
    let by_default = |part| options.only.is_empty() && !options.mpi && part != Part::TestImage;
    let wanted = |part| by_default(part) || options.only.contains(&part);
    // Both kernels leave cargo under one name: the one without tests comes last and stays there.
    if wanted(Part::TestImage) {
        test_image(workspace, &mut steps);
    }
    if wanted(Part::Image) {
        image(workspace, &mut steps);
    }
    if wanted(Part::Hearth) {
        steps.run("the operator's binary (hearth)", || hearth(workspace));
    }
    if wanted(Part::Programs) {
        steps.run("the example programs", || programs::build(workspace));
        let title = "the library for programs (libhearth.a)";
        let examples = "the example programs of the library";
        if steps.run(title, || library::build(workspace)) {
            steps.run(examples, || library::examples(workspace));
        } else {
            steps.blocked(examples, "needs the library");
        }
    }
    if options.mpi {
        steps.run("MPI (MPICH with Hearth's netmod)", || mpi::build(workspace));
    }
    if steps.failed() == 0 {
        eprintln!("built into {}", workspace.outputs().display());
        return Ok(ExitCode::SUCCESS);
    }
    steps.print_summary();
    eprintln!("error: {} of the build's steps failed", steps.failed());
    Ok(ExitCode::FAILURE)
}

/// Brings everything a user needs up to date, once in this process: what measures it must not
/// measure an earlier state.
///
/// # Errors
/// A step failed.
pub fn once(workspace: &Workspace) -> Result<()> {
    static IS_DONE: AtomicBool = AtomicBool::new(false);
    if IS_DONE.load(Ordering::Relaxed) {
        return Ok(());
    }
    let built = run(workspace, &Options::default())?;
    ensure!(built == ExitCode::SUCCESS, "the build failed, see above");
    IS_DONE.store(true, Ordering::Relaxed);
    Ok(())
}

fn image(workspace: &Workspace, steps: &mut Steps) {
    let kernel = steps.run("the kernel", || {
        bare_metal(workspace, "kernel", &[])?;
        symbols(workspace)
    });
    let stub = steps.run("the boot stub", || bare_metal(workspace, "bootstub", &[]));
    for (title, kernel_name, kernel_is_built, image) in [
        (
            "the boot image (hearth.efi)",
            "kernel",
            kernel,
            workspace.boot_image(),
        ),
        (
            "the baseline image (hearth-stub.efi)",
            "stub-kernel",
            stub,
            workspace.stub_image(),
        ),
    ] {
        if kernel_is_built && stub {
            steps.run(title, || boot_image(workspace, kernel_name, &image));
        } else {
            steps.blocked(title, "needs the kernel and the boot stub");
        }
    }
}

fn test_image(workspace: &Workspace, steps: &mut Steps) {
    let title = "the image of the kernel's tests (hearth-test.efi)";
    let kernel = steps.run("the kernel with its tests", || {
        bare_metal(workspace, "kernel", &["--features", "ktest"])
    });
    let stub = steps.run("the boot stub", || bare_metal(workspace, "bootstub", &[]));
    if kernel && stub {
        steps.run(title, || {
            boot_image(workspace, "kernel", &workspace.test_image())
        });
    } else {
        steps.blocked(title, "needs the kernel and the boot stub");
    }
}

fn bare_metal(workspace: &Workspace, package: &str, more: &[&str]) -> Result<()> {
    let mut arguments = vec!["build", "--package", package];
    arguments.extend(["--target", BARE_METAL_TARGET, "--profile", KERNEL_PROFILE]);
    arguments.extend(more);
    compile::run(workspace, &arguments)?;
    let file = workspace.bare_metal(package);
    ensure!(file.is_file(), "cargo left no {}", file.display());
    Ok(())
}

/// Makes one image of a kernel and the boot stub.
fn boot_image(workspace: &Workspace, kernel: &str, image: &Path) -> Result<()> {
    let tool = executable(workspace, "bootimage", "bootimage", &[])?;
    fs::create_dir_all(workspace.outputs()).context("making the output directory")?;
    let fresh = image.with_extension("new");
    run_command(
        Command::new(tool)
            .arg("--kernel")
            .arg(workspace.bare_metal(kernel))
            .arg("--stub")
            .arg(workspace.bare_metal("bootstub"))
            .arg("--out")
            .arg(&fresh)
            // Who builds before it measures prints JSON.
            .stdout(std::io::stderr()),
    )?;
    ensure!(
        fresh.is_file(),
        "the image tool left no {}",
        fresh.display()
    );
    replace(&fresh, image)
}

/// Puts the kernel with its symbols where users find it: return addresses of a crash report are
/// offsets into it.
fn symbols(workspace: &Workspace) -> Result<()> {
    let built = workspace.bare_metal("kernel");
    let folder = workspace.outputs().join("symbols");
    fs::create_dir_all(&folder).context("making the folder of symbols")?;
    let fresh = folder.join(".kernel.new");
    fs::copy(&built, &fresh).with_context(|| format!("copying {}", built.display()))?;
    replace(&fresh, &folder.join("kernel"))
}

fn hearth(workspace: &Workspace) -> Result<()> {
    let built = executable(workspace, "hearth-control", "hearth", &HEARTH_LINK)?;
    fs::create_dir_all(workspace.outputs()).context("making the output directory")?;
    let fresh = workspace.outputs().join("hearth.new");
    fs::copy(&built, &fresh).with_context(|| format!("copying {}", built.display()))?;
    replace(&fresh, &workspace.hearth())
}

/// Compiles a hosted executable; where it is. Users' is linked with these flags of the compiler.
fn executable(workspace: &Workspace, package: &str, name: &str, link: &[&str]) -> Result<PathBuf> {
    let profile = workspace.profile();
    let arguments = match workspace.mode() {
        Mode::Shipped => {
            let what = [
                "--profile",
                profile,
                "--package",
                package,
                "--bin",
                name,
                "--",
            ];
            [&["rustc"], &what[..], link].concat()
        }
        // All at once, and with the features that the tests have: examples have cargo count those
        // of test dependencies. Otherwise half of what tests need would be compiled twice.
        Mode::Checked => vec!["build", "--profile", profile, "--bins", "--examples"],
    };
    compile::run(workspace, &arguments)?;
    Ok(workspace.hosted(name))
}

/// Puts a complete file in the place of an old one. A running copy of the old one is not harmed.
fn replace(fresh: &Path, place: &Path) -> Result<()> {
    fs::rename(fresh, place)
        .with_context(|| format!("renaming {} to {}", fresh.display(), place.display()))
}
