//! `cargo xtask bench overlay`: the monitoring overlay and the store behind it.
//!
//! | case | measured by |
//! |---|---|
//! | `qemu-16/...`, `page/bundle` | [`machines`]: end-to-end scenarios on real kernels, which print what they measure |
//! | `kernel/1hz-32` | [`kernel`]: a test of the kernel's under a clock that counts instructions |
//! | `page/1024x32` | [`page`]: the page in a browser, on an hour in the store |
//! | `sim-16384/...` | [`sim`]: the simulator |
//! | `store/...` | [`store`]: `monitor-bench` of `hearth-monitor`, in CPU time of its own process |
//!
//! Invariant: goals stand here; what measures knows none.

mod kernel;
mod machines;
mod page;
mod sim;
mod store;

use anyhow::Result;

use super::{Goal, Report, Row};
use crate::workspace::Workspace;

/// Every case that was asked for, from cheap to dear.
pub fn run(workspace: &Workspace, report: &mut Report) -> Result<()> {
    kernel::run(workspace, report)?;
    store::run(workspace, report)?;
    page::CASE.run(workspace, report)?;
    sim::run(workspace, report)?;
    machines::run(workspace, report)
}

/// A figure with its goal, if it has one.
fn row(case: &str, metric: &str, value: f64, unit: &'static str, goal: Option<Goal>) -> Row {
    match goal {
        Some(goal) => Row::goal(case, metric, value, unit, goal),
        None => Row::context(case, metric, value, unit),
    }
}
