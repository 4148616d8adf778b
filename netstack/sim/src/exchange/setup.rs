//! What a run of an exchange is made of.
//!
//! Invariant: a run is a function of its setup.

use crate::attacker::Attack;
use netstack::MAX_DATAGRAM;
use netstack::exchange::Scheme;
use netstack::rng::Rng;

use super::world::LIMITER_HEADERS;
use crate::broadcast::fabric::{Noise, Wiring, frame_bytes};
use crate::broadcast::setup::{CARD_BYTES, QUEUE_BYTES, RATE, default_tree};
use crate::broadcast::summary;

/// One-way delay across the whole tree unless told otherwise: a round trip of 20 us.
pub const LATENCY_NS: u64 = 10_000;
/// How long a paused node does nothing.
pub const PAUSE_NS: u64 = 1_000_000;
/// Every node pauses once in this time, each at a moment of its own.
pub const PAUSE_EVERY_NS: u64 = 1_000_000_000;

/// Lengths of the blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// All the same.
    Equal(u64),
    /// Drawn for each pair: a quarter of the blocks empty, the others up to twice this.
    Random(u64),
}

/// A run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// What somebody on the wire does.
    pub attack: Attack,
    /// Seed of everything that is drawn at random.
    pub seed: u64,
    /// Number of ranks, a node each.
    pub ranks: u32,
    /// Groups that the ranks are dealt into, one after the other; they exchange at once, in one
    /// context. 1: all exchange with all.
    pub groups: u32,
    /// Lengths of the blocks.
    pub sizes: Sizes,
    /// How it is done.
    pub scheme: Scheme,
    /// The network.
    pub wiring: Wiring,
    /// What goes wrong with datagrams.
    pub noise: Noise,
    /// Nodes pause.
    pub pauses: bool,
    /// Ranks that begin late.
    pub late: Vec<u32>,
    /// By how much, in nanoseconds.
    pub late_ns: u64,
    /// Ranks that die, and when.
    pub deaths: Vec<(u64, u32)>,
    /// The ranks know which leaf switch they are on, and what the trunks carry.
    pub knows_leaves: bool,
    /// The ranks are told neither the rate of the links nor what a port holds.
    pub untold: bool,
    /// Links are limited behind the cards, as those of emulated machines.
    pub limiters: bool,
    /// Real datagrams with real bytes.
    pub real: bool,
    /// Exchanges one after the other.
    pub times: u32,
    /// Packets that travel as one event, where bytes are not real.
    pub train: u32,
    /// Everything must have come to its end by then.
    pub deadline_ns: u64,
}

impl Setup {
    /// An exchange of equal blocks on a quiet network.
    pub fn new(seed: u64, ranks: u32, bytes: u64, scheme: Scheme) -> Self {
        Setup {
            attack: Attack::default(),
            seed,
            ranks,
            groups: 1,
            sizes: Sizes::Equal(bytes),
            scheme,
            wiring: Wiring {
                rate: RATE,
                latency_ns: LATENCY_NS,
                tree: default_tree(ranks),
                taper: Vec::new(),
                queue_bytes: QUEUE_BYTES,
                card_bytes: CARD_BYTES,
            },
            noise: Noise::default(),
            pauses: false,
            late: Vec::new(),
            late_ns: 0,
            deaths: Vec::new(),
            knows_leaves: false,
            untold: false,
            limiters: false,
            real: false,
            times: 1,
            train: 4,
            deadline_ns: 600_000_000_000,
        }
    }

    /// Bytes a second that the trunks of the narrowest level carry, all together.
    pub fn core(&self) -> u64 {
        let taper = self.wiring.taper.iter().copied().max().unwrap_or(1);
        self.wiring.rate / 8 * u64::from(self.ranks) / u64::from(taper.max(1))
    }

    /// The ranks of a rank's group, in the order in which they all name them: that of their numbers
    /// only where there is one group.
    pub fn group_of(&self, rank: u32) -> Vec<u32> {
        let first = rank % self.groups;
        let members = (first..self.ranks).step_by(self.groups as usize);
        match self.groups {
            1 => members.collect(),
            _ => members.rev().collect(),
        }
    }

    /// Bytes of the block from one rank to another.
    pub fn block_bytes(&self, from: u32, to: u32) -> u64 {
        if from % self.groups != to % self.groups {
            return 0;
        }
        match self.sizes {
            Sizes::Equal(bytes) => bytes,
            Sizes::Random(most) => {
                let pair = u64::from(from) << 32 | u64::from(to);
                let mut rng = Rng::new(self.seed ^ pair.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                match rng.below(4) {
                    0 => 0,
                    _ => rng.below(2 * most + 1),
                }
            }
        }
    }

    /// Nanoseconds that the link that has most to carry needs for its blocks in full datagrams,
    /// those of a rank to itself left out.
    pub fn limit_ns(&self) -> f64 {
        // Of full datagrams; tc counts no preamble, check sequence and gap.
        let full = MAX_DATAGRAM as u32;
        let share = match self.limiters {
            true => f64::from(full + LIMITER_HEADERS) / f64::from(frame_bytes(full)),
            false => 1.0,
        };
        let limit_ns = |bytes, rate| share * summary::limit_ns(bytes, rate);
        let others = |me: u32| (0..self.ranks).filter(move |other| *other != me);
        match self.sizes {
            Sizes::Equal(bytes) => f64::from(self.ranks - 1) * limit_ns(bytes, self.wiring.rate),
            Sizes::Random(_) => (0..self.ranks)
                .map(|me| {
                    let ns = |bytes| limit_ns(bytes, self.wiring.rate);
                    let sent: f64 = others(me).map(|to| ns(self.block_bytes(me, to))).sum();
                    let received: f64 = others(me).map(|from| ns(self.block_bytes(from, me))).sum();
                    sent.max(received)
                })
                .fold(0.0, f64::max),
        }
    }
}
