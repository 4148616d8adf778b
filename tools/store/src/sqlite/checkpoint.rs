//! Moving the log into the file, beside the writer.
//!
//! Key type: [`Checkpointer`]. Neighbour: [`super::Sqlite`] appends to the log meanwhile.
//!
//! After a checkpoint of the whole log the next commit begins the log anew, and waits for the disk
//! to have its header (`walFrames` in SQLite's wal.c). That commit is made here, so that it is not
//! the writer's.
//!
//! Invariant: the writer waits for this at most as long as for any other process
//! ([`super::BUSY_LIMIT`]).

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use super::open::note_damage;
use super::{BUSY_LIMIT, failed};
use crate::error::StoreError;

/// Makes checkpoints of one store, on a connection of its own.
#[derive(Debug)]
pub struct Checkpointer {
    connection: Connection,
    path: PathBuf,
    /// State of the file, as this connection sees others change it, when the log was moved last.
    seen: Option<i64>,
}

impl Checkpointer {
    pub(super) fn new(path: &Path) -> Result<Self, StoreError> {
        let connect = || {
            let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
            connection.busy_timeout(BUSY_LIMIT)?;
            connection.pragma_update(None, "synchronous", "normal")?;
            Ok(connection)
        };
        Ok(Checkpointer {
            connection: connect().map_err(|source| failed("open", path, source))?,
            path: path.to_path_buf(),
            seen: None,
        })
    }

    /// Brings what is in the log to the disk and into the file, as far as that is possible beside
    /// readers and the writer. Waits for the disk.
    ///
    /// # Errors
    /// [`StoreError::Failed`].
    pub fn run(&mut self) -> Result<(), StoreError> {
        let run = || -> rusqlite::Result<Option<i64>> {
            let version = self
                .connection
                .pragma_query_value(None, "data_version", |row| row.get(0))?;
            if self.seen == Some(version) {
                return Ok(self.seen);
            }
            // A rest that readers still need stays for next time.
            let (pages, moved): (i64, i64) =
                self.connection
                    .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| {
                        Ok((row.get(1)?, row.get(2)?))
                    })?;
            if moved < pages {
                return Ok(None);
            }
            let begin = "INSERT INTO counters (name, value) VALUES ('checkpoints', 1)
                ON CONFLICT (name) DO UPDATE SET value = value + 1";
            self.connection.execute(begin, [])?;
            Ok(Some(version))
        };
        let done = run().map_err(|source| failed("checkpoint", &self.path, source));
        note_damage(&self.path, &done);
        self.seen = done?;
        Ok(())
    }
}
