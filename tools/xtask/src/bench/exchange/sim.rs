//! The simulator: cases `sim-RANKS/BYTES/SCHEME`, and `+loss1`, `+pauses`, `+late2` for the default; for what it is compared with
//! `+loss1`, at p = 64 and 256 with 64 KB.
//!
//! Neighbours: `netstack-sim` runs them; `cargo xtask sim exchange` is the same by hand.
//!
//! Invariant: every figure comes from a run whose checker found that each block came once and whole.

use std::process::Stdio;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::super::{Goal, Report, Row};
use crate::workspace::Workspace;

/// One datagram in a hundred is lost.
const LOSS: &str = "--loss=1%";
/// Data packets sent to needed, of the default.
const SENT_MOST: f64 = 1.02;
/// What goes wrong: the end of a case's name, the argument, and the goal for blocks of 64 KB and more.
const FAULTS: &[(&str, Option<&str>, f64)] = &[
    ("default", None, 1.05),
    ("default+loss0.1", Some("--loss=0.1%"), 1.10),
    ("default+loss1", Some(LOSS), 1.10),
    ("default+pauses", Some("--pauses"), 1.10),
    ("default+late2", Some("--late=2%"), 1.05),
];
/// What the default is compared with.
const BASELINES: &[&str] = &[
    "at-once",
    "at-once-random",
    "random-delay",
    "priority",
    "volume",
    "published-L=8",
    "published-L=64",
    "barrier",
    "blind",
];
/// Ranks and bytes, from cheap to dear.
const SIZES: &[(u32, &str)] = &[
    (64, "1KB"),
    (256, "1KB"),
    (1024, "1KB"),
    (64, "64KB"),
    (256, "64KB"),
    (64, "1MB"),
    (1024, "64KB"),
    (256, "1MB"),
    (4096, "1KB"),
];
/// Where what the default is compared with runs with losses, too.
const LOSSY: &[(u32, &str)] = &[(64, "64KB"), (256, "64KB")];
/// Small blocks to this many ranks or more have a goal of their own.
const SMALL_FROM: u32 = 256;
/// See [`SMALL_FROM`].
const SMALL_MOST: f64 = 1.4;

/// Every case that was asked for.
pub fn run(workspace: &Workspace, report: &mut Report) -> Result<()> {
    for &(ranks, bytes) in SIZES {
        for &(ending, fault, most) in FAULTS {
            let name = format!("sim-{ranks}/{bytes}/{ending}");
            let goals = Goals {
                ratio: ratio_most(ranks, bytes, most),
                sent: Some(SENT_MOST),
            };
            let arguments: Vec<&str> = fault.into_iter().collect();
            case(workspace, report, &name, (ranks, bytes), &arguments, goals)?;
        }
        for scheme in BASELINES {
            let name = format!("sim-{ranks}/{bytes}/{scheme}");
            let chosen = format!("--scheme={scheme}");
            let all = [&chosen, LOSS];
            case(
                workspace,
                report,
                &name,
                (ranks, bytes),
                &all[..1],
                Goals::default(),
            )?;
            if LOSSY.contains(&(ranks, bytes)) {
                let name = format!("{name}+loss1");
                case(
                    workspace,
                    report,
                    &name,
                    (ranks, bytes),
                    &all,
                    Goals::default(),
                )?;
            }
        }
    }
    Ok(())
}

/// What a case shall come to at most.
#[derive(Clone, Copy, Default)]
struct Goals {
    ratio: Option<f64>,
    sent: Option<f64>,
}

/// The goal of the default, which is `most` for blocks of 64 KB and more.
fn ratio_most(ranks: u32, bytes: &str, most: f64) -> Option<f64> {
    match bytes {
        "1KB" => (ranks >= SMALL_FROM).then_some(SMALL_MOST),
        _ => Some(most),
    }
}

/// One run and its rows.
fn case(
    workspace: &Workspace,
    report: &mut Report,
    name: &str,
    (ranks, bytes): (u32, &str),
    arguments: &[&str],
    goals: Goals,
) -> Result<()> {
    if !report.wants(name) {
        return Ok(());
    }
    report.progress(&format!("{name}: simulating"));
    let mut command = crate::sim::command(workspace);
    command
        .args(["exchange", "--json", "--p", &ranks.to_string()])
        .args(["--bytes", bytes])
        .args(arguments)
        .stderr(Stdio::inherit());
    let output = command.output().context("starting the simulator")?;
    if !output.status.success() {
        bail!("{name}: the simulator found an error");
    }
    let figures: Value =
        serde_json::from_slice(&output.stdout).context("the simulator printed no figures")?;
    let number = |field: &str| {
        let number = figures[field].as_f64();
        number.with_context(|| format!("the simulator gave no {field}"))
    };
    let mut row = |metric: &str, unit: &'static str, value: f64, most: Option<f64>| {
        report.row(match most {
            Some(most) => Row::goal(name, metric, value, unit, Goal::AtMost(most)),
            None => Row::context(name, metric, value, unit),
        });
    };
    row("ratio", "ratio", number("ratio")?, goals.ratio);
    let sent = number("sent_to_needed")?;
    row("sent_to_needed", "ratio", sent, goals.sent);
    row("ratio_median", "ratio", number("ratio_median")?, None);
    row("limit_s", "s", number("limit_s")?, None);
    row("control", "%", number("control_percent")?, None);
    row("port_backlog", "bytes", number("port_backlog_bytes")?, None);
    row("simulation_wall_s", "s", number("wall_s")?, None);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_blocks_have_their_goal_with_faults_too() {
        for (_, _, most) in FAULTS {
            assert_eq!(ratio_most(64, "1KB", *most), None);
            assert_eq!(ratio_most(256, "1KB", *most), Some(1.4));
            assert_eq!(ratio_most(64, "64KB", *most), Some(*most));
        }
    }
}
