//! Everything on one cluster, under every fault: that a run of it has all of it, and that it fails
//! where not all is well again.

use netstack_sim::random::Family;
use netstack_sim::setup::{Fault, Setup};
use netstack_sim::summary::Summary;
use netstack_sim::world::World;

fn run(setup: Setup) -> Result<Summary, String> {
    World::new(setup)?.run().map_err(|failure| failure.what)
}

fn healed_ns(setup: &Setup) -> u64 {
    setup.heals_at().expect("every one of them heals")
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    let digest = |seed| run(Family::Together.setup(seed)).map(|summary| summary.digest);
    assert_eq!(digest(7), digest(7));
    assert_ne!(digest(7), digest(8));
}

#[test]
fn every_service_is_at_work() {
    let (mut jobs, mut adopted, mut steps, mut casts, mut samples, mut recasts) =
        (0, 0, 0, 0, 0, 0);
    for seed in 1..=30 {
        let summary = Family::Together
            .run(seed)
            .unwrap_or_else(|what| panic!("{what}"));
        jobs += summary.jobs().completed;
        adopted += summary.jobs().adopted;
        steps += summary.exchange().steps.0;
        casts += summary
            .casts()
            .each
            .iter()
            .filter(|cast| cast.healthy > 0)
            .count();
        recasts += summary.casts().recasts;
        samples += summary.overlay().books.stored;
    }
    assert!(
        jobs > 30 && adopted > 0,
        "{jobs} jobs, {adopted} ranks adopted"
    );
    assert!(steps > 100, "{steps} exchanges and messages");
    assert!(
        casts > 30 && recasts > 5,
        "{casts} casts, {recasts} made anew"
    );
    assert!(samples > 1_000, "{samples} samples stored");
}

#[test]
fn every_fault_is_drawn() {
    let setups = (1..=300).map(|seed| Family::Together.setup(seed));
    let faults: Vec<Fault> = setups
        .flat_map(|setup| setup.faults)
        .map(|it| it.1)
        .collect();
    let kinds: std::collections::HashSet<_> = faults.iter().map(std::mem::discriminant).collect();
    // All that there are.
    assert_eq!(kinds.len(), 22);
}

#[test]
fn what_is_not_mended_or_has_too_little_time_fails_with_what_is_missing() {
    let mut cut = Family::Together.setup(3);
    let healed = healed_ns(&cut);
    cut.faults.push((healed + 1, Fault::Part(0, 1)));
    cut.deadline_ns = healed + 30_000_000_000;
    let what = run(cut).expect_err("a node is out of reach");
    assert!(what.contains("n0 is out of reach"), "{what}");

    let mut short = Family::Together.setup(3);
    short.deadline_ns = healed + 1;
    let what = run(short).expect_err("no time is left");
    assert!(what.contains("not done by the deadline"), "{what}");
}
