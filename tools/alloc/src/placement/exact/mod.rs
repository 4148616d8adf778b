//! Ours: the set of free points with the minimum sum of pairwise hops, exactly, and how that is
//! known.
//!
//! [`super::published`] has the method's page. What is different here:
//! - the publication tries sets; here bounds and a tree knapsack find the same minimum, for trees
//!   of any size, and a [`Certificate`] says why nothing is better;
//! - among sets with equally few hops warm nodes count, then what is left behind; warm nodes may
//!   also count against hops or before them ([`Preference`]);
//! - a small job may have a part of any unit that holds it, the tightest first (`may_enter`).
//!
//! Two nodes whose lowest common switch is of level `h` are `2h - 1` hops apart: `2H - 1` in a
//! tree of height `H`, less two for every switch below the root that is above both. Summed over
//! all pairs of `k` nodes,
//!
//! ```text
//! hops = (2H - 1) * C(k, 2)  -  sum over switches v below the root of k_v * (k_v - 1)
//! ```
//!
//! with `k_v` of the nodes below `v`. So only the numbers `k_v` count. The same holds for
//! scheduling units, which are points of a smaller tree ([`Topology::in_units`]).
//!
//! The answer comes from the first of these that knows it, and says which ([`Certificate`]):
//! 1. all points fit on one leaf switch: the one that they fill best;
//! 2. the nested greedy choice ([`greedy`]) meets what each level of switches can save at most,
//!    whatever the others do ([`bound`]);
//! 3. the tree knapsack ([`knapsack`]), which looks at everything that could be better.
//!
//! Selections with equally many hops are told apart by more warm nodes (as the [`Preference`]
//! says), then by fewer free points left behind: points that stay free below switches which the
//! job uses, summed over all switches below the root, so that free space stays in large pieces.
//! These are decided exactly, too. Among what is equal in all of that, lower numbers are taken as
//! far as that is simple: the answer to a question is always the same.
//!
//! Key types: [`Question`], [`Placement`]; key functions: [`place`] for nodes, [`choose`] for
//! points. Neighbours: [`crate::topology`]; [`super`] asks.
//!
//! Invariant: integers only, and no sum leaves its integer (see [`worth`]).

mod bound;
mod closed;
mod concave;
mod greedy;
mod knapsack;
mod leaf_pairs;
mod ranges;
mod tree;
mod worth;

use crate::machine::Machine;
use crate::topology::Topology;
use bound::Bounds;
use concave::Envelopes;
use knapsack::Knapsack;
pub use tree::Point;
use tree::{Measure, Tree};
use worth::{Value, Worth};

/// Most free points in one question; bounds the sums.
pub const FREE_MAX: usize = 1 << 24;

/// A node that the job could have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Its number.
    pub node: u32,
    /// It holds the job's program.
    pub warm: bool,
}

/// What warm nodes count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Preference {
    /// Nothing.
    None,
    /// Fewest hops; of these choices, one with the most warm nodes.
    #[default]
    HopsFirst,
    /// Fewest of hops + lambda * (k - 1) / 2 * cold nodes: lambda is how much longer a node's mean
    /// way to the others may be for it to be warm. Of points that stand for several nodes
    /// ([`Question::unit`]) these are the nodes' hops, k and cold nodes, as if the job used all
    /// nodes of its points.
    Weighted {
        /// Lambda, in thousandths of a hop.
        milli: u32,
    },
    /// Most warm nodes; of these choices, one with the fewest hops.
    WarmFirst,
}

/// How it is known that nothing is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Certificate {
    /// Nothing was asked for.
    Nothing,
    /// All on one leaf switch.
    OneLeaf,
    /// The nested greedy choice meets the bound of every level.
    LevelBounds,
    /// The tree knapsack.
    Knapsack,
}

impl Certificate {
    /// One word for tables and JSON.
    pub fn rule(self) -> &'static str {
        match self {
            Certificate::Nothing => "nothing",
            Certificate::OneLeaf => "one-leaf",
            Certificate::LevelBounds => "level-bounds",
            Certificate::Knapsack => "knapsack",
        }
    }
}

impl std::fmt::Display for Certificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Certificate::Nothing => "optimal: nothing was asked for",
            Certificate::OneLeaf => "optimal: all on one leaf switch",
            Certificate::LevelBounds => {
                "optimal: the nested greedy choice meets the bound of every level"
            }
            Certificate::Knapsack => "optimal: best of all choices, by the tree knapsack",
        })
    }
}

/// The answer: nodes and what they cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// The nodes, by number.
    pub nodes: Vec<u32>,
    /// Sum of the hops between all pairs of them.
    pub hops: i64,
    /// How many of them are warm.
    pub warm: usize,
    /// Free nodes left behind below the switches used, summed over the switches below the root.
    pub left_behind: i64,
    /// How it is known that nothing is better.
    pub certificate: Certificate,
}

/// A choice of points.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// Their numbers, in order.
    pub numbers: Vec<u32>,
    /// Sum of the hops between all pairs of them.
    pub hops: i64,
    /// Sum of their weights.
    pub weight: i64,
    /// Free points left behind below the switches used, summed over the switches below the root.
    pub left_behind: i64,
    /// How it is known that nothing is better.
    pub certificate: Certificate,
}

/// The best `count` of the `free` nodes, fewest hops first, then most warm nodes; none when there
/// are fewer.
///
/// # Panics
/// See [`choose`].
pub fn place(topology: &Topology, free: &[Candidate], count: usize) -> Option<Placement> {
    place_with(topology, free, count, Preference::HopsFirst)
}

/// The best `count` of the `free` nodes; none when there are fewer.
///
/// # Panics
/// See [`choose`].
pub fn place_with(
    topology: &Topology,
    free: &[Candidate],
    count: usize,
    preference: Preference,
) -> Option<Placement> {
    let point = |candidate: &Candidate| Point {
        number: candidate.node,
        weight: candidate.warm.into(),
    };
    let points: Vec<Point> = free.iter().map(point).collect();
    let question = Question {
        topology,
        free: &points,
        count,
        preference,
        unit: 1,
    };
    let choice = choose(&question)?;
    Some(Placement {
        nodes: choice.numbers,
        hops: choice.hops,
        warm: usize::try_from(choice.weight).expect("a count"),
        left_behind: choice.left_behind,
        certificate: choice.certificate,
    })
}

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// The tree that the points are in.
    pub topology: &'a Topology,
    /// What can be had, in the order of the numbers.
    pub free: &'a [Point],
    /// How many are wanted.
    pub count: usize,
    /// What their weights count.
    pub preference: Preference,
    /// Nodes that a point stands for; at least 1. Only [`Preference::Weighted`] asks: it weighs
    /// hops between nodes against cold nodes, and between two points there are as many pairs of
    /// nodes as this squared.
    pub unit: u32,
}

/// The best choice; none when there are not enough points.
///
/// # Panics
/// When the points are not in the order of their numbers with each once, or more than
/// [`FREE_MAX`].
pub fn choose(question: &Question) -> Option<Choice> {
    let &Question {
        topology,
        free,
        count,
        mut preference,
        unit,
    } = question;
    assert!(free.len() <= FREE_MAX, "at most {FREE_MAX} free points");
    let sorted = free.windows(2).all(|pair| pair[0].number < pair[1].number);
    assert!(sorted, "free points in the order of their numbers");
    if free.len() < count {
        return None;
    }
    if count == 0 {
        return Some(Choice {
            numbers: Vec::new(),
            hops: 0,
            weight: 0,
            left_behind: 0,
            certificate: Certificate::Nothing,
        });
    }
    if free.iter().all(|point| point.weight == free[0].weight) {
        preference = Preference::None;
    }
    let heaviest_of = (preference == Preference::WarmFirst).then_some(count);
    let tree = Tree::new(topology, free, heaviest_of);
    let (factors, most) = Worth::new(&tree, count, preference, unit);
    let (taken, certificate) = if most < i64::LIMIT {
        search::<i64>(&tree, &factors.to(), count, preference)
    } else {
        assert!(most < i128::LIMIT, "bounded by FREE_MAX and LEVELS_MAX");
        search::<i128>(&tree, &factors.to(), count, preference)
    };
    let measure = tree.measure(&taken);
    let mut numbers: Vec<u32> = taken
        .iter()
        .map(|&point| tree.points[point].number)
        .collect();
    numbers.sort_unstable();
    let height = topology.height() as i64;
    let pairs = count as i64 * (count as i64 - 1) / 2;
    Some(Choice {
        numbers,
        hops: (2 * height - 1) * pairs - measure.together,
        weight: measure.weight,
        left_behind: measure.left,
        certificate,
    })
}

/// The numbers of the nested greedy choice, in order, whether it is the best or not; none when
/// there are not enough points. Weights count nothing. For [`super::baselines`].
///
/// # Panics
/// See [`choose`].
pub(super) fn nested_greedy(question: &Question) -> Option<Vec<u32>> {
    if question.count == 0 || question.free.len() < question.count {
        return (question.count == 0).then(Vec::new);
    }
    let tree = Tree::new(question.topology, question.free, None);
    let taken = greedy::choose(&tree, question.count);
    let numbers = taken.iter().map(|&point| tree.points[point].number);
    let mut numbers: Vec<u32> = numbers.collect();
    numbers.sort_unstable();
    Some(numbers)
}

/// Whether some busy unit holds a job that is smaller than a unit.
pub(super) fn has_busy_unit(machine: &Machine, count: u32) -> bool {
    machine.has_busy_unit_for(count)
}

/// A job that is smaller than a unit may have a part of any unit that holds it: the tightest is
/// taken. The publication has it fill the unit ([`super::published`]).
pub(super) fn may_enter(free: u32, count: u32) -> bool {
    free >= count
}

/// Indices of the best points, in order, and how that is known.
fn search<V: Value>(
    tree: &Tree,
    worth: &Worth<V>,
    count: usize,
    preference: Preference,
) -> (Vec<usize>, Certificate) {
    if let Some(taken) = one_leaf(tree, worth, count, preference) {
        return (taken, Certificate::OneLeaf);
    }
    let bounds = Bounds::new(tree, count);
    let most_weight = heaviest(tree, count);
    let mut known = V::DEAD;
    if tree.root().need == 0 {
        let taken = greedy::choose(tree, count);
        let measure = tree.measure(&taken);
        if is_certified(tree, &bounds, &measure, preference, most_weight) {
            return (taken, Certificate::LevelBounds);
        }
        known = worth.of(&measure);
    }
    for rest in [greedy::Rest::Tightest, greedy::Rest::Densest] {
        let taken = greedy::dense(tree, worth, count, rest);
        known = known.max(worth.of(&tree.measure(&taken)));
    }
    // Against hops, what warm nodes count is seen only together with what hops count.
    let is_against = matches!(preference, Preference::Weighted { .. });
    let envelopes = is_against.then(|| Envelopes::new(tree, worth, count));
    if let Some(envelopes) = &envelopes {
        let taken = greedy::steep(tree, worth, envelopes, count);
        known = known.max(worth.of(&tree.measure(&taken)));
    }
    let taken = Knapsack::best(tree, *worth, &bounds, envelopes.as_ref(), known);
    (taken, Certificate::Knapsack)
}

/// The greatest sum of weights of so many points.
fn heaviest(tree: &Tree, count: usize) -> i128 {
    let mut weights: Vec<u32> = tree.points.iter().map(|point| point.weight).collect();
    if count < weights.len() {
        weights.select_nth_unstable_by(count, |a, b| b.cmp(a));
    }
    weights[..count]
        .iter()
        .map(|&weight| i128::from(weight))
        .sum()
}

/// The best choice on one leaf switch, where that is best of all.
fn one_leaf<V: Value>(
    tree: &Tree,
    worth: &Worth<V>,
    count: usize,
    preference: Preference,
) -> Option<Vec<usize>> {
    // Free points below the switches above a leaf switch and itself, the root left out.
    let mut above = vec![0_usize; 1];
    for level in (0..=tree.below_root()).rev() {
        let is_root = level == tree.below_root();
        let mut here = Vec::with_capacity(tree.levels[level].len());
        if is_root {
            here.push(0);
        } else {
            for (parent, switch) in tree.levels[level + 1].iter().enumerate() {
                let children = &tree.levels[level][switch.below.clone()];
                here.extend(children.iter().map(|child| above[parent] + child.free()));
            }
        }
        above = here;
    }
    let need = tree.root().need;
    let fits = tree.levels[0].iter().zip(&above);
    let fits = fits.filter(|(leaf, _)| leaf.cap >= count && leaf.need == need);
    let weight = |points: &[Point]| points.iter().map(|point| i64::from(point.weight)).sum();
    let best = fits
        .map(|(leaf, above)| {
            let points = leaf.points.start..leaf.points.start + count;
            let weight: i64 = weight(&tree.points[points.clone()]);
            let left = *above as i64 - (tree.below_root() * count) as i64;
            let value = worth.weight * V::of(weight.into()) - worth.left * V::of(left.into());
            (value, std::cmp::Reverse(points.start), weight)
        })
        .max()?;
    let (_, std::cmp::Reverse(first), weight) = best;
    // Fewest hops; but elsewhere may be more warm nodes.
    let is_best = match preference {
        Preference::Weighted { .. } => i128::from(weight) == heaviest(tree, count),
        _ => true,
    };
    (is_best || tree.below_root() == 0).then(|| (first..first + count).collect())
}

/// Whether a choice meets all bounds, so that none can be better.
fn is_certified(
    tree: &Tree,
    bounds: &Bounds,
    measure: &Measure,
    preference: Preference,
    most_weight: i128,
) -> bool {
    let has_all = tree.root().cap == tree.points.len();
    let is_weighed = !matches!(preference, Preference::None | Preference::WarmFirst);
    let left = bounds
        .levels
        .iter()
        .map(|level| level.least_left(bounds.count));
    measure.together == bounds.most()
        && (!is_weighed || i128::from(measure.weight) == most_weight)
        && has_all
        && measure.left == left.sum::<i64>()
}

#[cfg(test)]
mod tests;
