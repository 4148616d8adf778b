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
pub fn catch(function: extern "C" fn(u64), argument: u64) -> Option<Caught> {
    // SAFETY: one CPU, and probes do not nest: nobody else refers to the cell.
    unsafe { *CAUGHT.get() = None };
    EXPECTING.store(true, Ordering::Relaxed);
    // SAFETY: `call` keeps the ABI: it saves what a function must keep, and a fault returns to
    // the instruction after the call with the stack as it was.
    unsafe { call(function, argument) };
    EXPECTING.store(false, Ordering::Relaxed);
    // SAFETY: as above.
    unsafe { *CAUGHT.get() }
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
    // SAFETY: one CPU; `catch` is not running, the exception interrupted what it called.
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
