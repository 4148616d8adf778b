//! `bench noise`: what the node takes of the boot core while a program computes, in instructions.
//!
//! The boot core has the network card, the heartbeat and the back end of the overlay; that the
//! other cores have nothing is the scenario `cores-compute-undisturbed`. The program is
//! `tests/programs/detours.c`: it reads the time-stamp counter, which counts instructions
//! (`-icount`), so that what is counted is counted outside of the kernel, and all of it: entries,
//! interrupts, and what the node does for control and overlay at each heartbeat, once a second.
//! What the node takes in a second depends on what came in that second, so that its seconds must be
//! as long as those of its control node. An instruction takes so many nanoseconds there that the
//! machine can do more, and QEMU has the node's clock wait for the machine's (`align`).
//!
//! Invariant: the share is of a core that does 10^9 instructions a second, whatever the machine.
//! The node's clock never runs ahead; on a machine that is too busy it falls behind, more comes in
//! each of its seconds, and the share can only be too large.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::cluster::Cluster;
use super::{Report, Row};
use crate::build;
use crate::workspace::Workspace;

const CASE: &str = "core-0";
/// An instruction takes 2 to the power of this nanoseconds: a node does 4 million a second.
const SHIFT: u32 = 8;
/// Seconds of the node that are counted.
const SECONDS: f64 = 20.0;
/// How long the overlay may take to stand.
const OVERLAY_LIMIT: Duration = Duration::from_secs(60);
/// Instructions a second that shares are of.
const CORE: f64 = 1e9;
/// Most that is taken, in percent: what CNK took of Blue Gene's nodes.
const SHARE_MOST: f64 = 0.006;
/// Most of control's seconds that a second of the node may take; on a quiet machine it is one.
const BEHIND_MOST: f64 = 1.1;

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
    let output = cluster.run(&["run", "-n", "1", &program.to_string_lossy(), "--", &seconds])?;
    let behind = behind(&cluster.json(&["job", "1"])?).context("the job has no times")?;
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
    let busy = (behind > BEHIND_MOST)
        .then(|| format!("{share:.4} percent, of {behind:.2} s of messages a second: too busy"));
    let most = Some(SHARE_MOST);
    report.row(Row::time(CASE, "share", share, "percent", most, busy));
    report.row(Row::context(CASE, "taken", taken, "instructions/s"));
    let longest = instructions(figure("longest")?);
    report.row(Row::context(CASE, "longest", longest, "instructions"));
    let often = figure("interruptions")? / seconds;
    report.row(Row::context(CASE, "interruptions", often, "1/s"));
    report.row(Row::context(CASE, "clock_behind", behind, "s / s"));
    Ok(())
}

/// How many of control's seconds a second of the node took, by both clocks' times of a job.
fn behind(job: &Value) -> Option<f64> {
    let control_us = job["ended_unix_us"].as_u64()? - job["started_unix_us"].as_u64()?;
    let node_ms = job["ranks"][0]["wall_ms"].as_f64()?;
    Some(control_us as f64 / 1000.0 / node_ms)
}
