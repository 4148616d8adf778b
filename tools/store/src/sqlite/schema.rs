//! Tables, and the steps from each version of them to the next.
//!
//! Key items: [`VERSION`], [`migrate`]. Neighbour: `open`.
//!
//! Invariant: a step that was released is never changed: a new one is added. All steps that a file
//! needs, and its new version number, are one transaction.

use rusqlite::{Connection, TransactionBehavior};

/// "Hrth": tells this database from others (`PRAGMA application_id`).
pub const APPLICATION_ID: i32 = 0x4872_7468;

/// The steps; the version of a file is the number of steps it has seen. Hashes, MAC addresses and
/// boot epochs are text in the notation that `hearth` prints, so that a look with any SQLite shell
/// shows what `hearth` shows.
const STEPS: &[&str] = &[
    // 1: the first.
    "CREATE TABLE nodes (
        mac TEXT PRIMARY KEY,
        node INTEGER NOT NULL UNIQUE,
        boot_epoch TEXT,
        joined_unix_us INTEGER
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE node_status (
        node INTEGER NOT NULL,
        program TEXT NOT NULL,
        boot_epoch TEXT NOT NULL,
        since_unix_us INTEGER NOT NULL,
        pages INTEGER NOT NULL,
        pristine INTEGER NOT NULL,
        last_job INTEGER,
        PRIMARY KEY (node, program)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE programs (
        hash TEXT PRIMARY KEY,
        names TEXT NOT NULL, -- JSON array, the latest first
        bytes INTEGER NOT NULL,
        first_used_unix_us INTEGER NOT NULL,
        last_used_unix_us INTEGER NOT NULL,
        launches INTEGER NOT NULL,
        warm_launches INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX programs_by_use ON programs (last_used_unix_us, hash);
    CREATE TABLE jobs (
        id INTEGER PRIMARY KEY,
        name TEXT NOT NULL,
        program TEXT NOT NULL,
        state TEXT NOT NULL,
        reason TEXT NOT NULL,
        ranks INTEGER NOT NULL,
        nodes TEXT NOT NULL,
        submitted_unix_us INTEGER NOT NULL,
        started_unix_us INTEGER,
        ended_unix_us INTEGER, -- none while it is under way
        exit_status INTEGER,
        record TEXT NOT NULL -- all of it as JSON, with the reports of its ranks
    ) STRICT;
    CREATE INDEX jobs_by_end ON jobs (ended_unix_us, id);
    CREATE TABLE events (
        seq INTEGER PRIMARY KEY,
        time_unix_us INTEGER NOT NULL,
        severity TEXT NOT NULL,
        kind TEXT NOT NULL,
        node TEXT,
        job INTEGER,
        mac TEXT,
        text TEXT NOT NULL
    ) STRICT;
    CREATE TABLE counters (
        name TEXT PRIMARY KEY,
        value INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;",
    // 2: casts.
    "CREATE TABLE files (
        name TEXT PRIMARY KEY,
        object TEXT NOT NULL,
        bytes INTEGER NOT NULL,
        cast_unix_us INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE node_files (
        node INTEGER NOT NULL,
        object TEXT NOT NULL,
        boot_epoch TEXT NOT NULL,
        since_unix_us INTEGER NOT NULL,
        PRIMARY KEY (node, object)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE casts (
        id INTEGER PRIMARY KEY,
        name TEXT NOT NULL,
        object TEXT NOT NULL,
        nodes TEXT NOT NULL,
        scheme TEXT NOT NULL,
        rate INTEGER NOT NULL,
        patient INTEGER NOT NULL,
        began_unix_us INTEGER NOT NULL
    ) STRICT;",
    // 3: jobs that survive a restart, drained nodes.
    "CREATE TABLE job_specs (
        id INTEGER PRIMARY KEY,
        spec TEXT NOT NULL -- JSON
    ) STRICT;
    CREATE TABLE drained (
        node INTEGER PRIMARY KEY,
        reason TEXT NOT NULL,
        since_unix_us INTEGER NOT NULL,
        by TEXT NOT NULL
    ) STRICT;",
    // 4: jobs that go on over a restart.
    "CREATE TABLE rank_ends (
        job INTEGER NOT NULL,
        rank INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        record TEXT NOT NULL, -- JSON
        PRIMARY KEY (job, rank)
    ) STRICT, WITHOUT ROWID;",
    // 5: streams that go on over a restart.
    "CREATE TABLE streams (
        number INTEGER PRIMARY KEY,
        name TEXT NOT NULL,
        spec TEXT NOT NULL -- JSON
    ) STRICT;",
    // 6: boots of a node that came before its last one.
    "ALTER TABLE nodes ADD COLUMN earlier_boots TEXT NOT NULL DEFAULT '[]'; -- JSON array, the oldest first
    ",
    // 7: files that are not everybody's, tokens.
    "ALTER TABLE files ADD COLUMN shared INTEGER NOT NULL DEFAULT 1;
    CREATE TABLE tokens (
        id INTEGER PRIMARY KEY,
        hash TEXT NOT NULL,
        role TEXT NOT NULL,
        user TEXT NOT NULL,
        made_by TEXT NOT NULL,
        made_unix_us INTEGER NOT NULL,
        expires_unix_us INTEGER -- none: never
    ) STRICT;",
];

/// The version that this program writes.
#[expect(clippy::cast_possible_truncation, reason = "a handful of steps")]
pub const VERSION: u32 = STEPS.len() as u32;

/// Version of a file, 0 for a new one.
pub fn version(connection: &Connection) -> rusqlite::Result<u32> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

/// Brings a file to [`VERSION`].
pub fn migrate(connection: &mut Connection) -> rusqlite::Result<()> {
    migrate_by(connection, STEPS)
}

/// Brings a file to the version after the last of `steps`.
pub fn migrate_by(connection: &mut Connection, steps: &[&str]) -> rusqlite::Result<()> {
    let from = version(connection)? as usize;
    if from >= steps.len() {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for step in &steps[from..] {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    let version = u32::try_from(steps.len()).expect("a handful of steps");
    transaction.pragma_update(None, "user_version", version)?;
    transaction.commit()
}

/// The steps, for tests that add to them.
#[cfg(test)]
pub fn steps() -> &'static [&'static str] {
    STEPS
}
