//! Large pages for data: 2 MiB of a program's own memory mapped at its first touch.
//!
//! Where the 2 MiB around a first touch are the program's own and writable, and nothing of them is
//! there yet, one entry maps them all: one fault instead of 512, and one entry of the TLB. What
//! changes only a part of a large page splits it first.
//!
//! Invariant: a program never fails for want of a large page. It gets small ones once half of the
//! node's memory is in use, since a program that touches little of much would run out of memory
//! early, and once there were no frames in a row, since looking for them takes time in proportion
//! to the memory.

use super::{Machine, Memory, frames_left};
use crate::addr::{LARGE_PAGE_SIZE, PAGE_SIZE, VirtAddr};
use crate::fault::{self, Access, Decision};
use crate::paging::PageSize;
use crate::paging::entry::Attributes;
use crate::space::Pages;
use hearth_abi::errno::Errno;

/// Small pages in a large one.
const IN_LARGE: u64 = LARGE_PAGE_SIZE / PAGE_SIZE;

impl Memory {
    /// Maps the large page around `page`, zeros; `false` where that is not to be, or cannot.
    pub(super) fn map_large<M: Machine>(
        &mut self,
        machine: &mut M,
        page: VirtAddr,
        attributes: Attributes,
    ) -> bool {
        let page = VirtAddr::new(page.as_u64() & !(LARGE_PAGE_SIZE - 1));
        if !self.may_be_large(machine, page) {
            return false;
        }
        let owner = self.owner;
        let run = machine
            .with(|mem, frames| frames.alloc_contiguous(mem, IN_LARGE, LARGE_PAGE_SIZE, owner));
        let Some(run) = run else {
            self.seeks_rows = false;
            return false;
        };
        if !self.map_to(machine, (page, PageSize::Large), run, attributes) {
            machine.with(|_, frames| frames.free_contiguous(run, IN_LARGE));
            return false;
        }
        self.large += 1;
        self.charge(IN_LARGE);
        true
    }

    /// Whether the node has room for a large page at `page`.
    fn may_be_large<M: Machine>(&self, machine: &mut M, page: VirtAddr) -> bool {
        let total = machine.with(|_, frames| frames.usage().total);
        let room = frames_left(machine) >= total / 2 + IN_LARGE
            && self.pages_max.saturating_sub(self.committed()) >= IN_LARGE;
        // A table of the last level is there for small pages only.
        room && self.seeks_rows && !self.table.has_last_table(machine.mem(), page)
    }

    /// How many frames a first touch of `address` gets that are to be zeroed before: 0 where it is
    /// none, or where they are zero-filled.
    pub fn unzeroed<M: Machine>(&self, machine: &mut M, address: u64, access: Access) -> u64 {
        let mem = machine.mem();
        let leaf = VirtAddr::try_new(address).and_then(|at| self.table.translate(mem, at));
        let available = self.available(machine);
        let decision = fault::decide(&self.space, address, access, leaf, available);
        let Decision::ZeroFill { page, large, .. } = decision else {
            return 0;
        };
        let count = match large && self.may_be_large(machine, page) {
            true => IN_LARGE,
            false => 1,
        };
        match machine.with(|_, frames| frames.is_next_zeroed(count)) {
            true => 0,
            false => count,
        }
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
    /// large page: splits those that lie in the range only in part.
    pub(super) fn cut_large<M: Machine>(&mut self, machine: &mut M, pages: Pages) {
        for edge in [pages.start, pages.end] {
            if self.large == 0 {
                return;
            }
            let at = VirtAddr::try_new(edge).filter(|at| at.is_user());
            let leaf = at.and_then(|at| self.table.translate(machine.mem(), at));
            let cuts =
                leaf.filter(|leaf| leaf.size == PageSize::Large && leaf.page.as_u64() != edge);
            if let Some(leaf) = cuts {
                self.split_large(machine, leaf.page);
            }
        }
    }

    /// Makes 512 small pages of a large one; the caller has looked for room for a table.
    fn split_large<M: Machine>(&mut self, machine: &mut M, page: VirtAddr) {
        let split = machine.with(|mem, frames| self.table.demote(mem, frames, page));
        split.expect("room for tables was looked for before");
        self.large -= 1;
        self.tables += 1;
        machine.invalidate(page, page.offset(LARGE_PAGE_SIZE - 1));
    }

    /// Splits all large pages of a range, which are to be where none can be; ENOMEM without room
    /// for the tables.
    pub(super) fn split_all<M: Machine>(
        &mut self,
        machine: &mut M,
        pages: Pages,
    ) -> Result<(), Errno> {
        let mut at = pages.start & !(LARGE_PAGE_SIZE - 1);
        while self.large > 0 && at < pages.end {
            let page = VirtAddr::new(at);
            let leaf = self.table.translate(machine.mem(), page);
            if leaf.is_some_and(|leaf| leaf.size == PageSize::Large) {
                if frames_left(machine) < 2 {
                    return Err(Errno::ENOMEM);
                }
                self.split_large(machine, page);
            }
            at += LARGE_PAGE_SIZE;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
