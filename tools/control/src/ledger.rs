//! What control writes down, and when: everything that one step of control did becomes one batch,
//! committed before anybody outside is told of it.
//!
//! Key types: [`Ledger`], [`Opened`] (what an earlier run left). Neighbours: `hearth_store` (the
//! file), `control::Core::settle` (commits at the end of each step), `warm` (the node status table
//! in memory), `history` (reads what is not in memory).
//!
//! While the store cannot be written (full disk, read-only file system, another program's lock)
//! control goes on from memory: the batch is kept, within a bound, and tried again; one event says
//! so and one says when it works again.
//!
//! Invariants: a batch is dropped only when it is committed or, event first, at its bound; nothing
//! here makes a checkpoint, or waits longer than the store's own limit for a lock.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hearth_store::{
    Batch, CastRow, Checkpointer, EventRow, Failure, JobRow, Limits, Memory, NodeRow, Query,
    Sqlite, Store, StoreError,
};

use crate::api::types::{JobInfo, JobState, RankEnd};
use crate::casts::files::Files;
use crate::clock;
use crate::events::{Event, Severity};
use crate::history::History;
use crate::import;
use crate::jobs::JOBS_MAX;
use crate::jobs::record::Record;
use crate::stored;
use crate::warm::{Index, Report};

/// Changes kept while the store cannot be written: about a day of a busy cluster's.
const UNWRITTEN_MAX: usize = 65_536;

/// Bytes of records of jobs among them.
const UNWRITTEN_BYTES_MAX: usize = 128 * 1024 * 1024;

/// First and longest time between two tries to write, in microseconds.
const RETRY_US: std::ops::RangeInclusive<u64> = 1_000_000..=60_000_000;

/// Jobs that can be under way.
#[expect(clippy::cast_possible_truncation, reason = "it is 4,096")]
const OPEN_JOBS_MAX: u32 = JOBS_MAX as u32;

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
    /// The store on disk could not be opened, so this one is in memory: why.
    unavailable: Option<String>,
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

/// A ledger, and what an earlier run of control left in it.
pub struct Opened {
    /// The ledger.
    pub ledger: Ledger,
    /// Readers' view.
    pub history: History,
    /// Moves the store's log into its file; none for a store in memory.
    pub checkpointer: Option<Arc<Mutex<Checkpointer>>>,
    /// Machines and their numbers.
    pub nodes: Vec<NodeRow>,
    /// The jobs that have the highest numbers of those that have ended, the oldest first.
    pub jobs: Vec<JobInfo>,
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
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Ledger").finish_non_exhaustive()
    }
}

/// Opens the store at `path`. Jobs that were under way when control ended have ended with it. A
/// file that can only be read is read, and control goes on in memory; one that is locked or full is
/// written when that works again.
///
/// # Errors
/// [`StoreError::Newer`] and [`StoreError::Foreign`]: going on would lead to two histories.
pub fn open(path: &Path, limits: Limits, wanted: Wanted) -> Result<Opened, StoreError> {
    let mut notices = Vec::new();
    let on_disk = Sqlite::open(path, limits).and_then(|opened| {
        notices.extend(
            opened
                .set_aside
                .map(|text| Event::new(Severity::Error, "store-damaged", text)),
        );
        let checkpointer = opened.store.checkpointer()?;
        read(path, Box::new(opened.store), Some(checkpointer), wanted)
    });
    let mut opened = match on_disk {
        Ok(opened) => opened,
        Err(error @ (StoreError::Newer { .. } | StoreError::Foreign { .. })) => return Err(error),
        Err(error) => {
            let text = format!(
                "{error}, then start the control node again; until then it goes on in memory, and what happens is forgotten when it ends"
            );
            notices.push(Event::new(Severity::Error, "store-unavailable", &text));
            let mut memory = Memory::new(limits);
            // What can be read is not forgotten: nodes keep their numbers, jobs are numbered on.
            if let Ok(file) = Sqlite::open_to_read(path) {
                memory.commit(&copy(&*file, wanted)?)?;
            }
            let mut opened = read(path, Box::new(memory), None, wanted)?;
            opened.ledger.unavailable = Some(text);
            opened
        }
    };
    opened.notices.splice(0..0, notices);
    Ok(opened)
}

/// What control needs of a store, to be put into another.
fn copy(from: &dyn Query, wanted: Wanted) -> Result<Batch, StoreError> {
    let mut batch = Batch::default();
    for node in from.nodes()? {
        batch.put_node(node);
    }
    for row in from.warm()? {
        batch.set_warm(row);
    }
    let jobs = from.ended_jobs(None, wanted.jobs)?.into_iter();
    for job in jobs.chain(from.open_jobs(OPEN_JOBS_MAX)?) {
        batch.put_job(job);
    }
    for event in newest_events(from, wanted)? {
        batch.append_event(event);
    }
    batch.number_jobs_from(from.next_job()?);
    // A file of an earlier version has no tables of casts.
    for file in from.files().unwrap_or_default() {
        batch.put_file(file);
    }
    for held in from.held().unwrap_or_default() {
        batch.set_held(held);
    }
    for cast in from.casts().unwrap_or_default() {
        batch.put_cast(cast);
    }
    batch.number_casts_from(from.next_cast().unwrap_or(1));
    Ok(batch)
}

fn newest_events(store: &dyn Query, wanted: Wanted) -> Result<Vec<EventRow>, StoreError> {
    let before = u64::from(wanted.events).saturating_add(1);
    store.events(store.next_event()?.saturating_sub(before), wanted.events)
}

fn read(
    path: &Path,
    store: Box<dyn Store>,
    checkpointer: Option<Checkpointer>,
    wanted: Wanted,
) -> Result<Opened, StoreError> {
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
    let ended = store.ended_jobs(None, wanted.jobs)?.into_iter();
    let mut jobs: Vec<JobInfo> = ended.map(stored::job_info).collect();
    let open = store.open_jobs(OPEN_JOBS_MAX)?;
    let events = newest_events(&*store, wanted)?;
    let next_event = store.next_event()?;
    let files = Files::restored(store.files()?, store.held()?);
    let (casts, next_cast) = (store.casts()?, store.next_cast()?);
    let history = History::new(store.reader()?);
    let mut ledger = Ledger::new(store)?;
    for node in &found.nodes {
        ledger.batch.put_node(node.clone());
    }
    ledger.batch.number_jobs_from(next_job);
    for row in open {
        let (info, event) = ledger.close_job(row);
        jobs.push(info);
        notices.push(event);
    }
    jobs.sort_by_key(|job| job.id);
    let surplus = jobs.len().saturating_sub(wanted.jobs as usize);
    jobs.drain(..surplus);
    // A store that cannot be written now is written later, as while control runs.
    notices.extend(ledger.commit(0));
    if ledger.batch.is_empty() && checkpointer.is_some() {
        import::taken_over(dir, &found, &mut notices);
    }
    Ok(Opened {
        history,
        checkpointer: checkpointer.map(|checkpointer| Arc::new(Mutex::new(checkpointer))),
        nodes: nodes.into_values().collect(),
        jobs,
        events: events.into_iter().map(stored::event).collect(),
        next_job,
        next_event,
        files,
        casts,
        next_cast,
        notices,
        ledger,
    })
}

impl Ledger {
    /// A ledger on `store`, with the node status table as it is there.
    fn new(store: Box<dyn Store>) -> Result<Self, StoreError> {
        Ok(Ledger {
            warm: Index::restored(store.warm()?),
            store,
            batch: Batch::default(),
            trouble: None,
            unavailable: None,
            lost: 0,
        })
    }

    /// Ends a job that was under way when an earlier run of control ended.
    fn close_job(&mut self, row: JobRow) -> (JobInfo, Event) {
        let mut info = stored::job_info(row);
        info.state = JobState::Failed;
        info.reason = "the control node ended while the job was under way".to_string();
        info.ended_unix_us = Some(clock::unix_us());
        let text = format!("job {} ({}): failed: {}", info.id, info.name, info.reason);
        self.batch.put_job(stored::job_row(&info));
        let event = Event::new(Severity::Warning, "job-ended", text).job(info.id);
        (info, event)
    }

    /// A machine joined with a boot; `since` is when that boot joined first.
    pub fn joined(&mut self, mac: [u8; 6], node: u32, boot_epoch: u64, since_unix_us: u64) {
        self.batch.put_node(NodeRow {
            mac,
            node,
            boot_epoch: Some(boot_epoch),
            joined_unix_us: Some(since_unix_us),
        });
        self.warm.joined(node, boot_epoch, &mut self.batch);
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
        if !info.state.is_final() {
            return self.batch.put_job(row);
        }
        let used = stored::program_use(info, record.program_bytes);
        let ranks = info.ranks.iter().zip(&record.nodes);
        for (rank, node) in ranks {
            if matches!(rank.end, Some(RankEnd::Exited(_) | RankEnd::Signal(_))) {
                self.warm.ran(*node, used.hash, info.id, &mut self.batch);
            }
        }
        self.batch.finish_job(row, used);
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
            "{error}; nodes and jobs go on, and what happens is kept in memory until it can be written"
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

    /// Why nothing is written at present.
    pub fn trouble(&self) -> Option<&str> {
        let trouble = self.trouble.as_ref().map(|trouble| trouble.text.as_str());
        trouble.or(self.unavailable.as_deref())
    }

    /// Changes that wait to be written.
    pub fn unwritten(&self) -> usize {
        self.batch.len()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use hearth_store::{FileRow, HeldRow, ProgramRow, WarmRow};

    use super::*;
    use crate::warm::Held;

    /// A store whose disk can be made full.
    struct Flaky {
        memory: Memory,
        full: Arc<AtomicBool>,
    }

    type Answer<T> = Result<T, StoreError>;

    impl Store for Flaky {
        fn commit(&mut self, batch: &Batch) -> Answer<()> {
            if self.full.load(Ordering::Relaxed) {
                return Err(StoreError::Failed {
                    operation: "write",
                    path: "hearth.db".into(),
                    failure: Failure::Full,
                    source: "no space left".into(),
                });
            }
            self.memory.commit(batch)
        }
        fn reader(&self) -> Answer<Box<dyn Query + Send>> {
            self.memory.reader()
        }
    }

    impl Query for Flaky {
        fn nodes(&self) -> Answer<Vec<NodeRow>> {
            self.memory.nodes()
        }
        fn warm(&self) -> Answer<Vec<WarmRow>> {
            self.memory.warm()
        }
        fn programs(&self, limit: u32) -> Answer<Vec<ProgramRow>> {
            self.memory.programs(limit)
        }
        fn job(&self, id: u64) -> Answer<Option<JobRow>> {
            self.memory.job(id)
        }
        fn ended_jobs(&self, before: Option<u64>, limit: u32) -> Answer<Vec<JobRow>> {
            self.memory.ended_jobs(before, limit)
        }
        fn open_jobs(&self, limit: u32) -> Answer<Vec<JobRow>> {
            self.memory.open_jobs(limit)
        }
        fn events(&self, after: u64, limit: u32) -> Answer<Vec<EventRow>> {
            self.memory.events(after, limit)
        }
        fn next_job(&self) -> Answer<u64> {
            self.memory.next_job()
        }
        fn next_event(&self) -> Answer<u64> {
            self.memory.next_event()
        }
        fn files(&self) -> Answer<Vec<FileRow>> {
            self.memory.files()
        }
        fn held(&self) -> Answer<Vec<HeldRow>> {
            self.memory.held()
        }
        fn casts(&self) -> Answer<Vec<CastRow>> {
            self.memory.casts()
        }
        fn next_cast(&self) -> Answer<u64> {
            self.memory.next_cast()
        }
    }
    const HASH: [u8; 32] = [7; 32];

    fn flaky() -> (Ledger, Memory, Arc<AtomicBool>) {
        let memory = Memory::new(Limits::default());
        let full = Arc::new(AtomicBool::new(false));
        let store = Flaky {
            memory: memory.clone(),
            full: full.clone(),
        };
        (Ledger::new(Box::new(store)).unwrap(), memory, full)
    }

    fn event(seq: u64) -> Event {
        let mut event = Event::new(Severity::Info, "test", "text");
        event.seq = seq;
        event
    }

    fn record(id: u64, state: JobState) -> Record {
        let mut info = stored::job_info(JobRow {
            id,
            name: "hello".to_string(),
            program: HASH,
            state: state.word().to_string(),
            reason: String::new(),
            ranks: 1,
            nodes: "n1".to_string(),
            submitted_unix_us: 1,
            started_unix_us: Some(2),
            ended_unix_us: state.is_final().then_some(3),
            exit_status: state.is_final().then_some(0),
            record: String::new(),
        });
        let mut rank = crate::api::types::RankReport::new(0, 1);
        rank.end = state.is_final().then_some(RankEnd::Exited(0));
        info.ranks.push(rank);
        Record {
            info,
            program_bytes: 30_000,
            nodes: vec![1],
        }
    }

    fn holds(ledger: &mut Ledger) {
        ledger.joined([2; 6], 1, 9, 5);
        let held = Held {
            program: HASH,
            pages: 8,
            pristine: 1,
        };
        ledger.report(&Report {
            node: 1,
            boot_epoch: 9,
            reset: true,
            held: vec![held],
            dropped: Vec::new(),
        });
    }

    #[test]
    fn a_full_disk_is_told_once_and_nothing_is_lost() {
        let (mut ledger, memory, full) = flaky();
        full.store(true, Ordering::Relaxed);
        holds(&mut ledger);
        ledger.job(&record(1, JobState::Completed));
        let told = ledger.commit(0).unwrap();
        assert_eq!(
            (told.kind.as_str(), told.severity),
            ("store-failed", Severity::Error)
        );
        assert!(told.text.contains("free some space"), "{}", told.text);
        assert!(ledger.trouble().unwrap().contains("kept in memory"));
        ledger.event(&event(1));
        // It is tried again after a second, then less and less often.
        assert_eq!(ledger.next_deadline_us(), Some(1_000_000));
        assert_eq!(ledger.commit(999_999), None);
        assert_eq!(ledger.commit(1_000_000), None);
        assert_eq!(ledger.next_deadline_us(), Some(3_000_000));
        full.store(false, Ordering::Relaxed);
        assert_eq!(ledger.commit(2_000_000), None);
        assert_eq!(
            memory.next_job().unwrap(),
            1,
            "not before the time has come"
        );
        let told = ledger.commit(3_000_000).unwrap();
        assert_eq!(
            (told.kind.as_str(), told.severity),
            ("store-works", Severity::Info)
        );
        assert_eq!((ledger.trouble(), ledger.next_deadline_us()), (None, None));
        assert_eq!(memory.ended_jobs(None, 9).unwrap().len(), 1);
        assert_eq!(memory.events(0, 9).unwrap().len(), 1);
        let warm = memory.warm().unwrap();
        assert_eq!((warm.len(), warm[0].last_job), (1, Some(1)));
        assert_eq!(memory.programs(9).unwrap()[0].launches, 1);
    }

    #[test]
    fn what_is_kept_for_a_full_disk_has_a_bound() {
        let (mut ledger, memory, full) = flaky();
        holds(&mut ledger);
        assert_eq!(ledger.commit(0), None);
        full.store(true, Ordering::Relaxed);
        ledger.job(&record(1, JobState::Completed));
        for seq in 1..=UNWRITTEN_MAX as u64 + 10 {
            ledger.event(&event(seq));
            drop(ledger.commit(seq));
        }
        assert_eq!(ledger.unwritten(), UNWRITTEN_MAX);
        full.store(false, Ordering::Relaxed);
        let told = ledger.commit(100_000_000).unwrap();
        assert_eq!(told.severity, Severity::Warning);
        assert!(told.text.contains("are lost"), "{}", told.text);
        assert_eq!(memory.ended_jobs(None, 9).unwrap().len(), 1, "jobs stay");
        // The node status table is written once more.
        assert_eq!(ledger.commit(100_000_001), None);
        assert_eq!(memory.warm().unwrap().len(), 1);
    }

    #[test]
    fn an_earlier_run_is_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hearth.db");
        let wanted = Wanted { jobs: 2, events: 3 };
        let open = || open(&path, Limits::default(), wanted).unwrap();
        let mut first = open();
        assert_eq!(
            (first.next_job, first.next_event, first.notices.len()),
            (1, 1, 0)
        );
        holds(&mut first.ledger);
        for id in 1..=3 {
            first.ledger.job(&record(id, JobState::Running));
            first.ledger.job(&record(id, JobState::Completed));
        }
        first.ledger.job(&record(4, JobState::Running));
        for seq in 1..=5 {
            first.ledger.event(&event(seq));
        }
        assert_eq!(first.ledger.commit(0), None);
        // Not closed in good order: the next run opens it beside this one.
        let second = open();
        let ids: Vec<u64> = second.jobs.iter().map(|job| job.id).collect();
        assert_eq!(ids, [3, 4]);
        assert_eq!(second.jobs[0].state, JobState::Completed);
        assert_eq!(second.jobs[1].state, JobState::Failed);
        assert!(second.jobs[1].reason.contains("control node ended"));
        assert!(second.notices[0].text.contains("job 4"));
        let seqs: Vec<u64> = second.events.iter().map(|event| event.seq).collect();
        assert_eq!(seqs, [3, 4, 5]);
        assert_eq!((second.next_job, second.next_event), (5, 6));
        assert_eq!(second.nodes[0].mac, [2; 6]);
        let mut warm = second.ledger.warm;
        assert_eq!(warm.iter().count(), 0, "nobody has joined");
        warm.joined(1, 9, &mut Batch::default());
        assert_eq!(warm.nodes(&HASH).next().unwrap().last_job, Some(3));
    }

    #[test]
    fn a_store_that_is_locked_at_the_start_is_read_and_written_later() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hearth.db");
        let wanted = Wanted { jobs: 9, events: 9 };
        let open = || open(&path, Limits::default(), wanted).unwrap();
        let mut first = open();
        holds(&mut first.ledger);
        first.ledger.job(&record(7, JobState::Running));
        assert_eq!(first.ledger.commit(0), None);
        drop(first);
        let other = rusqlite::Connection::open(&path).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let mut second = open();
        let kinds: Vec<&str> = second
            .notices
            .iter()
            .map(|event| event.kind.as_str())
            .collect();
        assert_eq!(kinds, ["job-ended", "store-failed"]);
        assert_eq!((second.nodes.len(), second.next_job), (1, 8));
        assert_eq!(second.jobs[0].state, JobState::Failed);
        assert_eq!(second.ledger.warm.rows().count(), 1);
        other.execute_batch("COMMIT").unwrap();
        let told = second.ledger.commit(2_000_000).unwrap();
        assert_eq!(told.kind, "store-works");
        drop(second);
        let third = open();
        assert!(third.notices.is_empty());
        assert_eq!(third.jobs[0].state, JobState::Failed);
    }

    #[test]
    fn a_store_that_cannot_be_opened_does_not_stop_control() {
        let path = Path::new("/nonexistent/hearth.db");
        let wanted = Wanted { jobs: 2, events: 3 };
        let mut opened = open(path, Limits::default(), wanted).unwrap();
        assert_eq!(opened.notices[0].kind, "store-unavailable");
        let trouble = opened.ledger.trouble().unwrap().to_string();
        assert!(
            trouble.contains("/nonexistent/hearth.db") && trouble.contains("in memory"),
            "{trouble}"
        );
        opened.ledger.job(&record(1, JobState::Completed));
        assert_eq!(opened.ledger.commit(0), None);
    }
}
