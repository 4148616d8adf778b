//! The simulator at scale: cases `sim-NODES/SCHEME`.
//!
//! Neighbours: `netstack-sim` runs them; `cargo xtask sim broadcast` is the same by hand.

use anyhow::Result;

use super::super::Report;
use crate::workspace::Workspace;

/// Every case that was asked for.
pub fn run(_workspace: &Workspace, _report: &mut Report) -> Result<()> {
    Ok(())
}
