//! Sections: values of one stream and tick on the wire, as many as fit one frame.
//!
//! | size | field |
//! |---|---|
//! | 2 | length of what follows |
//! | 2 | stream |
//! | v | tick |
//! | v | back ends covered by all pieces of this tick together |
//! | 1 | filter |
//! | 1 | flags: bit 0 the last piece, bit 1 every count equals the back ends covered |
//! | 1 | first metric, by its place in the stream |
//! | 1 | number of metrics |
//! | n | the values |
//!
//! `v` is a number of 7 bits a byte, lowest first, the high bit set but in the last; signed ones
//! are zigzag-coded. A value is its count (`v`, absent with flag bit 1) and, unless the count is 0:
//! sum and avg `v` signed 128 bits; min and max `v` signed; classes: number, others (`v`), then
//! value, count, node (`v` each); histogram: number of buckets, then counts (`v`). Concat has a
//! number of rows, then for each: node, microseconds of its own clock (`v`), a bitmap of the
//! metrics it has, their values.
//!
//! Accounting: a piece counts the back ends it covers if its first metric is 0, others count none;
//! rows count one each. Counts of values may be higher than the back ends covered: where the first
//! piece of a child was lost and a later one was not.
//!
//! Invariant: what [`Section::parse`] accepts has sizes within the stream bounds, whoever sent it.

use alloc::vec::Vec;

use super::filter::{Acc, Class, Filter, MAX_BUCKETS, MAX_CLASSES, Reduced};
use super::stream::{MAX_METRICS, StreamId};
use crate::ids::NodeId;
use crate::wire::Error;
use crate::wire::field::Reader;

/// Longest section, with its length field.
pub const MAX_SECTION: usize = 1_240;
/// Bytes of a section before its values, at most.
const HEAD: usize = 2 + 2 + 10 + 5 + 4;
/// Most rows of a section.
const MAX_ROWS: usize = 255;
const LAST: u8 = 1;
const FULL: u8 = 2;

/// One back end's values, not reduced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Whose.
    pub node: NodeId,
    /// When they were read, by the node's own clock, in microseconds.
    pub node_time_us: u64,
    /// A value for each metric of the stream that the node has.
    pub values: Vec<Option<i64>>,
}

/// What a section holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Reduced metrics, from this place in the stream on.
    Reduced(u8, Vec<Acc>),
    /// Rows.
    Rows(Vec<Row>),
}

/// Values of one stream and tick.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// The stream.
    pub stream: StreamId,
    /// The tick.
    pub tick: u64,
    /// Back ends covered by all pieces together.
    pub covers: u32,
    /// No further piece follows.
    pub last: bool,
    /// Number of the filter.
    pub filter: u8,
    /// The values.
    pub body: Body,
}

/// A section as it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// With the length field.
    pub bytes: Vec<u8>,
    /// Samples that go on the books with it.
    pub samples: u32,
}

/// Appends a number of 7 bits a byte.
pub fn put(out: &mut Vec<u8>, mut value: u128) {
    while value > u64::MAX.into() {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    // What is left fits one register, as nearly all numbers do from the start.
    let mut value = value as u64;
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn zigzag(value: i128) -> u128 {
    ((value << 1) ^ (value >> 127)) as u128
}

fn unzigzag(raw: u128) -> i128 {
    (raw >> 1) as i128 ^ -((raw & 1) as i128)
}

/// Bytes of a number that fit 64 bits without a look at what is shifted out.
const SHORT: usize = 9;

/// Numbers of up to [`SHORT`] bytes, which nearly all are, are put together in one register.
fn take(reader: &mut Reader<'_>) -> Result<u128, Error> {
    let mut ahead = reader.clone();
    let bytes = ahead.rest();
    let mut value = 0_u64;
    for (index, byte) in bytes.iter().take(SHORT).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if *byte < 0x80 {
            // One way to write each number.
            if *byte == 0 && index > 0 {
                return Err(Error::BadValue);
            }
            reader.bytes(index + 1)?;
            return Ok(value.into());
        }
    }
    take_long(reader)
}

fn take_long(reader: &mut Reader<'_>) -> Result<u128, Error> {
    let mut value = 0_u128;
    for shift in (0..).step_by(7) {
        let byte = u128::from(reader.u8()?);
        let bits = byte & 0x7f;
        if shift >= 128 || (bits << shift) >> shift != bits {
            return Err(Error::BadValue);
        }
        value |= bits << shift;
        if byte < 0x80 {
            // One way to write each number.
            return if byte == 0 && shift > 0 {
                Err(Error::BadValue)
            } else {
                Ok(value)
            };
        }
    }
    Err(Error::BadValue)
}

/// A number as [`put`] wrote it.
///
/// # Errors
/// It is cut short, too large, or longer than it need be.
pub fn take_u64(reader: &mut Reader<'_>) -> Result<u64, Error> {
    take(reader)?.try_into().map_err(|_| Error::BadValue)
}

/// The same, of 32 bits.
///
/// # Errors
/// As for [`take_u64`].
pub fn take_u32(reader: &mut Reader<'_>) -> Result<u32, Error> {
    take(reader)?.try_into().map_err(|_| Error::BadValue)
}

fn take_i64(reader: &mut Reader<'_>) -> Result<i64, Error> {
    unzigzag(take(reader)?)
        .try_into()
        .map_err(|_| Error::BadValue)
}

/// Writes the metrics of a tick as one section or several.
pub fn encode_reduced(
    (stream, tick, covers): (StreamId, u64, u32),
    filter: &Filter,
    accs: &[Acc],
    out: &mut impl FnMut(Encoded),
) {
    let full = accs.iter().all(|acc| acc.count == covers);
    let mut first = 0;
    loop {
        let mut body = Vec::new();
        let mut next = first;
        while next < accs.len() {
            let mark = body.len();
            put_acc(&mut body, &accs[next], full);
            if HEAD + body.len() > MAX_SECTION && next > first {
                body.truncate(mark);
                break;
            }
            next += 1;
        }
        let flags = if next == accs.len() { LAST } else { 0 } | if full { FULL } else { 0 };
        let head = [filter.code(), flags, first as u8, (next - first) as u8];
        let samples = if first == 0 { covers } else { 0 };
        out(finish(stream, tick, covers, head, &body, samples));
        if next == accs.len() {
            return;
        }
        first = next;
    }
}

/// Writes rows, as many as fit a section, from the front of `rows`, which loses them. `ends`: no
/// other rows of the tick will follow those given.
pub fn encode_rows(
    (stream, tick): (StreamId, u64),
    metrics: u8,
    rows: &mut Vec<Row>,
    ends: bool,
) -> Encoded {
    let mut body = alloc::vec![0_u8];
    let mut count = 0;
    for row in rows.iter().take(MAX_ROWS) {
        let mark = body.len();
        put_row(&mut body, row);
        if HEAD + body.len() > MAX_SECTION && count > 0 {
            body.truncate(mark);
            break;
        }
        count += 1;
    }
    body[0] = count as u8;
    rows.drain(..count);
    let flags = if rows.is_empty() && ends { LAST } else { 0 };
    let head = [Filter::Concat.code(), flags, 0, metrics];
    finish(stream, tick, count as u32, head, &body, count as u32)
}

/// Bytes of a row as it is sent.
pub fn row_bytes(row: &Row) -> usize {
    let mut bytes = Vec::new();
    put_row(&mut bytes, row);
    bytes.len()
}

/// Bytes of rows that fit a section.
pub const ROWS_ROOM: usize = MAX_SECTION - HEAD - 1;

fn finish(
    stream: StreamId,
    tick: u64,
    covers: u32,
    head: [u8; 4],
    body: &[u8],
    samples: u32,
) -> Encoded {
    let mut bytes = Vec::with_capacity(HEAD + body.len());
    bytes.extend([0; 2]);
    bytes.extend(stream.0.to_le_bytes());
    put(&mut bytes, tick.into());
    put(&mut bytes, covers.into());
    bytes.extend(head);
    bytes.extend(body);
    let length = bytes.len() - 2;
    assert!(bytes.len() <= MAX_SECTION, "a section of {length} bytes");
    bytes[..2].copy_from_slice(&(length as u16).to_le_bytes());
    Encoded { bytes, samples }
}

fn put_acc(out: &mut Vec<u8>, acc: &Acc, full: bool) {
    if !full {
        put(out, acc.count.into());
    }
    match &acc.reduced {
        _ if acc.count == 0 => {}
        None => {}
        Some(Reduced::Total(sum)) => put(out, zigzag(*sum)),
        Some(Reduced::Least(value) | Reduced::Most(value)) => put(out, zigzag((*value).into())),
        Some(Reduced::Classes { classes, other }) => {
            out.push(classes.len() as u8);
            put(out, (*other).into());
            for class in classes {
                put(out, zigzag(class.value.into()));
                put(out, class.count.into());
                put(out, class.example.0.into());
            }
        }
        Some(Reduced::Buckets(buckets)) => {
            out.push(buckets.len() as u8);
            buckets.iter().for_each(|count| put(out, (*count).into()));
        }
    }
}

fn put_row(out: &mut Vec<u8>, row: &Row) {
    put(out, row.node.0.into());
    put(out, row.node_time_us.into());
    let begin = out.len();
    out.resize(begin + row.values.len().div_ceil(8), 0);
    for (index, value) in row.values.iter().enumerate() {
        if let Some(value) = value {
            out[begin + index / 8] |= 1 << (index % 8);
            put(out, zigzag((*value).into()));
        }
    }
}

impl Section {
    /// Samples that go on the books with it, see the module.
    pub fn samples(&self) -> u32 {
        match &self.body {
            Body::Reduced(0, _) => self.covers,
            Body::Reduced(..) => 0,
            Body::Rows(rows) => rows.len() as u32,
        }
    }

    /// Cuts the first section off `bytes` and reads it.
    ///
    /// # Errors
    /// It is malformed; `bytes` is then of no further use.
    pub fn parse(bytes: &mut Reader<'_>) -> Result<Section, Error> {
        let length = usize::from(bytes.u16()?);
        if length + 2 > MAX_SECTION {
            return Err(Error::BadValue);
        }
        let mut reader = Reader::new(bytes.bytes(length)?);
        let stream = StreamId(reader.u16()?);
        let tick = take_u64(&mut reader)?;
        let covers = take_u32(&mut reader)?;
        let [filter, flags, first, count] = reader.array()?;
        let end = usize::from(first) + usize::from(count);
        if flags & !(LAST | FULL) != 0 || count == 0 || end > MAX_METRICS {
            return Err(Error::BadValue);
        }
        let body = match filter {
            5 if first == 0 && flags & FULL == 0 => {
                let rows = parse_rows(&mut reader, count.into())?;
                if rows.len() as u32 != covers {
                    return Err(Error::BadValue);
                }
                Body::Rows(rows)
            }
            1..=4 | 6 | 7 => {
                let mut accs = Vec::with_capacity(count.into());
                for _ in 0..count {
                    let count = match flags & FULL {
                        0 => take_u32(&mut reader)?,
                        _ => covers,
                    };
                    accs.push(parse_acc(&mut reader, filter, count)?);
                }
                Body::Reduced(first, accs)
            }
            _ => return Err(Error::BadValue),
        };
        reader.finish()?;
        Ok(Section {
            stream,
            tick,
            covers,
            last: flags & LAST != 0,
            filter,
            body,
        })
    }
}

fn parse_acc(reader: &mut Reader<'_>, filter: u8, count: u32) -> Result<Acc, Error> {
    if count == 0 {
        return Ok(Acc::default());
    }
    let reduced = match filter {
        1 | 4 => Reduced::Total(unzigzag(take(reader)?)),
        2 => Reduced::Least(take_i64(reader)?),
        3 => Reduced::Most(take_i64(reader)?),
        6 => {
            let number = usize::from(reader.u8()?);
            let other = take_u32(reader)?;
            if number > MAX_CLASSES {
                return Err(Error::BadValue);
            }
            let mut classes = Vec::with_capacity(number);
            let mut total = u64::from(other);
            for _ in 0..number {
                let class = Class {
                    value: take_i64(reader)?,
                    count: take_u32(reader)?,
                    example: NodeId(take_u32(reader)?),
                };
                total += u64::from(class.count);
                classes.push(class);
            }
            let rises = classes.is_sorted_by(|a: &Class, b| a.value < b.value);
            if !rises || total != u64::from(count) {
                return Err(Error::BadValue);
            }
            Reduced::Classes { classes, other }
        }
        _ => {
            let number = usize::from(reader.u8()?);
            if !(2..=MAX_BUCKETS).contains(&number) {
                return Err(Error::BadValue);
            }
            let mut buckets = Vec::with_capacity(number);
            let mut total = 0;
            for _ in 0..number {
                let bucket = take_u32(reader)?;
                total += u64::from(bucket);
                buckets.push(bucket);
            }
            if total != u64::from(count) {
                return Err(Error::BadValue);
            }
            Reduced::Buckets(buckets)
        }
    };
    Ok(Acc {
        count,
        reduced: Some(reduced),
    })
}

fn parse_rows(reader: &mut Reader<'_>, metrics: usize) -> Result<Vec<Row>, Error> {
    let number = usize::from(reader.u8()?);
    let mut rows = Vec::with_capacity(number);
    for _ in 0..number {
        let node = NodeId(take_u32(reader)?);
        let node_time_us = take_u64(reader)?;
        let bitmap = reader.bytes(metrics.div_ceil(8))?;
        let has = |index: usize| bitmap[index / 8] & 1 << (index % 8) != 0;
        if (metrics..bitmap.len() * 8).any(has) {
            return Err(Error::BadValue);
        }
        let mut values = Vec::with_capacity(metrics);
        for index in 0..metrics {
            values.push(if has(index) {
                Some(take_i64(reader)?)
            } else {
                None
            });
        }
        rows.push(Row {
            node,
            node_time_us,
            values,
        });
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn filters() -> impl Strategy<Value = Filter> {
        prop_oneof![
            Just(Filter::Sum),
            Just(Filter::Min),
            Just(Filter::Max),
            Just(Filter::Avg),
            Just(Filter::Classes),
            Just(Filter::Histogram(vec![-5, 0, 3, i64::MAX])),
        ]
    }

    #[test]
    fn a_sum_on_the_wire() {
        let accs = [Acc::of(&Filter::Sum, NodeId(0), 300), Acc::default()];
        let mut all = Vec::new();
        encode_reduced(
            (StreamId(0x0102), 200, 1),
            &Filter::Sum,
            &accs,
            &mut |section| all.push(section),
        );
        let expected: &[u8] = &[
            14, 0, // length
            2, 1, // stream
            0xc8, 1, // tick
            1, // covers
            1, LAST, 0, 2, // sum, the last piece, two metrics from the first on
            1, 0xd8, 4, // one back end, 600 = zigzag(300)
            0, // none
        ];
        // The length field counts what follows it.
        let mut expected = expected.to_vec();
        expected[0] = (expected.len() - 2) as u8;
        assert_eq!(
            all,
            [Encoded {
                bytes: expected,
                samples: 1
            }]
        );
    }

    #[test]
    fn numbers_have_one_form() {
        for value in [0, 1, 127, 128, u64::MAX] {
            let mut bytes = Vec::new();
            put(&mut bytes, value.into());
            assert_eq!(take_u64(&mut Reader::new(&bytes)), Ok(value));
        }
        for bytes in [&[0x80, 0][..], &[0xff; 20], &[0x80]] {
            assert!(take_u64(&mut Reader::new(bytes)).is_err(), "{bytes:?}");
        }
        for value in [i128::MIN, -1, 0, 1, i128::MAX] {
            assert_eq!(unzigzag(zigzag(value)), value);
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            filter in filters(),
            nodes in proptest::collection::vec(proptest::collection::vec(proptest::option::of(any::<i64>()), 64), 1..20),
            metrics in 1_usize..=64, stream: u16, tick: u64,
        ) {
            let mut accs = vec![Acc::default(); metrics];
            for (node, values) in (0..).zip(&nodes) {
                for (acc, value) in accs.iter_mut().zip(values) {
                    if let Some(value) = value {
                        prop_assert!(acc.merge(Acc::of(&filter, NodeId(node), *value)));
                    }
                }
            }
            let covers = nodes.len() as u32;
            let mut read = Vec::new();
            let mut samples = 0;
            let mut ends = Vec::new();
            encode_reduced((StreamId(stream), tick, covers), &filter, &accs, &mut |section| {
                samples += section.samples;
                let mut reader = Reader::new(&section.bytes);
                let section = Section::parse(&mut reader).unwrap();
                reader.finish().unwrap();
                assert_eq!((section.stream.0, section.tick, section.covers), (stream, tick, covers));
                ends.push(section.last);
                let Body::Reduced(first, accs) = section.body else { panic!("reduced") };
                assert_eq!(usize::from(first), read.len());
                read.extend(accs);
            });
            prop_assert_eq!(read, accs);
            prop_assert_eq!(samples, covers);
            prop_assert!(ends.pop() == Some(true) && !ends.contains(&true));
        }

        #[test]
        fn rows_are_split_over_sections(
            rows in proptest::collection::vec(
                (any::<u32>(), any::<u64>(), proptest::collection::vec(proptest::option::of(any::<i64>()), 40)), 1..60),
        ) {
            let rows: Vec<Row> = rows.into_iter().map(|(node, node_time_us, values)| Row {
                node: NodeId(node), node_time_us, values,
            }).collect();
            let mut left = rows.clone();
            let mut read = Vec::new();
            while !left.is_empty() {
                let section = encode_rows((StreamId(1), 5), 40, &mut left, true);
                prop_assert!(section.bytes.len() <= MAX_SECTION);
                let parsed = Section::parse(&mut Reader::new(&section.bytes)).unwrap();
                prop_assert_eq!(parsed.samples(), section.samples);
                prop_assert_eq!(parsed.last, left.is_empty());
                let Body::Rows(rows) = parsed.body else { panic!("rows") };
                read.extend(rows);
            }
            prop_assert_eq!(read, rows);
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), filter in 0_u8..9) {
            let mut bytes = bytes;
            if bytes.len() > 12 {
                bytes[0] = (bytes.len() - 2) as u8;
                bytes[1] = 0;
                bytes[6] = filter;
            }
            let _ = Section::parse(&mut Reader::new(&bytes));
        }
    }
}
