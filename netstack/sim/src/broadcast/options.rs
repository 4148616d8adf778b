//! `hearth-sim broadcast`: a run from a command line.
//!
//! Neighbour: [`super::setup`], which this makes.
//!
//! Invariant: the same command line gives the same run.

use std::ops::Range;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use netstack::broadcast::published::Policy;
use netstack::broadcast::{Scheme, Shape, ShapeKind};
use netstack::rng::Rng;

use super::fabric::Noise;
use super::published::{self, Published};
use super::setup::{BUFFERS, CastPlan, Fault, Payload, Setup};
use super::summary::{Cost, limit_ns};
use super::swarm::Swarm;
use super::world::World;
use super::{check, ranks};
use crate::attacker::Attack;
use crate::baselines;

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
    /// Seed of everything that is drawn at random
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Length of what is cast
    #[arg(long, default_value = "50MB", value_parser = size)]
    bytes: u64,
    /// Cast the connection table of a job with this many ranks instead; with --real its bytes
    /// travel, and every node looks ranks up in what it got
    #[arg(long, value_name = "ENTRIES")]
    table: Option<u32>,
    /// Bits a second of every link, each way
    #[arg(long, default_value = "10Gbit", value_parser = rate)]
    rate: u64,
    /// One-way delay across the whole tree; nearer nodes have a share of it
    #[arg(long, default_value = "5us", value_parser = time)]
    latency: u64,
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
    /// Share of the datagrams that are lost
    #[arg(long, default_value = "0%", value_parser = share)]
    loss: f64,
    /// Share of the messages that arrive twice
    #[arg(long, default_value = "0%", value_parser = share)]
    duplicate: f64,
    /// Share of the messages that are held back by up to ten times the latency
    #[arg(long, default_value = "0%", value_parser = share)]
    reorder: f64,
    /// Further delay of every message, uniform from 0
    #[arg(long, default_value = "0us", value_parser = time)]
    jitter: u64,
    /// Share of the nodes with a tenth of the rate
    #[arg(long, default_value = "0%", value_parser = share)]
    slow: f64,
    /// Who dies: first-layer (one node of it), or a share of all nodes at random times
    #[arg(long)]
    kill: Option<String>,
    /// Cancel the first cast after this time
    #[arg(long, value_parser = time)]
    cancel: Option<u64>,
    /// Kill the control node at this time
    #[arg(long, value_parser = time)]
    crash_control: Option<u64>,
    /// Start the control node again at this time
    #[arg(long, value_parser = time)]
    restart_control: Option<u64>,
    /// Widths of the fat tree from the leaves up, as in 32x32x17
    #[arg(long)]
    tree: Option<String>,
    /// How much narrower than full bisection the trunks above each level are, as in 1x2
    #[arg(long)]
    taper: Option<String>,
    /// What a port's queue holds
    #[arg(long, default_value = "256KB", value_parser = size)]
    queue: u64,
    /// Reassembly buffers of each node, a block each
    #[arg(long, default_value_t = BUFFERS)]
    buffers: u32,
    /// Members that all casts of a node may have together; 0: any number
    #[arg(long, default_value_t = 0)]
    members: u32,
    /// Share of the nodes that have no room for the members of a cast
    #[arg(long, default_value = "0%", value_parser = share)]
    full: f64,
    /// Clocks that differ by up to a quarter of an hour and 50 ppm
    #[arg(long)]
    clocks: bool,
    /// Real datagrams with real bytes
    #[arg(long)]
    real: bool,
    /// A small cluster with random faults, drawn from the seed; other options do not count
    #[arg(long, value_enum, value_name = "WHICH", num_args = 0..=1, require_equals = true, default_missing_value = "plain")]
    swarm: Option<Swarm>,
    /// As many runs, with seeds one after the other
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
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
    /// Runs what was asked for and prints the figures. `arguments` are those of the command line,
    /// for the command that runs a failing seed again. The status is 0 when all runs passed, 1 when
    /// one did not, 2 when the options make no sense.
    pub fn run(&self, arguments: &[String]) -> ExitCode {
        let sense = match self.swarm {
            Some(_) => Ok(()),
            None => (self.setup(self.seed)).and_then(|setup| check::plans(&setup)),
        };
        if let Err(what) = sense {
            eprintln!("{what}");
            return ExitCode::from(2);
        }
        let run = |seed| self.run_one(seed, arguments);
        match crate::seeds::each_seed(self.seed, self.runs, run) {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        }
    }

    fn run_one(&self, seed: u64, arguments: &[String]) -> Result<(), String> {
        let mut setup = match self.swarm {
            Some(which) => which.setup(seed),
            None => self.setup(seed)?,
        };
        setup.attack = self.attack;
        if self.swarm.is_some() && self.runs == 1 {
            eprintln!("{setup:#?}");
        }
        let begin = Instant::now();
        let summary = World::new(setup)?.run().map_err(|failure| {
            let at = failure.at_ns as f64 / 1e9;
            let replay = match self.swarm {
                Some(which) => which.replay(seed) + &self.attack.to_options(),
                None => replay(arguments, seed),
            };
            format!(
                "seed {seed} failed at {at:.6} s: {}\nreplay: {replay}",
                failure.what
            )
        })?;
        let cost = Cost::now(begin.elapsed().as_secs_f64());
        if self.json {
            println!("{}", summary.to_json(cost));
        } else if self.swarm.is_none() || self.runs == 1 {
            print!("{}", summary.to_table(cost));
        }
        Ok(())
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
            Some(entries) => ranks::encode(entries, seed)?.len() as u64,
            None => self.bytes,
        };
        let mut setup = Setup::one_cast(seed, self.nodes, bytes, scheme);
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
            jitter_ns: self.jitter,
        };
        // Bits are flipped in bytes.
        if self.real || self.attack.is_on() {
            setup.payload = Payload::Real;
        }
        setup.buffers = self.buffers;
        setup.members = self.members;
        setup.clocks = self.clocks;
        setup.progress = !self.quiet;
        let mut rng = Rng::new(seed ^ 0x6f70_7469_6f6e_7321);
        setup.slow = some_nodes(&mut rng, self.nodes, self.slow);
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
        setup.faults = self.deaths(&mut rng, bytes)?;
        if let Some(at) = self.crash_control {
            setup.faults.push((at, Fault::CrashControl));
            let back = self.restart_control.unwrap_or(at + 1_000_000);
            setup.faults.push((back, Fault::RestartControl));
        }
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
        let limit = limit_ns(bytes, self.rate);
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

/// The command that runs a seed of these arguments again, without those that say only how to tell.
fn replay(arguments: &[String], seed: u64) -> String {
    let mut words = vec!["cargo xtask sim".to_string()];
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.split_once('=').unwrap_or((argument, "")) {
            ("--seed" | "--runs", "") => {
                arguments.next();
            }
            ("--seed" | "--runs" | "--quiet" | "--json", _) => {}
            _ => words.push(argument.clone()),
        }
    }
    words.push(format!("--seed {seed}"));
    words.join(" ")
}

/// A random choice of this share of the nodes, at least one when the share is not 0; in ascending
/// order.
pub(crate) fn some_nodes(rng: &mut Rng, nodes: u32, share: f64) -> Vec<u32> {
    let count = (f64::from(nodes) * share).round() as usize;
    let count = count.max(usize::from(share > 0.0)).min(nodes as usize);
    let mut all: Vec<u32> = (0..nodes).collect();
    for place in 0..count {
        let other = place + rng.below((all.len() - place) as u64) as usize;
        all.swap(place, other);
    }
    all.truncate(count);
    all.sort_unstable();
    all
}

pub(crate) fn ppm(share: f64) -> u32 {
    (share * 1e6).round() as u32
}

/// A number with one of these units.
fn with_unit(text: &str, units: &[(&str, f64)]) -> Result<f64, String> {
    let end = text
        .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let names: Vec<&str> = units.iter().map(|&(name, _)| name).collect();
    let number: f64 = number
        .parse()
        .map_err(|_| format!("a number with {}", names.join(", ")))?;
    let (_, factor) = units
        .iter()
        .find(|(name, _)| *name == unit)
        .ok_or_else(|| format!("the unit is {}", names.join(", ")))?;
    Ok(number * factor)
}

pub(crate) fn size(text: &str) -> Result<u64, String> {
    netstack::size::parse(text).ok_or_else(|| netstack::size::FORM.to_string())
}

pub(crate) fn rate(text: &str) -> Result<u64, String> {
    netstack::size::rate(text).ok_or_else(|| netstack::size::RATE_FORM.to_string())
}

pub(crate) fn time(text: &str) -> Result<u64, String> {
    let units = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    with_unit(text, &units).map(|time| time as u64)
}

pub(crate) fn share(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text);
    match number.parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent / 100.0),
        _ => Err("a share is 0% to 100%".into()),
    }
}

pub(crate) fn widths(option: &str, text: &str) -> Result<Vec<u32>, String> {
    text.split('x')
        .map(|width| {
            width
                .parse()
                .map_err(|_| format!("{option} is widths with x between them, as in 32x32x17"))
        })
        .collect()
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
    fn a_failing_run_says_how_it_is_run_again() {
        let line = "broadcast --nodes 3 --seed 7 --runs=4 --loss 1% --quiet";
        let words: Vec<String> = line.split_whitespace().map(String::from).collect();
        let again = "cargo xtask sim broadcast --nodes 3 --loss 1% --seed 9";
        assert_eq!(replay(&words, 9), again);
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
            "--tree 4xx",
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
        for line in ["--runs 0", "--swarm --runs 0", "--casts 0"] {
            let words = std::iter::once("broadcast").chain(line.split_whitespace());
            let error = Options::try_parse_from(words).expect_err(line);
            assert_eq!(error.exit_code(), 2);
        }
        for (text, parse) in [
            ("5", rate as fn(&str) -> Result<u64, String>),
            ("5XB", size),
            ("5", time),
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
