//! The kernel heap: `linked_list_allocator` over pages that are mapped as it grows.
//!
//! Its sizes are in [`super::layout`]. A heap at its limit (or a machine out of frames) makes the
//! allocation fail, which is a panic in Rust's `alloc`: what a peer or a program can ask for must
//! be bounded before it is allocated.
//!
//! Invariant: the heap never shrinks and never moves. What was in a block is gone when the block
//! has been given back, so that nothing of a job stays here: arguments, messages, streams, a
//! program's registers.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};

use linked_list_allocator::Heap;
use spin::Mutex;

use super::layout;

struct GrowingHeap(Mutex<Heap>);

#[global_allocator]
static HEAP: GrowingHeap = GrowingHeap(Mutex::new(Heap::empty()));
/// How far the heap may grow, in bytes.
static LIMIT: AtomicU64 = AtomicU64::new(0);

/// Maps the first part. `memory_bytes` decides how far the heap may grow.
pub(super) fn init(memory_bytes: u64) {
    let limit = (memory_bytes / layout::HEAP_MEMORY_PART)
        .clamp(layout::HEAP_LEAST_MAX_BYTES, layout::HEAP_MOST_MAX_BYTES)
        / layout::HEAP_STEP_BYTES
        * layout::HEAP_STEP_BYTES;
    LIMIT.store(limit, Ordering::Relaxed);
    assert!(
        super::map_fresh(layout::HEAP, layout::HEAP_START_BYTES),
        "too little memory for the kernel heap"
    );
    // SAFETY: the pages have just been mapped and belong to the heap for good.
    unsafe {
        HEAP.0
            .lock()
            .init(layout::HEAP as *mut u8, layout::HEAP_START_BYTES as usize);
    }
}

/// How far the heap may grow, in bytes.
pub(super) fn limit_bytes() -> u64 {
    LIMIT.load(Ordering::Relaxed)
}

/// How much can still be taken from the heap, in bytes, in small pieces.
pub(super) fn room_bytes() -> u64 {
    let used = HEAP.0.lock().used() as u64;
    limit_bytes().saturating_sub(used)
}

/// How large the heap is now, in bytes.
#[cfg(feature = "ktest")]
pub(super) fn size_bytes() -> u64 {
    HEAP.0.lock().size() as u64
}

/// Makes the heap larger by at least `bytes`; `false` when it may not or cannot.
fn grow(heap: &mut Heap, bytes: usize) -> bool {
    let steps = (bytes as u64).div_ceil(layout::HEAP_STEP_BYTES).max(1);
    let more = steps * layout::HEAP_STEP_BYTES;
    let size = heap.size() as u64;
    if size + more > limit_bytes() || !super::map_fresh(layout::HEAP + size, more) {
        return false;
    }
    // SAFETY: the pages directly behind the heap have just been mapped for it.
    unsafe { heap.extend(more as usize) };
    true
}

// SAFETY: `Heap` hands out disjoint, aligned blocks of memory that stays mapped; the lock is
// never held across a call back into the allocator.
unsafe impl GlobalAlloc for GrowingHeap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let mut heap = self.0.lock();
        if let Ok(block) = heap.allocate_first_fit(layout) {
            return block.as_ptr();
        }
        // Room for the block wherever it is aligned, and for the hole before it.
        let wanted = layout.size() + layout.align() + 2 * size_of::<usize>();
        if !grow(&mut heap, wanted) {
            return core::ptr::null_mut();
        }
        heap.allocate_first_fit(layout)
            .map_or(core::ptr::null_mut(), NonNull::as_ptr)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let block = NonNull::new(block).expect("null was freed");
        // SAFETY: the block is the caller's no more and nobody else's yet. The heap gives out whole
        // words.
        unsafe { super::physical::scrub(block.as_ptr(), layout.size().next_multiple_of(8)) };
        // SAFETY: the caller got the block from `alloc` with this layout.
        unsafe { self.0.lock().deallocate(block, layout) }
    }
}
