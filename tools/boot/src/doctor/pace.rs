//! The speed of the link, and the clock.
//!
//! `/sys` shows the interfaces of the namespace it was mounted in. What it says of an interface
//! counts only if the number of the interface is the one that this process sees.

use super::{DoctorOptions, Finding, host};
use nix::net::if_::if_nametoindex;
use std::path::Path;
use std::process::Command;

/// Megabits a second below which programs and casts are slow to come: what the servers' own ports
/// have had for twenty years.
const USUAL_MBIT: u64 = 1_000;

/// What is known of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Link {
    mbit: u64,
    full_duplex: bool,
}

pub(super) fn check_speed(options: &DoctorOptions) -> Vec<Finding> {
    let name = &options.interface;
    let index = if_nametoindex(name.as_str()).ok();
    let folder = Path::new("/sys/class/net").join(name);
    match index.and_then(|index| link(&folder, index)) {
        Some(link) => judge(options, link),
        // Bridges and other virtual interfaces have no speed.
        None => Vec::new(),
    }
}

fn link(folder: &Path, index: u32) -> Option<Link> {
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
    let shown: u32 = read("ifindex")?.trim().parse().ok()?;
    // -1 where it is not known.
    let mbit: u64 = read("speed")?.trim().parse().ok()?;
    let full_duplex = read("duplex")?.trim() != "half";
    (shown == index && mbit > 0).then_some(Link { mbit, full_duplex })
}

fn judge(options: &DoctorOptions, link: Link) -> Vec<Finding> {
    let name = &options.interface;
    let Link { mbit, full_duplex } = link;
    let mut findings = Vec::new();
    if !full_duplex {
        findings.push(Finding::warning(
            format!("the link of {name} is half duplex: it loses packets under load"),
            "have both ends negotiate: no fixed speed at the switch's port",
        ));
    }
    if mbit < USUAL_MBIT {
        findings.push(Finding::warning(
            format!("the link of {name} has {mbit} Mbit/s only"),
            "look at the cable (all eight wires) and at the switch's port",
        ));
    }
    let rate = options.rate_bits / 1_000_000;
    if rate > mbit {
        findings.push(Finding::warning(
            format!(
                "casts are sent at {rate} Mbit/s, more than the {mbit} Mbit/s of the link of {name}"
            ),
            format!("set rate = \"{mbit}mbit\" in [broadcast] of the configuration"),
        ));
    }
    findings
}

/// Whether the time of jobs and events can be trusted, where systemd knows.
pub(super) fn check_clock() -> Option<Finding> {
    let mut command = Command::new("timedatectl");
    command.args(["show", "--property=NTPSynchronized", "--value"]);
    (host::run_limited(&mut command)?.trim() == "no").then(|| {
        Finding::warning(
            "the clock of this machine is not set by a time server: times of jobs and events may be wrong",
            "timedatectl set-ntp true, and `timedatectl timesync-status` says which server",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_read_for_the_interface_that_is_meant() {
        let folder = tempfile::tempdir().unwrap();
        let write =
            |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        assert_eq!(link(folder.path(), 3), None);
        write("ifindex", "3\n");
        write("speed", "100\n");
        write("duplex", "half\n");
        let slow = Link {
            mbit: 100,
            full_duplex: false,
        };
        assert_eq!(link(folder.path(), 3), Some(slow));
        assert_eq!(link(folder.path(), 4), None, "another namespace's");
        write("speed", "-1\n");
        assert_eq!(link(folder.path(), 3), None, "unknown");
    }

    #[test]
    fn a_slow_link_is_found_and_a_usual_one_is_not() {
        let mut options = DoctorOptions {
            interface: "eth1".into(),
            rate_bits: 1_000_000_000,
            ..DoctorOptions::default()
        };
        let link = |mbit, full_duplex| Link { mbit, full_duplex };
        assert_eq!(judge(&options, link(1_000, true)), []);
        let said = |findings: Vec<Finding>| {
            let texts = findings.iter().map(ToString::to_string);
            texts.collect::<Vec<String>>().join("\n")
        };
        let slow = said(judge(&options, link(100, false)));
        for part in ["half duplex", "100 Mbit/s only", "rate = \"100mbit\""] {
            assert!(slow.contains(part), "{slow}");
        }
        options.rate_bits = 0;
        assert_eq!(judge(&options, link(2_500, true)), []);
    }
}
