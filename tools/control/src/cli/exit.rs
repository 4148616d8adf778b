//! The exit statuses of `hearth`, in one place: commands use these numbers, `hearth run --help` and the
//! man pages print this table, and docs/operating.md has it (a test compares).
//!
//! Key constant: [`TABLE`].

use crate::client::RequestError;
use crate::paths::FindError;
use crate::{hosted, hostlist};

/// Done.
pub const DONE: u8 = 0;
/// A part of what was asked for was not done.
pub const PARTLY: u8 = 1;
/// The command line makes no sense; clap's own status for that.
pub const USAGE: u8 = 2;
/// A node was lost under the job.
pub const NODE_LOST: u8 = crate::api::types::EXIT_NODE_LOST;
/// The time was up.
pub const TIME_UP: u8 = crate::api::types::EXIT_TIME_LIMIT;
/// Control or the command itself could not do it.
pub const CONTROL: u8 = 125;
/// The program cannot be run.
pub const BAD_PROGRAM: u8 = 126;
/// There is no such program.
pub const NO_PROGRAM: u8 = 127;
/// Cancelled before any rank said how it ended (128 + SIGINT).
pub const CANCELLED: u8 = 130;

/// The status of a command that a signal ended, once it has cleaned up.
pub fn by_signal(number: u8) -> u8 {
    number.saturating_add(128)
}

/// Something on the command line that only the command itself can tell to be wrong.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// The status of a command that failed: that of the command line where a value on it makes no sense, whoever found that
/// out.
pub fn of_error(error: &anyhow::Error) -> u8 {
    let is_usage = |cause: &(dyn std::error::Error + 'static)| {
        let refused = cause.downcast_ref::<RequestError>();
        refused.and_then(RequestError::code) == Some("bad-request")
            || cause.is::<Usage>()
            || cause.is::<hostlist::ParseError>()
            || cause.is::<hosted::BadName>()
            || matches!(cause.downcast_ref(), Some(FindError::BadName(_)))
            || matches!(cause.downcast_ref(), Some(hearth_qemu::Error::Spec(_)))
    };
    match error.chain().any(is_usage) {
        true => USAGE,
        false => CONTROL,
    }
}

/// Status and meaning.
pub const TABLE: &[(u8, &str)] = &[
    (
        DONE,
        "all of it was done; for a job: every rank ended with 0",
    ),
    (
        PARTLY,
        "a part was not done: a node lacks the file, a line of a batch has no answer, one of the jobs is over",
    ),
    (USAGE, "the command line was not understood"),
    (NODE_LOST, "a node was lost under the job"),
    (TIME_UP, "the time limit was reached"),
    (
        CONTROL,
        "it could not be done: no control node, no such nodes, too few warm nodes, queue full, ...",
    ),
    (
        BAD_PROGRAM,
        "the program cannot be run: not a static x86-64 Linux program, ...",
    ),
    (NO_PROGRAM, "there is no such program file"),
    (CANCELLED, "interrupted, or cancelled before it ran"),
];

/// The statuses of a command that waits for a job, for its `--help`.
pub fn of_a_job() -> String {
    let mut text = "Exit status: the highest of the ranks, where a rank ended by signal n counts as 128+n. And:\n"
        .to_string();
    for (status, meaning) in TABLE.iter().filter(|(status, _)| *status >= NODE_LOST) {
        text.push_str(&format!("  {status}  {meaning}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;
    use crate::api::types::ErrorBody;

    #[test]
    fn a_value_that_makes_no_sense_is_a_mistake_of_the_command_line() {
        let refused = |code: &str| {
            let body = ErrorBody {
                code: code.to_string(),
                error: "no".to_string(),
            };
            anyhow::Error::from(RequestError::Refused(body))
        };
        assert_eq!(of_error(&refused("bad-request")), USAGE);
        assert_eq!(of_error(&refused("no-such-nodes")), CONTROL);
        let list = hostlist::parse("nosuch").context("--nodes").unwrap_err();
        assert_eq!(of_error(&list), USAGE);
        assert_eq!(of_error(&Usage("no".to_string()).into()), USAGE);
        assert_eq!(of_error(&anyhow::anyhow!("no")), CONTROL);
    }

    #[test]
    fn the_manual_has_this_table() {
        let manual = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operating.md");
        let manual = std::fs::read_to_string(manual).unwrap();
        for (status, meaning) in TABLE {
            let row = format!("| {status} | {meaning} |");
            assert!(manual.contains(&row), "docs/operating.md lacks {row:?}");
        }
    }

    #[test]
    fn each_status_stands_once_and_in_order() {
        assert!(TABLE.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }
}
