//! Messages about what nodes hold: HOLDINGS and its acknowledgement.

use alloc::vec::Vec;

use super::Error;
use super::field::{Reader, Writer};
use super::join::{flag, zero};
use crate::ids::ProgramId;
use crate::retention::{CHANGES_MAX, Holding};

/// HOLDINGS, node to control. Repeated, word for word, until it is acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holdings {
    /// Number of the report in its session, from 1.
    pub number: u64,
    /// What was reported before is void; always in the first report of a session.
    pub reset: bool,
    /// What the node holds now of these programs.
    pub held: Vec<Holding>,
    /// Programs of which it holds nothing any more; none after a reset.
    pub dropped: Vec<ProgramId>,
}

impl Holdings {
    /// Writes the payload.
    pub fn emit(&self, writer: &mut Writer<'_>) {
        assert!(
            self.held.len() + self.dropped.len() <= CHANGES_MAX,
            "a report has at most {CHANGES_MAX} changes"
        );
        writer
            .u64(self.number)
            .u8(self.reset.into())
            .u8(self.held.len() as u8)
            .u8(self.dropped.len() as u8)
            .u8(0);
        for holding in &self.held {
            writer
                .bytes(&holding.program.0)
                .u32(holding.pages)
                .u32(holding.pristine);
        }
        for program in &self.dropped {
            writer.bytes(&program.0);
        }
    }

    /// Reads the payload.
    pub fn parse(payload: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(payload);
        let number = reader.u64()?;
        let reset = flag(reader.u8()?)?;
        let held_count = usize::from(reader.u8()?);
        let dropped_count = usize::from(reader.u8()?);
        zero(reader.u8()?.into())?;
        let possible = number != 0
            && (reset || number != 1)
            && held_count + dropped_count <= CHANGES_MAX
            && !(reset && dropped_count > 0);
        if !possible {
            return Err(Error::BadValue);
        }
        let mut held = Vec::with_capacity(held_count);
        for _ in 0..held_count {
            held.push(Holding {
                program: ProgramId(reader.array()?),
                pages: reader.u32()?,
                pristine: reader.u32()?,
            });
        }
        let mut dropped = Vec::with_capacity(dropped_count);
        for _ in 0..dropped_count {
            dropped.push(ProgramId(reader.array()?));
        }
        reader.finish()?;
        Ok(Holdings {
            number,
            reset,
            held,
            dropped,
        })
    }
}
