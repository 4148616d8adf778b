//! What stat, statx and getdents64 say about places and streams, as the bytes of Linux's
//! structures.
//!
//! An inode number is made of the file's hash, so that it is the same on every node and in every
//! run. A file known by its contents has no age: all times are 0.

use super::channels::Side;
use super::{Files, Opened, Place};
use hearth_abi::linux::mode;

/// Bytes of `struct stat`.
pub const STAT_BYTES: usize = 144;
/// Bytes of `struct statx`.
pub const STATX_BYTES: usize = 256;
/// Preferred size of a transfer: a page. C libraries read as much after every seek, so that more
/// would cost a program that jumps about in its file.
const BLOCK: u64 = 4096;
/// Number of the device that files are on; streams are on device 0.
const FILES_DEVICE: u64 = 1;
const ROOT_INODE: u64 = 1;
const WITH_INODE: u64 = 2;
/// Of the first file of the node; below all that a hash makes.
const NODE_INODE: u64 = 16;
/// What statx knows: all of its first fields.
const STATX_BASIC: u32 = 0x7ff;
/// `d_type` of getdents64.
const TYPE_DIRECTORY: u8 = 4;
const TYPE_REGULAR: u8 = 8;
/// Bytes of a directory entry before its name.
const ENTRY_HEAD: usize = 19;

/// What is known of something open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Device number.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Type and rights.
    pub mode: u32,
    /// Names it has.
    pub links: u32,
    /// Length in bytes.
    pub bytes: u64,
    /// Preferred size of transfers.
    pub block: u64,
}

impl Files {
    /// What is known of something open.
    pub fn metadata(&self, opened: Opened) -> Metadata {
        match opened {
            // A pipe that its owner may use, so that C libraries buffer fully.
            Opened::Stream(number) => Metadata {
                device: 0,
                inode: u64::from(number) + 1,
                mode: mode::PIPE | 0o600,
                links: 1,
                bytes: 0,
                block: BLOCK,
            },
            Opened::Channel(id, side) => Metadata {
                device: 0,
                inode: id.0 + 1,
                mode: match side {
                    Side::End(_) => mode::PIPE | 0o600,
                    // As on Linux it is of no type.
                    Side::Whole => 0o600,
                },
                links: 1,
                bytes: 0,
                block: BLOCK,
            },
            Opened::Place(place) => Metadata {
                device: FILES_DEVICE,
                inode: self.inode(place),
                mode: match place {
                    Place::Root | Place::With => mode::DIRECTORY | 0o555,
                    Place::File(_) => mode::REGULAR | 0o444,
                    Place::Node(file) if file.is_device() => mode::CHARACTER | 0o666,
                    Place::Node(_) => mode::REGULAR | 0o444,
                },
                links: match place {
                    Place::Root => 3,
                    Place::With => 2,
                    Place::File(_) | Place::Node(_) => 1,
                },
                bytes: match place {
                    // What a file of the node holds is made as it is read.
                    Place::Root | Place::With | Place::Node(_) => 0,
                    Place::File(number) => self.file(number).bytes,
                },
                block: BLOCK,
            },
        }
    }

    fn inode(&self, place: Place) -> u64 {
        match place {
            Place::Root => ROOT_INODE,
            Place::With => WITH_INODE,
            Place::Node(file) => NODE_INODE + file as u64,
            Place::File(number) => {
                let [a, b, c, d, e, f, ..] = self.file(number).object.0;
                // Behind those of the directories, and never negative.
                u64::from_le_bytes([a, b, c, d, e, f, 1, 0])
            }
        }
    }

    /// The directory's entry with a number: name, place. `None` behind the last.
    fn entry(&self, directory: Place, number: u64) -> Option<(&[u8], Place)> {
        let parent = Place::Root;
        match (directory, number) {
            (_, 0) => Some((b".", directory)),
            (_, 1) => Some((b"..", parent)),
            (Place::Root, 2) => Some((b"with", Place::With)),
            (Place::With, _) => {
                let number = u16::try_from(number - 2).ok()?;
                let file = self.list.get(usize::from(number))?;
                Some((file.name.as_bytes(), Place::File(number)))
            }
            _ => None,
        }
    }

    /// Writes entries of a directory from number `first` on as getdents64 wants them. Returns the
    /// bytes written and the number to go on with; no byte when there is no entry, or no room for
    /// one (then the number is `first`, and there is one).
    pub fn entries(&self, directory: Place, first: u64, out: &mut [u8]) -> (usize, u64) {
        let (mut written, mut number) = (0, first);
        while let Some((name, place)) = self.entry(directory, number) {
            let length = (ENTRY_HEAD + name.len() + 1).next_multiple_of(8);
            let Some(entry) = out.get_mut(written..written + length) else {
                break;
            };
            number += 1;
            entry.fill(0);
            entry[..8].copy_from_slice(&self.inode(place).to_le_bytes());
            entry[8..16].copy_from_slice(&number.to_le_bytes());
            entry[16..18].copy_from_slice(&(length as u16).to_le_bytes());
            entry[18] = match place.is_directory() {
                true => TYPE_DIRECTORY,
                false => TYPE_REGULAR,
            };
            entry[ENTRY_HEAD..ENTRY_HEAD + name.len()].copy_from_slice(name);
            written += length;
        }
        (written, number)
    }

    /// Whether a directory has an entry with this number.
    pub fn has_entry(&self, directory: Place, number: u64) -> bool {
        self.entry(directory, number).is_some()
    }
}

impl Metadata {
    /// `struct stat`.
    pub fn stat(&self) -> [u8; STAT_BYTES] {
        let mut out = [0; STAT_BYTES];
        let words = [
            (0, self.device),
            (8, self.inode),
            (16, u64::from(self.links)),
            (48, self.bytes),
            (56, self.block),
            (64, self.sectors()),
        ];
        for (at, word) in words {
            out[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        out[24..28].copy_from_slice(&self.mode.to_le_bytes());
        out
    }

    /// `struct statx`.
    pub fn statx(&self) -> [u8; STATX_BYTES] {
        let mut out = [0; STATX_BYTES];
        let halves = [
            (0, STATX_BASIC),
            (4, self.block as u32),
            (16, self.links),
            (28, self.mode),
            // Major number 0, minor number the device.
            (140, self.device as u32),
        ];
        for (at, half) in halves {
            out[at..at + 4].copy_from_slice(&half.to_le_bytes());
        }
        for (at, word) in [(32, self.inode), (40, self.bytes), (48, self.sectors())] {
            out[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        out
    }

    /// Its size in units of 512 bytes.
    const fn sectors(&self) -> u64 {
        self.bytes.div_ceil(512)
    }
}
