//! Where a signal comes from: `siginfo_t`.
//!
//! Source: Linux, `include/uapi/asm-generic/siginfo.h`: number, error, code, then two words whose
//! meaning the code says: who sent it and a value, or an address.

/// Bytes of the structure.
pub const INFO_BYTES: usize = 128;
const SIGNAL_AT: usize = 0;
const ERROR_AT: usize = 4;
const CODE_AT: usize = 8;
const FIRST_AT: usize = 16;
const SECOND_AT: usize = 24;

/// Codes that say where a signal comes from.
pub mod code {
    /// kill.
    pub const USER: i32 = 0;
    /// The kernel.
    pub const KERNEL: i32 = 0x80;
    /// A timer of timer_create.
    pub const TIMER: i32 = -2;
    /// tkill or tgkill.
    pub const TKILL: i32 = -6;
    /// SIGSEGV: nothing is mapped there.
    pub const SEGV_MAPERR: i32 = 1;
    /// SIGSEGV: what is mapped there may not be used so.
    pub const SEGV_ACCERR: i32 = 2;
    /// SIGBUS: a misaligned address.
    pub const BUS_ADRALN: i32 = 1;
    /// SIGBUS: nothing is behind the address.
    pub const BUS_ADRERR: i32 = 2;
    /// SIGFPE: integer division by zero.
    pub const FPE_INTDIV: i32 = 1;
    /// SIGFPE: division by zero.
    pub const FPE_FLTDIV: i32 = 3;
    /// SIGFPE: overflow.
    pub const FPE_FLTOVF: i32 = 4;
    /// SIGFPE: underflow.
    pub const FPE_FLTUND: i32 = 5;
    /// SIGFPE: inexact result.
    pub const FPE_FLTRES: i32 = 6;
    /// SIGFPE: invalid operation.
    pub const FPE_FLTINV: i32 = 7;
    /// SIGILL: illegal operand.
    pub const ILL_ILLOPN: i32 = 2;
    /// SIGTRAP: a single step.
    pub const TRAP_TRACE: i32 = 2;
}

/// The information about a signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// An error number, mostly none.
    pub error: i32,
    /// See [`code`].
    pub code: i32,
    /// The address; or the sending process below and its user above.
    pub first: u64,
    /// The value that was sent along.
    pub second: u64,
}

impl Info {
    /// Of a signal that the process with this number, of user 0, has sent.
    pub const fn sent(code: i32, process: u64) -> Self {
        Self {
            error: 0,
            code,
            first: process,
            second: 0,
        }
    }

    /// Of a signal that the kernel sends by itself.
    pub const KERNEL: Self = Self::sent(code::KERNEL, 0);

    /// Of a signal that comes from outside the program, which has no process there.
    pub const OUTSIDE: Self = Self::sent(code::USER, 0);

    /// Whether it is [`Self::OUTSIDE`].
    pub fn is_from_outside(&self) -> bool {
        *self == Self::OUTSIDE
    }

    /// Of a fault at an address.
    pub const fn fault(code: i32, address: u64) -> Self {
        Self {
            error: 0,
            code,
            first: address,
            second: 0,
        }
    }

    /// From its bytes, for a signal whose number is known.
    pub fn from_bytes(bytes: &[u8; INFO_BYTES]) -> Self {
        let half =
            |at: usize| i32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let word =
            |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        Self {
            error: half(ERROR_AT),
            code: half(CODE_AT),
            first: word(FIRST_AT),
            second: word(SECOND_AT),
        }
    }

    /// Its bytes, for a signal of this number.
    pub fn to_bytes(&self, signal: u8) -> [u8; INFO_BYTES] {
        let mut bytes = [0; INFO_BYTES];
        bytes[SIGNAL_AT] = signal;
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(ERROR_AT, &self.error.to_le_bytes());
        put(CODE_AT, &self.code.to_le_bytes());
        put(FIRST_AT, &self.first.to_le_bytes());
        put(SECOND_AT, &self.second.to_le_bytes());
        bytes
    }
}
