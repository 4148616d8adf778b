//! Device drivers: PCI discovery and network interfaces.
//!
//! Key types: [`nic::Nic`], the trait behind which every network card hides; [`pci::Function`],
//! one function found on the bus. Neighbours: `mm` for DMA memory and register mappings,
//! `arch::interrupts` for the one vector a card gets, `net` as the only user of a card.
//!
//! Invariant: a card's DMA touches only memory allocated by `mm::dma_alloc` for it; no frame that
//! ever belongs to a program is shared with a device.

mod dma;
pub mod framebuffer;
mod intel;
pub mod last_resort;
pub mod mmio;
mod msi;
pub mod nic;
pub mod pci;
mod realtek;
mod ring_card;
mod rings;
mod virtio;

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use kernel_core::nic::Signal;
use kernel_core::nic::driver::{Driver, driver};

/// Most cards that are started: each takes 640 KiB.
const MAX_CARDS: usize = 8;

/// Finds and starts the network cards, in the order of the bus, with interrupts by `best` at most.
///
/// The cards live as long as the kernel. Those that fail to start are logged and skipped. Where
/// none is left, the log says which devices the bus has, so that the operator knows what to
/// attach.
pub fn start_cards(best: Signal) -> Vec<&'static mut dyn nic::Nic> {
    let functions = pci::scan();
    let mut cards: Vec<&'static mut dyn nic::Nic> = Vec::new();
    for function in functions.iter().filter(|function| is_network(function)) {
        if cards.len() == MAX_CARDS {
            warn!("net", "card {function} not used: {MAX_CARDS} are enough");
            continue;
        }
        match start(function, best) {
            Ok(card) => cards.push(Box::leak(card)),
            Err(error) => warn!("net", "card {function} not used: {error}"),
        }
    }
    if cards.is_empty() {
        error!(
            "net",
            "no usable network card among {} PCI functions; docs/cards.md lists those that are \
             driven",
            functions.len()
        );
    }
    cards
}

fn is_network(function: &pci::Function) -> bool {
    function.class == pci::CLASS_NETWORK || driver(function.vendor, function.device).is_some()
}

fn start(function: &pci::Function, best: Signal) -> Result<Box<dyn nic::Nic>, String> {
    match driver(function.vendor, function.device) {
        Some(Driver::Virtio) => virtio::net::start(function, best).map_err(|e| e.to_string()),
        Some(Driver::Intel1g(model)) => {
            intel::start(function, model, best).map_err(|e| e.to_string())
        }
        Some(Driver::Rtl8139) if realtek::has_rings(function) => {
            realtek::start(function).map_err(|e| e.to_string())
        }
        _ => Err(String::from("there is no driver for it")),
    }
}
