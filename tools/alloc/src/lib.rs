//! Which nodes of a fat tree a job gets: pure functions, no I/O, no clock, no state between calls.
//!
//! The method is the publication's "Parallel job scheduling on a fat tree": of all sets of free
//! nodes of the wanted size, one with the minimum sum of pairwise hops (its scheduling pass, step
//! 4). How that minimum is found is ours. [`placement`] has both side by side.
//!
//! | module | purpose |
//! |---|---|
//! | [`topology`] | the tree: height, widths, uplinks, which switch is above a node, hops between nodes and units |
//! | [`site`] | a site's own tree, from Slurm's topology.conf: unequal switches, host names |
//! | [`placement`] | the nodes for a job: `published`, `exact`, and the simple algorithms to compare with |
//! | [`machine`] | nodes and what jobs hold of them, in scheduling units |
//! | [`queue`] | which jobs may start: published window, first come first served, EASY and conservative backfill |
//!
//! Key types: [`topology::Topology`], [`placement::Placing`], [`queue::Queue`]. Neighbours: the
//! control node's job runner asks for every job that may start.
//!
//! Invariant: the same question always has the same answer, whatever was asked before.

pub mod machine;
pub mod placement;
pub mod queue;
pub mod site;
pub mod topology;
