//! What a run of the overlay is made of.
//!
//! Key type: [`Monitoring`]. Neighbour: [`super::options`] makes one from a command line.
//!
//! Invariant: a run is a function of its setup.

use netstack::overlay::placement::{Layout, Policy};
use netstack::overlay::{Filter, MetricId, StreamSpec};
use netstack::time::Micros;

use crate::setup::Setup;

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
/// Who watches, what they watch, and for how long.
#[derive(Clone, Debug)]
pub struct Monitoring {
    /// The first nodes have no back end.
    pub dedicated: u32,
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
    /// After the tree was taken down another is made for a while, on a quiet network, before the
    /// books are looked at: if nobody died, they are settled to the last sample.
    pub settle: bool,
}

impl Monitoring {
    /// One stream of so many metrics with a period of one second.
    pub fn one_stream(metrics: u16, filter: Filter) -> Self {
        let metrics = (1..=metrics).map(MetricId).collect();
        Monitoring {
            dedicated: 0,
            layout: Layout {
                policy: Policy::Averaging,
                fan_out: 32,
            },
            streams: vec![StreamSpec::new(metrics, filter, Micros::from_secs(1))],
            closes: Vec::new(),
            opens: Vec::new(),
            flow_ns: 20_000_000_000,
            settle: false,
        }
    }

    /// All streams, in the order in which they are opened.
    pub fn specs(&self) -> impl Iterator<Item = &StreamSpec> {
        let later = self.opens.iter().map(|(_, spec)| spec);
        self.streams.iter().chain(later)
    }

    /// How long values flow: until all has rested since the last fault.
    pub fn ends_ns(&self, setup: &Setup) -> u64 {
        let faults = setup.faults.iter();
        let last = faults.map(|&(at, _)| (at + REST_NS).saturating_sub(BUILD_NS));
        self.flow_ns.max(last.max().unwrap_or(0))
    }

    /// Whether it makes sense among so many nodes.
    ///
    /// # Errors
    /// What does not.
    pub fn check(&self, nodes: u32) -> Result<(), String> {
        if self.dedicated >= nodes {
            return Err("at least one node has a back end".into());
        }
        for spec in self.specs() {
            spec.check().map_err(|error| error.to_string())?;
        }
        let specs = self.specs().count();
        match self.closes.iter().any(|&(_, stream)| stream >= specs) {
            true => Err("a stream is closed that there is not".into()),
            false => Ok(()),
        }
    }
}
