//! The control node's endpoint: the registry of nodes, jobs, page service and I/O. Used by the
//! control node and by the simulator.
//!
//! See the crate documentation for the drain loop.

mod config;
mod event;
pub(crate) mod outbox;

use alloc::collections::BTreeSet;
use core::net::SocketAddrV4;

pub use config::{Config, Limits};
pub use event::{Event, LostReason, NodeState, NodeStatus};

use crate::control::outbox::{Outbox, Outgoing};
use crate::counters::Counters;
use crate::files::ChannelId;
use crate::files::server::Member;
use crate::ids::{BootEpoch, CallId, JobId, NodeId, ProgramId, Rank};
use crate::io::{IoReply, MAX_CALL_DATA};
use crate::job::control::Jobs;
use crate::job::{AdoptedRank, JobSpec, LaunchError};
use crate::join::farewell::Farewells;
use crate::join::registry::{Message, Registry};
use crate::page::PageReply;
use crate::page::server::PageServer;
use crate::retention::control::Drops;
use crate::rng::Rng;
use crate::time::{Instant, Micros};
use crate::wire::Error;
use crate::wire::datagram::Kind;
use crate::wire::io as io_wire;
use crate::wire::job::{Command, CommandAck};
use crate::wire::key::Key;
use crate::wire::log::NodeLog;
use crate::wire::page::PageRead;
use crate::wire::retention::Holdings;

/// Why no key was issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyRefused {
    /// The boot's key is in use already: its HELLO has arrived, or it belongs to an earlier boot.
    Used,
    /// Boot epoch 0 is reserved for laboratory keys.
    BadEpoch,
}

/// Why a node was not asked to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaveRefused {
    /// It is not up.
    NotUp,
    /// It has this job.
    Busy(JobId),
}

/// Why a node was not told to drop a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropRefused {
    /// It is not up.
    NotUp,
    /// As many commands as a node can hold programs wait for it
    /// ([`crate::retention::HOLDINGS_MAX`]).
    TooMany,
}

/// The control node's end of the protocol.
#[derive(Debug)]
pub struct Endpoint {
    registry: Registry,
    jobs: Jobs,
    farewells: Farewells,
    drops: Drops,
    pages: PageServer,
    rng: Rng,
    outbox: Outbox,
}

impl Endpoint {
    /// An endpoint with an empty registry.
    pub fn new(config: Config) -> Self {
        Endpoint {
            jobs: Jobs::new(config.limits.jobs),
            farewells: Farewells::default(),
            drops: Drops::default(),
            pages: PageServer::new(config.limits.page_bytes),
            rng: Rng::new(config.seed),
            outbox: Outbox::default(),
            registry: Registry::new(config),
        }
    }

    /// The key for a personality. Repeats before the boot's HELLO arrived get the same key; after
    /// that it counts as used, the request is refused and `KeyReused` comes. A restarted control
    /// node learns which keys are used as the nodes say HELLO again.
    pub fn issue_key(
        &mut self,
        _now: Instant,
        mac: [u8; 6],
        epoch: BootEpoch,
        node: NodeId,
    ) -> Result<Key, KeyRefused> {
        if epoch == BootEpoch(0) {
            return Err(KeyRefused::BadEpoch);
        }
        if self.registry.is_used(mac, epoch) {
            if !self.outbox.events_are_full() {
                self.outbox.event(Event::KeyReused { mac, epoch });
            }
            return Err(KeyRefused::Used);
        }
        let config = self.registry.config();
        Ok(Key(config.cluster_secret).node_key(config.key_id, mac, epoch, node))
    }

    /// Only these machines may join from now on, whatever keys others have; none: any machine.
    pub fn admit_only(&mut self, machines: Option<BTreeSet<[u8; 6]>>) {
        self.registry.machines.admit_only(machines);
    }

    /// One more machine may join.
    pub fn admit(&mut self, mac: [u8; 6]) {
        self.registry.machines.admit(mac);
    }

    /// A boot has been a node of this cluster, as an earlier run of the control node wrote down:
    /// to be told in the order in which they joined.
    pub fn remember_boot(&mut self, mac: [u8; 6], boot: BootEpoch) {
        self.registry.used.joined(mac, boot);
    }

    /// The boots of a machine before the one that joined last, the oldest first: at most
    /// [`EARLIER_MAX`](crate::join::boots::EARLIER_MAX).
    pub fn earlier_boots(&self, mac: [u8; 6]) -> impl Iterator<Item = BootEpoch> + '_ {
        self.registry.used.earlier(mac)
    }

    /// Takes a datagram. Bad input is counted.
    pub fn handle_datagram(&mut self, now: Instant, from: SocketAddrV4, datagram: &[u8]) {
        self.outbox.counters.received += 1;
        if self.outbox.events_are_full() {
            self.outbox.counters.overloaded += 1;
            return;
        }
        let message = self.registry.receive(now, from, datagram, &mut self.outbox);
        self.settle_losses();
        if let Some(message) = message
            && self.message(now, message).is_err()
        {
            self.outbox.counters.bad_payload += 1;
        }
    }

    fn message(&mut self, now: Instant, message: Message<'_>) -> Result<(), Error> {
        let Message {
            node,
            kind,
            payload,
        } = message;
        match kind {
            Kind::Heartbeat => {
                let vitals = crate::wire::join::parse_heartbeat(payload);
                if let Some(boot) = self.registry.boot(node) {
                    self.jobs.heard(now, node, boot);
                }
                if let Some(job) = vitals.ok().and_then(|(vitals, _)| vitals.job) {
                    self.jobs.reported(now, node, job);
                }
            }
            Kind::CommandAck => match CommandAck::parse(payload)? {
                CommandAck::Job(ack) => {
                    self.jobs
                        .acknowledge(now, node, &ack, &mut self.rng, &mut self.outbox);
                }
                CommandAck::Claimed(ack) => {
                    self.jobs.claimed(now, node, &ack, &mut self.outbox);
                }
                CommandAck::Dropped(ack) => {
                    self.drops.acknowledge(now, node, ack, &mut self.outbox);
                }
            },
            Kind::Holdings => {
                let report = Holdings::parse(payload)?;
                self.registry.holdings(node, report, &mut self.outbox);
            }
            Kind::NodeLog => {
                let report = NodeLog::parse(payload)?;
                self.registry.log_lines(node, &report, &mut self.outbox);
            }
            Kind::PageRead => {
                let read = PageRead::parse(payload)?;
                if let Some(wanted) = self.jobs.page_read(now, node, &read) {
                    self.outbox.event(Event::PageWanted(wanted));
                }
            }
            Kind::IoCall => {
                let call = io_wire::IoCall::parse(payload)?;
                self.jobs.io_call(now, node, call, &mut self.outbox);
            }
            Kind::Stay => {
                let job = Some(crate::wire::join::parse_stay(payload)?);
                if self.farewells.settle(node) {
                    self.outbox.event(Event::NodeStays { node, job });
                }
            }
            _ => self.outbox.counters.bad_kind += 1,
        }
        Ok(())
    }

    /// Tells the jobs about nodes that are gone.
    fn settle_losses(&mut self) {
        while let Some((node, reason)) = self.outbox.lost.pop_front() {
            self.farewells.settle(node);
            self.drops.node_gone(node);
            self.jobs.node_gone(node, reason, &mut self.outbox);
        }
    }

    /// The next datagram to send: where to, and its length, written to the front of `out`, which
    /// must have [`crate::MAX_DATAGRAM`] bytes. Also acts on deadlines that have passed, so it may
    /// give new events.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut [u8]) -> Option<(SocketAddrV4, usize)> {
        self.registry.handle_timeouts(now, &mut self.outbox);
        self.settle_losses();
        self.farewells
            .handle_timeouts(now, &mut self.rng, &mut self.outbox);
        self.jobs
            .handle_timeouts(now, &mut self.rng, &mut self.outbox);
        self.drops
            .handle_timeouts(now, &mut self.rng, &mut self.outbox);
        while let Some(datagram) = self.outbox.next_ready() {
            if let Some(sent) = self.emit(now, &datagram, out) {
                self.outbox.counters.sent += 1;
                return Some(sent);
            }
        }
        let registry = &mut self.registry;
        while !self.pages.is_empty() {
            let sent = self.pages.next(|node, data| {
                registry.seal(node, Kind::PageData, out, |writer| data.emit(writer))
            });
            if let Some(sent) = sent.flatten() {
                self.outbox.counters.sent += 1;
                return Some(sent);
            }
        }
        None
    }

    fn emit(
        &mut self,
        now: Instant,
        datagram: &Outgoing,
        out: &mut [u8],
    ) -> Option<(SocketAddrV4, usize)> {
        match datagram {
            Outgoing::Command { node, job } => {
                let mut command = self.jobs.wanted(*node, *job)?;
                if let Command::Launch { wrapped_key, .. } = &mut command {
                    *wrapped_key = {
                        let submitted_us = self.jobs.submitted_us(*job)?;
                        self.registry.wrap_job_key(*node, *job, submitted_us)?
                    };
                }
                self.registry
                    .seal(*node, Kind::Command, out, |writer| command.emit(writer))
            }
            Outgoing::Drop { node } => {
                let command = self.drops.wanted(*node)?;
                self.registry
                    .seal(*node, Kind::Command, out, |writer| command.emit(writer))
            }
            Outgoing::IoReply {
                node,
                job,
                rank,
                call,
            } => {
                let (rank, answer) = self.jobs.io_answer(*node, *job, *rank, *call)?;
                let done = answer.map(|reply| io_wire::Done {
                    result: reply.result,
                    data: &reply.data,
                });
                let reply = io_wire::IoReply {
                    job: *job,
                    rank,
                    call: *call,
                    done,
                };
                self.registry
                    .seal(*node, Kind::IoReply, out, |writer| reply.emit(writer))
            }
            _ => self.registry.emit(now, datagram, out),
        }
    }

    /// When to call [`Self::poll_transmit`] again without other cause; a time that has passed
    /// means at once.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.outbox.has_ready() || !self.pages.is_empty() {
            return Some(Instant::ZERO);
        }
        [
            self.registry.poll_timeout(),
            self.farewells.poll_timeout(),
            self.jobs.poll_timeout(),
            self.drops.poll_timeout(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.outbox.next_event()
    }

    /// The registry, in the order of node numbers.
    pub fn nodes(&self) -> impl Iterator<Item = NodeStatus> + '_ {
        self.registry.statuses().map(|status| self.with_job(status))
    }

    /// The registry's view of one node.
    pub fn node(&self, node: NodeId) -> Option<NodeStatus> {
        self.registry
            .status(node)
            .map(|status| self.with_job(status))
    }

    /// What an I/O service must know of a rank on a node to carry out its calls on files; `None`
    /// while nothing is known of the node.
    pub fn files_member(&self, node: NodeId, channel: ChannelId) -> Option<Member> {
        self.registry.files_member(node, channel)
    }

    fn with_job(&self, status: NodeStatus) -> NodeStatus {
        NodeStatus {
            job: self.jobs.job_of(status.node),
            ..status
        }
    }

    /// Launches a job: every node gets LAUNCH, and for each `LaunchReady`, `LaunchRefused` or
    /// `RankLost` follows. A place with `retain` gets RETAIN before, and `Retained` precedes the
    /// rest. With [`crate::job::StartMode::AtOnce`] there is no `LaunchReady`: `Started` says that
    /// the program is loaded and runs.
    pub fn launch(&mut self, now: Instant, spec: JobSpec) -> Result<(), LaunchError> {
        let node_limit = self.registry.config().limits.nodes;
        self.jobs.launch(
            now,
            spec,
            |node| self.registry.is_up(node) && !self.farewells.is_asked(node),
            node_limit,
        )
    }

    /// Goes on with a job that an earlier run of the control node launched; `ranks` says of each
    /// rank of `spec` how it stands, `begun` that all were told to start. When a node is heard
    /// of which a rank is open, it is asked for the job, and `Claimed` follows, or `RankLost`.
    /// Until then the node counts as having the job, whether it is up or not; whoever does not want
    /// to wait any longer says so with [`Self::abandon`].
    ///
    /// # Errors
    /// [`LaunchError`]; `BadSize` also when no rank is open.
    pub fn adopt(
        &mut self,
        spec: JobSpec,
        begun: bool,
        ranks: &[AdoptedRank],
    ) -> Result<(), LaunchError> {
        let node_limit = self.registry.config().limits.nodes;
        self.jobs.adopt(spec, begun, ranks, node_limit)
    }

    /// A node with an adopted rank is not waited for any longer; false, and nothing happens, if it
    /// has been heard. Should it come back with the job, it is told to drop it.
    pub fn abandon(&mut self, node: NodeId, job: JobId) -> bool {
        self.jobs.abandon(node, job, &mut self.outbox)
    }

    /// Asks a node to leave the cluster in good order and halt; it takes no job from now on.
    /// `NodeLeft` follows, `NodeStays`, or `NodeLost` if it falls silent. Asking again while that
    /// is under way changes nothing.
    pub fn ask_to_leave(&mut self, now: Instant, node: NodeId) -> Result<(), LeaveRefused> {
        if !self.registry.is_up(node) {
            return Err(LeaveRefused::NotUp);
        }
        if let Some(job) = self.jobs.job_of(node) {
            return Err(LeaveRefused::Busy(job));
        }
        self.farewells.ask(now, node);
        Ok(())
    }

    /// The machine of a node was switched off or reset, so that nobody need wait for its silence:
    /// `NodeLost` follows if it was up. What it sent before is still on its way, and may bring it
    /// back until its silence is noticed.
    pub fn switched_off(&mut self, now: Instant, node: NodeId) {
        if self.registry.is_up(node) {
            let reason = LostReason::Switched;
            self.registry.lose(now, node, reason, &mut self.outbox);
            self.settle_losses();
        }
    }

    /// Tells a node to drop what it holds of a program, or of all; returns the number of the
    /// command. It is repeated until `ProgramDropped` comes; when the node is lost before, or its
    /// session ends with a reboot, nothing comes and the command is forgotten.
    ///
    /// # Errors
    /// The node is not up, or too many such commands wait for it.
    pub fn drop_program(
        &mut self,
        now: Instant,
        node: NodeId,
        program: Option<ProgramId>,
    ) -> Result<u64, DropRefused> {
        if !self.registry.is_up(node) {
            return Err(DropRefused::NotUp);
        }
        self.drops.ask(now, node, program)
    }

    /// Starts all ranks that are ready, and the others as soon as they are.
    pub fn start(&mut self, now: Instant, job: JobId) {
        self.jobs.start(now, job);
    }

    /// Ends a job on all its nodes. Ranks that were loaded or running answer with an `Exit` call
    /// (status `Signal`), the others with `LaunchRefused` (`Cancelled`). With a `grace` (at most
    /// [`crate::wire::job::GRACE_MAX`]) running ranks get the signal first and may end as they want
    /// until the grace is over, then they are ended by SIGKILL. Repeating it with
    /// another signal replaces the first. A node that reports a job this endpoint does not know
    /// is told to drop it without any call from here.
    pub fn cancel(&mut self, now: Instant, job: JobId, signal: u8, grace: Micros) {
        self.jobs.cancel(now, job, signal, grace);
    }

    /// Delivers a signal (1 to 64) to every rank of a job that has not ended, once, in the order of
    /// the calls; to ranks that do not run yet when they do. A job that there is not gets none, and
    /// a rank for which 64 wait already no more.
    pub fn signal(&mut self, now: Instant, job: JobId, signal: u8) {
        self.jobs.signal(now, job, signal);
    }

    /// Answers a `PageWanted` event; later than the node's patience it is simply not needed.
    pub fn page_data(&mut self, _now: Instant, reply: PageReply) {
        self.pages.push(reply, &mut self.outbox.counters);
    }

    /// Answers an `IoCall` event; a call not answered stays pending and holds the program back.
    /// Unknown calls (the job is gone) are ignored. The reply to `Exit` ends the rank: give it
    /// last.
    ///
    /// Panics when more data is given than [`MAX_CALL_DATA`].
    pub fn io_reply(
        &mut self,
        _now: Instant,
        node: NodeId,
        (job, rank): (JobId, Rank),
        call: CallId,
        reply: IoReply,
    ) {
        assert!(
            reply.data.len() <= MAX_CALL_DATA,
            "a reply carries at most {MAX_CALL_DATA} bytes"
        );
        self.jobs
            .io_reply(node, (job, rank), call, reply, &mut self.outbox);
    }

    /// Counts of what was received, sent and refused.
    pub fn counters(&self) -> &Counters {
        &self.outbox.counters
    }
}
