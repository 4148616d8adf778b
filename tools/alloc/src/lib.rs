//! Which nodes of a fat tree a job gets: pure functions, no I/O, no clock, no state between calls.
//!
//! The method is the publication's "Parallel job scheduling on a fat tree": of all sets of free
//! nodes of the wanted size, one with the minimum sum of pairwise hops (its scheduling pass, step
//! 4). How that minimum is found is ours: by bounds and a tree knapsack instead of trying sets,
//! see [`exact`].
//!
//! | module | purpose |
//! |---|---|
//! | [`topology`] | the tree: height, widths, uplinks, which switch is above a node, hops between nodes and units |
//! | [`exact`] | the set of free nodes with the fewest hops; what warm nodes count; the certificate |
//!
//! Key types: [`topology::Topology`], [`exact::Candidate`], [`exact::Placement`]. Neighbours: the
//! control node's job runner asks for every job that may start.
//!
//! Invariant: the same question always has the same answer, whatever was asked before.

pub mod exact;
pub mod topology;
