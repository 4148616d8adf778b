//! Locks of files that an I/O service has open: byte ranges by fcntl, whole files by flock. Those
//! of `/tmp` are in [`super::temporary`].
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
/// A lock that others may have, too.
pub(super) const READ_LOCK: u16 = 0;
/// A lock that nobody else may have.
pub(super) const WRITE_LOCK: u16 = 1;
/// None.
pub(super) const NO_LOCK: u16 = 2;
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
        let mut asked = Flock::read(self, address)?;
        let lock = match asked.kind() {
            READ_LOCK => Lock::Read,
            WRITE_LOCK => Lock::Write,
            NO_LOCK if !tests => Lock::Free,
            _ => return Err(Errno::EINVAL.into()),
        };
        // Where the end is the service knows, at the moment at which it locks.
        let from_end = asked.is_from_end();
        let (start, length) = match from_end {
            true => (asked.word(START_AT) as u64, asked.word(LENGTH_AT) as u64),
            false => {
                let position = self.process.files.descriptors.get(fd)?.position;
                asked.range(position, 0)?
            }
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
            let told = <[u8; TOLD_BYTES]>::try_from(&told[..]).ok();
            asked.tell(told.map(|told| {
                let word = |at: usize| {
                    let bytes = told[at..at + 8].try_into();
                    u64::from_le_bytes(bytes.expect("8 bytes"))
                };
                let kind = u16::from_le_bytes([told[0], told[1]]);
                (kind == WRITE_LOCK, word(8), word(16))
            }));
            asked.write(self, address)?;
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
        if let Some((open, _)) = self.temporary(fd)? {
            let waits = operation & flock::NONBLOCK == 0;
            let exclusive = (lock != Lock::WholeFree).then_some(lock == Lock::WholeWrite);
            return self.lock_whole_temporary(open, exclusive, waits);
        }
        // What else the node itself has is the program's alone.
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
        self.lock_again(waits, |current| {
            let reply = current.ship(|| {
                let call = Call::new(Op::Lock, shipped.handle);
                call.with_words(words).with_room(TOLD_BYTES)
            })?;
            result_of(&reply)?;
            Ok(reply.output)
        })
    }

    /// Tries to lock. Where another has the lock it is tried again and again if the call `waits`,
    /// until a signal comes.
    pub(super) fn lock_again<T>(
        &mut self,
        waits: bool,
        lock: impl FnOnce(&mut Self) -> Result<T, Stop>,
    ) -> Result<T, Stop> {
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
        match lock(self) {
            Err(Stop::Errno(Errno::EAGAIN | Errno::EACCES)) if waits => {
                let until = time::now() + AGAIN;
                self.thread.progress().until = Some(until);
                Err(Stop::wake_at(until))
            }
            other => other,
        }
    }
}

/// `struct flock`.
pub(super) struct Flock([u8; FLOCK_BYTES]);

impl Flock {
    /// That of a program, which can be written.
    pub(super) fn read(current: &mut Current<'_>, address: u64) -> Result<Self, Stop> {
        current.make_writable(UserSlice::new(address, FLOCK_BYTES as u64)?)?;
        Ok(Self(current.read_array(address)?))
    }

    pub(super) fn write(&self, current: &mut Current<'_>, address: u64) -> Result<(), Stop> {
        current.write_bytes(address, &self.0)
    }

    fn word(&self, at: usize) -> i64 {
        i64::from_le_bytes(self.0[at..at + 8].try_into().expect("8 bytes"))
    }

    fn half(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.0[at], self.0[at + 1]])
    }

    /// What kind of lock it is about.
    pub(super) fn kind(&self) -> u16 {
        self.half(TYPE_AT)
    }

    fn is_from_end(&self) -> bool {
        u64::from(self.half(WHENCE_AT)) == seek::END
    }

    /// First byte and length, of a file with this position and this end.
    pub(super) fn range(&self, position: u64, end: u64) -> Result<(u64, u64), Errno> {
        let base = match u64::from(self.half(WHENCE_AT)) {
            seek::SET => 0,
            seek::CUR => position,
            seek::END => end,
            _ => return Err(Errno::EINVAL),
        };
        range(base, self.word(START_AT), self.word(LENGTH_AT))
    }

    /// What a test has found: whether it is for writing, its first byte and its length.
    pub(super) fn tell(&mut self, found: Option<(bool, u64, u64)>) {
        let kind = match found {
            Some((true, ..)) => WRITE_LOCK,
            Some((false, ..)) => READ_LOCK,
            None => NO_LOCK,
        };
        let mut put = |at: usize, bytes: &[u8]| self.0[at..at + bytes.len()].copy_from_slice(bytes);
        put(TYPE_AT, &kind.to_le_bytes());
        if let Some((_, start, length)) = found {
            put(WHENCE_AT, &[0; 2]);
            put(START_AT, &start.to_le_bytes());
            put(LENGTH_AT, &length.to_le_bytes());
            // Of another rank, whose number means nothing here.
            put(PID_AT, &(-1_i32).to_le_bytes());
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
