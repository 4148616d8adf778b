//! The node's network: Ethernet, ARP, IPv4, DHCP, one UDP socket to the control node, and the
//! datagrams of other nodes beside it.
//!
//! Key types: [`Stack`], everything between the card and datagrams; [`Config`], what is known
//! before the first packet; [`Event`], what the agent must hear of. smoltcp does the protocols, but
//! for what peers send: that goes past it ([`peer`]) or through its sockets ([`sockets`]).
//! Neighbours: `drivers::nic` below, `agent` above, `arch::idle` for waiting.
//!
//! Invariant: the card interrupts only inside [`Stack::wait`] and between two calls of
//! [`Stack::listen`]; elsewhere frames pile up in its ring until somebody polls, and traffic costs
//! a computing program nothing.

pub mod cards;
mod device;
mod dhcp;
pub mod frame;
pub mod peer;
mod proxy;
mod sockets;
mod strangers;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec;
use core::net::SocketAddrV4;

use kernel_core::cmdline::PeerPath;
use netstack::ids::LocalRank;
use netstack::personality::Personality;
use netstack::time::{Instant, Micros};
use smoltcp::iface::{
    self, Interface, PollIngressSingleResult, PollResult, SocketHandle, SocketSet,
};
use smoltcp::socket::udp;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpAddress, IpCidr, Ipv4Address, Ipv4Cidr};

use self::cards::Cards;
use self::device::CardDevice;
use self::frame::UdpFrame;
use self::peer::{PeerDatagram, is_for_peers};
use self::sockets::PeerSockets;
use crate::arch;
use crate::drivers::nic;

/// Frames taken from the card before what they caused is sent: one from each of 32 children in the
/// fan-out tree. More at once would delay answers, fewer would cost a pass over the sockets each.
pub const RECEIVE_BURST: usize = 32;
/// Datagrams that wait for the card or for the control node's hardware address: one to each of 32
/// children, which also covers a node's own windows (8 I/O calls, 8 page requests, heartbeat).
const SEND_QUEUE: usize = 32;
/// Datagrams the UDP socket holds: it is emptied after every frame, so one would do.
const RECEIVE_QUEUE: usize = 2;
/// Longest sleep of a node whose card cannot interrupt; keeps such a node usable.
const POLL_INTERVAL: Micros = Micros::from_millis(2);
/// Wait before looking again at a full transmit ring.
pub const TRANSMIT_RETRY: Micros = Micros::from_millis(1);
/// Sockets: UDP, DHCP, and one to ask a boot service beside another DHCP server.
const SOCKETS: usize = 3;

// The neighbour cache is sized by a feature of smoltcp (kernel/Cargo.toml): 64 entries hold 32
// children, the parent, the control node, the router and as many strangers again.
const _: () = assert!(smoltcp::config::IFACE_NEIGHBOR_CACHE_COUNT >= 2 * 32);

/// What the stack is told at the start.
#[derive(Debug, Clone)]
pub struct Config {
    /// Address and router from the command line; `None` asks DHCP.
    pub address: Option<(Ipv4Cidr, Option<Ipv4Address>)>,
    /// Whether the personality must come by DHCP; false when it is on the command line.
    pub wants_personality: bool,
    /// Version of the image, for the vendor class.
    pub version: &'static str,
    /// This boot's random number.
    pub boot_epoch: u64,
    /// How datagrams of peers come and go.
    pub peers: PeerPath,
}

/// What the agent must hear of.
#[derive(Debug)]
pub enum Event {
    /// The node has an address now; also after a renewal that changed address or router.
    Address(Ipv4Cidr),
    /// The personality came with a lease.
    Personality(Box<Personality>),
    /// The address is gone; datagrams cannot be sent until the next [`Event::Address`].
    AddressLost,
}

/// A datagram that has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival<'a> {
    /// From the control node's address, or the I/O service's.
    Control(&'a [u8]),
    /// Of a kind that nodes exchange, from anybody.
    Peer(PeerDatagram<'a>),
}

/// Datagrams that were not passed on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// From another address than the control node's.
    pub foreign: u64,
}

/// The node's network stack on the card in use.
pub struct Stack {
    device: CardDevice,
    interface: Interface,
    sockets: SocketSet<'static>,
    udp: SocketHandle,
    /// Through which datagrams of peers go; `None`: past the stack.
    peers: Option<PeerSockets>,
    /// Time of the last poll.
    polled: Instant,
    dhcp: Option<dhcp::Client>,
    control: Option<SocketAddrV4>,
    /// Another address from which datagrams are accepted: the I/O service's.
    service: Option<SocketAddrV4>,
    control_mac: Option<[u8; 6]>,
    address: Option<(Ipv4Cidr, Option<Ipv4Address>)>,
    events: VecDeque<Event>,
    counters: Counters,
    /// The card may interrupt, for a halt.
    waits: bool,
}

impl Stack {
    /// Brings the interface up on one of `cards`. With a fixed address the node can send at once,
    /// otherwise DHCP starts with the first [`Self::poll`].
    pub fn new(cards: impl Into<Cards>, config: &Config, now: Instant) -> Self {
        let mut device = CardDevice::new(cards.into());
        let mut settings = iface::Config::new(hardware_address(&device));
        settings.random_seed = config.boot_epoch;
        let interface = Interface::new(settings, &mut device, instant(now));
        let mut sockets = SocketSet::new(alloc::vec::Vec::with_capacity(SOCKETS));
        let udp = sockets.add(control_socket());
        let asks = config.address.is_none();
        let mac = device.card().mac();
        let dhcp = asks.then(|| dhcp::Client::new(&mut sockets, mac, config, now));
        let mut this = Self {
            waits: false,
            device,
            interface,
            sockets,
            udp,
            peers: None,
            polled: now,
            dhcp,
            control: None,
            service: None,
            control_mac: None,
            address: None,
            events: VecDeque::new(),
            counters: Counters::default(),
        };
        this.set_peer_path(config.peers);
        if let Some((address, router)) = config.address {
            this.set_address(address, router);
        }
        this
    }

    /// Has datagrams of peers come and go another way.
    pub fn set_peer_path(&mut self, path: PeerPath) {
        for (_, handle) in self.peers.iter().flat_map(PeerSockets::handles) {
            self.sockets.remove(handle);
        }
        self.peers = match path {
            PeerPath::Direct => None,
            PeerPath::Smoltcp => {
                info!("net", "datagrams of peers go through sockets");
                Some(PeerSockets::new(&mut self.sockets))
            }
        };
    }

    /// So many ranks of this node have datagrams of their own.
    pub fn set_ranks(&mut self, ranks: u16) {
        if let Some(peers) = &mut self.peers {
            peers.make_room(&mut self.sockets, ranks);
        }
    }

    /// The card's hardware address.
    pub fn mac(&self) -> [u8; 6] {
        self.device.card().mac()
    }

    /// The node's address, while it has one.
    pub fn address(&self) -> Option<Ipv4Cidr> {
        self.address.map(|(address, _)| address)
    }

    /// Hardware address from which the control node's last datagram came.
    pub fn control_mac(&self) -> Option<[u8; 6]> {
        self.control_mac
    }

    /// Traffic of the card, and datagrams not passed on.
    pub fn counters(&self) -> (nic::Counters, Counters) {
        (self.device.card().counters(), self.counters)
    }

    /// Where datagrams go.
    pub fn control(&self) -> Option<SocketAddrV4> {
        self.control
    }

    /// Sets where datagrams go and from where they are accepted.
    pub fn set_control(&mut self, control: SocketAddrV4) {
        self.control = Some(control);
    }

    /// Sets from where datagrams are accepted beside the control node's address.
    pub fn set_service(&mut self, service: Option<SocketAddrV4>) {
        self.service = service;
    }

    /// What happened since the last call; to be asked until `None` after each poll.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Takes up to [`RECEIVE_BURST`] frames from the card, gives their datagrams to `deliver`, and
    /// sends what is due. Returns whether the burst was used up, so that more frames may wait.
    pub fn poll(&mut self, now: Instant, deliver: &mut dyn FnMut(Arrival<'_>)) -> bool {
        self.polled = now;
        self.choose_card(now);
        if let Some(dhcp) = &mut self.dhcp {
            dhcp.prepare(&mut self.sockets, self.device.card(), now);
        }
        let mut taken = 0;
        while taken < RECEIVE_BURST {
            if self.take_peer(deliver) {
                taken += 1;
                continue;
            }
            let result = self.interface.poll_ingress_single(
                instant(now),
                &mut self.device,
                &mut self.sockets,
            );
            if matches!(result, PollIngressSingleResult::None) {
                break;
            }
            taken += 1;
            // After every frame, so that neither socket has to hold more than one.
            self.deliver(deliver);
            self.poll_dhcp(now);
        }
        self.flush(now);
        self.poll_dhcp(now);
        self.interface.poll_maintenance(instant(now));
        taken == RECEIVE_BURST
    }

    /// Whether [`Self::send`] takes a datagram now.
    pub fn can_send(&self) -> bool {
        self.address.is_some()
            && self.control.is_some()
            && self.sockets.get::<udp::Socket>(self.udp).can_send()
    }

    /// Queues a datagram to the control node; [`Self::flush`] or the next poll sends it. Returns
    /// false, and drops it, unless [`Self::can_send`].
    pub fn send(&mut self, datagram: &[u8]) -> bool {
        self.control
            .is_some_and(|control| self.send_to(control, datagram))
    }

    /// The same for a datagram to somebody else.
    pub fn send_to(&mut self, to: SocketAddrV4, datagram: &[u8]) -> bool {
        if self.address.is_none() {
            return false;
        }
        let to = (IpAddress::Ipv4(*to.ip()), to.port());
        let socket = self.sockets.get_mut::<udp::Socket>(self.udp);
        socket.send_slice(datagram, to).is_ok()
    }

    /// Whether [`Self::send_peer`] takes a datagram now: the card's ring has room.
    pub fn can_send_peer(&mut self) -> bool {
        self.address.is_some()
            && self.device.card_mut().transmit().is_some()
            && (self.peers.as_mut())
                .is_none_or(|peers| peers.can_send(&mut self.sockets, self.polled))
    }

    /// Hands the card a datagram to a node whose hardware address is known: past the stack without
    /// ARP, queue and checksum. Returns false, and drops it, unless [`Self::can_send_peer`].
    pub fn send_peer(&mut self, to: SocketAddrV4, mac: [u8; 6], datagram: &[u8]) -> bool {
        self.send_peer_as(LocalRank::FIRST, to, mac, datagram)
    }

    /// The same from a rank's own port.
    pub fn send_peer_as(
        &mut self,
        rank: LocalRank,
        to: SocketAddrV4,
        mac: [u8; 6],
        datagram: &[u8],
    ) -> bool {
        let Some((own, _)) = self.address else {
            return false;
        };
        if self.peers.is_some() {
            return self.send_by_socket(rank, (to, mac), own, datagram);
        }
        let frame = UdpFrame {
            source_mac: self.mac(),
            target_mac: mac,
            source: SocketAddrV4::new(own.address(), netstack::rank_port(rank)),
            target: to,
        };
        let Some(room) = self.device.card_mut().transmit() else {
            return false;
        };
        room.send(UdpFrame::length(datagram.len()), &mut |buffer| {
            frame.emit_unsummed(datagram, buffer);
        });
        true
    }

    /// The same through the rank's socket. The stack is told the hardware address, unless it finds
    /// that of a router by itself.
    fn send_by_socket(
        &mut self,
        rank: LocalRank,
        (to, mac): (SocketAddrV4, [u8; 6]),
        own: Ipv4Cidr,
        datagram: &[u8],
    ) -> bool {
        let now = self.polled;
        let Some(peers) = &mut self.peers else {
            return false;
        };
        if own.contains_addr(to.ip()) && peers.introduces(*to.ip(), mac, now) {
            let own_mac = self.device.card().mac();
            self.device.tell(sockets::arp_reply(
                (*to.ip(), mac),
                (own.address(), own_mac),
            ));
            self.interface
                .poll_ingress_single(instant(now), &mut self.device, &mut self.sockets);
        }
        let taken = peers.send(&mut self.sockets, rank, to, datagram);
        self.flush(now);
        taken
    }

    /// Lets the card interrupt from now on, or not: around the time that a program computes while
    /// the node has something to pass on. Returns whether a frame waits already, for which no
    /// interrupt comes.
    pub fn listen(&mut self, on: bool) -> bool {
        let card = self.device.card_mut();
        card.set_interrupts(on);
        on && card.has_received()
    }

    /// Moves queued datagrams to the card.
    pub fn flush(&mut self, now: Instant) {
        // Each pass sends at most one packet a socket; the bound is all they can hold.
        for _ in 0..SEND_QUEUE + SOCKETS {
            let result =
                self.interface
                    .poll_egress(instant(now), &mut self.device, &mut self.sockets);
            if matches!(result, PollResult::None) {
                break;
            }
        }
    }

    /// Whether [`Self::scrub`] does something: no datagram waits to be sent.
    pub fn can_scrub(&self) -> bool {
        let waits = |handle: SocketHandle| self.sockets.get::<udp::Socket>(handle).send_queue() > 0;
        let peers = self.peers.iter().flat_map(PeerSockets::handles);
        !waits(self.udp) && !peers.into_iter().any(|(_, handle)| waits(handle))
    }

    /// Clears what datagrams of the control node, and those to it, have left in their queues.
    /// Returns false, and does nothing, while one waits to be sent.
    pub fn scrub(&mut self) -> bool {
        if !self.can_scrub() {
            return false;
        }
        let socket = self.sockets.get_mut::<udp::Socket>(self.udp);
        // The old buffers go first: the heap clears them, and has room for new ones then.
        *socket = udp::Socket::new(packet_buffer(0), packet_buffer(0));
        *socket = control_socket();
        if let Some(peers) = &mut self.peers {
            peers.clear(&mut self.sockets);
        }
        true
    }

    /// Whether the card in use leads nowhere so far: to no lease or, with a fixed address, not to
    /// the control node.
    fn is_lost(&self) -> bool {
        match &self.dhcp {
            Some(_) => self.address.is_none(),
            None => self.control_mac.is_none(),
        }
    }

    /// Goes on with another card when the one in use has led nowhere for its turn.
    fn choose_card(&mut self, now: Instant) {
        if !self.is_lost() || !self.device.cards_mut().next(now) {
            return;
        }
        let address = hardware_address(&self.device);
        warn!(
            "net",
            "nobody answered; trying the card with address {address}"
        );
        self.interface.set_hardware_addr(address);
        // What was found out about others is forgotten with it.
        self.interface.update_ip_addrs(|_| {});
        self.forget_peers();
        if let Some(dhcp) = &mut self.dhcp {
            dhcp.start_over(&mut self.sockets, now);
        }
    }

    /// Stops the cards for good.
    pub fn quiesce(&mut self) {
        self.device.cards_mut().quiesce();
    }

    /// When [`Self::poll`] is due next without a frame arriving; `None` for never.
    pub fn next_deadline(&mut self, now: Instant) -> Option<Instant> {
        let stack = self
            .interface
            .poll_at(instant(now), &self.sockets)
            .map(|at| Instant::from_micros(at.total_micros().max(0) as u64))
            // What is due now was just tried: the transmit ring is full.
            .map(|at| if at <= now { now + TRANSMIT_RETRY } else { at });
        let dhcp = self.dhcp.as_ref().and_then(dhcp::Client::deadline);
        let card = self.device.cards().deadline().filter(|_| self.is_lost());
        [stack, dhcp, card].into_iter().flatten().min()
    }

    /// Has the card interrupt, for who is going to halt until `deadline`: until when that may be.
    /// At once when a frame waits already.
    pub fn begin_wait(&mut self, now: Instant, deadline: Instant) -> Instant {
        let card = self.device.card_mut();
        let deadline = if card.interrupts() {
            deadline
        } else {
            deadline.min(now + POLL_INTERVAL)
        };
        card.set_interrupts(true);
        self.waits = true;
        match card.has_received() {
            true => now,
            false => deadline,
        }
    }

    /// The halt is over: the card is silent.
    pub fn end_wait(&mut self) {
        if core::mem::take(&mut self.waits) {
            self.device.card_mut().set_interrupts(false);
            arch::idle::absorb();
        }
    }

    /// Delivers the next frame if it is a datagram of a peer.
    fn take_peer(&mut self, deliver: &mut dyn FnMut(Arrival<'_>)) -> bool {
        let Some((own, _)) = self.address.filter(|_| self.peers.is_none()) else {
            return false;
        };
        let Some(found) = self.device.look_for_peer(own.address()) else {
            return false;
        };
        deliver(Arrival::Peer(found));
        self.device.pass();
        true
    }

    fn deliver(&mut self, deliver: &mut dyn FnMut(Arrival<'_>)) {
        let mac = self.device.source();
        let socket = self.sockets.get_mut::<udp::Socket>(self.udp);
        while let Ok((datagram, meta)) = socket.recv() {
            let IpAddress::Ipv4(from) = meta.endpoint.addr;
            if self.peers.is_some() && is_for_peers(datagram, LocalRank::FIRST) {
                deliver(PeerSockets::arrival(LocalRank::FIRST, mac, &meta, datagram));
            } else if self.control.is_some_and(|control| *control.ip() == from) {
                self.control_mac = Some(mac);
                deliver(Arrival::Control(datagram));
            } else if self.service.is_some_and(|service| *service.ip() == from) {
                deliver(Arrival::Control(datagram));
            } else {
                self.counters.foreign += 1;
            }
        }
        for (rank, handle) in self.peers.iter().flat_map(PeerSockets::handles).skip(1) {
            let socket = self.sockets.get_mut::<udp::Socket>(handle);
            while let Ok((datagram, meta)) = socket.recv() {
                match is_for_peers(datagram, rank) {
                    true => deliver(PeerSockets::arrival(rank, mac, &meta, datagram)),
                    false => self.counters.foreign += 1,
                }
            }
        }
    }

    fn poll_dhcp(&mut self, now: Instant) {
        while let Some(dhcp) = &mut self.dhcp
            && let Some(event) = dhcp.event(&mut self.sockets, now)
        {
            self.take_lease(event, now);
        }
    }

    fn take_lease(&mut self, event: dhcp::Event, now: Instant) {
        match event {
            dhcp::Event::Leased(lease, personality) => {
                if self.address() != Some(lease.address) {
                    info!("net", "address {} from {}", lease.address, lease.server);
                }
                if self.set_address(lease.address, lease.router) {
                    self.device.cards_mut().renew(now);
                }
                if let Some(personality) = personality {
                    self.events
                        .push_back(Event::Personality(Box::new(personality)));
                }
            }
            dhcp::Event::Stranger(server) => self.device.ignore_dhcp(server, now),
            dhcp::Event::Lost => {
                self.interface
                    .update_ip_addrs(|addresses| addresses.clear());
                self.forget_peers();
                self.interface.routes_mut().remove_default_ipv4_route();
                self.address = None;
                self.device.cards_mut().renew(now);
                self.events.push_back(Event::AddressLost);
            }
        }
    }

    /// With its own address the stack has forgotten those of others.
    fn forget_peers(&mut self) {
        if let Some(peers) = &mut self.peers {
            peers.forget();
        }
    }

    /// Uses an address; whether it is another one than before.
    fn set_address(&mut self, address: Ipv4Cidr, router: Option<Ipv4Address>) -> bool {
        // A renewal that changes nothing must not empty the neighbour cache.
        if self.address.replace((address, router)) == Some((address, router)) {
            return false;
        }
        self.interface.update_ip_addrs(|addresses| {
            addresses.clear();
            addresses
                .push(IpCidr::Ipv4(address))
                .expect("the address list was just cleared");
        });
        self.forget_peers();
        let routes = self.interface.routes_mut();
        routes.remove_default_ipv4_route();
        if let Some(router) = router {
            routes
                .add_default_ipv4_route(router)
                .expect("the default route was just removed");
        }
        self.events.push_back(Event::Address(address));
        true
    }
}

/// The address of the card in use.
fn hardware_address(device: &CardDevice) -> HardwareAddress {
    HardwareAddress::Ethernet(EthernetAddress(device.card().mac()))
}

/// The socket for datagrams of the control node.
fn control_socket() -> udp::Socket<'static> {
    let mut socket = udp::Socket::new(packet_buffer(RECEIVE_QUEUE), packet_buffer(SEND_QUEUE));
    socket
        .bind(netstack::NODE_PORT)
        .expect("a fresh socket binds to a port other than 0");
    socket
}

fn packet_buffer(datagrams: usize) -> udp::PacketBuffer<'static> {
    udp::PacketBuffer::new(
        vec![udp::PacketMetadata::EMPTY; datagrams],
        vec![0; datagrams * netstack::MAX_DATAGRAM],
    )
}

fn instant(now: Instant) -> smoltcp::time::Instant {
    smoltcp::time::Instant::from_micros(now.as_micros() as i64)
}
