//! Casts in the simulator: what the method promises. `netstack_sim::check` has the random
//! scenarios.

use clap::Parser;
use netstack::broadcast::Scheme;
use netstack_sim::casts::options::Options;
use netstack_sim::casts::plan::CastPlan;
use netstack_sim::net::fabric::Noise;
use netstack_sim::random::Family;
use netstack_sim::setup::{Fault, Setup};
use netstack_sim::summary::Summary;
use netstack_sim::world::World;

fn run(setup: Setup) -> Result<Summary, String> {
    World::new(setup)?.run().map_err(|failure| failure.what)
}

/// What a command line of `cargo xtask sim broadcast` comes to.
fn simulate(line: &str) -> Summary {
    let words = ["broadcast", "--quiet"].into_iter();
    let options = Options::parse_from(words.chain(line.split_whitespace()));
    let setup = options.setup(1).expect("the options make sense");
    run(setup).unwrap_or_else(|what| panic!("cargo xtask sim broadcast {line}: {what}"))
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    let digest = |seed| run(Family::Casts.setup(seed)).map(|summary| summary.digest);
    assert_eq!(digest(7), digest(7));
    assert_ne!(digest(7), digest(8));
    let line = "--nodes 40 --bytes 1MB --loss 2%";
    assert_eq!(simulate(line), simulate(line));
}

#[test]
fn few_nodes_take_little_more_than_one_link_needs() {
    for nodes in [8, 16, 64] {
        let summary = simulate(&format!("--nodes {nodes} --bytes 8192000"));
        let cast = &summary.casts().each[0];
        assert_eq!(cast.healthy, nodes);
        assert!(cast.ratio_max <= 1.10, "{nodes} nodes: {}", cast.ratio_max);
        assert!(
            summary.casts().duplicates <= 0.005,
            "{nodes} nodes: {}",
            summary.casts().duplicates
        );
        // A port holds 256,000 bytes: what would exceed that is dropped and counted.
        assert_eq!(summary.tally.overflowed, 0, "{nodes} nodes");
    }
}

#[test]
fn loss_and_a_death_delay_nobody_much() {
    for (line, most) in [("--loss 1%", 1.25), ("--kill first-layer", 1.25)] {
        let summary = simulate(&format!("--nodes 64 {line}"));
        let ratio = summary.casts().each[0].ratio_max;
        assert!(ratio <= most, "{line}: {ratio}");
    }
}

#[test]
fn little_data_takes_little_longer_than_one_link_needs() {
    let summary = simulate("--nodes 512 --bytes 2MB");
    let ratio = summary.casts().each[0].ratio_max;
    assert!(ratio <= 1.20, "{ratio}");
    // Announcements that are lost, or whose receiver is dead, come again soon.
    let summary = simulate("--nodes 300 --bytes 2MB --loss 1% --kill 2%");
    let ratio = summary.casts().each[0].ratio_max;
    assert!(ratio <= 4.0, "{ratio}");
    assert!(
        summary.casts().source_objects() < 1.2,
        "{}",
        summary.casts().source_objects()
    );
}

#[test]
fn real_datagrams_take_as_long_as_trains() {
    let line = "--nodes 16 --bytes 2MB --rate 100Mbit --latency 50us";
    let (trains, datagrams) = (simulate(line), simulate(&format!("{line} --real")));
    let apart = trains.casts().each[0].ratio_max / datagrams.casts().each[0].ratio_max;
    assert!((0.95..1.05).contains(&apart), "{apart}");
}

#[test]
fn the_more_nodes_are_warm_the_less_the_control_node_sends() {
    let sent = |warm| {
        simulate(&format!("--nodes 64 --bytes 4MB --warm {warm}%"))
            .casts()
            .source_objects()
    };
    let sent: Vec<f64> = [0, 25, 50, 75].map(sent).into();
    assert!(sent.is_sorted_by(|a, b| a > b), "{sent:?}");
    assert!(sent[1] < 0.2, "{sent:?}");
}

#[test]
fn casts_at_once_share_the_link_fairly() {
    for casts in [2, 3] {
        let summary = simulate(&format!("--nodes 32 --bytes 4MB --casts {casts}"));
        assert!(
            summary.casts().fairness > 0.98,
            "{casts} casts: {}",
            summary.casts().fairness
        );
        for cast in &summary.casts().each {
            // The last of them ends about when one link has carried all of them.
            let most = 1.15 * casts as f64;
            assert!(cast.ratio_max < most, "{casts} casts: {}", cast.ratio_max);
        }
    }
}

#[test]
fn casts_of_different_rates_keep_to_their_own() {
    let line = "--nodes 16 --bytes 4MB --rate 1Gbit";
    let alone = simulate(line).casts().each[0].ratio_max;
    // The slow one has nothing of the link but a fiftieth.
    let summary = simulate(&format!("{line} --casts 2 --rates 1Gbit,20Mbit"));
    let [fast, slow] = &summary.casts().each[..] else {
        panic!("there are two casts");
    };
    assert!(fast.ratio_max < 1.06 * alone, "{} {alone}", fast.ratio_max);
    assert!((0.99..1.1).contains(&slow.ratio_max), "{}", slow.ratio_max);
}

#[test]
fn nodes_without_room_are_passed_by_at_once() {
    let line = "--nodes 64 --bytes 8MB --latency 200us";
    let alone = simulate(line).casts().each[0].ratio_max;
    // Announcements are repeated before the first refusals are back.
    let summary = simulate(&format!("{line} --members 64 --full 5%"));
    let cast = &summary.casts().each[0];
    assert_eq!((cast.healthy, cast.refused), (61, 3));
    assert!(cast.ratio_max < 1.5 * alone, "{} {alone}", cast.ratio_max);
}

#[test]
fn nodes_that_have_room_for_two_casts_take_the_third_when_one_is_over() {
    let summary = simulate("--nodes 64 --bytes 4MB --latency 200us --members 128 --casts 3");
    let refused: u32 = summary.casts().each.iter().map(|cast| cast.refused).sum();
    let healthy: u32 = summary.casts().each.iter().map(|cast| cast.healthy).sum();
    assert_eq!((healthy, refused), (192, 0));
    assert_eq!(summary.casts().recasts, 0);
}

#[test]
fn every_node_finds_the_ranks_of_a_table_that_it_got() {
    let summary = simulate("--nodes 3 --table 20000 --real");
    assert_eq!(summary.casts().looked_up, 3 * 1002);
}

fn real(nodes: u32, bytes: u64) -> Setup {
    let mut setup = Setup::one_cast(1, nodes, bytes, Scheme::Auto);
    setup.real = true;
    setup.deadline_ns = 100_000_000_000;
    setup
}

#[test]
fn who_serves_wrong_bytes_is_named_and_does_no_harm() {
    let mut setup = real(12, 500_000);
    setup.faults = vec![(0, Fault::Corrupt(3))];
    let summary = run(setup).expect("all have what was cast");
    assert_eq!(summary.casts().corrupt_senders, 1);
}

#[test]
fn a_node_that_restarts_or_comes_late_gets_the_rest() {
    let mut setup = real(12, 500_000);
    setup.casts[0].members = (0..11).collect();
    setup.faults = vec![
        (100_000, Fault::Boot(2)),
        (200_000, Fault::Join { cast: 0, node: 11 }),
    ];
    run(setup).expect("all have what was cast");
}

#[test]
fn halves_of_a_cluster_that_find_together_again_both_get_everything() {
    // Shortly, and for so long that everybody beyond the cut is given up; the limit is 0.9 ms.
    for (heal_ns, casts) in [(2_000_000, 1), (10_000_000_000, 2)] {
        let mut setup = real(16, 1_000_000);
        let plan = setup.casts[0].clone();
        setup.casts.resize(casts, plan);
        for node in 8..16 {
            setup.faults.push((300_000, Fault::Part(node, 1)));
            setup.faults.push((heal_ns, Fault::Part(node, 0)));
        }
        setup.faults.sort_by_key(|(at_ns, _)| *at_ns);
        // The checker looks for all of the data at every node, those beyond the cut included.
        let summary = run(setup).unwrap_or_else(|what| panic!("healed at {heal_ns} ns: {what}"));
        for cast in &summary.casts().each {
            assert_eq!((cast.members, cast.healthy), (16, 16));
            assert!(cast.ratio_max.is_finite(), "{}", cast.ratio_max);
            assert!(cast.finished_ns > heal_ns, "it was cut, and healed");
        }
    }
}

#[test]
fn a_cancelled_cast_leaves_nothing_behind() {
    for at_ns in [0, 1_000, 50_000, 200_000, 350_000] {
        let mut setup = real(12, 500_000);
        setup.casts[0].cancel_ns = Some(at_ns);
        // The checker counts requests, parked requests, buffers and queued messages of every
        // station.
        let summary = run(setup).expect("nothing is left");
        assert!(summary.casts().each[0].cancelled);
    }
}

#[test]
fn a_control_node_that_returns_sends_only_the_rest() {
    let mut setup = real(12, 1_000_000);
    setup.faults = vec![
        (600_000, Fault::CrashControl),
        (2_000_000, Fault::RestartControl),
    ];
    let summary = run(setup).expect("all have what was cast");
    assert!(
        summary.casts().source_objects() < 1.5,
        "{}",
        summary.casts().source_objects()
    );
}

#[test]
fn a_node_out_of_reach_fails_the_run_with_its_name() {
    let mut setup = real(4, 100_000);
    setup.deadline_ns = 1_000_000;
    setup.faults = vec![(
        0,
        Fault::Noise(Noise {
            loss_ppm: 999_999,
            ..Default::default()
        }),
    )];
    let what = run(setup).expect_err("nothing gets through");
    assert!(what.contains("n3 has 0 of"), "{what}");
}

#[test]
fn a_plan_that_makes_no_sense_is_refused() {
    let mut setup = real(4, 100_000);
    setup.casts.push(CastPlan {
        members: vec![4],
        ..setup.casts[0].clone()
    });
    assert!(run(setup).unwrap_err().contains("no node"));
}
