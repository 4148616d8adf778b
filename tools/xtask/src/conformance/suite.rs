//! The suites: where their sources come from, which cases they have, how those are compiled.
//!
//! The Open POSIX Test Suite is Debian's source package, pinned by its hash and kept in the cache
//! folder of the user. musl's libc-test is a folder that the user has.
//!
//! Invariant: nothing of a suite is in the repository, or stays where a test of ours looks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::{Case, Kind};
use crate::debian::SourcePackage;
use crate::workspace::Workspace;

/// The Open POSIX Test Suite.
const PACKAGE: SourcePackage = SourcePackage {
    name: "posixtestsuite",
    suite: "bookworm",
    archive: "posixtestsuite_1.5.2.orig.tar.gz",
    sha256: "15a2185672127cba851d35ec9d538ff6148defdbb75f99c7e9c50aeba0f94757",
};
/// Interfaces that a node has; the others are of shared memory, message queues and files in the
/// background.
const INTERFACES: [&str; 22] = [
    "pthread_",
    "sem_",
    "sig",
    "kill",
    "killpg",
    "raise",
    "clock",
    "nanosleep",
    "timer_",
    "mmap",
    "munmap",
    "mlock",
    "munlock",
    "sched_",
    "time",
    "difftime",
    "ctime",
    "asctime",
    "gmtime",
    "localtime",
    "mktime",
    "strftime",
];
/// Words by which a case shows that it needs another process, or what a node has not.
const NEEDS_MORE: [&str; 9] = [
    "fork (", "fork(", "execl", "execv", "system(", "popen(", "mq_open", "shm_open", "waitpid",
];
/// Longest time of a case, in seconds: some sleep for a few.
const LIMIT_S: u32 = 20;
/// How cases are compiled.
const FLAGS: [&str; 9] = [
    "-std=gnu99",
    "-D_POSIX_C_SOURCE=200112L",
    "-D_XOPEN_SOURCE=600",
    "-D_GNU_SOURCE",
    "-w",
    "-O1",
    "-static",
    "-pthread",
    "-fcommon",
];

/// Compiles a case of one program; false where this machine cannot.
pub fn build(program: &Path, sources: &[PathBuf], include: &Path) -> bool {
    if program.exists() {
        return true;
    }
    if fs::create_dir_all(program.parent().unwrap_or(Path::new("."))).is_err() {
        return false;
    }
    let status = Command::new("gcc")
        .args(FLAGS)
        .arg("-I")
        .arg(include)
        .args(sources)
        .args(["-lrt", "-lm", "-o"])
        .arg(program)
        .stderr(Stdio::null())
        .status();
    status.is_ok_and(|status| status.success())
}

fn case(workspace: &Workspace, name: String, sources: Vec<PathBuf>, include: PathBuf) -> Case {
    let file = name.replace('/', "_");
    Case {
        program: workspace.target().join("conformance/programs").join(file),
        name,
        ranks: 1,
        arguments: Vec::new(),
        environment: Vec::new(),
        limit_s: LIMIT_S,
        kind: Kind::Posix { sources, include },
    }
}

/// The cases of the POSIX test suite that need what a node has.
///
/// # Errors
/// It is not in the cache and cannot be downloaded.
pub fn posix(workspace: &Workspace) -> Result<Vec<Case>> {
    let root = unpacked(workspace)?;
    let interfaces = root.join("conformance/interfaces");
    let mut cases = Vec::new();
    for folder in sorted(&interfaces)? {
        let interface = name_of(&folder);
        if !INTERFACES.iter().any(|begin| interface.starts_with(begin)) {
            continue;
        }
        for source in sorted(&folder)? {
            let Some(number) = name_of(&source).strip_suffix(".c").map(str::to_owned) else {
                continue;
            };
            let is_number = number
                .split('-')
                .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
            if is_number && number.contains('-') && !needs_more(&source)? {
                let name = format!("{interface}/{number}");
                cases.push(case(workspace, name, vec![source], root.join("include")));
            }
        }
    }
    ensure!(!cases.is_empty(), "{} has no cases", interfaces.display());
    Ok(cases)
}

/// The functional and regression tests of musl's libc-test that need no other process.
///
/// # Errors
/// The folder has another form.
pub fn libc_test(workspace: &Workspace, folder: &Path) -> Result<Vec<Case>> {
    let common = folder.join("src/common");
    let mut shared = Vec::new();
    for source in sorted(&common)
        .with_context(|| format!("{}: libc-test has src/common", folder.display()))?
    {
        let name = name_of(&source);
        if name.ends_with(".c") && name != "runtest.c" {
            shared.push(source);
        }
    }
    // What it expects to be made by its own rules.
    let include = workspace.target().join("conformance/libc-test");
    fs::create_dir_all(&include)?;
    let mut cases = Vec::new();
    for kind in ["functional", "regression"] {
        for source in sorted(&folder.join("src").join(kind))? {
            let Some(name) = name_of(&source).strip_suffix(".c").map(str::to_owned) else {
                continue;
            };
            if !needs_more(&source)? {
                let mut sources = vec![source];
                sources.extend(shared.iter().cloned());
                let name = format!("libc-test/{kind}/{name}");
                cases.push(case(workspace, name, sources, common.clone()));
            }
        }
    }
    Ok(cases)
}

fn needs_more(source: &Path) -> Result<bool> {
    let text = String::from_utf8_lossy(&fs::read(source)?).into_owned();
    Ok(NEEDS_MORE.iter().any(|word| text.contains(word)))
}

fn sorted(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut paths = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()?;
    paths.sort();
    Ok(paths)
}

pub fn name_of(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// The suite's folder under target, unpacked from the cache.
fn unpacked(workspace: &Workspace) -> Result<PathBuf> {
    let parent = workspace.target().join("conformance");
    fs::create_dir_all(&parent).with_context(|| format!("making {}", parent.display()))?;
    let folder = parent.join(PACKAGE.name);
    PACKAGE.unpack(&folder)?;
    Ok(folder)
}
