//! What every member is told about a cast, as the announcement carries it.
//!
//! Invariant: a setup that was read describes an object of possible sizes; that its hashes are
//! those of its id is left to whoever takes part ([`Object::check`]).

use alloc::string::String;
use alloc::vec::Vec;

use super::{MAC_LEN, PEER_LEN, emit_peer, parse_peer, parse_peers};
use crate::broadcast::message::{INLINE_ROSTER, Setup};
use crate::broadcast::{
    HASH_BYTES, MAX_MEMBERS, MAX_NAME, MAX_TOPS, Object, PublishedOptions, Purpose, Scheme,
};
use crate::ids::JobId;
use crate::job::launch_block::{NAME_MAX, is_name};
use crate::wire::Error;
use crate::wire::datagram::MAX_PAYLOAD;
use crate::wire::field::{Reader, Writer};

/// Bytes of an announcement before the setup.
pub(super) const ANNOUNCE_LEN: usize = 17;
/// Bytes of a setup without tops, purpose, scheme and roster.
const FIXED_LEN: usize = 32 + 8 + 1 + 1 + 8 + 4 + 4 + 8 + 8 + PEER_LEN + 8 + 1;
/// Most bytes of a purpose.
const MAX_PURPOSE: usize = 2 + MAX_NAME;
/// Most bytes of a scheme.
const MAX_SCHEME: usize = 1 + PublishedOptions::MAX_LEN;

// A setup without a roster always fits.
const _: () = assert!(
    MAC_LEN + ANNOUNCE_LEN + FIXED_LEN + MAX_TOPS * HASH_BYTES + MAX_PURPOSE + MAX_SCHEME
        <= MAX_PAYLOAD
);
const _: () = assert!(INLINE_ROSTER <= u8::MAX as usize);
const _: () = assert!(MAX_NAME <= u8::MAX as usize);
const _: () = assert!(
    NAME_MAX == MAX_NAME,
    "a launch names the files that were cast"
);

/// Bytes that [`emit`] writes.
pub(super) fn length(setup: &Setup) -> usize {
    let purpose = match &setup.purpose {
        Purpose::Program => 1,
        Purpose::File { name } => 2 + name.len(),
        Purpose::Table { .. } | Purpose::Read { .. } => 9,
    };
    let scheme = match &setup.scheme {
        Scheme::Auto | Scheme::Mesh | Scheme::DoubleTree => 1,
        Scheme::Grid { .. } => 5,
        Scheme::Published(options) => 1 + options.length(),
    };
    let variable = setup.object.tops.len() * HASH_BYTES + setup.roster.len() * PEER_LEN;
    FIXED_LEN + purpose + scheme + variable
}

/// Writes a setup.
pub(super) fn emit(setup: &Setup, writer: &mut Writer<'_>) {
    assert!(
        setup.roster.len() <= INLINE_ROSTER && setup.object.tops.len() <= MAX_TOPS,
        "an announcement has more than fits"
    );
    let object = &setup.object;
    writer.bytes(&object.id).u64(object.bytes);
    writer.u8(object.block_log2).u8(object.tops.len() as u8);
    writer.bytes(object.tops.as_flattened());
    emit_purpose(&setup.purpose, writer);
    writer.u64(JobId::to_wire(setup.job));
    emit_scheme(&setup.scheme, writer);
    writer.u32(setup.members).u32(setup.holders);
    writer.u64(setup.rate).u64(setup.start);
    emit_peer(&setup.control, writer);
    writer.u64(setup.roster_id).u8(setup.roster.len() as u8);
    setup.roster.iter().for_each(|peer| emit_peer(peer, writer));
}

/// Reads a setup.
pub(super) fn parse(reader: &mut Reader<'_>) -> Result<Setup, Error> {
    let object = parse_object(reader)?;
    let purpose = parse_purpose(reader)?;
    let job = JobId::from_wire(reader.u64()?);
    let scheme = parse_scheme(reader)?;
    let (members, holders) = (reader.u32()?, reader.u32()?);
    let (rate, start) = (reader.u64()?, reader.u64()?);
    let possible = (1..=MAX_MEMBERS).contains(&members) && holders <= members && rate > 0;
    if !possible {
        return Err(Error::BadValue);
    }
    let control = parse_peer(reader)?;
    let roster_id = reader.u64()?;
    let count = usize::from(reader.u8()?);
    if count != 0 && (count > INLINE_ROSTER || count != members as usize) {
        return Err(Error::BadValue);
    }
    Ok(Setup {
        object,
        purpose,
        job,
        scheme,
        members,
        holders,
        rate,
        start,
        control,
        roster_id,
        roster: parse_peers(reader, count)?,
    })
}

fn parse_object(reader: &mut Reader<'_>) -> Result<Object, Error> {
    let (id, bytes) = (reader.array()?, reader.u64()?);
    let block_log2 = reader.u8()?;
    let count = usize::from(reader.u8()?);
    if count > MAX_TOPS {
        return Err(Error::BadValue);
    }
    let mut tops = Vec::with_capacity(count);
    for _ in 0..count {
        tops.push(reader.array()?);
    }
    let object = Object {
        id,
        bytes,
        block_log2,
        tops,
    };
    match object.check_size() {
        Ok(()) => Ok(object),
        Err(_) => Err(Error::BadValue),
    }
}

fn emit_purpose(purpose: &Purpose, writer: &mut Writer<'_>) {
    match purpose {
        Purpose::Program => {
            writer.u8(1);
        }
        Purpose::File { name } => {
            assert!(is_name(name), "a file's name was not checked");
            writer.u8(2).u8(name.len() as u8).bytes(name.as_bytes());
        }
        Purpose::Table { job } => {
            writer.u8(3).u64(job.0);
        }
        Purpose::Read { job } => {
            writer.u8(4).u64(job.0);
        }
    }
}

fn parse_purpose(reader: &mut Reader<'_>) -> Result<Purpose, Error> {
    match reader.u8()? {
        1 => Ok(Purpose::Program),
        2 => {
            let length = usize::from(reader.u8()?);
            match core::str::from_utf8(reader.bytes(length)?) {
                Ok(name) if is_name(name) => Ok(Purpose::File {
                    name: String::from(name),
                }),
                _ => Err(Error::BadValue),
            }
        }
        3 => match JobId::from_wire(reader.u64()?) {
            Some(job) => Ok(Purpose::Table { job }),
            None => Err(Error::BadValue),
        },
        4 => match JobId::from_wire(reader.u64()?) {
            Some(job) => Ok(Purpose::Read { job }),
            None => Err(Error::BadValue),
        },
        _ => Err(Error::BadValue),
    }
}

fn emit_scheme(scheme: &Scheme, writer: &mut Writer<'_>) {
    match scheme {
        Scheme::Auto => panic!("the source chooses a scheme before it announces a cast"),
        Scheme::Grid { n1 } => writer.u8(1).u32(*n1),
        Scheme::Mesh => writer.u8(2),
        Scheme::DoubleTree => writer.u8(3),
        Scheme::Published(options) => {
            writer.u8(6);
            options.emit(writer);
            writer
        }
    };
}

fn parse_scheme(reader: &mut Reader<'_>) -> Result<Scheme, Error> {
    Ok(match reader.u8()? {
        1 => Scheme::Grid { n1: reader.u32()? },
        2 => Scheme::Mesh,
        3 => Scheme::DoubleTree,
        6 => Scheme::Published(PublishedOptions::parse(reader)?),
        _ => return Err(Error::BadValue),
    })
}
