//! The loader: reads the headers of an ELF64 program and says where its segments go.
//!
//! [`Image::parse`] looks at the first [`HEAD_BYTES`] of the file and at its size, never at the
//! contents of a segment: those come page by page when the program touches them
//! ([`crate::fault`]). Static programs (ET_EXEC) and static position-independent ones (ET_DYN
//! without an interpreter) are taken; the latter relocate themselves.
//!
//! Neighbours: [`crate::space`] makes regions of the segments; `kernel::process` fetches the head
//! and sends a [`LoadError`] to the user's terminal.
//!
//! Invariant: an [`Image`] keeps what it promises whatever the file says: segments ascend, share
//! no page, lie in user space below the stack, have file bytes the file really has, and none is
//! writable and executable.

mod error;
pub mod layout;

use alloc::vec::Vec;

use elf::abi;
use elf::endian::{EndianParse, LittleEndian};
use elf::file::{Class as ElfClass, FileHeader};
use elf::parse::ParseAt;
use elf::segment::ProgramHeader;

use crate::addr::{PAGE_SIZE, page_down, page_up};
use crate::paging::entry::{Class, Protection};
pub use error::{Lie, LoadError};

/// Bytes of the file that must hold the ELF header and all program headers: two pages. Linkers
/// put the headers at the start.
pub const HEAD_BYTES: u64 = 2 * PAGE_SIZE;
/// Loadable segments a program may have. Linkers make two to five.
pub const SEGMENTS_MAX: usize = 16;
/// Program headers a file may have; what fits in the head.
pub const HEADERS_MAX: u16 = 64;
/// Largest alignment of a segment in bytes: the largest page of the architecture.
pub const ALIGN_MAX: u64 = 1 << 30;
/// Bytes of one program header.
const HEADER_BYTES: u64 = 56;
/// Bytes of the ELF header.
const EHDR_BYTES: usize = 64;

/// A loadable segment, in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// First address, at a page boundary.
    pub start: u64,
    /// End, at a page boundary.
    pub end: u64,
    /// Offset in the file of the byte at `start`, a multiple of the page size.
    pub offset: u64,
    /// End of the bytes that come from the file; zeros from here on. Of a segment that is not
    /// written and asks for no zeros, its last page is wholly the file's, as Linux maps it: so a
    /// page is known by its hash.
    pub file_end: u64,
    /// What the program may do with it.
    pub protection: Protection,
    /// What retention may do with it, by the flags of the program header.
    pub class: Class,
}

/// A program as the loader sees it. Addresses include the load base.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Where the program starts.
    pub entry: u64,
    /// What was added to the addresses in the file; 0 for ET_EXEC.
    pub base: u64,
    /// Address of the program headers in memory; `None` when no segment holds them.
    pub headers: Option<u64>,
    /// Number of program headers.
    pub header_count: u16,
    /// Segments in ascending order, at least one.
    pub segments: Vec<Segment>,
    /// Size of the file in bytes.
    pub file_bytes: u64,
}

impl Image {
    /// Bytes per program header, for the auxiliary vector.
    pub const HEADER_BYTES: u64 = HEADER_BYTES;

    /// Reads the headers. `head` is the start of the file: [`HEAD_BYTES`], or the whole file when
    /// it is shorter.
    pub fn parse(head: &[u8], file_bytes: u64) -> Result<Self, LoadError> {
        assert!(
            head.len() as u64 >= file_bytes.min(HEAD_BYTES),
            "head of the file is missing"
        );
        let header = parse_header(head)?;
        let headers = parse_program_headers(head, file_bytes, &header)?;
        if headers.iter().any(|h| h.p_type == abi::PT_INTERP) {
            return Err(LoadError::DynamicallyLinked);
        }
        let loads: Vec<&ProgramHeader> = headers
            .iter()
            .filter(|h| h.p_type == abi::PT_LOAD && h.p_memsz > 0)
            .collect();
        if loads.is_empty() {
            return Err(LoadError::NoSegments);
        }
        if loads.len() > SEGMENTS_MAX {
            return Err(LoadError::TooManySegments(loads.len()));
        }
        let base = match header.e_type {
            abi::ET_DYN => load_base(&loads)?,
            _ => 0,
        };
        let mut segments: Vec<Segment> = Vec::with_capacity(loads.len());
        for (index, load) in loads.iter().enumerate() {
            let segment = segment(load, base, file_bytes, index)?;
            if segments.last().is_some_and(|last| segment.start < last.end) {
                return Err(LoadError::Overlapping { index });
            }
            segments.push(segment);
        }
        let entry = header.e_entry.wrapping_add(base);
        let holds_entry = |s: &Segment| {
            s.protection == Protection::ReadExecute && (s.start..s.end).contains(&entry)
        };
        if !segments.iter().any(holds_entry) {
            return Err(LoadError::EntryOutside(header.e_entry));
        }
        Ok(Self {
            entry,
            base,
            headers: headers_in_memory(&header, &headers, &segments, base)?,
            header_count: header.e_phnum,
            segments,
            file_bytes,
        })
    }

    /// The segment that holds `address`.
    pub fn segment_at(&self, address: u64) -> Option<&Segment> {
        let holds = |s: &&Segment| (s.start..s.end).contains(&address);
        self.segments.iter().find(holds)
    }

    /// First address behind the segments.
    pub fn end(&self) -> u64 {
        self.segments.last().map_or(0, |segment| segment.end)
    }
}

fn parse_header(head: &[u8]) -> Result<FileHeader<LittleEndian>, LoadError> {
    if head.len() < 4 || head[..4] != abi::ELFMAGIC {
        return Err(LoadError::NotElf);
    }
    if head.len() < EHDR_BYTES {
        return Err(LoadError::Truncated {
            needed: EHDR_BYTES as u64,
            file_bytes: head.len() as u64,
        });
    }
    if head[abi::EI_CLASS] == abi::ELFCLASS32 {
        return Err(LoadError::Not64Bit);
    }
    if head[abi::EI_DATA] == abi::ELFDATA2MSB {
        return Err(LoadError::WrongMachine(None));
    }
    let ident = elf::file::parse_ident::<LittleEndian>(head).map_err(|_| LoadError::BadHeader)?;
    debug_assert_eq!(ident.1, ElfClass::ELF64);
    let tail = &head[abi::EI_NIDENT..EHDR_BYTES];
    let header = FileHeader::parse_tail(ident, tail).map_err(|_| LoadError::BadHeader)?;
    if header.e_machine != abi::EM_X86_64 {
        return Err(LoadError::WrongMachine(Some(header.e_machine)));
    }
    match header.e_type {
        abi::ET_EXEC | abi::ET_DYN => {}
        other => return Err(LoadError::NotAProgram(other)),
    }
    if header.version != u32::from(abi::EV_CURRENT) || u64::from(header.e_phentsize) != HEADER_BYTES
    {
        return Err(LoadError::BadHeader);
    }
    Ok(header)
}

fn parse_program_headers(
    head: &[u8],
    file_bytes: u64,
    header: &FileHeader<LittleEndian>,
) -> Result<Vec<ProgramHeader>, LoadError> {
    let count = header.e_phnum;
    if count == 0 {
        return Err(LoadError::NoSegments);
    }
    let bytes = u64::from(count) * HEADER_BYTES;
    let needed = header
        .e_phoff
        .checked_add(bytes)
        .ok_or(LoadError::BadHeader)?;
    if needed > file_bytes {
        return Err(LoadError::Truncated { needed, file_bytes });
    }
    if count > HEADERS_MAX || needed > HEAD_BYTES {
        return Err(LoadError::HeadersTooFar { end: needed });
    }
    let mut offset = header.e_phoff as usize;
    (0..count)
        .map(|_| {
            ProgramHeader::parse_at(LittleEndian, ElfClass::ELF64, &mut offset, head)
                .map_err(|_| LoadError::BadHeader)
        })
        .collect()
}

/// Base of a position-independent program: the same for every launch, so that pages of one launch
/// fit the next.
fn load_base(loads: &[&ProgramHeader]) -> Result<u64, LoadError> {
    let align = loads.iter().map(|load| load.p_align).max().unwrap_or(0);
    let align = align.max(PAGE_SIZE);
    if !align.is_power_of_two() || align > ALIGN_MAX {
        let index = loads.iter().position(|load| load.p_align == align);
        let index = index.unwrap_or(0);
        return Err(lie(index, Lie::Alignment));
    }
    let lowest = loads.iter().map(|load| load.p_vaddr).min().unwrap_or(0);
    let base = (layout::PIE_BASE & !(align - 1)).checked_sub(lowest & !(align - 1));
    base.ok_or(lie(0, Lie::Address))
}

fn segment(
    load: &ProgramHeader,
    base: u64,
    file_bytes: u64,
    index: usize,
) -> Result<Segment, LoadError> {
    let align = load.p_align.max(1);
    if !align.is_power_of_two() || align > ALIGN_MAX {
        return Err(lie(index, Lie::Alignment));
    }
    if load.p_filesz > load.p_memsz {
        return Err(lie(index, Lie::FileLargerThanMemory));
    }
    if load.p_filesz > 0 && load.p_vaddr % PAGE_SIZE != load.p_offset % PAGE_SIZE {
        return Err(lie(index, Lie::OffsetDoesNotFitAddress));
    }
    let file_stop = load.p_offset.checked_add(load.p_filesz);
    match file_stop {
        Some(needed) if needed > file_bytes && load.p_filesz > 0 => {
            return Err(LoadError::Truncated { needed, file_bytes });
        }
        Some(_) => {}
        None => return Err(lie(index, Lie::FileRange)),
    }
    let begin = load.p_vaddr.checked_add(base);
    let begin = begin.ok_or(lie(index, Lie::Address))?;
    let stop = begin.checked_add(load.p_memsz);
    let end = stop.and_then(page_up).ok_or(lie(index, Lie::Address))?;
    let start = page_down(begin);
    if start < layout::USER_MIN {
        return Err(lie(index, Lie::NullPage));
    }
    if end > layout::IMAGE_TOP {
        return Err(match begin < layout::IMAGE_TOP {
            true => LoadError::TooLarge {
                index,
                bytes: load.p_memsz,
            },
            false => lie(index, Lie::Address),
        });
    }
    let (protection, class) = rights(load.p_flags).ok_or(LoadError::WriteAndExecute { index })?;
    let has_file = load.p_filesz > 0;
    let offset = page_down(load.p_offset);
    let file_end = match load.p_filesz == load.p_memsz && class != Class::FileData {
        true => end.min(start.saturating_add(file_bytes - offset)),
        false => begin + load.p_filesz,
    };
    Ok(Segment {
        start,
        end,
        offset: if has_file { offset } else { 0 },
        file_end: if has_file { file_end } else { start },
        protection,
        class,
    })
}

fn lie(index: usize, what: Lie) -> LoadError {
    LoadError::BadSegment { index, what }
}

/// Protection and class by the flags of a program header, `None` for writable and executable.
fn rights(flags: u32) -> Option<(Protection, Class)> {
    let (write, execute) = (flags & abi::PF_W != 0, flags & abi::PF_X != 0);
    match (write, execute) {
        (true, true) => None,
        (true, false) => Some((Protection::ReadWrite, Class::FileData)),
        (false, true) => Some((Protection::ReadExecute, Class::FileExecute)),
        (false, false) if flags & abi::PF_R == 0 => Some((Protection::None, Class::Private)),
        (false, false) => Some((Protection::Read, Class::FileRead)),
    }
}

/// Where the program finds its own headers: by PT_PHDR, else in the segment that holds them.
fn headers_in_memory<E: EndianParse>(
    header: &FileHeader<E>,
    headers: &[ProgramHeader],
    segments: &[Segment],
    base: u64,
) -> Result<Option<u64>, LoadError> {
    let bytes = u64::from(header.e_phnum) * HEADER_BYTES;
    let holding = |s: &&Segment| {
        let file_bytes = s.file_end - s.start;
        header.e_phoff >= s.offset && header.e_phoff + bytes <= s.offset + file_bytes
    };
    let found = segments
        .iter()
        .find(holding)
        .map(|s| s.start + (header.e_phoff - s.offset));
    if let Some(said) = headers.iter().find(|h| h.p_type == abi::PT_PHDR) {
        let said = said.p_vaddr.wrapping_add(base);
        let inside = |s: &Segment| said >= s.start && said.saturating_add(bytes) <= s.file_end;
        if !segments.iter().any(inside) {
            return Err(LoadError::HeadersNotLoaded);
        }
        return Ok(Some(said));
    }
    Ok(found)
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
pub(crate) mod synthetic;
#[cfg(test)]
mod tests;
