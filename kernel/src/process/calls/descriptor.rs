//! Calls on descriptors that move no bytes: close, dup, fcntl, lseek, ioctl.

use hearth_abi::errno::Errno;
use hearth_abi::linux::{fcntl, open};
use kernel_core::files::{Opened, Place};

use super::Args;
use crate::process::current::Current;
use crate::process::ending::Stop;

/// Types of a lock in `struct flock`.
const WRITE_LOCK: u16 = 1;
const NO_LOCK: u16 = 2;

impl Current<'_> {
    pub(super) fn close(&mut self, fd: u64) -> Result<u64, Stop> {
        let closed = self.process.files.descriptors.get(fd)?.opened;
        self.process.files.descriptors.close(fd)?;
        self.wake_at(closed);
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
        let copy = descriptors.copy_to(fd, to, close_on_exec)?;
        if let Ok(closed) = closed {
            self.wake_at(closed);
        }
        Ok(copy)
    }

    pub(super) fn lseek(&mut self, args: Args) -> Result<u64, Stop> {
        let [fd, offset, whence, ..] = args;
        let opened = self.process.files.descriptors.get(fd)?.opened;
        let bytes = self.process.files.names.metadata(opened).bytes;
        Ok(self
            .process
            .files
            .descriptors
            .seek(fd, offset, whence, bytes)?)
    }

    /// No descriptor is a terminal.
    pub(super) fn ioctl(&mut self, fd: u64) -> Result<u64, Stop> {
        self.process.files.descriptors.get(fd)?;
        Err(Errno::ENOTTY.into())
    }

    /// What is read only has nothing to be written back.
    pub(super) fn fsync(&mut self, fd: u64) -> Result<u64, Stop> {
        match self.process.files.descriptors.get(fd)?.opened {
            Opened::Stream(_) | Opened::Channel(..) => Err(Errno::EINVAL.into()),
            Opened::Place(_) => Ok(0),
        }
    }

    /// Advice about a file that is in memory.
    pub(super) fn fadvise64(&mut self, fd: u64) -> Result<u64, Stop> {
        match self.process.files.descriptors.get(fd)?.opened {
            Opened::Stream(_) | Opened::Channel(..) => Err(Errno::ESPIPE.into()),
            Opened::Place(_) => Ok(0),
        }
    }

    pub(super) fn fcntl(&mut self, args: Args) -> Result<u64, Stop> {
        let [fd, command, argument, ..] = args;
        let descriptors = &mut self.process.files.descriptors;
        let description = *descriptors.get(fd)?;
        let is_file = matches!(description.opened, Opened::Place(Place::File(_)));
        let is_channel = matches!(description.opened, Opened::Channel(..));
        match command {
            fcntl::DUPFD => Ok(descriptors.copy(fd, argument, false)?),
            fcntl::DUPFD_CLOEXEC => Ok(descriptors.copy(fd, argument, true)?),
            fcntl::GETFD => Ok(u64::from(descriptors.close_on_exec(fd)?) * fcntl::FD_CLOEXEC),
            fcntl::SETFD => {
                descriptors.set_close_on_exec(fd, argument & fcntl::FD_CLOEXEC != 0)?;
                Ok(0)
            }
            fcntl::GETFL => Ok(description.status),
            // Nothing of it makes a difference for a file that is read; a stream always waits.
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
                    (_, WRITE_LOCK) => return Err(Errno::EBADF.into()),
                    _ => {}
                }
                Ok(0)
            }
            _ => Err(Errno::EINVAL.into()),
        }
    }
}
