//! The envelope of datagrams between ranks: 8 bytes before the body, a tag of 8 bytes behind it.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 2 | magic `HR` |
//! | 2 | 1 | protocol version ([`VERSION`]) |
//! | 3 | 1 | kind, 80 to 82 |
//! | 4 | 1 | the lowest byte of the job |
//! | 5 | 3 | bits 0 to 16: the sender's rank; 22: a message; 23: the last packet of its block; others 0 |
//! | 8 | n | body |
//! | 8+n | 8 | SipHash-2-4 of everything before it and the receiver's rank (u32) |
//!
//! Half of a data datagram's bytes beyond its packet were things that both ends know: the job,
//! which has a key of its own, the receiver, the length. Here the key and the tag vouch for them,
//! and they are not sent. The first four bytes are those of every datagram, so that who shares a
//! port with others finds its own.
//!
//! Neighbour: [`super::wire`] has the bodies. The decision:
//! `docs/adr/0032-ranks-have-an-envelope-of-their-own.md`.
//!
//! Invariant: what opens was sealed by a rank of the same job, member list and version, for this
//! rank.

use super::MAX_RANKS;
use crate::MAX_DATAGRAM;
use crate::ids::{JobId, Rank};
use crate::wire::Error;
use crate::wire::datagram::{Kind, MAGIC, VERSION};
use crate::wire::field::{Reader, Writer};
use crate::wire::key::Key;

/// Bytes before the body.
pub const HEAD: usize = 8;
/// Bytes of the tag: what is checked packet by packet at the rate of a link cannot carry 16.
pub const TAG: usize = 8;
/// Bits of the sender's rank.
const RANK_BITS: u32 = 17;
/// The block is a message.
const MESSAGE: u32 = 1 << 22;
/// The packet is the last of its block.
const LAST: u32 = 1 << 23;

const _: () = assert!(MAX_RANKS == 1 << RANK_BITS);

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
    is_exchange(datagram) && datagram.get(4) == Some(&(job.0 as u8))
}

/// Writes a datagram to the front of `out`, which has [`MAX_DATAGRAM`] bytes; `body` gives the
/// length of what it put in its place. None when it could not. `key` is that of the job.
pub fn seal(
    key: &Key,
    job: JobId,
    head: Head,
    to: Rank,
    out: &mut [u8],
    body: impl FnOnce(&mut [u8]) -> Option<usize>,
) -> Option<usize> {
    let out = &mut out[..MAX_DATAGRAM];
    let end = HEAD + body(&mut out[HEAD..MAX_DATAGRAM - TAG])?;
    let mut sender = head.from.0;
    if head.is_message {
        sender |= MESSAGE;
    }
    if head.is_last {
        sender |= LAST;
    }
    let mut writer = Writer::new(&mut out[..HEAD]);
    writer.bytes(&MAGIC).u8(VERSION).u8(head.kind as u8);
    writer.u32(sender << 8 | u32::from(job.0 as u8));
    let tag = tag(key, to, &out[..end]);
    out[end..end + TAG].copy_from_slice(&tag);
    Some(end + TAG)
}

fn tag(key: &Key, to: Rank, sealed: &[u8]) -> [u8; TAG] {
    key.short_mac(&[sealed, &to.0.to_le_bytes()])
}

/// Head and body of a datagram of this job for this rank.
///
/// # Errors
/// It is none: the tag tells, and the error does not say what else was wrong.
pub fn open<'a>(
    key: &Key,
    job: JobId,
    me: Rank,
    bytes: &'a [u8],
) -> Result<(Head, &'a [u8]), Error> {
    let (sealed, found) = bytes.split_last_chunk::<TAG>().ok_or(Error::Truncated)?;
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
    let (kind, word) = (reader.u8()?, reader.u32()?);
    if word as u8 != job.0 as u8 {
        return Err(Error::BadTag);
    }
    let expected = u64::from_le_bytes(tag(key, me, sealed));
    if core::hint::black_box(expected ^ u64::from_le_bytes(*found)) != 0 {
        return Err(Error::BadTag);
    }
    let sender = word >> 8;
    if sender & !(LAST | MESSAGE) >= MAX_RANKS {
        return Err(Error::BadValue);
    }
    let head = Head {
        kind: Kind::from_wire(kind)?,
        from: Rank(sender & (MAX_RANKS - 1)),
        is_message: sender & MESSAGE != 0,
        is_last: sender & LAST != 0,
    };
    Ok((head, reader.rest()))
}
