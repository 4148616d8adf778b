//! A control node made of an array: what a program asks for is answered at once, and everything
//! is recorded.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;

use kernel_core::files::temporary::Temporary;
use kernel_core::objects::{Kept, ObjectId, Objects, Part, Spec};
use kernel_core::pagehash::PageHashes;
use kernel_core::retention::{self, WarmTable};
use kernel_core::threads::Core;
use netstack::broadcast::table::Table;
use netstack::ids::{CallId, JobId, LocalRank, ProgramId, Rank, RequestId};
use netstack::io::{IoOp, MAX_QUEUED_CALLS, SubmitError};
use netstack::job::{LaunchSpec, StartMode, launch_block};
use netstack::node::Full;
use netstack::page::{MAX_REQUESTS, Object, PageError, PageTraffic};
use netstack::retention::Retention;
use netstack::time::{Instant, Micros};

use super::fake_cast::FakeCast;
use super::fake_ranks::FakeRanks;
use crate::arch::cores;
use crate::exchange::{Exchange, PeerLookup, TABLE_WITHIN};
use crate::mm::Hardware;
use crate::process::Launch;
use crate::process::services::{CastPage, Running};
use crate::process::services::{IoCompletion, NodeServices, PageCompletion, Ranks};
use crate::time::Moment;
use crate::{mm, monitor, time};

/// Bytes of output that are kept: a hostile program can write far more than the kernel has heap.
const WRITTEN_MAX: usize = 64 * 1024;

/// The node's name.
pub const NODE_NAME: &str = "n12";

/// Waits that are remembered.
const BLOCKED_MAX: usize = 1024;

/// Blocks of files that are given.
const FILE_BLOCK_LOG2: u8 = 12;

/// What happens when the node asks for page hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnHashes {
    /// They are given.
    Give,
    /// Those of another file are given.
    Lie,
    /// They cannot be had.
    Lose,
    /// They are given, and control wants nothing kept of the program.
    Drop,
    /// They do not come: the job is cancelled.
    Cancel,
}

/// Control for one program at a time, and the node's warm programs.
pub struct FakeControl {
    program: Vec<u8>,
    hashes: PageHashes,
    block: Vec<u8>,
    /// Answers, and when each is there.
    pages: VecDeque<(Instant, PageCompletion)>,
    /// Microseconds until an answer to a page request is there.
    pub delay_us: u64,
    /// Most page requests that were under way at once.
    pub outstanding: usize,
    /// Requests for the program file and bytes of it that were given.
    pub traffic: PageTraffic,
    /// What is kept and reused; nothing at first.
    pub retention: Retention,
    /// The node's warm programs.
    pub warm: WarmTable,
    /// The objects in the node's memory.
    pub objects: Objects,
    /// `/tmp` of the job.
    pub temporary: Temporary,
    /// A broadcast of the program.
    pub cast: Option<FakeCast>,
    /// The job's connection table, there when `poll` has been called so often.
    pub table: Option<Vec<u8>>,
    pub table_after: u32,
    size: u32,
    /// Others may be given pages of the program that runs, as far as it has told.
    pub running: Option<Running>,
    /// When a broadcast that is unfinished must be looked after.
    pub cast_due: Option<Instant>,
    /// What the program exchanges with other ranks.
    pub exchange: Exchange,
    /// The other ranks.
    pub ranks: Option<FakeRanks>,
    /// Times the card was allowed to interrupt, and forbidden.
    pub listened: (u32, u32),
    /// Files that the launch names: name, object, length.
    files: Vec<(String, ObjectId, u64)>,
    /// Blocks of objects that arrive at the next waits, one at each.
    pub arriving: VecDeque<(ObjectId, u32, Vec<u8>)>,
    /// What happens when the node asks for page hashes.
    pub on_hashes: OnHashes,
    cancelled: bool,
    /// Control wants nothing kept of the program that runs.
    pub dropped: bool,
    io: VecDeque<IoCompletion>,
    next: u64,
    /// What the program wrote first, up to [`WRITTEN_MAX`] bytes, with the descriptor it wrote to.
    pub written: Vec<(u32, Vec<u8>)>,
    written_bytes: usize,
    /// Only what is written to this descriptor is kept.
    pub record_only: Option<u32>,
    /// What the program can read.
    pub input: Vec<u8>,
    /// Time limit of the job, 0 for none.
    pub time_limit_us: u64,
    /// Requests and calls to refuse as [`Full`] before one is taken.
    pub full: u32,
    /// Pages of the program from this offset on cannot be read.
    pub broken_from: u64,
    /// Cancel with SIGTERM when the program has been interrupted so often.
    pub cancel_after_polls: Option<u32>,
    /// Signals that the program gets when it has been interrupted.
    pub signals: VecDeque<u8>,
    /// How many system calls the program had made at each wait that was one: the last of them has
    /// blocked. The first [`BLOCKED_MAX`].
    pub blocked: Vec<u64>,
    /// Calls of `poll` so far.
    pub polls: u32,
    /// Most frames that were given back between two calls of `poll`, and how many were at the last.
    pub most_freed: u64,
    freed: u64,
    /// When `poll` was called last.
    polled: Instant,
    /// Microseconds between two interrupts of a computing program.
    pub tick_us: u64,
}

impl FakeControl {
    /// Control for a job of one rank that runs `program` without arguments.
    pub fn new(program: Vec<u8>) -> Self {
        let block = launch_block(1, &[]);
        Self {
            hashes: PageHashes::of_file(&program),
            program,
            block,
            pages: VecDeque::new(),
            delay_us: 0,
            outstanding: 0,
            traffic: PageTraffic::default(),
            retention: Retention::NOTHING,
            warm: WarmTable::new(u64::MAX),
            objects: Objects::new(u64::MAX),
            temporary: Temporary::default(),
            cast: None,
            table: None,
            table_after: 0,
            size: 1,
            running: None,
            cast_due: None,
            exchange: Exchange::new(TABLE_WITHIN),
            ranks: None,
            listened: (0, 0),
            files: Vec::new(),
            arriving: VecDeque::new(),
            on_hashes: OnHashes::Give,
            cancelled: false,
            dropped: false,
            io: VecDeque::new(),
            next: 0,
            written: Vec::new(),
            written_bytes: 0,
            record_only: None,
            input: Vec::new(),
            time_limit_us: 0,
            full: 0,
            broken_from: u64::MAX,
            cancel_after_polls: None,
            signals: VecDeque::new(),
            blocked: Vec::new(),
            polls: 0,
            most_freed: 0,
            freed: mm::frames().counters().freed,
            polled: time::now(),
            tick_us: 1_000_000,
        }
    }

    /// The job has so many ranks, of which this is the first.
    pub fn set_size(&mut self, size: u32) {
        self.size = size;
        self.block = launch_block(size, &self.files);
    }

    /// The job has this environment, and no files.
    pub fn set_environment(&mut self, variables: &[&[u8]]) {
        let argv: [&[u8]; 1] = [b"test"];
        let block = launch_block::emit(Rank(0), self.size, &argv, variables, &[]);
        self.block = block.expect("a small launch block");
    }

    /// Control on a node that keeps warm programs, as nodes do by default.
    pub fn warming(program: Vec<u8>) -> Self {
        let mut control = Self::new(program);
        control.retention = Retention::default();
        control
    }

    /// Another program on the same node.
    pub fn next_program(&mut self, program: Vec<u8>) {
        self.hashes = PageHashes::of_file(&program);
        self.program = program;
        self.written.clear();
        self.written_bytes = 0;
        self.traffic = PageTraffic::default();
    }

    /// The same program again, nothing cancelled or dropped.
    pub fn again(&mut self) {
        (self.cancelled, self.dropped) = (false, false);
        let program = core::mem::take(&mut self.program);
        self.next_program(program);
    }

    /// Puts a file into the node's memory and names it in the launch. With `late` it is only
    /// announced, and arrives while the node waits.
    pub fn give_file(&mut self, name: &str, bytes: &[u8], late: bool) -> ObjectId {
        let id = ObjectId(PageHashes::of_file(bytes).root());
        let spec = Spec::new(id, bytes.len() as u64, FILE_BLOCK_LOG2, Kept::File);
        self.objects
            .create(&mut Hardware::new(), spec)
            .expect("room for a file");
        for (number, block) in (0..).zip(bytes.chunks(1 << FILE_BLOCK_LOG2)) {
            self.arriving.push_back((id, number, block.to_vec()));
        }
        while !late && self.arrive() {}
        self.name_file(name, id, bytes.len() as u64);
        id
    }

    /// Names a file in the launch.
    pub fn name_file(&mut self, name: &str, id: ObjectId, bytes: u64) {
        self.files.push((name.into(), id, bytes));
        self.block = launch_block(self.size, &self.files);
    }

    /// Names no file any more.
    pub fn name_nothing(&mut self) {
        self.files.clear();
        self.block = launch_block(self.size, &[]);
    }

    /// The next block arrives; `false` when none is on its way.
    fn arrive(&mut self) -> bool {
        let Some((id, number, bytes)) = self.arriving.pop_front() else {
            return false;
        };
        let written = self
            .objects
            .write(&mut Hardware::new(), &id, Part::Data(number), &bytes);
        written.expect("room for a block");
        true
    }

    /// The program file.
    pub fn file(&self) -> &[u8] {
        &self.program
    }

    /// The program as the table of warm programs knows it.
    pub fn id(&self) -> retention::ProgramId {
        retention::ProgramId(self.hashes.root())
    }

    /// The launch command for this program, with its launch block.
    pub fn launch(&self) -> Launch {
        Launch {
            spec: self.spec(),
            block: Some(self.block.clone()),
            arrived: Moment::now(),
        }
    }

    /// What the launch command says.
    pub fn spec(&self) -> LaunchSpec {
        LaunchSpec {
            retention: self.retention,
            start: StartMode::AtOnce,
            cores: 0,
            core_bytes: 0,
            files: None,
            job: JobId(1),
            rank: Rank(0),
            ranks: 1,
            size: self.size,
            program: ProgramId(self.hashes.root()),
            program_bytes: self.program.len() as u64,
            launch_block_bytes: self.block.len() as u32,
            time_limit_us: self.time_limit_us,
            monitor_period_us: 0,
            memory_limit: 0,
        }
    }

    /// All bytes the program wrote to a descriptor.
    pub fn output(&self, fd: u32) -> Vec<u8> {
        let of_fd = self.written.iter().filter(|(to, _)| *to == fd);
        of_fd.flat_map(|(_, data)| data.iter().copied()).collect()
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn deliver_blocks(&mut self) {
        if let Some(cast) = &mut self.cast {
            cast.deliver(&mut self.objects);
        }
    }

    fn deliver_messages(&mut self) {
        if let Some(ranks) = &mut self.ranks {
            ranks.pump(time::now(), &mut self.exchange);
        }
    }

    /// Counts down the refusals.
    fn is_full(&mut self) -> bool {
        let full = self.full > 0;
        self.full = self.full.saturating_sub(1);
        full
    }
}

/// Every rank has the same services: those of one program.
impl Ranks for FakeControl {
    fn rank(&mut self, _rank: LocalRank) -> &mut dyn NodeServices {
        self
    }

    fn is_quiet(&self) -> bool {
        false
    }

    fn present(&self) -> &dyn NodeServices {
        self
    }
}

impl NodeServices for FakeControl {
    fn name(&self) -> &str {
        NODE_NAME
    }

    fn now(&self) -> Instant {
        time::now()
    }

    fn poll(&mut self) {
        self.polls += 1;
        let freed = mm::frames().counters().freed;
        self.most_freed = self.most_freed.max(freed - self.freed);
        self.freed = freed;
        self.polled = time::now();
        self.deliver_blocks();
        self.deliver_messages();
    }

    fn take_polled(&mut self) -> bool {
        true
    }

    fn begin_sleep(&mut self, deadline: Instant) -> Option<Instant> {
        if self.arrive() {
            return None;
        }
        let now = time::now();
        let page = self.pages.front().map(|(at, _)| *at);
        let block = self.cast.as_ref().and_then(FakeCast::next);
        if let Some(ranks) = &mut self.ranks {
            ranks.program_waits(now, monitor::running().system_calls);
        }
        self.deliver_messages();
        if self.exchange.take_news() {
            return None;
        }
        let ranks = self.ranks.as_ref().map(|ranks| ranks.next(&self.exchange));
        let ready = [page, block, ranks].into_iter().flatten().min();
        if ready.is_some_and(|at| at <= now) || !self.io.is_empty() || self.full > 0 {
            return Some(now);
        }
        if self.blocked.len() < BLOCKED_MAX {
            self.blocked.push(monitor::running().system_calls);
        }
        Some(ready.map_or(deadline, |at| at.min(deadline)))
    }

    fn end_sleep(&mut self) {
        self.deliver_messages();
        self.deliver_blocks();
    }

    fn tick(&self) -> Instant {
        self.polled + Micros(self.tick_us)
    }

    fn monitor_deadline(&self) -> Option<Instant> {
        None
    }

    fn be_quiet(&mut self) {}

    fn cancelled(&self) -> Option<u8> {
        let by_polls = self
            .cancel_after_polls
            .is_some_and(|most| self.polls >= most);
        (by_polls || self.cancelled).then_some(15)
    }

    fn take_signal(&mut self) -> Option<u8> {
        match self.polls {
            0 => None,
            _ => self.signals.pop_front(),
        }
    }

    fn request_pages(
        &mut self,
        object: Object,
        offset: u64,
        length: u32,
        _demand: bool,
    ) -> Result<RequestId, Full> {
        if self.is_full() || self.pages.len() >= MAX_REQUESTS {
            return Err(Full);
        }
        let request = RequestId(self.number());
        let bytes = match object {
            Object::Program => &self.program,
            Object::LaunchBlock => &self.block,
            Object::PageHashes => self.hashes.as_bytes(),
        };
        let broken = object == Object::Program && offset + u64::from(length) > self.broken_from;
        let start = (offset as usize).min(bytes.len());
        let end = (start + length as usize).min(bytes.len());
        let mut result = match broken {
            true => Err(PageError::TimedOut),
            false => Ok(bytes[start..end].to_vec()),
        };
        if object == Object::PageHashes {
            match (self.on_hashes, &mut result) {
                (OnHashes::Lie, Ok(list)) => list[0] ^= 1,
                (OnHashes::Lose, _) => result = Err(PageError::NoSuchObject),
                (OnHashes::Drop, _) => self.dropped = true,
                (OnHashes::Cancel, _) => {
                    self.cancelled = true;
                    return Ok(request);
                }
                _ => {}
            }
        }
        if object == Object::Program {
            self.traffic.requests += 1;
            self.traffic.bytes += (end - start) as u64;
        }
        let at = time::now() + Micros(self.delay_us);
        self.pages
            .push_back((at, PageCompletion { request, result }));
        self.outstanding = self.outstanding.max(self.pages.len());
        // The answer wakes the core that waits for the network, as a card's interrupt would.
        if cores::count() > 1 {
            cores::kick(Core::BOOT);
        }
        Ok(request)
    }

    fn take_pages(&mut self) -> Option<PageCompletion> {
        let there = |(at, _): &mut (Instant, PageCompletion)| *at <= time::now();
        let (_, completion) = self.pages.pop_front_if(there)?;
        Some(completion)
    }

    fn forget_pages(&mut self) {
        self.pages.clear();
    }

    fn page_traffic(&self) -> PageTraffic {
        self.traffic
    }

    fn warm(&mut self) -> &mut WarmTable {
        &mut self.warm
    }

    fn temporary(&mut self) -> &mut Temporary {
        &mut self.temporary
    }

    fn objects(&mut self) -> &mut Objects {
        &mut self.objects
    }

    fn keep_room(&mut self, least: u64) {
        self.objects.keep_room(&mut Hardware::new(), least);
        self.warm.keep_room(&mut Hardware::new(), least);
    }

    fn set_running(&mut self, running: Option<Running>) {
        self.running = running;
    }

    fn cast_page(&self, page: u64) -> CastPage {
        let cast = self.cast.as_ref();
        cast.map_or(CastPage::Absent, |cast| cast.page(page, &self.objects))
    }

    fn read_page(&self, _: &ObjectId, _: u64) -> CastPage {
        CastPage::Absent
    }

    fn want_read(&mut self, _: &ObjectId, _: u64) {}

    fn want_page(&mut self, page: u64) {
        if let Some(cast) = &mut self.cast {
            cast.want(page);
        }
    }

    fn cast_progress(&self) -> u64 {
        self.cast.as_ref().map_or(0, FakeCast::progress)
    }

    fn peer(&self, rank: Rank) -> PeerLookup {
        let Some(bytes) = self
            .table
            .as_ref()
            .filter(|_| self.polls >= self.table_after)
        else {
            return PeerLookup::NoTable;
        };
        let mut read = |offset: u64, out: &mut [u8]| {
            let from = bytes.get(offset as usize..).unwrap_or_default();
            let there = from.get(..out.len());
            there.map(|from| out.copy_from_slice(from)).is_some()
        };
        let table = Table::open(bytes.len() as u64, &mut read);
        let entry = table.and_then(|table| table.entry(rank, &mut read));
        entry.map_or(PeerLookup::NotThere, PeerLookup::Found)
    }

    fn exchange(&mut self) -> &mut Exchange {
        &mut self.exchange
    }

    fn peers_deadline(&self) -> Option<Instant> {
        self.cast_due
    }

    fn listen(&mut self, on: bool) -> bool {
        match on {
            true => self.listened.0 += 1,
            false => self.listened.1 += 1,
        }
        let is_there = |(at, _): &(Instant, PageCompletion)| *at <= time::now();
        on && cores::count() > 1 && self.pages.front().is_some_and(is_there)
    }

    fn dropped(&self) -> bool {
        self.dropped
    }

    fn io_submit(&mut self, op: IoOp) -> Result<CallId, SubmitError> {
        if self.is_full() || self.io.len() >= MAX_QUEUED_CALLS {
            return Err(SubmitError::Full);
        }
        let call = CallId(self.number());
        let data = match op {
            IoOp::Write { fd, data, .. } => {
                let result = data.len() as i64;
                let is_kept = self.record_only.is_none_or(|only| only == fd);
                if is_kept && self.written_bytes <= WRITTEN_MAX {
                    self.written_bytes += data.len();
                    self.written.push((fd, data));
                }
                self.io.push_back(IoCompletion {
                    call,
                    result,
                    data: Vec::new(),
                });
                return Ok(call);
            }
            IoOp::Read { size, .. } => {
                let size = (size as usize).min(self.input.len());
                self.input.drain(..size).collect()
            }
            IoOp::Report { .. } | IoOp::Exit(_) => Vec::new(),
        };
        self.io.push_back(IoCompletion {
            call,
            result: data.len() as i64,
            data,
        });
        Ok(call)
    }

    fn io_pending(&self) -> usize {
        self.io.len()
    }

    fn take_io(&mut self) -> Option<IoCompletion> {
        self.io.pop_front()
    }
}

/// A launch block without arguments that names files.
fn launch_block(size: u32, files: &[(String, ObjectId, u64)]) -> Vec<u8> {
    let argv: [&[u8]; 1] = [b"test"];
    let named = files.iter().map(|(name, id, bytes)| launch_block::File {
        name,
        object: id.0,
        bytes: *bytes,
    });
    let named: Vec<_> = named.collect();
    launch_block::emit(Rank(0), size, &argv, &[], &named).expect("a small launch block")
}
