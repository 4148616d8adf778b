//! What a program finds on its stack when it starts: arguments, environment, auxiliary vector.
//!
//! Layout of the System V ABI for x86-64, 3.4.1, from the stack pointer up: argc, argv, 0, envp,
//! 0, auxiliary vector, then the bytes they point to. rdx must be 0 at entry: there is no
//! function to register with atexit.
//!
//! Invariant: the stack pointer is a multiple of 16 and everything lies below the given top.

use alloc::vec::Vec;

use crate::addr::PAGE_SIZE;
use crate::loader::Image;
use hearth_abi::linux::auxv;
use hearth_abi::resources::TICKS_PER_SECOND;

/// Bytes that arguments, environment and vectors may take: twice the largest launch block, since
/// each string also needs a pointer.
pub const INITIAL_STACK_MAX: usize = 128 * 1024;

/// What goes on the stack.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// Arguments, the program's name first; no byte 0 inside.
    pub argv: &'a [&'a [u8]],
    /// Environment as `NAME=VALUE`; no byte 0 inside.
    pub envp: &'a [&'a [u8]],
    /// Random bytes for AT_RANDOM (the C library's stack protector).
    pub random: [u8; 16],
    /// AT_HWCAP: CPUID.1:EDX.
    pub hwcap: u64,
    /// User and group that the program is of.
    pub user: [u32; 2],
}

/// The stack at entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitialStack {
    /// Stack pointer at entry.
    pub pointer: u64,
    /// Bytes from `pointer` to the top.
    pub bytes: Vec<u8>,
}

/// The arguments and the environment need more than [`INITIAL_STACK_MAX`], or one holds a byte 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackError {
    /// More bytes than allowed.
    TooLarge(usize),
    /// A string with a byte 0 in it.
    ZeroByte,
    /// There is no memory for so many bytes.
    NoMemory(usize),
}

impl InitialStack {
    /// Builds the stack that ends at `top` (a multiple of 16).
    pub fn build(image: &Image, start: &Start<'_>, top: u64) -> Result<Self, StackError> {
        assert!(top.is_multiple_of(16));
        let name: &[u8] = start.argv.first().copied().unwrap_or(b"");
        let all = || start.argv.iter().chain(start.envp).copied().chain([name]);
        if all().any(|text| text.contains(&0)) {
            return Err(StackError::ZeroByte);
        }
        // Strings from the top down: 8 bytes of zero end the stack, as on Linux.
        let text_bytes: usize = all().map(|text| text.len() + 1).sum();
        let tail = text_bytes + start.random.len() + 8;
        let words = 1 + start.argv.len() + 1 + start.envp.len() + 1 + 2 * AUX_ENTRIES;
        let total = (words * 8 + tail).next_multiple_of(16);
        if total > INITIAL_STACK_MAX {
            return Err(StackError::TooLarge(total));
        }
        let pointer = top - total as u64;
        let random_at = top - tail as u64;
        let mut text_at = random_at + start.random.len() as u64;
        let mut place = |text: &[u8]| {
            let at = text_at;
            text_at += text.len() as u64 + 1;
            at
        };
        let mut bytes = Vec::new();
        let room = bytes.try_reserve_exact(total);
        room.map_err(|_| StackError::NoMemory(total))?;
        bytes.resize(total, 0);
        let (table, text) = bytes.split_at_mut(total - tail);
        let mut slots = table.as_chunks_mut().0.iter_mut();
        let mut word = |value: u64| {
            *slots.next().expect("every word was counted") = value.to_le_bytes();
        };
        word(start.argv.len() as u64);
        for text in start.argv {
            word(place(text));
        }
        word(0);
        for text in start.envp {
            word(place(text));
        }
        word(0);
        let name_at = place(name);
        for (key, value) in aux(image, start, random_at, name_at) {
            word(key);
            word(value);
        }
        let (random, mut text) = text.split_at_mut(start.random.len());
        random.copy_from_slice(&start.random);
        for string in all() {
            let (place, rest) = text.split_at_mut(string.len() + 1);
            place[..string.len()].copy_from_slice(string);
            text = rest;
        }
        Ok(Self { pointer, bytes })
    }
}

const AUX_ENTRIES: usize = 17;

/// The auxiliary vector. Programs measured so far need PHDR, PHENT, PHNUM, PAGESZ and RANDOM.
fn aux(
    image: &Image,
    start: &Start<'_>,
    random_at: u64,
    name_at: u64,
) -> [(u64, u64); AUX_ENTRIES] {
    let [user, group] = start.user.map(u64::from);
    let (headers, count) = match image.headers {
        Some(headers) => (headers, u64::from(image.header_count)),
        None => (0, 0),
    };
    [
        (auxv::PHDR, headers),
        (auxv::PHENT, Image::HEADER_BYTES),
        (auxv::PHNUM, count),
        (auxv::PAGESZ, PAGE_SIZE),
        (auxv::BASE, 0),
        (auxv::FLAGS, 0),
        (auxv::ENTRY, image.entry),
        (auxv::UID, user),
        (auxv::EUID, user),
        (auxv::GID, group),
        (auxv::EGID, group),
        (auxv::SECURE, 0),
        (auxv::CLKTCK, TICKS_PER_SECOND),
        (auxv::HWCAP, start.hwcap),
        (auxv::RANDOM, random_at),
        (auxv::EXECFN, name_at),
        (auxv::NULL, 0),
    ]
}

#[cfg(test)]
mod tests;
