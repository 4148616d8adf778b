//! Pages of a program's file that its page table holds: what a node can give to others that lack
//! them, while the program runs and after.
//!
//! Neighbours: [`super::Policy`] decides by the same marks what stays of a program; `kernel::agent`
//! serves from here what a broadcast asks for.
//!
//! Invariant: a frame is named only if nobody can have written to it since it was filled from the
//! file, and if it holds all that the file has in that page.

use super::Retained;
use crate::addr::{PAGE_SIZE, PhysAddr, VirtAddr};
use crate::loader::{Image, Segment};
use crate::paging::PageTable;
use crate::paging::entry::{Class, Protection};
use crate::phys::PhysMem;

/// A program's table and what it is made from: enough to find pages of the file in it.
#[derive(Clone, Debug)]
pub struct Resident {
    image: Image,
    table: PageTable,
}

impl Resident {
    /// Over the table of a program. To be used only as long as that lives.
    pub fn new(image: &Image, table: PageTable) -> Self {
        Self {
            image: image.clone(),
            table,
        }
    }

    /// The frame that holds page number `page` of the file, as the file has it; `None` when it is
    /// not mapped, may have been written, or only a part of it is there.
    pub fn page(&self, mem: &impl PhysMem, page: u64) -> Option<PhysAddr> {
        find(mem, &self.image, self.table, page)
    }

    /// The frame of a page of the program's address space, as the file has it; `None` when it is
    /// not there, may have been written, or is of no segment that is kept.
    pub fn page_at(&self, mem: &impl PhysMem, page: VirtAddr) -> Option<PhysAddr> {
        let segment = self.image.segment_at(page.as_u64())?;
        frame_of(mem, self.table, segment, page)
    }
}

impl Retained {
    /// Its pages for others, while it is in no table of warm programs.
    pub fn resident(&self) -> Resident {
        Resident::new(&self.image, self.table)
    }

    /// The frame that holds page number `page` of the file; `None` when it is not held, or only in
    /// part.
    pub fn page_of_file(&self, mem: &impl PhysMem, page: u64) -> Option<PhysAddr> {
        find(mem, &self.image, self.table, page)
    }
}

fn find(mem: &impl PhysMem, image: &Image, table: PageTable, page: u64) -> Option<PhysAddr> {
    let offset = page.checked_mul(PAGE_SIZE)?;
    let bytes = image.file_bytes.checked_sub(offset)?.min(PAGE_SIZE);
    if bytes == 0 {
        return None;
    }
    image.segments.iter().find_map(|segment| {
        let at = segment.start + offset.checked_sub(segment.offset)?;
        if at >= segment.file_end || segment.file_end - at < bytes {
            return None;
        }
        frame_of(mem, table, segment, VirtAddr::new(at))
    })
}

/// The frame of a page of a segment that is mapped and was not written.
fn frame_of(
    mem: &impl PhysMem,
    table: PageTable,
    segment: &Segment,
    page: VirtAddr,
) -> Option<PhysAddr> {
    let leaf = table.translate(mem, page)?;
    let written = leaf.dirty || leaf.attributes.protection == Protection::ReadWrite;
    let of_file = leaf.attributes.class == segment.class && segment.class != Class::Private;
    (of_file && !written).then(|| leaf.frame.offset(page.as_u64() - leaf.page.as_u64()))
}
