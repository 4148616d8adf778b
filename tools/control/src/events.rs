//! The event log: what happened to nodes and jobs, for `hearth events`.
//!
//! Key types: [`Event`] (one line), [`EventLog`] (a bounded ring in memory and an append-only file
//! of one JSON object a line for log collectors, renamed away at its bound). Neighbours: `serve`
//! and `jobs` write, `ledger` keeps events in the store, `api` reads.
//!
//! Invariant: a disk that is full or gone never stops control: the event stays in the ring, a
//! warning is logged once until writing works again, and lost lines are counted.

use std::collections::VecDeque;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::clock;

/// How much an event matters.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Expected.
    Info,
    /// Somebody may want to look.
    Warning,
    /// Something broke.
    Error,
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Event {
    /// Number of the event over the life of the store, from 1.
    pub seq: u64,
    /// Microseconds since 1970.
    pub time_unix_us: u64,
    /// How much it matters.
    pub severity: Severity,
    /// What happened, as a stable word: `node-joined`, `job-started`, ...
    pub kind: String,
    /// The node concerned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The job concerned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<u64>,
    /// The MAC concerned, where no node number is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// One or more lines for people.
    pub text: String,
}

impl Event {
    /// An event of now; the log numbers it.
    pub fn new(severity: Severity, kind: &str, text: impl Into<String>) -> Self {
        Event {
            seq: 0,
            time_unix_us: clock::unix_us(),
            severity,
            kind: kind.to_string(),
            node: None,
            job: None,
            mac: None,
            text: text.into(),
        }
    }

    /// Concerning node `node`.
    pub fn node(mut self, node: u32) -> Self {
        self.node = Some(crate::hostlist::name(node));
        self
    }

    /// Concerning job `job`.
    pub fn job(mut self, job: u64) -> Self {
        self.job = Some(job);
        self
    }

    /// Concerning the machine `mac`.
    pub fn mac(mut self, mac: [u8; 6]) -> Self {
        self.mac = Some(mac_text(mac));
        self
    }
}

/// `52:54:00:07:00:01`.
pub fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// The ring and the file.
#[derive(Debug)]
pub struct EventLog {
    ring: VecDeque<Event>,
    ring_max: usize,
    next_seq: u64,
    /// Number of the newest event, for who must not wait for what has the log.
    newest: Arc<AtomicU64>,
    /// Events that nobody has written to the store.
    unstored: Vec<Event>,
    path: PathBuf,
    file: Option<std::fs::File>,
    file_bytes: u64,
    file_max_bytes: u64,
    lost_lines: u64,
}

impl EventLog {
    /// Opens the log at `path` for appending, with a ring of `ring_max` events and a file of
    /// `file_max_bytes`.
    pub fn open(path: &Path, ring_max: usize, file_max_bytes: u64) -> Self {
        let mut log = EventLog {
            ring: VecDeque::new(),
            ring_max: ring_max.max(1),
            next_seq: 1,
            newest: Arc::default(),
            unstored: Vec::new(),
            path: path.to_path_buf(),
            file: None,
            file_bytes: 0,
            file_max_bytes,
            lost_lines: 0,
        };
        if let Err(error) = log.reopen() {
            tracing::warn!(
                "events are kept in memory only: {}: {error}",
                path.display()
            );
        }
        log
    }

    /// Goes on after the events of earlier runs, of which `events` are the newest, with the number
    /// `next_seq`.
    pub fn resume(&mut self, events: Vec<Event>, next_seq: u64) {
        self.next_seq = next_seq;
        self.newest
            .store(next_seq.saturating_sub(1), Ordering::Relaxed);
        let surplus = events.len().saturating_sub(self.ring_max);
        self.ring.extend(events.into_iter().skip(surplus));
    }

    /// Events since the last call, to be written to the store.
    pub fn take_unstored(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.unstored)
    }

    /// Numbers and keeps an event.
    pub fn push(&mut self, mut event: Event) {
        event.seq = self.next_seq;
        self.next_seq += 1;
        self.newest.store(event.seq, Ordering::Relaxed);
        event.text = crate::output::plain(&event.text);
        self.write(&event);
        match event.severity {
            Severity::Info => tracing::info!(kind = event.kind, "{}", event.text),
            Severity::Warning => tracing::warn!(kind = event.kind, "{}", event.text),
            Severity::Error => tracing::error!(kind = event.kind, "{}", event.text),
        }
        if self.ring.len() == self.ring_max {
            self.ring.pop_front();
        }
        self.unstored.push(event.clone());
        self.ring.push_back(event);
    }

    /// Number of the newest event, as it is at any time; 0: there was none.
    pub fn newest(&self) -> Arc<AtomicU64> {
        self.newest.clone()
    }

    /// Number of the oldest event in memory.
    pub fn oldest_seq(&self) -> u64 {
        self.ring.front().map_or(self.next_seq, |event| event.seq)
    }

    /// Events after number `after`, oldest first.
    pub fn since(&self, after: u64) -> impl Iterator<Item = &Event> {
        self.ring.iter().filter(move |event| event.seq > after)
    }

    /// Lines that could not be written to the file.
    pub fn lost_lines(&self) -> u64 {
        self.lost_lines
    }

    fn reopen(&mut self) -> std::io::Result<()> {
        use std::os::unix::fs::OpenOptionsExt;
        let file = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&self.path)?;
        self.file_bytes = file.metadata()?.len();
        self.file = Some(file);
        Ok(())
    }

    /// Begins a new file when the present one is at its bound; the one before it goes.
    fn rotate(&mut self) {
        if self.file_bytes < self.file_max_bytes {
            return;
        }
        self.file = None;
        let mut old = self.path.clone().into_os_string();
        old.push(".1");
        if let Err(error) = std::fs::rename(&self.path, old) {
            tracing::warn!("cannot rename {}: {error}", self.path.display());
        }
    }

    fn write(&mut self, event: &Event) {
        let mut line = serde_json::to_vec(event).expect("an event is plain data");
        line.push(b'\n');
        self.rotate();
        if self.file.is_none() && self.reopen().is_err() {
            self.lost_lines += 1;
            return;
        }
        let Some(file) = &mut self.file else { return };
        // One write call a line: a full disk then cuts at most the last line.
        self.file_bytes += line.len() as u64;
        if let Err(error) = file.write_all(&line) {
            if self.lost_lines == 0 {
                tracing::warn!(
                    "cannot write {}: {error}; keeping events in memory",
                    self.path.display()
                );
            }
            self.lost_lines += 1;
            self.file = None;
        } else if self.lost_lines > 0 {
            tracing::info!(
                "{} is written again after {} lost lines",
                self.path.display(),
                self.lost_lines
            );
            self.lost_lines = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_is_bounded_and_the_file_keeps_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        let mut log = EventLog::open(&path, 3, 1_000_000);
        for number in 0..5 {
            log.push(Event::new(Severity::Info, "test", format!("{number}")).node(number));
        }
        let kept: Vec<u64> = log.since(0).map(|event| event.seq).collect();
        assert_eq!(kept, [3, 4, 5]);
        assert_eq!(log.since(4).count(), 1);
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<Event> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines.len(), 5);
        assert_eq!(lines[4].node.as_deref(), Some("n4"));
    }

    #[test]
    fn numbers_go_on_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        let mut log = EventLog::open(&path, 3, 1_000_000);
        for number in 0..5 {
            log.push(Event::new(Severity::Info, "test", format!("{number}")));
        }
        let stored = log.take_unstored();
        assert_eq!((stored.len(), log.take_unstored().len()), (5, 0));
        let mut log = EventLog::open(&path, 3, 1_000_000);
        log.resume(stored, 6);
        assert_eq!(log.oldest_seq(), 3);
        log.push(Event::new(Severity::Info, "test", "new"));
        let kept: Vec<u64> = log.since(0).map(|event| event.seq).collect();
        assert_eq!((kept, log.take_unstored().len()), (vec![4, 5, 6], 1));
    }

    #[test]
    fn texts_are_kept_without_control_characters() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = EventLog::open(&dir.path().join("events.jsonl"), 3, 1_000);
        log.push(Event::new(
            Severity::Info,
            "test",
            "file \x1b]0;title\x07 asked for",
        ));
        assert_eq!(
            log.since(0).next().unwrap().text,
            "file \u{fffd}]0;title\u{fffd} asked for"
        );
    }

    #[test]
    fn the_file_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        let mut log = EventLog::open(&path, 3, 1_000);
        for number in 0..100 {
            log.push(Event::new(Severity::Info, "test", format!("{number}")));
        }
        assert!(std::fs::metadata(&path).unwrap().len() < 1_200);
        let old = dir.path().join("events.jsonl.1");
        assert!(std::fs::metadata(&old).unwrap().len() < 1_200);
        let text = std::fs::read_to_string(old).unwrap() + &std::fs::read_to_string(&path).unwrap();
        let last: Event = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        assert_eq!((last.seq, log.lost_lines()), (100, 0));
    }

    #[test]
    fn a_full_disk_costs_lines_not_the_log() {
        // /dev/full answers every write with ENOSPC.
        let mut log = EventLog::open(Path::new("/dev/full"), 8, 1_000_000);
        log.push(Event::new(Severity::Warning, "test", "one"));
        log.push(Event::new(Severity::Warning, "test", "two"));
        assert_eq!(log.lost_lines(), 2);
        assert_eq!(log.since(0).count(), 2);
    }
}
