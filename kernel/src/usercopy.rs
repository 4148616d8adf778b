//! The only way from the kernel to a program's memory.
//!
//! An address that a program gave is a [`UserSlice`]: known to lie in the user half, nothing more.
//! Copying walks the program's page tables and goes through the physical map; pages that are not
//! there, or not writable yet, are asked for from the fault policy first. So the kernel never
//! takes a page fault on a program's address, and SMAP stays on.
//!
//! Neighbours: `process` implements [`UserMemory`].
//!
//! Invariant: nothing is read from or written to a page whose protection forbids the program to do
//! the same.

use kernel_core::addr::{PAGE_SIZE, PhysAddr, USER_END, VirtAddr};
use kernel_core::paging::Leaf;
use kernel_core::paging::entry::Protection;
use kernel_core::phys::PhysMem;

use crate::mm::DirectMap;

/// Times a page is asked for before the copy fails: once, and once more for a page that was
/// read-only first.
const ASKS_MAX: u32 = 2;

/// What the kernel wants to do with a program's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read it.
    Read,
    /// Write it.
    Write,
}

/// The address is not the program's, or forbids the access: EFAULT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadAddress;

/// A program's memory, as its owner manages it.
pub trait UserMemory {
    /// What is mapped at `address`.
    fn translate(&self, address: VirtAddr) -> Option<Leaf>;
    /// Brings in the page at `page` as a fault of the program itself would, waiting if need be.
    fn fault_in(&mut self, page: VirtAddr, access: Access) -> Result<(), BadAddress>;
}

/// A range of a program's address space: checked to lie in the user half, nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserSlice {
    start: u64,
    length: u64,
}

impl UserSlice {
    /// `length` bytes from `start` on, both as a program gave them.
    pub fn new(start: u64, length: u64) -> Result<Self, BadAddress> {
        match start.checked_add(length) {
            Some(end) if end <= USER_END => Ok(Self { start, length }),
            _ => Err(BadAddress),
        }
    }

    /// First address.
    pub fn start(self) -> u64 {
        self.start
    }

    /// Length in bytes.
    pub fn length(self) -> u64 {
        self.length
    }
}

/// Copies a program's bytes to `out`, which has the length of the slice.
pub fn read(
    memory: &mut impl UserMemory,
    from: UserSlice,
    out: &mut [u8],
) -> Result<(), BadAddress> {
    assert_eq!(from.length, out.len() as u64, "lengths differ");
    let mut done = 0;
    each_piece(memory, from, Access::Read, |at, length| {
        DirectMap.read(at, &mut out[done..done + length]);
        done += length;
    })
}

/// Copies `bytes` to a program; the slice has their length.
pub fn write(memory: &mut impl UserMemory, to: UserSlice, bytes: &[u8]) -> Result<(), BadAddress> {
    assert_eq!(to.length, bytes.len() as u64, "lengths differ");
    let mut done = 0;
    each_piece(memory, to, Access::Write, |at, length| {
        DirectMap.write(at, &bytes[done..done + length]);
        done += length;
    })
}

/// Reads a little-endian number.
pub fn read_u64(memory: &mut impl UserMemory, address: u64) -> Result<u64, BadAddress> {
    let mut bytes = [0; 8];
    read(memory, UserSlice::new(address, 8)?, &mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

/// Calls `piece` with the physical address and length of each part of the slice within a page.
fn each_piece(
    memory: &mut impl UserMemory,
    slice: UserSlice,
    access: Access,
    mut piece: impl FnMut(PhysAddr, usize),
) -> Result<(), BadAddress> {
    let (mut at, end) = (slice.start, slice.start + slice.length);
    while at < end {
        let address = VirtAddr::try_new(at).ok_or(BadAddress)?;
        let length = (PAGE_SIZE - address.page_offset()).min(end - at);
        let frame = frame_for(memory, address.page_start(), access)?;
        piece(frame.offset(address.page_offset()), length as usize);
        at += length;
    }
    Ok(())
}

fn frame_for(
    memory: &mut impl UserMemory,
    page: VirtAddr,
    access: Access,
) -> Result<PhysAddr, BadAddress> {
    for _ in 0..=ASKS_MAX {
        if let Some(leaf) = memory.translate(page)
            && allows(leaf, access)
        {
            return Ok(leaf.frame.offset(page.as_u64() - leaf.page.as_u64()));
        }
        memory.fault_in(page, access)?;
    }
    Err(BadAddress)
}

fn allows(leaf: Leaf, access: Access) -> bool {
    let protection = leaf.attributes.protection;
    leaf.attributes.user
        && match access {
            Access::Read => protection != Protection::None,
            Access::Write => protection == Protection::ReadWrite,
        }
}
