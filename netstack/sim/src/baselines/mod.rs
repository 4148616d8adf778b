//! Schemes that the published methods and ours are compared with, and that nothing else needs.
//!
//! - [`exchange`]: at once, blind, random delay, by priority or by volume.
//!
//! They run on the engine that ships, by [`netstack::exchange::Baseline`]. No node and no command of
//! `hearth` knows their names.
//!
//! Neighbour: `crate::exchange` reads the names from a command line, and draws the schemes from a
//! seed.
//!
//! Invariant: nothing but what makes a scheme different is here.

pub mod exchange;
