//! Hearth's protocols: wire formats and state machines, the same code in the node kernel, the
//! control node, the simulator and the fuzz targets.
//!
//! The crate is *sans-IO*: it takes the present time and a datagram or a command, and gives
//! datagrams to send, events and the next deadline. Two facades wrap everything:
//! [`node::Endpoint`] for a compute node and [`control::Endpoint`] for the control node.
//! `docs/protocol.md` describes every message byte by byte.
//!
//! The drain loop of both sides, after every datagram, command or expired deadline:
//!
//! ```text
//! loop {
//!     while let Some(event) = endpoint.poll_event() { act on it }
//!     match endpoint.poll_transmit(now, &mut buffer) { Some(length) => send, None => break }
//! }
//! arm the timer for endpoint.poll_timeout()
//! ```
//!
//! Invariant: nothing here reads a clock, draws randomness, opens a socket or iterates over a
//! container whose order is not defined by its keys; a run is a function of its inputs and seed.
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod broadcast;
pub mod control;
pub mod counters;
pub mod exchange;
pub mod files;
pub mod ids;
pub mod io;
pub mod job;
pub mod join;
pub(crate) mod log;
pub mod node;
pub mod overlay;
pub mod page;
pub mod personality;
pub mod retention;
pub mod rng;
pub mod size;
pub mod time;
pub(crate) mod transport;
pub mod vitals;
pub mod wire;

/// UDP port the control node listens on unless the personality says otherwise.
pub const CONTROL_PORT: u16 = 7117;
/// UDP port a node uses, and the first of its ranks for what ranks send each other.
pub const NODE_PORT: u16 = 7118;
/// Ranks of a job that a node may have: one for each core that a node can use.
pub const RANKS_PER_NODE_MAX: u16 = 64;

/// UDP port at which a node takes what other ranks send this one of its ranks.
pub const fn rank_port(rank: ids::LocalRank) -> u16 {
    NODE_PORT + rank.0
}

/// The rank of a node whose port this is.
pub const fn rank_of_port(port: u16) -> Option<ids::LocalRank> {
    match port.checked_sub(NODE_PORT) {
        Some(rank) if rank < RANKS_PER_NODE_MAX => Some(ids::LocalRank(rank)),
        _ => None,
    }
}
/// Largest datagram either side sends or accepts, in bytes: what fits an Ethernet frame of
/// 1,500 bytes after the IPv4 (20) and UDP (8) headers. Transmit buffers must have this size.
pub const MAX_DATAGRAM: usize = 1472;
/// Most bytes of data of an I/O call in one datagram. Leaves room for the header, the message's own
/// fields and the tag in [`MAX_DATAGRAM`].
pub const MAX_DATA: usize = 1280;
