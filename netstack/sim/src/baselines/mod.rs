//! Schemes that the published methods and ours are compared with, and that nothing else needs.
//!
//! - [`broadcast`]: whole objects, down a tree or from control to each node.
//! - [`exchange`]: at once, blind, random delay, by priority or by volume.
//!
//! They run on the engines that ship: an option of the published broadcast, and
//! [`netstack::exchange::Baseline`]. No node and no command of `hearth` knows their names.
//!
//! Neighbours: [`crate::casts`] and [`crate::exchange`] read the names from a command line,
//! [`crate::random`] draws the schemes from a seed.
//!
//! Invariant: nothing but what makes a scheme different is here.

pub mod broadcast;
pub mod exchange;
