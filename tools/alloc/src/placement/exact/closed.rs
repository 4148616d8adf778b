//! Closed forms: parts of the tree for which no table needs to be merged.
//!
//! - Below switches that are wholly free, the best choice fills them one after the other, and so
//!   at every level below: of two that are partly used, moving points from the one to the other
//!   until it is full or empty saves more. One table stands for all such children of a switch.
//! - Below a switch over leaf switches, when only hops and what stays behind count, the largest
//!   leaves are filled one after the other (these counts majorize all others) and the rest goes
//!   to the tightest leaf that holds it. Every best choice has the same counts, so this one leaves
//!   least behind.
//!
//! Key types: [`Leaves`]; key function: [`whole`]. Neighbour: [`super::knapsack`].
//!
//! Invariant: the same value as the merge of all tables would give.

use super::tree::{Switch, Tree};
use super::worth::{Value, Worth};

/// What `count` points below wholly free switches of `level` are worth, the terms of these
/// switches included, when each point weighs `weight`.
pub(super) fn whole<V: Value>(
    tree: &Tree,
    worth: &Worth<V>,
    level: usize,
    weight: u32,
    count: usize,
) -> V {
    let (mut together, mut left) = (0_i64, 0_i64);
    for span in &tree.spans[..=level] {
        let span = *span as i64;
        let (full, rest) = (count as i64 / span, count as i64 % span);
        together += full * span * (span - 1) + rest * (rest - 1).max(0);
        if rest > 0 {
            left += span - rest;
        }
    }
    let weight = i128::from(weight) * count as i128;
    worth.together * V::of(together.into()) + worth.weight * V::of(weight)
        - worth.left * V::of(left.into())
}

/// Leaf switches below one switch, all of whose free points may be taken and weigh the same.
pub(super) struct Leaves {
    /// Free points and index of each, the largest first.
    leaves: Vec<(usize, usize)>,
    /// Points of the first so many, and the hops saved by filling them.
    filled: Vec<(usize, i64)>,
}

/// How a count is spread over [`Leaves`].
struct Spread {
    /// So many of the largest are full.
    full: usize,
    /// The rest, and the place in the order of the leaf that takes it.
    rest: Option<(usize, usize)>,
}

impl Leaves {
    /// The leaf switches below a switch of level 1.
    pub fn new(tree: &Tree, switch: &Switch) -> Self {
        let below = switch.below.clone();
        let mut leaves: Vec<(usize, usize)> = below
            .map(|index| (tree.levels[0][index].cap, index))
            .collect();
        leaves.sort_unstable_by_key(|&(cap, index)| (std::cmp::Reverse(cap), index));
        let mut sum = (0, 0);
        let mut filled = vec![sum];
        filled.extend(leaves.iter().map(|&(cap, _)| {
            sum.0 += cap;
            sum.1 += (cap * (cap - 1)) as i64;
            sum
        }));
        Leaves { leaves, filled }
    }

    fn spread(&self, count: usize) -> Spread {
        let full = self.filled.partition_point(|(points, _)| *points <= count) - 1;
        let rest = count - self.filled[full].0;
        if rest == 0 {
            return Spread { full, rest: None };
        }
        let open = &self.leaves[full..];
        let fits = open.partition_point(|&(cap, _)| cap >= rest);
        let tightest = open[fits - 1].0;
        let first = open.partition_point(|&(cap, _)| cap > tightest);
        Spread {
            full,
            rest: Some((rest, full + first)),
        }
    }

    /// What `count` points are worth, the terms of the leaf switches included.
    pub fn value<V: Value>(&self, worth: &Worth<V>, count: usize) -> V {
        let Spread { full, rest } = self.spread(count);
        let value = worth.together * V::of(self.filled[full].1.into());
        rest.map_or(value, |(rest, leaf)| {
            value + worth.of_switch(rest, self.leaves[leaf].0)
        })
    }

    /// Appends the best `count` points.
    pub fn take(&self, tree: &Tree, count: usize, taken: &mut Vec<usize>) {
        let Spread { full, rest } = self.spread(count);
        for &(_, leaf) in &self.leaves[..full] {
            taken.extend(tree.levels[0][leaf].points.clone());
        }
        if let Some((rest, leaf)) = rest {
            let points = tree.levels[0][self.leaves[leaf].1].points.clone();
            taken.extend(points.take(rest));
        }
    }
}
