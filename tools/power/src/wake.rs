//! Wake-on-LAN: a packet with the MAC address of the card, sixteen times over, that switches its
//! machine on.
//!
//! Key type: [`Wake`]. Source: AMD, "Magic Packet Technology", publication 20213.
//!
//! Invariant: nobody answers such a packet, so that it was sent is all that is known.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};

use crate::{Action, Error, Machine, State};

/// Where the packets go: to all machines of the network, at the port for what nobody reads.
const TO: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::BROADCAST, 9);

/// Times that a packet is sent: it may be lost, and nobody would know.
const TIMES: usize = 3;

/// Sends such packets.
#[derive(Debug, Clone)]
pub(crate) struct Wake {
    /// The network is that of this address of ours.
    from: Ipv4Addr,
    to: SocketAddrV4,
}

impl Wake {
    /// Into the network in which the control node has `address`.
    pub fn from(address: Option<Ipv4Addr>) -> Self {
        Wake {
            from: address.unwrap_or(Ipv4Addr::UNSPECIFIED),
            to: TO,
        }
    }

    /// Switches a machine on.
    ///
    /// # Errors
    /// [`Error::WakeOnly`], [`Error::NoMac`], [`Error::Send`].
    pub fn perform(&self, action: Action, machine: &Machine) -> Result<State, Error> {
        if action != Action::On {
            return Err(Error::WakeOnly(action));
        }
        let packet = packet(machine.known_mac()?);
        let send = || {
            let socket = UdpSocket::bind((self.from, 0))?;
            socket.set_broadcast(true)?;
            (0..TIMES).try_for_each(|_| socket.send_to(&packet, self.to).map(|_| ()))
        };
        send().map(|()| State::On).map_err(Error::Send)
    }
}

fn packet(mac: [u8; 6]) -> Vec<u8> {
    let mut packet = vec![0xff; 6];
    (0..16).for_each(|_| packet.extend(mac));
    packet
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_has_the_mac_address_sixteen_times() {
        let there = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let std::net::SocketAddr::V4(to) = there.local_addr().unwrap() else {
            unreachable!("bound to such an address");
        };
        let wake = Wake {
            from: Ipv4Addr::LOCALHOST,
            to,
        };
        let mac = [0x52, 0x54, 0, 7, 0, 1];
        let machine = Machine {
            node: 1,
            mac: Some(mac),
        };
        assert_eq!(wake.perform(Action::On, &machine).unwrap(), State::On);
        let mut bytes = [0; 200];
        for _ in 0..TIMES {
            let length = there.recv(&mut bytes).unwrap();
            assert_eq!(length, 102);
            assert_eq!(bytes[..6], [0xff; 6]);
            assert!(bytes[6..length].chunks(6).all(|part| part == mac));
        }
        let error = wake.perform(Action::Reset, &machine).unwrap_err();
        assert!(error.to_string().contains("reset needs another"), "{error}");
        let unknown = Machine { node: 1, mac: None };
        assert!(wake.perform(Action::On, &unknown).is_err());
    }
}
