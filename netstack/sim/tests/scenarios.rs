//! Every scenario over a few seeds, and the simulator's own promises. `netstack_sim::check` has the
//! random scenarios.

use netstack::ids::{JobId, NodeId};
use netstack::rng::Rng;
use netstack::time::{Instant, Micros};
use netstack_sim::attacker::Attack;
use netstack_sim::network::LinkParams;
use netstack_sim::program::{Plan, Step, Weight};
use netstack_sim::scenario::Scenario;
use netstack_sim::world::{Fault, Setup, Summary, World};

/// Runs a scenario over some seeds; a failure shows the command that replays it.
fn pass(name: &str, seeds: std::ops::RangeInclusive<u64>) -> Vec<Summary> {
    let scenario = Scenario::find(name).expect("the scenario exists");
    let run = |seed| {
        scenario
            .run(seed, scenario.nodes, Attack::default())
            .unwrap_or_else(|what| panic!("{what}"))
    };
    seeds.map(run).collect()
}

/// A quiet cluster of one node that boots at once.
fn one_node() -> Setup {
    Setup {
        attack: Attack::default(),
        seed: 1,
        nodes: 1,
        links: LinkParams::quiet(),
        control_inbox: 256,
        control_service: Micros(10),
        warm_pages: 1000,
        plans: Vec::new(),
        faults: vec![(Instant::ZERO, Fault::Boot(0))],
        deadline: Instant::from_micros(60_000_000),
    }
}

fn one_job(steps: Vec<Step>) -> Plan {
    let weight = Weight {
        steps: 1,
        write: 1,
        file: 100_000,
        compute: Micros(1),
    };
    let nodes = vec![NodeId(0)];
    let mut plan = Plan::random(JobId(1), nodes, weight, &mut Rng::new(1));
    plan.load.clear();
    plan.steps = steps;
    plan.stdin_bytes = 0;
    plan
}

#[test]
fn a_thousand_nodes_join_through_loss_and_again_after_a_restart_of_control() {
    let summary = &pass("join", 1..=1)[0];
    assert_eq!(summary.joins, 2 * 1024);
    assert_eq!(summary.losses, 0);
    let all_up = summary.all_up.expect("all were up before the restart");
    assert!(
        all_up < Instant::from_micros(6_000_000),
        "all up after {all_up} s"
    );
    assert!(
        summary.datagrams < 100_000,
        "{} datagrams",
        summary.datagrams
    );
}

#[test]
fn jobs_lose_and_repeat_nothing() {
    for summary in pass("jobs", 1..=5) {
        assert_eq!(summary.completed, 6);
        assert!(summary.output_bytes > 0);
    }
}

#[test]
fn slow_readers_hold_programs_back() {
    for summary in pass("slow", 1..=5) {
        assert_eq!(summary.completed, 3);
        // 150,000 bytes at 20,000 bytes a second.
        assert!(summary.ended > Instant::from_micros(7_500_000));
    }
}

#[test]
fn pages_arrive_through_loss_and_small_queues() {
    for summary in pass("pages", 1..=3) {
        assert_eq!(summary.completed, 3);
    }
}

#[test]
fn cancelled_jobs_end() {
    for summary in pass("cancel", 1..=10) {
        assert_eq!(summary.closed, 10);
    }
}

#[test]
fn crashed_and_cut_off_nodes_come_back() {
    for name in ["crash", "cut"] {
        for summary in pass(name, 1..=10) {
            assert_eq!(summary.closed, 8);
        }
    }
}

#[test]
fn a_restarted_control_node_goes_on() {
    let mut adopted = 0;
    for summary in pass("restart", 1..=10) {
        assert_eq!(summary.closed, 8);
        adopted += summary.adopted;
    }
    assert!(adopted > 0, "no restart met a job");
}

#[test]
fn programs_are_launched_again_where_they_are_held() {
    for summary in pass("warm", 1..=10) {
        assert!(summary.warm_ranks > 0, "{summary:?}");
        assert!(summary.dropped > 0, "{summary:?}");
    }
}

#[test]
fn a_thousand_nodes_launch_again_without_a_page_of_the_program() {
    let summary = &pass("relaunch", 1..=1)[0];
    assert_eq!(summary.completed, 3);
    // One datagram in ten is lost, so six of a node's heartbeats in a row are about once in twenty
    // runs; the node comes back with its job.
    assert!(summary.losses <= 1, "{summary:?}");
    assert_eq!(summary.warm_ranks, 2 * 1024);
    assert_eq!(summary.silent_ranks, 2 * 1024);
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    let first = pass("swarm", 7..=7);
    assert_eq!(first, pass("swarm", 7..=7));
    assert_ne!(first[0].digest, pass("swarm", 8..=8)[0].digest);
}

#[test]
fn on_a_quiet_network_a_node_joins_in_one_round_trip_and_a_half() {
    let mut setup = one_node();
    setup.links.jitter = Micros::ZERO;
    let summary = World::new(setup).run().expect("nothing goes wrong");
    let all_up = summary.all_up.expect("the node is up").as_micros();
    assert!(
        (150..250).contains(&all_up),
        "{all_up} us: HELLO, WELCOME, HEARTBEAT of 50 us each"
    );
}

#[test]
fn a_large_program_is_read_as_fast_as_the_link_goes() {
    const BYTES: u64 = 16 << 20;
    let launch_at = Micros::from_millis(10);
    // 50 and 500 Mbit/s with queues that hold all that is under way, and one that does not.
    for (rate, queue, limit_percent) in [
        (6_250_000, 1 << 20, 110),
        (62_500_000, 1 << 20, 112),
        (6_250_000, 64 << 10, 114),
    ] {
        let mut setup = one_node();
        setup.links.node_rate = rate;
        setup.links.queue_bytes = queue;
        let mut plan = one_job(Vec::new());
        plan.launch_at = launch_at;
        plan.file_bytes = BYTES;
        plan.load = (0..512).map(|index| (index * 32_768, 32_768)).collect();
        setup.plans = vec![plan];
        let summary = World::new(setup).run().expect("nothing goes wrong");
        assert_eq!(summary.completed, 1);
        let took = summary.ended.as_micros() - launch_at.0;
        let least = BYTES * 1_000_000 / rate;
        assert!(
            took * 100 < least * limit_percent,
            "{took} us for what takes {least} us without headers, at {rate} bytes/s, {} datagrams",
            summary.datagrams
        );
    }
}

#[test]
fn a_computing_node_looks_at_the_network_once_a_second_and_is_not_lost() {
    let mut setup = one_node();
    setup.plans = vec![one_job(vec![
        Step::Write(100),
        Step::Compute(Micros::from_secs(30)),
    ])];
    let summary = World::new(setup).run().expect("nothing goes wrong");
    assert_eq!((summary.completed, summary.losses), (1, 0));
    assert!(
        summary.datagrams < 85,
        "{} datagrams in 30 s",
        summary.datagrams
    );
}

#[test]
fn a_computing_node_sees_a_cancel_within_a_second() {
    let mut setup = one_node();
    let mut plan = one_job(vec![Step::Compute(Micros::from_secs(1000))]);
    plan.cancel_after = Some(Micros::from_secs(5));
    setup.plans = vec![plan];
    let summary = World::new(setup).run().expect("nothing goes wrong");
    assert_eq!(summary.closed, 1);
    assert!(
        summary.ended < Instant::from_micros(7_000_000),
        "ended at {} s",
        summary.ended
    );
}

#[test]
fn a_node_that_stays_away_fails_the_run_with_the_reason() {
    let mut setup = one_node();
    setup.faults.push((Instant::ZERO, Fault::Cut(0)));
    let failure = World::new(setup)
        .run()
        .expect_err("the node never gets through");
    assert!(
        failure.what.contains("not done by the deadline"),
        "{}",
        failure.what
    );
    assert!(!failure.trace.is_empty());
}

/// Somebody without a key says a third of all datagrams again, and flips bits in some: it is
/// noticed, and nothing of the cluster changes by it.
#[test]
fn what_is_said_again_or_flipped_is_refused_and_changes_nothing() {
    let scenario = Scenario::find("swarm").expect("the scenario exists");
    let attack = Attack {
        replay_ppm: 300_000,
        flip_ppm: 20_000,
    };
    let mut more = 0;
    for seed in 1..=20 {
        let quiet = scenario.run(seed, 0, Attack::default()).expect("it passes");
        let attacked = scenario.run(seed, 0, attack);
        let attacked = attacked.unwrap_or_else(|what| panic!("{what}"));
        assert_ne!(attacked.digest, quiet.digest, "the attack was there");
        assert_eq!(attacked.closed, quiet.closed, "seed {seed}");
        more += u64::from(attacked.datagrams > quiet.datagrams);
    }
    assert!(more > 10, "what was flipped is sent again");
}
