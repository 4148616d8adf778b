//! Datagrams between nodes, past the stack: which frames are taken for one, and how one leaves.

use alloc::vec;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};

use kernel_core::cmdline::PeerPath;
use netstack::ids::LocalRank;
use netstack::time::Instant;
use smoltcp::wire::Ipv4Cidr;

use super::wire::{CARD_MAC, PEER_MAC, Wire};
use super::{Outcome, check};
use crate::drivers::nic::FRAME_MAX;
use crate::net::frame::UdpFrame;
use crate::net::{self, Arrival, Stack};

const NODE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 117, 1, 1), netstack::NODE_PORT);
const PEER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 117, 1, 2), netstack::NODE_PORT);
const CONTROL: SocketAddrV4 =
    SocketAddrV4::new(Ipv4Addr::new(10, 117, 0, 1), netstack::CONTROL_PORT);
/// A kind that nodes exchange.
const KIND: u8 = 70;
/// Where things stand in a frame.
const IP: usize = 14;
const UDP: usize = IP + 20;
const PAYLOAD: usize = UDP + 8;

struct Bench {
    stack: Stack,
    wire: Wire,
    control: Vec<Vec<u8>>,
    peers: Vec<(SocketAddrV4, Vec<u8>)>,
}

impl Bench {
    fn new(path: PeerPath) -> Self {
        let (wire, card) = Wire::new();
        let config = net::Config {
            wants_personality: false,
            address: Some((Ipv4Cidr::new(*NODE.ip(), 16), None)),
            version: "1.2.3",
            boot_epoch: 1,
            peers: path,
        };
        let mut stack = Stack::new(card, &config, Instant::from_micros(1));
        stack.set_control(CONTROL);
        Self {
            stack,
            wire,
            control: Vec::new(),
            peers: Vec::new(),
        }
    }

    fn poll(&mut self) -> bool {
        let (control, peers) = (&mut self.control, &mut self.peers);
        let now = Instant::from_micros(2);
        self.stack.poll(now, &mut |arrival| match arrival {
            Arrival::Control(datagram) => control.push(datagram.to_vec()),
            Arrival::Peer(arrived) => peers.push((arrived.from, arrived.bytes.to_vec())),
        })
    }
}

/// A datagram of this kind, `length` bytes long.
fn datagram(kind: u8, length: usize) -> Vec<u8> {
    let mut bytes = vec![0xaa; length];
    bytes[..4].copy_from_slice(&[b'H', b'R', 1, kind]);
    bytes
}

/// From the peer to the node.
const HEADERS: UdpFrame = UdpFrame {
    source_mac: PEER_MAC,
    target_mac: CARD_MAC,
    source: PEER,
    target: NODE,
};

fn frame(payload: &[u8]) -> Vec<u8> {
    emitted(&HEADERS, payload)
}

fn emitted(headers: &UdpFrame, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; FRAME_MAX];
    let length = headers.emit_unsummed(payload, &mut frame);
    frame.truncate(length);
    frame
}

/// Datagrams of peers arrive from any address, between those of control, whole and in order; past
/// the stack with a full transmit ring too.
pub fn arrive() -> Outcome {
    arrive_by(PeerPath::Direct)?;
    arrive_by(PeerPath::Smoltcp)
}

fn arrive_by(path: PeerPath) -> Outcome {
    const COUNT: usize = 100;
    let mut bench = Bench::new(path);
    for index in 0..COUNT {
        let kind = 64 + (index % 32) as u8;
        bench.wire.put_frame(&frame(&datagram(kind, 28 + index)));
        // Padded as short frames are.
        let mut short = frame(&datagram(kind, 28));
        short.resize(short.len().max(60), 0);
        bench.wire.put_frame(&short);
        bench.wire.put_udp(CONTROL, NODE, &[index as u8; 100]);
    }
    while bench.poll() {}
    check!(bench.control.len() == COUNT, "{}", bench.control.len());
    check!(bench.peers.len() == 2 * COUNT, "{}", bench.peers.len());
    for (index, pair) in bench.peers.chunks(2).enumerate() {
        let kind = 64 + (index % 32) as u8;
        let expected = [datagram(kind, 28 + index), datagram(kind, 28)];
        for (found, expected) in pair.iter().zip(expected) {
            check!(found.0 == PEER, "from {}", found.0);
            check!(found.1 == expected, "datagram {index} is another");
        }
    }
    if path == PeerPath::Smoltcp {
        return of_ranks(&mut bench);
    }
    bench.wire.set_room(0);
    bench.wire.put_frame(&frame(&datagram(KIND, 1000)));
    bench.poll();
    check!(
        bench.peers.len() == 2 * COUNT + 1,
        "a full transmit ring keeps peers out"
    );
    Ok(())
}

/// Datagrams come to the port of each rank that there is, and only those that are for ranks.
fn of_ranks(bench: &mut Bench) -> Outcome {
    const RANK: u8 = 80;
    bench.stack.set_ranks(3);
    bench.peers.clear();
    let to = |port, kind| {
        let target = SocketAddrV4::new(*NODE.ip(), port);
        emitted(&UdpFrame { target, ..HEADERS }, &datagram(kind, 100))
    };
    let port = |rank| netstack::rank_port(LocalRank(rank));
    for (port, kind) in [(port(2), RANK), (port(2), KIND), (port(3), RANK)] {
        bench.wire.put_frame(&to(port, kind));
    }
    while bench.poll() {}
    check!(
        bench.peers == [(PEER, datagram(RANK, 100))],
        "{} for ranks",
        bench.peers.len()
    );
    let (_, counters) = bench.stack.counters();
    check!(counters.foreign == 1, "{} passed over", counters.foreign);
    Ok(())
}

/// Frames that are not quite a datagram of peers are not taken for one, and none upsets the node.
pub fn hostile() -> Outcome {
    hostile_by(PeerPath::Direct)?;
    hostile_by(PeerPath::Smoltcp)
}

fn hostile_by(path: PeerPath) -> Outcome {
    let good = frame(&datagram(KIND, 200));
    let changes: &[(&str, usize, &[u8])] = &[
        ("ethertype", 12, &[0x86, 0xdd]),
        ("ip version", IP, &[0x65]),
        ("ip options", IP, &[0x46]),
        ("ip length too long", IP + 2, &[0x05, 0xdc]),
        ("ip length too short", IP + 2, &[0, 20]),
        ("more fragments", IP + 6, &[0x20, 0]),
        ("a later fragment", IP + 6, &[0, 1]),
        ("protocol", IP + 9, &[6]),
        ("another's address", IP + 16, &[10, 117, 1, 3]),
        ("everybody's address", IP + 16, &[255; 4]),
        ("another port", UDP + 2, &[0, 53]),
        ("udp length too long", UDP + 4, &[0x05, 0xdc]),
        ("udp length too short", UDP + 4, &[0, 9]),
        ("magic", PAYLOAD, b"XX"),
        ("a kind below", PAYLOAD + 3, &[63]),
        ("a kind above", PAYLOAD + 3, &[112]),
    ];
    for &(what, at, bytes) in changes {
        let mut bench = Bench::new(path);
        let mut bad = good.clone();
        bad[at..at + bytes.len()].copy_from_slice(bytes);
        bench.wire.put_frame(&bad);
        bench.wire.put_frame(&good);
        while bench.poll() {}
        check!(
            bench.peers.len() == 1 && bench.control.is_empty(),
            "{what}: {} of peers, {} of control",
            bench.peers.len(),
            bench.control.len()
        );
    }
    let mut bench = Bench::new(path);
    for length in 1..good.len() {
        bench.wire.put_frame(&good[..length]);
    }
    while bench.poll() {}
    check!(bench.peers.is_empty(), "a frame that was cut");
    Ok(())
}

/// Hardware address of the peer, which nobody asks for.
const MAC: [u8; 6] = [2, 4, 6, 8, 10, 12];

/// A datagram leaves in one frame to the hardware address given, without ARP; with a full ring it
/// is not taken. Past the stack it has no checksum.
pub fn leave() -> Outcome {
    leave_by(PeerPath::Direct)?;
    leave_by(PeerPath::Smoltcp)?;
    of_many_peers()
}

fn leave_by(path: PeerPath) -> Outcome {
    let mut bench = Bench::new(path);
    let payload = datagram(KIND, netstack::MAX_DATAGRAM);
    check!(bench.stack.can_send_peer(), "no room in an empty ring");
    check!(bench.stack.send_peer(PEER, MAC, &payload), "not taken");
    let sent = bench.wire.take_frame().ok_or("nothing was sent")?;
    let headers = UdpFrame {
        source_mac: CARD_MAC,
        target_mac: MAC,
        source: NODE,
        target: PEER,
    };
    let mut expected = vec![0; FRAME_MAX];
    let length = match path {
        PeerPath::Direct => headers.emit_unsummed(&payload, &mut expected),
        PeerPath::Smoltcp => headers.emit(&payload, &mut expected),
    };
    check!(sent == expected[..length], "another frame was sent");
    check!(bench.wire.take_frame().is_none(), "two frames were sent");
    bench.wire.set_room(0);
    check!(!bench.stack.can_send_peer(), "room in a full ring");
    check!(
        path == PeerPath::Smoltcp || !bench.stack.send_peer(PEER, MAC, &payload),
        "a full ring took a datagram"
    );
    Ok(())
}

/// More peers by turns than smoltcp has entries for: it asks for none of them, and each datagram
/// leaves at once. One that changes its hardware address is sent to at the new one.
fn of_many_peers() -> Outcome {
    let mut bench = Bench::new(PeerPath::Smoltcp);
    let payload = datagram(KIND, 100);
    for turn in 0..3 {
        for peer in 0..100 {
            let to = SocketAddrV4::new(Ipv4Addr::new(10, 117, 3, peer), netstack::NODE_PORT);
            let mac = [2, 0, 0, 0, turn, peer];
            check!(bench.stack.can_send_peer(), "turn {turn}, peer {peer}");
            check!(bench.stack.send_peer(to, mac, &payload), "peer {peer}");
            let sent = bench.wire.take_frame().ok_or("nothing was sent")?;
            check!(
                sent[..6] == mac,
                "turn {turn}, peer {peer}: {:?}",
                &sent[..14]
            );
            check!(bench.wire.take_frame().is_none(), "peer {peer}: two frames");
        }
    }
    Ok(())
}
