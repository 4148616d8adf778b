//! The memory of one program: its regions, its page table and its frames, kept in step.
//!
//! [`Memory::resolve`] handles a fault as far as the machine alone can; what must come from the
//! program file is returned as a [`Fetch`] and handed back with [`Memory::install`]. Pages that
//! are fetched before their first touch are *held*: their frame is in the page table, but the
//! entry is not present until a fault presents them, [`AROUND_PAGES`] at a time.
//!
//! Neighbours: [`crate::fault`] decides, [`crate::readahead`] says how much to ask for;
//! `kernel::process` does the waiting and implements [`Machine`] over the real memory and TLB.
//! Retention will keep a [`Memory`]'s table between launches instead of destroying it.
//!
//! Invariant: every leaf of the lower half maps a frame of this program's owner, with no more than
//! its region's protection; after [`Memory::destroy`] the owner has no frame left.

mod access;

use crate::addr::{PAGE_SIZE, PhysAddr, USER_END, VirtAddr};
use crate::fault::{self, Access, Cause, Decision, FilePage};
use crate::frames::{FrameAllocator, Owner};
use crate::loader::Image;
use crate::paging::entry::{Attributes, Protection};
use crate::paging::{MapError, PageSize, PageTable};
use crate::phys::PhysMem;
use crate::readahead::{self, ReadAhead};
use crate::space::{MapRequest, Pages, Region, Space};
pub use access::{BadAddress, Missing, UserSlice};
use hearth_abi::errno::Errno;

/// Held pages presented at one fault: an aligned 64 KiB.
pub const AROUND_PAGES: u64 = 16;
/// Frames that must be available beyond the reserve before anything is read ahead.
const AHEAD_FRAMES_MIN: u64 = 128;

/// What the memory of a program lives on.
pub trait Machine {
    /// Physical memory.
    type Mem: PhysMem;
    /// Physical memory.
    fn mem(&mut self) -> &mut Self::Mem;
    /// Physical memory and its frames, which are locked meanwhile: `act` must not allocate from
    /// the kernel's heap, which takes its pages from there.
    fn with<R>(&mut self, act: impl FnOnce(&mut Self::Mem, &mut FrameAllocator) -> R) -> R;
    /// Makes the CPU forget pages whose entries were present and have changed: all between
    /// `first` and `last` (an address in the last page), and every table it has cached the way to.
    fn invalidate(&mut self, first: VirtAddr, last: VirtAddr);
}

/// Faults by what served them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// A page of the program file had to be fetched.
    pub file: u64,
    /// A page of zeros.
    pub anonymous: u64,
    /// A page that was in memory already.
    pub held: u64,
    /// Nothing to do: a stale TLB entry.
    pub stale: u64,
}

/// Pages of the program file to ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// First page.
    pub page: VirtAddr,
    /// Number of pages, 1 to [`readahead::WINDOW_MAX`].
    pub pages: u64,
    /// Offset in the file, a multiple of the page size.
    pub offset: u64,
    /// Bytes to ask for: whole pages, less only at the end of the file.
    pub length: u64,
    /// Whether the program waits for the first page; else all of them are held.
    pub demand: bool,
}

impl Fetch {
    /// Address behind the last page.
    pub fn end(&self) -> u64 {
        self.page.as_u64() + self.pages * PAGE_SIZE
    }
}

/// What came of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The program can go on.
    Done,
    /// These pages must be fetched and installed first.
    Fetch(Fetch),
    /// The program must be ended.
    Kill(Cause),
}

/// The memory of one program.
#[derive(Debug)]
pub struct Memory {
    space: Space,
    table: PageTable,
    owner: Owner,
    file_bytes: u64,
    /// Pages mapped or held now.
    pages: u64,
    pages_peak: u64,
    pages_max: u64,
    faults: Faults,
    ahead: ReadAhead,
    counts: readahead::Counts,
}

impl Memory {
    /// The memory of a program about to start: nothing is mapped. `kernel` is the kernel's own
    /// table, `limit_bytes` the most it may use. Fails when there is no frame for a table.
    pub fn new<M: Machine>(
        machine: &mut M,
        image: &Image,
        kernel: PageTable,
        owner: Owner,
        limit_bytes: u64,
    ) -> Result<Self, MapError> {
        let (table, memory_bytes) = machine.with(|mem, frames| {
            let table = PageTable::new(mem, frames)?;
            table.share_kernel_half(mem, kernel);
            Ok((table, frames.usage().total * PAGE_SIZE))
        })?;
        Ok(Self {
            space: Space::new(image, memory_bytes.min(limit_bytes)),
            table,
            owner,
            file_bytes: image.file_bytes,
            pages: 0,
            pages_peak: 0,
            pages_max: limit_bytes / PAGE_SIZE,
            faults: Faults::default(),
            ahead: ReadAhead::default(),
            counts: readahead::Counts::default(),
        })
    }

    /// The page table, to be activated.
    pub fn table(&self) -> PageTable {
        self.table
    }

    /// The regions.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// Faults so far.
    pub fn faults(&self) -> Faults {
        self.faults
    }

    /// Pages asked for and read ahead so far; `used` is known only to [`Memory::destroy`].
    pub fn counts(&self) -> readahead::Counts {
        self.counts
    }

    /// Most pages in use at once.
    pub fn pages_peak(&self) -> u64 {
        self.pages_peak
    }

    /// Handles an access to `address` that the page table does not allow.
    pub fn resolve<M: Machine>(
        &mut self,
        machine: &mut M,
        address: u64,
        access: Access,
    ) -> Outcome {
        let mem = machine.mem();
        let leaf = VirtAddr::try_new(address).and_then(|at| self.table.translate(mem, at));
        let available = self.available(machine);
        match fault::decide(&self.space, address, access, leaf, available) {
            Decision::Kill(cause) => Outcome::Kill(cause),
            Decision::Stale { page } => {
                self.faults.stale += 1;
                machine.invalidate(page, page);
                Outcome::Done
            }
            Decision::Present { page, protection } => {
                self.faults.held += 1;
                self.present_around(machine.mem(), page, protection);
                Outcome::Done
            }
            Decision::ZeroFill { page, attributes } => {
                self.faults.anonymous += 1;
                match self.map_frame(machine, page, attributes) {
                    Some(_) => Outcome::Done,
                    None => Outcome::Kill(Cause::OutOfMemory),
                }
            }
            Decision::File(file) => {
                self.faults.file += 1;
                Outcome::Fetch(self.plan_fetch(machine, file))
            }
        }
    }

    /// Puts fetched pages into place. `bytes` is what was asked for.
    pub fn install<M: Machine>(
        &mut self,
        machine: &mut M,
        fetch: &Fetch,
        bytes: &[u8],
    ) -> Result<(), Cause> {
        if (bytes.len() as u64) < fetch.length {
            return Err(Cause::PageUnavailable);
        }
        for (index, data) in bytes.chunks(PAGE_SIZE as usize).enumerate() {
            let page = fetch.page.offset(index as u64 * PAGE_SIZE);
            let first = index == 0 && fetch.demand;
            let Some(file) = self.file_page(page) else {
                continue;
            };
            let mut attributes = file.attributes;
            attributes.ahead = !first;
            if !fetch.demand {
                attributes.protection = Protection::None;
            }
            let data = &data[..data.len().min(file.bytes as usize)];
            let Some(frame) = self.map_frame(machine, page, attributes) else {
                // Reading ahead may fail; only the page that is waited for must be had.
                return if first {
                    Err(Cause::OutOfMemory)
                } else {
                    Ok(())
                };
            };
            machine.mem().write(frame, data);
            match first {
                true => self.counts.asked += 1,
                false => self.counts.ahead += 1,
            }
        }
        Ok(())
    }

    /// The next pages of the range from `start` to `end` that are worth holding (madvise), `None`
    /// when all are in memory, come from no file, or memory is short.
    pub fn plan_hold<M: Machine>(&self, machine: &mut M, start: u64, end: u64) -> Option<Fetch> {
        if self.available(machine) < fault::FRAMES_RESERVED + AHEAD_FRAMES_MIN {
            return None;
        }
        let mem = machine.mem();
        let mut at = start;
        while at < end {
            let region = self.space.find(at)?;
            let page = VirtAddr::new(at);
            let readable = region.protection != Protection::None;
            match fault::file_page(&region, page) {
                Some(file) if readable && self.table.translate(mem, page).is_none() => {
                    let limit = (end - at).div_ceil(PAGE_SIZE).min(readahead::WINDOW_MAX);
                    let pages = self.run(mem, &region, page, limit);
                    return Some(self.fetch(file, pages, false));
                }
                Some(_) => at += PAGE_SIZE,
                // Behind the file's bytes, or not a file region.
                None => at = region.end,
            }
        }
        None
    }

    /// brk: the exact new break.
    pub fn brk<M: Machine>(&mut self, machine: &mut M, wanted: u64) -> u64 {
        let (now, released) = self.space.brk(wanted);
        self.release(machine, released);
        now
    }

    /// mmap: the address.
    pub fn mmap<M: Machine>(&mut self, machine: &mut M, request: MapRequest) -> Result<u64, Errno> {
        let mapped = self.space.mmap(request)?;
        self.release(machine, mapped.replaced);
        Ok(mapped.address)
    }

    /// munmap.
    pub fn munmap<M: Machine>(
        &mut self,
        machine: &mut M,
        address: u64,
        length: u64,
    ) -> Result<(), Errno> {
        let pages = self.space.munmap(address, length)?;
        self.release(machine, pages);
        Ok(())
    }

    /// mprotect.
    pub fn mprotect<M: Machine>(
        &mut self,
        machine: &mut M,
        address: u64,
        length: u64,
        bits: u64,
    ) -> Result<(), Errno> {
        let (pages, protection) = self.space.mprotect(address, length, bits)?;
        if pages.is_empty() {
            return Ok(());
        }
        let (first, last) = ends(pages);
        let mut present = false;
        self.table
            .protect_range(machine.mem(), first, last, |leaf| {
                present |= leaf.attributes.protection != Protection::None;
                Some(protection)
            });
        if present {
            machine.invalidate(first, last);
        }
        Ok(())
    }

    /// Drops the contents of pages, which start anew at the next touch (MADV_DONTNEED).
    pub fn discard<M: Machine>(
        &mut self,
        machine: &mut M,
        address: u64,
        length: u64,
    ) -> Result<(), Errno> {
        let end = address.checked_add(length).ok_or(Errno::EINVAL)?;
        if !address.is_multiple_of(PAGE_SIZE) || end > crate::loader::layout::USER_TOP {
            return Err(Errno::EINVAL);
        }
        let end = end.next_multiple_of(PAGE_SIZE);
        self.release(
            machine,
            Pages {
                start: address,
                end,
            },
        );
        Ok(())
    }

    /// Gives back every frame and table; they are dirty until scrubbed. Returns the final counts.
    /// The table must not be active.
    pub fn destroy<M: Machine>(mut self, machine: &mut M) -> readahead::Counts {
        let all = Pages {
            start: 0,
            end: USER_END,
        };
        self.release(machine, all);
        assert_eq!(self.pages, 0, "pages of a program were lost");
        machine.with(|mem, frames| self.table.destroy(mem, frames));
        self.counts
    }

    /// Unmaps pages and gives their frames back.
    fn release<M: Machine>(&mut self, machine: &mut M, pages: Pages) {
        if pages.is_empty() {
            return;
        }
        let (first, last) = ends(pages);
        let (mut pages, mut used) = (0, 0);
        let remembered = machine.with(|mem, frames| {
            self.table
                .unmap_range(mem, frames, first, last, |frames, leaf| {
                    pages += 1;
                    used += u64::from(leaf.attributes.ahead && leaf.accessed);
                    frames.free(leaf.frame);
                })
        });
        self.pages -= pages;
        self.counts.used += used;
        // Before any frame freed above is given out again.
        if remembered {
            machine.invalidate(first, last);
        }
    }

    /// Maps a zero-filled frame; `None` when memory is used up.
    fn map_frame<M: Machine>(
        &mut self,
        machine: &mut M,
        page: VirtAddr,
        attributes: Attributes,
    ) -> Option<PhysAddr> {
        if self.available(machine) <= fault::FRAMES_RESERVED {
            return None;
        }
        self.map_frame_unreserved(machine, page, attributes)
    }

    /// [`Self::map_frame`] without a look at the reserve.
    fn map_frame_unreserved<M: Machine>(
        &mut self,
        machine: &mut M,
        page: VirtAddr,
        attributes: Attributes,
    ) -> Option<PhysAddr> {
        let size = PageSize::Small;
        let (frame, mapped) = machine.with(|mem, frames| {
            let frame = frames.alloc(mem, self.owner)?;
            match self.table.map(mem, frames, page, frame, size, attributes) {
                Ok(()) => Some((frame, true)),
                Err(MapError::OutOfFrames) => {
                    frames.free(frame);
                    Some((frame, false))
                }
                Err(error) => panic!("{page:?} cannot be mapped: {error:?}"),
            }
        })?;
        if !mapped {
            // Tables that were made on the way and given back.
            machine.invalidate(page, page);
            return None;
        }
        self.pages += 1;
        self.pages_peak = self.pages_peak.max(self.pages);
        Some(frame)
    }

    /// Frames this program can still get, the kernel's reserve included.
    fn available<M: Machine>(&self, machine: &mut M) -> u64 {
        let own = self.pages_max.saturating_sub(self.pages);
        let own = own.saturating_add(fault::FRAMES_RESERVED);
        machine
            .with(|_, frames| frames.usage().available())
            .min(own)
    }

    fn file_page(&self, page: VirtAddr) -> Option<FilePage> {
        fault::file_page(&self.space.find(page.as_u64())?, page)
    }

    fn plan_fetch<M: Machine>(&mut self, machine: &mut M, file: FilePage) -> Fetch {
        let spare = fault::FRAMES_RESERVED + AHEAD_FRAMES_MIN;
        let limit = match self.space.find(file.page.as_u64()) {
            Some(region) if self.available(machine) > spare => {
                self.run(machine.mem(), &region, file.page, readahead::WINDOW_MAX)
            }
            _ => 1,
        };
        let pages = self.ahead.plan(file.page.as_u64(), limit);
        self.fetch(file, pages, true)
    }

    fn fetch(&self, first: FilePage, pages: u64, demand: bool) -> Fetch {
        Fetch {
            page: first.page,
            pages,
            offset: first.offset,
            length: (pages * PAGE_SIZE).min(self.file_bytes - first.offset),
            demand,
        }
    }

    /// Pages in a row from `page` on, at most `limit`, that come from the file and are not in
    /// memory.
    fn run(&self, mem: &impl PhysMem, region: &Region, page: VirtAddr, limit: u64) -> u64 {
        let missing = |&index: &u64| {
            let next = page.offset(index * PAGE_SIZE);
            next.as_u64() < region.end
                && fault::file_page(region, next).is_some()
                && self.table.translate(mem, next).is_none()
        };
        (1..limit).take_while(missing).count() as u64 + 1
    }

    /// Presents the held pages around `page` that belong to its region.
    fn present_around(&self, mem: &mut impl PhysMem, page: VirtAddr, protection: Protection) {
        let bytes = AROUND_PAGES * PAGE_SIZE;
        let window = page.as_u64() & !(bytes - 1);
        let (start, end) = match self.space.find(page.as_u64()) {
            Some(region) => (region.start.max(window), region.end.min(window + bytes)),
            None => return,
        };
        let (first, last) = ends(Pages { start, end });
        self.table.protect_range(mem, first, last, |leaf| {
            (leaf.attributes.protection == Protection::None).then_some(protection)
        });
    }
}

/// First and last address of a range that is not empty.
fn ends(pages: Pages) -> (VirtAddr, VirtAddr) {
    (VirtAddr::new(pages.start), VirtAddr::new(pages.end - 1))
}

#[cfg(test)]
mod tests;
