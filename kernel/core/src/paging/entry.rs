//! One page-table entry: bits of the Intel SDM volume 3A, 4.5, and what Hearth keeps in the bits
//! that are left to software.
//!
//! Invariant: [`Protection`] has no value that is writable and executable, so no entry can be.

use super::PageSize;
use crate::addr::PhysAddr;

const PRESENT: u64 = 1 << 0;
const WRITABLE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const WRITE_THROUGH: u64 = 1 << 3;
const CACHE_DISABLE: u64 = 1 << 4;
const ACCESSED: u64 = 1 << 5;
const DIRTY: u64 = 1 << 6;
const LARGE: u64 = 1 << 7;
const GLOBAL: u64 = 1 << 8;
/// Software: the leaf holds a frame although it is not present ([`Protection::None`]).
const HELD: u64 = 1 << 9;
/// Software: the page was read ahead of its first use.
const AHEAD: u64 = 1 << 10;
/// Software: class of the page, three bits.
const CLASS_SHIFT: u32 = 52;
const CLASS_MASK: u64 = 7 << CLASS_SHIFT;
const NO_EXECUTE: u64 = 1 << 63;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// What may be done with a page. There is deliberately no writable and executable one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protection {
    /// Nothing, but the frame is kept.
    None,
    /// Read.
    Read,
    /// Read and write.
    ReadWrite,
    /// Read and execute.
    ReadExecute,
}

/// Where the contents of a user page came from; retention decides by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Class {
    /// Written by the program or by nobody: bss, heap, stack, data once it is written. Never
    /// retained.
    Private = 0,
    /// A read-only, not executable segment of the program file.
    FileRead = 1,
    /// An executable segment of the program file.
    FileExecute = 2,
    /// A writable segment of the program file, as the file has it: never mapped writable, the
    /// program writes to a copy.
    FileData = 3,
    /// An object of the node's store ([`crate::objects`]), whose frame is not the program's: never
    /// mapped writable, never given back with the mapping, never retained.
    Object = 4,
    /// A shared memory object of the program ([`crate::program`]), whose frame is the object's:
    /// never given back with the mapping, never retained.
    SharedMemory = 5,
}

/// Everything a leaf says beside its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// What may be done.
    pub protection: Protection,
    /// Reachable from ring 3.
    pub user: bool,
    /// Device registers: not cached.
    pub uncached: bool,
    /// Kept in the TLB over a change of table (kernel pages).
    pub global: bool,
    /// Origin of the contents.
    pub class: Class,
    /// Read ahead of its first use.
    pub ahead: bool,
}

impl Attributes {
    /// A page of the kernel.
    pub const fn kernel(protection: Protection) -> Self {
        Self {
            protection,
            user: false,
            uncached: false,
            global: true,
            class: Class::Private,
            ahead: false,
        }
    }

    /// Device registers for the kernel.
    pub const fn device() -> Self {
        let mut attributes = Self::kernel(Protection::ReadWrite);
        attributes.uncached = true;
        attributes
    }

    /// A page of a program.
    pub const fn user(protection: Protection, class: Class) -> Self {
        Self {
            protection,
            user: true,
            uncached: false,
            global: false,
            class,
            ahead: false,
        }
    }
}

/// An entry of a table at any level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry(u64);

impl Entry {
    /// An entry from its bits.
    #[inline]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The bits as the CPU reads them.
    #[inline]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// An entry that points to a table of the next level. Rights are decided by the leaves.
    pub const fn table(table: PhysAddr, user: bool) -> Self {
        let user = if user { USER } else { 0 };
        Self(table.as_u64() | PRESENT | WRITABLE | user)
    }

    /// A leaf.
    pub fn leaf(frame: PhysAddr, size: PageSize, attributes: Attributes) -> Self {
        let mut bits = frame.as_u64() | (attributes.class as u64) << CLASS_SHIFT;
        for (set, bit) in [
            (attributes.user, USER),
            (attributes.uncached, CACHE_DISABLE | WRITE_THROUGH),
            (attributes.global, GLOBAL),
            (attributes.ahead, AHEAD),
            (size != PageSize::Small, LARGE),
        ] {
            if set {
                bits |= bit;
            }
        }
        Self(bits).with_protection(attributes.protection)
    }

    /// The same leaf with another protection. Panics when a frame of an object would become
    /// writable.
    pub const fn with_protection(self, protection: Protection) -> Self {
        let class = (self.0 & CLASS_MASK) >> CLASS_SHIFT;
        let object = class == Class::Object as u64;
        assert!(
            !(object && matches!(protection, Protection::ReadWrite)),
            "a page of an object was to be writable"
        );
        // What may be written is the program's own from now on, or others' that see it.
        let own = match class == Class::SharedMemory as u64 {
            true => 0,
            false => CLASS_MASK,
        };
        let bits = self.0 & !(PRESENT | WRITABLE | NO_EXECUTE | HELD);
        Self(match protection {
            Protection::None => bits | HELD | NO_EXECUTE,
            Protection::Read => bits | PRESENT | NO_EXECUTE,
            Protection::ReadWrite => (bits | PRESENT | WRITABLE | NO_EXECUTE) & !own,
            Protection::ReadExecute => bits | PRESENT,
        })
    }

    /// The entry of the small page number `index` of this large one.
    pub fn part_of_large(self, index: u64) -> Self {
        let frame = self
            .frame(PageSize::Large)
            .offset(index * crate::addr::PAGE_SIZE);
        let noted = self.0 & (ACCESSED | DIRTY);
        Self(Self::leaf(frame, PageSize::Small, self.attributes()).0 | noted)
    }

    /// Whether the entry points to a table or holds a frame.
    #[inline]
    pub const fn is_used(self) -> bool {
        self.0 & (PRESENT | HELD) != 0
    }

    /// Whether the entry, of a table at `level`, is a leaf.
    #[inline]
    pub const fn is_leaf(self, level: u8) -> bool {
        level == 1 || self.0 & LARGE != 0
    }

    /// Table the entry points to.
    #[inline]
    pub const fn table_address(self) -> PhysAddr {
        PhysAddr::new(self.0 & ADDRESS)
    }

    /// Frame of a leaf.
    #[inline]
    pub const fn frame(self, size: PageSize) -> PhysAddr {
        PhysAddr::new(self.0 & ADDRESS & !(size.bytes() - 1))
    }

    /// Protection of a leaf.
    #[inline]
    pub const fn protection(self) -> Protection {
        match self.0 & (PRESENT | WRITABLE | NO_EXECUTE) {
            bits if bits & PRESENT == 0 => Protection::None,
            bits if bits & WRITABLE != 0 => Protection::ReadWrite,
            bits if bits & NO_EXECUTE == 0 => Protection::ReadExecute,
            _ => Protection::Read,
        }
    }

    /// Attributes of a leaf.
    #[inline]
    pub const fn attributes(self) -> Attributes {
        Attributes {
            protection: self.protection(),
            user: self.0 & USER != 0,
            uncached: self.0 & CACHE_DISABLE != 0,
            global: self.0 & GLOBAL != 0,
            class: match (self.0 & CLASS_MASK) >> CLASS_SHIFT {
                1 => Class::FileRead,
                2 => Class::FileExecute,
                3 => Class::FileData,
                4 => Class::Object,
                5 => Class::SharedMemory,
                _ => Class::Private,
            },
            ahead: self.0 & AHEAD != 0,
        }
    }

    /// The same entry after the CPU has used it.
    pub(super) const fn used(self, written: bool) -> Self {
        let dirty = if written { DIRTY } else { 0 };
        Self(self.0 | ACCESSED | dirty)
    }

    /// Whether the CPU has used the entry.
    #[inline]
    pub const fn accessed(self) -> bool {
        self.0 & ACCESSED != 0
    }

    /// Whether the CPU has written through the leaf.
    #[inline]
    pub const fn dirty(self) -> bool {
        self.0 & DIRTY != 0
    }
}
