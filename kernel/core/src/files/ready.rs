//! What descriptors are ready for, as poll, select and epoll ask.
//!
//! Files and standard streams are always ready: a read or write of a stream may still wait, as on a
//! pipe that somebody else reads too. Pipes and event counters are ready when a read or write would
//! not wait.
//!
//! Key types: [`Ready`], [`Sets`]. Neighbours: [`super::channels`] says it of pipes, `epoll` in
//! this folder asks for those it watches, `kernel::process::calls` copies the sets and waits.

use hearth_abi::errno::Errno;
use hearth_abi::linux::poll;

use super::channels::{Channel, Edges, State};
use super::{Descriptors, Opened};

/// Descriptors that a set of select may have, and its words.
pub const SET_BITS: u64 = 1024;
const SET_WORDS: usize = SET_BITS as usize / 64;

/// What a descriptor is ready for: bits of `hearth_abi::linux::poll`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready(u32);

impl Ready {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// A read.
    pub const READ: Self = Self(poll::IN | poll::RDNORM);
    /// A write.
    pub const WRITE: Self = Self(poll::OUT | poll::WRNORM);
    /// A write fails: nobody reads.
    pub const ERROR: Self = Self(poll::ERR);
    /// A read finds the end behind what is there: nobody writes.
    pub const HANGUP: Self = Self(poll::HUP);
    /// There is no such descriptor.
    pub const INVALID: Self = Self(poll::NVAL);

    /// From its bits; others mean nothing here.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits & 0xffff)
    }

    /// Its bits.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Either.
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// This where something holds, else nothing.
    pub const fn when(self, holds: bool) -> Self {
        match holds {
            true => self,
            false => Self::NONE,
        }
    }

    /// What of it is told to who wants `wanted`: errors and the end always are.
    pub const fn among(self, wanted: Self) -> Self {
        Self(self.0 & (wanted.0 | poll::ERR | poll::HUP | poll::NVAL))
    }

    /// Whether it is nothing.
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// What the three sets of select show. No descriptor has anything exceptional.
    const fn selected(self) -> [bool; 3] {
        let reads = self.0 & (poll::IN | poll::HUP | poll::ERR) != 0;
        let writes = self.0 & (poll::OUT | poll::ERR) != 0;
        [reads, writes, false]
    }
}

impl Descriptors {
    /// What a descriptor is ready for; EBADF when it is not open.
    pub fn ready(&self, fd: u64) -> Result<Ready, Errno> {
        Ok(self.state(self.get(fd)?.opened).0)
    }

    /// What something open is ready for, and what has come about there.
    pub(super) fn state(&self, opened: Opened) -> State {
        match opened {
            Opened::Stream(stream) => {
                let ready = match stream {
                    0 => Ready::READ.when(!self.channels.awaits_input()),
                    _ => Ready::WRITE,
                };
                (ready, self.channels.stream_edges(stream))
            }
            Opened::Place(_) | Opened::Shipped(_) | Opened::Temporary(..) => {
                (Ready::READ.or(Ready::WRITE), Edges::default())
            }
            Opened::Channel(id, side) => match self.channels.get(id) {
                Some(Channel::Epoll(watches)) => {
                    let state = |description| self.state_of(description);
                    let ready = Ready::READ.when(watches.is_ready(state));
                    (ready, Edges::default())
                }
                _ => self.channels.state(id, side),
            },
        }
    }

    /// What select answers for three sets: those that are ready, and how many bits that are. EBADF
    /// when one of the descriptors is not open.
    pub fn select(&self, asked: &Sets) -> Result<(Sets, u64), Errno> {
        let mut found = Sets::default();
        let mut count = 0;
        for fd in 0..SET_BITS {
            if !asked.0.iter().any(|set| set.has(fd)) {
                continue;
            }
            let ready = self.ready(fd)?.selected();
            for ((asked, found), ready) in asked.0.iter().zip(&mut found.0).zip(ready) {
                if ready && asked.has(fd) {
                    found.insert(fd);
                    count += 1;
                }
            }
        }
        Ok((found, count))
    }
}

/// A set of descriptors: a bit for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Set(pub [u64; SET_WORDS]);

impl Set {
    /// Whether a descriptor is in it.
    pub const fn has(&self, fd: u64) -> bool {
        self.0[fd as usize / 64] >> (fd % 64) & 1 == 1
    }

    fn insert(&mut self, fd: u64) {
        self.0[fd as usize / 64] |= 1 << (fd % 64);
    }

    /// Bytes of a set that has room for descriptors below `count`: whole words.
    pub const fn bytes(count: u64) -> usize {
        count.div_ceil(64) as usize * 8
    }

    /// From its bytes; only descriptors below `count` count.
    pub fn from_bytes(bytes: &[u8], count: u64) -> Self {
        let mut set = Self::default();
        for (word, bytes) in set.0.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        }
        let last = count as usize / 64;
        if let Some(word) = set.0.get_mut(last) {
            *word &= !(u64::MAX << (count % 64));
        }
        set.0.iter_mut().skip(last + 1).for_each(|word| *word = 0);
        set
    }

    /// Its bytes.
    pub fn to_bytes(&self) -> [u8; SET_WORDS * 8] {
        let mut bytes = [0; SET_WORDS * 8];
        for (place, word) in bytes.chunks_exact_mut(8).zip(self.0) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

/// What select asks: to be read, to be written, exceptional.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sets(pub [Set; 3]);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::channels::{Counter, PIPE_BYTES};
    use crate::files::{DESCRIPTORS_MAX, Place};
    use std::vec::Vec;

    fn set(of: &[u64]) -> Set {
        let mut set = Set::default();
        of.iter().for_each(|fd| set.insert(*fd));
        set
    }

    #[test]
    fn what_is_open_is_ready() {
        let mut descriptors = Descriptors::new();
        descriptors.open(Place::File(0), 0).unwrap();
        let all = set(&[0, 1, 2, 3]);
        let (found, count) = descriptors.select(&Sets([all; 3])).unwrap();
        let wanted = Sets([set(&[0, 3]), set(&[1, 2, 3]), set(&[])]);
        assert_eq!((found, count), (wanted, 5));
        let nothing = descriptors.select(&Sets::default());
        assert_eq!(nothing, Ok((Sets::default(), 0)));
        let closed = Sets([set(&[]), set(&[]), set(&[700])]);
        assert_eq!(descriptors.select(&closed), Err(Errno::EBADF));
    }

    #[test]
    fn pipes_and_counters_are_ready_when_a_call_would_not_wait() {
        let mut descriptors = Descriptors::new();
        let [read, write] = descriptors.open_pipe(0, 4096).unwrap();
        let ready = |descriptors: &Descriptors, fd| descriptors.ready(fd).unwrap();
        assert_eq!(ready(&descriptors, read), Ready::NONE);
        assert_eq!(ready(&descriptors, write), Ready::WRITE);
        descriptors.close(write).unwrap();
        assert_eq!(ready(&descriptors, read), Ready::HANGUP);
        let all = set(&[read]);
        let (found, count) = descriptors.select(&Sets([all; 3])).unwrap();
        assert_eq!((found.0[0], count), (all, 1));
        descriptors.close(read).unwrap();
        // Nothing is left of it.
        assert_eq!(descriptors.channels.pipe_bytes(), PIPE_BYTES);
        let counter = Counter::new(0, false);
        let counter = descriptors.open_counter(counter, 0).unwrap();
        assert_eq!(counter, read, "the lowest number");
        assert_eq!(ready(&descriptors, counter), Ready::WRITE);
    }

    #[test]
    fn many_pipes_are_small_ones() {
        let mut descriptors = Descriptors::new();
        let mut sizes = Vec::new();
        loop {
            let bytes = descriptors.channels.pipe_bytes();
            if descriptors.open_pipe(0, bytes).is_err() {
                break;
            }
            sizes.push(bytes);
        }
        assert_eq!(sizes.len(), (DESCRIPTORS_MAX - 3) / 2);
        assert_eq!(sizes.iter().filter(|size| **size == PIPE_BYTES).count(), 16);
        assert!(descriptors.open_pipe(0, 4096).is_err());
        assert!(descriptors.open_epoll(0).is_ok(), "one number is left");
        assert_eq!(descriptors.open_epoll(0), Err(Errno::EMFILE));
    }

    #[test]
    fn only_descriptors_below_the_count_are_asked_for() {
        let bytes = [0xff; 128];
        for count in [0, 1, 63, 64, 65, 1000, SET_BITS] {
            let set = Set::from_bytes(&bytes[..Set::bytes(count)], count);
            let found = (0..SET_BITS).filter(|fd| set.has(*fd)).count();
            assert_eq!(found as u64, count);
            assert_eq!(Set::from_bytes(&set.to_bytes(), SET_BITS), set);
        }
        assert_eq!([0, 1, 64, 65].map(Set::bytes), [0, 8, 8, 16]);
    }
}
