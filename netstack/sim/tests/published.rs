//! The published scheme and its special cases in the simulator: everybody gets everything, in about
//! the time that the publication computes.

use netstack::broadcast::published::estimate::Presence;
use netstack::broadcast::published::header::{Deal, Place, Sizes};
use netstack::broadcast::published::{Choice, Policy};
use netstack::broadcast::{PublishedOptions, Scheme};
use netstack_sim::baselines::broadcast;
use netstack_sim::setup::{Fault, Setup};
use netstack_sim::summary::Summary;
use netstack_sim::world::World;

const BYTES: u64 = 1_000_000;

fn run(setup: Setup) -> Summary {
    let text = format!("{:?}, {} nodes", setup.casts[0].scheme, setup.nodes);
    let world = World::new(setup).expect("the setup makes sense");
    match world.run() {
        Ok(summary) => summary,
        Err(failure) => panic!("{text}: {}", failure.what),
    }
}

fn cast(nodes: u32, options: PublishedOptions) -> Setup {
    Setup::one_cast(1, nodes, BYTES, Scheme::Published(options))
}

/// The checker of the simulator compares every node's data at the end.
#[test]
fn every_variant_ends_for_everybody() {
    let plain = PublishedOptions::default;
    let variants = [
        plain(),
        PublishedOptions {
            policy: Policy::NodeFirst,
            choice: Choice::Middle,
            ..plain()
        },
        PublishedOptions {
            choice: Choice::Highest,
            presence: Presence::Always,
            ..plain()
        },
        PublishedOptions {
            layers: 3,
            sizes: Some(Sizes::Equal(40)),
            ..plain()
        },
        PublishedOptions {
            fan_out: 2,
            sizes: Some(Sizes::Given(vec![(2, 3), (1, 20)])),
            deal: Deal::Chosen(vec![1, 0]),
            ..plain()
        },
        PublishedOptions {
            sizes: Some(Sizes::Equal(12)),
            deal: Deal::Rounds(4),
            fallback: false,
            ..plain()
        },
    ];
    for options in variants {
        for nodes in [1, 2, 3, 20, 43] {
            let mut setup = cast(nodes, options.clone());
            if nodes == 20 {
                setup.real = true;
            }
            let summary = run(setup);
            assert_eq!(summary.casts().each[0].healthy, nodes, "{options:?}");
        }
    }
}

/// With the middle or the highest candidate everybody asks the same ones first: they may all be
/// dead.
#[test]
fn dead_favourites_hold_nobody_up_for_ever() {
    for choice in [Choice::Middle, Choice::Highest] {
        let options = PublishedOptions {
            fan_out: 12,
            policy: Policy::NodeFirst,
            choice,
            ..PublishedOptions::default()
        };
        let tree = options.tree(52).expect("it is in range");
        let last = tree.children(Place {
            layer: 1,
            number: tree.first_layer() - 1,
        });
        for (dead, at_ns) in [(4, 900_000), (8, 0), (8, 900_000), (12, 300_000)] {
            let mut setup = cast(52, options.clone());
            let leaves = (last.start..last.end).rev().take(dead);
            let places = leaves.map(|number| Place { layer: 2, number });
            setup.faults = places
                .map(|place| (at_ns, Fault::Die(tree.index(place))))
                .collect();
            // The checker takes a living member that was given up for a fault.
            assert_eq!(run(setup).casts().each[0].healthy, 52 - dead as u32);
        }
    }
}

#[test]
fn a_dead_head_holds_nobody_up_for_ever() {
    let options = PublishedOptions::default();
    let head = options.tree(43).expect("it is in range").heads().start;
    for at_ns in [0, 200_000, 1_000_000] {
        let mut setup = cast(43, options.clone());
        setup.faults = vec![(at_ns, Fault::Die(head))];
        assert_eq!(run(setup).casts().each[0].healthy, 42);
    }
}

/// 7 first-layer nodes with up to 6 children each pass a file on in 7 + 6 times the limit, control
/// alone in as many times as there are nodes.
#[test]
fn whole_files_take_as_long_as_computed() {
    for (scheme, limits) in [(broadcast::tree(6), 13.0), (broadcast::direct(), 43.0)] {
        let summary = run(Setup::one_cast(1, 43, BYTES, scheme.clone()));
        let ratio = summary.casts().each[0].ratio_max;
        assert!(
            (0.95..1.15).contains(&(ratio / limits)),
            "{scheme:?}: {ratio}"
        );
    }
}
