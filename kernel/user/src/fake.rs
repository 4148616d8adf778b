//! The system calls for tests: ranks are threads of one process, messages are copied under one lock.
//!
//! It stands in the place of `call` and has its functions. Key type: [`run`], which runs a job.
//!
//! Invariant: an operation that the kernel would refuse is refused here too.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ptr;
use std::slice;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use hearth_abi::errno::Errno;
use hearth_abi::exchange::{
    ANY_RANK, ANY_TAG, FOREVER, Identity, Kind, OUTSTANDING_MAX, Operation, STATUS_BYTES, Status,
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

#[derive(Default)]
struct Job {
    /// Messages with their places in the order of all.
    lines: HashMap<Line, Vec<(u64, Vec<u8>)>>,
    sent: u64,
    ended: Vec<bool>,
}

struct Rank {
    job: Arc<(Mutex<Job>, Condvar)>,
    identity: Identity,
    next: u32,
    /// Collective operations of letters that have begun.
    begun: u32,
    posted: HashMap<u32, Operation>,
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
                        rounds: HashMap::new(),
                        round_of: HashMap::new(),
                    };
                    RANK.set(Some(mine));
                    let result = program(crate::World::new().unwrap());
                    let left = RANK.take().unwrap().posted.len();
                    assert_eq!(left, 0, "rank {rank} left operations behind");
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
        if operation.rank >= size {
            return Err(Error::Invalid);
        }
        if rank.posted.len() >= OUTSTANDING_MAX as usize {
            return Err(Error::TooMany);
        }
        rank.next += 1;
        let me = rank.identity.rank;
        let round = rank.rounds.entry(operation.context).or_default();
        let line_tag = match kind {
            Kind::Send | Kind::Receive => u64::from(operation.tag),
            Kind::AllToAll | Kind::Barrier => {
                *round += 1;
                *round << 32
            }
        };
        rank.round_of.insert(rank.next, line_tag);
        let mut job = rank.job.0.lock().unwrap();
        let targets = match kind {
            Kind::Send => operation.rank..operation.rank + 1,
            Kind::Receive => 0..0,
            Kind::AllToAll | Kind::Barrier => 0..size,
        };
        for to in targets {
            let (offset, bytes) = match kind {
                Kind::Send => (0, operation.send_bytes),
                Kind::AllToAll => block(
                    operation.send_counts,
                    operation.send_offsets,
                    operation.send_bytes,
                    to,
                ),
                Kind::Receive | Kind::Barrier => (0, 0),
            };
            // SAFETY: the caller's promise to the kernel.
            let message = unsafe { copy_of(operation.send + offset, bytes) };
            let line = (me, to, operation.context, line_tag);
            job.sent += 1;
            let place = job.sent;
            job.lines.entry(line).or_default().push((place, message));
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

/// Offset and bytes of the block of a rank.
fn block(counts: u64, offsets: u64, bytes: u64, rank: u32) -> (u64, u64) {
    if counts == 0 {
        return (u64::from(rank) * bytes, bytes);
    }
    // SAFETY: lists have an entry for each rank.
    let entry = |list: u64| unsafe { *(list as *const u64).add(rank as usize) };
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
            if left == 0 || patience.micros == 0 {
                return finished;
            }
            let (guard, timed_out) = shared.1.wait_timeout(job, LIMIT).unwrap();
            assert!(!timed_out.timed_out(), "deadlock");
            job = guard;
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
    with(|rank| match rank.posted.remove(&request) {
        Some(_) => Ok(()),
        None => Err(Error::Invalid),
    })?
}

impl Rank {
    /// How an operation ended, if it has.
    fn look(&self, job: &mut Job, number: u32) -> Option<Status> {
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
            Kind::Send => {}
            Kind::Receive => {
                let has = |flag| operation.flags & flag != 0;
                let found = job
                    .lines
                    .iter_mut()
                    .filter(|((from, to, context, tag), line)| {
                        (*to, *context) == (me, operation.context)
                            && (has(ANY_RANK) || *from == operation.rank)
                            && (has(ANY_TAG) && *tag <= u32::MAX.into() || *tag == line_tag)
                            && !line.is_empty()
                    })
                    .min_by_key(|(_, line)| line[0].0);
                let Some((line, waiting)) = found else {
                    let mut ranks = 0..self.identity.size;
                    let ended = |from: &u32| {
                        job.ended[*from as usize] && (has(ANY_RANK) || *from == operation.rank)
                    };
                    status.rank = ranks.find(ended)?;
                    status.error = failed(Errno::EHOSTDOWN);
                    return Some(status);
                };
                (status.rank, status.tag) = (line.0, line.3 as u32);
                let (_, message) = waiting.remove(0);
                status.bytes = message.len() as u64;
                if status.bytes > operation.receive_bytes {
                    status.error = failed(Errno::EMSGSIZE);
                    return Some(status);
                }
                // SAFETY: the receive has room for it.
                unsafe { put(operation.receive, &message) };
            }
            Kind::AllToAll | Kind::Barrier => {
                let line = |from: u32| (from, me, operation.context, line_tag);
                let here = |from: u32| job.lines.get(&line(from)).is_some_and(|l| !l.is_empty());
                if let Some(missing) = (0..self.identity.size).find(|&from| !here(from)) {
                    if job.ended[missing as usize] {
                        status.error = failed(Errno::EHOSTDOWN);
                        status.rank = missing;
                        return Some(status);
                    }
                    return None;
                }
                for from in 0..self.identity.size {
                    let (_, message) = job.lines.get_mut(&line(from)).unwrap().remove(0);
                    let (offset, bytes) = match kind {
                        Kind::AllToAll => block(
                            operation.receive_counts,
                            operation.receive_offsets,
                            operation.receive_bytes,
                            from,
                        ),
                        _ => (0, 0),
                    };
                    if bytes != message.len() as u64 {
                        status.error = failed(Errno::EPROTO);
                        status.rank = from;
                        continue;
                    }
                    // SAFETY: the block has this length.
                    unsafe { put(operation.receive + offset, &message) };
                }
            }
        }
        Some(status)
    }
}

unsafe fn put(address: u64, bytes: &[u8]) {
    if !bytes.is_empty() {
        // SAFETY: the caller's.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), address as *mut u8, bytes.len()) };
    }
}
