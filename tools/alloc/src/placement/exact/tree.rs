//! The part of the tree that has something free, with what each switch holds.
//!
//! Points are what is chosen: nodes, or scheduling units. A switch knows how many of its points
//! are free, how many of these may be taken (`cap`) and how many must be (`need`): these differ
//! when warm points come first whatever the hops, for then all points above a certain weight are
//! part of every answer and all below it of none, see [`Tree::new`].
//!
//! Key types: [`Tree`], [`Switch`], [`Point`]. Neighbours: every other module of [`super`].
//!
//! Invariant: points and switches stand in the order of their numbers, so that what is below a
//! switch is one range in the level below; within a leaf switch the heaviest points come first.

use std::ops::Range;

use crate::topology::Topology;

/// Something to choose: a node or a scheduling unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// Its number in the topology.
    pub number: u32,
    /// How many warm nodes it has: 0 or 1 for a node.
    pub weight: u32,
}

/// A switch that has free points.
#[derive(Debug, Clone)]
pub(super) struct Switch {
    /// Its number within its level.
    pub number: u64,
    /// What is directly below it: indices of the level below, of points for a leaf switch.
    pub below: Range<usize>,
    /// All points below it.
    pub points: Range<usize>,
    /// Free points that every answer takes.
    pub need: usize,
    /// Free points that an answer may take.
    pub cap: usize,
    /// Sum of their weights.
    pub weight: u64,
    /// The weight of each point, if all have the same.
    pub uniform: Option<u32>,
    /// Whether all places below it are free, may be taken, and weigh the same.
    pub is_whole: bool,
}

impl Switch {
    /// Free points below it.
    pub fn free(&self) -> usize {
        self.points.len()
    }
}

/// Switches with free points, level by level.
pub(super) struct Tree {
    /// In the order of their numbers, within a leaf switch the heaviest first.
    pub points: Vec<Point>,
    /// From the leaf switches up; the last holds the root alone.
    pub levels: Vec<Vec<Switch>>,
    /// Points below one switch of each level, the root's excepted.
    pub spans: Vec<u64>,
}

impl Tree {
    /// The tree over these points, at least one of them, in the order of their numbers. With
    /// `heaviest_of` an answer must have the heaviest sum of weights that so many points can
    /// have: what is heavier than the lightest of them is needed, what is lighter is left out.
    pub fn new(topology: &Topology, points: &[Point], heaviest_of: Option<usize>) -> Self {
        assert!(!points.is_empty(), "a tree over nothing has no root");
        // Levels with one point below a switch save no hops and leave nothing behind.
        let spans = topology.spans().iter().copied().filter(|&span| span > 1);
        let spans: Vec<u64> = spans.collect();
        let threshold = heaviest_of.map(|count| {
            let mut weights: Vec<u32> = points.iter().map(|point| point.weight).collect();
            weights.sort_unstable_by(|a, b| b.cmp(a));
            weights[count - 1]
        });
        let mut tree = Tree {
            points: points.to_vec(),
            levels: Vec::with_capacity(spans.len() + 1),
            spans,
        };
        tree.add_leaves(threshold);
        for level in 1..=tree.spans.len() {
            tree.add_level(level);
        }
        tree
    }

    /// Levels below the root that count.
    pub fn below_root(&self) -> usize {
        self.spans.len()
    }

    /// The switch above everything.
    pub fn root(&self) -> &Switch {
        &self.levels[self.below_root()][0]
    }

    fn span(&self, level: usize) -> u64 {
        self.spans.get(level).copied().unwrap_or(u64::MAX)
    }

    fn add_leaves(&mut self, threshold: Option<u32>) {
        let span = self.span(0);
        let number = |point: &Point| u64::from(point.number) / span;
        let mut leaves = Vec::new();
        let mut first = 0;
        while first < self.points.len() {
            let above = number(&self.points[first]);
            let found = self.points[first..].partition_point(|point| number(point) == above);
            let points = first..first + found;
            let group = &mut self.points[points.clone()];
            group.sort_unstable_by(|a, b| b.weight.cmp(&a.weight).then(a.number.cmp(&b.number)));
            let at_least = |least: u32| group.iter().filter(|point| point.weight >= least).count();
            let (need, cap) = threshold.map_or((0, group.len()), |threshold| {
                (at_least(threshold.saturating_add(1)), at_least(threshold))
            });
            let weight = group[..cap].iter().map(|point| u64::from(point.weight));
            let is_uniform = group[0].weight == group[group.len() - 1].weight;
            leaves.push(Switch {
                number: above,
                below: points.clone(),
                need,
                cap,
                weight: weight.sum(),
                uniform: is_uniform.then_some(group[0].weight),
                is_whole: is_uniform && need == 0 && cap as u64 == span,
                points,
            });
            first += found;
        }
        self.levels.push(leaves);
    }

    fn add_level(&mut self, level: usize) {
        let span = self.span(level);
        let ratio = span / self.spans[level - 1];
        let below = &self.levels[level - 1];
        let mut switches = Vec::new();
        let mut first = 0;
        while first < below.len() {
            let above = below[first].number / ratio;
            let found = below[first..].partition_point(|switch| switch.number / ratio == above);
            let children = &below[first..first + found];
            let sum = |of: fn(&Switch) -> usize| children.iter().map(of).sum::<usize>();
            let uniform = children[0].uniform;
            let uniform = uniform.filter(|_| children.iter().all(|c| c.uniform == uniform));
            let cap = sum(|child| child.cap);
            let is_whole = cap as u64 == span && children.iter().all(|child| child.is_whole);
            switches.push(Switch {
                number: above,
                below: first..first + found,
                points: children[0].points.start..children[found - 1].points.end,
                need: sum(|child| child.need),
                cap,
                weight: children.iter().map(|child| child.weight).sum(),
                uniform,
                is_whole: is_whole && uniform.is_some(),
            });
            first += found;
        }
        self.levels.push(switches);
    }

    /// Indices of the switches of `lower` below the switch `index` of `level`.
    pub fn descendants(&self, level: usize, index: usize, lower: usize) -> Range<usize> {
        let mut range = index..index + 1;
        for level in (lower + 1..=level).rev() {
            let switches = &self.levels[level];
            range = switches[range.start].below.start..switches[range.end - 1].below.end;
        }
        range
    }

    /// Appends all points below a switch that may be taken.
    pub fn take_all(&self, level: usize, index: usize, taken: &mut Vec<usize>) {
        let switch = &self.levels[level][index];
        if switch.cap == switch.free() {
            taken.extend(switch.points.clone());
        } else if level == 0 {
            taken.extend(switch.points.clone().take(switch.cap));
        } else {
            for child in switch.below.clone() {
                self.take_all(level - 1, child, taken);
            }
        }
    }

    /// What a choice of points is worth; `taken` are indices of points, in order.
    pub fn measure(&self, taken: &[usize]) -> Measure {
        let weights = taken.iter().map(|&point| self.points[point].weight);
        let mut measure = Measure {
            weight: weights.map(i64::from).sum(),
            ..Measure::default()
        };
        for switches in &self.levels[..self.below_root()] {
            let mut rest = taken;
            while let Some(&first) = rest.first() {
                let above = switches.partition_point(|switch| switch.points.end <= first);
                let switch = &switches[above];
                let here = rest.partition_point(|&point| point < switch.points.end);
                rest = &rest[here..];
                measure.together += (here * (here - 1)) as i64;
                measure.left += (switch.free() - here) as i64;
            }
        }
        measure
    }
}

/// What a choice of points is worth.
#[derive(Debug, Default)]
pub(super) struct Measure {
    /// Sum of `k_v * (k_v - 1)` over the switches below the root: hops saved.
    pub together: i64,
    /// Sum of the weights.
    pub weight: i64,
    /// Free points left behind below switches that are used, summed over the switches below the
    /// root.
    pub left: i64,
}
