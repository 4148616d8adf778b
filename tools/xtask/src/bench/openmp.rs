//! `bench openmp`: what teams of OpenMP threads cost beside the same work by one thread, in
//! instructions.
//!
//! Programs are `tests/programs/omp-stream.c` and `omp-matrix.c`, which check their results and
//! time both in one run. The node's clock counts the instructions of all its cores (`-icount`; one
//! host thread has the cores take turns, so that nothing is said of time): what a team needs more
//! than one thread is what making it, waiting for each other and the kernel cost. Threads that wait
//! sleep at once (`OMP_WAIT_POLICY=passive`): how long one would spin is the host's affair.
//! Neighbours: the scenario `cores-compute-undisturbed` counts what interrupts the same programs.

use anyhow::{Context, Result};

use super::cluster::Cluster;
use super::{Goal, Report, Row};
use crate::build;
use crate::workspace::Workspace;

const CASES: [(&str, &str); 2] = [("stream", "omp-stream"), ("matrix", "omp-matrix")];
const CORES: [usize; 3] = [1, 2, 4];
/// An instruction takes 2 to the power of this nanoseconds: 15 of them are a microsecond of the
/// node's clocks, and the node keeps up with its control node.
const SHIFT: u32 = 6;
/// How often one thread and the team take turns.
const TIMES: &str = "5";
/// Most instructions of a team for one of a single thread. The work between two waits is small.
const MOST: f64 = 1.05;

/// All cases that were asked for.
pub fn run(workspace: &Workspace, report: &mut Report) -> Result<()> {
    let wanted = CASES.map(|(case, _)| CORES.map(|cores| report.wants(&name(case, cores))));
    if !wanted.iter().flatten().any(|wanted| *wanted) {
        return Ok(());
    }
    build::once(workspace)?;
    report.progress("a node of 4 cores under -icount");
    let icount = format!("--icount={SHIFT}");
    let options = ["--direct", "--cpus", "4", &icount];
    let cluster = Cluster::up(workspace, "bench-openmp", 1, &options)?;
    for ((case, program), wanted) in CASES.iter().zip(wanted) {
        let program = workspace.programs().join(program);
        let program = program.to_string_lossy();
        for (cores, _) in CORES.iter().zip(wanted).filter(|(_, wanted)| *wanted) {
            let count = cores.to_string();
            let command = ["run", "-n", "1", "-c", &count];
            let waits = ["--env", "OMP_WAIT_POLICY=passive"];
            let program = [&*program, "--", TIMES];
            let output = cluster.run(&[&command[..], &waits, &program].concat())?;
            rows(report, &name(case, *cores), &output)?;
        }
    }
    cluster.down()
}

fn name(case: &str, cores: usize) -> String {
    format!("{case}-{cores}")
}

fn rows(report: &mut Report, case: &str, output: &str) -> Result<()> {
    let figure = |name: &str| -> Result<f64> {
        let found = output.split_whitespace().find_map(|word| {
            let value = word.strip_prefix(name)?.strip_prefix('=')?;
            value.parse::<f64>().ok()
        });
        found.with_context(|| format!("the program printed no {name}: {output}"))
    };
    let (one, all) = (figure("one_us")?, figure("all_us")?);
    let instructions = |us: f64| us * 1000.0 / f64::from(1 << SHIFT);
    report.row(Row::goal(
        case,
        "team_over_one_thread",
        all / one,
        "instructions / instructions",
        Goal::AtMost(MOST),
    ));
    report.row(Row::context(
        case,
        "one_thread",
        instructions(one),
        "instructions",
    ));
    Ok(())
}
