//! read, write and their like: which descriptor is a file and which a stream, and the streams.
//!
//! Of the streams only bytes go over the network; files are read from the node's memory.

use hearth_abi::errno::Errno;
use hearth_abi::linux::open;
use kernel_core::files::{ChannelId, NodeFile, Opened, Place};
use kernel_core::program::UserSlice;
use netstack::io::MAX_CALL_DATA;

use super::Args;
use super::buffers::Buffers;
use super::file::Source;
use crate::process::Process;
use crate::process::current::Current;
use crate::process::ending::Stop;

/// Bytes that one read or write moves at most, as on Linux.
pub(super) const TRANSFER_MAX: u64 = 0x7fff_f000;
/// Entries of an I/O vector, as on Linux.
pub(super) const VECTOR_MAX: u64 = 1024;

impl Current<'_> {
    pub(super) fn write(&mut self, args: Args) -> Result<u64, Stop> {
        let [fd, address, length, ..] = args;
        if let Some(of) = self.channel(fd)? {
            return self.write_channel(of, Buffers::one(address, length)?);
        }
        if let Some(shipped) = self.shipped(fd)? {
            let from = Buffers::one(address, length)?;
            return self.write_shipped(fd, shipped, None, from);
        }
        if let Some(file) = self.stored(fd) {
            let from = Buffers::one(address, length)?;
            return self.write_stored(fd, file, None, from);
        }
        if let Some(device) = self.device(fd) {
            let from = UserSlice::new(address, length.min(TRANSFER_MAX))?;
            return Ok(written_to(device, from.length())?);
        }
        let never_waits = self.never_waits(fd)?;
        let fd = self.writable(fd)?;
        self.check_earlier(fd)?;
        let from = UserSlice::new(address, length.min(TRANSFER_MAX))?;
        self.write_slice((fd, never_waits), from.after(self.written()))?;
        self.process.push_output(self.services);
        self.used_stream(fd);
        Ok(self.written())
    }

    pub(super) fn writev(&mut self, args: Args) -> Result<u64, Stop> {
        let [fd, vector, count, ..] = args;
        if let Some(of) = self.channel(fd)? {
            return self.write_channel(of, Buffers::vector(vector, count)?);
        }
        if let Some(shipped) = self.shipped(fd)? {
            let from = Buffers::vector(vector, count)?;
            return self.write_shipped(fd, shipped, None, from);
        }
        if let Some(file) = self.stored(fd) {
            let from = Buffers::vector(vector, count)?;
            return self.write_stored(fd, file, None, from);
        }
        if let Some(device) = self.device(fd) {
            let mut length = 0;
            for index in 0..count.min(VECTOR_MAX) {
                length += self.vector_entry(vector, index)?.length();
            }
            return Ok(written_to(device, length.min(TRANSFER_MAX))?);
        }
        let never_waits = self.never_waits(fd)?;
        let fd = self.writable(fd)?;
        self.check_earlier(fd)?;
        if count > VECTOR_MAX {
            return Err(Errno::EINVAL.into());
        }
        // Where in the whole the entry begins.
        let mut start = 0;
        for index in 0..count {
            let piece = self.vector_entry(vector, index).and_then(|from| {
                let from = from.first(TRANSFER_MAX - start);
                let done = self.written().saturating_sub(start);
                start += from.length();
                self.write_slice((fd, never_waits), from.after(done.min(from.length())))
            });
            match piece {
                Ok(()) if self.written() == start => {}
                Err(Stop::Errno(_)) if self.written() > 0 => break,
                Ok(()) => break,
                Err(stop) => return Err(stop),
            }
        }
        self.process.push_output(self.services);
        self.used_stream(fd);
        Ok(self.written())
    }

    /// Who watches a stream looks at it again after each use.
    fn used_stream(&mut self, stream: u32) {
        self.process.files.descriptors.channels.used_stream(stream);
        self.process.wake_channel(ChannelId(stream.into()));
    }

    /// Bytes that the write has taken so far.
    pub(super) fn written(&self) -> u64 {
        self.thread.progress.map_or(0, |progress| progress.done)
    }

    /// The error of an earlier write, told once, and not by a write that has begun.
    fn check_earlier(&mut self, fd: u32) -> Result<(), Errno> {
        match self.written() {
            0 => self.process.take_write_error(fd),
            _ => Ok(()),
        }
    }

    /// Takes the bytes of one buffer, behind those that the call has taken before. An error counts
    /// only when nothing was taken before it.
    fn write_slice(&mut self, (fd, never_waits): (u32, bool), from: UserSlice) -> Result<(), Stop> {
        let mut buffer = [0; MAX_CALL_DATA];
        let mut rest = from;
        while rest.length() > 0 {
            let piece = rest.first(MAX_CALL_DATA as u64);
            let bytes = &mut buffer[..piece.length() as usize];
            match self.read_user(piece, bytes) {
                Ok(()) => {}
                Err(Stop::Errno(_)) if self.written() > 0 => break,
                Err(stop) => return Err(stop),
            }
            let taken = match self.process.output(self.services, fd, bytes) {
                Err(Stop::Wait(_)) if never_waits && self.written() > 0 => break,
                Err(Stop::Wait(_)) if never_waits => return Err(Errno::EAGAIN.into()),
                taken => taken? as u64,
            };
            self.thread.progress().done += taken;
            rest = rest.after(taken);
            // The queue may take everything: of a job that control has dropped, say.
            self.poll_and_check()?;
        }
        Ok(())
    }

    pub(super) fn read(&mut self, args: Args) -> Result<u64, Stop> {
        let [fd, address, length, ..] = args;
        if let Some(of) = self.channel(fd)? {
            return self.read_channel(of, Buffers::one(address, length)?);
        }
        if let Some(shipped) = self.shipped(fd)? {
            let to = Buffers::one(address, length)?;
            return self.read_shipped(fd, shipped, None, to);
        }
        let source = self.source(fd)?;
        let to = UserSlice::new(address, length.min(TRANSFER_MAX))?;
        match source {
            Source::Stream(stream) => self.read_slice(fd, stream, to),
            Source::File(file) => self.read_on(fd, file, to),
            Source::Node(file) => self.read_node_file(fd, file, to),
        }
    }

    /// Of a stream it fills the first buffer that has room: a short read, which every reader must
    /// expect.
    pub(super) fn readv(&mut self, args: Args) -> Result<u64, Stop> {
        let [fd, vector, count, ..] = args;
        if let Some(of) = self.channel(fd)? {
            return self.read_channel(of, Buffers::vector(vector, count)?);
        }
        if let Some(shipped) = self.shipped(fd)? {
            let to = Buffers::vector(vector, count)?;
            return self.read_shipped(fd, shipped, None, to);
        }
        match self.source(fd)? {
            Source::File(file) => {
                self.await_position(fd)?;
                let offset = self.process.files.descriptors.get(fd)?.position;
                let done = self.read_vector(file, offset, vector, count)?;
                self.process.files.descriptors.get_mut(fd)?.position = offset + done;
                return Ok(done);
            }
            Source::Stream(_) | Source::Node(_) if count > VECTOR_MAX => {
                return Err(Errno::EINVAL.into());
            }
            Source::Node(file) => {
                for index in 0..count {
                    let to = self.vector_entry(vector, index)?;
                    if to.length() > 0 {
                        return self.read_node_file(fd, file, to);
                    }
                }
            }
            Source::Stream(stream) => {
                for index in 0..count {
                    let to = self.vector_entry(vector, index)?;
                    if to.length() > 0 {
                        return self.read_slice(fd, stream, to);
                    }
                }
            }
        }
        Ok(0)
    }

    /// The device of the node that a descriptor is.
    fn device(&self, fd: u64) -> Option<NodeFile> {
        match self.process.files.descriptors.get(fd).ok()?.opened {
            Opened::Place(Place::Node(file)) if file.is_device() => Some(file),
            _ => None,
        }
    }

    /// The stream that can be written by a descriptor; files cannot.
    fn writable(&self, fd: u64) -> Result<u32, Errno> {
        match self.process.files.descriptors.stream(fd)? {
            0 => Err(Errno::EBADF),
            stream => Ok(stream),
        }
    }

    /// Whether calls on a descriptor answer EAGAIN instead of waiting.
    fn never_waits(&self, fd: u64) -> Result<bool, Errno> {
        let description = self.process.files.descriptors.get(fd)?;
        Ok(description.status & open::NONBLOCK != 0)
    }

    fn read_slice(&mut self, fd: u64, stream: u32, to: UserSlice) -> Result<u64, Stop> {
        if to.length() == 0 {
            return Ok(0);
        }
        let room = to.first(MAX_CALL_DATA as u64);
        // A bad buffer is an error before it costs input.
        self.make_writable(room)?;
        let data = self
            .process
            .input(self.services, stream, room.length() as usize);
        let data = match data {
            // It is asked for, and who looks whether there is any hears when it has come.
            Err(Stop::Wait(_)) if self.never_waits(fd)? => {
                let channels = &mut self.process.files.descriptors.channels;
                channels.set_awaits_input(true);
                return Err(Errno::EAGAIN.into());
            }
            Err(Stop::Wait(_)) if self.is_signal_due() => return Err(Stop::Restart),
            other => other?,
        };
        let data = &data[..data.len().min(room.length() as usize)];
        self.write_user(to.first(data.len() as u64), data)?;
        self.used_stream(stream);
        Ok(data.len() as u64)
    }

    /// One `struct iovec`.
    pub(super) fn vector_entry(&mut self, vector: u64, index: u64) -> Result<UserSlice, Stop> {
        let at = vector.checked_add(index * 16).ok_or(Errno::EFAULT)?;
        let entry: [u8; 16] = self.read_array(at)?;
        let word = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&entry[at..at + 8]);
            u64::from_le_bytes(bytes)
        };
        if word(8) > i64::MAX as u64 {
            return Err(Errno::EINVAL.into());
        }
        Ok(UserSlice::new(word(0), word(8))?)
    }
}

impl Process {
    /// Who looks whether there is input hears that some has come.
    pub(in crate::process) fn offer_input(&mut self) {
        let channels = &mut self.files.descriptors.channels;
        if channels.awaits_input() && self.streams.has_input() {
            channels.set_awaits_input(false);
            channels.used_stream(0);
            self.wake_channel(ChannelId(0));
        }
    }
}

/// What a write of so many bytes to a device answers: all are taken, and nothing is kept.
fn written_to(device: NodeFile, bytes: u64) -> Result<u64, Errno> {
    match device {
        NodeFile::Full if bytes > 0 => Err(Errno::ENOSPC),
        _ => Ok(bytes),
    }
}
