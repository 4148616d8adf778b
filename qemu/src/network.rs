//! Switches, links and rate limits of a cluster, made with `ip` and `tc`.
//!
//! Every switch of the tree is a bridge `s<level>-<index>`; the link to the switch above it is a
//! veth pair. A node's tap sits in its leaf switch. The control node is plugged into the top
//! switch by a veth pair whose near end is [`SERVICE_INTERFACE`].
//!
//! With a rate limit each link has a token bucket on both ends. What comes out of a tap cannot be
//! shaped without tc classifiers, which not every kernel has; so a limited node gets a bridge of
//! its own between its tap and a veth pair, and the veth pair is limited in both directions.
//!
//! Key type: [`Layout`]. Neighbours: `supervisor` applies it inside the namespace.
//!
//! Invariant: interface names fit the kernel's 15 bytes for every allowed cluster.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::namespace::find_program;
use crate::{Error, Spec, namespace};

/// The interface of the control node.
pub(crate) const SERVICE_INTERFACE: &str = "service";
/// Its link-local address: set by hand, because a generated one takes a second to be usable.
const SERVICE_LINK_LOCAL: &str = "fe80::7117/64";
/// A packet waits at most so long for its tokens before it is dropped, as in a switch's buffer.
const QUEUE_MS: u32 = 50;
/// Least bucket: one large segmented packet, so that offloading does not stall.
const MIN_BURST_BYTES: u64 = 16_384;
/// The bucket holds what the link carries in this time; timers are about that coarse.
const BURST_MS: u64 = 4;

/// Commands that make the network: lines for `ip -batch` and `tc -batch`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Layout {
    pub ip: String,
    pub tc: String,
    pub switches: u32,
    pub links: u32,
}

/// The tap of a node.
pub(crate) fn tap(node: u32) -> String {
    format!("n{node}")
}

/// Lays the network of a cluster out.
pub(crate) fn layout(spec: &Spec) -> Layout {
    let mut layout = Layout::default();
    layout.ip_line("link set lo up");
    let levels = spec.tree.levels();
    for level in (0..levels).rev() {
        for index in 0..spec.tree.switches(level, spec.nodes) {
            let switch = switch(level, index);
            layout.bridge(&switch);
            layout.switches += 1;
            if level + 1 < levels {
                let above = self::switch(level + 1, spec.tree.parent_of(level, index));
                let (up, down) = (format!("u{level}-{index}"), format!("d{level}-{index}"));
                layout.link(spec, &up, &down);
                layout.plug(&up, &switch);
                layout.plug(&down, &above);
            }
        }
    }
    let port = format!("{SERVICE_INTERFACE}-port");
    layout.link(spec, SERVICE_INTERFACE, &port);
    layout.plug(&port, &switch(levels - 1, 0));
    let (address, prefix) = Spec::CONTROL_ADDRESS;
    layout.ip_line(&format!("link set {SERVICE_INTERFACE} addrgenmode none"));
    layout.ip_line(&format!(
        "address add {address}/{prefix} dev {SERVICE_INTERFACE}"
    ));
    layout.ip_line(&format!(
        "address add {SERVICE_LINK_LOCAL} dev {SERVICE_INTERFACE} nodad"
    ));
    layout.ip_line(&format!("link set {SERVICE_INTERFACE} up"));
    for service in 0..spec.io_services {
        let interface = io_interface(service);
        let port = format!("{interface}-port");
        layout.link(spec, &interface, &port);
        layout.plug(&port, &switch(levels - 1, 0));
        let address = Spec::io_service_address(service);
        layout.ip_line(&format!("link set {interface} addrgenmode none"));
        layout.ip_line(&format!(
            "address add {}/{prefix} dev {interface}",
            address.ip()
        ));
        layout.ip_line(&format!("link set {interface} up"));
    }
    for node in 0..spec.nodes {
        let leaf = switch(0, spec.tree.leaf_of(node));
        let tap = tap(node);
        layout.ip_line(&format!("tuntap add dev {tap} mode tap"));
        if spec.rate.is_some() {
            let (own, near, far) = (format!("b{node}"), format!("x{node}"), format!("l{node}"));
            layout.bridge(&own);
            layout.link(spec, &near, &far);
            layout.plug(&tap, &own);
            layout.plug(&near, &own);
            layout.plug(&far, &leaf);
        } else {
            layout.links += 1;
            layout.plug(&tap, &leaf);
        }
    }
    layout
}

/// The interface of an I/O service.
pub(crate) fn io_interface(service: u32) -> String {
    format!("io{service}")
}

fn switch(level: usize, index: u32) -> String {
    format!("s{level}-{index}")
}

impl Layout {
    fn ip_line(&mut self, line: &str) {
        self.ip.push_str(line);
        self.ip.push('\n');
    }

    /// A bridge that forwards at once (no spanning tree: the topology is a tree already) and
    /// floods multicast (nobody here asks for group membership before it needs an answer).
    fn bridge(&mut self, name: &str) {
        self.ip_line(&format!(
            "link add {name} type bridge stp_state 0 forward_delay 0 mcast_snooping 0"
        ));
        self.ip_line(&format!("link set {name} addrgenmode none"));
        self.ip_line(&format!("link set {name} up"));
    }

    /// A veth pair, limited at both ends.
    fn link(&mut self, spec: &Spec, one: &str, other: &str) {
        self.links += 1;
        self.ip_line(&format!("link add {one} type veth peer name {other}"));
        let Some(rate) = spec.rate else { return };
        let burst = (rate.bits_per_second() / 8 * BURST_MS / 1_000).max(MIN_BURST_BYTES);
        for end in [one, other] {
            // Writing to a String cannot fail.
            let _ = writeln!(
                self.tc,
                "qdisc add dev {end} root tbf rate {rate} burst {burst} latency {QUEUE_MS}ms"
            );
        }
    }

    /// Plugs an interface into a bridge and switches it on.
    fn plug(&mut self, interface: &str, bridge: &str) {
        self.ip_line(&format!("link set {interface} addrgenmode none"));
        self.ip_line(&format!("link set {interface} master {bridge}"));
        self.ip_line(&format!("link set {interface} up"));
    }
}

/// Makes the network, in the namespace of this process.
pub(crate) fn apply(layout: &Layout) -> Result<(), Error> {
    keep_addresses_apart();
    batch("ip", &layout.ip)?;
    bypass_packet_filter();
    if layout.tc.is_empty() {
        Ok(())
    } else {
        batch("tc", &layout.tc)
    }
}

/// Several interfaces here have addresses of one network. Each answers for its own alone, sends
/// from its own, and takes what nodes send to it.
fn keep_addresses_apart() {
    // Without them nodes may send to the wrong one, which is slower and not wrong.
    for (name, value) in [
        ("arp_ignore", "1"),
        ("arp_announce", "2"),
        ("rp_filter", "0"),
    ] {
        for of in ["all", "default"] {
            let _ = fs::write(format!("/proc/sys/net/ipv4/conf/{of}/{name}"), value);
        }
    }
}

/// Frames need not pass the packet filter of the machine's kernel on their way through the bridges:
/// nothing is filtered here, and each frame crosses four bridges. Where it cannot be switched off,
/// or is not there, it only costs time.
fn bypass_packet_filter() {
    // Each network namespace has files of its own here.
    for name in ["iptables", "ip6tables", "arptables"] {
        let _ = fs::write(format!("/proc/sys/net/bridge/bridge-nf-call-{name}"), "0");
    }
}

fn batch(program: &str, lines: &str) -> Result<(), Error> {
    let start = |source| Error::Start {
        program: program.to_owned(),
        source,
    };
    let path = find_program(program).ok_or_else(|| start(std::io::ErrorKind::NotFound.into()))?;
    let mut child = Command::new(path)
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(start)?;
    if let Some(mut input) = child.stdin.take() {
        // When the program ends early, its message says more than this error would.
        let _ = input.write_all(lines.as_bytes());
    }
    let output = child.wait_with_output().map_err(start)?;
    if output.status.success() {
        return Ok(());
    }
    let mut message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if let Some(line) = failed_line(&message, lines) {
        message = format!("{message} (`{line}`)");
    }
    if message.contains("Operation not permitted") {
        message = format!("{message}; {}", namespace::user_namespace_advice());
    }
    Err(Error::Network {
        command: format!("{program} -batch"),
        message,
    })
}

/// The line that `ip` or `tc` complained about: both end with "Command failed -:LINE".
fn failed_line<'a>(message: &str, lines: &'a str) -> Option<&'a str> {
    let number: usize = message.rsplit_once("-:")?.1.trim().parse().ok()?;
    lines.lines().nth(number.checked_sub(1)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Accelerator, Cards, Firmware, MAX_NODES};

    fn spec(nodes: u32, tree: &str, rate: Option<&str>) -> Spec {
        Spec {
            name: "test".to_owned(),
            nodes,
            memory_mib: 48,
            cpus: 1,
            tree: tree.parse().unwrap(),
            rate: rate.map(|rate| rate.parse().unwrap()),
            firmware: Firmware::Bios,
            accelerator: Accelerator::Tcg,
            cards: Cards::default(),
            image: "/dev/null".into(),
            command_line: String::new(),
            instruction_shift: None,
            trace: None,
            io_services: 0,
            debugged: Vec::new(),
        }
    }

    #[test]
    fn a_flat_cluster_is_one_switch_with_taps() {
        let layout = layout(&spec(2, "2", None));
        assert_eq!((layout.switches, layout.links), (1, 3));
        assert!(layout.ip.contains("link set n1 master s0-0\n"));
        assert!(layout.ip.contains("link set service-port master s0-0\n"));
        assert!(layout.tc.is_empty());
    }

    #[test]
    fn a_tree_joins_its_leaves_above_and_limits_both_ends_of_every_link() {
        let layout = layout(&spec(8, "4x2", Some("50mbit")));
        // Links: two to the upper switch, control's, one a node.
        assert_eq!((layout.switches, layout.links), (3, 11));
        assert!(layout.ip.contains("link set u0-1 master s0-1\n"));
        assert!(layout.ip.contains("link set d0-1 master s1-0\n"));
        assert!(layout.ip.contains("link set l5 master s0-1\n"));
        assert!(layout.ip.contains("link set service-port master s1-0\n"));
        assert_eq!(layout.tc.lines().count(), 22);
        assert!(
            layout
                .tc
                .lines()
                .all(|line| line.contains("rate 50mbit burst 25000 "))
        );
    }

    #[test]
    fn each_io_service_has_a_limited_link_to_the_top() {
        let mut spec = spec(8, "4x2", Some("50mbit"));
        spec.io_services = 2;
        let layout = layout(&spec);
        assert_eq!((layout.links, layout.tc.lines().count()), (13, 26));
        for line in [
            "link set io1-port master s1-0\n",
            "address add 10.117.0.3/16 dev io1\n",
        ] {
            assert!(layout.ip.contains(line), "{line}");
        }
        assert!(layout.tc.contains("dev io0 root") && layout.tc.contains("dev io0-port root"));
    }

    #[test]
    fn names_fit_the_kernel() {
        let layout = layout(&spec(MAX_NODES, "1x1x1x256", Some("1mbit")));
        let longest = layout.ip.split_whitespace().filter(|word| {
            word.starts_with(['s', 'u', 'd', 'n', 'b', 'x', 'l']) && word.contains(char::is_numeric)
        });
        assert!(longest.map(str::len).max().is_some_and(|bytes| bytes <= 15));
    }

    #[test]
    fn the_failing_line_is_shown() {
        let lines = "link set lo up\nlink add x type bridge\n";
        let message = "RTNETLINK answers: Operation not permitted\nCommand failed -:2";
        assert_eq!(failed_line(message, lines), Some("link add x type bridge"));
        assert_eq!(failed_line("no number", lines), None);
    }
}
