//! `hearth-sim overlay`: a run from a command line.
//!
//! Neighbour: [`crate::options`], which has the network.
//!
//! Invariant: the same command line gives the same run.

use std::process::ExitCode;

use clap::Parser;
use netstack::overlay::placement::{FuzzyConfig, Policy, Topology};
use netstack::overlay::{Filter, Sync};
use netstack::rng::Rng;
use netstack::time::Micros;

use super::plan::BUILD_NS;
use crate::options::{Network, ppm, share};
use crate::setup::{Fault, Setup};

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
    /// Share of the nodes that die between the 5th and 10th second, in per cent
    #[arg(long, default_value = "0%", value_parser = share)]
    crash: f64,
    #[command(flatten)]
    network: Network,
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
        let mut setup = Setup::one_stream(seed, self.nodes, self.metrics, self.filter()?);
        self.network.apply(&mut setup)?;
        let mut plan = setup.overlay.take().ok_or("there is an overlay")?;
        plan.dedicated = self.dedicated;
        plan.layout.fan_out = self.fan_out;
        plan.layout.policy = self.placement()?;
        let stream = &mut plan.streams[0];
        stream.period = Micros::from_millis(self.period);
        stream.hold = Micros::from_millis(self.hold).min(stream.period);
        stream.sync = match self.sync.as_str() {
            "all" => Sync::WaitAll,
            "time-out" => Sync::TimeOut,
            "none" => Sync::None,
            other => return Err(format!("--sync is all, time-out or none, not {other}")),
        };
        plan.flow_ns = self.seconds * 1_000_000_000;
        setup.overlay = Some(plan);
        let mut rng = Rng::new(seed ^ 0x6372_6173_6865_7321);
        let crashes = u64::from(self.nodes) * u64::from(ppm(self.crash)) / 1_000_000;
        let from = BUILD_NS + CRASHES_FROM_NS;
        for _ in 0..crashes {
            let at = from + rng.below(CRASHES_WITHIN_NS);
            let node = rng.below(self.nodes.into()) as u32;
            setup.faults.push((at, Fault::Die(node)));
        }
        setup.check()?;
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
