//! The address space of a program as a table of regions: what may be touched, and what a page
//! that was never touched holds. Nothing here maps a page; that happens at a fault.
//!
//! A [`Region`] says protection and [`Kind`]; calls that change regions (brk, mmap, munmap,
//! mprotect) return the [`Pages`] whose frames the caller must drop or re-protect.
//!
//! Neighbours: [`crate::loader`] gives the segments, [`crate::fault`] decides a page fault by
//! these regions, `kernel::process` carries the effects to the page table.
//!
//! Invariant: regions do not overlap, begin and end at page boundaries, lie between
//! [`layout::USER_MIN`] and [`layout::USER_TOP`], and there are at most [`REGIONS_MAX`]; a
//! reservation commits no memory.

mod calls;
mod remap;

use alloc::collections::BTreeMap;
use core::fmt;

use crate::addr::{PAGE_SIZE, page_up};
use crate::loader::{Image, layout};
use crate::paging::entry::{Class, Protection};
pub use calls::{FileMap, MapRequest, Mapped, SharedMemoryMap};
pub use remap::{Remap, RemapRequest};

/// Regions a program may have. Go, the neediest program measured, has some 200; at 48 bytes each
/// the table stays below 64 KiB.
pub const REGIONS_MAX: usize = 1024;

/// What the pages of a region hold before the program writes to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A segment of the program file.
    File {
        /// Add this to an address (wrapping) to get its offset in the file.
        shift: u64,
        /// Address where the bytes from the file end; zeros from here on.
        file_end: u64,
        /// What retention may do with the pages.
        class: Class,
    },
    /// An object of the node's store.
    Object {
        /// Which of the program's files.
        file: u16,
        /// Changes are seen by others: there can be none.
        shared: bool,
        /// Add this to an address (wrapping) to get its offset in the file.
        shift: u64,
        /// Address behind the last page with bytes of the file; nothing is there from here on.
        file_end: u64,
    },
    /// A shared memory object of the program.
    SharedMemory {
        /// Which of them.
        object: u16,
        /// What is written is seen by all mappings; else it is a copy.
        shared: bool,
        /// It was opened to be written: it may become writable.
        may_write: bool,
        /// Add this to an address (wrapping) to get its offset in the object.
        shift: u64,
    },
    /// Zeros: mmap.
    Anonymous {
        /// Large pages may be used for it.
        large: bool,
        /// What a file held is in it, as a shared mapping: it is never written again, since the
        /// file would have to change.
        sealed: bool,
    },
    /// Zeros: brk.
    Heap,
    /// Zeros: the stack.
    Stack,
    /// Never anything: below the stack.
    Guard,
}

/// A range of pages with one protection and one origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// First address.
    pub start: u64,
    /// End.
    pub end: u64,
    /// What the program may do.
    pub protection: Protection,
    /// What the pages hold.
    pub kind: Kind,
}

/// A range of pages, from `start` to `end`; empty when they are equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// First address.
    pub start: u64,
    /// End.
    pub end: u64,
}

impl Pages {
    /// Whether there is no page in the range.
    pub fn is_empty(&self) -> bool {
        self.start >= self.end
    }
}

/// The regions of one program.
#[derive(Clone, Debug)]
pub struct Space {
    /// Regions by start: end, protection, kind.
    regions: BTreeMap<u64, (u64, Protection, Kind)>,
    heap_start: u64,
    /// The exact value of the program break.
    heap_end: u64,
    /// Largest single writable mapping in bytes: the memory of the node.
    memory_bytes: u64,
    /// What the program wants to have mapped at most.
    pub limits: Limits,
}

/// How many bytes a program may have mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// In all, but for the stack's guard.
    pub all: u64,
    /// That it may write to and does not share: data, heap, mappings.
    pub data: u64,
}

impl Limits {
    const NONE: Self = Self {
        all: u64::MAX,
        data: u64::MAX,
    };
}

impl Region {
    /// Whether it counts as data.
    fn is_data(&self) -> bool {
        let is_shared = matches!(self.kind, Kind::SharedMemory { shared: true, .. });
        self.protection == Protection::ReadWrite && self.kind != Kind::Stack && !is_shared
    }
}

impl Space {
    /// The space of a program that is about to start: its segments, an empty heap behind them, a
    /// stack and the guard below it. `memory_bytes` is the memory of the node; without `pristine`
    /// data pages are the program's own from the start.
    pub fn new(image: &Image, memory_bytes: u64, pristine: bool) -> Self {
        let mut space = Self {
            regions: BTreeMap::new(),
            heap_start: image.end(),
            heap_end: image.end(),
            memory_bytes,
            limits: Limits::NONE,
        };
        for segment in &image.segments {
            let class = match segment.class {
                Class::FileData if !pristine => Class::Private,
                class => class,
            };
            let kind = Kind::File {
                shift: segment.offset.wrapping_sub(segment.start),
                file_end: segment.file_end,
                class,
            };
            space.put(segment.start, segment.end, segment.protection, kind);
        }
        let stack = layout::STACK_TOP - layout::STACK_BYTES;
        let guard = stack - layout::STACK_GUARD_BYTES;
        space.put(stack, layout::STACK_TOP, Protection::ReadWrite, Kind::Stack);
        space.put(guard, stack, Protection::None, Kind::Guard);
        space
    }

    /// The region that holds `address`.
    pub fn find(&self, address: u64) -> Option<Region> {
        let (&start, &(end, protection, kind)) = self.regions.range(..=address).next_back()?;
        (address < end).then_some(Region {
            start,
            end,
            protection,
            kind,
        })
    }

    /// All regions in ascending order.
    pub fn regions(&self) -> impl Iterator<Item = Region> + '_ {
        self.regions
            .iter()
            .map(|(&start, &(end, protection, kind))| Region {
                start,
                end,
                protection,
                kind,
            })
    }

    /// Number of regions.
    pub fn len(&self) -> usize {
        self.regions.len()
    }

    /// Whether there is no region, which no running program has.
    pub fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }

    /// Adds a region where there is none.
    fn put(&mut self, start: u64, end: u64, protection: Protection, kind: Kind) {
        debug_assert!(start < end && start.is_multiple_of(PAGE_SIZE));
        debug_assert!(self.is_free(start, end));
        self.regions.insert(start, (end, protection, kind));
    }

    /// Whether the program may have these pages mapped, instead of what is there now.
    fn may_have(&self, pages: Pages, is_data: bool) -> bool {
        if self.limits == Limits::NONE {
            return true;
        }
        let length = pages.end.saturating_sub(pages.start);
        let (mut all, mut data) = (length, if is_data { length } else { 0 });
        for region in self.regions().filter(|region| region.kind != Kind::Guard) {
            let inside = region.end.min(pages.end);
            let inside = inside.saturating_sub(region.start.max(pages.start));
            let kept = region.end - region.start - inside;
            all += kept;
            data += if region.is_data() { kept } else { 0 };
        }
        all <= self.limits.all && (!is_data || data <= self.limits.data)
    }

    /// Whether no region touches the range.
    fn is_free(&self, start: u64, end: u64) -> bool {
        match self.regions.range(..end).next_back() {
            Some((_, &(last, _, _))) => last <= start,
            None => true,
        }
    }

    /// Makes `at` a boundary between regions.
    fn split(&mut self, at: u64) {
        let Some(region) = self.find(at) else { return };
        if region.start < at {
            let rest = (region.end, region.protection, region.kind);
            self.regions.insert(at, rest);
            self.regions
                .insert(region.start, (at, region.protection, region.kind));
        }
    }

    /// How many regions `split` at both ends of a range would add.
    fn splits(&self, start: u64, end: u64) -> usize {
        let cut = |at: u64| usize::from(self.find(at).is_some_and(|region| region.start < at));
        cut(start) + cut(end)
    }

    /// Removes whatever lies in the range. The caller has checked that the table has room.
    fn remove(&mut self, start: u64, end: u64) {
        self.split(start);
        self.split(end);
        while let Some((&at, _)) = self.regions.range(start..end).next() {
            self.regions.remove(&at);
        }
    }

    /// Joins neighbours that say the same, from the one before `start` to the one at `end`.
    fn join(&mut self, start: u64, end: u64) {
        let mut at = match self.regions.range(..start).next_back() {
            Some((&before, _)) => before,
            None => start,
        };
        while at <= end {
            let Some((&first, &(stop, protection, kind))) = self.regions.range(at..=end).next()
            else {
                return;
            };
            match self.regions.get(&stop) {
                Some(&(next_stop, p, k)) if p == protection && k == kind => {
                    self.regions.remove(&stop);
                    self.regions.insert(first, (next_stop, protection, kind));
                    at = first;
                }
                _ => at = stop,
            }
        }
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rights = match self.protection {
            Protection::None => "---",
            Protection::Read => "r--",
            Protection::ReadWrite => "rw-",
            Protection::ReadExecute => "r-x",
        };
        write!(f, "{:012x}-{:012x} {rights} ", self.start, self.end)?;
        match self.kind {
            Kind::File {
                shift, file_end, ..
            } if file_end > self.start => {
                write!(f, "program+{:#x}", self.start.wrapping_add(shift))
            }
            Kind::File { .. } => f.write_str("bss"),
            Kind::Object { file, shift, .. } => {
                write!(f, "file {file}+{:#x}", self.start.wrapping_add(shift))
            }
            Kind::SharedMemory { object, shift, .. } => {
                let offset = self.start.wrapping_add(shift);
                write!(f, "shared memory {object}+{offset:#x}")
            }
            Kind::Anonymous { .. } => f.write_str("mmap"),
            Kind::Heap => f.write_str("heap"),
            Kind::Stack => f.write_str("stack"),
            Kind::Guard => f.write_str("stack guard"),
        }
    }
}

/// `length` as whole pages from `start` on, `None` when that leaves user space.
fn range(start: u64, length: u64) -> Option<Pages> {
    let end = start.checked_add(page_up(length)?)?;
    (end <= layout::USER_TOP).then_some(Pages { start, end })
}

#[cfg(test)]
mod tests;
