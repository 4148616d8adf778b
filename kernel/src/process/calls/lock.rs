//! Locks of files that an I/O service has open: byte ranges by fcntl, whole files by flock.
//!
//! The service locks for each rank, so that ranks of a job are kept apart and descriptors of one
//! are not in each other's way. When it closes a file, the rank's locks of ranges of this file are
//! free, as POSIX says. It hears of a close when the last descriptor made by `dup` is closed.
//!
//! Invariant: nobody waits at the service: a lock that is taken is asked for again by the node, so
//! that a signal ends the wait.

use hearth_abi::errno::Errno;
use hearth_abi::linux::{fcntl, flock, seek};
use kernel_core::files::{Opened, Shipped};
use kernel_core::program::UserSlice;
use netstack::files::{Call, LOCK_FROM_END, LOCK_TESTS, Lock, Op};
use netstack::time::Micros;

use super::shipped::result_of;
use crate::process::current::Current;
use crate::process::ending::Stop;
use crate::time;

/// `struct flock`: its bytes, and where its fields are.
const FLOCK_BYTES: usize = 32;
const TYPE_AT: usize = 0;
const WHENCE_AT: usize = 2;
const START_AT: usize = 8;
const LENGTH_AT: usize = 16;
const PID_AT: usize = 24;
/// Types of a lock.
const READ_LOCK: u16 = 0;
const WRITE_LOCK: u16 = 1;
const NO_LOCK: u16 = 2;
/// Bytes of what a test tells: type, start, length.
const TOLD_BYTES: usize = 24;
/// Pause before a lock that was taken is asked for again.
const AGAIN: Micros = Micros::from_millis(20);

impl Current<'_> {
    /// F_GETLK, F_SETLK and F_SETLKW.
    pub(super) fn lock_range(
        &mut self,
        fd: u64,
        shipped: Shipped,
        command: u64,
        address: u64,
    ) -> Result<u64, Stop> {
        let tests = command == fcntl::GETLK;
        self.make_writable(UserSlice::new(address, FLOCK_BYTES as u64)?)?;
        let mut asked: [u8; FLOCK_BYTES] = self.read_array(address)?;
        let word = |at: usize| i64::from_le_bytes(asked[at..at + 8].try_into().expect("8 bytes"));
        let half = |at: usize| u16::from_le_bytes([asked[at], asked[at + 1]]);
        let lock = match half(TYPE_AT) {
            READ_LOCK => Lock::Read,
            WRITE_LOCK => Lock::Write,
            NO_LOCK if !tests => Lock::Free,
            _ => return Err(Errno::EINVAL.into()),
        };
        let base = match u64::from(half(WHENCE_AT)) {
            seek::SET => 0,
            seek::CUR => self.process.files.descriptors.get(fd)?.position,
            // Where the end is the service knows, at the moment at which it locks.
            seek::END => 0,
            _ => return Err(Errno::EINVAL.into()),
        };
        let from_end = u64::from(half(WHENCE_AT)) == seek::END;
        let (start, length) = match from_end {
            true => (word(START_AT) as u64, word(LENGTH_AT) as u64),
            false => range(base, word(START_AT), word(LENGTH_AT))?,
        };
        let mut flags = 0;
        if tests {
            flags |= LOCK_TESTS;
        }
        if from_end {
            flags |= LOCK_FROM_END;
        }
        let words = [lock as u64, start, length, flags];
        let told = self.lock(shipped, words, command == fcntl::SETLKW)?;
        let is_whole = !from_end && (start, length) == (0, 0);
        if !tests && (lock != Lock::Free || is_whole) {
            self.locked(fd, false, lock != Lock::Free);
        }
        if tests {
            match <[u8; TOLD_BYTES]>::try_from(&told[..]) {
                Ok(told) => {
                    asked[TYPE_AT..TYPE_AT + 2].copy_from_slice(&told[..2]);
                    asked[WHENCE_AT..WHENCE_AT + 2].fill(0);
                    asked[START_AT..START_AT + 16].copy_from_slice(&told[8..]);
                    // Of another rank, whose number means nothing here.
                    asked[PID_AT..PID_AT + 4].copy_from_slice(&(-1_i32).to_le_bytes());
                }
                Err(_) => asked[TYPE_AT..TYPE_AT + 2].copy_from_slice(&NO_LOCK.to_le_bytes()),
            }
            self.write_bytes(address, &asked)?;
        }
        Ok(0)
    }

    pub(super) fn flock(&mut self, fd: u64, operation: u64) -> Result<u64, Stop> {
        let lock = match operation & !flock::NONBLOCK {
            flock::SHARED => Lock::WholeRead,
            flock::EXCLUSIVE => Lock::WholeWrite,
            flock::UNLOCK => Lock::WholeFree,
            _ => return Err(Errno::EINVAL.into()),
        };
        // What the node itself has is the program's alone.
        let Some(shipped) = self.shipped(fd)? else {
            return Ok(0);
        };
        let waits = operation & flock::NONBLOCK == 0;
        self.lock(shipped, [lock as u64, 0, 0, 0], waits)?;
        self.locked(fd, true, lock != Lock::WholeFree);
        Ok(0)
    }

    /// Parts of a file, or the whole of it, are locked, or nothing of it is any more.
    fn locked(&mut self, fd: u64, whole: bool, is_locked: bool) {
        if let Ok(description) = self.process.files.descriptors.get(fd)
            && let Opened::Shipped(shipped) = description.opened
        {
            self.process.files.origins.lock(shipped, whole, is_locked);
        }
    }

    /// Has the service lock; what it tells of a test. `waits`: until the lock is free, or a signal
    /// comes.
    fn lock(
        &mut self,
        shipped: Shipped,
        words: [u64; 4],
        waits: bool,
    ) -> Result<alloc::vec::Vec<u8>, Stop> {
        let is_pausing = self.thread.progress.and_then(|progress| progress.until);
        if let Some(until) = is_pausing {
            if self.is_signal_due() {
                return Err(Stop::Restart);
            }
            if time::now() < until {
                return Err(Stop::wake_at(until));
            }
            self.thread.progress().until = None;
        }
        let reply = self.ship(|| {
            let call = Call::new(Op::Lock, shipped.handle);
            call.with_words(words).with_room(TOLD_BYTES)
        })?;
        match result_of(&reply) {
            Ok(_) => Ok(reply.output),
            Err(Errno::EAGAIN | Errno::EACCES) if waits => {
                let until = time::now() + AGAIN;
                self.thread.progress().until = Some(until);
                Err(Stop::wake_at(until))
            }
            Err(errno) => Err(errno.into()),
        }
    }
}

/// First byte and length of a range: a negative length is of the bytes before the start.
fn range(base: u64, start: i64, length: i64) -> Result<(u64, u64), Errno> {
    let start = base.checked_add_signed(start).ok_or(Errno::EINVAL)?;
    let start = i64::try_from(start).map_err(|_| Errno::EOVERFLOW)? as u64;
    match u64::try_from(length) {
        Ok(length) => {
            let end = start.checked_add(length).ok_or(Errno::EOVERFLOW)?;
            i64::try_from(end).map_err(|_| Errno::EOVERFLOW)?;
            Ok((start, length))
        }
        Err(_) => {
            let before = start.checked_add_signed(length).ok_or(Errno::EINVAL)?;
            Ok((before, length.unsigned_abs()))
        }
    }
}
