//! What lies on the stack of a signal handler: `struct rt_sigframe` as Linux has it on x86-64, and
//! the floating-point state beside it.
//!
//! | from | what |
//! |---|---|
//! | 0 | address that the handler returns to |
//! | 8 | `ucontext_t`: flags, alternate stack, registers, signal mask |
//! | 312 | `siginfo_t` |
//!
//! Key types: [`Frame`], [`Restored`], [`FpFormat`]. Source: Linux,
//! `arch/x86/include/asm/sigframe.h` and `arch/x86/include/uapi/asm/sigcontext.h`; Intel SDM volume
//! 1, 13.4 (the area of XSAVE).
//!
//! Invariant: of a frame that comes back nothing is believed. Selectors are not read at all, the
//! instruction pointer and the flags are checked by whoever enters ring 3, and [`FpFormat::check`]
//! leaves nothing that loading the state could fault on.

use super::action::{Action, flag};
use super::info::INFO_BYTES;
use super::stack::{AltStack, STACK_BYTES};
use crate::crash::Registers;

/// Bytes of the frame.
pub const FRAME_BYTES: usize = 440;
/// Where `ucontext_t` and `siginfo_t` begin.
pub const CONTEXT_AT: u64 = 8;
/// See [`CONTEXT_AT`].
pub const INFO_AT: u64 = 312;

const FLAGS_AT: usize = 8;
const STACK_AT: usize = 24;
const REGISTERS_AT: usize = 48;
const SELECTORS_AT: usize = 192;
const FAULT_AT: usize = 200;
const FP_AT: usize = 232;
const MASK_AT: usize = 304;
const _: () = assert!(MASK_AT + 8 == INFO_AT as usize);
const _: () = assert!(INFO_AT as usize + INFO_BYTES == FRAME_BYTES);

/// Flags of `ucontext_t`: the state is that of XSAVE; there is a stack selector; it counts.
const HAS_XSTATE: u64 = 1;
const HAS_STACK_SELECTOR: u64 = 2 | 4;
/// Bytes below the stack pointer that belong to the program (System V ABI for x86-64, 3.2.2).
const RED_ZONE: u64 = 128;
/// Alignment of the floating-point state.
const FP_ALIGN: u64 = 64;

/// What the processor said of the fault that the signal comes from; zeros without one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fault {
    /// Vector of the exception.
    pub vector: u64,
    /// Its error code.
    pub code: u64,
    /// The address of a page fault.
    pub address: u64,
}

/// Where a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The frame, and the handler's stack pointer: 8 below a multiple of 16, as after a call.
    pub frame: u64,
    /// The floating-point state.
    pub fp: u64,
}

impl Place {
    /// For a program with this stack pointer; `None` where there is no room.
    pub fn below(pointer: u64, action: &Action, stack: &AltStack, fp_bytes: usize) -> Option<Self> {
        let is_on = stack.holds(pointer);
        let other = stack.top().filter(|_| !is_on && action.has(flag::ONSTACK));
        let top = match other {
            Some(top) => top,
            None => pointer.checked_sub(RED_ZONE)?,
        };
        let fp = top.checked_sub(fp_bytes as u64)? & !(FP_ALIGN - 1);
        let frame = (fp.checked_sub(FRAME_BYTES as u64)? & !15).checked_sub(8)?;
        let overflows = (is_on || other.is_some()) && frame < stack.start();
        (!overflows).then_some(Self { frame, fp })
    }
}

/// A frame to be written.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// Where the handler returns to.
    pub restorer: u64,
    /// Registers of the program where the signal met it.
    pub registers: Registers,
    /// Selectors of code and stack.
    pub selectors: (u16, u16),
    /// What the processor said.
    pub fault: Fault,
    /// Signals that were blocked.
    pub mask: u64,
    /// The alternate stack.
    pub stack: [u8; STACK_BYTES],
    /// Where the floating-point state is, and whether it is that of XSAVE.
    pub fp: (u64, bool),
    /// About the signal.
    pub info: [u8; INFO_BYTES],
}

impl Frame {
    /// Its bytes.
    pub fn to_bytes(&self) -> [u8; FRAME_BYTES] {
        let mut bytes = [0; FRAME_BYTES];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        let (fp, has_xstate) = self.fp;
        let flags = HAS_STACK_SELECTOR + u64::from(has_xstate) * HAS_XSTATE;
        let Fault {
            vector,
            code,
            address,
        } = self.fault;
        let words = [
            (0, self.restorer),
            (FLAGS_AT, flags),
            (FAULT_AT, code),
            (FAULT_AT + 8, vector),
            (FAULT_AT + 16, self.mask),
            (FAULT_AT + 24, address),
            (FP_AT, fp),
            (MASK_AT, self.mask),
        ];
        for (at, word) in words {
            put(at, &word.to_le_bytes());
        }
        put(STACK_AT, &self.stack);
        for (index, register) in in_order(&self.registers).iter().enumerate() {
            put(REGISTERS_AT + 8 * index, &register.to_le_bytes());
        }
        put(SELECTORS_AT, &self.selectors.0.to_le_bytes());
        put(SELECTORS_AT + 6, &self.selectors.1.to_le_bytes());
        put(INFO_AT as usize, &self.info);
        bytes
    }
}

/// The registers in the order of `struct sigcontext`.
fn in_order(registers: &Registers) -> [u64; 18] {
    let r = registers;
    [
        r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15, r.rdi, r.rsi, r.rbp, r.rbx, r.rdx,
        r.rax, r.rcx, r.rsp, r.rip, r.rflags,
    ]
}

/// What a frame says that comes back, as it stands there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The registers to go on with.
    pub registers: Registers,
    /// The signals to block.
    pub mask: u64,
    /// The alternate stack.
    pub stack: [u8; STACK_BYTES],
    /// Where the floating-point state is; 0: the initial one.
    pub fp: u64,
}

impl Restored {
    /// Reads a frame.
    pub fn from_bytes(bytes: &[u8; FRAME_BYTES]) -> Self {
        let word =
            |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let register = |index: usize| word(REGISTERS_AT + 8 * index);
        let [r8, r9, r10, r11, r12, r13, r14, r15] = [0, 1, 2, 3, 4, 5, 6, 7].map(register);
        let [rdi, rsi, rbp, rbx, rdx, rax, rcx] = [8, 9, 10, 11, 12, 13, 14].map(register);
        let [rsp, rip, rflags] = [15, 16, 17].map(register);
        let registers = Registers {
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
        };
        Self {
            registers,
            mask: word(MASK_AT),
            stack: bytes[STACK_AT..STACK_AT + STACK_BYTES]
                .try_into()
                .expect("as long as a stack"),
            fp: word(FP_AT),
        }
    }
}

/// Bytes that FXSAVE writes: the x87 and SSE registers.
pub const LEGACY_BYTES: usize = 512;
const MXCSR_AT: usize = 24;
/// Bytes of the legacy area that software may use, and what Linux writes there: that more state
/// follows, how many bytes it has with and without the word at its end, and which components.
const SOFTWARE_AT: usize = 464;
const MAGIC_BEFORE: u32 = 0x4650_5853;
const MAGIC_BEHIND: u32 = 0x4650_5845;
const MAGIC_BYTES: usize = 4;
/// The header of XSAVE: components that are there, then 56 bytes that must be zero.
const HEADER_BYTES: usize = 64;
const X87_AND_SSE: u64 = 3;

/// The processor's floating-point state as it is saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FpFormat {
    /// Bytes of the state.
    pub bytes: usize,
    /// Components that are switched on (XCR0); 0 without XSAVE.
    pub components: u64,
    /// Bits that MXCSR may have.
    pub mxcsr_mask: u32,
}

impl FpFormat {
    /// Bytes of the state in a frame.
    pub const fn frame_bytes(&self) -> usize {
        match self.components {
            0 => LEGACY_BYTES,
            _ => self.bytes + MAGIC_BYTES,
        }
    }

    /// Marks a saved state, [`Self::frame_bytes`] of it, for programs that read it in a frame.
    pub fn mark(&self, area: &mut [u8]) {
        area[SOFTWARE_AT..LEGACY_BYTES].fill(0);
        if self.components != 0 {
            area[SOFTWARE_AT..SOFTWARE_AT + 20].copy_from_slice(&self.software());
            area[self.bytes..][..MAGIC_BYTES].copy_from_slice(&MAGIC_BEHIND.to_le_bytes());
        }
    }

    /// Makes of any bytes, [`Self::frame_bytes`] of them, a state that can be loaded: what a
    /// program has left in a frame, as far as it is one.
    pub fn check(&self, area: &mut [u8]) {
        let mxcsr = &mut area[MXCSR_AT..MXCSR_AT + 4];
        let bits = u32::from_le_bytes((&*mxcsr).try_into().expect("four bytes"));
        mxcsr.copy_from_slice(&(bits & self.mxcsr_mask).to_le_bytes());
        if self.components == 0 {
            return;
        }
        let behind = &area[self.bytes..][..MAGIC_BYTES];
        let is_whole = area[SOFTWARE_AT..SOFTWARE_AT + 20] == self.software()
            && *behind == MAGIC_BEHIND.to_le_bytes();
        let header = &mut area[LEGACY_BYTES..LEGACY_BYTES + HEADER_BYTES];
        let there = u64::from_le_bytes((&header[..8]).try_into().expect("eight bytes"));
        let there = if is_whole { there } else { X87_AND_SSE };
        header.fill(0);
        header[..8].copy_from_slice(&(there & self.components).to_le_bytes());
    }

    /// What stands in the bytes for software.
    fn software(&self) -> [u8; 20] {
        let mut bytes = [0; 20];
        bytes[..4].copy_from_slice(&MAGIC_BEFORE.to_le_bytes());
        bytes[4..8].copy_from_slice(&(self.frame_bytes() as u32).to_le_bytes());
        bytes[8..16].copy_from_slice(&self.components.to_le_bytes());
        bytes[16..].copy_from_slice(&(self.bytes as u32).to_le_bytes());
        bytes
    }
}
