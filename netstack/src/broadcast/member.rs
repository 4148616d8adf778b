//! The node's facade: takes part in casts, receives and serves.
//!
//! The drain loop is that of [`crate::node::Endpoint`]. All datagrams are of kinds 64 to 79.

use alloc::vec::Vec;
use core::net::SocketAddrV4;

use crate::ids::{CastId, NodeId};
use crate::time::Instant;
use crate::wire::key::Key;

use super::event::{CastCounters, Footprint, MemberEvent, Progress, RefuseReason};
use super::message::{MemberIndex, Packet};
use super::{Part, Peer, Store};

/// What a member needs to know of itself.
#[derive(Clone, Debug)]
pub struct MemberConfig {
    /// Number of the node, for its counters and texts only.
    pub node: NodeId,
    /// Where it is reached.
    pub me: Peer,
    /// The control node; None: whoever announces under the key.
    pub control: Option<Peer>,
    /// The key of this run of the control node.
    pub key: Key,
    /// Most bytes per second it sends, framing included; 0: as announced.
    pub rate: u64,
    /// Reassembly buffers of a block each. Fragments that were asked for and may arrive at any time
    /// never exceed what these hold.
    pub buffers: u32,
    /// Seed of its random choices; different on every node.
    pub seed: u64,
}

/// What a member wants of a cast that it accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// All of it.
    All,
    /// Nothing: it serves what it has. It counts as done.
    Nothing,
}

/// The node's side of all casts.
#[derive(Debug)]
pub struct Member {
    config: MemberConfig,
    counters: CastCounters,
}

#[expect(unused_variables, reason = "the interface lands before the engine")]
impl Member {
    /// A member of no cast.
    pub fn new(config: MemberConfig, now: Instant) -> Self {
        Member {
            config,
            counters: CastCounters::default(),
        }
    }

    /// Takes a datagram of kinds 64 to 79. Bad input is counted.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        from: SocketAddrV4,
        datagram: &[u8],
        store: &mut dyn Store,
    ) {
    }

    /// Takes a message. `fragment` is the payload of DATA, exactly one fragment then; without it
    /// the payload is virtual: trains count, nothing is hashed, [`Store::write`] gets no bytes.
    pub fn handle_message(
        &mut self,
        now: Instant,
        from: SocketAddrV4,
        packet: Packet,
        fragment: Option<&[u8]>,
        store: &mut dyn Store,
    ) {
    }

    /// The next datagram to send: to whom and its length, written to the front of `out`, which
    /// must have [`crate::MAX_DATAGRAM`] bytes. Also acts on deadlines that have passed.
    pub fn poll_transmit(
        &mut self,
        now: Instant,
        out: &mut [u8],
        store: &mut dyn Store,
    ) -> Option<(Peer, usize)> {
        None
    }

    /// The next message to send (instead of [`Member::poll_transmit`], not beside it).
    pub fn poll_message(&mut self, now: Instant, store: &mut dyn Store) -> Option<(Peer, Packet)> {
        None
    }

    /// When to call `poll_transmit` again without other cause, the pacer's wait included; a time
    /// that has passed means at once. None: nothing is under way.
    pub fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<MemberEvent> {
        None
    }

    /// Takes part in an announced cast. `have` says which parts are here already (checked).
    /// Nothing happens when the cast is not waiting for an answer.
    pub fn accept(
        &mut self,
        now: Instant,
        cast: CastId,
        want: Want,
        have: &mut dyn FnMut(Part) -> bool,
    ) {
    }

    /// Takes no part in an announced cast, but passes its announcement on.
    pub fn refuse(&mut self, now: Instant, cast: CastId, reason: RefuseReason) {}

    /// A program waits for this data block: it is asked for before all others.
    pub fn want(&mut self, now: Instant, cast: CastId, data_block: u32) {}

    /// Takes part in a cast that is unfinished, here or elsewhere.
    pub fn is_active(&self) -> bool {
        false
    }

    /// A cast that lacks something here.
    pub fn is_receiving(&self) -> bool {
        false
    }

    /// How far a cast is here.
    pub fn progress(&self, cast: CastId) -> Option<Progress> {
        None
    }

    /// The block is here and checked.
    pub fn holds(&self, cast: CastId, data_block: u32) -> bool {
        false
    }

    /// The control node has a new key: all casts end without an event, the rosters are kept.
    pub fn set_key(&mut self, key: Key) {
        self.config.key = key;
    }

    /// Makes a roster known before it is asked for (see [`super::message::Setup::roster_id`]).
    pub fn learn_roster(&mut self, roster_id: u64, pages: Vec<alloc::sync::Arc<[Peer]>>) {}

    /// Figures since the start.
    pub fn counters(&self) -> &CastCounters {
        &self.counters
    }

    /// What is kept at present.
    pub fn footprint(&self) -> Footprint {
        Footprint::default()
    }

    /// This member's number in a cast.
    pub fn index(&self, cast: CastId) -> Option<MemberIndex> {
        None
    }
}
