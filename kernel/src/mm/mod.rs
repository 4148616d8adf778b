//! Memory: frames, the kernel's page tables, heap and stacks.
//!
//! | module | purpose |
//! |---|---|
//! | [`layout`] | what lies where in virtual memory |
//! | [`physical`] | access to memory through the physical map |
//! | [`kernel_map`] | the kernel's own page tables |
//! | [`heap`] | the global allocator |
//! | [`start_page`] | the page that other cores start in |
//! | [`hardware`] | this machine under `kernel_core::program` |
//!
//! Neighbours: `kernel_core::{frames, paging}` decide; this module touches the hardware.
//!
//! Invariant: the physical map never covers what is not memory; no page is writable and
//! executable; no frame reaches a program unscrubbed (`kernel_core::frames`).

mod hardware;
mod heap;
mod kernel_map;
pub mod layout;
pub mod physical;
mod start_page;

use core::ptr::NonNull;

use bootloader_api::BootInfo;
use bootloader_api::info::{MemoryRegion, MemoryRegionKind, MemoryRegions};
use kernel_core::acpi::FirmwareMemory;
pub use kernel_core::addr::{PAGE_SIZE, PhysAddr, VirtAddr};
use kernel_core::frames::{FrameAllocator, Owner};
use kernel_core::paging::entry::{Attributes, Protection};
use kernel_core::paging::{MapError, PageSize, PageTable};
use kernel_core::phys::PhysMem;
use spin::{Mutex, MutexGuard, Once};

use crate::arch::tlb;

pub use hardware::Hardware;
pub use physical::DirectMap;
pub use start_page::StartPage;

/// The one frame allocator. `None` until [`init`].
static FRAMES: Mutex<Option<FrameAllocator>> = Mutex::new(None);
/// The kernel's page tables, whose upper half all programs share.
static KERNEL_TABLE: Once<PageTable> = Once::new();
/// The frame that cores start in.
static START_PAGE: Once<PhysAddr> = Once::new();
/// Next free address for device registers.
static DEVICES_NEXT: Mutex<u64> = Mutex::new(layout::DEVICES);

/// The frame allocator, locked. Do not call into `mm` while holding it.
pub struct Frames(MutexGuard<'static, Option<FrameAllocator>>);

impl core::ops::Deref for Frames {
    type Target = FrameAllocator;
    fn deref(&self) -> &FrameAllocator {
        self.0.as_ref().expect("mm::init has not run")
    }
}

impl core::ops::DerefMut for Frames {
    fn deref_mut(&mut self) -> &mut FrameAllocator {
        self.0.as_mut().expect("mm::init has not run")
    }
}

/// Locks the frame allocator. One core at a time does the kernel's work (`arch::cores::BigLock`):
/// finding it locked is a bug, and waiting would be for ever.
pub fn frames() -> Frames {
    Frames(FRAMES.try_lock().expect("frame allocator is in use"))
}

/// Memory that the boot stub mapped for the kernel; valid until [`init`] changes tables.
pub fn stub_memory(address: u64, length: usize) -> &'static [u8] {
    // SAFETY: the stub hands over the address with this length in `BootInfo`; the caller copies
    // it before the stub's tables go away.
    unsafe { core::slice::from_raw_parts(address as *const u8, length) }
}

/// Takes over memory from the stub, then calls `next` on tables and a stack of the kernel's own;
/// that calls [`finish`] first. Says so and halts when there is too little memory.
pub fn init(info: &'static BootInfo, next: extern "C" fn() -> !) -> ! {
    let base = info.physical_memory_offset.into_option();
    assert!(
        base == Some(layout::PHYSICAL_MAP),
        "boot stub mapped memory at {base:x?}"
    );
    let regions = &info.memory_regions;
    let memory_bytes = usable_bytes(regions);
    if memory_bytes < layout::LEAST_MEMORY_BYTES {
        error!(
            "mm",
            "too little memory: {} KiB usable, {} KiB needed; give this node at least 32 MiB. Halted.",
            memory_bytes / 1024,
            layout::LEAST_MEMORY_BYTES / 1024
        );
        crate::arch::fail();
    }
    *FRAMES.lock() = Some(collect_frames(regions));
    crate::arch::cpu::enable_paging_features();
    let table = kernel_map::build(regions);
    KERNEL_TABLE.call_once(|| table);
    let top = kernel_map::add_stacks(0).expect("memory for the kernel's stacks");
    // SAFETY: the tables map the kernel as the stub's do, and the stack, which nobody uses yet;
    // the stub's stack, which they do not map, is not used again: `next` does not return.
    unsafe {
        core::arch::asm!(
            "mov cr3, {root}",
            "mov rsp, {top}",
            "xor ebp, ebp",
            "call {next}",
            "ud2",
            root = in(reg) table.root().as_u64(),
            top = in(reg) top,
            next = in(reg) next,
            options(noreturn)
        )
    }
}

/// Second half of the start, on the kernel's own tables and stack: guarded interrupt stacks and
/// the heap.
pub fn finish() {
    kernel_map::use_stacks(0);
    heap::init(stats().total_bytes);
}

/// Stacks of a core more: the top of its kernel stack. `None` when memory is used up.
pub fn add_core(core: usize) -> Option<u64> {
    let top = kernel_map::add_stacks(core)?;
    kernel_map::use_stacks(core);
    Some(top)
}

/// Logs how memory is used.
pub fn report() {
    let stats = stats();
    info!(
        "mm",
        "{} KiB of memory, {} KiB used by the kernel, heap may grow to {} KiB",
        stats.total_bytes / 1024,
        stats.kernel_bytes / 1024,
        heap::limit_bytes() / 1024
    );
}

/// Memory of the node, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Stats {
    /// Under management: all but firmware's, the boot image and the frame table.
    pub total_bytes: u64,
    /// Can be given out.
    pub free_bytes: u64,
    /// In use by the kernel, its image not counted.
    pub kernel_bytes: u64,
    /// Frames are scrubbed between programs.
    pub scrubs: bool,
}

/// Memory in total, free and used.
pub fn stats() -> Stats {
    let frames = frames();
    let usage = frames.usage();
    Stats {
        scrubs: frames.scrubs(),
        total_bytes: usage.total * PAGE_SIZE,
        free_bytes: usage.available() * PAGE_SIZE,
        kernel_bytes: usage.kernel * PAGE_SIZE,
    }
}

/// Room on the heap that is left alone by what programs and datagrams of other ranks add to tables:
/// an addition that finds less is refused. It holds what a node needs whatever its job does, and
/// what cannot fail: eight page requests of 32 KiB and their answers, a launch block with the stack
/// that is made of it, the queue of output.
pub const HEAP_RESERVE_BYTES: u64 = 768 * 1024;

/// Bytes that the kernel's heap can still give out, in small pieces.
pub fn heap_room_bytes() -> u64 {
    heap::room_bytes()
}

/// Most bytes of the boot core's stack that were ever in use: its frames were zero at first.
#[cfg(feature = "ktest")]
pub fn kernel_stack_peak() -> u64 {
    let (bottom, top) = kernel_map::kernel_stack(0);
    let used = (bottom..top).step_by(size_of::<u64>()).find(|&at| {
        // SAFETY: the whole stack is mapped; what lies below the stack pointer may change with
        // the next call, and any value will do.
        unsafe { (at as *const u64).read_volatile() != 0 }
    });
    top - used.unwrap_or(top)
}

/// Clears this core's stack below the caller's part of it: what functions that have returned left
/// there.
#[inline(never)]
pub fn scrub_stack() {
    /// What this function itself may use below its stack pointer, and the red zone that the kernel
    /// does not have.
    const OWN_BYTES: u64 = 256;
    let (bottom, top) = kernel_map::kernel_stack(crate::arch::gdt::this());
    let end = (crate::arch::stack_pointer() - OWN_BYTES) & !7;
    assert!((bottom..top).contains(&end), "not on the kernel's stack");
    // SAFETY: what lies below the stack pointer is nobody's, and the call in between uses less than
    // was left out: it is a string instruction with the pointers to it.
    unsafe { physical::scrub(bottom as *mut u8, (end - bottom) as usize) };
}

/// Words on the stack from `from` on that point into the kernel's code: return addresses, newest
/// first, and some that were left over. None when `from` is not on a stack of the kernel, nor in
/// the hole under one.
pub fn return_addresses(from: u64) -> impl Iterator<Item = u64> {
    let in_hole = kernel_map::end_of_stack(from).is_none();
    let align = if in_hole { PAGE_SIZE } else { 8 };
    let from = from.div_ceil(align) * align;
    let end = kernel_map::end_of_stack(from).unwrap_or(from);
    (from..end)
        .step_by(size_of::<u64>())
        // SAFETY: the whole stack is mapped; any value will do.
        .map(|at| unsafe { (at as *const u64).read_volatile() })
        .filter(|word| kernel_map::is_code(*word))
}

/// Changes a word of memory in one step for all cores; the value that it had. Panics for an address
/// that is not aligned.
pub fn change_word(at: PhysAddr, change: impl Fn(u32) -> u32) -> u32 {
    physical::change_word(at, change)
}

/// Reads a word of memory in one step. Panics for an address that is not aligned.
pub fn read_word(at: PhysAddr) -> u32 {
    physical::read_word(at)
}

/// The kernel's address of physical memory. The address must be memory.
pub fn phys_to_virt(address: PhysAddr) -> *mut u8 {
    (layout::PHYSICAL_MAP + address.as_u64()) as *mut u8
}

/// The physical address behind a pointer into the physical map; panics for any other pointer.
pub fn virt_to_phys(pointer: NonNull<u8>) -> PhysAddr {
    let address = pointer.as_ptr() as u64;
    assert!(
        (layout::PHYSICAL_MAP..layout::HEAP).contains(&address),
        "{address:#x} is not in the physical map"
    );
    PhysAddr::new(address - layout::PHYSICAL_MAP)
}

/// Frames in a row for a device, zeroed, below 4 GiB where possible; the pointer is into the
/// physical map. Devices keep their buffers for good. `None` when memory is too fragmented or used
/// up.
pub fn dma_alloc(pages: usize) -> Option<(PhysAddr, NonNull<u8>)> {
    let pages = pages as u64;
    let frame = frames().alloc_contiguous(&mut DirectMap, pages, PAGE_SIZE, Owner::KERNEL)?;
    let pointer = NonNull::new(phys_to_virt(frame)).expect("physical map is not at zero");
    Some((frame, pointer))
}

/// Maps device registers, uncached, for good. Panics when the area for them is used up.
pub fn map_mmio(address: PhysAddr, length: u64) -> NonNull<u8> {
    let first = address.frame_start();
    let offset = address.as_u64() - first.as_u64();
    let pages = (offset + length).div_ceil(PAGE_SIZE);
    let mut next = DEVICES_NEXT.lock();
    let start = *next;
    // A page between two devices stays unmapped.
    *next += (pages + 1) * PAGE_SIZE;
    assert!(
        *next <= layout::DEVICES + layout::DEVICES_BYTES,
        "no room for {length} bytes of device registers"
    );
    for index in 0..pages {
        map_kernel(
            VirtAddr::new(start + index * PAGE_SIZE),
            first.offset(index * PAGE_SIZE),
            Attributes::device(),
        )
        .expect("device registers are mapped once, at fresh addresses");
    }
    NonNull::new((start + offset) as *mut u8).expect("devices are not at zero")
}

/// A page of the kernel's, not to be written to, that shows one frame of firmware's memory after
/// another. There is one at a time.
#[derive(Default)]
pub struct FirmwareWindow {
    shown: Option<PhysAddr>,
}

impl FirmwareWindow {
    const PAGE: VirtAddr = VirtAddr::new(layout::FIRMWARE_WINDOW);

    fn show(&mut self, frame: PhysAddr) -> bool {
        if self.shown == Some(frame) {
            return true;
        }
        self.close();
        let attributes = Attributes::kernel(Protection::Read);
        let is_shown = map_kernel(Self::PAGE, frame, attributes).is_ok();
        self.shown = is_shown.then_some(frame);
        is_shown
    }

    fn close(&mut self) {
        if self.shown.take().is_some() {
            let unmapped = kernel_table().unmap(&mut DirectMap, &mut *frames(), Self::PAGE);
            unmapped.expect("the window shows a frame");
            invalidate(Self::PAGE);
        }
    }
}

impl FirmwareMemory for FirmwareWindow {
    fn read(&mut self, at: PhysAddr, out: &mut [u8]) -> bool {
        let mut done = 0;
        while done < out.len() {
            let here = at.as_u64() + done as u64;
            let Some(here) = PhysAddr::try_new(here).filter(|_| crate::arch::cpu::reaches(here))
            else {
                return false;
            };
            let offset = here.as_u64() % PAGE_SIZE;
            let length = (out.len() - done).min((PAGE_SIZE - offset) as usize);
            if !self.show(here.frame_start()) {
                return false;
            }
            physical::read_page(Self::PAGE, offset, &mut out[done..done + length]);
            done += length;
        }
        true
    }
}

impl Drop for FirmwareWindow {
    fn drop(&mut self) {
        self.close();
    }
}

/// Makes a table the one the CPU uses. Its upper half must be the kernel's.
pub fn activate(table: PageTable) {
    tlb::load_root(table.root());
}

/// Activates the kernel's own tables: between two programs.
pub fn activate_kernel_table() {
    activate(kernel_table());
}

/// Forgets the translation of one page after its entry changed, and the way to every table: INVLPG
/// drops the paging-structure caches whatever its address (Intel SDM volume 3A, 4.10.4.1).
pub fn invalidate(page: VirtAddr) {
    tlb::flush(page);
}

/// Forgets all translations of the program, and the way to every table.
pub fn invalidate_user() {
    tlb::flush_user();
}

/// What maps the kernel page at `address`, if anything; for tests and reports.
#[cfg(feature = "ktest")]
pub fn kernel_translate(address: VirtAddr) -> Option<kernel_core::paging::Leaf> {
    kernel_table().translate(&DirectMap, address)
}

/// Frames that the kernel has beside those of its heap, and the tables of these.
#[cfg(feature = "ktest")]
pub fn frames_beside_heap() -> u64 {
    let bytes = heap::size_bytes();
    let tables = bytes.div_ceil(kernel_core::addr::LARGE_PAGE_SIZE);
    frames().usage().kernel - bytes / PAGE_SIZE - tables
}

/// End of the memory that is managed.
#[cfg(feature = "ktest")]
pub fn memory_end() -> u64 {
    frames().end().as_u64()
}

/// Which of the kernel's areas map a frame beside the map of all memory.
#[cfg(feature = "ktest")]
pub fn kernel_areas(address: PhysAddr) -> &'static str {
    let frame = address.frame_start();
    let areas = [
        (layout::HEAP, layout::HEAP_MOST_MAX_BYTES, "heap"),
        (layout::STACKS, 1 << 20, "stacks"),
        (layout::KERNEL_IMAGE, 1 << 25, "image"),
    ];
    let maps = |start: u64, bytes: u64| {
        (start..start + bytes)
            .step_by(PAGE_SIZE as usize)
            .filter_map(|page| kernel_translate(VirtAddr::new(page)))
            .any(|leaf| leaf.frame == frame)
    };
    let area = areas.iter().find(|&&(start, bytes, _)| maps(start, bytes));
    area.map_or("no area of the kernel", |(_, _, name)| name)
}

/// The kernel's own tables; a program's share their upper half.
pub fn kernel_table() -> PageTable {
    *KERNEL_TABLE.get().expect("mm::init has not run")
}

/// Maps one small page of the kernel. No flush: it was not mapped before.
fn map_kernel(page: VirtAddr, frame: PhysAddr, attributes: Attributes) -> Result<(), MapError> {
    let size = PageSize::Small;
    kernel_table().map(
        &mut DirectMap,
        &mut *frames(),
        page,
        frame,
        size,
        attributes,
    )
}

/// Frames that are given out next, taken aside to be zeroed without the lock.
#[must_use = "the frames are lost"]
pub struct Aside {
    first: PhysAddr,
    count: u64,
}

impl Aside {
    /// One frame, or `count` in a row; `None` where there is nothing to zero.
    pub fn take(count: u64) -> Option<Self> {
        let first = frames().take_unzeroed(count)?;
        Some(Self { first, count })
    }

    /// Zeroes them. Nobody else has them, so that this needs no lock.
    pub fn zero(&self) {
        for index in 0..self.count {
            DirectMap.zero_frame(self.first.offset(index * PAGE_SIZE));
        }
    }

    /// Gives them back, zeroed.
    pub fn give_back(self) {
        frames().give_zeroed(self.first, self.count);
    }
}

/// Maps fresh zeroed frames for the kernel from `start` on; `false` when memory is used up.
fn map_fresh(start: u64, bytes: u64) -> bool {
    for page in (start..start + bytes).step_by(PAGE_SIZE as usize) {
        let Some(frame) = frames().alloc(&mut DirectMap, Owner::KERNEL) else {
            return false;
        };
        let attributes = Attributes::kernel(Protection::ReadWrite);
        match map_kernel(VirtAddr::new(page), frame.address(), attributes) {
            Ok(()) => {
                frame.into_entry();
            }
            Err(MapError::OutOfFrames) => {
                // Tables made on the way were given back.
                invalidate(VirtAddr::new(page));
                frames().free(frame);
                return false;
            }
            Err(other) => panic!("kernel page {page:#x}: {other:?}"),
        }
    }
    true
}

/// Puts the highest frame below 640 KiB aside, where firmware leaves one.
fn put_aside_start_page<'a>(usable: impl Iterator<Item = &'a MemoryRegion>) {
    const END: u64 = 0xa_0000;
    let below = usable.filter(|region| region.start < END);
    let frame = below.filter_map(|region| {
        let last = (region.end.min(END) / PAGE_SIZE).checked_sub(1)? * PAGE_SIZE;
        (last >= region.start.max(PAGE_SIZE)).then_some(last)
    });
    if let Some(frame) = frame.max() {
        START_PAGE.call_once(|| PhysAddr::new(frame));
    }
}

/// The frame below 1 MiB that cores start in; `None` where firmware has none to spare.
fn start_page() -> Option<PhysAddr> {
    START_PAGE.get().copied()
}

fn usable_bytes(regions: &MemoryRegions) -> u64 {
    regions
        .iter()
        .filter(|region| region.kind == MemoryRegionKind::Usable)
        .map(|region| region.end - region.start)
        .sum()
}

/// Sets up the allocator: its table of tags goes to the end of the largest usable region.
fn collect_frames(regions: &MemoryRegions) -> FrameAllocator {
    let usable = || {
        regions
            .iter()
            .filter(|region| region.kind == MemoryRegionKind::Usable)
    };
    let end = usable().map(|region| region.end).max().unwrap_or(0);
    let largest = usable()
        .max_by_key(|region| region.end - region.start)
        .expect("there is memory");
    let bytes = FrameAllocator::table_bytes(PhysAddr::new(0), PhysAddr::new(end));
    let bytes = bytes.div_ceil(PAGE_SIZE) * PAGE_SIZE;
    let table_start = largest
        .end
        .checked_sub(bytes)
        .filter(|start| *start >= largest.start)
        .map(|start| start / PAGE_SIZE * PAGE_SIZE)
        .expect("largest region holds the frame table");
    let count = (end / PAGE_SIZE) as usize;
    let tags = physical::take_tags(PhysAddr::new(table_start), count);
    let mut allocator = FrameAllocator::new(PhysAddr::new(0), tags);
    put_aside_start_page(usable());
    for region in usable() {
        let end = match region.start == largest.start {
            true => table_start,
            false => region.end,
        };
        let mut start = region.start;
        if let Some(page) = START_PAGE.get()
            && (start..end).contains(&page.as_u64())
        {
            allocator.add_region(PhysAddr::new(start), *page);
            start = page.as_u64() + PAGE_SIZE;
        }
        allocator.add_region(PhysAddr::new(start), PhysAddr::new(end));
    }
    allocator
}
