//! brk, mmap, munmap and mprotect on the regions of a program.
//!
//! Semantics are those of Linux as far as static programs with files that are only read need them,
//! with two differences: nothing may become writable and executable (EACCES), and one writable
//! mapping larger than the node's memory is refused at once (ENOMEM), since it could never be used.

use hearth_abi::errno::Errno;
use hearth_abi::linux::{map, prot};

use super::{Kind, Pages, REGIONS_MAX, Space, range};
use crate::addr::{LARGE_PAGE_SIZE, PAGE_SIZE, page_up};
use crate::loader::layout;
use crate::paging::entry::{Class, Protection};

/// Words of shared memory objects have numbers that are no addresses of a program: the object's
/// number, and the offset below it.
const SHARED_WORDS: u64 = 1 << 63;
const OBJECT_SHIFT: u32 = 40;

/// Arguments of mmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapRequest {
    /// Wanted address, or 0.
    pub address: u64,
    /// Length in bytes.
    pub length: u64,
    /// `prot::*`.
    pub protection: u64,
    /// `map::*`.
    pub flags: u64,
    /// File descriptor, for mappings that are not anonymous.
    pub fd: i32,
}

/// What a mapping shows of one of the program's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileMap {
    /// Which of them.
    pub file: u16,
    /// Its length in bytes.
    pub bytes: u64,
    /// Where the mapping begins in it.
    pub offset: u64,
}

/// What a mapping shows of one of the program's shared memory objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedMemoryMap {
    /// Which of them.
    pub object: u16,
    /// It was opened to be written.
    pub may_write: bool,
    /// Where the mapping begins in it.
    pub offset: u64,
}

/// A mapping that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapped {
    /// Its address.
    pub address: u64,
    /// Pages of earlier mappings that it replaced: their frames must be dropped.
    pub replaced: Pages,
}

/// The protection asked for by a program; EACCES for writable and executable.
pub fn protection(bits: u64) -> Result<Protection, Errno> {
    let bits = bits & prot::ALL;
    match (bits & prot::WRITE != 0, bits & prot::EXEC != 0) {
        (true, true) => Err(Errno::EACCES),
        (true, false) => Ok(Protection::ReadWrite),
        (false, true) => Ok(Protection::ReadExecute),
        (false, false) if bits & prot::READ != 0 => Ok(Protection::Read),
        (false, false) => Ok(Protection::None),
    }
}

/// Whether a mapping of a file is shared, and its protection.
fn of_file(request: &MapRequest, offset: u64) -> Result<(bool, Protection), Errno> {
    let shared = request.flags & map::SHARED != 0;
    let typed = request.flags & (map::SHARED | map::PRIVATE) != 0;
    if request.length == 0 || !typed || !offset.is_multiple_of(PAGE_SIZE) {
        return Err(Errno::EINVAL);
    }
    let length = page_up(request.length).filter(|length| *length <= layout::USER_TOP);
    let length = length.ok_or(Errno::ENOMEM)?;
    let behind = offset.checked_add(length).ok_or(Errno::EOVERFLOW)?;
    if i64::try_from(behind).is_err() {
        return Err(Errno::EOVERFLOW);
    }
    Ok((shared, protection(request.protection)?))
}

impl Space {
    /// Moves the program break to exactly `wanted`; when that cannot be, or for 0, it stays where
    /// it is. Returns the break and the pages that lie above it now.
    pub fn brk(&mut self, wanted: u64) -> (u64, Pages) {
        let nothing = Pages::default();
        let (Some(old), Some(new)) = (page_up(self.heap_end), page_up(wanted)) else {
            return (self.heap_end, nothing);
        };
        if wanted < self.heap_start {
            return (self.heap_end, nothing);
        }
        if new < old {
            if self.len() + self.splits(new, old) > REGIONS_MAX {
                return (self.heap_end, nothing);
            }
            self.remove(new, old);
            self.heap_end = wanted;
            let released = Pages {
                start: new,
                end: old,
            };
            return (wanted, released);
        }
        if new > old {
            let fits = new <= layout::MMAP_TOP
                && new - old <= self.memory_bytes
                && self.is_free(old, new)
                && self.len() < REGIONS_MAX
                && self.may_have(
                    Pages {
                        start: old,
                        end: new,
                    },
                    true,
                );
            if !fits {
                return (self.heap_end, nothing);
            }
            self.put(old, new, Protection::ReadWrite, Kind::Heap);
            self.join(old, new);
        }
        self.heap_end = wanted;
        (wanted, nothing)
    }

    /// Makes a mapping that is anonymous; one of a stream is ENODEV.
    pub fn mmap(&mut self, request: MapRequest) -> Result<Mapped, Errno> {
        let protection = protection(request.protection)?;
        if request.length == 0 || request.flags & (map::SHARED | map::PRIVATE) == 0 {
            return Err(Errno::EINVAL);
        }
        if request.flags & map::ANONYMOUS == 0 {
            let standard_stream = (0..=2).contains(&request.fd);
            return Err(if standard_stream {
                Errno::ENODEV
            } else {
                Errno::EBADF
            });
        }
        // Stacks are touched at one end.
        let large = request.flags & map::STACK == 0;
        self.add(&request, protection, |_| Kind::Anonymous {
            large,
            sealed: false,
        })
    }

    /// Makes a mapping of a file, which was opened for reading: shared and writable is EACCES.
    pub fn mmap_file(&mut self, request: MapRequest, file: FileMap) -> Result<Mapped, Errno> {
        let (shared, protection) = of_file(&request, file.offset)?;
        if shared && protection == Protection::ReadWrite {
            return Err(Errno::EACCES);
        }
        let file_pages = page_up(file.bytes).ok_or(Errno::EOVERFLOW)?;
        self.add(&request, protection, |start| Kind::Object {
            file: file.file,
            shared,
            shift: file.offset.wrapping_sub(start),
            file_end: start.saturating_add(file_pages.saturating_sub(file.offset)),
        })
    }

    /// Makes a mapping of a shared memory object, which was opened for reading at least.
    pub fn mmap_shared_memory(
        &mut self,
        request: MapRequest,
        map: SharedMemoryMap,
    ) -> Result<Mapped, Errno> {
        let (shared, protection) = of_file(&request, map.offset)?;
        if shared && protection == Protection::ReadWrite && !map.may_write {
            return Err(Errno::EACCES);
        }
        self.add(&request, protection, |start| Kind::SharedMemory {
            object: map.object,
            shared,
            may_write: map.may_write,
            shift: map.offset.wrapping_sub(start),
        })
    }

    /// Where the pages of a shared memory object from number `first` on are mapped.
    pub fn shows_of(&self, object: u16, first: u64) -> impl Iterator<Item = Pages> + '_ {
        self.regions().filter_map(move |region| match region.kind {
            Kind::SharedMemory {
                object: other,
                shift,
                ..
            } if other == object => {
                let offset = region.start.wrapping_add(shift);
                let hidden = (first * PAGE_SIZE).saturating_sub(offset);
                let start = region.start.saturating_add(hidden).min(region.end);
                let end = region.end;
                Some(Pages { start, end }).filter(|pages| !pages.is_empty())
            }
            _ => None,
        })
    }

    /// The word of memory that is at an address, by a number that is the same wherever a shared
    /// memory object is mapped: what threads wait at is this.
    pub fn word(&self, address: u64) -> u64 {
        match self.find(address).map(|region| region.kind) {
            Some(Kind::SharedMemory {
                object,
                shared: true,
                shift,
                ..
            }) => SHARED_WORDS | u64::from(object) << OBJECT_SHIFT | address.wrapping_add(shift),
            _ => address,
        }
    }

    /// Adds a region for what `request` asks; `kind` is told where it begins.
    fn add(
        &mut self,
        request: &MapRequest,
        protection: Protection,
        kind: impl FnOnce(u64) -> Kind,
    ) -> Result<Mapped, Errno> {
        let pages = self.place(request)?;
        let is_shared = request.flags & map::SHARED != 0;
        if !self.may_have(pages, protection == Protection::ReadWrite && !is_shared) {
            return Err(Errno::ENOMEM);
        }
        if self.len() + self.splits(pages.start, pages.end) + 1 > REGIONS_MAX {
            return Err(Errno::ENOMEM);
        }
        let was_free = self.is_free(pages.start, pages.end);
        if !was_free {
            self.remove(pages.start, pages.end);
        }
        self.put(pages.start, pages.end, protection, kind(pages.start));
        self.join(pages.start, pages.end);
        Ok(Mapped {
            address: pages.start,
            replaced: if was_free { Pages::default() } else { pages },
        })
    }

    /// Removes mappings; the frames of the returned pages must be dropped.
    pub fn munmap(&mut self, address: u64, length: u64) -> Result<Pages, Errno> {
        if length == 0 || !address.is_multiple_of(PAGE_SIZE) {
            return Err(Errno::EINVAL);
        }
        let pages = range(address, length).ok_or(Errno::EINVAL)?;
        if self.len() + self.splits(pages.start, pages.end) > REGIONS_MAX {
            return Err(Errno::ENOMEM);
        }
        self.remove(pages.start, pages.end);
        Ok(pages)
    }

    /// Changes the protection of pages; those that are mapped must follow. Holes in the range are
    /// ENOMEM, as on Linux, but unlike there nothing is changed then.
    pub fn mprotect(
        &mut self,
        address: u64,
        length: u64,
        bits: u64,
    ) -> Result<(Pages, Protection), Errno> {
        if !address.is_multiple_of(PAGE_SIZE) || bits & !prot::ALL != 0 {
            return Err(Errno::EINVAL);
        }
        let protection = protection(bits)?;
        let pages = range(address, length).ok_or(Errno::ENOMEM)?;
        if pages.is_empty() {
            return Ok((pages, protection));
        }
        if !self.is_covered(pages) {
            return Err(Errno::ENOMEM);
        }
        if protection == Protection::ReadWrite && self.shows_shared(pages) {
            return Err(Errno::EACCES);
        }
        // All of it counts as data then, be it shared or not, which Linux has more exactly.
        if protection == Protection::ReadWrite && !self.may_have(pages, true) {
            return Err(Errno::ENOMEM);
        }
        if self.len() + self.splits(pages.start, pages.end) > REGIONS_MAX {
            return Err(Errno::ENOMEM);
        }
        self.split(pages.start);
        self.split(pages.end);
        for (_, entry) in self.regions.range_mut(pages.start..pages.end) {
            entry.1 = protection;
            if let (Kind::File { class, .. }, Protection::ReadWrite) = (&mut entry.2, protection)
                && *class != Class::FileData
            {
                // A page that was ever writable is not retained. Of data pages it is only the copy
                // that is ever writable.
                *class = Class::Private;
            }
        }
        self.join(pages.start, pages.end);
        Ok((pages, protection))
    }

    /// Has anonymous memory be read only for good: what a file held has been copied into it.
    pub fn seal(&mut self, address: u64, length: u64) -> Result<(), Errno> {
        let pages = range(address, length).ok_or(Errno::ENOMEM)?;
        if self.len() + self.splits(pages.start, pages.end) > REGIONS_MAX {
            return Err(Errno::ENOMEM);
        }
        self.split(pages.start);
        self.split(pages.end);
        for (_, entry) in self.regions.range_mut(pages.start..pages.end) {
            if let Kind::Anonymous { sealed, .. } = &mut entry.2 {
                *sealed = true;
            }
        }
        self.join(pages.start, pages.end);
        Ok(())
    }

    /// Whether a range holds nothing but anonymous memory, as what may be freed must (MADV_FREE):
    /// EINVAL where it does not, ENOMEM where nothing is mapped.
    pub fn check_anonymous(&self, address: u64, length: u64) -> Result<(), Errno> {
        let end = address.checked_add(length).ok_or(Errno::EINVAL)?;
        let mut at = address;
        while at < end {
            let region = self.find(at).ok_or(Errno::ENOMEM)?;
            match region.kind {
                Kind::Anonymous { .. } | Kind::Heap | Kind::Stack => at = region.end,
                Kind::File { .. }
                | Kind::Object { .. }
                | Kind::SharedMemory { .. }
                | Kind::Guard => return Err(Errno::EINVAL),
            }
        }
        Ok(())
    }

    /// Whether every page of the range belongs to a region, and none to the stack's guard. The
    /// guard is there against mistakes: mprotect does not open it, but a program that unmaps it or
    /// maps over it with MAP_FIXED has done so on purpose and to itself alone.
    fn is_covered(&self, pages: Pages) -> bool {
        let mut at = pages.start;
        while at < pages.end {
            match self.find(at) {
                Some(region) if region.kind != Kind::Guard => at = region.end,
                _ => return false,
            }
        }
        true
    }

    /// Whether all between two multiples of a page is mapped.
    pub fn is_mapped(&self, start: u64, end: u64) -> bool {
        self.is_covered(Pages { start, end })
    }

    /// Whether a file that may not be written is mapped shared somewhere in a range that regions
    /// cover.
    fn shows_shared(&self, pages: Pages) -> bool {
        let first = self.find(pages.start).into_iter();
        let rest = self.regions.range(pages.start..pages.end);
        let mut kinds = first
            .map(|region| region.kind)
            .chain(rest.map(|(_, &(_, _, kind))| kind));
        kinds.any(|kind| match kind {
            Kind::Anonymous { sealed, .. } => sealed,
            Kind::Object { shared, .. } => shared,
            Kind::SharedMemory {
                shared, may_write, ..
            } => shared && !may_write,
            _ => false,
        })
    }

    /// Finds the pages for a mapping.
    fn place(&self, request: &MapRequest) -> Result<Pages, Errno> {
        let &MapRequest {
            address,
            mut length,
            flags,
            ..
        } = request;
        // It is in large pages if the node has room for them.
        let align = match flags & map::HUGETLB != 0 {
            true => LARGE_PAGE_SIZE,
            false => PAGE_SIZE,
        };
        if align > PAGE_SIZE {
            let whole = length.checked_next_multiple_of(align);
            length = whole.ok_or(Errno::ENOMEM)?;
        }
        let commits = request.protection & prot::WRITE != 0 && flags & map::NORESERVE == 0;
        if commits && length > self.memory_bytes {
            return Err(Errno::ENOMEM);
        }
        if flags & (map::FIXED | map::FIXED_NOREPLACE) != 0 {
            if !address.is_multiple_of(align) {
                return Err(Errno::EINVAL);
            }
            if address < layout::USER_MIN {
                return Err(Errno::EPERM);
            }
            let pages = range(address, length).ok_or(Errno::ENOMEM)?;
            if flags & map::FIXED_NOREPLACE != 0 && !self.is_free(pages.start, pages.end) {
                return Err(Errno::EEXIST);
            }
            return Ok(pages);
        }
        if let Some(pages) = range(address & !(align - 1), length) {
            let usable = pages.start >= layout::USER_MIN && pages.end <= layout::MMAP_TOP;
            if usable && self.is_free(pages.start, pages.end) {
                return Ok(pages);
            }
        }
        self.find_gap(length).ok_or(Errno::ENOMEM)
    }

    /// The highest gap below [`layout::MMAP_TOP`] with room for `length` bytes. What has a large
    /// page's length begins at a multiple of it.
    pub(super) fn find_gap(&self, length: u64) -> Option<Pages> {
        let length = page_up(length)?;
        let align = match length {
            LARGE_PAGE_SIZE.. => LARGE_PAGE_SIZE,
            _ => PAGE_SIZE,
        };
        let start_below = |top: u64| Some(top.checked_sub(length)? & !(align - 1));
        let mut top = layout::MMAP_TOP;
        for (&start, &(end, _, _)) in self.regions.range(..layout::MMAP_TOP).rev() {
            if start_below(top).is_some_and(|start| start >= end) {
                break;
            }
            top = top.min(start);
        }
        let start = start_below(top)?;
        let end = start + length;
        (start >= layout::USER_MIN).then_some(Pages { start, end })
    }
}
