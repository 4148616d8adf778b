//! Conformance of what a node does for programs: suites whose cases are programs, each of which
//! ends with 0 where all is as POSIX wants it.
//!
//! A case counts that passes on Linux here and needs no second process. It must then pass on a
//! node, unless `tests/conformance-exceptions.txt` says why it does not. Neighbours: [`suite`]
//! finds and compiles the cases, `test` runs a sample each time and all with `--full`.
//!
//! Invariant: a case that is listed and passes is told; one that is not listed and fails is a
//! failure; what could not be run is no pass.

mod suite;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, bail, ensure};

use crate::limited::say;
use crate::test::checks::Checks;
use crate::workspace::Workspace;
use suite::Case;

/// What stands before lines of this part.
const LABEL: &str = "conform";
/// Cases that do not pass on a node, each with a reason.
const EXCEPTIONS: &str = "tests/conformance-exceptions.txt";
/// Longest time of a case, in seconds: some sleep for a few.
const CASE_LIMIT_S: u32 = 20;
/// Of so many cases one is in the sample.
const SAMPLED: usize = 20;
/// Nodes that cases run on, and cores of each.
const NODES: usize = 4;
const CORES: &str = "2";
/// Number of a user without rights, and of its group.
const NOBODY: &str = "65534";
/// The cluster of this part.
const CLUSTER: &str = "conformance";
/// Exit status of a node's own end of a program that ran too long, and of a command that did.
const TIMED_OUT: i32 = 124;

/// Options of `cargo xtask conformance`.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Folder with the sources of musl's libc-test, instead of the POSIX test suite
    #[arg(long, value_name = "DIR")]
    suite: Option<PathBuf>,
    /// Run only cases with this word in their names
    #[arg(long, value_name = "WORD")]
    only: Option<String>,
    /// Run a sample, as each test run does
    #[arg(long)]
    sample: bool,
}

/// `cargo xtask conformance`.
///
/// # Errors
/// A case fails that is not an exception, or the suite cannot be had.
pub fn main(workspace: &Workspace, options: &Options) -> Result<()> {
    let cases = match &options.suite {
        Some(folder) => suite::libc_test(workspace, folder)?,
        None => suite::posix(workspace)?,
    };
    let wanted = |case: &Case| {
        let only = options.only.as_deref();
        only.is_none_or(|word| case.name.contains(word))
    };
    let cases: Vec<Case> = cases.into_iter().filter(wanted).collect();
    let cases = if options.sample { sample(cases) } else { cases };
    let checks = run(workspace, &cases)?;
    println!("{} passed, {} failed", checks.passed, checks.failed);
    match checks.failed {
        0 => Ok(()),
        failed => bail!("{failed} cases failed:\n{}", checks.what_failed.join("\n")),
    }
}

/// The sample of the POSIX test suite, for each run of the tests.
///
/// # Errors
/// As [`main`]; that the suite cannot be had here is told, and no error.
pub fn check_sample(workspace: &Workspace) -> Result<Checks> {
    match suite::posix(workspace) {
        Ok(cases) => run(workspace, &sample(cases)),
        Err(error) => {
            say(LABEL, &format!("left out: {error:#}"));
            Ok(Checks::default())
        }
    }
}

/// All of the POSIX test suite.
///
/// # Errors
/// As [`main`].
pub fn check_all(workspace: &Workspace) -> Result<Checks> {
    run(workspace, &suite::posix(workspace)?)
}

fn sample(cases: Vec<Case>) -> Vec<Case> {
    cases.into_iter().step_by(SAMPLED).collect()
}

/// The exceptions: `NAME REASON` a line.
fn exceptions(workspace: &Workspace) -> Result<BTreeMap<String, String>> {
    let path = workspace.root().join(EXCEPTIONS);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let lines = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, reason) = line.split_once(' ').unwrap_or((line, ""));
            match reason.trim() {
                "" => bail!("{EXCEPTIONS}: {name} has no reason"),
                reason => Ok((name.to_owned(), reason.to_owned())),
            }
        })
        .collect()
}

/// Runs cases on Linux, and those that pass there on nodes.
fn run(workspace: &Workspace, cases: &[Case]) -> Result<Checks> {
    let exceptions = exceptions(workspace)?;
    let folder = workspace.target().join("conformance/run");
    fs::create_dir_all(&folder)?;
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777))?;
    let built = each(cases, |case| case.build(workspace));
    let on_linux = each(cases, |case| run_here(case, workspace, &folder));
    let pass = |(index, passed): (usize, &bool)| {
        (*passed && built[index]).then(|| (cases[index].clone(), index))
    };
    let counted: Vec<Case> = on_linux
        .iter()
        .enumerate()
        .filter_map(pass)
        .map(|(case, _)| case)
        .collect();
    say(
        LABEL,
        &format!(
            "{} of {} cases pass on Linux and count",
            counted.len(),
            cases.len()
        ),
    );
    ensure!(
        2 * counted.len() > cases.len(),
        "most cases do not pass on Linux: the suite, or {}, cannot be read by a user without rights",
        workspace.target().display()
    );
    let cluster = Cluster::up(workspace)?;
    let on_nodes = each(&counted, |case| cluster.run(case, workspace));
    let mut checks = Checks::default();
    let mut excepted = 0;
    for (case, first) in counted.iter().zip(on_nodes) {
        // Beside other cases and whatever load: what fails is tried once more, alone.
        let status = match first {
            0 => 0,
            _ => cluster.run(case, workspace),
        };
        match (status, exceptions.get(&case.name)) {
            (0, None) => checks.pass(),
            (0, Some(_)) => {
                say(
                    LABEL,
                    &format!("{} passes: it need be no exception", case.name),
                );
                checks.pass();
            }
            (_, Some(_)) => excepted += 1,
            (status, None) => checks.fail(format!("{} ends with {status}", case.name)),
        }
    }
    cluster.down()?;
    say(
        LABEL,
        &format!(
            "{} pass on a node, {excepted} are exceptions, {} fail",
            checks.passed, checks.failed
        ),
    );
    Ok(checks)
}

/// What `work` gives for each, several at a time.
fn each<T: Send, F: Fn(&Case) -> T + Sync>(cases: &[Case], work: F) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let done: Vec<Mutex<Option<T>>> = cases.iter().map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..NODES {
            scope.spawn(|| {
                while let Some(case) = {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    cases.get(index).map(|case| (index, case))
                } {
                    *done[case.0].lock().expect("no panic while held") = Some(work(case.1));
                }
            });
        }
    });
    let value = |slot: Mutex<Option<T>>| slot.into_inner().ok().flatten();
    done.into_iter()
        .map(|slot| value(slot).expect("each was worked on"))
        .collect()
}

/// Whether a case passes on this machine.
fn run_here(case: &Case, workspace: &Workspace, folder: &Path) -> bool {
    let status = as_anybody("timeout")
        .arg(CASE_LIMIT_S.to_string())
        .arg(case.program(workspace))
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

/// A command of a user without rights: what only root may do is nothing that programs rely on.
fn as_anybody(program: &str) -> Command {
    if !nix::unistd::geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]);
    command.arg(program);
    command
}

/// Nodes that cases run on; gone when this is.
struct Cluster {
    hearth: PathBuf,
    is_up: bool,
}

impl Cluster {
    fn up(workspace: &Workspace) -> Result<Self> {
        let cluster = Self {
            hearth: workspace.hearth(),
            is_up: true,
        };
        let nodes = NODES.to_string();
        let image = workspace.boot_image();
        let image = image.to_string_lossy();
        let words = [
            "up", "--nodes", &nodes, "--cpus", CORES, "--direct", "--image", &image,
        ];
        let output = cluster
            .command(&words)
            .output()
            .context("starting hearth")?;
        match output.status.success() {
            true => Ok(cluster),
            false => bail!("hearth up: {}", String::from_utf8_lossy(&output.stderr)),
        }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.arg("300").arg(&self.hearth);
        command.args(["--cluster", CLUSTER]).args(words);
        command.stdin(Stdio::null());
        command
    }

    /// Exit status of a case on a node.
    fn run(&self, case: &Case, workspace: &Workspace) -> i32 {
        let program = case.program(workspace);
        let program = program.to_string_lossy();
        let limit = format!("{CASE_LIMIT_S}s");
        let mut command = self.command(&["run", "-n", "1", "-t", &limit, &program]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let status = command.status().ok();
        status.and_then(|status| status.code()).unwrap_or(TIMED_OUT)
    }

    fn down(mut self) -> Result<()> {
        self.is_up = false;
        let output = self.command(&["down"]).output()?;
        match output.status.success() {
            true => Ok(()),
            false => bail!("hearth down: {}", String::from_utf8_lossy(&output.stderr)),
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.is_up {
            let _ = self.command(&["down"]).output();
        }
    }
}
