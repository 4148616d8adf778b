//! One program's address space: page tables whose upper half is the kernel's.
//!
//! Neighbours: `kernel_core::paging` does the work; `process` decides what is mapped where.
//!
//! Invariant: only frames that the allocator gave to a program are mapped, only in the lower half;
//! a change of the active space is flushed from the TLB before the call returns.

use kernel_core::addr::{USER_END, VirtAddr};
use kernel_core::frames::State;
use kernel_core::paging::entry::{Attributes, Protection};
use kernel_core::paging::{Leaf, MapError, PageSize, PageTable};

use super::{DirectMap, PhysAddr, frames, kernel_table, physical};

/// Above this many pages a range is flushed as a whole: reloading CR3 is then cheaper.
const FLUSH_SINGLY_MAX: u64 = 32;

/// Page tables of a program.
#[derive(Debug)]
pub struct AddressSpace {
    table: PageTable,
}

impl AddressSpace {
    /// An empty one. Fails with [`MapError::OutOfFrames`].
    pub fn new() -> Result<Self, MapError> {
        let table = PageTable::new(&mut DirectMap, &mut *frames())?;
        table.share_kernel_half(&mut DirectMap, kernel_table());
        Ok(Self { table })
    }

    /// Makes it the one that ring 3 sees.
    pub fn activate(&self) {
        physical::load_root(self.table.root());
    }

    /// The tables, for code in `kernel_core` that walks them.
    pub fn table(&self) -> PageTable {
        self.table
    }

    /// Maps a frame that belongs to a program; panics for any other frame.
    pub fn map(
        &mut self,
        page: VirtAddr,
        frame: PhysAddr,
        attributes: Attributes,
    ) -> Result<(), MapError> {
        let mut frames = frames();
        let (state, _) = frames.state(frame);
        assert!(
            state == State::User && attributes.user,
            "{frame:?} is {state:?}, mapped for a program"
        );
        let size = PageSize::Small;
        self.table
            .map(&mut DirectMap, &mut *frames, page, frame, size, attributes)
        // Nothing to flush: what is not present is not in the TLB.
    }

    /// Removes the page that holds `address`; the caller decides what happens to the frame.
    pub fn unmap(&mut self, address: VirtAddr) -> Result<Leaf, MapError> {
        if !address.is_user() {
            return Err(MapError::WrongHalf);
        }
        let leaf = self.table.unmap(&mut DirectMap, &mut *frames(), address)?;
        physical::flush(leaf.page);
        Ok(leaf)
    }

    /// Removes all pages from `first` to the page that holds `last`; `removed` is called for each
    /// with the frame allocator locked. Both are user addresses.
    pub fn unmap_range(
        &mut self,
        first: VirtAddr,
        last: VirtAddr,
        mut removed: impl FnMut(Leaf),
    ) -> Result<(), MapError> {
        if !first.is_user() || !last.is_user() {
            return Err(MapError::WrongHalf);
        }
        self.table
            .unmap_range(&mut DirectMap, &mut *frames(), first, last, |_, leaf| {
                removed(leaf)
            });
        self.flush_range(first, last);
        Ok(())
    }

    /// Changes the protection of the page that holds `address`.
    pub fn protect(&mut self, address: VirtAddr, protection: Protection) -> Result<Leaf, MapError> {
        if !address.is_user() {
            return Err(MapError::WrongHalf);
        }
        let leaf = self.table.protect(&mut DirectMap, address, protection)?;
        physical::flush(leaf.page);
        Ok(leaf)
    }

    /// The page that holds `address`.
    pub fn translate(&self, address: VirtAddr) -> Option<Leaf> {
        if !address.is_user() {
            return None;
        }
        self.table.translate(&DirectMap, address)
    }

    /// Calls `visit` for every page between two user addresses, in rising order.
    pub fn for_each(&self, first: VirtAddr, last: VirtAddr, visit: impl FnMut(Leaf)) {
        self.table.for_each(&DirectMap, first, last, visit);
    }

    /// Gives back everything: every mapped frame goes back to the allocator (which scrubs it
    /// before anybody else gets it), then the tables. The kernel's tables are active afterwards.
    pub fn destroy(self) {
        super::activate_kernel_table();
        let (first, last) = (VirtAddr::new(0), VirtAddr::new(USER_END - 1));
        let mut locked = frames();
        self.table
            .unmap_range(&mut DirectMap, &mut *locked, first, last, |frames, leaf| {
                frames.free(leaf.frame);
            });
        self.table.destroy(&mut DirectMap, &mut *locked);
    }

    fn flush_range(&self, first: VirtAddr, last: VirtAddr) {
        let from = first.page_start().as_u64();
        let pages = (last.as_u64().saturating_sub(from)) / kernel_core::addr::PAGE_SIZE + 1;
        if pages > FLUSH_SINGLY_MAX {
            physical::flush_user();
            return;
        }
        for index in 0..pages {
            physical::flush(VirtAddr::new(from + index * kernel_core::addr::PAGE_SIZE));
        }
    }
}
