//! Entry stubs, the interrupt table, and traps taken in ring 0.
//!
//! Every vector has a gate, also those that nobody is given: an interrupt that firmware left on its
//! way is then counted, and no fault. A stub of two or three instructions pushes error code and
//! vector and jumps to [`entry`]. A trap from ring 3 goes on in `user::trap_from_user`, which ends
//! `user::run`; NMI, double fault and machine check from anywhere, and every trap from ring 0, are
//! handled here on a [`TrapFrame`].
//!
//! Invariant: an exception in ring 0 ends in a panic, except where [`super::probe`] expects one.
//! The NMI handler touches atomics and ports only, so it may come between any two instructions,
//! also between SYSCALL and the change of stack.

use core::arch::naked_asm;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use spin::Once;
use x86_64::instructions::port::Port;
use x86_64::instructions::tables::lidt;
use x86_64::registers::control::Cr2;
use x86_64::structures::DescriptorTablePointer;

use super::gdt::{KERNEL_CODE, StackIndex};
use super::{CpuCell, interrupts, machine_check, probe, user};

/// Vectors: 32 exceptions and 224 interrupts.
const VECTORS: usize = 256;
/// First vector that is not an exception.
pub const FIRST_INTERRUPT: u8 = 32;

/// Debug exception.
pub const DEBUG: u8 = 1;
/// Non-maskable interrupt.
pub const NMI: u8 = 2;
/// Breakpoint.
pub const BREAKPOINT: u8 = 3;
/// Double fault.
pub const DOUBLE_FAULT: u8 = 8;
/// General protection fault.
pub const GENERAL_PROTECTION: u8 = 13;
/// Page fault.
pub const PAGE_FAULT: u8 = 14;
/// Machine check.
pub const MACHINE_CHECK: u8 = 18;

/// Names of the exceptions, for reports.
const NAMES: [&str; 22] = [
    "divide error",
    "debug exception",
    "non-maskable interrupt",
    "breakpoint",
    "overflow",
    "bound range exceeded",
    "invalid opcode",
    "device not available",
    "double fault",
    "coprocessor segment overrun",
    "invalid task state",
    "segment not present",
    "stack fault",
    "general protection fault",
    "page fault",
    "reserved exception",
    "x87 floating-point error",
    "alignment check",
    "machine check",
    "SIMD floating-point error",
    "virtualization exception",
    "control protection exception",
];

/// Name of an exception vector.
pub fn name(vector: u8) -> &'static str {
    NAMES
        .get(usize::from(vector))
        .copied()
        .unwrap_or("unexpected interrupt")
}

/// The kernel has panicked: a core that gets an NMI stands still.
static STOPPED: AtomicBool = AtomicBool::new(false);

/// Has every NMI from now on stop the core that gets it.
pub(super) fn stop_at_nmi() {
    STOPPED.store(true, Ordering::Relaxed);
}

/// Non-maskable interrupts seen.
static NMIS: AtomicU64 = AtomicU64::new(0);

/// Number of non-maskable interrupts since start.
#[cfg(feature = "ktest")]
pub fn nmi_count() -> u64 {
    NMIS.load(Ordering::Relaxed)
}

/// Registers at a trap in ring 0, as the stubs leave them on the stack.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct TrapFrame {
    r15: u64,
    r14: u64,
    r13: u64,
    r12: u64,
    r11: u64,
    r10: u64,
    r9: u64,
    r8: u64,
    rbp: u64,
    rdi: u64,
    rsi: u64,
    rdx: u64,
    rcx: u64,
    rbx: u64,
    rax: u64,
    /// Vector of the trap.
    pub vector: u64,
    /// Error code, zero where the CPU gives none.
    pub code: u64,
    /// Instruction pointer.
    pub rip: u64,
    cs: u64,
    rflags: u64,
    /// Stack pointer.
    pub rsp: u64,
    ss: u64,
}

impl TrapFrame {
    /// Name of the exception.
    pub fn name(&self) -> &'static str {
        name(self.vector as u8)
    }
}

impl fmt::Display for TrapFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let base = kernel_core::addr::KERNEL_IMAGE;
        writeln!(
            f,
            "vector {} code {:#x} rip {:#x} (image + {:#x}) cs {:#x} rflags {:#x} rsp {:#x} ss {:#x}",
            self.vector,
            self.code,
            self.rip,
            self.rip.wrapping_sub(base),
            self.cs,
            self.rflags,
            self.rsp,
            self.ss
        )?;
        let rows = [
            [("rax", self.rax), ("rbx", self.rbx), ("rcx", self.rcx)],
            [("rdx", self.rdx), ("rsi", self.rsi), ("rdi", self.rdi)],
            [("rbp", self.rbp), ("r8", self.r8), ("r9", self.r9)],
            [("r10", self.r10), ("r11", self.r11), ("r12", self.r12)],
            [("r13", self.r13), ("r14", self.r14), ("r15", self.r15)],
        ];
        for (index, row) in rows.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            for (name, value) in row {
                write!(f, "{name:4}{value:#018x} ")?;
            }
        }
        Ok(())
    }
}

/// One gate of the interrupt table (Intel SDM volume 3A, 6.14.1).
#[derive(Clone, Copy)]
#[repr(C)]
struct Gate {
    offset_low: u16,
    selector: u16,
    stack: u8,
    kind: u8,
    offset_middle: u16,
    offset_high: u32,
    reserved: u32,
}

impl Gate {
    const ABSENT: Self = Self {
        offset_low: 0,
        selector: 0,
        stack: 0,
        kind: 0,
        offset_middle: 0,
        offset_high: 0,
        reserved: 0,
    };

    fn new(handler: u64, vector: u8) -> Self {
        // Present, interrupt gate (clears IF); only INT3 may be used by ring 3.
        let kind = if vector == BREAKPOINT { 0xee } else { 0x8e };
        Self {
            offset_low: handler as u16,
            selector: KERNEL_CODE,
            stack: stack_of(vector).map_or(0, |index| index as u8 + 1),
            kind,
            offset_middle: (handler >> 16) as u16,
            offset_high: (handler >> 32) as u32,
            reserved: 0,
        }
    }
}

const fn stack_of(vector: u8) -> Option<StackIndex> {
    match vector {
        DEBUG => Some(StackIndex::Debug),
        NMI => Some(StackIndex::Nmi),
        DOUBLE_FAULT => Some(StackIndex::DoubleFault),
        PAGE_FAULT => Some(StackIndex::PageFault),
        MACHINE_CHECK => Some(StackIndex::MachineCheck),
        _ => None,
    }
}

#[repr(C, align(16))]
struct Table([Gate; VECTORS]);

static TABLE: CpuCell<Table> = CpuCell::new(Table([Gate::ABSENT; VECTORS]));

/// Told of an exception in ring 0 that nobody expected.
static UNEXPECTED: Once<fn(&TrapFrame) -> !> = Once::new();

fn unexpected(frame: &TrapFrame) -> ! {
    UNEXPECTED.get().expect("trap::init has run")(frame)
}

/// Fills in and loads the interrupt table. Needs the segments. `exception` is told of exceptions in
/// ring 0 that nobody expected.
pub fn init(exception: fn(&TrapFrame) -> !) {
    UNEXPECTED.call_once(|| exception);
    // SAFETY: called once, at start, with interrupts off; the table is a static and every gate
    // points to a stub written for its vector.
    unsafe {
        let table = &mut *TABLE.get();
        for (vector, stub) in EXCEPTION_STUBS.iter().enumerate() {
            table.0[vector] = Gate::new(*stub as usize as u64, vector as u8);
        }
        let first = interrupt_stubs as *const () as u64;
        for vector in FIRST_INTERRUPT..=u8::MAX {
            let stub = first + u64::from(vector - FIRST_INTERRUPT) * INTERRUPT_STUB_BYTES;
            table.0[usize::from(vector)] = Gate::new(stub, vector);
        }
    }
    load();
}

/// Loads the interrupt table on this core.
pub(super) fn load() {
    // SAFETY: the table is complete, lives as long as the kernel and is not written to any more.
    unsafe {
        lidt(&DescriptorTablePointer {
            limit: (size_of::<Table>() - 1) as u16,
            base: x86_64::VirtAddr::from_ptr(TABLE.get()),
        });
    }
}

type Stub = extern "C" fn();

/// Stub of a vector for which the CPU pushes no error code.
#[unsafe(naked)]
extern "C" fn stub<const VECTOR: u8>() {
    naked_asm!("push 0", "push {vector}", "jmp {entry}", vector = const VECTOR, entry = sym entry)
}

/// Stub of a vector for which the CPU pushes an error code.
#[unsafe(naked)]
extern "C" fn stub_with_code<const VECTOR: u8>() {
    naked_asm!("push {vector}", "jmp {entry}", vector = const VECTOR, entry = sym entry)
}

macro_rules! stubs {
    ($($vector:literal)*) => { [$(match $vector {
        8 | 10..=14 | 17 | 21 | 29 | 30 => stub_with_code::<$vector> as Stub,
        _ => stub::<$vector> as Stub,
    }),*] };
}

static EXCEPTION_STUBS: [Stub; FIRST_INTERRUPT as usize] = stubs!(
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
);

/// Distance between two stubs of interrupts: two pushes and a jump.
const INTERRUPT_STUB_BYTES: u64 = 2 + 5 + 5;

/// The stubs of all vectors from [`FIRST_INTERRUPT`] on, one after another, as bytes so that all
/// are of one length: push 0, push the vector (as 32 bits, since 8 would be extended by their
/// sign), jump to [`entry`].
#[unsafe(naked)]
extern "C" fn interrupt_stubs() {
    naked_asm!(
        ".set hearth_vector, {first}",
        ".rept {count}",
        ".byte 0x6a, 0",
        ".byte 0x68",
        ".long hearth_vector",
        ".byte 0xe9",
        ".long {entry} - . - 4",
        ".set hearth_vector, hearth_vector + 1",
        ".endr",
        first = const FIRST_INTERRUPT,
        count = const VECTORS - FIRST_INTERRUPT as usize,
        entry = sym entry,
    )
}

/// Where all stubs meet. On the stack: vector, error code, and what the CPU pushed. The CPU aligns
/// the stack to 16 before it pushes, so it is aligned again at the call.
#[unsafe(naked)]
extern "C" fn entry() {
    naked_asm!(
        "test byte ptr [rsp + 24], 3",
        "jz 2f",
        // From ring 3: ends `user::run`, unless the trap has nothing to do with the program.
        "cmp qword ptr [rsp], {nmi}",
        "je 2f",
        "cmp qword ptr [rsp], {double_fault}",
        "je 2f",
        "cmp qword ptr [rsp], {machine_check}",
        "jne {from_user}",
        "2:",
        "push rax", "push rbx", "push rcx", "push rdx", "push rsi", "push rdi", "push rbp",
        "push r8", "push r9", "push r10", "push r11", "push r12", "push r13", "push r14",
        "push r15",
        // Flags as Rust expects them; what was interrupted may have had DF or AC set.
        "push 2",
        "popfq",
        "mov rdi, rsp",
        "call {handler}",
        "pop r15", "pop r14", "pop r13", "pop r12", "pop r11", "pop r10", "pop r9", "pop r8",
        "pop rbp", "pop rdi", "pop rsi", "pop rdx", "pop rcx", "pop rbx", "pop rax",
        "add rsp, 16",
        "iretq",
        nmi = const NMI,
        double_fault = const DOUBLE_FAULT,
        machine_check = const MACHINE_CHECK,
        from_user = sym user::trap_from_user,
        handler = sym handle,
    )
}

/// A trap in ring 0 (or an NMI, double fault or machine check anywhere).
extern "C" fn handle(frame: &mut TrapFrame) {
    let vector = frame.vector as u8;
    match vector {
        NMI => on_nmi(frame),
        MACHINE_CHECK => machine_check::stop(frame.rip),
        // A breakpoint that a program prepared, hit in the first instruction of the kernel after
        // a blocked one (CVE-2018-8897): not ours, go on without single-stepping.
        DEBUG if !probe::is_expecting() => frame.rflags &= !(1 << 8),
        FIRST_INTERRUPT.. => {
            interrupts::acknowledge(vector, interrupts::Place::Idle);
        }
        _ => {
            let address = if vector == PAGE_FAULT {
                Cr2::read_raw()
            } else {
                0
            };
            if !probe::take(frame, address) {
                unexpected(frame)
            }
        }
    }
}

/// Counts an NMI; one that reports broken memory or a broken bus stops the node.
fn on_nmi(frame: &TrapFrame) {
    /// System control port B: bit 7 memory parity (SERR), bit 6 channel check.
    const CONTROL_B: u16 = 0x61;
    if STOPPED.load(Ordering::Relaxed) {
        super::halt();
    }
    NMIS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: reading the port changes nothing.
    let reason: u8 = unsafe { Port::new(CONTROL_B).read() };
    if reason & 0xc0 != 0 {
        unexpected(frame);
    }
}
