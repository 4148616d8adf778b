//! Calls on what is in `/tmp`, which is in the node's memory.
//!
//! Neighbours: `kernel_core::files::temporary` has the files, which are the job's;
//! [`super::path`] says which paths lead there, [`super::file`] moves the bytes.
//!
//! Invariant: nothing here waits but for locks of other ranks; what a rank has open is closed when
//! it ends ([`Process::leave_temporary`]).

use alloc::vec;

use hearth_abi::errno::Errno;
use hearth_abi::linux::{fcntl, seek};
use kernel_core::addr::PAGE_SIZE;
use kernel_core::files::Opened;
use kernel_core::files::stat::DirectoryEntry;
use kernel_core::files::temporary::{
    self, Found, Ino, Kind, NewTime, Open, OpenId, RangeLock, Who,
};
use kernel_core::program::UserSlice;
use netstack::files::Op;

use super::file::{ENTRIES_MAX, LOOK_PAGES};
use super::lock::{self, Flock};
use super::path::{TIME_NOW, TIME_OMIT};
use crate::mm::Hardware;
use crate::process::Process;
use crate::process::current::Current;
use crate::process::ending::Stop;
use crate::process::polling::Polling;
use crate::process::services::NodeServices;
use crate::{mm, time};

/// `d_type` of getdents64.
const TYPE_DIRECTORY: u8 = 4;
const TYPE_REGULAR: u8 = 8;
const TYPE_LINK: u8 = 10;
/// A nanosecond's place in a word is its lower or its upper half.
const SECOND: u32 = 1_000_000_000;

impl Process {
    /// The process may have files in `/tmp` from now on.
    pub(in crate::process) fn join_temporary(&mut self, services: &mut dyn NodeServices) {
        let frames = mm::frames().usage().total;
        services.temporary().join(frames, time::of_files());
    }

    /// The process has ended. With the last one of the job its files go.
    pub(in crate::process) fn leave_temporary(&mut self, services: &mut dyn NodeServices) {
        let files = &self.files;
        let opened = files.descriptors.opened().chain([files.working]);
        for opened in opened {
            if let Opened::Temporary(open, _) = opened {
                let process = temporary::Process(self.local.0);
                let machine = &mut Hardware::new();
                services.temporary().close(machine, process, open);
            }
        }
        // It is long work to give much back; nobody else has the files any more.
        let mut files = core::mem::take(services.temporary());
        files.leave(&mut Polling::new(services));
        *services.temporary() = files;
    }
}

impl Current<'_> {
    /// What of `/tmp` a descriptor refers to.
    pub(super) fn temporary(&self, fd: u64) -> Result<Option<(OpenId, Kind)>, Errno> {
        match self.description(fd)?.opened {
            Opened::Temporary(open, kind) => Ok(Some((open, kind))),
            _ => Ok(None),
        }
    }

    pub(super) fn who(&self) -> Who {
        let [user, group] = self.process.files.user;
        Who { user, group }
    }

    fn number(&self) -> temporary::Process {
        temporary::Process(self.process.local.0)
    }

    /// Whether one more file can be made: ENOSPC where the kernel has no room to keep it in mind.
    pub(super) fn check_growth(&mut self) -> Result<(), Errno> {
        let bytes = self.services.temporary().growth_bytes();
        match self.services.exchange().has_room(bytes) {
            true => Ok(()),
            false => Err(Errno::ENOSPC),
        }
    }

    /// The same for one more lock.
    fn check_lock_growth(&mut self) -> Result<(), Errno> {
        match self.services.exchange().has_room(temporary::LOCK_BYTES) {
            true => Ok(()),
            false => Err(Errno::ENOLCK),
        }
    }

    pub(super) fn open_temporary(&mut self, found: &Found, asked: Open) -> Result<u64, Stop> {
        self.process.files.descriptors.make_room()?;
        // Of what is there nothing grows but the list of what is open.
        if found.there().is_err() || asked.is_nameless() {
            self.check_growth()?;
        } else {
            let bytes = self.services.temporary().open_bytes();
            if !self.services.exchange().has_room(bytes) {
                return Err(Errno::ENOMEM.into());
            }
        }
        let (who, now) = (self.who(), time::of_files());
        let files = self.services.temporary();
        let open = files.open(&mut Hardware::new(), found, asked, who, now)?;
        let kind = files.kind(files.opened(open));
        let descriptors = &mut self.process.files.descriptors;
        let opened = descriptors.open_temporary(open, kind, asked.flags);
        Ok(opened.expect("room was made"))
    }

    /// The last descriptor of an open file is gone.
    pub(super) fn close_temporary(&mut self, open: OpenId) {
        let number = self.number();
        let files = self.services.temporary();
        files.close(&mut Hardware::new(), number, open);
    }

    /// A change of what is named or open.
    pub(super) fn change_temporary(
        &mut self,
        ino: Ino,
        op: Op,
        words: [u64; 4],
    ) -> Result<u64, Stop> {
        let (who, now) = (self.who(), time::of_files());
        let files = self.services.temporary();
        match op {
            Op::ChangeMode => files.set_mode(ino, words[0] as u32, who, now)?,
            Op::ChangeOwner => {
                let owner = [words[0] as u32, words[1] as u32];
                files.set_owner(ino, owner, who, now)?;
            }
            Op::SetTimes => {
                let [accessed, modified, nanoseconds, _] = words;
                let times = [
                    new_time(accessed, nanoseconds as u32)?,
                    new_time(modified, (nanoseconds >> 32) as u32)?,
                ];
                files.set_times(ino, times, who, now)?;
            }
            Op::SetLength => {
                let length = words[0];
                files.set_length(&mut Hardware::new(), ino, length, now)?;
            }
            Op::Sync => {}
            _ => return Err(Errno::EINVAL.into()),
        }
        Ok(0)
    }

    /// A change by a path: what it makes or takes away has that name.
    pub(super) fn change_name_temporary(
        &mut self,
        found: &Found,
        op: Op,
        word: u64,
    ) -> Result<u64, Stop> {
        let (who, now) = (self.who(), time::of_files());
        let machine = &mut Hardware::new();
        match op {
            Op::MakeDirectory => {
                self.check_growth()?;
                let files = self.services.temporary();
                files.make_directory(found, word as u32, who, now)?;
            }
            Op::Remove => {
                let files = self.services.temporary();
                files.remove(machine, found, word != 0, who, now)?;
            }
            Op::SetLength => {
                let files = self.services.temporary();
                let ino = found.there()?;
                match files.kind(ino) {
                    Kind::File => {}
                    Kind::Directory | Kind::Link => return Err(Errno::EISDIR.into()),
                }
                files.access(ino, who, hearth_abi::linux::access::WRITE)?;
                files.set_length(machine, ino, word, now)?;
            }
            op => return self.change_temporary(found.there()?, op, [word, 0, 0, 0]),
        }
        Ok(0)
    }

    pub(super) fn read_temporary(&mut self, open: OpenId, offset: u64, out: &mut [u8]) -> usize {
        let files = self.services.temporary();
        let ino = files.opened(open);
        files.read(Hardware::new().memory(), ino, offset, out)
    }

    pub(super) fn has_read_temporary(&mut self, open: OpenId) {
        let files = self.services.temporary();
        let ino = files.opened(open);
        files.has_read(ino, time::of_files());
    }

    pub(super) fn length_of_temporary(&mut self, open: OpenId) -> u64 {
        let files = self.services.temporary();
        files.bytes(files.opened(open))
    }

    /// Writes bytes that lie in one page of a file.
    pub(super) fn write_temporary(
        &mut self,
        open: OpenId,
        at: u64,
        piece: &[u8],
    ) -> Result<(), Stop> {
        // What is only kept for later goes first.
        self.services.keep_room(temporary::ROOM_FRAMES);
        let files = self.services.temporary();
        let ino = files.opened(open);
        let now = time::of_files();
        Ok(files.write(&mut Hardware::new(), ino, at, piece, now)?)
    }

    /// fallocate, a piece at a time.
    pub(super) fn allocate_temporary(
        &mut self,
        fd: u64,
        open: OpenId,
        mode: u64,
        (offset, length): (u64, u64),
    ) -> Result<u64, Stop> {
        if !self.process.files.descriptors.get(fd)?.writes() {
            return Err(Errno::EBADF.into());
        }
        let (machine, now) = (&mut Hardware::new(), time::of_files());
        let piece = LOOK_PAGES * PAGE_SIZE;
        loop {
            self.services
                .keep_room(temporary::ROOM_FRAMES + 2 * LOOK_PAGES);
            let done = self.written();
            let files = self.services.temporary();
            let ino = files.opened(open);
            if done == 0 && mode & temporary::PUNCH_HOLE == 0 {
                files.check_room(machine, ino, (offset, length))?;
            }
            let rest = length.saturating_sub(done);
            let now_done = match mode & temporary::PUNCH_HOLE {
                0 => rest.min(piece),
                _ => rest,
            };
            let range = (offset.saturating_add(done), now_done);
            files.allocate(machine, ino, mode, range, now)?;
            self.thread.progress().done += now_done;
            if rest == now_done {
                return Ok(0);
            }
            self.poll_and_check()?;
        }
    }

    /// Copies bytes from one file to another: descriptor, address of an offset, open file of each.
    pub(super) fn copy_temporary(
        &mut self,
        [from, to]: [(u64, u64, (OpenId, Kind)); 2],
        length: u64,
    ) -> Result<u64, Stop> {
        let mut positions = [0; 2];
        for (position, (fd, address, (_, kind))) in positions.iter_mut().zip([from, to]) {
            if kind != Kind::File {
                return Err(Errno::EISDIR.into());
            }
            *position = match address {
                0 => {
                    self.await_position(fd)?;
                    self.process.files.descriptors.get(fd)?.position
                }
                _ => {
                    self.make_writable(UserSlice::new(address, 8)?)?;
                    u64::from_le_bytes(self.read_array(address)?)
                }
            };
        }
        let source = *self.process.files.descriptors.get(from.0)?;
        let target = *self.process.files.descriptors.get(to.0)?;
        if !source.reads() || !target.writes() || target.appends() {
            return Err(Errno::EBADF.into());
        }
        let ((source, _), (target, _)) = (from.2, to.2);
        // A short copy is one that the program goes on with.
        let length = length.min(LOOK_PAGES * PAGE_SIZE);
        let (mut done, mut page) = (0, [0; PAGE_SIZE as usize]);
        while done < length {
            let [at, into] = positions.map(|position| position.saturating_add(done));
            let room = (length - done).min(PAGE_SIZE - into % PAGE_SIZE);
            let read = self.read_temporary(source, at, &mut page[..room as usize]);
            if read == 0 {
                break;
            }
            match self.write_temporary(target, into, &page[..read]) {
                Ok(()) => done += read as u64,
                Err(_) if done > 0 => break,
                Err(stop) => return Err(stop),
            }
        }
        for ((fd, address, _), position) in [from, to].into_iter().zip(positions) {
            match address {
                0 => self.process.files.descriptors.get_mut(fd)?.position = position + done,
                _ => self.write_bytes(address, &(position + done).to_le_bytes())?,
            }
        }
        Ok(done)
    }

    pub(super) fn seek_temporary(
        &mut self,
        fd: u64,
        (open, kind): (OpenId, Kind),
        offset: u64,
        whence: u64,
    ) -> Result<u64, Stop> {
        let description = *self.process.files.descriptors.get(fd)?;
        if description.is_path() {
            return Err(Errno::EBADF.into());
        }
        let files = self.services.temporary();
        let ino = files.opened(open);
        let base = match (whence, kind) {
            (seek::SET, _) => 0,
            (seek::CUR, _) => description.position,
            (seek::END, Kind::File) => files.bytes(ino),
            (seek::DATA | seek::HOLE, Kind::File) => {
                let found = files.seek(Hardware::new().memory(), ino, offset, whence)?;
                self.process.files.descriptors.get_mut(fd)?.position = found;
                return Ok(found);
            }
            _ => return Err(Errno::EINVAL.into()),
        };
        let position = base.checked_add_signed(offset as i64);
        let position = position.filter(|position| i64::try_from(*position).is_ok());
        let position = position.ok_or(Errno::EINVAL)?;
        self.process.files.descriptors.get_mut(fd)?.position = position;
        Ok(position)
    }

    /// getdents64.
    pub(super) fn entries_of_temporary(
        &mut self,
        fd: u64,
        open: OpenId,
        [address, length]: [u64; 2],
    ) -> Result<u64, Stop> {
        let description = *self.process.files.descriptors.get(fd)?;
        if description.is_path() {
            return Err(Errno::EBADF.into());
        }
        let length = u64::from(length as u32).min(ENTRIES_MAX) as usize;
        self.make_writable(UserSlice::new(address, length as u64)?)?;
        let files = self.services.temporary();
        let ino = files.opened(open);
        let mut entries = vec![0; length];
        let (mut written, mut next) = (0, description.position);
        while let Some((position, name, inode, kind)) = files.entry(ino, next)? {
            let entry = DirectoryEntry {
                inode,
                next: position + 1,
                kind: match kind {
                    Kind::Directory => TYPE_DIRECTORY,
                    Kind::File => TYPE_REGULAR,
                    Kind::Link => TYPE_LINK,
                },
                name,
            };
            match entry.write(&mut entries[written..]) {
                Some(taken) => (written, next) = (written + taken, position + 1),
                None if written == 0 => return Err(Errno::EINVAL.into()),
                None => break,
            }
        }
        files.has_read(ino, time::of_files());
        self.write_bytes(address, &entries[..written])?;
        self.process.files.descriptors.get_mut(fd)?.position = next;
        Ok(written as u64)
    }

    /// F_GETLK, F_SETLK and F_SETLKW.
    pub(super) fn lock_range_temporary(
        &mut self,
        fd: u64,
        open: OpenId,
        command: u64,
        address: u64,
    ) -> Result<u64, Stop> {
        let description = *self.process.files.descriptors.get(fd)?;
        let end = self.length_of_temporary(open);
        let mut asked = Flock::read(self, address)?;
        let (start, length) = asked.range(description.position, end)?;
        let range = RangeLock {
            start,
            end: match length {
                0 => u64::MAX,
                length => start + length,
            },
            writes: asked.kind() == lock::WRITE_LOCK,
        };
        let number = self.number();
        let files = self.services.temporary();
        match (command, asked.kind()) {
            (fcntl::GETLK, lock::READ_LOCK | lock::WRITE_LOCK) => {
                let told = files.lock_conflict(number, open, range);
                asked.tell(told.map(|other| {
                    let length = match other.end {
                        u64::MAX => 0,
                        end => end - other.start,
                    };
                    (other.writes, other.start, length)
                }));
                asked.write(self, address)?;
            }
            (fcntl::GETLK, _) | (_, 3..) => return Err(Errno::EINVAL.into()),
            (_, lock::NO_LOCK) => {
                self.check_lock_growth()?;
                let files = self.services.temporary();
                files.unlock(number, open, (range.start, range.end))?;
            }
            (_, lock::READ_LOCK) if !description.reads() => return Err(Errno::EBADF.into()),
            (_, lock::WRITE_LOCK) if !description.writes() => return Err(Errno::EBADF.into()),
            _ => {
                let waits = command == fcntl::SETLKW;
                self.lock_again(waits, |current| {
                    current.check_lock_growth()?;
                    let files = current.services.temporary();
                    Ok(files.lock(number, open, range)?)
                })?;
            }
        }
        Ok(0)
    }

    /// flock: `None` gives the lock back.
    pub(super) fn lock_whole_temporary(
        &mut self,
        open: OpenId,
        exclusive: Option<bool>,
        waits: bool,
    ) -> Result<u64, Stop> {
        let Some(exclusive) = exclusive else {
            self.services.temporary().unlock_whole(open);
            return Ok(0);
        };
        self.lock_again(waits, |current| {
            current.check_lock_growth()?;
            let files = current.services.temporary();
            Ok(files.lock_whole(open, exclusive)?)
        })?;
        Ok(0)
    }
}

fn new_time(seconds: u64, nanoseconds: u32) -> Result<NewTime, Errno> {
    match nanoseconds {
        TIME_NOW => Ok(NewTime::Now),
        TIME_OMIT => Ok(NewTime::Kept),
        0..SECOND => Ok(NewTime::Given((seconds as i64, nanoseconds))),
        _ => Err(Errno::EINVAL),
    }
}
