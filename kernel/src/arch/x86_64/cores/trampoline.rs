//! The first instructions of a core: from real mode in a page below 1 MiB to the kernel.
//!
//! The page holds the code and, at its end, what that needs: page tables, stack, entry and a table
//! of segments. `mm::StartPage` has the page and its tables.
//!
//! One core at a time is asked to come, by its APIC id ([`EXPECTED`]). Before it touches the stack
//! it takes the id away. A core that comes late does not find its id, and halts without having used
//! anything.
//!
//! Invariant: the page is written by the boot core only, and not between a core's taking its id and
//! its arrival.

use core::arch::global_asm;
use core::sync::atomic::{AtomicU64, Ordering};

use kernel_core::addr::{PAGE_SIZE, PhysAddr};
use kernel_core::phys::PhysMem;

/// Where the code looks for what it needs, in its page.
const ROOT_AT: u64 = 0xf00;
const STACK_AT: u64 = 0xf08;
const ENTRY_AT: u64 = 0xf10;
const CORE_AT: u64 = 0xf18;
const SEGMENTS_AT: u64 = 0xf20;
const TABLE_AT: u64 = 0xf40;
const FAR_AT: u64 = 0xf50;
const EXPECTED_AT: u64 = 0xf58;

/// The APIC id of the core that is asked to come, or [`NOBODY`].
static EXPECTED: AtomicU64 = AtomicU64::new(NOBODY);
/// Larger than any id.
const NOBODY: u64 = 1 << 32;

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
    // The id of this core: that of x2APIC (Intel SDM volume 2A, CPUID leaf 0BH), else the one of 8
    // bits.
    "xor eax, eax",
    "cpuid",
    "cmp eax, 0xb",
    "jb 2f",
    "mov eax, 0xb",
    "xor ecx, ecx",
    "cpuid",
    "test ebx, ebx",
    "jnz 3f",
    "2:",
    "mov eax, 1",
    "cpuid",
    "shr ebx, 24",
    "mov edx, ebx",
    "3:",
    // The page is where this runs; its end has the rest.
    "lea rbx, [rip + hearth_trampoline]",
    "mov eax, edx",
    "mov ecx, 1",
    "shl rcx, 32",
    "mov rsi, [rbx + 0xf58]",
    "lock cmpxchg [rsi], rcx",
    "jne 4f",
    "mov rsp, [rbx + 0xf08]",
    "mov rdi, [rbx + 0xf18]",
    "mov rax, [rbx + 0xf10]",
    "xor ebp, ebp",
    "call rax",
    "ud2",
    "4:",
    "hlt",
    "jmp 4b",
    "hearth_trampoline_end:",
    ".popsection",
);

unsafe extern "C" {
    static hearth_trampoline: u8;
    static hearth_trampoline_long: u8;
    static hearth_trampoline_end: u8;
}

/// The page, ready to start cores. It is written through `M`.
pub struct Trampoline<M> {
    memory: M,
    page: PhysAddr,
}

impl<M: PhysMem> Trampoline<M> {
    /// Writes the code into a page below 1 MiB, and the root of page tables that map it at its own
    /// address, to be executed, and the kernel.
    pub fn new(memory: M, page: PhysAddr, root: u32) -> Self {
        let mut this = Self { memory, page };
        this.write_code(root);
        this
    }

    /// The page's number, as a start message has it.
    pub(super) fn number(&self) -> u8 {
        (self.page.as_u64() / PAGE_SIZE) as u8
    }

    fn put(&mut self, at: u64, value: u64) {
        self.memory
            .write(self.page.offset(at), &value.to_le_bytes());
    }

    fn write_code(&mut self, root: u32) {
        // SAFETY: the three are places in one section of the image, in this order.
        let (code, long) = unsafe {
            let start = &raw const hearth_trampoline;
            let end = &raw const hearth_trampoline_end;
            let length = end.offset_from(start) as usize;
            let long = (&raw const hearth_trampoline_long).offset_from(start) as u64;
            (core::slice::from_raw_parts(start, length), long)
        };
        assert!(code.len() < ROOT_AT as usize, "the trampoline fits");
        self.memory.write(self.page, code);
        let base = self.page.as_u64();
        self.put(ROOT_AT, root.into());
        self.put(SEGMENTS_AT, 0);
        self.put(SEGMENTS_AT + 8, CODE_SEGMENT);
        self.put(SEGMENTS_AT + 16, DATA_SEGMENT);
        // Limit and base; selector and offset.
        self.put(TABLE_AT, 23 | (base + SEGMENTS_AT) << 16);
        self.put(FAR_AT, (base + long) | 8 << 32);
        self.put(EXPECTED_AT, (&raw const EXPECTED) as u64);
    }

    /// The core with this APIC id is to come, and with what it begins.
    pub(super) fn aim(
        &mut self,
        id: u32,
        stack: u64,
        entry: extern "C" fn(usize) -> !,
        core: usize,
    ) {
        self.put(STACK_AT, stack);
        self.put(ENTRY_AT, entry as usize as u64);
        self.put(CORE_AT, core as u64);
        EXPECTED.store(id.into(), Ordering::SeqCst);
    }

    /// No core is to come any more. Whether none has begun: then the stack is free.
    pub(super) fn withdraw(&mut self) -> bool {
        EXPECTED.swap(NOBODY, Ordering::SeqCst) != NOBODY
    }
}
