//! The kernel's own page tables: physical map, image by segment, stacks with guard pages.
//!
//! The image's segments are read from its own program headers (the linker puts them at
//! `__ehdr_start`), its frames from the tables the stub left. The frames that hold code and
//! constants are read-only in the physical map too.
//!
//! Invariant: when [`build`] returns, every page of the image is either writable or executable or
//! neither, and page 0 is not mapped.

use core::sync::atomic::{AtomicU64, Ordering};

use bootloader_api::info::{MemoryRegion, MemoryRegionKind, MemoryRegions};
use kernel_core::addr::{HUGE_PAGE_SIZE, LARGE_PAGE_SIZE, PAGE_SIZE, PhysAddr, VirtAddr};
use kernel_core::paging::entry::{Attributes, Protection};
use kernel_core::paging::{PageSize, PageTable};
use spin::Once;
use x86_64::registers::control::Cr3;

use super::{DirectMap, frames, layout, map_fresh};
use crate::arch::cpu;
use crate::arch::gdt::StackIndex;
use crate::arch::user::use_stack;

/// Segments and RELRO ranges an image may have; the linker makes six or seven.
const RANGES_MAX: usize = 16;

/// Root entries of the areas in `layout`.
const fn root_index(address: u64) -> u64 {
    VirtAddr::new(address).table_index(4)
}

/// A range of the image with one protection.
#[derive(Clone, Copy)]
struct Range {
    start: u64,
    end: u64,
    protection: Protection,
}

/// ELF64 header and program header, as far as they are used (ELF-64 object file format 1.5).
#[repr(C)]
struct ElfHeader {
    ident: [u8; 16],
    kind: u16,
    machine: u16,
    version: u32,
    entry: u64,
    program_offset: u64,
    section_offset: u64,
    flags: u32,
    header_size: u16,
    program_entry_size: u16,
    program_count: u16,
}

#[repr(C)]
struct ProgramHeader {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    physical: u64,
    file_size: u64,
    memory_size: u64,
    align: u64,
}

const LOAD: u32 = 1;
const RELRO: u32 = 0x6474_e552;
const WRITABLE: u32 = 2;
const EXECUTABLE: u32 = 1;

unsafe extern "C" {
    /// The image's ELF header; made by the linker.
    static __ehdr_start: ElfHeader;
}

/// First address of the kernel's code and its end.
static CODE: Once<(u64, u64)> = Once::new();

/// Whether an address lies in the kernel's code.
pub(super) fn is_code(address: u64) -> bool {
    CODE.get()
        .is_some_and(|(start, end)| (*start..*end).contains(&address))
}

/// End of a core's own or an interrupt stack that holds `address`.
pub(super) fn end_of_stack(address: u64) -> Option<u64> {
    let core = address.checked_sub(layout::STACKS)? / CORE_STRIDE;
    StackIndex::ALL
        .iter()
        .map(|index| {
            (
                interrupt_stack_top(core, *index),
                layout::INTERRUPT_STACK_BYTES,
            )
        })
        .chain([(kernel_stack_top(core), layout::KERNEL_STACK_BYTES)])
        .find(|(top, bytes)| (top - bytes..*top).contains(&address))
        .filter(|_| core < STACKS_MAPPED.load(Ordering::Relaxed))
        .map(|(top, _)| top)
}

/// Builds the tables; the caller loads them.
pub(super) fn build(regions: &MemoryRegions) -> PageTable {
    let stub = PageTable::from_root(PhysAddr::new(Cr3::read().0.start_address().as_u64()));
    let table = PageTable::new(&mut DirectMap, &mut *frames()).expect("memory for page tables");
    table
        .prepare_kernel_half(
            &mut DirectMap,
            &mut *frames(),
            &[
                root_index(layout::PHYSICAL_MAP),
                root_index(layout::HEAP),
                root_index(layout::STACKS),
                root_index(layout::DEVICES),
                root_index(layout::KERNEL_IMAGE),
            ],
        )
        .expect("memory for page tables");
    let (ranges, count) = image_ranges();
    let ranges = &ranges[..count];
    map_image(table, stub, ranges);
    CODE.call_once(|| {
        let code = || {
            ranges
                .iter()
                .filter(|range| range.protection == Protection::ReadExecute)
        };
        let start = code().map(|range| range.start).min().unwrap_or(0);
        (start, code().map(|range| range.end).max().unwrap_or(0))
    });
    map_memory(table, regions, stub, ranges);
    table
}

/// Cores whose stacks are mapped: those below this number.
static STACKS_MAPPED: AtomicU64 = AtomicU64::new(0);

/// Maps the interrupt stacks and the kernel stack of the next core, each above a hole; returns the
/// top of the kernel stack. `None` when memory is used up.
pub(super) fn add_stacks(core: usize) -> Option<u64> {
    let core = core as u64;
    for index in StackIndex::ALL {
        let top = interrupt_stack_top(core, index);
        add_stack(top, layout::INTERRUPT_STACK_BYTES)?;
    }
    let top = kernel_stack_top(core);
    add_stack(top, layout::KERNEL_STACK_BYTES)?;
    STACKS_MAPPED.store(core + 1, Ordering::Relaxed);
    Some(top)
}

/// Tells a core about its interrupt stacks.
pub(super) fn use_stacks(core: usize) {
    for index in StackIndex::ALL {
        use_stack(core, index, interrupt_stack_top(core as u64, index));
    }
}

fn add_stack(top: u64, bytes: u64) -> Option<()> {
    map_fresh(top - bytes, bytes).then_some(())
}

/// The kernel's stack on a core: its lowest address and the end.
pub(super) fn kernel_stack(core: usize) -> (u64, u64) {
    let top = kernel_stack_top(core as u64);
    (top - layout::KERNEL_STACK_BYTES, top)
}

/// Distance between the tops of two interrupt stacks: a stack and the hole under it.
const INTERRUPT_STACK_STRIDE: u64 = layout::INTERRUPT_STACK_BYTES + PAGE_SIZE;
/// Distance between the stacks of two cores.
const CORE_STRIDE: u64 =
    StackIndex::ALL.len() as u64 * INTERRUPT_STACK_STRIDE + PAGE_SIZE + layout::KERNEL_STACK_BYTES;

const fn interrupt_stack_top(core: u64, index: StackIndex) -> u64 {
    layout::STACKS + core * CORE_STRIDE + (index as u64 + 1) * INTERRUPT_STACK_STRIDE
}

const fn kernel_stack_top(core: u64) -> u64 {
    layout::STACKS + (core + 1) * CORE_STRIDE
}

/// The image's pages by protection; RELRO ranges come after the segments that contain them.
fn image_ranges() -> ([Range; RANGES_MAX], usize) {
    let mut ranges = [Range {
        start: 0,
        end: 0,
        protection: Protection::None,
    }; RANGES_MAX];
    let mut count = 0;
    // SAFETY: the linker puts the headers in the first segment, which is mapped for reading.
    let headers = unsafe {
        let header = &raw const __ehdr_start;
        let first = header
            .byte_add((*header).program_offset as usize)
            .cast::<ProgramHeader>();
        core::slice::from_raw_parts(first, usize::from((*header).program_count))
    };
    for kind in [LOAD, RELRO] {
        for header in headers.iter().filter(|header| header.kind == kind) {
            let start = layout::KERNEL_IMAGE + header.address;
            let protection = match (kind, header.flags) {
                (RELRO, _) => Protection::Read,
                (_, flags) if flags & EXECUTABLE != 0 => {
                    assert!(flags & WRITABLE == 0, "kernel segment is W and X");
                    Protection::ReadExecute
                }
                (_, flags) if flags & WRITABLE != 0 => Protection::ReadWrite,
                _ => Protection::Read,
            };
            ranges[count] = Range {
                start: start / PAGE_SIZE * PAGE_SIZE,
                // A RELRO range ends at a page; a segment takes its last page whole.
                end: match kind {
                    RELRO => (start + header.memory_size) / PAGE_SIZE * PAGE_SIZE,
                    _ => (start + header.memory_size).div_ceil(PAGE_SIZE) * PAGE_SIZE,
                },
                protection,
            };
            count += 1;
        }
    }
    (ranges, count)
}

fn map_image(table: PageTable, stub: PageTable, ranges: &[Range]) {
    for (page, protection) in image_pages(ranges) {
        if let Some(leaf) = table.translate(&DirectMap, page) {
            // Two segments never share a page; only RELRO narrows one.
            assert!(
                leaf.attributes.protection == Protection::ReadWrite
                    && protection == Protection::Read,
                "kernel segments overlap at {page:?}"
            );
            table
                .protect(&mut DirectMap, page, Protection::Read)
                .expect("page is mapped");
            continue;
        }
        let frame = stub
            .physical(&DirectMap, page)
            .expect("stub mapped the whole image");
        table
            .map(
                &mut DirectMap,
                &mut *frames(),
                page,
                frame,
                PageSize::Small,
                Attributes::kernel(protection),
            )
            .expect("memory for page tables");
    }
}

/// Maps all memory one to one, with huge and large pages except near the image, whose code and
/// constants become read-only here too, and where the neighbourhood is not all memory.
fn map_memory(table: PageTable, regions: &MemoryRegions, stub: PageTable, ranges: &[Range]) {
    let end = regions
        .iter()
        .filter(|region| is_memory(region))
        .map(|region| region.end)
        .max()
        .unwrap_or(0);
    let image = image_frames(stub, ranges);
    let is_plain = |start, size: PageSize| {
        let stop = start + size.bytes();
        let touches_image = image.0 < stop && start < image.1;
        let memory: u64 = memory_in(regions, start, stop).map(length).sum();
        !touches_image && memory == size.bytes()
    };
    let has_huge = cpu::features().huge_pages;
    let mut huge_until = 0;
    for start in (0..end).step_by(LARGE_PAGE_SIZE as usize) {
        if start < huge_until {
            continue;
        }
        if has_huge && start % HUGE_PAGE_SIZE == 0 && is_plain(start, PageSize::Huge) {
            map_one_to_one(table, start, PageSize::Huge);
            huge_until = start + HUGE_PAGE_SIZE;
            continue;
        }
        if is_plain(start, PageSize::Large) {
            map_one_to_one(table, start, PageSize::Large);
            continue;
        }
        let stop = start + LARGE_PAGE_SIZE;
        for (first, last) in memory_in(regions, start, stop) {
            // Only whole frames: the rest of one may be something else.
            let first = first.div_ceil(PAGE_SIZE) * PAGE_SIZE;
            for frame in (first..last / PAGE_SIZE * PAGE_SIZE).step_by(PAGE_SIZE as usize) {
                map_one_to_one(table, frame, PageSize::Small);
            }
        }
    }
    for frame in image_pages(ranges)
        .filter(|(_, protection)| *protection != Protection::ReadWrite)
        .filter_map(|(page, _)| stub.physical(&DirectMap, page))
    {
        let alias = VirtAddr::new(layout::PHYSICAL_MAP + frame.as_u64());
        table
            .protect(&mut DirectMap, alias, Protection::Read)
            .expect("the image lies in memory");
    }
}

/// Pages of the image; those of a RELRO range come twice, and read-only the second time.
fn image_pages(ranges: &[Range]) -> impl Iterator<Item = (VirtAddr, Protection)> {
    ranges.iter().flat_map(|range| {
        (range.start..range.end)
            .step_by(PAGE_SIZE as usize)
            .map(|page| (VirtAddr::new(page), range.protection))
    })
}

fn map_one_to_one(table: PageTable, frame: u64, size: PageSize) {
    table
        .map(
            &mut DirectMap,
            &mut *frames(),
            VirtAddr::new(layout::PHYSICAL_MAP + frame),
            PhysAddr::new(frame),
            size,
            Attributes::kernel(Protection::ReadWrite),
        )
        .expect("memory for page tables");
}

/// Lowest frame of the image and the end of its highest.
fn image_frames(stub: PageTable, ranges: &[Range]) -> (u64, u64) {
    let frames = || {
        image_pages(ranges)
            .filter_map(|(page, _)| stub.physical(&DirectMap, page))
            .map(PhysAddr::as_u64)
    };
    let first = frames().min().unwrap_or(0);
    let last = frames().max().unwrap_or(0);
    (first, last + PAGE_SIZE)
}

fn is_memory(region: &MemoryRegion) -> bool {
    matches!(
        region.kind,
        MemoryRegionKind::Usable | MemoryRegionKind::Bootloader
    )
}

/// The parts of `start..end` that are memory, as the boot map has them: it has no overlaps.
fn memory_in(regions: &MemoryRegions, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
    regions
        .iter()
        .filter(|region| is_memory(region))
        .map(move |region| (region.start.max(start), region.end.min(end)))
        .filter(|(first, last)| first < last)
}

fn length((first, last): (u64, u64)) -> u64 {
    last - first
}
