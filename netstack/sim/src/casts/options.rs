//! `hearth-sim broadcast`: a run from a command line.
//!
//! Neighbour: [`crate::options`], which has the network.
//!
//! Invariant: the same command line gives the same run.

use std::ops::Range;
use std::process::ExitCode;

use clap::Parser;
use netstack::broadcast::published::Policy;
use netstack::broadcast::{Scheme, Shape, ShapeKind};
use netstack::rng::Rng;

use super::plan::CastPlan;
use super::published::{self, Published};
use super::table;
use crate::baselines;
use crate::options::{Network, rate, share, size, some_nodes, time};
use crate::setup::{BUFFERS, Fault, Setup};
use crate::summary::limit_ns;

/// Nodes that die do so at this share of the limit at the earliest, where a first-layer node does
/// exactly then.
const FIRST_LAYER_DIES: f64 = 0.4;

/// Casts one object to all nodes of a simulated network and tells how long that takes.
///
/// Sizes take KB, MB (decimal), KiB, MiB; rates Kbit, Mbit, Gbit; times ns, us, ms, s.
#[derive(Clone, Debug, Parser)]
#[command(name = "cargo xtask sim broadcast", version = None)]
pub struct Options {
    /// Number of nodes, without the control node
    #[arg(long, default_value_t = 64)]
    nodes: u32,
    /// Length of what is cast
    #[arg(long, default_value = "50MB", value_parser = size)]
    bytes: u64,
    /// Cast the connection table of a job with this many ranks instead; with --real its bytes
    /// travel, and every node looks ranks up in what it got
    #[arg(long, value_name = "ENTRIES")]
    table: Option<u32>,
    /// How it spreads: auto, grid, mesh, double-tree, tree, direct, published-chunk-first,
    /// published-node-first
    #[arg(long, default_value = "auto")]
    scheme: String,
    /// Nodes of the first layer, with grid, tree and published; 0: as many as fit
    #[arg(long, default_value_t = 0)]
    n1: u32,
    #[command(flatten)]
    published: Published,
    /// Block size
    #[arg(long, value_parser = size)]
    block: Option<u64>,
    /// Casts at once, of the same length each, to the same nodes
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    casts: u32,
    /// Rates of the casts, as in 10Gbit,100Mbit: the first one's first; others have the link's
    #[arg(long, value_parser = rate, value_delimiter = ',')]
    rates: Vec<u64>,
    /// Share of the nodes that hold it from the start
    #[arg(long, default_value = "0%", value_parser = share)]
    warm: f64,
    /// Who dies: first-layer (one node of it), or a share of all nodes at random times
    #[arg(long)]
    kill: Option<String>,
    /// Cancel the first cast after this time
    #[arg(long, value_parser = time)]
    cancel: Option<u64>,
    /// Reassembly buffers of each node, a block each
    #[arg(long, default_value_t = BUFFERS)]
    buffers: u32,
    /// Members that all casts of a node may have together; 0: any number
    #[arg(long, default_value_t = 0)]
    members: u32,
    /// Share of the nodes that have no room for the members of a cast
    #[arg(long, default_value = "0%", value_parser = share)]
    full: f64,
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
        if self.nodes == 0 {
            return Err("--nodes is 1 or more".into());
        }
        let scheme = self.scheme()?;
        let bytes = match self.table {
            Some(entries) => table::encode(entries, seed)?.len() as u64,
            None => self.bytes,
        };
        let mut setup = Setup::one_cast(seed, self.nodes, bytes, scheme);
        self.network.apply(&mut setup)?;
        setup.buffers = self.buffers;
        setup.members = self.members;
        let mut rng = Rng::new(seed ^ 0x6f70_7469_6f6e_7321);
        setup.full = some_nodes(&mut rng, self.nodes, self.full);
        let plan = &mut setup.casts[0];
        plan.cancel_ns = self.cancel;
        plan.table = self.table;
        plan.warm = some_nodes(&mut rng, self.nodes, self.warm);
        if let Some(block) = self.block {
            if !block.is_power_of_two() {
                return Err("--block is 4KiB, 8KiB, 16KiB, 32KiB or 64KiB".into());
            }
            plan.block_log2 = Some(block.trailing_zeros() as u8);
        }
        let first: CastPlan = setup.casts[0].clone();
        for _ in 1..self.casts {
            setup.casts.push(CastPlan {
                cancel_ns: None,
                ..first.clone()
            });
        }
        if self.rates.len() > setup.casts.len() {
            return Err(
                "--rates has more rates than there are casts: --casts says how many".into(),
            );
        }
        for (plan, rate) in setup.casts.iter_mut().zip(&self.rates) {
            if *rate < 8 {
                return Err("--rates: a cast has 8 bits a second or more".into());
            }
            plan.rate = Some(*rate);
        }
        setup.faults.extend(self.deaths(&mut rng, bytes)?);
        Ok(setup)
    }

    fn scheme(&self) -> Result<Scheme, String> {
        if self.published.is_given() && !self.scheme.starts_with("published") {
            return Err(format!(
                "--scheme {} has no chunks, layers, sizes, deal, choice, presence and fallback: these are options of the published ones",
                self.scheme
            ));
        }
        Ok(match self.scheme.as_str() {
            "auto" => Scheme::Auto,
            "grid" => Scheme::Grid { n1: self.n1 },
            "mesh" => Scheme::Mesh,
            "double-tree" => Scheme::DoubleTree,
            "published-chunk-first" => self.published(Policy::ChunkFirst),
            "published-node-first" => self.published(Policy::NodeFirst),
            other => {
                let fan_out = published::fan_out(self.nodes, self.n1, 2);
                let baseline = baselines::broadcast::parse(other, fan_out);
                return baseline
                    .ok_or_else(|| format!("no scheme is called {other}; --help names them"));
            }
        })
    }

    fn published(&self, policy: Policy) -> Scheme {
        Scheme::Published(self.published.options(policy, self.nodes, self.n1))
    }

    /// Which nodes die, and when.
    fn deaths(&self, rng: &mut Rng, bytes: u64) -> Result<Vec<(u64, Fault)>, String> {
        let limit = limit_ns(bytes, self.network.rate);
        let Some(kill) = &self.kill else {
            return Ok(Vec::new());
        };
        if kill == "first-layer" {
            let node = match self.heads()? {
                Some(heads) => heads.start + heads.len() as u32 / 2,
                None => self.first_layer(bytes) / 2,
            };
            return Ok(vec![((limit * FIRST_LAYER_DIES) as u64, Fault::Die(node))]);
        }
        let share = share(kill).map_err(|error| format!("--kill: {error}, or first-layer"))?;
        Ok(some_nodes(rng, self.nodes, share)
            .into_iter()
            .map(|node| (rng.below(limit as u64), Fault::Die(node)))
            .collect())
    }

    /// The first layer of the published tree, whose leaves have the lowest numbers.
    fn heads(&self) -> Result<Option<Range<u32>>, String> {
        let tree = match self.scheme()? {
            Scheme::Published(options) if options.layers > 1 => options.tree(self.nodes),
            _ => return Ok(None),
        };
        let tree = tree.map_err(|_| format!("no tree has {} nodes", self.nodes))?;
        Ok(Some(tree.heads()))
    }

    /// Nodes in the first layer of other schemes: they have the lowest numbers.
    fn first_layer(&self, bytes: u64) -> u32 {
        let shape = Shape::choose(self.nodes, bytes.div_ceil(8192) as u32);
        match (self.scheme.as_str(), self.n1) {
            ("auto", _) if shape.kind != ShapeKind::Grid => shape.n1,
            ("mesh" | "direct" | "double-tree", _) => 1,
            (_, 0) => Shape::grid(self.nodes, 0).n1,
            (_, n1) => n1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(line: &str) -> Options {
        Options::parse_from(std::iter::once("broadcast").chain(line.split_whitespace()))
    }

    #[test]
    fn a_command_line_is_read() {
        let options = options(
            "--nodes 100 --bytes 2MB --rate 5Mbit --latency 20us --loss 1% --slow 2% --kill 1%",
        );
        let setup = options.setup(7).unwrap();
        assert_eq!(setup.wiring.rate, 5_000_000);
        assert_eq!(setup.wiring.latency_ns, 20_000);
        assert_eq!(setup.noise.loss_ppm, 10_000);
        assert_eq!((setup.slow.len(), setup.faults.len()), (2, 1));
        assert_eq!(setup.casts[0].bytes, 2_000_000);
    }

    #[test]
    fn casts_have_rates_of_their_own() {
        let setup = options("--casts 3 --rates 1Gbit,100Mbit").setup(1).unwrap();
        let rates: Vec<_> = setup.casts.iter().map(|cast| cast.rate).collect();
        assert_eq!(rates, [Some(1_000_000_000), Some(100_000_000), None]);
    }

    #[test]
    fn a_first_layer_node_is_killed() {
        let dies = |line| options(line).setup(1).unwrap().faults[0].1;
        let line = "--nodes 16512 --kill first-layer";
        assert_eq!(dies(line), Fault::Die(64));
        // The published layout has the 128 * 128 leaves first.
        let line = "--nodes 16512 --kill first-layer --scheme published-node-first";
        assert_eq!(dies(line), Fault::Die(16_448));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for line in [
            "--scheme fast",
            "--kill soon",
            "--block 5000",
            "--layers 3",
            "--scheme mesh --choice highest",
            "--rates 1Gbit,1Gbit",
            "--table 0",
            "--table 5000000",
        ] {
            assert!(options(line).setup(1).is_err(), "{line}");
        }
        for line in ["--runs 0", "--casts 0"] {
            let words = std::iter::once("broadcast").chain(line.split_whitespace());
            let error = Options::try_parse_from(words).expect_err(line);
            assert_eq!(error.exit_code(), 2);
        }
    }
}
