//! Physical memory through the map of all of it.
//!
//! Invariant: only addresses of memory are passed in; the kernel's own frames that hold code are
//! mapped read-only there, so that a stray write faults.

use core::arch::asm;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use kernel_core::addr::{PAGE_SIZE, PhysAddr, VirtAddr};
use kernel_core::phys::{PhysMem, check_in_frame};

use super::phys_to_virt;

/// Access to physical memory for `kernel_core`.
#[derive(Clone, Copy, Debug)]
pub struct DirectMap;

impl PhysMem for DirectMap {
    fn read_u64(&self, at: PhysAddr) -> u64 {
        debug_assert!(at.is_aligned(8));
        // SAFETY: callers pass addresses of memory (the module's invariant), aligned; page tables
        // are changed by the CPU too (accessed, dirty), hence volatile.
        unsafe { phys_to_virt(at).cast::<u64>().read_volatile() }
    }

    fn write_u64(&mut self, at: PhysAddr, value: u64) {
        debug_assert!(at.is_aligned(8));
        // SAFETY: as in `read_u64`; the frame is a table that the caller owns.
        unsafe { phys_to_virt(at).cast::<u64>().write_volatile(value) }
    }

    fn change_u64(&mut self, at: PhysAddr, change: impl Fn(u64) -> u64) -> u64 {
        debug_assert!(at.is_aligned(8));
        // SAFETY: as in `write_u64`; the CPUs change it at the same time, in one step each.
        let entry = unsafe { AtomicU64::from_ptr(phys_to_virt(at).cast()) };
        let changed =
            entry.fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| Some(change(old)));
        changed.unwrap_or_default()
    }

    fn zero_frame(&mut self, frame: PhysAddr) {
        assert!(frame.is_aligned(PAGE_SIZE));
        // SAFETY: the frame belongs to the caller; nobody holds a reference into it.
        unsafe {
            asm!("rep stosq", inout("rdi") phys_to_virt(frame) => _,
                inout("rcx") PAGE_SIZE / 8 => _, in("rax") 0u64,
                options(nostack, preserves_flags));
        }
    }

    fn copy_frame(&mut self, from: PhysAddr, to: PhysAddr) {
        assert!(from.is_aligned(PAGE_SIZE) && to.is_aligned(PAGE_SIZE) && from != to);
        // SAFETY: both are whole frames of memory and not the same; the caller owns `to`.
        unsafe {
            asm!("rep movsq", inout("rsi") phys_to_virt(from) => _,
                inout("rdi") phys_to_virt(to) => _, inout("rcx") PAGE_SIZE / 8 => _,
                options(nostack, preserves_flags));
        }
    }

    fn read(&self, at: PhysAddr, out: &mut [u8]) {
        check_in_frame(at, out.len());
        // SAFETY: the range lies in one frame of memory; `out` is kernel memory of its own.
        unsafe { copy(phys_to_virt(at), out.as_mut_ptr(), out.len()) }
    }

    fn write(&mut self, at: PhysAddr, bytes: &[u8]) {
        check_in_frame(at, bytes.len());
        // SAFETY: as in `read`, the other way round; the caller owns the frame.
        unsafe { copy(bytes.as_ptr(), phys_to_virt(at), bytes.len()) }
    }
}

/// Changes a word in one step for all cores; the value that it had.
pub(super) fn change_word(at: PhysAddr, change: impl Fn(u32) -> u32) -> u32 {
    assert!(at.is_aligned(4));
    // SAFETY: an address of memory (the module's invariant), aligned; programs change it at the
    // same time, by instructions that are atomic to this one.
    let word = unsafe { AtomicU32::from_ptr(phys_to_virt(at).cast()) };
    let changed = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| Some(change(old)));
    changed.unwrap_or_default()
}

/// Reads a word in one step.
pub(super) fn read_word(at: PhysAddr) -> u32 {
    assert!(at.is_aligned(4));
    // SAFETY: as in `change_word`.
    unsafe { AtomicU32::from_ptr(phys_to_virt(at).cast()) }.load(Ordering::Acquire)
}

/// Copies from a page that is mapped for reading.
pub(super) fn read_page(page: VirtAddr, offset: u64, out: &mut [u8]) {
    assert!(offset + out.len() as u64 <= PAGE_SIZE);
    // SAFETY: the caller has mapped the page, and the range lies in it; `out` is kernel memory of
    // its own. What firmware's memory holds may change meanwhile, and any bytes will do.
    unsafe {
        copy(
            (page.as_u64() + offset) as *const u8,
            out.as_mut_ptr(),
            out.len(),
        )
    }
}

/// Copies with string instructions, by words and then what is left by bytes. Processors copy either
/// way at the same speed; an emulator takes each repetition by itself, and a word is one.
///
/// # Safety
/// Both ranges are valid for `length` bytes and do not overlap.
unsafe fn copy(from: *const u8, to: *mut u8, length: usize) {
    // SAFETY: promised by the caller; DF is clear in the kernel.
    unsafe {
        asm!("rep movsq", "mov rcx, {rest}", "rep movsb", rest = in(reg) length % 8,
            inout("rsi") from => _, inout("rdi") to => _, inout("rcx") length / 8 => _,
            options(nostack, preserves_flags));
    }
}

/// Clears memory, by words.
///
/// # Safety
/// The range is the caller's, is valid for `length` bytes, a multiple of 8, and nobody holds a
/// reference into it.
pub(super) unsafe fn scrub(start: *mut u8, length: usize) {
    debug_assert!(length.is_multiple_of(8));
    // SAFETY: promised by the caller; DF is clear in the kernel.
    unsafe {
        asm!("rep stosq", inout("rdi") start => _, inout("rcx") length / 8 => _, in("rax") 0u64,
            options(nostack, preserves_flags));
    }
}

/// The cleared table of the frame allocator at `start`, which nobody uses: `count` tags.
pub(super) fn take_tags(start: PhysAddr, count: usize) -> &'static mut [u16] {
    assert!(start.is_aligned(PAGE_SIZE));
    // SAFETY: called once, for memory the boot map calls usable and that is then left out of the
    // allocator; any bit pattern is a u16, and it is cleared first.
    unsafe {
        let tags = phys_to_virt(start).cast::<u16>();
        tags.write_bytes(0, count);
        core::slice::from_raw_parts_mut(tags, count)
    }
}
