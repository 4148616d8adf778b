//! What a run of casts is made of.
//!
//! Key type: [`Setup`]: network, casts and faults. Neighbours: [`super::options`] makes one from a
//! command line, [`super::swarm`] from a seed; [`super::world`] runs it.
//!
//! Invariant: a run is a function of its setup.

use crate::attacker::Attack;
use netstack::broadcast::Scheme;

use super::fabric::{Noise, Wiring};

/// Rate of a link unless told otherwise: 10 Gbit/s.
pub const RATE: u64 = 10_000_000_000;
/// Latency across the whole tree unless told otherwise: 5 us.
pub const LATENCY_NS: u64 = 5_000;
/// What a port's queue holds: 256 KB.
pub const QUEUE_BYTES: u64 = 256_000;
/// What may wait in a card before it takes nothing more: two full frames, as with a driver that
/// keeps the transmit ring short.
pub const CARD_BYTES: u64 = 2 * 1538;
/// Reassembly buffers of a node unless told otherwise: 2 MiB with blocks of 8 KiB.
pub const BUFFERS: u32 = 256;
/// How much slower a slow node's link is.
pub const SLOW_FACTOR: u32 = 10;
/// Nodes on one leaf switch, and leaf switches under the next, unless told otherwise.
const TREE_WIDTH: u32 = 32;
/// After what time without a heartbeat the control node takes a node for dead, in nanoseconds.
pub const HEARTBEATS_NS: u64 = 3_000_000_000;

/// What the payload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Bytes that are hashed, sent in real datagrams and compared at the end.
    Real,
    /// Blocks known by their numbers; a block's fragments travel as one event.
    Virtual,
}

/// One cast.
#[derive(Clone, Debug)]
pub struct CastPlan {
    /// When it begins, in nanoseconds.
    pub at_ns: u64,
    /// Length of the object.
    pub bytes: u64,
    /// Binary logarithm of the block size; None: what fits the object and the number of members.
    pub block_log2: Option<u8>,
    /// How it spreads.
    pub scheme: Scheme,
    /// Bits a second that each station sends of it at most; None: the link's.
    pub rate: Option<u64>,
    /// It is the connection table of a job with so many ranks; `bytes` is its length.
    pub table: Option<u32>,
    /// Who gets it, by number of the node.
    pub members: Vec<u32>,
    /// Which of them hold it from the start.
    pub warm: Vec<u32>,
    /// When it is cancelled.
    pub cancel_ns: Option<u64>,
}

/// Something that happens from outside.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// A node dies without warning; the control node misses its heartbeats later.
    Die(u32),
    /// A node starts again with nothing in its memory, and joins what is under way.
    Restart(u32),
    /// A node that is not a member of this cast yet joins it.
    Join {
        /// Number of the cast among the plans.
        cast: usize,
        /// The node.
        node: u32,
    },
    /// A node's link is put into this part of the network; parts do not reach each other.
    Part(u32, u8),
    /// The control node is killed.
    CrashControl,
    /// The control node starts again and casts what was not finished.
    RestartControl,
    /// The noise changes.
    Noise(Noise),
    /// From now on a node serves wrong bytes.
    Corrupt(u32),
}

/// A run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// What somebody on the wire does.
    pub attack: Attack,
    /// Seed of everything that is drawn at random.
    pub seed: u64,
    /// Nodes of the cluster; the control node comes on top.
    pub nodes: u32,
    /// The network.
    pub wiring: Wiring,
    /// What goes wrong with datagrams from the start.
    pub noise: Noise,
    /// What the payload is.
    pub payload: Payload,
    /// Reassembly buffers of each node.
    pub buffers: u32,
    /// Members that all casts of a node may have together; 0: any number. A node beyond that
    /// refuses.
    pub members: u32,
    /// Nodes that have no room for a cast of more members than one.
    pub full: Vec<u32>,
    /// Every station has a clock of its own: up to a quarter of an hour ahead, up to 50 ppm fast.
    pub clocks: bool,
    /// Nodes whose links are [`SLOW_FACTOR`] times slower.
    pub slow: Vec<u32>,
    /// The casts.
    pub casts: Vec<CastPlan>,
    /// What happens, and when, in nanoseconds.
    pub faults: Vec<(u64, Fault)>,
    /// Everything must have come to its end by then.
    pub deadline_ns: u64,
    /// Tell how far it is on standard error.
    pub progress: bool,
}

impl Setup {
    /// Members that all casts of this node may have together; 0: any number.
    pub fn members_most(&self, node: u32) -> u32 {
        match self.full.contains(&node) {
            true => 1,
            false => self.members,
        }
    }

    /// One cast of `bytes` to all of `nodes` nodes on a quiet network.
    pub fn one_cast(seed: u64, nodes: u32, bytes: u64, scheme: Scheme) -> Self {
        let wiring = Wiring {
            rate: RATE,
            latency_ns: LATENCY_NS,
            tree: default_tree(nodes),
            taper: Vec::new(),
            queue_bytes: QUEUE_BYTES,
            card_bytes: CARD_BYTES,
        };
        Setup {
            attack: Attack::default(),
            seed,
            nodes,
            wiring,
            noise: Noise::default(),
            payload: Payload::Virtual,
            buffers: BUFFERS,
            members: 0,
            full: Vec::new(),
            clocks: false,
            slow: Vec::new(),
            casts: vec![CastPlan {
                at_ns: 0,
                bytes,
                block_log2: None,
                scheme,
                rate: None,
                table: None,
                members: (0..nodes).collect(),
                warm: Vec::new(),
                cancel_ns: None,
            }],
            faults: Vec::new(),
            deadline_ns: 600_000_000_000,
            progress: false,
        }
    }
}

/// A fat tree of switches with 32 ports down for this many nodes.
pub fn default_tree(nodes: u32) -> Vec<u32> {
    let mut tree = vec![TREE_WIDTH.min(nodes.max(1))];
    let mut below = TREE_WIDTH;
    while below < nodes {
        let width = TREE_WIDTH.min(nodes.div_ceil(below));
        tree.push(width);
        below = below.saturating_mul(width);
    }
    tree
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_has_room_for_all_nodes() {
        assert_eq!(default_tree(1), [1]);
        assert_eq!(default_tree(16), [16]);
        assert_eq!(default_tree(33), [32, 2]);
        assert_eq!(default_tree(16_512), [32, 32, 17]);
    }
}
