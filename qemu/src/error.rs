//! What can go wrong with a cluster, in words that say what to do next.
//!
//! Key type: [`Error`]. Neighbours: every module of this crate.

use std::io;
use std::path::PathBuf;

/// An operation on a cluster failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The wanted cluster makes no sense; the text says which value and what is allowed.
    #[error("{0}")]
    Spec(String),
    /// A cluster of this name runs already.
    #[error(
        "cluster `{0}` is up already: `hearth --cluster {0} down` takes it down, \
         `hearth up --cluster NAME` brings up another one beside it"
    )]
    AlreadyUp(String),
    /// There is no cluster of this name.
    #[error("there is no cluster `{0}`: `hearth up --cluster {0}` brings it up")]
    NotUp(String),
    /// The machine lacks something; the text says what and how to get it.
    #[error("{0}")]
    Host(String),
    /// A file operation failed.
    #[error("{operation} {}: {source}", path.display())]
    File {
        operation: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// A program could not be started.
    #[error("starting `{program}`: {source}; is it installed? (`cargo xtask setup` installs it)")]
    Start { program: String, source: io::Error },
    /// A program that sets up the network failed.
    #[error("`{command}` failed: {message}")]
    Network { command: String, message: String },
    /// The supervisor or the control node ended while the cluster came up.
    #[error("{what} ended while the cluster came up; the end of {}:\n{tail}", log.display())]
    Ended {
        what: String,
        log: PathBuf,
        tail: String,
    },
    /// A node can never join.
    #[error(
        "{0}; the image and the control node are of two builds (`cargo xtask build` makes both, \
         `--image` names another image); the cluster was taken down again"
    )]
    Refused(String),
    /// The supervisor reported a failure.
    #[error("{0}")]
    Supervisor(String),
    /// Something did not happen within its time limit.
    #[error("{what} did not happen within {limit_seconds} s{detail}")]
    Timeout {
        what: String,
        limit_seconds: u64,
        detail: String,
    },
    /// Talking to the supervisor failed.
    #[error("{operation}: {source}")]
    Socket {
        operation: &'static str,
        source: io::Error,
    },
    /// The caller asked to stop while the cluster came up; it was taken down again.
    #[error("interrupted{detail}; the cluster was taken down again")]
    Interrupted {
        /// What was still missing.
        detail: String,
    },
}

impl Error {
    /// A file operation that failed, for `map_err`.
    pub(crate) fn file(
        operation: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File {
            operation,
            path,
            source,
        }
    }
}
