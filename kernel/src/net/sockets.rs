//! Datagrams between nodes through smoltcp's UDP sockets (`hearth.net=smoltcp`).
//!
//! Key type: [`PeerSockets`]: one socket for each rank of the node. That of the first rank only
//! sends, since the stack's own socket has its port and gets what comes there.
//!
//! smoltcp asks for a hardware address that it does not know, for one peer a second, and what waits
//! for it keeps the rest of its socket's queue from leaving. But the connection table has the
//! hardware addresses: the stack is told each by an ARP reply before the first datagram to its peer
//! ([`PeerSockets::introduces`]), so that it never asks.
//!
//! Neighbours: [`super::Stack`] owns them; [`super::peer`] is the way past the stack.
//!
//! Invariant: no peer that is gone keeps datagrams to others from leaving for longer than
//! [`STUCK`].

use core::net::{Ipv4Addr, SocketAddrV4};

use alloc::vec::Vec;

use netstack::RANKS_PER_NODE_MAX;
use netstack::ids::LocalRank;
use netstack::time::{Instant, Micros};
use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::udp;
use smoltcp::wire::{
    ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetFrame, EthernetProtocol,
    EthernetRepr, IpAddress,
};

use super::Arrival;
use super::peer::PeerDatagram;

/// Datagrams that a rank's socket holds: a few, since each is handed to the card at once.
const QUEUE: usize = 4;
/// A socket that takes nothing for so long is emptied: what was in it counts as lost.
const STUCK: Micros = Micros::from_secs(1);
/// Peers that the stack is told of at a time: of the 64 entries of its cache, the others are for
/// whom it finds by itself.
const INTRODUCED: usize = 48;
/// smoltcp forgets an entry after 60 seconds.
const INTRODUCED_FOR: Micros = Micros::from_secs(30);
/// Bytes of an ARP message in its frame.
pub const ARP_BYTES: usize = 14 + 28;

/// A peer that the stack was told of, and until when that counts.
struct Introduced {
    address: Ipv4Addr,
    mac: [u8; 6],
    until: Instant,
}

/// See the module.
pub struct PeerSockets {
    /// By local rank.
    handles: Vec<SocketHandle>,
    /// The oldest at `oldest` once there are [`INTRODUCED`].
    introduced: Vec<Introduced>,
    oldest: usize,
    /// Since when one of them takes nothing.
    full_since: Option<Instant>,
}

impl PeerSockets {
    /// That of the first rank.
    pub fn new(sockets: &mut SocketSet<'static>) -> Self {
        let mut this = Self {
            handles: Vec::new(),
            introduced: Vec::new(),
            oldest: 0,
            full_since: None,
        };
        this.make_room(sockets, 1);
        this
    }

    /// Sees to it that so many ranks have one.
    pub fn make_room(&mut self, sockets: &mut SocketSet<'static>, ranks: u16) {
        for rank in self.handles.len() as u16..ranks.min(RANKS_PER_NODE_MAX) {
            self.handles.push(sockets.add(socket(LocalRank(rank))));
        }
    }

    /// The sockets, each with its rank.
    pub fn handles(&self) -> impl Iterator<Item = (LocalRank, SocketHandle)> {
        (0..).map(LocalRank).zip(self.handles.iter().copied())
    }

    /// Whether every one of them takes a datagram. Those that have taken none for [`STUCK`] are
    /// emptied.
    pub fn can_send(&mut self, sockets: &mut SocketSet<'static>, now: Instant) -> bool {
        let is_full = |handle: &SocketHandle| !sockets.get_mut::<udp::Socket>(*handle).can_send();
        if !self.handles.iter().any(is_full) {
            self.full_since = None;
            return true;
        }
        let since = *self.full_since.get_or_insert(now);
        if now < since + STUCK {
            return false;
        }
        self.clear(sockets);
        true
    }

    /// What a socket got from a peer.
    pub fn arrival<'a>(
        to: LocalRank,
        mac: [u8; 6],
        meta: &udp::UdpMetadata,
        bytes: &'a [u8],
    ) -> Arrival<'a> {
        let IpAddress::Ipv4(address) = meta.endpoint.addr;
        Arrival::Peer(PeerDatagram {
            from: SocketAddrV4::new(address, meta.endpoint.port),
            mac,
            to,
            bytes,
        })
    }

    /// Queues a datagram of a rank; false, and it is dropped, where there is no room.
    pub fn send(
        &self,
        sockets: &mut SocketSet<'static>,
        rank: LocalRank,
        to: SocketAddrV4,
        datagram: &[u8],
    ) -> bool {
        let Some(handle) = self.handles.get(rank.index()) else {
            return false;
        };
        let to = (IpAddress::Ipv4(*to.ip()), to.port());
        let socket = sockets.get_mut::<udp::Socket>(*handle);
        socket.send_slice(datagram, to).is_ok()
    }

    /// Empties all queues: what is in them is lost.
    pub fn clear(&mut self, sockets: &mut SocketSet<'static>) {
        for (rank, handle) in self.handles() {
            *sockets.get_mut::<udp::Socket>(handle) = socket(rank);
        }
        self.full_since = None;
    }

    /// The stack has forgotten where anybody is.
    pub fn forget(&mut self) {
        self.introduced.clear();
        self.oldest = 0;
    }

    /// Whether the stack has to be told where a peer is, which the caller does then.
    pub fn introduces(&mut self, address: Ipv4Addr, mac: [u8; 6], now: Instant) -> bool {
        let known = |one: &&mut Introduced| one.address == address;
        let until = now + INTRODUCED_FOR;
        let new = Introduced {
            address,
            mac,
            until,
        };
        if let Some(one) = self.introduced.iter_mut().find(known) {
            let holds = one.mac == mac && now < one.until;
            if !holds {
                *one = new;
            }
            return !holds;
        }
        if self.introduced.len() < INTRODUCED {
            self.introduced.push(new);
        } else {
            self.introduced[self.oldest] = new;
            self.oldest = (self.oldest + 1) % INTRODUCED;
        }
        true
    }
}

/// The socket of a rank.
fn socket(rank: LocalRank) -> udp::Socket<'static> {
    let receives = match rank {
        LocalRank::FIRST => 0,
        _ => super::RECEIVE_QUEUE,
    };
    let mut socket = udp::Socket::new(super::packet_buffer(receives), super::packet_buffer(QUEUE));
    socket
        .bind(netstack::rank_port(rank))
        .expect("a fresh socket binds to a port other than 0");
    socket
}

/// The frame that says to `own` where `peer` is.
pub fn arp_reply(peer: (Ipv4Addr, [u8; 6]), own: (Ipv4Addr, [u8; 6])) -> [u8; ARP_BYTES] {
    let mut bytes = [0; ARP_BYTES];
    let mut frame = EthernetFrame::new_unchecked(&mut bytes[..]);
    EthernetRepr {
        src_addr: EthernetAddress(peer.1),
        dst_addr: EthernetAddress(own.1),
        ethertype: EthernetProtocol::Arp,
    }
    .emit(&mut frame);
    ArpRepr::EthernetIpv4 {
        operation: ArpOperation::Reply,
        source_hardware_addr: EthernetAddress(peer.1),
        source_protocol_addr: peer.0,
        target_hardware_addr: EthernetAddress(own.1),
        target_protocol_addr: own.0,
    }
    .emit(&mut ArpPacket::new_unchecked(frame.payload_mut()));
    bytes
}
