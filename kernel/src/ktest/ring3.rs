//! Ring 3: registers across traps, faults, flags, floating point, isolation.
//!
//! The programs are those of `arch::test_programs`, copied into a [`Sandbox`].

use alloc::format;
use alloc::string::String;

use kernel_core::addr::USER_END;
use kernel_core::paging::entry::Protection;
use kernel_core::phys::PhysMem;

use super::sandbox::{NOTHING, Sandbox};
use super::{Outcome, check};
use crate::arch::apic;
use crate::arch::gdt::USER_DATA;
use crate::arch::interrupts::Class;
use crate::arch::probe;
use crate::arch::test_programs::{self, CODE, DATA};
use crate::arch::timer;
use crate::arch::trap::{self, GENERAL_PROTECTION};
use crate::arch::user::{self, Trap, UserContext};
use crate::arch::{cpu, fpu as float};
use crate::mm::{DirectMap, PAGE_SIZE};
use crate::time::{self, Micros};

const INVALID_OPCODE: u8 = 6;
const DIVIDE: u8 = 0;
const BREAKPOINT: u8 = 3;

/// Puts a value of its own into every register but the instruction and stack pointers.
fn fill_registers(c: &mut UserContext) {
    c.rax = 39;
    c.rbx = 0xb0b0_0001;
    c.rcx = 0xb0b0_0002;
    c.rdx = 0xb0b0_0003;
    c.rsi = 0xb0b0_0004;
    c.rdi = 0xb0b0_0005;
    c.rbp = 0xb0b0_0006;
    c.r8 = 0xffff_ffff_b0b0_0007;
    c.r9 = 0xb0b0_0008;
    c.r10 = 0xb0b0_0009;
    c.r11 = 0xb0b0_000a;
    c.r12 = 0xb0b0_000b;
    c.r13 = 0xb0b0_000c;
    c.r14 = 0xb0b0_000d;
    c.r15 = NOTHING;
}

/// All registers a program keeps across a system call, and the stack pointer.
fn kept(c: &UserContext) -> [u64; 14] {
    [
        c.rax, c.rbx, c.rdx, c.rsi, c.rdi, c.rbp, c.rsp, c.r8, c.r9, c.r10, c.r12, c.r13, c.r14,
        c.r15,
    ]
}

/// Every register survives system calls, a page fault and an interrupt; the instruction pointer is
/// where it should be.
pub fn round_trip() -> Outcome {
    let mut sandbox = Sandbox::new(test_programs::call_and_read())?;
    fill_registers(&mut sandbox.context);
    let wanted = kept(&sandbox.context);
    sandbox.run_to_call(39)?;
    let context = &sandbox.context;
    check!(kept(context) == wanted, "after a call:\n{context}");
    check!(context.rip == CODE + 2, "after a call:\n{context}");

    let fault = sandbox.run();
    let context = &sandbox.context;
    check!(
        matches!(fault, Trap::PageFault { address: NOTHING, code } if code.0 == 4),
        "read of an unmapped page: {fault:?}\n{context}"
    );
    check!(
        kept(context) == wanted && context.rip == CODE + 2,
        "after a fault:\n{context}"
    );

    let frame = sandbox.map(NOTHING, Protection::Read)?;
    DirectMap.write(frame, &0xfeed_u64.to_le_bytes());
    sandbox.run_to_call(39)?;
    let context = &sandbox.context;
    check!(
        context.r14 == 0xfeed,
        "the page reads as {:#x}",
        context.r14
    );
    interrupted()
}

/// An interrupt changes no register at all, rcx and r11 included.
fn interrupted() -> Outcome {
    let mut sandbox = Sandbox::new(test_programs::spin())?;
    fill_registers(&mut sandbox.context);
    let before = sandbox.context.clone();
    // A timer that fires before ring 3 is reached interrupts its first instruction, and the
    // program has not run: a stalled host makes that happen, a longer time unlikely.
    for millis in [2, 20, 200] {
        time::arm(time::now() + Micros::from_millis(millis), Class::Monitor);
        let trap = sandbox.run();
        let mut after = sandbox.context.clone();
        check!(
            trap == Trap::Interrupt {
                class: Class::Monitor
            },
            "expected the timer, got {trap:?}"
        );
        let rounds = after.rbx - before.rbx;
        after.rbx = before.rbx;
        check!(
            kept(&after) == kept(&before) && after.rcx == before.rcx && after.r11 == before.r11,
            "after an interrupt:\n{after}"
        );
        if rounds > 0 {
            return Ok(());
        }
    }
    Err("the program never ran".into())
}

/// Every exception of a program comes back with its vector, and the program can be continued.
pub fn faults() -> Outcome {
    let mut sandbox = Sandbox::new(test_programs::misbehave())?;
    for (vector, instruction_bytes) in [
        (DIVIDE, 3),
        (INVALID_OPCODE, 2),
        // INT3 is a trap: the instruction pointer is already behind it.
        (BREAKPOINT, 0),
        (GENERAL_PROTECTION, 1),
        (GENERAL_PROTECTION, 2),
        (GENERAL_PROTECTION, 1),
        (GENERAL_PROTECTION, 3),
    ] {
        sandbox.run_to_exception(vector)?;
        sandbox.context.rip += instruction_bytes;
    }
    sandbox.run_to_exception(GENERAL_PROTECTION)?;
    Ok(())
}

/// Flags of a program do not reach the kernel, and come back to the program; interrupts stay on.
pub fn flags() -> Outcome {
    const DIRECTION: u64 = 1 << 10;
    const ALIGNMENT: u64 = 1 << 18;
    const PRIVILEGE: u64 = 3 << 12;
    const INTERRUPTS: u64 = 1 << 9;
    let mut sandbox = Sandbox::new(test_programs::set_flags())?;
    sandbox.context.rax = 1;
    for step in ["call", "fault"] {
        match step {
            "call" => sandbox.run_to_call(1)?,
            _ => sandbox.run_to_exception(INVALID_OPCODE).map(|_| ())?,
        }
        let mine = probe::flags();
        check!(
            mine & (DIRECTION | ALIGNMENT | INTERRUPTS) == 0,
            "kernel flags after a {step}: {mine:#x}"
        );
        let flags = sandbox.context.rflags;
        check!(
            flags & DIRECTION != 0 && flags & ALIGNMENT != 0 && flags & INTERRUPTS != 0,
            "program's flags after a {step}: {flags:#x}"
        );
    }
    // Flags that a program may not have are not taken from a context either.
    let mut sandbox = Sandbox::new(test_programs::call_twice())?;
    sandbox.context.rflags = !(1 << 8);
    sandbox.context.rax = 1;
    sandbox.run_to_call(1)?;
    let flags = sandbox.context.rflags;
    check!(flags & PRIVILEGE == 0, "ring 3 may use ports: {flags:#x}");
    single_step()
}

/// Single-stepping over SYSCALL stays in ring 3: the trap comes behind the call.
fn single_step() -> Outcome {
    const TRAP: u64 = 1 << 8;
    const DEBUG: u8 = 1;
    let mut sandbox = Sandbox::new(test_programs::call_twice())?;
    sandbox.context.rax = 1;
    sandbox.context.rflags |= TRAP;
    let mut calls = 0;
    for _ in 0..4 {
        match sandbox.run() {
            Trap::Syscall => calls += 1,
            Trap::Exception { vector: DEBUG, .. } => {}
            other => return Err(format!("single step: {other:?}")),
        }
    }
    check!(calls >= 1, "no call came through while single-stepping");
    Ok(())
}

fn must_fault(code: &[u8], address: u64) -> Result<u64, String> {
    let mut sandbox = Sandbox::new(code)?;
    sandbox.context.r15 = address;
    // Ends a program whose access did not fault; far beyond what a stalled host delays one.
    time::arm(time::now() + Micros::from_secs(5), Class::TimeLimit);
    match sandbox.run() {
        Trap::PageFault {
            address: found,
            code,
        } if found == address => Ok(code.0),
        other => Err(format!("access to {address:#x}: {other:?}")),
    }
}

/// A program reaches nothing of the kernel, executes no data, writes no code.
pub fn isolation() -> Outcome {
    const USER: u64 = 4;
    let kernel_code = probe::write as *const () as u64;
    let stack = &raw const kernel_code as u64;
    let heap = alloc::boxed::Box::new(0u64);
    let physical = crate::mm::layout::PHYSICAL_MAP + 0x10_0000;
    for address in [kernel_code, stack, &raw const *heap as u64, physical] {
        for code in [
            test_programs::read_r15,
            test_programs::write_r15,
            test_programs::jump_r15,
        ] {
            let bits = must_fault(code(), address)?;
            check!(bits & USER != 0, "{address:#x}: error code {bits:#x}");
        }
    }
    must_fault(test_programs::jump_r15(), DATA)?;
    must_fault(test_programs::write_r15(), CODE)?;
    must_fault(test_programs::read_r15(), 0)?;
    must_fault(test_programs::write_r15(), 0)?;
    if cpu::features().umip {
        Sandbox::new(test_programs::store_table())?.run_to_exception(GENERAL_PROTECTION)?;
    }
    Ok(())
}

/// SYSCALL as the last instruction of the user half leaves an instruction pointer that is not
/// canonical; SYSRET to it would fault in ring 0 on the program's stack (CVE-2012-0217).
pub fn sysret_guard() -> Outcome {
    const LAST: u64 = USER_END - PAGE_SIZE;
    let mut sandbox = Sandbox::new(test_programs::spin())?;
    let frame = sandbox.map(LAST, Protection::ReadExecute)?;
    DirectMap.write(frame.offset(PAGE_SIZE - 2), &[0x0f, 0x05]);
    sandbox.context.rip = USER_END - 2;
    sandbox.context.rax = 7;
    sandbox.run_to_call(7)?;
    check!(
        sandbox.context.rip == USER_END,
        "after the call:\n{}",
        sandbox.context
    );
    sandbox.run_to_exception(GENERAL_PROTECTION)?;
    for rip in [USER_END, 1 << 63, u64::MAX, 0xffff_8000_0000_0000] {
        sandbox.context.rip = rip;
        sandbox.run_to_exception(GENERAL_PROTECTION)?;
    }
    // The kernel half is canonical, but not the program's; a strange stack pointer is its own
    // affair until it is used.
    sandbox.context.rip = CODE;
    for rsp in [0, 1 << 63, u64::MAX, 0xffff_8000_0000_0000] {
        sandbox.context.rsp = rsp;
        time::arm(time::now() + Micros::from_millis(1), Class::Monitor);
        let trap = sandbox.run();
        check!(
            matches!(
                trap,
                Trap::Interrupt { .. }
                    | Trap::Exception {
                        vector: GENERAL_PROTECTION,
                        ..
                    }
            ),
            "stack pointer {rsp:#x}: {trap:?}"
        );
        timer::disarm();
    }
    Ok(())
}

/// Floating-point state survives a call, a fault and interrupts, and is gone after a reset.
pub fn fpu() -> Outcome {
    const LOW: u64 = 0x0123_4567_89ab_cdef;
    const HIGH: u64 = 0xfedc_ba98_7654_3210;
    let avx = cpu::features().avx && cpu::features().xsave;
    let mut sandbox = Sandbox::new(test_programs::use_fpu())?;
    let data = sandbox.physical(DATA)?;
    let c = &mut sandbox.context;
    (c.rax, c.r12, c.r13, c.r14, c.r15) = (3, LOW, u64::from(avx), HIGH, NOTHING);
    sandbox.run_to_call(3)?;
    let fault = sandbox.run();
    check!(
        matches!(fault, Trap::PageFault { .. }),
        "expected a fault, got {fault:?}"
    );
    sandbox.map(NOTHING, Protection::Read)?;
    let mut interrupts = 0;
    loop {
        time::arm(time::now() + Micros::from_millis(2), Class::Monitor);
        match sandbox.run() {
            Trap::Interrupt { .. } => interrupts += 1,
            Trap::Syscall => break,
            other => return Err(format!("{other:?}\n{}", sandbox.context)),
        }
    }
    timer::disarm();
    check!(interrupts > 0, "computing was not interrupted");
    let mut bytes = [0; 64];
    DirectMap.read(data, &mut bytes);
    let word = |index: usize| u64::from_le_bytes(bytes[index * 8..][..8].try_into().expect("8"));
    check!(
        word(0) == LOW && word(1) == HIGH,
        "xmm0 {:#x} xmm15 {:#x}",
        word(0),
        word(1)
    );
    let (pi, one) = (0x4009_21fb_5444_2d18, 0x3ff0_0000_0000_0000);
    check!(
        word(2) == pi && word(3) == one,
        "x87 stack {:#x} {:#x}",
        word(2),
        word(3)
    );
    check!(
        !avx || (4..8).all(|index| word(index) == LOW),
        "ymm1 {:#x} {:#x} {:#x} {:#x}",
        word(4),
        word(5),
        word(6),
        word(7)
    );
    state_is_reset()
}

/// Saves, resets and restores: a reset leaves the state a program starts with.
fn state_is_reset() -> Outcome {
    let legacy = float::FpuState::legacy_registers;
    let mut used = float::FpuState::INITIAL;
    float::save(&mut used);
    check!(
        legacy(&used).iter().any(|&byte| byte != 0),
        "nothing was left in the registers to be reset"
    );
    float::reset();
    let mut clean = float::FpuState::INITIAL;
    float::save(&mut clean);
    check!(
        legacy(&clean).iter().all(|&byte| byte == 0),
        "registers after a reset: {:x?}",
        legacy(&clean)
    );
    float::restore(&used);
    let mut again = float::FpuState::INITIAL;
    float::save(&mut again);
    check!(
        legacy(&again) == legacy(&used),
        "restored state differs from what was saved"
    );
    Ok(())
}

/// NMIs in ring 3 and around SYSCALL are counted and change nothing, also with the stack pointer
/// at an address that does not exist.
pub fn nmi() -> Outcome {
    const ROUNDS: u64 = 2_000;
    let mut sandbox = Sandbox::new(test_programs::send_nmi_and_call())?;
    sandbox.map_device(NOTHING, apic::physical_address())?;
    fill_registers(&mut sandbox.context);
    let (high, low) = apic::nmi_to_self();
    let c = &mut sandbox.context;
    (c.rax, c.rbx, c.r13, c.r14, c.rsp) = (9, 0, u64::from(high), u64::from(low), NOTHING * 2);
    let mut wanted = kept(c);
    let before = trap::nmi_count();
    for round in 0..ROUNDS {
        sandbox.run_to_call(9)?;
        wanted[1] = round;
        check!(
            kept(&sandbox.context) == wanted,
            "round {round}:\n{}",
            sandbox.context
        );
    }
    let seen = trap::nmi_count() - before;
    // Two a round, of which the CPU may merge two that come at once.
    check!(
        (ROUNDS..=2 * ROUNDS).contains(&seen),
        "{seen} NMIs seen in {ROUNDS} rounds"
    );
    Ok(())
}

/// What firmware may have left open is closed: SYSENTER faults, breakpoints do not stop a program.
pub fn other_entries() -> Outcome {
    probe::leave_entries_open(CODE);
    user::init();
    let mut sandbox = Sandbox::new(test_programs::sysenter())?;
    let trap = sandbox.run();
    // AMD has no SYSENTER in 64-bit mode at all.
    check!(
        matches!(
            trap,
            Trap::Exception {
                vector: GENERAL_PROTECTION | INVALID_OPCODE,
                ..
            }
        ),
        "SYSENTER: {trap:?}"
    );
    check!(
        sandbox.context.rip == CODE,
        "after SYSENTER:\n{}",
        sandbox.context
    );
    Ok(())
}

/// Segment registers that a program loaded are its own; the next finds them empty.
pub fn selectors() -> Outcome {
    let seen = |c: &UserContext| [c.rbx, c.rdx, c.rsi, c.rdi];
    for round in 0..2 {
        let mut sandbox = Sandbox::new(test_programs::use_selectors())?;
        let data = sandbox.physical(DATA)?;
        DirectMap.write(data, &0xfeed_u64.to_le_bytes());
        sandbox.context.rax = 6;
        sandbox.context.fs_base = DATA;
        sandbox.run_to_call(6)?;
        let found = seen(&sandbox.context);
        check!(found == [0; 4], "round {round}, at the start: {found:x?}");
        sandbox.run_to_call(6)?;
        let found = seen(&sandbox.context);
        let own = u64::from(USER_DATA);
        check!(found == [own; 4], "round {round}, its own: {found:x?}");
        check!(
            sandbox.context.r14 == 0xfeed,
            "round {round}, read through FS: {:#x}",
            sandbox.context.r14
        );
    }
    // Also the bases are gone, although the first program never told the kernel of them.
    segment_bases()
}

/// FS and GS bases are the program's, and change from program to program.
pub fn segment_bases() -> Outcome {
    for round in 0..3u64 {
        let mut sandbox = Sandbox::new(test_programs::read_bases())?;
        let data = sandbox.physical(DATA)?;
        let at = round * 64;
        DirectMap.write(data.offset(at), &(100 + round).to_le_bytes());
        DirectMap.write(data.offset(at + 8), &(200 + round).to_le_bytes());
        sandbox.context.fs_base = DATA + at;
        sandbox.context.gs_base = DATA + at;
        sandbox.context.rax = 5;
        sandbox.run_to_call(5)?;
        let (fs, gs) = (sandbox.context.rbx, sandbox.context.rdx);
        check!(
            fs == 100 + round && gs == 200 + round,
            "round {round}: fs {fs} gs {gs}"
        );
    }
    Ok(())
}
