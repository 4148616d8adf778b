//! Memory for the virtio crate.
//!
//! Key type: [`KernelHal`]. Neighbours: `mm` owns the frames and mappings.
//!
//! Invariant: only memory of `mm::dma_alloc`, which lies in the physical map, is ever shared with
//! a device. Sharing is then a subtraction: the CPUs this kernel runs on keep DMA coherent with
//! their caches, and no IOMMU is switched on.

use core::ptr::NonNull;

use kernel_core::addr::PhysAddr;
use virtio_drivers::{BufferDirection, Hal, PhysAddr as DeviceAddr};

use crate::mm;

/// The kernel as the virtio crate sees it.
#[derive(Debug)]
pub struct KernelHal;

// SAFETY: `dma_alloc` returns zeroed, page-aligned, contiguous frames that nobody else has, and a
// pointer into the physical map that stays valid; `mmio_phys_to_virt` returns a fresh uncached
// mapping; `share` returns the address at which the device sees exactly that buffer.
unsafe impl Hal for KernelHal {
    fn dma_alloc(pages: usize, _direction: BufferDirection) -> (DeviceAddr, NonNull<u8>) {
        // The crate takes address 0 for "no memory".
        mm::dma_alloc(pages).map_or((0, NonNull::dangling()), |(phys, virt)| {
            (phys.as_u64(), virt)
        })
    }

    unsafe fn dma_dealloc(_paddr: DeviceAddr, _vaddr: NonNull<u8>, _pages: usize) -> i32 {
        // A ring is given up only when a card failed to start. The device may still hold its
        // address, so the few pages stay out of use for good rather than be written to by it.
        0
    }

    unsafe fn mmio_phys_to_virt(paddr: DeviceAddr, size: usize) -> NonNull<u8> {
        mm::map_mmio(PhysAddr::new(paddr), size as u64)
    }

    unsafe fn share(buffer: NonNull<[u8]>, _direction: BufferDirection) -> DeviceAddr {
        mm::virt_to_phys(buffer.cast()).as_u64()
    }

    unsafe fn unshare(_paddr: DeviceAddr, _buffer: NonNull<[u8]>, _direction: BufferDirection) {
        // Coherent memory used in place: nothing to copy back or unmap.
    }
}
