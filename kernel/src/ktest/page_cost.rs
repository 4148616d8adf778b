//! What a page read costs a node, in instructions by fragment, as `packets` counts the rest.
//!
//! Key type: [`Link`], both ends of a session, whose datagrams pass from hand to hand: frame and
//! card are left out.
//!
//! Invariant: only the node's own work is counted, never that of the control node beside it.

use core::net::{Ipv4Addr, SocketAddrV4};

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use netstack::MAX_DATAGRAM;
use netstack::control::{self, Limits};
use netstack::ids::{BootEpoch, ControlEpoch, JobId, NodeId, ProgramId, Rank};
use netstack::job::{JobSpec, PlaceSpec, StartMode, launch_block};
use netstack::join::Timing;
use netstack::node::{self, Event};
use netstack::page::{FRAGMENT, MAX_REQUEST, Object, PageReply, PageRequest};
use netstack::personality::{Personality, TREE_LEVELS};
use netstack::retention::Retention;
use netstack::time::{Instant, Micros};
use netstack::vitals::BootTimings;
use netstack::wire::key::Key;

use super::check;
use crate::arch;

const SECRET: Key = Key([9; 16]);
const NODE: NodeId = NodeId(1);
const JOB: JobId = JobId(1);
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const AT_NODE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 118, 1, 1), netstack::NODE_PORT);
/// Requests of the largest size, one after the other.
const REQUESTS: u64 = 32;
/// Turns that anything may take.
const TURNS: u32 = 1_000;
/// Time between two turns.
const TURN: Micros = Micros::from_millis(1);

/// Instructions by fragment.
pub struct Cost {
    /// To take one: its tag, and its place in the answer.
    pub take: u64,
    /// To ask for it: a request asks for many.
    pub ask: u64,
}

struct Link {
    node: node::Endpoint,
    control: control::Endpoint,
    now: Instant,
    file: Vec<u8>,
    /// Instructions of the node, and fragments that it got.
    taking: u64,
    asking: u64,
    events: Vec<Event>,
}

impl Link {
    fn new(file: Vec<u8>) -> Self {
        let now = Instant::from_micros(1_000_000);
        let personality = Personality {
            node: NODE,
            control_addr: [10, 118, 0, 1],
            control_port: netstack::CONTROL_PORT,
            http_port: 0,
            tree_height: 0,
            place: [0; TREE_LEVELS],
            key_id: 1,
            key: SECRET.node_key(1, MAC, BootEpoch(0), NODE),
            name: "n1".into(),
        };
        let node = node::Config {
            personality,
            mac: MAC,
            boot_epoch: BootEpoch(1),
            lab_key: true,
            version: [0; 16],
            build_id: [0; 20],
            memory_bytes: 1 << 26,
            cores: 1,
            seed: 1,
            timings: BootTimings::default(),
        };
        let control = control::Config {
            cluster_secret: SECRET.0,
            key_id: 1,
            version: [0; 16],
            accept_lab_keys: true,
            control_epoch: ControlEpoch(7),
            peer_key: Key([7; 16]),
            seed: 7,
            timing: Timing::default(),
            limits: Limits::default(),
        };
        Self {
            node: node::Endpoint::new(node, now),
            control: control::Endpoint::new(control),
            now,
            file,
            taking: 0,
            asking: 0,
            events: Vec::new(),
        }
    }

    /// What either has to say reaches the other.
    fn turn(&mut self) {
        let mut buffer = [0; MAX_DATAGRAM];
        loop {
            let began = arch::tsc();
            let length = self.node.poll_transmit(self.now, &mut buffer);
            self.asking += arch::tsc() - began;
            let Some(length) = length else { break };
            let datagram = &buffer[..length];
            self.control.handle_datagram(self.now, AT_NODE, datagram);
        }
        while let Some(event) = self.control.poll_event() {
            if let control::Event::PageWanted(wanted) = event {
                let from = wanted.offset as usize;
                let bytes = self.file[from..from + wanted.length as usize].to_vec();
                let bytes = Ok(bytes);
                self.control
                    .page_data(self.now, PageReply { wanted, bytes });
            }
        }
        while let Some((_, length)) = self.control.poll_transmit(self.now, &mut buffer) {
            let began = arch::tsc();
            self.node.handle_datagram(self.now, &buffer[..length]);
            self.taking += arch::tsc() - began;
        }
        while let Some(event) = self.node.poll_event() {
            self.events.push(event);
        }
        self.now += TURN;
    }

    fn until(&mut self, what: &str, is_it: impl Fn(&Event) -> bool) -> Result<(), String> {
        for _ in 0..TURNS {
            self.turn();
            if self.events.drain(..).any(|event| is_it(&event)) {
                return Ok(());
            }
        }
        Err(alloc::format!("{what}: not in {TURNS} turns"))
    }

    fn launch(&mut self) -> Result<(), String> {
        let block = launch_block::emit(Rank(0), 1, &["app"], &["A=1"], &[]);
        let block = block.map_err(|error| alloc::format!("{error:?}"))?;
        let spec = JobSpec {
            job: JOB,
            submitted_us: 1,
            places: vec![PlaceSpec {
                node: NODE,
                ranks: 1,
                launch_block: Arc::from(&block[..]),
                retain: false,
                files: None,
            }],
            program: ProgramId([1; 32]),
            program_bytes: self.file.len() as u64,
            time_limit_us: 0,
            monitor_period_us: 0,
            memory_limit: 0,
            retention: Retention::NOTHING,
            start: StartMode::AtOnce,
            cores: 0,
            core_bytes: 0,
        };
        // The control node hears last that the node has joined.
        for _ in 0..TURNS {
            if self.control.launch(self.now, spec.clone()).is_ok() {
                return Ok(());
            }
            self.turn();
        }
        Err("the node is not up".into())
    }
}

/// Reads a program of as many requests as are counted; what that costs the node.
pub fn cost() -> Result<Cost, String> {
    let bytes = REQUESTS * u64::from(MAX_REQUEST);
    let file: Vec<u8> = (0..bytes).map(|at| (at / 7) as u8).collect();
    let mut link = Link::new(file);
    let joined = |event: &Event| matches!(event, Event::Joined { .. });
    link.until("the node joins", joined)?;
    link.launch()?;
    let launched = |event: &Event| matches!(event, Event::Launch { .. });
    link.until("the job comes", launched)?;
    link.node.launch_result(link.now, JOB, Ok(()));
    let mut before = Cost { take: 0, ask: 0 };
    for number in 0..=REQUESTS {
        let offset = number % REQUESTS * u64::from(MAX_REQUEST);
        let request = PageRequest {
            job: JOB,
            object: Object::Program,
            offset,
            length: MAX_REQUEST,
            demand: true,
        };
        let asked = link.node.request_pages(link.now, request);
        check!(asked.is_ok(), "a request is left over");
        let wanted = link.file[offset as usize..][..MAX_REQUEST as usize].to_vec();
        let is_it = |event: &Event| matches!(event, Event::Data { bytes, .. } if *bytes == wanted);
        link.until("a request", is_it)?;
        // The first one finds out how long an answer takes.
        if number == 0 {
            (before.take, before.ask) = (link.taking, link.asking);
        }
    }
    let fragments = REQUESTS * u64::from(MAX_REQUEST).div_ceil(FRAGMENT as u64);
    Ok(Cost {
        take: (link.taking - before.take) / fragments,
        ask: (link.asking - before.ask) / fragments,
    })
}
