//! Datagrams between ranks: kinds 80 to 82, each in an [`super::envelope`].
//!
//! A data packet begins with the numbers of packet (24 bits), context (16 bits) and block (24
//! bits). All ranks have the same key, which is derived from what their launch brought, the job and
//! the number of the member list.
//!
//! Neighbours: [`super::message`] has what comes out; `docs/protocol.md` has every byte.
//!
//! Invariant: no input panics, and what is returned keeps every bound that its types state.

use alloc::vec::Vec;

use super::envelope::{self, Envelopes, Head};
pub use super::envelope::{is_exchange, may_be_of};
use super::message::{
    BlockId, Body, Data, Item, Loss, MAX_ITEMS, NOBODY, NUMBER_MASK, Offer, Packet, Pull, Why,
};
use super::{MAX_BLOCK, MAX_RANKS, PACKET, SHORT};
use crate::ids::Rank;
use crate::wire::Error;
use crate::wire::datagram::Kind;
use crate::wire::field::{Reader, Writer};
use crate::wire::join::flag;

/// Bytes around every body.
pub const OVERHEAD: usize = envelope::HEAD + envelope::TAG;
/// Bytes of a data datagram beyond its packet: the envelope, packet, context, block.
pub const DATA_OVERHEAD: usize = OVERHEAD + DATA_HEAD;
const DATA_HEAD: usize = 3 + 2 + 3;
const OFFER_LEN: usize = 4 + 2 + 4 + 8;
const BLOCK_LEN: usize = 2 + 3;
/// Bytes of the longest item, a target that the master names.
const MAX_ITEM: usize = 1 + 2 + 4 + 4 + 2 + 2 + 4 + 4;
/// In the kind of an item, beside its number: its block is a message.
const OF_MESSAGE: u8 = 0x80;
/// In the flags of a fault, beside the number of its reason: bytes are given.
const FAULT_BYTES: u8 = 4;

const _: () = assert!(PACKET.is_multiple_of(8) && PACKET + DATA_OVERHEAD <= crate::MAX_DATAGRAM);
const _: () = assert!(PACKET + DATA_OVERHEAD + 8 > crate::MAX_DATAGRAM);
const _: () = assert!(OVERHEAD + MAX_ITEMS * MAX_ITEM <= crate::MAX_DATAGRAM);
const _: () = assert!(OVERHEAD + OFFER_LEN + SHORT <= crate::MAX_DATAGRAM);

/// Writes a datagram for a rank, any but data, to the front of `out`, which has
/// [`crate::MAX_DATAGRAM`] bytes; gives its length. None for data, and where the job has no such
/// rank.
pub fn emit(envelopes: &mut Envelopes, to: Rank, packet: &Packet, out: &mut [u8]) -> Option<usize> {
    let kind = match &packet.body {
        Body::Data(_) => return None,
        Body::Control(_) => Kind::ExchangeControl,
        Body::Short { .. } => Kind::ExchangeMessage,
    };
    let head = Head::of(kind, packet.from);
    envelopes.seal(head, to, out, |room| {
        let mut writer = Writer::new(room);
        match &packet.body {
            Body::Data(_) => return None,
            Body::Control(items) => {
                assert!(items.len() <= MAX_ITEMS, "more items than fit");
                items.iter().for_each(|item| emit_item(item, &mut writer));
            }
            Body::Short { offer, payload } => {
                assert!(payload.len() <= SHORT, "a short message is too long");
                emit_offer(offer, &mut writer);
                writer.bytes(payload);
            }
        }
        Some(writer.written())
    })
}

/// Writes the datagram of the first packet of `data` for a rank, whose bytes `fill` puts in their
/// place; None when it had none after all.
pub fn emit_data(
    envelopes: &mut Envelopes,
    to: Rank,
    data: &Data,
    out: &mut [u8],
    fill: impl FnOnce(&mut [u8]) -> bool,
) -> Option<usize> {
    let number = data.first + data.packets.trailing_zeros();
    let is_only = data.packets.is_power_of_two();
    let length = if is_only {
        usize::from(data.tail)
    } else {
        PACKET
    };
    let (is_message, context, block) = match data.block {
        BlockId::Exchange(context, number) => (false, context, number),
        BlockId::Message(number) => (true, 0, number),
    };
    let head = Head {
        is_message,
        is_last: is_only && data.is_last,
        ..Head::of(Kind::ExchangeData, envelopes.me())
    };
    let seq = u64::from(number & NUMBER_MASK)
        | u64::from(context) << 24
        | u64::from(block & NUMBER_MASK) << 40;
    envelopes.seal(head, to, out, |room| {
        let (numbers, packet) = room.split_at_mut(DATA_HEAD);
        numbers.copy_from_slice(&seq.to_le_bytes());
        fill(&mut packet[..length]).then_some(DATA_HEAD + length)
    })
}

/// Reads a datagram of a job that is for this rank and was not read before, and for data the
/// packet's bytes.
pub fn parse<'a>(
    envelopes: &mut Envelopes,
    bytes: &'a [u8],
) -> Result<(Packet, Option<&'a [u8]>), Error> {
    let (head, body) = envelopes.open(bytes)?;
    parse_body(head, body)
}

fn parse_body(head: Head, body: &[u8]) -> Result<(Packet, Option<&[u8]>), Error> {
    let from = head.from;
    let mut reader = Reader::new(body);
    let is_data = head.kind == Kind::ExchangeData;
    if !is_data && (head.is_message || head.is_last) {
        return Err(Error::BadValue);
    }
    let body = match head.kind {
        Kind::ExchangeData => {
            let (data, bytes) = parse_data(head, &mut reader)?;
            let body = Body::Data(data);
            return Ok((Packet { from, body }, Some(bytes)));
        }
        Kind::ExchangeControl => {
            let mut items = Vec::with_capacity(1);
            while items.is_empty() || !reader.is_empty() {
                if items.len() == MAX_ITEMS {
                    return Err(Error::TrailingBytes);
                }
                items.push(parse_item(&mut reader)?);
            }
            Body::Control(items)
        }
        Kind::ExchangeMessage => {
            let offer = parse_offer(&mut reader)?;
            let payload = reader.rest();
            if payload.len() as u64 != offer.bytes || payload.len() > SHORT {
                return Err(Error::BadValue);
            }
            Body::Short {
                offer,
                payload: payload.into(),
            }
        }
        other => return Err(Error::BadKind(other as u8)),
    };
    Ok((Packet { from, body }, None))
}

fn parse_data<'a>(head: Head, reader: &mut Reader<'a>) -> Result<(Data, &'a [u8]), Error> {
    let seq = reader.u64()?;
    let (first, number) = (seq as u32 & NUMBER_MASK, (seq >> 40) as u32);
    let block = match (head.is_message, (seq >> 24) as u16) {
        (false, context) => BlockId::Exchange(context, number),
        (true, 0) => BlockId::Message(number),
        (true, _) => return Err(Error::BadValue),
    };
    let bytes = reader.rest();
    let possible = (1..=PACKET).contains(&bytes.len()) && (head.is_last || bytes.len() == PACKET);
    if !possible {
        return Err(Error::BadValue);
    }
    let data = Data {
        block,
        first,
        packets: 1,
        tail: bytes.len() as u16,
        is_last: head.is_last,
    };
    Ok((data, bytes))
}

impl Packet {
    /// Bytes of the UDP payload; of data those of all its datagrams without the packets themselves.
    pub fn wire_bytes(&self) -> usize {
        match &self.body {
            Body::Data(data) => data.packets.count_ones() as usize * DATA_OVERHEAD,
            Body::Control(items) => OVERHEAD + items.iter().map(item_bytes).sum::<usize>(),
            Body::Short { payload, .. } => OVERHEAD + OFFER_LEN + payload.len(),
        }
    }
}

fn item_bytes(item: &Item) -> usize {
    1 + match item {
        Item::Ready { .. } => 2 + 4 + 8 + 1 + 4,
        Item::WhoIsReady { .. } => 2 + 4 + 4,
        Item::Busy { .. } | Item::Noted { .. } => 2 + 4,
        Item::Pull { .. } => BLOCK_LEN + 2 + 4 + 8 + 1,
        Item::Got { .. } => BLOCK_LEN + 4,
        Item::Served { .. } => BLOCK_LEN + 2,
        Item::Refuse { .. } => BLOCK_LEN + 1,
        Item::Offer(_) => OFFER_LEN,
        Item::Known { .. } | Item::Ping { .. } | Item::Pong { .. } => 4,
        Item::Lost(_) => 4 + 4 + 1,
        Item::Broken { .. } => 2 + 4 + 4 + 1,
        Item::Arrived { .. } | Item::Ask { .. } => 2 + 4 + 1 + 4,
        Item::Fault { .. } => 2 + 4 + 4 + 1 + 8,
        Item::ToMaster { .. } => 2 + 4 + 4 + 4,
        Item::FromMaster { .. } => 2 + 4 + 4 + 2 + 2 + 4 + 4,
    }
}

fn emit_item(item: &Item, writer: &mut Writer<'_>) {
    match *item {
        Item::Ready {
            context,
            number,
            bytes,
            pushed,
            signature,
        } => {
            writer.u8(1).u16(context).u32(number).u64(bytes);
            writer.u8(pushed).u32(signature);
        }
        Item::WhoIsReady {
            context,
            number,
            signature,
        } => {
            writer.u8(2).u16(context).u32(number).u32(signature);
        }
        Item::Noted { context, number } => {
            writer.u8(19).u16(context).u32(number);
        }
        Item::Busy { context, number } => {
            writer.u8(16).u16(context).u32(number);
        }
        Item::Pull { block, pull } => {
            emit_block(writer, 3, block)
                .u16(pull.serial)
                .u32(pull.first)
                .u64(pull.packets)
                .u8(pull.tell.into());
        }
        Item::Got { block, signature } => {
            emit_block(writer, 4, block).u32(signature);
        }
        Item::Served { block, serial } => {
            emit_block(writer, 5, block).u16(serial);
        }
        Item::Refuse { block, gone } => {
            emit_block(writer, 6, block).u8(gone.into());
        }
        Item::Offer(offer) => emit_offer(&offer, writer.u8(7)),
        Item::Known { number } => {
            writer.u8(8).u32(number);
        }
        Item::Arrived {
            context,
            number,
            stage,
            signature,
        } => {
            writer.u8(9).u16(context).u32(number).u8(stage);
            writer.u32(signature);
        }
        Item::Ask {
            context,
            number,
            stage,
            signature,
        } => {
            writer.u8(10).u16(context).u32(number).u8(stage);
            writer.u32(signature);
        }
        Item::Ping { question } => {
            writer.u8(11).u32(question);
        }
        Item::Pong { question } => {
            writer.u8(12).u32(question);
        }
        Item::Broken {
            context,
            number,
            rank,
            why,
        } => {
            writer.u8(17).u16(context).u32(number).u32(rank.0);
            writer.u8(number_of(why));
        }
        Item::Fault {
            context,
            number,
            rank,
            why,
            bytes,
        } => {
            let has_bytes = if bytes.is_some() { FAULT_BYTES } else { 0 };
            writer.u8(18).u16(context).u32(number).u32(rank.0);
            writer
                .u8(number_of(why) | has_bytes)
                .u64(bytes.unwrap_or(0));
        }
        Item::Lost(loss) => {
            let cause = loss.cause.unwrap_or(NOBODY);
            writer.u8(13).u32(loss.rank.0).u32(cause.0);
            writer.u8(u8::from(loss.has_ended) + u8::from(loss.is_well));
        }
        Item::ToMaster {
            context,
            number,
            step,
            signature,
        } => {
            writer.u8(14).u16(context).u32(number).u32(step);
            writer.u32(signature);
        }
        Item::FromMaster {
            context,
            number,
            step,
            place,
            count,
            to,
            signature,
        } => {
            writer.u8(15).u16(context).u32(number).u32(step);
            writer.u16(place).u16(count).u32(to.0).u32(signature);
        }
    }
}

fn parse_item(reader: &mut Reader<'_>) -> Result<Item, Error> {
    let kind = reader.u8()?;
    let is_message = kind & OF_MESSAGE != 0;
    let kind = kind & !OF_MESSAGE;
    if is_message && !(3..=6).contains(&kind) {
        return Err(Error::BadValue);
    }
    Ok(match kind {
        1 => Item::Ready {
            context: reader.u16()?,
            number: number(reader)?,
            bytes: length(reader)?,
            pushed: reader.u8()?,
            signature: reader.u32()?,
        },
        2 => Item::WhoIsReady {
            context: reader.u16()?,
            number: number(reader)?,
            signature: reader.u32()?,
        },
        3 => {
            let block = parse_block(is_message, reader)?;
            let pull = Pull {
                serial: reader.u16()?,
                first: number(reader)?,
                packets: reader.u64()?,
                tell: flag(reader.u8()?)?,
            };
            if pull.packets == 0 && !pull.tell {
                return Err(Error::BadValue);
            }
            Item::Pull { block, pull }
        }
        4 => parse_got(is_message, reader)?,
        5 => Item::Served {
            block: parse_block(is_message, reader)?,
            serial: reader.u16()?,
        },
        6 => Item::Refuse {
            block: parse_block(is_message, reader)?,
            gone: flag(reader.u8()?)?,
        },
        7 => Item::Offer(parse_offer(reader)?),
        8 => Item::Known {
            number: number(reader)?,
        },
        9 => Item::Arrived {
            context: reader.u16()?,
            number: number(reader)?,
            stage: stage(reader)?,
            signature: reader.u32()?,
        },
        10 => Item::Ask {
            context: reader.u16()?,
            number: number(reader)?,
            stage: stage(reader)?,
            signature: reader.u32()?,
        },
        11 => Item::Ping {
            question: reader.u32()?,
        },
        12 => Item::Pong {
            question: reader.u32()?,
        },
        13 => {
            let (rank, cause) = (rank(reader)?, rank_or_nobody(reader)?);
            let (has_ended, is_well) = match reader.u8()? {
                0 => (false, false),
                1 => (true, false),
                2 => (true, true),
                _ => return Err(Error::BadValue),
            };
            Item::Lost(Loss {
                rank,
                cause,
                has_ended,
                is_well,
            })
        }
        14 => Item::ToMaster {
            context: reader.u16()?,
            number: number(reader)?,
            step: reader.u32()?,
            signature: reader.u32()?,
        },
        15 => Item::FromMaster {
            context: reader.u16()?,
            number: number(reader)?,
            step: reader.u32()?,
            place: reader.u16()?,
            count: reader.u16()?,
            to: rank(reader)?,
            signature: reader.u32()?,
        },
        16 => Item::Busy {
            context: reader.u16()?,
            number: number(reader)?,
        },
        17 => Item::Broken {
            context: reader.u16()?,
            number: number(reader)?,
            rank: rank(reader)?,
            why: parse_why(reader.u8()?)?,
        },
        18 => {
            let (context, number, rank) = (reader.u16()?, number(reader)?, rank(reader)?);
            let flags = reader.u8()?;
            let why = parse_why(flags & !FAULT_BYTES)?;
            let bytes = match (flags & FAULT_BYTES != 0, length(reader)?) {
                (true, bytes) => Some(bytes),
                (false, 0) => None,
                (false, _) => return Err(Error::BadValue),
            };
            Item::Fault {
                context,
                number,
                rank,
                why,
                bytes,
            }
        }
        19 => Item::Noted {
            context: reader.u16()?,
            number: number(reader)?,
        },
        _ => return Err(Error::BadValue),
    })
}

fn number_of(why: Why) -> u8 {
    match why {
        Why::Length => 0,
        Why::Withdrawn => 1,
        Why::Lost => 2,
        Why::Other => 3,
    }
}

fn parse_why(number: u8) -> Result<Why, Error> {
    match number {
        0 => Ok(Why::Length),
        1 => Ok(Why::Withdrawn),
        2 => Ok(Why::Lost),
        3 => Ok(Why::Other),
        _ => Err(Error::BadValue),
    }
}

/// The kind of an item and the block that it is about.
fn emit_block<'a, 'b>(writer: &'a mut Writer<'b>, kind: u8, block: BlockId) -> &'a mut Writer<'b> {
    let (kind, context, number) = match block {
        BlockId::Exchange(context, number) => (kind, context, number),
        BlockId::Message(number) => (kind | OF_MESSAGE, 0, number),
    };
    let [a, b, c, _] = number.to_le_bytes();
    writer.u8(kind).u16(context).bytes(&[a, b, c])
}

fn parse_got(is_message: bool, reader: &mut Reader<'_>) -> Result<Item, Error> {
    let (block, signature) = (parse_block(is_message, reader)?, reader.u32()?);
    match (block, signature) {
        (BlockId::Message(_), 1..) => Err(Error::BadValue),
        _ => Ok(Item::Got { block, signature }),
    }
}

fn parse_block(is_message: bool, reader: &mut Reader<'_>) -> Result<BlockId, Error> {
    let (context, [a, b, c]) = (reader.u16()?, reader.array()?);
    let number = u32::from_le_bytes([a, b, c, 0]);
    match (is_message, context) {
        (false, _) => Ok(BlockId::Exchange(context, number)),
        (true, 0) => Ok(BlockId::Message(number)),
        (true, _) => Err(Error::BadValue),
    }
}

fn emit_offer(offer: &Offer, writer: &mut Writer<'_>) {
    writer
        .u32(offer.number)
        .u16(offer.context)
        .u32(offer.tag)
        .u64(offer.bytes);
}

fn parse_offer(reader: &mut Reader<'_>) -> Result<Offer, Error> {
    Ok(Offer {
        number: number(reader)?,
        context: reader.u16()?,
        tag: reader.u32()?,
        bytes: length(reader)?,
    })
}

/// A number of 24 bits.
fn number(reader: &mut Reader<'_>) -> Result<u32, Error> {
    match reader.u32()? {
        number @ ..=NUMBER_MASK => Ok(number),
        _ => Err(Error::BadValue),
    }
}

fn length(reader: &mut Reader<'_>) -> Result<u64, Error> {
    match reader.u64()? {
        bytes @ ..=MAX_BLOCK => Ok(bytes),
        _ => Err(Error::BadValue),
    }
}

fn stage(reader: &mut Reader<'_>) -> Result<u8, Error> {
    match reader.u8()? {
        stage @ 0..32 => Ok(stage),
        _ => Err(Error::BadValue),
    }
}

fn rank(reader: &mut Reader<'_>) -> Result<Rank, Error> {
    match reader.u32()? {
        rank @ 0..MAX_RANKS => Ok(Rank(rank)),
        _ => Err(Error::BadValue),
    }
}

fn rank_or_nobody(reader: &mut Reader<'_>) -> Result<Option<Rank>, Error> {
    match Rank(reader.u32()?) {
        NOBODY => Ok(None),
        rank if rank.0 < MAX_RANKS => Ok(Some(rank)),
        _ => Err(Error::BadValue),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    use crate::exchange::envelope::Seal;
    use crate::ids::JobId;
    use crate::wire::key::Key;

    const KEY: Key = Key([7; 16]);
    const JOB: JobId = JobId(3);

    /// Of a rank that has sealed and opened nothing.
    fn of(rank: Rank) -> Envelopes {
        Envelopes::new(Seal::new(&KEY, JOB), rank, MAX_RANKS)
    }

    fn block() -> impl Strategy<Value = BlockId> {
        let number = 0..=NUMBER_MASK;
        prop_oneof![
            (any::<u16>(), number.clone())
                .prop_map(|(context, number)| BlockId::Exchange(context, number)),
            number.prop_map(BlockId::Message),
        ]
    }

    fn item() -> impl Strategy<Value = Item> {
        let number = || 0..=NUMBER_MASK;
        prop_oneof![
            (
                any::<u16>(),
                number(),
                0..=MAX_BLOCK,
                any::<u8>(),
                any::<u32>()
            )
                .prop_map(|(context, number, bytes, pushed, signature)| Item::Ready {
                    context,
                    number,
                    bytes,
                    pushed,
                    signature,
                }),
            (block(), any::<u16>(), number(), 1..=u64::MAX, any::<bool>()).prop_map(
                |(block, serial, first, packets, tell)| Item::Pull {
                    block,
                    pull: Pull {
                        serial,
                        first,
                        packets: packets << (u64::from(tell) * 63) << u64::from(tell),
                        tell,
                    },
                }
            ),
            (block(), any::<u32>()).prop_map(|(block, signature)| Item::Got {
                block,
                signature: match block {
                    BlockId::Exchange(..) => signature,
                    BlockId::Message(_) => 0,
                },
            }),
            (block(), any::<u16>()).prop_map(|(block, serial)| Item::Served { block, serial }),
            (block(), any::<bool>()).prop_map(|(block, gone)| Item::Refuse { block, gone }),
            (number(), any::<u16>(), any::<u32>(), 0..=MAX_BLOCK).prop_map(
                |(number, context, tag, bytes)| Item::Offer(Offer {
                    number,
                    context,
                    tag,
                    bytes
                })
            ),
            number().prop_map(|number| Item::Known { number }),
            (any::<u16>(), number(), 0u8..32, any::<u32>()).prop_map(
                |(context, number, stage, signature)| Item::Arrived {
                    context,
                    number,
                    stage,
                    signature,
                }
            ),
            (any::<u16>(), number(), 0u8..32, any::<u32>()).prop_map(
                |(context, number, stage, signature)| Item::Ask {
                    context,
                    number,
                    stage,
                    signature,
                }
            ),
            (any::<u16>(), number()).prop_map(|(context, number)| Item::Busy { context, number }),
            (any::<u16>(), number()).prop_map(|(context, number)| Item::Noted { context, number }),
            any::<u32>().prop_map(|question| Item::Ping { question }),
            any::<u32>().prop_map(|question| Item::Pong { question }),
            (any::<u16>(), number(), 0..MAX_RANKS, 0..4usize).prop_map(
                |(context, number, rank, why)| Item::Broken {
                    context,
                    number,
                    rank: Rank(rank),
                    why: [Why::Length, Why::Withdrawn, Why::Lost, Why::Other][why],
                }
            ),
            (
                any::<u16>(),
                number(),
                0..MAX_RANKS,
                0..4usize,
                prop::option::of(0..=MAX_BLOCK)
            )
                .prop_map(|(context, number, rank, why, bytes)| Item::Fault {
                    context,
                    number,
                    rank: Rank(rank),
                    why: [Why::Length, Why::Withdrawn, Why::Lost, Why::Other][why],
                    bytes
                }),
            (0..MAX_RANKS, prop::option::of(0..MAX_RANKS), 0..3).prop_map(|(rank, cause, end)| {
                Item::Lost(Loss {
                    rank: Rank(rank),
                    cause: cause.map(Rank),
                    has_ended: end > 0,
                    is_well: end > 1,
                })
            }),
            (any::<u16>(), number(), any::<u32>(), any::<u32>()).prop_map(
                |(context, number, step, signature)| Item::ToMaster {
                    context,
                    number,
                    step,
                    signature,
                }
            ),
            (
                any::<u16>(),
                number(),
                any::<u32>(),
                any::<u16>(),
                0..MAX_RANKS
            )
                .prop_map(|(context, number, step, place, to)| Item::FromMaster {
                    context,
                    number,
                    step,
                    place,
                    count: place ^ 5,
                    to: Rank(to),
                    signature: step ^ 3,
                }),
            (any::<u16>(), number(), any::<u32>()).prop_map(|(context, number, signature)| {
                Item::WhoIsReady {
                    context,
                    number,
                    signature,
                }
            }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(items in prop::collection::vec(item(), 1..=MAX_ITEMS), from in 0..MAX_RANKS, to in 0..MAX_RANKS) {
            prop_assume!(from != to);
            let to = Rank(to);
            let packet = Packet { from: Rank(from), body: Body::Control(items) };
            let mut out = [0; crate::MAX_DATAGRAM];
            let length = emit(&mut of(Rank(from)), to, &packet, &mut out).unwrap();
            prop_assert_eq!(length, packet.wire_bytes());
            let mut receiver = of(to);
            for end in 0..length {
                prop_assert!(parse(&mut receiver, &out[..end]).is_err());
            }
            prop_assert_eq!(parse(&mut receiver, &out[..length]), Ok((packet, None)));
            prop_assert!(may_be_of(JOB, &out) && !may_be_of(JobId(JOB.0 + 1), &out));
        }

        #[test]
        fn a_packet_of_a_block_is_read(block in block(), first in 0..=NUMBER_MASK, bytes in 1usize..=PACKET, flip in 0usize..1472, to in 0..MAX_RANKS) {
            let to = Rank(to);
            let data = Data { block, first, packets: 1, tail: bytes as u16, is_last: true };
            prop_assume!(to != Rank(5));
            let mut out = [0; crate::MAX_DATAGRAM];
            let fill = |room: &mut [u8]| { room.fill(9); true };
            let length = emit_data(&mut of(Rank(5)), to, &data, &mut out, fill).unwrap();
            prop_assert_eq!(length, bytes + DATA_OVERHEAD);
            let mut receiver = of(to);
            let (packet, payload) = parse(&mut receiver, &out[..length]).unwrap();
            prop_assert_eq!(packet, Packet { from: Rank(5), body: Body::Data(data) });
            prop_assert_eq!(payload.unwrap(), &alloc::vec![9; bytes][..]);
            out[flip % length] ^= 1;
            prop_assert!(parse(&mut of(to), &out[..length]).is_err());
        }

        #[test]
        fn nothing_that_arrives_panics(kind in 80u8..=82, to in 0u32..4, is_message: bool, is_last: bool, body in prop::collection::vec(any::<u8>(), 0..1400)) {
            // Sealed rightly, so that the body is looked at.
            let mut out = [0; crate::MAX_DATAGRAM];
            let kind = Kind::from_wire(kind).unwrap();
            let head = Head { is_message, is_last, ..Head::of(kind, Rank(1)) };
            let length = of(Rank(1)).seal(head, Rank(to), &mut out, |room| {
                room[..body.len()].copy_from_slice(&body);
                Some(body.len())
            });
            let _ = parse(&mut of(Rank(to)), &out[..length.unwrap()]);
        }
    }

    #[test]
    fn no_item_is_longer_than_the_longest() {
        let pull = Pull {
            serial: 1,
            first: 0,
            packets: 1,
            tell: false,
        };
        let block = BlockId::Message(1);
        let fault = Item::Fault {
            context: 0,
            number: 0,
            rank: Rank(0),
            why: Why::Lost,
            bytes: None,
        };
        assert!(item_bytes(&Item::Pull { block, pull }) < MAX_ITEM);
        assert!(item_bytes(&fault) < MAX_ITEM);
    }
}
