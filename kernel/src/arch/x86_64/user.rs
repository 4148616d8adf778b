//! Ring 3: [`run`] enters the program and comes back with the [`Trap`] that ended its turn.
//!
//! `run` is a call that returns: the kernel's callee-saved registers lie on its stack while the
//! program runs, the program's registers lie in its [`UserContext`] while the kernel runs. A
//! program that came by SYSCALL goes back by SYSRET when its instruction pointer is a user
//! address, else by IRET; `run` refuses an instruction pointer outside the user half, so neither
//! can fault in ring 0 (CVE-2012-0217).
//!
//! Neighbours: [`super::trap`] jumps to [`trap_from_user`]; `process` calls [`run`] in a loop.
//!
//! Each core has a [`Turn`], which its entry code must find before it has a register to itself.
//! SYSCALL enters at code of the core's own ([`ENTRIES`]), which knows where that is. Every other
//! trap arrives on a stack of the core's own, with the way to it above the stack's first word.
//!
//! Invariant: GS is never used in ring 0, so there is no SWAPGS; between SYSCALL and the change of
//! stack only NMI and machine check can come, which have stacks of their own.

use core::arch::naked_asm;
use core::fmt;
use core::mem::offset_of;

use kernel_core::addr::USER_END;
use kernel_core::crash::Registers;
use kernel_core::threads::CORES_MAX;
use x86_64::VirtAddr;
use x86_64::instructions::segmentation::{DS, ES, FS, GS, Segment};
use x86_64::registers::control::{Cr2, Efer, EferFlags};
use x86_64::registers::model_specific::{FsBase, GsBase, LStar, Msr, SFMask};
use x86_64::registers::rflags::RFlags;
use x86_64::structures::gdt::SegmentSelector;

use super::gdt::{self, KERNEL_CODE, StackIndex, USER_CODE, USER_DATA};
use super::interrupts::{self, Class, Place};
use super::trap::{FIRST_INTERRUPT, GENERAL_PROTECTION, PAGE_FAULT};
use super::{CpuCell, StackBytes};

/// The entries for SYSCALL of these cores.
macro_rules! entries {
    ($($core:literal)*) => { [$(syscall_entry::<$core>),*] };
}

/// Flags a program may set itself; all others are as the kernel wants them.
const USER_FLAGS: u64 = 0x0020_0dd5 | 1 << 18;
/// Interrupts on, and the bit that is always one.
const FIXED_FLAGS: u64 = 0x202;

/// The registers of a program while it does not run.
#[derive(Clone, Debug, Default)]
#[repr(C, align(16))]
pub struct UserContext {
    /// General registers; `rcx` and `r11` are lost in a system call, as the ABI says.
    pub rax: u64,
    pub rbx: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    pub rbp: u64,
    pub r8: u64,
    pub r9: u64,
    pub r10: u64,
    pub r11: u64,
    pub r12: u64,
    pub r13: u64,
    pub r14: u64,
    pub r15: u64,
    /// Instruction pointer.
    pub rip: u64,
    /// Flags; only those a program may set are honoured.
    pub rflags: u64,
    /// Stack pointer.
    pub rsp: u64,
    /// Base of FS: the program's thread pointer.
    pub fs_base: u64,
    /// Base of GS.
    pub gs_base: u64,
    /// Vector of the last trap.
    vector: u64,
    /// Error code of the last trap.
    code: u64,
    /// Whether the last trap was a system call, so that `rcx` and `r11` need not be restored.
    by_syscall: u64,
}

/// Why a program stopped running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trap {
    /// SYSCALL: number in `rax`, arguments in `rdi`, `rsi`, `rdx`, `r10`, `r8`, `r9`.
    Syscall,
    /// A page fault at `address`; the bits of `code` are in [`PageFaultCode`].
    PageFault {
        /// The address (CR2).
        address: u64,
        /// Error code.
        code: PageFaultCode,
    },
    /// Another exception.
    Exception {
        /// Its vector; [`super::trap::name`] names it.
        vector: u8,
        /// Error code, zero where there is none.
        code: u64,
    },
    /// An interrupt, already counted and acknowledged.
    Interrupt {
        /// What for.
        class: Class,
    },
}

/// Error code of a page fault (Intel SDM volume 3A, 4.7): bit 0 the page is there but not for
/// this, bit 1 a write, bit 2 from ring 3, bit 4 an instruction fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageFaultCode(pub u64);

impl UserContext {
    /// A program about to start at `rip` with stack pointer `rsp`, all other registers zero.
    pub fn new(rip: u64, rsp: u64) -> Self {
        Self {
            rip,
            rsp,
            rflags: FIXED_FLAGS,
            ..Self::default()
        }
    }

    /// The general registers.
    pub fn registers(&self) -> Registers {
        Registers {
            rax: self.rax,
            rbx: self.rbx,
            rcx: self.rcx,
            rdx: self.rdx,
            rsi: self.rsi,
            rdi: self.rdi,
            rbp: self.rbp,
            rsp: self.rsp,
            r8: self.r8,
            r9: self.r9,
            r10: self.r10,
            r11: self.r11,
            r12: self.r12,
            r13: self.r13,
            r14: self.r14,
            r15: self.r15,
            rip: self.rip,
            rflags: self.rflags,
        }
    }

    /// Has the program go on with these general registers, all of them: [`run`] looks at where and
    /// with which flags that is.
    pub fn set_registers(&mut self, registers: &Registers) {
        let Registers {
            rax,
            rbx,
            rcx,
            rdx,
            rsi,
            rdi,
            rbp,
            rsp,
            r8,
            r9,
            r10,
            r11,
            r12,
            r13,
            r14,
            r15,
            rip,
            rflags,
        } = *registers;
        *self = Self {
            rax,
            rbx,
            rcx,
            rdx,
            rsi,
            rdi,
            rbp,
            rsp,
            r8,
            r9,
            r10,
            r11,
            r12,
            r13,
            r14,
            r15,
            rip,
            rflags,
            by_syscall: 0,
            ..*self
        };
    }
}

impl fmt::Display for UserContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "rip {:#018x} rsp {:#018x} rflags {:#x} fs {:#x}",
            self.rip, self.rsp, self.rflags, self.fs_base
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

/// What the entry code needs, at addresses it knows.
#[repr(C)]
struct Turn {
    /// Stack pointer of the kernel inside `enter`.
    kernel_rsp: u64,
    /// The program that runs.
    context: *mut UserContext,
    /// The program's stack pointer for a moment of a system call.
    user_rsp: u64,
    /// FS and GS bases in the CPU, so that they are written only when they change.
    fs_base: u64,
    gs_base: u64,
}

impl Turn {
    const NONE: Self = Self {
        kernel_rsp: 0,
        context: core::ptr::null_mut(),
        user_rsp: 0,
        fs_base: 0,
        gs_base: 0,
    };
}

static TURNS: CpuCell<[Turn; CORES_MAX]> = CpuCell::new([Turn::NONE; CORES_MAX]);

/// The turn of a core.
fn turn(core: usize) -> *mut Turn {
    assert!(core < CORES_MAX, "core {core}");
    // The place of an element, of which no reference is made.
    TURNS.get().cast::<Turn>().wrapping_add(core)
}

/// Bytes of a trap stack.
const TRAP_STACK_BYTES: usize = 256;
/// Bytes above the first word of a stack: the way to the core's turn, and as many again so that the
/// stack's top is aligned.
const ABOVE_BYTES: u64 = 16;

/// Stacks on which a trap from ring 3 stores its five or six words before [`trap_from_user`] has
/// moved them to the context. Nothing else ever uses them.
static TRAP_STACKS: CpuCell<[StackBytes<TRAP_STACK_BYTES>; CORES_MAX]> =
    CpuCell::new([const { StackBytes([0; TRAP_STACK_BYTES]) }; CORES_MAX]);

/// Writes the way to a core's turn at the end of a stack; the top that is left.
fn mark_stack(core: usize, end: u64) -> u64 {
    let top = end - ABOVE_BYTES;
    // SAFETY: the caller gives the end of a stack of the core's that is mapped and not in use.
    unsafe { (top as *mut u64).write(turn(core) as u64) };
    top
}

/// Gives an interrupt of a core its guarded stack; `end` is the address after its last byte.
pub fn use_stack(core: usize, index: StackIndex, end: u64) {
    gdt::set_stack(core, index, mark_stack(core, end));
}

/// Code segment that SYSENTER loads; with none it is a general-protection fault.
const SYSENTER_CS: u32 = 0x174;
/// Debug control without any breakpoint; the bit is always one.
const NO_BREAKPOINTS: u64 = 0x400;

/// Switches on SYSCALL on this core (AMD APM volume 2, 6.1.1) and closes what firmware or a boot
/// loader may have left open: SYSENTER, which would enter ring 0 at their address, and hardware
/// breakpoints, which would stop programs.
pub fn init() {
    const STAR: u32 = 0xc000_0081;
    let core = gdt::this();
    let stacks = TRAP_STACKS.get() as u64;
    let end = stacks + ((core + 1) * TRAP_STACK_BYTES) as u64;
    gdt::set_trap_stack(core, mark_stack(core, end));
    // SYSRET loads CS from the upper field + 16 and SS from it + 8.
    let sysret_base = u64::from(USER_DATA - 8);
    debug_assert!(sysret_base + 16 == u64::from(USER_CODE));
    // SAFETY: the selectors are those of `gdt`; the handler is written for SYSCALL; all flags
    // that would change how the kernel runs (IF, DF, TF, AC, NT) are cleared on entry; nothing in
    // the kernel uses SYSENTER or breakpoints.
    unsafe {
        Efer::update(|flags| flags.insert(EferFlags::SYSTEM_CALL_EXTENSIONS));
        Msr::new(STAR).write(sysret_base << 48 | u64::from(KERNEL_CODE) << 32);
        LStar::write(VirtAddr::new(ENTRIES[core] as *const () as u64));
        SFMask::write(RFlags::from_bits_truncate(!0x2));
        Msr::new(SYSENTER_CS).write(0);
        core::arch::asm!("mov dr7, {}", in(reg) NO_BREAKPOINTS, options(nomem, nostack));
    }
    reset_segments();
}

/// Gives the segment registers that a program can load the values a program starts with: the null
/// selector, base zero. Between two programs; neither SYSRET nor IRET changes them.
pub fn reset_segments() {
    // SAFETY: ring 0 uses none of the four (64-bit mode, no GS base); their bases follow below.
    unsafe {
        DS::set_reg(SegmentSelector(0));
        ES::set_reg(SegmentSelector(0));
        FS::set_reg(SegmentSelector(0));
        GS::set_reg(SegmentSelector(0));
    }
    FsBase::write(VirtAddr::zero());
    GsBase::write(VirtAddr::zero());
    // SAFETY: the turn is this core's, and `run` is not in progress: nobody else refers to it.
    let turn = unsafe { &mut *turn(gdt::this()) };
    (turn.fs_base, turn.gs_base) = (0, 0);
}

/// Runs the program until it traps. Its address space must be active, its floating-point state in
/// the registers. The context then holds the registers at the trap; for a system call or a fault
/// the next call goes on behind the SYSCALL or repeats the instruction.
pub fn run(context: &mut UserContext) -> Trap {
    if context.rip >= USER_END || context.rsp >= USER_END && !is_kernel_half(context.rsp) {
        return Trap::Exception {
            vector: GENERAL_PROTECTION,
            code: 0,
        };
    }
    context.rflags = context.rflags & USER_FLAGS | FIXED_FLAGS;
    let turn = turn(gdt::this());
    // SAFETY: the turn is this core's, and `run` is not re-entered: nobody else refers to it.
    load_bases(unsafe { &mut *turn }, context);
    // SAFETY: the context outlives the call, no other refers to it meanwhile; rip and flags have
    // been checked above; ring 3 can reach only what its page tables give it.
    unsafe { enter(context, turn) };
    if context.by_syscall != 0 {
        return Trap::Syscall;
    }
    let vector = context.vector as u8;
    match vector {
        PAGE_FAULT => Trap::PageFault {
            address: Cr2::read_raw(),
            code: PageFaultCode(context.code),
        },
        FIRST_INTERRUPT.. => Trap::Interrupt {
            class: interrupts::acknowledge(vector, Place::User),
        },
        _ => Trap::Exception {
            vector,
            code: context.code,
        },
    }
}

/// Whether an address is canonical in the upper half: harmless as a stack pointer in ring 3, where
/// its use faults.
fn is_kernel_half(address: u64) -> bool {
    address >> 47 == 0x1_ffff
}

/// Loads the segment bases, where they differ from what the CPU has. One that is not canonical
/// cannot be loaded; `process` refuses those, here they count as zero.
fn load_bases(turn: &mut Turn, context: &UserContext) {
    if turn.fs_base != context.fs_base {
        FsBase::write(VirtAddr::try_new(context.fs_base).unwrap_or(VirtAddr::zero()));
        turn.fs_base = context.fs_base;
    }
    if turn.gs_base != context.gs_base {
        GsBase::write(VirtAddr::try_new(context.gs_base).unwrap_or(VirtAddr::zero()));
        turn.gs_base = context.gs_base;
    }
}

/// Enters ring 3; returns at the next trap, through [`leave`].
#[unsafe(naked)]
unsafe extern "C" fn enter(context: *mut UserContext, turn: *mut Turn) {
    naked_asm!(
        "push rbx", "push rbp", "push r12", "push r13", "push r14", "push r15",
        "mov [rsi + {kernel_rsp}], rsp",
        "mov [rsi + {context}], rdi",
        "mov rax, [rdi + {rax}]", "mov rbx, [rdi + {rbx}]", "mov rdx, [rdi + {rdx}]",
        "mov rsi, [rdi + {rsi}]", "mov rbp, [rdi + {rbp}]", "mov r8, [rdi + {r8}]",
        "mov r9, [rdi + {r9}]", "mov r10, [rdi + {r10}]", "mov r12, [rdi + {r12}]",
        "mov r13, [rdi + {r13}]", "mov r14, [rdi + {r14}]", "mov r15, [rdi + {r15}]",
        "cmp qword ptr [rdi + {by_syscall}], 0",
        "je 2f",
        "mov rcx, [rdi + {rip}]",
        "mov r11, [rdi + {rflags}]",
        "mov rsp, [rdi + {rsp}]",
        "mov rdi, [rdi + {rdi}]",
        "sysretq",
        "2:",
        "push {user_data}",
        "push qword ptr [rdi + {rsp}]",
        "push qword ptr [rdi + {rflags}]",
        "push {user_code}",
        "push qword ptr [rdi + {rip}]",
        "mov rcx, [rdi + {rcx}]",
        "mov r11, [rdi + {r11}]",
        "mov rdi, [rdi + {rdi}]",
        "iretq",
        kernel_rsp = const offset_of!(Turn, kernel_rsp),
        context = const offset_of!(Turn, context),
        user_data = const USER_DATA, user_code = const USER_CODE,
        rax = const offset_of!(UserContext, rax), rbx = const offset_of!(UserContext, rbx),
        rcx = const offset_of!(UserContext, rcx), rdx = const offset_of!(UserContext, rdx),
        rsi = const offset_of!(UserContext, rsi), rdi = const offset_of!(UserContext, rdi),
        rbp = const offset_of!(UserContext, rbp), r8 = const offset_of!(UserContext, r8),
        r9 = const offset_of!(UserContext, r9), r10 = const offset_of!(UserContext, r10),
        r11 = const offset_of!(UserContext, r11), r12 = const offset_of!(UserContext, r12),
        r13 = const offset_of!(UserContext, r13), r14 = const offset_of!(UserContext, r14),
        r15 = const offset_of!(UserContext, r15), rip = const offset_of!(UserContext, rip),
        rflags = const offset_of!(UserContext, rflags), rsp = const offset_of!(UserContext, rsp),
        by_syscall = const offset_of!(UserContext, by_syscall),
    )
}

/// Where SYSCALL arrives on core `CORE`: on the program's stack, its `rip` in `rcx` and its flags
/// in `r11`, interrupts off.
#[unsafe(naked)]
extern "C" fn syscall_entry<const CORE: usize>() {
    naked_asm!(
        "mov [rip + {turn} + {user_rsp}], rsp",
        "mov rsp, [rip + {turn} + {context}]",
        "mov [rsp + {rax}], rax", "mov [rsp + {rbx}], rbx", "mov [rsp + {rdx}], rdx",
        "mov [rsp + {rsi}], rsi", "mov [rsp + {rdi}], rdi", "mov [rsp + {rbp}], rbp",
        "mov [rsp + {r8}], r8", "mov [rsp + {r9}], r9", "mov [rsp + {r10}], r10",
        "mov [rsp + {r12}], r12", "mov [rsp + {r13}], r13", "mov [rsp + {r14}], r14",
        "mov [rsp + {r15}], r15",
        "mov [rsp + {rcx}], rcx", "mov [rsp + {r11}], r11",
        "mov [rsp + {rip}], rcx", "mov [rsp + {rflags}], r11",
        "mov qword ptr [rsp + {by_syscall}], 1",
        "mov rax, [rip + {turn} + {user_rsp}]",
        "mov [rsp + {rsp}], rax",
        "mov rsp, [rip + {turn} + {kernel_rsp}]",
        "jmp {leave}",
        turn = sym TURNS,
        leave = sym leave,
        kernel_rsp = const CORE * size_of::<Turn>() + offset_of!(Turn, kernel_rsp),
        context = const CORE * size_of::<Turn>() + offset_of!(Turn, context),
        user_rsp = const CORE * size_of::<Turn>() + offset_of!(Turn, user_rsp),
        rax = const offset_of!(UserContext, rax), rbx = const offset_of!(UserContext, rbx),
        rcx = const offset_of!(UserContext, rcx), rdx = const offset_of!(UserContext, rdx),
        rsi = const offset_of!(UserContext, rsi), rdi = const offset_of!(UserContext, rdi),
        rbp = const offset_of!(UserContext, rbp), r8 = const offset_of!(UserContext, r8),
        r9 = const offset_of!(UserContext, r9), r10 = const offset_of!(UserContext, r10),
        r11 = const offset_of!(UserContext, r11), r12 = const offset_of!(UserContext, r12),
        r13 = const offset_of!(UserContext, r13), r14 = const offset_of!(UserContext, r14),
        r15 = const offset_of!(UserContext, r15), rip = const offset_of!(UserContext, rip),
        rflags = const offset_of!(UserContext, rflags), rsp = const offset_of!(UserContext, rsp),
        by_syscall = const offset_of!(UserContext, by_syscall),
    )
}

/// Where SYSCALL arrives, by core.
static ENTRIES: [extern "C" fn(); CORES_MAX] = entries!(
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
    32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63
);

/// Where every other trap from ring 3 arrives, from `trap::entry`: on the stack lie vector, error
/// code, rip, cs, rflags, rsp, ss, and above them the way to the core's turn.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn trap_from_user() {
    naked_asm!(
        "push rax",
        "mov rax, [rsp + {way}]",
        "mov rax, [rax + {context}]",
        "mov [rax + {rbx}], rbx", "mov [rax + {rcx}], rcx", "mov [rax + {rdx}], rdx",
        "mov [rax + {rsi}], rsi", "mov [rax + {rdi}], rdi", "mov [rax + {rbp}], rbp",
        "mov [rax + {r8}], r8", "mov [rax + {r9}], r9", "mov [rax + {r10}], r10",
        "mov [rax + {r11}], r11", "mov [rax + {r12}], r12", "mov [rax + {r13}], r13",
        "mov [rax + {r14}], r14", "mov [rax + {r15}], r15",
        "mov qword ptr [rax + {by_syscall}], 0",
        "pop qword ptr [rax + {rax}]",
        "pop qword ptr [rax + {vector}]",
        "pop qword ptr [rax + {code}]",
        "pop qword ptr [rax + {rip}]",
        "pop rcx",
        "pop qword ptr [rax + {rflags}]",
        "pop qword ptr [rax + {rsp}]",
        "mov rcx, [rsp + 8]",
        "mov rsp, [rcx + {kernel_rsp}]",
        // `leave` sets the flags to what Rust expects: the program may have had DF or AC set.
        "jmp {leave}",
        leave = sym leave,
        // Above rax and the seven words of the trap.
        way = const 8 * 8,
        kernel_rsp = const offset_of!(Turn, kernel_rsp),
        context = const offset_of!(Turn, context),
        rax = const offset_of!(UserContext, rax), rbx = const offset_of!(UserContext, rbx),
        rcx = const offset_of!(UserContext, rcx), rdx = const offset_of!(UserContext, rdx),
        rsi = const offset_of!(UserContext, rsi), rdi = const offset_of!(UserContext, rdi),
        rbp = const offset_of!(UserContext, rbp), r8 = const offset_of!(UserContext, r8),
        r9 = const offset_of!(UserContext, r9), r10 = const offset_of!(UserContext, r10),
        r11 = const offset_of!(UserContext, r11), r12 = const offset_of!(UserContext, r12),
        r13 = const offset_of!(UserContext, r13), r14 = const offset_of!(UserContext, r14),
        r15 = const offset_of!(UserContext, r15), rip = const offset_of!(UserContext, rip),
        rflags = const offset_of!(UserContext, rflags), rsp = const offset_of!(UserContext, rsp),
        vector = const offset_of!(UserContext, vector), code = const offset_of!(UserContext, code),
        by_syscall = const offset_of!(UserContext, by_syscall),
    )
}

/// Returns from [`enter`], on whose stack it is.
#[unsafe(naked)]
extern "C" fn leave() {
    naked_asm!(
        "push 2", "popfq", "pop r15", "pop r14", "pop r13", "pop r12", "pop rbp", "pop rbx", "ret",
    )
}
