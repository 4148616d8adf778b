//! Text in large pages: frames reserved so that small pages can become one large page.
//!
//! The scheme is that of Navarro, Iyer, Druschel and Cox, "Practical, transparent operating system
//! support for superpages" (OSDI 2002), for executable segments alone. The first fault in an
//! aligned 2 MiB that lies wholly in the segment's part of the file reserves a run of frames; each
//! page of it goes to its place in the run; when all are there the 512 entries become one
//! (promotion). What changes only a part of a large page splits it again first (demotion). Reserved
//! frames that were not filled are given back at the end, or when memory is short.
//!
//! Invariant: a reserved frame that is not taken is mapped nowhere; a large page is promoted only
//! with all of its pages fetched from the file and none of them changed since.

use alloc::vec::Vec;

use super::{Machine, Memory, ends, frames_left};
use crate::addr::{LARGE_PAGE_SIZE, PAGE_SIZE, PhysAddr, VirtAddr};
use crate::frames::FrameAllocator;
use crate::paging::PageSize;
use crate::paging::entry::{Attributes, Class, Protection};
use crate::retention::ROOM_FRAMES;
use crate::space::{Kind, Pages};
use hearth_abi::errno::Errno;

/// Small pages in a large one.
const IN_LARGE: u64 = LARGE_PAGE_SIZE / PAGE_SIZE;
/// Reservations of one program at most: 128 MiB of text, and 6 KiB of the kernel's heap.
const RESERVATIONS_MAX: usize = 64;

/// A run of frames for the pages of one large page.
#[derive(Debug)]
struct Reservation {
    /// First page.
    page: VirtAddr,
    /// First frame.
    run: PhysAddr,
    /// Which frames have become a page's.
    taken: [u64; IN_LARGE as usize / 64],
}

impl Reservation {
    fn pages(&self) -> Pages {
        let start = self.page.as_u64();
        Pages {
            start,
            end: start + LARGE_PAGE_SIZE,
        }
    }

    fn overlaps(&self, pages: Pages) -> bool {
        let own = self.pages();
        own.start < pages.end && pages.start < own.end
    }

    fn is_taken(&self, index: u64) -> bool {
        self.taken[(index / 64) as usize] & 1 << (index % 64) != 0
    }

    fn is_full(&self) -> bool {
        self.taken.iter().all(|&word| word == u64::MAX)
    }

    /// Gives back the frames that are not taken; returns how many.
    fn free(&self, frames: &mut FrameAllocator) -> u64 {
        let spare = (0..IN_LARGE).filter(|&index| !self.is_taken(index));
        spare
            .map(|index| frames.free(self.run.offset(index * PAGE_SIZE)))
            .count() as u64
    }
}

/// The reservations of one program.
#[derive(Debug, Default)]
pub(super) struct Reservations {
    list: Vec<Reservation>,
    /// Frames that are not taken.
    spare: u64,
}

impl Reservations {
    /// Reserved frames that no page has.
    pub(super) fn spare(&self) -> u64 {
        self.spare
    }

    /// Takes the frame that is reserved for a page, if one is.
    fn take(&mut self, page: VirtAddr) -> Option<PhysAddr> {
        let (reservation, index) = self.find(page)?;
        if reservation.is_taken(index) {
            return None;
        }
        reservation.taken[(index / 64) as usize] |= 1 << (index % 64);
        let frame = reservation.run.offset(index * PAGE_SIZE);
        self.spare -= 1;
        Some(frame)
    }

    /// A frame that was taken is not needed after all; `false` when it was not reserved.
    fn untake(&mut self, page: VirtAddr, frame: PhysAddr) -> bool {
        let Some((reservation, index)) = self.find(page) else {
            return false;
        };
        let own = reservation.run.offset(index * PAGE_SIZE) == frame;
        if own {
            reservation.taken[(index / 64) as usize] &= !(1 << (index % 64));
            self.spare += 1;
        }
        own
    }

    fn find(&mut self, page: VirtAddr) -> Option<(&mut Reservation, u64)> {
        let at = page.as_u64();
        let holds = |r: &&mut Reservation| (r.pages().start..r.pages().end).contains(&at);
        let reservation = self.list.iter_mut().find(holds)?;
        let index = (at - reservation.page.as_u64()) / PAGE_SIZE;
        Some((reservation, index))
    }

    /// Ends the reservations that overlap with `pages`.
    fn free_in(&mut self, frames: &mut FrameAllocator, pages: Pages) {
        let spare = &mut self.spare;
        self.list.retain(|reservation| {
            let ends = reservation.overlaps(pages);
            if ends {
                *spare -= reservation.free(frames);
            }
            !ends
        });
    }

    /// Ends all reservations; returns the frames given back.
    pub(super) fn free_all(&mut self, frames: &mut FrameAllocator) -> u64 {
        self.spare = 0;
        self.list.drain(..).map(|r| r.free(frames)).sum()
    }
}

impl Memory {
    /// Reserved frames that no page has, for tests.
    #[cfg(test)]
    pub(crate) fn spare(&self) -> impl Iterator<Item = PhysAddr> + '_ {
        self.reservations.list.iter().flat_map(|r| {
            (0..IN_LARGE)
                .filter(|&index| !r.is_taken(index))
                .map(|index| r.run.offset(index * PAGE_SIZE))
        })
    }

    /// A frame for a page that is to be mapped with these attributes: the one reserved for it, else
    /// any.
    pub(super) fn frame_for<M: Machine>(
        &mut self,
        machine: &mut M,
        page: VirtAddr,
        attributes: Attributes,
    ) -> Option<PhysAddr> {
        if self.policy.large_text && attributes.class == Class::FileExecute {
            self.reserve(machine, page);
            if let Some(frame) = self.reservations.take(page) {
                return Some(frame);
            }
        }
        machine.with(|mem, frames| frames.alloc(mem, self.owner))
    }

    /// A frame that [`Memory::frame_for`] gave is not needed after all.
    pub(super) fn return_frame<M: Machine>(
        &mut self,
        machine: &mut M,
        page: VirtAddr,
        frame: PhysAddr,
    ) {
        if !self.reservations.untake(page, frame) {
            machine.with(|_, frames| frames.free(frame));
        }
    }

    /// Reserves frames for the large page around `page` if it may become one.
    fn reserve<M: Machine>(&mut self, machine: &mut M, page: VirtAddr) {
        let start = page.as_u64() & !(LARGE_PAGE_SIZE - 1);
        let pages = Pages {
            start,
            end: start + LARGE_PAGE_SIZE,
        };
        // No warm program is dropped for it, and it fits the program's limit.
        let room = frames_left(machine) >= ROOM_FRAMES + IN_LARGE
            && self.pages_max.saturating_sub(self.committed()) >= IN_LARGE;
        let known = self.reservations.find(page).is_some();
        if known
            || !room
            || !self.is_text(pages)
            || self.reservations.list.len() >= RESERVATIONS_MAX
        {
            return;
        }
        let (first, last) = ends(pages);
        let mut mapped = false;
        self.table
            .for_each(machine.mem(), first, last, |_| mapped = true);
        if mapped || self.reservations.list.try_reserve(1).is_err() {
            return;
        }
        let owner = self.owner;
        let run = machine
            .with(|mem, frames| frames.alloc_contiguous(mem, IN_LARGE, LARGE_PAGE_SIZE, owner));
        if let Some(run) = run {
            self.reservations.list.push(Reservation {
                page: VirtAddr::new(start),
                run,
                taken: [0; _],
            });
            self.reservations.spare += IN_LARGE;
            self.charge(0);
        }
    }

    /// Whether all of these pages are text as the file has it.
    fn is_text(&self, pages: Pages) -> bool {
        let Some(region) = self.space.find(pages.start) else {
            return false;
        };
        let Kind::File {
            class: Class::FileExecute,
            file_end,
            ..
        } = region.kind
        else {
            return false;
        };
        region.protection == Protection::ReadExecute
            && pages.end <= region.end
            && pages.end - PAGE_SIZE < file_end
    }

    /// Makes one large page of the small ones around `page` if all are there.
    pub(super) fn promote<M: Machine>(&mut self, machine: &mut M, page: VirtAddr) {
        let full = |(r, _): &(&mut Reservation, u64)| r.is_full();
        let Some((reservation, _)) = self.reservations.find(page).filter(full) else {
            return;
        };
        let (pages, start) = (reservation.pages(), reservation.page);
        let (first, last) = ends(pages);
        let attributes = Attributes::user(Protection::ReadExecute, Class::FileExecute);
        let mut used = 0;
        let promoted = machine.with(|mem, frames| {
            self.table.for_each(mem, first, last, |leaf| {
                used += u64::from(leaf.attributes.ahead && leaf.accessed);
            });
            let promoted = self.table.promote(mem, frames, start, attributes);
            self.tables -= 1;
            promoted
        });
        promoted.expect("a full reservation is mapped in order");
        machine.invalidate(first, last);
        // Of pages that are not told apart any more, those used until now.
        self.counts.used += used;
        self.large += 1;
        self.reservations.list.retain(|r| r.page != start);
    }

    /// Whether there are frames for what [`Memory::cut_large`] may have to split; before anything
    /// is changed that needs it.
    pub(super) fn room_to_cut<M: Machine>(&self, machine: &mut M) -> Result<(), Errno> {
        // One table at either end of the range.
        match self.large == 0 || frames_left(machine) >= 2 {
            true => Ok(()),
            false => Err(Errno::ENOMEM),
        }
    }

    /// What is changed in `pages`, a range of the program's regions, shall not change the rest of a
    /// large page: splits those that lie in the range only in part, and ends reservations in it.
    pub(super) fn cut_large<M: Machine>(&mut self, machine: &mut M, pages: Pages) {
        if !self.reservations.list.is_empty() {
            machine.with(|_, frames| self.reservations.free_in(frames, pages));
        }
        for edge in [pages.start, pages.end] {
            if self.large == 0 {
                return;
            }
            let at = VirtAddr::try_new(edge).filter(|at| at.is_user());
            let leaf = at.and_then(|at| self.table.translate(machine.mem(), at));
            let Some(leaf) =
                leaf.filter(|leaf| leaf.size == PageSize::Large && leaf.page.as_u64() != edge)
            else {
                continue;
            };
            let split = machine.with(|mem, frames| self.table.demote(mem, frames, leaf.page));
            split.expect("room for tables was looked for before");
            self.large -= 1;
            self.tables += 1;
            machine.invalidate(leaf.page, leaf.page.offset(LARGE_PAGE_SIZE - 1));
        }
    }
}
