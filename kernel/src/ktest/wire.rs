//! A network card whose other end of the wire is the test.
//!
//! Key types: [`FakeCard`], [`Wire`]. Time is an argument of the stack, so the tests that use this
//! run in virtual time and wait for nothing.

use core::net::SocketAddrV4;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use smoltcp::wire::{ArpOperation, ArpPacket, ArpRepr, EthernetRepr, Ipv4Address};
use smoltcp::wire::{EthernetAddress, EthernetFrame, EthernetProtocol, Ipv4Packet, UdpPacket};
use spin::Mutex;

use crate::drivers::nic::{Counters, FRAME_MAX, Nic, Transmit};
use crate::net::frame::UdpFrame;

/// Hardware address of the card.
pub const CARD_MAC: [u8; 6] = [0x52, 0x54, 0, 7, 0, 1];
/// Hardware address of everybody else.
pub const PEER_MAC: [u8; 6] = [0x52, 0x54, 0, 7, 0, 2];
const BROADCAST_MAC: [u8; 6] = [0xff; 6];

/// Frames under way.
struct Frames {
    to_card: VecDeque<Vec<u8>>,
    from_card: VecDeque<Vec<u8>>,
    /// Frames the card takes before it has no room.
    room: usize,
    /// Who is at the other end, if not the test itself.
    peer: Option<Peer>,
}

/// Takes and puts frames each time that the card is asked for any.
type Peer = Box<dyn FnMut(&Wire) + Send>;

/// The test's end of the wire.
#[derive(Clone)]
pub struct Wire(Arc<Mutex<Frames>>);

/// The stack's end of the wire.
pub struct FakeCard {
    wire: Wire,
    received: Vec<u8>,
    half: Half,
}

struct Half(Wire);

/// A UDP datagram the card sent.
pub struct Sent {
    /// Destination port.
    pub port: u16,
    /// Its content.
    pub payload: Vec<u8>,
}

impl Wire {
    /// A wire and the card on it; the card lives for ever, as real ones do.
    pub fn new() -> (Self, &'static mut dyn Nic) {
        let wire = Self(Arc::new(Mutex::new(Frames {
            to_card: VecDeque::new(),
            from_card: VecDeque::new(),
            room: usize::MAX,
            peer: None,
        })));
        let card = FakeCard {
            wire: wire.clone(),
            received: Vec::new(),
            half: Half(wire.clone()),
        };
        (wire, Box::leak(Box::new(card)))
    }

    /// Has somebody answer at the other end.
    pub fn set_peer(&self, peer: Peer) {
        self.0.lock().peer = Some(peer);
    }

    /// Gives who is at the other end a turn.
    fn run_peer(&self) {
        let peer = self.0.lock().peer.take();
        if let Some(mut peer) = peer {
            peer(self);
            self.0.lock().peer = Some(peer);
        }
    }

    /// Lets the card take `room` more frames.
    pub fn set_room(&self, room: usize) {
        self.0.lock().room = room;
    }

    /// Puts a UDP datagram on the wire; to everybody when `target` is the broadcast address.
    pub fn put_udp(&self, source: SocketAddrV4, target: SocketAddrV4, payload: &[u8]) {
        let broadcast = target.ip().is_broadcast();
        let mut frame = vec![0; FRAME_MAX];
        let len = UdpFrame {
            source_mac: PEER_MAC,
            target_mac: if broadcast { BROADCAST_MAC } else { CARD_MAC },
            source,
            target,
        }
        .emit(payload, &mut frame);
        frame.truncate(len);
        self.0.lock().to_card.push_back(frame);
    }

    /// Puts a frame on the wire as it is.
    pub fn put_frame(&self, frame: &[u8]) {
        self.0.lock().to_card.push_back(frame.to_vec());
    }

    /// Frames that the card sent and nobody has taken.
    pub fn sent(&self) -> usize {
        self.0.lock().from_card.len()
    }

    /// Takes the next frame the card sent.
    pub fn take_frame(&self) -> Option<Vec<u8>> {
        self.0.lock().from_card.pop_front()
    }

    /// Takes the next UDP datagram the card sent; answers its ARP requests on the way.
    pub fn take_udp(&self) -> Option<Sent> {
        loop {
            let frame = self.0.lock().from_card.pop_front()?;
            let ethernet = EthernetFrame::new_checked(&frame[..]).ok()?;
            match ethernet.ethertype() {
                EthernetProtocol::Arp => self.answer_arp(ethernet.payload()),
                EthernetProtocol::Ipv4 => {
                    let packet = Ipv4Packet::new_checked(ethernet.payload()).ok()?;
                    let udp = UdpPacket::new_checked(packet.payload()).ok()?;
                    return Some(Sent {
                        port: udp.dst_port(),
                        payload: udp.payload().to_vec(),
                    });
                }
                _ => {}
            }
        }
    }

    /// Says that whatever address was asked for is at [`PEER_MAC`].
    fn answer_arp(&self, request: &[u8]) {
        let request = ArpPacket::new_checked(request).and_then(|packet| ArpRepr::parse(&packet));
        let Ok(ArpRepr::EthernetIpv4 {
            operation: ArpOperation::Request,
            source_hardware_addr,
            source_protocol_addr,
            target_protocol_addr,
            ..
        }) = request
        else {
            return;
        };
        let nobody = Ipv4Address::UNSPECIFIED;
        if source_protocol_addr == nobody || target_protocol_addr == source_protocol_addr {
            return;
        }
        let ethernet = EthernetRepr {
            src_addr: EthernetAddress(PEER_MAC),
            dst_addr: source_hardware_addr,
            ethertype: EthernetProtocol::Arp,
        };
        let arp = ArpRepr::EthernetIpv4 {
            operation: ArpOperation::Reply,
            source_hardware_addr: EthernetAddress(PEER_MAC),
            source_protocol_addr: target_protocol_addr,
            target_hardware_addr: source_hardware_addr,
            target_protocol_addr: source_protocol_addr,
        };
        let mut frame = vec![0; ethernet.buffer_len() + arp.buffer_len()];
        let mut view = EthernetFrame::new_unchecked(&mut frame[..]);
        ethernet.emit(&mut view);
        arp.emit(&mut ArpPacket::new_unchecked(view.payload_mut()));
        self.0.lock().to_card.push_back(frame);
    }
}

impl Nic for FakeCard {
    fn mac(&self) -> [u8; 6] {
        CARD_MAC
    }

    fn look(&mut self) -> Option<&[u8]> {
        self.wire.run_peer();
        self.received = self.wire.0.lock().to_card.front()?.clone();
        Some(&self.received)
    }

    fn pass(&mut self) {
        self.wire.0.lock().to_card.pop_front();
    }

    fn receive(&mut self) -> Option<(&[u8], &mut dyn Transmit)> {
        self.received = Vec::new();
        self.wire.run_peer();
        let mut frames = self.wire.0.lock();
        if frames.room == 0 {
            return None;
        }
        self.received = frames.to_card.pop_front()?;
        Some((&self.received, &mut self.half))
    }

    fn transmit(&mut self) -> Option<&mut dyn Transmit> {
        if self.wire.0.lock().room == 0 {
            return None;
        }
        Some(&mut self.half)
    }

    fn has_received(&mut self) -> bool {
        self.wire.run_peer();
        !self.wire.0.lock().to_card.is_empty()
    }

    fn set_interrupts(&mut self, _on: bool) {}

    fn interrupts(&self) -> bool {
        true
    }

    fn has_link(&self) -> bool {
        true
    }

    fn quiesce(&mut self) {}

    fn counters(&self) -> Counters {
        Counters::default()
    }
}

impl Transmit for Half {
    fn send(&mut self, len: usize, fill: &mut dyn FnMut(&mut [u8])) {
        let mut frame = vec![0; len];
        fill(&mut frame);
        let mut frames = self.0.0.lock();
        frames.room = frames.room.checked_sub(1).expect("room was made sure of");
        frames.from_card.push_back(frame);
    }
}
