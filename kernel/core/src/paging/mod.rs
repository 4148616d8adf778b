//! x86-64 four-level page tables, written against [`PhysMem`].
//!
//! [`PageTable`] is the root of one table; its methods take the memory and the [`TableSource`]
//! they work on. Leaves map 4 KiB, 2 MiB or 1 GiB and carry an [`entry::Attributes`].
//!
//! Neighbours: `kernel::mm` makes the kernel's own table and one per program, invalidates the TLB
//! after [`PageTable::unmap`], [`PageTable::protect`] and a failed [`PageTable::map`] and loads
//! CR3; [`crate::space`] says what a program's table should hold. [`crate::retention`] keeps a
//! program's table between launches: each leaf says by its [`entry::Class`] which ELF segment it
//! came from.
//!
//! Invariant: no entry is writable and executable; page 0 is never mapped; a user page never lies
//! in the upper half nor a kernel page in the lower; a table without entries is given back, but
//! the tables the root points to in the upper half stay, because every program's root shares them.
//! A leaf that is there is changed in one step: cores note in it that they use the page.

pub mod entry;
mod walk;

use crate::addr::{HUGE_PAGE_SIZE, LARGE_PAGE_SIZE, PAGE_SIZE, PhysAddr, VirtAddr};
use crate::phys::PhysMem;
use entry::{Attributes, Entry, Protection};
pub use walk::Fate;

/// Entries in a table.
pub const ENTRIES: u64 = 512;
/// First root entry of the upper (kernel) half.
pub const KERNEL_FIRST: u64 = 256;

/// Where page tables get their frames.
pub trait TableSource<M: PhysMem> {
    /// A zero-filled frame for a table, `None` when there is none.
    fn alloc_table(&mut self, mem: &mut M) -> Option<PhysAddr>;
    /// Takes back the frame of a table that holds no entries any more.
    fn free_table(&mut self, table: PhysAddr);
}

impl<M: PhysMem> TableSource<M> for crate::frames::FrameAllocator {
    fn alloc_table(&mut self, mem: &mut M) -> Option<PhysAddr> {
        let table = self.alloc(mem, crate::frames::Owner::KERNEL)?;
        Some(table.into_entry())
    }

    fn free_table(&mut self, table: PhysAddr) {
        self.free(crate::frames::Frame::from_entry(table));
    }
}

/// Size of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageSize {
    /// 4 KiB.
    Small,
    /// 2 MiB.
    Large,
    /// 1 GiB; the kernel's map of all memory only, where the processor has it.
    Huge,
}

impl PageSize {
    /// Size in bytes.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Small => PAGE_SIZE,
            Self::Large => LARGE_PAGE_SIZE,
            Self::Huge => HUGE_PAGE_SIZE,
        }
    }

    const fn level(self) -> u8 {
        match self {
            Self::Small => 1,
            Self::Large => 2,
            Self::Huge => 3,
        }
    }
}

/// Why a page could not be mapped or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapError {
    /// The page or the frame is not at a multiple of the page size.
    Misaligned,
    /// Page 0 is never mapped.
    NullPage,
    /// A user page in the upper half, or a kernel page in the lower.
    WrongHalf,
    /// Something is mapped there already (also by a page of another size).
    AlreadyMapped,
    /// Nothing is mapped there.
    NotMapped,
    /// No frame left for a table.
    OutOfFrames,
}

/// One mapped page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Start of the page.
    pub page: VirtAddr,
    /// Start of the frame (or of the run of frames of a large page).
    pub frame: PhysAddr,
    /// Size of the page.
    pub size: PageSize,
    /// Protection and origin.
    pub attributes: Attributes,
    /// Whether the CPU has used the entry.
    pub accessed: bool,
    /// Whether the CPU has written through the entry.
    pub dirty: bool,
}

/// A page table, named by the frame of its root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageTable {
    root: PhysAddr,
}

impl PageTable {
    /// An empty table.
    pub fn new<M: PhysMem>(
        mem: &mut M,
        tables: &mut impl TableSource<M>,
    ) -> Result<Self, MapError> {
        let root = tables.alloc_table(mem).ok_or(MapError::OutOfFrames)?;
        Ok(Self { root })
    }

    /// The table whose root lies at `root`, as read from CR3.
    pub fn from_root(root: PhysAddr) -> Self {
        assert!(root.is_aligned(PAGE_SIZE));
        Self { root }
    }

    /// Frame of the root, for CR3.
    pub fn root(self) -> PhysAddr {
        self.root
    }

    /// Makes a table for every root entry of the upper half, so that programs' tables made by
    /// [`PageTable::share_kernel_half`] see all later kernel mappings. Costs one frame per entry
    /// of `range` (root indices, 256 to 511) that has none yet.
    pub fn prepare_kernel_half<M: PhysMem>(
        self,
        mem: &mut M,
        tables: &mut impl TableSource<M>,
        indices: &[u64],
    ) -> Result<(), MapError> {
        for &index in indices {
            assert!(
                (KERNEL_FIRST..ENTRIES).contains(&index),
                "not a kernel half index"
            );
            let at = self.root.offset(index * 8);
            if !Entry::from_bits(mem.read_u64(at)).is_used() {
                let table = tables.alloc_table(mem).ok_or(MapError::OutOfFrames)?;
                mem.write_u64(at, Entry::table(table, false).bits());
            }
        }
        Ok(())
    }

    /// Copies the root entries of the upper half from the kernel's own table.
    pub fn share_kernel_half(self, mem: &mut impl PhysMem, kernel: PageTable) {
        for index in KERNEL_FIRST..ENTRIES {
            let entry = mem.read_u64(kernel.root.offset(index * 8));
            mem.write_u64(self.root.offset(index * 8), entry);
        }
    }

    /// Maps the page at `page` to `frame`. After `OutOfFrames` the caller invalidates `page` as
    /// after [`PageTable::unmap`]: tables made on the way were given back again.
    pub fn map<M: PhysMem>(
        self,
        mem: &mut M,
        tables: &mut impl TableSource<M>,
        page: VirtAddr,
        frame: PhysAddr,
        size: PageSize,
        attributes: Attributes,
    ) -> Result<(), MapError> {
        if !page.is_aligned(size.bytes()) || !frame.is_aligned(size.bytes()) {
            return Err(MapError::Misaligned);
        }
        if page.as_u64() == 0 {
            return Err(MapError::NullPage);
        }
        if page.is_user() != attributes.user {
            return Err(MapError::WrongHalf);
        }
        let at = self.entry_for_map(mem, tables, page, size.level())?;
        if Entry::from_bits(mem.read_u64(at)).is_used() {
            return Err(MapError::AlreadyMapped);
        }
        mem.write_u64(at, Entry::leaf(frame, size, attributes).bits());
        Ok(())
    }

    /// Removes the page that holds `address` and gives back tables that became empty. The caller
    /// always invalidates the TLB and decides what happens to the frame.
    pub fn unmap<M: PhysMem>(
        self,
        mem: &mut M,
        tables: &mut impl TableSource<M>,
        address: VirtAddr,
    ) -> Result<Leaf, MapError> {
        let leaf = self.translate(mem, address).ok_or(MapError::NotMapped)?;
        let end = leaf.page.as_u64() + (leaf.size.bytes() - 1);
        let _ = self.unmap_range(mem, tables, leaf.page, VirtAddr::new(end), |_, _| ());
        Ok(leaf)
    }

    /// Changes the protection of the page that holds `address`. A page that becomes writable
    /// loses its class: it no longer holds what the file holds.
    pub fn protect(
        self,
        mem: &mut impl PhysMem,
        address: VirtAddr,
        protection: Protection,
    ) -> Result<Leaf, MapError> {
        let (at, _) = self.find(mem, address).ok_or(MapError::NotMapped)?;
        set_protection(mem, at, protection);
        self.translate(mem, address).ok_or(MapError::NotMapped)
    }

    /// Maps the small page that holds `address` to another frame; returns what was there. The
    /// caller invalidates the page and decides what happens to the old frame.
    pub fn replace(
        self,
        mem: &mut impl PhysMem,
        address: VirtAddr,
        frame: PhysAddr,
        attributes: Attributes,
    ) -> Result<Leaf, MapError> {
        let (at, size) = self.find(mem, address).ok_or(MapError::NotMapped)?;
        if size != PageSize::Small || !frame.is_aligned(PAGE_SIZE) {
            return Err(MapError::Misaligned);
        }
        let entry = Entry::leaf(frame, size, attributes);
        let old = mem.change_u64(at, |_| entry.bits());
        Ok(leaf_of(Entry::from_bits(old), address, size))
    }

    /// What the CPU does to the entry of a page it uses: for a use that goes by the physical
    /// address.
    pub(crate) fn note_use(self, mem: &mut impl PhysMem, address: VirtAddr, written: bool) {
        let (at, _) = self.find(mem, address).expect("what is used is mapped");
        mem.change_u64(at, |bits| Entry::from_bits(bits).used(written).bits());
    }

    /// Splits the large page at `page` into small ones that say the same. The caller invalidates
    /// it.
    pub fn demote<M: PhysMem>(
        self,
        mem: &mut M,
        tables: &mut impl TableSource<M>,
        page: VirtAddr,
    ) -> Result<(), MapError> {
        assert!(page.is_user(), "{page:?} is the kernel's");
        let (at, size) = self.find(mem, page).ok_or(MapError::NotMapped)?;
        if size != PageSize::Large {
            return Err(MapError::Misaligned);
        }
        let table = tables.alloc_table(mem).ok_or(MapError::OutOfFrames)?;
        let large = Entry::from_bits(mem.read_u64(at));
        for index in 0..ENTRIES {
            let small = large.part_of_large(index);
            mem.write_u64(table.offset(index * 8), small.bits());
        }
        let entry = Entry::table(table, page.is_user());
        let last = mem.change_u64(at, |_| entry.bits());
        if last != large.bits() {
            // Another core has used the page meanwhile, and has said so of the large one only.
            let last = Entry::from_bits(last);
            for index in 0..ENTRIES {
                let used = last.part_of_large(index).bits();
                mem.change_u64(table.offset(index * 8), |bits| bits | used);
            }
        }
        Ok(())
    }

    /// The page that holds `address`, also when its protection is [`Protection::None`].
    pub fn translate(self, mem: &impl PhysMem, address: VirtAddr) -> Option<Leaf> {
        let (at, size) = self.find(mem, address)?;
        Some(leaf_of(Entry::from_bits(mem.read_u64(at)), address, size))
    }

    /// Physical address behind `address`, and the protection of its page.
    pub fn reach(self, mem: &impl PhysMem, address: VirtAddr) -> Option<(PhysAddr, Protection)> {
        let (at, size) = self.find(mem, address)?;
        let entry = Entry::from_bits(mem.read_u64(at));
        let behind = address.as_u64() & (size.bytes() - 1);
        Some((entry.frame(size).offset(behind), entry.protection()))
    }

    /// Physical address behind `address`, whatever its protection.
    pub fn physical(self, mem: &impl PhysMem, address: VirtAddr) -> Option<PhysAddr> {
        Some(self.reach(mem, address)?.0)
    }
}

/// Gives a leaf entry another protection, whatever other cores note in it at the same time.
fn set_protection(mem: &mut impl PhysMem, at: PhysAddr, protection: Protection) {
    let change = |bits| Entry::from_bits(bits).with_protection(protection).bits();
    mem.change_u64(at, change);
}

fn leaf_of(entry: Entry, address: VirtAddr, size: PageSize) -> Leaf {
    Leaf {
        page: VirtAddr::new(address.as_u64() & !(size.bytes() - 1)),
        frame: entry.frame(size),
        size,
        attributes: entry.attributes(),
        accessed: entry.accessed(),
        dirty: entry.dirty(),
    }
}

#[cfg(test)]
mod tests;
