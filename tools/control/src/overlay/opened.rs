//! Streams that somebody opened: until they are closed or end with their jobs they are rows of the
//! store, and go on when control is started again.
//!
//! Key functions: [`Overlay::open`], [`Overlay::reopen`]; [`row`], [`read`]. Neighbours:
//! [`super::asked`] has their values, `ledger` writes and reads the rows.
//!
//! Invariant: what a row says is checked like what somebody asks for: it is opened as any other
//! stream.

use std::collections::BTreeSet;

use hearth_store::{Batch, StreamRow};
use netstack::ids::{JobId, NodeId};
use netstack::overlay::{Filter, MetricId, Scope, StreamError, StreamId, StreamSpec, Sync};
use netstack::time::{Instant, Micros};
use serde::{Deserialize, Serialize};

use super::{Asked, Overlay};
use crate::events::Severity;
use crate::principal::Operator;

/// Numbers of nodes are below this: as many as a front end knows.
const NODES_MAX: u32 = 1 << 17;
/// How long after a job's end its last values come at the latest: a hold for each level.
const LAST_VALUES: Micros = Micros::from_millis(500);

impl Overlay {
    /// Opens a stream that somebody asks for.
    ///
    /// # Errors
    /// The specification is out of bounds, or as many are open as may be.
    pub fn open(
        &mut self,
        _: &Operator<'_>,
        now: Instant,
        spec: StreamSpec,
    ) -> Result<StreamId, StreamError> {
        let id = self.front.open(now, spec.clone())?;
        self.put(id, Asked::new(id, spec));
        Ok(id)
    }

    fn put(&mut self, id: StreamId, asked: Asked) {
        self.changes.put_stream(row(id, &asked.name, &asked.spec));
        self.asked.insert(id, asked);
    }

    /// Opens the streams again that were open when control ended, under their numbers and names;
    /// not those of jobs that are over. `is_open`: whether a job is in this attempt still.
    pub fn reopen(
        &mut self,
        now: Instant,
        mut rows: Vec<StreamRow>,
        is_open: impl Fn(JobId) -> bool,
    ) {
        // Those whose numbers are control's own by now get new ones, behind all others. All rows
        // are written anew.
        rows.sort_by_key(|row| self.front.streams().contains_key(&StreamId(row.number)));
        for row in &rows {
            self.changes.end_stream(row.number);
        }
        let mut again = Vec::new();
        for row in rows {
            let number = row.number;
            match self.reopen_one(now, &row, &is_open) {
                Ok(id) if id.0 == number => again.push(number.to_string()),
                Ok(id) => again.push(format!("{number} as {}", id.0)),
                Err(why) => {
                    let text = format!(
                        "stream {number} ({}), which was open when control ended, is over: {why}",
                        row.name
                    );
                    self.tell(Severity::Warning, "overlay-stream-over", text);
                }
            }
        }
        if !again.is_empty() {
            let text = format!(
                "streams that were open when control ended are open again: {}",
                again.join(", ")
            );
            self.tell(Severity::Info, "overlay-streams-again", text);
        }
    }

    fn reopen_one(
        &mut self,
        now: Instant,
        row: &StreamRow,
        is_open: &impl Fn(JobId) -> bool,
    ) -> Result<StreamId, String> {
        let spec = read(row).map_err(|error| format!("it cannot be read: {error}"))?;
        if !makes_sense(&spec) {
            return Err(
                "what is stored of it names metrics or nodes that there are not, or a metric twice"
                    .to_string(),
            );
        }
        if let Scope::Job(job) = spec.scope
            && !is_open(job)
        {
            let job = crate::jobs::attempt::number(job);
            return Err(format!("job {job} is"));
        }
        let id = self.front.reopen(now, StreamId(row.number), spec.clone());
        let id = id.map_err(|error| error.to_string())?;
        self.put(id, Asked::named(row.name.as_str().into(), spec));
        Ok(id)
    }

    /// What the store is to know since the last call.
    pub fn take_changes(&mut self) -> Batch {
        std::mem::take(&mut self.changes)
    }

    /// Closes a stream that somebody asked for. False: there is none of this number.
    pub fn close(&mut self, _: &Operator<'_>, now: Instant, stream: StreamId) -> bool {
        // Its last values still come; with its end it goes.
        let known = self.asked.contains_key(&stream);
        if known {
            self.front.close(now, stream);
        }
        known
    }

    /// A job is over on its nodes, and its streams with it, as soon as the last values can have
    /// come.
    pub fn job_over(&mut self, now: Instant, job: JobId) {
        let of_job = |asked: &Asked| asked.spec.scope == Scope::Job(job);
        if self.asked.values().any(of_job) {
            self.front.job_ending(now, job);
            self.ending.push((now + LAST_VALUES, job));
        }
    }

    /// Closes streams of jobs that are over. The last values stay to be seen.
    pub(super) fn end_streams(&mut self, now: Instant) {
        let due = self.ending.iter().filter(|(at, _)| *at <= now);
        let due: Vec<JobId> = due.map(|(_, job)| *job).collect();
        self.ending.retain(|(at, _)| *at > now);
        for job in due {
            self.front.job_ended(now, job);
            while let Some(event) = self.front.poll_event() {
                self.take(now, event);
            }
        }
    }
}

/// A [`StreamSpec`] in JSON.
#[derive(Serialize, Deserialize)]
struct Stored {
    /// By number: they do not change their meaning.
    metrics: Vec<u16>,
    #[serde(with = "FilterWord")]
    filter: Filter,
    #[serde(with = "SyncWord")]
    sync: Sync,
    period_us: u64,
    hold_us: u64,
    scope: StoredScope,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Filter", rename_all = "kebab-case")]
enum FilterWord {
    Sum,
    Min,
    Max,
    Avg,
    Concat,
    Classes,
    Histogram(Vec<i64>),
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Sync", rename_all = "kebab-case")]
enum SyncWord {
    WaitAll,
    TimeOut,
    None,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum StoredScope {
    All,
    /// Ranges, both ends included.
    Nodes(Vec<(u32, u32)>),
    /// As the job's nodes know it: its number and attempt.
    Job(u64),
}

/// The row of a stream.
pub(super) fn row(id: StreamId, name: &str, spec: &StreamSpec) -> StreamRow {
    let stored = Stored {
        metrics: spec.metrics.iter().map(|metric| metric.0).collect(),
        filter: spec.filter.clone(),
        sync: spec.sync,
        period_us: spec.period.0,
        hold_us: spec.hold.0,
        scope: match &spec.scope {
            Scope::All => StoredScope::All,
            Scope::Nodes(ranges) => StoredScope::Nodes(
                ranges
                    .iter()
                    .map(|(first, last)| (first.0, last.0))
                    .collect(),
            ),
            Scope::Job(job) => StoredScope::Job(job.0),
        },
    };
    StreamRow {
        number: id.0,
        name: name.to_string(),
        spec: serde_json::to_string(&stored).expect("plain data"),
    }
}

/// Nobody can have asked for a stream that has metrics which there are not, one twice, or nodes
/// beyond all numbers.
fn makes_sense(spec: &StreamSpec) -> bool {
    let metrics: BTreeSet<u16> = spec.metrics.iter().map(|metric| metric.0).collect();
    let known = |metric: &MetricId| super::catalogue::described(*metric).is_some();
    let within = match &spec.scope {
        Scope::Nodes(ranges) => ranges.iter().all(|(_, last)| last.0 < NODES_MAX),
        Scope::All | Scope::Job(_) => true,
    };
    metrics.len() == spec.metrics.len() && spec.metrics.iter().all(known) && within
}

/// What the stream of a row is.
///
/// # Errors
/// What cannot be read.
pub(super) fn read(row: &StreamRow) -> Result<StreamSpec, serde_json::Error> {
    let stored: Stored = serde_json::from_str(&row.spec)?;
    let ranges = |ranges: Vec<(u32, u32)>| {
        let ranges = ranges.into_iter();
        ranges
            .map(|(first, last)| (NodeId(first), NodeId(last)))
            .collect()
    };
    Ok(StreamSpec {
        metrics: stored.metrics.into_iter().map(MetricId).collect(),
        filter: stored.filter,
        sync: stored.sync,
        period: Micros(stored.period_us),
        hold: Micros(stored.hold_us),
        scope: match stored.scope {
            StoredScope::All => Scope::All,
            StoredScope::Nodes(nodes) => Scope::Nodes(ranges(nodes)),
            StoredScope::Job(job) => Scope::Job(JobId(job)),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let scopes = [
            Scope::All,
            Scope::Nodes(vec![(NodeId(1), NodeId(3)), (NodeId(7), NodeId(7))]),
            Scope::Job(JobId(5 | 3 << 40)),
        ];
        let filters = [Filter::Histogram(vec![-4, 7]), Filter::Avg, Filter::Concat];
        let syncs = [Sync::WaitAll, Sync::TimeOut, Sync::None];
        for ((scope, filter), sync) in scopes.into_iter().zip(filters).zip(syncs) {
            let spec = StreamSpec {
                scope,
                sync,
                hold: Micros(7_000),
                ..StreamSpec::new(vec![MetricId(1), MetricId(9)], filter, Micros(10_000))
            };
            let row = row(StreamId(9), "stream-9-1", &spec);
            assert_eq!((row.number, &*row.name), (9, "stream-9-1"));
            assert_eq!(read(&row).unwrap(), spec);
        }
        let broken = StreamRow {
            number: 9,
            name: String::new(),
            spec: "{}".to_string(),
        };
        assert!(read(&broken).is_err());
        let good = StreamSpec::new(vec![MetricId(1), MetricId(2)], Filter::Sum, Micros(10_000));
        assert!(makes_sense(&good));
        let nodes = |last| StreamSpec {
            scope: Scope::Nodes(vec![(NodeId(0), NodeId(last))]),
            ..good.clone()
        };
        assert!(makes_sense(&nodes(NODES_MAX - 1)));
        assert!(!makes_sense(&nodes(u32::MAX)));
        for metrics in [vec![MetricId(1), MetricId(1)], vec![MetricId(u16::MAX)]] {
            let spec = StreamSpec {
                metrics,
                ..good.clone()
            };
            assert!(!makes_sense(&spec));
        }
    }
}
