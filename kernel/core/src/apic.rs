//! What can be said about a local APIC without having one: modes, register numbers, lines.
//!
//! Key type: [`Mode`]. Source: Intel SDM volume 3A, chapter 11 (11.4.4, 11.4.8, 11.12.1).
//! Neighbours: `kernel::arch::apic` has the registers.
//!
//! Invariant: an APIC that firmware left in x2APIC mode is never asked to leave it.

use core::fmt;

use crate::addr::PhysAddr;

/// Bit of the base register: x2APIC mode.
pub const BASE_X2APIC: u64 = 1 << 10;
const BASE_ENABLE: u64 = 1 << 11;
/// Bits of the base register that hold the address.
pub const BASE_ADDRESS: u64 = 0x000f_ffff_ffff_f000;
/// First model-specific register of x2APIC mode.
const MSR_FIRST: u32 = 0x800;

/// Highest APIC id to which an interrupt can be sent by message without remapping; the next one
/// means all processors.
pub const MESSAGE_ID_MAX: u32 = 254;

/// Number of the local line of the performance counters, and of the thermal sensor.
pub const LINE_PERFORMANCE: u32 = 4;
/// See [`LINE_PERFORMANCE`].
pub const LINE_THERMAL: u32 = 5;

/// How an APIC's registers are reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// In memory, at this address.
    Xapic(PhysAddr),
    /// As model-specific registers.
    X2apic,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Xapic(_) => "xAPIC",
            Self::X2apic => "x2APIC",
        })
    }
}

/// The mode of an APIC whose base register holds `base`, and what to write there to have it
/// enabled in that mode.
pub fn enabled(base: u64) -> (Mode, u64) {
    let mode = match base & (BASE_ENABLE | BASE_X2APIC) == BASE_ENABLE | BASE_X2APIC {
        true => Mode::X2apic,
        false => Mode::Xapic(PhysAddr::new(base & BASE_ADDRESS)),
    };
    (mode, base | BASE_ENABLE)
}

/// The model-specific register that is `register` (an offset in memory) in x2APIC mode.
pub const fn msr(register: u32) -> u32 {
    MSR_FIRST + register / 16
}

/// Whether an APIC with this version register has a local line of that number.
pub const fn has_line(version: u32, line: u32) -> bool {
    version >> 16 & 0xff >= line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_of_firmware_stays() {
        let memory = Mode::Xapic(PhysAddr::new(0xfee0_0000));
        // The boot processor; enabled; switched off; in x2APIC mode.
        assert_eq!(enabled(0xfee0_0900), (memory, 0xfee0_0900));
        assert_eq!(enabled(0xfee0_0100), (memory, 0xfee0_0900));
        assert_eq!(enabled(0xfee0_0d00), (Mode::X2apic, 0xfee0_0d00));
    }

    #[test]
    fn registers_have_the_numbers_of_the_manual() {
        // Id, end of interrupt, command, timer's divisor.
        let registers = [0x20, 0xb0, 0x300, 0x3e0].map(msr);
        assert_eq!(registers, [0x802, 0x80b, 0x830, 0x83e]);
        // A Pentium 4 has six lines, an emulated one may have less.
        assert!(has_line(0x0005_0014, LINE_THERMAL));
        assert!(!has_line(0x0004_0014, LINE_THERMAL));
        assert!(has_line(0x0004_0014, LINE_PERFORMANCE));
    }
}
