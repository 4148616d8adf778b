//! The launch block: rank, size, arguments, environment and files of one rank, read by its node as
//! [`crate::page::Object::LaunchBlock`].
//!
//! Little-endian:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | magic `HRLB` |
//! | 4 | 2 | version, 2 |
//! | 6 | 2 | number of files |
//! | 8 | 4 | rank |
//! | 12 | 4 | size of the job in ranks |
//! | 16 | 4 | number of arguments |
//! | 20 | 4 | number of environment entries |
//! | 24 | 4 | bytes of strings |
//! | 28 | n | the strings, arguments first, each ended by a zero byte |
//! | 28 + n | | the files, each: 32 bytes identity, 8 bytes length in bytes, 1 byte length of its name, the name |
//!
//! Strings are bytes, not text: Linux puts no encoding on arguments. The files are those that the
//! program finds under `/with`, and no other; their contents are in the node's memory already,
//! known by their identity.
//!
//! Invariant: names satisfy [`is_name`] and no two are the same.

use alloc::vec::Vec;

use crate::ids::Rank;
use crate::wire::Error;
use crate::wire::field::{Reader, Writer};

/// Largest launch block in bytes: what a node copies to the top of a program's stack.
pub const MAX: usize = 64 * 1024;
/// Most arguments, and most environment entries.
pub const MAX_STRINGS: usize = 4096;
/// Most files of a job: what a node keeps in its memory at most.
pub const FILES_MAX: usize = 64;
/// Longest name of a file in bytes.
pub const NAME_MAX: usize = 128;
/// The environment's variable, with its `=`, for each directory of the job's I/O service that lies
/// in `/tmp`, which is the node's otherwise. It may be there several times.
pub const TMP_EXPORT: &[u8] = b"HEARTH_TMP_EXPORT=";
const MAGIC: [u8; 4] = *b"HRLB";
const VERSION: u16 = 2;
const FIXED_LEN: usize = 28;
/// Bytes of a file beside its name.
const FILE_LEN: usize = 32 + 8 + 1;

/// Why a launch block could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmitError {
    /// It would be larger than [`MAX`] bytes or have more than [`MAX_STRINGS`] of a kind.
    TooLarge,
    /// A string contains a zero byte.
    ZeroByte,
    /// More than [`FILES_MAX`] files.
    TooManyFiles,
    /// A file's name is none ([`is_name`]), or another file has it too.
    BadName,
}

/// A file that the program finds as `/with/NAME`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File<'a> {
    /// Its name.
    pub name: &'a str,
    /// BLAKE3 of its contents.
    pub object: [u8; 32],
    /// Its length in bytes.
    pub bytes: u64,
}

/// Whether this can be a file's name: 1 to [`NAME_MAX`] bytes, no `/` and no zero byte, and neither
/// `.` nor `..`.
pub fn is_name(name: &str) -> bool {
    let length = (1..=NAME_MAX).contains(&name.len());
    length && !name.contains(['/', '\0']) && name != "." && name != ".."
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
    /// Files under `/with`.
    pub files: Vec<File<'a>>,
}

/// Writes a launch block.
pub fn emit<S: AsRef<[u8]>>(
    rank: Rank,
    size: u32,
    argv: &[S],
    envp: &[S],
    files: &[File<'_>],
) -> Result<Vec<u8>, EmitError> {
    if argv.len() > MAX_STRINGS || envp.len() > MAX_STRINGS {
        return Err(EmitError::TooLarge);
    }
    if files.len() > FILES_MAX {
        return Err(EmitError::TooManyFiles);
    }
    if !are_names(files) {
        return Err(EmitError::BadName);
    }
    let strings = || argv.iter().chain(envp).map(|string| string.as_ref());
    if strings().any(|string| string.contains(&0)) {
        return Err(EmitError::ZeroByte);
    }
    let string_bytes = strings().map(|string| string.len().saturating_add(1));
    let string_bytes = string_bytes.fold(0usize, usize::saturating_add);
    let file_bytes: usize = files.iter().map(|file| FILE_LEN + file.name.len()).sum();
    if string_bytes > MAX - FIXED_LEN - file_bytes {
        return Err(EmitError::TooLarge);
    }
    let mut bytes = alloc::vec![0; FIXED_LEN + string_bytes + file_bytes];
    let mut writer = Writer::new(&mut bytes);
    writer.bytes(&MAGIC).u16(VERSION).u16(files.len() as u16);
    writer.u32(rank.0).u32(size);
    writer.u32(argv.len() as u32).u32(envp.len() as u32);
    writer.u32(string_bytes as u32);
    for string in strings() {
        writer.bytes(string).u8(0);
    }
    for file in files {
        writer.bytes(&file.object).u64(file.bytes);
        writer.u8(file.name.len() as u8).bytes(file.name.as_bytes());
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
    let file_count = usize::from(reader.u16()?);
    let rank = Rank(reader.u32()?);
    let size = reader.u32()?;
    let argc = reader.u32()? as usize;
    let envc = reader.u32()? as usize;
    let string_bytes = reader.u32()? as usize;
    let too_many = argc > MAX_STRINGS || envc > MAX_STRINGS || file_count > FILES_MAX;
    if too_many || rank.0 >= size || bytes.len() > MAX {
        return Err(Error::BadValue);
    }
    let mut strings = reader.bytes(string_bytes)?;
    let argv = take_strings(&mut strings, argc)?;
    let envp = take_strings(&mut strings, envc)?;
    if !strings.is_empty() {
        return Err(Error::TrailingBytes);
    }
    let files = take_files(&mut reader, file_count)?;
    reader.finish()?;
    Ok(LaunchBlock {
        rank,
        size,
        argv,
        envp,
        files,
    })
}

fn take_files<'a>(reader: &mut Reader<'a>, count: usize) -> Result<Vec<File<'a>>, Error> {
    let mut files = Vec::with_capacity(count);
    for _ in 0..count {
        let object = reader.array()?;
        let bytes = reader.u64()?;
        let length = usize::from(reader.u8()?);
        let name = core::str::from_utf8(reader.bytes(length)?).map_err(|_| Error::BadValue)?;
        files.push(File {
            name,
            object,
            bytes,
        });
    }
    match are_names(&files) {
        true => Ok(files),
        false => Err(Error::BadValue),
    }
}

/// Whether all files have names, each its own.
fn are_names(files: &[File<'_>]) -> bool {
    let mut earlier = files.iter().enumerate();
    earlier.all(|(index, file)| {
        let twice = files[..index].iter().any(|other| other.name == file.name);
        is_name(file.name) && !twice
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
