//! DHCP servers that are not the boot service, and how a node stops listening to them.
//!
//! Key type: [`Strangers`]. A second DHCP server on the boot network is the classic reason why a
//! machine does not come up: the first offer wins, whoever makes it. A server that gave a lease
//! without personality, and has no boot service beside it, is not listened to for a while, so that
//! the boot service's offer gets its turn. Neighbours: `dhcp` finds strangers out, `device` drops
//! what they send.
//!
//! Invariant: a server is forgiven after [`IGNORED_FOR`]; a mistake cannot keep a node out for
//! ever.

use core::net::Ipv4Addr;

use alloc::vec::Vec;

use netstack::time::{Instant, Micros};
use smoltcp::wire::{EthernetFrame, EthernetProtocol, IpProtocol, Ipv4Packet, UdpPacket};

/// How long a stranger is not listened to: as long as a node waits between two requests at most. It
/// may be the site's server, with a boot service beside it that is away for a moment.
const IGNORED_FOR: Micros = Micros::from_secs(30);
/// Strangers remembered; the oldest gives way. More than a few DHCP servers on one network is a
/// fault that the operator must see to.
const MAX_STRANGERS: usize = 4;
const SERVER_PORT: u16 = 67;
const CLIENT_PORT: u16 = 68;

/// The servers not listened to now.
#[derive(Debug, Default)]
pub struct Strangers(Vec<(Ipv4Addr, Instant)>);

impl Strangers {
    /// Stops listening to `server`.
    pub fn ignore(&mut self, server: Ipv4Addr, now: Instant) {
        self.0.retain(|&(known, _)| known != server);
        if self.0.len() == MAX_STRANGERS {
            self.0.remove(0);
        }
        self.0.push((server, now + IGNORED_FOR));
    }

    /// Whether `frame` is a DHCP message of a server that is not listened to.
    pub fn sent(&self, frame: &[u8], now: Instant) -> bool {
        // Almost always empty; the frame is looked at only while a stranger is known.
        if self.0.is_empty() {
            return false;
        }
        server_of(frame).is_some_and(|server| {
            let mut known = self.0.iter();
            known.any(|&(stranger, until)| stranger == server && now < until)
        })
    }
}

/// Who sent a frame that is a DHCP message to a client.
fn server_of(frame: &[u8]) -> Option<Ipv4Addr> {
    let ethernet = EthernetFrame::new_checked(frame).ok()?;
    if ethernet.ethertype() != EthernetProtocol::Ipv4 {
        return None;
    }
    let packet = Ipv4Packet::new_checked(ethernet.payload()).ok()?;
    if packet.next_header() != IpProtocol::Udp {
        return None;
    }
    let udp = UdpPacket::new_checked(packet.payload()).ok()?;
    let is_dhcp = udp.src_port() == SERVER_PORT && udp.dst_port() == CLIENT_PORT;
    is_dhcp.then(|| packet.src_addr())
}
