//! Messages of casts as datagrams: kinds 64 to 78.
//!
//! All but DATA are sealed in the envelope of [`crate::wire::envelope`], whose
//! node number is the sender's number among the members and whose epoch is the cast; the payload
//! begins with the sender's MAC address. DATA has the first 24 bytes of that envelope and no tag:
//! its bytes are checked against the object's own hash tree ([`super::hashes`]). Where that finds
//! a block wrong, anybody may have sent it: its asker wants it once more in DATA that is sealed as
//! everything else is.
//!
//! Neighbours: [`super::message`] has what comes out; `docs/protocol.md` has every byte.
//!
//! Invariant: no input panics, and what is returned keeps every bound that its types state.

mod peers;
mod setup;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};

use super::event::{EndReason, FailReason};
use super::message::{
    Answer, Blocks, MAX_HELD, MAX_NAMED, MAX_RANGES, MemberIndex, Message, PAGE_PEERS, Packet,
    Range, Report, Setup, Standing, WantedBlock, Wants,
};
use super::{MAX_BLOCK_LOG2, MAX_MEMBERS, Peer};
use crate::ids::{BootEpoch, CastId, NodeId};
use crate::page::FRAGMENT;
use crate::time::{Instant, Micros};
use crate::wire::Error;
use crate::wire::datagram::{self, HEADER_LEN, Header, Kind};
use crate::wire::envelope::{Envelopes, MAX_PAYLOAD, OVERHEAD};
use crate::wire::field::{Reader, Writer};
use crate::wire::join::flag;

/// Bytes that DATA adds to a fragment: an envelope without a tag.
pub const DATA_OVERHEAD: usize = HEADER_LEN;
/// Bytes of a peer: IPv4 address, UDP port, MAC address.
const PEER_LEN: usize = 12;
/// Bytes of a sender's MAC address before every sealed payload.
const MAC_LEN: usize = 6;
/// Bytes that say which fragment it is, where the sequence number does not.
const PIECE_LEN: usize = 8;
/// What DATA that is sealed adds to a fragment.
pub const SEALED_OVERHEAD: usize = OVERHEAD + MAC_LEN + PIECE_LEN;
/// Pages of the largest roster.
const MAX_PAGES: u32 = MAX_MEMBERS.div_ceil(PAGE_PEERS);
/// Most fragments of a block.
const MAX_FRAGMENTS: u32 = (1_u32 << MAX_BLOCK_LOG2).div_ceil(FRAGMENT as u32);

/// In the bitmap of wanted fragments: a program waits for the block.
const URGENT: u64 = 1 << 63;
/// In the same: what comes is to be sealed.
const SEALED: u64 = 1 << 62;

const _: () = assert!(MAX_FRAGMENTS <= SEALED.trailing_zeros());
const _: () = assert!(FRAGMENT + DATA_OVERHEAD <= crate::MAX_DATAGRAM);
const _: () = assert!(FRAGMENT + SEALED_OVERHEAD <= crate::MAX_DATAGRAM);
const _: () = assert!(MAC_LEN + 4 + peers::MOST_BYTES <= MAX_PAYLOAD);
const _: () = assert!(PAGE_PEERS <= u8::MAX as u32 && MAX_RANGES <= u8::MAX as usize);
const _: () = assert!(MAC_LEN + 16 + MAX_RANGES * 8 + MAX_NAMED * (5 + 8) <= MAX_PAYLOAD);

/// The datagram is for a [`super::Member`] or a [`super::Source`]. Anything else is for the
/// endpoints that share their socket.
pub fn is_cast(datagram: &[u8]) -> bool {
    matches!(datagram, [a, b, _, kind, ..] if [*a, *b] == datagram::MAGIC && (64..80).contains(kind))
}

/// Writes a message, any but DATA, to the front of `out`, which has [`crate::MAX_DATAGRAM`] bytes;
/// gives its length. The announcement must fit, see [`announce_fits`].
pub fn emit(
    envelopes: &mut Envelopes,
    now: Instant,
    to: SocketAddrV4,
    packet: &Packet,
    out: &mut [u8],
) -> usize {
    let header = Header {
        kind: kind_of(&packet.message),
        node: NodeId(packet.from.0),
        epoch: BootEpoch(packet.cast.0),
        seq: 0,
    };
    envelopes.seal(now, to, header, out, |writer| {
        writer.bytes(&packet.mac);
        emit_message(&packet.message, writer);
    })
}

/// Which fragment of which block a DATA datagram brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Number of the block.
    pub block: u32,
    /// Number of the fragment in it.
    pub fragment: u8,
    /// How long the request waited at the sender; [`MAX_HELD`] and more are written alike.
    pub held: Micros,
}

impl Piece {
    fn word(self) -> u64 {
        let held = self.held.min(MAX_HELD).0;
        held << 40 | u64::from(self.fragment) << 32 | u64::from(self.block)
    }
}

/// The message of which this is a piece, and the bytes of its fragment.
fn parse_piece(word: u64, data: &[u8], sealed: bool) -> Result<Message, Error> {
    let fragment = word >> 32 & 0xff;
    let possible =
        fragment < u64::from(MAX_FRAGMENTS) && !data.is_empty() && data.len() <= FRAGMENT;
    match possible {
        true => Ok(Message::Data {
            block: word as u32,
            fragments: 1 << fragment,
            held: Micros(word >> 40),
            sealed,
        }),
        false => Err(Error::BadValue),
    }
}

/// Writes a DATA datagram with a fragment of `length` bytes, which `fill` puts in its
/// place. Gives the datagram's length; None when `fill` had no such bytes after all.
pub fn emit_data(
    cast: CastId,
    from: MemberIndex,
    piece: Piece,
    length: usize,
    out: &mut [u8],
    fill: impl FnOnce(&mut [u8]) -> bool,
) -> Option<usize> {
    assert!(length <= FRAGMENT, "a fragment is larger than the limit");
    let header = Header {
        kind: Kind::CastData,
        node: NodeId(from.0),
        epoch: BootEpoch(cast.0),
        seq: piece.word(),
    };
    datagram::emit_bulk(header, length, out, fill)
}

/// The same, sealed for `to`. `sender` has a number among the members and an Ethernet address.
pub fn emit_sealed_data(
    (envelopes, now, to): (&mut Envelopes, Instant, SocketAddrV4),
    cast: CastId,
    (from, mac): (MemberIndex, [u8; MAC_LEN]),
    piece: Piece,
    length: usize,
    out: &mut [u8],
    fill: impl FnOnce(&mut [u8]) -> bool,
) -> Option<usize> {
    let mut data = [0; FRAGMENT];
    let data = &mut data[..length];
    if !fill(data) {
        return None;
    }
    let header = Header {
        kind: Kind::CastSealedData,
        node: NodeId(from.0),
        epoch: BootEpoch(cast.0),
        seq: 0,
    };
    let sealed = envelopes.seal(now, to, header, out, |writer| {
        writer.bytes(&mac).u64(piece.word()).bytes(data);
    });
    Some(sealed)
}

/// Reads a datagram: the message, and for DATA its one fragment.
///
/// # Errors
/// It is malformed, of another kind, not sealed for this station by that one, or was opened before.
pub fn parse<'a>(
    envelopes: &mut Envelopes,
    now: Instant,
    from: SocketAddrV4,
    bytes: &'a [u8],
) -> Result<(Packet, Option<&'a [u8]>), Error> {
    if let Some((header, data)) = datagram::parse_bulk(bytes)? {
        if header.kind != Kind::CastData {
            return Err(Error::BadKind(header.kind as u8));
        }
        let message = parse_piece(header.seq, data, false)?;
        return Ok((packet(&header, [0; 6], message), Some(data)));
    }
    let (header, payload) = envelopes.open(now, from, bytes)?;
    let mut reader = Reader::new(payload);
    // A kind of another protocol has no MAC address; it is refused before anything is read.
    if !is_cast(bytes) || header.kind == Kind::CastData {
        return Err(Error::BadKind(header.kind as u8));
    }
    let mac = reader.array()?;
    if header.kind == Kind::CastSealedData {
        let (word, data) = (reader.u64()?, reader.rest());
        let message = parse_piece(word, data, true)?;
        return Ok((packet(&header, mac, message), Some(data)));
    }
    let message = parse_message(header.kind, &mut reader)?;
    reader.finish()?;
    Ok((packet(&header, mac, message), None))
}

fn packet(header: &Header, mac: [u8; 6], message: Message) -> Packet {
    Packet {
        cast: CastId(header.epoch.0),
        from: MemberIndex(header.node.0),
        mac,
        message,
    }
}

/// The announcement of this cast fits a datagram, with its roster if it has one.
pub fn announce_fits(setup: &Setup) -> bool {
    MAC_LEN + setup::ANNOUNCE_LEN + setup::length(setup) <= MAX_PAYLOAD
}

impl Message {
    /// Bytes of the UDP payload; of DATA all its datagrams without the fragments themselves.
    pub fn wire_bytes(&self) -> usize {
        let payload = match self {
            Message::Announce { setup, .. } => setup::ANNOUNCE_LEN + setup::length(setup),
            Message::Unknown => 0,
            Message::Probe { .. } | Message::ReportAck { .. } | Message::EndAck { .. } => 4,
            Message::End { .. } | Message::AnnounceAck { .. } => 5,
            Message::RosterRead { pages: blocks } | Message::Cancel(blocks) => blocks_len(blocks),
            Message::RosterPage { peers, .. } => 4 + peers::length(peers),
            Message::Request(wants) => 1 + wants.iter().count() * 12,
            Message::Answer { blocks, .. } => 1 + blocks_len(blocks),
            Message::Report(report) => {
                16 + report.done.len() * 8 + report.failed.len() * 5 + report.corrupt.len() * 8
            }
            Message::Data {
                fragments, sealed, ..
            } => return fragments.count_ones() as usize * data_overhead(*sealed),
        };
        OVERHEAD + MAC_LEN + payload
    }
}

/// What a datagram of DATA adds to its fragment.
pub(super) fn data_overhead(sealed: bool) -> usize {
    match sealed {
        true => SEALED_OVERHEAD,
        false => DATA_OVERHEAD,
    }
}

fn blocks_len(blocks: &Blocks) -> usize {
    1 + blocks.as_slice().len() * 4
}

fn kind_of(message: &Message) -> Kind {
    match message {
        Message::Announce { .. } => Kind::CastAnnounce,
        Message::AnnounceAck { .. } => Kind::CastAnnounceAck,
        Message::Probe { .. } => Kind::CastProbe,
        Message::Unknown => Kind::CastUnknown,
        Message::RosterRead { .. } => Kind::CastRosterRead,
        Message::RosterPage { .. } => Kind::CastRosterPage,
        Message::Request(_) => Kind::CastRequest,
        Message::Answer { .. } => Kind::CastAnswer,
        Message::Cancel(_) => Kind::CastCancel,
        Message::Data { sealed: false, .. } => Kind::CastData,
        Message::Data { sealed: true, .. } => Kind::CastSealedData,
        Message::Report(_) => Kind::CastReport,
        Message::ReportAck { .. } => Kind::CastReportAck,
        Message::End { .. } => Kind::CastEnd,
        Message::EndAck { .. } => Kind::CastEndAck,
    }
}

fn emit_message(message: &Message, writer: &mut Writer<'_>) {
    match message {
        Message::Announce {
            index,
            number,
            clock,
            leaf,
            setup,
        } => {
            writer.u32(*number).u32(index.0).u64(*clock);
            writer.u8((*leaf).into());
            setup::emit(setup, writer);
        }
        Message::AnnounceAck { number, standing } => {
            writer.u32(*number).u8(match standing {
                Standing::Elsewhere => 0,
                Standing::Child => 1,
                Standing::NoRoom => 2,
            });
        }
        Message::Probe { number } | Message::ReportAck { number } | Message::EndAck { number } => {
            writer.u32(*number);
        }
        Message::Unknown => {}
        Message::RosterRead { pages } => emit_blocks(pages, writer),
        Message::RosterPage { page, peers } => {
            writer.u32(*page);
            peers::emit(peers, writer);
        }
        Message::Request(wants) => {
            writer.u8(wants.iter().count() as u8);
            for wanted in wants.iter() {
                let urgent = u64::from(wanted.urgent) * URGENT;
                let sealed = u64::from(wanted.sealed) * SEALED;
                writer
                    .u32(wanted.block)
                    .u64(wanted.fragments | urgent | sealed);
            }
        }
        Message::Answer { answer, blocks } => {
            writer.u8(match answer {
                Answer::Parked => 1,
                Answer::Busy => 2,
                Answer::NotHere => 3,
                Answer::Queued => 4,
            });
            emit_blocks(blocks, writer);
        }
        Message::Cancel(blocks) => emit_blocks(blocks, writer),
        Message::Data { .. } => panic!("DATA is written fragment by fragment"),
        Message::Report(report) => emit_report(report, writer),
        Message::End { number, reason } => {
            writer.u32(*number).u8(match reason {
                EndReason::Finished => 1,
                // Nobody who abandoned a cast has anybody to tell.
                EndReason::Cancelled | EndReason::Abandoned => 2,
            });
        }
    }
}

fn parse_message(kind: Kind, reader: &mut Reader<'_>) -> Result<Message, Error> {
    Ok(match kind {
        Kind::CastAnnounce => {
            let (number, index) = (reader.u32()?, reader.u32()?);
            let (clock, leaf) = (reader.u64()?, flag(reader.u8()?)?);
            let setup = setup::parse(reader)?;
            // Those that join late have numbers beyond the announced ones.
            if index >= MAX_MEMBERS {
                return Err(Error::BadValue);
            }
            Message::Announce {
                index: MemberIndex(index),
                number,
                clock,
                leaf,
                setup: Arc::new(setup),
            }
        }
        Kind::CastAnnounceAck => Message::AnnounceAck {
            number: reader.u32()?,
            standing: match reader.u8()? {
                0 => Standing::Elsewhere,
                1 => Standing::Child,
                2 => Standing::NoRoom,
                _ => return Err(Error::BadValue),
            },
        },
        Kind::CastProbe => Message::Probe {
            number: reader.u32()?,
        },
        Kind::CastUnknown => Message::Unknown,
        Kind::CastRosterRead => {
            let pages = parse_blocks(reader)?;
            if pages.as_slice().iter().any(|page| *page >= MAX_PAGES) {
                return Err(Error::BadValue);
            }
            Message::RosterRead { pages }
        }
        Kind::CastRosterPage => {
            let page = reader.u32()?;
            if page >= MAX_PAGES {
                return Err(Error::BadValue);
            }
            let peers = peers::parse(reader)?.into();
            Message::RosterPage { page, peers }
        }
        Kind::CastRequest => Message::Request(parse_wants(reader)?),
        Kind::CastAnswer => Message::Answer {
            answer: match reader.u8()? {
                1 => Answer::Parked,
                2 => Answer::Busy,
                3 => Answer::NotHere,
                4 => Answer::Queued,
                _ => return Err(Error::BadValue),
            },
            blocks: parse_blocks(reader)?,
        },
        Kind::CastCancel => Message::Cancel(parse_blocks(reader)?),
        Kind::CastReport => Message::Report(Arc::new(parse_report(reader)?)),
        Kind::CastReportAck => Message::ReportAck {
            number: reader.u32()?,
        },
        Kind::CastEnd => Message::End {
            number: reader.u32()?,
            reason: match reader.u8()? {
                1 => EndReason::Finished,
                2 => EndReason::Cancelled,
                _ => return Err(Error::BadValue),
            },
        },
        Kind::CastEndAck => Message::EndAck {
            number: reader.u32()?,
        },
        other => return Err(Error::BadKind(other as u8)),
    })
}

fn emit_blocks(blocks: &Blocks, writer: &mut Writer<'_>) {
    let blocks = blocks.as_slice();
    writer.u8(blocks.len() as u8);
    for block in blocks {
        writer.u32(*block);
    }
}

/// At least one block, and no more than a message names.
fn parse_blocks(reader: &mut Reader<'_>) -> Result<Blocks, Error> {
    let mut blocks = Blocks::default();
    for _ in 0..reader.u8()? {
        if !blocks.push(reader.u32()?) {
            return Err(Error::BadValue);
        }
    }
    match blocks.as_slice() {
        [] => Err(Error::BadValue),
        _ => Ok(blocks),
    }
}

fn parse_wants(reader: &mut Reader<'_>) -> Result<Wants, Error> {
    let mut wants = Wants::default();
    for _ in 0..reader.u8()? {
        let (block, flags) = (reader.u32()?, reader.u64()?);
        let fragments = flags & !(URGENT | SEALED);
        let possible = fragments != 0 && fragments >> MAX_FRAGMENTS == 0;
        let wanted = WantedBlock {
            block,
            fragments,
            urgent: flags & URGENT != 0,
            sealed: flags & SEALED != 0,
        };
        if !possible || !wants.push(wanted) {
            return Err(Error::BadValue);
        }
    }
    match wants.is_empty() {
        true => Err(Error::BadValue),
        false => Ok(wants),
    }
}

fn emit_peer(peer: &Peer, writer: &mut Writer<'_>) {
    writer.bytes(&peer.addr.ip().octets()).u16(peer.addr.port());
    writer.bytes(&peer.mac);
}

fn parse_peer(reader: &mut Reader<'_>) -> Result<Peer, Error> {
    let (ip, port) = (Ipv4Addr::from(reader.array::<4>()?), reader.u16()?);
    if port == 0 {
        return Err(Error::BadValue);
    }
    Ok(Peer {
        addr: SocketAddrV4::new(ip, port),
        mac: reader.array()?,
    })
}

fn parse_peers(reader: &mut Reader<'_>, count: usize) -> Result<Vec<Peer>, Error> {
    let mut peers = Vec::with_capacity(count);
    for _ in 0..count {
        peers.push(parse_peer(reader)?);
    }
    Ok(peers)
}

fn emit_report(report: &Report, writer: &mut Writer<'_>) {
    let fits = report.done.len() <= MAX_RANGES
        && report.failed.len() <= MAX_NAMED
        && report.corrupt.len() <= MAX_NAMED;
    assert!(fits, "a report names more than fits");
    writer.u32(report.number).u64(report.boot.0);
    writer.u8(report.all.into());
    writer
        .u8(report.done.len() as u8)
        .u8(report.failed.len() as u8)
        .u8(report.corrupt.len() as u8);
    for range in &report.done {
        writer.u32(range.first).u32(range.last);
    }
    for (member, reason) in &report.failed {
        writer.u32(member.0).u8(match reason {
            FailReason::NoRoom => 1,
            FailReason::Refused => 2,
            FailReason::TimedOut => 3,
            FailReason::Dead => 4,
            FailReason::Invalid => 5,
        });
    }
    for (member, blocks) in &report.corrupt {
        writer.u32(member.0).u32(*blocks);
    }
}

fn parse_report(reader: &mut Reader<'_>) -> Result<Report, Error> {
    let mut report = Report {
        number: reader.u32()?,
        boot: BootEpoch(reader.u64()?),
        all: flag(reader.u8()?)?,
        ..Report::default()
    };
    let [done, failed, corrupt] = reader.array::<3>()?.map(usize::from);
    if done > MAX_RANGES || failed > MAX_NAMED || corrupt > MAX_NAMED {
        return Err(Error::BadValue);
    }
    report.done.reserve_exact(done);
    for _ in 0..done {
        let (first, last) = (reader.u32()?, reader.u32()?);
        if first > last || last == MemberIndex::SOURCE.0 {
            return Err(Error::BadValue);
        }
        report.done.push(Range { first, last });
    }
    report.failed.reserve_exact(failed);
    for _ in 0..failed {
        let member = MemberIndex(reader.u32()?);
        let reason = match reader.u8()? {
            1 => FailReason::NoRoom,
            2 => FailReason::Refused,
            3 => FailReason::TimedOut,
            4 => FailReason::Dead,
            5 => FailReason::Invalid,
            _ => return Err(Error::BadValue),
        };
        report.failed.push((member, reason));
    }
    report.corrupt.reserve_exact(corrupt);
    for _ in 0..corrupt {
        report
            .corrupt
            .push((MemberIndex(reader.u32()?), reader.u32()?));
    }
    Ok(report)
}

#[cfg(test)]
mod tests;
