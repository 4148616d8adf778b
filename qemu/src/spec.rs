//! What a cluster shall be: nodes, memory, tree of switches, link rate, firmware.
//!
//! Key types: [`Spec`], [`Rate`], [`Firmware`]; [`Tree`] has a module of its own. Neighbours:
//! `network` lays out the tree, `machine` makes QEMU command lines of it.
//!
//! Invariant: a [`Spec`] that passed [`Spec::check`] can be laid out without further checks.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Accelerator, Cards, Error, Tree};

/// Most nodes of one cluster: what the address plan and one bridge (1,024 ports) hold with room
/// to spare; far above what one machine can emulate.
pub const MAX_NODES: u32 = 256;
/// Most processors of a machine: what the kernel is meant for.
pub const MAX_CPUS: u32 = 64;
/// Most I/O services of a cluster: one for each 64 nodes of the largest, and as many again.
pub const MAX_IO_SERVICES: u32 = 8;
/// Least memory of a machine: what the kernel promises to work in.
const MIN_MEMORY_MIB: u32 = 32;
/// Most memory of a machine: a slip of the pen (bytes for mebibytes) is an error, not an attempt.
const MAX_MEMORY_MIB: u32 = 65_536;
/// Least memory with UEFI firmware, which itself needs more than the kernel.
const MIN_UEFI_MEMORY_MIB: u32 = 96;
/// Longest cluster name: it becomes part of socket paths, which hold 107 bytes.
const MAX_NAME_BYTES: usize = 32;

/// How a machine starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Firmware {
    /// SeaBIOS and the network card's iPXE.
    Bios,
    /// OVMF and its own network boot.
    Uefi,
    /// No firmware worth the name: QEMU places the image itself (`-kernel`).
    Direct,
}

/// A link rate in bits a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate(u64);

impl Rate {
    /// Slowest link: below it a DHCP exchange takes seconds and firmware gives up.
    const MIN_BITS: u64 = 100_000;
    /// Fastest link: above it the limit is not what limits.
    const MAX_BITS: u64 = 100_000_000_000;

    /// Bits a second.
    pub fn bits_per_second(self) -> u64 {
        self.0
    }
}

impl FromStr for Rate {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        netstack::size::rate(text)
            .filter(|bits| (Self::MIN_BITS..=Self::MAX_BITS).contains(bits))
            .map(Self)
            .ok_or_else(|| {
                Error::Spec(format!(
                    "`{text}` is no link rate: write a number and a unit (kbit, mbit, gbit), \
                     like 50mbit; from 100kbit to 100gbit"
                ))
            })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bits if bits.is_multiple_of(1_000_000_000) => {
                write!(formatter, "{}gbit", bits / 1_000_000_000)
            }
            bits if bits.is_multiple_of(1_000_000) => write!(formatter, "{}mbit", bits / 1_000_000),
            bits if bits.is_multiple_of(1_000) => write!(formatter, "{}kbit", bits / 1_000),
            bits => write!(formatter, "{bits}bit"),
        }
    }
}

/// A machine's memory from text like `48M`, `1G` or `64` (mebibytes), in mebibytes.
pub fn parse_memory_mib(text: &str) -> Result<u32, Error> {
    let (digits, factor) = match text.as_bytes().last() {
        Some(b'M' | b'm') => (&text[..text.len() - 1], 1),
        Some(b'G' | b'g') => (&text[..text.len() - 1], 1024),
        _ => (text, 1),
    };
    digits
        .parse::<u32>()
        .ok()
        .and_then(|number| number.checked_mul(factor))
        .ok_or_else(|| {
            Error::Spec(format!(
                "`{text}` is no amount of memory: write mebibytes, like 48M, or 1G"
            ))
        })
}

/// UDP port of I/O services.
const IO_SERVICE_PORT: u16 = 7118;

/// Processors of a machine of which nothing is said.
fn one() -> u32 {
    1
}

/// A cluster as it shall be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// Cluster name: lower-case letters, digits, `-`, `_`.
    pub name: String,
    /// Number of nodes, 1 to [`MAX_NODES`].
    pub nodes: u32,
    /// Memory of each machine, in mebibytes.
    pub memory_mib: u32,
    /// Processors of each machine, 1 to [`MAX_CPUS`].
    #[serde(default = "one")]
    pub cpus: u32,
    /// Tree of switches.
    pub tree: Tree,
    /// Rate limit of every link in each direction; none means as fast as the machine goes.
    pub rate: Option<Rate>,
    /// How the machines start.
    pub firmware: Firmware,
    /// What executes their instructions.
    #[serde(default)]
    pub accelerator: Accelerator,
    /// Their network cards.
    #[serde(default)]
    pub cards: Cards,
    /// The boot image. Served by the control node, or given to QEMU with [`Firmware::Direct`].
    pub image: PathBuf,
    /// Kernel command line: given to QEMU with [`Firmware::Direct`], to the boot service otherwise.
    /// Empty leaves the default.
    pub command_line: String,
    /// Machines' clocks count instructions instead of time (`-icount`), each of 2 to the power of
    /// this nanoseconds: slow, but with 0 a count of the time-stamp counter is a count of
    /// instructions. A higher one lets the clock keep up with the host's; it never runs ahead.
    #[serde(default)]
    pub instruction_shift: Option<u8>,
    /// What each machine's QEMU writes to its own log, [`crate::Paths::trace_log`]: items of QEMU's
    /// `-d`, for example `int` for interrupts and exceptions. None writes no such log.
    #[serde(default)]
    pub trace: Option<String>,
    /// I/O services, each a process with a link of its own; none: the control node has one.
    #[serde(default)]
    pub io_services: u32,
    /// Nodes whose QEMU takes a debugger at [`crate::Paths::debugger_socket`].
    #[serde(default)]
    pub debugged: Vec<u32>,
}

impl Spec {
    /// Checks everything that can be wrong with the values themselves.
    pub fn check(&self) -> Result<(), Error> {
        check_name(&self.name)?;
        if !(1..=MAX_NODES).contains(&self.nodes) {
            return Err(Error::Spec(format!(
                "{} nodes: a cluster has 1 to {MAX_NODES}",
                self.nodes
            )));
        }
        let room = self.tree.nodes_below(self.tree.levels() - 1);
        if room < u64::from(self.nodes) {
            return Err(Error::Spec(format!(
                "a tree of {} has room for {room} nodes, not for {}",
                self.tree, self.nodes
            )));
        }
        self.cards.check(self.nodes, self.firmware)?;
        if let Some(node) = self.debugged.iter().find(|node| **node >= self.nodes) {
            return Err(Error::Spec(format!(
                "there is no n{node} to debug: the cluster has n0 to n{}",
                self.nodes - 1
            )));
        }
        let (least, why) = match self.firmware {
            Firmware::Bios | Firmware::Direct => (MIN_MEMORY_MIB, "the kernel needs"),
            Firmware::Uefi => (MIN_UEFI_MEMORY_MIB, "UEFI firmware needs"),
        };
        if !(least..=MAX_MEMORY_MIB).contains(&self.memory_mib) {
            return Err(Error::Spec(format!(
                "{}M of memory: {why} at least {least}M (at most {MAX_MEMORY_MIB}M)",
                self.memory_mib
            )));
        }
        if !(1..=MAX_CPUS).contains(&self.cpus) {
            return Err(Error::Spec(format!(
                "{} processors: a machine has 1 to {MAX_CPUS}",
                self.cpus
            )));
        }
        if self.io_services > MAX_IO_SERVICES {
            return Err(Error::Spec(format!(
                "{} I/O services: a cluster has at most {MAX_IO_SERVICES}",
                self.io_services
            )));
        }
        if !self.image.is_file() {
            return Err(Error::Spec(format!(
                "there is no boot image at {}: `cargo xtask build` makes one",
                self.image.display()
            )));
        }
        Ok(())
    }

    /// The option of `hearth up` that only emulated machines can serve, if one is used.
    pub(crate) fn needs_emulation(&self) -> Option<&'static str> {
        if self.instruction_shift.is_some() {
            return Some("--icount");
        }
        self.trace.as_ref().map(|_| "--trace")
    }

    /// Address of the control node, and the prefix length of the boot network.
    pub const CONTROL_ADDRESS: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 117, 0, 1), 16);

    /// Address of an I/O service; each has an interface of its own.
    pub fn io_service_address(service: u32) -> SocketAddrV4 {
        let [_, _, _, low] = service.to_be_bytes();
        // MAX_IO_SERVICES keeps it far below 256.
        let address = Ipv4Addr::new(10, 117, 0, 2 + low);
        SocketAddrV4::new(address, IO_SERVICE_PORT)
    }

    /// Fixed address of a node: 10.117.1.1 is node 0, 250 nodes in each third byte.
    pub fn node_address(node: u32) -> Ipv4Addr {
        let [third, fourth] = [1 + node / 250, 1 + node % 250];
        // MAX_NODES keeps both far below 256.
        Ipv4Addr::new(10, 117, third.to_le_bytes()[0], fourth.to_le_bytes()[0])
    }

    /// Hardware address of a node.
    pub fn node_mac(node: u32) -> String {
        let [_, _, high, low] = node.to_be_bytes();
        format!("52:54:00:07:{high:02x}:{low:02x}")
    }
}

/// What a cluster may be called, for the errors of those who ask [`is_cluster_name`].
pub const CLUSTER_NAMES: &str = "1 to 32 letters, digits, `-` and `_`, the first no `-`";

/// Whether a cluster may have this name, which becomes that of a directory: the one rule for the
/// clusters of `hearth up` and of `hearth serve`.
pub fn is_cluster_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=MAX_NAME_BYTES).contains(&name.len())
        && !name.starts_with('-')
        && name.bytes().all(allowed)
}

pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    match is_cluster_name(name) {
        true => Ok(()),
        false => Err(Error::Spec(format!(
            "`{name}` is no cluster name: use {CLUSTER_NAMES}"
        ))),
    }
}

#[cfg(test)]
impl Spec {
    /// For tests: machines that are started without firmware, on one switch or several.
    pub(crate) fn example(name: &str, nodes: u32, tree: &str) -> Self {
        Self {
            name: name.to_owned(),
            nodes,
            memory_mib: 48,
            cpus: 1,
            tree: tree.parse().expect("a tree"),
            rate: None,
            firmware: Firmware::Direct,
            accelerator: Accelerator::Tcg,
            cards: Cards::default(),
            image: PathBuf::from("/dev/null"),
            command_line: String::new(),
            instruction_shift: None,
            trace: None,
            io_services: 0,
            debugged: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(nodes: u32, tree: &str) -> Spec {
        Spec::example("test", nodes, tree)
    }

    #[test]
    fn values_are_parsed_or_refused_with_an_example() {
        assert_eq!(
            "50mbit".parse::<Rate>().unwrap().bits_per_second(),
            50_000_000
        );
        assert_eq!("50mbit".parse::<Rate>().unwrap().to_string(), "50mbit");
        for bad in [
            "",
            "50",
            "mbit",
            "50mb",
            "1bit",
            "-5mbit",
            "99999999999999999999gbit",
        ] {
            assert!(
                bad.parse::<Rate>()
                    .unwrap_err()
                    .to_string()
                    .contains("50mbit"),
                "{bad}"
            );
        }
        assert_eq!(parse_memory_mib("48M").unwrap(), 48);
        assert_eq!(parse_memory_mib("1G").unwrap(), 1024);
        assert_eq!(parse_memory_mib("64").unwrap(), 64);
        assert!(parse_memory_mib("").is_err() && parse_memory_mib("M").is_err());
        assert!(parse_memory_mib("9999999G").is_err());
    }

    #[test]
    fn impossible_clusters_are_refused() {
        let mut good = spec(8, "4x2");
        good.image = std::env::current_exe().unwrap();
        good.check().unwrap();
        let check = |change: &dyn Fn(&mut Spec)| {
            let mut spec = good.clone();
            change(&mut spec);
            spec.check().unwrap_err().to_string()
        };
        assert!(check(&|spec| spec.nodes = 0).contains("1 to 256"));
        assert!(check(&|spec| spec.nodes = 9).contains("room for 8"));
        assert!(check(&|spec| spec.cpus = 0).contains("1 to 64"));
        assert!(check(&|spec| spec.io_services = 9).contains("at most 8"));
        assert!(check(&|spec| spec.cpus = 65).contains("1 to 64"));
        assert!(check(&|spec| spec.memory_mib = 31).contains("at least 32M"));
        assert!(check(&|spec| spec.firmware = Firmware::Uefi).contains("at least 96M"));
        assert!(check(&|spec| spec.name = "../x".to_owned()).contains("is no cluster name"));
        assert!(check(&|spec| spec.image = PathBuf::from("/nowhere")).contains("xtask build"));
    }

    #[test]
    fn a_cluster_name_is_that_of_a_directory_and_no_option() {
        for good in ["a", "Lab-2_x", &"x".repeat(32)] {
            assert!(is_cluster_name(good), "{good}");
        }
        for bad in ["", "..", "a/b", "-x", &"x".repeat(33), "a b"] {
            assert!(!is_cluster_name(bad), "{bad}");
        }
    }

    #[test]
    fn every_node_has_an_address_and_a_mac_of_its_own() {
        let addresses: std::collections::BTreeSet<_> = (0..MAX_NODES)
            .map(|node| (Spec::node_address(node), Spec::node_mac(node)))
            .collect();
        assert_eq!(addresses.len(), 256);
        assert_eq!(Spec::node_address(0), Ipv4Addr::new(10, 117, 1, 1));
        assert_eq!(Spec::node_address(255), Ipv4Addr::new(10, 117, 2, 6));
        assert_eq!(Spec::node_mac(17), "52:54:00:07:00:11");
    }
}
