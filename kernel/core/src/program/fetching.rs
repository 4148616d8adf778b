//! Pages of the program file: which to ask for, and putting them into place.

use super::{AHEAD_FRAMES_MIN, Machine, Memory};
use crate::addr::{PAGE_SIZE, VirtAddr};
use crate::fault::{self, Cause, FilePage};
use crate::paging::entry::{Class, Protection};
use crate::phys::PhysMem;
use crate::readahead;
use crate::space::Region;

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
    /// Whether it waits to write to it: it gets its copy at once.
    pub write: bool,
}

impl Fetch {
    /// Address behind the last page.
    pub fn end(&self) -> u64 {
        self.page.as_u64() + self.pages * PAGE_SIZE
    }
}

impl Memory {
    /// Puts fetched pages into place. `bytes` is what was asked for. Pages that have come into
    /// memory meanwhile, or whose region has gone, stay as they are.
    pub fn install<M: Machine>(
        &mut self,
        machine: &mut M,
        fetch: &Fetch,
        bytes: &[u8],
    ) -> Result<(), Cause> {
        self.ahead.arrived(fetch.page.as_u64());
        if (bytes.len() as u64) < fetch.length {
            return Err(Cause::PageUnavailable);
        }
        for (index, data) in bytes.chunks(PAGE_SIZE as usize).enumerate() {
            let page = fetch.page.offset(index as u64 * PAGE_SIZE);
            let first = index == 0 && fetch.demand;
            let there = self.is_here(machine.mem(), page);
            let Some(file) = self.file_page(page).filter(|_| !there) else {
                continue;
            };
            let mut attributes = file.attributes;
            attributes.ahead = !first;
            if !fetch.demand {
                attributes.protection = Protection::None;
            }
            let (data, tail) = data.split_at(data.len().min(file.bytes as usize));
            let fill = |mem: &mut M::Mem, frame| mem.write(frame, data);
            if !self.map_frame(machine, page, attributes, fill) {
                // Reading ahead may fail; only the page that is waited for must be had.
                return if first {
                    Err(Cause::OutOfMemory)
                } else {
                    Ok(())
                };
            }
            match first {
                true => self.counts.asked += 1,
                false => self.counts.ahead += 1,
            }
            match attributes.class {
                Class::Private => self.discarded += 1,
                _ => self.tails.put(file.offset, tail),
            }
            if attributes.class == Class::FileData && first && fetch.write {
                self.copy_pristine(machine, page)?;
            }
        }
        Ok(())
    }

    /// A fetch that could not be had is over.
    pub fn abandon(&mut self, fetch: &Fetch) {
        self.ahead.arrived(fetch.page.as_u64());
    }

    /// The next pages to ask for before the program comes to them, so that the link does not fall
    /// idle while it runs in sequence; `None` when enough is under way or memory is short.
    pub fn plan_ahead<M: Machine>(&mut self, machine: &mut M) -> Option<Fetch> {
        let wanted = self.ahead.wanted()?;
        if self.available(machine) < fault::FRAMES_RESERVED + AHEAD_FRAMES_MIN {
            return None;
        }
        let fetch = self.missing(machine.mem(), wanted.start, wanted.end);
        let end = fetch.map_or(wanted.end, |fetch| fetch.end());
        self.ahead.advance(end);
        self.note(fetch)
    }

    /// The next pages of the range from `start` to `end` that are worth holding (madvise), `None`
    /// when all are in memory, come from no file, or memory is short.
    pub fn plan_hold<M: Machine>(
        &mut self,
        machine: &mut M,
        start: u64,
        end: u64,
    ) -> Option<Fetch> {
        if self.available(machine) < fault::FRAMES_RESERVED + AHEAD_FRAMES_MIN {
            return None;
        }
        let fetch = self.missing(machine.mem(), start, end);
        self.note(fetch)
    }

    /// The fetch for a fault, with as many pages behind it as reading ahead wants.
    pub(super) fn plan_fetch<M: Machine>(
        &mut self,
        machine: &mut M,
        file: FilePage,
        write: bool,
    ) -> Fetch {
        let spare = fault::FRAMES_RESERVED + AHEAD_FRAMES_MIN;
        let limit = match self.space.find(file.page.as_u64()) {
            Some(region) if self.available(machine) > spare => {
                self.run(machine.mem(), &region, file.page, readahead::WINDOW_MAX)
            }
            _ => 1,
        };
        let pages = self.ahead.plan(file.page.as_u64(), limit);
        self.ahead.asked(file.page.as_u64(), pages);
        let mut fetch = self.fetch(file, pages, true);
        fetch.write = write;
        fetch
    }

    /// The first pages in a row between `start` and `end` that come from the file and are neither
    /// in memory nor under way, as a fetch that nobody waits for.
    fn missing(&self, mem: &impl PhysMem, start: u64, end: u64) -> Option<Fetch> {
        let mut at = start;
        while at < end {
            let region = self.space.find(at)?;
            let page = VirtAddr::new(at);
            let readable = region.protection != Protection::None;
            match fault::file_page(&region, page) {
                Some(file) if readable && self.is_missing(mem, page) => {
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

    /// Notes that a fetch is under way from now on.
    fn note(&mut self, fetch: Option<Fetch>) -> Option<Fetch> {
        if let Some(fetch) = fetch {
            self.ahead.asked(fetch.page.as_u64(), fetch.pages);
        }
        fetch
    }

    /// Whether a page is in memory, mapped, held or kept aside.
    pub(super) fn is_here(&self, mem: &impl PhysMem, page: VirtAddr) -> bool {
        self.table.translate(mem, page).is_some() || self.pristine.frame(page).is_some()
    }

    pub(super) fn file_page(&self, page: VirtAddr) -> Option<FilePage> {
        fault::file_page(&self.space.find(page.as_u64())?, page)
    }

    fn fetch(&self, first: FilePage, pages: u64, demand: bool) -> Fetch {
        Fetch {
            page: first.page,
            pages,
            offset: first.offset,
            length: (pages * PAGE_SIZE).min(self.program.image.file_bytes - first.offset),
            demand,
            write: false,
        }
    }

    fn is_missing(&self, mem: &impl PhysMem, page: VirtAddr) -> bool {
        !self.is_here(mem, page) && self.ahead.in_flight(page.as_u64()).is_none()
    }

    /// Pages in a row from `page` on, at most `limit`, that come from the file and are neither in
    /// memory nor under way.
    fn run(&self, mem: &impl PhysMem, region: &Region, page: VirtAddr, limit: u64) -> u64 {
        let missing = |&index: &u64| {
            let next = page.offset(index * PAGE_SIZE);
            next.as_u64() < region.end
                && fault::file_page(region, next).is_some()
                && self.is_missing(mem, next)
        };
        (1..limit).take_while(missing).count() as u64 + 1
    }
}
