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
use crate::workspace::{Workspace, output_of};

/// The Open POSIX Test Suite.
const PACKAGE: SourcePackage = SourcePackage {
    name: "posixtestsuite",
    suite: "bookworm",
    archive: "posixtestsuite_1.5.2.orig.tar.gz",
    sha256: "15a2185672127cba851d35ec9d538ff6148defdbb75f99c7e9c50aeba0f94757",
};
/// Interfaces that a node has; the others are of message queues and of files in the background.
const INTERFACES: [&str; 23] = [
    "pthread_",
    "sem_",
    "shm_",
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
const NEEDS_MORE: [&str; 12] = [
    "fork (",
    "fork(",
    "execl",
    "execv",
    "system(",
    "popen(",
    "posix_spawn",
    "mq_open",
    "waitpid",
    "shmget",
    "semget",
    "msgget",
];
/// Longest time of a case, in seconds: some sleep for a few.
const LIMIT_S: u32 = 20;
/// A case that wants to run on at most 3 ms after a sleep, which a busy machine does not grant an
/// emulated processor: it is in no sample.
const PROMPT: &str = "timer_gettime/1-3";
/// How cases are compiled: those of the POSIX test suite with glibc, those of libc-test with musl,
/// whose tests they are.
const POSIX: Compiler = Compiler {
    name: "gcc",
    flags: &[
        "-std=gnu99",
        "-D_POSIX_C_SOURCE=200112L",
        "-D_XOPEN_SOURCE=600",
        "-D_GNU_SOURCE",
        "-w",
        "-O1",
        "-static",
        "-pthread",
        "-fcommon",
    ],
};
const LIBC_TEST: Compiler = Compiler {
    name: "musl-gcc",
    flags: &[
        "-std=c99",
        "-D_POSIX_C_SOURCE=200809L",
        "-D_FILE_OFFSET_BITS=64",
        "-w",
        "-fno-builtin",
        "-frounding-math",
        "-O1",
        "-static",
        "-pthread",
    ],
};
/// What libc-test's own rules make of a header: the lines that begin with the name of an option of
/// POSIX, behind this one, become definitions.
const OPTIONS: &str = "options.h";
const OPTIONS_BEGIN: &str = "optiongroups_unistd_end";

/// A compiler and its flags.
#[derive(Debug)]
struct Compiler {
    name: &'static str,
    flags: &'static [&'static str],
}

/// How a case is compiled.
#[derive(Clone, Debug)]
pub struct Recipe {
    compiler: &'static Compiler,
    sources: Vec<PathBuf>,
    include: Vec<PathBuf>,
}

impl Recipe {
    /// Compiles the program; false where this machine cannot.
    pub fn build(&self, program: &Path) -> bool {
        if program.exists() {
            return true;
        }
        if fs::create_dir_all(program.parent().unwrap_or(Path::new("."))).is_err() {
            return false;
        }
        let include = self.include.iter();
        let status = Command::new(self.compiler.name)
            .args(self.compiler.flags)
            .args(include.flat_map(|folder| [Path::new("-I"), folder]))
            .args(&self.sources)
            .args(["-lrt", "-lm", "-o"])
            .arg(program)
            .stderr(Stdio::null())
            .status();
        status.is_ok_and(|status| status.success())
    }
}

fn case(workspace: &Workspace, name: String, recipe: Recipe) -> Case {
    let file = name.replace('/', "_");
    Case {
        program: workspace.target().join("conformance/programs").join(file),
        ranks: 1,
        nodes: None,
        arguments: Vec::new(),
        environment: Vec::new(),
        limit_s: LIMIT_S,
        is_large: false,
        is_sampled: name != PROMPT,
        name,
        kind: Kind::Posix(recipe),
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
                let recipe = Recipe {
                    sources: vec![source],
                    include: vec![root.join("include")],
                    compiler: &POSIX,
                };
                cases.push(case(workspace, format!("{interface}/{number}"), recipe));
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
    let made = workspace.target().join("conformance/libc-test");
    fs::create_dir_all(&made)?;
    make_options(&common, &made)?;
    let mut cases = Vec::new();
    for kind in ["functional", "regression"] {
        for source in sorted(&folder.join("src").join(kind))? {
            let Some(name) = name_of(&source).strip_suffix(".c").map(str::to_owned) else {
                continue;
            };
            if !needs_more(&source)? && !needs_linker(&source)? {
                let mut sources = vec![source];
                sources.extend(shared.iter().cloned());
                let recipe = Recipe {
                    sources,
                    include: vec![made.clone(), common.clone()],
                    compiler: &LIBC_TEST,
                };
                cases.push(case(workspace, format!("libc-test/{kind}/{name}"), recipe));
            }
        }
    }
    Ok(cases)
}

/// The header that libc-test's own rules make.
fn make_options(common: &Path, made: &Path) -> Result<()> {
    let mut command = Command::new(LIBC_TEST.name);
    command.args(["-D_POSIX_C_SOURCE=200809L", "-E", "-P", "-x", "c"]);
    let text = output_of(command.arg(common.join(OPTIONS).with_extension("h.in")))?;
    let behind = text.split_once(OPTIONS_BEGIN).map(|(_, behind)| behind);
    let behind = behind.with_context(|| format!("{OPTIONS}.in has no {OPTIONS_BEGIN}"))?;
    let lines = behind.lines().filter(|line| !line.trim().is_empty());
    let header: String = lines.map(|line| format!("#define {line}\n")).collect();
    fs::write(made.join(OPTIONS), header).context("writing options.h")
}

/// Whether a case is of shared libraries, or a part of one, which no static program has.
fn needs_linker(source: &Path) -> Result<bool> {
    let text = String::from_utf8_lossy(&fs::read(source)?).into_owned();
    let has_rules = source.with_extension("mk").exists();
    Ok(has_rules || text.contains("dlopen("))
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
