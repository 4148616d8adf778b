//! The order in which a rank serves its peers: a row of perfect matchings.
//!
//! Ranks are told by their places in the group that exchanges.
//!
//! In round `k` every rank sends to exactly one rank and receives from exactly one. Plain: `i`
//! sends to `i + k`. With `leaf` ranks on each leaf switch, placed leaf after leaf: round `(b, s)`
//! takes rank `(leaf l, place q)` to `(l + s + q, q + b)`. The places of a leaf aim at different
//! leaves in every round, so that the trunks of the tree carry the same in all rounds, where the
//! plain order crosses them in most rounds with all and in some with none.
//!
//! Source: the linear shift of all-to-all personalized communication. The published rotation with L
//! = p is its barrier form. Neighbour: `alltoall` follows it.
//!
//! Invariant: every ordered pair meets in exactly one round, and a round is a permutation of the
//! ranks.

use alloc::vec::Vec;

/// Rounds of `size` ranks. There are `size` of them; in one of them a rank meets itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    size: u32,
    /// Ranks of a leaf; `size` for the plain order.
    leaf: u32,
}

impl Order {
    /// The plain order, or the one for leaves of `leaf` ranks where these divide `size` (0: not
    /// known).
    pub fn new(size: u32, leaf: u32) -> Self {
        let fits = leaf > 1 && leaf < size && size.is_multiple_of(leaf);
        Order {
            size,
            leaf: if fits { leaf } else { size },
        }
    }

    /// Ranks of a leaf, where this is the order for leaves.
    pub fn leaf(&self) -> Option<u32> {
        (self.leaf != self.size).then_some(self.leaf)
    }

    /// Number of rounds.
    pub fn rounds(&self) -> u32 {
        self.size
    }

    /// Whom the rank at place `me` sends to in a round, by place.
    pub fn target(&self, me: u32, round: u32) -> u32 {
        if self.leaf == self.size {
            return modulo(me, round, self.size);
        }
        let (leaves, (leaf, place)) = (self.size / self.leaf, self.split(me));
        let (across, along) = (round / leaves, round % leaves);
        let to_leaf = modulo(modulo(leaf, along, leaves), place % leaves, leaves);
        to_leaf * self.leaf + modulo(place, across, self.leaf)
    }

    /// Whom the rank at place `me` receives from in a round, by place.
    pub fn source(&self, me: u32, round: u32) -> u32 {
        if self.leaf == self.size {
            return modulo(me, self.size - round, self.size);
        }
        let (leaves, (leaf, place)) = (self.size / self.leaf, self.split(me));
        let (across, along) = (round / leaves, round % leaves);
        let from_place = modulo(place, self.leaf - across, self.leaf);
        let back = modulo(along, from_place % leaves, leaves);
        let from_leaf = modulo(leaf, leaves - back, leaves);
        from_leaf * self.leaf + from_place
    }

    /// The round in which the rank at place `from` sends to the one at `to`.
    pub fn round(&self, from: u32, to: u32) -> u32 {
        if self.leaf == self.size {
            return modulo(to, self.size - from, self.size);
        }
        let leaves = self.size / self.leaf;
        let ((leaf, place), (to_leaf, to_place)) = (self.split(from), self.split(to));
        let across = modulo(to_place, self.leaf - place, self.leaf);
        let along = modulo(
            modulo(to_leaf, leaves - leaf, leaves),
            leaves - place % leaves,
            leaves,
        );
        across * leaves + along
    }

    fn split(&self, place: u32) -> (u32, u32) {
        (place / self.leaf, place % self.leaf)
    }
}

/// How many ranks share each leaf switch, where they are placed leaf after leaf, as many on each:
/// what [`Order::new`] wants to know. `switches`: the leaf switch of each rank. 0 where it is not
/// so, or all are on one.
pub fn ranks_of_a_leaf(switches: &[u32]) -> u32 {
    let mut leaves = switches.chunk_by(|a, b| a == b);
    let Some(first) = leaves.next() else {
        return 0;
    };
    let is_even = switches
        .chunks(first.len())
        .all(|leaf| leaf.len() == first.len() && leaf.iter().all(|switch| *switch == leaf[0]));
    let mut heads: Vec<u32> = switches.iter().step_by(first.len()).copied().collect();
    heads.sort_unstable();
    let is_once = heads.windows(2).all(|pair| pair[0] != pair[1]);
    match is_even && is_once && heads.len() > 1 {
        true => first.len() as u32,
        false => 0,
    }
}

/// `a + b` modulo `n`, both at most `n`.
fn modulo(a: u32, b: u32, n: u32) -> u32 {
    ((u64::from(a) + u64::from(b)) % u64::from(n)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    #[test]
    fn ranks_share_a_leaf_where_they_are_placed_leaf_after_leaf() {
        let cases: [(&[u32], u32); 9] = [
            (&[0, 0, 1, 1], 2),
            (&[3, 3, 3, 0, 0, 0, 1, 1, 1], 3),
            (&[0, 1, 2], 1),
            (&[0, 0, 0], 0),
            (&[0, 0, 1], 0),
            (&[0, 1, 1], 0),
            (&[0, 0, 1, 1, 0, 0], 0),
            (&[0, 1, 0, 1], 0),
            (&[], 0),
        ];
        for (switches, leaf) in cases {
            assert_eq!(ranks_of_a_leaf(switches), leaf, "{switches:?}");
        }
    }

    proptest! {
        #[test]
        fn every_round_is_a_permutation_and_every_pair_meets_once(size in 1u32..90, leaf in 0u32..20) {
            let order = Order::new(size, leaf);
            let mut met = vec![false; (size * size) as usize];
            for round in 0..order.rounds() {
                let mut received = vec![false; size as usize];
                for me in 0..size {
                    let to = order.target(me, round);
                    prop_assert!(!core::mem::replace(&mut received[to as usize], true));
                    prop_assert!(!core::mem::replace(&mut met[(me * size + to) as usize], true));
                    prop_assert_eq!(order.source(to, round), me);
                    prop_assert_eq!(order.round(me, to), round);
                }
            }
        }

        #[test]
        fn leaves_send_the_same_across_in_every_round(leaves in 2u32..12, times in 1u32..4) {
            // Exact where the ranks of a leaf are a multiple of the leaves.
            let leaf = leaves * times;
            let order = Order::new(leaf * leaves, leaf);
            for round in 0..order.rounds() {
                let across = (0..leaf).filter(|&me| order.target(me, round) / leaf != 0);
                prop_assert_eq!(across.count() as u32, leaf - leaf / leaves);
            }
        }
    }
}
