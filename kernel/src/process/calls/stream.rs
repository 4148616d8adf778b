//! read, write and their like on the standard streams.
//!
//! Offsets, terminal checks and states are answered on the node: only bytes go over the network.

use alloc::vec;

use hearth_abi::errno::Errno;
use kernel_core::program::UserSlice;
use netstack::io::MAX_CALL_DATA;
use netstack::time::{Instant, Micros};

use super::{Args, ROOT};
use crate::agent::services::NodeServices;
use crate::process::Process;
use crate::process::ending::Stop;
use crate::time;

/// Bytes that one read or write moves at most, as on Linux.
const TRANSFER_MAX: u64 = 0x7fff_f000;
/// Entries of an I/O vector, as on Linux.
const VECTOR_MAX: u64 = 1024;
/// Descriptors in one poll: there are three.
const POLL_MAX: u64 = 64;
const POLL_IN: u16 = 1;
const POLL_OUT: u16 = 4;
const POLL_INVALID: u16 = 0x20;
/// fcntl: descriptor flags and file status.
const GET_FD: u64 = 1;
const SET_FD: u64 = 2;
const GET_FL: u64 = 3;
const WRITE_ONLY: u64 = 1;
/// newfstatat: the descriptor itself is meant.
const AT_EMPTY_PATH: u64 = 0x1000;
/// Mode of a pipe that its owner may use: S_IFIFO | 0600.
const PIPE_MODE: u32 = 0o010600;
/// Bytes of `struct stat`.
const STAT_BYTES: usize = 144;
/// Preferred size of transfers.
const BLOCK_BYTES: u64 = 4096;

impl Process {
    pub(super) fn write(
        &mut self,
        services: &mut dyn NodeServices,
        args: Args,
    ) -> Result<u64, Stop> {
        let [fd, address, length, ..] = args;
        let fd = self.streams.writable(fd)?;
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
        let fd = self.streams.writable(fd)?;
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
        let fd = self.streams.readable(fd)?;
        let to = UserSlice::new(address, length.min(TRANSFER_MAX))?;
        self.read_slice(services, fd, to)
    }

    /// Fills the first buffer that has room: a short read, which every reader must expect.
    pub(super) fn readv(
        &mut self,
        services: &mut dyn NodeServices,
        args: Args,
    ) -> Result<u64, Stop> {
        let [fd, vector, count, ..] = args;
        let fd = self.streams.readable(fd)?;
        if count > VECTOR_MAX {
            return Err(Errno::EINVAL.into());
        }
        for index in 0..count {
            let to = self.vector_entry(services, vector, index)?;
            if to.length() > 0 {
                return self.read_slice(services, fd, to);
            }
        }
        Ok(0)
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
    fn vector_entry(
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

    pub(super) fn fcntl(&mut self, args: Args) -> Result<u64, Stop> {
        let [fd, command, ..] = args;
        if !self.streams.is_open(fd) {
            return Err(Errno::EBADF.into());
        }
        match command {
            GET_FD | SET_FD => Ok(0),
            GET_FL if fd as u32 == 0 => Ok(0),
            GET_FL => Ok(WRITE_ONLY),
            _ => Err(Errno::EINVAL.into()),
        }
    }

    /// The standard streams look like pipes, so that C libraries buffer them fully.
    pub(super) fn fstat(
        &mut self,
        services: &mut dyn NodeServices,
        fd: u64,
        address: u64,
    ) -> Result<u64, Stop> {
        if !self.streams.is_open(fd) {
            return Err(Errno::EBADF.into());
        }
        let mut stat = [0; STAT_BYTES];
        let inode = u64::from(fd as u32) + 1;
        for (at, value) in [(8, inode), (16, 1), (56, BLOCK_BYTES)] {
            stat[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        stat[24..28].copy_from_slice(&PIPE_MODE.to_le_bytes());
        for at in [28, 32] {
            stat[at..at + 4].copy_from_slice(&(ROOT as u32).to_le_bytes());
        }
        self.write_bytes(services, address, &stat)?;
        Ok(0)
    }

    /// Only with an empty path: there are no files yet.
    pub(super) fn newfstatat(
        &mut self,
        services: &mut dyn NodeServices,
        args: Args,
    ) -> Result<u64, Stop> {
        let [fd, path, address, flags, ..] = args;
        if flags & AT_EMPTY_PATH != 0 && self.read_array::<1>(services, path)? == [0] {
            return self.fstat(services, fd, address);
        }
        Err(self.unknown(hearth_abi::sysno::NEWFSTATAT))
    }

    /// The streams are always ready: a read or write may still wait, as on a pipe that somebody
    /// else reads too.
    pub(super) fn poll(
        &mut self,
        services: &mut dyn NodeServices,
        args: Args,
    ) -> Result<u64, Stop> {
        let [address, count, timeout_ms, ..] = args;
        if count > POLL_MAX {
            return Err(Errno::EINVAL.into());
        }
        let mut ready = 0;
        for index in 0..count {
            let at = address.checked_add(index * 8).ok_or(Errno::EFAULT)?;
            let entry: [u8; 8] = self.read_array(services, at)?;
            let fd = i32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]);
            let wanted = u16::from_le_bytes([entry[4], entry[5]]);
            let returned = match fd {
                ..0 => 0,
                0 if self.streams.is_open(0) => wanted & POLL_IN,
                1..=2 if self.streams.is_open(fd as u64) => wanted & POLL_OUT,
                _ => POLL_INVALID,
            };
            ready += u64::from(returned != 0);
            self.write_bytes(services, at + 6, &returned.to_le_bytes())?;
        }
        let timeout_ms = timeout_ms as i32;
        if ready == 0 && timeout_ms != 0 {
            self.flush(services)?;
            let deadline = match u64::try_from(timeout_ms) {
                Ok(millis) => time::now() + Micros::from_millis(millis),
                Err(_) => Instant::FAR_FUTURE,
            };
            self.sleep(services, deadline)?;
        }
        Ok(ready)
    }
}
