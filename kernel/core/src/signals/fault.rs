//! The signal that a fault of the program is, with what it says.
//!
//! Source: Linux, `arch/x86/kernel/traps.c` and `arch/x86/mm/fault.c`.

use super::info::{Info, code};
use crate::fault::Cause;
use hearth_abi::linux::Signal;

const DIVIDE: u8 = 0;
const DEBUG: u8 = 1;
const INVALID_OPCODE: u8 = 6;
const X87: u8 = 16;
const ALIGNMENT: u8 = 17;
const SIMD: u8 = 19;

/// The signal of a fault at `address`, or of an exception at the instruction `rip`; `None` for what
/// no handler can hear of. `area` is the floating-point state as FXSAVE writes it.
pub fn signal_of(cause: Cause, address: u64, rip: u64, area: &[u8]) -> Option<(Signal, Info)> {
    let info = match cause {
        Cause::NullPointer | Cause::Unmapped | Cause::NotUser | Cause::StackOverflow => {
            Info::fault(code::SEGV_MAPERR, address)
        }
        Cause::Protection(_) => Info::fault(code::SEGV_ACCERR, address),
        Cause::BeyondFile => Info::fault(code::BUS_ADRERR, address),
        Cause::Exception { vector } => match vector {
            DIVIDE => Info::fault(code::FPE_INTDIV, rip),
            DEBUG => Info::fault(code::TRAP_TRACE, rip),
            INVALID_OPCODE => Info::fault(code::ILL_ILLOPN, rip),
            X87 | SIMD => Info::fault(floating_point(vector, area), rip),
            ALIGNMENT => Info::fault(code::BUS_ADRALN, 0),
            // A breakpoint, a privileged instruction.
            _ => Info::KERNEL,
        },
        _ => return None,
    };
    Some((cause.signal(), info))
}

/// The code of a floating-point exception: the first of those that were raised and not masked.
fn floating_point(vector: u8, area: &[u8]) -> i32 {
    let half = |at: usize| u32::from(area[at]) | u32::from(area[at + 1]) << 8;
    let raised = match vector {
        // Status and control word.
        X87 => half(2) & !half(0),
        // MXCSR: flags, and seven bits above them their masks.
        _ => half(24) & !(half(24) >> 7),
    };
    match raised {
        _ if raised & 0x01 != 0 => code::FPE_FLTINV,
        _ if raised & 0x04 != 0 => code::FPE_FLTDIV,
        _ if raised & 0x08 != 0 => code::FPE_FLTOVF,
        // A denormal operand, too.
        _ if raised & 0x12 != 0 => code::FPE_FLTUND,
        _ if raised & 0x20 != 0 => code::FPE_FLTRES,
        _ => code::FPE_FLTINV,
    }
}
