//! The control side of job control: how the ranks on each node stand, and which command that waits
//! for.
//!
//! ```text
//!  launch()   Retained              Ready             start(), Started
//! -> Retaining -----> Launching ---------> Ready -----------------------> Running
//!        |                | Refused          |  Exit answered, node lost     |
//!        v                v                  v                               v
//!      Gone             Gone               Gone                            Gone
//! ```
//!
//! The ranks that a job has on a node are at one *place*: they are launched, started, cancelled and
//! signalled together, and end each for itself; the place is gone when all have. Only a place that
//! is to be retained for begins with the first step. With [`crate::job::StartMode::AtOnce`] a place
//! goes from Launching to Running, by the answer that says so or by the first call of a rank,
//! whichever arrives first. [`answers`] has these steps, [`calls`]
//! what running ranks ask for, [`orphans`] the jobs that nodes should not have.
//!
//! A job of an earlier run of the control node is *adopted* ([`adoption`]): each of its ranks is
//! awaited until its node is heard, then claimed, and goes on where it is.
//!
//! A command is repeated for as long as its node is up and has not said that it is done: a node
//! that computes looks at its network once a second only.
//!
//! Invariant: a node has at most one place that is not gone; a node that reports a job it should
//! not have (an orphan) is told to drop it until it says that it has.

mod adoption;
mod answers;
mod calls;
mod orphans;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::RANKS_PER_NODE_MAX;
use crate::control::Event;
use crate::control::outbox::{Outbox, Outgoing};
use crate::ids::{BootEpoch, JobId, LocalRank, NodeId, Rank};
use crate::io::server::Channel;
use crate::job::{
    FileService, JobSpec, LaunchError, LaunchSpec, PlaceSpec, RankLoss, launch_block,
};
use crate::rng::Rng;
use crate::time::{Instant, Micros};
use crate::transport::retry::{Backoff, LOOKS};
use crate::wire::job::{Command, GRACE_MAX, INLINE_BLOCK_MAX, SIGNAL_MAX};
use crate::wire::key::KEY_LEN;

/// Repetition of a command; at its slowest as often as a computing node looks.
const COMMAND: Backoff = Backoff::OF_SESSION;
/// How often a node that loads a program is asked how far it is; it also says so by itself, and
/// what is lost of that is found out in half a heartbeat.
const LOADING_POLL: Micros = Micros(LOOKS.0 / 2);
/// The signal that ends an orphan.
const SIGKILL: u8 = 9;
/// Signals that may wait for a rank: its node answers one before it gets the next. As many as there
/// are: of one that waits already Linux keeps no second (signal(7), standard signals).
const SIGNALS_MAX: usize = SIGNAL_MAX as usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Adopted; its node has not been heard in this run.
    Awaited,
    /// Adopted; its node is asked how it stands.
    Claiming,
    Retaining,
    Launching,
    Ready,
    Running,
}

#[derive(Debug, Default)]
struct Retry {
    tries: u32,
    due: Option<Instant>,
}

/// The ranks of a job on one node.
#[derive(Debug)]
struct Place {
    /// The first of them.
    first: Rank,
    launch_block: Arc<[u8]>,
    files: Option<FileService>,
    phase: Phase,
    /// Adopted: the boot that may be launched on if it has never heard of the job, since it was up
    /// when the earlier run ended.
    launch_on: Option<BootEpoch>,
    /// The signal of the last cancel the node has acknowledged.
    cancelled: u8,
    /// Signals that its programs are to get, the oldest first.
    signals: VecDeque<u8>,
    /// Number of the last SIGNAL that its node has taken.
    signals_taken: u32,
    /// By local rank.
    ranks: Vec<RankCalls>,
    retry: Retry,
}

/// The calls of a rank.
#[derive(Debug)]
struct RankCalls {
    channel: Channel,
    exit_seen: bool,
    /// Its exit is answered, as far as its node needs that.
    is_over: bool,
}

#[derive(Debug)]
struct Job {
    spec: JobSpec,
    /// Places that are not gone.
    places: BTreeMap<NodeId, Place>,
    /// How many of these are not loaded.
    loading: u32,
    start: bool,
    /// The signal and the grace with which it is being ended.
    cancel: Option<(u8, Micros)>,
}

/// Channels of the ranks of a job on a node where all have ended.
#[derive(Debug)]
struct Closed {
    job: JobId,
    first: Rank,
    channels: Vec<Channel>,
}

type TimerKey = (Instant, NodeId, JobId);

/// The jobs of a cluster.
#[derive(Debug)]
pub(crate) struct Jobs {
    limit: usize,
    jobs: BTreeMap<JobId, Job>,
    by_node: BTreeMap<NodeId, JobId>,
    closed: BTreeMap<NodeId, VecDeque<Closed>>,
    orphans: BTreeMap<(NodeId, JobId), Retry>,
    timers: BTreeSet<TimerKey>,
}

impl Jobs {
    pub(crate) fn new(limit: usize) -> Self {
        Jobs {
            limit,
            jobs: BTreeMap::new(),
            by_node: BTreeMap::new(),
            closed: BTreeMap::new(),
            orphans: BTreeMap::new(),
            timers: BTreeSet::new(),
        }
    }

    pub(crate) fn job_of(&self, node: NodeId) -> Option<JobId> {
        self.by_node.get(&node).copied()
    }

    pub(crate) fn launch(
        &mut self,
        now: Instant,
        spec: JobSpec,
        is_up: impl Fn(NodeId) -> bool,
        node_limit: usize,
    ) -> Result<(), LaunchError> {
        if spec.job == JobId::NONE || self.jobs.contains_key(&spec.job) {
            return Err(LaunchError::BadJobId);
        }
        if !is_possible(&spec, node_limit) {
            return Err(LaunchError::BadSize);
        }
        if self.jobs.len() >= self.limit {
            return Err(LaunchError::TooManyJobs);
        }
        let mut places = BTreeMap::new();
        for (first, of) in spec.firsts() {
            self.check_place(of, &is_up)?;
            if places.insert(of.node, Place::new(first, of)).is_some() {
                return Err(LaunchError::NodeTwice(of.node));
            }
        }
        let job = spec.job;
        for node in places.keys() {
            self.by_node.insert(*node, job);
        }
        self.jobs.insert(
            job,
            Job {
                spec,
                loading: places.len() as u32,
                places,
                start: false,
                cancel: None,
            },
        );
        self.send_to_all(now, job);
        Ok(())
    }

    fn check_place(
        &self,
        place: &PlaceSpec,
        is_up: impl Fn(NodeId) -> bool,
    ) -> Result<(), LaunchError> {
        if !is_up(place.node) {
            return Err(LaunchError::NodeNotUp(place.node));
        }
        if self.by_node.contains_key(&place.node) {
            return Err(LaunchError::NodeBusy(place.node));
        }
        if place.launch_block.len() > launch_block::MAX {
            return Err(LaunchError::LaunchBlockTooLarge);
        }
        Ok(())
    }

    pub(crate) fn start(&mut self, now: Instant, job: JobId) {
        if let Some(state) = self.jobs.get_mut(&job) {
            state.start = true;
            self.send_to_all(now, job);
        }
    }

    pub(crate) fn cancel(&mut self, now: Instant, job: JobId, signal: u8, grace: Micros) {
        if let Some(state) = self.jobs.get_mut(&job) {
            state.cancel = Some((signal.clamp(1, SIGNAL_MAX), grace.min(GRACE_MAX)));
            self.send_to_all(now, job);
        }
    }

    /// Has all ranks of a job that are not gone get a signal. Those that do not run yet get it when
    /// they do; of one whose node takes none, those beyond [`SIGNALS_MAX`] are left out.
    pub(crate) fn signal(&mut self, now: Instant, job: JobId, signal: u8) {
        let Some(state) = self.jobs.get_mut(&job) else {
            return;
        };
        for (node, rank) in &mut state.places {
            if rank.signals.len() == SIGNALS_MAX {
                continue;
            }
            rank.signals.push_back(signal.clamp(1, SIGNAL_MAX));
            if rank.phase == Phase::Running {
                rank.retry.tries = 0;
                arm(&mut self.timers, &mut rank.retry, now, *node, job);
            }
        }
    }

    /// A node says which SIGNALs it has taken; the next one is due.
    fn signals_taken(&mut self, now: Instant, node: NodeId, job: JobId, number: u32) {
        let Some(rank) = place_mut(&mut self.jobs, node, job) else {
            return;
        };
        if rank.signals_taken.checked_add(1) != Some(number) || rank.signals.pop_front().is_none() {
            return;
        }
        rank.signals_taken = number;
        if !rank.signals.is_empty() {
            rank.retry.tries = 0;
            self.arm(now, node, job);
        }
    }

    /// Makes the commands of a job due at once.
    fn send_to_all(&mut self, now: Instant, job: JobId) {
        let Some(state) = self.jobs.get_mut(&job) else {
            return;
        };
        for (node, rank) in &mut state.places {
            rank.retry.tries = 0;
            arm(&mut self.timers, &mut rank.retry, now, *node, job);
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|(due, _, _)| *due)
    }

    /// Sends the commands that are due.
    pub(crate) fn handle_timeouts(&mut self, now: Instant, rng: &mut Rng, out: &mut Outbox) {
        while let Some((due, node, job)) = self.timers.first().copied()
            && due <= now
        {
            self.timers.pop_first();
            let wanted = self.wanted(node, job).is_some();
            let Some(retry) = self.retry(node, job) else {
                continue;
            };
            retry.due = None;
            if !wanted {
                continue;
            }
            out.counters.retransmitted += u64::from(retry.tries > 0);
            let next = now + COMMAND.wait(retry.tries, rng);
            retry.tries = retry.tries.saturating_add(1);
            self.arm(next, node, job);
            out.send(Outgoing::Command { node, job });
        }
    }

    fn retry(&mut self, node: NodeId, job: JobId) -> Option<&mut Retry> {
        let rank = place_mut(&mut self.jobs, node, job);
        match rank {
            Some(rank) => Some(&mut rank.retry),
            None => self.orphans.get_mut(&(node, job)),
        }
    }

    fn arm(&mut self, at: Instant, node: NodeId, job: JobId) {
        let rank = place_mut(&mut self.jobs, node, job);
        let retry = match rank {
            Some(rank) => Some(&mut rank.retry),
            None => self.orphans.get_mut(&(node, job)),
        };
        if let Some(retry) = retry {
            arm(&mut self.timers, retry, at, node, job);
        }
    }

    /// When a job was handed in.
    pub(crate) fn submitted_us(&self, job: JobId) -> Option<u64> {
        Some(self.jobs.get(&job)?.spec.submitted_us)
    }

    /// The command a node is waiting for.
    pub(crate) fn wanted(&self, node: NodeId, job: JobId) -> Option<Command<'_>> {
        let state = self.jobs.get(&job);
        let Some((state, place)) = state.and_then(|state| Some((state, state.places.get(&node)?)))
        else {
            let orphan = self.orphans.contains_key(&(node, job));
            return orphan.then_some(Command::Cancel {
                job,
                signal: SIGKILL,
                orphan: true,
                grace: Micros(0),
            });
        };
        if place.has_exited() {
            return None;
        }
        let cancel = state.cancel.map(|(signal, grace)| Command::Cancel {
            job,
            signal,
            orphan: false,
            grace,
        });
        match place.phase {
            Phase::Awaited => None,
            Phase::Claiming => Some(Command::Claim { job }),
            // Also asks a node that has the cancel already how far it is.
            Phase::Retaining => Some(cancel.unwrap_or(Command::Retain {
                job,
                program: state.spec.program,
                read_only: state.spec.retention.read_only,
            })),
            Phase::Launching => Some(cancel.unwrap_or_else(|| state.launch_command(place))),
            _ if state.is_to_be_cancelled(place) => cancel,
            Phase::Ready if state.cancel.is_none() => state.start.then_some(Command::Start { job }),
            Phase::Ready => None,
            Phase::Running => place.signals.front().map(|signal| Command::Signal {
                job,
                signal: *signal,
                number: place.signals_taken.saturating_add(1),
            }),
        }
    }

    /// All ranks on a node have ended one way or the other.
    fn gone(&mut self, node: NodeId, job: JobId, out: &mut Outbox) -> Option<Closed> {
        let state = self.jobs.get_mut(&job)?;
        let mut place = state.places.remove(&node)?;
        state.loading -= u32::from(place.is_loading());
        disarm(&mut self.timers, &mut place.retry, node, job);
        self.by_node.remove(&node);
        if state.places.is_empty() {
            self.jobs.remove(&job);
            out.event(Event::JobClosed { job });
        }
        let channels = place.ranks.into_iter().map(|rank| rank.channel);
        Some(Closed {
            job,
            first: place.first,
            channels: channels.collect(),
        })
    }

    /// The ranks on a node are lost, but for those whose exit was handed on: they have ended as
    /// they said.
    fn lost(&mut self, node: NodeId, job: JobId, reason: RankLoss, out: &mut Outbox) {
        let Some(place) = place_mut(&mut self.jobs, node, job) else {
            return;
        };
        for (local, rank) in (0..).map(LocalRank).zip(&place.ranks) {
            if !rank.exit_seen {
                out.event(Event::RankLost {
                    job,
                    node,
                    rank: place.first.plus(local),
                    reason,
                });
            }
        }
        self.gone(node, job, out);
    }

    /// A node is gone, and what it had with it.
    pub(crate) fn node_gone(&mut self, node: NodeId, reason: RankLoss, out: &mut Outbox) {
        self.closed.remove(&node);
        while let Some((_, job)) = self.first_orphan(node) {
            self.forget_orphan(node, job);
        }
        let Some(job) = self.job_of(node) else {
            return;
        };
        self.lost(node, job, reason, out);
    }
}

impl Place {
    fn new(first: Rank, of: &PlaceSpec) -> Self {
        Place {
            first,
            launch_block: of.launch_block.clone(),
            files: of.files,
            phase: match of.retain {
                true => Phase::Retaining,
                false => Phase::Launching,
            },
            launch_on: None,
            cancelled: 0,
            signals: VecDeque::new(),
            signals_taken: 0,
            ranks: (0..of.ranks).map(|_| RankCalls::new()).collect(),
            retry: Retry::default(),
        }
    }

    /// The exits of all its ranks are here.
    fn has_exited(&self) -> bool {
        self.ranks.iter().all(|rank| rank.exit_seen)
    }

    /// Nothing of its ranks is left to be answered.
    fn is_over(&self) -> bool {
        self.ranks.iter().all(|rank| rank.is_over)
    }

    /// The calls of a rank of the job, if it is here.
    fn calls_of(&mut self, rank: Rank) -> Option<&mut RankCalls> {
        let local = rank.0.checked_sub(self.first.0)?;
        self.ranks.get_mut(local as usize)
    }

    fn is_loading(&self) -> bool {
        !matches!(self.phase, Phase::Ready | Phase::Running) && !self.has_exited()
    }
}

impl RankCalls {
    fn new() -> Self {
        Self {
            channel: Channel::new(),
            exit_seen: false,
            is_over: false,
        }
    }
}

impl Job {
    /// The job is cancelled, and the node has not said that it knows.
    fn is_to_be_cancelled(&self, place: &Place) -> bool {
        self.cancel
            .is_some_and(|(signal, _)| signal != place.cancelled)
    }

    /// Changes a place that is not gone, and keeps the count of those that are loading.
    fn update<R>(&mut self, node: NodeId, change: impl FnOnce(&mut Place) -> R) -> R {
        let place = self
            .places
            .get_mut(&node)
            .expect("the caller found the place");
        let before = place.is_loading();
        let result = change(place);
        self.loading -= u32::from(before && !place.is_loading());
        result
    }

    fn launch_command<'a>(&self, place: &'a Place) -> Command<'a> {
        let block = &place.launch_block;
        let spec = LaunchSpec {
            job: self.spec.job,
            rank: place.first,
            ranks: place.ranks.len() as u16,
            size: self.spec.size(),
            program: self.spec.program,
            program_bytes: self.spec.program_bytes,
            launch_block_bytes: block.len() as u32,
            time_limit_us: self.spec.time_limit_us,
            monitor_period_us: self.spec.monitor_period_us,
            memory_limit: self.spec.memory_limit,
            retention: self.spec.retention,
            start: self.spec.start,
            cores: self.spec.cores,
            core_bytes: self.spec.core_bytes,
            files: place.files,
        };
        let block = (block.len() <= INLINE_BLOCK_MAX).then_some(&block[..]);
        Command::Launch {
            spec,
            // Whose session it goes in is known where it is sealed.
            wrapped_key: [0; KEY_LEN],
            block,
        }
    }
}

/// A place that is not gone.
fn place_mut(jobs: &mut BTreeMap<JobId, Job>, node: NodeId, job: JobId) -> Option<&mut Place> {
    jobs.get_mut(&job)?.places.get_mut(&node)
}

/// Whether a job has places for all its ranks, and not too many.
fn is_possible(spec: &JobSpec, node_limit: usize) -> bool {
    let each = 1..=RANKS_PER_NODE_MAX;
    let places = &spec.places;
    !places.is_empty()
        && places.len() <= node_limit
        && places.iter().all(|place| each.contains(&place.ranks))
}

/// Sets a timer in place of the one that was set before.
fn arm(timers: &mut BTreeSet<TimerKey>, retry: &mut Retry, at: Instant, node: NodeId, job: JobId) {
    disarm(timers, retry, node, job);
    retry.due = Some(at);
    timers.insert((at, node, job));
}

fn disarm(timers: &mut BTreeSet<TimerKey>, retry: &mut Retry, node: NodeId, job: JobId) {
    if let Some(due) = retry.due.take() {
        timers.remove(&(due, node, job));
    }
}
