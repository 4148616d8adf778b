//! Concave bounds: what so many points are worth at most, with all that counts together.
//!
//! The bounds of [`super::bound`] look at the hops of each level and at the weights apart. That
//! says little when warm nodes count against hops: the switches that save most hops and the
//! points that weigh most need not be the same. Here each switch has one concave function that
//! is nowhere below what its best choices are worth, made from the leaf switches up:
//! 1. Concave functions of several switches are put together by taking their segments in the
//!    order of their slopes (their sup-convolution).
//! 2. The switch's own term is convex but for what is lost with the first point. So between two
//!    corners of the sum below it the sum with it lies under the chord, and the least concave
//!    function above it has its corners among those of the sum below.
//!
//! Such a function has few corners, and all of them together take less time than one merge of
//! two tables.
//!
//! [`rest`] goes the other way: from what the rest of the tree is worth at most when a part of it
//! gives so many points, to the same for a piece of that part, when the pieces beside it are
//! worth at most a concave function. In a table of sums of any function and a concave one, the
//! column of the best sum never goes back from row to row (Aggarwal, Klawe, Moran, Shor and
//! Wilber, 1987; here by halving the rows).
//!
//! Key types: [`Envelopes`]; key function: [`rest`]. Neighbours: [`super::knapsack`] leaves out
//! what does not come up to its threshold; [`super::greedy`] chooses by the slopes.
//!
//! Invariant: slopes are rounded up, so no function is below what it bounds. Only for questions
//! in which no point must be taken and every one may be.

use std::ops::Range;

use super::ranges::Ranges;
use super::tree::{Switch, Tree};
use super::worth::{Value, Worth};

/// A piece of a concave function: so many points, each worth so much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment<V> {
    pub slope: V,
    pub length: usize,
}

/// The functions of all switches below the root, each 0 at 0 points.
pub(super) struct Envelopes<V> {
    levels: Vec<Level<V>>,
}

/// Those of one level.
struct Level<V> {
    /// Of one switch after the other, the steepest first.
    segments: Vec<Segment<V>>,
    /// Where those of a switch are.
    of: Vec<Range<usize>>,
}

impl<V: Value> Envelopes<V> {
    /// Of a tree of which at most `most` points are taken.
    pub fn new(tree: &Tree, worth: &Worth<V>, most: usize) -> Self {
        let mut envelopes = Envelopes { levels: Vec::new() };
        let mut below = Vec::new();
        for (level, switches) in tree.levels[..tree.below_root()].iter().enumerate() {
            let mut here = Level {
                segments: Vec::new(),
                of: Vec::with_capacity(switches.len()),
            };
            for switch in switches {
                below.clear();
                envelopes.gather_below(tree, worth, (level, switch), &mut below);
                let start = here.segments.len();
                add_switch(worth, switch, most, &below, &mut here.segments);
                here.of.push(start..here.segments.len());
            }
            envelopes.levels.push(here);
        }
        envelopes
    }

    /// The function of one switch.
    pub fn of(&self, level: usize, index: usize) -> &[Segment<V>] {
        let level = &self.levels[level];
        &level.segments[level.of[index].clone()]
    }

    /// The function of some switches of a level together.
    fn gather(
        &self,
        level: usize,
        switches: impl Iterator<Item = usize>,
        segments: &mut Vec<Segment<V>>,
    ) {
        for switch in switches {
            segments.extend_from_slice(self.of(level, switch));
        }
        segments.sort_unstable_by_key(|segment| std::cmp::Reverse(segment.slope));
    }

    /// The values of that for 0, 1, 2, ... up to `most` points, as far as there are so many.
    pub fn table(
        &self,
        level: usize,
        switches: impl Iterator<Item = usize>,
        most: usize,
    ) -> Vec<V> {
        let mut segments = Vec::new();
        self.gather(level, switches, &mut segments);
        table(V::of(0), &segments, most)
    }
}

impl<V: Value> Envelopes<V> {
    /// What 0, 1, 2, ... points of one switch are worth at most, as far as there are so many and up
    /// to `most`, with its own term as it is: not concave, and nearer to the truth.
    pub fn below(
        &self,
        tree: &Tree,
        worth: &Worth<V>,
        level: usize,
        index: usize,
        most: usize,
    ) -> Vec<V> {
        let switch = &tree.levels[level][index];
        let mut segments = Vec::new();
        self.gather_below(tree, worth, (level, switch), &mut segments);
        let mut table = table(V::of(0), &segments, most);
        for (count, value) in table.iter_mut().enumerate() {
            *value = *value + worth.of_switch(count, switch.free());
        }
        table
    }

    /// The function of what is below a switch, together.
    fn gather_below(
        &self,
        tree: &Tree,
        worth: &Worth<V>,
        (level, switch): (usize, &Switch),
        segments: &mut Vec<Segment<V>>,
    ) {
        if level > 0 {
            return self.gather(level - 1, switch.below.clone(), segments);
        }
        let points = &tree.points[switch.points.clone()];
        let runs = points.chunk_by(|a, b| a.weight == b.weight);
        segments.extend(runs.map(|run| Segment {
            slope: worth.weight * V::of(run[0].weight.into()),
            length: run.len(),
        }));
    }
}

/// Appends the function of a switch: the least concave one over that of what is `below` it and
/// its own term.
fn add_switch<V: Value>(
    worth: &Worth<V>,
    switch: &Switch,
    most: usize,
    below: &[Segment<V>],
    segments: &mut Vec<Segment<V>>,
) {
    let start = segments.len();
    let (mut taken, mut of_below, mut before) = (0, V::of(0), V::of(0));
    for segment in below {
        let length = segment.length.min(most - taken);
        if length == 0 {
            break;
        }
        taken += length;
        of_below = of_below + segment.slope * V::of(length as i128);
        let value = of_below + worth.of_switch(taken, switch.free());
        push(segments, start, length, value - before);
        before = value;
    }
}

/// Goes on with a concave function, which begins at `start`: over so many points it must rise by
/// so much in all.
fn push<V: Value>(segments: &mut Vec<Segment<V>>, start: usize, length: usize, rise: V) {
    let (mut length, mut rise) = (length, rise);
    let mut slope = rise.per(length);
    while let Some(before) = segments[start..].last()
        && before.slope <= slope
    {
        rise = rise + before.slope * V::of(before.length as i128);
        length += before.length;
        slope = rise.per(length);
        segments.pop();
    }
    segments.push(Segment { slope, length });
}

/// The values of a concave function, from `value` on, for `most` more points at most.
fn table<V: Value>(mut value: V, segments: &[Segment<V>], most: usize) -> Vec<V> {
    let points: usize = segments.iter().map(|segment| segment.length).sum();
    let mut table = Vec::with_capacity(points.min(most) + 1);
    table.push(value);
    for segment in segments {
        for _ in 0..segment.length.min(most + 1 - table.len()) {
            value = value + segment.slope;
            table.push(value);
        }
    }
    table
}

/// The least concave function (but for rounding up) that is nowhere below `values`, which stand
/// at these counts, at least one: its values from the first of them to the last.
pub(super) fn over<V: Value>(counts: &Ranges, values: impl Fn(usize) -> V) -> Vec<V> {
    let mut counts = counts.iter();
    let first = counts.next().expect("at least one value");
    let start = values(first);
    let mut segments = Vec::new();
    let mut before = (first, start);
    for count in counts {
        let value = values(count);
        push(&mut segments, 0, count - before.0, value - before.1);
        before = (count, value);
    }
    table(start, &segments, before.0 - first)
}

/// What a part and a piece of it are about, for [`rest`].
pub(super) struct Beside<'a, V> {
    /// The counts that the part may give, in order, and what all outside of it is worth at most
    /// then.
    pub part: Vec<(usize, V)>,
    /// What the part is worth at most without the piece, for `first` and more points: concave.
    pub others: &'a [V],
    /// See there.
    pub first: usize,
}

/// What all outside of the piece is worth at most when it gives `from` to `to` points
/// ([`Value::DEAD`] where that cannot be).
pub(super) fn rest<V: Value>(beside: &Beside<V>, from: usize, to: usize) -> Vec<V> {
    let mut found = vec![V::DEAD; to + 1 - from];
    fill(beside, from, &mut found, 0..beside.part.len());
    found
}

fn fill<V: Value>(beside: &Beside<V>, from: usize, found: &mut [V], columns: Range<usize>) {
    if found.is_empty() || columns.is_empty() {
        return;
    }
    let middle = found.len() / 2;
    let lowest = from + middle + beside.first;
    let part = &beside.part[columns.clone()];
    let near = part.partition_point(|(count, _)| *count < lowest);
    let far = part.partition_point(|(count, _)| *count < lowest + beside.others.len());
    let mut best = None;
    for (place, (count, outside)) in part[near..far].iter().enumerate() {
        let sum = *outside + beside.others[count - lowest];
        if best.is_none_or(|(most, _)| sum > most) {
            best = Some((sum, columns.start + near + place));
        }
    }
    let (before, after) = match best {
        Some((sum, place)) => {
            found[middle] = sum;
            (columns.start..place + 1, place..columns.end)
        }
        None => (columns.clone(), columns),
    };
    let (lower, upper) = found.split_at_mut(middle);
    fill(beside, from, lower, before);
    fill(beside, from + middle + 1, &mut upper[1..], after);
}

#[cfg(test)]
mod tests {
    use super::super::Preference;
    use super::super::tree::Point;
    use super::*;

    fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
        let mut state = seed;
        move |limit| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % limit
        }
    }

    /// The best that 0, 1, 2, ... points below a switch are worth, by merging all tables.
    fn best(tree: &Tree, worth: &Worth<i64>, level: usize, index: usize) -> Vec<i64> {
        let switch = &tree.levels[level][index];
        let mut table = vec![0_i64];
        let mut add = |other: &[i64]| {
            let mut sums = vec![i64::DEAD; table.len() + other.len() - 1];
            for (a, worth) in table.iter().enumerate() {
                for (b, other) in other.iter().enumerate() {
                    sums[a + b] = sums[a + b].max(worth + other);
                }
            }
            table = sums;
        };
        for child in switch.below.clone() {
            if level == 0 {
                add(&[0, worth.weight * i64::from(tree.points[child].weight)]);
            } else {
                add(&best(tree, worth, level - 1, child));
            }
        }
        for (count, value) in table.iter_mut().enumerate() {
            *value += worth.of_switch(count, switch.free());
        }
        table
    }

    #[test]
    fn no_bound_is_below_the_best() {
        let mut numbers = numbers(3);
        for round in 0..60 {
            let widths = ["4x3x3x2", "8x4x2", "2x6x3", "1x5x4"][round % 4];
            let topology: crate::topology::Topology = widths.parse().unwrap();
            let mut points = Vec::new();
            for number in 0..topology.nodes() as u32 {
                if numbers(10) < 6 {
                    let weight = numbers(4) as u32;
                    points.push(Point { number, weight });
                }
            }
            if points.is_empty() {
                continue;
            }
            let tree = Tree::new(&topology, &points, None);
            let preference = Preference::Weighted {
                milli: 300 * numbers(9) as u32,
            };
            let (worth, _) = Worth::new(&tree, 1 + points.len() / 2, preference, 1);
            let worth = worth.to::<i64>();
            let envelopes = Envelopes::new(&tree, &worth, points.len());
            for level in 0..tree.below_root() {
                for index in 0..tree.levels[level].len() {
                    let best = best(&tree, &worth, level, index);
                    let bound = envelopes.table(level, index..index + 1, points.len());
                    assert_eq!(best.len(), bound.len());
                    let pairs = best.iter().zip(&bound);
                    assert!(pairs.clone().all(|(best, bound)| best <= bound));
                    // It is the least such function, or nearly: full switches are met.
                    let last = best.len() - 1;
                    let rounding = (best.len() * tree.points.len()) as i64;
                    assert!(bound[last] - best[last] <= rounding, "{round}: {level}");
                    let steps = bound.windows(3);
                    assert!(steps.clone().all(|w| w[1] - w[0] >= w[2] - w[1]));
                }
            }
        }
    }

    #[test]
    fn the_rest_is_the_best_of_all_columns() {
        let mut numbers = numbers(5);
        for _ in 0..400 {
            let mut part = Vec::new();
            for count in 0..40 {
                if numbers(3) > 0 {
                    part.push((count, numbers(900) as i64));
                }
            }
            let first = numbers(5) as usize;
            let mut slope = 80;
            let mut others = vec![numbers(50) as i64];
            for _ in 0..numbers(12) {
                slope -= numbers(30) as i64;
                others.push(others[others.len() - 1] + slope);
            }
            let beside = Beside {
                part,
                others: &others,
                first,
            };
            let (from, to) = (numbers(6) as usize, 6 + numbers(34) as usize);
            let found = rest(&beside, from, to);
            for (row, found) in found.iter().enumerate() {
                let sums = beside.part.iter().filter_map(|(count, outside)| {
                    let place = count.checked_sub(from + row + first)?;
                    Some(outside + others.get(place)?)
                });
                assert_eq!(sums.max().unwrap_or(i64::DEAD), *found);
            }
        }
    }

    #[test]
    fn a_concave_function_over_values() {
        let counts = Ranges::union(vec![(2, 4), (7, 8)], 0);
        let values: [i64; 9] = [0, 0, 5, 5, 6, 0, 0, 17, 18];
        let over = over(&counts, |count| values[count]);
        assert_eq!(over, [5, 8, 11, 14, 17, 20, 21]);
    }
}
