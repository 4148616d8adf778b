//! Simulated links: one per node to the switch, and the control node's own.
//!
//! A datagram from a node passes its uplink and then the control node's downlink; one to a node
//! the other way round. Each has a rate and a queue of bounded length in front of it; loss,
//! duplication and reordering happen on the node's link.

use std::collections::BTreeSet;

use netstack::rng::Rng;
use netstack::time::{Instant, Micros};

/// Bytes that Ethernet, IPv4 and UDP add to a datagram.
const FRAMING: u64 = 14 + 4 + 20 + 28;

/// How the links behave.
#[derive(Clone, Copy, Debug)]
pub struct LinkParams {
    /// One-way delay.
    pub latency: Micros,
    /// Further delay, uniform from 0.
    pub jitter: Micros,
    /// Datagrams lost, in parts per million.
    pub loss_ppm: u32,
    /// Datagrams that arrive twice, in parts per million.
    pub duplicate_ppm: u32,
    /// Datagrams held back by up to `reorder_delay`, in parts per million.
    pub reorder_ppm: u32,
    /// Longest time a datagram is held back.
    pub reorder_delay: Micros,
    /// Bytes a second of a node's link, each way; 0 for no limit.
    pub node_rate: u64,
    /// Bytes a second of the control node's link, each way; 0 for no limit.
    pub control_rate: u64,
    /// Bytes that may wait in front of a link.
    pub queue_bytes: u64,
}

impl LinkParams {
    /// A quiet gigabit network.
    pub fn quiet() -> Self {
        LinkParams {
            latency: Micros(50),
            jitter: Micros(5),
            loss_ppm: 0,
            duplicate_ppm: 0,
            reorder_ppm: 0,
            reorder_delay: Micros::ZERO,
            node_rate: 125_000_000,
            control_rate: 1_250_000_000,
            queue_bytes: 1 << 20,
        }
    }

    /// A network that loses, reorders and duplicates: `loss_percent` of the datagrams each.
    pub fn lossy(loss_percent: u32) -> Self {
        LinkParams {
            latency: Micros(200),
            jitter: Micros(300),
            loss_ppm: loss_percent * 10_000,
            duplicate_ppm: loss_percent * 10_000,
            reorder_ppm: loss_percent * 10_000,
            reorder_delay: Micros::from_millis(20),
            ..LinkParams::quiet()
        }
    }
}

/// Which way a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// From a node to the control node.
    Up,
    /// From the control node to a node.
    Down,
}

/// What became of the datagrams.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Handed to the network.
    pub sent: u64,
    /// Bytes of these, framing included.
    pub bytes: u64,
    /// Lost at random or in a partition.
    pub lost: u64,
    /// Lost because a queue was full.
    pub overflowed: u64,
    /// Delivered twice.
    pub duplicated: u64,
}

/// All links and what is wrong with them.
#[derive(Debug)]
pub struct Network {
    /// How the links behave; may change during a run.
    pub params: LinkParams,
    /// What became of the datagrams.
    pub tally: Tally,
    cut: BTreeSet<usize>,
    /// When each link is free again: node links up and down, then the control node's.
    node_links: Vec<[Instant; 2]>,
    control_link: [Instant; 2],
}

impl Network {
    /// Links for `nodes` nodes.
    pub fn new(params: LinkParams, nodes: usize) -> Self {
        Network {
            params,
            tally: Tally::default(),
            cut: BTreeSet::new(),
            node_links: vec![[Instant::ZERO; 2]; nodes],
            control_link: [Instant::ZERO; 2],
        }
    }

    /// Cuts a node's link or mends it.
    pub fn set_cut(&mut self, node: usize, cut: bool) {
        if cut {
            self.cut.insert(node);
        } else {
            self.cut.remove(&node);
        }
    }

    /// When a datagram arrives: never, once or twice.
    pub fn carry(
        &mut self,
        now: Instant,
        node: usize,
        direction: Direction,
        length: usize,
        rng: &mut Rng,
    ) -> Vec<Instant> {
        let params = self.params;
        let bytes = length as u64 + FRAMING;
        self.tally.sent += 1;
        self.tally.bytes += bytes;
        let way = direction as usize;
        let (node_link, control_link) =
            (&mut self.node_links[node][way], &mut self.control_link[way]);
        let links = match direction {
            Direction::Up => [
                (node_link, params.node_rate),
                (control_link, params.control_rate),
            ],
            Direction::Down => [
                (control_link, params.control_rate),
                (node_link, params.node_rate),
            ],
        };
        let mut at = now;
        for (free_at, rate) in links {
            if rate == 0 {
                continue;
            }
            let waiting = free_at.saturating_since(at).as_micros() * rate / 1_000_000;
            if waiting > params.queue_bytes {
                self.tally.overflowed += 1;
                return Vec::new();
            }
            at = (*free_at).max(at) + Micros((bytes * 1_000_000).div_ceil(rate));
            *free_at = at;
        }
        if self.cut.contains(&node) || chance(rng, params.loss_ppm) {
            self.tally.lost += 1;
            return Vec::new();
        }
        let mut arrivals = vec![at + self.delay(rng)];
        if chance(rng, params.duplicate_ppm) {
            self.tally.duplicated += 1;
            arrivals.push(at + self.delay(rng));
        }
        arrivals
    }

    fn delay(&self, rng: &mut Rng) -> Micros {
        let params = self.params;
        let mut delay = params.latency.0 + rng.below(params.jitter.0 + 1);
        if chance(rng, params.reorder_ppm) {
            delay += rng.below(params.reorder_delay.0 + 1);
        }
        Micros(delay)
    }
}

fn chance(rng: &mut Rng, ppm: u32) -> bool {
    ppm > 0 && rng.below(1_000_000) < u64::from(ppm)
}
