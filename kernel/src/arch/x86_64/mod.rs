//! x86-64: CPU tables, traps, ring 3, timer, idle.
//!
//! | module | purpose |
//! |---|---|
//! | [`cores`] | the other cores: work for all, one lock, forgotten translations |
//! | [`cpu`] | features, control registers |
//! | [`gdt`] | segments, task state, interrupt stacks |
//! | [`trap`] | entry stubs, interrupt table, what happens on a trap in ring 0 |
//! | [`user`] | ring 3: enter, come back with a [`user::Trap`] |
//! | [`fpu`] | the program's floating-point state |
//! | [`interrupts`] | vectors and their classes, counting |
//! | [`apic`], [`ioapic`] | local APIC; the I/O APICs, which are masked |
//! | [`timer`], [`clock`], [`reference`] | one-shot timer, calibration, what it is measured against |
//! | [`tlb`] | page-table roots and translations of this core |
//! | [`machine_check`] | errors that hardware has found |
//! | [`idle`] | the only place where the kernel sleeps |
//! | [`entropy`], [`rtc`], [`serial`] | random seeds, the date, COM1 |
//! | [`probe`], `test_programs` | expected faults and small programs, for tests |
//!
//! Invariant: interrupts are off in ring 0 except where a core sleeps ([`idle`], [`cores`]). GS is
//! never used by the kernel, so no SWAPGS can be forgotten: what a core has of its own lies in
//! arrays, and [`gdt::this`] says which core this is.

pub mod apic;
pub mod clock;
pub mod cores;
pub mod cpu;
pub mod entropy;
pub mod fpu;
pub mod gdt;
#[cfg(feature = "ktest")]
pub mod given_files;
pub mod idle;
pub mod interrupts;
pub mod ioapic;
pub mod machine_check;
pub mod probe;
mod reference;
pub mod rtc;
pub mod serial;
#[cfg(feature = "ktest")]
pub mod test_programs;
pub mod timer;
pub mod tlb;
pub mod trap;
pub mod user;

use core::cell::UnsafeCell;
use core::fmt;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};

use ::x86_64::instructions::port::Port;
use ::x86_64::registers::control::{Cr0, Cr2, Cr3, Cr4};
use kernel_core::acpi::Machine;
use kernel_core::addr::PhysAddr;
use spin::Once;

/// Port of QEMU's `isa-debug-exit` device.
const DEBUG_EXIT_PORT: u16 = 0xf4;
/// QEMU leaves with status 33.
#[cfg(feature = "ktest")]
const DEBUG_EXIT_SUCCESS: u32 = 0x10;
/// QEMU leaves with status 35.
const DEBUG_EXIT_FAILURE: u32 = 0x11;

/// The reset control register of Intel's chip sets since the PIIX3, which QEMU's machines and
/// servers have: the kind of reset is written first, then the same with the bit that begins it.
const RESET_CONTROL_PORT: u16 = 0xcf9;
const RESET_CONTROL_ARM: u8 = 0x02;
const RESET_CONTROL_FULL: u8 = 0x06;
/// The command port of the keyboard controller, and the command that pulses the processor's reset
/// line.
const KEYBOARD_PORT: u16 = 0x64;
const KEYBOARD_PULSE_RESET: u8 = 0xfe;

/// Whether a test runs: the machine is then left and not halted.
static LEAVE_WHEN_DONE: AtomicBool = AtomicBool::new(false);

/// A static that one core touches, or each core its own part of.
#[repr(transparent)]
struct CpuCell<T>(UnsafeCell<T>);

// SAFETY: tables are written by the boot core before there are others; what changes later is an
// array with an element for each core. Interrupts are off in ring 0, and the handlers that run in
// spite of that (NMI, machine check) do not touch these statics.
unsafe impl<T> Sync for CpuCell<T> {}

impl<T> CpuCell<T> {
    const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    const fn get(&self) -> *mut T {
        self.0.get()
    }
}

/// Bytes of a stack.
#[repr(C, align(16))]
struct StackBytes<const N: usize>([u8; N]);

/// Maps that many bytes of registers for good, and says where.
pub type MapRegisters = fn(PhysAddr, u64) -> NonNull<u8>;

static MAP_REGISTERS: Once<MapRegisters> = Once::new();

fn map_registers(registers: PhysAddr, bytes: u64) -> NonNull<u8> {
    MAP_REGISTERS.get().expect("arch::init has not run")(registers, bytes)
}

/// Loads segments and the interrupt table, so that a fault in early start-up is reported: to
/// `exception`, as all that nobody expected.
pub fn init_tables(exception: fn(&trap::TrapFrame) -> !) {
    gdt::init();
    trap::init(exception);
    interrupts::mask_legacy();
}

/// Turns on what the CPU offers, the system-call instruction, the APIC; masks what firmware left
/// open; calibrates the clock. Needs the kernel's own page tables. `map` maps registers of a
/// device.
pub fn init(machine: &Machine, map: MapRegisters) {
    MAP_REGISTERS.call_once(|| map);
    cpu::init();
    fpu::init();
    user::init();
    apic::init();
    ioapic::mask(&machine.io_apics);
    clock::init(machine);
    machine_check::init();
    cpu::report();
}

/// Gives the registers that stay loaded while the kernel runs (floating point, segments) the values
/// a program starts with: between two programs.
pub fn reset_program_registers() {
    fpu::reset();
    user::reset_segments();
}

/// The time-stamp counter.
pub fn tsc() -> u64 {
    // SAFETY: every x86-64 CPU has RDTSC, and it may be used in ring 0.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// The stack pointer of the caller, more or less.
#[inline(always)]
pub fn stack_pointer() -> u64 {
    let rsp: u64;
    // SAFETY: reads a register.
    unsafe { core::arch::asm!("mov {}, rsp", out(reg) rsp, options(nomem, nostack)) };
    rsp
}

/// Switches interrupts off for good; for the panic handler.
pub fn disable_interrupts() {
    ::x86_64::instructions::interrupts::disable();
}

/// Stops the CPU for good.
pub fn halt() -> ! {
    disable_interrupts();
    loop {
        ::x86_64::instructions::hlt();
    }
}

/// Whether [`fail`] and [`succeed`] leave QEMU from now on; without QEMU's device they halt in any
/// case.
pub fn set_leaves_when_done(leaves: bool) {
    LEAVE_WHEN_DONE.store(leaves, Ordering::Relaxed);
}

/// Whether a test runs, which leaves QEMU by [`fail`] or [`succeed`].
pub fn leaves_when_done() -> bool {
    LEAVE_WHEN_DONE.load(Ordering::Relaxed)
}

/// Starts the machine anew, as its reset button does: by the chip set, else by the keyboard
/// controller, else by a fault that the processor cannot report.
pub fn reset() -> ! {
    disable_interrupts();
    // SAFETY: the ports are those of every PC's reset control register and keyboard controller, and
    // whatever becomes of the machine is meant. Without interrupt gates a breakpoint ends in the
    // processor's own reset.
    unsafe {
        Port::new(RESET_CONTROL_PORT).write(RESET_CONTROL_ARM);
        Port::new(RESET_CONTROL_PORT).write(RESET_CONTROL_FULL);
        Port::new(KEYBOARD_PORT).write(KEYBOARD_PULSE_RESET);
        ::x86_64::instructions::tables::lidt(&::x86_64::structures::DescriptorTablePointer {
            limit: 0,
            base: ::x86_64::VirtAddr::zero(),
        });
    }
    ::x86_64::instructions::interrupts::int3();
    halt()
}

/// Ends a test that went well, or halts.
#[cfg(feature = "ktest")]
pub fn succeed() -> ! {
    leave(DEBUG_EXIT_SUCCESS)
}

/// Ends a test that failed, or halts.
pub fn fail() -> ! {
    leave(DEBUG_EXIT_FAILURE)
}

fn leave(value: u32) -> ! {
    if LEAVE_WHEN_DONE.load(Ordering::Relaxed) {
        // SAFETY: the port belongs to isa-debug-exit on machines that run tests; on others
        // nothing is there, and the kernel halts.
        unsafe { Port::new(DEBUG_EXIT_PORT).write(value) };
    }
    halt()
}

/// Control registers, for a panic report.
pub struct ControlRegisters {
    cr0: u64,
    cr2: u64,
    cr3: u64,
    cr4: u64,
}

impl ControlRegisters {
    /// Reads them.
    pub fn read() -> Self {
        Self {
            cr0: Cr0::read_raw(),
            cr2: Cr2::read_raw(),
            cr3: Cr3::read().0.start_address().as_u64(),
            cr4: Cr4::read_raw(),
        }
    }
}

impl fmt::Display for ControlRegisters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cr0 {:#x} cr2 {:#x} cr3 {:#x} cr4 {:#x}",
            self.cr0, self.cr2, self.cr3, self.cr4
        )
    }
}
