//! Options that all commands with a network have, and how words on a command line are read.
//!
//! Neighbours: [`crate::casts::options`], [`crate::exchange::options`] and
//! [`crate::overlay::options`] have those of one service beside them; all make a
//! [`crate::setup::Setup`].
//!
//! Invariant: the same command line gives the same run.

use std::ops::Range;
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use netstack::rng::Rng;

use crate::net::attacker::Attack;
use crate::net::fabric::{Noise, Way};
use crate::setup::{Fault, Setup};
use crate::summary::{Cost, Summary};
use crate::world::World;

/// The network, what goes wrong on it, and how it is told.
///
/// Sizes take KB, MB (decimal), KiB, MiB; rates Kbit, Mbit, Gbit; times ns, us, ms, s.
#[derive(Args, Clone, Debug)]
pub struct Network {
    /// Seed of everything that is drawn at random
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// As many runs, with seeds one after the other
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub runs: u64,
    /// Bits a second of every link, each way
    #[arg(long, default_value = "10Gbit", value_parser = rate)]
    pub rate: u64,
    /// One-way delay across the whole tree; nearer nodes have a share of it [default: 5us, of
    /// exchanges 10us]
    #[arg(long, value_parser = time)]
    pub latency: Option<u64>,
    /// Share of the datagrams that are lost
    #[arg(long, default_value = "0%", value_parser = share)]
    pub loss: f64,
    /// Share of the messages that arrive twice
    #[arg(long, default_value = "0%", value_parser = share)]
    pub duplicate: f64,
    /// Share of the messages that are held back by up to ten times the latency
    #[arg(long, default_value = "0%", value_parser = share)]
    pub reorder: f64,
    /// Further delay of every message, uniform from 0
    #[arg(long, default_value = "0us", value_parser = time)]
    pub jitter: u64,
    /// Share of the nodes with a tenth of the rate
    #[arg(long, default_value = "0%", value_parser = share)]
    pub slow: f64,
    /// Widths of the fat tree from the leaves up, as in 32x32x17
    #[arg(long)]
    pub tree: Option<String>,
    /// How much narrower than full bisection the trunks above each level are, as in 1x2
    #[arg(long)]
    pub taper: Option<String>,
    /// What a port's queue holds
    #[arg(long, default_value = "256KB", value_parser = size)]
    pub queue: u64,
    /// Links are limited behind the cards, as those of emulated machines: cards take everything,
    /// and full queues lose it
    #[arg(long)]
    pub limiters: bool,
    /// Clocks that differ by up to a quarter of an hour and 50 ppm
    #[arg(long)]
    pub clocks: bool,
    /// Every node does nothing for 1 ms, once a second
    #[arg(long)]
    pub pauses: bool,
    /// Real datagrams with real bytes
    #[arg(long)]
    pub real: bool,
    /// Something that happens, and when, as often as wanted: die:NODE@TIME, and so boot, leave,
    /// part, mute-out, mute-in, mend, stop, continue, compute, idle, corrupt, tight;
    /// kill-cp:NUMBER@TIME; jump:NODE:TIME@TIME, or :-TIME; crash-control@TIME, and so
    /// restart-control, replan, heal
    #[arg(long = "fault", value_name = "WHAT@TIME", value_parser = fault)]
    pub faults: Vec<(u64, Fault)>,
    /// What somebody on the wire does
    #[command(flatten)]
    pub attack: Attack,
    /// The figures as JSON, one object a line
    #[arg(long)]
    pub json: bool,
    /// Do not tell how far it is
    #[arg(long)]
    pub quiet: bool,
}

impl Network {
    /// Gives a setup this network.
    ///
    /// # Errors
    /// Which option makes no sense.
    pub fn apply(&self, setup: &mut Setup) -> Result<(), String> {
        setup.wiring.rate = self.rate;
        if let Some(latency) = self.latency {
            setup.wiring.latency_ns = latency;
        }
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
            reorder_ns: 10 * setup.wiring.latency_ns,
            jitter_ns: self.jitter,
        };
        setup.attack = self.attack;
        setup.limiters = self.limiters;
        setup.clocks = self.clocks;
        setup.pauses = self.pauses;
        // Bits are flipped in bytes.
        setup.real = self.real || self.attack.is_on();
        setup.progress = !self.quiet;
        setup.faults.extend(&self.faults);
        let mut rng = Rng::new(setup.seed ^ 0x736c_6f77_2121);
        setup.slow = some_nodes(&mut rng, setup.nodes, self.slow);
        Ok(())
    }

    /// Makes the runs and prints their figures. `arguments` are those of the command line, for the
    /// command that runs a failing seed again. The status is 0 when all runs passed, 1 when one did
    /// not, 2 when the options make no sense.
    pub fn run(
        &self,
        arguments: &[String],
        make: impl Fn(u64) -> Result<Setup, String>,
    ) -> ExitCode {
        let sense = make(self.seed).and_then(|setup| setup.check());
        if let Err(what) = sense {
            eprintln!("{what}");
            return ExitCode::from(2);
        }
        let seeds = self.seed..self.seed.saturating_add(self.runs);
        let passed = each_seed(seeds, |seed| {
            let (summary, cost) = timed(make(seed)?)
                .map_err(|what| format!("{what}\nreplay: {}", replay(arguments, seed)))?;
            match self.json {
                true => println!("{}", summary.to_json(cost)),
                false => print!("{}", summary.to_table(cost)),
            }
            Ok(())
        });
        match passed {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        }
    }
}

/// Makes a run; what it came to and what it cost.
///
/// # Errors
/// What did not hold, with the seed.
pub fn timed(setup: Setup) -> Result<(Summary, Cost), String> {
    let (begin, seed) = (Instant::now(), setup.seed);
    let run = World::new(setup)?.run();
    let summary = run.map_err(|failure| format!("seed {seed}: {failure}"))?;
    Ok((summary, Cost::since(begin)))
}

/// Makes a run of each seed; whether all passed. Of those that did not, what is wrong is printed,
/// and they keep the others from nothing.
pub fn each_seed(seeds: Range<u64>, run: impl Fn(u64) -> Result<(), String>) -> bool {
    let mut passed = true;
    for seed in seeds {
        if let Err(what) = run(seed) {
            passed = false;
            eprintln!("{what}");
        }
    }
    passed
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
pub fn some_nodes(rng: &mut Rng, nodes: u32, share: f64) -> Vec<u32> {
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

/// Parts per million of a share.
pub fn ppm(share: f64) -> u32 {
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

/// Reads a size in bytes.
pub fn size(text: &str) -> Result<u64, String> {
    netstack::size::parse(text).ok_or_else(|| netstack::size::FORM.to_string())
}

/// Reads a rate in bits a second.
pub fn rate(text: &str) -> Result<u64, String> {
    netstack::size::rate(text).ok_or_else(|| netstack::size::RATE_FORM.to_string())
}

/// Reads a time in nanoseconds.
pub fn time(text: &str) -> Result<u64, String> {
    let units = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    with_unit(text, &units).map(|time| time as u64)
}

/// Reads a share, as in 1 or 1%.
pub fn share(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text);
    match number.parse::<f64>() {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent / 100.0),
        _ => Err("a share is 0% to 100%".into()),
    }
}

/// Reads by how much a clock jumps, in microseconds: a time, with a minus if it is back.
fn jump(text: &str) -> Result<i64, String> {
    let micros = |text| time(text).map(|nanos| (nanos / 1000) as i64);
    match text.strip_prefix('-') {
        Some(back) => micros(back).map(|by| -by),
        None => micros(text),
    }
}

/// Reads something that happens, and when.
fn fault(text: &str) -> Result<(u64, Fault), String> {
    let wrong = || format!("{text} is not as die:3@2ms or heal@1s; --help names what there is");
    let (what, at) = text.split_once('@').ok_or_else(wrong)?;
    let at = time(at)?;
    let mut words = what.split(':');
    let name = words.next().unwrap_or_default();
    let plain = match name {
        "crash-control" => Some(Fault::CrashControl),
        "restart-control" => Some(Fault::RestartControl),
        "replan" => Some(Fault::Replan),
        "heal" => Some(Fault::Heal),
        _ => None,
    };
    if let Some(fault) = plain {
        return Ok((at, fault));
    }
    let number = words.next().and_then(|word| word.parse().ok());
    let node: u32 = number.ok_or_else(wrong)?;
    let fault = match (name, words.next()) {
        ("jump", Some(by)) => Fault::Jump(node, jump(by)?),
        ("boot", None) => Fault::Boot(node),
        ("die", None) => Fault::Die(node),
        ("leave", None) => Fault::Leave(node),
        ("part", None) => Fault::Part(node, 1),
        ("mute-out", None) => Fault::Mute(node, Way::Out),
        ("mute-in", None) => Fault::Mute(node, Way::In),
        ("mend", None) => Fault::Mend(node),
        ("stop", None) => Fault::Stop(node),
        ("continue", None) => Fault::Continue(node),
        ("compute", None) => Fault::Compute(node),
        ("idle", None) => Fault::Idle(node),
        ("corrupt", None) => Fault::Corrupt(node),
        ("tight", None) => Fault::Tight(node),
        ("kill-cp", None) => Fault::KillCp(node),
        _ => return Err(wrong()),
    };
    Ok((at, fault))
}

fn widths(option: &str, text: &str) -> Result<Vec<u32>, String> {
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

    #[test]
    fn a_failing_run_says_how_it_is_run_again() {
        let line = "broadcast --nodes 3 --seed 7 --runs=4 --loss 1% --quiet";
        let words: Vec<String> = line.split_whitespace().map(String::from).collect();
        let again = "cargo xtask sim broadcast --nodes 3 --loss 1% --seed 9";
        assert_eq!(replay(&words, 9), again);
    }

    #[test]
    fn all_seeds_run_although_one_fails() {
        let seen = std::cell::RefCell::new(Vec::new());
        let passed = each_seed(7..10, |seed| {
            seen.borrow_mut().push(seed);
            match seed {
                8 => Err("this one fails".into()),
                _ => Ok(()),
            }
        });
        assert!(!passed);
        assert_eq!(*seen.borrow(), [7, 8, 9]);
        assert!(each_seed(0..0, |_| Err("never".into())));
    }

    #[test]
    fn faults_are_read() {
        assert_eq!(fault("die:3@2ms"), Ok((2_000_000, Fault::Die(3))));
        assert_eq!(fault("heal@1s"), Ok((1_000_000_000, Fault::Heal)));
        let jump = Fault::Jump(2, 5_000_000);
        assert_eq!(fault("jump:2:5s@1us"), Ok((1_000, jump)));
        let back = Fault::Jump(2, -5_000_000);
        assert_eq!(fault("jump:2:-5s@1us"), Ok((1_000, back)));
        for text in [
            "die@2ms",
            "die:3",
            "die:x@1s",
            "explode:3@1s",
            "die:3:4@1s",
            "jump:3@1s",
        ] {
            assert!(fault(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_need_their_units() {
        for (text, parse) in [
            ("5", rate as fn(&str) -> Result<u64, String>),
            ("5XB", size),
            ("5", time),
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(widths("--tree", "4xx").is_err());
    }
}
