//! `hearth-sim exchange`: a run from a command line.
//!
//! Neighbour: [`super::setup`], which this makes.
//!
//! Invariant: the same command line gives the same run.

use std::time::Instant;

use clap::Parser;
use netstack::exchange::Scheme;
use netstack::rng::Rng;

use super::setup::{Setup, Sizes};
use super::world::World;
use crate::attacker::Attack;
use crate::baselines;
use crate::broadcast::fabric::Noise;
use crate::broadcast::options::{ppm, rate, share, size, some_nodes, time, widths};
use crate::broadcast::summary::Cost;

/// Every rank sends a block to every other on a simulated network; tells how long that takes.
///
/// Sizes take KB, MB (decimal), KiB, MiB; rates Kbit, Mbit, Gbit; times ns, us, ms, s.
#[derive(Clone, Debug, Parser)]
#[command(name = "cargo xtask sim exchange", version = None)]
pub struct Options {
    /// Number of ranks, a node each
    #[arg(long, default_value_t = 64)]
    p: u32,
    /// Seed of everything that is drawn at random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Bytes from each rank to each other
    #[arg(long, default_value = "64KB", value_parser = size)]
    bytes: u64,
    /// Blocks of different lengths: a quarter empty, the others up to twice --bytes
    #[arg(long)]
    unequal: bool,
    /// How it is done: default, published, published-L=N, published-L=auto, or to compare with:
    /// at-once, at-once-random, blind, barrier, random-delay, priority, volume
    #[arg(long, default_value = "default")]
    scheme: String,
    /// Exchanges one after the other
    #[arg(long, default_value_t = 1)]
    times: u32,
    /// Bits a second of every link, each way
    #[arg(long, default_value = "10Gbit", value_parser = rate)]
    rate: u64,
    /// One-way delay across the whole tree; nearer nodes have a share of it
    #[arg(long, default_value = "10us", value_parser = time)]
    latency: u64,
    /// Share of the datagrams that are lost
    #[arg(long, default_value = "0%", value_parser = share)]
    loss: f64,
    /// Share of the datagrams that arrive twice
    #[arg(long, default_value = "0%", value_parser = share)]
    duplicate: f64,
    /// Share of the datagrams that are held back by up to ten times the latency
    #[arg(long, default_value = "0%", value_parser = share)]
    reorder: f64,
    /// Every node does nothing for 1 ms, once a second
    #[arg(long)]
    pauses: bool,
    /// Share of the ranks that begin late
    #[arg(long, default_value = "0%", value_parser = share)]
    late: f64,
    /// By how much they are late; half of the limit unless given
    #[arg(long, value_parser = time)]
    late_by: Option<u64>,
    /// A rank that dies at half of the limit
    #[arg(long)]
    kill: Option<u32>,
    /// Widths of the fat tree from the leaves up, as in 32x32
    #[arg(long)]
    tree: Option<String>,
    /// How much narrower than full bisection the trunks above each level are, as in 2x2
    #[arg(long)]
    taper: Option<String>,
    /// The ranks know the width of the leaf switches, and order their rounds by them, and what the
    /// trunks carry
    #[arg(long)]
    leaves: bool,
    /// What a port's queue holds
    #[arg(long, default_value = "256KB", value_parser = size)]
    queue: u64,
    /// The ranks are told neither the rate of the links nor what a port holds, and find out
    #[arg(long)]
    untold: bool,
    /// Links are limited behind the cards, as those of emulated machines: cards take everything,
    /// and full queues lose it
    #[arg(long)]
    limiters: bool,
    /// A small job with random exchanges and faults; the seed decides everything
    #[arg(long)]
    swarm: bool,
    /// Real datagrams with real bytes
    #[arg(long)]
    real: bool,
    /// As many runs, with seeds one after the other
    #[arg(long, default_value_t = 1)]
    pub runs: u64,
    #[command(flatten)]
    attack: Attack,
    /// The figures as JSON, one object a line
    #[arg(long)]
    json: bool,
}

impl Options {
    /// Runs what was asked for and prints the figures; whether all runs passed.
    pub fn run(&self) -> bool {
        crate::seeds::each_seed(self.seed, self.runs, |seed| self.run_one(seed))
    }

    fn run_one(&self, seed: u64) -> Result<(), String> {
        let begin = Instant::now();
        let summary = World::new(self.setup(seed)?)?.run().map_err(|failure| {
            let at = failure.at_ns as f64 / 1e9;
            format!("seed {seed} failed at {at:.6} s: {}", failure.what)
        })?;
        let cost = Cost::now(begin.elapsed().as_secs_f64());
        if self.json {
            println!("{}", summary.to_json(cost));
        } else {
            print!("{}", summary.to_table(cost));
        }
        Ok(())
    }

    /// The setup that the options describe.
    ///
    /// # Errors
    /// Which option makes no sense.
    pub fn setup(&self, seed: u64) -> Result<Setup, String> {
        if self.swarm {
            let mut setup = super::swarm::setup(seed);
            setup.attack = self.attack;
            return Ok(setup);
        }
        if self.p < 2 || self.times == 0 {
            return Err("--p is 2 or more, --times 1 or more".into());
        }
        let scheme = match baselines::exchange::parse(&self.scheme) {
            Some(baseline) => baseline,
            None => Scheme::parse(&self.scheme).map_err(|error| {
                let others = baselines::exchange::NAMES.join(", ");
                format!(
                    "--scheme {}: {error}; or to compare with: {others}",
                    self.scheme
                )
            })?,
        };
        let mut setup = Setup::new(seed, self.p, self.bytes, scheme);
        if self.unequal {
            setup.sizes = Sizes::Random(self.bytes);
        }
        setup.wiring.rate = self.rate;
        setup.wiring.latency_ns = self.latency;
        setup.wiring.queue_bytes = self.queue;
        if let Some(tree) = &self.tree {
            setup.wiring.tree = widths("--tree", tree)?;
        }
        if let Some(taper) = &self.taper {
            setup.wiring.taper = widths("--taper", taper)?;
        }
        setup.noise = Noise {
            loss_ppm: ppm(self.loss),
            duplicate_ppm: ppm(self.duplicate),
            reorder_ppm: ppm(self.reorder),
            reorder_ns: 10 * self.latency,
            jitter_ns: 0,
        };
        setup.pauses = self.pauses;
        let mut rng = Rng::new(seed ^ 0x6c61_7465);
        setup.late = some_nodes(&mut rng, self.p, self.late);
        let half = (setup.limit_ns() / 2.0) as u64;
        setup.late_ns = self.late_by.unwrap_or(half);
        if let Some(rank) = self.kill {
            if rank >= self.p {
                return Err("--kill names a rank below --p".into());
            }
            setup.deaths = vec![(half, rank)];
        }
        setup.knows_leaves = self.leaves;
        setup.untold = self.untold;
        setup.limiters = self.limiters;
        setup.attack = self.attack;
        // Bits are flipped in bytes.
        setup.real = self.real || self.attack.is_on();
        setup.times = self.times;
        Ok(setup)
    }
}
