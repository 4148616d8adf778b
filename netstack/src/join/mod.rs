//! Joining: hello, welcome, refusal, heartbeat, leave, and finding one another again after either
//! side restarted.

mod admission;
mod answer;
pub mod boots;
pub(crate) mod farewell;
mod machines;
pub(crate) mod node;
pub(crate) mod path;
pub(crate) mod registry;
mod rejection;
mod slot;

use core::fmt;

use crate::time::Micros;
use crate::transport::liveness::Patience;
use crate::transport::retry::LOOKS;

/// Why the control node refuses a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Refusal {
    /// The key is not the one for this MAC address, boot and node number.
    WrongKey = 1,
    /// The key belongs to an earlier boot of this MAC address.
    KeyUsed = 2,
    /// The protocol version differs from the control node's.
    Protocol = 4,
    /// Another machine with the same MAC address is up.
    MacInUse = 5,
    /// Another machine with the same node number is up.
    NodeInUse = 6,
    /// The registry is full.
    RegistryFull = 7,
    /// The key was derived from another cluster secret.
    UnknownKeyId = 8,
    /// The control node does not take this machine.
    NotAdmitted = 9,
}

impl Refusal {
    pub(crate) fn from_wire(raw: u8) -> Option<Self> {
        Some(match raw {
            1 => Refusal::WrongKey,
            2 => Refusal::KeyUsed,
            4 => Refusal::Protocol,
            5 => Refusal::MacInUse,
            6 => Refusal::NodeInUse,
            7 => Refusal::RegistryFull,
            8 => Refusal::UnknownKeyId,
            9 => Refusal::NotAdmitted,
            _ => return None,
        })
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::WrongKey => "wrong key: reboot the node so that it gets a new personality",
            Refusal::KeyUsed => "key of an earlier boot: reboot the node to get a new one",
            Refusal::Protocol => "another protocol version: boot the control node's own image",
            Refusal::MacInUse => "another machine with this MAC address is up: change one of them",
            Refusal::NodeInUse => "another machine with this node number is up: check the leases",
            Refusal::RegistryFull => "the control node's limit of nodes is reached: raise it",
            Refusal::UnknownKeyId => "key of another cluster secret: reboot the node",
            Refusal::NotAdmitted => {
                "this machine is not admitted: `hearth node approve` on the control node admits it"
            }
        })
    }
}

/// The intervals that the control node prescribes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// A node sends a heartbeat this often. Default 1 s.
    pub heartbeat: Micros,
    /// A side that heard nothing for so long takes the other for lost. Default 6 s: five lost
    /// heartbeats in a row, one in 100,000 at 10 % loss.
    pub lost_after: Micros,
    /// A HELLO of a new boot of a MAC address whose earlier boot is still up waits for so much
    /// silence of that one; it tells a reboot from two machines. Default 2.5 s: two heartbeats, and
    /// half a one by which they may be late.
    pub reboot_silence: Micros,
    /// A node that hears no control node, or none that knows its job, keeps that for so long, and
    /// then ends it; 0: not at all. Default 10 min: an operator has seen to it by then, or has not
    /// noticed.
    pub keep_job: Micros,
}

impl Timing {
    /// What holds where nothing else was said.
    pub const DEFAULT: Timing = Timing {
        heartbeat: LOOKS,
        lost_after: Micros::from_secs(6),
        reboot_silence: Micros(LOOKS.0 * 5 / 2),
        keep_job: Micros::from_secs(600),
    };

    /// What the control node has with a node: it asks once, and the node has one heartbeat
    /// interval then.
    pub(crate) fn patience(&self) -> Patience {
        let quiet = Micros(self.lost_after.0.saturating_sub(self.heartbeat.0));
        Patience::new(quiet, self.heartbeat, 1, self.lost_after)
    }

    /// What a node has with the control node: it asks with each heartbeat, and who was not running
    /// itself asks twice first, so that the first has time to be answered.
    pub(crate) fn patience_with_control(&self) -> Patience {
        Patience::new(self.heartbeat, self.heartbeat, 2, self.lost_after)
    }
}

impl Default for Timing {
    fn default() -> Self {
        Timing::DEFAULT
    }
}
