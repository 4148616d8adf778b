//! A warm program: its table between two launches.

use crate::addr::{PAGE_SIZE, PhysAddr, VirtAddr};
use crate::frames::Owner;
use crate::loader::Image;
use crate::pagehash::{PAGE_BYTES, PageHashes};
use crate::paging::entry::Class;
use crate::paging::{Fate, Leaf, PageTable};
use crate::phys::PhysMem;
use crate::program::{Machine, Tails};
use crate::retention::{ProgramId, Range, frames_of};

/// A page of a warm program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptPage {
    /// Where the program has it.
    pub page: VirtAddr,
    /// Its frame.
    pub frame: PhysAddr,
    /// Offset in the program's file, a multiple of the page size.
    pub offset: u64,
    /// Bytes that come from the file, 1 to 4096.
    pub bytes: u64,
    /// The segment it comes from.
    pub class: Class,
}

impl KeptPage {
    /// Number of the page in the file: its entry in the page-hash list.
    pub const fn index(&self) -> u64 {
        self.offset / PAGE_SIZE
    }
}

/// A program's table between two launches. It is ready to run on; nothing in it is writable.
///
/// Not to be dropped, which would lose its frames: it goes back to the
/// [`WarmTable`](super::WarmTable), to a launch, or to [`Retained::discard`].
#[derive(Debug)]
#[must_use = "its frames would be lost"]
pub struct Retained {
    pub(crate) program: ProgramId,
    pub(crate) image: Image,
    pub(crate) table: PageTable,
    pub(crate) owner: Owner,
    pub(crate) hashes: Option<PageHashes>,
    pub(crate) tails: Tails,
    pub(crate) code: u64,
    pub(crate) readonly: u64,
    pub(crate) data: u64,
    /// Frames of the page table.
    pub(crate) tables: u64,
}

impl Retained {
    /// Which program.
    pub fn program(&self) -> &ProgramId {
        &self.program
    }

    /// Its headers, so that a launch need not read them.
    pub fn image(&self) -> &Image {
        &self.image
    }

    /// Whom its frames belong to.
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// Pages held.
    pub fn pages(&self) -> u64 {
        self.code + self.readonly + self.data
    }

    /// The page table, for tests.
    #[cfg(test)]
    pub(crate) fn table(&self) -> PageTable {
        self.table
    }

    /// Pages held of segments of one class.
    pub fn pages_of(&self, class: Class) -> u64 {
        match class {
            Class::Private | Class::Object | Class::SharedMemory => 0,
            Class::FileExecute => self.code,
            Class::FileRead => self.readonly,
            Class::FileData => self.data,
        }
    }

    /// Frames of the page table.
    pub fn tables(&self) -> u64 {
        self.tables
    }

    /// The page-hash list, if it was needed before.
    pub fn hashes(&self) -> Option<&PageHashes> {
        self.hashes.as_ref()
    }

    /// Keeps the page-hash list with the pages.
    pub fn set_hashes(&mut self, hashes: PageHashes) {
        self.hashes = Some(hashes);
    }

    /// Page number `index` of those held, in rising order. Walks the table up to it.
    pub fn page(&self, mem: &impl PhysMem, index: u64) -> Option<KeptPage> {
        let (mut before, mut found) = (0, None);
        let (first, last) = self.range();
        self.table.visit_while(mem, first, last, |leaf| {
            if index == before {
                found = Some(self.kept(&leaf));
            }
            before += 1;
            found.is_none()
        });
        found
    }

    /// Calls `visit` for every page, in rising order.
    pub fn for_each_page(&self, mem: &impl PhysMem, mut visit: impl FnMut(KeptPage)) {
        let (first, last) = self.range();
        self.table
            .for_each(mem, first, last, |leaf| visit(self.kept(&leaf)));
    }

    /// All that is retained lies in the image.
    fn range(&self) -> Range {
        let start = self.image.segments.first().map_or(0, |first| first.start);
        let end = self.image.end().max(start + 1);
        (VirtAddr::new(start), VirtAddr::new(end - 1))
    }

    /// The page of a leaf; large ones are never retained.
    fn kept(&self, leaf: &Leaf) -> KeptPage {
        let (page, frame) = (leaf.page, leaf.frame);
        let at = page.as_u64();
        let segment = self.image.segment_at(at);
        let segment = segment.expect("a retained page lies in a segment");
        let offset = segment.offset + (at - segment.start);
        KeptPage {
            page,
            frame,
            offset,
            bytes: (segment.file_end - at).min(PAGE_SIZE),
            class: leaf.attributes.class,
        }
    }

    /// Copies what the page's entry in the page-hash list covers to `out`; returns how many bytes.
    /// Where a writable segment ends inside a page, what follows in the file was kept beside the
    /// page; `None` when there was no memory for it, and the page cannot be checked.
    pub fn contents(
        &self,
        mem: &impl PhysMem,
        page: &KeptPage,
        out: &mut [u8; PAGE_BYTES],
    ) -> Option<usize> {
        let of_file = (self.image.file_bytes - page.offset).min(PAGE_SIZE) as usize;
        let (bytes, rest) = out[..of_file].split_at_mut(page.bytes as usize);
        mem.read(page.frame, bytes);
        if !rest.is_empty() {
            let tail = self.tails.get(page.offset);
            rest.copy_from_slice(tail.filter(|tail| tail.len() == rest.len())?);
        }
        Some(of_file)
    }

    /// Discards the page at `page`; returns how many were discarded, 0 when it is not held. The
    /// frame is dirty until scrubbed.
    pub fn discard_page<M: Machine>(&mut self, machine: &mut M, page: VirtAddr) -> u64 {
        let gone = machine.with(|mem, frames| {
            let leaf = self.table.translate(mem, page)?;
            // Not active: the CPU has forgotten the table.
            let before = frames.usage().kernel;
            self.table.unmap(mem, frames, page).ok()?;
            self.tables -= before - frames.usage().kernel;
            frames_of(&leaf).for_each(|frame| frames.discard(frame));
            Some(leaf)
        });
        let Some(leaf) = gone else { return 0 };
        match leaf.attributes.class {
            Class::FileExecute => self.code -= 1,
            Class::FileRead => self.readonly -= 1,
            Class::FileData => self.data -= 1,
            Class::Private | Class::Object | Class::SharedMemory => {
                unreachable!("a page of no segment was retained")
            }
        }
        1
    }

    /// Discards pages that `keeps` does not want.
    pub(crate) fn narrow<M: Machine>(&mut self, machine: &mut M, keeps: impl Fn(Class) -> bool) {
        let range = self.range();
        machine.with(|mem, frames| {
            let before = frames.usage().kernel;
            self.table.classify(mem, frames, range, |frames, leaf| {
                if keeps(leaf.attributes.class) {
                    return Fate::Keep;
                }
                frames_of(&leaf).for_each(|frame| frames.discard(frame));
                Fate::Remove
            });
            self.tables -= before - frames.usage().kernel;
        });
        for (class, pages) in [
            (Class::FileExecute, &mut self.code),
            (Class::FileRead, &mut self.readonly),
            (Class::FileData, &mut self.data),
        ] {
            if !keeps(class) {
                *pages = 0;
            }
        }
    }

    /// Gives back every frame and the table; they are dirty until scrubbed. Returns the pages.
    pub fn discard<M: Machine>(self, machine: &mut M) -> u64 {
        let range = self.range();
        machine.with(|mem, frames| {
            self.table.classify(mem, frames, range, |frames, leaf| {
                frames_of(&leaf).for_each(|frame| frames.discard(frame));
                Fate::Remove
            });
            self.table.destroy(mem, frames);
        });
        self.pages()
    }
}
