//! `cargo xtask bench broadcast`: one object to many nodes, as a ratio to what one link needs for it once.
//!
//! Neighbours: [`sim`] runs the simulator at scale, [`qemu`] real kernels behind limited links, [`peers`]
//! the hosted endpoint beside other programs that do the same.
//!
//! Invariant: all three divide by the same limit, [`limit_s`]: nothing that a protocol of ours adds is part of it.

mod peers;
mod qemu;
mod sim;

use anyhow::Result;

use super::Report;
use crate::workspace::Workspace;

/// Payload of a full UDP datagram on Ethernet: 1,500 bytes less the headers of IPv4 (20) and UDP (8).
const DATAGRAM_BYTES: u64 = 1_472;
/// What tc charges for a datagram beyond its payload: headers of Ethernet (14), IPv4 (20) and UDP (8).
const HEADER_BYTES: u64 = 42;
/// Most that waits in front of a limited link: the buffer of one port of a small switch.
const PORT_BUFFER_BYTES: u64 = 256_000;
/// What every whole distribution shall need at most, start and end of the command included.
const RATIO_MOST: f64 = 1.20;

/// Every case that was asked for.
pub fn run(workspace: &Workspace, report: &mut Report) -> Result<()> {
    sim::run(workspace, report)?;
    peers::run(workspace, report)?;
    qemu::run(workspace, report)
}

/// Seconds that one link, limited by tc to `bits_per_second`, needs for `bytes` of payload in full datagrams.
fn limit_s(bytes: u64, bits_per_second: u64) -> f64 {
    let charged = bytes + bytes.div_ceil(DATAGRAM_BYTES) * HEADER_BYTES;
    charged as f64 * 8.0 / bits_per_second as f64
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
    fn the_limit_counts_headers_of_full_datagrams_only() {
        // 4,000,000 bytes are 2,718 datagrams.
        assert!((limit_s(4_000_000, 50_000_000) - 4_114_156.0 * 8.0 / 50e6).abs() < 1e-9);
        assert!(limit_s(1_472, 1_000_000) < limit_s(1_473, 1_000_000));
    }

    #[test]
    fn payload_has_the_length_asked_for() {
        assert_eq!(payload(13).len(), 13);
        assert_ne!(payload(16)[..8], payload(16)[8..]);
    }
}
