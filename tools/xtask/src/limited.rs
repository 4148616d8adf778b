//! Commands under a time limit, whose output is shown while it is read.
//!
//! Key type: [`Finished`]. Neighbours: `test` runs every part through [`run`], `compile` follows
//! cargo by [`watch`].
//!
//! Invariant: a command that does not end is ended, with everything it started, and that is a
//! failure.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::workspace::describe;

/// How often a running command is looked at.
const POLL: Duration = Duration::from_millis(20);
/// Output is read for so long after a command has ended: something it started in the background
/// may hold its output open.
const AFTER_END: Duration = Duration::from_secs(2);

/// A command that ended by itself.
pub struct Finished {
    pub status: ExitStatus,
    /// Standard output and standard error, line by line as they came.
    pub lines: Vec<String>,
}

impl Finished {
    /// An error unless the command succeeded.
    pub fn expect_success(self, name: &str) -> Result<Self> {
        if !self.status.success() {
            bail!("`{name}` failed ({})", self.status);
        }
        Ok(self)
    }
}

/// What happens to the lines of a command besides being kept.
#[derive(Debug, Clone, Copy)]
pub enum Show {
    /// They are shown as they come, each behind this word, which tells them from those of other
    /// commands.
    All(&'static str),
    /// As [`Show::All`], but for lines of which this is true.
    Except(&'static str, fn(&str) -> bool),
    /// Nothing is shown.
    Nothing,
}

/// Shows a line behind the word of who says it.
pub fn say(label: &str, line: &str) {
    // A standard error that is closed is no reason to stop.
    let _ = writeln!(std::io::stderr(), "    {label:<9} {line}");
}

/// Runs a command to its end or to its time limit.
pub fn run(command: &mut Command, limit: Duration, show: Show) -> Result<Finished> {
    watch(command, limit, &mut |line| {
        let Some(line) = line else { return };
        let label = match show {
            Show::All(label) => Some(label),
            Show::Except(label, is_hidden) => (!is_hidden(line)).then_some(label),
            Show::Nothing => None,
        };
        if let Some(label) = label {
            say(label, line);
        }
    })
}

/// As [`run`]; `watcher` is given each line as it comes, and several times a second the news that
/// there is none.
pub fn watch(
    command: &mut Command,
    limit: Duration,
    watcher: &mut dyn FnMut(Option<&str>),
) -> Result<Finished> {
    let name = describe(command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting `{name}`"))?;
    let (sender, receiver) = mpsc::channel();
    if let Some(output) = child.stdout.take() {
        read_lines(output, sender.clone());
    }
    if let Some(output) = child.stderr.take() {
        read_lines(output, sender);
    }
    let deadline = Instant::now() + limit;
    let mut lines = Vec::new();
    let status = loop {
        let received = receiver.recv_timeout(POLL);
        if Instant::now() >= deadline {
            end_with_descendants(&mut child);
            bail!(
                "`{name}` did not end within {} s and was ended",
                limit.as_secs()
            );
        }
        match received {
            Ok(line) => {
                watcher(Some(&line));
                lines.push(line);
                continue;
            }
            Err(mpsc::RecvTimeoutError::Timeout) => watcher(None),
            // Both outputs are closed: what remains is its end.
            Err(mpsc::RecvTimeoutError::Disconnected) => std::thread::sleep(POLL),
        }
        if let Some(status) = child
            .try_wait()
            .with_context(|| format!("waiting for `{name}`"))?
        {
            break status;
        }
    };
    let deadline = Instant::now() + AFTER_END;
    while let Ok(line) = receiver.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
        watcher(Some(&line));
        lines.push(line);
        if Instant::now() >= deadline {
            break;
        }
    }
    Ok(Finished { status, lines })
}

fn read_lines(output: impl Read + Send + 'static, sender: mpsc::Sender<String>) {
    std::thread::spawn(move || {
        let mut reader = BufReader::new(output);
        let mut bytes = Vec::new();
        while reader
            .read_until(b'\n', &mut bytes)
            .is_ok_and(|count| count > 0)
        {
            let line = String::from_utf8_lossy(&bytes)
                .trim_end_matches(['\r', '\n'])
                .to_owned();
            if sender.send(line).is_err() {
                break;
            }
            bytes.clear();
        }
    });
}

/// Kills a command and everything below it.
fn end_with_descendants(child: &mut Child) {
    let parents = parents();
    let mut doomed = vec![child.id()];
    let mut next = 0;
    while let Some(&parent) = doomed.get(next) {
        doomed.extend(
            parents
                .iter()
                .filter(|(_, of)| **of == parent)
                .map(|(pid, _)| *pid),
        );
        next += 1;
    }
    for pid in doomed {
        if let Ok(pid) = i32::try_from(pid) {
            // One that has ended meanwhile needs no signal.
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
    let _ = child.wait();
}

/// The parent of every process of this machine.
fn parents() -> BTreeMap<u32, u32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return BTreeMap::new();
    };
    entries
        .filter_map(|entry| {
            let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            // The name in parentheses may hold anything; state and parent follow it.
            let (_, rest) = stat.rsplit_once(')')?;
            let parent = rest.split_ascii_whitespace().nth(1)?.parse().ok()?;
            Some((pid, parent))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn both_outputs_are_kept_and_the_status_told() {
        let mut command = shell("echo out; echo err >&2; exit 3");
        let finished = run(&mut command, Duration::from_secs(20), Show::Nothing).unwrap();
        assert_eq!(finished.status.code(), Some(3));
        assert!(finished.lines.contains(&"out".to_owned()));
        assert!(finished.lines.contains(&"err".to_owned()));
        assert!(finished.expect_success("x").is_err());
    }

    #[test]
    fn a_command_that_never_stops_talking_is_ended_too() {
        let error = run(&mut shell("yes"), Duration::from_millis(300), Show::Nothing).err();
        assert!(error.unwrap().to_string().contains("was ended"));
    }

    #[test]
    fn a_command_that_does_not_end_is_ended_with_its_children() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("pid");
        let mut command = shell(&format!("sleep 600 & echo $! > {}; wait", file.display()));
        let begun = Instant::now();
        let limit = Duration::from_secs(2);
        let error = run(&mut command, limit, Show::Nothing)
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains("did not end within 2 s"), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(60));
        let pid = fs::read_to_string(&file).unwrap();
        // A killed process takes a moment to go.
        let lives = || {
            let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
            stat.is_ok_and(|stat| !stat.contains(") Z "))
        };
        let deadline = Instant::now() + Duration::from_secs(10);
        while lives() {
            assert!(Instant::now() < deadline, "the child lives");
            std::thread::sleep(POLL);
        }
    }
}
