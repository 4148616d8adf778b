//! Which frame holds which page of a file: a tree of tables in frames, 512 entries each, as deep as
//! the file's last page needs. A page that was never written has no frame and reads as zeros.
//!
//! Key types: [`Blocks`] of one file, [`Quota`] of all. Neighbours: [`super::content`] has the
//! bytes; the frames are the node's, as those of [`crate::objects`] are.
//!
//! Invariant: every entry is zero or the address of a frame that is in this entry alone; the quota
//! counts frames of tables and of pages.

use crate::addr::{PAGE_SIZE, PhysAddr};
use crate::fault::FRAMES_RESERVED;
use crate::frames::{Frame, FrameAllocator};
use crate::phys::PhysMem;
use crate::program::Machine;
use hearth_abi::errno::Errno;

/// Entries of a table, and how many bits of a page's number choose one.
const ENTRIES: u64 = PAGE_SIZE / 8;
const ENTRY_BITS: u32 = ENTRIES.trailing_zeros();
/// Frames that must be left for the program whatever it writes: with fewer it would be ended.
const LEFT_FOR_PROGRAM: u64 = 4 * FRAMES_RESERVED;
/// Frames that must be there so that a page can be written: its own, and tables on the way to it.
/// Whoever writes sees to it that what is only kept for later is gone before.
pub const ROOM_FRAMES: u64 = LEFT_FOR_PROGRAM + LEVELS_MOST + 1;
/// Levels of tables that any page number has at most.
const LEVELS_MOST: u64 =
    (u64::BITS as u64 - PAGE_SIZE.trailing_zeros() as u64).div_ceil(ENTRY_BITS as u64);
/// Pages that are given back at a time: others want frames meanwhile.
const CLEARED_AT_A_TIME: u64 = 1 << 18;

/// Frames that all files have, and may have.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Quota {
    pub(super) used: u64,
    pub(super) most: u64,
}

impl Quota {
    /// One more frame, of zeros. ENOSPC where there may be none.
    fn take<M: Machine>(&mut self, machine: &mut M) -> Result<PhysAddr, Errno> {
        if self.used >= self.most {
            return Err(Errno::ENOSPC);
        }
        let frame = machine.with(|mem, frames| {
            let is_short = frames.available() <= LEFT_FOR_PROGRAM;
            (!is_short).then(|| frames.alloc_object(mem)).flatten()
        });
        let frame = frame.ok_or(Errno::ENOSPC)?;
        self.used += 1;
        Ok(frame.into_entry())
    }

    /// Frames that can still be had, as the machine is now: what programs have left for their next
    /// launch goes for it.
    pub(super) fn left<M: Machine>(&self, machine: &mut M) -> u64 {
        let usage = machine.with(|_, frames| frames.usage());
        let available = usage.available() + usage.retained;
        let own = self.most.saturating_sub(self.used);
        own.min(available.saturating_sub(LEFT_FOR_PROGRAM))
    }
}

/// Page number to frame.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    /// `None`: no page has a frame.
    root: Option<PhysAddr>,
    /// Tables on the way to a page; with none the root is page 0 itself.
    levels: u32,
    /// Pages that have a frame.
    pages: u64,
}

impl Blocks {
    /// Pages that have a frame.
    pub(super) const fn pages(&self) -> u64 {
        self.pages
    }

    /// The frame of a page.
    pub(super) fn frame(&self, mem: &impl PhysMem, page: u64) -> Option<PhysAddr> {
        if page >= span(self.levels) {
            return None;
        }
        let mut at = self.root?;
        for level in (1..=self.levels).rev() {
            at = address(mem.read_u64(entry(at, page, level)))?;
        }
        Some(at)
    }

    /// The frame of a page, which gets one of zeros where it has none.
    pub(super) fn make<M: Machine>(
        &mut self,
        machine: &mut M,
        quota: &mut Quota,
        page: u64,
    ) -> Result<PhysAddr, Errno> {
        while page >= span(self.levels) {
            if let Some(root) = self.root {
                let table = quota.take(machine)?;
                machine.mem().write_u64(table, root.as_u64());
                self.root = Some(table);
            }
            self.levels += 1;
        }
        let mut at = match self.root {
            Some(root) => root,
            None => {
                let root = quota.take(machine)?;
                self.root = Some(root);
                self.pages += u64::from(self.levels == 0);
                root
            }
        };
        for level in (1..=self.levels).rev() {
            let place = entry(at, page, level);
            at = match address(machine.mem().read_u64(place)) {
                Some(below) => below,
                None => {
                    let below = quota.take(machine)?;
                    machine.mem().write_u64(place, below.as_u64());
                    self.pages += u64::from(level == 1);
                    below
                }
            };
        }
        Ok(at)
    }

    /// Gives back the frames of the pages from `first` up to `end`.
    pub(super) fn clear<M: Machine>(
        &mut self,
        machine: &mut M,
        quota: &mut Quota,
        first: u64,
        end: u64,
    ) {
        let mut at = first;
        while let Some(page) = self.next(machine.mem(), at).filter(|page| *page < end) {
            at = page.saturating_add(CLEARED_AT_A_TIME).min(end);
            self.clear_piece(machine, quota, page, at);
            machine.pause();
        }
        // Tables that have no page are left.
        self.clear_piece(machine, quota, first, end);
    }

    fn clear_piece<M: Machine>(
        &mut self,
        machine: &mut M,
        quota: &mut Quota,
        first: u64,
        end: u64,
    ) {
        let Some(root) = self.root.filter(|_| first < end) else {
            return;
        };
        let mut cleared = Cleared::default();
        let levels = self.levels;
        let is_gone = machine.with(|mem, frames| {
            let range = Range { first, end };
            range.clear(mem, frames, (root, levels, 0), &mut cleared)
        });
        if is_gone {
            (self.root, self.levels) = (None, 0);
        }
        quota.used -= cleared.frames;
        self.pages -= cleared.pages;
    }

    /// The first page from `first` on that has no frame.
    pub(super) fn next_hole(&self, mem: &impl PhysMem, first: u64) -> u64 {
        let end = span(self.levels);
        let Some(root) = self.root.filter(|_| first < end) else {
            return first;
        };
        next_hole(mem, (root, self.levels, 0), first).unwrap_or(end)
    }

    /// The first page from `first` on that has a frame.
    pub(super) fn next(&self, mem: &impl PhysMem, first: u64) -> Option<u64> {
        next_below(mem, (self.root?, self.levels, 0), first)
    }
}

/// The first page from `first` on, below a node, that has no frame.
fn next_hole(mem: &impl PhysMem, (at, level, base): Node, first: u64) -> Option<u64> {
    if level == 0 {
        return None;
    }
    let each = span(level - 1);
    let begin = first.saturating_sub(base) / each;
    (begin..ENTRIES).find_map(|index| {
        let from = base + index * each;
        match address(mem.read_u64(at.offset(index * 8))) {
            Some(below) => next_hole(mem, (below, level - 1, from), first),
            None => Some(from.max(first)),
        }
    })
}

/// How many pages a tree with so many levels of tables has.
const fn span(levels: u32) -> u64 {
    1 << (ENTRY_BITS * levels)
}

/// Where a table of this level has the entry for a page.
const fn entry(table: PhysAddr, page: u64, level: u32) -> PhysAddr {
    let index = (page >> (ENTRY_BITS * (level - 1))) % ENTRIES;
    table.offset(index * 8)
}

/// Frame 0 is never given out.
const fn address(entry: u64) -> Option<PhysAddr> {
    match entry {
        0 => None,
        entry => Some(PhysAddr::new(entry)),
    }
}

/// A frame of the tree, its level, and the first page below it.
type Node = (PhysAddr, u32, u64);

#[derive(Default)]
struct Cleared {
    frames: u64,
    pages: u64,
}

struct Range {
    first: u64,
    end: u64,
}

impl Range {
    /// Clears what lies in the range below a node; whether the node is gone with it. As deep as the
    /// tree: six levels at most.
    fn clear(
        &self,
        mem: &mut impl PhysMem,
        frames: &mut FrameAllocator,
        (at, level, base): Node,
        cleared: &mut Cleared,
    ) -> bool {
        let mut is_empty = true;
        if level == 0 {
            is_empty = (self.first..self.end).contains(&base);
            cleared.pages += u64::from(is_empty);
        } else {
            let each = span(level - 1);
            for index in 0..ENTRIES {
                let place = at.offset(index * 8);
                let Some(below) = address(mem.read_u64(place)) else {
                    continue;
                };
                let from = base + index * each;
                let meets = from < self.end && from + each > self.first;
                let node = (below, level - 1, from);
                if meets && self.clear(mem, frames, node, cleared) {
                    mem.write_u64(place, 0);
                } else {
                    is_empty = false;
                }
            }
        }
        if is_empty {
            frames.free(Frame::from_entry(at));
            cleared.frames += 1;
        }
        is_empty
    }
}

fn next_below(mem: &impl PhysMem, (at, level, base): Node, first: u64) -> Option<u64> {
    if level == 0 {
        return (base >= first).then_some(base);
    }
    let each = span(level - 1);
    let begin = first.saturating_sub(base) / each;
    (begin..ENTRIES).find_map(|index| {
        let below = address(mem.read_u64(at.offset(index * 8)))?;
        next_below(mem, (below, level - 1, base + index * each), first)
    })
}
