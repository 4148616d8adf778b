//! `hearth-sim overlay`: a run from a command line.
//!
//! Neighbour: [`super::setup`], which this makes.
//!
//! Invariant: the same command line gives the same run.

use std::time::Instant;

use clap::Parser;
use netstack::overlay::placement::{FuzzyConfig, Policy, Topology};
use netstack::overlay::{Filter, Sync};
use netstack::rng::Rng;
use netstack::time::Micros;

use super::setup::{Fault, Setup};
use super::swarm;
use super::world::World;
use crate::attacker::{Attack, percent};
use crate::broadcast::fabric::Noise;

/// When nodes die, after the tree was begun, and over what time.
const CRASHES_FROM_NS: u64 = 5_000_000_000;
const CRASHES_WITHIN_NS: u64 = 5_000_000_000;

/// Lets nodes form the monitoring overlay and tells how long values take to the front end.
#[derive(Clone, Debug, Parser)]
#[command(name = "cargo xtask sim overlay", version = None)]
pub struct Options {
    /// Number of nodes, without the control node
    #[arg(long, default_value_t = 64)]
    nodes: u32,
    /// The first of them have no back end
    #[arg(long, default_value_t = 0)]
    dedicated: u32,
    /// Seed of everything that is drawn at random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Most children of a process
    #[arg(long, default_value_t = 32)]
    fan_out: u32,
    /// Who hosts communication processes: averaging, fuzzy, or a file with a topology
    #[arg(long, default_value = "averaging")]
    placement: String,
    /// Metrics of the stream
    #[arg(long, default_value_t = 32)]
    metrics: u16,
    /// How they are reduced: sum, min, max, avg, concat, classes, histogram
    #[arg(long, default_value = "sum")]
    filter: String,
    /// When a tick is passed on: all, time-out, none
    #[arg(long, default_value = "time-out")]
    sync: String,
    /// Time between two ticks, in milliseconds
    #[arg(long, default_value_t = 1000)]
    period: u64,
    /// How long a process waits for its children for each level below, in milliseconds
    #[arg(long, default_value_t = 50)]
    hold: u64,
    /// How long values flow, in seconds
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Share of the datagrams that are lost, in per cent
    #[arg(long, default_value = "0", value_parser = percent)]
    loss: u32,
    /// Share of the nodes that die between the 5th and 10th second, in per cent
    #[arg(long, default_value = "0", value_parser = percent)]
    crash: u32,
    /// The node with this communication process dies after 5 seconds
    #[arg(long, value_name = "NUMBER")]
    kill_cp: Option<u32>,
    /// This node stands still from the 5th to the 12th second
    #[arg(long, value_name = "NODE")]
    stop: Option<u32>,
    /// Clocks that differ by up to a quarter of an hour and 50 ppm
    #[arg(long)]
    clocks: bool,
    /// A small cluster with random faults, drawn from the seed; other options do not count
    #[arg(long)]
    swarm: bool,
    /// With --swarm: the tree is made anew again and again, while streams open and close and
    /// programs compute
    #[arg(long, requires = "swarm")]
    moving: bool,
    /// As many runs, with seeds one after the other
    #[arg(long, default_value_t = 1)]
    runs: u64,
    #[command(flatten)]
    attack: Attack,
    /// The figures as JSON, one object a line
    #[arg(long)]
    json: bool,
    /// Do not tell how far it is
    #[arg(long)]
    quiet: bool,
}

impl Options {
    /// Runs what was asked for and prints the figures; whether all runs passed.
    pub fn run(&self) -> bool {
        crate::seeds::each_seed(self.seed, self.runs, |seed| self.run_one(seed))
    }

    fn run_one(&self, seed: u64) -> Result<(), String> {
        let mut setup = match (self.swarm, self.moving) {
            (true, true) => swarm::moving(seed),
            (true, false) => swarm::setup(seed),
            (false, _) => self.setup(seed)?,
        };
        setup.attack = self.attack;
        if self.swarm && self.runs == 1 {
            eprintln!("{setup:#?}");
        }
        let begin = Instant::now();
        let summary = World::new(setup)?.run().map_err(|failure| {
            let at = failure.at_ns as f64 / 1e9;
            let replay = match (self.swarm, self.moving) {
                (true, true) => format!("\nreplay: {}", swarm::replay_moving(seed)),
                (true, false) => format!("\nreplay: {}", swarm::replay(seed)),
                (false, _) => String::new(),
            };
            let replay = match self.swarm {
                true => replay + &self.attack.to_options(),
                false => replay,
            };
            format!("seed {seed} failed at {at:.6} s: {}{replay}", failure.what)
        })?;
        if self.json {
            println!("{}", summary.to_json());
        } else if !self.swarm || self.runs == 1 {
            print!("{}", summary.to_table());
            println!(
                "  {} events in {:.1} s",
                summary.events,
                begin.elapsed().as_secs_f64()
            );
        }
        Ok(())
    }

    /// The setup that the options describe.
    ///
    /// # Errors
    /// Which option makes no sense.
    pub fn setup(&self, seed: u64) -> Result<Setup, String> {
        let mut setup = Setup::one_stream(seed, self.nodes, self.metrics, self.filter()?);
        setup.dedicated = self.dedicated;
        setup.clocks = self.clocks;
        setup.progress = !self.quiet;
        setup.layout.fan_out = self.fan_out;
        setup.layout.policy = self.placement()?;
        setup.noise = Noise {
            loss_ppm: self.loss,
            ..Noise::default()
        };
        let stream = &mut setup.streams[0];
        stream.period = Micros::from_millis(self.period);
        stream.hold = Micros::from_millis(self.hold).min(stream.period);
        stream.sync = match self.sync.as_str() {
            "all" => Sync::WaitAll,
            "time-out" => Sync::TimeOut,
            "none" => Sync::None,
            other => return Err(format!("--sync is all, time-out or none, not {other}")),
        };
        setup.flow_ns = self.seconds * 1_000_000_000;
        let mut rng = Rng::new(seed ^ 0x6372_6173_6865_7321);
        let crashes = u64::from(self.nodes) * u64::from(self.crash) / 1_000_000;
        for _ in 0..crashes {
            let at = CRASHES_FROM_NS + rng.below(CRASHES_WITHIN_NS);
            setup
                .faults
                .push((at, Fault::Kill(rng.below(self.nodes.into()) as u32)));
        }
        if let Some(number) = self.kill_cp {
            setup.faults.push((CRASHES_FROM_NS, Fault::KillCp(number)));
        }
        if let Some(node) = self.stop {
            setup.faults.push((CRASHES_FROM_NS, Fault::Stop(node)));
            setup.faults.push((12_000_000_000, Fault::Continue(node)));
        }
        Ok(setup)
    }

    fn filter(&self) -> Result<Filter, String> {
        Ok(match self.filter.as_str() {
            "sum" => Filter::Sum,
            "min" => Filter::Min,
            "max" => Filter::Max,
            "avg" => Filter::Avg,
            "concat" => Filter::Concat,
            "classes" => Filter::Classes,
            "histogram" => Filter::Histogram((0..10).map(|bound| 1 << (2 * bound)).collect()),
            other => return Err(format!("no filter is called {other}; --help names them")),
        })
    }

    fn placement(&self) -> Result<Policy, String> {
        Ok(match self.placement.as_str() {
            "averaging" => Policy::Averaging,
            "fuzzy" => Policy::Comprehensive(FuzzyConfig::default()),
            file => {
                let text = std::fs::read_to_string(file).map_err(|error| {
                    format!("--placement is averaging, fuzzy or a file: {file}: {error}")
                })?;
                Policy::Given(Topology::parse(&text).map_err(|error| format!("{file}: {error}"))?)
            }
        })
    }
}
