//! The end of a program's memory and its start from pages that stayed: see [`crate::retention`].
//!
//! Invariant: after [`Memory::retire`] the program's owner has no frame but those of the
//! [`Retained`], and none of these is mapped writable or was written.

use alloc::vec::Vec;

use super::pristine::free_of;
use super::{Machine, Memory, Program, STEP_PAGES, Steps, ends};
use crate::addr::{LARGE_PAGE_SIZE, PAGE_SIZE, PhysAddr, VirtAddr};
use crate::frames::FrameAllocator;
use crate::paging::entry::{Attributes, Class, Protection};
use crate::paging::{Leaf, MapError, PageSize};
use crate::phys::PhysMem;
use crate::retention::{self, Policy, Retained, RetireCounts};
use crate::space::Pages;

impl Memory {
    /// The memory of a program that is started on what was kept of it. Costs the same however many
    /// pages that are: none is looked at. `limit_bytes` is charged only with what the run adds.
    pub fn relaunch<M: Machine>(
        machine: &mut M,
        retained: Retained,
        limit_bytes: u64,
        policy: Policy,
    ) -> Self {
        let warm = retained.pages();
        let frames = machine.with(|_, frames| {
            frames.borrow(warm);
            frames.usage().total
        });
        let Retained {
            program,
            image,
            table,
            owner,
            hashes,
            tails,
            tables,
            ..
        } = retained;
        let program = Program { id: program, image };
        let mut memory = Self::with_table(program, table, owner, frames, limit_bytes, policy);
        memory.warm = warm;
        memory.reused = warm;
        memory.pages_peak = warm;
        memory.tables = tables;
        memory.pages_max = memory.pages_max.saturating_add(tables);
        memory.hashes = hashes;
        memory.tails = tails;
        memory
    }

    /// The end of the program, however it ended: keeps what `policy` wants and is provably what the
    /// file holds, gives everything else back. Frames given back are dirty until scrubbed. The
    /// table must not be active. Works in steps: what one gives back may have another owner before
    /// the next.
    pub fn retire<M: Machine>(
        mut self,
        machine: &mut M,
        policy: &Policy,
    ) -> (Option<Retained>, RetireCounts) {
        self.drop_shared_memory(machine);
        let mut counts = RetireCounts {
            reused: self.reused,
            readahead: self.counts,
            tables: self.tables,
            discarded: self.discarded,
            ..RetireCounts::default()
        };
        let mut tables = self.tables;
        let aside = self.pristine.take_all();
        for (index, some) in aside.chunks(STEP_PAGES as usize).enumerate() {
            if index > 0 {
                machine.pause();
            }
            tables += self.put_aside_back(machine, policy, some, &mut counts);
        }
        let image = &self.program.image;
        for range in self.ranges() {
            let mut steps = Steps::new(self.table, range);
            while let Some(part) = steps.next(machine) {
                let keep = retention::Keep {
                    table: self.table,
                    ranges: &[part],
                    limit: policy.limit_pages.saturating_sub(counts.kept),
                };
                let rule = |leaf: &Leaf| policy.fate(image, leaf);
                let seen = |leaf: &Leaf, kept: bool| count(&mut counts, leaf, kept);
                tables -= machine.with(|mem, frames| {
                    let before = frames.usage().kernel;
                    retention::classify(mem, frames, &[], &keep, rule, seen);
                    before - frames.usage().kernel
                });
            }
            // The first step of the next range follows this one's last.
            machine.pause();
        }
        if counts.kept == 0 {
            machine.with(|mem, frames| self.table.destroy(mem, frames));
            tables = 0;
        }
        if tables == 0 {
            return (None, counts);
        }
        let Program { id, image } = self.program;
        let retained = Retained {
            program: id,
            image,
            table: self.table,
            owner: self.owner,
            hashes: self.hashes,
            tails: self.tails,
            code: counts.kept_code,
            readonly: counts.kept_readonly,
            data: counts.kept_data,
            tables,
        };
        (Some(retained), counts)
    }

    /// Puts pages that were kept aside back where the policy wants them; returns how many tables
    /// that took.
    fn put_aside_back<M: Machine>(
        &self,
        machine: &mut M,
        policy: &Policy,
        aside: &[(VirtAddr, PhysAddr)],
        counts: &mut RetireCounts,
    ) -> u64 {
        machine.with(|mem, frames| {
            let before = frames.usage().kernel;
            for &(page, frame) in aside {
                let wanted = policy.keep && policy.pristine;
                match wanted.then(|| self.restore(mem, frames, page, frame)) {
                    Some(Ok(copies)) => counts.released += copies,
                    _ => {
                        free_of(frames, frame);
                        counts.discarded += 1;
                    }
                }
            }
            frames.usage().kernel - before
        })
    }

    /// Where the program may have pages: its regions, and the image for what is kept aside, as few
    /// ranges as come from joining those that share a table of last level.
    fn ranges(&self) -> Vec<retention::Range> {
        let regions = self.space.regions().map(|r| (r.start, r.end));
        let segments = self.program.image.segments.iter();
        let mut all: Vec<(u64, u64)> = regions.chain(segments.map(|s| (s.start, s.end))).collect();
        all.sort_unstable();
        all.dedup_by(|next, range| {
            let joins = next.0 <= range.1.next_multiple_of(LARGE_PAGE_SIZE);
            if joins {
                range.1 = range.1.max(next.1);
            }
            joins
        });
        let ends = |(start, end)| ends(Pages { start, end });
        all.into_iter().map(ends).collect()
    }

    /// Maps a page that was kept aside where the program had it, in the place of whatever it has
    /// left there; returns how many frames of its own that were. What is not its own, a page of a
    /// file of the object store, is given back by its owner. Fails when there is no frame for a
    /// table.
    fn restore<P: PhysMem>(
        &self,
        mem: &mut P,
        frames: &mut FrameAllocator,
        page: VirtAddr,
        frame: PhysAddr,
    ) -> Result<u64, MapError> {
        let attributes = Attributes::user(Protection::Read, Class::FileData);
        match self.table.replace(mem, page, frame, attributes) {
            Ok(there) if there.attributes.class == Class::Object => Ok(0),
            Ok(copy) => {
                free_of(frames, copy.frame);
                Ok(1)
            }
            Err(MapError::NotMapped) => {
                let size = PageSize::Small;
                self.table.map(mem, frames, page, frame, size, attributes)?;
                Ok(0)
            }
            Err(other) => Err(other),
        }
    }
}

fn count(counts: &mut RetireCounts, leaf: &Leaf, kept: bool) {
    let pages = leaf.size.bytes() / PAGE_SIZE;
    let class = leaf.attributes.class;
    counts.readahead.used += u64::from(leaf.attributes.ahead && leaf.accessed);
    match (class, kept) {
        (Class::Private, _) => {
            counts.released += pages;
            return;
        }
        (Class::Object | Class::SharedMemory, _) => return,
        (_, false) => {
            counts.discarded += pages;
            return;
        }
        (Class::FileExecute, true) => counts.kept_code += pages,
        (Class::FileRead, true) => counts.kept_readonly += pages,
        (Class::FileData, true) => counts.kept_data += pages,
    }
    counts.kept += pages;
}
