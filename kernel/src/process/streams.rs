//! Standard input, output and error, shipped to the control node.
//!
//! Writes are write-behind: a write returns when its bytes are queued. While the window is open
//! each goes out at once; behind a full window small writes are gathered into whole calls, so that
//! a slow reader costs the node no more than the endpoint's queue. An error that comes back later
//! is told to the next write.
//!
//! Neighbours: `agent` carries the calls in order and exactly once, so the exit report that it
//! queues last arrives behind all output.
//!
//! Invariant: bytes go out in the order in which the program wrote them, also across descriptors.

use alloc::vec::Vec;

use hearth_abi::errno::Errno;
use netstack::ids::CallId;
use netstack::io::{IoOp, MAX_CALL_DATA, OFFSET_CURRENT, SubmitError, WINDOW};
use netstack::time::Instant;

use super::Process;
use super::ending::Stop;
use crate::process::services::{IoCompletion, NodeServices};

/// Standard input, output, error.
const STREAMS: usize = 3;

/// The state of a program's streams; which descriptors refer to them is not known here.
pub(super) struct Streams {
    /// Bytes written but not queued yet, all for `pending_fd`.
    pending: Vec<u8>,
    pending_fd: u32,
    /// Error of an earlier write, by stream.
    failed: [Option<Errno>; STREAMS],
    /// The read that the program waits for.
    reading: Option<CallId>,
    read: Option<IoCompletion>,
    /// Input that has come and was not taken: of a read that a signal had interrupted.
    unread: Vec<u8>,
}

impl Streams {
    pub(super) fn new() -> Self {
        Self {
            pending: Vec::new(),
            pending_fd: 1,
            failed: [None; STREAMS],
            reading: None,
            read: None,
            unread: Vec::new(),
        }
    }

    /// Bytes of the input that have come.
    pub(super) fn readable(&self) -> usize {
        let read = self.read.as_ref().map_or(0, |done| done.data.len());
        self.unread.len() + read
    }

    /// Whether a read would not wait: there is input, or its end.
    pub(super) fn has_input(&self) -> bool {
        self.read.is_some() || !self.unread.is_empty()
    }

    /// Takes completions: errors of writes are kept for the next one, a read for its reader.
    pub(super) fn collect(&mut self, services: &mut dyn NodeServices) {
        while let Some(done) = services.take_io() {
            if self.reading == Some(done.call) {
                self.read = Some(done);
            } else if let Some(errno) = Errno::from_number(-done.result) {
                // Which descriptor it was is not worth a table: both go to the same reader.
                self.failed = [None, Some(errno), Some(errno)];
            }
        }
    }
}

impl Process {
    /// Takes bytes that the program wrote, as many as there is room for; how many, at least one of
    /// those that there are.
    pub(super) fn output(
        &mut self,
        services: &mut dyn NodeServices,
        fd: u32,
        bytes: &[u8],
    ) -> Result<usize, Stop> {
        let is_full = self.streams.pending.len() == MAX_CALL_DATA;
        if self.streams.pending_fd != fd || is_full {
            self.flush(services)?;
            self.streams.pending_fd = fd;
        }
        let room = MAX_CALL_DATA - self.streams.pending.len();
        let taken = bytes.len().min(room);
        self.streams.pending.extend_from_slice(&bytes[..taken]);
        if self.streams.pending.len() == MAX_CALL_DATA {
            // Where the queue is full the next write waits for it.
            let _ = self.submit_pending(services);
        }
        Ok(taken)
    }

    /// Queues what is pending when the window is open; else more may be gathered first.
    pub(super) fn push_output(&mut self, services: &mut dyn NodeServices) {
        if self.streams.pending.is_empty() || services.io_pending() >= WINDOW as usize {
            return;
        }
        if self.submit_pending(services).is_ok() {
            services.poll();
            self.streams.collect(services);
            // What that has brought may be for another thread.
            self.threads.wake_news();
        }
    }

    /// The error of an earlier write to `fd`, told once.
    pub(super) fn take_write_error(&mut self, fd: u32) -> Result<(), Errno> {
        match self.streams.failed[fd as usize].take() {
            Some(errno) => Err(errno),
            None => Ok(()),
        }
    }

    /// Queues what is pending; waits for room if need be.
    pub(super) fn flush(&mut self, services: &mut dyn NodeServices) -> Result<(), Stop> {
        let queued = self.submit_pending(services);
        queued.map_err(|_full| Stop::news())
    }

    /// Queues the last output of a program that has ended. One that is cancelled meanwhile loses
    /// what the queue had no room for.
    pub(super) fn flush_at_end(&mut self, services: &mut dyn NodeServices) {
        while self.submit_pending(services).is_err() && services.cancelled().is_none() {
            services.wait(Instant::FAR_FUTURE);
            self.streams.collect(services);
        }
    }

    /// Reads up to `size` bytes, waiting until there are some; none at the end of the input. What a
    /// read brings that a signal interrupts is the next one's.
    pub(super) fn input(
        &mut self,
        services: &mut dyn NodeServices,
        fd: u32,
        size: usize,
    ) -> Result<Vec<u8>, Stop> {
        // A prompt must be seen before its answer is waited for.
        self.flush(services)?;
        if self.streams.unread.is_empty() {
            self.streams.unread = self.await_input(services, fd, size)?;
        }
        let length = size.min(self.streams.unread.len());
        Ok(self.streams.unread.drain(..length).collect())
    }

    /// The answer to a read that is under way, or else to one of `size` bytes.
    fn await_input(
        &mut self,
        services: &mut dyn NodeServices,
        fd: u32,
        size: usize,
    ) -> Result<Vec<u8>, Stop> {
        if self.streams.reading.is_none() {
            self.streams.reading = Some(self.ask_input(services, fd, size)?);
        }
        self.streams.collect(services);
        let done = self.streams.read.take().ok_or(Stop::news())?;
        self.streams.reading = None;
        match Errno::from_number(-done.result) {
            Some(errno) => Err(errno.into()),
            None => Ok(done.data),
        }
    }

    /// Asks for up to `size` bytes of the input.
    fn ask_input(
        &mut self,
        services: &mut dyn NodeServices,
        fd: u32,
        size: usize,
    ) -> Result<CallId, Stop> {
        let op = IoOp::Read {
            fd,
            offset: OFFSET_CURRENT,
            size: size.min(MAX_CALL_DATA) as u32,
        };
        match services.io_submit(op) {
            Ok(call) => Ok(call),
            Err(SubmitError::Full) => Err(Stop::news()),
            Err(error) => Err(self.refused(services, error)),
        }
    }

    /// Queues the pending bytes as one call; fails when the queue is full.
    fn submit_pending(&mut self, services: &mut dyn NodeServices) -> Result<(), ()> {
        if self.streams.pending.is_empty() {
            return Ok(());
        }
        let op = IoOp::Write {
            fd: self.streams.pending_fd,
            offset: OFFSET_CURRENT,
            data: self.streams.pending.clone(),
        };
        match services.io_submit(op) {
            Ok(_) => {}
            Err(SubmitError::Full) => return Err(()),
            // The job is over at control: nobody is left to read it.
            Err(SubmitError::UnknownJob) => {}
            Err(error) => panic!("output of a program: {error:?}"),
        }
        self.streams.pending.clear();
        Ok(())
    }

    /// A call that can never be carried out: the job is over at control.
    fn refused(&mut self, services: &dyn NodeServices, error: SubmitError) -> Stop {
        match self.check_cancelled(services) {
            Err(ending) => ending.into(),
            Ok(()) => {
                warn!("process", "input of a program: {error:?}");
                Errno::EIO.into()
            }
        }
    }
}
