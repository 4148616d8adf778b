//! The last step into the kernel: the page of code that is mapped both low and high, and what it
//! needs. The code itself is `asm/jump.S`.
//!
//! Invariant: the page lies below 4 GiB, because the code in it leaves 64-bit mode for a moment.

use bootstub::memory_map::PAGE_BYTES;

/// Offset of the parameters in the page; the code lies before them.
pub const PARAMETERS_AT: usize = 0xe00;
const GDT_AT: usize = 0xf00;
/// Null, 64-bit code, data, 32-bit code; all marked as accessed, since the page is read-only.
const GDT: [u64; 4] = [
    0,
    0x00af_9b00_0000_ffff,
    0x00cf_9300_0000_ffff,
    0x00cf_9b00_0000_ffff,
];

/// What the jump needs to know; `jump_code` finds each field by its offset.
pub struct Target {
    /// Physical address of the kernel's PML4, below 4 GiB.
    pub pml4: u64,
    /// CR3 for the way there: the PML4, or a PML5 above it when the CPU is in 5-level mode.
    pub way: u64,
    /// Virtual address of the PML4 in the kernel's address space.
    pub pml4_virtual: u64,
    /// Virtual address of the jump page in the kernel's address space.
    pub high: u64,
    /// Top of the boot stack.
    pub stack_top: u64,
    /// Virtual address of `BootInfo`.
    pub boot_info: u64,
    /// Virtual address of the kernel's entry.
    pub entry: u64,
}

unsafe extern "C" {
    fn jump_to_page(page: u64, cr3: u64) -> !;
    static jump_code: u8;
    static jump_code64: u8;
    static jump_code_end: u8;
}

/// Fills the jump page at physical address `page`.
///
/// # Safety
/// `page` must be a free page below 4 GiB, mapped at its own address.
pub unsafe fn prepare(page: u64, target: &Target) {
    let code = &raw const jump_code;
    let length = &raw const jump_code_end as usize - code as usize;
    assert!(length <= PARAMETERS_AT, "the jump code is too long");
    let far = page + (&raw const jump_code64 as u64 - code as u64);
    let limit = (size_of_val(&GDT) - 1) as u64;
    let gdt_low = page + GDT_AT as u64;
    let gdt_high = target.high + GDT_AT as u64;
    let parameters: [u64; 11] = [
        target.pml4,
        far | 0x08 << 32,
        target.high,
        target.pml4_virtual,
        target.stack_top,
        target.boot_info,
        target.entry,
        limit | gdt_low << 16,
        gdt_low >> 48,
        limit | gdt_high << 16,
        gdt_high >> 48,
    ];
    let page = page as *mut u8;
    // SAFETY: all three lie inside the page that the caller gives.
    unsafe {
        page.copy_from_nonoverlapping(code, length);
        page.add(PARAMETERS_AT)
            .cast::<[u64; 11]>()
            .write_unaligned(parameters);
        page.add(GDT_AT).cast::<[u64; 4]>().write_unaligned(GDT);
    }
}

/// The pages of the stub that must be mapped at their own address while CR3 changes: first address
/// and length.
pub fn identity_range() -> (u64, u64) {
    let start = jump_to_page as *const () as u64;
    let first = start & !(PAGE_BYTES - 1);
    (first, 2 * PAGE_BYTES)
}

/// Goes into the kernel.
///
/// # Safety
/// Firmware must be done, the tables behind `target.way` must map [`identity_range`] and the jump
/// page at their own addresses, and [`prepare`] must have filled that page.
pub unsafe fn jump(page: u64, target: &Target) -> ! {
    // SAFETY: by the caller's promise.
    unsafe { jump_to_page(page, target.way) }
}
