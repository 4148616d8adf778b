//! What the CPU can do, and the control registers that switch it on.
//!
//! Invariant: NX, write protection in ring 0 and (where they exist) SMEP, SMAP and UMIP stay on
//! from [`init`] to the end.

use raw_cpuid::cpuid;
use spin::Once;
use x86_64::registers::control::{Cr0, Cr0Flags, Cr4, Cr4Flags, Efer, EferFlags};

/// Features that the kernel looks at.
#[derive(Clone, Copy, Debug)]
pub struct Features {
    /// Supervisor-mode execution prevention.
    pub smep: bool,
    /// Supervisor-mode access prevention.
    pub smap: bool,
    /// User-mode instruction prevention (SGDT and the like).
    pub umip: bool,
    /// XSAVE and XRSTOR.
    pub xsave: bool,
    /// AVX (and AVX2 with it: the same registers).
    pub avx: bool,
    /// RDRAND.
    pub rdrand: bool,
    /// The time-stamp counter runs at one speed in all states.
    pub invariant_tsc: bool,
    /// Global pages.
    pub global_pages: bool,
    /// Pages of 1 GiB.
    pub huge_pages: bool,
    /// Machine checks are exceptions.
    pub machine_check: bool,
}

static FEATURES: Once<Features> = Once::new();

/// The features of this CPU.
pub fn features() -> Features {
    *FEATURES.call_once(read)
}

fn read() -> Features {
    let highest = cpuid!(0).eax;
    let one = cpuid!(1);
    let seven = if highest >= 7 {
        cpuid!(7, 0)
    } else {
        raw_cpuid::CpuIdResult {
            eax: 0,
            ebx: 0,
            ecx: 0,
            edx: 0,
        }
    };
    let highest_extended = cpuid!(0x8000_0000).eax;
    let power = if highest_extended >= 0x8000_0007 {
        cpuid!(0x8000_0007).edx
    } else {
        0
    };
    let bit = |register: u32, index: u32| register >> index & 1 == 1;
    Features {
        smep: bit(seven.ebx, 7),
        smap: bit(seven.ebx, 20),
        umip: bit(seven.ecx, 2),
        xsave: bit(one.ecx, 26) && highest >= 0xd,
        avx: bit(one.ecx, 28),
        rdrand: bit(one.ecx, 30),
        invariant_tsc: bit(power, 8),
        global_pages: bit(one.edx, 13),
        huge_pages: highest_extended >= 0x8000_0001 && bit(cpuid!(0x8000_0001).edx, 26),
        machine_check: bit(one.edx, 7),
    }
}

/// Switches on no-execute, write protection and global pages: before the kernel's own page tables
/// are loaded, which use all three. Panics on a CPU without NX.
pub fn enable_paging_features() {
    let extended = cpuid!(0x8000_0001);
    assert!(
        extended.edx >> 20 & 1 == 1,
        "this CPU has no no-execute bit (or the firmware hides it): Hearth needs it"
    );
    // SAFETY: the CPU has NX; no page the kernel executes is marked NX, and none it writes to is
    // read-only, or the stub's tables (W^X by segment) would have stopped it.
    unsafe {
        Efer::update(|flags| flags.insert(EferFlags::NO_EXECUTE_ENABLE));
        Cr0::update(|flags| flags.insert(Cr0Flags::WRITE_PROTECT));
        if features().global_pages {
            Cr4::update(|flags| flags.insert(Cr4Flags::PAGE_GLOBAL));
        }
    }
}

/// Switches on the protections of ring 0 against ring 3, and machine checks.
pub fn init() {
    let features = features();
    // SAFETY: the kernel neither executes nor reads user pages through user addresses (copies
    // go through the physical map), so SMEP and SMAP forbid nothing it does; machine checks have
    // a handler and a stack; without them the machine would reset. CR4.FSGSBASE stays
    // off: the bases in `UserContext` are then always the true ones. CR4.TSD stays off: programs
    // read the clock themselves.
    unsafe {
        Cr4::update(|flags| {
            flags.set(
                Cr4Flags::SUPERVISOR_MODE_EXECUTION_PROTECTION,
                features.smep,
            );
            flags.set(Cr4Flags::SUPERVISOR_MODE_ACCESS_PREVENTION, features.smap);
            flags.set(Cr4Flags::USER_MODE_INSTRUCTION_PREVENTION, features.umip);
            flags.set(Cr4Flags::MACHINE_CHECK_EXCEPTION, features.machine_check);
            flags.remove(Cr4Flags::FSGSBASE);
            flags.remove(Cr4Flags::TIMESTAMP_DISABLE);
        });
    }
}

/// Whether a physical address is one that this CPU can form. A page table with any other faults.
pub fn reaches(address: u64) -> bool {
    /// What a CPU without the leaf has.
    const BITS_LEAST: u32 = 36;
    let bits = match cpuid!(0x8000_0000).eax >= 0x8000_0008 {
        true => cpuid!(0x8000_0008).eax & 0xff,
        false => BITS_LEAST,
    };
    address.checked_shr(bits).unwrap_or(0) == 0
}

/// What AT_HWCAP tells a program: CPUID 1, EDX.
pub fn hwcap() -> u32 {
    cpuid!(1).edx
}

/// Logs the features.
pub fn report() {
    let f = features();
    debug!(
        "cpu",
        "smep {} smap {} umip {} xsave {} avx {} rdrand {} invariant tsc {}",
        f.smep,
        f.smap,
        f.umip,
        f.xsave,
        f.avx,
        f.rdrand,
        f.invariant_tsc
    );
}
