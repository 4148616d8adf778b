//! Processes that outlive the program that asks about them.
//!
//! Key type: [`ProcessId`], a pid with its start time. Neighbours: `record`, `supervisor`,
//! `lifecycle`.
//!
//! Invariant: a signal is only sent to a process whose start time is the recorded one, so that a
//! pid used again by a stranger is never hit.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

/// How often a process that should end is looked at.
const POLL: Duration = Duration::from_millis(10);

/// A process: its pid and when it started, in clock ticks since the machine started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    pub pid: u32,
    pub start_ticks: u64,
}

impl ProcessId {
    /// The process that has this pid now; `None` when there is none.
    pub fn of(pid: u32) -> Option<Self> {
        let (start_ticks, _) = stat(pid)?;
        Some(Self { pid, start_ticks })
    }

    /// Whether it still runs. A zombie does not.
    pub fn is_alive(self) -> bool {
        matches!(stat(self.pid), Some((start, state)) if start == self.start_ticks && state != 'Z')
    }

    /// Sends a signal if it still runs; returns whether it was sent.
    pub fn signal(self, signal: Signal) -> io::Result<bool> {
        if !self.is_alive() {
            return Ok(false);
        }
        let Ok(pid) = i32::try_from(self.pid) else {
            return Ok(false);
        };
        match kill(Pid::from_raw(pid), signal) {
            Ok(()) => Ok(true),
            Err(nix::errno::Errno::ESRCH) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Waits until it has ended; returns whether it did within the limit.
    pub fn wait_for_end(self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        while self.is_alive() {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(POLL);
        }
        true
    }
}

/// Start time in clock ticks and state letter of a process.
fn stat(pid: u32) -> Option<(u64, char)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    parse_stat(&text)
}

/// The command name (field 2) is in parentheses and may hold anything, so fields are counted from
/// the last closing one: state is the next, start time the twentieth.
fn parse_stat(text: &str) -> Option<(u64, char)> {
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let start = fields.nth(18)?.parse().ok()?;
    Some((start, state))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn odd_command_names_do_not_confuse_the_fields() {
        let text = "7 (a) b) c) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 1 1";
        assert_eq!(parse_stat(text), Some((4711, 'S')));
        assert_eq!(parse_stat("7 (a"), None);
    }

    #[test]
    fn a_killed_process_is_seen_to_end_and_a_stranger_is_left_alone() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let process = ProcessId::of(child.id()).unwrap();
        assert!(process.is_alive());
        let stranger = ProcessId {
            start_ticks: process.start_ticks + 1,
            ..process
        };
        assert!(!stranger.signal(Signal::SIGKILL).unwrap());
        assert!(!process.wait_for_end(Duration::from_millis(20)));
        assert!(process.signal(Signal::SIGKILL).unwrap());
        assert!(process.wait_for_end(Duration::from_secs(5)));
        child.wait().unwrap();
        assert!(!process.signal(Signal::SIGKILL).unwrap());
    }
}
