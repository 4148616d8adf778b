//! The specification of a stream as STREAM carries it.

use alloc::vec::Vec;

use crate::ids::{JobId, NodeId};
use crate::overlay::filter::{Filter, MAX_BUCKETS};
use crate::overlay::metric::MetricId;
use crate::overlay::stream::{MAX_METRICS, MAX_RANGES, Scope, StreamSpec, Sync};
use crate::time::Micros;
use crate::wire::Error;
use crate::wire::field::{Reader, Writer};

/// Bytes of the longest, with STREAM's own fields.
pub(super) const MAX_LEN: usize =
    7 + 4 + 8 + 8 + (MAX_BUCKETS - 1) * 8 + MAX_RANGES * 8 + MAX_METRICS * 2;

/// Writes a specification that was checked.
pub(super) fn emit(spec: &StreamSpec, writer: &mut Writer<'_>) {
    writer.u8(spec.filter.code());
    if let Filter::Histogram(bounds) = &spec.filter {
        writer.u8(bounds.len() as u8);
        bounds.iter().for_each(|bound| {
            writer.i64(*bound);
        });
    }
    writer.u8(match spec.sync {
        Sync::WaitAll => 1,
        Sync::TimeOut => 2,
        Sync::None => 3,
    });
    writer.u64(spec.period.0).u64(spec.hold.0);
    match &spec.scope {
        Scope::All => {
            writer.u8(0);
        }
        Scope::Nodes(ranges) => {
            writer.u8(ranges.len() as u8);
            ranges.iter().for_each(|(first, last)| {
                writer.u32(first.0).u32(last.0);
            });
        }
        Scope::Job(job) => {
            writer.u8(u8::MAX).u64(job.0);
        }
    }
    writer.u8(spec.metrics.len() as u8);
    spec.metrics.iter().for_each(|metric| {
        writer.u16(metric.0);
    });
}

/// Reads a specification and checks it.
pub(super) fn parse(reader: &mut Reader<'_>) -> Result<StreamSpec, Error> {
    let filter = match reader.u8()? {
        1 => Filter::Sum,
        2 => Filter::Min,
        3 => Filter::Max,
        4 => Filter::Avg,
        5 => Filter::Concat,
        6 => Filter::Classes,
        7 => {
            let count = usize::from(reader.u8()?);
            let mut bounds = Vec::new();
            for _ in 0..count.min(MAX_BUCKETS) {
                bounds.push(reader.i64()?);
            }
            Filter::Histogram(bounds)
        }
        _ => return Err(Error::BadValue),
    };
    let sync = match reader.u8()? {
        1 => Sync::WaitAll,
        2 => Sync::TimeOut,
        3 => Sync::None,
        _ => return Err(Error::BadValue),
    };
    let (period, hold) = (Micros(reader.u64()?), Micros(reader.u64()?));
    let scope = match reader.u8()? {
        0 => Scope::All,
        u8::MAX => Scope::Job(JobId::from_wire(reader.u64()?).ok_or(Error::BadValue)?),
        count if usize::from(count) <= MAX_RANGES => {
            let mut ranges = Vec::with_capacity(count.into());
            for _ in 0..count {
                ranges.push((NodeId(reader.u32()?), NodeId(reader.u32()?)));
            }
            Scope::Nodes(ranges)
        }
        _ => return Err(Error::BadValue),
    };
    let count = usize::from(reader.u8()?);
    if count > MAX_METRICS {
        return Err(Error::BadValue);
    }
    let mut metrics = Vec::with_capacity(count);
    for _ in 0..count {
        metrics.push(MetricId(reader.u16()?));
    }
    let spec = StreamSpec {
        metrics,
        filter,
        sync,
        period,
        hold,
        scope,
    };
    spec.check().map_err(|_| Error::BadValue)?;
    Ok(spec)
}
