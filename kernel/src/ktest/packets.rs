//! What a packet costs a node: instructions from the engine of an exchange to the card, and from
//! the card to the program's memory.
//!
//! Key type: [`Node`], one of two ranks, each with an engine, a stack and a card of its own, on one
//! wire. The runner attaches the cards.
//!
//! Invariant: the time-stamp counter counts instructions where the machine was started so
//! (`clock=instructions`). A turn in which nothing arrived and nothing was sent counts nothing.

use core::net::{Ipv4Addr, SocketAddrV4};

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use kernel_core::cmdline::PeerPath;
use kernel_core::nic::Signal;
use netstack::MAX_DATAGRAM;
use netstack::exchange::wire::DATA_OVERHEAD;
use netstack::exchange::{
    Among, BufferId, Config, Endpoint, Event, Gone, Layout, Memory, Op, PACKET, Part, Scheme, Side,
};
use netstack::ids::{JobId, Rank};
use netstack::time::Micros;
use netstack::wire::key::Key;
use netstack::wire::tag::TagKey;
use smoltcp::wire::Ipv4Cidr;

use super::{Outcome, check};
use crate::drivers::nic::Nic;
use crate::net::{self, Arrival, Stack};
use crate::{arch, console, drivers, time};

const KEY: Key = Key(*b"packets are cost");
/// Packets of each of the two blocks of an exchange, one to each rank.
const PACKETS: u64 = 512;
/// Short messages, one after the other.
const MESSAGES: u32 = 64;
const SHORT: u64 = 8;
/// How often what is measured by itself is repeated.
const TIMES: u64 = 64;
/// For everything: QEMU runs slowly where it counts.
const PATIENCE: Micros = Micros::from_secs(60);
/// Where what is sent stands, and what is received.
const SENT: usize = 0;
const RECEIVED: usize = 1;

/// Memory of a program: two buffers.
struct Buffers([Vec<u8>; 2]);

impl Buffers {
    fn piece(&mut self, buffer: BufferId, offset: u64, length: usize) -> Result<&mut [u8], Gone> {
        let buffer = self.0.get_mut(buffer.0 as usize).ok_or(Gone)?;
        let start = offset as usize;
        buffer.get_mut(start..start + length).ok_or(Gone)
    }
}

impl Memory for Buffers {
    fn read(&mut self, buffer: BufferId, offset: u64, out: &mut [u8]) -> Result<(), Gone> {
        out.copy_from_slice(self.piece(buffer, offset, out.len())?);
        Ok(())
    }

    fn write(&mut self, buffer: BufferId, offset: u64, bytes: &[u8]) -> Result<(), Gone> {
        self.piece(buffer, offset, bytes.len())?
            .copy_from_slice(bytes);
        Ok(())
    }
}

/// Instructions.
#[derive(Clone, Copy, Default)]
struct Counts {
    /// The engine, until a datagram is sealed.
    seal: u64,
    /// The frame, and the card.
    send: u64,
    /// The card, until a frame is known for one of a peer.
    receive: u64,
    /// The engine, from a datagram to the program's memory.
    open: u64,
    /// Datagrams sent.
    datagrams: u64,
}

impl Counts {
    fn all(&self) -> u64 {
        self.seal + self.send + self.receive + self.open
    }
}

struct Node {
    endpoint: Endpoint,
    memory: Buffers,
    stack: Stack,
    address: SocketAddrV4,
    counts: Counts,
    events: Vec<Event>,
}

impl Node {
    fn new(me: u32, card: &'static mut dyn Nic) -> Self {
        let ip = Ipv4Addr::new(10, 118, 0, 1 + me as u8);
        let config = net::Config {
            wants_personality: false,
            address: Some((Ipv4Cidr::new(ip, 16), None)),
            version: "1.2.3",
            boot_epoch: 1,
            peers: PeerPath::Direct,
        };
        let now = time::now();
        let rank = Config {
            job: JobId(1),
            epoch: 0,
            me: Rank(me),
            size: 2,
            key: KEY,
            rate: 0,
            port_buffer: 0,
            leaf: 0,
            scheme: Scheme::Default,
            eager_bytes: 0,
            seed: me.into(),
        };
        let bytes = PACKETS as usize * PACKET;
        Self {
            endpoint: Endpoint::new(rank, now),
            memory: Buffers([vec![1 + me as u8; bytes], vec![0; bytes]]),
            stack: Stack::new(card, &config, now),
            address: SocketAddrV4::new(ip, netstack::NODE_PORT),
            counts: Counts::default(),
            events: Vec::new(),
        }
    }

    /// What a node does in one turn of its main loop.
    fn turn(&mut self, to: SocketAddrV4, mac: [u8; 6]) {
        let now = time::now();
        let (endpoint, memory) = (&mut self.endpoint, &mut self.memory);
        let began = arch::tsc();
        let (mut open, mut arrived) = (0, 0);
        self.stack.poll(now, &mut |arrival| {
            if let Arrival::Peer(datagram) = arrival {
                let began = arch::tsc();
                endpoint.handle_datagram(now, datagram.bytes, memory);
                open += arch::tsc() - began;
                arrived += 1;
            }
        });
        if arrived > 0 {
            self.counts.open += open;
            self.counts.receive += arch::tsc() - began - open;
        }
        let mut buffer = [0; MAX_DATAGRAM];
        while self.stack.can_send_peer() {
            let began = arch::tsc();
            let Some((_, length)) = endpoint.poll_transmit(now, &mut buffer, memory) else {
                break;
            };
            let sealed = arch::tsc();
            self.stack.send_peer(to, mac, &buffer[..length]);
            self.counts.seal += sealed - began;
            self.counts.send += arch::tsc() - sealed;
            self.counts.datagrams += 1;
        }
        while let Some(event) = endpoint.poll_event() {
            self.events.push(event);
        }
    }

    fn post(&mut self, op: Op) -> Outcome {
        let now = time::now();
        let posted = self.endpoint.post(now, op, &mut self.memory);
        posted
            .map(drop)
            .map_err(|error| alloc::format!("{error:?}"))
    }
}

/// Lets both ranks go on until each has so many more events; what that cost both.
fn run(nodes: &mut [Node; 2], events: usize) -> Result<Counts, String> {
    let start = time::now();
    for node in &mut *nodes {
        node.counts = Counts::default();
        node.events.clear();
    }
    while nodes.iter().any(|node| node.events.len() < events) {
        check!(time::now() < start + PATIENCE, "not done in {PATIENCE}");
        for me in 0..2 {
            let other = &nodes[1 - me];
            let (to, mac) = (other.address, other.stack.mac());
            nodes[me].turn(to, mac);
        }
    }
    for node in &*nodes {
        let is_done = |event: &Event| matches!(event, Event::Done { .. });
        check!(node.events.iter().all(is_done), "{:?}", node.events);
    }
    let [one, other] = [nodes[0].counts, nodes[1].counts];
    Ok(Counts {
        seal: one.seal + other.seal,
        send: one.send + other.send,
        receive: one.receive + other.receive,
        open: one.open + other.open,
        datagrams: one.datagrams + other.datagrams,
    })
}

fn exchange(nodes: &mut [Node; 2]) -> Result<Counts, String> {
    // Nothing for itself: that is no packet.
    let bytes = PACKETS * PACKET as u64;
    let block = |me: usize, rank: usize| match me == rank {
        true => Part::default(),
        false => Part { offset: 0, bytes },
    };
    let side = |me: usize, buffer: usize| Side {
        buffer: BufferId(buffer as u64),
        layout: Layout::Parts(vec![block(me, 0), block(me, 1)]),
    };
    for (me, node) in nodes.iter_mut().enumerate() {
        node.memory.0[RECEIVED].fill(0);
        node.post(Op::AllToAll {
            among: Among::all(0),
            send: side(me, SENT),
            receive: side(me, RECEIVED),
        })?;
    }
    let counts = run(nodes, 1)?;
    for (me, node) in nodes.iter().enumerate() {
        let of_other = 2 - me as u8;
        let is_there = node.memory.0[RECEIVED].iter().all(|byte| *byte == of_other);
        check!(is_there, "rank {me} has other bytes");
    }
    Ok(counts)
}

/// Messages from rank 0 to rank 1, each once the one before has come.
fn messages(nodes: &mut [Node; 2]) -> Result<Counts, String> {
    let mut all = Counts::default();
    for tag in 0..MESSAGES {
        let (context, bytes) = (1, SHORT);
        nodes[1].post(Op::Receive {
            from: Some(Rank(0)),
            context,
            tag: Some(tag),
            buffer: BufferId(RECEIVED as u64),
            capacity: bytes,
        })?;
        nodes[0].post(Op::Send {
            to: Rank(1),
            context,
            tag,
            buffer: BufferId(SENT as u64),
            bytes,
            is_synchronous: false,
        })?;
        let counts = run(nodes, 1)?;
        all.seal += counts.seal;
        all.send += counts.send;
        all.receive += counts.receive;
        all.open += counts.open;
        all.datagrams += counts.datagrams;
    }
    Ok(all)
}

/// Instructions of one call.
fn each(mut call: impl FnMut(u64)) -> u64 {
    let began = arch::tsc();
    (0..TIMES).for_each(&mut call);
    (arch::tsc() - began) / TIMES
}

/// Counts, and prints what the benchmark reads.
pub fn cost() -> Outcome {
    let (take, serve) = super::casting::cost()?;
    console::raw(format_args!("packet-cost cast take={take} serve={serve}\n"));
    let page = super::page_cost::cost()?;
    let (take, ask) = (page.take, page.ask);
    console::raw(format_args!("packet-cost page take={take} ask={ask}\n"));
    let mut cards = drivers::start_cards(Signal::Msix);
    check!(cards.len() == 2, "{} cards", cards.len());
    let second = cards.pop().ok_or("no card")?;
    let first = cards.pop().ok_or("no card")?;
    let start = time::now();
    while !(first.has_link() && second.has_link()) {
        check!(time::now() < start + PATIENCE, "no link in {PATIENCE}");
    }
    let mut nodes = [Node::new(0, first), Node::new(1, second)];
    // The first one finds out how long an answer takes.
    exchange(&mut nodes)?;
    let counts = exchange(&mut nodes)?;
    print("exchange", &counts, 2 * PACKETS);
    let total = counts.all() / (2 * PACKETS);
    let counts = messages(&mut nodes)?;
    print("message", &counts, MESSAGES.into());
    for node in &mut nodes {
        node.stack.set_peer_path(PeerPath::Smoltcp);
    }
    let counts = exchange(&mut nodes)?;
    print("exchange-smoltcp", &counts, 2 * PACKETS);
    let counts = messages(&mut nodes)?;
    print("message-smoltcp", &counts, MESSAGES.into());
    let key = TagKey::new(&KEY);
    let (from, mut to) = ([7; MAX_DATAGRAM], [0; MAX_DATAGRAM]);
    let full = &from[..PACKET + DATA_OVERHEAD - 8];
    let tag = each(|number| {
        core::hint::black_box(key.tag(core::hint::black_box(full), number, [1]));
    });
    let short = each(|number| {
        core::hint::black_box(key.tag(core::hint::black_box(&from[..32]), number, [1]));
    });
    let copy = each(|_| {
        core::hint::black_box(&mut to)[..PACKET]
            .copy_from_slice(&core::hint::black_box(&from)[..PACKET]);
    });
    console::raw(format_args!(
        "packet-cost parts tag={tag} tag_of_32={short} copy={copy}\n"
    ));
    check!(2 * tag < total, "a tag of {tag}, and {total} in all");
    Ok(())
}

fn print(case: &str, counts: &Counts, packets: u64) {
    let each = |count: u64| count / packets;
    console::raw(format_args!(
        "packet-cost {case} seal={} send={} receive={} open={} pair={} datagrams={}\n",
        each(counts.seal),
        each(counts.send),
        each(counts.receive),
        each(counts.open),
        each(counts.all()),
        counts.datagrams,
    ));
}
