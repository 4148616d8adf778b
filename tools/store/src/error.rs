//! What can go wrong with a store, and what to do about it.
//!
//! Key types: [`StoreError`], [`Failure`]. Neighbours: control shows the text to people and decides
//! by the kind whether it goes on.
//!
//! Invariant: every text names the file and the next step.

use std::path::PathBuf;

/// Why a store could not be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A later version of the program wrote the file.
    #[error(
        "{path} was written by a newer hearth (schema {found}; this one knows {known}): run that version again, or move the file away to begin without history"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its schema.
        found: u32,
        /// The newest schema that is known here.
        known: u32,
    },
    /// It is a database of something else.
    #[error(
        "{path} is the database of another program: move it away, or choose another state directory"
    )]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The file is damaged and could not be set aside.
    #[error(
        "{path} is damaged ({what}) and cannot be set aside: {source}; you can move it away yourself"
    )]
    SetAside {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The system or SQLite said no.
    #[error("cannot {operation} {path}: {source}; {}", failure.advice())]
    Failed {
        /// What was tried: `open`, `write`, `read`, `migrate`, `checkpoint`.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// What kind of failure it is.
        failure: Failure,
        /// The cause.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Kinds of failure that ask for different actions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// No space.
    Full,
    /// The file or its file system cannot be written.
    ReadOnly,
    /// Another process has the file locked.
    Busy,
    /// The content is not what was written.
    Damaged,
    /// The disk or the system failed in another way.
    Other,
}

impl Failure {
    /// What to do about it.
    pub fn advice(self) -> &'static str {
        match self {
            Failure::Full => "free some space on its file system",
            Failure::ReadOnly => "make the file and its directory writable for hearth",
            Failure::Busy => "end the other program that has it open for writing",
            Failure::Damaged => {
                "start the control node again: it sets the file aside and begins a new one"
            }
            Failure::Other => "see the system's log for errors of the disk",
        }
    }

    /// The kind of an error of SQLite.
    pub(crate) fn of(error: &rusqlite::Error) -> Self {
        use rusqlite::{ErrorCode, ffi};
        let extended = error.sqlite_error().map(|error| error.extended_code);
        // The index of the log is mapped, and a full disk has no room for it.
        if extended == Some(ffi::SQLITE_IOERR_SHMSIZE) {
            return Failure::Full;
        }
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Failure::Full,
            Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
                Failure::ReadOnly
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Failure::Busy,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Failure::Damaged,
            _ => Failure::Other,
        }
    }
}

impl StoreError {
    /// The kind of failure, where the system or SQLite failed.
    pub fn failure(&self) -> Option<Failure> {
        match self {
            StoreError::Failed { failure, .. } => Some(*failure),
            StoreError::SetAside { .. } => Some(Failure::Damaged),
            StoreError::Newer { .. } | StoreError::Foreign { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::ffi;

    #[test]
    fn a_disk_without_room_for_the_logs_index_is_full() {
        for (code, failure) in [
            (ffi::SQLITE_IOERR_SHMSIZE, Failure::Full),
            (ffi::SQLITE_FULL, Failure::Full),
            (ffi::SQLITE_IOERR_READ, Failure::Other),
        ] {
            let error = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
            assert_eq!(Failure::of(&error), failure, "{code}");
        }
    }
}
