//! The control node's state, and the one task that moves it: protocol endpoint, job runner, node
//! table, event log, ledger behind one lock; UDP socket and timers outside it.
//!
//! Key types: [`Shared`] (what the API and the boot service hold), [`Core`] (what the lock
//! guards), [`drive`] (the task). Neighbours: `netstack::control::Endpoint`, `jobs::Runner`,
//! `control_events` (turns what the endpoint reports into what the runner understands), `ledger`
//! (writes down what changed).
//!
//! Invariants: the lock is held for computing, for reading pages of programs from the file cache and
//! for writing to it, never across an await; whoever changes something ends with [`Core::settle`]
//! under the same lock, which writes it down before a client or node hears of it, and calls
//! [`Shared::kick`], so that the task sends what came of it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, SocketAddrV4};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use netstack::control::Endpoint;
use netstack::time::Instant;
use netstack::{MAX_DATAGRAM, control as protocol};
use tokio::net::UdpSocket;
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::control_events::{self, EndpointFabric};
use crate::drops::Drops;
use crate::events::EventLog;
use crate::history::History;
use crate::jobs::Runner;
use crate::ledger::Ledger;
use crate::nodes::NodeTable;
use crate::programs::ProgramStore;

/// Datagrams handled under one hold of the lock: long enough to be cheap, short enough that the
/// API does not wait.
const BATCH: usize = 128;

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

/// The control state as tasks share it.
#[derive(Debug)]
pub struct Shared {
    core: Mutex<Core>,
    clock: Clock,
    kick: Notify,
    /// Program files.
    pub programs: ProgramStore,
    /// What was written down.
    pub history: History,
}

impl Shared {
    /// Shares `core`.
    pub fn new(core: Core, clock: Clock, programs: ProgramStore, history: History) -> Arc<Self> {
        Arc::new(Shared {
            core: Mutex::new(core),
            clock,
            kick: Notify::new(),
            programs,
            history,
        })
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
    /// Runs `change` with the runner, the time in microseconds and the nodes.
    pub fn with_runner<T>(
        &mut self,
        now: Instant,
        change: impl FnOnce(&mut Runner, u64, &mut EndpointFabric<'_>) -> T,
    ) -> T {
        let mut fabric = EndpointFabric {
            endpoint: &mut self.endpoint,
            warm: &self.ledger.warm,
            now,
        };
        change(&mut self.runner, now.as_micros(), &mut fabric)
    }

    /// The end of a step: handles all events of the endpoint, keeps those for people, writes down
    /// what changed, and then tells clients of jobs that have ended.
    pub fn settle(&mut self, now: Instant) {
        while let Some(event) = self.endpoint.poll_event() {
            control_events::handle(self, now, event);
        }
        self.with_runner(now, |runner, now_us, fabric| runner.settle(now_us, fabric));
        for event in self.runner.take_events() {
            self.events.push(event);
        }
        for record in self.runner.take_records() {
            self.ledger.job(&record);
        }
        for event in self.events.take_unstored() {
            self.ledger.event(&event);
        }
        // An event about the ledger itself is written with the next step.
        if let Some(event) = self.ledger.commit(now.as_micros()) {
            self.events.push(event);
        }
        self.runner.tell_ended();
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
    let mut stop = std::pin::pin!(stop);
    let mut outbox = Outbox::default();
    loop {
        let more = turn(&shared, &mut outbox);
        for join in std::mem::take(&mut outbox.joined) {
            joined(join);
        }
        outbox.send(&socket).await?;
        if more {
            continue;
        }
        let deadline = shared.clock.instant(outbox.next_us);
        tokio::select! {
            () = &mut stop => return Ok(()),
            () = shared.kick.notified() => {}
            () = wakeups.wait() => {
                let now = shared.now();
                let mut core = shared.lock();
                core.with_runner(now, |runner, now_us, fabric| {
                    runner.streams_changed(now_us, fabric);
                });
                core.settle(now);
            }
            () = tokio::time::sleep_until(deadline) => {}
            readable = socket.readable() => {
                readable?;
                receive(&shared, &socket);
            }
        }
    }
}

/// Acts on deadlines and events and collects datagrams to send; says whether there may be more.
fn turn(shared: &Shared, outbox: &mut Outbox) -> bool {
    let now = shared.now();
    let mut core = shared.lock();
    let core = &mut *core;
    if core
        .runner
        .next_deadline_us()
        .is_some_and(|deadline| deadline <= now.as_micros())
    {
        core.with_runner(now, |runner, now_us, fabric| runner.tick(now_us, fabric));
    }
    if !core.draining.is_empty() {
        core.check_draining(now);
    }
    core.settle(now);
    while outbox.datagrams.len() < BATCH {
        let mut datagram = outbox.spare.pop().unwrap_or_else(|| vec![0; MAX_DATAGRAM]);
        match core.endpoint.poll_transmit(now, &mut datagram[..]) {
            Some((to, length)) => outbox.datagrams.push((to, length, datagram)),
            None => {
                outbox.spare.push(datagram);
                break;
            }
        }
    }
    core.settle(now);
    outbox.joined.append(&mut core.joined);
    let endpoint = core.endpoint.poll_timeout().map(Instant::as_micros);
    let runner = core.runner.next_deadline_us();
    let draining = (!core.draining.is_empty())
        .then(|| now.as_micros() + u64::try_from(DRAIN_CHECK.as_micros()).expect("small"));
    let ledger = core.ledger.next_deadline_us();
    outbox.next_us = [endpoint, runner, draining, ledger]
        .into_iter()
        .flatten()
        .min()
        .unwrap_or(u64::MAX);
    outbox.datagrams.len() == BATCH
}

/// Takes what has arrived.
fn receive(shared: &Shared, socket: &UdpSocket) {
    let mut buffer = [0; 2048];
    let mut core = shared.lock();
    for _ in 0..BATCH {
        match socket.try_recv_from(&mut buffer) {
            Ok((length, SocketAddr::V4(from))) => {
                let now = shared.now();
                core.endpoint.handle_datagram(now, from, &buffer[..length]);
            }
            Ok(_) => {}
            // Nothing more; or an ICMP error about an earlier datagram, which heartbeats cover.
            Err(_) => break,
        }
    }
    core.settle(shared.now());
}

type Datagram = (SocketAddrV4, usize, Vec<u8>);

/// Datagrams on their way from the endpoint to the socket.
#[derive(Default)]
struct Outbox {
    datagrams: Vec<Datagram>,
    spare: Vec<Vec<u8>>,
    joined: Vec<Joined>,
    next_us: u64,
}

impl Outbox {
    async fn send(&mut self, socket: &UdpSocket) -> std::io::Result<()> {
        for (to, length, datagram) in self.datagrams.drain(..) {
            let bytes = &datagram[..length];
            let target = SocketAddr::V4(to);
            let sent = match socket.try_send_to(bytes, target) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    socket.send_to(bytes, target).await
                }
                sent => sent,
            };
            // A node that cannot be reached now is the protocol's business: it repeats.
            if let Err(error) = sent {
                tracing::debug!("sending to {to}: {error}");
                if error.kind() == std::io::ErrorKind::NotConnected {
                    return Err(error);
                }
            }
            self.spare.push(datagram);
        }
        Ok(())
    }
}
