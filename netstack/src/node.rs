//! The node's endpoint: joins the control node, keeps in touch, takes jobs, reads pages and
//! ships I/O calls. Used by the kernel and by the simulator.
//!
//! See the crate documentation for the drain loop. All datagrams go to the control node named in
//! the personality.

use alloc::string::String;
use alloc::vec::Vec;

use crate::counters::Counters;
use crate::ids::{BootEpoch, CallId, ControlEpoch, JobId, RequestId};
use crate::io::{IoOp, SubmitError};
use crate::job::{LaunchRefusal, LaunchSpec};
use crate::join::{Refusal, Timing};
use crate::page::{Object, PageError, PageRequest};
use crate::personality::Personality;
use crate::time::Instant;
use crate::vitals::{BootTimings, Vitals};

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
    /// Seed of the jitter; different on every node (the boot epoch will do).
    pub seed: u64,
    /// Milestones of the boot so far.
    pub timings: BootTimings,
}

/// What happened; drained with [`Endpoint::poll_event`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The control node welcomed this node; comes again for every new session (after the control
    /// node restarted, or when it had given this node up).
    Joined {
        /// The run of the control node.
        control: ControlEpoch,
        /// The intervals it prescribes.
        timing: Timing,
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
    /// The node has left in good order; nothing more is sent.
    Left,
    /// Load this program and answer with [`Endpoint::launch_result`].
    Launch(LaunchSpec),
    /// Start the loaded program.
    Start {
        /// Its job.
        job: JobId,
    },
    /// End the job, see the rules in [`crate::job`].
    Cancel {
        /// The job.
        job: JobId,
        /// The signal to report; 9 when the job is to be dropped.
        signal: u8,
        /// The control node does not know the job any more: free everything, submit nothing (a
        /// submission returns `UnknownJob`).
        orphan: bool,
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

/// A node's end of the protocol.
#[derive(Debug)]
pub struct Endpoint {
    counters: Counters,
}

impl Endpoint {
    /// An endpoint that wants to join at once.
    pub fn new(config: Config, now: Instant) -> Self {
        let _ = (config, now);
        todo!()
    }

    /// Takes a datagram that arrived from the control node's address. Bad input is counted.
    pub fn handle_datagram(&mut self, now: Instant, datagram: &[u8]) {
        let _ = (now, datagram);
        todo!()
    }

    /// The next datagram to send to the control node: its length, written to the front of `out`,
    /// which must have [`crate::MAX_DATAGRAM`] bytes. Also acts on deadlines that have passed, so
    /// it may give new events.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut [u8]) -> Option<usize> {
        let _ = (now, out);
        todo!()
    }

    /// When to call [`Self::poll_transmit`] again without other cause; a time that has passed
    /// means at once.
    pub fn poll_timeout(&self) -> Option<Instant> {
        todo!()
    }

    /// When the next heartbeat is due, or the next HELLO: the only deadline that a node must
    /// keep while a program computes. Everything else can wait until then.
    pub fn heartbeat_deadline(&self) -> Option<Instant> {
        todo!()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        todo!()
    }

    /// True between `Joined` and `ControlLost`, and after `ControlBack`.
    pub fn is_joined(&self) -> bool {
        todo!()
    }

    /// State to send with the next heartbeat. The heartbeat that confirms a join goes out with
    /// the first `poll_transmit` after `Joined`, so set the vitals between the two.
    pub fn set_vitals(&mut self, vitals: Vitals) {
        let _ = vitals;
        todo!()
    }

    /// Leaves in good order: LEAVE is repeated until answered or a limit, then `Left` comes.
    pub fn leave(&mut self, now: Instant) {
        let _ = now;
        todo!()
    }

    /// What a panic handler needs to tell the control node by itself, without this endpoint.
    /// Take a new one after every `Joined`. None before the first.
    pub fn panic_reporter(&self) -> Option<PanicReporter> {
        todo!()
    }

    /// Answers a `Launch` event, once.
    pub fn launch_result(&mut self, now: Instant, job: JobId, result: Result<(), LaunchRefusal>) {
        let _ = (now, job, result);
        todo!()
    }

    /// Asks for a range of an object; `Data` or `PageFailed` follows.
    ///
    /// Panics when `length` is 0 or above [`crate::page::MAX_REQUEST`].
    pub fn request_pages(&mut self, now: Instant, request: PageRequest) -> Result<RequestId, Full> {
        let _ = (now, request);
        todo!()
    }

    /// Forgets a job's outstanding page requests; no event follows for them.
    pub fn cancel_requests(&mut self, job: JobId) {
        let _ = job;
        todo!()
    }

    /// Ships a call; `IoDone` follows. Calls of a job are carried out in the order submitted.
    pub fn io_submit(&mut self, now: Instant, job: JobId, op: IoOp) -> Result<CallId, SubmitError> {
        let _ = (now, job, op);
        todo!()
    }

    /// Calls of a job that are not done yet: zero means that everything written has arrived.
    pub fn io_pending(&self, job: JobId) -> usize {
        let _ = job;
        todo!()
    }

    /// Counts of what was received, sent and refused.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}

/// Makes PANIC datagrams without the endpoint: a copy is kept where the panic handler finds it.
#[derive(Clone, Copy, Debug)]
pub struct PanicReporter {
    _private: (),
}

impl PanicReporter {
    /// The datagram that tells the control node about a panic; its length, at the front of `out`
    /// (at least [`crate::MAX_DATAGRAM`] bytes). `attempt` counts from 0 and must differ between
    /// repeats. Allocates nothing.
    pub fn datagram(&self, attempt: u32, text: &str, out: &mut [u8]) -> usize {
        let _ = (attempt, text, out);
        todo!()
    }
}
