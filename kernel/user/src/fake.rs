//! The system calls for tests: ranks are threads of one process, messages are copied under one
//! lock.
//!
//! It stands in the place of `call` and has its functions. Key types: [`run`], which runs a job;
//! [`Shortage`], what a rank of it can lack.
//!
//! Invariant: an operation that the kernel would refuse is refused here too; an exchange needs the
//! ranks that it has blocks for or from, and fails with the reason of the first of them that has
//! failed in it or does not come.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ptr;
use std::slice;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use hearth_abi::errno::Errno;
use hearth_abi::exchange::{
    ANY_RANK, ANY_TAG, CLAIM, CLAIMED, FOREVER, Identity, Kind, NOW, OUTSTANDING_MAX, Operation,
    SIT_OUT, STATUS_BYTES, SYNCHRONOUS, Status, Why,
};

use crate::{Error, Result};

/// Nobody watches a test: the number is checked, and that is all.
pub fn count(counter: u32, _value: i64) -> Result<()> {
    match u64::from(counter) < hearth_abi::monitor::COUNTERS_MAX {
        true => Ok(()),
        false => Err(Error::of_number(Errno::EINVAL.number().into())),
    }
}

/// A test that waits longer than this has a deadlock.
const LIMIT: Duration = Duration::from_secs(30);
/// How long a rank sleeps that waits, if nothing happens.
const LOOK: Duration = Duration::from_millis(5);
/// Longer messages are sent when they have been received; of others a copy is.
const SHORT: u64 = 1384;

/// What a rank lacks.
#[derive(Clone, Copy, Debug)]
pub enum Shortage {
    /// The next receive takes nothing for so long and then ends: messages before the one it is for
    /// fill the room.
    Stuck(Duration),
    /// There is no memory for an exchange, from now on or no more.
    Exchanges(bool),
    /// There is no room for copies of short messages.
    Copies,
    /// As many requests as may stay outstanding do.
    Stays,
}

#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Threads sleep in any case.
    #[allow(dead_code)]
    pub spin: bool,
    pub micros: u64,
}

impl Patience {
    pub const ALL: Self = Self {
        spin: false,
        micros: FOREVER,
    };
}

/// From, to, context, tag; messages of collectives have the kind and their number for a tag.
type Line = (u32, u32, u32, u64);

/// What one rank has for another.
enum Content {
    Bytes(Vec<u8>),
    /// It has failed in this exchange, or sits it out.
    Nothing(Error),
}

#[derive(Default)]
struct Job {
    /// Messages with their places in the order of all.
    lines: HashMap<Line, Vec<(u64, Content)>>,
    sent: u64,
    ended: Vec<bool>,
}

struct Rank {
    job: Arc<(Mutex<Job>, Condvar)>,
    identity: Identity,
    next: u32,
    /// Collective operations of messages that have begun.
    begun: u32,
    posted: HashMap<u32, Operation>,
    /// Messages that probes keep: whose each is, and its place and bytes.
    claims: HashMap<u32, (Line, (u64, Content))>,
    /// Where the messages of sends are.
    places: HashMap<u32, (Line, u64)>,
    /// Requests that may stay outstanding.
    staying: usize,
    /// A receive, and when it ends for want of room.
    stuck: Option<(Option<u32>, Instant)>,
    has_exchanges: bool,
    has_copies: bool,
    has_stays: bool,
    /// Collectives posted in each context.
    rounds: HashMap<u32, u64>,
    round_of: HashMap<u32, u64>,
}

thread_local! {
    static RANK: RefCell<Option<Rank>> = const { RefCell::new(None) };
}

/// Runs a job of `size` ranks; gives what each returned.
pub fn run<R: Send>(size: u32, program: impl Fn(crate::World) -> R + Sync) -> Vec<R> {
    let job = Arc::new((Mutex::new(Job::default()), Condvar::new()));
    job.0.lock().unwrap().ended = vec![false; size as usize];
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..size)
            .map(|rank| {
                let (job, program) = (job.clone(), &program);
                scope.spawn(move || {
                    let identity = Identity {
                        rank,
                        size,
                        job: 1,
                        outstanding_max: OUTSTANDING_MAX,
                    };
                    let mine = Rank {
                        job: job.clone(),
                        identity,
                        next: 0,
                        begun: 0,
                        posted: HashMap::new(),
                        claims: HashMap::new(),
                        places: HashMap::new(),
                        staying: 0,
                        stuck: None,
                        has_exchanges: true,
                        has_copies: true,
                        has_stays: true,
                        rounds: HashMap::new(),
                        round_of: HashMap::new(),
                    };
                    RANK.set(Some(mine));
                    let result = program(crate::World::new().unwrap());
                    let mine = RANK.take().unwrap();
                    let left = mine.posted.len();
                    assert_eq!(left, mine.staying, "rank {rank} left operations behind");
                    job.0.lock().unwrap().ended[rank as usize] = true;
                    job.1.notify_all();
                    result
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    })
}

fn with<R>(act: impl FnOnce(&mut Rank) -> R) -> Result<R> {
    RANK.with_borrow_mut(|rank| rank.as_mut().map(act).ok_or(Error::NotHearth))
}

pub fn identity() -> Result<Identity> {
    with(|rank| rank.identity)
}

pub fn collectives() -> u32 {
    RANK.with_borrow(|rank| rank.as_ref().map_or(0, |rank| rank.begun))
}

pub fn collective_begins() {
    let _ = with(|rank| rank.begun += 1);
}

pub fn may_stay(most: u32) -> bool {
    with(|rank| {
        let may = rank.has_stays && rank.staying < most as usize;
        rank.staying += usize::from(may);
        may
    })
    .unwrap_or(false)
}

/// This rank lacks something from now on.
pub fn lack(shortage: Shortage) {
    let _ = with(|rank| match shortage {
        Shortage::Stuck(time) => rank.stuck = Some((None, Instant::now() + time)),
        Shortage::Exchanges(is_short) => rank.has_exchanges = !is_short,
        Shortage::Copies => rank.has_copies = false,
        Shortage::Stays => rank.has_stays = false,
    });
}

pub fn seconds() -> f64 {
    0.0
}

pub fn status(bytes: &[u8; STATUS_BYTES]) -> Result<Status> {
    let status = Status::from_bytes(bytes);
    match status.error {
        0 => Ok(status),
        _ => Err(Error::of_status(&status)),
    }
}

/// # Safety
/// As the real one.
pub unsafe fn post(operation: &Operation) -> Result<u32> {
    with(|rank| {
        let size = rank.identity.size;
        let kind = Kind::from_number(operation.kind).ok_or(Error::Invalid)?;
        let sits_out = operation.flags & SIT_OUT != 0;
        if operation.rank >= size || sits_out && kind != Kind::AllToAll {
            return Err(Error::Invalid);
        }
        if sits_out {
            let why = Why::from_number(operation.tag).ok_or(Error::Invalid)?;
            rank.sit_out(operation.context, Error::of_reason(why, operation.rank));
            return Ok(0);
        }
        if kind == Kind::Room {
            // Everything has room.
            return Ok(0);
        }
        if rank.posted.len() + rank.claims.len() >= OUTSTANDING_MAX as usize {
            return Err(Error::TooMany);
        }
        let is_claimed = operation.flags & CLAIMED != 0;
        if is_claimed && !rank.claims.contains_key(&operation.number) {
            return Err(Error::Invalid);
        }
        if operation.flags & NOW != 0 {
            let shared = rank.job.clone();
            if rank.find(&shared.0.lock().unwrap(), operation).is_none() {
                return Ok(0);
            }
        }
        if kind == Kind::AllToAll && !rank.has_exchanges {
            return Err(Error::NoMemory);
        }
        rank.next += 1;
        if let (Kind::Receive, Some((of @ None, _))) = (kind, &mut rank.stuck) {
            *of = Some(rank.next);
        }
        let me = rank.identity.rank;
        let round = rank.rounds.entry(operation.context).or_default();
        let line_tag = match kind {
            Kind::Send | Kind::Receive | Kind::Probe | Kind::Room => u64::from(operation.tag),
            Kind::AllToAll | Kind::Barrier => {
                *round += 1;
                *round << 32
            }
        };
        rank.round_of.insert(rank.next, line_tag);
        let mut job = rank.job.0.lock().unwrap();
        let targets = match kind {
            Kind::Send => vec![operation.rank],
            Kind::Receive | Kind::Probe | Kind::Room => Vec::new(),
            Kind::AllToAll | Kind::Barrier => group(operation, size),
        };
        for (place, to) in (0..).zip(targets) {
            let (offset, bytes) = match kind {
                Kind::Send => (0, operation.send_bytes),
                Kind::AllToAll => block(
                    operation.send_counts,
                    operation.send_offsets,
                    operation.send_bytes,
                    place,
                ),
                Kind::Receive | Kind::Probe | Kind::Room | Kind::Barrier => (0, 0),
            };
            // SAFETY: the caller's promise to the kernel.
            let message = unsafe { copy_of(operation.send + offset, bytes) };
            let line = (me, to, operation.context, line_tag);
            job.sent += 1;
            let place = job.sent;
            rank.places.insert(rank.next, (line, place));
            let waiting = job.lines.entry(line).or_default();
            waiting.push((place, Content::Bytes(message)));
        }
        rank.job.1.notify_all();
        drop(job);
        rank.posted.insert(rank.next, *operation);
        Ok(rank.next)
    })?
}

unsafe fn copy_of(address: u64, bytes: u64) -> Vec<u8> {
    match bytes {
        0 => Vec::new(),
        // SAFETY: the caller's.
        _ => unsafe { slice::from_raw_parts(address as *const u8, bytes as usize) }.to_vec(),
    }
}

/// The ranks of a job of so many that take part in an exchange or a barrier.
fn group(operation: &Operation, size: u32) -> Vec<u32> {
    match operation.group_size {
        0 => (0..size).collect(),
        count => {
            let list = operation.group as *const u32;
            // SAFETY: the list has so many entries.
            unsafe { slice::from_raw_parts(list, count as usize) }.to_vec()
        }
    }
}

/// Offset and bytes of the block of the rank at a place of its group.
fn block(counts: u64, offsets: u64, bytes: u64, place: u32) -> (u64, u64) {
    if counts == 0 {
        return (u64::from(place) * bytes, bytes);
    }
    // SAFETY: lists have an entry for each rank.
    let entry = |list: u64| unsafe { *(list as *const u64).add(place as usize) };
    (entry(offsets), entry(counts))
}

pub fn wait(
    requests: &mut [u32],
    statuses: &mut [[u8; STATUS_BYTES]],
    patience: Patience,
) -> Result<usize> {
    with(|rank| {
        let shared = rank.job.clone();
        let mut job = shared.0.lock().unwrap();
        let mut finished = 0;
        let began = Instant::now();
        let most = Duration::from_micros(patience.micros).min(LIMIT);
        loop {
            let mut left = 0;
            for (number, status) in requests.iter_mut().zip(statuses.iter_mut()) {
                if *number == 0 {
                    continue;
                }
                let Some(done) = rank.look(&mut job, *number) else {
                    left += 1;
                    continue;
                };
                *status = done.to_bytes();
                rank.posted.remove(number);
                *number = 0;
                finished += 1;
            }
            let is_late = began.elapsed() >= most;
            if left == 0 || is_late && most < LIMIT {
                return finished;
            }
            assert!(!is_late, "deadlock");
            job = shared.1.wait_timeout(job, LOOK).unwrap().0;
        }
    })
}

pub fn wait_any(
    requests: &mut [u32],
    status: &mut [u8; STATUS_BYTES],
    patience: Patience,
) -> Result<Option<usize>> {
    assert_eq!(patience.micros, FOREVER, "tests wait for ever");
    for _ in 0..LIMIT.as_millis() {
        for (place, request) in requests.iter_mut().enumerate() {
            let now = Patience {
                micros: 0,
                ..patience
            };
            if *request != 0 && wait(&mut [*request], slice::from_mut(status), now)? == 1 {
                *request = 0;
                return Ok(Some(place));
            }
        }
        if requests.iter().all(|&request| request == 0) {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("deadlock");
}

pub fn cancel(request: u32) -> Result<()> {
    with(|rank| {
        if let Some((line, message)) = rank.claims.remove(&request) {
            let mut job = rank.job.0.lock().unwrap();
            job.lines.get_mut(&line).unwrap().insert(0, message);
            rank.job.1.notify_all();
            return Ok(());
        }
        let operation = rank.posted.remove(&request).ok_or(Error::Invalid)?;
        let is_send = operation.kind == Kind::Send as u16;
        if is_send && !rank.is_copied(&operation) {
            // As if it had never been posted.
            let (line, place) = rank.places[&request];
            let mut job = rank.job.0.lock().unwrap();
            let waiting = job.lines.get_mut(&line).unwrap();
            waiting.retain(|(at, _)| *at != place);
        }
        Ok(())
    })?
}

impl Rank {
    /// A send is done before its message has been received.
    fn is_copied(&self, operation: &Operation) -> bool {
        let is_synchronous = operation.flags & SYNCHRONOUS != 0;
        self.has_copies && operation.send_bytes <= SHORT && !is_synchronous
    }

    /// This rank takes no part in its next exchange of a context.
    fn sit_out(&mut self, context: u32, why: Error) {
        let round = self.rounds.entry(context).or_default();
        *round += 1;
        let line_tag = *round << 32;
        let mut job = self.job.0.lock().unwrap();
        for to in 0..self.identity.size {
            let line = (self.identity.rank, to, context, line_tag);
            job.lines.insert(line, vec![(0, Content::Nothing(why))]);
        }
        self.job.1.notify_all();
    }

    /// What a rank has for this one in an exchange that needs it: whether it is there, or why it
    /// does not come.
    fn is_here(&self, job: &Job, from: u32, line: &Line) -> Result<bool> {
        match job.lines.get(line).and_then(|line| line.first()) {
            Some((_, Content::Bytes(_))) => Ok(true),
            // What fails at both ends is the other's.
            Some((_, Content::Nothing(Error::Mismatch(rank)))) if *rank == self.identity.rank => {
                Err(Error::Mismatch(from))
            }
            Some((_, Content::Nothing(why))) => Err(*why),
            None if job.ended[from as usize] => Err(Error::Lost(from)),
            None => Ok(false),
        }
    }

    /// How an exchange or barrier ended, if it has.
    fn exchanged(&self, job: &mut Job, operation: &Operation, line_tag: u64) -> Option<Result<()>> {
        let (me, size) = (self.identity.rank, self.identity.size);
        let is_barrier = operation.kind == Kind::Barrier as u16;
        let receives = |from| {
            let Operation {
                receive_counts,
                receive_offsets,
                receive_bytes,
                ..
            } = *operation;
            block(receive_counts, receive_offsets, receive_bytes, from)
        };
        let sends = |to| {
            let Operation {
                send_counts,
                send_offsets,
                send_bytes,
                ..
            } = *operation;
            block(send_counts, send_offsets, send_bytes, to).1
        };
        let ranks = group(operation, size);
        let needs =
            |&(place, _): &(u32, &u32)| is_barrier || receives(place).1 > 0 || sends(place) > 0;
        let needed = || (0..).zip(&ranks).filter(needs);
        let line = |from: u32| (from, me, operation.context, line_tag);
        let mut is_complete = true;
        for (_, &from) in needed() {
            match self.is_here(job, from, &line(from)) {
                Ok(is_here) => is_complete &= is_here,
                Err(reason) => return Some(Err(reason)),
            }
        }
        if !is_complete {
            return None;
        }
        let mut result = Ok(());
        for (place, &from) in needed() {
            let (_, content) = job.lines.get_mut(&line(from)).unwrap().remove(0);
            let Content::Bytes(message) = content else {
                unreachable!("it is here");
            };
            let (offset, bytes) = receives(place);
            if is_barrier {
                continue;
            }
            if bytes != message.len() as u64 {
                result = Err(Error::Mismatch(from));
                continue;
            }
            // SAFETY: the block has this length.
            unsafe { put(operation.receive + offset, &message) };
        }
        Some(result)
    }

    /// The line of the message that a receive or a probe would take.
    fn find(&self, job: &Job, operation: &Operation) -> Option<Line> {
        let has = |flag| operation.flags & flag != 0;
        let fits = |(from, to, context, tag): &Line| {
            (*to, *context) == (self.identity.rank, operation.context)
                && (has(ANY_RANK) || *from == operation.rank)
                && (has(ANY_TAG) && *tag <= u32::MAX.into() || *tag == operation.tag.into())
        };
        let lines = job.lines.iter().filter(|(line, _)| fits(line));
        let lines = lines.filter_map(|(line, waiting)| Some((waiting.first()?.0, *line)));
        lines.min_by_key(|(place, _)| *place).map(|(_, line)| line)
    }

    /// A receive or probe that finds nothing fails where its rank has ended, or all others have.
    fn nobody_left(&self, job: &Job, operation: &Operation, status: Status) -> Option<Status> {
        let others = (0..self.identity.size).filter(|rank| *rank != self.identity.rank);
        let mut ended = others.clone().filter(|rank| job.ended[*rank as usize]);
        let rank = match operation.flags & ANY_RANK {
            0 => ended.find(|rank| *rank == operation.rank)?,
            _ if ended.clone().count() == others.count() => ended.next()?,
            _ => return None,
        };
        Some(Status {
            rank,
            error: -i32::from(Errno::EHOSTDOWN.number()),
            ..status
        })
    }

    /// How an operation ended, if it has.
    fn look(&mut self, job: &mut Job, number: u32) -> Option<Status> {
        let operation = self.posted[&number];
        let me = self.identity.rank;
        let line_tag = self.round_of[&number];
        let mut status = Status {
            rank: operation.rank,
            tag: operation.tag,
            ..Status::default()
        };
        let failed = |errno: Errno| -i32::from(errno.number());
        let kind = Kind::from_number(operation.kind).unwrap();
        match kind {
            Kind::Send => {
                let (line, place) = self.places[&number];
                let waiting = &job.lines[&line];
                let is_taken = waiting.iter().all(|(at, _)| *at != place);
                if !is_taken && job.ended[operation.rank as usize] {
                    status.error = failed(Errno::EHOSTDOWN);
                } else if !is_taken && !self.is_copied(&operation) {
                    return None;
                }
            }
            Kind::Receive => {
                if let Some((Some(of), until)) = self.stuck
                    && of == number
                {
                    if Instant::now() < until {
                        return None;
                    }
                    self.stuck = None;
                    status.error = failed(Errno::ENOBUFS);
                    return Some(status);
                }
                if operation.flags & CLAIMED != 0 {
                    let (line, (_, content)) = self.claims.remove(&operation.number)?;
                    (status.rank, status.tag) = (line.0, line.3 as u32);
                    return Some(received(&operation, status, content));
                }
                let Some(line) = self.find(job, &operation) else {
                    return self.nobody_left(job, &operation, status);
                };
                (status.rank, status.tag) = (line.0, line.3 as u32);
                let (_, content) = job.lines.get_mut(&line).unwrap().remove(0);
                self.job.1.notify_all();
                return Some(received(&operation, status, content));
            }
            Kind::Room => unreachable!("it is not posted"),
            Kind::Probe => {
                let Some(line) = self.find(job, &operation) else {
                    return self.nobody_left(job, &operation, status);
                };
                (status.rank, status.tag) = (line.0, line.3 as u32);
                let waiting = job.lines.get_mut(&line).unwrap();
                let Content::Bytes(message) = &waiting[0].1 else {
                    unreachable!("messages have bytes");
                };
                status.bytes = message.len() as u64;
                if operation.flags & CLAIM != 0 {
                    self.claims.insert(number, (line, waiting.remove(0)));
                }
            }
            Kind::AllToAll | Kind::Barrier => {
                if let Err(why) = self.exchanged(job, &operation, line_tag)? {
                    (_, status.rank) = why.reason(me);
                    status.error = -why.number();
                    // Who still waits for this rank in it hears the same.
                    for to in 0..self.identity.size {
                        let line = (me, to, operation.context, line_tag);
                        if let Some(waiting) = job.lines.get_mut(&line) {
                            let reason = |(at, _): &_| (*at, Content::Nothing(why));
                            *waiting = waiting.iter().map(reason).collect();
                        }
                    }
                    self.job.1.notify_all();
                }
            }
        }
        Some(status)
    }
}

/// A message meets its receive.
fn received(operation: &Operation, mut status: Status, content: Content) -> Status {
    let Content::Bytes(message) = content else {
        unreachable!("messages have bytes");
    };
    status.bytes = message.len() as u64;
    match status.bytes > operation.receive_bytes {
        true => status.error = -i32::from(Errno::EMSGSIZE.number()),
        // SAFETY: the receive has room for it.
        false => unsafe { put(operation.receive, &message) },
    }
    status
}

unsafe fn put(address: u64, bytes: &[u8]) {
    if !bytes.is_empty() {
        // SAFETY: the caller's.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), address as *mut u8, bytes.len()) };
    }
}
