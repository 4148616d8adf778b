//! What calls give back as bytes: what stat says, what statfs says, entries of a directory.

use alloc::vec::Vec;

use crate::wire::Error;
use crate::wire::field::{Reader, Writer};

/// Bytes of [`Metadata`].
pub const METADATA_LEN: usize = 100;

/// What is known of a file, with the numbers of Linux.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// Device that it is on.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
    /// Kind and permissions (`st_mode`).
    pub mode: u32,
    /// Names that it has.
    pub links: u32,
    /// Its user.
    pub user: u32,
    /// Its group.
    pub group: u32,
    /// Of a device file: which.
    pub special: u64,
    /// Length in bytes.
    pub size: u64,
    /// Best size of a transfer, in bytes.
    pub block_size: u32,
    /// Blocks of 512 bytes that it takes.
    pub blocks: u64,
    /// Last access: seconds since 1970, and nanoseconds.
    pub accessed: (i64, u32),
    /// Last change of its bytes.
    pub modified: (i64, u32),
    /// Last change of what is said here.
    pub changed: (i64, u32),
}

impl Metadata {
    /// As bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = [0; METADATA_LEN];
        let mut writer = Writer::new(&mut bytes);
        writer.u64(self.device).u64(self.inode);
        writer.u32(self.mode).u32(self.links);
        writer.u32(self.user).u32(self.group);
        writer.u64(self.special).u64(self.size);
        writer.u32(self.block_size).u32(0).u64(self.blocks);
        for (seconds, nanoseconds) in [self.accessed, self.modified, self.changed] {
            writer.i64(seconds).u32(nanoseconds);
        }
        debug_assert_eq!(writer.written(), METADATA_LEN);
        bytes.to_vec()
    }

    /// From the first bytes of an output.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(bytes.get(..METADATA_LEN).ok_or(Error::Truncated)?);
        let (device, inode) = (reader.u64()?, reader.u64()?);
        let (mode, links) = (reader.u32()?, reader.u32()?);
        let (user, group) = (reader.u32()?, reader.u32()?);
        let (special, size) = (reader.u64()?, reader.u64()?);
        let block_size = reader.u32()?;
        reader.u32()?;
        let blocks = reader.u64()?;
        let mut time = || Ok((reader.i64()?, reader.u32()?));
        Ok(Self {
            device,
            inode,
            mode,
            links,
            user,
            group,
            special,
            size,
            block_size,
            blocks,
            accessed: time()?,
            modified: time()?,
            changed: time()?,
        })
    }
}

/// What is known of a file system (statfs).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileSystem {
    /// Its kind, Linux's magic number.
    pub kind: u64,
    /// Bytes of a block.
    pub block_size: u64,
    /// Blocks in all, free, and free for users.
    pub blocks: [u64; 3],
    /// Files in all, and free.
    pub files: [u64; 2],
    /// Longest name.
    pub name_max: u64,
    /// Bytes of a fragment.
    pub fragment_size: u64,
    /// Flags (`ST_RDONLY` and the like).
    pub flags: u64,
}

impl FileSystem {
    /// As bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let [blocks, free, available] = self.blocks;
        let words = [
            self.kind,
            self.block_size,
            blocks,
            free,
            available,
            self.files[0],
            self.files[1],
            self.name_max,
            self.fragment_size,
            self.flags,
        ];
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// From an output.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(bytes);
        let mut word = || reader.u64();
        Ok(Self {
            kind: word()?,
            block_size: word()?,
            blocks: [word()?, word()?, word()?],
            files: [word()?, word()?],
            name_max: word()?,
            fragment_size: word()?,
            flags: word()?,
        })
    }
}

/// An entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Number of the file.
    pub inode: u64,
    /// Position of the entry behind it.
    pub next: u64,
    /// Its kind (`DT_REG` and the like).
    pub kind: u8,
    /// Its name, 1 to 255 bytes.
    pub name: &'a [u8],
}

/// Bytes of an entry before its name.
const ENTRY_LEN: usize = 18;

impl<'a> Entry<'a> {
    /// Appends it to an output of at most `room` bytes; false when it does not fit.
    pub fn append(&self, room: usize, output: &mut Vec<u8>) -> bool {
        let fits = output.len() + ENTRY_LEN + self.name.len() <= room;
        if fits {
            output.extend_from_slice(&self.inode.to_le_bytes());
            output.extend_from_slice(&self.next.to_le_bytes());
            output.extend_from_slice(&[self.kind, self.name.len() as u8]);
            output.extend_from_slice(self.name);
        }
        fits
    }

    /// The first entry of an output, and what follows it; `None` at its end.
    pub fn parse(bytes: &'a [u8]) -> Result<Option<(Self, &'a [u8])>, Error> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let mut reader = Reader::new(bytes);
        let (inode, next) = (reader.u64()?, reader.u64()?);
        let kind = reader.u8()?;
        let length = reader.u8()?;
        let name = reader.bytes(length.into())?;
        if name.is_empty() || name.contains(&0) || name.contains(&b'/') {
            return Err(Error::BadValue);
        }
        let entry = Self {
            inode,
            next,
            kind,
            name,
        };
        Ok(Some((entry, reader.rest())))
    }
}
