//! Why a machine was not switched, in words that say what to do next.
//!
//! Key type: [`Error`]. Neighbours: every module of this crate.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::{Action, TemplateError};

/// Longest text of a program or a board that goes into an error, in characters.
const TEXT_MAX: usize = 300;

/// A machine was not switched.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No way is configured.
    #[error(
        "nothing is configured to switch machines with: set [power] method in the configuration; `hearth config --show-defaults` explains it"
    )]
    NotConfigured,
    /// A key that the method needs is not set.
    #[error("power.method = \"{0}\" needs power.{1}; `hearth config --show-defaults` explains it")]
    Incomplete(&'static str, &'static str),
    /// Wake-on-LAN does one thing.
    #[error("wake-on-LAN switches machines on and nothing else; {0} needs another power.method")]
    WakeOnly(Action),
    /// A packet, or a name, is made of the MAC address.
    #[error("the MAC address of {0} is not known; it is once the node has joined")]
    NoMac(String),
    /// A name could not be made of its template.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// The file with the password.
    #[error("the password file {path}: {what}")]
    Password {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A program could not be started.
    #[error("{program} could not be started: {source}; is it installed on the control node?")]
    Start {
        /// The program.
        program: String,
        /// What the system said.
        source: io::Error,
    },
    /// A program, or a board, took too long.
    #[error("{program} did not end within {} s (power.time_limit_s)", limit.as_secs())]
    TimedOut {
        /// The program.
        program: String,
        /// The limit.
        limit: Duration,
    },
    /// A program failed.
    #[error("{program} failed: {text}")]
    Failed {
        /// The program.
        program: String,
        /// What it said, or else its status.
        text: String,
    },
    /// An answer was not understood.
    #[error("{from} answered {text:?}, which is not understood: {wanted}")]
    Answer {
        /// Who.
        from: String,
        /// What.
        text: String,
        /// What was hoped for.
        wanted: &'static str,
    },
    /// Nobody vouches for the board.
    #[error(
        "the certificate of {0} is not trusted: name who signed it in power.ca_file, or set power.check_certificate = false"
    )]
    Untrusted(String),
    /// The board refuses what was asked of it.
    #[error("{board} answers with status {status}: {text}")]
    Refused {
        /// Its address.
        board: String,
        /// The status of HTTP.
        status: u16,
        /// What it says, or what to do.
        text: String,
    },
    /// A packet could not be sent.
    #[error("a wake-on-LAN packet could not be sent: {0}")]
    Send(io::Error),
    /// The supervisor of a QEMU cluster.
    #[error("{0}")]
    Qemu(String),
}

impl Error {
    /// An answer that was not understood.
    pub(crate) fn answer(from: &str, text: &str, wanted: &'static str) -> Self {
        Error::Answer {
            from: from.to_owned(),
            text: short(text),
            wanted,
        }
    }
}

/// The beginning of a text on one line.
pub(crate) fn short(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().take(TEXT_MAX).collect()
}
