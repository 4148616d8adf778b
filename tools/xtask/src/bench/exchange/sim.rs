//! The simulator: cases `sim-RANKS/BYTES/SCHEME`, and the same with faults: `+loss0.1`, `+loss1`,
//! `+pauses`, `+late2`. Where there are more than a few million packets, what the default is
//! compared with meets faults only if such cases are named.
//!
//! Neighbours: `netstack-sim` runs them; `cargo xtask sim exchange` is the same by hand.
//!
//! Invariant: every figure comes from a run whose checker found that each block came once and
//! whole.

use std::process::Stdio;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::super::{Goal, Report, Row};
use crate::workspace::Workspace;

/// Data packets sent to needed, of the default.
const SENT_MOST: f64 = 1.02;
/// What goes wrong: the end of a case's name, the argument, and the goal of the default for blocks
/// of 64 KB and more.
const FAULTS: &[(&str, Option<&str>, f64)] = &[
    ("", None, 1.05),
    ("+loss0.1", Some("--loss=0.1%"), 1.10),
    ("+loss1", Some("--loss=1%"), 1.10),
    ("+pauses", Some("--pauses"), 1.10),
    ("+late2", Some("--late=2%"), 1.05),
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
/// Where a run of anything takes a minute and more.
const DEAR: &[(u32, &str)] = &[(1024, "64KB"), (256, "1MB"), (4096, "1KB")];
/// Small blocks to this many ranks or more have a goal of their own.
const SMALL_FROM: u32 = 256;
/// See [`SMALL_FROM`].
const SMALL_MOST: f64 = 1.4;

/// Every case that was asked for.
pub fn run(workspace: &Workspace, report: &mut Report) -> Result<()> {
    for &size in SIZES {
        let (ranks, bytes) = size;
        for &(ending, fault, most) in FAULTS {
            let name = format!("sim-{ranks}/{bytes}/default{ending}");
            let goals = Goals {
                ratio: ratio_most(ranks, bytes, most),
                sent: Some(SENT_MOST),
            };
            if report.wants(&name) {
                case(workspace, report, &name, size, fault.as_slice(), goals)?;
            }
        }
        for scheme in BASELINES {
            let chosen = format!("--scheme={scheme}");
            for (ending, fault, _) in FAULTS {
                let name = format!("sim-{ranks}/{bytes}/{scheme}{ending}");
                let wants = match fault.is_some() && DEAR.contains(&size) {
                    true => report.wants_named(&name),
                    false => report.wants(&name),
                };
                if wants {
                    let all = [&[chosen.as_str()], fault.as_slice()].concat();
                    case(workspace, report, &name, size, &all, Goals::default())?;
                }
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
