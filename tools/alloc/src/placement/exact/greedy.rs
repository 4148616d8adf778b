//! The nested greedy choice: quick, often the best, and sometimes provably so.
//!
//! From the root down: fill the largest switches one after the other, give what remains to the
//! tightest switch that holds it, and go on below that one. Where this meets the bound of every
//! level ([`super::bound`]) and leaves as little behind as those bounds allow, no choice is
//! better and nothing else needs to be looked at.
//!
//! [`dense`] is the same choice with an eye on warm nodes and on points that must be taken: it
//! fills first the switches that are worth most for each of their points. It proves nothing, but
//! the closer a known choice is to the best, the less has to be looked at.
//!
//! [`steep`] goes by the slopes of the concave bounds ([`super::concave`]), which know that of one
//! switch the warm points alone may be worth taking.
//!
//! Key functions: [`choose`], [`dense`], [`steep`]. Neighbours: [`super`] calls them first;
//! [`super::knapsack`] takes what they are worth as the best known so far.
//!
//! Invariant: [`choose`] is only for questions in which no point must be taken (`need` 0
//! everywhere).

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Range;

use super::concave::{Envelopes, Segment};
use super::tree::{Switch, Tree};
use super::worth::{Value, Worth};

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
        children.sort_by_key(|&child| Reverse(below[child].cap));
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

/// Who takes what is left when no further switch can be filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rest {
    /// The tightest that holds it.
    Tightest,
    /// The one whose points are worth most.
    Densest,
}

/// Indices of `count` points, in order, with all that must be taken.
pub(super) fn dense<V: Value>(
    tree: &Tree,
    worth: &Worth<V>,
    count: usize,
    rest: Rest,
) -> Vec<usize> {
    // All points below a switch can be worth more than any choice of `count` of them: these sums
    // need room.
    let [together, weight, left] = [worth.together, worth.weight, worth.left].map(V::wide);
    let of_switch = |count: usize, free: usize| {
        let saved = (count as i128) * (count as i128 - 1).max(0);
        let left = left * (free - count) as i128;
        together.saturating_mul(saved) - if count == 0 { 0 } else { left }
    };
    let mut gains: Vec<Vec<i128>> = Vec::with_capacity(tree.levels.len());
    for (level, switches) in tree.levels.iter().enumerate() {
        let gain = |switch: &Switch| {
            let free = switch.free();
            let here = of_switch(switch.cap, free).saturating_sub(of_switch(switch.need, free));
            if level == 0 {
                return here.saturating_add(weight.saturating_mul(switch.weight.into()));
            }
            let below = &gains[level - 1][switch.below.clone()];
            below
                .iter()
                .fold(here, |sum, gain| sum.saturating_add(*gain))
        };
        let here = switches.iter().map(gain).collect();
        gains.push(here);
    }
    let mut taken = Vec::with_capacity(count);
    let dense = Dense { tree, gains, rest };
    dense.fill(tree.below_root(), 0, count, &mut taken);
    taken.sort_unstable();
    taken
}

struct Dense<'a> {
    tree: &'a Tree,
    /// By level and switch: what all its points are worth beyond those that must be taken.
    gains: Vec<Vec<i128>>,
    rest: Rest,
}

impl Dense<'_> {
    fn fill(&self, level: usize, index: usize, count: usize, taken: &mut Vec<usize>) {
        let switch = &self.tree.levels[level][index];
        if count == switch.cap {
            return self.tree.take_all(level, index, taken);
        }
        if level == 0 {
            return taken.extend(switch.points.clone().take(count));
        }
        let below = &self.tree.levels[level - 1];
        let room = |child: usize| below[child].cap - below[child].need;
        let density = |child: usize| self.gains[level - 1][child] / room(child) as i128;
        let open = switch.below.clone().filter(|&child| room(child) > 0);
        let mut open: Vec<usize> = open.collect();
        open.sort_by_cached_key(|&child| Reverse(density(child)));
        let mut counts: Vec<usize> = switch
            .below
            .clone()
            .map(|child| below[child].need)
            .collect();
        let mut rest = count - switch.need;
        for (place, &child) in open.iter().enumerate() {
            if room(child) > rest {
                let holds = open[place..].iter().filter(|&&child| room(child) >= rest);
                let child = match self.rest {
                    Rest::Densest => Some(&child),
                    Rest::Tightest => holds.min_by_key(|&&child| room(child)),
                };
                counts[child.expect("the first holds it") - switch.below.start] += rest;
                break;
            }
            counts[child - switch.below.start] += room(child);
            rest -= room(child);
        }
        for (child, count) in switch.below.clone().zip(counts) {
            if count > 0 {
                self.fill(level - 1, child, count, taken);
            }
        }
    }
}

/// Children of a switch that are tried for the points which do not fill a segment.
const PARTLY_MAX: usize = 64;

/// Indices of `count` points, in order: from the root down, the steepest segments first, and one
/// child that takes what is left of whole segments.
pub(super) fn steep<V: Value>(
    tree: &Tree,
    worth: &Worth<V>,
    envelopes: &Envelopes<V>,
    count: usize,
) -> Vec<usize> {
    let steep = Steep {
        tree,
        worth,
        envelopes,
    };
    let mut taken = Vec::with_capacity(count);
    let mut open = vec![(tree.below_root(), 0, count)];
    while let Some((level, index, count)) = open.pop() {
        let switch = &tree.levels[level][index];
        if count == switch.free() || level == 0 {
            taken.extend(switch.points.clone().take(count));
            continue;
        }
        let counts = steep.split(level - 1, switch.below.clone(), count);
        let used = switch.below.clone().zip(counts);
        let used = used.filter(|(_, count)| *count > 0);
        open.extend(used.map(|(child, count)| (level - 1, child, count)));
    }
    taken.sort_unstable();
    taken
}

struct Steep<'a, V> {
    tree: &'a Tree,
    worth: &'a Worth<V>,
    envelopes: &'a Envelopes<V>,
}

impl<V: Value> Steep<'_, V> {
    /// How many points each of these switches of a level gives.
    fn split(&self, level: usize, switches: Range<usize>, count: usize) -> Vec<usize> {
        let mut segments: Vec<(Segment<V>, usize)> = Vec::new();
        for switch in switches.clone() {
            let of_switch = self.envelopes.of(level, switch).iter();
            segments.extend(of_switch.map(|segment| (*segment, switch)));
        }
        // Stable: of one switch the steeper ones come first, of equals the lower numbers.
        segments.sort_by_key(|(segment, _)| Reverse(segment.slope));
        let (mut filled, mut whole) = (0, 0);
        while whole < segments.len() && filled + segments[whole].0.length <= count {
            filled += segments[whole].0.length;
            whole += 1;
        }
        let mut counts = vec![0; switches.len()];
        let mut give = |switch: usize, count: usize| counts[switch - switches.start] += count;
        if filled == count {
            for (segment, switch) in &segments[..whole] {
                give(*switch, segment.length);
            }
            return counts;
        }
        let near = segments[whole..].iter().take(PARTLY_MAX / 2);
        let near = near.chain(segments[..whole].iter().rev().take(PARTLY_MAX / 2));
        let partly: BTreeSet<usize> = near.map(|(_, switch)| *switch).collect();
        let best = partly.into_iter().filter_map(|partly| {
            let (value, others, left) = self.best_with(level, partly, &segments, count)?;
            Some((value, Reverse(partly), others, left))
        });
        let (_, Reverse(partly), others, left) = best.max().expect("the next one holds the rest");
        let of_others = segments.iter().filter(|(_, switch)| *switch != partly);
        for (segment, switch) in of_others.take(others) {
            give(*switch, segment.length);
        }
        give(partly, left);
        counts
    }

    /// With one switch that takes what whole segments of the others leave: about what that is
    /// worth, how many of these segments there are, and what is left.
    fn best_with(
        &self,
        level: usize,
        partly: usize,
        segments: &[(Segment<V>, usize)],
        count: usize,
    ) -> Option<(V, usize, usize)> {
        let alone = self
            .envelopes
            .below(self.tree, self.worth, level, partly, count);
        let mut others = segments.iter().filter(|(_, switch)| *switch != partly);
        let (mut left, mut value, mut whole) = (count, V::of(0), 0);
        let mut best = None;
        loop {
            if let Some(here) = alone.get(left) {
                best = best.max(Some((value + *here, whole, left)));
            }
            match others.next() {
                Some((segment, _)) if segment.length <= left => {
                    left -= segment.length;
                    value = value + segment.slope * V::of(segment.length as i128);
                    whole += 1;
                }
                _ => return best,
            }
        }
    }
}
