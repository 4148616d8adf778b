//! The store in one SQLite file.
//!
//! | module | purpose |
//! |---|---|
//! | `open` | opening: damage, versions, foreign files |
//! | `schema` | tables, and the steps from each version to the next |
//! | `apply` | changes as statements |
//! | `query` | queries |
//! | `values` | how hashes, addresses and large numbers are written |
//! | `checkpoint` | moving the log into the file, beside the writer |
//!
//! Key types: [`Sqlite`], [`Opened`], [`Checkpointer`]. Neighbour: [`crate::Memory`], the model.
//!
//! A write-ahead log with `synchronous=NORMAL`: a commit appends to the log by `write(2)` and does
//! not wait for the disk. The kernel has the bytes then, so they survive the death of the process
//! at any moment (`kill -9`); a power failure can lose the commits since the last checkpoint, but
//! never leaves half of one (SQLite, "Write-Ahead Logging", section 3.2 and "PRAGMA synchronous").
//! Checkpoints wait for the disk, so they are not made by the writer but by a [`Checkpointer`].
//!
//! Invariant: every change of the file is in a transaction. The writer waits for the disk only
//! where it commits in the instant between a checkpoint and the commit that follows it there, or
//! where the log has reached its bound because checkpoints fail; for others it waits [`BUSY_LIMIT`]
//! at most.

mod apply;
mod checkpoint;
mod open;
mod query;
mod schema;
#[cfg(test)]
mod tests;
mod values;

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, TransactionBehavior};

pub use checkpoint::Checkpointer;
pub use open::{Opened, look_over, set_aside};
pub use schema::VERSION;

use crate::batch::Batch;
use crate::error::{Failure, StoreError};
use crate::rows::Limits;
use crate::{Query, Store};

/// How long a commit waits for another process that has the file locked, such as somebody's
/// `sqlite3` shell: the caller holds up the control node meanwhile, and nodes are given six
/// seconds.
pub const BUSY_LIMIT: Duration = Duration::from_millis(250);

/// How long a reader waits; it holds up only its own answer.
const READER_BUSY_LIMIT: Duration = Duration::from_secs(5);

/// Statements kept prepared: all there are.
const STATEMENTS: usize = 64;

/// A store in a file.
#[derive(Debug)]
pub struct Sqlite {
    connection: Connection,
    path: PathBuf,
    limits: Limits,
    counts: apply::Counts,
}

impl Sqlite {
    /// Opens the store at `path`, beginning one where there is none. A file whose damage shows is
    /// set aside (see [`set_aside`]) and a new store begun.
    ///
    /// # Errors
    /// [`StoreError::Newer`] and [`StoreError::Foreign`], after which the file is as it was;
    /// [`StoreError::Failed`], [`StoreError::SetAside`].
    pub fn open(path: &Path, limits: Limits) -> Result<Opened, StoreError> {
        open::open(path, limits)
    }

    /// Sets the file at `path` aside, which is damaged as `what` says, and begins a new store in
    /// its place.
    ///
    /// # Errors
    /// See [`Sqlite::open`].
    pub fn begin_anew(path: &Path, limits: Limits, what: &str) -> Result<Opened, StoreError> {
        open::begin_anew(path, limits, what)
    }

    /// What moves the log into the file; to be run on another thread.
    ///
    /// # Errors
    /// [`StoreError::Failed`].
    pub fn checkpointer(&self) -> Result<Checkpointer, StoreError> {
        Checkpointer::new(&self.path)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn failed(&self, operation: &'static str, source: rusqlite::Error) -> StoreError {
        failed(operation, &self.path, source)
    }

    fn write(&mut self, batch: &Batch) -> rusqlite::Result<()> {
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut counts = self.counts;
        for change in batch.changes() {
            apply::change(&transaction, &mut counts, change)?;
        }
        apply::trim(&transaction, &mut counts, &self.limits)?;
        transaction.commit()?;
        self.counts = counts;
        Ok(())
    }
}

impl Store for Sqlite {
    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError> {
        if batch.is_empty() {
            return Ok(());
        }
        let written = self.write(batch);
        let written = written.map_err(|source| self.failed("write", source));
        open::note_damage(&self.path, &written);
        written
    }

    fn reader(&self) -> Result<Box<dyn Query + Send>, StoreError> {
        let connect = || {
            let connection =
                Connection::open_with_flags(&self.path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
            connection.busy_timeout(READER_BUSY_LIMIT)?;
            connection.set_prepared_statement_cache_capacity(STATEMENTS);
            // Readers of a write-ahead log write its index, so the file is not opened read-only.
            connection.pragma_update(None, "query_only", true)?;
            Ok(connection)
        };
        let connection = connect().map_err(|source| self.failed("open", source))?;
        Ok(Box::new(Sqlite {
            connection,
            path: self.path.clone(),
            limits: self.limits,
            counts: self.counts,
        }))
    }
}

fn failed(operation: &'static str, path: &Path, source: rusqlite::Error) -> StoreError {
    StoreError::Failed {
        operation,
        path: path.to_path_buf(),
        failure: Failure::of(&source),
        source: Box::new(source),
    }
}
