//! The envelope of datagrams between ranks: 11 bytes before the body, a tag of 8 bytes behind it.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 2 | magic `HR` |
//! | 2 | 1 | protocol version ([`VERSION`]) |
//! | 3 | 1 | kind, 80 to 82 |
//! | 4 | 3 | bits 0 to 16: the sender's rank; 17 to 21: the lowest bits of the job; 22: a message; 23: the last packet of its block |
//! | 7 | 4 | the low half of the datagram's number |
//! | 11 | n | body |
//! | 11+n | 8 | [tag](crate::wire::tag) of everything before it, with the whole number and both ranks |
//!
//! Each rank numbers its datagrams to each other one from 1, with 64 bits. The receiver knows the
//! upper half, since the number is close to those that came before it (RFC 4303, section 2.2.1:
//! extended sequence numbers).
//!
//! What both ends know is not sent: the job, which has a key of its own, the receiver, the length.
//! The first four bytes are those of every datagram, so that who shares a port with others finds
//! its own.
//!
//! - [`Envelopes`]: of one rank, what it numbers and what it has taken.
//! - [`Seal`]: the key of a job, and what it makes of a datagram with a given number.
//!
//! Neighbours: [`super::wire`] has the bodies, [`crate::wire::envelope`] the numbers of a pair. The
//! decisions:
//! `docs/adr/0032-ranks-have-an-envelope-of-their-own.md`,
//! `docs/adr/0040-every-datagram-of-a-rank-has-a-number.md`.
//!
//! Invariant: what opens was sealed by a rank of the same job, member list and version, for this
//! rank, and has not been opened before. No number is used twice under a key.

use alloc::boxed::Box;

use super::MAX_RANKS;
use crate::MAX_DATAGRAM;
use crate::ids::{JobId, Rank};
use crate::wire::Error;
use crate::wire::datagram::{Kind, MAGIC, VERSION};
use crate::wire::envelope::Pair;
use crate::wire::field::{Reader, Writer};
use crate::wire::key::Key;
use crate::wire::tag::{self, TagKey};

/// Bytes before the body.
pub const HEAD: usize = 11;
/// Bytes of the tag: what is checked packet by packet at the rate of a link cannot carry 16.
pub const TAG: usize = tag::LEN;
/// Bits of a rank, and of a job behind them.
const RANK_BITS: u32 = 17;
const JOB_BITS: u32 = 5;
/// The block is a message.
const MESSAGE: u32 = 1 << 22;
/// The packet is the last of its block.
const LAST: u32 = 1 << 23;
/// Peers whose numbers are kept in one piece of memory: it is there once one of them was sent
/// something or heard.
const PEERS_TOGETHER: usize = 32;

const _: () = assert!(MAX_RANKS == 1 << RANK_BITS);
const _: () = assert!(MESSAGE == 1 << (RANK_BITS + JOB_BITS));

/// What an envelope says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// One of the kinds of exchanges.
    pub kind: Kind,
    /// Who sends it.
    pub from: Rank,
    /// Of data: the block is a message.
    pub is_message: bool,
    /// Of data: the packet is the last of its block.
    pub is_last: bool,
}

impl Head {
    /// Of a datagram that is no packet of a block.
    pub fn of(kind: Kind, from: Rank) -> Self {
        Head {
            kind,
            from,
            is_message: false,
            is_last: false,
        }
    }
}

/// The datagram is for an [`super::Endpoint`]. Anything else is for others that share its socket.
pub fn is_exchange(datagram: &[u8]) -> bool {
    matches!(datagram, [a, b, _, kind, ..] if [*a, *b] == MAGIC && (80..96).contains(kind))
}

/// The datagram may be one of this job: the key tells.
pub fn may_be_of(job: JobId, datagram: &[u8]) -> bool {
    is_exchange(datagram)
        && matches!(datagram, [_, _, _, _, a, b, c, ..] if job_in(word_of(*a, *b, *c)) == bits_of(job))
}

fn word_of(a: u8, b: u8, c: u8) -> u32 {
    u32::from_le_bytes([a, b, c, 0])
}

/// The bits of a job in a word of flags and sender.
fn job_in(word: u32) -> u32 {
    word >> RANK_BITS & ((1 << JOB_BITS) - 1)
}

fn bits_of(job: JobId) -> u32 {
    job.0 as u32 & ((1 << JOB_BITS) - 1)
}

/// The key of a job's ranks.
#[derive(Clone, Debug)]
pub struct Seal {
    key: TagKey,
    job: JobId,
}

impl Seal {
    /// Of a job, from the key that its ranks share ([`Key::exchange_key`]).
    pub fn new(key: &Key, job: JobId) -> Self {
        Seal {
            key: TagKey::new(key),
            job,
        }
    }

    /// Writes a datagram to the front of `out`, which has [`MAX_DATAGRAM`] bytes; `body` gives the
    /// length of what it put in its place. None when it could not.
    pub fn seal(
        &self,
        head: Head,
        to: Rank,
        number: u64,
        out: &mut [u8],
        body: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> Option<usize> {
        let out = &mut out[..MAX_DATAGRAM];
        let end = HEAD + body(&mut out[HEAD..MAX_DATAGRAM - TAG])?;
        let mut word = head.from.0 | bits_of(self.job) << RANK_BITS;
        if head.is_message {
            word |= MESSAGE;
        }
        if head.is_last {
            word |= LAST;
        }
        let mut writer = Writer::new(&mut out[..HEAD]);
        writer.bytes(&MAGIC).u8(VERSION).u8(head.kind as u8);
        writer.bytes(&word.to_le_bytes()[..3]).u32(number as u32);
        let tag = self.key.tag(&out[..end], number, nonce(head.from, to));
        out[end..end + TAG].copy_from_slice(&tag);
        Some(end + TAG)
    }

    /// Head, number and body of a datagram of this job for this rank. `whole` gives the number of
    /// which a sender has sent this low half.
    ///
    /// # Errors
    /// It is none: the tag tells, and the error does not say what else was wrong.
    pub fn open<'a>(
        &self,
        me: Rank,
        bytes: &'a [u8],
        whole: impl FnOnce(Rank, u32) -> u64,
    ) -> Result<(Head, u64, &'a [u8]), Error> {
        let (sealed, tag) = bytes.split_last_chunk::<TAG>().ok_or(Error::Truncated)?;
        if bytes.len() > MAX_DATAGRAM {
            return Err(Error::Truncated);
        }
        let mut reader = Reader::new(sealed);
        if reader.array::<2>()? != MAGIC {
            return Err(Error::BadMagic);
        }
        match reader.u8()? {
            VERSION => {}
            other => return Err(Error::BadVersion(other)),
        }
        let (kind, [a, b, c]) = (reader.u8()?, reader.array()?);
        let word = word_of(a, b, c);
        let from = Rank(word & (MAX_RANKS - 1));
        let number = whole(from, reader.u32()?);
        if job_in(word) != bits_of(self.job)
            || !(self.key).verify(sealed, number, nonce(from, me), tag)
        {
            return Err(Error::BadTag);
        }
        let head = Head {
            kind: Kind::from_wire(kind)?,
            from,
            is_message: word & MESSAGE != 0,
            is_last: word & LAST != 0,
        };
        Ok((head, number, reader.rest()))
    }
}

/// Who says it to whom: all ranks have the same key, and each pair counts for itself.
fn nonce(from: Rank, to: Rank) -> [u64; 1] {
    [u64::from(from.0) << 32 | u64::from(to.0)]
}

/// The envelopes of one rank: what it seals has a number that it never uses again, what it opens
/// it opens once.
#[derive(Debug)]
pub struct Envelopes {
    seal: Seal,
    me: Rank,
    /// In pieces of [`PEERS_TOGETHER`].
    peers: Box<[Option<Box<[Pair; PEERS_TOGETHER]>>]>,
    size: u32,
}

impl Envelopes {
    /// Of a rank that has sealed and opened nothing under this key, in a job of `size` ranks.
    pub fn new(seal: Seal, me: Rank, size: u32) -> Self {
        assert!(size <= MAX_RANKS, "more ranks than a job may have");
        Envelopes {
            seal,
            me,
            peers: (0..size.div_ceil(PEERS_TOGETHER as u32))
                .map(|_| None)
                .collect(),
            size,
        }
    }

    /// Whose envelopes these are.
    pub fn me(&self) -> Rank {
        self.me
    }

    /// Writes the next datagram from this rank to another, see [`Seal::seal`]. `head` may name
    /// nobody else as its sender.
    pub fn seal(
        &mut self,
        head: Head,
        to: Rank,
        out: &mut [u8],
        body: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> Option<usize> {
        assert_eq!(head.from, self.me, "another rank's number");
        let number = self.peer(to)?.next(1);
        self.seal.seal(head, to, number, out, body)
    }

    /// Head and body of a datagram of another rank for this one that was not opened before.
    ///
    /// # Errors
    /// [`Error::Replayed`] where it was, or where so many later ones were that nobody knows; else
    /// those of [`Seal::open`].
    pub fn open<'a>(&mut self, bytes: &'a [u8]) -> Result<(Head, &'a [u8]), Error> {
        let whole = |from: Rank, low| match self.known(from) {
            Some(pair) => pair.nearest(low),
            None => Pair::default().nearest(low),
        };
        let (head, number, body) = self.seal.open(self.me, bytes, whole)?;
        if head.from == self.me {
            return Err(Error::BadValue);
        }
        let peer = self.peer(head.from).ok_or(Error::BadValue)?;
        match peer.accept(number) {
            true => Ok((head, body)),
            false => Err(Error::Replayed),
        }
    }

    /// What is known of a peer that something was sealed for or opened of, or one close to it.
    fn known(&self, rank: Rank) -> Option<&Pair> {
        let piece = self.peers.get(rank.0 as usize / PEERS_TOGETHER)?;
        Some(&piece.as_deref()?[rank.0 as usize % PEERS_TOGETHER])
    }

    /// The same, from now on of any peer. None: the job has no such rank.
    fn peer(&mut self, rank: Rank) -> Option<&mut Pair> {
        if rank.0 >= self.size {
            return None;
        }
        let at = rank.0 as usize;
        let (piece, place) = (at / PEERS_TOGETHER, at % PEERS_TOGETHER);
        Some(&mut self.peers[piece].get_or_insert_default()[place])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const KEY: Key = Key([7; 16]);
    const JOB: JobId = JobId(3);
    const SIZE: u32 = 100;

    /// Of a rank that has sealed and opened nothing.
    fn of(rank: u32) -> Envelopes {
        Envelopes::new(Seal::new(&KEY, JOB), Rank(rank), SIZE)
    }

    fn sealed(from: &mut Envelopes, to: u32, body: &[u8]) -> Vec<u8> {
        let head = Head::of(Kind::ExchangeControl, from.me);
        let mut out = [0; MAX_DATAGRAM];
        let length = from.seal(head, Rank(to), &mut out, |room| {
            room[..body.len()].copy_from_slice(body);
            Some(body.len())
        });
        out[..length.unwrap()].to_vec()
    }

    #[test]
    fn a_datagram_is_opened_once_and_by_nobody_else() {
        let datagram = sealed(&mut of(1), 2, b"what");
        let mut receiver = of(2);
        let head = Head::of(Kind::ExchangeControl, Rank(1));
        assert_eq!(receiver.open(&datagram), Ok((head, &b"what"[..])));
        assert_eq!(receiver.open(&datagram), Err(Error::Replayed));
        // Nobody else, another job with the same lowest bits, another list of members.
        let others = [
            of(3),
            Envelopes::new(Seal::new(&KEY.exchange_key(JOB, 1), JOB), Rank(2), SIZE),
            Envelopes::new(Seal::new(&KEY, JobId(JOB.0 + 1)), Rank(2), SIZE),
        ];
        for mut other in others {
            assert_eq!(other.open(&datagram), Err(Error::BadTag));
        }
        // A rank has nothing to say to itself, and there are no others than those of the job.
        assert_eq!(sealed_to_itself(), Err(Error::BadValue));
        let mut stranger = Envelopes::new(Seal::new(&KEY, JOB), Rank(SIZE), SIZE + 1);
        let datagram = sealed(&mut stranger, 2, b"what");
        assert_eq!(of(2).open(&datagram), Err(Error::BadValue));
    }

    fn sealed_to_itself() -> Result<(), Error> {
        let mut envelopes = of(2);
        let datagram = sealed(&mut envelopes, 2, b"");
        envelopes.open(&datagram).map(|_| ())
    }

    #[test]
    fn the_same_said_again_is_another_datagram() {
        let (mut sender, mut receiver) = (of(1), of(2));
        let said: Vec<_> = (0..3).map(|_| sealed(&mut sender, 2, b"again")).collect();
        assert!(said[0] != said[1] && said[1] != said[2]);
        for datagram in said.iter().rev() {
            assert!(receiver.open(datagram).is_ok());
        }
        for datagram in &said {
            assert_eq!(receiver.open(datagram), Err(Error::Replayed));
        }
    }

    #[test]
    fn nothing_forged_moves_the_window() {
        let (mut sender, mut receiver) = (of(1), of(2));
        let first = sealed(&mut sender, 2, b"1");
        let mut far = first.clone();
        far[7..11].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(receiver.open(&far), Err(Error::BadTag));
        let kept = receiver.peers.iter().flatten().count();
        assert_eq!(kept, 0, "nothing is kept of it");
        assert!(receiver.open(&first).is_ok());
        far[7..11].copy_from_slice(&1000_u32.to_le_bytes());
        assert_eq!(receiver.open(&far), Err(Error::BadTag));
        assert!(receiver.open(&sealed(&mut sender, 2, b"2")).is_ok());
    }

    #[test]
    fn numbers_go_on_beyond_32_bits() {
        let (mut sender, mut receiver) = (of(1), of(2));
        let mut taken = 0;
        for begin in [0, 1 << 31, (1 << 32) - 40, 3 << 31, (2 << 32) - 40] {
            // Nothing of what came between has arrived: almost 2^31 in a row.
            sender.peer(Rank(2)).unwrap().set_sent(begin);
            for _ in 0..80 {
                let datagram = sealed(&mut sender, 2, b"");
                assert!(receiver.open(&datagram).is_ok(), "after {begin}");
                taken += 1;
            }
        }
        assert_eq!(taken, 400);
    }

    proptest! {
        #[test]
        fn whatever_is_changed_it_does_not_open(body in prop::collection::vec(any::<u8>(), 0..200), at: prop::sample::Index, bit in 0u32..8, cut: prop::sample::Index) {
            let mut datagram = sealed(&mut of(1), 2, &body);
            let mut receiver = of(2);
            prop_assert!(receiver.open(&datagram[..cut.index(datagram.len())]).is_err());
            let at = at.index(datagram.len());
            datagram[at] ^= 1 << bit;
            prop_assert!(receiver.open(&datagram).is_err());
            datagram[at] ^= 1 << bit;
            prop_assert!(receiver.open(&datagram).is_ok());
        }
    }
}
