//! Files of the node's store in a program's memory: their frames are mapped as they are, for
//! reading, by as many mappings as there are; what a private mapping writes to is a copy.
//!
//! Invariant: a frame of a file is mapped as [`Class::Object`] and never writable; it is not
//! charged to the program, and not given back with the mapping.

use alloc::vec::Vec;

use super::{AROUND_PAGES, Machine, Memory, Outcome};
use crate::addr::{PAGE_SIZE, VirtAddr};
use crate::fault::{self, Cause, ObjectPage};
use crate::objects::FrameIndex;
use crate::paging::PageSize;
use crate::paging::entry::{Attributes, Class, Protection};
use crate::phys::PhysMem;
use crate::space::{FileMap, MapRequest};
use hearth_abi::errno::Errno;

impl Memory {
    /// Gives the program the files that it may map, by number. They must be held until the program
    /// has ended.
    pub fn set_files(&mut self, files: Vec<FrameIndex>) {
        self.files = files;
    }

    /// mmap of a file: the address.
    pub fn mmap_file<M: Machine>(
        &mut self,
        machine: &mut M,
        request: MapRequest,
        file: FileMap,
    ) -> Result<u64, Errno> {
        assert!(usize::from(file.file) < self.files.len(), "no such file");
        self.room_to_cut(machine)?;
        let mapped = self.space.mmap_file(request, file)?;
        self.release(machine, mapped.replaced);
        Ok(mapped.address)
    }

    /// Maps a page of a file, and those around it that are not mapped yet.
    pub(super) fn map_object<M: Machine>(
        &mut self,
        machine: &mut M,
        object: ObjectPage,
    ) -> Outcome {
        if let Err(cause) = self.show_object(machine, object) {
            return Outcome::Kill(cause);
        }
        let bytes = AROUND_PAGES * PAGE_SIZE;
        let window = object.page.as_u64() & !(bytes - 1);
        let region = self.space.find(object.page.as_u64());
        let region = region.expect("a mapping is a region");
        let start = region.start.max(window);
        let end = region.end.min(window + bytes);
        for at in (start..end).step_by(PAGE_SIZE as usize) {
            let page = VirtAddr::new(at);
            let Some(near) = fault::object_page(&region, page) else {
                break;
            };
            if self.table.translate(machine.mem(), page).is_some() {
                continue;
            }
            // Nobody waits for these.
            if self.show_object(machine, near).is_err() {
                break;
            }
        }
        Outcome::Done
    }

    /// Maps a copy of a page of a file, which the program is about to write to.
    pub(super) fn map_object_copy<M: Machine>(
        &mut self,
        machine: &mut M,
        object: ObjectPage,
    ) -> Outcome {
        let index = self.files[usize::from(object.file)];
        let Some(from) = index.frame(machine.mem(), object.index) else {
            return Outcome::Kill(Cause::PageUnavailable);
        };
        let attributes = Attributes::user(Protection::ReadWrite, Class::Private);
        let fill = |mem: &mut M::Mem, copy| mem.copy_frame(from, copy);
        match self.map_frame(machine, object.page, attributes, fill) {
            true => Outcome::Done,
            false => Outcome::Kill(Cause::OutOfMemory),
        }
    }

    /// Puts a copy into the place of a page of a file that is mapped.
    pub(super) fn copy_object<M: Machine>(&mut self, machine: &mut M, page: VirtAddr) -> Outcome {
        if self.available(machine) <= fault::FRAMES_RESERVED {
            return Outcome::Kill(Cause::OutOfMemory);
        }
        let leaf = self.table.translate(machine.mem(), page);
        let leaf = leaf.expect("a page to copy is in memory");
        let Some(copy) = machine.with(|mem, frames| frames.alloc(mem, self.owner)) else {
            return Outcome::Kill(Cause::OutOfMemory);
        };
        machine.mem().copy_frame(leaf.frame, copy.address());
        self.replace(machine, page, copy);
        self.charge(1);
        Outcome::Done
    }

    /// Maps the frame of a page of a file.
    fn show_object<M: Machine>(
        &mut self,
        machine: &mut M,
        object: ObjectPage,
    ) -> Result<(), Cause> {
        let index = self.files[usize::from(object.file)];
        let frame = index.frame(machine.mem(), object.index);
        let frame = frame.ok_or(Cause::PageUnavailable)?;
        match self.map_to(
            machine,
            (object.page, PageSize::Small),
            frame,
            object.attributes,
        ) {
            true => Ok(()),
            false => Err(Cause::OutOfMemory),
        }
    }
}

#[cfg(test)]
mod tests;
