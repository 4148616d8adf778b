//! Reading values that a tree of nodes has reduced on the way.
//!
//! Key types: [`StreamInfo`], [`Reduction`]. Neighbour: `Writer::append_reduced` writes them.
//!
//! Invariant: as for all questions: a damaged day costs itself, and an answer has at most
//! `VALUES_MAX` values.

use std::collections::BTreeMap;

use crate::day::failed;
use crate::{Metric, MonitorError, Reader, Span, pack};

/// A stream of which the files have values.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamInfo {
    /// Its name.
    pub name: String,
    /// What its values are.
    pub metrics: Vec<Metric>,
    /// Its first and its last tick in the files asked, in milliseconds since 1970.
    pub from_ms: u64,
    /// See `from_ms`.
    pub to_ms: u64,
    /// Ticks in the files asked.
    pub ticks: u64,
}

/// Values of one tick.
#[derive(Debug, Clone, PartialEq)]
pub struct ReducedTick {
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// Nodes that they cover.
    pub covers: u32,
    /// Nodes that they should cover.
    pub nodes: u32,
    /// Stored values in the order of the metrics.
    pub values: Vec<Option<i64>>,
}

/// Values of a stream.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reduction {
    /// What the values are.
    pub metrics: Vec<Metric>,
    /// By time.
    pub ticks: Vec<ReducedTick>,
}

impl Reader {
    /// The streams of the days of a span.
    ///
    /// # Errors
    /// [`MonitorError`].
    pub fn streams(&self, span: Span) -> Result<Vec<StreamInfo>, MonitorError> {
        let mut found: BTreeMap<String, StreamInfo> = BTreeMap::new();
        for day in self.days(span)? {
            let (Some(known), Some(streams)) =
                (self.sound(day.metrics())?, self.sound(day.streams())?)
            else {
                continue;
            };
            for (name, (id, places)) in streams {
                let text = "SELECT count(*), min(at), max(at) FROM reduced WHERE stream = ?1";
                let row = day.connection.query_row(text, [id], |row| {
                    let at = |column| row.get::<_, Option<i64>>(column);
                    Ok((row.get::<_, i64>(0)?, at(1)?, at(2)?))
                });
                let row = self.sound(row.map_err(failed("read", &day.path)))?;
                let Some((ticks, Some(first), Some(last))) = row else {
                    continue;
                };
                let at = |at: i64| day.began_ms + at.max(0) as u64;
                let info = found.entry(name.clone()).or_insert_with(|| StreamInfo {
                    name,
                    metrics: Vec::new(),
                    from_ms: at(first),
                    to_ms: 0,
                    ticks: 0,
                });
                let metrics = places.iter().filter_map(|&place| known.get(place).cloned());
                info.metrics = metrics.collect();
                info.to_ms = at(last);
                info.ticks += ticks.max(0) as u64;
            }
        }
        Ok(found.into_values().collect())
    }

    /// Values of a stream, with their coverage. None: the days of the span do not have it. Its
    /// metrics are those of the last day.
    ///
    /// # Errors
    /// [`MonitorError`].
    pub fn reduced(&self, stream: &str, span: Span) -> Result<Option<Reduction>, MonitorError> {
        let mut found: Option<Reduction> = None;
        for day in self.days(span)? {
            let (Some(known), Some(mut streams)) =
                (self.sound(day.metrics())?, self.sound(day.streams())?)
            else {
                continue;
            };
            let Some((id, places)) = streams.remove(stream) else {
                continue;
            };
            let found = found.get_or_insert_default();
            let metrics = places.iter().filter_map(|&place| known.get(place).cloned());
            found.metrics = metrics.collect();
            let mut read = || {
                let text = "SELECT at, covers, nodes, packed FROM reduced
                    WHERE stream = ?1 AND at >= ?2 AND at < ?3 ORDER BY at";
                let mut statement = day.connection.prepare(text)?;
                let from = span.from_ms.saturating_sub(day.began_ms) as i64;
                let to = (span.to_ms - day.began_ms) as i64;
                let mut rows = statement.query((id, from, to))?;
                let mut values = Vec::new();
                while let Some(row) = rows.next()? {
                    let packed = row.get_ref(3)?.as_blob()?;
                    if pack::decode(packed, &mut Vec::new(), &mut values).is_none() {
                        self.unreadable.set(self.unreadable.get() + 1);
                        continue;
                    }
                    let value = |place: &usize| *values.get(*place)?;
                    found.ticks.push(ReducedTick {
                        at_ms: day.began_ms + row.get::<_, i64>(0)?.max(0) as u64,
                        covers: row.get(1)?,
                        nodes: row.get(2)?,
                        values: places.iter().map(value).collect(),
                    });
                    if found.ticks.len() * places.len() > self.values_max {
                        break;
                    }
                }
                Ok(())
            };
            self.sound(read().map_err(failed("read", &day.path)))?;
            self.bounded(found.ticks.len() * found.metrics.len())?;
        }
        Ok(found)
    }
}
