//! End-to-end scenarios: the product as its user sees it, on real kernels in QEMU.
//!
//! Each scenario drives the `hearth` command line in `target/hearth/` against a cluster of its own
//! kind (network boot by BIOS, by UEFI, direct boot of 16 nodes) and compares what comes back byte
//! for byte. Neighbours: [`cluster`] brings clusters up and down, [`command`] runs a command under
//! a time limit, [`programs`], [`streams`], [`failures`], [`cores`], [`files`], [`io_services`],
//! [`nodes`], [`warm`], [`witnesses`], [`casts`], [`cast_failures`], [`ranks`], [`shared`],
//! [`jobs`], [`overlay`], [`page`], [`cards`] hold the scenarios, [`placements`] judges where jobs
//! ran; [`forge`] sends datagrams that nobody on the network has sent.
//!
//! `e2e NAME...` runs the scenarios with one of these words in their names, or all. `e2e --nic CARD
//! cards-` runs those of [`cards`] on nodes that all have this card. `e2e --long NAME...` does more
//! of what can be done more often.
//!
//! Invariant: no scenario passes because something did not answer: every command has a time limit,
//! and running into it is a failure.

mod cards;
mod cast_failures;
mod casts;
mod cluster;
mod command;
mod cores;
mod failures;
mod files;
mod forge;
mod io_services;
mod jobs;
mod launched;
mod nodes;
mod overlay;
mod page;
mod placements;
mod programs;
mod ranks;
mod shared;
mod sqlite;
mod streams;
mod warm;
mod witnesses;

use std::process::ExitCode;
use std::time::Instant;

use cluster::{Boot, Cluster};

/// One thing a user relies on, and what must be there to try it.
pub struct Scenario {
    /// Name on the command line and in the summary.
    pub name: &'static str,
    /// Kind of cluster it runs on.
    pub boot: Boot,
    /// Returns a text that says what differed.
    pub run: fn(&Cluster) -> anyhow::Result<()>,
}

fn scenarios() -> Vec<Scenario> {
    let mut all = Vec::new();
    all.extend(programs::SCENARIOS.iter());
    all.extend(streams::SCENARIOS.iter());
    all.extend(failures::SCENARIOS.iter());
    all.extend(cores::SCENARIOS.iter());
    all.extend(files::SCENARIOS.iter());
    all.extend(io_services::SCENARIOS.iter());
    all.extend(sqlite::SCENARIOS.iter());
    all.extend(nodes::SCENARIOS.iter());
    all.extend(warm::SCENARIOS.iter());
    all.extend(witnesses::SCENARIOS.iter());
    all.extend(casts::SCENARIOS.iter());
    all.extend(cast_failures::SCENARIOS.iter());
    all.extend(ranks::SCENARIOS.iter());
    all.extend(shared::SCENARIOS.iter());
    all.extend(jobs::SCENARIOS.iter());
    all.extend(overlay::SCENARIOS.iter());
    all.extend(page::SCENARIOS.iter());
    all.extend(cards::SCENARIOS.iter());
    all.iter()
        .map(|s| Scenario {
            name: s.name,
            boot: s.boot,
            run: s.run,
        })
        .collect()
}

/// Whether scenarios do more than in each run of the tests.
pub fn is_long() -> bool {
    std::env::args().any(|word| word == LONG)
}

/// The option that asks for it.
const LONG: &str = "--long";

/// Prints what a scenario has measured, in the form that `cargo xtask bench` reads.
pub fn figure(case: &str, metric: &str, value: f64, unit: &str) {
    println!("figure {case} {metric} {value:.3} {unit}");
}

fn main() -> ExitCode {
    let mut wanted: Vec<String> = std::env::args().skip(1).collect();
    if wanted.first().is_some_and(|first| first == forge::FLAG) {
        return forge::main(&wanted[1..]);
    }
    if wanted.iter().any(|w| w == "--list") {
        for scenario in scenarios() {
            println!("{:<28} {}", scenario.name, scenario.boot.describe());
        }
        return ExitCode::SUCCESS;
    }
    wanted.retain(|word| word != LONG);
    let nic = match wanted.iter().position(|word| word == "--nic") {
        Some(at) if at + 1 < wanted.len() => wanted.drain(at..at + 2).next_back(),
        Some(_) => {
            eprintln!("e2e: --nic needs a card: e1000, as in `e2e --nic e1000 cards-`");
            return ExitCode::FAILURE;
        }
        None => None,
    };
    let chosen: Vec<Scenario> = scenarios()
        .into_iter()
        .filter(|s| wanted.is_empty() || wanted.iter().any(|w| s.name.contains(w.as_str())))
        .collect();
    if chosen.is_empty() {
        eprintln!("e2e: no scenario matches {wanted:?}; `e2e --list` shows them");
        return ExitCode::FAILURE;
    }
    let (mut passed, mut failed) = (0, Vec::new());
    for boot in Boot::ALL {
        let group: Vec<&Scenario> = chosen.iter().filter(|s| s.boot == boot).collect();
        if group.is_empty() {
            continue;
        }
        match nic.as_ref().filter(|_| boot == Boot::Cards) {
            None => println!("cluster: {}", boot.describe()),
            Some(nic) => println!("cluster: 4 nodes with cards {nic}"),
        }
        let began = Instant::now();
        let cluster = match Cluster::up(boot, nic.as_deref()) {
            Ok(cluster) => cluster,
            Err(error) => {
                println!("  FAILED  cluster did not come up: {error:#}");
                failed.extend(group.iter().map(|s| s.name));
                continue;
            }
        };
        println!("  up after {:.1} s", began.elapsed().as_secs_f64());
        for scenario in group {
            let began = Instant::now();
            let outcome = (scenario.run)(&cluster).and_then(|()| cluster.all_nodes_idle());
            let seconds = began.elapsed().as_secs_f64();
            match outcome {
                Ok(()) => {
                    println!("  ok      {:<28} {seconds:6.1} s", scenario.name);
                    passed += 1;
                }
                Err(error) => {
                    println!("  FAILED  {:<28} {seconds:6.1} s\n{error:#}", scenario.name);
                    cluster.show_state();
                    failed.push(scenario.name);
                }
            }
        }
        if let Err(error) = cluster.down() {
            println!("  FAILED  down: {error:#}");
            failed.push("down");
        }
    }
    if !failed.is_empty() {
        println!("failed: {}", failed.join(", "));
    }
    println!("{passed} passed, {} failed", failed.len());
    if failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
