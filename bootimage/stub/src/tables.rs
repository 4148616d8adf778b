//! Page tables for the kernel's first address space.
//!
//! Pages for tables come from a block that is mapped at its own address while the stub runs.
//!
//! Invariant: no mapping is both writable and executable; a page is mapped once.

use bootstub::memory_map::PAGE_BYTES;

/// Entry bits.
pub const PRESENT: u64 = 1;
/// Writes allowed.
pub const WRITABLE: u64 = 1 << 1;
/// Large page.
const LARGE: u64 = 1 << 7;
/// No instruction fetches.
pub const NO_EXECUTE: u64 = 1 << 63;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
const LARGE_PAGE_BYTES: u64 = 2 << 20;

/// Zeroed pages from the start of a block of memory on.
pub struct Pages {
    next: u64,
    end: u64,
}

impl Pages {
    /// Gives out the pages of `start..end`.
    ///
    /// # Safety
    /// The block must be free memory, mapped at its own address, for good.
    pub unsafe fn new(start: u64, end: u64) -> Self {
        Self { next: start, end }
    }

    /// Address of `count` zeroed pages in a row.
    pub fn take(&mut self, count: u64) -> u64 {
        let bytes = count * PAGE_BYTES;
        assert!(bytes <= self.end - self.next, "the arena plan is too small");
        let start = self.next;
        self.next += bytes;
        // SAFETY: inside the block given to `new`, and given out once.
        unsafe { core::ptr::write_bytes(start as *mut u8, 0, bytes as usize) };
        start
    }
}

/// A PML4 under construction.
pub struct Tables {
    /// Physical address of the PML4.
    pub pml4: u64,
}

impl Tables {
    /// An empty PML4.
    pub fn new(pages: &mut Pages) -> Self {
        Self {
            pml4: pages.take(1),
        }
    }

    /// Maps `bytes` (whole pages) from `physical` at `address` in 4 KiB pages.
    pub fn map(&self, pages: &mut Pages, address: u64, physical: u64, bytes: u64, flags: u64) {
        assert!(flags & WRITABLE == 0 || flags & NO_EXECUTE != 0, "W^X");
        for offset in (0..bytes).step_by(PAGE_BYTES as usize) {
            let table = self.descend(pages, address + offset, 1);
            set(
                table,
                address + offset,
                0,
                (physical + offset) | flags | PRESENT,
            );
        }
    }

    /// Maps physical memory `0..end` at `address` in 2 MiB pages, writable, not executable.
    pub fn map_physical(&self, pages: &mut Pages, address: u64, end: u64) {
        let flags = PRESENT | WRITABLE | NO_EXECUTE | LARGE;
        let mut physical = 0;
        while physical < end {
            let table = self.descend(pages, address + physical, 2);
            // One directory at a time.
            let first = index(address + physical, 1);
            for slot in first..512 {
                if physical >= end {
                    break;
                }
                set_slot(table, slot, physical | flags);
                physical += LARGE_PAGE_BYTES;
            }
        }
    }

    /// Maps `start..end` at its own address in 2 MiB pages, with all rights: the stub's own tables
    /// while it runs. What is mapped already stays.
    pub fn map_identity(&self, pages: &mut Pages, start: u64, end: u64) {
        let mut address = start & !(LARGE_PAGE_BYTES - 1);
        while address < end {
            let table = self.descend(pages, address, 2);
            set_slot(
                table,
                index(address, 1),
                address | PRESENT | WRITABLE | LARGE,
            );
            address += LARGE_PAGE_BYTES;
        }
    }

    /// The table of level `to` (1: page table, 2: page directory) for `address`, made when missing.
    fn descend(&self, pages: &mut Pages, address: u64, to: u32) -> u64 {
        let mut table = self.pml4;
        for level in (to..=3).rev() {
            let slot = index(address, level);
            let mut entry = get_slot(table, slot);
            if entry & PRESENT == 0 {
                entry = pages.take(1) | PRESENT | WRITABLE;
                set_slot(table, slot, entry);
            }
            assert!(entry & LARGE == 0, "mapped twice: {address:#x}");
            table = entry & ADDRESS;
        }
        table
    }
}

/// A PML5 whose lower and upper halves are `pml4`'s: for the moment between firmware's 5-level
/// paging and the kernel's 4-level paging.
pub fn five_level(pages: &mut Pages, pml4: u64) -> u64 {
    let table = pages.take(1);
    set_slot(table, 0, pml4 | PRESENT | WRITABLE);
    set_slot(table, 511, pml4 | PRESENT | WRITABLE);
    table
}

/// Level 0: page table, 3: PML4.
fn index(address: u64, level: u32) -> usize {
    (address >> (12 + 9 * level)) as usize & 511
}

fn set(table: u64, address: u64, level: u32, entry: u64) {
    let slot = index(address, level);
    assert!(get_slot(table, slot) == 0, "mapped twice: {address:#x}");
    set_slot(table, slot, entry);
}

fn get_slot(table: u64, slot: usize) -> u64 {
    // SAFETY: `table` is a page from `Pages`, `slot` is below 512.
    unsafe { (table as *const u64).add(slot).read() }
}

fn set_slot(table: u64, slot: usize, entry: u64) {
    // SAFETY: `table` is a page from `Pages`, `slot` is below 512.
    unsafe { (table as *mut u64).add(slot).write(entry) };
}
