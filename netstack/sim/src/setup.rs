//! What a run is made of: machines, their network, what they do on it, and what goes wrong.
//!
//! Key types: [`Setup`], [`Fault`]. Neighbours: [`crate::options`] makes one from a command line,
//! [`crate::random`] from a seed; [`crate::world`] runs it. Each service has its own part of a
//! setup in a module of the same name.
//!
//! Invariant: a run is a function of its setup.

use netstack::broadcast::Scheme;
use netstack::overlay::Filter;

use crate::casts::plan::CastPlan;
use crate::exchange::plan::Exchange;
use crate::jobs::plan::Jobs;
use crate::net::attacker::Attack;
use crate::net::fabric::{Noise, Way, Wiring};
use crate::overlay::plan::Monitoring;

/// Rate of a link unless told otherwise: 10 Gbit/s.
pub const RATE: u64 = 10_000_000_000;
/// Latency across the whole tree unless told otherwise: 5 us.
pub const LATENCY_NS: u64 = 5_000;
/// What a port's queue holds: 256 KB.
pub const QUEUE_BYTES: u64 = 256_000;
/// What may wait in a card before it takes nothing more: two full frames, as with a driver that
/// keeps the transmit ring short.
pub const CARD_BYTES: u64 = 2 * 1538;
/// How much slower a slow node's link is.
pub const SLOW_FACTOR: u32 = 10;
/// Reassembly buffers of a node unless told otherwise: 2 MiB with blocks of 8 KiB.
pub const BUFFERS: u32 = 256;
/// How long a paused node does nothing.
pub const PAUSE_NS: u64 = 1_000_000;
/// Every node pauses once in this time, each at a moment of its own.
pub const PAUSE_EVERY_NS: u64 = 1_000_000_000;
/// Nodes on one leaf switch, and leaf switches under the next, unless told otherwise.
const TREE_WIDTH: u32 = 32;
/// Most nodes: addresses are numbered from 10.0.1.0 on.
const NODES_MOST: u32 = 1 << 17;

/// Something that happens from outside.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// A node is switched on, or starts again: with another boot and nothing in its memory.
    Boot(u32),
    /// A node dies without warning.
    Die(u32),
    /// A node leaves in good order and stays off.
    Leave(u32),
    /// The control node asks a node to leave, which it does unless it has a job.
    AskLeave(u32),
    /// The control node has a node drop the program with this number; 0: every one.
    Drop(u32, u64),
    /// A node's link is put into this part of the network; parts do not reach each other.
    Part(u32, u8),
    /// A node's link is cut one way.
    Mute(u32, Way),
    /// A node's link is whole again.
    Mend(u32),
    /// The control node is killed.
    CrashControl,
    /// The control node starts again.
    RestartControl,
    /// What goes wrong with datagrams changes.
    Noise(Noise),
    /// A node stands still: it receives no more than its queue holds, and does nothing.
    Stop(u32),
    /// It goes on.
    Continue(u32),
    /// A node's program computes: it looks at the network once a second.
    Compute(u32),
    /// It ends.
    Idle(u32),
    /// The clock of a machine jumps ahead by so many microseconds; back if they are less than none.
    Jump(u32, i64),
    /// From now on a node serves wrong bytes.
    Corrupt(u32),
    /// A node that is not a member of this cast yet joins it.
    Join {
        /// Number of the cast among the plans.
        cast: usize,
        /// The node.
        node: u32,
    },
    /// The node dies that has this communication process of the plan.
    KillCp(u32),
    /// A node has no room for communication processes from now on; it said that it has, and refuses
    /// them.
    Tight(u32),
    /// The front end takes the tree down and makes another, which spares nodes whose programs
    /// compute.
    Replan,
    /// Nothing goes wrong any more: what is cut is mended, what is off or stands still goes on.
    Heal,
}

impl Fault {
    /// The node that it hits, if it is one.
    pub fn node(self) -> Option<u32> {
        match self {
            Fault::Boot(node) | Fault::Die(node) | Fault::Leave(node) => Some(node),
            Fault::AskLeave(node) | Fault::Drop(node, _) | Fault::Part(node, _) => Some(node),
            Fault::Mute(node, _) | Fault::Mend(node) | Fault::Stop(node) => Some(node),
            Fault::Continue(node) | Fault::Compute(node) | Fault::Idle(node) => Some(node),
            Fault::Corrupt(node) | Fault::Tight(node) | Fault::Join { node, .. } => Some(node),
            // A clock may be the control node's.
            Fault::Jump(..) | Fault::KillCp(_) | Fault::CrashControl => None,
            Fault::RestartControl | Fault::Noise(_) | Fault::Replan | Fault::Heal => None,
        }
    }
}

/// A run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Seed of everything that is drawn at random.
    pub seed: u64,
    /// Nodes of the cluster; the control node comes on top.
    pub nodes: u32,
    /// The network.
    pub wiring: Wiring,
    /// How many times faster the control node's link is.
    pub control_factor: u32,
    /// What goes wrong with datagrams from the start.
    pub noise: Noise,
    /// What somebody on the wire does.
    pub attack: Attack,
    /// Links are limited behind the cards, as those of emulated machines.
    pub limiters: bool,
    /// Nodes whose links are [`SLOW_FACTOR`] times slower.
    pub slow: Vec<u32>,
    /// Every machine has a clock of its own: up to a quarter of an hour ahead, up to 50 ppm fast.
    pub clocks: bool,
    /// Nodes pause.
    pub pauses: bool,
    /// Real datagrams with real bytes; else blocks are known by their numbers, and several
    /// datagrams of one travel as one event.
    pub real: bool,
    /// Within what time nodes are switched on at the begin; None: faults do that.
    pub boot_within_ns: Option<u64>,
    /// What happens, and when, in nanoseconds.
    pub faults: Vec<(u64, Fault)>,
    /// Everything must have come to its end by then.
    pub deadline_ns: u64,
    /// Tell how far it is on standard error.
    pub progress: bool,
    /// Nodes join control and run programs. Without it they know the key from the start.
    pub jobs: Option<Jobs>,
    /// The casts.
    pub casts: Vec<CastPlan>,
    /// Reassembly buffers of each node.
    pub buffers: u32,
    /// Members that all casts of a node may have together; 0: any number. A node beyond that
    /// refuses.
    pub members: u32,
    /// Nodes that have no room for a cast of more members than one.
    pub full: Vec<u32>,
    /// All nodes are the ranks of one job, which exchange.
    pub exchange: Option<Exchange>,
    /// The overlay.
    pub overlay: Option<Monitoring>,
}

impl Setup {
    /// Nodes on a quiet network that are on from the start and do nothing.
    pub fn quiet(seed: u64, nodes: u32) -> Self {
        Setup {
            seed,
            nodes,
            wiring: Wiring {
                rate: RATE,
                latency_ns: LATENCY_NS,
                tree: default_tree(nodes),
                taper: Vec::new(),
                queue_bytes: QUEUE_BYTES,
                card_bytes: CARD_BYTES,
            },
            control_factor: 1,
            noise: Noise::default(),
            attack: Attack::default(),
            limiters: false,
            slow: Vec::new(),
            clocks: false,
            pauses: false,
            real: false,
            boot_within_ns: Some(0),
            faults: Vec::new(),
            deadline_ns: 600_000_000_000,
            progress: false,
            jobs: None,
            casts: Vec::new(),
            buffers: BUFFERS,
            members: 0,
            full: Vec::new(),
            exchange: None,
            overlay: None,
        }
    }

    /// One cast of `bytes` to all of `nodes` nodes on a quiet network.
    pub fn one_cast(seed: u64, nodes: u32, bytes: u64, scheme: Scheme) -> Self {
        Setup {
            casts: vec![CastPlan::new((0..nodes).collect(), bytes, scheme)],
            ..Setup::quiet(seed, nodes)
        }
    }

    /// An exchange of equal blocks on a quiet network, whose round trip is 20 us.
    pub fn one_exchange(
        seed: u64,
        ranks: u32,
        bytes: u64,
        scheme: netstack::exchange::Scheme,
    ) -> Self {
        let mut setup = Setup::quiet(seed, ranks);
        setup.wiring.latency_ns = crate::exchange::plan::LATENCY_NS;
        setup.exchange = Some(Exchange::new(bytes, scheme));
        setup
    }

    /// An overlay with one stream of so many metrics with a period of one second, on a quiet
    /// network.
    pub fn one_stream(seed: u64, nodes: u32, metrics: u16, filter: Filter) -> Self {
        Setup {
            boot_within_ns: Some(200_000_000),
            overlay: Some(Monitoring::one_stream(metrics, filter)),
            ..Setup::quiet(seed, nodes)
        }
    }

    /// Members that all casts of this node may have together; 0: any number.
    pub fn members_most(&self, node: u32) -> u32 {
        match self.full.contains(&node) {
            true => 1,
            false => self.members,
        }
    }

    /// Events come in milliseconds, not in nanoseconds.
    pub fn is_slow_motion(&self) -> bool {
        self.overlay.is_some() || self.jobs.is_some()
    }

    /// Whether somebody said that nothing goes wrong from some time on.
    pub fn heals_at(&self) -> Option<u64> {
        let mut faults = self.faults.iter();
        let heals = faults.find(|(_, fault)| *fault == Fault::Heal);
        heals.map(|(at, _)| *at)
    }

    /// Whether it makes sense.
    ///
    /// # Errors
    /// What does not.
    pub fn check(&self) -> Result<(), String> {
        if self.nodes == 0 || self.nodes > NODES_MOST {
            return Err(format!("1 to {NODES_MOST} nodes"));
        }
        if let Some(exchange) = &self.exchange {
            exchange.check(self.nodes)?;
        }
        if let Some(overlay) = &self.overlay {
            overlay.check(self.nodes)?;
        }
        if let Some(jobs) = &self.jobs {
            jobs.check(self.nodes)?;
        }
        for plan in &self.casts {
            plan.check(self.nodes)?;
        }
        for &(_, fault) in &self.faults {
            if let Fault::Join { cast, .. } = fault
                && cast >= self.casts.len()
            {
                return Err("a fault names a cast that there is not".into());
            }
            if let Some(node) = fault.node().filter(|node| *node >= self.nodes) {
                return Err(format!("a fault hits n{node}, and there is none"));
            }
        }
        Ok(())
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
