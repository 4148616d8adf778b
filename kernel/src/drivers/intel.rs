//! Intel's one-gigabit cards.
//!
//! Key function: [`start`]. What the cards have in common and how they differ is
//! `kernel_core::nic::intel1g`'s; this module gives it registers, memory and interrupts.
//! Neighbours: [`super::rings`], [`super::msi`].
//!
//! Invariant: the card may start transfers only after it was reset.

use alloc::boxed::Box;

use kernel_core::nic::Signal;
use kernel_core::nic::intel1g::{self, Card, Format, Model, REGISTER_BYTES};
use virtio_drivers::transport::pci::bus::Command;

use super::msi::{self, Wanted};
use super::nic::{Nic, RECEIVE_ENTRIES, TRANSMIT_ENTRIES};
use super::pci::{self, Function};
use super::rings::{self, Rings, StartError};

/// Starts a card of `model`, with interrupts by `best` at most.
pub fn start(
    function: &Function,
    model: &'static Model,
    best: Signal,
) -> Result<Box<dyn Nic>, StartError<intel1g::Error>> {
    let mut root = pci::root();
    let command = Command::MEMORY_SPACE | Command::INTERRUPT_DISABLE;
    root.set_command(function.address, command);
    let registers = rings::map_registers(&mut root, function, 0, REGISTER_BYTES)?;
    let (mut card, mac) = Card::open(registers, model).map_err(StartError::Card)?;
    root.set_command(function.address, command | Command::BUS_MASTER);
    let wanted = Wanted {
        msix: model.msix,
        msi: model.msi,
    };
    let signal = msi::enable(&mut root, function, wanted.at_most(best));
    let format = Format {
        advanced: model.advanced,
    };
    let rings =
        Rings::new(format, RECEIVE_ENTRIES, TRANSMIT_ENTRIES).ok_or(StartError::NoMemory)?;
    card.start(rings.receive(), rings.transmit(), signal)
        .map_err(StartError::Card)?;
    info!(
        "net",
        "Intel {} card {function} ({signal}, {})", model.name, model.proof
    );
    Ok(rings.into_card(mac, card, signal))
}
