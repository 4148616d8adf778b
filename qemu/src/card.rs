//! Network cards of the machines.
//!
//! Key types: [`Card`], a kind of card; [`Cards`], which node has which. Neighbours: `machine`
//! plugs them in, `spec` checks them; the kernel has a driver for each (`docs/cards.md`).
//!
//! Invariant: a card that this QEMU lacks, or that has no boot ROM where one is needed, is refused
//! before anything is started.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::process::{Command, Stdio};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::machine::PROGRAM;
use crate::{Error, Firmware};

/// A kind of network card.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Card {
    /// Made for virtual machines.
    #[default]
    Virtio,
    /// Intel 82540EM.
    E1000,
    /// Intel 82574L.
    E1000e,
    /// Intel 82576; QEMU has it since version 8.
    Igb,
    /// Realtek RTL8139C+.
    Rtl8139,
}

impl Card {
    /// Every kind.
    pub const ALL: [Self; 5] = [
        Self::Virtio,
        Self::E1000,
        Self::E1000e,
        Self::Igb,
        Self::Rtl8139,
    ];

    /// How people write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Virtio => "virtio",
            Self::E1000 => "e1000",
            Self::E1000e => "e1000e",
            Self::Igb => "igb",
            Self::Rtl8139 => "rtl8139",
        }
    }

    /// How QEMU calls it.
    pub(crate) fn device(self) -> &'static str {
        match self {
            Self::Virtio => "virtio-net-pci",
            _ => self.name(),
        }
    }

    /// Whether there is a boot ROM for it.
    fn boots(self) -> bool {
        self != Self::Igb
    }
}

impl FromStr for Card {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let found = Self::ALL.into_iter().find(|card| card.name() == text);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::Spec(format!("`{text}` is no network card: use one of {names}"))
        })
    }
}

impl fmt::Display for Card {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// Which node has which card.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cards {
    /// The card of all nodes that are not named.
    pub usual: Card,
    /// Cards of single nodes, by number.
    pub of: BTreeMap<u32, Card>,
}

impl Cards {
    /// The card of a node.
    pub fn of(&self, node: u32) -> Card {
        self.of.get(&node).copied().unwrap_or(self.usual)
    }

    /// Checks what can be wrong without a look at QEMU.
    pub(crate) fn check(&self, nodes: u32, firmware: Firmware) -> Result<(), Error> {
        if let Some((&node, card)) = self.of.range(nodes..).next() {
            return Err(Error::Spec(format!(
                "n{node} is to have the network card {card}, but there are {nodes} nodes: \
                 n0 to n{}",
                nodes - 1
            )));
        }
        let rom_missing = |card: &Card| !card.boots() && firmware != Firmware::Direct;
        match self.used(nodes).into_iter().find(rom_missing) {
            Some(card) => Err(Error::Spec(format!(
                "QEMU has no boot ROM for the network card {card}: add --direct, with which QEMU \
                 places the image itself"
            ))),
            None => Ok(()),
        }
    }

    /// Checks that this machine's QEMU has the cards.
    pub(crate) fn check_qemu(&self, nodes: u32) -> Result<(), Error> {
        let mut used = self.used(nodes);
        // Every QEMU has it, and most clusters nothing else.
        used.remove(&Card::Virtio);
        if used.is_empty() {
            return Ok(());
        }
        let output = Command::new(PROGRAM)
            .args(["-device", "help"])
            .stdin(Stdio::null())
            .output()
            .map_err(|source| Error::Start {
                program: PROGRAM.to_owned(),
                source,
            })?;
        lacks(&used, &String::from_utf8_lossy(&output.stdout))
    }

    fn used(&self, nodes: u32) -> BTreeSet<Card> {
        (0..nodes).map(|node| self.of(node)).collect()
    }
}

/// An error for the first card that is not in QEMU's list of devices.
fn lacks(cards: &BTreeSet<Card>, list: &str) -> Result<(), Error> {
    let is_missing = |card: &&Card| !list.contains(&format!("name \"{}\"", card.device()));
    match cards.iter().find(is_missing) {
        Some(card) => Err(Error::Host(format!(
            "this machine's QEMU has no network card {card} (`{PROGRAM} -device help` lists its \
             devices): use another card or a newer QEMU"
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_have_names() {
        for card in Card::ALL {
            assert_eq!(card.name().parse::<Card>().unwrap(), card);
        }
        let error = "e1001".parse::<Card>().unwrap_err().to_string();
        assert!(
            error.contains("virtio, e1000, e1000e, igb, rtl8139"),
            "{error}"
        );
    }

    #[test]
    fn cards_that_cannot_be_had_are_refused() {
        let cards = Cards {
            usual: Card::Virtio,
            of: BTreeMap::from([(1, Card::E1000e), (3, Card::Igb)]),
        };
        assert_eq!(cards.of(0), Card::Virtio);
        assert_eq!(cards.of(1), Card::E1000e);
        cards.check(4, Firmware::Direct).unwrap();
        let error = cards.check(4, Firmware::Bios).unwrap_err().to_string();
        assert!(error.contains("igb: add --direct"), "{error}");
        let error = cards.check(3, Firmware::Direct).unwrap_err().to_string();
        assert!(
            error.contains("n3") && error.contains("n0 to n2"),
            "{error}"
        );
        let list = "name \"e1000\", bus PCI\nname \"e1000e\", bus PCI\n";
        let used = |cards: &[Card]| cards.iter().copied().collect();
        lacks(&used(&[Card::E1000, Card::E1000e]), list).unwrap();
        let error = lacks(&used(&[Card::Igb]), list).unwrap_err().to_string();
        assert!(error.contains("no network card igb"), "{error}");
    }
}
