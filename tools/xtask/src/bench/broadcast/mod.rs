//! `cargo xtask bench broadcast`: one object to many nodes, as a ratio to what one link needs for
//! it once.
//!
//! Neighbours: [`sim`] runs the simulator at scale, [`qemu`] real kernels behind limited links,
//! [`peers`] the hosted endpoint beside other programs that do the same.
//!
//! Invariant: all three divide by the same limit, [`super::links::limit_s`]: nothing that a
//! protocol of ours adds is part of it.

mod peers;
mod qemu;
mod sim;

use anyhow::Result;

use super::Report;
use crate::workspace::Workspace;

/// What every whole distribution shall need at most, start and end of the command included.
const RATIO_MOST: f64 = 1.20;

/// Every case that was asked for.
pub fn run(workspace: &Workspace, report: &mut Report) -> Result<()> {
    sim::run(workspace, report)?;
    peers::run(workspace, report)?;
    qemu::run(workspace, report)
}

/// Bytes that do not compress and do not repeat, the same in every run.
fn payload(bytes: u64) -> Vec<u8> {
    let mut all = vec![0; bytes as usize];
    fastrand::Rng::with_seed(1).fill(&mut all);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_has_the_length_asked_for() {
        assert_eq!(payload(13).len(), 13);
        assert_ne!(payload(16)[..8], payload(16)[8..]);
    }
}
