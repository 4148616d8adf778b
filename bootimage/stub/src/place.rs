//! What lies where in the kernel's first address space, and how much memory that takes.
//!
//! Upper half only: physical memory at the offset that the kernel asks for, the kernel image at its
//! base, and the boot area with the page that the stub jumps through, a guard page and the stack.
//!
//! Invariant: [`ArenaPlan`] covers every page the builder can take; the builder stops with a
//! message when it does not.

use crate::memory_map::PAGE_BYTES;

/// Boot area: one page of jump code, one guard page, then the stack.
pub const BOOT_AREA: u64 = 0xffff_ffff_4000_0000;
/// Lowest address of the boot stack.
pub const STACK_BASE: u64 = BOOT_AREA + 2 * PAGE_BYTES;
/// Physical memory is mapped at least up to here: APIC and PCI windows lie below.
pub const PHYSICAL_MAP_MIN: u64 = 1 << 32;
/// RAM above this is left out: the room between the physical map and the kernel's heap.
pub const PHYSICAL_MAP_MAX: u64 = 64 << 40;
/// Everything that the hand-over needs lies below: the jump leaves 64-bit mode on its way.
pub const ARENA_LIMIT: u64 = 1 << 32;

const LARGE_PAGE_BYTES: u64 = 2 << 20;
const GIB: u64 = 1 << 30;

/// Sizes of the one block of memory that the stub takes for the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaPlan {
    /// The kernel's image.
    pub kernel_pages: u64,
    /// Its boot stack.
    pub stack_pages: u64,
    /// Page tables, at most.
    pub table_pages: u64,
    /// `BootInfo`, memory regions, hand-off block, jump code.
    pub information_pages: u64,
    /// End of the physical map.
    pub physical_map_end: u64,
}

/// Pages for `BootInfo` and regions (512 x 24 bytes and their pieces), hand-off block, jump code.
pub const INFORMATION_PAGES: u64 = 4 + 1 + 1;

impl ArenaPlan {
    /// Plan for a kernel of `kernel_bytes`, a stack of `stack_bytes`, RAM up to `ram_end`, and
    /// `identity_bytes` of stub code that must stay mapped during the jump.
    pub fn new(kernel_bytes: u64, stack_bytes: u64, ram_end: u64, identity_bytes: u64) -> Self {
        let physical_map_end = ram_end
            .clamp(PHYSICAL_MAP_MIN, PHYSICAL_MAP_MAX)
            .next_multiple_of(LARGE_PAGE_BYTES);
        let directories = physical_map_end.div_ceil(GIB);
        let physical_tables = directories + directories.div_ceil(512) + 1;
        // A PDPT, a page directory and page tables for each of kernel, boot area, jump page and
        // stub code, each of which may straddle one boundary more.
        let small_tables = |bytes: u64| bytes.div_ceil(LARGE_PAGE_BYTES) + 1 + 2 + 2;
        Self {
            kernel_pages: kernel_bytes.div_ceil(PAGE_BYTES),
            stack_pages: stack_bytes.div_ceil(PAGE_BYTES),
            // The first two: PML4 and, under 5-level paging, the PML5 to leave it by.
            table_pages: 2
                + physical_tables
                + small_tables(kernel_bytes)
                + small_tables(stack_bytes)
                + small_tables(PAGE_BYTES)
                + small_tables(identity_bytes),
            information_pages: INFORMATION_PAGES,
            physical_map_end,
        }
    }

    /// Size of the whole block in bytes.
    pub fn bytes(&self) -> u64 {
        (self.kernel_pages + self.stack_pages + self.table_pages + self.information_pages)
            * PAGE_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_grows_with_kernel_and_memory() {
        let small = ArenaPlan::new(0x4_6000, 0x1_0000, 32 << 20, 0x2000);
        assert_eq!(small.physical_map_end, 4 << 30);
        assert_eq!((small.kernel_pages, small.stack_pages), (0x46, 0x10));
        // PML4, PML5, PDPT and four page directories, and five or six for each small mapping.
        assert!(small.table_pages < 40, "{}", small.table_pages);
        let large = ArenaPlan::new(0x4_6000, 0x1_0000, 1 << 40, 0x2000);
        assert_eq!(large.table_pages - small.table_pages, 1024 - 4 + 1);
        let beyond = ArenaPlan::new(0x4_6000, 0x1_0000, u64::MAX - 4096, 0x2000);
        assert_eq!(beyond.physical_map_end, PHYSICAL_MAP_MAX);
    }
}
