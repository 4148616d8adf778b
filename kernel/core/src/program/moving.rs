//! mremap: pages of a mapping go to another address. Their frames stay as they are; only the
//! entries of the page table change.
//!
//! Invariant: nothing fails once a page has moved: the tables that the new place may need are taken
//! before. A frame is never mapped twice: all cores have forgotten the old address before the new
//! one is there.

use alloc::vec::Vec;

use super::{Machine, Memory, STEP_PAGES, Steps, ends};
use crate::addr::{LARGE_PAGE_SIZE, PhysAddr, VirtAddr};
use crate::fault;
use crate::frames::{Frame, Owner};
use crate::paging::{Leaf, TableSource};
use crate::phys::PhysMem;
use crate::space::{Pages, RemapRequest};
use hearth_abi::errno::Errno;

/// Bytes that a table of the levels above the last covers.
const UPPER_SPANS: [u64; 2] = [1 << 30, 1 << 39];
/// Tables that one step may give back: one of each level below the root.
const FREED_MAX: usize = 3;

/// Tables for the new place; those of the old place that become empty come here.
struct Tables(Vec<Frame>);

impl<M: PhysMem> TableSource<M> for Tables {
    fn alloc_table(&mut self, _: &mut M) -> Option<PhysAddr> {
        self.0.pop().map(Frame::into_entry)
    }

    fn free_table(&mut self, table: PhysAddr) {
        debug_assert!(self.0.len() < self.0.capacity(), "the heap is locked");
        self.0.push(Frame::from_entry(table));
    }
}

/// Pages on their way, and what they need there.
struct Moving {
    pages: Pages,
    to: u64,
    tables: Tables,
    /// Room for what one step moves.
    leaves: Vec<Leaf>,
}

impl Memory {
    /// mremap: the new address.
    pub fn mremap<M: Machine>(
        &mut self,
        machine: &mut M,
        request: &RemapRequest,
    ) -> Result<u64, Errno> {
        self.room_to_cut(machine)?;
        let plan = self.space.plan_remap(request)?;
        let moving = match plan.moved() {
            Some((pages, to)) => Some(self.prepare_to_move(machine, pages, to)?),
            None => None,
        };
        self.release(machine, plan.replaced());
        self.release(machine, plan.cut());
        self.space.remap(&plan);
        if let Some(moving) = moving {
            self.move_pages(machine, moving);
        }
        Ok(plan.address())
    }

    fn prepare_to_move<M: Machine>(
        &mut self,
        machine: &mut M,
        pages: Pages,
        to: u64,
    ) -> Result<Moving, Errno> {
        if !to.wrapping_sub(pages.start).is_multiple_of(LARGE_PAGE_SIZE) {
            self.split_all(machine, pages)?;
        }
        self.cut_large(machine, pages);
        let mut leaves = Vec::new();
        let room = leaves.try_reserve_exact(STEP_PAGES as usize);
        room.map_err(|_| Errno::ENOMEM)?;
        Ok(Moving {
            pages,
            to,
            tables: self.take_tables(machine, pages)?,
            leaves,
        })
    }

    fn move_pages<M: Machine>(&mut self, machine: &mut M, mut moving: Moving) {
        let most = moving.tables.0.len();
        let mut steps = Steps::new(self.table, ends(moving.pages));
        while let Some(part) = steps.next(machine) {
            self.move_part(machine, part, &mut moving);
            self.give_tables(machine, &mut moving.tables, most);
        }
        self.give_tables(machine, &mut moving.tables, 0);
    }

    /// A step of it.
    fn move_part<M: Machine>(
        &self,
        machine: &mut M,
        (first, last): (VirtAddr, VirtAddr),
        moving: &mut Moving,
    ) {
        let distance = moving.to.wrapping_sub(moving.pages.start);
        let Moving { tables, leaves, .. } = moving;
        leaves.clear();
        let remembered = machine.with(|mem, _| {
            let table = self.table;
            table.unmap_range(mem, tables, first, last, |_, leaf| leaves.push(leaf))
        });
        if remembered {
            machine.invalidate(first, last);
        }
        machine.with(|mem, _| {
            for leaf in &*leaves {
                let page = VirtAddr::new(leaf.page.as_u64().wrapping_add(distance));
                let (frame, size) = (leaf.frame, leaf.size);
                let mapped = self
                    .table
                    .map(mem, tables, page, frame, size, leaf.attributes);
                mapped.expect("nothing is there, and tables were taken");
            }
        });
    }

    /// Takes as many tables as moving these pages may need beyond those that it frees.
    fn take_tables<M: Machine>(&mut self, machine: &mut M, pages: Pages) -> Result<Tables, Errno> {
        let (parts, runs) = self.parts(machine, pages);
        // Each run of tables of the last level becomes one that is a table longer. The first and
        // the last of all stay where others use them, too.
        let mut count = runs + 2;
        for span in UPPER_SPANS {
            count += (2 * parts).min((pages.end - pages.start) / span + 2);
        }
        if self.available(machine) <= fault::FRAMES_RESERVED + count {
            return Err(Errno::ENOMEM);
        }
        let mut tables = Tables(Vec::new());
        let room = tables.0.try_reserve_exact(count as usize + FREED_MAX);
        room.map_err(|_| Errno::ENOMEM)?;
        for _ in 0..count {
            match machine.with(|mem, frames| frames.alloc(mem, Owner::KERNEL)) {
                Some(table) => tables.0.push(table),
                None => {
                    self.give_tables(machine, &mut tables, 0);
                    return Err(Errno::ENOMEM);
                }
            }
            self.tables += 1;
        }
        Ok(tables)
    }

    /// Gives tables back that are more than `most`.
    fn give_tables<M: Machine>(&mut self, machine: &mut M, tables: &mut Tables, most: usize) {
        while tables.0.len() > most {
            let Some(table) = tables.0.pop() else { return };
            machine.with(|_, frames| frames.free(table));
            self.tables -= 1;
        }
    }

    /// Tables of the last level in a range, and the runs of them without a gap.
    fn parts<M: Machine>(&self, machine: &mut M, pages: Pages) -> (u64, u64) {
        let (mut first, last) = ends(pages);
        let (mut parts, mut runs) = (0, 0);
        while let Some((from, to)) = self.table.next_part(machine.mem(), first, last) {
            runs += u64::from(parts == 0 || from != first);
            parts += 1;
            if to >= last {
                break;
            }
            first = to.offset(1);
        }
        (parts, runs)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Fake, Program};
    use super::*;
    use crate::addr::{LARGE_PAGE_SIZE, PAGE_SIZE};
    use crate::fault::Access;
    use crate::paging::PageTable;
    use crate::program::UserSlice;
    use crate::retention::Policy;
    use crate::space::MapRequest;
    use hearth_abi::linux::{map, mremap, prot};
    use proptest::prelude::*;

    const AT: u64 = 0x10_0000_0000;
    const TO: u64 = 0x20_0000_0000;

    fn mapped(fake: &mut Fake, program: &mut Program, address: u64, length: u64) {
        let request = MapRequest {
            address,
            length,
            protection: prot::READ | prot::WRITE,
            flags: map::PRIVATE | map::ANONYMOUS | map::FIXED | map::NORESERVE,
            fd: -1,
        };
        program.memory.mmap(fake, request).unwrap();
    }

    fn write(fake: &mut Fake, program: &mut Program, address: u64, word: u64) {
        program.touch(fake, address, Access::Write).unwrap();
        let to = UserSlice::new(address, 8).unwrap();
        let bytes = word.to_le_bytes();
        assert!(program.memory.copy_to(fake, to, &bytes, 0).is_ok());
    }

    fn read(fake: &mut Fake, program: &mut Program, address: u64) -> Option<u64> {
        program.touch(fake, address, Access::Read).ok()?;
        let from = UserSlice::new(address, 8).unwrap();
        let mut bytes = [0; 8];
        program.memory.copy_from(fake, from, &mut bytes, 0).ok()?;
        Some(u64::from_le_bytes(bytes))
    }

    fn moving(length: u64, new_length: u64, to: u64) -> RemapRequest {
        RemapRequest {
            address: AT,
            length,
            new_length,
            flags: mremap::MAYMOVE | mremap::FIXED,
            new_address: to,
        }
    }

    fn tables_are_counted(fake: &Fake, program: &Program) {
        let table: PageTable = program.memory.table();
        assert_eq!(program.memory.tables(), table.tables(&fake.mem));
    }

    fn ends_clean(mut fake: Fake, program: Program) {
        tables_are_counted(&fake, &program);
        let (none, _) = program.memory.retire(&mut fake, &Policy::nothing());
        assert!(none.is_none());
        assert_eq!(fake.frames.usage().user, 0);
        assert_eq!(fake.frames.usage().kernel, 1);
    }

    #[test]
    fn contents_move_along_and_what_was_there_goes() {
        let mut fake = Fake::new();
        let mut program = Program::start(&mut fake, 1);
        mapped(&mut fake, &mut program, AT, 8 * PAGE_SIZE);
        mapped(&mut fake, &mut program, TO, 4 * PAGE_SIZE);
        for page in [0, 3, 7] {
            write(&mut fake, &mut program, AT + page * PAGE_SIZE, 100 + page);
        }
        write(&mut fake, &mut program, TO + PAGE_SIZE, 999);
        let user = fake.frames.usage().user;
        let request = moving(8 * PAGE_SIZE, 6 * PAGE_SIZE, TO);
        assert_eq!(program.memory.mremap(&mut fake, &request), Ok(TO));
        // One frame of what was there, one of what was cut.
        assert_eq!(fake.frames.usage().user, user - 2);
        let found = [0, 1, 3, 5].map(|page| read(&mut fake, &mut program, TO + page * PAGE_SIZE));
        assert_eq!(found, [Some(100), Some(0), Some(103), Some(0)]);
        assert_eq!(read(&mut fake, &mut program, TO + 6 * PAGE_SIZE), None);
        assert_eq!(read(&mut fake, &mut program, AT), None);
        ends_clean(fake, program);
    }

    #[test]
    fn a_mapping_grows_where_it_is_or_moves() {
        let mut fake = Fake::new();
        let mut program = Program::start(&mut fake, 1);
        mapped(&mut fake, &mut program, AT, PAGE_SIZE);
        write(&mut fake, &mut program, AT, 7);
        let grow = |flags, length, new_length| RemapRequest {
            flags,
            ..moving(length, new_length, 0)
        };
        let request = grow(0, PAGE_SIZE, 3 * PAGE_SIZE);
        assert_eq!(program.memory.mremap(&mut fake, &request), Ok(AT));
        mapped(&mut fake, &mut program, AT + 3 * PAGE_SIZE, PAGE_SIZE);
        let request = grow(0, 3 * PAGE_SIZE, 5 * PAGE_SIZE);
        // The region goes on behind it.
        let refused = program.memory.mremap(&mut fake, &request);
        assert_eq!(refused, Err(Errno::ENOMEM));
        let request = grow(mremap::MAYMOVE, 3 * PAGE_SIZE, 5 * PAGE_SIZE);
        let at = program.memory.mremap(&mut fake, &request).unwrap();
        assert_ne!(at, AT);
        assert_eq!(read(&mut fake, &mut program, at), Some(7));
        assert_eq!(read(&mut fake, &mut program, at + 4 * PAGE_SIZE), Some(0));
        assert_eq!(read(&mut fake, &mut program, AT), None);
        assert!(read(&mut fake, &mut program, AT + 3 * PAGE_SIZE).is_some());
        ends_clean(fake, program);
    }

    #[test]
    fn nothing_changes_where_there_is_no_room_for_tables() {
        let mut fake = Fake::new();
        let mut program = Program::start(&mut fake, 1);
        mapped(&mut fake, &mut program, AT, 4 * PAGE_SIZE);
        write(&mut fake, &mut program, AT, 7);
        let before = program.memory.space().len();
        let mut taken = Vec::new();
        while fake.frames.usage().available() > fault::FRAMES_RESERVED + 3 {
            taken.push(fake.frames.alloc(&mut fake.mem, Owner::KERNEL).unwrap());
        }
        let request = moving(4 * PAGE_SIZE, 4 * PAGE_SIZE, TO);
        let refused = program.memory.mremap(&mut fake, &request);
        assert_eq!(refused, Err(Errno::ENOMEM));
        assert_eq!(program.memory.space().len(), before);
        taken.into_iter().for_each(|frame| fake.frames.free(frame));
        assert_eq!(read(&mut fake, &mut program, AT), Some(7));
        ends_clean(fake, program);
    }

    proptest! {
        /// However sparse pages lie and however far off the new place is, all of them arrive and no
        /// table is lost.
        #[test]
        fn all_pages_arrive(
            touched in prop::collection::btree_set(0..6000u64, 1..60),
            shift in prop_oneof![Just(0), 0..2000u64],
        ) {
            let mut fake = Fake::new();
            let mut program = Program::start(&mut fake, 1);
            let length = 6000 * PAGE_SIZE;
            mapped(&mut fake, &mut program, AT, length);
            for &page in &touched {
                write(&mut fake, &mut program, AT + page * PAGE_SIZE, page + 1);
            }
            let to = TO + shift * PAGE_SIZE + (shift % 3) * LARGE_PAGE_SIZE * 512;
            let request = moving(length, length, to);
            prop_assert_eq!(program.memory.mremap(&mut fake, &request), Ok(to));
            tables_are_counted(&fake, &program);
            for &page in &touched {
                let found = read(&mut fake, &mut program, to + page * PAGE_SIZE);
                prop_assert_eq!(found, Some(page + 1));
            }
            ends_clean(fake, program);
        }
    }
}
