//! Runs the simulator from the command line.
//!
//! ```text
//! hearth-sim SCENARIO [--seed N] [--nodes M] [--runs R]   one run, or R runs from seed N on
//!                     [--replay P] [--flip P]             while somebody says datagrams again and flips bits
//! hearth-sim check                                        what every change has to pass
//! hearth-sim table                                        what the scenarios come to, to be reviewed
//! hearth-sim list                                         the scenarios
//! hearth-sim broadcast [OPTIONS]                          a cast at any scale; --help shows the options
//! hearth-sim exchange [OPTIONS]                           an all-to-all exchange at any scale
//! hearth-sim overlay [OPTIONS]                            the monitoring overlay, likewise
//! ```

use std::ops::Range;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use netstack_sim::attacker::{self, Attack};
use netstack_sim::broadcast::{self, swarm::Swarm, world::World};
use netstack_sim::exchange;
use netstack_sim::overlay;
use netstack_sim::scenario::{ALL, Scenario};

/// Seeds of the swarm in a check.
const CHECK_SWARM: u64 = 300;
/// The table as it was reviewed last.
const REVIEWED: &str = include_str!("../../reviewed.txt");
/// Seeds of the swarm of casts in a check.
const CHECK_CASTS: u64 = 600;
/// Seeds of the swarm of casts with all options in a check.
const CHECK_WIDE: u64 = 400;
/// Seeds of the swarm of many casts over long ways in a check.
const CHECK_FAR: u64 = 200;
/// Seeds of the swarm of overlays in a check.
const CHECK_OVERLAYS: u64 = 300;
/// Seeds of the swarm of overlays whose tree is made anew in a check.
const CHECK_MOVES: u64 = 150;
/// Seeds of the swarm of exchanges in a check.
const CHECK_EXCHANGES: u64 = 600;
/// Seeds of each swarm in a check while somebody says datagrams again and flips bits.
const CHECK_ATTACKS: u64 = 60;
/// Seeds of every other scenario in a check.
const CHECK_OTHERS: u64 = 5;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "broadcast") {
        // The name of the subcommand stands for that of the program.
        return broadcast::options::Options::parse_from(&arguments).run(&arguments);
    }
    if arguments.first().is_some_and(|first| first == "exchange") {
        return if exchange::options::Options::parse_from(&arguments).run() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        };
    }
    if arguments.first().is_some_and(|first| first == "overlay") {
        return if overlay::options::Options::parse_from(&arguments).run() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        };
    }
    match parse(&arguments) {
        Ok(Command::List) => {
            for scenario in ALL {
                println!(
                    "{:8} {} (nodes: {})",
                    scenario.name, scenario.about, scenario.nodes
                );
            }
            ExitCode::SUCCESS
        }
        Ok(Command::Check) => check(),
        Ok(Command::Table) => {
            print!("{}", table());
            ExitCode::SUCCESS
        }
        Ok(Command::Run {
            scenario,
            seed,
            nodes,
            runs,
            attack,
        }) => report(&run(
            scenario,
            seed..seed.saturating_add(runs),
            nodes,
            attack,
            true,
        )),
        Err(what) => {
            eprintln!(
                "hearth-sim: {what}\nusage: hearth-sim SCENARIO [--seed N] [--nodes M] [--runs R] [--replay PERCENT] [--flip PERCENT] | check | table | list | broadcast --help | exchange --help | overlay --help"
            );
            ExitCode::from(2)
        }
    }
}

enum Command {
    List,
    Check,
    Table,
    Run {
        scenario: Scenario,
        seed: u64,
        nodes: usize,
        runs: u64,
        attack: Attack,
    },
}

fn parse(arguments: &[String]) -> Result<Command, String> {
    let name = arguments
        .first()
        .ok_or("which scenario? `list` shows them")?;
    match name.as_str() {
        "list" => return Ok(Command::List),
        "check" => return Ok(Command::Check),
        "table" => return Ok(Command::Table),
        _ => {}
    }
    let scenario = Scenario::find(name).ok_or_else(|| format!("no scenario called {name}"))?;
    let (mut seed, mut nodes, mut runs) = (1, scenario.nodes as u64, 1);
    let mut attack = Attack::default();
    let mut rest = arguments[1..].iter();
    while let Some(flag) = rest.next() {
        let text = rest
            .next()
            .ok_or_else(|| format!("{flag} needs a number"))?;
        let value = match flag.as_str() {
            "--seed" => &mut seed,
            "--nodes" => &mut nodes,
            "--runs" => &mut runs,
            "--replay" => {
                attack.replay_ppm = attacker::percent(text)?;
                continue;
            }
            "--flip" => {
                attack.flip_ppm = attacker::percent(text)?;
                continue;
            }
            _ => return Err(format!("what is {flag}?")),
        };
        *value = text
            .parse()
            .map_err(|_| format!("{flag} needs a number, not {text}"))?;
    }
    if nodes > 60_000 {
        return Err("at most 60,000 nodes".into());
    }
    Ok(Command::Run {
        scenario,
        seed,
        nodes: nodes as usize,
        runs,
        attack,
    })
}

/// Passed and failed runs.
#[derive(Default)]
struct Score {
    passed: u64,
    failed: u64,
}

fn run(scenario: Scenario, seeds: Range<u64>, nodes: usize, attack: Attack, talk: bool) -> Score {
    let mut score = Score::default();
    for seed in seeds {
        let begin = Instant::now();
        match scenario.run(seed, nodes, attack) {
            Ok(summary) => {
                score.passed += 1;
                if talk {
                    println!(
                        "{} seed {seed}: {summary:?}, {:?}",
                        scenario.name,
                        begin.elapsed()
                    );
                }
            }
            Err(what) => {
                score.failed += 1;
                println!("{what}");
            }
        }
    }
    score
}

/// One line for each scenario with seed 1, in the order of [`ALL`], then the casts and the overlays.
fn table() -> String {
    let mut text = String::from(
        "# What each scenario comes to with seed 1, as reviewed. A change of the protocol shows here: look whether it\n\
         # is meant, then `cargo xtask sim table > netstack/sim/reviewed.txt`.\n",
    );
    for scenario in ALL {
        let line = match scenario.run(1, scenario.nodes, Attack::default()) {
            Err(_) => format!("{}: failed\n", scenario.name),
            Ok(summary) => format!(
                "{}: {} ms, {} datagrams, {} joins, {} losses, {} bytes of output; jobs: {} closed, {} of them whole; ranks: {} went on over a restart, {} warm, {} without a page; {} drops\n",
                scenario.name,
                summary.ended.as_micros() / 1000,
                summary.datagrams,
                summary.joins,
                summary.losses,
                summary.output_bytes,
                summary.closed,
                summary.completed,
                summary.adopted,
                summary.warm_ranks,
                summary.silent_ranks,
                summary.dropped,
            ),
        };
        text.push_str(&line);
    }
    text.push_str(&broadcast::reviewed::table());
    text.push_str(&exchange::reviewed::table());
    text.push_str(&overlay::reviewed::table());
    text
}

/// Compares the table with the reviewed one; the lines that differ are shown.
fn compare(score: &mut Score) {
    let found = table();
    let found: Vec<&str> = found.lines().collect();
    let reviewed: Vec<&str> = REVIEWED.lines().collect();
    if found == reviewed {
        score.passed += 1;
        return;
    }
    score.failed += 1;
    for line in &reviewed {
        if !found.contains(line) {
            println!("reviewed {line}");
        }
    }
    for line in &found {
        if !reviewed.contains(line) {
            println!("now      {line}");
        }
    }
    println!("if that is meant: cargo xtask sim table > netstack/sim/reviewed.txt");
}

fn check() -> ExitCode {
    let mut total = Score::default();
    for scenario in ALL {
        let runs = match scenario.name {
            "swarm" => CHECK_SWARM,
            "join" | "relaunch" => 1,
            _ => CHECK_OTHERS,
        };
        let begin = Instant::now();
        let mut score = run(
            scenario,
            1..1 + runs,
            scenario.nodes,
            Attack::default(),
            false,
        );
        if scenario.name == "swarm" {
            let attacked = run(
                scenario,
                1..1 + CHECK_ATTACKS,
                scenario.nodes,
                Attack::CHECK,
                false,
            );
            score.passed += attacked.passed;
            score.failed += attacked.failed;
        }
        println!(
            "{:8} {} passed, {} failed, {:?}",
            scenario.name,
            score.passed,
            score.failed,
            begin.elapsed()
        );
        total.passed += score.passed;
        total.failed += score.failed;
    }
    let swarms: [(&str, u64, OneRun); 10] = [
        ("casts", CHECK_CASTS, cast),
        ("wide casts", CHECK_WIDE, wide_cast),
        ("far casts", CHECK_FAR, far_cast),
        ("exchange", CHECK_EXCHANGES, all_to_all),
        ("overlays", CHECK_OVERLAYS, overlay_run),
        ("moving overlays", CHECK_MOVES, overlay_moves),
        ("casts under attack", CHECK_ATTACKS, |seed| {
            cast_of(Swarm::Plain, seed, Attack::CHECK)
        }),
        ("wide casts under attack", CHECK_ATTACKS, |seed| {
            cast_of(Swarm::Wide, seed, Attack::CHECK)
        }),
        ("exchanges under attack", CHECK_ATTACKS, |seed| {
            exchange_of(seed, Attack::CHECK)
        }),
        // What was said in a tree before and is said again can leave a trace there for a while.
        ("overlays under flips", CHECK_ATTACKS, |seed| {
            let flips = Attack {
                replay_ppm: 0,
                ..Attack::CHECK
            };
            overlay_of(false, seed, flips)
        }),
    ];
    for (name, seeds, run) in swarms {
        let score = swarm(name, seeds, run);
        total.passed += score.passed;
        total.failed += score.failed;
    }
    compare(&mut total);
    report(&total)
}

/// The run of a seed, or what is wrong and how to see it again.
type OneRun = fn(u64) -> Result<(), String>;

/// Small clusters with random faults, one for each seed.
fn swarm(name: &str, seeds: u64, run: OneRun) -> Score {
    let begin = Instant::now();
    let mut score = Score::default();
    for seed in 1..=seeds {
        match run(seed) {
            Ok(()) => score.passed += 1,
            Err(what) => {
                score.failed += 1;
                println!("{what}");
            }
        }
    }
    println!(
        "{name:8} {} passed, {} failed, {:?}",
        score.passed,
        score.failed,
        begin.elapsed()
    );
    score
}

fn cast(seed: u64) -> Result<(), String> {
    cast_of(Swarm::Plain, seed, Attack::default())
}

fn wide_cast(seed: u64) -> Result<(), String> {
    cast_of(Swarm::Wide, seed, Attack::default())
}

fn far_cast(seed: u64) -> Result<(), String> {
    cast_of(Swarm::Far, seed, Attack::default())
}

fn cast_of(swarm: Swarm, seed: u64, attack: Attack) -> Result<(), String> {
    let mut setup = swarm.setup(seed);
    setup.attack = attack;
    let run = World::new(setup).and_then(|world| world.run().map_err(|failure| failure.what));
    replayable(run, swarm.replay(seed) + &attack.to_options())
}

fn all_to_all(seed: u64) -> Result<(), String> {
    exchange_of(seed, Attack::default())
}

fn exchange_of(seed: u64, attack: Attack) -> Result<(), String> {
    let mut setup = exchange::swarm::setup(seed);
    setup.attack = attack;
    let run = exchange::world::World::new(setup)
        .and_then(|world| world.run().map_err(|failure| failure.what));
    replayable(run, exchange::swarm::replay(seed) + &attack.to_options())
}

fn overlay_run(seed: u64) -> Result<(), String> {
    overlay_of(false, seed, Attack::default())
}

fn overlay_moves(seed: u64) -> Result<(), String> {
    overlay_of(true, seed, Attack::default())
}

fn overlay_of(moves: bool, seed: u64, attack: Attack) -> Result<(), String> {
    let (mut setup, replay) = match moves {
        true => (
            overlay::swarm::moving(seed),
            overlay::swarm::replay_moving(seed),
        ),
        false => (overlay::swarm::setup(seed), overlay::swarm::replay(seed)),
    };
    setup.attack = attack;
    let run = overlay::world::World::new(setup)
        .and_then(|world| world.run().map_err(|failure| failure.what));
    replayable(run, replay + &attack.to_options())
}

fn replayable<T>(run: Result<T, String>, replay: String) -> Result<(), String> {
    run.map(|_| ())
        .map_err(|what| format!("{what}\nreplay: {replay}"))
}

fn report(score: &Score) -> ExitCode {
    println!("{} passed, {} failed", score.passed, score.failed);
    if score.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
