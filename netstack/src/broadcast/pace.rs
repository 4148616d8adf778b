//! How fast a cast is: every wait of it goes by the time that one block takes.
//!
//! Invariant: no time is zero, so that nothing is repeated without a wait.

use crate::time::Micros;

/// The time one block takes on the link: the unit of all waits of a cast.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    nanos_per_block: u64,
}

impl Pace {
    pub(crate) fn new(rate: u64, block_bytes: u64) -> Self {
        let on_wire = block_bytes + block_bytes / 14;
        let nanos = u128::from(on_wire) * 1_000_000_000 / u128::from(rate.max(1));
        Pace {
            nanos_per_block: nanos.clamp(1, 1_000_000_000) as u64,
        }
    }

    /// The time of so many blocks, at least a microsecond.
    pub(crate) fn blocks(self, count: u64) -> Micros {
        Micros((self.nanos_per_block.saturating_mul(count) / 1000).max(1))
    }
}
