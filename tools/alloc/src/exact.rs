//! The set of free nodes with the minimum sum of pairwise hops, exactly.
//!
//! Two nodes whose lowest common switch is of level `h` are `2h - 1` hops apart: `2H - 1` in a
//! tree of height `H`, less two for every switch below the root that is above both. Summed over
//! all pairs of `k` nodes,
//!
//! ```text
//! hops = (2H - 1) * C(k, 2)  -  sum over switches v below the root of k_v * (k_v - 1)
//! ```
//!
//! with `k_v` of the nodes below `v`. So only the numbers `k_v` count, and the best ones are found
//! from the leaves up: the best selection of `j` nodes below a switch consists of best selections
//! below its children, for one of the ways to split `j` (a tree knapsack). Children are merged in
//! pairs, pairs of pairs, and so on, and of each only numbers that can be part of the answer are
//! looked at: not more than wanted, nor fewer than the rest of the tree leaves over. For `n` free
//! nodes that is at most about `n * n / 4` short steps and memory for some `n * log n` numbers: for
//! half of 32,768 free nodes about a second and a few megabytes, for all of them next to nothing.
//!
//! Selections with equally many hops are told apart, in this order, by
//! 1. more warm nodes;
//! 2. fewer free nodes left behind: nodes that stay free below switches which the job uses, summed
//!    over all switches below the root, so that free space stays in large pieces;
//! 3. lower numbers: the one that has the lowest node that is not in both.
//!
//! All four are sums over nodes or switches, compared one after the other, and a sum of best parts
//! is best under such a comparison: the ties are decided exactly, too. The third is the binary
//! number with a one for each node, lowest node first; the selections of one table are all of
//! different size, so their places in that order (`rank`) are all a comparison needs.
//!
//! Key types: [`Candidate`], [`Placement`], [`place`]. Neighbour: [`crate::topology`].
//!
//! Invariant: integers only; with at most [`FREE_MAX`] free nodes no sum leaves an `i64`.

use crate::topology::{LEVELS_MAX, Topology};

/// Most free nodes in one question. Bounds the sums: `(2H - 1) * k^2 < 2^5 * 2^48`.
pub const FREE_MAX: usize = 1 << 24;

const _: () = assert!((2 * LEVELS_MAX as i64) < i64::MAX / ((FREE_MAX * FREE_MAX) as i64));

/// A node that the job could have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Its number.
    pub node: u32,
    /// It holds the job's program.
    pub warm: bool,
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
}

/// The best `count` of the `free` nodes; none when there are fewer.
///
/// # Panics
/// When `free` is not in the order of node numbers with each node once, or longer than
/// [`FREE_MAX`].
pub fn place(topology: &Topology, free: &[Candidate], count: usize) -> Option<Placement> {
    assert!(free.len() <= FREE_MAX, "at most {FREE_MAX} free nodes");
    let sorted = free.windows(2).all(|pair| pair[0].node < pair[1].node);
    assert!(sorted, "free nodes in the order of their numbers");
    if free.len() < count {
        return None;
    }
    let root_level = topology.height();
    let mut tables = Tables {
        all: Vec::new(),
        count,
        free: free.len(),
    };
    // The tables of the switches of one level that have free nodes, with one of those nodes each.
    let mut level: Vec<(u32, usize)> = Vec::new();
    for group in free.chunk_by(|a, b| same_switch(topology, a.node, b.node, 1)) {
        level.push((group[0].node, tables.leaf(group, root_level > 1)));
    }
    for height in 2..=root_level {
        let groups = level.chunk_by(|a, b| same_switch(topology, a.0, b.0, height));
        let above = groups.map(|children| {
            let table = tables.switch(children, height < root_level);
            (children[0].0, table)
        });
        level = above.collect();
    }
    let Some(&(_, root)) = level.first() else {
        return Some(Placement {
            nodes: Vec::new(),
            hops: 0,
            warm: 0,
            left_behind: 0,
        });
    };
    let value = tables.all[root].values[count];
    let mut nodes = Vec::with_capacity(count);
    tables.collect(root, count, &mut nodes);
    nodes.sort_unstable();
    let all_pairs = pairs(count) * (2 * signed(root_level) - 1);
    Some(Placement {
        nodes,
        hops: all_pairs - value.together,
        warm: usize::try_from(value.warm).expect("a count"),
        left_behind: -value.kept_whole,
    })
}

fn same_switch(topology: &Topology, a: u32, b: u32, level: usize) -> bool {
    topology.switch_above(a, level) == topology.switch_above(b, level)
}

fn signed(count: usize) -> i64 {
    i64::try_from(count).expect("at most FREE_MAX")
}

fn pairs(count: usize) -> i64 {
    signed(count) * (signed(count) - 1) / 2
}

/// What a selection is worth; compared field by field, more is better.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Value {
    /// Hops saved: the sum of `k_v * (k_v - 1)`.
    together: i64,
    /// Warm nodes in it.
    warm: i64,
    /// Free nodes left behind, negative.
    kept_whole: i64,
}

impl std::ops::Add for Value {
    type Output = Value;

    fn add(self, other: Value) -> Value {
        Value {
            together: self.together + other.together,
            warm: self.warm + other.warm,
            kept_whole: self.kept_whole + other.kept_whole,
        }
    }
}

/// The best selections of 0, 1, 2, ... nodes below a switch, or below some of its children. Once
/// it has been merged into another, only where its nodes come from is kept.
struct Table {
    /// What the best selection of so many nodes is worth.
    values: Vec<Value>,
    /// Its place among the selections of this table by node numbers: higher has lower numbers.
    rank: Vec<u32>,
    /// Free nodes below.
    free: usize,
    /// Fewest nodes that can be taken from here: all others are taken then. Selections of fewer
    /// are not filled in.
    least: usize,
    origin: Origin,
}

/// The part of a [`Table`] that its merge uses up.
struct Spent {
    values: Vec<Value>,
    rank: Vec<u32>,
    free: usize,
    least: usize,
}

enum Origin {
    /// Selections are the first so many of these nodes.
    Leaf(Vec<u32>),
    /// Selections are put together from two tables; of the first as many nodes as it says here.
    Merged {
        first: usize,
        second: usize,
        from_first: Vec<u32>,
    },
}

struct Tables {
    all: Vec<Table>,
    /// Nodes wanted: no table needs to know about more.
    count: usize,
    /// Free nodes in all.
    free: usize,
}

impl Tables {
    fn push(&mut self, table: Table) -> usize {
        self.all.push(table);
        self.all.len() - 1
    }

    /// Fewest nodes that a job must take of `free` nodes.
    fn least(&self, free: usize) -> usize {
        self.count.saturating_sub(self.free - free)
    }

    /// The table of a leaf switch: warm nodes first, then low numbers.
    fn leaf(&mut self, free: &[Candidate], below_root: bool) -> usize {
        let of = |warm: bool| free.iter().filter(move |candidate| candidate.warm == warm);
        let order: Vec<u32> = of(true).chain(of(false)).map(|found| found.node).collect();
        let warm = of(true).count();
        let most = free.len().min(self.count);
        let value = |nodes: usize| Value {
            warm: signed(nodes.min(warm)),
            ..Value::default()
        };
        let table = self.push(Table {
            values: (0..=most).map(value).collect(),
            // Each selection contains the one before.
            rank: (0..=most).map(small).collect(),
            free: free.len(),
            least: self.least(free.len()),
            origin: Origin::Leaf(order),
        });
        if below_root {
            self.count_switch(table);
        }
        table
    }

    /// The table of a switch above others.
    fn switch(&mut self, children: &[(u32, usize)], below_root: bool) -> usize {
        let mut tables: Vec<usize> = children.iter().map(|(_, table)| *table).collect();
        while tables.len() > 1 {
            let pairs = tables.chunks(2).map(|pair| match pair {
                [first, second] => self.merge(*first, *second),
                _ => pair[0],
            });
            tables = pairs.collect();
        }
        let table = tables[0];
        if below_root {
            self.count_switch(table);
        }
        table
    }

    /// Adds what the switch above all nodes of a table saves and costs.
    fn count_switch(&mut self, table: usize) {
        let Table { values, free, .. } = &mut self.all[table];
        for (nodes, value) in values.iter_mut().enumerate().skip(1) {
            value.together += 2 * pairs(nodes);
            value.kept_whole -= signed(*free - nodes);
        }
    }

    /// The best ways to take nodes from two tables; all numbers of the first are lower.
    fn merge(&mut self, first: usize, second: usize) -> usize {
        let (a, b) = (self.spend(first), self.spend(second));
        let (most_a, most_b) = (a.values.len() - 1, b.values.len() - 1);
        let most = (most_a + most_b).min(self.count);
        let free = a.free + b.free;
        let least = self.least(free);
        let mut values = vec![Value::default(); least];
        let mut from_first = vec![0; least];
        for nodes in least..=most {
            let splits = nodes.saturating_sub(most_b).max(a.least)..=(nodes - b.least).min(most_a);
            let worth = |of_a: usize| (a.values[of_a] + b.values[nodes - of_a], a.rank[of_a]);
            let mut best = (worth(*splits.start()), *splits.start());
            for of_a in splits.skip(1) {
                // Most ways to split save fewer hops: nothing else of them is looked at.
                let together = a.values[of_a].together + b.values[nodes - of_a].together;
                if together >= best.0.0.together {
                    best = best.max((worth(of_a), of_a));
                }
            }
            let (best, of_a) = best;
            values.push(best.0);
            from_first.push(small(of_a));
        }
        let key = |nodes: usize| {
            let of_a = from_first[nodes] as usize;
            (a.rank[of_a], b.rank[nodes - of_a])
        };
        let mut order: Vec<usize> = (least..=most).collect();
        order.sort_unstable_by_key(|nodes| key(*nodes));
        let mut rank = vec![0; most + 1];
        for (place, nodes) in order.into_iter().enumerate() {
            rank[nodes] = small(place);
        }
        self.push(Table {
            values,
            rank,
            free,
            least,
            origin: Origin::Merged {
                first,
                second,
                from_first,
            },
        })
    }

    /// What a merge needs of a table, which is not needed afterwards.
    fn spend(&mut self, table: usize) -> Spent {
        let table = &mut self.all[table];
        Spent {
            values: std::mem::take(&mut table.values),
            rank: std::mem::take(&mut table.rank),
            free: table.free,
            least: table.least,
        }
    }

    /// The nodes of the best selection of `count` nodes.
    fn collect(&self, table: usize, count: usize, nodes: &mut Vec<u32>) {
        let mut open = vec![(table, count)];
        while let Some((table, count)) = open.pop() {
            match &self.all[table].origin {
                Origin::Leaf(order) => nodes.extend(&order[..count]),
                Origin::Merged {
                    first,
                    second,
                    from_first,
                } => {
                    let of_first = from_first[count] as usize;
                    open.push((*first, of_first));
                    open.push((*second, count - of_first));
                }
            }
        }
    }
}

fn small(count: usize) -> u32 {
    u32::try_from(count).expect("at most FREE_MAX")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cold(nodes: impl IntoIterator<Item = u32>) -> Vec<Candidate> {
        let candidate = |node| Candidate { node, warm: false };
        nodes.into_iter().map(candidate).collect()
    }

    fn nodes(topology: &Topology, free: &[Candidate], count: usize) -> Vec<u32> {
        place(topology, free, count).unwrap().nodes
    }

    #[test]
    fn the_lowest_switch_under_which_a_job_fits_is_not_the_best_place() {
        // Five leaf switches with one free node each under A, one with four under B.
        let tree = Topology::new(&[4, 5, 2]).unwrap();
        let inside_a = [0, 4, 8, 12, 16];
        let alone = place(&tree, &cold(inside_a), 5).unwrap();
        assert_eq!((alone.hops, alone.nodes.as_slice()), (30, &inside_a[..]));
        let free = cold(inside_a.into_iter().chain(20..24));
        let best = place(&tree, &free, 5).unwrap();
        assert_eq!(
            (best.hops, best.nodes.as_slice()),
            (26, &[0, 20, 21, 22, 23][..])
        );
    }

    #[test]
    fn ties_go_to_warm_nodes_then_to_the_tightest_place_then_to_low_numbers() {
        let tree = Topology::new(&[4, 4]).unwrap();
        // n0-3 all free, n4-6 free, n8-9 free.
        let mut free = cold((0..4).chain(4..7).chain(8..10));
        assert_eq!(nodes(&tree, &free, 2), [8, 9], "breaks up no other switch");
        assert_eq!(nodes(&tree, &free, 3), [4, 5, 6]);
        free[3].warm = true;
        assert_eq!(nodes(&tree, &free, 2), [0, 3], "n3 is warm");
        assert_eq!(nodes(&tree, &free, 4), [0, 1, 2, 3]);
        assert_eq!(nodes(&Topology::flat(), &cold([5, 7, 9]), 2), [5, 7]);
        // Warm nodes far apart do not win against fewer hops.
        let mut free = cold([0, 4, 8, 9]);
        (free[0].warm, free[1].warm) = (true, true);
        assert_eq!(nodes(&tree, &free, 2), [8, 9]);
    }

    #[test]
    fn nothing_wanted_and_too_much_wanted() {
        let tree = Topology::new(&[2, 2]).unwrap();
        assert_eq!(place(&tree, &cold(0..3), 4), None);
        assert_eq!(nodes(&tree, &cold(0..3), 0), []);
        assert_eq!(nodes(&tree, &[], 0), []);
        assert_eq!(place(&tree, &cold([1]), 1).unwrap().hops, 0);
    }

    #[test]
    fn a_whole_large_machine() {
        let tree = Topology::new(&[16, 16, 16]).unwrap();
        let all = place(&tree, &cold(0..4096), 4096).unwrap();
        // Pairs on one leaf switch cross 1, under one middle switch 3, others 5.
        let (leaf, middle) = (256 * pairs(16), 16 * pairs(256));
        let expected = leaf + 3 * (middle - leaf) + 5 * (pairs(4096) - middle);
        assert_eq!(
            (all.hops, all.nodes.len(), all.left_behind),
            (expected, 4096, 0)
        );
        let half = place(&tree, &cold((0..4096).step_by(2)), 256).unwrap();
        assert_eq!(half.nodes, (0..512).step_by(2).collect::<Vec<u32>>());
    }
}
