//! The node's endpoint: joins the control node, keeps in touch, takes jobs, reads pages and
//! ships I/O calls. Used by the kernel and by the simulator.
//!
//! See the crate documentation for the drain loop. All datagrams go to the control node named in
//! the personality.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;

use crate::counters::Counters;
use crate::files::{self, ChannelId};
use crate::ids::{BootEpoch, CallId, ControlEpoch, JobId, LocalRank, NodeId, ProgramId, RequestId};
use crate::io::client::{Client, Outcome};
use crate::io::{self, IoOp, SubmitError};
use crate::job::node::{Entry, Jobs};
use crate::job::{LaunchRefusal, LaunchSpec};
use crate::join::node::{Link, Message, Received};
use crate::join::{Refusal, Timing};
use crate::log;
use crate::page::client::PageClient;
use crate::page::{Object, PageError, PageRequest, PageTraffic};
use crate::personality::Personality;
use crate::retention::Holding;
use crate::retention::node::{Drops, Ledger};
use crate::rng::Rng;
use crate::time::{Instant, Micros};
use crate::vitals::{BootTimings, Vitals};
use crate::wire::Error;
use crate::wire::datagram::{self, Header, Kind};
use crate::wire::io as io_wire;
use crate::wire::job::{Command, CommandAck, DropAck};
use crate::wire::join as join_wire;
use crate::wire::join::PANIC_TEXT_MAX;
use crate::wire::key::Key;
use crate::wire::page::PageData;

/// Events waiting for the user; with more, datagrams are dropped and the control node repeats
/// what matters. All answers to a full set of requests and calls fit several times.
const MAX_EVENTS: usize = 1024;
/// Bounds of the first wait for an answer to an I/O call.
const CALL_TIMEOUT: (Micros, Micros) = (Micros::from_millis(20), Micros::from_millis(200));
/// First sequence number of PANIC datagrams: above all others a boot can reach.
const PANIC_SEQ: u64 = 1 << 62;

/// What an endpoint needs to know about its node.
#[derive(Clone, Debug)]
pub struct Config {
    /// Who the node is, and its key.
    pub personality: Personality,
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Random number of this boot, as told to the boot service.
    pub boot_epoch: BootEpoch,
    /// The key was given on the command line and holds for every boot (see
    /// [`crate::personality::node_key`] with epoch zero).
    pub lab_key: bool,
    /// Version of the image, zero-padded text.
    pub version: [u8; 16],
    /// Build id of the kernel.
    pub build_id: [u8; 20],
    /// Memory of the node in bytes.
    pub memory_bytes: u64,
    /// Cores that it has for programs, at least 1.
    pub cores: u16,
    /// Seed of the jitter; different on every node (the boot epoch will do).
    pub seed: u64,
    /// Milestones of the boot so far.
    pub timings: BootTimings,
}

/// What happened; drained with [`Endpoint::poll_event`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The control node welcomed this node; comes again for every new session (after the control
    /// node restarted, or when it had given this node up). A job that the node has goes on
    /// meanwhile: what it submits waits until the control node claims it, or says with a `Cancel`
    /// that it does not know it.
    Joined {
        /// The run of the control node.
        control: ControlEpoch,
        /// The intervals it prescribes.
        timing: Timing,
        /// Its time in microseconds: what nodes said to one another before is not taken.
        time_us: u64,
        /// The key of what nodes say to one another ([`crate::broadcast`]), the same for every
        /// node that joined this run of the control node.
        peer_key: Key,
    },
    /// The control node refuses this node, which keeps trying, ever more slowly.
    Refused {
        /// Class of the reason.
        reason: Refusal,
        /// The reason in words.
        text: String,
        /// The refusal was authenticated; if not, anybody on the network may have sent it.
        authentic: bool,
    },
    /// Nothing was heard from the control node for [`Timing::lost_after`].
    ControlLost,
    /// The control node is heard again, in the same session.
    ControlBack,
    /// The node has left in good order, by [`Endpoint::leave`] or because the control node asked
    /// for it; nothing more is sent.
    Left,
    /// Load this program and answer with [`Endpoint::launch_result`].
    Launch {
        /// What to load and how.
        spec: LaunchSpec,
        /// The key of the job, which nobody but its nodes has: of what its ranks say.
        key: Key,
        /// The launch block, where it came along; else read it as [`Object::LaunchBlock`].
        block: Option<Vec<u8>>,
    },
    /// The published retain message: keep what is held of this program, drop what is held of
    /// every other one, and answer with [`Endpoint::retain_result`]. Its launch follows.
    Retain {
        /// The job that is going to be launched.
        job: JobId,
        /// Its program.
        program: ProgramId,
        /// Keep read-only pages that are not executable, too.
        read_only: bool,
    },
    /// Drop what is held of a program, and answer with [`Endpoint::drop_result`]. A program that
    /// runs goes on; what it leaves is not held.
    Drop {
        /// Number of the command.
        id: u64,
        /// The program; None: every one.
        program: Option<ProgramId>,
    },
    /// Start the loaded program.
    Start {
        /// Its job.
        job: JobId,
    },
    /// End the job, see the rules in [`crate::job`].
    Cancel {
        /// The job.
        job: JobId,
        /// The signal to report, or with a grace to deliver first; 9 when the job is to be dropped.
        signal: u8,
        /// The control node does not know the job any more: free everything, submit nothing (a
        /// submission returns `UnknownJob`).
        orphan: bool,
        /// How long the program may go on after that signal; zero: not at all.
        grace: Micros,
    },
    /// Deliver this signal to the program.
    Signal {
        /// Its job.
        job: JobId,
        /// The signal, 1 to 64.
        signal: u8,
    },
    /// The answer to a page request.
    Data {
        /// The request.
        request: RequestId,
        /// The job.
        job: JobId,
        /// The object read.
        object: Object,
        /// First byte.
        offset: u64,
        /// All that was asked for, or as far as the object goes.
        bytes: Vec<u8>,
    },
    /// A page request failed for good.
    PageFailed {
        /// The request.
        request: RequestId,
        /// The job.
        job: JobId,
        /// Why.
        reason: PageError,
    },
    /// A call was carried out.
    IoDone {
        /// The job.
        job: JobId,
        /// The rank whose call it is.
        rank: LocalRank,
        /// The call.
        call: CallId,
        /// Bytes written or read, or a negated errno.
        result: i64,
        /// Bytes read.
        data: Vec<u8>,
    },
}

/// As many page requests as [`crate::page::MAX_REQUESTS`] are outstanding; wait for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Where the parts of an endpoint put what they have to tell.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    events: VecDeque<Event>,
    pub(crate) counters: Counters,
}

impl Outbox {
    pub(crate) fn push(&mut self, event: Event) {
        self.events.push_back(event);
    }
}

/// A node's end of the protocol.
#[derive(Debug)]
pub struct Endpoint {
    link: Link,
    jobs: Jobs,
    pages: PageClient,
    ledger: Ledger,
    drops: Drops,
    log: log::Sender,
    rng: Rng,
    outbox: Outbox,
    /// The job for which this node stays although it was asked to leave; to be told.
    stays_for: Option<JobId>,
}

impl Endpoint {
    /// An endpoint that wants to join at once.
    pub fn new(config: Config, now: Instant) -> Self {
        Endpoint {
            link: Link::new(&config, now),
            jobs: Jobs::default(),
            pages: PageClient::new(),
            ledger: Ledger::default(),
            drops: Drops::default(),
            log: log::Sender::default(),
            rng: Rng::new(config.seed),
            outbox: Outbox::default(),
            stays_for: None,
        }
    }

    /// Takes a datagram that arrived from the control node's address. Bad input is counted.
    pub fn handle_datagram(&mut self, now: Instant, datagram: &[u8]) {
        self.outbox.counters.received += 1;
        if self.outbox.events.len() >= MAX_EVENTS {
            self.outbox.counters.overloaded += 1;
            return;
        }
        match self
            .link
            .receive(now, datagram, &mut self.rng, &mut self.outbox)
        {
            Received::Nothing => {}
            Received::NewSession => {
                self.jobs.new_session();
                if self.jobs.present().is_none() {
                    self.pages.clear();
                }
                self.ledger.new_session();
                self.drops.new_session();
                self.log.new_session();
                self.stays_for = None;
            }
            Received::Message(message) => self.message(now, &message),
        }
        let heard = self.link.last_heard();
        if let Some(entry) = self.jobs.present_mut().filter(|entry| !entry.is_adrift()) {
            entry.heard = entry.heard.max(heard);
        }
    }

    fn message(&mut self, now: Instant, message: &Message<'_>) {
        let Message { kind, seq, payload } = *message;
        let understood = match kind {
            Kind::Command => Command::parse(payload).map(|mut command| {
                self.link.unwrap_job_key(&mut command);
                self.command(now, seq, &command);
            }),
            Kind::HoldingsAck => join_wire::parse_echo(payload).map(|number| {
                let expected = self.ledger.acknowledged(number);
                self.outbox.counters.stale += u64::from(!expected);
            }),
            Kind::NodeLogAck => join_wire::parse_echo(payload).map(|number| {
                let expected = self.log.acknowledged(number);
                self.outbox.counters.stale += u64::from(!expected);
            }),
            Kind::PageData => PageData::parse(payload).map(|answer| {
                let Outbox { events, counters } = &mut self.outbox;
                let used = self
                    .pages
                    .receive(now, &answer, |event| events.push_back(event));
                counters.stale += u64::from(!used);
            }),
            Kind::IoReply => {
                io_wire::IoReply::parse(payload).map(|reply| self.io_reply(now, reply))
            }
            Kind::AskLeave if payload.is_empty() => {
                self.asked_to_leave(now);
                Ok(())
            }
            Kind::AskLeave => Err(Error::BadValue),
            _ => {
                self.outbox.counters.bad_kind += 1;
                return;
            }
        };
        if understood.is_err() {
            self.outbox.counters.bad_payload += 1;
        }
    }

    fn command(&mut self, now: Instant, seq: u64, command: &Command<'_>) {
        if let Command::Drop { id, program } = *command {
            self.drops.command(id, program, &mut self.outbox);
        } else if let Some(dropped) = self.jobs.command(now, seq, command, &mut self.outbox) {
            self.pages.cancel(dropped);
        }
    }

    /// A job keeps the node here, also one whose exit has not been answered.
    fn asked_to_leave(&mut self, now: Instant) {
        match self.jobs.present() {
            Some(entry) => self.stays_for = Some(entry.job),
            None => self.leave(now),
        }
    }

    fn io_reply(&mut self, now: Instant, reply: io_wire::IoReply<'_>) {
        let (job, rank, call) = (reply.job, reply.rank, reply.call);
        let entry = self.jobs.entry(job);
        let Some(io) = entry.and_then(|entry| entry.io_mut(rank)) else {
            self.outbox.counters.stale += 1;
            return;
        };
        let length = reply.done.map(|done| done.data.len());
        match (io.reply(now, call, length, &mut self.rng), reply.done) {
            (Outcome::Done { exit, oversized }, Some(done)) => {
                if exit && self.jobs.present().is_some_and(Entry::is_over) {
                    self.jobs.finish();
                }
                let (mut result, mut data) = (done.result, done.data.to_vec());
                if oversized {
                    self.outbox.counters.bad_payload += 1;
                    (result, data) = (-io::EIO, Vec::new());
                }
                self.outbox.push(Event::IoDone {
                    job,
                    rank,
                    call,
                    result,
                    data,
                });
            }
            (Outcome::Stale, _) => self.outbox.counters.stale += 1,
            _ => {}
        }
    }

    /// The next datagram to send to the control node: its length, written to the front of `out`,
    /// which must have [`crate::MAX_DATAGRAM`] bytes. Also acts on deadlines that have passed, so
    /// it may give new events.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut [u8]) -> Option<usize> {
        let length = self.next_datagram(now, out)?;
        self.outbox.counters.sent += 1;
        Some(length)
    }

    /// When the node ends its job, if it hears nothing of a control node that knows it until then.
    fn keeps_until(&self) -> Option<Instant> {
        let entry = self.jobs.present()?;
        let alone = entry.is_adrift() || !self.link.is_joined();
        let keep = self.link.keep_job()?;
        alone.then_some(entry.heard + keep)
    }

    /// A job that no control node knows does not go on asking, and ends some time.
    fn look_after_job(&mut self, now: Instant) {
        if self.keeps_until().is_some_and(|until| until <= now)
            && let Some(job) = self.jobs.give_up(&mut self.outbox)
        {
            self.pages.cancel(job);
        }
        let entry = self.jobs.present();
        let adrift = entry.filter(|entry| entry.is_adrift());
        self.link.set_adrift(adrift.map(|entry| entry.job));
        let wait = entry.is_some() && (adrift.is_some() || !self.link.is_joined());
        self.pages.set_waiting(wait);
    }

    fn next_datagram(&mut self, now: Instant, out: &mut [u8]) -> Option<usize> {
        self.look_after_job(now);
        let own = self
            .link
            .poll_transmit(now, &mut self.rng, &mut self.outbox, out);
        if own.is_some() || !self.link.has_session() {
            return own;
        }
        let job = self.jobs.next_ack();
        if let Some(ack) = job.or_else(|| self.drops.next_answer().map(CommandAck::Dropped)) {
            return self
                .link
                .seal(Kind::CommandAck, out, |writer| ack.emit(writer));
        }
        if let Some(job) = self.stays_for.take() {
            return self
                .link
                .seal(Kind::Stay, out, |writer| join_wire::emit_stay(job, writer));
        }
        let timeout = self.call_timeout();
        if let Some(entry) = self.jobs.present_mut()
            && !entry.is_adrift()
        {
            let job = entry.job;
            if let Some((rank, call, op, repeated)) = entry.due_call(now, timeout, &mut self.rng) {
                self.outbox.counters.retransmitted += u64::from(repeated);
                return self.link.seal(Kind::IoCall, out, |writer| {
                    io_wire::emit_call((job, rank), call, op, writer);
                });
            }
        }
        if let Some((report, repeated)) = self.ledger.due(now, &mut self.rng) {
            self.outbox.counters.retransmitted += u64::from(repeated);
            return self
                .link
                .seal(Kind::Holdings, out, |writer| report.emit(writer));
        }
        let Outbox { events, counters } = &mut self.outbox;
        let fail = |event| events.push_back(event);
        if let Some(read) = self.pages.poll(now, counters, fail) {
            return self
                .link
                .seal(Kind::PageRead, out, |writer| read.emit(writer));
        }
        // The log comes after everything that somebody waits for.
        let (report, repeated) = self.log.due(now, &mut self.rng)?;
        self.outbox.counters.retransmitted += u64::from(repeated);
        self.link
            .seal(Kind::NodeLog, out, |writer| report.emit(writer))
    }

    fn call_timeout(&self) -> Micros {
        let (shortest, longest) = CALL_TIMEOUT;
        self.pages
            .timeout()
            .saturating_mul(2)
            .clamp(shortest, longest)
    }

    /// When to call [`Self::poll_transmit`] again without other cause; a time that has passed
    /// means at once.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let link = self.link.poll_timeout();
        if !self.link.has_session() {
            return link;
        }
        if self.jobs.has_acks() || self.drops.has_answer() || self.stays_for.is_some() {
            return Some(Instant::ZERO);
        }
        let present = self.jobs.present().filter(|entry| !entry.is_adrift());
        let calls = present.and_then(Entry::io_deadline);
        let (reports, pages) = (self.ledger.deadline(), self.pages.poll_timeout());
        let keeps = self.keeps_until();
        let all = [link, calls, reports, pages, keeps, self.log.deadline()];
        all.into_iter().flatten().min()
    }

    /// When the next heartbeat is due, or the next HELLO: the only deadline that a node must
    /// keep while a program computes. Everything else can wait until then.
    pub fn heartbeat_deadline(&self) -> Option<Instant> {
        self.link.heartbeat_deadline()
    }

    /// Sends a heartbeat now that would be due within `slack`: a program that is interrupted anyhow
    /// is not interrupted again for it.
    pub fn hasten_heartbeat(&mut self, now: Instant, slack: Micros) {
        self.link.hasten_heartbeat(now, slack);
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.outbox.events.pop_front()
    }

    /// What a rank on this node makes its calls on files with ([`files::client::Client::new`]).
    pub fn files_config(&self, channel: ChannelId) -> files::client::Config {
        self.link.files_config(channel)
    }

    /// The time of the control node in microseconds, as it was heard last; None before
    /// `Joined`.
    pub fn control_time(&self, now: Instant) -> Option<u64> {
        self.link.control_time(now)
    }

    /// True between `Joined` and `ControlLost`, and after `ControlBack`.
    pub fn is_joined(&self) -> bool {
        self.link.is_joined()
    }

    /// State to send with the next heartbeat. The heartbeat that confirms a join goes out with
    /// the first `poll_transmit` after `Joined`, so set the vitals between the two.
    pub fn set_vitals(&mut self, vitals: Vitals) {
        self.link.set_vitals(vitals);
    }

    /// Leaves in good order: LEAVE is repeated until answered or a limit, then `Left` comes.
    pub fn leave(&mut self, now: Instant) {
        self.link.leave(now, &mut self.outbox);
    }

    /// What a panic handler needs to tell the control node by itself, without this endpoint.
    /// Take a new one after every `Joined`. None before the first.
    pub fn panic_reporter(&self) -> Option<PanicReporter> {
        let (node, epoch, key) = self.link.panic_parts()?;
        Some(PanicReporter { node, epoch, key })
    }

    /// Answers a `Retain` event, once: so many pages are held of its program, 0 when there is
    /// nothing of it. Ignored when another job has come meanwhile. Tell of the programs dropped
    /// with [`Self::unhold`].
    pub fn retain_result(&mut self, _now: Instant, job: JobId, pages: u32) {
        self.jobs.retain_result(job, pages);
    }

    /// Answers a `Drop` event, once: so many pages were given back; `in_use`: the program runs,
    /// and what it leaves will not be held. Tell of the programs dropped with [`Self::unhold`].
    pub fn drop_result(&mut self, _now: Instant, id: u64, pages: u32, in_use: bool) {
        self.drops.result(DropAck { id, pages, in_use });
    }

    /// The node holds so much of a program now. The control node is told, at once or with the
    /// report after the one that is under way, and again in every new session.
    ///
    /// Panics with more programs than [`crate::retention::HOLDINGS_MAX`].
    pub fn hold(&mut self, _now: Instant, holding: Holding) {
        self.ledger.hold(holding);
    }

    /// The node holds nothing of a program any more.
    pub fn unhold(&mut self, _now: Instant, program: ProgramId) {
        self.ledger.unhold(program);
    }

    /// What the node holds by what it was told, in the order of program ids.
    pub fn holdings(&self) -> impl Iterator<Item = &Holding> + '_ {
        self.ledger.held()
    }

    /// True when the control node has acknowledged, in this session, all that was said with
    /// [`Self::hold`] and [`Self::unhold`].
    pub fn holdings_acked(&self) -> bool {
        self.link.has_session() && self.ledger.is_told()
    }

    /// True when lines of the node's log can be given with [`Self::log`]: it has joined, and all
    /// that was given before has arrived.
    pub fn takes_log(&self) -> bool {
        self.link.has_session() && self.log.is_idle()
    }

    /// Tells the control node whole lines of the node's log, in order, and how many lines before
    /// them are missing. They are repeated until they have arrived.
    ///
    /// Panics unless [`Self::takes_log`], with text that does not end in a line feed, and with more
    /// than [`crate::wire::log::TEXT_MAX`] bytes.
    pub fn log(&mut self, _now: Instant, missed: u32, text: &str) {
        self.log.give(missed, text);
    }

    /// Answers a `Launch` event, once; ignored for a job that was dropped meanwhile. Ok says that
    /// the program is ready, or starts now when the launch says so
    /// ([`crate::job::StartMode::AtOnce`]).
    pub fn launch_result(&mut self, _now: Instant, job: JobId, result: Result<(), LaunchRefusal>) {
        self.jobs.launch_result(job, result);
    }

    /// Asks for a range of an object; `Data` or `PageFailed` follows.
    ///
    /// Panics when `length` is 0 or above [`crate::page::MAX_REQUEST`].
    pub fn request_pages(
        &mut self,
        _now: Instant,
        request: PageRequest,
    ) -> Result<RequestId, Full> {
        self.pages.request(request)
    }

    /// What reading the program of a job has cost on the network so far; zeros for a job other than
    /// the one that read last.
    pub fn page_traffic(&self, job: JobId) -> PageTraffic {
        self.pages.traffic(job)
    }

    /// Fragments of pages that were asked for and are on their way.
    pub fn page_fragments(&self) -> u32 {
        self.pages.in_flight()
    }

    /// From now on no more fragments of pages are asked for at a time than this.
    pub fn set_most_page_fragments(&mut self, fragments: u32) {
        self.pages.set_most(fragments);
    }

    /// Forgets a job's outstanding page requests; no event follows for them.
    pub fn cancel_requests(&mut self, job: JobId) {
        self.pages.cancel(job);
    }

    /// Ships a call of a rank; `IoDone` follows. Calls of a rank are carried out in the order
    /// submitted. `Exit` is always taken once, also by a full queue.
    pub fn io_submit(
        &mut self,
        now: Instant,
        job: JobId,
        rank: LocalRank,
        op: IoOp,
    ) -> Result<CallId, SubmitError> {
        let entry = self.jobs.entry(job);
        let io = entry.and_then(|entry| entry.io_mut(rank));
        io.ok_or(SubmitError::UnknownJob)?.submit(now, op)
    }

    /// Calls of a rank that are not done yet: zero means that everything written has arrived.
    pub fn io_pending(&self, job: JobId, rank: LocalRank) -> usize {
        let entry = self.jobs.present().filter(|entry| entry.job == job);
        let io = entry.and_then(|entry| entry.io(rank));
        io.map_or(0, Client::pending)
    }

    /// Whether the control node has not taken all that the ranks of a job have submitted.
    pub fn has_job(&self, job: JobId) -> bool {
        self.jobs.present().is_some_and(|entry| entry.job == job)
    }

    /// True when the endpoint has left and will never send again.
    pub fn has_left(&self) -> bool {
        self.link.has_left()
    }

    /// Counts of what was received, sent and refused.
    pub fn counters(&self) -> &Counters {
        &self.outbox.counters
    }
}

/// Makes PANIC datagrams without the endpoint: a copy is kept where the panic handler finds it.
#[derive(Clone, Copy, Debug)]
pub struct PanicReporter {
    node: NodeId,
    epoch: BootEpoch,
    key: Key,
}

impl PanicReporter {
    /// The datagram that tells the control node about a panic; its length, at the front of `out`
    /// (at least [`crate::MAX_DATAGRAM`] bytes). `attempt` counts from 0 and must differ between
    /// repeats. Long text is cut. Allocates nothing.
    pub fn datagram(&self, attempt: u32, text: &str, out: &mut [u8]) -> usize {
        let seq = PANIC_SEQ + u64::from(attempt);
        let header = Header {
            kind: Kind::Panic,
            node: self.node,
            epoch: self.epoch,
            seq,
        };
        let text = &text[..text.floor_char_boundary(PANIC_TEXT_MAX)];
        datagram::emit(header, Some(&self.key), out, |writer| {
            writer.bytes(text.as_bytes());
        })
    }
}
