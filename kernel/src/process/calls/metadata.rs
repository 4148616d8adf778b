//! Calls that tell what is known of a file or of its file system: the stat family, access, statfs.
//!
//! Neighbours: [`super::path`] says what a path or a descriptor means.

use alloc::vec::Vec;

use hearth_abi::errno::Errno;
use hearth_abi::linux::{access, at};
use kernel_core::addr::PAGE_SIZE;
use kernel_core::files::stat::Metadata;
use kernel_core::files::{Files, Opened, Place};
use kernel_core::program::UserSlice;
use netstack::files::{self as wire, Call, FileSystem, METADATA_LEN, Op};

use super::Args;
use super::path::{Named, is_bare};
use super::shipped::result_of;
use crate::mm::Hardware;
use crate::process::current::Current;
use crate::process::ending::Stop;

/// Flags of the stat calls that change nothing for the node's own files: there are no links and no
/// mounts.
const STAT_IGNORED: u64 = at::SYMLINK_NOFOLLOW | at::NO_AUTOMOUNT;
/// What access asks about.
const MODES: u64 = access::READ | access::WRITE | access::EXECUTE;
/// `struct statfs`, and the kind of a file system in memory.
const STATFS_BYTES: usize = 120;
const RAMFS: u64 = 0x8584_58f6;
const TMPFS: u64 = 0x0102_1994;
/// Longest name, for statfs.
const NAME_MAX: u64 = 255;

impl Current<'_> {
    pub(super) fn fstat(&mut self, fd: u64, address: u64) -> Result<u64, Stop> {
        let metadata = self.metadata_of(fd)?;
        self.write_bytes(address, &metadata.stat())?;
        Ok(0)
    }

    /// What is known of what a descriptor refers to.
    pub(super) fn metadata_of(&mut self, fd: u64) -> Result<Metadata, Stop> {
        let opened = self.process.files.descriptors.get(fd)?.opened;
        match self.shipped(fd)? {
            Some(shipped) => self.metadata(Named::Service(shipped.handle, Vec::new()), 0),
            None => match opened {
                Opened::Temporary(open, _) => {
                    let files = self.services.temporary();
                    Ok(files.metadata(files.opened(open)))
                }
                opened => Ok(self.process.files.names.metadata(opened)),
            },
        }
    }

    /// stat, lstat and newfstatat.
    pub(super) fn stat(
        &mut self,
        directory: i32,
        [path, address, flags]: [u64; 3],
    ) -> Result<u64, Stop> {
        if flags & !(at::EMPTY_PATH | STAT_IGNORED) != 0 {
            return Err(Errno::EINVAL.into());
        }
        let named = self.named(directory, path, flags)?;
        let metadata = self.metadata(named, flags)?;
        self.write_bytes(address, &metadata.stat())?;
        Ok(0)
    }

    pub(super) fn statx(&mut self, args: Args) -> Result<u64, Stop> {
        let [directory, path, flags, _mask, address, _] = args;
        if flags & !(at::EMPTY_PATH | STAT_IGNORED | at::STATX_SYNC) != 0 {
            return Err(Errno::EINVAL.into());
        }
        let named = self.named(directory as i32, path, flags)?;
        let metadata = self.metadata(named, flags & !at::STATX_SYNC)?;
        self.write_bytes(address, &metadata.statx())?;
        Ok(0)
    }

    fn metadata(&mut self, named: Named, flags: u64) -> Result<Metadata, Stop> {
        let (handle, path) = match named {
            Named::Node(opened) => return Ok(self.process.files.names.metadata(opened)),
            Named::Temporary(ino) => return Ok(self.services.temporary().metadata(ino)),
            Named::Service(handle, path) => (handle, path),
        };
        let reply = self.ship(|| {
            Call::new(Op::Stat, handle)
                .with_words([flags])
                .with_input(path.clone())
                .with_room(METADATA_LEN)
        })?;
        match result_of(&reply) {
            Ok(_) => {}
            Err(Errno::ENOENT) if is_bare(&path) => {
                let place = self.process.files.names.resolve(Place::With, &path)?;
                return Ok(self.process.files.names.metadata(Opened::Place(place)));
            }
            Err(errno) => return Err(errno.into()),
        }
        let told = wire::Metadata::parse(&reply.output).map_err(|_| Errno::EIO)?;
        Ok(Metadata {
            device: told.device,
            inode: told.inode,
            mode: told.mode,
            links: told.links,
            owner: [told.user, told.group],
            special: told.special,
            bytes: told.size,
            block: told.block_size.into(),
            sectors: told.blocks,
            times: [told.accessed, told.modified, told.changed],
        })
    }

    /// access, faccessat and faccessat2.
    pub(super) fn access(
        &mut self,
        directory: i32,
        [path, mode, flags]: [u64; 3],
    ) -> Result<u64, Stop> {
        if flags & !(at::EMPTY_PATH | at::SYMLINK_NOFOLLOW | at::EACCESS) != 0 {
            return Err(Errno::EINVAL.into());
        }
        match self.named(directory, path, flags)? {
            Named::Node(Opened::Place(place)) => Files::access(place, mode)?,
            Named::Node(_) => {}
            Named::Temporary(_) if mode & !MODES != 0 => return Err(Errno::EINVAL.into()),
            Named::Temporary(ino) => {
                let who = self.who();
                self.services.temporary().access(ino, who, mode)?;
            }
            Named::Service(handle, path) => {
                let reply = self.ship(|| {
                    Call::new(Op::Access, handle)
                        .with_words([mode, flags])
                        .with_input(path.clone())
                })?;
                match result_of(&reply) {
                    Err(Errno::ENOENT) if is_bare(&path) => {
                        let place = self.process.files.names.resolve(Place::With, &path)?;
                        Files::access(place, mode)?;
                    }
                    other => {
                        other?;
                    }
                }
            }
        }
        Ok(0)
    }

    /// statfs and fstatfs: of what a descriptor or a path refers to.
    pub(super) fn statfs(&mut self, path: u64, address: u64) -> Result<u64, Stop> {
        let named = self.named(at::CWD, path, 0)?;
        self.tell_file_system(named, address)
    }

    pub(super) fn fstatfs(&mut self, fd: u64, address: u64) -> Result<u64, Stop> {
        let named = self.named_by_descriptor(fd)?;
        self.tell_file_system(named, address)
    }

    fn tell_file_system(&mut self, named: Named, address: u64) -> Result<u64, Stop> {
        self.make_writable(UserSlice::new(address, STATFS_BYTES as u64)?)?;
        let told = match named {
            Named::Node(opened) => FileSystem {
                // C libraries look whether shared memory objects are in memory.
                kind: match opened {
                    Opened::Place(place) if place.is_shared() => TMPFS,
                    _ => RAMFS,
                },
                block_size: PAGE_SIZE,
                name_max: NAME_MAX,
                fragment_size: PAGE_SIZE,
                ..FileSystem::default()
            },
            Named::Temporary(_) => {
                let room = self.services.temporary().room(&mut Hardware::new());
                FileSystem {
                    kind: TMPFS,
                    block_size: PAGE_SIZE,
                    blocks: [room.frames, room.frames_free, room.frames_free],
                    files: [room.inodes, room.inodes_free],
                    name_max: NAME_MAX,
                    fragment_size: PAGE_SIZE,
                    ..FileSystem::default()
                }
            }
            Named::Service(handle, path) => {
                let reply = self.ship(|| {
                    Call::new(Op::StatFileSystem, handle)
                        .with_input(path)
                        .with_room(STATFS_BYTES)
                })?;
                result_of(&reply)?;
                FileSystem::parse(&reply.output).map_err(|_| Errno::EIO)?
            }
        };
        let [blocks, free, available] = told.blocks;
        let words = [
            told.kind,
            told.block_size,
            blocks,
            free,
            available,
            told.files[0],
            told.files[1],
            0,
            told.name_max,
            told.fragment_size,
            told.flags,
        ];
        let mut out = [0; STATFS_BYTES];
        for (place, word) in out.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        self.write_bytes(address, &out)?;
        Ok(0)
    }
}
