//! Expected faults in ring 0: runs a function and catches the exception it causes.
//!
//! Used by the kernel's own tests only, which prove that forbidden accesses fault.
//!
//! Invariant: outside [`catch`] nothing is expected, and every exception is a panic.

use core::arch::naked_asm;
use core::sync::atomic::{AtomicBool, Ordering};

use super::CpuCell;
use super::trap::TrapFrame;

/// The exception that ended a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caught {
    /// Vector of the exception.
    pub vector: u8,
    /// Its error code.
    pub code: u64,
    /// Address of a page fault, else zero.
    pub address: u64,
}

static EXPECTING: AtomicBool = AtomicBool::new(false);
static STACK: CpuCell<u64> = CpuCell::new(0);
static CAUGHT: CpuCell<Option<Caught>> = CpuCell::new(None);

/// Calls `function(argument)`; the exception it ended with, `None` when it returned. What the
/// function owned when it faulted is not dropped.
#[cfg(feature = "ktest")]
pub fn catch(function: extern "C" fn(u64), argument: u64) -> Option<Caught> {
    // SAFETY: the boot core alone probes, and probes do not nest: nobody else refers to the cell.
    unsafe { *CAUGHT.get() = None };
    EXPECTING.store(true, Ordering::Relaxed);
    // SAFETY: `call` keeps the ABI: it saves what a function must keep, and a fault returns to
    // the instruction after the call with the stack as it was.
    unsafe { call(function, argument) };
    EXPECTING.store(false, Ordering::Relaxed);
    // SAFETY: as above.
    unsafe { *CAUGHT.get() }
}

/// What [`write`] writes.
#[cfg(feature = "ktest")]
pub const PATTERN: u64 = 0x1234_5678_9abc_def0;

/// Reads eight bytes. Call through [`catch`].
#[cfg(feature = "ktest")]
pub extern "C" fn read(address: u64) {
    // SAFETY: a read that faults is caught, any other harms nothing.
    unsafe { core::arch::asm!("mov {0}, [{0}]", inout(reg) address => _, options(nostack)) };
}

/// Writes [`PATTERN`]. Call through [`catch`], for addresses that nobody uses or that fault.
#[cfg(feature = "ktest")]
pub extern "C" fn write(address: u64) {
    // SAFETY: the tests that call this expect a fault, or own the page.
    unsafe {
        core::arch::asm!("mov [{0}], {1}", in(reg) address, in(reg) PATTERN, options(nostack));
    }
}

/// Calls an address. Call through [`catch`], for addresses that fault or hold a function.
#[cfg(feature = "ktest")]
pub extern "C" fn execute(address: u64) {
    // SAFETY: the tests that call this expect a fault, or pass the address of [`nothing`].
    unsafe { core::arch::asm!("call {}", in(reg) address, clobber_abi("C")) };
}

/// Returns.
#[cfg(feature = "ktest")]
pub extern "C" fn nothing() {}

/// Opens SYSENTER to an address that is nobody's and arms a breakpoint at `address`, as firmware
/// might have left them.
#[cfg(feature = "ktest")]
pub fn leave_entries_open(address: u64) {
    const SYSENTER: [(u32, u64); 3] = [
        (0x174, super::gdt::KERNEL_CODE as u64),
        (0x175, 0),
        (0x176, 0),
    ];
    for (register, value) in SYSENTER {
        // SAFETY: only a program of a test uses SYSENTER, after `user::init` has closed it again.
        unsafe { x86_64::registers::model_specific::Msr::new(register).write(value) };
    }
    // SAFETY: a breakpoint that is hit is a debug exception, which the kernel handles.
    unsafe {
        core::arch::asm!("mov dr0, {0}", "mov dr7, {1}", in(reg) address, in(reg) 0x402u64,
            options(nomem, nostack));
    }
}

/// A machine check, as the processor would raise one: its gate is entered by an instruction.
#[cfg(feature = "ktest")]
pub fn raise_machine_check() {
    // SAFETY: the gate is there, and its handler does not return.
    unsafe { core::arch::asm!("int 18") };
}

/// The flags register as it is.
#[cfg(feature = "ktest")]
pub fn flags() -> u64 {
    x86_64::registers::rflags::read_raw()
}

/// Whether a probe runs.
pub fn is_expecting() -> bool {
    EXPECTING.load(Ordering::Relaxed)
}

/// If a probe runs: records the exception and makes the frame return to the end of [`call`].
pub fn take(frame: &mut TrapFrame, address: u64) -> bool {
    if !EXPECTING.swap(false, Ordering::Relaxed) {
        return false;
    }
    // SAFETY: the boot core alone probes; `catch` is not running, the exception interrupted what
    // it called.
    unsafe {
        *CAUGHT.get() = Some(Caught {
            vector: frame.vector as u8,
            code: frame.code,
            address,
        });
        frame.rsp = *STACK.get();
    }
    frame.rip = resume as *const () as u64;
    true
}

#[unsafe(naked)]
#[cfg(feature = "ktest")]
unsafe extern "C" fn call(function: extern "C" fn(u64), argument: u64) {
    naked_asm!(
        "push rbx", "push rbp", "push r12", "push r13", "push r14", "push r15",
        "sub rsp, 8",
        "mov [rip + {stack}], rsp",
        "mov rax, rdi",
        "mov rdi, rsi",
        "call rax",
        "jmp {resume}",
        stack = sym STACK,
        resume = sym resume,
    )
}

/// The end of [`call`]: expects the stack pointer that it stored.
#[unsafe(naked)]
unsafe extern "C" fn resume() {
    naked_asm!(
        "add rsp, 8",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbp",
        "pop rbx",
        "ret",
    )
}
