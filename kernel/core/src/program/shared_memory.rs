//! Shared memory objects in a program's memory: frames that all mappings of an object show and that
//! may be written through each that was opened for it.
//!
//! Neighbours: [`crate::files::shared_memory`] has their names and lengths, and says when nobody
//! can reach one any more.
//!
//! Invariant: a frame of an object is charged to the program once, however many mappings show it,
//! and given back when no mapping does.

use alloc::vec::Vec;

use super::{Machine, Memory, Outcome};
use crate::addr::{PAGE_SIZE, PhysAddr};
use crate::fault::{self, Cause, ObjectPage};
use crate::paging::PageSize;
use crate::paging::entry::{Attributes, Class, Protection};
use crate::phys::PhysMem;
use crate::space::{Kind, MapRequest, Pages, SharedMemoryMap};
use hearth_abi::errno::Errno;

impl Memory {
    /// Gives an object so many bytes. Those that it had and has no more are gone from all mappings;
    /// new ones are zeros and take no memory. ENOMEM where the kernel has no room for the list of
    /// its frames.
    pub fn resize_shared_memory<M: Machine>(
        &mut self,
        machine: &mut M,
        object: u16,
        bytes: u64,
    ) -> Result<(), Errno> {
        let index = usize::from(object);
        let pages = bytes.div_ceil(PAGE_SIZE);
        if index >= self.shared.len() {
            let more = index + 1 - self.shared.len();
            self.shared.try_reserve(more).map_err(|_| Errno::ENOMEM)?;
            self.shared.resize_with(index + 1, Vec::new);
        }
        let frames = &mut self.shared[index];
        let more = (pages as usize).saturating_sub(frames.len());
        frames.try_reserve_exact(more).map_err(|_| Errno::ENOMEM)?;
        if frames.len() > pages as usize {
            self.cut_shared_memory(machine, object, pages);
        }
        let frames = &mut self.shared[index];
        frames.resize_with(pages as usize, || None);
        if pages == 0 {
            *frames = Vec::new();
        }
        // What is behind its end is zeros when it grows again.
        let inside = bytes % PAGE_SIZE;
        if inside > 0
            && let Some(Some(frame)) = frames.last()
        {
            let zeros = [0; PAGE_SIZE as usize];
            let behind = &zeros[inside as usize..];
            machine.mem().write(frame.address().offset(inside), behind);
        }
        Ok(())
    }

    /// Takes the pages of an object from number `first` on from all mappings, and gives their
    /// frames back.
    fn cut_shared_memory<M: Machine>(&mut self, machine: &mut M, object: u16, first: u64) {
        let shown: Vec<Pages> = self.space.shows_of(object, first).collect();
        for pages in shown {
            self.release(machine, pages);
        }
        let frames = &mut self.shared[usize::from(object)];
        let cut = frames.drain((first as usize).min(frames.len())..);
        let mut freed = 0;
        for frame in cut.flatten() {
            machine.with(|_, frames| frames.free(frame));
            freed += 1;
        }
        self.pages -= freed;
    }

    /// Gives back the frames of all objects.
    pub(super) fn drop_shared_memory<M: Machine>(&mut self, machine: &mut M) {
        for object in 0..self.shared.len() {
            self.cut_shared_memory(machine, object as u16, 0);
        }
    }

    /// mmap of an object: the address.
    pub fn mmap_shared_memory<M: Machine>(
        &mut self,
        machine: &mut M,
        request: MapRequest,
        map: SharedMemoryMap,
    ) -> Result<u64, Errno> {
        self.room_to_cut(machine)?;
        let mapped = self.space.mmap_shared_memory(request, map)?;
        self.release(machine, mapped.replaced);
        Ok(mapped.address)
    }

    /// Whether an object is mapped anywhere.
    pub fn shows_shared_memory(&self, object: u16) -> bool {
        let of_it =
            |kind| matches!(kind, Kind::SharedMemory { object: other, .. } if other == object);
        self.space.regions().any(|region| of_it(region.kind))
    }

    /// Copies bytes of an object that lie in one page of it; zeros where it was never written.
    pub fn read_shared_memory<M: Machine>(
        &self,
        machine: &mut M,
        object: u16,
        offset: u64,
        out: &mut [u8],
    ) {
        let inside = offset % PAGE_SIZE;
        assert!(inside + out.len() as u64 <= PAGE_SIZE, "more than a page");
        let frames = self.shared.get(usize::from(object));
        let frame = frames.and_then(|frames| frames.get((offset / PAGE_SIZE) as usize));
        match frame.and_then(|frame| frame.as_ref()) {
            Some(frame) => machine.mem().read(frame.address().offset(inside), out),
            None => out.fill(0),
        }
    }

    /// Puts bytes into one page of an object, which is that long. ENOMEM where memory is used up.
    pub fn write_shared_memory<M: Machine>(
        &mut self,
        machine: &mut M,
        object: u16,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), Errno> {
        let inside = offset % PAGE_SIZE;
        assert!(inside + bytes.len() as u64 <= PAGE_SIZE, "more than a page");
        let frame = self.shared_frame(machine, object, offset / PAGE_SIZE);
        let frame = frame.map_err(|_| Errno::ENOMEM)?;
        machine.mem().write(frame.offset(inside), bytes);
        Ok(())
    }

    /// Maps a page of an object.
    pub(super) fn map_shared_memory<M: Machine>(
        &mut self,
        machine: &mut M,
        shown: ObjectPage,
    ) -> Outcome {
        let frame = match self.shared_frame(machine, shown.file, shown.index) {
            Ok(frame) => frame,
            Err(cause) => return Outcome::Kill(cause),
        };
        let place = (shown.page, PageSize::Small);
        match self.map_to(machine, place, frame, shown.attributes) {
            true => Outcome::Done,
            false => Outcome::Kill(Cause::OutOfMemory),
        }
    }

    /// Maps a copy of a page of an object, which the program is about to write to.
    pub(super) fn map_shared_memory_copy<M: Machine>(
        &mut self,
        machine: &mut M,
        shown: ObjectPage,
    ) -> Outcome {
        let from = match self.shared_frame(machine, shown.file, shown.index) {
            Ok(frame) => frame,
            Err(cause) => return Outcome::Kill(cause),
        };
        let attributes = Attributes::user(Protection::ReadWrite, Class::Private);
        let fill = |mem: &mut M::Mem, copy| mem.copy_frame(from, copy);
        match self.map_frame(machine, shown.page, attributes, fill) {
            true => Outcome::Done,
            false => Outcome::Kill(Cause::OutOfMemory),
        }
    }

    /// The frame of a page of an object, which gets one where it has none.
    fn shared_frame<M: Machine>(
        &mut self,
        machine: &mut M,
        object: u16,
        index: u64,
    ) -> Result<PhysAddr, Cause> {
        let page = usize::try_from(index).ok();
        let frames = self.shared.get(usize::from(object));
        let frame = page.and_then(|page| frames?.get(page));
        match (page, frame) {
            (_, Some(Some(frame))) => Ok(frame.address()),
            (Some(page), Some(None)) => {
                if self.available(machine) <= fault::FRAMES_RESERVED {
                    return Err(Cause::OutOfMemory);
                }
                let frame = machine.with(|mem, frames| frames.alloc(mem, self.owner));
                let frame = frame.ok_or(Cause::OutOfMemory)?;
                let address = frame.address();
                self.shared[usize::from(object)][page] = Some(frame);
                self.charge(1);
                Ok(address)
            }
            _ => Err(Cause::BeyondFile),
        }
    }
}

#[cfg(test)]
mod tests;
