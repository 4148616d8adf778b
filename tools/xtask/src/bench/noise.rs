//! `bench noise`: what the node takes of the boot core while a program computes, in instructions.
//!
//! The boot core has the network card, the heartbeat and the back end of the overlay; that the
//! other cores have nothing is the scenario `cores-compute-undisturbed`. The program is
//! `tests/programs/detours.c`: it reads the time-stamp counter, which counts instructions
//! (`-icount`), so that what is counted is counted outside of the kernel, and all of it: entries,
//! interrupts, and what the node does for control and overlay at each heartbeat, once a second.
//! An instruction takes several nanoseconds there, so that the node's seconds are about as long as
//! those of its control node, and a heartbeat finds what came in one second.
//!
//! Invariant: the share is of a core that does 10^9 instructions a second, whatever the machine.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::cluster::Cluster;
use super::{Goal, Report, Row};
use crate::build;
use crate::workspace::Workspace;

const CASE: &str = "core-0";
/// An instruction takes 2 to the power of this nanoseconds.
const SHIFT: u32 = 6;
/// Seconds of the node that are counted.
const SECONDS: f64 = 20.0;
/// How long the overlay may take to stand.
const OVERLAY_LIMIT: Duration = Duration::from_secs(60);
/// Instructions a second that shares are of.
const CORE: f64 = 1e9;
/// Most that is taken, in percent: what CNK took of Blue Gene's nodes.
const SHARE_MOST: f64 = 0.006;

/// The case, if it was asked for.
pub fn run(workspace: &Workspace, report: &mut Report) -> Result<()> {
    if !report.wants(CASE) {
        return Ok(());
    }
    build::once(workspace)?;
    report.progress(&format!("{CASE}: a node under -icount, {SECONDS} s"));
    let icount = format!("--icount={SHIFT}");
    let cluster = Cluster::up(workspace, "bench-noise", 1, &["--direct", &icount])?;
    let end = Instant::now() + OVERLAY_LIMIT;
    while cluster.json(&["overlay"])?["attached"] != 1 {
        let waits = Instant::now() < end;
        ensure!(
            waits,
            "the node has no part in the overlay after {OVERLAY_LIMIT:?}"
        );
        std::thread::sleep(Duration::from_millis(200));
    }
    let program = workspace.programs().join("detours");
    let seconds = SECONDS.to_string();
    let began = Instant::now();
    let output = cluster.run(&["run", "-n", "1", &program.to_string_lossy(), "--", &seconds])?;
    let took = began.elapsed().as_secs_f64();
    cluster.down()?;
    let figure = |name: &str| -> Result<f64> {
        let found = output.split_whitespace().find_map(|word| {
            let value = word.strip_prefix(name)?.strip_prefix('=')?;
            value.parse::<f64>().ok()
        });
        found.with_context(|| format!("the program printed no {name}: {output}"))
    };
    let seconds = figure("counts")? / 1e9;
    let instructions = |counts: f64| counts / f64::from(1 << SHIFT);
    let taken = instructions(figure("taken")?) / seconds;
    let share = 100.0 * taken / CORE;
    let goal = Goal::AtMost(SHARE_MOST);
    report.row(Row::goal(CASE, "share", share, "percent", goal));
    report.row(Row::context(CASE, "taken", taken, "instructions/s"));
    let longest = instructions(figure("longest")?);
    report.row(Row::context(CASE, "longest", longest, "instructions"));
    let often = figure("interruptions")? / seconds;
    report.row(Row::context(CASE, "interruptions", often, "1/s"));
    // How many of control's seconds a second of the node took, which sent it so many messages.
    report.row(Row::context(CASE, "clock_behind", took / seconds, "s / s"));
    Ok(())
}
