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
        let Stat { start_ticks, .. } = stat(pid)?;
        Some(Self { pid, start_ticks })
    }

    /// Whether it still runs. A zombie does not: its parent can take its status.
    pub fn is_alive(self) -> bool {
        stat(self.pid).is_some_and(|now| now.start_ticks == self.start_ticks && !now.has_ended())
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

/// What `/proc` says of a process.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    start_ticks: u64,
    /// `Z`: its first thread has ended.
    state: char,
    /// Threads that have not ended, the first one always among them.
    threads: u64,
}

impl Stat {
    /// Whether all of it has ended. Where the first thread is the first to end, the others still
    /// hold its files and sockets, and its parent cannot take its status yet.
    fn has_ended(&self) -> bool {
        self.state == 'Z' && self.threads <= 1
    }
}

fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    parse_stat(&text)
}

/// The command name (field 2) is in parentheses and may hold anything, so fields are counted from
/// the last closing one: state is the next, the number of threads the eighteenth, start time the
/// twentieth.
fn parse_stat(text: &str) -> Option<Stat> {
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let threads = fields.nth(16)?.parse().ok()?;
    let start_ticks = fields.nth(1)?.parse().ok()?;
    Some(Stat {
        start_ticks,
        state,
        threads,
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn odd_command_names_do_not_confuse_the_fields() {
        let text = "7 (a) b) c) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 3 0 4711 1 1";
        let stat = Stat {
            start_ticks: 4711,
            state: 'S',
            threads: 3,
        };
        assert_eq!(parse_stat(text), Some(stat));
        assert_eq!(parse_stat("7 (a"), None);
    }

    #[test]
    fn a_zombie_with_threads_has_not_ended() {
        // As Linux has written it of a process whose first thread had ended and whose second one
        // had not: waiting for it brought nothing.
        let text = "15648 (p) Z 15603 15600 4802 0 -1 4227148 326 0 0 0 0 0 0 0 20 0 2 0 42536 0 0";
        let has_ended = |text: &str| parse_stat(text).unwrap().has_ended();
        assert!(!has_ended(text));
        assert!(has_ended(&text.replace(" 2 0 42536", " 1 0 42536")));
        assert!(!has_ended(&text.replace(" Z ", " S ")));
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
