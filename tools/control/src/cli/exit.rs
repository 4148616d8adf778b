//! The exit statuses of `hearth`, in one place: commands use these numbers, `hearth run --help` and
//! the man pages print this table, and docs/reference.md has it (a test compares).
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

/// A failure with a status of its own.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct Failed {
    /// The status.
    pub status: u8,
    /// What failed.
    pub text: String,
}

impl Failed {
    /// A failure with this status.
    pub fn new(status: u8, text: impl ToString) -> Self {
        let text = text.to_string();
        Failed { status, text }
    }

    /// The command line makes no sense.
    pub fn usage(text: impl ToString) -> Self {
        Failed::new(USAGE, text)
    }
}

/// The word of a refusal by the control node, where an error is one.
fn code_of(error: &anyhow::Error) -> Option<&str> {
    let mut refused = error.chain().filter_map(|cause| cause.downcast_ref());
    refused.find_map(RequestError::code)
}

/// An error as an object of JSON on one line, for commands with `--json`.
pub fn json_of(error: &anyhow::Error) -> String {
    let status = of_error(error);
    let code = code_of(error).unwrap_or(code_of_status(status));
    json(&format!("{error:#}"), status, code)
}

/// As [`json_of`], for a command line that was not understood: clap's text without the usage.
pub fn json_of_usage(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let text = text.split("\n\nUsage:").next().unwrap_or(text);
    let words: Vec<&str> = text.split_whitespace().collect();
    json(&words.join(" "), USAGE, code_of_status(USAGE))
}

/// The word of an error that the command itself found.
fn code_of_status(status: u8) -> &'static str {
    match status {
        USAGE => "usage",
        BAD_PROGRAM => "bad-program",
        NO_PROGRAM => "no-such-program",
        _ => "failed",
    }
}

fn json(text: &str, status: u8, code: &str) -> String {
    let object = serde_json::json!({ "error": text, "status": status, "code": code });
    crate::output::plain_json(&object.to_string()) + "\n"
}

/// The status of a command that failed: that of the command line where a value on it makes no
/// sense, whoever found that out.
pub fn of_error(error: &anyhow::Error) -> u8 {
    let own = error
        .chain()
        .find_map(|cause| cause.downcast_ref::<Failed>());
    if let Some(failed) = own {
        return failed.status;
    }
    if code_of(error) == Some("bad-program") {
        return BAD_PROGRAM;
    }
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
        assert_eq!(of_error(&refused("bad-program")), BAD_PROGRAM);
        let missing = Failed::new(NO_PROGRAM, "no").into();
        assert_eq!(of_error(&missing), NO_PROGRAM);
        let list = hostlist::parse("nosuch").context("--nodes").unwrap_err();
        assert_eq!(of_error(&list), USAGE);
        assert_eq!(of_error(&Usage("no".to_string()).into()), USAGE);
        assert_eq!(of_error(&anyhow::anyhow!("no")), CONTROL);
    }

    #[test]
    fn an_error_is_one_line_of_json() {
        let read = |line: String| -> serde_json::Value {
            assert_eq!(line.matches('\n').count(), 1, "{line}");
            serde_json::from_str(&line).unwrap()
        };
        let body = ErrorBody {
            code: "no-such-nodes".to_string(),
            error: "no\nnode \u{1b}".to_string(),
        };
        let refused = anyhow::Error::from(RequestError::Refused(body)).context("asked");
        let wanted = serde_json::json!({
            "error": "asked: no\nnode \u{1b}", "status": CONTROL, "code": "no-such-nodes",
        });
        assert_eq!(read(json_of(&refused)), wanted);
        let other = read(json_of(&Usage("no".to_string()).into()));
        assert_eq!(
            other,
            serde_json::json!({ "error": "no", "status": USAGE, "code": "usage" })
        );
        let clap = "error: unexpected argument '--x' found\n\n  tip: y\n\nUsage: hearth nodes\n";
        let text = "unexpected argument '--x' found tip: y";
        let wanted = serde_json::json!({ "error": text, "status": USAGE, "code": "usage" });
        assert_eq!(read(json_of_usage(clap)), wanted);
        let missing = Failed::new(NO_PROGRAM, "no").into();
        assert_eq!(read(json_of(&missing))["code"], "no-such-program");
    }

    #[test]
    fn the_manual_has_this_table() {
        let manual = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference.md");
        let manual = std::fs::read_to_string(manual).unwrap();
        for (status, meaning) in TABLE {
            let row = format!("| {status} | {meaning} |");
            assert!(manual.contains(&row), "docs/reference.md lacks {row:?}");
        }
    }

    #[test]
    fn each_status_stands_once_and_in_order() {
        assert!(TABLE.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }
}
