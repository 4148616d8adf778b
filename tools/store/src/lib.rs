//! What the control node must not forget when it is killed: machines and their numbers, which node
//! holds which program warm and which files, programs, jobs, casts, tokens, events.
//!
//! | module | purpose |
//! |---|---|
//! | [`rows`] | one type a table, and the bounds of the tables |
//! | [`batch`] | changes that are written together or not at all |
//! | [`memory`] | [`Memory`]: the model that tests hold [`Sqlite`] against |
//! | [`sqlite`] | [`Sqlite`]: one file, by the bundled SQLite |
//! | [`error`] | what can go wrong, and what to do about it |
//!
//! Key types: [`Store`] (writes), [`Query`] (reads), [`Batch`]. Neighbour: `hearth-control` keeps
//! its working state in memory, writes changes here, and reads them back when it starts.
//!
//! Invariants: a committed batch survives the death of the process at any later moment, and no
//! part of a batch is ever seen without the rest; every table has a bound; [`Memory`] and
//! [`Sqlite`] answer every query alike (tests hold them against each other).

#![forbid(unsafe_code)]

use std::ops::ControlFlow;

pub mod batch;
pub mod error;
pub mod memory;
pub mod rows;
pub mod sqlite;

pub use batch::{Batch, Change};
pub use error::{Failure, StoreError};
pub use memory::Memory;
pub use rows::{
    CastRow, DrainRow, EventRow, FileRow, HeldRow, JobRow, Limits, NodeRow, ProgramHash,
    ProgramRow, ProgramUse, RankEndRow, SpecRow, StreamRow, TokenRow, WarmRow,
};
pub use sqlite::{Checkpointer, Opened, Sqlite, look_over, set_aside};

/// A store that can be written.
pub trait Store: Query + Send {
    /// Writes all of `batch`, or nothing of it. When it returns, the changes survive the death of
    /// this process; they reach the disk itself a little later (see [`Sqlite`]).
    ///
    /// # Errors
    /// [`StoreError`]; the batch can be committed again later.
    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError>;

    /// A second view of the same store, for readers that must not hold up the writer.
    ///
    /// # Errors
    /// [`StoreError::Failed`].
    fn reader(&self) -> Result<Box<dyn Query + Send>, StoreError>;
}

/// What can be asked of a store. Every answer has a bound: that of its table, or `limit`.
pub trait Query {
    /// All machines, by node number.
    ///
    /// # Errors
    /// [`StoreError::Failed`], here and below.
    fn nodes(&self) -> Result<Vec<NodeRow>, StoreError>;

    /// Everything that nodes are believed to hold, by node number and program.
    ///
    /// # Errors
    /// See [`Query::nodes`].
    fn warm(&self) -> Result<Vec<WarmRow>, StoreError>;

    /// At most `limit` programs, the last used first (programs of the same moment by hash).
    ///
    /// # Errors
    /// See [`Query::nodes`].
    fn programs(&self, limit: u32) -> Result<Vec<ProgramRow>, StoreError>;

    /// One job.
    ///
    /// # Errors
    /// See [`Query::nodes`].
    fn job(&self, id: u64) -> Result<Option<JobRow>, StoreError>;

    /// Gives jobs that have ended and whose numbers are below `before` (if given) to `each`, one by
    /// one, the highest number first, until it breaks off. Only one row is in memory at a time.
    ///
    /// # Errors
    /// See [`Query::nodes`].
    fn each_ended_job(
        &self,
        before: Option<u64>,
        each: &mut dyn FnMut(JobRow) -> ControlFlow<()>,
    ) -> Result<(), StoreError>;

    /// At most `limit` of these.
    ///
    /// # Errors
    /// See [`Query::nodes`].
    fn ended_jobs(&self, before: Option<u64>, limit: u32) -> Result<Vec<JobRow>, StoreError> {
        let mut rows = Vec::new();
        self.each_ended_job(before, &mut |row| {
            if rows.len() == limit as usize {
                return ControlFlow::Break(());
            }
            rows.push(row);
            ControlFlow::Continue(())
        })?;
        Ok(rows)
    }

    /// At most `limit` jobs that have not ended, the lowest number first: after a crash, the ones
    /// that were under way.
    ///
    /// # Errors
    /// See [`Query::nodes`].
    fn open_jobs(&self, limit: u32) -> Result<Vec<JobRow>, StoreError>;

    /// What at most `limit` jobs that have not ended were asked to be, the lowest number first.
    ///
    /// # Errors
    /// See [`Query::nodes`].
    fn specs(&self, limit: u32) -> Result<Vec<SpecRow>, StoreError>;

    /// How at most `limit` ranks ended of jobs that have not, by job and rank.
    ///
    /// # Errors
    /// See [`Query::nodes`].
    fn rank_ends(&self, limit: u32) -> Result<Vec<RankEndRow>, StoreError>;

    /// Nodes that get no jobs, by number.
    ///
    /// # Errors
    /// See [`Query::nodes`].
    fn drains(&self) -> Result<Vec<DrainRow>, StoreError>;

    /// The number of this cluster, once it has one: another cluster of the same name has another.
    ///
    /// # Errors
    /// See [`Query::nodes`].
    fn instance(&self) -> Result<Option<u64>, StoreError>;

    /// At most `limit` events with numbers above `after`, the oldest first.
    ///
    /// # Errors
    /// See [`Query::nodes`].
    fn events(&self, after: u64, limit: u32) -> Result<Vec<EventRow>, StoreError>;

    /// Names of files that were cast, by name.
    ///
    /// # Errors
    /// See [`Query::nodes`].
    fn files(&self) -> Result<Vec<FileRow>, StoreError>;

    /// Cast files that nodes are believed to hold, by node number and object.
    ///
    /// # Errors
    /// See [`Query::nodes`].
    fn held(&self) -> Result<Vec<HeldRow>, StoreError>;

    /// Casts that are not over, by number.
    ///
    /// # Errors
    /// See [`Query::nodes`].
    fn casts(&self) -> Result<Vec<CastRow>, StoreError>;

    /// Streams that are open, by number.
    ///
    /// # Errors
    /// See [`Query::nodes`].
    fn streams(&self) -> Result<Vec<StreamRow>, StoreError>;

    /// Tokens that nobody has revoked, by number.
    ///
    /// # Errors
    /// See [`Query::nodes`].
    fn tokens(&self) -> Result<Vec<TokenRow>, StoreError>;

    /// The number that the next token gets: above that of every token there has been.
    ///
    /// # Errors
    /// See [`Query::nodes`].
    fn next_token(&self) -> Result<u64, StoreError>;

    /// The number that the next cast gets: above that of every cast there has been.
    ///
    /// # Errors
    /// See [`Query::nodes`].
    fn next_cast(&self) -> Result<u64, StoreError>;

    /// The number that the next job gets: above that of every job ever written, also of those that
    /// are gone by now.
    ///
    /// # Errors
    /// See [`Query::nodes`].
    fn next_job(&self) -> Result<u64, StoreError>;

    /// The number that the next event gets: above that of the newest event.
    ///
    /// # Errors
    /// See [`Query::nodes`].
    fn next_event(&self) -> Result<u64, StoreError>;
}
