//! Datagrams between nodes, past the stack.
//!
//! Key type: [`PeerDatagram`], a received one in the card's buffer. A broadcast or an exchange
//! moves tens of thousands of datagrams through a node, from and to any other node and control:
//! these are found by a look at fixed places of the frame, and are not copied, not summed and not
//! put through a socket. Who sent one is decided by its contents: sealed with the cluster's peer
//! key, or checked against a hash that is (`netstack::broadcast`, `netstack::exchange`,
//! `netstack::overlay`), so that neither address nor checksum is believed.
//!
//! Neighbours: [`super::Stack`] takes them out before smoltcp sees the frame, `agent::cast`,
//! `exchange` and `agent::overlay` get them.
//!
//! Invariant: a frame that is anything but a whole, unfragmented datagram to this node's port or
//! that of one of its ranks, of a kind that is for that port, is left to the stack.

use core::net::{Ipv4Addr, SocketAddrV4};

use netstack::ids::LocalRank;
use netstack::{broadcast, exchange, overlay};

/// Where things stand in a frame: Ethernet II, an IPv4 header without options, UDP.
const ETHERNET_SOURCE: usize = 6;
const ETHERTYPE: usize = 12;
const IP: usize = 14;
const IP_LENGTH: usize = IP + 2;
const IP_FRAGMENT: usize = IP + 6;
const IP_PROTOCOL: usize = IP + 9;
const IP_SOURCE: usize = IP + 12;
const IP_TARGET: usize = IP + 16;
const UDP: usize = IP + 20;
const UDP_TARGET: usize = UDP + 2;
const UDP_LENGTH: usize = UDP + 4;
const PAYLOAD: usize = UDP + 8;
/// Bytes of the shortest datagram of peers: an envelope of ranks.
const SHORTEST: usize = exchange::wire::OVERHEAD;

const IPV4: [u8; 2] = [8, 0];
/// Version 4, five words of header.
const PLAIN_HEADER: u8 = 0x45;
const PROTOCOL_UDP: u8 = 17;
/// More fragments, and the offset of this one.
const FRAGMENT_MASK: u16 = 0x3fff;

/// A datagram of a kind that nodes exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerDatagram<'a> {
    /// From where it says it comes.
    pub from: SocketAddrV4,
    /// The hardware address that the frame came from: the way back.
    pub mac: [u8; 6],
    /// The rank of this node whose port it came to; the first, where it is for the node.
    pub to: LocalRank,
    /// The datagram.
    pub bytes: &'a [u8],
}

impl<'a> PeerDatagram<'a> {
    /// The datagram in a received frame; `None` when it is not one for peers, or not for `own`.
    pub fn find(frame: &'a [u8], own: Ipv4Addr) -> Option<Self> {
        if frame.len() < PAYLOAD + SHORTEST
            || frame[IP] != PLAIN_HEADER
            || frame[IP_PROTOCOL] != PROTOCOL_UDP
            || frame[ETHERTYPE..IP] != IPV4
            || word(frame, IP_FRAGMENT) & FRAGMENT_MASK != 0
            || frame[IP_TARGET..UDP] != own.octets()
        {
            return None;
        }
        let to = netstack::rank_of_port(word(frame, UDP_TARGET))?;
        if !is_for_peers(&frame[PAYLOAD..], to) {
            return None;
        }
        let end = IP + usize::from(word(frame, IP_LENGTH));
        let whole = end <= frame.len() && end >= PAYLOAD + SHORTEST;
        if !whole || usize::from(word(frame, UDP_LENGTH)) != end - UDP {
            return None;
        }
        let &[a, b, c, d] = frame[IP_SOURCE..].first_chunk()?;
        let mac = *frame[ETHERNET_SOURCE..].first_chunk()?;
        Some(Self {
            mac,
            from: SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), word(frame, UDP)),
            to,
            bytes: &frame[PAYLOAD..end],
        })
    }
}

/// A kind that nodes exchange: between ranks of a job, of a cast, or of the overlay. Only the first
/// comes to the ports of other ranks than the first.
fn is_for_peers(datagram: &[u8], to: LocalRank) -> bool {
    let is_for_nodes = || broadcast::wire::is_cast(datagram) || overlay::wire::is_overlay(datagram);
    exchange::is_exchange(datagram) || to == LocalRank::FIRST && is_for_nodes()
}

fn word(frame: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([frame[at], frame[at + 1]])
}
