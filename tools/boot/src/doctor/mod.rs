//! Looks for what would stop a boot, on this host and on the wire.
//!
//! | module | what it looks at |
//! |---|---|
//! | `link` | the interface: there, up, its addresses, its MTU |
//! | `host` | capabilities, ports and who holds them, the firewall |
//! | `pace` | the speed of the link, the clock |
//! | `probe` | other DHCP servers on the wire |
//!
//! Invariant: nothing is changed on the host, and every look has a time limit.

mod host;
mod link;
mod pace;
mod probe;

use crate::config::DEFAULT_HTTP_PORT;
use crate::dhcp::client::BIOS_NBP_NAME;
use crate::event::Severity;
use crate::files::{self, IMAGE_START_BYTES};
use serde::Serialize;
use std::fmt;
use std::io::Read;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

/// What to look at. Fields left empty are not checked.
#[derive(Clone, Debug, Default)]
pub struct DoctorOptions {
    /// Interface of the boot network.
    pub interface: String,
    /// The service's own address: it is expected on the interface, and offers from it are not
    /// foreign.
    pub address: Option<Ipv4Addr>,
    /// TCP port of the boot network's HTTP server.
    /// 0: the usual one.
    pub http_port: u16,
    pub image: Option<PathBuf>,
    pub firmware_dir: Option<PathBuf>,
    /// The service is running already: its own ports are then in use rightly.
    pub serving: bool,
    /// The service is set to proxy DHCP: another DHCP server is then expected.
    pub proxy_dhcp: bool,
    /// Bits a second that casts are sent at. 0: not known.
    pub rate_bits: u64,
    /// Look at the clock of this host, too.
    pub clock: bool,
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

impl Finding {
    fn new(severity: Severity, what: impl Into<String>, fix: impl Into<String>) -> Finding {
        Finding {
            severity,
            what: what.into(),
            fix: fix.into(),
        }
    }

    fn error(what: impl Into<String>, fix: impl Into<String>) -> Finding {
        Finding::new(Severity::Error, what, fix)
    }

    fn warning(what: impl Into<String>, fix: impl Into<String>) -> Finding {
        Finding::new(Severity::Warning, what, fix)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.severity, self.what)?;
        if !self.fix.is_empty() {
            write!(f, "\n  -> {}", self.fix)?;
        }
        Ok(())
    }
}

/// Runs all checks; blocks for up to about three seconds while it listens for other DHCP servers.
/// The most urgent findings come first; an empty list means that nothing was found.
pub fn doctor(options: &DoctorOptions) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(check_files(options));
    findings.extend(host::check_capabilities());
    let link = link::check(options);
    let usable = link
        .iter()
        .all(|finding| finding.severity < Severity::Error);
    findings.extend(link);
    if usable {
        if !options.serving {
            findings.extend(host::check_ports(options));
        }
        findings.extend(probe::check(options));
        findings.extend(pace::check_speed(options));
    }
    findings.extend(host::check_firewall(options));
    if options.clock {
        findings.extend(pace::check_clock());
    }
    // A stable sort: within one severity the order is that of a boot.
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    findings
}

impl DoctorOptions {
    fn http_port(&self) -> u16 {
        if self.http_port == 0 {
            DEFAULT_HTTP_PORT
        } else {
            self.http_port
        }
    }
}

fn check_files(options: &DoctorOptions) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(path) = &options.image {
        findings.extend(check_image(path));
    }
    if let Some(directory) = &options.firmware_dir {
        let path = directory.join(BIOS_NBP_NAME);
        if !path.is_file() {
            findings.push(Finding::warning(
                format!(
                    "{} is missing: BIOS machines whose ROM is not iPXE cannot boot",
                    path.display()
                ),
                "install it (Debian: apt install ipxe) or name the directory it is in",
            ));
        }
    }
    findings
}

fn check_image(path: &Path) -> Option<Finding> {
    let mut start = Vec::new();
    let shown = path.display();
    let read = std::fs::File::open(path)
        .and_then(|file| file.take(IMAGE_START_BYTES as u64).read_to_end(&mut start));
    if let Err(error) = read {
        return Some(Finding::error(
            format!("the boot image {shown} cannot be read: {error}"),
            "build it (cargo xtask build) or name another one",
        ));
    }
    let wrong = files::check_image(&start).err()?;
    let (what, fix) = wrong.split_once("; ").unwrap_or((wrong, "build it again"));
    Some(Finding::error(format!("{shown} {what}"), fix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_recognised() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("hearth.efi");
        assert!(check_image(&path).unwrap().what.contains("cannot be read"));
        std::fs::write(&path, b"MZ").unwrap();
        assert!(check_image(&path).unwrap().what.contains("cut short"));
        let mut image = vec![0; 4096];
        std::fs::write(&path, &image).unwrap();
        assert!(
            check_image(&path)
                .unwrap()
                .what
                .contains("not a boot image")
        );
        image[..2].copy_from_slice(b"MZ");
        image[0x202..0x206].copy_from_slice(b"HdrS");
        std::fs::write(&path, &image).unwrap();
        assert_eq!(check_image(&path), None);
    }

    #[test]
    fn a_missing_interface_is_the_first_finding() {
        let options = DoctorOptions {
            interface: "nosuchif0".into(),
            firmware_dir: Some("/nonexistent".into()),
            ..DoctorOptions::default()
        };
        let findings = doctor(&options);
        assert!(findings[0].what.contains("nosuchif0"), "{findings:?}");
        assert_eq!(findings[0].severity, Severity::Error);
        assert!(
            findings
                .iter()
                .any(|finding| finding.what.contains("undionly.kpxe"))
        );
        assert!(findings.iter().all(|finding| !finding.fix.is_empty()));
    }
}
