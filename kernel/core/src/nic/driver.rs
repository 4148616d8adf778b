//! Which driver a network card has, by its PCI ids.
//!
//! Key type: [`Driver`]. The kernel starts cards by it, and the boot service turns machines away by
//! it before they load anything.
//!
//! Invariant: a card that the kernel drives is found here, and by nothing else.

use super::{intel1g, rtl8139};

/// Vendor id of virtio devices.
pub const VIRTIO_VENDOR: u16 = 0x1af4;
/// Virtio network cards that have the registers of the first drafts, and perhaps modern ones, too.
pub const VIRTIO_TRANSITIONAL: u16 = 0x1000;
/// Virtio network cards of version 1.
pub const VIRTIO_MODERN: u16 = 0x1041;

/// A driver of the kernel.
#[derive(Clone, Copy, Debug)]
pub enum Driver {
    /// Virtio by PCI.
    Virtio,
    /// Intel's one-gigabit family.
    Intel1g(&'static intel1g::Model),
    /// Realtek's RTL8139C+. Older chips have the same id and are not driven.
    Rtl8139,
}

/// The driver of a card with these ids.
pub fn driver(vendor: u16, device: u16) -> Option<Driver> {
    match (vendor, device) {
        (VIRTIO_VENDOR, VIRTIO_TRANSITIONAL | VIRTIO_MODERN) => Some(Driver::Virtio),
        (rtl8139::VENDOR, rtl8139::DEVICE) => Some(Driver::Rtl8139),
        _ => intel1g::model(vendor, device).map(Driver::Intel1g),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_driver_is_found_by_its_ids() {
        let has = |vendor, device| driver(vendor, device).map(|found| format!("{found:?}"));
        assert_eq!(has(0x1af4, 0x1000).as_deref(), Some("Virtio"));
        assert_eq!(has(0x1af4, 0x1041).as_deref(), Some("Virtio"));
        assert_eq!(has(0x10ec, 0x8139).as_deref(), Some("Rtl8139"));
        assert!(has(0x8086, 0x10d3).is_some_and(|found| found.contains("82574L")));
        // An X710 of 10 Gbit/s, a virtio disk, a card of nobody.
        assert!(has(0x8086, 0x1572).is_none() && has(0x1af4, 0x1001).is_none());
        assert!(has(0xffff, 0xffff).is_none());
    }
}
