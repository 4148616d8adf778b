//! Which cards of the family are driven, and how they differ.
//!
//! Key types: [`Model`], [`MODELS`]. `docs/cards.md` lists them for people; a test compares.
//!
//! Invariant: what no test has driven is [`Proof::Datasheet`].

use core::fmt;

/// Vendor id of Intel.
pub const VENDOR: u16 = 0x8086;

/// What is known about a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// Tests drive it in QEMU.
    Qemu,
    /// It has the registers of its datasheet, as far as they were read.
    Datasheet,
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Qemu => "proven in QEMU",
            Self::Datasheet => "by datasheet",
        })
    }
}

/// A model of the family.
#[derive(Debug)]
pub struct Model {
    /// PCI device id.
    pub device: u16,
    /// Name.
    pub name: &'static str,
    /// What is known about it.
    pub proof: Proof,
    /// It is on PCI Express, and must be asked to end its transfers before a reset.
    pub express: bool,
    /// Its descriptors are the advanced ones, and its queues are switched on one by one.
    pub advanced: bool,
    /// It sends plain messages.
    pub msi: bool,
    /// It sends messages by a table whose entries are given to causes as the 82574 has it.
    pub msix: bool,
    /// First register of its receive ring.
    pub(super) receive_ring: usize,
    /// First register of its transmit ring.
    pub(super) transmit_ring: usize,
}

/// 8254x: messages are left alone, several of these models send them wrongly.
const E1000: Model = Model {
    device: 0,
    name: "",
    proof: Proof::Datasheet,
    express: false,
    advanced: false,
    msi: false,
    msix: false,
    receive_ring: 0x2800,
    transmit_ring: 0x3800,
};

/// 82571 to 82583.
const E1000E: Model = Model {
    express: true,
    msi: true,
    ..E1000
};

/// 82576 to I350, I225 and I226. Their MSI-X tables have a map of causes of their own, and one
/// message is enough.
const IGB: Model = Model {
    advanced: true,
    receive_ring: 0xc000,
    transmit_ring: 0xe000,
    ..E1000E
};

const fn by_datasheet(device: u16, name: &'static str, of: Model) -> Model {
    Model { device, name, ..of }
}

const fn proven(device: u16, name: &'static str, of: Model) -> Model {
    Model {
        proof: Proof::Qemu,
        ..by_datasheet(device, name, of)
    }
}

/// Every model that is driven.
pub const MODELS: &[Model] = &[
    proven(0x100c, "82544GC", E1000),
    proven(0x100e, "82540EM", E1000),
    proven(0x100f, "82545EM", E1000),
    by_datasheet(0x1010, "82546EB", E1000),
    by_datasheet(0x1026, "82545GM", E1000),
    by_datasheet(0x1079, "82546GB", E1000),
    by_datasheet(0x105e, "82571EB", E1000E),
    by_datasheet(0x107d, "82572EI", E1000E),
    proven(
        0x10d3,
        "82574L",
        Model {
            msix: true,
            ..E1000E
        },
    ),
    by_datasheet(
        0x10f6,
        "82574L",
        Model {
            msix: true,
            ..E1000E
        },
    ),
    by_datasheet(0x150c, "82583V", E1000E),
    proven(0x10c9, "82576", IGB),
    by_datasheet(0x10e7, "82576", IGB),
    by_datasheet(0x150e, "82580", IGB),
    by_datasheet(0x1521, "I350", IGB),
    by_datasheet(0x1533, "I210", IGB),
    by_datasheet(0x157b, "I210", IGB),
    by_datasheet(0x1539, "I211", IGB),
    by_datasheet(0x15f2, "I225-LM", IGB),
    by_datasheet(0x15f3, "I225-V", IGB),
    by_datasheet(0x125b, "I226-LM", IGB),
    by_datasheet(0x125c, "I226-V", IGB),
];

/// The model of a PCI function, if it is driven.
pub fn model(vendor: u16, device: u16) -> Option<&'static Model> {
    let mut models = MODELS.iter();
    models.find(|model| vendor == VENDOR && model.device == device)
}
