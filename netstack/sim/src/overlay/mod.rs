//! The monitoring overlay in the simulator: [`netstack::overlay::Node`] and
//! [`netstack::overlay::FrontEnd`], as they ship, on the network of [`super::broadcast::fabric`].
//!
//! - [`setup`]: what a run is made of; [`options`] reads one from a command line, [`swarm`] draws
//!   one from a seed.
//! - [`world`]: the event loop, faults included; [`station`]: one node, its clock and what it
//!   measures.
//! - [`truth`]: what really happened, to hold the books against.
//! - [`check`]: what must hold; [`summary`]: what came out.
//!
//! Every datagram is a real one, sealed and parsed, in the largest runs too.
//!
//! Invariant: networks, faults and checks are here, no protocol logic.

pub mod check;
pub mod options;
pub mod setup;
pub mod station;
pub mod summary;
pub mod swarm;
pub mod truth;
pub mod world;
