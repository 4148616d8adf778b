//! Memory that devices read and write.
//!
//! Key types: [`Pool`], buffers for frames; [`Words`], descriptors. Neighbours: `mm` allocates the
//! memory, [`super::ring_card`] decides who owns a buffer.
//!
//! Invariant: between giving a buffer to the device and getting it back, nobody calls
//! [`Pool::slot`] for it. A buffer holds nothing behind the bytes that [`Pool::set_used`] said.

use core::ptr::NonNull;

use alloc::vec;
use alloc::vec::Vec;
use kernel_core::addr::PhysAddr;
use kernel_core::nic::{self, BUFFER_BYTES};
use volatile::VolatilePtr;

use crate::mm;

const PAGE_BYTES: usize = 4096;
const BUFFERS_PER_PAGE: usize = PAGE_BYTES / BUFFER_BYTES;

/// A number of equal buffers in contiguous memory, one behind the other.
#[derive(Debug)]
pub struct Pool {
    base: NonNull<u8>,
    address: u64,
    /// Bytes of each buffer that are not zero.
    used: Vec<u16>,
}

// SAFETY: the pool owns its memory; the pointer is only followed through `&mut self`.
unsafe impl Send for Pool {}

/// Pages in a row that addresses of so many bits reach.
fn allocate(pages: usize, bits: u32) -> Option<(PhysAddr, NonNull<u8>)> {
    let (address, base) = mm::dma_alloc(pages)?;
    let bytes = (pages * PAGE_BYTES) as u64;
    if nic::reaches(bits, address.as_u64(), bytes) {
        return Some((address, base));
    }
    // Low frames are given out first, so there are none left.
    mm::frames().free_contiguous(address, pages as u64);
    None
}

impl Pool {
    /// Allocates `slots` zeroed buffers, which are never given back, for a card with addresses of
    /// so many bits; `None` without enough contiguous memory there.
    pub fn new(slots: usize, bits: u32) -> Option<Self> {
        let (address, base) = allocate(slots.div_ceil(BUFFERS_PER_PAGE), bits)?;
        Some(Self {
            base,
            address: address.as_u64(),
            used: vec![0; slots],
        })
    }

    /// Where a device sees the first buffer.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// How many buffers there are.
    pub fn slots(&self) -> usize {
        self.used.len()
    }

    /// The buffer `slot`, which the device must not own now.
    pub fn slot(&mut self, slot: usize) -> &mut [u8] {
        assert!(slot < self.used.len(), "no buffer {slot}");
        // SAFETY: the slot lies inside the allocation, was initialised with zeros, and `&mut self`
        // makes this the only reference to it; the device does not write it by the invariant.
        unsafe {
            core::slice::from_raw_parts_mut(
                self.base.add(slot * BUFFER_BYTES).as_ptr(),
                BUFFER_BYTES,
            )
        }
    }

    /// Says that the first `bytes` bytes of a buffer were written, and no others.
    pub fn set_used(&mut self, slot: usize, bytes: usize) {
        assert!(bytes <= BUFFER_BYTES, "{bytes} bytes of a buffer");
        self.used[slot] = bytes as u16;
    }

    /// The bytes of a buffer that were written.
    pub fn used(&mut self, slot: usize) -> &mut [u8] {
        let bytes = usize::from(self.used[slot]);
        &mut self.slot(slot)[..bytes]
    }

    /// Clears a buffer.
    pub fn clear(&mut self, slot: usize) {
        self.used(slot).fill(0);
        self.used[slot] = 0;
    }
}

/// Descriptors: words that driver and device read and write at any time.
#[derive(Debug)]
pub struct Words {
    base: NonNull<u32>,
    address: u64,
    words: usize,
}

// SAFETY: the memory belongs to the value alone, and every access is one volatile load or store.
unsafe impl Send for Words {}

impl Words {
    /// Allocates `bytes` zeroed bytes, page-aligned, which are never given back, for a card with
    /// addresses of so many bits; `None` without enough contiguous memory there.
    pub fn new(bytes: usize, bits: u32) -> Option<Self> {
        let (address, base) = allocate(bytes.div_ceil(PAGE_BYTES), bits)?;
        Some(Self {
            base: base.cast(),
            address: address.as_u64(),
            words: bytes / size_of::<u32>(),
        })
    }

    fn pointer(&self, word: usize) -> VolatilePtr<'_, u32> {
        assert!(word < self.words, "no word {word}");
        // SAFETY: the word lies inside the allocation, which is page-aligned, initialised with
        // zeros and never given back; no reference to it is ever made.
        unsafe { VolatilePtr::new(self.base.add(word)) }
    }
}

impl nic::Dma for Words {
    fn address(&self) -> u64 {
        self.address
    }

    fn words(&self) -> usize {
        self.words
    }

    fn read(&self, word: usize) -> u32 {
        self.pointer(word).read()
    }

    fn write(&self, word: usize, value: u32) {
        self.pointer(word).write(value);
    }
}
