//! The envelope of every datagram but those between ranks ([`crate::exchange::envelope`]): a header
//! of 28 bytes, the payload, a tag of 16 bytes. Between peers ([`super::envelope`]) the tag is
//! another one, of 8 bytes.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 2 | magic `HR` |
//! | 2 | 1 | protocol version ([`VERSION`]) |
//! | 3 | 1 | kind, see [`Kind`] |
//! | 4 | 4 | node number |
//! | 8 | 8 | boot epoch of the node |
//! | 16 | 8 | sequence number, strictly increasing per direction |
//! | 24 | 2 | length of the payload |
//! | 26 | 2 | flags: bit 0 = unsealed (the tag is zero), bit 1 = bulk (there is no tag) |
//! | 28 | n | payload |
//! | 28+n | 16 | SipHash-2-4-128 of everything before it |
//!
//! The first 24 bytes keep their place in every later protocol version, so that a refusal can be
//! addressed to a node that speaks another one.

use super::Error;
use super::field::{Reader, Writer};
use super::key::{Key, TAG_LEN};
use crate::MAX_DATAGRAM;
use crate::ids::{BootEpoch, NodeId};

/// First two bytes of every datagram.
pub const MAGIC: [u8; 2] = *b"HR";
/// Protocol version that this build speaks. It is one more whenever a message changes its form:
/// nodes are admitted by this number alone, whatever software they run.
pub const VERSION: u8 = 5;
/// Bytes before the payload.
pub const HEADER_LEN: usize = 28;
/// Bytes around the payload.
pub const OVERHEAD: usize = HEADER_LEN + TAG_LEN;
/// Longest payload.
pub const MAX_PAYLOAD: usize = MAX_DATAGRAM - OVERHEAD;
/// Flag: nobody vouches for this datagram, the tag is zero.
pub const FLAG_UNSEALED: u16 = 1;

/// Flag: the datagram ends with its payload, which is checked in some other way.
pub const FLAG_BULK: u16 = 2;

/// What a datagram is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Kind {
    /// Node to control: I am here, who are you?
    Hello = 1,
    /// Control to node: you are in.
    Welcome = 2,
    /// Control to node: you are not, and why.
    Refuse = 3,
    /// Node to control: alive, and how it goes.
    Heartbeat = 4,
    /// Control to node: heard.
    HeartbeatAck = 5,
    /// Node to control: goodbye. Control to node: heard.
    Leave = 6,
    /// Control to node, unsealed: I do not know your session, say HELLO.
    Resync = 7,
    /// Node to control: my kernel panicked.
    Panic = 8,
    /// Control to node: leave, please.
    AskLeave = 9,
    /// Node to control: I cannot leave, I have a job.
    Stay = 10,
    /// Control to node: launch, start, cancel, retain, drop.
    Command = 16,
    /// Node to control: how a job stands, what was dropped.
    CommandAck = 17,
    /// Node to control: these programs are held here.
    Holdings = 18,
    /// Control to node: noted.
    HoldingsAck = 19,
    /// Node to control: fragments of an object, please.
    PageRead = 32,
    /// Control to node: a fragment.
    PageData = 33,
    /// Node to control: carry out this call.
    IoCall = 48,
    /// Control to node: pending, or the result.
    IoReply = 49,
    /// Cast: control or node to node: take part in this cast, and tell the nodes below you.
    CastAnnounce = 64,
    /// Cast: answer to an announcement or a probe.
    CastAnnounceAck = 65,
    /// Cast: are you still there?
    CastProbe = 66,
    /// Cast: I do not know this cast.
    CastUnknown = 67,
    /// Cast: pages of the roster, please.
    CastRosterRead = 68,
    /// Cast: a page of the roster.
    CastRosterPage = 69,
    /// Cast: blocks, please.
    CastRequest = 70,
    /// Cast: why blocks that were asked for do not come yet, or not at all.
    CastAnswer = 71,
    /// Cast: blocks that were asked for are not wanted any more.
    CastCancel = 72,
    /// Cast: a fragment of a block, with no tag.
    CastData = 73,
    /// Cast: who has everything, who will not.
    CastReport = 74,
    /// Cast: answer to a report.
    CastReportAck = 75,
    /// Cast: the cast is over.
    CastEnd = 76,
    /// Cast: answer to the end.
    CastEndAck = 77,
    /// Cast: a fragment of a block, sealed.
    CastSealedData = 78,
    /// Exchange: a packet of a block, between two ranks of a job.
    ExchangeData = 80,
    /// Exchange: announcements, pulls and answers.
    ExchangeControl = 81,
    /// Exchange: a short message with what it holds.
    ExchangeMessage = 82,
    /// Overlay: node to front end: I am here.
    OverlayHello = 96,
    /// Overlay: front end to node: how the tree stands.
    OverlayHelloAck = 97,
    /// Overlay: parent to a process to be: attach, and build what is below you.
    OverlayBuild = 98,
    /// Overlay: answer to it.
    OverlayBuildAck = 99,
    /// Overlay: child to parent: take me.
    OverlayAttach = 100,
    /// Overlay: answer to it.
    OverlayAttachAck = 101,
    /// Overlay: child to parent: values, and how it stands.
    OverlayReport = 102,
    /// Overlay: answer to a report that wants one.
    OverlayBeat = 103,
    /// Overlay: parent to child: a stream is open, or closed.
    OverlayStream = 104,
    /// Overlay: answer to it.
    OverlayStreamAck = 105,
    /// Overlay: either way: this link is none.
    OverlayDetach = 106,
    /// Overlay: parent to child: the tree is taken down.
    OverlayTakeDown = 107,
    /// Overlay: answer to it, when everything below is down.
    OverlayTaken = 108,
    /// Overlay: child to parent: what is known of processes below.
    OverlayCensus = 109,
    /// Overlay: answer to it.
    OverlayCensusAck = 110,
    /// Node to I/O service: carry out this call on a file.
    FileCall = 112,
    /// I/O service to node: pending, or the result.
    FileReply = 113,
    /// Either way: fragments of a call's input or output, please.
    FileFetch = 114,
    /// Either way: a fragment.
    FileData = 115,
    /// Node to control: lines of my log.
    NodeLog = 120,
    /// Control to node: noted.
    NodeLogAck = 121,
}

impl Kind {
    /// The kind with this number.
    pub fn from_wire(raw: u8) -> Result<Self, Error> {
        Ok(match raw {
            1 => Kind::Hello,
            2 => Kind::Welcome,
            3 => Kind::Refuse,
            4 => Kind::Heartbeat,
            5 => Kind::HeartbeatAck,
            6 => Kind::Leave,
            7 => Kind::Resync,
            8 => Kind::Panic,
            9 => Kind::AskLeave,
            10 => Kind::Stay,
            16 => Kind::Command,
            17 => Kind::CommandAck,
            18 => Kind::Holdings,
            19 => Kind::HoldingsAck,
            32 => Kind::PageRead,
            33 => Kind::PageData,
            48 => Kind::IoCall,
            49 => Kind::IoReply,
            64 => Kind::CastAnnounce,
            65 => Kind::CastAnnounceAck,
            66 => Kind::CastProbe,
            67 => Kind::CastUnknown,
            68 => Kind::CastRosterRead,
            69 => Kind::CastRosterPage,
            70 => Kind::CastRequest,
            71 => Kind::CastAnswer,
            72 => Kind::CastCancel,
            73 => Kind::CastData,
            74 => Kind::CastReport,
            75 => Kind::CastReportAck,
            76 => Kind::CastEnd,
            77 => Kind::CastEndAck,
            78 => Kind::CastSealedData,
            80 => Kind::ExchangeData,
            81 => Kind::ExchangeControl,
            82 => Kind::ExchangeMessage,
            96 => Kind::OverlayHello,
            97 => Kind::OverlayHelloAck,
            98 => Kind::OverlayBuild,
            99 => Kind::OverlayBuildAck,
            100 => Kind::OverlayAttach,
            101 => Kind::OverlayAttachAck,
            102 => Kind::OverlayReport,
            103 => Kind::OverlayBeat,
            104 => Kind::OverlayStream,
            105 => Kind::OverlayStreamAck,
            106 => Kind::OverlayDetach,
            107 => Kind::OverlayTakeDown,
            108 => Kind::OverlayTaken,
            109 => Kind::OverlayCensus,
            110 => Kind::OverlayCensusAck,
            112 => Kind::FileCall,
            113 => Kind::FileReply,
            114 => Kind::FileFetch,
            115 => Kind::FileData,
            120 => Kind::NodeLog,
            121 => Kind::NodeLogAck,
            other => return Err(Error::BadKind(other)),
        })
    }
}

/// The meaning of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the datagram is.
    pub kind: Kind,
    /// The node it is from or for.
    pub node: NodeId,
    /// The boot of that node.
    pub epoch: BootEpoch,
    /// Its number in its direction.
    pub seq: u64,
}

/// A checked view of a received datagram: long enough, magic, version, kind and length right.
/// Nothing is known about who sent it until [`Packet::open`].
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    header: Header,
    flags: u16,
    bytes: &'a [u8],
}

/// Node, boot and sequence number of a datagram of another protocol version.
pub type ForeignSender = (NodeId, BootEpoch, u64);

impl<'a> Packet<'a> {
    /// Checks the envelope.
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, Error> {
        let (header, flags) = check(bytes, TAG_LEN)?;
        if flags & !FLAG_UNSEALED != 0 {
            return Err(Error::BadValue);
        }
        Ok(Packet {
            header,
            flags,
            bytes,
        })
    }

    /// Who a datagram of another protocol version says it is from.
    pub fn foreign_sender(bytes: &[u8]) -> Option<ForeignSender> {
        let mut reader = Reader::new(bytes.get(4..)?);
        let node = NodeId(reader.u32().ok()?);
        let epoch = BootEpoch(reader.u64().ok()?);
        Some((node, epoch, reader.u64().ok()?))
    }

    /// The header. Not authenticated before [`Packet::open`] succeeded.
    pub fn header(&self) -> Header {
        self.header
    }

    /// The sender made no tag.
    pub fn is_unsealed(&self) -> bool {
        self.flags & FLAG_UNSEALED != 0
    }

    /// The payload before its authenticity is known: needed to find the key of a HELLO, and for
    /// unsealed datagrams.
    pub fn unverified_payload(&self) -> &'a [u8] {
        &self.bytes[HEADER_LEN..self.bytes.len() - TAG_LEN]
    }

    /// The payload, if the tag was made with `key`. An unsealed datagram never opens.
    pub fn open(&self, key: &Key) -> Result<&'a [u8], Error> {
        let (sealed, tag) = self
            .bytes
            .split_last_chunk::<TAG_LEN>()
            .ok_or(Error::Truncated)?;
        if self.is_unsealed() || !key.verify(&[sealed], tag) {
            return Err(Error::BadTag);
        }
        Ok(&sealed[HEADER_LEN..])
    }
}

/// Header and flags of a datagram that ends with a tag of so many bytes.
fn check(bytes: &[u8], tag_len: usize) -> Result<(Header, u16), Error> {
    if bytes.len() < HEADER_LEN + tag_len || bytes.len() > MAX_DATAGRAM {
        return Err(Error::Truncated);
    }
    let (header, payload_length, flags) = parse_header(bytes)?;
    match payload_length == bytes.len() - HEADER_LEN - tag_len {
        true => Ok((header, flags)),
        false => Err(Error::Truncated),
    }
}

/// A sealed datagram's header, what is sealed of it, and its tag of `N` bytes, which is not checked
/// yet.
#[allow(clippy::type_complexity, reason = "three parts of one datagram")]
pub(super) fn split_tagged<const N: usize>(
    bytes: &[u8],
) -> Result<(Header, &[u8], &[u8; N]), Error> {
    let (header, flags) = check(bytes, N)?;
    if flags != 0 {
        return Err(Error::BadValue);
    }
    let (sealed, tag) = bytes.split_last_chunk::<N>().ok_or(Error::Truncated)?;
    Ok((header, sealed, tag))
}

/// The header, the length of the payload and the flags.
fn parse_header(bytes: &[u8]) -> Result<(Header, usize, u16), Error> {
    let mut reader = Reader::new(bytes);
    if reader.array::<2>()? != MAGIC {
        return Err(Error::BadMagic);
    }
    let version = reader.u8()?;
    if version != VERSION {
        return Err(Error::BadVersion(version));
    }
    let header = Header {
        kind: Kind::from_wire(reader.u8()?)?,
        node: NodeId(reader.u32()?),
        epoch: BootEpoch(reader.u64()?),
        seq: reader.u64()?,
    };
    Ok((header, reader.u16()?.into(), reader.u16()?))
}

/// A bulk datagram's header and payload; None when it is not one. Nobody vouches for either.
pub fn parse_bulk(bytes: &[u8]) -> Result<Option<(Header, &[u8])>, Error> {
    if bytes.len() < HEADER_LEN || bytes.len() > MAX_DATAGRAM {
        return Err(Error::Truncated);
    }
    let (header, payload_length, flags) = parse_header(bytes)?;
    if flags & FLAG_BULK == 0 {
        return Ok(None);
    }
    if flags != FLAG_BULK {
        return Err(Error::BadValue);
    }
    match &bytes[HEADER_LEN..] {
        payload if payload.len() == payload_length => Ok(Some((header, payload))),
        _ => Err(Error::Truncated),
    }
}

/// Writes a bulk datagram with a payload of `length` bytes, which `fill` writes in its place; None
/// when it could not. Invariant: it fits `out`.
pub fn emit_bulk(
    header: Header,
    length: usize,
    out: &mut [u8],
    fill: impl FnOnce(&mut [u8]) -> bool,
) -> Option<usize> {
    let (head, payload) = out.split_at_mut(HEADER_LEN);
    if !fill(&mut payload[..length]) {
        return None;
    }
    emit_header(header, length, FLAG_BULK, head);
    Some(HEADER_LEN + length)
}

fn emit_header(header: Header, payload_length: usize, flags: u16, out: &mut [u8]) {
    let mut writer = Writer::new(out);
    writer.bytes(&MAGIC).u8(VERSION).u8(header.kind as u8);
    writer
        .u32(header.node.0)
        .u64(header.epoch.0)
        .u64(header.seq);
    writer.u16(payload_length as u16).u16(flags);
}

/// Writes a datagram to the front of `out` and returns its length. Without a key it is unsealed.
///
/// Invariant: the payload fits [`MAX_PAYLOAD`] and `out` has [`MAX_DATAGRAM`] bytes; every
/// message asserts its own bound.
pub fn emit(
    header: Header,
    key: Option<&Key>,
    out: &mut [u8],
    payload: impl FnOnce(&mut Writer<'_>),
) -> usize {
    let flags = if key.is_some() { 0 } else { FLAG_UNSEALED };
    emit_flagged(header, flags, out, payload, |sealed| {
        key.map_or([0; TAG_LEN], |key| key.mac(&[sealed]))
    })
}

/// The same with a tag of `N` bytes, which `tag` makes of what is sealed.
pub(super) fn emit_tagged<const N: usize>(
    header: Header,
    out: &mut [u8],
    payload: impl FnOnce(&mut Writer<'_>),
    tag: impl FnOnce(&[u8]) -> [u8; N],
) -> usize {
    emit_flagged(header, 0, out, payload, tag)
}

fn emit_flagged<const N: usize>(
    header: Header,
    flags: u16,
    out: &mut [u8],
    payload: impl FnOnce(&mut Writer<'_>),
    tag: impl FnOnce(&[u8]) -> [u8; N],
) -> usize {
    let out = &mut out[..MAX_DATAGRAM];
    let mut writer = Writer::new(&mut out[HEADER_LEN..MAX_DATAGRAM - N]);
    payload(&mut writer);
    let payload_length = writer.written();
    emit_header(header, payload_length, flags, &mut out[..HEADER_LEN]);
    let (sealed, rest) = out.split_at_mut(HEADER_LEN + payload_length);
    rest[..N].copy_from_slice(&tag(sealed));
    sealed.len() + N
}
