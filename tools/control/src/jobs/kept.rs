//! Output of batch jobs, which no client reads while they run: a file a job in the state directory.
//!
//! Key types: [`Outputs`] (all files), [`Kept`] (what a job writes to), [`KeptReader`] (follows
//! one, also while it is written); [`files`] writes those that users asked for. Neighbours:
//! `streams` (a sink of a batch job is a [`Kept`]), `api` (readers).
//!
//! A file is a sequence of records: 1 byte kind, 1 byte descriptor, 2 bytes attempt, 4 bytes rank,
//! 4 bytes length (little-endian), then so many bytes. A write of a program is one record with the
//! number of its call, written before the call is answered: so the death of the control node takes
//! nothing from it that the program believes to be written, and a call that was written and comes
//! again is known.
//!
//! While the disk is full, or fails, calls are not answered and so the program waits, as for a
//! client that does not read. What is over a bound is dropped, and how much that is stands in the
//! file itself.
//!
//! Invariants: a file grows to its bound and no further but for a last notice and the count of what
//! was dropped, all of them together to theirs; files of jobs that are not over are not removed; a
//! reader sees whole records only; a file of an earlier run is written behind what was read of it,
//! and never before it could be read.

pub mod files;

use std::collections::{BTreeMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Read, Seek};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::watch;

use super::streams::{Item, Taken};
use crate::api::types::{Frame, KeptOutput};
use crate::principal::Access;

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
    /// Bytes that ranks wrote beyond a bound, so far: 8 bytes, written again in their place. One a
    /// file.
    Dropped = 5,
}

/// Bytes of the number of a call.
const CALL_BYTES: usize = 8;

/// Bytes of the count of what was dropped.
const COUNT_BYTES: usize = 8;

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
    /// Files of their users that jobs are written to as well, by job. Locked before the index.
    orders: Mutex<BTreeMap<u64, files::Order>>,
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
            orders: Mutex::default(),
            changed: watch::Sender::new(()),
        })))
    }

    /// What a new job writes to. A file that an earlier job with its number has left goes: there
    /// was a store that counted the jobs, and it is gone.
    pub fn begin(&self, job: u64) -> Kept {
        drop(std::fs::remove_file(self.path(job)));
        self.kept(job, Place::New)
    }

    /// What a job of an earlier run of control writes to, behind what it has written.
    pub fn go_on(&self, job: u64) -> Kept {
        let kept = self.kept(job, Place::Unread);
        // What cannot be read now is read before anything is written.
        drop(kept.find(&mut kept.lock()));
        kept
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

    fn kept(&self, job: u64, place: Place) -> Kept {
        let mut index = self.index();
        let before = match (&place, index.files.remove(&job)) {
            (_, None) => 0,
            (Place::New, Some(gone)) => {
                index.total -= gone.bytes;
                0
            }
            (_, Some(found)) => found.bytes,
        };
        let (bytes, open) = (before, true);
        index.files.insert(job, Entry { bytes, open });
        drop(index);
        Kept {
            outputs: self.clone(),
            job,
            state: Mutex::new(State {
                place,
                bytes: 0,
                written: 0,
                calls: Calls::default(),
                dropped: 0,
                count_at: None,
                told: false,
                trouble: None,
            }),
        }
    }

    /// A reader of a job's output from its beginning, for somebody who may read it; none where
    /// nothing is kept of it.
    pub fn reader(&self, access: &Access) -> Option<KeptReader> {
        self.follow(access.job())
    }

    /// The same for the control node itself.
    pub(super) fn follow(&self, job: u64) -> Option<KeptReader> {
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
        let file = options.read(true).write(true).open(self.path(job))?;
        let length = file.metadata()?.len();
        let records = Records::read(&file, length)?;
        file.set_len(records.end)?;
        Ok(Found { file, records })
    }

    /// Whether there is room for so many bytes of a job that is not over; what others wrote that
    /// are goes for it, the lowest numbers first.
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

    /// So long is the file of a job, as its reading has shown.
    fn found(&self, job: u64, bytes: u64) {
        let mut index = self.index();
        let Some(entry) = index.files.get_mut(&job) else {
            return;
        };
        let before = std::mem::replace(&mut entry.bytes, bytes);
        index.total = index.total - before + bytes;
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
    records: Records,
}

/// What the records of a file say.
#[derive(Debug, Default)]
struct Records {
    /// Bytes of those that are whole.
    end: u64,
    /// Bytes in them that ranks wrote.
    written: u64,
    calls: Calls,
    dropped: u64,
    count_at: Option<u64>,
}

impl Records {
    /// Reads a file of `length` bytes, up to its end or to a record that is not whole. What cannot
    /// be read is an error and not the end.
    fn read(file: impl Read + Seek, length: u64) -> io::Result<Self> {
        let mut records = Records::default();
        let mut reader = BufReader::with_capacity(READ_BYTES, file);
        while let Some((header, data)) = next_header(&mut reader, records.end, length)? {
            let mut rest = data;
            if header[0] == Kind::Call as u8 && data >= CALL_BYTES {
                let mut call = [0; CALL_BYTES];
                reader.read_exact(&mut call)?;
                rest -= CALL_BYTES;
                let attempt = u16::from_le_bytes([header[2], header[3]]);
                let call = u64::from_le_bytes(call);
                let at = CallAt { attempt, call };
                records.calls.note(rank_of(&header), at);
            }
            if header[0] == Kind::Dropped as u8 && data == COUNT_BYTES {
                let mut count = [0; COUNT_BYTES];
                reader.read_exact(&mut count)?;
                rest = 0;
                records.count_at = Some(records.end + HEADER_BYTES as u64);
                records.dropped = u64::from_le_bytes(count);
            }
            records.written += written_in(&header, data);
            reader.seek_relative(i64::try_from(rest).unwrap_or(i64::MAX))?;
            records.end += (HEADER_BYTES + data) as u64;
        }
        Ok(records)
    }
}

/// Where a job's output goes.
#[derive(Debug)]
enum Place {
    /// Nothing has been written, and there is no file.
    New,
    /// An earlier run of control may have left a file, which has not been read.
    Unread,
    /// The file.
    Open(File),
    /// The job is over.
    Closed,
}

#[derive(Debug)]
struct State {
    place: Place,
    /// Bytes of the file.
    bytes: u64,
    /// Bytes in it that ranks wrote.
    written: u64,
    calls: Calls,
    dropped: u64,
    /// Where in the file it stands how much was dropped.
    count_at: Option<u64>,
    /// The reader is told that something was dropped.
    told: bool,
    /// Why nothing can be written at present.
    trouble: Option<String>,
}

/// What became of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Appended {
    Yes,
    /// The bound of all files is reached.
    NoRoom,
}

/// What a batch job writes to. Dropping it closes the file.
#[derive(Debug)]
pub struct Kept {
    outputs: Outputs,
    job: u64,
    state: Mutex<State>,
}

impl Kept {
    /// Keeps what a rank wrote, or drops and counts what is over a bound; what is in the file
    /// already, by the number of its call, is not written again. [`Taken::Later`]: the disk takes
    /// neither now.
    pub fn output(&self, rank: u32, fd: u32, at: CallAt, data: &[u8]) -> Taken {
        let mut state = self.lock();
        let done = self.keep_or_drop(&mut state, (rank, fd), at, data);
        state.trouble = done.as_ref().err().map(ToString::to_string);
        match done {
            Ok(()) => Taken::Yes,
            Err(_) => Taken::Later,
        }
    }

    fn keep_or_drop(
        &self,
        state: &mut State,
        (rank, fd): (u32, u32),
        at: CallAt,
        data: &[u8],
    ) -> io::Result<()> {
        self.find(state)?;
        if state.calls.has(rank, at) {
            return Ok(());
        }
        let (kind, attempt, number) = match at.call {
            0 => (Kind::Output, 0, None),
            call => (Kind::Call, at.attempt, Some(call.to_le_bytes())),
        };
        let of = (u8::try_from(fd).unwrap_or(1), attempt);
        let mut record: Vec<u8> = number.into_iter().flatten().collect();
        record.extend(data);
        let size = (HEADER_BYTES + data.len()) as u64;
        let fits = state.bytes + size <= self.outputs.0.job_max;
        if fits && self.append(state, kind, rank, of, &record)? == Appended::Yes {
            state.written += data.len() as u64;
        } else {
            self.tell_dropped(state, fits)?;
            self.count_dropped(state, data.len())?;
        }
        state.calls.note(rank, at);
        Ok(())
    }

    /// Tells the reader, once, that something is not here; `fits`: for want of room in all files
    /// together.
    fn tell_dropped(&self, state: &mut State, fits: bool) -> io::Result<()> {
        if state.told {
            return Ok(());
        }
        let text = match fits {
            false => format!(
                "what the job writes beyond {} bytes is not kept (jobs.output_max_bytes)",
                self.outputs.0.job_max
            ),
            true => "the control node cannot keep what the job writes here: jobs.output_total_bytes is full".to_string(),
        };
        self.append(state, Kind::Notice, 0, (0, 0), text.as_bytes())?;
        state.told = true;
        Ok(())
    }

    /// Counts bytes that are dropped, in the file: a later run of control knows of them.
    fn count_dropped(&self, state: &mut State, bytes: usize) -> io::Result<()> {
        let dropped = state.dropped + bytes as u64;
        let count = dropped.to_le_bytes();
        match (state.count_at, &state.place) {
            (Some(at), Place::Open(file)) => file.write_all_at(&count, at)?,
            _ => {
                let at = state.bytes + HEADER_BYTES as u64;
                self.append_over(state, Kind::Dropped, 0, (0, 0), &count)?;
                state.count_at = Some(at);
            }
        }
        state.dropped = dropped;
        Ok(())
    }

    /// What a rank of a job that is being ended wrote is not kept, since that takes too long.
    pub fn give_up(&self, bytes: usize) {
        let mut state = self.lock();
        if self.count_dropped(&mut state, bytes).is_err() {
            // The job's record has it, once that can be written.
            state.dropped += bytes as u64;
        }
    }

    /// Why nothing can be written at present.
    pub fn trouble(&self) -> Option<String> {
        self.lock().trouble.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while held")
    }

    /// Finds what an earlier run of control has left.
    fn find(&self, state: &mut State) -> io::Result<()> {
        if !matches!(state.place, Place::Unread) {
            return Ok(());
        }
        match self.outputs.reopen(self.job) {
            Ok(Found { file, records }) => {
                self.outputs.found(self.job, records.end);
                state.place = Place::Open(file);
                (state.bytes, state.written) = (records.end, records.written);
                (state.dropped, state.count_at) = (records.dropped, records.count_at);
                state.told = records.count_at.is_some();
                state.calls = records.calls;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.outputs.found(self.job, 0);
                state.place = Place::New;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Keeps what the user should know, as far as the disk takes it: it is an event as well.
    pub fn frame(&self, frame: &Frame) {
        let mut state = self.lock();
        if self.find(&mut state).is_err() {
            return;
        }
        let kept = match frame {
            Frame::Notice { text } => {
                self.append(&mut state, Kind::Notice, 0, (0, 0), text.as_bytes())
            }
            Frame::Fault { rank, node, text } => {
                let data = format!("{node}\0{text}");
                self.append(&mut state, Kind::Fault, *rank, (0, 0), data.as_bytes())
            }
            Frame::State { .. }
            | Frame::Output { .. }
            | Frame::Input { .. }
            | Frame::Ping {}
            | Frame::End { .. } => Ok(Appended::Yes),
        };
        if let Err(error) = kept {
            tracing::warn!("job {}: a notice is not in its output: {error}", self.job);
        }
    }

    /// What is kept so far.
    pub fn sum(&self) -> KeptOutput {
        let state = self.lock();
        KeptOutput {
            bytes: state.written,
            dropped_bytes: state.dropped,
        }
    }

    /// Nothing more comes.
    pub fn close(&self) {
        self.lock().place = Place::Closed;
        self.outputs.close(self.job);
    }

    /// Writes a record, unless the files are at their bound.
    fn append(
        &self,
        state: &mut State,
        kind: Kind,
        rank: u32,
        of: (u8, u16),
        data: &[u8],
    ) -> io::Result<Appended> {
        let data = &data[..data.len().min(RECORD_MAX)];
        if !self.outputs.make_room((HEADER_BYTES + data.len()) as u64) {
            return Ok(Appended::NoRoom);
        }
        self.append_over(state, kind, rank, of, data)?;
        Ok(Appended::Yes)
    }

    /// Writes a record, whatever the bounds say.
    fn append_over(
        &self,
        state: &mut State,
        kind: Kind,
        rank: u32,
        (fd, attempt): (u8, u16),
        data: &[u8],
    ) -> io::Result<()> {
        let length = u32::try_from(data.len()).expect("a record is short");
        let mut record = Vec::with_capacity(HEADER_BYTES + data.len());
        record.extend([kind as u8, fd]);
        record.extend(attempt.to_le_bytes());
        record.extend(rank.to_le_bytes());
        record.extend(length.to_le_bytes());
        record.extend(data);
        if matches!(state.place, Place::New) {
            let mut options = OpenOptions::new();
            let options = options.create(true).truncate(true).write(true).mode(0o600);
            state.place = Place::Open(options.open(self.outputs.path(self.job))?);
        }
        let Place::Open(file) = &state.place else {
            return Err(io::Error::other("its file is closed"));
        };
        if let Err(error) = file.write_all_at(&record, state.bytes) {
            // A part of it is written over, and no reader shall see it.
            drop(file.set_len(state.bytes));
            return Err(error);
        }
        state.bytes += record.len() as u64;
        self.outputs.grew(self.job, record.len() as u64);
        Ok(())
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
    /// The next item; nothing after the last, when the job is over. Nothing is lost when the future
    /// is dropped.
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

    /// Leaves out what was written before about the last `most` bytes, in whole records. Gives the
    /// bytes left out.
    pub fn skip_to_last(&mut self, most: u64) -> u64 {
        let Ok(file) = File::open(self.outputs.path(self.job)) else {
            return 0;
        };
        let length = file.metadata().map_or(0, |about| about.len());
        let mut reader = BufReader::with_capacity(READ_BYTES, &file);
        // Where the records begin that may be the last, and how much ranks wrote in them.
        let mut last: VecDeque<(u64, u64)> = VecDeque::new();
        let (mut end, mut weight, mut left_out) = (0, 0, 0);
        // A record without such bytes weighs one: so there are at most `most` of them.
        let weighs = |bytes: u64| bytes.max(1);
        while let Ok(Some((header, data))) = next_header(&mut reader, end, length) {
            let bytes = written_in(&header, data);
            last.push_back((end, bytes));
            weight += weighs(bytes);
            while weight > most && last.len() > 1 {
                let (_, gone) = last.pop_front().expect("there are two");
                weight -= weighs(gone);
                left_out += gone;
            }
            end += (HEADER_BYTES + data) as u64;
            let skipped = reader.seek_relative(i64::try_from(data).unwrap_or(i64::MAX));
            if skipped.is_err() {
                break;
            }
        }
        self.offset = last.front().map_or(end, |(begin, _)| *begin);
        left_out
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

/// Bytes that a rank wrote, in a record with so much data.
fn written_in(header: &[u8; HEADER_BYTES], data: usize) -> u64 {
    let bytes = match header[0] {
        kind if kind == Kind::Output as u8 => data,
        kind if kind == Kind::Call as u8 => data.saturating_sub(CALL_BYTES),
        _ => 0,
    };
    bytes as u64
}

/// The header of the record at `at` and the length of its data; none where the file ends, or holds
/// the record in part.
///
/// # Errors
/// The file cannot be read, which is not its end.
fn next_header(
    reader: &mut impl Read,
    at: u64,
    length: u64,
) -> io::Result<Option<([u8; HEADER_BYTES], usize)>> {
    let mut header = [0; HEADER_BYTES];
    match reader.read_exact(&mut header) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let data = length_of(&header);
    let is_whole = at + (HEADER_BYTES + data) as u64 <= length;
    Ok(is_whole.then_some((header, data)))
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
mod tests;
