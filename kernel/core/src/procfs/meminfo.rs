//! `/proc/meminfo`: the memory of the node.
//!
//! Source: Linux, `fs/proc/meminfo.c`.

use core::fmt::{self, Write};

/// KiB of a large page.
const LARGE_KIB: u64 = 2048;

/// What is known of the node's memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// All that the kernel manages.
    pub total: u64,
    /// Nobody has it.
    pub free: u64,
    /// A program could get it.
    pub available: u64,
    /// Files and pages that were kept.
    pub cached: u64,
}

/// Writes the file. Fails as `out` does.
pub fn write(out: &mut impl Write, memory: &Memory) -> fmt::Result {
    for (name, bytes) in [
        ("MemTotal:", memory.total),
        ("MemFree:", memory.free),
        ("MemAvailable:", memory.available),
        ("Buffers:", 0),
        ("Cached:", memory.cached),
        ("SwapTotal:", 0),
        ("SwapFree:", 0),
    ] {
        writeln!(out, "{name:16}{:8} kB", bytes / 1024)?;
    }
    writeln!(out, "{:16}{LARGE_KIB:8} kB", "Hugepagesize:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_linux_s() {
        let mut text = String::new();
        let memory = Memory {
            total: 24_684_092 << 10,
            free: 18_990_680 << 10,
            available: (22_976_972 << 10) + 1023,
            cached: 4_054_788 << 10,
        };
        write(&mut text, &memory).unwrap();
        assert_eq!(
            text,
            "MemTotal:       24684092 kB\n\
             MemFree:        18990680 kB\n\
             MemAvailable:   22976972 kB\n\
             Buffers:               0 kB\n\
             Cached:          4054788 kB\n\
             SwapTotal:             0 kB\n\
             SwapFree:              0 kB\n\
             Hugepagesize:       2048 kB\n"
        );
    }
}
