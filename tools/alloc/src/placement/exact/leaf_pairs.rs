//! Switches just above the leaf switches: their tables without a table for each leaf.
//!
//! Where there is a closed form ([`super::closed`]) it is used. Where points differ in weight or
//! some must be taken, the leaves are merged one after the other in one array; how a count is
//! split over them is found again, when it is known which of these switches the answer uses.
//!
//! Key functions: [`values`], [`take`]. Neighbour: [`super::knapsack`].
//!
//! Invariant: [`take`] gives a choice with the value that [`values`] says.

use super::closed::Leaves;
use super::ranges::Ranges;
use super::tree::{Switch, Tree};
use super::worth::{Value, Worth};

/// Most points below a switch that is handled so; beyond that, merging in pairs takes fewer
/// steps.
pub(super) const CAP_MAX: usize = 1_024;

/// Whether the closed form holds.
pub(super) fn is_closed<V: Value>(tree: &Tree, switch: &Switch, worth: &Worth<V>) -> bool {
    let leaves = &tree.levels[0][switch.below.clone()];
    let has_all = |leaf: &Switch| leaf.need == 0 && leaf.cap == leaf.free();
    worth.weight == V::of(0) && leaves.iter().all(has_all)
}

/// The values for all wanted counts, without the switch's own term: the first count, and the
/// values from there.
pub(super) fn values<V: Value>(
    tree: &Tree,
    switch: &Switch,
    worth: &Worth<V>,
    wanted: &Ranges,
) -> (usize, Vec<V>) {
    let Some((first, last)) = wanted.hull() else {
        return (0, Vec::new());
    };
    let mut sums = vec![V::of(0)];
    for leaf in switch.below.clone() {
        sums = merged(&sums, &leaf_values(tree, leaf, worth), last);
    }
    (first, sums[first..=last].to_vec())
}

/// Appends the best `count` points.
pub(super) fn take<V: Value>(
    tree: &Tree,
    switch: &Switch,
    worth: &Worth<V>,
    mut count: usize,
    taken: &mut Vec<usize>,
) {
    if is_closed(tree, switch, worth) {
        return Leaves::new(tree, switch).take(tree, count, taken);
    }
    // From the last leaf to the first, so that the walk back begins with the first.
    let leaves: Vec<usize> = switch.below.clone().collect();
    let mut steps = vec![vec![V::of(0)]];
    for &leaf in leaves.iter().rev() {
        let sums = &steps[steps.len() - 1];
        steps.push(merged(sums, &leaf_values(tree, leaf, worth), count));
    }
    for &leaf in &leaves {
        let all = steps.pop().expect("one more than leaves");
        let rest = &steps[steps.len() - 1];
        let of_leaf = leaf_values(tree, leaf, worth);
        let gives = |&here: &usize| {
            let rest = count.checked_sub(here).and_then(|left| rest.get(left));
            rest.is_some_and(|rest| *rest + of_leaf[here] == all[count])
        };
        let here = (0..of_leaf.len()).rev().find(gives);
        let here = here.expect("the value came from some split");
        taken.extend(tree.levels[0][leaf].points.clone().take(here));
        count -= here;
    }
}

/// What 0, 1, 2, ... points of a leaf switch are worth.
fn leaf_values<V: Value>(tree: &Tree, leaf: usize, worth: &Worth<V>) -> Vec<V> {
    let switch = &tree.levels[0][leaf];
    let mut weight = 0;
    let points = &tree.points[switch.points.clone()];
    let mut values = vec![V::of(0)];
    for (before, point) in points[..switch.cap].iter().enumerate() {
        weight += i128::from(point.weight);
        values.push(worth.of_switch(before + 1, switch.free()) + worth.weight * V::of(weight));
    }
    values[..switch.need].fill(V::DEAD);
    values
}

/// The best sums of two lists of values, for counts up to `most`.
fn merged<V: Value>(sums: &[V], values: &[V], most: usize) -> Vec<V> {
    let last = (sums.len() + values.len() - 2).min(most);
    let mut merged = vec![V::DEAD; last + 1];
    for (here, value) in values.iter().enumerate().take(last + 1) {
        if value.is_live() {
            for (sum, before) in merged[here..].iter_mut().zip(sums) {
                *sum = (*sum).max(*before + *value);
            }
        }
    }
    for sum in &mut merged {
        if !sum.is_live() {
            *sum = V::DEAD;
        }
    }
    merged
}
