//! `cargo xtask bench exchange`: a block from every rank to every other, as a ratio to what a link
//! needs for the blocks of one rank.
//!
//! Neighbours: [`sim`] runs the simulator, [`qemu`] runs real kernels behind limited links,
//! [`peers`] the hosted endpoint beside other programs that do the same.
//!
//! Invariant: all divide by (p - 1) blocks in full datagrams: [`limit_s`] as the limiter charges
//! them, the simulator with preamble and gap.

mod peers;
mod qemu;
mod sim;

use anyhow::Result;

use super::{Report, links};
use crate::workspace::Workspace;

/// Every case that was asked for.
pub fn run(workspace: &Workspace, report: &mut Report) -> Result<()> {
    sim::run(workspace, report)?;
    peers::run(workspace, report)?;
    qemu::run(workspace, report)
}

/// Seconds that a link of `bits_per_second` needs for the blocks that one of `ranks` sends.
fn limit_s(ranks: usize, block_bytes: u64, bits_per_second: u64) -> f64 {
    (ranks - 1) as f64 * links::limit_s(block_bytes, bits_per_second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_that_of_the_blocks_that_leave() {
        // 64,000 bytes are 44 datagrams.
        let one = (64_000.0 + 44.0 * 42.0) * 8.0 / 5e6;
        assert!((limit_s(16, 64_000, 5_000_000) - 15.0 * one).abs() < 1e-9);
    }
}
