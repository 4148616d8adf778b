//! Segments, the task state segment and the interrupt stacks.
//!
//! The order of the user segments is what SYSRET demands (AMD APM volume 2, 6.1.1): 32-bit code
//! (never used, so absent), data, 64-bit code.
//!
//! Invariant: double fault, NMI, machine check, debug and page fault each have a stack of their
//! own, so that none of them needs the stack of what they interrupt to be good.

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
const TASK_STATE: u16 = 0x28;

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
static TASK: CpuCell<TaskStateSegment> = CpuCell::new(TaskStateSegment::new());
static TABLE: CpuCell<GlobalDescriptorTable> = CpuCell::new(GlobalDescriptorTable::new());

/// Builds and loads the table; all interrupt stacks are one early stack until [`set_stack`].
pub fn init() {
    let early = VirtAddr::new(EARLY_STACK.get() as u64) + EARLY_STACK_BYTES as u64;
    // SAFETY: called once, at start, with interrupts off; nothing else refers to the statics. The
    // selectors loaded are those of the table loaded just before.
    unsafe {
        (*TASK.get()).interrupt_stack_table = [early; 7];
        (*TASK.get()).privilege_stack_table[0] = early;
        let table = &mut *TABLE.get();
        for descriptor in [
            Descriptor::kernel_code_segment(),
            Descriptor::kernel_data_segment(),
            Descriptor::user_data_segment(),
            Descriptor::user_code_segment(),
            Descriptor::tss_segment_unchecked(TASK.get()),
        ] {
            table.append(descriptor);
        }
        table.load_unsafe();
        CS::set_reg(SegmentSelector(KERNEL_CODE));
        SS::set_reg(SegmentSelector(KERNEL_DATA));
        DS::set_reg(SegmentSelector(0));
        ES::set_reg(SegmentSelector(0));
        FS::set_reg(SegmentSelector(0));
        GS::set_reg(SegmentSelector(0));
        load_tss(SegmentSelector(TASK_STATE));
    }
}

/// Gives an interrupt its guarded stack; `top` is the address after its last byte.
pub fn set_stack(index: StackIndex, top: u64) {
    // SAFETY: the CPU reads the field only when it takes the interrupt; none is in progress on
    // the old stack, or the kernel would be dying.
    unsafe { (*TASK.get()).interrupt_stack_table[index as usize] = VirtAddr::new(top) };
}

/// Top of the stack of an interrupt.
#[cfg(feature = "ktest")]
pub fn stack(index: StackIndex) -> u64 {
    // SAFETY: as in `set_stack`; a plain read.
    unsafe { (*TASK.get()).interrupt_stack_table[index as usize].as_u64() }
}

/// Sets the stack for traps from ring 3 that have no stack of their own.
pub fn set_trap_stack(top: u64) {
    // SAFETY: as in `set_stack`; the CPU is in ring 0, so no trap from ring 3 is in progress.
    unsafe { (*TASK.get()).privilege_stack_table[0] = VirtAddr::new(top) };
}
