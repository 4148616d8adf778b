//! What only a file can suffer: damage, other versions, a full disk, locks, sudden death.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::{BUSY_LIMIT, Sqlite, look_over, schema};
use crate::rows::{EventRow, JobRow, Limits, ProgramRow, ProgramUse};
use crate::{Batch, Failure, Query, Store, StoreError};

fn event(seq: u64) -> EventRow {
    EventRow {
        seq,
        time_unix_us: 1_795_229_679_123_456,
        severity: "info".to_string(),
        kind: "test".to_string(),
        node: Some("n1".to_string()),
        job: None,
        mac: None,
        text: format!("event {seq} {}", "x".repeat(200)),
    }
}

fn events(numbers: std::ops::RangeInclusive<u64>) -> Batch {
    let mut batch = Batch::default();
    for seq in numbers {
        batch.append_event(event(seq));
    }
    batch
}

fn store(path: &Path) -> Sqlite {
    let opened = Sqlite::open(path, Limits::default()).unwrap();
    assert_eq!(opened.set_aside, None);
    opened.store
}

fn count(store: &Sqlite) -> usize {
    store.events(0, u32::MAX).unwrap().len()
}

fn lab() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("hearth.db");
    (dir, path)
}

#[test]
fn what_was_committed_is_there_after_a_sudden_death() {
    let (dir, path) = lab();
    let mut store = store(&path);
    for number in 1..=50 {
        store.commit(&events(number..=number)).unwrap();
    }
    // The files as they are while the writer still has them open, as a killed process leaves them.
    let copy = dir.path().join("copy.db");
    std::fs::copy(&path, &copy).unwrap();
    std::fs::copy(
        dir.path().join("hearth.db-wal"),
        dir.path().join("copy.db-wal"),
    )
    .unwrap();
    let opened = Sqlite::open(&copy, Limits::default()).unwrap();
    assert_eq!((opened.set_aside, count(&opened.store)), (None, 50));
    // The log had it all: the file alone has nothing yet.
    let bare = dir.path().join("bare.db");
    std::fs::copy(&path, &bare).unwrap();
    assert_eq!(count(&self::store(&bare)), 0);
}

#[test]
fn a_checkpoint_moves_the_log_into_the_file_beside_writer_and_readers() {
    let (dir, path) = lab();
    let mut store = store(&path);
    let reader = store.reader().unwrap();
    let mut checkpointer = store.checkpointer().unwrap();
    store.commit(&events(1..=50)).unwrap();
    assert_eq!(reader.events(0, 100).unwrap().len(), 50);
    checkpointer.run().unwrap();
    let bare = dir.path().join("bare.db");
    std::fs::copy(&path, &bare).unwrap();
    assert_eq!(count(&self::store(&bare)), 50);
    store.commit(&events(51..=51)).unwrap();
    assert_eq!(reader.next_event().unwrap(), 52);
}

#[test]
fn all_files_are_private() {
    let (dir, path) = lab();
    let mut store = store(&path);
    store.commit(&events(1..=1)).unwrap();
    for name in ["hearth.db", "hearth.db-wal", "hearth.db-shm"] {
        let data = std::fs::metadata(dir.path().join(name)).unwrap();
        assert_eq!(data.permissions().mode() & 0o777, 0o600, "{name}");
    }
}

#[test]
fn a_damaged_file_is_set_aside_and_a_new_one_begun() {
    type Damage = (&'static str, fn(&mut Vec<u8>));
    let damages: [Damage; 4] = [
        ("no database at all", |bytes| {
            *bytes = b"[{\"not\": \"a database\"}]".repeat(100);
        }),
        ("a header of another kind", |bytes| bytes[0] ^= 1),
        ("a page that is overwritten", |bytes| {
            let middle = bytes.len() / 2 / 4096 * 4096;
            bytes[middle..middle + 4096].fill(0xa5);
        }),
        ("a file that is cut", |bytes| {
            bytes.truncate(bytes.len() / 2 / 4096 * 4096)
        }),
    ];
    for (what, damage) in damages {
        let (dir, path) = lab();
        let mut sound = store(&path);
        sound.commit(&events(1..=1000)).unwrap();
        drop(sound);
        let mut bytes = std::fs::read(&path).unwrap();
        damage(&mut bytes);
        std::fs::write(&path, &bytes).unwrap();
        // What an opening does not meet is found by who looks for it, and met by the next opening.
        let error = look_over(&path).unwrap_err();
        assert_eq!(error.failure(), Some(Failure::Damaged), "{what}");
        let opened = Sqlite::open(&path, Limits::default()).unwrap();
        let text = opened.set_aside.expect(what);
        assert!(
            text.contains("is damaged") && text.contains("hearth.db.damaged"),
            "{what}: {text}"
        );
        let mut begun = opened.store;
        assert_eq!(count(&begun), 0, "{what}");
        begun.commit(&events(1..=1)).unwrap();
        let aside = std::fs::read(dir.path().join("hearth.db.damaged")).unwrap();
        assert!(!aside.is_empty(), "{what}");
        drop(begun);
        assert_eq!(count(&store(&path)), 1, "{what}");
    }
}

/// As many rows as there may be, and an opening reads none of their records.
#[test]
fn an_opening_does_not_look_through_all_of_it() {
    let (_dir, path) = lab();
    let mut sound = store(&path);
    sound.commit(&events(1..=1000)).unwrap();
    drop(sound);
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 2 / 4096 * 4096;
    bytes[middle..middle + 4096].fill(0xa5);
    std::fs::write(&path, &bytes).unwrap();
    let opened = Sqlite::open(&path, Limits::default()).unwrap();
    assert_eq!(opened.set_aside, None);
    // Who meets the damage has the next opening look.
    let met = opened.store.events(0, 1000).unwrap_err();
    assert_eq!(met.failure(), Some(Failure::Damaged));
    drop(opened);
    let opened = Sqlite::open(&path, Limits::default()).unwrap();
    assert!(opened.set_aside.is_some());
    assert!(look_over(&path).is_ok());
    drop(opened);
    assert_eq!(
        Sqlite::open(&path, Limits::default()).unwrap().set_aside,
        None
    );
}

#[test]
fn what_was_set_aside_stays_and_has_its_own_log() {
    let (dir, path) = lab();
    let file = |name: &str| dir.path().join(name);
    // The log of one that somebody has removed.
    std::fs::write(file("hearth.db.damaged-wal"), "of another").unwrap();
    for (number, name) in (1..=9).zip([
        "hearth.db.damaged",
        "hearth.db.damaged-2",
        "hearth.db.damaged-3",
        "hearth.db.damaged-4",
        "hearth.db.damaged-5",
        "hearth.db.damaged-6",
        "hearth.db.damaged-7",
        "hearth.db.damaged-8",
        "hearth.db.damaged-9",
    ]) {
        std::fs::write(&path, number.to_string()).unwrap();
        let has_log = number % 2 == 0;
        if has_log {
            std::fs::write(file("hearth.db-wal"), "its log").unwrap();
        }
        assert_eq!(super::set_aside(&path).unwrap(), file(name));
        assert_eq!(
            std::fs::read_to_string(file(name)).unwrap(),
            number.to_string()
        );
        let log = file(&format!("{name}-wal"));
        assert_eq!(log.exists(), has_log, "{number}");
        assert!(!file("hearth.db-wal").exists());
    }
    // There is room for nine, and none of them makes room for another by itself.
    std::fs::write(&path, "not a database ".repeat(1000)).unwrap();
    let refused = Sqlite::open(&path, Limits::default()).unwrap_err();
    let text = refused.to_string();
    assert!(
        text.contains("remove") && text.contains("hearth.db.damaged"),
        "{text}"
    );
    let kept = |name: &str| std::fs::read_to_string(file(name)).unwrap();
    assert_eq!(
        (&*kept("hearth.db.damaged"), &*kept("hearth.db.damaged-9")),
        ("1", "9")
    );
    assert!(path.exists());
    std::fs::remove_file(file("hearth.db.damaged-4")).unwrap();
    let opened = Sqlite::open(&path, Limits::default()).unwrap();
    let text = opened.set_aside.expect("it is damaged");
    assert!(text.contains("hearth.db.damaged-4"), "{text}");
}

#[test]
fn an_empty_file_is_a_new_store() {
    let (_dir, path) = lab();
    std::fs::write(&path, b"").unwrap();
    let mut store = store(&path);
    assert_eq!(
        (store.next_job().unwrap(), store.next_event().unwrap()),
        (1, 1)
    );
    store.commit(&events(1..=1)).unwrap();
}

#[test]
fn newer_and_foreign_files_are_refused_and_left_alone() {
    let (_dir, path) = lab();
    store(&path).commit(&events(1..=3)).unwrap();
    let other = Connection::open(&path).unwrap();
    other.pragma_update(None, "user_version", 99).unwrap();
    drop(other);
    let error = Sqlite::open(&path, Limits::default()).unwrap_err();
    assert!(matches!(error, StoreError::Newer { found: 99, .. }));
    let text = error.to_string();
    assert!(
        text.contains("newer hearth") && text.contains("schema 99") && text.contains("move"),
        "{text}"
    );
    let other = Connection::open(&path).unwrap();
    other
        .pragma_update(None, "user_version", schema::VERSION)
        .unwrap();
    drop(other);
    assert_eq!(count(&store(&path)), 3);

    let (_dir, path) = lab();
    let other = Connection::open(&path).unwrap();
    other
        .execute_batch("CREATE TABLE cookies (crumbs)")
        .unwrap();
    drop(other);
    let error = Sqlite::open(&path, Limits::default()).unwrap_err();
    assert!(matches!(error, StoreError::Foreign { .. }), "{error}");
    let other = Connection::open(&path).unwrap();
    assert!(other.execute("INSERT INTO cookies VALUES (1)", []).is_ok());
}

#[test]
fn migrations_are_one_transaction() {
    let (_dir, path) = lab();
    store(&path).commit(&events(1..=3)).unwrap();
    let mut file = Connection::open(&path).unwrap();
    let released = schema::steps();
    let next = "ALTER TABLE events ADD COLUMN colour TEXT NOT NULL DEFAULT 'grey';";
    let mut broken = released.to_vec();
    broken.extend([
        next,
        "CREATE TABLE extra (a INTEGER); SELECT no_such_function();",
    ]);
    assert!(schema::migrate_by(&mut file, &broken).is_err());
    assert_eq!(schema::version(&file).unwrap(), schema::VERSION);
    let colour = "SELECT count(*) FROM events WHERE colour = 'grey'";
    assert!(
        file.prepare(colour).is_err(),
        "nothing of the steps is left"
    );
    let mut good = released.to_vec();
    good.push(next);
    schema::migrate_by(&mut file, &good).unwrap();
    assert_eq!(schema::version(&file).unwrap(), schema::VERSION + 1);
    let grey: u32 = file.query_row(colour, [], |row| row.get(0)).unwrap();
    assert_eq!(grey, 3);
    // Once more changes nothing.
    schema::migrate_by(&mut file, &good).unwrap();
}

#[test]
fn a_full_disk_is_an_error_that_leaves_the_store_as_it_was() {
    let (_dir, path) = lab();
    let mut store = store(&path);
    store.commit(&events(1..=3)).unwrap();
    let pages = |store: &Sqlite, most: u32| {
        let set = format!("PRAGMA max_page_count = {most}");
        store.connection.query_row(&set, [], |_| Ok(())).unwrap();
    };
    pages(&store, 1);
    let large = events(4..=2000);
    let error = store.commit(&large).unwrap_err();
    assert_eq!(error.failure(), Some(Failure::Full));
    assert!(
        error.to_string().contains("cannot write") && error.to_string().contains("free some space"),
        "{error}"
    );
    assert_eq!(count(&store), 3);
    pages(&store, 1_000_000);
    store.commit(&large).unwrap();
    assert_eq!(count(&store), 2000);
}

#[test]
fn a_file_that_another_process_keeps_locked_is_not_waited_for_long() {
    let (_dir, path) = lab();
    let mut store = store(&path);
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let began = std::time::Instant::now();
    let error = store.commit(&events(1..=1)).unwrap_err();
    assert_eq!(error.failure(), Some(Failure::Busy));
    assert!(began.elapsed() < 8 * BUSY_LIMIT, "{:?}", began.elapsed());
    other.execute_batch("COMMIT").unwrap();
    store.commit(&events(1..=1)).unwrap();
}

#[test]
fn a_place_that_cannot_be_written_is_named() {
    let (dir, _) = lab();
    let path = dir.path().join("missing/hearth.db");
    let error = Sqlite::open(&path, Limits::default()).unwrap_err();
    assert_eq!(error.failure(), Some(Failure::ReadOnly));
    let text = error.to_string();
    assert!(
        text.contains("missing/hearth.db") && text.contains("writable"),
        "{text}"
    );
}

#[test]
fn a_part_of_a_batch_is_never_written() {
    let (_dir, path) = lab();
    let mut store = store(&path);
    // A trigger stands for whatever may go wrong in the middle.
    let trap = "CREATE TRIGGER trap BEFORE INSERT ON events WHEN new.seq = 7
        BEGIN SELECT raise(ABORT, 'seven'); END";
    store.connection.execute_batch(trap).unwrap();
    let mut batch = Batch::default();
    batch.finish_job(job(5, Some(1)), used(1));
    batch.append_event(event(7));
    assert!(store.commit(&batch).is_err());
    assert_eq!(store.job(5).unwrap(), None);
    assert_eq!(store.next_job().unwrap(), 1);
    assert!(store.programs(10).unwrap().is_empty());
    // The rows that are counted were not counted.
    for id in 1..=Limits::default().jobs.min(20) {
        let mut batch = Batch::default();
        batch.finish_job(job(id, Some(id)), used(id));
        store.commit(&batch).unwrap();
    }
    assert_eq!(store.ended_jobs(None, 100).unwrap().len(), 20);
}

#[test]
fn rows_that_somebody_spoilt_hide_nothing_and_stop_nothing() {
    let (_dir, path) = lab();
    let mut store = store(&path);
    let mut batch = events(1..=2);
    for id in 1..=2 {
        batch.finish_job(job(id, Some(id)), used(id));
    }
    store.commit(&batch).unwrap();
    let spoil = "UPDATE programs SET names = 'hello'; UPDATE jobs SET program = 'x' WHERE id = 1;
        UPDATE events SET job = -1 WHERE seq = 1";
    Connection::open(&path)
        .unwrap()
        .execute_batch(spoil)
        .unwrap();
    let ids = |store: &Sqlite| {
        let rows = store.ended_jobs(None, 9).unwrap().into_iter();
        rows.map(|row| row.id).collect::<Vec<_>>()
    };
    assert_eq!((count(&store), ids(&store)), (1, vec![2]));
    assert!(store.programs(9).unwrap().is_empty());
    let mut batch = Batch::default();
    batch.finish_job(job(3, Some(3)), used(3));
    store.commit(&batch).unwrap();
    assert_eq!(store.programs(9).unwrap(), [ProgramRow::first(&used(3))]);
    drop(store);
    assert_eq!(ids(&self::store(&path)), [3, 2]);
}

fn job(id: u64, ended_unix_us: Option<u64>) -> JobRow {
    JobRow {
        id,
        name: "hello".to_string(),
        program: [7; 32],
        state: "completed".to_string(),
        reason: String::new(),
        ranks: 2,
        nodes: "n[0-1]".to_string(),
        submitted_unix_us: 1,
        started_unix_us: Some(2),
        ended_unix_us,
        exit_status: Some(0),
        record: "{}".to_string(),
    }
}

fn used(at_unix_us: u64) -> ProgramUse {
    ProgramUse {
        hash: [7; 32],
        name: "hello".to_string(),
        bytes: 30_000,
        at_unix_us,
        launches: 2,
        warm_launches: 1,
    }
}
