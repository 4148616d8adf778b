//! What a run of the overlay is made of.
//!
//! Key type: [`Setup`]. Neighbours: [`super::options`] makes one from a command line,
//! [`super::swarm`] from a seed; [`super::world`] runs it.
//!
//! Invariant: a run is a function of its setup.

use crate::attacker::Attack;
use netstack::overlay::placement::{Layout, Policy};
use netstack::overlay::{Filter, MetricId, StreamSpec};
use netstack::time::Micros;

use crate::broadcast::fabric::{Noise, Wiring};
use crate::broadcast::setup::{LATENCY_NS, QUEUE_BYTES, RATE, default_tree};

/// When the front end makes the tree: all nodes have said hello by then, on a network without
/// faults.
pub const BUILD_NS: u64 = 1_500_000_000;
/// How long nodes are left alone after the last fault, before the tree must be whole again.
pub const REST_NS: u64 = 20_000_000_000;
/// How long taking down may take.
pub const DOWN_NS: u64 = 2_000_000_000;
/// How long the last tree of a run stands whose books are to be settled: nodes tell in it what they
/// had no tree for.
pub const SETTLING_NS: u64 = 15_000_000_000;
/// How often a node whose program computes looks at the network.
pub const LOOK_NS: u64 = 1_000_000_000;
/// Bytes that may wait in a card before it takes nothing more: two full frames.
const CARD_BYTES: u64 = 2 * 1538;

/// Something that happens from outside.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// A node dies without warning.
    Kill(u32),
    /// The node dies that has this communication process of the plan.
    KillCp(u32),
    /// A node starts again, with another boot and nothing in its memory.
    Restart(u32),
    /// A node stands still: it receives no more than its queue holds, and does nothing.
    Stop(u32),
    /// It goes on.
    Continue(u32),
    /// A node's program computes: it looks at the network once a second.
    Compute(u32),
    /// It ends.
    Idle(u32),
    /// A node has no room for communication processes from now on; it said that it has, and refuses
    /// them.
    Tight(u32),
    /// The front end takes the tree down and makes another, which spares nodes whose programs
    /// compute.
    Replan,
    /// A node's link is put into this part of the network; parts do not reach each other.
    Part(u32, u8),
    /// The noise changes.
    Noise(Noise),
}

/// A run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// What somebody on the wire does.
    pub attack: Attack,
    /// Seed of everything that is drawn at random.
    pub seed: u64,
    /// Nodes; the control node comes on top.
    pub nodes: u32,
    /// The first of them have no back end.
    pub dedicated: u32,
    /// The network.
    pub wiring: Wiring,
    /// What goes wrong with datagrams from the start.
    pub noise: Noise,
    /// Every station has a clock of its own: up to a quarter of an hour ahead, up to 50 ppm fast.
    pub clocks: bool,
    /// The tree.
    pub layout: Layout,
    /// The streams, opened as soon as the tree is begun.
    pub streams: Vec<StreamSpec>,
    /// Which streams are closed early, and when.
    pub closes: Vec<(u64, usize)>,
    /// Streams that are opened later, and when. They count after those of the begin.
    pub opens: Vec<(u64, StreamSpec)>,
    /// How long values flow.
    pub flow_ns: u64,
    /// What happens, and when.
    pub faults: Vec<(u64, Fault)>,
    /// After the tree was taken down another is made for a while, on a quiet network, before the
    /// books are looked at: if nobody died, they are settled to the last sample.
    pub settle: bool,
    /// Tell how far it is on standard error.
    pub progress: bool,
}

impl Setup {
    /// One stream of so many metrics with a period of one second, on a quiet network.
    pub fn one_stream(seed: u64, nodes: u32, metrics: u16, filter: Filter) -> Self {
        let metrics = (1..=metrics).map(MetricId).collect();
        Setup {
            attack: Attack::default(),
            seed,
            nodes,
            dedicated: 0,
            wiring: Wiring {
                rate: RATE,
                latency_ns: LATENCY_NS,
                tree: default_tree(nodes),
                taper: Vec::new(),
                queue_bytes: QUEUE_BYTES,
                card_bytes: CARD_BYTES,
            },
            noise: Noise::default(),
            clocks: false,
            layout: Layout {
                policy: Policy::Averaging,
                fan_out: 32,
            },
            streams: vec![StreamSpec::new(metrics, filter, Micros::from_secs(1))],
            closes: Vec::new(),
            opens: Vec::new(),
            flow_ns: 20_000_000_000,
            faults: Vec::new(),
            settle: false,
            progress: false,
        }
    }

    /// All streams, in the order in which they are opened.
    pub fn specs(&self) -> impl Iterator<Item = &StreamSpec> {
        let later = self.opens.iter().map(|(_, spec)| spec);
        self.streams.iter().chain(later)
    }

    /// Whether it makes sense.
    ///
    /// # Errors
    /// What does not.
    pub fn check(&self) -> Result<(), String> {
        if self.nodes == 0 || self.nodes > 1 << 17 {
            return Err("1 to 131072 nodes".into());
        }
        if self.dedicated >= self.nodes {
            return Err("at least one node has a back end".into());
        }
        for spec in self.specs() {
            spec.check().map_err(|error| error.to_string())?;
        }
        if self
            .closes
            .iter()
            .any(|&(_, stream)| stream >= self.specs().count())
        {
            return Err("a stream is closed that there is not".into());
        }
        let node_of = |fault| match fault {
            Fault::Kill(node) | Fault::Restart(node) | Fault::Stop(node) => Some(node),
            Fault::Continue(node) | Fault::Part(node, _) => Some(node),
            Fault::Compute(node) | Fault::Idle(node) | Fault::Tight(node) => Some(node),
            Fault::KillCp(_) | Fault::Noise(_) | Fault::Replan => None,
        };
        let named = self.faults.iter().filter_map(|&(_, fault)| node_of(fault));
        for node in named {
            if node >= self.nodes {
                return Err(format!("a fault hits n{node}, and there is none"));
            }
        }
        Ok(())
    }
}
