//! Calls with a path, and reads of files: what `kernel_core::files` decides, carried out.
//!
//! Everything is answered on the node, from its own memory: no call here waits for the network.

use alloc::vec::Vec;

use hearth_abi::errno::Errno;
use hearth_abi::linux::{at, open};
use kernel_core::addr::PAGE_SIZE;
use kernel_core::files::{Files, NodeFile, Opened, PATH_MAX, PROGRAM_LINK, Place};
use kernel_core::program::UserSlice;

use super::Args;
use super::stream::{TRANSFER_MAX, VECTOR_MAX};
use crate::process::current::Current;
use crate::process::ending::Stop;

/// Pages copied between two looks at the network: about a millisecond's worth.
const LOOK_PAGES: u64 = 256;
/// Bytes of directory entries that one getdents64 gives at most.
const ENTRIES_MAX: u64 = 4096;
/// Largest piece of a path that is read at once: most are shorter.
const PATH_PIECE: u64 = 256;
/// Flags of the stat calls that change nothing here: there are no links and no mounts.
const STAT_IGNORED: u64 = at::SYMLINK_NOFOLLOW | at::NO_AUTOMOUNT;

/// What a descriptor is to a read.
pub(super) enum Source {
    /// Standard input.
    Stream(u32),
    /// A file.
    File(u16),
    /// A file of the node.
    Node(NodeFile),
}

impl Current<'_> {
    /// What can be read by a descriptor.
    pub(super) fn source(&self, fd: u64) -> Result<Source, Errno> {
        let description = self.process.files.descriptors.get(fd)?;
        match description.opened {
            Opened::Stream(0) => Ok(Source::Stream(0)),
            Opened::Stream(_) => Err(Errno::EBADF),
            // Read as what they are.
            Opened::Channel(..) => Err(Errno::ESPIPE),
            Opened::Place(_) if description.is_path() => Err(Errno::EBADF),
            Opened::Place(Place::File(number)) => Ok(Source::File(number)),
            Opened::Place(Place::Node(file)) => Ok(Source::Node(file)),
            Opened::Place(_) => Err(Errno::EISDIR),
        }
    }

    pub(super) fn open(&mut self, directory: i32, path: u64, flags: u64) -> Result<u64, Stop> {
        let path = self.read_path(path)?;
        let from = self.base(directory, &path)?;
        let place = self.process.files.names.open(from, &path, flags);
        // Answered as by a file system that is mounted read only, and told as what is missing. A
        // file that is not there and is not to be made is the program's own affair.
        let is_missing = match place {
            Err(Errno::EROFS) => flags & (open::ACCESS_MODE | open::CREATE) != 0,
            Err(Errno::ENOENT) => flags & open::CREATE != 0,
            _ => false,
        };
        if is_missing {
            self.count_missing(self.thread.context.rax);
        }
        let place = place?;
        Ok(self.process.files.descriptors.open(place, flags)?)
    }

    pub(super) fn creat(&mut self, path: u64) -> Result<u64, Stop> {
        let flags = open::CREATE | open::WRITE_ONLY | open::TRUNCATE;
        self.open(at::CWD, path, flags)
    }

    /// Bytes of a file from `offset` on; how many, 0 at its end.
    pub(super) fn read_file(&mut self, file: u16, offset: u64, to: UserSlice) -> Result<u64, Stop> {
        let mut page = [0; PAGE_SIZE as usize];
        let (mut done, mut pages) = (0, 0);
        while done < to.length() {
            let length = self.process.files.read(file, offset + done, &mut page);
            let to = to.after(done).first(length as u64);
            if to.length() == 0 {
                break;
            }
            match self.write_user(to, &page[..to.length() as usize]) {
                Ok(()) => done += to.length(),
                Err(Stop::Errno(_)) if done > 0 => break,
                Err(stop) => return Err(stop),
            }
            pages += 1;
            if pages % LOOK_PAGES == 0 {
                self.look_up()?;
            }
        }
        Ok(done)
    }

    /// read of a file: from where its description is.
    pub(super) fn read_on(&mut self, fd: u64, file: u16, to: UserSlice) -> Result<u64, Stop> {
        let offset = self.process.files.descriptors.get(fd)?.position;
        let done = self.read_file(file, offset, to)?;
        self.process.files.descriptors.get_mut(fd)?.position = offset + done;
        Ok(done)
    }

    pub(super) fn pread64(&mut self, args: Args) -> Result<u64, Stop> {
        let [fd, address, length, offset, ..] = args;
        let (file, offset) = self.placed(fd, offset)?;
        let to = UserSlice::new(address, length.min(TRANSFER_MAX))?;
        self.read_file(file, offset, to)
    }

    pub(super) fn preadv(&mut self, args: Args) -> Result<u64, Stop> {
        let [fd, vector, count, offset, ..] = args;
        let (file, offset) = self.placed(fd, offset)?;
        self.read_vector(file, offset, vector, count)
    }

    /// Fills buffers one after another from a file.
    pub(super) fn read_vector(
        &mut self,
        file: u16,
        offset: u64,
        vector: u64,
        count: u64,
    ) -> Result<u64, Stop> {
        if count > VECTOR_MAX {
            return Err(Errno::EINVAL.into());
        }
        let mut done = 0;
        for index in 0..count {
            let piece = self.vector_entry(vector, index).and_then(|to| {
                let to = to.first(TRANSFER_MAX - done);
                let read = self.read_file(file, offset + done, to)?;
                Ok((read, read < to.length()))
            });
            match piece {
                Ok((read, last)) => {
                    done += read;
                    if last {
                        break;
                    }
                }
                Err(Stop::Errno(_)) if done > 0 => break,
                Err(stop) => return Err(stop),
            }
        }
        Ok(done)
    }

    /// The error of a write at an offset: nothing that has offsets can be written.
    pub(super) fn pwrite(&self, fd: u64) -> Result<u64, Stop> {
        Err(match self.process.files.descriptors.get(fd)?.opened {
            Opened::Stream(_) | Opened::Channel(..) => Errno::ESPIPE.into(),
            Opened::Place(_) => Errno::EBADF.into(),
        })
    }

    pub(super) fn fstat(&mut self, fd: u64, address: u64) -> Result<u64, Stop> {
        let opened = self.process.files.descriptors.get(fd)?.opened;
        let stat = self.process.files.names.metadata(opened).stat();
        self.write_bytes(address, &stat)?;
        Ok(0)
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
        let opened = self.named(directory, path, flags)?;
        let stat = self.process.files.names.metadata(opened).stat();
        self.write_bytes(address, &stat)?;
        Ok(0)
    }

    pub(super) fn statx(&mut self, args: Args) -> Result<u64, Stop> {
        let [directory, path, flags, _mask, address, _] = args;
        if flags & !(at::EMPTY_PATH | STAT_IGNORED | at::STATX_SYNC) != 0 {
            return Err(Errno::EINVAL.into());
        }
        let opened = self.named(directory as i32, path, flags)?;
        let statx = self.process.files.names.metadata(opened).statx();
        self.write_bytes(address, &statx)?;
        Ok(0)
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
            Opened::Place(place) => Files::access(place, mode)?,
            Opened::Stream(_) | Opened::Channel(..) => {}
        }
        Ok(0)
    }

    pub(super) fn getdents64(&mut self, args: Args) -> Result<u64, Stop> {
        let [fd, address, length, ..] = args;
        let description = *self.process.files.descriptors.get(fd)?;
        let place = match description.opened {
            Opened::Place(_) if description.is_path() => return Err(Errno::EBADF.into()),
            Opened::Place(place) if place.is_directory() => place,
            _ => return Err(Errno::ENOTDIR.into()),
        };
        // The upper half of an unsigned int is not looked at.
        let length = u64::from(length as u32).min(ENTRIES_MAX);
        let mut entries = [0; ENTRIES_MAX as usize];
        let entries = &mut entries[..length as usize];
        let names = &self.process.files.names;
        let (written, next) = names.entries(place, description.position, entries);
        if written == 0 && names.has_entry(place, next) {
            return Err(Errno::EINVAL.into());
        }
        self.write_bytes(address, &entries[..written])?;
        self.process.files.descriptors.get_mut(fd)?.position = next;
        Ok(written as u64)
    }

    pub(super) fn getcwd(&mut self, args: Args) -> Result<u64, Stop> {
        let [address, length, ..] = args;
        if length < Place::WORKING_PATH.len() as u64 {
            return Err(Errno::ERANGE.into());
        }
        self.write_bytes(address, Place::WORKING_PATH)?;
        Ok(Place::WORKING_PATH.len() as u64)
    }

    /// There is one link, to the program; what else is there is none.
    pub(super) fn readlink(
        &mut self,
        directory: i32,
        [path, address, length]: [u64; 3],
    ) -> Result<u64, Stop> {
        if self.read_path(path)? != PROGRAM_LINK {
            self.named(directory, path, 0)?;
            return Err(Errno::EINVAL.into());
        }
        let length = usize::try_from(length as i32)
            .ok()
            .filter(|length| *length > 0);
        let length = length.ok_or(Errno::EINVAL)?;
        let target = self.process.files.program.clone();
        let taken = target.len().min(length);
        self.write_bytes(address, &target[..taken])?;
        Ok(taken as u64)
    }

    /// What a path, or with an empty one a descriptor, means to a call that asks about it.
    fn named(&mut self, directory: i32, path: u64, flags: u64) -> Result<Opened, Stop> {
        let path = self.read_path(path)?;
        if path.is_empty() && flags & at::EMPTY_PATH != 0 {
            return Ok(match directory {
                at::CWD => Opened::Place(Place::WORKING),
                fd => self.process.files.descriptors.get(fd as u64)?.opened,
            });
        }
        let from = self.base(directory, &path)?;
        Ok(Opened::Place(
            self.process.files.names.resolve(from, &path)?,
        ))
    }

    /// Where a path begins.
    fn base(&self, directory: i32, path: &[u8]) -> Result<Place, Errno> {
        if path.first() == Some(&b'/') {
            return Ok(Place::Root);
        }
        if directory == at::CWD {
            return Ok(Place::WORKING);
        }
        match self.process.files.descriptors.get(directory as u64)?.opened {
            Opened::Place(place) if place.is_directory() => Ok(place),
            _ => Err(Errno::ENOTDIR),
        }
    }

    /// A file to be read at an offset.
    fn placed(&self, fd: u64, offset: u64) -> Result<(u16, u64), Errno> {
        // As on Linux the offset is looked at first.
        if i64::try_from(offset).is_err() {
            return Err(Errno::EINVAL);
        }
        match (
            self.source(fd),
            self.process.files.descriptors.get(fd)?.opened,
        ) {
            (Ok(Source::File(number)), _) => Ok((number, offset)),
            (_, Opened::Stream(_)) => Err(Errno::ESPIPE),
            (Err(errno), _) => Err(errno),
            (Ok(Source::Stream(_) | Source::Node(_)), _) => Err(Errno::ESPIPE),
        }
    }

    /// A path of the program, without its zero byte.
    fn read_path(&mut self, address: u64) -> Result<Vec<u8>, Stop> {
        let mut path = Vec::new();
        while path.len() < PATH_MAX {
            let at = address
                .checked_add(path.len() as u64)
                .ok_or(Errno::EFAULT)?;
            // Not into a page that the path does not reach.
            let length = (PAGE_SIZE - at % PAGE_SIZE).min(PATH_PIECE);
            let mut piece = [0; PATH_PIECE as usize];
            let piece = &mut piece[..length as usize];
            self.read_user(UserSlice::new(at, length)?, piece)?;
            match piece.iter().position(|&byte| byte == 0) {
                Some(end) => {
                    path.extend_from_slice(&piece[..end]);
                    return Ok(path);
                }
                None => path.extend_from_slice(piece),
            }
        }
        Err(Errno::ENAMETOOLONG.into())
    }
}
