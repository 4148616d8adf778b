//! The kernel, ready to be copied: flat, relocated to its virtual address, its permissions by page.
//!
//! Invariant: no page is both writable and executable; segments are disjoint, in order and cover
//! every byte the kernel may touch.

use bootloader_api::BootloaderConfig;
use bootloader_api::config::Mapping;
use bootstub::descriptor::{KERNEL_MEMORY_MAX, SEGMENTS_MAX, STACK_BYTES_MAX, Segment};
use elf::abi;

use crate::elf_image::{ElfError, ElfImage, LoadSegment};

/// Where the kernel's lowest address is mapped.
pub const KERNEL_BASE: u64 = 0xffff_ffff_8000_0000;
/// Where physical memory is mapped unless the kernel's configuration says otherwise.
pub const PHYSICAL_MEMORY_OFFSET: u64 = 0xffff_8000_0000_0000;
const PAGE_BYTES: u64 = 4096;

/// Why a kernel cannot be put into an image.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum KernelError {
    /// The ELF file itself.
    #[error(transparent)]
    Elf(#[from] ElfError),
    /// Two segments with different permissions share a page, or one is writable and executable.
    #[error("kernel segments: {0}; link it with 4 KiB pages and separate permissions")]
    Permissions(&'static str),
    /// No or a wrong `.bootloader-config` section.
    #[error("kernel configuration: {0}")]
    Config(String),
}

/// A kernel for the image.
#[derive(Debug)]
pub struct KernelImage {
    /// Its bytes from its base on, zeroes at the end left out.
    pub bytes: Vec<u8>,
    /// Size in memory, whole pages.
    pub memory_bytes: u32,
    /// Entry from the base.
    pub entry: u32,
    /// Permissions.
    pub segments: Vec<Segment>,
    /// Boot stack in bytes, whole pages.
    pub stack_bytes: u32,
    /// Virtual address of physical address 0.
    pub physical_memory_offset: u64,
    /// Virtual address of the base.
    pub base: u64,
    /// Identifies this kernel: the start of the BLAKE3 hash of bytes and entry.
    pub build_id: [u8; 20],
}

impl KernelImage {
    /// Places and relocates the kernel of the ELF file `file`.
    pub fn parse(file: &[u8]) -> Result<Self, KernelError> {
        let mut image = ElfImage::parse(file, u64::from(KERNEL_MEMORY_MAX))?;
        let config = image
            .bootloader_config
            .take()
            .ok_or_else(|| KernelError::Config("no `bootloader_api::entry_point!`".into()))?;
        let config = BootloaderConfig::deserialize(&config)
            .map_err(|error| KernelError::Config(error.into()))?;
        let (base, physical_memory_offset, stack_bytes) = settings(&config)?;
        for index in 0..image.relocations.len() {
            let relocation = image.relocations[index];
            image.put_u64(relocation.place, base.wrapping_add(relocation.addend));
        }
        let memory_bytes = image.memory_bytes.next_multiple_of(PAGE_BYTES) as u32;
        let segments = page_segments(&image)?;
        let mut bytes = image.bytes;
        let used = bytes
            .iter()
            .rposition(|&byte| byte != 0)
            .map_or(0, |last| last + 1);
        bytes.truncate(used);
        let mut hasher = blake3::Hasher::new();
        hasher.update(&image.entry.to_le_bytes()).update(&bytes);
        let mut build_id = [0; 20];
        build_id.copy_from_slice(&hasher.finalize().as_bytes()[..20]);
        Ok(Self {
            bytes,
            memory_bytes,
            entry: image.entry as u32,
            segments,
            stack_bytes,
            physical_memory_offset,
            base,
            build_id,
        })
    }
}

/// Base, physical memory offset and stack size from the kernel's configuration; what the stub
/// cannot do is refused, not ignored.
fn settings(config: &BootloaderConfig) -> Result<(u64, u64, u32), KernelError> {
    let mappings = &config.mappings;
    let refuse = |what: &str| {
        Err(KernelError::Config(format!(
            "{what} is not supported by the stub"
        )))
    };
    if mappings.page_table_recursive.is_some() {
        return refuse("a recursive page table");
    }
    if mappings.aslr {
        return refuse("address space randomisation");
    }
    for (mapping, name) in [
        (mappings.kernel_stack, "a fixed stack address"),
        (mappings.boot_info, "a fixed boot information address"),
        (mappings.ramdisk_memory, "a fixed ramdisk address"),
        (mappings.kernel_base, "a fixed kernel base"),
    ] {
        if mapping != Mapping::Dynamic {
            return refuse(name);
        }
    }
    let offset = match mappings.physical_memory {
        Some(Mapping::FixedAddress(offset)) => offset,
        _ => PHYSICAL_MEMORY_OFFSET,
    };
    if offset != PHYSICAL_MEMORY_OFFSET {
        return refuse("physical memory anywhere but at 0xffff_8000_0000_0000");
    }
    let stack = config
        .kernel_stack_size
        .checked_next_multiple_of(PAGE_BYTES)
        .filter(|&stack| stack > 0 && stack <= u64::from(STACK_BYTES_MAX))
        .ok_or_else(|| {
            KernelError::Config(format!("the stack is not 1 to {STACK_BYTES_MAX} bytes"))
        })?;
    Ok((KERNEL_BASE, offset, stack as u32))
}

/// Page permissions from the segments; what is read-only after relocation is so from the start,
/// since relocation happens here.
fn page_segments(image: &ElfImage) -> Result<Vec<Segment>, KernelError> {
    let mut out: Vec<Segment> = Vec::new();
    for load in &image.segments {
        for (start, end, writable) in split_relro(load, image.relro) {
            let segment = Segment {
                start: start as u32,
                end: end as u32,
                writable,
                executable: load.flags & abi::PF_X != 0,
            };
            if segment.writable && segment.executable {
                return Err(KernelError::Permissions("one is writable and executable"));
            }
            match out.last_mut() {
                Some(last) if last.end > segment.start => {
                    return Err(KernelError::Permissions("two share a page"));
                }
                Some(last)
                    if last.end == segment.start
                        && last.writable == segment.writable
                        && last.executable == segment.executable =>
                {
                    last.end = segment.end;
                }
                _ => out.push(segment),
            }
        }
    }
    if out.len() > SEGMENTS_MAX {
        return Err(KernelError::Permissions("there are too many"));
    }
    Ok(out)
}

/// The pages of a segment, split at the read-only part: start, end, writable.
fn split_relro(load: &LoadSegment, relro: Option<(u64, u64)>) -> Vec<(u64, u64, bool)> {
    let start = load.start - load.start % PAGE_BYTES;
    let end = load.end.next_multiple_of(PAGE_BYTES);
    if load.flags & abi::PF_W == 0 {
        return vec![(start, end, false)];
    }
    // Only whole pages can be protected.
    let (low, high) = relro.unwrap_or((0, 0));
    let low = if low <= load.start {
        start
    } else {
        low.div_ceil(PAGE_BYTES).saturating_mul(PAGE_BYTES)
    };
    let high = if high >= load.end {
        end
    } else {
        high - high % PAGE_BYTES
    };
    let (low, high) = (low.clamp(start, end), high.clamp(start, end));
    if low >= high {
        return vec![(start, end, true)];
    }
    [(start, low, true), (low, high, false), (high, end, true)]
        .into_iter()
        .filter(|(start, end, _)| start < end)
        .collect()
}
