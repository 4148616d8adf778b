//! Checked access to a range of device registers.
//!
//! Key type: [`Registers`]. All register access of this kernel's own drivers goes through it, so
//! that bounds and alignment are checked in one place. Neighbours: `mm` maps the range.
//!
//! Invariant: the range stays mapped uncached for the life of the kernel.

use core::ptr::NonNull;

use kernel_core::addr::PhysAddr;
use kernel_core::nic::{Bus, NarrowBus};
use volatile::VolatilePtr;

use crate::time::{self, Micros};

/// A register width this kernel uses.
pub trait Width: Copy {}
impl Width for u8 {}
impl Width for u16 {}
impl Width for u32 {}

/// A mapped range of device registers. A clone is the same range.
#[derive(Debug, Clone)]
pub struct Registers {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is global, device registers belong to no thread, and every access is one
// volatile load or store.
unsafe impl Send for Registers {}

impl Registers {
    /// Maps `len` bytes of registers at `phys`.
    ///
    /// The range must come from a base address register of a device, so that it is no RAM.
    pub fn map(phys: PhysAddr, len: usize) -> Self {
        Self {
            base: crate::mm::map_mmio(phys, len as u64),
            len,
        }
    }

    /// Reads the register at `offset` bytes. Panics outside the range or unaligned.
    pub fn read<T: Width>(&self, offset: usize) -> T {
        self.pointer(offset).read()
    }

    /// Writes the register at `offset` bytes. Panics outside the range or unaligned.
    pub fn write<T: Width>(&self, offset: usize, value: T) {
        self.pointer(offset).write(value);
    }

    fn pointer<T: Width>(&self, offset: usize) -> VolatilePtr<'_, T> {
        let size = size_of::<T>();
        assert!(
            offset.is_multiple_of(size) && offset.checked_add(size).is_some_and(|e| e <= self.len),
            "register offset {offset:#x} outside {:#x} bytes",
            self.len
        );
        // SAFETY: the offset was checked against the mapped length and the register width; `base`
        // is page aligned or at least 4-byte aligned as base address registers and capability
        // offsets are; the mapping is never removed.
        unsafe { VolatilePtr::new(self.base.add(offset).cast()) }
    }
}

impl Bus for Registers {
    fn read(&self, offset: usize) -> u32 {
        Registers::read(self, offset)
    }

    fn write(&self, offset: usize, value: u32) {
        Registers::write(self, offset, value);
    }

    fn pause(&self, micros: u32) {
        let end = time::now() + Micros(u64::from(micros));
        while time::now() < end {
            core::hint::spin_loop();
        }
    }
}

impl NarrowBus for Registers {
    fn read_u8(&self, offset: usize) -> u8 {
        Registers::read(self, offset)
    }

    fn write_u8(&self, offset: usize, value: u8) {
        Registers::write(self, offset, value);
    }

    fn write_u16(&self, offset: usize, value: u16) {
        Registers::write(self, offset, value);
    }
}
