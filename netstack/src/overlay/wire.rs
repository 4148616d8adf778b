//! Overlay messages as datagrams: all sealed in the envelope of [`crate::wire::envelope`].
//!
//! The envelope's node and boot are the sender's. Every payload begins with the sender's MAC
//! address (6 bytes), the tree (8), the sender's and the receiver's slot (1 each).
//! `docs/protocol.md` has the layouts.
//!
//! Invariant: no frame is longer than [`MAX_FRAME`], and no input panics or is read beyond its end.

use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};

use super::fixed::Fixed;
use super::message::{
    Attach, AttachAck, AttachAnswer, BUILD_ENTRIES, Beat, Build, BuildEntry, CENSUS_ENTRIES,
    Candidate, CensusEntry, Hello, MAX_CANDIDATES, Message, Packet, Process, Standing, TreeEpoch,
    TreeState,
};
use super::stream::StreamId;
use super::{MAX_CPS, MAX_FRAME, MAX_HEIGHT};
use crate::broadcast::Peer;
use crate::ids::{BootEpoch, JobId, NodeId};
use crate::time::Instant;
use crate::wire::Error;
use crate::wire::datagram::{self, Header, Kind};
use crate::wire::envelope::{Envelopes, OVERHEAD};
use crate::wire::field::{Reader, Writer};
use crate::wire::join::flag;

mod spec;
#[cfg(test)]
mod tests;

/// Bytes before the fields of a message: MAC address, tree, two slots.
pub const PREFIX_LEN: usize = 6 + 8 + 2;
/// Bytes of a [`Standing`].
pub const STANDING_LEN: usize = 4 + 8 + 1 + 2 + 4 + 4 + 4 + 8 + 8 + 8 + 4;
/// Bytes of sections that a REPORT carries at most.
pub const SECTIONS_ROOM: usize = MAX_FRAME - OVERHEAD - PREFIX_LEN - STANDING_LEN;

const CANDIDATE_LEN: usize = 5 + 12 + 1 + 2;
const BUILD_LEN: usize = CANDIDATE_LEN + 1 + 2 + 2 + 1 + BUILD_ENTRIES * 19;
const CENSUS_LEN: usize = 5 + CENSUS_ENTRIES * 64;
const KIN_LEN: usize = 4 + 8 + 8 + 8 + 2 + 2 * MAX_CANDIDATES * CANDIDATE_LEN;

const _: () = assert!(super::section::MAX_SECTION <= SECTIONS_ROOM);
const _: () = assert!(OVERHEAD + PREFIX_LEN + BUILD_LEN <= MAX_FRAME);
const _: () = assert!(OVERHEAD + PREFIX_LEN + CENSUS_LEN <= MAX_FRAME);
const _: () = assert!(OVERHEAD + PREFIX_LEN + KIN_LEN <= MAX_FRAME);
const _: () = assert!(OVERHEAD + PREFIX_LEN + spec::MAX_LEN <= MAX_FRAME);

/// The datagram is for a [`super::Node`] or a [`super::FrontEnd`]. Anything else is for the
/// endpoints that share their socket.
pub fn is_overlay(datagram: &[u8]) -> bool {
    matches!(datagram, [a, b, _, kind, ..] if [*a, *b] == datagram::MAGIC && (96..112).contains(kind))
}

/// Writes a message to the front of `out`, which has [`crate::MAX_DATAGRAM`] bytes; gives its
/// length.
pub fn emit(
    envelopes: &mut Envelopes,
    now: Instant,
    to: SocketAddrV4,
    packet: &Packet,
    out: &mut [u8],
) -> usize {
    let header = Header {
        kind: kind_of(&packet.message),
        node: packet.from.node,
        epoch: packet.boot,
        seq: 0,
    };
    let length = envelopes.seal(now, to, header, out, |writer| {
        writer.bytes(&packet.mac).u64(packet.tree.0);
        writer.u8(packet.from.slot).u8(packet.to_slot);
        emit_message(&packet.message, writer);
    });
    assert!(length <= MAX_FRAME, "a frame of {length} bytes");
    length
}

/// Reads a datagram.
///
/// # Errors
/// It is malformed, of another kind, not sealed for this station by that one, or was opened before.
pub fn parse(
    envelopes: &mut Envelopes,
    now: Instant,
    from: SocketAddrV4,
    bytes: &[u8],
) -> Result<Packet, Error> {
    let (header, payload) = envelopes.open(now, from, bytes)?;
    if !is_overlay(bytes) {
        return Err(Error::BadKind(header.kind as u8));
    }
    let mut reader = Reader::new(payload);
    let mac = reader.array()?;
    let tree = TreeEpoch(reader.u64()?);
    let from = process_of(header.node, reader.u8()?)?;
    let to_slot = slot(reader.u8()?)?;
    let message = parse_message(header.kind, &mut reader)?;
    reader.finish()?;
    Ok(Packet {
        from,
        boot: header.epoch,
        mac,
        to_slot,
        tree,
        message,
    })
}

fn kind_of(message: &Message) -> Kind {
    match message {
        Message::Hello(_) => Kind::OverlayHello,
        Message::HelloAck { .. } => Kind::OverlayHelloAck,
        Message::Build(_) => Kind::OverlayBuild,
        Message::BuildAck { .. } => Kind::OverlayBuildAck,
        Message::Attach(_) => Kind::OverlayAttach,
        Message::AttachAck(_) => Kind::OverlayAttachAck,
        Message::Report { .. } => Kind::OverlayReport,
        Message::Beat(_) => Kind::OverlayBeat,
        Message::Stream { .. } => Kind::OverlayStream,
        Message::StreamAck { .. } => Kind::OverlayStreamAck,
        Message::Detach { .. } => Kind::OverlayDetach,
        Message::TakeDown => Kind::OverlayTakeDown,
        Message::Taken { .. } => Kind::OverlayTaken,
        Message::Census { .. } => Kind::OverlayCensus,
        Message::CensusAck { .. } => Kind::OverlayCensusAck,
    }
}

fn emit_message(message: &Message, writer: &mut Writer<'_>) {
    match message {
        Message::Hello(hello) => {
            writer.u8(hello.back_end.into()).u8(hello.cps);
            writer.u32(hello.auxiliary).u64(JobId::to_wire(hello.job));
            hello.factors.iter().for_each(|factor| {
                writer.i64(factor.0);
            });
        }
        Message::HelloAck { state, candidates } => {
            writer.u8(match state {
                TreeState::Waiting => 1,
                TreeState::Up => 2,
                TreeState::Down => 3,
            });
            emit_candidates(candidates, writer);
        }
        Message::Build(build) => emit_build(build, writer),
        Message::BuildAck { next, refused } => {
            writer.u16(*next).u8((*refused).into());
        }
        Message::Attach(attach) => {
            writer.u32(attach.link).u8(attach.height).u16(attach.room);
            let flags = bit(attach.quiet, ATTACH_QUIET) | bit(attach.moved, ATTACH_MOVED);
            writer.u8(flags).u64(attach.time);
        }
        Message::AttachAck(ack) => {
            writer.u32(ack.link).u8(match ack.answer {
                AttachAnswer::Taken => 1,
                AttachAnswer::Full => 2,
                AttachAnswer::NotBelow => 3,
                AttachAnswer::Loose => 4,
                AttachAnswer::Gone => 5,
            });
            writer
                .u16(ack.index)
                .u16(ack.shift)
                .u64(ack.echo)
                .u64(ack.overlay)
                .u32(ack.trip_us);
            emit_candidates(&ack.kin, writer);
        }
        Message::Report { standing, sections } => {
            emit_standing(standing, writer);
            writer.bytes(sections);
        }
        Message::Beat(beat) => {
            writer
                .u32(beat.link)
                .u64(beat.echo)
                .u64(beat.overlay)
                .u32(beat.trip_us)
                .u64(beat.received);
            emit_candidates(&beat.kin, writer);
            emit_candidates(&beat.siblings, writer);
        }
        Message::Stream { id, version, spec } => {
            writer.u16(id.0).u32(*version).u8(spec.is_some().into());
            if let Some(spec) = spec {
                spec::emit(spec, writer);
            }
        }
        Message::StreamAck { id, version } => {
            writer.u16(id.0).u32(*version);
        }
        Message::Detach { link } => {
            writer.u32(*link);
        }
        Message::TakeDown => {}
        Message::Taken { standing } => emit_standing(standing, writer),
        Message::Census { number, entries } => {
            assert!(
                entries.len() <= CENSUS_ENTRIES,
                "a census names more than fits"
            );
            writer.u32(*number).u8(entries.len() as u8);
            entries.iter().for_each(|entry| emit_entry(entry, writer));
        }
        Message::CensusAck { number } => {
            writer.u32(*number);
        }
    }
}

fn parse_message(kind: Kind, reader: &mut Reader<'_>) -> Result<Message, Error> {
    Ok(match kind {
        Kind::OverlayHello => Message::Hello(Hello {
            back_end: flag(reader.u8()?)?,
            cps: slot(reader.u8()?)?,
            auxiliary: reader.u32()?,
            job: JobId::from_wire(reader.u64()?),
            factors: [
                Fixed(reader.i64()?),
                Fixed(reader.i64()?),
                Fixed(reader.i64()?),
                Fixed(reader.i64()?),
            ],
        }),
        Kind::OverlayHelloAck => Message::HelloAck {
            state: match reader.u8()? {
                1 => TreeState::Waiting,
                2 => TreeState::Up,
                3 => TreeState::Down,
                _ => return Err(Error::BadValue),
            },
            candidates: parse_candidates(reader)?,
        },
        Kind::OverlayBuild => Message::Build(parse_build(reader)?),
        Kind::OverlayBuildAck => Message::BuildAck {
            next: reader.u16()?,
            refused: flag(reader.u8()?)?,
        },
        Kind::OverlayAttach => Message::Attach(parse_attach(reader)?),
        Kind::OverlayAttachAck => Message::AttachAck(parse_attach_ack(reader)?),
        Kind::OverlayReport => Message::Report {
            standing: parse_standing(reader)?,
            sections: match reader.rest() {
                sections if sections.len() <= SECTIONS_ROOM => sections.to_vec(),
                _ => return Err(Error::BadValue),
            },
        },
        Kind::OverlayBeat => Message::Beat(Beat {
            link: reader.u32()?,
            echo: reader.u64()?,
            overlay: reader.u64()?,
            trip_us: reader.u32()?,
            received: reader.u64()?,
            kin: parse_candidates(reader)?,
            siblings: parse_candidates(reader)?,
        }),
        Kind::OverlayStream => Message::Stream {
            id: StreamId(reader.u16()?),
            version: reader.u32()?,
            spec: match flag(reader.u8()?)? {
                true => Some(spec::parse(reader)?),
                false => None,
            },
        },
        Kind::OverlayStreamAck => Message::StreamAck {
            id: StreamId(reader.u16()?),
            version: reader.u32()?,
        },
        Kind::OverlayDetach => Message::Detach {
            link: reader.u32()?,
        },
        Kind::OverlayTakeDown => Message::TakeDown,
        Kind::OverlayTaken => Message::Taken {
            standing: parse_standing(reader)?,
        },
        Kind::OverlayCensus => {
            let number = reader.u32()?;
            let count = usize::from(reader.u8()?);
            if !(1..=CENSUS_ENTRIES).contains(&count) {
                return Err(Error::BadValue);
            }
            let mut entries = Vec::with_capacity(count);
            for _ in 0..count {
                entries.push(parse_entry(reader)?);
            }
            Message::Census { number, entries }
        }
        Kind::OverlayCensusAck => Message::CensusAck {
            number: reader.u32()?,
        },
        other => return Err(Error::BadKind(other as u8)),
    })
}

fn slot(raw: u8) -> Result<u8, Error> {
    if raw > MAX_CPS {
        return Err(Error::BadValue);
    }
    Ok(raw)
}

fn height(raw: u8) -> Result<u8, Error> {
    if raw > MAX_HEIGHT {
        return Err(Error::BadValue);
    }
    Ok(raw)
}

fn process_of(node: NodeId, raw: u8) -> Result<Process, Error> {
    let process = Process {
        node,
        slot: slot(raw)?,
    };
    if node == Process::FRONT_END.node && raw != 0 {
        return Err(Error::BadValue);
    }
    Ok(process)
}

fn parse_process(reader: &mut Reader<'_>) -> Result<Process, Error> {
    let node = NodeId(reader.u32()?);
    process_of(node, reader.u8()?)
}

fn emit_process(process: Process, writer: &mut Writer<'_>) {
    writer.u32(process.node.0).u8(process.slot);
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

fn emit_candidate(candidate: &Candidate, writer: &mut Writer<'_>) {
    emit_process(candidate.process, writer);
    emit_peer(&candidate.peer, writer);
    writer.u8(candidate.height).u16(candidate.room);
}

fn parse_candidate(reader: &mut Reader<'_>) -> Result<Candidate, Error> {
    Ok(Candidate {
        process: parse_process(reader)?,
        peer: parse_peer(reader)?,
        height: height(reader.u8()?)?,
        room: reader.u16()?,
    })
}

fn emit_candidates(candidates: &[Candidate], writer: &mut Writer<'_>) {
    assert!(
        candidates.len() <= MAX_CANDIDATES,
        "more candidates than fit"
    );
    writer.u8(candidates.len() as u8);
    candidates
        .iter()
        .for_each(|candidate| emit_candidate(candidate, writer));
}

fn parse_candidates(reader: &mut Reader<'_>) -> Result<Vec<Candidate>, Error> {
    let count = usize::from(reader.u8()?);
    if count > MAX_CANDIDATES {
        return Err(Error::BadValue);
    }
    let mut candidates = Vec::with_capacity(count);
    for _ in 0..count {
        candidates.push(parse_candidate(reader)?);
    }
    Ok(candidates)
}

fn emit_build(build: &Build, writer: &mut Writer<'_>) {
    assert!(
        build.entries.len() <= BUILD_ENTRIES,
        "a part has more than fits"
    );
    emit_candidate(&build.parent, writer);
    writer.u8(build.height).u16(build.part).u16(build.parts);
    writer.u8(build.entries.len() as u8);
    for entry in &build.entries {
        writer.u8(entry.depth).u8(entry.height);
        emit_process(entry.process, writer);
        emit_peer(&entry.peer, writer);
    }
}

fn parse_build(reader: &mut Reader<'_>) -> Result<Build, Error> {
    let mut build = Build {
        parent: parse_candidate(reader)?,
        height: height(reader.u8()?)?,
        part: reader.u16()?,
        parts: reader.u16()?,
        entries: Vec::new(),
    };
    let count = usize::from(reader.u8()?);
    let sound =
        build.part < build.parts && count <= BUILD_ENTRIES && build.height < build.parent.height;
    if !sound {
        return Err(Error::BadValue);
    }
    build.entries.reserve_exact(count);
    for _ in 0..count {
        let (depth, own) = (reader.u8()?, height(reader.u8()?)?);
        if !(1..=MAX_HEIGHT).contains(&depth) || own >= build.height {
            return Err(Error::BadValue);
        }
        build.entries.push(BuildEntry {
            depth,
            height: own,
            process: parse_process(reader)?,
            peer: parse_peer(reader)?,
        });
    }
    Ok(build)
}

const ATTACH_QUIET: u8 = 1;
const ATTACH_MOVED: u8 = 2;

fn bit(set: bool, bit: u8) -> u8 {
    if set { bit } else { 0 }
}

fn parse_attach(reader: &mut Reader<'_>) -> Result<Attach, Error> {
    let (link, height, room) = (reader.u32()?, height(reader.u8()?)?, reader.u16()?);
    let flags = reader.u8()?;
    if flags & !(ATTACH_QUIET | ATTACH_MOVED) != 0 {
        return Err(Error::BadValue);
    }
    Ok(Attach {
        link,
        height,
        room,
        quiet: flags & ATTACH_QUIET != 0,
        moved: flags & ATTACH_MOVED != 0,
        time: reader.u64()?,
    })
}

fn parse_attach_ack(reader: &mut Reader<'_>) -> Result<AttachAck, Error> {
    Ok(AttachAck {
        link: reader.u32()?,
        answer: match reader.u8()? {
            1 => AttachAnswer::Taken,
            2 => AttachAnswer::Full,
            3 => AttachAnswer::NotBelow,
            4 => AttachAnswer::Loose,
            5 => AttachAnswer::Gone,
            _ => return Err(Error::BadValue),
        },
        index: reader.u16()?,
        shift: reader.u16()?,
        echo: reader.u64()?,
        overlay: reader.u64()?,
        trip_us: reader.u32()?,
        kin: parse_candidates(reader)?,
    })
}

const ANSWER: u8 = 1;
const QUIET: u8 = 2;

fn emit_standing(standing: &Standing, writer: &mut Writer<'_>) {
    let flags = bit(standing.answer, ANSWER) | bit(standing.quiet, QUIET);
    writer
        .u32(standing.link)
        .u64(standing.time)
        .u8(flags)
        .u16(standing.room);
    writer
        .u32(standing.back_ends)
        .u32(standing.quiet_below)
        .u32(standing.cps);
    writer
        .u64(standing.handed)
        .u64(standing.submitted)
        .u64(standing.dropped);
    writer.u32(standing.lag_us);
}

fn parse_standing(reader: &mut Reader<'_>) -> Result<Standing, Error> {
    let (link, time, flags) = (reader.u32()?, reader.u64()?, reader.u8()?);
    if flags & !(ANSWER | QUIET) != 0 {
        return Err(Error::BadValue);
    }
    Ok(Standing {
        link,
        time,
        answer: flags & ANSWER != 0,
        quiet: flags & QUIET != 0,
        room: reader.u16()?,
        back_ends: reader.u32()?,
        quiet_below: reader.u32()?,
        cps: reader.u32()?,
        handed: reader.u64()?,
        submitted: reader.u64()?,
        dropped: reader.u64()?,
        lag_us: reader.u32()?,
    })
}

const GONE: u8 = 1;
const FINAL: u8 = 2;
const ENTRY_QUIET: u8 = 4;
const OWN: u8 = 8;
const REFUSED: u8 = 16;
const EARLIER: u8 = 32;

fn emit_entry(entry: &CensusEntry, writer: &mut Writer<'_>) {
    emit_process(entry.process, writer);
    writer.u64(entry.boot.0);
    emit_process(entry.parent, writer);
    writer.u32(entry.link);
    let ended = bit(entry.gone, GONE) | bit(entry.last, FINAL) | bit(entry.refused, REFUSED);
    let said = bit(entry.quiet, ENTRY_QUIET) | bit(entry.own, OWN) | bit(entry.earlier, EARLIER);
    writer.u8(ended | said);
    writer.u8(entry.height).u32(entry.back_ends);
    writer.u64(entry.submitted).u64(entry.dropped);
    writer
        .u64(entry.handed)
        .u64(entry.received)
        .u32(entry.lag_us);
}

fn parse_entry(reader: &mut Reader<'_>) -> Result<CensusEntry, Error> {
    let process = parse_process(reader)?;
    let boot = BootEpoch(reader.u64()?);
    let parent = parse_process(reader)?;
    let link = reader.u32()?;
    let flags = reader.u8()?;
    if flags & !(GONE | FINAL | ENTRY_QUIET | OWN | REFUSED | EARLIER) != 0 {
        return Err(Error::BadValue);
    }
    Ok(CensusEntry {
        process,
        boot,
        parent,
        link,
        gone: flags & GONE != 0,
        last: flags & FINAL != 0,
        quiet: flags & ENTRY_QUIET != 0,
        own: flags & OWN != 0,
        earlier: flags & EARLIER != 0,
        refused: flags & REFUSED != 0,
        height: height(reader.u8()?)?,
        back_ends: reader.u32()?,
        submitted: reader.u64()?,
        dropped: reader.u64()?,
        handed: reader.u64()?,
        received: reader.u64()?,
        lag_us: reader.u32()?,
    })
}
