//! What a service and the worker of a job say to each other, over sequenced sockets: each message
//! is one packet, and its end is kept.
//!
//! The worker listens, services connect, one after another. The first packet is the [`Setup`], the
//! answer to it is [`ready_packet`], or says why the worker cannot serve. Then come calls, and
//! replies in any order, until the connection ends. The job ends with [`END`]. Between them come
//! files that many nodes read at once ([`FromReads`], [`cast_packet`]).

use netstack::files::server::Request;
use netstack::files::{Call, CastObject, MAX_TRANSFER, Op, Reply};
use netstack::ids::{NodeId, Rank};
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
pub const VERSION: u32 = 3;
/// Longest packet.
pub const MAX: usize = MAX_TRANSFER + CALL_LEN;

/// In the place of a rank: the packet is about a file that many nodes read.
pub const NOBODY: Rank = Rank(u32::MAX);
/// Nodes that one packet names; further ones go on reading from the service.
pub const NODES_MAX: usize = 8192;

const _: () = assert!(CastObject::LEN + 16 + 4 * NODES_MAX <= MAX);

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
    /// Where it runs.
    pub node: NodeId,
    /// Its number.
    pub number: u64,
    /// The node has the replies of all calls below this one.
    pub done: u64,
    /// What to do.
    pub call: Call,
}

/// A call, as a packet.
pub fn call_packet(request: &Request) -> Vec<u8> {
    let (rank, number, done) = (request.channel.rank, request.number, request.done);
    let call = &request.call;
    let mut packet = vec![0; CALL_LEN + call.input.len()];
    let mut writer = Writer::new(&mut packet);
    writer.u32(rank.0).u64(number).u64(done).u32(call.op as u32);
    writer.u32(call.handles[0]).u32(call.handles[1]);
    for word in call.words {
        writer.u64(word);
    }
    writer.u32(call.room);
    debug_assert_eq!(writer.written() + 4, CALL_LEN);
    writer.u32(request.node.0).bytes(&call.input);
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
        input: Vec::new(),
    };
    let node = NodeId(reader.u32()?);
    let call = call.with_input(reader.rest().to_vec());
    Ok(Asked {
        rank,
        node,
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

/// What a worker says of a file that many nodes read; each has the number that the worker gave it.
#[derive(Debug, PartialEq, Eq)]
pub enum FromReads<'a> {
    /// All of its bytes follow. So many; nodes that read it.
    Begins(u64, Vec<NodeId>),
    /// The next bytes.
    Piece(&'a [u8]),
    /// Whether that was all of it, and it is as it was.
    Ends(bool),
    /// More nodes read it.
    More(Vec<NodeId>),
}

impl FromReads<'_> {
    /// As a packet.
    pub fn packet(&self, number: u64) -> Vec<u8> {
        let nodes = |nodes: &[NodeId]| -> Vec<u8> {
            let nodes = nodes.iter().take(NODES_MAX);
            nodes.flat_map(|node| node.0.to_le_bytes()).collect()
        };
        let (kind, first, rest) = match self {
            Self::Begins(bytes, of) => (1, *bytes, nodes(of)),
            Self::Piece(bytes) => (2, 0, bytes.to_vec()),
            Self::Ends(is_whole) => (3, u64::from(*is_whole), Vec::new()),
            Self::More(of) => (4, 0, nodes(of)),
        };
        let mut packet = vec![0; 24 + rest.len()];
        let mut writer = Writer::new(&mut packet);
        writer.u32(NOBODY.0).u32(kind).u64(number).u64(first);
        writer.bytes(&rest);
        packet
    }

    /// From a packet, with the file's number; `None`: it is about something else.
    pub fn parse(packet: &[u8]) -> Option<(u64, FromReads<'_>)> {
        let mut reader = Reader::new(packet);
        if reader.u32().ok()? != NOBODY.0 {
            return None;
        }
        let (kind, number) = (reader.u32().ok()?, reader.u64().ok()?);
        let (first, rest) = (reader.u64().ok()?, reader.rest());
        let said = match kind {
            1 => FromReads::Begins(first, parse_nodes(rest)),
            2 => FromReads::Piece(rest),
            3 => FromReads::Ends(first != 0),
            4 => FromReads::More(parse_nodes(rest)),
            _ => return None,
        };
        Some((number, said))
    }
}

fn parse_nodes(bytes: &[u8]) -> Vec<NodeId> {
    let (nodes, _) = bytes.as_chunks();
    let nodes = nodes.iter().map(|node| NodeId(u32::from_le_bytes(*node)));
    nodes.collect()
}

/// What has become of a file that many nodes read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cast {
    /// The number that the worker gave it.
    pub number: u64,
    /// What is cast; `None`: nothing is, and the nodes go on reading from the service.
    pub object: Option<CastObject>,
    /// The nodes that it is cast to.
    pub nodes: Vec<NodeId>,
}

/// The same, as a packet for the worker.
pub fn cast_packet(cast: &Cast) -> Vec<u8> {
    let mut packet = NOBODY.0.to_le_bytes().to_vec();
    packet.extend(u32::from(cast.object.is_some()).to_le_bytes());
    packet.extend(cast.number.to_le_bytes());
    packet.extend(cast.object.iter().flat_map(CastObject::to_bytes));
    let nodes = cast.nodes.iter().take(NODES_MAX);
    packet.extend(nodes.flat_map(|node| node.0.to_le_bytes()));
    packet
}

/// From a packet; `None`: it is a call.
pub fn parse_cast(packet: &[u8]) -> Option<Cast> {
    let mut reader = Reader::new(packet);
    if reader.u32().ok()? != NOBODY.0 {
        return None;
    }
    let is_cast = reader.u32().ok()? != 0;
    let number = reader.u64().ok()?;
    let object = match is_cast {
        true => Some(CastObject::parse(reader.bytes(CastObject::LEN).ok()?)?),
        false => None,
    };
    let nodes = parse_nodes(reader.rest());
    Some(Cast {
        number,
        object,
        nodes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_files_is_read_as_it_was_written() {
        let nodes = vec![NodeId(3), NodeId(70_000)];
        for said in [
            FromReads::Begins(1 << 40, nodes.clone()),
            FromReads::Piece(b"abc"),
            FromReads::Ends(true),
            FromReads::Ends(false),
            FromReads::More(nodes.clone()),
        ] {
            assert_eq!(FromReads::parse(&said.packet(7)), Some((7, said)));
        }
        let reply = reply_packet(Rank(7), 1, &Reply::plain(0));
        assert_eq!(FromReads::parse(&reply), None);
        let object = CastObject {
            id: [9; 32],
            bytes: 1 << 33,
        };
        for object in [None, Some(object)] {
            let cast = Cast {
                number: 5,
                object,
                nodes: nodes.clone(),
            };
            assert_eq!(parse_cast(&cast_packet(&cast)), Some(cast));
        }
    }
}
