//! One node of the overlay: the machine, and what it measures.
//!
//! Invariant: nothing of the protocol is here.

use netstack::ids::{BootEpoch, NodeId};
use netstack::overlay::fixed::Fixed;
use netstack::overlay::message::Hello;
use netstack::overlay::{Collector, MAX_CPS, MetricId, Node, NodeConfig};
use netstack::time::Instant;

use crate::net::{key, peer};

/// What a node measures: metric 1 is 1, metric 2 the node's number, others grow with time like
/// counters.
pub struct Gauges {
    node: u32,
    /// The time, in microseconds.
    pub now_us: u64,
}

impl Collector for Gauges {
    fn read(&mut self, metric: MetricId) -> Option<i64> {
        Some(match metric.0 {
            1 => 1,
            2 => i64::from(self.node),
            other => (self.now_us / u64::from(other)) as i64 + i64::from(self.node % 7),
        })
    }
}

/// See the module.
pub struct Station {
    /// None while it takes no part.
    pub node: Option<Box<Node>>,
    /// What it measures.
    pub gauges: Gauges,
    /// The run of the control node whose key it has.
    pub key_of: u64,
}

/// What a node is told when it begins to take part.
pub struct Told {
    /// Its boot.
    pub boot: BootEpoch,
    /// The number of the front end.
    pub front_end: u32,
    /// The run of the control node.
    pub key_of: u64,
    /// What time it is there, in microseconds.
    pub time: u64,
    /// Seed of the run.
    pub seed: u64,
}

impl Station {
    /// A node that takes no part.
    pub fn new(node: u32) -> Self {
        Station {
            node: None,
            gauges: Gauges { node, now_us: 0 },
            key_of: 0,
        }
    }

    /// It takes part from now on.
    pub fn start(&mut self, told: Told, back_end: bool, now: Instant) {
        let number = self.gauges.node;
        // Hosts differ a little, so that comprehensive evaluation has something to judge.
        let hello = Hello {
            back_end,
            cps: MAX_CPS,
            auxiliary: 0,
            job: None,
            factors: [
                Fixed::whole(8 + i64::from(number % 9)),
                Fixed::whole(40 + i64::from(number % 50)),
                Fixed::whole(25),
                Fixed::hundredths(i64::from(number % 60)),
            ],
        };
        let config = NodeConfig {
            node: NodeId(number),
            boot: told.boot,
            me: peer(number),
            front_end: peer(told.front_end),
            key: key(told.key_of),
            hello,
            seed: told.seed ^ (u64::from(number) << 20) ^ told.boot.0,
        };
        let mut node = Node::new(config, now);
        node.begin_at(now, told.time);
        self.node = Some(Box::new(node));
        self.key_of = told.key_of;
    }
}
