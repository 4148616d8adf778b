//! Conformance of files: fsx and pjdfstest, which others wrote for file systems, run here and on a
//! node, through its I/O service and in its `/tmp`.
//!
//! Each is a crate of the registry. Cargo builds it, statically, at the version named here, under
//! the build directory. Key types: [`Tool`], [`Files`]. Neighbours: `super` has the nodes and reads
//! the list of exceptions.
//!
//! Invariant: a case of pjdfstest counts that passes here for a user without rights; fsx leaves the
//! same bytes on a node as here.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{Cluster, LABEL, Nodes, as_anybody, exceptions};
use crate::limited::{self, Show, say};
use crate::test::checks::Checks;
use crate::workspace::Workspace;

/// A crate with a program of its name.
struct Tool {
    name: &'static str,
    version: &'static str,
}

const FSX: Tool = Tool {
    name: "fsx",
    version: "0.3.2",
};
const PJDFSTEST: Tool = Tool {
    name: "pjdfstest",
    version: "0.2.2",
};
/// Both are compiled for this target: flags of the compiler are then not those of build scripts.
const TARGET: &str = "x86_64-unknown-linux-gnu";
const STATIC: &str = "-C target-feature=+crt-static";
/// Longest time for fetching and compiling one.
const BUILD_LIMIT: Duration = Duration::from_secs(900);
/// What is known of pjdfstest's cases that a node does not pass, each with a reason.
const EXCEPTIONS: &str = "tests/files-exceptions.txt";
/// Of so many cases of pjdfstest one is in the sample.
const SAMPLED: usize = 8;
/// Operations of fsx in the sample, and in a full run.
const OPERATIONS: u32 = 2_000;
const LONG_OPERATIONS: u32 = 100_000;
/// Longest time of a run on a node, in seconds.
const LIMIT_S: u32 = 300;
const LONG_LIMIT_S: u32 = 1_800;
const NODES: Nodes = Nodes {
    count: 1,
    cores: 2,
    memory: "96M",
    cases: 1,
};
/// Folders for what is made here and by a node. Some cases make paths of the greatest length: both
/// names are as long.
const HERE: &str = "here";
const THERE: &str = "node";
const _: () = assert!(HERE.len() == THERE.len());
/// The node's own.
const TEMPORARY: &str = "/tmp";

/// What fsx does how often. A node maps no file shared and writable, and has no sockets, over which
/// fsx sends files.
const FSX_SETTINGS: &str = "\
[weights]
close_open = 1
read = 10
write = 10
mapread = 0
mapwrite = 0
invalidate = 0
truncate = 10
fsync = 1
fdatasync = 1
posix_fallocate = 1
punch_hole = 1
sendfile = 0
posix_fadvise = 1
copy_file_range = 1
";
/// File systems of Linux have times of a few milliseconds. The users are those that each Debian
/// system has.
const PJDFSTEST_SETTINGS: &str = r#"[features]
posix_fallocate = {}
rename_ctime = {}
utimensat = {}
utime_now = {}
[settings]
naptime = 0.02
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"#;
/// The same users, for a node, which has none by name.
const USERS: &str = "root:x:0:0::/:/bin/sh\ndaemon:x:1:1::/:/bin/sh\nnobody:x:65534:65534::/:/\n";
const GROUPS: &str = "root:x:0:\ndaemon:x:1:\nnogroup:x:65534:\n";
/// Before the names of cases, where they are given exactly.
const NAMES_BEGIN: &str = "pjdfstest::tests::";

impl Tool {
    /// Its program, which cargo makes where it is not there.
    fn program(&self, workspace: &Workspace) -> Result<PathBuf> {
        let Self { name, version } = self;
        let crates = workspace.target().join("conformance/crates");
        let root = crates.join(format!("{name}-{version}"));
        let program = root.join("bin").join(name);
        if program.exists() {
            return Ok(program);
        }
        say(LABEL, &format!("building {name} {version}"));
        let mut cargo = workspace.cargo();
        cargo.arg("install").arg(format!("{name}@={version}"));
        cargo.args(["--locked", "--debug", "--quiet", "--target", TARGET]);
        cargo.arg("--root").arg(&root);
        cargo.arg("--target-dir").arg(crates.join("build"));
        cargo.env("RUSTFLAGS", STATIC);
        let what = format!("cargo install {name}");
        limited::run(&mut cargo, BUILD_LIMIT, Show::All(LABEL))?.expect_success(&what)?;
        Ok(program)
    }
}

/// A sample of both, for each run of the tests.
///
/// # Errors
/// Nodes do not come up. That the crates cannot be had here is a failure that is told.
pub fn check_sample(workspace: &Workspace) -> Result<Checks> {
    let mut checks = Checks::default();
    match Files::new(workspace) {
        Ok(files) => checks = files.check(OPERATIONS, SAMPLED, LIMIT_S)?,
        Err(error) => checks.fail(format!("tests of file systems did not run: {error:#}")),
    }
    Ok(checks)
}

/// All cases of pjdfstest, and many operations of fsx.
///
/// # Errors
/// Nodes do not come up, or the crates cannot be had.
pub fn check_all(workspace: &Workspace) -> Result<Checks> {
    Files::new(workspace)?.check(LONG_OPERATIONS, 1, LONG_LIMIT_S)
}

/// Both programs and the folder in which they run.
struct Files<'a> {
    workspace: &'a Workspace,
    folder: PathBuf,
    fsx: PathBuf,
    pjdfstest: PathBuf,
}

impl<'a> Files<'a> {
    fn new(workspace: &'a Workspace) -> Result<Self> {
        let folder = workspace.target().join("conformance/files");
        if folder.exists() {
            fs::remove_dir_all(&folder)
                .with_context(|| format!("clearing {}", folder.display()))?;
        }
        for name in ["etc", HERE, THERE] {
            fs::create_dir_all(folder.join(name))?;
            fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o777))?;
        }
        fs::write(folder.join("etc/passwd"), USERS)?;
        fs::write(folder.join("etc/group"), GROUPS)?;
        fs::write(folder.join("fsx.toml"), FSX_SETTINGS)?;
        fs::write(folder.join("pjdfstest.toml"), PJDFSTEST_SETTINGS)?;
        Ok(Self {
            workspace,
            folder,
            fsx: FSX.program(workspace)?,
            pjdfstest: PJDFSTEST.program(workspace)?,
        })
    }

    fn check(&self, operations: u32, sampled: usize, limit_s: u32) -> Result<Checks> {
        let counted = self.counted()?;
        let sample: Vec<&str> = counted.iter().step_by(sampled).map(|s| &s[..]).collect();
        let exceptions = exceptions(self.workspace, EXCEPTIONS)?;
        let cluster = Cluster::up(self.workspace, &NODES)?;
        let there = self.folder.join(THERE);
        let mut checks = Checks::default();
        for (place, operations) in [(&*there, operations), (Path::new(TEMPORARY), OPERATIONS)] {
            match self.fsx(&cluster, place, operations, limit_s) {
                Ok(()) => checks.pass(),
                Err(error) => checks.fail(format!("{error:#}")),
            }
            let results = self.pjdfstest(&cluster, place, &sample, limit_s)?;
            checks.add(judge(place, &sample, &results, &exceptions));
        }
        cluster.down()?;
        Ok(checks)
    }

    /// The same random operations on a file here and there: fsx compares what it reads with what it
    /// wrote, and the files are compared in the end. Those of the node's own are not seen here.
    fn fsx(&self, cluster: &Cluster, place: &Path, operations: u32, limit_s: u32) -> Result<()> {
        let (operations, seed) = (operations.to_string(), std::process::id().to_string());
        let arguments = ["-f", "fsx.toml", "-N", &operations, "-S", &seed];
        let replay = format!("fsx -N {operations} -S {seed} in {}", place.display());
        let here = self.folder.join(HERE).join("fsx");
        let mut command = Command::new("timeout");
        command.arg(limit_s.to_string()).arg(&self.fsx);
        command.args(arguments).arg(&here).current_dir(&self.folder);
        let on_linux = command.output()?;
        let said = String::from_utf8_lossy(&on_linux.stderr);
        ensure!(on_linux.status.success(), "{replay}: on Linux: {said}");
        let file = place.join("fsx");
        let mut command = self.on_node(cluster, limit_s);
        command.arg(&self.fsx).args(arguments).arg(&file);
        let output = command.output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{replay}: {said}");
        if place != TEMPORARY {
            ensure!(
                fs::read(&here)? == fs::read(&file)?,
                "{replay}: another file is left than on Linux"
            );
        }
        say(LABEL, &format!("{replay}: as on Linux"));
        Ok(())
    }

    /// The names of pjdfstest's cases that pass here.
    fn counted(&self) -> Result<Vec<String>> {
        let mut command = as_anybody("timeout");
        command.arg(LIMIT_S.to_string()).arg(&self.pjdfstest);
        command.args(["-c", "pjdfstest.toml", "-p"]);
        command.arg(self.folder.join(HERE));
        command.env("NO_COLOR", "1").current_dir(&self.folder);
        let output = command.output()?;
        let results = results(&String::from_utf8_lossy(&output.stdout));
        let (count, all) = (
            results.values().filter(|passed| **passed).count(),
            results.len(),
        );
        let skipped = String::from_utf8_lossy(&output.stdout)
            .lines()
            .filter(|line| line.ends_with(SKIPPED))
            .count();
        ensure!(
            2 * count > all,
            "{count} of {all} cases of pjdfstest pass on Linux: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        say(
            LABEL,
            &format!(
                "{count} of {all} cases of pjdfstest pass on Linux and count; {skipped} need a \
                 user's right that neither has, or another file system"
            ),
        );
        let passed = results.into_iter().filter(|(_, passed)| *passed);
        Ok(passed.map(|(name, _)| name).collect())
    }

    /// What comes of these cases on a node.
    fn pjdfstest(
        &self,
        cluster: &Cluster,
        place: &Path,
        cases: &[&str],
        limit_s: u32,
    ) -> Result<BTreeMap<String, bool>> {
        let mut command = self.on_node(cluster, limit_s);
        command.arg(&self.pjdfstest);
        command
            .args(["-c", "pjdfstest.toml", "-e", "-p"])
            .arg(place);
        command.args(cases.iter().map(|case| format!("{NAMES_BEGIN}{case}")));
        let output = command.output()?;
        Ok(results(&String::from_utf8_lossy(&output.stdout)))
    }

    /// `hearth run` of what follows, in the folder.
    fn on_node(&self, cluster: &Cluster, limit_s: u32) -> Command {
        let limit = format!("{limit_s}s");
        let words = ["run", "-n", "1", "-t", &limit, "--env", "NO_COLOR=1", "-D"];
        let mut command = cluster.command(limit_s + super::UP_LIMIT_S, &words);
        let users = format!("{}:/etc:ro", self.folder.join("etc").display());
        command.arg(&self.folder).args(["--mount", &users]);
        command
    }
}

/// Ends of the lines that pjdfstest prints of its cases.
const PASSED: &str = " ok";
const FAILED: &str = " FAILED";
const SKIPPED: &str = " skipped";

/// Whether each case passed that was run, by name.
fn results(said: &str) -> BTreeMap<String, bool> {
    let result = |line: &str| {
        let passed = line.ends_with(PASSED);
        let (name, _) = line.split_once(' ').filter(|_| !line.starts_with('\t'))?;
        let is_case = name.contains("::") && (passed || line.ends_with(FAILED));
        is_case.then(|| (name.to_owned(), passed))
    };
    said.lines().filter_map(result).collect()
}

/// What is to be said of the cases that should have been run on a node.
fn judge(
    place: &Path,
    cases: &[&str],
    results: &BTreeMap<String, bool>,
    exceptions: &BTreeMap<String, String>,
) -> Checks {
    let mut checks = Checks::default();
    let mut excepted = 0;
    for case in cases {
        match (results.get(*case), exceptions.contains_key(*case)) {
            (Some(true), is_exception) => {
                if is_exception {
                    say(LABEL, &format!("{case} passes: it need be no exception"));
                }
                checks.pass();
            }
            (_, true) => excepted += 1,
            (result, false) => {
                let how = result.map_or("did not run", |_| "fails");
                checks.fail(format!("pjdfstest {case} in {} {how}", place.display()));
            }
        }
    }
    let (passed, failed) = (checks.passed, checks.failed);
    let text =
        format!("pjdfstest: {passed} pass on a node, {excepted} are exceptions, {failed} fail");
    say(LABEL, &format!("{text}, in {}", place.display()));
    checks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_cases_are_told_from_others() {
        let said = "open::eisdir                         ok\n\
                    link::count                      FAILED\n\tan::assertion failed: it is ok\n\
                    chown::owner                     skipped\n\n\
                    Summary: 1 failed, 1 skipped, 1 passed\n";
        let results = results(said);
        assert_eq!(results.len(), 2, "{results:?}");
        assert!(results["open::eisdir"] && !results["link::count"]);
    }

    #[test]
    fn what_did_not_run_has_failed() {
        let results = BTreeMap::from([("a".to_owned(), true), ("b".to_owned(), false)]);
        let known = BTreeMap::from([("d".to_owned(), "a reason".to_owned())]);
        let checks = judge(Path::new("x"), &["a", "b", "c", "d"], &results, &known);
        assert_eq!((checks.passed, checks.failed), (1, 2));
        assert_eq!(checks.what_failed[1], "pjdfstest c in x did not run");
    }
}
