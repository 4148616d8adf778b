//! The control node's facade: announces casts, deals blocks, hears who is done.
//!
//! Invariant: the object is read block by block as it is sent, never as a whole.

use alloc::vec::Vec;
use core::fmt;
use core::net::SocketAddrV4;

use crate::ids::{CastId, JobId, NodeId};
use crate::time::Instant;
use crate::wire::key::Key;

use super::event::{CastCounters, Footprint, Progress, SourceEvent};
use super::message::Packet;
use super::plan::Shape;
use super::{Object, Peer, Purpose, Scheme, Store};

/// Bounds of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Casts at a time.
    pub casts: usize,
    /// Events that wait for the user.
    pub events: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            casts: 64,
            events: 1 << 18,
        }
    }
}

/// What a source needs to know of itself.
#[derive(Clone, Debug)]
pub struct SourceConfig {
    /// Where it is reached.
    pub me: Peer,
    /// The key of this run.
    pub key: Key,
    /// Most bytes per second it sends, framing included.
    pub rate: u64,
    /// Seed of its random choices.
    pub seed: u64,
    /// Bounds.
    pub limits: Limits,
}

/// A cast to make.
#[derive(Clone, Debug)]
pub struct CastSpec {
    /// Its number, above those of all earlier casts.
    pub id: CastId,
    /// What is cast.
    pub object: Object,
    /// What it is for.
    pub purpose: Purpose,
    /// The job that waits for it.
    pub job: Option<JobId>,
    /// The members, and whether they are known to hold it.
    pub members: Vec<(NodeId, Peer, bool)>,
    /// How it spreads.
    pub scheme: Scheme,
    /// Rate of the members' links in bytes per second, framing included; 0: the source's.
    pub rate: u64,
}

/// Why a cast cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CastError {
    /// A cast has this number already.
    Known,
    /// As many casts as [`Limits::casts`] are under way: wait for one to finish, or cancel one.
    TooManyCasts,
    /// More members than [`super::MAX_MEMBERS`]: cast to them in parts.
    TooManyMembers,
    /// No member.
    NoMembers,
    /// The object's parts do not fit together, or it needs larger blocks.
    BadObject,
    /// The name of the file is empty, too long or has a `/`.
    BadName,
    /// The scheme cannot be used with so many members.
    BadScheme,
}

impl fmt::Display for CastError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CastError::Known => "a cast with this number is under way",
            CastError::TooManyCasts => {
                "too many casts are under way: wait for one to finish, or cancel one"
            }
            CastError::TooManyMembers => "too many members: cast to them in parts",
            CastError::NoMembers => "a cast needs at least one member",
            CastError::BadObject => "the object's blocks do not fit its length",
            CastError::BadName => "a name has 1 to 128 bytes and no slash",
            CastError::BadScheme => "the scheme cannot be used with so many members",
        })
    }
}

impl core::error::Error for CastError {}

/// The control node's side of all casts.
#[derive(Debug)]
pub struct Source {
    config: SourceConfig,
    counters: CastCounters,
}

#[expect(unused_variables, reason = "the interface lands before the engine")]
impl Source {
    /// A source of no cast.
    pub fn new(config: SourceConfig, now: Instant) -> Self {
        Source {
            config,
            counters: CastCounters::default(),
        }
    }

    /// Begins a cast. A member that is known to hold the object is a further dealer.
    pub fn cast(&mut self, now: Instant, spec: CastSpec) -> Result<(), CastError> {
        Ok(())
    }

    /// A node came late or has restarted: it gets the rest. Its address may have changed. A node
    /// that is no member becomes one.
    pub fn join(&mut self, now: Instant, cast: CastId, node: NodeId, peer: Peer) {}

    /// A node is gone: no cast waits for it.
    pub fn lost(&mut self, now: Instant, node: NodeId) {}

    /// Ends a cast everywhere; `Finished` follows when the members know or do not answer.
    pub fn cancel(&mut self, now: Instant, cast: CastId) {}

    /// Takes a datagram of kinds 64 to 79. Bad input is counted.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        from: SocketAddrV4,
        datagram: &[u8],
        store: &mut dyn Store,
    ) {
    }

    /// Takes a message; see [`super::Member::handle_message`].
    pub fn handle_message(
        &mut self,
        now: Instant,
        from: SocketAddrV4,
        packet: Packet,
        store: &mut dyn Store,
    ) {
    }

    /// The next datagram to send, see [`super::Member::poll_transmit`].
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        out: &mut [u8],
        store: &mut dyn Store,
    ) -> Option<(Peer, usize)> {
        None
    }

    /// The next message to send (instead of [`Source::poll_transmit`], not beside it).
    pub fn poll_message(&mut self, now: Instant, store: &mut dyn Store) -> Option<(Peer, Packet)> {
        None
    }

    /// When to call `poll_transmit` again without other cause; a time that has passed means at
    /// once. None: nothing is under way.
    pub fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<SourceEvent> {
        None
    }

    /// How far a cast is.
    pub fn progress(&self, cast: CastId) -> Option<Progress> {
        None
    }

    /// The shape of a cast in the default scheme; None with other schemes.
    pub fn shape(&self, cast: CastId) -> Option<Shape> {
        None
    }

    /// Figures since the start.
    pub fn counters(&self) -> &CastCounters {
        &self.counters
    }

    /// What is kept at present.
    pub fn footprint(&self) -> Footprint {
        Footprint::default()
    }
}
