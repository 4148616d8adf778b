//! Runs the simulator from the command line; `--help` says what there is.
//!
//! Neighbours: [`netstack_sim::check`] is what every change has to pass.
//!
//! Invariant: the status is 0 when all runs passed, 1 when one did not, and 2 when the command line
//! makes no sense.

use std::ops::Range;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Parser, Subcommand};
use netstack_sim::check::{self, Score, goals};
use netstack_sim::net::attacker::Attack;
use netstack_sim::random::Family;
use netstack_sim::scenario::{ALL, Scenario};
use netstack_sim::{casts, exchange, options, overlay};

/// Most nodes of a scenario.
const NODES_MOST: u64 = 60_000;

/// The protocols of Hearth on simulated networks, in virtual time.
#[derive(Parser)]
#[command(name = "cargo xtask sim")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// What every change has to pass: random scenarios of all kinds, and the goals
    Check {
        /// A number that says which seeds rotate in, such as that of a commit
        #[arg(long, value_name = "NUMBER", default_value_t = 0)]
        rotate: u64,
    },
    /// Random scenarios of all kinds, seed after seed, for hours
    Soak {
        /// How long
        #[arg(long, default_value_t = 8.0, value_parser = hours)]
        hours: f64,
        /// The first seed [default: one that the clock gives]
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Random scenarios of one kind by their seeds: one is told in full, many are counted
    Run(Random),
    /// Lists the scenarios
    List,
    /// A cast at any scale
    Broadcast(casts::options::Options),
    /// All-to-all exchanges at any scale
    Exchange(exchange::options::Options),
    /// The monitoring overlay at any scale
    Overlay(overlay::options::Options),
    /// A scenario of the list, with the options --seed, --nodes, --runs, --replay and --flip
    #[command(external_subcommand)]
    Scenario(Vec<String>),
}

/// Random scenarios of one kind.
#[derive(Args)]
struct Random {
    /// Which
    #[arg(long, value_enum, default_value = "together")]
    family: Family,
    /// One seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Seeds from the first up to the one before the last, as in 1..100
    #[arg(long, value_name = "FROM..TO", conflicts_with = "seed", value_parser = seeds)]
    seeds: Option<(u64, u64)>,
    /// What the run is made of, too
    #[arg(long)]
    setup: bool,
    /// The figures as JSON, one object a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    attack: Attack,
}

/// Options of a scenario.
#[derive(Args)]
struct Runs {
    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many nodes [default: as the list says]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=NODES_MOST))]
    nodes: Option<u64>,
    /// As many runs, with seeds one after the other
    #[arg(long, default_value_t = 1)]
    runs: u64,
    #[command(flatten)]
    attack: Attack,
}

#[derive(Parser)]
#[command(name = "cargo xtask sim SCENARIO", no_binary_name = true)]
struct RunsOfScenario {
    #[command(flatten)]
    runs: Runs,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match Cli::parse().command {
        Command::Check { rotate } => report(check_all(check::rotating_from(rotate))),
        Command::Soak { hours, seed } => soak(hours, seed),
        Command::Run(random) => random.run(),
        Command::List => {
            for scenario in ALL {
                let Scenario { name, about, .. } = scenario;
                println!("{name:8} {about} (nodes: {})", scenario.nodes);
            }
            ExitCode::SUCCESS
        }
        Command::Broadcast(options) => options.run(&arguments),
        Command::Exchange(options) => options.run(&arguments),
        Command::Overlay(options) => options.run(&arguments),
        Command::Scenario(words) => run_scenario(&words),
    }
}

impl Random {
    fn run(&self) -> ExitCode {
        let family = self.family;
        let Some((from, to)) = self.seeds else {
            let mut setup = family.setup(self.seed);
            setup.attack = self.attack;
            if self.setup {
                eprintln!("{setup:#?}");
            }
            return match options::timed(setup) {
                Ok((summary, cost)) if self.json => {
                    println!("{}", summary.to_json(cost));
                    ExitCode::SUCCESS
                }
                Ok((summary, cost)) => {
                    print!("{}", summary.to_table(cost));
                    ExitCode::SUCCESS
                }
                Err(what) => {
                    eprintln!("{what}");
                    ExitCode::FAILURE
                }
            };
        };
        let mut score = Score::default();
        for seed in from..to {
            let outcome = match self.attack.is_on() {
                true => family.run_under(seed, self.attack),
                false => family.run(seed),
            };
            score.count(outcome.is_ok());
            if let Err(what) = outcome {
                println!("{what}");
            }
        }
        report(score)
    }
}

fn seeds(text: &str) -> Result<(u64, u64), &'static str> {
    let range = text.split_once("..");
    let range = range.and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    range
        .filter(|(from, to)| from < to)
        .ok_or("write the first seed and the one after the last, as in 1..100")
}

fn hours(text: &str) -> Result<f64, &'static str> {
    match text.parse() {
        Ok(hours) if (0.0..=10_000.0).contains(&hours) => Ok(hours),
        _ => Err("write hours, as in 0.5"),
    }
}

fn run_scenario(words: &[String]) -> ExitCode {
    let (name, options) = words
        .split_first()
        .map_or(("", words), |(name, rest)| (name, rest));
    let Some(scenario) = Scenario::find(name) else {
        eprintln!("error: no scenario is called {name}; `cargo xtask sim list` shows them");
        return ExitCode::from(2);
    };
    let runs = RunsOfScenario::parse_from(options).runs;
    let nodes = runs.nodes.map_or(scenario.nodes, |nodes| nodes as usize);
    let seeds = runs.seed..runs.seed.saturating_add(runs.runs);
    report(run(scenario, seeds, nodes, runs.attack))
}

fn run(scenario: Scenario, seeds: Range<u64>, nodes: usize, attack: Attack) -> Score {
    let mut score = Score::default();
    for seed in seeds {
        let begin = Instant::now();
        let outcome = scenario.run(seed, nodes, attack);
        score.count(outcome.is_ok());
        match outcome {
            Ok(summary) => {
                let (name, time) = (scenario.name, begin.elapsed());
                println!("{name} seed {seed}: {summary:?}, {time:?}");
            }
            Err(what) => println!("{what}"),
        }
    }
    score
}

/// Everything that a change has to pass.
fn check_all(rotating_from: u64) -> Score {
    let last = rotating_from + check::ROTATING_SEEDS - 1;
    println!(
        "seeds 1 to {}, and {rotating_from} to {last}",
        check::FIXED_SEEDS
    );
    let mut total = Score::default();
    for family in Family::ALL {
        let begin = Instant::now();
        let score = check::run(family, &check::seeds(family, rotating_from));
        tell(&family.name(), score, begin);
        total.add(score);
    }
    let begin = Instant::now();
    let mut score = Score::default();
    for outcome in check::on_all_processors(goals::GOALS, goals::Goal::check) {
        score.count(outcome.is_ok());
        match outcome {
            Ok(told) => println!("ok      {told}"),
            Err(told) => println!("FAILED  {told}"),
        }
    }
    tell("goals", score, begin);
    total.add(score);
    total
}

fn tell(name: &str, score: Score, begin: Instant) {
    let Score { passed, failed } = score;
    let seconds = begin.elapsed().as_secs_f64();
    println!("{name:18} {passed:5} passed, {failed:3} failed, {seconds:6.1} s");
}

fn soak(hours: f64, seed: Option<u64>) -> ExitCode {
    let by_clock = || {
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed();
        check::rotating_from(now.map_or(0, |since| since.as_secs()) << 16)
    };
    let first = seed.unwrap_or_else(by_clock);
    println!("seeds from {first} on, for {hours} h");
    report(check::soak(first, Duration::from_secs_f64(hours * 3600.0)))
}

fn report(score: Score) -> ExitCode {
    println!("{} passed, {} failed", score.passed, score.failed);
    status(score.failed == 0)
}

fn status(has_passed: bool) -> ExitCode {
    match has_passed {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
