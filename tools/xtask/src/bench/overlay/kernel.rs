//! What a communication process costs a kernel: case `kernel/1hz-32`, in instructions.
//!
//! Neighbours: the kernel's test `overlay-cost` measures (`kernel/src/ktest/monitoring.rs`): a
//! communication process with 32 children and its own back end, one stream of 32 metrics once a
//! second, through the kernel's network stack; QEMU's clock counts instructions (`-icount shift=0`:
//! one tick of the time-stamp counter an instruction).
//!
//! Invariant: the figures are those of a test that passed.

use std::process::ExitCode;

use anyhow::{Context, Result, ensure};

use super::super::{Goal, Report};
use super::row;
use crate::build;
use crate::test::kernel;
use crate::workspace::Workspace;

const CASE: &str = "kernel/1hz-32";
const TEST: &str = "overlay-cost";
/// Instructions that a core of a gigahertz and one instruction a cycle does in a second: what a
/// share is of.
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
    // The image may be of an earlier state of the kernel.
    let built = build::run(workspace, &build::Options::kernel_tests())?;
    ensure!(
        built == ExitCode::SUCCESS,
        "the kernel's tests do not build"
    );
    report.progress(&format!("{CASE}: the kernel's test {TEST}"));
    let lines = kernel::console_of(workspace, TEST)?;
    let figure = |name: &str| {
        let found = lines.iter().find_map(|line| figure_of(line, name));
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

/// The figure of a name, of a line with some of them.
fn figure_of(line: &str, name: &str) -> Option<f64> {
    let (_, figures) = line.split_once("overlay-cost ")?;
    let mut words = figures.split_whitespace();
    words.find_map(|word| word.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_of_a_line_is_found() {
        let line = "overlay-cost bytes=44144 full_bytes=499320";
        assert_eq!(figure_of(line, "bytes"), Some(44_144.0));
        assert_eq!(figure_of(line, "full_bytes"), Some(499_320.0));
        assert_eq!(figure_of(line, "full"), None);
        assert_eq!(figure_of("bytes=1", "bytes"), None);
    }
}
