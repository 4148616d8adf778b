//! Limits by days and by size; checkpoints. To be called every few seconds, by a thread that takes
//! in nothing.
//!
//! Days are counted by files, not by the clock: a clock that is wrong for a moment would make all
//! of them too old at once.
//!
//! Invariant: whole files go, the oldest first, never the newest nor that of the present day; the
//! writer does not wait for any of it.

use std::path::{Path, PathBuf};

use rusqlite::Connection;

use crate::MonitorError;
use crate::day::{days_in, failed};

/// What may be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Days that have a file, the one under way included; at least 1.
    pub days: u64,
    /// Bytes of all files together; those of the newest and of the present day stay even where they
    /// are larger.
    pub bytes: u64,
}

/// What was found and done.
#[derive(Debug, Default)]
pub struct Kept {
    /// Bytes of the files that remain.
    pub bytes: u64,
    /// Files that were removed.
    pub removed: Vec<PathBuf>,
    /// Files whose log could not be moved into them, as errors; the others are as they should be.
    pub troubles: Vec<MonitorError>,
}

/// Moves the write-ahead logs of the two newest files and of the present day's into them and
/// removes files beyond `limits`. `now_ms`: milliseconds since 1970.
///
/// # Errors
/// [`MonitorError`]; what was not removed is tried again by the next call. A log that cannot be
/// moved is no reason to keep files beyond the limits: see [`Kept::troubles`].
pub fn keep(dir: &Path, limits: Limits, now_ms: u64) -> Result<Kept, MonitorError> {
    let days = days_in(dir)?;
    let today = crate::day::day_of(now_ms);
    let newest = days.len().saturating_sub(1);
    let mut troubles = Vec::new();
    for (place, (day, path)) in days.iter().enumerate() {
        if place + 1 >= newest || *day == today {
            troubles.extend(checkpoint(path).err());
        }
    }
    let sizes: Vec<u64> = days.iter().map(|(_, path)| size(path)).collect();
    let mut kept = Kept {
        bytes: sizes.iter().sum(),
        removed: Vec::new(),
        troubles,
    };
    let mut too_many = (days.len() as u64).saturating_sub(limits.days.max(1));
    for ((day, path), bytes) in days.into_iter().zip(sizes).take(newest) {
        if too_many == 0 && kept.bytes <= limits.bytes {
            break;
        }
        if day == today {
            continue;
        }
        remove(&path)?;
        too_many = too_many.saturating_sub(1);
        kept.bytes -= bytes;
        kept.removed.push(path);
    }
    Ok(kept)
}

fn with(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn size(path: &Path) -> u64 {
    let bytes = |path: PathBuf| std::fs::metadata(path).map_or(0, |found| found.len());
    bytes(path.to_path_buf()) + bytes(with(path, "-wal"))
}

fn checkpoint(path: &Path) -> Result<(), MonitorError> {
    let fail = failed("checkpoint", path);
    let connection = Connection::open(path).map_err(&fail)?;
    // PASSIVE waits for nobody: what a reader still needs stays in the log.
    connection
        .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
        .map_err(fail)
}

fn remove(path: &Path) -> Result<(), MonitorError> {
    for suffix in ["", "-wal", "-shm"] {
        let path = with(path, suffix);
        match std::fs::remove_file(&path) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                return Err(MonitorError::Io {
                    operation: "remove",
                    path,
                    source,
                });
            }
            _ => {}
        }
    }
    Ok(())
}
