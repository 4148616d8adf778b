//! Which leaf of the tree each back end attaches to: the same host first, then the least loaded.
//!
//! Source: the overlay method, attachment.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec;
use alloc::vec::Vec;

/// Who attaches where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attachment {
    /// Back ends of a leaf at most, unless there are no leaves: `back ends div leaves`, and one
    /// more for a remainder.
    pub fan_out: u32,
    /// The leaf of each back end, by index.
    pub leaf_of: Vec<u32>,
    /// Back ends of each leaf.
    pub loads: Vec<u32>,
    /// Back ends whose leaf is on their own host.
    pub local: u32,
}

/// Attaches back ends to leaves, both given by the number of their host. Every back end finds a
/// place; without leaves `leaf_of` is empty (they all attach to the front end).
pub fn attach(back_ends: &[u32], leaves: &[u32]) -> Attachment {
    let mut result = Attachment {
        loads: vec![0; leaves.len()],
        ..Attachment::default()
    };
    if leaves.is_empty() {
        return result;
    }
    const NOWHERE: u32 = u32::MAX;
    result.fan_out = back_ends.len().div_ceil(leaves.len()) as u32;
    result.leaf_of = vec![NOWHERE; back_ends.len()];
    let mut on_host: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (leaf, host) in leaves.iter().enumerate() {
        on_host.entry(*host).or_default().push(leaf as u32);
    }
    for (index, host) in back_ends.iter().enumerate() {
        let local = on_host.get(host).into_iter().flatten();
        let least = local.min_by_key(|leaf| (result.loads[**leaf as usize], **leaf));
        if let Some(&leaf) = least
            && result.loads[leaf as usize] < result.fan_out
        {
            result.loads[leaf as usize] += 1;
            result.leaf_of[index] = leaf;
            result.local += 1;
        }
    }
    let mut queue: BTreeSet<(u32, u32)> = (0..)
        .zip(&result.loads)
        .map(|(leaf, load)| (*load, leaf))
        .collect();
    for place in result.leaf_of.iter_mut().filter(|leaf| **leaf == NOWHERE) {
        let (load, leaf) = queue.pop_first().expect("there are leaves");
        queue.insert((load + 1, leaf));
        result.loads[leaf as usize] += 1;
        *place = leaf;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// As many back ends on each host as the list says.
    fn hosts(counts: &[u32]) -> Vec<u32> {
        let each = |(host, count): (u32, &u32)| vec![host; *count as usize];
        (1..).zip(counts).flat_map(each).collect()
    }

    #[test]
    fn the_published_vector() {
        let placed = attach(&hosts(&[12, 1, 5, 0, 2]), &[2, 2, 4, 4, 4, 5]);
        assert_eq!(placed.fan_out, 4);
        assert_eq!(placed.loads, [4, 4, 3, 3, 3, 3]);
        assert_eq!(placed.local, 3, "one on host 2, two on host 5");
    }

    #[test]
    fn without_leaves_nobody_attaches_to_one() {
        assert_eq!(attach(&[1, 2], &[]).leaf_of, [0_u32; 0]);
        assert_eq!(attach(&[], &[1, 2]).loads, [0, 0]);
    }

    proptest! {
        #[test]
        fn every_back_end_finds_a_place(
            back_ends in proptest::collection::vec(0_u32..20, 0..100),
            leaves in proptest::collection::vec(0_u32..20, 1..30),
        ) {
            let placed = attach(&back_ends, &leaves);
            prop_assert_eq!(placed.leaf_of.len(), back_ends.len());
            prop_assert_eq!(placed.loads.iter().sum::<u32>() as usize, back_ends.len());
            prop_assert!(placed.loads.iter().all(|load| *load <= placed.fan_out));
            let local = back_ends.iter().zip(&placed.leaf_of)
                .filter(|(host, leaf)| leaves[**leaf as usize] == **host).count();
            prop_assert!(local >= placed.local as usize);
        }
    }
}
