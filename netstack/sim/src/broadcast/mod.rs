//! Casts in the simulator: [`netstack::broadcast::Member`] and [`netstack::broadcast::Source`], as
//! they ship, on a network of simulated links.
//!
//! - [`setup`]: what a run is made of; [`options`] reads one from a command line ([`published`]
//!   what the published scheme leaves open), [`swarm`] draws one from a seed.
//! - [`world`]: the event loop; [`station`]: one engine and its memory; [`operator`]: the control
//!   node's user.
//! - [`fabric`]: links, network cards, ports and trunks of a fat tree, and what goes wrong on them.
//! - [`queue`]: events by time.
//! - [`shelf`] and [`content`]: what is cast, and what each node has of it; [`ranks`]: a job's
//!   connection table.
//! - [`check`]: what must hold; [`summary`]: what came out; [`progress`]: how far it is.
//!
//! Small runs send real datagrams with real bytes; in large ones the payload is virtual, and the
//! fragments of a block travel as one event with a bitmap, while loss and room in queues are still
//! decided for every datagram.
//!
//! Invariant: networks, faults and checks are here, no protocol logic.

pub mod check;
pub mod content;
pub mod fabric;
pub mod operator;
pub mod options;
pub mod progress;
pub mod published;
pub mod queue;
pub mod ranks;
pub mod setup;
pub mod shelf;
pub mod station;
pub mod summary;
pub mod swarm;
mod wire;
pub mod world;
