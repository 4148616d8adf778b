//! Robust mutexes: what becomes of those that a thread has when it ends.
//!
//! A thread keeps a list of them in its own memory. [`Walk`] says which words of memory are to be
//! read and which mutexes to be looked at, and reads nothing itself, so that it can stop while a
//! page is fetched. [`Mutex::after_death`] says what becomes of one.
//!
//! Source: Linux, `kernel/futex/core.c` (`exit_robust_list`, `handle_futex_death`).
//!
//! Invariant: a walk ends after [`futex::ROBUST_LIST_LIMIT`] entries, whatever lies in memory.

use crate::threads::Tid;
use hearth_abi::linux::futex;

/// Bytes of the list's head.
pub const HEAD_BYTES: usize = futex::ROBUST_HEAD_BYTES as usize;
/// Lowest bit of an entry: the mutex lends its priority (PI).
const PI: u64 = 1;

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Read 8 bytes at this address, for [`Walk::read`].
    Read(u64),
    /// Look at this mutex, then [`Walk::looked_at`].
    Mutex(Mutex),
    /// That was all.
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// The entry's link is read.
    Link,
    /// The entry is looked at. Behind it comes another, unless its link could not be read.
    Entry(Option<u64>),
    /// The mutex that the thread was about to take or to give back is looked at.
    Pending,
    Done,
}

/// A walk along the list of a thread.
#[derive(Clone, Debug)]
pub struct Walk {
    head: u64,
    /// From an entry to the mutex's word.
    offset: u64,
    pending: u64,
    entry: u64,
    left: u32,
    at: At,
}

impl Walk {
    /// Along the list whose head lies at `address` and has these bytes.
    pub fn new(address: u64, head: &[u8; HEAD_BYTES]) -> Self {
        let word =
            |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
        let mut walk = Self {
            head: address,
            offset: word(8),
            pending: word(16),
            entry: word(0),
            left: futex::ROBUST_LIST_LIMIT,
            at: At::Done,
        };
        walk.begin_entry();
        walk
    }

    /// What is to be done now: the same until it is answered.
    pub fn step(&self) -> Step {
        match self.at {
            At::Link => Step::Read(self.entry & !PI),
            At::Entry(_) => Step::Mutex(self.mutex(self.entry, false)),
            At::Pending => Step::Mutex(self.mutex(self.pending, true)),
            At::Done => Step::Done,
        }
    }

    /// After [`Step::Read`]: what lies there, `None` where nothing can be read.
    pub fn read(&mut self, word: Option<u64>) {
        if self.at != At::Link {
            return;
        }
        self.at = At::Entry(word);
        // It is looked at last, and once.
        if self.entry & !PI == self.pending & !PI {
            self.end_entry(word);
        } else {
            self.check();
        }
    }

    /// After [`Step::Mutex`]: whether its word could be read and written.
    pub fn looked_at(&mut self, is_whole: bool) {
        match self.at {
            At::Entry(link) if is_whole => self.end_entry(link),
            _ => self.at = At::Done,
        }
    }

    fn begin_entry(&mut self) {
        let is_end = self.entry & !PI == self.head || self.left == 0;
        self.at = match is_end {
            true if self.pending & !PI == 0 => At::Done,
            true => At::Pending,
            false => At::Link,
        };
        self.check();
    }

    fn end_entry(&mut self, link: Option<u64>) {
        match link {
            Some(entry) => {
                self.entry = entry;
                self.left -= 1;
                self.begin_entry();
            }
            None => self.at = At::Done,
        }
    }

    /// A mutex that lies where none can ends the walk.
    fn check(&mut self) {
        if let Step::Mutex(mutex) = self.step()
            && !mutex.address.is_multiple_of(4)
        {
            self.at = At::Done;
        }
    }

    fn mutex(&self, entry: u64, is_pending: bool) -> Mutex {
        Mutex {
            address: (entry & !PI).wrapping_add(self.offset),
            is_pending,
            is_pi: entry & PI != 0,
        }
    }
}

/// A mutex of a thread that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mutex {
    /// Where its word lies: a multiple of 4, and nothing else is known of it.
    pub address: u64,
    is_pending: bool,
    is_pi: bool,
}

/// What becomes of a mutex.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AfterDeath {
    /// What its word holds now: to be put there if it still holds what it did.
    pub new: Option<u32>,
    /// Whether one that waits for it is woken.
    pub wakes: bool,
}

impl Mutex {
    /// After the death of thread `tid`, where the word holds `value`.
    pub const fn after_death(&self, value: u32, tid: Tid) -> AfterDeath {
        let owner = value & futex::TID_MASK;
        // The thread gave it back and ended before it woke another, or one that it had woken
        // ended before it took it.
        if self.is_pending && !self.is_pi && owner == 0 {
            return AfterDeath {
                new: None,
                wakes: true,
            };
        }
        if owner != tid.number() {
            return AfterDeath {
                new: None,
                wakes: false,
            };
        }
        AfterDeath {
            new: Some(value & futex::WAITERS | futex::OWNER_DIED),
            wakes: !self.is_pi && value & futex::WAITERS != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const HEAD: u64 = 0x1000;
    const OFFSET: u64 = (-32i64) as u64;

    fn head(next: u64, offset: u64, pending: u64) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        for (place, word) in bytes.chunks_exact_mut(8).zip([next, offset, pending]) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Addresses of the mutexes that a walk looks at, with whether it is the pending one.
    fn walked(memory: &BTreeMap<u64, u64>, next: u64, pending: u64) -> Vec<(u64, bool)> {
        let mut walk = Walk::new(HEAD, &head(next, OFFSET, pending));
        let mut found = Vec::new();
        loop {
            assert_eq!(walk.step(), walk.step());
            match walk.step() {
                Step::Read(address) => walk.read(memory.get(&address).copied()),
                Step::Mutex(mutex) => {
                    found.push((mutex.address, mutex.is_pending));
                    walk.looked_at(true);
                }
                Step::Done => return found,
            }
        }
    }

    #[test]
    fn a_list_is_walked_to_its_head_and_the_pending_one_comes_last() {
        let memory = BTreeMap::from([(0x2000, 0x3000), (0x3000, 0x4001), (0x4000, HEAD)]);
        let list = [(0x1fe0, false), (0x2fe0, false), (0x3fe0, false)];
        assert_eq!(walked(&memory, 0x2000, 0), list);
        let with_pending = [&list[..], &[(0x4fe0, true)]].concat();
        assert_eq!(walked(&memory, 0x2000, 0x5000), with_pending);
        // One that is in the list and pending is looked at once.
        let once = [(0x1fe0, false), (0x3fe0, false), (0x2fe0, true)];
        assert_eq!(walked(&memory, 0x2000, 0x3000), once);
        assert_eq!(walked(&memory, HEAD, 0), []);
        assert_eq!(walked(&memory, HEAD, 0x5000), [(0x4fe0, true)]);
    }

    #[test]
    fn a_circle_ends() {
        let memory = BTreeMap::from([(0x2000, 0x2000)]);
        let found = walked(&memory, 0x2000, 0x5000);
        assert_eq!(found.len(), futex::ROBUST_LIST_LIMIT as usize + 1);
        assert_eq!(found.last(), Some(&(0x4fe0, true)));
    }

    #[test]
    fn a_list_that_leads_nowhere_ends() {
        let memory = BTreeMap::from([(0x2000, 0x3000)]);
        // The link of the second cannot be read: it is still looked at, as on Linux.
        let both = [(0x1fe0, false), (0x2fe0, false)];
        assert_eq!(walked(&memory, 0x2000, 0x5000), both);
        let memory = BTreeMap::from([(0x2000, 0x3002), (0x3002, HEAD)]);
        assert_eq!(walked(&memory, 0x2000, 0x5000), [(0x1fe0, false)]);
        assert_eq!(walked(&memory, HEAD, 0x5002), []);

        let mut walk = Walk::new(HEAD, &head(0x2000, OFFSET, 0x5000));
        walk.looked_at(true);
        assert_eq!(walk.step(), Step::Done, "an answer that was not asked for");
        let mut walk = Walk::new(HEAD, &head(0x2000, OFFSET, 0x5000));
        walk.read(Some(0x3000));
        walk.looked_at(false);
        assert_eq!(walk.step(), Step::Done);
    }

    #[test]
    fn the_next_owner_hears_that_the_last_one_died() {
        let tid = Tid::new(42).unwrap();
        let mutex = |is_pending, is_pi| Mutex {
            address: 0x1000,
            is_pending,
            is_pi,
        };
        let dead = |new, wakes| AfterDeath { new, wakes };
        let listed = mutex(false, false);
        assert_eq!(listed.after_death(42, tid), dead(Some(0x4000_0000), false));
        let waited_for = 0x8000_0000 | 42;
        assert_eq!(
            listed.after_death(waited_for, tid),
            dead(Some(0xc000_0000), true)
        );
        // Of another thread, or of none.
        for value in [43, 0, 0x8000_0000, 0x4000_0000] {
            assert_eq!(listed.after_death(value, tid), AfterDeath::default());
        }
        // Given back, but nobody was woken yet.
        let pending = mutex(true, false);
        assert_eq!(pending.after_death(0, tid), dead(None, true));
        assert_eq!(pending.after_death(43, tid), AfterDeath::default());
        assert_eq!(
            pending.after_death(waited_for, tid),
            dead(Some(0xc000_0000), true)
        );
        // Nobody waits for a PI mutex by the word's queue.
        let pi = mutex(true, true);
        assert_eq!(pi.after_death(0, tid), AfterDeath::default());
        assert_eq!(
            pi.after_death(waited_for, tid),
            dead(Some(0xc000_0000), false)
        );
    }
}
