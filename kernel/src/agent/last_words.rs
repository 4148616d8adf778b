//! Tells the control node that this node has panicked.
//!
//! Key type: [`Route`], addresses and keys kept ready while the node is well, because a panic may
//! come while the stack and the endpoint are half changed. Neighbours: `netstack::node` makes the
//! datagram, `drivers::last_resort` sends the frame, `panic` calls [`speak`].
//!
//! Invariant: nothing here allocates or takes a lock that a panicking kernel may hold for good.

use core::sync::atomic::{AtomicBool, Ordering};

use netstack::MAX_DATAGRAM;
use netstack::node::PanicReporter;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    EthernetAddress, EthernetFrame, EthernetProtocol, EthernetRepr, IpAddress, IpProtocol,
    Ipv4Address, Ipv4Packet, Ipv4Repr, UdpPacket, UdpRepr,
};
use spin::Mutex;

use crate::drivers;
use crate::drivers::nic::FRAME_MAX;

/// Times the message is sent; nobody is left to wait for an answer.
const ATTEMPTS: u32 = 3;
const TIME_TO_LIVE: u8 = 64;

/// How to reach the control node without the stack.
#[derive(Debug, Clone, Copy)]
pub struct Route {
    /// Makes the authenticated datagram.
    pub reporter: PanicReporter,
    /// The node's hardware address.
    pub mac: [u8; 6],
    /// Hardware address from which the control node's datagrams come.
    pub control_mac: [u8; 6],
    /// The node's address.
    pub address: Ipv4Address,
    /// The control node's address.
    pub control: Ipv4Address,
    /// The control node's port.
    pub control_port: u16,
}

static ROUTE: Mutex<Option<Route>> = Mutex::new(None);
static SPOKEN: AtomicBool = AtomicBool::new(false);

/// Keeps `route` for a panic to come; `None` when the control node cannot be reached now.
pub fn prepare(route: Option<Route>) {
    *ROUTE.lock() = route;
}

/// Sends `text` to the control node, once in the life of the kernel. Best effort.
pub fn speak(text: &str) {
    if SPOKEN.swap(true, Ordering::Relaxed) {
        return;
    }
    let Some(route) = ROUTE.try_lock().and_then(|route| *route) else {
        return;
    };
    for attempt in 0..ATTEMPTS {
        let mut datagram = [0; MAX_DATAGRAM];
        let len = route.reporter.datagram(attempt, text, &mut datagram);
        let mut frame = [0; FRAME_MAX];
        let len = route.frame(&datagram[..len], &mut frame);
        drivers::last_resort::send(&frame[..len]);
    }
}

impl Route {
    /// Writes an Ethernet frame with `datagram` to `frame`; returns its length.
    fn frame(&self, datagram: &[u8], frame: &mut [u8]) -> usize {
        let checksums = ChecksumCapabilities::default();
        let udp = UdpRepr {
            src_port: netstack::NODE_PORT,
            dst_port: self.control_port,
        };
        let ip = Ipv4Repr {
            src_addr: self.address,
            dst_addr: self.control,
            next_header: IpProtocol::Udp,
            payload_len: udp.header_len() + datagram.len(),
            hop_limit: TIME_TO_LIVE,
        };
        let ethernet = EthernetRepr {
            src_addr: EthernetAddress(self.mac),
            dst_addr: EthernetAddress(self.control_mac),
            ethertype: EthernetProtocol::Ipv4,
        };
        let total = ethernet.buffer_len() + ip.buffer_len() + ip.payload_len;
        let mut frame = EthernetFrame::new_unchecked(&mut frame[..total]);
        ethernet.emit(&mut frame);
        let mut packet = Ipv4Packet::new_unchecked(frame.payload_mut());
        ip.emit(&mut packet, &checksums);
        udp.emit(
            &mut UdpPacket::new_unchecked(packet.payload_mut()),
            &IpAddress::Ipv4(self.address),
            &IpAddress::Ipv4(self.control),
            datagram.len(),
            |payload| payload.copy_from_slice(datagram),
            &checksums,
        );
        total
    }
}
