//! This node's part in the data that ranks of a job exchange.
//!
//! Key type: [`Exchange`], the engine's endpoint for the open job with what it needs of the node:
//! the program's memory, the job's connection table, the card. It stands beside
//! `agent::cast`, as independent of the protocol with the control node as that.
//!
//! | module | purpose |
//! |---|---|
//! | [`ended`] | jobs whose program has ended, and whose other ranks are answered |
//! | [`memory`] | the program's memory, as the engine reads and writes it |
//! | [`routes`] | how ranks are reached |
//!
//! Neighbours: `agent::node` moves datagrams; `netstack::exchange`; `process::calls::exchange`.
//!
//! Invariant: the engine touches memory of the running program only, through its page table as it
//! is at that moment, and none once [`Exchange::close`] has returned. Of the last jobs the engine
//! stays, to answer their other ranks for what was done here. Without an operation under way there
//! is no deadline, and the card does not interrupt the program.

mod ended;
mod memory;
mod routes;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use hearth_abi::errno::Errno;
use hearth_abi::exchange::{FORGOTTEN_MAX, OUTSTANDING_MAX, Operation, ROOMS_MAX, Status, Why};
use kernel_core::program::UserView;
use netstack::broadcast::table::Entry;
use netstack::exchange::{
    Among, BufferId, Config, Endpoint, Error, Event, MAX_RANKS, Op, OpId, PostError, Settings, wire,
};
use netstack::ids::{JobId, Rank};
use netstack::time::{Instant, Micros};
use netstack::wire::key::Key;

use crate::mm;
use crate::net::peer::PeerDatagram;
use ended::{Answer, Ended};
use memory::ProgramMemory;
pub use routes::Route;
use routes::Routes;

/// What is known of how a rank is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerLookup {
    /// This is how.
    Found(Entry),
    /// The job's connection table does not say.
    NotThere,
    /// The job's connection table is not here.
    NoTable,
}

/// How long a job's connection table may be on its way: longer than a table for a million ranks
/// takes on the slowest link that is planned for. Then there is none.
pub const TABLE_WITHIN: Micros = Micros::from_secs(30);
/// Jobs that have ended here for which their other ranks are answered. A rank that is late asks
/// within the time after which ranks that do not answer are lost; a node that has had so many jobs
/// since then has had very short ones.
const ENDED_MAX: usize = 8;
/// Least room on the heap beside jobs that have ended: with less the oldest is forgotten, and its
/// other ranks lose this one.
const ENDED_ROOM_BYTES: u64 = 1024 * 1024;
/// Operations that are few.
const FEW_OPERATIONS: usize = 256;
/// Room on the heap that many operations leave beside its reserve: as much as messages take that
/// wait in a rank's own room.
const OPERATIONS_ROOM_BYTES: u64 = 1024 * 1024;
/// What a message that waits takes of the heap, when its bytes are elsewhere, at most.
const WAITING_BYTES: u64 = 256;
/// Datagrams in a row that nobody can be sent, after which others have their turn.
const UNROUTED_MAX: usize = 64;

const _: () = assert!(OUTSTANDING_MAX as usize == netstack::exchange::MAX_OPS);
const _: () = assert!(FORGOTTEN_MAX == netstack::exchange::SHORT as u64);

/// A job as far as the exchange knows it.
#[derive(Clone, Copy, Debug)]
struct Job {
    id: JobId,
    me: Rank,
    size: u32,
    /// What its launch brought. None: it was not launched, and its ranks cannot talk.
    key: Option<Key>,
    settings: Settings,
    seed: u64,
    opened: Instant,
}

/// An operation of the program.
#[derive(Debug)]
struct Posted {
    /// Its number in the engine; `None` when it did not get there.
    op: Option<OpId>,
    /// How it ended.
    status: Option<Status>,
    /// A probe that keeps the message that it finds.
    claims: bool,
}

impl Posted {
    /// The probe, where it has found a message and keeps it.
    fn claim(&self) -> Option<OpId> {
        let found = self.status.is_some_and(|status| status.error == 0);
        self.op.filter(|_| self.claims && found)
    }
}

/// How an operation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is under way.
    Pending,
    /// It has finished.
    Finished(Status),
    /// There is no such operation.
    Unknown,
}

/// The exchange of the job that a node has.
#[derive(Debug)]
pub struct Exchange {
    /// How long a connection table may be on its way.
    table_within: Micros,
    /// The job that the node was told to launch last, and its key.
    launched: Option<(JobId, Key)>,
    job: Option<Job>,
    /// Made when the program posts its first operation or the first datagram of the job comes.
    endpoint: Option<Endpoint>,
    view: Option<UserView>,
    /// By the number of the request, as the program knows it; not 0.
    posted: BTreeMap<u32, Posted>,
    /// The requests of operations that have not ended.
    requests: BTreeMap<OpId, u32>,
    /// Messages that probes keep and that the program was told of, by the request.
    claims: BTreeMap<u32, OpId>,
    /// What the program has given for messages that wait: addresses and bytes.
    rooms: Vec<(u64, u64)>,
    /// Number of the last request.
    last_request: u32,
    routes: Routes,
    /// Bytes a second of the node's link, as the control node says with the connection table; 0:
    /// not known.
    link: u64,
    /// How many ranks share each leaf switch, as the connection table says.
    leaf: Option<u32>,
    /// The open job's connection table is here.
    has_table: bool,
    /// The connection table has not come in time.
    unreachable: bool,
    /// An operation has finished since [`Self::take_news`].
    news: bool,
    /// Jobs that have ended, the last first.
    ended: VecDeque<Ended>,
    answers: VecDeque<Answer>,
    /// Packets that jobs which have ended asked for again.
    asked_again: u64,
}

impl Exchange {
    /// No job is open. A job's connection table may be on its way for `table_within`.
    pub fn new(table_within: Micros) -> Self {
        Self {
            table_within,
            launched: None,
            job: None,
            endpoint: None,
            view: None,
            posted: BTreeMap::new(),
            requests: BTreeMap::new(),
            claims: BTreeMap::new(),
            rooms: Vec::new(),
            last_request: 0,
            routes: Routes::default(),
            link: 0,
            leaf: None,
            has_table: false,
            unreachable: false,
            news: false,
            ended: VecDeque::new(),
            answers: VecDeque::new(),
            asked_again: 0,
        }
    }

    /// The node was told to launch a job, whose ranks share `key`.
    pub fn launched(&mut self, id: JobId, key: Key) {
        self.launched = Some((id, key));
    }

    /// A program has been loaded as a rank of a job of `size`.
    pub fn open(&mut self, now: Instant, id: JobId, me: Rank, size: u32, settings: Settings) {
        let launched = self.launched.filter(|(job, _)| *job == id);
        let key = launched.map(|(_, key)| key);
        self.job = Some(Job {
            id,
            me,
            size,
            key,
            settings,
            seed: now.as_micros() ^ u64::from(me.0) << 40,
            opened: now,
        });
    }

    /// Lends the program's memory, as its page table shows it, until [`Self::close`].
    pub fn lend(&mut self, view: UserView) {
        self.view = Some(view);
    }

    /// Hands the engine an operation whose memory is there. Gives the number of the request.
    ///
    /// # Errors
    /// ENOBUFS with too many outstanding, EINVAL for an operation that makes no sense, EAGAIN for a
    /// probe that finds nothing, ENODATA when the job's ranks cannot be reached.
    pub fn post(&mut self, now: Instant, op: Op) -> Result<u32, Errno> {
        if self.posted.len() + self.claims.len() >= OUTSTANDING_MAX as usize {
            return Err(Errno::ENOBUFS);
        }
        if self.unreachable {
            return Err(Errno::ENODATA);
        }
        let claims = matches!(op, Op::Probe { claims: true, .. });
        let mut memory = ProgramMemory(self.view);
        let endpoint = self.endpoint(now).ok_or(Errno::ENODATA)?;
        let (op, status) = match endpoint.post(now, op, &mut memory) {
            Ok(op) => (Some(op), None),
            Err(PostError::Lost(rank)) => {
                let status = Status {
                    error: negative(Errno::EHOSTDOWN),
                    rank: rank.0,
                    ..Status::default()
                };
                (None, Some(status))
            }
            Err(other) => return Err(errno(other)),
        };
        // Program numbers wrap after 2^32 operations; none of those is outstanding then.
        self.last_request = self.last_request.wrapping_add(1).max(1);
        let posted = Posted { op, status, claims };
        self.posted.insert(self.last_request, posted);
        if let Some(op) = op {
            self.requests.insert(op, self.last_request);
        }
        self.take_events();
        Ok(self.last_request)
    }

    /// Sends a message of which the program hears no more, and whose memory is there.
    ///
    /// # Errors
    /// EAGAIN when there is no room for a copy; EHOSTDOWN when its receiver is lost; EINVAL for a
    /// message that makes no sense; ENODATA when the job's ranks cannot be reached.
    pub fn send_forgotten(&mut self, now: Instant, operation: &Operation) -> Result<(), Errno> {
        if self.unreachable {
            return Err(Errno::ENODATA);
        }
        let mut memory = ProgramMemory(self.view);
        let whereto = (Rank(operation.rank), operation.context, operation.tag);
        let what = (BufferId(operation.send), operation.send_bytes);
        let endpoint = self.endpoint(now).ok_or(Errno::ENODATA)?;
        let sent = endpoint.send_forgotten(now, whereto, what, &mut memory);
        // One to this rank itself may have met its receive.
        self.take_events();
        sent.map_err(errno)
    }

    /// Posts the receive of the message that the probe of a request keeps.
    ///
    /// # Errors
    /// EINVAL when it keeps none; those of [`Self::post`].
    pub fn post_claimed(
        &mut self,
        now: Instant,
        request: u32,
        (buffer, capacity): (BufferId, u64),
    ) -> Result<u32, Errno> {
        let claim = self.claims.remove(&request).ok_or(Errno::EINVAL)?;
        let op = Op::ReceiveClaimed {
            claim,
            buffer,
            capacity,
        };
        let posted = self.post(now, op);
        if posted.is_err() {
            self.claims.insert(request, claim);
        }
        posted
    }

    /// The program takes no part in the next all-to-all of a context, because of what a rank has
    /// done ([`Endpoint::sit_out`]).
    ///
    /// # Errors
    /// EINVAL for a context or group that there is not, ENODATA when the job's ranks cannot be
    /// reached.
    pub fn sit_out(
        &mut self,
        now: Instant,
        among: &Among,
        (rank, why): (Rank, Why),
    ) -> Result<(), Errno> {
        let error = match why {
            Why::Lost => Error::RankLost(rank),
            Why::Length => Error::SizeMismatch { rank },
            Why::Withdrawn => Error::Withdrawn(rank),
        };
        let endpoint = self.endpoint(now).ok_or(Errno::ENODATA)?;
        endpoint.sit_out(among, error).map_err(errno)
    }

    /// Room on the heap that another message operation needs. As few as there are in most programs
    /// need none beside the reserve; many leave it to what other ranks send, without which none of
    /// them would ever end.
    pub fn room_for_operation(&self) -> u64 {
        match self.posted.len() < FEW_OPERATIONS {
            true => 0,
            false => OPERATIONS_ROOM_BYTES,
        }
    }

    /// The program gives memory for messages that wait: address and bytes. It may give none twice.
    ///
    /// # Errors
    /// EINVAL where it overlaps what was given before, ENOBUFS after [`ROOMS_MAX`], ENODATA when
    /// the job's ranks cannot be reached.
    pub fn give_room(&mut self, now: Instant, (start, bytes): (u64, u64)) -> Result<(), Errno> {
        let end = start.checked_add(bytes).ok_or(Errno::EINVAL)?;
        let mut rooms = self.rooms.iter();
        if rooms.any(|(other, bytes)| *other < end && start < other + bytes) {
            return Err(Errno::EINVAL);
        }
        if self.rooms.len() >= ROOMS_MAX {
            return Err(Errno::ENOBUFS);
        }
        let kept = mm::HEAP_RESERVE_BYTES + OPERATIONS_ROOM_BYTES;
        let most = mm::heap_room_bytes().saturating_sub(kept) / 2 / WAITING_BYTES;
        let endpoint = self.endpoint(now).ok_or(Errno::ENODATA)?;
        endpoint.add_room(BufferId(start), bytes, most as usize);
        self.rooms.push((start, bytes));
        Ok(())
    }

    /// How a request stands.
    pub fn state(&self, request: u32) -> State {
        match self.posted.get(&request) {
            None => State::Unknown,
            Some(Posted { status: None, .. }) => State::Pending,
            Some(Posted {
                status: Some(status),
                ..
            }) => State::Finished(*status),
        }
    }

    /// Whether a receive may be stuck at all.
    pub fn is_full(&self) -> bool {
        self.endpoint.as_ref().is_some_and(Endpoint::is_full)
    }

    /// Whether a request is a receive that nothing can come for before messages that wait are
    /// received ([`Endpoint::is_stuck`]).
    pub fn is_stuck(&self, request: u32) -> bool {
        let op = self.posted.get(&request).and_then(|posted| posted.op);
        op.zip(self.endpoint.as_ref())
            .is_some_and(|(op, endpoint)| endpoint.is_stuck(op))
    }

    /// Ends a request that is stuck, with ENOBUFS.
    pub fn end_stuck(&mut self, now: Instant, request: u32) {
        if let Some(posted) = self.posted.get_mut(&request)
            && let (Some(op), Some(endpoint)) = (posted.op, &mut self.endpoint)
        {
            endpoint.cancel(now, op, &mut ProgramMemory(self.view));
            self.requests.remove(&op);
            posted.status = Some(Status {
                error: negative(Errno::ENOBUFS),
                ..Status::default()
            });
        }
    }

    /// Forgets a request. When it was under way its memory is not touched any more. Returns whether
    /// there was such a request.
    pub fn forget(&mut self, now: Instant, request: u32) -> bool {
        let claimed = self.claims.remove(&request);
        let posted = self.posted.remove(&request);
        let under_way = posted.as_ref().filter(|posted| posted.status.is_none());
        let op = (claimed.or_else(|| posted.as_ref()?.claim())).or_else(|| under_way?.op);
        if let (Some(op), Some(endpoint)) = (op, &mut self.endpoint) {
            endpoint.cancel(now, op, &mut ProgramMemory(self.view));
            self.requests.remove(&op);
            // A message that was let go may have met its receive.
            self.take_events();
        }
        claimed.is_some() || posted.is_some()
    }

    /// The program was told how a request has ended. Of a probe that keeps a message that message
    /// is still known by the request.
    pub fn acknowledge(&mut self, request: u32) {
        if let Some(op) = self.posted.remove(&request).and_then(|of| of.claim()) {
            self.claims.insert(request, op);
        }
    }

    /// Until when the end of the program waits for the job's connection table: without it nothing
    /// that the program has sent could reach anybody, now or later. None: it does not, since the
    /// table is here or nothing is under way.
    pub fn waits_for_table(&self, now: Instant) -> Option<Instant> {
        let (job, endpoint) = (self.job?, self.endpoint.as_ref()?);
        let until = job.opened + self.table_within;
        let waits = job.size > 1 && !self.has_table && !self.unreachable;
        (waits && endpoint.is_active() && now < until).then_some(until)
    }

    /// The job is over on this node: ranks that wait for this one are told, and the program's
    /// memory is not touched after this. `is_well`: it has ended by itself, without an error.
    pub fn close(&mut self, now: Instant, is_well: bool) {
        self.view = None;
        self.asked_again = self.asked_again();
        let routes = core::mem::take(&mut self.routes);
        if let Some(job) = self.job.filter(|job| job.size > 1)
            && let Some(endpoint) = self.endpoint(now)
        {
            endpoint.leave(now, is_well);
            let endpoint = self.endpoint.take();
            self.ended.truncate(ENDED_MAX - 1);
            while !self.ended.is_empty() && mm::heap_room_bytes() < ENDED_ROOM_BYTES {
                self.ended.pop_back();
            }
            self.ended.extend(endpoint.map(|endpoint| Ended {
                job: job.id,
                endpoint,
                routes,
            }));
            self.ended.rotate_right(1);
        }
        self.endpoint = None;
        self.job = None;
        self.posted.clear();
        self.requests.clear();
        self.claims.clear();
        self.rooms.clear();
        self.link = 0;
        self.leaf = None;
        self.has_table = false;
        self.unreachable = false;
    }

    /// Whether a datagram is for this part of the node.
    pub fn takes(datagram: &[u8]) -> bool {
        netstack::exchange::is_exchange(datagram)
    }

    /// Whether the heap has room for what a program or a datagram adds, `bytes` beside the little
    /// that each may. Jobs that have ended go first.
    pub fn has_room(&mut self, bytes: u64) -> bool {
        let is_short = || mm::heap_room_bytes() < mm::HEAP_RESERVE_BYTES + bytes;
        while is_short() && self.ended.pop_back().is_some() {}
        !is_short()
    }

    /// Takes a datagram of a rank. With no room for what it may bring it counts as lost on the way:
    /// its sender says it again.
    pub fn handle_datagram(&mut self, now: Instant, arrived: &PeerDatagram<'_>) {
        if !self.has_room(0) {
            return;
        }
        let is_current = |job: &Job| wire::may_be_of(job.id, arrived.bytes);
        if self.job.as_ref().is_some_and(is_current) {
            let mut memory = ProgramMemory(self.view);
            let endpoint = self.endpoint(now);
            let sender =
                endpoint.and_then(|end| end.handle_datagram(now, arrived.bytes, &mut memory));
            self.take_events();
            if sender.is_some() {
                return;
            }
        }
        let answers = &mut self.answers;
        for ended in &mut self.ended {
            if wire::may_be_of(ended.job, arrived.bytes) && ended.answer(now, arrived, answers) {
                return;
            }
        }
    }

    /// The control node has said with the connection table how many bytes a second the links of the
    /// job's nodes carry. What a launch says goes before that.
    pub fn set_link(&mut self, now: Instant, rate: u64) {
        let is_told = self.job.is_some_and(|job| job.settings.rate != 0);
        if rate != self.link && !is_told {
            self.link = rate;
            if let Some(endpoint) = &mut self.endpoint {
                endpoint.set_rate(now, rate);
            }
        }
    }

    /// Whether [`Self::set_leaf`] has been called for the open job.
    pub fn knows_leaf(&self) -> bool {
        self.leaf.is_some()
    }

    /// The connection table of the open job says how many ranks share each leaf switch; 0: not the
    /// same everywhere. Exchanges that begin from now on go in the order that suits these. What a
    /// launch says goes before that.
    pub fn set_leaf(&mut self, leaf: u32) {
        let Some(job) = &self.job else {
            return;
        };
        let leaf = job.settings.leaf.unwrap_or(leaf);
        self.leaf = Some(leaf);
        if let Some(endpoint) = &mut self.endpoint
            && endpoint.set_leaf(leaf)
        {
            log_order(job.id, endpoint);
        }
    }

    /// The next datagram to send: where to and its length, written to the front of `buffer`, which
    /// has [`netstack::MAX_DATAGRAM`] bytes. `table` looks ranks up in the job's connection
    /// table, once that is here.
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        buffer: &mut [u8],
        table: Option<&dyn Fn(Rank) -> PeerLookup>,
    ) -> Option<(Route, usize)> {
        if let Some(Answer { route, datagram }) = self.answers.pop_front() {
            buffer[..datagram.len()].copy_from_slice(&datagram);
            return Some((route, datagram.len()));
        }
        let mut ended = self.ended.iter_mut();
        if let Some(found) = ended.find_map(|ended| ended.poll_transmit(now, buffer)) {
            return Some(found);
        }
        self.has_table |= table.is_some();
        let (job, endpoint) = (self.job?, self.endpoint.as_mut()?);
        if job.size > 1 && table.is_none() {
            if !self.unreachable && now >= job.opened + self.table_within {
                self.give_up(now);
            }
            return None;
        }
        let mut memory = ProgramMemory(self.view);
        let mut found = None;
        for _ in 0..UNROUTED_MAX {
            let Some((rank, length)) = endpoint.poll_transmit(now, buffer, &mut memory) else {
                break;
            };
            // No switch would bring it back.
            if rank == job.me {
                continue;
            }
            let route = self.routes.find(rank, || match table?(rank) {
                PeerLookup::Found(entry) => Some(Route {
                    address: entry.addr,
                    mac: entry.mac,
                }),
                PeerLookup::NotThere | PeerLookup::NoTable => None,
            });
            // A rank that the table does not have is lost after a while, like one that does not
            // answer.
            if let Some(route) = route {
                found = Some((route, length));
                break;
            }
        }
        self.take_events();
        found
    }

    /// When something is due without a datagram arriving. `has_table`: the job's connection table
    /// is here.
    pub fn poll_timeout(&self, has_table: bool) -> Option<Instant> {
        if !self.answers.is_empty() {
            return Some(Instant::ZERO);
        }
        let ended = self.ended.iter();
        let ended = ended
            .filter_map(|ended| ended.endpoint.poll_timeout())
            .min();
        let open = || {
            let (job, endpoint) = (self.job?, self.endpoint.as_ref()?);
            if has_table || job.size == 1 {
                return endpoint.poll_timeout();
            }
            // Nothing can be sent; when it comes that is news of a cast.
            (endpoint.is_active() && !self.unreachable).then_some(job.opened + self.table_within)
        };
        open().into_iter().chain(ended).min()
    }

    /// Something is to be sent or copied now.
    pub fn is_due(&self, now: Instant) -> bool {
        self.poll_timeout(true).is_some_and(|at| at <= now)
    }

    /// Whether the program has operations under way: while it computes, the card may interrupt it.
    pub fn is_active(&self) -> bool {
        self.endpoint.as_ref().is_some_and(Endpoint::is_active)
    }

    /// Whether an operation has finished since the last call.
    pub fn take_news(&mut self) -> bool {
        core::mem::take(&mut self.news)
    }

    /// Packets asked for again since the node started.
    pub fn asked_again(&self) -> u64 {
        let endpoint = self.endpoint.as_ref();
        self.asked_again + endpoint.map_or(0, |endpoint| endpoint.counters().asked_again)
    }

    /// Which job is open.
    pub fn job(&self) -> Option<JobId> {
        self.job.map(|job| job.id)
    }

    /// The engine's end for the open job.
    fn endpoint(&mut self, now: Instant) -> Option<&mut Endpoint> {
        // Larger jobs run, but their ranks cannot talk.
        let job = self.job.filter(|job| job.size <= MAX_RANKS)?;
        let key = job.key?;
        let link = Some(self.link).filter(|_| job.settings.rate == 0);
        let leaf = job.settings.leaf.or(self.leaf).unwrap_or(0);
        Some(self.endpoint.get_or_insert_with(|| {
            let config = Config {
                job: job.id,
                epoch: 0,
                me: job.me,
                size: job.size,
                key,
                rate: job.settings.rate,
                port_buffer: job.settings.port_buffer,
                leaf,
                scheme: job.settings.scheme,
                eager_bytes: 0,
                seed: job.seed,
            };
            let mut endpoint = Endpoint::new(config, now);
            log_order(job.id, &endpoint);
            if let Some(rate) = link {
                endpoint.set_rate(now, rate);
            }
            endpoint
        }))
    }

    /// The connection table has not come: nothing that was posted can ever be done.
    fn give_up(&mut self, now: Instant) {
        self.unreachable = true;
        self.news = true;
        self.requests.clear();
        for posted in (self.posted.values_mut()).filter(|posted| posted.status.is_none()) {
            if let (Some(op), Some(endpoint)) = (posted.op, &mut self.endpoint) {
                endpoint.cancel(now, op, &mut ProgramMemory(self.view));
            }
            posted.status = Some(Status {
                error: negative(Errno::ENODATA),
                ..Status::default()
            });
        }
    }

    fn take_events(&mut self) {
        let Some(endpoint) = &mut self.endpoint else {
            return;
        };
        while let Some(event) = endpoint.poll_event() {
            let (op, status) = match event {
                Event::Done {
                    op,
                    bytes,
                    peer,
                    tag,
                } => {
                    let status = Status {
                        error: 0,
                        rank: peer.0,
                        tag,
                        bytes,
                    };
                    (op, status)
                }
                Event::Failed { op, error } => (op, failure(error)),
            };
            // One that was cancelled meanwhile is nobody's.
            let request = self.requests.remove(&op);
            if let Some(posted) = request.and_then(|request| self.posted.get_mut(&request)) {
                posted.status = Some(status);
                self.news = true;
            }
        }
    }
}

/// The error that a program gets when an operation is not taken.
fn errno(error: PostError) -> Errno {
    match error {
        PostError::Full => Errno::ENOBUFS,
        PostError::TooManyContexts => Errno::ENOSPC,
        PostError::Lost(_) => Errno::EHOSTDOWN,
        PostError::NoMessage | PostError::NoRoom => Errno::EAGAIN,
        PostError::Gone => Errno::EFAULT,
        PostError::BadRank
        | PostError::BadContext
        | PostError::BadGroup
        | PostError::BadNumber
        | PostError::TooLong
        | PostError::NoClaim
        | PostError::BadLayout => Errno::EINVAL,
    }
}

/// Says so where exchanges go in the order of leaf switches.
fn log_order(job: JobId, endpoint: &Endpoint) {
    if let Some(leaf) = endpoint.leaf() {
        info!(
            "exchange",
            "job {job}: rounds in the order of leaf switches of {leaf} ranks"
        );
    }
}

fn failure(error: Error) -> Status {
    let of = |errno, rank: Rank| Status {
        error: negative(errno),
        rank: rank.0,
        ..Status::default()
    };
    match error {
        Error::RankLost(rank) => of(Errno::EHOSTDOWN, rank),
        Error::SizeMismatch { rank } | Error::Other(rank) => of(Errno::EPROTO, rank),
        Error::Withdrawn(rank) => of(Errno::ECANCELED, rank),
        Error::Truncated { sent, from, tag } => Status {
            tag,
            bytes: sent,
            ..of(Errno::EMSGSIZE, from)
        },
        Error::Gone => of(Errno::EFAULT, Rank(0)),
    }
}

fn negative(errno: Errno) -> i32 {
    -i32::from(errno.number())
}
