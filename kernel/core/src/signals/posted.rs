//! Signals for threads that run, until each comes into the kernel and finds them.
//!
//! Invariant: what is taken here has room with its thread: [`Posted::put`] refuses what
//! [`Queue`](super::queue::Queue) would refuse.

use alloc::vec::Vec;

use super::info::Info;
use super::queue::{REAL_TIME_ROOM, SendError, set_of};
use super::set::REAL_TIME_MIN;
use crate::threads::Tid;

/// A signal for a thread.
#[derive(Clone, Copy, Debug)]
struct Entry {
    tid: Tid,
    signal: u64,
    info: Info,
}

/// The signals of all threads that run.
#[derive(Clone, Debug, Default)]
pub struct Posted(Vec<Entry>);

impl Posted {
    /// Adds a signal for a thread for which `waiting` others wait already. Number 0 only asks
    /// whether it could be done.
    pub fn put(
        &mut self,
        tid: Tid,
        signal: u64,
        info: Info,
        waiting: usize,
    ) -> Result<(), SendError> {
        if set_of(signal)?.is_none() {
            return Ok(());
        }
        let own = self.0.iter().filter(|entry| entry.tid == tid);
        if signal < REAL_TIME_MIN {
            if own.clone().any(|entry| entry.signal == signal) {
                return Ok(());
            }
        } else if waiting + own.count() >= REAL_TIME_ROOM {
            return Err(SendError::Full);
        }
        self.0.push(Entry { tid, signal, info });
        Ok(())
    }

    /// Whether there is none for any thread.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes the first signal of a thread.
    pub fn take(&mut self, tid: Tid) -> Option<(u64, Info)> {
        let index = self.0.iter().position(|entry| entry.tid == tid)?;
        let Entry { signal, info, .. } = self.0.remove(index);
        Some((signal, info))
    }

    /// A thread is no more.
    pub fn forget(&mut self, tid: Tid) {
        self.0.retain(|entry| entry.tid != tid);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Program, Thread, WAITING_MAX};
    use super::*;

    fn tid(number: u64) -> Tid {
        Tid::new(number).unwrap()
    }

    #[test]
    fn what_is_put_aside_has_room_with_its_thread() {
        let program = Program::new();
        let mut thread = Thread::new(u64::MAX);
        for signal in (40..60).chain([10, 12]) {
            program.send_to(&mut thread, signal, Info::KERNEL).unwrap();
        }
        let mut posted = Posted::default();
        let (mut taken, mut refused) = (0, 0);
        for round in 0..WAITING_MAX as u64 {
            match posted.put(tid(1), 33 + round % 3, Info::KERNEL, thread.waiting()) {
                Ok(()) => taken += 1,
                Err(why) => {
                    assert_eq!(why, SendError::Full);
                    refused += 1;
                }
            }
        }
        assert_eq!((taken, refused), (REAL_TIME_ROOM - 22, WAITING_MAX - taken));
        // Another thread has its own room; signals below 32 always have some.
        posted.put(tid(2), 33, Info::KERNEL, 0).unwrap();
        for signal in (1..32).chain(1..32) {
            posted
                .put(tid(1), signal, Info::KERNEL, thread.waiting())
                .unwrap();
        }
        while let Some((signal, info)) = posted.take(tid(1)) {
            assert_eq!(program.send_to(&mut thread, signal, info), Ok(()));
        }
        assert_eq!(posted.take(tid(2)).map(|(signal, _)| signal), Some(33));
        assert!(posted.take(tid(2)).is_none());
    }

    #[test]
    fn what_is_no_signal_is_refused() {
        let mut posted = Posted::default();
        assert_eq!(posted.put(tid(1), 0, Info::KERNEL, 0), Ok(()));
        assert!(posted.take(tid(1)).is_none());
        let refused = posted.put(tid(1), 65, Info::KERNEL, 0);
        assert_eq!(refused, Err(SendError::NoSuchSignal));
        posted.put(tid(1), 64, Info::KERNEL, 0).unwrap();
        posted.forget(tid(1));
        assert!(posted.take(tid(1)).is_none());
    }
}
