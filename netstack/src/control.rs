//! The control node's endpoint: the registry of nodes, jobs, page service and I/O. Used by the
//! control node and by the simulator.
//!
//! See the crate documentation for the drain loop.

use alloc::string::String;
use core::net::SocketAddrV4;

use crate::counters::Counters;
use crate::ids::{BootEpoch, CallId, ControlEpoch, JobId, NodeId, Rank};
use crate::io::{IoOp, IoReply};
use crate::job::{JobSpec, LaunchError, RankLoss, RefusalCode};
use crate::join::{Refusal, Timing};
use crate::page::{PageReply, PageWanted};
use crate::time::Instant;
use crate::vitals::{BootTimings, Vitals};
use crate::wire::key::Key;

/// What an endpoint needs to know about its cluster.
#[derive(Clone, Debug)]
pub struct Config {
    /// The secret all node keys are derived from; kept over restarts.
    pub cluster_secret: [u8; 16],
    /// Number of that secret, as given out in personalities.
    pub key_id: u32,
    /// Version of this build, zero-padded text; nodes of another version are refused.
    pub version: [u8; 16],
    /// Take nodes of another version all the same (development only).
    pub any_version: bool,
    /// Take keys that hold for every boot, as given on kernel command lines.
    pub accept_lab_keys: bool,
    /// Random number of this run; must differ from all earlier ones.
    pub control_epoch: ControlEpoch,
    /// Seed of the jitter.
    pub seed: u64,
    /// Intervals to prescribe.
    pub timing: Timing,
    /// Bounds of the tables.
    pub limits: Limits,
}

/// Bounds of an endpoint's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Nodes in the registry, up or not. Default 32,768: two racks more than the largest
    /// simulated cluster of 16,512.
    pub nodes: usize,
    /// Jobs that have not ended. Default 4,096.
    pub jobs: usize,
    /// Bytes of page data waiting to be sent; more is dropped, the nodes ask again. Default
    /// 32 MiB: every one of 1,024 nodes can have a full request waiting.
    pub page_bytes: usize,
    /// RESYNC hints and unauthenticated refusals a second. Default 4,000: a restarted control
    /// node finds 4,000 nodes again within one heartbeat.
    pub hints_per_second: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            nodes: 32_768,
            jobs: 4_096,
            page_bytes: 32 << 20,
            hints_per_second: 4_000,
        }
    }
}

/// Where a node stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// It sent HELLO and was welcomed, but has not confirmed yet.
    Joining,
    /// It joined and is heard.
    Up,
    /// Nothing was heard for [`Timing::lost_after`], or it panicked.
    Lost,
    /// It left in good order.
    Left,
}

/// The registry's view of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStatus {
    /// Its number.
    pub node: NodeId,
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Where it was last heard from.
    pub addr: SocketAddrV4,
    /// Its boot.
    pub epoch: BootEpoch,
    /// Where it stands.
    pub state: NodeState,
    /// Since when.
    pub since: Instant,
    /// When it was last heard.
    pub last_heard: Instant,
    /// Version of its image.
    pub version: [u8; 16],
    /// Build id of its kernel.
    pub build_id: [u8; 20],
    /// Its memory in bytes.
    pub memory_bytes: u64,
    /// Milestones of its boot.
    pub timings: BootTimings,
    /// Its last heartbeat.
    pub vitals: Vitals,
    /// The job this endpoint has launched on it.
    pub job: Option<JobId>,
}

/// Why a node counts as lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostReason {
    /// Nothing was heard for [`Timing::lost_after`].
    Silent,
    /// A new boot of the same machine has joined.
    Rebooted,
    /// Its kernel panicked.
    Panicked,
}

/// What happened; drained with [`Endpoint::poll_event`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A node has joined (HELLO, WELCOME and its confirmation all arrived), or a lost one is
    /// heard again.
    NodeJoined {
        /// The registry's view, with the vitals of the confirming heartbeat.
        status: NodeStatus,
        /// The same boot was up before in this run of the control node.
        rejoined: bool,
    },
    /// A node is lost; its ranks' `RankLost` events follow.
    NodeLost {
        /// Which.
        node: NodeId,
        /// Its boot.
        epoch: BootEpoch,
        /// Why.
        reason: LostReason,
        /// When it was last heard.
        last_heard: Instant,
    },
    /// A node has left in good order.
    NodeLeft {
        /// Which.
        node: NodeId,
        /// Its boot.
        epoch: BootEpoch,
    },
    /// Somebody was refused. Repeats within ten seconds give no further event.
    Rejected {
        /// The MAC address it states, if it got that far.
        mac: Option<[u8; 6]>,
        /// The node number it states.
        node: NodeId,
        /// Where it came from.
        from: SocketAddrV4,
        /// Class of the reason.
        reason: Refusal,
        /// The reason in words, with what to do.
        text: String,
    },
    /// Two machines with one MAC address are up; the first stays.
    TwoNodesOneMac {
        /// The address.
        mac: [u8; 6],
        /// The first's node number.
        node: NodeId,
        /// The boot that stays.
        first: BootEpoch,
        /// The boot that is refused.
        second: BootEpoch,
        /// Where the second came from.
        from: SocketAddrV4,
    },
    /// A personality was asked for again after its key had been used (see
    /// [`Endpoint::issue_key`]).
    KeyReused {
        /// The MAC address.
        mac: [u8; 6],
        /// The boot.
        epoch: BootEpoch,
    },
    /// A node's kernel panicked; `NodeLost` follows.
    NodePanic {
        /// Which.
        node: NodeId,
        /// What it said.
        text: String,
    },
    /// A rank is loaded and ready to start.
    LaunchReady {
        /// The job.
        job: JobId,
        /// The node.
        node: NodeId,
        /// The rank.
        rank: Rank,
        /// Ranks of the job that are still loading; 0: call [`Endpoint::start`].
        waiting: u32,
    },
    /// A node refused to launch; the rank is gone.
    LaunchRefused {
        /// The job.
        job: JobId,
        /// The node.
        node: NodeId,
        /// The rank.
        rank: Rank,
        /// Class of the reason.
        code: RefusalCode,
        /// The reason in words.
        text: String,
    },
    /// A node has the order to start.
    Started {
        /// The job.
        job: JobId,
        /// The node.
        node: NodeId,
        /// The rank.
        rank: Rank,
    },
    /// A rank is gone without an exit report.
    RankLost {
        /// The job.
        job: JobId,
        /// The node.
        node: NodeId,
        /// The rank.
        rank: Rank,
        /// Why.
        reason: RankLoss,
    },
    /// All ranks of a job have exited, been refused or been lost; the endpoint has forgotten it.
    JobClosed {
        /// The job.
        job: JobId,
    },
    /// A node wants pages: answer with [`Endpoint::page_data`].
    PageWanted(PageWanted),
    /// A rank's next call, each exactly once and in order: answer with [`Endpoint::io_reply`].
    IoCall {
        /// The node.
        node: NodeId,
        /// The job.
        job: JobId,
        /// The rank.
        rank: Rank,
        /// The call.
        call: CallId,
        /// What to do.
        op: IoOp,
    },
}

/// Why no key was issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyRefused {
    /// The boot's key is in use already: its HELLO has arrived, or it was another boot's before.
    Used,
    /// Boot epoch 0 is reserved for laboratory keys.
    BadEpoch,
}

/// The control node's end of the protocol.
#[derive(Debug)]
pub struct Endpoint {
    counters: Counters,
}

impl Endpoint {
    /// An endpoint with an empty registry.
    pub fn new(config: Config) -> Self {
        let _ = config;
        todo!()
    }

    /// The key for a personality. Repeats before the boot's HELLO arrived get the same key; after
    /// that it counts as used, the request is refused and `KeyReused` comes.
    pub fn issue_key(
        &mut self,
        now: Instant,
        mac: [u8; 6],
        epoch: BootEpoch,
        node: NodeId,
    ) -> Result<Key, KeyRefused> {
        let _ = (now, mac, epoch, node);
        todo!()
    }

    /// Takes a datagram. Bad input is counted.
    pub fn handle_datagram(&mut self, now: Instant, from: SocketAddrV4, datagram: &[u8]) {
        let _ = (now, from, datagram);
        todo!()
    }

    /// The next datagram to send: where to, and its length, written to the front of `out`, which
    /// must have [`crate::MAX_DATAGRAM`] bytes. Also acts on deadlines that have passed, so it may
    /// give new events.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut [u8]) -> Option<(SocketAddrV4, usize)> {
        let _ = (now, out);
        todo!()
    }

    /// When to call [`Self::poll_transmit`] again without other cause; a time that has passed
    /// means at once.
    pub fn poll_timeout(&self) -> Option<Instant> {
        todo!()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        todo!()
    }

    /// The registry, in the order of node numbers.
    pub fn nodes(&self) -> impl Iterator<Item = NodeStatus> + '_ {
        core::iter::empty()
    }

    /// The registry's view of one node.
    pub fn node(&self, node: NodeId) -> Option<NodeStatus> {
        let _ = node;
        todo!()
    }

    /// Launches a job: every node gets LAUNCH, and for each `LaunchReady`, `LaunchRefused` or
    /// `RankLost` follows.
    pub fn launch(&mut self, now: Instant, spec: JobSpec) -> Result<(), LaunchError> {
        let _ = (now, spec);
        todo!()
    }

    /// Starts all ranks that are ready, and the others as soon as they are.
    pub fn start(&mut self, now: Instant, job: JobId) {
        let _ = (now, job);
        todo!()
    }

    /// Ends a job on all its nodes. Ranks that were loaded or running answer with an `Exit` call
    /// (status `Signal`), the others with `LaunchRefused` (`Cancelled`). Repeating it with
    /// another signal replaces the first. A node that reports a job this endpoint does not know
    /// is told to drop it without any call from here.
    pub fn cancel(&mut self, now: Instant, job: JobId, signal: u8) {
        let _ = (now, job, signal);
        todo!()
    }

    /// Answers a `PageWanted` event; later than the node's patience it is simply not needed.
    pub fn page_data(&mut self, now: Instant, reply: PageReply) {
        let _ = (now, reply);
        todo!()
    }

    /// Answers an `IoCall` event; a call not answered stays pending and holds the program back.
    /// Unknown calls (the job is gone) are ignored.
    ///
    /// Panics when more data is given than [`crate::io::MAX_CALL_DATA`].
    pub fn io_reply(
        &mut self,
        now: Instant,
        node: NodeId,
        job: JobId,
        call: CallId,
        reply: IoReply,
    ) {
        let _ = (now, node, job, call, reply);
        todo!()
    }

    /// Counts of what was received, sent and refused.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}
