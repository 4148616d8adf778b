//! The monitoring overlay: counters of every node flow up a tree that the nodes form themselves,
//! are reduced on the way, and reach the front end with their books balanced.
//!
//! Roles: the **front end** (FE, [`FrontEnd`]) is in the control node. Everything on a compute node
//! is one [`Node`]: a **back end** (BE) that collects and submits, **communication processes** (CP)
//! that receive, filter and forward, and **auxiliary service processes** (AP), further collectors
//! that the back end starts and stops. A CP to which back ends attach is a leaf of the inner tree
//! (IBE).
//!
//! The steps of the method, in their order, and where they are:
//!
//! | step | where |
//! |---|---|
//! | nodes say hello, the front end collects them | `front_end`, `node` |
//! | place | [`placement`] |
//! | build, each CP its own subtree, in parallel | `cp`, `hub::building` |
//! | attach | `uplink`, `hub` |
//! | submit | `back_end` |
//! | filter | [`filter`], `hub::reducing` |
//! | forward | `uplink`, [`section`] |
//! | hand over to the store | [`FrontEndEvent::Tick`] |
//! | take down | `hub` |
//!
//! Also here: [`metric`] (the `counters!` table), [`stream`], [`books`] (accounting), [`clock`]
//! (the time that all processes share), [`message`] and [`wire`], [`room`] (what a process may
//! hold).
//!
//! Source of the method: tree-based overlay networks for performance data (roles, placement
//! policies, filters, synchronisation); `docs/overlay.md` says where Hearth differs.
//!
//! Invariant: a process attaches only to one that is higher, so that no order of losses and
//! messages can make a ring. Every table has a bound, and no value arrives without the number of
//! back ends it covers.

use crate::time::Micros;
use crate::transport::retry::{FIRST, LOOKS};

mod back_end;
pub mod books;
pub mod clock;
mod cp;
pub mod filter;
pub mod fixed;
mod front_end;
mod hub;
pub mod message;
pub mod metric;
mod node;
mod outbox;
pub mod placement;
pub mod room;
pub mod section;
pub mod stream;
#[cfg(test)]
mod tests;
mod uplink;
pub mod wire;

pub use books::Books;
pub use filter::{Acc, Class, Filter, Reduced};
pub use front_end::{
    BuildError, FrontEnd, FrontEndConfig, FrontEndEvent, FrontEndStatus, NodeView, Part, TickBody,
    TickValue,
};
pub use message::{Candidate, Process, TreeEpoch};
pub use metric::{
    MetricDef, MetricId, MetricKind, NetworkMetric, NodeMetric, OverlayMetric, ProfileMetric, Unit,
};
pub use node::{Collector, Footprint, Node, NodeConfig, NodeEvent, ProcessStatus};
pub use section::{Body, Row};
pub use stream::{Scope, StreamError, StreamId, StreamSpec, Sync};

/// Longest datagram of the overlay, in bytes.
pub const MAX_FRAME: usize = 1_400;
/// Most communication processes of a node; their slots are 1 to this: a megabyte each.
pub const MAX_CPS: u8 = 4;
/// Most children of a communication process.
pub const MAX_CHILDREN: usize = 128;
/// Most children of a front end: what remains without a parent comes to it. Sixteen processes'
/// worth.
pub const MAX_FRONT_END_CHILDREN: usize = 16 * MAX_CHILDREN;
/// The height of the front end at most: four children a process are enough for 4^8 = 65,536 leaves.
pub const MAX_HEIGHT: u8 = 8;

/// How often a process wants to hear its parent: as often as a node that computes looks.
const BEAT_EVERY: Micros = LOOKS;
/// How long after values would have gone a question goes alone: those that go with values cost no
/// message. An eighth of a beat, as RFC 9002 has it for what is late (section 6.1.2).
const BEAT_LATE: Micros = Micros(BEAT_EVERY.0 / 8);
/// How often a process that has just attached asks, until it knows the time from answers that had
/// the way to themselves: as soon as anything is repeated.
const CLOCK_EVERY: Micros = RETRY_FIRST;
/// How soon it asks again when it does not: all that it asks before a parent is lost fits the time
/// that a parent may be silent.
const ASK_AGAIN: Micros = Micros::from_millis(300);
/// Silence after which a parent or child counts as lost: whoever waits for it knows within three
/// seconds.
pub const LOST_AFTER: Micros = Micros::from_millis(2_800);
/// Questions in vain before a parent counts as lost: a process that was not running itself asks
/// first. Where one datagram in ten is lost, so are as many questions, or their answers, once in
/// 770 times: 0.19^4.
const ASKS_LEAST: u32 = 4;
/// A process that was not asked to do anything for one and a half beats was not running; it blames
/// nobody for it.
const STALL: Micros = Micros(BEAT_EVERY.0 * 3 / 2);
const _: () = assert!(BEAT_EVERY.0 < STALL.0);
/// How often a parent tells the front end of its children: a tenth of what beats cost.
pub const CENSUS_EVERY: Micros = BEAT_EVERY.saturating_mul(10);
/// How often a front end invites those that have no parent.
const INVITE_EVERY: Micros = Micros(CENSUS_EVERY.0 / 2);
/// How soon messages are repeated that need an answer; doubles up to [`RETRY_SLOWEST`].
const RETRY_FIRST: Micros = FIRST;
/// Slowest repetition: a node that computes has looked twice by then.
const RETRY_SLOWEST: Micros = Micros(2 * LOOKS.0);
/// How long a process that was taken down answers those that did not hear it: with how long it
/// waits for those below it less than the two seconds in which a tree is down.
const LINGER: Micros = Micros::from_millis(500);
/// How long a process waits for the processes below it to be down.
const TAKE_DOWN_PATIENCE: Micros = Micros::from_millis(1_200);
/// Time over which the back ends of a tree spread their work for a tick, at most: none waits for
/// another's on the wire, in a parent, or for a processor that emulates several of them.
pub const STAGGER: Micros = Micros::from_millis(10);
/// Shortest hold of the streams that are open, in staggers: most of the hold is left for what is
/// late.
const STAGGERS_A_HOLD: u64 = 5;

const _: () = assert!(TAKE_DOWN_PATIENCE.0 + LINGER.0 < 2_000_000);
const _: () =
    assert!(BEAT_EVERY.0 + BEAT_LATE.0 + ASK_AGAIN.0 * (ASKS_LEAST as u64) < LOST_AFTER.0);
