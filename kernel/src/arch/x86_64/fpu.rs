//! The floating-point state. It belongs to the program: the kernel is compiled without floating
//! point, so the state simply stays in the registers across traps and calls.
//!
//! Invariant: it is reset between two programs, or one would read what the other left.

use kernel_core::signals::frame::{FpFormat, LEGACY_BYTES};
use raw_cpuid::cpuid;
use spin::Once;
use x86_64::registers::control::{Cr0, Cr0Flags, Cr4, Cr4Flags};
use x86_64::registers::xcontrol::{XCr0, XCr0Flags};

use super::cpu;

/// Room for x87, SSE and AVX in XSAVE's standard format, 832 bytes, for what a signal frame has
/// beside it, and some to spare.
pub const STATE_BYTES: usize = 1024;
/// Value of the x87 control word after FNINIT, and of MXCSR after reset: all exceptions masked.
const INITIAL_FCW: u16 = 0x037f;
const INITIAL_MXCSR: u32 = 0x1f80;
const FCW_AT: usize = 0;
const MXCSR_AT: usize = 24;
/// Where FXSAVE and XSAVE say which bits MXCSR may have, and what 0 there means (Intel SDM volume
/// 1, 11.6.6).
const MXCSR_MASK_AT: usize = 28;
const MXCSR_MASK_DEFAULT: u32 = 0xffbf;

static FORMAT: Once<FpFormat> = Once::new();

/// A saved state, in the layout of XSAVE (or FXSAVE on CPUs without it).
#[derive(Clone)]
#[repr(C, align(64))]
pub struct FpuState([u8; STATE_BYTES]);

impl FpuState {
    /// The state a program starts with.
    pub const INITIAL: Self = {
        let mut bytes = [0; STATE_BYTES];
        let fcw = INITIAL_FCW.to_le_bytes();
        let mxcsr = INITIAL_MXCSR.to_le_bytes();
        bytes[FCW_AT] = fcw[0];
        bytes[FCW_AT + 1] = fcw[1];
        bytes[MXCSR_AT] = mxcsr[0];
        bytes[MXCSR_AT + 1] = mxcsr[1];
        // XSAVE's header stays zero: every component is in its initial state.
        Self(bytes)
    };

    /// The state in the registers.
    pub fn of_registers() -> Self {
        let mut state = Self::INITIAL;
        save(&mut state);
        state
    }

    /// Its bytes, with unused ones behind them.
    pub fn bytes(&self) -> &[u8; STATE_BYTES] {
        &self.0
    }

    /// Its bytes as they stand in the frame of a signal.
    pub fn mark_for_frame(&mut self) -> &[u8] {
        let bytes = &mut self.0[..format().frame_bytes()];
        format().mark(bytes);
        bytes
    }

    /// Takes what `read` puts into its place, a state that a program has left in a frame, as far as
    /// it is one. Where that fails it is the initial state.
    pub fn take_frame<E>(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let bytes = &mut self.0[..format().frame_bytes()];
        let result = read(bytes);
        match result {
            Ok(()) => format().check(bytes),
            Err(_) => *self = Self::INITIAL,
        }
        result
    }

    /// The bytes of the x87 and SSE registers; for tests.
    #[cfg(feature = "ktest")]
    pub fn legacy_registers(&self) -> &[u8] {
        const REGISTERS: core::ops::Range<usize> = 32..416;
        &self.0[REGISTERS]
    }
}

/// Switches on SSE, and AVX when the CPU has it and XSAVE to go with it. Wider registers stay
/// off; programs ask XGETBV before they use them.
pub fn init() {
    switch_on();
    FORMAT.call_once(find_format);
}

/// [`init`] on another core.
pub(super) fn switch_on() {
    let features = cpu::features();
    // SAFETY: x86-64 CPUs have FXSAVE and SSE; OSXSAVE is set only where XSAVE exists, and XCR0
    // only to components the CPU lists (SSE always, AVX by its feature bit).
    unsafe {
        Cr0::update(|flags| {
            flags.remove(Cr0Flags::EMULATE_COPROCESSOR | Cr0Flags::TASK_SWITCHED);
            flags.insert(Cr0Flags::MONITOR_COPROCESSOR | Cr0Flags::NUMERIC_ERROR);
        });
        Cr4::update(|flags| {
            flags.insert(Cr4Flags::OSFXSR | Cr4Flags::OSXMMEXCPT_ENABLE);
            flags.set(Cr4Flags::OSXSAVE, features.xsave);
        });
        if features.xsave {
            let mut components = XCr0Flags::X87 | XCr0Flags::SSE;
            components.set(XCr0Flags::AVX, features.avx);
            XCr0::write(components);
            let bytes = cpuid!(0xd, 0).ebx as usize;
            assert!(bytes < STATE_BYTES, "XSAVE wants {bytes} bytes");
        }
    }
    reset();
}

/// How states are saved on this CPU.
pub fn format() -> &'static FpFormat {
    FORMAT.get().expect("the format is found at start")
}

fn find_format() -> FpFormat {
    let state = FpuState::of_registers();
    let mask = &state.0[MXCSR_MASK_AT..MXCSR_MASK_AT + 4];
    let mxcsr_mask = match u32::from_le_bytes(mask.try_into().expect("four bytes")) {
        0 => MXCSR_MASK_DEFAULT,
        mask => mask,
    };
    let format = match cpu::features().xsave {
        true => FpFormat {
            bytes: cpuid!(0xd, 0).ebx as usize,
            components: XCr0::read().bits(),
            mxcsr_mask,
        },
        false => FpFormat {
            bytes: LEGACY_BYTES,
            components: 0,
            mxcsr_mask,
        },
    };
    assert!(format.frame_bytes() <= STATE_BYTES, "{format:?}");
    format
}

/// Puts all registers in the state a program starts with.
pub fn reset() {
    restore(&FpuState::INITIAL);
}

/// Loads a state.
pub fn restore(state: &FpuState) {
    // SAFETY: the area is aligned and large enough (checked in `init`), made by `save`, `INITIAL`
    // or `of_program` only, so its header and MXCSR are valid; the kernel itself holds nothing in
    // these registers.
    unsafe {
        if cpu::features().xsave {
            core::arch::asm!("xrstor64 [{}]", in(reg) state.0.as_ptr(), in("eax") u32::MAX,
                in("edx") u32::MAX, options(nostack, readonly));
        } else {
            core::arch::asm!("fxrstor64 [{}]", in(reg) state.0.as_ptr(), options(nostack, readonly));
        }
    }
}

/// Stores the state.
pub fn save(state: &mut FpuState) {
    // SAFETY: as in `restore`.
    unsafe {
        if cpu::features().xsave {
            core::arch::asm!("xsave64 [{}]", in(reg) state.0.as_mut_ptr(), in("eax") u32::MAX,
                in("edx") u32::MAX, options(nostack));
        } else {
            core::arch::asm!("fxsave64 [{}]", in(reg) state.0.as_mut_ptr(), options(nostack));
        }
    }
}
