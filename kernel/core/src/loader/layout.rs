//! Where things lie in a program's address space. The same for every launch: no randomisation,
//! so that pages kept from one launch fit the next and a fault report can be compared.

use crate::addr::{PAGE_SIZE, USER_END};

/// Lowest address of a mapping: as on Linux, so that a null pointer with an offset still faults.
pub const USER_MIN: u64 = 0x1_0000;
/// End of user space. The last page of the lower half stays empty: a system call at its end would
/// return to a non-canonical address.
pub const USER_TOP: u64 = USER_END - PAGE_SIZE;
/// End of the stack.
pub const STACK_TOP: u64 = USER_TOP;
/// Size of the stack in bytes, as Linux gives by default; committed page by page.
pub const STACK_BYTES: u64 = 8 << 20;
/// Bytes below the stack that are never mapped, so that an overflow is seen.
pub const STACK_GUARD_BYTES: u64 = 1 << 20;
/// mmap without an address gives addresses below this, downwards.
pub const MMAP_TOP: u64 = STACK_TOP - STACK_BYTES - STACK_GUARD_BYTES;
/// Where a position-independent program goes.
pub const PIE_BASE: u64 = 0x5555_5555_4000;
/// End of what segments may take: leaves 64 GiB for the heap and mmap below the stack.
pub const IMAGE_TOP: u64 = MMAP_TOP - (64 << 30);

const _: () = assert!(PIE_BASE < IMAGE_TOP && USER_MIN.is_multiple_of(PAGE_SIZE));
const _: () = assert!(MMAP_TOP.is_multiple_of(PAGE_SIZE));
