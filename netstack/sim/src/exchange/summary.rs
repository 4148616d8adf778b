//! What a run came to: times as ratios to the limit, what was sent, what it cost.
//!
//! The limit is the time that a link needs for the blocks of its rank in full UDP datagrams;
//! nothing that the protocol adds is part of it. Where ranks begin late, the bound is their
//! lateness and the limit.
//!
//! Invariant: what is counted here is counted by the simulator, not by the engines, unless it says
//! so.

use serde_json::{Value, json};

use super::world::World;
use crate::broadcast::fabric::{Tally, Train};
use crate::broadcast::summary::Cost;

/// What ranks sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Data packets sent.
    pub data_datagrams: u64,
    /// Their bytes on the wire.
    pub data_wire_bytes: u64,
    /// Other datagrams.
    pub control_datagrams: u64,
    /// Their bytes on the wire.
    pub control_wire_bytes: u64,
    /// Ranks that are done, or have named a lost one.
    pub finished: u32,
}

impl Traffic {
    /// Counts datagrams, a bit each, and gives the train that they travel as.
    pub fn charge(&mut self, is_data: bool, datagrams: u64, wire: u32) -> Train {
        let count = u64::from(datagrams.count_ones());
        if is_data {
            self.data_datagrams += count;
            self.data_wire_bytes += u64::from(wire);
        } else {
            self.control_datagrams += count;
            self.control_wire_bytes += u64::from(wire);
        }
        Train {
            datagrams,
            wire,
            sent_in: 0,
            passed: 0,
        }
    }
}

/// What a run came to.
#[derive(Clone, Copy, Debug)]
pub struct Summary {
    /// A number that two runs of one setup share.
    pub digest: u64,
    /// Events of the simulator.
    pub events: u64,
    /// The limit, or the bound where ranks are late, in nanoseconds.
    pub limit_ns: f64,
    /// The last rank that is done, to the limit; of several exchanges all together.
    pub ratio: f64,
    /// The rank in the middle.
    pub ratio_median: f64,
    /// Data packets sent to data packets needed.
    pub sent_to_needed: f64,
    /// Packets that came and were there already, as the ranks say.
    pub duplicates: u64,
    /// Ranks that named a lost one.
    pub named_lost: u32,
    /// Longest time from a death until a rank named it, in nanoseconds.
    pub named_ns: u64,
    /// What became of what was sent.
    pub tally: Tally,
    /// What was sent.
    pub traffic: Traffic,
}

impl Summary {
    /// Of a run that has ended.
    pub(super) fn of(world: &World) -> Self {
        let setup = &world.setup;
        let limit = setup.limit_ns();
        let late = if setup.late.is_empty() {
            0.0
        } else {
            setup.late_ns as f64
        };
        let bound = late + limit * f64::from(setup.times);
        let mut ends: Vec<u64> = (world.stations.iter())
            .filter(|station| station.alive && station.lost.is_none())
            .map(|station| station.done_at)
            .collect();
        ends.sort_unstable();
        // Nobody's ratio is no number, which misses every goal.
        let ratio = |end: Option<&u64>| end.map_or(f64::NAN, |end| *end as f64 / bound);
        let needed: u64 = world
            .stations
            .iter()
            .map(|station| station.memory.packets())
            .sum();
        let lost = world.stations.iter().filter_map(|station| station.lost);
        let since = |(rank, at): (netstack::ids::Rank, u64)| {
            let death = setup.deaths.iter().find(|(_, dead)| *dead == rank.0);
            at.saturating_sub(death.map_or(0, |(died, _)| *died))
        };
        Summary {
            digest: world.digest,
            events: world.events,
            limit_ns: bound,
            ratio: ratio(ends.last()),
            ratio_median: ratio(ends.get(ends.len() / 2)),
            sent_to_needed: world.traffic.data_datagrams as f64
                / (needed * u64::from(setup.times)).max(1) as f64,
            duplicates: (world.stations.iter())
                .map(|station| station.endpoint.counters().duplicates)
                .sum(),
            named_lost: lost.clone().count() as u32,
            named_ns: lost.map(since).max().unwrap_or(0),
            tally: world.fabric.tally,
            traffic: world.traffic,
        }
    }

    /// Control traffic in per cent of the data's bytes on the wire.
    pub fn control_percent(&self) -> f64 {
        self.traffic.control_wire_bytes as f64 * 100.0 / self.traffic.data_wire_bytes.max(1) as f64
    }

    /// The figures for programs.
    pub fn to_json(&self, cost: Cost) -> Value {
        json!({
            "digest": format!("{:016x}", self.digest),
            "events": self.events,
            "limit_s": self.limit_ns / 1e9,
            "ratio": self.ratio,
            "ratio_median": self.ratio_median,
            "sent_to_needed": self.sent_to_needed,
            "duplicates": self.duplicates,
            "named_lost": self.named_lost,
            "named_s": self.named_ns as f64 / 1e9,
            "port_backlog_bytes": self.tally.port_backlog,
            "trunk_backlog_bytes": self.tally.trunk_backlog,
            "lost_datagrams": self.tally.lost,
            "overflowed_datagrams": self.tally.overflowed,
            "data_datagrams": self.traffic.data_datagrams,
            "control_datagrams": self.traffic.control_datagrams,
            "control_percent": self.control_percent(),
            "wall_s": cost.wall_s,
            "memory_bytes": cost.memory_bytes,
        })
    }

    /// The figures for people.
    pub fn to_table(&self, cost: Cost) -> String {
        let rows = [
            (
                "limit (with lateness)",
                format!("{:.6} s", self.limit_ns / 1e9),
            ),
            ("ratio to it, last rank", format!("{:.4}", self.ratio)),
            ("ratio to it, median", format!("{:.4}", self.ratio_median)),
            (
                "data packets sent to needed",
                format!("{:.4}", self.sent_to_needed),
            ),
            (
                "ranks that named a lost one",
                format!(
                    "{} within {:.3} s",
                    self.named_lost,
                    self.named_ns as f64 / 1e9
                ),
            ),
            (
                "port backlog, most",
                format!("{} bytes", self.tally.port_backlog),
            ),
            (
                "dropped at full queues",
                format!("{} datagrams", self.tally.overflowed),
            ),
            ("lost", format!("{} datagrams", self.tally.lost)),
            (
                "control traffic",
                format!(
                    "{} datagrams, {:.2} % of the data's bytes",
                    self.traffic.control_datagrams,
                    self.control_percent()
                ),
            ),
            (
                "events, digest",
                format!("{}, {:016x}", self.events, self.digest),
            ),
            (
                "took",
                format!("{:.1} s, {} MB", cost.wall_s, cost.memory_bytes / 1_000_000),
            ),
        ];
        rows.iter()
            .map(|(name, value)| format!("{name:<32} {value}\n"))
            .collect()
    }
}
