//! Machines in miniature: one network namespace each, on one switch, every link limited in both
//! directions.
//!
//! Key types: [`Network`], [`Traffic`]. Neighbours: the `peers` of [`super::broadcast`] and
//! [`super::exchange`] run programs on the nodes and measure.
//!
//! The limiter is tc's token bucket filter: there is no network emulator in every kernel, and
//! nothing here needs one. It charges 14 bytes of Ethernet header and no preamble, checksum or gap.
//!
//! Invariant: namespaces are gone when their value is, or when this process is: each is held by a
//! `cat` that ends with its standard input.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

/// The bucket: 2.6 ms of a link of 50 Mbit/s, and more than a full frame at any rate used here.
const BURST_BYTES: u64 = 16_384;
/// The interface of every node.
pub const INTERFACE: &str = "eth0";

/// What a link of a node has carried, as the switch counted it behind the limiters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// From the node to the switch.
    pub sent_bytes: u64,
    /// From the switch to the node.
    pub received_bytes: u64,
}

/// A process that keeps a set of namespaces.
struct Holder(Child);

impl Holder {
    /// Starts `command`, which must say a line when its namespaces are there and then stay until
    /// its input ends.
    fn start(mut command: Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting unshare; `cargo xtask setup` installs it (util-linux)")?;
        let mut line = String::new();
        let said = child.stdout.take().map(BufReader::new);
        said.context("no standard output")?.read_line(&mut line)?;
        let holder = Self(child);
        ensure!(
            !line.is_empty(),
            "this machine does not allow a network namespace: run this as root, or allow user namespaces"
        );
        Ok(holder)
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        drop(self.0.wait());
    }
}

/// Nodes from 0 on, on one switch: where one sends, it is node 0.
pub struct Network {
    /// Dropped first: the nodes' links end with them.
    nodes: Vec<Holder>,
    hub: Holder,
    is_root: bool,
}

impl Network {
    /// Makes the network; `rate` gives the bits a second of a node's link, `None` for as fast as it
    /// goes; `queue_bytes` may wait in front of a link.
    pub fn make(
        receivers: usize,
        queue_bytes: u64,
        rate: impl Fn(usize) -> Option<u64>,
    ) -> Result<Self> {
        let is_root = nix::unistd::getuid().is_root();
        let stay = |name: &str| format!("hostname {name} && echo held && exec cat");
        let mut command = Command::new("unshare");
        if !is_root {
            command.arg("-r");
        }
        command.args(["-n", "-u", "sh", "-c", &stay("hub")]);
        let hub = Holder::start(command)?;
        let mut network = Self {
            nodes: Vec::new(),
            hub,
            is_root,
        };
        for node in 0..=receivers {
            let mut command = network.enter(&network.hub, &[]);
            command.args(["unshare", "-n", "-u", "sh", "-c", &stay(&host(node))]);
            network.nodes.push(Holder::start(command)?);
        }
        network.plug(queue_bytes, rate)?;
        Ok(network)
    }

    fn plug(&self, queue_bytes: u64, rate: impl Fn(usize) -> Option<u64>) -> Result<()> {
        let mut switch = String::from(
            "link set lo up\n\
             link add name switch type bridge stp_state 0 forward_delay 0 mcast_snooping 0\n\
             link set switch up\n",
        );
        let mut limits = String::new();
        for (node, holder) in self.nodes.iter().enumerate() {
            let port = port(node);
            switch.push_str(&format!(
                "link add {port} type veth peer name {INTERFACE} netns {}\n\
                 link set {port} master switch\nlink set {port} up\n",
                holder.pid()
            ));
            if let Some(rate) = rate(node) {
                limits.push_str(&limit(&port, rate, queue_bytes));
            }
        }
        self.batch(&self.hub, "ip", &switch)?;
        self.bypass_packet_filter()?;
        self.batch(&self.hub, "tc", &limits)?;
        for (node, holder) in self.nodes.iter().enumerate() {
            self.batch(
                holder,
                "ip",
                &format!(
                    "link set lo up\naddress add {}/24 brd + dev {INTERFACE}\nlink set {INTERFACE} up\n\
                     route add 224.0.0.0/4 dev {INTERFACE}\n",
                    address(node)
                ),
            )?;
            if let Some(rate) = rate(node) {
                self.batch(holder, "tc", &limit(INTERFACE, rate, queue_bytes))?;
            }
        }
        Ok(())
    }

    /// Frames need not pass the packet filter of the host's kernel on their way through the switch:
    /// nothing is filtered here, and it costs every program the same processor time. Where it
    /// cannot be switched off it stays.
    fn bypass_packet_filter(&self) -> Result<()> {
        let script = "for f in /proc/sys/net/bridge/bridge-nf-call-*; do [ -w \"$f\" ] && echo 0 > \"$f\"; done; true";
        let status = self
            .enter(&self.hub, &["-n"])
            .args(["sh", "-c", script])
            .stderr(Stdio::null())
            .status()?;
        ensure!(status.success(), "sh: {status}");
        Ok(())
    }

    /// All nodes.
    pub fn nodes(&self) -> std::ops::Range<usize> {
        0..self.nodes.len()
    }

    /// Large segments are taken apart before they reach the limiter, as cards do.
    pub fn take_segments_apart(&self) -> Result<()> {
        let link = format!("link set dev {INTERFACE} gso_max_segs 1\n");
        for holder in &self.nodes {
            self.batch(holder, "ip", &link)?;
        }
        Ok(())
    }

    /// Every node from now on loses one of so many packets that arrive, at random; and large
    /// segments are taken apart before, as cards do, so that a loss is that of a frame.
    pub fn lose_one_of(&self, packets: u32) -> Result<()> {
        self.take_segments_apart()?;
        for holder in &self.nodes {
            let rules = format!(
                "table inet loss {{ chain input {{ type filter hook input priority 0; \
                 iifname \"{INTERFACE}\" numgen random mod {packets} == 0 drop; }}; }}"
            );
            let status = self.enter(holder, &["-n"]).args(["nft", &rules]).status();
            let status = status.context("starting nft; `cargo xtask setup` installs it")?;
            ensure!(status.success(), "nft: {status}");
        }
        Ok(())
    }

    /// Receivers.
    pub fn receivers(&self) -> std::ops::RangeInclusive<usize> {
        1..=self.nodes.len() - 1
    }

    /// A command that runs on a node: add the program and its arguments.
    pub fn on(&self, node: usize) -> Command {
        self.enter(&self.nodes[node], &["-n", "-u"])
    }

    /// Writes a script that runs a command on the node whose address is its first argument, as
    /// `ssh` would.
    pub fn write_remote_shell(&self, folder: &Path) -> Result<PathBuf> {
        let mut cases = String::new();
        for (node, holder) in self.nodes.iter().enumerate() {
            cases.push_str(&format!("{}) pid={} ;;\n", address(node), holder.pid()));
        }
        // Whoever starts it is on a node, in the user namespace of all of them.
        let script = format!(
            "#!/bin/sh\n# HOST COMMAND...: runs a command on a node.\n\
             while [ \"${{1#-}}\" != \"$1\" ]; do shift; done\n\
             case $1 in\n{cases}*) echo \"no node is $1\" >&2; exit 1 ;;\nesac\nshift\n\
             exec nsenter -t $pid -n -u sh -c \"$*\"\n"
        );
        let path = folder.join("remote-shell");
        fs::write(&path, script)?;
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&path, mode)?;
        Ok(path)
    }

    /// What each node's link has carried since it was made.
    pub fn traffic(&self) -> Result<Vec<Traffic>> {
        let text = fs::read_to_string(format!("/proc/{}/net/dev", self.hub.pid()))?;
        parse_traffic(&text, self.nodes.len())
    }

    fn enter(&self, holder: &Holder, namespaces: &[&str]) -> Command {
        let mut command;
        if self.is_root && namespaces.is_empty() {
            // Nothing to enter: `env` runs what is added.
            command = Command::new("env");
        } else {
            command = Command::new("nsenter");
            command.args(["-t", &holder.pid()]);
            if !self.is_root {
                command.args(["-U", "--preserve-credentials"]);
            }
            command.args(namespaces);
        }
        command
    }

    fn batch(&self, holder: &Holder, program: &str, lines: &str) -> Result<()> {
        let mut child = self
            .enter(holder, &["-n"])
            .args([program, "-batch", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("starting nsenter; `cargo xtask setup` installs it (util-linux)")?;
        let mut input = child.stdin.take().context("no standard input")?;
        input.write_all(lines.as_bytes())?;
        drop(input);
        let output = child.wait_with_output()?;
        if !output.status.success() {
            bail!(
                "{program} -batch: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        Ok(())
    }
}

/// Address of a node.
pub fn address(node: usize) -> Ipv4Addr {
    // Far fewer than 250 nodes are ever made.
    Ipv4Addr::new(10, 77, 0, node as u8 + 1)
}

fn host(node: usize) -> String {
    format!("node{node}")
}

fn port(node: usize) -> String {
    format!("p{node}")
}

fn limit(interface: &str, bits_per_second: u64, queue_bytes: u64) -> String {
    format!(
        "qdisc add dev {interface} root tbf rate {bits_per_second}bit burst {BURST_BYTES} limit {queue_bytes}\n"
    )
}

/// Reads the switch's interfaces out of `/proc/net/dev`: what its port received, the node has sent.
fn parse_traffic(text: &str, nodes: usize) -> Result<Vec<Traffic>> {
    let mut all = vec![None; nodes];
    for line in text.lines() {
        let Some((name, counters)) = line.split_once(':') else {
            continue;
        };
        let Some(node) = name.trim().strip_prefix('p').and_then(|n| n.parse().ok()) else {
            continue;
        };
        let counter =
            |index| -> Option<u64> { counters.split_whitespace().nth(index)?.parse().ok() };
        if let (Some(slot), Some(sent_bytes), Some(received_bytes)) =
            (all.get_mut::<usize>(node), counter(0), counter(8))
        {
            *slot = Some(Traffic {
                sent_bytes,
                received_bytes,
            });
        }
    }
    all.into_iter()
        .collect::<Option<_>>()
        .context("the switch has lost a port")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_is_seen_from_the_node() {
        let text = "Inter-| Receive | Transmit\n    lo: 1 0 0 0 0 0 0 0 1 0 0 0 0 0 0 0\n\
                    p0:  70 1 0 0 0 0 0 0  900 3 0 0 0 0 0 0\n    p1: 5 1 0 0 0 0 0 0 6 3 0 0 0 0 0 0\n";
        let all = parse_traffic(text, 2).unwrap();
        assert_eq!((all[0].sent_bytes, all[0].received_bytes), (70, 900));
        assert_eq!((all[1].sent_bytes, all[1].received_bytes), (5, 6));
        assert!(parse_traffic(text, 3).is_err());
    }
}
