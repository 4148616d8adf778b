//! The messages of file calls. Each travels in the usual envelope ([`crate::wire::datagram`]),
//! sealed under a key of the rank and the direction; the header names the node, and the boot of
//! who sends: the node's, or the run of the service.

use super::{Call, ChannelId, EARLY, FRAGMENT, MAX_TRANSFER, Op, WINDOW};
use crate::ids::{JobId, Rank};
use crate::wire::Error;
use crate::wire::datagram::MAX_PAYLOAD;
use crate::wire::field::{Reader, Writer};

/// Bytes of a call before its input.
pub const CALL_LEN: usize = 88;
/// Bytes of a reply before its output.
pub const REPLY_LEN: usize = 36;
/// Bytes of DATA before the fragment.
pub const DATA_LEN: usize = 16;
/// Bits of the number of a fragment, and of the call's number beside it: of a channel's calls at
/// most [`WINDOW`] are under way, and a replayed datagram is passed over.
const FRAGMENT_BITS: u32 = 6;
const NUMBER_BITS: u32 = u32::BITS - FRAGMENT_BITS;
/// Most input that a call carries itself.
pub const INLINE_INPUT: usize = MAX_PAYLOAD - CALL_LEN;
/// Most output that a reply carries itself.
pub const INLINE_OUTPUT: usize = MAX_PAYLOAD - REPLY_LEN;

/// FILE_CALL: carry this out, or say how it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileCall<'a> {
    /// Whose.
    pub channel: ChannelId,
    /// Its number, from 1.
    pub number: u64,
    /// The node has the replies of all calls below this one.
    pub done: u64,
    /// The run of the service that the channel's handles are of; 0 before any was heard, and then
    /// the call is not carried out.
    pub run: u64,
    /// What to do.
    pub op: Op,
    /// See [`Call::handles`].
    pub handles: [u32; 2],
    /// See [`Call::words`].
    pub words: [u64; 4],
    /// See [`Call::room`].
    pub room: u32,
    /// Fragments of input that come behind it without being asked for: none, or all.
    pub early_input: u8,
    /// The first fragments of output that may come so.
    pub early_output: u8,
    /// Bytes of input in all.
    pub input_bytes: u32,
    /// The first of them, all that fit.
    pub input: &'a [u8],
}

impl<'a> FileCall<'a> {
    /// The message about a call; nothing comes without being asked for.
    pub fn of(channel: ChannelId, number: u64, done: u64, run: u64, call: &'a Call) -> Self {
        Self {
            channel,
            number,
            done,
            run,
            op: call.op,
            handles: call.handles,
            words: call.words,
            room: call.room,
            early_input: 0,
            early_output: 0,
            input_bytes: call.input.len() as u32,
            input: &call.input[..call.input.len().min(INLINE_INPUT)],
        }
    }

    /// Writes the payload.
    pub fn emit(&self, writer: &mut Writer<'_>) {
        emit_channel(self.channel, self.number, writer);
        writer.u64(self.done).u64(self.run);
        writer.u8(self.op as u8).u8(0);
        writer.u8(self.early_input).u8(self.early_output);
        for handle in self.handles {
            writer.u32(handle);
        }
        for word in self.words {
            writer.u64(word);
        }
        writer.u32(self.room).u32(self.input_bytes);
        writer.bytes(self.input);
    }

    /// Reads the payload.
    pub fn parse(payload: &'a [u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(payload);
        let (channel, number) = parse_channel(&mut reader)?;
        let (done, run) = (reader.u64()?, reader.u64()?);
        let op = Op::from_wire(reader.u8()?).ok_or(Error::BadValue)?;
        if reader.u8()? != 0 {
            return Err(Error::BadValue);
        }
        let (early_input, early_output) = (reader.u8()?, reader.u8()?);
        let handles = [reader.u32()?, reader.u32()?];
        let words = [reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?];
        let (room, input_bytes) = (reader.u32()?, reader.u32()?);
        let input = reader.rest();
        let is_possible = room as usize <= MAX_TRANSFER
            && input_bytes as usize <= MAX_TRANSFER
            && input.len() == (input_bytes as usize).min(INLINE_INPUT)
            && done <= number
            && number - done < WINDOW
            && u32::from(early_input.max(early_output)) <= EARLY;
        is_possible
            .then_some(Self {
                channel,
                number,
                done,
                run,
                op,
                handles,
                words,
                room,
                early_input,
                early_output,
                input_bytes,
                input,
            })
            .ok_or(Error::BadValue)
    }
}

/// How a call stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is being carried out, or its input is on its way.
    Pending,
    /// It has been carried out.
    Done,
    /// This run of the service is another than the one that the call names. Whether that one
    /// carried it out is not known here; the result is for how many microseconds this service has
    /// been there. No service before it has a call that was first sent later than it began.
    OtherRun,
    /// The same, and it is known that the call was not carried out.
    NotCarriedOut,
    /// Output was asked for that is not here: the process that had it has been replaced by one of
    /// the same run. The call is to be made again, under its number.
    Unknown,
    /// This has come to an address where the service does not know the node to be. The node sends
    /// it back as it is: that proves the address.
    Challenge,
}

/// FILE_REPLY: how a call stands. The header names the run of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileReply<'a> {
    /// Whose.
    pub channel: ChannelId,
    /// The call's number.
    pub number: u64,
    /// How it stands.
    pub standing: Standing,
    /// Its result, when it is done; else what [`Standing`] says.
    pub result: i64,
    /// Bytes of output in all.
    pub output_bytes: u32,
    /// The first of them, all that fit.
    pub output: &'a [u8],
}

impl<'a> FileReply<'a> {
    /// One that has no output.
    pub fn without_output(
        channel: ChannelId,
        number: u64,
        standing: Standing,
        result: i64,
    ) -> Self {
        Self {
            channel,
            number,
            standing,
            result,
            output_bytes: 0,
            output: &[],
        }
    }

    /// Writes the payload.
    pub fn emit(&self, writer: &mut Writer<'_>) {
        emit_channel(self.channel, self.number, writer);
        let standing = match self.standing {
            Standing::Pending => 0,
            Standing::Done => 1,
            Standing::OtherRun => 2,
            Standing::NotCarriedOut => 3,
            Standing::Unknown => 4,
            Standing::Challenge => 5,
        };
        writer.u8(standing).u8(0).u16(0);
        writer.i64(self.result).u32(self.output_bytes);
        writer.bytes(self.output);
    }

    /// Reads the payload.
    pub fn parse(payload: &'a [u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(payload);
        let (channel, number) = parse_channel(&mut reader)?;
        let standing = match reader.u8()? {
            0 => Standing::Pending,
            1 => Standing::Done,
            2 => Standing::OtherRun,
            3 => Standing::NotCarriedOut,
            4 => Standing::Unknown,
            5 => Standing::Challenge,
            _ => return Err(Error::BadValue),
        };
        if (reader.u8()?, reader.u16()?) != (0, 0) {
            return Err(Error::BadValue);
        }
        let (result, output_bytes) = (reader.i64()?, reader.u32()?);
        let output = reader.rest();
        let is_possible = output_bytes as usize <= MAX_TRANSFER
            && output.len() == (output_bytes as usize).min(INLINE_OUTPUT)
            && match standing {
                Standing::Done => true,
                Standing::OtherRun => result >= 0 && output_bytes == 0,
                Standing::Challenge => output_bytes == 0,
                _ => (result, output_bytes) == (0, 0),
            };
        is_possible
            .then_some(Self {
                channel,
                number,
                standing,
                result,
                output_bytes,
                output,
            })
            .ok_or(Error::BadValue)
    }
}

/// FILE_FETCH: fragments, please. The node asks for output, the service for input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileFetch {
    /// Whose.
    pub channel: ChannelId,
    /// The call's number.
    pub number: u64,
    /// Bit i: fragment i.
    pub fragments: u64,
}

impl FileFetch {
    /// Writes the payload.
    pub fn emit(&self, writer: &mut Writer<'_>) {
        emit_channel(self.channel, self.number, writer);
        writer.u64(self.fragments);
    }

    /// Reads the payload.
    pub fn parse(payload: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(payload);
        let (channel, number) = parse_channel(&mut reader)?;
        let fragments = reader.u64()?;
        reader.finish()?;
        Ok(Self {
            channel,
            number,
            fragments,
        })
    }
}

/// FILE_DATA: a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileData<'a> {
    /// Whose.
    pub channel: ChannelId,
    /// The call's number, of which the lower 26 bits travel ([`Self::number_from`]).
    pub number: u64,
    /// Which fragment, below 64.
    pub fragment: u8,
    /// Its bytes: [`FRAGMENT`], fewer of the last.
    pub bytes: &'a [u8],
}

impl<'a> FileData<'a> {
    /// Writes the payload.
    pub fn emit(&self, writer: &mut Writer<'_>) {
        writer.u64(self.channel.job.0).u32(self.channel.rank.0);
        // What the number has above is left out.
        writer.u32((self.number as u32) << FRAGMENT_BITS | u32::from(self.fragment));
        writer.bytes(self.bytes);
    }

    /// Reads the payload.
    pub fn parse(payload: &'a [u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(payload);
        let channel = parse_rank(&mut reader)?;
        let place = reader.u32()?;
        let bytes = reader.rest();
        (1..=FRAGMENT)
            .contains(&bytes.len())
            .then_some(Self {
                channel,
                number: (place >> FRAGMENT_BITS).into(),
                fragment: (place % (1 << FRAGMENT_BITS)) as u8,
                bytes,
            })
            .ok_or(Error::BadValue)
    }

    /// The whole number of the call, which is the first from `lowest` on that ends so.
    pub fn number_from(&self, lowest: u64) -> u64 {
        let mask = (1 << NUMBER_BITS) - 1;
        lowest + (self.number.wrapping_sub(lowest) & mask)
    }
}

fn emit_channel(channel: ChannelId, number: u64, writer: &mut Writer<'_>) {
    writer.u64(channel.job.0).u32(channel.rank.0).u64(number);
}

fn parse_rank(reader: &mut Reader<'_>) -> Result<ChannelId, Error> {
    let job = JobId::from_wire(reader.u64()?).ok_or(Error::BadValue)?;
    let rank = Rank(reader.u32()?);
    Ok(ChannelId { job, rank })
}

fn parse_channel(reader: &mut Reader<'_>) -> Result<(ChannelId, u64), Error> {
    let channel = parse_rank(reader)?;
    match reader.u64()? {
        0 => Err(Error::BadValue),
        number => Ok((channel, number)),
    }
}

/// The channel that a payload says it is about: known before the key is.
pub fn channel_of(payload: &[u8]) -> Result<ChannelId, Error> {
    parse_rank(&mut Reader::new(payload))
}
