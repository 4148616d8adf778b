//! The node's side of function-shipped I/O: the queue of one rank's calls.
//!
//! Invariant: calls are numbered in the order of submission and none is forgotten before its
//! reply arrived.

use alloc::collections::VecDeque;

use crate::ids::CallId;
use crate::io::exit::MAX_UNKNOWN_CALLS;
use crate::io::{IoOp, MAX_CALL_DATA, MAX_QUEUED_BYTES, MAX_QUEUED_CALLS, SubmitError, WINDOW};
use crate::rng::Rng;
use crate::time::{Instant, Micros};
use crate::transport::retry::{Backoff, LOOKS};
use crate::wire::job::Standing;

/// Slowest repetition of a call that nobody acknowledged: the control node may be away, and a node
/// that computes looks no more often.
const SLOWEST: Micros = LOOKS;
/// First question after a call that is pending; its reply is sent when it is done, so this is
/// needed only when that was lost. Doubles up to [`SLOWEST`], in two steps.
const PENDING_FIRST: Micros = Micros(SLOWEST.0 / 4);
/// Descriptor of standard input.
const STDIN: u32 = 0;

const _: () = assert!(
    WINDOW <= u8::BITS,
    "a byte says which calls of a window are done"
);

#[derive(Debug)]
struct Call {
    id: CallId,
    op: IoOp,
    done: bool,
    pending: bool,
    tries: u32,
    next_at: Instant,
}

/// What a reply came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It changed nothing.
    Stale,
    /// The call is pending.
    Pending,
    /// The call is done.
    Done {
        /// It was the rank's last.
        exit: bool,
        /// It answers with more data than was asked for.
        oversized: bool,
    },
}

/// One rank's queue of calls.
#[derive(Debug)]
pub(crate) struct Client {
    calls: VecDeque<Call>,
    next: u64,
    bytes: usize,
    /// Bytes that reads of standard input have brought.
    input_bytes: u64,
    exit: Option<CallId>,
    /// The exit is done.
    is_over: bool,
}

impl Client {
    pub(crate) fn new() -> Self {
        Client {
            calls: VecDeque::new(),
            next: 1,
            bytes: 0,
            input_bytes: 0,
            exit: None,
            is_over: false,
        }
    }

    /// The number of the Exit call, once submitted.
    pub(crate) fn exit(&self) -> Option<CallId> {
        self.exit
    }

    /// Whether the Exit call is done.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// What another run of the control node has to know of the calls: the first that is not done,
    /// which of the window behind it are (bit i: first + i), and the bytes read from standard
    /// input.
    pub(crate) fn standing(&self) -> Standing {
        let first = self.calls.front().map_or(CallId(self.next), |call| call.id);
        let window = self.calls.iter().take(WINDOW as usize);
        let done = window.enumerate().filter(|(_, call)| call.done);
        Standing {
            first,
            done: done.fold(0, |mask, (index, _)| mask | 1 << index),
            input_bytes: self.input_bytes,
            is_over: self.is_over,
        }
    }

    /// Another run of the control node goes on with the job: what is not done is sent anew.
    pub(crate) fn begin_again(&mut self) {
        for call in &mut self.calls {
            (call.pending, call.tries) = (false, 0);
            call.next_at = Instant::ZERO;
        }
    }

    /// Calls that are not done.
    pub(crate) fn pending(&self) -> usize {
        self.calls.iter().filter(|call| !call.done).count()
    }

    pub(crate) fn submit(&mut self, now: Instant, op: IoOp) -> Result<CallId, SubmitError> {
        if self.exit.is_some() {
            return Err(SubmitError::AfterExit);
        }
        if size(&op) > MAX_CALL_DATA {
            return Err(SubmitError::TooLarge);
        }
        let is_exit = match &op {
            IoOp::Exit(report) if report.unknown_calls.len() > MAX_UNKNOWN_CALLS => {
                return Err(SubmitError::TooLarge);
            }
            IoOp::Exit(_) => true,
            _ => false,
        };
        let full =
            self.bytes + held(&op) > MAX_QUEUED_BYTES || self.calls.len() >= MAX_QUEUED_CALLS;
        if full && !is_exit {
            return Err(SubmitError::Full);
        }
        let id = CallId(self.next);
        self.next += 1;
        self.bytes += held(&op);
        self.exit = is_exit.then_some(id);
        let call = Call {
            id,
            op,
            done: false,
            pending: false,
            tries: 0,
            next_at: now,
        };
        self.calls.push_back(call);
        Ok(id)
    }

    /// When the next call is to be sent.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let window = self.calls.iter().take(WINDOW as usize);
        window
            .filter(|call| !call.done)
            .map(|call| call.next_at)
            .min()
    }

    /// The next call that is due, and whether it is a repetition. It counts as sent.
    pub(crate) fn due(
        &mut self,
        now: Instant,
        timeout: Micros,
        rng: &mut Rng,
    ) -> Option<(CallId, &IoOp, bool)> {
        let window = self.calls.iter_mut().take(WINDOW as usize);
        let mut due = window.filter(|call| !call.done && call.next_at <= now);
        let call = due.next()?;
        let first = if call.pending { PENDING_FIRST } else { timeout };
        let backoff = Backoff::new(first, SLOWEST);
        let repeated = call.tries > 0;
        call.next_at = now + backoff.wait_for_answer(call.tries, rng);
        call.tries = call.tries.saturating_add(1);
        Some((call.id, &call.op, repeated))
    }

    /// Takes a reply: `done` is the length of its data, None for PENDING.
    pub(crate) fn reply(
        &mut self,
        now: Instant,
        id: CallId,
        done: Option<usize>,
        rng: &mut Rng,
    ) -> Outcome {
        let first = self.calls.front().map_or(0, |call| call.id.0);
        let index = id.0.checked_sub(first).map(|index| index as usize);
        let call = index.and_then(|index| self.calls.get_mut(index));
        let Some(call) = call.filter(|call| !call.done && call.tries > 0) else {
            return Outcome::Stale;
        };
        let Some(length) = done else {
            if !call.pending {
                call.pending = true;
                call.tries = 1;
            }
            let backoff = Backoff::new(PENDING_FIRST, SLOWEST);
            call.next_at = now + backoff.wait(call.tries - 1, rng);
            return Outcome::Pending;
        };
        let oversized = match &call.op {
            IoOp::Read { size, .. } => length > *size as usize,
            _ => length > 0,
        };
        if matches!(&call.op, IoOp::Read { fd: STDIN, .. }) && !oversized {
            self.input_bytes += length as u64;
        }
        call.done = true;
        self.bytes -= held(&call.op);
        call.op = IoOp::Read {
            fd: 0,
            offset: 0,
            size: 0,
        };
        while self.calls.front().is_some_and(|call| call.done) {
            self.calls.pop_front();
        }
        self.is_over |= self.exit == Some(id);
        Outcome::Done {
            exit: self.exit == Some(id),
            oversized,
        }
    }
}

/// Bytes of data in a call or its reply.
fn size(op: &IoOp) -> usize {
    match op {
        IoOp::Write { data, .. } | IoOp::Report { data, .. } => data.len(),
        IoOp::Read { size, .. } => *size as usize,
        IoOp::Exit(_) => 0,
    }
}

/// Bytes of data the queue holds for a call.
fn held(op: &IoOp) -> usize {
    match op {
        IoOp::Write { data, .. } | IoOp::Report { data, .. } => data.len(),
        IoOp::Read { .. } | IoOp::Exit(_) => 0,
    }
}
