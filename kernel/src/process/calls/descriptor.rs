//! Calls on descriptors that move no bytes: close, dup, fcntl, lseek, ioctl.

use hearth_abi::errno::Errno;
use hearth_abi::linux::{fcntl, ioctl, open, seek};
use kernel_core::files::channels::Channel;
use kernel_core::files::temporary::Kind;
use kernel_core::files::{DESCRIPTORS_MAX, Description, Opened, Place, Shipped};
use kernel_core::program::UserSlice;
use netstack::files::{Call, Op};

use super::Args;
use super::shipped::result_of;
use crate::process::current::Current;
use crate::process::ending::Stop;

/// close_range: mark instead of closing.
const CLOSE_RANGE_CLOEXEC: u64 = 4;
/// Types of a lock in `struct flock`.
const WRITE_LOCK: u16 = 1;
const NO_LOCK: u16 = 2;

impl Current<'_> {
    pub(super) fn close(&mut self, fd: u64) -> Result<u64, Stop> {
        // The descriptor is gone already.
        if let Some(shipped) = self.thread.progress.and_then(|progress| progress.closing) {
            return self.close_shipped(shipped);
        }
        let description = *self.process.files.descriptors.get(fd)?;
        let gone = self.process.files.descriptors.close(fd)?;
        self.wake_at(description.opened);
        match gone {
            // What was written may fail now, which the program is to hear.
            Some(Opened::Shipped(shipped)) if description.writes() => {
                self.thread.progress().closing = Some(shipped);
                self.close_shipped(shipped)
            }
            gone => {
                self.let_go(gone);
                Ok(0)
            }
        }
    }

    /// Closes a file whose descriptor is gone. One that the service has lost is opened again for
    /// that: where it cannot be, what was written may be lost.
    fn close_shipped(&mut self, shipped: Shipped) -> Result<u64, Stop> {
        let is_shipping = self
            .thread
            .progress
            .is_some_and(|progress| progress.shipped.is_some());
        let handle = match is_shipping {
            true => Ok(shipped.handle),
            false => self.current(shipped).map(|current| current.handle),
        };
        let reply = handle.and_then(|handle| self.ship(|| Call::new(Op::Close, handle)));
        if let Err(stop @ Stop::Wait(_)) = reply {
            return Err(stop);
        }
        self.process.files.origins.remove(shipped);
        self.process.files.ahead.forget(shipped);
        Ok(result_of(&reply?)?)
    }

    /// close_range.
    pub(super) fn close_range(&mut self, args: Args) -> Result<u64, Stop> {
        let [first, last, flags, ..] = args;
        let (first, last) = (first as u32, last as u32);
        if first > last || flags & !CLOSE_RANGE_CLOEXEC != 0 {
            return Err(Errno::EINVAL.into());
        }
        for fd in u64::from(first)..=u64::from(last).min(DESCRIPTORS_MAX as u64) {
            let descriptors = &mut self.process.files.descriptors;
            let Ok(description) = descriptors.get(fd).copied() else {
                continue;
            };
            if flags & CLOSE_RANGE_CLOEXEC != 0 {
                descriptors.set_close_on_exec(fd, true)?;
                continue;
            }
            let gone = descriptors.close(fd)?;
            self.wake_at(description.opened);
            self.let_go(gone);
        }
        Ok(0)
    }

    /// Who waits at what one descriptor less refers to looks again.
    fn wake_at(&mut self, closed: Opened) {
        if let Some(id) = closed.channel() {
            self.process.wake_channel(id);
        }
    }

    pub(super) fn dup(&mut self, fd: u64) -> Result<u64, Stop> {
        Ok(self.process.files.descriptors.copy(fd, 0, false)?)
    }

    pub(super) fn dup2(&mut self, args: Args) -> Result<u64, Stop> {
        let [fd, to, ..] = args;
        self.copy_to(fd, to, false)
    }

    pub(super) fn dup3(&mut self, args: Args) -> Result<u64, Stop> {
        let [fd, to, flags, ..] = args;
        if fd as u32 == to as u32 || flags & !open::CLOEXEC != 0 {
            return Err(Errno::EINVAL.into());
        }
        self.copy_to(fd, to, flags & open::CLOEXEC != 0)
    }

    fn copy_to(&mut self, fd: u64, to: u64, close_on_exec: bool) -> Result<u64, Stop> {
        let descriptors = &mut self.process.files.descriptors;
        let closed = descriptors.get(to).map(|description| description.opened);
        let (copy, gone) = descriptors.copy_to(fd, to, close_on_exec)?;
        if let Ok(closed) = closed {
            self.wake_at(closed);
        }
        self.let_go(gone);
        Ok(copy)
    }

    pub(super) fn lseek(&mut self, args: Args) -> Result<u64, Stop> {
        let [fd, offset, whence, ..] = args;
        if let Some(shipped) = self.shipped(fd)? {
            return self.seek_shipped(fd, shipped, offset, whence);
        }
        self.await_position(fd)?;
        if let Some((open, kind)) = self.temporary(fd)? {
            return self.seek_temporary(fd, (open, kind), offset, whence);
        }
        let descriptors = &mut self.process.files.descriptors;
        let opened = descriptors.get(fd)?.opened;
        let bytes = self.process.files.names.metadata(opened).bytes;
        Ok(descriptors.seek(fd, offset, whence, bytes)?)
    }

    fn seek_shipped(
        &mut self,
        fd: u64,
        shipped: Shipped,
        offset: u64,
        whence: u64,
    ) -> Result<u64, Stop> {
        if self.process.files.descriptors.get(fd)?.is_path() {
            return Err(Errno::EBADF.into());
        }
        self.hold_positions(&[fd])?;
        let base = match whence {
            seek::SET => Some(0),
            seek::CUR => Some(self.moving(0)?.position),
            seek::END if !shipped.is_directory => Some(self.metadata_of(fd)?.bytes),
            seek::DATA | seek::HOLE if !shipped.is_directory => None,
            _ => return Err(Errno::EINVAL.into()),
        };
        let position = match base {
            Some(base) => base
                .checked_add_signed(offset as i64)
                .filter(|position| i64::try_from(*position).is_ok())
                .ok_or(Errno::EINVAL)?,
            None => {
                let call = Call::new(Op::Seek, shipped.handle).with_words([offset, whence]);
                result_of(&self.ship(|| call)?)?
            }
        };
        self.moving(0)?.position = position;
        Ok(position)
    }

    /// No descriptor is a terminal: of the commands there are FIONREAD and FIONBIO.
    pub(super) fn ioctl(&mut self, args: Args) -> Result<u64, Stop> {
        let [fd, command, address, ..] = args;
        let description = *self.process.files.descriptors.get(fd)?;
        if description.is_path() {
            return Err(Errno::EBADF.into());
        }
        match command as u32 {
            ioctl::FIONREAD => {
                let bytes = self.readable_bytes(fd, description)?;
                let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
                self.write_bytes(address, &bytes.to_le_bytes())?;
                Ok(0)
            }
            ioctl::FIONBIO => {
                let is_set = i32::from_le_bytes(self.read_array(address)?) != 0;
                let flag = u64::from(is_set) * open::NONBLOCK;
                let flags = (description.status & !open::NONBLOCK) | flag;
                self.fcntl([fd, fcntl::SETFL, flags, 0, 0, 0])
            }
            _ => Err(Errno::ENOTTY.into()),
        }
    }

    /// What FIONREAD answers: bytes in a pipe, of standard input that have come, of a file those
    /// behind its position.
    fn readable_bytes(&mut self, fd: u64, description: Description) -> Result<u64, Stop> {
        let behind = |bytes: u64| bytes.saturating_sub(description.position);
        match description.opened {
            Opened::Stream(0) => Ok(self.process.streams.readable() as u64),
            Opened::Channel(id, _) => {
                let channels = &self.process.files.descriptors.channels;
                match channels.get(id) {
                    Some(Channel::Pipe(pipe)) => Ok(pipe.held() as u64),
                    _ => Err(Errno::ENOTTY.into()),
                }
            }
            Opened::Place(Place::File(_) | Place::SharedMemory(_)) => {
                Ok(behind(self.metadata_of(fd)?.bytes))
            }
            Opened::Shipped(shipped) if !shipped.is_directory => {
                Ok(behind(self.metadata_of(fd)?.bytes))
            }
            Opened::Temporary(_, Kind::File) => Ok(behind(self.metadata_of(fd)?.bytes)),
            Opened::Stream(_) | Opened::Place(_) | Opened::Shipped(_) | Opened::Temporary(..) => {
                Err(Errno::ENOTTY.into())
            }
        }
    }

    /// fsync and fdatasync. What is read only has nothing to be written back.
    pub(super) fn fsync(&mut self, fd: u64, only_data: bool) -> Result<u64, Stop> {
        match self.process.files.descriptors.get(fd)?.opened {
            Opened::Stream(_) | Opened::Channel(..) => Err(Errno::EINVAL.into()),
            Opened::Place(_) | Opened::Temporary(..) => Ok(0),
            Opened::Shipped(_) => self.change_open(fd, Op::Sync, [only_data.into(), 0, 0, 0]),
        }
    }

    pub(super) fn ftruncate(&mut self, fd: u64, length: u64) -> Result<u64, Stop> {
        if i64::try_from(length).is_err() {
            return Err(Errno::EINVAL.into());
        }
        match self.process.files.descriptors.get(fd)?.opened {
            Opened::Shipped(_) => self.change_open(fd, Op::SetLength, [length, 0, 0, 0]),
            Opened::Place(Place::SharedMemory(object)) => {
                self.resize_shared(fd, object, |_before| length, Errno::EINVAL)
            }
            Opened::Temporary(_, Kind::File) => {
                match self.process.files.descriptors.get(fd)?.writes() {
                    true => self.change_open(fd, Op::SetLength, [length, 0, 0, 0]),
                    false => Err(Errno::EINVAL.into()),
                }
            }
            _ => Err(Errno::EINVAL.into()),
        }
    }

    pub(super) fn fallocate(&mut self, args: Args) -> Result<u64, Stop> {
        let [fd, mode, offset, length, ..] = args;
        match self.process.files.descriptors.get(fd)?.opened {
            Opened::Shipped(_) => self.change_open(fd, Op::Allocate, [mode, offset, length, 0]),
            Opened::Stream(_) | Opened::Channel(..) => Err(Errno::ESPIPE.into()),
            Opened::Place(Place::SharedMemory(_)) if mode != 0 => Err(Errno::EOPNOTSUPP.into()),
            Opened::Place(Place::SharedMemory(object)) => {
                let is_valid = length > 0 && i64::try_from(length).is_ok();
                let end = offset.checked_add(length).filter(|_| is_valid);
                let end = end.filter(|end| i64::try_from(*end).is_ok());
                let end = end.ok_or(Errno::EINVAL)?;
                self.resize_shared(fd, object, |before| before.max(end), Errno::EBADF)
            }
            Opened::Temporary(open, Kind::File) => {
                self.allocate_temporary(fd, open, mode, (offset, length))
            }
            Opened::Place(_) | Opened::Temporary(..) => Err(Errno::EBADF.into()),
        }
    }

    /// Advice about a file: it changes nothing.
    pub(super) fn fadvise64(&mut self, fd: u64) -> Result<u64, Stop> {
        match self.process.files.descriptors.get(fd)?.opened {
            Opened::Stream(_) | Opened::Channel(..) => Err(Errno::ESPIPE.into()),
            Opened::Place(_) | Opened::Shipped(_) | Opened::Temporary(..) => Ok(0),
        }
    }

    /// copy_file_range between two files of the service, or two of `/tmp`.
    pub(super) fn copy_file_range(&mut self, args: Args) -> Result<u64, Stop> {
        let [from, from_offset, to, to_offset, length, flags] = args;
        // An unsigned int, of which libraries leave the upper half as it is.
        let flags = flags as u32;
        if let (Some(source), Some(target)) = (self.temporary(from)?, self.temporary(to)?) {
            if flags != 0 {
                return Err(Errno::EINVAL.into());
            }
            let ends = [(from, from_offset, source), (to, to_offset, target)];
            return self.copy_temporary(ends, length);
        }
        let files = [self.shipped(from)?, self.shipped(to)?];
        let [Some(source), Some(target)] = files else {
            return Err(Errno::EXDEV.into());
        };
        self.changed(to);
        if flags != 0 {
            return Err(Errno::EINVAL.into());
        }
        self.hold_positions(&[from, to])?;
        let mut positions = [self.moving(0)?.position, self.moving(1)?.position];
        for (position, address) in positions.iter_mut().zip([from_offset, to_offset]) {
            if address != 0 {
                self.make_writable(UserSlice::new(address, 8)?)?;
                *position = u64::from_le_bytes(self.read_array(address)?);
            }
        }
        let [from_position, to_position] = positions;
        let reply = self.ship(|| {
            let call = Call::new(Op::Copy, source.handle);
            Call {
                handles: [source.handle, target.handle],
                ..call.with_words([from_position, to_position, length])
            }
        })?;
        self.changed(to);
        let copied = result_of(&reply)?;
        let places = [from_offset, to_offset].into_iter().enumerate();
        for ((index, address), position) in places.zip(positions) {
            match address {
                0 => self.moving(index)?.position = position + copied,
                _ => self.write_bytes(address, &(position + copied).to_le_bytes())?,
            }
        }
        Ok(copied)
    }

    /// sendfile from one file to another, as [`Self::copy_file_range`].
    pub(super) fn sendfile(&mut self, args: Args) -> Result<u64, Stop> {
        let [to, from, offset, length, ..] = args;
        match self.copy_file_range([from, offset, to, 0, length, 0]) {
            Err(Stop::Errno(Errno::EXDEV)) => Err(self.count_missing_as(Errno::EINVAL)),
            other => other,
        }
    }

    pub(super) fn fcntl(&mut self, args: Args) -> Result<u64, Stop> {
        let [fd, command, argument, ..] = args;
        let description = *self.process.files.descriptors.get(fd)?;
        let is_file = matches!(
            description.opened,
            Opened::Place(Place::File(_) | Place::SharedMemory(_)) | Opened::Temporary(..)
        );
        let is_channel = matches!(description.opened, Opened::Channel(..) | Opened::Stream(_));
        if let Some(shipped) = self.shipped(fd)? {
            match command {
                fcntl::SETFL => return self.set_flags(fd, shipped, argument),
                fcntl::GETLK | fcntl::SETLK | fcntl::SETLKW => {
                    return self.lock_range(fd, shipped, command, argument);
                }
                _ => {}
            }
        }
        if let Some((open, _)) = self.temporary(fd)?
            && matches!(command, fcntl::GETLK | fcntl::SETLK | fcntl::SETLKW)
        {
            return self.lock_range_temporary(fd, open, command, argument);
        }
        let descriptors = &mut self.process.files.descriptors;
        match command {
            fcntl::DUPFD => Ok(descriptors.copy(fd, argument, false)?),
            fcntl::DUPFD_CLOEXEC => Ok(descriptors.copy(fd, argument, true)?),
            fcntl::GETFD => Ok(u64::from(descriptors.close_on_exec(fd)?) * fcntl::FD_CLOEXEC),
            fcntl::SETFD => {
                descriptors.set_close_on_exec(fd, argument & fcntl::FD_CLOEXEC != 0)?;
                Ok(0)
            }
            fcntl::GETFL => Ok(description.status),
            // Nothing of it makes a difference for a file that is in memory.
            fcntl::SETFL if is_file || is_channel => {
                let settable = open::APPEND | open::NONBLOCK;
                let kept = description.status & !settable;
                descriptors.get_mut(fd)?.status = kept | (argument & settable);
                Ok(0)
            }
            // The program is alone with its files: every lock is free.
            fcntl::GETLK | fcntl::SETLK | fcntl::SETLKW if is_file => {
                let kind = u16::from_le_bytes(self.read_array(argument)?);
                match (command, kind) {
                    (_, kind) if kind > NO_LOCK => return Err(Errno::EINVAL.into()),
                    (fcntl::GETLK, _) => {
                        self.write_bytes(argument, &NO_LOCK.to_le_bytes())?;
                    }
                    (_, WRITE_LOCK) if !description.writes() => {
                        return Err(Errno::EBADF.into());
                    }
                    _ => {}
                }
                Ok(0)
            }
            _ => Err(Errno::EINVAL.into()),
        }
    }

    /// F_SETFL of a file that the service has open.
    fn set_flags(&mut self, fd: u64, shipped: Shipped, flags: u64) -> Result<u64, Stop> {
        let settable = open::APPEND | open::NONBLOCK;
        let flags = flags & settable;
        let call = Call::new(Op::SetFlags, shipped.handle).with_words([flags]);
        result_of(&self.ship(|| call)?)?;
        let description = self.process.files.descriptors.get_mut(fd)?;
        description.status = (description.status & !settable) | flags;
        if let Opened::Shipped(shipped) = description.opened {
            self.process
                .files
                .origins
                .set_flags(shipped, settable, flags);
        }
        Ok(0)
    }
}
