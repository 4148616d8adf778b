//! The overlay in the simulator: what the method promises. `netstack_sim::check` has the random
//! scenarios.

use clap::Parser;
use netstack_sim::overlay::options::Options;
use netstack_sim::random::Family;
use netstack_sim::setup::Setup;
use netstack_sim::summary::Summary;
use netstack_sim::world::World;

fn run(setup: Setup) -> Result<Summary, String> {
    World::new(setup)?.run().map_err(|failure| failure.what)
}

/// What a command line of `cargo xtask sim overlay` comes to.
fn simulate(line: &str) -> Summary {
    let words = ["overlay", "--quiet"].into_iter();
    let options = Options::parse_from(words.chain(line.split_whitespace()));
    let setup = options.setup(1).expect("the options make sense");
    run(setup).unwrap_or_else(|what| panic!("cargo xtask sim overlay {line}: {what}"))
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    let digest = |seed| run(Family::Overlays.setup(seed)).map(|summary| summary.digest);
    assert_eq!(digest(7), digest(7));
    assert_ne!(digest(7), digest(8));
    let line = "--nodes 64 --loss 2 --crash 5 --clocks";
    assert_eq!(simulate(line), simulate(line));
}

#[test]
fn a_level_takes_little_more_than_its_slowest_child() {
    let summary = simulate("--nodes 256 --seconds 10");
    assert_eq!(summary.overlay().status.height, 2);
    // Beyond the stagger of its children, a level adds less than a millisecond.
    let [back_ends, leaves] = summary.overlay().levels[..] else {
        panic!("{:?}", summary.overlay().levels);
    };
    assert!(
        leaves.p99 < back_ends.p99 + 1_000,
        "{leaves:?} after {back_ends:?}"
    );
    assert!(
        summary.overlay().front.p99 < leaves.p99 + 1_000,
        "{:?} after {leaves:?}",
        summary.overlay().front
    );
}

#[test]
fn the_books_are_kept_at_every_loss_rate() {
    for (line, least, most) in [
        ("--loss 0", 0.0, 0.0),
        ("--loss 1", 0.005, 0.06),
        ("--loss 10", 0.1, 0.35),
    ] {
        // The run itself holds the books against the truth; this is how much is lost.
        let books = simulate(&format!("--nodes 128 --fan-out 8 --seconds 30 {line}"))
            .overlay()
            .books;
        let share = books.lost() as f64 / books.sent as f64;
        assert!((least..=most).contains(&share), "{line}: {books:?}");
        assert_eq!((books.missing, books.unheard), (0, 0), "{line}: {books:?}");
    }
}

#[test]
fn children_of_a_lost_process_find_another_within_four_seconds() {
    let summary = simulate("--nodes 256 --fault kill-cp:0@6500ms");
    assert!(
        summary.overlay().orphans.count >= 20 && summary.overlay().still_orphans == 0,
        "{:?}",
        summary.overlay().orphans
    );
    assert!(
        summary.overlay().orphans.most <= 4_000_000,
        "{:?}",
        summary.overlay().orphans
    );
}

#[test]
fn a_node_that_stands_still_pulls_nobody_down() {
    let summary = simulate("--nodes 256 --fault stop:0@6500ms --fault continue:0@13500ms");
    // Its own children look for another parent, nobody else does.
    assert!(
        summary.overlay().parents_lost <= 32,
        "{}",
        summary.overlay().parents_lost
    );
}

#[test]
fn taken_down_within_two_seconds_nothing_is_left() {
    for line in [
        "--nodes 256",
        "--nodes 256 --loss 1",
        "--nodes 64 --fan-out 4 --fault kill-cp:0@6500ms",
    ] {
        let summary = simulate(line);
        assert_eq!(summary.overlay().left_over, 0, "{line}");
        assert!(
            summary.overlay().down_ms < 2_000.0,
            "{line}: {} ms",
            summary.overlay().down_ms
        );
    }
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let setup = |line: &str| {
        let words = std::iter::once("overlay").chain(line.split_whitespace());
        Options::parse_from(words).setup(1).and_then(run)
    };
    assert!(setup("--filter median").unwrap_err().contains("no filter"));
    assert!(setup("--sync maybe").unwrap_err().contains("--sync"));
    assert!(
        setup("--placement /nowhere")
            .unwrap_err()
            .contains("/nowhere")
    );
    assert!(setup("--nodes 0").unwrap_err().contains("nodes"));
    assert!(setup("--fan-out 1").unwrap_err().contains("fan-out"));
    assert!(setup("--metrics 65").unwrap_err().contains("metrics"));
}
