//! What a program's process asks of the node: the seam between `process` and the network.
//!
//! Key types: [`Ranks`], implemented by `agent::node`, which has [`NodeServices`] for each rank of
//! the job. A process never sees the endpoint, the stack or the card.
//!
//! Invariant: only [`NodeServices::wait`] halts the core; everything else returns at once.

use alloc::vec::Vec;

use kernel_core::addr::{PhysAddr, VirtAddr};
use kernel_core::files::temporary::Temporary;
use kernel_core::objects::{ObjectId, Objects};
use kernel_core::retention::{ProgramId, Resident, Retained, WarmTable};
use netstack::ids::{CallId, LocalRank, Rank, RequestId};
use netstack::io::{IoOp, SubmitError};
use netstack::node::Full;
use netstack::page::{Object, PageError, PageTraffic};
use netstack::time::Instant;

use crate::exchange::{Exchange, PeerLookup};
use crate::shipping::Shipping;
use crate::time;

/// The answer to a page request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageCompletion {
    /// Which request.
    pub request: RequestId,
    /// All bytes asked for, or as far as the object goes; or why there are none.
    pub result: Result<Vec<u8>, PageError>,
}

/// The answer to an I/O call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IoCompletion {
    /// Which call.
    pub call: CallId,
    /// Bytes written or read, or a negated errno.
    pub result: i64,
    /// The bytes read.
    pub data: Vec<u8>,
}

/// Where a page of a program's image is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CastPage {
    /// In the store.
    Here,
    /// Its block is going to arrive.
    Coming,
    /// No cast brings it.
    Absent,
}

/// The program that runs, as far as others may read its pages.
#[derive(Debug)]
pub struct Running {
    /// Which.
    pub program: ProgramId,
    /// Its pages.
    pub resident: Resident,
    /// It was launched on pages of an earlier run.
    pub warm: bool,
}

impl Running {
    /// A program that has ended, until it is back among the warm ones.
    pub fn kept(retained: &Retained) -> Self {
        Self {
            program: *retained.program(),
            resident: retained.resident(),
            warm: true,
        }
    }
}

/// The ranks of the one job a node has.
pub trait Ranks {
    /// The node as that rank may use it.
    fn rank(&mut self, rank: LocalRank) -> &mut dyn NodeServices;

    /// Whether all ranks have taken in what looks at the network brought
    /// ([`NodeServices::take_polled`]), and none has to do with others
    /// ([`NodeServices::peers_deadline`]).
    fn is_quiet(&self) -> bool;

    /// The node as the rank may use it that [`Self::rank`] was given last, for a look.
    fn present(&self) -> &dyn NodeServices;
}

/// Services for one rank of the job.
pub trait NodeServices {
    /// The node's name.
    fn name(&self) -> &str;

    /// Microseconds since the node's entry.
    fn now(&self) -> Instant;

    /// Moves datagrams and keeps deadlines, without waiting. To be called at every heartbeat
    /// interrupt, and before looking at completions without waiting.
    fn poll(&mut self);

    /// Sends what is due, without a look at what has arrived.
    fn send_due(&mut self) {}

    /// Whether anybody has looked at the network since the rank asked this last: what threads of
    /// its program wait for may have come.
    fn take_polled(&mut self) -> bool;

    /// Waits until something happened to the job since the last call (a completion, a cancel) or
    /// until `deadline`; the core is halted meanwhile. It may return early: callers look for what
    /// they need, then wait, in a loop.
    fn wait(&mut self, deadline: Instant) {
        if let Some(until) = self.begin_sleep(deadline) {
            time::sleep_until(until);
            self.end_sleep();
        }
    }

    /// [`Self::wait`] for who has others use the node while the core is halted: until when it is to
    /// be; [`Self::end_sleep`] comes after it. `None` when something has happened already.
    fn begin_sleep(&mut self, deadline: Instant) -> Option<Instant>;

    /// The core is awake again.
    fn end_sleep(&mut self);

    /// When a computing program must be interrupted next for the node's own sake: at most once
    /// in `agent::node::TICK`. The caller takes the earlier of this and the job's own limits.
    fn tick(&self) -> Instant;

    /// When a computing program must be interrupted next for monitoring that somebody asked for,
    /// more often than once in `agent::node::TICK`.
    fn monitor_deadline(&self) -> Option<Instant>;

    /// The job wants nothing to be measured of its node until its end.
    fn be_quiet(&mut self);

    /// The signal with which the control node wants the job ended, once it has said so.
    fn cancelled(&self) -> Option<u8>;

    /// Whether a program that a signal has ended was ended by the control node with it: who wanted
    /// that does not ask where the program was then.
    fn is_by_cancel(&self, _signal: u8) -> bool {
        false
    }

    /// The next signal that the program is to get: one that control has sent, or the first of a
    /// cancel that gives it time ([`Self::cancelled`] says when that is over).
    fn take_signal(&mut self) -> Option<u8>;

    /// Asks for a range of an object of the job; a [`PageCompletion`] follows. `demand`: the
    /// program waits for it. On [`Full`], take completions or wait.
    fn request_pages(
        &mut self,
        object: Object,
        offset: u64,
        length: u32,
        demand: bool,
    ) -> Result<RequestId, Full>;

    /// The next page completion.
    fn take_pages(&mut self) -> Option<PageCompletion>;

    /// Forgets all page requests that are under way; no completion follows for them.
    fn forget_pages(&mut self);

    /// What reading the program has cost on the network so far.
    fn page_traffic(&self) -> PageTraffic;

    /// The warm programs of this node. What changes in it is told to control.
    fn warm(&mut self) -> &mut WarmTable;

    /// The objects in the node's memory: files and images that were cast.
    fn objects(&mut self) -> &mut Objects;

    /// Gives memory that is only kept for later to who needs it now: while fewer than `least`
    /// frames are available, images that nobody uses go, then warm programs, then images that are
    /// arriving.
    fn keep_room(&mut self, least: u64);

    /// Says which program runs, so that others can be given its pages; `None` before they go.
    fn set_running(&mut self, running: Option<Running>);

    /// Where a page of the job's program is, as far as a broadcast brings it.
    fn cast_page(&self, page: u64) -> CastPage;

    /// A number that rises with every block that a broadcast brings.
    fn cast_progress(&self) -> u64;

    /// The program waits for a page of its file that is coming with a broadcast.
    fn want_page(&mut self, page: u64);

    /// Where a page of a file is that a broadcast brings because ranks read it.
    fn read_page(&self, id: &ObjectId, page: u64) -> CastPage;

    /// The program waits for a page of such a file that is coming.
    fn want_read(&mut self, id: &ObjectId, page: u64);

    /// The frame of a page of the program that another rank of this node has, as the file has it.
    fn page_beside(&self, _page: VirtAddr) -> Option<PhysAddr> {
        None
    }

    /// Whether another rank of this node has asked for the page at that offset of the file.
    fn is_asked_beside(&self, _offset: u64) -> bool {
        false
    }

    /// How a rank of the job is reached.
    fn peer(&self, rank: Rank) -> PeerLookup;

    /// The job's calls on files; `None` where it has no service that carries them out.
    fn shipping(&mut self) -> Option<&mut Shipping> {
        None
    }

    /// What the ranks of the job have in `/tmp` on this node.
    fn temporary(&mut self) -> &mut Temporary;

    /// The data that the ranks of the job exchange.
    fn exchange(&mut self) -> &mut Exchange;

    /// While a broadcast is unfinished in which the node has a part, or an operation between ranks:
    /// when it must be looked after next. The card may interrupt a computing program until this is
    /// `None`.
    fn peers_deadline(&self) -> Option<Instant>;

    /// Lets the card interrupt, or not; returns whether a frame waits for which none comes.
    fn listen(&mut self, on: bool) -> bool;

    /// Whether control wants nothing of the program kept after its end.
    fn dropped(&self) -> bool;

    /// Ships an I/O call of the job; an [`IoCompletion`] follows. On [`SubmitError::Full`], wait.
    fn io_submit(&mut self, op: IoOp) -> Result<CallId, SubmitError>;

    /// Calls not done yet; zero means that everything written has arrived.
    fn io_pending(&self) -> usize;

    /// The next I/O completion.
    fn take_io(&mut self) -> Option<IoCompletion>;
}
