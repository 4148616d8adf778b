//! Buffers of a call as one row of bytes, be it one buffer or a vector of them.

use kernel_core::program::UserSlice;

use super::stream::{TRANSFER_MAX, VECTOR_MAX};
use crate::process::current::Current;
use crate::process::ending::Stop;
use hearth_abi::errno::Errno;

/// Where a call takes its bytes from, or puts them.
#[derive(Clone, Copy)]
pub(super) enum Buffers {
    /// One buffer.
    One(UserSlice),
    /// Several, in an I/O vector.
    Vector {
        /// Its address.
        vector: u64,
        /// Its entries.
        count: u64,
    },
}

impl Buffers {
    /// One buffer, of which a call moves no more than Linux would.
    pub(super) fn one(address: u64, length: u64) -> Result<Self, Stop> {
        let slice = UserSlice::new(address, length.min(TRANSFER_MAX))?;
        Ok(Self::One(slice))
    }

    /// One buffer, however long it is: for calls that move all of it or fail.
    pub(super) fn whole(address: u64, length: u64) -> Result<Self, Stop> {
        Ok(Self::One(UserSlice::new(address, length)?))
    }

    /// A vector; EINVAL where it has too many entries.
    pub(super) fn vector(vector: u64, count: u64) -> Result<Self, Errno> {
        match count <= VECTOR_MAX {
            true => Ok(Self::Vector { vector, count }),
            false => Err(Errno::EINVAL),
        }
    }
}

impl Current<'_> {
    /// Bytes of all buffers.
    pub(super) fn bytes_of(&mut self, buffers: Buffers) -> Result<u64, Stop> {
        let (vector, count) = match buffers {
            Buffers::One(slice) => return Ok(slice.length()),
            Buffers::Vector { vector, count } => (vector, count),
        };
        let mut bytes = 0;
        for index in 0..count {
            bytes += self.vector_entry(vector, index)?.length();
            bytes = bytes.min(TRANSFER_MAX);
        }
        Ok(bytes)
    }

    /// The rest of the buffer in which the byte with this number is, at most `most` bytes. EFAULT
    /// where there is none: another thread has changed the vector meanwhile.
    fn buffer_at(&mut self, buffers: Buffers, at: u64, most: u64) -> Result<UserSlice, Stop> {
        let (vector, count) = match buffers {
            Buffers::One(slice) => return Ok(slice.after(at).first(most)),
            Buffers::Vector { vector, count } => (vector, count),
        };
        let mut start = 0;
        for index in 0..count {
            let slice = self.vector_entry(vector, index)?;
            if at - start < slice.length() {
                return Ok(slice.after(at - start).first(most));
            }
            start += slice.length();
        }
        Err(Errno::EFAULT.into())
    }

    /// Copies bytes from the buffers, from that byte on.
    pub(super) fn gather(&mut self, buffers: Buffers, at: u64, out: &mut [u8]) -> Result<(), Stop> {
        let mut done = 0;
        while done < out.len() {
            let rest = (out.len() - done) as u64;
            let from = self.buffer_at(buffers, at + done as u64, rest)?;
            let length = from.length() as usize;
            self.read_user(from, &mut out[done..done + length])?;
            done += length;
        }
        Ok(())
    }

    /// Copies bytes to the buffers, from that byte on.
    pub(super) fn scatter(&mut self, buffers: Buffers, at: u64, bytes: &[u8]) -> Result<(), Stop> {
        let mut done = 0;
        while done < bytes.len() {
            let rest = (bytes.len() - done) as u64;
            let to = self.buffer_at(buffers, at + done as u64, rest)?;
            let length = to.length() as usize;
            self.write_user(to, &bytes[done..done + length])?;
            done += length;
        }
        Ok(())
    }

    /// Brings the bytes of the buffers from `start` to `end` in, so that [`Self::scatter`] neither
    /// waits nor fails; the end of those before one that is not the program's, which is EFAULT
    /// where it is the first.
    pub(super) fn make_room(
        &mut self,
        buffers: Buffers,
        start: u64,
        end: u64,
    ) -> Result<u64, Stop> {
        let mut done = start;
        while done < end {
            let to = self.buffer_at(buffers, done, end - done);
            match to.and_then(|to| self.make_writable(to).map(|()| to.length())) {
                Ok(length) => done += length,
                Err(Stop::Errno(_)) if done > start => break,
                Err(stop) => return Err(stop),
            }
        }
        Ok(done)
    }
}
