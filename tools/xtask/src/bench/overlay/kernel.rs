//! What a communication process costs a kernel: case `kernel/1hz-32`, in instructions.
//!
//! Neighbours: the kernel's test `overlay-cost` measures (`kernel/src/ktest/monitoring.rs`): a communication process with 32
//! children and its own back end, one stream of 32 metrics once a second, through the kernel's network stack; QEMU's clock
//! counts instructions (`-icount shift=0`: one tick of the time-stamp counter an instruction).
//!
//! Invariant: the figures are those of a test that passed.

use anyhow::{Context, Result};

use super::super::{Goal, Report};
use super::row;
use crate::test::kernel;
use crate::workspace::Workspace;

const CASE: &str = "kernel/1hz-32";
const TEST: &str = "overlay-cost";
/// Instructions that a core of a gigahertz and one instruction a cycle does in a second: what a share is of.
const CORE: f64 = 1e9;
/// A thousandth of that.
const SHARE_MOST: f64 = 0.001;
/// One mebibyte.
const BYTES_MOST: f64 = 1_048_576.0;

/// The case, if it was asked for.
pub fn run(workspace: &Workspace, report: &mut Report) -> Result<()> {
    if !report.wants(CASE) {
        return Ok(());
    }
    report.progress(&format!("{CASE}: the kernel's test {TEST}"));
    let lines = kernel::console_of(workspace, TEST)?;
    let figure = |name: &str| -> Result<f64> {
        let marker = format!("overlay-cost {name}=");
        let found = lines.iter().find_map(|line| {
            let (_, rest) = line.split_once(&marker)?;
            rest.split_whitespace().next()?.parse().ok()
        });
        found.with_context(|| format!("the test printed no {name}"))
    };
    let instructions = figure("instructions_per_s")?;
    let share = row(
        CASE,
        "core_share",
        instructions / CORE,
        "of 10^9 instructions a second",
        Some(Goal::AtMost(SHARE_MOST)),
    );
    report.row(share);
    let bytes = figure("bytes")?;
    report.row(row(
        CASE,
        "bytes",
        bytes,
        "bytes",
        Some(Goal::AtMost(BYTES_MOST)),
    ));
    let unit = "instructions a second";
    report.row(row(CASE, "instructions", instructions, unit, None));
    let back_end = figure("back_end_per_s")?;
    report.row(row(CASE, "back_end_instructions", back_end, unit, None));
    let full = figure("full_bytes")?;
    let most = Some(Goal::AtMost(BYTES_MOST));
    report.row(row(CASE, "bytes_when_flooded", full, "bytes", most));
    Ok(())
}
