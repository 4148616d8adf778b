//! One SQLite file: what one day (UTC) brought.
//!
//! | table | row |
//! |---|---|
//! | `metrics` | one a metric; its id is the place of its value in packed rows |
//! | `ticks` | one a tick, so that one node's rows are found by their keys |
//! | `samples` | one a node and tick: key = millisecond of the day << 20, or node; [`crate::pack`] |
//! | `minutes`, `hours` | one a node and minute or hour: key = minute or hour << 20, or node; [`crate::rollup`] |
//! | `streams` | one a stream of reduced values: its name, and the places of its metrics in its rows |
//! | `reduced` | one a stream and tick: values that were reduced on the way, and how many nodes they cover |
//!
//! Keys ascend with time, so what arrives is appended at the end of its table's tree.
//!
//! Invariant: nothing here deletes a row or compacts the file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use crate::metric::{Kind, Metric};
use crate::{DAY_MS, METRICS_MAX, MonitorError, NODE_BITS};

/// Metrics of a file up to which those of streams are added; the rest is for nodes.
const STREAM_METRICS_MAX: usize = METRICS_MAX * 3 / 4;

/// "HeMo": tells the file from other programs' databases.
const APPLICATION_ID: i32 = 0x4865_4d6f;
/// Version of the tables.
const SCHEMA: i32 = 1;
/// Pages of the write-ahead log at which a commit makes a checkpoint itself after all: 512 MB,
/// reached only when [`crate::keep`] is not called or fails.
const LOG_PAGES_MAX: u32 = 65_536;
/// How long a statement waits for another process that holds the file's lock.
const BUSY_LIMIT: Duration = Duration::from_millis(250);
/// Bytes of a page: rows of some hundred bytes, written in order.
const PAGE_BYTES: u32 = 8_192;

const TABLES: &str = "
CREATE TABLE metrics (id INTEGER PRIMARY KEY, name TEXT NOT NULL, unit TEXT NOT NULL, help TEXT NOT NULL,
    counter INTEGER NOT NULL, scale REAL NOT NULL) STRICT;
CREATE TABLE ticks (at INTEGER PRIMARY KEY) STRICT;
CREATE TABLE samples (key INTEGER PRIMARY KEY, packed BLOB NOT NULL) STRICT;
CREATE TABLE minutes (key INTEGER PRIMARY KEY, packed BLOB NOT NULL) STRICT;
CREATE TABLE hours (key INTEGER PRIMARY KEY, packed BLOB NOT NULL) STRICT;
CREATE TABLE reduced (stream INTEGER NOT NULL, at INTEGER NOT NULL, covers INTEGER NOT NULL,
    nodes INTEGER NOT NULL, packed BLOB NOT NULL, PRIMARY KEY (stream, at)) STRICT, WITHOUT ROWID;
";

/// Younger than the other tables: a file that an earlier version began gets it when it is written
/// to.
const STREAMS: &str = "CREATE TABLE IF NOT EXISTS streams (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, places TEXT NOT NULL) STRICT;";

/// A stream of reduced values: its number in the file, and the places of its metrics.
pub type Stream = (i64, Vec<usize>);

/// An open file.
#[derive(Debug)]
pub struct Day {
    /// The connection.
    pub connection: Connection,
    /// Where the file is.
    pub path: PathBuf,
    /// Milliseconds since 1970 at which the day began.
    pub began_ms: u64,
}

/// The day of an instant, counted from 1970.
pub fn day_of(at_ms: u64) -> u64 {
    at_ms / DAY_MS
}

/// The file of a day in the folder `dir`: `2026-11-22.metrics`.
pub fn path_of(dir: &Path, day: u64) -> PathBuf {
    let (year, month, day) = crate::csv::civil(day);
    dir.join(format!("{year:04}-{month:02}-{day:02}.metrics"))
}

/// The day whose file has this name.
pub fn day_of_name(name: &str) -> Option<u64> {
    let date = name.strip_suffix(".metrics")?;
    let mut parts = date.splitn(3, '-').map(str::parse::<u64>);
    let (year, month, day) = (
        parts.next()?.ok()?,
        parts.next()?.ok()?,
        parts.next()?.ok()?,
    );
    // By the calendar's other direction, so that both agree.
    let near = (year.checked_sub(1970)? * 365 + year / 4).saturating_sub(600);
    (near..near + 1_400).find(|&number| crate::csv::civil(number) == (year, month, day))
}

/// Days that have a file in `dir`, the oldest first.
pub fn days_in(dir: &Path) -> Result<Vec<(u64, PathBuf)>, MonitorError> {
    let failed = |source| MonitorError::Io {
        operation: "list",
        path: dir.to_path_buf(),
        source,
    };
    let mut days = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if let Some(day) = entry.file_name().to_str().and_then(day_of_name) {
            days.push((day, entry.path()));
        }
    }
    days.sort();
    Ok(days)
}

/// The key of a row: time above, node below.
pub fn key(time: u64, node: u32) -> i64 {
    (time << NODE_BITS | u64::from(node)) as i64
}

/// Time and node of a key.
pub fn unkey(key: i64) -> (u64, u32) {
    let node = (key as u64 & ((1 << NODE_BITS) - 1)) as u32;
    (key as u64 >> NODE_BITS, node)
}

impl Day {
    /// Opens the file of `day` for writing; makes it where it is missing.
    pub fn create(dir: &Path, day: u64) -> Result<Day, MonitorError> {
        let path = path_of(dir, day);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let open = || {
            let connection = Connection::open_with_flags(&path, flags)?;
            connection.busy_timeout(BUSY_LIMIT)?;
            connection.pragma_update(None, "page_size", PAGE_BYTES)?;
            connection.pragma_update(None, "journal_mode", "WAL")?;
            connection.pragma_update(None, "synchronous", "NORMAL")?;
            connection.pragma_update(None, "wal_autocheckpoint", LOG_PAGES_MAX)?;
            Ok(connection)
        };
        let connection = open().map_err(failed("open", &path))?;
        let day = Day {
            connection,
            path,
            began_ms: day * DAY_MS,
        };
        let (application, schema) = day.identity()?;
        match (application, schema) {
            (0, 0) => day.begin().map_err(failed("write", &day.path))?,
            (APPLICATION_ID, SCHEMA) => {}
            _ => return Err(day.foreign(application, schema)),
        }
        let streams = day.connection.execute_batch(STREAMS);
        streams.map_err(failed("write", &day.path))?;
        Ok(day)
    }

    /// Opens the file of `day` for reading; `None` where there is none.
    pub fn open(dir: &Path, day: u64) -> Result<Option<Day>, MonitorError> {
        let path = path_of(dir, day);
        if !path.exists() {
            return Ok(None);
        }
        // A reader of a write-ahead log shares memory with its writer, for which it needs to write;
        // it changes nothing all the same.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let open = || {
            let connection = Connection::open_with_flags(&path, flags)?;
            connection.busy_timeout(BUSY_LIMIT)?;
            connection.pragma_update(None, "query_only", true)?;
            connection.pragma_update(None, "mmap_size", 1i64 << 34)?;
            Ok(connection)
        };
        let connection = open().map_err(failed("open", &path))?;
        let day = Day {
            connection,
            path,
            began_ms: day * DAY_MS,
        };
        match day.identity()? {
            (APPLICATION_ID, SCHEMA) => Ok(Some(day)),
            // Just made by the writer.
            (0, 0) => Ok(None),
            (application, schema) => Err(day.foreign(application, schema)),
        }
    }

    fn identity(&self) -> Result<(i32, i32), MonitorError> {
        let number = |name: &str| {
            let value = self
                .connection
                .pragma_query_value(None, name, |row| row.get(0));
            value.map_err(failed("read", &self.path))
        };
        Ok((number("application_id")?, number("user_version")?))
    }

    fn foreign(&self, application: i32, schema: i32) -> MonitorError {
        MonitorError::Foreign {
            path: self.path.clone(),
            application,
            schema,
        }
    }

    fn begin(&self) -> rusqlite::Result<()> {
        let head =
            format!("PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {SCHEMA};");
        self.connection
            .execute_batch(&format!("BEGIN;{TABLES}{head}COMMIT;"))
    }

    /// The metrics of the file by their places.
    pub fn metrics(&self) -> Result<Vec<Metric>, MonitorError> {
        let read = || {
            let text = "SELECT name, unit, help, counter, scale FROM metrics ORDER BY id";
            let mut statement = self.connection.prepare(text)?;
            let rows = statement.query_map([], |row| {
                Ok(Metric {
                    name: row.get(0)?,
                    unit: row.get(1)?,
                    help: row.get(2)?,
                    kind: if row.get::<_, bool>(3)? {
                        Kind::Counter
                    } else {
                        Kind::Gauge
                    },
                    scale: row.get(4)?,
                })
            })?;
            rows.collect::<Result<Vec<Metric>, _>>()
        };
        read().map_err(failed("read", &self.path))
    }

    /// The places of `wanted` in the file's rows; those that it does not have yet are added. A
    /// metric whose scale, unit or kind is another than before gets a place of its own, so old rows
    /// keep their meaning.
    pub fn declare(&self, wanted: &[Metric]) -> Result<Vec<usize>, MonitorError> {
        let mut known = self.metrics()?;
        let mut places = Vec::with_capacity(wanted.len());
        for metric in wanted {
            let same = |other: &Metric| {
                (&other.name, &other.unit, other.kind) == (&metric.name, &metric.unit, metric.kind)
                    && other.scale.to_bits() == metric.scale.to_bits()
            };
            let place = match known.iter().position(same) {
                Some(place) => place,
                None if known.len() >= METRICS_MAX => {
                    return Err(MonitorError::TooManyMetrics(known.len() + 1));
                }
                None => {
                    let text = "INSERT INTO metrics (id, name, unit, help, counter, scale)
                        VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
                    let counter = metric.kind == Kind::Counter;
                    let values = rusqlite::params![
                        known.len() as i64,
                        metric.name,
                        metric.unit,
                        metric.help,
                        counter,
                        metric.scale
                    ];
                    let added = self.connection.execute(text, values);
                    added.map_err(failed("write", &self.path))?;
                    known.push(metric.clone());
                    known.len() - 1
                }
            };
            places.push(place);
        }
        Ok(places)
    }

    /// The stream of this name, with values of `metrics` from now on.
    pub fn declare_stream(&self, name: &str, metrics: &[Metric]) -> Result<Stream, MonitorError> {
        // What is counted of nodes finds room whatever streams are opened.
        let known = self.metrics()?;
        let further = metrics
            .iter()
            .filter(|metric| !known.iter().any(|known| known.name == metric.name));
        let all = known.len() + further.count();
        if all > STREAM_METRICS_MAX && all > known.len() {
            return Err(MonitorError::TooManyMetrics(all));
        }
        let places = self.declare(metrics)?;
        let words: Vec<String> = places.iter().map(usize::to_string).collect();
        let text = "INSERT INTO streams (name, places) VALUES (?1, ?2)
            ON CONFLICT (name) DO UPDATE SET places = excluded.places RETURNING id";
        let row = (name, words.join(","));
        let id = self.connection.query_row(text, row, |row| row.get(0));
        Ok((id.map_err(failed("write", &self.path))?, places))
    }

    /// The streams of the file by their names.
    pub fn streams(&self) -> Result<BTreeMap<String, Stream>, MonitorError> {
        let read = || {
            let has = "SELECT count(*) FROM sqlite_schema WHERE name = 'streams'";
            let has: i64 = self.connection.query_row(has, [], |row| row.get(0))?;
            if has == 0 {
                return Ok(BTreeMap::new());
            }
            let text = "SELECT name, id, places FROM streams";
            let mut statement = self.connection.prepare(text)?;
            let rows = statement.query_map([], |row| {
                let places: String = row.get(2)?;
                let places = places.split(',').filter_map(|place| place.parse().ok());
                Ok((row.get(0)?, (row.get(1)?, places.collect())))
            })?;
            rows.collect::<Result<BTreeMap<String, Stream>, _>>()
        };
        read().map_err(failed("read", &self.path))
    }

    /// The largest time in the keys of a table; `None` when it is empty.
    pub fn last_time(&self, table: Table) -> Result<Option<u64>, MonitorError> {
        let text = format!("SELECT max(key) FROM {}", table.name());
        let key = self.connection.query_row(&text, [], |row| row.get(0));
        let key: Option<i64> = key.map_err(failed("read", &self.path))?;
        Ok(key.map(|key| unkey(key).0))
    }
}

/// Tables with a row a node and time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// Ticks.
    Samples,
    /// Minutes.
    Minutes,
    /// Hours.
    Hours,
}

impl Table {
    /// Its name in SQL.
    pub fn name(self) -> &'static str {
        match self {
            Table::Samples => "samples",
            Table::Minutes => "minutes",
            Table::Hours => "hours",
        }
    }
}

/// Makes a [`MonitorError`] of what SQLite said.
pub fn failed(operation: &'static str, path: &Path) -> impl Fn(rusqlite::Error) -> MonitorError {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
    let path = path.to_path_buf();
    move |source| {
        let path = path.clone();
        match source.sqlite_error_code() {
            Some(DatabaseCorrupt | NotADatabase) => MonitorError::Damaged {
                operation,
                path,
                source,
            },
            _ => MonitorError::Sqlite {
                operation,
                path,
                source,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_s_name_is_its_day() {
        for day in (0..40_000).step_by(13) {
            let path = path_of(Path::new("/x"), day);
            let name = path.file_name().unwrap().to_str().unwrap();
            assert_eq!(day_of_name(name), Some(day), "{name}");
        }
        assert_eq!(
            path_of(Path::new("/x"), 20_779),
            Path::new("/x/2026-11-22.metrics")
        );
        for name in [
            "2026-11-22",
            "2026-13-01.metrics",
            "a-b-c.metrics",
            "1-1-1.metrics",
        ] {
            assert_eq!(day_of_name(name), None, "{name}");
        }
    }

    #[test]
    fn another_program_s_file_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = path_of(dir.path(), 3);
        let other = Connection::open(&path).unwrap();
        other
            .execute_batch("PRAGMA application_id = 7; CREATE TABLE x (y)")
            .unwrap();
        drop(other);
        let error = Day::create(dir.path(), 3).unwrap_err().to_string();
        assert!(error.contains("move it away"), "{error}");
        assert!(Day::open(dir.path(), 3).is_err());
    }
}
