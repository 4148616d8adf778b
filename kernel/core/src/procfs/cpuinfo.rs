//! `/proc/cpuinfo`: a block for each core.
//!
//! Source: Linux, `arch/x86/kernel/cpu/proc.c` (`show_cpuinfo`).

use core::fmt::{self, Write};

use crate::threads::CoreSet;

/// What is known of the processor; all cores are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Processor<'a> {
    /// Its maker, as CPUID says it: `GenuineIntel`.
    pub vendor: &'a str,
    /// Family, model and stepping, extensions included.
    pub family: u32,
    /// See [`Self::family`].
    pub model: u32,
    /// See [`Self::family`].
    pub stepping: u32,
    /// What it calls itself, as CPUID says it, blanks around it included.
    pub name: &'a str,
    /// How fast the time-stamp counter runs, in kHz.
    pub khz: u64,
    /// Largest leaf of CPUID.
    pub cpuid_level: u32,
    /// What it can do, in Linux's words, a blank between them.
    pub flags: &'a str,
    /// Bytes that CLFLUSH writes back.
    pub line_bytes: u32,
    /// Bits of a physical and of a virtual address.
    pub address_bits: (u8, u8),
}

/// Writes a block for each of the cores. Fails as `out` does.
pub fn write(out: &mut impl Write, processor: &Processor<'_>, cores: CoreSet) -> fmt::Result {
    for core in cores.iter() {
        write_block(out, processor, core.number())?;
    }
    Ok(())
}

fn write_block(out: &mut impl Write, processor: &Processor<'_>, number: usize) -> fmt::Result {
    let Processor {
        vendor,
        family,
        model,
        stepping,
        name,
        khz,
        cpuid_level,
        flags,
        line_bytes,
        address_bits: (physical, linear),
    } = processor;
    let name = name.trim_matches([' ', '\0']);
    let (mhz, fraction) = (khz / 1000, khz % 1000);
    writeln!(out, "processor\t: {number}")?;
    writeln!(out, "vendor_id\t: {vendor}")?;
    writeln!(out, "cpu family\t: {family}")?;
    writeln!(out, "model\t\t: {model}")?;
    writeln!(out, "model name\t: {name}")?;
    writeln!(out, "stepping\t: {stepping}")?;
    writeln!(out, "cpu MHz\t\t: {mhz}.{fraction:03}")?;
    writeln!(out, "fpu\t\t: yes\nfpu_exception\t: yes")?;
    writeln!(out, "cpuid level\t: {cpuid_level}\nwp\t\t: yes")?;
    writeln!(out, "flags\t\t: {flags}")?;
    writeln!(out, "clflush size\t: {line_bytes}")?;
    writeln!(out, "cache_alignment\t: {line_bytes}")?;
    write!(out, "address sizes\t: {physical} bits physical, ")?;
    writeln!(out, "{linear} bits virtual")?;
    writeln!(out, "power management:\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROCESSOR: Processor<'_> = Processor {
        vendor: "AuthenticAMD",
        family: 25,
        model: 1,
        stepping: 1,
        name: "AMD EPYC \0\0",
        khz: 2_445_028,
        cpuid_level: 13,
        flags: "fpu vme de avx2",
        line_bytes: 64,
        address_bits: (48, 48),
    };

    #[test]
    fn lines_are_linux_s() {
        let mut text = String::new();
        write(&mut text, &PROCESSOR, CoreSet::from_bits(0b10)).unwrap();
        assert_eq!(
            text,
            "processor\t: 1\n\
             vendor_id\t: AuthenticAMD\n\
             cpu family\t: 25\n\
             model\t\t: 1\n\
             model name\t: AMD EPYC\n\
             stepping\t: 1\n\
             cpu MHz\t\t: 2445.028\n\
             fpu\t\t: yes\n\
             fpu_exception\t: yes\n\
             cpuid level\t: 13\n\
             wp\t\t: yes\n\
             flags\t\t: fpu vme de avx2\n\
             clflush size\t: 64\n\
             cache_alignment\t: 64\n\
             address sizes\t: 48 bits physical, 48 bits virtual\n\
             power management:\n\
             \n"
        );
    }

    #[test]
    fn each_core_has_a_block() {
        let mut text = String::new();
        write(&mut text, &PROCESSOR, CoreSet::first(3)).unwrap();
        let numbers: Vec<&str> = text
            .split_terminator("\n\n")
            .map(|block| block.lines().next().unwrap())
            .collect();
        assert_eq!(
            numbers,
            ["processor\t: 0", "processor\t: 1", "processor\t: 2"]
        );
    }
}
