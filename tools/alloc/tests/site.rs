//! Placement in a site's own tree, against trying every set of nodes in the tree as it is written.
//!
//! The checker knows the switches above each node by name and shares no code with the crate.

use std::collections::BTreeMap;

use hearth_alloc::placement::exact::{self, Candidate};
use hearth_alloc::site::Site;
use proptest::prelude::*;

/// Nodes on each leaf switch, by the switch above that.
type Shape = Vec<Vec<u32>>;

/// The file, and the leaf and the upper switch of each host.
fn written(shape: &Shape) -> (String, BTreeMap<String, (usize, usize)>) {
    let (mut text, mut above) = (String::new(), BTreeMap::new());
    let (mut leaf, mut host) = (0, 0);
    for (upper, leaves) in shape.iter().enumerate() {
        let first = leaf;
        for &nodes in leaves {
            text += &format!(
                "SwitchName=leaf{leaf} Nodes=h[{host}-{}]\n",
                host + nodes - 1
            );
            for number in host..host + nodes {
                above.insert(format!("h{number}"), (leaf, upper));
            }
            host += nodes;
            leaf += 1;
        }
        text += &format!(
            "SwitchName=upper{upper} Switches=leaf[{first}-{}]\n",
            leaf - 1
        );
    }
    text += &format!("SwitchName=top Switches=upper[0-{}]\n", shape.len() - 1);
    (text, above)
}

fn hops(a: (usize, usize), b: (usize, usize)) -> i64 {
    match (a.0 == b.0, a.1 == b.1) {
        (true, _) => 1,
        (false, true) => 3,
        (false, false) => 5,
    }
}

/// The fewest hops between `count` of these.
fn fewest(places: &[(usize, usize)], count: usize) -> i64 {
    fn choose(places: &[(usize, usize)], chosen: &mut Vec<(usize, usize)>, left: usize) -> i64 {
        if left == 0 {
            let pairs = chosen.iter().enumerate();
            return pairs
                .flat_map(|(at, a)| chosen[at + 1..].iter().map(|b| hops(*a, *b)))
                .sum();
        }
        let mut best = i64::MAX;
        for at in 0..places.len() {
            if places.len() - at < left {
                break;
            }
            chosen.push(places[at]);
            best = best.min(choose(&places[at + 1..], chosen, left - 1));
            chosen.pop();
        }
        best
    }
    choose(places, &mut Vec::new(), count)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn placement_is_exact_between_unequal_switches(
        shape in prop::collection::vec(prop::collection::vec(1..5_u32, 1..4), 1..4),
        busy in prop::collection::vec(any::<bool>(), 48),
        count in 1..6_usize,
    ) {
        let (text, above) = written(&shape);
        let wired = Site::read(&text).unwrap().number().unwrap();
        prop_assert_eq!(wired.nodes.len(), above.len());
        // Numbers that the nodes have already lead to the same tree.
        let numbers: BTreeMap<&str, u32> =
            wired.nodes.iter().map(|(number, name)| (name.as_str(), *number)).collect();
        let again = Site::read(&text).unwrap().with_numbers(|name| numbers.get(name).copied());
        let again = again.unwrap().topology();
        let tree = wired.topology();
        for (a, name) in &wired.nodes {
            for (b, other) in wired.nodes.iter().filter(|(b, _)| *b != a) {
                let real = hops(above[name], above[other]);
                prop_assert_eq!(i64::from(tree.hops(*a, *b)), real);
                prop_assert_eq!(i64::from(again.hops(*a, *b)), real);
            }
        }
        let free: Vec<(u32, &String)> = wired
            .nodes
            .iter()
            .zip(&busy)
            .filter(|(_, busy)| !**busy)
            .map(|((number, name), _)| (*number, name))
            .take(14)
            .collect();
        let candidates: Vec<Candidate> =
            free.iter().map(|(node, _)| Candidate { node: *node, warm: false }).collect();
        let placed = exact::place(&tree, &candidates, count);
        let places: Vec<(usize, usize)> = free.iter().map(|(_, name)| above[*name]).collect();
        match placed {
            None => prop_assert!(free.len() < count),
            Some(placed) => prop_assert_eq!(placed.hops, fewest(&places, count)),
        }
    }
}
