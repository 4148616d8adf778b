//! Every scenario over a few seeds, and the simulator's own promises. `netstack_sim::check` has the
//! random scenarios.

use netstack::ids::{JobId, NodeId};
use netstack::rng::Rng;
use netstack::time::Micros;
use netstack_sim::jobs::program::{Plan, Step, Weight};
use netstack_sim::net::attacker::Attack;
use netstack_sim::random::Family;
use netstack_sim::scenario::{self, Scenario};
use netstack_sim::setup::{Fault, Setup};
use netstack_sim::summary::Summary;
use netstack_sim::world::{Failure, World};

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
        boot_within_ns: Some(0),
        deadline_ns: 60_000_000_000,
        ..scenario::quiet(1, 1)
    }
}

fn run(setup: Setup) -> Result<Summary, Failure> {
    World::new(setup).expect("it makes sense").run()
}

fn with(mut setup: Setup, plan: Plan) -> Setup {
    setup.jobs.get_or_insert_default().plans = vec![plan];
    setup
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
    assert_eq!(summary.jobs().joins, 2 * 1024);
    assert_eq!(summary.jobs().losses, 0);
    let all_up = summary
        .jobs()
        .all_up_ns
        .expect("all were up before the restart");
    assert!(all_up < 6_000_000_000, "all up after {all_up} ns");
    assert!(
        summary.jobs().datagrams < 100_000,
        "{} datagrams",
        summary.jobs().datagrams
    );
}

#[test]
fn jobs_lose_and_repeat_nothing() {
    for summary in pass("jobs", 1..=5) {
        assert_eq!(summary.jobs().completed, 6);
        assert!(summary.jobs().output_bytes > 0);
    }
}

#[test]
fn slow_readers_hold_programs_back() {
    for summary in pass("slow", 1..=5) {
        assert_eq!(summary.jobs().completed, 3);
        // 150,000 bytes at 20,000 bytes a second.
        assert!(summary.ended_ns > 7_500_000_000);
    }
}

#[test]
fn pages_arrive_through_loss_and_small_queues() {
    for summary in pass("pages", 1..=3) {
        assert_eq!(summary.jobs().completed, 3);
    }
}

#[test]
fn cancelled_jobs_end() {
    for summary in pass("cancel", 1..=10) {
        assert_eq!(summary.jobs().closed, 10);
    }
}

#[test]
fn crashed_and_cut_off_nodes_come_back() {
    for name in ["crash", "cut"] {
        for summary in pass(name, 1..=10) {
            assert_eq!(summary.jobs().closed, 8);
        }
    }
}

#[test]
fn a_restarted_control_node_goes_on() {
    let mut adopted = 0;
    for summary in pass("restart", 1..=10) {
        assert_eq!(summary.jobs().closed, 8);
        adopted += summary.jobs().adopted;
    }
    assert!(adopted > 0, "no restart met a job");
}

#[test]
fn programs_are_launched_again_where_they_are_held() {
    for summary in pass("warm", 1..=10) {
        assert!(summary.jobs().warm_ranks > 0, "{summary:?}");
        assert!(summary.jobs().dropped > 0, "{summary:?}");
    }
}

#[test]
fn a_thousand_nodes_launch_again_without_a_page_of_the_program() {
    let summary = &pass("relaunch", 1..=1)[0];
    assert_eq!(summary.jobs().completed, 3);
    // One datagram in ten is lost, so six of a node's heartbeats in a row are about once in twenty
    // runs; the node comes back with its job.
    assert!(summary.jobs().losses <= 1, "{summary:?}");
    assert_eq!(summary.jobs().warm_ranks, 2 * 1024);
    assert_eq!(summary.jobs().silent_ranks, 2 * 1024);
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    let run = |seed| Family::Jobs.run(seed).expect("it passes");
    assert_eq!(run(7), run(7));
    assert_ne!(run(7).digest, run(8).digest);
}

#[test]
fn on_a_quiet_network_a_node_joins_in_one_round_trip_and_a_half() {
    let mut setup = one_node();
    setup.noise.jitter_ns = 0;
    let summary = run(setup).expect("nothing goes wrong");
    let all_up = summary.jobs().all_up_ns.expect("the node is up") / 1000;
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
        (6_250_000, 64 << 10, 117),
    ] {
        let mut setup = one_node();
        setup.wiring.rate = 8 * rate;
        setup.control_factor = (1_250_000_000 / rate) as u32;
        setup.wiring.queue_bytes = queue;
        let mut plan = one_job(Vec::new());
        plan.launch_at = launch_at;
        plan.file_bytes = BYTES;
        plan.load = (0..512).map(|index| (index * 32_768, 32_768)).collect();
        let summary = run(with(setup, plan)).expect("nothing goes wrong");
        assert_eq!(summary.jobs().completed, 1);
        let took = summary.ended_ns / 1000 - launch_at.0;
        let least = BYTES * 1_000_000 / rate;
        assert!(
            took * 100 < least * limit_percent,
            "{took} us for what takes {least} us without headers, at {rate} bytes/s, {} datagrams",
            summary.jobs().datagrams
        );
    }
}

#[test]
fn a_computing_node_looks_at_the_network_once_a_second_and_is_not_lost() {
    let plan = one_job(vec![Step::Write(100), Step::Compute(Micros::from_secs(30))]);
    let summary = run(with(one_node(), plan)).expect("nothing goes wrong");
    assert_eq!((summary.jobs().completed, summary.jobs().losses), (1, 0));
    assert!(
        summary.jobs().datagrams < 85,
        "{} datagrams in 30 s",
        summary.jobs().datagrams
    );
}

#[test]
fn a_computing_node_sees_a_cancel_within_a_second() {
    let mut plan = one_job(vec![Step::Compute(Micros::from_secs(1000))]);
    plan.cancel_after = Some(Micros::from_secs(5));
    let summary = run(with(one_node(), plan)).expect("nothing goes wrong");
    assert_eq!(summary.jobs().closed, 1);
    assert!(
        summary.ended_ns < 7_000_000_000,
        "ended at {} ns",
        summary.ended_ns
    );
}

#[test]
fn a_node_that_stays_away_fails_the_run_with_the_reason() {
    let mut setup = one_node();
    setup.faults.push((0, Fault::Part(0, 1)));
    let failure = run(setup).expect_err("the node never gets through");
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
    let attack = Attack {
        replay_ppm: 300_000,
        flip_ppm: 20_000,
    };
    let mut more = 0;
    for seed in 1..=20 {
        let quiet = Family::Jobs
            .run_under(seed, Attack::default())
            .expect("it passes");
        let attacked = Family::Jobs.run_under(seed, attack);
        let attacked = attacked.unwrap_or_else(|what| panic!("{what}"));
        assert_ne!(attacked.digest, quiet.digest, "the attack was there");
        assert_eq!(attacked.jobs().closed, quiet.jobs().closed, "seed {seed}");
        more += u64::from(attacked.jobs().datagrams > quiet.jobs().datagrams);
    }
    assert!(more > 10, "what was flipped is sent again");
}
