//! What a service and the worker of a job say to each other, over a pair of sequenced sockets: each
//! message is one packet, and its end is kept.
//!
//! The first packet is the [`Setup`], the answer to it is [`READY`], or says why the worker cannot
//! serve. Then come calls, and replies in any order.

use netstack::files::{Call, MAX_TRANSFER, Op, Reply};
use netstack::ids::Rank;
use netstack::wire::Error;
use netstack::wire::field::{Reader, Writer};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

use crate::job::{Export, User};

/// Bytes of a call before its input, and of a reply before its output.
const CALL_LEN: usize = 64;
const REPLY_LEN: usize = 20;
/// The worker serves.
pub const READY: &[u8] = b"ready";
/// Longest packet.
pub const MAX: usize = MAX_TRANSFER + CALL_LEN;

/// What a worker is for.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// Who it is; `None`: who it was started as.
    pub user: Option<User>,
    /// What it sees.
    pub exports: Vec<Export>,
    /// Where programs begin.
    pub working: PathBuf,
}

/// A call, as a packet.
pub fn call_packet(rank: Rank, number: u64, call: &Call) -> Vec<u8> {
    let mut packet = vec![0; CALL_LEN + call.input.len()];
    let mut writer = Writer::new(&mut packet);
    writer.u32(rank.0).u64(number).u32(call.op as u32);
    writer.u32(call.handles[0]).u32(call.handles[1]);
    for word in call.words {
        writer.u64(word);
    }
    writer.u32(call.room);
    debug_assert_eq!(writer.written() + 4, CALL_LEN);
    writer.u32(0).bytes(&call.input);
    packet
}

/// A call, from a packet.
pub fn parse_call(packet: &[u8]) -> Result<(Rank, u64, Call), Error> {
    let mut reader = Reader::new(packet);
    let (rank, number) = (Rank(reader.u32()?), reader.u64()?);
    let op = u8::try_from(reader.u32()?).ok().and_then(Op::from_wire);
    let call = Call {
        op: op.ok_or(Error::BadValue)?,
        handles: [reader.u32()?, reader.u32()?],
        words: [reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?],
        room: reader.u32()?,
        input: {
            reader.u32()?;
            reader.rest().to_vec()
        },
    };
    Ok((rank, number, call))
}

/// A reply, as a packet.
pub fn reply_packet(rank: Rank, number: u64, reply: &Reply) -> Vec<u8> {
    let mut packet = vec![0; REPLY_LEN + reply.output.len()];
    let mut writer = Writer::new(&mut packet);
    writer.u32(rank.0).u64(number).i64(reply.result);
    writer.bytes(&reply.output);
    packet
}

/// A reply, from a packet.
pub fn parse_reply(packet: &[u8]) -> Result<(Rank, u64, Reply), Error> {
    let mut reader = Reader::new(packet);
    let (rank, number) = (Rank(reader.u32()?), reader.u64()?);
    let reply = Reply {
        result: reader.i64()?,
        output: reader.rest().to_vec(),
    };
    Ok((rank, number, reply))
}
