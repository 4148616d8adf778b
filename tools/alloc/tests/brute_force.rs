//! The allocator against trying every set of free nodes.
//!
//! The checker shares no code with the crate: it climbs from node to node by division, adds up
//! every pair, counts what is left behind switch by switch, and compares sets of nodes directly.

use std::collections::BTreeSet;

use hearth_alloc::exact::{self, Candidate};
use hearth_alloc::topology::Topology;
use proptest::prelude::*;

/// A small cluster: widths from the leaves up, free nodes with whether they are warm.
#[derive(Debug, Clone)]
struct State {
    widths: Vec<u32>,
    free: Vec<(u32, bool)>,
    count: usize,
}

fn states() -> impl Strategy<Value = State> {
    let widths = prop::collection::vec(1u32..=4, 1..=4);
    widths.prop_flat_map(|widths| {
        // Up to half as many nodes again as the tree has places for: they hang on at the root.
        let places = widths.iter().product::<u32>();
        let nodes = prop::collection::btree_map(0..places + places / 2 + 1, any::<bool>(), 0..=11);
        (Just(widths), nodes).prop_flat_map(|(widths, nodes)| {
            let free: Vec<(u32, bool)> = nodes.into_iter().collect();
            let count = 0..=free.len();
            (Just(widths), Just(free), count).prop_map(|(widths, free, count)| State {
                widths,
                free,
                count,
            })
        })
    })
}

/// Hops by climbing: both go up one switch at a time until they meet.
fn distance(widths: &[u32], mut a: u32, mut b: u32) -> i64 {
    for (step, width) in widths.iter().enumerate() {
        let last = step + 1 == widths.len();
        (a, b) = if last { (0, 0) } else { (a / width, b / width) };
        if a == b {
            return 1 + 2 * step as i64;
        }
    }
    unreachable!("the last step meets")
}

fn sum_of_hops(widths: &[u32], nodes: &[u32]) -> i64 {
    let mut sum = 0;
    for (index, a) in nodes.iter().enumerate() {
        for b in &nodes[index + 1..] {
            sum += distance(widths, *a, *b);
        }
    }
    sum
}

/// Free nodes that stay below switches that are used, over all switches below the root.
fn left_behind(widths: &[u32], free: &[(u32, bool)], nodes: &[u32]) -> i64 {
    let mut left = 0;
    let mut span = 1;
    for width in &widths[..widths.len() - 1] {
        span *= width;
        let used: BTreeSet<u32> = nodes.iter().map(|node| node / span).collect();
        let stays = |node: &u32| !nodes.contains(node) && used.contains(&(node / span));
        left += free.iter().filter(|(node, _)| stays(node)).count() as i64;
    }
    left
}

/// Of two sets of one size, is `a` the one with the lowest node that is not in both?
fn lower(a: &[u32], b: &[u32]) -> bool {
    let only = |these: &[u32], those: &[u32]| {
        these
            .iter()
            .copied()
            .filter(|node| !those.contains(node))
            .min()
    };
    match (only(a, b), only(b, a)) {
        (Some(a), Some(b)) => a < b,
        _ => false,
    }
}

/// The best set, found by looking at all of them.
fn best_of_all(state: &State) -> (i64, usize, i64, Vec<u32>) {
    let mut best: Option<(i64, usize, i64, Vec<u32>)> = None;
    for set in 0u32..1 << state.free.len() {
        if set.count_ones() as usize != state.count {
            continue;
        }
        let chosen: Vec<&(u32, bool)> = (0..state.free.len())
            .filter(|bit| set >> bit & 1 == 1)
            .map(|bit| &state.free[bit])
            .collect();
        let nodes: Vec<u32> = chosen.iter().map(|(node, _)| *node).collect();
        let hops = sum_of_hops(&state.widths, &nodes);
        let warm = chosen.iter().filter(|(_, warm)| *warm).count();
        let left = left_behind(&state.widths, &state.free, &nodes);
        let better = match &best {
            None => true,
            Some((h, w, l, n)) => {
                hops < *h
                    || hops == *h
                        && (warm > *w
                            || warm == *w && (left < *l || left == *l && lower(&nodes, n)))
            }
        };
        if better {
            best = Some((hops, warm, left, nodes));
        }
    }
    best.expect("there is a set of every size up to all")
}

fn found(state: &State) -> (i64, usize, i64, Vec<u32>) {
    let topology = Topology::new(&state.widths).unwrap();
    let candidate = |&(node, warm): &(u32, bool)| Candidate { node, warm };
    let free: Vec<Candidate> = state.free.iter().map(candidate).collect();
    let found = exact::place(&topology, &free, state.count).unwrap();
    (found.hops, found.warm, found.left_behind, found.nodes)
}

/// Seldom, but it happens: of two placements that are equal in all else, the one with the lowest
/// node has fewer nodes on the low side of the tree.
#[test]
fn lowest_numbers_are_not_most_nodes_on_the_low_side() {
    let state = State {
        widths: vec![1, 4, 4, 4],
        free: [5, 8, 22, 72, 75, 82, 88, 89]
            .map(|node| (node, matches!(node, 5 | 8 | 72 | 88)))
            .to_vec(),
        count: 4,
    };
    assert_eq!(found(&state), (34, 2, 1, vec![5, 82, 88, 89]));
    assert_eq!(found(&state), best_of_all(&state));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6000))]

    #[test]
    fn the_best_of_all_sets_is_found(state in states()) {
        prop_assert_eq!(found(&state), best_of_all(&state));
    }

    #[test]
    fn hops_are_symmetric_and_climb(widths in prop::collection::vec(1u32..=5, 1..=4), a in 0u32..900, b in 0u32..900) {
        let topology = Topology::new(&widths).unwrap();
        prop_assert_eq!(topology.hops(a, b), topology.hops(b, a));
        let expected = if a == b { 0 } else { distance(&widths, a, b) };
        prop_assert_eq!(i64::from(topology.hops(a, b)), expected);
    }
}
