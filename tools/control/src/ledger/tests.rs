//! The ledger over stores whose disk can be made full, and over files that an earlier run left.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use hearth_store::{
    CastRow, DrainRow, EventRow, FileRow, HeldRow, JobRow, Limits, Memory, NodeRow, ProgramRow,
    Query, RankEndRow, SpecRow, StreamRow, TokenRow, WarmRow,
};

use super::*;
use crate::api::types::JobState;
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
    fn each_ended_job(
        &self,
        before: Option<u64>,
        each: &mut dyn FnMut(JobRow) -> ControlFlow<()>,
    ) -> Answer<()> {
        self.memory.each_ended_job(before, each)
    }
    fn open_jobs(&self, limit: u32) -> Answer<Vec<JobRow>> {
        self.memory.open_jobs(limit)
    }
    fn events(&self, after: u64, limit: u32) -> Answer<Vec<EventRow>> {
        self.memory.events(after, limit)
    }
    fn specs(&self, limit: u32) -> Answer<Vec<SpecRow>> {
        self.memory.specs(limit)
    }
    fn rank_ends(&self, limit: u32) -> Answer<Vec<RankEndRow>> {
        self.memory.rank_ends(limit)
    }
    fn streams(&self) -> Answer<Vec<StreamRow>> {
        self.memory.streams()
    }
    fn tokens(&self) -> Answer<Vec<TokenRow>> {
        self.memory.tokens()
    }
    fn next_token(&self) -> Answer<u64> {
        self.memory.next_token()
    }
    fn drains(&self) -> Answer<Vec<DrainRow>> {
        self.memory.drains()
    }
    fn next_job(&self) -> Answer<u64> {
        self.memory.next_job()
    }
    fn instance(&self) -> Answer<Option<u64>> {
        self.memory.instance()
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
        attempt_over: info.state.is_final(),
        on_nodes: netstack::ids::JobId(info.id),
        spec: Some(format!("how to run {}", info.id)),
        info,
        program_bytes: Some(30_000),
        nodes: vec![1],
    }
}

fn holds(ledger: &mut Ledger) {
    ledger.joined(NodeRow {
        mac: [2; 6],
        node: 1,
        boot_epoch: Some(9),
        joined_unix_us: Some(5),
        earlier_boots: vec![7, 8],
    });
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
    assert!(ledger.failing().unwrap().contains("kept in memory"));
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
    assert_eq!((ledger.failing(), ledger.next_deadline_us()), (None, None));
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
    let wanted = Wanted {
        jobs: 2,
        events: 3,
        instance: 7,
    };
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
    assert_eq!(ids, [2, 3]);
    assert_eq!(second.jobs[1].state, JobState::Completed);
    let open = &second.open[0];
    assert_eq!((open.info.id, open.info.state), (4, JobState::Running));
    assert_eq!(open.spec.as_deref(), Some("how to run 4"));
    assert_eq!(second.open.len(), 1);
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
    let wanted = Wanted {
        jobs: 9,
        events: 9,
        instance: 7,
    };
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
    assert_eq!(kinds, ["store-failed"]);
    assert_eq!((second.nodes.len(), second.next_job), (1, 8));
    assert_eq!(second.open[0].info.id, 7);
    assert_eq!(second.ledger.warm.rows().count(), 1);
    other.execute_batch("COMMIT").unwrap();
    let told = second.ledger.commit(2_000_000).unwrap();
    assert_eq!(told.kind, "store-works");
    drop(second);
    let third = open();
    assert!(third.notices.is_empty());
    assert_eq!(third.open[0].info.id, 7);
}

/// Control would forget what it has told, and give numbers of jobs a second time.
#[test]
fn a_store_that_cannot_be_opened_is_an_error_that_says_what_to_do() {
    let wanted = Wanted {
        jobs: 2,
        events: 3,
        instance: 7,
    };
    let refused = |path: &Path| match open(path, Limits::default(), wanted) {
        Ok(_) => panic!("{} was opened", path.display()),
        Err(error) => error.to_string(),
    };
    let text = refused(Path::new("/nonexistent/hearth.db"));
    assert!(
        text.contains("/nonexistent/hearth.db") && text.contains("writable for hearth"),
        "{text}"
    );
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hearth.db");
    std::fs::create_dir(&path).unwrap();
    assert!(refused(&path).contains("hearth.db"));
    assert!(path.is_dir());
}

/// Damage that only shows when it is read is no empty store, either.
#[test]
fn a_store_whose_damage_shows_when_it_is_read_is_set_aside_each_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hearth.db");
    let wanted = Wanted {
        jobs: 9,
        events: 9,
        instance: 7,
    };
    let open = || open(&path, Limits::default(), wanted).unwrap();
    for aside in ["hearth.db.damaged", "hearth.db.damaged-2"] {
        let mut opened = open();
        for id in 1..=200 {
            opened.ledger.job(&record(id, JobState::Running));
        }
        assert_eq!(opened.ledger.commit(0), None);
        drop(opened);
        let mut bytes = std::fs::read(&path).unwrap();
        // All pages but the first, which has the names of the tables.
        bytes[4096..].fill(0xa5);
        std::fs::write(&path, &bytes).unwrap();
        drop(std::fs::remove_file(dir.path().join("hearth.db-wal")));
        let opened = open();
        assert_eq!(opened.notices[0].kind, "store-damaged");
        assert!(opened.notices[0].text.contains(aside));
        assert!(opened.open.is_empty() && dir.path().join(aside).exists());
    }
}

/// A few jobs of all nodes have as much to say as thousands of small ones.
#[test]
fn what_a_start_reads_of_the_past_has_a_bound_in_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hearth.db");
    let wanted = Wanted {
        jobs: 1_000,
        events: 9,
        instance: 7,
    };
    let open = || open(&path, Limits::default(), wanted).unwrap();
    let mut first = open();
    for id in 1..=20 {
        let mut large = record(id, JobState::Completed);
        large.info.reason = "x".repeat(RECORDS_OF_TEST / 10);
        first.ledger.job(&large);
        assert_eq!(first.ledger.commit(id), None);
    }
    drop(first);
    let ids: Vec<u64> = open().jobs.iter().map(|job| job.id).collect();
    assert_eq!(ids, (12..=20).collect::<Vec<u64>>());
}

/// As much as a start reads of records.
const RECORDS_OF_TEST: usize = 32 * 1024 * 1024;
