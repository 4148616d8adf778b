//! The package on an empty Debian system: from unpacking to a job's output.
//!
//! How: `debootstrap` makes a minimal Debian 12 with QEMU in the user's cache, once. A test takes
//! it as the lower layer of an overlay whose upper one is in memory, in mount, process and host
//! name spaces of its own, and runs `container.sh` there. Neighbours: [`super`] makes the package;
//! `test` runs this when it is asked for.
//!
//! Invariant: the cached system is never written to, and nothing that a test starts outlives it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::limited::{self, Show};
use crate::setup;
use crate::workspace::{Workspace, output_of};

/// The system; and what a user installs beside what every Debian has.
const SUITE: &str = "bookworm";
const PACKAGES: &str = "qemu-system-x86,iproute2";
/// Downloading and unpacking it takes a minute or two.
const SYSTEM_LIMIT: Duration = Duration::from_secs(1_200);
/// From the start of unpacking to the end of the job.
const GOAL: Duration = Duration::from_secs(60);
/// A guest that hangs ends here.
const LIMIT: Duration = Duration::from_secs(300);
/// What the job prints, and what the script says last.
const EXPECTED: [&str; 2] = ["hello from hello-c, rank 0 of 1", "container: done"];

/// Makes the package of what is built, and tries it.
pub fn test(workspace: &Workspace) -> Result<()> {
    let package = super::make(workspace)?;
    // By name, since the return addresses of a crash report are to be found in it.
    let kernel = workspace.outputs().join("symbols/kernel");
    let names = output_of(Command::new("nm").arg("--demangle").arg(kernel))?;
    ensure!(
        names.contains("kernel::panic"),
        "symbols/kernel has no names of functions"
    );
    let system = system()?;
    let began = Instant::now();
    let mut command = Command::new("unshare");
    // With their first process all others of the space end.
    command.args(["--mount", "--pid", "--uts", "--fork", "--kill-child", "--"]);
    command.args([
        "sh",
        "-eu",
        "-c",
        include_str!("container.sh"),
        "container.sh",
    ]);
    command.arg(&system).arg(&package);
    let finished = limited::run(&mut command, LIMIT, Show::All("package"))?;
    let took = began.elapsed();
    let finished = finished.expect_success("container.sh")?;
    for text in EXPECTED {
        let is_there = finished.lines.iter().any(|line| line.contains(text));
        ensure!(is_there, "the container did not say `{text}`");
    }
    eprintln!(
        "    from the package to a job's output: {:.1} s",
        took.as_secs_f64()
    );
    ensure!(
        took <= GOAL,
        "it took {:.0} s, and should take at most {}",
        took.as_secs_f64(),
        GOAL.as_secs()
    );
    Ok(())
}

/// The minimal system; made when it is not there.
fn system() -> Result<PathBuf> {
    ensure!(
        nix::unistd::getuid().is_root(),
        "a container of Debian needs root: run `sudo -E cargo xtask test --only package`"
    );
    let cache = cache_folder()?;
    let system = cache.join(format!("debian-{SUITE}"));
    if system.is_dir() {
        return Ok(system);
    }
    setup::for_packaging()?;
    fs::create_dir_all(&cache).with_context(|| format!("making {}", cache.display()))?;
    let fresh = tempfile::tempdir_in(&cache).context("making a folder for the system")?;
    eprintln!(
        "    making a minimal Debian system in {} (once)",
        system.display()
    );
    let mut command = Command::new("debootstrap");
    command.args(["--variant=minbase", &format!("--include={PACKAGES}"), SUITE]);
    command.arg(fresh.path());
    let is_detail = |line: &str| line.starts_with("I: ");
    limited::run(
        &mut command,
        SYSTEM_LIMIT,
        Show::Except("package", is_detail),
    )?
    .expect_success("debootstrap")?;
    fs::rename(fresh.keep(), &system)
        .with_context(|| format!("renaming to {}", system.display()))?;
    Ok(system)
}

/// Outside of the build directory, which may be removed at any time.
fn cache_folder() -> Result<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let home = || variable("HOME").map(|home| Path::new(&home).join(".cache"));
    let cache = variable("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
    let cache = cache.context("neither XDG_CACHE_HOME nor HOME is set: set one of them")?;
    Ok(cache.join("hearth"))
}
