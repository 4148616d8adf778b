//! The sending end of blocks: which packets were asked for and wait to be sent.
//!
//! The block with the lowest priority number goes first, so that all ranks work on the earliest
//! round. A block is sent unasked by granting it here.
//!
//! Invariant: at most one entry for each receiver and block; a packet that is asked for twice
//! before it is sent is sent once.

use alloc::collections::BTreeMap;
use core::ops::Range;

use super::PACKET;
use super::message::{BlockId, Data, Pull, packet_bytes, packets};
use crate::ids::Rank;

/// Packets that are known one by one.
pub(super) const SPAN: u32 = 128;

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
    /// The receiver is told when nothing of this is left: number of its pull.
    tell: Option<u16>,
}

/// Data to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Train {
    /// To whom.
    pub to: Rank,
    /// What.
    pub data: Data,
    /// This is all that waits of the block, and its receiver may have all of it now.
    pub ended: bool,
    /// The receiver wants to be told now that all is sent that it asked for: number of its pull.
    pub tell: Option<u16>,
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

    /// The receiver asks for packets of a block of so many bytes. Gives the number of its pull when
    /// it is to be told at once that nothing of the block waits.
    pub(super) fn pull(&mut self, key: Key, bytes: u64, pull: Pull) -> Option<u16> {
        let Pull { serial, first, .. } = pull;
        let left = packets(bytes).saturating_sub(first);
        let mut asked = match left {
            0..64 => u128::from(pull.packets) & ((1 << left) - 1),
            _ => u128::from(pull.packets),
        };
        if let Some(grant) = self.waiting.get(&key) {
            // What goes unasked in any case.
            asked &= !span(first, &grant.run);
        }
        if asked == 0 {
            let grant = self.waiting.get_mut(&key).filter(|_| pull.tell);
            return match grant {
                Some(grant) => {
                    grant.tell = Some(serial);
                    None
                }
                None => pull.tell.then_some(serial),
            };
        }
        let grant = self.waiting.entry(key).or_default();
        grant.bytes = bytes;
        if pull.tell {
            grant.tell = Some(serial);
        }
        // What is sent makes room at the end.
        let sent = grant.mask.trailing_zeros() % SPAN;
        grant.mask >>= sent;
        grant.base += sent;
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
        None
    }

    /// Something of a block waits.
    pub(super) fn has(&self, key: Key) -> bool {
        self.waiting.contains_key(&key)
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
        let (first, mask) = match grant.mask {
            _ if runs => {
                let count = (grant.run.end - grant.run.start).min(most).min(64);
                (grant.run.start, u64::MAX >> (64 - count))
            }
            mask => {
                let first = mask.trailing_zeros();
                (grant.base + first, (mask >> first) as u64)
            }
        };
        let mask = mask & !without_lowest(mask, most);
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
        let tell = grant.tell.filter(|_| is_empty);
        let ended = is_empty && (data.is_last || tell.is_some());
        if is_empty {
            entry.remove();
        }
        Some(Train {
            to,
            data,
            ended,
            tell,
        })
    }
}

/// The mask without its lowest `count` ones.
fn without_lowest(mut mask: u64, count: u32) -> u64 {
    for _ in 0..count.min(u64::BITS) {
        mask &= mask.wrapping_sub(1);
    }
    mask
}

/// The numbers of a run as bits, `first` being bit 0.
fn span(first: u32, run: &Range<u32>) -> u128 {
    let below = |number: u32| match number.saturating_sub(first) {
        bits @ 0..SPAN => (1 << bits) - 1,
        _ => u128::MAX,
    };
    below(run.end) & !below(run.start)
}

const _: () = assert!(PACKET <= u16::MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: BlockId = BlockId::Exchange(0, 0);

    fn pull(serial: u16, first: u32, packets: u64) -> Pull {
        Pull {
            serial,
            first,
            packets,
            tell: false,
        }
    }

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
        grants.pull(key, bytes, pull(1, 8, 0b1111));
        grants.pull(key, bytes, pull(2, 2, 0b1));
        grants.pull(key, bytes, pull(3, 10, 0b111));
        assert_eq!(sent(&mut grants, 3), [(2, 0b1100_0001), (10, 0b111)]);
        // Beyond the end there is nothing.
        grants.pull(key, bytes, pull(4, 98, 0b1111));
        let train = grants.next(8).unwrap();
        assert_eq!(
            (train.data.packets, train.data.tail),
            (0b11, PACKET as u16 - 5)
        );
        assert_eq!((train.data.is_last, train.ended), (true, true));
        assert_eq!(grants.len(), 0);
    }

    #[test]
    fn what_goes_unasked_goes_once() {
        let mut grants = Grants::default();
        let key = (1, Rank(3), BLOCK);
        let bytes = 100 * PACKET as u64;
        grants.push(key, bytes, 0..8);
        assert_eq!(grants.next(3).unwrap().data.packets, 0b111);
        // Its receiver had not begun when the first came, and asks for all.
        assert_eq!(grants.pull(key, bytes, pull(1, 0, 0xfff)), None);
        let mut left: u64 = 0xfff;
        for (first, packets) in sent(&mut grants, 64) {
            assert_eq!(left & packets << first, packets << first);
            left &= !(packets << first);
        }
        assert_eq!(left, 0);
        grants.push(key, bytes, 20..30);
        assert_eq!(grants.pull(key, bytes, pull(2, 22, 0b11)), None);
        assert_eq!(sent(&mut grants, 64), [(20, 0x3ff)]);
    }

    #[test]
    fn a_block_that_never_runs_dry_is_sent_whole() {
        let mut grants = Grants::default();
        let key = (1, Rank(3), BLOCK);
        let bytes = 1_000 * PACKET as u64;
        grants.pull(key, bytes, pull(1, 0, u64::MAX));
        let mut next = 0;
        for serial in 0..74 {
            grants.pull(
                key,
                bytes,
                pull(serial + 2, 64 + 12 * u32::from(serial), 0xfff),
            );
            for _ in 0..3 {
                let train = grants.next(4).unwrap();
                assert_eq!((train.data.first, train.data.packets), (next, 0b1111));
                next += 4;
            }
        }
    }

    #[test]
    fn who_asks_to_be_told_is_told_after_the_last_packet() {
        let mut grants = Grants::default();
        let key = (1, Rank(3), BLOCK);
        let bytes = 100 * PACKET as u64;
        let tell = |serial, first, packets| Pull {
            tell: true,
            ..pull(serial, first, packets)
        };
        assert_eq!(grants.pull(key, bytes, tell(1, 0, 0b11)), None);
        assert_eq!(grants.pull(key, bytes, pull(2, 5, 0b1)), None);
        let first = grants.next(2).unwrap();
        assert_eq!((first.tell, first.ended), (None, false));
        assert_eq!(grants.pull(key, bytes, tell(3, 0, 0)), None);
        let last = grants.next(2).unwrap();
        assert_eq!((last.tell, last.ended), (Some(3), true));
        // Nothing waits: at once. And what is beyond the end is nothing.
        assert_eq!(grants.pull(key, bytes, tell(4, 0, 0)), Some(4));
        assert_eq!(grants.pull(key, bytes, tell(5, 100, 1)), Some(5));
        assert_eq!(grants.pull(key, bytes, pull(6, 200, 1)), None);
        assert_eq!(grants.len(), 0);
    }

    #[test]
    fn the_lowest_priority_number_goes_first() {
        let mut grants = Grants::default();
        grants.push((5, Rank(1), BLOCK), 3 * PACKET as u64, 0..3);
        grants.pull((4, Rank(2), BLOCK), 9 * PACKET as u64, pull(1, 0, 1));
        assert_eq!(grants.next(8).unwrap().to, Rank(2));
        let train = grants.next(2).unwrap();
        assert_eq!(
            (train.to, train.data.packets, train.ended),
            (Rank(1), 0b11, false)
        );
        assert!(grants.next(2).unwrap().ended);
    }
}
