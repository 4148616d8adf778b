//! Files that QEMU was given for a test (`-fw_cfg name=opt/hearth/NAME,file=PATH`).
//!
//! Source: QEMU, docs/specs/fw_cfg.rst: a selector register, and a data register that is read byte
//! by byte; numbers in the directory are big-endian. Neighbours: the runner on the host hands over
//! what a test demands as `files=NAMES`.
//!
//! Invariant: on a machine without that device every file is missing.

use alloc::vec;
use alloc::vec::Vec;

use x86_64::instructions::port::Port;

const SELECTOR: u16 = 0x510;
const DATA: u16 = 0x511;
/// What the first item begins with, and the item that lists the files.
const SIGNATURE: (u16, [u8; 4]) = (0, *b"QEMU");
const DIRECTORY: u16 = 0x19;
/// Length of an entry of the directory, and where its name begins.
const ENTRY_BYTES: usize = 64;
const NAME_AT: usize = 8;
/// Entries that are looked at.
const ENTRIES_MAX: u32 = 256;

/// The file that was given as this, whole.
pub fn read(name: &str) -> Option<Vec<u8>> {
    select(SIGNATURE.0);
    let mut signature = [0; 4];
    next(&mut signature);
    if signature != SIGNATURE.1 {
        return None;
    }
    select(DIRECTORY);
    let mut count = [0; 4];
    next(&mut count);
    for _ in 0..u32::from_be_bytes(count).min(ENTRIES_MAX) {
        let mut entry = [0; ENTRY_BYTES];
        next(&mut entry);
        let [a, b, c, d, high, low, ..] = entry;
        let path = entry[NAME_AT..].split(|&byte| byte == 0).next()?;
        if path.strip_prefix(b"opt/hearth/") == Some(name.as_bytes()) {
            let mut bytes = vec![0; u32::from_be_bytes([a, b, c, d]) as usize];
            select(u16::from_be_bytes([high, low]));
            next(&mut bytes);
            return Some(bytes);
        }
    }
    None
}

fn select(item: u16) {
    // SAFETY: choosing what is read next changes nothing else; without the device nobody hears it.
    unsafe { Port::new(SELECTOR).write(item) };
}

/// The next bytes of what was selected.
fn next(out: &mut [u8]) {
    for byte in out {
        // SAFETY: reading goes one byte further in what was selected.
        *byte = unsafe { Port::new(DATA).read() };
    }
}
