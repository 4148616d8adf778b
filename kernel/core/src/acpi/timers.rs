//! Timers that other clocks are measured against: FADT (ACPI 6.5, 5.2.9) and the HPET's table
//! (IA-PC HPET Specification 1.0a, section 3.2.4).
//!
//! Key type: [`PmTimer`].

use super::{Machine, Register, generic_address, u32_at};

/// FADT: the timer's port, its length, flags, and its place as later versions give it.
const PM_TIMER_PORT: usize = 76;
const PM_TIMER_LENGTH: usize = 91;
const FLAGS: usize = 112;
const PM_TIMER_ADDRESS: usize = 208;
/// Flags: the timer has 32 bits and not 24; the machine has none of the old hardware.
const TIMER_HAS_32_BITS: u32 = 1 << 8;
const HARDWARE_REDUCED: u32 = 1 << 20;
/// HPET: the address of the registers.
const HPET_ADDRESS: usize = 40;

/// The power management timer, which counts up at 3.579545 MHz.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PmTimer {
    /// Its register, 32 bits wide.
    pub register: Register,
    /// Bits that count.
    pub bits: u32,
}

impl Machine {
    pub(super) fn add_fadt(&mut self, table: &[u8]) {
        let timer = || {
            let flags = u32_at(table, FLAGS)?;
            if flags & HARDWARE_REDUCED != 0 || *table.get(PM_TIMER_LENGTH)? != 4 {
                return None;
            }
            let port = || u16::try_from(u32_at(table, PM_TIMER_PORT)?).ok();
            let port = || port().filter(|&port| port != 0).map(Register::Port);
            Some(PmTimer {
                register: generic_address(table, PM_TIMER_ADDRESS).or_else(port)?,
                bits: match flags & TIMER_HAS_32_BITS {
                    0 => 24,
                    _ => 32,
                },
            })
        };
        self.pm_timer = self.pm_timer.or_else(timer);
    }

    pub(super) fn add_hpet(&mut self, table: &[u8]) {
        if let Some(Register::Memory(registers)) = generic_address(table, HPET_ADDRESS) {
            self.hpet = self.hpet.or(Some(registers));
        }
    }
}
