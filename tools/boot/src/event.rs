//! What the boot service tells the operator, beside the timeline.

use crate::mac::Mac;
use serde::Serialize;
use std::fmt;
use std::net::Ipv4Addr;

/// How urgent a finding or event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Nothing to do.
    Info,
    /// Boots work, but worse or slower than they could.
    Warning,
    /// Some machine cannot boot because of this.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Info => "info",
            Severity::Warning => "warning",
            Severity::Error => "error",
        })
    }
}

/// Something an operator may have to act on. `Display` gives the sentence with what to do next.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A machine asked for an address that the list of fixed leases does not have.
    UnknownMachine { mac: Mac },
    /// No address is left for a machine.
    LeasesExhausted { mac: Mac, size: usize },
    /// A machine found its address in use by somebody else.
    AddressDeclined { mac: Mac, address: Ipv4Addr },
    /// Another DHCP server answers on the boot network.
    ForeignServer { server: Ipv4Addr, mac: Option<Mac> },
    /// Firmware of a kind that no image exists for (DHCP option 93).
    UnsupportedFirmware { mac: Mac, architecture: u16 },
    /// A machine boots from a network card that the kernel has no driver for.
    NoDriver { mac: Mac, vendor: u16, device: u16 },
    /// A kernel asked for its personality and did not get it.
    PersonalityRefused {
        mac: Mac,
        boot_epoch: u64,
        reason: String,
    },
    /// A file transfer was refused or broke off.
    TransferFailed {
        mac: Option<Mac>,
        client: Ipv4Addr,
        file: String,
        reason: String,
    },
    /// A part of the service does not work; the rest goes on.
    Degraded { part: String, reason: String },
}

impl Event {
    /// How urgent this is.
    pub fn severity(&self) -> Severity {
        match self {
            Event::UnknownMachine { .. } | Event::Degraded { .. } => Severity::Warning,
            _ => Severity::Error,
        }
    }

    /// The event with everything made visible in its texts that is no letter, digit, mark of ASCII
    /// or space: file names and reasons come from machines nobody knows, and end in an operator's
    /// terminal.
    pub(crate) fn printable(mut self) -> Event {
        match &mut self {
            Event::PersonalityRefused { reason, .. } => *reason = printable(reason),
            Event::TransferFailed { file, reason, .. } => {
                *file = printable(file);
                *reason = printable(reason);
            }
            Event::Degraded { part, reason } => {
                *part = printable(part);
                *reason = printable(reason);
            }
            Event::UnknownMachine { .. }
            | Event::LeasesExhausted { .. }
            | Event::AddressDeclined { .. }
            | Event::ForeignServer { .. }
            | Event::UnsupportedFirmware { .. }
            | Event::NoDriver { .. } => {}
        }
        self
    }

    /// The kind of event, as it is serialised.
    pub fn name(&self) -> &'static str {
        match self {
            Event::UnknownMachine { .. } => "unknown_machine",
            Event::LeasesExhausted { .. } => "leases_exhausted",
            Event::AddressDeclined { .. } => "address_declined",
            Event::ForeignServer { .. } => "foreign_server",
            Event::UnsupportedFirmware { .. } => "unsupported_firmware",
            Event::NoDriver { .. } => "no_driver",
            Event::PersonalityRefused { .. } => "personality_refused",
            Event::TransferFailed { .. } => "transfer_failed",
            Event::Degraded { .. } => "degraded",
        }
    }

    /// The machine concerned, if it is known.
    pub fn mac(&self) -> Option<Mac> {
        match self {
            Event::UnknownMachine { mac }
            | Event::LeasesExhausted { mac, .. }
            | Event::AddressDeclined { mac, .. }
            | Event::UnsupportedFirmware { mac, .. }
            | Event::NoDriver { mac, .. }
            | Event::PersonalityRefused { mac, .. } => Some(*mac),
            Event::ForeignServer { mac, .. } | Event::TransferFailed { mac, .. } => *mac,
            Event::Degraded { .. } => None,
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::UnknownMachine { mac } => write!(
                f,
                "{mac} asks for an address but is not in the list of machines; add it there to boot it"
            ),
            Event::LeasesExhausted { mac, size } => write!(
                f,
                "no address left for {mac}: all {size} leases are taken; widen the lease range"
            ),
            Event::AddressDeclined { mac, address } => write!(
                f,
                "{mac} found {address} in use by another machine; look for a manually set address or a second DHCP server"
            ),
            Event::ForeignServer {
                server,
                mac: Some(mac),
            } => write!(
                f,
                "{mac} took its address from another DHCP server, {server}; switch that server off on the boot network or use proxy DHCP"
            ),
            Event::ForeignServer { server, mac: None } => write!(
                f,
                "another DHCP server, {server}, answers on the boot network; switch it off there or use proxy DHCP"
            ),
            Event::UnsupportedFirmware { mac, architecture } => write!(
                f,
                "{mac} has firmware of architecture {architecture}, which cannot boot the image; use an x86-64 machine in BIOS or 64-bit UEFI mode"
            ),
            Event::NoDriver {
                mac,
                vendor,
                device,
            } => write!(
                f,
                "{mac} is not booted: no driver for {vendor:04x}:{device:04x}, the network card that it boots from; boot it from a card that the kernel drives"
            ),
            Event::PersonalityRefused {
                mac,
                boot_epoch,
                reason,
            } => write!(
                f,
                "{mac} (boot {boot_epoch:016x}) was refused its personality: {reason}"
            ),
            Event::TransferFailed {
                mac,
                client,
                file,
                reason,
            } => {
                match mac {
                    Some(mac) => write!(f, "{mac} ({client})")?,
                    None => write!(f, "{client}")?,
                }
                write!(f, " did not get {file}: {reason}")
            }
            Event::Degraded { part, reason } => write!(f, "{part}: {reason}"),
        }
    }
}

/// Control characters, direction marks and the like as `\u{1b}`; a terminal shows them and does not
/// obey.
pub(crate) fn printable(text: &str) -> String {
    let visible = |c: char| c == ' ' || c.is_ascii_graphic() || c.is_alphanumeric();
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if visible(c) {
            shown.push(c);
        } else {
            shown.extend(c.escape_unicode());
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_a_terminal_would_obey_becomes_visible() {
        assert_eq!(printable("hearth.efi: für n3"), "hearth.efi: für n3");
        assert_eq!(printable("\x1b]0;owned\x07"), "\\u{1b}]0;owned\\u{7}");
        assert_eq!(
            printable("a\nb\u{202e}c\u{9b}31m"),
            "a\\u{a}b\\u{202e}c\\u{9b}31m"
        );
    }

    proptest! {
        #[test]
        fn no_event_carries_control_characters(file in any::<String>(), reason in any::<String>()) {
            let client = Ipv4Addr::LOCALHOST;
            let event = Event::TransferFailed { mac: None, client, file, reason: reason.clone() };
            let refused = Event::PersonalityRefused { mac: Mac([2; 6]), boot_epoch: 1, reason: reason.clone() };
            let degraded = Event::Degraded { part: reason.clone(), reason };
            for event in [event, refused, degraded] {
                let text = event.printable().to_string();
                prop_assert!(!text.chars().any(char::is_control), "{:?}", text);
            }
        }
    }
}
