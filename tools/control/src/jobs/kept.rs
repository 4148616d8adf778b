//! Output of batch jobs, which no client reads while they run: a file a job in the state directory.
//!
//! Key types: [`Outputs`] (all files), [`Kept`] (what a job writes to), [`KeptReader`] (follows one, also
//! while it is written). Neighbours: `streams` (a sink of a batch job is a [`Kept`]), `api` (readers).
//!
//! A file is a sequence of records: 1 byte kind, 1 byte descriptor, 2 bytes attempt, 4 bytes rank, 4 bytes
//! length (little-endian), then so many bytes. A write of a program is one record with the number of its call,
//! written before the call is answered: so the death of the control node takes nothing from it that the
//! program believes to be written, and a call that was written and comes again is known.
//!
//! Invariants: a file grows to its bound and no further but for a last notice, all of them together to
//! theirs; files of jobs that are not over are not removed; a reader sees whole records only.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::watch;

use super::streams::Item;
use crate::api::types::{Frame, KeptOutput};

/// Bytes before those of a record.
const HEADER_BYTES: usize = 12;

/// Bytes read at a time; longer than any record.
const READ_BYTES: usize = 256 * 1024;

/// Longest record: a fault report is the longest.
const RECORD_MAX: usize = 64 * 1024;

/// What a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A rank wrote; files of earlier versions have these.
    Output = 1,
    /// Something the user should know.
    Notice = 2,
    /// A rank was ended by a fault: the node's name, a zero byte, text.
    Fault = 3,
    /// A rank wrote: 8 bytes number of its call, then the data.
    Call = 4,
}

/// Bytes of the number of a call.
const CALL_BYTES: usize = 8;

/// Which call of a rank brought something.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallAt {
    /// The attempt of the job, as far as it is told apart.
    pub attempt: u16,
    /// Its number, rising within an attempt; 0: not known.
    pub call: u64,
}

/// The last calls of ranks that are in a file.
#[derive(Debug, Default)]
struct Calls {
    attempt: u16,
    last: BTreeMap<u32, u64>,
}

impl Calls {
    /// Whether a call is in the file.
    fn has(&self, rank: u32, at: CallAt) -> bool {
        let last = self.last.get(&rank).copied().unwrap_or(0);
        at.attempt == self.attempt && (1..=last).contains(&at.call)
    }

    fn note(&mut self, rank: u32, at: CallAt) {
        if at.attempt != self.attempt {
            (self.attempt, self.last) = (at.attempt, BTreeMap::new());
        }
        if at.call > 0 {
            self.last.insert(rank, at.call);
        }
    }
}

#[derive(Debug)]
struct Entry {
    bytes: u64,
    /// The job is not over.
    open: bool,
}

#[derive(Debug, Default)]
struct Index {
    files: BTreeMap<u64, Entry>,
    total: u64,
}

#[derive(Debug)]
struct Shared {
    dir: PathBuf,
    job_max: u64,
    total_max: u64,
    index: Mutex<Index>,
    /// Some file grew, or some job is over.
    changed: watch::Sender<()>,
}

/// The files. Clones share them.
#[derive(Debug, Clone)]
pub struct Outputs(Arc<Shared>);

impl Outputs {
    /// The files in `dir`, at most `job_max` bytes each and `total_max` in all.
    ///
    /// # Errors
    /// What the system said.
    pub fn open(dir: &Path, job_max: u64, total_max: u64) -> io::Result<Self> {
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(dir)?;
        let mut index = Index::default();
        for entry in std::fs::read_dir(dir)?.flatten() {
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(".out"));
            let Some(job) = number.and_then(|number| number.parse().ok()) else {
                continue;
            };
            let bytes = entry.metadata()?.len();
            index.total += bytes;
            index.files.insert(job, Entry { bytes, open: false });
        }
        Ok(Outputs(Arc::new(Shared {
            dir: dir.to_path_buf(),
            job_max,
            total_max,
            index: Mutex::new(index),
            changed: watch::Sender::new(()),
        })))
    }

    /// What a new job writes to. A file that an earlier job with its number has left goes: there was a store
    /// that counted the jobs, and it is gone.
    pub fn begin(&self, job: u64) -> Kept {
        drop(std::fs::remove_file(self.path(job)));
        self.kept(job, None)
    }

    /// What a job of an earlier run of control writes to, behind what it has written.
    pub fn go_on(&self, job: u64) -> Kept {
        match self.reopen(job) {
            Ok(found) => self.kept(job, Some(found)),
            Err(_) => self.kept(job, None),
        }
    }

    /// The highest number of a job of which there is a file, or 0.
    pub fn highest(&self) -> u64 {
        let index = self.index();
        index.files.last_key_value().map_or(0, |(job, _)| *job)
    }

    /// Bytes kept of a job, if there is a file.
    pub fn bytes(&self, job: u64) -> Option<u64> {
        self.index().files.get(&job).map(|entry| entry.bytes)
    }

    fn kept(&self, job: u64, found: Option<Found>) -> Kept {
        let (file, bytes, written, calls) = match found {
            Some(found) => (Some(found.file), found.bytes, found.written, found.calls),
            None => (None, 0, 0, Calls::default()),
        };
        let mut index = self.index();
        let before = index.files.insert(job, Entry { bytes, open: true });
        index.total = index.total + bytes - before.map_or(0, |before| before.bytes);
        drop(index);
        Kept {
            outputs: self.clone(),
            job,
            state: Mutex::new(State {
                file,
                bytes,
                written,
                calls,
                dropped: 0,
                told: false,
            }),
        }
    }

    /// A reader of a job's output from its beginning; none where nothing is kept of it.
    pub fn reader(&self, job: u64) -> Option<KeptReader> {
        let changed = self.0.changed.subscribe();
        self.index().files.contains_key(&job).then(|| KeptReader {
            outputs: self.clone(),
            job,
            file: None,
            offset: 0,
            skip: 0,
            items: VecDeque::new(),
            changed,
        })
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.0.index.lock().expect("no panic while held")
    }

    fn path(&self, job: u64) -> PathBuf {
        self.0.dir.join(format!("{job}.out"))
    }

    /// The file of a job as an earlier run of control left it, without a record that is not whole.
    fn reopen(&self, job: u64) -> io::Result<Found> {
        let mut options = OpenOptions::new();
        let file = options.read(true).append(true).open(self.path(job))?;
        let length = file.metadata()?.len();
        let (mut end, mut written) = (0, 0);
        let mut calls = Calls::default();
        let mut reader = BufReader::with_capacity(READ_BYTES, &file);
        loop {
            let mut header = [0; HEADER_BYTES];
            if reader.read_exact(&mut header).is_err() {
                break;
            }
            let data = length_of(&header);
            let after = end + (HEADER_BYTES + data) as u64;
            if after > length {
                break;
            }
            let mut rest = data;
            if header[0] == Kind::Call as u8 && data >= CALL_BYTES {
                let mut call = [0; CALL_BYTES];
                reader.read_exact(&mut call)?;
                rest -= CALL_BYTES;
                let attempt = u16::from_le_bytes([header[2], header[3]]);
                let call = u64::from_le_bytes(call);
                calls.note(rank_of(&header), CallAt { attempt, call });
            }
            if [Kind::Output as u8, Kind::Call as u8].contains(&header[0]) {
                written += rest as u64;
            }
            reader.seek_relative(i64::try_from(rest).unwrap_or(i64::MAX))?;
            end = after;
        }
        file.set_len(end)?;
        Ok(Found {
            file,
            bytes: end,
            written,
            calls,
        })
    }

    /// Whether there is room for so many bytes of a job that is not over; what others wrote that are
    /// goes for it, the lowest numbers first.
    fn make_room(&self, bytes: u64) -> bool {
        let mut index = self.index();
        while index.total + bytes > self.0.total_max {
            let oldest = index.files.iter().find(|(_, entry)| !entry.open);
            let Some(job) = oldest.map(|(job, _)| *job) else {
                return false;
            };
            let gone = index.files.remove(&job).expect("found above");
            index.total -= gone.bytes;
            // What cannot be removed is counted again at the next start.
            drop(std::fs::remove_file(self.path(job)));
        }
        true
    }

    fn grew(&self, job: u64, bytes: u64) {
        let mut index = self.index();
        index.total += bytes;
        if let Some(entry) = index.files.get_mut(&job) {
            entry.bytes += bytes;
        }
        drop(index);
        self.0.changed.send_replace(());
    }

    /// The job is over; a file that was never begun is forgotten.
    fn close(&self, job: u64) {
        let mut index = self.index();
        if let Some(entry) = index.files.get_mut(&job) {
            entry.open = false;
            if entry.bytes == 0 {
                index.files.remove(&job);
            }
        }
        drop(index);
        self.0.changed.send_replace(());
    }

    fn is_open(&self, job: u64) -> bool {
        self.index().files.get(&job).is_some_and(|entry| entry.open)
    }
}

/// What an earlier run of control has left of a job.
struct Found {
    file: File,
    bytes: u64,
    written: u64,
    calls: Calls,
}

#[derive(Debug)]
struct State {
    /// None until something is written.
    file: Option<File>,
    /// Bytes of the file.
    bytes: u64,
    /// Bytes in it that ranks wrote.
    written: u64,
    calls: Calls,
    dropped: u64,
    /// The reader is told that something was dropped.
    told: bool,
}

/// What a batch job writes to. Dropping it closes the file.
#[derive(Debug)]
pub struct Kept {
    outputs: Outputs,
    job: u64,
    state: Mutex<State>,
}

impl Kept {
    /// Keeps what a rank wrote, or counts what is dropped; what is in the file already, by the number of its
    /// call, is not written again.
    pub fn output(&self, rank: u32, fd: u32, at: CallAt, data: &[u8]) {
        let mut state = self.state.lock().expect("no panic while held");
        if state.calls.has(rank, at) {
            return;
        }
        let size = (HEADER_BYTES + data.len()) as u64;
        let fits = state.bytes + size <= self.outputs.0.job_max;
        let fd = u8::try_from(fd).unwrap_or(1);
        let mut numbered = at.call.to_le_bytes().to_vec();
        let written = fits
            && match at.call {
                0 => self.append(&mut state, Kind::Output, rank, (fd, 0), data),
                _ => {
                    numbered.extend(data);
                    self.append(&mut state, Kind::Call, rank, (fd, at.attempt), &numbered)
                }
            };
        state.calls.note(rank, at);
        if written {
            state.written += data.len() as u64;
            return;
        }
        state.dropped += data.len() as u64;
        if !std::mem::replace(&mut state.told, true) {
            let text = match fits {
                false => format!(
                    "what the job writes beyond {} bytes is not kept (jobs.output_max_bytes)",
                    self.outputs.0.job_max
                ),
                true => "the control node cannot keep what the job writes here: its disk or jobs.output_total_bytes is full".to_string(),
            };
            self.append(&mut state, Kind::Notice, 0, (0, 0), text.as_bytes());
        }
    }

    /// Keeps what the user should know.
    pub fn frame(&self, frame: &Frame) {
        let mut state = self.state.lock().expect("no panic while held");
        match frame {
            Frame::Notice { text } => {
                self.append(&mut state, Kind::Notice, 0, (0, 0), text.as_bytes());
            }
            Frame::Fault { rank, node, text } => {
                let data = format!("{node}\0{text}");
                self.append(&mut state, Kind::Fault, *rank, (0, 0), data.as_bytes());
            }
            Frame::State { .. }
            | Frame::Output { .. }
            | Frame::Input { .. }
            | Frame::Ping {}
            | Frame::End { .. } => {}
        }
    }

    /// What is kept so far.
    pub fn sum(&self) -> KeptOutput {
        let state = self.state.lock().expect("no panic while held");
        KeptOutput {
            bytes: state.written,
            dropped_bytes: state.dropped,
        }
    }

    /// Nothing more comes.
    pub fn close(&self) {
        self.state.lock().expect("no panic while held").file = None;
        self.outputs.close(self.job);
    }

    /// Writes a record, or says that it cannot.
    fn append(
        &self,
        state: &mut State,
        kind: Kind,
        rank: u32,
        (fd, attempt): (u8, u16),
        data: &[u8],
    ) -> bool {
        let data = &data[..data.len().min(RECORD_MAX)];
        let mut record = Vec::with_capacity(HEADER_BYTES + data.len());
        record.extend([kind as u8, fd]);
        record.extend(attempt.to_le_bytes());
        record.extend(rank.to_le_bytes());
        record.extend(
            u32::try_from(data.len())
                .expect("bounded above")
                .to_le_bytes(),
        );
        record.extend(data);
        if !self.outputs.make_room(record.len() as u64) {
            return false;
        }
        if state.file.is_none() {
            let mut options = OpenOptions::new();
            let options = options.create(true).append(true).mode(0o600);
            state.file = options.open(self.outputs.path(self.job)).ok();
        }
        let Some(file) = &mut state.file else {
            return false;
        };
        if file.write_all(&record).is_err() {
            // A part of it would hide what follows.
            drop(file.set_len(state.bytes));
            return false;
        }
        state.bytes += record.len() as u64;
        self.outputs.grew(self.job, record.len() as u64);
        true
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.outputs.close(self.job);
    }
}

/// Reads a job's output from the beginning, and follows it until the job is over.
#[derive(Debug)]
pub struct KeptReader {
    outputs: Outputs,
    job: u64,
    file: Option<File>,
    offset: u64,
    /// Items that are left out.
    skip: u64,
    items: VecDeque<Item>,
    changed: watch::Receiver<()>,
}

impl KeptReader {
    /// The next item; nothing after the last, when the job is over. Nothing is lost when the future is
    /// dropped.
    pub async fn next(&mut self) -> Option<Item> {
        loop {
            self.changed.mark_unchanged();
            let open = self.outputs.is_open(self.job);
            if let Some(item) = self.try_next() {
                return Some(item);
            }
            if !open || self.changed.changed().await.is_err() {
                return None;
            }
        }
    }

    /// Leaves out so many items from where it is: somebody has them.
    pub fn skip(&mut self, items: u64) {
        self.skip = items;
    }

    /// The next item, if it is there.
    pub fn try_next(&mut self) -> Option<Item> {
        loop {
            if self.items.is_empty() {
                self.read();
            }
            let item = self.items.pop_front();
            if item.is_none() || self.skip == 0 {
                return item;
            }
            self.skip -= 1;
        }
    }

    fn read(&mut self) {
        if self.file.is_none() {
            self.file = File::open(self.outputs.path(self.job)).ok();
        }
        let Some(file) = &self.file else { return };
        let mut buffer = vec![0; READ_BYTES];
        let Ok(count) = file.read_at(&mut buffer, self.offset) else {
            return;
        };
        let mut rest = &buffer[..count];
        while let Some((header, after)) = rest.split_first_chunk::<HEADER_BYTES>() {
            let length = length_of(header);
            let Some(data) = after.get(..length) else {
                break;
            };
            rest = &after[length..];
            self.offset += (HEADER_BYTES + length) as u64;
            self.items.extend(item(header, data));
        }
    }
}

fn length_of(header: &[u8; HEADER_BYTES]) -> usize {
    u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize
}

fn rank_of(header: &[u8; HEADER_BYTES]) -> u32 {
    u32::from_le_bytes([header[4], header[5], header[6], header[7]])
}

/// A record as an item; nothing for one of a later version.
fn item(header: &[u8; HEADER_BYTES], data: &[u8]) -> Option<Item> {
    let rank = rank_of(header);
    let text = || String::from_utf8_lossy(data).into_owned();
    Some(match header[0] {
        kind if kind == Kind::Output as u8 => Item::Output {
            rank,
            fd: header[1].into(),
            data: data.to_vec(),
            call: 0,
        },
        kind if kind == Kind::Call as u8 => Item::Output {
            rank,
            fd: header[1].into(),
            data: data.get(CALL_BYTES..)?.to_vec(),
            call: 0,
        },
        kind if kind == Kind::Notice as u8 => Item::Frame(Frame::Notice { text: text() }),
        kind if kind == Kind::Fault as u8 => {
            let text = text();
            let (node, text) = text.split_once('\0')?;
            let (node, text) = (node.to_string(), text.to_string());
            Item::Frame(Frame::Fault { rank, node, text })
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_CALL: CallAt = CallAt {
        attempt: 0,
        call: 0,
    };

    fn text(item: Option<Item>) -> String {
        match item {
            Some(Item::Output { rank, fd, data, .. }) => {
                format!("{rank}/{fd} {}", String::from_utf8_lossy(&data))
            }
            Some(Item::Frame(Frame::Notice { text })) => format!("notice {text}"),
            Some(Item::Frame(Frame::Fault { rank, node, text })) => {
                format!("fault {rank} {node} {text}")
            }
            other => panic!("{other:?}"),
        }
    }

    fn all(outputs: &Outputs, job: u64) -> Vec<String> {
        let Some(mut reader) = outputs.reader(job) else {
            return Vec::new();
        };
        std::iter::from_fn(|| reader.try_next().map(|item| text(Some(item)))).collect()
    }

    #[tokio::test]
    async fn a_reader_follows_until_the_job_is_over() {
        let dir = tempfile::tempdir().unwrap();
        let outputs = Outputs::open(dir.path(), 1_000, 10_000).unwrap();
        assert!(outputs.reader(7).is_none());
        let kept = outputs.begin(7);
        let mut reader = outputs.reader(7).unwrap();
        let follow = tokio::spawn(async move {
            let mut seen = Vec::new();
            while let Some(item) = reader.next().await {
                seen.push(text(Some(item)));
            }
            seen
        });
        tokio::task::yield_now().await;
        kept.output(3, 2, NO_CALL, b"two\n");
        tokio::task::yield_now().await;
        kept.frame(&Frame::Fault {
            rank: 1,
            node: "n4".to_string(),
            text: "SIGSEGV".to_string(),
        });
        assert!(!follow.is_finished());
        kept.close();
        assert_eq!(follow.await.unwrap(), ["3/2 two\n", "fault 1 n4 SIGSEGV"]);
        let mut later = outputs.reader(7).unwrap();
        later.skip(1);
        assert_eq!(text(later.try_next()), "fault 1 n4 SIGSEGV");
        assert!(later.try_next().is_none());
        assert_eq!(all(&outputs, 7).len(), 2, "it can be read again");
    }

    #[test]
    fn a_job_goes_on_after_a_restart_behind_its_last_whole_record() {
        let dir = tempfile::tempdir().unwrap();
        let outputs = Outputs::open(dir.path(), 1_000, 10_000).unwrap();
        let kept = outputs.begin(1);
        kept.output(0, 1, NO_CALL, b"one");
        kept.output(0, 1, NO_CALL, b"two");
        drop(kept);
        let path = dir.path().join("1.out");
        let length = std::fs::metadata(&path).unwrap().len();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(length - 1).unwrap();
        let outputs = Outputs::open(dir.path(), 1_000, 10_000).unwrap();
        assert_eq!(all(&outputs, 1), ["0/1 one"], "also while it is torn");
        let kept = outputs.go_on(1);
        kept.output(0, 1, NO_CALL, b"three");
        assert_eq!(all(&outputs, 1), ["0/1 one", "0/1 three"]);
        assert_eq!(kept.sum().bytes, 8, "what the program wrote");
    }

    #[test]
    fn what_is_too_much_is_dropped_counted_and_told_once() {
        let dir = tempfile::tempdir().unwrap();
        let outputs = Outputs::open(dir.path(), 40, 10_000).unwrap();
        let kept = outputs.begin(1);
        for _ in 0..5 {
            kept.output(0, 1, NO_CALL, b"12345678");
        }
        let sum = kept.sum();
        assert_eq!(
            (sum.bytes, sum.dropped_bytes),
            (16, 24),
            "all that was written"
        );
        let seen = all(&outputs, 1);
        assert_eq!(seen[..2], ["0/1 12345678", "0/1 12345678"]);
        assert!(
            seen[2].contains("beyond 40 bytes") && seen.len() == 3,
            "{seen:?}"
        );
    }

    #[test]
    fn what_jobs_wrote_that_are_over_makes_room() {
        let dir = tempfile::tempdir().unwrap();
        let outputs = Outputs::open(dir.path(), 1_000, 300).unwrap();
        for job in 1..=3 {
            outputs.begin(job).output(0, 1, NO_CALL, &[b'x'; 80]);
        }
        let (first, second) = (outputs.begin(8), outputs.begin(9));
        first.output(0, 1, NO_CALL, &[b'x'; 80]);
        assert!(all(&outputs, 1).is_empty(), "the oldest went");
        assert_eq!(all(&outputs, 2).len(), 1);
        assert!(!dir.path().join("1.out").exists());
        second.output(0, 1, NO_CALL, &[b'x'; 180]);
        first.output(0, 1, NO_CALL, &[b'x'; 80]);
        assert_eq!((first.sum().dropped_bytes, all(&outputs, 3).len()), (80, 0));
        assert_eq!(
            all(&outputs, 9).len(),
            1,
            "of jobs that are not over nothing goes"
        );
    }

    #[test]
    fn a_call_that_comes_again_after_a_restart_is_in_the_file_once() {
        let dir = tempfile::tempdir().unwrap();
        let at = |attempt, call| CallAt { attempt, call };
        let outputs = Outputs::open(dir.path(), 1_000, 10_000).unwrap();
        let kept = outputs.begin(1);
        kept.output(0, 1, at(0, 1), b"a");
        kept.output(1, 1, at(0, 7), b"b");
        drop(kept);
        let outputs = Outputs::open(dir.path(), 1_000, 10_000).unwrap();
        let kept = outputs.go_on(1);
        kept.output(0, 1, at(0, 1), b"a");
        kept.output(1, 1, at(0, 7), b"b");
        kept.output(0, 2, at(0, 2), b"c");
        // Another attempt counts its calls anew.
        kept.output(1, 1, at(1, 1), b"d");
        drop(kept);
        let kept = Outputs::open(dir.path(), 1_000, 10_000).unwrap().go_on(1);
        assert_eq!(kept.sum().bytes, 4);
        kept.output(1, 1, at(1, 1), b"d");
        kept.output(0, 1, at(1, 1), b"e");
        assert_eq!(
            all(&outputs, 1),
            ["0/1 a", "1/1 b", "0/2 c", "1/1 d", "0/1 e"]
        );
    }

    #[test]
    fn a_new_job_does_not_go_on_in_a_file_with_its_number() {
        let dir = tempfile::tempdir().unwrap();
        let outputs = Outputs::open(dir.path(), 1_000, 10_000).unwrap();
        outputs.begin(4).output(0, 1, NO_CALL, b"of another job");
        let outputs = Outputs::open(dir.path(), 1_000, 10_000).unwrap();
        assert_eq!(outputs.highest(), 4, "jobs are numbered behind it");
        let kept = outputs.begin(4);
        assert!(all(&outputs, 4).is_empty());
        kept.output(0, 1, NO_CALL, b"new");
        assert_eq!(all(&outputs, 4), ["0/1 new"]);
        assert_eq!(outputs.index().total, 15);
    }
}
