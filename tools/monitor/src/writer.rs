//! Taking ticks in.
//!
//! Key types: [`Writer`], [`Sample`], [`Appended`]. One call of [`Writer::append`] is one tick and
//! one transaction in the write-ahead log of its day. Roll-ups of the minute and the hour under way
//! are kept in memory and written when the first tick arrives that is [`GRACE_MS`] past their end;
//! after a crash they are made again from the ticks.
//!
//! A clock that was set back: the files are taken up anew where they are. What is older than what
//! they hold is late; a day without a file begins one. So seconds in a wrong year cost these
//! seconds, not the time until then.
//!
//! Invariants: ticks of one node ascend; a tick older than the minute under way and its grace is
//! counted as late and not stored, so that written roll-ups stay true. No row continues one that
//! came after a later tick, so whoever reads in the order of time, a part at a time, cannot miss
//! what a row continues. Minutes leave memory when they are in the file, not before. Nothing is
//! read on the way in.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::day::{self, Day, Stream, Table, failed, key, unkey};
use crate::rollup::{self, Rollup};
use crate::{HOUR_MS, MINUTE_MS, Metric, MonitorError, NODES_MAX, pack};

/// How long after its end a minute still takes ticks: what trees of nodes hold back, and clocks
/// that differ.
pub const GRACE_MS: u64 = 5_000;

/// Values of one node.
#[derive(Debug, Clone, Copy)]
pub struct Sample<'a> {
    /// Its number.
    pub node: u32,
    /// Its values in the order of the metrics given to [`Writer::open`]; `None`: no data.
    pub values: &'a [Option<i64>],
}

/// Values that were reduced on their way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reduced<'a> {
    /// Name of the stream they belong to: what reduced them, and how.
    pub stream: &'a str,
    /// What its values are; the same for as long as the name is.
    pub metrics: &'a [Metric],
    /// Nodes that they cover.
    pub covers: u32,
    /// Nodes that they should cover.
    pub nodes: u32,
    /// The values in the order of the metrics.
    pub values: &'a [Option<i64>],
}

/// What became of samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Appended {
    /// Samples stored.
    pub stored: u64,
    /// Samples not stored because their node had a later one, or their minute was over.
    pub late: u64,
}

/// Writes the files of one folder. One at a time.
#[derive(Debug)]
pub struct Writer {
    dir: PathBuf,
    metrics: Vec<Metric>,
    /// The day under way, and the one before it until its last minute is over.
    days: BTreeMap<u64, Open>,
    /// Samples of before this instant are late.
    floor_ms: u64,
    /// The last tick.
    last_ms: u64,
}

/// Roll-ups of one minute or hour, by node.
type Rolled = BTreeMap<u32, Vec<Rollup>>;

/// What the rows of a node continue.
#[derive(Debug, Default)]
struct Node {
    /// Millisecond of the day of its last row, and one; 0: none.
    last: u64,
    base: Vec<i64>,
}

#[derive(Debug)]
struct Open {
    day: Day,
    /// Place in the file's rows of each metric.
    places: Vec<usize>,
    in_order: bool,
    /// Millisecond of the day before which roll-ups were written by an earlier run.
    floor: u64,
    /// Millisecond of the day of the last tick, and one; 0: none.
    newest: u64,
    nodes: Vec<Node>,
    /// Streams of reduced values that this run has written.
    streams: BTreeMap<String, Stream>,
    minutes: BTreeMap<u64, Rolled>,
    hours: BTreeMap<u64, Rolled>,
}

impl Writer {
    /// Opens the folder `dir` for values of `metrics`; makes it where it is missing.
    ///
    /// # Errors
    /// [`MonitorError`].
    pub fn open(dir: &Path, metrics: &[Metric]) -> Result<Self, MonitorError> {
        std::fs::create_dir_all(dir).map_err(|source| MonitorError::Io {
            operation: "make",
            path: dir.to_path_buf(),
            source,
        })?;
        Ok(Writer {
            dir: dir.to_path_buf(),
            metrics: metrics.to_vec(),
            days: BTreeMap::new(),
            floor_ms: 0,
            last_ms: 0,
        })
    }

    /// The file in the folder `dir` that a tick at `at_ms`, in milliseconds since 1970, is stored
    /// in.
    pub fn file_of(dir: &Path, at_ms: u64) -> PathBuf {
        day::path_of(dir, day::day_of(at_ms))
    }

    /// Lets go of a file that cannot be written any more. What it lacks of roll-ups is made from
    /// its ticks by whoever asks.
    pub fn let_go(&mut self, path: &Path) {
        self.days.retain(|_, open| open.day.path != path);
    }

    /// Stores what nodes had at `at_ms`, in milliseconds since 1970. Of two ticks the later one may
    /// come first, by [`GRACE_MS`] at most; a longer way back is a clock that was set.
    ///
    /// # Errors
    /// [`MonitorError`]; nothing of the tick is stored then.
    pub fn append(&mut self, at_ms: u64, samples: &[Sample]) -> Result<Appended, MonitorError> {
        for sample in samples {
            if sample.node >= NODES_MAX {
                return Err(MonitorError::NodeNumber(sample.node));
            }
            if sample.values.len() > self.metrics.len() {
                return Err(MonitorError::Values {
                    values: sample.values.len(),
                    metrics: self.metrics.len(),
                });
            }
        }
        if at_ms.saturating_add(GRACE_MS) < self.last_ms {
            self.days.clear();
            self.floor_ms = 0;
        }
        self.last_ms = at_ms;
        if at_ms < self.floor_ms {
            return Ok(Appended {
                stored: 0,
                late: samples.len() as u64,
            });
        }
        self.close_before(at_ms.saturating_sub(GRACE_MS))?;
        let appended = self.day(at_ms)?.append(at_ms, samples);
        // What is half in memory and not in the file would make later rows wrong: begin anew from
        // what the file holds.
        if appended.is_err() {
            self.days.remove(&day::day_of(at_ms));
        }
        appended
    }

    /// Stores values that were reduced on their way; a second answer of a stream for the same tick
    /// replaces the first unless it covers less.
    ///
    /// # Errors
    /// [`MonitorError`].
    pub fn append_reduced(&mut self, at_ms: u64, reduced: &Reduced) -> Result<(), MonitorError> {
        if reduced.values.len() > reduced.metrics.len() {
            return Err(MonitorError::Values {
                values: reduced.values.len(),
                metrics: reduced.metrics.len(),
            });
        }
        let open = self.day(at_ms)?;
        let (stream, places) = open.stream(reduced)?;
        let (mut values, mut packed) = (Vec::new(), Vec::new());
        place(reduced.values, &places, &mut values);
        pack::encode(&values, &mut Vec::new(), true, &mut packed);
        let text =
            "INSERT INTO reduced (stream, at, covers, nodes, packed) VALUES (?1, ?2, ?3, ?4, ?5)
            ON CONFLICT (stream, at) DO UPDATE SET covers = excluded.covers, nodes = excluded.nodes,
            packed = excluded.packed WHERE excluded.covers >= covers";
        let at = (at_ms - open.day.began_ms) as i64;
        let mut insert = open
            .day
            .connection
            .prepare_cached(text)
            .map_err(failed("write", &open.day.path))?;
        insert
            .execute(rusqlite::params![
                stream,
                at,
                reduced.covers,
                reduced.nodes,
                packed
            ])
            .map_err(failed("write", &open.day.path))?;
        Ok(())
    }

    /// Writes the roll-ups of every minute and hour that ended before `at_ms`, and lets go of days
    /// that did. [`Writer::append`] does it as time goes on; at the end of a run nothing need be
    /// closed.
    ///
    /// # Errors
    /// [`MonitorError`].
    pub fn close_before(&mut self, at_ms: u64) -> Result<(), MonitorError> {
        let floor = at_ms - at_ms % MINUTE_MS;
        if floor <= self.floor_ms {
            return Ok(());
        }
        for open in self.days.values_mut() {
            open.close_before(floor)?;
        }
        self.days.retain(|day, _| *day >= day::day_of(floor));
        self.floor_ms = floor;
        Ok(())
    }

    fn day(&mut self, at_ms: u64) -> Result<&mut Open, MonitorError> {
        let number = day::day_of(at_ms);
        if !self.days.contains_key(&number) {
            let open = Open::begin(&self.dir, number, &self.metrics)?;
            self.days.insert(number, open);
        }
        Ok(self.days.get_mut(&number).expect("just put there"))
    }
}

/// Puts values at their places in the file's rows.
fn place(values: &[Option<i64>], places: &[usize], placed: &mut Vec<Option<i64>>) {
    placed.clear();
    for (value, &place) in values.iter().zip(places) {
        if placed.len() <= place {
            placed.resize(place + 1, None);
        }
        placed[place] = *value;
    }
}

impl Open {
    fn begin(dir: &Path, number: u64, metrics: &[Metric]) -> Result<Self, MonitorError> {
        let day = Day::create(dir, number)?;
        let places = day.declare(metrics)?;
        let in_order = places
            .iter()
            .enumerate()
            .all(|(index, &place)| index == place);
        let mut open = Open {
            day,
            places,
            in_order,
            floor: 0,
            newest: 0,
            nodes: Vec::new(),
            streams: BTreeMap::new(),
            minutes: BTreeMap::new(),
            hours: BTreeMap::new(),
        };
        open.resume()?;
        Ok(open)
    }

    /// Makes the roll-ups under way again: minutes from ticks, the hour from its minutes. The next
    /// row of every node is a key row.
    fn resume(&mut self) -> Result<(), MonitorError> {
        let path = self.day.path.clone();
        let fail = failed("read", &path);
        let closed = self.day.last_time(Table::Minutes)?;
        let from = closed.map_or(0, |minute| (minute + 1) * MINUTE_MS);
        self.floor = from;
        // The hour under way may be written already, if the clock was ahead for a while.
        let hour = self.day.last_time(Table::Hours)?.map_or(0, |hour| hour + 1);
        let hour = hour.min(from / HOUR_MS);
        let connection = &self.day.connection;
        let mut rows = connection
            .prepare("SELECT key, packed FROM minutes WHERE key >= ?1 ORDER BY key")
            .map_err(&fail)?;
        let mut rows = rows.query([key(hour * 60, 0)]).map_err(&fail)?;
        let mut rolled = Vec::new();
        while let Some(row) = rows.next().map_err(&fail)? {
            let (minute, node) = unkey(row.get(0).map_err(&fail)?);
            let packed: &[u8] = row
                .get_ref(1)
                .and_then(|value| Ok(value.as_blob()?))
                .map_err(&fail)?;
            if rollup::decode(packed, &mut rolled).is_some() {
                let hours = self.hours.entry(minute / 60).or_default();
                rollup::merge_all(hours.entry(node).or_default(), &rolled);
            }
        }
        let mut rows = connection
            .prepare("SELECT key, packed FROM samples WHERE key >= ?1 ORDER BY key")
            .map_err(&fail)?;
        let mut rows = rows.query([key(from, 0)]).map_err(&fail)?;
        let (mut bases, mut values) = (BTreeMap::<u32, Vec<i64>>::new(), Vec::new());
        while let Some(row) = rows.next().map_err(&fail)? {
            let (at, node) = unkey(row.get(0).map_err(&fail)?);
            let packed: &[u8] = row
                .get_ref(1)
                .and_then(|value| Ok(value.as_blob()?))
                .map_err(&fail)?;
            if pack::decode(packed, bases.entry(node).or_default(), &mut values).is_some() {
                let minute = self.minutes.entry(at / MINUTE_MS).or_default();
                rollup::add_all(minute.entry(node).or_default(), &values);
            }
            if self.nodes.len() <= node as usize {
                self.nodes.resize_with(node as usize + 1, Node::default);
            }
            self.nodes[node as usize].last = at + 1;
            self.newest = at + 1;
        }
        // So that the next row is a key row although its minute has rows: no row continues a base
        // that is not in memory.
        for node in &mut self.nodes {
            node.base.clear();
        }
        Ok(())
    }

    /// The stream of reduced values in this file.
    fn stream(&mut self, reduced: &Reduced) -> Result<Stream, MonitorError> {
        if let Some(known) = self.streams.get(reduced.stream) {
            return Ok(known.clone());
        }
        let stream = self.day.declare_stream(reduced.stream, reduced.metrics)?;
        self.streams
            .insert(reduced.stream.to_string(), stream.clone());
        Ok(stream)
    }

    fn append(&mut self, at_ms: u64, samples: &[Sample]) -> Result<Appended, MonitorError> {
        let at = at_ms - self.day.began_ms;
        if at < self.floor {
            return Ok(Appended {
                stored: 0,
                late: samples.len() as u64,
            });
        }
        let minute = at / MINUTE_MS;
        let path = self.day.path.clone();
        let fail = failed("write", &path);
        // Taken out, so that the rows' statement can borrow the connection.
        let mut nodes = std::mem::take(&mut self.nodes);
        let mut rolled = self.minutes.remove(&minute).unwrap_or_default();
        let mut appended = Appended::default();
        let mut write = || {
            let connection = &self.day.connection;
            let transaction = connection.unchecked_transaction()?;
            connection
                .prepare_cached("INSERT OR IGNORE INTO ticks (at) VALUES (?1)")?
                .execute([at as i64])?;
            let mut insert =
                connection.prepare_cached("INSERT INTO samples (key, packed) VALUES (?1, ?2)")?;
            let (mut packed, mut placed) = (Vec::new(), Vec::new());
            for sample in samples {
                let index = sample.node as usize;
                if nodes.len() <= index {
                    nodes.resize_with(index + 1, Node::default);
                }
                let node = &mut nodes[index];
                if node.last > at {
                    appended.late += 1;
                    continue;
                }
                let values = if self.in_order {
                    sample.values
                } else {
                    place(sample.values, &self.places, &mut placed);
                    &placed
                };
                let first = node.last == 0 || (node.last - 1) / MINUTE_MS != minute;
                packed.clear();
                let key_row = first || node.base.is_empty();
                pack::encode(values, &mut node.base, key_row, &mut packed);
                if at < self.newest {
                    node.base.clear();
                }
                insert.execute(rusqlite::params![key(at, sample.node), packed])?;
                node.last = at + 1;
                rollup::add_all(rolled.entry(sample.node).or_default(), values);
                appended.stored += 1;
            }
            drop(insert);
            transaction.commit()
        };
        let written = write();
        self.nodes = nodes;
        self.minutes.insert(minute, rolled);
        self.newest = self.newest.max(at + 1);
        written.map_err(fail)?;
        Ok(appended)
    }

    /// Writes the roll-ups that ended before `floor_ms`, a whole minute.
    fn close_before(&mut self, floor_ms: u64) -> Result<(), MonitorError> {
        let floor = floor_ms.saturating_sub(self.day.began_ms);
        let path = self.day.path.clone();
        let fail = failed("write", &path);
        let mut packed = Vec::new();
        // In the file first: what cannot be written now is written with the next tick.
        while let Some((&minute, rolled)) = self.minutes.first_key_value()
            && minute < floor / MINUTE_MS
        {
            self.write(Table::Minutes, minute, rolled, &mut packed)
                .map_err(&fail)?;
            let hour = self.hours.entry(minute / 60).or_default();
            for (node, rollups) in self.minutes.remove(&minute).unwrap_or_default() {
                rollup::merge_all(hour.entry(node).or_default(), &rollups);
            }
        }
        while let Some((&hour, rolled)) = self.hours.first_key_value()
            && hour < floor / HOUR_MS
        {
            self.write(Table::Hours, hour, rolled, &mut packed)
                .map_err(&fail)?;
            self.hours.remove(&hour);
        }
        Ok(())
    }

    fn write(
        &self,
        table: Table,
        time: u64,
        rolled: &Rolled,
        packed: &mut Vec<u8>,
    ) -> rusqlite::Result<()> {
        let connection = &self.day.connection;
        let transaction = connection.unchecked_transaction()?;
        let text = format!(
            "INSERT OR REPLACE INTO {} (key, packed) VALUES (?1, ?2)",
            table.name()
        );
        let mut insert = connection.prepare_cached(&text)?;
        for (&node, rollups) in rolled {
            packed.clear();
            rollup::encode(rollups, packed);
            insert.execute(rusqlite::params![key(time, node), &*packed])?;
        }
        drop(insert);
        transaction.commit()
    }
}
