//! A test tool: enters a boot image that lies in memory by its 32-bit or 64-bit entry, as GRUB and
//! kexec do, so that these entries are tested without either.
//!
//! Command line: `chain=32|64|57 at=HEX`, then `--` and the command line for the image. `57` is the
//! 64-bit entry with 5-level paging. `at` is the physical address of the image's first byte. With
//! `x2apic=on` the local APIC is in x2APIC mode before, as firmware of large machines leaves it.
#![cfg_attr(target_os = "none", no_std, no_main)]

#[cfg(not(target_os = "none"))]
fn main() {}

#[cfg(target_os = "none")]
mod kernel {
    use bootloader_api::config::Mapping;
    use bootloader_api::info::{MemoryRegionKind, Optional};
    use bootloader_api::{BootInfo, BootloaderConfig, entry_point};

    static CONFIG: BootloaderConfig = {
        let mut config = BootloaderConfig::new_default();
        config.mappings.physical_memory = Some(Mapping::FixedAddress(PHYSICAL));
        config
    };
    entry_point!(main, config = &CONFIG);

    const PHYSICAL: u64 = 0xffff_8000_0000_0000;
    /// Low pages for the jump code, tables, zero page and command line: free after a BIOS start.
    const CHAIN_PAGE: u64 = 0x8000;
    const PML4: u64 = 0x9000;
    const PDPT: u64 = 0xa000;
    const PML5: u64 = 0xb000;
    const ZERO_PAGE: u64 = 0xc000;
    const COMMAND_LINE: u64 = 0xd000;

    core::arch::global_asm!(include_str!("../asm/chain.S"), options(att_syntax));

    unsafe extern "C" {
        static chain_code: u8;
        static chain_code64: u8;
        static chain_end: u8;
    }

    fn main(info: &'static mut BootInfo) -> ! {
        let Optional::Some(address) = info.ramdisk_addr else {
            panic!("no hand-off block");
        };
        // SAFETY: the stub's hand-off block.
        let block =
            unsafe { core::slice::from_raw_parts(address as *const u8, info.ramdisk_len as usize) };
        let block = hearth_abi::handoff::Handoff::parse(block).expect("hand-off block");
        let (own, passed) = block.command_line.split_once(" -- ").expect("no --");
        let option = |name: &str| own.split(' ').find_map(|word| word.strip_prefix(name));
        let mode = option("chain=").expect("chain=");
        let at = u64::from_str_radix(option("at=").expect("at="), 16).expect("at=HEX");

        if option("x2apic=") == Some("on") {
            switch_to_x2apic();
        }
        fill_zero_page(info, passed);
        let (cr3, cr4) = tables(mode == "57");
        let entry = at + if mode == "32" { 0x1000 } else { 0x1200 };
        let far = CHAIN_PAGE + (&raw const chain_code64 as u64 - &raw const chain_code as u64);
        put(CHAIN_PAGE + 0x800, 39 | (CHAIN_PAGE + 0x840) << 16);
        for (offset, value) in [
            (0x808, 0),
            (0x810, cr3),
            (0x818, cr4),
            (0x820, entry),
            (0x828, ZERO_PAGE),
            (0x830, u64::from(mode != "32")),
            (0x838, far | 0x20 << 32),
            // As GRUB and kexec have it: code 0x10, data 0x18; 0x20 is 64-bit code here.
            (0x840, 0),
            (0x848, 0),
            (0x850, 0x00cf_9300_0000_ffff),
            (0x858, 0x00cf_9b00_0000_ffff),
            (0x860, 0x00af_9b00_0000_ffff),
        ] {
            put(CHAIN_PAGE + offset, value);
        }
        let length = &raw const chain_end as usize - &raw const chain_code as usize;
        // SAFETY: free low memory; the tables map it at its own address and keep the kernel mapped.
        unsafe {
            core::ptr::copy_nonoverlapping(
                &raw const chain_code,
                (PHYSICAL + CHAIN_PAGE) as *mut u8,
                length,
            );
            core::arch::asm!(
                "mov cr3, {}", "mov rbx, {}", "jmp rbx",
                in(reg) PML4, in(reg) CHAIN_PAGE, options(noreturn)
            );
        }
    }

    /// Needs a processor that has the mode; firmware has enabled the APIC.
    fn switch_to_x2apic() {
        const BASE_MSR: u32 = 0x1b;
        const X2APIC: u32 = 1 << 10;
        // SAFETY: nothing of this kernel uses the APIC.
        unsafe {
            core::arch::asm!(
                "rdmsr", "or eax, {mode}", "wrmsr",
                mode = const X2APIC, in("ecx") BASE_MSR, out("eax") _, out("edx") _,
                options(nomem, nostack)
            );
        }
    }

    /// Identity map in 1 GiB pages, this kernel's upper half; CR3 and CR4 to enter the image with.
    fn tables(five_level: bool) -> (u64, u64) {
        let current: u64;
        // SAFETY: reads a register.
        unsafe { core::arch::asm!("mov {}, cr3", out(reg) current, options(nomem, nostack)) };
        for slot in 0..512 {
            put(PDPT + slot * 8, slot << 30 | 0x83);
            put(PML5 + slot * 8, 0);
            // SAFETY: the current PML4, through the physical map.
            let upper = unsafe {
                ((PHYSICAL + current) as *const u64)
                    .add(slot as usize)
                    .read()
            };
            put(PML4 + slot * 8, if slot < 256 { 0 } else { upper });
        }
        put(PML4, PDPT | 3);
        put(PML5, PML4 | 3);
        if five_level {
            (PML5, 1 << 5 | 1 << 12)
        } else {
            (PML4, 1 << 5)
        }
    }

    fn fill_zero_page(info: &BootInfo, command_line: &str) {
        for word in 0..1024 {
            put(ZERO_PAGE + word * 8, 0);
        }
        for (index, byte) in command_line.bytes().enumerate() {
            put_byte(COMMAND_LINE + index as u64, byte);
        }
        put(ZERO_PAGE + 0x228, COMMAND_LINE);
        let mut count = 0;
        for region in info.memory_regions.iter().take(128) {
            // What this kernel was given is free for the next one, except where this one lies.
            let kind: u64 = match region.kind {
                MemoryRegionKind::Usable | MemoryRegionKind::Bootloader => 1,
                _ => 2,
            };
            let at = ZERO_PAGE + 0x2d0 + count * 20;
            put(at, region.start);
            put(at + 8, region.end - region.start);
            put_byte(at + 16, kind as u8);
            count += 1;
        }
        put_byte(ZERO_PAGE + 0x1e8, count as u8);
    }

    fn put(physical: u64, value: u64) {
        // SAFETY: only used for the low pages named above, through the physical map.
        unsafe { ((PHYSICAL + physical) as *mut u64).write_unaligned(value) };
    }

    fn put_byte(physical: u64, value: u8) {
        // SAFETY: as in `put`.
        unsafe { ((PHYSICAL + physical) as *mut u8).write(value) };
    }

    #[panic_handler]
    fn panic(_: &core::panic::PanicInfo) -> ! {
        for byte in *b"CHAIN panic\n" {
            // SAFETY: COM1's data register.
            unsafe {
                core::arch::asm!("out dx, al", in("al") byte, in("dx") 0x3f8_u16, options(nomem, nostack));
            }
        }
        loop {
            // SAFETY: interrupts are off, so this idles for good.
            unsafe { core::arch::asm!("hlt", options(nomem, nostack)) };
        }
    }
}
