//! What an exchange came to: times as ratios to the limit, what was sent, what it cost.
//!
//! The limit is the time that a link needs for the blocks of its rank in full UDP datagrams;
//! nothing that the protocol adds is part of it. Where ranks begin late, the bound is their
//! lateness and the limit.
//!
//! Invariant: what is counted here is counted by the simulator, not by the engines, unless it says
//! so.

use serde_json::{Value, json};

use super::{Exchanges, dead};
use crate::net::Net;
use crate::net::fabric::Train;

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
        Train::of(datagrams, wire)
    }
}

/// What ranks came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// The limit, or the bound where ranks are late, in nanoseconds.
    pub limit_ns: f64,
    /// The last rank that is done, to the limit; of several exchanges all together. Of programs
    /// there is none.
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
    /// Exchanges and messages of programs that were done, and that failed.
    pub steps: (u64, u64),
    /// What was sent.
    pub traffic: Traffic,
}

impl Figures {
    /// Of a run that has ended.
    pub(crate) fn of(exchanges: &Exchanges, net: &Net) -> Self {
        let setup = &exchanges.setup;
        let plan = setup.exchange.as_ref();
        let bound = plan.map_or(0.0, |plan| {
            let late = if plan.late.is_empty() {
                0
            } else {
                plan.late_ns
            };
            late as f64 + plan.limit_ns(setup) * f64::from(plan.times)
        });
        let times = plan.map_or(1, |plan| plan.times);
        let alive = |host: u32| net.is_on(host);
        let seats = || {
            let seats = (0..).zip(&exchanges.seats);
            seats.filter_map(|(host, seat)| Some((host, seat.as_ref()?)))
        };
        let mut ends: Vec<u64> = seats()
            .filter(|(host, seat)| alive(*host) && seat.lost.is_none())
            .map(|(_, seat)| seat.done_at)
            .collect();
        ends.sort_unstable();
        // Nobody's ratio is no number, which misses every goal.
        let ratio = |end: Option<&u64>| match plan {
            None => 0.0,
            Some(_) => end.map_or(f64::NAN, |end| *end as f64 / bound),
        };
        let needed: u64 = seats().map(|(_, seat)| seat.memory.packets()).sum();
        let lost = seats().filter_map(|(_, seat)| seat.lost);
        let since = |(rank, at): (netstack::ids::Rank, u64)| {
            let death = dead(setup).find(|(_, dead)| *dead == rank.0);
            at.saturating_sub(death.map_or(0, |(died, _)| died))
        };
        Figures {
            limit_ns: bound,
            ratio: ratio(ends.last()),
            ratio_median: ratio(ends.get(ends.len() / 2)),
            sent_to_needed: exchanges.traffic.data_datagrams as f64
                / (needed * u64::from(times)).max(1) as f64,
            duplicates: seats()
                .map(|(_, seat)| seat.endpoint.counters().duplicates)
                .sum(),
            named_lost: lost.clone().count() as u32,
            named_ns: lost.map(since).max().unwrap_or(0),
            steps: (exchanges.steps, exchanges.failures),
            traffic: exchanges.traffic,
        }
    }

    /// Control traffic in per cent of the data's bytes on the wire.
    pub fn control_percent(&self) -> f64 {
        self.traffic.control_wire_bytes as f64 * 100.0 / self.traffic.data_wire_bytes.max(1) as f64
    }

    /// The figures for programs.
    pub(crate) fn json(&self) -> Value {
        json!({
            "limit_s": self.limit_ns / 1e9,
            "ratio": self.ratio,
            "ratio_median": self.ratio_median,
            "sent_to_needed": self.sent_to_needed,
            "duplicates": self.duplicates,
            "named_lost": self.named_lost,
            "named_s": self.named_ns as f64 / 1e9,
            "data_datagrams": self.traffic.data_datagrams,
            "control_datagrams": self.traffic.control_datagrams,
            "control_percent": self.control_percent(),
        })
    }

    /// The figures for people.
    pub(crate) fn tell(&self, row: &mut dyn FnMut(&str, String)) {
        let (done, failed) = self.steps;
        if done + failed > 0 {
            row(
                "exchanges and messages of programs",
                format!("{done} done, {failed} failed"),
            );
        }
        if self.limit_ns > 0.0 {
            row(
                "limit (with lateness)",
                format!("{:.6} s", self.limit_ns / 1e9),
            );
            row("ratio to it, last rank", format!("{:.4}", self.ratio));
            row("ratio to it, median", format!("{:.4}", self.ratio_median));
            row(
                "data packets sent to needed",
                format!("{:.4}", self.sent_to_needed),
            );
            let (ranks, seconds) = (self.named_lost, self.named_ns as f64 / 1e9);
            row(
                "ranks that named a lost one",
                format!("{ranks} within {seconds:.3} s"),
            );
        }
        let (datagrams, percent) = (self.traffic.control_datagrams, self.control_percent());
        row(
            "control traffic of exchanges",
            format!("{datagrams} datagrams, {percent:.2} % of the data's bytes"),
        );
    }
}
