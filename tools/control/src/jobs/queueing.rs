//! Scheduling passes: which waiting jobs get nodes, why the others have none; hold, release and
//! priorities.
//!
//! Neighbours: `hearth_alloc::queue` has the policy; `submit`, `lifecycle` and `drain` say when a
//! pass is due ([`Runner::settle`] runs it); `loading` brings a job to the nodes it got.
//!
//! Invariant: the queue's jobs are the runner's pending ones and its running ones those with nodes;
//! a node is given out by a pass and in no other way.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use hearth_alloc::queue::{self, Held, Reason, Start, Tie};
use hearth_alloc::topology::Topology;

use super::absent;
use super::allocator::{WarmNodes, Warmth};
use super::fabric::Fabric;
use super::lifecycle::set_state;
use super::nodes::Nodes;
use super::record::{Cause, Job};
use super::submit::WAITS_FOR_CLIENT;
use super::{Due, JobError, Runner, retention};
use crate::api::types::{AfterCondition, JobInfo, JobState, Placement, Why};
use crate::clock;
use crate::events::Severity;
use crate::hostlist;
use crate::principal::Principal;

/// How long a job that wants warm nodes waits for some that are not in service, in microseconds:
/// after a restart of control they are back within seconds.
const WARM_PATIENCE_US: u64 = 10_000_000;

/// Largest cluster, in nodes, in which a placement is kept with the list of the nodes that were
/// free.
const FREE_LISTED_MAX: usize = 1_024;

impl Runner {
    /// Holds a job that waits: it does not start until it is released.
    ///
    /// # Errors
    /// [`JobError`].
    pub fn hold(&mut self, by: &Principal, id: u64) -> Result<(), JobError> {
        let job = self.pending(by, id)?;
        job.info.held = true;
        let attached = job.attached;
        let record = job.record();
        self.records.push(record);
        if attached {
            // What it waited for has a limit; that it is held has none.
            self.deadlines.set(id, None);
        }
        self.queue.hold(id);
        self.pass_due = Due::Now;
        let text = format!("job {id} is held");
        self.event(Severity::Info, "job-held", id, text);
        Ok(())
    }

    /// Lets a held job start.
    ///
    /// # Errors
    /// [`JobError`].
    pub fn release(&mut self, by: &Principal, id: u64) -> Result<(), JobError> {
        let job = self.pending(by, id)?;
        if !std::mem::take(&mut job.info.held) {
            return Err(JobError::NotHeld(id));
        }
        let may_start = job.may_start();
        let record = job.record();
        self.records.push(record);
        if may_start {
            self.queue.release(id);
        }
        self.pass_due = Due::Now;
        let text = format!("job {id} is released");
        self.event(Severity::Info, "job-released", id, text);
        Ok(())
    }

    /// Gives a job that waits another priority.
    ///
    /// # Errors
    /// [`JobError`].
    pub fn set_priority(&mut self, by: &Principal, id: u64, priority: i32) -> Result<(), JobError> {
        let job = self.pending(by, id)?;
        job.info.priority = priority;
        let record = job.record();
        self.records.push(record);
        self.queue.set_priority(id, priority);
        self.pass_due = Due::Now;
        Ok(())
    }

    /// Jobs that wait, in the order in which passes look at them.
    pub fn queue_order(&self) -> Vec<u64> {
        self.queue.order(unix_ms())
    }

    fn pending(&mut self, by: &Principal, id: u64) -> Result<&mut Job, JobError> {
        let job = self.own_mut(by, id)?;
        let state = job.info.state;
        match state {
            JobState::Pending => Ok(job),
            state => Err(JobError::NotPending { id, state }),
        }
    }

    /// Whether a pass is about to run, before which what is known is to be written down.
    pub fn is_pass_due(&self, now_us: u64) -> bool {
        self.pass_at_us().is_some_and(|at_us| at_us <= now_us)
    }

    /// No job starts while `trouble` keeps what control does from being written down: one that ran
    /// and was not known to have begun would run once more after a restart. Jobs that run go on.
    pub fn hold_up(&mut self, trouble: Option<&str>) {
        if self.held_up.is_some() == trouble.is_some() {
            return;
        }
        self.held_up = trouble.map(str::to_string);
        self.pass_due = Due::Now;
        let all: Vec<u64> = self.jobs.keys().copied().collect();
        for id in all {
            self.say_held_up(id);
        }
    }

    /// Says of a job that waits that none starts, while that is so.
    pub(super) fn say_held_up(&mut self, id: u64) {
        let (Some(trouble), Some(job)) = (&self.held_up, self.jobs.get_mut(&id)) else {
            return;
        };
        if job.info.state == JobState::Pending && job.attached {
            let text =
                format!("no job starts while the control node cannot write its store: {trouble}");
            set_state(job, JobState::Pending, &text);
        }
    }

    /// Starts what may start now.
    pub(super) fn pass(&mut self, now_us: u64, fabric: &mut dyn Fabric) {
        if self.queue.queued_count() == 0 {
            return;
        }
        self.end_hopeless(now_us, fabric);
        self.end_cold(now_us, fabric);
        let (jobs, retention) = (&self.jobs, &self.retention);
        let holders = Holders::new(fabric);
        let awaits = self.awaiting_until_us.is_some();
        let tied = Tied::new(&holders, jobs, &self.nodes, awaits);
        let warm = |queued: &queue::Job| match jobs.get(&queued.number) {
            Some(job) if queued.tie == Tie::Warm => tied.to(job),
            Some(job) if retention::looks_for_warm(retention, &job.wishes) => {
                holders.held(&job.program.hash())
            }
            _ => Held::default(),
        };
        let machine = &mut self.nodes.machine;
        let starts = self.queue.pass(unix_ms(), machine, self.placing, &warm);
        for (start, free) in self.with_free_nodes(starts) {
            self.launch(now_us, fabric, start, free);
        }
        self.explain_waits(fabric);
    }

    /// Starts with the nodes that were free when each was decided, as a hostlist.
    fn with_free_nodes(&self, starts: Vec<Start>) -> Vec<(Start, String)> {
        if starts.is_empty() || self.nodes.count() > FREE_LISTED_MAX {
            let unlisted = starts.into_iter().map(|start| (start, String::new()));
            return unlisted.collect();
        }
        let mut free: Vec<u32> = self.nodes.free_nodes().collect();
        let mut decided = Vec::with_capacity(starts.len());
        for start in starts.into_iter().rev() {
            free.extend(&start.given.nodes);
            free.sort_unstable();
            let had = free.iter().filter(|node| !start.kept.contains(node));
            let text = hostlist::format(&had.copied().collect::<Vec<u32>>());
            decided.push((start, text));
        }
        decided.reverse();
        decided
    }

    /// Ends jobs that waited for one that had to end well and did not.
    fn end_hopeless(&mut self, now_us: u64, fabric: &mut dyn Fabric) {
        // Each may be what another waits for.
        loop {
            let hopeless = self.queue.hopeless();
            if hopeless.is_empty() {
                return;
            }
            for id in hopeless {
                let text = match self.failed_dependency(id) {
                    Some((job, state)) => format!(
                        "job {job} ended ({}), and this one was to run only if it ended well",
                        state.word()
                    ),
                    None => "a job that had to end well before it did not".to_string(),
                };
                self.end_early(now_us, fabric, id, 15, Cause::Abandoned(text));
                debug_assert_eq!(self.queue.reason(id), None, "job {id} is over");
            }
        }
    }

    fn failed_dependency(&self, id: u64) -> Option<(u64, JobState)> {
        let after = &self.jobs.get(&id)?.info.after;
        let must = after
            .iter()
            .filter(|after| after.condition == AfterCondition::Ok);
        let mut ended = must.filter_map(|after| Some((after.job, self.get(after.job).ok()?.state)));
        ended.find(|(_, state)| state.is_final() && *state != JobState::Completed)
    }

    /// Ends jobs that want warm nodes alone, of which there are too few; those that may come back
    /// are waited for.
    fn end_cold(&mut self, now_us: u64, fabric: &mut dyn Fabric) {
        let mut cold = Vec::new();
        let holders = Holders::new(fabric);
        // Jobs of one program and size find the same, but for those that name nodes.
        let mut found: BTreeMap<([u8; 32], u32), Warmth> = BTreeMap::new();
        for (id, job) in &self.jobs {
            let waits = job.info.state == JobState::Pending && job.attached && !job.info.held;
            if !job.want.warm_only || !waits || !self.queue.after(*id).is_empty() {
                continue;
            }
            let program = job.program.hash();
            let look = || job.want.warmth(&self.nodes, &holders.of(&program));
            let warmth = match job.want.nodes {
                Some(_) => look(),
                None => {
                    let key = (program, job.want.node_count());
                    found.entry(key).or_insert_with(look).clone()
                }
            };
            match warmth {
                Warmth::Enough => self.deadlines.set(*id, None),
                Warmth::Cold(reason) => cold.push((*id, reason)),
                // Their programs may be gone for good: not for ever without being asked.
                Warmth::Away(_) if !job.wait => {
                    let deadline = self.deadlines.of(*id);
                    let deadline = deadline.or(Some(now_us + WARM_PATIENCE_US));
                    self.deadlines.set(*id, deadline);
                }
                Warmth::Away(_) => {}
            }
        }
        for (id, reason) in cold {
            self.end_early(now_us, fabric, id, 15, Cause::NotLaunched(reason));
        }
    }

    /// A job gets its nodes.
    fn launch(&mut self, now_us: u64, fabric: &mut dyn Fabric, start: Start, free: String) {
        let id = start.job.number;
        let decision = clock::unix_us().max(self.last_decision + 1);
        self.last_decision = decision;
        let job = self.jobs.get_mut(&id).expect("the queue's jobs are here");
        // The first ranks are on the first node named.
        let nodes = job.want.nodes.clone().unwrap_or(start.given.nodes);
        assert_eq!(
            nodes.len(),
            job.want.node_count() as usize,
            "as many nodes as it wants"
        );
        let certificate = match (start.given.certificate, &job.want.nodes) {
            (Some(certificate), _) => certificate.to_string(),
            (None, Some(_)) => "none: the job names its nodes".to_string(),
            (None, None) => "none: queue.placement is not \"exact\"".to_string(),
        };
        let mut in_order = nodes.clone();
        in_order.sort_unstable();
        job.info.placement = Some(Placement {
            hops: self.nodes.machine.topology().sum_of_hops(&in_order),
            certificate,
            free,
            decision,
        });
        (job.info.why, job.info.expected_start_unix_us) = (None, None);
        job.info.after.clear();
        job.place(&job.want.share_out(&nodes));
        job.info.nodes = rank_order(&nodes);
        let of_nodes = || {
            let shares = nodes.iter().zip(job.want.ranks_of_nodes());
            let shares = shares.filter_map(|(node, ranks)| {
                let cores = self.nodes.cores(*node)?;
                cores.checked_div(u16::try_from(ranks).ok()?)
            });
            shares.min()
        };
        let threads = Some(job.want.cores).filter(|cores| *cores > 0);
        job.make_launch_blocks(threads.or_else(of_nodes));
        let text = placed_text(&job.info, self.nodes.machine.topology(), &in_order);
        self.event(Severity::Info, "job-placed", id, text);
        self.bring(now_us, fabric, id);
    }

    /// Says of each job that waits why.
    fn explain_waits(&mut self, fabric: &dyn Fabric) {
        let mut out: Option<(usize, String)> = None;
        let unheard = self.awaiting_until_us.map_or(0, |_| self.nodes.unheard());
        let holders = Holders::new(fabric);
        let mut lacking: BTreeMap<([u8; 32], u32, Reason), (Why, String)> = BTreeMap::new();
        for waiting in self.queue.waiting() {
            let Some(job) = self.jobs.get_mut(&waiting.number) else {
                continue;
            };
            let reserved = waiting.reserved.map(|at_ms| at_ms.saturating_mul(1_000));
            job.info.expected_start_unix_us = reserved;
            if job.info.after.len() != waiting.after.len() {
                let is_open = |id: u64| waiting.after.iter().any(|after| after.job == id);
                job.info.after.retain(|after| is_open(after.job));
            }
            let warm = |job: &Job| match job.want.warm_only {
                true => holders.of(&job.program.hash()),
                false => Rc::default(),
            };
            // Of jobs that want warm nodes each looks at all holders, unless one like it has.
            let avoids = job.avoids();
            let cores = match job.want.node_cores() {
                0 => String::new(),
                cores => format!("; its nodes are to have {cores} cores at least"),
            };
            let is_usual = avoids.is_empty() && cores.is_empty();
            let like = (job.want.warm_only && job.want.nodes.is_none() && is_usual)
                .then(|| (job.program.hash(), job.want.node_count(), waiting.reason));
            let known = like.as_ref().and_then(|like| lacking.get(like)).cloned();
            let (why, text) = match waiting.reason {
                _ if known.is_some() && job.attached => known.clone().expect("it is known"),
                _ if !job.attached => (Why::BeginTime, WAITS_FOR_CLIENT.to_string()),
                _ if job.unread => (
                    Why::BeginTime,
                    "its files are read first, since the control node was started again"
                        .to_string(),
                ),
                Reason::New => continue,
                Reason::Held => (Why::JobHeldUser, held_text(&job.info)),
                Reason::Dependency | Reason::DependencyFailed => {
                    (Why::Dependency, after_text(&job.info))
                }
                Reason::Priority if job.info.why == Some(Why::Priority) => continue,
                Reason::Priority => (
                    Why::Priority,
                    "jobs before it in the queue go first".to_string(),
                ),
                Reason::UserJobs => (
                    Why::UserJobs,
                    "its user has as many jobs running as the configuration allows".to_string(),
                ),
                Reason::UserNodes => (
                    Why::UserNodes,
                    "its user has as many nodes as the configuration allows".to_string(),
                ),
                Reason::ArrayJobs => (
                    Why::ArrayTasks,
                    "as many jobs of its array run as may at a time".to_string(),
                ),
                Reason::Nodes => {
                    let text = job.want.lacks(&self.nodes, &warm(job));
                    (Why::Resources, format!("{text}{avoids}{cores}"))
                }
                Reason::TooLarge if job.want.warm_only => {
                    let text = match job.want.warmth(&self.nodes, &warm(job)) {
                        Warmth::Away(text) | Warmth::Cold(text) => text,
                        Warmth::Enough => job.want.lacks(&self.nodes, &warm(job)),
                    };
                    (Why::ReqNodeNotAvail, text)
                }
                Reason::TooLarge | Reason::NodesOut => {
                    let (up, out) = out.get_or_insert_with(|| {
                        let out = absent::told(&self.nodes, self.nodes.with_place(), unheard > 0);
                        (self.nodes.in_service(), out)
                    });
                    let text = job.want.misses(&self.nodes, (*up, &out[..]), unheard > 0);
                    // Just after a start of control nobody knows yet how many there are.
                    let is_awaited = unheard > 0 && job.want.node_count() as usize <= *up + unheard;
                    match waiting.reason {
                        _ if is_awaited => {
                            let text = format!(
                                "{text}; the control node has just started and waits to hear from {}",
                                crate::output::count(unheard, "node")
                            );
                            (Why::ReqNodeNotAvail, text)
                        }
                        Reason::NodesOut => (Why::ReqNodeNotAvail, format!("{text}{cores}")),
                        _ => (Why::PartitionNodeLimit, format!("{text}{cores}")),
                    }
                }
            };
            let is_shared = matches!(waiting.reason, Reason::Nodes | Reason::TooLarge);
            if let Some(like) = like.filter(|_| is_shared && known.is_none() && job.attached) {
                lacking.insert(like, (why, text.clone()));
            }
            job.info.why = Some(why);
            set_state(job, JobState::Pending, &text);
        }
    }

    /// Decisions are numbered behind that of this job.
    pub(super) fn note_decision(&mut self, info: &JobInfo) {
        let decision = info.placement.as_ref().map(|placement| placement.decision);
        let freed = info.ranks.iter().filter_map(|rank| rank.freed).max();
        let last = decision.max(freed).unwrap_or(0);
        self.last_decision = self.last_decision.max(last);
    }
}

/// Holders of one program, for words and for the queue.
type Known = (Rc<WarmNodes>, Held);

/// Which nodes hold which program, looked up once in a pass.
struct Holders<'a> {
    fabric: &'a dyn Fabric,
    known: RefCell<BTreeMap<[u8; 32], Known>>,
}

impl<'a> Holders<'a> {
    fn new(fabric: &'a dyn Fabric) -> Self {
        let known = RefCell::default();
        Holders { fabric, known }
    }

    fn look(&self, program: &[u8; 32]) -> Known {
        let mut known = self.known.borrow_mut();
        let entry = known.entry(*program).or_insert_with(|| {
            let warm = self.fabric.warm_nodes(program);
            let held = Held::new(warm.held.clone());
            (Rc::new(warm), held)
        });
        entry.clone()
    }

    fn of(&self, program: &[u8; 32]) -> Rc<WarmNodes> {
        self.look(program).0
    }

    fn held(&self, program: &[u8; 32]) -> Held {
        self.look(program).1
    }
}

/// Which nodes jobs may have that are tied to some, looked up once in a pass.
struct Tied<'a> {
    holders: &'a Holders<'a>,
    in_service: Held,
    /// Nodes that are about to be heard, since control has just started.
    awaited: BTreeSet<u32>,
    /// Cores of nodes, where some job wants some.
    cores: BTreeMap<u32, u16>,
    /// Nodes in service by the cores that are wanted.
    of_cores: RefCell<BTreeMap<u16, Held>>,
    known: RefCell<BTreeMap<u64, Held>>,
}

impl<'a> Tied<'a> {
    fn new(
        holders: &'a Holders<'a>,
        jobs: &BTreeMap<u64, Job>,
        nodes: &Nodes,
        awaits: bool,
    ) -> Self {
        // Of the others none avoids nodes.
        let some_again = jobs.values().any(|job| job.info.restarts > 0);
        let some_cores = jobs.values().any(|job| job.want.node_cores() > 0);
        let some = some_again || some_cores;
        let in_service = nodes.those_in_service().filter(|_| some);
        let with_place = nodes.with_place().filter(|_| some_cores);
        let awaited = nodes.those_unheard().filter(|_| some_again && awaits);
        Tied {
            holders,
            in_service: Held::new(in_service.collect()),
            awaited: awaited.collect(),
            cores: with_place
                .filter_map(|node| Some((node, nodes.cores(node)?)))
                .collect(),
            of_cores: RefCell::default(),
            known: RefCell::default(),
        }
    }

    /// Nodes in service with so many cores.
    fn in_service_with(&self, wanted: u16) -> Held {
        let look = || self.with_cores(&self.in_service, wanted);
        let mut of_cores = self.of_cores.borrow_mut();
        of_cores.entry(wanted).or_insert_with(look).clone()
    }

    /// Those of `may` with so many cores, as far as that is known.
    fn with_cores(&self, may: &Held, wanted: u16) -> Held {
        let is_small = |node: &u32| self.cores.get(node).is_some_and(|cores| *cores < wanted);
        if wanted == 0 || !may.iter().any(is_small) {
            return may.clone();
        }
        Held::new(may.iter().filter(|node| !is_small(node)).copied().collect())
    }

    /// The holders of its program for one that wants warm nodes alone, any for another, with the
    /// cores that it wants; but not those that crashed under it, while there are enough others.
    fn to(&self, job: &Job) -> Held {
        let look = || {
            let wanted = job.want.node_cores();
            let may = match job.want.warm_only {
                true => self.with_cores(&self.holders.held(&job.program.hash()), wanted),
                false => self.in_service_with(wanted),
            };
            job.want.elsewhere(&may, &job.avoided(), &self.awaited)
        };
        let mut known = self.known.borrow_mut();
        known.entry(job.info.id).or_insert_with(look).clone()
    }
}

/// Where a job was placed, for people; behind it what a checker of placements needs, for each
/// attempt.
fn placed_text(info: &JobInfo, tree: &Topology, nodes: &[u32]) -> String {
    let placement = info.placement.as_ref().expect("it was placed");
    let again = if info.restarts > 0 { " again" } else { "" };
    let mut leaves: Vec<u64> = nodes
        .iter()
        .map(|node| tree.switch_above(*node, 1))
        .collect();
    leaves.dedup();
    let leaves = match leaves[..] {
        [_] => "one leaf switch".to_string(),
        _ => format!("{} leaf switches", leaves.len()),
    };
    let certificate = &placement.certificate;
    let choice = certificate.strip_prefix("none: ").unwrap_or("optimal");
    let free = match &placement.free[..] {
        "" => String::new(),
        free => format!("free: {free}, "),
    };
    format!(
        "job {} placed{again} on {}, {leaves} ({choice}); {free}hops: {}, decision: {}",
        info.id, info.nodes, placement.hops, placement.decision,
    )
}

fn held_text(info: &JobInfo) -> String {
    format!("held; `hearth release {}` lets it start", info.id)
}

fn after_text(info: &JobInfo) -> String {
    let jobs = info.after.iter().map(|after| after.job.to_string());
    format!(
        "waits for the end of job {}",
        jobs.collect::<Vec<_>>().join(", ")
    )
}

/// Now, as the queue counts: in milliseconds since 1970.
fn unix_ms() -> u64 {
    clock::unix_us() / 1_000
}

/// Nodes in rank order: a hostlist when that is their order, else name by name.
fn rank_order(nodes: &[u32]) -> String {
    if nodes.windows(2).all(|pair| pair[0] < pair[1]) {
        hostlist::format(nodes)
    } else {
        nodes
            .iter()
            .map(|node| hostlist::name(*node))
            .collect::<Vec<_>>()
            .join(",")
    }
}
