//! The placement that Hearth ships: whole trees, on hosts that have room for a few processes each.
//!
//! The method's page is at [`super::published`], whose averaging, evaluation and attachment are
//! used here. What is ours, and why:
//!
//! | what | why | where |
//! |---|---|---|
//! | hosts have room for so many processes and no more | the tree lives in kernels, whose memory is small | [`capped`] |
//! | the number of levels follows from the fan-out | the publication leaves the shape to the configuration | [`plan`] |
//! | hosts at ease first: dedicated ones, or those without a job | the others compute | [`plan`] |
//! | high processes go to hosts without back ends first | they carry the most | [`plan`] |
//! | neighbours in a level have neighbouring hosts, a parent takes a run of them | subtrees stay together, below one switch | [`plan`] |
//! | a given tree in three forms | the publication's topology configuration has none | [`topology`] |
//!
//! Neighbour: `overlay::front_end` makes its tree by [`Plan::make`](plan::Plan::make).
//!
//! Invariant: a plan that is made fits all hosts and all bounds of the overlay.

pub mod capped;
pub mod plan;
pub mod topology;
