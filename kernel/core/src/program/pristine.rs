//! Pages of writable segments as the file has them: mapped read-only until the program writes, then
//! kept aside while it goes on with a copy.
//!
//! Invariant: a frame in the list is mapped nowhere and was never mapped writable.

use alloc::vec::Vec;

use super::{AHEAD_FRAMES_MIN, Machine, Memory, Steps, ends, frames_left};
use crate::addr::{PhysAddr, USER_END, VirtAddr};
use crate::fault::{self, Cause};
use crate::frames::{Deferring, Frame, FrameAllocator, State};
use crate::loader::SEGMENTS_MAX;
use crate::paging::entry::{Attributes, Class, Protection};
use crate::paging::{Fate, PageSize};
use crate::phys::PhysMem;
use crate::retention::frames_of;
use crate::space::Pages;

/// Pages that are kept aside at most: 32 MiB of data, and 128 KiB of the kernel's heap. Measured
/// programs write to 6 to 14; what is more is fetched again at the next launch.
pub const PRISTINE_MAX: usize = 8192;

/// The lower half.
const ALL: Pages = Pages {
    start: 0,
    end: USER_END,
};

/// Frames that hold what the file holds, of pages that the program has a copy of.
#[derive(Debug, Default)]
pub(super) struct Pristine {
    /// Rising by page.
    frames: Vec<(VirtAddr, PhysAddr)>,
}

impl Pristine {
    /// The frame that was kept aside of a page.
    pub(super) fn frame(&self, page: VirtAddr) -> Option<PhysAddr> {
        let index = self.index(page).ok()?;
        Some(self.frames[index].1)
    }

    /// Everything that was kept aside; the list is empty afterwards.
    pub(super) fn take_all(&mut self) -> Vec<(VirtAddr, PhysAddr)> {
        core::mem::take(&mut self.frames)
    }

    /// Pages kept aside.
    pub(super) fn len(&self) -> u64 {
        self.frames.len() as u64
    }

    /// Makes room for one more; `false` when there is none.
    fn reserve(&mut self) -> bool {
        self.frames.len() < PRISTINE_MAX && self.frames.try_reserve(1).is_ok()
    }

    fn put(&mut self, page: VirtAddr, frame: PhysAddr) {
        match self.index(page) {
            Ok(_) => panic!("{page:?} was kept aside twice"),
            Err(index) => self.frames.insert(index, (page, frame)),
        }
    }

    fn take(&mut self, page: VirtAddr) -> Option<PhysAddr> {
        let index = self.index(page).ok()?;
        Some(self.frames.remove(index).1)
    }

    fn index(&self, page: VirtAddr) -> Result<usize, usize> {
        self.frames.binary_search_by_key(&page, |&(page, _)| page)
    }
}

/// What the file has behind the end of a writable segment in its last page. The program sees zeros
/// there, but the page's hash covers it.
#[derive(Debug, Default)]
pub(crate) struct Tails(Vec<(u64, Vec<u8>)>);

impl Tails {
    /// Keeps what follows in the page at this offset of the file. Without memory for it the page
    /// cannot be checked later, nothing else.
    pub(super) fn put(&mut self, offset: u64, tail: &[u8]) {
        let known = self.get(offset).is_some() || self.0.len() >= SEGMENTS_MAX;
        let mut bytes = Vec::new();
        if tail.is_empty() || known || bytes.try_reserve_exact(tail.len()).is_err() {
            return;
        }
        bytes.extend_from_slice(tail);
        if self.0.try_reserve(1).is_ok() {
            self.0.push((offset, bytes));
        }
    }

    /// What was kept of the page at this offset of the file.
    pub(crate) fn get(&self, offset: u64) -> Option<&[u8]> {
        let (_, tail) = self.0.iter().find(|(at, _)| *at == offset)?;
        Some(tail)
    }
}

impl Memory {
    /// Gives the program a copy of a data page to write to and keeps the page aside. When memory is
    /// short it gets the page itself, which is then not retained.
    pub(super) fn copy_pristine<M: Machine>(
        &mut self,
        machine: &mut M,
        page: VirtAddr,
    ) -> Result<(), Cause> {
        let leaf = self.table.translate(machine.mem(), page);
        let leaf = leaf.expect("a page to copy is in memory");
        let warm = machine.with(|_, frames| frames.state(leaf.frame).0 == State::Retained);
        if warm && self.committed() >= self.pages_max {
            // The copy is the program's own, the page was not.
            return Err(Cause::OutOfMemory);
        }
        let room = frames_left(machine) > fault::FRAMES_RESERVED + AHEAD_FRAMES_MIN
            && self.committed() < self.pages_max;
        let copy = match self.policy.pristine && room && self.pristine.reserve() {
            true => machine.with(|mem, frames| frames.alloc(mem, self.owner)),
            false => None,
        };
        match copy {
            Some(copy) => {
                machine.mem().copy_frame(leaf.frame, copy.address());
                self.replace(machine, page, copy);
                self.pristine.put(page, leaf.frame);
                self.counts.used += u64::from(leaf.attributes.ahead);
            }
            None => {
                machine.with(|_, frames| frames.take(leaf.frame));
                let changed = self
                    .table
                    .protect(machine.mem(), page, Protection::ReadWrite);
                changed.expect("the page is mapped");
                self.discarded += 1;
                if leaf.attributes.protection != Protection::None {
                    machine.invalidate(page, page);
                }
            }
        }
        if warm {
            self.warm -= 1;
            self.pages += 1;
        }
        self.charge(0);
        Ok(())
    }

    /// What is kept aside, for tests.
    #[cfg(test)]
    pub(crate) fn aside(&self) -> &[(VirtAddr, PhysAddr)] {
        &self.pristine.frames
    }

    /// Maps a page again that was kept aside, after its copy was dropped; `false` when it was not
    /// kept or there is no frame for a table.
    pub(super) fn map_pristine<M: Machine>(
        &mut self,
        machine: &mut M,
        page: VirtAddr,
        attributes: Attributes,
    ) -> bool {
        let Some(frame) = self.pristine.frame(page) else {
            return false;
        };
        debug_assert_ne!(attributes.protection, Protection::ReadWrite);
        if !self.map_to(machine, (page, PageSize::Small), frame, attributes) {
            return false;
        }
        self.pristine.take(page);
        match machine.with(|_, frames| frames.state(frame).0) {
            State::Retained => self.warm += 1,
            _ => self.charge(1),
        }
        true
    }

    /// Gives back what the program holds only for later: pages kept aside for its next launch; and,
    /// when the machine is short of memory, pages of the file that came with a warm table and were
    /// not used in this run.
    pub(super) fn shed<M: Machine>(&mut self, machine: &mut M) {
        let aside = self.pristine.take_all();
        machine.with(|_, frames| {
            for &(_, frame) in &aside {
                free_of(frames, frame);
            }
        });
        self.discarded += aside.len() as u64;
        // What was used stays so, and no page becomes warm in a run: once is enough.
        let short = frames_left(machine) <= fault::FRAMES_RESERVED;
        if short && self.warm > 0 && !self.shed {
            self.shed = true;
            self.shed_unused(machine);
        }
    }

    fn shed_unused<M: Machine>(&mut self, machine: &mut M) {
        let table = self.table;
        let mut steps = Steps::new(table, ends(ALL));
        while let Some((first, last)) = steps.next(machine) {
            let mut pages = 0;
            machine.with(|mem, frames| {
                let tables = &mut Deferring(frames);
                table.classify(mem, tables, (first, last), |Deferring(frames), leaf| {
                    let class = leaf.attributes.class;
                    let warm = frames.state(leaf.frame).0 == State::Retained;
                    if !warm || leaf.accessed || class == Class::Private {
                        return Fate::Keep;
                    }
                    for frame in frames_of(&leaf) {
                        frames.defer_free(Frame::from_entry(frame));
                        pages += 1;
                    }
                    Fate::Remove
                });
            });
            self.discarded += pages;
            if pages > 0 {
                machine.invalidate(first, last);
                self.free_deferred(machine);
            }
        }
    }
}

/// Gives back a frame of a running program; returns whether it was launched on it.
pub(super) fn free_of(frames: &mut FrameAllocator, frame: PhysAddr) -> bool {
    let warm = frames.take(frame);
    frames.free(Frame::from_entry(frame));
    warm
}
