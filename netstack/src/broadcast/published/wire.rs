//! The options in the announcement.

use super::{Choice, Policy, PublishedOptions};
use crate::broadcast::published::estimate::Presence;
use crate::broadcast::published::header::{Deal, MAX_CHOSEN, MAX_RUNS, Sizes};
use crate::wire::Error;
use crate::wire::field::{Reader, Writer};
use crate::wire::join::flag;

/// Most bytes that [`PublishedOptions::emit`] writes.
pub(super) const MAX_LEN: usize = 4 + 5 + 1 + 2 + 4 * MAX_RUNS + 2 + 2 * MAX_CHOSEN;

impl PublishedOptions {
    /// Bytes that [`PublishedOptions::emit`] writes.
    pub(in crate::broadcast) fn length(&self) -> usize {
        let mut bytes = [0; MAX_LEN];
        let mut writer = Writer::new(&mut bytes);
        self.emit(&mut writer);
        writer.written()
    }

    /// Writes them.
    pub(in crate::broadcast) fn emit(&self, writer: &mut Writer<'_>) {
        writer.u32(self.fan_out).u8(self.layers);
        writer.u8(match self.policy {
            Policy::ChunkFirst => 0,
            Policy::NodeFirst => 1,
        });
        writer.u8(match self.choice {
            Choice::Random => 0,
            Choice::Middle => 1,
            Choice::Highest => 2,
        });
        writer.u8(match self.presence {
            Presence::Served => 0,
            Presence::Always => 1,
        });
        writer.u8(self.fallback.into());
        writer.u8(self.sizes.is_some().into());
        if let Some(sizes) = &self.sizes {
            sizes.emit(writer);
        }
        self.deal.emit(writer);
    }

    /// Reads them from the front of what is left.
    pub(in crate::broadcast) fn parse(reader: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(PublishedOptions {
            fan_out: reader.u32()?,
            layers: reader.u8()?,
            policy: match reader.u8()? {
                0 => Policy::ChunkFirst,
                1 => Policy::NodeFirst,
                _ => return Err(Error::BadValue),
            },
            choice: match reader.u8()? {
                0 => Choice::Random,
                1 => Choice::Middle,
                2 => Choice::Highest,
                _ => return Err(Error::BadValue),
            },
            presence: match reader.u8()? {
                0 => Presence::Served,
                1 => Presence::Always,
                _ => return Err(Error::BadValue),
            },
            fallback: flag(reader.u8()?)?,
            sizes: match flag(reader.u8()?)? {
                true => Some(Sizes::parse(reader)?),
                false => None,
            },
            deal: Deal::parse(reader)?,
        })
    }
}
