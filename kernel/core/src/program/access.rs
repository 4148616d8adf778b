//! Copies between the kernel and a program's memory, through the page table.
//!
//! The kernel never dereferences a program's pointer: it looks the page up, checks what the
//! program itself may do with it, and copies by the physical address. A page that is missing is
//! reported, brought in by the caller like a fault of the program, and the copy goes on.

use super::{Machine, Memory};
use crate::addr::{PAGE_SIZE, PhysAddr, USER_END, VirtAddr};
use crate::fault::Access;
use crate::paging::PageTable;
use crate::phys::PhysMem;

/// The address is not the program's: EFAULT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadAddress;

/// A range of a program's address space as the program gave it: checked to lie in the user half,
/// nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserSlice {
    start: u64,
    length: u64,
}

impl UserSlice {
    /// `length` bytes from `start` on.
    pub const fn new(start: u64, length: u64) -> Result<Self, BadAddress> {
        match start.checked_add(length) {
            Some(end) if end <= USER_END => Ok(Self { start, length }),
            _ => Err(BadAddress),
        }
    }

    /// First address.
    pub const fn start(self) -> u64 {
        self.start
    }

    /// Length in bytes.
    pub const fn length(self) -> u64 {
        self.length
    }

    /// The first `length` bytes of it, all when it is shorter.
    pub const fn first(self, length: u64) -> Self {
        let length = if length < self.length {
            length
        } else {
            self.length
        };
        Self { length, ..self }
    }

    /// What follows its first `length` bytes.
    pub const fn after(self, length: u64) -> Self {
        let length = self.first(length).length;
        Self {
            start: self.start + length,
            length: self.length - length,
        }
    }
}

/// How far a copy got before it met a page that is not there for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Bytes copied so far.
    pub done: usize,
    /// The address to resolve.
    pub address: u64,
}

/// A program's memory as its page table shows it: for copies while nobody can bring pages in, as
/// when a datagram has arrived for it.
///
/// Whoever has one gives it up before the program's memory goes.
#[derive(Clone, Copy, Debug)]
pub struct UserView(PageTable);

impl UserView {
    /// Copies `from` to `out`, which has its length; `done` bytes of it are there already.
    pub fn copy_from(
        &self,
        mem: &impl PhysMem,
        from: UserSlice,
        out: &mut [u8],
        mut done: usize,
    ) -> Result<(), Missing> {
        assert_eq!(from.length, out.len() as u64, "lengths differ");
        while done < out.len() {
            let (at, length) = self.piece(mem, from, done as u64, Access::Read)?;
            let length = length as usize;
            mem.read(at, &mut out[done..done + length]);
            done += length;
        }
        Ok(())
    }

    /// Copies `bytes` to `to`, which has their length; `done` bytes of it are there already.
    pub fn copy_to(
        &self,
        mem: &mut impl PhysMem,
        to: UserSlice,
        bytes: &[u8],
        mut done: usize,
    ) -> Result<(), Missing> {
        assert_eq!(to.length, bytes.len() as u64, "lengths differ");
        while done < bytes.len() {
            let (at, length) = self.piece(mem, to, done as u64, Access::Write)?;
            let length = length as usize;
            mem.write(at, &bytes[done..done + length]);
            done += length;
        }
        Ok(())
    }

    /// Physical address and length of the next piece, which ends at a page boundary at the latest.
    fn piece(
        &self,
        mem: &impl PhysMem,
        slice: UserSlice,
        done: u64,
        access: Access,
    ) -> Result<(PhysAddr, u64), Missing> {
        let at = slice.start + done;
        let missing = Missing {
            done: done as usize,
            address: at,
        };
        let page = VirtAddr::new(at);
        let (place, protection) = self.0.reach(mem, page).ok_or(missing)?;
        if !access.allowed_by(protection) {
            return Err(missing);
        }
        let length = (PAGE_SIZE - page.page_offset()).min(slice.length - done);
        Ok((place, length))
    }
}

impl Memory {
    /// The first address of a range that is not there for an access, if any. Pages before it count
    /// as used by the program, so that they stay.
    pub fn lacks<M: Machine>(
        &self,
        machine: &mut M,
        slice: UserSlice,
        access: Access,
    ) -> Option<u64> {
        let mem = machine.mem();
        let mut done = 0;
        while done < slice.length {
            match self.view().piece(mem, slice, done, access) {
                Ok((_, length)) => {
                    let page = VirtAddr::new(slice.start + done);
                    self.table.note_use(mem, page, access == Access::Write);
                    done += length;
                }
                Err(missing) => return Some(missing.address),
            }
        }
        None
    }

    /// Where a word of the program lies that is there for this access now.
    pub fn place<M: Machine>(
        &self,
        machine: &mut M,
        word: UserSlice,
        access: Access,
    ) -> Option<PhysAddr> {
        let (place, length) = self.view().piece(machine.mem(), word, 0, access).ok()?;
        (length == word.length).then_some(place)
    }

    /// The memory as its page table shows it.
    pub fn view(&self) -> UserView {
        UserView(self.table)
    }

    /// Copies `from` to `out`, which has its length; `done` bytes of it are there already.
    pub fn copy_from<M: Machine>(
        &self,
        machine: &mut M,
        from: UserSlice,
        out: &mut [u8],
        done: usize,
    ) -> Result<(), Missing> {
        self.view().copy_from(machine.mem(), from, out, done)
    }

    /// Copies `bytes` to `to`, which has their length; `done` bytes of it are there already.
    pub fn copy_to<M: Machine>(
        &self,
        machine: &mut M,
        to: UserSlice,
        bytes: &[u8],
        done: usize,
    ) -> Result<(), Missing> {
        self.view().copy_to(machine.mem(), to, bytes, done)
    }
}
