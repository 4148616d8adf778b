//! Reads of files by their descriptors, and of directories.
//!
//! What a launch named is read from the node's own memory, which waits for nothing; what an I/O
//! service has open is read by it ([`super::shipped`]).

use alloc::vec;

use hearth_abi::errno::Errno;
use kernel_core::addr::PAGE_SIZE;
use kernel_core::files::stat::DirectoryEntry;
use kernel_core::files::temporary::{Kind, OpenId};
use kernel_core::files::{NodeFile, Opened, Place};
use kernel_core::program::UserSlice;
use netstack::files::{Call, Entry, Op};

use super::buffers::Buffers;
use super::shipped::result_of;

use super::Args;
use super::stream::{TRANSFER_MAX, VECTOR_MAX};
use crate::mm::Hardware;
use crate::process::current::Current;
use crate::process::ending::Stop;

/// Pages copied between two looks at the network: about a millisecond's worth.
pub(super) const LOOK_PAGES: u64 = 256;
/// Bytes of directory entries that one getdents64 gives at most: what C libraries ask for.
pub(super) const ENTRIES_MAX: u64 = 32 * 1024;

/// What a descriptor is to a read.
pub(super) enum Source {
    /// Standard input.
    Stream(u32),
    /// A file.
    File(Stored),
    /// A file of the node.
    Node(NodeFile),
}

/// A file whose bytes are in the node's memory.
#[derive(Clone, Copy)]
pub(super) enum Stored {
    /// One that the launch named.
    Given(u16),
    /// A shared memory object.
    Shared(u16),
    /// A file in `/tmp`.
    Temporary(OpenId),
}

impl Current<'_> {
    /// What can be read by a descriptor.
    pub(super) fn source(&self, fd: u64) -> Result<Source, Errno> {
        let description = self.process.files.descriptors.get(fd)?;
        match description.opened {
            Opened::Stream(0) => Ok(Source::Stream(0)),
            Opened::Stream(_) => Err(Errno::EBADF),
            // Read as what they are.
            Opened::Channel(..) | Opened::Shipped(_) => Err(Errno::ESPIPE),
            Opened::Place(_) if description.is_path() => Err(Errno::EBADF),
            Opened::Place(Place::File(number)) => Ok(Source::File(Stored::Given(number))),
            Opened::Place(Place::SharedMemory(_)) if !description.reads() => Err(Errno::EBADF),
            Opened::Place(Place::SharedMemory(object)) => Ok(Source::File(Stored::Shared(object))),
            Opened::Place(Place::Node(file)) => Ok(Source::Node(file)),
            Opened::Place(_) => Err(Errno::EISDIR),
            Opened::Temporary(..) if description.is_path() => Err(Errno::EBADF),
            Opened::Temporary(_, Kind::Directory | Kind::Link) => Err(Errno::EISDIR),
            Opened::Temporary(..) if !description.reads() => Err(Errno::EBADF),
            Opened::Temporary(open, _) => Ok(Source::File(Stored::Temporary(open))),
        }
    }

    /// Bytes of a file from `offset` on; how many, 0 at its end.
    pub(super) fn read_file(
        &mut self,
        file: Stored,
        offset: u64,
        to: UserSlice,
    ) -> Result<u64, Stop> {
        let mut page = [0; PAGE_SIZE as usize];
        let (mut done, mut pages) = (0, 0);
        while done < to.length() {
            let length = self.read_page(file, offset + done, &mut page);
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
                self.poll_and_check()?;
            }
        }
        if let Stored::Temporary(open) = file
            && done > 0
        {
            self.has_read_temporary(open);
        }
        Ok(done)
    }

    /// Copies bytes of a file that lie in one page of it; returns how many, none behind its end.
    fn read_page(
        &mut self,
        file: Stored,
        offset: u64,
        page: &mut [u8; PAGE_SIZE as usize],
    ) -> usize {
        let object = match file {
            Stored::Given(file) => return self.process.files.read(file, offset, page),
            Stored::Temporary(open) => return self.read_temporary(open, offset, page),
            Stored::Shared(object) => object,
        };
        let bytes = self.process.files.names.shared.object(object).bytes;
        let inside = PAGE_SIZE - offset % PAGE_SIZE;
        let length = bytes.saturating_sub(offset).min(inside) as usize;
        let memory = self.process.memory();
        memory.read_shared_memory(&mut Hardware::new(), object, offset, &mut page[..length]);
        length
    }

    /// read of a file: from where its description is.
    pub(super) fn read_on(&mut self, fd: u64, file: Stored, to: UserSlice) -> Result<u64, Stop> {
        self.await_position(fd)?;
        let offset = self.process.files.descriptors.get(fd)?.position;
        let done = self.read_file(file, offset, to)?;
        self.process.files.descriptors.get_mut(fd)?.position = offset + done;
        Ok(done)
    }

    pub(super) fn pread64(&mut self, args: Args) -> Result<u64, Stop> {
        let [fd, address, length, offset, ..] = args;
        let offset = checked(offset)?;
        if let Some(shipped) = self.shipped(fd)? {
            let to = Buffers::one(address, length)?;
            return self.read_shipped(fd, shipped, Some(offset), to);
        }
        let file = self.placed(fd)?;
        let to = UserSlice::new(address, length.min(TRANSFER_MAX))?;
        self.read_file(file, offset, to)
    }

    /// preadv, and preadv2 without flags.
    pub(super) fn preadv(&mut self, args: Args) -> Result<u64, Stop> {
        let [fd, vector, count, offset, ..] = args;
        let offset = checked(offset)?;
        if let Some(shipped) = self.shipped(fd)? {
            let to = Buffers::vector(vector, count)?;
            return self.read_shipped(fd, shipped, Some(offset), to);
        }
        let file = self.placed(fd)?;
        self.read_vector(file, offset, vector, count)
    }

    /// preadv2 and pwritev2: an offset of -1 is the description's; `flags` are hints but for
    /// those that an error answers.
    pub(super) fn vector_at(
        &mut self,
        args: Args,
        plain: impl FnOnce(&mut Self, Args) -> Result<u64, Stop>,
        at: impl FnOnce(&mut Self, Args) -> Result<u64, Stop>,
    ) -> Result<u64, Stop> {
        // The flags are an int, of which libraries leave the upper half as it is.
        match (args[5] as u32, args[3]) {
            (0, u64::MAX) => plain(self, args),
            (0, _) => at(self, args),
            _ => Err(Errno::EOPNOTSUPP.into()),
        }
    }

    /// Fills buffers one after another from a file.
    pub(super) fn read_vector(
        &mut self,
        file: Stored,
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

    pub(super) fn pwrite64(&mut self, args: Args) -> Result<u64, Stop> {
        let [fd, address, length, offset, ..] = args;
        let offset = checked(offset)?;
        let from = Buffers::one(address, length)?;
        self.write_at(fd, offset, from)
    }

    pub(super) fn pwritev(&mut self, args: Args) -> Result<u64, Stop> {
        let [fd, vector, count, offset, ..] = args;
        let offset = checked(offset)?;
        let from = Buffers::vector(vector, count)?;
        self.write_at(fd, offset, from)
    }

    /// What a descriptor is of the files in memory that can be written.
    pub(super) fn stored(&self, fd: u64) -> Option<Stored> {
        match self.description(fd).ok()?.opened {
            Opened::Place(Place::SharedMemory(object)) => Some(Stored::Shared(object)),
            Opened::Temporary(open, _) => Some(Stored::Temporary(open)),
            _ => None,
        }
    }

    /// Bytes that a file has.
    fn length_of(&mut self, file: Stored) -> u64 {
        match file {
            Stored::Given(file) => self.process.files.names.file(file).bytes,
            Stored::Shared(object) => self.process.files.names.shared.object(object).bytes,
            Stored::Temporary(open) => self.length_of_temporary(open),
        }
    }

    /// Writes to a file from `offset` on, or where its description is. Begun anew it goes on behind
    /// what it has written.
    pub(super) fn write_stored(
        &mut self,
        fd: u64,
        file: Stored,
        offset: Option<u64>,
        from: Buffers,
    ) -> Result<u64, Stop> {
        if offset.is_none() {
            self.hold_positions(&[fd])?;
        }
        let held = self.keep_to(fd)?;
        let length = self.bytes_of(from)?;
        let mut page = [0; PAGE_SIZE as usize];
        loop {
            let description = *self.process.files.descriptors.holding(held);
            if description.is_path() || !description.writes() {
                return Err(Errno::EBADF.into());
            }
            let done = self.written();
            let at = match offset {
                Some(offset) => offset.checked_add(done),
                None if description.appends() => Some(self.length_of(file)),
                None => Some(description.position),
            };
            let at = at.ok_or(Errno::EINVAL)?;
            // Another thread may have changed the vector meanwhile.
            let length = length.max(done);
            let piece = (length - done).min(PAGE_SIZE - at % PAGE_SIZE);
            if piece == 0 {
                return Ok(done);
            }
            let piece = &mut page[..piece as usize];
            let written = self.write_piece(file, at, (from, done), piece);
            match written {
                Ok(()) => {}
                Err(Stop::Errno(_)) if done > 0 => return Ok(done),
                Err(stop) => return Err(stop),
            }
            self.thread.progress().done += piece.len() as u64;
            if offset.is_none() {
                let behind = at + piece.len() as u64;
                self.process.files.descriptors.held(held).position = behind;
            }
        }
    }

    /// Writes a piece that lies in one page of the file, from that byte of the buffers on.
    fn write_piece(
        &mut self,
        file: Stored,
        at: u64,
        (from, done): (Buffers, u64),
        piece: &mut [u8],
    ) -> Result<(), Stop> {
        self.gather(from, done, piece)?;
        match file {
            Stored::Given(_) => return Err(Errno::EBADF.into()),
            Stored::Shared(object) => self.write_shared(object, at, piece)?,
            Stored::Temporary(open) => self.write_temporary(open, at, piece)?,
        }
        self.poll_and_check()?;
        Ok(())
    }

    fn write_at(&mut self, fd: u64, offset: u64, from: Buffers) -> Result<u64, Stop> {
        if let Some(shipped) = self.shipped(fd)? {
            return self.write_shipped(fd, shipped, Some(offset), from);
        }
        if let Some(file) = self.stored(fd) {
            return self.write_stored(fd, file, Some(offset), from);
        }
        Err(match self.process.files.descriptors.get(fd)?.opened {
            Opened::Stream(_) | Opened::Channel(..) => Errno::ESPIPE.into(),
            Opened::Place(_) | Opened::Shipped(_) | Opened::Temporary(..) => Errno::EBADF.into(),
        })
    }

    pub(super) fn getdents64(&mut self, args: Args) -> Result<u64, Stop> {
        let [fd, address, length, ..] = args;
        if let Some(shipped) = self.shipped(fd)? {
            return self.entries_of(fd, shipped.handle, [address, length]);
        }
        let description = *self.process.files.descriptors.get(fd)?;
        if let Opened::Temporary(open, _) = description.opened {
            return self.entries_of_temporary(fd, open, [address, length]);
        }
        let place = match description.opened {
            Opened::Place(_) if description.is_path() => return Err(Errno::EBADF.into()),
            Opened::Place(place) if place.is_directory() => place,
            _ => return Err(Errno::ENOTDIR.into()),
        };
        // The upper half of an unsigned int is not looked at.
        let length = u64::from(length as u32).min(ENTRIES_MAX);
        let mut entries = vec![0; length as usize];
        let entries = &mut entries[..];
        let names = &self.process.files.names;
        let (written, next) = names.entries(place, description.position, entries);
        if written == 0 && names.has_entry(place, next) {
            return Err(Errno::EINVAL.into());
        }
        self.write_bytes(address, &entries[..written])?;
        self.process.files.descriptors.get_mut(fd)?.position = next;
        Ok(written as u64)
    }

    /// getdents64 of a directory that the service has open.
    fn entries_of(
        &mut self,
        fd: u64,
        handle: u32,
        [address, length]: [u64; 2],
    ) -> Result<u64, Stop> {
        let length = u64::from(length as u32).min(ENTRIES_MAX) as usize;
        // An entry is longer here than on the way: what has come fits, but for the last.
        self.make_writable(UserSlice::new(address, length as u64)?)?;
        self.hold_positions(&[fd])?;
        let description = *self.moving(0)?;
        let position = description.position;
        if let Opened::Shipped(shipped) = description.opened {
            self.process.files.origins.list(shipped, position)?;
        }
        let reply = self.ship(|| {
            Call::new(Op::ReadDirectory, handle)
                .with_words([position])
                .with_room(length)
        })?;
        result_of(&reply)?;
        let mut entries = vec![0; length];
        let (mut written, mut next) = (0, position);
        let mut rest = &reply.output[..];
        while let Some((entry, behind)) = Entry::parse(rest).map_err(|_| Errno::EIO)? {
            let entry = DirectoryEntry {
                inode: entry.inode,
                next: entry.next,
                kind: entry.kind,
                name: entry.name,
            };
            let Some(taken) = entry.write(&mut entries[written..]) else {
                break;
            };
            (written, next, rest) = (written + taken, entry.next, behind);
        }
        if written == 0 && !rest.is_empty() {
            return Err(Errno::EINVAL.into());
        }
        self.write_bytes(address, &entries[..written])?;
        self.moving(0)?.position = next;
        Ok(written as u64)
    }

    /// A file of the node's memory, to be read at an offset.
    fn placed(&self, fd: u64) -> Result<Stored, Errno> {
        match (
            self.source(fd),
            self.process.files.descriptors.get(fd)?.opened,
        ) {
            (Ok(Source::File(file)), _) => Ok(file),
            (_, Opened::Stream(_)) => Err(Errno::ESPIPE),
            (Err(errno), _) => Err(errno),
            (Ok(Source::Stream(_) | Source::Node(_)), _) => Err(Errno::ESPIPE),
        }
    }
}

/// An offset in a file; as on Linux it is looked at first.
fn checked(offset: u64) -> Result<u64, Errno> {
    match i64::try_from(offset) {
        Ok(_) => Ok(offset),
        Err(_) => Err(Errno::EINVAL),
    }
}
