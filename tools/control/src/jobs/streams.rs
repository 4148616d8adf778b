//! The streams of a job between its ranks and its client: output with back-pressure, standard
//! input with back-pressure the other way.
//!
//! A batch job has no client: its output goes to a file ([`super::kept`]), its input comes from
//! one.
//!
//! Key types: [`Sink`] (runner side) and [`SinkReader`] (client side) of the output;
//! [`Source`] (runner side) and [`SourceWriter`] (client side) of standard input; [`Wakeups`],
//! through which the client sides tell the runner which job can go on. Neighbours: `jobs` owns
//! the runner sides, `api::jobs` the client sides.
//!
//! Invariants: what is queued in a sink or source never exceeds its bound by more than one piece
//! (in a sink, reports aside: one a rank); nothing taken into a sink is dropped while its reader
//! lives; frames leave in the order they came.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use tokio::sync::Notify;

use super::kept::{CallAt, Kept};
use crate::api::types::{Frame, KeptOutput};
use crate::programs::Program;

/// Most bytes of standard input kept for a program that does not read them.
pub const STDIN_BUFFER_BYTES: usize = 256 * 1024;

/// What an item costs beside its bytes: a program that writes single bytes must not take more
/// memory than one that writes lines.
const ITEM_BYTES: usize = 64;

/// Longest piece that small writes of one rank and stream are joined to.
const JOINED_MAX_BYTES: usize = 16 * 1024;

/// Jobs whose streams changed since the runner last looked.
#[derive(Debug, Default)]
pub struct Wakeups {
    jobs: Mutex<BTreeSet<u64>>,
    notify: Notify,
}

impl Wakeups {
    /// Marks `job` and wakes the runner.
    pub fn wake(&self, job: u64) {
        self.jobs.lock().expect("no panic while held").insert(job);
        self.notify.notify_one();
    }

    /// Waits until some job is marked.
    pub async fn wait(&self) {
        self.notify.notified().await;
    }

    /// Takes the marked jobs.
    pub fn take(&self) -> BTreeSet<u64> {
        std::mem::take(&mut *self.jobs.lock().expect("no panic while held"))
    }
}

/// What a client gets from a job.
#[derive(Debug)]
pub enum Item {
    /// Bytes that `rank` wrote to `fd`.
    Output {
        /// The rank.
        rank: u32,
        /// 1 or 2.
        fd: u32,
        /// What it wrote.
        data: Vec<u8>,
        /// The call that brought the last of it; 0: not known.
        call: u64,
    },
    /// Anything else.
    Frame(Frame),
}

#[derive(Debug, Default)]
struct SinkState {
    items: VecDeque<Item>,
    bytes: usize,
    closed: bool,
    reader_gone: bool,
    /// The runner was refused and waits for room.
    blocked: bool,
}

#[derive(Debug)]
struct SinkShared {
    job: u64,
    limit_bytes: usize,
    state: Mutex<SinkState>,
    readable: Notify,
    wakeups: Arc<Wakeups>,
}

impl SinkShared {
    fn lock(&self) -> MutexGuard<'_, SinkState> {
        self.state.lock().expect("no panic while held")
    }
}

/// Runner side of a job's output.
#[derive(Debug, Clone)]
pub struct Sink(To);

/// Where output goes.
#[derive(Debug, Clone)]
enum To {
    Client(Arc<SinkShared>),
    Kept(Arc<Kept>),
}

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// It is queued for the client.
    Yes,
    /// No room now. A wake-up follows when there is, but for output that is kept: see
    /// [`Sink::trouble`].
    Later,
    /// There is no reader any more; the bytes are gone.
    Nobody,
}

impl Sink {
    /// A sink of `job` that holds `limit_bytes` of unread output.
    pub fn new(job: u64, limit_bytes: usize, wakeups: Arc<Wakeups>) -> Self {
        let state = Mutex::default();
        Sink(To::Client(Arc::new(SinkShared {
            job,
            limit_bytes,
            state,
            readable: Notify::new(),
            wakeups,
        })))
    }

    /// A sink that keeps what it is given.
    pub fn kept(kept: Kept) -> Self {
        Sink(To::Kept(Arc::new(kept)))
    }

    /// What it has kept, if it does.
    pub fn sum(&self) -> Option<KeptOutput> {
        match &self.0 {
            To::Client(_) => None,
            To::Kept(kept) => Some(kept.sum()),
        }
    }

    /// Offers output of a call; takes `data` only when the answer is [`Taken::Yes`].
    pub fn output(&self, rank: u32, fd: u32, at: CallAt, data: &[u8]) -> Taken {
        let client = match &self.0 {
            To::Client(client) => client,
            To::Kept(kept) => return kept.output(rank, fd, at, data),
        };
        let mut state = client.lock();
        if state.reader_gone {
            return Taken::Nobody;
        }
        if state.bytes > 0 && state.bytes + data.len() > client.limit_bytes {
            state.blocked = true;
            return Taken::Later;
        }
        state.bytes += data.len();
        match state.items.back_mut() {
            Some(Item::Output {
                rank: last_rank,
                fd: last_fd,
                data: last,
                call,
            }) if (*last_rank, *last_fd) == (rank, fd)
                && last.len() + data.len() <= JOINED_MAX_BYTES =>
            {
                last.extend_from_slice(data);
                *call = at.call;
            }
            _ => {
                state.bytes += ITEM_BYTES;
                let (data, call) = (data.to_vec(), at.call);
                let item = Item::Output {
                    rank,
                    fd,
                    data,
                    call,
                };
                state.items.push_back(item);
            }
        }
        drop(state);
        client.readable.notify_one();
        Taken::Yes
    }

    /// Nobody waits any more for what a rank wrote: it is lost, and counted where output is kept.
    pub fn give_up(&self, bytes: usize) {
        if let To::Kept(kept) = &self.0 {
            kept.give_up(bytes);
        }
    }

    /// Why output cannot be kept at present: the disk, so that nobody tells when it can.
    pub fn trouble(&self) -> Option<String> {
        match &self.0 {
            To::Client(_) => None,
            To::Kept(kept) => kept.trouble(),
        }
    }

    /// Queues a frame that is not output. None is ever dropped while somebody reads: a job has few
    /// but changes of state, of which only the newest is kept, and one report a rank.
    pub fn frame(&self, frame: Frame) {
        let client = match &self.0 {
            To::Client(client) => client,
            To::Kept(kept) => return kept.frame(&frame),
        };
        let mut state = client.lock();
        if state.reader_gone {
            return;
        }
        let is_state = |item: &Item| matches!(item, Item::Frame(Frame::State { .. }));
        let item = Item::Frame(frame);
        if is_state(&item) && state.items.back().is_some_and(is_state) {
            state.items.pop_back();
        }
        state.items.push_back(item);
        drop(state);
        client.readable.notify_one();
    }

    /// Queues the last frame; the reader ends after it.
    pub fn close(&self, last: Frame) {
        let client = match &self.0 {
            To::Client(client) => client,
            To::Kept(kept) => return kept.close(),
        };
        let mut state = client.lock();
        state.items.push_back(Item::Frame(last));
        state.closed = true;
        drop(state);
        client.readable.notify_one();
    }

    /// Whether the client that read this went away.
    pub fn reader_gone(&self) -> bool {
        match &self.0 {
            To::Client(client) => client.lock().reader_gone,
            To::Kept(_) => false,
        }
    }

    /// The client's side, if there is one; to be called once.
    pub fn reader(&self) -> Option<SinkReader> {
        match &self.0 {
            To::Client(client) => Some(SinkReader(client.clone())),
            To::Kept(_) => None,
        }
    }
}

/// Client side of a job's output; dropping it tells the runner that nobody reads any more.
#[derive(Debug)]
pub struct SinkReader(Arc<SinkShared>);

impl SinkReader {
    /// The next item; nothing after the last. Nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> Option<Item> {
        loop {
            if let Some(item) = self.try_next() {
                return Some(item);
            }
            if self.0.lock().closed {
                return self.try_next();
            }
            self.0.readable.notified().await;
        }
    }

    /// The next item, if it is there.
    pub fn try_next(&mut self) -> Option<Item> {
        let mut state = self.0.lock();
        let item = state.items.pop_front()?;
        if let Item::Output { data, .. } = &item {
            state.bytes -= data.len() + ITEM_BYTES;
        }
        // Half empty before the runner goes on: pieces then move in batches.
        if state.blocked && state.bytes <= self.0.limit_bytes / 2 {
            state.blocked = false;
            self.0.wakeups.wake(self.0.job);
        }
        Some(item)
    }
}

impl Drop for SinkReader {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.reader_gone = true;
        state.items.clear();
        state.bytes = 0;
        drop(state);
        self.0.wakeups.wake(self.0.job);
    }
}

#[derive(Debug, Default)]
struct SourceState {
    pieces: VecDeque<Bytes>,
    bytes: usize,
    ended: bool,
    /// A client was to send some.
    expected: bool,
    reader_gone: bool,
    /// The runner found nothing and waits.
    hungry: bool,
}

#[derive(Debug)]
struct SourceShared {
    job: u64,
    state: Mutex<SourceState>,
    writable: Notify,
    wakeups: Arc<Wakeups>,
}

impl SourceShared {
    fn lock(&self) -> MutexGuard<'_, SourceState> {
        self.state.lock().expect("no panic while held")
    }
}

/// Runner side of a job's standard input.
#[derive(Debug)]
pub struct Source(Origin);

/// Where input comes from.
#[derive(Debug)]
enum Origin {
    Client(Arc<SourceShared>),
    /// A file, and how much of it was read.
    File(Program, Mutex<u64>),
}

impl Source {
    /// Standard input of `job`; at its end from the start unless `expected`.
    pub fn new(job: u64, expected: bool, wakeups: Arc<Wakeups>) -> Self {
        let state = Mutex::new(SourceState {
            ended: !expected,
            expected,
            ..SourceState::default()
        });
        Source(Origin::Client(Arc::new(SourceShared {
            job,
            state,
            writable: Notify::new(),
            wakeups,
        })))
    }

    /// Standard input from a file.
    pub fn file(file: Program) -> Self {
        Source(Origin::File(file, Mutex::default()))
    }

    /// Goes on behind so many bytes, which an earlier run of control has given to the program. A
    /// client sends from there on.
    pub fn resume(&self, read_bytes: u64) {
        if let Origin::File(_, offset) = &self.0 {
            *offset.lock().expect("no panic while held") = read_bytes;
        }
    }

    /// Begins again; whether that is possible, since nothing has been or will be sent by a client.
    pub fn rewind(&self) -> bool {
        match &self.0 {
            Origin::Client(client) => {
                let state = client.lock();
                state.ended && !state.expected
            }
            Origin::File(_, offset) => {
                *offset.lock().expect("no panic while held") = 0;
                true
            }
        }
    }

    /// Up to `limit` bytes: some, none at the end of input, or nothing yet (a wake-up follows).
    pub fn read(&self, limit: usize) -> Option<Vec<u8>> {
        let client = match &self.0 {
            Origin::Client(client) => client,
            // It is being read after a start of control; or it is damaged, which ends the job.
            Origin::File(file, _) if file.is_sound() != Some(true) => return None,
            Origin::File(file, offset) => {
                let mut offset = offset.lock().expect("no panic while held");
                // A file that cannot be read any more ends here; the log says so.
                let data = file.read_at(*offset, limit).unwrap_or_else(|error| {
                    tracing::error!("reading the standard input of a job: {error}");
                    Vec::new()
                });
                *offset += data.len() as u64;
                return Some(data);
            }
        };
        let mut state = client.lock();
        if state.pieces.is_empty() && !state.ended {
            state.hungry = true;
            return None;
        }
        let mut taken = Vec::new();
        while taken.len() < limit {
            let Some(piece) = state.pieces.front_mut() else {
                break;
            };
            let part = piece.split_to(piece.len().min(limit - taken.len()));
            if piece.is_empty() {
                state.pieces.pop_front();
            }
            taken.extend_from_slice(&part);
        }
        state.bytes -= taken.len();
        drop(state);
        client.writable.notify_one();
        Some(taken)
    }

    /// The client's side, if there is one; to be called once.
    pub fn writer(&self) -> Option<SourceWriter> {
        match &self.0 {
            Origin::Client(client) => Some(SourceWriter(client.clone())),
            Origin::File(..) => None,
        }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if let Origin::Client(client) = &self.0 {
            client.lock().reader_gone = true;
            client.writable.notify_one();
        }
    }
}

/// Client side of a job's standard input; dropping it ends the input.
#[derive(Debug)]
pub struct SourceWriter(Arc<SourceShared>);

impl SourceWriter {
    /// Queues a piece, waiting for room; says whether the job still reads.
    pub async fn write(&mut self, piece: Bytes) -> bool {
        if piece.is_empty() {
            return true;
        }
        loop {
            {
                let mut state = self.0.lock();
                if state.reader_gone {
                    return false;
                }
                if state.bytes < STDIN_BUFFER_BYTES {
                    state.bytes += piece.len();
                    state.pieces.push_back(piece);
                    if std::mem::take(&mut state.hungry) {
                        self.0.wakeups.wake(self.0.job);
                    }
                    return true;
                }
            }
            self.0.writable.notified().await;
        }
    }
}

impl Drop for SourceWriter {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.ended = true;
        drop(state);
        self.0.wakeups.wake(self.0.job);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::types::JobState;

    #[tokio::test]
    async fn a_full_sink_refuses_until_half_is_read() {
        let wakeups = Arc::new(Wakeups::default());
        let sink = Sink::new(7, 10 + ITEM_BYTES, wakeups.clone());
        let mut reader = sink.reader().unwrap();
        assert_eq!(sink.output(0, 1, CallAt::default(), b"0123456"), Taken::Yes);
        assert_eq!(sink.output(0, 1, CallAt::default(), b"789a"), Taken::Later);
        assert!(wakeups.take().is_empty());
        let Some(Item::Output { data, .. }) = reader.next().await else {
            panic!()
        };
        assert_eq!(data, b"0123456");
        assert_eq!(wakeups.take(), BTreeSet::from([7]));
        assert_eq!(sink.output(0, 1, CallAt::default(), b"789a"), Taken::Yes);
        sink.close(Frame::Ping {});
        assert!(matches!(reader.next().await, Some(Item::Output { .. })));
        assert!(matches!(
            reader.next().await,
            Some(Item::Frame(Frame::Ping {}))
        ));
        assert!(reader.next().await.is_none());
    }

    #[tokio::test]
    async fn small_writes_are_joined_and_reports_are_kept() {
        let sink = Sink::new(1, 4096, Arc::default());
        let mut reader = sink.reader().unwrap();
        let mut taken = 0;
        while sink.output(0, 1, CallAt::default(), b"x") == Taken::Yes {
            taken += 1;
            sink.frame(Frame::State {
                state: JobState::Running,
                reason: taken.to_string(),
                nodes: String::new(),
            });
        }
        // Frames between them keep these apart; each costs what it takes.
        assert!(taken <= 4096 / ITEM_BYTES, "{taken}");
        sink.frame(Frame::Notice {
            text: "report".to_string(),
        });
        while let Some(item) = reader.try_next() {
            if let Item::Frame(Frame::Notice { text }) = item {
                assert_eq!(text, "report");
                taken = 0;
            }
        }
        assert_eq!(taken, 0, "the report came through a full sink");
        for _ in 0..3000 {
            assert_eq!(sink.output(2, 1, CallAt::default(), b"x"), Taken::Yes);
        }
        let Some(Item::Output { data, .. }) = reader.try_next() else {
            panic!()
        };
        assert_eq!(data.len(), 3000);
        assert!(reader.try_next().is_none());
    }

    #[tokio::test]
    async fn changes_of_state_nobody_reads_do_not_pile_up() {
        let sink = Sink::new(1, 4096, Arc::default());
        let mut reader = sink.reader().unwrap();
        for number in 0..1000 {
            let reason = number.to_string();
            sink.frame(Frame::State {
                state: JobState::Pending,
                reason,
                nodes: String::new(),
            });
        }
        let Some(Item::Frame(Frame::State { reason, .. })) = reader.try_next() else {
            panic!()
        };
        assert_eq!(reason, "999");
        assert!(reader.try_next().is_none());
    }

    #[tokio::test]
    async fn one_piece_larger_than_the_bound_still_passes() {
        let sink = Sink::new(1, 4, Arc::default());
        assert_eq!(
            sink.output(0, 1, CallAt::default(), b"0123456789"),
            Taken::Yes
        );
        assert_eq!(sink.output(0, 1, CallAt::default(), b"x"), Taken::Later);
    }

    #[tokio::test]
    async fn a_reader_that_leaves_wakes_the_runner() {
        let wakeups = Arc::new(Wakeups::default());
        let sink = Sink::new(3, 10, wakeups.clone());
        drop(sink.reader().unwrap());
        assert_eq!(wakeups.take(), BTreeSet::from([3]));
        assert!(sink.reader_gone());
        assert_eq!(sink.output(0, 1, CallAt::default(), b"x"), Taken::Nobody);
    }

    #[tokio::test]
    async fn input_is_read_in_pieces_and_ends() {
        let wakeups = Arc::new(Wakeups::default());
        let source = Source::new(9, true, wakeups.clone());
        let mut writer = source.writer().unwrap();
        assert_eq!(source.read(10), None);
        assert!(writer.write(Bytes::from_static(b"hello ")).await);
        assert!(writer.write(Bytes::from_static(b"world")).await);
        assert_eq!(wakeups.take(), BTreeSet::from([9]));
        assert_eq!(source.read(8).unwrap(), b"hello wo");
        drop(writer);
        assert_eq!(source.read(8).unwrap(), b"rld");
        assert_eq!(source.read(8).unwrap(), b"");
    }

    #[tokio::test]
    async fn a_writer_waits_while_nobody_reads() {
        let source = Source::new(9, true, Arc::default());
        let mut writer = source.writer().unwrap();
        assert!(writer.write(Bytes::from(vec![1; STDIN_BUFFER_BYTES])).await);
        let second = tokio::spawn(async move { writer.write(Bytes::from_static(b"x")).await });
        tokio::task::yield_now().await;
        assert!(!second.is_finished());
        assert_eq!(
            source.read(STDIN_BUFFER_BYTES).unwrap().len(),
            STDIN_BUFFER_BYTES
        );
        assert!(second.await.unwrap());
    }

    #[tokio::test]
    async fn no_input_expected_is_the_end_of_input() {
        assert_eq!(Source::new(9, false, Arc::default()).read(8).unwrap(), b"");
    }
}
