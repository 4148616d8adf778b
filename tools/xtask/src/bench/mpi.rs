//! `bench mpi`: what MPI costs beside our own library, and what a program with MPI is.
//!
//! The program is `tests/mpi/times.c`, which has both libraries in it and lets them take turns.
//! Cases: `message`, 8 bytes in instructions (`-icount`: one tick of the time-stamp counter an
//! instruction, of the kernel's, too; those of ring 3 alone are what the job's report says);
//! `bandwidth/RATE` and `alltoall-RANKS/RATE` behind limited links; `allreduce-RANKS`, `put` and
//! `get` in one-way times of a message; `hello`, a program's size and a warm launch of it.
//! Neighbours: [`super::exchange`] measures exchanges of our library alone, [`super::launch`] other
//! programs.
//!
//! Invariant: both figures of a ratio are of one run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::cluster::Cluster;
use super::launch::Figures;
use super::links::{self, Processors};
use super::{Goal, Report, Row, ready};
use crate::build::mpi;
use crate::workspace::{Workspace, output_of};

const CLUSTER: &str = "bench-mpi";
/// Most instructions of a message in ring 3 beyond those of the library.
const MESSAGE_MOST: f64 = 600.0;
const MESSAGES: &str = "5001";
/// Under `-icount`, where an instruction takes a nanosecond.
const INSTRUCTIONS_A_MS: f64 = 1e6;
/// Links of the cases that need any.
const RATE: &str = "20mbit";
const BITS_PER_SECOND: u64 = 20_000_000;
/// Least share of the library's bandwidth.
const BANDWIDTH_LEAST: f64 = 0.98;
/// Most time of an exchange for one of the library's.
const ALLTOALL_MOST: f64 = 1.03;
const ALLTOALL_RANKS: usize = 16;
/// Ranks of a small reduction: as many as there are processors, and more.
const ALLREDUCE_RANKS: [usize; 2] = [2, 4];
/// One-sided access to the window of another rank, which waits in MPI.
const ONE_SIDED: [&str; 2] = ["put", "get"];
/// Most bytes of a small program's file.
const HELLO_MOST: f64 = 8e6;
const HELLO: &str = "#include <mpi.h>\n#include <stdio.h>\nint main(int argc, char **argv)\n{\n    \
                     int rank;\n    MPI_Init(&argc, &argv);\n    \
                     MPI_Comm_rank(MPI_COMM_WORLD, &rank);\n    printf(\"hello from %d\\n\", rank);\
                     \n    return MPI_Finalize();\n}\n";

/// Every case that was asked for.
pub fn run(workspace: &Workspace, report: &mut Report) -> Result<()> {
    let bandwidth = format!("bandwidth/{RATE}");
    let alltoall = format!("alltoall-{ALLTOALL_RANKS}/{RATE}");
    let allreduce = ALLREDUCE_RANKS.map(|ranks| format!("allreduce-{ranks}"));
    let [hello, message] = ["hello", "message"].map(|case| report.wants(case));
    let [two, many] = [&bandwidth, &alltoall].map(|case| report.wants(case));
    let small = allreduce.each_ref().map(|case| report.wants(case));
    let one_sided = ONE_SIDED.map(|case| report.wants(case));
    let all = [&[hello, message, two, many][..], &small, &one_sided].concat();
    if !all.contains(&true) {
        return Ok(());
    }
    mpi::build(workspace)?;
    ready(workspace, report)?;
    let programs = Programs::compile(workspace)?;
    if message {
        programs.message(workspace, report)?;
    }
    if hello {
        programs.hello(workspace, report)?;
    }
    if two {
        programs.bandwidth(workspace, report, &bandwidth)?;
    }
    if many {
        programs.alltoall(workspace, report, &alltoall)?;
    }
    for ((case, ranks), _) in allreduce
        .iter()
        .zip(ALLREDUCE_RANKS)
        .zip(small)
        .filter(|(_, wanted)| *wanted)
    {
        programs.in_one_way_times(workspace, report, case, ranks, "allreduce")?;
    }
    for (case, _) in (ONE_SIDED.iter().zip(one_sided)).filter(|(_, wanted)| *wanted) {
        programs.in_one_way_times(workspace, report, case, 2, case)?;
    }
    Ok(())
}

/// What is measured, compiled.
struct Programs {
    folder: PathBuf,
}

impl Programs {
    fn compile(workspace: &Workspace) -> Result<Self> {
        let folder = workspace.target().join(CLUSTER);
        fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        let hello = folder.join("hello.c");
        fs::write(&hello, HELLO).with_context(|| format!("writing {}", hello.display()))?;
        let times = workspace.root().join("tests/mpi/times.c");
        for (source, name) in [(&hello, "hello"), (&times, "times")] {
            let mut command = Command::new(mpi::prefix(workspace).join("bin/mpicc"));
            command.args(["-O2", "-Wall", "-o"]).arg(folder.join(name));
            command.arg(source);
            command.arg("-I").arg(workspace.outputs().join("include"));
            command.arg("-L").arg(workspace.outputs().join("lib"));
            output_of(command.arg("-lhearth"))?;
        }
        Ok(Self { folder })
    }

    /// Runs `times` with so many ranks; the two figures that it prints.
    fn times(
        &self,
        cluster: &Cluster,
        ranks: usize,
        arguments: &[&str],
        names: [&str; 2],
    ) -> Result<[f64; 2]> {
        let program = self.folder.join("times").to_string_lossy().into_owned();
        let ranks = ranks.to_string();
        let mut command = vec!["run", "-n", &ranks, &program];
        command.extend(arguments);
        let said = cluster.run(&command)?;
        let figure = |name: &str| -> Result<f64> {
            let mut words = said.split_whitespace();
            words
                .find_map(|word| word.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
                .with_context(|| format!("times printed no {name}: {said}"))
        };
        Ok([figure(names[0])?, figure(names[1])?])
    }

    fn message(&self, workspace: &Workspace, report: &mut Report) -> Result<()> {
        report.progress("2 nodes under -icount");
        let options = ["--direct", "--memory", "192M", "--icount=0"];
        let cluster = Cluster::up(workspace, CLUSTER, 2, &options)?;
        let [mpi, own] = self.times(&cluster, 2, &["message", MESSAGES], ["mpi", "own"])?;
        let [mpi_user, own_user] = ["mpi", "own"].map(|of| self.user_instructions(&cluster, of));
        let unit = "instructions";
        let goal = Goal::AtMost(MESSAGE_MOST);
        let over_own_user = mpi_user? - own_user?;
        report.row(Row::goal(
            "message",
            "over_own_user",
            over_own_user,
            unit,
            goal,
        ));
        report.row(Row::context("message", "over_own", mpi - own, unit));
        report.row(Row::context("message", "mpi", mpi, unit));
        report.row(Row::context("message", "own", own, unit));
        cluster.down()
    }

    /// Instructions of rank 0 in ring 3 for each message of MPI or of the library, and of all that
    /// it does beside them.
    fn user_instructions(&self, cluster: &Cluster, of: &str) -> Result<f64> {
        let report = self.folder.join("report.json");
        let option = format!("--report={}", report.display());
        let program = self.folder.join("times").to_string_lossy().into_owned();
        let what = format!("message-{of}");
        cluster.run(&["run", "-n", "2", &option, &program, &what, MESSAGES])?;
        let report: Value = serde_json::from_str(&fs::read_to_string(&report)?)?;
        let ms = report["ranks"][0]["user_ms"].as_f64();
        let ms = ms.context("the report has no user_ms")?;
        Ok(ms * INSTRUCTIONS_A_MS / MESSAGES.parse::<f64>()?)
    }

    fn hello(&self, workspace: &Workspace, report: &mut Report) -> Result<()> {
        let program = self.folder.join("hello");
        let bytes = fs::metadata(&program)?.len() as f64;
        let goal = Goal::AtMost(HELLO_MOST);
        report.row(Row::goal("hello", "file_bytes", bytes, "bytes", goal));
        report.progress("2 nodes");
        let options = ["--direct", "--memory", "192M"];
        let cluster = Cluster::up(workspace, CLUSTER, 2, &options)?;
        self.launch(&cluster, &program)?;
        let warm = self.launch(&cluster, &program)?;
        ensure!(warm.is_warm, "the second launch found nothing of the first");
        let faults = warm.code_faults + warm.readonly_faults;
        let none = Goal::AtMost(0.0);
        report.row(Row::goal(
            "hello",
            "warm_text_faults",
            faults,
            "faults",
            none,
        ));
        let bytes = warm.program_bytes;
        report.row(Row::goal("hello", "warm_bytes", bytes, "bytes", none));
        cluster.down()
    }

    /// One launch of a program on two nodes.
    fn launch(&self, cluster: &Cluster, program: &Path) -> Result<Figures> {
        let report = self.folder.join("report.json");
        let option = format!("--report={}", report.display());
        let program = program.to_string_lossy();
        cluster.run(&["run", "-n", "2", &option, &program])?;
        Figures::parse(&fs::read_to_string(&report)?)
    }

    fn bandwidth(&self, workspace: &Workspace, report: &mut Report, case: &str) -> Result<()> {
        let bytes = 1 << 20;
        let count = ["bandwidth", &bytes.to_string(), "9"].map(str::to_owned);
        let (figures, idle) = self.limited(workspace, report, 2, &count)?;
        let [mpi, own] = figures;
        let share = own / mpi;
        match links::busy(idle, 1.0 / share) {
            Some(reason) if share < BANDWIDTH_LEAST => {
                report.row(Row::refused(case, "mpi_over_own", "share", reason));
            }
            _ => {
                let goal = Goal::AtLeast(BANDWIDTH_LEAST);
                report.row(Row::goal(case, "mpi_over_own", share, "share", goal));
            }
        }
        let limit = links::limit_s(bytes, BITS_PER_SECOND);
        report.row(Row::context(case, "own_over_link", own / limit, "ratio"));
        Ok(())
    }

    fn alltoall(&self, workspace: &Workspace, report: &mut Report, case: &str) -> Result<()> {
        let words = ["alltoall", "65536", "9"].map(str::to_owned);
        let (figures, idle) = self.limited(workspace, report, ALLTOALL_RANKS, &words)?;
        let [mpi, own] = figures;
        let ratio = mpi / own;
        let busy = links::busy(idle, ratio);
        let most = Some(ALLTOALL_MOST);
        report.row(Row::time(case, "mpi_over_own", ratio, "ratio", most, busy));
        report.row(Row::context(case, "own_seconds", own, "s"));
        Ok(())
    }

    /// Runs `times` behind limited links, once to warm up and once to measure.
    fn limited(
        &self,
        workspace: &Workspace,
        report: &mut Report,
        ranks: usize,
        words: &[String; 3],
    ) -> Result<([f64; 2], f64)> {
        report.progress(&format!("{ranks} nodes, {RATE}"));
        let options = ["--direct", "--memory", "96M", "--rate", RATE];
        let cluster = Cluster::up(workspace, CLUSTER, ranks, &options)?;
        links::check(&cluster, ranks, BITS_PER_SECOND)?;
        let names = ["mpi", "own"];
        let arguments: Vec<&str> = words.iter().map(String::as_str).collect();
        self.times(&cluster, ranks, &[&arguments[..2], &["2"]].concat(), names)?;
        let processors = Processors::now()?;
        let figures = self.times(&cluster, ranks, &arguments, names)?;
        let idle = processors.idle_since()?;
        cluster.down()?;
        Ok((figures, idle))
    }

    fn in_one_way_times(
        &self,
        workspace: &Workspace,
        report: &mut Report,
        case: &str,
        ranks: usize,
        what: &str,
    ) -> Result<()> {
        report.progress(&format!("{ranks} nodes"));
        let options = ["--direct", "--memory", "96M"];
        let cluster = Cluster::up(workspace, CLUSTER, ranks, &options)?;
        let names = ["all", "one_way"];
        let [all, one_way] = self.times(&cluster, ranks, &[what, "101"], names)?;
        cluster.down()?;
        // Ranks that share processors take turns: only with a processor each does the time say how
        // many messages follow each other.
        let unit = "one-way times";
        report.row(Row::context(case, "over_one_way", all / one_way, unit));
        report.row(Row::context(case, "one_way_us", one_way * 1e6, "us"));
        Ok(())
    }
}
