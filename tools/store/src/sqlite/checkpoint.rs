//! Moving the log into the file, beside the writer.
//!
//! Key type: [`Checkpointer`]. Neighbour: [`super::Sqlite`] appends to the log meanwhile.
//!
//! Invariant: nothing here makes the writer wait.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use super::failed;
use crate::error::StoreError;

/// Makes checkpoints of one store, on a connection of its own.
#[derive(Debug)]
pub struct Checkpointer {
    connection: Connection,
    path: PathBuf,
}

impl Checkpointer {
    pub(super) fn new(path: &Path) -> Result<Self, StoreError> {
        let connect = || {
            let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
            connection.pragma_update(None, "synchronous", "normal")?;
            Ok(connection)
        };
        Ok(Checkpointer {
            connection: connect().map_err(|source| failed("open", path, source))?,
            path: path.to_path_buf(),
        })
    }

    /// Brings what is in the log to the disk and into the file, as far as that is possible beside
    /// readers and the writer. Waits for the disk.
    ///
    /// # Errors
    /// [`StoreError::Failed`].
    pub fn run(&mut self) -> Result<(), StoreError> {
        // Answers three numbers (busy, pages in the log, pages moved); a rest stays for next time.
        self.connection
            .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
            .map_err(|source| failed("checkpoint", &self.path, source))
    }
}
