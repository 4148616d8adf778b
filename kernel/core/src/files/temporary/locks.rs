//! Locks of one file: byte ranges as fcntl locks them for a process, the whole file as flock locks
//! it for an open file. Neither keeps the other out, as on Linux.
//!
//! Invariant: ranges of one process neither overlap nor touch where they are of one kind; of two
//! processes they overlap only where both read; there are at most [`MOST`].

use alloc::vec::Vec;

use super::{OpenId, Process};
use hearth_abi::errno::Errno;

/// Ranges of one file that are locked, and open files that have locked it whole.
const MOST: usize = 256;

/// Bytes of the heap that one more lock of a file may take: a list that is full becomes twice as
/// long, beside the one before.
pub const GROWTH_BYTES: u64 = 3 * (MOST * size_of::<Owned>()) as u64;

/// A range of bytes and how it is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeLock {
    /// First byte.
    pub start: u64,
    /// The byte behind the last; [`u64::MAX`]: to the end, wherever that is.
    pub end: u64,
    /// Nobody else may have it.
    pub writes: bool,
}

#[derive(Clone, Copy, Debug)]
struct Owned {
    process: Process,
    lock: RangeLock,
}

/// The locks of a file.
#[derive(Debug, Default)]
pub(super) struct Locks {
    ranges: Vec<Owned>,
    whole: Vec<(OpenId, bool)>,
}

impl Locks {
    /// What keeps a process from a lock.
    pub(super) fn conflict(&self, process: Process, lock: RangeLock) -> Option<RangeLock> {
        let others = self.ranges.iter().filter(|other| other.process != process);
        let mut others = others.map(|other| other.lock);
        others.find(|other| {
            let meets = other.start < lock.end && lock.start < other.end;
            meets && (other.writes || lock.writes)
        })
    }

    /// Locks a range; EAGAIN where another process has it.
    pub(super) fn lock(&mut self, process: Process, lock: RangeLock) -> Result<(), Errno> {
        if self.conflict(process, lock).is_some() {
            return Err(Errno::EAGAIN);
        }
        // A range in the middle of another makes two more of it.
        if self.ranges.len() + 3 > MOST || self.ranges.try_reserve(3).is_err() {
            return Err(Errno::ENOLCK);
        }
        self.unlock(process, lock.start, lock.end)?;
        let mut whole = lock;
        self.ranges.retain(|other| {
            let touches = other.lock.start <= whole.end && whole.start <= other.lock.end;
            let joins = other.process == process && other.lock.writes == lock.writes && touches;
            if joins {
                whole.start = whole.start.min(other.lock.start);
                whole.end = whole.end.max(other.lock.end);
            }
            !joins
        });
        self.ranges.push(Owned {
            process,
            lock: whole,
        });
        Ok(())
    }

    /// Frees a range; ENOLCK where what is left would be too many.
    pub(super) fn unlock(&mut self, process: Process, start: u64, end: u64) -> Result<(), Errno> {
        let is_inside = |other: &Owned| {
            other.process == process && other.lock.start < start && end < other.lock.end
        };
        // Only one range can be cut in two, and then no other one is in the way.
        if self.ranges.iter().any(is_inside)
            && (self.ranges.len() >= MOST || self.ranges.try_reserve(1).is_err())
        {
            return Err(Errno::ENOLCK);
        }
        let mut index = 0;
        while index < self.ranges.len() {
            let Owned { process: of, lock } = self.ranges[index];
            if of != process || lock.end <= start || end <= lock.start {
                index += 1;
                continue;
            }
            let rest = [(lock.start, start), (end, lock.end)];
            let mut rest = rest.into_iter().filter(|(start, end)| start < end);
            let owned = |(start, end)| Owned {
                process,
                lock: RangeLock { start, end, ..lock },
            };
            match rest.next() {
                Some(first) => {
                    self.ranges[index] = owned(first);
                    index += 1;
                }
                None => drop(self.ranges.swap_remove(index)),
            }
            if let Some(second) = rest.next() {
                self.ranges.push(owned(second));
            }
        }
        Ok(())
    }

    /// Locks the whole file for an open file, in the place of the lock that it has. EAGAIN where
    /// another has it: then it has none any more, as on Linux.
    pub(super) fn lock_whole(&mut self, open: OpenId, exclusive: bool) -> Result<(), Errno> {
        self.unlock_whole(open);
        if self.whole.iter().any(|(_, other)| exclusive || *other) {
            return Err(Errno::EAGAIN);
        }
        if self.whole.len() >= MOST || self.whole.try_reserve(1).is_err() {
            return Err(Errno::ENOLCK);
        }
        self.whole.push((open, exclusive));
        Ok(())
    }

    /// An open file has the whole no more.
    pub(super) fn unlock_whole(&mut self, open: OpenId) {
        self.whole.retain(|(other, _)| *other != open);
    }

    /// A process has closed the file: its ranges are free, and what the open file had.
    pub(super) fn close(&mut self, process: Process, open: OpenId) {
        self.ranges.retain(|other| other.process != process);
        self.unlock_whole(open);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Process = Process(0);
    const SECOND: Process = Process(1);

    const fn range(start: u64, end: u64, writes: bool) -> RangeLock {
        RangeLock { start, end, writes }
    }

    #[test]
    fn ranges_of_a_process_are_cut_and_joined() {
        let mut locks = Locks::default();
        locks.lock(FIRST, range(0, 100, true)).unwrap();
        locks.unlock(FIRST, 40, 60).unwrap();
        assert_eq!(locks.lock(SECOND, range(40, 60, true)), Ok(()));
        for (start, end) in [(30, 41), (59, 70), (0, u64::MAX)] {
            let refused = locks.lock(SECOND, range(start, end, false));
            assert_eq!(refused, Err(Errno::EAGAIN), "{start} to {end}");
        }
        locks.unlock(SECOND, 0, u64::MAX).unwrap();
        locks.lock(FIRST, range(40, 60, true)).unwrap();
        assert_eq!(locks.ranges.len(), 1);
        let told = locks.conflict(SECOND, range(99, 200, false));
        assert_eq!(told, Some(range(0, 100, true)));
        assert_eq!(locks.conflict(SECOND, range(100, 200, true)), None);
    }

    #[test]
    fn readers_share_and_a_close_frees() {
        let mut locks = Locks::default();
        locks.lock(FIRST, range(0, 10, false)).unwrap();
        locks.lock(SECOND, range(5, 20, false)).unwrap();
        assert_eq!(locks.lock(FIRST, range(0, 6, true)), Err(Errno::EAGAIN));
        locks.close(SECOND, OpenId(7));
        locks.lock(FIRST, range(0, 6, true)).unwrap();
    }

    #[test]
    fn an_open_file_has_the_whole_alone_or_with_readers() {
        let mut locks = Locks::default();
        locks.lock_whole(OpenId(1), false).unwrap();
        locks.lock_whole(OpenId(2), false).unwrap();
        assert_eq!(locks.lock_whole(OpenId(1), true), Err(Errno::EAGAIN));
        locks.unlock_whole(OpenId(2));
        locks.lock_whole(OpenId(1), true).unwrap();
        assert_eq!(locks.lock_whole(OpenId(2), false), Err(Errno::EAGAIN));
        locks.close(FIRST, OpenId(1));
        locks.lock_whole(OpenId(2), false).unwrap();
    }

    #[test]
    fn there_are_not_more_than_the_most() {
        let mut locks = Locks::default();
        let many = (0..MOST as u64).map(|at| locks.lock(FIRST, range(2 * at, 2 * at + 1, true)));
        let refused = many.filter(|locked| *locked == Err(Errno::ENOLCK)).count();
        assert!(locks.ranges.len() <= MOST && refused > 0);
    }
}
