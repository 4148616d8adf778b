//! The interface. Asked over netlink: `/sys` shows the interfaces of the namespace it was mounted
//! in, which need not be this process's.

use super::{DoctorOptions, Finding};
use nix::ifaddrs::getifaddrs;
use nix::net::if_::{InterfaceFlags, if_nametoindex};
use nix::sys::socket::sockopt::ReceiveTimeout;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto,
    setsockopt, socket,
};
use nix::sys::time::TimeVal;
use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;

/// Packets of Hearth's own protocol and of every firmware fill an ordinary Ethernet frame.
const NEEDED_MTU: u32 = 1_500;
/// The kernel answers netlink requests at once.
const NETLINK_TIMEOUT_S: i64 = 2;

const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const NLM_F_REQUEST: u16 = 1;
const IFLA_MTU: u16 = 4;
/// Sizes of `nlmsghdr` and `ifinfomsg`.
const NLMSG_BYTES: usize = 16;
const IFINFO_BYTES: usize = 16;

/// What is known of one interface.
#[derive(Default)]
struct Interface {
    flags: Option<InterfaceFlags>,
    ipv4: Vec<Ipv4Addr>,
    link_local: bool,
}

pub(super) fn check(options: &DoctorOptions) -> Vec<Finding> {
    let name = options.interface.as_str();
    let Ok(index) = if_nametoindex(name) else {
        return vec![Finding::error(
            format!("there is no interface {name}"),
            format!("name one of: {}", other_names().join(", ")),
        )];
    };
    let interface = look_at(name);
    let mut findings: Vec<Finding> = check_state(name, &interface).into_iter().collect();
    findings.extend(check_addresses(options, &interface));
    match mtu(index) {
        Ok(mtu) if mtu < NEEDED_MTU => findings.push(Finding::error(
            format!("{name} has an MTU of {mtu}: packets of machines that boot have up to {NEEDED_MTU} bytes"),
            format!("ip link set {name} mtu {NEEDED_MTU}, and the same on every switch and bridge between"),
        )),
        Ok(_) => {}
        Err(error) => findings.push(Finding::warning(
            format!("the MTU of {name} cannot be read: {error}"),
            format!("look at `ip link show {name}`: it has to be {NEEDED_MTU} or more"),
        )),
    }
    findings
}

fn look_at(name: &str) -> Interface {
    let mut interface = Interface::default();
    for entry in getifaddrs()
        .into_iter()
        .flatten()
        .filter(|entry| entry.interface_name == name)
    {
        interface.flags = Some(entry.flags);
        let Some(address) = entry.address else {
            continue;
        };
        if let Some(address) = address.as_sockaddr_in() {
            interface.ipv4.push(address.ip());
        } else if let Some(address) = address.as_sockaddr_in6() {
            interface.link_local |= is_link_local(address.ip());
        }
    }
    interface
}

fn is_link_local(address: Ipv6Addr) -> bool {
    address.segments()[0] & 0xffc0 == 0xfe80
}

fn other_names() -> Vec<String> {
    let names: BTreeSet<String> = getifaddrs()
        .into_iter()
        .flatten()
        .filter(|entry| !entry.flags.contains(InterfaceFlags::IFF_LOOPBACK))
        .map(|entry| entry.interface_name)
        .collect();
    if names.is_empty() {
        return vec!["(this host has only loopback)".into()];
    }
    names.into_iter().collect()
}

fn check_state(name: &str, interface: &Interface) -> Option<Finding> {
    let flags = interface.flags?;
    if flags.contains(InterfaceFlags::IFF_LOOPBACK) {
        return Some(Finding::error(
            format!("{name} is the loopback interface: no machine is on it"),
            format!("name one of: {}", other_names().join(", ")),
        ));
    }
    if !flags.contains(InterfaceFlags::IFF_UP) {
        return Some(Finding::error(
            format!("{name} is down"),
            format!("ip link set {name} up"),
        ));
    }
    if !flags.contains(InterfaceFlags::IFF_RUNNING) {
        return Some(Finding::warning(
            format!("{name} has no link"),
            "check the cable and the switch; a bridge has a link only when one of its ports has",
        ));
    }
    None
}

fn check_addresses(options: &DoctorOptions, interface: &Interface) -> Vec<Finding> {
    let name = &options.interface;
    let mut findings = Vec::new();
    match options.address {
        Some(address) if !interface.ipv4.contains(&address) => findings.push(Finding::error(
            format!("{name} does not have the address {address}"),
            format!("ip address add {address}/16 dev {name} (with your network's prefix)"),
        )),
        None if interface.ipv4.is_empty() => findings.push(Finding::error(
            format!("{name} has no IPv4 address"),
            format!("ip address add 10.117.0.1/16 dev {name}"),
        )),
        _ => {}
    }
    // Without a link there is no such address either, and that is said already.
    let running = interface
        .flags
        .is_some_and(|flags| flags.contains(InterfaceFlags::IFF_RUNNING));
    if running && !interface.link_local {
        findings.push(Finding::warning(
            format!("{name} has no IPv6 link-local address: iPXE waits 16 s longer for router advertisements"),
            format!("sysctl net.ipv6.conf.{name}.disable_ipv6=0"),
        ));
    }
    findings
}

/// The interface's MTU in bytes.
fn mtu(index: u32) -> io::Result<u32> {
    let socket = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkRoute,
    )?;
    setsockopt(&socket, ReceiveTimeout, &TimeVal::new(NETLINK_TIMEOUT_S, 0))?;
    let request = link_request(index);
    let kernel = NetlinkAddr::new(0, 0);
    sendto(socket.as_raw_fd(), &request, &kernel, MsgFlags::empty())?;
    let mut buffer = vec![0; 32 << 10];
    let length = recv(socket.as_raw_fd(), &mut buffer, MsgFlags::empty())?;
    parse_mtu(&buffer[..length]).ok_or_else(|| io::Error::other("the answer has none"))
}

fn link_request(index: u32) -> Vec<u8> {
    let mut request = Vec::with_capacity(NLMSG_BYTES + IFINFO_BYTES);
    request.extend(((NLMSG_BYTES + IFINFO_BYTES) as u32).to_ne_bytes());
    request.extend(RTM_GETLINK.to_ne_bytes());
    request.extend(NLM_F_REQUEST.to_ne_bytes());
    request.extend([0; 8]);
    request.extend([0; 4]);
    request.extend(index.to_ne_bytes());
    request.extend([0; 8]);
    request
}

fn parse_mtu(answer: &[u8]) -> Option<u32> {
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    if kind != RTM_NEWLINK {
        return None;
    }
    let mut rest = answer.get(NLMSG_BYTES + IFINFO_BYTES..)?;
    while rest.len() >= 4 {
        let length = usize::from(u16::from_ne_bytes([rest[0], rest[1]]));
        let value = rest.get(4..length)?;
        if u16::from_ne_bytes([rest[2], rest[3]]) == IFLA_MTU {
            return Some(u32::from_ne_bytes(value.try_into().ok()?));
        }
        rest = rest.get(length.next_multiple_of(4)..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mtu_of_loopback_is_read() {
        let index = if_nametoindex("lo").unwrap();
        assert!(mtu(index).unwrap() >= NEEDED_MTU);
        assert!(mtu(u32::MAX >> 1).is_err());
    }

    #[test]
    fn loopback_is_no_boot_network() {
        let options = DoctorOptions {
            interface: "lo".into(),
            ..DoctorOptions::default()
        };
        let findings = check(&options);
        assert!(
            findings
                .iter()
                .any(|finding| finding.what.contains("loopback")),
            "{findings:?}"
        );
    }

    #[test]
    fn answers_cut_short_are_no_panic() {
        let mut answer = link_request(1);
        answer[4..6].copy_from_slice(&RTM_NEWLINK.to_ne_bytes());
        answer.extend([8, 0, 3, 0, 1, 2, 3, 4, 8, 0, 4, 0]);
        answer.extend(9_000u32.to_ne_bytes());
        assert_eq!(parse_mtu(&answer), Some(9_000));
        for length in 0..answer.len() {
            assert_eq!(parse_mtu(&answer[..length]), None, "{length}");
        }
    }
}
