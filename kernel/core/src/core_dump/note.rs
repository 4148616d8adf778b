//! The notes of a core file: the process, its threads with their registers, where the program
//! lies.

use alloc::vec::Vec;

use super::{Program, Thread};
use crate::addr::PAGE_SIZE;
use crate::loader::Image;
use hearth_abi::linux::auxv;

/// Kinds of notes.
const PRSTATUS: u32 = 1;
const FPREGSET: u32 = 2;
const PRPSINFO: u32 = 3;
const AUXV: u32 = 6;
const SIGINFO: u32 = 0x5349_4749;
const X86_XSTATE: u32 = 0x202;

/// Bytes of `struct elf_prstatus`, and where its fields are.
const STATUS_BYTES: usize = 336;
const STATUS_SIGNAL_AT: usize = 12;
const STATUS_PID_AT: usize = 32;
const STATUS_REGISTERS_AT: usize = 112;
const STATUS_FP_VALID_AT: usize = 328;
/// Bytes of `struct elf_prpsinfo`, and where its fields are.
const INFO_BYTES: usize = 136;
const INFO_STATE_AT: usize = 1;
const INFO_PID_AT: usize = 24;
const INFO_NAME_AT: usize = 40;
const INFO_NAME_BYTES: usize = 16;
const INFO_ARGUMENTS_AT: usize = 56;
const INFO_ARGUMENTS_BYTES: usize = 80;
/// Bytes of FXSAVE's area, and where debuggers look in it for the components of XSAVE's.
const LEGACY_BYTES: usize = 512;
const COMPONENTS_AT: usize = 464;
/// Selectors of ring 3, as a Linux program has them.
const CODE_SELECTOR: u64 = 0x33;
const STACK_SELECTOR: u64 = 0x2b;

/// All notes: of the thread that ended the program, of the process, and of the other threads.
pub(super) fn all(program: &Program<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    let (first, others) = match program.threads {
        [first, others @ ..] => (Some(first), others),
        [] => (None, &[][..]),
    };
    if let Some(thread) = first {
        status(&mut out, thread, program.signal);
    }
    note(&mut out, b"CORE\0", PRPSINFO, &info(program));
    // Readers take it for the thread above.
    let signal = program.info.to_bytes(program.signal);
    note(&mut out, b"CORE\0", SIGINFO, &signal);
    note(&mut out, b"CORE\0", AUXV, &vector(program.image));
    if let Some(thread) = first {
        state(&mut out, thread, program.components);
    }
    for thread in others {
        status(&mut out, thread, program.signal);
        state(&mut out, thread, program.components);
    }
    out
}

/// A note: the lengths of name and contents, its kind, both, each padded to a multiple of 4.
fn note(out: &mut Vec<u8>, name: &[u8], kind: u32, contents: &[u8]) {
    for word in [name.len() as u32, contents.len() as u32, kind] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    for part in [name, contents] {
        out.extend_from_slice(part);
        out.resize(out.len().next_multiple_of(4), 0);
    }
}

fn status(out: &mut Vec<u8>, thread: &Thread<'_>, signal: u8) {
    let mut bytes = [0; STATUS_BYTES];
    let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
    put(0, &u32::from(signal).to_le_bytes());
    // Of every thread, as on Linux: debuggers take the last.
    put(STATUS_SIGNAL_AT, &u16::from(signal).to_le_bytes());
    put(STATUS_PID_AT, &thread.tid.to_le_bytes());
    for (index, register) in registers(thread).iter().enumerate() {
        put(STATUS_REGISTERS_AT + index * 8, &register.to_le_bytes());
    }
    put(STATUS_FP_VALID_AT, &1u32.to_le_bytes());
    note(out, b"CORE\0", PRSTATUS, &bytes);
}

/// `struct user_regs_struct`.
fn registers(thread: &Thread<'_>) -> [u64; 27] {
    let r = &thread.registers;
    let (fs_base, gs_base) = thread.bases;
    // No call is begun again by who reads this.
    let no_call = u64::MAX;
    [
        r.r15,
        r.r14,
        r.r13,
        r.r12,
        r.rbp,
        r.rbx,
        r.r11,
        r.r10,
        r.r9,
        r.r8,
        r.rax,
        r.rcx,
        r.rdx,
        r.rsi,
        r.rdi,
        no_call,
        r.rip,
        CODE_SELECTOR,
        r.rflags,
        r.rsp,
        STACK_SELECTOR,
        fs_base,
        gs_base,
        0,
        0,
        0,
        0,
    ]
}

fn state(out: &mut Vec<u8>, thread: &Thread<'_>, components: u64) {
    let Some(legacy) = thread.state.get(..LEGACY_BYTES) else {
        return;
    };
    note(out, b"CORE\0", FPREGSET, legacy);
    if components != 0 {
        let mut all = thread.state.to_vec();
        all[COMPONENTS_AT..COMPONENTS_AT + 8].copy_from_slice(&components.to_le_bytes());
        note(out, b"LINUX\0", X86_XSTATE, &all);
    }
}

fn info(program: &Program<'_>) -> [u8; INFO_BYTES] {
    let mut bytes = [0; INFO_BYTES];
    bytes[INFO_STATE_AT] = b'R';
    bytes[INFO_PID_AT..INFO_PID_AT + 4].copy_from_slice(&program.pid.to_le_bytes());
    let mut put = |at: usize, room: usize, text: &[u8]| {
        // A zero byte ends both.
        let text = &text[..text.len().min(room - 1)];
        bytes[at..at + text.len()].copy_from_slice(text);
    };
    let file = program.name.rsplit(|byte| *byte == b'/').next();
    put(INFO_NAME_AT, INFO_NAME_BYTES, file.unwrap_or_default());
    put(INFO_ARGUMENTS_AT, INFO_ARGUMENTS_BYTES, program.name);
    bytes
}

/// What a debugger needs of the auxiliary vector to find where the program was loaded.
fn vector(image: &Image) -> Vec<u8> {
    let entries = [
        (auxv::PHDR, image.headers.unwrap_or(0)),
        (auxv::PHENT, Image::HEADER_BYTES),
        (auxv::PHNUM, u64::from(image.header_count)),
        (auxv::PAGESZ, PAGE_SIZE),
        (auxv::BASE, 0),
        (auxv::ENTRY, image.entry),
        (auxv::NULL, 0),
    ];
    let words = entries.iter().flat_map(|(key, value)| [*key, *value]);
    words.flat_map(u64::to_le_bytes).collect()
}
