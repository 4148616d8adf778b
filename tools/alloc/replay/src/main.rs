//! `hearth-replay`: replays of job traces, and the CPU time of placement decisions.
//!
//! Neighbours: `cargo xtask replay` runs the first, `cargo xtask bench alloc` the second; the
//! library beside this file does the work.
//!
//! Invariant: results go to standard output, progress to standard error.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use hearth_alloc::machine::Machine;
use hearth_alloc::placement::published::unit_size;
use hearth_alloc::topology::Topology;
use hearth_replay::trace::Trace;
use hearth_replay::world::{Figures, Setting};
use hearth_replay::{speed, trace, world};
use serde_json::json;

/// Replay job traces, and measure placement decisions.
#[derive(Debug, Parser)]
#[command(name = "hearth-replay", bin_name = "cargo xtask", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Replay a trace in Standard Workload Format on a fat tree
    Replay(Replay),
    /// Measure the CPU time of decisions on large machines
    #[command(hide = true)]
    Speed(Speed),
}

#[derive(Debug, Args)]
struct Replay {
    /// The trace, packed with gzip or not
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// Widths of the tree from the leaves up
    #[arg(long, value_name = "WIDTHS", default_value = "16x16x16")]
    topology: Topology,
    /// Nodes in a scheduling unit; 0: by the published rule [default: 0]
    #[arg(long, value_name = "NODES")]
    unit: Option<u32>,
    /// Queue policy and placement, as in easy+exact; several with commas, `all` for all. Policies:
    /// published, fcfs, easy, easy-in-order, conservative. Placements: published, exact, greedy,
    /// first-fit, contiguous, random
    #[arg(long, value_name = "POLICY", default_value = "easy+exact")]
    policy: String,
    /// Programs that a node holds for their next run
    #[arg(long, value_name = "COUNT", default_value_t = 2)]
    held: usize,
    /// One JSON object a policy and line instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Speed {
    /// Only this case, or all whose names begin with this and a slash
    #[arg(long)]
    only: Option<String>,
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Replay(options) => replay(&options),
        Command::Speed(options) => measure(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn replay(options: &Replay) -> Result<()> {
    let settings = if options.policy == "all" {
        world::all_settings()
    } else {
        let settings = options.policy.split(',').map(str::parse::<Setting>);
        let settings: Result<Vec<_>, _> = settings.collect();
        settings.map_err(anyhow::Error::msg).context("--policy")?
    };
    let unit = options.unit.filter(|unit| *unit > 0);
    let unit = unit.unwrap_or_else(|| unit_size(&options.topology));
    let machine = Machine::new(options.topology.clone(), unit).context("--unit")?;
    let trace = trace::read(&options.trace)?;
    if !options.json {
        print_header(options, &trace, unit);
    }
    for setting in settings {
        let mut progress = Progress::new(setting.to_string());
        let mut tell = |done, all| progress.tell(done, all);
        let figures = world::replay(&trace, machine.clone(), options.held, setting, &mut tell)?;
        progress.finish();
        let line = if options.json {
            figures.to_json().to_string()
        } else {
            table_line(&figures)
        };
        // A reader that has gone wants no more.
        if writeln!(std::io::stdout(), "{line}").is_err() {
            return Ok(());
        }
    }
    Ok(())
}

fn print_header(options: &Replay, trace: &Trace, unit: u32) {
    println!(
        "{} jobs on {} ({} nodes) in units of {unit}; {} more never ran",
        trace.jobs.len(),
        options.topology,
        options.topology.nodes(),
        trace.empty
    );
    println!(
        "{:<24} {:>9} {:>12} {:>11} {:>13} {:>10} {:>9} {:>7}",
        "policy",
        "mean_hops",
        "mean_wait_s",
        "utilisation",
        "slowdown",
        "warm_share",
        "too_large",
        "cpu_s"
    );
}

fn table_line(figures: &Figures) -> String {
    format!(
        "{:<24} {:>9.4} {:>12.0} {:>11.4} {:>13.2} {:>10.4} {:>9} {:>7.1}",
        figures.setting.to_string(),
        figures.mean_hops,
        figures.mean_wait_s,
        figures.utilisation,
        figures.bounded_slowdown,
        figures.warm_share,
        figures.too_large,
        figures.cpu.as_secs_f64()
    )
}

/// Progress on standard error: one line that is written over on a terminal, else a line for every
/// tenth.
struct Progress {
    title: String,
    is_terminal: bool,
    told: usize,
}

impl Progress {
    fn new(title: String) -> Self {
        Progress {
            title,
            is_terminal: std::io::stderr().is_terminal(),
            told: 0,
        }
    }

    fn tell(&mut self, done: usize, all: usize) {
        let steps = if self.is_terminal { 200 } else { 10 };
        let step = done * steps / all;
        if step == self.told {
            return;
        }
        self.told = step;
        let end = if self.is_terminal { "" } else { "\n" };
        let start = if self.is_terminal { "\r" } else { "" };
        eprint!(
            "{start}{}: {done} of {all} jobs have ended{end}",
            self.title
        );
    }

    fn finish(&self) {
        if self.is_terminal {
            eprint!("\r\x1b[K");
        }
    }
}

/// One JSON object a line, for `cargo xtask bench alloc`.
fn measure(options: &Speed) -> Result<()> {
    let only = options.only.as_deref();
    let wants = |case: &str| {
        only.is_none_or(|only| {
            let rest = case.strip_prefix(only);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    };
    speed::run(&wants, &mut |row| {
        let object = json!({
            "case": row.case,
            "metric": row.metric,
            "value": row.value,
            "unit": row.unit,
            "goal": row.goal,
        });
        println!("{object}");
    });
    Ok(())
}
