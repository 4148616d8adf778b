//! Other DHCP servers on the wire: asks for an address as a made-up machine and looks who offers
//! one.

use super::{DoctorOptions, Finding, host};
use crate::dhcp::{self, packet};
use crate::mac::Mac;
use crate::sockets;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

const CLIENT_PORT: u16 = 68;
/// How long to listen. Servers that first look whether an address is free (ping) take a second or
/// two.
const LISTEN: Duration = Duration::from_secs(3);
/// The request is sent so often in that time.
const TRIES: u32 = 2;

pub(super) fn check(options: &DoctorOptions) -> Vec<Finding> {
    let interface = &options.interface;
    match offers(interface) {
        Ok(mut servers) => {
            servers.retain(|server| Some(*server) != options.address);
            judge(options, &servers)
        }
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let mut finding =
                host::port_finding("DHCP client", "udp", CLIENT_PORT, interface, &error);
            finding.severity = crate::Severity::Warning;
            finding
                .what
                .push_str(": it cannot be seen whether other DHCP servers answer");
            finding.fix = format!("stop the DHCP client on {interface} and look again");
            vec![finding]
        }
        Err(error) => vec![Finding::warning(
            format!("it cannot be seen whether other DHCP servers answer on {interface}: {error}"),
            "run as root, with the interface up, and look again",
        )],
    }
}

fn judge(options: &DoctorOptions, servers: &BTreeSet<Ipv4Addr>) -> Vec<Finding> {
    let interface = &options.interface;
    if options.proxy_dhcp {
        return servers
            .is_empty()
            .then(|| {
                Finding::error(
                    format!("no DHCP server gives out addresses on {interface}, and proxy DHCP needs one"),
                    "start the site's DHCP server there, or serve without proxy DHCP",
                )
            })
            .into_iter()
            .collect();
    }
    let foreign = |server: &Ipv4Addr| {
        Finding::error(
            format!(
                "another DHCP server, {server}, offers addresses on {interface}: machines will take either answer"
            ),
            "switch it off on the boot network, move the boot network to an interface of its own, or use proxy DHCP",
        )
    };
    servers.iter().map(foreign).collect()
}

/// The servers that made an offer.
fn offers(interface: &str) -> io::Result<BTreeSet<Ipv4Addr>> {
    let socket = sockets::std_udp(interface, Ipv4Addr::UNSPECIFIED, CLIENT_PORT)?;
    socket.set_nonblocking(false)?;
    let chance = RandomState::new().build_hasher().finish().to_be_bytes();
    let xid = u32::from_be_bytes([chance[0], chance[1], chance[2], chance[3]]);
    // Locally administered, so that it is no real machine's.
    let mac = Mac([2, chance[4], chance[5], chance[6], chance[7], chance[3]]);
    let discover = dhcp::doctor_discover(xid, mac);
    let to = SocketAddrV4::new(Ipv4Addr::BROADCAST, 67);
    let begin = Instant::now();
    let mut servers = BTreeSet::new();
    for part in 1..=TRIES {
        socket.send_to(&discover, to)?;
        listen(&socket, xid, begin + LISTEN * part / TRIES, &mut servers)?;
    }
    Ok(servers)
}

fn listen(
    socket: &UdpSocket,
    xid: u32,
    until: Instant,
    servers: &mut BTreeSet<Ipv4Addr>,
) -> io::Result<()> {
    let mut buffer = [0; 1_500];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        socket.set_read_timeout(Some(left))?;
        match socket.recv_from(&mut buffer) {
            Ok((length, _)) => {
                let offer = packet::parse_offer(&buffer[..length]);
                servers.extend(offer.filter(|(id, _)| *id == xid).map(|(_, server)| server));
            }
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                ) => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offers_are_judged_by_the_mode() {
        let mut options = DoctorOptions {
            interface: "br0".into(),
            ..DoctorOptions::default()
        };
        let one = BTreeSet::from([Ipv4Addr::new(10, 0, 0, 2)]);
        assert_eq!(judge(&options, &BTreeSet::new()), []);
        assert!(judge(&options, &one)[0].what.contains("10.0.0.2"));
        options.proxy_dhcp = true;
        assert_eq!(judge(&options, &one), []);
        assert!(
            judge(&options, &BTreeSet::new())[0]
                .what
                .contains("no DHCP server")
        );
    }
}
