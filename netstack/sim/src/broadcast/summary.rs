//! What a run came to: times as ratios to the limit, what was sent, what it cost.
//!
//! The limit of a cast is the time that one link needs for its bytes in full UDP datagrams (1,472
//! bytes of payload in a frame that takes 1,538 with preamble and gap). Nothing that the protocol
//! adds is part of it: its own headers, shorter datagrams and lists of hashes count against it. A
//! node that is ten times slower has a limit ten times as long.
//!
//! Key types: [`Summary`], [`CastFigures`], [`Traffic`].
//!
//! Invariant: what is counted here is counted by the simulator, not by the engines.

use netstack::MAX_DATAGRAM;
use netstack::broadcast::{FRAGMENT, Message, Object, Packet};
use serde_json::{Value, json};

use super::fabric::{Tally, Train, frame_bytes};
use super::progress::memory_bytes;
use super::setup::SLOW_FACTOR;
use super::station::NEVER;
use super::wire;
use super::world::World;

/// What stations sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Datagrams of data, and their bytes on the wire.
    pub data_datagrams: u64,
    /// See `data_datagrams`.
    pub data_wire_bytes: u64,
    /// Messages that are not data, and their bytes on the wire.
    pub control_messages: u64,
    /// See `control_messages`.
    pub control_wire_bytes: u64,
    /// Messages that are not data, which the control node sent or got: requests are most of them.
    pub at_control_messages: u64,
    /// Bytes of payload that the control node sent.
    pub source_payload_bytes: u64,
    /// Fragments of data that reached a node that is on.
    pub delivered_fragments: u64,
}

impl Traffic {
    /// Counts a packet; the train that it travels as.
    pub fn charge(
        &mut self,
        from_control: bool,
        packet: &Packet,
        object: Option<&Object>,
    ) -> Train {
        if let (
            Message::Data {
                block, fragments, ..
            },
            Some(object),
        ) = (&packet.message, object)
        {
            let (payload, wire) = data_bytes(object, *block, *fragments);
            self.data_datagrams += u64::from(fragments.count_ones());
            self.data_wire_bytes += u64::from(wire);
            if from_control {
                self.source_payload_bytes += u64::from(payload);
            }
            return Train {
                datagrams: *fragments,
                wire,
                sent_in: 0,
                passed: 0,
            };
        }
        let wire = frame_bytes(wire::message_bytes(packet));
        self.count_control(from_control, wire);
        Train {
            datagrams: 1,
            wire,
            sent_in: 0,
            passed: 0,
        }
    }

    /// Counts a datagram; the train that it travels as.
    pub fn charge_datagram(&mut self, from_control: bool, bytes: &[u8]) -> Train {
        let wire = frame_bytes(bytes.len() as u32);
        match wire::data_payload(bytes) {
            Some(payload) => {
                self.data_datagrams += 1;
                self.data_wire_bytes += u64::from(wire);
                if from_control {
                    self.source_payload_bytes += u64::from(payload);
                }
            }
            None => self.count_control(from_control, wire),
        }
        Train {
            datagrams: 1,
            wire,
            sent_in: 0,
            passed: 0,
        }
    }

    /// Counts a message that is not data, which the control node got.
    pub fn count_at_control(&mut self) {
        self.at_control_messages += 1;
    }

    fn count_control(&mut self, from_control: bool, wire: u32) {
        self.control_messages += 1;
        self.control_wire_bytes += u64::from(wire);
        self.at_control_messages += u64::from(from_control);
    }
}

/// Bytes of payload and bytes on the wire of some fragments of a block.
fn data_bytes(object: &Object, block: u32, fragments: u64) -> (u32, u32) {
    let length = object.length(block) as u32;
    let last = length.div_ceil(FRAGMENT as u32).saturating_sub(1);
    let full = fragments & !(1_u64 << last);
    let count = full.count_ones();
    let mut payload = count * FRAGMENT as u32;
    let mut wire = count * frame_bytes(wire::DATA_HEADER + FRAGMENT as u32);
    if fragments >> last & 1 != 0 {
        let rest = length - last * FRAGMENT as u32;
        payload += rest;
        wire += frame_bytes(wire::DATA_HEADER + rest);
    }
    (payload, wire)
}

/// Nanoseconds that one link of `rate` bits a second needs for `bytes` bytes in full datagrams.
pub fn limit_ns(bytes: u64, rate: u64) -> f64 {
    let full = MAX_DATAGRAM as u64;
    let mut wire = bytes / full * u64::from(frame_bytes(MAX_DATAGRAM as u32));
    if !bytes.is_multiple_of(full) {
        wire += u64::from(frame_bytes((bytes % full) as u32));
    }
    wire as f64 * 8e9 / rate as f64
}

/// What one cast came to.
#[derive(Clone, Debug, PartialEq)]
pub struct CastFigures {
    /// Bytes of the object.
    pub bytes: u64,
    /// Blocks of it, list blocks included.
    pub blocks: u32,
    /// Members that were there from the start.
    pub members: u32,
    /// Of these, how many were alive all the time and not slow, and did not have it before.
    pub healthy: u32,
    /// Members that had no room for it, as the source has said.
    pub refused: u32,
    /// The limit, in nanoseconds.
    pub limit_ns: f64,
    /// The limit without any header, in nanoseconds.
    pub payload_limit_ns: f64,
    /// When the last and the middle healthy member had everything, as a ratio to the limit.
    pub ratio_max: f64,
    /// See `ratio_max`.
    pub ratio_median: f64,
    /// When the last slow member had everything, as a ratio to its own limit; 0 without any.
    pub slow_ratio: f64,
    /// When the source said that it has finished, in nanoseconds after its begin; 0: it was
    /// cancelled.
    pub finished_ns: u64,
    /// It was cancelled.
    pub cancelled: bool,
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Digest of everything delivered and when.
    pub digest: u64,
    /// Events.
    pub events: u64,
    /// The casts in the order of the setup.
    pub casts: Vec<CastFigures>,
    /// What the network did.
    pub tally: Tally,
    /// What stations sent.
    pub traffic: Traffic,
    /// Fragments that arrived at a node which had them, as a share of those needed.
    pub duplicates: f64,
    /// Blocks that the control node sent, by its payload and the first cast's block size.
    pub source_blocks: f64,
    /// How evenly several casts shared the network until the first node had one of them: Jain's
    /// index; 1 for a single cast.
    pub fairness: f64,
    /// Senders of wrong bytes that the source named, each once.
    pub corrupt_senders: u32,
    /// Casts made anew, for members that an earlier one missed.
    pub recasts: u32,
    /// Ranks that nodes looked up in the connection table that they got, and found right.
    pub looked_up: u64,
    /// Virtual time at the end, in nanoseconds.
    pub ended_ns: u64,
}

/// What a run cost; not part of what is compared.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Seconds of the machine.
    pub wall_s: f64,
    /// Most bytes of memory.
    pub memory_bytes: u64,
}

impl Summary {
    /// Of a run that has ended.
    pub(super) fn of(world: &World, looked_up: u64) -> Self {
        let casts = (0..world.operator.runs.len())
            .map(|plan| cast_figures(world, plan))
            .collect();
        let nodes = &world.stations[..world.setup.nodes as usize];
        let needed: u64 = nodes.iter().map(|station| station.shelf.fragments).sum();
        let spare = world.traffic.delivered_fragments as f64 - needed as f64;
        let block = world
            .contents
            .first()
            .map_or(1, |content| content.object.block_bytes());
        let mut corrupt: Vec<_> = (world.operator.runs.iter())
            .flat_map(|run| run.corrupt.iter().map(|&(node, _)| node))
            .collect();
        corrupt.sort_unstable();
        corrupt.dedup();
        Summary {
            digest: world.digest,
            events: world.events,
            casts,
            tally: world.fabric.tally,
            traffic: world.traffic,
            duplicates: spare / needed.max(1) as f64,
            source_blocks: world.traffic.source_payload_bytes as f64 / block as f64,
            fairness: jain(&world.operator.shares),
            corrupt_senders: corrupt.len() as u32,
            recasts: (world.operator.runs.iter())
                .map(|run| run.casts.saturating_sub(1))
                .sum(),
            looked_up,
            ended_ns: world.now(),
        }
    }

    /// What the control node sent, as a multiple of the first object.
    pub fn source_objects(&self) -> f64 {
        let bytes = self.casts.first().map_or(1, |cast| cast.bytes).max(1);
        self.traffic.source_payload_bytes as f64 / bytes as f64
    }

    /// The figures for programs.
    pub fn to_json(&self, cost: Cost) -> Value {
        let casts: Vec<Value> = (self.casts.iter())
            .map(|cast| {
                json!({
                    "bytes": cast.bytes,
                    "blocks": cast.blocks,
                    "members": cast.members,
                    "healthy": cast.healthy,
                    "refused": cast.refused,
                    "limit_s": cast.limit_ns / 1e9,
                    "payload_limit_s": cast.payload_limit_ns / 1e9,
                    "ratio": cast.ratio_max,
                    "ratio_median": cast.ratio_median,
                    "slow_ratio": cast.slow_ratio,
                    "finished_s": cast.finished_ns as f64 / 1e9,
                    "cancelled": cast.cancelled,
                })
            })
            .collect();
        json!({
            "digest": format!("{:016x}", self.digest),
            "events": self.events,
            "casts": casts,
            "duplicates": self.duplicates,
            "fairness": self.fairness,
            "port_backlog_bytes": self.tally.port_backlog,
            "trunk_backlog_bytes": self.tally.trunk_backlog,
            "datagrams": self.tally.datagrams,
            "lost_datagrams": self.tally.lost,
            "overflowed_datagrams": self.tally.overflowed,
            "data_wire_bytes": self.traffic.data_wire_bytes,
            "control_messages": self.traffic.control_messages,
            "control_wire_bytes": self.traffic.control_wire_bytes,
            "at_control_messages": self.traffic.at_control_messages,
            "source_blocks": self.source_blocks,
            "source_objects": self.source_objects(),
            "corrupt_senders": self.corrupt_senders,
            "recasts": self.recasts,
            "looked_up": self.looked_up,
            "virtual_s": self.ended_ns as f64 / 1e9,
            "wall_s": cost.wall_s,
            "memory_bytes": cost.memory_bytes,
        })
    }

    /// The figures for people.
    pub fn to_table(&self, cost: Cost) -> String {
        let mut rows: Vec<(String, String)> = Vec::new();
        let mut row = |name: &str, value: String| rows.push((name.into(), value));
        for (number, cast) in self.casts.iter().enumerate() {
            if self.casts.len() > 1 {
                row("cast", number.to_string());
            }
            row("bytes, blocks", format!("{}, {}", cast.bytes, cast.blocks));
            row(
                "members, healthy",
                format!("{}, {}", cast.members, cast.healthy),
            );
            if cast.refused > 0 {
                row("members without room", cast.refused.to_string());
            }
            row(
                "limit",
                format!(
                    "{:.6} s ({:.6} s without headers)",
                    cast.limit_ns / 1e9,
                    cast.payload_limit_ns / 1e9
                ),
            );
            if cast.cancelled {
                row("cancelled", "yes".into());
                continue;
            }
            row(
                "ratio to the limit, last healthy member",
                ratio_text(cast.ratio_max),
            );
            row("ratio to the limit, median", ratio_text(cast.ratio_median));
            if cast.slow_ratio > 0.0 {
                row(
                    "slow members, to their own limit",
                    format!("{:.4}", cast.slow_ratio),
                );
            }
            row(
                "control heard of all",
                format!("{:.6} s", cast.finished_ns as f64 / 1e9),
            );
        }
        row("duplicates", format!("{:.3} %", self.duplicates * 100.0));
        row(
            "port backlog, most",
            format!("{} bytes", self.tally.port_backlog),
        );
        row(
            "dropped at full queues",
            format!("{} datagrams", self.tally.overflowed),
        );
        row("lost", format!("{} datagrams", self.tally.lost));
        row(
            "control traffic",
            format!(
                "{} messages, {} bytes on the wire ({:.2} % of the data's)",
                self.traffic.control_messages,
                self.traffic.control_wire_bytes,
                self.traffic.control_wire_bytes as f64 * 100.0
                    / self.traffic.data_wire_bytes.max(1) as f64
            ),
        );
        row(
            "messages at control",
            format!("{} messages", self.traffic.at_control_messages),
        );
        row(
            "control sent",
            format!(
                "{:.1} blocks, {:.3} times the object",
                self.source_blocks,
                self.source_objects()
            ),
        );
        if self.casts.len() > 1 {
            row("fairness (Jain)", format!("{:.4}", self.fairness));
        }
        if self.looked_up > 0 {
            row("ranks looked up at nodes", self.looked_up.to_string());
        }
        row(
            "events, digest",
            format!("{}, {:016x}", self.events, self.digest),
        );
        row(
            "took",
            format!("{:.1} s, {} MB", cost.wall_s, cost.memory_bytes / 1_000_000),
        );
        (rows.iter())
            .map(|(name, value)| format!("{name:<42} {value}\n"))
            .collect()
    }
}

impl Cost {
    /// Of this process, for a run of this many seconds.
    pub fn now(wall_s: f64) -> Self {
        Cost {
            wall_s,
            memory_bytes: memory_bytes(),
        }
    }
}

/// A ratio for people: where nobody is left who could have it there is none.
fn ratio_text(ratio: f64) -> String {
    match ratio.is_nan() {
        true => "none: no healthy member lacked it".into(),
        false => format!("{ratio:.4}"),
    }
}

fn cast_figures(world: &World, plan: usize) -> CastFigures {
    let (run, setup) = (&world.operator.runs[plan], &world.setup.casts[plan]);
    let object = &world.contents[plan].object;
    let link = world.setup.wiring.rate;
    let rate = setup.rate.unwrap_or(link).min(link);
    let limit = limit_ns(object.bytes, rate);
    let is_slow = |node: u32| world.setup.slow.contains(&node);
    let took = |node: u32| (run.complete_ns[node as usize] - setup.at_ns) as f64;
    let (mut healthy, mut slow): (Vec<f64>, Vec<f64>) = (Vec::new(), Vec::new());
    for &node in &setup.members {
        let station = &world.stations[node as usize];
        let there = station.engine.is_some() && station.boots == 1;
        if !there || setup.warm.contains(&node) || run.complete_ns[node as usize] == NEVER {
            continue;
        }
        if is_slow(node) {
            slow.push(took(node));
        } else {
            healthy.push(took(node));
        }
    }
    healthy.sort_by(f64::total_cmp);
    // Nobody's ratio is no number, which misses every goal.
    let ratio = |at: Option<&f64>| at.map_or(f64::NAN, |took| took / limit);
    CastFigures {
        bytes: object.bytes,
        blocks: object.blocks(),
        members: setup.members.len() as u32,
        healthy: healthy.len() as u32,
        refused: run.refused,
        limit_ns: limit,
        payload_limit_ns: object.bytes as f64 * 8e9 / rate as f64,
        ratio_max: ratio(healthy.last()),
        ratio_median: ratio(healthy.get(healthy.len() / 2)),
        slow_ratio: slow.iter().fold(0.0, |most: f64, took| most.max(*took))
            / limit
            / f64::from(SLOW_FACTOR),
        finished_ns: run
            .finished_ns
            .map_or(0, |at| at.saturating_sub(setup.at_ns)),
        cancelled: run.cancelled,
    }
}

/// Jain's index of fairness: 1 when all have the same, 1/n when one has everything.
/// Source: Jain, Chiu, Hawe: A quantitative measure of fairness, 1984.
fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    if squares == 0.0 {
        return 1.0;
    }
    sum * sum / (shares.len() as f64 * squares)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jains_index_knows_even_and_uneven_shares() {
        assert_eq!(jain(&[]), 1.0);
        assert_eq!(jain(&[0.5, 0.5, 0.5]), 1.0);
        assert_eq!(jain(&[1.0, 0.0]), 0.5);
    }

    #[test]
    fn the_limit_charges_full_datagrams() {
        // Ten full datagrams at 1 Gbit/s: 8 ns a byte.
        assert_eq!(limit_ns(14_720, 1_000_000_000), 10.0 * 1538.0 * 8.0);
        // One byte takes the shortest frame.
        assert!(limit_ns(1, 1_000_000_000) >= 84.0 * 8.0);
    }
}
