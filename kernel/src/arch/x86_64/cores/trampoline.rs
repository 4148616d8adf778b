//! The first instructions of a core: from real mode in a page below 1 MiB to the kernel.
//!
//! The page holds the code and, at its end, what that needs: page tables, stack, entry and a table
//! of segments. Tables of its own map the page to itself and the kernel as everywhere.
//!
//! Invariant: the page is written by the boot core only, while no core starts.

use core::arch::global_asm;

use kernel_core::addr::{PAGE_SIZE, PhysAddr, VirtAddr};
use kernel_core::paging::entry::{Attributes, Class, Protection};
use kernel_core::paging::{PageSize, PageTable};
use kernel_core::phys::PhysMem;

use crate::mm::{self, DirectMap};

/// Where the code looks for what it needs, in its page.
const ROOT_AT: u64 = 0xf00;
const STACK_AT: u64 = 0xf08;
const ENTRY_AT: u64 = 0xf10;
const CORE_AT: u64 = 0xf18;
const SEGMENTS_AT: u64 = 0xf20;
const TABLE_AT: u64 = 0xf40;
const FAR_AT: u64 = 0xf50;

/// A segment of 64-bit code, present, ring 0 (Intel SDM volume 3A, 3.4.5).
const CODE_SEGMENT: u64 = 0x00af_9b00_0000_ffff;
/// A segment of data.
const DATA_SEGMENT: u64 = 0x00cf_9300_0000_ffff;

// A core starts with CS at the page and IP 0. Long mode is entered from real mode at once (Intel
// SDM volume 3A, 10.8.5 allows it with PE and PG set together). CR0: PG, WP, NE, ET, MP, PE; the
// caches, which a reset switches off, are on. EFER: LME and NXE.
global_asm!(
    ".pushsection .rodata.hearth_trampoline, \"a\", @progbits",
    ".global hearth_trampoline",
    ".global hearth_trampoline_long",
    ".global hearth_trampoline_end",
    ".code16",
    "hearth_trampoline:",
    "cli",
    "cld",
    "mov ax, cs",
    "mov ds, ax",
    "mov eax, 0x20",
    "mov cr4, eax",
    "mov eax, dword ptr ds:[0xf00]",
    "mov cr3, eax",
    "mov ecx, 0xc0000080",
    "rdmsr",
    "or eax, 0x900",
    "wrmsr",
    // lgdt with a base of 32 bits, from 0xf40.
    ".byte 0x66, 0x0f, 0x01, 0x16, 0x40, 0x0f",
    "mov eax, 0x80010033",
    "mov cr0, eax",
    // A far jump with an offset of 32 bits, from 0xf50.
    ".byte 0x66, 0xff, 0x2e, 0x50, 0x0f",
    ".code64",
    "hearth_trampoline_long:",
    "mov ax, 16",
    "mov ds, ax",
    "mov es, ax",
    "mov ss, ax",
    // The page is where this runs; its end has the rest.
    "lea rbx, [rip + hearth_trampoline]",
    "mov rsp, [rbx + 0xf08]",
    "mov rdi, [rbx + 0xf18]",
    "mov rax, [rbx + 0xf10]",
    "xor ebp, ebp",
    "call rax",
    "ud2",
    "hearth_trampoline_end:",
    ".popsection",
);

unsafe extern "C" {
    static hearth_trampoline: u8;
    static hearth_trampoline_long: u8;
    static hearth_trampoline_end: u8;
}

/// The page, ready to start cores.
pub(super) struct Trampoline {
    page: PhysAddr,
    table: PageTable,
}

impl Trampoline {
    /// Takes the page that `mm` has put aside. `None` where there is none below 1 MiB, or no memory
    /// for tables below 4 GiB.
    pub(super) fn new() -> Option<Self> {
        let page = mm::start_page()?;
        let mut frames = mm::frames();
        let table = PageTable::new(&mut DirectMap, &mut *frames).ok()?;
        table.share_kernel_half(&mut DirectMap, mm::kernel_table());
        let here = VirtAddr::new(page.as_u64());
        // The page lies in the programs' half. SMEP, under which the kernel runs nothing there, is
        // switched on once a core has left it.
        let attributes = Attributes::user(Protection::ReadExecute, Class::Private);
        let size = PageSize::Small;
        table
            .map(&mut DirectMap, &mut *frames, here, page, size, attributes)
            .ok()?;
        drop(frames);
        u32::try_from(table.root().as_u64()).ok()?;
        let this = Self { page, table };
        this.write_code();
        Some(this)
    }

    /// The page's number, as a start message has it.
    pub(super) fn number(&self) -> u8 {
        (self.page.as_u64() / PAGE_SIZE) as u8
    }

    fn put(&self, at: u64, value: u64) {
        DirectMap.write(self.page.offset(at), &value.to_le_bytes());
    }

    fn write_code(&self) {
        // SAFETY: the three are places in one section of the image, in this order.
        let (code, long) = unsafe {
            let start = &raw const hearth_trampoline;
            let end = &raw const hearth_trampoline_end;
            let length = end.offset_from(start) as usize;
            let long = (&raw const hearth_trampoline_long).offset_from(start) as u64;
            (core::slice::from_raw_parts(start, length), long)
        };
        assert!(code.len() < ROOT_AT as usize, "the trampoline fits");
        DirectMap.write(self.page, code);
        let base = self.page.as_u64();
        self.put(ROOT_AT, self.table.root().as_u64());
        self.put(SEGMENTS_AT, 0);
        self.put(SEGMENTS_AT + 8, CODE_SEGMENT);
        self.put(SEGMENTS_AT + 16, DATA_SEGMENT);
        // Limit and base; selector and offset.
        self.put(TABLE_AT, 23 | (base + SEGMENTS_AT) << 16);
        self.put(FAR_AT, (base + long) | 8 << 32);
    }

    /// What the next core is to begin with.
    pub(super) fn aim(&self, stack: u64, entry: extern "C" fn(usize) -> !, core: usize) {
        self.put(STACK_AT, stack);
        self.put(ENTRY_AT, entry as usize as u64);
        self.put(CORE_AT, core as u64);
    }
}

impl Drop for Trampoline {
    /// Gives the tables back; the page stays aside.
    fn drop(&mut self) {
        let mut frames = mm::frames();
        let here = VirtAddr::new(self.page.as_u64());
        let unmapped = self.table.unmap(&mut DirectMap, &mut *frames, here);
        unmapped.expect("the page is mapped");
        self.table.destroy(&mut DirectMap, &mut *frames);
    }
}
