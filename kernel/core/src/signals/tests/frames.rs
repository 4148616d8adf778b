//! Frames of handlers, the state in them, alternate stacks, what faults say.

use crate::crash::Registers;
use crate::fault::Cause;
use crate::signals::Action;
use crate::signals::frame::{FRAME_BYTES, Fault, FpFormat, Frame, Place, Restored};
use crate::signals::{AltStack, Info, STACK_BYTES, code, fault, flag};
use hearth_abi::linux::Signal;
use proptest::prelude::*;

fn handler(address: u64, flags: u64) -> Action {
    Action {
        handler: address,
        flags,
        restorer: 0x50_0000,
        mask: 0,
    }
}

#[test]
fn faults_say_what_they_are() {
    let mut area = [0; 512];
    let of = |cause| fault::signal_of(cause, 0x1234, 0x40_0000, &area);
    let null = of(Cause::NullPointer).unwrap();
    assert_eq!(null, (Signal::Segv, Info::fault(code::SEGV_MAPERR, 0x1234)));
    let divide = of(Cause::Exception { vector: 0 }).unwrap();
    assert_eq!(
        divide,
        (Signal::Fpe, Info::fault(code::FPE_INTDIV, 0x40_0000))
    );
    let privileged = of(Cause::Exception { vector: 13 }).unwrap();
    assert_eq!(privileged, (Signal::Segv, Info::KERNEL));
    for cause in [Cause::OutOfMemory, Cause::PageUnavailable, Cause::TimeLimit] {
        assert_eq!(of(cause), None, "no handler hears of {cause:?}");
    }
    // A division by zero that is not masked: flag 2, its mask bit 9 off.
    area[24..28].copy_from_slice(&(0x1f80u32 & !(1 << 9) | 1 << 2).to_le_bytes());
    let simd = fault::signal_of(Cause::Exception { vector: 19 }, 0, 1, &area).unwrap();
    assert_eq!(simd, (Signal::Fpe, Info::fault(code::FPE_FLTDIV, 1)));
}

#[test]
fn an_alternate_stack_is_checked() {
    let bytes = |start: u64, flags: u64, size: u64| {
        let mut bytes = [0; STACK_BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip([start, flags, size]) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        AltStack::from_bytes(&bytes)
    };
    let stack = bytes(0x10000, 0, 8192).unwrap();
    assert_eq!(stack.top(), Some(0x12000));
    assert!(stack.holds(0x12000) && stack.holds(0x10001));
    assert!(!stack.holds(0x10000) && !stack.holds(0x12001));
    assert!(bytes(0x10000, 0, 100).is_err() && bytes(0, 8, 8192).is_err());
    assert_eq!(bytes(1, 2, 3), Ok(AltStack::NONE));
    assert_eq!(bytes(u64::MAX, 0, 4096).unwrap().top(), None);
    let disarmed = bytes(0x10000, 1 << 31, 8192).unwrap();
    assert_eq!(disarmed.in_handler(), AltStack::NONE);
    assert_eq!(stack.in_handler(), stack);
}

#[test]
fn a_frame_lies_as_a_handler_expects_it() {
    let action = handler(0x40_1000, flag::ONSTACK);
    let place = Place::below(0x7fff_0123, &action, &AltStack::NONE, 836).unwrap();
    assert_eq!((place.frame % 16, place.fp % 64), (8, 0));
    assert!(place.frame + FRAME_BYTES as u64 <= place.fp);
    assert!(place.fp + 836 <= 0x7fff_0123 - 128, "below the red zone");
    for pointer in [0, 100, 500, 1000] {
        assert_eq!(Place::below(pointer, &action, &AltStack::NONE, 836), None);
    }
    let mut bytes = [0; STACK_BYTES];
    bytes[..8].copy_from_slice(&0x20_0000u64.to_le_bytes());
    bytes[16..].copy_from_slice(&2048u64.to_le_bytes());
    let stack = AltStack::from_bytes(&bytes).unwrap();
    let on = Place::below(0x7fff_0000, &action, &stack, 836).unwrap();
    assert!(stack.holds(on.frame));
    // Another one on it does not fit.
    assert_eq!(Place::below(on.frame, &action, &stack, 836), None);
    let own = Place::below(0x7fff_0000, &handler(0x40_1000, 0), &stack, 836).unwrap();
    assert!(!stack.holds(own.frame));
}

fn registers(seed: u64) -> Registers {
    let r = |index: u64| {
        seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(index as u32)
            ^ index
    };
    Registers {
        rax: r(0),
        rbx: r(1),
        rcx: r(2),
        rdx: r(3),
        rsi: r(4),
        rdi: r(5),
        rbp: r(6),
        rsp: r(7),
        r8: r(8),
        r9: r(9),
        r10: r(10),
        r11: r(11),
        r12: r(12),
        r13: r(13),
        r14: r(14),
        r15: r(15),
        rip: r(16),
        rflags: r(17),
    }
}

fn frame(seed: u64) -> Frame {
    Frame {
        restorer: 0x50_0000,
        registers: registers(seed),
        selectors: (0x33, 0x2b),
        fault: Fault {
            vector: 14,
            code: 6,
            address: seed,
        },
        mask: seed,
        stack: AltStack::NONE.to_bytes(0),
        fp: (0x7000_0000, true),
        info: Info::fault(code::SEGV_MAPERR, seed).to_bytes(11),
    }
}

/// Offsets of glibc's `ucontext_t` and `siginfo_t`, by which handlers read.
#[test]
fn a_frame_is_linux_s() {
    let frame = frame(77);
    let bytes = frame.to_bytes();
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    assert_eq!(word(0), 0x50_0000);
    let gregs = 8 + 40;
    // REG_RSP, REG_RIP, REG_EFL, REG_ERR, REG_TRAPNO, REG_OLDMASK, REG_CR2.
    let found = [15, 16, 17, 19, 20, 21, 22].map(|index| word(gregs + 8 * index));
    let r = frame.registers;
    assert_eq!(found, [r.rsp, r.rip, r.rflags, 6, 14, 77, 77]);
    // REG_CSGSFS: cs, gs, fs, ss.
    assert_eq!(word(gregs + 8 * 18), 0x33 | 0x2b << 48);
    // fpregs, uc_sigmask, si_signo, si_addr.
    assert_eq!(word(gregs + 8 * 23), 0x7000_0000);
    assert_eq!(word(8 + 296), 77);
    assert_eq!(bytes[312], 11);
    assert_eq!(word(312 + 16), 77);
}

const AVX: FpFormat = FpFormat {
    bytes: 832,
    components: 7,
    mxcsr_mask: 0xffff,
};
const SSE_ONLY: FpFormat = FpFormat {
    bytes: 512,
    components: 0,
    mxcsr_mask: 0xffbf,
};

#[test]
fn a_state_that_comes_back_is_the_one_that_was_saved() {
    for format in [AVX, SSE_ONLY] {
        let mut area = vec![0x11; format.frame_bytes()];
        area[24..28].copy_from_slice(&0x1f80u32.to_le_bytes());
        if format.components != 0 {
            area[512..576].fill(0);
            area[512] = 7;
        }
        format.mark(&mut area);
        let mut back = area.clone();
        format.check(&mut back);
        assert_eq!(back, area);
    }
    // A program that knows nothing of AVX has written the legacy part alone.
    let mut area = vec![0xff; AVX.frame_bytes()];
    AVX.check(&mut area);
    assert_eq!(area[512..576], [&[3][..], &[0; 63]].concat()[..]);
}

proptest! {
    #[test]
    fn a_frame_comes_back_as_it_was(seed: u64) {
        let frame = frame(seed);
        let back = Restored::from_bytes(&frame.to_bytes());
        prop_assert_eq!(back.registers, frame.registers);
        prop_assert_eq!((back.mask, back.stack, back.fp), (frame.mask, frame.stack, frame.fp.0));
    }

    /// Whatever lies there, loading it cannot fault (Intel SDM volume 1, 13.8.1: no component that
    /// is not switched on, nothing in the rest of the header, no reserved bit of MXCSR).
    #[test]
    fn any_bytes_become_a_state_that_can_be_loaded(
        mut area in prop::collection::vec(any::<u8>(), 836),
        marked: bool,
    ) {
        for format in [AVX, SSE_ONLY] {
            if marked {
                format.mark(&mut area);
            }
            format.check(&mut area);
            let mxcsr = u32::from_le_bytes(area[24..28].try_into().unwrap());
            prop_assert_eq!(mxcsr & !format.mxcsr_mask, 0);
        }
        AVX.check(&mut area);
        prop_assert_eq!(area[512] & !7, 0);
        prop_assert!(area[513..576].iter().all(|byte| *byte == 0));
    }
}
