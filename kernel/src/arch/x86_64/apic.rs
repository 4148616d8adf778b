//! The local APIC in xAPIC mode: registers in memory (Intel SDM volume 3A, chapter 11).
//!
//! Neighbours: [`super::timer`] uses its timer; a driver that sends interrupts by message (MSI-X)
//! asks for [`id`].
//!
//! Invariant: only the timer, the error-free spurious vector and messages to vectors from
//! `interrupts::allocate` can interrupt; the local lines are masked except NMI.

use core::ptr::NonNull;

use raw_cpuid::cpuid;
use spin::Once;
use volatile::VolatilePtr;
use x86_64::registers::model_specific::Msr;

use super::interrupts::{SPURIOUS_VECTOR, TIMER_VECTOR};
use crate::mm;

const BASE_MSR: u32 = 0x1b;
const BASE_ENABLE: u64 = 1 << 11;
const BASE_X2APIC: u64 = 1 << 10;
const BASE_ADDRESS: u64 = 0x000f_ffff_ffff_f000;

const REGISTERS_BYTES: u64 = 4096;
const ID: usize = 0x20;
const TASK_PRIORITY: usize = 0x80;
const END_OF_INTERRUPT: usize = 0xb0;
const SPURIOUS: usize = 0xf0;
#[cfg(feature = "ktest")]
const COMMAND_LOW: usize = 0x300;
#[cfg(feature = "ktest")]
const COMMAND_HIGH: usize = 0x310;
const LVT_TIMER: usize = 0x320;
const LVT_THERMAL: usize = 0x330;
const LVT_PERFORMANCE: usize = 0x340;
const LVT_LINT0: usize = 0x350;
const LVT_LINT1: usize = 0x360;
const LVT_ERROR: usize = 0x370;
const TIMER_INITIAL: usize = 0x380;
const TIMER_CURRENT: usize = 0x390;
const TIMER_DIVIDE: usize = 0x3e0;

const LVT_MASKED: u32 = 1 << 16;
const LVT_NMI: u32 = 4 << 8;
const SOFTWARE_ENABLE: u32 = 1 << 8;
/// Divide by 16: the longest one-shot is then at least 10 s on today's CPUs.
const DIVIDE_BY_16: u32 = 0b0011;

struct Registers(NonNull<u8>);

// SAFETY: the pointer is to device registers that exist as long as the machine runs.
unsafe impl Send for Registers {}
// SAFETY: one CPU; every access is one volatile load or store.
unsafe impl Sync for Registers {}

static REGISTERS: Once<Registers> = Once::new();

fn register(offset: usize) -> VolatilePtr<'static, u32> {
    let base = REGISTERS.get().expect("apic::init has not run").0;
    debug_assert!(offset < REGISTERS_BYTES as usize && offset.is_multiple_of(16));
    // SAFETY: `base` maps the whole page of registers; the offset is one of the constants above,
    // inside the page and aligned. Reading and writing 32 bits is how they are used.
    unsafe { VolatilePtr::new(base.add(offset).cast()) }
}

/// Maps and enables the APIC. Panics on a machine without one.
pub fn init() {
    assert!(cpuid!(1).edx >> 9 & 1 == 1, "this CPU has no local APIC");
    let mut msr = Msr::new(BASE_MSR);
    // SAFETY: the CPU has an APIC, so it has this register. x2APIC mode can be left only through
    // the disabled state.
    let base = unsafe {
        let mut value = msr.read();
        if value & BASE_X2APIC != 0 {
            value &= !(BASE_X2APIC | BASE_ENABLE);
            msr.write(value);
        }
        msr.write(value | BASE_ENABLE);
        mm::PhysAddr::new(value & BASE_ADDRESS)
    };
    REGISTERS.call_once(|| Registers(mm::map_mmio(base, REGISTERS_BYTES)));
    register(LVT_TIMER).write(LVT_MASKED | u32::from(TIMER_VECTOR));
    register(LVT_THERMAL).write(LVT_MASKED);
    register(LVT_PERFORMANCE).write(LVT_MASKED);
    register(LVT_LINT0).write(LVT_MASKED);
    register(LVT_LINT1).write(LVT_NMI);
    register(LVT_ERROR).write(LVT_MASKED);
    register(TIMER_DIVIDE).write(DIVIDE_BY_16);
    register(TIMER_INITIAL).write(0);
    register(TASK_PRIORITY).write(0);
    register(SPURIOUS).write(SOFTWARE_ENABLE | u32::from(SPURIOUS_VECTOR));
}

/// Identity of this CPU's APIC: the destination of messages (MSI address bits 12 to 19).
pub fn id() -> u8 {
    (register(ID).read() >> 24) as u8
}

pub(super) fn end_of_interrupt() {
    register(END_OF_INTERRUPT).write(0);
}

/// Starts the timer: one interrupt after `ticks`, at least one.
pub(super) fn start_timer(ticks: u32) {
    register(LVT_TIMER).write(u32::from(TIMER_VECTOR));
    register(TIMER_INITIAL).write(ticks.max(1));
}

/// Starts the timer with its interrupt masked, for calibration.
pub(super) fn start_timer_masked() {
    register(LVT_TIMER).write(LVT_MASKED | u32::from(TIMER_VECTOR));
    register(TIMER_INITIAL).write(u32::MAX);
}

/// Stops the timer.
pub(super) fn stop_timer() {
    register(LVT_TIMER).write(LVT_MASKED | u32::from(TIMER_VECTOR));
    register(TIMER_INITIAL).write(0);
}

/// Ticks until the timer fires.
pub(super) fn timer_ticks_left() -> u32 {
    register(TIMER_CURRENT).read()
}

/// Sends an NMI to this CPU; for tests.
#[cfg(feature = "ktest")]
pub fn send_nmi_to_self() {
    register(COMMAND_HIGH).write(nmi_to_self().0);
    register(COMMAND_LOW).write(nmi_to_self().1);
}

/// The two halves of the command that sends an NMI to this CPU, for a test that sends it from
/// ring 3: high half first, at offsets 0x310 and 0x300 of the page at [`physical_address`].
#[cfg(feature = "ktest")]
pub fn nmi_to_self() -> (u32, u32) {
    const LEVEL_ASSERT: u32 = 1 << 14;
    (u32::from(id()) << 24, LEVEL_ASSERT | LVT_NMI)
}

/// Where the registers lie.
#[cfg(feature = "ktest")]
pub fn physical_address() -> mm::PhysAddr {
    // SAFETY: the CPU has an APIC (`init`), so it has this register.
    mm::PhysAddr::new(unsafe { Msr::new(BASE_MSR).read() } & BASE_ADDRESS)
}
