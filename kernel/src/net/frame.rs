//! A UDP datagram as one Ethernet frame, made without the stack.
//!
//! Key type: [`UdpFrame`]. Neighbours: `agent::last_words`, which cannot use the stack,
//! [`super::Stack::send_peer`], which knows its peers' hardware addresses, and the kernel tests,
//! which play the other end of the wire.

use core::net::SocketAddrV4;

use smoltcp::phy::{Checksum, ChecksumCapabilities};
use smoltcp::wire::{
    EthernetAddress, EthernetFrame, EthernetProtocol, EthernetRepr, IpAddress, IpProtocol,
    Ipv4Packet, Ipv4Repr, UdpPacket, UdpRepr,
};

const TIME_TO_LIVE: u8 = 64;
/// Ethernet, IPv4 and UDP.
const HEADERS_BYTES: usize = 14 + 20 + 8;

/// From where to where a datagram goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpFrame {
    /// Hardware address of the sender.
    pub source_mac: [u8; 6],
    /// Hardware address of the receiver.
    pub target_mac: [u8; 6],
    /// Address and port of the sender.
    pub source: SocketAddrV4,
    /// Address and port of the receiver.
    pub target: SocketAddrV4,
}

impl UdpFrame {
    /// Writes the frame that carries `payload` to the front of `out` and returns its length.
    /// Allocates nothing. Panics when `out` is too short: `drivers::nic::FRAME_MAX` bytes are
    /// enough for a payload of `netstack::MAX_DATAGRAM`.
    pub fn emit(&self, payload: &[u8], out: &mut [u8]) -> usize {
        self.emit_with(payload, out, &ChecksumCapabilities::default())
    }

    /// [`Self::emit`] without the UDP checksum, which IPv4 leaves to the sender: for datagrams that
    /// are sealed or checked against a hash.
    pub fn emit_unsummed(&self, payload: &[u8], out: &mut [u8]) -> usize {
        let mut checksums = ChecksumCapabilities::default();
        checksums.udp = Checksum::None;
        self.emit_with(payload, out, &checksums)
    }

    /// Bytes of the frame that carries `payload` bytes.
    pub const fn length(payload: usize) -> usize {
        HEADERS_BYTES + payload
    }

    fn emit_with(&self, payload: &[u8], out: &mut [u8], checksums: &ChecksumCapabilities) -> usize {
        let udp = UdpRepr {
            src_port: self.source.port(),
            dst_port: self.target.port(),
        };
        let ip = Ipv4Repr {
            src_addr: *self.source.ip(),
            dst_addr: *self.target.ip(),
            next_header: IpProtocol::Udp,
            payload_len: udp.header_len() + payload.len(),
            hop_limit: TIME_TO_LIVE,
        };
        let ethernet = EthernetRepr {
            src_addr: EthernetAddress(self.source_mac),
            dst_addr: EthernetAddress(self.target_mac),
            ethertype: EthernetProtocol::Ipv4,
        };
        let total = ethernet.buffer_len() + ip.buffer_len() + ip.payload_len;
        let mut frame = EthernetFrame::new_unchecked(&mut out[..total]);
        ethernet.emit(&mut frame);
        let mut packet = Ipv4Packet::new_unchecked(frame.payload_mut());
        ip.emit(&mut packet, checksums);
        udp.emit(
            &mut UdpPacket::new_unchecked(packet.payload_mut()),
            &IpAddress::Ipv4(ip.src_addr),
            &IpAddress::Ipv4(ip.dst_addr),
            payload.len(),
            |buffer| buffer.copy_from_slice(payload),
            checksums,
        );
        total
    }
}
