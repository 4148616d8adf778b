//! The pages of a program that a core file has: those that its own file does not have.

use alloc::vec::Vec;

use super::{Machine, Memory};
use crate::addr::{PAGE_SIZE, VirtAddr};
use crate::core_dump::{RUNS_MAX, Run};
use crate::paging::entry::Class;
use crate::phys::PhysMem;
use crate::space::Kind;

impl Memory {
    /// Pages that the program has written or got as zeros, in rising order, and bytes of such
    /// pages beyond [`RUNS_MAX`].
    pub fn core_runs<M: Machine>(&self, machine: &mut M) -> (Vec<Run>, u64) {
        let mut runs: Vec<Run> = Vec::new();
        let mut left_out = 0;
        for region in self.space.regions() {
            let (first, last) = (VirtAddr::new(region.start), VirtAddr::new(region.end - 1));
            let protection = region.protection;
            self.table.for_each(machine.mem(), first, last, |leaf| {
                if !matches!(leaf.attributes.class, Class::Private | Class::SharedMemory) {
                    return;
                }
                let start = leaf.page.as_u64();
                let end = start + leaf.size.bytes();
                if let Some(last) = runs.last_mut()
                    && last.end == start
                    && last.protection == protection
                {
                    last.end = end;
                } else if runs.len() < RUNS_MAX {
                    runs.push(Run {
                        start,
                        end,
                        protection,
                        is_data: matches!(region.kind, Kind::File { .. }),
                    });
                } else {
                    left_out += end - start;
                }
            });
        }
        (runs, left_out)
    }

    /// Copies a page that is in memory, whatever the program may do with it; zeros where there is
    /// none.
    pub fn core_page<M: Machine>(
        &self,
        machine: &mut M,
        page: VirtAddr,
        out: &mut [u8; PAGE_SIZE as usize],
    ) {
        let mem = machine.mem();
        match self.table.physical(mem, page) {
            Some(place) => mem.read(place, out),
            None => out.fill(0),
        }
    }
}
