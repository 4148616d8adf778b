//! What stat, statx and getdents64 say about places and streams, as the bytes of Linux's
//! structures.
//!
//! An inode number is made of the file's hash, so that it is the same on every node and in every
//! run. A file known by its contents has no age: all times are 0.

use super::channels::Side;
use super::{Files, Opened, Place, temporary};
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
/// Unit of what a file takes, in bytes.
const SECTOR: u64 = 512;
const ROOT_INODE: u64 = 1;
const WITH_INODE: u64 = 2;
/// Of the first file of the node; below all that a hash makes.
const NODE_INODE: u64 = 16;
/// Of the directory of shared memory objects, which follow.
const SHARED_INODE: u64 = 256;
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
    /// Its user and its group.
    pub owner: [u32; 2],
    /// Of a device file: which.
    pub special: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Preferred size of transfers.
    pub block: u64,
    /// What it takes, in units of 512 bytes.
    pub sectors: u64,
    /// Of its last access, of the last change of its bytes and of the last change of what is said
    /// here: seconds since 1970, and nanoseconds.
    pub times: [(i64, u32); 3],
}

/// An entry of a directory, as getdents64 gives it (`struct linux_dirent64`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryEntry<'a> {
    /// Inode number.
    pub inode: u64,
    /// Position of the entry behind it.
    pub next: u64,
    /// Its kind (`DT_REG` and the like).
    pub kind: u8,
    /// Its name.
    pub name: &'a [u8],
}

impl DirectoryEntry<'_> {
    /// Bytes that it takes.
    pub const fn length(&self) -> usize {
        (ENTRY_HEAD + self.name.len() + 1).next_multiple_of(8)
    }

    /// Writes it to the front of `out`; returns its length, or `None` where there is no room.
    pub fn write(&self, out: &mut [u8]) -> Option<usize> {
        let length = self.length();
        let entry = out.get_mut(..length)?;
        entry.fill(0);
        entry[..8].copy_from_slice(&self.inode.to_le_bytes());
        entry[8..16].copy_from_slice(&self.next.to_le_bytes());
        entry[16..18].copy_from_slice(&(length as u16).to_le_bytes());
        entry[18] = self.kind;
        entry[ENTRY_HEAD..ENTRY_HEAD + self.name.len()].copy_from_slice(self.name);
        Some(length)
    }
}

impl Metadata {
    /// Of something that has one name, no owner, no age and no bytes.
    const fn plain(device: u64, inode: u64, mode: u32) -> Self {
        Self {
            device,
            inode,
            mode,
            links: 1,
            owner: [0; 2],
            special: 0,
            bytes: 0,
            block: BLOCK,
            sectors: 0,
            times: [(0, 0); 3],
        }
    }
}

impl Files {
    /// What is known of something open; of what an I/O service has open, or `/tmp`, only its kind.
    pub fn metadata(&self, opened: Opened) -> Metadata {
        match opened {
            // A pipe that its owner may use, so that C libraries buffer fully.
            Opened::Stream(number) => Metadata::plain(0, u64::from(number) + 1, mode::PIPE | 0o600),
            Opened::Channel(id, side) => {
                let mode = match side {
                    Side::End(_) => mode::PIPE | 0o600,
                    // As on Linux it is of no type.
                    Side::Whole => 0o600,
                };
                Metadata::plain(0, id.0 + 1, mode)
            }
            Opened::Temporary(_, kind) => Metadata::plain(0, 0, kind.bits()),
            Opened::Shipped(shipped) => {
                let mode = match shipped.is_directory {
                    true => mode::DIRECTORY,
                    false => mode::REGULAR,
                };
                Metadata::plain(0, u64::from(shipped.handle), mode)
            }
            Opened::Place(place) => {
                let mode = match place {
                    Place::Root | Place::With => mode::DIRECTORY | 0o555,
                    Place::File(_) => mode::REGULAR | 0o444,
                    // As on Linux: everybody may make files and remove their own.
                    Place::SharedDirectory => mode::DIRECTORY | 0o1777,
                    Place::SharedMemory(number) => mode::REGULAR | self.shared.object(number).mode,
                    Place::Node(file) if file.is_device() => mode::CHARACTER | 0o666,
                    Place::Node(_) => mode::REGULAR | 0o444,
                };
                let bytes = match place {
                    // What a file of the node holds is made as it is read.
                    Place::Root | Place::With | Place::SharedDirectory | Place::Node(_) => 0,
                    Place::SharedMemory(number) => self.shared.object(number).bytes,
                    Place::File(number) => self.file(number).bytes,
                };
                Metadata {
                    links: match place {
                        Place::Root => 4,
                        Place::With | Place::SharedDirectory => 2,
                        Place::SharedMemory(number) => self.shared.object(number).links,
                        Place::File(_) | Place::Node(_) => 1,
                    },
                    bytes,
                    sectors: bytes.div_ceil(SECTOR),
                    ..Metadata::plain(FILES_DEVICE, self.inode(place), mode)
                }
            }
        }
    }

    fn inode(&self, place: Place) -> u64 {
        match place {
            Place::Root => ROOT_INODE,
            Place::With => WITH_INODE,
            Place::Node(file) => NODE_INODE + file as u64,
            Place::SharedDirectory => SHARED_INODE,
            Place::SharedMemory(number) => SHARED_INODE + 1 + u64::from(number),
            Place::File(number) => {
                let [a, b, c, d, e, f, ..] = self.file(number).object.0;
                // Behind those of the directories, and never negative.
                u64::from_le_bytes([a, b, c, d, e, f, 1, 0])
            }
        }
    }

    /// The directory's first entry from a number on: its number, name and place; no place for
    /// `/tmp`. `None` behind the last.
    fn entry(&self, directory: Place, number: u64) -> Option<(u64, &[u8], Option<Place>)> {
        let parent = Place::Root;
        match (directory, number) {
            (_, 0) => Some((0, b".", Some(directory))),
            (_, 1) => Some((1, b"..", Some(parent))),
            (Place::Root, 2) => Some((2, b"with", Some(Place::With))),
            (Place::Root, 3) => Some((3, b"tmp", None)),
            (Place::SharedDirectory, _) => {
                let (place, name, object) = self.shared.entry(number - 2)?;
                Some((place + 2, name, Some(Place::SharedMemory(object))))
            }
            (Place::With, _) => {
                let file = u16::try_from(number - 2).ok()?;
                let name = self.list.get(usize::from(file))?.name.as_bytes();
                Some((number, name, Some(Place::File(file))))
            }
            _ => None,
        }
    }

    /// Writes entries of a directory from number `first` on as getdents64 wants them. Returns the
    /// bytes written and the number to go on with; no byte when there is no entry, or no room for
    /// one (then the number is `first`, and there is one).
    pub fn entries(&self, directory: Place, first: u64, out: &mut [u8]) -> (usize, u64) {
        let (mut written, mut number) = (0, first);
        while let Some((at, name, place)) = self.entry(directory, number) {
            let entry = DirectoryEntry {
                inode: place.map_or(temporary::ROOT_NUMBER, |place| self.inode(place)),
                next: at + 1,
                kind: match place.is_none_or(Place::is_directory) {
                    true => TYPE_DIRECTORY,
                    false => TYPE_REGULAR,
                },
                name,
            };
            let Some(length) = entry.write(&mut out[written..]) else {
                break;
            };
            number = at + 1;
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
            (40, self.special),
            (48, self.bytes),
            (56, self.block),
            (64, self.sectors),
        ];
        for (at, word) in words {
            out[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        for (at, (seconds, nanoseconds)) in [72, 88, 104].into_iter().zip(self.times) {
            out[at..at + 8].copy_from_slice(&seconds.to_le_bytes());
            out[at + 8..at + 16].copy_from_slice(&u64::from(nanoseconds).to_le_bytes());
        }
        let [user, group] = self.owner;
        for (at, half) in [(24, self.mode), (28, user), (32, group)] {
            out[at..at + 4].copy_from_slice(&half.to_le_bytes());
        }
        out
    }

    /// `struct statx`.
    pub fn statx(&self) -> [u8; STATX_BYTES] {
        let mut out = [0; STATX_BYTES];
        let [user, group] = self.owner;
        let [access, modification, change] = self.times;
        let halves = [
            (0, STATX_BASIC),
            (4, self.block as u32),
            (16, self.links),
            (20, user),
            (24, group),
            (28, self.mode),
            (72, access.1),
            (104, change.1),
            (120, modification.1),
            (128, major(self.special)),
            (132, minor(self.special)),
            (136, major(self.device)),
            (140, minor(self.device)),
        ];
        for (at, half) in halves {
            out[at..at + 4].copy_from_slice(&half.to_le_bytes());
        }
        let words = [
            (32, self.inode),
            (40, self.bytes),
            (48, self.sectors),
            (64, access.0 as u64),
            (96, change.0 as u64),
            (112, modification.0 as u64),
        ];
        for (at, word) in words {
            out[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        out
    }
}

/// Major number of a device, as Linux packs them.
const fn major(device: u64) -> u32 {
    ((device >> 8) & 0xfff) as u32 | ((device >> 32) & !0xfff) as u32
}

/// Minor number of a device, as Linux packs them.
const fn minor(device: u64) -> u32 {
    (device & 0xff) as u32 | ((device >> 12) & !0xff) as u32
}
