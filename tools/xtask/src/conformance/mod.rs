//! Conformance of what a node does for programs: suites whose cases are programs, each of which
//! ends with 0 where all is as POSIX, or MPI, wants it.
//!
//! A case of POSIX counts that passes on Linux here and needs no second process. It must then pass
//! on a node, unless a file of exceptions says why it does not; cases of MPI all count. Neighbours:
//! [`suite`] and [`mpich`] find and compile the cases, [`files`] runs tests of file systems, `test`
//! runs a sample each time and all with `--full`.
//!
//! Invariant: a case that is listed and passes is told; one that is not listed and fails is a
//! failure; what could not be run is no pass.

mod files;
mod mpich;
mod suite;

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, bail, ensure};

use crate::limited::say;
use crate::test::checks::Checks;
use crate::workspace::{Workspace, output_of};

/// What stands before lines of this part.
const LABEL: &str = "conform";
/// The suites of POSIX; several cases run at a time, on a node each.
const POSIX: Suite = Suite {
    exceptions: "tests/conformance-exceptions.txt",
    exceptions_most: 5,
    sampled: 80,
    nodes: Nodes {
        count: 4,
        cores: 2,
        memory: "48M",
        cases: 4,
    },
    large: None,
};
/// MPICH's suite; two cases at a time keep the machine busy. Some of ours have two ranks a node.
/// Large ones have up to 3 ranks, which take as much memory on Linux.
const MPI: Suite = Suite {
    exceptions: "tests/mpi-exceptions.txt",
    exceptions_most: 3,
    sampled: 60,
    nodes: Nodes {
        count: 2 * mpich::RANKS_MOST,
        cores: 2,
        memory: "192M",
        cases: 2,
    },
    large: Some(Nodes {
        count: 3,
        cores: 1,
        memory: "3G",
        cases: 1,
    }),
};
/// Number of a user without rights, and of its group.
const NOBODY: &str = "65534";
/// The cluster of this part, with the number of this process: tests of two source trees may run at
/// once.
const CLUSTER: &str = "conformance";
/// Nodes begin, and end, and are given to a case, in less.
const UP_LIMIT_S: u32 = 120;
/// Exit status of a node's own end of a program that ran too long, and of a command that did.
const TIMED_OUT: i32 = 124;
/// Exit statuses of `hearth run` and of commands beside it: a node was lost, the time was over,
/// there is no control, the program cannot be run or is not there. An error of the program's own is
/// none of them.
const NOT_ITS_OWN: RangeInclusive<i32> = 123..=127;
/// So many cases say something of their suite.
const MANY: usize = 400;

/// How a suite is run.
struct Suite {
    /// Cases that do not pass on a node, each with a reason.
    exceptions: &'static str,
    /// How many of a hundred cases that count they may be, where at least [`MANY`] do.
    exceptions_most: usize,
    /// Cases of a sample, or a few more.
    sampled: usize,
    nodes: Nodes,
    /// For those that are [`Case::is_large`].
    large: Option<Nodes>,
}

/// Nodes that cases run on.
struct Nodes {
    count: usize,
    /// Of each.
    cores: usize,
    memory: &'static str,
    /// Cases that run at the same time.
    cases: usize,
}

/// A program of a suite, and how it is run.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name, as the list of exceptions has it: `pthread_create/1-1`.
    pub name: String,
    program: PathBuf,
    ranks: usize,
    /// Nodes that share its ranks; None: each has one of its own.
    nodes: Option<usize>,
    arguments: Vec<String>,
    /// `NAME=VALUE` each.
    environment: Vec<String>,
    limit_s: u32,
    /// It needs more memory than the nodes of its suite have.
    is_large: bool,
    /// It may be in a sample: it is short, and passes.
    is_sampled: bool,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    /// Passes where it ends with 0.
    Posix(suite::Recipe),
    Mpi(Ending),
}

/// What a rank did, one by one, as `hearth run --report` says: why that is wrong.
type CheckRanks = fn(&[serde_json::Value]) -> Result<()>;

/// How a program with MPI ends that passes.
#[derive(Clone, Copy, Debug)]
pub struct Ending {
    /// With this status; None: with any error of its own.
    status: Option<i32>,
    /// What it, or `hearth run`, says, in whatever letters.
    says: &'static str,
    /// What its ranks did, where that matters.
    report: Option<CheckRanks>,
}

impl Ending {
    /// Of a test that finds no errors.
    const WELL: Ending = Ending {
        status: Some(0),
        says: "no errors",
        report: None,
    };

    /// Whether a program that ends with this status ends so.
    fn has(&self, status: i32) -> bool {
        match self.status {
            Some(wanted) => status == wanted,
            None => status != 0 && !NOT_ITS_OWN.contains(&status),
        }
    }
}

impl Case {
    fn build(&self) -> bool {
        match &self.kind {
            Kind::Posix(recipe) => recipe.build(&self.program),
            Kind::Mpi(_) => self.program.exists(),
        }
    }
}

/// Options of `cargo xtask conformance`.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Folder with the sources of musl's libc-test, instead of the POSIX test suite
    #[arg(long, value_name = "DIR")]
    suite: Option<PathBuf>,
    /// Run MPICH's own test suite instead; `cargo xtask build --mpi` comes first
    #[arg(long, conflicts_with = "suite")]
    mpi: bool,
    /// Run fsx and pjdfstest instead, which test file systems
    #[arg(long, conflicts_with_all = ["suite", "mpi", "only"])]
    files: bool,
    /// Run only cases with this word in their names
    #[arg(long, value_name = "WORD")]
    only: Option<String>,
    /// Run a sample, as each test run does
    #[arg(long)]
    sample: bool,
    /// Which sample of MPICH's suite; a test run has the number of its commit
    #[arg(long, value_name = "N", default_value_t = 0, requires = "sample")]
    rotate: u64,
    /// Lose one of so many frames between nodes, at random
    #[arg(long, value_name = "N")]
    lose_one_of: Option<NonZeroU32>,
}

/// `cargo xtask conformance`.
///
/// # Errors
/// A case fails that is not an exception, or the suite cannot be had.
pub fn main(workspace: &Workspace, options: &Options) -> Result<()> {
    let checks = match options {
        Options {
            files: true,
            sample: true,
            ..
        } => files::check_sample(workspace)?,
        Options { files: true, .. } => files::check_all(workspace)?,
        _ => run_suite(workspace, options)?,
    };
    println!("{} passed, {} failed", checks.passed, checks.failed);
    match checks.failed {
        0 => Ok(()),
        failed => bail!("{failed} cases failed:\n{}", checks.what_failed.join("\n")),
    }
}

fn run_suite(workspace: &Workspace, options: &Options) -> Result<Checks> {
    let suite = if options.mpi { &MPI } else { &POSIX };
    let cases = match &options.suite {
        _ if options.mpi => [mpich::ours(workspace), mpich::all(workspace)?].concat(),
        Some(folder) => suite::libc_test(workspace, folder)?,
        None => suite::posix(workspace)?,
    };
    let wanted = |case: &Case| {
        let only = options.only.as_deref();
        only.is_none_or(|word| case.name.contains(word))
    };
    let cases: Vec<Case> = cases.into_iter().filter(wanted).collect();
    let cases = match options.sample {
        true => suite.sample(cases, options.rotate),
        false => cases,
    };
    suite.run(workspace, &cases, options.lose_one_of)
}

/// Samples of the POSIX test suite and of the tests of file systems, for each run of the tests.
///
/// # Errors
/// As [`main`]; that a suite cannot be had here is a failure that is told.
pub fn check_sample(workspace: &Workspace) -> Result<Checks> {
    let mut checks = Checks::default();
    match suite::posix(workspace) {
        Ok(cases) => checks = POSIX.run(workspace, &POSIX.sample(cases, 0), None)?,
        Err(error) => checks.fail(format!("the POSIX suite did not run: {error:#}")),
    }
    checks.add(files::check_sample(workspace)?);
    Ok(checks)
}

/// Programs with MPI of ours, and the sample of MPICH's suite that has this number.
///
/// # Errors
/// As [`main`].
pub fn check_mpi(workspace: &Workspace, number: u64) -> Result<Checks> {
    let all = mpich::all(workspace)?;
    MPI.check_exceptions(workspace, &all)?;
    let sample = MPI.sample(all, number);
    MPI.run(workspace, &[mpich::ours(workspace), sample].concat(), None)
}

/// Those of ours are a piece, and so is each folder of MPICH's suite, which takes hours on emulated
/// nodes; then come [`LOSSY_FOLDERS`].
pub const MPI_PIECES: u32 = 1 + (mpich::FOLDERS.len() + LOSSY_FOLDERS.len()) as u32;
/// Folders that are run once more while one of so many frames is lost.
const LOSSY_FOLDERS: [&str; 2] = ["coll", "pt2pt"];
const LOSE_ONE_OF: NonZeroU32 = NonZeroU32::new(100).expect("not zero");

/// One of those pieces.
///
/// # Errors
/// As [`main`].
pub fn check_mpi_piece(workspace: &Workspace, piece: u32) -> Result<Checks> {
    let Some(folder) = piece.checked_sub(1) else {
        return MPI.run(workspace, &mpich::ours(workspace), None);
    };
    let folder = folder as usize;
    let (folder, loss) = match folder.checked_sub(mpich::FOLDERS.len()) {
        None => (mpich::FOLDERS[folder], None),
        Some(lossy) => (LOSSY_FOLDERS[lossy], Some(LOSE_ONE_OF)),
    };
    MPI.run(workspace, &mpich::cases(workspace, &[folder])?, loss)
}

/// The POSIX test suite is a piece, and so are the tests of file systems.
pub const PIECES: u32 = 2;

/// One of those pieces, whole.
///
/// # Errors
/// As [`main`].
pub fn check_piece(workspace: &Workspace, piece: u32) -> Result<Checks> {
    match piece {
        0 => POSIX.run(workspace, &suite::posix(workspace)?, None),
        _ => files::check_all(workspace),
    }
}

/// The exceptions: `NAME REASON` a line.
fn exceptions(workspace: &Workspace, file: &str) -> Result<BTreeMap<String, String>> {
    let path = workspace.root().join(file);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let lines = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, reason) = line.split_once(' ').unwrap_or((line, ""));
            match reason.trim() {
                "" => bail!("{file}: {name} has no reason"),
                reason => Ok((name.to_owned(), reason.to_owned())),
            }
        })
        .collect()
}

impl Suite {
    /// One of the samples: those with all numbers have all cases that may be in one.
    fn sample(&self, cases: Vec<Case>, number: u64) -> Vec<Case> {
        let cases: Vec<Case> = cases.into_iter().filter(|case| case.is_sampled).collect();
        let step = (cases.len() / self.sampled).max(1);
        let first = (number % step as u64) as usize;
        cases.into_iter().skip(first).step_by(step).collect()
    }

    /// Those of the cases that count.
    fn counted(&self, workspace: &Workspace, cases: &[Case]) -> Result<Vec<Case>> {
        if cases.iter().any(|case| matches!(case.kind, Kind::Mpi(_))) {
            mpich::prepare(workspace, cases)?;
            return Ok(cases.to_vec());
        }
        let folder = workspace.target().join("conformance/run");
        fs::create_dir_all(&folder)?;
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777))?;
        let passes = |case: &Case| case.build() && run_here(case, &folder);
        let passed = each(self.nodes.cases, cases, passes);
        let counted = cases.iter().zip(passed).filter(|(_, passed)| *passed);
        let counted: Vec<Case> = counted.map(|(case, _)| case.clone()).collect();
        let (count, all) = (counted.len(), cases.len());
        say(
            LABEL,
            &format!("{count} of {all} cases pass on Linux and count"),
        );
        ensure!(
            2 * count > all,
            "most cases do not pass on Linux: the suite, or {}, cannot be read by a user without \
             rights",
            workspace.target().display()
        );
        Ok(counted)
    }

    /// Runs those cases on nodes that count; `loss`: one of so many frames is lost.
    fn run(
        &self,
        workspace: &Workspace,
        cases: &[Case],
        loss: Option<NonZeroU32>,
    ) -> Result<Checks> {
        let counted = self.counted(workspace, cases)?;
        if counted.len() >= MANY {
            self.check_exceptions(workspace, &counted)?;
        }
        let (large, most): (Vec<Case>, Vec<Case>) =
            counted.into_iter().partition(|case| case.is_large);
        let mut all = Checks::default();
        for (nodes, cases) in [(Some(&self.nodes), most), (self.large.as_ref(), large)] {
            let Some(nodes) = nodes.filter(|_| !cases.is_empty()) else {
                continue;
            };
            all.add(self.run_on(workspace, nodes, &cases, loss)?);
        }
        Ok(all)
    }

    /// Only few of all cases of a suite may be exceptions.
    fn check_exceptions(&self, workspace: &Workspace, all: &[Case]) -> Result<()> {
        let exceptions = exceptions(workspace, self.exceptions)?;
        let is_exception = |case: &&Case| exceptions.contains_key(&case.name);
        let (excepted, count) = (all.iter().filter(is_exception).count(), all.len());
        ensure!(
            excepted * 100 <= count * self.exceptions_most,
            "{excepted} of {count} cases are exceptions: at most {} of a hundred may be ({})",
            self.exceptions_most,
            self.exceptions
        );
        Ok(())
    }

    fn run_on(
        &self,
        workspace: &Workspace,
        nodes: &Nodes,
        counted: &[Case],
        loss: Option<NonZeroU32>,
    ) -> Result<Checks> {
        let exceptions = exceptions(workspace, self.exceptions)?;
        let cluster = Cluster::up(workspace, nodes)?;
        if let Some(loss) = loss {
            cluster.lose_one_of(loss)?;
        }
        let done = AtomicUsize::new(0);
        let on_nodes = each(nodes.cases, counted, |case| {
            let wrong = cluster.run(case);
            if let Some(wrong) = &wrong {
                say(LABEL, &format!("{} {wrong}", case.name));
            }
            let done = 1 + done.fetch_add(1, Ordering::Relaxed);
            if done.is_multiple_of(50) {
                say(
                    LABEL,
                    &format!("{done} of {} cases have run", counted.len()),
                );
            }
            wrong
        });
        let mut checks = Checks::default();
        let mut excepted = 0;
        for (case, wrong) in counted.iter().zip(on_nodes) {
            let name = &case.name;
            match (wrong, exceptions.contains_key(name)) {
                (None, false) => checks.pass(),
                (None, true) => {
                    say(LABEL, &format!("{name} passes: it need be no exception"));
                    checks.pass();
                }
                (Some(_), true) => excepted += 1,
                // Also where it would pass the next time: what fails now and then is a race.
                (Some(wrong), false) => checks.fail(format!("{name} {wrong}")),
            }
        }
        if loss.is_some() {
            let lost = cluster.lost()?;
            ensure!(lost > 0, "no frame was lost");
            say(LABEL, &format!("{lost} frames were lost"));
        }
        cluster.down()?;
        let (passed, failed) = (checks.passed, checks.failed);
        say(
            LABEL,
            &format!("{passed} pass on a node, {excepted} are exceptions, {failed} fail"),
        );
        Ok(checks)
    }
}

/// What `work` gives for each, several at a time.
fn each<T: Send, F: Fn(&Case) -> T + Sync>(at_once: usize, cases: &[Case], work: F) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let done: Vec<Mutex<Option<T>>> = cases.iter().map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..at_once {
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
fn run_here(case: &Case, folder: &Path) -> bool {
    let status = as_anybody("timeout")
        .arg(case.limit_s.to_string())
        .arg(&case.program)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

/// The ranks of a report.
fn ranks_of(report: &Path) -> Result<Vec<serde_json::Value>> {
    let text = fs::read_to_string(report).with_context(|| report.display().to_string())?;
    let report: serde_json::Value = serde_json::from_str(&text).context("a report is no JSON")?;
    let ranks = report["ranks"]
        .as_array()
        .context("a report has no ranks")?;
    Ok(ranks.clone())
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
    name: String,
    is_up: bool,
}

impl Cluster {
    fn up(workspace: &Workspace, nodes: &Nodes) -> Result<Self> {
        let cluster = Self {
            hearth: workspace.hearth(),
            name: format!("{CLUSTER}-{}", std::process::id()),
            is_up: true,
        };
        let (count, cores) = (nodes.count.to_string(), nodes.cores.to_string());
        let image = workspace.boot_image();
        let image = image.to_string_lossy();
        let words = [
            "up",
            "--nodes",
            &count,
            "--cpus",
            &cores,
            "--memory",
            nodes.memory,
            "--direct",
            "--image",
            &image,
        ];
        let output = cluster
            .command(UP_LIMIT_S, &words)
            .output()
            .context("starting hearth")?;
        match output.status.success() {
            true => Ok(cluster),
            false => bail!("hearth up: {}", String::from_utf8_lossy(&output.stderr)),
        }
    }

    fn command(&self, limit_s: u32, words: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.arg(limit_s.to_string()).arg(&self.hearth);
        command.args(["--cluster", &self.name]).args(words);
        command.stdin(Stdio::null());
        command
    }

    /// What is wrong with how a case ended on nodes, if anything is.
    fn run(&self, case: &Case) -> Option<String> {
        if !case.program.exists() {
            return Some("does not compile".to_owned());
        }
        let ending = match &case.kind {
            Kind::Posix(_) => Ending {
                says: "",
                ..Ending::WELL
            },
            Kind::Mpi(ending) => *ending,
        };
        let (ranks, limit) = (case.ranks.to_string(), format!("{}s", case.limit_s));
        let words = ["run", "-n", &ranks, "-t", &limit];
        let mut command = self.command(case.limit_s + UP_LIMIT_S, &words);
        if let Some(nodes) = case.nodes {
            command.args(["-N", &nodes.to_string()]);
        }
        let report = case.program.with_extension(format!("{ranks}.json"));
        if ending.report.is_some() {
            command.arg(format!("--report={}", report.display()));
        }
        for variable in &case.environment {
            command.args(["--env", variable]);
        }
        let output = command.arg(&case.program).args(&case.arguments).output();
        let Ok(output) = output else {
            return Some("was not started".to_owned());
        };
        let status = output.status.code().unwrap_or(TIMED_OUT);
        if !ending.has(status) {
            return Some(format!("ends with {status}"));
        }
        let said = [&output.stdout[..], &output.stderr].concat();
        let said = String::from_utf8_lossy(&said).to_lowercase();
        if !said.contains(ending.says) {
            return Some(format!(
                "ends with {status}, and does not say {:?}",
                ending.says
            ));
        }
        let checked = ending.report.map(|check| check(&ranks_of(&report)?));
        checked?.err().map(|error| format!("{error:#}"))
    }

    /// A command inside the network namespace of the machines.
    fn in_namespace(&self) -> Result<Command> {
        let words = ["list", "--machines", "--json"];
        let output = self.command(UP_LIMIT_S, &words).output()?;
        let machines: serde_json::Value = serde_json::from_slice(&output.stdout)
            .context("hearth list --machines --json is no JSON")?;
        let pid = machines[0]["process"]["pid"].as_u64();
        let pid = pid.context("hearth list --machines --json names no process of a machine")?;
        let mut command = Command::new("nsenter");
        command.args(["-t", &pid.to_string(), "-n"]);
        if !nix::unistd::geteuid().is_root() {
            command.args(["-U", "--preserve-credentials"]);
        }
        Ok(command)
    }

    /// From now on one of so many frames that pass the switches is lost, at random.
    fn lose_one_of(&self, frames: NonZeroU32) -> Result<()> {
        let rules = format!(
            "table bridge loss {{ chain forward {{ type filter hook forward priority 0; \
             numgen random mod {frames} == 0 counter drop; }}; }}"
        );
        let status = self.in_namespace()?.args(["nft", &rules]).status();
        let status = status.context("starting nft; `cargo xtask setup` installs it")?;
        ensure!(status.success(), "nft: {status}");
        Ok(())
    }

    /// How many frames were lost.
    fn lost(&self) -> Result<u64> {
        let mut command = self.in_namespace()?;
        let output = command.args(["nft", "list", "table", "bridge", "loss"]);
        let text = output_of(output)?;
        let mut words = text
            .split_whitespace()
            .skip_while(|word| *word != "packets");
        let count = words.nth(1).and_then(|word| word.parse().ok());
        count.with_context(|| format!("nft list table bridge loss has no count: {text}"))
    }

    fn down(mut self) -> Result<()> {
        self.is_up = false;
        let output = self.command(UP_LIMIT_S, &["down"]).output()?;
        match output.status.success() {
            true => Ok(()),
            false => bail!("hearth down: {}", String::from_utf8_lossy(&output.stderr)),
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.is_up {
            let _ = self.command(UP_LIMIT_S, &["down"]).output();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_the_program_s_own() {
        let fails = Ending {
            status: None,
            ..Ending::WELL
        };
        assert!(
            [1, 42, 134, 139]
                .into_iter()
                .all(|status| fails.has(status))
        );
        let no_node = [0, 123, TIMED_OUT, 125, 126, 127];
        assert!(!no_node.into_iter().any(|status| fails.has(status)));
        assert!(Ending::WELL.has(0) && !Ending::WELL.has(TIMED_OUT));
    }

    #[test]
    fn samples_of_all_numbers_have_each_case_once() {
        let case = |number: usize| Case {
            name: number.to_string(),
            program: PathBuf::new(),
            ranks: 1,
            nodes: None,
            arguments: Vec::new(),
            environment: Vec::new(),
            limit_s: 1,
            is_large: false,
            is_sampled: number != 7,
            kind: Kind::Mpi(Ending::WELL),
        };
        let all: Vec<Case> = (0..200).map(case).collect();
        let sample = |number| MPI.sample(all.clone(), number);
        let mut names: Vec<String> = Vec::new();
        for number in 0..3 {
            let sample = sample(number);
            assert!((66..=67).contains(&sample.len()), "{}", sample.len());
            names.extend(sample.into_iter().map(|case| case.name));
        }
        names.sort_by_key(|name| name.parse::<usize>().unwrap_or(0));
        let wanted = all.iter().filter(|case| case.is_sampled);
        assert!(names.iter().eq(wanted.map(|case| &case.name)));
        assert_eq!(sample(3)[0].name, sample(0)[0].name);
    }
}
