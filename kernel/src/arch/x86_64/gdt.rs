//! Segments, the task state segments and the interrupt stacks.
//!
//! There is one table for all cores, with a task state segment for each: which of them is loaded
//! says which core this is ([`this`]), in any context and without a register of its own.
//!
//! The order of the user segments is what SYSRET demands (AMD APM volume 2, 6.1.1): 32-bit code
//! (never used, so absent), data, 64-bit code.
//!
//! Invariant: double fault, NMI, machine check, debug and page fault each have a stack of their
//! own, so that none of them needs the stack of what they interrupt to be good.

use kernel_core::threads::CORES_MAX;
use x86_64::VirtAddr;
use x86_64::instructions::segmentation::{CS, DS, ES, FS, GS, SS, Segment};
use x86_64::instructions::tables::load_tss;
use x86_64::structures::gdt::{Descriptor, GlobalDescriptorTable, SegmentSelector};
use x86_64::structures::tss::TaskStateSegment;

use super::{CpuCell, StackBytes};

/// Code segment of ring 0.
pub const KERNEL_CODE: u16 = 0x08;
/// Data segment of ring 0.
pub const KERNEL_DATA: u16 = 0x10;
/// Data segment of ring 3, with its privilege level.
pub const USER_DATA: u16 = 0x18 | 3;
/// Code segment of ring 3, with its privilege level.
pub const USER_CODE: u16 = 0x20 | 3;
/// Of core 0; those of the others follow.
const TASK_STATE: u16 = 0x28;
const TASK_STATE_BYTES: u16 = 16;
/// Entries of the table: null, four segments, two for each task state.
const ENTRIES: usize = 5 + 2 * CORES_MAX;

/// Interrupt stacks, by their index in the task state segment (the CPU counts from 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum StackIndex {
    /// Double fault.
    DoubleFault = 0,
    /// Non-maskable interrupt.
    Nmi = 1,
    /// Machine check.
    MachineCheck = 2,
    /// Page fault.
    PageFault = 3,
    /// Debug exception.
    Debug = 4,
}

impl StackIndex {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::DoubleFault,
        Self::Nmi,
        Self::MachineCheck,
        Self::PageFault,
        Self::Debug,
    ];
}

/// Stack for faults before [`set_stack`]: shared, without guard page, enough for a report.
const EARLY_STACK_BYTES: usize = 16 * 1024;

static EARLY_STACK: CpuCell<StackBytes<EARLY_STACK_BYTES>> =
    CpuCell::new(StackBytes([0; EARLY_STACK_BYTES]));
static TASKS: CpuCell<[TaskStateSegment; CORES_MAX]> =
    CpuCell::new([const { TaskStateSegment::new() }; CORES_MAX]);
static TABLE: CpuCell<GlobalDescriptorTable<ENTRIES>> =
    CpuCell::new(GlobalDescriptorTable::empty());

fn task(core: usize) -> *mut TaskStateSegment {
    assert!(core < CORES_MAX, "core {core}");
    // The place of an element, of which no reference is made.
    TASKS.get().cast::<TaskStateSegment>().wrapping_add(core)
}

/// The number of this core. Needs [`init`] or [`load`].
#[inline]
pub fn this() -> usize {
    let selector: u16;
    // SAFETY: reads the selector of the task state segment.
    unsafe {
        core::arch::asm!("str {0:x}", out(reg) selector, options(nomem, nostack, preserves_flags));
    }
    usize::from((selector - TASK_STATE) / TASK_STATE_BYTES)
}

/// Builds the table and loads it on core 0; all its interrupt stacks are one early stack until
/// [`set_stack`].
pub fn init() {
    let early = VirtAddr::new(EARLY_STACK.get() as u64) + EARLY_STACK_BYTES as u64;
    // SAFETY: called once, at start, with interrupts off; nothing else refers to the statics.
    unsafe {
        (*task(0)).interrupt_stack_table = [early; 7];
        (*task(0)).privilege_stack_table[0] = early;
        let table = &mut *TABLE.get();
        for descriptor in [
            Descriptor::kernel_code_segment(),
            Descriptor::kernel_data_segment(),
            Descriptor::user_data_segment(),
            Descriptor::user_code_segment(),
        ] {
            table.append(descriptor);
        }
        for core in 0..CORES_MAX {
            table.append(Descriptor::tss_segment_unchecked(task(core)));
        }
    }
    load(0);
}

/// Loads the table on this core, which is number `core`.
pub fn load(core: usize) {
    let selector = TASK_STATE + core as u16 * TASK_STATE_BYTES;
    // SAFETY: the table is complete and lives as long as the kernel; the selectors are those of
    // this table, and the task state is this core's alone.
    unsafe {
        (*TABLE.get()).load_unsafe();
        CS::set_reg(SegmentSelector(KERNEL_CODE));
        SS::set_reg(SegmentSelector(KERNEL_DATA));
        DS::set_reg(SegmentSelector(0));
        ES::set_reg(SegmentSelector(0));
        FS::set_reg(SegmentSelector(0));
        GS::set_reg(SegmentSelector(0));
        load_tss(SegmentSelector(selector));
    }
}

/// Gives an interrupt of a core its guarded stack; `top` is the address after its last byte.
pub fn set_stack(core: usize, index: StackIndex, top: u64) {
    // SAFETY: the core reads the field only when it takes the interrupt; none is in progress on
    // the old stack, or the kernel would be dying.
    unsafe { (*task(core)).interrupt_stack_table[index as usize] = VirtAddr::new(top) };
}

/// Top of the stack of an interrupt on core 0.
#[cfg(feature = "ktest")]
pub fn stack(index: StackIndex) -> u64 {
    // SAFETY: as in `set_stack`; a plain read.
    unsafe { (*task(0)).interrupt_stack_table[index as usize].as_u64() }
}

/// Sets the stack of a core for traps from ring 3 that have no stack of their own.
pub fn set_trap_stack(core: usize, top: u64) {
    // SAFETY: as in `set_stack`; the core is in ring 0, so no trap from ring 3 is in progress.
    unsafe { (*task(core)).privilege_stack_table[0] = VirtAddr::new(top) };
}
