//! The memory of one program: its regions, its page table and its frames, kept in step.
//!
//! [`Memory::resolve`] handles a fault as far as the machine alone can; what must come from the
//! program file is returned as a [`Fetch`] and handed back with [`Memory::install`]. Pages that
//! are fetched before their first touch are *held*: their frame is in the page table, but the
//! entry is not present until a fault presents them, [`AROUND_PAGES`] at a time. Pages of writable
//! segments are mapped read-only as the file has them, and copied at the first write.
//!
//! A program's memory starts empty ([`Memory::new`]) or on what was kept of it
//! ([`Memory::relaunch`]), and always ends with [`Memory::retire`].
//!
//! Neighbours: [`crate::fault`] decides, [`crate::readahead`] says how much to ask for;
//! `kernel::process` does the waiting and implements [`Machine`] over the real memory and TLB;
//! [`crate::retention`] has the pages between two launches.
//!
//! Invariant: every leaf of the lower half maps a frame of this program's owner, or one of an
//! object ([`Class::Object`]) for reading, or one of its shared memory objects
//! ([`Class::SharedMemory`]), with no more than its region's protection; a frame that
//! came with a warm table is never mapped writable; after [`Memory::retire`] the owner has no frame
//! left but those of the warm table. Other cores run the program meanwhile: a page is mapped only
//! with its contents, and none is mapped writable while a core may still read another frame there.

mod access;
mod adopt;
mod core_pages;
mod fetching;
mod files;
mod large;
mod moving;
#[cfg(test)]
mod other_core;
mod pristine;
mod retire;
mod shared_memory;
mod steps;

use crate::addr::{PAGE_SIZE, PhysAddr, VirtAddr};
use crate::fault::{self, Access, Cause, Decision};
use crate::frames::{Deferring, Frame, FrameAllocator, Owner};
use crate::loader::Image;
use crate::objects::FrameIndex;
use crate::pagehash::PageHashes;
use crate::paging::entry::{Attributes, Class, Protection};
use crate::paging::{MapError, PageSize, PageTable};
use crate::phys::PhysMem;
use crate::readahead::{self, ReadAhead};
use crate::retention::{Policy, ProgramId, frames_of};
use crate::space::{Limits, MapRequest, Pages, Space};
pub use access::{BadAddress, Missing, UserSlice, UserView};
use alloc::vec::Vec;
pub use fetching::Fetch;
use hearth_abi::errno::Errno;
pub use pristine::PRISTINE_MAX;
use pristine::Pristine;
pub(crate) use pristine::Tails;
pub use steps::STEP_PAGES;
use steps::Steps;

/// Held pages presented at one fault: an aligned 64 KiB.
pub const AROUND_PAGES: u64 = 16;
/// Frames that must be available beyond the reserve before anything is read ahead.
pub(crate) const AHEAD_FRAMES_MIN: u64 = 128;

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
    /// Called in long work after each step, which is at most [`STEP_PAGES`] pages, when another
    /// follows. Nothing is locked and the CPU remembers nothing that has gone: whoever has other
    /// duties may look after them.
    fn pause(&mut self) {}
}

/// Faults by what served them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// A page of an executable segment had to be fetched.
    pub code: u64,
    /// A page of a segment that is only read had to be fetched.
    pub readonly: u64,
    /// A page of a writable segment had to be fetched.
    pub data: u64,
    /// A page of zeros, but for the stack's.
    pub zero: u64,
    /// A page of the stack.
    pub stack: u64,
    /// A page that was in memory already.
    pub held: u64,
    /// A data page that was in memory had to be copied.
    pub copy: u64,
    /// Nothing to do: a stale TLB entry.
    pub stale: u64,
}

impl Faults {
    /// None.
    pub const NONE: Self = Self {
        code: 0,
        readonly: 0,
        data: 0,
        zero: 0,
        stack: 0,
        held: 0,
        copy: 0,
        stale: 0,
    };

    /// Faults for which a page of the program file was fetched.
    pub const fn file(&self) -> u64 {
        self.code + self.readonly + self.data
    }

    /// Faults that a page of zeros served.
    pub const fn anonymous(&self) -> u64 {
        self.zero + self.stack
    }
}

/// A program to be started cold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// What it is known by.
    pub id: ProgramId,
    /// Its headers.
    pub image: Image,
}

/// What came of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The program can go on.
    Done,
    /// The program can go on; it has come to pages that were read ahead, so that more of them may
    /// be wanted ([`Memory::plan_ahead`]).
    Presented,
    /// These pages must be fetched and installed first.
    Fetch(Fetch),
    /// The page is under way: the fetch that begins here must be installed or abandoned first.
    InFlight(VirtAddr),
    /// The page must be fetched, and as many fetches are under way as there may be: one of them
    /// must be over first.
    Full,
    /// The program must be ended.
    Kill(Cause),
}

/// The memory of one program.
#[derive(Debug)]
pub struct Memory {
    program: Program,
    policy: Policy,
    space: Space,
    table: PageTable,
    owner: Owner,
    /// Pages mapped or held now that this run has brought in.
    pages: u64,
    /// Pages mapped now that the program was launched on.
    warm: u64,
    /// Pages of the file that were in memory in this run and will not be kept.
    discarded: u64,
    /// Warm pages that are not used were given back already.
    shed: bool,
    /// Pages that the program was launched on.
    reused: u64,
    pages_peak: u64,
    pages_max: u64,
    /// Large pages mapped now.
    large: u64,
    /// Frames of the page table.
    tables: u64,
    /// Whether frames in a row are looked for: not any more once there were none.
    seeks_rows: bool,
    pristine: Pristine,
    tails: Tails,
    hashes: Option<PageHashes>,
    /// Files it may map, by number.
    files: Vec<FrameIndex>,
    /// Frames of its shared memory objects, by number and page; `None` was never touched.
    shared: Vec<Vec<Option<Frame>>>,
    faults: Faults,
    ahead: ReadAhead,
    counts: readahead::Counts,
}

impl Memory {
    /// The memory of a program about to start cold: nothing is mapped. `kernel` is the kernel's own
    /// table, `limit_bytes` the most it may use. Fails when there is no frame for a table.
    pub fn new<M: Machine>(
        machine: &mut M,
        program: Program,
        kernel: PageTable,
        owner: Owner,
        limit_bytes: u64,
        policy: Policy,
    ) -> Result<Self, MapError> {
        let (table, frames) = machine.with(|mem, frames| {
            let table = PageTable::new(mem, frames)?;
            table.share_kernel_half(mem, kernel);
            Ok((table, frames.usage().total))
        })?;
        let memory = Self::with_table(program, table, owner, frames, limit_bytes, policy);
        Ok(memory)
    }

    /// Memory over a table; `frames` is what the node has.
    fn with_table(
        program: Program,
        table: PageTable,
        owner: Owner,
        frames: u64,
        limit_bytes: u64,
        mut policy: Policy,
    ) -> Self {
        let memory_bytes = (frames * PAGE_SIZE).min(limit_bytes);
        policy.pristine &= policy.keep;
        Self {
            space: Space::new(&program.image, memory_bytes, policy.pristine),
            program,
            policy,
            table,
            owner,
            pages: 0,
            warm: 0,
            discarded: 0,
            shed: false,
            reused: 0,
            pages_peak: 0,
            pages_max: limit_bytes / PAGE_SIZE,
            large: 0,
            tables: 1,
            seeks_rows: true,
            pristine: Pristine::default(),
            tails: Tails::default(),
            hashes: None,
            files: Vec::new(),
            shared: Vec::new(),
            faults: Faults::default(),
            ahead: ReadAhead::default(),
            counts: readahead::Counts::default(),
        }
    }

    /// What the program is known by.
    pub fn program_id(&self) -> &ProgramId {
        &self.program.id
    }

    /// The program's headers.
    pub fn image(&self) -> &Image {
        &self.program.image
    }

    /// Whom its frames belong to.
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// Pages that the program was launched on; 0 for a cold launch.
    pub fn pages_reused(&self) -> u64 {
        self.reused
    }

    /// Large pages mapped now.
    pub fn pages_large(&self) -> u64 {
        self.large
    }

    /// The page-hash list, if it is known.
    pub fn hashes(&self) -> Option<&PageHashes> {
        self.hashes.as_ref()
    }

    /// Keeps the page-hash list with the program.
    pub fn set_hashes(&mut self, hashes: PageHashes) {
        self.hashes = Some(hashes);
    }

    /// The page table, to be activated.
    pub fn table(&self) -> PageTable {
        self.table
    }

    /// Changes how much may be mapped.
    pub fn limit_mappings(&mut self, change: impl FnOnce(&mut Limits)) {
        change(&mut self.space.limits);
    }

    /// The regions.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// Faults so far.
    pub fn faults(&self) -> Faults {
        self.faults
    }

    /// Pages asked for and read ahead so far; `used` is known only to [`Memory::retire`].
    pub fn counts(&self) -> readahead::Counts {
        self.counts
    }

    /// Most pages in use at once, with those the program was launched on.
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
        let mut available = self.available(machine);
        if available <= fault::FRAMES_RESERVED {
            self.shed(machine);
            available = self.available(machine);
        }
        let mem = machine.mem();
        let leaf = VirtAddr::try_new(address).and_then(|at| self.table.translate(mem, at));
        match fault::decide(&self.space, address, access, leaf, available) {
            Decision::Kill(cause) => Outcome::Kill(cause),
            Decision::Stale { page } => {
                self.faults.stale += 1;
                machine.invalidate(page, page);
                Outcome::Done
            }
            Decision::Copy { page } => {
                self.faults.copy += 1;
                if leaf.is_some_and(|leaf| leaf.attributes.class == Class::Object) {
                    return self.copy_object(machine, page);
                }
                self.ahead.touched(page.as_u64());
                match self.copy_pristine(machine, page) {
                    Ok(()) => Outcome::Presented,
                    Err(cause) => Outcome::Kill(cause),
                }
            }
            Decision::Present { page, protection } => {
                self.faults.held += 1;
                self.ahead.touched(page.as_u64());
                self.present_around(machine.mem(), page);
                debug_assert!(self.shows(machine.mem(), page, protection));
                Outcome::Presented
            }
            Decision::Object(object) => {
                self.faults.held += 1;
                self.map_object(machine, object)
            }
            Decision::ObjectCopy(object) => {
                self.faults.copy += 1;
                self.map_object_copy(machine, object)
            }
            Decision::SharedMemory(object) => {
                self.faults.zero += 1;
                self.map_shared_memory(machine, object)
            }
            Decision::SharedMemoryCopy(object) => {
                self.faults.copy += 1;
                self.map_shared_memory_copy(machine, object)
            }
            Decision::ZeroFill {
                page,
                attributes,
                stack,
                large,
            } => {
                match stack {
                    true => self.faults.stack += 1,
                    false => self.faults.zero += 1,
                }
                if large && self.map_large(machine, page, attributes) {
                    return Outcome::Done;
                }
                match self.map_frame(machine, page, attributes, |_, _| ()) {
                    true => Outcome::Done,
                    false => Outcome::Kill(Cause::OutOfMemory),
                }
            }
            Decision::File(file) => {
                if let Some(first) = self.ahead.in_flight(file.page.as_u64()) {
                    self.ahead.touched(file.page.as_u64());
                    return Outcome::InFlight(VirtAddr::new(first));
                }
                if self.map_pristine(machine, file.page, file.attributes) {
                    self.faults.held += 1;
                    return Outcome::Done;
                }
                if self.ahead.is_full() {
                    return Outcome::Full;
                }
                match file.attributes.class {
                    Class::FileExecute => self.faults.code += 1,
                    Class::FileRead => self.faults.readonly += 1,
                    Class::FileData | Class::Private | Class::Object | Class::SharedMemory => {
                        self.faults.data += 1
                    }
                }
                Outcome::Fetch(self.plan_fetch(machine, file, access == Access::Write))
            }
        }
    }

    /// brk: the exact new break; the old one where there is no room for what it must split.
    pub fn brk<M: Machine>(&mut self, machine: &mut M, wanted: u64) -> u64 {
        if self.room_to_cut(machine).is_err() {
            return self.space.brk(0).0;
        }
        let (now, released) = self.space.brk(wanted);
        self.release(machine, released);
        now
    }

    /// mmap: the address.
    pub fn mmap<M: Machine>(&mut self, machine: &mut M, request: MapRequest) -> Result<u64, Errno> {
        self.room_to_cut(machine)?;
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
        self.room_to_cut(machine)?;
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
        self.room_to_cut(machine)?;
        let (pages, protection) = self.space.mprotect(address, length, bits)?;
        if pages.is_empty() {
            return Ok(());
        }
        self.cut_large(machine, pages);
        let mut steps = Steps::new(self.table, ends(pages));
        while let Some(part) = steps.next(machine) {
            self.protect_part(machine, part, protection);
        }
        Ok(())
    }

    /// Has memory that is not writable stay so: what a file held has been copied into it.
    pub fn seal(&mut self, address: u64, length: u64) -> Result<(), Errno> {
        self.space.seal(address, length)
    }

    /// A step of mprotect.
    fn protect_part<M: Machine>(
        &mut self,
        machine: &mut M,
        (first, last): (VirtAddr, VirtAddr),
        protection: Protection,
    ) {
        let (mut present, mut claimed, mut lost) = (false, 0, 0);
        machine.with(|mem, frames| {
            self.table.protect_range(mem, first, last, |leaf| {
                present |= leaf.attributes.protection != Protection::None;
                let protection = fault::shown(leaf.attributes.class, protection);
                if protection == Protection::ReadWrite {
                    // It may be written from now on, and is not retained.
                    let class = leaf.attributes.class;
                    let of_file = !matches!(class, Class::Private | Class::SharedMemory);
                    for frame in frames_of(&leaf) {
                        claimed += u64::from(frames.take(frame));
                        lost += u64::from(of_file);
                    }
                }
                Some(protection)
            });
        });
        self.warm -= claimed;
        self.discarded += lost;
        self.charge(claimed);
        if present {
            machine.invalidate(first, last);
        }
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
        self.room_to_cut(machine)?;
        self.release(
            machine,
            Pages {
                start: address,
                end,
            },
        );
        Ok(())
    }

    /// Unmaps pages and gives their frames back.
    fn release<M: Machine>(&mut self, machine: &mut M, pages: Pages) {
        if pages.is_empty() {
            return;
        }
        self.cut_large(machine, pages);
        let mut steps = Steps::new(self.table, ends(pages));
        while let Some(part) = steps.next(machine) {
            self.release_part(machine, part);
        }
    }

    /// A step of [`Self::release`].
    fn release_part<M: Machine>(&mut self, machine: &mut M, (first, last): (VirtAddr, VirtAddr)) {
        let (mut used, mut large, mut lost) = (0, 0, 0);
        let table = self.table;
        let remembered = machine.with(|mem, frames| {
            let tables = &mut Deferring(frames);
            table.unmap_range(mem, tables, first, last, |Deferring(frames), leaf| {
                if matches!(leaf.attributes.class, Class::Object | Class::SharedMemory) {
                    return;
                }
                used += u64::from(leaf.attributes.ahead && leaf.accessed);
                large += u64::from(leaf.size == PageSize::Large);
                for frame in frames_of(&leaf) {
                    frames.defer_free(Frame::from_entry(frame));
                    lost += u64::from(leaf.attributes.class != Class::Private);
                }
            })
        });
        self.large -= large;
        self.discarded += lost;
        self.counts.used += used;
        if remembered {
            machine.invalidate(first, last);
        }
        self.free_deferred(machine);
    }

    /// Gives back the frames that were noted while a part of the table was taken away; all cores
    /// have forgotten them.
    fn free_deferred<M: Machine>(&mut self, machine: &mut M) {
        let freed = machine.with(|_, frames| frames.free_deferred());
        self.pages -= freed.pages;
        self.warm -= freed.borrowed;
        self.tables -= freed.tables;
    }

    /// Maps a frame that `fill`, which finds zeros in it, has filled; `false` when memory is used
    /// up.
    fn map_frame<M: Machine>(
        &mut self,
        machine: &mut M,
        page: VirtAddr,
        attributes: Attributes,
        fill: impl FnOnce(&mut M::Mem, PhysAddr),
    ) -> bool {
        let own = self.own_left();
        let frame = machine.with(|mem, frames| {
            let available = frames.available().min(own);
            (available > fault::FRAMES_RESERVED).then(|| frames.alloc(mem, self.owner))
        });
        let Some(frame) = frame.flatten() else {
            return false;
        };
        // Other cores use a page as soon as it is mapped.
        fill(machine.mem(), frame.address());
        self.map_own(machine, page, frame, attributes)
    }

    /// Puts a frame that is filled into the place of a page that is mapped and not writable.
    fn replace<M: Machine>(&mut self, machine: &mut M, page: VirtAddr, filled: Frame) {
        let table = self.table;
        let leaf = table.translate(machine.mem(), page);
        if leaf.is_some_and(|leaf| leaf.attributes.protection != Protection::None) {
            // No core may read the old frame any more when another one writes to the new.
            let hidden = table.protect(machine.mem(), page, Protection::None);
            hidden.expect("the page is mapped");
            machine.invalidate(page, page);
        }
        let attributes = Attributes::user(Protection::ReadWrite, Class::Private);
        let replaced = table.replace(machine.mem(), page, filled.into_entry(), attributes);
        replaced.expect("a page to replace is a small one that is mapped");
    }

    /// Maps a frame that is the program's; gives it back when there is no frame for a table, which
    /// is `false`.
    fn map_own<M: Machine>(
        &mut self,
        machine: &mut M,
        page: VirtAddr,
        frame: Frame,
        attributes: Attributes,
    ) -> bool {
        let place = (page, PageSize::Small);
        let mapped = self.map_to(machine, place, frame.address(), attributes);
        match mapped {
            true => {
                frame.into_entry();
                self.charge(1);
            }
            false => machine.with(|_, frames| frames.free(frame)),
        }
        mapped
    }

    /// Maps a frame where nothing is mapped; `false` when there is no frame for a table.
    fn map_to<M: Machine>(
        &mut self,
        machine: &mut M,
        (page, size): (VirtAddr, PageSize),
        frame: PhysAddr,
        attributes: Attributes,
    ) -> bool {
        let mapped = machine.with(|mem, frames| {
            let before = frames.usage().kernel;
            let tables = &mut Deferring(frames);
            let mapped = self.table.map(mem, tables, page, frame, size, attributes);
            self.tables += frames.usage().kernel - before;
            mapped
        });
        match mapped {
            Ok(()) => true,
            Err(MapError::OutOfFrames) => {
                // Tables that were made on the way and are empty again.
                machine.invalidate(page, page);
                self.free_deferred(machine);
                false
            }
            Err(error) => panic!("{page:?} cannot be mapped: {error:?}"),
        }
    }

    /// Frames of the page table.
    pub fn tables(&self) -> u64 {
        self.tables
    }

    /// Pages mapped that this run has brought in, and that it was launched on; for tests.
    #[cfg(test)]
    pub(crate) fn charged(&self) -> (u64, u64) {
        (self.pages, self.warm)
    }

    /// Counts pages that this run has brought in.
    fn charge(&mut self, pages: u64) {
        self.pages += pages;
        self.pages_peak = self.pages_peak.max(self.held() + self.warm);
    }

    /// Pages that this run has brought in, with pages kept aside.
    fn held(&self) -> u64 {
        self.pages + self.pristine.len()
    }

    /// What the limit is about: [`Self::held`], and tables; those that it was launched on are
    /// beside the limit. A page that is far from all others takes three of them, so that the last
    /// page before the limit may exceed it by as many.
    fn committed(&self) -> u64 {
        self.held() + self.tables
    }

    /// Frames this program can still get, the kernel's reserve included.
    fn available<M: Machine>(&self, machine: &mut M) -> u64 {
        frames_left(machine).min(self.own_left())
    }

    /// What its own limit leaves it, the kernel's reserve included.
    fn own_left(&self) -> u64 {
        let own = self.pages_max.saturating_sub(self.committed());
        own.saturating_add(fault::FRAMES_RESERVED)
    }

    /// Presents the held pages around `page` that belong to its region.
    fn present_around(&self, mem: &mut impl PhysMem, page: VirtAddr) {
        let bytes = AROUND_PAGES * PAGE_SIZE;
        let window = page.as_u64() & !(bytes - 1);
        let Some(region) = self.space.find(page.as_u64()) else {
            return;
        };
        let (first, last) = ends(Pages {
            start: region.start.max(window),
            end: region.end.min(window + bytes),
        });
        self.table.protect_range(mem, first, last, |leaf| {
            let shown = fault::shown(leaf.attributes.class, region.protection);
            (leaf.attributes.protection == Protection::None).then_some(shown)
        });
    }

    fn shows(&self, mem: &impl PhysMem, page: VirtAddr, protection: Protection) -> bool {
        let leaf = self.table.translate(mem, page);
        leaf.is_some_and(|leaf| leaf.attributes.protection == protection)
    }
}

/// Frames of the machine that can be given out.
fn frames_left<M: Machine>(machine: &mut M) -> u64 {
    machine.with(|_, frames| frames.available())
}

/// First and last address of a range that is not empty.
fn ends(pages: Pages) -> (VirtAddr, VirtAddr) {
    (VirtAddr::new(pages.start), VirtAddr::new(pages.end - 1))
}

#[cfg(test)]
mod tests;
