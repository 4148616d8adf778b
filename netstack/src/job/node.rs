//! The node's side of job control: one job at a time, retained for, launched, started and cancelled
//! once however often the command arrives.
//!
//! The control node launches a job only where, by all it knows, there is none. So a LAUNCH, and a
//! RETAIN before it, says of the job before it that the exits of its ranks were answered (if all
//! have exited) or that it is an orphan (if not), whatever got lost on the way.
//!
//! A job outlives the control node that launched it: in a new session, and while none is heard, it
//! goes on *adrift*. Its calls and page requests wait, until the control node claims the job, says
//! that it does not know it, or launches another, or until it has been adrift for too long
//! ([`crate::join::Timing::keep_job`]).
//!
//! Invariant: a job id that has ended here is never launched again: the last [`FINISHED`] are
//! remembered, more than the replay window can hold commands of, and no LAUNCH or RETAIN is taken
//! that was sent before one that has been taken.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::ids::{CallId, JobId, LocalRank, ProgramId};
use crate::io::client::Client;
use crate::io::{self, IoOp};
use crate::job::{LaunchRefusal, LaunchSpec, REFUSAL_TEXT_MAX, RefusalCode, StartMode};
use crate::node::{Event, Outbox};
use crate::rng::Rng;
use crate::time::{Instant, Micros};
use crate::wire::job::{ClaimAck, Command, CommandAck, JobAck, JobStatus};
use crate::wire::key::Key;
use crate::wire::window;

/// Ended jobs remembered. Every job took at least one command, so a repetition of a LAUNCH that
/// passes the replay window finds its job here.
const FINISHED: usize = 64;
/// Refusals whose text is kept for a repeated LAUNCH: of 512 bytes each, 2 KB. A node has one job
/// at a time.
const REFUSED: usize = 4;
/// Jobs remembered that ended in earlier sessions, or adrift; a claim of one is answered so.
const ENDED_BEFORE: usize = FINISHED;
/// Answers to commands waiting to be sent; the control node repeats what got none. It has one
/// command under way to a node.
const ACKS: usize = 16;
/// The signal that ends an orphan.
const SIGKILL: u8 = 9;

const _: () = assert!(FINISHED as u64 >= window::WINDOW);

/// The job a node has.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) job: JobId,
    /// Calls by local rank; at least one rank.
    io: Vec<Client>,
    status: JobStatus,
    cancel_signal: u8,
    /// Number of the last SIGNAL that was taken.
    signals: u32,
    start: StartMode,
    /// Its session is over, and no other has claimed it.
    adrift: bool,
    /// When a control node that knows it was heard last.
    pub(crate) heard: Instant,
}

impl Entry {
    /// Its calls and page requests wait for a control node that knows it.
    pub(crate) fn is_adrift(&self) -> bool {
        self.adrift
    }

    /// The calls of one of its ranks.
    pub(crate) fn io(&self, rank: LocalRank) -> Option<&Client> {
        self.io.get(rank.index())
    }

    /// The calls of one of its ranks, to be changed.
    pub(crate) fn io_mut(&mut self, rank: LocalRank) -> Option<&mut Client> {
        self.io.get_mut(rank.index())
    }

    /// When the next call of any rank is to be sent.
    pub(crate) fn io_deadline(&self) -> Option<Instant> {
        self.io.iter().filter_map(Client::deadline).min()
    }

    /// The next call that is due, of any rank, and whether it is a repetition. It counts as sent.
    pub(crate) fn due_call(
        &mut self,
        now: Instant,
        timeout: Micros,
        rng: &mut Rng,
    ) -> Option<(LocalRank, CallId, &IoOp, bool)> {
        let mut ranks = (0..).map(LocalRank).zip(&mut self.io);
        let is_due = |client: &Client| client.deadline().is_some_and(|at| at <= now);
        let (rank, client) = ranks.find(|(_, client)| is_due(client))?;
        let (call, op, repeated) = client.due(now, timeout, rng)?;
        Some((rank, call, op, repeated))
    }

    /// The exit of every rank was answered.
    pub(crate) fn is_over(&self) -> bool {
        self.io.iter().all(Client::is_over)
    }

    /// Every rank has submitted its exit.
    fn has_exited(&self) -> bool {
        self.io.iter().all(|client| client.exit().is_some())
    }
}

/// The job for which the node was told to retain a program, until its launch.
#[derive(Debug)]
struct Retained {
    job: JobId,
    /// Pages held of its program, once the node has answered.
    pages: Option<u32>,
}

/// The jobs of a node.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    present: Option<Entry>,
    retained: Option<Retained>,
    /// Sequence number of the LAUNCH or RETAIN that was taken last.
    newest: u64,
    refused: VecDeque<(JobId, LaunchRefusal)>,
    finished: VecDeque<JobId>,
    /// What was refused in the session before this one.
    refused_before: VecDeque<(JobId, LaunchRefusal)>,
    ended_before: VecDeque<JobId>,
    acks: VecDeque<JobId>,
    /// The job was claimed, which is to be answered.
    claimed: bool,
}

impl Jobs {
    /// The job the node has, whichever it is.
    pub(crate) fn present(&self) -> Option<&Entry> {
        self.present.as_ref()
    }

    pub(crate) fn present_mut(&mut self) -> Option<&mut Entry> {
        self.present.as_mut()
    }

    /// The entry of this job, if the node has it.
    pub(crate) fn entry(&mut self, job: JobId) -> Option<&mut Entry> {
        self.present.as_mut().filter(|entry| entry.job == job)
    }

    /// Carries out a command that came as datagram `seq` and queues the answer. Returns the job
    /// whose page requests are void.
    pub(crate) fn command(
        &mut self,
        now: Instant,
        seq: u64,
        command: &Command<'_>,
        out: &mut Outbox,
    ) -> Option<JobId> {
        let job = command.job()?;
        if matches!(command, Command::Cancel { orphan: true, .. })
            && seq < self.newest
            && self.entry(job).is_some()
        {
            // It was said of another job with this number, before the launch of this one.
            out.counters.stale += 1;
            return None;
        }
        let mut dropped = None;
        let is_ahead = self.is_ahead(job, command);
        if is_ahead {
            if seq < self.newest {
                out.counters.stale += 1;
                return None;
            }
            self.newest = seq;
            dropped = self.conclude(out);
        }
        match command {
            Command::Launch {
                spec,
                wrapped_key,
                block,
            } if is_ahead => self.launch(now, (spec, Key(*wrapped_key)), *block, out),
            Command::Retain {
                program, read_only, ..
            } if is_ahead => self.retain(job, *program, *read_only, out),
            Command::Start { .. } => {
                if let Some(entry) = self.entry(job)
                    && entry.status == JobStatus::Ready
                {
                    entry.status = JobStatus::Started;
                    out.push(Event::Start { job });
                }
            }
            Command::Cancel { orphan: true, .. } => dropped = self.drop_orphan(job, out),
            Command::Cancel { signal, grace, .. } => self.cancel(job, *signal, *grace, out),
            Command::Signal { signal, number, .. } => self.signal(job, *signal, *number, out),
            Command::Claim { .. } if self.claim(now, job) => return None,
            _ => {}
        }
        // An answer that says "unknown" would be believed, also when it arrives late.
        if !(self.is_retaining(job) && self.status(job) == JobStatus::Unknown) {
            self.queue_ack(job);
        }
        dropped
    }

    /// The command is a LAUNCH or RETAIN that its job has not seen yet.
    fn is_ahead(&self, job: JobId, command: &Command<'_>) -> bool {
        let status = self.status(job);
        match command {
            Command::Launch { .. } => {
                matches!(status, JobStatus::Unknown | JobStatus::Retained)
            }
            Command::Retain { .. } => status == JobStatus::Unknown && !self.is_retaining(job),
            _ => false,
        }
    }

    fn is_retaining(&self, job: JobId) -> bool {
        let retained = self.retained.as_ref();
        retained.is_some_and(|retained| retained.job == job)
    }

    /// Ends the job the node has, as the control node's next one says it has ended.
    fn conclude(&mut self, out: &mut Outbox) -> Option<JobId> {
        self.retained = None;
        let before = self.present.as_ref()?;
        let job = before.job;
        if !before.has_exited() {
            self.drop_orphan(job, out);
            return Some(job);
        }
        for (rank, client) in (0..).map(LocalRank).zip(&before.io) {
            if let Some(call) = client.exit()
                && !client.is_over()
            {
                out.push(Event::IoDone {
                    job,
                    rank,
                    call,
                    result: 0,
                    data: Vec::new(),
                });
            }
        }
        self.finish();
        Some(job)
    }

    /// The control node goes on with a job of an earlier run; whether it is here.
    fn claim(&mut self, now: Instant, job: JobId) -> bool {
        let Some(entry) = self.entry(job) else {
            if self.status(job) == JobStatus::Unknown {
                let refused = self.refused_before.iter().position(|(of, _)| *of == job);
                if let Some(refusal) = refused.and_then(|at| self.refused_before.remove(at)) {
                    self.refused.push_back(refusal);
                } else if self.ended_before.contains(&job) {
                    self.remember(job);
                }
            }
            return false;
        };
        if core::mem::take(&mut entry.adrift) {
            entry.heard = now;
            entry.io.iter_mut().for_each(Client::begin_again);
        }
        self.claimed = true;
        true
    }

    fn launch(
        &mut self,
        now: Instant,
        (spec, key): (&LaunchSpec, Key),
        block: Option<&[u8]>,
        out: &mut Outbox,
    ) {
        self.present = Some(Entry {
            job: spec.job,
            io: (0..spec.ranks).map(|_| Client::new()).collect(),
            status: JobStatus::Loading,
            cancel_signal: 0,
            signals: 0,
            start: spec.start,
            adrift: false,
            heard: now,
        });
        let block = block.map(<[u8]>::to_vec);
        out.push(Event::Launch {
            spec: *spec,
            key,
            block,
        });
    }

    fn retain(&mut self, job: JobId, program: ProgramId, read_only: bool, out: &mut Outbox) {
        self.retained = Some(Retained { job, pages: None });
        out.push(Event::Retain {
            job,
            program,
            read_only,
        });
    }

    /// The node has carried out a RETAIN.
    pub(crate) fn retain_result(&mut self, job: JobId, pages: u32) {
        let retained = self.retained.as_mut();
        if let Some(retained) = retained.filter(|retained| retained.job == job)
            && retained.pages.is_none()
        {
            retained.pages = Some(pages);
            self.queue_ack(job);
        }
    }

    /// The control node does not know the job.
    fn drop_orphan(&mut self, job: JobId, out: &mut Outbox) -> Option<JobId> {
        if self.entry(job).is_none() {
            if !self.ended_before.contains(&job) {
                self.never_launch(job);
            }
            return None;
        }
        self.finish();
        out.push(Event::Cancel {
            job,
            signal: SIGKILL,
            orphan: true,
            grace: Micros(0),
        });
        Some(job)
    }

    fn cancel(&mut self, job: JobId, signal: u8, grace: Micros, out: &mut Outbox) {
        let Some(entry) = self.entry(job) else {
            self.never_launch(job);
            return;
        };
        let news = entry.cancel_signal != signal && !entry.has_exited();
        entry.cancel_signal = signal;
        if news {
            out.push(Event::Cancel {
                job,
                signal,
                orphan: false,
                grace,
            });
        }
    }

    /// Each SIGNAL is handed on once; one that comes again is only answered. The next one is sent
    /// when this one is answered, so none is left out.
    fn signal(&mut self, job: JobId, signal: u8, number: u32, out: &mut Outbox) {
        let Some(entry) = self.entry(job) else {
            return;
        };
        if number > entry.signals && entry.status == JobStatus::Started {
            entry.signals = number;
            if !entry.has_exited() {
                out.push(Event::Signal { job, signal });
            }
        }
    }

    /// The LAUNCH of a cancelled job may still be on its way: it must find the job ended.
    fn never_launch(&mut self, job: JobId) {
        if self.is_retaining(job) {
            self.retained = None;
        }
        if self.status(job) == JobStatus::Unknown {
            self.remember(job);
        }
    }

    pub(crate) fn launch_result(&mut self, job: JobId, result: Result<(), LaunchRefusal>) {
        let entry = self.entry(job);
        let Some(entry) = entry.filter(|entry| entry.status == JobStatus::Loading) else {
            return;
        };
        match result {
            Ok(()) => {
                entry.status = match entry.start {
                    StartMode::OnCommand => JobStatus::Ready,
                    StartMode::AtOnce => JobStatus::Started,
                };
            }
            Err(mut refusal) => {
                refusal.text = io::clip(&refusal.text, REFUSAL_TEXT_MAX);
                if self.refused.len() == REFUSED {
                    self.refused.pop_front();
                }
                self.refused.push_back((job, refusal));
                self.finish();
            }
        }
        self.queue_ack(job);
    }

    /// Ends the job that the node has had for too long without a control node that knows it.
    pub(crate) fn give_up(&mut self, out: &mut Outbox) -> Option<JobId> {
        let job = self.present.as_ref()?.job;
        self.drop_orphan(job, out)
    }

    /// The job has ended: its last call is done, or it was refused or dropped.
    pub(crate) fn finish(&mut self) {
        self.claimed = false;
        match self.present.take() {
            // Of an earlier session, which may have numbered its jobs otherwise than this one.
            Some(entry) if entry.adrift => self.remember_before(entry.job),
            Some(entry) => self.remember(entry.job),
            None => {}
        }
    }

    fn remember_before(&mut self, job: JobId) {
        if self.ended_before.len() == ENDED_BEFORE {
            self.ended_before.pop_front();
        }
        self.ended_before.push_back(job);
    }

    fn remember(&mut self, job: JobId) {
        if self.finished.len() == FINISHED {
            self.finished.pop_front();
        }
        self.finished.push_back(job);
    }

    /// A new session began, which has said nothing of this node's job yet, numbers its datagrams
    /// afresh, and may number its jobs afresh. Commands of the sessions before do not open any
    /// more, so what was remembered against their repetitions goes; what has ended is remembered
    /// for claims.
    pub(crate) fn new_session(&mut self) {
        if let Some(entry) = &mut self.present {
            entry.adrift = true;
        }
        for job in core::mem::take(&mut self.finished) {
            self.remember_before(job);
        }
        self.refused_before = core::mem::take(&mut self.refused);
        self.retained = None;
        self.newest = 0;
        self.acks.clear();
        self.claimed = false;
    }

    fn status(&self, job: JobId) -> JobStatus {
        match &self.present {
            Some(entry) if entry.job == job => entry.status,
            _ if self.refusal(job).is_some() => JobStatus::Refused,
            _ if self.finished.contains(&job) => JobStatus::Finished,
            _ if self.pages_retained(job).is_some() => JobStatus::Retained,
            _ => JobStatus::Unknown,
        }
    }

    fn pages_retained(&self, job: JobId) -> Option<u32> {
        let retained = self.retained.as_ref()?;
        retained.pages.filter(|_| retained.job == job)
    }

    fn refusal(&self, job: JobId) -> Option<&LaunchRefusal> {
        let found = self.refused.iter().find(|(refused, _)| *refused == job);
        found.map(|(_, refusal)| refusal)
    }

    fn queue_ack(&mut self, job: JobId) {
        if !self.acks.contains(&job) && self.acks.len() < ACKS {
            self.acks.push_back(job);
        }
    }

    pub(crate) fn has_acks(&self) -> bool {
        self.claimed || !self.acks.is_empty()
    }

    /// The next answer to send.
    pub(crate) fn next_ack(&mut self) -> Option<CommandAck<'_>> {
        if core::mem::take(&mut self.claimed)
            && let Some(entry) = &self.present
        {
            return Some(CommandAck::Claimed(ClaimAck {
                job: entry.job,
                status: entry.status,
                cancel_signal: entry.cancel_signal,
                signals: entry.signals,
                calls: entry.io.iter().map(Client::standing).collect(),
            }));
        }
        let job = self.acks.pop_front()?;
        let refusal = self.refusal(job);
        let present = self.present.as_ref().filter(|entry| entry.job == job);
        Some(CommandAck::Job(JobAck {
            job,
            status: self.status(job),
            cancel_signal: present.map_or(0, |entry| entry.cancel_signal),
            code: refusal.map_or(RefusalCode::Other, |refusal| refusal.code),
            pages: self.pages_retained(job).unwrap_or(0),
            signals: present.map_or(0, |entry| entry.signals),
            text: refusal.map_or("", |refusal| refusal.text.as_str()),
        }))
    }
}
