//! The launch block: rank, size, arguments and environment of one rank, read by its node as
//! [`crate::page::Object::LaunchBlock`].
//!
//! Little-endian:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | magic `HRLB` |
//! | 4 | 2 | version, 1 |
//! | 6 | 2 | zero |
//! | 8 | 4 | rank |
//! | 12 | 4 | size of the job in ranks |
//! | 16 | 4 | number of arguments |
//! | 20 | 4 | number of environment entries |
//! | 24 | 4 | bytes of strings |
//! | 28 | n | the strings, arguments first, each ended by a zero byte |
//!
//! Strings are bytes, not text: Linux puts no encoding on arguments.

use alloc::vec::Vec;

use crate::ids::Rank;
use crate::wire::Error;
use crate::wire::field::{Reader, Writer};

/// Largest launch block in bytes: what a node copies to the top of a program's stack.
pub const MAX: usize = 64 * 1024;
/// Most arguments, and most environment entries.
pub const MAX_STRINGS: usize = 4096;
const MAGIC: [u8; 4] = *b"HRLB";
const VERSION: u16 = 1;
const FIXED_LEN: usize = 28;

/// Why a launch block could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmitError {
    /// It would be larger than [`MAX`] bytes or have more than [`MAX_STRINGS`] of a kind.
    TooLarge,
    /// A string contains a zero byte.
    ZeroByte,
}

/// A parsed launch block. Strings are without their ending zero byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchBlock<'a> {
    /// This rank.
    pub rank: Rank,
    /// Ranks in the job.
    pub size: u32,
    /// Arguments, the program's name first.
    pub argv: Vec<&'a [u8]>,
    /// Environment entries `NAME=VALUE`.
    pub envp: Vec<&'a [u8]>,
}

/// Writes a launch block.
pub fn emit<S: AsRef<[u8]>>(
    rank: Rank,
    size: u32,
    argv: &[S],
    envp: &[S],
) -> Result<Vec<u8>, EmitError> {
    if argv.len() > MAX_STRINGS || envp.len() > MAX_STRINGS {
        return Err(EmitError::TooLarge);
    }
    let strings = || argv.iter().chain(envp).map(|string| string.as_ref());
    if strings().any(|string| string.contains(&0)) {
        return Err(EmitError::ZeroByte);
    }
    let string_bytes = strings().map(|string| string.len().saturating_add(1));
    let string_bytes = string_bytes.fold(0usize, usize::saturating_add);
    if string_bytes > MAX - FIXED_LEN {
        return Err(EmitError::TooLarge);
    }
    let mut bytes = alloc::vec![0; FIXED_LEN + string_bytes];
    let mut writer = Writer::new(&mut bytes);
    writer.bytes(&MAGIC).u16(VERSION).u16(0);
    writer.u32(rank.0).u32(size);
    writer.u32(argv.len() as u32).u32(envp.len() as u32);
    writer.u32(string_bytes as u32);
    for string in strings() {
        writer.bytes(string).u8(0);
    }
    Ok(bytes)
}

/// Reads a launch block.
pub fn parse(bytes: &[u8]) -> Result<LaunchBlock<'_>, Error> {
    let mut reader = Reader::new(bytes);
    if reader.array::<4>()? != MAGIC {
        return Err(Error::BadMagic);
    }
    let version = reader.u16()?;
    if version != VERSION {
        return Err(Error::BadVersion(version.min(255) as u8));
    }
    if reader.u16()? != 0 {
        return Err(Error::BadValue);
    }
    let rank = Rank(reader.u32()?);
    let size = reader.u32()?;
    let argc = reader.u32()? as usize;
    let envc = reader.u32()? as usize;
    let string_bytes = reader.u32()? as usize;
    if argc > MAX_STRINGS || envc > MAX_STRINGS || rank.0 >= size || bytes.len() > MAX {
        return Err(Error::BadValue);
    }
    let mut strings = reader.bytes(string_bytes)?;
    reader.finish()?;
    let argv = take_strings(&mut strings, argc)?;
    let envp = take_strings(&mut strings, envc)?;
    if !strings.is_empty() {
        return Err(Error::TrailingBytes);
    }
    Ok(LaunchBlock {
        rank,
        size,
        argv,
        envp,
    })
}

fn take_strings<'a>(strings: &mut &'a [u8], count: usize) -> Result<Vec<&'a [u8]>, Error> {
    let mut taken = Vec::with_capacity(count);
    for _ in 0..count {
        let end = strings
            .iter()
            .position(|byte| *byte == 0)
            .ok_or(Error::Truncated)?;
        taken.push(&strings[..end]);
        *strings = &strings[end + 1..];
    }
    Ok(taken)
}
