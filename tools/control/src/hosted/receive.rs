//! The receiving side: a member of whatever is announced under the key, until it has as many files
//! as it was to get.
//!
//! Key types: [`Receiver`], [`Received`]. Invariant: it goes on serving others until their cast is
//! over, or nobody has asked for a while.

use std::collections::BTreeSet;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};

use netstack::broadcast::{
    EndReason, FailReason, MAX_MEMBERS, Member, MemberConfig, MemberEvent, Object, Peer, Purpose,
    RefuseReason, Want,
};
use netstack::ids::{BootEpoch, CastId, NodeId};
use netstack::time::Instant;
use netstack::wire::key::Key;
use tokio::signal::unix::Signal;

use super::send::End;
pub use super::store::Existing;
use super::store::{Before, Folder};
use crate::clock::{self, Clock};
use crate::udp;

/// How long a receiver that has everything waits for the end of the cast after it has sent data to
/// anybody, in microseconds.
const LINGER_US: u64 = 10_000_000;

/// How long one that could not take a file stays to tell the sender, in microseconds.
const FAILURE_US: u64 = 1_000_000;

/// How far the clocks of sender and receiver may be apart, in microseconds: a day. What began
/// longer before the receiver is taken for a repetition.
const CLOCKS_APART_US: u64 = 86_400_000_000;

/// Casts that have ended and are remembered one by one.
const ENDED_MAX: usize = 4096;

/// Bytes of socket buffer that one reassembly buffer of 8 KiB needs: the system counts each
/// datagram as half as much again.
const SOCKET_BYTES_A_BUFFER: usize = 32 * 1024;

/// Members of all casts at a time: two of the largest, for which whoever has the key can have it
/// keep 8 MiB.
const MEMBERS_MOST: u32 = 2 * MAX_MEMBERS;

/// A file that was received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// Where it is.
    pub path: PathBuf,
    /// Its BLAKE3 hash.
    pub object: [u8; 32],
    /// Its size.
    pub bytes: u64,
    /// Microseconds from its announcement to its being there, checked.
    pub us: u64,
    /// It was there before.
    pub known: bool,
}

/// A cast that this receiver takes part in.
#[derive(Debug)]
struct Taking {
    cast: CastId,
    object: Object,
    name: String,
    began_us: u64,
    known: bool,
    complete: bool,
}

/// Casts that are over. Whoever has listened can send their datagrams again, sealed as they are;
/// the same file would be received once more, or an older one in place of a newer. A cast's number
/// is the time at which it began, so numbers that are too old to be remembered are refused as well.
#[derive(Debug)]
struct Past {
    /// All numbers up to here.
    floor: u64,
    ended: BTreeSet<u64>,
}

impl Past {
    /// Nothing has ended; `now_unix_us` is the time.
    fn new(now_unix_us: u64) -> Self {
        Past {
            floor: now_unix_us.saturating_sub(CLOCKS_APART_US),
            ended: BTreeSet::new(),
        }
    }

    fn has(&self, cast: CastId) -> bool {
        cast.0 <= self.floor || self.ended.contains(&cast.0)
    }

    fn add(&mut self, cast: CastId) {
        self.ended.insert(cast.0);
        if self.ended.len() > ENDED_MAX
            && let Some(oldest) = self.ended.pop_first()
        {
            self.floor = self.floor.max(oldest);
        }
    }
}

/// What a receiver is to do.
#[derive(Debug)]
pub struct Order<'a> {
    /// Where it listens.
    pub listen: SocketAddrV4,
    /// Shared with the sender.
    pub key: Key,
    /// Where files go.
    pub folder: &'a Path,
    /// What becomes of files that are there.
    pub existing: Existing,
    /// Files to get; 0: without end.
    pub count: u64,
    /// Most bytes a second it sends to others; 0: as the sender says.
    pub rate: u64,
    /// Bytes of the socket's receive buffer.
    pub socket_bytes: usize,
    /// Microseconds of the clock at which it gives up.
    pub deadline_us: Option<u64>,
}

/// The receiver.
#[derive(Debug)]
pub struct Receiver {
    member: Member,
    folder: Folder,
    clock: Clock,
    interrupt: Signal,
    taking: Vec<Taking>,
    past: Past,
    count: u64,
    /// Files that came, the oldest first; the caller takes them.
    pub received: Vec<Received>,
    got: u64,
    /// What could not be received, and why; the caller takes them.
    pub failed: Vec<(String, String)>,
    failures: u64,
    /// Why it ends before its time.
    pub ends: Option<End>,
    deadline_us: Option<u64>,
    linger_us: Option<u64>,
    /// Until when failures are told to the sender, and whether that time has passed.
    told_us: Option<u64>,
    told: bool,
    /// Trains of data that were sent to others.
    trains: u64,
}

impl Receiver {
    /// A receiver of nothing yet.
    pub fn new(order: &Order<'_>, clock: Clock, interrupt: Signal) -> Self {
        let buffers = (order.socket_bytes / SOCKET_BYTES_A_BUFFER).clamp(4, 256);
        let config = MemberConfig {
            node: NodeId(0),
            boot: BootEpoch(0),
            me: Peer {
                addr: order.listen,
                mac: [0; 6],
            },
            control: None,
            key: order.key,
            rate: order.rate,
            buffers: u32::try_from(buffers).expect("at most 256"),
            credit: 0,
            members: MEMBERS_MOST,
            seed: super::seed(),
        };
        let now = Instant::from_micros(clock.now_us());
        let mut member = Member::new(config, now);
        // The file with the key may be used again.
        member.set_time(now, clock::unix_us());
        Receiver {
            member,
            folder: Folder::new(order.folder, order.existing),
            clock,
            interrupt,
            taking: Vec::new(),
            past: Past::new(clock::unix_us()),
            count: order.count,
            received: Vec::new(),
            got: 0,
            failed: Vec::new(),
            failures: 0,
            ends: None,
            deadline_us: order.deadline_us,
            linger_us: None,
            told_us: None,
            told: false,
            trains: 0,
        }
    }

    /// Files and bytes that are on their way, and the part of them that is here (0 to 1).
    pub fn progress(&self) -> Option<(&str, f64)> {
        let taking = self.taking.iter().find(|taking| !taking.complete)?;
        let progress = self.member.progress(taking.cast)?;
        let part = f64::from(progress.held) / f64::from(progress.blocks.max(1));
        Some((&taking.name, part))
    }

    /// Whether the sender has had time to hear of the failures.
    pub fn failed_are_told(&self) -> bool {
        self.told || self.ends.is_some()
    }

    /// Files that could not be received.
    pub fn failures(&self) -> u64 {
        self.failures
    }

    fn handle(&mut self, now: Instant, event: MemberEvent) {
        match event {
            MemberEvent::Announced {
                cast,
                object,
                purpose,
                ..
            } => self.announced(now, cast, object, purpose),
            MemberEvent::Stored { .. } => {}
            MemberEvent::Complete { cast } => self.complete(now, cast),
            MemberEvent::Ended { cast, reason } => {
                // What was given up because nobody was heard may be announced again.
                if reason != EndReason::Abandoned {
                    self.past.add(cast);
                }
                if self
                    .taking
                    .iter()
                    .any(|taking| taking.cast == cast && !taking.complete)
                {
                    self.fail(cast, "the sender ended it");
                }
                self.forget(cast);
            }
            MemberEvent::Failed { cast, reason } => {
                self.fail(cast, words(reason));
                self.forget(cast);
            }
        }
    }

    fn announced(&mut self, now: Instant, cast: CastId, object: Object, purpose: Purpose) {
        let Purpose::File { name } = purpose else {
            return self.member.refuse(now, cast, RefuseReason::Unwanted);
        };
        if self.count > 0 && self.got >= self.count {
            return self.member.refuse(now, cast, RefuseReason::Unwanted);
        }
        // The same cast again: the sender was not sure of this receiver.
        let again = self.taking.iter().any(|taking| taking.cast == cast);
        if !again && self.past.has(cast) {
            return self.member.refuse(now, cast, RefuseReason::Unwanted);
        }
        self.taking.retain(|taking| taking.cast != cast);
        let opened = super::check_received(&name).map_err(std::io::Error::other);
        match opened.and_then(|()| self.folder.open(cast, &object, &name)) {
            Ok(before) => {
                let known = before == Before::All;
                self.taking.push(Taking {
                    cast,
                    object,
                    name,
                    began_us: now.as_micros(),
                    known,
                    complete: false,
                });
                self.member.accept(now, cast, Want::All, &mut |_| known);
            }
            Err(error) => {
                self.failures += 1;
                self.failed.push((name, error.to_string()));
                self.member.refuse(now, cast, RefuseReason::NoRoom);
            }
        }
    }

    fn complete(&mut self, now: Instant, cast: CastId) {
        let taking = self.taking.iter_mut().find(|taking| taking.cast == cast);
        let Some(taking) = taking.filter(|taking| !taking.complete) else {
            return;
        };
        match self.folder.finish(cast) {
            Ok(path) => {
                taking.complete = true;
                self.got += 1;
                self.received.push(Received {
                    path,
                    object: taking.object.id,
                    bytes: taking.object.bytes,
                    us: now.as_micros().saturating_sub(taking.began_us),
                    known: taking.known,
                });
                self.linger_us = Some(now.as_micros() + LINGER_US);
            }
            Err(error) => self.fail(cast, &error.to_string()),
        }
    }

    fn fail(&mut self, cast: CastId, why: &str) {
        let Some(taking) = self.taking.iter().find(|taking| taking.cast == cast) else {
            return;
        };
        self.failures += 1;
        let name = taking.name.clone();
        let why = match self.folder.forget(cast) {
            Some(error) => error.to_string(),
            None => why.to_string(),
        };
        self.failed.push((name, why));
        self.taking.retain(|taking| taking.cast != cast);
    }

    fn forget(&mut self, cast: CastId) {
        self.folder.forget(cast);
        self.taking.retain(|taking| taking.cast != cast);
    }

    /// Whether everything is there and nobody needs it from here any more.
    pub fn is_finished(&self) -> bool {
        self.has_all() && self.taking.is_empty()
    }

    /// Whether everything is there.
    pub fn has_all(&self) -> bool {
        self.count > 0 && self.got >= self.count
    }
}

impl udp::Engine for Receiver {
    fn receive(&mut self, arrived: &mut udp::Arrived<'_>) {
        while let Some((from, datagram)) = arrived.next() {
            let now = Instant::from_micros(self.clock.now_us());
            self.member
                .handle_datagram(now, from, datagram, &mut self.folder);
        }
    }

    fn turn(&mut self, outbox: &mut udp::Outbox) -> u64 {
        let now = Instant::from_micros(self.clock.now_us());
        outbox.collect(|out| {
            let sent = self.member.poll_transmit(now, out, &mut self.folder);
            sent.map(|(to, length)| (to.addr, length))
        });
        let mut news = false;
        while let Some(event) = self.member.poll_event() {
            self.handle(now, event);
            news = true;
        }
        let passed = |at: Option<u64>| at.is_some_and(|at| at <= now.as_micros());
        if passed(self.deadline_us) && !self.has_all() {
            self.ends = Some(End::TimeUp);
        }
        let trains = self.member.counters().trains;
        if trains != std::mem::replace(&mut self.trains, trains) && self.linger_us.is_some() {
            // Others still need it.
            self.linger_us = Some(now.as_micros() + LINGER_US);
        }
        if self.has_all() && passed(self.linger_us) {
            self.taking.clear();
        }
        if self.failed.is_empty() {
            (self.told_us, self.told) = (None, false);
        } else {
            let told_us = *self.told_us.get_or_insert(now.as_micros() + FAILURE_US);
            self.told = told_us <= now.as_micros();
        }
        if news {
            // What was answered is sent first.
            return now.as_micros();
        }
        let next = self.member.poll_timeout().map(Instant::as_micros);
        let limit = if self.has_all() {
            self.linger_us
        } else {
            self.deadline_us
        };
        let told_us = self.told_us.filter(|_| !self.told);
        let next = [next, limit, told_us].into_iter().flatten().min();
        next.unwrap_or(u64::MAX)
    }

    async fn woken(&mut self) {
        self.interrupt.recv().await;
        self.ends = Some(End::Interrupted);
    }

    fn is_over(&self) -> bool {
        !self.received.is_empty() || self.told || self.ends.is_some() || self.is_finished()
    }
}

fn words(reason: FailReason) -> &'static str {
    match reason {
        FailReason::NoRoom => "there is no room for it",
        FailReason::Refused => "it was not wanted",
        FailReason::TimedOut => "nothing came for too long",
        FailReason::Dead => "the sender does not answer",
        FailReason::Invalid => "its announcement does not fit together",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_over_is_not_received_again() {
        let day = CLOCKS_APART_US;
        let mut past = Past::new(10 * day);
        assert!(past.has(CastId(9 * day)) && !past.has(CastId(9 * day + 1)));
        // A sender whose clock is behind comes after one that is ahead.
        past.add(CastId(10 * day + 5));
        assert!(past.has(CastId(10 * day + 5)) && !past.has(CastId(10 * day + 4)));
        for number in 0..=ENDED_MAX as u64 {
            past.add(CastId(11 * day + number));
        }
        assert_eq!(past.ended.len(), ENDED_MAX);
        assert!(
            past.has(CastId(10 * day + 4)),
            "older than all that are remembered"
        );
        assert!(!past.has(CastId(12 * day)));
    }
}
