//! What an operator decides about the boot service.

use crate::mac::Mac;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::time::Duration;

/// Most leases a configuration may ask for. The largest machine planned for has 16,512 nodes; a
/// table of this size costs a few megabytes.
pub const MAX_LEASES: usize = 32_768;

/// Lease time given out when the configuration does not say: long against any boot or job, so
/// that no renewal falls into a download.
pub const DEFAULT_LEASE_TIME: Duration = Duration::from_secs(7 * 24 * 3600);

/// TCP port of the boot network's HTTP server when the configuration does not say.
pub const DEFAULT_HTTP_PORT: u16 = 7180;

/// Everything the service needs to know. [`Config::new`] fills in the usual values.
#[derive(Clone, Debug)]
pub struct Config {
    /// Network interface of the boot network; all sockets are bound to it.
    pub interface: String,
    /// The service's own address on that interface.
    pub address: Ipv4Addr,
    /// Length of the boot network's prefix, in bits.
    pub prefix: u8,
    /// Where machines reach [`crate::Service::router`]: put into scripts and boot URLs.
    pub http: SocketAddrV4,
    /// Which machines get which addresses. Not used with `proxy_dhcp`.
    pub leases: Leases,
    /// How long an address is given out for.
    pub lease_time: Duration,
    /// Router announced to the machines, if the boot network has one.
    pub gateway: Option<Ipv4Addr>,
    /// The boot image (`hearth.efi`). Read again when the file changes.
    pub image: PathBuf,
    /// Directory with network boot programs for firmware that is not iPXE (`undionly.kpxe`).
    pub firmware_dir: PathBuf,
    /// Kernel command line, given to machines that boot through iPXE.
    pub command_line: String,
    /// Boot this instead of the image, on machines that boot through iPXE.
    pub other: Option<OtherSystem>,
    /// Whether the kernel in the image drives a network card, by PCI vendor and device. A machine
    /// whose iPXE names another card loads nothing.
    pub drives: fn(vendor: u16, device: u16) -> bool,
    /// Leave addresses to another DHCP server and only say what to boot.
    pub proxy_dhcp: bool,
    /// How iPXE fetches its script and the image.
    pub image_transport: ImageTransport,
    /// File that keeps the leases over a restart. Without one, an address that a machine still
    /// holds is recognised when the machine renews it.
    pub lease_file: Option<PathBuf>,
}

impl Config {
    /// A configuration with a range over the whole prefix, HTTP on the usual port and no router.
    pub fn new(interface: &str, address: Ipv4Addr, prefix: u8, image: PathBuf) -> Config {
        Config {
            interface: interface.to_owned(),
            address,
            prefix,
            http: SocketAddrV4::new(address, DEFAULT_HTTP_PORT),
            leases: Leases::whole_prefix(address, prefix),
            lease_time: DEFAULT_LEASE_TIME,
            gateway: None,
            image,
            firmware_dir: PathBuf::from("/usr/lib/ipxe"),
            command_line: String::new(),
            other: None,
            drives: |_, _| true,
            proxy_dhcp: false,
            image_transport: ImageTransport::Http,
            lease_file: None,
        }
    }

    /// The mask that belongs to `prefix`.
    pub fn netmask(&self) -> Ipv4Addr {
        netmask(self.prefix)
    }

    /// Whether `address` lies in the boot network.
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        let mask = self.netmask().to_bits();
        address.to_bits() & mask == self.address.to_bits() & mask
    }

    /// Checks the values against each other.
    ///
    /// # Errors
    /// A sentence that names the wrong value and says what to write instead.
    pub fn check(&self) -> Result<(), String> {
        if self.interface.is_empty() || self.interface.len() > 15 {
            return Err(format!(
                "interface {:?}: name an existing network interface, as `ip link` shows it",
                self.interface
            ));
        }
        if !(8..=30).contains(&self.prefix) {
            return Err(format!(
                "prefix /{}: use a length from /8 to /30, for example /16",
                self.prefix
            ));
        }
        let other = self.other.as_ref().map(|other| other.command_line.as_str());
        for line in [self.command_line.as_str()].into_iter().chain(other) {
            check_command_line(line)?;
        }
        if self.proxy_dhcp {
            return Ok(());
        }
        match &self.leases {
            Leases::Range { first, last } => self.check_range(*first, *last),
            Leases::Fixed(leases) => self.check_fixed(leases),
        }
    }

    fn check_range(&self, first: Ipv4Addr, last: Ipv4Addr) -> Result<(), String> {
        if !self.contains(first) || !self.contains(last) || first > last {
            return Err(format!(
                "lease range {first} to {last} is not inside {}/{}: give a first and a last address of that network",
                self.address, self.prefix
            ));
        }
        Ok(())
    }

    fn check_fixed(&self, leases: &[FixedLease]) -> Result<(), String> {
        if leases.len() > MAX_LEASES {
            return Err(format!(
                "{} fixed leases; at most {MAX_LEASES} are served",
                leases.len()
            ));
        }
        let mut macs = std::collections::BTreeSet::new();
        let mut addresses = std::collections::BTreeSet::new();
        for lease in leases {
            if !self.contains(lease.address) || lease.address == self.address {
                return Err(format!(
                    "fixed lease {} for {}: choose an address of {}/{} other than the service's own",
                    lease.address, lease.mac, self.address, self.prefix
                ));
            }
            if !lease.mac.is_station() || !macs.insert(lease.mac) {
                return Err(format!(
                    "fixed lease for {}: every machine needs one MAC address of its own, listed once",
                    lease.mac
                ));
            }
            if !addresses.insert(lease.address) {
                return Err(format!(
                    "two machines have the fixed lease {}",
                    lease.address
                ));
            }
        }
        Ok(())
    }
}

/// Which machines are served and with which addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leases {
    /// Any machine gets an address from `first` to `last`, both included.
    Range { first: Ipv4Addr, last: Ipv4Addr },
    /// Only these machines are answered.
    Fixed(Vec<FixedLease>),
}

impl Leases {
    /// All host addresses of the network `address`/`prefix`, at most [`MAX_LEASES`].
    pub fn whole_prefix(address: Ipv4Addr, prefix: u8) -> Leases {
        let mask = netmask(prefix).to_bits();
        let first = (address.to_bits() & mask).saturating_add(1);
        let last = (address.to_bits() | !mask).saturating_sub(1);
        let last = last.min(first.saturating_add(MAX_LEASES as u32 - 1));
        Leases::Range {
            first: Ipv4Addr::from_bits(first),
            last: Ipv4Addr::from_bits(last.max(first)),
        }
    }
}

/// One machine's fixed address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedLease {
    pub mac: Mac,
    pub address: Ipv4Addr,
    /// Node number, for names and the timeline.
    pub node: u32,
}

/// Another system to boot once on the machines, for comparison or repair. Its files are served by
/// HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherSystem {
    /// A Linux kernel (bzImage).
    pub kernel: PathBuf,
    /// Its initial file system.
    pub initrd: Option<PathBuf>,
    /// Its command line.
    pub command_line: String,
}

/// How iPXE fetches its script and the image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ImageTransport {
    /// HTTP: fast, and one connection tells how far a download came.
    #[default]
    Http,
    /// TFTP, for iPXE builds without HTTP.
    Tftp,
}

/// The command line becomes part of an iPXE script line: it must not end the line nor mean
/// something to iPXE.
fn check_command_line(line: &str) -> Result<(), String> {
    let operator = line
        .split_whitespace()
        .any(|word| matches!(word, "&&" | "||"));
    if line.chars().any(char::is_control) || line.contains("${") || operator {
        return Err(format!(
            "command line {line:?}: write it on one line, without \"${{\", \"&&\" or \"||\""
        ));
    }
    Ok(())
}

fn netmask(prefix: u8) -> Ipv4Addr {
    let bits = u32::MAX
        .checked_shl(32 - u32::from(prefix.min(32)))
        .unwrap_or(0);
    Ipv4Addr::from_bits(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config::new("br0", Ipv4Addr::new(10, 117, 0, 1), 16, "hearth.efi".into())
    }

    #[test]
    fn the_usual_values_are_valid() {
        let config = config();
        assert_eq!(config.check(), Ok(()));
        assert_eq!(config.netmask(), Ipv4Addr::new(255, 255, 0, 0));
        assert!(config.contains(Ipv4Addr::new(10, 117, 255, 1)));
        assert!(!config.contains(Ipv4Addr::new(10, 118, 0, 1)));
    }

    #[test]
    fn wrong_values_are_named() {
        let mut bad = config();
        bad.interface = String::new();
        assert!(bad.check().unwrap_err().contains("interface"));
        let mut bad = config();
        bad.prefix = 31;
        assert!(bad.check().unwrap_err().contains("/31"));
        let mut bad = config();
        bad.leases = Leases::Range {
            first: Ipv4Addr::new(10, 117, 0, 9),
            last: Ipv4Addr::new(10, 117, 0, 8),
        };
        assert!(bad.check().unwrap_err().contains("10.117.0.9"));
        for line in ["a\nb", "a && b", "${net0/mac}"] {
            let mut bad = config();
            bad.command_line = line.to_owned();
            assert!(bad.check().unwrap_err().contains("command line"));
        }
        let lease = FixedLease {
            mac: Mac([2, 0, 0, 0, 0, 1]),
            address: Ipv4Addr::new(10, 117, 1, 0),
            node: 0,
        };
        let mut bad = config();
        bad.leases = Leases::Fixed(vec![lease, lease]);
        assert!(bad.check().unwrap_err().contains("listed once"));
        bad.leases = Leases::Fixed(vec![FixedLease {
            address: config().address,
            ..lease
        }]);
        assert!(bad.check().unwrap_err().contains("other than"));
    }
}
