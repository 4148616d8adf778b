//! The sending side: the source of one cast, until every receiver has the file or never will.
//!
//! Key type: [`Sender`]. Invariant: it ends: receivers that do not answer count as failed after a
//! while, and an interrupt ends the cast everywhere.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use netstack::broadcast::{
    CastSpec, FailReason, Limits, MemberFailure, Peer, Progress, Purpose, Scheme, Source,
    SourceConfig, SourceEvent,
};
use netstack::ids::{CastId, NodeId};
use netstack::time::Instant;
use netstack::wire::key::Key;
use tokio::signal::unix::Signal;

use crate::casts::object::Described;
use crate::casts::shelf::{Content, Shelf};
use crate::clock::{self, Clock};
use crate::udp;

/// How long receivers are told that the cast is cancelled.
const CANCEL_LIMIT: Duration = Duration::from_secs(2);

/// What is sent, and to whom.
#[derive(Debug)]
pub struct Order<'a> {
    /// The file.
    pub file: &'a Path,
    /// The name it gets at the receivers.
    pub name: String,
    /// The receivers.
    pub to: Vec<SocketAddrV4>,
    /// Address to send from.
    pub from: SocketAddrV4,
    /// Shared with the receivers.
    pub key: Key,
    /// Bytes a second of everybody's link, framing included.
    pub rate: u64,
    /// How the file spreads.
    pub scheme: Scheme,
    /// Microseconds of the clock at which it gives up.
    pub deadline_us: Option<u64>,
}

/// What became of the file at one receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It has not said.
    Open,
    /// It is there, checked.
    Done,
    /// It will not be there.
    Failed(MemberFailure),
}

/// The sender.
#[derive(Debug)]
pub struct Sender {
    source: Source,
    shelf: Shelf,
    cast: CastId,
    clock: Clock,
    interrupt: Signal,
    /// Each receiver and what became of it.
    pub receivers: Vec<(SocketAddrV4, Fate)>,
    /// What is sent.
    pub described: Arc<Described>,
    /// How far it is.
    pub progress: Progress,
    /// Blocks that arrived damaged, by who sent them; none: this sender.
    pub corrupt: Vec<(Option<SocketAddrV4>, u32)>,
    /// Microseconds of the clock at which the last receiver was done.
    pub done_us: u64,
    /// Why it ends before its time.
    pub ends: Option<End>,
    deadline_us: Option<u64>,
    over: bool,
}

/// Why a sender or receiver ends before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Somebody wanted it to.
    Interrupted,
    /// Its time is up.
    TimeUp,
}

impl Sender {
    /// Opens and describes the file, and begins.
    ///
    /// # Errors
    /// For people.
    pub fn new(order: Order<'_>, clock: Clock, interrupt: Signal) -> anyhow::Result<Self> {
        let shown = order.file.display();
        let file = File::open(order.file).with_context(|| format!("cannot read {shown}"))?;
        let data = file
            .metadata()
            .with_context(|| format!("cannot read {shown}"))?;
        if !data.is_file() {
            bail!("{shown} is not a file");
        }
        super::check_received(&order.name)?;
        let described = Described::of_file(&file, data.len());
        let described = Arc::new(described.with_context(|| format!("cannot send {shown}"))?);
        // Rises from one cast to the next, on whatever machine.
        let cast = CastId(clock::unix_us());
        let mut shelf = Shelf::default();
        shelf.put(cast, described.clone(), Content::File(Arc::new(file)));
        let now = Instant::from_micros(clock.now_us());
        let plain = |addr| Peer { addr, mac: [0; 6] };
        let config = SourceConfig {
            me: plain(order.from),
            key: order.key,
            rate: order.rate,
            seed: super::seed(),
            limits: Limits::default(),
        };
        let mut source = Source::new(config, now);
        // The file with the key may be used again.
        source.set_time(now, clock::unix_us());
        let members = (0..).zip(&order.to);
        let spec = CastSpec {
            id: cast,
            object: described.object.clone(),
            purpose: Purpose::File { name: order.name },
            job: None,
            members: members
                .map(|(node, to)| (NodeId(node), plain(*to), false))
                .collect(),
            scheme: order.scheme,
            rate: order.rate,
        };
        source.cast(now, spec)?;
        Ok(Sender {
            source,
            shelf,
            cast,
            clock,
            interrupt,
            receivers: order.to.into_iter().map(|to| (to, Fate::Open)).collect(),
            described,
            progress: Progress::default(),
            corrupt: Vec::new(),
            done_us: 0,
            ends: None,
            deadline_us: order.deadline_us,
            over: false,
        })
    }

    fn handle(&mut self, event: SourceEvent) {
        match event {
            SourceEvent::Progress { progress, .. } => self.progress = progress,
            SourceEvent::MemberDone { node, .. } => {
                self.done_us = self.clock.now_us();
                self.settle(node, Fate::Done);
            }
            SourceEvent::MemberFailed { node, reason, .. } => {
                self.settle(node, Fate::Failed(reason))
            }
            SourceEvent::CorruptSender { node, count, .. } => {
                let sender = node.and_then(|node| self.receivers.get(node.0 as usize));
                let sender = sender.map(|(address, _)| *address);
                match self.corrupt.iter_mut().find(|(known, _)| *known == sender) {
                    Some((_, total)) => *total += count,
                    None => self.corrupt.push((sender, count)),
                }
            }
            SourceEvent::Finished { .. } => self.over = true,
        }
    }

    fn settle(&mut self, node: NodeId, fate: Fate) {
        if let Some((_, known)) = self.receivers.get_mut(node.0 as usize) {
            *known = fate;
        }
    }

    fn end(&mut self, end: End) {
        let now_us = self.clock.now_us();
        if self.ends.is_some() {
            // A second interrupt, or nobody answers.
            self.over = true;
            return;
        }
        self.ends = Some(end);
        self.source.cancel(Instant::from_micros(now_us), self.cast);
        let patience = u64::try_from(CANCEL_LIMIT.as_micros()).expect("seconds");
        self.deadline_us = Some(now_us + patience);
    }
}

impl udp::Engine for Sender {
    fn receive(&mut self, arrived: &mut udp::Arrived<'_>) {
        while let Some((from, datagram)) = arrived.next() {
            let now = Instant::from_micros(self.clock.now_us());
            self.source
                .handle_datagram(now, from, datagram, &mut self.shelf);
        }
    }

    fn turn(&mut self, outbox: &mut udp::Outbox) -> u64 {
        let now = Instant::from_micros(self.clock.now_us());
        if self
            .deadline_us
            .is_some_and(|deadline| deadline <= now.as_micros())
        {
            self.end(End::TimeUp);
        }
        outbox.collect(|out| {
            let sent = self.source.poll_transmit(now, out, &mut self.shelf);
            sent.map(|(to, length)| (to.addr, length))
        });
        while let Some(event) = self.source.poll_event() {
            self.handle(event);
        }
        let next = self.source.poll_timeout().map(Instant::as_micros);
        let next = [next, self.deadline_us].into_iter().flatten().min();
        next.unwrap_or(u64::MAX)
    }

    async fn woken(&mut self) {
        self.interrupt.recv().await;
        self.end(End::Interrupted);
    }

    fn is_over(&self) -> bool {
        self.over
    }
}

/// A failure in words.
pub fn describe(failure: MemberFailure) -> &'static str {
    match failure {
        MemberFailure::Reported(FailReason::NoRoom) => "has no room for it",
        MemberFailure::Reported(FailReason::Refused) => "does not want it",
        MemberFailure::Reported(FailReason::TimedOut) => "got nothing for too long",
        MemberFailure::Reported(FailReason::Dead) => "does not answer",
        MemberFailure::Reported(FailReason::Invalid) => "did not understand the announcement",
        MemberFailure::Lost => "was lost",
        MemberFailure::Cancelled => "did not have it yet when it was cancelled",
    }
}

/// Address to send from to the first of `to`, unless one is given.
///
/// # Errors
/// There is no way to it.
pub fn from_address(
    bind: Option<SocketAddrV4>,
    to: &[SocketAddrV4],
) -> anyhow::Result<SocketAddrV4> {
    let given = bind.unwrap_or(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0));
    match to.first() {
        Some(first) if given.ip().is_unspecified() => {
            let own = super::own_address(*first)?;
            Ok(SocketAddrV4::new(own, given.port()))
        }
        _ => Ok(given),
    }
}
