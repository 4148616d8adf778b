//! A core file: what a debugger reads of a program that was ended.
//!
//! [`plan`] lays the file out before a byte of it is written, since it is written front to back
//! over the network: the headers, the notes, then runs of pages.
//!
//! Key types: [`Thread`], [`Run`], [`Plan`]. Neighbours: `crate::program` finds the runs of pages
//! that a program has, `kernel::process::dump` fills a plan with them. Sources: System V ABI (ELF),
//! chapter 5; Linux, `include/uapi/linux/elfcore.h` and `arch/x86/include/asm/user_64.h` (the
//! notes).
//!
//! Invariant: a plan is at most as long as its limit, whatever the program has mapped; what has no
//! room is left out from the end of the order, and counted.

mod note;

#[cfg(test)]
mod tests;

use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::addr::PAGE_SIZE;
use crate::crash::Registers;
use crate::loader::Image;
use crate::paging::entry::Protection;
use crate::signals::Info;

/// Runs of pages of a core file; each has a header of 56 bytes.
pub const RUNS_MAX: usize = 1024;

const FILE_HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;
const TYPE_CORE: u16 = 4;
const MACHINE_X86_64: u16 = 62;
const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const EXECUTE: u32 = 1;
const WRITE: u32 = 2;
const READ: u32 = 4;

/// A thread of the program where it stopped.
#[derive(Clone, Copy, Debug)]
pub struct Thread<'a> {
    /// Its number.
    pub tid: u32,
    /// Its general registers.
    pub registers: Registers,
    /// Bases of FS and GS.
    pub bases: (u64, u64),
    /// Its floating-point registers in the layout of XSAVE, or of FXSAVE.
    pub state: &'a [u8],
}

/// The program.
#[derive(Clone, Copy, Debug)]
pub struct Program<'a> {
    /// Number of the process.
    pub pid: u32,
    /// The signal that ended it.
    pub signal: u8,
    /// What came with the signal.
    pub info: Info,
    /// Its name, as its first argument says.
    pub name: &'a [u8],
    /// Where it lies.
    pub image: &'a Image,
    /// Its threads, the one that ended it first.
    pub threads: &'a [Thread<'a>],
    /// Components of the floating-point state, as XCR0 has them; 0 without XSAVE.
    pub components: u64,
}

/// Pages that follow each other and are in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First address.
    pub start: u64,
    /// End.
    pub end: u64,
    /// What the program may do with them.
    pub protection: Protection,
    /// They belong to a segment of the program's file: its variables.
    pub is_data: bool,
}

impl Run {
    const fn bytes(&self) -> u64 {
        self.end - self.start
    }
}

/// A core file, page by page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// What comes first: headers, notes, and zeros up to a page boundary.
    pub head: Vec<u8>,
    /// The pages that follow, in this order.
    pub runs: Vec<Run>,
    /// Bytes of pages that are left out.
    pub left_out: u64,
}

impl Plan {
    /// Length of the file in bytes.
    pub fn bytes(&self) -> u64 {
        self.head.len() as u64 + self.runs.iter().map(Run::bytes).sum::<u64>()
    }
}

/// Lays a core file of at most `limit` bytes out; `None` when there is no room for its head. The
/// program's variables come first, then stacks and what lies below them: what is short of room is
/// the heap.
pub fn plan(program: &Program<'_>, mut runs: Vec<Run>, limit: u64) -> Option<Plan> {
    let notes = note::all(program);
    let headers = FILE_HEADER_BYTES + PROGRAM_HEADER_BYTES * (runs.len() + 1);
    let head_bytes = (headers + notes.len()).next_multiple_of(PAGE_SIZE as usize);
    let mut room = limit.checked_sub(head_bytes as u64)? & !(PAGE_SIZE - 1);
    runs.sort_by_key(|run| (!run.is_data, Reverse(run.start)));
    let mut left_out = 0;
    for run in &mut runs {
        let taken = run.bytes().min(room);
        left_out += run.bytes() - taken;
        room -= taken;
        run.end = run.start + taken;
    }
    runs.retain(|run| run.bytes() > 0);
    let mut head = Vec::with_capacity(head_bytes);
    file_header(&mut head, runs.len() as u16 + 1);
    let notes_at = FILE_HEADER_BYTES + PROGRAM_HEADER_BYTES * (runs.len() + 1);
    Header {
        kind: PT_NOTE,
        flags: 0,
        offset: notes_at as u64,
        address: 0,
        file_bytes: notes.len() as u64,
        memory_bytes: 0,
        align: 4,
    }
    .put(&mut head);
    let mut loads: Vec<Header> = Vec::with_capacity(runs.len());
    let mut offset = head_bytes as u64;
    for run in &runs {
        loads.push(Header {
            kind: PT_LOAD,
            flags: flags(run.protection),
            offset,
            address: run.start,
            file_bytes: run.bytes(),
            memory_bytes: run.bytes(),
            align: PAGE_SIZE,
        });
        offset += run.bytes();
    }
    // Readers expect them in the order of their addresses.
    loads.sort_by_key(|load| load.address);
    loads.iter().for_each(|load| load.put(&mut head));
    head.extend_from_slice(&notes);
    head.resize(head_bytes, 0);
    Some(Plan {
        head,
        runs,
        left_out,
    })
}

fn file_header(out: &mut Vec<u8>, headers: u16) {
    // 64 bits, little-endian, version 1, System V.
    out.extend_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    out.extend_from_slice(&TYPE_CORE.to_le_bytes());
    out.extend_from_slice(&MACHINE_X86_64.to_le_bytes());
    out.extend_from_slice(&1u32.to_le_bytes());
    // No entry, the program headers, no sections, no flags.
    for word in [0, FILE_HEADER_BYTES as u64, 0] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    out.extend_from_slice(&0u32.to_le_bytes());
    for half in [
        FILE_HEADER_BYTES as u16,
        PROGRAM_HEADER_BYTES as u16,
        headers,
        0,
        0,
        0,
    ] {
        out.extend_from_slice(&half.to_le_bytes());
    }
}

/// A program header.
struct Header {
    kind: u32,
    flags: u32,
    offset: u64,
    address: u64,
    file_bytes: u64,
    memory_bytes: u64,
    align: u64,
}

impl Header {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.kind.to_le_bytes());
        out.extend_from_slice(&self.flags.to_le_bytes());
        let words = [
            self.offset,
            self.address,
            0,
            self.file_bytes,
            self.memory_bytes,
            self.align,
        ];
        for word in words {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }
}

const fn flags(protection: Protection) -> u32 {
    match protection {
        Protection::None => 0,
        Protection::Read => READ,
        Protection::ReadWrite => READ | WRITE,
        Protection::ReadExecute => READ | EXECUTE,
    }
}
