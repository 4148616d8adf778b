//! An ELF file as it lies in memory: loadable segments placed, the rest checked and dropped.
//!
//! Shared by kernel and stub. Only static position-independent x86-64 ELF files whose relocations
//! are all `R_X86_64_RELATIVE` are accepted, which is what rustc makes for `x86_64-unknown-none`.
//!
//! Invariant: every offset in [`ElfImage`] lies inside `bytes` or inside `memory_bytes`.

use elf::ElfBytes;
use elf::abi;
use elf::endian::LittleEndian;
use elf::segment::ProgramHeader;

/// Most program headers looked at: rustc writes nine.
const PROGRAM_HEADERS_MAX: usize = 64;

/// Why an ELF file cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ElfError {
    /// The `elf` crate did not understand it.
    #[error("not a readable ELF file: {0}")]
    Unreadable(String),
    /// Not x86-64, or not position-independent.
    #[error(
        "wrong kind of ELF file ({0}); build it with `--target x86_64-unknown-none` for \
         `cargo xtask build`"
    )]
    WrongKind(&'static str),
    /// A segment is out of place.
    #[error("bad segment: {0}")]
    BadSegment(&'static str),
    /// A relocation that is not `R_X86_64_RELATIVE` or is out of place.
    #[error("bad relocation: {0}")]
    BadRelocation(&'static str),
    /// More memory than the limit.
    #[error("needs {needed} bytes in memory, more than the limit of {limit}")]
    TooLarge {
        /// What its segments span.
        needed: u64,
        /// What the caller allows.
        limit: u64,
    },
}

/// A loadable segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadSegment {
    /// First byte, from the lowest address of the file (0 in what rustc makes).
    pub start: u64,
    /// End of what the file gives.
    pub file_end: u64,
    /// End in memory, zeroes after `file_end`.
    pub end: u64,
    /// Readable, writable and executable bits as in `p_flags`.
    pub flags: u32,
}

/// A relocation: the address `addend` (relative to the base) belongs at `place`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relocation {
    /// Where the eight bytes lie.
    pub place: u64,
    /// What they point to.
    pub addend: u64,
}

/// An ELF file, placed.
#[derive(Debug)]
pub struct ElfImage {
    /// Memory from address 0 to the end of the last file byte.
    pub bytes: Vec<u8>,
    /// Size in memory.
    pub memory_bytes: u64,
    /// Entry address.
    pub entry: u64,
    /// Loadable segments, in order, disjoint.
    pub segments: Vec<LoadSegment>,
    /// What is to become read-only after relocation, start and end.
    pub relro: Option<(u64, u64)>,
    /// Relocations, each inside `bytes`.
    pub relocations: Vec<Relocation>,
    /// Contents of the section `.bootloader-config`.
    pub bootloader_config: Option<Vec<u8>>,
}

impl ElfImage {
    /// Places `file`, which may take at most `limit` bytes of memory.
    pub fn parse(file: &[u8], limit: u64) -> Result<Self, ElfError> {
        let elf = ElfBytes::<LittleEndian>::minimal_parse(file).map_err(unreadable)?;
        check_kind(&elf)?;
        let headers: Vec<ProgramHeader> = elf
            .segments()
            .ok_or(ElfError::BadSegment("no program headers"))?
            .iter()
            .take(PROGRAM_HEADERS_MAX + 1)
            .collect();
        if headers.len() > PROGRAM_HEADERS_MAX {
            return Err(ElfError::BadSegment("too many program headers"));
        }
        let (mut image, loads) = place_segments(file, &headers, limit)?;
        image.entry = elf.ehdr.e_entry;
        if !loads.iter().any(|load| {
            load.flags & abi::PF_X != 0 && (load.start..load.file_end).contains(&image.entry)
        }) {
            return Err(ElfError::BadSegment(
                "the entry lies in no executable segment",
            ));
        }
        image.segments = loads;
        image.relro = headers
            .iter()
            .find(|header| header.p_type == abi::PT_GNU_RELRO)
            .map(|header| {
                (
                    header.p_vaddr,
                    header.p_vaddr.saturating_add(header.p_memsz),
                )
            });
        image.relocations = relocations(&elf, &headers, &image)?;
        image.bootloader_config = match elf.section_header_by_name(".bootloader-config") {
            Ok(Some(section)) => {
                let (bytes, _) = elf.section_data(&section).map_err(unreadable)?;
                Some(bytes.to_vec())
            }
            _ => None,
        };
        Ok(image)
    }

    /// Writes `value` as eight little-endian bytes; relocations are known to lie inside.
    pub fn put_u64(&mut self, place: u64, value: u64) {
        let place = place as usize;
        if let Some(bytes) = self.bytes.get_mut(place..place + 8) {
            bytes.copy_from_slice(&value.to_le_bytes());
        }
    }
}

fn unreadable(error: elf::ParseError) -> ElfError {
    ElfError::Unreadable(error.to_string())
}

fn check_kind(elf: &ElfBytes<LittleEndian>) -> Result<(), ElfError> {
    if elf.ehdr.class != elf::file::Class::ELF64 {
        return Err(ElfError::WrongKind("not 64-bit"));
    }
    if elf.ehdr.e_machine != abi::EM_X86_64 {
        return Err(ElfError::WrongKind("not x86-64"));
    }
    if elf.ehdr.e_type != abi::ET_DYN {
        return Err(ElfError::WrongKind("not position-independent"));
    }
    Ok(())
}

fn place_segments(
    file: &[u8],
    headers: &[ProgramHeader],
    limit: u64,
) -> Result<(ElfImage, Vec<LoadSegment>), ElfError> {
    let mut loads = Vec::new();
    let mut bytes = Vec::new();
    let mut memory_bytes = 0_u64;
    for header in headers {
        match header.p_type {
            abi::PT_INTERP => return Err(ElfError::WrongKind("dynamically linked")),
            abi::PT_TLS => return Err(ElfError::WrongKind("uses thread-local storage")),
            abi::PT_LOAD if header.p_memsz > 0 => {}
            _ => continue,
        }
        if header.p_filesz > header.p_memsz {
            return Err(ElfError::BadSegment("larger in the file than in memory"));
        }
        if header.p_vaddr < memory_bytes {
            return Err(ElfError::BadSegment("segments overlap or are out of order"));
        }
        let end = header
            .p_vaddr
            .checked_add(header.p_memsz)
            .ok_or(ElfError::BadSegment("address overflow"))?;
        if end > limit {
            return Err(ElfError::TooLarge { needed: end, limit });
        }
        let file_end = header.p_offset.checked_add(header.p_filesz);
        let content = file_end
            .and_then(|end| {
                file.get(usize::try_from(header.p_offset).ok()?..usize::try_from(end).ok()?)
            })
            .ok_or(ElfError::BadSegment("lies outside the file"))?;
        if !content.is_empty() {
            bytes.resize(header.p_vaddr as usize, 0);
            bytes.extend_from_slice(content);
        }
        loads.push(LoadSegment {
            start: header.p_vaddr,
            file_end: header.p_vaddr + header.p_filesz,
            end,
            flags: header.p_flags,
        });
        memory_bytes = end;
    }
    let image = ElfImage {
        bytes,
        memory_bytes,
        entry: 0,
        segments: Vec::new(),
        relro: None,
        relocations: Vec::new(),
        bootloader_config: None,
    };
    Ok((image, loads))
}

fn relocations(
    elf: &ElfBytes<LittleEndian>,
    headers: &[ProgramHeader],
    image: &ElfImage,
) -> Result<Vec<Relocation>, ElfError> {
    if !headers
        .iter()
        .any(|header| header.p_type == abi::PT_DYNAMIC)
    {
        return Ok(Vec::new());
    }
    let dynamic = elf.dynamic().map_err(unreadable)?;
    let (mut table, mut size, mut entry_size) = (None, 0, 0);
    for entry in dynamic.iter().flat_map(|table| table.iter()) {
        match entry.d_tag {
            abi::DT_RELA => table = Some(entry.d_ptr()),
            abi::DT_RELASZ => size = entry.d_val(),
            abi::DT_RELAENT => entry_size = entry.d_val(),
            abi::DT_REL | abi::DT_JMPREL | DT_RELR => {
                return Err(ElfError::BadRelocation("only a RELA table is understood"));
            }
            abi::DT_NEEDED => return Err(ElfError::WrongKind("dynamically linked")),
            _ => {}
        }
    }
    let Some(table) = table.filter(|_| size > 0) else {
        return Ok(Vec::new());
    };
    if entry_size != RELA_BYTES as u64 {
        return Err(ElfError::BadRelocation("entries of unknown size"));
    }
    let bytes = table
        .checked_add(size)
        .and_then(|end| {
            image
                .bytes
                .get(usize::try_from(table).ok()?..usize::try_from(end).ok()?)
        })
        .ok_or(ElfError::BadRelocation("the table lies outside the file"))?;
    bytes
        .chunks_exact(RELA_BYTES)
        .map(|entry| one_relocation(entry, image))
        .collect()
}

const RELA_BYTES: usize = 24;
/// Compact relative relocations; not named by the `elf` crate.
const DT_RELR: i64 = 36;

fn one_relocation(entry: &[u8], image: &ElfImage) -> Result<Relocation, ElfError> {
    let word = |at: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&entry[at..at + 8]);
        u64::from_le_bytes(bytes)
    };
    let (place, info, addend) = (word(0), word(8), word(16));
    if info != u64::from(abi::R_X86_64_RELATIVE) {
        return Err(ElfError::BadRelocation("not R_X86_64_RELATIVE"));
    }
    let inside = image.segments.iter().any(|load| {
        place >= load.start && place.checked_add(8).is_some_and(|end| end <= load.file_end)
    });
    if !inside {
        return Err(ElfError::BadRelocation("its place lies in no segment"));
    }
    if addend > image.memory_bytes {
        return Err(ElfError::BadRelocation("points outside the image"));
    }
    Ok(Relocation { place, addend })
}
