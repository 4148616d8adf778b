//! What a service and the worker of a job say to each other, over sequenced sockets: each message
//! is one packet, and its end is kept.
//!
//! The worker listens, services connect, one after another. The first packet is the [`Setup`], the
//! answer to it is [`ready_packet`], or says why the worker cannot serve. Then come calls, and
//! replies in any order, until the connection ends. The job ends with [`END`].

use netstack::files::{Call, MAX_TRANSFER, Op, Reply};
use netstack::ids::Rank;
use netstack::wire::Error;
use netstack::wire::field::{Reader, Writer};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

use crate::job::{Export, User};

/// Bytes of a call before its input, and of a reply before its output.
const CALL_LEN: usize = 72;
const REPLY_LEN: usize = 20;
/// The worker serves; behind it is the run that its handles are of.
const READY: &[u8] = b"ready";
/// The job is over: the worker ends.
pub const END: &[u8] = b"end";
/// Number of the call that ends a rank: nodes number theirs from 1.
pub const LEAVES: u64 = 0;
/// Another number in each version of these messages: a worker of another one serves nothing.
pub const VERSION: u32 = 2;
/// Longest packet.
pub const MAX: usize = MAX_TRANSFER + CALL_LEN;

/// What a worker is for.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setup {
    /// Of these messages.
    pub version: u32,
    /// The run that handles of a worker that begins are of.
    pub run: u64,
    /// How long the worker waits for the next service.
    pub lingers_s: u64,
    /// Of the job: another one may have its number.
    pub identity: u64,
    /// Who it is; `None`: who it was started as.
    pub user: Option<User>,
    /// What it sees.
    pub exports: Vec<Export>,
    /// Where programs begin.
    pub working: PathBuf,
}

impl Setup {
    /// Whether a worker with the other serves what this one wants.
    pub fn is_of_same_files(&self, other: &Self) -> bool {
        (self.version, self.identity, &self.user) == (other.version, other.identity, &other.user)
            && (&self.exports, &self.working) == (&other.exports, &other.working)
    }
}

/// The worker serves, and its handles are of this run.
pub fn ready_packet(run: u64) -> Vec<u8> {
    [READY, &run.to_le_bytes()].concat()
}

/// The run of a worker that serves; `None`: it says why it does not.
pub fn parse_ready(packet: &[u8]) -> Option<u64> {
    let run = packet.strip_prefix(READY)?;
    Some(u64::from_le_bytes(run.try_into().ok()?))
}

/// A call of a rank.
#[derive(Debug, PartialEq, Eq)]
pub struct Asked {
    /// Whose.
    pub rank: Rank,
    /// Its number.
    pub number: u64,
    /// The node has the replies of all calls below this one.
    pub done: u64,
    /// What to do.
    pub call: Call,
}

/// A call, as a packet.
pub fn call_packet(rank: Rank, number: u64, done: u64, call: &Call) -> Vec<u8> {
    let mut packet = vec![0; CALL_LEN + call.input.len()];
    let mut writer = Writer::new(&mut packet);
    writer.u32(rank.0).u64(number).u64(done).u32(call.op as u32);
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
pub fn parse_call(packet: &[u8]) -> Result<Asked, Error> {
    let mut reader = Reader::new(packet);
    let (rank, number, done) = (Rank(reader.u32()?), reader.u64()?, reader.u64()?);
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
    Ok(Asked {
        rank,
        number,
        done,
        call,
    })
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
