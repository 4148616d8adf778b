//! What has arrived for the job a node has, until its ranks ask for it.
//!
//! Key type: [`Mailbox`], with an [`Inbox`] for each rank. Neighbours: `agent::node` puts in,
//! `process` takes out by way of `process::services`.
//!
//! Invariant: no bound of its own is needed: what can arrive is what a process asked for, and
//! the endpoint bounds that (8 page requests, 256 calls of a rank).

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

use netstack::ids::{JobId, LocalRank, ProgramId, RequestId};
use netstack::time::Instant;

use crate::process::services::{IoCompletion, PageCompletion};

/// How the control node wants a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cancel {
    /// Signal to report; with `kill_at` the one that a running program gets first.
    pub signal: u8,
    /// The control node does not know the job any more; nothing is to be reported.
    pub orphan: bool,
    /// Until then a running program may end by itself; none: it is ended at once.
    pub kill_at: Option<Instant>,
}

/// What ends a program that has not ended within its grace.
pub const SIGKILL: u8 = 9;

/// The job's side of the endpoint's events.
#[derive(Debug)]
pub struct Mailbox {
    job: JobId,
    program: ProgramId,
    dropped: bool,
    started: bool,
    /// The program has been entered and has not ended.
    entered: bool,
    cancel: Option<Cancel>,
    /// By local rank; at least one.
    ranks: Vec<Inbox>,
    /// Page requests that are under way.
    asked: Vec<Asked>,
    /// Something was put in since [`Self::take_news`].
    news: bool,
}

/// A page request that is under way.
#[derive(Debug)]
struct Asked {
    request: RequestId,
    rank: LocalRank,
    /// Bytes of the program's file that it is for.
    pages: Range<u64>,
}

/// What has arrived for one rank.
#[derive(Debug, Default)]
struct Inbox {
    /// Signals that the program is to get: bit n - 1 is signal n.
    signals: u64,
    pages: VecDeque<PageCompletion>,
    io: VecDeque<IoCompletion>,
}

impl Mailbox {
    /// An empty one for `job`, which runs `program` as so many ranks, at least one.
    pub fn new(job: JobId, program: ProgramId, ranks: u16) -> Self {
        Self {
            job,
            program,
            dropped: false,
            started: false,
            entered: false,
            cancel: None,
            ranks: (0..ranks).map(|_| Inbox::default()).collect(),
            asked: Vec::new(),
            news: false,
        }
    }

    /// How many ranks the node has of the job.
    pub fn ranks(&self) -> u16 {
        self.ranks.len() as u16
    }

    fn of(&mut self, rank: LocalRank) -> &mut Inbox {
        &mut self.ranks[rank.index()]
    }

    /// Whose it is.
    pub fn job(&self) -> JobId {
        self.job
    }

    /// The program that the job runs.
    pub fn program(&self) -> ProgramId {
        self.program
    }

    /// Whether nothing of the program is to be kept after its end.
    pub fn dropped(&self) -> bool {
        self.dropped
    }

    /// Has nothing of the program kept after its end.
    pub fn put_drop(&mut self) {
        self.dropped = true;
    }

    /// A rank has asked for pages, of these bytes of the program's file.
    pub fn note_request(&mut self, rank: LocalRank, request: RequestId, pages: Range<u64>) {
        self.asked.push(Asked {
            request,
            rank,
            pages,
        });
    }

    /// Whether another rank than this one has asked for the page at that offset of the file.
    pub fn is_asked_beside(&self, rank: LocalRank, offset: u64) -> bool {
        let mut others = self.asked.iter().filter(|asked| asked.rank != rank);
        others.any(|asked| asked.pages.contains(&offset))
    }

    /// Forgets the answers to page requests of a rank; whether no other rank waits for any.
    pub fn forget_pages(&mut self, rank: LocalRank) -> bool {
        self.of(rank).pages.clear();
        self.asked.retain(|asked| asked.rank != rank);
        self.asked.is_empty()
    }

    /// Whether the control node has started the job.
    pub fn started(&self) -> bool {
        self.started
    }

    /// How the control node wants the job ended, once it has said so.
    pub fn cancel(&self) -> Option<Cancel> {
        self.cancel
    }

    /// Says whether the program has been entered and has not ended: so long a cancel with a grace
    /// gives it time.
    pub fn set_entered(&mut self, entered: bool) {
        self.entered = entered;
    }

    /// The signal with which the job is to end now.
    pub fn cancelled(&self, now: Instant) -> Option<u8> {
        let cancel = self.cancel?;
        match self.kill_at() {
            Some(at) => (now >= at).then_some(SIGKILL),
            None => Some(cancel.signal),
        }
    }

    /// When a program that runs is ended, if it was given time.
    pub fn kill_at(&self) -> Option<Instant> {
        self.cancel
            .and_then(|cancel| cancel.kill_at)
            .filter(|_| self.entered)
    }

    /// Puts in the start.
    pub fn put_start(&mut self) {
        self.started = true;
        self.news = true;
    }

    /// Puts in a cancel; a later one replaces it. One that gives time brings its signal.
    pub fn put_cancel(&mut self, cancel: Cancel) {
        self.cancel = Some(cancel);
        self.news = true;
        if cancel.kill_at.is_some() {
            self.put_signal(cancel.signal);
        }
    }

    /// Puts in a signal, 1 to 64, for every rank; one that it has not taken yet counts for both.
    pub fn put_signal(&mut self, signal: u8) {
        let bit = signal
            .checked_sub(1)
            .and_then(|bit| 1_u64.checked_shl(bit.into()));
        for rank in &mut self.ranks {
            rank.signals |= bit.unwrap_or(0);
        }
        self.news = true;
    }

    /// The signal with the lowest number that a rank is to get.
    pub fn take_signal(&mut self, rank: LocalRank) -> Option<u8> {
        let signals = &mut self.of(rank).signals;
        let bit = signals.trailing_zeros();
        *signals &= signals.wrapping_sub(1);
        (bit < u64::BITS).then_some(bit as u8 + 1)
    }

    /// Puts in the answer to a page request. One that nobody waits for any more is dropped.
    pub fn put_pages(&mut self, completion: PageCompletion) {
        let mut asked = self.asked.iter();
        let Some(at) = asked.position(|asked| asked.request == completion.request) else {
            return;
        };
        let rank = self.asked.swap_remove(at).rank;
        self.of(rank).pages.push_back(completion);
        self.news = true;
    }

    /// Puts in the answer to a call of a rank.
    pub fn put_io(&mut self, rank: LocalRank, completion: IoCompletion) {
        if let Some(inbox) = self.ranks.get_mut(rank.index()) {
            inbox.io.push_back(completion);
            self.news = true;
        }
    }

    /// The next answer to a page request of a rank.
    pub fn take_pages(&mut self, rank: LocalRank) -> Option<PageCompletion> {
        self.of(rank).pages.pop_front()
    }

    /// The next answer to a call of a rank.
    pub fn take_io(&mut self, rank: LocalRank) -> Option<IoCompletion> {
        self.of(rank).io.pop_front()
    }

    /// Says that what the process may wait for has come from elsewhere.
    pub fn put_news(&mut self) {
        self.news = true;
    }

    /// Whether something was put in since the last call.
    pub fn take_news(&mut self) -> bool {
        core::mem::take(&mut self.news)
    }
}
