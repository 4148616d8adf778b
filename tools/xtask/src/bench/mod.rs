//! `cargo xtask bench NAME [--only CASE] [--json] [--check] [--write]`: figures with their goals.
//!
//! A benchmark gives [`Row`]s: a value with its unit and, where there is one, its goal. Every
//! figure is a ratio taken in one run or a count; seconds stand beside them as context. Neighbours:
//! [`alloc`], [`boot`], [`broadcast`], [`call`], [`exchange`], [`files`], [`launch`], [`mpi`],
//! [`noise`], [`openmp`], [`overlay`], [`packet`], [`queue`] measure; [`linux`] prepares the peer
//! that they compare with, [`cluster`] and [`namespaces`] bring machines up, [`mpich`] starts a
//! peer on them, [`links`] knows what limited links can do. [`record`] keeps figures in docs/.
//!
//! Invariant: a row holds what was measured in this run; a case that could not be measured fairly
//! says `refused` with the reason and misses its goal. Busy processors can only lengthen a time, so
//! a time that meets its goal on them stands ([`Row::time`]).

mod alloc;
mod boot;
mod broadcast;
mod call;
mod cluster;
mod control_test;
mod exchange;
mod files;
mod launch;
mod links;
mod linux;
mod mpi;
mod mpich;
mod namespaces;
mod noise;
mod openmp;
mod overlay;
mod packet;
mod queue;
pub mod record;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::{Map, Value, json};

use crate::build;
use crate::workspace::Workspace;

/// Load average above which times of emulated machines say nothing on a machine with two cores.
const LOAD_MOST: f64 = 3.0;
/// How long to wait for that; the average needs a minute or two to forget a build.
const QUIET_LIMIT: Duration = Duration::from_secs(180);

/// Most cases that an error names one by one.
const NAMED_MOST: usize = 30;

/// How a value is compared with its goal.
#[derive(Clone, Copy, Debug)]
pub enum Goal {
    /// The value must be at most this.
    AtMost(f64),
    /// The value must be at least this.
    AtLeast(f64),
}

impl std::fmt::Display for Goal {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Goal::AtMost(most) => write!(formatter, "<= {most}"),
            Goal::AtLeast(least) => write!(formatter, ">= {least}"),
        }
    }
}

/// One figure.
#[derive(Clone, Debug)]
pub struct Row {
    /// Case within the benchmark, for example `hearth-4`.
    pub case: String,
    /// What was measured, in words_with_units_last.
    pub metric: String,
    /// The figure, or why it was refused.
    pub value: Result<f64, String>,
    /// Unit of the figure.
    pub unit: &'static str,
    /// What it should be; absent for baselines and context.
    pub goal: Option<Goal>,
}

impl Row {
    /// A figure without a goal.
    pub fn context(case: &str, metric: &str, value: f64, unit: &'static str) -> Self {
        Self {
            case: case.into(),
            metric: metric.into(),
            value: Ok(value),
            unit,
            goal: None,
        }
    }

    /// A figure with a goal.
    pub fn goal(case: &str, metric: &str, value: f64, unit: &'static str, goal: Goal) -> Self {
        Self {
            case: case.into(),
            metric: metric.into(),
            value: Ok(value),
            unit,
            goal: Some(goal),
        }
    }

    /// A figure that could not be measured fairly.
    pub fn refused(case: &str, metric: &str, unit: &'static str, reason: String) -> Self {
        Self {
            case: case.into(),
            metric: metric.into(),
            value: Err(reason),
            unit,
            goal: None,
        }
    }

    /// A figure made of times. `busy` says that the processors were the bottleneck, which lengthens
    /// a time: the figure is an upper bound then. It stands if it meets its goal even so, and is
    /// refused otherwise, as are those without a goal: a peer is not shown slower than it is.
    pub fn time(
        case: &str,
        metric: &str,
        value: f64,
        unit: &'static str,
        most: Option<f64>,
        busy: Option<String>,
    ) -> Self {
        match (most, busy) {
            (Some(most), Some(reason)) if value > most => Self::refused(case, metric, unit, reason),
            (None, Some(reason)) => Self::refused(case, metric, unit, reason),
            (Some(most), _) => Self::goal(case, metric, value, unit, Goal::AtMost(most)),
            (None, None) => Self::context(case, metric, value, unit),
        }
    }

    fn ok(&self) -> Option<bool> {
        match (&self.value, self.goal) {
            (Err(_), _) => Some(false),
            (Ok(_), None) => None,
            (Ok(value), Some(Goal::AtMost(most))) => Some(*value <= most),
            (Ok(value), Some(Goal::AtLeast(least))) => Some(*value >= least),
        }
    }

    fn to_json(&self, bench: &str, load: f64) -> Value {
        let mut row = Map::new();
        row.insert("bench".into(), json!(bench));
        row.insert("case".into(), json!(self.case));
        row.insert("metric".into(), json!(self.metric));
        match &self.value {
            Ok(value) => row.insert("value".into(), json!(value)),
            Err(reason) => row.insert("refused".into(), json!(reason)),
        };
        row.insert("unit".into(), json!(self.unit));
        if let Some(goal) = self.goal {
            drop(row.insert("goal".into(), json!(goal.to_string())));
        }
        if let Some(ok) = self.ok() {
            row.insert("ok".into(), json!(ok));
        }
        row.insert("load".into(), json!(load));
        Value::Object(row)
    }
}

/// What the command line asks of a benchmark.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Benchmark: alloc, boot, broadcast, call, exchange, files, launch, mpi, noise, openmp,
    /// overlay, packet or queue; without one, --write makes docs/benchmarks.md of
    /// docs/benchmarks.json.
    #[arg(required_unless_present = "write")]
    pub name: Option<String>,
    /// Only this case, or all cases whose names begin with this and a slash.
    #[arg(long, value_name = "CASE")]
    pub only: Option<String>,
    /// One JSON object a line on standard output instead of a table.
    #[arg(long)]
    pub json: bool,
    /// Do not wait until the machine is quiet; goals made of times are refused if it is not.
    #[arg(long)]
    busy: bool,
    /// Exit with an error when a goal is missed.
    #[arg(long)]
    pub check: bool,
    /// Keep the figures in docs/benchmarks.json, and make docs/benchmarks.md of it.
    #[arg(long)]
    write: bool,
}

/// Runs one benchmark and prints its rows as they come.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let Some(name) = options.name.as_deref() else {
        return record::Record::read(workspace)?.write(workspace);
    };
    let mut report = Report {
        name,
        options,
        missed: Vec::new(),
        printed_header: false,
        rows: Vec::new(),
        asked: RefCell::default(),
    };
    match name {
        "alloc" => alloc::run(workspace, &mut report)?,
        "boot" => boot::run(workspace, &mut report)?,
        "broadcast" => broadcast::run(workspace, &mut report)?,
        "call" => call::run(workspace, &mut report)?,
        "exchange" => exchange::run(workspace, &mut report)?,
        "files" => files::run(workspace, &mut report)?,
        "launch" => launch::run(workspace, &mut report)?,
        "mpi" => mpi::run(workspace, &mut report)?,
        "noise" => noise::run(workspace, &mut report)?,
        "openmp" => openmp::run(workspace, &mut report)?,
        "overlay" => overlay::run(workspace, &mut report)?,
        "packet" => packet::run(workspace, &mut report)?,
        "queue" => queue::CASE.run(workspace, &mut report)?,
        other => {
            bail!(
                "no benchmark is called {other:?}; there are: alloc, boot, broadcast, call, \
                 exchange, files, launch, mpi, noise, openmp, overlay, packet, queue"
            )
        }
    }
    if let (Some(only), 0) = (&options.only, report.rows.len()) {
        let there_are = there_are(&report.asked.take(), only);
        bail!("{name} has no case {only:?}; {there_are}");
    }
    if options.write {
        let mut record = record::Record::read(workspace)?;
        record.take(workspace, name, &report.rows)?;
        record.write(workspace)?;
    }
    if options.check && !report.missed.is_empty() {
        bail!("goals missed: {}", report.missed.join(", "));
    }
    Ok(())
}

/// What there is instead of a case that there is not: those that its name is a part of, or what all
/// names begin with.
fn there_are(asked: &BTreeSet<String>, only: &str) -> String {
    let near: BTreeSet<&str> = asked
        .iter()
        .map(String::as_str)
        .filter(|case| case.contains(only))
        .collect();
    let begins = || {
        asked
            .iter()
            .filter_map(|case| case.split('/').next())
            .collect()
    };
    let (title, names): (_, BTreeSet<&str>) = match near.len() {
        1..=NAMED_MOST => ("there are", near),
        _ => ("cases begin with", begins()),
    };
    if names.is_empty() {
        return "run it without --only to see them".to_string();
    }
    format!("{title}: {}", Vec::from_iter(names).join(", "))
}

/// Takes rows and prints them in the form that was asked for.
pub struct Report<'a> {
    name: &'a str,
    options: &'a Options,
    missed: Vec<String>,
    printed_header: bool,
    rows: Vec<Row>,
    /// Cases that were looked for, for who asked for one that there is not.
    asked: RefCell<BTreeSet<String>>,
}

impl Report<'_> {
    /// Whether `case` was asked for.
    pub fn wants(&self, case: &str) -> bool {
        self.asked.borrow_mut().insert(case.to_string());
        self.options.only.as_deref().is_none_or(|only| {
            case.strip_prefix(only)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    /// Whether `case` was asked for by its name, or the beginning of it: for what takes so long
    /// that nobody wants it along with everything else.
    pub fn wants_named(&self, case: &str) -> bool {
        self.wants(case) && self.options.only.is_some()
    }

    /// A line of progress on standard error.
    pub fn progress(&self, text: &str) {
        eprintln!("bench {}: {text}", self.name);
    }

    /// Takes one figure.
    pub fn row(&mut self, row: Row) {
        if row.ok() == Some(false) {
            self.missed.push(format!("{} {}", row.case, row.metric));
        }
        self.print(&row);
        self.rows.push(row);
    }

    fn print(&mut self, row: &Row) {
        if self.options.json {
            println!("{}", row.to_json(self.name, load_average()));
            return;
        }
        if !self.printed_header {
            println!(
                "{:<36} {:<26} {:>14} {:<14} {:<14} ok",
                "case", "metric", "value", "unit", "goal"
            );
            self.printed_header = true;
        }
        let value = match &row.value {
            Ok(value) => format!("{value:.3}"),
            Err(reason) => format!("refused: {reason}"),
        };
        let goal = row.goal.map_or_else(String::new, |goal| goal.to_string());
        let ok = row.ok().map_or("", |ok| if ok { "yes" } else { "NO" });
        println!(
            "{:<36} {:<26} {:>14} {:<14} {:<14} {}",
            row.case, row.metric, value, row.unit, goal, ok
        );
    }
}

/// The one-minute load average of the machine, recorded beside each figure.
pub fn load_average() -> f64 {
    std::fs::read_to_string("/proc/loadavg")
        .ok()
        .and_then(|text| text.split(' ').next().and_then(|first| first.parse().ok()))
        .unwrap_or(-1.0)
}

/// Builds what is measured, and waits until the machine is quiet; the load average then. Where it
/// does not wait (`--busy`), that of before the build: what others do with the processors.
fn ready(workspace: &Workspace, report: &Report) -> Result<f64> {
    let before = load_average();
    build::once(workspace)?;
    let after = quiet(report);
    Ok(if report.options.busy { before } else { after })
}

/// Waits until the machine is quiet, for a limited time; the load average then.
fn quiet(report: &Report) -> f64 {
    let end = Instant::now() + QUIET_LIMIT;
    let mut load = load_average();
    if report.options.busy {
        return load;
    }
    if load > LOAD_MOST {
        report.progress(&format!(
            "load average {load}: waiting for at most {} s",
            QUIET_LIMIT.as_secs()
        ));
    }
    while load > LOAD_MOST && Instant::now() < end {
        std::thread::sleep(Duration::from_secs(1));
        load = load_average();
    }
    load
}

/// The middle value, the upper one of two; not a number when there is none.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_that_is_not_there_names_those_that_are_like_it() {
        let all = (0..40).map(|case| format!("sim-64/{case}"));
        let all: BTreeSet<String> = all
            .chain(["peers-8/a", "peers-16/b"].map(str::to_string))
            .collect();
        assert_eq!(
            there_are(&all, "peers-"),
            "there are: peers-16/b, peers-8/a"
        );
        assert_eq!(
            there_are(&all, "sim-"),
            "cases begin with: peers-16, peers-8, sim-64"
        );
        assert_eq!(there_are(&all, "x"), there_are(&all, "sim-"));
        assert!(there_are(&BTreeSet::new(), "x").contains("without --only"));
    }
}
