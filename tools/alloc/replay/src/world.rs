//! The discrete-event replay: jobs arrive and end as the trace says, the queue starts them.
//!
//! What happens at one time happens together, ends before arrivals; then there is one scheduling
//! pass. Jobs that the machine is too small for are left out and counted.
//!
//! Key types: [`Setting`] (what is tried), [`Figures`] (what came of it); [`replay`]. Neighbours:
//! [`crate::trace`], [`crate::warm`], `hearth_alloc::queue`.
//!
//! Invariant: every job of the trace that fits the machine starts and ends exactly once.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Result, ensure};
use hearth_alloc::machine::Machine;
use hearth_alloc::placement::Placing;
use hearth_alloc::queue::{Counters, Job, Limits, Policy, Queue};
use serde_json::{Value, json};

use crate::speed::cpu_time;
use crate::trace::Trace;
use crate::warm::WarmNodes;

/// Shorter runs count as so long in the bounded slowdown, in seconds; the usual bound.
const SLOWDOWN_BOUND_S: u64 = 10;

/// A queue policy and a placement, written `easy+exact`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// Which job may start.
    pub policy: Policy,
    /// Where.
    pub placing: Placing,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{}", self.policy, self.placing)
    }
}

/// Reads `easy+exact`; `published` alone is the published algorithm, `+exact` has the default
/// queue policy.
impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (policy, placing) = match text.split_once('+') {
            Some(("", placing)) => ("easy", placing),
            Some(both) => both,
            None if text == "published" => ("published", "published"),
            None => {
                return Err(format!(
                    "{text:?} names no queue policy and placement; write them as easy+exact"
                ));
            }
        };
        Ok(Setting {
            policy: policy.parse()?,
            placing: placing.parse()?,
        })
    }
}

/// Every queue policy with every placement.
pub fn all_settings() -> Vec<Setting> {
    use hearth_alloc::{placement, queue};
    let settings = queue::POLICY_NAMES.iter().flat_map(|policy| {
        let setting = move |placing: &&str| format!("{policy}+{placing}");
        placement::NAMES.iter().map(setting)
    });
    settings
        .map(|text| text.parse().expect("names are read"))
        .collect()
}

/// What came of a replay.
#[derive(Debug, Clone, PartialEq)]
pub struct Figures {
    /// What was tried.
    pub setting: Setting,
    /// Jobs that ran.
    pub jobs: usize,
    /// Jobs that are larger than the machine.
    pub too_large: usize,
    /// Mean over jobs of two or more nodes of the mean hops between their nodes.
    pub mean_hops: f64,
    /// Mean time from submission to start, in seconds.
    pub mean_wait_s: f64,
    /// Node seconds used, of all from the first submission to the last end.
    pub utilisation: f64,
    /// Mean of (wait + run) / run, with runs of at least ten seconds.
    pub bounded_slowdown: f64,
    /// Nodes that held the program which started on them, of all nodes that a job got.
    pub warm_share: f64,
    /// What the queue counted.
    pub counters: Counters,
    /// Placements by the rule that certified them.
    pub rules: BTreeMap<&'static str, u64>,
    /// CPU time of all passes.
    pub cpu: Duration,
}

impl Figures {
    /// One object for a line of JSON.
    pub fn to_json(&self) -> Value {
        json!({
            "policy": self.setting.to_string(),
            "mean_hops": self.mean_hops,
            "mean_wait_s": self.mean_wait_s,
            "utilisation": self.utilisation,
            "bounded_slowdown": self.bounded_slowdown,
            "warm_share": self.warm_share,
            "jobs": self.jobs,
            "too_large": self.too_large,
            "passes": self.counters.passes,
            "backfilled": self.counters.backfilled,
            "windows_short_of_units": self.counters.windows_short_of_units,
            "rules": self.rules,
            "cpu_s": self.cpu.as_secs_f64(),
        })
    }
}

/// Replays a trace on an empty machine. `progress` hears how many jobs have ended, of how many.
///
/// # Errors
/// No job of the trace fits the machine.
pub fn replay(
    trace: &Trace,
    mut machine: Machine,
    held_max: usize,
    setting: Setting,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Figures> {
    let units = machine.usable_units();
    let fits = |job: &&crate::trace::TraceJob| machine.units_for(job.count) <= units;
    let jobs: Vec<_> = trace.jobs.iter().filter(fits).collect();
    ensure!(
        !jobs.is_empty(),
        "every job of the trace is larger than the machine of {} nodes; take a larger --topology",
        machine.nodes()
    );
    let Setting { policy, placing } = setting;
    let mut queue = Queue::new(
        policy,
        Limits {
            queued: usize::MAX,
            ..Limits::default()
        },
    );
    let mut warm = WarmNodes::new(machine.nodes(), held_max);
    let mut sums = Sums::default();
    let mut ends = BinaryHeap::new();
    let mut arrived = 0;
    let mut ended = 0;
    while ended < jobs.len() {
        let next_arrival = jobs.get(arrived).map(|job| job.submit);
        let next_end = ends.peek().map(|Reverse((time, _))| *time);
        let now = next_arrival.into_iter().chain(next_end).min();
        let now = now.expect("a job that fits an empty machine starts");
        while let Some(&Reverse((time, number))) = ends.peek()
            && time == now
        {
            ends.pop();
            machine.release(number);
            queue.ended(number, true);
            ended += 1;
            progress(ended, jobs.len());
        }
        while let Some(job) = jobs.get(arrived).filter(|job| job.submit == now) {
            let number = arrived as u64;
            let job = Job::new(number, job.count, Some(job.walltime), job.submit);
            queue.submit(job)?;
            arrived += 1;
        }
        let before = cpu_time();
        let holding = |job: &Job| warm.of(&jobs[job.number as usize].program);
        let starts = queue.pass(now, &mut machine, placing, &holding);
        sums.cpu += cpu_time().saturating_sub(before);
        for start in starts {
            let number = start.job.number;
            let job = jobs[number as usize];
            sums.warm += warm.run(job.program, &start.given.nodes) as u64;
            sums.start(job, now, machine.topology().sum_of_hops(&start.given.nodes));
            if let Some(certificate) = start.given.certificate {
                *sums.rules.entry(certificate.rule()).or_default() += 1;
            }
            ends.push(Reverse((now + job.run, number)));
        }
    }
    let span = sums.last_end - jobs[0].submit;
    Ok(Figures {
        setting,
        jobs: jobs.len(),
        too_large: trace.jobs.len() - jobs.len(),
        mean_hops: sums.mean_hops / (sums.of_two as f64).max(1.0),
        mean_wait_s: sums.wait as f64 / jobs.len() as f64,
        utilisation: sums.node_seconds as f64 / (span as f64 * machine.nodes() as f64),
        bounded_slowdown: sums.slowdown / jobs.len() as f64,
        warm_share: sums.warm as f64 / sums.nodes as f64,
        counters: queue.counters(),
        rules: sums.rules,
        cpu: sums.cpu,
    })
}

/// What is added up over jobs.
#[derive(Default)]
struct Sums {
    mean_hops: f64,
    of_two: u64,
    wait: u64,
    slowdown: f64,
    node_seconds: u128,
    nodes: u64,
    warm: u64,
    last_end: u64,
    rules: BTreeMap<&'static str, u64>,
    cpu: Duration,
}

impl Sums {
    fn start(&mut self, job: &crate::trace::TraceJob, now: u64, hops: i64) {
        let count = u64::from(job.count);
        if count >= 2 {
            let pairs = count * (count - 1) / 2;
            self.mean_hops += hops as f64 / pairs as f64;
            self.of_two += 1;
        }
        let wait = now - job.submit;
        self.wait += wait;
        let slowdown = (wait + job.run) as f64 / job.run.max(SLOWDOWN_BOUND_S) as f64;
        self.slowdown += slowdown.max(1.0);
        self.node_seconds += u128::from(count) * u128::from(job.run);
        self.nodes += count;
        self.last_end = self.last_end.max(now + job.run);
    }
}
