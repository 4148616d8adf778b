//! One column of a connection table.
//!
//! Invariant: the contents of a column that was parsed lie within the table.

use alloc::vec::Vec;

use super::Read;
use crate::wire::Error;
use crate::wire::field::{Reader, Writer};

/// Bytes that describe a column.
pub(super) const DESCRIPTOR_LEN: usize = 16;
/// Bytes of a run: three numbers of 4 bytes and two of 8.
const RUN_LEN: usize = 3 * 4 + 2 * 8;
/// Period of a run whose values never begin again.
const ENDLESS: u32 = u32::MAX;

/// Where and how a column's numbers are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Column {
    kind: Kind,
    /// Runs, or numbers.
    count: u32,
    offset: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Numbers of so many bytes.
    Packed(u8),
    Runs,
}

/// Numbers `base + step * ((i - first) / repeat mod period)` from index `first` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    first: u32,
    repeat: u32,
    period: u32,
    base: u64,
    step: u64,
}

impl Run {
    /// The number at an index, not before the run.
    fn value(&self, index: u32) -> u64 {
        let place = (index - self.first) / self.repeat % self.period;
        self.base.wrapping_add(self.step.wrapping_mul(place.into()))
    }

    /// The run that begins `numbers`, at index `first`, and how many it covers.
    fn begin(first: u32, numbers: &[u64]) -> (Run, usize) {
        let base = numbers[0];
        let same = numbers.iter().take_while(|number| **number == base);
        let repeat = same.count();
        let mut run = Run {
            first,
            repeat: repeat as u32,
            period: ENDLESS,
            base,
            step: match numbers.get(repeat) {
                Some(next) => next.wrapping_sub(base),
                None => 0,
            },
        };
        let covered = |run: &Run| {
            let numbers = numbers.iter().zip(first..);
            numbers
                .take_while(|(number, index)| run.value(*index) == **number)
                .count()
        };
        let straight = covered(&run);
        // Where it stops being straight it may begin again.
        if straight < numbers.len() && straight.is_multiple_of(repeat) {
            run.period = (straight / repeat) as u32;
            let cyclic = covered(&run);
            if cyclic > straight {
                return (run, cyclic);
            }
            run.period = ENDLESS;
        }
        (run, straight)
    }

    fn emit(&self, out: &mut Vec<u8>) {
        let mut bytes = [0; RUN_LEN];
        let mut writer = Writer::new(&mut bytes);
        writer.u32(self.first).u32(self.repeat).u32(self.period);
        writer.u64(self.base).u64(self.step);
        out.extend_from_slice(&bytes);
    }

    fn parse(bytes: &[u8; RUN_LEN]) -> Result<Run, Error> {
        let mut reader = Reader::new(bytes);
        let run = Run {
            first: reader.u32()?,
            repeat: reader.u32()?,
            period: reader.u32()?,
            base: reader.u64()?,
            step: reader.u64()?,
        };
        match run.repeat != 0 && run.period != 0 {
            true => Ok(run),
            false => Err(Error::BadValue),
        }
    }
}

/// Appends the contents of a column in the shorter of both forms.
pub(super) fn encode(numbers: &[u64], out: &mut Vec<u8>) -> Column {
    let offset = out.len() as u64;
    let largest = numbers.iter().copied().max().unwrap_or(0);
    let width = (u64::BITS - largest.leading_zeros()).div_ceil(8);
    let packed = numbers.len() * width as usize;
    let mut count = 0;
    let mut index = 0;
    while index < numbers.len() && out.len() - offset as usize <= packed.max(RUN_LEN) {
        let (run, covered) = Run::begin(index as u32, &numbers[index..]);
        run.emit(out);
        count += 1;
        index += covered;
    }
    let kind = if index == numbers.len() && count as usize * RUN_LEN <= packed.max(RUN_LEN) {
        Kind::Runs
    } else {
        out.truncate(offset as usize);
        for number in numbers {
            out.extend_from_slice(&number.to_le_bytes()[..width as usize]);
        }
        count = numbers.len() as u32;
        Kind::Packed(width as u8)
    };
    Column {
        kind,
        count,
        offset,
    }
}

impl Column {
    /// Nothing.
    pub(super) const EMPTY: Column = Column {
        kind: Kind::Runs,
        count: 0,
        offset: 0,
    };

    /// Writes the descriptor.
    pub(super) fn emit(&self, writer: &mut Writer<'_>) {
        let (kind, width) = match self.kind {
            Kind::Packed(width) => (1, width),
            Kind::Runs => (2, 0),
        };
        writer.u8(kind).u8(width).u16(0);
        writer.u32(self.count).u64(self.offset);
    }

    /// Reads the descriptor of a column with so many numbers in a table of so many bytes.
    pub(super) fn parse(reader: &mut Reader<'_>, entries: u32, table: u64) -> Result<Self, Error> {
        let kind = match (reader.u8()?, reader.u8()?) {
            (1, width @ 0..=8) => Kind::Packed(width),
            (2, 0) => Kind::Runs,
            _ => return Err(Error::BadValue),
        };
        let reserved = reader.u16()?;
        let (count, offset) = (reader.u32()?, reader.u64()?);
        let (possible, each) = match kind {
            Kind::Packed(width) => (count == entries, width.into()),
            Kind::Runs => (
                count <= entries && (count > 0 || entries == 0),
                RUN_LEN as u64,
            ),
        };
        let end = offset.checked_add(u64::from(count) * each);
        if reserved != 0 || !possible || end.is_none_or(|end| end > table) {
            return Err(Error::BadValue);
        }
        Ok(Column {
            kind,
            count,
            offset,
        })
    }

    /// The number at an index, which is below the number of entries.
    pub(super) fn value(&self, index: u32, read: &mut Read<'_>) -> Option<u64> {
        match self.kind {
            Kind::Packed(width) => {
                let mut bytes = [0; 8];
                let at = self.offset + u64::from(index) * u64::from(width);
                let used = &mut bytes[..usize::from(width)];
                (used.is_empty() || read(at, used)).then(|| u64::from_le_bytes(bytes))
            }
            Kind::Runs => {
                // The last run that begins at or before the index.
                let (mut low, mut high) = (0, self.count);
                while high - low > 1 {
                    let middle = low + (high - low) / 2;
                    match self.run(middle, read)?.first <= index {
                        true => low = middle,
                        false => high = middle,
                    }
                }
                let run = self.run(low, read)?;
                (run.first <= index).then(|| run.value(index))
            }
        }
    }

    fn run(&self, at: u32, read: &mut Read<'_>) -> Option<Run> {
        let mut bytes = [0; RUN_LEN];
        let offset = self.offset + u64::from(at) * RUN_LEN as u64;
        let there = read(offset, &mut bytes);
        there.then(|| Run::parse(&bytes).ok())?
    }
}
