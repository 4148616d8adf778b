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
use serde_json::Value;

use super::{Case, Ending, Kind};
use crate::build::mpi;
use crate::limited::say;
use crate::workspace::{Workspace, output_of};

/// Folders of the suite: C, errors that MPI must find, C++, Fortran, threads, MPI-IO. Without those
/// of what MPI here has not: processes that are started (`spawn`), faults that are survived (`ft`)
/// and checkpoints.
pub const FOLDERS: [&str; 91] = [
    "attr",
    "coll",
    "comm",
    "cxx/attr",
    "cxx/coll",
    "cxx/comm",
    "cxx/datatype",
    "cxx/errhan",
    "cxx/info",
    "cxx/init",
    "cxx/io",
    "cxx/pt2pt",
    "cxx/rma",
    "datatype",
    "errhan",
    "errors/attr",
    "errors/coll",
    "errors/comm",
    "errors/cxx/errhan",
    "errors/cxx/io",
    "errors/datatype",
    "errors/f08/io",
    "errors/f77/io",
    "errors/f90/io",
    "errors/faults",
    "errors/group",
    "errors/io",
    "errors/pt2pt",
    "errors/rma",
    "errors/topo",
    "f08/attr",
    "f08/coll",
    "f08/comm",
    "f08/datatype",
    "f08/ext",
    "f08/info",
    "f08/init",
    "f08/io",
    "f08/misc",
    "f08/profile",
    "f08/pt2pt",
    "f08/rma",
    "f08/subarray",
    "f08/timer",
    "f08/topo",
    "f77/attr",
    "f77/coll",
    "f77/comm",
    "f77/datatype",
    "f77/ext",
    "f77/info",
    "f77/init",
    "f77/io",
    "f77/profile",
    "f77/pt2pt",
    "f77/rma",
    "f77/topo",
    "f90/attr",
    "f90/coll",
    "f90/comm",
    "f90/datatype",
    "f90/ext",
    "f90/f90types",
    "f90/info",
    "f90/init",
    "f90/io",
    "f90/misc",
    "f90/profile",
    "f90/pt2pt",
    "f90/rma",
    "f90/timer",
    "f90/topo",
    "group",
    "impls/mpich/comm",
    "impls/mpich/mpi_t",
    "info",
    "init",
    "io",
    "mpi_t",
    "part",
    "perf",
    "pt2pt",
    "rma",
    "threads/comm",
    "threads/init",
    "threads/mpi_t",
    "threads/part",
    "threads/perf",
    "threads/pt2pt",
    "threads/rma",
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
const ROUNDS: [(&str, &str, &str); 5] = [
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
    // Of each of its types.
    (
        "errors/rma/cas_type_check.c",
        "for (i = 0; i < 10000; i++)",
        "for (i = 0; i < 500; i++)",
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

/// A program of `tests/mpi`.
struct Ours {
    file: &'static str,
    ranks: usize,
    /// Nodes that share them; 0: each has one of its own.
    nodes: usize,
    ending: Ending,
}

/// Collectives are tried where the ranks are no power of two. With 7 ranks some are on one node.
const OURS: [Ours; 19] = [
    well("collectives.c", 3, 0),
    well("collectives.c", 5, 0),
    well("collectives.c", 7, 4),
    well("collectives.c", 13, 0),
    well("exchange.c", 3, 0),
    well("exchange.c", 5, 0),
    well("exchange.c", 7, 4),
    well("exchange.c", 13, 0),
    well("flood.c", 3, 2),
    well("crowded.c", 2, 1),
    well("windows.c", 3, 2),
    well("truncated.c", 2, 0),
    well("disagree.c", 4, 0),
    well("fortran.f90", 3, 0),
    Ours {
        ending: Ending {
            report: Some(sends_are_bounded),
            ..Ending::WELL
        },
        ..well("sends.c", 2, 0)
    },
    Ours {
        ending: Ending {
            report: Some(transposes_are_exchanges),
            ..Ending::WELL
        },
        ..well("transposes.c", 4, 2)
    },
    ends("leaves.c", Some(1), "rank 1 is lost"),
    ends("crashes.c", Some(139), "signal 11"),
    ends("aborts.c", Some(42), ""),
];

const fn well(file: &'static str, ranks: usize, nodes: usize) -> Ours {
    Ours {
        file,
        ranks,
        nodes,
        ending: Ending::WELL,
    }
}

const fn ends(file: &'static str, status: Option<i32>, says: &'static str) -> Ours {
    Ours {
        ending: Ending {
            status,
            says,
            report: None,
        },
        ..well(file, 3, 0)
    }
}

/// Most memory of a rank of `sends.c`: its messages have more.
const SENDS_FRAMES_MOST: u64 = (10 << 20) / 4096;

fn sends_are_bounded(ranks: &[Value]) -> Result<()> {
    for rank in ranks {
        let frames = counted(rank, &rank["frames_peak"])?;
        ensure!(
            frames <= SENDS_FRAMES_MOST,
            "a rank had {frames} frames, more than {SENDS_FRAMES_MOST}"
        );
    }
    Ok(())
}

/// As many as `transposes.c` has calls.
const TRANSPOSES: u64 = 20;

fn transposes_are_exchanges(ranks: &[Value]) -> Result<()> {
    for rank in ranks {
        let [exchanges, messages] = ["exchanges", "messages"].map(|what| &rank["sent"][what]);
        let (exchanges, messages) = (counted(rank, exchanges)?, counted(rank, messages)?);
        ensure!(
            (exchanges, messages) == (TRANSPOSES, 0),
            "a rank took part in {exchanges} exchanges and sent {messages} messages, in place of \
             {TRANSPOSES} and none"
        );
    }
    Ok(())
}

fn counted(rank: &Value, what: &Value) -> Result<u64> {
    what.as_u64()
        .with_context(|| format!("a report has no such count: {rank}"))
}

/// Cases of our own.
pub fn ours(workspace: &Workspace) -> Vec<Case> {
    let case = |ours: &Ours| {
        let &Ours {
            file, ranks, nodes, ..
        } = ours;
        let on = match nodes {
            0 => String::new(),
            nodes => format!(" on {nodes} nodes"),
        };
        Case {
            name: format!("ours/{file}, {ranks} ranks{on}"),
            program: built(workspace).join("ours").join(file),
            ranks,
            nodes: Some(nodes).filter(|nodes| *nodes > 0),
            arguments: Vec::new(),
            environment: Vec::new(),
            limit_s: OUR_LIMIT_S,
            is_large: false,
            is_sampled: true,
            kind: Kind::Mpi(ours.ending),
        }
    };
    OURS.iter().map(case).collect()
}

/// Compiles those.
fn compile_ours(workspace: &Workspace) -> Result<()> {
    let folder = built(workspace).join("ours");
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let files: BTreeSet<&str> = OURS.iter().map(|ours| ours.file).collect();
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
    // Some lists are made when the suite is configured.
    configure(workspace)?;
    let mut cases = Vec::new();
    for folder in folders {
        let lists = [built(workspace), source.clone()].map(|of| of.join(folder).join("testlist"));
        let text = lists.iter().find_map(|list| fs::read_to_string(list).ok());
        let text = text.with_context(|| format!("MPICH's suite has no {}", lists[1].display()))?;
        cases.extend(text.lines().filter_map(|line| read(folder, line)));
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
        kind: Kind::Mpi(Ending::WELL),
        nodes: None,
    };
    let (mut limit_s, mut is_to_fail) = (None, false);
    for word in words {
        match word.split_once('=') {
            Some(("arg", value)) => case.arguments.push(value.to_owned()),
            Some(("env", value)) => case.environment.push(value.to_owned()),
            Some(("timeLimit", value)) => limit_s = value.parse().ok(),
            // It ends with an error, whatever it says.
            Some(("resultTest", "TestStatus" | "TestErrFatal")) => is_to_fail = true,
            // It is known to fail, as the suite's own driver has it.
            Some(("xfail" | "resultTest", _)) => return None,
            _ => {}
        }
    }
    if is_to_fail {
        // Where a line has a time its case ends by that, and by nothing else.
        case.limit_s = limit_s.unwrap_or(case.limit_s);
        case.kind = Kind::Mpi(Ending {
            status: limit_s.map(|_| super::TIMED_OUT),
            says: "",
            report: None,
        });
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

/// Configures the suite, once.
fn configure(workspace: &Workspace) -> Result<()> {
    let folder = built(workspace);
    if folder.join("Makefile").exists() {
        return Ok(());
    }
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    say(super::LABEL, "configuring MPICH's test suite");
    let mut command = Command::new(mpi::test_suite(workspace).join("configure"));
    command.current_dir(&folder).stdin(Stdio::null());
    command.arg(format!("--with-mpi={}", mpi::prefix(workspace).display()));
    command.args(["--enable-fortran=all", "--disable-dependency-tracking"]);
    output_of(command.stderr(Stdio::null()))?;
    Ok(())
}

/// Compiles the programs of these cases.
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
    configure(workspace)?;
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
        let fails = read("init", "timeout 2 resultTest=TestErrFatal timeLimit=10").expect("a case");
        let ending = |case: &Case| match case.kind {
            Kind::Mpi(ending) => ending.status,
            Kind::Posix(_) => unreachable!("a case of MPI"),
        };
        assert_eq!((ending(&fails), fails.limit_s), (Some(124), 10));
        let fails = read("errhan", "errfatal 1 resultTest=TestErrFatal").expect("a case");
        assert_eq!((ending(&fails), fails.limit_s), (None, LIMIT_S));
        assert_eq!((ending(&case), case.limit_s), (Some(0), LIMIT_S));
        assert!(read("coll", "allred 64").is_none());
    }
}
