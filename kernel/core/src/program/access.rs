//! Copies between the kernel and a program's memory, through the page table.
//!
//! The kernel never dereferences a program's pointer: it looks the page up, checks what the
//! program itself may do with it, and copies by the physical address. A page that is missing is
//! reported, brought in by the caller like a fault of the program, and the copy goes on.

use super::{Machine, Memory};
use crate::addr::{PAGE_SIZE, PhysAddr, USER_END, VirtAddr};
use crate::fault::Access;
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

impl Memory {
    /// Copies `from` to `out`, which has its length; `done` bytes of it are there already.
    pub fn copy_from<M: Machine>(
        &self,
        machine: &mut M,
        from: UserSlice,
        out: &mut [u8],
        mut done: usize,
    ) -> Result<(), Missing> {
        assert_eq!(from.length, out.len() as u64, "lengths differ");
        while done < out.len() {
            let (at, length) = self.piece(machine, from, done, Access::Read)?;
            machine.mem().read(at, &mut out[done..done + length]);
            done += length;
        }
        Ok(())
    }

    /// Copies `bytes` to `to`, which has their length; `done` bytes of it are there already.
    pub fn copy_to<M: Machine>(
        &self,
        machine: &mut M,
        to: UserSlice,
        bytes: &[u8],
        mut done: usize,
    ) -> Result<(), Missing> {
        assert_eq!(to.length, bytes.len() as u64, "lengths differ");
        while done < bytes.len() {
            let (at, length) = self.piece(machine, to, done, Access::Write)?;
            machine.mem().write(at, &bytes[done..done + length]);
            done += length;
        }
        Ok(())
    }

    /// Physical address and length of the next piece, which ends at a page boundary at the latest.
    fn piece<M: Machine>(
        &self,
        machine: &mut M,
        slice: UserSlice,
        done: usize,
        access: Access,
    ) -> Result<(PhysAddr, usize), Missing> {
        let at = slice.start + done as u64;
        let missing = Missing { done, address: at };
        let mem = machine.mem();
        let page = VirtAddr::new(at);
        let leaf = self.table.translate(mem, page).ok_or(missing)?;
        if !access.allowed_by(leaf.attributes.protection) {
            return Err(missing);
        }
        let length = (PAGE_SIZE - page.page_offset()).min(slice.length - done as u64);
        let place = leaf.frame.offset(at - leaf.page.as_u64());
        Ok((place, length as usize))
    }
}
