//! What the control node implements for the boot service.
//!
//! Invariant: nothing here blocks; the service calls it between two packets.

use crate::event::Event;
use crate::mac::Mac;
use crate::timeline::{BootRecord, Stage};
use std::net::Ipv4Addr;

/// Gives nodes their identity. Implemented by the control node.
pub trait Personalities: Send + Sync {
    /// The encoded personality (the content of DHCP option 224) for the machine `mac` in the boot
    /// that chose `boot_epoch`, at the address `ip`.
    ///
    /// Called once per machine and boot epoch: the service keeps the answer for retransmissions
    /// until [`Service::joined`] marks it used, and refuses it from then on. Must not block: it is
    /// called between two packets.
    ///
    /// # Errors
    /// The reason, which is logged and sent to the machine.
    fn personality(&self, mac: Mac, boot_epoch: u64, ip: Ipv4Addr) -> Result<Vec<u8>, Refused>;
}

/// Why a machine does not get a personality.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Refused {
    pub reason: String,
}

/// Hears of every step of every boot. Implemented by the control node.
///
/// Called from the service's tasks; must not block.
pub trait TimelineSink: Send + Sync {
    /// A machine reached a stage for the first time in its boot; `record` already contains it.
    fn stage(&self, stage: Stage, record: &BootRecord);
    /// Something an operator should know.
    fn event(&self, event: &Event);
}
