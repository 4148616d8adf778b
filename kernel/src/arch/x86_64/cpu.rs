//! What the CPU can do, and the control registers that switch it on.
//!
//! Invariant: NX, write protection in ring 0 and (where they exist) SMEP, SMAP and UMIP stay on
//! from [`init`] to the end.

use alloc::string::String;

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

/// What the CPU says it is, for programs that ask by `/proc/cpuinfo`.
pub struct Identity {
    vendor: [u8; 12],
    name: [u8; 48],
    /// Family with its extension.
    pub family: u32,
    /// Model with its extension.
    pub model: u32,
    /// Stepping.
    pub stepping: u32,
    /// Highest leaf of CPUID.
    pub highest_leaf: u32,
    /// Bytes of a cache line.
    pub line_bytes: u32,
    /// Bits of physical and of virtual addresses.
    pub address_bits: (u8, u8),
}

impl Identity {
    /// Its maker.
    pub fn vendor(&self) -> &str {
        str::from_utf8(&self.vendor).unwrap_or("unknown")
    }

    /// What it calls itself.
    pub fn name(&self) -> &str {
        str::from_utf8(&self.name).unwrap_or("unknown")
    }

    /// What it can do, as far as numerical libraries look for it, in Linux's words.
    pub fn flags(&self) -> String {
        let (one, seven) = (cpuid!(1), cpuid!(7, 0));
        let mut words = String::new();
        for (register, bit, word) in [
            (one.edx, 0, "fpu"),
            (one.edx, 4, "tsc"),
            (one.edx, 8, "cx8"),
            (one.edx, 15, "cmov"),
            (one.edx, 23, "mmx"),
            (one.edx, 24, "fxsr"),
            (one.edx, 25, "sse"),
            (one.edx, 26, "sse2"),
            (one.ecx, 0, "pni"),
            (one.ecx, 9, "ssse3"),
            (one.ecx, 12, "fma"),
            (one.ecx, 13, "cx16"),
            (one.ecx, 19, "sse4_1"),
            (one.ecx, 20, "sse4_2"),
            (one.ecx, 23, "popcnt"),
            (one.ecx, 25, "aes"),
            (one.ecx, 26, "xsave"),
            (one.ecx, 28, "avx"),
            (one.ecx, 30, "rdrand"),
            (seven.ebx, 3, "bmi1"),
            (seven.ebx, 5, "avx2"),
            (seven.ebx, 8, "bmi2"),
        ] {
            if register >> bit & 1 == 1 {
                let between = if words.is_empty() { "" } else { " " };
                words.push_str(between);
                words.push_str(word);
            }
        }
        words
    }
}

/// What this CPU says it is.
pub fn identity() -> Identity {
    let (zero, one) = (cpuid!(0), cpuid!(1));
    let mut vendor = [0; 12];
    for (part, word) in vendor.chunks_mut(4).zip([zero.ebx, zero.edx, zero.ecx]) {
        part.copy_from_slice(&word.to_le_bytes());
    }
    let mut name = [b' '; 48];
    let highest = cpuid!(0x8000_0000).eax;
    if highest >= 0x8000_0004 {
        let leaves = (0x8000_0002..=0x8000_0004u32).map(|leaf| cpuid!(leaf));
        for (part, leaf) in name.chunks_mut(16).zip(leaves) {
            let words = [leaf.eax, leaf.ebx, leaf.ecx, leaf.edx];
            for (part, word) in part.chunks_mut(4).zip(words) {
                part.copy_from_slice(&word.to_le_bytes());
            }
        }
    }
    let address_bits = match highest >= 0x8000_0008 {
        true => cpuid!(0x8000_0008).eax,
        false => 48 << 8 | 36,
    };
    let signature = one.eax;
    let family = signature >> 8 & 0xf;
    let extended = if family == 0xf {
        signature >> 20 & 0xff
    } else {
        0
    };
    Identity {
        vendor,
        name,
        family: family + extended,
        model: signature >> 4 & 0xf | signature >> 12 & 0xf0,
        stepping: signature & 0xf,
        highest_leaf: zero.eax,
        line_bytes: (one.ebx >> 8 & 0xff) * 8,
        address_bits: (address_bits as u8, (address_bits >> 8) as u8),
    }
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
