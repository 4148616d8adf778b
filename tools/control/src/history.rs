//! What the store remembers, for readers: jobs, events and programs of the past.
//!
//! Key type: [`History`]. Neighbours: `ledger` writes; `api` asks here for what is not in memory
//! any more.
//!
//! Invariant: queries run on a thread of their own with a view of their own, never under the lock
//! of the control state; one at a time, each with a limit.

use std::sync::{Arc, Mutex};

use hearth_store::{ProgramRow, Query, StoreError};

use crate::api::types::JobInfo;
use crate::events::Event;
use crate::stored;

/// Readers' view of the store; clones share it.
#[derive(Clone)]
pub struct History {
    store: Arc<Mutex<Box<dyn Query + Send>>>,
}

impl std::fmt::Debug for History {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("History").finish_non_exhaustive()
    }
}

impl History {
    /// Reads from `store`.
    pub fn new(store: Box<dyn Query + Send>) -> Self {
        History {
            store: Arc::new(Mutex::new(store)),
        }
    }

    /// One job that was written down.
    ///
    /// # Errors
    /// [`StoreError`], here and below: the store cannot be read.
    pub async fn job(&self, id: u64) -> Result<Option<JobInfo>, StoreError> {
        let row = self.ask(move |store| store.job(id)).await?;
        Ok(row.map(stored::job_info))
    }

    /// At most `limit` jobs that have ended with numbers below `before`, the highest first.
    ///
    /// # Errors
    /// See [`History::job`].
    pub async fn jobs(&self, before: u64, limit: u32) -> Result<Vec<JobInfo>, StoreError> {
        self.ask(move |store| {
            let rows = store.ended_jobs(Some(before), limit)?;
            Ok(rows.into_iter().map(stored::job_info).collect())
        })
        .await
    }

    /// At most `limit` events after number `after`, the oldest first.
    ///
    /// # Errors
    /// See [`History::job`].
    pub async fn events(&self, after: u64, limit: u32) -> Result<Vec<Event>, StoreError> {
        let rows = self.ask(move |store| store.events(after, limit)).await?;
        Ok(rows.into_iter().map(stored::event).collect())
    }

    /// At most `limit` programs, the last used first.
    ///
    /// # Errors
    /// See [`History::job`].
    pub async fn programs(&self, limit: u32) -> Result<Vec<ProgramRow>, StoreError> {
        self.ask(move |store| store.programs(limit)).await
    }

    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&dyn Query) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let store = self.store.clone();
        let answer = tokio::task::spawn_blocking(move || {
            let store = store.lock().expect("no panic while held");
            question(&**store)
        });
        answer.await.expect("the question does not panic")
    }
}
