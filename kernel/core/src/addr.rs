//! Physical and virtual addresses as types of their own, and page arithmetic.
//!
//! Invariant: a [`VirtAddr`] is always canonical and a [`PhysAddr`] always fits the 52 bits of a
//! page-table entry; code that has one need not check again.

use core::fmt;

/// Bytes in a page and in a frame.
pub const PAGE_SIZE: u64 = 4096;
/// Where the kernel image begins in virtual memory.
pub const KERNEL_IMAGE: u64 = 0xffff_ffff_8000_0000;
/// Bytes in a large page.
pub const LARGE_PAGE_SIZE: u64 = 2 * 1024 * 1024;
/// Bytes in a huge page.
pub const HUGE_PAGE_SIZE: u64 = 1024 * 1024 * 1024;
/// First address that is not a user address: the end of the lower canonical half.
pub const USER_END: u64 = 0x0000_8000_0000_0000;
/// Physical addresses have at most this many bits.
pub const PHYS_BITS: u32 = 52;

/// A physical address, below 2^52.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PhysAddr(u64);

impl PhysAddr {
    /// Makes an address; panics when it has more than [`PHYS_BITS`] bits, which no memory map has.
    #[inline]
    pub const fn new(address: u64) -> Self {
        assert!(address >> PHYS_BITS == 0, "physical address out of range");
        Self(address)
    }

    /// The same, `None` instead of a panic.
    #[inline]
    pub const fn try_new(address: u64) -> Option<Self> {
        if address >> PHYS_BITS == 0 {
            Some(Self(address))
        } else {
            None
        }
    }

    /// The address as a number.
    #[inline]
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// The address `bytes` further up.
    #[inline]
    pub const fn offset(self, bytes: u64) -> Self {
        Self::new(self.0 + bytes)
    }

    /// Whether the address is a multiple of `size`, a power of two.
    #[inline]
    pub const fn is_aligned(self, size: u64) -> bool {
        self.0 & (size - 1) == 0
    }

    /// The start of the frame the address lies in.
    #[inline]
    pub const fn frame_start(self) -> Self {
        Self(self.0 & !(PAGE_SIZE - 1))
    }

    /// Number of the frame the address lies in.
    #[inline]
    pub const fn frame_number(self) -> u64 {
        self.0 / PAGE_SIZE
    }
}

impl fmt::Debug for PhysAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "phys {:#x}", self.0)
    }
}

/// A canonical virtual address (48 bits, sign-extended).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct VirtAddr(u64);

impl VirtAddr {
    /// Makes an address; panics when it is not canonical. For addresses a program chose, use
    /// [`VirtAddr::try_new`].
    #[inline]
    pub const fn new(address: u64) -> Self {
        match Self::try_new(address) {
            Some(address) => address,
            None => panic!("virtual address is not canonical"),
        }
    }

    /// Makes an address, or `None` when it is not canonical.
    #[inline]
    pub const fn try_new(address: u64) -> Option<Self> {
        let top = address >> 47;
        if top == 0 || top == 0x1_ffff {
            Some(Self(address))
        } else {
            None
        }
    }

    /// The address as a number.
    #[inline]
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// The address `bytes` further up; panics when that leaves the canonical range.
    #[inline]
    pub const fn offset(self, bytes: u64) -> Self {
        Self::new(self.0 + bytes)
    }

    /// Whether the address is a multiple of `size`, a power of two.
    #[inline]
    pub const fn is_aligned(self, size: u64) -> bool {
        self.0 & (size - 1) == 0
    }

    /// The start of the page the address lies in.
    #[inline]
    pub const fn page_start(self) -> Self {
        Self(self.0 & !(PAGE_SIZE - 1))
    }

    /// Bytes from the start of the page.
    #[inline]
    pub const fn page_offset(self) -> u64 {
        self.0 & (PAGE_SIZE - 1)
    }

    /// Whether the address lies in the lower half, which belongs to programs.
    #[inline]
    pub const fn is_user(self) -> bool {
        self.0 < USER_END
    }

    /// Index into the table of `level` (4 = root, 1 = last).
    #[inline]
    pub const fn table_index(self, level: u8) -> u64 {
        (self.0 >> (12 + 9 * (level as u32 - 1))) & 511
    }
}

impl fmt::Debug for VirtAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "virt {:#x}", self.0)
    }
}

/// `value` rounded down to a multiple of the page size.
pub const fn page_down(value: u64) -> u64 {
    value & !(PAGE_SIZE - 1)
}

/// `value` rounded up to a multiple of the page size, `None` when that overflows.
pub const fn page_up(value: u64) -> Option<u64> {
    match value.checked_add(PAGE_SIZE - 1) {
        Some(value) => Some(page_down(value)),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_canonical_addresses_exist() {
        assert!(VirtAddr::try_new(0x7fff_ffff_ffff).is_some());
        assert!(VirtAddr::try_new(0x8000_0000_0000).is_none());
        assert!(VirtAddr::try_new(0xffff_7fff_ffff_ffff).is_none());
        assert!(VirtAddr::try_new(0xffff_8000_0000_0000).is_some());
        assert!(!VirtAddr::new(0xffff_8000_0000_0000).is_user());
        assert!(PhysAddr::try_new(1 << 52).is_none());
    }

    #[test]
    fn table_indices_follow_the_manual() {
        let address = VirtAddr::new(0xffff_ffff_8020_1fff);
        assert_eq!(address.table_index(4), 511);
        assert_eq!(address.table_index(3), 510);
        assert_eq!(address.table_index(2), 1);
        assert_eq!(address.table_index(1), 1);
        assert_eq!(page_up(u64::MAX), None);
        assert_eq!(page_up(4097), Some(8192));
    }
}
