//! What descriptors are ready for, as poll and select ask.
//!
//! What is open is always ready: a read or write of a stream may still wait, as on a pipe that
//! somebody else reads too.
//!
//! Key types: [`Ready`], [`Sets`]. Neighbours: `kernel::process::calls` copies the sets and waits.

use hearth_abi::errno::Errno;

use super::{Descriptors, Opened};

/// Descriptors that a set of select may have, and its words.
pub const SET_BITS: u64 = 1024;
const SET_WORDS: usize = SET_BITS as usize / 64;

/// What a descriptor is ready for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// A read.
    pub read: bool,
    /// A write.
    pub write: bool,
}

impl Descriptors {
    /// What a descriptor is ready for; EBADF when it is not open.
    pub fn ready(&self, fd: u64) -> Result<Ready, Errno> {
        let (read, write) = match self.get(fd)?.opened {
            Opened::Stream(0) => (true, false),
            Opened::Stream(_) => (false, true),
            Opened::Place(_) => (true, true),
        };
        Ok(Ready { read, write })
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
            let ready = self.ready(fd)?;
            // No descriptor has anything exceptional.
            let ready = [ready.read, ready.write, false];
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
    use crate::files::Place;

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
