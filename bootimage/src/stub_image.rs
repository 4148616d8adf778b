//! The boot stub's ELF file, whose addresses are offsets in the image (`stub/link.ld`).
//!
//! Invariant: the parts lie where the descriptor's constants say; anything else is refused.

use bootstub::descriptor::{ENTRY64_RVA, HEAD_RVA, SETUP_RVA, VERSION_TEXT_RVA};
use elf::abi;

use crate::elf_image::{ElfError, ElfImage};

/// Largest stub in bytes; ten times what it is.
const STUB_BYTES_MAX: u64 = 512 << 10;
const PAGE_BYTES: u32 = 4096;

/// Why a stub cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum StubError {
    /// The ELF file itself.
    #[error(transparent)]
    Elf(#[from] ElfError),
    /// Not linked by its own script.
    #[error("the boot stub is not laid out as expected ({0}); build it with `cargo xtask build`")]
    Layout(&'static str),
}

/// A stub for the image.
#[derive(Debug)]
pub struct StubImage {
    /// Image bytes from 0 to the stub's end, a whole number of pages; headers still zero.
    pub bytes: Vec<u8>,
    /// Entry for UEFI.
    pub entry: u32,
    /// Start of its read-only data.
    pub rodata: u32,
    /// Start of its writable data.
    pub data: u32,
    /// Places of addresses to be moved; they hold the RVA.
    pub relocations: Vec<u32>,
}

impl StubImage {
    /// Places the stub of the ELF file `file`.
    pub fn parse(file: &[u8]) -> Result<Self, StubError> {
        let mut image = ElfImage::parse(file, STUB_BYTES_MAX)?;
        let (setup, text, rodata, data) = match image.segments[..] {
            [setup, text, rodata, data] => (setup, text, rodata, data),
            _ => return Err(StubError::Layout("not four segments")),
        };
        if setup.start != u64::from(SETUP_RVA) || setup.end > u64::from(VERSION_TEXT_RVA) {
            return Err(StubError::Layout("the setup code is out of place"));
        }
        if text.start != u64::from(HEAD_RVA) || text.file_end <= u64::from(ENTRY64_RVA) {
            return Err(StubError::Layout("the code is out of place"));
        }
        for (segment, flags) in [
            (text, abi::PF_R | abi::PF_X),
            (rodata, abi::PF_R),
            (data, abi::PF_R | abi::PF_W),
        ] {
            if segment.flags != flags {
                return Err(StubError::Layout("wrong permissions"));
            }
            if segment.start % u64::from(PAGE_BYTES) != 0 || segment.file_end != segment.end {
                return Err(StubError::Layout("a segment is unaligned or has a .bss"));
            }
        }
        let mut relocations = Vec::new();
        for index in 0..image.relocations.len() {
            let relocation = image.relocations[index];
            if relocation.place < data.start {
                return Err(StubError::Layout("an address in read-only data"));
            }
            image.put_u64(relocation.place, relocation.addend);
            relocations.push(relocation.place as u32);
        }
        let mut bytes = image.bytes;
        bytes.resize(bytes.len().next_multiple_of(PAGE_BYTES as usize), 0);
        Ok(Self {
            bytes,
            entry: image.entry as u32,
            rodata: rodata.start as u32,
            data: data.start as u32,
            relocations,
        })
    }
}
