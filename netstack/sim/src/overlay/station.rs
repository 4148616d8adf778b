//! One node of a simulated overlay: the machine, its clock, and what it measures.
//!
//! Invariant: nothing of the protocol is here.

use std::collections::VecDeque;

use netstack::ids::{BootEpoch, NodeId};
use netstack::overlay::fixed::Fixed;
use netstack::overlay::message::Hello;
use netstack::overlay::{Collector, MAX_CPS, MetricId, Node, NodeConfig};
use netstack::time::Instant;

use crate::broadcast::station::{Clock, NEVER, key, peer};

/// Datagrams that wait at a node that stands still.
const SOCKET_QUEUE: usize = 256;

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
    /// None while it is off.
    pub node: Option<Box<Node>>,
    /// What it measures.
    pub gauges: Gauges,
    /// What it goes by.
    pub clock: Clock,
    /// Times that it was switched on.
    pub boots: u64,
    /// The wake-up that counts.
    pub wake_at: u64,
    /// It stands still.
    pub stopped: bool,
    /// Its program computes: when it looks at the network next.
    pub look_at: Option<u64>,
    /// What arrived meanwhile.
    pub waiting: VecDeque<(u32, Box<[u8]>)>,
}

impl Station {
    /// A node that is off.
    pub fn new(node: u32, clock: Clock) -> Self {
        Station {
            node: None,
            gauges: Gauges { node, now_us: 0 },
            clock,
            boots: 0,
            wake_at: NEVER,
            stopped: false,
            look_at: None,
            waiting: VecDeque::new(),
        }
    }

    /// The boot that it has, or had last.
    pub fn boot(&self) -> BootEpoch {
        BootEpoch((u64::from(self.gauges.node) << 16) + self.boots)
    }

    /// Switches it on: the number of the front end, and what time it is there.
    pub fn start(&mut self, seed: u64, front_end: (u32, u64), back_end: bool, now: Instant) {
        let (front_end, time) = front_end;
        self.boots += 1;
        (self.stopped, self.look_at) = (false, None);
        self.waiting.clear();
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
            boot: self.boot(),
            me: peer(number),
            front_end: peer(front_end),
            key: key(1),
            hello,
            seed: seed ^ (u64::from(number) << 20) ^ self.boots,
        };
        let mut node = Node::new(config, now);
        node.begin_at(now, time);
        self.node = Some(Box::new(node));
    }

    /// Keeps a datagram for later, if there is room.
    pub fn keep(&mut self, from: u32, datagram: Box<[u8]>) {
        if self.waiting.len() < SOCKET_QUEUE {
            self.waiting.push_back((from, datagram));
        }
    }
}
