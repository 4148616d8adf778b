//! Opening the ledger: what an earlier run of control left in the store.
//!
//! Key types: [`Opened`], [`Wanted`]. Neighbours: `import` (files of earlier versions),
//! `jobs::Runner` (what becomes of jobs that were not over).
//!
//! Invariants: a store that cannot be read is never taken for an empty one: what is damaged is set
//! aside with an event, and everything else is an error; how much is read does not depend on how
//! long the history is.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex};

use hearth_alloc::queue::QUEUED_MAX;
use hearth_store::{
    CastRow, Checkpointer, DrainRow, EventRow, Failure, Limits, NodeRow, Query, RankEndRow, Sqlite,
    Store, StoreError, StreamRow,
};

use super::Ledger;
use crate::api::types::{Drained, JobInfo};
use crate::casts::files::Files;
use crate::events::{Event, Severity};
use crate::history::History;
use crate::hostlist;
use crate::import;
use crate::jobs::JOBS_MAX;
use crate::jobs::again::Stored;
use crate::jobs::continued::Ranks;
use crate::stored;
use crate::tokens::Tokens;

/// Jobs that can be under way or wait.
#[expect(clippy::cast_possible_truncation, reason = "some 100,000")]
const OPEN_JOBS_MAX: u32 = (JOBS_MAX + QUEUED_MAX) as u32;

/// Bytes of records of jobs of the past that are read at the start; what is not, is asked of the
/// store.
const RECORDS_MAX_BYTES: usize = 32 * 1024 * 1024;

/// Ends of ranks whose jobs go on: as many as there are, since one that is not read counts as open.
const RANK_ENDS_MAX: u32 = u32::MAX;

/// A ledger, and what an earlier run of control left in it.
pub struct Opened {
    /// The ledger.
    pub ledger: Ledger,
    /// Readers' view.
    pub history: History,
    /// Moves the store's log into its file.
    pub checkpointer: Arc<Mutex<Checkpointer>>,
    /// Machines and their numbers.
    pub nodes: Vec<NodeRow>,
    /// The jobs that have the highest numbers of those that have ended, the oldest first.
    pub jobs: Vec<JobInfo>,
    /// Jobs that have not ended, by number.
    pub open: Vec<Stored>,
    /// Nodes that get no jobs.
    pub drained: Vec<(u32, Drained)>,
    /// Number of the cluster.
    pub instance: u64,
    /// The newest events, the oldest first.
    pub events: Vec<Event>,
    /// Number of the next job.
    pub next_job: u64,
    /// Number of the next event.
    pub next_event: u64,
    /// Names and holders of files that were cast.
    pub files: Files,
    /// Casts that were under way.
    pub casts: Vec<CastRow>,
    /// Number of the next cast.
    pub next_cast: u64,
    /// Streams that somebody had opened.
    pub streams: Vec<StreamRow>,
    /// Tokens that are good.
    pub tokens: Tokens,
    /// What people should know about the opening.
    pub notices: Vec<Event>,
}

/// How much of the past is wanted in memory.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// Jobs.
    pub jobs: u32,
    /// Events.
    pub events: u32,
    /// Random number, below 2^63, of a cluster that begins with this store.
    pub instance: u64,
}

/// Opens the store at `path`. A file that is damaged is set aside; one that is locked or on a full
/// disk is written when that works again.
///
/// # Errors
/// [`StoreError`]: control would go on without what it has told, or with two histories.
pub fn open(path: &Path, limits: Limits, wanted: Wanted) -> Result<Opened, StoreError> {
    let opened = Sqlite::open(path, limits)?;
    let mut set_aside = opened.set_aside;
    let mut read_in = read(path, opened.store, wanted);
    if let Err(damaged) = &read_in
        && damaged.failure() == Some(Failure::Damaged)
    {
        let begun = Sqlite::begin_anew(path, limits, &damaged.to_string())?;
        set_aside = begun.set_aside;
        read_in = read(path, begun.store, wanted);
    }
    let mut opened = read_in?;
    let told = set_aside.map(|text| Event::new(Severity::Error, "store-damaged", text));
    opened.notices.splice(0..0, told);
    Ok(opened)
}

fn newest_events(store: &dyn Query, wanted: Wanted) -> Result<Vec<EventRow>, StoreError> {
    let before = u64::from(wanted.events).saturating_add(1);
    store.events(store.next_event()?.saturating_sub(before), wanted.events)
}

/// The newest jobs of the past, the highest number first: as many as are wanted, and no more of
/// their records than [`RECORDS_MAX_BYTES`].
fn newest_jobs(store: &dyn Query, wanted: Wanted) -> Result<Vec<JobInfo>, StoreError> {
    let mut jobs = Vec::new();
    let mut bytes = 0;
    store.each_ended_job(None, &mut |row| {
        bytes += row.record.len();
        if jobs.len() == wanted.jobs as usize || bytes > RECORDS_MAX_BYTES {
            return ControlFlow::Break(());
        }
        jobs.push(stored::job_info(row));
        ControlFlow::Continue(())
    })?;
    Ok(jobs)
}

fn read(path: &Path, store: Sqlite, wanted: Wanted) -> Result<Opened, StoreError> {
    let checkpointer = store.checkpointer()?;
    let dir = path.parent().unwrap_or(Path::new("."));
    let mut notices = Vec::new();
    let found = import::find(dir, &mut notices);
    let mut nodes: BTreeMap<u32, NodeRow> = BTreeMap::new();
    for node in store.nodes()?.into_iter().chain(found.nodes.clone()) {
        nodes.insert(node.node, node);
    }
    let mut next_job = store.next_job()?.max(found.next_job.unwrap_or(1));
    let seen = import::jobs_seen(dir);
    if seen >= next_job {
        // Behind all that may have been given out since without a trace.
        next_job = seen.saturating_add(1).saturating_add(JOBS_MAX as u64);
        let text = format!(
            "by the event log there were jobs up to number {seen}, of which the store does not know: the next gets {next_job}"
        );
        notices.push(Event::new(Severity::Info, "store-imported", text));
    }
    let mut jobs = newest_jobs(&store, wanted)?;
    let open = open_jobs(&store)?;
    let drained = store.drains()?.into_iter().map(drained).collect();
    let known_instance = store.instance()?;
    let instance = known_instance.unwrap_or(wanted.instance);
    let events = newest_events(&store, wanted)?;
    let next_event = store.next_event()?;
    let files = Files::restored(store.files()?, store.held()?);
    let (casts, next_cast) = (store.casts()?, store.next_cast()?);
    let streams = store.streams()?;
    let tokens = Tokens::restored(store.tokens()?, store.next_token()?);
    let history = History::new(store.reader()?);
    let mut ledger = Ledger::new(Box::new(store))?;
    for node in &found.nodes {
        ledger.batch.put_node(node.clone());
    }
    ledger.batch.number_jobs_from(next_job);
    if known_instance.is_none() {
        ledger.batch.begin_instance(instance);
    }
    jobs.sort_by_key(|job| job.id);
    // A store that cannot be written now is written later, as while control runs.
    notices.extend(ledger.commit(0));
    if ledger.batch.is_empty() {
        import::taken_over(dir, &found, &mut notices);
    }
    Ok(Opened {
        history,
        checkpointer: Arc::new(Mutex::new(checkpointer)),
        nodes: nodes.into_values().collect(),
        jobs,
        open,
        drained,
        instance,
        events: events.into_iter().map(stored::event).collect(),
        next_job,
        next_event,
        files,
        casts,
        next_cast,
        streams,
        tokens,
        notices,
        ledger,
    })
}

/// Jobs that have not ended, and how those ended that they wait for.
fn open_jobs(store: &dyn Query) -> Result<Vec<Stored>, StoreError> {
    let specs = store.specs(OPEN_JOBS_MAX)?.into_iter();
    let mut specs: BTreeMap<u64, String> = specs.map(|row| (row.id, row.spec)).collect();
    let rows = store.open_jobs(OPEN_JOBS_MAX)?;
    let open: BTreeSet<u64> = rows.iter().map(|row| row.id).collect();
    let boots = store.nodes()?.into_iter();
    let boots: BTreeMap<u32, Option<u64>> = boots.map(|row| (row.node, row.boot_epoch)).collect();
    let mut rank_ends: BTreeMap<u64, Vec<RankEndRow>> = BTreeMap::new();
    for row in store.rank_ends(RANK_ENDS_MAX)? {
        rank_ends.entry(row.job).or_default().push(row);
    }
    let mut jobs = Vec::with_capacity(rows.len());
    for row in rows {
        let info = stored::job_info(row);
        let mut ends = Vec::new();
        for after in info.after.iter().filter(|after| !open.contains(&after.job)) {
            let end = store.job(after.job)?.map(|row| stored::job_info(row).state);
            ends.push((after.job, end));
        }
        let spec = specs.remove(&info.id);
        let of_attempt = |row: &RankEndRow| row.attempt == info.restarts;
        let rows = rank_ends.remove(&info.id).unwrap_or_default();
        let rows = rows.into_iter().filter(of_attempt);
        let nodes = hostlist::parse(&info.nodes).unwrap_or_default();
        let boot = |node: u32| (node, boots.get(&node).copied().flatten());
        let ranks = Ranks {
            nodes: nodes.into_iter().map(boot).collect(),
            ends: rows
                .filter_map(|row| serde_json::from_str(&row.record).ok())
                .collect(),
        };
        jobs.push(Stored {
            info,
            spec,
            ends,
            ranks,
        });
    }
    Ok(jobs)
}

fn drained(row: DrainRow) -> (u32, Drained) {
    let drained = Drained {
        reason: row.reason,
        since_unix_us: row.since_unix_us,
        by: row.by,
    };
    (row.node, drained)
}
