//! Entry from UEFI firmware (the assembler comes first).
//!
//! Source: UEFI 2.10, sections 4.4 (boot services), 7.2 (memory), 7.4.6 (ExitBootServices).
//!
//! Invariant: everything that can fail is done before `ExitBootServices`, while firmware's console
//! can still tell.

use core::ffi::c_void;

use bootstub::command_line::{CommandLine, CommandLineError, without_file_name};
use bootstub::memory_map::{Kind, MapFull, MemoryMap, PAGE_BYTES};
use bootstub::place::ARENA_LIMIT;
use hearth_abi::handoff::{COMMAND_LINE_MAX, Entry, Framebuffer, PixelFormat};
use uefi_raw::protocol::console::{
    GraphicsOutputProtocol, GraphicsPixelFormat, SimpleTextOutputProtocol,
};
use uefi_raw::protocol::loaded_image::LoadedImageProtocol;
use uefi_raw::table::boot::{
    AllocateType, BootServices, MemoryAttribute, MemoryDescriptor, MemoryType,
};
use uefi_raw::table::configuration::ConfigurationTable;
use uefi_raw::table::system::SystemTable;
use uefi_raw::{Guid, Handle, Status, guid};

use crate::console::{self, Screen};
use crate::image::{self, Image};
use crate::linux::too_little_memory;
use crate::shim::{self, Machine};

const ACPI_20: Guid = guid!("8868e871-e4f1-11d3-bc22-0080c73c8881");
const ACPI_10: Guid = guid!("eb9d2d30-2d88-11d3-9a16-0090273fc14d");
/// Attempts at ExitBootServices: each failure means that the map changed in between, which the
/// first call itself may cause.
const EXIT_ATTEMPTS: u32 = 4;
/// Room for regions that come up between asking for the map's size and asking for the map.
const SPARE_DESCRIPTORS: usize = 16;
/// Most configuration tables looked at; firmware has ten to twenty.
const CONFIGURATION_TABLES_MAX: usize = 256;
/// Longest `LoadOptions` looked at, in UTF-16 units.
const LOAD_OPTIONS_MAX: usize = COMMAND_LINE_MAX + 256;

/// Called by `asm/head.S` on firmware's stack.
#[unsafe(no_mangle)]
unsafe extern "C" fn start_uefi(
    base: *mut u8,
    handle: Handle,
    system_table: *const SystemTable,
    tsc: u64,
) -> ! {
    // SAFETY: firmware has loaded the whole image at `base`.
    let image = unsafe { Image::open(base) };
    // SAFETY: firmware's system table, valid until ExitBootServices.
    let system = unsafe { &*system_table };
    let screen = Screen {
        put: put_text,
        state: core::cell::Cell::new(system.stdout as usize),
    };
    console::start(&screen);
    let Some(image) = image else {
        console::stop(format_args!("{}", image::DAMAGED));
    };
    // SAFETY: as `system`.
    let boot = unsafe { &*system.boot_services };
    // SAFETY: a call of firmware; a watchdog that cannot be switched off is no reason to stop.
    let _ = unsafe { (boot.set_watchdog_timer)(0, 0, 0, core::ptr::null()) };

    let mut command_line = CommandLine::new();
    collect_command_line(&image, boot, handle, &mut command_line);
    let machine = Machine {
        entry: Entry::Pe,
        tsc,
        rsdp: find_rsdp(system),
        framebuffer: find_framebuffer(boot),
        command_line: command_line.text(),
    };

    let mut buffer = MapBuffer::new(boot);
    let mut map = MemoryMap::new();
    if buffer.read(boot).is_err() || buffer.convert(&mut map).is_err() {
        console::stop(format_args!("firmware's memory map cannot be read"));
    }
    let plan = shim::plan(&image, map.ram_end());
    let arena = allocate(boot, plan.bytes() / PAGE_BYTES)
        .unwrap_or_else(|| too_little_memory(plan.bytes(), map.usable_bytes()));
    // SAFETY: the pages were just allocated below 4 GiB; firmware maps memory at its own address.
    let loaded = unsafe { shim::load(&image, &plan, arena) };

    exit_boot_services(boot, handle, &mut buffer);
    console::forget_screen();
    let mut map = MemoryMap::new();
    if buffer.convert(&mut map).is_err() {
        console::stop(format_args!("the memory map has too many regions"));
    }
    // SAFETY: firmware has given the machine away.
    unsafe { loaded.enter(&machine, &mut map) }
}

fn put_text(screen: &Screen, byte: u8) {
    let output = screen.state.get() as *mut SimpleTextOutputProtocol;
    if !output.is_null() {
        let text = [u16::from(byte), 0];
        // SAFETY: firmware's console, used only until `forget_screen`.
        let _ = unsafe { ((*output).output_string)(output, text.as_ptr()) };
    }
}

/// The image's default command line, then `LoadOptions`: empty when firmware boots by itself, and
/// then no error; boot managers also put binary data there, which is left out.
fn collect_command_line(image: &Image, boot: &BootServices, handle: Handle, out: &mut CommandLine) {
    let descriptor = &image.descriptor;
    let default = image.bytes(descriptor.command_line, descriptor.command_line_bytes);
    let mut interface: *mut c_void = core::ptr::null_mut();
    // SAFETY: a call of firmware.
    let status =
        unsafe { (boot.handle_protocol)(handle, &LoadedImageProtocol::GUID, &mut interface) };
    let mut options = [0_u16; LOAD_OPTIONS_MAX];
    let mut length = 0;
    if status == Status::SUCCESS && !interface.is_null() {
        // SAFETY: the interface that firmware gave for this very protocol.
        let loaded = unsafe { &*interface.cast::<LoadedImageProtocol>() };
        let bytes = loaded.load_options_size as usize;
        if !loaded.load_options.is_null() && bytes.is_multiple_of(2) {
            let units = (bytes / 2).min(options.len());
            for (index, unit) in options[..units].iter_mut().enumerate() {
                // SAFETY: inside what firmware gives as this image's options.
                *unit = unsafe {
                    loaded
                        .load_options
                        .cast::<u16>()
                        .add(index)
                        .read_unaligned()
                };
            }
            let end = options[..units].iter().position(|&unit| unit == 0);
            length = end.unwrap_or(units);
        }
    }
    let given = without_file_name(&options[..length]);
    let result = out
        .append(default.iter().map(|&byte| u16::from(byte)))
        .and_then(|()| match out.append(given.iter().copied()) {
            Err(CommandLineError::NotText) => Ok(()),
            result => result,
        });
    if result.is_err() {
        console::stop(format_args!(
            "the kernel command line is longer than {COMMAND_LINE_MAX} bytes"
        ));
    }
}

fn find_rsdp(system: &SystemTable) -> Option<u64> {
    let count = system
        .number_of_configuration_table_entries
        .min(CONFIGURATION_TABLES_MAX);
    // SAFETY: firmware's array of that many tables.
    let tables: &[ConfigurationTable] =
        unsafe { core::slice::from_raw_parts(system.configuration_table, count) };
    [ACPI_20, ACPI_10].iter().find_map(|wanted| {
        tables
            .iter()
            .find(|table| table.vendor_guid == *wanted)
            .map(|table| table.vendor_table as u64)
    })
}

/// The screen in the mode that firmware has chosen, if its pixels are bytes of colours.
fn find_framebuffer(boot: &BootServices) -> Option<Framebuffer> {
    let mut interface: *mut c_void = core::ptr::null_mut();
    // SAFETY: a call of firmware.
    let status = unsafe {
        (boot.locate_protocol)(
            &GraphicsOutputProtocol::GUID,
            core::ptr::null(),
            &mut interface,
        )
    };
    if status != Status::SUCCESS || interface.is_null() {
        return None;
    }
    // SAFETY: the interface that firmware gave for this very protocol; it and its mode stay until
    // ExitBootServices.
    let mode = unsafe {
        let output = &*interface.cast::<GraphicsOutputProtocol>();
        output.mode.as_ref()?
    };
    // SAFETY: as the mode.
    let info = unsafe { mode.info.as_ref()? };
    let format = match info.pixel_format {
        GraphicsPixelFormat::PIXEL_RED_GREEN_BLUE_RESERVED_8_BIT_PER_COLOR => PixelFormat::Rgb,
        GraphicsPixelFormat::PIXEL_BLUE_GREEN_RED_RESERVED_8_BIT_PER_COLOR => PixelFormat::Bgr,
        // Masks of other widths, or no memory to draw in.
        _ => return None,
    };
    Some(Framebuffer {
        address: mode.frame_buffer_base,
        width: info.horizontal_resolution,
        height: info.vertical_resolution,
        stride: info.pixels_per_scan_line,
        format,
    })
}

/// Pages below 4 GiB.
fn allocate(boot: &BootServices, pages: u64) -> Option<u64> {
    let mut address = ARENA_LIMIT - 1;
    // SAFETY: a call of firmware.
    let status = unsafe {
        (boot.allocate_pages)(
            AllocateType::MAX_ADDRESS,
            MemoryType::LOADER_DATA,
            pages as usize,
            &mut address,
        )
    };
    (status == Status::SUCCESS).then_some(address)
}

/// Firmware's memory map in a buffer large enough for it to grow a little.
struct MapBuffer {
    buffer: *mut u8,
    capacity: usize,
    bytes: usize,
    key: usize,
    descriptor_bytes: usize,
}

impl MapBuffer {
    fn new(boot: &BootServices) -> Self {
        let mut map = Self {
            buffer: core::ptr::null_mut(),
            capacity: 0,
            bytes: 0,
            key: 0,
            descriptor_bytes: 0,
        };
        // Fails and says how large the map is.
        let _ = map.read(boot);
        map.capacity = map.bytes + SPARE_DESCRIPTORS * map.descriptor_bytes.max(48);
        // SAFETY: a call of firmware.
        let status =
            unsafe { (boot.allocate_pool)(MemoryType::LOADER_DATA, map.capacity, &mut map.buffer) };
        if status != Status::SUCCESS {
            console::stop(format_args!("too little memory for the memory map"));
        }
        map
    }

    fn read(&mut self, boot: &BootServices) -> Result<(), Status> {
        self.bytes = self.capacity;
        let mut version = 0;
        // SAFETY: the buffer has the capacity given.
        let status = unsafe {
            (boot.get_memory_map)(
                &mut self.bytes,
                self.buffer.cast::<MemoryDescriptor>(),
                &mut self.key,
                &mut self.descriptor_bytes,
                &mut version,
            )
        };
        match status {
            Status::SUCCESS => Ok(()),
            status => Err(status),
        }
    }

    /// Adds the buffer's regions to `map` and makes it consistent.
    fn convert(&self, map: &mut MemoryMap) -> Result<(), MapFull> {
        if self.descriptor_bytes < size_of::<MemoryDescriptor>() {
            return Err(MapFull);
        }
        for index in 0..self.bytes / self.descriptor_bytes {
            // SAFETY: inside the part of the buffer that firmware has filled.
            let region = unsafe {
                self.buffer
                    .add(index * self.descriptor_bytes)
                    .cast::<MemoryDescriptor>()
                    .read_unaligned()
            };
            let bytes = region.page_count.saturating_mul(PAGE_BYTES);
            map.add(region.phys_start, bytes, kind(&region))?;
        }
        map.normalise()
    }
}

fn kind(region: &MemoryDescriptor) -> Kind {
    match region.ty {
        MemoryType::LOADER_CODE
        | MemoryType::LOADER_DATA
        | MemoryType::BOOT_SERVICES_CODE
        | MemoryType::BOOT_SERVICES_DATA
        | MemoryType::CONVENTIONAL
            if !region.att.contains(MemoryAttribute::SPECIAL_PURPOSE) =>
        {
            Kind::Usable
        }
        other => Kind::Uefi(other.0),
    }
}

fn exit_boot_services(boot: &BootServices, handle: Handle, buffer: &mut MapBuffer) {
    for _ in 0..EXIT_ATTEMPTS {
        if let Err(status) = buffer.read(boot) {
            console::stop(format_args!("firmware's memory map: {status:?}"));
        }
        // SAFETY: a call of firmware; on success nothing of firmware is used any more.
        if unsafe { (boot.exit_boot_services)(handle, buffer.key) } == Status::SUCCESS {
            return;
        }
    }
    console::stop(format_args!("firmware does not leave (ExitBootServices)"));
}
