//! What an exchange of all nodes is made of: a node is a rank.
//!
//! Invariant: a run is a function of its setup.

use netstack::MAX_DATAGRAM;
use netstack::exchange::Scheme;
use netstack::rng::Rng;

use crate::net::fabric::{LIMITER_HEADERS, frame_bytes};
use crate::setup::Setup;
use crate::summary;

/// One-way delay across the whole tree unless told otherwise: a round trip of 20 us.
pub const LATENCY_NS: u64 = 10_000;
/// Lengths of the blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// All the same.
    Equal(u64),
    /// Drawn for each pair: a quarter of the blocks empty, the others up to twice this.
    Random(u64),
}

/// An exchange of all nodes.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// Groups that the ranks are dealt into, one after the other; they exchange at once, in one
    /// context. 1: all exchange with all.
    pub groups: u32,
    /// Lengths of the blocks.
    pub sizes: Sizes,
    /// How it is done.
    pub scheme: Scheme,
    /// Ranks that begin late.
    pub late: Vec<u32>,
    /// By how much, in nanoseconds.
    pub late_ns: u64,
    /// The ranks know which leaf switch they are on, and what the trunks carry.
    pub knows_leaves: bool,
    /// The ranks are told neither the rate of the links nor what a port holds.
    pub untold: bool,
    /// Exchanges one after the other.
    pub times: u32,
}

impl Exchange {
    /// An exchange of equal blocks.
    pub fn new(bytes: u64, scheme: Scheme) -> Self {
        Exchange {
            groups: 1,
            sizes: Sizes::Equal(bytes),
            scheme,
            late: Vec::new(),
            late_ns: 0,
            knows_leaves: false,
            untold: false,
            times: 1,
        }
    }

    /// Whether it makes sense among so many nodes.
    ///
    /// # Errors
    /// What does not.
    pub fn check(&self, nodes: u32) -> Result<(), String> {
        if !(2..=65_536).contains(&nodes) {
            return Err("--p is 2 to 65,536".into());
        }
        match self.times {
            0 => Err("--times is 1 or more".into()),
            _ => Ok(()),
        }
    }

    /// Bytes a second that the trunks of the narrowest level carry, all together.
    pub fn core(&self, setup: &Setup) -> u64 {
        let taper = setup.wiring.taper.iter().copied().max().unwrap_or(1);
        setup.wiring.rate / 8 * u64::from(setup.nodes) / u64::from(taper.max(1))
    }

    /// The ranks of a rank's group, in the order in which they all name them: that of their numbers
    /// only where there is one group.
    pub fn group_of(&self, rank: u32, ranks: u32) -> Vec<u32> {
        let first = rank % self.groups;
        let members = (first..ranks).step_by(self.groups as usize);
        match self.groups {
            1 => members.collect(),
            _ => members.rev().collect(),
        }
    }

    /// Bytes of the block from one rank to another.
    pub fn block_bytes(&self, seed: u64, from: u32, to: u32) -> u64 {
        if from % self.groups != to % self.groups {
            return 0;
        }
        match self.sizes {
            Sizes::Equal(bytes) => bytes,
            Sizes::Random(most) => {
                let pair = u64::from(from) << 32 | u64::from(to);
                let mut rng = Rng::new(seed ^ pair.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                match rng.below(4) {
                    0 => 0,
                    _ => rng.below(2 * most + 1),
                }
            }
        }
    }

    /// Nanoseconds that the link that has most to carry needs for its blocks in full datagrams,
    /// those of a rank to itself left out.
    pub fn limit_ns(&self, setup: &Setup) -> f64 {
        let (ranks, rate, seed) = (setup.nodes, setup.wiring.rate, setup.seed);
        // Of full datagrams; tc counts no preamble, check sequence and gap.
        let full = MAX_DATAGRAM as u32;
        let share = match setup.limiters {
            true => f64::from(full + LIMITER_HEADERS) / f64::from(frame_bytes(full)),
            false => 1.0,
        };
        let limit_ns = |bytes, rate| share * summary::limit_ns(bytes, rate);
        let others = |me: u32| (0..ranks).filter(move |other| *other != me);
        match self.sizes {
            Sizes::Equal(bytes) => f64::from(ranks - 1) * limit_ns(bytes, rate),
            Sizes::Random(_) => (0..ranks)
                .map(|me| {
                    let ns = |bytes| limit_ns(bytes, rate);
                    let sent: f64 = others(me)
                        .map(|to| ns(self.block_bytes(seed, me, to)))
                        .sum();
                    let received: f64 = others(me)
                        .map(|from| ns(self.block_bytes(seed, from, me)))
                        .sum();
                    sent.max(received)
                })
                .fold(0.0, f64::max),
        }
    }
}
