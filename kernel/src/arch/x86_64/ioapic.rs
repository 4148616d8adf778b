//! The I/O APICs, all of whose inputs are masked (82093AA data sheet, section 3.2).
//!
//! Neighbours: `kernel::platform` knows where they are; the kernel's own cards interrupt by
//! message.
//!
//! Invariant: no input is ever unmasked.

use core::ptr::NonNull;

use kernel_core::acpi::IoApic;
use volatile::VolatilePtr;

const REGISTERS_BYTES: u64 = 32;
const SELECT: usize = 0x00;
const WINDOW: usize = 0x10;
const VERSION: u32 = 1;
const FIRST_INPUT: u32 = 0x10;
const MASKED: u32 = 1 << 16;
/// What registers read as where there is nothing.
const NOTHING: u32 = 0xffff_ffff;

/// Masks all inputs of all of them.
pub fn mask(io_apics: &[IoApic]) {
    for io_apic in io_apics {
        let (inputs, open) = Registers::map(io_apic).mask_all();
        let first = io_apic.first_input;
        debug!(
            "cpu",
            "I/O APIC of {inputs} inputs from {first} on: {open} were open"
        );
    }
}

/// An I/O APIC, mapped.
pub struct Registers(NonNull<u8>);

impl Registers {
    /// Maps its registers.
    pub fn map(io_apic: &IoApic) -> Self {
        Self(super::map_registers(io_apic.registers, REGISTERS_BYTES))
    }

    fn pointer(&mut self, offset: usize) -> VolatilePtr<'_, u32> {
        // SAFETY: the registers that firmware's table names are mapped for good; `offset` is one of
        // the two above, inside and aligned.
        unsafe { VolatilePtr::new(self.0.add(offset).cast()) }
    }

    fn read(&mut self, register: u32) -> u32 {
        self.pointer(SELECT).write(register);
        self.pointer(WINDOW).read()
    }

    /// Writes the low word of an input: vector, mode, mask.
    pub fn write_input(&mut self, input: u32, value: u32) {
        self.pointer(SELECT).write(FIRST_INPUT + 2 * input);
        self.pointer(WINDOW).write(value);
    }

    /// Masks all inputs; how many there are and how many were open.
    pub fn mask_all(&mut self) -> (u32, u32) {
        let version = self.read(VERSION);
        if version == NOTHING {
            return (0, 0);
        }
        let inputs = (version >> 16 & 0xff) + 1;
        let mut open = 0;
        for input in 0..inputs {
            let value = self.read(FIRST_INPUT + 2 * input);
            if value & MASKED == 0 {
                self.write_input(input, value | MASKED);
                open += 1;
            }
        }
        (inputs, open)
    }
}
