//! A pipe: bytes that come out in the order in which they went in.
//!
//! Invariant: at most its capacity of bytes wait in it; the room is there from the start, so that
//! no write needs memory.

use alloc::collections::VecDeque;

use super::Edges;
use crate::files::ready::Ready;
use hearth_abi::errno::Errno;

/// Bytes that go in whole or not at all.
pub const ATOMIC_BYTES: usize = 4096;

/// An end of a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Where bytes come out.
    Read,
    /// Where they go in.
    Write,
}

/// A pipe.
#[derive(Clone, Debug)]
pub struct Pipe {
    bytes: VecDeque<u8>,
    capacity: usize,
    /// Whether its ends are open.
    is_read: bool,
    is_written: bool,
    /// Of the end where bytes come out, and of the other.
    read_edges: Edges,
    write_edges: Edges,
}

impl Pipe {
    /// An empty one with both ends open; ENOMEM where there is no room.
    pub fn new(capacity: usize) -> Result<Self, Errno> {
        let mut bytes = VecDeque::new();
        let room = bytes.try_reserve_exact(capacity);
        room.map_err(|_| Errno::ENOMEM)?;
        Ok(Self {
            bytes,
            capacity,
            is_read: true,
            is_written: true,
            read_edges: Edges::default(),
            write_edges: Edges::default(),
        })
    }

    /// Bytes that it can hold.
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Takes as many of the bytes as there is room for, or none unless all have room where they are
    /// to stay `together`; how many. EAGAIN where it takes none, EPIPE where nobody will read them.
    pub fn write(&mut self, bytes: &[u8], together: bool) -> Result<usize, Errno> {
        if !self.is_read {
            return Err(Errno::EPIPE);
        }
        let room = self.room();
        let taken = bytes.len().min(room);
        if taken == 0 || together && taken < bytes.len() {
            return Err(Errno::EAGAIN);
        }
        self.bytes.extend(&bytes[..taken]);
        self.read_edges.read += 1;
        Ok(taken)
    }

    /// Bytes that can be read; 0 is the end. EAGAIN where there may be some later.
    pub fn readable(&self) -> Result<usize, Errno> {
        match self.bytes.len() {
            0 if self.is_written => Err(Errno::EAGAIN),
            waiting => Ok(waiting),
        }
    }

    /// Bytes that it has.
    pub fn held(&self) -> usize {
        self.bytes.len()
    }

    /// Copies bytes that stay, behind the first `skip`; `out` is not longer than what is there.
    pub fn peek(&self, skip: usize, out: &mut [u8]) {
        let (first, second) = self.bytes.as_slices();
        let from_first = first.get(skip..).unwrap_or(&[]);
        let (left, right) = out.split_at_mut(out.len().min(from_first.len()));
        left.copy_from_slice(&from_first[..left.len()]);
        let skip = skip.saturating_sub(first.len());
        right.copy_from_slice(&second[skip..][..right.len()]);
    }

    /// Takes bytes out that were read.
    pub fn consume(&mut self, count: usize) {
        let was_ready = self.has_room();
        self.bytes.drain(..count);
        // As on Linux a writer hears of room only where there was none before.
        self.write_edges.write += u64::from(!was_ready && self.has_room());
    }

    /// Closes an end.
    pub fn close(&mut self, end: End) {
        match end {
            End::Read => self.is_read = false,
            End::Write => self.is_written = false,
        }
        self.read_edges.end += 1;
        self.write_edges.end += 1;
    }

    /// Whether nobody has it any more.
    pub const fn is_closed(&self) -> bool {
        !self.is_read && !self.is_written
    }

    /// What an end is ready for.
    pub fn ready(&self, end: End) -> Ready {
        match end {
            End::Read => {
                let read = Ready::READ.when(!self.bytes.is_empty());
                read.or(Ready::HANGUP.when(!self.is_written))
            }
            End::Write => {
                let write = Ready::WRITE.when(self.has_room());
                write.or(Ready::ERROR.when(!self.is_read))
            }
        }
    }

    /// What has come about at an end.
    pub const fn edges(&self, end: End) -> Edges {
        match end {
            End::Read => self.read_edges,
            End::Write => self.write_edges,
        }
    }

    fn room(&self) -> usize {
        self.capacity - self.bytes.len()
    }

    /// Whether bytes that go in together have room.
    fn has_room(&self) -> bool {
        self.room() >= ATOMIC_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;

    fn read(pipe: &mut Pipe, most: usize) -> Vec<u8> {
        let count = pipe.readable().map_or(0, |there| there.min(most));
        let mut out = vec![0; count];
        pipe.peek(0, &mut out);
        pipe.consume(count);
        out
    }

    #[test]
    fn short_writes_go_in_whole_or_not_at_all() {
        let mut pipe = Pipe::new(ATOMIC_BYTES).unwrap();
        assert_eq!(pipe.write(&[1; 4000], true), Ok(4000));
        assert_eq!(pipe.write(&[2; 97], true), Err(Errno::EAGAIN));
        assert_eq!(pipe.write(&[2; 97], false), Ok(96));
        assert_eq!(pipe.write(&[3], false), Err(Errno::EAGAIN));
        assert_eq!(read(&mut pipe, 5000)[3999..], [&[1][..], &[2; 96]].concat());
    }

    #[test]
    fn ends_that_are_closed_are_told() {
        let mut pipe = Pipe::new(ATOMIC_BYTES).unwrap();
        assert_eq!(pipe.readable(), Err(Errno::EAGAIN));
        assert_eq!(pipe.ready(End::Read), Ready::NONE);
        assert_eq!(pipe.ready(End::Write), Ready::WRITE);
        pipe.write(b"last", true).unwrap();
        pipe.close(End::Write);
        assert_eq!(pipe.ready(End::Read), Ready::READ.or(Ready::HANGUP));
        assert_eq!(read(&mut pipe, 9), b"last");
        assert_eq!(pipe.readable(), Ok(0));
        assert_eq!(pipe.ready(End::Read), Ready::HANGUP);
        assert!(!pipe.is_closed());
        pipe.close(End::Read);
        assert!(pipe.is_closed());

        let mut pipe = Pipe::new(ATOMIC_BYTES).unwrap();
        pipe.close(End::Read);
        assert_eq!(pipe.write(b"lost", true), Err(Errno::EPIPE));
        assert_eq!(pipe.ready(End::Write), Ready::WRITE.or(Ready::ERROR));
    }

    #[test]
    fn edges_come_with_each_write_and_with_room_where_there_was_none() {
        let mut pipe = Pipe::new(2 * ATOMIC_BYTES).unwrap();
        let seen = (pipe.edges(End::Read), pipe.edges(End::Write));
        pipe.write(&[0; 100], true).unwrap();
        assert_ne!(pipe.edges(End::Read), seen.0);
        read(&mut pipe, 50);
        assert_eq!(pipe.edges(End::Write), seen.1, "there was room");
        pipe.write(&[0; ATOMIC_BYTES], true).unwrap();
        assert_eq!(pipe.ready(End::Write), Ready::NONE);
        read(&mut pipe, ATOMIC_BYTES);
        assert_ne!(pipe.edges(End::Write), seen.1);
    }

    proptest! {
        /// What comes out is what went in, whatever the pieces are.
        #[test]
        fn bytes_come_out_in_their_order(
            steps in prop::collection::vec((any::<bool>(), 1..3000usize), 1..100)
        ) {
            let mut pipe = Pipe::new(ATOMIC_BYTES).unwrap();
            let (mut sent, mut received) = (0u32, 0u32);
            let byte = |number: u32| (number % 251) as u8;
            for (writes, count) in steps {
                if writes {
                    let bytes: Vec<u8> = (sent..).map(byte).take(count).collect();
                    let waiting = (sent - received) as usize;
                    match pipe.write(&bytes, false) {
                        Ok(taken) => sent += taken as u32,
                        Err(why) => prop_assert_eq!((why, waiting), (Errno::EAGAIN, ATOMIC_BYTES)),
                    }
                } else {
                    for found in read(&mut pipe, count) {
                        prop_assert_eq!(found, byte(received));
                        received += 1;
                    }
                }
                prop_assert!((sent - received) as usize <= ATOMIC_BYTES);
            }
        }
    }
}
