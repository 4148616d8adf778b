//! Which frame holds which page of an object, as a table in frames of its own: however large an
//! object is, its list of frames takes nothing from the kernel's heap.
//!
//! Invariant: every entry is zero (no frame) or the address of a frame of this object; the frames
//! of the table itself are the kernel's.

use crate::addr::{PAGE_SIZE, PhysAddr};
use crate::frames::{Frame, FrameAllocator, Owner};
use crate::phys::PhysMem;

/// Entries in a frame.
const ENTRIES: u64 = PAGE_SIZE / 8;
/// Most pages of an object, with its lists: 1 GiB.
pub(super) const PAGES_MAX: u64 = ENTRIES * ENTRIES;

/// Page number to frame. To be used only while the object is held ([`super::InUse`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameIndex {
    /// With at most [`ENTRIES`] pages the table itself, else a table of tables.
    root: PhysAddr,
    pages: u64,
}

impl FrameIndex {
    /// The index of no page.
    pub const EMPTY: Self = Self {
        root: PhysAddr::new(0),
        pages: 0,
    };

    /// An index without a frame; `None` when there is no frame for the table.
    pub(super) fn new(
        mem: &mut impl PhysMem,
        frames: &mut FrameAllocator,
        pages: u64,
    ) -> Option<Self> {
        assert!(pages <= PAGES_MAX, "no index for {pages} pages");
        let root = frames.alloc(mem, Owner::KERNEL)?.into_entry();
        Some(Self { root, pages })
    }

    /// Frames that the table of so many pages takes at most.
    pub(super) const fn tables(pages: u64) -> u64 {
        match pages {
            0..=ENTRIES => 1,
            _ => 1 + pages.div_ceil(ENTRIES),
        }
    }

    /// The frame of a page; `None` when the page is not there, or there is no such page.
    pub fn frame(&self, mem: &impl PhysMem, page: u64) -> Option<PhysAddr> {
        address(mem.read_u64(self.entry(mem, page)?))
    }

    /// Puts in the frame of a page that has none; gives it back when there is none for a table.
    pub(super) fn put(
        &self,
        mem: &mut impl PhysMem,
        frames: &mut FrameAllocator,
        page: u64,
        frame: Frame,
    ) -> Result<PhysAddr, Frame> {
        assert!(page < self.pages, "no page {page}");
        if self.pages > ENTRIES && self.entry(mem, page).is_none() {
            let Some(table) = frames.alloc(mem, Owner::KERNEL) else {
                return Err(frame);
            };
            let table = table.into_entry();
            mem.write_u64(self.root.offset(page / ENTRIES * 8), table.as_u64());
        }
        let entry = self.entry(mem, page).expect("the table is there");
        assert_eq!(mem.read_u64(entry), 0, "page {page} has a frame");
        let frame = frame.into_entry();
        mem.write_u64(entry, frame.as_u64());
        Ok(frame)
    }

    /// Takes the frame of a page out.
    pub(super) fn take(&self, mem: &mut impl PhysMem, page: u64) -> Option<Frame> {
        let entry = self.entry(mem, page)?;
        let frame = address(mem.read_u64(entry))?;
        mem.write_u64(entry, 0);
        Some(Frame::from_entry(frame))
    }

    /// Gives all frames back, and those of the table; returns how many pages had one.
    pub(super) fn free(self, mem: &mut impl PhysMem, frames: &mut FrameAllocator) -> u64 {
        let mut freed = 0;
        for page in 0..self.pages {
            if let Some(frame) = self.frame(mem, page) {
                frames.free(Frame::from_entry(frame));
                freed += 1;
            }
        }
        if self.pages > ENTRIES {
            for index in 0..ENTRIES {
                if let Some(table) = address(mem.read_u64(self.root.offset(index * 8))) {
                    frames.free(Frame::from_entry(table));
                }
            }
        }
        frames.free(Frame::from_entry(self.root));
        freed
    }

    /// Where the entry of a page is; `None` when its table is not there, or there is no such page.
    fn entry(&self, mem: &impl PhysMem, page: u64) -> Option<PhysAddr> {
        if page >= self.pages {
            return None;
        }
        let table = match self.pages <= ENTRIES {
            true => self.root,
            false => address(mem.read_u64(self.root.offset(page / ENTRIES * 8)))?,
        };
        Some(table.offset(page % ENTRIES * 8))
    }
}

/// Frame 0 is never given out.
const fn address(entry: u64) -> Option<PhysAddr> {
    match entry {
        0 => None,
        entry => Some(PhysAddr::new(entry)),
    }
}
