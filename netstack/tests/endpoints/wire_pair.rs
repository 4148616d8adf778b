//! A node and a control endpoint on one wire in virtual time.

use std::net::{Ipv4Addr, SocketAddrV4};

use netstack::ids::{BootEpoch, ControlEpoch, NodeId};
use netstack::join::Timing;
use netstack::personality::{self, Personality};
use netstack::time::{Instant, Micros};
use netstack::vitals::{BootTimings, Vitals};
use netstack::wire::key::Key;
use netstack::{MAX_DATAGRAM, NODE_PORT, control, node};

pub const SECRET: [u8; 16] = *b"0123456789abcdef";
pub const PEER_KEY: Key = Key(*b"what nodes share");
const MAC: [u8; 6] = [0x52, 0x54, 0, 7, 0, 3];
pub const ADDR: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 117, 1, 3), NODE_PORT);

pub struct Pair {
    pub node: node::Endpoint,
    pub control: control::Endpoint,
    pub now: Instant,
    /// Nothing gets through.
    pub cut: bool,
    pub vitals: Vitals,
    pub last_node_event: Instant,
    node_config: node::Config,
    control_config: control::Config,
    node_events: Vec<node::Event>,
}

pub fn node_config(epoch: BootEpoch) -> node::Config {
    node::Config {
        personality: Personality {
            node: NodeId(3),
            control_addr: [10, 117, 0, 1],
            control_port: netstack::CONTROL_PORT,
            http_port: 7180,
            tree_height: 1,
            place: [3, 0, 0, 0],
            key_id: 1,
            key: personality::node_key(&SECRET, 1, MAC, epoch, NodeId(3)),
            name: "n3".into(),
        },
        mac: MAC,
        boot_epoch: epoch,
        lab_key: false,
        version: *b"0.1.0\0\0\0\0\0\0\0\0\0\0\0",
        build_id: [9; 20],
        memory_bytes: 48 << 20,
        cores: 4,
        seed: epoch.0,
        timings: BootTimings::default(),
    }
}

pub fn control_config() -> control::Config {
    control::Config {
        cluster_secret: SECRET,
        key_id: 1,
        version: *b"0.1.0\0\0\0\0\0\0\0\0\0\0\0",
        accept_lab_keys: false,
        control_epoch: ControlEpoch(1),
        peer_key: PEER_KEY,
        seed: 1,
        timing: Timing::default(),
        limits: control::Limits::default(),
    }
}

impl Pair {
    pub fn new() -> Self {
        Self::with(|_| {}, |_| {})
    }

    pub fn with(
        change_node: impl FnOnce(&mut node::Config),
        change_control: impl FnOnce(&mut control::Config),
    ) -> Self {
        let mut node_config = node_config(BootEpoch(5));
        change_node(&mut node_config);
        let mut control_config = control_config();
        change_control(&mut control_config);
        let now = Instant::from_micros(1_000_000);
        Pair {
            node: node::Endpoint::new(node_config.clone(), now),
            control: control::Endpoint::new(control_config.clone()),
            now,
            cut: false,
            vitals: Vitals::default(),
            last_node_event: now,
            node_config,
            control_config,
            node_events: Vec::new(),
        }
    }

    /// A pair that has joined, its events taken.
    pub fn joined() -> Self {
        let mut pair = Pair::new();
        pair.settle();
        assert!(pair.node.is_joined());
        pair.take_node_events();
        pair.take_control_events();
        pair
    }

    pub fn mac(&self) -> [u8; 6] {
        MAC
    }

    pub fn epoch(&self) -> BootEpoch {
        self.node_config.boot_epoch
    }

    pub fn key(&self) -> Key {
        self.node_config.personality.key
    }

    pub fn node_config(&self) -> node::Config {
        self.node_config.clone()
    }

    /// Exchanges datagrams until both sides are silent.
    pub fn settle(&mut self) {
        let mut buffer = [0; MAX_DATAGRAM];
        for _ in 0..10_000 {
            let mut quiet = true;
            if let Some(length) = self.node.poll_transmit(self.now, &mut buffer) {
                quiet = false;
                if !self.cut {
                    self.control
                        .handle_datagram(self.now, ADDR, &buffer[..length]);
                }
            }
            if let Some((to, length)) = self.control.poll_transmit(self.now, &mut buffer) {
                quiet = false;
                if !self.cut && to == ADDR {
                    self.node.handle_datagram(self.now, &buffer[..length]);
                }
            }
            while let Some(event) = self.node.poll_event() {
                self.last_node_event = self.now;
                self.node_events.push(event);
            }
            if quiet {
                return;
            }
        }
        panic!("the endpoints never come to rest");
    }

    /// Lets virtual time pass from deadline to deadline.
    pub fn advance(&mut self, by: Micros) {
        let end = self.now + by;
        loop {
            self.settle();
            let deadlines = [self.node.poll_timeout(), self.control.poll_timeout()];
            match deadlines.into_iter().flatten().min() {
                Some(next) if next <= end => {
                    assert!(next > self.now, "a deadline that has passed was acted upon");
                    self.now = next;
                }
                _ => break,
            }
        }
        self.now = end;
    }

    pub fn take_node_events(&mut self) -> Vec<node::Event> {
        self.settle();
        std::mem::take(&mut self.node_events)
    }

    /// The control node's events, without what every join begins with: that the node holds nothing.
    pub fn take_control_events(&mut self) -> Vec<control::Event> {
        let says_nothing = |event: &control::Event| matches!(event, control::Event::Holdings { reset: true, held, .. } if held.is_empty());
        let mut events = self.take_all_control_events();
        events.retain(|event| !says_nothing(event));
        events
    }

    pub fn take_all_control_events(&mut self) -> Vec<control::Event> {
        std::iter::from_fn(|| self.control.poll_event()).collect()
    }

    pub fn deliver(&mut self, datagram: &[u8]) {
        self.control.handle_datagram(self.now, ADDR, datagram);
    }

    /// Delivers what the control node has to say, and takes no answer.
    pub fn deliver_to_node(&mut self) {
        let mut buffer = [0; MAX_DATAGRAM];
        while let Some((_, length)) = self.control.poll_transmit(self.now, &mut buffer) {
            self.node.handle_datagram(self.now, &buffer[..length]);
        }
    }

    /// What the node has to say, held back.
    pub fn take_datagrams_of_node(&mut self) -> Vec<Vec<u8>> {
        let mut buffer = [0; MAX_DATAGRAM];
        std::iter::from_fn(|| {
            let length = self.node.poll_transmit(self.now, &mut buffer)?;
            Some(buffer[..length].to_vec())
        })
        .collect()
    }

    pub fn first_datagram(&mut self) -> Vec<u8> {
        let mut buffer = [0; MAX_DATAGRAM];
        let length = self
            .node
            .poll_transmit(self.now, &mut buffer)
            .expect("a node says HELLO");
        buffer[..length].to_vec()
    }

    pub fn restart_control(&mut self) {
        self.control_config.control_epoch.0 += 1;
        self.control_config.peer_key.0[0] += 1;
        self.control = control::Endpoint::new(self.control_config.clone());
    }

    pub fn reboot(&mut self, epoch: BootEpoch) {
        self.node_config = node_config(epoch);
        self.node = node::Endpoint::new(self.node_config.clone(), self.now);
    }

    pub fn second_machine(&self, epoch: BootEpoch, node: NodeId) -> node::Endpoint {
        let mut config = node_config(epoch);
        config.personality.node = node;
        config.personality.key = personality::node_key(&SECRET, 1, MAC, epoch, node);
        node::Endpoint::new(config, self.now)
    }

    /// Runs another node beside this pair's; gives its events.
    pub fn run_beside(&mut self, other: &mut node::Endpoint, time: Micros) -> Vec<node::Event> {
        let addr = SocketAddrV4::new(Ipv4Addr::new(10, 117, 1, 99), NODE_PORT);
        let mut buffer = [0; MAX_DATAGRAM];
        let end = self.now + time;
        let mut events = Vec::new();
        while self.now < end {
            while let Some(length) = self.node.poll_transmit(self.now, &mut buffer) {
                self.control
                    .handle_datagram(self.now, ADDR, &buffer[..length]);
            }
            while let Some(length) = other.poll_transmit(self.now, &mut buffer) {
                self.control
                    .handle_datagram(self.now, addr, &buffer[..length]);
            }
            while let Some((to, length)) = self.control.poll_transmit(self.now, &mut buffer) {
                if to == ADDR {
                    self.node.handle_datagram(self.now, &buffer[..length]);
                } else {
                    other.handle_datagram(self.now, &buffer[..length]);
                }
            }
            events.extend(std::iter::from_fn(|| other.poll_event()));
            self.node_events
                .extend(std::iter::from_fn(|| self.node.poll_event()));
            self.now += Micros::from_millis(5);
        }
        events
    }
}
