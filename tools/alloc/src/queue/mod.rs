//! Which jobs may start: the queue and its policies, as a state machine without a clock.
//!
//! The owner says what happens (a job was submitted, ended, was held ...) and what time it is, and
//! asks for a [`Queue::pass`] on arrival, end and node change. A pass starts what may start: it
//! chooses nodes by a [`Placing`], takes them from the [`Machine`], and says so. When a job ends
//! the owner gives its nodes back to the machine and tells the queue.
//!
//! Jobs are looked at in this order: those that have waited for longer than
//! [`Limits::overdue_after`] (the time for which a job is held is no waiting), then by priority,
//! each in the order in which they came. So with any policy a job waits behind others of its
//! priority or higher for a limited time only, then behind those that came before it.
//!
//! | policy | what may go before the first job that does not fit |
//! |---|---|
//! | [`Policy::Published`] | nothing: the publication's window ([`window`]) |
//! | [`Policy::Fcfs`] | nothing |
//! | [`Policy::Easy`] | what does not delay its start, the shortest first ([`easy`]); the default |
//! | [`Policy::EasyInOrder`] | the same, in order |
//! | [`Policy::Conservative`] | what does not delay the start of any job before it ([`conservative`]) |
//!
//! A job can be tied to certain nodes ([`Tie`]): those that it names, those that hold its program,
//! or all but some, with others among them. While the others of them are not free it keeps those
//! that are: jobs behind it get none of them, and where the policy lets anything go before the
//! first job that does not fit, they go on without them. So it waits for jobs that run already and
//! for no others.
//!
//! Times are whole numbers of whatever the owner counts in (seconds in a replay).
//!
//! Key types: [`Queue`], [`Job`], [`Policy`], [`Start`]. Neighbours: [`crate::placement`],
//! [`crate::machine`].
//!
//! Invariant: a job is in one place only: queued or running; what waits does so for a reason that
//! [`Queue::reason`] tells.

mod coming;
mod conservative;
mod easy;
mod job;
mod pass;
mod window;

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;
use std::str::FromStr;

pub use job::{Array, Dependency, Held, Job, Tie};

use crate::machine::Machine;
use crate::placement::{Given, Placing};
use pass::Pass;

/// A point in time or a span of it.
pub type Time = u64;

/// Jobs in the published window, unless said otherwise.
pub const WINDOW_DEFAULT: usize = 4;

/// Most jobs of one queue: a pass looks at each of them.
pub const QUEUED_MAX: usize = 100_000;

/// Most jobs that one job waits for.
pub const DEPENDENCIES_MAX: usize = 64;

/// The job's number.
pub type JobNumber = u64;

/// When jobs may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// The publication's scheduling pass, with a window of so many jobs.
    Published {
        /// Njob.
        window: usize,
    },
    /// First come, first served.
    Fcfs,
    /// EASY backfill: one reservation, for the first job that does not fit; of the others the
    /// shortest first.
    Easy,
    /// The same with the others in their order.
    EasyInOrder,
    /// Conservative backfill: a reservation for each job, up to a limit.
    Conservative,
}

/// All policies by name, for the command line.
pub const POLICY_NAMES: [&str; 5] = ["published", "fcfs", "easy", "easy-in-order", "conservative"];

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Policy::Published { .. } => "published",
            Policy::Fcfs => "fcfs",
            Policy::Easy => "easy",
            Policy::EasyInOrder => "easy-in-order",
            Policy::Conservative => "conservative",
        })
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Ok(match name {
            "published" => Policy::Published {
                window: WINDOW_DEFAULT,
            },
            "fcfs" => Policy::Fcfs,
            "easy" => Policy::Easy,
            "easy-in-order" => Policy::EasyInOrder,
            "conservative" => Policy::Conservative,
            _ => {
                let names = POLICY_NAMES.join(", ");
                return Err(format!("{name:?} is no queue policy; there are: {names}"));
            }
        })
    }
}

/// Bounds for users and for waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most jobs queued.
    pub queued: usize,
    /// Most jobs that run.
    pub running: usize,
    /// Most jobs of one user that run.
    pub running_of_user: Option<u32>,
    /// Most nodes that the jobs of one user have.
    pub nodes_of_user: Option<u32>,
    /// A job that has waited for longer goes before all priorities. For how long it was held is
    /// counted from pass to pass, and not as waiting.
    pub overdue_after: Time,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            queued: QUEUED_MAX,
            running: usize::MAX,
            running_of_user: None,
            nodes_of_user: None,
            // A week, in seconds.
            overdue_after: 7 * 24 * 3_600,
        }
    }
}

/// Why a job was not taken into the queue.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The queue is full.
    #[error("{0} jobs are queued, which is the limit; submit it again when some have started")]
    Full(usize),
    /// Nothing to run on.
    #[error("a job has at least one node")]
    NoNodes,
    /// The number is taken.
    #[error("there is a job {0} already")]
    Known(JobNumber),
    /// It names another number of nodes than it has, or one twice.
    #[error("a job names as many nodes as it has, each once, and none that it excludes")]
    Tie,
    /// It waits for itself or for too many.
    #[error("a job waits for at most {DEPENDENCIES_MAX} others, and not for itself")]
    Dependencies,
}

/// Why a job waits, as the last pass saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// No pass has looked at it yet.
    New,
    /// It is held.
    Held,
    /// Jobs that it waits for have not ended.
    Dependency,
    /// A job that had to end well did not.
    DependencyFailed,
    /// Its user has as many running jobs as allowed.
    UserJobs,
    /// Its user would have more nodes than allowed.
    UserNodes,
    /// As many jobs of its array run as may at a time.
    ArrayJobs,
    /// More nodes than are in service.
    TooLarge,
    /// Nodes that it names are not in service.
    NodesOut,
    /// There are not enough free nodes.
    Nodes,
    /// Jobs before it go first.
    Priority,
}

/// A job that starts now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// The job.
    pub job: Job,
    /// Its nodes.
    pub given: Given,
    /// Free nodes that it could not have, since jobs before it keep them ([`Tie`]).
    pub kept: Vec<u32>,
}

/// A queued job, as the last pass left it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View<'a> {
    /// Its number.
    pub number: JobNumber,
    /// Why it waits.
    pub reason: Reason,
    /// When it starts at the latest, where that is reserved for it.
    pub reserved: Option<Time>,
    /// Jobs that it waits for.
    pub after: &'a [Dependency],
}

/// How often something happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Passes.
    pub passes: u64,
    /// Jobs that started before one that came first.
    pub backfilled: u64,
    /// Windows that hold enough nodes for their jobs, but not enough units: the published test
    /// would have let them pass.
    pub windows_short_of_units: u64,
}

#[derive(Debug, Clone)]
struct Waiting {
    job: Job,
    reason: Reason,
    /// When it starts at the latest, by the last pass.
    reserved: Option<Time>,
    has_failed_dependency: bool,
    /// How long it was held, until it was last released.
    held: Time,
    /// When a pass first saw it held, if it is or was until now.
    held_since: Option<Time>,
}

impl Waiting {
    /// How long it has waited, without the time for which it was held.
    fn waited(&self, now: Time) -> Time {
        let until = self.held_since.unwrap_or(now);
        until
            .saturating_sub(self.job.submitted)
            .saturating_sub(self.held)
    }

    /// A pass sees whether it is held.
    fn see_held(&mut self, now: Time) {
        if self.job.is_held {
            self.held_since.get_or_insert(now);
        } else if let Some(since) = self.held_since.take() {
            self.held += now.saturating_sub(since);
        }
    }
}

#[derive(Debug, Clone)]
struct Running {
    user: u32,
    count: u32,
    /// The first job of its array, where that has a bound.
    array: Option<JobNumber>,
    /// When its time is over.
    ends_by: Option<Time>,
}

/// Jobs that wait and jobs that run.
#[derive(Debug, Clone)]
pub struct Queue {
    policy: Policy,
    limits: Limits,
    waiting: BTreeMap<JobNumber, Waiting>,
    /// Waiting jobs by the jobs that they wait for.
    dependents: BTreeSet<(JobNumber, JobNumber)>,
    /// Waiting jobs with a failed dependency.
    hopeless: BTreeSet<JobNumber>,
    running: BTreeMap<JobNumber, Running>,
    /// Running jobs and their nodes by user.
    users: BTreeMap<u32, (u32, u32)>,
    /// Running jobs by array.
    arrays: BTreeMap<JobNumber, u32>,
    counters: Counters,
}

impl Queue {
    /// An empty queue.
    pub fn new(policy: Policy, limits: Limits) -> Self {
        Queue {
            policy,
            limits,
            waiting: BTreeMap::new(),
            dependents: BTreeSet::new(),
            hopeless: BTreeSet::new(),
            running: BTreeMap::new(),
            users: BTreeMap::new(),
            arrays: BTreeMap::new(),
            counters: Counters::default(),
        }
    }

    /// Takes a job in.
    ///
    /// # Errors
    /// [`SubmitError`]: it is not in the queue.
    pub fn submit(&mut self, mut job: Job) -> Result<(), SubmitError> {
        if self.waiting.len() >= self.limits.queued {
            return Err(SubmitError::Full(self.waiting.len()));
        }
        if job.count == 0 {
            return Err(SubmitError::NoNodes);
        }
        if self.is_known(job.number) {
            return Err(SubmitError::Known(job.number));
        }
        let waits_for_itself = job.after.iter().any(|after| after.job == job.number);
        if waits_for_itself || job.after.len() > DEPENDENCIES_MAX {
            return Err(SubmitError::Dependencies);
        }
        let count = job.count as usize;
        let is_sound = match &job.tie {
            Tie::None | Tie::Warm => true,
            Tie::Named(nodes) => nodes.len() == count && are_distinct(nodes),
            Tie::Among { with, without } => {
                let is_allowed = |node: &u32| !without.contains(node);
                with.len() <= count && are_distinct(with) && with.iter().all(is_allowed)
            }
        };
        if !is_sound {
            return Err(SubmitError::Tie);
        }
        job.after.retain(|after| self.is_known(after.job));
        let waiting = Waiting {
            reason: Reason::New,
            reserved: None,
            has_failed_dependency: false,
            held: 0,
            held_since: None,
            job,
        };
        let number = waiting.job.number;
        let after = waiting.job.after.iter();
        self.dependents
            .extend(after.map(|after| (after.job, number)));
        self.waiting.insert(number, waiting);
        Ok(())
    }

    /// Puts a job that was running before a restart into its place.
    pub fn adopt(&mut self, job: &Job, started: Time) {
        self.run(job, started);
    }

    /// Holds a queued job; whether there is one.
    pub fn hold(&mut self, number: JobNumber) -> bool {
        self.set_held(number, true)
    }

    /// Lets a held job start again; whether there is one.
    pub fn release(&mut self, number: JobNumber) -> bool {
        self.set_held(number, false)
    }

    fn set_held(&mut self, number: JobNumber, is_held: bool) -> bool {
        let waiting = self.waiting.get_mut(&number);
        waiting
            .map(|waiting| waiting.job.is_held = is_held)
            .is_some()
    }

    /// Gives a queued job another priority; whether there is one.
    pub fn set_priority(&mut self, number: JobNumber, priority: i32) -> bool {
        let waiting = self.waiting.get_mut(&number);
        waiting
            .map(|waiting| waiting.job.priority = priority)
            .is_some()
    }

    /// Takes a queued job out; jobs that had to come after it do not wait for it, unless it had to
    /// succeed.
    pub fn cancel(&mut self, number: JobNumber) -> Option<Job> {
        let job = self.take_out(number)?;
        self.settle(number, false);
        Some(job)
    }

    /// Takes a queued job out, without a word to those that wait for it.
    fn take_out(&mut self, number: JobNumber) -> Option<Job> {
        let waiting = self.waiting.remove(&number)?;
        for after in &waiting.job.after {
            self.dependents.remove(&(after.job, number));
        }
        self.hopeless.remove(&number);
        Some(waiting.job)
    }

    /// A running job has ended; its nodes are given back to the machine by the owner.
    pub fn ended(&mut self, number: JobNumber, has_succeeded: bool) {
        if self.withdraw(number) {
            self.settle(number, has_succeeded);
        }
    }

    /// A running job has stopped and will be submitted again: those that wait for it go on
    /// waiting. Whether there is one.
    pub fn withdraw(&mut self, number: JobNumber) -> bool {
        let Some(running) = self.running.remove(&number) else {
            return false;
        };
        let of_user = self.users.get_mut(&running.user).expect("it runs");
        of_user.0 -= 1;
        of_user.1 -= running.count;
        if of_user.0 == 0 {
            self.users.remove(&running.user);
        }
        if let Some(first) = running.array {
            let of_array = self.arrays.get_mut(&first).expect("it runs");
            *of_array -= 1;
            if *of_array == 0 {
                self.arrays.remove(&first);
            }
        }
        true
    }

    /// Those that waited for this job wait for it no longer.
    fn settle(&mut self, number: JobNumber, has_succeeded: bool) {
        let mut of_it = self.dependents.split_off(&(number, JobNumber::MIN));
        if let Some(next) = number.checked_add(1) {
            let mut others = of_it.split_off(&(next, JobNumber::MIN));
            self.dependents.append(&mut others);
        }
        let is_bad =
            |after: &Dependency| after.job == number && after.must_succeed && !has_succeeded;
        for (_, dependent) in of_it {
            let waiting = self.waiting.get_mut(&dependent).expect("it waits");
            if waiting.job.after.iter().any(is_bad) {
                waiting.has_failed_dependency = true;
                self.hopeless.insert(dependent);
            }
            waiting.job.after.retain(|after| after.job != number);
        }
    }

    /// Running jobs whose time is over, to be ended by the owner.
    pub fn over_time(&self, now: Time) -> Vec<JobNumber> {
        let is_over = |running: &Running| running.ends_by.is_some_and(|end| end <= now);
        let over = self.running.iter().filter(|(_, running)| is_over(running));
        over.map(|(number, _)| *number).collect()
    }

    /// When the time of the next running job is over.
    pub fn next_time_out(&self) -> Option<Time> {
        self.running
            .values()
            .filter_map(|running| running.ends_by)
            .min()
    }

    /// Why a queued job waits.
    pub fn reason(&self, number: JobNumber) -> Option<Reason> {
        Some(self.waiting.get(&number)?.reason)
    }

    /// When a queued job starts at the latest, where the last pass has reserved that for it.
    pub fn reserved(&self, number: JobNumber) -> Option<Time> {
        self.waiting.get(&number)?.reserved
    }

    /// Jobs that a queued job waits for.
    pub fn after(&self, number: JobNumber) -> &[Dependency] {
        let waiting = self.waiting.get(&number);
        waiting.map_or(&[], |waiting| waiting.job.after.as_slice())
    }

    /// Queued jobs that will not start, since one that had to end well did not.
    pub fn hopeless(&self) -> Vec<JobNumber> {
        self.hopeless.iter().copied().collect()
    }

    /// Queued jobs and why they wait, by number.
    pub fn waiting(&self) -> impl Iterator<Item = View<'_>> {
        self.waiting.values().map(|waiting| View {
            number: waiting.job.number,
            reason: waiting.reason,
            reserved: waiting.reserved,
            after: &waiting.job.after,
        })
    }

    /// Queued jobs, by number.
    pub fn queued(&self) -> impl Iterator<Item = &Job> {
        self.waiting.values().map(|waiting| &waiting.job)
    }

    /// How many jobs are queued.
    pub fn queued_count(&self) -> usize {
        self.waiting.len()
    }

    /// How many jobs run.
    pub fn running_count(&self) -> usize {
        self.running.len()
    }

    /// What happened so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The order in which queued jobs are looked at.
    pub fn order(&self, now: Time) -> Vec<JobNumber> {
        let mut order: Vec<(bool, i32, Time, JobNumber)> = Vec::with_capacity(self.waiting.len());
        order.extend(self.waiting.values().map(|waiting| {
            let is_overdue = waiting.waited(now) > self.limits.overdue_after;
            let job = &waiting.job;
            let priority = if is_overdue { 0 } else { job.priority };
            (is_overdue, priority, job.submitted, job.number)
        }));
        order.sort_unstable_by(|a, b| {
            let by_rank = (b.0, b.1).cmp(&(a.0, a.1));
            by_rank.then((a.2, a.3).cmp(&(b.2, b.3)))
        });
        order.into_iter().map(|(.., number)| number).collect()
    }

    /// Starts what may start now; takes the nodes from the machine. `warm` says which nodes hold
    /// the program of a job that is about to start.
    pub fn pass(
        &mut self,
        now: Time,
        machine: &mut Machine,
        placing: Placing,
        warm: &dyn Fn(&Job) -> Held,
    ) -> Vec<Start> {
        self.counters.passes += 1;
        let mut pass = Pass {
            candidates: self.candidates(now, machine, placing, warm),
            warm,
            queue: self,
            machine,
            placing,
            now,
            kept: Vec::new(),
            tied: Vec::new(),
            kept_sets: BTreeMap::new(),
            starts: Vec::new(),
        };
        match pass.queue.policy {
            Policy::Published { window } => window::run(&mut pass, window),
            Policy::Fcfs => {
                pass.start_in_order(pass::Tied::HoldsUp);
            }
            Policy::Easy => easy::run(&mut pass, easy::Others::ShortestFirst),
            Policy::EasyInOrder => easy::run(&mut pass, easy::Others::InOrder),
            Policy::Conservative => conservative::run(&mut pass),
        }
        pass.end()
    }

    /// Jobs that may start but for nodes and the limits of their users, in order; the others get
    /// their reasons.
    fn candidates(
        &mut self,
        now: Time,
        machine: &Machine,
        placing: Placing,
        warm: &dyn Fn(&Job) -> Held,
    ) -> Vec<JobNumber> {
        let most = machine.usable_units();
        // By count, so that the units are looked at once for each.
        let mut fit_a_part: BTreeMap<u32, bool> = BTreeMap::new();
        let mut in_service: BTreeMap<*const BTreeSet<u32>, (Held, usize)> = BTreeMap::new();
        let all_in_service: OnceCell<usize> = OnceCell::new();
        for waiting in self.waiting.values_mut() {
            waiting.see_held(now);
        }
        let mut candidates = self.order(now);
        candidates.retain(|number| {
            let waiting = self.waiting.get_mut(number).expect("queued");
            waiting.reserved = None;
            let job = &waiting.job;
            waiting.reason = if job.is_held {
                Reason::Held
            } else if waiting.has_failed_dependency {
                Reason::DependencyFailed
            } else if !job.after.is_empty() {
                Reason::Dependency
            } else {
                match &job.tie {
                    Tie::None
                        if machine.units_for(job.count) > most
                            && !*fit_a_part
                                .entry(job.count)
                                .or_insert_with(|| placing.fits_a_part(machine, job.count)) =>
                    {
                        Reason::TooLarge
                    }
                    Tie::Named(nodes) if !nodes.iter().all(|node| machine.is_in_service(*node)) => {
                        Reason::NodesOut
                    }
                    Tie::Among { with, .. }
                        if !with.iter().all(|node| machine.is_in_service(*node)) =>
                    {
                        Reason::NodesOut
                    }
                    Tie::Among { without, .. } => {
                        let is_in = |node: &&u32| machine.is_in_service(**node);
                        let out = without.iter().filter(is_in).count();
                        let all = all_in_service.get_or_init(|| machine.nodes_in_service());
                        match all - out < job.count as usize {
                            true => Reason::TooLarge,
                            false => Reason::Priority,
                        }
                    }
                    Tie::Warm => {
                        let held = warm(job);
                        let (_, holders) =
                            in_service.entry(Rc::as_ptr(&held)).or_insert_with(|| {
                                let is_in = |node: &&u32| machine.is_in_service(**node);
                                let holders = held.iter().filter(is_in).count();
                                (held.clone(), holders)
                            });
                        match *holders < job.count as usize {
                            true => Reason::TooLarge,
                            false => Reason::Priority,
                        }
                    }
                    _ => Reason::Priority,
                }
            };
            waiting.reason == Reason::Priority
        });
        candidates
    }

    fn is_known(&self, number: JobNumber) -> bool {
        self.waiting.contains_key(&number) || self.running.contains_key(&number)
    }

    fn run(&mut self, job: &Job, started: Time) {
        let running = Running {
            user: job.user,
            count: job.count,
            array: job.array.map(|array| array.first),
            ends_by: job
                .walltime
                .map(|walltime| started.saturating_add(walltime)),
        };
        let of_user = self.users.entry(job.user).or_default();
        of_user.0 += 1;
        of_user.1 += job.count;
        if let Some(first) = running.array {
            *self.arrays.entry(first).or_default() += 1;
        }
        self.running.insert(job.number, running);
    }

    /// What keeps another job of that size from running, beside nodes, if these start, too; nothing
    /// if it may.
    fn limit_beside(&self, job: &Job, others: &[JobNumber]) -> Option<Reason> {
        let (mut jobs, mut nodes) = self.users.get(&job.user).copied().unwrap_or_default();
        for other in others {
            let other = &self.waiting[other].job;
            if other.user == job.user {
                jobs += 1;
                nodes = nodes.saturating_add(other.count);
            }
        }
        let is_over = |most: Option<u32>, sum: u32| most.is_some_and(|most| sum > most);
        if is_over(self.limits.running_of_user, jobs + 1) {
            return Some(Reason::UserJobs);
        }
        if is_over(self.limits.nodes_of_user, nodes.saturating_add(job.count)) {
            return Some(Reason::UserNodes);
        }
        if let Some(array) = job.array {
            let is_of_it = |other: &&JobNumber| {
                let other = self.waiting[*other].job.array;
                other.is_some_and(|other| other.first == array.first)
            };
            let beside = others.iter().filter(is_of_it).count() as u32;
            let running = self.arrays.get(&array.first).copied().unwrap_or(0);
            if running + beside >= array.at_once {
                return Some(Reason::ArrayJobs);
            }
        }
        let running = self.running.len() + others.len();
        (running >= self.limits.running).then_some(Reason::Nodes)
    }
}

/// Whether each node is named once.
fn are_distinct(nodes: &[u32]) -> bool {
    let mut seen = BTreeSet::new();
    nodes.iter().all(|node| seen.insert(*node))
}

#[cfg(test)]
mod tests;
