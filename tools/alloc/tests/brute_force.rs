//! The allocator against trying every set of free points.
//!
//! The checker shares no code with the crate: it climbs from node to node by division, adds up
//! every pair, and counts what is left behind switch by switch.

use std::collections::{BTreeMap, BTreeSet};

use hearth_alloc::placement::exact::{self, Candidate, Certificate, Point, Preference, Question};
use hearth_alloc::topology::Topology;
use proptest::prelude::*;

/// Random states in all modes; so many states must agree.
const STATES: u64 = 6_000;

/// A small cluster: widths from the leaves up, free points with their weights.
#[derive(Debug, Clone)]
struct State {
    widths: Vec<u32>,
    free: Vec<(u32, u32)>,
    count: usize,
    preference: Preference,
    /// Nodes of a point.
    unit: u32,
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

/// Free points that stay below switches that are used, over all switches below the root.
fn left_behind(widths: &[u32], free: &[(u32, u32)], nodes: &[u32]) -> i64 {
    let mut left = 0;
    let mut span = 1;
    for width in &widths[..widths.len() - 1] {
        span *= width;
        let used: BTreeSet<u32> = nodes.iter().map(|node| node / span).collect();
        let stays = |node: u32| !nodes.contains(&node) && used.contains(&(node / span));
        left += free.iter().filter(|(node, _)| stays(*node)).count() as i64;
    }
    left
}

/// What a set costs, the first number first; less is better.
fn cost(state: &State, nodes: &[u32]) -> [i64; 3] {
    let weights: BTreeMap<u32, u32> = state.free.iter().copied().collect();
    let weight: i64 = nodes.iter().map(|node| i64::from(weights[node])).sum();
    let hops = sum_of_hops(&state.widths, nodes);
    let left = left_behind(&state.widths, &state.free, nodes);
    match state.preference {
        Preference::None => [hops, left, 0],
        Preference::HopsFirst => [hops, -weight, left],
        Preference::WarmFirst => [-weight, hops, left],
        // Twice the cost, in thousandths, but for a constant.
        Preference::Weighted { milli } => {
            let unit = i64::from(state.unit);
            let others = state.count as i64 * unit - 1;
            [
                2_000 * unit * unit * hops - i64::from(milli) * others * weight,
                left,
                0,
            ]
        }
    }
}

/// What the best set costs, found by looking at all of them.
fn best_of_all(state: &State) -> [i64; 3] {
    let sets = 0_u32..1 << state.free.len();
    let sets = sets.filter(|set| set.count_ones() as usize == state.count);
    let costs = sets.map(|set| {
        let chosen = (0..state.free.len()).filter(|bit| set >> bit & 1 == 1);
        let nodes: Vec<u32> = chosen.map(|bit| state.free[bit].0).collect();
        cost(state, &nodes)
    });
    costs.min().expect("there is a set of every size up to all")
}

/// Asks the allocator and checks that the answer is one.
fn found(state: &State) -> ([i64; 3], Certificate) {
    let topology = Topology::new(&state.widths).unwrap();
    let point = |&(number, weight): &(u32, u32)| Point { number, weight };
    let free: Vec<Point> = state.free.iter().map(point).collect();
    let question = Question {
        topology: &topology,
        free: &free,
        count: state.count,
        preference: state.preference,
        unit: state.unit,
    };
    let choice = exact::choose(&question).unwrap();
    assert_eq!(choice.numbers.len(), state.count);
    assert!(choice.numbers.windows(2).all(|pair| pair[0] < pair[1]));
    let weights: BTreeMap<u32, u32> = state.free.iter().copied().collect();
    let weight: i64 = choice.numbers.iter().map(|n| i64::from(weights[n])).sum();
    assert_eq!(choice.weight, weight);
    assert_eq!(choice.hops, sum_of_hops(&state.widths, &choice.numbers));
    let left = left_behind(&state.widths, &state.free, &choice.numbers);
    assert_eq!(choice.left_behind, left);
    (cost(state, &choice.numbers), choice.certificate)
}

/// Numbers that depend on the seed only (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ mixed >> 31) % u64::from(limit)) as u32
    }
}

/// A state in which free points are scattered or come in runs, as jobs leave them.
fn state(seed: u64, preference: Preference, weight_max: u32) -> State {
    let mut numbers = Numbers(seed);
    let height = 2 + numbers.below(3);
    let widths: Vec<u32> = (0..height).map(|_| 1 + numbers.below(5)).collect();
    // Some beyond the widths: these hang on at the root.
    let places = widths.iter().product::<u32>() * 5 / 4;
    let wanted = 4 + numbers.below(9);
    let mut free = BTreeMap::new();
    let run_max = 1 + numbers.below(5);
    for _ in 0..wanted {
        let first = numbers.below(places);
        for node in first..first + 1 + numbers.below(run_max) {
            if node < places && free.len() < wanted as usize {
                free.insert(node, numbers.below(weight_max + 1));
            }
        }
    }
    let free: Vec<(u32, u32)> = free.into_iter().collect();
    let least = (free.len() as u32).min(2);
    let count = least + numbers.below(free.len() as u32 - least + 1);
    State {
        widths,
        free,
        count: count as usize,
        preference,
        unit: weight_max.max(1),
    }
}

/// At least a third of the states must be such that the nested greedy choice is not known to be
/// the best (or is not): else the test would say little about the knapsack.
#[test]
fn the_best_of_all_sets_is_found_in_all_modes() {
    let lambdas = [0, 1, 250, 500, 1_000, 2_000, 7_500];
    let mut by_rule: BTreeMap<Certificate, u64> = BTreeMap::new();
    for seed in 0..STATES {
        let preference = match seed % 4 {
            0 => Preference::None,
            1 => Preference::HopsFirst,
            2 => Preference::Weighted {
                milli: lambdas[(seed / 4 % 7) as usize],
            },
            _ => Preference::WarmFirst,
        };
        // Nodes are warm or not; units have as many warm nodes as they have nodes.
        let weight_max = if seed / 28 % 2 == 0 { 1 } else { 4 };
        let state = state(seed, preference, weight_max);
        let (cost, certificate) = found(&state);
        assert_eq!(cost, best_of_all(&state), "seed {seed}: {state:?}");
        *by_rule.entry(certificate).or_default() += 1;
    }
    let hard = by_rule[&Certificate::Knapsack];
    println!("{STATES} states: {by_rule:?}");
    assert!(3 * hard >= STATES, "too few hard states: {by_rule:?}");
    assert!(by_rule[&Certificate::LevelBounds] > STATES / 20);
    assert!(by_rule[&Certificate::OneLeaf] > STATES / 20);
}

/// The same without any warm node, where the certificate of the greedy choice matters most. Most
/// small states are easy then; of these only two are looked at for each hard one.
#[test]
fn the_fewest_hops_are_found_where_the_greedy_choice_is_not_certified() {
    let (mut hard, mut easy) = (0, 0);
    for seed in 1_000_000.. {
        let state = state(seed, Preference::None, 0);
        let (cost, certificate) = found(&state);
        if certificate == Certificate::Knapsack {
            hard += 1;
        } else if easy < 2 * hard {
            easy += 1;
        } else {
            continue;
        }
        assert_eq!(cost, best_of_all(&state), "seed {seed}: {state:?}");
        if hard + easy >= STATES {
            break;
        }
    }
    println!("{hard} states by the knapsack, {easy} others");
    assert!(3 * hard >= STATES);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn other_seeds_on_every_run(seed in any::<u64>(), mode in 0..4, milli in 0..9_000_u32, weight in 0..5_u32) {
        let preference = match mode {
            0 => Preference::None,
            1 => Preference::HopsFirst,
            2 => Preference::Weighted { milli },
            _ => Preference::WarmFirst,
        };
        let state = state(seed, preference, weight);
        prop_assert_eq!(found(&state).0, best_of_all(&state));
    }

    #[test]
    fn nodes_that_are_warm_or_not(seed in any::<u64>()) {
        let state = state(seed, Preference::HopsFirst, 1);
        let topology = Topology::new(&state.widths).unwrap();
        let candidate = |&(node, weight): &(u32, u32)| Candidate { node, warm: weight > 0 };
        let free: Vec<Candidate> = state.free.iter().map(candidate).collect();
        let placement = exact::place(&topology, &free, state.count).unwrap();
        let found = [placement.hops, -(placement.warm as i64), placement.left_behind];
        prop_assert_eq!(found, best_of_all(&state));
        prop_assert_eq!(placement.hops, topology.sum_of_hops(&placement.nodes));
    }

    #[test]
    fn hops_are_symmetric_and_climb(widths in prop::collection::vec(1u32..=5, 1..=4), a in 0u32..900, b in 0u32..900) {
        let topology = Topology::new(&widths).unwrap();
        prop_assert_eq!(topology.hops(a, b), topology.hops(b, a));
        let expected = if a == b { 0 } else { distance(&widths, a, b) };
        prop_assert_eq!(i64::from(topology.hops(a, b)), expected);
    }
}
