//! Entry by the Linux boot protocol (16-bit, 32-bit and 64-bit; the assembler comes first).
//!
//! Source: Documentation/arch/x86/boot.rst and zero-page.rst of Linux.
//!
//! Invariant: the zero page is copied before anything is written, since it may lie anywhere.

use bootstub::command_line::{CommandLine, CommandLineError};
use bootstub::descriptor::{WORKSPACE_BYTES, WORKSPACE_TABLE_BYTES};
use bootstub::memory_map::{Kind, MapFull, MemoryMap};
use bootstub::place::ARENA_LIMIT;
use bootstub::screen_info;
use hearth_abi::handoff::{COMMAND_LINE_MAX, Entry};

use crate::console;
use crate::image::{self, Image};
use crate::shim::{self, Machine};
use crate::tables::{Pages, Tables, five_level};

/// Where the assembler leaves the time-stamp counter in the zero page (space for EDD).
pub const ZP_TSC: usize = 0x290;
/// Where the assembler leaves the entry's number (`handoff::Entry`).
pub const ZP_ENTRY: usize = 0x298;
const ZP_RSDP: usize = 0x070;
const ZP_COMMAND_LINE_HIGH: usize = 0x0c8;
const ZP_E820_COUNT: usize = 0x1e8;
const ZP_COMMAND_LINE: usize = 0x228;
const ZP_SETUP_DATA: usize = 0x250;
const ZP_E820: usize = 0x2d0;
const E820_BYTES: usize = 20;
const E820_MAX: usize = 128;
const E820_USABLE: u32 = 1;
/// `setup_data` type of further E820 entries.
const SETUP_E820_EXT: u32 = 1;
/// Most `setup_data` records followed; Linux knows under ten types.
const SETUP_DATA_MAX: usize = 64;
/// Arenas stay above the first megabyte: firmware's leavings.
const LOW_MEMORY_END: u64 = 1 << 20;

/// A copy of the zero page.
struct ZeroPage([u8; 4096]);

impl ZeroPage {
    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]])
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from(self.u32(at)) | u64::from(self.u32(at + 4)) << 32
    }

    /// What the loader says of the screen; the 16-bit entry has cleared it.
    fn screen(&self) -> Option<&[u8; screen_info::BYTES]> {
        self.0.first_chunk()
    }
}

/// Called by `asm/head.S` in long mode, interrupts off, on the stack in the working memory.
#[unsafe(no_mangle)]
unsafe extern "C" fn start_linux(base: *mut u8, zero_page: *const [u8; 4096], workspace: u64) -> ! {
    // SAFETY: the boot protocol puts the whole image at `base` (RVA 0) and maps it.
    let image = unsafe { Image::open(base) };
    let screen = console::vga_screen();
    console::start(&screen);
    let Some(image) = image else {
        console::stop(format_args!("{}", image::DAMAGED));
    };
    // SAFETY: the boot protocol's zero page, mapped by the loader or by the assembler's tables.
    let zero_page = ZeroPage(unsafe { zero_page.read_unaligned() });
    let entry = match zero_page.u32(ZP_ENTRY) {
        1 => Entry::Setup16,
        2 => Entry::Linux32,
        _ => Entry::Linux64,
    };
    let mut command_line = CommandLine::new();
    collect_command_line(&image, &zero_page, &mut command_line);
    let mut map = MemoryMap::new();
    if collect_memory(&zero_page, &mut map).is_err() {
        console::stop(format_args!("the memory map has too many regions"));
    }
    if entry == Entry::Linux64 {
        own_tables(&image, workspace);
    }
    let plan = shim::plan(&image, map.ram_end());
    let avoid = [(image.base(), image.end())];
    let arena = match map.find(plan.bytes(), LOW_MEMORY_END, ARENA_LIMIT, &avoid) {
        Some(arena) => arena,
        None if map.usable_bytes() == 0 => {
            console::stop(format_args!("firmware gives no memory map (E820)"))
        }
        None => too_little_memory(plan.bytes(), map.usable_bytes()),
    };
    let machine = Machine {
        entry,
        tsc: zero_page.u64(ZP_TSC),
        rsdp: find_rsdp(&zero_page),
        framebuffer: zero_page.screen().and_then(screen_info::framebuffer),
        command_line: command_line.text(),
    };
    // SAFETY: the arena is free memory below 4 GiB by the memory map and apart from the image and
    // its working memory; nobody else runs.
    unsafe { shim::load(&image, &plan, arena).enter(&machine, &mut map) }
}

/// Stops because `needed` bytes in one piece are not there.
pub fn too_little_memory(needed: u64, there: u64) -> ! {
    console::stop(format_args!(
        "too little memory: the kernel needs {} KiB in one piece below 4 GiB, the machine has {} KiB free; \
         give it more",
        needed / 1024,
        there / 1024
    ))
}

fn collect_command_line(image: &Image, zero_page: &ZeroPage, out: &mut CommandLine) {
    let descriptor = &image.descriptor;
    let default = image.bytes(descriptor.command_line, descriptor.command_line_bytes);
    let address = u64::from(zero_page.u32(ZP_COMMAND_LINE))
        | u64::from(zero_page.u32(ZP_COMMAND_LINE_HIGH)) << 32;
    let mut given: &[u8] = &[];
    if address != 0 {
        // SAFETY: the boot protocol's command line; one byte more than allowed is read at most,
        // and that lies in RAM or nowhere.
        let bytes =
            unsafe { core::slice::from_raw_parts(address as *const u8, COMMAND_LINE_MAX + 1) };
        let end = bytes.iter().position(|&byte| byte == 0);
        given = &bytes[..end.unwrap_or(bytes.len())];
    }
    let units = |bytes: &'static [u8]| bytes.iter().map(|&byte| u16::from(byte));
    let result = out
        .append(units(default))
        .and_then(|()| out.append(given.iter().map(|&byte| u16::from(byte))));
    match result {
        Ok(()) => {}
        Err(CommandLineError::TooLong) => console::stop(format_args!(
            "the kernel command line is longer than {COMMAND_LINE_MAX} bytes"
        )),
        Err(CommandLineError::NotText) => console::stop(format_args!(
            "the kernel command line has characters other than printable ASCII"
        )),
    }
}

fn collect_memory(zero_page: &ZeroPage, map: &mut MemoryMap) -> Result<(), MapFull> {
    let count = usize::from(zero_page.0[ZP_E820_COUNT]).min(E820_MAX);
    for entry in zero_page.0[ZP_E820..].chunks_exact(E820_BYTES).take(count) {
        add_e820(map, entry)?;
    }
    let mut next = zero_page.u64(ZP_SETUP_DATA);
    for _ in 0..SETUP_DATA_MAX {
        if next == 0 {
            break;
        }
        // SAFETY: the boot protocol's list: next u64, type u32, length u32, data.
        let header = unsafe { (next as *const [u32; 4]).read_unaligned() };
        if header[2] == SETUP_E820_EXT {
            // SAFETY: as above.
            let data = unsafe {
                core::slice::from_raw_parts((next + 16) as *const u8, header[3] as usize)
            };
            for entry in data.chunks_exact(E820_BYTES) {
                add_e820(map, entry)?;
            }
        }
        next = u64::from(header[0]) | u64::from(header[1]) << 32;
    }
    map.normalise()
}

fn add_e820(map: &mut MemoryMap, entry: &[u8]) -> Result<(), MapFull> {
    let word = |at: usize| {
        u64::from(u32::from_le_bytes([
            entry[at],
            entry[at + 1],
            entry[at + 2],
            entry[at + 3],
        ]))
    };
    let kind = match word(16) as u32 {
        E820_USABLE => Kind::Usable,
        kind => Kind::Bios(kind),
    };
    map.add(word(0) | word(4) << 32, word(8) | word(12) << 32, kind)
}

/// Replaces the loader's page tables, which need not map all that the stub reads, by ones that map
/// the low 4 GiB and the image, under 4-level or 5-level paging as it is.
fn own_tables(image: &Image, workspace: u64) {
    // SAFETY: the working memory, of which nothing is in use but the stack at its end.
    let mut pages = unsafe { Pages::new(workspace, workspace + u64::from(WORKSPACE_TABLE_BYTES)) };
    let tables = Tables::new(&mut pages);
    tables.map_identity(&mut pages, 0, ARENA_LIMIT);
    if image.end() > ARENA_LIMIT {
        let end = image.base() + u64::from(image.descriptor.workspace + WORKSPACE_BYTES);
        tables.map_identity(&mut pages, image.base(), end);
    }
    let root = if shim::five_level_paging() {
        five_level(&mut pages, tables.pml4)
    } else {
        tables.pml4
    };
    // SAFETY: code, stack and image are mapped at the same addresses as before.
    unsafe { core::arch::asm!("mov cr3, {}", in(reg) root, options(nostack)) };
}

/// The ACPI root pointer: from the loader, else where a BIOS puts it.
fn find_rsdp(zero_page: &ZeroPage) -> Option<u64> {
    let given = zero_page.u64(ZP_RSDP);
    if given != 0 {
        return Some(given);
    }
    // SAFETY: the BIOS data area's word for the segment of the extended BIOS data area.
    let ebda = u64::from(unsafe { (0x40e as *const u16).read_volatile() }) << 4;
    let scan = |start: u64, end: u64| (start..end).step_by(16).find(|&at| is_rsdp(at));
    let in_ebda = (0x8_0000..0xa_0000 - 1024)
        .contains(&ebda)
        .then(|| scan(ebda, ebda + 1024))
        .flatten();
    in_ebda.or_else(|| scan(0xe_0000, 0x10_0000))
}

fn is_rsdp(address: u64) -> bool {
    const BYTES: usize = 20;
    // SAFETY: within the first megabyte, which the stub's tables map; reading there is harmless.
    let bytes = unsafe { (address as *const [u8; BYTES]).read_volatile() };
    bytes[..8] == *b"RSD PTR " && bytes.iter().fold(0_u8, |sum, &byte| sum.wrapping_add(byte)) == 0
}
