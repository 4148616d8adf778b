//! What the store remembers, for readers: jobs, events and programs of the past.
//!
//! Key types: [`History`], [`HistoryError`]. Neighbours: `ledger` writes; `api` asks here for what
//! is not in memory any more.
//!
//! Invariant: queries run on a thread with a view of their own, never under the lock of the control
//! state; one at a time, each with a limit. Who waits for another's query takes no thread, and
//! waits no longer than [`ASK_LIMIT`].

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use hearth_store::{ProgramRow, Query, StoreError};
use tokio::sync::Mutex;

use crate::api::types::JobInfo;
use crate::events::Event;
use crate::stored;

/// How long somebody waits for the queries of others: clients do not wait longer for an answer.
const ASK_LIMIT: Duration = Duration::from_secs(20);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Others ask too much.
    #[error(
        "others have asked for the past for {} s; ask again later, and for less at a time",
        ASK_LIMIT.as_secs()
    )]
    Crowded,
}

/// Jobs of the past as far as one query went.
#[derive(Debug, Default)]
pub struct Jobs {
    /// All that were looked at, the highest number first; none where a job is not wanted.
    pub jobs: Vec<(u64, Option<JobInfo>)>,
    /// There may be more, with smaller numbers than these.
    pub more: bool,
}

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
    /// [`HistoryError`], here and below.
    pub async fn job(&self, id: u64) -> Result<Option<JobInfo>, HistoryError> {
        let row = self.ask(move |store| store.job(id)).await?;
        Ok(row.map(stored::job_info))
    }

    /// Jobs that have ended with numbers below `before`, the highest first: what `wanted` makes of
    /// each, until `rows` were looked at or what it made weighs `bytes` ([`weight`]).
    ///
    /// # Errors
    /// See [`History::job`].
    pub async fn jobs(
        &self,
        before: u64,
        rows: usize,
        bytes: usize,
        wanted: impl Fn(JobInfo) -> Option<JobInfo> + Send + 'static,
    ) -> Result<Jobs, HistoryError> {
        self.ask(move |store| {
            let mut found = Jobs::default();
            let mut weighs = 0;
            store.each_ended_job(Some(before), &mut |row| {
                if found.jobs.len() >= rows || weighs >= bytes {
                    found.more = true;
                    return ControlFlow::Break(());
                }
                let (id, job) = (row.id, wanted(stored::job_info(row)));
                weighs += job.as_ref().map_or(0, weight);
                found.jobs.push((id, job));
                ControlFlow::Continue(())
            })?;
            Ok(found)
        })
        .await
    }

    /// At most `limit` events after number `after`, the oldest first.
    ///
    /// # Errors
    /// See [`History::job`].
    pub async fn events(&self, after: u64, limit: u32) -> Result<Vec<Event>, HistoryError> {
        let rows = self.ask(move |store| store.events(after, limit)).await?;
        Ok(rows.into_iter().map(stored::event).collect())
    }

    /// At most `limit` programs, the last used first.
    ///
    /// # Errors
    /// See [`History::job`].
    pub async fn programs(&self, limit: u32) -> Result<Vec<ProgramRow>, HistoryError> {
        self.ask(move |store| store.programs(limit)).await
    }

    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&dyn Query) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, HistoryError> {
        let turn = tokio::time::timeout(ASK_LIMIT, self.store.clone().lock_owned());
        let store = turn.await.map_err(|_| HistoryError::Crowded)?;
        // The turn lasts as long as the question, also where the client has gone meanwhile.
        Ok(crate::blocking::run(move || question(&**store)).await?)
    }
}

/// About so many bytes a job and each of its ranks take: a little more than they are as JSON.
const JOB_BYTES: usize = 2_048;
const RANK_BYTES: usize = 1_024;

/// About so many bytes a job takes, in memory and in an answer.
pub fn weight(job: &JobInfo) -> usize {
    let faults = job.ranks.iter().filter_map(|rank| rank.fault.as_ref());
    let faults: usize = faults.map(String::len).sum();
    let texts = [
        &job.reason,
        &job.nodes,
        &job.name,
        &job.command,
        &job.directory,
    ];
    let texts: usize = texts.map(String::len).iter().sum();
    JOB_BYTES + texts + faults + job.ranks.len() * RANK_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use hearth_store::{Batch, JobRow, Limits, Memory, Store};

    fn past(jobs: u64) -> Memory {
        let mut memory = Memory::new(Limits::default());
        let mut batch = Batch::default();
        for id in 1..=jobs {
            batch.put_job(JobRow {
                id,
                name: format!("job-{id}"),
                program: [0; 32],
                state: "completed".to_string(),
                reason: String::new(),
                ranks: 1,
                nodes: String::new(),
                submitted_unix_us: 0,
                started_unix_us: None,
                ended_unix_us: Some(id),
                exit_status: None,
                record: String::new(),
            });
        }
        memory.commit(&batch).unwrap();
        memory
    }

    #[tokio::test]
    async fn a_page_ends_at_its_rows_and_at_its_bytes() {
        let history = History::new(past(20).reader().unwrap());
        let page = history.jobs(16, 4, usize::MAX, Some).await.unwrap();
        let ids: Vec<u64> = page.jobs.iter().map(|(id, _)| *id).collect();
        assert_eq!((ids, page.more), (vec![15, 14, 13, 12], true));
        let page = history.jobs(16, 100, 1, Some).await.unwrap();
        assert_eq!((page.jobs.len(), page.more), (1, true), "one at least");
        let none = |_| None;
        let page = history.jobs(16, 100, 1, none).await.unwrap();
        assert_eq!((page.jobs.len(), page.more), (15, false));
    }

    /// A reader that is slow, as a disk can be.
    struct Slow(std::sync::mpsc::Receiver<()>, Memory);

    impl Slow {
        fn wait(&self) {
            let _closed = self.0.recv();
        }
    }

    macro_rules! slow {
        ($($name:ident($($of:ident: $kind:ty),*) -> $row:ty;)*) => {
            impl Query for Slow {
                $(fn $name(&self, $($of: $kind),*) -> Result<$row, StoreError> {
                    self.wait();
                    self.1.$name($($of),*)
                })*
            }
        };
    }

    slow! {
        nodes() -> Vec<hearth_store::NodeRow>;
        warm() -> Vec<hearth_store::WarmRow>;
        programs(limit: u32) -> Vec<ProgramRow>;
        job(id: u64) -> Option<JobRow>;
        each_ended_job(before: Option<u64>, each: &mut dyn FnMut(JobRow) -> ControlFlow<()>) -> ();
        open_jobs(limit: u32) -> Vec<JobRow>;
        specs(limit: u32) -> Vec<hearth_store::SpecRow>;
        rank_ends(limit: u32) -> Vec<hearth_store::RankEndRow>;
        drains() -> Vec<hearth_store::DrainRow>;
        instance() -> Option<u64>;
        events(after: u64, limit: u32) -> Vec<hearth_store::EventRow>;
        files() -> Vec<hearth_store::FileRow>;
        held() -> Vec<hearth_store::HeldRow>;
        casts() -> Vec<hearth_store::CastRow>;
        streams() -> Vec<hearth_store::StreamRow>;
        tokens() -> Vec<hearth_store::TokenRow>;
        next_token() -> u64;
        next_cast() -> u64;
        next_job() -> u64;
        next_event() -> u64;
    }

    /// With two threads for what blocks: others of the control node need one of them.
    #[test]
    fn who_waits_for_a_query_takes_no_thread() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(2)
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            let (go_on, waits) = std::sync::mpsc::channel();
            let history = History::new(Box::new(Slow(waits, past(3))));
            let ask = |id| {
                let history = history.clone();
                tokio::spawn(async move { history.job(id).await.unwrap().map(|job| job.id) })
            };
            let asked: Vec<_> = (0..100).map(|number| ask(1 + number % 3)).collect();
            // As many as can have begun.
            for _ in 0..1_000 {
                tokio::task::yield_now().await;
            }
            let other = tokio::task::spawn_blocking(|| 7);
            let other = tokio::time::timeout(Duration::from_secs(10), other).await;
            assert_eq!(other.expect("a thread is free").unwrap(), 7);
            drop(go_on);
            for (number, answer) in (0..100).zip(asked) {
                assert_eq!(answer.await.unwrap(), Some(1 + number % 3));
            }
        });
    }
}
