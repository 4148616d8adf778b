//! MPICH's own test suite: its programs compiled with `mpicc`, its lists read.
//!
//! Purpose: [`cases`] are the lines of its `testlist` files; [`prepare`] configures the suite once,
//! and compiles what cases need. Neighbours: [`crate::build::mpi`] has unpacked the sources,
//! [`super`] runs the cases on nodes.
//!
//! Invariant: a case that cannot be compiled is one that fails.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::{Case, Kind};
use crate::build::mpi;
use crate::limited::say;
use crate::workspace::{Workspace, output_of};

/// Folders of the suite: C, errors that MPI must find, threads, MPI-IO, C++ and Fortran.
pub const FOLDERS: [&str; 35] = [
    "attr",
    "coll",
    "comm",
    "cxx/attr",
    "cxx/coll",
    "cxx/comm",
    "cxx/datatype",
    "cxx/pt2pt",
    "datatype",
    "errhan",
    "errors/attr",
    "errors/coll",
    "errors/comm",
    "errors/datatype",
    "errors/group",
    "errors/pt2pt",
    "errors/rma",
    "errors/topo",
    "f77/coll",
    "f77/comm",
    "f77/datatype",
    "f77/pt2pt",
    "f08/coll",
    "f08/datatype",
    "f08/pt2pt",
    "group",
    "info",
    "init",
    "io",
    "part",
    "pt2pt",
    "rma",
    "threads/comm",
    "threads/pt2pt",
    "topo",
];
/// Most ranks of a case.
pub const RANKS_MOST: usize = 10;
/// Longest time of a case of ours, in seconds.
const OUR_LIMIT_S: u32 = 120;
/// Longest time of a case of the suite; what a line names is for processors that are not emulated.
const LIMIT_S: u32 = 900;
/// And of those that move gigabytes.
const LARGE_LIMIT_S: u32 = 3_600;
/// Cases that need more memory than most nodes of the suite have: 320 MB in one piece, buffers for
/// a hundred types, 2.2 GB.
const LARGE: [&str; 4] = [
    "pt2pt/huge_anysrc",
    "pt2pt/large_message",
    "pt2pt/manylmt",
    "pt2pt/sendself",
];
/// Programs with rounds for processors that are not emulated: their sources, how often they do the
/// same, and how often here. Nothing else of them is changed.
const ROUNDS: [(&str, &str, &str); 4] = [
    // About twice as many as there are contexts, so that one that leaks shows.
    (
        "comm/ctxalloc.c",
        "for (i = 0; i < 1000; i++)",
        "for (i = 0; i < 20; i++)",
    ),
    (
        "comm/ctxsplit.c",
        "int nLoop = 100000;",
        "int nLoop = 4096;",
    ),
    (
        "coll/nonblocking3.c",
        "#define MAIN_ITERATIONS (100000)",
        "#define MAIN_ITERATIONS (2000)",
    ),
    (
        "pt2pt/sendflood.c",
        "#define LOOP_COUNT  100000",
        "#define LOOP_COUNT  5000",
    ),
];
/// Folders of the samples of each test run: all of their cases have been run.
const SAMPLED: [&str; 15] = [
    "coll",
    "comm",
    "cxx/coll",
    "cxx/comm",
    "cxx/datatype",
    "datatype",
    "errors/coll",
    "errors/comm",
    "errors/datatype",
    "errors/group",
    "errors/pt2pt",
    "f77/coll",
    "f77/comm",
    "f77/datatype",
    "pt2pt",
];
/// Most ranks of a case of the sample: emulated nodes share the processors of one machine.
const RANKS_OF_SAMPLE: usize = 5;
/// Cases of as few ranks that took 20 seconds and more on a busy machine, whatever their arguments.
const LONG: [&str; 7] = [
    "coll/allgatherv4",
    "coll/allredmany",
    "coll/p_gather",
    "coll/reduce",
    "coll/uoplong",
    "comm/too_many_comms",
    "pt2pt/probe_unexp",
];

/// Programs of `tests/mpi`: their ranks, and what they end with. Collectives are tried where
/// the ranks are no power of two.
const OURS: [(&str, usize, i32); 13] = [
    ("collectives.c", 3, 0),
    ("collectives.c", 5, 0),
    ("collectives.c", 7, 0),
    ("collectives.c", 13, 0),
    ("exchange.c", 3, 0),
    ("exchange.c", 5, 0),
    ("exchange.c", 7, 0),
    ("exchange.c", 13, 0),
    ("flood.c", 3, 0),
    ("windows.c", 3, 0),
    ("fortran.f90", 3, 0),
    ("leaves.c", 3, 1),
    ("aborts.c", 3, 42),
];

/// Cases of our own.
pub fn ours(workspace: &Workspace) -> Vec<Case> {
    let case = |&(file, ranks, ends_with): &(&str, usize, i32)| Case {
        name: format!("ours/{file}, {ranks} ranks"),
        program: built(workspace).join("ours").join(file),
        ranks,
        arguments: Vec::new(),
        environment: Vec::new(),
        limit_s: OUR_LIMIT_S,
        is_large: false,
        is_sampled: true,
        kind: Kind::Mpi { ends_with },
    };
    OURS.iter().map(case).collect()
}

/// Compiles those.
fn compile_ours(workspace: &Workspace) -> Result<()> {
    let folder = built(workspace).join("ours");
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let files: BTreeSet<&str> = OURS.iter().map(|(file, ..)| *file).collect();
    for file in files {
        let compiler = match file.ends_with(".c") {
            true => "bin/mpicc",
            false => "bin/mpifort",
        };
        let mut command = Command::new(mpi::prefix(workspace).join(compiler));
        command.args(["-O2", "-Wall", "-o"]).arg(folder.join(file));
        output_of(command.arg(workspace.root().join("tests/mpi").join(file)))?;
    }
    Ok(())
}

/// All cases of the suite.
///
/// # Errors
/// As [`cases`].
pub fn all(workspace: &Workspace) -> Result<Vec<Case>> {
    cases(workspace, &FOLDERS)
}

/// Cases of the suite, in the order of these folders.
///
/// # Errors
/// MPI is not built.
pub fn cases(workspace: &Workspace, folders: &[&str]) -> Result<Vec<Case>> {
    let source = mpi::test_suite(workspace);
    ensure!(
        source.is_dir(),
        "MPI is not built: `cargo xtask build --mpi`"
    );
    let mut cases = Vec::new();
    for folder in folders {
        for list in ["testlist", "testlist.in"] {
            let path = source.join(folder).join(list);
            if let Ok(text) = fs::read_to_string(&path) {
                let lines = text.lines().filter_map(|line| read(folder, line));
                cases.extend(lines);
                break;
            }
        }
    }
    for case in &mut cases {
        case.program = built(workspace).join(&case.program);
    }
    let mut seen = BTreeMap::new();
    for case in &mut cases {
        let count: &mut u32 = seen.entry(case.name.clone()).or_default();
        *count += 1;
        if *count > 1 {
            case.name = format!("{}#{count}", case.name);
        }
    }
    Ok(cases)
}

/// A line: the program, its ranks, then words `key=value`.
fn read(folder: &str, line: &str) -> Option<Case> {
    let mut words = line.split_whitespace();
    let program = words.next().filter(|word| !word.starts_with(['#', '@']))?;
    let ranks: usize = words.next()?.parse().ok()?;
    let name = format!("{folder}/{program}");
    let is_large = LARGE.contains(&name.as_str());
    let mut case = Case {
        is_large,
        is_sampled: SAMPLED.contains(&folder)
            && ranks <= RANKS_OF_SAMPLE
            && !is_large
            && !LONG.contains(&name.as_str()),
        name,
        program: PathBuf::from(folder).join(program),
        ranks,
        arguments: Vec::new(),
        environment: Vec::new(),
        limit_s: if is_large { LARGE_LIMIT_S } else { LIMIT_S },
        kind: Kind::Mpi { ends_with: 0 },
    };
    for word in words {
        match word.split_once('=') {
            Some(("arg", value)) => case.arguments.push(value.to_owned()),
            Some(("env", value)) => case.environment.push(value.to_owned()),
            // It is known to fail, wants a special build, or ends with an error by intent.
            Some(("xfail" | "resultTest", _)) => return None,
            _ => {}
        }
    }
    (ranks <= RANKS_MOST).then_some(case)
}

fn built(workspace: &Workspace) -> PathBuf {
    workspace.target().join("mpi/tests")
}

/// Writes the sources of [`ROUNDS`] where `make` looks first.
fn write_fewer_rounds(workspace: &Workspace) -> Result<()> {
    for (file, many, few) in ROUNDS {
        let from = mpi::test_suite(workspace).join(file);
        let text = fs::read_to_string(&from).with_context(|| from.display().to_string())?;
        ensure!(
            text.matches(many).count() == 1,
            "{} has not one {many:?}",
            from.display()
        );
        let (to, text) = (built(workspace).join(file), text.replace(many, few));
        // `make` compiles what is newer.
        if !fs::read(&to).is_ok_and(|old| old == text.as_bytes()) {
            fs::write(&to, text).with_context(|| to.display().to_string())?;
        }
    }
    Ok(())
}

/// Configures the suite, and compiles the programs of these cases.
///
/// # Errors
/// It cannot be configured.
pub fn prepare(workspace: &Workspace, cases: &[Case]) -> Result<()> {
    let folder = built(workspace);
    compile_ours(workspace)?;
    let is_ours = |case: &Case| case.name.starts_with("ours/");
    if cases.iter().all(is_ours) {
        return Ok(());
    }
    if !folder.join("Makefile").exists() {
        fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        say(super::LABEL, "configuring MPICH's test suite");
        let mut command = Command::new(mpi::test_suite(workspace).join("configure"));
        command.current_dir(&folder).stdin(Stdio::null());
        command.arg(format!("--with-mpi={}", mpi::prefix(workspace).display()));
        command.args(["--enable-fortran=all", "--disable-dependency-tracking"]);
        output_of(command.stderr(Stdio::null()))?;
    }
    write_fewer_rounds(workspace)?;
    let mut programs: BTreeMap<&Path, BTreeSet<String>> = BTreeMap::new();
    for case in cases.iter().filter(|case| !is_ours(case)) {
        unlink_older(&case.program, &mpi::prefix(workspace).join("lib/libmpi.a"));
        let name = super::suite::name_of(&case.program);
        let parent = case.program.parent().unwrap_or(&folder);
        programs.entry(parent).or_default().insert(name);
    }
    // What all its programs of Fortran 2008 need it compiles within MPICH's own build alone.
    make(
        &folder.join("util"),
        &["am_libmtest_f08_la_OBJECTS=mtest_f08.lo", "libmtest_f08.la"],
    );
    let all = programs.len();
    for (number, (parent, names)) in programs.into_iter().enumerate() {
        let name = parent.strip_prefix(&folder).unwrap_or(parent).display();
        say(
            super::LABEL,
            &format!(
                "compiling {name} ({} of {all}): {}",
                number + 1,
                names.len()
            ),
        );
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        make(parent, &names);
    }
    Ok(())
}

/// Removes a program that was linked before this library was made: `make` does not know of it.
fn unlink_older(program: &Path, library: &Path) {
    let made = |path: &Path| fs::metadata(path).and_then(|of| of.modified());
    if let (Ok(linked), Ok(library)) = (made(program), made(library))
        && linked < library
    {
        // One that cannot be removed stays as it is.
        let _ = fs::remove_file(program);
    }
}

/// What does not compile is told by its case.
fn make(folder: &Path, words: &[&str]) {
    let _ = Command::new("make")
        .args(["--keep-going", "--silent", "-j2"])
        .args(words)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_ranks_arguments_and_variables() {
        let case = read("coll", "allred 7 arg=-count=10 env=A=b").expect("a case");
        assert_eq!(case.name, "coll/allred");
        assert_eq!(
            (case.ranks, case.is_large, case.is_sampled),
            (7, false, false)
        );
        assert!(read("coll", "allred 4").expect("a case").is_sampled);
        assert_eq!(case.arguments, ["-count=10"]);
        assert_eq!(case.environment, ["A=b"]);
        assert!(read("coll", "# allred 4").is_none());
        assert!(read("coll", "allred 4 xfail=ticket1").is_none());
        assert!(read("coll", "allred 64").is_none());
    }
}
