//! Pages of the program file that a broadcast has brought: from the store of objects into place.
//!
//! A frame that holds a whole page of one segment moves: it is the program's from then on, and is
//! kept with its pages when the program ends, so that nothing is in memory twice. Where that cannot
//! be (a page of the file that two segments share, the last page of a writable segment) the page is
//! copied.
//!
//! What another rank of the program has on this node is copied, too ([`Memory::copy_pages`]).
//!
//! Neighbours: [`crate::objects`] has the pages, `kernel::process` asks here before it asks
//! control.
//!
//! Invariant: a moved frame keeps the contents that its block's hash vouches for, and is mapped
//! like one that was fetched: writable never.

use super::{Fetch, Machine, Memory};
use crate::addr::{PAGE_SIZE, PhysAddr, VirtAddr};
use crate::fault::{Cause, FilePage};
use crate::loader::Segment;
use crate::objects::{ObjectId, Objects};
use crate::paging::entry::{Attributes, Class, Protection};
use crate::phys::PhysMem;

/// A page on the stack.
type Contents = [u8; PAGE_SIZE as usize];

impl Memory {
    /// Puts those pages of a fetch into place that the store has of the program, and ends the
    /// fetch: what is missing is asked for when it is touched. Returns whether the first page is in
    /// place.
    pub fn adopt<M: Machine>(
        &mut self,
        machine: &mut M,
        fetch: &Fetch,
        objects: &mut Objects,
    ) -> Result<bool, Cause> {
        self.ahead.arrived(fetch.page.as_u64());
        let id = ObjectId(self.program.id.0);
        let mut in_place = false;
        for index in 0..fetch.pages {
            let page = fetch.page.offset(index * PAGE_SIZE);
            let first = index == 0;
            let there = self.is_here(machine.mem(), page);
            let Some(file) = self.file_page(page).filter(|_| !there) else {
                in_place |= first && there;
                continue;
            };
            let number = file.offset / PAGE_SIZE;
            let Some(source) = objects.page(machine.mem(), &id, number) else {
                continue;
            };
            let waited_for = first && fetch.demand;
            match self.adopt_page(machine, file, source, objects, fetch.demand) {
                true => in_place |= first,
                // Only the page that is waited for must be had.
                false if waited_for => return Err(Cause::OutOfMemory),
                false => break,
            }
            if file.attributes.class == Class::FileData && waited_for && fetch.write {
                self.copy_pristine(machine, page)?;
            }
        }
        Ok(in_place)
    }

    /// Puts copies of those pages of a fetch into place that another rank of the program has on
    /// this node, as `find` says, and ends the fetch: what is missing is asked for when it is
    /// touched. Returns whether the first page is in place.
    pub fn copy_pages<M: Machine>(
        &mut self,
        machine: &mut M,
        fetch: &Fetch,
        find: impl Fn(VirtAddr) -> Option<PhysAddr>,
    ) -> Result<bool, Cause> {
        self.ahead.arrived(fetch.page.as_u64());
        let mut in_place = false;
        for index in 0..fetch.pages {
            let page = fetch.page.offset(index * PAGE_SIZE);
            let first = index == 0;
            let there = self.is_here(machine.mem(), page);
            let Some(file) = self.file_page(page).filter(|_| !there) else {
                in_place |= first && there;
                continue;
            };
            let Some(source) = find(page) else {
                continue;
            };
            let mut attributes = file.attributes;
            if !fetch.demand {
                attributes.protection = Protection::None;
            }
            let waited_for = first && fetch.demand;
            let fill = |mem: &mut M::Mem, frame| mem.copy_frame(source, frame);
            match self.map_frame(machine, page, attributes, fill) {
                true => {}
                // Only the page that is waited for must be had.
                false if waited_for => return Err(Cause::OutOfMemory),
                false => break,
            }
            in_place |= first;
            if file.attributes.class == Class::FileData && waited_for && fetch.write {
                self.copy_pristine(machine, page)?;
            }
        }
        Ok(in_place)
    }

    /// Puts one page into place whose contents are in `source`; `false` when memory is used up.
    fn adopt_page<M: Machine>(
        &mut self,
        machine: &mut M,
        file: FilePage,
        source: PhysAddr,
        objects: &mut Objects,
        demand: bool,
    ) -> bool {
        let id = ObjectId(self.program.id.0);
        let number = file.offset / PAGE_SIZE;
        let mut attributes = file.attributes;
        if !demand {
            attributes.protection = Protection::None;
        }
        let moves = self.is_whole(&file) && self.is_of_one_segment(file.offset);
        let room = self.committed() < self.pages_max;
        // Of an object that is kept as a file no page can be taken.
        let moved = (moves && room).then(|| objects.take(machine.mem(), &id, number));
        let placed = match moved.flatten() {
            Some(frame) => {
                let owner = self.owner;
                machine.with(|_, frames| frames.adopt(&frame, owner));
                self.map_own(machine, file.page, frame, attributes)
            }
            None => self.adopt_copy(machine, &file, source, attributes),
        };
        if !placed {
            return false;
        }
        self.counts.cast += 1;
        if attributes.class == Class::Private {
            self.discarded += 1;
        }
        true
    }

    /// Maps a new frame with what of the page belongs to its segment.
    fn adopt_copy<M: Machine>(
        &mut self,
        machine: &mut M,
        file: &FilePage,
        source: PhysAddr,
        attributes: Attributes,
    ) -> bool {
        let mut contents: Contents = [0; PAGE_SIZE as usize];
        let (data, tail) =
            contents[..self.bytes_in_file(file) as usize].split_at_mut(file.bytes as usize);
        machine.mem().read(source, data);
        machine
            .mem()
            .read(source.offset(file.bytes % PAGE_SIZE), tail);
        let fill = |mem: &mut M::Mem, frame| mem.write(frame, data);
        if !self.map_frame(machine, file.page, attributes, fill) {
            return false;
        }
        if attributes.class != Class::Private {
            self.tails.put(file.offset, tail);
        }
        true
    }

    /// What the file has in this page.
    fn bytes_in_file(&self, file: &FilePage) -> u64 {
        (self.program.image.file_bytes - file.offset).min(PAGE_SIZE)
    }

    /// Whether the page takes all that the file has there.
    fn is_whole(&self, file: &FilePage) -> bool {
        let retained = file.attributes.class != Class::Private;
        retained && file.bytes == self.bytes_in_file(file)
    }

    /// Whether no other segment takes anything from the page at this offset of the file.
    fn is_of_one_segment(&self, offset: u64) -> bool {
        let takes = |segment: &&Segment| {
            let end = segment.offset + (segment.file_end - segment.start);
            segment.file_end > segment.start && (segment.offset..end).contains(&offset)
        };
        self.program.image.segments.iter().filter(takes).count() == 1
    }
}
