//! Device drivers: PCI discovery and network interfaces.
//!
//! Key types: [`nic::Nic`], the trait behind which every network card hides; [`pci::Function`],
//! one function found on the bus. Neighbours: `mm` for DMA memory and register mappings,
//! `arch::interrupts` for the one vector a card gets, `net` as the only user of a card.
//!
//! Invariant: a card's DMA touches only memory allocated by `mm::dma_alloc` for it; no frame that
//! ever belongs to a program is shared with a device.

pub mod last_resort;
pub mod mmio;
pub mod msix;
pub mod nic;
pub mod pci;
pub mod virtio;

use alloc::boxed::Box;

/// Finds and starts the first usable network card.
///
/// The card lives as long as the kernel. Cards that fail to start are logged and skipped. `None` when no card is left; the log then
/// says which devices the bus has, so that the operator knows what to attach.
pub fn probe_nic() -> Option<&'static mut dyn nic::Nic> {
    let functions = pci::scan();
    for function in &functions {
        if !virtio::net::is_supported(function) {
            continue;
        }
        match virtio::net::VirtioNet::start(function) {
            Ok(card) => return Some(last_resort::register(Box::leak(card))),
            Err(error) => warn!("net", "card {function} not used: {error}"),
        }
    }
    error!(
        "net",
        "no usable network card among {} PCI functions; attach a virtio-net PCI device",
        functions.len()
    );
    let strange =
        |f: &&pci::Function| f.class == pci::CLASS_NETWORK && !virtio::net::is_supported(f);
    for function in functions.iter().filter(strange) {
        error!("net", "no driver for network card {function}");
    }
    None
}
