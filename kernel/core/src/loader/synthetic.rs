//! ELF files made in the test: small, with every field in reach.

use super::*;
use std::vec;

/// One program header of a file to be made.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    pub kind: u32,
    pub flags: u32,
    pub offset: u64,
    pub address: u64,
    pub file_bytes: u64,
    pub memory_bytes: u64,
    pub align: u64,
}

/// A file to be made.
#[derive(Clone, Debug)]
pub struct Builder {
    pub kind: u16,
    pub machine: u16,
    pub entry: u64,
    pub parts: Vec<Part>,
    /// Size of the whole file.
    pub bytes: usize,
}

impl Builder {
    /// What `gcc -static` makes, in small: headers, code, constants, data with bss.
    pub fn program() -> Self {
        let load = |flags, page: u64, file_bytes, memory_bytes| Part {
            kind: abi::PT_LOAD,
            flags,
            offset: page * PAGE_SIZE,
            address: 0x40_0000 + page * PAGE_SIZE,
            file_bytes,
            memory_bytes,
            align: PAGE_SIZE,
        };
        let (r, w, x) = (abi::PF_R, abi::PF_W, abi::PF_X);
        let mut data = load(r | w, 5, 0x900, 0x3800);
        data.offset += 0x700;
        data.address += 0x700;
        let stack = Part {
            kind: abi::PT_GNU_STACK,
            memory_bytes: 0,
            ..load(r | w, 0, 0, 0)
        };
        Self {
            kind: abi::ET_EXEC,
            machine: abi::EM_X86_64,
            entry: 0x40_1136,
            parts: vec![
                load(r, 0, 0x400, 0x400),
                load(r | x, 1, 0x2345, 0x2345),
                load(r, 4, 0x800, 0x800),
                data,
                stack,
            ],
            bytes: 0x6400,
        }
    }

    /// The same as a static position-independent program.
    pub fn position_independent() -> Self {
        let mut program = Self::program();
        program.kind = abi::ET_DYN;
        program.entry -= 0x40_0000;
        for part in &mut program.parts {
            part.address = part.address.saturating_sub(0x40_0000);
        }
        let dynamic = Part {
            kind: abi::PT_DYNAMIC,
            ..program.parts[3]
        };
        program.parts.push(dynamic);
        program
    }

    /// The file.
    pub fn build(&self) -> Vec<u8> {
        let mut file = vec![0; self.bytes];
        let mut out = Vec::new();
        out.extend_from_slice(&abi::ELFMAGIC);
        out.extend_from_slice(&[abi::ELFCLASS64, abi::ELFDATA2LSB, abi::EV_CURRENT]);
        out.resize(16, 0);
        out.extend_from_slice(&self.kind.to_le_bytes());
        out.extend_from_slice(&self.machine.to_le_bytes());
        out.extend_from_slice(&1u32.to_le_bytes());
        for word in [self.entry, EHDR_BYTES as u64, 0] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&0u32.to_le_bytes());
        for half in [64, HEADER_BYTES as u16, self.parts.len() as u16, 64, 0, 0] {
            out.extend_from_slice(&half.to_le_bytes());
        }
        for part in &self.parts {
            out.extend_from_slice(&part.kind.to_le_bytes());
            out.extend_from_slice(&part.flags.to_le_bytes());
            for word in [
                part.offset,
                part.address,
                part.address,
                part.file_bytes,
                part.memory_bytes,
                part.align,
            ] {
                out.extend_from_slice(&word.to_le_bytes());
            }
        }
        let length = out.len().min(file.len());
        file[..length].copy_from_slice(&out[..length]);
        file
    }

    /// Builds and parses.
    pub fn parse(&self) -> Result<Image, LoadError> {
        parse(&self.build())
    }
}

/// Parses a whole file.
pub fn parse(file: &[u8]) -> Result<Image, LoadError> {
    let head = &file[..file.len().min(HEAD_BYTES as usize)];
    Image::parse(head, file.len() as u64)
}

/// The image of [`Builder::program`].
pub fn image() -> Image {
    Builder::program().parse().unwrap()
}
