//! The publication's numbers, and the closed form against a link that sends one thing after the
//! other.

use std::collections::BTreeSet;
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::broadcast::published::header::{Deal, Sizes};

/// An estimate whose link carries one byte a microsecond.
fn estimate(tree: Tree, deal: Deal, sizes: Vec<u64>) -> Estimate {
    let header = Header {
        start_us: 0,
        rate: 1_000_000,
        tree,
        sizes: Sizes::Equal(sizes.len() as u32),
        deal,
    };
    Estimate::new(&header, sizes)
}

fn tree(nodes: u32, fan_out: u32, layers: u8) -> Tree {
    Tree::new(nodes, fan_out, layers).expect("it is in range")
}

/// The published name [i,j] of a node, i and j from 1, j = 0 for the first layer.
fn name(tree: &Tree, index: u32) -> (u32, u32) {
    let place = tree.place(index);
    (tree.branch(place) + 1, tree.child_number(place))
}

/// Whom [3,2] may ask at time 5 for each chunk, by the estimate alone; h = n1 = 5, unit s/g.
fn asked_by_3_2(presence: Presence) -> Vec<Vec<(u32, u32)>> {
    let estimate = estimate(tree(30, 5, 2), Deal::Cyclic, vec![1; 5]);
    let node = Place {
        layer: 2,
        number: 2 * 5 + 1,
    };
    assert_eq!(name(estimate.tree(), estimate.tree().index(node)), (3, 2));
    assert_eq!(estimate.held(node, 0), 5);
    let of_chunk = |chunk| {
        let dealt = estimate.branches(chunk).next().expect("it is dealt");
        let candidates = estimate.candidates(dealt, 5, presence);
        candidates
            .iter()
            .map(|index| name(estimate.tree(), index))
            .collect()
    };
    (0..5).map(of_chunk).collect()
}

#[test]
fn the_published_candidates_of_node_3_2() {
    let sets = asked_by_3_2(Presence::Always);
    assert_eq!(sets[0], [(1, 0), (1, 1), (1, 2), (1, 3), (1, 4)]);
    assert_eq!(sets[1], [(2, 0), (2, 1), (2, 2), (2, 3)]);
    assert_eq!(sets[2], [(3, 0), (3, 1), (3, 2)], "its own");
    assert_eq!(sets[3], [(4, 0), (4, 1)]);
    assert_eq!(sets[4], [(5, 0)]);
}

#[test]
fn the_published_candidates_with_inner_nodes_silent() {
    let sets = asked_by_3_2(Presence::Served);
    assert_eq!(sets[0], [(1, 1), (1, 2), (1, 3), (1, 4)]);
    assert_eq!(sets[1], [(2, 1), (2, 2), (2, 3)]);
    assert_eq!(sets[3], [(4, 1)]);
    assert_eq!(sets[4], []);
}

/// 50 MB at 10 Gbit/s to 128 + 128 * 128 nodes in 128 chunks: the last leaf has its first chunk at
/// 0.080 s, and all after 127 more, at 383/128 S/g = 0.1197 s; a whole file takes 10.24 s.
#[test]
fn the_published_times() {
    let (bytes, rate) = (50_000_000_u64, 1_250_000_000);
    let at_rate = |sizes: Vec<u64>| {
        let header = Header {
            start_us: 0,
            rate,
            tree: tree(128 + 128 * 128, 128, 2),
            sizes: Sizes::Equal(sizes.len() as u32),
            deal: Deal::Cyclic,
        };
        Estimate::new(&header, sizes)
    };
    let chunked = at_rate(vec![bytes / 128; 128]);
    let first = chunked.distributed();
    assert_eq!(chunked.after_us(first), 80_000);
    let all = first + 127 * chunked.bytes(0);
    assert_eq!(all * 128, 383 * bytes, "383/128 S/g, exactly");
    assert_eq!(chunked.after_us(all), 119_688, "rounded up");
    let whole = at_rate(vec![bytes]);
    assert_eq!(whole.after_us(whole.distributed()), 10_240_000);
    assert_eq!(chunked.at(80_000), first);
    // The limit S/g is 0.040 s.
    assert_eq!(chunked.after_us(bytes), 40_000);
}

/// When every node holds every chunk that its branch was dealt, found by sending one thing after
/// the other instead of by the formula.
fn simulated(tree: &Tree, deal: &Deal, sizes: &[u64]) -> Vec<Vec<u64>> {
    let heads = tree.first_layer();
    let mut held: Vec<Vec<u64>> = vec![Vec::new(); tree.nodes() as usize];
    let mut chunks: Vec<Vec<u32>> = vec![Vec::new(); heads as usize];
    let mut clock = 0;
    for turn in 0..sizes.len() as u32 {
        for head in 0..heads {
            if let Some(chunk) = deal.chunk(head, turn, heads, sizes.len() as u32) {
                clock += sizes[chunk as usize];
                held[tree.heads().start as usize + head as usize].push(clock);
                chunks[head as usize].push(chunk);
            }
        }
    }
    for layer in 1..tree.layers() {
        for number in 0..tree.layer_nodes(layer) {
            let place = Place { layer, number };
            let own = held[tree.index(place) as usize].clone();
            let mut clock = 0;
            for (turn, arrived) in own.into_iter().enumerate() {
                clock = clock.max(arrived);
                for number in tree.children(place) {
                    let chunk = chunks[tree.branch(place) as usize][turn];
                    clock += sizes[chunk as usize];
                    let layer = layer + 1;
                    held[tree.index(Place { layer, number }) as usize].push(clock);
                }
            }
        }
    }
    held
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_formula_is_what_a_link_does(
        nodes in 1_u32..150, fan_out in 1_u32..12, layers in 2_u8..=4,
        sizes in prop::collection::vec(1_u64..9, 1..12), rounds in 0_u32..3,
    ) {
        let tree = tree(nodes, fan_out, layers);
        let deal = if rounds == 0 { Deal::Cyclic } else { Deal::Rounds(rounds) };
        let held = simulated(&tree, &deal, &sizes);
        let estimate = estimate(tree, deal, sizes.clone());
        for (index, held) in (0..).zip(&held) {
            let place = tree.place(index);
            prop_assert_eq!(estimate.dealt(tree.branch(place)).len(), held.len());
            for (turn, at) in (0..).zip(held) {
                prop_assert_eq!(estimate.held(place, turn), *at);
            }
            if tree.children(place).is_empty() {
                let last = held.last().expect("each gets a chunk");
                prop_assert_eq!(estimate.ready(place, Presence::Served), *last);
            } else {
                // Its youngest child has everything when it has passed everything on.
                let layer = place.layer + 1;
                let number = tree.children(place).end - 1;
                let youngest = estimate.pace(Place { layer, number }, held.len() as u32 - 1).held;
                prop_assert_eq!(estimate.ready(place, Presence::Served), youngest);
            }
        }
        let last = held.iter().filter_map(|held| held.last()).max();
        prop_assert_eq!(estimate.distributed(), *last.expect("there is a node"));
    }

    #[test]
    fn candidates_are_all_who_are_ready_and_no_others(
        nodes in 1_u32..120, fan_out in 1_u32..9, layers in 2_u8..=4, now in 0_u64..120,
        sizes in prop::collection::vec(1_u64..9, 1..9), chunk in any::<prop::sample::Index>(), always: bool,
    ) {
        let presence = if always { Presence::Always } else { Presence::Served };
        let estimate = estimate(tree(nodes, fan_out, layers), Deal::Cyclic, sizes.clone());
        let tree = *estimate.tree();
        let chunk = chunk.index(sizes.len()) as u32;
        for dealt in estimate.branches(chunk) {
            prop_assert_eq!(dealt.chunk, chunk);
            let mut expected = BTreeSet::new();
            let mut earliest = u64::MAX;
            for index in 0..nodes {
                let place = tree.place(index);
                if tree.branch(place) != dealt.head {
                    continue;
                }
                let ready = match presence {
                    Presence::Always => estimate.held(place, dealt.turn),
                    Presence::Served => estimate.ready(place, presence),
                };
                earliest = earliest.min(ready);
                if ready <= now {
                    expected.insert(index);
                }
            }
            let candidates = estimate.candidates(dealt, now, presence);
            prop_assert_eq!(candidates.count() as usize, expected.len());
            prop_assert_eq!(candidates.iter().collect::<BTreeSet<_>>(), expected);
            prop_assert_eq!(estimate.earliest(dealt, presence), earliest);
        }
    }

    #[test]
    fn every_chunk_has_its_branches(nodes in 1_u32..100, fan_out in 1_u32..9, chunks in 1_usize..40) {
        let estimate = estimate(tree(nodes, fan_out, 2), Deal::Cyclic, vec![1; chunks]);
        let mut count = 0;
        for chunk in 0..chunks as u32 {
            prop_assert!(estimate.branches(chunk).next().is_some());
            count += estimate.branches(chunk).count();
        }
        let heads = estimate.tree().first_layer();
        prop_assert_eq!(count, (0..heads).map(|head| estimate.dealt(head).len()).sum::<usize>());
    }

    #[test]
    fn clocks_and_links_agree(after in 0_u64..1 << 40, rate in 1_u64..1 << 40) {
        let mut estimate = estimate(tree(2, 1, 2), Deal::Cyclic, vec![1]);
        estimate.rate = rate;
        let sent = estimate.at(after);
        prop_assert!(estimate.after_us(sent) <= after);
        prop_assert!(estimate.after_us(sent.saturating_add(1)) > after || sent == u64::MAX);
    }
}
