//! All-to-all exchanges in the simulator: [`netstack::exchange::Endpoint`], as it ships, on the
//! network of [`crate::broadcast::fabric`].
//!
//! - [`setup`]: what a run is made of; [`options`] reads one from a command line.
//! - [`world`]: the event loop. [`memory`]: the memory of a rank, which checks that every packet of
//!   every block is written once, and in small runs every byte.
//! - [`summary`]: what came out; [`swarm`]: small runs with
//!   random faults.
//!
//! Small runs send real datagrams with real bytes; in large ones several packets of a block travel
//! as one event, while loss and room in queues are decided for every datagram.
//!
//! Invariant: networks, faults and checks are here, no protocol logic.

pub mod memory;
pub mod options;
pub mod setup;
pub mod summary;
pub mod swarm;
pub mod world;
