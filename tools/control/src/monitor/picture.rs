//! What the whole cluster looks like in one instant.
//!
//! Key types: [`Picture`] (one a second), [`NodeNow`], [`Health`], [`JobNow`]. Neighbours:
//! [`super::sample`] takes it from the control state, `api::monitor` shows it; tests make their
//! own.
//!
//! Invariant: a picture is never changed once it is published.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::api::types::JobInfo;
use crate::events::Event;
use crate::overlay::kept::StreamTick;

/// A node not heard for so long is slow: two heartbeats are missing.
pub const SLOW_AFTER_US: u64 = 2_500_000;
/// ... and stale after so long: what it last said is not shown as present.
pub const STALE_AFTER_US: u64 = 4_000_000;

/// How a node does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Health {
    /// In service, without a job.
    Idle,
    /// In service, with a job.
    Busy,
    /// Two heartbeats are missing.
    Slow,
    /// Not heard for longer than that; no values.
    Stale,
    /// Given up.
    Lost,
    /// Took its leave.
    Left,
    /// Was in service before control was started again, just now: it is heard within seconds.
    Awaited,
    /// Known, and has not joined since control started.
    Absent,
}

impl Health {
    /// All, as the strip shows them.
    pub const ALL: [Health; 8] = [
        Health::Idle,
        Health::Busy,
        Health::Slow,
        Health::Stale,
        Health::Lost,
        Health::Left,
        Health::Awaited,
        Health::Absent,
    ];

    /// The word for tables.
    pub fn word(self) -> &'static str {
        match self {
            Health::Idle => "idle",
            Health::Busy => "busy",
            Health::Slow => "slow",
            Health::Stale => "stale",
            Health::Lost => "lost",
            Health::Left => "left",
            Health::Awaited => "awaited",
            Health::Absent => "absent",
        }
    }

    /// One letter, for what is sent every second.
    pub fn letter(self) -> char {
        match self {
            Health::Idle => 'i',
            Health::Busy => 'b',
            Health::Slow => 's',
            Health::Stale => 't',
            Health::Lost => 'l',
            Health::Left => 'x',
            Health::Awaited => 'w',
            Health::Absent => 'a',
        }
    }
}

/// A node.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeNow {
    /// Its number.
    pub node: u32,
    /// How it does.
    pub health: Health,
    /// Its job.
    pub job: Option<u64>,
    /// Random number of its boot; 0 without one.
    pub boot: u64,
    /// MAC address.
    pub mac: String,
    /// Address of its control traffic.
    pub address: Option<String>,
    /// Why it gets no jobs, if it is drained.
    pub drained: Option<String>,
    /// Values as the store has them; empty without any.
    pub values: Vec<Option<i64>>,
    /// The picture before had the same values: nothing was read since, and the files get only what
    /// control itself knows.
    pub repeated: bool,
    /// Counters that its program has set, by their numbers; empty without any.
    pub counters: Vec<Option<i64>>,
}

/// Values beside those that every node has: of a collector that some nodes run, or sums over all
/// nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct Further {
    /// Its name in OpenMetrics text.
    pub name: String,
    /// Whether it only grows.
    pub counter: bool,
    /// Its base unit; empty for plain counts.
    pub unit: String,
    /// One sentence.
    pub help: String,
    /// What it is of, as a label and its text, none for all together; and the value in the base
    /// unit.
    pub values: Vec<(Option<(&'static str, String)>, f64)>,
}

/// A job, without the reports of its ranks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobNow {
    /// Its number.
    pub id: u64,
    /// Name of the program's file.
    pub name: String,
    /// Program id.
    pub program: String,
    /// Who submitted it.
    pub user: String,
    /// What it does, in the words of `hearth jobs`.
    pub state: String,
    /// Whether nothing more will happen to it.
    pub over: bool,
    /// Why.
    pub reason: String,
    /// Higher goes first.
    pub priority: i32,
    /// Number of ranks.
    pub ranks: u32,
    /// Its nodes as a hostlist.
    pub nodes: String,
    /// Microseconds since 1970 at which it was submitted.
    pub submitted_unix_us: u64,
    /// ... at which it began to run.
    pub started_unix_us: Option<u64>,
    /// ... at which it ended.
    pub ended_unix_us: Option<u64>,
    /// When it starts at the latest.
    pub expected_start_unix_us: Option<u64>,
    /// Highest exit status of its ranks.
    pub exit_status: Option<i32>,
    /// Names that its program gave to its counters, in their order.
    #[serde(default)]
    pub counters: Vec<String>,
    /// Once it is over: its counters as they were last seen, at most a tick before its end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counted: Vec<Counted>,
}

/// One counter of a job's program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Its number, 0 to 15.
    pub counter: usize,
    /// Ranks that have set it.
    pub ranks: usize,
    /// The smallest value of a rank.
    pub least: i64,
    /// All together, cut off at the bounds of its type.
    pub sum: i64,
    /// The largest value of a rank.
    pub most: i64,
}

impl Counted {
    /// Of the counters of each of a job's nodes, by number.
    pub fn of<'a>(nodes: impl Iterator<Item = &'a [Option<i64>]>) -> Vec<Counted> {
        let mut all: BTreeMap<usize, Counted> = BTreeMap::new();
        for counters in nodes {
            for (counter, value) in counters.iter().enumerate() {
                let Some(value) = *value else { continue };
                let counted = all.entry(counter).or_insert(Counted {
                    counter,
                    ranks: 0,
                    least: value,
                    sum: 0,
                    most: value,
                });
                counted.ranks += 1;
                counted.least = counted.least.min(value);
                counted.sum = counted.sum.saturating_add(value);
                counted.most = counted.most.max(value);
            }
        }
        all.into_values().collect()
    }
}

impl From<&JobInfo> for JobNow {
    fn from(info: &JobInfo) -> Self {
        JobNow {
            id: info.id,
            name: info.name.clone(),
            program: info.program.clone(),
            user: info.user.clone(),
            state: info.state.word().to_string(),
            over: info.state.is_final(),
            reason: info.reason.clone(),
            priority: info.priority,
            ranks: info.ranks_total,
            nodes: info.nodes.clone(),
            submitted_unix_us: info.submitted_unix_us,
            started_unix_us: info.started_unix_us,
            ended_unix_us: info.ended_unix_us,
            expected_start_unix_us: info.expected_start_unix_us,
            exit_status: info.exit_status,
            counters: Vec::new(),
            counted: Vec::new(),
        }
    }
}

/// A tick of a stream, for the files.
#[derive(Debug, Clone, PartialEq)]
pub struct KeptTick {
    /// When it began, in milliseconds since 1970.
    pub at_ms: u64,
    /// Its values.
    pub tick: StreamTick,
}

/// Values of a node that came after the picture that they belong to, which has none that were read
/// anew.
#[derive(Debug, Clone, PartialEq)]
pub struct LateValues {
    /// The `at_ms` of that picture.
    pub at_ms: u64,
    /// The node.
    pub node: u32,
    /// Values as the store has them.
    pub values: Vec<Option<i64>>,
}

/// Everything.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Picture {
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// Nodes by number.
    pub nodes: Vec<NodeNow>,
    /// Jobs that are not over and some that are, by number; not more than [`JOBS_MAX`].
    pub jobs: Vec<JobNow>,
    /// Jobs that are not over, those above the bound included.
    pub active_jobs: usize,
    /// The newest events, not more than [`EVENTS_MAX`].
    pub events: Vec<Event>,
    /// Control datagrams sent since control started.
    pub sent: u64,
    /// Of these, repetitions.
    pub repeated: u64,
    /// Milliseconds since 1970 at which the oldest of the nodes' values were read, of those that
    /// came through the overlay.
    pub read_ms: Option<u64>,
    /// What only `/metrics` has.
    pub further: Vec<Further>,
    /// Ticks of streams since the last picture, for the files.
    pub streams: Vec<KeptTick>,
    /// What came since the last picture for those before, for the files.
    pub late: Vec<LateValues>,
}

/// Most jobs in a picture.
pub const JOBS_MAX: usize = 500;
/// Most events in a picture.
pub const EVENTS_MAX: usize = 200;

impl Picture {
    /// Nodes of each [`Health`], in the order of [`Health::ALL`].
    pub fn healths(&self) -> [usize; 8] {
        Health::ALL.map(|health| {
            self.nodes
                .iter()
                .filter(|node| node.health == health)
                .count()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_a_job_are_those_of_its_ranks_together() {
        let nodes: [&[Option<i64>]; 3] = [&[Some(5), None, Some(-1)], &[], &[Some(-3)]];
        let counted = |counter, ranks, least, sum, most| Counted {
            counter,
            ranks,
            least,
            sum,
            most,
        };
        assert_eq!(
            Counted::of(nodes.into_iter()),
            [counted(0, 2, -3, 2, 5), counted(2, 1, -1, -1, -1)]
        );
        let most: [&[Option<i64>]; 2] = [&[Some(i64::MAX)], &[Some(1)]];
        assert_eq!(Counted::of(most.into_iter())[0].sum, i64::MAX);
    }
}
