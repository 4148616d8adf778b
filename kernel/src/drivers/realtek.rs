//! Realtek's RTL8139C+.
//!
//! Key function: [`start`]. The chip is `kernel_core::nic::rtl8139`'s; this module gives it
//! registers and memory. Neighbours: [`super::rings`].
//!
//! Invariant: the card may start transfers only after it was reset.

use alloc::boxed::Box;

use kernel_core::nic::Signal;
use kernel_core::nic::rtl8139::{self, Card, Format};
use virtio_drivers::transport::pci::bus::{Command, ConfigurationAccess};

use super::nic::Nic;
use super::pci::{self, Function, PortAccess};
use super::rings::{self, Rings, StartError};

/// Configuration register whose lowest byte is the revision.
const REGISTER_REVISION: u8 = 0x08;
/// The base address register of its registers in memory.
const MEMORY_BAR: u8 = 1;

/// Whether a chip of this id is driven: older ones have no rings.
pub fn has_rings(function: &Function) -> bool {
    let revision = PortAccess.read_word(function.address, REGISTER_REVISION) as u8;
    revision >= rtl8139::REVISION
}

/// Starts a card, which is polled.
pub fn start(function: &Function) -> Result<Box<dyn Nic>, StartError<rtl8139::Error>> {
    let mut root = pci::root();
    let command = Command::MEMORY_SPACE | Command::INTERRUPT_DISABLE;
    root.set_command(function.address, command);
    let bytes = rtl8139::REGISTER_BYTES;
    let registers = rings::map_registers(&mut root, function, MEMORY_BAR, bytes)?;
    let (card, mac) = Card::open(registers).map_err(StartError::Card)?;
    root.set_command(function.address, command | Command::BUS_MASTER);
    let entries = rtl8139::ENTRIES;
    let rings = Rings::new(Format, entries, entries).ok_or(StartError::NoMemory)?;
    card.start(rings.receive(), rings.transmit());
    info!(
        "net",
        "Realtek RTL8139C+ card {function} ({})",
        Signal::None
    );
    Ok(rings.into_card(mac, card, Signal::None))
}
