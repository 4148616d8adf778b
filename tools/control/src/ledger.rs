//! What control writes down, and when: everything that one step of control did becomes one batch,
//! committed before anybody outside is told of it.
//!
//! Key types: [`Ledger`], [`Opened`] (what an earlier run left; `open`). Neighbours: `hearth_store`
//! (the file), `control::Core::settle` (commits at the end of each step), `warm` (the node status
//! table in memory), `history` (reads what is not in memory).
//!
//! While the store cannot be written (full disk, read-only file system, another program's lock)
//! control goes on from memory: the batch is kept, within a bound, and tried again; one event says
//! so and one says when it works again. Nobody is told meanwhile of what is not written.
//!
//! Invariants: a batch is dropped only when it is committed or, event first, at its bound; nothing
//! here makes a checkpoint, or waits longer than the store's own limit for a lock.

mod open;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hearth_store::{
    Batch, Checkpointer, DrainRow, Failure, NodeRow, RankEndRow, SpecRow, Store, StoreError,
};
pub use open::{Opened, Wanted, open};

use crate::api::types::{Drained, RankEnd};
use crate::clock;
use crate::events::{Event, Severity};
use crate::jobs::record::{RankRecord, Record};
use crate::stored;
use crate::warm::{Index, Report};

/// Changes kept while the store cannot be written: about a day of a busy cluster's.
const UNWRITTEN_MAX: usize = 65_536;

/// Bytes of records of jobs among them.
const UNWRITTEN_BYTES_MAX: usize = 128 * 1024 * 1024;

/// First and longest time between two tries to write, in microseconds.
const RETRY_US: std::ops::RangeInclusive<u64> = 1_000_000..=60_000_000;

/// How often the store's log is moved into its file; a power failure loses so much at most.
const CHECKPOINT_PERIOD: Duration = Duration::from_secs(5);

/// Moves the store's log into its file now and then, for ever; on a thread that may wait for the
/// disk.
pub async fn checkpoints(checkpointer: Arc<Mutex<Checkpointer>>) {
    loop {
        tokio::time::sleep(CHECKPOINT_PERIOD).await;
        checkpoint(checkpointer.clone()).await;
    }
}

/// Looks through all of the store once, on a thread that may wait for the disk; says what people
/// should know.
pub async fn look_over(path: PathBuf) -> Option<Event> {
    let look = move || hearth_store::look_over(&path);
    match tokio::task::spawn_blocking(look).await {
        Ok(Err(error)) if error.failure() == Some(Failure::Damaged) => {
            let kind = "store-damaged";
            Some(Event::new(Severity::Error, kind, error.to_string()))
        }
        Ok(Err(error)) => {
            tracing::warn!("the store could not be looked through: {error}");
            None
        }
        Ok(Ok(())) | Err(_) => None,
    }
}

/// Moves the store's log into its file once.
pub async fn checkpoint(checkpointer: Arc<Mutex<Checkpointer>>) {
    let run = move || checkpointer.lock().expect("no panic while held").run();
    // A disk that fails also fails commits, which are reported; the log waits.
    if let Ok(Err(error)) = tokio::task::spawn_blocking(run).await {
        tracing::debug!("{error}");
    }
}

/// The store as control uses it.
pub struct Ledger {
    store: Box<dyn Store>,
    batch: Batch,
    trouble: Option<Trouble>,
    /// Changes that were lost since the store was written last.
    lost: usize,
    /// Which node holds what.
    pub warm: Index,
}

/// The store cannot be written.
#[derive(Debug)]
struct Trouble {
    failure: Option<Failure>,
    text: String,
    delay_us: u64,
    next_try_us: u64,
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Ledger").finish_non_exhaustive()
    }
}

impl Ledger {
    /// A ledger on `store`, with the node status table as it is there.
    fn new(store: Box<dyn Store>) -> Result<Self, StoreError> {
        Ok(Ledger {
            warm: Index::restored(store.warm()?),
            store,
            batch: Batch::default(),
            trouble: None,
            lost: 0,
        })
    }

    /// A machine joined, with the boot in `row`.
    pub fn joined(&mut self, row: NodeRow) {
        if let Some(boot_epoch) = row.boot_epoch {
            self.warm.joined(row.node, boot_epoch, &mut self.batch);
        }
        self.batch.put_node(row);
    }

    /// A machine was approved of, and will be this node.
    pub fn approved(&mut self, mac: [u8; 6], node: u32) {
        self.batch.put_node(NodeRow {
            mac,
            node,
            boot_epoch: None,
            joined_unix_us: None,
            earlier_boots: Vec::new(),
        });
    }

    /// A node that was silent is heard again, in the same boot.
    pub fn heard_again(&mut self, node: u32, boot_epoch: u64) {
        self.warm.joined(node, boot_epoch, &mut self.batch);
    }

    /// A node is out of service; `void`: and has forgotten what it held.
    pub fn gone(&mut self, node: u32, void: bool) {
        if void {
            self.warm.void(node, &mut self.batch);
        } else {
            self.warm.silent(node);
        }
    }

    /// A node told what it holds.
    pub fn report(&mut self, report: &Report) {
        self.warm.report(report, clock::unix_us(), &mut self.batch);
    }

    /// A job was accepted, has got further, or has ended.
    pub fn job(&mut self, record: &Record) {
        let info = &record.info;
        let row = stored::job_row(info);
        if let Some(spec) = &record.spec {
            let (id, spec) = (info.id, spec.clone());
            self.batch.put_spec(SpecRow { id, spec });
        }
        let Some(bytes) = record.program_bytes.filter(|_| info.state.is_final()) else {
            return self.batch.put_job(row);
        };
        let used = stored::program_use(info, bytes);
        let ranks = info.ranks.iter().zip(&record.nodes);
        for (rank, node) in ranks {
            if matches!(rank.end, Some(RankEnd::Exited(_) | RankEnd::Signal(_))) {
                self.warm.ran(*node, used.hash, info.id, &mut self.batch);
            }
        }
        self.batch.finish_job(row, used);
    }

    /// A rank of a job has ended before the others.
    pub fn rank_ended(&mut self, end: &RankRecord) {
        self.batch.put_rank_end(RankEndRow {
            job: end.job,
            rank: end.report.rank,
            attempt: end.attempt,
            record: serde_json::to_string(&end.report).expect("plain data"),
        });
    }

    /// A node was drained, or gets jobs again.
    pub fn drained(&mut self, node: u32, drained: Option<Drained>) {
        match drained {
            Some(drained) => self.batch.put_drain(DrainRow {
                node,
                reason: drained.reason,
                since_unix_us: drained.since_unix_us,
                by: drained.by,
            }),
            None => self.batch.end_drain(node),
        }
    }

    /// Something happened.
    pub fn event(&mut self, event: &Event) {
        self.batch.append_event(stored::event_row(event));
    }

    /// Changes that somebody else has gathered.
    pub fn append(&mut self, mut changes: Batch) {
        self.batch.append(&mut changes);
    }

    /// Writes what has changed, unless that failed a moment ago; says what people should know.
    pub fn commit(&mut self, now_us: u64) -> Option<Event> {
        if self.batch.is_empty() {
            return None;
        }
        let waits = self
            .trouble
            .as_ref()
            .is_some_and(|trouble| now_us < trouble.next_try_us);
        if waits {
            self.lost += self.batch.shed(UNWRITTEN_MAX, UNWRITTEN_BYTES_MAX);
            return None;
        }
        match self.store.commit(&self.batch) {
            Ok(()) => {
                self.batch.clear();
                self.trouble.take().map(|_| self.works_again())
            }
            Err(error) => {
                self.lost += self.batch.shed(UNWRITTEN_MAX, UNWRITTEN_BYTES_MAX);
                self.failed(now_us, &error)
            }
        }
    }

    fn failed(&mut self, now_us: u64, error: &StoreError) -> Option<Event> {
        let failure = error.failure();
        let before = self.trouble.take();
        let delay_us = before
            .as_ref()
            .map_or(*RETRY_US.start(), |trouble| trouble.delay_us * 2);
        let delay_us = delay_us.min(*RETRY_US.end());
        let text = format!(
            "{error}; jobs that run go on, others wait, and what happens is kept in memory until it can be written"
        );
        self.trouble = Some(Trouble {
            failure,
            text: text.clone(),
            delay_us,
            next_try_us: now_us.saturating_add(delay_us),
        });
        let news = before.is_none_or(|before| before.failure != failure);
        news.then(|| Event::new(Severity::Error, "store-failed", text))
    }

    fn works_again(&mut self) -> Event {
        let lost = std::mem::take(&mut self.lost);
        if lost == 0 {
            let text = "the store is written again; nothing was lost";
            return Event::new(Severity::Info, "store-works", text);
        }
        // Whatever was lost of the node status table, it is known here.
        self.write_warm_anew();
        let text = format!(
            "the store is written again; {lost} changes did not fit in memory and are lost"
        );
        Event::new(Severity::Warning, "store-works", text)
    }

    fn write_warm_anew(&mut self) {
        for row in self.store.warm().unwrap_or_default() {
            self.batch.clear_warm(row.node, row.program);
        }
        for row in self.warm.rows() {
            self.batch.set_warm(*row);
        }
    }

    /// When [`Ledger::commit`] has something to try again, in microseconds of the control clock.
    pub fn next_deadline_us(&self) -> Option<u64> {
        self.trouble.as_ref().map(|trouble| trouble.next_try_us)
    }

    /// Why nothing is written at present, while that is so.
    pub fn failing(&self) -> Option<&str> {
        self.trouble.as_ref().map(|trouble| trouble.text.as_str())
    }

    /// Changes that wait to be written.
    pub fn unwritten(&self) -> usize {
        self.batch.len()
    }
}
