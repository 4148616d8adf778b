//! MSI-X: gives a card one interrupt vector without any interrupt controller routing.
//!
//! Key type: [`Table`]. The card writes the vector to the local APIC itself, so the kernel needs
//! neither ACPI nor IOAPIC. Table layout and enable sequence: PCI Local Bus Specification 3.0,
//! section 6.8.2. Neighbours: `pci` for configuration space, `arch` for the APIC's id.
//!
//! Invariant: entries other than the one programmed here stay masked.

use kernel_core::addr::PhysAddr;
use virtio_drivers::transport::pci::bus::{BarInfo, ConfigurationAccess, PciRoot};

use super::mmio::Registers;
use super::pci::{Function, PortAccess};

const CAPABILITY_ID: u8 = 0x11;
/// Message control, upper half of the capability's first word: MSI-X on.
const CONTROL_ENABLE: u32 = 1 << 31;
/// Message control, upper half of the capability's first word: all entries masked.
const CONTROL_MASK_ALL: u32 = 1 << 30;
const ENTRY_BYTES: usize = 16;
const ENTRY_ADDRESS: usize = 0;
const ENTRY_ADDRESS_HIGH: usize = 4;
const ENTRY_DATA: usize = 8;
const ENTRY_CONTROL: usize = 12;
/// Vector control bit that masks an entry.
const ENTRY_MASKED: u32 = 1;
/// Physical address range to which a message interrupt is written; the APIC id follows at bit 12.
const MESSAGE_ADDRESS: u32 = 0xfee0_0000;

/// A function's MSI-X table, mapped.
#[derive(Debug)]
pub struct Table {
    registers: Registers,
    function: Function,
    capability: u8,
}

impl Table {
    /// Finds and maps the table; `None` when the function offers no MSI-X or an unusable one.
    pub fn find(root: &mut PciRoot<PortAccess>, function: &Function) -> Option<Self> {
        let capability = root
            .capabilities(function.address)
            .find(|c| c.id == CAPABILITY_ID)?;
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
        Some(Self {
            registers: Registers::map(PhysAddr::new(address + offset), bytes),
            function: *function,
            capability: capability.offset,
        })
    }

    /// Delivers entry 0 to `vector` of the CPU with APIC id `apic` and switches MSI-X on.
    pub fn enable(&self, vector: u8, apic: u8) {
        let word = PortAccess.read_word(self.function.address, self.capability);
        PortAccess.write_word(
            self.function.address,
            self.capability,
            word | CONTROL_ENABLE | CONTROL_MASK_ALL,
        );
        let address = MESSAGE_ADDRESS | u32::from(apic) << 12;
        self.registers.write(ENTRY_ADDRESS, address);
        self.registers.write(ENTRY_ADDRESS_HIGH, 0u32);
        self.registers.write(ENTRY_DATA, u32::from(vector));
        let control: u32 = self.registers.read(ENTRY_CONTROL);
        self.registers.write(ENTRY_CONTROL, control & !ENTRY_MASKED);
        PortAccess.write_word(
            self.function.address,
            self.capability,
            word & !CONTROL_MASK_ALL | CONTROL_ENABLE,
        );
    }
}
