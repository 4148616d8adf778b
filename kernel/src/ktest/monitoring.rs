//! What the monitoring overlay costs a node: instructions and memory of a communication process,
//! and the bound of the latter.
//!
//! Key type: [`Net`], a front end and back ends of other nodes in virtual time, around the node's
//! own stack and roles. Only what the node itself does is counted: frames in and out through
//! `net::Stack`, its roles, its collector.
//!
//! Invariant: the time-stamp counter counts instructions where the machine was started so
//! (`clock=instructions`).

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};

use kernel_core::cmdline::PeerPath;
use kernel_core::retention::WarmTable;
use netstack::MAX_DATAGRAM;
use netstack::broadcast::Peer;
use netstack::ids::{BootEpoch, JobId, NodeId, Rank};
use netstack::overlay::fixed::Fixed;
use netstack::overlay::message::{Attach, CensusEntry, Hello, Message, Packet, Process, Standing};
use netstack::overlay::placement::{Layout, Policy, Topology};
use netstack::overlay::room::MAX_CP_BYTES;
use netstack::overlay::{
    self, Collector, Filter, FrontEnd, FrontEndConfig, FrontEndEvent, MetricId, NodeConfig, Row,
    StreamSpec, Sync, TreeEpoch, section,
};
use netstack::time::{Instant, Micros};
use netstack::vitals::CastVitals;
use netstack::wire::envelope::Envelopes;
use netstack::wire::key::Key;
use smoltcp::wire::Ipv4Cidr;

use super::wire::{CARD_MAC, PEER_MAC, Wire};
use super::{Outcome, check};
use crate::agent::overlay::{Identity, Overlay};
use crate::drivers::nic;
use crate::drivers::nic::FRAME_MAX;
use crate::monitor::collector::Sources;
use crate::net::frame::UdpFrame;
use crate::net::{self, Arrival, Stack};
use crate::{arch, console, mm, monitor};

const KEY: Key = Key(*b"overlay's ktest!");
const CONTROL: SocketAddrV4 =
    SocketAddrV4::new(Ipv4Addr::new(10, 117, 0, 1), netstack::CONTROL_PORT);
const TREE_BASE: TreeEpoch = TreeEpoch(1 << 16);
/// Where addresses and payload stand in a frame.
const TARGET: usize = 14 + 16;
const PAYLOAD: usize = 14 + 20 + 8;
/// Microseconds that a frame is under way.
const LATENCY: u64 = 50;
/// Children of the communication process beside its own back end, and metrics of the stream.
const CHILDREN: u32 = 32;
const METRICS: u16 = 32;
/// Seconds that are measured.
const SECONDS: u64 = 10;
/// Most instructions a second, and a thousandth of a core that does 10^9.
const MOST: u64 = 1_000_000;

fn address(node: u32) -> SocketAddrV4 {
    let ip = Ipv4Addr::from(0x0a75_0100 + node);
    SocketAddrV4::new(ip, netstack::NODE_PORT)
}

fn peer(node: u32, mac: [u8; 6]) -> Peer {
    Peer {
        addr: address(node),
        mac,
    }
}

/// The node that is measured, in a run of control that has this key.
fn identity(key: Key) -> Identity {
    Identity {
        node: NodeId(0),
        boot: BootEpoch(1),
        me: peer(0, CARD_MAC),
        control: CONTROL,
        key,
    }
}

struct Fake(u32);

impl Collector for Fake {
    fn read(&mut self, metric: MetricId) -> Option<i64> {
        Some(i64::from(self.0) * 1_000_000_007 + i64::from(metric.0))
    }
}

/// The node that is measured is number 0.
struct Net {
    now: u64,
    stack: Stack,
    wire: Wire,
    overlay: Overlay,
    warm: WarmTable,
    front: FrontEnd,
    others: Vec<(overlay::Node, Fake)>,
    flights: BTreeMap<(u64, u64), (SocketAddrV4, SocketAddrV4, Vec<u8>)>,
    /// Of the back ends that are none.
    senders: BTreeMap<u32, Envelopes>,
    sent: u64,
    /// Counts that the node has taken.
    counts: u64,
    /// Back ends in the last tick.
    covered: u32,
}

impl Net {
    fn new(others: u32) -> Self {
        let (wire, card) = Wire::new();
        let config = net::Config {
            wants_personality: false,
            address: Some((Ipv4Cidr::new(*address(0).ip(), 16), None)),
            version: "1.2.3",
            boot_epoch: 1,
            peers: PeerPath::Direct,
        };
        let mut stack = Stack::new(card, &config, Instant::from_micros(1));
        stack.set_control(CONTROL);
        let mut overlay = Overlay::default();
        overlay.join(&identity(KEY), Instant::ZERO);
        let front_end = Peer {
            addr: CONTROL,
            mac: PEER_MAC,
        };
        let front = FrontEndConfig {
            me: front_end,
            key: KEY,
            tree_base: TREE_BASE,
            seed: 1,
        };
        let other = |node: u32| {
            let config = NodeConfig {
                node: NodeId(node),
                boot: BootEpoch(1),
                me: peer(node, PEER_MAC),
                front_end,
                key: KEY,
                hello: Hello {
                    back_end: true,
                    cps: 0,
                    auxiliary: 0,
                    job: None,
                    factors: [Fixed::ONE; 4],
                },
                seed: node.into(),
            };
            (overlay::Node::new(config, Instant::ZERO), Fake(node))
        };
        Self {
            now: 0,
            stack,
            wire,
            overlay,
            warm: WarmTable::new(0),
            front: FrontEnd::new(front, Instant::ZERO),
            others: (1..=others).map(other).collect(),
            flights: BTreeMap::new(),
            senders: BTreeMap::new(),
            sent: 0,
            counts: 0,
            covered: 0,
        }
    }

    fn instant(&self) -> Instant {
        Instant::from_micros(self.now)
    }

    fn build(&mut self, layout: &Layout) -> Outcome {
        self.run(1_500_000);
        let now = self.instant();
        let built = self.front.build(now, layout).map(drop);
        built.map_err(|error| format!("{error}"))?;
        self.run(1_000_000);
        Ok(())
    }

    fn open(&mut self, spec: StreamSpec) -> Outcome {
        let now = self.instant();
        let opened = self.front.open(now, spec);
        opened.map(drop).map_err(|error| format!("{error}"))
    }

    /// What the node does in one turn of its main loop.
    fn turn(&mut self) {
        let began = arch::tsc();
        let now = Instant::from_micros(self.now);
        let overlay = &mut self.overlay;
        while self.stack.poll(now, &mut |arrival| {
            if let Arrival::Peer(arrived) = arrival {
                overlay.handle_datagram(now, arrived.from, arrived.bytes);
            }
        }) {}
        if self.overlay.is_due(now) {
            let mut sources = sources(&self.warm, &self.overlay);
            let mut buffer = [0; MAX_DATAGRAM];
            self.overlay
                .transmit(now, &mut self.stack, &mut buffer, &mut sources);
        }
        self.counts += arch::tsc() - began;
    }

    fn fly(&mut self, from: SocketAddrV4, to: SocketAddrV4, bytes: Vec<u8>) {
        self.sent += 1;
        let key = (self.now + LATENCY, self.sent);
        self.flights.insert(key, (from, to, bytes));
    }

    fn drain(&mut self) {
        self.turn();
        while let Some(frame) = self.wire.take_frame() {
            let ip: [u8; 4] = frame[TARGET..TARGET + 4].try_into().expect("four bytes");
            let port = match Ipv4Addr::from(ip) == *CONTROL.ip() {
                true => netstack::CONTROL_PORT,
                false => netstack::NODE_PORT,
            };
            let to = SocketAddrV4::new(ip.into(), port);
            self.fly(address(0), to, frame[PAYLOAD..].to_vec());
        }
        let now = self.instant();
        let mut out = [0; MAX_DATAGRAM];
        for index in 0..=self.others.len() {
            loop {
                let (from, sent) = match self.others.get_mut(index) {
                    Some((node, fake)) => {
                        (address(fake.0), node.poll_transmit(now, &mut out, fake))
                    }
                    None => (CONTROL, self.front.poll_transmit(now, &mut out)),
                };
                let Some((to, length)) = sent else {
                    break;
                };
                self.fly(from, to.addr, out[..length].to_vec());
            }
        }
        while let Some(event) = self.front.poll_event() {
            if let FrontEndEvent::Tick(value) = event {
                self.covered = value.covers;
            }
        }
    }

    /// A datagram for the node.
    fn put(&self, from: SocketAddrV4, bytes: &[u8]) {
        let mut frame = vec![0; FRAME_MAX];
        let length = UdpFrame {
            source_mac: PEER_MAC,
            target_mac: CARD_MAC,
            source: from,
            target: address(0),
        }
        .emit_unsummed(bytes, &mut frame);
        frame.truncate(length);
        self.wire.put_frame(&frame);
    }

    fn run(&mut self, micros: u64) {
        let until = self.now + micros;
        loop {
            self.drain();
            let now = self.instant();
            let others = self
                .others
                .iter()
                .filter_map(|(node, _)| node.poll_timeout());
            let timers = others
                .chain(self.front.poll_timeout())
                .chain(self.overlay.poll_timeout(now));
            let timer = timers.min().map(|at| at.as_micros().max(self.now + 1));
            let flight = self.flights.keys().next().map(|key| key.0);
            let next = flight.into_iter().chain(timer).min().unwrap_or(u64::MAX);
            if next > until {
                self.now = until;
                return;
            }
            self.now = next;
            while let Some(entry) = self.flights.first_entry()
                && entry.key().0 <= next
            {
                let (from, to, bytes) = entry.remove();
                let now = Instant::from_micros(next);
                if to == CONTROL {
                    self.front.handle_datagram(now, from, &bytes);
                } else if to == address(0) {
                    self.put(from, &bytes);
                } else {
                    let node = to.ip().to_bits() - address(1).ip().to_bits();
                    if let Some((node, _)) = self.others.get_mut(node as usize) {
                        node.handle_datagram(now, from, &bytes);
                    }
                }
            }
        }
    }

    /// Bytes that the roles of the node held, by the kernel's heap: they end.
    fn leave(&mut self) -> u64 {
        let before = mm::heap_room_bytes();
        self.overlay.leave();
        mm::heap_room_bytes() - before
    }
}

/// Where the node's collector looks.
fn sources<'a>(warm: &'a WarmTable, overlay: &Overlay) -> Sources<'a> {
    Sources {
        endpoint: None,
        casts: CastVitals::default(),
        asked_again: (0, 0),
        warm,
        card: nic::Counters::default(),
        stack: net::Counters::default(),
        job: None,
        overlay: overlay.figures(),
    }
}

/// No process between nodes and the front end.
fn flat() -> Layout {
    Layout {
        policy: Policy::Averaging,
        fan_out: 64,
    }
}

/// One process, on this node.
fn under(node: u32) -> Layout {
    let root = ((NodeId(node), 1), None);
    Layout {
        policy: Policy::Given(Topology::Explicit(vec![root])),
        fan_out: 64,
    }
}

fn one_stream() -> StreamSpec {
    let metrics = (1..=METRICS).map(MetricId).collect();
    StreamSpec::new(metrics, Filter::Sum, Micros::from_secs(1))
}

/// Instructions a second of the node, and bytes that it held at the end, in a tree.
fn measured(tree: &Layout, covered: u32) -> Result<(u64, u64), alloc::string::String> {
    let mut net = Net::new(CHILDREN);
    net.build(tree)?;
    net.open(one_stream())?;
    net.run(2_000_000);
    net.counts = 0;
    net.run(SECONDS * 1_000_000);
    let counts = net.counts / SECONDS;
    check_covered(&net, covered)?;
    let counted = net.overlay.figures().footprint.bytes as u64;
    let held = net.leave();
    info!(
        "test",
        "{counts} counts a second, {held} bytes held, {counted} of them counted"
    );
    Ok((counts, held))
}

fn check_covered(net: &Net, covered: u32) -> Outcome {
    check!(
        net.covered == covered,
        "the last tick has {} back ends instead of {covered}",
        net.covered
    );
    Ok(())
}

/// A communication process with 32 children and its own back end: at most a thousandth of a core,
/// and one mebibyte.
pub fn cost() -> Outcome {
    let (back_end, _) = measured(&flat(), CHILDREN + 1)?;
    let (counts, held) = measured(&under(0), CHILDREN + 1)?;
    let full = flooded()?;
    console::raw(format_args!(
        "overlay-cost instructions_per_s={counts} back_end_per_s={back_end}\n"
    ));
    console::raw(format_args!(
        "overlay-cost bytes={held} full_bytes={full}\n"
    ));
    check!(back_end < counts, "a process costs nothing");
    check!(counts <= MOST, "{counts} instructions a second");
    check!(held <= MAX_CP_BYTES as u64, "{held} bytes held");
    Ok(())
}

/// What a program has counted is not the next one's, also where the node hears of the end of one
/// job and the begin of the next in one turn; it stays when control is started again while the
/// program runs.
pub fn counters_of_jobs() -> Outcome {
    let mut net = Net::new(0);
    let first = MetricId(MetricId::FIRST_PROGRAM);
    let shown = |net: &Net| sources(&net.warm, &net.overlay).read(first);
    let job = |number: u64| Some((JobId(number), Rank(0)));
    net.overlay.set_job(job(1));
    net.turn();
    check!(monitor::set_counter(0, 42), "there is no counter 0");
    net.turn();
    check!(shown(&net) == Some(42), "job 1 shows {:?}", shown(&net));
    net.overlay.set_job(None);
    net.overlay.set_job(job(2));
    net.turn();
    check!(shown(&net).is_none(), "job 2 shows {:?}", shown(&net));
    monitor::set_counter(0, 7);
    // That it is silent is no news of another job.
    net.overlay.set_quiet();
    net.turn();
    check!(shown(&net) == Some(7), "job 2 shows {:?}", shown(&net));
    let now = net.instant();
    net.overlay.join(&identity(Key([2; 16])), now);
    check!(shown(&net) == Some(7), "control is back, {:?}", shown(&net));
    net.turn();
    check!(shown(&net) == Some(7), "and told, {:?}", shown(&net));
    // Over while control was away.
    net.overlay.set_job(None);
    net.overlay.join(&identity(Key([3; 16])), now);
    net.turn();
    check!(shown(&net).is_none(), "without a job {:?}", shown(&net));
    net.overlay.set_job(job(3));
    // A warm program may set it before the node's next turn.
    monitor::set_counter(0, 8);
    net.turn();
    check!(shown(&net) == Some(8), "job 3 shows {:?}", shown(&net));
    net.overlay.leave();
    check!(shown(&net).is_none(), "without a job {:?}", shown(&net));
    Ok(())
}

/// Whatever its children send, a communication process holds no more than it may; what found no
/// room is counted.
fn flooded() -> Result<u64, alloc::string::String> {
    let mut net = Net::new(0);
    net.build(&under(0))?;
    for _ in 0..STREAMS {
        // All wait for all: ticks stay open.
        let metrics = (1..=64).map(MetricId).collect();
        net.open(StreamSpec {
            sync: Sync::WaitAll,
            ..StreamSpec::new(metrics, Filter::Concat, Micros::from_secs(1))
        })?;
    }
    net.run(1_500_000);
    // From now on nothing leaves the node.
    for child in 1..=FLOODERS {
        net.flood(child, Message::Attach(attach()));
    }
    net.turn();
    net.wire.set_room(0);
    for child in 1..=FLOODERS {
        for stream in 1..=STREAMS {
            let report = Message::Report {
                standing: Standing {
                    link: 1,
                    answer: true,
                    back_ends: 1,
                    ..Standing::default()
                },
                sections: net.rows(child, stream),
            };
            net.flood(child, report);
        }
        for number in 0..16 {
            net.flood(child, census(child, number));
        }
        net.turn();
    }
    let figures = net.overlay.figures();
    let counted = figures.footprint.bytes as u64;
    let held = net.leave();
    info!(
        "test",
        "flooded: {held} bytes held, counted as {counted}, {} dropped", figures.dropped
    );
    check!(figures.dropped > 0, "nothing was dropped");
    check!(
        held > counted / 4,
        "{held} bytes held, the flood did not arrive"
    );
    check!(held <= counted, "{held} bytes held, but {counted} counted");
    check!(counted <= MAX_CP_BYTES as u64, "{counted} bytes counted");
    Ok(held)
}

/// Streams of the flood, and children that take part in it.
const STREAMS: u16 = overlay::stream::MAX_STREAMS as u16;
const FLOODERS: u32 = overlay::MAX_CHILDREN as u32 - 1;

fn attach() -> Attach {
    Attach {
        link: 1,
        height: 0,
        room: 0,
        quiet: false,
        moved: false,
        time: 0,
    }
}

/// Entries of the census that no other message has.
fn census(child: u32, number: u32) -> Message {
    let entry = |index: u32| CensusEntry {
        process: Process::back_end(NodeId(1_000 + (child * 16 + number) * 18 + index)),
        link: 1,
        ..CensusEntry::default()
    };
    Message::Census {
        number,
        entries: (0..18).map(entry).collect(),
    }
}

impl Net {
    /// Rows without values: short on the wire, as long as others in memory.
    fn rows(&self, child: u32, stream: u16) -> Vec<u8> {
        let row = |index: u32| Row {
            node: NodeId(child * 64 + index),
            node_time_us: 1,
            values: vec![None; 64],
        };
        let mut rows = (0..60).map(row).collect();
        let tick = self.now / 1_000_000 + u64::from(child % 2);
        let stream = overlay::StreamId(stream);
        section::encode_rows((stream, tick), 64, &mut rows, false).bytes
    }

    /// A message to the communication process, from a back end that is none.
    fn flood(&mut self, child: u32, message: Message) {
        let packet = Packet {
            from: Process::back_end(NodeId(child)),
            boot: BootEpoch(u64::from(child)),
            mac: PEER_MAC,
            to_slot: 1,
            tree: TreeEpoch(TREE_BASE.0 + 1),
            message,
        };
        let mut out = [0; MAX_DATAGRAM];
        let (from, now) = (address(child), Instant::from_micros(self.now));
        let begun = || Envelopes::new(&KEY.overlay_key(), from, now);
        let sender = self.senders.entry(child).or_insert_with(begun);
        let length = overlay::wire::emit(sender, now, address(0), &packet, &mut out);
        self.put(address(child), &out[..length]);
    }
}
