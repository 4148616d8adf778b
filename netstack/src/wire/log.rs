//! Lines of a node's log: NODE_LOG. Its acknowledgement is an echo of the number
//! ([`super::join::emit_echo`]).

use super::Error;
use super::field::{Reader, Writer};
use crate::MAX_DATA;

/// Most bytes of lines in one report.
pub const TEXT_MAX: usize = MAX_DATA;

/// NODE_LOG, node to control. Repeated, word for word, until it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeLog<'a> {
    /// Number of the report in its session, from 1.
    pub number: u64,
    /// Lines right before these that the node had no room to keep.
    pub missed: u32,
    /// Whole lines, each with its line feed; not empty.
    pub text: &'a str,
}

impl<'a> NodeLog<'a> {
    /// Writes the payload.
    pub fn emit(&self, writer: &mut Writer<'_>) {
        assert!(self.text.len() <= TEXT_MAX, "a report has a bound");
        writer.u64(self.number).u32(self.missed);
        writer.bytes(self.text.as_bytes());
    }

    /// Reads the payload.
    pub fn parse(payload: &'a [u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(payload);
        let (number, missed) = (reader.u64()?, reader.u32()?);
        let text = core::str::from_utf8(reader.rest()).map_err(|_| Error::BadValue)?;
        let possible = number != 0 && text.len() <= TEXT_MAX && text.ends_with('\n');
        match possible {
            true => Ok(NodeLog {
                number,
                missed,
                text,
            }),
            false => Err(Error::BadValue),
        }
    }
}
