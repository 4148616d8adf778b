//! What all entries share: takes the facts about the machine, loads the kernel and enters it.
//!
//! Two steps, because UEFI's console and allocator end in between: [`load`] places and maps the
//! kernel in a block of memory (the arena) that the entry has found; [`Loaded::enter`] fills in
//! what the kernel is told and goes.
//!
//! Invariant: after `load` nothing can fail for want of memory.

use bootloader_api::BootInfo;
use bootloader_api::info::{MemoryRegion, MemoryRegionKind, Optional};
use bootstub::memory_map::{Kind, MemoryMap, PAGE_BYTES, REGIONS_MAX};
use bootstub::place::{ArenaPlan, BOOT_AREA, STACK_BASE};
use bootstub::unpack::unpack;
use hearth_abi::handoff::{self, Handoff};

use crate::image::Image;
use crate::jump;
use crate::tables::{NO_EXECUTE, Pages, Tables, WRITABLE, five_level};

/// Pages for `BootInfo` and the regions, of those in `place::INFORMATION_PAGES`.
const BOOT_INFO_PAGES: u64 = 4;
const REGIONS_AT: usize = 256;
const _: () = assert!(size_of::<BootInfo>() <= REGIONS_AT);
const _: () = assert!(
    REGIONS_AT + REGIONS_MAX * size_of::<MemoryRegion>() <= (BOOT_INFO_PAGES * PAGE_BYTES) as usize
);
const _: () = assert!(handoff::HEADER_LEN + handoff::COMMAND_LINE_MAX <= PAGE_BYTES as usize);

/// What an entry found out about the machine.
pub struct Machine<'a> {
    /// Which entry it was.
    pub entry: handoff::Entry,
    /// Time-stamp counter at the first instruction.
    pub tsc: u64,
    /// Physical address of the ACPI root pointer.
    pub rsdp: Option<u64>,
    /// The screen that firmware leaves.
    pub framebuffer: Option<handoff::Framebuffer>,
    /// Default and given command line.
    pub command_line: &'a str,
}

/// A kernel in memory, ready to run.
pub struct Loaded<'a> {
    image: &'a Image,
    arena: u64,
    arena_end: u64,
    kernel: u64,
    information: u64,
    target: jump::Target,
}

/// How large the arena must be when RAM ends at `ram_end`.
pub fn plan(image: &Image, ram_end: u64) -> ArenaPlan {
    let descriptor = &image.descriptor;
    ArenaPlan::new(
        u64::from(descriptor.kernel_memory_bytes),
        u64::from(descriptor.stack_bytes),
        ram_end,
        jump::identity_range().1,
    )
}

/// Unpacks the kernel into the arena and builds its address space.
///
/// # Safety
/// `arena` must be the address of `plan.bytes()` bytes of free memory below 4 GiB, mapped at its
/// own address.
pub unsafe fn load<'a>(image: &'a Image, plan: &ArenaPlan, arena: u64) -> Loaded<'a> {
    let descriptor = &image.descriptor;
    let offset = descriptor.physical_memory_offset;
    let arena_end = arena + plan.bytes();
    // SAFETY: by the caller's promise.
    let mut pages = unsafe { Pages::new(arena, arena_end) };

    let kernel = pages.take(plan.kernel_pages);
    let packed = image.bytes(descriptor.kernel, descriptor.kernel_file_bytes);
    // SAFETY: the pages just taken, which are zeroed; a descriptor's kernel is at least as large in
    // memory as it is unpacked.
    let room = unsafe {
        core::slice::from_raw_parts_mut(kernel as *mut u8, descriptor.kernel_bytes as usize)
    };
    if unpack(packed, room).is_err() {
        // The CRC was right: the image was made so.
        crate::console::stop(format_args!(
            "the boot image's kernel does not unpack; make the image again with `cargo xtask build`"
        ));
    }
    let stack = pages.take(plan.stack_pages);
    let information = pages.take(plan.information_pages);
    let jump_page = information + (BOOT_INFO_PAGES + 1) * PAGE_BYTES;

    let tables = Tables::new(&mut pages);
    for segment in descriptor.segments() {
        let mut flags = 0;
        if segment.writable {
            flags |= WRITABLE;
        }
        if !segment.executable {
            flags |= NO_EXECUTE;
        }
        let start = u64::from(segment.start);
        let length = u64::from(segment.end - segment.start);
        tables.map(
            &mut pages,
            descriptor.kernel_base + start,
            kernel + start,
            length,
            flags,
        );
    }
    let stack_bytes = plan.stack_pages * PAGE_BYTES;
    tables.map(
        &mut pages,
        STACK_BASE,
        stack,
        stack_bytes,
        WRITABLE | NO_EXECUTE,
    );
    tables.map(&mut pages, BOOT_AREA, jump_page, PAGE_BYTES, 0);
    tables.map_physical(&mut pages, offset, plan.physical_map_end);
    // For the moment of the jump only; the jump code clears the lower half.
    tables.map(&mut pages, jump_page, jump_page, PAGE_BYTES, 0);
    let (stub, stub_bytes) = jump::identity_range();
    tables.map(&mut pages, stub, stub, stub_bytes, 0);

    let target = jump::Target {
        pml4: tables.pml4,
        way: if five_level_paging() {
            five_level(&mut pages, tables.pml4)
        } else {
            tables.pml4
        },
        pml4_virtual: offset + tables.pml4,
        high: BOOT_AREA,
        stack_top: STACK_BASE + stack_bytes,
        boot_info: offset + information,
        entry: descriptor.kernel_base + u64::from(descriptor.kernel_entry),
    };
    // SAFETY: a page of its own in the arena.
    unsafe { jump::prepare(jump_page, &target) };
    Loaded {
        image,
        arena,
        arena_end,
        kernel,
        information,
        target,
    }
}

impl Loaded<'_> {
    /// Tells the kernel about the machine and enters it. `map` must not yet contain the arena as
    /// anything but free memory.
    ///
    /// # Safety
    /// Firmware must be done with the machine.
    pub unsafe fn enter(self, machine: &Machine, map: &mut MemoryMap) -> ! {
        if map.reserve(self.arena, self.arena_end).is_err() {
            crate::console::stop(format_args!("the memory map has too many regions"));
        }
        // SAFETY: the information pages belong to the arena and nothing else uses them.
        unsafe {
            self.write_boot_info(machine, map);
            jump::jump(
                self.information + (BOOT_INFO_PAGES + 1) * PAGE_BYTES,
                &self.target,
            )
        }
    }

    /// # Safety
    /// The information pages must be mapped at their own address.
    unsafe fn write_boot_info(&self, machine: &Machine, map: &MemoryMap) {
        let descriptor = &self.image.descriptor;
        let offset = descriptor.physical_memory_offset;
        let regions_at = self.information + REGIONS_AT as u64;
        let handoff_at = self.information + BOOT_INFO_PAGES * PAGE_BYTES;
        let count = map.regions().len();
        // SAFETY: the regions fit (asserted above) and the pages are zeroed, which is a valid
        // region: start 0, end 0, kind Usable.
        let regions = unsafe {
            core::slice::from_raw_parts_mut(regions_at as *mut MemoryRegion, REGIONS_MAX)
        };
        for (out, region) in regions.iter_mut().zip(map.regions()) {
            out.start = region.start;
            out.end = region.end;
            out.kind = match region.kind {
                Kind::Usable => MemoryRegionKind::Usable,
                Kind::Bootloader => MemoryRegionKind::Bootloader,
                Kind::Bios(kind) => MemoryRegionKind::UnknownBios(kind),
                Kind::Uefi(kind) => MemoryRegionKind::UnknownUefi(kind),
            };
        }
        let mut info = BootInfo::new((&mut regions[..count]).into());
        // SAFETY: `MemoryRegions` is `repr(C)` of pointer and length. The pointer must be the one
        // that holds in the kernel's address space, so no reference to it can exist here.
        unsafe {
            (&raw mut info.memory_regions)
                .cast::<u64>()
                .write(offset + regions_at);
        }
        info.physical_memory_offset = Optional::Some(offset);
        info.rsdp_addr = machine.rsdp.into();
        info.kernel_addr = self.kernel;
        info.kernel_len = u64::from(descriptor.kernel_memory_bytes);
        info.kernel_image_offset = descriptor.kernel_base;
        info.kernel_stack_bottom = STACK_BASE;
        info.kernel_stack_len = self.target.stack_top - STACK_BASE;
        let block = Handoff {
            entry_tsc: machine.tsc,
            entry: machine.entry as u32,
            image_bytes: descriptor.image_bytes,
            version: descriptor.version,
            build_id: descriptor.build_id,
            framebuffer: machine.framebuffer,
            command_line: machine.command_line,
        };
        // SAFETY: one of the information pages.
        let out =
            unsafe { core::slice::from_raw_parts_mut(handoff_at as *mut u8, PAGE_BYTES as usize) };
        let length = block.emit(out).expect("a page holds the longest block");
        info.ramdisk_addr = Optional::Some(offset + handoff_at);
        info.ramdisk_len = length as u64;
        // SAFETY: the first information page; `BootInfo` fits before the regions.
        unsafe { (self.information as *mut BootInfo).write(info) };
    }
}

/// Whether the CPU runs with 5-level paging (CR4.LA57).
pub fn five_level_paging() -> bool {
    let cr4: u64;
    // SAFETY: reads a register; the stub runs at the highest privilege.
    unsafe { core::arch::asm!("mov {}, cr4", out(reg) cr4, options(nomem, nostack)) };
    cr4 & 1 << 12 != 0
}
