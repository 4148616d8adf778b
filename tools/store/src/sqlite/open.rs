//! Opening a store: what is damaged is set aside, what is newer or foreign is left alone.
//!
//! How long that takes does not depend on how much is in it: all of it is looked through later
//! ([`look_over`]), and at an opening only when that, or any other operation, has met damage
//! before.
//!
//! Key type: [`Opened`]. Neighbours: `schema` brings the tables up to date; [`super::Sqlite`].
//!
//! Invariant: a file is renamed only when SQLite itself says that its content is damaged.

use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use super::{BUSY_LIMIT, STATEMENTS, Sqlite, apply, failed, schema};
use crate::error::{Failure, StoreError};
use crate::rows::Limits;

/// Pages in the log after which the writer itself makes a checkpoint: 64 MiB, far more than gathers
/// between two runs of a [`super::Checkpointer`]; so the log has a bound even without one.
const LOG_PAGES_MAX: u32 = 16_384;

/// Bytes that the log's file keeps after a checkpoint that emptied it.
const LOG_KEPT_BYTES: i64 = 4 * 1024 * 1024;

/// A store that was opened.
#[derive(Debug)]
pub struct Opened {
    /// The store.
    pub store: Sqlite,
    /// What became of a damaged file that was found in its place.
    pub set_aside: Option<String>,
}

/// Why a file cannot be used as it is.
enum Unusable {
    /// Its content is damaged.
    Damaged(String),
    /// Something else.
    Error(StoreError),
}

/// See [`Sqlite::open`].
pub fn open(path: &Path, limits: Limits) -> Result<Opened, StoreError> {
    match open_sound(path, limits) {
        Ok(store) => {
            let set_aside = None;
            Ok(Opened { store, set_aside })
        }
        Err(Unusable::Error(error)) => Err(error),
        Err(Unusable::Damaged(what)) => begin_anew(path, limits, &what),
    }
}

/// See [`Sqlite::begin_anew`].
pub fn begin_anew(path: &Path, limits: Limits, what: &str) -> Result<Opened, StoreError> {
    let not_aside = |what: &str, source| StoreError::SetAside {
        path: path.to_path_buf(),
        what: what.to_string(),
        source,
    };
    let aside = set_aside(path).map_err(|source| not_aside(what, source))?;
    ignore_missing(std::fs::remove_file(suspicion(path)))
        .map_err(|source| not_aside(what, source))?;
    let store = open_sound(path, limits).map_err(|unusable| match unusable {
        Unusable::Error(error) => error,
        Unusable::Damaged(what) => {
            let source = std::io::Error::other("a new file is damaged as well");
            not_aside(&what, source)
        }
    })?;
    let text = format!(
        "{} is damaged ({what}) and was set aside as {}; a new one was begun: the history of jobs and events is lost; nodes that are running keep their numbers and report again what they hold",
        path.display(),
        aside.display()
    );
    Ok(Opened {
        store,
        set_aside: Some(text),
    })
}

/// Looks through all of the store at `path` for damage, which takes as long as it is large: beside
/// what works on it. What is found is found again, and set aside, when the store is opened next.
///
/// # Errors
/// [`StoreError::Failed`], of the kind [`Failure::Damaged`] where there is damage.
pub fn look_over(path: &Path) -> Result<(), StoreError> {
    let look = || {
        let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        connection.busy_timeout(BUSY_LIMIT)?;
        connection.pragma_update(None, "query_only", true)?;
        quick_check(&connection)
    };
    let damaged = |what: String| StoreError::Failed {
        operation: "read",
        path: path.to_path_buf(),
        failure: Failure::Damaged,
        source: what.into(),
    };
    let found = look().map_err(|source| failed("read", path, source));
    let found = found.and_then(|verdict| verdict.map_err(damaged));
    note_damage(path, &found);
    found
}

/// Has the next opening look through all of the file, where an operation on it has found damage.
pub fn note_damage<T>(path: &Path, result: &Result<T, StoreError>) {
    if let Err(error) = result
        && error.failure() == Some(Failure::Damaged)
    {
        // On a disk that cannot be written, either, the damage is met again.
        drop(std::fs::File::create(suspicion(path)));
    }
}

/// The file that says that a store is perhaps damaged.
fn suspicion(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(".suspect");
    PathBuf::from(name)
}

fn open_sound(path: &Path, limits: Limits) -> Result<Sqlite, Unusable> {
    let unusable = |operation| {
        move |source: rusqlite::Error| match Failure::of(&source) {
            Failure::Damaged => Unusable::Damaged(source.to_string()),
            _ => Unusable::Error(failed(operation, path, source)),
        }
    };
    create_private(path);
    let mut connection = connect(path).map_err(unusable("open"))?;
    check(&connection, path)?;
    if connection.is_readonly("main").map_err(unusable("open"))? {
        let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_READONLY);
        let source = rusqlite::Error::SqliteFailure(code, None);
        return Err(unusable("write")(source));
    }
    schema::migrate(&mut connection).map_err(unusable("migrate"))?;
    let counts = apply::Counts::of(&connection).map_err(unusable("read"))?;
    // It was looked through.
    drop(std::fs::remove_file(suspicion(path)));
    Ok(Sqlite {
        connection,
        path: path.to_path_buf(),
        limits,
        counts,
    })
}

/// Creates the file with mode 0600 where there is none; the log and its index get the same mode.
/// When that fails, SQLite says why.
fn create_private(path: &Path) {
    let mut options = std::fs::OpenOptions::new();
    drop(options.write(true).create_new(true).mode(0o600).open(path));
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_LIMIT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", "normal")?;
    connection.pragma_update(None, "wal_autocheckpoint", LOG_PAGES_MAX)?;
    connection.pragma_update(None, "journal_size_limit", LOG_KEPT_BYTES)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    Ok(connection)
}

/// Refuses files of others and of later versions; looks for damage.
fn check(connection: &Connection, path: &Path) -> Result<(), Unusable> {
    let unreadable = |source: rusqlite::Error| match Failure::of(&source) {
        Failure::Damaged => Unusable::Damaged(source.to_string()),
        _ => Unusable::Error(failed("read", path, source)),
    };
    let count = "SELECT count(*) FROM sqlite_schema";
    let tables: u32 = connection
        .query_row(count, [], |row| row.get(0))
        .map_err(unreadable)?;
    let application: i32 = connection
        .pragma_query_value(None, "application_id", |row| row.get(0))
        .map_err(unreadable)?;
    if tables > 0 && application != schema::APPLICATION_ID {
        let path = path.to_path_buf();
        return Err(Unusable::Error(StoreError::Foreign { path }));
    }
    let found = schema::version(connection).map_err(unreadable)?;
    if found > schema::VERSION {
        return Err(Unusable::Error(StoreError::Newer {
            path: path.to_path_buf(),
            found,
            known: schema::VERSION,
        }));
    }
    // All of it only where there is a reason: that takes as long as the history is.
    if !suspicion(path).exists() {
        return Ok(());
    }
    let verdict = quick_check(connection).map_err(unreadable)?;
    verdict.map_err(Unusable::Damaged)
}

/// As integrity_check, but for the agreement of indexes with tables, which takes far longer; what
/// is wrong, if anything is.
fn quick_check(connection: &Connection) -> rusqlite::Result<Result<(), String>> {
    let check = "PRAGMA quick_check(1)";
    let verdict: String = connection.query_row(check, [], |row| row.get(0))?;
    Ok(match verdict.as_str() {
        "ok" => Ok(()),
        _ => Err(verdict.replace('\n', " ")),
    })
}

/// Most files that were set aside beside one database.
const ASIDE_MAX: usize = 9;

/// Renames a database's file and its log, so that another can begin in its place; gives the new
/// name of the file: `NAME.damaged`, or `NAME.damaged-2` to `-9` where there are such already.
/// Those stay for people to look at and remove.
///
/// # Errors
/// What the system says, or that all names are taken: then nothing was renamed.
pub fn set_aside(path: &Path) -> std::io::Result<PathBuf> {
    let named = |path: &Path, ending: &str| {
        let mut name = path.as_os_str().to_os_string();
        name.push(ending);
        PathBuf::from(name)
    };
    let numbered = (2..=ASIDE_MAX).map(|number| format!(".damaged-{number}"));
    let mut asides = std::iter::once(".damaged".to_string()).chain(numbered);
    let free = asides.find_map(|ending| Some(named(path, &ending)).filter(|name| !name.exists()));
    let Some(aside) = free else {
        return Err(std::io::Error::new(
            std::io::ErrorKind::AlreadyExists,
            format!(
                "{ASIDE_MAX} damaged ones were set aside before; remove {} or others of them",
                named(path, ".damaged").display()
            ),
        ));
    };
    // The log first belongs to the file; without it the file may be worth nothing. One that is
    // there already belongs to a file that is gone.
    for log in ["-wal", "-shm"] {
        let gone = std::fs::remove_file(named(&aside, log));
        ignore_missing(gone)?;
    }
    std::fs::rename(path, &aside)?;
    for log in ["-wal", "-shm"] {
        let renamed = std::fs::rename(named(path, log), named(&aside, log));
        ignore_missing(renamed)?;
    }
    Ok(aside)
}

fn ignore_missing(done: std::io::Result<()>) -> std::io::Result<()> {
    match done {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
