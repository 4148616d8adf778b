//! Capabilities, ports and the firewall of this host.

use super::{DoctorOptions, Finding};
use crate::sockets;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Capability numbers (linux/capability.h).
const CAP_NET_BIND_SERVICE: u32 = 10;
const CAP_NET_ADMIN: u32 = 12;
const CAP_NET_RAW: u32 = 13;

/// State of a listening socket in /proc/net/tcp.
const TCP_LISTEN: &str = "0A";
/// How long the firewall's own tool may take to list its rules.
const FIREWALL_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) fn check_capabilities() -> Vec<Finding> {
    let Some(effective) = fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|s| capabilities(&s))
    else {
        return Vec::new();
    };
    let lowest = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    let lowest = lowest
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(1_024u16);
    let missing = |capability: u32| effective & (1 << capability) == 0;
    let grant =
        |name: &str| format!("run as root, or in a systemd unit with AmbientCapabilities={name}");
    let mut findings = Vec::new();
    if missing(CAP_NET_BIND_SERVICE) && lowest > 67 {
        findings.push(Finding::error(
            format!("CAP_NET_BIND_SERVICE is missing: ports below {lowest} cannot be opened, DHCP needs 67 and TFTP 69"),
            grant("CAP_NET_BIND_SERVICE"),
        ));
    }
    if missing(CAP_NET_RAW) {
        findings.push(Finding::warning(
            "CAP_NET_RAW is missing: router solicitations are not answered, iPXE machines wait 16 s longer",
            grant("CAP_NET_RAW"),
        ));
    }
    if missing(CAP_NET_ADMIN) {
        findings.push(Finding::warning(
            "CAP_NET_ADMIN is missing: bridges and addresses for a QEMU cluster cannot be set up",
            grant("CAP_NET_ADMIN"),
        ));
    }
    findings
}

/// The effective set in the text of /proc/self/status.
fn capabilities(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// Tries to open every port the service needs.
pub(super) fn check_ports(options: &DoctorOptions) -> Vec<Finding> {
    let interface = &options.interface;
    let mut ports = vec![("DHCP", 67), ("TFTP", 69)];
    if options.proxy_dhcp {
        ports.push(("proxy DHCP", 4011));
    }
    let mut findings: Vec<Finding> = ports
        .into_iter()
        .filter_map(|(service, port)| {
            let error = try_udp(interface, port).err()?;
            Some(port_finding(service, "udp", port, interface, &error))
        })
        .collect();
    let address = options.address.unwrap_or(Ipv4Addr::UNSPECIFIED);
    let port = options.http_port();
    if let Err(error) = TcpListener::bind(SocketAddrV4::new(address, port)) {
        findings.push(port_finding("HTTP", "tcp", port, interface, &error));
    }
    findings
}

fn try_udp(interface: &str, port: u16) -> io::Result<()> {
    sockets::std_udp(interface, Ipv4Addr::UNSPECIFIED, port).map(|_| ())
}

pub(super) fn port_finding(
    service: &str,
    protocol: &str,
    port: u16,
    interface: &str,
    error: &io::Error,
) -> Finding {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            let owner = owner(protocol, port).unwrap_or_else(|| "another process".into());
            Finding::error(
                format!("{service} port {port}/{protocol} on {interface} is held by {owner}"),
                format!(
                    "stop it, or keep it off {interface} (dnsmasq: except-interface={interface}, bind-interfaces)"
                ),
            )
        }
        io::ErrorKind::PermissionDenied => Finding::error(
            format!("{service} port {port}/{protocol} may not be opened"),
            "run as root or with CAP_NET_BIND_SERVICE and CAP_NET_RAW",
        ),
        _ => Finding::error(
            format!("{service} port {port}/{protocol} on {interface} cannot be opened: {error}"),
            format!("check that {interface} is up and has its address"),
        ),
    }
}

/// The processes that hold a port, as far as /proc tells.
fn owner(protocol: &str, port: u16) -> Option<String> {
    let inodes: BTreeSet<u64> = ["", "6"]
        .iter()
        .filter_map(|family| fs::read_to_string(format!("/proc/net/{protocol}{family}")).ok())
        .flat_map(|table| socket_inodes(&table, port, protocol == "tcp"))
        .collect();
    let owners: Vec<String> = fs::read_dir("/proc")
        .ok()?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| holds(*pid, &inodes))
        .map(|pid| {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            format!("{} (process {pid})", name.trim())
        })
        .collect();
    (!owners.is_empty()).then(|| owners.join(", "))
}

/// Inodes of the sockets with this local port in the text of /proc/net/udp or tcp.
fn socket_inodes(table: &str, port: u16, listening: bool) -> Vec<u64> {
    let wanted = format!("{port:04X}");
    let inode = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (_, local_port) = fields.get(1)?.rsplit_once(':')?;
        let state = *fields.get(3)?;
        let matches = local_port == wanted && (!listening || state == TCP_LISTEN);
        matches.then(|| fields.get(9)?.parse().ok())?
    };
    table.lines().skip(1).filter_map(inode).collect()
}

fn holds(pid: u32, inodes: &BTreeSet<u64>) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    descriptors.flatten().any(|entry| {
        let target = fs::read_link(entry.path()).unwrap_or_default();
        let inode = target
            .to_str()
            .and_then(|t| t.strip_prefix("socket:[")?.strip_suffix(']'));
        inode
            .and_then(|inode| inode.parse().ok())
            .is_some_and(|inode: u64| inodes.contains(&inode))
    })
}

/// A hint, not a proof: rules that drop by default may still let the boot network through.
pub(super) fn check_firewall(options: &DoctorOptions) -> Option<Finding> {
    let rules = run_limited(Command::new("nft").args(["-j", "list", "ruleset"]))?;
    let chain = dropping_chain(&rules)?;
    let interface = &options.interface;
    let port = options.http_port();
    Some(Finding::warning(
        format!("the firewall's chain {chain} drops what no rule lets in"),
        format!(
            "if machines get no answer, let the boot network in: nft add rule {chain} iifname {interface} \
             udp dport {{67, 69, 4011, 7117, 32768-60999}} accept; nft add rule {chain} iifname {interface} \
             tcp dport {port} accept"
        ),
    ))
}

/// The first chain for incoming packets that drops by default, as `family table chain`.
fn dropping_chain(rules: &str) -> Option<String> {
    let rules: Value = serde_json::from_str(rules).ok()?;
    rules.get("nftables")?.as_array()?.iter().find_map(|item| {
        let chain = item.get("chain")?;
        let field = |name: &str| chain.get(name).and_then(Value::as_str);
        let drops = field("hook") == Some("input") && field("policy") == Some("drop");
        drops.then(|| {
            Some(format!(
                "{} {} {}",
                field("family")?,
                field("table")?,
                field("name")?
            ))
        })?
    })
}

/// The command's output, if it ends well and in time.
pub(super) fn run_limited(command: &mut Command) -> Option<String> {
    let command = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let mut output = child.stdout.take()?;
    // Read beside the wait: a long list of rules would fill the pipe.
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        output.read_to_string(&mut text).map(|_| text)
    });
    let limit = Instant::now() + FIREWALL_TIMEOUT;
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return reader.join().ok()?.ok(),
            Ok(None) if Instant::now() < limit => std::thread::sleep(Duration::from_millis(10)),
            Ok(Some(_)) => return None,
            Ok(None) | Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn capabilities_are_read() {
        let status = "Name:\tx\nCapPrm:\t0000000000000000\nCapEff:\t0000000000003400\n";
        let effective = capabilities(status).unwrap();
        for capability in [CAP_NET_BIND_SERVICE, CAP_NET_ADMIN, CAP_NET_RAW] {
            assert_ne!(effective & (1 << capability), 0);
        }
        assert_eq!(capabilities("Name:\tx\n"), None);
    }

    #[test]
    fn the_holder_of_a_port_is_named() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let holder = owner("udp", socket.local_addr().unwrap().port()).unwrap();
        assert!(
            holder.contains(&format!("process {}", std::process::id())),
            "{holder}"
        );
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let holder = owner("tcp", listener.local_addr().unwrap().port()).unwrap();
        assert!(holder.contains(&std::process::id().to_string()), "{holder}");
        let finding = port_finding(
            "HTTP",
            "tcp",
            listener.local_addr().unwrap().port(),
            "br0",
            &io::Error::from(io::ErrorKind::AddrInUse),
        );
        assert!(finding.what.contains("process"), "{finding}");
    }

    #[test]
    fn only_listening_sockets_count_for_tcp() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
             0: 0100007F:1C0C 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 41 1\n\
             1: 0100007F:1C0C 0100007F:9999 01 00000000:00000000 00:00000000 00000000     0        0 42 1\n\
             2: 0100007F:1C0D 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 43 1\n";
        assert_eq!(socket_inodes(table, 7180, true), [41]);
        assert_eq!(socket_inodes(table, 7180, false), [41, 42]);
    }

    #[test]
    fn a_firewall_that_drops_is_found() {
        let rules = r#"{"nftables": [{"metainfo": {}}, {"table": {"family": "inet", "name": "filter"}},
            {"chain": {"family": "inet", "table": "filter", "name": "forward", "hook": "forward", "policy": "drop"}},
            {"chain": {"family": "inet", "table": "filter", "name": "input", "hook": "input", "policy": "drop"}}]}"#;
        assert_eq!(dropping_chain(rules).as_deref(), Some("inet filter input"));
        assert_eq!(
            dropping_chain(&rules.replace("\"drop\"", "\"accept\"")),
            None
        );
        assert_eq!(dropping_chain("not json"), None);
    }

    #[test]
    fn a_command_that_hangs_is_stopped() {
        let begin = Instant::now();
        assert_eq!(run_limited(Command::new("sleep").arg("60")), None);
        assert!(begin.elapsed() < Duration::from_secs(30));
        assert_eq!(
            run_limited(Command::new("echo").arg("x")).as_deref(),
            Some("x\n")
        );
        assert_eq!(run_limited(&mut Command::new("/nonexistent")), None);
    }
}
