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
//! | [`site`] | a site's own tree, from Slurm's topology.conf: unequal switches, host names |
//! | [`exact`] | the set of free nodes with the fewest hops; what warm nodes count; the certificate |
//! | [`machine`] | nodes and what jobs hold of them, in scheduling units; the unit size rule |
//! | [`placing`] | the nodes for a job: published, exact, and the simple algorithms to compare with |
//! | [`queue`] | which jobs may start: published window, first come first served, EASY and conservative backfill |
//!
//! Key types: [`topology::Topology`], [`exact::Candidate`], [`exact::Placement`]. Neighbours: the
//! control node's job runner asks for every job that may start.
//!
//! Invariant: the same question always has the same answer, whatever was asked before.

pub mod exact;
pub mod machine;
pub mod placing;
pub mod queue;
pub mod site;
pub mod topology;
