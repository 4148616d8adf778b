//! The tree knapsack: the best choice, whatever it takes.
//!
//! The best choice of `j` points below a switch consists of best choices below its children, for
//! one of the ways to split `j`. A table holds what the best choices of 0, 1, 2, ... points are
//! worth; the tables of the children of a switch are merged in pairs, pairs of pairs, and so on.
//!
//! Asked from the root down, answered from the leaves up: a switch is asked only about counts
//! that can be part of the answer. These are
//! 1. not more than wanted, nor fewer than the rest leaves over;
//! 2. of a value that, with the bound for everything else ([`super::bound`]), comes up to a
//!    *threshold*. At a switch with thousands of free points little is left of the middle: it is
//!    used hardly at all, or nearly full, or is the one that takes what remains.
//!
//! Where warm nodes count against hops, the bound is the concave one ([`super::concave`]): each
//! part is asked with what all outside of it is worth at most for each count.
//!
//! The threshold is what a known choice is worth. So some choice comes up to it, and the best of
//! these is the best of all, for what was left out does not reach it.
//!
//! Tables are kept, and how a count is split is found again at the end by trying: that is done
//! once for each merge on the way, and saves writing it down for every count.
//!
//! Key type: [`Knapsack`]. Neighbours: [`super::closed`] for parts of the tree that need no
//! merging; [`super::leaf_pairs`] for what is just above the leaf switches.
//!
//! Invariant: every table asked for a count that it can give has the best value for it, unless
//! that is below the threshold.

use super::bound::{Bounds, LevelBound, NEVER};
use super::closed::{self, Leaves};
use super::concave::{self, Beside, Envelopes};
use super::leaf_pairs;
use super::ranges::Ranges;
use super::tree::Tree;
use super::worth::{Value, Worth};

/// Counts in a table from which it is worth looking for those that cannot reach the threshold.
const PRUNE_FROM: usize = 48;
/// Switches of a level, for each count in a table, up to which the bound of the others is made.
const PRUNE_EFFORT: usize = 16;

/// What was worked out, and what it is worked out from.
pub(super) struct Knapsack<'a, V> {
    tree: &'a Tree,
    worth: Worth<V>,
    bounds: &'a Bounds,
    /// Concave bounds, where these say more.
    envelopes: Option<&'a Envelopes<V>>,
    /// What a known choice is worth; choices worth less are not looked for.
    threshold: V,
    /// Bounds of the weight of a choice.
    weights: Weights,
    tables: Vec<Table<V>>,
}

/// Bounds of the weight of points.
#[derive(Debug, Clone, Copy)]
struct Weights {
    heaviest: i64,
    total: i64,
}

/// The best choices below some children of a switch.
struct Table<V> {
    /// The count of the first value.
    first: usize,
    values: Vec<V>,
    /// Counts whose values are there.
    live: Ranges,
    /// Free points of the switches just above, whose terms are in the values.
    above: Vec<usize>,
    origin: Origin,
}

/// What a part of the tree is asked.
#[derive(Clone)]
struct Asked<V> {
    /// The counts wanted of it.
    counts: Ranges,
    /// What all outside of it is worth at most when it gives so many points, from the first of
    /// these counts to the last; nothing where that is not known.
    outside: Vec<V>,
}

impl<V: Value> Asked<V> {
    /// For each count what all outside is worth at most; only where that is known.
    fn outside(&self) -> impl Iterator<Item = (usize, V)> + '_ {
        let first = self.counts.hull().map_or(0, |(first, _)| first);
        let counts = self.counts.iter().filter(|_| !self.outside.is_empty());
        counts.map(move |count| (count, self.outside[count - first]))
    }
}

/// Where the points of a choice come from.
enum Origin {
    /// A leaf switch: the first so many.
    Leaf(usize),
    /// A switch over leaf switches.
    Pair(usize),
    /// Wholly free switches of a level, filled one after the other.
    Whole(usize, Vec<usize>),
    /// Two other tables.
    Merged(usize, usize),
}

/// Children of a switch that have one table.
#[derive(Clone)]
enum Item {
    One(usize),
    /// Wholly free, with points of this weight.
    Whole(u32, Vec<usize>),
}

impl<'a, V: Value> Knapsack<'a, V> {
    /// The indices of the best points; `threshold` is what some choice is worth.
    ///
    /// # Panics
    /// When every choice is worth less than the threshold.
    pub fn best(
        tree: &'a Tree,
        worth: Worth<V>,
        bounds: &'a Bounds,
        envelopes: Option<&'a Envelopes<V>>,
        threshold: V,
    ) -> Vec<usize> {
        let heaviest = tree.points.iter().map(|point| point.weight).max();
        let mut knapsack = Knapsack {
            tree,
            worth,
            bounds,
            envelopes,
            threshold,
            weights: Weights {
                heaviest: heaviest.unwrap_or(0).into(),
                total: tree.root().weight as i64,
            },
            tables: Vec::new(),
        };
        let count = bounds.count as usize;
        let asked = Asked {
            counts: Ranges::single(count),
            outside: envelopes.map(|_| V::of(0)).into_iter().collect(),
        };
        let root = knapsack.switch(tree.below_root(), 0, &asked);
        let value = knapsack.tables[root].get(count);
        assert!(value >= Some(threshold), "a known choice is worth as much");
        let mut taken = Vec::with_capacity(count);
        knapsack.collect(root, count, &mut taken);
        taken.sort_unstable();
        taken
    }

    fn push(&mut self, table: Table<V>) -> usize {
        self.tables.push(table);
        self.tables.len() - 1
    }

    /// A table whose values are computed one by one.
    fn tabulate(
        &mut self,
        wanted: &Ranges,
        origin: Origin,
        mut value: impl FnMut(usize) -> V,
    ) -> usize {
        let Some((first, last)) = wanted.hull() else {
            return self.empty();
        };
        let mut values = vec![V::DEAD; last - first + 1];
        for count in wanted.iter() {
            values[count - first] = value(count);
        }
        self.push(Table::new(first, values, wanted, origin))
    }

    fn empty(&mut self) -> usize {
        self.push(Table::new(
            0,
            Vec::new(),
            &Ranges::default(),
            Origin::Merged(0, 0),
        ))
    }

    /// The table of a switch, with its own term unless it is the root.
    fn switch(&mut self, level: usize, index: usize, asked: &Asked<V>) -> usize {
        let (tree, worth, wanted) = (self.tree, self.worth, &asked.counts);
        let switch = &tree.levels[level][index];
        if level == 0 {
            let mut weights = vec![0_i128];
            for point in &tree.points[switch.points.clone()] {
                weights.push(weights[weights.len() - 1] + i128::from(point.weight));
            }
            let value = |count: usize| {
                worth.of_switch(count, switch.free()) + worth.weight * V::of(weights[count])
            };
            return self.tabulate(wanted, Origin::Leaf(index), value);
        }
        let is_root = level == tree.below_root();
        let table = if level == 1 && leaf_pairs::is_closed(tree, switch, &worth) {
            let leaves = Leaves::new(tree, switch);
            let value = |count| leaves.value(&worth, count);
            self.tabulate(wanted, Origin::Pair(index), value)
        } else if level == 1 && !is_root && switch.cap <= leaf_pairs::CAP_MAX {
            let (first, values) = leaf_pairs::values(tree, switch, &worth, wanted);
            let table = Table::new(first, values, wanted, Origin::Pair(index));
            self.push(table)
        } else {
            let items = self.items(level, index);
            let mut below = asked.clone();
            if !is_root && let Some((first, _)) = wanted.hull() {
                for (place, outside) in below.outside.iter_mut().enumerate() {
                    *outside = *outside + worth.of_switch(first + place, switch.free());
                }
            }
            self.part(level - 1, &items, &below)
        };
        if !is_root {
            self.tables[table].add_switch(&worth, switch.free());
        }
        table
    }

    /// The children of a switch, wholly free ones together.
    fn items(&self, level: usize, index: usize) -> Vec<Item> {
        let below = &self.tree.levels[level - 1];
        let mut items: Vec<Item> = Vec::new();
        for child in self.tree.levels[level][index].below.clone() {
            let weight = below[child].uniform.filter(|_| below[child].is_whole);
            let Some(weight) = weight else {
                items.push(Item::One(child));
                continue;
            };
            let same = items.iter_mut().find_map(|item| match item {
                Item::Whole(w, children) if *w == weight => Some(children),
                _ => None,
            });
            match same {
                Some(children) => children.push(child),
                None => items.push(Item::Whole(weight, vec![child])),
            }
        }
        items
    }

    /// Sum of what the children must and may give.
    fn limits(&self, level: usize, items: &[Item]) -> (usize, usize) {
        let limits = self.limits_of_each(level, items);
        limits.fold((0, 0), |sum, (need, cap)| (sum.0 + need, sum.1 + cap))
    }

    fn limits_of_each<'b>(
        &'b self,
        level: usize,
        items: &'b [Item],
    ) -> impl Iterator<Item = (usize, usize)> + 'b {
        let switches = &self.tree.levels[level];
        items.iter().flat_map(move |item| {
            let children = match item {
                Item::One(child) => std::slice::from_ref(child),
                Item::Whole(_, children) => children.as_slice(),
            };
            let limits = |child: &usize| (switches[*child].need, switches[*child].cap);
            children.iter().map(limits)
        })
    }

    /// The table of some children, which are of `level`.
    fn part(&mut self, level: usize, items: &[Item], asked: &Asked<V>) -> usize {
        let wanted = &asked.counts;
        match items {
            [Item::One(child)] => {
                let child = *child;
                if self.envelopes.is_some() {
                    return self.switch(level, child, asked);
                }
                let asked = Asked {
                    counts: self.promising(level, child, wanted),
                    outside: Vec::new(),
                };
                self.switch(level, child, &asked)
            }
            [Item::Whole(weight, children)] => {
                let (tree, worth, weight) = (self.tree, self.worth, *weight);
                let value = |count| closed::whole(tree, &worth, level, weight, count);
                self.tabulate(wanted, Origin::Whole(level, children.clone()), value)
            }
            _ => {
                let (some, others) = items.split_at(items.len() / 2);
                let ((need_a, cap_a), (need_b, cap_b)) =
                    (self.limits(level, some), self.limits(level, others));
                let of_a = wanted.minus(&[(need_b, cap_b)], need_a, cap_a);
                let of_a = self.asked(level, some, of_a, asked, |knapsack, most| {
                    (0, knapsack.most(level, others, most))
                });
                let a = self.part(level, some, &of_a);
                let of_b = wanted.minus(self.tables[a].live.as_slice(), need_b, cap_b);
                let of_b = self.asked(level, others, of_b, asked, |knapsack, _| {
                    let Table {
                        first,
                        values,
                        live,
                        ..
                    } = &knapsack.tables[a];
                    let start = live.hull().map_or(0, |(first, _)| first);
                    (start, concave::over(live, |count| values[count - first]))
                });
                let b = self.part(level, others, &of_b);
                let table = self.merge(a, b, wanted);
                self.prune(table, level, items, asked);
                table
            }
        }
    }

    /// What some items are worth at most, for 0, 1, 2, ... points.
    fn most(&self, level: usize, items: &[Item], most: usize) -> Vec<V> {
        let children = items.iter().flat_map(|item| match item {
            Item::One(child) => std::slice::from_ref(child),
            Item::Whole(_, children) => children.as_slice(),
        });
        let envelopes = self.envelopes.expect("asked only where there are some");
        envelopes.table(level, children.copied(), most)
    }

    /// What some items of a part are asked: of these counts those that can be part of an answer.
    /// `beside` are the first count and the values of a concave bound of the other items.
    fn asked(
        &self,
        level: usize,
        items: &[Item],
        counts: Ranges,
        part: &Asked<V>,
        beside: impl FnOnce(&Self, usize) -> (usize, Vec<V>),
    ) -> Asked<V> {
        let hull = counts.hull().zip(part.counts.hull());
        let Some(((from, to), (_, last))) =
            hull.filter(|((from, to), _)| to - from >= PRUNE_FROM && !part.outside.is_empty())
        else {
            return Asked {
                counts,
                outside: Vec::new(),
            };
        };
        let (first, others) = beside(self, last);
        let beside = Beside {
            part: part.outside().collect(),
            others: &others,
            first,
        };
        let outside = concave::rest(&beside, from, to);
        let most = self.most(level, items, to);
        let counts = counts.filter(|count| {
            let outside = outside[count - from];
            outside.is_live() && most[count] + outside >= self.threshold
        });
        let outside = match counts.hull() {
            Some((first, last)) => outside[first - from..=last - from].to_vec(),
            None => Vec::new(),
        };
        Asked { counts, outside }
    }

    /// The best ways to put counts together from two tables.
    fn merge(&mut self, a: usize, b: usize, wanted: &Ranges) -> usize {
        let Some((first, last)) = wanted.hull() else {
            return self.empty();
        };
        let mut values = vec![V::DEAD; last - first + 1];
        let [short, long] = if self.tables[a].values.len() <= self.tables[b].values.len() {
            [&self.tables[a], &self.tables[b]]
        } else {
            [&self.tables[b], &self.tables[a]]
        };
        for of_short in short.live.iter() {
            let worth = short.values[of_short - short.first];
            for &(long_first, long_last) in long.live.as_slice() {
                for &(out_first, out_last) in wanted.as_slice() {
                    // Counts of the long table that lead into this range.
                    let from = out_first.saturating_sub(of_short).max(long_first);
                    let to = long_last.min(match out_last.checked_sub(of_short) {
                        Some(to) => to,
                        None => continue,
                    });
                    if from > to {
                        continue;
                    }
                    let others = &long.values[from - long.first..=to - long.first];
                    let start = from + of_short - first;
                    let sums = &mut values[start..start + others.len()];
                    for (sum, other) in sums.iter_mut().zip(others) {
                        *sum = (*sum).max(worth + *other);
                    }
                }
            }
        }
        let table = Table::new(first, values, wanted, Origin::Merged(a, b));
        self.push(table)
    }

    /// Of these counts of a switch, those for which the bound comes up to the threshold.
    fn promising(&self, level: usize, index: usize, wanted: &Ranges) -> Ranges {
        let switch = &self.tree.levels[level][index];
        let Some((_, most)) = wanted.hull() else {
            return wanted.clone();
        };
        if switch.cap < PRUNE_FROM {
            return wanted.clone();
        }
        let below: Vec<Vec<i64>> = (0..level)
            .map(|lower| {
                let switches = self.tree.descendants(level, index, lower);
                let switches = self.tree.levels[lower][switches].iter();
                LevelBound::new(switches.map(|switch| (switch.need, switch.cap))).table(most)
            })
            .collect();
        let here = &self.bounds.levels[level];
        let limits = (switch.need as i64, switch.cap as i64);
        let count = self.bounds.count as usize;
        wanted.filter(|taken| {
            let rest = count - taken;
            let others = here.most_without(limits, rest as i64).unwrap_or(NEVER);
            let mut together = (taken * taken.saturating_sub(1)) as i64 + others;
            for (lower, below) in below.iter().enumerate() {
                together += self.both(lower, below[taken], rest);
            }
            together += self.levels_above(level);
            self.bound(together, taken, switch.weight as i64) >= self.threshold
        })
    }

    /// The bound of a lower level, of which a part saves at most so much.
    fn both(&self, lower: usize, part: i64, rest: usize) -> i64 {
        let table = &self.bounds.tables[lower];
        let all = table[self.bounds.count as usize];
        // What must be taken elsewhere is in the bound of all; it cannot be divided.
        if self.tree.root().need > 0 {
            return all;
        }
        all.min(part + table[rest])
    }

    fn levels_above(&self, level: usize) -> i64 {
        let above = self.bounds.tables.iter().skip(level + 1);
        above.map(|table| table[self.bounds.count as usize]).sum()
    }

    /// What a choice is worth at most that saves `together` and takes so many points from a part
    /// with this weight.
    fn bound(&self, together: i64, taken: usize, weight: i64) -> V {
        let Weights { heaviest, total } = self.weights;
        let rest = self.bounds.count - taken as i64;
        let here = weight.min(heaviest * taken as i64);
        let weight = here + (total - weight).min(heaviest * rest);
        self.worth.together * V::of(together.into()) + self.worth.weight * V::of(weight.into())
    }

    /// Leaves out of a table what cannot reach the threshold.
    fn prune(&mut self, table: usize, level: usize, items: &[Item], asked: &Asked<V>) {
        if self.envelopes.is_some() {
            let Table {
                first,
                values,
                live,
                ..
            } = &mut self.tables[table];
            let mut outside = asked.outside().peekable();
            if outside.peek().is_some() {
                *live = live.filter(|count| {
                    let (_, outside) = outside
                        .find(|(wanted, _)| *wanted == count)
                        .expect("what is there was wanted");
                    values[count - *first] + outside >= self.threshold
                });
            }
            return;
        }
        let size = self.tables[table].values.len();
        let here = &self.bounds.levels[level];
        if size < PRUNE_FROM || self.tree.levels[level].len() > PRUNE_EFFORT * size {
            return;
        }
        let out = self.limits_of_each(level, items);
        let others = here.without(out.map(|(need, cap)| (need as i64, cap as i64)).collect());
        let others = others.table(self.bounds.count as usize);
        let above = self.levels_above(level);
        let Weights { heaviest, total } = self.weights;
        let found = &self.tables[table];
        let live = found.live.filter(|taken| {
            let rest = self.bounds.count as usize - taken;
            let mut together = others[rest] + above;
            for lower in 0..level {
                together += self.both(lower, 0, rest);
            }
            let weight = total.min(heaviest * rest as i64);
            let bound = self.worth.together * V::of(together.into())
                + self.worth.weight * V::of(weight.into());
            found.values[taken - found.first] + bound >= self.threshold
        });
        self.tables[table].live = live;
    }

    /// Appends the points of the best choice of `count`.
    fn collect(&self, table: usize, count: usize, taken: &mut Vec<usize>) {
        let tree = self.tree;
        let mut open = vec![(table, count)];
        while let Some((table, count)) = open.pop() {
            let found = &self.tables[table];
            match &found.origin {
                Origin::Leaf(index) => {
                    taken.extend(tree.levels[0][*index].points.clone().take(count));
                }
                Origin::Pair(index) => {
                    leaf_pairs::take(tree, &tree.levels[1][*index], &self.worth, count, taken);
                }
                Origin::Whole(level, children) => {
                    let mut rest = count;
                    for &child in children {
                        let points = tree.levels[*level][child].points.clone();
                        let here = points.len().min(rest);
                        taken.extend(points.take(here));
                        rest -= here;
                    }
                }
                Origin::Merged(a, b) => {
                    let of_a = self.split(found, &self.tables[*a], &self.tables[*b], count);
                    open.push((*a, of_a));
                    open.push((*b, count - of_a));
                }
            }
        }
    }

    /// How many of `count` come from `a`: of the ways that are best, the one with the most from
    /// there, where the numbers are lower.
    fn split(&self, found: &Table<V>, a: &Table<V>, b: &Table<V>, count: usize) -> usize {
        let mut value = found.values[count - found.first];
        for &free in &found.above {
            value = value - self.worth.of_switch(count, free);
        }
        let gives = |of_a: &usize| {
            let of_b = count.checked_sub(*of_a).and_then(|of_b| b.get(of_b));
            let of_a = a.values[*of_a - a.first];
            of_b.is_some_and(|of_b| of_a + of_b == value)
        };
        let splits: Vec<usize> = a.live.iter().filter(gives).collect();
        *splits.last().expect("the value came from some split")
    }
}

impl<V: Value> Table<V> {
    fn new(first: usize, values: Vec<V>, wanted: &Ranges, origin: Origin) -> Self {
        let live = wanted.filter(|count| values[count - first].is_live());
        Table {
            first,
            values,
            live,
            above: Vec::new(),
            origin,
        }
    }

    fn get(&self, count: usize) -> Option<V> {
        let is_in = |&(first, last): &(usize, usize)| (first..=last).contains(&count);
        let is_live = self.live.as_slice().iter().any(is_in);
        is_live.then(|| self.values[count - self.first])
    }

    /// Adds the term of the switch above all of this.
    fn add_switch(&mut self, worth: &Worth<V>, free: usize) {
        for count in self.live.iter() {
            let value = &mut self.values[count - self.first];
            *value = *value + worth.of_switch(count, free);
        }
        self.above.push(free);
    }
}
