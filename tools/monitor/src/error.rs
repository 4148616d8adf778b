//! What can go wrong with the files, and what to do about it.
//!
//! Invariant: every text names the file or the value and the next step.

use std::path::PathBuf;

/// Why values could not be kept or read.
#[derive(Debug, thiserror::Error)]
pub enum MonitorError {
    /// SQLite said no.
    #[error("cannot {operation} {path}: {source}; look at the disk's space and rights")]
    Sqlite {
        /// What was tried: `open`, `write`, `read`, `checkpoint`.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: rusqlite::Error,
    },
    /// The file is not what was written to it.
    #[error(
        "cannot {operation} {path}, which is damaged ({source}): move it away, with its -wal and -shm"
    )]
    Damaged {
        /// What was tried.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// What SQLite found.
        source: rusqlite::Error,
    },
    /// The system said no.
    #[error("cannot {operation} {path}: {source}")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The file is of another program, or of a newer version of this one.
    #[error(
        "{path} is not a file of this version's monitoring data (application {application:#x}, schema {schema}): move it away"
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Its application id.
        application: i32,
        /// Its schema.
        schema: i32,
    },
    /// A node number that no key can hold.
    #[error("node {0} is beyond the {max} that monitoring can hold", max = crate::NODES_MAX)]
    NodeNumber(u32),
    /// A row with more values than metrics were declared.
    #[error("{values} values where {metrics} metrics are declared: declare them all at the start")]
    Values {
        /// Values given.
        values: usize,
        /// Metrics declared.
        metrics: usize,
    },
    /// An answer that would take too much memory.
    #[error(
        "the answer has more than {0} values: ask for fewer nodes, a shorter time or a coarser level"
    )]
    TooMuch(usize),
    /// More metrics than a file can hold.
    #[error("{0} metrics are more than the {max} that a file can hold", max = crate::METRICS_MAX)]
    TooManyMetrics(usize),
}
