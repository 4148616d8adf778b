//! Fixed buffers that a virtio device reads or writes.
//!
//! Key type: [`Pool`]. Neighbours: `mm` allocates the memory, `net` decides who owns a slot.
//!
//! Invariant: between posting a slot to the device and getting it back, nobody calls
//! [`Pool::slot`] for it.

use core::ptr::NonNull;

use crate::mm;

/// Bytes of one slot: a full frame with the 12-byte virtio header (1,526 bytes), rounded up so
/// that two slots fill a page and none crosses one.
pub const SLOT_BYTES: usize = 2048;

const PAGE_BYTES: usize = 4096;
const SLOTS_PER_PAGE: usize = PAGE_BYTES / SLOT_BYTES;

/// A number of equal buffers in contiguous DMA memory.
#[derive(Debug)]
pub struct Pool {
    base: NonNull<u8>,
    slots: usize,
}

// SAFETY: the pool owns its memory; the pointer is only followed through `&mut self` or `&self`.
unsafe impl Send for Pool {}

impl Pool {
    /// Allocates `slots` zeroed buffers, which are never given back; `None` without enough
    /// contiguous memory.
    pub fn new(slots: usize) -> Option<Self> {
        let (_, base) = mm::dma_alloc(slots.div_ceil(SLOTS_PER_PAGE))?;
        Some(Self { base, slots })
    }

    /// The buffer `slot`, which the device must not own now.
    pub fn slot(&mut self, slot: usize) -> &mut [u8] {
        assert!(slot < self.slots, "no buffer {slot}");
        // SAFETY: the slot lies inside the allocation, was initialised with zeros, and `&mut self`
        // makes this the only reference to it; the device does not write it by the invariant.
        unsafe {
            core::slice::from_raw_parts_mut(self.base.add(slot * SLOT_BYTES).as_ptr(), SLOT_BYTES)
        }
    }
}
