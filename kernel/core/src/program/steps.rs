//! Long work on a program's pages in steps, so that the node can look after its other duties in
//! between.
//!
//! Key type: [`Steps`], which goes over a range of a page table one table of the last level at a
//! time and passes over what maps nothing. Neighbours: [`Machine::pause`] is called between two
//! steps; munmap, mprotect, brk, mappings over others and the end of a program work like this.
//!
//! Invariant: a step changes at most [`STEP_PAGES`] pages, however much a program has mapped.

use super::Machine;
use crate::addr::{LARGE_PAGE_SIZE, PAGE_SIZE, VirtAddr};
use crate::paging::PageTable;

/// Pages that one step changes at most: those of one table of the last level.
pub const STEP_PAGES: u64 = LARGE_PAGE_SIZE / PAGE_SIZE;

/// The steps of long work on a range of a page table.
pub(super) struct Steps {
    table: PageTable,
    /// What is left.
    rest: Option<(VirtAddr, VirtAddr)>,
    /// A step was made.
    begun: bool,
}

impl Steps {
    /// All steps for a range: its first address and an address in its last page.
    pub(super) fn new(table: PageTable, range: (VirtAddr, VirtAddr)) -> Self {
        Self {
            table,
            rest: Some(range),
            begun: false,
        }
    }

    /// The range of the next step; pauses before each but the first.
    pub(super) fn next<M: Machine>(&mut self, machine: &mut M) -> Option<(VirtAddr, VirtAddr)> {
        let (first, last) = self.rest.take()?;
        let (from, to) = self.table.next_part(machine.mem(), first, last)?;
        if core::mem::replace(&mut self.begun, true) {
            machine.pause();
        }
        self.rest = (to < last).then(|| (to.offset(1), last));
        Some((from, to))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Fake, Program};
    use super::*;
    use crate::addr::USER_END;
    use crate::fault::Access;
    use crate::frames::FrameAllocator;
    use crate::paging::entry::Protection;
    use crate::phys::FakeMemory;
    use crate::retention::Policy;
    use crate::space::MapRequest;
    use hearth_abi::linux::{map, prot};

    /// A machine that counts what was changed between two pauses.
    struct Watched {
        fake: Fake,
        table: PageTable,
        /// Pages mapped, and writable, at the last pause.
        seen: (u64, u64),
        most: u64,
        pauses: u64,
    }

    impl Watched {
        fn new(fake: Fake, table: PageTable) -> Self {
            let mut this = Self {
                fake,
                table,
                seen: (0, 0),
                most: 0,
                pauses: 0,
            };
            this.begin();
            this
        }

        fn count(&self) -> (u64, u64) {
            let (mut mapped, mut writable) = (0, 0);
            let last = VirtAddr::new(USER_END - 1);
            self.table
                .for_each(&self.fake.mem, VirtAddr::new(0), last, |leaf| {
                    mapped += 1;
                    writable += u64::from(leaf.attributes.protection == Protection::ReadWrite);
                });
            (mapped, writable)
        }

        /// A new piece of work.
        fn begin(&mut self) {
            self.seen = self.count();
            (self.most, self.pauses) = (0, 0);
        }

        fn look(&mut self) {
            let now = self.count();
            let changed = now.0.abs_diff(self.seen.0) + now.1.abs_diff(self.seen.1);
            // A page that goes is counted as a writable one that goes, too.
            self.most = self.most.max(changed);
            self.seen = now;
        }
    }

    impl Machine for Watched {
        type Mem = FakeMemory;
        fn mem(&mut self) -> &mut FakeMemory {
            &mut self.fake.mem
        }
        fn with<R>(&mut self, act: impl FnOnce(&mut FakeMemory, &mut FrameAllocator) -> R) -> R {
            self.fake.with(act)
        }
        fn invalidate(&mut self, first: VirtAddr, last: VirtAddr) {
            self.fake.invalidate(first, last);
        }
        fn pause(&mut self) {
            self.look();
            self.pauses += 1;
        }
    }

    const AT: u64 = 0x10_0000_0000;
    const PAGES: u64 = 700;

    fn fixed(length: u64) -> MapRequest {
        MapRequest {
            address: AT,
            length,
            protection: prot::READ | prot::WRITE,
            flags: map::PRIVATE | map::ANONYMOUS | map::FIXED | map::NORESERVE,
            fd: -1,
        }
    }

    #[test]
    fn long_work_pauses_after_each_table_of_pages() {
        let mut fake = Fake::new();
        let mut program = Program::start(&mut fake, 1);
        let bytes = PAGES * PAGE_SIZE;
        let fill = |program: &mut Program, fake: &mut Fake| {
            for page in 0..PAGES {
                program
                    .touch(fake, AT + page * PAGE_SIZE, Access::Write)
                    .unwrap();
            }
        };
        program.memory.mmap(&mut fake, fixed(bytes)).unwrap();
        fill(&mut program, &mut fake);
        let mut machine = Watched::new(fake, program.memory.table());
        let memory = &mut program.memory;
        memory
            .mprotect(&mut machine, AT, bytes, prot::READ)
            .unwrap();
        machine.look();
        assert_eq!((machine.pauses, machine.most), (1, STEP_PAGES));
        machine.begin();
        memory
            .mprotect(&mut machine, AT, bytes, prot::READ | prot::WRITE)
            .unwrap();
        machine.look();
        assert_eq!((machine.pauses, machine.most), (1, STEP_PAGES));
        machine.begin();
        memory.mmap(&mut machine, fixed(bytes)).unwrap();
        machine.look();
        assert_eq!((machine.pauses, machine.most), (1, 2 * STEP_PAGES));
        fill(&mut program, &mut machine.fake);
        machine.begin();
        program.memory.munmap(&mut machine, AT, bytes).unwrap();
        machine.look();
        assert_eq!((machine.pauses, machine.most), (1, 2 * STEP_PAGES));
        program.memory.mmap(&mut machine, fixed(bytes)).unwrap();
        fill(&mut program, &mut machine.fake);
        machine.begin();
        let (none, _) = program.memory.retire(&mut machine, &Policy::nothing());
        assert!(none.is_none());
        assert!(machine.pauses >= 2);
        assert!(machine.most <= 2 * STEP_PAGES, "{}", machine.most);
        assert_eq!(machine.fake.frames.usage().user, 0);
        assert_eq!(machine.fake.frames.usage().kernel, 1);
    }

    #[test]
    fn what_maps_nothing_takes_no_step() {
        let mut fake = Fake::new();
        let mut program = Program::start(&mut fake, 1);
        let bytes = 0x1000_0000_0000;
        program.memory.mmap(&mut fake, fixed(bytes)).unwrap();
        for page in [AT, AT + bytes / 2, AT + bytes - PAGE_SIZE] {
            program.touch(&mut fake, page, Access::Write).unwrap();
        }
        let mut machine = Watched::new(fake, program.memory.table());
        program.memory.munmap(&mut machine, AT, bytes).unwrap();
        assert_eq!(machine.pauses, 2);
        assert_eq!(machine.count(), (0, 0));
    }
}
