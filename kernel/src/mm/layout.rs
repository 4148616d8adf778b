//! The virtual address space: what lies where, and how large it may get.
//!
//! | from | what | rights |
//! |---|---|---|
//! | 0 | programs; page 0 is never mapped | as the program's segments say |
//! | `ffff_8000_0000_0000` | all memory, one to one | read, write; the kernel's code and constants read |
//! | `ffff_c000_0000_0000` | kernel heap | read, write |
//! | `ffff_d000_0000_0000` | kernel stacks, a hole of a page under each | read, write |
//! | `ffff_e000_0000_0000` | device registers | read, write, not cached |
//! | `ffff_ffff_8000_0000` | kernel image | by segment, never both written and executed |
//!
//! Two kinds of stacks have no hole under them. `TRAP_STACKS` (`arch::user`), one a core, take the
//! few words that the CPU and the entry code store at a trap from ring 3 before they are moved to
//! the program's context, 64 bytes of 256, and no function ever runs on them. `EARLY_STACK`
//! (`arch::gdt`) serves faults before [`STACKS`] is mapped, when there is nothing but a report to
//! write.
//!
//! Invariant: each area lies in a root entry of its own, so that all programs' tables share it.

pub use kernel_core::addr::KERNEL_IMAGE;
use kernel_core::addr::PAGE_SIZE;

/// All memory, one to one. The boot stub uses the same place.
pub const PHYSICAL_MAP: u64 = 0xffff_8000_0000_0000;
/// The kernel heap.
pub const HEAP: u64 = 0xffff_c000_0000_0000;
/// Kernel stacks.
pub const STACKS: u64 = 0xffff_d000_0000_0000;
/// Device registers.
pub const DEVICES: u64 = 0xffff_e000_0000_0000;

/// Device registers mapped in total: a few BARs and the APIC need far less.
pub const DEVICES_BYTES: u64 = 64 * 1024 * 1024;

/// A page through which firmware's tables are read, a hole behind the devices.
pub const FIRMWARE_WINDOW: u64 = DEVICES + DEVICES_BYTES + PAGE_SIZE;

/// The heap a kernel starts with; it grows in steps when that is used up.
pub const HEAP_START_BYTES: u64 = 512 * 1024;
/// One step of the heap's growth.
pub const HEAP_STEP_BYTES: u64 = 128 * 1024;
/// The heap may always grow to this size: a node's buffers (a datagram ring, eight 32 KiB page
/// requests, the state of the protocol) take under 2 MiB.
pub const HEAP_LEAST_MAX_BYTES: u64 = 4 * 1024 * 1024;
/// On larger machines the heap may take this part of memory, since page tables and regions of
/// larger programs are kept in it ...
pub const HEAP_MEMORY_PART: u64 = 32;
/// ... but never more than this.
pub const HEAP_MOST_MAX_BYTES: u64 = 64 * 1024 * 1024;

/// The kernel's stack. The deepest path measured (loading a program, page request, network stack,
/// driver) uses 27 KiB; the kernel's tests fail beyond three quarters of this.
pub const KERNEL_STACK_BYTES: u64 = 64 * 1024;
/// An interrupt stack: a panic report is formatted and sent on it.
pub const INTERRUPT_STACK_BYTES: u64 = 16 * 1024;

/// Frames a kernel needs in all, before a program gets any: below it says so and halts.
pub const LEAST_MEMORY_BYTES: u64 = 12 * 1024 * 1024;

const _: () = assert!(HEAP_START_BYTES.is_multiple_of(PAGE_SIZE));
const _: () = assert!(HEAP_STEP_BYTES.is_multiple_of(PAGE_SIZE));
const _: () = assert!(HEAP_START_BYTES <= HEAP_LEAST_MAX_BYTES);
const _: () = assert!(HEAP_LEAST_MAX_BYTES + KERNEL_STACK_BYTES < LEAST_MEMORY_BYTES);
