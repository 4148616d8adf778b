//! Which jobs may start: the queue and its policies, as a state machine without a clock.
//!
//! The owner says what happens (a job was submitted, ended, was held ...) and what time it is, and
//! asks for a [`Queue::pass`] on arrival, end and node change. A pass starts what may start: it
//! chooses nodes by a [`Placing`], takes them from the [`Machine`], and says so. When a job ends
//! the owner gives its nodes back to the machine and tells the queue.
//!
//! Jobs are looked at in this order: those that have waited for longer than
//! [`Limits::overdue_after`], then by priority, each in the order in which they came. So with any
//! policy a job waits behind others of its priority or higher for a limited time only, then
//! behind those that came before it.
//!
//! | policy | what may go before the first job that does not fit |
//! |---|---|
//! | [`Policy::Published`] | nothing: the publication's window ([`window`]) |
//! | [`Policy::Fcfs`] | nothing |
//! | [`Policy::Easy`] | what does not delay its start, the shortest first ([`easy`]); the default |
//! | [`Policy::EasyInOrder`] | the same, in order |
//! | [`Policy::Conservative`] | what does not delay the start of any job before it ([`conservative`]) |
//!
//! Times are whole numbers of whatever the owner counts in (seconds in a replay).
//!
//! Key types: [`Queue`], [`Job`], [`Policy`], [`Start`]. Neighbours: [`crate::placing`],
//! [`crate::machine`].
//!
//! Invariant: a job is in one place only: queued or running; what waits does so for a reason that
//! [`Queue::reason`] tells.

mod conservative;
mod easy;
mod window;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use crate::machine::Machine;
use crate::placing::{Given, Placing, Wish};

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

/// What a job waits for before it may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dependency {
    /// The job that has to end first.
    pub job: JobNumber,
    /// It must have ended well; else this job waits until it is cancelled.
    pub must_succeed: bool,
}

/// A job in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Its number; rising in the order of arrival.
    pub number: JobNumber,
    /// Who submitted it.
    pub user: u32,
    /// Nodes.
    pub count: u32,
    /// How long it may run; none: without limit.
    pub walltime: Option<Time>,
    /// Higher goes first.
    pub priority: i32,
    /// When it was submitted.
    pub submitted: Time,
    /// Not to be started until released.
    pub is_held: bool,
    /// Jobs that must end first. Jobs that the queue does not know have ended.
    pub after: Vec<Dependency>,
}

impl Job {
    /// A plain job: no priority, no dependencies, not held.
    pub fn new(number: JobNumber, count: u32, walltime: Option<Time>, submitted: Time) -> Self {
        Job {
            number,
            user: 0,
            count,
            walltime,
            priority: 0,
            submitted,
            is_held: false,
            after: Vec::new(),
        }
    }
}

/// Bounds for users and for waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most jobs queued.
    pub queued: usize,
    /// Most jobs of one user that run.
    pub running_of_user: Option<u32>,
    /// Most nodes that the jobs of one user have.
    pub nodes_of_user: Option<u32>,
    /// A job that has waited for longer goes before all priorities.
    pub overdue_after: Time,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            queued: QUEUED_MAX,
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
    /// It waits for itself or for too many.
    #[error("a job waits for at most {DEPENDENCIES_MAX} others, and not for itself")]
    Dependencies,
}

/// Why a job waits, as the last pass saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// No pass has looked at it yet.
    New,
    /// It is held.
    Held,
    /// Jobs that it waits for have not ended.
    Dependency,
    /// A job that had to end well did not.
    DependencyFailed,
    /// Its user has as many running jobs or nodes as allowed.
    UserLimit,
    /// More nodes than are in service.
    TooLarge,
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
    has_failed_dependency: bool,
}

#[derive(Debug, Clone)]
struct Running {
    user: u32,
    count: u32,
    /// When its time is over.
    ends_by: Option<Time>,
}

/// Jobs that wait and jobs that run.
#[derive(Debug, Clone)]
pub struct Queue {
    policy: Policy,
    limits: Limits,
    waiting: BTreeMap<JobNumber, Waiting>,
    running: BTreeMap<JobNumber, Running>,
    counters: Counters,
}

impl Queue {
    /// An empty queue.
    pub fn new(policy: Policy, limits: Limits) -> Self {
        Queue {
            policy,
            limits,
            waiting: BTreeMap::new(),
            running: BTreeMap::new(),
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
        job.after.retain(|after| self.is_known(after.job));
        let waiting = Waiting {
            reason: Reason::New,
            has_failed_dependency: false,
            job,
        };
        self.waiting.insert(waiting.job.number, waiting);
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

    /// Takes a queued job out; jobs that had to come after it do not wait for it, unless it had to
    /// succeed.
    pub fn cancel(&mut self, number: JobNumber) -> Option<Job> {
        let waiting = self.waiting.remove(&number)?;
        self.settle(number, false);
        Some(waiting.job)
    }

    /// A running job has ended; its nodes are given back to the machine by the owner.
    pub fn ended(&mut self, number: JobNumber, has_succeeded: bool) {
        if self.running.remove(&number).is_some() {
            self.settle(number, has_succeeded);
        }
    }

    /// Those that waited for this job wait for it no longer.
    fn settle(&mut self, number: JobNumber, has_succeeded: bool) {
        for waiting in self.waiting.values_mut() {
            let is_bad =
                |after: &Dependency| after.job == number && after.must_succeed && !has_succeeded;
            waiting.has_failed_dependency |= waiting.job.after.iter().any(is_bad);
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
        order.extend(self.waiting.values().map(|Waiting { job, .. }| {
            let waited = now.saturating_sub(job.submitted);
            let is_overdue = waited > self.limits.overdue_after;
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
        warm: &dyn Fn(&Job) -> BTreeSet<u32>,
    ) -> Vec<Start> {
        self.counters.passes += 1;
        let mut pass = Pass {
            warm,
            candidates: self.candidates(now, machine),
            queue: self,
            machine,
            placing,
            now,
            starts: Vec::new(),
        };
        match pass.queue.policy {
            Policy::Published { window } => window::run(&mut pass, window),
            Policy::Fcfs => {
                pass.start_in_order();
            }
            Policy::Easy => easy::run(&mut pass, easy::Others::ShortestFirst),
            Policy::EasyInOrder => easy::run(&mut pass, easy::Others::InOrder),
            Policy::Conservative => conservative::run(&mut pass),
        }
        pass.starts
    }

    /// Jobs that may start but for nodes and the limits of their users, in order; the others get
    /// their reasons.
    fn candidates(&mut self, now: Time, machine: &Machine) -> Vec<JobNumber> {
        let most = machine.usable_units();
        let mut candidates = self.order(now);
        candidates.retain(|number| {
            let waiting = self.waiting.get_mut(number).expect("queued");
            waiting.reason = if waiting.job.is_held {
                Reason::Held
            } else if waiting.has_failed_dependency {
                Reason::DependencyFailed
            } else if !waiting.job.after.is_empty() {
                Reason::Dependency
            } else if machine.units_for(waiting.job.count) > most {
                Reason::TooLarge
            } else {
                Reason::Priority
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
            ends_by: job
                .walltime
                .map(|walltime| started.saturating_add(walltime)),
        };
        self.running.insert(job.number, running);
    }

    /// Whether the user of a job may have another of that size.
    fn is_within_limits(&self, job: &Job) -> bool {
        if self.limits.running_of_user.is_none() && self.limits.nodes_of_user.is_none() {
            return true;
        }
        let of_user = self
            .running
            .values()
            .filter(|running| running.user == job.user);
        let (jobs, nodes) = of_user.fold((0, 0), |sum, running| (sum.0 + 1, sum.1 + running.count));
        self.limits.running_of_user.is_none_or(|most| jobs < most)
            && self
                .limits
                .nodes_of_user
                .is_none_or(|most| nodes + job.count <= most)
    }
}

/// One scheduling pass.
struct Pass<'a> {
    queue: &'a mut Queue,
    machine: &'a mut Machine,
    placing: Placing,
    warm: &'a dyn Fn(&Job) -> BTreeSet<u32>,
    now: Time,
    /// Jobs that may start, in order.
    candidates: Vec<JobNumber>,
    starts: Vec<Start>,
}

impl Pass<'_> {
    fn job(&self, number: JobNumber) -> &Job {
        &self.queue.waiting[&number].job
    }

    fn wait(&mut self, number: JobNumber, reason: Reason) {
        let waiting = self.queue.waiting.get_mut(&number);
        waiting.expect("queued").reason = reason;
    }

    /// Whether the machine has nodes for a job.
    fn fits(&self, number: JobNumber) -> bool {
        self.placing.fits(self.machine, self.job(number).count)
    }

    /// Whether its user may have it; else it says why it waits, and others may go before it.
    fn is_within_limits(&mut self, number: JobNumber) -> bool {
        let is_within = self.queue.is_within_limits(self.job(number));
        if !is_within {
            self.wait(number, Reason::UserLimit);
        }
        is_within
    }

    /// Nodes for a job, if it fits.
    fn choose(&self, number: JobNumber) -> Option<Given> {
        let job = self.job(number);
        if !self.placing.fits(self.machine, job.count) {
            return None;
        }
        let wish = Wish {
            job: number,
            count: job.count,
            warm: &(self.warm)(job),
        };
        self.placing.choose(self.machine, &wish)
    }

    /// Starts a job on these nodes.
    fn start(&mut self, number: JobNumber, given: Given) {
        let waiting = self.queue.waiting.remove(&number);
        let job = waiting.expect("queued").job;
        self.machine.take(number, &given.nodes);
        self.queue.run(&job, self.now);
        self.starts.push(Start { job, given });
    }

    /// Starts jobs in order until one does not fit; its place in the order.
    fn start_in_order(&mut self) -> Option<usize> {
        for place in 0..self.candidates.len() {
            let number = self.candidates[place];
            if !self.is_within_limits(number) {
                continue;
            }
            match self.choose(number) {
                Some(given) => self.start(number, given),
                None => {
                    self.wait(number, Reason::Nodes);
                    return Some(place);
                }
            }
        }
        None
    }

    /// When a job that starts now has ended, at the latest.
    fn end_of(&self, number: JobNumber) -> Time {
        let walltime = self.job(number).walltime;
        walltime.map_or(Time::MAX, |walltime| self.now.saturating_add(walltime))
    }

    /// When each unit will be free, by unit; now for those that are. A job whose time is over
    /// ends in a moment.
    fn units_free_at(&self) -> Vec<Time> {
        let mut free_at = vec![self.now; self.machine.free_in_units().len()];
        for (number, nodes) in self.machine.jobs() {
            let running = self.queue.running.get(&number);
            let end = running.and_then(|running| running.ends_by);
            let end = end.unwrap_or(Time::MAX).max(self.now.saturating_add(1));
            for &node in nodes {
                let unit = &mut free_at[self.machine.unit_of(node)];
                *unit = end.max(*unit);
            }
        }
        for (unit, at) in free_at.iter_mut().enumerate() {
            let is_waited_for = *at > self.now;
            if !is_waited_for && self.machine.free_in_units()[unit] < self.machine.unit() {
                // Nodes out of service.
                *at = Time::MAX;
            }
        }
        free_at
    }
}

#[cfg(test)]
mod tests;
