//! The control node's user: launches the planned jobs, serves pages and calls, reads output at a
//! limited rate, and checks everything it is told.
//!
//! Safety, checked with every event:
//! - a job's output is exactly what its rank wrote, in order, and complete when `Exit` arrives;
//! - every rank ends exactly once, by exit, refusal or loss; a job closes after its last rank;
//! - at most a window of calls of a rank waits for replies;
//! - nodes join, are lost and leave in an order that makes sense, and only nodes that exist;
//! - a rank starts once, before its first call; one whose node holds all its pages fetches none;
//! - a restart of the control node loses no job, and none runs twice: what it writes down is what
//!   it was told, and each call is carried out once;
//! - what is to be dropped is answered once. (That the status table is what the nodes hold in the
//!   end is checked by [`super::Sessions`].)

mod calls;
pub mod status;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use netstack::control::{Endpoint, Event};
use netstack::ids::{BootEpoch, CallId, JobId, NodeId, ProgramId, Rank};
use netstack::io::{ExitStatus, IoReply};
use netstack::job::{
    AdoptedRank, JobSpec, LaunchError, PlaceSpec, RankLoss, RefusalCode, StartMode,
};
use netstack::page::PageReply;
use netstack::retention::Reuse;
use netstack::rng::Rng;
use netstack::time::{Instant, Micros};

use super::program::Plan;
use crate::world::{Checked, check};
use status::StatusTable;

/// How long after a failed launch the next attempt comes.
const LAUNCH_RETRY: Micros = Micros::from_millis(500);

/// How long after a restart nodes with a rank are waited for.
const RETURN_LIMIT: Micros = Micros::from_secs(30);

/// How a rank ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// By its exit report.
    Exit(ExitStatus),
    /// Its node did not load it.
    Refused,
    /// Without a word.
    Lost,
}

/// Where a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not launched yet.
    Waiting,
    /// Launched.
    Running,
    /// All ranks have ended.
    Closed,
}

/// A job and what is known about it.
#[derive(Debug)]
struct Record {
    state: State,
    next_attempt: Instant,
    cancel_at: Option<Instant>,
    cancelled: bool,
    at_once: bool,
    /// All ranks were told to start.
    begun: bool,
    /// It went on over a restart of the control node.
    adopted: bool,
    /// The boots of its nodes that were known last before that.
    boots: BTreeMap<NodeId, BootEpoch>,
    outcomes: BTreeMap<Rank, Outcome>,
    ranks: BTreeMap<Rank, RankRecord>,
}

#[derive(Debug, Default)]
struct RankRecord {
    last_call: u64,
    output: u64,
    stdin: u64,
    unanswered: u32,
    reader_free_at: Instant,
    exit_seen: bool,
    retained: bool,
    ready: bool,
    started: bool,
    /// It is awaited after a restart of the control node.
    awaited: bool,
    /// It went on over one, and was ready or started before.
    claimed: bool,
    /// The last call that an earlier run of the control node has carried out, and of those the last
    /// that has come again.
    known_calls: u64,
    again: u64,
}

/// Something the operator will do later.
#[derive(Debug)]
enum Task {
    Page(PageReply),
    Reply(NodeId, JobId, Rank, CallId, IoReply),
    /// Nodes of these jobs that have not come back are not waited for any longer.
    Abandon(Vec<JobId>),
}

/// The control node's user.
#[derive(Debug)]
pub struct Operator {
    /// The control node's end of the protocol.
    pub endpoint: Endpoint,
    /// All jobs of the run.
    pub plans: BTreeMap<JobId, Plan>,
    records: BTreeMap<JobId, Record>,
    tasks: BTreeMap<(Instant, u64), Task>,
    next_task: u64,
    up: BTreeMap<NodeId, BootEpoch>,
    /// Somebody on the wire says datagrams again or flips bits in them.
    pub under_attack: bool,
    /// What the nodes hold; survives a restart.
    pub status: StatusTable,
    /// Drops that nodes have not answered.
    drops: BTreeSet<(NodeId, u64)>,
    rng: Rng,
    /// What others are to hear.
    pub seen: VecDeque<Seen>,
    /// Nodes that joined, counted by event.
    pub joins: u64,
    /// Nodes that were lost, counted by event.
    pub losses: u64,
    /// Bytes of output that arrived.
    pub output_bytes: u64,
    /// Ranks that found pages of their program.
    pub warm_ranks: u64,
    /// Ranks that fetched no page of their program.
    pub silent_ranks: u64,
    /// Drops that were answered.
    pub dropped: u64,
    /// Ranks that went on over a restart.
    pub adopted: u64,
}

/// What the control node's other services are to hear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A node has joined.
    Up(NodeId),
    /// A node is gone.
    Gone(NodeId),
}

impl Operator {
    /// A control node with these plans, whose clock shows `begin` at the start of the run.
    pub fn new(endpoint: Endpoint, plans: Vec<Plan>, seed: u64, begin: Instant) -> Self {
        let record = |plan: &Plan| Record {
            state: State::Waiting,
            next_attempt: begin + plan.launch_at,
            cancel_at: None,
            cancelled: false,
            at_once: false,
            begun: false,
            adopted: false,
            boots: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            ranks: BTreeMap::new(),
        };
        Operator {
            endpoint,
            under_attack: false,
            records: plans.iter().map(|plan| (plan.job, record(plan))).collect(),
            plans: plans.into_iter().map(|plan| (plan.job, plan)).collect(),
            tasks: BTreeMap::new(),
            next_task: 0,
            up: BTreeMap::new(),
            status: StatusTable::default(),
            drops: BTreeSet::new(),
            rng: Rng::new(seed),
            seen: VecDeque::new(),
            joins: 0,
            losses: 0,
            output_bytes: 0,
            warm_ranks: 0,
            silent_ranks: 0,
            dropped: 0,
            adopted: 0,
        }
    }

    /// The control node was killed and starts afresh: what it had in memory is gone, what it has
    /// written down is not, and its jobs go on.
    pub fn restart(&mut self, now: Instant, endpoint: Endpoint) {
        self.endpoint = endpoint;
        self.tasks.clear();
        self.drops.clear();
        let boots = std::mem::take(&mut self.up);
        let mut adopted = Vec::new();
        for (job, record) in &mut self.records {
            if record.state != State::Running {
                continue;
            }
            let plan = &self.plans[job];
            if record.outcomes.len() == plan.nodes.len() {
                record.state = State::Closed;
                continue;
            }
            record.adopt(plan, &boots);
            let ranks = record.adopted_ranks(plan);
            let spec = spec(plan, &self.status, Some(record.at_once));
            let taken = self.endpoint.adopt(spec, record.begun, &ranks);
            taken.expect("the endpoint has nothing yet");
            if record.cancelled {
                self.endpoint.cancel(now, *job, 9, Micros::ZERO);
            }
            adopted.push(*job);
        }
        self.later(now + RETURN_LIMIT, Task::Abandon(adopted));
    }

    /// Nodes that have not come back since a restart are given up.
    fn abandon(&mut self, now: Instant, jobs: &[JobId]) -> Checked {
        for job in jobs {
            let ranks = &self.records[job].ranks;
            let awaited: Vec<Rank> = (ranks.iter())
                .filter(|(_, rank)| rank.awaited)
                .map(|(rank, _)| *rank)
                .collect();
            for rank in awaited {
                let node = self.plans[job].nodes[rank.0 as usize];
                if !self.up.contains_key(&node) {
                    self.ended(now, *job, rank, Outcome::Lost)?;
                    self.endpoint.abandon(node, *job);
                }
            }
        }
        Ok(())
    }

    /// Where a job stands.
    pub fn state(&self, job: JobId) -> State {
        self.records[&job].state
    }

    /// All jobs have closed, and all drops were answered.
    pub fn is_done(&self) -> bool {
        let done = |record: &Record| record.state == State::Closed;
        self.records.values().all(done) && self.drops.is_empty()
    }

    /// Has a node drop a program, or all; one that is not up holds nothing that counts.
    pub fn drop_program(&mut self, now: Instant, node: NodeId, program: Option<ProgramId>) {
        if let Ok(id) = self.endpoint.drop_program(now, node, program) {
            self.drops.insert((node, id));
        }
    }

    /// How a job's ranks ended.
    pub fn outcomes(&self, job: JobId) -> &BTreeMap<Rank, Outcome> {
        &self.records[&job].outcomes
    }

    /// Nodes that are up as far as the events said.
    pub fn up(&self) -> &BTreeMap<NodeId, BootEpoch> {
        &self.up
    }

    /// When the operator wants to do something without other cause.
    pub fn next_wake(&self) -> Option<Instant> {
        let task = self.tasks.first_key_value().map(|((at, _), _)| *at);
        let records = self.records.values();
        let launch = records.filter_map(|record| match record.state {
            State::Waiting => Some(record.next_attempt),
            State::Running => record.cancel_at,
            State::Closed => None,
        });
        [task, launch.min(), self.endpoint.poll_timeout()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Does what is due; `existed` says whether a boot of a node has ever been.
    pub fn run(&mut self, now: Instant, existed: impl Fn(NodeId, BootEpoch) -> bool) -> Checked {
        while let Some(entry) = self.tasks.first_entry()
            && entry.key().0 <= now
        {
            match entry.remove() {
                Task::Page(reply) => self.endpoint.page_data(now, reply),
                Task::Reply(node, job, rank, call, reply) => {
                    let record = self
                        .records
                        .get_mut(&job)
                        .expect("only known jobs have tasks");
                    let state = record.ranks.entry(rank).or_default();
                    state.unanswered -= 1;
                    self.endpoint.io_reply(now, node, (job, rank), call, reply);
                }
                Task::Abandon(jobs) => self.abandon(now, &jobs)?,
            }
        }
        self.launch_and_cancel(now);
        while let Some(event) = self.endpoint.poll_event() {
            self.handle(now, event, &existed)?;
        }
        Ok(())
    }

    fn launch_and_cancel(&mut self, now: Instant) {
        for (job, record) in &mut self.records {
            match record.state {
                State::Waiting if record.next_attempt <= now => {
                    let plan = &self.plans[job];
                    let spec = spec(plan, &self.status, None);
                    record.at_once = spec.start == StartMode::AtOnce;
                    match self.endpoint.launch(now, spec) {
                        Ok(()) => {
                            record.state = State::Running;
                            record.cancel_at = plan.cancel_after.map(|after| now + after);
                        }
                        Err(LaunchError::NodeNotUp(_) | LaunchError::NodeBusy(_)) => {
                            record.next_attempt = now + self.rng.jitter(LAUNCH_RETRY);
                        }
                        Err(error) => panic!("job {job} cannot be launched: {error:?}"),
                    }
                }
                State::Running if record.cancel_at.is_some_and(|at| at <= now) => {
                    record.cancel_at = None;
                    record.cancelled = true;
                    self.endpoint.cancel(now, *job, 15, Micros::ZERO);
                }
                _ => {}
            }
        }
    }

    fn handle(
        &mut self,
        now: Instant,
        event: Event,
        existed: &impl Fn(NodeId, BootEpoch) -> bool,
    ) -> Checked {
        match event {
            Event::NodeJoined { .. }
            | Event::NodeLost { .. }
            | Event::NodeLeft { .. }
            | Event::NodeStays { .. } => self.membership(event, existed),
            Event::LaunchReady {
                job, rank, waiting, ..
            } => {
                let at_once = self.records[&job].at_once;
                let state = self.rank(job, rank)?;
                let again = std::mem::replace(&mut state.ready, true);
                check(!again && !at_once, || {
                    format!("rank {rank} of job {job} was ready twice")
                })?;
                if waiting == 0 {
                    self.endpoint.start(now, job);
                    self.records.get_mut(&job).expect("it runs").begun = true;
                }
                Ok(())
            }
            Event::Started { job, rank, .. } => {
                let at_once = self.records[&job].at_once;
                let state = self.rank(job, rank)?;
                let ready = state.ready || at_once || state.claimed;
                let again = std::mem::replace(&mut state.started, true);
                check(ready && !again, || {
                    format!("rank {rank} of job {job} started wrongly")
                })
            }
            Event::LaunchRefused {
                job,
                rank,
                code,
                text,
                ..
            } => {
                let plan = &self.plans[&job];
                let expected = match code {
                    RefusalCode::Unreadable => true,
                    RefusalCode::NotWarm => plan.retention.reuse == Reuse::Require,
                    _ => plan.refused || self.records[&job].cancelled,
                };
                check(expected, || {
                    format!("job {job} was refused: {code:?} {text}")
                })?;
                self.ended(now, job, rank, Outcome::Refused)
            }
            Event::RankLost {
                job, rank, reason, ..
            } => {
                let plan = &self.plans[&job];
                let node = plan.nodes[rank.0 as usize];
                // A node that has booted while the control node was away knows nothing.
                let before = self.records[&job].boots.get(&node);
                let booted = before.is_none_or(|boot| self.up.get(&node) != Some(boot));
                let forgot = matches!(reason, RankLoss::Forgotten | RankLoss::GivenUp);
                // Of a cancelled job a rank whose launch never arrived is not launched again.
                let cancelled = self.records[&job].cancelled;
                check(
                    !forgot || cancelled || (booted && self.records[&job].adopted),
                    || format!("rank {rank} of job {job} was forgotten by its node ({reason:?})"),
                )?;
                self.ended(now, job, rank, Outcome::Lost)
            }
            Event::JobClosed { job } => {
                let record = self.records.get_mut(&job).expect("only planned jobs exist");
                check(record.state == State::Running, || {
                    format!("job {job} closed twice")
                })?;
                record.state = State::Closed;
                let ranks = self.plans[&job].nodes.len();
                // The exits that were answered are among the outcomes already.
                check(record.outcomes.len() == ranks, || {
                    format!("job {job} closed too early")
                })
            }
            Event::PageWanted(wanted) => self.page_wanted(now, wanted),
            Event::Claimed {
                job,
                rank,
                input_bytes,
                ..
            } => {
                let state = self.rank(job, rank)?;
                let awaited = std::mem::take(&mut state.awaited);
                state.stdin = input_bytes;
                state.claimed = true;
                self.adopted += 1;
                check(awaited, || {
                    format!("rank {rank} of job {job} was claimed twice")
                })
            }
            Event::Retained { job, rank, .. } => {
                let state = self.rank(job, rank)?;
                let again = std::mem::replace(&mut state.retained, true);
                check(!again && !state.ready && !state.started, || {
                    format!("rank {rank} of job {job} was retained for twice or late")
                })
            }
            Event::Holdings {
                node,
                boot_epoch,
                reset,
                held,
                dropped,
            } => self.status.report(node, boot_epoch, reset, &held, &dropped),
            Event::ProgramDropped { node, id, .. } => {
                self.dropped += 1;
                check(self.drops.remove(&(node, id)), || {
                    format!("{node} dropped what nobody asked for, number {id}")
                })
            }
            Event::IoCall {
                node,
                job,
                rank,
                call,
                op,
            } => self.io_call(now, node, job, rank, call, op),
            // What an attacker says is refused, and said to be.
            Event::Rejected { .. } | Event::TwoNodesOneMac { .. } if self.under_attack => Ok(()),
            Event::Rejected {
                node, reason, text, ..
            } => Err(format!("{node} was rejected ({reason:?}): {text}")),
            Event::TwoNodesOneMac { node, .. } => Err(format!("{node} was taken for two")),
            Event::KeyReused { .. } => Err("a key was refused".into()),
            Event::NodePanic { node, .. } => Err(format!("{node} panicked")),
            Event::HardwareErrors { node, .. } => Err(format!("{node} reports hardware errors")),
            Event::LogLines { node, .. } => Err(format!("{node} tells lines of a log")),
        }
    }

    /// A node comes, goes or stays.
    fn membership(
        &mut self,
        event: Event,
        existed: &impl Fn(NodeId, BootEpoch) -> bool,
    ) -> Checked {
        match event {
            Event::NodeJoined { status, .. } => {
                let (node, epoch) = (status.node, status.epoch);
                check(existed(node, epoch), || {
                    format!("{node} joined with a boot it never had")
                })?;
                let before = self.up.insert(node, epoch);
                self.status.joined(node, epoch);
                self.joins += 1;
                self.seen.push_back(Seen::Up(node));
                check(before.is_none(), || {
                    format!("{node} joined while it was up")
                })
            }
            Event::NodeLost { node, epoch, .. } => {
                self.losses += 1;
                self.seen.push_back(Seen::Gone(node));
                self.drops.retain(|(of, _)| *of != node);
                check(self.up.remove(&node) == Some(epoch), || {
                    format!("{node} was lost twice")
                })
            }
            Event::NodeLeft { node, epoch } => {
                self.seen.push_back(Seen::Gone(node));
                self.drops.retain(|(of, _)| *of != node);
                check(self.up.remove(&node) == Some(epoch), || {
                    format!("{node} left unseen")
                })
            }
            Event::NodeStays { node, .. } => check(self.up.contains_key(&node), || {
                format!("{node} stays, which is not up")
            }),
            _ => Ok(()),
        }
    }

    fn rank(&mut self, job: JobId, rank: Rank) -> Result<&mut RankRecord, String> {
        let record = self.records.get_mut(&job).expect("only planned jobs exist");
        check(record.state == State::Running, || {
            format!("job {job} is not running")
        })?;
        check(!record.outcomes.contains_key(&rank), || {
            format!("rank {rank} of job {job} goes on after its end")
        })?;
        Ok(record.ranks.entry(rank).or_default())
    }

    fn ended(&mut self, now: Instant, job: JobId, rank: Rank, outcome: Outcome) -> Checked {
        self.rank(job, rank)?;
        let record = self.records.get_mut(&job).expect("it was found above");
        record.outcomes.insert(rank, outcome);
        if !record.cancelled && !matches!(outcome, Outcome::Exit(_)) {
            // A job that lost a rank has no future.
            record.cancelled = true;
            self.endpoint.cancel(now, job, 9, Micros::ZERO);
        }
        Ok(())
    }

    fn later(&mut self, at: Instant, task: Task) {
        self.next_task += 1;
        self.tasks.insert((at, self.next_task), task);
    }

    /// Ranks that ended otherwise than by themselves.
    pub fn failures(&self, job: JobId) -> BTreeSet<Rank> {
        let outcomes = self.records[&job].outcomes.iter();
        outcomes
            .filter(|(_, outcome)| !matches!(outcome, Outcome::Exit(ExitStatus::Exited(_))))
            .map(|(rank, _)| *rank)
            .collect()
    }
}

impl Record {
    /// What is left of it after a restart of the control node.
    fn adopt(&mut self, plan: &Plan, boots: &BTreeMap<NodeId, BootEpoch>) {
        let on = |node: &NodeId| Some((*node, *boots.get(node)?));
        self.adopted = true;
        self.boots.extend(plan.nodes.iter().filter_map(on));
        for number in 0..plan.nodes.len() {
            let rank = Rank(number as u32);
            if !self.outcomes.contains_key(&rank) {
                let state = self.ranks.entry(rank).or_default();
                (state.ready, state.started, state.awaited) = (false, false, true);
                state.claimed = false;
                (state.unanswered, state.known_calls, state.again) = (0, state.last_call, 0);
                state.reader_free_at = Instant::ZERO;
            }
        }
    }

    fn adopted_ranks(&self, plan: &Plan) -> Vec<AdoptedRank> {
        let ranks = plan.nodes.iter().enumerate().map(|(number, node)| {
            let rank = Rank(number as u32);
            if self.outcomes.contains_key(&rank) {
                return AdoptedRank::Ended;
            }
            let has_called = self.ranks[&rank].last_call > 0;
            let may_launch = (self.at_once || !self.begun) && !has_called;
            let launch_on = self.boots.get(node).copied().filter(|_| may_launch);
            AdoptedRank::Open { launch_on }
        });
        ranks.collect()
    }
}

/// How a plan is launched; `at_once`: as it was before a restart.
fn spec(plan: &Plan, status: &StatusTable, at_once: Option<bool>) -> JobSpec {
    let program = plan.program();
    let place = |(rank, node): (usize, &NodeId)| PlaceSpec {
        node: *node,
        ranks: 1,
        launch_block: plan.launch_block(Rank(rank as u32)).into(),
        retain: plan.published && status.is_warm(*node, program),
        files: None,
    };
    let warm = |node: &NodeId| status.is_warm(*node, program);
    let short = plan.nodes.len() == 1 || plan.nodes.iter().all(warm);
    JobSpec {
        job: plan.job,
        submitted_us: 1,
        places: plan.nodes.iter().enumerate().map(place).collect(),
        program,
        program_bytes: plan.file_bytes,
        time_limit_us: 0,
        monitor_period_us: 0,
        memory_limit: 0,
        retention: plan.retention,
        start: match at_once.unwrap_or(plan.hurried && short) {
            true => StartMode::AtOnce,
            false => StartMode::OnCommand,
        },
        cores: 0,
        core_bytes: 0,
    }
}
