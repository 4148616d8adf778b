//! The node's side of joining: one [`Link`] to the control node.
//!
//! ```text
//!            WELCOME                 silence
//!  Hello ------------> Joined ------------------> Joined, control lost
//!    ^ | REFUSE: wait    | RESYNC: say HELLO,        | anything authentic
//!    +-+ 2 s .. 30 s     | keep the session          +-> Joined
//! ```
//!
//! Invariant: an unsealed datagram changes nothing but the time of the next HELLO.

use crate::counters::Counters;
use crate::files::{self, ChannelId};
use crate::ids::{BootEpoch, ControlEpoch, JobId, NodeId};
use crate::join::{Refusal, Timing};
use crate::node::{Config, Event, Outbox};
use crate::page::client::WINDOW_MAX;
use crate::rng::Rng;
use crate::time::{Instant, Micros};
use crate::transport::liveness::Presence;
use crate::transport::retry::{Backoff, LOOKS};
use crate::vitals::Vitals;
use crate::wire::Error;
use crate::wire::datagram::{self, Header, Kind, Packet};
use crate::wire::field::Writer;
use crate::wire::job::Command;
use crate::wire::join::{self, HeartbeatAck, Hello, Refuse, Welcome};
use crate::wire::key::{Direction, Key};
use crate::wire::window::ReplayWindow;

/// Repetition of HELLO; at its slowest no more load than heartbeats, so any number of nodes can
/// wait for a control node that is away.
const HELLO: Backoff = Backoff::OF_SESSION;
/// Repetition after refusals: somebody has to change something before it can succeed, and sees the
/// machine within half a minute after that.
const REFUSED: Backoff = Backoff::new(Micros::from_secs(2), Micros::from_secs(30));
/// Until the first answer in a session, heartbeats come this fast (the control node counts a node
/// as joined when one has arrived): all tries fit an interval of heartbeats.
const CONFIRM_INTERVAL: Micros = Micros(LOOKS.0 / CONFIRM_TRIES as u64);
/// ... so many times: where one datagram in ten is lost, all of them are once in 100,000 times.
const CONFIRM_TRIES: u32 = 5;
/// RESYNC hints are unauthenticated: one is heeded in so much time, as many as there are
/// heartbeats.
const RESYNC_INTERVAL: Micros = LOOKS;
/// Nodes that are told to resync at once spread their HELLOs over this time: were they full
/// datagrams, those of 16,384 nodes would be a fifth of what 10 Gbit/s carries in it.
const RESYNC_SPREAD: Micros = Micros::from_millis(100);
/// A RESYNC must name one of the last so many datagrams of this node: twice what it can have under
/// way, which are fragments of files, of pages, and calls.
const RESYNC_RECENT: u64 =
    2 * (files::client::MOST_FRAGMENTS as u64 + WINDOW_MAX as u64 + files::WINDOW);
/// Time between LEAVEs: as between heartbeats until the first answer.
const LEAVE_INTERVAL: Micros = CONFIRM_INTERVAL;
/// LEAVEs sent before leaving without an answer; the control node then finds out by silence. As
/// many as heartbeats until the first answer.
const LEAVE_TRIES: u32 = CONFIRM_TRIES;

#[derive(Debug)]
struct Session {
    id: u64,
    control: ControlEpoch,
    timing: Timing,
    transmit: Key,
    receive: Key,
    window: ReplayWindow,
    /// Something arrived in this session.
    confirmed: bool,
    unconfirmed_heartbeats: u32,
}

#[derive(Debug)]
struct Saying {
    /// Sequence number of the first HELLO whose answer still counts.
    first_seq: u64,
    tries: u32,
    refusals: u32,
    next_at: Instant,
}

#[derive(Debug)]
struct Leaving {
    first_seq: u64,
    tries: u32,
    next_at: Instant,
}

/// A message of the session.
pub(crate) struct Message<'a> {
    pub(crate) kind: Kind,
    pub(crate) seq: u64,
    pub(crate) payload: &'a [u8],
}

/// What a datagram came to.
pub(crate) enum Received<'a> {
    /// It was dealt with.
    Nothing,
    /// A new session began: everything of the one before is void.
    NewSession,
    /// A message of the session for somebody else.
    Message(Message<'a>),
}

/// The node's link to the control node.
#[derive(Debug)]
pub(crate) struct Link {
    hello: Hello,
    node: NodeId,
    epoch: BootEpoch,
    node_key: Key,
    join_transmit: Key,
    join_receive: Key,
    next_seq: u64,
    session: Option<Session>,
    saying: Option<Saying>,
    leaving: Option<Leaving>,
    left: bool,
    heartbeat_at: Instant,
    /// Of the control node.
    presence: Presence,
    control_lost: bool,
    /// What time the control node said it was, and when.
    control_time: Option<(u64, Instant)>,
    last_resync: Option<Instant>,
    /// What the next heartbeat is to say so that the control node knows where this node is.
    challenge: u64,
    vitals: Vitals,
    adrift: Option<JobId>,
}

impl Link {
    /// What the rank's calls on files are made with.
    pub(crate) fn files_config(&self, channel: ChannelId) -> files::client::Config {
        files::client::Config {
            channel,
            node: self.node,
            boot: self.epoch,
            key: self.node_key.files_key(channel.job, channel.rank),
        }
    }

    pub(crate) fn new(config: &Config, now: Instant) -> Self {
        let node_key = config.personality.key;
        Link {
            hello: Hello {
                mac: config.mac,
                lab_key: config.lab_key,
                key_id: config.personality.key_id,
                version: config.version,
                build_id: config.build_id,
                memory_bytes: config.memory_bytes,
                cores: config.cores.max(1),
                timings: config.timings,
                known_control: ControlEpoch(0),
                job: None,
            },
            node: config.personality.node,
            epoch: config.boot_epoch,
            node_key,
            join_transmit: node_key.join_key(Direction::ToControl),
            join_receive: node_key.join_key(Direction::ToNode),
            next_seq: 1,
            session: None,
            saying: Some(Saying {
                first_seq: 1,
                tries: 0,
                refusals: 0,
                next_at: now,
            }),
            leaving: None,
            left: false,
            heartbeat_at: Instant::FAR_FUTURE,
            presence: Presence::new(now),
            control_lost: false,
            control_time: None,
            last_resync: None,
            challenge: 0,
            vitals: Vitals::default(),
            adrift: None,
        }
    }

    pub(crate) fn is_joined(&self) -> bool {
        self.session.is_some() && !self.control_lost && !self.left
    }

    pub(crate) fn has_session(&self) -> bool {
        self.session.is_some() && !self.left
    }

    pub(crate) fn has_left(&self) -> bool {
        self.left
    }

    /// When anything authentic was heard last.
    pub(crate) fn last_heard(&self) -> Instant {
        self.presence.heard_at()
    }

    /// Puts the key of a LAUNCH of this session in the place of what it was wrapped as.
    pub(crate) fn unwrap_job_key(&self, command: &mut Command<'_>) {
        if let (
            Command::Launch {
                spec, wrapped_key, ..
            },
            Some(session),
        ) = (command, &self.session)
        {
            let key = session.receive.unwrap_job_key(spec.job, *wrapped_key);
            *wrapped_key = key.0;
        }
    }

    /// The time of the control node in microseconds, as it was heard last.
    pub(crate) fn control_time(&self, now: Instant) -> Option<u64> {
        let (time, at) = self.control_time?;
        Some(time.saturating_add(now.saturating_since(at).0))
    }

    /// For how long a job is kept that no control node knows; None without a session.
    pub(crate) fn keep_job(&self) -> Option<Micros> {
        Some(self.session.as_ref()?.timing.keep_job)
    }

    /// A job of an earlier session is to be told of, whatever the vitals say.
    pub(crate) fn set_adrift(&mut self, job: Option<JobId>) {
        self.adrift = job;
    }

    pub(crate) fn set_vitals(&mut self, vitals: Vitals) {
        self.vitals = vitals;
    }

    /// What a PANIC datagram needs: node, boot and the session's key.
    pub(crate) fn panic_parts(&self) -> Option<(NodeId, BootEpoch, Key)> {
        let session = self.session.as_ref()?;
        Some((self.node, self.epoch, session.transmit))
    }

    pub(crate) fn leave(&mut self, now: Instant, out: &mut Outbox) {
        if self.left || self.leaving.is_some() {
            return;
        }
        if self.session.is_none() {
            self.finish_leaving(out);
        } else {
            self.leaving = Some(Leaving {
                first_seq: self.next_seq,
                tries: 0,
                next_at: now,
            });
        }
    }

    fn finish_leaving(&mut self, out: &mut Outbox) {
        self.left = true;
        out.push(Event::Left);
    }

    /// Takes a datagram and returns what is left for others to do.
    pub(crate) fn receive<'a>(
        &mut self,
        now: Instant,
        bytes: &'a [u8],
        rng: &mut Rng,
        out: &mut Outbox,
    ) -> Received<'a> {
        let packet = match Packet::new_checked(bytes) {
            Ok(packet) => packet,
            Err(error) => {
                out.counters.count_envelope(error);
                if matches!(error, Error::BadVersion(_)) {
                    self.foreign_version(now, bytes, rng, out);
                }
                return Received::Nothing;
            }
        };
        let header = packet.header();
        if header.node != self.node || header.epoch != self.epoch || self.left {
            out.counters.misdirected += 1;
            return Received::Nothing;
        }
        match header.kind {
            Kind::Welcome => self.welcome(now, &packet, out),
            Kind::Refuse => {
                self.refuse(now, &packet, rng, out);
                Received::Nothing
            }
            Kind::Resync => {
                self.resync(now, &packet, rng, &mut out.counters);
                Received::Nothing
            }
            _ => self.in_session(now, &packet, out),
        }
    }

    fn welcome<'a>(&mut self, now: Instant, packet: &Packet<'_>, out: &mut Outbox) -> Received<'a> {
        let Ok(payload) = packet.open(&self.join_receive) else {
            out.counters.bad_tag += 1;
            return Received::Nothing;
        };
        let Ok(welcome) = Welcome::parse(payload) else {
            out.counters.bad_payload += 1;
            return Received::Nothing;
        };
        let expected = self.saying.as_ref().is_some_and(|saying| {
            (saying.first_seq..self.next_seq).contains(&welcome.hello_seq) && saying.tries > 0
        });
        if !expected {
            out.counters.stale += 1;
            return Received::Nothing;
        }
        self.saying = None;
        self.heartbeat_at = now;
        let same = self
            .session
            .as_ref()
            .is_some_and(|session| session.id == welcome.session);
        if same {
            self.heard(now, out);
            return Received::Nothing;
        }
        self.session = Some(Session {
            id: welcome.session,
            control: welcome.control,
            timing: welcome.timing,
            transmit: self
                .node_key
                .session_key(Direction::ToControl, welcome.session),
            receive: self
                .node_key
                .session_key(Direction::ToNode, welcome.session),
            window: ReplayWindow::default(),
            confirmed: false,
            unconfirmed_heartbeats: 0,
        });
        self.presence.heard(now);
        self.control_lost = false;
        self.control_time = Some((welcome.control_time_us, now));
        out.push(Event::Joined {
            control: welcome.control,
            timing: welcome.timing,
            time_us: welcome.control_time_us,
            peer_key: self.join_receive.unwrap_peer_key(
                welcome.control,
                welcome.session,
                welcome.wrapped_peer_key,
            ),
        });
        Received::NewSession
    }

    fn refuse(&mut self, now: Instant, packet: &Packet<'_>, rng: &mut Rng, out: &mut Outbox) {
        let payload = if packet.is_unsealed() {
            packet.unverified_payload()
        } else {
            match packet.open(&self.join_receive) {
                Ok(payload) => payload,
                Err(_) => {
                    out.counters.bad_tag += 1;
                    return;
                }
            }
        };
        let Ok(refuse) = Refuse::parse(payload) else {
            out.counters.bad_payload += 1;
            return;
        };
        let authentic = !packet.is_unsealed();
        let text = alloc::string::String::from(if authentic { refuse.text } else { "" });
        self.refused(
            now,
            refuse.hello_seq,
            refuse.reason,
            text,
            authentic,
            rng,
            out,
        );
    }

    /// An answer in another protocol version can only be a refusal.
    fn foreign_version(&mut self, now: Instant, bytes: &[u8], rng: &mut Rng, out: &mut Outbox) {
        let Some((node, epoch, seq)) = Packet::foreign_sender(bytes) else {
            return;
        };
        if node == self.node && epoch == self.epoch {
            let text = alloc::format!(
                "the control node speaks protocol version {}, this node {}: boot the control node's own image",
                bytes[2],
                crate::wire::datagram::VERSION
            );
            self.refused(now, seq, Refusal::Protocol, text, false, rng, out);
        }
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "the fields of one refusal and its context"
    )]
    fn refused(
        &mut self,
        now: Instant,
        hello_seq: u64,
        reason: Refusal,
        mut text: alloc::string::String,
        authentic: bool,
        rng: &mut Rng,
        out: &mut Outbox,
    ) {
        let next_seq = self.next_seq;
        let Some(saying) = &mut self.saying else {
            out.counters.stale += 1;
            return;
        };
        if !(saying.first_seq..next_seq).contains(&hello_seq) {
            out.counters.stale += 1;
            return;
        }
        // One refusal per HELLO: a flood of them makes neither events nor longer waits.
        saying.first_seq = next_seq;
        saying.next_at = now + REFUSED.wait(saying.refusals, rng);
        saying.refusals = saying.refusals.saturating_add(1);
        if text.is_empty() {
            text = alloc::format!("{reason}");
        }
        out.push(Event::Refused {
            reason,
            text,
            authentic,
        });
    }

    fn resync(&mut self, now: Instant, packet: &Packet<'_>, rng: &mut Rng, count: &mut Counters) {
        let recent = join::parse_echo(packet.unverified_payload())
            .is_ok_and(|seq| seq < self.next_seq && seq + RESYNC_RECENT >= self.next_seq);
        if !recent {
            count.stale += 1;
            return;
        }
        let too_soon = self
            .last_resync
            .is_some_and(|last| now.saturating_since(last) < RESYNC_INTERVAL);
        if too_soon || self.saying.is_some() {
            count.rate_limited += 1;
            return;
        }
        self.last_resync = Some(now);
        let next_at = now + Micros(rng.below(RESYNC_SPREAD.0));
        self.saying = Some(Saying {
            first_seq: self.next_seq,
            tries: 0,
            refusals: 0,
            next_at,
        });
    }

    fn in_session<'a>(
        &mut self,
        now: Instant,
        packet: &Packet<'a>,
        out: &mut Outbox,
    ) -> Received<'a> {
        let header = packet.header();
        let Some(session) = &mut self.session else {
            out.counters.unknown_peer += 1;
            return Received::Nothing;
        };
        let Ok(payload) = packet.open(&session.receive) else {
            out.counters.bad_tag += 1;
            return Received::Nothing;
        };
        if !session.window.accept(header.seq) {
            out.counters.replayed += 1;
            return Received::Nothing;
        }
        session.confirmed = true;
        self.heard(now, out);
        match header.kind {
            Kind::HeartbeatAck => match HeartbeatAck::parse(payload) {
                Ok(ack) => {
                    self.control_time = Some((ack.control_time_us, now));
                    if ack.challenge != 0 {
                        self.challenge = ack.challenge;
                    }
                    if ack.probe {
                        self.heartbeat_at = now;
                    }
                }
                Err(_) => out.counters.bad_payload += 1,
            },
            Kind::Leave => self.leave_answered(payload, out),
            kind => {
                let seq = header.seq;
                return Received::Message(Message { kind, seq, payload });
            }
        }
        Received::Nothing
    }

    fn leave_answered(&mut self, payload: &[u8], out: &mut Outbox) {
        let Ok(seq) = join::parse_echo(payload) else {
            out.counters.bad_payload += 1;
            return;
        };
        match &self.leaving {
            Some(leaving) if seq >= leaving.first_seq => self.finish_leaving(out),
            _ => out.counters.stale += 1,
        }
    }

    fn heard(&mut self, now: Instant, out: &mut Outbox) {
        self.presence.heard(now);
        if self.control_lost {
            self.control_lost = false;
            out.push(Event::ControlBack);
        }
    }

    fn control_deadline(&self) -> Option<Instant> {
        let session = self.session.as_ref()?;
        let patience = session.timing.patience_with_control();
        let dead_at = self.presence.dead_at(&patience);
        dead_at.filter(|_| !self.control_lost)
    }

    /// When something is due whatever else happens: HELLO, heartbeat, LEAVE.
    pub(crate) fn heartbeat_deadline(&self) -> Option<Instant> {
        if self.left {
            return None;
        }
        let saying = self.saying.as_ref().map(|saying| saying.next_at);
        let leaving = self.leaving.as_ref().map(|leaving| leaving.next_at);
        let heartbeat = self.session.as_ref().map(|_| self.heartbeat_at);
        [saying, leaving, heartbeat].into_iter().flatten().min()
    }

    /// A heartbeat that is due within `slack` is due now.
    pub(crate) fn hasten_heartbeat(&mut self, now: Instant, slack: Micros) {
        if self.session.is_some() && self.heartbeat_at <= now + slack {
            self.heartbeat_at = self.heartbeat_at.min(now);
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        if self.left {
            return None;
        }
        let (first, second) = (self.heartbeat_deadline(), self.control_deadline());
        [first, second].into_iter().flatten().min()
    }

    /// Sends what is due.
    pub(crate) fn poll_transmit(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        events: &mut Outbox,
        out: &mut [u8],
    ) -> Option<usize> {
        if self.left {
            return None;
        }
        if self
            .control_deadline()
            .is_some_and(|deadline| deadline <= now)
        {
            self.control_lost = true;
            events.push(Event::ControlLost);
        }
        if self
            .saying
            .as_ref()
            .is_some_and(|saying| saying.next_at <= now)
        {
            return Some(self.say_hello(now, rng, &mut events.counters, out));
        }
        if self
            .leaving
            .as_ref()
            .is_some_and(|leaving| leaving.next_at <= now)
        {
            return self.say_goodbye(now, rng, events, out);
        }
        if self.session.is_some() && self.heartbeat_at <= now {
            return self.beat(now, rng, out);
        }
        None
    }

    fn say_hello(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        c: &mut Counters,
        out: &mut [u8],
    ) -> usize {
        let saying = self
            .saying
            .as_mut()
            .expect("the caller saw that a HELLO is due");
        c.retransmitted += u64::from(saying.tries > 0);
        saying.next_at = now + HELLO.wait(saying.tries, rng);
        saying.tries = saying.tries.saturating_add(1);
        let control = self
            .session
            .as_ref()
            .map_or(ControlEpoch(0), |session| session.control);
        self.hello.known_control = control;
        self.hello.job = self.adrift.or(self.vitals.job);
        let header = self.next_header(Kind::Hello);
        datagram::emit(header, Some(&self.join_transmit), out, |writer| {
            self.hello.emit(writer)
        })
    }

    fn say_goodbye(
        &mut self,
        now: Instant,
        rng: &mut Rng,
        events: &mut Outbox,
        out: &mut [u8],
    ) -> Option<usize> {
        let leaving = self
            .leaving
            .as_mut()
            .expect("the caller saw that a LEAVE is due");
        if leaving.tries == LEAVE_TRIES {
            self.finish_leaving(events);
            return None;
        }
        leaving.tries += 1;
        leaving.next_at = now + rng.jitter(LEAVE_INTERVAL);
        self.seal(Kind::Leave, out, |_| {})
    }

    fn beat(&mut self, now: Instant, rng: &mut Rng, out: &mut [u8]) -> Option<usize> {
        let session = self.session.as_mut()?;
        let interval = if session.confirmed {
            session.timing.heartbeat
        } else if session.unconfirmed_heartbeats < CONFIRM_TRIES {
            session.unconfirmed_heartbeats += 1;
            rng.jitter(CONFIRM_INTERVAL).min(session.timing.heartbeat)
        } else {
            // Nodes that joined together spread out here.
            rng.jitter(session.timing.heartbeat)
                .min(session.timing.heartbeat)
        };
        self.heartbeat_at = now + interval;
        self.presence.asked(now);
        let vitals = Vitals {
            job: self.adrift.or(self.vitals.job),
            ..self.vitals
        };
        let answer = core::mem::take(&mut self.challenge);
        self.seal(Kind::Heartbeat, out, |writer| {
            join::emit_heartbeat(&vitals, answer, writer)
        })
    }

    fn next_header(&mut self, kind: Kind) -> Header {
        let seq = self.next_seq;
        self.next_seq += 1;
        Header {
            kind,
            node: self.node,
            epoch: self.epoch,
            seq,
        }
    }

    /// Writes a message of the session; None without a session.
    pub(crate) fn seal(
        &mut self,
        kind: Kind,
        out: &mut [u8],
        payload: impl FnOnce(&mut Writer<'_>),
    ) -> Option<usize> {
        let key = self.session.as_ref()?.transmit;
        let header = self.next_header(kind);
        Some(datagram::emit(header, Some(&key), out, payload))
    }
}
