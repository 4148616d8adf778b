//! read, write and their like: which descriptor is a file and which a stream, and the streams.
//!
//! Of the streams only bytes go over the network; files are read from the node's memory.

use alloc::vec;

use hearth_abi::errno::Errno;
use kernel_core::program::UserSlice;
use netstack::io::MAX_CALL_DATA;

use super::Args;
use super::file::Source;
use crate::agent::services::NodeServices;
use crate::process::Process;
use crate::process::ending::Stop;

/// Bytes that one read or write moves at most, as on Linux.
pub(super) const TRANSFER_MAX: u64 = 0x7fff_f000;
/// Entries of an I/O vector, as on Linux.
pub(super) const VECTOR_MAX: u64 = 1024;

impl Process {
    pub(super) fn write(
        &mut self,
        services: &mut dyn NodeServices,
        args: Args,
    ) -> Result<u64, Stop> {
        let [fd, address, length, ..] = args;
        let fd = self.writable(fd)?;
        self.take_write_error(fd)?;
        let from = UserSlice::new(address, length.min(TRANSFER_MAX))?;
        let written = self.write_slice(services, fd, from)?;
        self.push_output(services);
        Ok(written)
    }

    pub(super) fn writev(
        &mut self,
        services: &mut dyn NodeServices,
        args: Args,
    ) -> Result<u64, Stop> {
        let [fd, vector, count, ..] = args;
        let fd = self.writable(fd)?;
        self.take_write_error(fd)?;
        if count > VECTOR_MAX {
            return Err(Errno::EINVAL.into());
        }
        let mut written = 0;
        for index in 0..count {
            let piece = self.vector_entry(services, vector, index).and_then(|from| {
                self.write_slice(services, fd, from.first(TRANSFER_MAX - written))
            });
            match piece {
                Ok(bytes) => written += bytes,
                Err(Stop::Errno(_)) if written > 0 => break,
                Err(stop) => return Err(stop),
            }
        }
        self.push_output(services);
        Ok(written)
    }

    /// Takes the bytes of one buffer. An error counts only when nothing was taken before it.
    fn write_slice(
        &mut self,
        services: &mut dyn NodeServices,
        fd: u32,
        from: UserSlice,
    ) -> Result<u64, Stop> {
        let mut buffer = [0; MAX_CALL_DATA];
        let mut written = 0;
        while written < from.length() {
            let piece = from.after(written).first(MAX_CALL_DATA as u64);
            let bytes = &mut buffer[..piece.length() as usize];
            match self.read_user(services, piece, bytes) {
                Ok(()) => {}
                Err(Stop::Errno(_)) if written > 0 => break,
                Err(stop) => return Err(stop),
            }
            self.output(services, fd, bytes)?;
            written += piece.length();
            // The queue may take everything: of a job that control has dropped, say.
            self.look_up(services)?;
        }
        Ok(written)
    }

    pub(super) fn read(
        &mut self,
        services: &mut dyn NodeServices,
        args: Args,
    ) -> Result<u64, Stop> {
        let [fd, address, length, ..] = args;
        let source = self.source(fd)?;
        let to = UserSlice::new(address, length.min(TRANSFER_MAX))?;
        match source {
            Source::Stream(stream) => self.read_slice(services, stream, to),
            Source::File(file) => self.read_on(services, fd, file, to),
        }
    }

    /// Of a stream it fills the first buffer that has room: a short read, which every reader must
    /// expect.
    pub(super) fn readv(
        &mut self,
        services: &mut dyn NodeServices,
        args: Args,
    ) -> Result<u64, Stop> {
        let [fd, vector, count, ..] = args;
        match self.source(fd)? {
            Source::File(file) => {
                let offset = self.files.descriptors.get(fd)?.position;
                let done = self.read_vector(services, file, offset, vector, count)?;
                self.files.descriptors.get_mut(fd)?.position = offset + done;
                return Ok(done);
            }
            Source::Stream(_) if count > VECTOR_MAX => return Err(Errno::EINVAL.into()),
            Source::Stream(stream) => {
                for index in 0..count {
                    let to = self.vector_entry(services, vector, index)?;
                    if to.length() > 0 {
                        return self.read_slice(services, stream, to);
                    }
                }
            }
        }
        Ok(0)
    }

    /// The stream that can be written by a descriptor; files cannot.
    fn writable(&self, fd: u64) -> Result<u32, Errno> {
        match self.files.descriptors.stream(fd)? {
            0 => Err(Errno::EBADF),
            stream => Ok(stream),
        }
    }

    fn read_slice(
        &mut self,
        services: &mut dyn NodeServices,
        fd: u32,
        to: UserSlice,
    ) -> Result<u64, Stop> {
        if to.length() == 0 {
            return Ok(0);
        }
        let room = to.first(MAX_CALL_DATA as u64);
        // A bad buffer is an error before it costs input.
        let mut there = vec![0; room.length() as usize];
        self.read_user(services, room, &mut there)?;
        self.write_user(services, room, &there)?;
        let data = self.input(services, fd, room.length() as usize)?;
        let data = &data[..data.len().min(room.length() as usize)];
        self.write_user(services, to.first(data.len() as u64), data)?;
        Ok(data.len() as u64)
    }

    /// One `struct iovec`.
    pub(super) fn vector_entry(
        &mut self,
        services: &mut dyn NodeServices,
        vector: u64,
        index: u64,
    ) -> Result<UserSlice, Stop> {
        let at = vector.checked_add(index * 16).ok_or(Errno::EFAULT)?;
        let entry: [u8; 16] = self.read_array(services, at)?;
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
