//! Datagrams between nodes, past the stack (`hearth.net=direct`).
//!
//! Key type: [`PeerDatagram`], a received one in the card's buffer. A broadcast or an exchange
//! moves tens of thousands of datagrams through a node, from and to any other node and control:
//! these are found by their headers, which `smoltcp::wire` reads, and are not copied, not summed
//! and not put through a socket. Who sent one is decided by its contents, so that neither address
//! nor checksum is believed: casts and the overlay are sealed with keys that follow from the
//! cluster's peer key, exchanges with that of the job (`netstack::broadcast`, `netstack::overlay`,
//! `netstack::exchange`). Data of casts is checked against a hash that was sealed.
//!
//! Neighbours: [`super::Stack`] takes them out before smoltcp sees the frame, `agent::cast`,
//! `exchange` and `agent::overlay` get them; [`super::sockets`] is the other way.
//!
//! Invariant: a frame that is anything but a whole, unfragmented datagram to this node's port or
//! that of one of its ranks, of a kind that is for that port, is left to the stack.

use core::net::{Ipv4Addr, SocketAddrV4};

use netstack::ids::LocalRank;
use netstack::{broadcast, exchange, overlay};
use smoltcp::wire::{EthernetFrame, EthernetProtocol, IpProtocol, Ipv4Packet, UdpPacket};

/// Bytes of the shortest datagram of peers: an envelope of ranks.
const SHORTEST: usize = exchange::wire::OVERHEAD;

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
        let frame = EthernetFrame::new_checked(frame).ok()?;
        if frame.ethertype() != EthernetProtocol::Ipv4 {
            return None;
        }
        let packet = Ipv4Packet::new_checked(frame.payload()).ok()?;
        let is_whole = !packet.more_frags() && packet.frag_offset() == 0;
        if packet.version() != 4
            || packet.next_header() != IpProtocol::Udp
            || packet.dst_addr() != own
            || !is_whole
        {
            return None;
        }
        let datagram = UdpPacket::new_checked(packet.payload()).ok()?;
        // A length that leaves some of the packet out is a sign of neither.
        if usize::from(datagram.len()) != packet.payload().len() {
            return None;
        }
        let to = netstack::rank_of_port(datagram.dst_port())?;
        let bytes = datagram.payload();
        is_for_peers(bytes, to).then(|| Self {
            from: SocketAddrV4::new(packet.src_addr(), datagram.src_port()),
            mac: frame.src_addr().0,
            to,
            bytes,
        })
    }
}

/// A kind that nodes exchange: between ranks of a job, of a cast, or of the overlay. Only the first
/// comes to the ports of other ranks than the first.
pub fn is_for_peers(datagram: &[u8], to: LocalRank) -> bool {
    let is_for_nodes = || broadcast::wire::is_cast(datagram) || overlay::wire::is_overlay(datagram);
    datagram.len() >= SHORTEST
        && (exchange::is_exchange(datagram) || to == LocalRank::FIRST && is_for_nodes())
}
