//! The network cards that the kernel drives, by their PCI ids.
//!
//! Key type: [`Card`]. The kernel's drivers take their cards by it, and the boot service turns
//! machines away by it before they load anything.
//!
//! Invariant: there is no other list of these ids.

/// A card that the kernel drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Card {
    /// PCI vendor id.
    pub vendor: u16,
    /// PCI device id.
    pub device: u16,
    /// Name for people.
    pub name: &'static str,
    /// Driver.
    pub driver: Driver,
}

/// A driver of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// Virtio 1, by PCI.
    Virtio,
}

/// All of them.
pub const CARDS: &[Card] = &[
    Card {
        vendor: 0x1af4,
        device: 0x1000,
        name: "virtio-net, transitional",
        driver: Driver::Virtio,
    },
    Card {
        vendor: 0x1af4,
        device: 0x1041,
        name: "virtio-net",
        driver: Driver::Virtio,
    },
];

/// The card with these ids, if it is driven.
pub fn find(vendor: u16, device: u16) -> Option<&'static Card> {
    let mut cards = CARDS.iter();
    cards.find(|card| (card.vendor, card.device) == (vendor, device))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_card_is_listed_once() {
        for (index, card) in CARDS.iter().enumerate() {
            assert_eq!(find(card.vendor, card.device), Some(card));
            assert!(!CARDS[..index].contains(card), "{card:?}");
        }
        assert_eq!(find(0x8086, 0x1572), None);
    }

    #[test]
    fn the_page_for_people_lists_them() {
        let page = include_str!("../../../docs/your-rack.md");
        for card in CARDS {
            let ids = format!("{:04x}:{:04x}", card.vendor, card.device);
            assert!(page.contains(&ids), "{ids}, {}", card.name);
        }
    }
}
