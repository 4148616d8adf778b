//! What casts came to: times as ratios to the limit, what was sent, what it cost.
//!
//! The limit of a cast is the time that one link needs for its bytes in full UDP datagrams (1,472
//! bytes of payload in a frame that takes 1,538 with preamble and gap). Nothing that the protocol
//! adds is part of it: its own headers, shorter datagrams and lists of hashes count against it. A
//! node that is ten times slower has a limit ten times as long.
//!
//! Key types: [`Figures`], [`CastFigures`], [`Traffic`].
//!
//! Invariant: what is counted here is counted by the simulator, not by the engines.

use netstack::broadcast::wire::{DATA_OVERHEAD, SEALED_OVERHEAD};
use netstack::broadcast::{FRAGMENT, Message, Object, Packet};
use netstack::wire::datagram::Kind;
use serde_json::{Value, json};

use super::Casts;
use crate::net::fabric::{Train, frame_bytes};
use crate::net::{NEVER, Net};
use crate::setup::SLOW_FACTOR;
use crate::summary::limit_ns;

/// Bytes of payload of a DATA datagram; None: it is something else.
pub(super) fn data_payload(datagram: &[u8]) -> Option<u32> {
    let kind = *datagram.get(3)?;
    let sealed = kind == Kind::CastSealedData as u8;
    let is_data = sealed || kind == Kind::CastData as u8;
    is_data.then(|| (datagram.len() as u32).saturating_sub(overhead(sealed)))
}

/// Bytes around the fragment in a DATA datagram.
fn overhead(sealed: bool) -> u32 {
    match sealed {
        true => SEALED_OVERHEAD as u32,
        false => DATA_OVERHEAD as u32,
    }
}

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
                block,
                fragments,
                sealed,
                ..
            },
            Some(object),
        ) = (&packet.message, object)
        {
            let (payload, wire) = data_bytes(object, *block, *fragments, overhead(*sealed));
            self.data_datagrams += u64::from(fragments.count_ones());
            self.data_wire_bytes += u64::from(wire);
            if from_control {
                self.source_payload_bytes += u64::from(payload);
            }
            return Train::of(*fragments, wire);
        }
        let wire = frame_bytes(packet.message.wire_bytes() as u32);
        self.count_control(from_control, wire);
        Train::of(1, wire)
    }

    /// Counts a datagram; the train that it travels as.
    pub fn charge_datagram(&mut self, from_control: bool, bytes: &[u8]) -> Train {
        let wire = frame_bytes(bytes.len() as u32);
        match data_payload(bytes) {
            Some(payload) => {
                self.data_datagrams += 1;
                self.data_wire_bytes += u64::from(wire);
                if from_control {
                    self.source_payload_bytes += u64::from(payload);
                }
            }
            None => self.count_control(from_control, wire),
        }
        Train::of(1, wire)
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
fn data_bytes(object: &Object, block: u32, fragments: u64, overhead: u32) -> (u32, u32) {
    let length = object.length(block) as u32;
    let last = length.div_ceil(FRAGMENT as u32).saturating_sub(1);
    let full = fragments & !(1_u64 << last);
    let count = full.count_ones();
    let mut payload = count * FRAGMENT as u32;
    let mut wire = count * frame_bytes(overhead + FRAGMENT as u32);
    if fragments >> last & 1 != 0 {
        let rest = length - last * FRAGMENT as u32;
        payload += rest;
        wire += frame_bytes(overhead + rest);
    }
    (payload, wire)
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

/// What casts came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// The casts in the order of the setup.
    pub each: Vec<CastFigures>,
    /// What was sent.
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
}

impl Figures {
    /// Of a run that has ended.
    pub(crate) fn of(casts: &Casts, net: &Net) -> Self {
        let nodes = &casts.stations[..casts.setup.nodes as usize];
        let needed: u64 = nodes.iter().map(|station| station.shelf.fragments).sum();
        let spare = casts.traffic.delivered_fragments as f64 - needed as f64;
        let first = casts.contents.first();
        let block = first.map_or(1, |content| content.object.block_bytes());
        let runs = &casts.operator.runs;
        let corrupt = runs.iter().flat_map(|run| run.corrupt.iter());
        let mut corrupt: Vec<_> = corrupt.map(|&(node, _)| node).collect();
        corrupt.sort_unstable();
        corrupt.dedup();
        Figures {
            each: (0..runs.len())
                .map(|plan| cast_figures(casts, net, plan))
                .collect(),
            traffic: casts.traffic,
            duplicates: spare / needed.max(1) as f64,
            source_blocks: casts.traffic.source_payload_bytes as f64 / block as f64,
            fairness: jain(&casts.operator.shares),
            corrupt_senders: corrupt.len() as u32,
            recasts: runs.iter().map(|run| run.casts.saturating_sub(1)).sum(),
            // They were looked at when the run ended.
            looked_up: super::check::tables(casts, net).unwrap_or(0),
        }
    }

    /// What the control node sent, as a multiple of the first object.
    pub fn source_objects(&self) -> f64 {
        let bytes = self.each.first().map_or(1, |cast| cast.bytes).max(1);
        self.traffic.source_payload_bytes as f64 / bytes as f64
    }

    /// The figures for programs.
    pub(crate) fn json(&self) -> Value {
        let casts: Vec<Value> = (self.each.iter())
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
            "casts": casts,
            "duplicates": self.duplicates,
            "fairness": self.fairness,
            "data_wire_bytes": self.traffic.data_wire_bytes,
            "control_messages": self.traffic.control_messages,
            "control_wire_bytes": self.traffic.control_wire_bytes,
            "at_control_messages": self.traffic.at_control_messages,
            "source_blocks": self.source_blocks,
            "source_objects": self.source_objects(),
            "corrupt_senders": self.corrupt_senders,
            "recasts": self.recasts,
            "looked_up": self.looked_up,
        })
    }

    /// The figures for people.
    pub(crate) fn tell(&self, row: &mut dyn FnMut(&str, String)) {
        for (number, cast) in self.each.iter().enumerate() {
            if self.each.len() > 1 {
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
        if self.each.len() > 1 {
            row("fairness (Jain)", format!("{:.4}", self.fairness));
        }
        if self.looked_up > 0 {
            row("ranks looked up at nodes", self.looked_up.to_string());
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

fn cast_figures(casts: &Casts, net: &Net, plan: usize) -> CastFigures {
    let (run, setup) = (&casts.operator.runs[plan], &casts.setup.casts[plan]);
    let object = &casts.contents[plan].object;
    let link = casts.setup.wiring.rate;
    let rate = setup.rate.unwrap_or(link).min(link);
    let limit = limit_ns(object.bytes, rate);
    let is_slow = |node: u32| casts.setup.slow.contains(&node);
    let took = |node: u32| (run.complete_ns[node as usize] - setup.at_ns) as f64;
    let (mut healthy, mut slow): (Vec<f64>, Vec<f64>) = (Vec::new(), Vec::new());
    for &node in &setup.members {
        let station = &casts.stations[node as usize];
        let there = station.engine.is_some() && net.hosts[node as usize].boots == 1;
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
}
