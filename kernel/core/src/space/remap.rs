//! mremap on the regions of a program: a mapping gets another length, or another address.
//!
//! Source: mremap(2). A mapping is a range that lies in one region; where Linux keeps two mappings
//! apart that say the same, a region here is both.

use hearth_abi::errno::Errno;
use hearth_abi::linux::mremap;

use super::{Kind, Pages, REGIONS_MAX, Region, Space, range};
use crate::addr::{PAGE_SIZE, page_up};
use crate::loader::layout;
use crate::paging::entry::Protection;

/// Arguments of mremap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemapRequest {
    /// Where the mapping is.
    pub address: u64,
    /// How long it is, in bytes.
    pub length: u64,
    /// How long it is to be.
    pub new_length: u64,
    /// `mremap::*`.
    pub flags: u64,
    /// Where it is to be, with [`mremap::FIXED`].
    pub new_address: u64,
}

/// What mremap does: to be looked at before, and done by [`Space::remap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remap {
    /// The mapping as it is.
    old: Pages,
    /// The mapping as it will be.
    new: Pages,
    region: Region,
}

impl Remap {
    /// The address of the mapping from now on.
    pub fn address(&self) -> u64 {
        self.new.start
    }

    /// Pages of earlier mappings where it goes to, whose frames are dropped first.
    pub fn replaced(&self) -> Pages {
        match self.moves() {
            true => self.new,
            false => Pages::default(),
        }
    }

    /// Pages at its end that it has no more, whose frames are dropped first.
    pub fn cut(&self) -> Pages {
        Pages {
            start: self.old.start + self.kept(),
            end: self.old.end,
        }
    }

    /// Pages whose frames go to another address, and that address.
    pub fn moved(&self) -> Option<(Pages, u64)> {
        let pages = Pages {
            start: self.old.start,
            end: self.old.start + self.kept(),
        };
        self.moves().then_some((pages, self.new.start))
    }

    fn moves(&self) -> bool {
        self.old.start != self.new.start
    }

    fn kept(&self) -> u64 {
        let length = |pages: Pages| pages.end - pages.start;
        length(self.old).min(length(self.new))
    }

    /// What the pages hold at the new address.
    fn kind(&self) -> Kind {
        let distance = self.new.start.wrapping_sub(self.old.start);
        match self.region.kind {
            Kind::Object {
                file,
                shared,
                shift,
                file_end,
            } => Kind::Object {
                file,
                shared,
                shift: shift.wrapping_sub(distance),
                file_end: file_end.wrapping_add(distance),
            },
            Kind::SharedMemory {
                object,
                shared,
                may_write,
                shift,
            } => Kind::SharedMemory {
                object,
                shared,
                may_write,
                shift: shift.wrapping_sub(distance),
            },
            other => other,
        }
    }
}

impl Space {
    /// What a call of mremap does. EFAULT where the range is no mapping, EINVAL for what is not
    /// mapped by mmap, ENOMEM where there is no room.
    pub fn plan_remap(&self, request: &RemapRequest) -> Result<Remap, Errno> {
        let &RemapRequest {
            address,
            length,
            new_length,
            flags,
            new_address,
        } = request;
        let is_fixed = flags & mremap::FIXED != 0;
        let may_move = flags & mremap::MAYMOVE != 0;
        if flags & !(mremap::MAYMOVE | mremap::FIXED) != 0 || is_fixed && !may_move {
            return Err(Errno::EINVAL);
        }
        // A length of 0 would show shared memory a second time, which there is not.
        if !address.is_multiple_of(PAGE_SIZE) || length == 0 || new_length == 0 {
            return Err(Errno::EINVAL);
        }
        let old = range(address, length).ok_or(Errno::EINVAL)?;
        let grown = page_up(new_length).ok_or(Errno::EINVAL)?;
        let region = self.find(old.start).ok_or(Errno::EFAULT)?;
        if region.end < old.end {
            return Err(Errno::EFAULT);
        }
        let grows = grown > old.end - old.start;
        let is_own = matches!(
            region.kind,
            Kind::Anonymous { .. } | Kind::Object { .. } | Kind::SharedMemory { .. }
        );
        if !is_own && (grows || is_fixed) {
            return Err(Errno::EINVAL);
        }
        if grows && region.protection == Protection::ReadWrite && grown > self.memory_bytes {
            return Err(Errno::ENOMEM);
        }
        // Wherever the new ones are.
        let more = Pages {
            start: 0,
            end: grown.saturating_sub(old.end - old.start),
        };
        if grows && !self.may_have(more, region.is_data()) {
            return Err(Errno::ENOMEM);
        }
        let in_place = range(old.start, grown);
        let new = if is_fixed {
            self.fixed_place(new_address, grown, old)?
        } else if let Some(pages) = in_place.filter(|pages| self.fits(old, *pages, region)) {
            pages
        } else if may_move {
            self.find_gap(grown).ok_or(Errno::ENOMEM)?
        } else {
            return Err(Errno::ENOMEM);
        };
        let splits = self.splits(old.start, old.end) + self.splits(new.start, new.end);
        if self.len() + splits + 1 > REGIONS_MAX {
            return Err(Errno::ENOMEM);
        }
        Ok(Remap { old, new, region })
    }

    /// Does what was planned, with nothing else in between.
    pub fn remap(&mut self, plan: &Remap) {
        let Remap { old, new, region } = *plan;
        if plan.moves() {
            self.remove(new.start, new.end);
        }
        self.remove(old.start, old.end);
        self.put(new.start, new.end, region.protection, plan.kind());
        self.join(new.start, new.end);
    }

    /// Whether a mapping can have these pages where it is: it is cut, or what is behind it is free.
    fn fits(&self, old: Pages, new: Pages, region: Region) -> bool {
        let is_free = region.end == old.end && self.is_free(old.end, new.end);
        new.end <= old.end || is_free
    }

    fn fixed_place(&self, address: u64, length: u64, old: Pages) -> Result<Pages, Errno> {
        let new = range(address, length).filter(|_| address.is_multiple_of(PAGE_SIZE));
        let new = new.ok_or(Errno::EINVAL)?;
        let overlaps = new.start < old.end && old.start < new.end;
        match overlaps || new.start < layout::USER_MIN {
            true => Err(Errno::EINVAL),
            false => Ok(new),
        }
    }
}
