//! Page-table roots and the translation lookaside buffer of this core.
//!
//! Neighbours: `mm` owns the tables; [`super::cores`] has the other cores forget too.
//!
//! Invariant: every root that is loaded maps the kernel in the same way.

use core::arch::asm;

use kernel_core::addr::{PhysAddr, VirtAddr};
use x86_64::registers::control::{Cr4, Cr4Flags};

/// Loads CR3. Global pages stay in the TLB, which is right: no kernel page ever changes.
pub fn load_root(root: PhysAddr) {
    // SAFETY: the upper half of every root maps the kernel in the same way, so the code goes on
    // running; the lower half is not used by the kernel.
    unsafe {
        asm!("mov cr3, {}", in(reg) root.as_u64(), options(nostack, preserves_flags));
    }
}

/// Removes one page from the TLB.
pub fn flush(page: VirtAddr) {
    // SAFETY: forgetting a translation is always allowed.
    unsafe {
        asm!("invlpg [{}]", in(reg) page.as_u64(), options(nostack, preserves_flags));
    }
}

/// Removes everything from the TLB, global pages too. For a core that was in the kernel with the
/// program's table loaded while another gave tables away: it may have read a frame that holds
/// something else by now as a table, and what it made of that may look global.
pub fn flush_all() {
    // SAFETY: the bit decides only whether translations outlive a change of table (Intel SDM volume
    // 3A, 4.10.4.1: changing it drops all); it is put back as it was.
    unsafe {
        let before = Cr4::read();
        if !before.contains(Cr4Flags::PAGE_GLOBAL) {
            return flush_user();
        }
        Cr4::write(before - Cr4Flags::PAGE_GLOBAL);
        Cr4::write(before);
    }
}

/// Removes everything but global pages from the TLB.
pub fn flush_user() {
    // SAFETY: writing back the root that is loaded changes no mapping.
    unsafe {
        asm!("mov {0}, cr3", "mov cr3, {0}", out(reg) _, options(nostack, preserves_flags));
    }
}
