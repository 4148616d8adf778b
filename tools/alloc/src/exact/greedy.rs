//! The nested greedy choice: quick, often the best, and sometimes provably so.
//!
//! From the root down: fill the largest switches one after the other, give what remains to the
//! tightest switch that holds it, and go on below that one. Where this meets the bound of every
//! level ([`super::bound`]) and leaves as little behind as those bounds allow, no choice is
//! better and nothing else needs to be looked at.
//!
//! Key function: [`choose`]. Neighbours: [`super`] calls it first; [`super::knapsack`] takes what
//! it saves as the best known so far.
//!
//! Invariant: only for questions in which no point must be taken (`need` 0 everywhere).

use super::tree::Tree;

/// Indices of `count` points, in order.
pub(super) fn choose(tree: &Tree, count: usize) -> Vec<usize> {
    let mut taken = Vec::with_capacity(count);
    fill(tree, tree.below_root(), 0, count, &mut taken);
    taken.sort_unstable();
    taken
}

fn fill(tree: &Tree, mut level: usize, mut index: usize, mut count: usize, taken: &mut Vec<usize>) {
    while count > 0 {
        let switch = &tree.levels[level][index];
        if count == switch.cap {
            return tree.take_all(level, index, taken);
        }
        if level == 0 {
            return taken.extend(switch.points.clone().take(count));
        }
        level -= 1;
        let below = &tree.levels[level];
        let mut children: Vec<usize> = switch.below.clone().collect();
        children.sort_by_key(|&child| std::cmp::Reverse(below[child].cap));
        let mut open = children.as_slice();
        while let Some((&largest, rest)) = open.split_first()
            && below[largest].cap <= count
        {
            tree.take_all(level, largest, taken);
            count -= below[largest].cap;
            open = rest;
        }
        if count == 0 {
            return;
        }
        // The tightest; the first of equals.
        let fits = open.partition_point(|&child| below[child].cap >= count);
        let tightest = below[open[fits - 1]].cap;
        let first = open.partition_point(|&child| below[child].cap > tightest);
        index = open[first];
    }
}
