//! `cargo xtask bench broadcast`: one object to many nodes, as a ratio to what one link needs for it once.
//!
//! Neighbours: [`sim`] runs the simulator at scale, [`qemu`] real kernels behind limited links, [`peers`]
//! the hosted endpoint beside other programs that do the same.
//!
//! Invariant: all three divide by the same limit, [`super::links::limit_s`]: nothing that a protocol of ours adds is part of it.

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

/// Bytes that do not compress and do not repeat, the same in every run (xorshift64).
fn payload(bytes: u64) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut all = Vec::with_capacity(bytes as usize + 8);
    while (all.len() as u64) < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        all.extend(state.to_le_bytes());
    }
    all.truncate(bytes as usize);
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
