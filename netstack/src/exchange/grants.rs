//! The sending end of blocks: which packets were asked for and wait to be sent.
//!
//! The block with the lowest priority number goes first, so that all ranks work on the earliest round. A block
//! is sent unasked by granting it here.
//!
//! Invariant: at most one entry for each receiver and block; a packet that is asked for twice before it is
//! sent is sent once.

use alloc::collections::BTreeMap;
use core::ops::Range;

use super::PACKET;
use super::message::{BlockId, Data, packet_bytes, packets};
use crate::ids::Rank;

/// Packets that are known one by one.
const SPAN: u32 = 128;

/// What orders the blocks: priority, receiver, block.
pub(super) type Key = (u32, Rank, BlockId);

#[derive(Clone, Debug, Default)]
struct Grant {
    bytes: u64,
    /// Number of the packet of bit 0.
    base: u32,
    mask: u128,
    /// Packets that go unasked.
    run: Range<u32>,
    serial: u16,
}

/// Data to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Train {
    /// To whom.
    pub to: Rank,
    /// What.
    pub data: Data,
    /// Number of the last pull, if this is all that was asked for and the end of the block is with it.
    pub served: Option<u16>,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Grants {
    waiting: BTreeMap<Key, Grant>,
}

impl Grants {
    /// Blocks that wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// The receiver asks for packets of a block of so many bytes.
    pub(super) fn pull(&mut self, key: Key, bytes: u64, serial: u16, first: u32, asked: u64) {
        let end = packets(bytes);
        if first >= end {
            return;
        }
        let mut asked = u128::from(asked);
        if end - first < 64 {
            asked &= (1 << (end - first)) - 1;
        }
        if asked == 0 {
            return;
        }
        let grant = self.waiting.entry(key).or_default();
        grant.bytes = bytes;
        grant.serial = serial;
        if grant.mask == 0 {
            grant.base = first;
        } else if first < grant.base {
            let by = grant.base - first;
            // What does not fit is asked for again by its receiver.
            grant.mask = grant.mask.checked_shl(by).unwrap_or(0);
            grant.base = first;
        }
        let at = first - grant.base;
        if at >= SPAN {
            grant.mask = asked;
            grant.base = first;
        } else {
            grant.mask |= asked << at;
        }
    }

    /// Packets of a block go unasked.
    pub(super) fn push(&mut self, key: Key, bytes: u64, run: Range<u32>) {
        let grant = self.waiting.entry(key).or_default();
        grant.bytes = bytes;
        grant.run = run.start..run.end.min(packets(bytes));
    }

    /// Nothing of the block goes any more.
    pub(super) fn remove(&mut self, key: Key) {
        self.waiting.remove(&key);
    }

    /// Forgets all blocks that this does not keep.
    pub(super) fn retain(&mut self, keep: impl Fn(Rank, BlockId) -> bool) {
        self.waiting.retain(|&(_, to, block), _| keep(to, block));
    }

    /// Takes the next packets of a block, up to `most`.
    pub(super) fn next(&mut self, most: u32) -> Option<Train> {
        let mut entry = self.waiting.first_entry()?;
        let &(_, to, block) = entry.key();
        let grant = entry.get_mut();
        // What goes unasked goes first, unless something before it is asked for again.
        let runs = !grant.run.is_empty()
            && (grant.mask == 0 || grant.run.start < grant.base + grant.mask.trailing_zeros());
        let (first, mut mask) = match grant.mask {
            _ if runs => {
                let count = (grant.run.end - grant.run.start).min(most).min(64);
                (grant.run.start, u64::MAX >> (64 - count))
            }
            mask => {
                let first = mask.trailing_zeros();
                (grant.base + first, (mask >> first) as u64)
            }
        };
        while mask.count_ones() > most {
            mask &= !(1 << (63 - mask.leading_zeros()));
        }
        if runs {
            grant.run.start += mask.count_ones();
        } else {
            grant.mask &= !(u128::from(mask) << (first - grant.base));
        }
        let last = first + 63 - mask.leading_zeros();
        let data = Data {
            block,
            first,
            packets: mask,
            tail: packet_bytes(grant.bytes, last) as u16,
            is_last: last + 1 == packets(grant.bytes),
        };
        let is_empty = grant.mask == 0 && grant.run.is_empty();
        let served = (is_empty && data.is_last).then_some(grant.serial);
        if is_empty {
            entry.remove();
        }
        Some(Train { to, data, served })
    }
}

const _: () = assert!(PACKET <= u16::MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: BlockId = BlockId::Exchange(0, 0);

    fn sent(grants: &mut Grants, most: u32) -> alloc::vec::Vec<(u32, u64)> {
        core::iter::from_fn(|| grants.next(most))
            .map(|train| (train.data.first, train.data.packets))
            .collect()
    }

    #[test]
    fn packets_go_in_order_and_once() {
        let mut grants = Grants::default();
        let key = (1, Rank(3), BLOCK);
        let bytes = 100 * PACKET as u64 - 5;
        grants.pull(key, bytes, 1, 8, 0b1111);
        grants.pull(key, bytes, 2, 2, 0b1);
        grants.pull(key, bytes, 3, 10, 0b111);
        assert_eq!(sent(&mut grants, 3), [(2, 0b1100_0001), (10, 0b111)]);
        // Beyond the end there is nothing.
        grants.pull(key, bytes, 4, 98, 0b1111);
        let train = grants.next(8).unwrap();
        assert_eq!(
            (train.data.packets, train.data.tail),
            (0b11, PACKET as u16 - 5)
        );
        assert_eq!((train.data.is_last, train.served), (true, Some(4)));
        assert_eq!(grants.len(), 0);
    }

    #[test]
    fn the_lowest_priority_number_goes_first() {
        let mut grants = Grants::default();
        grants.push((5, Rank(1), BLOCK), 3 * PACKET as u64, 0..3);
        grants.pull((4, Rank(2), BLOCK), 9 * PACKET as u64, 0, 0, 1);
        assert_eq!(grants.next(8).unwrap().to, Rank(2));
        let train = grants.next(2).unwrap();
        assert_eq!(
            (train.to, train.data.packets, train.served),
            (Rank(1), 0b11, None)
        );
        assert_eq!(grants.next(2).unwrap().served, Some(0));
    }
}
