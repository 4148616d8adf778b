//! Message interrupts: a device writes a vector to the local APIC itself, so that the kernel needs
//! neither ACPI's routing nor an I/O APIC.
//!
//! Key function: [`enable`], which takes the best of MSI-X, MSI and nothing that device, driver and
//! command line allow. Layouts and sequences: PCI Local Bus Specification 3.0, sections 6.8.1 and
//! 6.8.2. Neighbours: `pci` for configuration space, `arch` for vector and APIC.
//!
//! Invariant: a device has one vector at most; all entries of an MSI-X table but the first stay
//! masked.

use kernel_core::addr::PhysAddr;
use kernel_core::nic::Signal;
use virtio_drivers::transport::pci::bus::{BarInfo, CapabilityInfo, ConfigurationAccess, PciRoot};

use super::mmio::Registers;
use super::pci::{Function, PortAccess};
use crate::arch;

const MSI_CAPABILITY: u8 = 0x05;
const MSIX_CAPABILITY: u8 = 0x11;
/// Physical address range to which a message interrupt is written; the APIC id follows at bit 12.
const MESSAGE_ADDRESS: u32 = 0xfee0_0000;

/// MSI: message control is the upper half of the capability's first word.
const MSI_ENABLE: u32 = 1 << 16;
/// MSI: how many vectors are used, as a power of two.
const MSI_VECTORS: u32 = 7 << 20;
/// MSI: the address has 64 bits.
const MSI_64_BIT: u32 = 1 << 23;

/// MSI-X: message control is the upper half of the capability's first word.
const MSIX_ENABLE: u32 = 1 << 31;
/// MSI-X: all entries are masked.
const MSIX_MASK_ALL: u32 = 1 << 30;
const ENTRY_BYTES: usize = 16;
const ENTRY_ADDRESS: usize = 0;
const ENTRY_ADDRESS_HIGH: usize = 4;
const ENTRY_DATA: usize = 8;
const ENTRY_CONTROL: usize = 12;
/// Vector control bit that masks an entry.
const ENTRY_MASKED: u32 = 1;

/// What a driver can use, and the command line allows.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// MSI-X, by entry 0 of the table.
    pub msix: bool,
    /// MSI.
    pub msi: bool,
}

impl Wanted {
    /// The same without what `best` leaves out.
    pub fn at_most(self, best: Signal) -> Self {
        Self {
            msix: self.msix && best == Signal::Msix,
            msi: self.msi && best != Signal::None,
        }
    }
}

/// Has the device interrupt by message in the best way there is; the one chosen. Both ways are
/// switched off where neither is used.
pub fn enable(root: &mut PciRoot<PortAccess>, function: &Function, wanted: Wanted) -> Signal {
    let find = |root: &mut PciRoot<PortAccess>, id| {
        let mut capabilities = root.capabilities(function.address);
        capabilities.find(|capability| capability.id == id)
    };
    let msi = find(root, MSI_CAPABILITY);
    let msix = find(root, MSIX_CAPABILITY);
    for (capability, bit) in [(&msi, MSI_ENABLE), (&msix, MSIX_ENABLE)] {
        if let Some(capability) = capability {
            let control = PortAccess.read_word(function.address, capability.offset);
            PortAccess.write_word(function.address, capability.offset, control & !bit);
        }
    }
    if let Some(capability) = msix.filter(|_| wanted.msix)
        && let Some(table) = map_table(root, function, &capability)
    {
        enable_msix(function, capability.offset, &table, Message::new());
        return Signal::Msix;
    }
    if let Some(capability) = msi.filter(|_| wanted.msi) {
        enable_msi(function, capability.offset, Message::new());
        return Signal::Msi;
    }
    Signal::None
}

/// Where and what a device writes to interrupt this CPU.
struct Message {
    address: u32,
    data: u32,
}

impl Message {
    fn new() -> Self {
        let vector = arch::interrupts::allocate(arch::interrupts::Class::Nic);
        Self {
            address: MESSAGE_ADDRESS | u32::from(arch::apic::id()) << 12,
            data: u32::from(vector),
        }
    }
}

/// Maps the MSI-X table; `None` when it is an unusable one.
fn map_table(
    root: &mut PciRoot<PortAccess>,
    function: &Function,
    capability: &CapabilityInfo,
) -> Option<Registers> {
    let entries = usize::from(capability.private_header & 0x7ff) + 1;
    let location = PortAccess.read_word(function.address, capability.offset + 4);
    let (bar, offset) = ((location & 7) as u8, u64::from(location & !7));
    let Ok(Some(BarInfo::Memory { address, size, .. })) = root.bar_info(function.address, bar)
    else {
        return None;
    };
    let bytes = entries * ENTRY_BYTES;
    if address == 0 || offset.checked_add(bytes as u64)? > size {
        return None;
    }
    Some(Registers::map(PhysAddr::new(address + offset), bytes))
}

fn enable_msix(function: &Function, capability: u8, table: &Registers, message: Message) {
    let word = PortAccess.read_word(function.address, capability);
    let write = |control| PortAccess.write_word(function.address, capability, control);
    write(word | MSIX_ENABLE | MSIX_MASK_ALL);
    table.write(ENTRY_ADDRESS, message.address);
    table.write(ENTRY_ADDRESS_HIGH, 0u32);
    table.write(ENTRY_DATA, message.data);
    let control: u32 = table.read(ENTRY_CONTROL);
    table.write(ENTRY_CONTROL, control & !ENTRY_MASKED);
    write(word & !MSIX_MASK_ALL | MSIX_ENABLE);
}

fn enable_msi(function: &Function, capability: u8, message: Message) {
    let word = PortAccess.read_word(function.address, capability);
    let write = |at, value| PortAccess.write_word(function.address, capability + at, value);
    write(4, message.address);
    if word & MSI_64_BIT != 0 {
        write(8, 0);
        write(12, message.data);
    } else {
        write(8, message.data);
    }
    write(0, word & !MSI_VECTORS | MSI_ENABLE);
}
