//! The control node's state, and the one task that moves it: protocol endpoint, job runner, node
//! table, event log, ledger behind one lock; UDP socket and timers outside it, in [`crate::udp`].
//!
//! Key types: [`Shared`] (what the API and the boot service hold), [`Core`] (what the lock
//! guards), [`drive`] (the task). Neighbours: `netstack::control::Endpoint`, `jobs::Runner`,
//! `control_events` (turns what the endpoint reports into what the runner understands), `ledger`
//! (writes down what changed).
//!
//! Invariants: the lock is held for computing, for reading pages of programs from the file cache
//! and for writing to it, never across an await; whoever changes something ends with
//! [`Core::settle`] under the same lock, which writes it down before a client or node hears of it,
//! and calls [`Shared::kick`], so that the task sends what came of it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddrV4;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use netstack::control::Endpoint;
use netstack::ids::JobId;
use netstack::time::Instant;
use netstack::{broadcast, control as protocol, overlay};
use tokio::net::UdpSocket;
use tokio::sync::{Notify, watch};

use crate::api::types::JobState;
use crate::casts::{Casts, Outcome};
use crate::clock::Clock;
use crate::control_events::{self, EndpointFabric};
use crate::drops::{self, Drops};
use crate::events::{Event, EventLog, Severity};
use crate::history::History;
use crate::io_service::IoServices;
use crate::jobs::Runner;
use crate::jobs::kept::Outputs;
use crate::jobs::streams::Wakeups;
use crate::ledger::Ledger;
use crate::node_logs::NodeLogs;
use crate::nodes::NodeTable;
use crate::outgoing::Outgoing;
use crate::overlay::Overlay;
use crate::principal::Operator;
use crate::programs::ProgramStore;
use crate::tokens::Tokens;
use crate::udp;

/// How often nodes that joined with an old job are looked at, until they have dropped it.
const DRAIN_CHECK: Duration = Duration::from_millis(100);

/// Everything the lock guards.
pub struct Core {
    /// The control side of the protocol.
    pub endpoint: Endpoint,
    /// Queue and jobs.
    pub runner: Runner,
    /// Numbers of machines.
    pub table: NodeTable,
    /// What happened.
    pub events: EventLog,
    /// What is written down.
    pub ledger: Ledger,
    /// Who may ask over the network.
    pub tokens: Tokens,
    /// Boots that joined since control started, by node.
    pub boots: BTreeMap<u32, u64>,
    /// Milliseconds since 1970 at which the present boot of each node joined.
    pub joined_unix_ms: BTreeMap<u32, u64>,
    /// Nodes that joined with a job of an earlier run of control and have not dropped it yet.
    pub draining: BTreeSet<u32>,
    /// Joins to tell the boot service, once the lock is released.
    pub joined: Vec<Joined>,
    /// Nodes that were told to let go of programs.
    pub drops: Drops,
    /// What goes to many nodes at once.
    pub casts: Casts,
    /// The monitoring overlay.
    pub overlay: Overlay,
    /// Files of jobs.
    pub io_services: IoServices,
    /// What leaves once it is written down.
    pub outgoing: Outgoing,
    /// What the nodes' kernels have logged.
    pub node_logs: NodeLogs,
    /// Scheduling passes of this run.
    pub passes: Passes,
}

/// How many scheduling passes there were, and how long they took: with what is written down before
/// and after, which is as long as everybody else waits.
#[derive(Debug, Clone, Copy, Default)]
pub struct Passes {
    /// So many.
    pub count: u64,
    /// The last one, in microseconds.
    pub last_us: u64,
    /// The longest one.
    pub longest_us: u64,
    /// What those of the present step have taken so far.
    present: Duration,
}

impl Passes {
    /// The step's passes are over and written down.
    fn note(&mut self, took: Duration) {
        self.count += 1;
        self.present = Duration::ZERO;
        self.last_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.longest_us = self.longest_us.max(self.last_us);
    }
}

/// A boot that has joined.
#[derive(Debug, Clone, Copy)]
pub struct Joined {
    /// MAC address.
    pub mac: [u8; 6],
    /// Boot epoch.
    pub epoch: u64,
    /// Node number.
    pub node: u32,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Core").finish_non_exhaustive()
    }
}

/// How control ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// At once; jobs go on without it.
    Now,
    /// When no job has nodes any more.
    Drained,
}

/// How often it is looked whether jobs have ended that control waits for.
const STOP_LOOKS: std::time::Duration = std::time::Duration::from_millis(100);

/// The control state as tasks share it.
#[derive(Debug)]
pub struct Shared {
    core: Mutex<Core>,
    clock: Clock,
    kick: Notify,
    /// How control was asked to end.
    stop: watch::Sender<Option<Stop>>,
    /// Program files.
    pub programs: ProgramStore,
    /// What was written down.
    pub history: History,
    /// Output of batch jobs.
    pub outputs: Outputs,
}

impl Shared {
    /// Shares `core`.
    pub fn new(
        core: Core,
        clock: Clock,
        programs: ProgramStore,
        history: History,
        outputs: Outputs,
    ) -> Arc<Self> {
        Arc::new(Shared {
            core: Mutex::new(core),
            clock,
            kick: Notify::new(),
            stop: watch::Sender::new(None),
            programs,
            history,
            outputs,
        })
    }

    /// Control is to end. Once it is to end at once nobody can have it wait.
    pub fn ask_to_stop(&self, _: &Operator<'_>, stop: Stop) {
        self.stop.send_if_modified(|asked| {
            let is_news = *asked != Some(stop) && *asked != Some(Stop::Now);
            if is_news {
                *asked = Some(stop);
            }
            is_news
        });
        if stop == Stop::Drained {
            self.lock().runner.stop_starting();
        }
    }

    /// Completes when control may end, as it was asked to.
    pub async fn stop_asked(&self) {
        let mut asked = self.stop.subscribe();
        loop {
            match *asked.borrow_and_update() {
                Some(Stop::Now) => return,
                Some(Stop::Drained) if self.lock().runner.active().0.is_empty() => return,
                Some(Stop::Drained) | None => {}
            }
            // Of the end of jobs nobody tells.
            drop(tokio::time::timeout(STOP_LOOKS, asked.changed()).await);
        }
    }

    /// The state; to be released before anything is awaited.
    pub fn lock(&self) -> MutexGuard<'_, Core> {
        self.core
            .lock()
            .expect("a panic under the lock ends the process")
    }

    /// Protocol time.
    pub fn now(&self) -> Instant {
        Instant::from_micros(self.clock.now_us())
    }

    /// Has the task send what a change brought about.
    pub fn kick(&self) {
        self.kick.notify_one();
    }

    /// Changes jobs: runs `change` with the runner, the time in microseconds and the nodes.
    pub fn with_runner<T>(
        &self,
        change: impl FnOnce(&mut Runner, u64, &mut EndpointFabric<'_>) -> T,
    ) -> T {
        let now = self.now();
        let mut core = self.lock();
        let result = core.with_runner(now, change);
        core.settle(now);
        drop(core);
        self.kick();
        result
    }
}

impl Core {
    /// Numbers of the nodes that there are, ascending: listed, joined in an earlier run of control,
    /// or heard of in this one. These and no others can be named; `GET /v1/nodes` and the page have
    /// them all.
    pub fn known_nodes(&self) -> Vec<u32> {
        let listed = self.table.machines().map(|machine| machine.node);
        let heard = self.endpoint.nodes().map(|status| status.node.0);
        let known: BTreeSet<u32> = listed.chain(heard).collect();
        known.into_iter().collect()
    }

    /// Runs `change` with the runner, the time in microseconds and the nodes.
    pub fn with_runner<T>(
        &mut self,
        now: Instant,
        change: impl FnOnce(&mut Runner, u64, &mut EndpointFabric<'_>) -> T,
    ) -> T {
        let mut fabric = EndpointFabric {
            endpoint: &mut self.endpoint,
            warm: &self.ledger.warm,
            casts: &mut self.casts,
            io_services: &mut self.io_services,
            outgoing: &mut self.outgoing,
            now,
        };
        let (passes, begun) = (self.runner.passes(), std::time::Instant::now());
        let result = change(&mut self.runner, now.as_micros(), &mut fabric);
        if self.runner.passes() > passes {
            self.passes.present += begun.elapsed();
        }
        result
    }

    /// The end of a step: handles all events of the endpoint, keeps those for people, writes down
    /// what changed, and then tells clients of jobs that have ended.
    pub fn settle(&mut self, now: Instant) {
        while let Some(event) = self.endpoint.poll_event() {
            control_events::handle(self, now, event);
        }
        if self.runner.is_pass_due(now.as_micros()) {
            let begun = std::time::Instant::now();
            self.write_down(now);
            self.passes.present += begun.elapsed();
        }
        self.with_runner(now, |runner, now_us, fabric| runner.settle(now_us, fabric));
        self.settle_casts(now);
        self.overlay.settle(now, &self.endpoint);
        let begun = std::time::Instant::now();
        self.write_down(now);
        if self.passes.present > Duration::ZERO {
            self.passes.note(self.passes.present + begun.elapsed());
        }
        self.let_ranks_go(now);
        // A launch that fails makes other jobs start; that ends as the runner's passes do.
        while !self.outgoing.is_empty() {
            self.let_go(now);
            self.write_down(now);
        }
        self.settle_files();
        match self.ledger.failing() {
            None => self.runner.tell_ended(),
            Some(why) => self.runner.hold_back_ended(why),
        }
    }

    /// Ends the service for jobs that are over, and says whose files cannot be had.
    fn settle_files(&mut self) {
        let runner = &mut self.runner;
        self.io_services.keep(|job| runner.present(job).is_some());
        for event in self.io_services.take_events() {
            self.events.push(event);
        }
        while let Some(problem) = self.io_services.next_problem() {
            let id = runner.present(problem.job);
            if let Some(id) = id {
                runner.tell_trouble(id, &format!("calls on files failed: {}", problem.why));
            }
            let text = match id {
                Some(id) => format!("files of job {id}: {}", problem.why),
                None => format!("files of a job that is over: {}", problem.why),
            };
            let event = Event::new(Severity::Warning, "files-failed", text);
            self.events.push(match id {
                Some(id) => event.job(id),
                None => event,
            });
        }
    }

    /// The ends of ranks are written down: their nodes may forget them.
    fn let_ranks_go(&mut self, now: Instant) {
        if self.ledger.failing().is_some() {
            return;
        }
        for last in self.outgoing.last_replies.drain(..) {
            self.endpoint
                .io_reply(now, last.node, last.by, last.call, last.reply);
        }
    }

    /// What was decided is written down: nodes are told. Where it could not be, it is taken back.
    fn let_go(&mut self, now: Instant) {
        let Outgoing {
            launches,
            starts,
            withdrawn,
            last_replies,
        } = std::mem::take(&mut self.outgoing);
        self.outgoing.last_replies = last_replies;
        let is_written = self.ledger.failing().is_none();
        self.with_runner(now, |runner, now_us, fabric| {
            for job in withdrawn {
                runner.not_sent(now_us, fabric, job, None);
            }
            for launch in launches {
                let job = launch.job;
                if !is_written {
                    runner.take_back(job);
                } else if let Err(reason) = fabric.send_launch(launch) {
                    runner.not_sent(now_us, fabric, job, Some(reason));
                }
            }
            for job in starts {
                match is_written {
                    true => fabric.endpoint.start(now, job),
                    false => runner.start_later(job),
                }
            }
        });
    }

    /// Writes down what has changed.
    pub fn write_down(&mut self, now: Instant) {
        for event in self.overlay.take_events() {
            self.events.push(event);
        }
        for event in self.casts.take_events() {
            self.events.push(event);
        }
        for event in self.runner.take_events() {
            self.events.push(event);
        }
        for record in self.runner.take_records() {
            self.ledger.job(&record);
            let job = record.on_nodes.0;
            if record.attempt_over {
                self.casts.job_over(now, job);
                self.overlay.job_over(now, record.on_nodes);
            } else if record.info.state == JobState::Running && record.nodes.len() > 1 {
                // Off the way of the launch: the first rank runs.
                self.casts.cast_table(now, job, &record.nodes);
            }
        }
        // Behind the records: one of a job that has ended since takes these with it.
        for end in self.runner.take_rank_ends() {
            if self.runner.is_open(end.job) {
                self.ledger.rank_ended(&end);
            }
        }
        for (node, drained) in self.runner.take_drains() {
            self.ledger.drained(node, drained);
        }
        self.ledger.append(self.casts.take_changes());
        self.ledger.append(self.overlay.take_changes());
        self.ledger.append(self.tokens.take_changes());
        for event in self.events.take_unstored() {
            self.ledger.event(&event);
        }
        // An event about the ledger itself is written with the next step.
        if let Some(event) = self.ledger.commit(now.as_micros()) {
            self.events.push(event);
        }
        self.runner.hold_up(self.ledger.failing());
    }

    fn handle_datagram(&mut self, now: Instant, from: SocketAddrV4, datagram: &[u8]) {
        if broadcast::wire::is_cast(datagram) {
            self.casts.handle_datagram(now, from, datagram);
        } else if overlay::wire::is_overlay(datagram) {
            self.overlay.handle_datagram(now, from, datagram);
        } else {
            self.endpoint.handle_datagram(now, from, datagram);
        }
    }

    /// Has the runner hear how casts stand that jobs wait for.
    fn settle_casts(&mut self, now: Instant) {
        self.casts.settle(now);
        loop {
            let outcomes = self.casts.take_outcomes();
            if outcomes.is_empty() {
                return;
            }
            for outcome in outcomes {
                self.outcome(now, outcome);
            }
        }
    }

    fn outcome(&mut self, now: Instant, outcome: Outcome) {
        match outcome {
            Outcome::FilesHere(job) => self.with_runner(now, |runner, now_us, fabric| {
                runner.files_here(now_us, fabric, JobId(job));
            }),
            Outcome::FilesFailed(job, why) => self.with_runner(now, |runner, now_us, fabric| {
                runner.files_failed(now_us, fabric, JobId(job), &why);
            }),
            Outcome::Load { job, report, over } => {
                self.with_runner(now, |runner, now_us, fabric| {
                    runner.loaded(now_us, fabric, JobId(job), *report, over);
                });
            }
            Outcome::Drop(node, object) => {
                // Nobody waits for the answer; a node that is silent is told when it is back.
                drop(drops::ask(self, now, node, Some(object)));
            }
        }
    }

    /// Acts on deadlines and events and collects datagrams to send; gives the next deadline, in
    /// microseconds of the control clock.
    fn turn(&mut self, now: Instant, outbox: &mut udp::Outbox) -> u64 {
        if self
            .runner
            .next_deadline_us()
            .is_some_and(|deadline| deadline <= now.as_micros())
        {
            self.with_runner(now, |runner, now_us, fabric| runner.tick(now_us, fabric));
        }
        if !self.draining.is_empty() {
            self.check_draining(now);
        }
        self.settle(now);
        // Announcements of casts go before the launches that they are for. The source keeps to its
        // rate, so something is left for the endpoint.
        outbox.collect(|out| {
            let cast = self.casts.poll_transmit(now, out);
            let own = cast.or_else(|| self.endpoint.poll_transmit(now, out));
            own.or_else(|| self.overlay.poll_transmit(now, out))
        });
        self.settle(now);
        let endpoint = self.endpoint.poll_timeout().map(Instant::as_micros);
        let runner = self.runner.next_deadline_us();
        let draining = (!self.draining.is_empty())
            .then(|| now.as_micros() + u64::try_from(DRAIN_CHECK.as_micros()).expect("small"));
        let ledger = self.ledger.next_deadline_us();
        let casts = self.casts.poll_timeout().map(Instant::as_micros);
        let overlay = self.overlay.poll_timeout(now).map(Instant::as_micros);
        [endpoint, runner, draining, ledger, casts, overlay]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(u64::MAX)
    }

    /// Puts nodes into service that have dropped their old job.
    fn check_draining(&mut self, now: Instant) {
        let endpoint = &self.endpoint;
        let still = |node: &u32| {
            let status = endpoint.node(netstack::ids::NodeId(*node));
            status.is_some_and(|status| {
                status.state == protocol::NodeState::Up && status.vitals.job.is_some()
            })
        };
        let done: Vec<u32> = self
            .draining
            .iter()
            .copied()
            .filter(|node| !still(node))
            .collect();
        for node in done {
            self.draining.remove(&node);
            let up = self
                .endpoint
                .node(netstack::ids::NodeId(node))
                .is_some_and(|status| status.state == protocol::NodeState::Up);
            if up {
                self.with_runner(now, |runner, now_us, fabric| {
                    runner.node_up(now_us, fabric, node, false);
                });
            }
        }
    }
}

/// Receives, sends and keeps time until `stop` completes. `joined` hears of every boot that
/// joined.
///
/// # Errors
/// When the socket fails for good.
pub async fn drive(
    shared: Arc<Shared>,
    socket: UdpSocket,
    joined: impl Fn(Joined),
    stop: impl Future<Output = ()>,
) -> std::io::Result<()> {
    let wakeups = shared.lock().runner.wakeups();
    let clock = shared.clock;
    let mut engine = ControlEngine {
        shared,
        wakeups,
        joined,
    };
    udp::drive(&mut engine, &socket, clock, stop).await
}

/// The control state as the loop drives it.
struct ControlEngine<F> {
    shared: Arc<Shared>,
    wakeups: Arc<Wakeups>,
    joined: F,
}

impl<F: Fn(Joined)> udp::Engine for ControlEngine<F> {
    fn receive(&mut self, arrived: &mut udp::Arrived<'_>) {
        let Some((from, datagram)) = arrived.next() else {
            return;
        };
        let mut core = self.shared.lock();
        core.handle_datagram(self.shared.now(), from, datagram);
        while let Some((from, datagram)) = arrived.next() {
            core.handle_datagram(self.shared.now(), from, datagram);
        }
        core.settle(self.shared.now());
    }

    fn turn(&mut self, outbox: &mut udp::Outbox) -> u64 {
        let mut core = self.shared.lock();
        let next_us = core.turn(self.shared.now(), outbox);
        let joins = std::mem::take(&mut core.joined);
        drop(core);
        joins.into_iter().for_each(&self.joined);
        next_us
    }

    async fn woken(&mut self) {
        tokio::select! {
            () = self.shared.kick.notified() => {}
            () = self.wakeups.wait() => {
                let now = self.shared.now();
                let mut core = self.shared.lock();
                core.with_runner(now, |runner, now_us, fabric| {
                    runner.streams_changed(now_us, fabric);
                });
                core.settle(now);
            }
        }
    }
}
