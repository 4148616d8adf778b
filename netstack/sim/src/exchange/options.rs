//! `hearth-sim exchange`: a run from a command line.
//!
//! Neighbour: [`crate::options`], which has the network.
//!
//! Invariant: the same command line gives the same run.

use std::process::ExitCode;

use clap::Parser;
use netstack::exchange::Scheme;
use netstack::rng::Rng;

use super::plan::Sizes;
use crate::baselines;
use crate::options::{Network, share, size, some_nodes, time};
use crate::setup::{Fault, Setup};

/// Every rank sends a block to every other on a simulated network; tells how long that takes.
///
/// Sizes take KB, MB (decimal), KiB, MiB; rates Kbit, Mbit, Gbit; times ns, us, ms, s.
#[derive(Clone, Debug, Parser)]
#[command(name = "cargo xtask sim exchange", version = None)]
pub struct Options {
    /// Number of ranks, a node each
    #[arg(long, default_value_t = 64)]
    p: u32,
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
    /// Share of the ranks that begin late
    #[arg(long, default_value = "0%", value_parser = share)]
    late: f64,
    /// By how much they are late; half of the limit unless given
    #[arg(long, value_parser = time)]
    late_by: Option<u64>,
    /// A rank that dies at half of the limit
    #[arg(long)]
    kill: Option<u32>,
    /// The ranks know the width of the leaf switches, and order their rounds by them, and what the
    /// trunks carry
    #[arg(long)]
    leaves: bool,
    /// The ranks are told neither the rate of the links nor what a port holds, and find out
    #[arg(long)]
    untold: bool,
    /// The network, and how it is told
    #[command(flatten)]
    pub network: Network,
}

impl Options {
    /// Runs what was asked for and prints the figures, see [`Network::run`].
    pub fn run(&self, arguments: &[String]) -> ExitCode {
        self.network.run(arguments, |seed| self.setup(seed))
    }

    /// The setup that the options describe.
    ///
    /// # Errors
    /// Which option makes no sense.
    pub fn setup(&self, seed: u64) -> Result<Setup, String> {
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
        let mut setup = Setup::one_exchange(seed, self.p, self.bytes, scheme);
        self.network.apply(&mut setup)?;
        let mut rng = Rng::new(seed ^ 0x6c61_7465);
        let mut plan = setup.exchange.take().ok_or("there is an exchange")?;
        if self.unequal {
            plan.sizes = Sizes::Random(self.bytes);
        }
        plan.late = some_nodes(&mut rng, self.p, self.late);
        let half = (plan.limit_ns(&setup) / 2.0) as u64;
        plan.late_ns = self.late_by.unwrap_or(half);
        plan.knows_leaves = self.leaves;
        plan.untold = self.untold;
        plan.times = self.times;
        setup.exchange = Some(plan);
        if let Some(rank) = self.kill {
            setup.faults.push((half, Fault::Die(rank)));
        }
        setup.check()?;
        Ok(setup)
    }
}
