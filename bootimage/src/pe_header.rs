//! The MZ and PE32+ headers in the first bytes of the image.
//!
//! Source: Microsoft PE format specification; UEFI 2.10, section 2.1.1.
//!
//! Sections are read-execute, read-only or read-write, never writable and executable, which is what
//! allows the NX_COMPAT flag.

use bootstub::descriptor::{HEAD_RVA, WORKSPACE_BYTES};

const PE_OFFSET: usize = 0x40;
const OPTIONAL_BYTES: usize = 112 + DIRECTORIES * 8;
/// Export, import, resource, exception, certificate, base relocation.
const DIRECTORIES: usize = 6;
const SECTION_BYTES: usize = 40;
const PAGE_BYTES: u32 = 4096;

const CODE: u32 = 0x20;
const INITIALISED: u32 = 0x40;
const UNINITIALISED: u32 = 0x80;
const EXECUTE: u32 = 0x2000_0000;
const READ: u32 = 0x4000_0000;
const WRITE: u32 = 0x8000_0000;

/// Where the parts of the image lie; each is a whole number of pages and ends where the next
/// begins.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    /// Entry for UEFI.
    pub entry: u32,
    /// Start of the stub's read-only data; its code starts at `HEAD_RVA`.
    pub rodata: u32,
    /// Start of the stub's writable data.
    pub data: u32,
    /// Start of what follows the stub: kernel and all.
    pub payload: u32,
    /// End of the file, start of the working memory.
    pub end: u32,
    /// An empty base relocation block: the image moves itself, but one without relocations at all
    /// would have to be loaded at its preferred address.
    pub base_relocations: (u32, u32),
}

/// Writes the headers.
pub fn write(page: &mut [u8; HEAD_RVA as usize], parts: &Parts) {
    let sections = [
        (
            b".text\0\0\0",
            HEAD_RVA,
            parts.rodata,
            CODE | EXECUTE | READ,
        ),
        (b".rodata\0", parts.rodata, parts.data, INITIALISED | READ),
        (
            b".data\0\0\0",
            parts.data,
            parts.payload,
            INITIALISED | READ | WRITE,
        ),
        (b".kernel\0", parts.payload, parts.end, INITIALISED | READ),
    ];
    let image_end = parts.end + WORKSPACE_BYTES;
    let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"MZ");
    put(0x3c, &(PE_OFFSET as u32).to_le_bytes());
    let coff = PE_OFFSET + 4;
    put(PE_OFFSET, b"PE\0\0");
    put(coff, &0x8664_u16.to_le_bytes());
    put(coff + 2, &(sections.len() as u16 + 1).to_le_bytes());
    put(coff + 16, &(OPTIONAL_BYTES as u16).to_le_bytes());
    // Executable, line numbers stripped, large addresses, debug information stripped.
    put(coff + 18, &0x0226_u16.to_le_bytes());

    let optional = coff + 20;
    put(optional, &0x020b_u16.to_le_bytes());
    put(optional + 4, &(parts.rodata - HEAD_RVA).to_le_bytes());
    put(optional + 8, &(parts.end - parts.rodata).to_le_bytes());
    put(optional + 12, &WORKSPACE_BYTES.to_le_bytes());
    put(optional + 16, &parts.entry.to_le_bytes());
    put(optional + 20, &HEAD_RVA.to_le_bytes());
    put(optional + 32, &PAGE_BYTES.to_le_bytes());
    put(optional + 36, &PAGE_BYTES.to_le_bytes());
    put(optional + 56, &image_end.to_le_bytes());
    put(optional + 60, &HEAD_RVA.to_le_bytes());
    put(optional + 68, &10_u16.to_le_bytes()); // EFI application
    put(optional + 70, &0x0100_u16.to_le_bytes()); // NX_COMPAT
    put(optional + 108, &(DIRECTORIES as u32).to_le_bytes());
    put(
        optional + 112 + 5 * 8,
        &parts.base_relocations.0.to_le_bytes(),
    );
    put(
        optional + 112 + 5 * 8 + 4,
        &parts.base_relocations.1.to_le_bytes(),
    );

    let table = optional + OPTIONAL_BYTES;
    for (index, (name, start, end, flags)) in sections.into_iter().enumerate() {
        let at = table + index * SECTION_BYTES;
        put(at, name);
        put(at + 8, &(end - start).to_le_bytes());
        put(at + 12, &start.to_le_bytes());
        put(at + 16, &(end - start).to_le_bytes());
        put(at + 20, &start.to_le_bytes());
        put(at + 36, &flags.to_le_bytes());
    }
    let at = table + sections.len() * SECTION_BYTES;
    put(at, b".work\0\0\0");
    put(at + 8, &WORKSPACE_BYTES.to_le_bytes());
    put(at + 12, &parts.end.to_le_bytes());
    put(at + 36, &(UNINITIALISED | READ | WRITE).to_le_bytes());
}

/// Bytes of the headers: they must end before the setup header.
pub const HEADER_BYTES: usize = PE_OFFSET + 24 + OPTIONAL_BYTES + 5 * SECTION_BYTES;
const _: () = assert!(HEADER_BYTES <= 0x1f1);
