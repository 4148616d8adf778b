//! Why a file cannot be run, in words for the person who started it.

use core::fmt;

/// Why a file cannot be run. The text says what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// The file does not begin like an ELF file.
    NotElf,
    /// The file ends before byte `needed`.
    Truncated {
        /// Bytes the headers promise.
        needed: u64,
        /// Bytes the file has.
        file_bytes: u64,
    },
    /// A 32-bit program.
    Not64Bit,
    /// A program for the machine with this ELF number; `None` for a big-endian one.
    WrongMachine(Option<u16>),
    /// An object file, a core file, or another type with this number.
    NotAProgram(u16),
    /// The ELF header contradicts itself.
    BadHeader,
    /// The program needs an interpreter and shared libraries.
    DynamicallyLinked,
    /// The program headers do not lie at the start of the file.
    HeadersTooFar {
        /// Offset of their end.
        end: u64,
    },
    /// PT_PHDR names an address that no segment loads.
    HeadersNotLoaded,
    /// Nothing to load.
    NoSegments,
    /// More loadable segments than the loader keeps.
    TooManySegments(usize),
    /// A loadable segment contradicts itself.
    BadSegment {
        /// Which loadable segment, from 0.
        index: usize,
        /// In what.
        what: Lie,
    },
    /// A segment starts in a page of the one before, or below it.
    Overlapping {
        /// Which loadable segment, from 0.
        index: usize,
    },
    /// A segment does not fit below the stack.
    TooLarge {
        /// Which loadable segment, from 0.
        index: usize,
        /// Its size in memory.
        bytes: u64,
    },
    /// A segment is writable and executable.
    WriteAndExecute {
        /// Which loadable segment, from 0.
        index: usize,
    },
    /// The entry point lies in no executable segment.
    EntryOutside(u64),
}

/// What about a segment cannot be true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// Alignment is not a power of two, or beyond the largest page.
    Alignment,
    /// More bytes in the file than in memory.
    FileLargerThanMemory,
    /// Offset and address differ within a page.
    OffsetDoesNotFitAddress,
    /// The range in the file overflows.
    FileRange,
    /// The addresses are not canonical user addresses.
    Address,
    /// The segment covers the lowest pages, which catch null pointers.
    NullPage,
}

impl Lie {
    const fn text(self) -> &'static str {
        match self {
            Self::Alignment => "its alignment is not a power of two up to 1 GiB",
            Self::FileLargerThanMemory => "it is larger in the file than in memory",
            Self::OffsetDoesNotFitAddress => "its file offset and its address differ within a page",
            Self::FileRange => "its range in the file overflows",
            Self::Address => "its addresses are not user addresses",
            Self::NullPage => "it covers the lowest 64 KiB, which catch null pointers",
        }
    }
}

impl LoadError {
    /// All kinds by name, in the order of [`LoadError::kind`], for counting.
    pub const KINDS: [&'static str; 16] = [
        "not an ELF file",
        "truncated",
        "32-bit",
        "other machine",
        "not a program",
        "bad header",
        "dynamically linked",
        "headers too far",
        "headers not loaded",
        "no segments",
        "too many segments",
        "bad segment",
        "overlapping",
        "too large",
        "writable and executable",
        "entry outside",
    ];

    /// Index into [`LoadError::KINDS`].
    pub const fn kind(self) -> usize {
        match self {
            Self::NotElf => 0,
            Self::Truncated { .. } => 1,
            Self::Not64Bit => 2,
            Self::WrongMachine(_) => 3,
            Self::NotAProgram(_) => 4,
            Self::BadHeader => 5,
            Self::DynamicallyLinked => 6,
            Self::HeadersTooFar { .. } => 7,
            Self::HeadersNotLoaded => 8,
            Self::NoSegments => 9,
            Self::TooManySegments(_) => 10,
            Self::BadSegment { .. } => 11,
            Self::Overlapping { .. } => 12,
            Self::TooLarge { .. } => 13,
            Self::WriteAndExecute { .. } => 14,
            Self::EntryOutside(_) => 15,
        }
    }
}

/// Name of a machine a user is likely to have compiled for by mistake.
const fn machine_name(number: u16) -> &'static str {
    match number {
        3 => "i386",
        20 | 21 => "PowerPC",
        40 => "ARM",
        183 => "AArch64",
        243 => "RISC-V",
        _ => "another machine",
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NotElf => f.write_str(
                "not an ELF file: give a compiled program; nodes run neither scripts nor sources",
            ),
            Self::Truncated { needed, file_bytes } => write!(
                f,
                "truncated: the headers promise {needed} bytes, the file has {file_bytes}; copy or build it again"
            ),
            Self::Not64Bit => f.write_str(
                "32-bit program: nodes are x86-64 machines, compile it for 64 bits (-m64)",
            ),
            Self::WrongMachine(Some(number)) => write!(
                f,
                "program for another machine ({}, ELF number {number}): nodes are x86-64, compile it for that",
                machine_name(number)
            ),
            Self::WrongMachine(None) => f.write_str(
                "program for another machine (big-endian): nodes are x86-64, compile it for that",
            ),
            Self::NotAProgram(1) => {
                f.write_str("object file, not a program: link it (with -static)")
            }
            Self::NotAProgram(4) => f.write_str("core file, not a program"),
            Self::NotAProgram(kind) => write!(f, "ELF file of type {kind}, not a program"),
            Self::BadHeader => {
                f.write_str("damaged ELF header: it contradicts itself; build the program again")
            }
            Self::DynamicallyLinked => f.write_str(
                "dynamically linked: nodes have no shared libraries; link it with -static (gcc, g++, gfortran), or for Rust with -C target-feature=+crt-static",
            ),
            Self::HeadersTooFar { end } => write!(
                f,
                "program headers end at byte {end} of the file, beyond the first {}: link the program again without tools that move them",
                super::HEAD_BYTES
            ),
            Self::HeadersNotLoaded => {
                f.write_str("damaged program headers: no segment loads the headers themselves")
            }
            Self::NoSegments => f.write_str("no loadable segment: nothing to run"),
            Self::TooManySegments(count) => write!(
                f,
                "{count} loadable segments, at most {} are supported",
                super::SEGMENTS_MAX
            ),
            Self::BadSegment { index, what } => {
                write!(f, "bad segment {index}: {}", what.text())
            }
            Self::Overlapping { index } => write!(
                f,
                "bad segment {index}: it shares a page with the one before or lies below it (link with -z separate-code)"
            ),
            Self::TooLarge { index, bytes } => write!(
                f,
                "bad segment {index}: {bytes} bytes do not fit into the address space of a program"
            ),
            Self::WriteAndExecute { index } => write!(
                f,
                "bad segment {index}: writable and executable at once; link with -z noexecstack and without -N"
            ),
            Self::EntryOutside(entry) => write!(
                f,
                "the entry point {entry:#x} lies in no executable segment"
            ),
        }
    }
}
