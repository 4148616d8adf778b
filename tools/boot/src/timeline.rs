//! How far each machine came in its boot, and when.
//!
//! One [`BootRecord`] per MAC, for its latest boot; the boot before is kept only as a count.

use crate::mac::Mac;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::Ipv4Addr;

/// A step of a boot, in the order in which they come. A machine may skip steps: UEFI firmware
/// that loads the image itself has no script, a kernel started by hand has only the last three.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Firmware asked for an address.
    Dhcp,
    /// Firmware has its network boot program.
    Nbp,
    /// iPXE has its script.
    Script,
    /// The machine has the whole image.
    Kernel,
    /// The running kernel has its personality.
    Personality,
    /// The node has joined the control node.
    Joined,
}

impl Stage {
    /// All stages, in order.
    pub const ALL: [Stage; 6] = [
        Stage::Dhcp,
        Stage::Nbp,
        Stage::Script,
        Stage::Kernel,
        Stage::Personality,
        Stage::Joined,
    ];
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Stage::Dhcp => "dhcp",
            Stage::Nbp => "nbp",
            Stage::Script => "script",
            Stage::Kernel => "kernel",
            Stage::Personality => "personality",
            Stage::Joined => "joined",
        })
    }
}

/// What asked first in this boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Firmware {
    /// BIOS network ROM that is not iPXE.
    BiosPxe,
    /// 64-bit UEFI, image by TFTP.
    UefiPxe,
    /// 64-bit UEFI, image by HTTP.
    UefiHttp,
    /// iPXE, on either.
    Ipxe,
    /// The kernel itself: it was not loaded through this service.
    Direct,
}

impl fmt::Display for Firmware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Firmware::BiosPxe => "bios-pxe",
            Firmware::UefiPxe => "uefi-pxe",
            Firmware::UefiHttp => "uefi-http",
            Firmware::Ipxe => "ipxe",
            Firmware::Direct => "direct",
        })
    }
}

/// When each stage was reached first, in microseconds after the boot's first packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StageTimes {
    pub dhcp: Option<u64>,
    pub nbp: Option<u64>,
    pub script: Option<u64>,
    pub kernel: Option<u64>,
    pub personality: Option<u64>,
    pub joined: Option<u64>,
}

impl StageTimes {
    /// The time of one stage.
    pub fn get(&self, stage: Stage) -> Option<u64> {
        match stage {
            Stage::Dhcp => self.dhcp,
            Stage::Nbp => self.nbp,
            Stage::Script => self.script,
            Stage::Kernel => self.kernel,
            Stage::Personality => self.personality,
            Stage::Joined => self.joined,
        }
    }

    /// The furthest stage reached.
    pub fn furthest(&self) -> Option<Stage> {
        Stage::ALL
            .into_iter()
            .rev()
            .find(|stage| self.get(*stage).is_some())
    }
}

/// The latest boot of one machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootRecord {
    pub mac: Mac,
    /// Address last given out.
    pub address: Option<Ipv4Addr>,
    /// Node number: of the fixed lease, or as it joined.
    pub node: Option<u32>,
    pub firmware: Option<Firmware>,
    /// Boots seen of this machine since the service started, this one included.
    pub boots: u32,
    /// Boot epoch the kernel announced.
    pub boot_epoch: Option<u64>,
    /// First packet of this boot, in milliseconds since 1970.
    pub began_unix_ms: u64,
    pub stages: StageTimes,
    /// DHCP requests of this boot; many without a later stage mean that answers do not arrive.
    pub dhcp_requests: u32,
    /// The last thing that went wrong in this boot.
    pub trouble: Option<String>,
}
