//! The personality where another DHCP server gives out the addresses.
//!
//! Key type: [`Inquiry`]. The site's own server leases an address and knows nothing of
//! personalities. The boot service beside it (proxy DHCP) leases nothing, but answers at port 4011,
//! where PXE has boot servers. The node asks there by INFORM from the address that it has (RFC
//! 2131, section 4.4.3), whatever loaded it: no boot loader has to pass anything on. Neighbours:
//! `dhcp` begins an inquiry and takes what comes of it.
//!
//! Invariant: an inquiry ends after [`TRIES`] requests; only an answer to this very inquiry counts.

use alloc::vec;
use alloc::vec::Vec;

use netstack::personality::{self, Personality};
use netstack::time::{Instant, Micros};
use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::udp;
use smoltcp::wire::{
    DhcpMessageType, DhcpOption, DhcpPacket, DhcpRepr, EthernetAddress, Ipv4Address,
};

/// Port of a proxy-DHCP service (PXE 2.1, section 2.2), and of the node's own end.
const PORT: u16 = 4011;
/// Requests before the boot service is taken to be elsewhere, and the time for each.
const TRIES: u32 = 4;
const WAIT: Micros = Micros::from_millis(500);
/// What one request, or its answer, may have: a full frame.
const MESSAGE_MAX: usize = 1500;

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub struct Asker {
    /// Hardware address of the card.
    pub mac: [u8; 6],
    /// This boot's random number: tells the answer to this node from others.
    pub boot_epoch: u64,
    /// What the node says of itself, as in every request for a personality.
    pub options: &'static [DhcpOption<'static>],
}

/// A request for the personality that is under way.
pub struct Inquiry {
    socket: SocketHandle,
    request: Vec<u8>,
    transaction: u32,
    sent: u32,
    next: Instant,
}

impl Inquiry {
    /// Asks from `address`, which must be the node's when datagrams are sent next.
    pub fn begin(
        sockets: &mut SocketSet<'static>,
        asker: &Asker,
        address: Ipv4Address,
        now: Instant,
    ) -> Self {
        let buffer =
            || udp::PacketBuffer::new(vec![udp::PacketMetadata::EMPTY], vec![0; MESSAGE_MAX]);
        let mut socket = udp::Socket::new(buffer(), buffer());
        socket
            .bind(PORT)
            .expect("a fresh socket binds to a port other than 0");
        let transaction = asker.boot_epoch as u32;
        let mut inquiry = Self {
            socket: sockets.add(socket),
            request: request(asker, address, transaction),
            transaction,
            sent: 0,
            next: now,
        };
        inquiry.prepare(sockets, now);
        inquiry
    }

    /// Sends what is due. Returns false when nobody has answered in time.
    pub fn prepare(&mut self, sockets: &mut SocketSet<'static>, now: Instant) -> bool {
        if now < self.next {
            return true;
        }
        if self.sent == TRIES {
            return false;
        }
        let socket = sockets.get_mut::<udp::Socket>(self.socket);
        // Full only while the one before waits for the card: then that one counts for both.
        let _ = socket.send_slice(&self.request, (Ipv4Address::BROADCAST, PORT));
        self.sent += 1;
        self.next = now + WAIT;
        true
    }

    /// When [`Self::prepare`] has something to do.
    pub fn deadline(&self) -> Instant {
        self.next
    }

    /// Looks at what has arrived; the personality, or why there is none.
    pub fn answer(
        &mut self,
        sockets: &mut SocketSet<'static>,
    ) -> Option<Result<Personality, Vec<u8>>> {
        let socket = sockets.get_mut::<udp::Socket>(self.socket);
        while let Ok((message, _)) = socket.recv() {
            let Ok(packet) = DhcpPacket::new_checked(message) else {
                continue;
            };
            if packet.transaction_id() != self.transaction {
                continue;
            }
            let option = |kind| {
                let mut options = packet.options();
                Some(options.find(|option| option.kind == kind)?.data)
            };
            let given = option(personality::DHCP_OPTION).map(Personality::parse);
            match (given, option(super::dhcp::OPTION_MESSAGE)) {
                (Some(Ok(personality)), _) => return Some(Ok(personality)),
                (Some(Err(_)), _) => {
                    let reason = b"the personality is not understood; another version?";
                    return Some(Err(reason.to_vec()));
                }
                (None, Some(reason)) => return Some(Err(reason.to_vec())),
                (None, None) => {}
            }
        }
        None
    }

    /// Gives the socket back.
    pub fn end(self, sockets: &mut SocketSet<'static>) {
        sockets.remove(self.socket);
    }
}

fn request(asker: &Asker, address: Ipv4Address, transaction: u32) -> Vec<u8> {
    let inform = DhcpRepr {
        message_type: DhcpMessageType::Inform,
        transaction_id: transaction,
        secs: 0,
        client_hardware_address: EthernetAddress(asker.mac),
        client_ip: address,
        your_ip: Ipv4Address::UNSPECIFIED,
        server_ip: Ipv4Address::UNSPECIFIED,
        router: None,
        subnet_mask: None,
        relay_agent_ip: Ipv4Address::UNSPECIFIED,
        broadcast: false,
        requested_ip: None,
        client_identifier: None,
        server_identifier: None,
        parameter_request_list: Some(&[personality::DHCP_OPTION]),
        dns_servers: None,
        max_size: None,
        lease_duration: None,
        renew_duration: None,
        rebind_duration: None,
        additional_options: asker.options,
    };
    let mut bytes = vec![0; inform.buffer_len()];
    inform
        .emit(&mut DhcpPacket::new_unchecked(&mut bytes[..]))
        .expect("the buffer has the length that the message asked for");
    bytes
}
