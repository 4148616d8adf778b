//! Real kernels in QEMU behind limited links: cases `qemu-NODES/RATE/SIZE/SCHEME`.

use anyhow::Result;

use super::super::Report;
use crate::workspace::Workspace;

/// Every case that was asked for.
pub fn run(_workspace: &Workspace, _report: &mut Report) -> Result<()> {
    Ok(())
}
