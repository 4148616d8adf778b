//! A kernel that only prints: the baseline of the boot benchmark and the kernel of the boot image's
//! own tests.
//!
//! Prints what it was handed, one `name value` a line, then `HEARTH-STUB up`, and idles.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(not(target_os = "none"))]
fn main() {}

#[cfg(target_os = "none")]
mod kernel {
    use bootloader_api::config::Mapping;
    use bootloader_api::info::{MemoryRegionKind, Optional};
    use bootloader_api::{BootInfo, BootloaderConfig, entry_point};
    use core::fmt::Write;

    static CONFIG: BootloaderConfig = {
        let mut config = BootloaderConfig::new_default();
        config.mappings.physical_memory = Some(Mapping::FixedAddress(0xffff_8000_0000_0000));
        config.kernel_stack_size = 64 * 1024;
        config
    };
    entry_point!(main, config = &CONFIG);

    /// Large enough to lie beyond the file's end, and never written before it is checked.
    static mut ZEROED: [u64; 0x8000] = [0; 0x8000];

    fn main(info: &'static mut BootInfo) -> ! {
        let now = time_stamp();
        let mut out = Serial;
        let _ = report(&mut out, info, now);
        let _ = writeln!(out, "HEARTH-STUB up");
        loop {
            // SAFETY: interrupts are off, so this idles for good.
            unsafe { core::arch::asm!("hlt", options(nomem, nostack)) };
        }
    }

    fn report(out: &mut Serial, info: &BootInfo, now: u64) -> core::fmt::Result {
        let Optional::Some(address) = info.ramdisk_addr else {
            return writeln!(out, "error: no hand-off block");
        };
        // SAFETY: the stub's hand-off block.
        let block =
            unsafe { core::slice::from_raw_parts(address as *const u8, info.ramdisk_len as usize) };
        let block = match hearth_abi::handoff::Handoff::parse(block) {
            Ok(block) => block,
            Err(error) => return writeln!(out, "error: hand-off block: {error:?}"),
        };
        writeln!(out, "entry {}", block.entry)?;
        writeln!(
            out,
            "version {}",
            core::str::from_utf8(&block.version)
                .unwrap_or("?")
                .trim_end_matches('\0')
        )?;
        write!(out, "build ")?;
        for byte in block.build_id {
            write!(out, "{byte:02x}")?;
        }
        writeln!(out, "\nimage_bytes {}", block.image_bytes)?;
        writeln!(out, "command_line {}", block.command_line)?;
        writeln!(out, "rsdp {:x?}", info.rsdp_addr.into_option())?;
        for region in info.memory_regions.iter() {
            writeln!(
                out,
                "region {:#x} {:#x} {:?}",
                region.start, region.end, region.kind
            )?;
        }
        let usable: u64 = info
            .memory_regions
            .iter()
            .filter(|region| region.kind == MemoryRegionKind::Usable)
            .map(|region| region.end - region.start)
            .sum();
        writeln!(out, "usable_bytes {usable}")?;
        writeln!(out, "memory_ok {}", memory_answers(info))?;
        writeln!(out, "stub_ticks {}", now.wrapping_sub(block.entry_tsc))?;
        writeln!(
            out,
            "kernel {:#x} {:#x} at {:#x}",
            info.kernel_addr, info.kernel_len, info.kernel_image_offset
        )?;
        let zeroed = (0..0x8000).all(|index| {
            // SAFETY: inside the array, and nothing else uses it.
            unsafe { (&raw const ZEROED).cast::<u64>().add(index).read_volatile() == 0 }
        });
        writeln!(out, "bss_zero {zeroed}")?;
        let (cr0, cr4, flags): (u64, u64, u64);
        // SAFETY: reads registers.
        unsafe {
            core::arch::asm!("mov {}, cr0", "mov {}, cr4", "pushfq", "pop {}", out(reg) cr0, out(reg) cr4, out(reg) flags);
        }
        let (low, high): (u32, u32);
        // SAFETY: EFER exists on every CPU with long mode.
        unsafe {
            core::arch::asm!("rdmsr", in("ecx") 0xc000_0080_u32, out("eax") low, out("edx") high);
        }
        let _ = high;
        writeln!(
            out,
            "cr0 {cr0:#x}\ncr4 {cr4:#x}\nefer {low:#x}\nrflags {flags:#x}"
        )
    }

    /// Whether the last word of every usable region can be written and read through the physical
    /// map.
    fn memory_answers(info: &BootInfo) -> bool {
        const PATTERN: u64 = 0x0123_4567_89ab_cdef;
        let Optional::Some(offset) = info.physical_memory_offset else {
            return false;
        };
        info.memory_regions
            .iter()
            .filter(|region| region.kind == MemoryRegionKind::Usable)
            .all(|region| {
                let word = (offset + region.end - 8) as *mut u64;
                // SAFETY: usable memory belongs to the kernel and nothing else uses it yet.
                unsafe {
                    word.write_volatile(PATTERN);
                    word.read_volatile() == PATTERN
                }
            })
    }

    fn time_stamp() -> u64 {
        let (low, high): (u32, u32);
        // SAFETY: reads a counter.
        unsafe {
            core::arch::asm!("rdtsc", out("eax") low, out("edx") high, options(nomem, nostack));
        }
        u64::from(low) | u64::from(high) << 32
    }

    struct Serial;

    impl Write for Serial {
        fn write_str(&mut self, text: &str) -> core::fmt::Result {
            for byte in text.bytes() {
                for _ in 0..20_000 {
                    let status: u8;
                    // SAFETY: COM1's line status register.
                    unsafe {
                        core::arch::asm!("in al, dx", out("al") status, in("dx") 0x3fd_u16, options(nomem, nostack));
                    }
                    if status & 0x20 != 0 {
                        break;
                    }
                }
                // SAFETY: COM1's data register.
                unsafe {
                    core::arch::asm!("out dx, al", in("al") byte, in("dx") 0x3f8_u16, options(nomem, nostack));
                }
            }
            Ok(())
        }
    }

    #[panic_handler]
    fn panic(info: &core::panic::PanicInfo) -> ! {
        let _ = writeln!(Serial, "HEARTH-STUB panic: {info}");
        loop {
            // SAFETY: interrupts are off, so this idles for good.
            unsafe { core::arch::asm!("hlt", options(nomem, nostack)) };
        }
    }
}
